//! The registry: who owns which Node ID, and what the pool's providers can take.
//!
//! Two tables that do not know each other. [`Ownership`] decides about connections and generations; [`Pool`] counts
//! slots and finds candidates. `machine` tells the second what the first decided.

mod bucket;
mod choice;
mod ownership;
mod pool;
mod provider;
mod rebuild;
mod retired;
mod served;
mod wish;

pub(crate) use choice::Choice;
pub(crate) use ownership::{Owner, Ownership, Readied};
pub(crate) use pool::Pool;
pub(crate) use provider::{Live, ProviderKey};
pub(crate) use wish::{Avoidance, GroupKey, Shape, Wish};
