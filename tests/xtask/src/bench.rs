//! `cargo xtask bench`: what the product costs beside nginx, or beside all its peers, in the same run, and in instructions
//! against the baseline.

use std::path::PathBuf;

use anyhow::Context;

use crate::{cmd, crowd, peers};

/// Options of `bench`.
#[derive(Debug, Default, clap::Args)]
pub struct Options {
    /// Count instructions under valgrind and hold them against the baseline, instead of comparing CPU time with nginx; and
    /// those of a decision with few and with many requests waiting against each other.
    #[arg(long)]
    instructions: bool,
    /// Only the latter, which takes no build of the Edge.
    #[arg(long, conflicts_with_all = ["instructions", "all", "short", "goals"])]
    waiting: bool,
    /// Write the baseline of instructions anew.
    #[arg(long, requires = "instructions")]
    update: bool,
    /// Every load instead of the two that are gated.
    #[arg(long, conflicts_with = "instructions")]
    all: bool,
    /// Few rounds, as CI does it.
    #[arg(long, conflicts_with_all = ["instructions", "all"])]
    short: bool,
    /// Every figure that performance is judged by, beside all peers: one table, one page, 20 minutes. `cargo xtask peers`
    /// is run first.
    #[arg(long, conflicts_with_all = ["instructions", "all", "short"])]
    goals: bool,
    /// Further options for `iop-perf compare` or `iop-perf instructions`, behind `--`.
    #[arg(last = true)]
    more: Vec<String>,
}

/// What must hold: Edge and Node together against one hop of nginx.
const GATES: [&str; 2] = ["ours/nginx paced200 cpu <= 2.0", "ours/nginx sat64 cpu <= 2.0"];
const GOALS: &str = "perf/goals.yaml";
const BASELINE: &str = "perf/baseline/instructions.yaml";

/// Runs it.
///
/// # Errors
/// Something does not build or start, or a limit does not hold.
pub fn run(options: &Options) -> anyhow::Result<()> {
    if options.waiting {
        return crowd::run();
    }
    cmd::run("cargo", &["build", "--release", "-p", "iop-edge", "-p", "iop-node", "-p", "iop-perf"])?;
    let target = cmd::target_dir();
    let text = |path: PathBuf| path.into_os_string().into_string().ok();
    let text = |path| text(path).context("a target directory that is not UTF-8");
    let (directory, json, html) =
        (text(peers::dir())?, text(target.join("goals.json"))?, text(target.join("goals.html"))?);
    let mut args = if options.goals {
        peers::run(&peers::Options::default())?;
        vec!["compare", "--goals", GOALS, "--peers", &directory, "--json", &json, "--html", &html]
    } else if options.instructions {
        instructions(options)
    } else {
        compare(options)
    };
    args.extend(options.more.iter().map(String::as_str));
    let done = cmd::run(&text(target.join("release/iop-perf"))?, &args);
    if options.instructions && !options.update {
        done?;
        return crowd::run();
    }
    if options.goals {
        println!("all figures: {json}; with charts: {html}");
    }
    done
}

/// Both checks as CI makes them: the one on instructions first, which no load of the machine can disturb.
///
/// # Errors
/// As [`run`].
pub fn ci() -> anyhow::Result<()> {
    run(&Options { instructions: true, ..Options::default() })?;
    run(&Options { short: true, ..Options::default() })
}

fn instructions(options: &Options) -> Vec<&str> {
    let mut args = vec!["instructions", "--baseline", BASELINE];
    if options.update {
        args.push("--update");
    }
    args
}

fn compare(options: &Options) -> Vec<&str> {
    let mut args = vec!["compare", "--subject", "direct,ours,nginx"];
    for gate in &GATES {
        args.extend(["--gate", gate]);
    }
    if options.all {
        args.extend(["--scenario", "all"]);
    }
    if options.short {
        // About 22 s each with both loads: a minute, two at the most.
        args.extend(["--rounds", "3", "--rounds-max", "5"]);
    }
    args
}
