//! The flight recorder: what went into a machine, and what it made of it, to be looked at and run again elsewhere.
//!
//! | Module | Owns |
//! |---|---|
//! | `recorder` | [`Recorder`]: a machine that remembers its last inputs |
//! | `dump` | [`Dump`], and its form as JSON lines |
//! | `replay` | [`Recording`], a dump that was read; [`replay()`] |
//! | `digest` | a number for a list of effects that is the same on every build |
//!
//! # Format
//!
//! JSON lines. The first is a header, the second the machine at the beginning, each further one an input:
//!
//! ```text
//! {"format":"iop-control-inputs","format_version":2,"version":"0.1.0","commit":"5a5f777","first_input":20000}
//! {"checkpoint":{…}}
//! {"at":1700000000,"event":{"Input":{"Admit":{…}}},"digest":"9b1c7d3a00f2e4c5"}
//! {"at":1700000001,"event":"Timeout","digest":"0000000000000000"}
//! ```
//!
//! `at` is the moment handed in, in nanoseconds; `digest` is of the effects that came out. Maps whose keys are no strings
//! are arrays of pairs.

mod digest;
mod dump;
mod recorder;
mod replay;

pub use dump::{Dump, DumpError};
pub use recorder::{Build, Event, Record, Recorder};
pub use replay::{Difference, Recording, Replayed, replay};
