//! Real links: full duplex over TLS on both drivers, and each way a link can end.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use bytes::{Buf, Bytes, BytesMut};
use futures::join;
use proto::{
    frame::{Decoder, FRAME_BYTES_MAX},
    message::{Goodbye, Message, StreamNo, TunnelFrame, TunnelFrameKind, TunnelRequest},
};

use super::{
    loopback::{DRIVERS, Edge, Log, digest, on_shard, soon},
    pair::{WINDOW, body, end, pattern, request, start},
};
use crate::{
    clock,
    relay::{
        CloseReason, Established, Handler, HeartbeatTimes, Incoming, Link, LinkHandle, LinkLimits, MuxLimits,
    },
    time::sleep_until,
    tls::refusal::{Origin, Refusal},
};

const STREAMS: StreamNo = 50;
/// Up and down: 64 MB in all.
const BYTES_EACH_WAY: usize = 640_000;

/// A Node's owner that sends every request body back.
struct Echo {
    link: LinkHandle,
    runs: BTreeMap<StreamNo, EchoRun>,
    batches: usize,
}

#[derive(Default)]
struct EchoRun {
    waiting: VecDeque<Bytes>,
    complete: bool,
}

impl Echo {
    fn new(link: LinkHandle) -> Self {
        Self { link, runs: BTreeMap::new(), batches: 0 }
    }

    fn pump(&mut self, stream: StreamNo) {
        let Some(run) = self.runs.get_mut(&stream) else { return };
        while let Some(piece) = run.waiting.front_mut() {
            let room = self.link.sendable(stream).min(piece.len());
            if room == 0 {
                return;
            }
            self.link.queue(stream, body(stream, piece.split_to(room))).unwrap();
            self.link.release(stream, room);
            if piece.is_empty() {
                run.waiting.pop_front();
            }
        }
        if run.complete {
            self.link.queue(stream, end(stream)).unwrap();
            self.link.finish(stream);
            self.runs.remove(&stream);
        }
    }
}

impl Handler for Echo {
    fn on_incoming(&mut self, incoming: Incoming) {
        match incoming {
            Incoming::Control(Message::TunnelRequest(request)) => {
                self.link.open(request.stream, request.window_bytes, WINDOW).unwrap();
                self.link.queue(request.stream, start(request.stream)).unwrap();
                self.runs.insert(request.stream, EchoRun::default());
            }
            Incoming::Data { stream, message: Message::BodyChunk(chunk), .. } => {
                let run = self.runs.get_mut(&stream).unwrap();
                run.complete = chunk.last;
                run.waiting.push_back(chunk.data);
                self.pump(stream);
            }
            Incoming::Credit { stream } => self.pump(stream),
            _ => {}
        }
    }

    fn on_batch_end(&mut self) {
        self.batches += 1;
    }
}

/// An Edge's owner that sends bodies and wants them back, then says goodbye.
struct Client {
    link: LinkHandle,
    got: BTreeMap<StreamNo, Vec<Bytes>>,
    done: StreamNo,
    wanted: StreamNo,
}

impl Client {
    fn start(link: LinkHandle, streams: StreamNo, bytes: usize) -> Self {
        for stream in 1..=streams {
            let Message::TunnelRequest(plain) = request(stream) else { unreachable!() };
            let request = TunnelRequest { body_bytes: bytes as u64, ..*plain };
            link.open(stream, WINDOW, WINDOW).unwrap();
            link.queue(stream, Message::TunnelRequest(Box::new(request))).unwrap();
            link.queue_body(stream, pattern(stream, bytes).into()).unwrap();
        }
        Self { link, got: BTreeMap::new(), done: 0, wanted: streams }
    }

    fn digest_of(&self, stream: StreamNo) -> u64 {
        digest(&self.got[&stream].iter().map(|piece| &piece[..]).collect::<Vec<_>>())
    }
}

impl Handler for Client {
    fn on_incoming(&mut self, incoming: Incoming) {
        let Incoming::Data { stream, message: Message::TunnelFrame(TunnelFrame { kind, .. }), cost } =
            incoming
        else {
            return assert!(matches!(incoming, Incoming::Credit { .. }), "{incoming:?}");
        };
        self.link.release(stream, cost);
        match kind {
            TunnelFrameKind::Body(body) => self.got.entry(stream).or_default().push(body),
            TunnelFrameKind::End => {
                self.link.close(stream);
                self.done += 1;
            }
            _ => {}
        }
        if self.done == self.wanted {
            self.link.shutdown(CloseReason::Draining);
        }
    }

    fn on_batch_end(&mut self) {}
}

async fn echo(established: Established) -> (CloseReason, usize, usize) {
    let link = Link::new(established.session, LinkLimits::default());
    let handle = link.handle();
    let mut echo = Echo::new(handle.clone());
    let reason = link.run(established.stream, established.early, &mut echo).await;
    assert!(handle.is_stopping());
    handle.ended().await;
    (reason, echo.runs.len(), echo.batches)
}

async fn client(established: Established, streams: StreamNo, bytes: usize) -> (CloseReason, Client) {
    let link = Link::new(established.session, LinkLimits::default());
    let mut client = Client::start(link.handle(), streams, bytes);
    let reason = link.run(established.stream, established.early, &mut client).await;
    (reason, client)
}

// req: WIR-6
#[test]
fn a_link_moves_64_megabytes_over_50_streams_unchanged() {
    for driver in DRIVERS {
        let (edge, node, frames) = on_shard(driver, || async {
            let mut edge = Edge::new();
            let (edge, node) = edge.connection().await;
            let ((edge, client), (node, open, batches)) =
                join!(client(edge, STREAMS, BYTES_EACH_WAY), echo(node));
            for stream in 1..=STREAMS {
                assert_eq!(
                    client.digest_of(stream),
                    digest(&[&pattern(stream, BYTES_EACH_WAY)]),
                    "stream {stream}"
                );
            }
            assert_eq!(open, 0);
            let frames = client.link.stats().sent as usize;
            assert!(batches < frames, "{batches} batches for {frames} frames");
            (edge, node, frames)
        });
        assert_eq!((edge, node), (CloseReason::Draining, CloseReason::PeerGoodbye));
        assert!(frames >= STREAMS as usize * BYTES_EACH_WAY / 65_536);
    }
}

/// Runs an Edge's link with 32 MB to send against a peer that is driven by hand.
async fn against_mute_peer(limits: LinkLimits, established: Established) -> CloseReason {
    let link = Link::new(established.session, limits);
    let handle = link.handle();
    handle.open(1, u32::MAX, WINDOW).unwrap();
    handle.queue_body(1, Bytes::from(vec![0; 32 * 1024 * 1024])).unwrap();
    link.run(established.stream, established.early, &mut Log::default()).await
}

// req: WIR-6
#[test]
fn a_peer_that_stops_reading_ends_its_link_at_the_write_deadline() {
    for driver in DRIVERS {
        let (reason, took) = on_shard(driver, || async {
            let (edge, _unread) = Edge::new().connection().await;
            let begin = clock::now();
            let limits = LinkLimits { write_stall: Duration::from_millis(300), ..LinkLimits::default() };
            let reason = against_mute_peer(limits, edge).await;
            (reason, clock::now() - begin)
        });
        assert_eq!(reason, CloseReason::WriteStall);
        assert!(took >= Duration::from_millis(300) && took < Duration::from_secs(10), "{took:?}");
    }
}

// req: HBT-1
#[test]
fn a_stuck_write_does_not_keep_a_dead_link_open() {
    for driver in DRIVERS {
        let (reason, took) = on_shard(driver, || async {
            let (edge, _unread) = Edge::new().connection().await;
            let begin = clock::now();
            let heartbeat =
                HeartbeatTimes { interval: Duration::from_millis(200), timeout: Duration::from_millis(400) };
            let limits = LinkLimits {
                mux: MuxLimits { heartbeat, ..MuxLimits::default() },
                farewell: Duration::from_millis(100),
                ..LinkLimits::default()
            };
            let reason = against_mute_peer(limits, edge).await;
            (reason, clock::now() - begin)
        });
        assert_eq!(reason, CloseReason::HeartbeatTimeout);
        assert!(took >= Duration::from_millis(400) && took < Duration::from_secs(10), "{took:?}");
    }
}

// req: HBT-1
#[test]
fn an_idle_link_lives_on_its_heartbeats_and_a_silent_peer_ends_it() {
    let heartbeat =
        HeartbeatTimes { interval: Duration::from_millis(100), timeout: Duration::from_millis(250) };
    let limits = LinkLimits { mux: MuxLimits { heartbeat, ..MuxLimits::default() }, ..LinkLimits::default() };
    for driver in DRIVERS {
        let (lived, silent) = on_shard(driver, move || async move {
            let mut edge = Edge::new();
            let (a, b) = edge.connection().await;
            let (a_link, b_link) = (Link::new(a.session, limits), Link::new(b.session, limits));
            let stop = a_link.handle();
            let (mut a_log, mut b_log) = (Log::default(), Log::default());
            let (_, _, lived) = join!(
                a_link.run(a.stream, a.early, &mut a_log),
                b_link.run(b.stream, b.early, &mut b_log),
                async move {
                    sleep_until(clock::now() + Duration::from_secs(1)).await;
                    let lived = !stop.is_stopping();
                    stop.shutdown(CloseReason::Draining);
                    lived
                }
            );
            // This peer's socket is open and says nothing.
            let (a, _mute) = edge.connection().await;
            let begin = clock::now();
            let reason = Link::new(a.session, limits).run(a.stream, a.early, &mut Log::default()).await;
            (lived, (reason, clock::now() - begin))
        });
        assert!(lived);
        assert_eq!(silent.0, CloseReason::HeartbeatTimeout);
        assert!(silent.1 >= Duration::from_millis(250), "{:?}", silent.1);
    }
}

/// Sends raw plaintext over an established connection.
async fn send_plain(node: &mut Established, plain: &[u8]) {
    let mut cipher = Vec::new();
    node.session.send(plain, &mut cipher).unwrap();
    node.stream.write_all(cipher, soon()).await.0.unwrap();
}

/// Reads to the end of the connection and gives the messages that came.
async fn read_all(node: &mut Established) -> Vec<Message> {
    let (mut cipher, mut plain) = (BytesMut::new(), BytesMut::new());
    while let Ok(1..) = node.stream.read_some(&mut cipher, 65_536).await {
        node.session.receive(&cipher, &mut plain).unwrap();
        cipher.clear();
    }
    let (mut decoder, mut messages) = (Decoder::default(), Vec::new());
    while let Some(frame) = decoder.next(&mut plain).unwrap() {
        messages.push(Message::decode(frame).unwrap());
    }
    assert!(node.session.peer_closed(), "the end was announced");
    messages
}

// req: WIR-2, WIR-3
#[test]
fn a_malformed_frame_ends_only_its_own_link() {
    let over = u32::try_from(FRAME_BYTES_MAX + 1).unwrap().to_be_bytes();
    let table: [(&[u8], CloseReason); 2] =
        [(&[0, 0, 0, 3, 0xff, 0xff, 0xff], CloseReason::ProtocolError), (&over, CloseReason::FrameTooLarge)];
    for driver in DRIVERS {
        for (bytes, expected) in table {
            let bytes = bytes.to_vec();
            let (bad, goodbye, good) = on_shard(driver, move || async move {
                let mut edge = Edge::new();
                let (bad_edge, mut bad_node) = edge.connection().await;
                let (good_edge, good_node) = edge.connection().await;
                let bad_link = Link::new(bad_edge.session, LinkLimits::default());
                let mut bad_log = Log::default();
                let bad_end = bad_link.run(bad_edge.stream, bad_edge.early, &mut bad_log);
                let (bad, goodbye, (good, _), _) = join!(
                    bad_end,
                    async {
                        send_plain(&mut bad_node, &bytes).await;
                        read_all(&mut bad_node).await
                    },
                    client(good_edge, 3, 100_000),
                    echo(good_node)
                );
                (bad, goodbye, good)
            });
            assert_eq!(bad, expected);
            let reason = expected.label().to_owned();
            assert_eq!(goodbye, [Message::Goodbye(Goodbye { reason })]);
            assert_eq!(good, CloseReason::Draining);
        }
    }
}

#[test]
fn a_shutdown_sends_what_control_messages_wait_and_says_why() {
    for driver in DRIVERS {
        let (edge, node, got) = on_shard(driver, || async {
            let (edge, node) = Edge::new().connection().await;
            let (edge_link, node_link) = (
                Link::new(edge.session, LinkLimits::default()),
                Link::new(node.session, LinkLimits::default()),
            );
            edge_link.handle().send(request(1));
            edge_link.handle().shutdown(CloseReason::Superseded);
            edge_link.handle().shutdown(CloseReason::Draining);
            let (mut edge_log, mut node_log) = (Log::default(), Log::default());
            let (edge, node) = join!(
                edge_link.run(edge.stream, edge.early, &mut edge_log),
                node_link.run(node.stream, node.early, &mut node_log)
            );
            (edge, node, node_log.0)
        });
        assert_eq!((edge, node), (CloseReason::Superseded, CloseReason::PeerGoodbye));
        let goodbye = Message::Goodbye(Goodbye { reason: "superseded".to_owned() });
        assert_eq!(got, [Incoming::Control(request(1)), Incoming::Control(goodbye)]);
    }
}

#[test]
fn a_corrupt_record_while_a_write_is_stuck_ends_the_link_and_nothing_else() {
    for driver in DRIVERS {
        let reason = on_shard(driver, || async {
            let (edge, mut node) = Edge::new().connection().await;
            let limits = LinkLimits { farewell: Duration::from_millis(100), ..LinkLimits::default() };
            let (reason, ()) = join!(against_mute_peer(limits, edge), async {
                // Long enough for both socket buffers to fill.
                sleep_until(clock::now() + Duration::from_millis(200)).await;
                let mut record = vec![0x17, 3, 3, 0, 32];
                record.extend([0x5a; 32]);
                node.stream.write_all(record, soon()).await.0.unwrap();
            });
            reason
        });
        let expected = CloseReason::Tls { refusal: Refusal::Protocol, origin: Origin::Local, alert: None };
        assert_eq!(reason, expected);
    }
}

#[test]
fn a_peer_that_vanishes_ends_the_link() {
    for driver in DRIVERS {
        let (quiet, reset) = on_shard(driver, || async {
            let mut edge = Edge::new();
            let mut reasons = Vec::new();
            for reset in [false, true] {
                let (established, node) = edge.connection().await;
                if reset {
                    node.stream.reset_on_close();
                }
                drop(node);
                let link = Link::new(established.session, LinkLimits::default());
                reasons.push(link.run(established.stream, established.early, &mut Log::default()).await);
            }
            (reasons[0], reasons[1])
        });
        assert_eq!(quiet, CloseReason::PeerClosed, "{driver:?}");
        // Whether the end of stream or the reset is seen first is the socket's business.
        assert!(
            matches!(reset, CloseReason::PeerClosed | CloseReason::ConnectionLost),
            "{reset:?} on {driver:?}"
        );
    }
}

#[test]
fn what_came_with_the_handshake_is_delivered_first() {
    let got = on_shard(DRIVERS[0], || async {
        let (edge, node) = Edge::new().connection().await;
        let mut early = Vec::new();
        request(1).encode(&mut early);
        let split = early.len() / 2;
        let link = Link::new(edge.session, LinkLimits::default());
        let mut node = node;
        let mut log = Log::default();
        let (_, ()) = join!(link.run(edge.stream, BytesMut::from(&early[..split]), &mut log), async {
            let mut rest = Bytes::from(early.clone());
            rest.advance(split);
            send_plain(&mut node, &rest).await;
            drop(node);
        });
        log.0
    });
    assert_eq!(got, [Incoming::Control(request(1))]);
}
