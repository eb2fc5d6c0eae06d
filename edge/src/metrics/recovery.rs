//! Metrics of recoveries (OBS-3). Every label is a closed set.

use ::control::recovery::{Ineligible, Strategy, Verdict};
use prometheus::{IntCounterVec, Registry};

use super::counters;

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

/// All of them.
#[derive(Debug)]
pub struct RecoveryMetrics {
    eligibility: IntCounterVec,
    results: IntCounterVec,
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
        };
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

    /// Counts what was decided of a failed attempt.
    pub fn eligibility(&self, verdict: Verdict) {
        self.eligibility.with_label_values(&[verdict.eligibility()]).inc();
    }

    /// Counts what became of a recovery.
    pub fn result(&self, strategy: Strategy, outcome: Outcome) {
        self.results.with_label_values(&[strategy.name(), outcome.label()]).inc();
    }
}
