//! Recovery: the one owner of a request's liveness (REC-1).
//!
//! An [`Owner`] lives as long as its request. It is told of each attempt that is sent, of the first content byte that the
//! client gets ([`Owner::commit`]) and of the request's end ([`Owner::close`]). When something goes wrong with the attempt,
//! [`Owner::judge`] says whether another may follow it, and by which [`Strategy`]. It sends nothing and selects nothing:
//! the next attempt is an admission like any other, with the providers of [`Owner::avoid`] (POL-8).
//!
//! | State | Left by | What may follow a failure |
//! |---|---|---|
//! | nothing sent | [`Owner::dispatched`] | nothing |
//! | running, before content | a failure; [`Owner::commit`] | any strategy, if every guard lets it pass (REC-5) |
//! | running, after content | a failure | a continuation alone (REC-2) |
//! | closed | never | nothing |
//!
//! | Module | Owns |
//! |---|---|
//! | `owner` | the machine: the guards and their order |
//! | `evidence` | what can be said against an attempt |
//! | `class` | the table of the provider's errors (SEG-8) |
//! | `verdict` | what follows, and the closed set of reasons why nothing does |
//! | `budget` | how often, by request and by strategy (SEG-1) |
//! | `avoidance` | who failed this request, and who may have it back (REC-4) |

mod avoidance;
mod budget;
mod class;
mod evidence;
mod owner;
#[cfg(test)]
mod tests;
mod verdict;

pub use class::ErrorClass;
pub use evidence::{Attempt, Category, Evidence, Fence, Snapshot};
pub use owner::{Limits, Owner};
pub use verdict::{Ineligible, Strategy, Verdict};
