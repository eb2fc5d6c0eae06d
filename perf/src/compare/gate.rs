//! Limits on figures of subjects and on their ratios. Pure.

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};

use super::figures::Spread;

/// A figure that subjects are judged by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Figure {
    /// CPU time per event or request. Unit: µs.
    Cpu,
    /// Growth of memory per silent stream. Unit: KiB.
    Memory,
    /// 99 of 100 first events came within. Unit: ms.
    FirstP99,
    /// What the subject adds to the way of an event, by the medians of delivery. Unit: ms.
    AddedP50,
    /// The same by the 99th percentiles.
    AddedP99,
    /// What the subject adds to a whole request, by the 99th percentiles. Unit: ms.
    OverheadP99,
    /// Exact replies per second of wall time.
    Goodput,
    /// 99 of 100 refusals (429 and 503) came within. Unit: ms.
    RefusalP99,
    /// Memory of all its processes within the load. Unit: KiB.
    Pss,
}

impl Figure {
    /// All of them with their names in gates.
    pub const NAMES: [(&str, Self); 9] = [
        ("cpu", Self::Cpu),
        ("memory", Self::Memory),
        ("first_p99", Self::FirstP99),
        ("added_p50", Self::AddedP50),
        ("added_p99", Self::AddedP99),
        ("overhead_p99", Self::OverheadP99),
        ("goodput", Self::Goodput),
        ("refusal_p99", Self::RefusalP99),
        ("pss", Self::Pss),
    ];

    /// Whether the bare provider's own figure of the same round is taken off.
    #[must_use]
    pub fn needs_direct(self) -> bool {
        matches!(self, Self::AddedP50 | Self::AddedP99 | Self::OverheadP99)
    }

    /// Its unit.
    #[must_use]
    pub fn unit(self) -> &'static str {
        match self {
            Self::Cpu => "us",
            Self::Memory | Self::Pss => "KiB",
            Self::Goodput => "replies/s",
            Self::FirstP99 | Self::AddedP50 | Self::AddedP99 | Self::OverheadP99 | Self::RefusalP99 => "ms",
        }
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::NAMES.iter().find(|(_, figure)| figure == self).map_or("", |(name, _)| name);
        f.write_str(name)
    }
}

/// Whose figure, under which load: `SUBJECT[.PROCESS[:THREAD]]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Side {
    /// The subject.
    pub subject: String,
    /// One of its processes (or all of a count) instead of all.
    pub process: Option<String>,
    /// One of the process's threads instead of all.
    pub thread: Option<String>,
    /// The load.
    pub scenario: String,
}

impl Side {
    fn parse(text: &str, scenario: &str) -> Option<Self> {
        let (subject, part) =
            text.split_once('.').map_or((text, None), |(subject, part)| (subject, Some(part)));
        let (process, thread) = match part.and_then(|part| part.split_once(':')) {
            Some((process, thread)) => (Some(process), Some(thread)),
            None => (part, None),
        };
        let named = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let (process, thread) = (process.map(named), thread.map(named));
        // A point or a colon with nothing behind it is a mistake.
        if process == Some(None) || thread == Some(None) {
            return None;
        }
        Some(Self {
            subject: named(subject)?,
            process: process.flatten(),
            thread: thread.flatten(),
            scenario: named(scenario)?,
        })
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.subject)?;
        if let Some(process) = &self.process {
            write!(f, ".{process}")?;
        }
        if let Some(thread) = &self.thread {
            write!(f, ":{thread}")?;
        }
        Ok(())
    }
}

/// A limit: `SIDE[/REFERENCE[@SCENARIO]] SCENARIO FIGURE <= LIMIT`, such as `ours/nginx paced200 cpu <= 2.0`, or
/// `ours.edge:control short cpu <= 5` (without a reference: the figure itself, in its unit). `>=` demands at least.
#[derive(Debug, Clone, PartialEq)]
pub struct Gate {
    /// Whose figure is held against it.
    pub own: Side,
    /// Whose figure it is divided by, in the same round.
    pub reference: Option<Side>,
    /// Which figure.
    pub figure: Figure,
    /// On which side of the limit it must be.
    pub bound: Bound,
    /// What the geometric mean of the rounds' ratios, or the median of the rounds' figures, is held against.
    pub limit: f64,
}

/// On which side of a limit a figure must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    /// At the limit or below.
    AtMost,
    /// At the limit or above.
    AtLeast,
}

/// Why a gate was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no gate; one is written SUBJECT[.PROCESS[:THREAD]][/REFERENCE[@SCENARIO]] SCENARIO FIGURE <= LIMIT"
)]
pub struct GateError(String);

impl FromStr for Gate {
    type Err = GateError;

    fn from_str(text: &str) -> Result<Self, GateError> {
        Self::parse(text).ok_or_else(|| GateError(text.to_owned()))
    }
}

impl Gate {
    fn parse(text: &str) -> Option<Self> {
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        let &[sides, scenario, figure, bound, limit] = words.as_slice() else { return None };
        let (own, reference) = match sides.split_once('/') {
            Some((own, reference)) => (own, Some(reference)),
            None => (sides, None),
        };
        let reference = match reference {
            Some(text) => {
                let (side, other) = text.split_once('@').unwrap_or((text, scenario));
                Some(Side::parse(side, other)?)
            }
            None => None,
        };
        let bound = match bound {
            "<=" => Bound::AtMost,
            ">=" => Bound::AtLeast,
            _ => return None,
        };
        let (_, figure) = Figure::NAMES.into_iter().find(|(name, _)| *name == figure)?;
        let limit: f64 = limit.parse().ok().filter(|limit: &f64| limit.is_finite() && *limit > 0.0)?;
        Some(Self { own: Side::parse(own, scenario)?, reference, figure, bound, limit })
    }

    /// Its sides: one, or two.
    pub fn sides(&self) -> impl Iterator<Item = &Side> {
        std::iter::once(&self.own).chain(&self.reference)
    }

    /// Holds what the rounds gave against the limit: ratios, or without a reference the figures themselves. `None`: there
    /// were none, which is no pass.
    #[must_use]
    pub fn judge(&self, rounds: impl IntoIterator<Item = f64>) -> (Option<Spread>, bool) {
        let measured = if self.reference.is_some() { Spread::of_ratios(rounds) } else { Spread::of(rounds) };
        let holds = |measured: Spread| match self.bound {
            Bound::AtMost => measured.mid <= self.limit,
            Bound::AtLeast => measured.mid >= self.limit,
        };
        (measured, measured.is_some_and(holds))
    }
}

impl fmt::Display for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.own)?;
        if let Some(reference) = &self.reference {
            write!(f, "/{reference}")?;
            if reference.scenario != self.own.scenario {
                write!(f, "@{}", reference.scenario)?;
            }
        }
        let bound = match self.bound {
            Bound::AtMost => "<=",
            Bound::AtLeast => ">=",
        };
        write!(f, " {} {} {bound} {}", self.own.scenario, self.figure, self.limit)?;
        if self.reference.is_none() {
            write!(f, " {}", self.figure.unit())?;
        }
        Ok(())
    }
}

impl Serialize for Gate {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// How much a gate weighs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// The comparison fails without it.
    Required,
    /// Wished for, and reported.
    Goal,
}

/// A gate with its place in a report.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Demand {
    /// What is demanded, in words; empty for a gate of the command line.
    pub line: String,
    /// How much it weighs.
    pub level: Level,
    /// The gate.
    pub gate: Gate,
    /// What a reader should know about it; empty if nothing.
    pub note: String,
}

impl From<Gate> for Demand {
    fn from(gate: Gate) -> Self {
        Self { line: String::new(), level: Level::Required, gate, note: String::new() }
    }
}

/// What became of a demand.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Verdict {
    /// The demand.
    #[serde(flatten)]
    pub demand: Demand,
    /// The ratios or figures it was held against; `None` if there were none, which is no pass.
    pub measured: Option<Spread>,
    /// Whether it holds.
    pub pass: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate(text: &str) -> Gate {
        text.parse().unwrap()
    }

    #[test]
    fn a_gate_fails_above_its_limit_and_passes_at_it() {
        let pass = |rounds: &[f64]| gate("ours/nginx paced200 cpu <= 2.0").judge(rounds.iter().copied()).1;
        assert!(pass(&[2.0, 2.0]));
        assert!(!pass(&[2.0, 2.01]));
        assert!(pass(&[4.0, 1.0]), "the geometric mean counts, not the worst round");
        assert!(!pass(&[4.1, 1.0]));
    }

    #[test]
    fn without_a_reference_the_median_is_held_against_the_limit() {
        let limit = gate("ours.edge:control short cpu <= 5");
        assert!(limit.judge([1.0, 5.0, 90.0]).1 && !limit.judge([1.0, 5.1, 90.0]).1);
        let least = gate("ours short cpu >= 5");
        assert!(least.judge([5.0]).1 && !least.judge([4.9]).1);
    }

    #[test]
    fn a_gate_without_a_measurement_does_not_pass() {
        for text in ["ours/nginx paced200 cpu <= 2.0", "ours paced200 cpu <= 2", "ours paced200 cpu >= 2"] {
            assert!(!gate(text).judge([]).1, "{text}");
        }
        assert!(!gate("ours/nginx paced200 cpu <= 2.0").judge([0.0]).1);
    }

    #[test]
    fn a_gate_reads_back_as_it_is_written() {
        for text in [
            "ours/nginx paced200 cpu <= 0.5",
            "ours.edge/nginx paced200 cpu <= 0.5",
            "ours/ours@paced64 paced1000 cpu <= 1.15",
            "ours/envoy-rt paced200 added_p99 >= 0.5",
        ] {
            assert_eq!(gate(text).to_string(), text);
        }
        let control = gate("ours.edge:control short cpu <= 5");
        assert_eq!(control.to_string(), "ours.edge:control short cpu <= 5 us");
        assert_eq!(
            (control.own.process.as_deref(), control.own.thread.as_deref()),
            (Some("edge"), Some("control"))
        );
        let axis = gate("ours/ours@paced64 paced1000 cpu <= 1.15");
        let scenarios: Vec<&str> = axis.sides().map(|side| side.scenario.as_str()).collect();
        assert_eq!(scenarios, ["paced1000", "paced64"]);
    }

    #[test]
    fn other_texts_are_no_gates() {
        for text in [
            "",
            "ours/nginx paced200 cpu < 2",
            "/nginx paced200 cpu <= 2",
            "ours/ paced200 cpu <= 2",
            "ours. paced200 cpu <= 2",
            "ours.edge: paced200 cpu <= 2",
            "ours/nginx@ paced200 cpu <= 2",
            "ours/nginx paced200 wall <= 2",
            "ours/nginx paced200 cpu <= x",
            "ours/nginx paced200 cpu <= 0",
            "ours/nginx paced200 cpu <= 2 3",
        ] {
            assert_eq!(text.parse::<Gate>(), Err(GateError(text.to_owned())), "{text}");
        }
    }
}
