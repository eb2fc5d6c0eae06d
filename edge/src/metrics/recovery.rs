//! Metrics of recoveries (OBS-3), and of what the stream evidence gate finds. Every label is a closed set.

use ::control::recovery::{Ineligible, Strategy, Verdict};
use prometheus::{IntCounterVec, Registry};

use super::counters;
use crate::config::gate::{Enforcement, FilterKind};

/// What became of a recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The request ended well.
    Recovered,
    /// The attempt failed as well, whether or not another one followed.
    Failed,
    /// There was no slot for it, or nothing that it could be sent to.
    Refused,
    /// Its client left, its token was revoked, or the process ended.
    Abandoned,
}

impl Outcome {
    /// The closed set.
    pub const ALL: [Self; 4] = [Self::Recovered, Self::Failed, Self::Refused, Self::Abandoned];

    /// Its name in metrics and logs.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Recovered => "recovered",
            Self::Failed => "failed",
            Self::Refused => "refused",
            Self::Abandoned => "abandoned",
        }
    }
}

/// What came of a finding of the gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Another attempt.
    Recover,
    /// The answer was stopped.
    Stop,
    /// What was found goes to the client: nothing better can be had.
    Pass,
    /// It is recorded alone.
    Observe,
}

impl Action {
    /// The closed set.
    pub const ALL: [Self; 4] = [Self::Recover, Self::Stop, Self::Pass, Self::Observe];

    /// Its name in metrics.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Recover => "recover",
            Self::Stop => "stop",
            Self::Pass => "pass",
            Self::Observe => "observe",
        }
    }

    /// What may do this.
    const fn enforcement(self) -> Enforcement {
        match self {
            Self::Recover | Self::Stop | Self::Pass => Enforcement::Blocking,
            Self::Observe => Enforcement::ObserveOnly,
        }
    }
}

/// All of them.
#[derive(Debug)]
pub struct RecoveryMetrics {
    eligibility: IntCounterVec,
    results: IntCounterVec,
    findings: IntCounterVec,
}

impl RecoveryMetrics {
    pub(super) fn new(r: &Registry) -> anyhow::Result<Self> {
        let metrics = Self {
            eligibility: counters(
                r,
                "iop_edge_liveness_recovery_eligibility_total",
                "Failed attempts by whether another one may follow, and why not",
                &["eligibility"],
            )?,
            results: counters(
                r,
                "iop_edge_liveness_recovery_results_total",
                "Recoveries by strategy and by what became of them",
                &["strategy", "result"],
            )?,
            findings: counters(
                r,
                "iop_edge_stream_gate_findings_total",
                "What filters of the stream evidence gate found, and what came of it",
                &["filter", "enforcement", "action"],
            )?,
        };
        for (_, filter) in FilterKind::ALL {
            for action in Action::ALL {
                metrics.findings(filter, action);
            }
        }
        metrics.eligibility.with_label_values(&["eligible"]);
        for why in Ineligible::ALL {
            metrics.eligibility.with_label_values(&[why.name()]);
        }
        for strategy in Strategy::ALL {
            for outcome in Outcome::ALL {
                metrics.results.with_label_values(&[strategy.name(), outcome.label()]);
            }
        }
        Ok(metrics)
    }

    fn findings(&self, filter: FilterKind, action: Action) -> prometheus::IntCounter {
        let filter = FilterKind::ALL.iter().find(|(_, kind)| *kind == filter).map_or("", |(name, _)| name);
        let enforcement = action.enforcement();
        let found = Enforcement::ALL.iter().find(|(_, known)| *known == enforcement);
        let enforcement = found.map_or("", |(name, _)| name);
        self.findings.with_label_values(&[filter, enforcement, action.label()])
    }

    /// Counts what a filter found.
    pub fn found(&self, filter: FilterKind, action: Action) {
        self.findings(filter, action).inc();
    }

    /// Counts what was decided of a failed attempt.
    pub fn eligibility(&self, verdict: Verdict) {
        self.eligibility.with_label_values(&[verdict.eligibility()]).inc();
    }

    /// Counts what became of a recovery.
    pub fn result(&self, strategy: Strategy, outcome: Outcome) {
        self.results.with_label_values(&[strategy.name(), outcome.label()]).inc();
    }
}
