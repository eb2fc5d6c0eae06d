//! Stalls: before content the request moves on, behind it never. The gate is off (REC-1).

use std::sync::atomic::Ordering::SeqCst;

use anyhow::{Context, ensure};
use iop_tests::bench::{SOON, eventually};

use super::{
    backend::{Act, PARTIAL, Point},
    stand::{Case, Origin, Setup, Stand, asked, each, is_served_by},
    way::{WAYS, Way},
};

const BEFORE: [(&str, Point); 3] =
    [("silent", Point::Silent), ("headers", Point::Headers), ("preamble", Point::Preamble)];

/// A case for each way and each place before content where an answer can stop.
pub(super) fn cases(ways: &[Way]) -> Vec<Case> {
    let mut cases = Vec::new();
    for way in ways.iter().copied() {
        for (name, point) in BEFORE {
            // What is in one piece has nothing before its content.
            if way.is_stream() || point != Point::Preamble {
                let on_one_node = cases.len() % 2 == 1;
                cases.push(Case { on_one_node, ..Case::new(way, name, Act::Stall(point)) });
            }
        }
    }
    cases
}

// req: REC-1, REC-2, REC-3, REC-5, SEG-7, API-2, OBS-3
#[test]
fn a_stall_before_content_is_answered_by_another_provider_and_only_by_that() -> anyhow::Result<()> {
    let stand = Stand::start(&Setup { is_tapped: true, ..Setup::default() }, cases(&WAYS))?;
    let answers = stand.ask_all()?;
    let count = answers.len();
    each(answers, |group, answer| {
        let [first, second] = group.backends.as_slice() else { anyhow::bail!("two providers") };
        is_served_by(group, 1, &answer, &Origin::new("exact_replay", &[&first.name, &second.name]))?;
        ensure!(answer.header("x-iop-provider") == Some(&second.name), "{}", answer.head);
        ensure!(asked(group) == [1, 1], "{:?}", asked(group));
        ensure!(first.asked() == second.asked(), "the second was asked something else");
        eventually(SOON, "the first is left alone", || Ok(first.books.left.load(SeqCst) == 1))
    })?;
    stand.balances()?;

    // On the wire: one run each, one end each, and no word to a run that its Node has fenced (REC-3).
    let told = stand.told();
    each(stand.groups.iter().map(|group| (group, ())), |group, ()| {
        for (backend, end) in group.backends.iter().zip(["Stalled", "end"]) {
            let runs = told.get(&backend.name).context("it was dispatched")?;
            ensure!(runs.len() == 1 && runs[0].terminals == [end] && !runs[0].cancelled, "{runs:?}");
        }
        Ok(())
    })?;
    assert_eq!(stand.results("exact_replay", "recovered")?, count as f64);
    assert_eq!(stand.sum("iop_edge_liveness_recovery_results_total{")?, count as f64);
    assert_eq!(stand.sum("iop_edge_requests_total{outcome=\"ok\"")?, count as f64);
    assert_eq!(stand.counted("granted")?, 2.0 * count as f64);
    let log = stand.edge.process.text();
    assert_eq!(log.matches("edge_liveness_recovery_observation").count(), count, "{log}");
    Ok(())
}

// req: REC-2, API-1
#[test]
fn a_stall_behind_content_ends_in_an_error_and_is_never_sent_again() -> anyhow::Result<()> {
    let cases = WAYS.map(|way| Case::new(way, "content", Act::Stall(Point::Content)));
    let stand = Stand::start(&Setup { is_tapped: true, ..Setup::default() }, cases.into())?;
    let answers = stand.ask_all()?;
    let count = answers.len();
    each(answers, |group, answer| {
        let text = group.case.way.failed(&answer)?;
        ensure!(!group.case.way.is_stream() || text == PARTIAL.repeat(2), "{text:?}");
        ensure!(asked(group) == [1, 0], "{:?}", asked(group));
        ensure!(answer.header("x-iop-provider") == Some(&group.backends[0].name), "{}", answer.head);
        ensure!(Origin::of(&answer).recovery.is_empty(), "{}{}", answer.head, answer.text());
        Ok(())
    })?;
    stand.balances()?;
    for (provider, runs) in stand.told() {
        ensure!(runs.len() == 1 && runs[0].terminals == ["Stalled"], "{provider}: {runs:?}");
    }
    assert_eq!(stand.sum("iop_edge_requests_total{outcome=\"stalled\"")?, count as f64);
    assert_eq!(stand.results("exact_replay", "recovered")?, 0.0);
    Ok(())
}
