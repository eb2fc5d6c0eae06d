//! Metrics of what control decides and holds: taken over from its counters and snapshots when somebody looks.

use ::control::{
    Counters,
    counters::{Probes, Returned},
    effect::{ProviderStatus, Snapshot},
};
use prometheus::{IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Registry};

use super::{clamp, counter, counters, gauge, gauges};

/// All of them.
#[derive(Debug)]
pub(super) struct ControlMetrics {
    node_up: IntGaugeVec,
    in_flight: IntGaugeVec,
    capacity: IntGaugeVec,
    overlaid: IntGaugeVec,
    queued: IntGauge,
    leases: IntGauge,
    cancelling: IntGauge,
    granted: IntCounter,
    returned: IntCounterVec,
    held: IntGauge,
    direct_granted: IntCounter,
    direct_held: IntGauge,
    evidence: IntCounterVec,
    transitions: IntCounterVec,
    probes: IntCounter,
    answers: IntCounterVec,
    events: IntCounterVec,
    config_generation: IntGauge,
}

impl ControlMetrics {
    pub(super) fn new(r: &Registry) -> anyhow::Result<Self> {
        Ok(Self {
            node_up: gauges(r, "iop_edge_node_connected", "1 while the Node is dispatch-ready", &["node"])?,
            in_flight: gauges(r, "iop_edge_provider_in_flight", "Leases held", &["node", "provider"])?,
            capacity: gauges(r, "iop_edge_provider_capacity", "Effective capacity", &["node", "provider"])?,
            overlaid: gauges(
                r,
                "iop_edge_provider_overlaid",
                "1 while the provider is out because its Node found it unavailable",
                &["node", "provider"],
            )?,
            queued: gauge(r, "iop_edge_queued", "Requests waiting for a slot")?,
            leases: gauge(r, "iop_edge_leases", "Lease records")?,
            cancelling: gauge(
                r,
                "iop_edge_leases_cancelling",
                "Leases whose holder is gone and whose slot is not back yet",
            )?,
            granted: counter(r, "iop_edge_leases_granted_total", "Slots granted")?,
            returned: counters(r, "iop_edge_leases_returned_total", "Slots returned, by cause", &["cause"])?,
            held: gauge(r, "iop_edge_leases_held", "Slots granted and not returned")?,
            direct_granted: counter(r, "iop_edge_direct_granted_total", "Runs of direct routes begun")?,
            direct_held: gauge(r, "iop_edge_direct_held", "Runs of direct routes that are not over")?,
            evidence: counters(
                r,
                "iop_edge_provider_health_evidence_total",
                "Stalls that Nodes reported, by what became of their evidence",
                &["result"],
            )?,
            transitions: counters(
                r,
                "iop_edge_provider_health_transitions_total",
                "Providers taken out and brought back",
                &["transition"],
            )?,
            probes: counter(r, "iop_edge_probes_sent_total", "Probes of providers that are out")?,
            answers: counters(r, "iop_edge_probe_answers_total", "Answers to probes", &["outcome"])?,
            events: counters(
                r,
                "iop_edge_control_events_total",
                "What the decision machine did, by event",
                &["event"],
            )?,
            config_generation: gauge(r, "iop_edge_config_generation", "Configuration generation in force")?,
        })
    }

    pub(super) fn node_connected(&self, node: &str, is_connected: bool) {
        self.node_up.with_label_values(&[node]).set(i64::from(is_connected));
    }

    /// Every series of a closed set is there from the first call on, at 0 where nothing happened.
    pub(super) fn observe_counters(&self, c: &Counters) {
        raise(&self.granted, c.granted);
        raise_each(&self.returned, returned(&c.returned));
        self.held.set(clamp(c.granted.saturating_sub(c.settled)));
        raise(&self.direct_granted, c.direct_granted);
        self.direct_held.set(clamp(c.direct_granted.saturating_sub(c.direct_returned)));
        let evidence =
            [("confirmed", c.handoffs), ("rejected", c.evidence_rejected), ("stale", c.evidence_stale)];
        raise_each(&self.evidence, evidence);
        let transitions = [
            ("lowered", c.overlays_lowered),
            ("cleared", c.overlays_cleared),
            ("dropped", c.overlays_dropped),
        ];
        raise_each(&self.transitions, transitions);
        raise(&self.probes, c.probes.sent);
        raise_each(&self.answers, answers(&c.probes));
        raise_each(&self.events, events(c));
    }

    pub(super) fn observe_snapshot(&self, snapshot: &Snapshot) {
        self.config_generation.set(clamp(snapshot.config_generation));
        self.queued.set(clamp(snapshot.queued as u64));
        self.leases.set(clamp(snapshot.leases as u64));
        self.cancelling.set(clamp(snapshot.cancelling as u64));
        for node in &snapshot.nodes {
            self.node_connected(&node.id, node.connected);
            for provider in &node.providers {
                let labels = &[&*node.id, &*provider.id];
                self.in_flight.with_label_values(labels).set(i64::from(provider.in_flight));
                self.capacity.with_label_values(labels).set(i64::from(provider.capacity));
                let overlaid = provider.status == ProviderStatus::Unavailable;
                self.overlaid.with_label_values(labels).set(i64::from(overlaid));
            }
        }
    }
}

/// Raises a counter to what the machine counted.
fn raise(counter: &IntCounter, to: u64) {
    counter.inc_by(to.saturating_sub(counter.get()));
}

fn raise_each<const N: usize>(counters: &IntCounterVec, to: [(&'static str, u64); N]) {
    for (label, count) in to {
        raise(&counters.with_label_values(&[label]), count);
    }
}

fn returned(r: &Returned) -> [(&'static str, u64); 8] {
    let Returned { completed, failed, busy, not_sent, abandoned, cancelled, cancel_bound, fenced } = *r;
    [
        ("completed", completed),
        ("failed", failed),
        ("busy", busy),
        ("not_sent", not_sent),
        ("abandoned", abandoned),
        ("cancelled", cancelled),
        ("cancel_bound", cancel_bound),
        ("fenced", fenced),
    ]
}

fn answers(p: &Probes) -> [(&'static str, u64); 5] {
    let Probes { sent: _, cleared, unavailable, rejected, failed, stray } = *p;
    [
        ("cleared", cleared),
        ("unavailable", unavailable),
        ("rejected", rejected),
        ("failed", failed),
        ("stray", stray),
    ]
}

/// The machine's counts by the name of their event.
fn events(c: &Counters) -> [(&'static str, u64); 27] {
    [
        ("registrations_accepted", c.registrations_accepted),
        ("registrations_refused", c.registrations_refused),
        ("ready", c.ready),
        ("ready_refused", c.ready_refused),
        ("ready_timeouts", c.ready_timeouts),
        ("superseded", c.superseded),
        ("draining", c.draining),
        ("generations_fenced", c.generations_fenced),
        ("admitted", c.admitted),
        ("granted", c.granted),
        ("settled", c.settled),
        ("leases_fenced", c.leases_fenced),
        ("cancelled", c.cancelled),
        ("cancel_bound_reached", c.cancel_bound_reached),
        ("failed", c.failed),
        ("busy", c.busy),
        ("requeued", c.requeued),
        ("refused_unknown_model", c.refused_unknown_model),
        ("refused_unservable", c.refused_unservable),
        ("refused_busy", c.refused_busy),
        ("refused_no_node", c.refused_no_node),
        ("queue_full", c.queue_full),
        ("queue_timeouts", c.queue_timeouts),
        ("withdrawn", c.withdrawn),
        ("stale_inputs", c.stale_inputs),
        ("reloads", c.reloads),
        ("candidates_examined", c.candidates_examined),
    ]
}
