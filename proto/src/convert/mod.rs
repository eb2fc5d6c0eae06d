//! [`Message`] from and to the bytes of a frame.
//!
//! ```text
//! frame bytes ─▶ scan (counts, before anything is allocated) ─▶ prost ─▶ from_wire (closed sets, pairs) ─▶ validate (bounds)
//! Message     ─▶ to_wire (defaults, cut texts)               ─▶ prost ─▶ length + bytes
//! ```
//!
//! What every tunnel has goes a shorter way to the same result: its bodies in `frame`, the rest in `direct`.

use alloc::vec::Vec;

use bytes::{BufMut, Bytes};
use prost::Message as _;
use thiserror::Error;

use crate::{
    frame::{self, LENGTH_BYTES},
    message::{ErrorKind, Message, StreamNo, TunnelFrame, TunnelFrameKind},
    validate::FieldError,
    wire,
};

mod direct;
mod from_wire;
mod scan;
mod to_wire;

/// Why the bytes of a frame are no message.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DecodeError {
    /// Not protobuf, or a known field of another type. The connection has to be closed (WIR-3).
    #[error("the frame holds no protobuf envelope")]
    Malformed(#[from] prost::DecodeError),
    /// A field that breaks a rule, in a message that belongs to no run. The connection has to be closed.
    #[error("the message is invalid")]
    Field(#[from] FieldError),
    /// A field that breaks a rule, in a message that belongs to a run. Closing the connection is always right; failing this
    /// one run, as [`Self::refusal`] says, is kinder to the others.
    #[error("the message for stream {stream} is invalid")]
    Run {
        /// Which run.
        stream: StreamNo,
        /// What is wrong.
        #[source]
        error: FieldError,
        /// Whether the message asks for a new run, which the receiver can refuse with a terminal error.
        starts_run: bool,
    },
}

impl DecodeError {
    /// How a Node may answer instead of closing the connection: the run that the message wanted to start and the kind of
    /// the terminal error it gets. `None` for every other error.
    #[must_use]
    pub fn refusal(&self) -> Option<(StreamNo, ErrorKind)> {
        match self {
            Self::Run { stream, error: FieldError::HalfCredential, starts_run: true } => {
                Some((*stream, ErrorKind::Credential))
            }
            Self::Run { stream, starts_run: true, .. } => Some((*stream, ErrorKind::InvalidRequest)),
            Self::Malformed(_) | Self::Field(_) | Self::Run { .. } => None,
        }
    }
}

impl Message {
    /// Reads one frame, without its length, as [`frame::Decoder::next`] gives it. Bodies share the memory of `frame`.
    ///
    /// Unknown fields are skipped; an envelope without a known member is [`Self::Unknown`] (WIR-3). Counts of repeated
    /// fields are checked before memory is taken for them.
    ///
    /// # Errors
    /// [`DecodeError`] says whether the connection or one run is concerned.
    pub fn decode(frame: Bytes) -> Result<Self, DecodeError> {
        let directly = Self::decode_body(&frame).or_else(|| direct::decode(&frame));
        directly.map_or_else(|| Self::decode_any(frame), Ok)
    }

    /// A valid tunnel body frame in our encoder's own order of fields, without the detour over the generated types.
    fn decode_body(frame: &Bytes) -> Option<Self> {
        let (stream, sequence, data) = frame::decode_tunnel_body(frame)?;
        let message = Self::TunnelFrame(TunnelFrame { stream, sequence, kind: TunnelFrameKind::Body(data) });
        // What breaks a rule takes the long way, to its error.
        message.validate().ok().map(|()| message)
    }

    fn decode_any(frame: Bytes) -> Result<Self, DecodeError> {
        scan::check(&frame)?;
        let envelope = wire::Envelope::decode(frame)?;
        let Some(member) = envelope.message else { return Ok(Self::Unknown) };
        let run = from_wire::run_of(&member);
        let message = from_wire::message(member).and_then(|message| message.validate().map(|()| message));
        message.map_err(|error| match run {
            Some(run) if run.stream != 0 => {
                DecodeError::Run { stream: run.stream, error, starts_run: run.starts_run }
            }
            _ => DecodeError::Field(error),
        })
    }

    /// Appends a complete frame, its length first. [`Self::Unknown`] gives an empty envelope.
    ///
    /// Nothing is checked here except that texts for people are cut to their bounds; see [`Message::validate`].
    pub fn encode(&self, out: &mut Vec<u8>) {
        if let Self::TunnelFrame(TunnelFrame { stream, sequence, kind: TunnelFrameKind::Body(data) }) = self {
            frame::encode_tunnel_body(out, *stream, *sequence, data);
        } else if !direct::encode(self, out) {
            encode_envelope(&to_wire::envelope(self), out);
        }
    }

    /// Bytes that [`Self::encode`] appends, the length included.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        LENGTH_BYTES + to_wire::envelope(self).encoded_len()
    }
}

fn encode_envelope(envelope: &wire::Envelope, out: &mut Vec<u8>) {
    let length = envelope.encoded_len();
    out.reserve(LENGTH_BYTES + length);
    out.put_u32(frame::length_of(length));
    let before = out.len();
    // A vector grows as it must, so prost never finds too little room; if it did, an empty envelope is skipped by the peer.
    if envelope.encode(out).is_err() {
        out.truncate(before - LENGTH_BYTES);
        out.put_u32(0);
    }
}

#[cfg(test)]
mod tests {
    use std::{boxed::Box, collections::BTreeMap, string::String, vec, vec::Vec};

    use bytes::Bytes;

    use super::{encode_envelope, to_wire};
    use crate::{
        frame::{encode_tunnel_body, encode_tunnel_body_head},
        limits::HEADERS_MAX,
        message::{Header, Message, Operation, TunnelFrame, TunnelFrameKind, TunnelRequest},
    };

    /// Body frames as they come and as they should not, all read on both ways.
    #[test]
    fn direct_decoder_of_body_frames_agrees_with_the_generated_one() {
        let mut directly = 0;
        let mut agree = |frame: Vec<u8>| {
            let frame = Bytes::from(frame);
            let Some(direct) = Message::decode_body(&frame) else { return };
            directly += 1;
            assert_eq!(Ok(direct), Message::decode_any(frame.clone()), "{frame:?}");
        };
        for (stream, sequence, len) in [
            (1, 0, 1),
            (1, 1, 5),
            (127, 128, 200),
            (300, 70_000, 16_384),
            (u64::MAX, u64::MAX, 3),
            (0, 1, 5),
            (1, 1, 0),
        ] {
            let mut frame = Vec::new();
            encode_tunnel_body(&mut frame, stream, sequence, &std::vec![7; len]);
            let frame = frame.split_off(4);
            agree(frame.clone());
            for at in 0..frame.len().min(40) {
                agree(frame.get(..at).unwrap_or_default().to_vec());
                for byte in 0..=u8::MAX {
                    let mut other = frame.clone();
                    if let Some(found) = other.get_mut(at) {
                        *found = byte;
                    }
                    agree(other);
                }
                let mut longer = frame.clone();
                longer.insert(at, 0x80);
                agree(longer);
            }
        }
        assert!(directly > 1000, "only {directly} frames were read directly");
    }

    fn generated(message: &Message) -> Vec<u8> {
        let mut frame = Vec::new();
        encode_envelope(&to_wire::envelope(message), &mut frame);
        frame
    }

    fn header(name: &str, value: &'static str) -> Header {
        Header { name: name.into(), value: Bytes::from_static(value.as_bytes()) }
    }

    /// The messages with a way of their own, with every field at its default and with each at several values.
    fn direct_messages() -> Vec<Message> {
        let empty = TunnelRequest {
            stream: 1,
            run_id: String::new(),
            adapter: String::new(),
            target: String::new(),
            method: String::new(),
            path: String::new(),
            headers: Vec::new(),
            body: Bytes::new(),
            body_bytes: 0,
            stream_response: false,
            timeout_sec: 0,
            metadata: BTreeMap::new(),
            operation: None,
            session_id: String::new(),
            response_stall_timeout_ms: 1,
            window_bytes: 0,
            credential: None,
            provider_auth: None,
        };
        let headers = vec![header("accept", "*/*"), header("a", ""), header("accept", "ü")];
        let full = TunnelRequest {
            stream: u64::MAX,
            run_id: "req_1".into(),
            adapter: "vllm".into(),
            target: "a model".into(),
            method: "POST".into(),
            path: "/v1/ü".into(),
            headers: headers.clone(),
            body: Bytes::from(vec![0xFF; 300]),
            body_bytes: 300,
            stream_response: true,
            timeout_sec: 3600,
            operation: Some(Operation::ChatCompletions),
            session_id: "s".into(),
            response_stall_timeout_ms: 300_000,
            window_bytes: 262_144,
            ..empty.clone()
        };
        let many = TunnelRequest { headers: vec![header("x", "y"); HEADERS_MAX], ..full.clone() };
        let start = |status, headers: &[Header], until_close| TunnelFrameKind::ResponseStart {
            status,
            headers: headers.to_vec(),
            until_close,
        };
        let kinds = [
            TunnelFrameKind::End,
            start(200, &[], false),
            start(999, &headers, true),
            start(100, &many.headers, false),
        ];
        let requests = [empty, full, many].map(|request| Message::TunnelRequest(Box::new(request)));
        let frames = kinds.into_iter().flat_map(|kind| {
            [(1, 0), (300, 70_000), (u64::MAX, u64::MAX)].map(|(stream, sequence)| {
                Message::TunnelFrame(TunnelFrame { stream, sequence, kind: kind.clone() })
            })
        });
        requests.into_iter().chain(frames).collect()
    }

    #[test]
    fn direct_encoder_of_the_other_tunnel_messages_gives_the_bytes_of_the_generated_one() {
        for message in direct_messages() {
            let mut direct = b"before".to_vec();
            assert!(super::direct::encode(&message, &mut direct), "{message:?}");
            assert_eq!(direct.strip_prefix(b"before"), Some(&generated(&message)[..]), "{message:?}");
        }
    }

    #[test]
    fn the_other_tunnel_messages_of_our_encoder_are_read_directly() {
        for message in direct_messages() {
            let frame = Bytes::from(generated(&message).split_off(4));
            assert_eq!(super::direct::decode(&frame), Some(message));
        }
    }

    /// Messages as they come and as they should not, all read on both ways.
    #[test]
    fn direct_decoder_of_the_other_tunnel_messages_agrees_with_the_generated_one() {
        let mut directly = 0;
        let mut agree = |frame: Vec<u8>| {
            let frame = Bytes::from(frame);
            let Some(direct) = super::direct::decode(&frame) else { return };
            directly += 1;
            assert_eq!(Ok(direct), Message::decode_any(frame.clone()), "{frame:?}");
        };
        for message in direct_messages() {
            let frame = generated(&message).split_off(4);
            agree(frame.clone());
            for at in 0..frame.len().min(120) {
                agree(frame.get(..at).unwrap_or_default().to_vec());
                for byte in 0..=u8::MAX {
                    let mut other = frame.clone();
                    if let Some(found) = other.get_mut(at) {
                        *found = byte;
                    }
                    agree(other);
                }
                for more in [0x00, 0x08, 0x80] {
                    let mut longer = frame.clone();
                    longer.insert(at, more);
                    agree(longer.clone());
                    // With the length of the whole put right, so that it is looked into.
                    if let Some(length) = longer.get_mut(1).filter(|length| **length < 0x7F) {
                        *length += 1;
                        agree(longer);
                    }
                }
            }
        }
        assert!(directly > 1000, "only {directly} frames were read directly");
    }

    #[test]
    fn every_body_frame_of_our_encoder_is_read_directly() {
        for (stream, sequence, len) in [(1, 0, 1), (300, 70_000, 16_384), (u64::MAX, u64::MAX, 3)] {
            let mut frame = Vec::new();
            encode_tunnel_body(&mut frame, stream, sequence, &std::vec![7; len]);
            assert!(Message::decode_body(&Bytes::from(frame.split_off(4))).is_some());
        }
    }

    #[test]
    fn direct_encoder_of_body_frames_gives_the_bytes_of_the_generated_one() {
        let numbers = [0, 1, 127, 128, 16_383, 16_384, u64::from(u32::MAX), u64::MAX];
        for stream in numbers {
            for sequence in numbers {
                for len in [0, 1, 100, 127, 128, 16_384, 65_536] {
                    let data = std::vec![7; len];
                    let kind = TunnelFrameKind::Body(Bytes::from(data.clone()));
                    let message = Message::TunnelFrame(TunnelFrame { stream, sequence, kind });
                    let mut generated = b"before".to_vec();
                    encode_envelope(&to_wire::envelope(&message), &mut generated);

                    let mut direct = b"before".to_vec();
                    encode_tunnel_body(&mut direct, stream, sequence, &data);
                    assert!(direct == generated, "stream {stream} sequence {sequence} len {len}");

                    let mut vectored = b"before".to_vec();
                    encode_tunnel_body_head(&mut vectored, stream, sequence, len);
                    vectored.extend_from_slice(&data);
                    assert!(vectored == generated, "stream {stream} sequence {sequence} len {len}");

                    let mut public = Vec::new();
                    message.encode(&mut public);
                    assert_eq!(public.len(), message.encoded_len());
                }
            }
        }
    }
}
