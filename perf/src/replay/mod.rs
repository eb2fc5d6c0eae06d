//! A recorded load sent again: arrivals, prompt and output lengths of a trace, served by a stated model.
//!
//! The trace says when requests came, how long their prompts were and how many tokens came back. It does not say how fast
//! the engine was; the [`Model`] does, and the scripted provider keeps to it.

mod trace;

use std::sync::Arc;
use std::time::Duration;

use crate::load::{Arrivals, Ask, Config, Length};
use crate::provider::{EVENTS_MAX, PAUSE_MAX};
pub use trace::{Row, Trace, TraceError};

/// How an engine is taken to serve a request.
///
/// ```text
/// prefill = prompt tokens ÷ prefill_rate        silence before the first token
/// then one event for each token, one every `gap`
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Model {
    /// Prompt tokens per second.
    pub prefill_rate: f64,
    /// From one token to the next.
    pub gap: Duration,
    /// Bytes of a prompt for each of its tokens.
    pub bytes_per_token: usize,
    /// The longest prompt. Unit: bytes.
    pub prompt_bytes_max: usize,
}

impl Default for Model {
    fn default() -> Self {
        Self {
            prefill_rate: 8000.0,
            gap: Duration::from_millis(20),
            bytes_per_token: 4,
            prompt_bytes_max: 64 * 1024,
        }
    }
}

impl Model {
    /// What a row of a trace asks for.
    #[must_use]
    pub fn ask(&self, row: &Row) -> Ask {
        let prefill = Duration::try_from_secs_f64(f64::from(row.prompt_tokens) / self.prefill_rate);
        let prefill = prefill.unwrap_or(PAUSE_MAX).min(PAUSE_MAX);
        let events = row.output_tokens.min(EVENTS_MAX);
        let prompt = usize::try_from(row.prompt_tokens).unwrap_or(usize::MAX);
        Ask {
            prompt_bytes: prompt.saturating_mul(self.bytes_per_token).min(self.prompt_bytes_max),
            script: format!(
                "prefill={}us events={events} gap={}us",
                prefill.as_micros(),
                self.gap.as_micros()
            ),
            content_events: u64::from(events),
        }
    }

    /// How long a row is in service.
    #[must_use]
    pub fn service(&self, row: &Row) -> Duration {
        let prefill = Duration::try_from_secs_f64(f64::from(row.prompt_tokens) / self.prefill_rate);
        prefill.unwrap_or(PAUSE_MAX).min(PAUSE_MAX) + self.gap * row.output_tokens
    }
}

/// How much faster than it was recorded a trace is sent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Pace {
    /// So many times.
    Compress(f64),
    /// As much as makes the last request come this long after the first.
    LastFor(Duration),
}

impl Pace {
    /// What a trace of this span is divided by.
    #[must_use]
    pub fn factor(self, span: Duration) -> f64 {
        match self {
            Self::Compress(factor) => factor,
            // One request has no span to be divided.
            Self::LastFor(_) if span.is_zero() => 1.0,
            Self::LastFor(wanted) => span.as_secs_f64() / wanted.as_secs_f64(),
        }
    }
}

/// The open load of a trace; `base` says where it goes and what is demanded of replies.
#[must_use]
pub fn load(base: Config, trace: &Trace, model: &Model, pace: Pace) -> Config {
    let factor = pace.factor(trace.span());
    let moments: Arc<[Duration]> = trace.rows().iter().map(|row| row.at.div_f64(factor)).collect();
    let asks = trace.rows().iter().map(|row| model.ask(row)).collect();
    Config {
        arrivals: Arrivals::Trace(moments),
        length: Length::Requests(u64::MAX),
        asks,
        stream: true,
        ..base
    }
}

/// How many requests are in service at once on average, were all served at once: what the trace offers.
#[must_use]
pub fn offered_concurrency(trace: &Trace, model: &Model, pace: Pace) -> f64 {
    let lasts = trace.span().as_secs_f64() / pace.factor(trace.span());
    let work: f64 = trace.rows().iter().map(|row| model.service(row).as_secs_f64()).sum();
    if lasts > 0.0 { work / lasts } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::Script;

    const TEXT: &str = "TIMESTAMP,ContextTokens,GeneratedTokens\n\
        2023-11-16 18:17:03.0000000,4000,10\n2023-11-16 18:17:04.5000000,100000,8\n2023-11-16 18:17:09.0000000,0,0\n";

    fn model() -> Model {
        Model { prefill_rate: 2000.0, gap: Duration::from_millis(50), ..Model::default() }
    }

    #[test]
    fn a_row_is_served_by_the_stated_model() {
        let trace = Trace::parse(TEXT).unwrap();
        let asks: Vec<Ask> = trace.rows().iter().map(|row| model().ask(row)).collect();
        assert_eq!(asks.iter().map(|ask| ask.prompt_bytes).collect::<Vec<_>>(), [16_000, 65_536, 0]);
        assert_eq!(asks.iter().map(|ask| ask.content_events).collect::<Vec<_>>(), [10, 8, 0]);
        let script = Script::parse(&asks[0].script).unwrap();
        assert_eq!((script.prefill, script.events), (Duration::from_secs(2), 10));
        assert_eq!(script.gap, Duration::from_millis(50));
        assert_eq!(model().service(&trace.rows()[0]), Duration::from_millis(2500));
    }

    #[test]
    fn arrivals_are_divided_by_the_factor_or_made_to_last() {
        let trace = Trace::parse(TEXT).unwrap();
        let moments = |pace| -> Vec<u128> {
            let load = load(Config::default(), &trace, &model(), pace);
            load.arrivals.schedule().map(|at| at.as_millis()).collect()
        };
        assert_eq!(moments(Pace::Compress(1.0)), [0, 1500, 6000]);
        assert_eq!(moments(Pace::Compress(3.0)), [0, 500, 2000]);
        assert_eq!(moments(Pace::LastFor(Duration::from_secs(60))), [0, 15_000, 60_000]);
    }

    #[test]
    fn what_a_trace_offers_is_its_work_by_its_time() {
        let trace = Trace::parse(TEXT).unwrap();
        // 2.5 s and 50.4 s of service within 6 s.
        let offered = offered_concurrency(&trace, &model(), Pace::Compress(1.0));
        assert!((offered - 52.9 / 6.0).abs() < 1e-9, "{offered}");
    }
}
