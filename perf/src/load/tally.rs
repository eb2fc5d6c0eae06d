//! What the threads of a run count while it runs.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;

use super::exchange::{Observer, Reply};
use super::times::times;
use super::verify::Failure;

/// What one thread has counted.
#[derive(Debug)]
pub struct Tally {
    pub(super) ok: u64,
    pub(super) sealed: u64,
    pub(super) events: u64,
    pub(super) body_bytes: u64,
    pub(super) comments: u64,
    pub(super) reconnects: u64,
    pub(super) errors: BTreeMap<String, u64>,
    pub(super) first_event: Histogram<u64>,
    pub(super) gap: Histogram<u64>,
    pub(super) total: Histogram<u64>,
    pub(super) delivery: Histogram<u64>,
    pub(super) lateness: Histogram<u64>,
    pub(super) connection_wait: Histogram<u64>,
    /// Refusals by status and the code of their error object.
    pub(super) refusal_codes: BTreeMap<String, u64>,
    /// Refusals by status.
    pub(super) refusals: BTreeMap<u16, Histogram<u64>>,
}

impl Default for Tally {
    fn default() -> Self {
        Self {
            ok: 0,
            sealed: 0,
            events: 0,
            body_bytes: 0,
            comments: 0,
            reconnects: 0,
            errors: BTreeMap::new(),
            first_event: times(),
            gap: times(),
            total: times(),
            delivery: times(),
            lateness: times(),
            connection_wait: times(),
            refusal_codes: BTreeMap::new(),
            refusals: BTreeMap::new(),
        }
    }
}

impl Observer for Tally {
    fn gap(&mut self, us: u64) {
        self.gap.saturating_record(us);
    }

    fn delivery(&mut self, us: u64) {
        self.delivery.saturating_record(us);
    }
}

impl Tally {
    /// Adds the outcome of one request.
    pub fn add(&mut self, outcome: Result<Reply, Failure>) {
        match outcome {
            Ok(reply) => {
                self.ok += 1;
                self.sealed += u64::from(reply.sealed);
                self.events += reply.events;
                self.body_bytes += reply.body_bytes;
                self.comments += reply.comments;
                self.first_event.saturating_record(reply.first_event_us);
                self.total.saturating_record(reply.total_us);
            }
            Err(failure) => *self.errors.entry(failure.to_string()).or_default() += 1,
        }
    }

    /// Notes that a kept connection was found closed before it was used again.
    pub fn add_reconnect(&mut self) {
        self.reconnects += 1;
    }

    /// Notes a whole refusal: its status, and the time from where the request counts to its end, in µs.
    pub fn add_refusal(&mut self, status: u16, us: u64) {
        self.refusals.entry(status).or_insert_with(times).saturating_record(us);
    }

    /// Notes the code of a whole refusal.
    pub fn add_refusal_code(&mut self, status: u16, code: &str) {
        *self.refusal_codes.entry(format!("{status} {code}").trim_end().to_owned()).or_default() += 1;
    }

    /// Notes how much later than its schedule a request was released, in µs.
    pub fn add_lateness(&mut self, us: u64) {
        self.lateness.saturating_record(us);
    }

    /// Notes how long a request waited for one of the bounded connections, in µs.
    pub fn add_connection_wait(&mut self, us: u64) {
        self.connection_wait.saturating_record(us);
    }

    /// Adds everything that `other` has counted.
    pub fn merge(&mut self, other: &Self) {
        self.ok += other.ok;
        self.sealed += other.sealed;
        self.events += other.events;
        self.body_bytes += other.body_bytes;
        self.comments += other.comments;
        self.reconnects += other.reconnects;
        for (kind, count) in &other.errors {
            *self.errors.entry(kind.clone()).or_default() += count;
        }
        for (own, other) in [
            (&mut self.first_event, &other.first_event),
            (&mut self.gap, &other.gap),
            (&mut self.total, &other.total),
            (&mut self.delivery, &other.delivery),
            (&mut self.lateness, &other.lateness),
            (&mut self.connection_wait, &other.connection_wait),
        ] {
            // Both have the same bounds, so nothing can be out of range.
            let _ = own.add(other);
        }
        for (code, count) in &other.refusal_codes {
            *self.refusal_codes.entry(code.clone()).or_default() += count;
        }
        for (status, other) in &other.refusals {
            let _ = self.refusals.entry(*status).or_insert_with(times).add(other);
        }
    }
}
