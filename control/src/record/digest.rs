//! A number for a value, computed over what serde sees of it: no layout, no address, no compiler's choice is in it.
//!
//! Enum variants count by their position, lengths and numbers as 64 bits, texts by their bytes. Not for adversaries: it
//! tells apart what two builds of one program do.

use alloc::string::String;
use core::fmt::{self, Display};

use serde::{Serialize, Serializer, ser};

use crate::effect::Effect;

/// Of a list of effects; 0 when it is empty.
pub(super) fn of_effects<'a>(effects: impl ExactSizeIterator<Item = &'a Effect>) -> u64 {
    if effects.len() == 0 {
        return 0;
    }
    let mut hasher = Hasher(0);
    for effect in effects {
        // It refuses nothing.
        let _infallible = effect.serialize(&mut hasher);
    }
    // The only list that is 0 is the empty one.
    hasher.0.max(1)
}

/// Folds words by a multiplication of 128 bits, whose halves are mixed.
struct Hasher(u64);

impl Hasher {
    fn word(&mut self, word: u64) {
        // Digits of pi's and e's fractions: odd, without pattern.
        const A: u64 = 0x243f_6a88_85a3_08d3;
        const B: u64 = 0xb7e1_5162_8aed_2a6b;
        let product =
            u128::from(self.0 ^ word ^ A) * u128::from(B.rotate_left(7) ^ self.0.rotate_left(32) | 1);
        self.0 = (product as u64) ^ ((product >> 64) as u64);
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.word(bytes.len() as u64);
        let mut chunks = bytes.chunks_exact(8);
        for chunk in &mut chunks {
            self.word(chunk.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte)));
        }
        let rest = chunks.remainder();
        if !rest.is_empty() {
            self.word(rest.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte)));
        }
    }

    /// For what differs from what would have stood in its place.
    fn tag(&mut self, tag: u8) {
        self.word(0xff00 | u64::from(tag));
    }
}

/// Never made.
#[derive(Debug)]
struct Never;

impl Display for Never {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value refused to be digested")
    }
}

impl core::error::Error for Never {}

impl ser::Error for Never {
    fn custom<T: Display>(_: T) -> Self {
        Self
    }
}

macro_rules! words {
    ($($name:ident: $type:ty),*) => {$(
        fn $name(self, value: $type) -> Result<(), Never> {
            self.word(value as u64);
            Ok(())
        }
    )*};
}

impl Serializer for &mut Hasher {
    type Ok = ();
    type Error = Never;
    type SerializeSeq = Self;
    type SerializeTuple = Self;
    type SerializeTupleStruct = Self;
    type SerializeTupleVariant = Self;
    type SerializeMap = Self;
    type SerializeStruct = Self;
    type SerializeStructVariant = Self;

    words!(
        serialize_bool: bool, serialize_char: char,
        serialize_i8: i8, serialize_i16: i16, serialize_i32: i32, serialize_i64: i64,
        serialize_u8: u8, serialize_u16: u16, serialize_u32: u32, serialize_u64: u64
    );

    fn serialize_f32(self, value: f32) -> Result<(), Never> {
        self.word(u64::from(value.to_bits()));
        Ok(())
    }

    fn serialize_f64(self, value: f64) -> Result<(), Never> {
        self.word(value.to_bits());
        Ok(())
    }

    fn serialize_str(self, value: &str) -> Result<(), Never> {
        self.bytes(value.as_bytes());
        Ok(())
    }

    fn serialize_bytes(self, value: &[u8]) -> Result<(), Never> {
        self.bytes(value);
        Ok(())
    }

    fn serialize_none(self) -> Result<(), Never> {
        self.tag(0);
        Ok(())
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), Never> {
        self.tag(1);
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<(), Never> {
        self.tag(2);
        Ok(())
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<(), Never> {
        self.serialize_unit()
    }

    fn serialize_unit_variant(self, _: &'static str, index: u32, _: &'static str) -> Result<(), Never> {
        self.serialize_u32(index)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<(), Never> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        index: u32,
        _: &'static str,
        value: &T,
    ) -> Result<(), Never> {
        self.word(u64::from(index));
        value.serialize(self)
    }

    fn serialize_seq(self, len: Option<usize>) -> Result<Self, Never> {
        // Lists of effects know their length; one that does not is told apart by what follows it.
        self.word(len.map_or(u64::MAX, |len| len as u64));
        Ok(self)
    }

    fn serialize_tuple(self, _: usize) -> Result<Self, Never> {
        Ok(self)
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Self, Never> {
        Ok(self)
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        index: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self, Never> {
        self.word(u64::from(index));
        Ok(self)
    }

    fn serialize_map(self, len: Option<usize>) -> Result<Self, Never> {
        self.serialize_seq(len)
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Self, Never> {
        Ok(self)
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        index: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self, Never> {
        self.word(u64::from(index));
        Ok(self)
    }

    fn collect_str<T: Display + ?Sized>(self, value: &T) -> Result<(), Never> {
        let text: String = alloc::format!("{value}");
        self.serialize_str(&text)
    }
}

macro_rules! parts {
    ($($trait:ident $method:ident),*) => {$(
        impl ser::$trait for &mut Hasher {
            type Ok = ();
            type Error = Never;

            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Never> {
                value.serialize(&mut **self)
            }

            fn end(self) -> Result<(), Never> {
                Ok(())
            }
        }
    )*};
}

parts!(
    SerializeSeq serialize_element,
    SerializeTuple serialize_element,
    SerializeTupleStruct serialize_field,
    SerializeTupleVariant serialize_field
);

macro_rules! fields {
    ($($trait:ident),*) => {$(
        impl ser::$trait for &mut Hasher {
            type Ok = ();
            type Error = Never;

            fn serialize_field<T: Serialize + ?Sized>(&mut self, _: &'static str, value: &T) -> Result<(), Never> {
                value.serialize(&mut **self)
            }

            fn end(self) -> Result<(), Never> {
                Ok(())
            }
        }
    )*};
}

fields!(SerializeStruct, SerializeStructVariant);

impl ser::SerializeMap for &mut Hasher {
    type Ok = ();
    type Error = Never;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), Never> {
        key.serialize(&mut **self)
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Never> {
        value.serialize(&mut **self)
    }

    fn end(self) -> Result<(), Never> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;
    use crate::{
        effect::{CloseReason, Refusal},
        input::{ConnectionId, LeaseId, RequestId},
    };

    fn refuse(request: u64, reason: Refusal) -> Effect {
        Effect::Refuse { request: RequestId(request), reason }
    }

    /// A dump of one build is read by another: these numbers must stay, or the format's version rises.
    #[test]
    fn digests_are_the_same_on_every_build() {
        let down = |node: &str| Effect::NodeFenced { node: node.into(), generation: 7, leases: 2 };
        let lists: [Vec<Effect>; 4] = [
            Vec::new(),
            [refuse(1, Refusal::QueueFull)].into(),
            [down("n1"), refuse(1, Refusal::QueueFull)].into(),
            [down("a name of some length")].into(),
        ];
        let digests = lists.map(|effects| of_effects(effects.iter()));
        assert_eq!(digests, [0, 0xbecb_b0bc_d6d6_a3c0, 0x0bfb_ce5b_b465_05dc, 0xf5f1_f5ec_811a_3208]);
    }

    #[test]
    fn every_difference_changes_it() {
        let close = |reason| Effect::CloseConnection { connection: ConnectionId(1), reason };
        let lists: [&[Effect]; 9] = [
            &[refuse(1, Refusal::QueueFull)],
            &[refuse(2, Refusal::QueueFull)],
            &[refuse(1, Refusal::Busy)],
            &[refuse(1, Refusal::QueueFull), refuse(2, Refusal::QueueFull)],
            &[refuse(2, Refusal::QueueFull), refuse(1, Refusal::QueueFull)],
            &[close(CloseReason::Removed)],
            &[close(CloseReason::Superseded)],
            &[Effect::Fenced { lease: LeaseId(1), request: RequestId(2) }],
            &[Effect::Requeued { lease: LeaseId(1), request: RequestId(2) }],
        ];
        let digests: alloc::collections::BTreeSet<_> =
            lists.iter().map(|list| of_effects(list.iter())).collect();
        assert_eq!(digests.len(), lists.len());
        assert!(!digests.contains(&0));
    }
}
