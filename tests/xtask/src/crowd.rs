//! Whether a decision costs more when more requests wait: instructions of `control`'s example `cost` under callgrind, once
//! with 1,000 and once with 10,000 waiting requests at 500 providers.

use std::{path::Path, process::Command};

use anyhow::{Context, ensure};

use crate::cmd;

/// Waiting requests, few and many.
const WAITERS: [u32; 2] = [1_000, 10_000];
/// What a decision may cost with many, in percent of what it costs with few: trees of ten times the size are one level
/// higher.
const PERCENT_MAX: u64 = 120;
/// Scenario of the example, what a round of it is, and how many rounds are counted.
const SCENARIOS: [(&str, &str, u32); 5] = [
    ("mixed", "admission + settlement", 2_000),
    ("avoiding", "the same, everybody avoids a provider", 2_000),
    ("groups", "the same, every provider in 500 groups", 100),
    ("overflow", "admission at a full queue", 2_000),
    ("fence", "a Node lost and back: 20 leases", 50),
];

/// Counts all scenarios and compares.
///
/// # Errors
/// valgrind is missing, the example does not build or run, or a decision costs more than [`PERCENT_MAX`] percent.
pub fn run() -> anyhow::Result<()> {
    cmd::run("cargo", &["build", "--release", "-p", "iop-control", "--example", "cost"])?;
    let program = cmd::target_dir().join("release/examples/cost");
    println!("instructions of a decision with {} and with {} requests waiting:", WAITERS[0], WAITERS[1]);
    let mut dear = Vec::new();
    for (scenario, words, rounds) in SCENARIOS {
        let count = |waiters| count(&program, scenario, waiters, rounds);
        let (few, many) = (count(WAITERS[0])?, count(WAITERS[1])?);
        let percent = many * 100 / few;
        println!("  {words:<42} {few:>9} {many:>9}  {percent} %");
        if percent > PERCENT_MAX {
            dear.push(scenario);
        }
    }
    ensure!(dear.is_empty(), "over {PERCENT_MAX} %: {}", dear.join(", "));
    Ok(())
}

/// Instructions of one round.
fn count(program: &Path, scenario: &str, waiters: u32, rounds: u32) -> anyhow::Result<u64> {
    let profile = cmd::target_dir().join(format!("crowd.{scenario}.{waiters}.callgrind"));
    let output = Command::new("valgrind")
        .args(["--quiet", "--tool=callgrind", "--toggle-collect=*counted*"])
        .arg(format!("--callgrind-out-file={}", profile.display()))
        .arg(program)
        .args([scenario.to_owned(), waiters.to_string(), rounds.to_string()])
        .output()
        .context("cannot run valgrind; on Debian: apt-get install valgrind")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "{scenario} with {waiters} waiting ended with {}: {said}",
        output.status
    );
    let text = std::fs::read_to_string(&profile).with_context(|| profile.display().to_string())?;
    let total = text.lines().find_map(|line| line.strip_prefix("summary:")?.trim().parse::<u64>().ok());
    // The name of the function that is counted is in the example; if it were another one, nothing would be.
    let total = total.filter(|&total| total > u64::from(rounds)).context("callgrind has counted nothing")?;
    Ok(total / u64::from(rounds))
}
