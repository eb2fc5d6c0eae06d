//! What the providers of one run do, drawn from its seed.

use node::{health::ProviderHealth, run::watchdog::Progress};
use proto::message::{ErrorKind, ExecutionError, RunEventKind, Usage};

use crate::rng::Rng;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;
/// Close grace and probe time, as the ledger has them (STL-4).
pub const GRACE: u64 = 5 * SECOND;

/// What an execution's answer is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// An event stream through a tunnel.
    Events,
    /// Bytes through a tunnel.
    Bytes,
    /// Events of a normalized run.
    Run,
}

/// How a provider leaves a request that was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaves {
    /// It closes after so many nanoseconds.
    After(u64),
    /// It goes on sending, which shows after so many nanoseconds, and is reset.
    SendsUntil(u64),
    /// It does nothing.
    Never,
}

/// One execution's provider.
#[derive(Clone, Debug)]
pub struct Script {
    /// What it answers.
    pub shape: Shape,
    /// Mean nanoseconds between two pieces.
    pub gap: u64,
    /// Chance that a piece is the last thing it says, though nothing is over.
    pub falls_silent: f64,
    /// Chance that a piece is the end.
    pub ends: f64,
    /// Chance that a piece is nothing for the client.
    pub idles: f64,
    /// Chance that the client takes nothing for a while behind a piece.
    pub blocks: f64,
    /// How it leaves.
    pub leaves: Leaves,
    /// What a probe finds, and after how long; `None` = it hangs.
    pub probe: (Option<ProviderHealth>, u64),
}

impl Script {
    /// One for a stall timeout of so many nanoseconds.
    pub fn draw(rng: &mut Rng, timeout: u64) -> Self {
        // Honest ones talk often, slow ones about as often as the timeout allows.
        let gap = *rng.pick(&[timeout / 20 + 1, timeout / 3 + 1, timeout, timeout * 3 / 2]);
        let delay = |rng: &mut Rng| match rng.below(6) {
            0 => 0,
            1 => GRACE,
            2 => GRACE - 1,
            3 => GRACE + 1,
            _ => rng.below(GRACE),
        };
        let leaves = match rng.below(8) {
            0 | 1 => Leaves::Never,
            2 => Leaves::SendsUntil(delay(rng)),
            3 => Leaves::After(GRACE + rng.below(60 * SECOND)),
            _ => Leaves::After(delay(rng)),
        };
        let health = match rng.below(5) {
            0 => None,
            1 => Some(ProviderHealth::Unavailable),
            2 => Some(ProviderHealth::Unknown),
            _ => Some(ProviderHealth::Available),
        };
        Self {
            shape: *rng.pick(&[Shape::Events, Shape::Bytes, Shape::Run]),
            gap,
            falls_silent: *rng.pick(&[0.0, 0.02, 0.3, 1.0]),
            ends: *rng.pick(&[0.0, 0.05, 0.2]),
            idles: *rng.pick(&[0.0, 0.2, 0.9]),
            blocks: *rng.pick(&[0.0, 0.0, 0.1, 0.4]),
            leaves,
            probe: (health, delay(rng)),
        }
    }
}

/// Lines and parts of lines of an event stream: the first ones are nothing by themselves.
const PIECES: [&[u8]; 16] = [
    b"",
    b"\n",
    b"\r\n",
    b": ping\n\n",
    b":\r",
    b": cut",
    b":",
    b"\r",
    b"data: x\n\n",
    b"data: : y",
    b"d",
    b": a\n\ndata: b\n",
    b"event: ping\r\n",
    b" more",
    b"x\n:",
    b"\n\nid",
];

/// The next piece of an event stream.
pub fn piece(rng: &mut Rng, idle: bool) -> &'static [u8] {
    let up_to = if idle { 8 } else { PIECES.len() };
    PIECES[rng.index(up_to)]
}

/// The next event of a normalized run, never a terminal.
pub fn event(rng: &mut Rng, idle: bool) -> RunEventKind {
    let delta = |text: &str, reasoning: &str| RunEventKind::Delta {
        text: text.to_owned(),
        reasoning: reasoning.to_owned(),
    };
    match rng.below(5) {
        _ if idle => delta("", ""),
        0 => RunEventKind::Start,
        1 => RunEventKind::Usage(Usage::default()),
        2 => delta("", "hm"),
        _ => delta("a", ""),
    }
}

/// A terminal of a normalized run, with whatever comes with it: none of it is progress.
pub fn terminal(rng: &mut Rng) -> RunEventKind {
    match rng.below(3) {
        0 => RunEventKind::Cancelled,
        1 => RunEventKind::Error(ExecutionError::new(ErrorKind::Connect, "no")),
        _ => RunEventKind::Complete { finish_reason: "stop".to_owned(), usage: Some(Usage::default()) },
    }
}

/// What the product takes it for.
pub fn progress_of(event: &RunEventKind) -> Progress {
    Progress::of_event(event)
}
