//! The committed figures and what is made of a difference. Pure, but for reading a text.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

use serde::{Deserialize, Serialize};

use super::callgrind::Profile;

/// A figure may grow by so much; by more it fails. Unit: percent.
pub const TOLERANCE: u64 = 3;
/// A function with a smaller share of its figure is not kept in the baseline.
const SHARE_KEPT: f64 = 0.01;
/// How many functions are named when a figure has grown.
const NAMED: usize = 12;

/// What one event or request costs one process.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// Instructions.
    pub instructions: u64,
    /// Greatest less least of the repeats, by the figure. Unit: percent.
    pub spread_percent: f64,
    /// The functions with the most instructions of their own.
    pub functions: BTreeMap<String, u64>,
}

impl Figure {
    /// The median of the repeats.
    #[must_use]
    pub fn of(repeats: &[Profile]) -> Self {
        let mut sorted: Vec<&Profile> = repeats.iter().collect();
        sorted.sort_by(|a, b| a.total().total_cmp(&b.total()));
        let Some(median) = sorted.get(sorted.len() / 2) else { return Self::default() };
        let total = median.total();
        let range = sorted.last().map_or(0.0, |last| last.total())
            - sorted.first().map_or(0.0, |first| first.total());
        let functions = median.functions().filter(|(_, cost)| *cost >= 1.0);
        Self {
            instructions: whole(total),
            spread_percent: (range / total * 1000.0).round() / 10.0,
            functions: functions.map(|(name, cost)| (name.to_owned(), whole(cost))).collect(),
        }
    }

    /// The functions with the largest figures, largest first.
    pub fn top(&self) -> Vec<(&str, u64)> {
        let mut functions: Vec<(&str, u64)> =
            self.functions.iter().map(|(name, cost)| (name.as_str(), *cost)).collect();
        functions.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(b.0)));
        functions
    }

    /// What this figure's functions have more than the baseline's, most first. What the baseline does not name was below
    /// its threshold, and counts as nothing.
    fn growth<'a>(&'a self, baseline: &'a Self) -> Vec<(&'a str, i128)> {
        let least = (baseline.instructions as f64 * SHARE_KEPT) as i128;
        let before = |name: &str| baseline.functions.get(name).copied().map(i128::from);
        let now = self.functions.iter().map(|(name, cost)| (name.as_str(), i128::from(*cost)));
        // A newcomer is named when it would have been kept.
        let mut growth: Vec<(&str, i128)> = now
            .filter_map(|(name, cost)| match before(name) {
                Some(before) => Some((name, cost - before)),
                None => (cost >= least).then_some((name, cost)),
            })
            .filter(|(_, grown)| *grown > 0)
            .collect();
        growth.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(b.0)));
        growth.truncate(NAMED);
        growth
    }
}

fn whole(cost: f64) -> u64 {
    // Not negative, and far below 2^53.
    cost.max(0.0).round() as u64
}

/// Under what a baseline was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Facts {
    /// The day.
    pub date: String,
    /// The compiler; another version or commit of it makes other code, and the figures cannot be compared.
    pub rustc: String,
    /// The processor. valgrind shows every program the same one, so that this hardly matters.
    pub cpu: String,
    /// The counting tool.
    pub valgrind: String,
    /// The C library, whose copies and comparisons are counted too.
    pub glibc: String,
}

/// Version and commit in what `rustc --version` prints. Dates and remarks of those who packaged it say nothing about the
/// code that it makes.
fn compiler(rustc: &str) -> (&str, &str) {
    let mut words = rustc.split([' ', '(', ')']).filter(|word| !word.is_empty()).skip(1);
    (words.next().unwrap_or_default(), words.next().unwrap_or_default())
}

/// The committed figures.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Baseline {
    /// Under what it was made.
    pub made: Facts,
    /// By `event PROCESS` and `request PROCESS`.
    pub figures: BTreeMap<String, Figure>,
}

impl Baseline {
    /// Reads the committed text.
    ///
    /// # Errors
    /// It is no baseline.
    pub fn parse(text: &str) -> anyhow::Result<Self> {
        serde_saphyr::from_str(text).map_err(|error| anyhow::anyhow!("not a baseline: {error}"))
    }

    /// The text to commit: YAML, the small functions left out.
    #[must_use]
    pub fn render(&self) -> String {
        let quoted = |text: &str| serde_json::Value::from(text).to_string();
        let mut out = String::from(
            "# Instructions of one relayed event and of one request, by process: `cargo xtask bench --instructions`.\n\
             # CI fails when a figure is more than 3 % above. After a change that is worth it, or with another compiler, write this\n\
             # file anew with `cargo xtask bench --instructions --update` and say before and after in the commit message.\nmade:\n",
        );
        let made = &self.made;
        for (name, value) in [
            ("date", &made.date),
            ("rustc", &made.rustc),
            ("cpu", &made.cpu),
            ("valgrind", &made.valgrind),
            ("glibc", &made.glibc),
        ] {
            // Writing to a String cannot fail.
            let _ = writeln!(out, "  {name}: {}", quoted(value));
        }
        out.push_str("figures:\n");
        for (name, figure) in &self.figures {
            let _ = writeln!(
                out,
                "  {name}:\n    instructions: {}\n    spread_percent: {}\n    functions:",
                figure.instructions, figure.spread_percent
            );
            let least = figure.instructions as f64 * SHARE_KEPT;
            for (function, cost) in figure.top().into_iter().filter(|(_, cost)| *cost as f64 >= least) {
                let _ = writeln!(out, "      {}: {cost}", quoted(function));
            }
        }
        out
    }

    /// Holds new figures against these.
    #[must_use]
    pub fn check(&self, made: &Facts, figures: &BTreeMap<String, Figure>) -> Check {
        let mut check = Check { pass: true, text: String::new() };
        if compiler(&made.rustc) != compiler(&self.made.rustc) {
            check.fail(&format!(
                "the baseline was made with {}, this is {}: the figures cannot be compared.\n\
                 Count with both compilers on one commit, see that nothing got worse, and write the baseline anew (--update).",
                self.made.rustc, made.rustc
            ));
        }
        for (fact, then, now) in [
            ("processor", &self.made.cpu, &made.cpu),
            ("valgrind", &self.made.valgrind, &made.valgrind),
            ("C library", &self.made.glibc, &made.glibc),
        ] {
            if then != now {
                check.say(&format!(
                    "note: the baseline's {fact} is {then}, this is {now}; figures may differ a little"
                ));
            }
        }
        check.say(&format!(
            "{:<16}{:>12}{:>12}{:>9}{:>9}",
            "instructions", "baseline", "now", "change", "spread"
        ));
        for (name, before) in &self.figures {
            let Some(now) = figures.get(name) else {
                check.fail(&format!("{name}: was not counted"));
                continue;
            };
            check.compare(name, before, now);
        }
        for name in figures.keys().filter(|name| !self.figures.contains_key(*name)) {
            check.fail(&format!("{name}: is not in the baseline; write it anew (--update)"));
        }
        check
    }
}

/// What came of a comparison.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// Whether nothing has grown too much.
    pub pass: bool,
    text: String,
}

impl Check {
    fn say(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
    }

    fn fail(&mut self, line: &str) {
        self.pass = false;
        self.say(&format!("FAIL {line}"));
    }

    fn compare(&mut self, name: &str, before: &Figure, now: &Figure) {
        let change = now.instructions as f64 / before.instructions.max(1) as f64 - 1.0;
        let (hundredfold, one_percent) = (now.instructions.saturating_mul(100), before.instructions);
        self.say(&format!(
            "{name:<16}{:>12}{:>12}{:>+8.1}%{:>8.1}%",
            before.instructions,
            now.instructions,
            change * 100.0,
            now.spread_percent
        ));
        if hundredfold > one_percent.saturating_mul(100 + TOLERANCE) {
            self.fail(&format!(
                "{name}: {:.1} % more instructions, at most {TOLERANCE} % are allowed. Functions that grew most:",
                change * 100.0
            ));
            for (function, grown) in now.growth(before) {
                self.say(&format!("{grown:>+12}  {function}"));
            }
            self.say("If that is worth it: cargo xtask bench --instructions --update, and say why in the commit message.");
        } else if hundredfold < one_percent.saturating_mul(100 - TOLERANCE) {
            self.say(&format!(
                "{name}: better than the baseline; keep it with cargo xtask bench --instructions --update"
            ));
        }
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(rustc: &str) -> Facts {
        let [date, cpu, valgrind, glibc] =
            ["2026-11-30", "a cpu", "valgrind-3", "glibc 2"].map(str::to_owned);
        Facts { date, rustc: rustc.to_owned(), cpu, valgrind, glibc }
    }

    fn figures(functions: &[(&str, u64)]) -> BTreeMap<String, Figure> {
        let figure = Figure {
            instructions: functions.iter().map(|(_, cost)| cost).sum(),
            spread_percent: 0.1,
            functions: functions.iter().map(|(name, cost)| ((*name).to_owned(), *cost)).collect(),
        };
        BTreeMap::from([("event edge".to_owned(), figure)])
    }

    fn baseline() -> Baseline {
        Baseline {
            made: facts("rustc 1"),
            figures: figures(&[("a::<b: c>", 9000), ("d", 990), ("small", 10)]),
        }
    }

    #[test]
    fn three_percent_more_passes_and_any_more_fails_with_the_functions_that_grew() {
        let check = |cost| baseline().check(&facts("rustc 1"), &figures(&[("a::<b: c>", 9000), ("d", cost)]));
        assert!(check(1000).pass && check(1300).pass);
        let worse = check(1301);
        assert!(!worse.pass && worse.to_string().contains("+311  d"), "{worse}");
        assert!(!worse.to_string().contains("a::<b: c>"), "{worse}");
    }

    #[test]
    fn a_newcomer_among_the_functions_is_named() {
        let now = figures(&[("a::<b: c>", 9000), ("d", 990), ("new", 500), ("tiny", 20)]);
        let check = baseline().check(&facts("rustc 1"), &now);
        assert!(!check.pass && check.to_string().contains("+500  new"), "{check}");
        assert!(!check.to_string().contains("tiny"), "{check}");
    }

    #[test]
    fn an_improvement_passes_with_a_hint() {
        let check = baseline().check(&facts("rustc 1"), &figures(&[("a::<b: c>", 9000)]));
        assert!(check.pass && check.to_string().contains("better than the baseline"), "{check}");
    }

    #[test]
    fn another_compiler_fails_and_says_what_to_do() {
        let check = baseline().check(&facts("rustc 2"), &baseline().figures);
        assert!(!check.pass && check.to_string().contains("cannot be compared"), "{check}");
    }

    #[test]
    fn a_compiler_is_its_version_and_its_commit() {
        let check = |then: &str, now| {
            let baseline = Baseline { made: facts(then), ..baseline() };
            baseline.check(&facts(now), &baseline.figures).pass
        };
        let official = "rustc 1.95.0 (59807616e 2026-04-14)";
        assert!(check(official, "rustc 1.95.0 (59807616e 2026-04-14) (Debian 1.95.0+dfsg1-1)"));
        assert!(!check(official, "rustc 1.95.0 (59807616f 2026-04-14)"));
        assert!(!check(official, "rustc 1.96.0 (59807616e 2026-04-14)"));
        assert!(!check(official, "rustc 1.95.0"));
    }

    #[test]
    fn another_processor_or_c_library_is_only_mentioned() {
        let [cpu, glibc] = ["b cpu", "glibc 3"].map(str::to_owned);
        let check = baseline().check(&Facts { cpu, glibc, ..facts("rustc 1") }, &baseline().figures);
        assert!(check.pass, "{check}");
        assert!(check.to_string().contains("b cpu") && check.to_string().contains("glibc 3"), "{check}");
    }

    #[test]
    fn a_figure_that_is_missing_on_either_side_fails() {
        let empty = BTreeMap::new();
        assert!(!baseline().check(&facts("rustc 1"), &empty).pass);
        let nothing = Baseline { figures: empty, ..baseline() };
        assert!(!nothing.check(&facts("rustc 1"), &baseline().figures).pass);
    }

    #[test]
    fn what_is_written_is_read_again_without_the_small_functions() {
        let read = Baseline::parse(&baseline().render()).unwrap();
        let mut expected = baseline();
        expected.figures.get_mut("event edge").unwrap().functions.remove("small");
        assert_eq!(read, expected);
    }

    #[test]
    fn the_committed_baseline_is_one() {
        let baseline = Baseline::parse(include_str!("../../baseline/instructions.yaml")).unwrap();
        for figure in ["event edge", "event node", "request edge", "request node"] {
            assert!(baseline.figures[figure].instructions > 1000, "{figure}");
        }
    }

    #[test]
    fn a_figure_is_the_median_of_its_repeats() {
        let profile = |cost| Profile::parse(&format!("summary: {cost}\nfn=(1) f\n1 {cost}\n")).unwrap();
        let figure = Figure::of(&[profile(100), profile(300), profile(110)]);
        assert_eq!((figure.instructions, figure.functions["f"]), (110, 110));
        assert!((figure.spread_percent - 181.8).abs() < 0.01, "{figure:?}");
        assert_eq!(Figure::of(&[]), Figure::default());
    }
}
