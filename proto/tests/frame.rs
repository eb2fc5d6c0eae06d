//! Cutting a byte stream into frames.

use bytes::{Bytes, BytesMut};
use iop_proto::{
    frame::{Decoder, FRAME_BYTES_MAX, FrameError, LENGTH_BYTES},
    message::{BodyChunk, Credit, Goodbye, Message, TunnelFrame, TunnelFrameKind},
};

fn messages() -> Vec<Message> {
    vec![
        Message::HeartbeatPing,
        Message::Credit(Credit { stream: 300, bytes: 65_536 }),
        Message::TunnelFrame(TunnelFrame {
            stream: 7,
            sequence: 200,
            kind: TunnelFrameKind::Body(Bytes::from_static(b"data: {}\n\n")),
        }),
        Message::Unknown,
        Message::BodyChunk(BodyChunk { stream: 1, data: Bytes::from(vec![1; 300]), last: true }),
        Message::Goodbye(Goodbye { reason: "draining".to_owned() }),
    ]
}

fn encoded() -> Vec<u8> {
    let mut out = Vec::new();
    messages().iter().for_each(|message| message.encode(&mut out));
    out
}

fn drain(decoder: &mut Decoder, buf: &mut BytesMut, into: &mut Vec<Message>) {
    while let Some(frame) = decoder.next(buf).expect("the frames are valid") {
        into.push(Message::decode(frame).expect("the messages are valid"));
    }
}

// req: WIR-2
#[test]
fn frame_is_a_big_endian_length_and_one_envelope() {
    let mut out = Vec::new();
    Message::Credit(Credit { stream: 5, bytes: 9 }).encode(&mut out);
    // Envelope.credit = 15: 0x7a; Credit.stream = 1, Credit.bytes = 2.
    assert_eq!(out, [0, 0, 0, 6, 0x7a, 4, 0x08, 5, 0x10, 9]);
}

#[test]
fn stream_cut_at_any_byte_gives_the_same_messages() {
    let bytes = encoded();
    for cut in 0..=bytes.len() {
        let (mut decoder, mut buf, mut got) = (Decoder::default(), BytesMut::new(), Vec::new());
        for part in [&bytes[..cut], &bytes[cut..]] {
            buf.extend_from_slice(part);
            drain(&mut decoder, &mut buf, &mut got);
        }
        assert_eq!(got, messages(), "cut at {cut}");
        assert!(buf.is_empty());
    }
}

#[test]
fn stream_of_single_bytes_gives_the_same_messages() {
    let (mut decoder, mut buf, mut got) = (Decoder::default(), BytesMut::new(), Vec::new());
    for byte in encoded() {
        buf.extend_from_slice(&[byte]);
        drain(&mut decoder, &mut buf, &mut got);
    }
    assert_eq!(got, messages());
}

#[test]
fn decoder_says_how_many_bytes_are_missing() {
    let bytes = encoded();
    let (mut decoder, mut buf, mut rest, mut frames) = (Decoder::default(), BytesMut::new(), &bytes[..], 0);
    while !rest.is_empty() {
        let (part, after) = rest.split_at(decoder.bytes_wanted());
        (buf, rest) = (BytesMut::from(&[&buf[..], part].concat()[..]), after);
        while decoder.next(&mut buf).unwrap().is_some() {
            frames += 1;
        }
    }
    assert_eq!(frames, messages().len());
    assert_eq!(decoder.bytes_wanted(), LENGTH_BYTES);
}

// req: WIR-2
#[test]
fn length_over_the_bound_is_refused_before_any_memory_is_taken() {
    for (max, announced) in [(10, 11), (10, u32::MAX), (0, 1), (FRAME_BYTES_MAX, 8 * 1024 * 1024 + 1)] {
        let mut buf = BytesMut::with_capacity(64);
        buf.extend_from_slice(&announced.to_be_bytes());
        let capacity = buf.capacity();
        let mut decoder = Decoder::new(max);
        for _ in 0..2 {
            assert_eq!(decoder.next(&mut buf), Err(FrameError::TooLong { length: announced, max }));
        }
        assert_eq!(buf.capacity(), capacity, "the buffer grew for a length of {announced}");
    }
}

// req: WIR-2
#[test]
fn length_within_the_bound_takes_no_memory_before_its_bytes_arrive() {
    let mut buf = BytesMut::with_capacity(64);
    buf.extend_from_slice(&u32::try_from(FRAME_BYTES_MAX).unwrap().to_be_bytes());
    let capacity = buf.capacity();
    let mut decoder = Decoder::default();
    assert_eq!(decoder.next(&mut buf), Ok(None));
    assert_eq!((buf.capacity(), decoder.bytes_wanted()), (capacity, FRAME_BYTES_MAX));
}

#[test]
fn frame_of_exactly_the_bound_is_taken() {
    let mut buf = BytesMut::from(&[0, 0, 0, 3, 1, 2, 3, 9][..]);
    let mut decoder = Decoder::new(3);
    assert_eq!(decoder.next(&mut buf), Ok(Some(Bytes::from_static(&[1, 2, 3]))));
    assert_eq!(&buf[..], [9]);
}

// req: WIR-3
#[test]
fn empty_frame_is_an_envelope_without_a_member() {
    let mut buf = BytesMut::from(&[0, 0, 0, 0][..]);
    let frame = Decoder::default().next(&mut buf).unwrap().unwrap();
    assert_eq!(Message::decode(frame), Ok(Message::Unknown));
}

#[test]
fn decoded_body_shares_the_memory_it_was_read_into() {
    let data = vec![5; 4096];
    let mut out = Vec::new();
    iop_proto::frame::encode_tunnel_body(&mut out, 1, 0, &data);
    let mut buf = BytesMut::from(&out[..]);
    let place = buf.as_ptr_range();
    let frame = Decoder::default().next(&mut buf).unwrap().unwrap();
    let Ok(Message::TunnelFrame(TunnelFrame { kind: TunnelFrameKind::Body(body), .. })) =
        Message::decode(frame)
    else {
        panic!("not a body frame");
    };
    assert_eq!(body, data);
    assert!(place.contains(&body.as_ptr()), "the body was copied");
}
