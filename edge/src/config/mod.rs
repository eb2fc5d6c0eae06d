//! The configuration of an Edge, in two stages: what was typed ([`typed`]) and what it means ([`Settings`]).
//!
//! ```text
//!  file ──parse──► typed::EdgeFile ──resolve──► Settings (immutable, shared by Arc)
//!           │                         │
//!           ├ the first syntax error  │
//!           └ every unknown key, duplicate key, value of a wrong kind, and every wrong value: together, each with its place
//! ```
//!
//! Nothing else reads the file, and no request can change what stands here. The names of keys are the contract; they are
//! listed in `docs/configuration.md`.

pub mod capability;
pub mod catalog;
pub mod class;
pub mod dialect;
pub mod effective;
pub mod error;
pub mod expand;
pub mod gate;
pub mod generation;
pub mod place;
pub mod schema;
pub mod secret;
pub mod settings;
pub mod typed;
pub mod url;

mod nearest;
mod parse;
mod resolve;
mod shape;
mod tree;
mod unavailable;

#[cfg(test)]
mod tests;

use std::{fs::File, io::Read, path::Path};

pub use self::{
    dialect::{ChatDialect, EffortWords},
    effective::Effective,
    error::{LoadError, LoadErrors},
    generation::GenerationFields,
    place::Place,
    settings::{GenerationPolicy, Settings, TlsFiles},
    tree::FILE_BYTES_MAX,
};
use self::{error::Report, resolve::context::Context};

/// Most shards of one process.
pub const SHARDS_MAX: usize = 64;
/// Most slots of all providers together: every lease that can exist has its place in tables of fixed size.
pub const SLOTS_MAX: i64 = 32_768;
/// Generation of the first configuration of a process.
pub const FIRST_GENERATION: u64 = 1;

/// Loads, checks and completes a configuration file, with the process's own environment.
///
/// # Errors
/// [`LoadErrors`] holds everything that is wrong with the file, or why it cannot be read.
pub fn load(path: &Path) -> Result<Settings, LoadErrors> {
    load_with(path, &|name| std::env::var(name).ok())
}

/// As [`load`], with another environment.
///
/// # Errors
/// As [`load`].
pub fn load_with(path: &Path, env: &dyn Fn(&str) -> Option<String>) -> Result<Settings, LoadErrors> {
    load_text(&read(path)?, path, env)
}

/// The configuration of a file as it counts, with the process's own environment, to be shown.
///
/// # Errors
/// As [`load`].
pub fn effective(path: &Path) -> Result<Effective, LoadErrors> {
    Effective::of_text(&read(path)?, path, &|name| std::env::var(name).ok())
}

/// The text of a file, within the bounds.
fn read(path: &Path) -> Result<String, LoadErrors> {
    let whole = |message: String| one_error(path, Place::default(), message);
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(FILE_BYTES_MAX as u64 + 1).read_to_end(&mut bytes))
        .map_err(|error| whole(format!("cannot read the file: {error}")))?;
    if bytes.len() > FILE_BYTES_MAX {
        return Err(whole(format!("expected a file of at most {FILE_BYTES_MAX} bytes")));
    }
    String::from_utf8(bytes).map_err(|error| {
        let valid = error.utf8_error().valid_up_to();
        let bytes = error.into_bytes();
        let before = bytes.get(..valid).unwrap_or_default();
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        let at = Place { line: u32::try_from(line).unwrap_or(u32::MAX), column: 1 };
        one_error(path, at, "expected UTF-8 text".to_owned())
    })
}

/// As [`load_with`], for a text that stands, or could stand, in the file `path`.
///
/// # Errors
/// As [`load`].
pub fn load_text(
    text: &str,
    path: &Path,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<Settings, LoadErrors> {
    let mut report = Report::default();
    let file = parse::parse(text, &mut report).map_err(|error| LoadErrors {
        file: path.to_owned(),
        errors: vec![error],
        dropped: 0,
    })?;
    let directory = path.parent().unwrap_or_else(|| Path::new(""));
    let context = Context { report, env, directory };
    resolve::resolve(context, &file, path.to_owned(), FIRST_GENERATION)
}

fn one_error(path: &Path, at: Place, message: String) -> LoadErrors {
    LoadErrors {
        file: path.to_owned(),
        errors: vec![LoadError { at, path: String::new(), message }],
        dropped: 0,
    }
}
