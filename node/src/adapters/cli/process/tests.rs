//! Real programs, on a real shard. What a program leaves behind shows at a named pipe that all of its group hold open: it is read to
//! its end when the last of them is gone.

use std::{
    io::Read,
    path::{Path, PathBuf},
    sync::mpsc,
};

use dataplane::{
    shard::{DriverWish, Shard, ShardSpec},
    time::before,
};
use proto::message::ErrorKind;
use tempfile::TempDir;

use super::*;
use crate::adapters::cli::{
    environment::environment,
    reader::{LINE_BYTES_MAX, OBJECT_BYTES_MAX},
};

/// Longest wait for what must happen.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long what must not happen is waited for.
const QUIET: Duration = Duration::from_millis(100);

fn on_a_shard<Fut: Future<Output = ()> + 'static>(
    driver: DriverWish,
    test: impl FnOnce() -> Fut + Send + 'static,
) {
    let (sent, done) = mpsc::channel();
    let spec = ShardSpec { name: "test".to_owned(), cpu: None, driver };
    let shard = Shard::start(spec, move || async move {
        test().await;
        sent.send(()).unwrap();
    });
    let shard = shard.unwrap();
    // An assertion that fails ends the shard without it.
    assert!(shard.join() && done.try_recv().is_ok());
}

fn plan(program: &str, args: &[&str]) -> Plan {
    let own = |name: &str| (name == "PATH").then(|| std::env::var_os("PATH")).flatten();
    Plan {
        program: program.into(),
        args: args.iter().map(|text| (*text).to_owned()).collect(),
        environment: Rc::new(environment(own, &BTreeMap::new())),
        format: OutputFormat::Text,
    }
}

/// The configured command of these tests is a shell, which has the further arguments as `$1` and so on.
fn shell(script: &str, args: &[&str]) -> Plan {
    plan("/bin/sh", &[&["-c", script, "sh"], args].concat())
}

async fn next(process: &Process) -> Event {
    before(clock::now() + PATIENCE, process.next()).await.expect("nothing became of the program")
}

/// All that it says, and its end.
async fn whole(process: &Process) -> (String, Result<Finished, Failed>) {
    let mut text = String::new();
    loop {
        match next(process).await {
            Event::PromptTaken => {}
            Event::Ended(result) => return (text, result),
            Event::Said(said) => said.into_iter().for_each(|piece| match piece {
                Said::Text(piece) => text.push_str(&piece),
                other => panic!("{other:?}"),
            }),
        }
    }
}

async fn answer(plan: &Plan, prompt: &str) -> (String, Result<Finished, Failed>) {
    whole(&Process::start(plan, prompt.to_owned()).unwrap()).await
}

async fn text(plan: &Plan, prompt: &str) -> String {
    let (text, result) = answer(plan, prompt).await;
    assert_eq!(result, Ok(Finished { reason: "stop", usage: None }));
    text
}

async fn gone(process: Process) {
    let gone = process.gone();
    drop(process);
    before(clock::now() + PATIENCE, gone).await.expect("the program is still there");
}

/// A named pipe that programs hold open.
struct Lifeline {
    _directory: TempDir,
    path: PathBuf,
    end: mpsc::Receiver<String>,
}

impl Lifeline {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lifeline");
        let made = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
        assert!(made.success());
        let (sent, end) = mpsc::channel();
        let read = path.clone();
        thread::spawn(move || {
            let mut text = String::new();
            std::fs::File::open(read).unwrap().read_to_string(&mut text).unwrap();
            sent.send(text)
        });
        Self { _directory: directory, path, end }
    }

    fn path(&self) -> &str {
        self.path.to_str().unwrap()
    }

    /// What was written to it, when nobody holds it any more. Blocks, which nobody else on a test's shard minds.
    fn cut(&self) -> String {
        self.end.recv_timeout(PATIENCE).expect("somebody of the group is still there")
    }
}

// req: RUN-1
#[test]
fn a_program_reads_its_prompt_and_its_output_is_the_answer_byte_for_byte() {
    for driver in [DriverWish::Auto, DriverWish::Epoll] {
        on_a_shard(driver, || async {
            let cat = plan("/bin/cat", &[]);
            assert_eq!(text(&cat, "h\u{e9}llo; $(id) `id` \"").await, "h\u{e9}llo; $(id) `id` \"");
            // More than every pipe and queue between takes, in both directions at once.
            let long: String = (0..200_000).map(|line| format!("{line} \u{20ac}\n")).collect();
            assert_eq!(text(&cat, &long).await, long);
            // Nothing of a prompt has to be read.
            assert_eq!(text(&shell("exec <&-; printf a", &[]), &long).await, "a");
            assert_eq!(text(&shell("printf '\\377a\\342\\202'", &[]), "x").await, "\u{fffd}a\u{fffd}");
            let pid = text(&shell("echo $$", &[]), "x").await;
            assert!(!Path::new(&format!("/proc/{}", pid.trim())).exists(), "it was waited for");
        });
    }
}

// req: FRB-3, RUN-7
#[test]
fn a_program_finds_a_fixed_directory_no_terminal_and_nothing_of_the_node() {
    on_a_shard(DriverWish::Auto, || async {
        assert_eq!(text(&plan("/bin/pwd", &[]), "x").await, "/\n");
        assert!(std::env::vars_os().any(|(name, _)| name != "PATH"), "there is something to be kept from it");
        let mut path = OsString::from("PATH=");
        path.push(std::env::var_os("PATH").unwrap());
        assert_eq!(text(&plan("/usr/bin/env", &[]), "x").await.trim_end(), path.to_str().unwrap());
        // As the Node does at its start; cargo leaves descriptors to its tests.
        dataplane::net::pass_on_no_descriptors().unwrap();
        let open = text(&shell("for fd in /proc/$$/fd/*; do echo ${fd##*/}; done", &[]), "x").await;
        let inherited: Vec<_> = open.lines().filter(|fd| ["0", "1", "2"].contains(fd)).collect();
        assert_eq!(inherited, ["0", "1", "2"]);
        // The shell itself has the directory open while it lists it.
        assert!(open.lines().count() <= 4, "{open}");
        let (_, result) = answer(&shell("test -t 0 || test -t 1 || test -t 2", &[]), "x").await;
        assert!(result.is_err());
        // Arguments are words, whatever is in them.
        let odd = "a b; $(id) 'x' \"y\" *";
        assert_eq!(text(&plan("/bin/echo", &[odd, "--help"]), "x").await, format!("{odd} --help\n"));
    });
}

// req: RUN-1
#[test]
fn a_program_that_fails_is_an_error_in_its_last_words() {
    on_a_shard(DriverWish::Auto, || async {
        for (script, words) in [
            (
                "echo a; echo warning >&2; printf '\\033[31mno\\tkey\\033[0m\\n' >&2; exit 3",
                "the program ended with code 3: no key",
            ),
            ("exit 1", "the program ended with code 1"),
            ("kill -9 $$", "the program was ended by signal 9"),
            (
                "head -c 1000000 /dev/zero >&2; echo >&2; echo end >&2; exit 2",
                "the program ended with code 2: end",
            ),
        ] {
            let (_, result) = answer(&shell(script, &[]), "x").await;
            assert_eq!(result, Err(Failed::error(ErrorKind::UpstreamProtocol, words)), "{script}");
        }
        let missing = answer(&plan("/nowhere/model", &[]), "x").await.1.unwrap_err();
        let Failed::Error(ErrorKind::Connect, words) = missing else { panic!("{missing:?}") };
        assert!(words.starts_with("cannot start /nowhere/model: No such file"), "{words}");
        let json = |script: &str| Plan { format: OutputFormat::Json, ..shell(script, &[]) };
        let (_, result) =
            answer(&json("echo '{\"is_error\":true,\"result\":\"no key\"}'; exit 1"), "x").await;
        assert_eq!(
            result,
            Err(Failed::error(ErrorKind::UpstreamProtocol, "the program ended with code 1: no key"))
        );
        let (text, result) = answer(&json("cat >&2; echo '{\"result\":\"a\"}'"), "x").await;
        assert_eq!((text.as_str(), result.is_ok()), ("a", true));
        assert!(answer(&json("echo a"), "x").await.1.is_err());
    });
}

#[test]
fn output_over_its_bounds_ends_the_program() {
    on_a_shard(DriverWish::Auto, || async {
        let endless =
            "exec 9>\"$1\"; while :; do echo xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx; done | tr -d '\\n'";
        for (format, words) in [
            (
                OutputFormat::StreamJson,
                format!("the program wrote a line of more than {LINE_BYTES_MAX} bytes"),
            ),
            (OutputFormat::Json, format!("the program wrote more than {OBJECT_BYTES_MAX} bytes")),
        ] {
            let lifeline = Lifeline::new();
            let (_, result) = answer(&Plan { format, ..shell(endless, &[lifeline.path()]) }, "x").await;
            assert_eq!(result, Err(Failed::error(ErrorKind::UpstreamProtocol, words)));
            lifeline.cut();
        }
    });
}

// req: PRE-3, CAN-1
#[test]
fn a_stopped_program_is_asked_first_and_its_whole_group_is_gone_when_it_is() {
    for driver in [DriverWish::Auto, DriverWish::Epoll] {
        on_a_shard(driver, || async {
            let lifeline = Lifeline::new();
            let polite = "exec 9>\"$1\"; trap 'echo bye >&9; exit' TERM; sleep 1000 & echo ready; wait";
            let process = Process::start(&shell(polite, &[lifeline.path()]), "x".to_owned()).unwrap();
            while !matches!(next(&process).await, Event::Said(_)) {}
            gone(process).await;
            assert_eq!(lifeline.cut(), "bye\n");
        });
    }
}

// req: PRE-3, CAN-1
#[test]
fn a_group_that_ignores_being_asked_is_killed_with_all_it_started() {
    on_a_shard(DriverWish::Auto, || async {
        let lifeline = Lifeline::new();
        let deaf =
            "exec 9>\"$1\"; trap '' TERM; (sleep 1000; sleep 1000) & echo ready; sleep 1000; sleep 1000";
        let process = Process::start(&shell(deaf, &[lifeline.path()]), "x".to_owned()).unwrap();
        while !matches!(next(&process).await, Event::Said(_)) {}
        let killed = counts().1;
        let begun = clock::now();
        gone(process).await;
        assert!(clock::now() - begun >= KILL_AFTER, "it had its time");
        assert!(counts().1 > killed);
        lifeline.cut();
    });
}

// req: PRE-3
#[test]
fn a_program_that_closes_its_output_has_not_ended() {
    on_a_shard(DriverWish::Auto, || async {
        let lifeline = Lifeline::new();
        let silent = "exec 9>\"$1\"; echo a; exec >&- 2>&- <&-; sleep 1000";
        let process = Process::start(&shell(silent, &[lifeline.path()]), "x".to_owned()).unwrap();
        let until = clock::now() + QUIET;
        while let Some(event) = before(until, process.next()).await {
            assert!(!matches!(event, Event::Ended(_)));
        }
        gone(process).await;
        lifeline.cut();
    });
}

// req: PRE-3
#[test]
fn what_a_program_leaves_behind_neither_holds_up_its_answer_nor_lives_on() {
    on_a_shard(DriverWish::Auto, || async {
        let lifeline = Lifeline::new();
        let careless = "exec 9>\"$1\"; trap '' TERM; sleep 1000 & echo a";
        assert_eq!(text(&shell(careless, &[lifeline.path()]), "x").await, "a\n");
        lifeline.cut();
    });
}

// req: WIR-6
#[test]
fn a_program_whose_output_is_not_taken_waits_and_loses_nothing() {
    on_a_shard(DriverWish::Auto, || async {
        let long = "i=0; while [ $i -lt 60000 ]; do echo $i; i=$((i+1)); done | cat; echo done >\"$1\"";
        let lifeline = Lifeline::new();
        let process = Process::start(&shell(long, &[lifeline.path()]), "x".to_owned()).unwrap();
        let full = async {
            while process.shared.events.len() < BATCHES_MAX || process.link.has_room() {
                dataplane::time::sleep_until(clock::now() + Duration::from_millis(1)).await;
            }
        };
        before(clock::now() + PATIENCE, full).await.expect("it says too little");
        assert!(before(clock::now() + QUIET, std::future::pending::<()>()).await.is_none());
        assert!(process.shared.events.len() <= BATCHES_MAX + 1, "the prompt, and what was read");
        assert!(lifeline.end.try_recv().is_err(), "it is not done");
        let (text, result) = whole(&process).await;
        assert!(result.is_ok());
        let expected: String = (0..60_000).map(|line| format!("{line}\n")).collect();
        assert!(text == expected, "{} bytes of {}", text.len(), expected.len());
        assert_eq!(lifeline.cut(), "done\n");
    });
}

#[test]
fn a_thread_that_dies_is_an_end_too() {
    on_a_shard(DriverWish::Auto, || async {
        let (sender, seed) = mailbox::for_shard(1).unwrap();
        drop(Report::new(sender));
        let mut batch = Vec::new();
        seed.open().unwrap().receive(&mut batch, 1).await;
        assert!(matches!(&batch[..], [Event::Ended(Err(Failed::Error(ErrorKind::Internal, _)))]));
    });
}
