//! Runs, sessions and time around the machine, and the books that each of its steps is held against.

use std::{
    cell::RefCell,
    cmp::Reverse,
    collections::BinaryHeap,
    rc::Rc,
    time::{Duration, Instant},
};

use dataplane::http::client::abort::Return;
use node::{
    gate::{Gate, Permit},
    health::ProviderHealth,
    run::{
        control::Stop,
        watchdog::{
            Activity, Effects, Fence, Observation, Outcome, Progress, Seen as Known, Watchdog,
            comments::Comments,
        },
    },
    session::observation::Observations,
};
use proto::message::ErrorKind;

use super::{
    provider::{self, GRACE, Leaves, Script, Shape},
    reference::{Mark, Reference},
};
use crate::{
    invariants::{Broken, Checked, broken, hold},
    rng::Rng,
    run::Seen,
};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;
/// How much later than it could a clock that stood still may be looked at again.
const LOOK_AGAIN: u64 = 250 * MS;

/// Something that happens to a run at a moment. What the provider did comes before what is made of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Call,
    Piece,
    Unblock,
    Cancel,
    PeerFault,
    Lost,
    Left(bool),
    ResetByGrace,
    Answer,
    /// A timer of this number; an earlier one is void.
    Timer(u32),
    /// Somebody looks for no reason.
    Look,
}

/// One connection of the Node to its Edge.
struct Session {
    gate: Gate,
    observations: Observations,
    numbers: u64,
    lost: bool,
}

/// One execution, with what the world knows of it.
struct Run {
    session: Rc<RefCell<Session>>,
    script: Script,
    timeout: u64,
    deadline: Option<u64>,
    activity: Activity,
    comments: Comments,
    watchdog: Watchdog,
    reference: Reference,
    permit: Option<Permit>,
    /// The work may pass something on.
    works: bool,
    blocked: bool,
    /// Pieces that came while nothing could be read.
    backlog: u32,
    timer: u32,
    /// Events of an earlier execution in this place are void.
    life: u32,
    in_comment: Option<bool>,
    /// The provider's true return, and how.
    left: Option<(u64, Return)>,
    claimed: Option<u64>,
    stopped: bool,
    counts: Counts,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    fences: u32,
    probes: u32,
    terminals: u32,
    frees: u32,
}

/// How one seed's run ended, when every check held.
#[derive(Clone, Debug)]
pub struct Done {
    /// Events checked.
    pub steps: u64,
    /// Equal for equal runs.
    pub digest: u64,
    /// What happened.
    pub seen: Seen,
}

/// The world.
pub struct World {
    rng: Rng,
    epoch: Instant,
    now: u64,
    tick: u64,
    rates: Rates,
    events: BinaryHeap<Reverse<(u64, usize, u32, Event)>>,
    runs: Vec<Run>,
    free: Vec<usize>,
    session: Rc<RefCell<Session>>,
    steps: u64,
    digest: u64,
    seen: Vec<(&'static str, u64)>,
    ending: bool,
}

#[derive(Clone, Copy, Debug)]
struct Rates {
    runs: usize,
    timeout: u64,
    deadlines: f64,
    cancels: f64,
    losses: f64,
    looks: f64,
}

impl World {
    /// The world of a seed.
    pub fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let tick = *rng.pick(&[1, MS, 50 * MS, 500 * MS]);
        let timeout = *rng.pick(&[MS, 500 * MS, 2 * SECOND, 30 * SECOND, 300 * SECOND]);
        let rates = Rates {
            runs: *rng.pick(&[1, 3, 10, 40]),
            timeout: timeout.next_multiple_of(tick),
            deadlines: *rng.pick(&[0.0, 0.3, 0.9]),
            cancels: *rng.pick(&[0.0, 0.2, 0.8]),
            losses: *rng.pick(&[0.0, 0.001, 0.01]),
            looks: *rng.pick(&[0.0, 0.05]),
        };
        let mut world = Self {
            epoch: Instant::now(),
            now: 0,
            tick,
            rates,
            events: BinaryHeap::new(),
            runs: Vec::new(),
            free: Vec::new(),
            session: session(),
            steps: 0,
            digest: 0,
            seen: NAMES.iter().map(|name| (*name, 0)).collect(),
            ending: false,
            rng,
        };
        for _ in 0..rates.runs {
            world.begin();
        }
        world
    }

    /// Events taken so far.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Runs for so many events, then loses the session and lets everything come to its end.
    ///
    /// # Errors
    /// The first check that does not hold.
    pub fn run(&mut self, steps: u64) -> Result<Done, Broken> {
        while self.steps < steps {
            if self.events.is_empty() {
                // Everything is held for providers that never return.
                self.count("sessions lost");
                self.lose();
            }
            self.turn()?;
        }
        self.ending = true;
        self.lose();
        while !self.events.is_empty() {
            self.turn()?;
        }
        for (number, run) in self.runs.iter().enumerate() {
            hold!("held", run.watchdog.is_over(), "run {number} is not over at the end: {:?}", run.watchdog);
        }
        let held = self.session.borrow().gate.held();
        hold!("held", held == 0, "{held} places are taken at the end");
        Ok(Done { steps: self.steps, digest: self.digest, seen: self.seen.clone() })
    }

    fn count(&mut self, name: &str) {
        let entry = self.seen.iter_mut().find(|(known, _)| *known == name);
        entry.expect("every name is in NAMES").1 += 1;
    }

    fn at(&mut self, at: u64, run: usize, event: Event) {
        self.events.push(Reverse((at.max(self.now), run, self.runs[run].life, event)));
    }

    /// At the next tick after a delay, so that things happen at one moment.
    fn after(&mut self, delay: u64, run: usize, event: Event) {
        let at = self.now.saturating_add(delay).next_multiple_of(self.tick);
        self.at(at, run, event);
    }

    fn instant(&self, at: u64) -> Instant {
        self.epoch + Duration::from_nanos(at)
    }

    /// A new execution, in the place of one that is over.
    fn begin(&mut self) {
        let timeout = self.rates.timeout;
        let script = Script::draw(&mut self.rng, timeout);
        let deadline = self.rng.chance(self.rates.deadlines).then(|| {
            let after = *self.rng.pick(&[timeout, 2 * timeout, timeout / 2 + 1, timeout - 1, 10 * timeout]);
            self.now + after
        });
        let now = self.instant(self.now);
        let session = Rc::clone(&self.session);
        let permit = session.borrow().gate.try_enter();
        let content_type: &[u8] =
            if script.shape == Shape::Events { b"text/event-stream" } else { b"application/json" };
        let mut run = Run {
            activity: Activity::new(now),
            comments: Comments::of(Some(content_type)),
            watchdog: Watchdog::new(
                Duration::from_nanos(timeout),
                deadline.map(|deadline| self.instant(deadline)),
            ),
            reference: Reference::new(timeout, deadline),
            session,
            script,
            timeout,
            deadline,
            permit,
            works: true,
            blocked: false,
            backlog: 0,
            timer: 0,
            life: 0,
            in_comment: None,
            left: None,
            claimed: None,
            stopped: false,
            counts: Counts::default(),
        };
        let number = match self.free.pop() {
            Some(number) => {
                run.life = self.runs[number].life + 1;
                self.runs[number] = run;
                number
            }
            None => {
                self.runs.push(run);
                self.runs.len() - 1
            }
        };
        let upload = *self.rng.pick(&[0, 0, timeout / 2, 2 * timeout]);
        self.after(upload, number, Event::Call);
        if self.rng.chance(self.rates.cancels) {
            let after =
                *self.rng.pick(&[timeout, timeout + upload, timeout / 3, timeout + GRACE / 2, 5 * timeout]);
            let event = if self.rng.chance(0.1) { Event::PeerFault } else { Event::Cancel };
            self.after(after, number, event);
        }
        self.arm(number);
    }

    /// What the driver does before it waits: one timer, which is set anew only when something has come of the wait.
    fn arm(&mut self, number: usize) {
        let (now, run) = (self.instant(self.now), &mut self.runs[number]);
        run.timer += 1;
        let (due, timer) = (run.watchdog.due(now, &run.activity), run.timer);
        if let Some(due) = due {
            let at = due.saturating_duration_since(self.epoch).as_nanos() as u64;
            self.at(at, number, Event::Timer(timer));
        }
    }

    /// Everything that happens to one run at the next moment.
    fn turn(&mut self) -> Checked {
        let Some(Reverse((at, number, life, first))) = self.events.pop() else { return Ok(()) };
        self.now = at;
        if life != self.runs[number].life {
            return Ok(());
        }
        let mut known = Known::default();
        let mut woken = self.happen(number, first, &mut known)?;
        while let Some(&Reverse((also, same, lives, event))) = self.events.peek()
            && (also, same, lives) == (at, number, life)
        {
            self.events.pop();
            woken |= self.happen(number, event, &mut known)?;
        }
        if woken {
            self.step(number, known)?;
        }
        if !self.ending && self.rng.chance(self.rates.losses) {
            self.count("sessions lost");
            self.lose();
        }
        if self.rng.chance(0.01) {
            self.capabilities()?;
        }
        Ok(())
    }

    /// One event; whether the driver wakes for it.
    fn happen(&mut self, number: usize, event: Event, known: &mut Known) -> Result<bool, Broken> {
        self.steps += 1;
        self.digest =
            (self.digest ^ self.now ^ (number as u64) << 40).wrapping_mul(0x0100_0000_01b3).rotate_left(23);
        match event {
            Event::Call => self.call(number),
            Event::Piece => return self.piece(number, known),
            Event::Unblock => self.unblock(number)?,
            Event::Cancel | Event::PeerFault => {
                let fault = Stop::PeerFault(ErrorKind::InvalidRequest);
                known.stop.get_or_insert(if event == Event::Cancel { Stop::Cancelled } else { fault });
                return Ok(true);
            }
            Event::Lost => {
                // Whose work is over hears of nothing else.
                let earlier = known.stop.filter(|_| self.runs[number].works);
                known.stop = earlier.or(Some(Stop::SessionLost));
                return Ok(true);
            }
            Event::Left(confirmed) => {
                let how = if confirmed { Return::Confirmed } else { Return::StillSending };
                return Ok(self.leave(number, how, known));
            }
            Event::ResetByGrace => return Ok(self.leave(number, Return::Unconfirmed, known)),
            Event::Answer => return self.answer(number, known),
            Event::Timer(timer) => return Ok(timer == self.runs[number].timer),
            Event::Look => {
                self.count("looks");
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn call(&mut self, number: usize) {
        let now = self.instant(self.now);
        let run = &mut self.runs[number];
        if !run.works {
            return;
        }
        run.activity.start(now);
        run.reference.mark(self.now, Mark::Called);
        let gap = run.script.gap;
        let delay = self.rng.around(gap);
        self.after(delay, number, Event::Piece);
    }

    /// The provider says something, and what it says next is planned.
    fn piece(&mut self, number: usize, known: &mut Known) -> Result<bool, Broken> {
        if self.runs[number].watchdog.is_over() || self.ending && !self.runs[number].works {
            return Ok(false);
        }
        let script = &self.runs[number].script;
        let (gap, silent, ends, blocks) = (script.gap, script.falls_silent, script.ends, script.blocks);
        // Behind the fence it talks on for a while.
        let patience = if self.runs[number].works { 0.0 } else { 0.3 };
        let goes_on = !self.rng.chance(silent) && !self.rng.chance(patience);
        let mut finishes = false;
        if goes_on && self.rng.chance(ends) {
            finishes = true;
        } else if goes_on {
            let delay = self.rng.around(gap);
            self.after(delay, number, Event::Piece);
        }
        if self.runs[number].blocked {
            // It stays where it is until the client takes something.
            self.runs[number].backlog += 1;
            if finishes {
                self.after(gap, number, Event::Piece);
            }
            return Ok(false);
        }
        self.read(number)?;
        if finishes && self.runs[number].works {
            let terminal = provider::terminal(&mut self.rng);
            let now = self.instant(self.now);
            self.runs[number].activity.note(now, provider::progress_of(&terminal));
            known.finished = true;
            return Ok(true);
        }
        if self.rng.chance(blocks) {
            self.block(number);
            let delay = *self.rng.pick(&[gap, self.rates.timeout, 3 * self.rates.timeout, MS]);
            self.after(delay, number, Event::Unblock);
        }
        if self.rng.chance(self.rates.looks) {
            self.after(0, number, Event::Look);
        }
        Ok(false)
    }

    /// The work reads one piece and passes it on.
    fn read(&mut self, number: usize) -> Checked {
        let now = self.instant(self.now);
        let (run, rng) = (&mut self.runs[number], &mut self.rng);
        if !run.works {
            self.count("late output");
            return Ok(());
        }
        hold!("output", run.reference.is_watching(), "run {number} passes something on behind its fence");
        let idle = rng.chance(run.script.idles);
        let (progress, is_progress) = match run.script.shape {
            Shape::Events => {
                let piece = provider::piece(rng, idle);
                let content = Progress::Content(run.comments.content(piece));
                (content, reads_content(&mut run.in_comment, piece))
            }
            Shape::Bytes => {
                let bytes = if idle { 0 } else { 7 };
                (Progress::Content(bytes), bytes > 0)
            }
            Shape::Run => (provider::progress_of(&provider::event(rng, idle)), !idle),
        };
        run.activity.note(now, progress);
        if is_progress {
            run.reference.mark(self.now, Mark::Progress);
        }
        self.count(if is_progress { "progress" } else { "no progress" });
        Ok(())
    }

    fn block(&mut self, number: usize) {
        let now = self.instant(self.now);
        let run = &mut self.runs[number];
        if run.works && !run.blocked {
            run.blocked = true;
            run.activity.block(now);
            run.reference.mark(self.now, Mark::Blocked);
            self.count("blocked");
        }
    }

    fn unblock(&mut self, number: usize) -> Checked {
        let now = self.instant(self.now);
        let run = &mut self.runs[number];
        if !run.works || !std::mem::take(&mut run.blocked) {
            return Ok(());
        }
        run.activity.unblock(now);
        run.reference.mark(self.now, Mark::Unblocked);
        for _ in 0..std::mem::take(&mut run.backlog) {
            self.read(number)?;
        }
        Ok(())
    }

    /// The provider is gone from the request.
    fn leave(&mut self, number: usize, how: Return, known: &mut Known) -> bool {
        let run = &mut self.runs[number];
        if run.left.is_some() {
            return false;
        }
        run.left = Some((self.now, how));
        known.returned = Some(how);
        true
    }

    fn answer(&mut self, number: usize, known: &mut Known) -> Result<bool, Broken> {
        let run = &self.runs[number];
        let Some(health) = run.script.probe.0 else { return Ok(false) };
        if run.watchdog.is_over() || run.counts.terminals > 0 {
            // Its probe was dropped with the terminal.
            return Ok(false);
        }
        let session = Rc::clone(&run.session);
        known.probe = Some(Observation { health, sequence: number_of(&session)? });
        Ok(true)
    }

    /// An answer to CAPABILITIES takes a number of the same row.
    fn capabilities(&mut self) -> Checked {
        let session = Rc::clone(&self.session);
        number_of(&session)?;
        self.count("numbers");
        Ok(())
    }

    fn step(&mut self, number: usize, known: Known) -> Checked {
        let now = self.instant(self.now);
        let run = &mut self.runs[number];
        let was_watching = run.reference.is_watching();
        let quiet = run.reference.quiet(self.now);
        let effects = run.watchdog.step(now, &run.activity, known);
        let expected = run.reference.step(self.now, known);
        hold!(
            "effects",
            effects == expected,
            "run {number} with {known:?}: {effects:?} instead of {expected:?}"
        );
        let again = run.watchdog.step(now, &run.activity, Known::default());
        let expected = run.reference.step(self.now, Known::default());
        hold!("effects", again == expected, "run {number} once more: {again:?} instead of {expected:?}");
        hold!("idle", again == Effects::default(), "run {number}: a step without news does {again:?}");
        let late = run.timeout + LOOK_AGAIN;
        hold!(
            "late",
            !was_watching || quiet <= late,
            "run {number} was quiet for {quiet} of {}",
            run.timeout
        );
        self.judge(number, known, effects, quiet)?;
        self.follow(number, effects);
        Ok(())
    }

    /// Holds what the machine does against what the world knows.
    fn judge(&mut self, number: usize, known: Known, effects: Effects, quiet: u64) -> Checked {
        let now = self.now;
        let run = &mut self.runs[number];
        run.counts.fences += u32::from(effects.fence);
        run.counts.probes += u32::from(effects.probe);
        run.counts.terminals += u32::from(effects.terminal.is_some());
        run.counts.frees += u32::from(effects.free);
        let Counts { fences, probes, terminals, frees } = run.counts;
        let once = fences <= 1 && probes <= 1 && terminals <= 1 && frees <= terminals;
        hold!("once", once, "run {number}: {:?}", run.counts);
        if effects.probe {
            run.claimed = Some(now);
            let is_late = run.deadline.is_some_and(|deadline| deadline <= now);
            hold!("early", quiet >= run.timeout, "run {number} was quiet for {quiet} of {}", run.timeout);
            let tie = known.stop.is_none() && !known.finished && !is_late;
            hold!("tie", tie, "run {number} stalls though {known:?}, deadline {:?}, now {now}", run.deadline);
        }
        let lost = run.session.borrow().lost;
        if effects.free {
            let returned = run.left.is_some();
            hold!("held", returned || lost, "run {number} is given back with its provider at work");
        }
        match effects.terminal {
            Some(Outcome::Stalled(stall)) => {
                let Some(claimed) = run.claimed else { broken!("once", "run {number} stalls unclaimed") };
                let took = now - claimed;
                hold!("late", took <= GRACE, "run {number} took {took} from its claim to its terminal");
                let closed = matches!(run.left, Some((_, Return::Confirmed)));
                let fence = if closed { Fence::Confirmed } else { Fence::Unconfirmed };
                hold!("fence", stall.fence == fence, "run {number}: {stall:?}, though {:?}", run.left);
                hold!(
                    "held",
                    effects.free == run.left.is_some(),
                    "run {number}: {effects:?}, {:?}",
                    run.left
                );
                let idle = stall.idle.as_nanos() as u64;
                hold!("early", idle >= run.timeout, "run {number} tells of {idle} of {}", run.timeout);
                let health = stall.observation.map(|found| found.health);
                self.count(match (stall.fence, health) {
                    (Fence::Confirmed, Some(ProviderHealth::Available)) => "confirmed, available",
                    (Fence::Confirmed, _) => "confirmed, else",
                    (Fence::Unconfirmed, Some(ProviderHealth::Available)) => "unconfirmed, available",
                    (Fence::Unconfirmed, _) => "unconfirmed, else",
                });
                if health.is_none() {
                    self.count("probe hung");
                }
                if !effects.free {
                    self.count("held");
                }
            }
            Some(Outcome::Finished) => self.count("finished"),
            Some(Outcome::Deadline) => self.count("deadline"),
            Some(Outcome::Stopped(Stop::Cancelled)) => self.count("cancelled"),
            Some(Outcome::Stopped(Stop::SessionLost)) => self.count("session lost"),
            Some(Outcome::Stopped(Stop::PeerFault(_))) => self.count("peer fault"),
            None if effects.free => self.count(if lost { "held until lost" } else { "held until returned" }),
            None => {}
        }
        if quiet >= self.runs[number].timeout && effects.fence && !effects.probe {
            self.count("tie");
        }
        Ok(())
    }

    /// Does what the driver does.
    fn follow(&mut self, number: usize, effects: Effects) {
        let run = &mut self.runs[number];
        if run.works && (effects.fence || !run.watchdog.is_watching() && !effects.probe) {
            // The work is dropped, or has ended: the provider notices.
            run.works = false;
            let leaves = run.script.leaves;
            let finished = !effects.fence;
            let stall = effects.probe;
            match leaves {
                _ if finished => self.after_exactly(0, number, Event::Left(true)),
                Leaves::After(delay) if stall || delay < GRACE => {
                    self.after_exactly(delay, number, Event::Left(true));
                }
                Leaves::SendsUntil(delay) if stall || delay < GRACE => {
                    self.after_exactly(delay, number, Event::Left(false));
                }
                _ if stall => {}
                // What is not stalled is reset at the end of the grace.
                _ => self.after_exactly(GRACE, number, Event::ResetByGrace),
            }
        }
        if effects.probe {
            let delay = self.runs[number].script.probe.1;
            self.after_exactly(delay, number, Event::Answer);
        }
        let run = &mut self.runs[number];
        if effects.free {
            run.permit = None;
        }
        let lost = run.session.borrow().lost;
        if run.watchdog.is_over() {
            run.timer += 1;
            if !run.stopped {
                run.stopped = true;
                self.replace(number);
            }
        } else {
            self.arm(number);
            if effects.terminal.is_some() && lost {
                self.at(self.now, number, Event::Lost);
            }
        }
    }

    fn after_exactly(&mut self, delay: u64, number: usize, event: Event) {
        self.at(self.now + delay, number, event);
    }

    /// A run that is over makes room for another.
    fn replace(&mut self, number: usize) {
        if self.ending {
            return;
        }
        self.free.push(number);
        self.count("runs");
        self.begin();
    }

    /// The connection to the Edge ends: every run of it is told.
    fn lose(&mut self) {
        self.session.borrow_mut().lost = true;
        for number in 0..self.runs.len() {
            if Rc::ptr_eq(&self.runs[number].session, &self.session) {
                self.at(self.now, number, Event::Lost);
            }
        }
        if !self.ending {
            self.session = session();
        }
    }
}

fn session() -> Rc<RefCell<Session>> {
    let observations = Observations::default();
    let early = observations.next();
    assert_eq!(early, None, "a session that is not bound has no numbers");
    observations.bind();
    let gate = Gate::new(u32::MAX);
    Rc::new(RefCell::new(Session { gate, observations, numbers: 0, lost: false }))
}

fn number_of(session: &RefCell<Session>) -> Result<Option<u64>, Broken> {
    let mut session = session.borrow_mut();
    let number = session.observations.next();
    session.numbers += 1;
    hold!("numbers", number == Some(session.numbers), "{number:?} instead of {}", session.numbers);
    Ok(number)
}

/// Byte by byte: whether a piece holds anything but comments and ends of lines. `line` = whether the current line is a comment.
fn reads_content(line: &mut Option<bool>, piece: &[u8]) -> bool {
    let mut content = false;
    for byte in piece {
        if matches!(byte, b'\n' | b'\r') {
            *line = None;
        } else {
            content |= !*line.get_or_insert(*byte == b':');
        }
    }
    content
}

const NAMES: [&str; 22] = [
    "runs",
    "progress",
    "no progress",
    "late output",
    "blocked",
    "finished",
    "cancelled",
    "peer fault",
    "deadline",
    "session lost",
    "sessions lost",
    "tie",
    "confirmed, available",
    "confirmed, else",
    "unconfirmed, available",
    "unconfirmed, else",
    "probe hung",
    "held",
    "held until returned",
    "held until lost",
    "numbers",
    "looks",
];
