//! Nodes that are killed in the middle of a run (REC-6).

use anyhow::ensure;
use iop_tests::{bench::eventually, http::PATIENCE};
use serde_json::json;

use super::{
    backend::{Act, PARTIAL, Point},
    stand::{Case, Origin, Setup, Stand, asked, each, is_served_by},
    way::WAYS,
};

// req: REC-6, FEN-6, API-1, API-2
#[test]
fn what_a_lost_node_had_begun_is_sent_again_before_content_and_where_it_costs_nothing_twice()
-> anyhow::Result<()> {
    let mut cases = Vec::new();
    for way in WAYS {
        for (name, point) in
            [("silent", Point::Silent), ("preamble", Point::Preamble), ("content", Point::Content)]
        {
            for category in ["local_inference", "api"] {
                // Whole answers have no preamble; Ollama is no one's API.
                if (way.is_stream() || point != Point::Preamble)
                    && (way != super::way::Way::Native || category != "api")
                {
                    let case = Case::new(way, &format!("{name}-{category}"), Act::Stall(point));
                    cases.push(Case { category, ..case });
                }
            }
        }
    }
    // No stall comes in between.
    let setup = Setup { stall: 4 * PATIENCE, ..Setup::default() };
    let mut stand = Stand::start(&setup, cases)?;
    let mut clients = Vec::new();
    for group in &stand.groups {
        clients.push(stand.begin(group, &json!({}))?);
    }
    for (group, client) in stand.groups.iter().zip(&mut clients) {
        eventually(PATIENCE, &group.case.name, || Ok(asked(group)[0] == 1))?;
        if group.case.name.contains("content") {
            client.wait_for(if group.case.way.is_stream() { PARTIAL } else { "{" })?;
        }
    }
    stand.kill_node(0)?;
    let answers = clients.iter_mut().map(iop_tests::http::Raw::answer).collect::<anyhow::Result<Vec<_>>>()?;
    let mut replayed = 0.0;
    each(stand.groups.iter().zip(answers), |group, answer| {
        let [first, second] = group.backends.as_slice() else { anyhow::bail!("two providers") };
        if group.case.name.contains("content") {
            let text = group.case.way.failed(&answer)?;
            ensure!(!text.contains("drill-served"), "{text}");
            ensure!(asked(group) == [1, 0], "{:?}", asked(group));
        } else if group.case.category == "local_inference" {
            is_served_by(group, 1, &answer, &Origin::new("exact_replay", &[&first.name, &second.name]))?;
            ensure!(asked(group) == [1, 1], "{:?}", asked(group));
            replayed += 1.0;
        } else {
            ensure!([502, 503].contains(&answer.status), "{}{}", answer.head, answer.text());
            group.case.way.refusal(&answer)?;
            ensure!(asked(group) == [1, 0], "{:?}", asked(group));
            ensure!(Origin::of(&answer) == Origin::new("", &[&first.name]), "{}", answer.head);
        }
        Ok(())
    })?;
    assert_eq!(stand.results("exact_replay", "recovered")?, replayed);
    stand.balances()
}
