//! What was seen of recovery: a world in which something never happens has not tested it.

use control::recovery::{Ineligible, Strategy, Verdict};

use crate::run::Seen;

/// Counts of one run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Attempts sent.
    pub attempts: u64,
    /// Requests of which the client has content.
    pub commits: u64,
    /// Attempts at a provider that failed the request before.
    pub fallbacks: u64,
    /// Attempts asked for and not granted.
    pub refused: u64,
    /// Answers that were complete after a recovery.
    pub completed: u64,
    recovered: [u64; Strategy::ALL.len()],
    continued_after_content: u64,
    stayed: [u64; Ineligible::ALL.len()],
}

impl Tally {
    pub(super) fn judged(&mut self, verdict: Verdict, committed: bool) {
        match verdict {
            Verdict::Recover { strategy, .. } => {
                let place = Strategy::ALL.iter().position(|it| *it == strategy);
                self.recovered[place.unwrap()] += 1;
                self.continued_after_content += u64::from(committed);
            }
            Verdict::Stay(why) => {
                self.stayed[Ineligible::ALL.iter().position(|it| *it == why).unwrap()] += 1;
            }
        }
    }

    /// By name.
    pub fn seen(&self) -> Seen {
        let mut seen = vec![
            ("attempts", self.attempts),
            ("committed answers", self.commits),
            ("fallbacks", self.fallbacks),
            ("recoveries refused", self.refused),
            ("recoveries completed", self.completed),
            ("continued after content", self.continued_after_content),
        ];
        seen.extend(Strategy::ALL.iter().zip(self.recovered).map(|(it, count)| (it.name(), count)));
        seen.extend(Ineligible::ALL.iter().zip(self.stayed).map(|(it, count)| (it.name(), count)));
        seen
    }
}
