//! What comes between two steps of the Edge, brought about by holding its control thread there.

use std::path::PathBuf;

use iop_tests::{
    Edge, Site,
    bench::{NODE, SOON, eventually, hooked_site, metric, node_status},
};
use proto::message::{Message, NodeReadyRequest, NodeReadyResponse, RegisterRequest, RegisterResponse};

use crate::support::fake_node::{FakeNode, ask, edge_of};

/// An Edge whose control thread can be held.
struct Stage {
    edge: Edge,
    file: PathBuf,
    site: Site,
}

impl Stage {
    fn new() -> anyhow::Result<Self> {
        let mut site = hooked_site()?;
        let file = site.dir().join("hold");
        site.set_env("IOP_TEST_HOLD", iop_tests::site::path(&file)?);
        Ok(Self { edge: edge_of(&site)?, file, site })
    }

    /// The first to pass `point` is held there.
    fn hold(&self, point: &str) -> anyhow::Result<()> {
        let beside = self.file.with_extension("new");
        std::fs::write(&beside, point)?;
        Ok(std::fs::rename(beside, &self.file)?)
    }

    fn is_held(&self) -> anyhow::Result<()> {
        eventually(SOON, "it is held", || Ok(std::fs::read_to_string(&self.file)? == "held"))
    }

    fn go_on(&self) -> anyhow::Result<()> {
        Ok(std::fs::remove_file(&self.file)?)
    }

    fn counted(&self, event: &str) -> anyhow::Result<f64> {
        metric(&self.edge, &format!("iop_edge_control_events_total{{event=\"{event}\"}}"))
    }
}

// req: FEN-7, FEN-3, FEN-2
#[test]
fn a_grant_whose_node_is_lost_before_it_is_sent_is_returned_and_its_request_served_by_the_next()
-> anyhow::Result<()> {
    let mut stage = Stage::new()?;
    let old = FakeNode::ready(&stage.site, &stage.edge, NODE)?;
    stage.hold("control.grant")?;
    let mut client = ask(&stage.site, &stage.edge, false)?;
    // The slot has been granted, and nobody knows it yet.
    stage.is_held()?;
    drop(old);
    stage.edge.process.wait_for("node link closed")?;
    stage.go_on()?;
    eventually(SOON, "it waits again", || {
        Ok(stage.counted("generations_fenced")? == 1.0 && metric(&stage.edge, "iop_edge_queued")? == 1.0)
    })?;
    assert_eq!((stage.counted("granted")?, stage.counted("settled")?), (1.0, 1.0));
    assert_eq!((stage.counted("requeued")?, metric(&stage.edge, "iop_edge_leases")?), (1.0, 0.0));

    let mut new = FakeNode::ready(&stage.site, &stage.edge, NODE)?;
    let stream = new.request()?.stream;
    new.answer(stream, "{}")?;
    let answer = client.answer()?;
    assert_eq!((answer.status, answer.header("x-iop-attempts")), (200, Some("2")));
    eventually(SOON, "every slot is free", || Ok(metric(&stage.edge, "iop_edge_leases")? == 0.0))?;
    assert_eq!((stage.counted("granted")?, stage.counted("settled")?), (2.0, 2.0));
    Ok(())
}

// req: REG-7, REG-8, FEN-4
#[test]
fn ready_from_one_that_was_superseded_meanwhile_is_refused_with_a_reason_and_changes_nothing()
-> anyhow::Result<()> {
    // It was pending, or it was ready.
    for was_ready in [false, true] {
        let stage = Stage::new()?;
        let mut old = FakeNode::dial(&stage.site, &stage.edge, NODE)?;
        assert!(matches!(old.register(NODE)?, RegisterResponse::Accepted { .. }));
        assert!(!was_ready || old.ask_ready(NODE)?.ready);
        let mut new = FakeNode::dial(&stage.site, &stage.edge, NODE)?;
        stage.hold("control.turn")?;
        let (node_id, agent_version) = (NODE.parse()?, "fake".to_owned());
        new.send(&Message::RegisterRequest(RegisterRequest {
            node_id,
            agent_version,
            token: String::new(),
        }))?;
        stage.is_held()?;
        new.is_heard()?;
        old.send(&Message::NodeReadyRequest(NodeReadyRequest { node_id: NODE.parse()? }))?;
        old.is_heard()?;
        // Both words are before control, in this order.
        stage.go_on()?;
        let Message::NodeReadyResponse(NodeReadyResponse { ready, reason }) = old.next()? else {
            panic!("expected an answer to ready");
        };
        assert!(!ready && !reason.is_empty(), "{reason}");
        assert_eq!(old.wait_closed()?.as_deref(), Some("superseded"));
        assert!(matches!(new.next()?, Message::RegisterResponse(RegisterResponse::Accepted { .. })));
        assert_eq!(node_status(&stage.edge)?["connected"], false, "the new one is pending");
        let connected = usize::from(was_ready);
        assert_eq!(stage.edge.process.text().matches("node connected").count(), connected);
        assert!(new.ask_ready(NODE)?.ready);
        assert_eq!(stage.counted("ready_refused")?, 1.0);
        assert_eq!(stage.counted("generations_fenced")?, connected as f64);
        crate::support::fake_node::still_serves(&stage.site, &stage.edge, &mut new)?;
    }
    Ok(())
}
