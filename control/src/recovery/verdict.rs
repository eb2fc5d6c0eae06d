//! What follows a failed attempt.

/// How another attempt is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Strategy {
    /// The same request again.
    ExactReplay,
    /// The request with what was said so far and the fixed directive to go on (SEG-5).
    ContinuationRepair,
    /// The request with the invalid answer and what is wrong with it.
    SchemaRepair,
}

impl Strategy {
    /// Every strategy, for metrics.
    pub const ALL: [Self; 3] = [Self::ExactReplay, Self::ContinuationRepair, Self::SchemaRepair];

    /// Its name in headers, metrics and logs.
    pub fn name(self) -> &'static str {
        match self {
            Self::ExactReplay => "exact_replay",
            Self::ContinuationRepair => "continuation_repair",
            Self::SchemaRepair => "schema_repair",
        }
    }
}

/// Why nothing follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ineligible {
    /// The client has content already (REC-2).
    Committed,
    /// The request is over: client gone, deadline, revoked, complete.
    Closed,
    /// The attempt may have done, or may still do, what a second one would do again (REC-5).
    SideEffect,
    /// Its body has more bytes than may be kept.
    SnapshotTooLarge,
    /// Its body is not held any more.
    SnapshotGone,
    /// The request's recoveries are used up, or there are none.
    RequestBudget,
    /// Those of this strategy are.
    StrategyBudget,
    /// The stall was not confirmed by the Edge (REC-2).
    Unconfirmed,
    /// A direct route (POL-12).
    Direct,
    /// An error that another attempt does not mend, or evidence while no attempt runs.
    NotReplayable,
    /// The request asks for what a continuation cannot give: several choices, structured output (SEG-5).
    Unsupported,
    /// The model's context window is not known (SEG-5).
    ContextUnknown,
    /// The continuation would not fit in it (SEG-5).
    ContextExceeded,
}

impl Ineligible {
    /// Every reason, for metrics.
    pub const ALL: [Self; 13] = [
        Self::Committed,
        Self::Closed,
        Self::SideEffect,
        Self::SnapshotTooLarge,
        Self::SnapshotGone,
        Self::RequestBudget,
        Self::StrategyBudget,
        Self::Unconfirmed,
        Self::Direct,
        Self::NotReplayable,
        Self::Unsupported,
        Self::ContextUnknown,
        Self::ContextExceeded,
    ];

    /// Its name in metrics and logs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Committed => "committed",
            Self::Closed => "closed",
            Self::SideEffect => "side_effect",
            Self::SnapshotTooLarge => "snapshot_too_large",
            Self::SnapshotGone => "snapshot_gone",
            Self::RequestBudget => "request_budget",
            Self::StrategyBudget => "strategy_budget",
            Self::Unconfirmed => "unconfirmed",
            Self::Direct => "direct",
            Self::NotReplayable => "not_replayable",
            Self::Unsupported => "unsupported",
            Self::ContextUnknown => "context_unknown",
            Self::ContextExceeded => "context_exceeded",
        }
    }
}

/// What follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// Another attempt; its budget is spent, whether or not an admission grants it.
    Recover {
        /// How it is made.
        strategy: Strategy,
        /// The how manieth of this strategy in this request, from 1.
        ordinal: u32,
        /// Whether the old run is to be cancelled if it still goes on. Not one that is fenced: its transport is closed and
        /// nothing is sent (REC-3).
        cancel_old: bool,
    },
    /// None; the request's failure is the one that was judged.
    Stay(Ineligible),
}

impl Verdict {
    /// What the metric of eligibility calls it: `eligible`, or the reason.
    pub fn eligibility(self) -> &'static str {
        match self {
            Self::Recover { .. } => "eligible",
            Self::Stay(why) => why.name(),
        }
    }
}
