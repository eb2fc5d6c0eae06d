//! Answers that do not keep the schema that was asked for, with the gate's `schema_gate` (SEG-8, case 98).

use anyhow::ensure;
use iop_tests::{http::Answer, model::plot::Piece};
use serde_json::{Value, json};

use super::{
    backend::Act,
    stand::{Case, Group, Origin, Setup, Stand, asked, each},
    way::Way,
};

const GATE: &str = "enabled: true, filters: [{ filter: schema_gate }]";
/// Chat and Responses have formats of their own; the native one goes through ours.
const SOME: [Way; 4] = [Way::Chat, Way::Whole, Way::Responses, Way::Native];

fn says(parts: &[&str]) -> Act {
    Act::Says(parts.iter().map(|&text| Piece::Text(text.to_owned())).collect())
}

/// What asks for an object with a number.
fn asks(way: Way) -> Value {
    let schema = json!({
        "type": "object", "properties": { "n": { "type": "integer" } }, "required": ["n"], "additionalProperties": false,
    });
    let format = json!({ "name": "drill", "strict": true, "schema": schema });
    match way {
        Way::Responses => {
            let mut format = format;
            format["type"] = "json_schema".into();
            json!({ "text": { "format": format } })
        }
        _ => json!({ "response_format": { "type": "json_schema", "json_schema": format } }),
    }
}

fn run(scripts: &[Vec<Act>], check: impl Fn(&Group, &Answer) -> anyhow::Result<()>) -> anyhow::Result<()> {
    let cases = SOME.map(|way| Case::of(way, "schema", scripts.to_vec()));
    let stand = Stand::start(&Setup::gate(GATE), cases.into())?;
    let mut clients = Vec::new();
    for group in &stand.groups {
        clients.push((group, stand.begin(group, &asks(group.case.way))?));
    }
    let answers = clients.into_iter().map(|(group, mut client)| Ok((group, client.answer()?)));
    each(answers.collect::<anyhow::Result<Vec<_>>>()?, |group, answer| check(group, &answer))?;
    stand.balances()
}

// req: SEG-8
#[test]
fn what_does_not_keep_its_schema_is_asked_for_again_and_never_given_as_if_it_did() -> anyhow::Result<()> {
    for wrong in [says(&["{\"n\":", "\"seven\"}"]), says(&["{\"n\":7", ",\"m\":1}"]), says(&["{\"n\":", "7"])]
    {
        let script = vec![wrong.clone(), says(&["{\"n\":", "7}"])];
        run(&[script.clone(), script], |group, answer| {
            let text = group.case.way.text(answer)?;
            let value: Value = serde_json::from_str(&text)?;
            ensure!(value["n"].is_i64() && value.as_object().is_some_and(|o| o.len() == 1), "{text}");
            Ok(())
        })?;
        // Of those that never do, nobody hears that they did.
        run(&[vec![wrong.clone()], vec![wrong]], |group, answer| {
            let asked: usize = asked(group).iter().sum();
            ensure!((2..=4).contains(&asked), "{asked} attempts");
            if answer.status == 200 {
                group.case.way.failed(answer)?;
            } else {
                ensure!(answer.status == 502, "{}{}", answer.head, answer.text());
                group.case.way.refusal(answer)?;
            }
            ensure!(Origin::of(answer).recovery == "schema_repair", "{}{}", answer.head, answer.text());
            Ok(())
        })?;
    }
    Ok(())
}

// req: SEG-8
#[test]
fn what_keeps_its_schema_is_passed_on_as_it_is() -> anyhow::Result<()> {
    run(&[vec![says(&["{\"n\":", "7}"])]], |group, answer| {
        ensure!(group.case.way.text(answer)? == "{\"n\":7}", "{}", answer.text());
        ensure!(Origin::of(answer) == Origin::new("", &[&group.backends[0].name]), "{}", answer.head);
        ensure!(asked(group) == [1], "{:?}", asked(group));
        Ok(())
    })
}
