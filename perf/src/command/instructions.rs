//! `iop-perf instructions`.

use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::{Context as _, ensure};

use super::Place;
use iop_perf::instructions::{self, Baseline, Facts};
use iop_perf::procfs;

/// Options of `instructions`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The subject, by name or by file
    #[arg(long, default_value = "ours")]
    subject: String,
    #[command(flatten)]
    place: Place,
    /// Environment variables of its processes; valgrind knows no io_uring
    #[arg(long = "env", value_name = "NAME=VALUE", default_value = "IOP_DRIVER=epoll")]
    env: Vec<String>,
    /// Events of the shorter stream; the longer one has three times as many
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(10..=1_000_000))]
    events: u32,
    /// Requests of the shorter run
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(10..=1_000_000))]
    requests: u32,
    /// How often everything is counted; the median is taken
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    repeats: u32,
    /// The figures to compare with; exit with 1 when one has grown by more than 3 %
    #[arg(long)]
    baseline: Option<PathBuf>,
    /// Write the baseline anew instead of comparing
    #[arg(long, requires = "baseline")]
    update: bool,
    /// Copy the profiles to this directory, for callgrind_annotate: after the warm-up, each repeat makes one of n events, of
    /// 3n, of n requests, of 3n
    #[arg(long)]
    profiles: Option<PathBuf>,
    /// Show so many functions of each figure
    #[arg(long, default_value_t = 0)]
    top: usize,
}

/// Runs it.
///
/// # Errors
/// The subject cannot be counted, or a file not be read or written.
pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let (_, bin) = args.place.programs()?;
    let env = args.env.iter().map(|setting| {
        let (name, value) =
            setting.split_once('=').with_context(|| format!("{setting} is not NAME=VALUE"))?;
        Ok((name.to_owned(), value.to_owned()))
    });
    let config = instructions::Config {
        subject: args.place.subject(&args.subject)?,
        bin,
        peers: args.place.peers()?,
        env: env.collect::<anyhow::Result<_>>()?,
        events: args.events,
        requests: args.requests,
        repeats: args.repeats,
        profiles: args.profiles,
    };
    let figures = instructions::run(&config, |line| eprintln!("{line}"))?;
    for (name, figure) in &figures {
        if args.top > 0 || args.baseline.is_none() || args.update {
            println!(
                "{name:<16}{:>12} instructions, spread {:.1} %",
                figure.instructions, figure.spread_percent
            );
        }
        for (function, cost) in figure.top().into_iter().take(args.top) {
            println!("{cost:>12}  {:>5.1} %  {function}", cost as f64 / figure.instructions as f64 * 100.0);
        }
    }
    let Some(path) = args.baseline else { return Ok(ExitCode::SUCCESS) };
    let made = facts()?;
    if args.update {
        let text = Baseline { made, figures }.render();
        std::fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
        println!("wrote {}", path.display());
        return Ok(ExitCode::SUCCESS);
    }
    let text = std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    let check = Baseline::parse(&text).with_context(|| path.display().to_string())?.check(&made, &figures);
    print!("{check}");
    Ok(if check.pass { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What the figures of today are made under.
fn facts() -> anyhow::Result<Facts> {
    Ok(Facts {
        date: first_line("date", &["-u", "+%F"])?,
        rustc: first_line("rustc", &["--version"])?,
        cpu: procfs::cpu_model(),
        valgrind: first_line("valgrind", &["--version"])?,
        // It is only noted: where there is another C library, nothing knows the name.
        glibc: first_line("getconf", &["GNU_LIBC_VERSION"]).unwrap_or_else(|_| "none".to_owned()),
    })
}

fn first_line(program: &str, args: &[&str]) -> anyhow::Result<String> {
    let output =
        Command::new(program).args(args).output().with_context(|| format!("cannot run {program}"))?;
    ensure!(output.status.success(), "{program} {} ended with {}", args.join(" "), output.status);
    Ok(String::from_utf8_lossy(&output.stdout).lines().next().unwrap_or_default().trim().to_owned())
}
