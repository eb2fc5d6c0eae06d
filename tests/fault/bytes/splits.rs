//! Small answers, cut everywhere.

use super::{
    Rig,
    wire::{EVENTS, Framed, JSON, Wire, document, everything},
};

/// Every framing of a body that has one.
const FRAMINGS: [Framed; 3] = [Framed::Chunks(37), Framed::Length, Framed::Close];

/// Cuts each answer in two at every place, the head's and the framing's included.
fn everywhere(stream: bool, wires: &[Wire]) -> anyhow::Result<()> {
    let mut rig = Rig::start()?;
    for (index, wire) in wires.iter().enumerate() {
        for (at, halves) in wire.halves() {
            let got = rig.expect(stream, wire, &halves, &format!("answer {index} cut at {at}"))?;
            assert_eq!(got.reads, 2, "answer {index} cut at {at}");
        }
    }
    rig.bench.settles()
}

/// Case 01 of the public reports, its second half.
// req: TUN-3
#[test]
fn a_stream_cut_in_two_at_any_byte_arrives_as_it_was_written() -> anyhow::Result<()> {
    everywhere(true, &[Wire::new(EVENTS, Framed::Chunks(37), everything().as_bytes())])
}

// req: TUN-3
#[test]
fn a_stream_with_crlf_line_ends_cut_in_two_at_any_byte_arrives_as_it_was_written() -> anyhow::Result<()> {
    let body = everything().replace('\n', "\r\n");
    everywhere(true, &[Wire::new(EVENTS, Framed::Close, body.as_bytes())])
}

// req: TUN-3
#[test]
fn a_stream_with_cr_line_ends_cut_in_two_at_any_byte_arrives_as_it_was_written() -> anyhow::Result<()> {
    // The end of its last event is missing: `[DONE]` is the end all the same.
    let body = everything().replace('\n', "\r").replace("\r: behind the end\r\r", "");
    everywhere(true, &[Wire::new(EVENTS, Framed::Length, body.as_bytes())])
}

// req: TUN-3
#[test]
fn a_document_cut_in_two_at_any_byte_arrives_as_it_was_written() -> anyhow::Result<()> {
    everywhere(false, &FRAMINGS.map(|framed| Wire::new(JSON, framed, document().as_bytes())))
}

/// Case 01 of the public reports, its first half.
// req: TUN-3
#[test]
fn answers_written_byte_by_byte_arrive_as_they_were_written() -> anyhow::Result<()> {
    let mut rig = Rig::start()?;
    let crlf = everything().replace('\n', "\r\n");
    for (stream, fields, body) in
        [(true, EVENTS, everything()), (true, EVENTS, crlf), (false, JSON, document())]
    {
        for framed in FRAMINGS {
            let wire = Wire::new(fields, framed, body.as_bytes());
            let bytes: Vec<_> = wire.bytes().chunks(1).collect();
            let got = rig.expect(stream, &wire, &bytes, &format!("{framed:?}"))?;
            assert_eq!(got.reads, wire.bytes().len() as u64, "{framed:?}");
            let text = String::from_utf8(got.answer.body)?;
            assert!(text.contains("你好🌍é"), "{text}");
        }
    }
    rig.bench.settles()
}

// req: TUN-3
#[test]
fn many_events_in_one_write_arrive_as_they_were_written() -> anyhow::Result<()> {
    let mut rig = Rig::start()?;
    let event = "id: 7\ndata: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"你好🌍é\"}}]}\r\n\n";
    let body = format!("{}{}", event.repeat(150), everything());
    for framed in [Framed::Chunks(91), Framed::Chunks(usize::MAX), Framed::Length, Framed::Close] {
        let wire = Wire::new(EVENTS, framed, body.as_bytes());
        let got = rig.expect(true, &wire, &[wire.bytes()], &format!("{framed:?}"))?;
        assert_eq!(got.reads, 1, "{framed:?}");
        // Two writes, the cut somewhere in the 75th event.
        let (left, right) = wire.bytes().split_at(wire.place(event.len() * 75 - 31));
        let got = rig.expect(true, &wire, &[left, right], &format!("{framed:?} in two"))?;
        assert_eq!(got.reads, 2, "{framed:?}");
    }
    rig.bench.settles()
}
