//! `cargo xtask test`: every test, as the README's test command, or one suite of them.

use std::{collections::BTreeSet, path::Path, process::Command};

use anyhow::Context;
use serde_json::Value;

use crate::{
    clients::{Packages, installed},
    cmd, dev, python,
};

/// Options of `test`.
#[derive(Debug, Default, clap::Args)]
pub struct Options {
    /// This suite alone
    #[arg(long, value_enum, group = "one")]
    suite: Option<Suite>,
    /// The clients that people have alone: SDKs, Claude Code, Codex, curl (installs them)
    #[arg(long, group = "one")]
    clients: bool,
    /// The suite's tests with this in their names
    #[arg(requires = "one")]
    filter: Option<String>,
    /// Leave out what needs Python packages
    #[arg(long)]
    no_python: bool,
    /// Further options for the suite's test program, behind `--`, such as `--ignored`
    #[arg(last = true, requires = "one")]
    more: Vec<String>,
}

impl Options {
    /// The clients that people have.
    pub fn clients() -> Self {
        Self { clients: true, ..Self::default() }
    }
}

/// Tests that need the same programs and settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Suite {
    /// Of the crates, of the harness, and the rules of the architecture
    Unit,
    /// Whole processes and SDKs, under each of four settings
    E2e,
    /// Whole processes with hooks for faults, under each of two settings
    Fault,
    /// Memory and pace of whole processes, one test at a time
    Load,
}

/// A setting: shards of the Edge, driver of Edge and Node.
type Row = (&'static str, &'static str);

/// With every suite together: the two that the fault suite does not have, so that each of the four has one of both.
const E2E_ROWS: [Row; 2] = [("2", "io_uring"), ("1", "epoll")];
/// By itself.
const E2E_ALL_ROWS: [Row; 4] = [("2", "io_uring"), ("1", "io_uring"), ("1", "epoll"), ("2", "epoll")];
const FAULT_ROWS: [Row; 2] = [("1", "io_uring"), ("2", "epoll")];
/// Tests of the fault suite at a time: they wait more than they compute, and the pace of some is judged.
const FAULT_THREADS: &str = "--test-threads=4";

/// Runs them.
///
/// # Errors
/// One fails.
pub fn run(options: &Options) -> anyhow::Result<()> {
    let asked = |suite| options.suite.is_none_or(|one| one == suite);
    // Where CI runs, io_uring has to be allowed: a row that is missing there would be missed by nobody.
    let ring = std::env::var_os("CI").is_some() || iop_tests::kernel::has_io_uring();
    if !ring && options.suite != Some(Suite::Unit) {
        println!("io_uring is not allowed here: its rows of the whole-process suites are left out");
    }
    if options.clients {
        return clients(options);
    }
    if asked(Suite::Unit) {
        unit(options)?;
    }
    if asked(Suite::E2e) {
        e2e(options, ring)?;
    }
    if asked(Suite::Fault) || asked(Suite::Load) {
        let bin = programs_under_fault()?;
        if asked(Suite::Fault) {
            fault(options, ring, &bin)?;
        }
        if asked(Suite::Load) {
            load(options, ring, &bin)?;
        }
    }
    Ok(())
}

/// Test programs of suites of their own.
const SUITES: [&str; 4] = ["e2e", "fault", "load", "clients"];

fn unit(options: &Options) -> anyhow::Result<()> {
    // One of the rules of the architecture is that the programs take the example configurations.
    programs()?;
    let names = unit_tests()?;
    let mut what = vec!["--workspace", "--lib", "--bins"];
    what.extend(names.iter().flat_map(|name| ["--test", name]));
    test(&what, options, &[], &[])?;
    test(&["--workspace", "--doc"], options, &[], &[])
}

/// Names of the test programs that are in no other suite.
fn unit_tests() -> anyhow::Result<BTreeSet<String>> {
    let output = Command::new("cargo")
        .args(["metadata", "--no-deps", "--format-version=1"])
        .current_dir(cmd::root())
        .output()
        .context("cannot run cargo")?;
    let names = test_names(&output.stdout).context("cargo metadata says something else than expected")?;
    Ok(names.into_iter().filter(|name| !SUITES.contains(&name.as_str())).collect())
}

/// Names of all test programs, as `cargo metadata` tells them.
fn test_names(metadata: &[u8]) -> Option<BTreeSet<String>> {
    let metadata: Value = serde_json::from_slice(metadata).ok()?;
    let packages = metadata["packages"].as_array()?;
    let targets = packages.iter().filter_map(|package| package["targets"].as_array()).flatten();
    // One with features of its own is run where they are turned on.
    let tests = targets.filter(|target| {
        let wants = target["required-features"].as_array().map_or(&[][..], Vec::as_slice);
        target["kind"][0] == "test" && wants.iter().all(|feature| *feature == "worlds")
    });
    let names: BTreeSet<_> = tests.filter_map(|target| target["name"].as_str().map(str::to_owned)).collect();
    (!names.is_empty()).then_some(names)
}

fn e2e(options: &Options, ring: bool) -> anyhow::Result<()> {
    programs()?;
    let python = if options.no_python { None } else { Some(python::environment()?) };
    let python = python.as_ref().map(|path| path.to_str().context("a path that is not UTF-8")).transpose()?;
    let all: &[Row] = if options.suite.is_some() { &E2E_ALL_ROWS } else { &E2E_ROWS };
    for (index, (shards, driver)) in rows(all, ring).enumerate() {
        let mut env = vec![("IOP_TEST_SHARDS", shards), ("IOP_TEST_DRIVER", driver), (dev::BUILT, "1")];
        if let Some(python) = python {
            env.push(("IOP_TEST_PYTHON", python));
        }
        // The clients do not see shards or drivers: once is enough, on the first row.
        if index > 0 {
            env.push(("IOP_TEST_MATRIX_ONLY", "1"));
        }
        test(&["--workspace", "--test", "e2e"], options, &[], &env)?;
    }
    Ok(())
}

/// The clients that people have, under one setting: they see no other.
fn clients(options: &Options) -> anyhow::Result<()> {
    programs()?;
    let python = python::environment()?;
    let sdks = installed(Packages::Sdks, &python)?;
    let agents = installed(Packages::Agents, &python)?;
    let text = |path: &Path| path.to_str().map(str::to_owned).context("a path that is not UTF-8");
    let (python, sdks, agents) = (text(&python)?, text(&sdks)?, text(&agents)?);
    let env = [("IOP_TEST_PYTHON", &*python), ("IOP_TEST_SDKS", &*sdks), ("IOP_TEST_AGENTS", &*agents)];
    // They wait for each other's retries more than they compute.
    test(&["--workspace", "--test", "clients"], options, &["--test-threads=4"], &env)
}

/// Builds the programs beside the tests, where these look for them.
///
/// Every command of this file that runs in the usual profile selects the whole workspace and a test, and says what of it is
/// wanted. Cargo turns on what the selected packages ask of a dependency, for their tests or not: with another selection
/// nearly every dependency would be another one, and everything be built once more.
///
/// # Errors
/// They do not build.
pub fn programs() -> anyhow::Result<()> {
    cmd::run(
        "cargo",
        &[
            "build",
            "--workspace",
            "--bin=iop-edge",
            "--bin=iop-node",
            "--bin=iop-perf",
            "--bin=xtask",
            "--test=architecture",
        ],
    )
}

/// Builds the programs of the suites that need hooks and nearly a release's speed, and says where they are.
fn programs_under_fault() -> anyhow::Result<String> {
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
    Ok(bin.to_str().context("a path that is not UTF-8")?.to_owned())
}

fn fault(options: &Options, ring: bool, bin: &str) -> anyhow::Result<()> {
    for (shards, driver) in rows(&FAULT_ROWS, ring) {
        let env = [("IOP_TEST_SHARDS", shards), ("IOP_TEST_DRIVER", driver), ("IOP_TEST_BIN", bin)];
        test(&["--workspace", "--test", "fault"], options, &[FAULT_THREADS], &env)?;
    }
    Ok(())
}

fn load(options: &Options, ring: bool, bin: &str) -> anyhow::Result<()> {
    let env = [("IOP_TEST_DRIVER", if ring { "io_uring" } else { "epoll" }), ("IOP_TEST_BIN", bin)];
    // One at a time: they measure memory and pace.
    test(&["--workspace", "--test", "load"], options, &["--test-threads=1"], &env)
}

/// The settings that are possible here.
fn rows(all: &[Row], ring: bool) -> impl Iterator<Item = Row> {
    all.iter().copied().filter(move |(_, driver)| ring || *driver != "io_uring")
}

/// `cargo test` of `what`, with the filter and the options of the command line, which win over `usual` ones.
fn test(what: &[&str], options: &Options, usual: &[&str], env: &[(&str, &str)]) -> anyhow::Result<()> {
    cmd::run_with("cargo", &arguments(what, options, usual), env)
}

fn arguments<'a>(what: &[&'a str], options: &'a Options, usual: &[&'a str]) -> Vec<&'a str> {
    let name = |option: &'a str| option.split('=').next().unwrap_or(option);
    let is_given = |usual: &'a str| options.more.iter().any(|given| name(given) == name(usual));
    let mut args = vec!["test"];
    args.extend(what);
    args.extend(options.filter.as_deref());
    let behind: Vec<&str> = usual
        .iter()
        .copied()
        .filter(|option| !is_given(option))
        .chain(options.more.iter().map(String::as_str))
        .collect();
    if !behind.is_empty() {
        args.push("--");
        args.extend(behind);
    }
    args
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    fn parse(line: &str) -> Option<Options> {
        let words = std::iter::once("test").chain(line.split_ascii_whitespace());
        Line::try_parse_from(words).ok().map(|line| line.options)
    }

    fn shown(line: &str) -> String {
        arguments(&["-p", "x"], &parse(line).unwrap(), &[FAULT_THREADS]).join(" ")
    }

    #[test]
    fn filter_and_further_options_reach_the_test_program_and_win_over_the_usual_ones() {
        assert_eq!(shown(""), "test -p x -- --test-threads=4");
        assert_eq!(shown("--suite fault cuts::"), "test -p x cuts:: -- --test-threads=4");
        assert_eq!(shown("--suite fault a -- --ignored"), "test -p x a -- --test-threads=4 --ignored");
        assert_eq!(shown("--suite load -- --test-threads 1"), "test -p x -- --test-threads 1");
    }

    #[test]
    fn every_test_program_is_in_one_suite() {
        let unit = unit_tests().unwrap();
        for one in ["architecture", "machine", "seeds", "config_fuzz"] {
            assert!(unit.contains(one), "{one} is not in {unit:?}");
        }
        // With deliberate mistakes built in: `cargo xtask sim` and CI run it.
        assert!(!unit.contains("faults") && SUITES.iter().all(|suite| !unit.contains(*suite)), "{unit:?}");
        assert_eq!(test_names(b"{}"), None);
        assert_eq!(test_names(b"no JSON"), None);
    }

    #[test]
    fn a_filter_is_for_one_suite() {
        assert!(parse("cuts::").is_none() && parse("-- --ignored").is_none());
        assert!(parse("--suite none").is_none() && parse("--suite unit").is_some());
        assert!(parse("--clients codex").is_some() && parse("--clients --suite unit").is_none());
    }

    #[test]
    fn without_io_uring_only_the_rows_of_epoll_are_left() {
        assert!(rows(&E2E_ALL_ROWS, false).eq([("1", "epoll"), ("2", "epoll")]));
        assert!(rows(&FAULT_ROWS, true).eq(FAULT_ROWS));
    }

    #[test]
    fn all_suites_together_have_every_row() {
        assert!(E2E_ALL_ROWS.iter().all(|row| E2E_ROWS.contains(row) != FAULT_ROWS.contains(row)));
    }
}
