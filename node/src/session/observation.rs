//! The numbers of what is observed of providers (STL-7): one row for each connection to the Edge, over runs, tunnels and answers
//! to `capabilities`, from 1 and rising. The Edge tells by them which of two observations is the later one.

use std::cell::Cell;

/// The row of one connection.
#[derive(Debug, Default)]
pub struct Observations {
    /// The last number; nothing while the connection is not bound.
    last: Cell<Option<u64>>,
}

impl Observations {
    /// The Edge has acknowledged the connection: what is observed from now on has numbers.
    pub fn bind(&self) {
        if self.last.get().is_none() {
            self.last.set(Some(0));
        }
    }

    /// The number of an observation that was made just now. `None` on a connection that is not bound.
    #[must_use]
    pub fn next(&self) -> Option<u64> {
        let number = self.last.get()?.checked_add(1)?;
        if !(number % 8 == 0 && planted!(NumberRepeated)) {
            self.last.set(Some(number));
        }
        Some(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // req: STL-7
    #[test]
    fn numbers_start_at_1_rise_and_are_none_before_the_connection_is_bound() {
        let numbers = Observations::default();
        assert_eq!((numbers.next(), numbers.next()), (None, None));
        numbers.bind();
        assert_eq!((numbers.next(), numbers.next()), (Some(1), Some(2)));
        numbers.bind();
        assert_eq!(numbers.next(), Some(3), "binding again starts nothing anew");
    }
}
