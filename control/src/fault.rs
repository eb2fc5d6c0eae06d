//! Planted faults: what the simulation must find (security.md 5.2), or its count of checked events means nothing.
//!
//! Only with the feature `planted-faults`; without it `planted!` is `false` and nothing of this exists. To plant one: a
//! line here, and `planted!(Name)` where it goes wrong. `cargo test -p iop-sim --features planted-faults` does the rest.

use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

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
            pub fn what(self) -> &'static str {
                match self {
                    $(Self::$name => concat!($($doc),+),)+
                }
            }
        }
    };
}

faults! {
    /// The ready timer of a Node that became ready goes on.
    ReadyTimerKept,
    /// A connection that was superseded makes its successor ready.
    ReadyOfAnotherConnection,
    /// A superseded generation is not fenced.
    SupersededNotFenced,
    /// A connection that is over is forgotten at once.
    RetiredForgotten,
    /// The late end of a superseded connection ends its successor.
    LateCloseEndsSuccessor,
    /// A second ready of the same owner counts as a first one.
    ReadyAgainConnects,
    /// A draining Node stays a candidate.
    DrainingTakesRuns,
    /// A draining generation is not fenced at its end.
    DrainingNotFenced,
    /// A Node that left the configuration keeps its connection's claim.
    RemovedKeepsClaim,
    /// A fence leaves out the leases whose holder has left.
    FenceSkipsCancelling,
    /// A fence tells no holder.
    FenceTellsNobody,
    /// The cancel bound of a lease that came back goes on.
    CancelBoundKept,
    /// The cancel bound is a nanosecond short.
    CancelBoundShort,
    /// A terminal counts on whichever connection it comes.
    TerminalOnAnyConnection,
    /// A returned long lease keeps its long slot.
    LongSlotKept,
    /// What was fenced is returned once more when it turns out to be unsent.
    UnsentReturnedTwice,
    /// A lease that was never sent waits for its terminal when its holder leaves.
    UnsentWaitsForTerminal,
    /// What was fenced before it was sent is not admitted again.
    FencedNotReadmitted,
    /// The record of a lease outlives its holder.
    RecordOutlivesHolder,
    /// A full gate sends a request back any number of times.
    BusyForEver,
    /// `busy` behind a frame is believed.
    BusyBehindFrame,
    /// The `busy` of a draining Node uses up the one that a gate has.
    BusyOfDrainingCounts,
    /// Who waits again goes to the end of the line.
    RequeuedAtTail,
    /// Who waits again has all of the queue's time again.
    RequeuedWithNewTime,
    /// Nobody is looked at after an unsent lease came back.
    UnsentNotPumped,
    /// Nobody is looked at after a timer has freed a slot.
    TimeNotPumped,
    /// Time is not let pass before a fact is taken.
    TimeAfterFact,
    /// The wait in the queue is a nanosecond long.
    QueueTimeoutLate,
    /// A withdrawn request leaves its timer behind.
    WithdrawnKeepsTimer,
    /// A full queue refuses its oldest.
    OverflowRefusesOldest,
    /// The queue takes one more than it may.
    QueueOneTooLong,
    /// What waits is judged by the old policy after a reload.
    ReloadKeepsWishes,
    /// What is to be avoided is not.
    AvoidIgnored,
    /// The avoided candidate is taken while its alternates are only busy.
    FallbackWhileBusy,
    /// Of several avoided candidates only the last one that failed is avoided.
    OneOfSeveralAvoided,
    /// The permission for one avoided candidate is taken for all of them.
    PermissionForAnother,
    /// One that is avoided twice is permitted by either entry.
    PermissionByEither,
    /// An avoided candidate counts as an alternate of another one.
    AvoidedIsAlternate,
    /// Of several permitted candidates the first is taken, whatever its load.
    AvoidedWithoutRank,
    /// Nobody is looked at when the last alternate of an avoided candidate is lost.
    LostAlternateNotPumped,
    /// An offer of the pump is not checked again when its turn comes.
    StaleOffer,
    /// The pump forgets a group after its first grant.
    PumpGrantsOnce,
    /// The pump takes the group that comes first, not the oldest waiter.
    PumpByGroup,
    /// Priority does not count.
    RankWithoutPriority,
    /// Full ties always go the same way.
    RotationLost,
    /// Load does not count before priority.
    RankWithoutLoad,
    /// Long slots are not bounded.
    LongUnbounded,
    /// A capacity that is lowered under load stays as it was.
    LoweredCapacityIgnored,
    /// A provider that left the configuration forgets its leases.
    RemovedForgetsLoad,
    /// An overlay outlives its generation.
    OverlayInherited,
    /// An observation with the number of the last one counts.
    EqualNumberLowers,
    /// An answer with the number of the last one counts.
    EqualNumberClears,
    /// Evidence for another served model is believed.
    WrongTargetBelieved,
    /// An answer counts on whichever connection it comes.
    AnswerOnAnyConnection,
    /// An answer counts although two providers could be meant.
    AmbiguousAnswerBelieved,
    /// A command that was replaced still counts.
    ReplacedCommandCounts,
    /// Commands outlive their generation.
    CommandOutlivesGeneration,
    /// A draining Node is probed.
    DrainingProbed,
    /// A reload ends every overlay.
    ReloadEndsOverlay,
    /// The wait between two probes does not grow.
    ProbeWaitStays,
    /// The timer of an overlay that is over goes on.
    OverlayTimerKept,
    /// A direct run goes to a draining Node.
    DirectToDraining,
    /// `busy` of a direct run sends it back.
    DirectBusyWaits,
    /// A fenced direct lease is not counted as over.
    DirectLoadKept,
    // From here on: planted by someone who wrote neither the machine nor the simulation.
    /// Nobody is looked at when a long slot alone becomes free.
    LongSlotFreedUnseen,
    /// Whoever stands behind the head of a line that leaves is forgotten.
    NextInLineForgotten,
    /// Every fifth connection gets the generation of the one before.
    GenerationReused,
    /// A provider that takes no long requests counts as an alternate of a long one.
    AlternateOfWrongKind,
    /// A reload begins the rotation anew.
    ReloadForgetsRotation,
}

/// Whether this fault is planted now.
pub fn is(fault: Fault) -> bool {
    ACTIVE.load(Relaxed) == fault as usize
}

/// Plants one, or takes it out again.
pub fn plant(fault: Option<Fault>) {
    ACTIVE.store(fault.map_or(usize::MAX, |fault| fault as usize), Relaxed);
}
