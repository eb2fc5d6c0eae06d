//! The local capacity gate of one adapter instance (GAT-1): a second line of defence for the backend.
//!
//! A full gate is answered with `busy` before anything of the provider is touched; nothing ever waits here.

use std::{cell::Cell, rc::Rc};

/// How many executions one adapter instance may run at a time. Cloning shares the gate.
#[derive(Clone, Debug)]
pub struct Gate(Rc<State>);

#[derive(Debug)]
struct State {
    size: Cell<u32>,
    /// Permits that exist; above `size` only after the gate was made smaller.
    held: Cell<u32>,
}

/// The right to run one execution; its drop gives the place back, whatever the reason of the drop.
#[derive(Debug)]
pub struct Permit(Rc<State>);

impl Gate {
    /// A gate of `size` places; 0 lets nothing through.
    #[must_use]
    pub fn new(size: u32) -> Self {
        Self(Rc::new(State { size: Cell::new(size), held: Cell::new(0) }))
    }

    /// A place, or `None` when all are taken.
    #[must_use]
    pub fn try_enter(&self) -> Option<Permit> {
        let held = self.0.held.get();
        if held >= self.0.size.get() {
            return None;
        }
        self.0.held.set(held + 1);
        Some(Permit(Rc::clone(&self.0)))
    }

    /// Changes the size at once (GAT-2). What runs goes on; a smaller gate lets nothing new in until enough has ended.
    pub fn resize(&self, size: u32) {
        self.0.size.set(size);
    }

    /// Places taken.
    #[must_use]
    pub fn held(&self) -> u32 {
        self.0.held.get()
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.held.set(self.0.held.get().saturating_sub(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // req: GAT-1
    #[test]
    fn a_full_gate_lets_nothing_in_until_a_permit_is_dropped() {
        let gate = Gate::new(2);
        let first = gate.try_enter().unwrap();
        // A run and a tunnel hold clones of the same gate.
        let shared = gate.clone();
        let second = shared.try_enter().unwrap();
        assert!(gate.try_enter().is_none());
        drop(first);
        assert!(gate.try_enter().is_some());
        drop(second);
        assert_eq!(gate.held(), 0);
        assert!(Gate::new(0).try_enter().is_none());
    }

    // req: GAT-2
    #[test]
    fn a_refreshed_size_counts_at_once_and_takes_nothing_from_what_runs() {
        let gate = Gate::new(1);
        let _first = gate.try_enter().unwrap();
        gate.resize(3);
        let second = gate.try_enter().unwrap();
        let third = gate.try_enter().unwrap();
        gate.resize(2);
        assert_eq!(gate.held(), 3);
        drop(third);
        assert!(gate.try_enter().is_none());
        drop(second);
        assert!(gate.try_enter().is_some());
    }

    #[test]
    fn a_panic_of_the_holder_gives_the_place_back() {
        let gate = Gate::new(1);
        let permit = gate.try_enter().unwrap();
        let unwound = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
            let _held = permit;
            std::panic::resume_unwind(Box::new("planned"));
        }));
        assert!(unwound.is_err());
        assert!(gate.try_enter().is_some());
    }
}
