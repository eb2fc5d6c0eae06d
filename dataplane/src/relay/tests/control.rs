//! Control messages, cancels, the life of streams, and the bounds of a link.

use bytes::Bytes;
use proto::message::{Message, NodeReadyRequest, TunnelFrame, TunnelFrameKind};

use super::pair::{Pair, WINDOW, Way, body, cancel, end, request, start};
use crate::relay::{Incoming, LinkFault, MuxLimits, OpenError, QueueError, link::LINK_WRITE_BYTES};

fn ready() -> Message {
    Message::NodeReadyRequest(NodeReadyRequest { node_id: "box1".parse().unwrap() })
}

#[test]
fn control_messages_leave_before_stream_data_and_in_order() {
    let mut pair = Pair::new();
    pair.open(1, WINDOW);
    pair.node.mux.queue(1, start(1)).unwrap();
    pair.node.mux.queue(1, body(1, vec![0; 100_000])).unwrap();
    pair.node.mux.send(ready()).unwrap();
    pair.node.mux.send(request(9)).unwrap();
    let crossed = pair.cross(Way::ToEdge, LINK_WRITE_BYTES);
    assert_eq!(crossed[..2], [ready(), request(9)]);
}

#[test]
fn a_request_leaves_before_its_body() {
    let mut pair = Pair::new();
    pair.edge.mux.open(1, WINDOW, WINDOW).unwrap();
    pair.edge.mux.queue(1, request(1)).unwrap();
    pair.edge.mux.queue_body(1, Bytes::from(vec![0; 100_000])).unwrap();
    let mut out = Vec::new();
    pair.edge.mux.poll_transmit(&mut out, 1);
    assert_eq!(super::pair::decode(&out), [request(1)]);
}

#[test]
fn messages_for_unknown_streams_are_counted_and_dropped() {
    let mut pair = Pair::new();
    pair.open(1, WINDOW);
    pair.node.mux.queue(1, start(1)).unwrap();
    pair.node.mux.queue(1, body(1, vec![0; 10])).unwrap();
    pair.edge.mux.close(1);
    pair.settle();
    assert!(pair.edge.inbox.is_empty());
    assert_eq!(pair.edge.mux.stats().late, 2);
    pair.edge.receive(pair.now, cancel(77)).unwrap();
    assert!(pair.edge.inbox.is_empty());
    assert_eq!(pair.edge.mux.stats().late, 3);
}

// req: WIR-3
#[test]
fn a_message_of_a_newer_build_is_counted_and_dropped() {
    let mut pair = Pair::new();
    pair.edge.receive(pair.now, Message::Unknown).unwrap();
    assert!(pair.edge.inbox.is_empty());
    assert_eq!(pair.edge.mux.stats().unknown, 1);
}

#[test]
fn a_cancel_follows_a_request_that_has_not_left() {
    let mut pair = Pair::new();
    pair.edge.mux.open(1, WINDOW, WINDOW).unwrap();
    pair.edge.mux.queue(1, request(1)).unwrap();
    pair.edge.mux.queue_body(1, Bytes::from(vec![0; 1_000_000])).unwrap();
    pair.edge.mux.send(cancel(1)).unwrap();
    assert_eq!(pair.cross(Way::ToNode, LINK_WRITE_BYTES), [request(1), cancel(1)]);
}

// req: TUN-4
#[test]
fn a_cancel_overtakes_the_rest_of_an_upload_and_stops_it() {
    let mut pair = Pair::new();
    pair.open(1, WINDOW);
    pair.edge.mux.queue_body(1, Bytes::from(vec![0; 1_000_000])).unwrap();
    pair.cross(Way::ToNode, 1);
    pair.edge.mux.send(cancel(1)).unwrap();
    assert_eq!(pair.cross(Way::ToNode, LINK_WRITE_BYTES), [cancel(1)]);
    assert_eq!(pair.node.inbox.last(), Some(&Incoming::Cancel { stream: 1 }));
    assert!(pair.cross(Way::ToNode, LINK_WRITE_BYTES).is_empty());
}

// req: TUN-4
#[test]
fn a_cancel_after_the_owner_finished_frees_what_waits_for_credit_and_lets_the_terminal_out() {
    let mut pair = Pair::new();
    pair.open(1, 100);
    pair.node.mux.queue(1, start(1)).unwrap();
    pair.node.mux.queue(1, body(1, vec![0; 100])).unwrap();
    pair.settle();
    pair.node.mux.queue(1, body(1, vec![0; 50])).unwrap();
    pair.node.mux.queue(1, end(1)).unwrap();
    pair.node.mux.finish(1);
    pair.settle();
    assert!(pair.node.mux.is_open(1) && pair.node.mux.has_stream_data());
    pair.edge.mux.send(cancel(1)).unwrap();
    pair.settle();
    assert!(!pair.node.mux.is_open(1));
    assert_eq!(pair.edge.bytes_of(1).len(), 100);
    let last = pair.edge.inbox.last();
    let is_end = matches!(
        last,
        Some(Incoming::Data {
            message: Message::TunnelFrame(TunnelFrame { sequence: 2, kind: TunnelFrameKind::End, .. }),
            ..
        })
    );
    assert!(is_end, "{last:?}");
}

#[test]
fn a_cancel_keeps_a_start_that_has_not_left_in_front_of_its_terminal() {
    let mut pair = Pair::new();
    pair.open(1, 100);
    pair.node.mux.queue(1, start(1)).unwrap();
    pair.node.mux.queue(1, body(1, vec![0; 100])).unwrap();
    pair.node.mux.queue(1, end(1)).unwrap();
    pair.node.mux.finish(1);
    pair.node.receive(pair.now, cancel(1)).unwrap();
    pair.settle();
    assert!(!pair.node.mux.is_open(1));
    let kinds: Vec<_> = pair.edge.inbox.iter().map(|i| matches!(i, Incoming::StreamFault { .. })).collect();
    assert_eq!(kinds, [false, false], "{:?}", pair.edge.inbox);
    assert!(pair.edge.bytes_of(1).is_empty());
}

#[test]
fn a_finished_stream_sends_the_rest_and_is_gone() {
    let mut pair = Pair::new();
    pair.open(1, 100);
    pair.node.mux.queue(1, start(1)).unwrap();
    for _ in 0..2 {
        pair.settle();
        pair.node.mux.queue(1, body(1, vec![7; 100])).unwrap();
    }
    pair.node.mux.queue(1, end(1)).unwrap();
    pair.node.mux.finish(1);
    assert_eq!(pair.node.mux.queue(1, end(1)), Err(QueueError::NotOpen));
    pair.settle();
    assert!(pair.node.mux.is_open(1));
    pair.edge.drain();
    pair.settle();
    assert_eq!(pair.edge.bytes_of(1), [7; 200]);
    assert!(!pair.node.mux.is_open(1));
    // One with nothing to send is gone at once.
    pair.node.mux.open(2, 100, 100).unwrap();
    pair.node.mux.finish(2);
    assert!(!pair.node.mux.is_open(2));
}

// req: WIR-10
#[test]
fn a_stream_number_that_does_not_rise_ends_the_link() {
    let mut pair = Pair::new();
    pair.node.receive(pair.now, request(5)).unwrap();
    pair.node.receive(pair.now, request(6)).unwrap();
    for stream in [6, 5, 0] {
        assert_eq!(pair.node.receive(pair.now, request(stream)), Err(LinkFault::StreamReused(stream)));
    }
}

#[test]
fn the_control_queue_is_bounded() {
    let limits = MuxLimits { control_max: 3, ..MuxLimits::default() };
    let mut pair = Pair::with(limits);
    for _ in 0..3 {
        pair.edge.mux.send(ready()).unwrap();
    }
    assert_eq!(pair.edge.mux.send(ready()), Err(LinkFault::ControlQueueFull));
}

#[test]
fn the_number_of_streams_is_bounded_and_a_number_is_used_once_at_a_time() {
    let limits = MuxLimits { streams_max: 2, ..MuxLimits::default() };
    let mut pair = Pair::with(limits);
    pair.open(1, 100);
    assert_eq!(pair.edge.mux.open(1, 100, 100), Err(OpenError::Exists));
    pair.open(2, 100);
    assert_eq!(pair.edge.mux.open(3, 100, 100), Err(OpenError::TooMany));
    pair.edge.mux.close(1);
    assert_eq!(pair.edge.mux.open(3, 100, 100), Ok(()));
}

#[test]
fn streams_that_come_and_go_while_nothing_can_be_sent_leave_nothing_behind() {
    let mut pair = Pair::new();
    for stream in 1..100_000 {
        pair.edge.mux.open(stream, 100, 100).unwrap();
        pair.edge.mux.queue(stream, request(stream)).unwrap();
        pair.edge.mux.close(stream);
    }
    assert!(pair.edge.mux.scheduled() < 200);
    assert!(pair.cross(Way::ToNode, LINK_WRITE_BYTES).is_empty());
}

#[test]
fn frames_without_payload_are_bounded_too_and_a_terminal_still_finds_a_place() {
    let mut pair = Pair::new();
    pair.open(1, 100);
    let full = (0..100_000).find_map(|_| pair.node.mux.queue(1, start(1)).err());
    assert_eq!(full, Some(QueueError::Full));
    assert_eq!(pair.node.mux.sendable(1), 0);
    pair.node.mux.queue(1, end(1)).unwrap();
}

#[test]
fn a_message_of_another_stream_or_of_none_is_not_queued() {
    let mut pair = Pair::new();
    pair.open(1, 100);
    for wrong in [start(2), ready(), Message::HeartbeatPing, cancel(1)] {
        assert_eq!(pair.node.mux.queue(1, wrong), Err(QueueError::WrongMessage));
    }
}

#[test]
fn an_ended_link_takes_nothing_and_holds_nothing() {
    let mut pair = Pair::new();
    pair.open(1, 100);
    pair.edge.mux.send(ready()).unwrap();
    pair.edge.mux.end();
    assert_eq!(pair.edge.mux.send(ready()), Ok(()));
    assert_eq!(pair.edge.mux.open(2, 100, 100), Err(OpenError::TooMany));
    assert_eq!(pair.edge.mux.queue(1, start(1)), Err(QueueError::NotOpen));
    assert!(pair.cross(Way::ToNode, LINK_WRITE_BYTES).is_empty());
}
