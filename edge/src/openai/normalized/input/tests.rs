use serde_json::{Value, json};

use super::*;
use crate::reply::Fault;

/// A request with these members beside the model and one message.
fn with(members: &Value) -> Vec<u8> {
    let mut body = json!({"model": "m", "messages": [{"role": "user", "content": "hi"}]});
    let more = members.as_object().unwrap().clone();
    body.as_object_mut().unwrap().extend(more);
    body.to_string().into_bytes()
}

fn asked(members: &Value) -> Asked {
    read(&with(members)).unwrap()
}

/// The input as it goes to the Node.
fn sent(members: &Value) -> Value {
    serde_json::from_slice(&asked(members).input.to_json().unwrap()).unwrap()
}

fn turns(messages: &Value) -> Value {
    sent(&json!({ "messages": messages }))["messages"].take()
}

#[test]
fn messages_keep_role_text_images_calls_and_whom_an_answer_is_for() {
    let call = |id: &str, name: &str, arguments: &str| json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}});
    let png = "data:image/png;base64,AAAA";
    for (messages, expected) in [
        (
            json!([{"role": "developer", "content": "a"}, {"role": "system", "content": "b"}, {"role": "user", "content": "c\u{e9}"}]),
            json!([{"role": "system", "text": "a"}, {"role": "system", "text": "b"}, {"role": "user", "text": "c\u{e9}"}]),
        ),
        (
            json!([{"role": "user", "content": [
                {"type": "text", "text": "one"}, {"type": "image_url", "image_url": {"url": png, "detail": "low"}},
                {"type": "text", "text": "two"}, {"type": "image_url", "image_url": "DATA:;base64,QQ=="}
            ]}]),
            json!([{"role": "user", "text": "one\ntwo", "images": ["AAAA", "QQ=="]}]),
        ),
        (
            json!([
                {"role": "assistant", "content": null, "reasoning_content": "hm", "tool_calls": [call("c1", "f", "{\"a\":1}"), call("c2", "g", "")]},
                {"role": "tool", "tool_call_id": "c2", "content": "two"},
                {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "one"}]},
                {"role": "tool", "tool_call_id": "gone", "name": "h", "content": "three"}
            ]),
            json!([
                {"role": "assistant", "text": "", "reasoning": "hm", "tool_calls": [call("c1", "f", "{\"a\":1}"), call("c2", "g", "{}")]},
                {"role": "tool", "text": "two", "tool_call_id": "c2", "tool_name": "g"},
                {"role": "tool", "text": "one", "tool_call_id": "c1", "tool_name": "f"},
                {"role": "tool", "text": "three", "tool_call_id": "gone", "tool_name": "h"}
            ]),
        ),
        (
            json!([
                {"role": "user", "content": "x"},
                {"role": "assistant", "reasoning": "r", "function_call": {"name": "f", "arguments": {"b": 2}}},
                {"role": "function", "name": "f", "content": "done"},
                {"role": "assistant", "content": null, "refusal": "no"}
            ]),
            json!([
                {"role": "user", "text": "x"},
                {"role": "assistant", "text": "", "reasoning": "r", "tool_calls": [call("call_1", "f", "{\"b\":2}")]},
                {"role": "tool", "text": "done", "tool_call_id": "call_1", "tool_name": "f"},
                {"role": "assistant", "text": "no"}
            ]),
        ),
    ] {
        assert_eq!(turns(&messages), expected, "{messages}");
    }
}

#[test]
fn every_option_has_its_place() {
    for (members, pointer, expected) in [
        (json!({}), "/options", json!({})),
        (json!({"max_tokens": 5}), "/options/max_tokens", json!(5)),
        (json!({"max_tokens": 5, "max_completion_tokens": 7}), "/options/max_tokens", json!(7)),
        (json!({"max_tokens": null, "stop": null, "seed": null}), "/options", json!({})),
        (json!({"temperature": 0.5, "top_p": 1}), "/options", json!({"temperature": 0.5, "top_p": 1.0})),
        (
            json!({"presence_penalty": -2, "frequency_penalty": 2}),
            "/options",
            json!({"presence_penalty": -2.0, "frequency_penalty": 2.0}),
        ),
        (
            json!({"seed": -3, "top_k": 40, "min_p": 0.1}),
            "/options",
            json!({"seed": -3, "top_k": 40, "min_p": 0.1}),
        ),
        (json!({"top_k": -1}), "/options", json!({})),
        (json!({"stop": "a"}), "/options/stop", json!(["a"])),
        (json!({"stop": ["a", "\n"]}), "/options/stop", json!(["a", "\n"])),
        (json!({"response_format": {"type": "text"}}), "/format", json!("text")),
        (json!({"response_format": {"type": "json_object"}}), "/format", json!("json_object")),
        (
            json!({"response_format": {"type": "json_schema", "json_schema": {"name": "n", "strict": true, "schema": {"b": 1, "a": 2}}}}),
            "/format",
            json!({"json_schema": {"b": 1, "a": 2}}),
        ),
        (
            json!({"response_format": {"type": "json_schema", "json_schema": {"name": "n"}}}),
            "/format",
            json!("json_object"),
        ),
        (json!({"reasoning_effort": "none"}), "/effort", json!("none")),
        (json!({"reasoning_effort": "minimal"}), "/effort", json!("minimal")),
        (json!({"reasoning_effort": "xhigh"}), "/effort", json!("max")),
        (
            json!({"reasoning_effort": null, "reasoning": {"effort": "high", "max_tokens": 4}}),
            "/effort",
            json!("high"),
        ),
        (json!({"reasoning_effort": "low", "think": true}), "/effort", json!("low")),
        (json!({"reasoning": {"enabled": false}}), "/effort", json!("none")),
        (json!({"think": false}), "/effort", json!("none")),
        (json!({"think": true}), "/effort", json!("medium")),
        (json!({"think": "max"}), "/effort", json!("max")),
        (json!({"chat_template_kwargs": {"enable_thinking": false, "other": [1]}}), "/effort", json!("none")),
        (json!({"chat_template_kwargs": {"thinking": true}}), "/effort", json!("medium")),
        (json!({"parallel_tool_calls": false}), "/single_tool_call", json!(true)),
        (json!({"parallel_tool_calls": true}), "/single_tool_call", json!(false)),
        (json!({"n": 1, "logprobs": false, "top_logprobs": 0, "logit_bias": { }}), "/options", json!({})),
    ] {
        let sent = sent(&members);
        assert_eq!(sent.pointer(pointer), Some(&expected), "{members} gives {sent}");
    }
}

#[test]
fn tools_and_choices_in_every_form() {
    let tool = |name: &str| json!({"type": "function", "function": {"name": name, "description": "d", "strict": true, "parameters": {"z": 1, "a": 2}}});
    let tools = json!([tool("f"), tool("g")]);
    for (choice, expected, names) in [
        (Value::Null, json!("auto"), vec!["f", "g"]),
        (json!("auto"), json!("auto"), vec!["f", "g"]),
        (json!("none"), json!("none"), vec!["f", "g"]),
        (json!("required"), json!("required"), vec!["f", "g"]),
        (json!({"type": "function", "function": {"name": "g"}}), json!({"function": "g"}), vec!["f", "g"]),
        (
            json!({"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [{"type": "function", "function": {"name": "g"}}]}}),
            json!("required"),
            vec!["g"],
        ),
    ] {
        let sent = sent(&json!({"tools": tools, "tool_choice": choice}));
        assert_eq!(sent["tool_choice"], expected, "{choice}");
        let found: Vec<&str> =
            sent["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
        assert_eq!(found, names, "{choice}");
    }
    // The schema is as the client wrote it.
    let body = br#"{"model":"m","messages":[{"role":"user","content":"x"}],"tools":[{"function":{"name":"f","parameters":{ "z":1, "a":2 }}}]}"#;
    let asked = read(body).unwrap();
    assert_eq!(asked.input.tools[0].parameters.as_ref().unwrap().get(), r#"{ "z":1, "a":2 }"#);
    assert!(!asked.legacy_functions);
}

#[test]
fn functions_of_the_earlier_form_are_tools_of_which_one_is_called() {
    let functions = json!([{"name": "f", "parameters": {}}]);
    for (choice, expected) in [
        (Value::Null, json!("auto")),
        (json!("none"), json!("none")),
        (json!({"name": "f"}), json!({"function": "f"})),
    ] {
        let members = json!({"functions": functions, "function_call": choice});
        let (asked, sent) = (asked(&members), sent(&members));
        assert!(asked.legacy_functions && asked.input.single_tool_call);
        assert_eq!(sent["tool_choice"], expected);
        assert_eq!(sent["tools"], json!([{"name": "f", "parameters": {}}]));
    }
}

// req: RUN-7
#[test]
fn what_concerns_another_service_is_skipped_and_pairs_are_passed_on_as_pairs() {
    let members = json!({
        "store": true, "user": 5, "safety_identifier": [], "prompt_cache_key": {}, "prompt_cache_retention": 1,
        "prompt_cache_options": 1, "service_tier": 7, "verbosity": 3, "prediction": "x", "modalities": 1, "audio": 2,
        "web_search_options": 1, "moderation": 1, "whatever": {"deep": [1]}, "stream": true,
        "stream_options": {"include_usage": true, "include_obfuscation": false},
        "metadata": {"adapter": "other", "target": "other", "working_dir": "/", "session_id": "s"},
    });
    let asked = asked(&members);
    assert!(asked.include_usage);
    assert_eq!(asked.metadata["adapter"], "other");
    assert_eq!(asked.metadata.len(), 4);
    for odd in [json!(5), json!({"a": 1}), json!(["a"]), json!({"": "x"}), json!({"a": "x".repeat(5000)})] {
        assert!(read(&with(&json!({"metadata": odd}))).unwrap().metadata.is_empty(), "{odd}");
    }
}

/// Each request is refused for this member, in such words.
fn refused(table: Vec<(Value, &str, &str)>) {
    for (members, param, words) in table {
        let error = read(&with(&members)).unwrap_err();
        assert_eq!(error.param, param, "{members}: {error:?}");
        assert!(error.detail.contains(words), "{members}: {error:?}");
        let fault = Fault::from(error);
        assert_eq!((fault.status(), fault.param(crate::surface::Surface::Chat)), (400, Some(param)));
    }
}

#[test]
fn what_is_wrong_with_a_message_is_told_by_its_path() {
    let part = |part: Value| json!({"messages": [{"role": "user", "content": "a"}, {"role": "user", "content": [part]}]});
    let said = |message: Value| json!({ "messages": [message] });
    let called = |call: Value| json!({"messages": [{"role": "assistant", "tool_calls": [call]}]});
    refused(vec![
        (json!({"messages": []}), "messages", "at least one"),
        (json!({"messages": null}), "messages", "at least one"),
        (json!({"messages": "x"}), "messages", "expected a sequence"),
        (json!({"messages": [5]}), "messages[0]", "expected struct"),
        (json!({"messages": [{"content": "x"}]}), "messages[0]", "missing field `role`"),
        (said(json!({"role": "wizard", "content": "x"})), "messages[0].role", "expected system"),
        (said(json!({"role": 5, "content": "x"})), "messages[0].role", "expected"),
        (said(json!({"role": "user"})), "messages[0].content", "expected a string"),
        (
            said(json!({"role": "user", "content": 5})),
            "messages[0].content",
            "expected a string, null or an array",
        ),
        (said(json!({"role": "tool", "content": "x"})), "messages[0].tool_call_id", "missing"),
        (part(json!("x")), "messages[1].content[0]", "expected struct"),
        (part(json!({"type": "text"})), "messages[1].content[0].text", "missing"),
        (part(json!({"type": "text", "text": 5})), "messages[1].content[0].text", "expected"),
        (
            part(json!({"type": "input_audio", "input_audio": {}})),
            "messages[1].content[0].type",
            "not `input_audio`",
        ),
        (part(json!({"type": "file", "file": {}})), "messages[1].content[0].type", "not `file`"),
        (part(json!({"type": "image_url"})), "messages[1].content[0].image_url", "missing"),
        (
            part(json!({"type": "image_url", "image_url": {"url": "https://h/x.png"}})),
            "messages[1].content[0].image_url.url",
            "not fetched",
        ),
        (
            part(json!({"type": "image_url", "image_url": "http://h/x.png"})),
            "messages[1].content[0].image_url",
            "not fetched",
        ),
        (
            part(json!({"type": "image_url", "image_url": {"url": "data:image/png,AAAA"}})),
            "messages[1].content[0].image_url.url",
            "base64",
        ),
        (
            part(json!({"type": "image_url", "image_url": {"url": "data:text/plain;base64,AAAA"}})),
            "messages[1].content[0].image_url.url",
            "image/",
        ),
        (
            part(json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,"}})),
            "messages[1].content[0].image_url.url",
            "behind it",
        ),
        (called(json!({"id": "c", "type": "custom"})), "messages[0].tool_calls[0].type", "function"),
        (called(json!({"id": "c"})), "messages[0].tool_calls[0].function", "missing"),
        (
            called(json!({"id": "c", "function": {"name": "f", "arguments": "[1]"}})),
            "messages[0].tool_calls[0].function.arguments",
            "JSON object",
        ),
        (
            called(json!({"id": "c", "function": {"name": "f", "arguments": "{\"a\":"}})),
            "messages[0].tool_calls[0].function.arguments",
            "JSON object",
        ),
        (
            called(json!({"id": "c", "function": {"name": "f", "arguments": 5}})),
            "messages[0].tool_calls[0].function.arguments",
            "JSON object",
        ),
    ]);
    let nothing = read(b"{}").unwrap_err();
    assert_eq!(nothing.param, "messages");
    let twice = Fault::from(read(br#"{"messages":[],"messages":[]}"#).unwrap_err());
    assert_eq!((twice.status(), twice.param(crate::surface::Surface::Chat)), (400, None));
}

#[test]
fn what_is_wrong_with_an_option_is_told_by_its_path() {
    refused(vec![
        (json!({"n": 2}), "n", "one answer"),
        (json!({"logprobs": true}), "logprobs", "log probabilities"),
        (json!({"top_logprobs": 3}), "top_logprobs", "log probabilities"),
        (json!({"logit_bias": {"50256": -100}}), "logit_bias", "biases"),
        (json!({"temperature": 2.5}), "temperature", "from 0 to 2"),
        (json!({"temperature": "hot"}), "temperature", "expected f64"),
        (json!({"top_p": -0.1}), "top_p", "from 0 to 1"),
        (json!({"presence_penalty": 3}), "presence_penalty", "from -2 to 2"),
        (json!({"max_tokens": -1}), "max_tokens", "expected u64"),
        (json!({"max_completion_tokens": 1.5}), "max_completion_tokens", "expected u64"),
        (json!({"stop": [1]}), "stop[0]", "expected"),
        (json!({"stop": {}}), "stop", "expected"),
        (json!({"reasoning_effort": "huge"}), "reasoning_effort", "expected none"),
        (json!({"reasoning": {"effort": 5}}), "reasoning.effort", "expected"),
        (json!({"think": 5}), "think", "a boolean or a word"),
        (json!({"response_format": {"type": "xml"}}), "response_format.type", "json_schema"),
        (json!({"response_format": {"type": "json_schema"}}), "response_format.json_schema", "missing"),
        (
            json!({"response_format": {"type": "json_schema", "json_schema": {"schema": []}}}),
            "response_format.json_schema.schema",
            "object",
        ),
        (json!({"tools": [{"type": "custom", "custom": {"name": "x"}}]}), "tools[0].type", "`custom`"),
        (json!({"tools": [{"type": "function"}]}), "tools[0].function", "missing"),
    ]);
}

#[test]
fn what_is_wrong_with_a_tool_is_told_by_its_path() {
    refused(vec![
        (
            json!({"tools": [{"type": "function", "function": {}}]}),
            "tools[0].function",
            "missing field `name`",
        ),
        (
            json!({"tools": [{"type": "function", "function": {"name": ""}}]}),
            "tools[0].function.name",
            "empty",
        ),
        (
            json!({"tools": [{"type": "function", "function": {"name": "f", "parameters": []}}]}),
            "tools[0].function.parameters",
            "object",
        ),
        (json!({"tool_choice": "required"}), "tool_choice", "there is none"),
        (json!({"tool_choice": "perhaps"}), "tool_choice", "required"),
        (
            json!({"tool_choice": {"type": "function", "function": {"name": "f"}}}),
            "tool_choice.function.name",
            "none of `tools`",
        ),
        (json!({"tool_choice": {"type": "mcp"}}), "tool_choice.type", "`mcp`"),
        (
            json!({"functions": [{"name": "f"}], "function_call": {"name": "g"}}),
            "function_call.name",
            "none of `functions`",
        ),
        (json!({"parallel_tool_calls": "no"}), "parallel_tool_calls", "a boolean"),
        (json!({"stream_options": {"include_usage": 1}}), "stream_options.include_usage", "a boolean"),
    ]);
}

// req: CFG-5
#[test]
fn the_models_limits_are_filled_in_and_raised() {
    let policy = |default, least| GenerationPolicy {
        default_max_tokens: default,
        min_max_tokens: least,
        default_thinking_token_budget: Some(9),
    };
    for (given, policy, expected) in [
        (None, policy(None, None), None),
        (None, policy(Some(100), None), Some(100)),
        (None, policy(Some(100), Some(300)), Some(300)),
        (None, policy(None, Some(300)), None),
        (Some(7), policy(Some(100), None), Some(7)),
        (Some(7), policy(Some(100), Some(20)), Some(20)),
        (Some(70), policy(Some(100), Some(20)), Some(70)),
    ] {
        let mut options = Options { max_tokens: given, ..Options::default() };
        apply(&policy, &mut options);
        assert_eq!(options.max_tokens, expected, "{given:?} with {policy:?}");
    }
}
