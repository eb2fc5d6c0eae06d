//! The Node's stall watchdog in a simulated world: its real machine, clock, scanner of comments, gate and numbers, driven as
//! the Node's driver does it, by providers that a seed decides on.
//!
//! | Module | What it is |
//! |---|---|
//! | [`provider`] | what providers do: talk, chat in comments, fall silent, return late or never, answer probes |
//! | [`reference`](mod@reference) | the watchdog once more, from the whole history at each step |
//! | `world` | runs, sessions, time, and the books that each step is held against |
//!
//! | Check | What it says |
//! |---|---|
//! | effects | the machine does what the reference does (STL-3, STL-4) |
//! | once | one fence, one probe, one terminal, one giving back |
//! | early, late | no claim before the timeout, none later than a clock that stood still allows, no terminal later than 5 s |
//! | fence | confirmed when the provider had closed by then, and only then (STL-8) |
//! | tie | whoever was stopped, or was over, by the moment of the claim has not stalled (PRE-1) |
//! | output | nothing is passed on behind the fence (STL-9) |
//! | held | a place is taken until the provider has returned or the session is lost, and not for longer (PRE-2, PRE-3) |
//! | numbers | of one session, without a gap, from 1 (STL-7) |
//! | idle | a step without news does nothing |

pub mod provider;
pub mod reference;
mod world;

use std::{
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use crate::{
    invariants::Checked,
    run::{self, Found, Plan, Report, Seen},
    trace::{Failure, guarded},
};

pub use world::{Done, World};

/// The run of one seed, of so many steps.
///
/// # Errors
/// What broke.
pub fn one(seed: u64, steps: u64) -> Result<Done, Failure> {
    let mut world = World::new(seed);
    let mut done = None;
    let checked: Checked = guarded(|| {
        done = Some(world.run(steps)?);
        Ok(())
    });
    let taken = world.steps();
    match (checked, done) {
        (Ok(()), Some(done)) => Ok(done),
        (Ok(()), None) => unreachable!("a run that holds has an end"),
        (Err(broken), _) => Err(Failure { broken, steps: taken }),
    }
}

/// Runs until enough is checked, or something breaks.
pub fn many(plan: &Plan) -> Report {
    let started = Instant::now();
    let (next, events, runs) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let stop = AtomicBool::new(false);
    let result: Mutex<(Seen, Option<Found>)> = Mutex::default();
    let work = || {
        while !stop.load(Relaxed) && events.load(Relaxed) < plan.events {
            let (seed, steps) = run::draw(!plan.seed, next.fetch_add(1, Relaxed));
            let ended = one(seed, steps);
            let took = ended.as_ref().map_or_else(|failure| failure.steps, |done| done.steps);
            let total = events.fetch_add(took, Relaxed) + took;
            runs.fetch_add(1, Relaxed);
            let mut result = result.lock().unwrap();
            match ended {
                Ok(done) if result.0.is_empty() => result.0 = done.seen,
                Ok(done) => result.0.iter_mut().zip(done.seen).for_each(|(sum, (_, more))| sum.1 += more),
                Err(failure) => {
                    stop.store(true, Relaxed);
                    result.1.get_or_insert(Found { seed, steps, failure, events: total });
                }
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..plan.jobs.max(1) {
            scope.spawn(work);
        }
    });
    let (seen, found) = result.into_inner().unwrap();
    let took: Duration = started.elapsed();
    Report { events: events.into_inner(), runs: runs.into_inner(), took, seen, found }
}
