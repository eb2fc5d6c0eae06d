//! Event lists as files: JSON Lines, the first configuration, then an input a line.

use std::{
    fs,
    io::{self, BufRead, Write},
    path::Path,
    sync::Arc,
};

use control::{config::PoolConfig, input::Input};
use serde::{Deserialize, Serialize};

use crate::{
    invariants::Broken,
    judge::{Depth, Judge},
    trace::{Step, Trace, guarded},
};

#[derive(Serialize, Deserialize)]
struct Line {
    at: control::input::Moment,
    input: Option<Input>,
}

/// Writes a list.
///
/// # Errors
/// The file cannot be written.
pub fn write(file: &Path, trace: &Trace) -> io::Result<()> {
    if let Some(directory) = file.parent() {
        fs::create_dir_all(directory)?;
    }
    let mut out = io::BufWriter::new(fs::File::create(file)?);
    serde_json::to_writer(&mut out, &trace.config)?;
    for step in &trace.steps {
        writeln!(out)?;
        serde_json::to_writer(&mut out, &Line { at: step.at, input: step.input.clone() })?;
    }
    writeln!(out)?;
    out.flush()
}

/// Reads a list.
///
/// # Errors
/// It cannot be read, or a line is not what it should be, which is named.
pub fn read(file: &Path) -> Result<Trace, String> {
    let text = fs::File::open(file).map_err(|error| error.to_string())?;
    let mut lines = io::BufReader::new(text).lines().enumerate();
    let mut next = || -> Option<Result<(usize, String), String>> {
        let (number, line) = lines.next()?;
        Some(line.map(|line| (number + 1, line)).map_err(|error| error.to_string()))
    };
    let said = |number: usize, error: serde_json::Error| format!("line {number}: {error}");
    let (number, first) = next().ok_or("it is empty")??;
    let config: PoolConfig = serde_json::from_str(&first).map_err(|error| said(number, error))?;
    let mut steps = Vec::new();
    while let Some(line) = next() {
        let (number, line) = line?;
        let Line { at, input } = serde_json::from_str(&line).map_err(|error| said(number, error))?;
        steps.push(Step { at, input });
    }
    Ok(Trace { config: Arc::new(config), steps })
}

/// Judges a list step by step, and prints each with what came of it.
fn tell(trace: &Trace) -> Result<(), Broken> {
    guarded(|| {
        let mut judge = Judge::new(&trace.config, Depth::ALWAYS);
        for (number, step) in trace.steps.iter().enumerate() {
            let seconds = step.at.0 as f64 / 1e9;
            match &step.input {
                Some(input) => println!("{:>4} {seconds:>12.6} {input:?}", number + 1),
                None => println!("{:>4} {seconds:>12.6} time passes", number + 1),
            }
            let judged = judge.step(step.at, step.input.as_ref());
            for effect in &judge.effects {
                println!("{:20} => {effect:?}", "");
            }
            judged?;
        }
        Ok(())
    })
}

/// Prints a list that breaks a check.
pub fn show(trace: &Trace) {
    println!("     configuration: {:?}", trace.config);
    if let Err(broken) = tell(trace) {
        println!("     {broken}");
    }
}

/// Steps through a file; whether every check holds.
///
/// # Errors
/// It cannot be read.
pub fn replay(file: &Path) -> Result<bool, String> {
    let trace = read(file)?;
    let told = tell(&trace);
    match &told {
        Ok(()) => println!("every check holds in all {} steps", trace.steps.len()),
        Err(broken) => println!("broken: {broken}"),
    }
    Ok(told.is_ok())
}
