//! Heartbeats of a link: in front of everything, and kept alive by nothing else.

use std::time::Duration;

use bytes::Bytes;
use proto::message::Message;

use super::pair::{Pair, WINDOW, Way, body, start};
use crate::relay::{LinkFault, link::LINK_WRITE_BYTES};

const SECOND: Duration = Duration::from_secs(1);

// req: HBT-2
#[test]
fn heartbeats_are_not_queued_behind_megabytes_of_data() {
    let mut pair = Pair::new();
    pair.open(1, u32::MAX);
    pair.edge.mux.queue_body(1, Bytes::from(vec![0; 32 * 1024 * 1024])).unwrap();
    pair.node.mux.queue(1, start(1)).unwrap();
    pair.node.mux.queue(1, body(1, vec![0; 32 * 1024 * 1024])).unwrap();
    pair.now += 30 * SECOND;
    assert_eq!(pair.edge.mux.handle_timeout(pair.now), Ok(true));
    let crossed = pair.cross(Way::ToNode, LINK_WRITE_BYTES);
    assert_eq!(crossed.first(), Some(&Message::HeartbeatPing));
    assert!(crossed.len() > 1);
    let crossed = pair.cross(Way::ToEdge, LINK_WRITE_BYTES);
    assert_eq!(crossed.first(), Some(&Message::HeartbeatPong));
}

// req: HBT-2
#[test]
fn an_hour_of_silence_and_of_streams_without_credit_ends_no_link() {
    let mut pair = Pair::new();
    // Stream 1 is a prefill that says nothing, stream 2 a client that takes nothing.
    pair.open(1, WINDOW);
    pair.open(2, WINDOW);
    pair.node.mux.queue(2, start(2)).unwrap();
    pair.node.mux.queue(2, body(2, vec![0; WINDOW as usize])).unwrap();
    pair.settle();
    pair.node.mux.queue(2, body(2, vec![0; WINDOW as usize])).unwrap();
    for _ in 0..3600 {
        pair.now += SECOND;
        pair.edge.mux.handle_timeout(pair.now).unwrap();
        pair.node.mux.handle_timeout(pair.now).unwrap();
        pair.settle();
    }
    assert_eq!(pair.edge.bytes_of(2).len(), WINDOW as usize);
}

// req: HBT-1, HBT-3
#[test]
fn frames_other_than_the_answer_do_not_keep_a_link_alive() {
    let mut pair = Pair::new();
    pair.open(1, WINDOW);
    pair.node.mux.queue(1, start(1)).unwrap();
    let begin = pair.now;
    for second in 1..45 {
        pair.now = begin + second * SECOND;
        pair.node.mux.queue(1, body(1, vec![0; 100])).unwrap();
        // Data, credit and the peer's own pings arrive; its answers get lost.
        let mut out = Vec::new();
        pair.node.mux.poll_transmit(&mut out, LINK_WRITE_BYTES);
        for message in super::pair::decode(&out).into_iter().filter(|m| *m != Message::HeartbeatPong) {
            pair.edge.receive(pair.now, message).unwrap();
        }
        pair.edge.receive(pair.now, Message::HeartbeatPing).unwrap();
        pair.edge.mux.handle_timeout(pair.now).unwrap();
        pair.cross(Way::ToNode, LINK_WRITE_BYTES);
    }
    assert_eq!(pair.edge.mux.poll_timeout(), begin + 45 * SECOND);
    assert!(pair.edge.mux.handle_timeout(begin + 45 * SECOND - Duration::from_nanos(1)).is_ok());
    assert_eq!(pair.edge.mux.handle_timeout(begin + 45 * SECOND), Err(LinkFault::HeartbeatTimeout));
}

#[test]
fn any_number_of_pings_is_answered_by_one_pong_a_write() {
    let mut pair = Pair::new();
    for _ in 0..10_000 {
        pair.edge.receive(pair.now, Message::HeartbeatPing).unwrap();
    }
    assert_eq!(pair.cross(Way::ToNode, LINK_WRITE_BYTES), [Message::HeartbeatPong]);
    assert!(pair.cross(Way::ToNode, LINK_WRITE_BYTES).is_empty());
}
