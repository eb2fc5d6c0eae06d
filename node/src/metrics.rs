//! What a Node counts. Every label has a closed set of values that is registered at the start, so that no peer can make a
//! series and a series that is 0 is there to be seen.

use std::time::Duration;

use dataplane::{
    http::client::{ConnectError, abort::Return},
    shard::TaskStats,
    tls::https::Trouble,
};
use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
    TextEncoder,
};
use proto::message::ErrorKind;

use crate::{
    health::{ProviderHealth, judge::Reason},
    run::{
        stall::{StallObserver, StallReport},
        terminal::Execution,
        watchdog::Fence,
    },
    supervisor::Failure,
};

/// How an execution ended; the label of `iop_node_runs_total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunOutcome {
    /// The provider's answer ended as it should, whatever its status.
    Completed,
    /// It did not.
    Failed(ErrorKind),
    /// The session ended first; nobody was there to be told.
    SessionLost,
}

impl RunOutcome {
    /// The word for logs and metrics.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Failed(kind) => kind.as_str(),
            Self::SessionLost => "session_lost",
        }
    }
}

/// Every error kind, for registering counters.
const ERROR_KINDS: [ErrorKind; 12] = [
    ErrorKind::Busy,
    ErrorKind::Cancelled,
    ErrorKind::Deadline,
    ErrorKind::Connect,
    ErrorKind::UpstreamProtocol,
    ErrorKind::UpstreamTruncated,
    ErrorKind::InvalidRequest,
    ErrorKind::Credential,
    ErrorKind::Stalled,
    ErrorKind::Internal,
    ErrorKind::CreditExceeded,
    ErrorKind::Unknown,
];

/// Labels of what tells of stalls, all of closed sets.
const STALL_LABELS: [&str; 3] = ["execution", "provider_health", "fence"];
/// Seconds without progress at the claim: about the stall timeouts that make sense.
const STALL_BUCKETS: [f64; 10] = [1.0, 5.0, 15.0, 30.0, 60.0, 120.0, 240.0, 305.0, 600.0, 1800.0];

/// Seconds of a probe, which takes 5 at most.
const PROBE_BUCKETS: [f64; 7] = [0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 5.0];

/// The Node's counters; cloning shares them.
#[derive(Clone, Debug)]
pub struct Metrics {
    registry: Registry,
    info: IntGaugeVec,
    /// 1 while a ready connection to the Edge stands.
    pub connected: IntGauge,
    dials: IntCounterVec,
    /// Executions that hold an adapter's gate or wait for their body.
    pub runs_in_flight: IntGauge,
    runs: IntCounterVec,
    normalized_runs: IntCounterVec,
    /// Normalized runs whose tools went as text, because the backend takes none (RUN-4).
    pub text_tool_runs: IntCounter,
    /// Normalized runs of whose prompt the backend seems to have left out a part.
    pub prompts_truncated: IntCounter,
    /// Programs that have not ended.
    pub programs: IntGauge,
    /// Programs that were killed because asking them to end was not enough.
    pub programs_killed: IntCounter,
    /// Those of them that were stopped and whose provider has not returned yet.
    pub runs_aborting: IntGauge,
    aborts: IntCounterVec,
    stalls: Stalls,
    /// TCP connections to providers, idle ones too.
    pub provider_connections: IntGauge,
    /// Reads from providers that brought something.
    pub provider_reads: IntCounter,
    /// Bytes that they brought, heads and framing included.
    pub provider_read_bytes: IntCounter,
    /// Request body bytes that were sent to providers.
    pub request_bytes: IntCounter,
    /// Response body bytes that were sent to the Edge.
    pub response_bytes: IntCounter,
    /// Executions that were answered with busy: a full gate, above all.
    pub gate_busy: IntCounter,
    failed_connects: IntCounterVec,
    /// Provider requests that were sent a second time, on a fresh connection (TUN-7).
    pub provider_retries: IntCounter,
    probes: ProbeSeries,
    /// Accepts on the metrics endpoint that failed for want of descriptors or memory.
    pub accepts_exhausted: IntCounter,
    log_lines_lost: IntCounter,
    tasks: IntGauge,
    task_panics: IntGauge,
}

/// What tells of probes.
#[derive(Clone, Debug)]
struct ProbeSeries {
    total: IntCounterVec,
    duration: Histogram,
}

impl ProbeSeries {
    fn register(registry: &Registry) -> prometheus::Result<Self> {
        let total = IntCounterVec::new(
            Opts::new("iop_node_health_probes_total", "Probes of providers, by what they found and why."),
            &["health", "reason"],
        )?;
        registry.register(Box::new(total.clone()))?;
        let duration = Histogram::with_opts(
            HistogramOpts::new("iop_node_health_probe_duration_seconds", "How long probes took.")
                .buckets(PROBE_BUCKETS.to_vec()),
        )?;
        registry.register(Box::new(duration.clone()))?;
        Ok(Self { total, duration })
    }
}

impl Metrics {
    /// Registers everything.
    ///
    /// # Errors
    /// Two series of one name: a defect that the tests find.
    pub fn new() -> prometheus::Result<Self> {
        let registry = Registry::new();
        let vec = |name: &str, help: &str, label: &str| {
            let vec = IntCounterVec::new(Opts::new(name, help), &[label])?;
            registry.register(Box::new(vec.clone()))?;
            Ok::<_, prometheus::Error>(vec)
        };
        let gauge = |name: &str, help: &str| {
            let gauge = IntGauge::new(name, help)?;
            registry.register(Box::new(gauge.clone()))?;
            Ok::<_, prometheus::Error>(gauge)
        };
        let counter = |name: &str, help: &str| {
            let counter = IntCounter::new(name, help)?;
            registry.register(Box::new(counter.clone()))?;
            Ok::<_, prometheus::Error>(counter)
        };
        let info =
            IntGaugeVec::new(Opts::new("iop_node_info", "Always 1; what drives the shards."), &["driver"])?;
        registry.register(Box::new(info.clone()))?;
        let build = IntGaugeVec::new(
            Opts::new("iop_node_build_info", "Always 1; which build this is."),
            &["version"],
        )?;
        registry.register(Box::new(build.clone()))?;
        build.with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1);
        let bytes = vec("iop_node_stream_bytes_total", "Body bytes of executions.", "direction")?;
        let metrics = Self {
            info,
            connected: gauge("iop_node_connected", "1 while a ready connection to the Edge stands.")?,
            dials: vec("iop_node_dials_total", "Dials of the Edge, by how they ended.", "outcome")?,
            runs_in_flight: gauge("iop_node_runs_in_flight", "Executions that are not at their end.")?,
            runs: vec("iop_node_runs_total", "Executions, by how they ended.", "outcome")?,
            normalized_runs: vec(
                "iop_node_normalized_runs_total",
                "Those of the executions that were normalized runs, by how they ended.",
                "outcome",
            )?,
            text_tool_runs: counter(
                "iop_node_text_tool_runs_total",
                "Normalized runs whose tools went as text because the backend takes none.",
            )?,
            programs: gauge("iop_node_programs", "Programs of normalized runs that have not ended.")?,
            programs_killed: counter(
                "iop_node_programs_killed_total",
                "Programs that were killed because asking them to end was not enough.",
            )?,
            prompts_truncated: counter(
                "iop_node_prompts_truncated_total",
                "Normalized runs of whose prompt the backend seems to have left out a part.",
            )?,
            runs_aborting: gauge(
                "iop_node_runs_aborting",
                "Stopped executions whose provider has not returned yet.",
            )?,
            aborts: vec(
                "iop_node_aborts_total",
                "Stopped executions that a provider may have been at work on, by how it returned.",
                "return",
            )?,
            stalls: Stalls::register(&registry)?,
            provider_connections: gauge(
                "iop_node_provider_connections",
                "TCP connections to providers, idle ones too.",
            )?,
            provider_reads: counter(
                "iop_node_provider_reads_total",
                "Reads from providers that brought something.",
            )?,
            provider_read_bytes: counter(
                "iop_node_provider_read_bytes_total",
                "Bytes read from providers, heads and framing included.",
            )?,
            request_bytes: bytes.with_label_values(&["request"]),
            response_bytes: bytes.with_label_values(&["response"]),
            gate_busy: counter("iop_node_gate_busy_total", "Executions that were answered with busy.")?,
            failed_connects: vec(
                "iop_node_provider_connects_failed_total",
                "Connections to providers that were not made, by what was wrong.",
                "reason",
            )?,
            provider_retries: counter(
                "iop_node_provider_retries_total",
                "Provider requests that were sent again on a fresh connection.",
            )?,
            probes: ProbeSeries::register(&registry)?,
            accepts_exhausted: counter(
                "iop_node_accepts_exhausted_total",
                "Accepts that failed for want of descriptors or memory.",
            )?,
            log_lines_lost: counter(
                "iop_node_log_lines_lost_total",
                "Log lines lost because nobody read them or nothing could be written.",
            )?,
            tasks: gauge("iop_node_tasks", "Live tasks.")?,
            task_panics: gauge("iop_node_task_panics", "Tasks that ended by a panic.")?,
            registry: registry.clone(),
        };
        metrics.begin_at_zero();
        Ok(metrics)
    }

    /// Makes every series whose labels are known there, before anything is counted.
    fn begin_at_zero(&self) {
        self.dials.with_label_values(&["ready"]);
        for failure in Failure::ALL {
            self.dials.with_label_values(&[failure.label()]);
        }
        for reason in Reason::ALL {
            let _registered = self.probes_of(reason);
        }
        for returned in Return::ALL {
            self.aborts.with_label_values(&[returned.label()]);
        }
        for label in ConnectError::TCP_LABELS.into_iter().chain(Trouble::LABELS) {
            self.failed_connects.with_label_values(&[label]);
        }
        for runs in [&self.runs, &self.normalized_runs] {
            for outcome in [RunOutcome::Completed, RunOutcome::SessionLost] {
                runs.with_label_values(&[outcome.label()]);
            }
            for kind in ERROR_KINDS {
                runs.with_label_values(&[kind.as_str()]);
            }
        }
    }

    /// Names the driver that the shard runs on.
    pub fn note_driver(&self, driver: &str) {
        self.info.with_label_values(&[driver]).set(1);
    }

    /// Takes over the shard's task counts.
    pub fn observe_tasks(&self, tasks: &TaskStats) {
        self.tasks.set(i64::try_from(tasks.live()).unwrap_or(i64::MAX));
        self.task_panics.set(i64::try_from(tasks.panicked()).unwrap_or(i64::MAX));
    }

    /// Counts a dial that became ready.
    pub fn note_ready(&self) {
        self.dials.with_label_values(&["ready"]).inc();
        self.connected.set(1);
    }

    /// Counts a dial that did not.
    pub fn note_failed_dial(&self, failure: Failure) {
        self.dials.with_label_values(&[failure.label()]).inc();
    }

    /// Counts an execution's end.
    pub fn note_run(&self, execution: Execution, outcome: RunOutcome) {
        self.runs.with_label_values(&[outcome.label()]).inc();
        if execution == Execution::Run {
            self.normalized_runs.with_label_values(&[outcome.label()]).inc();
        }
    }

    /// Counts a probe.
    pub fn note_probe(&self, reason: Reason, took: Duration) {
        self.probes_of(reason).inc();
        self.probes.duration.observe(took.as_secs_f64());
    }

    /// Probes that ended so.
    #[must_use]
    pub fn probes_of(&self, reason: Reason) -> IntCounter {
        self.probes.total.with_label_values(&[reason.health().as_str(), reason.as_str()])
    }

    /// Counts the end of an abort.
    pub fn note_abort(&self, returned: Return) {
        self.aborts.with_label_values(&[returned.label()]).inc();
    }

    /// Counts a connection to a provider that was not made.
    pub fn note_failed_connect(&self, error: &ConnectError) {
        self.failed_connects.with_label_values(&[error.label()]).inc();
    }

    /// Aborts that ended so, since the start.
    #[must_use]
    pub fn aborts(&self, returned: Return) -> u64 {
        self.aborts.with_label_values(&[returned.label()]).get()
    }

    /// Executions that ended so, since the start.
    #[must_use]
    pub fn runs(&self, outcome: RunOutcome) -> u64 {
        self.runs.with_label_values(&[outcome.label()]).get()
    }

    /// Everything in the Prometheus text format 0.0.4.
    #[must_use]
    pub fn text(&self) -> String {
        self.log_lines_lost.inc_by(dataplane::log::lost().saturating_sub(self.log_lines_lost.get()));
        TextEncoder::new().encode_to_string(&self.registry.gather()).unwrap_or_default()
    }
}

/// What is counted of stalls.
#[derive(Clone, Debug)]
struct Stalls {
    count: IntCounterVec,
    seconds: HistogramVec,
}

impl Stalls {
    fn register(registry: &Registry) -> prometheus::Result<Self> {
        let count = Opts::new(
            "iop_node_response_stalls_total",
            "Executions that the watchdog ended, by what the probe found and whether the provider returned.",
        );
        let seconds = HistogramOpts::new(
            "iop_node_response_stall_duration_seconds",
            "How long there had been no progress when the watchdog ended an execution.",
        );
        let stalls = Self {
            count: IntCounterVec::new(count, &STALL_LABELS)?,
            seconds: HistogramVec::new(seconds.buckets(STALL_BUCKETS.to_vec()), &STALL_LABELS)?,
        };
        registry.register(Box::new(stalls.count.clone()))?;
        registry.register(Box::new(stalls.seconds.clone()))?;
        for execution in Execution::ALL {
            for health in ProviderHealth::ALL {
                for fence in Fence::ALL {
                    let labels = [execution.label(), health.as_str(), fence.as_str()];
                    stalls.count.with_label_values(&labels);
                    stalls.seconds.with_label_values(&labels);
                }
            }
        }
        Ok(stalls)
    }
}

impl StallObserver for Metrics {
    /// Counts a stall and writes its log line: labels of closed sets, names of the configuration, numbers of this Node (OBS-4).
    fn observe(&self, report: &StallReport<'_>) {
        let StallReport { subject, idle, fence, observation } = report;
        let labels = [subject.execution.label(), observation.health.as_str(), fence.as_str()];
        self.stalls.count.with_label_values(&labels).inc();
        self.stalls.seconds.with_label_values(&labels).observe(idle.as_secs_f64());
        tracing::warn!(
            execution = subject.execution.label(),
            provider_health = observation.health.as_str(),
            liveness_classification = observation.health.liveness(),
            fence = fence.as_str(),
            idle_ms = idle.as_millis(),
            adapter = subject.adapter,
            node_run_id = report.node_run_id(),
            health_observation_seq = observation.sequence,
            "node_response_stall_observation"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_series_is_there_from_the_start_and_the_driver_is_named() {
        let metrics = Metrics::new().unwrap();
        metrics.note_driver("epoll");
        let text = metrics.text();
        for line in [
            "iop_node_connected 0",
            "iop_node_dials_total{outcome=\"ready\"} 0",
            "iop_node_dials_total{outcome=\"tls\"} 0",
            "iop_node_runs_in_flight 0",
            "iop_node_runs_total{outcome=\"completed\"} 0",
            "iop_node_runs_total{outcome=\"busy\"} 0",
            "iop_node_normalized_runs_total{outcome=\"completed\"} 0",
            "iop_node_normalized_runs_total{outcome=\"stalled\"} 0",
            "iop_node_text_tool_runs_total 0",
            "iop_node_prompts_truncated_total 0",
            "iop_node_programs 0",
            "iop_node_programs_killed_total 0",
            "iop_node_runs_aborting 0",
            "iop_node_aborts_total{return=\"confirmed\"} 0",
            "iop_node_aborts_total{return=\"still_sending\"} 0",
            "iop_node_aborts_total{return=\"unconfirmed\"} 0",
            "iop_node_response_stalls_total{execution=\"tunnel\",fence=\"confirmed\",provider_health=\"available\"} 0",
            "iop_node_response_stall_duration_seconds_count{execution=\"run\",fence=\"unconfirmed\",provider_health=\"unknown\"} 0",
            "iop_node_provider_connections 0",
            "iop_node_provider_connects_failed_total{reason=\"tls_unknown_issuer\"} 0",
            "iop_node_provider_reads_total 0",
            "iop_node_provider_read_bytes_total 0",
            "iop_node_stream_bytes_total{direction=\"response\"} 0",
            "iop_node_gate_busy_total 0",
            "iop_node_health_probes_total{health=\"available\",reason=\"serves\"} 0",
            "iop_node_health_probes_total{health=\"unknown\",reason=\"timed_out\"} 0",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is missing in\n{text}");
        }
        assert!(text.contains("iop_node_info{driver=\"epoll\"} 1"), "{text}");
    }
}
