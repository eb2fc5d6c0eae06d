//! Credit, turns, cutting and merging.

use bytes::Bytes;
use proto::{
    frame::CHUNK_BYTES_MAX,
    message::{BodyChunk, Credit, Message, TunnelFrame, TunnelFrameKind},
};

use super::pair::{Pair, WINDOW, Way, body, decode, delta, end, pattern, payload, start};
use crate::relay::{
    Incoming, QueueError, StreamFault, Violation, cost,
    credit::{CreditExceeded, CreditOverflow},
    link::LINK_WRITE_BYTES,
};

/// A window that never runs out in these tests.
const WIDE: u32 = 64 * 1024 * 1024;

#[test]
fn what_waits_together_leaves_as_one_frame_and_nothing_is_lost() {
    let mut pair = Pair::new();
    pair.open(1, WINDOW);
    let all = pattern(1, 100 * 100);
    pair.node.mux.queue(1, start(1)).unwrap();
    for piece in all.chunks(100) {
        pair.node.mux.queue(1, body(1, piece.to_vec())).unwrap();
    }
    pair.node.mux.queue(1, end(1)).unwrap();
    let frames = pair.cross(Way::ToEdge, LINK_WRITE_BYTES);
    assert_eq!(frames.len(), 3, "a start, one body of 100 pieces, an end");
    assert_eq!(pair.edge.bytes_of(1), all);
}

#[test]
fn a_large_piece_is_cut_into_chunks_with_numbers_of_their_own() {
    let mut pair = Pair::new();
    pair.open(1, WINDOW);
    let all = pattern(1, 200_000);
    pair.node.mux.queue(1, start(1)).unwrap();
    pair.node.mux.queue(1, body(1, all.clone())).unwrap();
    pair.node.mux.queue(1, end(1)).unwrap();
    let mut frames = Vec::new();
    while frames.len() < 100 {
        let crossed = pair.cross(Way::ToEdge, LINK_WRITE_BYTES);
        if crossed.is_empty() {
            break;
        }
        frames.extend(crossed);
    }
    assert!(frames.iter().all(|frame| cost(frame) <= CHUNK_BYTES_MAX));
    let numbers: Vec<u64> = frames
        .iter()
        .map(|frame| match frame {
            Message::TunnelFrame(frame) => frame.sequence,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(numbers, (0..frames.len() as u64).collect::<Vec<_>>());
    assert_eq!(pair.edge.bytes_of(1), all);
}

// req: WIR-6
#[test]
fn a_response_stops_at_its_window_until_the_receiver_drains() {
    let mut pair = Pair::new();
    pair.open(1, 1000);
    let all = pattern(1, 3000);
    pair.node.mux.queue(1, start(1)).unwrap();
    pair.node.mux.queue(1, body(1, all[..1000].to_vec())).unwrap();
    assert_eq!(pair.node.mux.sendable(1), 0);
    assert_eq!(pair.node.mux.queue(1, body(1, vec![0])), Err(QueueError::Full));
    pair.settle();
    // All of it has left, and still the window is closed: the receiver holds it.
    assert_eq!((pair.edge.bytes_of(1).len(), pair.node.mux.sendable(1)), (1000, 0));
    pair.node.mux.queue(1, body(1, all[1000..2000].to_vec())).unwrap();
    pair.settle();
    assert_eq!(pair.edge.bytes_of(1).len(), 1000);
    // Less than half a window drained: no message for it. Half of it: the queued body is cut to what the credit allows.
    assert!(!pair.edge.mux.release(1, 499));
    pair.settle();
    assert_eq!(pair.edge.bytes_of(1).len(), 1000);
    assert!(pair.edge.mux.release(1, 1));
    pair.settle();
    assert_eq!(pair.edge.bytes_of(1), &all[..1500]);
    assert!(pair.node.inbox.contains(&Incoming::Credit { stream: 1 }));
}

// req: WIR-6
#[test]
fn an_upload_stops_at_its_window_until_the_receiver_drains() {
    let mut pair = Pair::new();
    pair.open(1, WINDOW);
    let all = Bytes::from(pattern(1, 3_000_000));
    pair.edge.mux.queue_body(1, all.clone()).unwrap();
    pair.settle();
    assert_eq!(pair.node.bytes_of(1).len(), WINDOW as usize);
    let mut held_max = 0;
    while pair.node.bytes_of(1).len() < all.len() {
        let before = pair.node.bytes_of(1).len();
        pair.node.drain();
        pair.settle();
        held_max = held_max.max(pair.node.bytes_of(1).len() - before);
        assert!(pair.node.bytes_of(1).len() > before, "stuck at {before}");
    }
    assert_eq!(held_max, WINDOW as usize);
    assert_eq!(pair.node.bytes_of(1), all);
    assert!(matches!(
        pair.node.inbox.last(),
        Some(Incoming::Data { message: Message::BodyChunk(BodyChunk { last: true, .. }), .. })
    ));
}

// req: WIR-6
#[test]
fn run_events_use_credit_and_wait_whole() {
    let mut pair = Pair::new();
    pair.open(1, 100);
    let text = "x".repeat(50);
    for _ in 0..2 {
        pair.node.mux.queue(1, delta(1, &text)).unwrap();
    }
    pair.settle();
    pair.node.mux.queue(1, delta(1, &text)).unwrap();
    pair.settle();
    assert_eq!(pair.edge.bytes_of(1).len(), 100);
    pair.edge.drain();
    pair.settle();
    assert_eq!(pair.edge.bytes_of(1).len(), 150);
    let large = delta(1, &"x".repeat(51));
    assert_eq!(pair.node.mux.queue(1, large), Err(QueueError::TooLarge { cost: 51, window: 100 }));
}

// req: WIR-6
#[test]
fn tiny_deltas_that_pile_up_are_put_together_within_the_window() {
    let mut pair = Pair::new();
    pair.open(1, 8192);
    let words: Vec<_> = (0..2000).map(|n| format!("{n:04}")).collect();
    for word in &words {
        pair.node.mux.queue(1, delta(1, word)).unwrap();
    }
    pair.settle();
    assert_eq!(pair.edge.bytes_of(1), words.concat().as_bytes());
    let events = pair.edge.inbox.len();
    assert!((65..=68).contains(&events), "{events} events");
}

// req: WIR-6
#[test]
fn a_peer_over_its_credit_loses_that_run_and_no_other() {
    let mut pair = Pair::new();
    pair.open(1, 100);
    pair.open(2, 100);
    let raw = |stream, sequence, kind| Message::TunnelFrame(TunnelFrame { stream, sequence, kind });
    let begin = || TunnelFrameKind::ResponseStart { status: 200, headers: Vec::new(), until_close: false };
    let data = |len: usize| TunnelFrameKind::Body(Bytes::from(vec![0; len]));
    for message in
        [raw(1, 0, begin()), raw(1, 1, data(60)), raw(1, 2, data(41)), raw(1, 3, data(1)), raw(2, 0, begin())]
    {
        pair.edge.receive(pair.now, message).unwrap();
    }
    let fault = StreamFault::CreditExceeded(CreditExceeded { sent: 41, credit: 40 });
    assert_eq!(pair.edge.inbox[2], Incoming::StreamFault { stream: 1, fault });
    // Nothing of stream 1 follows, and stream 2 goes on.
    assert!(matches!(pair.edge.inbox[3], Incoming::Data { stream: 2, .. }));
    assert_eq!(pair.edge.inbox.len(), 4);
    // The same for chunks, the other way.
    let chunk = Message::BodyChunk(BodyChunk { stream: 1, data: Bytes::from(vec![0; 101]), last: false });
    pair.node.receive(pair.now, chunk).unwrap();
    let fault = StreamFault::CreditExceeded(CreditExceeded { sent: 101, credit: 100 });
    assert_eq!(pair.node.inbox, [Incoming::StreamFault { stream: 1, fault }]);
}

#[test]
fn credit_beyond_what_a_window_can_hold_is_a_fault_of_that_run() {
    let mut pair = Pair::new();
    pair.open(1, 100);
    pair.node.receive(pair.now, Message::Credit(Credit { stream: 1, bytes: u32::MAX })).unwrap();
    let fault = StreamFault::CreditOverflow(CreditOverflow);
    assert_eq!(pair.node.inbox, [Incoming::StreamFault { stream: 1, fault }]);
}

// req: TUN-2
#[test]
fn a_frame_out_of_order_is_reported_and_never_passed_on() {
    let mut pair = Pair::new();
    pair.open(1, 100);
    let raw = |sequence, kind| Message::TunnelFrame(TunnelFrame { stream: 1, sequence, kind });
    let begin = TunnelFrameKind::ResponseStart { status: 200, headers: Vec::new(), until_close: false };
    for message in [raw(0, begin), raw(2, TunnelFrameKind::End), raw(1, TunnelFrameKind::End)] {
        pair.edge.receive(pair.now, message).unwrap();
    }
    let fault = StreamFault::Sequence(Violation::Gap { expected: 1, found: 2 });
    assert_eq!(pair.edge.inbox.len(), 2);
    assert_eq!(pair.edge.inbox[1], Incoming::StreamFault { stream: 1, fault });
}

// req: WIR-6
#[test]
fn a_receiver_that_never_drains_delays_nobody_else() {
    let mut pair = Pair::new();
    pair.open(1, WINDOW);
    pair.open(2, WINDOW);
    let all = pattern(2, 2_000_000);
    for stream in [1, 2] {
        pair.node.mux.queue(stream, start(stream)).unwrap();
    }
    pair.node.mux.queue(1, body(1, vec![1; WINDOW as usize])).unwrap();
    pair.settle();
    pair.node.mux.queue(1, body(1, vec![1; WINDOW as usize])).unwrap();
    let mut given = 0;
    while pair.edge.bytes_of(2).len() < all.len() {
        let piece = pair.node.mux.sendable(2).min(all.len() - given);
        pair.node.mux.queue(2, body(2, all[given..given + piece].to_vec())).unwrap();
        given += piece;
        let crossed = pair.cross(Way::ToEdge, LINK_WRITE_BYTES);
        assert!(!crossed.is_empty(), "stream 2 waits for stream 1");
        // Only stream 2 is drained.
        let held = pair.edge.bytes_of(2).len();
        pair.edge.mux.release(2, held);
        pair.cross(Way::ToNode, LINK_WRITE_BYTES);
    }
    assert_eq!(pair.edge.bytes_of(2), all);
    assert_eq!(pair.edge.bytes_of(1).len(), WINDOW as usize);
}

// req: WIR-6
#[test]
fn a_large_upload_makes_others_wait_for_one_turn_at_most() {
    let mut pair = Pair::new();
    pair.open(1, WIDE);
    pair.open(2, WIDE);
    pair.edge.mux.queue_body(1, Bytes::from(vec![1; 32 * 1024 * 1024])).unwrap();
    pair.cross(Way::ToNode, LINK_WRITE_BYTES);
    pair.edge.mux.queue_body(2, Bytes::from_static(b"small")).unwrap();
    let crossed = pair.cross(Way::ToNode, LINK_WRITE_BYTES);
    let before: usize = crossed.iter().take_while(|message| payload(message) != b"small").map(cost).sum();
    assert!(before < LINK_WRITE_BYTES && pair.node.bytes_of(2) == b"small", "{before} bytes before it");
    assert!(before <= 2 * 16 * 1024, "{before} bytes before it");
}

// req: WIR-6
#[test]
fn streams_with_data_take_turns() {
    let mut pair = Pair::new();
    let streams = 1..=20;
    for stream in streams.clone() {
        pair.open(stream, WIDE);
        pair.node.mux.queue(stream, start(stream)).unwrap();
        pair.node.mux.queue(stream, body(stream, vec![0; 1_000_000])).unwrap();
    }
    for _ in 0..100 {
        pair.cross(Way::ToEdge, LINK_WRITE_BYTES);
        let got: Vec<usize> = streams.clone().map(|stream| pair.edge.bytes_of(stream).len()).collect();
        let (least, most) = (got.iter().min().unwrap(), got.iter().max().unwrap());
        assert!(most - least <= 20 * 1024, "least {least}, most {most}");
    }
}

#[test]
fn a_write_is_about_its_budget() {
    let mut pair = Pair::new();
    pair.open(1, WIDE);
    pair.node.mux.queue(1, start(1)).unwrap();
    pair.node.mux.queue(1, body(1, vec![0; 10_000_000])).unwrap();
    for budget in [1, 100, 5_000, LINK_WRITE_BYTES, 300_000] {
        let mut out = Vec::new();
        let appended = pair.node.mux.poll_transmit(&mut out, budget);
        assert!(appended > 0 && appended <= budget.max(LINK_WRITE_BYTES) + 1100, "{appended} for {budget}");
        assert!(appended + 1100 >= budget.min(LINK_WRITE_BYTES), "{appended} for {budget}");
        decode(&out);
    }
}

#[test]
fn draining_in_small_steps_costs_two_credit_messages_a_window() {
    let mut pair = Pair::new();
    pair.open(1, WINDOW);
    pair.node.mux.queue(1, start(1)).unwrap();
    pair.node.mux.queue(1, body(1, vec![0; WINDOW as usize])).unwrap();
    pair.settle();
    let mut credits = 0;
    for _ in 0..WINDOW {
        if pair.edge.mux.release(1, 1) {
            credits += pair.cross(Way::ToNode, LINK_WRITE_BYTES).len();
        }
    }
    assert_eq!(credits, 2);
    assert_eq!(pair.node.mux.sendable(1), WINDOW as usize);
}

// req: TUN-4
#[test]
fn a_terminal_leaves_without_credit_once_the_rest_is_discarded() {
    let mut pair = Pair::new();
    pair.open(1, 100);
    pair.node.mux.queue(1, start(1)).unwrap();
    pair.node.mux.queue(1, body(1, vec![0; 100])).unwrap();
    pair.settle();
    pair.node.mux.queue(1, body(1, vec![0; 100])).unwrap();
    pair.node.mux.discard(1);
    pair.node.mux.queue(1, super::pair::error(1)).unwrap();
    pair.node.mux.finish(1);
    pair.settle();
    let last = pair.edge.inbox.last();
    assert!(
        matches!(
            last,
            Some(Incoming::Data {
                message: Message::TunnelFrame(TunnelFrame {
                    sequence: 2,
                    kind: TunnelFrameKind::Error(_),
                    ..
                }),
                ..
            })
        ),
        "{last:?}"
    );
    assert!(!pair.node.mux.is_open(1));
}

#[test]
fn nothing_can_be_queued_after_the_terminal() {
    let mut pair = Pair::new();
    pair.open(1, 100);
    pair.node.mux.queue(1, end(1)).unwrap();
    assert_eq!(pair.node.mux.queue(1, body(1, vec![0])), Err(QueueError::AfterEnd));
    pair.edge.mux.queue_body(1, Bytes::from_static(b"x")).unwrap();
    assert_eq!(pair.edge.mux.queue_body(1, Bytes::from_static(b"x")), Err(QueueError::AfterEnd));
    pair.edge.mux.poll_transmit(&mut Vec::new(), LINK_WRITE_BYTES);
    pair.edge.mux.discard(1);
    assert_eq!(pair.edge.mux.queue_body(1, Bytes::from_static(b"x")), Err(QueueError::AfterEnd));
}
