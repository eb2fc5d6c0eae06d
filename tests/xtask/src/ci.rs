//! `cargo xtask ci`: exactly what CI runs, in the order of what fails fastest.

use std::process::{Command, Stdio};

use anyhow::bail;

use crate::{bench, cmd, dev, sim, test};

/// What it takes beside Rust: what it is for, a command that only succeeds where it is there, Debian's packages.
const TOOLS: [(&str, &[&str], &str); 4] = [
    ("a C compiler", &["cc", "--version"], "gcc libc6-dev"),
    ("Python 3 with venv", &["python3", "-c", "import venv, ensurepip"], "python3 python3-venv"),
    ("nginx (is /usr/sbin on the PATH?)", &["nginx", "-v"], "nginx-light"),
    ("valgrind", &["valgrind", "--version"], "valgrind"),
];

/// Runs it.
///
/// # Errors
/// A step fails, or a tool is missing, which is said before the first step.
pub fn run() -> anyhow::Result<()> {
    tools()?;
    cmd::run("cargo", &["fmt", "--all", "--check"])?;
    cmd::run("cargo", &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"])?;
    // The hooks of the fault suite are code, too, and so are the faults that the simulation must find. Each is built without
    // the other where it is used.
    cmd::run(
        "cargo",
        &[
            "clippy",
            "--workspace",
            "--all-targets",
            "--features=iop-edge/test-hooks,iop-node/test-hooks,iop-sim/planted-faults",
            "--",
            "-D",
            "warnings",
        ],
    )?;
    cmd::run_with(
        "cargo",
        &["doc", "--workspace", "--no-deps", "--document-private-items"],
        &[("RUSTDOCFLAGS", "-D warnings")],
    )?;
    // The README's two commands, as a newcomer types them, but for the build of the first: the benches below build the same
    // three packages by themselves.
    test::programs()?;
    cmd::run_with("cargo", &["xtask", "dev", "--once"], &[(dev::BUILT, "1")])?;
    test::run(&test::Options::default())?;
    test::run(&test::Options::clients())?;
    sim::ci()?;
    bench::ci()
}

/// Looks for every tool first: a run that takes an hour is not to end at its last step for want of one.
fn tools() -> anyhow::Result<()> {
    let missing: Vec<_> = TOOLS.iter().filter(|(_, command, _)| !succeeds(command)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let list = |part: fn(&(&'static str, &[&str], &'static str)) -> &'static str, between: &str| {
        missing.iter().map(|tool| part(tool)).collect::<Vec<_>>().join(between)
    };
    bail!(
        "missing: {}\nOn Debian or Ubuntu:\n  apt-get install {}\n\
         `.ci/run` installs them by itself; `cargo xtask test` alone needs neither nginx nor valgrind",
        list(|tool| tool.0, ", "),
        list(|tool| tool.2, " "),
    )
}

fn succeeds(command: &[&str]) -> bool {
    let Some((program, args)) = command.split_first() else { return false };
    let mut run = Command::new(program);
    run.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    run.status().is_ok_and(|status| status.success())
}
