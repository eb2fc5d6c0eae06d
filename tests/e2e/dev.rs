//! The newcomer's command: it streams a completion through the processes it starts, and through nothing else.

use std::process::{Command, Output};

use anyhow::Context;

use crate::support::{bin, is_matrix_only};

fn dev(args: &[&str]) -> anyhow::Result<Output> {
    let program = bin()?.join("xtask");
    Command::new(&program)
        .args(["dev", "--once", "--scripted"])
        .args(args)
        .output()
        .with_context(|| format!("{}: run `cargo build -p xtask`", program.display()))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn dev_streams_a_completion_and_exits_0() -> anyhow::Result<()> {
    if is_matrix_only() {
        return Ok(());
    }
    let output = dev(&[])?;
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{out}{err}");
    for line in ["scripted", "node       ready", "你好🌍é", "events in"] {
        assert!(out.contains(line), "no `{line}` in\n{out}");
    }
    Ok(())
}

#[test]
fn the_completion_needs_the_node_so_without_it_dev_fails() -> anyhow::Result<()> {
    if is_matrix_only() {
        return Ok(());
    }
    let output = dev(&["--kill-node-first"])?;
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_ne!(output.status.code(), Some(0), "{out}{err}");
    assert!(out.contains("node       killed") && !out.contains("events in"), "{out}");
    // The Edge may learn of the Node's end before or after it has sent the request: 503 or 502.
    assert!(err.contains("the completion failed") && (err.contains("503") || err.contains("502")), "{err}");
    Ok(())
}
