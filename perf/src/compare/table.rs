//! A comparison as text for a terminal.

use std::fmt;

use super::figures::Spread;
use super::gate::{Level, Verdict};
use super::summary::{Replies, Row, Table};
use super::{Comparison, rounds::DISTURBED_CORES};

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}; load on {}; {:.0} s", self.machine, self.engine, self.seconds)?;
        for table in &self.tables {
            writeln!(f, "\n{table}")?;
        }
        let mut line = "";
        for verdict in &self.verdicts {
            if verdict.demand.line != line {
                line = &verdict.demand.line;
                let note = &verdict.demand.note;
                if note.is_empty() { writeln!(f, "{line}")? } else { writeln!(f, "{line} ({note})")? }
            }
            writeln!(f, "{verdict}")?;
        }
        let replies: Vec<String> =
            self.replies.iter().map(|(name, replies)| format!("{name} {replies}")).collect();
        writeln!(f, "lost or inexact replies: {}", replies.join(", "))
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let others = self.others_cores.map_or(0.0, |others| others.mid);
        write!(
            f,
            "{}: {} rounds counted of {}; other programs took {others:.2} cores",
            self.scenario,
            self.rounds.len(),
            self.rounds_run
        )?;
        writeln!(f, "{}", if others > DISTURBED_CORES { " (DISTURBED: not a quiet machine)" } else { "" })?;
        writeln!(
            f,
            "{:<14}{:>22}{:>12}{:>22}{:>10}{:>10}{:>10}{:>10}  its processes",
            "subject",
            format!("CPU us/{}", self.unit),
            format!("{}s/s", self.unit),
            format!("x {}", self.reference),
            "first p99",
            "added p50",
            "added p99",
            "KiB/str"
        )?;
        for row in &self.rows {
            writeln!(f, "{row}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mid = |spread: Option<Spread>, digits: usize| {
            spread.map_or_else(|| "-".to_owned(), |spread| format!("{:.digits$}", spread.mid))
        };
        write!(
            f,
            "{:<14}{:>22}{:>12}{:>22}{:>10}{:>10}{:>10}{:>10}  ",
            self.subject,
            spread(self.cost_us),
            mid(self.per_second, 0),
            spread(self.ratio),
            mid(self.first_event_p99_ms, 1),
            mid(self.added_p50_ms, 2),
            mid(self.added_p99_ms, 2),
            mid(self.memory_kib, 1),
        )?;
        let processes: Vec<String> =
            self.processes.iter().map(|(name, cost)| format!("{name} {cost:.1}")).collect();
        f.write_str(&processes.join(" + "))
    }
}

impl fmt::Display for Replies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.lost, self.all)?;
        if self.refused > 0 { write!(f, " ({} refused)", self.refused) } else { Ok(()) }
    }
}

/// A middle with its least and greatest.
pub(super) fn spread(spread: Option<Spread>) -> String {
    spread.map_or_else(|| "-".to_owned(), |s| format!("{:.2} ({:.2}-{:.2})", s.mid, s.min, s.max))
}

impl Verdict {
    /// In a word: what is required passes or fails, what is wished for is met or not.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match (self.demand.level, self.pass) {
            (Level::Required, true) => "PASS",
            (Level::Required, false) => "FAIL",
            (Level::Goal, true) => "goal met",
            (Level::Goal, false) => "goal short",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<10} {:<62} {}", self.word(), self.demand.gate.to_string(), spread(self.measured))
    }
}

#[cfg(test)]
mod tests {
    use crate::compare::{Comparison, Level, summary};
    use crate::load::Engine;

    fn comparison() -> Comparison {
        let (config, measurements, rounds) = summary::tests::example();
        Comparison {
            machine: "a machine".to_owned(),
            engine: Engine::Epoll,
            seconds: 7.0,
            subjects: Vec::new(),
            tables: summary::tables(&config, &measurements, &rounds),
            verdicts: summary::verdicts(&config.demands, &measurements, &rounds),
            replies: summary::replies(&measurements),
            measurements,
        }
    }

    #[test]
    fn the_table_names_subjects_ratios_verdicts_and_what_was_lost() {
        let comparison = comparison();
        let text = comparison.to_string();
        for part in [
            "a machine; load on epoll; 7 s",
            "sat64: 2 rounds counted of 3",
            "15.00 (10.00-20.00)",
            "0.71 (0.50-1.00)",
            "x nginx",
            "PASS       ours/nginx sat64 cpu <= 0.75",
            "lost or inexact replies: direct 0 of 3, nginx 0 of 3, ours 0 of 3",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(comparison.passes());
    }

    #[test]
    fn what_is_required_must_hold_and_what_is_wished_for_need_not() {
        let mut comparison = comparison();
        comparison.verdicts[0].pass = false;
        assert!(!comparison.passes() && comparison.to_string().contains("FAIL"));
        comparison.verdicts[0].demand.level = Level::Goal;
        assert!(comparison.passes() && comparison.to_string().contains("goal short"));
    }

    #[test]
    fn a_reply_that_a_judged_subject_lost_fails_the_comparison() {
        let mut comparison = comparison();
        comparison.replies.get_mut("nginx").unwrap().lost = 1;
        assert!(comparison.passes(), "ours alone is judged");
        comparison.replies.get_mut("ours").unwrap().lost = 1;
        assert!(!comparison.passes());
        comparison.verdicts.clear();
        comparison.replies.get_mut("ours").unwrap().lost = 0;
        assert!(!comparison.passes(), "without a gate all are judged");
    }
}
