//! Random interleavings of everything an owner and a link can do.

use std::collections::BTreeMap;

use bytes::Bytes;
use proptest::{collection::vec, prelude::*};
use proto::message::StreamNo;

use super::pair::{Pair, Way, body, cancel, end, pattern, start};
use crate::relay::Incoming;

const STREAMS: StreamNo = 4;

#[derive(Clone, Debug)]
enum Step {
    Open { stream: StreamNo, window: u32 },
    Respond { stream: StreamNo, bytes: usize },
    Upload { stream: StreamNo, bytes: usize },
    Release { stream: StreamNo, bytes: usize, at_edge: bool },
    Cross { to_edge: bool, budget: usize },
    Cancel { stream: StreamNo },
    Terminal { stream: StreamNo },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let stream = 1..=STREAMS;
    let step = prop_oneof![
        1 => (stream.clone(), 1..5000u32).prop_map(|(stream, window)| Step::Open { stream, window }),
        6 => (stream.clone(), 0..3000usize).prop_map(|(stream, bytes)| Step::Respond { stream, bytes }),
        1 => (stream.clone(), 0..20_000usize).prop_map(|(stream, bytes)| Step::Upload { stream, bytes }),
        6 => (stream.clone(), 0..3000usize, any::<bool>())
            .prop_map(|(stream, bytes, at_edge)| Step::Release { stream, bytes, at_edge }),
        6 => (any::<bool>(), 1..5000usize).prop_map(|(to_edge, budget)| Step::Cross { to_edge, budget }),
        1 => stream.clone().prop_map(|stream| Step::Cancel { stream }),
        1 => stream.prop_map(|stream| Step::Terminal { stream }),
    ];
    vec(step, 1..200)
}

/// What one run was given and what became of it.
#[derive(Default)]
struct Run {
    window: usize,
    response: Vec<u8>,
    upload: Option<Bytes>,
    cancelled: bool,
    ended: bool,
    released: [usize; 2],
}

struct World {
    pair: Pair,
    runs: BTreeMap<StreamNo, Run>,
}

impl World {
    fn apply(&mut self, step: Step) {
        match step {
            Step::Open { stream, window } => self.open(stream, window),
            Step::Respond { stream, bytes } => self.respond(stream, bytes),
            Step::Upload { stream, bytes } => {
                if let Some(run) = self.runs.get_mut(&stream).filter(|run| run.upload.is_none()) {
                    let body = Bytes::from(pattern(stream, bytes));
                    self.pair.edge.mux.queue_body(stream, body.clone()).unwrap();
                    run.upload = (bytes > 0).then_some(body);
                }
            }
            Step::Release { stream, bytes, at_edge } => self.release(stream, bytes, at_edge),
            Step::Cross { to_edge, budget } => {
                self.pair.cross(if to_edge { Way::ToEdge } else { Way::ToNode }, budget);
            }
            Step::Cancel { stream } => {
                if let Some(run) = self.runs.get_mut(&stream) {
                    run.cancelled = true;
                    self.pair.edge.mux.send(cancel(stream)).unwrap();
                }
            }
            Step::Terminal { stream } => {
                if let Some(run) = self.runs.get_mut(&stream).filter(|run| !run.ended) {
                    run.ended = true;
                    self.pair.node.mux.queue(stream, end(stream)).unwrap();
                }
            }
        }
        self.check();
    }

    fn open(&mut self, stream: StreamNo, window: u32) {
        if self.runs.contains_key(&stream) {
            return;
        }
        self.pair.open(stream, window);
        self.pair.node.mux.queue(stream, start(stream)).unwrap();
        self.runs.insert(stream, Run { window: window as usize, ..Run::default() });
    }

    fn respond(&mut self, stream: StreamNo, bytes: usize) {
        let Some(run) = self.runs.get_mut(&stream).filter(|run| !run.ended) else { return };
        let bytes = bytes.min(self.pair.node.mux.sendable(stream));
        let from = run.response.len();
        let piece = pattern(stream, from + bytes).split_off(from);
        run.response.extend_from_slice(&piece);
        self.pair.node.mux.queue(stream, body(stream, piece)).unwrap();
    }

    fn release(&mut self, stream: StreamNo, bytes: usize, at_edge: bool) {
        let Some(run) = self.runs.get_mut(&stream) else { return };
        let side = if at_edge { &mut self.pair.edge } else { &mut self.pair.node };
        let released = &mut run.released[usize::from(at_edge)];
        let bytes = bytes.min(side.bytes_of(stream).len() - *released);
        *released += bytes;
        side.mux.release(stream, bytes);
    }

    /// What holds at every moment.
    fn check(&self) {
        for (stream, run) in &self.runs {
            let (response, upload) = (self.pair.edge.bytes_of(*stream), self.pair.node.bytes_of(*stream));
            assert!(run.response.starts_with(response), "stream {stream}: other bytes than sent");
            assert!(run.upload.as_deref().unwrap_or_default().starts_with(upload));
            assert!(
                response.len() - run.released[1] <= run.window,
                "stream {stream}: more than its window held"
            );
            assert!(upload.len() - run.released[0] <= run.window);
        }
        let faults = |inbox: &[Incoming]| inbox.iter().any(|i| matches!(i, Incoming::StreamFault { .. }));
        assert!(!faults(&self.pair.edge.inbox) && !faults(&self.pair.node.inbox));
    }

    /// Once owners drain, everything that was not cancelled arrives.
    fn converge(&mut self) {
        for _ in 0..1_000_000 {
            for stream in self.runs.keys().copied().collect::<Vec<_>>() {
                self.release(stream, usize::MAX, true);
                self.release(stream, usize::MAX, false);
            }
            let crossed =
                self.pair.cross(Way::ToNode, 50_000).len() + self.pair.cross(Way::ToEdge, 50_000).len();
            if crossed == 0 {
                break;
            }
        }
        for (stream, run) in &self.runs {
            assert_eq!(self.pair.edge.bytes_of(*stream), run.response, "stream {stream}");
            if !run.cancelled {
                assert_eq!(self.pair.node.bytes_of(*stream), run.upload.as_deref().unwrap_or_default());
            }
        }
    }
}

proptest! {
    // req: WIR-6
    #[test]
    fn bytes_arrive_whole_in_order_and_within_their_window(steps in steps()) {
        let mut world = World { pair: Pair::new(), runs: BTreeMap::new() };
        for step in steps {
            world.apply(step);
        }
        world.converge();
    }

    #[test]
    fn no_sequence_of_messages_can_hurt_a_mux(
        messages in vec((0..6u8, 0..4u64, 0..4u64, 0..300usize, any::<u32>()), 0..100),
    ) {
        use proto::message::{BodyChunk, Credit, Message, TunnelFrame, TunnelFrameKind};
        let mut pair = Pair::new();
        pair.open(1, 200);
        pair.open(2, 200);
        pair.edge.mux.queue(2, start(2)).unwrap();
        for (kind, stream, sequence, bytes, number) in messages {
            let data = Bytes::from(vec![0; bytes]);
            let message = match kind {
                0 => Message::TunnelFrame(TunnelFrame { stream, sequence, kind: TunnelFrameKind::Body(data) }),
                1 => Message::BodyChunk(BodyChunk { stream, data, last: bytes % 2 == 0 }),
                2 => Message::Credit(Credit { stream, bytes: number }),
                3 => cancel(stream),
                4 => Message::HeartbeatPong,
                _ => Message::HeartbeatPing,
            };
            pair.edge.receive(pair.now, message).unwrap();
            let mut out = Vec::new();
            pair.edge.mux.poll_transmit(&mut out, 1000);
        }
    }
}
