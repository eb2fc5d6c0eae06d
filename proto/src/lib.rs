//! What Edge and Node agree on: the wire schema, its framing, its validated messages and the names of workloads.
//!
//! The crate is pure: no socket, clock, randomness or logging, and no `std`. In reading order:
//!
//! | Module | Owns |
//! |---|---|
//! | [`message`] | validated types; everyone outside this crate works with these only |
//! | [`header`], [`operation`] | checked header fields; spelling of the closed sets |
//! | [`limits`] | every bound that a peer can run into |
//! | [`validate`] | the checks of those bounds |
//! | [`convert`] | [`message::Message::decode`] and [`message::Message::encode`] |
//! | [`frame`] | lengths in front of messages |
//! | [`body`] | large bodies in parts |
//! | [`run_input`] | what `RunRequest.input` holds |
//! | [`identity`] | workload names and the URI that stands in a certificate |
//!
//! ```
//! use iop_proto::{frame::Decoder, message::{Credit, Message}};
//!
//! let mut out = Vec::new();
//! Message::Credit(Credit { stream: 1, bytes: 4096 }).encode(&mut out);
//!
//! let mut buf = bytes::BytesMut::from(&out[..]);
//! let frame = Decoder::default().next(&mut buf).unwrap().unwrap();
//! assert_eq!(Message::decode(frame).unwrap().stream(), Some(1));
//! ```
//!
//! The generated protobuf structs are private: a value that left this crate has passed every structural check.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod body;
pub mod convert;
pub mod frame;
pub mod header;
pub mod identity;
pub mod limits;
pub mod message;
pub mod operation;
pub mod run_input;
pub mod validate;

mod wire;
