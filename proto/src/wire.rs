//! The structs that prost generates from `schema/runtime.proto` at build time. Private: only `convert` and tests touch them.
#![expect(
    clippy::all,
    unreachable_pub,
    reason = "generated at build time; its style is the generator's business"
)]

include!(concat!(env!("OUT_DIR"), "/iop.runtime.v1.rs"));
