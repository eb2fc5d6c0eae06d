//! What is remembered of one provider within one generation of its Node.

use alloc::sync::Arc;
use core::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{
    input::{CommandId, Moment},
    limits::{PROBE_WAIT_MAX, PROBE_WAIT_MIN},
};

/// The record of one provider. It exists from the first observation that was applied until the generation or the
/// provider ends.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Health {
    /// Sequence of the last observation that was applied (HND-4, CAP-2).
    pub(crate) applied: u64,
    pub(crate) overlay: Option<Overlay>,
}

/// A provider that is taken out.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Overlay {
    pub(crate) since: Moment,
    /// What failed last, and is to be probed (CAP-4).
    pub(crate) adapter: Arc<str>,
    pub(crate) target: Arc<str>,
    /// Deadline of its timer; `None` while it is not to be probed.
    pub(crate) next_probe: Option<Moment>,
    /// The command whose answer counts.
    pub(crate) outstanding: Option<CommandId>,
    /// Commands sent.
    pub(crate) probes: u32,
    /// The wait that the next arming takes.
    wait: Duration,
}

impl Overlay {
    pub(crate) fn new(since: Moment, adapter: Arc<str>, target: Arc<str>) -> Self {
        Self { since, adapter, target, next_probe: None, outstanding: None, probes: 0, wait: PROBE_WAIT_MIN }
    }

    /// Plans the next probe: after 5 s at first, then twice as long each time, up to 60 s (CAP-3).
    pub(crate) fn arm(&mut self, now: Moment) -> Moment {
        let at = now.after(self.wait);
        let times = if planted!(ProbeWaitStays) { 1 } else { 2 };
        self.wait = self.wait.saturating_mul(times).min(PROBE_WAIT_MAX);
        self.next_probe = Some(at);
        at
    }
}
