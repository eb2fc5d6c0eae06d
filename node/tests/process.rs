//! The `iop-node` binary: exit codes, signals, and what it listens on.
#![allow(clippy::unwrap_used, reason = "a test ends where something unexpected begins")]

mod support;

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    path::Path,
    process::{Child, Command, Output, Stdio},
    sync::mpsc,
    thread,
};

use proto::{identity::Role, message::NodeConfigPayload};
use support::{
    PATIENCE,
    certs::{Ca, Issued, Pki},
    edge::Edge,
};

fn iop_node() -> Command {
    Command::new(env!("CARGO_BIN_EXE_iop-node"))
}

fn indented(pem: &str) -> String {
    pem.lines().map(|line| format!("    {}\n", line.trim_end())).collect()
}

/// A join bundle, as `iop-edge pki issue node NAME --bundle FILE` makes it, and what a test adds to it.
fn bundle(node: &str, issued: &Issued, edge_ca: &Ca, edge: SocketAddr, more: &str) -> String {
    format!(
        "node: {{ name: {node} }}\nedge: {{ address: \"{edge}\", name: edge-1 }}\nidentity:\n  cert_pem: |\n{}  key_pem: \
         |\n{}  edge_ca_pem: |\n{}{more}\n",
        indented(&issued.cert_pem),
        indented(&issued.key_pem),
        indented(&edge_ca.pem())
    )
}

fn nobody() -> SocketAddr {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

fn run(verb: &str, file: &Path) -> Output {
    iop_node().args([verb, "--join"]).arg(file).env_remove("RUST_LOG").output().unwrap()
}

/// A running process that is killed at the end, and the lines of its log.
struct Running {
    child: Child,
    lines: mpsc::Receiver<String>,
}

impl Running {
    fn start(file: &Path) -> Self {
        let mut child = iop_node()
            .args(["run", "--join"])
            .arg(file)
            .env_remove("RUST_LOG")
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let log = BufReader::new(child.stderr.take().unwrap());
        let (sent, lines) = mpsc::channel();
        thread::spawn(move || log.lines().map_while(Result::ok).try_for_each(|line| sent.send(line)));
        Self { child, lines }
    }

    /// Waits for a line that holds `words`.
    fn log(&self, words: &str) -> String {
        loop {
            let line = self.lines.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("no line with {words:?}"));
            if line.contains(words) {
                return line;
            }
        }
    }

    fn signal(&self, name: &str) {
        let sent = Command::new("kill").args(["-s", name, &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    /// Addresses of TCP sockets in state LISTEN (0A in /proc/net/tcp) that this process holds.
    fn listening(&self) -> usize {
        let held: Vec<String> = fs::read_dir(format!("/proc/{}/fd", self.child.id()))
            .unwrap()
            .filter_map(|entry| fs::read_link(entry.unwrap().path()).ok())
            .filter_map(|link| Some(link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned()))
            .collect();
        ["/proc/net/tcp", "/proc/net/tcp6"]
            .iter()
            .filter_map(|table| fs::read_to_string(table).ok())
            .flat_map(|table| table.lines().map(str::to_owned).collect::<Vec<_>>())
            .filter(|line| {
                let columns: Vec<_> = line.split_whitespace().collect();
                columns.get(3) == Some(&"0A")
                    && columns.get(9).is_some_and(|inode| held.iter().any(|h| h == inode))
            })
            .count()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _status = self.child.wait();
    }
}

fn http(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

// req: IDN-1, SUP-2, SUP-4
#[test]
fn own_files_that_do_not_fit_end_the_process_with_1_before_any_dial() {
    let pki = Pki::new();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("join.yaml");
    let edge = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    edge.set_nonblocking(true).unwrap();
    let address = edge.local_addr().unwrap();
    let good = pki.node_ca.issue(Role::Node, "box1");
    let swapped = Issued { cert_pem: good.cert_pem.clone(), ..pki.node_ca.issue(Role::Node, "box1") };
    let unlimited = "reconnect: { max_attempts: 0 }";
    for (text, words) in [
        (bundle("box2", &good, &pki.edge_ca, address, unlimited), "box1"),
        (
            bundle("box1", &pki.node_ca.issue(Role::Edge, "box1"), &pki.edge_ca, address, unlimited),
            "role edge",
        ),
        (bundle("box1", &swapped, &pki.edge_ca, address, unlimited), "does not belong to the certificate"),
        (
            bundle("box1", &good, &pki.edge_ca, address, "reconnect: { max_attempts: -1 }"),
            "reconnect.max_attempts",
        ),
        (bundle("box1", &good, &pki.edge_ca, address, "adapters: []"), "unknown key `adapters`"),
    ] {
        fs::write(&file, text).unwrap();
        for verb in ["check", "run"] {
            let output = run(verb, &file);
            let told = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(1), "{verb}: {told}");
            assert!(told.contains(words), "{verb}: expected {words:?} in {told}");
            assert!(!told.contains("PRIVATE KEY"), "{told}");
        }
    }
    assert!(edge.accept().is_err(), "the edge was dialled");
    fs::write(&file, bundle("box1", &good, &pki.edge_ca, address, unlimited)).unwrap();
    assert!(run("check", &file).status.success());
    assert!(edge.accept().is_err(), "check dialled the edge");
}

// req: SUP-3, SUP-4
#[test]
fn exhausted_attempts_exit_with_1() {
    let pki = Pki::new();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("join.yaml");
    let issued = pki.node_ca.issue(Role::Node, "box1");
    let more = "reconnect: { interval_sec: 0, max_attempts: 2 }";
    fs::write(&file, bundle("box1", &issued, &pki.edge_ca, nobody(), more)).unwrap();
    let output = run("run", &file);
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert_eq!(told.matches("dial failed").count(), 2, "{told}");
    assert!(told.contains("attempts=2") && told.contains("max_attempts: 0"), "{told}");
}

// req: SUP-4, REG-9
#[test]
fn a_join_bundle_is_all_a_node_needs_and_sigterm_exits_with_0() {
    let pki = Pki::new();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("join.yaml");
    let edge = Edge::start(pki.edge_tls("edge-1"));
    let issued = pki.node_ca.issue(Role::Node, "box1");
    fs::write(&file, bundle("box1", &issued, &pki.edge_ca, edge.address, "")).unwrap();
    for name in ["TERM", "INT"] {
        let mut node = Running::start(&file);
        edge.make_ready(NodeConfigPayload::default());
        node.log("node ready");
        node.signal(name);
        node.log("node stopped");
        assert_eq!(node.child.wait().unwrap().code(), Some(0), "SIG{name}");
        edge.closed();
    }
}

// req: FRB-1
#[test]
fn a_node_has_no_endpoint_for_execution() {
    let pki = Pki::new();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("join.yaml");
    let edge = Edge::start(pki.edge_tls("edge-1"));
    let issued = pki.node_ca.issue(Role::Node, "box1");
    fs::write(&file, bundle("box1", &issued, &pki.edge_ca, edge.address, "")).unwrap();
    let node = Running::start(&file);
    edge.make_ready(NodeConfigPayload::default());
    node.log("node ready");
    assert_eq!(node.listening(), 0);
    drop(node);
    edge.closed();

    let more = "metrics: { listen: \"127.0.0.1:0\" }";
    fs::write(&file, bundle("box1", &issued, &pki.edge_ca, edge.address, more)).unwrap();
    let node = Running::start(&file);
    let line = node.log("metrics listening");
    let address = line.split("address=").nth(1).unwrap().trim().parse().unwrap();
    edge.make_ready(NodeConfigPayload::default());
    node.log("node ready");
    assert_eq!(node.listening(), 1);
    let metrics = http(address, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(
        metrics.contains("iop_node_connected 1") && metrics.contains("iop_node_info{driver="),
        "{metrics}"
    );
    assert!(http(address, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").starts_with("HTTP/1.1 200"));
    for path in ["/", "/v1/models", "/v1/chat/completions", "/run"] {
        let answer = http(address, &format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n"));
        assert!(answer.starts_with("HTTP/1.1 404"), "{path}: {answer}");
        let answer = http(address, &format!("POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"));
        assert!(answer.starts_with("HTTP/1.1 405"), "{path}: {answer}");
    }
}
