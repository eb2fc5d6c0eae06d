//! Bodies by people who mean it, and by nobody.

use super::*;
use crate::openai::{
    normalized::answer::{Finish, FinishReason},
    responses::writer::{Responses, Shape},
};

/// A request with something of everything.
const SEED: &str = r#"{"model":"m","instructions":"i","input":[
 {"role":"user","content":[{"type":"input_text","text":"a\u00e9"},{"type":"input_image","image_url":"data:image/png;base64,AA==","detail":"low"},{"type":"input_file","filename":"f","file_data":"data:text/plain;base64,aGk="}]},
 {"type":"reasoning","id":"rs","summary":[{"type":"summary_text","text":"s"}],"content":[{"type":"reasoning_text","text":"r"}],"encrypted_content":null},
 {"type":"message","role":"assistant","content":[{"type":"output_text","text":"x"},{"type":"refusal","refusal":"n"}]},
 {"type":"function_call","call_id":"c","name":"f","namespace":"n","arguments":"{\"a\":1}"},{"type":"function_call_output","call_id":"c","output":"o"},
 {"type":"custom_tool_call","call_id":"d","name":"p","input":"t"},{"type":"custom_tool_call_output","call_id":"d","output":[{"type":"input_text","text":"o"}]}],
 "tools":[{"type":"function","name":"g","parameters":{"type":"object"},"strict":true},{"type":"custom","name":"p","format":{"type":"grammar","syntax":"lark","definition":"d"}},
 {"type":"namespace","name":"n","description":"d","tools":[{"type":"function","name":"f"}]},{"type":"web_search"}],
 "tool_choice":{"type":"allowed_tools","mode":"auto","tools":[{"type":"function","name":"g"}]},"text":{"format":{"type":"json_schema","name":"n","schema":{}},"verbosity":"low"},
 "reasoning":{"effort":"low","summary":"auto"},"metadata":{"k":"v"},"include":[],"temperature":1e0,"max_output_tokens":9,"user":"u"}"#;

/// What takes a place in a mutated body.
const SCRAPS: [&str; 24] = [
    "null",
    "true",
    "{}",
    "[]",
    "\"\"",
    "-1",
    "1e999",
    "18446744073709551616",
    "\"\\ud800\"",
    "\"type\"",
    "\"message\"",
    "\"\u{1f30d}\"",
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\"",
    "\\",
    "\n",
    "\"data:,\"",
    "{\"type\":\"namespace\",\"name\":\"_\",\"tools\":[]}",
    "\"data:image/png;base64,\"",
];

/// Numbers that are the same in every run (xorshift).
struct Dice(u64);

impl Dice {
    fn below(&mut self, most: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % u64::try_from(most.max(1)).unwrap()).unwrap()
    }
}

fn mutated(dice: &mut Dice) -> Vec<u8> {
    let mut body = SEED.as_bytes().to_vec();
    for _ in 0..=dice.below(2) {
        let (from, scrap) = (dice.below(body.len()), SCRAPS[dice.below(SCRAPS.len())].as_bytes());
        match dice.below(5) {
            // Within the structure, so that what is around it is still read.
            0 | 1 => {
                let text = String::from_utf8_lossy(&body).into_owned();
                let starts: Vec<usize> = text.match_indices([':', ',', '[']).map(|(at, _)| at + 1).collect();
                let from = starts[dice.below(starts.len())];
                let length = text[from..].find([',', '}', ']']).unwrap_or(0);
                body = [&text.as_bytes()[..from], scrap, &text.as_bytes()[from + length..]].concat();
            }
            2 => body[from] = u8::try_from(dice.below(256)).unwrap(),
            3 => {
                let until = (from + dice.below(40)).min(body.len());
                body.drain(from..until);
            }
            _ => {
                let until = (from + dice.below(200)).min(body.len());
                let again = body[from..until].to_vec();
                let to = dice.below(body.len());
                body.splice(to..to, again);
            }
        }
        if body.is_empty() {
            break;
        }
    }
    body
}

/// What was read can be told back in one line of JSON.
fn echoes_in_one_line(asked: Asked) {
    let Asked { echo, names, .. } = asked;
    let shape = Shape { id: "resp_1".to_owned(), created: 1, model: "m".into(), stream: true, echo, names };
    let mut out = Vec::new();
    Responses::new(shape).finish(&Finish { reason: FinishReason::Stop, usage: None }, &mut out);
    let stream = String::from_utf8(out).unwrap();
    assert_eq!(stream.lines().count(), 3 * 3 + 2, "{stream}");
    for data in stream.lines().filter_map(|line| line.strip_prefix("data: {")) {
        let is_json = serde_json::from_str::<serde::de::IgnoredAny>(&format!("{{{data}")).is_ok();
        assert!(is_json && data.contains("\"object\":\"response\""), "{data}");
    }
}

#[test]
fn no_body_whatsoever_is_more_than_an_error() {
    assert!(read(SEED.as_bytes()).is_ok());
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    let mut read_well = 0;
    for _ in 0..4_000 {
        let body = mutated(&mut dice);
        match read(&body) {
            Ok(asked) => {
                read_well += 1;
                echoes_in_one_line(asked);
            }
            Err(error) => assert!(error.param.len() < 4096 && error.detail.len() < 1024 + 4096, "{error:?}"),
        }
    }
    assert!(read_well > 100, "only {read_well} bodies were read: the mutations say nothing");
}

#[test]
fn a_body_that_is_written_over_several_lines_is_told_back_in_one() {
    let pretty = serde_json::to_string_pretty(&serde_json::from_str::<Value>(SEED).unwrap()).unwrap();
    echoes_in_one_line(read(pretty.as_bytes()).unwrap());
}

#[test]
fn depth_and_number_cost_no_more_than_their_bytes() {
    // Depth that is skipped, and depth that is read.
    let deep = |count: usize| "[".repeat(count) + &"]".repeat(count);
    for body in [
        format!(r#"{{"input":"x","metadata":{}}}"#, deep(100_000)),
        format!(r#"{{"input":{}}}"#, deep(100_000)),
        format!(
            r#"{{"input":"x","tools":[{{"type":"function","name":"f","parameters":{{"a":{}}}}}]}}"#,
            deep(100_000)
        ),
        format!(r#"{{"input":[{{"role":"user","content":{}}}]}}"#, deep(100_000)),
    ] {
        drop(read(body.as_bytes()));
    }
    // A description that each of many tools would repeat.
    let tools: Vec<Value> =
        (0..2000).map(|at| json!({"type": "function", "name": format!("t{at}")})).collect();
    let group =
        json!([{"type": "namespace", "name": "n", "description": "d".repeat(100_000), "tools": tools}]);
    let asked = asked(&json!({ "tools": group }));
    let told: usize = asked.conversation.tools.iter().map(|tool| tool.description.len()).sum();
    assert!(told < 110_000, "{told} bytes of descriptions");
    // What each event would repeat.
    let long = "x".repeat(300_000);
    let large = super::asked(&json!({
        "instructions": long, "metadata": {"k": long}, "user": long, "tool_choice": "auto",
        "tools": [{"type": "function", "name": "f", "description": long}, {"type": "function", "name": "g"}],
    }));
    assert_eq!(echoed(&large), echoed(&super::asked(&json!({}))));
    assert_eq!(large.conversation.tools[0].description, long);
    // Many calls and their results.
    let items: Vec<Value> = (0..20_000)
        .flat_map(|at| {
            let id = format!("c{at}");
            [
                json!({"type": "function_call", "call_id": id, "name": "f", "arguments": "{}"}),
                json!({"type": "function_call_output", "call_id": id, "output": ""}),
            ]
        })
        .collect();
    let allowed: Vec<Value> =
        (0..4096).map(|at| json!({"type": "function", "name": format!("t{at}")})).collect();
    let many = super::asked(&json!({
        "input": items, "tools": allowed, "tool_choice": {"type": "allowed_tools", "tools": allowed}
    }));
    assert_eq!((many.conversation.messages.len(), many.conversation.tools.len()), (40_000, 4096));
    let mut more = allowed;
    more.push(json!({"type": "custom", "name": "one too many"}));
    let error = read(&with(&json!({ "tools": more }))).unwrap_err();
    assert_eq!((&*error.param, &*error.detail), ("tools[4096]", "expected at most 4096 tools"));
    assert!(many.conversation.messages.iter().skip(1).step_by(2).all(|message| message.tool_name == "f"));
}
