//! Metrics of clients' HTTP/2 connections.

use dataplane::http::http2::{Ending, ErrorCode, Notice};
use prometheus::{IntCounterVec, IntGauge, Registry};

use super::{counters, gauge};

/// All of them.
#[derive(Debug)]
pub struct Http2Metrics {
    /// Connections that speak HTTP/2.
    pub connections: IntGauge,
    ended: IntCounterVec,
    resets: IntCounterVec,
    goaways: IntCounterVec,
}

impl Http2Metrics {
    pub(super) fn new(r: &Registry) -> anyhow::Result<Self> {
        let metrics = Self {
            connections: gauge(r, "iop_edge_http2_connections", "Client connections that speak HTTP/2")?,
            ended: counters(
                r,
                "iop_edge_http2_connections_ended_total",
                "HTTP/2 connections of clients that ended, by reason",
                &["reason"],
            )?,
            resets: counters(
                r,
                "iop_edge_http2_resets_total",
                "Streams that were reset, by whom and by the code",
                &["by", "code"],
            )?,
            goaways: counters(
                r,
                "iop_edge_http2_goaways_total",
                "GOAWAY frames, by whom and by the code",
                &["by", "code"],
            )?,
        };
        for ending in Ending::ALL {
            metrics.ended.with_label_values(&[ending.label()]);
        }
        for code in ErrorCode::LABELS {
            for by in ["client", "edge"] {
                metrics.resets.with_label_values(&[by, code]);
                metrics.goaways.with_label_values(&[by, code]);
            }
        }
        Ok(metrics)
    }

    /// Counts a frame. All labels are closed sets.
    pub fn note(&self, notice: Notice) {
        let (counters, by, code) = match notice {
            Notice::Reset(code) => (&self.resets, "edge", code),
            Notice::ResetByClient(code) => (&self.resets, "client", code),
            Notice::Gone(code) => (&self.goaways, "edge", code),
            Notice::GoneByClient(code) => (&self.goaways, "client", code),
        };
        counters.with_label_values(&[by, code.label()]).inc();
    }

    /// Counts an ended connection.
    pub fn ended(&self, ending: Ending) {
        self.ended.with_label_values(&[ending.label()]).inc();
    }
}
