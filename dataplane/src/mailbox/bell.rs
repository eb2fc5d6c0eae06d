//! How a sleeping receiver is woken: by its shard's ear, or unpark for a plain thread.

use std::io;

use crate::{
    shard::ear::{self, EarSeed, Ringer},
    sync::{
        OnceLock,
        atomic::{
            AtomicU8,
            Ordering::{Acquire, Relaxed, Release, SeqCst},
            fence,
        },
        thread::Thread,
    },
};

pub(super) enum Bell {
    Shard(Ringer),
    Thread(OnceLock<Thread>),
}

impl Bell {
    pub(super) fn shard() -> io::Result<(Self, EarSeed)> {
        let (ringer, ear) = ear::pair()?;
        Ok((Self::Shard(ringer), ear))
    }

    pub(super) fn thread() -> Self {
        Self::Thread(OnceLock::new())
    }

    pub(super) fn adopt(&self, thread: Thread) {
        if let Self::Thread(slot) = self {
            let _first = slot.set(thread);
        }
    }

    pub(super) fn ring(&self) {
        match self {
            Self::Shard(ringer) => ringer.ring(),
            Self::Thread(slot) => {
                if let Some(thread) = slot.get() {
                    thread.unpark();
                }
            }
        }
    }
}

/// How the receiver sleeps. It dozes where mail that can wait need not wake it: whoever dozes has said so before it looked at
/// its queues for the last time.
const AWAKE: u8 = 0;
const DOZING: u8 = 1;
const ASLEEP: u8 = 2;

/// A bell and whether anyone sleeps beside it.
///
/// No wake is lost: the receiver says that it falls asleep and then looks at its queues once more, the sender pushes and then
/// asks whether it sleeps. Between the two steps of each stands a fence, so that one of them sees what the other did (Dekker),
/// whatever the queues' own orderings are. `tests/loom` runs it under every interleaving, and fails without either fence. All
/// changes of the state are read-modify-writes, which costs nothing beside a sleep: loom knows no order between a store and a swap.
pub(super) struct Doorbell {
    sleep: AtomicU8,
    bell: Bell,
}

impl Doorbell {
    pub(super) fn new(bell: Bell) -> Self {
        Self { sleep: AtomicU8::new(AWAKE), bell }
    }

    /// As [`Bell::adopt`].
    pub(super) fn adopt(&self, thread: Thread) {
        self.bell.adopt(thread);
    }

    /// Whether the receiver has to be woken for what was pushed before.
    pub(super) fn is_asleep(&self) -> bool {
        fence(SeqCst);
        self.sleep.load(Acquire) != AWAKE
    }

    /// Whether it has to be woken for what was pushed before and can wait.
    pub(super) fn is_fast_asleep(&self) -> bool {
        fence(SeqCst);
        self.sleep.load(Acquire) == ASLEEP
    }

    /// Wakes the receiver, if it still sleeps and nobody else has woken it.
    pub(super) fn ring(&self) {
        if self.sleep.swap(AWAKE, Acquire) != AWAKE {
            self.bell.ring();
        }
    }

    /// The receiver sleeps unless its queue holds something after this.
    pub(super) fn fall_asleep(&self) {
        self.settle_down(ASLEEP);
    }

    /// As [`Doorbell::fall_asleep`], but what can wait does not wake it.
    pub(super) fn doze(&self) {
        self.settle_down(DOZING);
    }

    fn settle_down(&self, how: u8) {
        let _was = self.sleep.swap(how, Release);
        fence(SeqCst);
    }

    /// The receiver looks at its queue again before it sleeps.
    pub(super) fn wake_up(&self) {
        let _was = self.sleep.swap(AWAKE, Relaxed);
    }
}
