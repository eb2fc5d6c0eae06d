use std::time::Duration;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn step_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "title": {"type": "string", "maxLength": 5},
            "steps": {"type": "array", "items": {"$ref": "#/$defs/step"}, "minItems": 1},
            "kind": {"enum": ["a", "b"]},
        },
        "required": ["title", "steps"],
        "additionalProperties": false,
        "$defs": {"step": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}},
    })
}

/// A request whose content is to keep `schema`.
fn content(surface: Surface, schema: &Value) -> Vec<u8> {
    let body = match surface {
        Surface::Chat => json!({"model": "m", "messages": [], "response_format":
            {"type": "json_schema", "json_schema": {"name": "x", "strict": true, "schema": schema}}}),
        Surface::Responses => json!({"model": "m", "input": "x", "text":
            {"format": {"type": "json_schema", "name": "x", "schema": schema}}}),
        Surface::Messages => json!({"model": "m", "messages": [], "output_config":
            {"format": {"type": "json_schema", "schema": schema}}}),
    };
    body.to_string().into_bytes()
}

/// A request with one tool `f` whose arguments are to keep `schema`.
fn tool(surface: Surface, schema: &Value) -> Vec<u8> {
    let body = match surface {
        Surface::Chat => json!({"model": "m", "tools": [{"type": "function", "function":
            {"name": "f", "strict": true, "parameters": schema}}]}),
        Surface::Responses => json!({"model": "m", "tools": [{"type": "namespace", "name": "g", "tools": [
            {"type": "function", "name": "f", "strict": true, "parameters": schema}]}]}),
        Surface::Messages => json!({"model": "m", "tool_choice": {"type": "tool", "name": "f"},
            "tools": [{"name": "g", "input_schema": {"type": "null"}}, {"name": "f", "input_schema": schema}]}),
    };
    body.to_string().into_bytes()
}

fn gate(surface: Surface, body: &[u8]) -> SchemaGate {
    SchemaGate::of_request(surface, body).expect("it promises something").expect("a usable schema")
}

/// What is said of an answer that comes in parts of `size` characters.
fn verdict(gate: &mut SchemaGate, text: &str, size: usize) -> Result<(), Mismatch> {
    gate.begin_attempt();
    let chars: Vec<char> = text.chars().collect();
    for part in chars.chunks(size) {
        if let Some(mismatch) = gate.push(&part.iter().collect::<String>()) {
            return Err(mismatch);
        }
    }
    gate.end()
}

fn fault(schema: &Value) -> Fault {
    let body = content(Surface::Chat, schema);
    SchemaGate::of_request(Surface::Chat, &body).unwrap().unwrap_err().fault
}

// req: SEG-8
#[test]
fn only_what_a_request_asks_for_is_promised() {
    let schema = json!({"type": "object"});
    for (surface, body, is_there) in [
        (Surface::Chat, json!({"model": "m"}), false),
        (Surface::Chat, json!({"response_format": null}), false),
        (Surface::Chat, json!({"response_format": {"type": "text"}}), false),
        (Surface::Chat, json!({"response_format": "json"}), false),
        (Surface::Chat, json!({"response_format": {"type": "json_object"}}), true),
        (Surface::Chat, json!({"response_format": {"type": "json_schema"}}), true),
        (
            Surface::Chat,
            json!({"response_format": {"type": "json_schema", "json_schema": {"schema": schema}}}),
            true,
        ),
        (Surface::Chat, json!({"tools": [{"function": {"name": "f", "parameters": schema}}]}), false),
        (Surface::Chat, json!({"tools": [{"function": {"name": "f", "strict": false}}]}), false),
        (Surface::Chat, json!({"tools": [{"function": {"name": "f", "strict": true}}]}), true),
        (Surface::Chat, json!({"text": {"format": {"type": "json_object"}}}), false),
        (Surface::Responses, json!({"text": {"format": {"type": "text"}}}), false),
        (Surface::Responses, json!({"text": {"verbosity": "low"}}), false),
        (Surface::Responses, json!({"text": {"format": {"type": "json_object"}}}), true),
        (Surface::Responses, json!({"tools": [{"type": "function", "name": "f", "strict": true}]}), true),
        (Surface::Responses, json!({"tools": [{"type": "function", "name": "f", "strict": null}]}), false),
        (Surface::Messages, json!({"output_config": {"effort": "low"}}), false),
        (Surface::Messages, json!({"output_format": {"type": "json_schema", "schema": schema}}), true),
        (Surface::Messages, json!({"tools": [{"name": "f", "input_schema": schema}]}), false),
        (
            Surface::Messages,
            json!({"tools": [{"name": "f", "input_schema": schema}], "tool_choice": {"type": "any"}}),
            false,
        ),
        (Surface::Messages, json!({"tools": [{"name": "f", "strict": true}]}), true),
    ] {
        let body = body.to_string();
        let promised = SchemaGate::of_request(surface, body.as_bytes());
        assert_eq!(promised.is_some(), is_there, "{surface:?} {body}");
        assert!(promised.is_none_or(|it| it.is_ok()), "{body}");
    }
    for text in ["", "[]", "{", "nonsense"] {
        assert!(SchemaGate::of_request(Surface::Chat, text.as_bytes()).is_none());
    }
}

// req: SEG-8
#[test]
fn an_answer_is_judged_by_the_schema_of_its_request() {
    for surface in Surface::ALL {
        let mut gate = gate(surface, &content(surface, &step_schema()));
        for (text, expected) in [
            ("{\"title\":\"a\",\"steps\":[{\"n\":1}]}", None),
            (" \n{\"title\":\"a\",\"steps\":[{\"n\":1}],\"kind\":\"b\"}\n\n", None),
            ("{\"title\":\"a\"}", Some((Kind::Schema, "expected a member \"steps\""))),
            (
                "{\"title\":\"a\",\"steps\":[]}",
                Some((Kind::Schema, "at /steps: expected at least 1 elements")),
            ),
            (
                "{\"title\":\"a\",\"steps\":[{\"n\":1},{\"n\":\"secret\"}]}",
                Some((Kind::Schema, "at /steps/1/n: expected a value of type integer")),
            ),
            (
                "{\"title\":\"a\",\"steps\":[{\"n\":1}],\"secret\":0}",
                Some((Kind::Schema, "expected no other members than the schema has")),
            ),
            (
                "{\"title\":\"a\",\"steps\":[{\"n\":1}],\"kind\":\"secret\"}",
                Some((Kind::Schema, "at /kind: expected one of [\"a\",\"b\"]")),
            ),
            (
                "{\"title\":\"secrets\",\"steps\":[{\"n\":1}]}",
                Some((Kind::Schema, "at /title: expected at most 5 characters")),
            ),
            ("[1]", Some((Kind::Schema, "expected a value of type object"))),
            ("", Some((Kind::Cut, "expected JSON, and there was none"))),
            (" \n", Some((Kind::Cut, "expected JSON, and there was none"))),
            ("{\"title\":\"a\",\"ste", Some((Kind::Cut, "expected the rest of the JSON"))),
            ("Here you are: {}", Some((Kind::Syntax, "expected a JSON value and nothing before it"))),
            ("```json\n{}\n```", Some((Kind::Syntax, "expected a JSON value and nothing before it"))),
            (
                "{\"title\":\"a\",\"steps\":[{\"n\":1}]}\nDone.",
                Some((Kind::Syntax, "expected nothing after the JSON value")),
            ),
            (
                "{\"title\":\"\\ud800\"}",
                Some((Kind::Syntax, "expected numbers and escapes that can be represented")),
            ),
        ] {
            for size in [1, 3, 1000] {
                let told = verdict(&mut gate, text, size).err();
                let told = told.as_ref().map(|it| (it.kind(), it.told_to_client()));
                let told = told.as_ref().map(|(kind, text)| (*kind, text.as_str()));
                assert_eq!(told, expected, "{surface:?} {text}");
            }
        }
    }
}

#[test]
fn json_mode_asks_for_an_object() {
    let mut gate = gate(Surface::Chat, b"{\"response_format\":{\"type\":\"json_object\"}}");
    assert_eq!(verdict(&mut gate, " {\"a\":[1,2]} ", 2), Ok(()));
    assert_eq!(verdict(&mut gate, "[1]", 1).unwrap_err().kind(), Kind::Syntax);
    assert_eq!(verdict(&mut gate, "{\"a\":[1,2]", 1).unwrap_err().kind(), Kind::Cut);
}

// req: SEG-8
#[test]
fn arguments_of_strict_tools_are_judged_and_those_of_others_are_not() {
    for surface in Surface::ALL {
        let mut gate = gate(surface, &tool(surface, &step_schema()));
        // Of the content nothing is promised.
        assert_eq!(gate.push("I call it."), None);
        assert_eq!(gate.push_arguments(0, 0, Some("f"), ""), None);
        assert_eq!(gate.push_arguments(0, 1, Some("other"), "nonsense"), None);
        assert_eq!(gate.push_arguments(0, 0, None, "{\"title\":\"a\","), None);
        assert_eq!(gate.push_arguments(0, 2, Some("f"), "{\"title\":\"b\",\"steps\":[{\"n\":2}]}"), None);
        assert_eq!(gate.push_arguments(0, 0, None, "\"steps\":[{}]}"), None);
        let told = gate.end().unwrap_err();
        assert_eq!(told.told_to_client(), "arguments of `f`: at /steps/0: expected a member \"n\"");
        assert!(told.is_of_tool());
        gate.begin_attempt();
        let told = gate.push_arguments(0, 0, Some("f"), "nonsense").unwrap();
        assert_eq!(told.kind(), Kind::Syntax);
        assert_eq!(gate.push("x"), Some(told.clone()));
        assert_eq!(gate.end(), Err(told));
        gate.begin_attempt();
        // Nothing is an empty object, which this schema does not allow.
        gate.push_arguments(0, 0, Some("f"), "");
        assert_eq!(gate.end().unwrap_err().kind(), Kind::Schema);
        gate.begin_attempt();
        assert_eq!(gate.end(), Ok(()));
    }
}

#[test]
fn calls_and_refusals_stand_in_for_content_and_every_choice_is_judged() {
    let mut body: Value = serde_json::from_slice(&content(Surface::Chat, &step_schema())).unwrap();
    body["tools"] = json!([{"type": "function", "function": {"name": "free"}}]);
    let mut gate = gate(Surface::Chat, body.to_string().as_bytes());
    gate.push_arguments(0, 0, Some("free"), "{}");
    assert_eq!(gate.end(), Ok(()));
    gate.begin_attempt();
    gate.refused(0);
    assert_eq!(gate.end(), Ok(()));
    gate.begin_attempt();
    assert_eq!(gate.end().unwrap_err().kind(), Kind::Cut);
    gate.begin_attempt();
    let good = "{\"title\":\"a\",\"steps\":[{\"n\":1}]}";
    let (begin, rest) = good.split_at(9);
    for part in [begin, rest] {
        assert_eq!(gate.push_choice(0, part), None);
        assert_eq!(gate.push_choice(1, part), None);
    }
    assert_eq!(gate.push_choice(2, "{}"), None);
    assert_eq!(gate.end().unwrap_err().kind(), Kind::Schema);
}

// req: SEG-8
#[test]
fn a_schema_that_would_cost_too_much_or_fetch_something_is_refused_at_once() {
    let doubled = |levels: usize| {
        let of = |level: usize| json!({"$ref": format!("#/$defs/d{level}")});
        let mut defs: serde_json::Map<_, _> =
            (0..levels).map(|it| (format!("d{it}"), json!({"allOf": [of(it + 1), of(it + 1)]}))).collect();
        defs.insert(format!("d{levels}"), json!({"type": "string"}));
        json!({"$ref": "#/$defs/d0", "$defs": defs})
    };
    let nested = (0..70).fold(json!({}), |inner, _| json!({"allOf": [inner]}));
    let wide: serde_json::Map<_, _> = (0..10_100).map(|it| (it.to_string(), json!(true))).collect();
    let clique = |size: usize| {
        let all: serde_json::Map<_, _> =
            (0..size).map(|it| (format!("p{it}"), json!({"$ref": format!("#/$defs/d{it}")}))).collect();
        let defs: serde_json::Map<_, _> =
            (0..size).map(|it| (format!("d{it}"), json!({"properties": all}))).collect();
        json!({"$ref": "#/$defs/d0", "$defs": defs})
    };
    let patterns: serde_json::Map<_, _> =
        (0..65).map(|it| (format!("p{it}"), json!({"pattern": format!("^a{it}$")}))).collect();
    for (schema, expected) in [
        (json!({"$ref": "http://127.0.0.1:1/x"}), Fault::Reference),
        (json!({"$ref": "file:///etc/passwd"}), Fault::Reference),
        (json!({"properties": {"a": {"$ref": "other.json#/a"}}}), Fault::Reference),
        (json!({"$ref": "#/nowhere"}), Fault::Reference),
        (json!({"$ref": "#anchor", "$defs": {"a": {"$anchor": "anchor"}}}), Fault::Reference),
        (json!({"$ref": 1}), Fault::Reference),
        (json!({"$dynamicRef": "#a"}), Fault::Reference),
        (json!({"$defs": {"a": {"$id": "http://x.test/a"}}}), Fault::Reference),
        (json!({"$ref": "#"}), Fault::Reference),
        (json!({"allOf": [{"anyOf": [{"$ref": "#"}]}]}), Fault::Reference),
        (json!({"$ref": "#/$defs/a", "$defs": {"a": {"not": {"$ref": "#/$defs/a"}}}}), Fault::Reference),
        (json!({"$schema": "http://127.0.0.1:1/meta"}), Fault::Reference),
        (json!({"$defs": {"a": {"$schema": "http://json-schema.org/draft-04/schema#"}}}), Fault::Reference),
        (
            json!({"$schema": "http://json-schema.org/draft-04/schema#", "items": {"id": "x"}}),
            Fault::Reference,
        ),
        (json!({"type": "thing"}), Fault::Invalid),
        (json!({"properties": []}), Fault::Invalid),
        (json!({"items": {"required": "a"}}), Fault::Invalid),
        (json!("text"), Fault::Invalid),
        (doubled(20), Fault::TooLarge),
        (clique(9), Fault::TooLarge),
        (json!({"properties": wide}), Fault::TooLarge),
        (json!({"description": "x".repeat(200_000)}), Fault::TooLarge),
        (nested, Fault::TooDeep),
        (json!({"pattern": "(?=a)b"}), Fault::Pattern),
        (json!({"pattern": "(a)\\1"}), Fault::Pattern),
        (json!({"pattern": "(a{1000}){1000}"}), Fault::Pattern),
        (json!({"pattern": "("}), Fault::Pattern),
        (json!({"patternProperties": {"(?!x)": true}}), Fault::Pattern),
        (json!({"pattern": "a".repeat(2000)}), Fault::Pattern),
        (json!({"properties": patterns}), Fault::Pattern),
    ] {
        assert_eq!(fault(&schema), expected, "{}", schema.to_string().chars().take(120).collect::<String>());
    }
    for surface in Surface::ALL {
        let bad =
            SchemaGate::of_request(surface, &tool(surface, &json!({"$ref": "x"}))).unwrap().unwrap_err();
        assert!(bad.param.starts_with("tools[]."), "{bad}");
    }
}

#[test]
fn schemas_as_generators_write_them_are_accepted() {
    let recursive = json!({"$defs": {"Node": {"type": "object", "properties": {"value": {"type": "integer"},
        "next": {"anyOf": [{"$ref": "#/$defs/Node"}, {"type": "null"}]},
        "all": {"type": "array", "items": {"$ref": "#/$defs/Node"}}}, "required": ["value"]}}, "$ref": "#/$defs/Node"});
    let draft7 = json!({"$schema": "http://json-schema.org/draft-07/schema#", "definitions": {"a/b": {"type": "string"}},
        "type": "object", "properties": {"t": {"type": "array", "items": [{"type": "number"}]},
        "x": {"$ref": "#/definitions/a~1b"}, "y": {"$ref": "#/definitions/a%7E1b"}, "$id": {"type": "string"}}});
    for (schema, good, bad) in [
        (
            &recursive,
            "{\"value\":1,\"next\":{\"value\":2,\"next\":null}}",
            "{\"value\":1,\"all\":[{\"value\":null}]}",
        ),
        (&draft7, "{\"t\":[1],\"x\":\"\",\"y\":\"\",\"$id\":\"\"}", "{\"y\":1}"),
        (
            &json!({"$id": "https://x.test/root", "$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object"}),
            "{}",
            "1",
        ),
        (&json!({"pattern": "^(\\w+)-\\d{1,4}$"}), "\"ab-12\"", "\"ab-\""),
        (
            &json!({"type": "object", "examples": [{"id": "x"}], "properties": {"id": {"const": "x"}}}),
            "{\"id\":\"x\"}",
            "{\"id\":1}",
        ),
        (&json!({"format": "email"}), "\"no address\"", "nonsense"),
    ] {
        let mut gate = gate(Surface::Chat, &content(Surface::Chat, schema));
        assert_eq!(verdict(&mut gate, good, 7), Ok(()), "{schema}");
        assert!(verdict(&mut gate, bad, 7).is_err(), "{schema}");
    }
}

/// Waits for what is done on a thread with the stack of a shard; it would hang for ever without its bound.
fn within_a_minute<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (tell, told) = std::sync::mpsc::channel();
    let thread =
        std::thread::Builder::new().stack_size(2 * 1024 * 1024).spawn(move || tell.send(work())).unwrap();
    let done = told.recv_timeout(Duration::from_secs(60)).expect("it ends");
    thread.join().unwrap().unwrap();
    done
}

// req: SEG-8
#[test]
fn no_answer_makes_judging_it_endless() {
    let twice = json!({"properties": {"a": {"allOf": [{"$ref": "#"}, {"$ref": "#"}]}}});
    let deep = |levels: usize| "{\"a\":".repeat(levels) + "1" + &"}".repeat(levels);
    let listed = json!({"items": {"anyOf": (0..300).map(|it| json!({"const": it})).collect::<Vec<_>>()}});
    let list = format!("[{}0]", "0,".repeat(20_000));
    let text = format!("\"{}!\"", "a".repeat(900_000));
    let once = json!({"properties": {"a": {"$ref": "#"}}, "type": ["object", "integer"]});
    let unevaluated = json!({"unevaluatedProperties": false,
        "allOf": (0..50).map(|_| json!({"unevaluatedProperties": true})).collect::<Vec<_>>()});
    let members = |count: usize| {
        format!("{{{}\"z\":0}}", (0..count).map(|it| format!("\"{it}\":0,")).collect::<String>())
    };
    for (schema, answer, expected) in [
        (twice.clone(), deep(40), Some(Kind::Bound)),
        (twice, deep(4), None),
        (once.clone(), deep(120), None),
        (once, deep(129), Some(Kind::Bound)),
        (listed, list, Some(Kind::Bound)),
        (json!({"pattern": "^(a+)+$"}), text.clone(), Some(Kind::Schema)),
        (json!({"pattern": "(x+x+)+y"}), text, Some(Kind::Schema)),
        (json!({"patternProperties": {"^(a|a)*$": true, "b": true}}), members(30_000), None),
        (unevaluated, members(5_000), Some(Kind::Bound)),
        (
            json!({"uniqueItems": true}),
            format!("[{}]", (0..50_000).map(|it| it.to_string()).collect::<Vec<_>>().join(",")),
            None,
        ),
        (json!({"multipleOf": 1e-300}), "1e300".to_owned(), None),
        (json!({"multipleOf": 0.1}), "1e308".to_owned(), None),
        (json!(true), format!("\"{}\"", "a".repeat(ANSWER_BYTES_MAX)), Some(Kind::Bound)),
    ] {
        let told = schema.to_string();
        let kind = within_a_minute(move || {
            let mut gate = gate(Surface::Chat, &content(Surface::Chat, &schema));
            verdict(&mut gate, &answer, 5000).err().map(|it| it.kind())
        });
        if told.contains("multipleOf") {
            // Whatever is said of it: it is said.
            continue;
        }
        assert_eq!(kind, expected, "{}", told.chars().take(120).collect::<String>());
    }
}

#[test]
fn of_names_that_two_groups_use_nothing_is_judged() {
    let strict = |name: &str| json!({"type": "function", "name": name, "strict": true, "parameters": {"required": ["a"]}});
    let body = json!({"tools": [strict("h"), {"type": "namespace", "name": "g", "tools": [strict("f"), strict("i")]},
        {"type": "function", "name": "f", "parameters": {}}]});
    let mut gate = gate(Surface::Responses, body.to_string().as_bytes());
    assert_eq!(gate.push_arguments(0, 0, Some("f"), "nonsense"), None);
    assert_eq!(gate.end(), Ok(()));
    for name in ["h", "i"] {
        gate.begin_attempt();
        gate.push_arguments(0, 0, Some(name), "{}");
        assert_eq!(gate.end().unwrap_err().kind(), Kind::Schema);
    }
}

#[test]
fn texts_of_one_answer_are_bounded_in_number() {
    let mut gate = gate(Surface::Chat, &tool(Surface::Chat, &json!({})));
    for call in 0..256 {
        assert_eq!(gate.push_arguments(0, call, Some("f"), "{}"), None);
    }
    assert_eq!(gate.push_arguments(0, 256, Some("f"), "{}").unwrap().kind(), Kind::Bound);
}

// req: SEG-5
#[test]
fn nothing_of_an_answer_is_in_a_debug_form() {
    let mut gate = gate(Surface::Chat, &content(Surface::Chat, &step_schema()));
    gate.push("{\"sentinel\":\"sentinel\",\"title\":\"a\",\"steps\":[{\"n\":\"sentinel\"}]}");
    let told = gate.end().unwrap_err();
    let shown = format!("{gate:?} {told:?} {:?}", gate.end());
    assert!(!shown.contains("sentinel") && !shown.contains("steps"), "{shown}");
    // What the client is told has places, no values.
    assert!(!told.told_to_client().contains("sentinel"), "{}", told.told_to_client());
}

#[test]
fn a_gate_can_be_handed_to_another_thread() {
    fn is_send<T: Send>(_: &T) {}
    is_send(&gate(Surface::Chat, &content(Surface::Chat, &step_schema())));
}

/// How long compiling and judging take: `cargo test --release -p iop-edge --lib cost_of -- --ignored --nocapture`.
#[test]
#[ignore = "a measurement, no test"]
fn cost_of_a_typical_schema() {
    fn cpu() -> Duration {
        let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
        Duration::from_nanos(text.split(' ').next().unwrap().parse().unwrap())
    }
    fn each(name: &str, times: u32, mut work: impl FnMut()) {
        let before = cpu();
        (0..times).for_each(|_| work());
        println!("{name}: {:?}", (cpu() - before) / times);
    }
    let step = "{\"n\":123456789,\"text\":\"The quick brown fox jumps over the lazy dog.\"}";
    let answer = format!("{{\"title\":\"a\",\"steps\":[{}{step}]}}", format!("{step},").repeat(55));
    let body = content(Surface::Chat, &step_schema());
    println!("schema {} bytes, answer {} bytes", step_schema().to_string().len(), answer.len());
    each("of_request, typical", 2000, || drop(SchemaGate::of_request(Surface::Chat, &body)));
    let mut judging = gate(Surface::Chat, &body);
    each("push and end, 4 KiB", 2000, || verdict(&mut judging, &answer, answer.len()).unwrap());
    each("end alone, 4 KiB", 2000, || judging.end().unwrap());
    let parts: Vec<String> =
        answer.as_bytes().chunks(4).map(|it| String::from_utf8(it.to_vec()).unwrap()).collect();
    each("push in 1000 parts", 2000, || {
        judging.begin_attempt();
        parts.iter().for_each(|part| drop(judging.push(part)));
    });
    for members in [10, 30, 100, 1000] {
        let properties: serde_json::Map<_, _> = (0..members)
            .map(|it| (format!("member{it}"), json!({"type": "string", "description": "What it is for."})))
            .collect();
        let body = content(Surface::Chat, &json!({"type": "object", "properties": properties}));
        each(&format!("of_request, {} bytes", SchemaGate::schema_bytes(Surface::Chat, &body)), 50, || {
            drop(SchemaGate::of_request(Surface::Chat, &body));
        });
    }
    for patterns in [1, 10, 64] {
        let properties: serde_json::Map<_, _> = (0..patterns)
            .map(|it| (format!("m{it}"), json!({"pattern": format!("^[a-z]{{{it}}}\\d+-\\w*$")})))
            .collect();
        let body = content(Surface::Chat, &json!({"properties": properties}));
        each(
            &format!(
                "of_request, {patterns} patterns, {} bytes",
                SchemaGate::schema_bytes(Surface::Chat, &body)
            ),
            20,
            || {
                drop(SchemaGate::of_request(Surface::Chat, &body));
            },
        );
    }
    let hard = json!({"items": {"pattern": "^(.|[a-m]|x){1,20}(a|b|ab)*$"}});
    let answer = format!("[{}\"\"]", format!("\"{}\",", "ab".repeat(2000)).repeat(20));
    let mut judging = gate(Surface::Chat, &content(Surface::Chat, &hard));
    each(&format!("hard pattern on {} bytes", answer.len()), 5, || {
        drop(verdict(&mut judging, &answer, 1 << 20))
    });
    let many = json!({"items": {"anyOf": [{"type": "null"}, {"type": "object", "properties": {"a": {"type": "integer"}}}]}});
    let answer = format!("[{}null]", "{\"a\":1},".repeat(24_000));
    let mut judging = gate(Surface::Chat, &content(Surface::Chat, &many));
    each(&format!("many values in {} bytes", answer.len()), 5, || {
        drop(verdict(&mut judging, &answer, 1 << 20))
    });
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    // req: SEG-8
    #[test]
    fn where_an_answer_is_cut_does_not_change_what_is_said_of_it(
        title in "\\PC{0,7}", numbers in prop::collection::vec(any::<i32>(), 0..4), kind in "a|b|c",
        extra in any::<bool>(), cut in 0..80_usize, tail in "[ \n}x]{0,2}", size in 1..9_usize,
    ) {
        let mut value = json!({"title": title, "kind": kind,
            "steps": numbers.iter().map(|n| json!({"n": n})).collect::<Vec<_>>()});
        if extra {
            value["other"] = json!(null);
        }
        let mut chars: Vec<char> = value.to_string().chars().collect();
        chars.truncate(80 - cut.min(70));
        let text = chars.into_iter().collect::<String>() + &tail;
        let mut gate = gate(Surface::Chat, &content(Surface::Chat, &step_schema()));
        let whole = verdict(&mut gate, &text, usize::MAX);
        prop_assert_eq!(&verdict(&mut gate, &text, size), &whole);
        // Whatever passes is what was promised.
        let fits = serde_json::from_str::<Value>(&text)
            .is_ok_and(|value| jsonschema::is_valid(&step_schema(), &value));
        prop_assert_eq!(whole.is_ok(), fits, "{}", text);
    }
}
