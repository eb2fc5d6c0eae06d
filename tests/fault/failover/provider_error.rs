//! Providers that fail otherwise than by silence, with the gate's `provider_error` (SEG-6, cases 30 to 38).

use anyhow::ensure;
use serde_json::json;

use super::{
    backend::{Act, PARTIAL, Point},
    stand::{Case, Origin, Setup, Stand, asked, each, is_served_by},
    way::{STREAMS, WAYS, Way},
};

const BLOCKS: &str = "enabled: true, filters: [{ filter: provider_error }]";
const WATCHES: &str = "enabled: true, filters: [{ filter: provider_error, enforcement: observe_only }]";
const OFF: &str = "enabled: false, filters: [{ filter: provider_error }]";
/// The case whose first provider takes no connection.
const REFUSED: &str = "refused";

/// What goes wrong at the first provider before content.
fn faults() -> Vec<(&'static str, Act)> {
    vec![
        ("cut-silent", Act::Cut(Point::Silent)),
        ("cut-headers", Act::Cut(Point::Headers)),
        ("cut-preamble", Act::Cut(Point::Preamble)),
        ("error-first", Act::Error(Point::Headers, "server_error")),
        ("error-preamble", Act::Error(Point::Preamble, "server_error")),
        // Case 34: what nobody knows is tried once elsewhere.
        ("error-odd", Act::Error(Point::Headers, "BAD_REQUEST")),
        ("empty", Act::Empty),
        ("malformed", Act::Malformed),
        ("status-500", Act::Status(500, "internal_error")),
        ("status-502", Act::Status(502, "bad_gateway")),
        (REFUSED, Act::Serve),
    ]
}

fn cases(ways: &[Way]) -> Vec<Case> {
    let mut cases = Vec::new();
    for way in ways.iter().copied() {
        for (name, mut act) in faults() {
            if way == Way::Responses && name == "error-odd" {
                // Its errors have a code and no type, and that code is known there.
                act = Act::Error(Point::Headers, "drill_odd");
            }
            let of_stream = matches!(act, Act::Error(..) | Act::Cut(Point::Preamble));
            if way.is_stream() || !of_stream {
                let on_one_node = cases.len() % 2 == 1;
                cases.push(Case { on_one_node, ..Case::new(way, name, act) });
            }
        }
    }
    cases
}

fn stand(gate: &str, cases: Vec<Case>) -> anyhow::Result<Stand> {
    let stand = Stand::start(&Setup::gate(gate), cases)?;
    for group in stand.groups.iter().filter(|group| group.case.name.ends_with(REFUSED)) {
        group.backends[0].played.close_door()?;
    }
    Ok(stand)
}

// req: SEG-2, SEG-8, REC-1, REC-5, API-2
#[test]
fn a_failure_before_content_is_answered_by_another_provider_where_the_gate_blocks() -> anyhow::Result<()> {
    let stand = stand(BLOCKS, cases(&WAYS))?;
    let answers = stand.ask_all()?;
    let count = answers.len();
    each(answers, |group, answer| {
        let [first, second] = group.backends.as_slice() else { anyhow::bail!("two providers") };
        is_served_by(group, 1, &answer, &Origin::new("exact_replay", &[&first.name, &second.name]))?;
        ensure!(answer.header("x-iop-provider") == Some(&second.name), "{}", answer.head);
        let first_asked = usize::from(!group.case.name.ends_with(REFUSED));
        ensure!(asked(group) == [first_asked, 1], "{:?}", asked(group));
        Ok(())
    })?;
    stand.balances()?;
    assert_eq!(stand.results("exact_replay", "recovered")?, count as f64);
    let found = "iop_edge_stream_gate_findings_total{action=\"recover\",enforcement=\"blocking\",filter=\"provider_error\"}";
    assert_eq!(stand.metric(found)?, count as f64);
    Ok(())
}

// req: SEG-2, SEG-6, SEG-7
#[test]
fn without_a_filter_that_blocks_no_error_of_a_provider_is_replayed() -> anyhow::Result<()> {
    for gate in [WATCHES, OFF] {
        let stand = stand(gate, cases(&[Way::Chat, Way::Whole, Way::Native, Way::Translated]))?;
        each(stand.ask_all()?, |group, answer| {
            let first_asked = usize::from(!group.case.name.ends_with(REFUSED));
            ensure!(asked(group) == [first_asked, 0], "{:?}", asked(group));
            ensure!(Origin::of(&answer) == Origin::new("", &[&group.backends[0].name]), "{}", answer.head);
            Ok(())
        })?;
        stand.balances()?;
        assert_eq!(stand.results("exact_replay", "recovered")?, 0.0);
        let found = stand.sum("iop_edge_stream_gate_findings_total{")?;
        assert_eq!(found > 0.0, gate == WATCHES, "{found}");
    }
    Ok(())
}

// req: SEG-7, API-1
#[test]
fn a_failure_behind_content_is_never_replayed() -> anyhow::Result<()> {
    let acts = [("cut", Act::Cut(Point::Content)), ("error", Act::Error(Point::Content, "server_error"))];
    let of_way = |way: Way| acts.iter().map(move |(name, act)| Case::new(way, name, act.clone()));
    let stand = stand(BLOCKS, STREAMS.into_iter().flat_map(of_way).collect())?;
    each(stand.ask_all()?, |group, answer| {
        // What a provider said itself is passed on as it is.
        let text = if group.case.name.ends_with("cut") || group.case.way.is_written() {
            group.case.way.failed(&answer)?
        } else {
            answer.text()
        };
        ensure!(text.contains(PARTIAL) && !text.contains("drill-served"), "{text}");
        ensure!(!answer.is_done() || group.case.way == Way::Responses, "{text}");
        ensure!(asked(group) == [1, 0], "{:?}", asked(group));
        Ok(())
    })?;
    stand.balances()
}

// req: SEG-6
#[test]
fn what_is_no_fault_of_a_provider_is_passed_on_and_changes_nothing_of_it() -> anyhow::Result<()> {
    let statuses = [
        (400, "context_length_exceeded"),
        (404, "model_not_found"),
        (413, "request_too_large"),
        (422, "invalid_value"),
        (429, "rate_limit_exceeded"),
        (503, "overloaded"),
    ];
    let mut cases = Vec::new();
    for way in [Way::Chat, Way::Whole, Way::Responses, Way::Messages] {
        for (status, code) in statuses {
            let script = [vec![Act::Status(status, code); 5], vec![Act::Serve]].concat();
            cases.push(Case::of(way, &format!("status-{status}"), vec![script, vec![Act::Serve]]));
        }
    }
    let stand = stand(BLOCKS, cases)?;
    for round in 1..=5 {
        each(stand.ask_all()?, |group, answer| {
            let first = &group.backends[0];
            let status: u16 = group.case.name.rsplit('-').next().unwrap_or_default().parse()?;
            ensure!(answer.status == status, "{}{}", answer.head, answer.text());
            ensure!(answer.text().contains("the script says so"), "{}", answer.text());
            ensure!(asked(group) == [round, 0], "{:?}", asked(group));
            ensure!(Origin::of(&answer) == Origin::new("", &[&first.name]), "{}", answer.head);
            let shown = stand.status(&first.name)?;
            ensure!(shown["status"] == "available" && shown["health"] == "healthy", "{shown}");
            Ok(())
        })?;
    }
    // The next good request is served at once, and by the first (cases 37 and 38).
    each(stand.ask_all()?, |group, answer| {
        is_served_by(group, 0, &answer, &Origin::new("", &[&group.backends[0].name]))
    })?;
    stand.balances()?;
    assert_eq!(stand.sum("iop_edge_liveness_recovery_results_total{")?, 0.0);
    Ok(())
}

// req: REC-5
#[test]
fn a_single_provider_is_asked_again_after_a_cut() -> anyhow::Result<()> {
    let script = vec![Act::Cut(Point::Headers), Act::Serve];
    let cases = WAYS.map(|way| Case::of(way, "single", vec![script.clone()]));
    let setup = format!("max_request_fault_recovery: 1, {BLOCKS}");
    let stand = stand(&setup, cases.into())?;
    each(stand.ask_all()?, |group, answer| {
        let name = &group.backends[0].name;
        is_served_by(group, 0, &answer, &Origin::new("exact_replay", &[name, name]))?;
        ensure!(asked(group) == [2], "{:?}", asked(group));
        Ok(())
    })?;
    stand.balances()
}

// req: REC-5
#[test]
fn where_everybody_fails_the_client_is_told_what_the_last_one_said() -> anyhow::Result<()> {
    let act = Act::Status(500, "internal_error");
    let cases = WAYS.map(|way| Case::of(way, "both", vec![vec![act.clone()], vec![act.clone()]]));
    let stand = stand(BLOCKS, cases.into())?;
    each(stand.ask_all()?, |group, answer| {
        ensure!(answer.status >= 500, "{}{}", answer.head, answer.text());
        let body = answer.json()?;
        ensure!(body["error"].is_object(), "{body}");
        ensure!(asked(group).iter().all(|times| *times >= 1), "{:?}", asked(group));
        let attempts: usize = asked(group).iter().sum();
        ensure!(Origin::of(&answer).attempts == attempts.to_string() && attempts <= 4, "{}", answer.head);
        Ok(())
    })?;
    let again = stand.ask(&stand.groups[0], &json!({}))?;
    ensure!(again.status >= 500, "{}", again.head);
    stand.balances()
}
