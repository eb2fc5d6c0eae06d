//! The frame codec: a 4-byte big-endian length and that many bytes of `Envelope` (WIR-2).
//!
//! The [`Decoder`] does no input or output and owns no buffer: the driver reads into a `BytesMut` of its own and asks for
//! the next frame. Memory follows the bytes that arrived, never the length that a peer claims.

use alloc::vec::Vec;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint, key_len};
use thiserror::Error;

pub use crate::limits::{CHUNK_BYTES_MAX, FRAME_BYTES_MAX, INLINE_BODY_MAX, WINDOW_BYTES_DEFAULT};
use crate::{message::StreamNo, wire};

/// Bytes of the length in front of each frame.
pub const LENGTH_BYTES: usize = 4;

/// Why a byte stream can no longer be cut into frames. The connection has to be closed: there is no way to find the next
/// frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum FrameError {
    /// A length over the configured bound.
    #[error("the peer announced a frame of {length} bytes, at most {max} are allowed")]
    TooLong {
        /// What the peer announced.
        length: u32,
        /// The bound.
        max: usize,
    },
}

/// Cuts a byte stream into frames.
#[derive(Clone, Debug)]
pub struct Decoder {
    frame_bytes_max: usize,
    wanted: usize,
}

impl Decoder {
    /// A decoder that takes frames of at most `frame_bytes_max` bytes, the length not counted.
    #[must_use]
    pub const fn new(frame_bytes_max: usize) -> Self {
        Self { frame_bytes_max, wanted: LENGTH_BYTES }
    }

    /// Takes the next whole frame, without its length, off the front of `buf`; `None` when it has not wholly arrived.
    ///
    /// The frame shares the memory of `buf`, and a part of it that is kept keeps that memory. A frame of length 0 is a
    /// valid, empty envelope. `buf` is never grown here.
    ///
    /// # Errors
    /// [`FrameError::TooLong`] as soon as the four bytes of such a length are there. Nothing is taken off `buf`, so each
    /// further call fails too.
    pub fn next(&mut self, buf: &mut BytesMut) -> Result<Option<Bytes>, FrameError> {
        let Some(head) = buf.first_chunk::<LENGTH_BYTES>() else {
            self.wanted = LENGTH_BYTES - buf.len();
            return Ok(None);
        };
        let announced = u32::from_be_bytes(*head);
        let too_long = FrameError::TooLong { length: announced, max: self.frame_bytes_max };
        let length = usize::try_from(announced).map_err(|_| too_long)?;
        if length > self.frame_bytes_max {
            return Err(too_long);
        }
        let arrived = buf.len() - LENGTH_BYTES;
        if arrived < length {
            self.wanted = length - arrived;
            return Ok(None);
        }
        buf.advance(LENGTH_BYTES);
        self.wanted = LENGTH_BYTES;
        Ok(Some(buf.split_to(length).freeze()))
    }

    /// How many more bytes the frame needs that the last [`Self::next`] found incomplete; a hint for the size of the next
    /// read, at most the bound and never 0.
    #[must_use]
    pub const fn bytes_wanted(&self) -> usize {
        self.wanted
    }
}

impl Default for Decoder {
    /// A decoder with [`FRAME_BYTES_MAX`].
    fn default() -> Self {
        Self::new(FRAME_BYTES_MAX)
    }
}

/// Numbers of `Envelope.provider_tunnel_frame` and of the fields of `ProviderTunnelFrame` that a body frame uses. The wire
/// never changes them (WIR-7), and a test compares the bytes with those of the generated encoder.
mod number {
    pub(super) const TUNNEL_FRAME: u32 = 10;
    pub(super) const STREAM: u32 = 1;
    pub(super) const SEQUENCE: u32 = 2;
    pub(super) const KIND: u32 = 3;
    pub(super) const BODY: u32 = 4;
}

/// Appends a complete frame that holds a tunnel body frame, without any allocation but the growth of `out`. The bytes are
/// those that [`crate::message::Message::encode`] gives.
///
/// `data` holds 1 to [`CHUNK_BYTES_MAX`] bytes; the receiver refuses anything else.
pub fn encode_tunnel_body(out: &mut Vec<u8>, stream: StreamNo, sequence: u64, data: &[u8]) {
    encode_tunnel_body_head(out, stream, sequence, data.len());
    out.extend_from_slice(data);
}

/// Appends everything of a tunnel body frame that stands before its `body_len` bytes of data. The caller sends exactly so
/// many bytes right after it, which lets a vectored write take them from where they are.
pub fn encode_tunnel_body_head(out: &mut Vec<u8>, stream: StreamNo, sequence: u64, body_len: usize) {
    let kind = wire::provider_tunnel_frame::Kind::Body as u64;
    let body = body_len as u64;
    let inner = uint64_len(number::STREAM, stream)
        + uint64_len(number::SEQUENCE, sequence)
        + uint64_len(number::KIND, kind)
        + if body == 0 { 0 } else { uint64_len(number::BODY, body) + body_len };
    let outer = key_len(number::TUNNEL_FRAME) + encoded_len_varint(inner as u64) + inner;
    out.reserve(LENGTH_BYTES + outer);
    out.put_u32(length_of(outer));
    encode_key(number::TUNNEL_FRAME, WireType::LengthDelimited, out);
    encode_varint(inner as u64, out);
    put_uint64(out, number::STREAM, stream);
    put_uint64(out, number::SEQUENCE, sequence);
    put_uint64(out, number::KIND, kind);
    if body != 0 {
        encode_key(number::BODY, WireType::LengthDelimited, out);
        encode_varint(body, out);
    }
}

/// Reads a frame, its length taken off, that holds a tunnel body frame as [`encode_tunnel_body`] writes it: nearly every
/// frame of a link. `None` for every other one, which the general decoder then reads.
pub(crate) fn decode_tunnel_body(frame: &Bytes) -> Option<(StreamNo, u64, Bytes)> {
    let mut rest = frame.as_ref();
    let inner = field(&mut rest, number::TUNNEL_FRAME, WireType::LengthDelimited)?;
    if usize::try_from(inner) != Ok(rest.len()) {
        return None;
    }
    let stream = field(&mut rest, number::STREAM, WireType::Varint)?;
    // proto3 leaves a 0 out.
    let sequence = field(&mut rest, number::SEQUENCE, WireType::Varint).unwrap_or(0);
    let kind = field(&mut rest, number::KIND, WireType::Varint)?;
    let body = field(&mut rest, number::BODY, WireType::LengthDelimited)?;
    let is_body = kind == wire::provider_tunnel_frame::Kind::Body as u64;
    if !is_body || usize::try_from(body) != Ok(rest.len()) {
        return None;
    }
    Some((stream, sequence, frame.slice(frame.len() - rest.len()..)))
}

/// Takes the key of `number` and the integer behind it off `rest`; `None`, and nothing is taken, if that is not what comes.
fn field(rest: &mut &[u8], number: u32, wire_type: WireType) -> Option<u64> {
    let (&key, mut behind) = rest.split_first()?;
    if u32::from(key) != number << 3 | wire_type as u32 {
        return None;
    }
    let value = varint(&mut behind)?;
    *rest = behind;
    Some(value)
}

/// Takes an integer off `rest`; `None` if none is whole there.
#[inline]
pub(crate) fn varint(rest: &mut &[u8]) -> Option<u64> {
    let (mut value, mut shift) = (0_u64, 0_u32);
    loop {
        let (&byte, behind) = rest.split_first()?;
        *rest = behind;
        let bits = u64::from(byte & 0x7F);
        // Ten bytes hold 64 bits, the last of them one.
        if shift > 63 || (shift == 63 && bits > 1) {
            return None;
        }
        value |= bits << shift;
        if byte < 0x80 {
            return Some(value);
        }
        shift += 7;
    }
}

/// The length field of a frame. No caller builds a frame of 4 GiB; if one did, the receiver's bound would refuse it.
pub(crate) fn length_of(frame_bytes: usize) -> u32 {
    u32::try_from(frame_bytes).unwrap_or(u32::MAX)
}

/// Key and value of an integer field; proto3 leaves a 0 out. For a length-delimited field: key and length.
fn uint64_len(field: u32, value: u64) -> usize {
    if value == 0 { 0 } else { key_len(field) + encoded_len_varint(value) }
}

fn put_uint64(out: &mut Vec<u8>, field: u32, value: u64) {
    if value != 0 {
        encode_key(field, WireType::Varint, out);
        encode_varint(value, out);
    }
}
