//! Answers that go round in circles, with the gate's `repeat_guard` (SEG-4, SEG-5, cases 40 and 97).

use std::sync::atomic::Ordering::SeqCst;

use anyhow::{Context, ensure};
use iop_tests::{
    bench::{SOON, eventually},
    http::Answer,
    model::plot::Piece,
};
use serde_json::{Value, json};

use super::{
    backend::{Act, Point, SERVED},
    stand::{Case, Group, Origin, Setup, Stand, asked, each},
    way::{STREAMS, Way},
};

/// Long before a loop is found, its beginning is with the client.
const SHORT: &str = "hold_evidence_runes: 200";
/// What is worth keeping and what is not is known before the client has anything.
const LONG: &str = "hold_evidence_runes: 8000, timeout_ms: 60000";
/// Said once, and then again and again. It does not end as the others do, or the rounds would begin in it.
const ONCE: &str = "drill-loop>";
const UNIT: [&str; 4] = ["and then ", "the same thing ", "happens ", "once more. "];
/// Where an answer can be gone on with: chat completions, and what the Edge writes itself.
const CONTINUED: [Way; 3] = [Way::Chat, Way::Native, Way::Translated];

fn loops() -> Act {
    let parts = [ONCE].into_iter().chain(UNIT);
    Act::Loops(parts.map(|text| Piece::Text(text.to_owned())).collect())
}

fn start(cases: Vec<Case>, hold: &str, window: bool) -> anyhow::Result<Stand> {
    let model_extra = if window { "context_window_tokens: 32768" } else { "" }.to_owned();
    let gate = format!("enabled: true, filters: [{{ filter: repeat_guard, {hold} }}]");
    Stand::start(&Setup { model_extra, is_tapped: true, ..Setup::gate(&gate) }, cases)
}

// req: SEG-4, API-1
#[test]
fn a_loop_is_stopped_and_told_from_other_failures() -> anyhow::Result<()> {
    // Nothing is known of the models' windows: it is not gone on with.
    let cases = STREAMS.map(|way| Case::of(way, "loop", vec![vec![loops()], vec![Act::Serve]]));
    let stand = start(cases.into(), SHORT, false)?;
    each(stand.ask_all()?, |group, answer| {
        let text = group.case.way.failed(&answer)?;
        let copies = text.matches(UNIT[3]).count();
        ensure!((1..150).contains(&copies) && !text.contains(SERVED), "{copies} copies");
        let first = &group.backends[0];
        eventually(SOON, "it is left alone", || Ok(first.books.left.load(SeqCst) == 1))?;
        // It would have gone on: its Node was told.
        let told = stand.told();
        let runs = told.get(&first.name).context("it was dispatched")?;
        ensure!(runs.len() == 1 && runs[0].cancelled, "{runs:?}");
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

/// Two loops, and then an answer; gives what the client has of the loops.
fn continued(group: &Group, answer: &Answer) -> anyhow::Result<String> {
    let text = group.case.way.text(answer)?;
    let end = format!("{SERVED}{}", group.backends[0].name);
    let loops = text.strip_suffix(&end).with_context(|| format!("it is not gone on with: {text:?}"))?;
    let name = group.backends[0].name.as_str();
    ensure!(Origin::of(answer) == Origin::new("continuation_repair", &[name; 3]), "{:?}", Origin::of(answer));
    let bodies = group.backends[0].asked();
    // Hotter each time, and what was said is in the request.
    let temperatures: Vec<_> = bodies.iter().map(|body| temperature(body).as_f64()).collect();
    ensure!(temperatures == [None, Some(0.2), Some(0.4)], "{temperatures:?}");
    let with: Vec<_> = bodies.iter().map(|body| body.to_string().matches(ONCE).count()).collect();
    ensure!(with[0] == 0 && with[1] == 1 && with[2] >= 1, "{with:?}");
    Ok(loops.to_owned())
}

// req: SEG-5
#[test]
fn a_loop_is_gone_on_with_behind_what_was_worth_keeping() -> anyhow::Result<()> {
    for hold in [SHORT, LONG] {
        let cases = CONTINUED.map(|way| Case::of(way, "more", vec![vec![loops(), loops(), Act::Serve]]));
        let stand = start(cases.into(), hold, true)?;
        each(stand.ask_all()?, |group, answer| {
            let loops = continued(group, &answer)?;
            let one = format!("{ONCE}{}", UNIT.concat());
            if hold == LONG {
                // Nothing twice, and nothing of the rounds.
                ensure!(loops == one.repeat(2), "{loops:?}");
            } else {
                ensure!(loops.starts_with(&one) && loops.matches(ONCE).count() == 2, "{loops:?}");
            }
            Ok(())
        })?;
        let count = CONTINUED.len() as f64;
        assert_eq!(stand.results("continuation_repair", "recovered")?, count);
        assert_eq!(stand.results("continuation_repair", "failed")?, count);
        stand.balances()?;
    }
    Ok(())
}

// req: SEG-5
#[test]
fn what_going_on_would_break_ends_in_an_error() -> anyhow::Result<()> {
    let script = vec![vec![loops()], vec![loops()]];
    let ways = [Way::Chat, Way::Chat, Way::Responses, Way::Messages];
    let names = ["n", "schema", "raw", "raw"];
    let cases = ways.into_iter().zip(names).map(|(way, name)| Case::of(way, name, script.clone()));
    let stand = start(cases.collect(), SHORT, true)?;
    let schema = json!({ "type": "object", "properties": { "a": { "type": "string" } } });
    let format = json!({ "type": "json_schema", "json_schema": { "name": "x", "schema": schema } });
    let mut clients = Vec::new();
    for group in &stand.groups {
        let more = match group.case.name.as_str() {
            "chat-n" => json!({ "n": 2 }),
            "chat-schema" => json!({ "response_format": format }),
            _ => json!({}),
        };
        clients.push((group, stand.begin(group, &more)?));
    }
    let answers = clients.into_iter().map(|(group, mut client)| Ok((group, client.answer()?)));
    each(answers.collect::<anyhow::Result<Vec<_>>>()?, |group, answer| {
        group.case.way.failed(&answer)?;
        ensure!(asked(group) == [1, 0], "{:?}", asked(group));
        Ok(())
    })?;
    stand.balances()
}

// req: REC-3, SEG-1
#[test]
fn one_budget_is_shared_by_all_strategies() -> anyhow::Result<()> {
    let script = vec![Act::Cut(Point::Headers), loops(), Act::Serve];
    let cases = CONTINUED.map(|way| Case::of(way, "shared", vec![script.clone()]));
    let gate = "max_request_fault_recovery: 1, enabled: true, \
        filters: [{ filter: provider_error }, { filter: repeat_guard, hold_evidence_runes: 200 }]";
    let model_extra = "context_window_tokens: 32768".to_owned();
    let stand = Stand::start(&Setup { model_extra, ..Setup::gate(gate) }, cases.into())?;
    each(stand.ask_all()?, |group, answer| {
        let text = group.case.way.failed(&answer)?;
        ensure!(text.starts_with(ONCE) && !text.contains(SERVED), "{text}");
        let name = group.backends[0].name.as_str();
        ensure!(Origin::of(&answer) == Origin::new("exact_replay", &[name; 2]), "{:?}", Origin::of(&answer));
        ensure!(asked(group) == [2], "{:?}", asked(group));
        Ok(())
    })?;
    stand.balances()
}
