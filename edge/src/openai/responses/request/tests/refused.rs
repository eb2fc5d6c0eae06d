use super::*;
use crate::reply::Fault;

/// Each request is refused for this member, in such words.
fn refused(table: Vec<(Value, &str, &str)>) {
    for (members, param, words) in table {
        let error = read(&with(&members)).map(|asked| told(&asked)).expect_err(&members.to_string());
        assert_eq!(error.param, param, "{members}: {error:?}");
        assert!(error.detail.contains(words), "{members}: {error:?}");
        assert!(!error.detail.contains(" at line"), "a place that the client does not know: {error:?}");
        let fault = Fault::from(error);
        assert_eq!((fault.status(), fault.param(crate::surface::Surface::Chat)), (400, Some(param)));
    }
}

#[test]
fn what_is_wrong_with_an_item_is_told_by_its_path() {
    let item = |item: Value| json!({"input": [{"role": "user", "content": "a"}, item]});
    refused(vec![
        (json!({"input": null}), "input", "missing"),
        (json!({"input": []}), "input", "at least one"),
        (json!({"input": 5}), "input", "expected a string or an array"),
        (json!({"input": {}}), "input", "expected a string or an array"),
        (item(json!("x")), "input[1]", "expected struct"),
        (item(json!({"content": "x"})), "input[1].type", "missing"),
        (item(json!({"id": "msg_1"})), "input[1].type", "missing"),
        (item(json!({"type": 5, "role": "user"})), "input[1].type", "expected"),
        (item(json!({"role": "wizard", "content": "x"})), "input[1].role", "expected user"),
        (item(json!({"type": "message", "content": "x"})), "input[1].role", "missing"),
        (item(json!({"role": "tool", "content": "x"})), "input[1].role", "expected user"),
        (item(json!({"role": "user"})), "input[1].content", "missing"),
        (item(json!({"role": "user", "content": null})), "input[1].content", "missing"),
        (item(json!({"role": "user", "content": 5})), "input[1].content", "expected a string or an array"),
        (item(json!({"role": "user", "content": [5]})), "input[1].content[0]", "expected struct"),
        (
            item(json!({"role": "user", "content": [{"text": "x"}]})),
            "input[1].content[0]",
            "missing field `type`",
        ),
        (item(json!({"type": "item_reference", "id": "msg_1"})), "input[1]", "not stored"),
        (item(json!({"type": "compaction", "encrypted_content": "x"})), "input[1]", "compacted"),
        (
            item(json!({"type": "local_shell_call", "call_id": "c"})),
            "input[1].type",
            "found `local_shell_call`",
        ),
        (item(json!({"type": "mcp_approval_response"})), "input[1].type", "found `mcp_approval_response`"),
    ]);
    assert_eq!(read(b"{}").unwrap_err().param, "input");
    for body in ["", "[]", "5", "{\"input\":", "{\"input\":\"a\",\"input\":\"b\"}", "{\"input\":\"\u{0}\"}"] {
        assert!(read(body.as_bytes()).is_err(), "{body}");
    }
    assert!(read(b"{\"input\":\"\xff\"}").is_err());
}

#[test]
fn what_is_wrong_with_a_call_or_a_thought_is_told_by_its_path() {
    let item = |item: Value| json!({"input": [{"role": "user", "content": "a"}, item]});
    refused(vec![
        (
            item(json!({"type": "function_call", "name": "f", "arguments": "{}"})),
            "input[1].call_id",
            "missing",
        ),
        (
            item(json!({"type": "function_call", "call_id": "c", "arguments": "{}"})),
            "input[1].name",
            "missing",
        ),
        (item(json!({"type": "function_call", "call_id": "c", "name": ""})), "input[1].name", "empty"),
        (item(json!({"type": "function_call", "call_id": "c", "name": ["f"]})), "input[1].name", "expected"),
        (
            item(json!({"type": "function_call", "call_id": "c", "name": "f", "namespace": 5})),
            "input[1].namespace",
            "expected",
        ),
        (
            item(json!({"type": "function_call", "call_id": "c", "name": "f", "arguments": "[1]"})),
            "input[1].arguments",
            "JSON object",
        ),
        (
            item(json!({"type": "function_call", "call_id": "c", "name": "f", "arguments": "{\"a\":"})),
            "input[1].arguments",
            "JSON object",
        ),
        (
            item(json!({"type": "function_call", "call_id": "c", "name": "f", "arguments": 5})),
            "input[1].arguments",
            "expected a string",
        ),
        (item(json!({"type": "function_call_output", "output": "x"})), "input[1].call_id", "missing"),
        (item(json!({"type": "function_call_output", "call_id": "c"})), "input[1].output", "missing"),
        (
            item(json!({"type": "function_call_output", "call_id": "c", "output": {"content": "x"}})),
            "input[1].output",
            "array of content parts",
        ),
        (
            item(json!({"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text"}]})),
            "input[1].output[0].text",
            "missing",
        ),
        (item(json!({"type": "custom_tool_call", "call_id": "c", "name": "f"})), "input[1].input", "missing"),
        (
            item(json!({"type": "custom_tool_call", "call_id": "c", "name": "f", "input": {}})),
            "input[1].input",
            "expected",
        ),
        (item(json!({"type": "reasoning", "summary": "x"})), "input[1].summary", "expected a sequence"),
        (
            item(json!({"type": "reasoning", "content": [{"type": "reasoning_text"}]})),
            "input[1].content[0].text",
            "missing",
        ),
    ]);
}

#[test]
fn what_is_wrong_with_a_part_is_told_by_its_path() {
    let part = |part: Value| json!({"input": [{"role": "user", "content": [part]}]});
    let at = "input[0].content[0]";
    let within = |key: &str| format!("{at}.{key}");
    let (image, data, url, id) =
        (within("image_url"), within("file_data"), within("file_url"), within("file_id"));
    refused(vec![
        (part(json!({"type": "input_text"})), &within("text"), "missing"),
        (part(json!({"type": "input_text", "text": 5})), &within("text"), "expected"),
        (part(json!({"type": "refusal"})), &within("refusal"), "missing"),
        (part(json!({"type": "input_audio", "input_audio": {}})), &within("type"), "found `input_audio`"),
        (part(json!({"type": "input_image"})), &image, "missing"),
        (part(json!({"type": "input_image", "image_url": {"url": "x"}})), &image, "expected"),
        (
            part(json!({"type": "input_image", "image_url": "file:///etc/passwd"})),
            &image,
            "one of http or https",
        ),
        (part(json!({"type": "input_image", "image_url": "data:image/png,AAAA"})), &image, "base64"),
        (part(json!({"type": "input_image", "image_url": "data:text/plain;base64,AAAA"})), &image, "image/"),
        (part(json!({"type": "input_image", "image_url": "data:image/png;base64"})), &image, "behind it"),
        (part(json!({"type": "input_image", "file_id": "file_1"})), &id, "no files are kept"),
        (
            part(json!({"type": "input_image", "image_url": "https://h/x", "detail": 5})),
            &within("detail"),
            "expected",
        ),
        (part(json!({"type": "input_file", "file_id": "file_1"})), &id, "neither fetched nor kept"),
        (part(json!({"type": "input_file", "file_url": "https://h/x"})), &url, "neither fetched nor kept"),
        (part(json!({"type": "input_file", "file_data": "JVBERi0="})), &data, "text file"),
        (
            part(json!({"type": "input_file", "file_data": "data:application/pdf;base64,JVBERi0="})),
            &data,
            "text file",
        ),
        (part(json!({"type": "input_file", "file_data": "data:text/plain;base64,/w=="})), &data, "text file"),
        (part(json!({"type": "input_file", "file_data": "data:text/plain;base64,*"})), &data, "text file"),
    ]);
}

#[test]
fn what_is_kept_elsewhere_or_cannot_be_given_is_refused_by_name() {
    refused(vec![
        (json!({"previous_response_id": "resp_1"}), "previous_response_id", "whole conversation"),
        (json!({"previous_response_id": 5}), "previous_response_id", "whole conversation"),
        (json!({"conversation": "conv_1"}), "conversation", "whole conversation"),
        (json!({"conversation": {"id": "conv_1"}}), "conversation", "whole conversation"),
        (json!({"prompt": {"id": "pmpt_1"}}), "prompt", "no prompts"),
        (json!({"background": true}), "background", "expected false"),
        (json!({"top_logprobs": 3}), "top_logprobs", "log probabilities"),
        (
            json!({"include": ["reasoning.encrypted_content", "message.output_text.logprobs"]}),
            "include[1]",
            "log probabilities",
        ),
        (json!({"temperature": 2.5}), "temperature", "from 0 to 2"),
        (json!({"top_p": -0.1}), "top_p", "from 0 to 1"),
        (json!({"presence_penalty": 3}), "presence_penalty", "from -2 to 2"),
        (json!({"frequency_penalty": -3}), "frequency_penalty", "from -2 to 2"),
        (json!({"text": {"format": {"type": "xml"}}}), "text.format.type", "json_schema"),
        (json!({"text": {"format": {"type": "json_schema", "name": "n"}}}), "text.format.schema", "missing"),
        (
            json!({"text": {"format": {"type": "json_schema", "schema": []}}}),
            "text.format.schema",
            "an object",
        ),
        (
            json!({"text": {"format": {"type": "json_schema", "schema": {}, "strict": 1}}}),
            "text.format.strict",
            "a boolean",
        ),
        (json!({"text": {"format": "json"}}), "text.format", "expected struct"),
    ]);
    let fault = Fault::from(read(&with(&json!({"previous_response_id": "resp_1"}))).unwrap_err());
    assert_eq!(fault.code(), Some("previous_response_not_found"));
    // Where the body itself does not fit, the place in it is one that the client has.
    for (body, param) in [
        (&br#"{"input":"x","max_output_tokens":-1}"#[..], "max_output_tokens"),
        (br#"{"input":"x","parallel_tool_calls":"no"}"#, "parallel_tool_calls"),
        (br#"{"input":"x","reasoning":{"effort":5}}"#, "reasoning.effort"),
        (br#"{"input":"x","temperature":"hot"}"#, "temperature"),
        (br#"{"input":"x","tools":{}}"#, "tools"),
        (br#"{"input":"x","background":"yes"}"#, "background"),
        (br#"{"input":"x","include":"all"}"#, "include"),
    ] {
        let error = read(body).unwrap_err();
        assert_eq!(error.param, param);
        assert!(error.detail.contains("at line 1 column"), "{error:?}");
    }
}

#[test]
fn what_is_wrong_with_a_tool_is_told_by_its_path() {
    refused(vec![
        (json!({"reasoning": {"effort": "huge"}}), "reasoning.effort", "expected none"),
        (
            json!({"tools": [{"type": "function", "name": "a", "parameters": []}]}),
            "tools[0].parameters",
            "an object",
        ),
        (json!({"tools": [{"type": "function"}]}), "tools[0].name", "missing"),
        (json!({"tools": [{"type": "function", "name": ""}]}), "tools[0].name", "empty"),
        (json!({"tools": [{"type": "function", "function": {"name": "chat"}}]}), "tools[0].name", "missing"),
        (
            json!({"tools": [{"type": "function", "name": "a", "strict": "y"}]}),
            "tools[0].strict",
            "a boolean",
        ),
        (json!({"tools": [{"name": "a"}]}), "tools[0]", "missing field `type`"),
        (
            json!({"tools": [{"type": "file_search", "vector_store_ids": []}]}),
            "tools[0].type",
            "`file_search`",
        ),
        (json!({"tools": [{"type": "web_search_preview"}]}), "tools[0].type", "`web_search_preview`"),
        (json!({"tools": [{"type": "mcp", "server_label": "x"}]}), "tools[0].type", "`mcp`"),
        (json!({"tools": [{"type": "local_shell"}]}), "tools[0].type", "`local_shell`"),
        (json!({"tools": [{"type": "namespace", "name": "n"}]}), "tools[0].tools", "missing"),
        (json!({"tools": [{"type": "namespace", "name": "", "tools": []}]}), "tools[0].name", "empty"),
        (
            json!({"tools": [{"type": "namespace", "name": "n", "tools": [{"type": "namespace", "name": "m"}]}]}),
            "tools[0].tools[0].type",
            "in a group",
        ),
        (
            json!({"tools": [{"type": "namespace", "name": "n", "tools": [{"type": "function", "name": 5}]}]}),
            "tools[0].tools[0].name",
            "expected",
        ),
        (
            json!({"tools": [{"type": "function", "name": "n__f"}, {"type": "namespace", "name": "n", "tools": [{"type": "function", "name": "f"}]}]}),
            "tools[1].tools[0].name",
            "another tool",
        ),
        (json!({"tool_choice": "required"}), "tool_choice", "there is none"),
        (
            json!({"tool_choice": "required", "tools": [{"type": "web_search"}]}),
            "tool_choice",
            "there is none",
        ),
        (json!({"tool_choice": "perhaps"}), "tool_choice", "required"),
        (json!({"tool_choice": 5}), "tool_choice", "expected"),
        (json!({"tool_choice": {"type": "function", "name": "f"}}), "tool_choice.name", "none of `tools`"),
        (json!({"tool_choice": {"type": "function"}}), "tool_choice.name", "missing"),
        (json!({"tool_choice": {"type": "web_search"}}), "tool_choice.type", "`web_search`"),
        (json!({"tool_choice": {"type": "allowed_tools"}}), "tool_choice.tools", "missing"),
        (
            json!({"tool_choice": {"type": "allowed_tools", "mode": "none?", "tools": []}}),
            "tool_choice.mode",
            "expected",
        ),
    ]);
}
