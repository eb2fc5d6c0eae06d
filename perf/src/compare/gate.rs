//! Limits on ratios between subjects. Pure.

use std::str::FromStr;

use serde::Serialize;

use super::figures::Spread;

/// A figure that subjects are compared by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Figure {
    /// CPU time of all its processes per event or request.
    Cpu,
    /// Growth of memory per silent stream.
    Memory,
}

/// A limit: `SUBJECT/REFERENCE SCENARIO FIGURE <= LIMIT`, such as `ours/nginx paced200 cpu <= 2.0`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Gate {
    /// Whose figure is held against it.
    pub subject: String,
    /// Whose figure it is divided by, in the same round.
    pub reference: String,
    /// The load.
    pub scenario: String,
    /// Which figure.
    pub figure: Figure,
    /// What the geometric mean of the rounds' ratios may be at most.
    pub limit: f64,
}

/// Why a gate was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a gate is written `SUBJECT/REFERENCE SCENARIO cpu|memory <= LIMIT`")]
pub struct GateError;

impl FromStr for Gate {
    type Err = GateError;

    fn from_str(text: &str) -> Result<Self, GateError> {
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        let &[pair, scenario, figure, "<=", limit] = words.as_slice() else { return Err(GateError) };
        let (subject, reference) = pair.split_once('/').ok_or(GateError)?;
        let figure = match figure {
            "cpu" => Figure::Cpu,
            "memory" => Figure::Memory,
            _ => return Err(GateError),
        };
        let limit: f64 = limit.parse().map_err(|_| GateError)?;
        if limit.is_finite() && limit > 0.0 {
            let (subject, reference) = (subject.to_owned(), reference.to_owned());
            Ok(Self { subject, reference, scenario: scenario.to_owned(), figure, limit })
        } else {
            Err(GateError)
        }
    }
}

/// What became of a gate.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Verdict {
    /// The gate.
    pub gate: Gate,
    /// The ratios it was held against; `None` if there were none, which is no pass.
    pub ratio: Option<Spread>,
    /// Whether it holds.
    pub pass: bool,
}

impl Gate {
    /// Holds the ratios of the rounds against the limit.
    #[must_use]
    pub fn judge(&self, ratios: impl IntoIterator<Item = f64>) -> Verdict {
        let ratio = Spread::of_ratios(ratios);
        Verdict { gate: self.clone(), ratio, pass: ratio.is_some_and(|ratio| ratio.mid <= self.limit) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate() -> Gate {
        "ours/nginx paced200 cpu <= 2.0".parse().unwrap()
    }

    #[test]
    fn a_gate_fails_above_its_limit_and_passes_at_it() {
        assert!(gate().judge([2.0, 2.0]).pass);
        assert!(!gate().judge([2.0, 2.01]).pass);
        assert!(gate().judge([4.0, 1.0]).pass, "the geometric mean counts, not the worst round");
        assert!(!gate().judge([4.1, 1.0]).pass);
    }

    #[test]
    fn a_gate_without_a_measurement_does_not_pass() {
        assert!(!gate().judge([]).pass);
        assert!(!gate().judge([0.0]).pass);
    }

    #[test]
    fn other_texts_are_no_gates() {
        for text in [
            "",
            "ours/nginx paced200 cpu < 2",
            "ours paced200 cpu <= 2",
            "ours/nginx paced200 wall <= 2",
            "ours/nginx paced200 cpu <= x",
            "ours/nginx paced200 cpu <= 0",
            "ours/nginx paced200 cpu <= 2 3",
        ] {
            assert_eq!(text.parse::<Gate>(), Err(GateError), "{text}");
        }
    }
}
