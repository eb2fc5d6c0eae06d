//! `cargo xtask ci`: exactly what CI runs, in the order of what fails fastest.

use crate::{bench, cmd, test};

/// Runs it.
///
/// # Errors
/// A step fails.
pub fn run() -> anyhow::Result<()> {
    cmd::run("cargo", &["fmt", "--all", "--check"])?;
    cmd::run("cargo", &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"])?;
    cmd::run_with(
        "cargo",
        &["doc", "--workspace", "--no-deps", "--document-private-items"],
        &[("RUSTDOCFLAGS", "-D warnings")],
    )?;
    // The README's two commands, as a newcomer types them.
    cmd::run("cargo", &["xtask", "dev", "--once"])?;
    test::run(&test::Options::default())?;
    bench::ci()
}
