//! The owner of a request's liveness under judgement: books of what the world has seen of one request, and the owner once
//! more, written for obviousness.
//!
//! A simulated request has a [`Watched`] instead of an owner: it asks the real one and holds each answer, and each thing that
//! the simulated Edge does with it, against what has happened before.
//!
//! | Check | What it says |
//! |---|---|
//! | R1 commit | at most one first content byte is committed, and none without its being the first |
//! | R2 bytes | the client gets the answer's bytes in order, each once, and from the attempt that runs now |
//! | R3 budget | never more recoveries than the request, or the strategy, may have (SEG-1); they are numbered without a gap |
//! | R4 over | once content went out a continuation alone (REC-2), once the request is over nothing, and one for one failure |
//! | R5 guards | no program, direct route, unconfirmed stall, run that may go on to cost, body that is not there or too large, and no error that another attempt does not mend (REC-5, REC-6, SEG-6) |
//! | R6 transport | the old transport is closed before a new attempt is asked for, with a cancel unless its run is fenced (REC-3) |
//! | R7 avoided | a provider that failed the request does not get it again, except as the rules say (REC-4, POL-8) |
//! | R8 once | a request ends once, and at the end of the world all have |
//! | R9 reference | the owner answers what the reference answers |

mod reference;
mod tally;

use std::{collections::BTreeMap, sync::Arc};

use control::{
    effect::ProviderHealth,
    input::{Avoided, LeaseId},
    limits::RECOVERIES_MAX,
    recovery::{Attempt, Category, ErrorClass, Evidence, Fence, Limits, Owner, Snapshot, Strategy, Verdict},
};

pub use self::{reference::Reference, tally::Tally};
use crate::invariants::{Broken, Checked, hold};

/// One request's owner, with the books.
#[derive(Debug)]
pub struct Watched {
    owner: Owner,
    reference: Reference,
    limits: Limits,
    /// The lease of the attempt that runs, until its transport is closed.
    open: Option<LeaseId>,
    running: Option<Attempt>,
    /// Bytes of the answer that the client has.
    got: u64,
    commits: u32,
    attempts: u32,
    recovered: [u32; Strategy::ALL.len()],
    /// Who failed it, and whether it may have it back.
    failed: BTreeMap<Arc<str>, bool>,
    in_band: bool,
    closed: bool,
    ended: bool,
}

/// What the transport of an old attempt owes after a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recovery {
    /// How the next attempt is made.
    pub strategy: Strategy,
    /// Whether the old run is cancelled.
    pub cancel_old: bool,
}

impl Watched {
    /// Of a request that has just come.
    pub fn new(limits: Limits) -> Self {
        Self {
            owner: Owner::new(limits),
            reference: Reference::new(limits),
            limits,
            open: None,
            running: None,
            got: 0,
            commits: 0,
            attempts: 0,
            recovered: [0; Strategy::ALL.len()],
            failed: BTreeMap::new(),
            in_band: false,
            closed: false,
            ended: false,
        }
    }

    /// Bytes of the answer that the client has: where a continuation goes on.
    pub fn got(&self) -> u64 {
        self.got
    }

    /// An attempt is sent under a lease.
    ///
    /// # Errors
    /// The first check that does not hold.
    pub fn dispatched(&mut self, attempt: Attempt, lease: LeaseId, tally: &mut Tally) -> Checked {
        hold!("R4 over", !self.closed, "{lease:?} is sent for a request that is over");
        hold!("R6 transport", self.open.is_none(), "{lease:?} is sent while {:?} is open", self.open);
        let failed = self.failed.get(&attempt.provider);
        hold!(
            "R7 avoided",
            failed.is_none_or(|may_return| *may_return),
            "{} failed the request and gets it again",
            attempt.provider
        );
        tally.fallbacks += u64::from(failed.is_some());
        tally.attempts += 1;
        self.attempts += 1;
        self.open = Some(lease);
        self.running = Some(attempt.clone());
        self.reference.dispatched(attempt.clone());
        self.owner.dispatched(attempt);
        hold!("R9 reference", self.owner.attempts() == self.attempts, "{:?}", self.owner);
        Ok(())
    }

    /// The transport of an attempt is closed.
    pub fn left(&mut self, lease: LeaseId) {
        if self.open == Some(lease) {
            self.open = None;
        }
    }

    /// Content of the attempt that runs goes to the client: the byte at this place of the answer.
    ///
    /// # Errors
    /// The first check that does not hold.
    pub fn content(&mut self, lease: LeaseId, at: u64, tally: &mut Tally) -> Checked {
        hold!("R2 bytes", !self.closed, "content for a client that is gone");
        hold!("R2 bytes", self.open == Some(lease), "of {lease:?} while {:?} runs", self.open);
        hold!("R2 bytes", at == self.got, "byte {at} comes as byte {}", self.got);
        let first = self.owner.commit();
        self.commits += u32::from(first);
        hold!("R1 commit", self.commits <= 1, "the first content byte came {} times", self.commits);
        hold!("R1 commit", first == (self.got == 0), "byte {at} was the first: {first}");
        hold!("R1 commit", self.owner.is_committed(), "{:?}", self.owner);
        tally.commits += u64::from(first);
        self.got += 1;
        self.reference.content();
        Ok(())
    }

    /// The request is over; the same may be said twice.
    pub fn close(&mut self) {
        self.closed = true;
        self.owner.close();
        self.reference.close();
    }

    /// Its client has the last of it.
    ///
    /// # Errors
    /// It ended before.
    pub fn end(&mut self) -> Checked {
        hold!("R8 once", !std::mem::replace(&mut self.ended, true), "it ends again: {self:?}");
        Ok(())
    }

    /// Asks the owner.
    ///
    /// # Errors
    /// The first check that does not hold.
    pub fn judge(
        &mut self,
        evidence: &Evidence,
        snapshot: &Snapshot,
        tally: &mut Tally,
    ) -> Result<Option<Recovery>, Broken> {
        let verdict = self.owner.judge(evidence, snapshot);
        tally.judged(verdict, self.commits > 0);
        if let Verdict::Recover { strategy, ordinal, cancel_old } = verdict {
            self.may_recover(evidence, snapshot, strategy)?;
            let fenced = matches!(evidence, Evidence::Stall { .. } | Evidence::NodeLost);
            hold!("R6 transport", cancel_old != fenced, "{evidence:?} says cancel: {cancel_old}");
            self.spend(strategy, ordinal)?;
            self.blame(evidence);
        }
        let expected = self.reference.judge(evidence, snapshot);
        hold!(
            "R9 reference",
            verdict == expected,
            "{evidence:?}: {verdict:?}, the reference has {expected:?}"
        );
        hold!(
            "R9 reference",
            self.owner.last_strategy() == self.reference.last_strategy(),
            "{:?}",
            self.owner
        );
        Ok(match verdict {
            Verdict::Recover { strategy, cancel_old, .. } => Some(Recovery { strategy, cancel_old }),
            Verdict::Stay(_) => None,
        })
    }

    /// What the next admission avoids.
    ///
    /// # Errors
    /// The first check that does not hold.
    pub fn avoid(&self) -> Result<Vec<Avoided>, Broken> {
        hold!(
            "R6 transport",
            self.open.is_none(),
            "another attempt is asked for while {:?} is open",
            self.open
        );
        let avoid = self.owner.avoid();
        for (provider, may_return) in &self.failed {
            let told = avoid.iter().find(|it| it.provider == *provider);
            hold!(
                "R7 avoided",
                told.is_some_and(|it| it.allow_fallback == *may_return),
                "{provider} failed (may return: {may_return}), and the admission is told {told:?}"
            );
        }
        hold!("R7 avoided", avoid.len() == self.failed.len(), "{avoid:?}, failed: {:?}", self.failed);
        let expected = self.reference.avoid();
        hold!("R9 reference", avoid == expected, "avoids {avoid:?}, the reference {expected:?}");
        Ok(avoid)
    }

    /// Whether anything may follow at all, from the books alone.
    fn may_recover(&self, evidence: &Evidence, snapshot: &Snapshot, strategy: Strategy) -> Checked {
        hold!("R4 over", !self.closed, "{strategy:?} of a request that is over");
        hold!(
            "R4 over",
            self.got == 0 || strategy == Strategy::ContinuationRepair,
            "{strategy:?} although the client has {} bytes",
            self.got
        );
        let Some(attempt) = &self.running else {
            crate::invariants::broken!("R4 over", "{strategy:?} of nothing that runs");
        };
        hold!("R5 guards", !attempt.direct, "a direct route is recovered");
        hold!("R5 guards", attempt.category != Category::Cli, "a program is run again");
        hold!("R5 guards", snapshot.kept, "there is nothing to send again");
        hold!("R5 guards", snapshot.bytes <= self.limits.snapshot_bytes_max, "{} bytes", snapshot.bytes);
        let paid = attempt.category == Category::Api;
        match evidence {
            Evidence::Stall { handoff, fence } => {
                hold!("R5 guards", handoff.is_some(), "a stall that the Edge has not confirmed is replayed");
                hold!(
                    "R5 guards",
                    !paid || *fence == Fence::Confirmed,
                    "what may go on to cost is sent again"
                );
            }
            Evidence::NodeLost => hold!("R5 guards", !paid, "what was lost and may have cost is sent again"),
            Evidence::ProviderError { class } => {
                use ErrorClass::{Backpressure, Client, Credential, InBand};
                hold!(
                    "R5 guards",
                    !matches!(class, Backpressure | Client | Credential),
                    "{class:?} is replayed"
                );
                hold!("R5 guards", *class != InBand || !self.in_band, "{class:?} is replayed again");
            }
            Evidence::Repetition => {
                hold!("R5 guards", snapshot.continuation.is_ok(), "{:?} is continued", snapshot.continuation);
            }
            Evidence::SchemaMismatch => {}
        }
        let expected = match evidence {
            Evidence::Repetition => Strategy::ContinuationRepair,
            Evidence::SchemaMismatch => Strategy::SchemaRepair,
            _ => Strategy::ExactReplay,
        };
        hold!("R5 guards", strategy == expected, "{strategy:?} of {evidence:?}");
        Ok(())
    }

    fn spend(&mut self, strategy: Strategy, ordinal: u32) -> Checked {
        let place = Strategy::ALL.iter().position(|it| *it == strategy).unwrap();
        self.recovered[place] += 1;
        let (all, of_it) = (self.recovered.iter().sum::<u32>(), self.recovered[place]);
        let most = self.limits.request_max.min(RECOVERIES_MAX);
        hold!("R3 budget", all <= most, "{all} recoveries of {most}");
        let most = self.limits.strategy_max;
        hold!("R3 budget", of_it <= most, "{of_it} of {strategy:?}, of {most}");
        hold!("R3 budget", ordinal == of_it, "the {of_it}. {strategy:?} is told as the {ordinal}.");
        Ok(())
    }

    /// Notes whose failure it was.
    fn blame(&mut self, evidence: &Evidence) {
        let Some(attempt) = self.running.take() else { return };
        let may_return = match evidence {
            Evidence::Repetition | Evidence::SchemaMismatch => return,
            Evidence::ProviderError { class: ErrorClass::Transport | ErrorClass::Server }
                if attempt.sole_candidate =>
            {
                return;
            }
            Evidence::Stall { handoff, .. } => {
                handoff.as_ref().is_some_and(|handoff| handoff.health == ProviderHealth::Available)
            }
            Evidence::ProviderError { class } => {
                self.in_band |= *class == ErrorClass::InBand;
                false
            }
            Evidence::NodeLost => false,
        };
        *self.failed.entry(attempt.provider).or_insert(true) &= may_return;
    }
}
