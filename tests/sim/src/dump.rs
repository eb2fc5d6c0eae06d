//! Event lists as files, in the one form that `control::record` has: what a simulation writes, an Edge can be asked to run
//! again, and what an Edge has recorded is stepped through here.

use std::{
    fs,
    io::{self, Write},
    path::Path,
    sync::Arc,
};

use control::{
    Machine,
    config::PoolConfig,
    input::Moment,
    record::{Build, Dump, Event, Recorder, Recording},
};

use serde::Deserialize;

use crate::{
    invariants::{Broken, Checked},
    judge::{Depth, Judge},
    trace::{Step, Trace, guarded},
};

/// One event, without what once came of it.
#[derive(Deserialize)]
struct Line {
    at: Moment,
    event: Event,
}

/// A file that was read.
pub enum Loaded {
    /// From the machine's beginning: everything can judge it.
    Whole(Trace),
    /// From somewhere on: the machine as it was then, and no more than its audit.
    Part(Box<Recording>),
}

/// Writes a list.
///
/// # Errors
/// The file cannot be written.
pub fn write(file: &Path, trace: &Trace, commit: &str) -> io::Result<()> {
    if let Some(directory) = file.parent() {
        fs::create_dir_all(directory)?;
    }
    let build = Build { version: env!("CARGO_PKG_VERSION").into(), commit: commit.into() };
    let new = || Recorder::new(Machine::new(Arc::clone(&trace.config)), build.clone());
    let mut recorder = new();
    // The last step may be one that the machine does not survive.
    let _survived = guarded(|| {
        for step in &trace.steps {
            match &step.input {
                Some(input) => recorder.handle(step.at, input.clone()),
                None => recorder.handle_timeout(step.at),
            }
            while recorder.poll_effect().is_some() {}
        }
        Ok(())
    });
    let recorded: Vec<String> = recorder.dump().lines().collect();
    // A recorder forgets the oldest of many.
    let whole = recorded.len() <= trace.steps.len() + 2 && recorded[0].contains("\"first_input\":0");
    let lines = if whole { recorded } else { new().dump().lines().collect() };
    let mut out = io::BufWriter::new(fs::File::create(file)?);
    for line in &lines {
        writeln!(out, "{line}")?;
    }
    for step in trace.steps.iter().skip(lines.len() - 2) {
        let event = step.input.clone().map_or(Event::Timeout, Event::Input);
        let event = serde_json::to_string(&event)?;
        writeln!(out, "{{\"at\":{},\"event\":{event},\"digest\":\"{:016x}\"}}", step.at.0, 0)?;
    }
    out.flush()
}

/// Reads a list.
///
/// # Errors
/// It cannot be read, or a line is not what it should be, which is named.
pub fn read(file: &Path) -> Result<Loaded, String> {
    let text = fs::read_to_string(file).map_err(|error| error.to_string())?;
    let said = |line: usize, error: serde_json::Error| format!("line {line}: {error}");
    let header: serde_json::Value =
        serde_json::from_str(text.lines().next().unwrap_or_default()).map_err(|error| said(1, error))?;
    if header["first_input"] != 0 {
        let recording = Dump::read(&text).map_err(|error| error.to_string())?;
        return Ok(Loaded::Part(Box::new(recording)));
    }
    // A machine that was told nothing yet is its configuration; the rest of it may have been another build's.
    let checkpoint = text.lines().nth(1).unwrap_or_default();
    let checkpoint: serde_json::Value = serde_json::from_str(checkpoint).map_err(|error| said(2, error))?;
    let config = checkpoint["checkpoint"]["config"].clone();
    let config: PoolConfig = serde_json::from_value(config).map_err(|error| said(2, error))?;
    let mut steps = Vec::new();
    for (line, text) in (1..).zip(text.lines()).skip(2) {
        let Line { at, event } = serde_json::from_str(text).map_err(|error| said(line, error))?;
        let input = match event {
            Event::Input(input) => Some(input),
            Event::Timeout => None,
        };
        steps.push(Step { at, input });
    }
    Ok(Loaded::Whole(Trace { config: Arc::new(config), steps }))
}

fn print(number: usize, at: Moment, event: &dyn std::fmt::Debug) {
    println!("{number:>5} {:>14.6} {event:?}", at.0 as f64 / 1e9);
}

fn print_effects(effects: &[control::effect::Effect]) {
    for effect in effects {
        println!("{:21} => {effect:?}", "");
    }
}

/// Judges a list step by step, and prints each with what came of it.
fn tell(trace: &Trace) -> Checked {
    guarded(|| {
        let mut judge = Judge::new(&trace.config, Depth::ALWAYS);
        for (number, step) in (1..).zip(&trace.steps) {
            match &step.input {
                Some(input) => print(number, step.at, input),
                None => print(number, step.at, &Event::Timeout),
            }
            let judged = judge.step(step.at, step.input.as_ref());
            print_effects(&judge.effects);
            judged?;
        }
        Ok(())
    })
}

/// The same for a machine whose beginning is not known.
fn tell_part(recording: &Recording) -> Checked {
    guarded(|| {
        let mut machine = recording.machine.clone();
        for (number, record) in (1..).zip(&recording.records) {
            print(number, record.at, &record.event);
            match &record.event {
                Event::Input(input) => machine.handle(record.at, input.clone()),
                Event::Timeout => machine.handle_timeout(record.at),
            }
            let effects: Vec<_> = std::iter::from_fn(|| machine.poll_effect()).collect();
            print_effects(&effects);
            machine.audit().map_err(|error| Broken { check: "audit", detail: error.to_string() })?;
        }
        Ok(())
    })
}

/// Prints a list that breaks a check.
pub fn show(trace: &Trace) {
    println!("      configuration: {:?}", trace.config);
    if let Err(broken) = tell(trace) {
        println!("      {broken}");
    }
}

/// Steps through a file; whether every check holds and, of a part, whether the same came of it as was recorded.
///
/// # Errors
/// It cannot be read.
pub fn replay(file: &Path) -> Result<bool, String> {
    let (told, steps) = match read(file)? {
        Loaded::Whole(trace) => (tell(&trace), trace.steps.len()),
        Loaded::Part(recording) => {
            let (told, steps) = (tell_part(&recording), recording.records.len());
            if let Some(difference) = recording.replay().difference {
                println!("line {} gave other effects when it was recorded", difference.line);
                return Ok(false);
            }
            (told, steps)
        }
    };
    match &told {
        Ok(()) => println!("every check holds in all {steps} steps"),
        Err(broken) => println!("broken: {broken}"),
    }
    Ok(told.is_ok())
}
