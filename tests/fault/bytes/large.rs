//! Events of a mebibyte, cut around every boundary there is on the way.

use std::collections::BTreeSet;

use super::{
    READ_MAX, Rig,
    wire::{EVENTS, Framed, Wire},
};

/// Content of an event of a mebibyte, of characters of one to four bytes.
fn content() -> String {
    "你好🌍é".repeat(1024 * 1024 / "你好🌍é".len())
}

/// An event, one of a mebibyte, and the end.
fn body() -> String {
    format!("data: {{\"a\":1}}\n\ndata: {{\"content\":\"{}\"}}\n\ndata: [DONE]\n\n", content())
}

/// Places worth a cut: both sides of what reads, records, frames and windows hold, counted from the answer's and from the
/// event's beginning, and of every boundary of framing and events.
fn places(wire: &Wire, body: &str) -> BTreeSet<usize> {
    let event = body.find("data: {\"content").unwrap_or(0);
    let end = body.rfind("\n\ndata: [DONE]").unwrap_or(0);
    let mut marks = vec![wire.place(0), wire.place(event), wire.place(end), wire.place(end + 2)];
    for size in [4 * 1024, 16 * 1024, 2 * 16 * 1024, 64 * 1024, 128 * 1024, 256 * 1024, 512 * 1024] {
        marks.extend([size, wire.place(event + size), wire.place(event) + size]);
    }
    marks.push(wire.bytes().len() - 5);
    let around = |mark: usize| mark.saturating_sub(2)..=mark + 2;
    let mut places: BTreeSet<_> = marks.into_iter().flat_map(around).collect();
    // Every byte of the size lines: the first, the last, and two where chunks follow each other.
    let seam = |behind: usize| wire.place(behind - 1) + 1..=wire.place(behind);
    let seams = (1..body.len()).filter(|behind| seam(*behind).count() > 1);
    places.extend(seams.step_by(3).take(2).flat_map(seam));
    places.extend(wire.place(0) - 10..=wire.place(0));
    places.extend(wire.place(body.len() - 1)..wire.bytes().len());
    places.retain(|at| (1..wire.bytes().len()).contains(at));
    places
}

fn cut_at_places(framed: Framed) -> anyhow::Result<()> {
    let mut rig = Rig::start()?;
    let body = body();
    let wire = Wire::new(EVENTS, framed, body.as_bytes());
    for at in places(&wire, &body) {
        let (left, right) = wire.bytes().split_at(at);
        let got = rig.expect(true, &wire, &[left, right], &format!("{framed:?} cut at {at}"))?;
        let least = left.len().div_ceil(READ_MAX) + right.len().div_ceil(READ_MAX);
        assert!(got.reads >= least as u64, "{framed:?} cut at {at}: {} reads", got.reads);
    }
    rig.bench.settles()
}

// req: TUN-3, WIR-6
#[test]
fn an_event_of_a_mebibyte_in_one_chunk_arrives_as_it_was_written() -> anyhow::Result<()> {
    cut_at_places(Framed::Chunks(usize::MAX))
}

// req: TUN-3, WIR-6
#[test]
fn an_event_of_a_mebibyte_in_chunks_that_fit_nothing_arrives_as_it_was_written() -> anyhow::Result<()> {
    cut_at_places(Framed::Chunks(65_521))
}

// req: TUN-3, WIR-6
#[test]
fn an_event_of_a_mebibyte_without_chunks_arrives_as_it_was_written() -> anyhow::Result<()> {
    cut_at_places(Framed::Length)?;
    cut_at_places(Framed::Close)
}
