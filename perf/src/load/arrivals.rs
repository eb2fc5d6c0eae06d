//! When requests start: a schedule that is fixed before the run. Pure.
//!
//! A closed load sends when a reply has ended, so a slow subject is asked less. An open load sends when the schedule
//! says so, whatever becomes of the requests before; their latencies count from the schedule.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// The most arrivals per second.
pub const RATE_MAX: f64 = 1_000_000.0;
/// The longest step.
const STEP_MAX: Duration = Duration::from_secs(7 * 24 * 3600);

/// When requests start.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Arrivals {
    /// When the one before has ended, on as many workers as there are requests in flight.
    #[default]
    Closed,
    /// By a Poisson process: independent of each other, with exponential pauses.
    Poisson {
        /// The mean rate.
        per_second: f64,
        /// The same seed makes the same arrivals.
        seed: u64,
    },
    /// Evenly within each step, one step after the other.
    Steps(Vec<Step>),
    /// At moments given one by one, in order, counted from the start of the run.
    Trace(std::sync::Arc<[Duration]>),
    /// At equal distances.
    Uniform {
        /// The rate.
        per_second: f64,
    },
}

/// A stretch of even arrivals.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Step {
    /// The rate; 0 is a pause.
    pub per_second: f64,
    /// How long it lasts.
    pub lasts: Duration,
}

/// Why arrivals were refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ArrivalsError {
    /// No known kind.
    #[error("arrivals are closed, poisson:RATE, uniform:RATE or steps:RATE@SECONDS,…, not {0:?}")]
    Kind(String),
    /// Not a rate.
    #[error("a rate is a number of requests per second, above 0 and at most {RATE_MAX}, not {0:?}")]
    Rate(String),
    /// Not a step.
    #[error("a step is RATE@SECONDS, for at most a week, with a rate of 0 for a pause, not {0:?}")]
    Step(String),
}

impl FromStr for Arrivals {
    type Err = ArrivalsError;

    /// `closed`, `poisson:RATE`, `uniform:RATE` or `steps:RATE@SECONDS,RATE@SECONDS…`. The seed is 1.
    fn from_str(text: &str) -> Result<Self, ArrivalsError> {
        let rate = |text: &str| parse_rate(text).filter(|rate| *rate > 0.0);
        match text.split_once(':') {
            None if text == "closed" => Ok(Self::Closed),
            Some(("poisson", value)) => {
                let per_second = rate(value).ok_or_else(|| ArrivalsError::Rate(value.to_owned()))?;
                Ok(Self::Poisson { per_second, seed: 1 })
            }
            Some(("uniform", value)) => {
                let per_second = rate(value).ok_or_else(|| ArrivalsError::Rate(value.to_owned()))?;
                Ok(Self::Uniform { per_second })
            }
            Some(("steps", value)) => {
                value.split(',').map(parse_step).collect::<Result<_, _>>().map(Self::Steps)
            }
            _ => Err(ArrivalsError::Kind(text.to_owned())),
        }
    }
}

fn parse_rate(text: &str) -> Option<f64> {
    text.parse().ok().filter(|rate| (0.0..=RATE_MAX).contains(rate))
}

fn parse_step(text: &str) -> Result<Step, ArrivalsError> {
    let step = || {
        let (rate, seconds) = text.split_once('@')?;
        let lasts = Duration::try_from_secs_f64(seconds.parse().ok()?).ok()?;
        (lasts > Duration::ZERO && lasts <= STEP_MAX).then_some(Step { per_second: parse_rate(rate)?, lasts })
    };
    step().ok_or_else(|| ArrivalsError::Step(text.to_owned()))
}

impl fmt::Display for Arrivals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("closed"),
            Self::Poisson { per_second, seed } => write!(f, "poisson:{per_second} seed {seed}"),
            Self::Steps(steps) => {
                f.write_str("steps")?;
                steps.iter().enumerate().try_for_each(|(index, step)| {
                    let sign = if index == 0 { ':' } else { ',' };
                    write!(f, "{sign}{}@{}", step.per_second, step.lasts.as_secs_f64())
                })
            }
            Self::Trace(moments) => write!(f, "trace of {}", moments.len()),
            Self::Uniform { per_second } => write!(f, "uniform:{per_second}"),
        }
    }
}

impl Arrivals {
    /// Whether the next request waits for a reply.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        matches!(self, Self::Closed)
    }

    /// The same with this seed, where there is one.
    #[must_use]
    pub fn with_seed(self, seed: u64) -> Self {
        match self {
            Self::Poisson { per_second, .. } => Self::Poisson { per_second, seed },
            other => other,
        }
    }

    /// Whether the schedule itself ends.
    #[must_use]
    pub fn has_end(&self) -> bool {
        matches!(self, Self::Steps(_) | Self::Trace(_))
    }

    /// The moments at which requests start, counted from the start of the run, in order. Without end for
    /// [`Self::Poisson`] and [`Self::Uniform`], empty for [`Self::Closed`].
    pub fn schedule(&self) -> impl Iterator<Item = Duration> + use<> {
        let moments: Box<dyn Iterator<Item = Duration>> = match self {
            Self::Closed => Box::new(std::iter::empty()),
            Self::Poisson { per_second, seed } => Box::new(poisson(*per_second, *seed)),
            Self::Steps(steps) => Box::new(all_steps(steps.clone())),
            Self::Trace(moments) => {
                let moments = moments.clone();
                Box::new((0..moments.len()).filter_map(move |index| moments.get(index).copied()))
            }
            Self::Uniform { per_second } => Box::new(evenly(*per_second)),
        };
        moments
    }
}

fn poisson(per_second: f64, seed: u64) -> impl Iterator<Item = Duration> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut at = 0.0_f64;
    std::iter::from_fn(move || {
        // `f64` gives [0, 1): its complement is never 0, whose logarithm has no end.
        at -= (1.0 - random.f64()).ln() / per_second;
        Duration::try_from_secs_f64(at).ok()
    })
}

/// The n-th arrival is n / rate after the first: nothing adds up.
fn evenly(per_second: f64) -> impl Iterator<Item = Duration> {
    (0_u64..).map_while(move |index| Duration::try_from_secs_f64(index as f64 / per_second).ok())
}

fn all_steps(steps: Vec<Step>) -> impl Iterator<Item = Duration> {
    let mut start = Duration::ZERO;
    steps.into_iter().flat_map(move |step| {
        let from = start;
        start += step.lasts;
        evenly(step.per_second).take_while(move |at| *at < step.lasts).map(move |at| from + at)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(arrivals: &str) -> Vec<u128> {
        arrivals.parse::<Arrivals>().unwrap().schedule().take(1000).map(|at| at.as_millis()).collect()
    }

    #[test]
    fn poisson_arrivals_have_the_rate_and_are_those_of_their_seed() {
        let schedule = |seed| Arrivals::Poisson { per_second: 200.0, seed }.schedule().take(100_000);
        for seed in [1, 2, 99] {
            let moments: Vec<Duration> = schedule(seed).collect();
            assert!(moments.is_sorted());
            // The mean of 100,000 pauses strays by 0.3 % (one sigma), and so does their spread, which equals it.
            let rate = 100_000.0 / moments.last().unwrap().as_secs_f64();
            assert!((rate / 200.0 - 1.0).abs() < 0.02, "{rate}");
            let pauses = moments.windows(2).map(|pair| (pair[1] - pair[0]).as_secs_f64());
            let variance = pauses.map(|pause| (pause - 0.005).powi(2)).sum::<f64>() / 99_999.0;
            assert!((variance.sqrt() / 0.005 - 1.0).abs() < 0.03, "{variance}");
        }
        assert!(schedule(7).eq(schedule(7)));
        assert!(!schedule(7).eq(schedule(8)));
    }

    #[test]
    fn uniform_arrivals_never_drift() {
        assert_eq!(ms("uniform:4")[..4], [0, 250, 500, 750]);
        let last = Arrivals::Uniform { per_second: 3.0 }.schedule().nth(3_000_000).unwrap();
        assert!((last.as_secs_f64() - 1_000_000.0).abs() < 1e-6, "{last:?}");
    }

    #[test]
    fn steps_begin_where_the_one_before_ends_and_may_pause() {
        assert_eq!(ms("steps:2@1,0@2,4@0.5"), [0, 500, 3000, 3250]);
        // An arrival on the border belongs to the step that begins there.
        assert_eq!(ms("steps:1@2,1@2"), [0, 1000, 2000, 3000]);
        assert_eq!(ms("steps:0@5"), [0_u128; 0]);
    }

    #[test]
    fn a_closed_load_has_no_schedule_and_a_trace_is_its_own() {
        assert_eq!(ms("closed"), [0_u128; 0]);
        let moments = [Duration::ZERO, Duration::from_secs(2)];
        assert!(Arrivals::Trace(moments.into()).schedule().eq(moments));
    }

    #[test]
    fn arrivals_are_printed_as_they_are_read() {
        for text in ["closed", "uniform:2.5", "steps:2@1,0@2,4@0.5"] {
            assert_eq!(text.parse::<Arrivals>().unwrap().to_string(), text);
        }
        assert_eq!("poisson:7".parse::<Arrivals>().unwrap().to_string(), "poisson:7 seed 1");
    }

    #[test]
    fn mistakes_are_named() {
        let error = |text: &str| text.parse::<Arrivals>().unwrap_err();
        for text in ["", "open", "closed:1", "poisson"] {
            assert_eq!(error(text), ArrivalsError::Kind(text.to_owned()));
        }
        for rate in ["", "0", "-1", "x", "nan", "inf", "1e9"] {
            assert_eq!(error(&format!("poisson:{rate}")), ArrivalsError::Rate(rate.to_owned()));
            assert_eq!(error(&format!("uniform:{rate}")), ArrivalsError::Rate(rate.to_owned()));
        }
        for step in ["", "1", "1@", "@1", "1@0", "1@-1", "x@1", "1@nan", "-1@1", "1@1e9"] {
            assert_eq!(error(&format!("steps:1@1,{step}")), ArrivalsError::Step(step.to_owned()));
        }
    }
}
