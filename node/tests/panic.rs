//! A defect in a run's task costs that run and nothing else.
#![allow(clippy::unwrap_used, reason = "a test ends where something unexpected begins")]

mod support;

use std::{rc::Rc, sync::mpsc, time::Duration};

use bytes::Bytes;
use dataplane::{
    clock,
    local::Latch,
    net::dial,
    relay::{CloseReason, Handler, Incoming, Link, LinkHandle, LinkLimits, connect},
    shard::{Shard, ShardSpec, spawn_guarded},
    tls::config::server_name,
};
use iop_node::{
    gate::{Gate, Permit},
    metrics::{Metrics, RunOutcome},
    run::{
        control::RunTable,
        terminal::{Execution, Terminal},
    },
};
use proto::message::{ErrorKind, Message, RunEventKind, TunnelFrameKind};
use support::{
    certs::Pki,
    edge::Edge,
    node::{chat, run},
};

/// Answers every tunnel and every run with a task that panics while it holds its place.
struct Defective {
    link: LinkHandle,
    table: RunTable,
    gate: Gate,
    metrics: Rc<Metrics>,
    done: Rc<Latch>,
}

impl Defective {
    fn enter(&self) -> Permit {
        self.gate.try_enter().expect("the gate was not freed")
    }
}

impl Handler for Defective {
    fn on_incoming(&mut self, incoming: Incoming) {
        let (execution, stream, window) = match incoming {
            Incoming::Control(Message::TunnelRequest(request)) => {
                (Execution::Tunnel, request.stream, request.window_bytes)
            }
            Incoming::Control(Message::RunRequest(request)) => {
                (Execution::Run, request.stream, request.window_bytes)
            }
            _ => return self.done.close(),
        };
        let (entry, _control) = self.table.enter(stream).unwrap();
        self.link.open(stream, window, window).unwrap();
        let metrics = Rc::clone(&self.metrics);
        let terminal = Terminal::new(execution, self.link.clone(), stream, metrics, self.enter(), entry);
        spawn_guarded(async move {
            if execution == Execution::Run {
                let begun = RunEventKind::Delta { text: "begun".to_owned(), reasoning: String::new() };
                terminal.event(RunEventKind::Start, Default::default()).unwrap();
                terminal.event(begun, Default::default()).unwrap();
            } else {
                terminal.start(200, Vec::new(), false).unwrap();
                terminal.body(Bytes::from_static(b"begun")).unwrap();
            }
            panic!("planned");
        });
    }

    fn on_batch_end(&mut self) {}
}

// req: TUN-2, RUN-1, GAT-1
#[test]
fn a_panic_frees_the_gate_and_ends_the_stream_with_one_internal_error() {
    let pki = Pki::new();
    let edge = Edge::start(pki.edge_tls("edge-1"));
    let (address, tls) = (edge.address, pki.node_tls("box1", "edge-1"));
    let (sent, outcome) = mpsc::channel();
    let spec = ShardSpec { name: "node".to_owned(), cpu: None, driver: support::driver() };
    let shard = Shard::start(spec, move || async move {
        let deadline = clock::now() + Duration::from_secs(5);
        let stream = dial(address, deadline).await.unwrap();
        let established = connect(stream, tls, server_name("localhost"), deadline).await.unwrap();
        let link = Link::new(established.session, LinkLimits::default());
        let handle = link.handle();
        let metrics = Rc::new(Metrics::new().unwrap());
        let gate = Gate::new(1);
        let done = Rc::new(Latch::new());
        let mut handler = Defective {
            link: handle.clone(),
            table: RunTable::default(),
            gate: gate.clone(),
            metrics: Rc::clone(&metrics),
            done: Rc::clone(&done),
        };
        spawn_guarded(async move {
            link.run(established.stream, established.early, &mut handler).await;
        });
        done.closed().await;
        sent.send((gate.held(), metrics.runs(RunOutcome::Failed(ErrorKind::Internal)))).unwrap();
        handle.shutdown(CloseReason::Draining);
        handle.ended().await;
    })
    .unwrap();
    edge.connected();
    for stream in 1..=2 {
        edge.open(chat(stream, "{}"), Bytes::new());
        assert!(matches!(edge.frame().kind, TunnelFrameKind::ResponseStart { status: 200, .. }));
        assert!(matches!(edge.frame().kind, TunnelFrameKind::Body(body) if &body[..] == b"begun"));
        let last = edge.frame();
        assert!(matches!(last.kind, TunnelFrameKind::Error(error) if error.kind == ErrorKind::Internal));
    }
    for stream in 3..=4 {
        edge.open_run(run(stream, "{}"), Bytes::new());
        let outcome = edge.outcome(stream);
        assert_eq!(outcome.text, "begun");
        assert_eq!(outcome.error().0, ErrorKind::Internal);
    }
    edge.is_quiet();
    // Any other message ends the fake Node.
    edge.send(Message::NodeReadyResponse(proto::message::NodeReadyResponse {
        ready: true,
        reason: String::new(),
    }));
    assert_eq!(outcome.recv_timeout(support::PATIENCE).unwrap(), (0, 4));
    assert_eq!(shard.tasks.panicked(), 4);
    shard.join();
}
