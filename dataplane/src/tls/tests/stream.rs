//! A session on any cut, any corruption and both directions at once.

use bytes::BytesMut;
use proptest::prelude::*;

use super::pair::{Deployment, Pair};
use crate::tls::{
    refusal::{Refusal, TlsFault},
    session::SendError,
};

/// Header and AEAD tag and content type of a TLS 1.3 record (RFC 8446 section 5.2).
const RECORD_OVERHEAD: usize = 5 + 1 + 16;
const RECORD_PLAINTEXT_MAX: usize = 16 * 1024;

fn records(mut bytes: &[u8]) -> usize {
    let mut count = 0;
    while bytes.len() >= 5 {
        let length = usize::from(u16::from_be_bytes([bytes[3], bytes[4]]));
        bytes = &bytes[5 + length..];
        count += 1;
    }
    assert!(bytes.is_empty(), "half a record");
    count
}

#[test]
fn handshake_completes_when_cut_at_every_byte() {
    let deployment = Deployment::new();
    let (node, edge) = (deployment.node(), deployment.edge());
    let mut pair = Pair::new(node, edge);
    let mut rounds = 0;
    while pair.node.wants_write() || pair.edge.wants_write() {
        rounds += 1;
        let (mut up, mut down) = (Vec::new(), Vec::new());
        pair.node.flush(&mut up);
        up.iter().for_each(|byte| pair.feed_edge(&[*byte]));
        pair.edge.flush(&mut down);
        down.iter().for_each(|byte| pair.feed_node(&[*byte]));
    }
    assert!(pair.edge_fault.is_none() && pair.node_fault.is_none());
    assert!(pair.edge.peer().is_some() && pair.node.peer().is_some());
    assert!(rounds <= 4, "{rounds}");
}

#[test]
fn handshake_completes_when_cut_once_anywhere() {
    let deployment = Deployment::new();
    let (node, edge) = (deployment.node(), deployment.edge());
    // The flights differ a little from run to run (signatures), so cut by position from the front and stop at the end.
    for cut in (1..2000).step_by(37) {
        let mut pair = Pair::new(node.clone(), edge.clone());
        while pair.node.wants_write() || pair.edge.wants_write() {
            let (mut up, mut down) = (Vec::new(), Vec::new());
            pair.node.flush(&mut up);
            let (head, tail) = up.split_at(cut.min(up.len()));
            pair.feed_edge(head);
            pair.feed_edge(tail);
            pair.edge.flush(&mut down);
            let (head, tail) = down.split_at(cut.min(down.len()));
            pair.feed_node(head);
            pair.feed_node(tail);
        }
        assert!(pair.edge.peer().is_some() && pair.node.peer().is_some(), "cut at {cut}");
    }
}

#[test]
fn many_frames_in_one_send_cost_one_record() {
    let mut pair = Pair::good();
    let frames: Vec<u8> = (0..64_u8).flat_map(|number| [number; 220]).collect();
    let mut out = Vec::new();
    pair.node.send(&frames, &mut out).unwrap();
    assert_eq!((records(&out), out.len()), (1, frames.len() + RECORD_OVERHEAD));
    pair.feed_edge(&out);
    assert_eq!(pair.edge_got, frames);
}

#[test]
fn large_send_costs_one_record_per_16_kib() {
    let mut pair = Pair::good();
    let body = vec![0x5a; 20 * RECORD_PLAINTEXT_MAX + 1];
    let mut out = Vec::new();
    pair.edge.send(&body, &mut out).unwrap();
    assert_eq!(records(&out), 21);
    assert!(!pair.edge.wants_write(), "nothing stays behind");
    pair.feed_node(&out);
    assert_eq!(pair.node_got, body);
}

#[test]
fn empty_send_and_empty_receive_do_nothing() {
    let mut pair = Pair::good();
    let mut out = Vec::new();
    pair.node.send(b"", &mut out).unwrap();
    assert!(out.is_empty());
    pair.feed_edge(b"");
    assert!(pair.edge_fault.is_none() && !pair.edge.peer_closed());
    pair.node.send(b"x", &mut out).unwrap();
    pair.feed_edge(&out);
    assert_eq!(&pair.edge_got[..], b"x");
}

#[test]
fn both_directions_flow_while_neither_waits_for_the_other() {
    let mut pair = Pair::good();
    let (mut up, mut down) = (Vec::new(), Vec::new());
    // Both write their whole load before either reads.
    for number in 0..200_u8 {
        pair.node.send(&[number; 300], &mut up).unwrap();
        pair.edge.send(&[!number; 700], &mut down).unwrap();
    }
    for (up, down) in up.chunks(1000).zip(down.chunks(1000)) {
        pair.feed_edge(up);
        pair.feed_node(down);
    }
    let (up_rest, down_rest) = (up.len().div_ceil(1000), down.len().div_ceil(1000));
    let common = up_rest.min(down_rest) * 1000;
    pair.feed_edge(up.get(common..).unwrap_or_default());
    pair.feed_node(down.get(common..).unwrap_or_default());
    assert!(pair.edge_fault.is_none() && pair.node_fault.is_none());
    assert_eq!((pair.edge_got.len(), pair.node_got.len()), (200 * 300, 200 * 700));
    assert_eq!((pair.edge_got[300], pair.node_got[700]), (1, !1));
}

#[test]
fn nothing_is_sent_before_the_peer_is_known() {
    let deployment = Deployment::new();
    let mut pair = Pair::new(deployment.node(), deployment.edge());
    let mut out = Vec::new();
    assert_eq!(pair.node.send(b"early", &mut out), Err(SendError::Handshaking));
    assert_eq!(pair.edge.send(b"early", &mut out), Err(SendError::Handshaking));
    assert!(out.is_empty());
    // The Edge has sent its Finished now and still must not talk to a peer it has not judged.
    pair.node.flush(&mut out);
    pair.feed_edge(&out);
    assert_eq!(pair.edge.send(b"early", &mut Vec::new()), Err(SendError::Handshaking));
    pair.settle();
    assert!(pair.edge_got.is_empty() && pair.node_got.is_empty());
}

#[test]
fn close_is_told_from_a_cut() {
    let mut pair = Pair::good();
    let mut out = Vec::new();
    pair.node.send(b"last", &mut out).unwrap();
    assert!(!pair.edge.peer_closed());
    pair.node.close(&mut out);
    assert_eq!(pair.node.send(b"more", &mut out), Err(SendError::Closed));
    out.extend_from_slice(b"bytes after the close are dropped");
    pair.feed_edge(&out);
    assert!(pair.edge_fault.is_none() && pair.edge.peer_closed());
    assert_eq!(&pair.edge_got[..], b"last");
    // The other direction is still open.
    let mut answer = Vec::new();
    pair.edge.send(b"bye", &mut answer).unwrap();
    pair.feed_node(&answer);
    assert_eq!(&pair.node_got[..], b"bye");
}

#[test]
fn record_corrupt_at_any_position_is_a_fault_with_an_alert() {
    let deployment = Deployment::new();
    let (node, edge) = (deployment.node(), deployment.edge());
    let mut length = usize::MAX;
    let mut position = 0;
    while position < length {
        let mut pair = Pair::new(node.clone(), edge.clone());
        pair.settle();
        // The first record is sound and must be delivered; so must nothing of the second.
        let mut sound = Vec::new();
        pair.node.send(b"sound", &mut sound).unwrap();
        let mut broken = Vec::new();
        pair.node.send(b"broken record", &mut broken).unwrap();
        // What makes up a length that was raised.
        pair.node.send(&vec![7; 20_000], &mut broken).unwrap();
        length = b"broken record".len() + RECORD_OVERHEAD;
        // The minor version of a record must be ignored and is not protected (RFC 8446 section 5.1).
        if position == 2 {
            position += 1;
        }
        broken[position] ^= 0x10;
        // The reader's own output is full at that time: it has just written and not flushed.
        let mut pending = Vec::new();
        pair.edge.send(&[1; 5000], &mut pending).unwrap();
        sound.extend_from_slice(&broken);
        pair.feed_edge(&sound);
        let fault = pair.edge_fault.clone().unwrap_or_else(|| panic!("byte {position} went unnoticed"));
        assert_eq!(fault.refusal(), Refusal::Protocol, "byte {position}");
        assert_eq!(&pair.edge_got[..], b"sound", "byte {position}");
        let mut alert = Vec::new();
        pair.edge.flush(&mut alert);
        assert!(!alert.is_empty(), "byte {position}: no alert");
        pending.extend_from_slice(&alert);
        pair.feed_node(&pending);
        assert!(pair.node_fault.is_some(), "byte {position}: the peer was not told");
        assert_eq!(pair.edge.send(b"x", &mut alert), Err(SendError::Closed));
        position += 1;
    }
}

#[test]
fn fault_is_repeated_and_takes_nothing_more() {
    let mut pair = Pair::good();
    let mut plaintext = BytesMut::new();
    let first = pair.edge.receive(b"\xff\xff\xff\xff\xff\xff", &mut plaintext).unwrap_err();
    for _ in 0..3 {
        let again = pair.edge.receive(&[0; 100_000], &mut plaintext).unwrap_err();
        assert_eq!(again.refusal(), first.refusal());
    }
    assert!(plaintext.is_empty());
}

#[test]
fn key_update_flood_is_a_fault() {
    let mut pair = Pair::good();
    // Each send with fresh keys costs a KeyUpdate; rustls bounds how many come without data in between.
    let mut flood = Vec::new();
    for _ in 0..1000 {
        pair.node.refresh_keys_for_test();
        pair.node.flush(&mut flood);
    }
    pair.feed_edge(&flood);
    assert_eq!(pair.edge_fault.as_ref().map(TlsFault::refusal), Some(Refusal::Protocol));
    let mut out = Vec::new();
    pair.edge.flush(&mut out);
    assert!(out.len() < 100 * 100, "answers are bounded: {}", out.len());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn plaintext_survives_any_cut(
        sends in proptest::collection::vec(0_usize..40_000, 1..6),
        cuts in proptest::collection::vec(1_usize..9_000, 1..40),
    ) {
        let mut pair = Pair::good();
        let (mut sent, mut out) = (Vec::new(), Vec::new());
        for (index, size) in sends.iter().enumerate() {
            let body = vec![u8::try_from(index).unwrap(); *size];
            pair.node.send(&body, &mut out).unwrap();
            sent.extend_from_slice(&body);
        }
        let mut rest = &out[..];
        for cut in cuts.iter().cycle() {
            if rest.is_empty() { break; }
            let (head, tail) = rest.split_at((*cut).min(rest.len()));
            let before = pair.edge_got.len();
            pair.feed_edge(head);
            prop_assert!(pair.edge_got.len() - before <= head.len() + RECORD_PLAINTEXT_MAX);
            rest = tail;
        }
        prop_assert!(pair.edge_fault.is_none());
        prop_assert_eq!(&pair.edge_got[..], &sent[..]);
    }

    #[test]
    fn garbage_never_panics(bytes in proptest::collection::vec(any::<u8>(), 1..2000), tls_first in any::<bool>()) {
        let deployment = Deployment::new();
        let mut pair = Pair::new(deployment.node(), deployment.edge());
        let mut bytes = bytes;
        if tls_first {
            bytes.splice(0..0, [0x16, 3, 1, 0, 200, 1, 0, 0, 196]);
        }
        pair.feed_edge(&bytes);
        pair.feed_node(&bytes);
        pair.settle();
        prop_assert!(pair.edge.peer().is_none() && pair.node.peer().is_none());
    }

    #[test]
    fn corrupt_handshake_never_gives_a_peer(flight in 0_usize..3, position in 0_usize..3000, bit in 0_u32..8) {
        let deployment = Deployment::new();
        let mut pair = Pair::new(deployment.node(), deployment.edge());
        let mut noticeable = false;
        for turn in 0..6 {
            let mut bytes = Vec::new();
            if turn % 2 == 0 { pair.node.flush(&mut bytes) } else { pair.edge.flush(&mut bytes) }
            if turn == flight && position < bytes.len() {
                noticeable = !is_record_version(&bytes, position);
                bytes[position] ^= 1 << bit;
            }
            if turn % 2 == 0 { pair.feed_edge(&bytes) } else { pair.feed_node(&bytes) }
        }
        prop_assert!(pair.edge.peer().is_none() || !noticeable, "{flight} {position} {bit}");
    }
}

/// The version in the header of any record is ignored (RFC 8446 section 5.1); everything else must be noticed.
fn is_record_version(mut bytes: &[u8], mut position: usize) -> bool {
    while bytes.len() >= 5 {
        let record = 5 + usize::from(u16::from_be_bytes([bytes[3], bytes[4]]));
        if position < record {
            return matches!(position, 1 | 2);
        }
        position -= record;
        bytes = &bytes[record..];
    }
    false
}
