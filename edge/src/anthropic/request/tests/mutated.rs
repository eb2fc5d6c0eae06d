//! Bodies that nobody would write: whatever comes, it is read or refused, within bounds.

use serde::de::IgnoredAny;
use serde_json::{Value, json, value::RawValue};

use super::{super::*, shown, with};

/// SplitMix64: the same bodies in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end.max(1) as u64).unwrap()
    }

    fn of<'a, T: ?Sized>(&mut self, list: &[&'a T]) -> &'a T {
        list[self.below(list.len())]
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let source =
        |kind: &str| json!({"type": kind, "media_type": "image/png", "data": "AAAA", "url": "https://h/x"});
    let image = || json!({"type": "image", "source": source("base64")});
    let text = || json!({"type": "text", "text": "é\n\u{1f600}", "cache_control": {"type": "ephemeral"}});
    let messages = |messages: Value| with(&json!({ "messages": messages }));
    vec![
        with(&json!({
            "system": [{"type": "text", "text": "x-anthropic-billing-header: a"}, text()], "temperature": 1, "top_p": 0.5,
            "top_k": 3, "stop_sequences": ["a"], "stream": true, "metadata": {"user_id": "u"}, "container": {"skills": []},
            "mcp_servers": [], "thinking": {"type": "enabled", "budget_tokens": 2000}
        })),
        with(&json!({
            "tools": [{"name": "f", "description": "d", "input_schema": {"a": [1]}, "strict": true, "type": "custom"}],
            "tool_choice": {"type": "tool", "name": "f", "disable_parallel_tool_use": true},
            "output_config": {"effort": "low", "format": {"type": "json_schema", "schema": {"a": 1}}}
        })),
        messages(json!([
            {"role": "user", "content": [text(), image()]},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "t", "signature": ""}, {"type": "redacted_thinking", "data": "x"}, text(),
                {"type": "tool_use", "id": "c", "name": "f", "input": {"a": [1, {"b": null}]}}
            ]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "c", "content": [text(), image(), {"type": "tool_reference", "tool_name": "f"}], "is_error": true},
                text()
            ]},
            {"role": "system", "content": "s"}
        ])),
        messages(shown(
            json!({"type": "document", "title": "t", "context": "c", "citations": {"enabled": false},
            "source": {"type": "content", "content": [text(), image()]}}),
        )),
        messages(shown(json!({"type": "search_result", "source": "s", "title": "t", "content": [text()]}))),
        messages(shown(json!({"type": "document", "source": {"type": "text", "data": "d"}}))),
        messages(shown(json!({"type": "image", "source": source("url")}))),
    ]
}

/// Where the values of a body stand that is written without blanks.
fn values(body: &[u8]) -> Vec<(usize, usize)> {
    let starts = |at: usize| at == 0 || matches!(body[at - 1], b':' | b',' | b'[');
    let one = |at: usize| {
        let raw: Option<&RawValue> = serde_json::Deserializer::from_slice(&body[at..])
            .into_iter::<&RawValue>()
            .next()
            .and_then(Result::ok);
        raw.map(|raw| (at, at + raw.get().len()))
    };
    (0..body.len()).filter(|at| starts(*at)).filter_map(one).collect()
}

const ODD: [&[u8]; 20] = [
    b"null",
    b"true",
    b"0",
    b"-1",
    b"1e999",
    b"18446744073709551616",
    b"\"\"",
    b"\"\\ud800\"",
    b"\"\\u0000\"",
    b"\"text\"",
    b"\"image\"",
    b"\"document\"",
    b"\"tool_use\"",
    b"\"tool_result\"",
    b"\"assistant\"",
    b"[]",
    b"{}",
    b"[[[[{}]]]]",
    b"{\"type\":5}",
    b"[{\"type\":\"text\",\"text\":\"\"}]",
];

#[test]
fn any_bytes_are_read_or_refused() {
    let seeds = seeds();
    let places: Vec<Vec<(usize, usize)>> = seeds.iter().map(|seed| values(seed)).collect();
    let mut pool: Vec<&[u8]> = ODD.to_vec();
    for (seed, places) in seeds.iter().zip(&places) {
        assert!(read(seed).is_ok(), "{}", String::from_utf8_lossy(seed));
        pool.extend(places.iter().map(|(from, to)| &seed[*from..*to]));
    }
    let (mut random, mut accepted, mut refused) = (Random(8), 0_u32, 0_u32);
    for _ in 0..120_000 {
        let at = random.below(seeds.len());
        let mut body = seeds[at].clone();
        // A value for another one, which mostly leaves it JSON.
        if random.below(8) > 0 {
            let (from, to) = places[at][random.below(places[at].len())];
            body.splice(from..to, random.of(&pool).iter().copied());
        }
        // Bytes, which mostly do not.
        if random.below(4) == 0 {
            let from = random.below(body.len());
            match random.below(4) {
                0 => body[from] = random.next() as u8,
                1 => body.truncate(from),
                2 => drop(body.drain(from..(from + random.below(8)).min(body.len()))),
                _ => drop(body.splice(from..from, random.of(&pool).iter().copied())),
            }
        }
        match read(&body) {
            Ok(asked) => {
                accepted += 1;
                let calls = asked.conversation.messages.iter().flat_map(|message| &message.tool_calls);
                for call in calls {
                    let arguments = &call.function.arguments;
                    let is_json = serde_json::from_str::<IgnoredAny>(arguments).is_ok();
                    assert!(is_json && arguments.starts_with('{'), "{call:?}");
                }
                let _pictures_may_have_to_be_fetched = asked.conversation.into_run_input();
            }
            Err(error) => {
                refused += 1;
                assert!(error.param.len() < 200 && error.detail.len() < 1000, "{error:?}");
            }
        }
    }
    assert!(accepted > 20_000 && refused > 20_000, "{accepted} accepted, {refused} refused");
}

#[test]
fn depth_and_number_cost_no_more_than_length() {
    for (open, close) in [
        ("[", "]"),
        ("{\"content\":", "}"),
        ("{\"type\":\"tool_result\",\"tool_use_id\":\"c\",\"content\":[", "]}"),
    ] {
        let deep = format!("{}null{}", open.repeat(50_000), close.repeat(50_000));
        for body in [
            format!(
                r#"{{"model":"m","max_tokens":1,"whatever":{deep},"messages":[{{"role":"user","content":"x"}}]}}"#
            ),
            format!(r#"{{"model":"m","max_tokens":1,"messages":[{{"role":"user","content":[{deep}]}}]}}"#),
            format!(r#"{{"model":"m","max_tokens":1,"messages":[{{"role":"user","content":{deep}}}]}}"#),
            format!(r#"{{"model":"m","max_tokens":1,"system":{deep},"messages":[]}}"#),
            deep.clone(),
        ] {
            let _is_read_or_refused = read(body.as_bytes());
        }
    }
    // Results look up their calls, messages are put together, texts are added: none of it looks at all that was before.
    let call = |at: usize| format!(r#"{{"type":"tool_use","id":"c{at}","name":"f","input":{{}}}}"#);
    let result = |at: usize| format!(r#"{{"type":"tool_result","tool_use_id":"c{at}","content":"x"}}"#);
    let list = |of: &dyn Fn(usize) -> String| (0..50_000).map(of).collect::<Vec<_>>().join(",");
    let body = format!(
        r#"{{"model":"m","max_tokens":1,"messages":[{{"role":"assistant","content":[{}]}},{{"role":"user","content":[{}]}},{}]}}"#,
        list(&call),
        list(&result),
        list(&|_| r#"{"role":"user","content":"x"}"#.to_owned()),
    );
    let messages = read(body.as_bytes()).unwrap().conversation.messages;
    assert_eq!((messages.len(), messages[0].tool_calls.len()), (50_002, 50_000));
    assert_eq!((&*messages[50_000].tool_name, messages[50_001].parts.len()), ("f", 50_000));
}
