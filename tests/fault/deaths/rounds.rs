//! A hundred deaths of each, at instants drawn over the whole life of what runs.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use iop_tests::{bench::eventually, procfs, random::Random};

use super::{
    crowd::{self, ASKS, Ask, Outcome, Phase, Progress, Seen, Texts},
    place::{Place, SLOTS, Victim},
};

/// From the first request of a round until nothing of it would run any more, on a quiet machine: two turns on the slots.
const LIFE: Duration = Duration::from_millis(200);
/// Within this much of a round's beginning every client asks.
const ARRIVAL: Duration = Duration::from_millis(30);
/// Growth of a survivor between the second and the last quarter of the deaths, each at its lowest: the allocator keeps some
/// MiB for a while, and gives them back.
const GROWTH_KIB: u64 = 4096;
/// Connections to providers are closed after 4 s without use.
const POOL_EMPTY: Duration = Duration::from_secs(20);

/// What became of the clients, by where they were.
#[derive(Default)]
struct Report {
    outcomes: BTreeMap<(Phase, Outcome), usize>,
    /// Streams that broke off with more than four fifths of their events out.
    near_end: usize,
}

impl Report {
    fn add(&mut self, phase: Phase, ask: &Ask, seen: &Seen, outcome: Outcome) {
        if let (Seen::Answer(answer), Outcome::ErrorEvent(_) | Outcome::CutBetweenEvents) = (seen, &outcome) {
            self.near_end += usize::from(answer.events().len() * 5 > ask.events * 4);
        }
        *self.outcomes.entry((phase, outcome)).or_default() += 1;
    }

    fn count(&self, is_meant: impl Fn(Phase, &Outcome) -> bool) -> usize {
        self.outcomes.iter().filter(|((phase, outcome), _)| is_meant(*phase, outcome)).map(|(_, n)| n).sum()
    }

    fn print(&self) {
        for ((phase, outcome), n) in &self.outcomes {
            println!("{n:6} {phase:?}: {outcome}");
        }
        println!("{:6} of these broke off near their end", self.near_end);
    }
}

fn rounds() -> usize {
    std::env::var("IOP_TEST_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(100)
}

/// Whether this is what a client may be told when `victim` dies (docs/api.md).
fn is_allowed(victim: Victim, phase: Phase, ask: &Ask, outcome: &Outcome) -> bool {
    if phase == Phase::Over {
        return *outcome == Outcome::Exact;
    }
    match (victim, outcome) {
        (_, Outcome::Exact) => true,
        (_, Outcome::DoneThenBroken | Outcome::CutInEvent) => ask.stream,
        (_, Outcome::Short) => !ask.stream,
        (Victim::Edge, Outcome::CutBetweenEvents) => ask.stream,
        (Victim::Edge, Outcome::Nothing) => true,
        (Victim::Node | Victim::Provider, Outcome::ErrorEvent(code)) => {
            ask.stream && code == "upstream_error"
        }
        (Victim::Node | Victim::Provider, Outcome::Refused(502, code)) => code == "upstream_error",
        _ => false,
    }
}

/// A client, where it was at the death, and what it saw in the end.
type Witness = (Ask, Phase, anyhow::Result<Seen>);

/// One death among clients, and the first two requests after it.
fn death(place: &mut Place, victim: Victim, random: &mut Random) -> anyhow::Result<(Duration, Vec<Witness>)> {
    let mut asks = ASKS;
    random.shuffle(&mut asks);
    let delays = ASKS.map(|_| random.before(ARRIVAL));
    let instant = random.before(LIFE);
    let (edge, token) = (place.bench.edge.http.clone(), place.bench.site.token().to_owned());
    let progress = ASKS.map(|_| Progress::default());
    std::thread::scope(|scope| {
        let started = Instant::now();
        let clients: Vec<_> = asks
            .iter()
            .zip(delays)
            .zip(&progress)
            .map(|((ask, delay), progress)| {
                let (edge, token) = (&edge, &token);
                scope.spawn(move || crowd::ask(edge, token, ask, delay, progress))
            })
            .collect();
        std::thread::sleep(instant.saturating_sub(started.elapsed()));
        let phases: Vec<_> = progress.iter().map(Progress::phase).collect();
        place.kill(victim)?;
        place.revive(victim)?;
        if victim == Victim::Node {
            // Until the Edge has read the end of the old connection it takes the Node for alive.
            place.node_is_back()?;
        }
        for stream in [true, false] {
            let answer = place.bench.chat(stream, "events=3")?;
            ensure!(
                answer.status == 200 && answer.whole && (!stream || answer.is_done()),
                "the first request after the restart: {} {}",
                answer.head,
                answer.text()
            );
        }
        let seen = clients.into_iter().map(|client| client.join().map_err(|_| anyhow::anyhow!("panicked")));
        let seen = seen.collect::<anyhow::Result<Vec<_>>>()?;
        let witnesses = asks.into_iter().zip(phases).zip(seen);
        Ok((instant, witnesses.map(|((ask, phase), seen)| (ask, phase, seen)).collect()))
    })
}

/// Judges what the clients saw; how many of them were failed.
fn judge(
    victim: Victim,
    witnesses: Vec<Witness>,
    texts: &Texts,
    report: &mut Report,
) -> anyhow::Result<usize> {
    let mut failed = 0;
    for (ask, phase, seen) in witnesses {
        let seen = seen.with_context(|| format!("{ask:?}, {phase:?}"))?;
        let outcome = crowd::judge(&ask, &seen, texts)
            .and_then(|outcome| {
                ensure!(is_allowed(victim, phase, &ask, &outcome), "{outcome}");
                Ok(outcome)
            })
            .with_context(|| format!("{ask:?}, {phase:?} at the death: {seen:?}"))?;
        failed += usize::from(outcome != Outcome::Exact);
        report.add(phase, &ask, &seen, outcome);
    }
    Ok(failed)
}

/// The processes of the product that live on.
fn survivors(place: &Place, victim: Victim) -> Vec<(&'static str, u32)> {
    let all = [
        (Victim::Edge, "edge", place.bench.edge.process.pid()),
        (Victim::Node, "node", place.bench.node.pid()),
    ];
    all.into_iter().filter(|(who, ..)| *who != victim).map(|(_, name, pid)| (name, pid)).collect()
}

fn a_hundred_deaths(victim: Victim) -> anyhow::Result<Report> {
    let mut place = Place::start(|edge| edge)?;
    let mut random = Random::for_test(&format!("deaths of the {victim:?}"));
    let result = deaths(&mut place, victim, &mut random);
    if result.is_err() {
        println!("logs: {}", place.bench.site.keep().display());
    }
    result
}

fn deaths(place: &mut Place, victim: Victim, random: &mut Random) -> anyhow::Result<Report> {
    let alive = survivors(place, victim);
    let fds = |place: &Place| -> anyhow::Result<Vec<usize>> {
        survivors(place, victim).iter().map(|(_, pid)| procfs::fds(*pid)).collect()
    };
    let (fds_before, tasks_before) = (fds(place)?, place.bench.edge_tasks()?);
    let texts = crowd::texts(&place.bench)?;
    let mut report = Report::default();
    let mut memory = vec![Vec::new(); alive.len()];
    let started = Instant::now();
    for round in 0..rounds() {
        let whole_round = death(place, victim, random).and_then(|(instant, witnesses)| {
            let failed = judge(victim, witnesses, &texts, &mut report)
                .with_context(|| format!("killed at {instant:?}"))?;
            // Case 90 with one Edge: a death fails what is in flight and nothing else.
            ensure!(victim != Victim::Node || failed <= SLOTS, "{failed} failed on {SLOTS} slots");
            place.balances()
        });
        whole_round.with_context(|| format!("round {round}"))?;
        for ((_, pid), samples) in alive.iter().zip(&mut memory) {
            samples.push(procfs::anonymous_kib(*pid)?);
        }
    }
    println!("{} deaths of the {victim:?} in {:?}", rounds(), started.elapsed());
    report.print();
    ensure!(survivors(place, victim) == alive, "a survivor has been replaced");
    for ((name, _), samples) in alive.iter().zip(&memory) {
        let quarter = samples.len() / 4;
        let lowest = |part: &[u64]| part.iter().min().copied().context("enough rounds");
        let (early, late) = (lowest(&samples[quarter..2 * quarter])?, lowest(&samples[3 * quarter..])?);
        println!("{name}: {early} KiB in the second quarter, {late} KiB in the last");
        ensure!(late <= early + GROWTH_KIB, "{name} grows: {samples:?}");
    }
    eventually(POOL_EMPTY, "descriptors and tasks are back where they were", || {
        let (fds, tasks) = (fds(place)?, place.bench.edge_tasks()?);
        Ok(fds.iter().zip(&fds_before).all(|(now, before)| now <= before) && tasks <= tasks_before)
    })?;
    Ok(report)
}

/// Draws that never hit a phase would prove nothing about it.
fn every_phase_was_hit(report: &Report) {
    for phase in [Phase::Waiting, Phase::Midway, Phase::Over] {
        assert!(report.count(|at, _| at == phase) >= rounds() / 4, "{phase:?} was hardly hit");
    }
    assert!(report.near_end > 0, "no stream was hit near its end");
}

// req: API-1, FEN-2, FEN-3, FEN-6, SUP-6
#[test]
fn a_hundred_deaths_of_the_node_fail_what_ran_and_nothing_else() -> anyhow::Result<()> {
    let report = a_hundred_deaths(Victim::Node)?;
    every_phase_was_hit(&report);
    assert!(report.count(|_, outcome| matches!(outcome, Outcome::ErrorEvent(_))) >= rounds() / 4);
    assert!(report.count(|_, outcome| matches!(outcome, Outcome::Refused(..))) >= rounds() / 10);
    let served = report.count(|phase, outcome| phase == Phase::Waiting && *outcome == Outcome::Exact);
    assert!(served >= rounds(), "{served} that waited were served after the restart");
    Ok(())
}

// req: API-1, TUN-7
#[test]
fn a_hundred_deaths_of_the_provider_fail_what_it_had_and_what_finds_nobody_there() -> anyhow::Result<()> {
    let report = a_hundred_deaths(Victim::Provider)?;
    every_phase_was_hit(&report);
    assert!(report.count(|_, outcome| matches!(outcome, Outcome::ErrorEvent(_))) >= rounds() / 4);
    assert!(report.count(|_, outcome| matches!(outcome, Outcome::Refused(..))) >= rounds() / 10);
    Ok(())
}

// req: API-1, SUP-2, SUP-6
#[test]
fn a_hundred_deaths_of_the_edge_leave_no_answer_that_looks_whole_and_is_not() -> anyhow::Result<()> {
    let report = a_hundred_deaths(Victim::Edge)?;
    every_phase_was_hit(&report);
    assert!(report.count(|_, outcome| *outcome == Outcome::CutBetweenEvents) >= rounds() / 4);
    assert!(report.count(|_, outcome| *outcome == Outcome::Nothing) >= rounds() / 4);
    Ok(())
}
