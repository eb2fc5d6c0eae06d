//! Metrics of the Edge. Every label value comes from a closed set or from the configuration; handles are looked up once,
//! at the start, so that no request hashes a label.

mod control;
mod http2;
pub mod recovery;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use ::control::{
    Counters,
    effect::{ProviderStatus, Snapshot},
};
use dataplane::{http::budget::Budget, relay::CloseReason, shard::DriverKind, tls::refusal::Refusal};
use prometheus::{
    Encoder, Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
    TextEncoder,
};

use crate::{
    https::door::Outcome,
    reply::OUTCOMES,
    surface::Surface,
    usage::{Observed, State},
};
use control::ControlMetrics;
pub use http2::Http2Metrics;
use recovery::RecoveryMetrics;

/// Upper bounds of the time buckets, in seconds: from a relay's own cost to a minutes-long prefill.
const SECONDS: [f64; 16] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 300.0, 1800.0];

/// All of them.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    driver: IntGaugeVec,
    tasks: IntGaugeVec,
    task_panics: IntGaugeVec,
    requests: IntCounterVec,
    /// The series of nearly every request.
    requests_good: IntCounter,
    /// Requests between their head and their end.
    pub requests_active: IntGauge,
    /// Client connections.
    pub connections: IntGauge,
    /// Client connections that there may be.
    pub client_connections_max: IntGauge,
    /// Client connections closed at once because there were too many.
    pub connections_refused: IntCounter,
    /// Accepts that failed for want of descriptors or memory.
    pub accepts_exhausted: IntCounter,
    /// Operators' connections that gave way to newer ones.
    pub ops_displaced: IntCounter,
    /// Clients' HTTP/2 connections.
    pub http2: Http2Metrics,
    /// Recoveries.
    pub recovery: RecoveryMetrics,
    /// Request bytes from clients.
    pub request_bytes: IntCounter,
    body_memory: IntGauge,
    body_memory_max: IntGauge,
    /// Body bytes passed on to clients.
    pub response_bytes: IntCounter,
    /// From a request's head to its first response byte.
    pub first_byte: Histogram,
    /// From a request's head to its end.
    pub duration: Histogram,
    /// Time in the queue of requests that were granted.
    pub queue_wait: Histogram,
    /// Tokens by kind: see [`Metrics::used`].
    tokens_used: [IntCounter; 4],
    /// In the order of `State::ALL`.
    usage: [IntCounter; 4],
    handshake_refused: IntCounterVec,
    /// Handshakes that gave way to newer ones.
    pub handshakes_displaced: IntCounter,
    registrations: IntCounterVec,
    link_closed: IntCounterVec,
    /// Node connections that are being served.
    pub links: IntGauge,
    control: ControlMetrics,
    certificate_not_after: IntGauge,
    client_handshakes: IntCounterVec,
    client_certificate_not_after: IntGauge,
    client_certificate_current: IntGauge,
    /// Renewed certificates for clients, by whether they could be used.
    pub client_certificate_reloads: IntCounterVec,
    tokens_revoked: IntGauge,
    revocations_readable: IntGauge,
    log_lines_lost: IntCounter,
    /// Mail of a shard that had to wait because another shard's mailbox or control's inbox was full.
    pub mail_overflow: IntCounter,
    /// Late or foreign frames that were ignored.
    pub frames_ignored: IntCounter,
    /// Streams whose Node broke the frame order or its credit.
    pub stream_violations: IntCounter,
    /// Calls in a model's text of functions that its request does not have (api.md §7 rule 5).
    pub text_tools_unknown: IntCounter,
    /// Answers of Nodes to commands that nobody waits for.
    pub answers_ignored: IntCounter,
    tokens: AtomicU64,
}

fn counter(registry: &Registry, name: &str, help: &str) -> anyhow::Result<IntCounter> {
    let metric = IntCounter::new(name, help)?;
    registry.register(Box::new(metric.clone()))?;
    Ok(metric)
}

fn gauge(registry: &Registry, name: &str, help: &str) -> anyhow::Result<IntGauge> {
    let metric = IntGauge::new(name, help)?;
    registry.register(Box::new(metric.clone()))?;
    Ok(metric)
}

fn counters(registry: &Registry, name: &str, help: &str, labels: &[&str]) -> anyhow::Result<IntCounterVec> {
    let metric = IntCounterVec::new(Opts::new(name, help), labels)?;
    registry.register(Box::new(metric.clone()))?;
    Ok(metric)
}

fn gauges(registry: &Registry, name: &str, help: &str, labels: &[&str]) -> anyhow::Result<IntGaugeVec> {
    let metric = IntGaugeVec::new(Opts::new(name, help), labels)?;
    registry.register(Box::new(metric.clone()))?;
    Ok(metric)
}

fn seconds(registry: &Registry, name: &str, help: &str) -> anyhow::Result<Histogram> {
    let metric = Histogram::with_opts(HistogramOpts::new(name, help).buckets(SECONDS.to_vec()))?;
    registry.register(Box::new(metric.clone()))?;
    Ok(metric)
}

impl Metrics {
    /// Registers every metric.
    ///
    /// # Errors
    /// Two metrics have one name: a defect.
    #[expect(clippy::too_many_lines, reason = "one entry for each metric and nothing else")]
    pub fn new() -> anyhow::Result<Self> {
        let registry = Registry::new();
        let r = &registry;
        let requests =
            counters(r, "iop_edge_requests_total", "Requests by route and outcome", &["route", "outcome"])?;
        let tokens_used = counters(
            r,
            "iop_edge_tokens_total",
            "Tokens that providers say they counted, by kind",
            &["kind"],
        )?;
        let usage =
            counters(r, "iop_edge_usage_total", "Answers by what is known of their tokens", &["state"])?;
        let metrics = Self {
            driver: gauges(
                r,
                "iop_edge_shard_driver",
                "1 for the I/O driver each shard runs on",
                &["shard", "driver"],
            )?,
            tasks: gauges(r, "iop_edge_shard_tasks", "Live tasks", &["shard"])?,
            task_panics: gauges(r, "iop_edge_shard_task_panics", "Tasks that ended by a panic", &["shard"])?,
            requests_good: requests.with_label_values(&["chat_completions", "ok"]),
            requests,
            requests_active: gauge(r, "iop_edge_requests_active", "Requests being served")?,
            connections: gauge(r, "iop_edge_client_connections", "Client connections")?,
            client_connections_max: gauge(
                r,
                "iop_edge_client_connections_max",
                "Client connections that there may be",
            )?,
            connections_refused: counter(
                r,
                "iop_edge_client_connections_refused_total",
                "Client connections closed at once because there were too many",
            )?,
            accepts_exhausted: counter(
                r,
                "iop_edge_accepts_exhausted_total",
                "Accepts that failed for want of descriptors or memory",
            )?,
            ops_displaced: counter(
                r,
                "iop_edge_ops_connections_displaced_total",
                "Operators' connections that gave way to newer ones",
            )?,
            http2: Http2Metrics::new(r)?,
            recovery: RecoveryMetrics::new(r)?,
            request_bytes: counter(r, "iop_edge_request_bytes_total", "Request body bytes from clients")?,
            body_memory: gauge(r, "iop_edge_body_memory_bytes", "Memory that request bodies take")?,
            body_memory_max: gauge(
                r,
                "iop_edge_body_memory_max_bytes",
                "Memory that request bodies may take",
            )?,
            response_bytes: counter(
                r,
                "iop_edge_response_bytes_total",
                "Response body bytes relayed to clients",
            )?,
            first_byte: seconds(r, "iop_edge_first_byte_seconds", "Request head to first relayed body byte")?,
            duration: seconds(r, "iop_edge_request_seconds", "Request head to end")?,
            queue_wait: seconds(r, "iop_edge_queue_wait_seconds", "Wait for a slot of granted requests")?,
            tokens_used: ["input", "output", "cached", "reasoning"]
                .map(|kind| tokens_used.with_label_values(&[kind])),
            usage: State::ALL.map(|state| usage.with_label_values(&[state.label()])),
            handshake_refused: counters(
                r,
                "iop_edge_node_handshake_refused_total",
                "Node connections refused before registration, by reason",
                &["reason"],
            )?,
            handshakes_displaced: counter(
                r,
                "iop_edge_node_handshakes_displaced_total",
                "Unfinished Node handshakes that gave way to newer ones",
            )?,
            registrations: counters(
                r,
                "iop_edge_registrations_total",
                "Registrations by outcome",
                &["outcome"],
            )?,
            link_closed: counters(
                r,
                "iop_edge_node_link_closed_total",
                "Closed Node connections by reason",
                &["reason"],
            )?,
            links: gauge(r, "iop_edge_node_links", "Node connections past their handshake")?,
            control: ControlMetrics::new(r)?,
            certificate_not_after: gauge(
                r,
                "iop_edge_certificate_not_after_seconds",
                "End of the Edge's own certificate, in seconds since 1970",
            )?,
            client_handshakes: counters(
                r,
                "iop_edge_client_handshakes_total",
                "TLS handshakes with clients by outcome",
                &["outcome"],
            )?,
            client_certificate_not_after: gauge(
                r,
                "iop_edge_client_certificate_not_after_seconds",
                "End of the certificate for clients, in seconds since 1970; 0 without HTTPS",
            )?,
            client_certificate_current: gauge(
                r,
                "iop_edge_client_certificate_current",
                "1 while what clients are presented is what the files hold, 0 when those cannot be used or there is no HTTPS",
            )?,
            client_certificate_reloads: counters(
                r,
                "iop_edge_client_certificate_reloads_total",
                "Changes of the files of the certificate for clients, by outcome",
                &["outcome"],
            )?,
            tokens_revoked: gauge(
                r,
                "iop_edge_tokens_revoked",
                "Tokens that were revoked in this process's life",
            )?,
            revocations_readable: gauge(
                r,
                "iop_edge_revocation_list_readable",
                "1 while the list of revoked tokens can be read, 0 when it cannot or there is none",
            )?,
            log_lines_lost: counter(
                r,
                "iop_edge_log_lines_lost_total",
                "Log lines lost because nobody read them or nothing could be written",
            )?,
            mail_overflow: counter(
                r,
                "iop_edge_mail_overflow_total",
                "Mail that waited for room in a shard's mailbox",
            )?,
            frames_ignored: counter(
                r,
                "iop_edge_frames_ignored_total",
                "Frames of unknown or ended streams",
            )?,
            stream_violations: counter(
                r,
                "iop_edge_stream_violations_total",
                "Streams that broke frame order or credit",
            )?,
            text_tools_unknown: counter(
                r,
                "iop_edge_text_tools_unknown_total",
                "Calls in the text of a model of functions that its request does not have",
            )?,
            answers_ignored: counter(
                r,
                "iop_edge_command_answers_ignored_total",
                "Answers of Nodes to commands that nobody waits for",
            )?,
            tokens: AtomicU64::new(1),
            registry: registry.clone(),
        };
        metrics.begin_series();
        Ok(metrics)
    }

    /// Begins every series of a closed set at 0: a rate over a series that appears with its first event misses that event.
    fn begin_series(&self) {
        for (surface, outcome) in
            Surface::ALL.into_iter().flat_map(|it| OUTCOMES.map(|outcome| (it, outcome)))
        {
            self.requests.with_label_values(&[surface.label(), outcome]);
        }
        for outcome in Outcome::ALL {
            self.client_handshakes.with_label_values(&[outcome.label()]);
        }
        for outcome in ["ok", "failed"] {
            self.client_certificate_reloads.with_label_values(&[outcome]);
        }
        for reason in Refusal::ALL {
            self.handshake_refused.with_label_values(&[reason.label()]);
        }
    }

    /// Names a shard's driver.
    pub fn shard_up(&self, shard: usize, driver: DriverKind) {
        self.driver.with_label_values(&[&shard.to_string(), driver.label()]).set(1);
    }

    /// Takes over a shard's task counts.
    pub fn observe_tasks(&self, shard: usize, live: u64, panicked: u64) {
        let shard = shard.to_string();
        self.tasks.with_label_values(&[&shard]).set(clamp(live));
        self.task_panics.with_label_values(&[&shard]).set(clamp(panicked));
    }

    /// Takes over how much memory request bodies take.
    pub fn observe_bodies(&self, bodies: &Budget) {
        self.body_memory.set(clamp(bodies.held()));
        self.body_memory_max.set(clamp(bodies.max()));
    }

    /// Notes when the Edge's certificate ends, in seconds since 1970.
    pub fn certificate_ends(&self, not_after: u64) {
        self.certificate_not_after.set(clamp(not_after));
    }

    /// Notes when the certificate for clients ends, in seconds since 1970, and whether it is what the files hold.
    pub fn client_certificate(&self, not_after: u64, current: bool) {
        self.client_certificate_not_after.set(clamp(not_after));
        self.client_certificate_current.set(current.into());
    }

    /// Counts a TLS handshake with a client.
    pub fn client_handshake(&self, outcome: Outcome) {
        self.client_handshakes.with_label_values(&[outcome.label()]).inc();
    }

    /// Notes how many tokens are revoked, and whether their list can be read.
    pub fn tokens_revoked(&self, count: usize, readable: bool) {
        self.tokens_revoked.set(clamp(count as u64));
        self.revocations_readable.set(readable.into());
    }

    /// What an answer has cost, as far as its provider said.
    pub fn used(&self, observed: &Observed) {
        let counts = &observed.counts;
        let tokens = [counts.input_total(), counts.output, counts.cached, counts.reasoning];
        for (counter, tokens) in self.tokens_used.iter().zip(tokens) {
            counter.inc_by(tokens.unwrap_or_default());
        }
        for (counter, state) in self.usage.iter().zip(State::ALL) {
            counter.inc_by(u64::from(state == observed.state));
        }
    }

    /// Counts an ended request. Both labels are closed sets.
    pub fn request_ended(&self, route: &'static str, outcome: &'static str) {
        match (route, outcome) {
            ("chat_completions", "ok") => self.requests_good.inc(),
            _ => self.requests.with_label_values(&[route, outcome]).inc(),
        }
    }

    /// Counts a Node connection that was refused before registration.
    pub fn handshake_refused(&self, reason: Refusal) {
        self.handshake_refused.with_label_values(&[reason.label()]).inc();
    }

    /// Counts a registration; `outcome` is a closed set.
    pub fn registration(&self, outcome: &'static str) {
        self.registrations.with_label_values(&[outcome]).inc();
    }

    /// Counts a closed Node connection.
    pub fn link_closed(&self, reason: CloseReason) {
        self.link_closed.with_label_values(&[reason.label()]).inc();
    }

    /// A Node became dispatch-ready.
    pub fn node_connected(&self, node: &str) {
        self.control.node_connected(node, true);
    }

    /// A Node's generation was fenced.
    pub fn node_fenced(&self, node: &str) {
        self.control.node_connected(node, false);
    }

    /// Takes over the machine's counts.
    pub fn observe_control(&self, counters: &Counters) {
        self.control.observe_counters(counters);
    }

    /// Takes over a snapshot.
    pub fn observe_snapshot(&self, snapshot: &Snapshot) {
        self.control.observe_snapshot(snapshot);
    }

    /// A number for an inspection, unique in the process.
    pub fn next_token(&self) -> u64 {
        self.tokens.fetch_add(1, Relaxed)
    }

    /// The text exposition.
    pub fn render(&self) -> Vec<u8> {
        self.log_lines_lost.inc_by(dataplane::log::lost().saturating_sub(self.log_lines_lost.get()));
        let mut text = Vec::new();
        let encoded = TextEncoder::new().encode(&self.registry.gather(), &mut text);
        if let Err(error) = encoded {
            tracing::error!(%error, "metrics could not be encoded");
        }
        text
    }
}

/// Status words of the status surface.
pub fn status_word(status: ProviderStatus) -> &'static str {
    match status {
        ProviderStatus::Available => "available",
        ProviderStatus::Offline | ProviderStatus::Unavailable => "unavailable",
        ProviderStatus::Disabled => "disabled",
    }
}

fn clamp(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
