//! A comparison as text for a terminal.

use std::fmt;

use super::figures::Spread;
use super::gate::{Figure, Verdict};
use super::summary::{Row, Table};
use super::{Comparison, rounds::DISTURBED_CORES};

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.machine)?;
        for table in &self.tables {
            writeln!(f, "\n{table}")?;
        }
        for verdict in &self.verdicts {
            writeln!(f, "{verdict}")?;
        }
        Ok(())
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

fn spread(spread: Option<Spread>) -> String {
    spread.map_or_else(|| "-".to_owned(), |s| format!("{:.2} ({:.2}-{:.2})", s.mid, s.min, s.max))
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gate = &self.gate;
        let figure = match gate.figure {
            Figure::Cpu => "CPU",
            Figure::Memory => "memory",
        };
        write!(
            f,
            "{} {}: {figure} of {} by {}'s is {}, at most {}",
            if self.pass { "PASS" } else { "FAIL" },
            gate.scenario,
            gate.subject,
            gate.reference,
            spread(self.ratio),
            gate.limit
        )
    }
}

#[cfg(test)]
mod tests {
    use crate::compare::{Comparison, summary};

    #[test]
    fn the_table_names_subjects_ratios_and_verdicts() {
        let (config, measurements, rounds) = summary::tests::example();
        let comparison = Comparison {
            machine: "a machine".to_owned(),
            commands: Default::default(),
            tables: summary::tables(&config, &measurements, &rounds),
            verdicts: summary::verdicts(&config.gates, &measurements, &rounds),
            measurements,
        };
        let text = comparison.to_string();
        for part in [
            "a machine",
            "sat64: 2 rounds counted of 3",
            "15.00 (10.00-20.00)",
            "0.71 (0.50-1.00)",
            "x nginx",
            "PASS sat64: CPU of ours by nginx's is 0.71 (0.50-1.00), at most 0.75",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(comparison.passes());
    }
}
