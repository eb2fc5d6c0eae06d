//! How often a request is sent again, and to whom.

use anyhow::ensure;
use iop_tests::http::Answer;
use serde_json::json;

use super::{
    backend::{Act, Health, Point},
    stand::{AT_ONCE, Case, Group, Origin, Setup, Stand, asked, each, is_served_by, within},
    way::{WAYS, Way},
};

const STALLS: Act = Act::Stall(Point::Silent);
const SOME: [Way; 4] = [Way::Chat, Way::Whole, Way::Messages, Way::Native];

/// The client is told of the stall as if there had been one attempt alone, and how many there were.
fn is_stalled(group: &Group, answer: &Answer, attempts: usize) -> anyhow::Result<()> {
    ensure!(answer.status == 504, "{}{}", answer.head, answer.text());
    let code = group.case.way.refusal(answer)?;
    ensure!(["timeout", "timeout_error"].contains(&code.as_str()), "{code}");
    let origin = Origin::of(answer);
    ensure!(origin.attempts == attempts.to_string(), "{}", answer.head);
    ensure!(origin.recovery == if attempts > 1 { "exact_replay" } else { "" }, "{}", answer.head);
    Ok(())
}

// req: REC-3, REC-5
#[test]
fn a_request_is_sent_again_as_often_as_its_budget_says_and_not_once_more() -> anyhow::Result<()> {
    // Of the request, of the strategy, and what comes of both.
    for (request, strategy, budget) in [(0, 0, 0), (1, 1, 1), (3, 3, 3), (3, 1, 1), (3, 0, 0)] {
        let mut scripts = vec![vec![STALLS]; budget + 1];
        scripts.push(vec![Act::Serve]);
        let cases = SOME.map(|way| Case::of(way, "budget", scripts.clone()));
        let setup = Setup::gate(&format!(
            "max_request_fault_recovery: {request}, max_strategy_fault_recovery: {strategy}"
        ));
        let stand = Stand::start(&setup, cases.into())?;
        each(within(AT_ONCE, || stand.ask_all())?, |group, answer| {
            is_stalled(group, &answer, budget + 1)?;
            let mut times = vec![1; budget + 1];
            times.push(0);
            ensure!(asked(group) == times, "{:?}", asked(group));
            Ok(())
        })?;
        stand.balances()?;
        assert_eq!(stand.counted("granted")?, ((budget + 1) * SOME.len()) as f64);
    }
    Ok(())
}

// req: REC-4, REC-5
#[test]
fn a_provider_that_stalled_is_asked_again_only_where_nobody_else_can_be_and_it_says_that_it_is_well()
-> anyhow::Result<()> {
    let alone = |name| WAYS.map(|way| Case::of(way, name, vec![vec![STALLS, Act::Serve]]));
    let both = |name| SOME.map(|way| Case::of(way, name, vec![vec![STALLS], vec![STALLS]]));
    let cases = [alone("well"), alone("ill"), alone("unsaid")].concat();
    let cases = [cases, [both("both-well"), both("both-unsaid")].concat()].concat();
    let stand = Stand::start(&Setup::default(), cases)?;
    for group in &stand.groups {
        let health = match group.case.name.rsplit('-').next() {
            Some("ill") => Health::Ill,
            Some("unsaid") => Health::Unsaid,
            _ => Health::Well,
        };
        group.backends.iter().for_each(|backend| backend.is(health));
    }
    // Nobody waits for a slot that cannot come.
    each(within(AT_ONCE, || stand.ask_all())?, |group, answer| {
        let name = group.case.name.as_str();
        let [first, ..] = group.backends.as_slice() else { anyhow::bail!("a provider") };
        if name.ends_with("both-well") {
            // Each of them once before one is asked a second time, and no more than three times again.
            is_stalled(group, &answer, 4)?;
            let mut times = asked(group);
            times.sort_unstable();
            ensure!(times.iter().sum::<usize>() == 4 && times[0] >= 1, "{times:?}");
        } else if name.ends_with("both-unsaid") {
            is_stalled(group, &answer, 2)?;
            ensure!(asked(group) == [1, 1], "{:?}", asked(group));
        } else if name.ends_with("well") {
            is_served_by(group, 0, &answer, &Origin::new("exact_replay", &[&first.name, &first.name]))?;
            ensure!(asked(group) == [2], "{:?}", asked(group));
        } else {
            is_stalled(group, &answer, 1)?;
            ensure!(asked(group) == [1], "{:?}", asked(group));
        }
        Ok(())
    })?;
    stand.balances()
}

// req: REC-5, POL-8
#[test]
fn a_request_that_moves_on_waits_for_another_provider_that_is_busy() -> anyhow::Result<()> {
    let cases = WAYS.map(|way| Case::of(way, "busy", vec![vec![STALLS], vec![Act::Held, Act::Serve]]));
    let stand = Stand::start(&super::leaving::slow(), cases.into())?;
    let mut clients = Vec::new();
    for group in &stand.groups {
        let moves = stand.begin(group, &json!({}))?;
        super::leaving::comes_to(group, 0)?;
        let holds = stand.begin(group, &json!({}))?;
        super::leaving::comes_to(group, 1)?;
        clients.push((group, (moves, holds)));
    }
    super::leaving::wait(&stand)?;
    for (group, (mut moves, mut holds)) in clients {
        group.backends[1].lets_go();
        let [first, second] = group.backends.as_slice() else { anyhow::bail!("two providers") };
        is_served_by(group, 1, &holds.answer()?, &Origin::new("", &[&second.name]))?;
        let origin = Origin::new("exact_replay", &[&first.name, &second.name]);
        is_served_by(group, 1, &moves.answer()?, &origin)?;
        ensure!(asked(group) == [1, 2], "{:?}", asked(group));
    }
    stand.balances()
}
