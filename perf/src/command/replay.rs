//! `iop-perf replay`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, anyhow, ensure};
use iop_perf::load;
use iop_perf::replay::{self, Model, Pace, Trace};

use super::aim::{Aim, Bounds};

/// Options of `replay`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The trace: TIMESTAMP,ContextTokens,GeneratedTokens
    #[arg(long, value_name = "FILE")]
    trace: PathBuf,
    /// Send it so many times faster than it was recorded
    #[arg(long, default_value_t = 1.0, conflicts_with = "last_for")]
    compress: f64,
    /// Make it last so long: 90s, 20m, 1h
    #[arg(long, value_parser = duration)]
    last_for: Option<Duration>,
    /// Only its first N requests
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// Prompt tokens per second: a prompt is silent for its tokens by this
    #[arg(long, value_name = "TOKENS/S", default_value_t = Model::default().prefill_rate)]
    prefill_rate: f64,
    /// From one token to the next, in ms
    #[arg(long, value_name = "MS", default_value_t = 20.0)]
    gap: f64,
    /// Bytes of a prompt for each of its tokens
    #[arg(long, default_value_t = Model::default().bytes_per_token)]
    bytes_per_token: usize,
    /// The longest prompt
    #[arg(long, default_value_t = Model::default().prompt_bytes_max)]
    prompt_bytes_max: usize,
    #[command(flatten)]
    aim: Aim,
    #[command(flatten)]
    bounds: Bounds,
}

/// Runs it.
///
/// # Errors
/// The trace cannot be read, or the load cannot run.
pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let positive = |value: f64| value > 0.0 && value.is_finite();
    ensure!(positive(args.compress), "--compress is a number above 0");
    ensure!(positive(args.prefill_rate), "--prefill-rate is a number above 0");
    let gap = Duration::try_from_secs_f64(args.gap / 1000.0).ok().context("--gap is a number of ms")?;
    let name = args.trace.display();
    let text = std::fs::read_to_string(&args.trace).with_context(|| format!("read {name}"))?;
    let trace = Trace::parse(&text).map_err(|error| anyhow!("{name}:{error}"))?;
    let trace = trace.limited(args.limit.unwrap_or(usize::MAX));
    let model = Model {
        prefill_rate: args.prefill_rate,
        gap,
        bytes_per_token: args.bytes_per_token,
        prompt_bytes_max: args.prompt_bytes_max,
    };
    let pace = args.last_for.map_or(Pace::Compress(args.compress), Pace::LastFor);
    let config = replay::load(args.bounds.apply(args.aim.config())?, &trace, &model, pace);
    eprintln!(
        "{name}: {} requests in {:.0} s, {:.2} times as fast as recorded; {:.1} in service at once on average",
        trace.rows().len(),
        trace.span().as_secs_f64() / pace.factor(trace.span()),
        pace.factor(trace.span()),
        replay::offered_concurrency(&trace, &model, pace)
    );
    let wanted = u64::try_from(trace.rows().len()).ok();
    args.aim.run(wanted, |gauge| load::run_watched(&config, gauge), load::Report::is_clean)
}

/// `90s`, `20m`, `1h`, `500ms`; above nothing.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let read = || {
        let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let ms = match text.get(digits.len()..)? {
            "ms" => 1,
            "s" => 1000,
            "m" => 60_000,
            "h" => 3_600_000,
            _ => return None,
        };
        let ms = digits.parse::<u64>().ok()?.checked_mul(ms).filter(|ms| *ms > 0)?;
        Some(Duration::from_millis(ms))
    };
    read().ok_or_else(|| "a time is a whole number with ms, s, m or h, such as 20m".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_carry_their_unit() {
        for (text, ms) in [("500ms", 500), ("90s", 90_000), ("20m", 1_200_000), ("1h", 3_600_000)] {
            assert_eq!(duration(text), Ok(Duration::from_millis(ms)));
        }
        for text in ["", "20", "m", "0s", "-1s", "1.5m", "1d", "20m!", "99999999999999999999s", "é"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }
}
