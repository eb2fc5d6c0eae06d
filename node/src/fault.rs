//! Planted faults of the watchdog: what the simulation must find, or its count of checked events means nothing.
//!
//! Only with the feature `planted-faults`; without it `planted!` is `false` and nothing of this exists. To plant one: a
//! line here, and `planted!(Name)` where it goes wrong. `cargo test -p iop-sim --features planted-faults` does the rest.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Whose turn it is; one past the last = nobody's.
static ACTIVE: AtomicUsize = AtomicUsize::new(usize::MAX);

macro_rules! faults {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// One deliberate mistake.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Fault {
            $($(#[doc = $doc])+ $name,)+
        }

        impl Fault {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name,)+];

            /// What goes wrong.
            #[must_use]
            pub fn what(self) -> &'static str {
                match self {
                    $(Self::$name => concat!($($doc),+),)+
                }
            }
        }
    };
}

faults! {
    /// An empty delta or body counts as progress.
    EmptyIsProgress,
    /// A comment of an event stream counts as progress.
    CommentIsProgress,
    /// The clock goes on while the Edge takes nothing.
    BackPressureCounts,
    /// The clock starts anew when the Edge takes something again.
    UnblockIsProgress,
    /// The timer of a stream that made progress is set to the whole timeout.
    TimerForgets,
    /// The timeout is a nanosecond short.
    TimeoutShort,
    /// The stall wins a tie against deadline, cancel and lost session.
    StallWinsTie,
    /// A claimed attempt goes on.
    ClaimNotFenced,
    /// The close grace starts anew when the probe is over.
    ProbeExtendsGrace,
    /// The probe's time starts anew when the provider returns.
    ReturnExtendsProbe,
    /// A provider that the probe finds available goes on.
    ProbeRevives,
    /// The provider's return is not waited for once the probe is over.
    GraceSkipped,
    /// A provider that was reset counts as returned.
    ResetConfirms,
    /// A provider that the probe finds available counts as returned.
    ProbeConfirms,
    /// A cancel that comes after the claim changes the outcome.
    LateStopWins,
    /// What a run holds is given back with an unconfirmed terminal.
    HeldGivenBack,
    /// What is held for a provider outlives its session.
    HeldBeyondSession,
    /// A late return sends a second terminal.
    ReturnEndsAgain,
    /// A late return gives nothing back.
    ReturnUnseen,
    /// Every eighth number of an observation is given twice.
    NumberRepeated,
}

/// Whether this fault is planted now.
#[must_use]
pub fn is(fault: Fault) -> bool {
    ACTIVE.load(Relaxed) == fault as usize
}

/// Plants one, or takes it out again.
pub fn plant(fault: Option<Fault>) {
    ACTIVE.store(fault.map_or(usize::MAX, |fault| fault as usize), Relaxed);
}
