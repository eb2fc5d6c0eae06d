//! What one seed's run is like: every size and every rate is drawn anew, and about half of the faults do not happen at
//! all in one run, so that each has runs in which nothing hides it (swarm testing: Groce et al., ISSTA 2012).

use crate::rng::Rng;

/// Nanoseconds.
pub(super) const MS: u64 = 1_000_000;
/// Nanoseconds.
pub(super) const SECOND: u64 = 1_000 * MS;

/// Rates of one run. Times are nanoseconds; shares are 0.0 to 1.0; a rate is events per second of virtual time.
#[derive(Clone, Debug)]
pub(super) struct Swarm {
    pub(super) nodes: usize,
    pub(super) providers: u64,
    pub(super) groups: usize,
    pub(super) capacity: u64,
    /// How many shards the Edge has.
    pub(super) shards: usize,
    /// Moments are multiples of this: the larger it is, the more happens at the same one.
    pub(super) tick: u64,
    /// Mean delays of a frame, of a shard, of control.
    pub(super) link_delay: u64,
    pub(super) shard_delay: u64,
    pub(super) control_delay: u64,
    /// How late control is for its timeouts, in mean.
    pub(super) lateness: u64,
    /// Requests that arrive, for each slot, in the time of one run.
    pub(super) load: f64,
    pub(super) run: u64,
    pub(super) long: f64,
    pub(super) avoid: f64,
    pub(super) routes: usize,
    pub(super) direct: f64,
    /// Share of clients that lose patience, and after what time.
    pub(super) impatient: f64,
    pub(super) patience: u64,
    pub(super) queue_max: u64,
    pub(super) queue_timeout: Option<u64>,
    pub(super) stall_timeout: u64,
    pub(super) request_timeout: u64,
    pub(super) reconnect: u64,
    /// Shares of Nodes that are slow, or lie.
    pub(super) slow: f64,
    pub(super) byzantine: f64,
    /// Mean time between two of each kind of fault, over the whole world; 0 = never.
    pub(super) crash: u64,
    pub(super) drain: u64,
    pub(super) cut: u64,
    pub(super) half_cut: u64,
    pub(super) stall: u64,
    pub(super) reset: u64,
    pub(super) sicken: u64,
    pub(super) edit: u64,
    pub(super) lie: u64,
    /// Share of runs that fail by themselves, and of those that never end by themselves.
    pub(super) failing: f64,
    pub(super) hanging: f64,
}

impl Swarm {
    pub(super) fn draw(rng: &mut Rng) -> Self {
        let nodes = match rng.below(100) {
            0 => 0,
            1..=49 => rng.range(1, 4),
            50..=84 => rng.range(3, 10),
            85..=96 => rng.range(8, 24),
            _ => rng.range(24, 64),
        } as usize;
        let run = *rng.pick(&[2 * MS, 50 * MS, 500 * MS, 3 * SECOND, 20 * SECOND]);
        // A fault comes once in so many runs' time.
        let mut fault = |often: u64| {
            if rng.chance(0.5) { 0 } else { run.max(20 * MS) * rng.range(1, often) }
        };
        let (crash, drain, cut, half_cut) = (fault(60), fault(60), fault(60), fault(100));
        let (stall, reset, sicken, edit, lie) = (fault(40), fault(40), fault(30), fault(50), fault(10));
        let share = |rng: &mut Rng, most: f64| {
            if rng.chance(0.5) { 0.0 } else { rng.below(1000) as f64 / 1000.0 * most }
        };
        Self {
            nodes,
            providers: rng.range(1, 4),
            groups: rng.range(1, 5) as usize,
            capacity: *rng.pick(&[1, 1, 2, 3, 8]),
            shards: rng.range(1, 3) as usize,
            tick: *rng.pick(&[1, 1, MS, MS, 100 * MS]),
            link_delay: *rng.pick(&[1, 100_000, 5 * MS, 200 * MS]),
            shard_delay: *rng.pick(&[1, 10_000, MS, 50 * MS]),
            control_delay: *rng.pick(&[1, 10_000, MS, 50 * MS]),
            lateness: *rng.pick(&[0, 1, 100_000, 20 * MS, 2 * SECOND]),
            load: *rng.pick(&[0.3, 0.8, 1.2, 2.0, 4.0]),
            run,
            long: share(rng, 0.6),
            avoid: share(rng, 0.8),
            routes: 2,
            direct: share(rng, 0.4),
            impatient: share(rng, 0.5),
            patience: run * rng.range(1, 6) / 2,
            queue_max: *rng.pick(&[0, 1, 3, 8, 16, 24]),
            queue_timeout: rng.chance(0.8).then(|| run * rng.range(1, 12) / 2 + 1),
            stall_timeout: run * rng.range(1, 5) + MS,
            request_timeout: (run * rng.range(2, 20)).clamp(10 * MS, 120 * SECOND),
            reconnect: rng.range(1, 10_000) * MS,
            slow: share(rng, 0.5),
            byzantine: share(rng, 0.7),
            crash,
            drain,
            cut,
            half_cut,
            stall,
            reset,
            sicken,
            edit,
            lie,
            failing: share(rng, 0.4),
            hanging: share(rng, 0.2),
        }
    }
}
