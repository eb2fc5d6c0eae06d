//! Answers that go round in circles, with the gate's `repeat_guard` (SEG-4, SEG-5, cases 40 and 97).

use std::sync::atomic::Ordering::SeqCst;

use anyhow::{Context, ensure};
use iop_tests::{
    bench::{SOON, eventually},
    model::plot::Piece,
};
use serde_json::{Value, json};

use super::{
    backend::{Act, SERVED},
    stand::{Case, Origin, Setup, Stand, asked, each},
    way::{STREAMS, Way},
};

const GATE: &str = "enabled: true, filters: [{ filter: repeat_guard, hold_evidence_runes: 200 }]";
/// What is said again and again: some words, with what comes before them the first time.
const UNIT: [&str; 4] = ["drill-loop: and then ", "the same thing ", "happens ", "once more. "];

fn loops() -> Act {
    Act::Loops(UNIT.map(|text| Piece::Text(text.to_owned())).to_vec())
}

fn start(cases: Vec<Case>, window: bool) -> anyhow::Result<Stand> {
    let model_extra = if window { "context_window_tokens: 32768" } else { "" }.to_owned();
    Stand::start(&Setup { model_extra, ..Setup::gate(GATE) }, cases)
}

// req: SEG-4, API-1
#[test]
fn a_loop_is_stopped_and_told_from_other_failures() -> anyhow::Result<()> {
    // Nothing is known of the models' windows: it is not continued.
    let cases = STREAMS.map(|way| Case::of(way, "loop", vec![vec![loops()], vec![Act::Serve]]));
    let stand = start(cases.into(), false)?;
    each(stand.ask_all()?, |group, answer| {
        let text = group.case.way.failed(&answer)?;
        let bound = 100;
        ensure!(text.matches("once more.").count() < bound, "{} bytes", text.len());
        ensure!(!text.contains(SERVED), "{text}");
        let first = &group.backends[0];
        eventually(SOON, "it is left alone", || Ok(first.books.left.load(SeqCst) == 1))?;
        ensure!(asked(group) == [1, 0], "{:?}", asked(group));
        Ok(())
    })?;
    assert_eq!(stand.sum("iop_edge_requests_total{outcome=\"repetition\"")?, STREAMS.len() as f64);
    stand.balances()
}

/// The temperature that a provider was asked for.
fn temperature(body: &Value) -> &Value {
    if body["options"].is_object() { &body["options"]["temperature"] } else { &body["temperature"] }
}

// req: SEG-5
#[test]
fn a_loop_is_continued_behind_what_was_worth_keeping() -> anyhow::Result<()> {
    let script = vec![loops(), loops(), Act::Serve];
    let cases = STREAMS.map(|way| Case::of(way, "continued", vec![script.clone(), script.clone()]));
    let stand = start(cases.into(), true)?;
    each(stand.ask_all()?, |group, answer| {
        let text = group.case.way.text(&answer)?;
        let name = &text.split(SERVED).nth(1).with_context(|| text.clone())?;
        ensure!(group.backends.iter().any(|backend| backend.name == **name), "{text:?}");
        ensure!(text.starts_with(UNIT[0]) && text.matches(SERVED).count() == 1, "{text:?}");
        let origin = Origin::of(&answer);
        ensure!(origin.recovery == "continuation_repair", "{origin:?}");
        let mut bodies: Vec<Value> = group.backends.iter().flat_map(super::backend::Backend::asked).collect();
        ensure!(origin.attempts == bodies.len().to_string(), "{origin:?} {}", bodies.len());
        // Cooler at first, and what was said is in the request.
        bodies.sort_by_key(|body| temperature(body).to_string());
        let temperatures: Vec<_> = bodies.iter().map(|body| temperature(body).clone()).collect();
        let ladder = [0.2, 0.4, 0.6].map(|t| json!(t));
        let mut repaired: Vec<_> = temperatures.into_iter().filter(|t| !t.is_null()).collect();
        repaired.sort_by_key(ToString::to_string);
        ensure!(!repaired.is_empty() && ladder.starts_with(&repaired), "{repaired:?}");
        ensure!(
            bodies.iter().filter(|body| body.to_string().contains("drill-loop")).count() == repaired.len()
        );
        Ok(())
    })?;
    stand.balances()
}

// req: SEG-5
#[test]
fn what_a_continuation_would_break_is_not_continued() -> anyhow::Result<()> {
    let script = vec![vec![loops()], vec![loops()]];
    let cases = vec![Case::of(Way::Chat, "n", script.clone()), Case::of(Way::Chat, "schema", script)];
    let stand = start(cases, true)?;
    let schema = json!({ "type": "object", "properties": { "a": { "type": "string" } } });
    let format = json!({ "type": "json_schema", "json_schema": { "name": "x", "schema": schema } });
    for (name, more) in [("chat-n", json!({ "n": 2 })), ("chat-schema", json!({ "response_format": format }))]
    {
        let group = stand.group(name)?;
        let answer = stand.ask(group, &more)?;
        group.case.way.failed(&answer)?;
        ensure!(asked(group).iter().sum::<usize>() == 1, "{name}: {:?}", asked(group));
    }
    stand.balances()
}
