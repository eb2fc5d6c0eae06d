//! What a client, the log and the metrics are told of how an answer came about.

use std::{fmt::Write as _, sync::Arc};

use control::effect::Grant;
use dataplane::clock;

use super::{super::written::Written, Ended, Plan, Session, WayOut, recover::Recovery};
use crate::{
    reply::{CLIENT_GONE, CLIENT_STALLED},
    response::Answer,
    usage::Observed,
};

impl Session<'_> {
    /// What is known of the tokens of an answer that has begun.
    fn observed(&self, is_whole: bool) -> Option<Observed> {
        if !self.downstream.has_begun() {
            return None;
        }
        match &self.written {
            Some(written) => Some(written.observed(is_whole)),
            None => self.downstream.observed(is_whole),
        }
    }

    /// Tells in a stream what came after its head: attempts and providers that the head could not know of (API-2).
    pub(super) fn tell_recovery(&mut self) {
        let recovery = &self.recovery;
        let is_untold = recovery.has_begun() && recovery.told < self.attempt.dispatches();
        if is_untold && self.downstream.has_begun() && self.downstream.may_insert() {
            let mut line = format!(": iop attempts={}", self.attempt.dispatches());
            if let Some(kind) = recovery.kind() {
                let _infallible = write!(line, " recovery={kind}");
            }
            let providers = joined(recovery.providers());
            let _infallible = writeln!(line, " providers={providers}");
            self.downstream.comment(line.as_bytes());
            self.recovery.told = self.attempt.dispatches();
        }
    }

    /// Ends everything, and tells the client what is left to be told.
    pub(super) async fn finish(&mut self, way_out: WayOut) -> Ended {
        self.withdraw();
        self.recovery.owner.close();
        // Stops the run and returns the lease before anything is written to a client that may be slow.
        self.run = None;
        self.held = None;
        self.attempt.abandon();
        self.shard.metrics.response_bytes.inc_by(self.downstream.bytes());
        let usage = self.observed(matches!(way_out, WayOut::Complete));
        if let Some(usage) = &usage {
            self.shard.metrics.used(usage);
        }
        let unknown = self.written.as_ref().map_or(0, |written| written.unknown_calls());
        self.shard.metrics.text_tools_unknown.inc_by(unknown);
        self.settle_end(&way_out);
        self.log_recovery();
        let (outcome, reusable) = match way_out {
            WayOut::Complete => ("ok", true),
            WayOut::ClientGone => (CLIENT_GONE, false),
            WayOut::ClientStalled => (CLIENT_STALLED, false),
            WayOut::Untold(fault) => (fault.outcome(), false),
            WayOut::Refuse(fault) => {
                if self.shard.draining.is_closed() {
                    self.downstream.client.set_draining();
                }
                self.tell_recovery();
                let begun = self.written.as_mut().filter(|_| self.downstream.has_begun());
                let end = begun.and_then(|written| written.failed(&fault));
                let written = self.written.as_deref();
                let (grant, dispatches) = (self.grant.as_deref(), self.attempt.dispatches());
                let answer = answer(&self.plan, grant, dispatches, written, &self.recovery);
                let told = self.downstream.refuse(&fault, &answer, &self.plan.scan.model, end);
                (fault.outcome(), told.await)
            }
        };
        let providers = self.recovery.providers();
        Ended {
            outcome,
            reusable,
            status: self.downstream.status(),
            provider: self.grant.as_ref().map(|grant| Arc::clone(&grant.provider)),
            attempts: self.attempt.dispatches(),
            recovery: self.recovery.kind(),
            providers: (!providers.is_empty()).then(|| joined(providers)),
            bytes: self.downstream.bytes(),
            queued: self.recovery.queued(self.grant.as_deref()),
            first_byte: self.downstream.first_byte(),
            usage,
        }
    }
}

/// How the answer came about, so far.
pub(super) fn answer<'a>(
    plan: &'a Plan,
    grant: Option<&'a Grant>,
    dispatches: u32,
    written: Option<&Written>,
    recovery: &'a Recovery,
) -> Answer<'a> {
    Answer {
        request_id: &plan.request_id,
        provider: grant.map(|grant| &*grant.provider),
        attempts: dispatches,
        queued: recovery.queued(grant),
        recovery: recovery.kind(),
        providers: recovery.providers(),
        text_tools: written.is_some_and(Written::has_text_tools),
        surface: plan.surface,
        took: Some(clock::now().saturating_duration_since(plan.started)),
        allow_origin: plan.allow_origin.as_deref(),
    }
}

/// Ids of the configuration, as headers list them.
fn joined(providers: &[Arc<str>]) -> String {
    providers.join(",")
}
