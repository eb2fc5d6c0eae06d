//! Two muxes with a virtual link between them: bytes cross when the test says so, time passes when it says so.

use std::{collections::BTreeMap, time::Instant};

use bytes::{Bytes, BytesMut};
use proto::{
    frame::Decoder,
    message::{
        Cancel, ErrorKind, ExecutionError, Message, RunEvent, RunEventKind, StreamNo, TunnelFrame,
        TunnelFrameKind, TunnelRequest,
    },
};

use crate::{
    clock,
    relay::{Incoming, LinkFault, Mux, MuxLimits, link::LINK_WRITE_BYTES},
};

/// The window of most tests.
pub(super) const WINDOW: u32 = 256 * 1024;

pub(super) struct Side {
    pub(super) mux: Mux,
    /// Everything its mux said about what arrived, heartbeats and late frames left out.
    pub(super) inbox: Vec<Incoming>,
    /// Payload that arrived, by stream.
    pub(super) bytes: BTreeMap<StreamNo, Vec<u8>>,
}

impl Side {
    fn new(now: Instant, limits: MuxLimits) -> Self {
        Self { mux: Mux::new(limits, now), inbox: Vec::new(), bytes: BTreeMap::new() }
    }

    pub(super) fn bytes_of(&self, stream: StreamNo) -> &[u8] {
        self.bytes.get(&stream).map_or(&[], Vec::as_slice)
    }

    pub(super) fn receive(&mut self, now: Instant, message: Message) -> Result<(), LinkFault> {
        let incoming = self.mux.handle(now, message)?;
        if let Incoming::Data { stream, message, .. } = &incoming {
            self.bytes.entry(*stream).or_default().extend_from_slice(payload(message));
        }
        if incoming != Incoming::Ignored {
            self.inbox.push(incoming);
        }
        Ok(())
    }

    /// Gives all received payload back, as an owner that drains at once.
    pub(super) fn drain(&mut self) {
        for incoming in &self.inbox {
            if let Incoming::Data { stream, cost, .. } = incoming {
                self.mux.release(*stream, *cost);
            }
        }
        self.inbox.clear();
    }
}

/// Which way bytes go.
#[derive(Clone, Copy, Debug)]
pub(super) enum Way {
    ToNode,
    ToEdge,
}

pub(super) struct Pair {
    pub(super) now: Instant,
    pub(super) edge: Side,
    pub(super) node: Side,
}

impl Pair {
    pub(super) fn new() -> Self {
        Self::with(MuxLimits::default())
    }

    pub(super) fn with(limits: MuxLimits) -> Self {
        let now = clock::now();
        Self { now, edge: Side::new(now, limits), node: Side::new(now, limits) }
    }

    /// Opens a stream on both sides, with the same window both ways.
    pub(super) fn open(&mut self, stream: StreamNo, window: u32) {
        self.edge.mux.open(stream, window, window).unwrap();
        self.node.mux.open(stream, window, window).unwrap();
    }

    /// One write of at most about `budget` bytes crosses. Gives the messages that did.
    pub(super) fn cross(&mut self, way: Way, budget: usize) -> Vec<Message> {
        let (from, to) = match way {
            Way::ToNode => (&mut self.edge, &mut self.node),
            Way::ToEdge => (&mut self.node, &mut self.edge),
        };
        let mut out = Vec::new();
        let appended = from.mux.poll_transmit(&mut out, budget);
        assert_eq!(appended, out.len());
        let messages = decode(&out);
        for message in &messages {
            to.receive(self.now, message.clone()).unwrap();
        }
        messages
    }

    /// Writes cross both ways until neither side has any.
    pub(super) fn settle(&mut self) {
        while !self.cross(Way::ToNode, LINK_WRITE_BYTES).is_empty()
            | !self.cross(Way::ToEdge, LINK_WRITE_BYTES).is_empty()
        {}
    }
}

/// The messages in whole frames.
pub(super) fn decode(bytes: &[u8]) -> Vec<Message> {
    let (mut decoder, mut buffer) = (Decoder::default(), BytesMut::from(bytes));
    let mut messages = Vec::new();
    while let Some(frame) = decoder.next(&mut buffer).unwrap() {
        messages.push(Message::decode(frame).unwrap());
    }
    assert!(buffer.is_empty(), "a write ends with a whole frame");
    messages
}

pub(super) fn payload(message: &Message) -> &[u8] {
    match message {
        Message::TunnelFrame(TunnelFrame { kind: TunnelFrameKind::Body(body), .. }) => body,
        Message::BodyChunk(chunk) => &chunk.data,
        Message::RunEvent(RunEvent { kind: RunEventKind::Delta { text, .. }, .. }) => text.as_bytes(),
        _ => &[],
    }
}

pub(super) fn start(stream: StreamNo) -> Message {
    frame(stream, TunnelFrameKind::ResponseStart { status: 200, headers: Vec::new(), until_close: false })
}

pub(super) fn body(stream: StreamNo, bytes: impl Into<Bytes>) -> Message {
    frame(stream, TunnelFrameKind::Body(bytes.into()))
}

pub(super) fn end(stream: StreamNo) -> Message {
    frame(stream, TunnelFrameKind::End)
}

pub(super) fn error(stream: StreamNo) -> Message {
    let error = ExecutionError { kind: ErrorKind::Cancelled, message: String::new(), failure: None };
    frame(stream, TunnelFrameKind::Error(error))
}

/// The number is the mux's business: here it is always wrong.
fn frame(stream: StreamNo, kind: TunnelFrameKind) -> Message {
    Message::TunnelFrame(TunnelFrame { stream, sequence: 999, kind })
}

pub(super) fn delta(stream: StreamNo, text: &str) -> Message {
    let kind = RunEventKind::Delta { text: text.to_owned(), reasoning: String::new() };
    let run_id = String::new();
    Message::RunEvent(RunEvent { stream, sequence: 999, kind, run_id, metadata: BTreeMap::new() })
}

pub(super) fn cancel(stream: StreamNo) -> Message {
    Message::Cancel(Cancel { stream, run_id: String::new() })
}

pub(super) fn request(stream: StreamNo) -> Message {
    Message::TunnelRequest(Box::new(TunnelRequest {
        stream,
        run_id: format!("run-{stream}"),
        adapter: "vllm".to_owned(),
        target: "m".to_owned(),
        method: "POST".to_owned(),
        path: "/v1/chat/completions".to_owned(),
        headers: Vec::new(),
        body: Bytes::new(),
        body_bytes: 0,
        stream_response: true,
        timeout_sec: 0,
        metadata: BTreeMap::new(),
        operation: None,
        session_id: String::new(),
        response_stall_timeout_ms: 1000,
        window_bytes: WINDOW,
        credential: None,
        provider_auth: None,
    }))
}

/// Bytes that differ from place to place and from stream to stream.
pub(super) fn pattern(stream: StreamNo, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at.wrapping_mul(31) >> 3) as u8 ^ (at >> 11) as u8 ^ stream as u8).collect()
}
