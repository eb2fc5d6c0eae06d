//! A file of goals: which lines are demanded, and the blocks of rounds that are measured for them. Pure but for reading.
//!
//! ```yaml
//! reference: nginx                                  # whose costs the tables divide by
//! blocks:                                           # run one after the other; a block's loads alternate, round by round
//!   - { scenarios: [paced200, sat64], rounds: 5, rounds_max: 8 }
//! beside: { paced200: [ours-2shards] }              # measured too, although no line speaks of it
//! lines:
//!   - name: CPU per event, lone events
//!     required: ["ours/envoy-rt paced200 cpu <= 0.75"]
//!     goal: ["ours/nginx paced200 cpu <= 1.0"]
//!     note: what a reader should know
//! ```
//!
//! A load is put on those subjects alone that its lines speak of.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, ensure};
use serde::Deserialize;

use super::gate::{Demand, Gate, Level};
use super::scenario::Scenario;
use super::summary::DIRECT;
use super::{Block, Cell};

/// A file of goals.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Goals {
    /// Whose costs the tables divide by.
    pub reference: String,
    blocks: Vec<BlockSpec>,
    #[serde(default)]
    beside: BTreeMap<String, Vec<String>>,
    lines: Vec<Line>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct BlockSpec {
    scenarios: Vec<String>,
    rounds: u32,
    rounds_max: u32,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    name: String,
    #[serde(default)]
    required: Vec<String>,
    #[serde(default)]
    goal: Vec<String>,
    #[serde(default)]
    note: String,
}

impl Goals {
    /// Reads a file.
    ///
    /// # Errors
    /// It cannot be read or is not a file of goals.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
        Self::parse(&text).with_context(|| path.display().to_string())
    }

    /// Reads a text.
    ///
    /// # Errors
    /// It is not a file of goals.
    pub fn parse(text: &str) -> anyhow::Result<Self> {
        let goals: Self = serde_saphyr::from_str(text).context("not a file of goals")?;
        let demands = goals.demands()?;
        let blocks = goals.blocks()?;
        let place = |scenario: &str| {
            blocks.iter().position(|block| block.cells.iter().any(|cell| cell.scenario.name == scenario))
        };
        for Demand { gate, .. } in &demands {
            let places: Vec<_> = gate.sides().map(|side| place(&side.scenario)).collect();
            ensure!(!places.contains(&None), "`{gate}` speaks of a load that is in no block");
            // Else the rounds of its two sides would lie minutes apart.
            ensure!(
                places.windows(2).all(|pair| pair.first() == pair.last()),
                "`{gate}`: loads of two blocks"
            );
        }
        for scenario in goals.beside.keys() {
            ensure!(place(scenario).is_some(), "{scenario} is in no block");
        }
        Ok(goals)
    }

    /// What is demanded, in the file's order.
    ///
    /// # Errors
    /// A gate that is none.
    pub fn demands(&self) -> anyhow::Result<Vec<Demand>> {
        let demand = |line: &Line, level: Level, text: &String| -> anyhow::Result<Demand> {
            let gate: Gate = text.parse()?;
            Ok(Demand { line: line.name.clone(), level, gate, note: line.note.clone() })
        };
        let mut demands = Vec::new();
        for line in &self.lines {
            for (level, texts) in [(Level::Required, &line.required), (Level::Goal, &line.goal)] {
                for text in texts {
                    demands.push(demand(line, level, text)?);
                }
            }
        }
        Ok(demands)
    }

    /// What is measured.
    ///
    /// # Errors
    /// A load that is unknown, in two blocks, or asked for by no line.
    pub fn blocks(&self) -> anyhow::Result<Vec<Block>> {
        let demands = self.demands()?;
        let mut blocks: Vec<Block> = Vec::new();
        for spec in &self.blocks {
            ensure!(spec.rounds > 0 && spec.rounds_max >= spec.rounds, "a block needs rounds");
            let mut cells: Vec<Cell> = Vec::new();
            for name in &spec.scenarios {
                let scenario =
                    Scenario::find(name).with_context(|| format!("there is no scenario {name}"))?;
                let before = blocks.iter().flat_map(|block| &block.cells).chain(&cells);
                ensure!(before.into_iter().all(|cell| cell.scenario != scenario), "{name} is there twice");
                let subjects = self.subjects_of(name, &demands);
                ensure!(!subjects.is_empty(), "no line speaks of {name}");
                cells.push(Cell { scenario, subjects });
            }
            blocks.push(Block { cells, rounds: spec.rounds, rounds_max: spec.rounds_max });
        }
        Ok(blocks)
    }

    /// The subjects that a load is put on.
    fn subjects_of(&self, scenario: &str, demands: &[Demand]) -> Vec<String> {
        let mut subjects = Vec::new();
        let mut add = |name: &str| {
            if !subjects.iter().any(|known| known == name) {
                subjects.push(name.to_owned());
            }
        };
        for Demand { gate, .. } in demands {
            for side in gate.sides().filter(|side| side.scenario == scenario) {
                if gate.figure.needs_direct() {
                    add(DIRECT);
                }
                add(&side.subject);
            }
        }
        self.beside.get(scenario).into_iter().flatten().for_each(|name| add(name));
        subjects
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCKS: &str = "reference: nginx\nblocks: [{ scenarios: [paced200, paced64], rounds: 2, rounds_max: 3 }, \
                          { scenarios: [short], rounds: 1, rounds_max: 1 }]\n";

    fn goals(rest: &str) -> anyhow::Result<Goals> {
        Goals::parse(&format!("{BLOCKS}{rest}"))
    }

    #[test]
    fn a_load_is_put_on_the_subjects_that_its_lines_speak_of() {
        let goals = goals(
            "beside: { short: [extra] }\nlines: [{ name: a, required: ['a/b paced200 added_p99 <= 1'], goal: ['a/c paced200 \
             cpu <= 1'] }, { name: b, required: ['a/a@paced64 paced200 cpu <= 1', 'a.p:t short cpu <= 5'], note: n }]",
        )
        .unwrap();
        let blocks = goals.blocks().unwrap();
        let cells: Vec<(&str, Vec<&str>)> = blocks
            .iter()
            .flat_map(|block| &block.cells)
            .map(|cell| (cell.scenario.name, cell.subjects.iter().map(String::as_str).collect()))
            .collect();
        assert_eq!(
            cells,
            [
                ("paced200", vec!["direct", "a", "b", "c"]),
                ("paced64", vec!["a"]),
                ("short", vec!["a", "extra"])
            ]
        );
        let demands = goals.demands().unwrap();
        let levels: Vec<(&str, Level, &str)> =
            demands.iter().map(|d| (d.line.as_str(), d.level, d.note.as_str())).collect();
        assert_eq!(
            levels,
            [
                ("a", Level::Required, ""),
                ("a", Level::Goal, ""),
                ("b", Level::Required, "n"),
                ("b", Level::Required, "n")
            ]
        );
    }

    #[test]
    fn mistakes_in_a_file_are_errors() {
        let all = "'a paced200 cpu <= 1', 'a paced64 cpu <= 1', 'a short cpu <= 1'";
        assert!(goals(&format!("lines: [{{ name: a, required: [{all}] }}]")).is_ok());
        for (rest, why) in [
            (format!("lines: [{{ name: a, required: [{all}, 'a idle cpu <= 1'] }}]"), "in no block"),
            (
                format!("lines: [{{ name: a, required: [{all}, 'a/a@short paced200 cpu <= 1'] }}]"),
                "two blocks",
            ),
            (format!("lines: [{{ name: a, required: [{all}, 'a short cpu'] }}]"), "no gate"),
            (format!("beside: {{ idle: [a] }}\nlines: [{{ name: a, required: [{all}] }}]"), "in no block"),
            ("lines: [{ name: a, required: ['a short cpu <= 1'] }]".to_owned(), "no line speaks of"),
        ] {
            let error = goals(&rest).unwrap_err();
            assert!(format!("{error:#}").contains(why), "{rest}: {error:#}");
        }
        let twice = "reference: n\nblocks: [{ scenarios: [short, short], rounds: 1, rounds_max: 1 }]\n\
                     lines: [{ name: a, required: ['a short cpu <= 1'] }]";
        assert!(Goals::parse(twice).is_err());
    }

    #[test]
    fn the_committed_goals_have_subjects_that_are_there() {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR"));
        let goals = Goals::read(&dir.join("goals.yaml")).unwrap();
        for cell in goals.blocks().unwrap().iter().flat_map(|block| &block.cells) {
            for name in &cell.subjects {
                assert!(dir.join(format!("subjects/{name}.yaml")).is_file(), "{name}");
            }
        }
    }
}
