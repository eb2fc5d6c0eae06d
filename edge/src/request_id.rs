//! Request ids: what a client, an operator and a log line call the same request.

use std::{cell::RefCell, sync::Arc};

/// Random bytes of one id.
const RANDOM: usize = 12;
/// Ids for which a thread draws at a time: a system call costs as much as all the rest of an id.
const DRAWN: usize = 64;
const PREFIX: &[u8; 4] = b"req_";

thread_local! {
    static POOL: RefCell<Pool> = const { RefCell::new(Pool { drawn: [0; RANDOM * DRAWN], left: 0 }) };
}

/// Random bytes, each for one id only.
struct Pool {
    drawn: [u8; RANDOM * DRAWN],
    left: usize,
}

impl Pool {
    fn take(&mut self) -> [u8; RANDOM] {
        if self.left == 0 && getrandom::fill(&mut self.drawn).is_ok() {
            self.left = DRAWN;
        }
        if let Some(left) = self.left.checked_sub(1)
            && let Some(random) = self.drawn.as_chunks().0.get(left)
        {
            self.left = left;
            return *random;
        }
        // Only uniqueness within this process is needed, not secrecy.
        let mut unique = [0; RANDOM];
        let nanos = dataplane::clock::monotonic_nanos().to_be_bytes();
        unique.iter_mut().zip(nanos).for_each(|(byte, nano)| *byte = nano);
        unique
    }
}

/// A new id, `req_` and 24 hexadecimal digits of randomness.
pub fn new() -> Arc<str> {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let random = POOL.with_borrow_mut(Pool::take);
    let mut id = [0; PREFIX.len() + 2 * RANDOM];
    id[..PREFIX.len()].copy_from_slice(PREFIX);
    for (digits, byte) in id[PREFIX.len()..].as_chunks_mut().0.iter_mut().zip(random) {
        *digits = [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 0xf)]];
    }
    str::from_utf8(&id).unwrap_or_default().into()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_id_is_another_one_of_random_digits() {
        let ids: HashSet<_> = (0..3 * DRAWN + 1).map(|_| new()).collect();
        assert_eq!(ids.len(), 3 * DRAWN + 1);
        for id in &ids {
            let digits = id.strip_prefix("req_").unwrap();
            assert!(
                digits.len() == 24 && digits.bytes().all(|digit| b"0123456789abcdef".contains(&digit)),
                "{id}"
            );
            assert!(!digits.ends_with("00000000"), "{id}: not drawn");
        }
    }
}
