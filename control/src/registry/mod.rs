//! The registry: who owns which Node ID, and what the pool's providers can take.
//!
//! Three tables that do not know each other. [`Ownership`] decides about connections and generations; [`Pool`] counts
//! slots and finds candidates; [`Direct`] finds Nodes for direct routes. `machine` tells the others what the first decided.

mod bucket;
mod choice;
mod direct;
mod ownership;
mod pool;
mod provider;
mod rebuild;
mod retired;
mod served;
mod wish;

pub(crate) use choice::Choice;
pub(crate) use direct::Direct;
pub(crate) use ownership::{Owner, Ownership, Readied};
pub(crate) use pool::{Dispatch, Pool};
pub(crate) use provider::{Live, ProviderKey};
pub(crate) use wish::{Avoidance, GroupKey, Shape, Wish};
