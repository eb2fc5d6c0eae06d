//! When which fault happens, and to whom.

use super::{Event, Simulation, nodes::Kind, swarm::SECOND};

/// A kind of fault; each comes again and again at its own rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fault {
    /// A Node's process ends without a word, or without more than its sockets' end.
    Crash,
    /// A Node is told to end.
    Drain,
    /// A link goes silent in both directions.
    Cut,
    /// A link goes silent in one direction.
    HalfCut,
    /// A link stands still for a while.
    Stall,
    /// A link is reset: each end learns of it at its own time.
    Reset,
    /// A provider stops answering.
    Sicken,
    /// The operator changes the configuration.
    Edit,
    /// A liar says something.
    Lie,
}

impl Simulation {
    fn mean(&self, fault: Fault) -> u64 {
        let swarm = &self.swarm;
        match fault {
            Fault::Crash => swarm.crash,
            Fault::Drain => swarm.drain,
            Fault::Cut => swarm.cut,
            Fault::HalfCut => swarm.half_cut,
            Fault::Stall => swarm.stall,
            Fault::Reset => swarm.reset,
            Fault::Sicken => swarm.sicken,
            Fault::Edit => swarm.edit,
            Fault::Lie => swarm.lie,
        }
    }

    pub(super) fn start_faults(&mut self) {
        use Fault::{Crash, Cut, Drain, Edit, HalfCut, Lie, Reset, Sicken, Stall};
        for fault in [Crash, Drain, Cut, HalfCut, Stall, Reset, Sicken, Edit, Lie] {
            self.next_fault(fault);
        }
    }

    fn next_fault(&mut self, fault: Fault) {
        let mean = self.mean(fault);
        if mean > 0 {
            let next = self.rng.around(mean).max(1_000);
            self.after(next, Event::Fault(fault));
        }
    }

    pub(super) fn fault(&mut self, fault: Fault) {
        if self.is_healed() {
            return;
        }
        self.next_fault(fault);
        if fault == Fault::Edit {
            return self.edit();
        }
        if self.nodes.is_empty() {
            return;
        }
        let index = self.rng.index(self.nodes.len());
        let link = self.nodes[index].link;
        match fault {
            Fault::Crash => self.exit(index),
            Fault::Drain => self.start_draining(index),
            Fault::Sicken => {
                let adapter = self.rng.index(2);
                self.nodes[index].sicken(adapter);
                let lasts = self.rng.around(20 * self.swarm.run);
                self.after(lasts, Event::Recover(index, adapter));
            }
            Fault::Lie => {
                if self.nodes[index].kind == Kind::Byzantine {
                    self.babble(index);
                }
            }
            Fault::Cut | Fault::HalfCut | Fault::Stall | Fault::Reset => {
                if let Some(link) = link {
                    self.fault_of_link(fault, index, link);
                }
            }
            Fault::Edit => {}
        }
    }

    fn fault_of_link(&mut self, fault: Fault, index: usize, link: usize) {
        match fault {
            Fault::Reset => {
                // The Node's end learns at once or by its heartbeat; the Edge's end late.
                if self.rng.chance(0.5) {
                    let late = self.rng.around(self.swarm.run);
                    self.hold_link(link, true, false, self.now + late);
                    self.lose(index, true);
                    self.after(late, Event::Mend(link));
                } else {
                    self.close_edge(link);
                }
            }
            Fault::Stall => {
                let lasts = self.rng.around(self.swarm.run);
                let up = self.rng.chance(0.6);
                let down = !up || self.rng.chance(0.3);
                self.hold_link(link, up, down, self.now + lasts);
                self.after(lasts, Event::Mend(link));
            }
            _ => {
                let both = fault == Fault::Cut;
                let up = both || self.rng.chance(0.5);
                self.hold_link(link, up, both || !up, u64::MAX);
                let lasts = self.rng.around(60 * SECOND);
                if both {
                    self.nodes[index].unreachable = self.now + lasts;
                }
                self.after(lasts, Event::Mend(link));
            }
        }
    }
}
