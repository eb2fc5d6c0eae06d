use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::gate::{reading::Channel, recorder::Recorder, schema::SchemaGate};

const WINDOW: Option<u64> = Some(100_000);

fn recorded(content: &str, reasoning: &str) -> Recorded {
    let mut recorder = Recorder::new(1 << 20);
    recorder.push(Channel::Content, content);
    recorder.push(Channel::Reasoning, reasoning);
    recorder.take().unwrap_or_default()
}

fn go_on(surface: Surface, body: &str, content: &str) -> Result<String, Ineligible> {
    continuation(surface, body.as_bytes(), &recorded(content, ""), 1, WINDOW)
        .map(|body| String::from_utf8(body).unwrap())
}

/// A fixed directive as it stands in JSON.
fn go_on_quoted() -> String {
    Value::from(GO_ON).to_string()
}

// req: SEG-5
#[test]
fn a_continuation_adds_turns_and_a_temperature_and_every_other_byte_stays() {
    let directive = go_on_quoted();
    for (surface, body, expected) in [
        (
            Surface::Chat,
            "{ \"x\":1.0,\"model\":\"m\",\"messages\" : [ {\"role\":\"user\",\"content\":\"h\\u00e9\\ud83d\\ude00\"} ],\"seed\":1E2 }\n",
            "{\"temperature\":0.2, \"x\":1.0,\"model\":\"m\",\"messages\" : [ {\"role\":\"user\",\"content\":\"h\\u00e9\\ud83d\\ude00\"} ,{\"role\":\"assistant\",\"content\":\"so \\\"far\\\"\"},{\"role\":\"user\",\"content\":D}],\"seed\":1E2 }\n",
        ),
        // A prefilled answer goes on in its own turn.
        (
            Surface::Chat,
            "{\"messages\":[{\"role\":\"assistant\",\"content\":\"It is\"}],\"temperature\":0}",
            "{\"messages\":[{\"role\":\"assistant\",\"content\":\"It isso \\\"far\\\"\"},{\"role\":\"user\",\"content\":D}],\"temperature\":0}",
        ),
        (
            Surface::Chat,
            "{\"messages\":[{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"1\"}]},{\"role\":\"tool\",\"content\":\"r\"}],\"temperature\":1.5}",
            "{\"messages\":[{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"1\"}]},{\"role\":\"tool\",\"content\":\"r\"},{\"role\":\"assistant\",\"content\":\"so \\\"far\\\"\"},{\"role\":\"user\",\"content\":D}],\"temperature\":1.5}",
        ),
        (
            Surface::Responses,
            "{\"input\": \"hi\\n\" ,\"temperature\":null}",
            "{\"input\": [{\"role\":\"user\",\"content\":\"hi\\n\"},{\"role\":\"assistant\",\"content\":\"so \\\"far\\\"\"},{\"role\":\"user\",\"content\":D}] ,\"temperature\":0.2}",
        ),
        (
            Surface::Responses,
            "{\"input\":[{\"type\":\"message\",\"role\":\"user\",\"content\":[{\"type\":\"input_text\",\"text\":\"a\"}]},{\"type\":\"function_call_output\",\"call_id\":\"c\",\"output\":\"o\"}],\"temperature\":1}",
            "{\"input\":[{\"type\":\"message\",\"role\":\"user\",\"content\":[{\"type\":\"input_text\",\"text\":\"a\"}]},{\"type\":\"function_call_output\",\"call_id\":\"c\",\"output\":\"o\"},{\"role\":\"assistant\",\"content\":\"so \\\"far\\\"\"},{\"role\":\"user\",\"content\":D}],\"temperature\":1}",
        ),
        (
            Surface::Messages,
            "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\",\"cache_control\":{}}]},{\"role\":\"assistant\",\"content\":[{\"type\":\"text\",\"text\":\"It\"}]}],\"temperature\":1}",
            "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\",\"cache_control\":{}}]},{\"role\":\"assistant\",\"content\":[{\"type\":\"text\",\"text\":\"It\"},{\"type\":\"text\",\"text\":\"so \\\"far\\\"\"}]},{\"role\":\"user\",\"content\":D}],\"temperature\":1}",
        ),
        // Who thinks takes no temperature.
        (
            Surface::Messages,
            "{\"messages\":[],\"thinking\":{\"type\":\"adaptive\"}}",
            "{\"messages\":[{\"role\":\"assistant\",\"content\":\"so \\\"far\\\"\"},{\"role\":\"user\",\"content\":D}],\"thinking\":{\"type\":\"adaptive\"}}",
        ),
        (
            Surface::Messages,
            "{\"messages\":[],\"thinking\":{\"type\":\"disabled\"}}",
            "{\"temperature\":0.2,\"messages\":[{\"role\":\"assistant\",\"content\":\"so \\\"far\\\"\"},{\"role\":\"user\",\"content\":D}],\"thinking\":{\"type\":\"disabled\"}}",
        ),
    ] {
        let rebuilt = go_on(surface, body, "so \"far\"").unwrap();
        assert_eq!(rebuilt, expected.replace(":D}", &format!(":{directive}}}")), "{body}");
    }
}

// req: SEG-5
#[test]
fn thoughts_alone_go_on_in_the_directive_and_the_users_turn_is_made_longer() {
    let asked =
        Value::from(format!("\n\n{GO_ON_FROM_THOUGHTS}\n<thoughts>\nhm \"so\"\n</thoughts>")).to_string();
    let inner = &asked[1..asked.len() - 1];
    let part = format!("\"{}\"", &inner[4..]);
    for (surface, body, expected) in [
        (
            Surface::Chat,
            "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"temperature\":0}",
            format!("{{\"messages\":[{{\"role\":\"user\",\"content\":\"a{inner}\"}}],\"temperature\":0}}"),
        ),
        (
            Surface::Chat,
            "{\"messages\":[{\"role\":\"tool\",\"content\":\"a\"}],\"temperature\":0}",
            format!(
                "{{\"messages\":[{{\"role\":\"tool\",\"content\":\"a\"}},{{\"role\":\"user\",\"content\":{part}}}],\"temperature\":0}}"
            ),
        ),
        (
            Surface::Responses,
            "{\"input\":\"a\",\"temperature\":0}",
            format!("{{\"input\":\"a{inner}\",\"temperature\":0}}"),
        ),
        (
            Surface::Responses,
            "{\"input\":[{\"role\":\"user\",\"content\":[]}],\"temperature\":0}",
            format!(
                "{{\"input\":[{{\"role\":\"user\",\"content\":[{{\"type\":\"input_text\",\"text\":{part}}}]}}],\"temperature\":0}}"
            ),
        ),
        (
            Surface::Messages,
            "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"tool_result\"} ]}],\"temperature\":0}",
            format!(
                "{{\"messages\":[{{\"role\":\"user\",\"content\":[{{\"type\":\"tool_result\"}} ,{{\"type\":\"text\",\"text\":{part}}}]}}],\"temperature\":0}}"
            ),
        ),
    ] {
        let rebuilt =
            continuation(surface, body.as_bytes(), &recorded(" \n", "hm \"so\""), 1, WINDOW).unwrap();
        assert_eq!(String::from_utf8(rebuilt).unwrap(), expected, "{body}");
    }
    // Once something was answered, thoughts are not carried: the answer is what goes on.
    let rebuilt =
        continuation(Surface::Chat, b"{\"messages\":[]}", &recorded("said", "sentinel thought"), 1, WINDOW);
    assert!(!String::from_utf8(rebuilt.unwrap()).unwrap().contains("sentinel"));
}

// req: SEG-5
#[test]
fn the_temperature_rises_with_every_continuation_unless_the_caller_named_one() {
    let of = |body: &str, ordinal: u32| {
        let rebuilt =
            continuation(Surface::Chat, body.as_bytes(), &recorded("x", ""), ordinal, WINDOW).unwrap();
        serde_json::from_slice::<Value>(&rebuilt).unwrap()["temperature"].clone()
    };
    for (ordinal, expected) in [(1, 0.2), (2, 0.4), (3, 0.6), (4, 0.6), (0, 0.2), (u32::MAX, 0.6)] {
        assert_eq!(of("{\"messages\":[]}", ordinal), json!(expected));
        assert_eq!(of("{\"messages\":[],\"temperature\":null}", ordinal), json!(expected));
        assert_eq!(of("{\"messages\":[],\"temperature\":0.9}", ordinal), json!(0.9));
        assert_eq!(of("{\"temperature\":0,\"messages\":[]}", ordinal), json!(0));
    }
}

// req: SEG-5. Case 40.
#[test]
fn what_two_answers_cannot_be_put_together_for_is_refused() {
    for (surface, body) in [
        (Surface::Chat, json!({"messages": [], "n": 2})),
        (Surface::Chat, json!({"messages": [], "n": "1"})),
        (Surface::Chat, json!({"messages": [], "response_format": {"type": "json_object"}})),
        (
            Surface::Chat,
            json!({"messages": [], "response_format": {"type": "json_schema", "json_schema": {}}}),
        ),
        (Surface::Chat, json!({"messages": [], "response_format": {"type": "grammar"}})),
        (Surface::Chat, json!({"messages": [], "response_format": {}})),
        (Surface::Chat, json!({"messages": [], "response_format": 1})),
        (Surface::Chat, json!({"messages": [], "tools": [{"function": {"name": "f", "strict": true}}]})),
        (Surface::Responses, json!({"input": "x", "text": {"format": {"type": "json_schema"}}})),
        (Surface::Responses, json!({"input": "x", "tools": [{"name": "f", "strict": true}]})),
        (Surface::Responses, json!({"input": "x", "tools": [{"tools": [{"name": "f", "strict": true}]}]})),
        (Surface::Responses, json!({"input": "x", "background": true})),
        (Surface::Messages, json!({"messages": [], "output_config": {"format": {"type": "json_schema"}}})),
        (Surface::Messages, json!({"messages": [], "output_format": {"type": "json_schema"}})),
        (Surface::Messages, json!({"messages": [], "tools": [{"name": "f", "strict": true}]})),
        // Not of this surface.
        (Surface::Chat, json!({"input": "x"})),
        (Surface::Chat, json!({"messages": "x"})),
        (Surface::Chat, json!({"messages": null})),
        (Surface::Responses, json!({"messages": []})),
        (Surface::Responses, json!({"input": 1})),
        (Surface::Messages, json!([])),
    ] {
        assert_eq!(
            go_on(surface, &body.to_string(), "x"),
            Err(Ineligible::Unsupported),
            "{surface:?} {body}"
        );
    }
    for (surface, body) in [
        (
            Surface::Chat,
            json!({"messages": [], "n": 1, "response_format": {"type": "text"}, "tools": [{"function": {"strict": false}}]}),
        ),
        (Surface::Chat, json!({"messages": [], "n": null, "response_format": null})),
        (Surface::Responses, json!({"input": [], "text": {"format": {"type": "text"}}, "background": false})),
        (Surface::Messages, json!({"messages": [], "output_config": {"effort": "low", "format": null}})),
    ] {
        assert!(go_on(surface, &body.to_string(), "x").is_ok(), "{surface:?} {body}");
    }
    // A call that has begun.
    let mut recorder = Recorder::new(100);
    recorder.push(Channel::Content, "x");
    recorder.push(Channel::Arguments, "{");
    let refused = continuation(Surface::Chat, b"{\"messages\":[]}", &recorder.take().unwrap(), 1, WINDOW);
    assert_eq!(refused, Err(Ineligible::Unsupported));
    assert_eq!(go_on(Surface::Chat, "{\"messages\":[]}", " "), Err(Ineligible::SnapshotGone));
}

// req: SEG-5
#[test]
fn a_window_that_is_unknown_or_too_small_refuses() {
    let body = json!({"messages": [{"role": "user", "content": "word ".repeat(500)}]}).to_string();
    let of = |window| {
        continuation(Surface::Chat, body.as_bytes(), &recorded(&"said ".repeat(500), ""), 1, window).map(drop)
    };
    assert_eq!(of(None), Err(Ineligible::ContextUnknown));
    assert_eq!(of(Some(600)), Err(Ineligible::ContextExceeded));
    assert_eq!(of(Some(1_000)), Err(Ineligible::ContextExceeded));
    assert_eq!(of(Some(2_000)), Ok(()));
}

fn mismatch(text: &str) -> Mismatch {
    let body = b"{\"response_format\":{\"type\":\"json_object\"},\"tools\":[{\"function\":{\"name\":\"f\",\"strict\":true}}]}";
    let mut gate = SchemaGate::of_request(Surface::Chat, body).unwrap().unwrap();
    gate.push(text).unwrap()
}

// req: SEG-8. Case 98.
#[test]
fn a_repair_shows_what_was_wrong_and_asks_for_json_only() {
    let format = "\"response_format\":{\"type\":\"json_object\"}";
    let body =
        format!("{{\"messages\":[{{\"role\":\"user\",\"content\":\"a\"}}],{format},\"temperature\":null}}");
    let rebuilt = schema_repair(Surface::Chat, body.as_bytes(), "Sure: {}", &mismatch("Sure")).unwrap();
    let rebuilt = String::from_utf8(rebuilt).unwrap();
    assert!(rebuilt.ends_with(&format!("],{format},\"temperature\":null}}")), "{rebuilt}");
    let json: Value = serde_json::from_str(&rebuilt).unwrap();
    assert_eq!(json["messages"][1], json!({"role": "assistant", "content": "Sure: {}"}));
    let asked = json["messages"][2]["content"].as_str().unwrap();
    assert!(
        asked.contains("(expected a JSON object and nothing before it)") && asked.contains("JSON only"),
        "{asked}"
    );
    // Nothing was said: the user's turn is made longer.
    let rebuilt = schema_repair(Surface::Messages, body.as_bytes(), "", &mismatch("x")).unwrap();
    let json: Value = serde_json::from_slice(&rebuilt).unwrap();
    assert_eq!(json["messages"].as_array().unwrap().len(), 1);
    assert!(json["messages"][0]["content"].as_str().unwrap().starts_with("a\n\nYour last message"));
    // A call stands in no conversation without its result.
    let mut gate = SchemaGate::of_request(
        Surface::Chat,
        b"{\"tools\":[{\"function\":{\"name\":\"f\",\"strict\":true}}]}",
    )
    .unwrap()
    .unwrap();
    let why = gate.push_arguments(0, 0, Some("f"), "[1]").unwrap();
    let rebuilt = schema_repair(Surface::Responses, b"{\"input\":\"a\"}", "[1]", &why).unwrap();
    let json: Value = serde_json::from_slice(&rebuilt).unwrap();
    let asked = json["input"].as_str().unwrap();
    assert!(asked.contains("call `f`") && asked.ends_with("\n[1]"), "{asked}");
    for body in ["{\"messages\":[],\"n\":2}", "{\"messages\":[],\"background\":true}", "{}", "[]", "x"] {
        let refused = schema_repair(Surface::Chat, body.as_bytes(), "x", &why);
        assert_eq!(refused, Err(Ineligible::Unsupported), "{body}");
    }
}

/// Values as clients write them: numbers, escapes and blanks that another writer would change.
fn member() -> impl Strategy<Value = String> {
    prop::sample::select(vec![
        "\"x\":1.0",
        "\"seed\" : 1E2",
        "\"u\":\"\\u00e9\\/\"",
        "\"e\":[ ]",
        "\"big\":123456789012345678901234567890",
        "\"tools\":[]",
        "\"metadata\":{\"messages\":[1],\"input\":\"x\",\"temperature\":null}",
        "\"stop\":null",
        "\"n\":1",
        "\"t\\u0065mp\":{}",
        "\"system\":\"s\"",
        "\"text\":{\"verbosity\":\"low\"}",
        "\"top_p\":0.10",
    ])
    .prop_map(str::to_owned)
}

fn turn() -> impl Strategy<Value = String> {
    let content = prop::sample::select(vec![
        "\"plain\"",
        "\"\\ud83d\\ude00 \\\"q\\\" ]}\"",
        "\"\"",
        "[ ]",
        "[{\"type\":\"text\",\"text\":\"a]\"} ]",
        "null",
    ]);
    (prop::sample::select(vec!["user", "assistant", "system", "tool"]), content, any::<bool>()).prop_map(
        |(role, content, flipped)| {
            if flipped {
                format!("{{\"content\" :{content} ,\"role\":\"{role}\"}}")
            } else {
                format!("{{\"r\\u006fle\":\"{role}\",\"x\":1.0,\"content\":{content}}}")
            }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    // req: SEG-5
    #[test]
    fn an_edited_body_parses_and_is_the_old_one_with_insertions(
        members in prop::collection::vec(member(), 0..5), turns in prop::collection::vec(turn(), 0..4),
        place in any::<prop::sample::Index>(), said in "\\PC{0,8}|[ \n]{0,2}", thought in "\\PC{1,8}",
        temperature in prop::sample::select(vec!["", "\"temperature\":0.70", "\"temperature\": null"]),
        surface in prop::sample::select(Surface::ALL.to_vec()), ordinal in 1..4_u32,
    ) {
        let mut seen = std::collections::BTreeSet::new();
        let mut members: Vec<String> = members.into_iter().filter(|it| seen.insert(it.clone())).collect();
        let list = if surface == Surface::Responses { "input" } else { "messages" };
        let talk = format!("\"{list}\": [{} ]", turns.join(" , "));
        members.insert(place.index(members.len() + 1), talk);
        if !temperature.is_empty() {
            members.insert(place.index(members.len() + 1), temperature.to_owned());
        }
        let body = format!("\t{{ {} }}\r\n", members.join(" ,"));
        let old: Value = serde_json::from_str(&body).unwrap();
        let recorded = recorded(&said, &thought);
        prop_assume!(!said.trim().is_empty() || !thought.trim().is_empty());
        let rebuilt = String::from_utf8(continuation(surface, body.as_bytes(), &recorded, ordinal, WINDOW).unwrap()).unwrap();
        let mut new: Value = serde_json::from_str(&rebuilt).unwrap();
        // Everything else is equal.
        let expected = if temperature.contains("0.70") { json!(0.7) } else { json!(f64::from(ordinal) * 2.0 / 10.0) };
        prop_assert_eq!(&new["temperature"], &expected);
        let (was, is) = (old[list].as_array().unwrap(), new[list].as_array().unwrap().clone());
        prop_assert!(is.len() >= was.len());
        let kept = was.len().saturating_sub(1);
        prop_assert_eq!(&is[..kept], &was[..kept]);
        prop_assert_eq!(&is.last().unwrap()["role"], "user");
        if let (Some(before), Some(after)) = (was.last(), is.get(kept)) {
            prop_assert_eq!(&before["role"], &after["role"]);
            match (&before["content"], &after["content"]) {
                (Value::String(before), Value::String(after)) => prop_assert!(after.starts_with(before.as_str())),
                (Value::Array(before), Value::Array(after)) => prop_assert_eq!(&after[..before.len()], &before[..]),
                (before, after) => prop_assert_eq!(before, after),
            }
        }
        // What was said stands there as it was said.
        if !said.trim().is_empty() {
            let turn = &is[is.len() - 2];
            prop_assert_eq!(&turn["role"], "assistant");
            let text = match &turn["content"] {
                Value::Array(parts) => parts.last().unwrap()["text"].as_str().unwrap().to_owned(),
                text => text.as_str().unwrap().to_owned(),
            };
            prop_assert!(text.ends_with(said.as_str()));
        }
        let rest = new.as_object_mut().unwrap();
        rest.insert(list.to_owned(), old[list].clone());
        match old.get("temperature") {
            Some(was) => rest.insert("temperature".to_owned(), was.clone()),
            None => rest.remove("temperature"),
        };
        prop_assert_eq!(new, old);
        // By bytes: what was there is there in the same order, but for the `null` of a temperature.
        let mut rest = rebuilt.bytes();
        let was = body.replace("\"temperature\": null", "\"temperature\": ");
        prop_assert!(was.bytes().all(|byte| rest.any(|it| it == byte)));
    }
}
