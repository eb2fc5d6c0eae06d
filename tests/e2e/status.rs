//! `iop-edge status` and the socket it asks on.

use std::{
    io::{Read, Write},
    os::unix::{fs::PermissionsExt, net::UnixListener},
    path::PathBuf,
    time::Duration,
};

use iop_tests::{
    Edge, EdgeYaml, Process, ProviderYaml, Site, http,
    site::{path, tool},
};
use serde_json::Value;

use crate::support::{Bench, NODE, SOON, eventually, is_matrix_only, run, site, yaml};

/// Its name in the configuration, from the file's directory on.
const SOCKET: &str = "admin.sock";

fn with_socket(yaml: EdgeYaml) -> EdgeYaml {
    EdgeYaml { admin_socket: SOCKET.to_owned(), ..yaml }
}

fn socket_of(site: &Site) -> PathBuf {
    site.dir().join(SOCKET)
}

/// What `iop-edge status` says, as it must.
fn status(site: &Site, more: &[&str]) -> anyhow::Result<String> {
    let socket = socket_of(site);
    tool(&site.program("iop-edge"), &[&["status", "--socket", path(&socket)?], more].concat())
}

/// What it says when it must fail.
fn refusal(site: &Site, socket: &str) -> anyhow::Result<String> {
    let (code, said) = run(site, "iop-edge", &["status", "--socket", socket])?;
    assert_eq!(code, 1, "{said}");
    Ok(said)
}

fn status_document(edge: &Edge) -> anyhow::Result<Value> {
    http::get(&edge.ops, "/status", None)?.json()
}

#[test]
fn status_shows_people_and_programs_the_same() -> anyhow::Result<()> {
    let bench = Bench::with(&[], |provider| provider, with_socket)?;
    let mut streaming = bench.begin(true, "events=3000 gap=20ms")?;
    streaming.wait_for("data:")?;
    let shown = status(&bench.site, &[])?;
    assert!(shown.lines().any(|line| line.starts_with("edge-1 ") && line.ends_with("serving")), "{shown}");
    let line = shown.lines().find(|line| line.starts_with("p1 ")).unwrap_or_default();
    let cells: Vec<_> = line.split_whitespace().take(5).collect();
    assert_eq!(cells, ["p1", NODE, "available", "1/4", "0/4"], "{shown}");
    assert!(shown.lines().all(|line| line.chars().count() <= 120), "{shown}");
    drop(streaming);
    bench.settles()?;

    let told: Value = serde_json::from_str(&status(&bench.site, &["--json"])?)?;
    assert_eq!(told["nodes"][0]["providers"][0]["capacity"], 4);
    let ops = status_document(&bench.edge)?;
    assert_eq!(shape(&told), shape(&ops), "the same document");
    Ok(())
}

/// The document without its times, which go on.
fn shape(document: &Value) -> Value {
    match document {
        Value::Object(fields) => fields
            .iter()
            .filter(|(key, _)| !key.ends_with("_ms"))
            .map(|(key, value)| (key.clone(), shape(value)))
            .collect(),
        Value::Array(items) => items.iter().map(shape).collect(),
        other => other.clone(),
    }
}

#[test]
fn what_the_edge_was_told_can_be_run_again_elsewhere() -> anyhow::Result<()> {
    let bench = Bench::with(&[], |provider| ProviderYaml { capacity: 1, ..provider }, with_socket)?;
    for _ in 0..3 {
        let (mut first, mut second) = (bench.begin(true, "events=2")?, bench.begin(false, "")?);
        assert!(first.answer()?.is_done() && second.answer()?.status == 200);
    }
    let mut leaving = bench.begin(true, "events=200 gap=20ms")?;
    leaving.wait_for("data:")?;
    drop(leaving);
    bench.settles()?;

    let file = bench.site.dir().join("inputs.jsonl");
    let shown = status(&bench.site, &["--inputs", path(&file)?])?;
    assert!(shown.contains("p1"), "the status is shown as well: {shown}");
    assert_eq!(std::fs::metadata(&file)?.permissions().mode() & 0o777, 0o600);
    let text = std::fs::read_to_string(&file)?;
    let replayed = control::record::replay(&text)?;
    assert_eq!(replayed.difference, None);
    // Seven admissions and seven ends at least, and what brought the Node here.
    assert!(replayed.events > 16, "{text}");
    for event in ["\"Register\"", "\"Admit\"", "\"Terminal\"", "\"HolderGone\""] {
        assert!(text.contains(event), "no {event} in {text}");
    }
    for secret in [bench.site.token(), "127.0.0.1", &bench.provider.url] {
        assert!(!text.contains(secret), "{secret} in {text}");
    }
    // A file that is there is nobody's to overwrite, and the ops port is not to be asked.
    let (code, said) =
        run(&bench.site, "iop-edge", &["status", "--socket", SOCKET, "--inputs", path(&file)?])?;
    assert_eq!((code, said.contains("File exists")), (1, true), "{said}");
    assert_eq!(std::fs::read_to_string(&file)?, text);
    assert_eq!(http::get(&bench.edge.ops, "/inputs", None)?.status, 404);
    Ok(())
}

#[test]
fn the_socket_is_its_users_alone_and_goes_with_the_edge() -> anyhow::Result<()> {
    if is_matrix_only() {
        return Ok(());
    }
    let site = site()?;
    let socket = socket_of(&site);
    let said = refusal(&site, path(&socket)?)?;
    assert!(said.contains("is the Edge running?"), "{said}");

    let mut edge = site.edge(&with_socket(yaml()))?;
    let mode = || Ok::<_, anyhow::Error>(std::fs::symlink_metadata(&socket)?.permissions().mode() & 0o777);
    assert_eq!(mode()?, 0o600);
    status(&site, &[])?;

    // What an Edge leaves that is killed is replaced by the next one.
    edge.process.kill();
    // The kernel takes its ring down a moment after it, and the socket with it.
    eventually(SOON, "nobody listens any more", || {
        Ok(refusal(&site, path(&socket)?)?.contains("the one that made it is gone"))
    })?;
    let mut edge = site.edge(&with_socket(yaml()))?;
    assert_eq!(mode()?, 0o600);
    status(&site, &[])?;

    // A second Edge does not take it from the first.
    let mut second = start(&site)?;
    assert_eq!(second.wait_exit(Duration::from_secs(20))?, 1);
    let said = second.text();
    assert!(said.contains("listen.admin_socket") && said.contains("another process listens"), "{said}");
    status(&site, &[])?;

    edge.process.signal(libc::SIGTERM);
    assert_eq!(edge.process.wait_exit(SOON)?, 0);
    assert!(!socket.exists(), "it goes with its Edge");

    // What is no socket is nobody's to remove.
    std::fs::write(&socket, "precious")?;
    assert_eq!(start(&site)?.wait_exit(SOON)?, 1);
    assert_eq!(std::fs::read(&socket)?, b"precious");
    let said = refusal(&site, path(&socket)?)?;
    assert!(said.contains("is no socket"), "{said}");
    Ok(())
}

/// An Edge on the file that is there.
fn start(site: &Site) -> anyhow::Result<Process> {
    let config = site.dir().join("edge.yaml");
    site.start("edge", "iop-edge", &["serve", "--config", path(&config)?])
}

#[test]
fn without_a_word_of_its_place_the_socket_is_in_the_runtime_directory_or_nowhere() -> anyhow::Result<()> {
    if is_matrix_only() {
        return Ok(());
    }
    let mut site = site()?;
    let edge = site.edge(&yaml())?;
    assert!(edge.process.text().contains("no admin socket"), "{}", edge.process.text());
    drop(edge);
    let directory = path(site.dir())?.to_owned();
    site.set_env("RUNTIME_DIRECTORY", &directory);
    let _edge = site.edge(&yaml())?;
    let asked = std::process::Command::new(site.program("iop-edge"))
        .arg("status")
        .env("RUNTIME_DIRECTORY", &directory)
        .output()?;
    assert!(asked.status.success(), "{}", String::from_utf8_lossy(&asked.stderr));
    Ok(())
}

#[test]
fn what_answers_in_an_edges_place_is_not_believed() -> anyhow::Result<()> {
    if is_matrix_only() {
        return Ok(());
    }
    let site = site()?;
    let socket = site.dir().join("other.sock");
    let listener = UnixListener::bind(&socket)?;
    let other = std::thread::spawn(move || -> anyhow::Result<()> {
        let (mut stream, _) = listener.accept()?;
        stream.read_exact(&mut [0; 4])?;
        stream.write_all(b"SSH-2.0-OpenSSH\r\n\r\n")?;
        Ok(())
    });
    let said = refusal(&site, path(&socket)?)?;
    assert!(said.contains("not as an Edge does"), "{said}");
    other.join().expect("the other ends by itself")
}
