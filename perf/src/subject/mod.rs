//! A subject: something that stands between clients and the provider and is measured. A YAML file says how it is set up,
//! started and known to be ready; `perf/subjects/` holds those that are measured here.
//!
//! ```yaml
//! name: nginx
//! needs: { nginx: apt-get install nginx-light }     # programs, and how to get them
//! version: [nginx, -v]                              # prints what is measured; its first line goes into reports
//! setup:                                            # commands run to their end, in order
//!   - run: [some-tool, --out, identity]
//!     take: { token: "token: " }                    # @token@ is the word that follows this text in what it prints
//!     count: 3                                      # as often, with @i@ from 1 to 3
//! repeat: { list: { count: 3, text: "n@i@, " } }    # in files, @list@ is this text three times
//! files: { nginx.conf: "listen 127.0.0.1:@port:http@; …" }   # written after setup
//! processes:                                        # started in order, ended in reverse
//!   - { name: nginx, run: [nginx, -p, "@dir@", -c, nginx.conf], env: {}, ready: "text in its output" }
//!   # `count: 3` starts three, with @i@ from 1 to 3, called `nginx#1` to `nginx#3`; reports add them up
//! url: "http://127.0.0.1:@port:http@"
//! token: "@token@"                                  # if it asks for one
//! model: perf-model
//! ```
//!
//! Everything happens in a directory of its own, `@dir@`. `@bin@` is the directory of this program, `@peers@` the one of
//! other gateways that `cargo xtask peers` fills (their programs in its `bin`), `@provider@` the provider as `HOST:PORT`,
//! `@provider:host@` and `@provider:port@` its parts, `@port:NAME@` a free port, the same wherever the name appears.

mod launch;
mod repeat;
mod template;

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, ensure};
use serde::Deserialize;

pub use launch::{Place, Running};
pub(crate) use launch::{end, on_path};
pub use repeat::group;
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
    /// A command whose first line says which version is measured.
    #[serde(default)]
    pub version: Vec<String>,
    /// Commands that are run to their end first.
    #[serde(default)]
    pub setup: Vec<Step>,
    /// Files, by name, written after the setup.
    #[serde(default)]
    pub files: BTreeMap<String, String>,
    /// Texts for the files that appear in them several times, by name.
    #[serde(default)]
    pub repeat: BTreeMap<String, Repeat>,
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
    /// The text of its file.
    #[serde(skip)]
    pub source: String,
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
    /// How often it is run, `@i@` being the number; once if not given.
    #[serde(default)]
    pub count: Option<u32>,
}

/// A text that is repeated.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Repeat {
    /// How often.
    pub count: u32,
    /// The text, `@i@` being the number.
    pub text: String,
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
    /// How many are started, `@i@` being the number; one if not given.
    #[serde(default)]
    pub count: Option<u32>,
}

/// The most repeats of one entry.
const COUNT_MAX: u32 = 1024;

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
        let subject = Self { source: text.to_owned(), ..subject };
        ensure!(!subject.name.is_empty(), "a subject needs a name");
        let commands = subject.setup.iter().map(|step| &step.run);
        for run in commands.chain(subject.processes.iter().map(|process| &process.run)) {
            ensure!(!run.is_empty(), "a command without a program");
        }
        let counts = subject.setup.iter().filter_map(|step| step.count);
        let counts = counts.chain(subject.processes.iter().filter_map(|process| process.count));
        for count in counts.chain(subject.repeat.values().map(|repeat| repeat.count)) {
            ensure!((1..=COUNT_MAX).contains(&count), "a count is 1 to {COUNT_MAX}");
        }
        for (index, process) in subject.processes.iter().enumerate() {
            let same = |other: &ProcessSpec| other.name == process.name;
            let before = subject.processes.iter().take(index);
            ensure!(!before.into_iter().any(same), "two processes are called {}", process.name);
            ensure!(
                group(&process.name) == process.name,
                "{}: # numbers the processes of a count",
                process.name
            );
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
        let times = |count: Option<u32>| count.map_or_else(String::new, |count| format!("{count} x "));
        let setup = self.setup.iter().map(|step| times(step.count) + &step.run.join(" "));
        let processes = self.processes.iter();
        let processes = processes.map(|p| times(p.count) + &env(p) + &p.run.join(" "));
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
        for name in ["direct", "nginx", "ours", "ours-64nodes", "envoy-rt", "nginx-rathole", "vllm-router"] {
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
            "name: a\nurl: x\nprocesses: [{ name: p, run: [a], count: 0 }]",
            "name: a\nurl: x\nprocesses: [{ name: 'p#1', run: [a] }]",
            "name: a\nurl: x\nrepeat: { l: { count: 2000, text: a } }",
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
