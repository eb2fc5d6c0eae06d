//! What the provider has seen: counters, the last request as it arrived, and the fate of recent requests.
//!
//! Only model work (`/v1/chat/completions`, or any path under a script) counts as a request. `/stats`,
//! `/health` and `/v1/models` have their own counters, so that a test may look as often as it likes.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use bytes::Bytes;
use serde::Serialize;

use super::http::Head;
use super::responses;

/// How many ended requests are remembered one by one; older ones live on in the counters only.
pub const RECENT_MAX: usize = 256;

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The peer closed or reset the connection before the reply was complete.
    AbortedByPeer,
    /// The reply was written to its end.
    Completed,
    /// The script broke the reply off.
    Faulted,
}

/// One ended request.
#[derive(Debug, Clone, Serialize)]
pub struct Record {
    /// The provider's number for the request; also in `x-request-id` and the completion's `id`.
    pub number: u64,
    /// The model asked for, empty if the body did not say.
    pub model: String,
    /// Whether a stream was asked for.
    pub stream: bool,
    /// How it ended.
    pub outcome: Outcome,
    /// Whether the response head had been written.
    pub head_sent: bool,
    /// Content events written.
    pub events: u64,
    /// From the request's last byte to its end. Unit: ms.
    pub open_ms: u64,
    /// Whether this was the first request on its connection.
    pub first_on_connection: bool,
}

/// Counters since the start or the last reset. Gauges (`*_open`) survive a reset.
#[derive(Debug, Default)]
struct Counters {
    connections_accepted: AtomicU64,
    connections_open: AtomicU64,
    connections_serving: AtomicU64,
    connections_without_request: AtomicU64,
    connections_dropped_on_reuse: AtomicU64,
    requests_started: AtomicU64,
    requests_open: AtomicU64,
    requests_open_peak: AtomicU64,
    requests_completed: AtomicU64,
    requests_faulted: AtomicU64,
    aborts_seen: AtomicU64,
    aborted_by_peer: AtomicU64,
    aborted_before_head: AtomicU64,
    bodies_cut: AtomicU64,
    bad_requests: AtomicU64,
    unauthorized: AtomicU64,
    models_requests: AtomicU64,
    health_requests: AtomicU64,
    events_written: AtomicU64,
}

/// An event without more to it than its count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Count {
    /// A request that is not acceptable HTTP, or whose script or body is not understood.
    BadRequest,
    /// A connection that ended in the middle of a request body.
    BodyCut,
    /// A connection accepted.
    ConnectionAccepted,
    /// A connection closed on its second request, as scripted.
    ConnectionDroppedOnReuse,
    /// A connection's first request other than `/stats`.
    ConnectionServing,
    /// A connection that ended before a complete request head.
    ConnectionWithoutRequest,
    /// A `GET /health`.
    Health,
    /// A `GET /v1/models`.
    Models,
    /// A request without the right `authorization`.
    Unauthorized,
}

/// The shared statistics of one provider.
#[derive(Debug, Default)]
pub struct Stats {
    counters: Counters,
    memory: Mutex<Memory>,
}

#[derive(Debug, Default)]
struct Memory {
    last: Option<(Head, Bytes)>,
    recent: VecDeque<Record>,
}

impl Stats {
    /// Adds one to the counter of `what`.
    pub fn count(&self, what: Count) {
        let c = &self.counters;
        let counter = match what {
            Count::BadRequest => &c.bad_requests,
            Count::BodyCut => &c.bodies_cut,
            Count::ConnectionAccepted => &c.connections_accepted,
            Count::ConnectionDroppedOnReuse => &c.connections_dropped_on_reuse,
            Count::ConnectionServing => &c.connections_serving,
            Count::ConnectionWithoutRequest => &c.connections_without_request,
            Count::Health => &c.health_requests,
            Count::Models => &c.models_requests,
            Count::Unauthorized => &c.unauthorized,
        };
        counter.fetch_add(1, Relaxed);
    }

    /// Counts a connection as open until the guard is dropped.
    #[must_use]
    pub fn open_connection(self: &Arc<Self>) -> OpenConnection {
        self.counters.connections_open.fetch_add(1, Relaxed);
        OpenConnection { stats: Arc::clone(self) }
    }

    /// Counts a request as started and open, and remembers it as the last one.
    #[must_use]
    pub fn open_request(self: &Arc<Self>, head: Head, body: Bytes, first_on_connection: bool) -> OpenRequest {
        let number = self.counters.requests_started.fetch_add(1, Relaxed) + 1;
        let open = self.counters.requests_open.fetch_add(1, Relaxed) + 1;
        self.counters.requests_open_peak.fetch_max(open, Relaxed);
        self.memory().last = Some((head, body));
        self.request(number, first_on_connection, true)
    }

    /// A request that is no model work: its kind is counted, its fate is not.
    #[must_use]
    pub fn open_probe(self: &Arc<Self>, kind: Count, first_on_connection: bool) -> OpenRequest {
        self.count(kind);
        self.request(0, first_on_connection, false)
    }

    fn request(self: &Arc<Self>, number: u64, first_on_connection: bool, counted: bool) -> OpenRequest {
        OpenRequest {
            stats: Arc::clone(self),
            started: Instant::now(),
            counted,
            record: Record {
                number,
                model: String::new(),
                stream: false,
                outcome: Outcome::AbortedByPeer,
                head_sent: false,
                events: 0,
                open_ms: 0,
                first_on_connection,
            },
        }
    }

    /// Sets the counters to zero and forgets the requests; what is open stays open.
    pub fn reset(&self) {
        let c = &self.counters;
        for counter in [
            &c.connections_accepted,
            &c.connections_serving,
            &c.connections_without_request,
            &c.connections_dropped_on_reuse,
            &c.requests_started,
            &c.requests_completed,
            &c.requests_faulted,
            &c.aborts_seen,
            &c.aborted_by_peer,
            &c.aborted_before_head,
            &c.bodies_cut,
            &c.bad_requests,
            &c.unauthorized,
            &c.models_requests,
            &c.health_requests,
            &c.events_written,
        ] {
            counter.store(0, Relaxed);
        }
        c.requests_open_peak.store(c.requests_open.load(Relaxed), Relaxed);
        *self.memory() = Memory::default();
    }

    /// The body of `GET /stats`.
    #[must_use]
    pub fn to_json(&self) -> serde_json::Value {
        let c = &self.counters;
        let memory = self.memory();
        let read = |counter: &AtomicU64| counter.load(Relaxed);
        serde_json::json!({
            "connections_accepted": read(&c.connections_accepted),
            "connections_open": read(&c.connections_open),
            "connections_serving": read(&c.connections_serving),
            "connections_without_request": read(&c.connections_without_request),
            "connections_dropped_on_reuse": read(&c.connections_dropped_on_reuse),
            "requests_started": read(&c.requests_started),
            "requests_open": read(&c.requests_open),
            "requests_open_peak": read(&c.requests_open_peak),
            "requests_completed": read(&c.requests_completed),
            "requests_faulted": read(&c.requests_faulted),
            "aborts_seen": read(&c.aborts_seen),
            "aborted_by_peer": read(&c.aborted_by_peer),
            "aborted_before_head": read(&c.aborted_before_head),
            "bodies_cut": read(&c.bodies_cut),
            "bad_requests": read(&c.bad_requests),
            "unauthorized": read(&c.unauthorized),
            "models_requests": read(&c.models_requests),
            "health_requests": read(&c.health_requests),
            "events_written": read(&c.events_written),
            "last": memory.last.as_ref().map(|(head, body)| responses::echo(head, body)),
            "recent": memory.recent,
        })
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        // A panic elsewhere cannot leave these plain values half-written.
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection that is counted as open.
#[derive(Debug)]
pub struct OpenConnection {
    stats: Arc<Stats>,
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.stats.counters.connections_open.fetch_sub(1, Relaxed);
    }
}

/// A request that is counted as open. Dropped without [`OpenRequest::end`] it counts as aborted by its peer.
#[derive(Debug)]
pub struct OpenRequest {
    stats: Arc<Stats>,
    started: Instant,
    counted: bool,
    record: Record,
}

impl OpenRequest {
    /// A request to the provider's own routes, of which nothing is counted.
    #[must_use]
    pub fn untold(stats: &Arc<Stats>) -> Self {
        stats.request(0, false, false)
    }

    /// The provider's number for the request.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.record.number
    }

    /// Notes what the body asked for.
    pub fn describe(&mut self, model: &str, stream: bool) {
        model.clone_into(&mut self.record.model);
        self.record.stream = stream;
    }

    /// Notes that the response head has been written.
    pub fn head_sent(&mut self) {
        self.record.head_sent = true;
    }

    /// Notes content events written.
    pub fn events_written(&mut self, events: u64) {
        self.record.events += events;
        self.stats.counters.events_written.fetch_add(events, Relaxed);
    }

    /// Notes that the peer has left, which may be long before the request ends (`ignore-abort`).
    pub fn abort_seen(&self) {
        if self.counted {
            self.stats.counters.aborts_seen.fetch_add(1, Relaxed);
        }
    }

    /// Ends the request.
    pub fn end(mut self, outcome: Outcome) {
        self.record.outcome = outcome;
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        if !self.counted {
            return;
        }
        let c = &self.stats.counters;
        match self.record.outcome {
            Outcome::Completed => c.requests_completed.fetch_add(1, Relaxed),
            Outcome::Faulted => c.requests_faulted.fetch_add(1, Relaxed),
            Outcome::AbortedByPeer => {
                if !self.record.head_sent {
                    c.aborted_before_head.fetch_add(1, Relaxed);
                }
                c.aborted_by_peer.fetch_add(1, Relaxed)
            }
        };
        self.record.open_ms = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let mut memory = self.stats.memory();
        if memory.recent.len() == RECENT_MAX {
            memory.recent.pop_front();
        }
        memory.recent.push_back(self.record.clone());
        drop(memory);
        // Last, so that who sees no request open also sees its fate.
        c.requests_open.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::super::http;
    use super::*;

    fn head() -> Head {
        http::parse_head(b"POST /v1/chat/completions HTTP/1.1\r\nA: b\r\n\r\n").unwrap().unwrap().0
    }

    #[test]
    fn every_fate_is_counted_and_remembered() {
        let stats = Arc::new(Stats::default());
        let open = |fate: Option<Outcome>, head_sent| {
            let mut request = stats.open_request(head(), Bytes::from_static(b"{}"), true);
            request.describe("m", true);
            request.events_written(2);
            if head_sent {
                request.head_sent();
            }
            if let Some(outcome) = fate {
                request.end(outcome);
            }
        };
        open(Some(Outcome::Completed), true);
        open(Some(Outcome::Faulted), true);
        open(Some(Outcome::AbortedByPeer), true);
        open(None, false);
        let json = stats.to_json();
        for (key, value) in [
            ("requests_started", 4),
            ("requests_open", 0),
            ("requests_open_peak", 1),
            ("requests_completed", 1),
            ("requests_faulted", 1),
            ("aborted_by_peer", 2),
            ("aborted_before_head", 1),
            ("events_written", 8),
        ] {
            assert_eq!(json[key], value, "{key}");
        }
        assert_eq!(json["recent"][3]["outcome"], "aborted_by_peer");
        assert_eq!(json["recent"][0]["number"], 1);
        assert_eq!(json["last"]["headers"][0][1], "b");
        assert_eq!(json["last"]["body"], "{}");
    }

    #[test]
    fn reset_clears_counts_but_not_what_is_open() {
        let stats = Arc::new(Stats::default());
        let _connection = stats.open_connection();
        let request = stats.open_request(head(), Bytes::new(), true);
        stats.reset();
        let json = stats.to_json();
        assert_eq!(json["requests_started"], 0);
        assert_eq!((&json["requests_open"], &json["connections_open"]), (&1.into(), &1.into()));
        assert!(json["last"].is_null());
        request.end(Outcome::Completed);
        assert_eq!(stats.to_json()["requests_open"], 0);
    }

    #[test]
    fn recent_requests_are_bounded() {
        let stats = Arc::new(Stats::default());
        for _ in 0..RECENT_MAX + 5 {
            stats.open_request(head(), Bytes::new(), true).end(Outcome::Completed);
        }
        let json = stats.to_json();
        assert_eq!(json["recent"].as_array().unwrap().len(), RECENT_MAX);
        assert_eq!(json["recent"][0]["number"], 6);
    }
}
