//! `cargo xtask test`: every test, as the README's test command.

use anyhow::Context;

use crate::{cmd, python};

/// Options of `test`.
#[derive(Debug, Default, clap::Args)]
pub struct Options {
    /// Leave out what needs Python packages.
    #[arg(long)]
    no_python: bool,
}

/// The whole-process suite runs under each of these: shards of the Edge, driver of Edge and Node.
const MATRIX: [(&str, &str); 4] = [("1", "io_uring"), ("2", "io_uring"), ("1", "epoll"), ("2", "epoll")];

/// Runs them.
///
/// # Errors
/// One fails.
pub fn run(options: &Options) -> anyhow::Result<()> {
    cmd::run("cargo", &["test", "--workspace", "--exclude", "iop-tests"])?;
    cmd::run("cargo", &["build", "-p", "iop-edge", "-p", "iop-node", "-p", "iop-perf", "-p", "xtask"])?;
    let python = if options.no_python { None } else { Some(python::environment()?) };
    let ci = std::env::var_os("CI").is_some();
    let ring = ci || iop_tests::kernel::has_io_uring();
    if !ring {
        println!("io_uring is not allowed here: its rows of the whole-process suite are left out");
    }
    let rows = MATRIX.iter().filter(|(_, driver)| ring || *driver != "io_uring");
    for (index, (shards, driver)) in rows.enumerate() {
        let mut env = vec![("IOP_TEST_SHARDS", *shards), ("IOP_TEST_DRIVER", *driver)];
        // The clients do not see shards or drivers: once is enough, on the first row.
        let first = index == 0;
        let python = python.as_ref().map(|p| p.to_str().context("a path that is not UTF-8")).transpose()?;
        if let Some(python) = python {
            env.push(("IOP_TEST_PYTHON", python));
        }
        if !first {
            env.push(("IOP_TEST_MATRIX_ONLY", "1"));
        }
        cmd::run_with(
            "cargo",
            &["test", "-p", "iop-tests", "--lib", "--test", "architecture", "--test", "e2e"],
            &env,
        )?;
    }
    under_fault(ring)
}

/// Rows of the fault suite: shards of the Edge, driver.
const FAULT_ROWS: [(&str, &str); 2] = [("1", "io_uring"), ("2", "epoll")];

/// The suites that need programs with hooks and near a release's speed.
fn under_fault(ring: bool) -> anyhow::Result<()> {
    cmd::run(
        "cargo",
        &[
            "build",
            "--profile=fault",
            "-p=iop-edge",
            "-p=iop-node",
            "-p=iop-perf",
            "--features=iop-edge/test-hooks,iop-node/test-hooks",
        ],
    )?;
    let bin = cmd::target_dir().join("fault");
    let bin = bin.to_str().context("a path that is not UTF-8")?;
    for (shards, driver) in FAULT_ROWS.iter().filter(|(_, driver)| ring || *driver != "io_uring") {
        let env = [("IOP_TEST_SHARDS", *shards), ("IOP_TEST_DRIVER", *driver), ("IOP_TEST_BIN", bin)];
        cmd::run_with("cargo", &["test", "-p", "iop-tests", "--test", "fault"], &env)?;
    }
    // One at a time: they measure memory and pace.
    let env = [("IOP_TEST_BIN", bin)];
    cmd::run_with("cargo", &["test", "-p", "iop-tests", "--test", "load", "--", "--test-threads=1"], &env)
}
