//! Normalized runs by a program, asked for by an Edge that a test plays.
#![allow(clippy::unwrap_used, reason = "a test ends where something unexpected begins")]

mod support;

use std::{
    collections::BTreeMap,
    io::Read,
    path::{Path, PathBuf},
    sync::mpsc,
    thread,
};

use bytes::Bytes;
use dataplane::relay::CloseReason;
use proto::{
    message::{
        AdapterConfig, AdapterSettings, CliConfig, ErrorKind, NodeConfigPayload, ProviderConfig,
        RunEventKind, RunRequest, StreamNo,
    },
    run_input::{Role, RunInput, Tool, Turn},
};
use support::{
    PATIENCE,
    certs::Pki,
    edge::{Edge, Outcome},
    log,
    node::{Node, Setup, config},
};

/// An Edge and a Node whose one adapter runs this script in a shell.
fn ready(script: &str, args: &[&str], capacity: u32) -> (Edge, Node) {
    let pki = Pki::new();
    let edge = Edge::start(pki.edge_tls("edge-1"));
    let node = Node::start(Setup::new(edge.address, pki.node_tls("box1", "edge-1")));
    let args = ["-c", script, "sh"].iter().chain(args).map(|text| (*text).to_owned()).collect();
    let settings = CliConfig {
        command: "/bin/sh".to_owned(),
        args,
        env: BTreeMap::from([("CONFIGURED".to_owned(), "yes".to_owned())]),
        mode: "stdin".to_owned(),
        output_format: "text".to_owned(),
    };
    let usual = config("127.0.0.1:1".parse().unwrap(), capacity);
    let adapter = AdapterConfig {
        name: "cli-1".to_owned(),
        settings: AdapterSettings::Cli(settings),
        ..usual.adapters[0].clone()
    };
    let provider = ProviderConfig {
        adapter: "cli-1".to_owned(),
        category: "cli".to_owned(),
        ..usual.providers[0].clone()
    };
    edge.make_ready(NodeConfigPayload { adapters: vec![adapter], providers: vec![provider], ..usual });
    (edge, node)
}

fn asks(text: &str) -> RunInput {
    let turn = Turn { role: Role::User, text: text.to_owned(), ..Turn::default() };
    RunInput { messages: vec![turn], ..RunInput::default() }
}

fn run(stream: StreamNo, input: &RunInput) -> RunRequest {
    let input = Bytes::from(input.to_json().unwrap());
    RunRequest {
        stream,
        run_id: format!("run-{stream}"),
        adapter: "cli-1".to_owned(),
        target: "qwen3".to_owned(),
        input_bytes: input.len() as u64,
        input,
        metadata: BTreeMap::new(),
        session_id: String::new(),
        timeout_sec: 0,
        response_stall_timeout_ms: 300_000,
        window_bytes: 64 * 1024,
        credential: None,
    }
}

fn ask(edge: &Edge, request: RunRequest) {
    edge.open_run(request, Bytes::new());
}

/// What a run says up to its completion.
fn completed(edge: &Edge, stream: StreamNo) -> String {
    let Outcome { text, end, .. } = edge.outcome(stream);
    assert_eq!(end.unwrap().kind, stopped());
    text
}

fn stopped() -> RunEventKind {
    RunEventKind::Complete { finish_reason: "stop".to_owned(), usage: None }
}

/// A named pipe.
fn pipe(directory: &Path, name: &str) -> PathBuf {
    let path = directory.join(name);
    assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
    path
}

/// What is written to a named pipe, when nobody holds it any more.
fn written(path: &Path) -> mpsc::Receiver<String> {
    let (sent, end) = mpsc::channel();
    let path = path.to_owned();
    thread::spawn(move || {
        let mut text = String::new();
        std::fs::File::open(path).unwrap().read_to_string(&mut text).unwrap();
        sent.send(text)
    });
    end
}

// req: RUN-1, RUN-7, RUN-5, FRB-3
#[test]
fn a_run_is_one_program_that_a_request_steers_by_its_prompt_alone() {
    let script = "pwd; echo \"$CONFIGURED-$EVIL-$#-$*\"; cat";
    let (edge, _node) = ready(script, &["fixed"], 1);
    let expected = "/\nyes--1-fixed\n$(touch /tmp/x) --help";
    for stream in [1, 2] {
        let metadata =
            ["cwd", "directory", "args", "EVIL", "env"].map(|key| (key.to_owned(), "/tmp".to_owned()));
        ask(
            &edge,
            RunRequest {
                target: "--help /tmp; $(id)".to_owned(),
                session_id: "../../tmp".to_owned(),
                metadata: metadata.into(),
                ..run(stream, &asks("$(touch /tmp/x) --help"))
            },
        );
        assert_eq!(completed(&edge, stream), expected);
    }
    let mut talk = asks("b");
    talk.messages.insert(0, Turn { role: Role::System, text: "a".to_owned(), ..Turn::default() });
    ask(&edge, run(3, &talk));
    assert!(completed(&edge, 3).ends_with("fixed\nSystem:\na\n\nUser:\nb\n"));
}

// req: RUN-1, OBS-4
#[test]
fn what_a_program_cannot_be_asked_is_refused_and_what_it_says_at_its_failure_arrives_and_is_in_no_log() {
    let log = log::taken();
    let (edge, _node) = ready("read line; echo \"bad $line\" >&2; exit 7", &[], 1);
    let mut input = asks("a");
    input.tools.push(Tool { name: "f".to_owned(), description: String::new(), parameters: None });
    ask(&edge, run(1, &input));
    let expected = (ErrorKind::InvalidRequest, "tools: a command-line model takes no tools".to_owned());
    assert_eq!(edge.outcome(1).error(), expected);
    ask(&edge, run(2, &asks("prompt\n")));
    let expected = (ErrorKind::UpstreamProtocol, "the program ended with code 7: bad prompt".to_owned());
    assert_eq!(edge.outcome(2).error(), expected);
    let logged = log::text(&log);
    assert!(logged.contains("provider failed") && !logged.contains("bad prompt"), "{logged}");
}

// req: PRE-3, CAN-1, GAT-1
#[test]
fn a_cancelled_program_keeps_its_place_until_it_is_gone() {
    let directory = tempfile::tempdir().unwrap();
    let (asked, go) = (pipe(directory.path(), "asked"), pipe(directory.path(), "go"));
    let script = "trap 'echo asked >\"$1\"; read x <\"$2\"; exit' TERM; read line; echo ready; \
                  if [ \"$line\" = wait ]; then sleep 1000 & wait; fi";
    let paths = [&asked, &go].map(|path| path.to_str().unwrap());
    let (edge, _node) = ready(script, &paths, 1);
    ask(&edge, run(1, &asks("wait\n")));
    assert_eq!(edge.event().kind, RunEventKind::Start);
    assert!(matches!(edge.event().kind, RunEventKind::Delta { .. }));
    let was_asked = written(&asked);
    edge.cancel(1);
    assert_eq!(was_asked.recv_timeout(PATIENCE).unwrap(), "asked\n");
    ask(&edge, run(2, &asks("x\n")));
    assert_eq!(edge.outcome(2).error().0, ErrorKind::Busy);
    std::fs::write(&go, "go\n").unwrap();
    assert_eq!(edge.event().kind, RunEventKind::Cancelled);
    ask(&edge, run(3, &asks("x\n")));
    assert_eq!(completed(&edge, 3), "ready\n");
}

// req: PRE-2, TUN-8
#[test]
fn a_deadline_and_a_lost_session_end_the_whole_group() {
    let directory = tempfile::tempdir().unwrap();
    let lifelines = ["one", "two"].map(|name| pipe(directory.path(), name));
    let script = "read line; exec 9>\"$1/$line\"; sleep 1000 & sleep 1000; sleep 1000";
    let (edge, _node) = ready(script, &[directory.path().to_str().unwrap()], 2);
    let [one, two] = lifelines.each_ref().map(|path| written(path));
    ask(&edge, RunRequest { timeout_sec: 1, ..run(1, &asks("one\n")) });
    assert_eq!(edge.outcome(1).error().0, ErrorKind::Deadline);
    one.recv_timeout(PATIENCE).unwrap();
    ask(&edge, run(2, &asks("two\n")));
    assert!(two.recv_timeout(support::QUIET).is_err());
    edge.shutdown(CloseReason::Draining);
    edge.closed();
    two.recv_timeout(PATIENCE).unwrap();
}

// req: WIR-6
#[test]
fn a_slow_reader_gets_no_more_than_its_window_and_all_in_the_end() {
    let (edge, _node) = ready("i=0; while [ $i -lt 60000 ]; do echo $i; i=$((i+1)); done | cat", &[], 1);
    let request = run(1, &asks("x"));
    let window = request.window_bytes as usize;
    ask(&edge, request);
    let mut text = String::new();
    while text.len() < window / 2 {
        if let RunEventKind::Delta { text: piece, .. } = edge.event().kind {
            text.push_str(&piece);
        }
    }
    // Nothing has been released: what is still on its way fits the window.
    while let Some(piece) = edge.quiet_delta() {
        text.push_str(&piece);
    }
    assert!(text.len() <= window, "{} bytes in a window of {window}", text.len());
    edge.release(1, text.len());
    loop {
        match edge.event().kind {
            RunEventKind::Delta { text: piece, .. } => {
                edge.release(1, piece.len());
                text.push_str(&piece);
            }
            terminal => {
                assert_eq!(terminal, stopped());
                break;
            }
        }
    }
    let expected: String = (0..60_000).map(|line| format!("{line}\n")).collect();
    assert!(text == expected);
}

// req: STL-3, STL-4, PRE-3
#[test]
fn a_program_that_says_nothing_is_a_stall_and_gone_when_its_fence_is_confirmed() {
    let directory = tempfile::tempdir().unwrap();
    let lifeline = pipe(directory.path(), "lifeline");
    // Deaf, and busy on standard error, which is no progress.
    let script = "exec 9>\"$1\"; trap '' TERM; echo a; while :; do echo x >&2; sleep 0.1; done";
    let (edge, _node) = ready(script, &[lifeline.to_str().unwrap()], 1);
    let end = written(&lifeline);
    ask(&edge, RunRequest { response_stall_timeout_ms: 500, ..run(1, &asks("x")) });
    let outcome = edge.outcome(1);
    assert_eq!(outcome.text, "a\n");
    let RunEventKind::Error(error) = outcome.end.unwrap().kind else { panic!("it did not fail") };
    assert_eq!(error.kind, ErrorKind::Stalled);
    let found = error.failure.unwrap().metadata;
    assert_eq!((found["fence"].as_str(), found["provider_health"].as_str()), ("confirmed", "available"));
    end.recv_timeout(PATIENCE).unwrap();
}
