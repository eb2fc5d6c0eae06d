//! `cargo xtask sim`: the decision machine in simulated worlds.

use std::{path::PathBuf, process::ExitCode, time::Duration};

// The package has another name than the one its dependents give it.
use iop_sim::{
    dump,
    judge::Depth,
    run::{self, Found, Plan, Report},
    trace, watchdog,
};

const USAGE: &str = "iop-sim [SEED] [--events N] [--jobs N] [--watchdogs] [--one] [--replay FILE] [--out FILE] [--shrink SECONDS]";

/// One in so many events is one of the Node's watchdogs.
const WATCHDOGS: u64 = 10;

/// Seconds for which a failing list is made shorter.
const MINIMISE: u64 = 120;

struct Options {
    seed: Option<u64>,
    events: u64,
    jobs: usize,
    /// SEED is that of one run, as a failure prints it.
    one: bool,
    /// The Node's watchdogs alone.
    watchdogs: bool,
    replay: Option<PathBuf>,
    out: PathBuf,
    shrink: Duration,
}

fn main() -> ExitCode {
    let options = match options(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(why) => {
            eprintln!("{why}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    if let Some(file) = &options.replay {
        return match dump::replay(file) {
            Ok(true) => ExitCode::SUCCESS,
            Ok(false) => ExitCode::FAILURE,
            Err(error) => {
                eprintln!("{}: {error}", file.display());
                ExitCode::from(2)
            }
        };
    }
    let seed = options.seed.unwrap_or_else(random_seed);
    if options.one && options.watchdogs {
        return match watchdog::one(seed, run::length(seed)) {
            Ok(done) => {
                println!("run {seed}: {} events checked, digest {:016x}", done.steps, done.digest);
                ExitCode::SUCCESS
            }
            Err(failure) => {
                println!("step {}: {}", failure.steps, failure.broken);
                ExitCode::FAILURE
            }
        };
    }
    if options.one {
        let (ended, _) = run::one(seed, run::length(seed), false);
        return match ended {
            Ok(done) => {
                println!("run {seed}: {} events checked, digest {:016x}", done.steps, done.digest);
                ExitCode::SUCCESS
            }
            Err(failure) => {
                report_failure(
                    &Found { seed, steps: run::length(seed), events: failure.steps, failure },
                    &options,
                );
                ExitCode::FAILURE
            }
        };
    }
    println!("seed {seed}, {} events, {} jobs, commit {}", options.events, options.jobs, commit());
    let share = if options.watchdogs { options.events } else { options.events / WATCHDOGS };
    let plan = Plan { seed, events: options.events - share, jobs: options.jobs };
    let report = run::many(&plan, |events, took| {
        eprintln!("{events} events checked, {:.0} events/s", events as f64 / took.as_secs_f64());
    });
    print_report(&report, options.jobs);
    if let Some(found) = &report.found {
        report_failure(found, &options);
        return ExitCode::FAILURE;
    }
    println!("and the watchdogs of Nodes:");
    let report = watchdog::many(&Plan { events: share, ..plan });
    print_report(&report, options.jobs);
    let Some(Found { seed, failure, .. }) = &report.found else { return ExitCode::SUCCESS };
    println!("\nrun {seed} of commit {} broke a check at its event {}:", commit(), failure.steps);
    println!("  {}\nagain: cargo xtask sim {seed} --watchdogs --one", failure.broken);
    ExitCode::FAILURE
}

fn options(mut args: impl Iterator<Item = String>) -> Result<Options, String> {
    let jobs = std::thread::available_parallelism().map_or(1, usize::from);
    let mut options = Options {
        seed: None,
        events: 10_000_000,
        jobs,
        one: false,
        watchdogs: false,
        replay: None,
        out: PathBuf::from("target/sim-failure.jsonl"),
        shrink: Duration::from_secs(MINIMISE),
    };
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("{arg} needs a value"));
        let number =
            |text: String| text.replace('_', "").parse::<u64>().map_err(|_| format!("{text:?} is no number"));
        match arg.as_str() {
            "--events" => options.events = number(value()?)?,
            "--jobs" => options.jobs = number(value()?)? as usize,
            "--shrink" => options.shrink = Duration::from_secs(number(value()?)?),
            "--one" => options.one = true,
            "--watchdogs" => options.watchdogs = true,
            "--replay" => options.replay = Some(value()?.into()),
            "--out" => options.out = value()?.into(),
            _ => options.seed = Some(number(arg)?),
        }
    }
    Ok(options)
}

/// A seed that is not chosen: it is printed, so that the run can be had again.
fn random_seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(std::process::id())
}

fn commit() -> String {
    let output = std::process::Command::new("git").args(["describe", "--always", "--dirty"]).output();
    let text = output.ok().filter(|output| output.status.success()).map(|output| output.stdout);
    text.map_or_else(|| "unknown".to_owned(), |text| String::from_utf8_lossy(&text).trim().to_owned())
}

fn print_report(report: &Report, jobs: usize) {
    for names in report.seen.chunks(5) {
        let names: Vec<_> = names.iter().map(|(name, count)| format!("{name} {count}")).collect();
        println!("  {}", names.join(", "));
    }
    let seconds = report.took.as_secs_f64();
    println!(
        "{} events checked in {} runs, {seconds:.1} s: {:.0} events/s, {:.0} for each of {jobs} jobs",
        report.events,
        report.runs,
        report.events as f64 / seconds,
        report.events as f64 / seconds / jobs as f64,
    );
}

fn report_failure(found: &Found, options: &Options) {
    let Found { seed, steps, failure, .. } = found;
    println!("\nrun {seed} of commit {} broke a check at its step {}:", commit(), failure.steps);
    println!("  {}", failure.broken);
    println!("again: cargo xtask sim {seed} --one");
    let (_, recorded) = run::one(*seed, *steps, true);
    let Some(recorded) = recorded else { return };
    if trace::judge(&recorded, Depth::ALWAYS).is_none() {
        println!(
            "the inputs alone do not show it: it is about how the world came to rest, or about the world itself"
        );
        return;
    }
    let shortest = trace::minimise(&recorded, failure, options.shrink);
    println!("{} of {} inputs are enough:\n", shortest.steps.len(), recorded.steps.len());
    dump::show(&shortest);
    match dump::write(&options.out, &shortest, &commit()) {
        Ok(()) => println!("\nagain, step by step: cargo xtask sim --replay {}", options.out.display()),
        Err(error) => println!("\n{} cannot be written: {error}", options.out.display()),
    }
}
