//! A subject: something that stands between clients and the provider and is measured. A YAML file says how it is set up,
//! started and known to be ready; `perf/subjects/` holds those that are measured here.
//!
//! ```yaml
//! name: nginx
//! needs: { nginx: apt-get install nginx-light }     # programs, and how to get them
//! setup:                                            # commands run to their end, in order
//!   - run: [some-tool, --out, identity]
//!     take: { token: "token: " }                    # @token@ is the word that follows this text in what it prints
//! files: { nginx.conf: "listen 127.0.0.1:@port:http@; …" }   # written after setup
//! processes:                                        # started in order, ended in reverse
//!   - { name: nginx, run: [nginx, -p, "@dir@", -c, nginx.conf], env: {}, ready: "text in its output" }
//! url: "http://127.0.0.1:@port:http@"
//! token: "@token@"                                  # if it asks for one
//! model: perf-model
//! ```
//!
//! Everything happens in a directory of its own, `@dir@`. `@bin@` is the directory of this program, `@provider@` the
//! provider as `HOST:PORT`, `@port:NAME@` a free port, the same wherever the name appears.

mod launch;
mod template;

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, ensure};
use serde::Deserialize;

pub use launch::{Place, Running};
pub(crate) use launch::{end, on_path};
pub use template::{Template, TemplateError};

/// A subject as its file describes it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Subject {
    /// Its name in reports.
    pub name: String,
    /// Programs it needs, by name, and how to get them.
    #[serde(default)]
    pub needs: BTreeMap<String, String>,
    /// Commands that are run to their end first.
    #[serde(default)]
    pub setup: Vec<Step>,
    /// Files, by name, written after the setup.
    #[serde(default)]
    pub files: BTreeMap<String, String>,
    /// Its processes. None: the provider itself is measured.
    #[serde(default)]
    pub processes: Vec<ProcessSpec>,
    /// Where clients connect.
    pub url: String,
    /// The bearer token.
    #[serde(default)]
    pub token: Option<String>,
    /// The model that is asked for.
    #[serde(default = "default_model")]
    pub model: String,
}

/// A command of the setup.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// Program and arguments.
    pub run: Vec<String>,
    /// Names for words of its output: each is the word that follows the given text.
    #[serde(default)]
    pub take: BTreeMap<String, String>,
}

/// One process.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProcessSpec {
    /// Its name in reports.
    pub name: String,
    /// Program and arguments.
    pub run: Vec<String>,
    /// Environment variables set for it.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// The next process is started when this text has appeared in the output of this one.
    #[serde(default)]
    pub ready: Option<String>,
}

fn default_model() -> String {
    "perf-model".to_owned()
}

impl Subject {
    /// Reads a subject's file.
    ///
    /// # Errors
    /// The file cannot be read or is not a subject.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
        Self::parse(&text).with_context(|| path.display().to_string())
    }

    /// Reads a subject's text.
    ///
    /// # Errors
    /// It is not a subject.
    pub fn parse(text: &str) -> anyhow::Result<Self> {
        let subject: Self = serde_saphyr::from_str(text).context("not a subject")?;
        ensure!(!subject.name.is_empty(), "a subject needs a name");
        let commands = subject.setup.iter().map(|step| &step.run);
        for run in commands.chain(subject.processes.iter().map(|process| &process.run)) {
            ensure!(!run.is_empty(), "a command without a program");
        }
        for (index, process) in subject.processes.iter().enumerate() {
            let same = |other: &ProcessSpec| other.name == process.name;
            let before = subject.processes.iter().take(index);
            ensure!(!before.into_iter().any(same), "two processes are called {}", process.name);
        }
        Ok(subject)
    }

    /// Whether it is the provider itself: nothing stands between.
    #[must_use]
    pub fn is_direct(&self) -> bool {
        self.processes.is_empty()
    }

    /// Its command lines, for a report.
    #[must_use]
    pub fn commands(&self) -> Vec<String> {
        let env = |process: &ProcessSpec| -> String {
            process.env.iter().map(|(name, value)| format!("{name}={value} ")).collect()
        };
        let setup = self.setup.iter().map(|step| step.run.join(" "));
        let processes = self.processes.iter().map(|process| env(process) + &process.run.join(" "));
        setup.chain(processes).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_committed_subject_is_one() {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("subjects");
        let mut names = Vec::new();
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let subject = Subject::read(&path).unwrap();
            assert_eq!(
                path.file_stem().unwrap().to_str(),
                Some(subject.name.as_str()),
                "name and file differ"
            );
            names.push(subject.name);
        }
        for name in ["direct", "nginx", "ours"] {
            assert!(names.iter().any(|found| found == name), "{name} is missing: {names:?}");
        }
    }

    #[test]
    fn mistakes_in_a_file_are_errors() {
        for text in [
            "name: a",
            "name: ''\nurl: x",
            "name: a\nurl: x\nprocess: []",
            "name: a\nurl: x\nprocesses: [{ name: p, run: [] }]",
            "name: a\nurl: x\nprocesses: [{ name: p, run: [a] }, { name: p, run: [b] }]",
        ] {
            assert!(Subject::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_subject_without_processes_is_the_provider_itself() {
        let direct = Subject::parse("name: direct\nurl: http://@provider@").unwrap();
        assert!(direct.is_direct() && direct.commands().is_empty());
        assert_eq!(direct.model, "perf-model");
    }
}
