use std::fmt::Write as _;

use proto::run_input::{Role, ToolCall, ToolChoice};
use serde_json::{Value, json};

use super::{super::*, asked, shown, with};
use crate::conversation::{ImageSource, Message, Part};

/// A conversation's messages, short enough to compare: a role, what it says, and what else it has.
fn told(members: &Value) -> Value {
    let part = |part: &Part| match part {
        Part::Text(text) => json!(text),
        Part::Image(image) => match &image.source {
            ImageSource::Data { media_type, base64 } => json!([image.param, media_type, base64]),
            ImageSource::Url(url) => json!([image.param, url]),
        },
    };
    let message = |message: &Message| {
        let parts: Vec<Value> = message.parts.iter().map(part).collect();
        let mut told = json!({ format!("{:?}", message.role).to_lowercase(): parts });
        if !message.reasoning.is_empty() {
            told["reasoning"] = json!(message.reasoning);
        }
        if !message.tool_calls.is_empty() {
            let call = |call: &ToolCall| json!([call.id, call.function.name, call.function.arguments]);
            told["calls"] = message.tool_calls.iter().map(call).collect();
        }
        if message.role == Role::Tool {
            told["for"] = json!([message.tool_call_id, message.tool_name]);
        }
        told
    };
    asked(members).conversation.messages.iter().map(message).collect()
}

fn turns(messages: Value) -> Value {
    told(&json!({ "messages": messages }))
}

fn used(id: &str, name: &str) -> Value {
    json!({"role": "assistant", "content": [{"type": "tool_use", "id": id, "name": name, "input": {}}]})
}

#[test]
fn the_system_prompt_comes_first_and_without_what_changes_with_every_request() {
    let billing = "x-anthropic-billing-header: cc_version=2.1.197.abc; cc_entrypoint=cli; cch=0f2b1;";
    let user = json!({"user": ["hi"]});
    for (system, expected) in [
        (json!("absent"), json!([user])),
        (Value::Null, json!([user])),
        (json!(""), json!([user])),
        (json!([]), json!([user])),
        (json!("be brief"), json!([{"system": ["be brief"]}, user])),
        (
            json!([{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}, {"type": "text", "text": "b"}]),
            json!([{"system": ["a", "b"]}, user]),
        ),
        (
            json!([{"type": "text", "text": billing}, {"type": "text", "text": "b"}]),
            json!([{"system": ["b"]}, user]),
        ),
        (json!([{"type": "text", "text": billing}]), json!([user])),
        (json!(format!("{billing}\nbe brief")), json!([{"system": ["be brief"]}, user])),
        // Only the first block is Claude Code's.
        (
            json!([{"type": "text", "text": "a"}, {"type": "text", "text": billing}]),
            json!([{"system": ["a", billing]}, user]),
        ),
    ] {
        assert_eq!(told(&json!({"system": system})), expected, "{system}");
    }
}

#[test]
fn messages_keep_who_said_what_in_order() {
    for (messages, expected) in [
        (json!([{"role": "user", "content": "a"}]), json!([{"user": ["a"]}])),
        (json!([{"role": "user", "content": []}]), json!([{"user": []}])),
        (
            json!([{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": ""}, {"type": "text", "text": "é\n", "citations": null}]}]),
            json!([{"user": ["a", "é\n"]}]),
        ),
        // What follows each other on one side is one turn.
        (
            json!([{"role": "user", "content": "a"}, {"role": "user", "content": "b"}, {"role": "assistant", "content": "c"}, {"role": "assistant", "content": [{"type": "text", "text": "d"}]}]),
            json!([{"user": ["a", "b"]}, {"assistant": ["c", "d"]}]),
        ),
        // Role system in the middle of a conversation.
        (
            json!([{"role": "user", "content": "a"}, {"role": "system", "content": "now"}, {"role": "system", "content": [{"type": "text", "text": "then"}]}, {"role": "user", "content": "b"}]),
            json!([{"user": ["a"]}, {"system": ["now", "then"]}, {"user": ["b"]}]),
        ),
        // A beginning of the answer, to be gone on from.
        (
            json!([{"role": "user", "content": "a"}, {"role": "assistant", "content": "{"}]),
            json!([{"user": ["a"]}, {"assistant": ["{"]}]),
        ),
        (
            json!([{"role": "user", "content": "a"}, {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "hm", "signature": ""},
                {"type": "redacted_thinking", "data": "EmwKAhgB"},
                {"type": "text", "text": "look", "citations": []},
                {"type": "tool_use", "id": "c1", "name": "f", "input": {"b": 1, "a": [2]}},
                {"type": "thinking", "thinking": "so", "signature": "xyz"},
                {"type": "tool_use", "id": "c2", "name": "g", "cache_control": {"type": "ephemeral"}}
            ]}]),
            json!([{"user": ["a"]}, {"assistant": ["look"], "reasoning": "hm\nso", "calls": [["c1", "f", "{\"a\":[2],\"b\":1}"], ["c2", "g", "{}"]]}]),
        ),
        // An answer that cannot be read is none.
        (
            json!([{"role": "user", "content": "a"}, {"role": "assistant", "content": [{"type": "redacted_thinking", "data": "x"}]}, {"role": "user", "content": "b"}]),
            json!([{"user": ["a", "b"]}]),
        ),
    ] {
        assert_eq!(turns(messages.clone()), expected, "{messages}");
    }
}

#[test]
fn results_of_tools_are_messages_of_their_own_before_what_the_user_says() {
    let result = |more: Value| {
        let mut block = json!({"type": "tool_result", "tool_use_id": "c1"});
        block.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!([{"role": "user", "content": "x"}, used("c1", "f"), {"role": "user", "content": [block]}])
    };
    let image =
        json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}});
    for (more, parts) in [
        (json!({}), json!([])),
        (json!({"content": null}), json!([])),
        (json!({"content": ""}), json!([])),
        (json!({"content": "done"}), json!(["done"])),
        (json!({"content": "done", "is_error": false}), json!(["done"])),
        (json!({"content": "no such file", "is_error": true}), json!(["Error:", "no such file"])),
        (json!({"is_error": true}), json!(["Error:"])),
        (
            json!({"content": [{"type": "text", "text": "a"}, image, {"type": "text", "text": "b"}]}),
            json!(["a", ["messages[2].content[0].content[1].source.data", "image/png", "AAAA"], "b"]),
        ),
        (json!({"content": [{"type": "tool_reference", "tool_name": "mcp__a__b"}]}), json!(["mcp__a__b"])),
        (
            json!({"content": [{"type": "document", "title": "t", "source": {"type": "text", "media_type": "text/plain", "data": "d"}}]}),
            json!(["t", "d"]),
        ),
    ] {
        let messages = result(more);
        let told = turns(messages.clone());
        assert_eq!(told[2], json!({"tool": parts, "for": ["c1", "f"]}), "{messages}");
        assert_eq!(told.as_array().unwrap().len(), 3);
    }
    // Mixed, twice, one for a call that is not told any more.
    let mixed = json!([
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "f", "input": {}}, {"type": "tool_use", "id": "c2", "name": "g", "input": {}}]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "c2", "content": "two"},
            {"type": "text", "text": "by the way"},
            {"type": "tool_result", "tool_use_id": "c1", "content": "one"},
            {"type": "tool_result", "tool_use_id": "gone", "content": "three"},
            {"type": "text", "text": "go on"}
        ]}
    ]);
    assert_eq!(
        turns(mixed),
        json!([
            {"user": ["x"]},
            {"assistant": [], "calls": [["c1", "f", "{}"], ["c2", "g", "{}"]]},
            {"tool": ["two"], "for": ["c2", "g"]},
            {"tool": ["one"], "for": ["c1", "f"]},
            {"tool": ["three"], "for": ["gone", ""]},
            {"user": ["by the way", "go on"]}
        ])
    );
}

#[test]
fn what_is_shown_is_carried_as_text_and_pictures() {
    let place = "messages[2].content[0].source";
    for (block, parts) in [
        (
            json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA\nA A="}}),
            json!([[format!("{place}.data"), "image/png", "AAAA="]]),
        ),
        (
            json!({"type": "image", "source": {"type": "url", "url": "https://h/x.png"}, "transformations": {}}),
            json!([[format!("{place}.url"), "https://h/x.png"]]),
        ),
        (
            json!({"type": "image", "source": {"type": "url", "url": "data:image/gif;base64,QQ=="}}),
            json!([[format!("{place}.url"), "image/gif", "QQ=="]]),
        ),
        (
            json!({"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "d"}, "title": "t", "context": "c", "citations": {"enabled": false}}),
            json!(["t", "c", "d"]),
        ),
        (
            json!({"type": "document", "title": null, "source": {"type": "content", "content": "d"}}),
            json!(["d"]),
        ),
        (
            json!({"type": "document", "source": {"type": "content", "content": [{"type": "text", "text": "a"}, {"type": "image", "source": {"type": "url", "url": "http://h/i"}}]}}),
            json!(["a", [format!("{place}.content[1].source.url"), "http://h/i"]]),
        ),
        (
            json!({"type": "search_result", "source": "https://s", "title": "t", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}),
            json!(["t", "https://s", "a", "b"]),
        ),
    ] {
        assert_eq!(turns(shown(block.clone()))[2]["user"], parts, "{block}");
    }
}

#[test]
fn every_option_has_its_place() {
    let schema = || json!({"type": "object", "properties": {}});
    for (members, expected) in [
        (json!({}), "max=9"),
        (json!({"max_tokens": 0}), "max=1"),
        (json!({"temperature": 0, "top_p": 1, "top_k": 40}), "max=9 t=0 p=1 k=40"),
        (json!({"temperature": 1.5, "top_k": 0}), "max=9 t=1.5"),
        (json!({"temperature": null, "top_p": null, "top_k": -1, "stop_sequences": null}), "max=9"),
        (json!({"stop_sequences": ["a", "\n"]}), "max=9 stop=a|\n"),
        (json!({"thinking": {"type": "disabled"}}), "max=9 effort=None"),
        (json!({"thinking": {"type": "adaptive", "display": "omitted"}}), "max=9"),
        (json!({"thinking": null, "output_config": null}), "max=9"),
        (json!({"thinking": {"type": "enabled"}}), "max=9 effort=Medium"),
        (json!({"thinking": {"type": "enabled", "budget_tokens": 1024}}), "max=9 effort=Low"),
        (json!({"thinking": {"type": "enabled", "budget_tokens": 10000}}), "max=9 effort=Medium"),
        (json!({"thinking": {"type": "enabled", "budget_tokens": 31999}}), "max=9 effort=High"),
        (
            json!({"thinking": {"type": "adaptive"}, "output_config": {"effort": "medium"}}),
            "max=9 effort=Medium",
        ),
        (json!({"output_config": {"effort": "low"}}), "max=9 effort=Low"),
        (json!({"output_config": {"effort": "xhigh"}}), "max=9 effort=Max"),
        (json!({"output_config": {"effort": "max", "task_budget": {}}}), "max=9 effort=Max"),
        (json!({"thinking": {"type": "disabled"}, "output_config": {"effort": "high"}}), "max=9 effort=None"),
        (
            json!({"thinking": {"type": "enabled", "budget_tokens": 1024}, "output_config": {"effort": "high"}}),
            "max=9 effort=High",
        ),
        (
            json!({"output_config": {"format": {"type": "json_schema", "schema": schema()}}}),
            r#"max=9 answer={"properties":{},"type":"object"}"#,
        ),
        (json!({"output_format": {"type": "json_schema", "schema": {}, "name": "n"}}), "max=9 answer={}"),
        (json!({"output_config": {"format": null, "effort": null}, "output_format": null}), "max=9"),
    ] {
        let Conversation { options, effort, format, .. } = asked(&members).conversation;
        let mut told = format!("max={}", options.max_tokens.unwrap());
        options.temperature.iter().for_each(|it| write!(told, " t={it}").unwrap());
        options.top_p.iter().for_each(|it| write!(told, " p={it}").unwrap());
        options.top_k.iter().for_each(|it| write!(told, " k={it}").unwrap());
        if !options.stop.is_empty() {
            write!(told, " stop={}", options.stop.join("|")).unwrap();
        }
        effort.iter().for_each(|it| write!(told, " effort={it:?}").unwrap());
        if let Format::JsonSchema { name, schema, .. } = &format {
            write!(told, " {name}={}", schema.get()).unwrap();
        }
        assert_eq!(told, expected, "{members}");
    }
}

#[test]
fn tools_are_those_of_the_client_and_their_schemas_as_it_wrote_them() {
    let tool = |name: &str| json!({"name": name, "description": "d", "input_schema": {"type": "object"}});
    for (choice, expected, single) in [
        (Value::Null, ToolChoice::Auto, false),
        (json!({"type": "auto"}), ToolChoice::Auto, false),
        (json!({"type": "auto", "disable_parallel_tool_use": true}), ToolChoice::Auto, true),
        (json!({"type": "any", "disable_parallel_tool_use": false}), ToolChoice::Required, false),
        (json!({"type": "none"}), ToolChoice::None, false),
        (json!({"type": "tool", "name": "g"}), ToolChoice::Function("g".to_owned()), false),
    ] {
        let asked = asked(&json!({"tools": [tool("f"), tool("g")], "tool_choice": choice}));
        assert_eq!(asked.conversation.tool_choice, expected, "{choice}");
        assert_eq!((asked.conversation.single_tool_call, asked.conversation.tools.len()), (single, 2));
    }
    let body = br#"{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"x"}],"tools":[
        {"type":"custom","name":"f","input_schema":{ "z":1, "a":2 },"strict":true,"eager_input_streaming":true},
        {"type":null,"name":"g","input_schema":{},"description":null,"defer_loading":true,"input_examples":[{}],"cache_control":null}]}"#;
    let tools = read(body).unwrap().conversation.tools;
    assert_eq!(tools[0].parameters.as_ref().unwrap().get(), r#"{ "z":1, "a":2 }"#);
    assert_eq!((tools[0].strict, tools[1].strict), (Some(true), None));
    assert_eq!((&*tools[1].name, &*tools[1].description), ("g", ""));
}

// req: RUN-7
#[test]
fn what_concerns_another_service_is_skipped_and_pairs_are_passed_on_as_pairs() {
    let user = r#"{"device_id":"d","account_uuid":"","session_id":"s"}"#;
    let asked = asked(&json!({
        "stream": true, "metadata": {"user_id": user}, "service_tier": 7, "cache_control": {"type": "ephemeral"},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}, "container": "container_1",
        "mcp_servers": [], "speed": "fast", "diagnostics": {"x": 1}, "inference_geo": "eu", "whatever": [[{}]], "betas": ["x"],
    }));
    assert!(asked.stream);
    assert_eq!(asked.model, "m");
    assert_eq!(asked.conversation.metadata, BTreeMap::from([("user_id".to_owned(), user.to_owned())]));
    for odd in
        [json!(5), json!({"user_id": null}), json!(["a"]), json!({"": "x"}), json!({"a": "x".repeat(5000)})]
    {
        let read = read(&with(&json!({"metadata": odd, "container": {"id": "c", "skills": []}}))).unwrap();
        assert!(read.conversation.metadata.is_empty(), "{odd}");
    }
    assert!(!read(&with(&json!({"stream": null}))).unwrap().stream);
}
