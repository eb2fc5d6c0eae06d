//! Which rounds are run and which of them count. Pure.

use std::collections::BTreeMap;

/// A round is disturbed when other programs took more than this of the machine meanwhile. Unit: cores.
pub(super) const DISTURBED_CORES: f64 = 0.25;

/// The rounds that were run, by scenario.
#[derive(Debug, Clone, Default)]
pub(super) struct Rounds {
    of: BTreeMap<&'static str, OfScenario>,
}

#[derive(Debug, Clone, Default)]
struct OfScenario {
    wanted: usize,
    max: usize,
    /// Round and disturbance.
    ran: Vec<(u32, f64)>,
}

impl OfScenario {
    fn quiet(&self) -> usize {
        self.ran.iter().filter(|(_, others)| *others <= DISTURBED_CORES).count()
    }
}

impl Rounds {
    /// Says how many undisturbed rounds of a scenario are wanted, and how many there may be in all.
    pub(super) fn plan(&mut self, scenario: &'static str, wanted: u32, max: u32) {
        let size = |count: u32| usize::try_from(count).unwrap_or(usize::MAX);
        self.of.insert(scenario, OfScenario { wanted: size(wanted), max: size(max), ran: Vec::new() });
    }

    /// Notes a round and how many cores others took in it.
    pub(super) fn ran(&mut self, scenario: &'static str, round: u32, others_cores: f64) {
        self.of.entry(scenario).or_default().ran.push((round, others_cores));
    }

    /// Whether one more round is to be run: too few were undisturbed, or a gate does not hold and the bound still allows
    /// to make sure.
    pub(super) fn is_due(&self, scenario: &str, gates_hold: bool) -> bool {
        let Some(of) = self.of.get(scenario) else { return false };
        of.ran.len() < of.max && (of.quiet() < of.wanted || !gates_hold)
    }

    /// The rounds that count: all undisturbed ones, or the least disturbed where too few were.
    pub(super) fn counted(&self, scenario: &str) -> Vec<u32> {
        let Some(of) = self.of.get(scenario) else { return Vec::new() };
        let mut ran = of.ran.clone();
        ran.sort_by(|a, b| a.1.total_cmp(&b.1));
        ran.truncate(of.quiet().max(of.wanted));
        let mut rounds: Vec<u32> = ran.into_iter().map(|(round, _)| round).collect();
        rounds.sort_unstable();
        rounds
    }

    /// How many were run.
    pub(super) fn count(&self, scenario: &str) -> usize {
        self.of.get(scenario).map_or(0, |of| of.ran.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ran(others: &[f64]) -> Rounds {
        let mut rounds = Rounds::default();
        rounds.plan("s", 2, 4);
        for (round, others) in (1..).zip(others) {
            rounds.ran("s", round, *others);
        }
        rounds
    }

    #[test]
    fn a_disturbed_round_is_repeated_within_the_bound() {
        assert!(ran(&[]).is_due("s", true) && ran(&[0.0]).is_due("s", true));
        assert!(!ran(&[0.0, 0.0]).is_due("s", true));
        assert!(ran(&[0.0, 1.0]).is_due("s", true));
        assert!(!ran(&[0.0, 1.0, 0.0]).is_due("s", true));
        assert!(!ran(&[1.0, 1.0, 1.0, 1.0]).is_due("s", true), "never more than the bound");
    }

    #[test]
    fn a_gate_that_fails_is_given_the_rounds_up_to_the_bound() {
        assert!(ran(&[0.0, 0.0, 0.0]).is_due("s", false));
        assert!(!ran(&[0.0, 0.0, 0.0, 0.0]).is_due("s", false));
    }

    #[test]
    fn undisturbed_rounds_count_and_else_the_least_disturbed() {
        assert_eq!(ran(&[0.0, 1.0, 0.1, 0.2]).counted("s"), [1, 3, 4]);
        assert_eq!(ran(&[0.9, 0.5, 0.7, 2.0]).counted("s"), [2, 3]);
        assert_eq!(ran(&[0.9]).counted("s"), [1]);
        assert!(ran(&[]).counted("s").is_empty());
    }
}
