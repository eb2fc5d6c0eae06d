//! One Node ID that comes back a thousand times, while its old connections linger and talk on.

use std::{collections::VecDeque, sync::Arc};

use anyhow::ensure;
use bytes::Bytes;
use iop_tests::{
    Edge, ProviderYaml, Site,
    bench::{self, NODE, SOON, assert_broken_stream, assert_error, eventually, provider_at, yaml},
    http::{Answer, Raw},
    procfs,
};
use proto::message::{
    ErrorKind, ExecutionError, Message, NodeReadyRequest, RegisterRequest, RegisterResponse, StreamNo,
    TunnelFrameKind,
};
use rustls::ClientConfig;

use crate::support::{
    certs::{self, Identity},
    fake_node::{FakeNode, SSE, ask, start},
};

const FLAPS: usize = 1_000;
/// Old connections that are kept open at a time.
const KEPT: usize = 12;

/// The Edge, the newest connection, and what runs on it.
struct Flapping<'a> {
    site: &'a Site,
    edge: &'a Edge,
    tls: Arc<ClientConfig>,
    newest: FakeNode,
    /// The one run that the only slot allows; its number on the newest connection.
    running: (Raw, StreamNo),
    /// How much of it has been answered.
    begun: bool,
    old: VecDeque<FakeNode>,
    /// Runs that ended whole, and that ended with their Node.
    ended: (usize, usize),
}

fn registration() -> anyhow::Result<Message> {
    let (node_id, agent_version) = (NODE.parse()?, "fake".to_owned());
    Ok(Message::RegisterRequest(RegisterRequest { node_id, agent_version, token: String::new() }))
}

impl Flapping<'_> {
    /// A client asks and the newest connection is given its run.
    fn run(&mut self, round: usize) -> anyhow::Result<()> {
        let mut client = ask(self.site, self.edge, true)?;
        let number = self.newest.request()?.stream;
        self.begun = round.is_multiple_of(2);
        if self.begun {
            self.newest.frame(number, 0, start(SSE))?;
            self.newest.frame(
                number,
                1,
                TunnelFrameKind::Body(Bytes::from_static(b"data: {\"n\":1}\n\n")),
            )?;
            client.wait_for("data:")?;
        }
        self.running = (client, number);
        Ok(())
    }

    /// The newest connection ends the run.
    fn ends(&mut self) -> anyhow::Result<()> {
        if !self.begun {
            return self.newest.answer(self.running.1, "{}");
        }
        self.newest.frame(
            self.running.1,
            2,
            TunnelFrameKind::Body(Bytes::from_static(b"data: [DONE]\n\n")),
        )?;
        self.newest.frame(self.running.1, 3, TunnelFrameKind::End)
    }

    /// Another connection takes the place of the newest one.
    fn flap(&mut self, round: usize) -> anyhow::Result<()> {
        let mut new = FakeNode::dial_as(&self.edge.node, Arc::clone(&self.tls))?;
        new.send(&registration()?)?;
        if round % 4 == 1 {
            // While the Edge is at it: these may still count, or not.
            let _closed = self.ends();
            let _closed = self.newest.send(&Message::NodeDraining);
        }
        if round % 4 == 2 {
            // Before the new one is ready: it wants to have its place back.
            let _closed = self.newest.send(&registration()?);
            let ready = Message::NodeReadyRequest(NodeReadyRequest { node_id: NODE.parse()? });
            let _closed = self.newest.send(&ready);
        }
        let registered = new.next()?;
        ensure!(
            matches!(registered, Message::RegisterResponse(RegisterResponse::Accepted { .. })),
            "round {round}: {}",
            registered.name()
        );
        // Who comes before it is ready waits for it; who was running is told at once.
        let early = if round.is_multiple_of(3) { Some(ask(self.site, self.edge, false)?) } else { None };
        self.is_over(round)?;
        ensure!(new.ask_ready(NODE)?.ready, "round {round}");

        let old = std::mem::replace(&mut self.newest, new);
        self.lingers(old, round)?;
        let mut client = early.map_or_else(|| ask(self.site, self.edge, false), Ok)?;
        let number = self.newest.request()?.stream;
        self.newest.answer(number, "{\"fine\":true}")?;
        let answer = client.answer()?;
        ensure!(
            (answer.status, &*answer.text()) == (200, "{\"fine\":true}"),
            "round {round}: {}",
            answer.text()
        );
        ensure!(answer.header("x-iop-attempts") == Some("1"), "round {round}: {}", answer.head);
        Ok(())
    }

    /// The run of the connection that was superseded has ended, in a way that its client can tell.
    fn is_over(&mut self, round: usize) -> anyhow::Result<()> {
        let answer: Answer = self.running.0.answer()?;
        if round % 4 == 1 && answer.status == 200 && answer.whole {
            self.ended.0 += 1;
            return Ok(());
        }
        self.ended.1 += 1;
        if round % 4 == 1 && answer.is_done() {
            // All of it but its end came through: it is cut off, and its client has what it asked for.
            return Ok(());
        }
        if self.begun && round % 4 != 1 || answer.status == 200 {
            assert_broken_stream(&answer, "upstream_error");
        } else {
            assert_error(&answer, 502, Some("upstream_error"));
        }
        Ok(())
    }

    /// An old connection talks on when the new one is ready, and closes much later or never says so.
    fn lingers(&mut self, mut old: FakeNode, round: usize) -> anyhow::Result<()> {
        let number = self.running.1;
        let busy = || TunnelFrameKind::Error(ExecutionError::new(ErrorKind::Busy, "full"));
        let words = [
            registration()?,
            Message::NodeReadyRequest(NodeReadyRequest { node_id: NODE.parse()? }),
            Message::NodeDraining,
        ];
        for word in &words {
            // The Edge has closed it or is about to: a write may fail, and that is all that may happen.
            let _closed = old.send(word);
        }
        for kind in [TunnelFrameKind::Body(Bytes::from_static(b"late")), busy(), TunnelFrameKind::End] {
            let _closed = old.frame(number, 2, kind);
        }
        if round.is_multiple_of(5) {
            let _closed = old.half_close();
        }
        self.old.push_back(old);
        if self.old.len() > KEPT {
            self.old.pop_front();
        }
        Ok(())
    }

    fn counted(&self, event: &str) -> anyhow::Result<f64> {
        bench::metric(self.edge, &format!("iop_edge_control_events_total{{event=\"{event}\"}}"))
    }
}

// req: FEN-1, FEN-2, FEN-3, FEN-4, FEN-6, REG-7, REG-8, POL-2
#[test]
fn a_thousand_flaps_of_one_node_lose_no_slot_and_return_none_twice() -> anyhow::Result<()> {
    let site = bench::site()?;
    // One slot: the first that is lost stops everything.
    let edge =
        site.edge(&yaml().with(ProviderYaml { capacity: 1, ..provider_at("http://127.0.0.1:9/v1") }))?;
    let tls = certs::client(Some(&Identity::of_bundle(&site.join_bundle(NODE, &edge.node)?)?))?;
    let mut newest = FakeNode::dial_as(&edge.node, Arc::clone(&tls))?;
    ensure!(matches!(newest.register(NODE)?, RegisterResponse::Accepted { .. }));
    ensure!(newest.ask_ready(NODE)?.ready);
    let client = ask(&site, &edge, true)?;
    let number = newest.request()?.stream;
    let running = (client, number);
    let (site, edge) = (&site, &edge);
    let mut f =
        Flapping { site, edge, tls, newest, running, begun: false, old: VecDeque::new(), ended: (0, 0) };
    for round in 0..FLAPS {
        f.flap(round)?;
        if round % 100 == 50 {
            // There is one slot, and not two: a second request is not sent until the first is over.
            f.run(0)?;
            let mut second = ask(site, edge, false)?;
            eventually(SOON, "it waits", || Ok(bench::metric(edge, "iop_edge_queued")? == 1.0))?;
            f.newest.is_heard()?;
            f.ends()?;
            assert!(f.running.0.answer()?.is_done());
            let number = f.newest.request()?.stream;
            f.newest.answer(number, "{}")?;
            assert_eq!(second.answer()?.status, 200);
        }
        f.run(round)?;
    }
    f.ends()?;
    assert_eq!(f.running.0.answer()?.status, 200);
    println!("runs that ended whole beside a flap, and with their Node: {:?}", f.ended);

    eventually(SOON, "every slot is free", || Ok(bench::metric(edge, "iop_edge_leases")? == 0.0))?;
    eventually(SOON, "only the newest is open", || Ok(bench::metric(edge, "iop_edge_node_links")? == 1.0))?;
    let flaps = FLAPS as f64;
    assert_eq!((f.counted("ready")?, f.counted("superseded")?), (flaps + 1.0, flaps));
    assert_eq!(f.counted("generations_fenced")?, flaps);
    // Each flap one run that it ended and one that it served, and two more each hundred; none of them twice.
    let runs = 2.0 * flaps + 1.0 + 2.0 * (flaps / 100.0);
    assert_eq!((f.counted("granted")?, f.counted("settled")?), (runs, runs));
    // An end that crossed the fence may have reached its client first.
    let fenced = f.counted("leases_fenced")?;
    assert!(f.ended.1 as f64 <= fenced && fenced <= flaps, "{fenced} {:?}", f.ended);
    assert!(
        f.counted("stale_inputs")? + f.counted("ready_refused")? > 0.0,
        "some of the late words came through"
    );
    for gauge in ["iop_edge_queued", "iop_edge_leases_cancelling", "iop_edge_requests_active"] {
        assert_eq!(bench::metric(edge, gauge)?, 0.0, "{gauge}");
    }
    let log = edge.process.text();
    assert_eq!(log.matches("node connected").count(), FLAPS + 1);
    assert!(!log.contains("panicked"), "{log}");
    assert!(procfs::fds(edge.process.pid())? < 100, "its sockets are closed, whatever the other side does");
    Ok(())
}
