//! Many seeds, on several threads, until enough events have been checked or one check does not hold.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use control::Counters;

use crate::{
    invariants::{Broken, Checked},
    recovery::Tally,
    rng::Rng,
    simulation::{Done, Simulation},
    trace::{Failure, Trace, guarded},
};

/// What to run.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Decides the seed of every run.
    pub seed: u64,
    /// Events to check, over all runs.
    pub events: u64,
    /// Threads.
    pub jobs: usize,
}

/// A run that broke a check.
#[derive(Clone, Debug)]
pub struct Found {
    /// The seed of that run.
    pub seed: u64,
    /// Steps of its first phase.
    pub steps: u64,
    /// What broke, and after how many of its own steps.
    pub failure: Failure,
    /// Events checked in all runs until then.
    pub events: u64,
}

/// What was counted, by name.
pub type Seen = Vec<(&'static str, u64)>;

/// What all runs came to.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Events checked.
    pub events: u64,
    /// Runs.
    pub runs: u64,
    /// How long it took.
    pub took: Duration,
    /// What happened in them, by name.
    pub seen: Seen,
    /// The first check that did not hold.
    pub found: Option<Found>,
}

/// The run of one seed.
///
/// # Errors
/// What broke.
pub fn one(seed: u64, steps: u64, recording: bool) -> (Result<Done, Failure>, Option<Trace>) {
    let mut world = Simulation::new(seed, recording);
    let mut done = None;
    let checked: Checked = guarded(|| {
        done = Some(world.run(steps)?);
        Ok(())
    });
    let steps = world.steps();
    let ended = match (checked, done) {
        (Ok(()), Some(done)) => Ok(done),
        (Err(broken), _) => Err(Failure { broken, steps }),
        (Ok(()), None) => {
            Err(Failure { broken: Broken { check: "panic", detail: "nothing was done".to_owned() }, steps })
        }
    };
    (ended, world.trace())
}

/// The seed and length of the run with this number.
pub fn draw(seed: u64, number: u64) -> (u64, u64) {
    let mut rng = Rng::new(seed.wrapping_add(number.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
    // The seed of a run is all that has to be told: its length follows from it.
    let seed = rng.word();
    (seed, length(seed))
}

/// Steps of the first phase of a seed's run.
pub fn length(seed: u64) -> u64 {
    *Rng::new(!seed).pick(&[300, 2_000, 10_000, 40_000])
}

/// Runs until enough is checked, or something breaks. `told` is called about once in ten seconds.
pub fn many(plan: &Plan, told: impl Fn(u64, Duration) + Sync) -> Report {
    let started = Instant::now();
    let (next, events, runs) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let (stop, said) = (AtomicBool::new(false), AtomicU64::new(0));
    let result: Mutex<(Seen, Option<Found>)> = Mutex::default();
    let work = || {
        while !stop.load(Relaxed) && events.load(Relaxed) < plan.events {
            let (seed, steps) = draw(plan.seed, next.fetch_add(1, Relaxed));
            let (ended, _) = one(seed, steps, false);
            let took = match &ended {
                Ok(done) => done.steps,
                Err(failure) => failure.steps,
            };
            let total = events.fetch_add(took, Relaxed) + took;
            runs.fetch_add(1, Relaxed);
            let mut result = result.lock().unwrap();
            match ended {
                Ok(done) => add(&mut result.0, &done.counters, &done.recovery),
                Err(failure) => {
                    stop.store(true, Relaxed);
                    if result.1.is_none() {
                        result.1 = Some(Found { seed, steps, failure, events: total });
                    }
                }
            }
            drop(result);
            let tens = started.elapsed().as_secs() / 10;
            if said.fetch_max(tens, Relaxed) < tens {
                told(total, started.elapsed());
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..plan.jobs.max(1) {
            scope.spawn(work);
        }
    });
    let (seen, found) = result.into_inner().unwrap();
    Report { events: events.into_inner(), runs: runs.into_inner(), took: started.elapsed(), seen, found }
}

/// Adds up what a run has seen: a simulation in which something never happens has not tested it.
fn add(seen: &mut Seen, counters: &Counters, recovery: &Tally) {
    let c = counters;
    let mut one = vec![
        ("registrations accepted", c.registrations_accepted),
        ("registrations refused", c.registrations_refused),
        ("ready", c.ready),
        ("ready refused", c.ready_refused),
        ("ready timeouts", c.ready_timeouts),
        ("superseded", c.superseded),
        ("draining", c.draining),
        ("generations fenced", c.generations_fenced),
        ("admitted", c.admitted),
        ("granted", c.granted),
        ("completed", c.returned.completed),
        ("failed", c.returned.failed),
        ("busy", c.returned.busy),
        ("not sent", c.returned.not_sent),
        ("abandoned", c.returned.abandoned),
        ("cancelled", c.returned.cancelled),
        ("cancel bound", c.returned.cancel_bound),
        ("fenced", c.returned.fenced),
        ("requeued", c.requeued),
        ("direct granted", c.direct_granted),
        ("unknown model", c.refused_unknown_model),
        ("unservable", c.refused_unservable),
        ("busy twice", c.refused_busy),
        ("no node", c.refused_no_node),
        ("queue full", c.queue_full),
        ("queue timeouts", c.queue_timeouts),
        ("withdrawn", c.withdrawn),
        ("handoffs", c.handoffs),
        ("evidence rejected", c.evidence_rejected),
        ("evidence stale", c.evidence_stale),
        ("overlays lowered", c.overlays_lowered),
        ("overlays cleared", c.overlays_cleared),
        ("overlays dropped", c.overlays_dropped),
        ("probes sent", c.probes.sent),
        ("probes unavailable", c.probes.unavailable),
        ("probes rejected", c.probes.rejected),
        ("probes failed", c.probes.failed),
        ("probes stray", c.probes.stray),
        ("stale inputs", c.stale_inputs),
        ("reloads", c.reloads),
    ];
    one.extend(recovery.seen());
    if seen.is_empty() {
        seen.extend(one);
    } else {
        seen.iter_mut().zip(one).for_each(|(sum, (_, more))| sum.1 += more);
    }
}
