//! One waiting request.

use core::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{
    input::{Admit, Moment},
    registry::Wish,
};

/// Place in the line, strictly rising in order of first admission. A re-admitted request keeps its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct TicketNo(pub(crate) u64);

/// What a request carries from its first admission to its end, through every grant and re-admission.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Ticket {
    pub(crate) number: TicketNo,
    pub(crate) admit: Admit,
    /// First admission; the bound of its wait runs from here (POL-5).
    pub(crate) arrived: Moment,
    /// Time spent in the queue until the last grant.
    pub(crate) waited: Duration,
    /// Grants so far.
    pub(crate) attempts: u32,
    /// Whether its one re-admission after `busy` is used up (GAT-2).
    pub(crate) busy: bool,
}

/// A ticket in the queue.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Waiting {
    pub(crate) ticket: Ticket,
    /// What it asks for, resolved against the configuration in force.
    pub(crate) wish: Wish,
    /// Begin of this stay in the queue.
    pub(crate) since: Moment,
    /// Its timer's deadline, if it has one.
    pub(crate) deadline: Option<Moment>,
}
