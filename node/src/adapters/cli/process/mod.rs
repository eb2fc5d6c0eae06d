//! One program from its start to its end, as a shard sees it.
//!
//! ```text
//!   shard ─ Process ── stop, room ──▶ eventfd ─▶ thread "cli-run" ─▶ program and its process group
//!              ▲                                    │  start, pipes, signals, wait
//!              └── said, ended ◀── mailbox ◀────────┘
//! ```
//!
//! Every program has a thread of its own, which starts it, feeds and reads its pipes and waits for its end. Starting one is a fork and
//! an exec, which may take as long as a disk does, and reading its pipes on the shard would put three more descriptors and an end
//! that cannot be polled there. A thread takes 26 µs of the shard and 38 KiB, where the shortest run of a program takes milliseconds; a
//! hundred of them that wait in `poll` took no measurable time in 10 s (a debug build on two busy cores). With no program there is
//! no thread. What the shard does not take stays in the pipe, and the program waits ([`BATCHES_MAX`]).

mod keeper;
mod link;
mod origin;

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fmt, io,
    rc::Rc,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst},
    },
    thread::{self, Thread},
    time::Duration,
};

use dataplane::{
    clock,
    local::{Latch, Queue},
    mailbox,
    shard::spawn_guarded,
};
use futures::future::LocalBoxFuture;
use thiserror::Error;

use super::reader::{Finished, OutputFormat, Said};
use crate::run::terminal::Failed;
use keeper::Report;
use link::{LAST_CALL, Link};

/// How long a program that was asked to end (SIGTERM) may take before it is made to (SIGKILL). Shorter than the close grace of 5 s,
/// so that a stall's fence can be confirmed.
pub const KILL_AFTER: Duration = Duration::from_secs(2);
/// The same when the Node itself ends, which a second signal brings about within 2 s.
pub const LAST_KILL_AFTER: Duration = Duration::from_millis(500);
/// Programs of one Node at a time. Far more than a machine runs models; reaching it is answered with `busy`.
pub const PROCESSES_MAX: usize = 256;
/// Reads of a program's output, of 16 KiB at most, that wait for the shard. Then the program waits.
pub const BATCHES_MAX: usize = 8;
/// What may wait beside them: the prompt is taken, the last pieces, the end.
const OTHER_EVENTS_MAX: usize = 3;
/// Stack of a thread: reading JSON takes the most of it, at most 128 levels of it.
const STACK_BYTES: usize = 512 * 1024;

/// What is started.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Absolute path.
    pub program: Rc<str>,
    /// Its arguments.
    pub args: Rc<[String]>,
    /// All of its environment.
    pub environment: Rc<BTreeMap<OsString, OsString>>,
    /// How it answers.
    pub format: OutputFormat,
}

/// What becomes of a program.
#[derive(Debug)]
pub enum Event {
    /// It has read its prompt, or wants no more of it.
    PromptTaken,
    /// It says something.
    Said(Vec<Said>),
    /// It has ended and is nowhere any more. Nothing follows.
    Ended(Result<Finished, Failed>),
}

/// Why no program was started.
#[derive(Debug, Error)]
pub enum StartError {
    /// [`PROCESSES_MAX`] run.
    #[error("{PROCESSES_MAX} programs run already")]
    TooMany,
    /// The Node is at its end.
    #[error("the node is ending")]
    Ending,
    /// No descriptors or threads left.
    #[error("no thread for a program: {0}")]
    System(#[from] io::Error),
}

/// A program under way. Its drop stops it.
#[derive(Debug)]
pub struct Process {
    link: Arc<Link>,
    shared: Rc<Shared>,
}

struct Shared {
    events: Queue<Event>,
    gone: Latch,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("gone", &self.gone.is_closed()).finish_non_exhaustive()
    }
}

impl Process {
    /// Starts the thread that starts the program; `prompt` is what that reads.
    ///
    /// # Errors
    /// [`StartError`]. Whether the program itself starts, [`Process::next`] tells.
    pub fn start(plan: &Plan, prompt: String) -> Result<Self, StartError> {
        let place = Place::take()?;
        let (sender, seed) = mailbox::for_shard(BATCHES_MAX + OTHER_EVENTS_MAX)?;
        let mut inbox = seed.open()?;
        let link = Arc::new(Link::new()?);
        let task = keeper::Task {
            program: plan.program.to_string(),
            args: plan.args.to_vec(),
            environment: (*plan.environment).clone(),
            format: plan.format,
            prompt: prompt.into_bytes(),
        };
        let (report, told) = (Report::new(sender), Arc::clone(&link));
        thread::Builder::new().name("cli-run".to_owned()).stack_size(STACK_BYTES).spawn(move || {
            // Its last act.
            let _place = place;
            keeper::keep(task, &told, report);
        })?;
        let shared = Rc::new(Shared { events: Queue::new(), gone: Latch::new() });
        let told = Rc::clone(&shared);
        // A task of its own, because whoever waits for events may be dropped and the end is waited for after that.
        spawn_guarded(async move {
            let mut batch = Vec::new();
            while !told.gone.is_closed() {
                inbox.receive(&mut batch, BATCHES_MAX + OTHER_EVENTS_MAX).await;
                for event in batch.drain(..) {
                    let is_end = matches!(event, Event::Ended(_));
                    told.events.push(event);
                    if is_end {
                        told.gone.close();
                    }
                }
            }
        });
        Ok(Self { link, shared })
    }

    /// What becomes of it next. Loses nothing when dropped.
    pub async fn next(&self) -> Event {
        let event = self.shared.events.pop().await;
        if matches!(event, Event::Said(_)) {
            self.link.taken();
        }
        event
    }

    /// Waits until the program has ended and been waited for, after a drop too: as long as that takes.
    #[must_use]
    pub fn gone(&self) -> LocalBoxFuture<'static, ()> {
        let shared = Rc::clone(&self.shared);
        Box::pin(async move { shared.gone.closed().await })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.link.stop();
    }
}

/// Programs that have not ended.
static LIVE: AtomicUsize = AtomicUsize::new(0);
/// Process groups that were killed because asking was not enough.
static KILLED: AtomicU64 = AtomicU64::new(0);
/// The thread that waits in [`end_all`].
static LAST: OnceLock<Thread> = OnceLock::new();

/// Programs that run, and how many had to be killed since the start.
#[must_use]
pub fn counts() -> (usize, u64) {
    (LIVE.load(SeqCst), KILLED.load(SeqCst))
}

/// Ends every program of this process for good, and waits for that for at most `patience`; how many are left. Blocks: it is the last
/// thing a Node does.
pub fn end_all(patience: Duration) -> usize {
    let until = clock::now() + patience;
    let _first = LAST.set(thread::current());
    LAST_CALL.call();
    loop {
        let left = LIVE.load(SeqCst);
        let wait = until.saturating_duration_since(clock::now());
        if left == 0 || wait == Duration::ZERO {
            return left;
        }
        thread::park_timeout(wait);
    }
}

/// One of [`PROCESSES_MAX`] places.
struct Place;

impl Place {
    fn take() -> Result<Self, StartError> {
        let before = LIVE.fetch_add(1, SeqCst);
        // Given back by the drop, whatever comes.
        let place = Self;
        if LAST_CALL.is_made() {
            return Err(StartError::Ending);
        }
        if before >= PROCESSES_MAX { Err(StartError::TooMany) } else { Ok(place) }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        LIVE.fetch_sub(1, SeqCst);
        if let Some(last) = LAST.get() {
            last.unpark();
        }
    }
}

#[cfg(test)]
mod tests;
