//! What a stall tells: to the Edge in its terminal (STL-5), and to operators (OBS-1).

use std::{
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind},
    time::Duration,
};

use proto::message::{ErrorKind, ExecutionError, ExecutionFailure};

use super::{
    terminal::Execution,
    watchdog::{Fence, Observation},
};

/// The failure code of a stall (STL-4).
pub const FAILURE_CODE: &str = "response_stalled";

impl Fence {
    /// Both, for registering counters.
    pub const ALL: [Self; 2] = [Self::Confirmed, Self::Unconfirmed];

    /// The word on the wire, in logs and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Confirmed => "confirmed",
            Self::Unconfirmed => "unconfirmed",
        }
    }
}

/// Whose stall it is, in names of the configuration and numbers of this Node: nothing of it is the client's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    /// What was executed.
    pub execution: Execution,
    /// The adapter instance, as the Edge named it.
    pub adapter: String,
    /// The served model, as the Edge named it.
    pub target: String,
    /// The session, as this Node knows it: drawn for each connection.
    pub session: u32,
    /// The number of the execution in the session, as this Node counts.
    pub number: u64,
}

/// A stall, complete.
#[derive(Clone, Copy, Debug)]
pub struct StallReport<'a> {
    /// Whose.
    pub subject: &'a Subject,
    /// How long there had been no progress.
    pub idle: Duration,
    /// Whether the provider is known to be done with it.
    pub fence: Fence,
    /// What the probe found.
    pub observation: Observation,
}

impl StallReport<'_> {
    /// The Node's own name of the execution.
    #[must_use]
    pub fn node_run_id(&self) -> String {
        format!("{:08x}-{}", self.subject.session, self.subject.number)
    }

    /// The terminal: exactly what STL-5 allows. `retryable` is a hint of what could be done, never leave to do it (STL-8).
    #[must_use]
    pub fn error(&self) -> ExecutionError {
        let Self { subject, idle, fence, observation } = self;
        let run = self.node_run_id();
        let health = observation.health;
        let mut metadata: BTreeMap<String, String> = [
            ("provider_health", health.as_str().to_owned()),
            ("liveness_classification", health.liveness().to_owned()),
            ("idle_ms", idle.as_millis().to_string()),
            // A Node executes a run once and never again.
            ("node_attempt_id", format!("{run}.1")),
            ("node_run_id", run),
            ("fence", fence.as_str().to_owned()),
            ("adapter", subject.adapter.clone()),
            ("target", subject.target.clone()),
        ]
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value))
        .collect();
        if let Some(sequence) = observation.sequence {
            metadata.insert("health_observation_seq".to_owned(), sequence.to_string());
        }
        ExecutionError {
            kind: ErrorKind::Stalled,
            message: format!("the provider made no progress for {} ms", idle.as_millis()),
            failure: Some(ExecutionFailure {
                failure_code: FAILURE_CODE.to_owned(),
                retryable: *fence == Fence::Confirmed,
                metadata,
            }),
        }
    }
}

/// Whoever is told of a stall before its terminal is built.
pub trait StallObserver {
    /// Takes note.
    fn observe(&self, report: &StallReport<'_>);
}

/// Tells an observer; one that fails keeps nothing from going on (OBS-1). Whether it did not.
pub fn observed(observer: &dyn StallObserver, report: &StallReport<'_>) -> bool {
    catch_unwind(AssertUnwindSafe(|| observer.observe(report))).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::health::ProviderHealth;

    fn subject() -> Subject {
        Subject {
            execution: Execution::Tunnel,
            adapter: "vllm-1".to_owned(),
            target: "qwen3".to_owned(),
            session: 0xab,
            number: 12,
        }
    }

    fn report(
        subject: &Subject,
        fence: Fence,
        health: ProviderHealth,
        sequence: Option<u64>,
    ) -> StallReport<'_> {
        let observation = Observation { health, sequence };
        StallReport { subject, idle: Duration::from_millis(300_012), fence, observation }
    }

    // req: STL-4, STL-5, STL-7, STL-8
    #[test]
    fn a_terminal_tells_what_is_allowed_and_nothing_else() {
        let subject = subject();
        for (health, liveness) in [
            (ProviderHealth::Available, "request_stalled"),
            (ProviderHealth::Unavailable, "provider_unhealthy"),
            (ProviderHealth::Unknown, "health_unknown"),
        ] {
            for (fence, retryable) in [(Fence::Confirmed, true), (Fence::Unconfirmed, false)] {
                for sequence in [None, Some(41)] {
                    let error = report(&subject, fence, health, sequence).error();
                    let failure = error.failure.unwrap();
                    assert_eq!(error.kind, ErrorKind::Stalled);
                    assert_eq!(
                        (failure.failure_code.as_str(), failure.retryable),
                        ("response_stalled", retryable)
                    );
                    let mut expected = vec![
                        ("adapter", "vllm-1"),
                        ("fence", fence.as_str()),
                        ("idle_ms", "300012"),
                        ("liveness_classification", liveness),
                        ("node_attempt_id", "000000ab-12.1"),
                        ("node_run_id", "000000ab-12"),
                        ("provider_health", health.as_str()),
                        ("target", "qwen3"),
                    ];
                    if sequence.is_some() {
                        expected.insert(2, ("health_observation_seq", "41"));
                    }
                    let found: Vec<_> =
                        failure.metadata.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
                    assert_eq!(found, expected);
                }
            }
        }
    }

    // req: OBS-1
    #[test]
    fn an_observer_that_panics_is_survived() {
        struct Defective;
        impl StallObserver for Defective {
            fn observe(&self, _report: &StallReport<'_>) {
                std::panic::resume_unwind(Box::new("planned"));
            }
        }
        let subject = subject();
        let report = report(&subject, Fence::Confirmed, ProviderHealth::Unknown, None);
        assert!(!observed(&Defective, &report));
        assert_eq!(report.error().kind, ErrorKind::Stalled);
    }
}
