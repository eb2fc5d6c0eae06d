//! Running a command to its end, and saying so.

use std::{path::PathBuf, process::Command};

use anyhow::{Context, bail};

/// The workspace's root.
pub fn root() -> PathBuf {
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).map_or(here.clone(), PathBuf::from)
}

/// Where cargo puts its output.
pub fn target_dir() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// Runs `program` with `args` in the workspace's root, its output passed through.
///
/// # Errors
/// It cannot be started or does not exit with 0.
pub fn run(program: &str, args: &[&str]) -> anyhow::Result<()> {
    run_with(program, args, &[])
}

/// As [`run`], with further environment variables.
///
/// # Errors
/// As [`run`].
pub fn run_with(program: &str, args: &[&str], env: &[(&str, &str)]) -> anyhow::Result<()> {
    let settings: String = env.iter().map(|(k, v)| format!("{k}={v} ")).collect();
    println!("$ {settings}{program} {}", args.join(" "));
    let status = Command::new(program)
        .args(args)
        .envs(env.iter().copied())
        .current_dir(root())
        .status()
        .with_context(|| format!("cannot run {program}"))?;
    if !status.success() {
        bail!("`{program} {}` ended with {status}", args.join(" "));
    }
    Ok(())
}
