use proto::run_input::{Effort, ToolChoice};

use super::*;
use crate::openai::responses::{CallForm, Called};

#[test]
fn items_become_messages() {
    let user = |content: Value| json!([{"type": "message", "role": "user", "content": content}]);
    let png = "data:image/png;base64,AAAA";
    let param = "input[0].content[0].image_url";
    for (input, expected) in [
        (json!("h\u{e9}"), json!([{"role": "user", "parts": ["h\u{e9}"]}])),
        (json!([{"role": "user", "content": "a"}]), json!([{"role": "user", "parts": ["a"]}])),
        (
            json!([{"role": "developer", "content": "a"}, {"role": "system", "content": "b", "type": "message"}]),
            json!([{"role": "system", "parts": ["a"]}, {"role": "system", "parts": ["b"]}]),
        ),
        (user(json!([])), json!([{"role": "user"}])),
        (
            user(json!([{"type": "input_text", "text": "a"}, {"type": "input_text", "text": ""}])),
            json!([{"role": "user", "parts": ["a", ""]}]),
        ),
        (
            user(json!([{"type": "input_image", "image_url": png}])),
            json!([{"role": "user", "parts": [["image/png", "AAAA", null, param]]}]),
        ),
        (
            user(
                json!([{"type": "input_image", "image_url": "DATA:image/JPEG;Base64,AA\nAA", "detail": "low"}]),
            ),
            json!([{"role": "user", "parts": [["image/jpeg", "AAAA", "low", param]]}]),
        ),
        (
            user(
                json!([{"type": "input_image", "image_url": "https://h/x.png", "detail": "high", "file_id": null}]),
            ),
            json!([{"role": "user", "parts": [["https://h/x.png", "high", param]]}]),
        ),
        (
            user(
                json!([{"type": "input_file", "filename": "a.txt", "file_data": "data:text/plain;charset=utf-8;base64,aMOp"}]),
            ),
            json!([{"role": "user", "parts": ["a.txt:\nh\u{e9}"]}]),
        ),
        (
            user(json!([{"type": "input_file", "file_data": "data:application/json;base64,e30="}])),
            json!([{"role": "user", "parts": ["{}"]}]),
        ),
    ] {
        assert_eq!(messages(&input), expected, "{input}");
    }
    let both = asked(&json!({"instructions": "be brief"}));
    assert_eq!(
        told(&both),
        json!([{"role": "system", "parts": ["be brief"]}, {"role": "user", "parts": ["hi"]}])
    );
}

#[test]
fn what_the_assistant_said_between_two_others_is_one_message() {
    let png = "data:image/png;base64,AAAA";
    let call = |id: &str, name: &str, arguments: &str| json!({"type": "function_call", "call_id": id, "name": name, "arguments": arguments});
    let output =
        |id: &str, output: Value| json!({"type": "function_call_output", "call_id": id, "output": output});
    for (input, expected) in [
        (
            json!([
                {"type": "message", "role": "assistant", "id": "msg_1", "status": "completed", "phase": "commentary", "content": [
                    {"type": "output_text", "text": "a", "annotations": [], "logprobs": []}, {"type": "refusal", "refusal": "no"}
                ]},
            ]),
            json!([{"role": "assistant", "parts": ["a", "no"]}]),
        ),
        (
            json!([
                {"role": "user", "content": "q"},
                {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "short"}], "content": [{"type": "reasoning_text", "text": "hm"}], "encrypted_content": null},
                {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "look"}]},
                call("c1", "f", "{\"a\":1}"), call("c2", "g", ""),
                output("c2", json!("two")), output("c1", json!([{"type": "input_text", "text": "one"}, {"type": "input_image", "image_url": png}])),
                {"type": "reasoning", "summary": [{"text": "s1", "type": "summary_text"}, {"text": "s2", "type": "summary_text"}]},
                {"type": "message", "role": "assistant", "content": "done"},
            ]),
            json!([
                {"role": "user", "parts": ["q"]},
                {"role": "assistant", "parts": ["look"], "reasoning": "hm", "calls": [["c1", "f", "{\"a\":1}"], ["c2", "g", "{}"]]},
                {"role": "tool", "parts": ["two"], "for": ["c2", "g"]},
                {"role": "tool", "parts": ["one", ["image/png", "AAAA", null, "input[6].output[1].image_url"]], "for": ["c1", "f"]},
                {"role": "assistant", "parts": ["done"], "reasoning": "s1\ns2"},
            ]),
        ),
        (
            // Text behind a call, as answers may have it: the result still stands behind the message with the call.
            json!([call("c1", "f", "{}"), {"role": "assistant", "content": "x"}, {"type": "web_search_call", "id": "ws_1", "status": "completed"}, output("c1", json!("r"))]),
            json!([
                {"role": "assistant", "parts": ["x"], "calls": [["c1", "f", "{}"]]},
                {"role": "tool", "parts": ["r"], "for": ["c1", "f"]},
            ]),
        ),
        (
            json!([output("gone", json!("r")), {"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": "gAAA"}]),
            json!([{"role": "tool", "parts": ["r"], "for": ["gone", ""]}]),
        ),
        (
            json!([{"type": "function_call", "call_id": "c", "name": "f", "arguments": {"b": 2}, "id": "fc_1", "status": "completed"}]),
            json!([{"role": "assistant", "calls": [["c", "f", "{\"b\":2}"]]}]),
        ),
        (
            json!([
                {"type": "custom_tool_call", "call_id": "c", "name": "apply_patch", "input": "*** \"x\"\n"},
                {"type": "custom_tool_call_output", "call_id": "c", "output": "ok"},
            ]),
            json!([
                {"role": "assistant", "calls": [["c", "apply_patch", "{\"input\":\"*** \\\"x\\\"\\n\"}"]]},
                {"role": "tool", "parts": ["ok"], "for": ["c", "apply_patch"]},
            ]),
        ),
    ] {
        assert_eq!(messages(&input), expected, "{input}");
    }
}

#[test]
fn options_have_their_place_and_are_repeated() {
    let plain = asked(
        &json!({"temperature": null, "instructions": null, "tools": null, "reasoning": null, "text": null}),
    );
    assert_eq!(plain.conversation.options, Options::default());
    assert!(plain.conversation.effort.is_none() && matches!(plain.conversation.format, Format::Text));
    assert_eq!(echoed(&plain), echoed(&asked(&json!({}))));
    let schema = json!({"type": "json_schema", "name": "n", "strict": true, "schema": {"b": 1, "a": 2}});
    for (members, pointer, expected) in [
        (json!({"max_output_tokens": 5}), "/max_output_tokens", json!(5)),
        (json!({"max_tool_calls": 3}), "/max_tool_calls", json!(3)),
        (json!({"temperature": 0.5}), "/temperature", json!(0.5)),
        (json!({"temperature": 2}), "/temperature", json!(2.0)),
        (json!({"top_p": 0}), "/top_p", json!(0.0)),
        (json!({"presence_penalty": -2}), "/presence_penalty", json!(-2.0)),
        (json!({"frequency_penalty": 1.5}), "/frequency_penalty", json!(1.5)),
        (json!({"parallel_tool_calls": false}), "/parallel_tool_calls", json!(false)),
        (json!({"instructions": "a\n\"b\""}), "/instructions", json!("a\n\"b\"")),
        (json!({"metadata": {"k": "v"}}), "/metadata", json!({"k": "v"})),
        (json!({"metadata": [1]}), "/metadata", json!({})),
        (json!({"user": "u"}), "/user", json!("u")),
        (json!({"user": 5}), "/user", json!(null)),
        (json!({"safety_identifier": "s"}), "/safety_identifier", json!("s")),
        (json!({"prompt_cache_key": "k"}), "/prompt_cache_key", json!("k")),
        (
            json!({"reasoning": {"effort": "xhigh", "summary": "auto"}}),
            "/reasoning",
            json!({"effort": "xhigh", "summary": "auto"}),
        ),
        (json!({"reasoning": {}}), "/reasoning", json!({"effort": null, "summary": null})),
        (
            json!({"text": {"verbosity": "low"}}),
            "/text",
            json!({"format": {"type": "text"}, "verbosity": "low"}),
        ),
        (json!({"text": {"format": schema}}), "/text", json!({ "format": schema })),
        (json!({"store": true}), "/store", json!(false)),
        (json!({"truncation": "auto"}), "/truncation", json!("disabled")),
        (json!({"background": false}), "/background", json!(false)),
        (
            json!({"previous_response_id": null, "conversation": null, "prompt": null}),
            "/previous_response_id",
            json!(null),
        ),
        (json!({"include": ["reasoning.encrypted_content"], "top_logprobs": 0}), "/top_logprobs", json!(0)),
        (
            json!({"client_metadata": {"x": [1]}, "service_tier": 7, "context_management": "x", "moderation": [], "whatever": {"deep": [1]},
                   "stream": true, "stream_options": {"include_obfuscation": false}, "prompt_cache_retention": "24h"}),
            "/service_tier",
            json!("default"),
        ),
    ] {
        let echo = echoed(&asked(&members));
        assert_eq!(echo.pointer(pointer), Some(&expected), "{members} gives {echo}");
    }
}

#[test]
fn options_reach_the_model() {
    let all = asked(&json!({
        "max_output_tokens": 5, "temperature": 0.5, "top_p": 0.25, "presence_penalty": 1, "frequency_penalty": -1,
        "parallel_tool_calls": false, "metadata": {"k": "v"}
    }))
    .conversation;
    let expected = Options {
        max_tokens: Some(5),
        temperature: Some(0.5),
        top_p: Some(0.25),
        presence_penalty: Some(1.0),
        frequency_penalty: Some(-1.0),
        ..Options::default()
    };
    assert_eq!((all.options, all.single_tool_call, &*all.metadata["k"]), (expected, true, "v"));
    for (word, effort) in
        [("none", Effort::None), ("minimal", Effort::Minimal), ("high", Effort::High), ("xhigh", Effort::Max)]
    {
        assert_eq!(asked(&json!({"reasoning": {"effort": word}})).conversation.effort, Some(effort));
    }
    let format = |format: Value| asked(&json!({"text": {"format": format}})).conversation.format;
    assert!(matches!(format(json!({"type": "text"})), Format::Text));
    assert!(matches!(format(json!({"type": "json_object"})), Format::JsonObject));
    let body = br#"{"model":"m","input":"x","text":{"format":{"type":"json_schema","strict":true,"schema":{ "z":1, "a":2 }}}}"#;
    let Format::JsonSchema { name, schema, strict } = read(body).unwrap().conversation.format else {
        panic!("a schema was asked for")
    };
    assert_eq!((&*name, schema.get(), strict), ("answer", r#"{ "z":1, "a":2 }"#, Some(true)));
}

#[test]
fn tools_of_every_form_become_functions_that_are_found_again() {
    let tools = json!([
        {"type": "function", "name": "f", "description": "d", "parameters": {"z": 1, "a": 2}, "strict": false, "defer_loading": true},
        {"type": "function", "name": "bare"},
        {"type": "namespace", "name": "mcp__docs__", "description": "Docs.", "tools": [
            {"type": "function", "name": "find", "description": "Finds.", "parameters": {}},
            {"type": "function", "name": "get", "parameters": null, "strict": null},
        ]},
        {"type": "custom", "name": "apply_patch", "description": "Patches.", "format": {"type": "grammar", "syntax": "lark", "definition": "start: x"}},
        {"type": "custom", "name": "note", "format": {"type": "text"}},
        {"type": "web_search", "external_web_access": false},
        {"type": "tool_search", "execution": "client"},
        {"type": "image_generation", "output_format": "png"},
    ]);
    let asked = asked(&json!({ "tools": tools }));
    let list: Vec<(&str, &str, Option<bool>)> =
        asked.conversation.tools.iter().map(|tool| (&*tool.name, &*tool.description, tool.strict)).collect();
    assert_eq!(
        list,
        [
            ("f", "d", Some(false)),
            ("bare", "", None),
            ("mcp__docs__find", "[mcp__docs__: Docs.]\nFinds.", None),
            ("mcp__docs__get", "", None),
            ("apply_patch", "Patches.\n\nThe text must be of this lark grammar:\nstart: x", None),
            ("note", "", None),
        ]
    );
    let parameters: Vec<Option<Value>> = asked
        .conversation
        .tools
        .iter()
        .map(|tool| tool.parameters.as_ref().map(|raw| serde_json::from_str(raw.get()).unwrap()))
        .collect();
    assert_eq!(parameters[..4], [Some(json!({"z": 1, "a": 2})), None, Some(json!({})), None]);
    let input = parameters[4].as_ref().unwrap();
    assert_eq!((&input["required"], &parameters[4]), (&json!([Names::INPUT]), &parameters[5]));
    for (joined, form, namespace, name) in [
        ("f", CallForm::Function, None, "f"),
        ("mcp__docs__get", CallForm::Function, Some("mcp__docs__"), "get"),
        ("apply_patch", CallForm::Custom, None, "apply_patch"),
    ] {
        let called = Called { form, namespace: namespace.map(str::to_owned), name: name.to_owned() };
        assert_eq!(asked.names.of(joined), called);
    }
    // Functions are repeated with every member that schemas want, others as they were sent.
    let echo = echoed(&asked);
    assert_eq!(echo["tools"].as_array().unwrap().len(), 8);
    assert_eq!(
        echo["tools"][1],
        json!({"type": "function", "name": "bare", "description": null, "parameters": null, "strict": null})
    );
    assert_eq!(echo["tools"][0]["parameters"], json!({"z": 1, "a": 2}));
    assert_eq!(echo["tools"][2], tools[2]);
}

#[test]
fn choices_in_every_form() {
    let tools = json!([
        {"type": "function", "name": "f"}, {"type": "custom", "name": "c"},
        {"type": "namespace", "name": "n", "tools": [{"type": "function", "name": "f"}]}, {"type": "web_search"},
    ]);
    let every = vec!["f", "c", "n__f"];
    for (choice, expected, names) in [
        (Value::Null, ToolChoice::Auto, every.clone()),
        (json!("auto"), ToolChoice::Auto, every.clone()),
        (json!("none"), ToolChoice::None, every.clone()),
        (json!("required"), ToolChoice::Required, every.clone()),
        (json!({"type": "function", "name": "f"}), ToolChoice::Function("f".to_owned()), every.clone()),
        (json!({"type": "custom", "name": "c"}), ToolChoice::Function("c".to_owned()), every.clone()),
        (
            json!({"type": "function", "namespace": "n", "name": "f"}),
            ToolChoice::Function("n__f".to_owned()),
            every.clone(),
        ),
        (
            json!({"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "c"}, {"type": "web_search"}]}),
            ToolChoice::Required,
            vec!["c"],
        ),
        (
            json!({"type": "allowed_tools", "tools": [{"namespace": "n", "name": "f"}]}),
            ToolChoice::Auto,
            vec!["n__f"],
        ),
        (json!({"type": "allowed_tools", "tools": []}), ToolChoice::Auto, vec![]),
    ] {
        let asked = asked(&json!({"tools": tools, "tool_choice": choice}));
        assert_eq!(asked.conversation.tool_choice, expected, "{choice}");
        let found: Vec<&str> = asked.conversation.tools.iter().map(|tool| &*tool.name).collect();
        assert_eq!(found, names, "{choice}");
        let told = if choice.is_null() { json!("auto") } else { choice };
        assert_eq!(echoed(&asked)["tool_choice"], told);
    }
}
