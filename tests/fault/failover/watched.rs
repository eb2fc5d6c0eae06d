//! What operators see of recoveries, and what they must not (OBS-2, OBS-3, OBS-4).

use anyhow::ensure;
use iop_tests::{http, model::plot::Piece};

use super::{
    backend::{Act, Health, PARTIAL, Point, SERVED},
    stand::{Case, Setup, Stand},
    way::{PROMPT, WAYS, Way},
};

// req: OBS-2, OBS-3, OBS-4, API-2
#[test]
fn metrics_and_logs_tell_of_recoveries_and_of_nothing_that_was_said() -> anyhow::Result<()> {
    let stalls = vec![Act::Stall(Point::Preamble)];
    let loops = Act::Loops(vec![Piece::Text("drill-loop-words again and again. ".to_owned()); 2]);
    let mut cases = Vec::new();
    for way in WAYS {
        cases.push(Case::new(way, "moved", Act::Stall(Point::Silent)));
        cases.push(Case::of(way, "stuck", vec![stalls.clone()]));
        cases.push(Case::new(way, "failed", Act::Error(Point::Headers, "drill-error-code")));
        cases.push(Case::new(way, "begun", Act::Stall(Point::Content)));
    }
    cases.push(Case::of(Way::Chat, "loop", vec![vec![loops]]));
    let gate = "enabled: true, filters: [{ filter: provider_error }, { filter: repeat_guard }, { filter: schema_gate }]";
    let stand = Stand::start(&Setup::gate(gate), cases)?;
    for group in stand.groups.iter().filter(|group| group.case.name.ends_with("stuck")) {
        group.backends[0].is(Health::Ill);
    }
    let answers = stand.ask_all()?;
    ensure!(answers.len() == stand.groups.len());
    stand.balances()?;

    let metrics = http::get(&stand.edge.ops, "/metrics", None)?.text();
    let log = stand.edge.process.text();
    for name in [
        "iop_edge_liveness_recovery_eligibility_total{",
        "iop_edge_liveness_recovery_results_total{",
        "iop_edge_provider_health_evidence_total{",
        "iop_edge_provider_health_transitions_total{",
        "iop_edge_stream_gate_findings_total{",
    ] {
        ensure!(stand.sum(name)? > 0.0, "no {name} in {metrics}");
    }
    for observation in ["edge_liveness_recovery_observation", "edge_provider_health_observation"] {
        ensure!(log.contains(observation), "no {observation}");
    }
    // What a request cost is in its own line: every attempt, and why there was more than one (case 36).
    let moved = WAYS.map(|way| format!("{way}-moved-1,{way}-moved-2"));
    for providers in moved {
        let line = log.lines().find(|line| line.contains("outcome") && line.contains(&providers));
        let line = line.unwrap_or_default();
        ensure!(line.contains("attempts=2") && line.contains("exact_replay"), "{providers}: {line:?}");
    }
    let node_logs = stand.nodes.iter().map(iop_tests::Process::text);
    for text in node_logs.chain([metrics, log]) {
        let words =
            [PROMPT, PARTIAL.trim(), SERVED.trim(), "drill-loop", "drill-error-code", stand.site.token()];
        for word in words {
            let line = text.lines().find(|line| line.contains(word));
            ensure!(line.is_none(), "{word} in {line:?}");
        }
    }
    Ok(())
}
