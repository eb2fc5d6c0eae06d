//! Protobuf bytes by hand, for messages that our own encoder would never write.

use bytes::Bytes;
use prost::encoding::{WireType, encode_key, encode_varint};

/// An integer, boolean or enum field.
pub(crate) fn int(number: u32, value: u64) -> Vec<u8> {
    let mut out = Vec::new();
    encode_key(number, WireType::Varint, &mut out);
    encode_varint(value, &mut out);
    out
}

/// A text, byte string or message field.
pub(crate) fn bytes(number: u32, content: impl AsRef<[u8]>) -> Vec<u8> {
    let mut out = Vec::new();
    encode_key(number, WireType::LengthDelimited, &mut out);
    encode_varint(content.as_ref().len() as u64, &mut out);
    out.extend_from_slice(content.as_ref());
    out
}

/// An envelope with one member, without the length in front.
pub(crate) fn envelope(member: u32, fields: &[Vec<u8>]) -> Bytes {
    Bytes::from(bytes(member, fields.concat()))
}
