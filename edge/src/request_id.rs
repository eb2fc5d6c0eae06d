//! Request ids: what a client, an operator and a log line call the same request.

use std::{fmt::Write, sync::Arc};

/// A new id, `req_` and 24 hexadecimal digits of randomness.
pub fn new() -> Arc<str> {
    let mut random = [0_u8; 12];
    if getrandom::fill(&mut random).is_err() {
        // Only uniqueness within this process is needed, not secrecy.
        let nanos = dataplane::clock::monotonic_nanos().to_be_bytes();
        random.iter_mut().zip(nanos).for_each(|(byte, nano)| *byte = nano);
    }
    let mut id = String::with_capacity(28);
    id.push_str("req_");
    for byte in random {
        let _infallible = write!(id, "{byte:02x}");
    }
    id.into()
}
