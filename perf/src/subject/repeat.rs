//! Repeats of a subject's file written out: 64 Nodes are one entry with a count, not 64. Pure.

use super::{ProcessSpec, Step, Subject};

/// What stands for the number of a repeat, from 1 on.
const INDEX: &str = "@i@";
/// Between a process's name and its number: `node#3`.
const NUMBER: char = '#';

/// The name that a process and its repeats have in common: `node` of `node#3`.
#[must_use]
pub fn group(name: &str) -> &str {
    name.split_once(NUMBER).map_or(name, |(group, _)| group)
}

/// The subject with every count written out and every named repeat put into its files.
pub(super) fn expand(subject: &Subject) -> Subject {
    let mut whole = subject.clone();
    whole.setup = subject.setup.iter().flat_map(steps).collect();
    whole.processes = subject.processes.iter().flat_map(processes).collect();
    for text in whole.files.values_mut() {
        for (name, repeat) in &subject.repeat {
            let texts: String = (1..=repeat.count).map(|index| number(&repeat.text, index)).collect();
            *text = text.replace(&format!("@{name}@"), &texts);
        }
    }
    whole.repeat.clear();
    whole
}

fn steps(step: &Step) -> Vec<Step> {
    let Some(count) = step.count else { return vec![step.clone()] };
    (1..=count).map(|index| Step { run: numbers(&step.run, index), count: None, ..step.clone() }).collect()
}

fn processes(process: &ProcessSpec) -> Vec<ProcessSpec> {
    let Some(count) = process.count else { return vec![process.clone()] };
    let one = |index| ProcessSpec {
        name: format!("{}{NUMBER}{index}", process.name),
        run: numbers(&process.run, index),
        env: process.env.iter().map(|(name, value)| (name.clone(), number(value, index))).collect(),
        ready: process.ready.clone(),
        count: None,
    };
    (1..=count).map(one).collect()
}

fn numbers(texts: &[String], index: u32) -> Vec<String> {
    texts.iter().map(|text| number(text, index)).collect()
}

fn number(text: &str, index: u32) -> String {
    text.replace(INDEX, &index.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_makes_numbered_steps_processes_and_texts() {
        let text = "name: a\nurl: x\nsetup: [{ run: [make, 'n@i@'], count: 2 }, { run: [one] }]\n\
                    repeat: { list: { count: 3, text: 'n@i@ @dir@, ' } }\nfiles: { f: '[@list@]' }\n\
                    processes: [{ name: edge, run: [e] }, { name: node, run: [n, '@i@'], env: { N: 'x@i@' }, count: 2 }]";
        let whole = expand(&Subject::parse(text).unwrap());
        let runs: Vec<String> = whole.setup.iter().map(|step| step.run.join(" ")).collect();
        assert_eq!(runs, ["make n1", "make n2", "one"]);
        assert_eq!(whole.files["f"], "[n1 @dir@, n2 @dir@, n3 @dir@, ]");
        let names: Vec<&str> = whole.processes.iter().map(|process| process.name.as_str()).collect();
        assert_eq!(names, ["edge", "node#1", "node#2"]);
        assert_eq!(
            (whole.processes[2].run.join(" "), whole.processes[2].env["N"].as_str()),
            ("n 2".to_owned(), "x2")
        );
        assert_eq!((group("node#2"), group("edge")), ("node", "edge"));
    }

    #[test]
    fn what_has_no_count_stays_as_it_is() {
        let subject = Subject::parse("name: a\nurl: x\nprocesses: [{ name: p, run: ['@i@'] }]").unwrap();
        assert_eq!(expand(&subject), subject);
    }
}
