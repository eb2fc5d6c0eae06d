//! The runtime overlay: which providers their Node has found unavailable, and how they are asked again.
//!
//! [`evidence`] reads what a Node says and believes only what fits; [`Overlays`] remembers, for each provider and
//! generation, what was applied last, and plans the probes. It knows no timers, no slots and no connections' state:
//! `machine` tells it what is so, and does what it returns.

pub(crate) mod evidence;
mod health;
mod table;

pub(crate) use health::Overlay;
pub(crate) use table::{Command, Observed, Overlays};
