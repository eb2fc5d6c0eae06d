use serde_json::{Value, json};

use super::{super::read, shown, with};
use crate::reply::Fault;

/// Each request is refused for this member, in such words.
fn refused(table: Vec<(Value, &str, &str)>) {
    for (members, param, words) in table {
        let error = read(&with(&members)).expect_err(&members.to_string());
        assert_eq!(error.param, param, "{members}: {error:?}");
        assert!(error.detail.contains(words), "{members}: {error:?}");
        let fault = Fault::from(error);
        assert_eq!((fault.status(), fault.param(crate::surface::Surface::Messages)), (400, Some(param)));
    }
}

#[test]
fn what_is_wrong_with_a_message_is_told_by_its_path() {
    let said = |content: Value| json!({ "messages": [{"role": "user", "content": content}] });
    let block = |block: Value| json!({ "messages": shown(block) });
    let answer = |block: Value| json!({"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": [block]}]});
    let found = |block: Value| json!({"messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": [block]}]}]});
    let at = |rest: &str| -> &'static str { format!("messages[2].content[0]{rest}").leak() };
    refused(vec![
        (json!({"messages": "absent"}), "messages", "at least one"),
        (json!({"messages": []}), "messages", "at least one"),
        (json!({"messages": null}), "messages", "at least one"),
        (json!({"messages": "x"}), "messages", "expected a sequence"),
        (json!({"messages": [5]}), "messages[0]", "expected struct"),
        (json!({"messages": [{"role": "system", "content": ""}]}), "messages", "at least one"),
        (json!({"messages": [{"content": "x"}]}), "messages[0].role", "expected user"),
        (json!({"messages": [{"role": "tool", "content": "x"}]}), "messages[0].role", "expected user"),
        (json!({"messages": [{"role": 5, "content": "x"}]}), "messages[0].role", "expected"),
        (json!({"messages": [{"role": "user"}]}), "messages[0].content", "missing"),
        (said(Value::Null), "messages[0].content", "a string or an array"),
        (said(json!(5)), "messages[0].content", "a string or an array"),
        (said(json!({"type": "text"})), "messages[0].content", "a string or an array"),
        (said(json!(["x"])), "messages[0].content[0]", "expected struct"),
        (said(json!([{"text": "x"}])), "messages[0].content[0].type", "missing"),
        (
            said(json!([{"type": "text", "text": "x"}, {"type": "text"}])),
            "messages[0].content[1].text",
            "missing",
        ),
        (block(json!({"type": "text", "text": 5})), at(".text"), "expected"),
        (block(json!({"type": "video"})), at(".type"), "not `video`"),
        (block(json!({"type": "container_upload", "file_id": "f"})), at(".type"), "not `container_upload`"),
        (block(json!({"type": "thinking", "thinking": "x"})), at(".type"), "expected text, image"),
        (
            block(json!({"type": "tool_use", "id": "a", "name": "f", "input": {}})),
            at(".type"),
            "expected text, image",
        ),
        (block(json!({"type": "tool_result", "content": "x"})), at(".tool_use_id"), "missing"),
        (
            block(json!({"type": "tool_result", "tool_use_id": "c", "content": 5})),
            at(".content"),
            "a string or an array",
        ),
        (
            block(json!({"type": "tool_result", "tool_use_id": "c", "is_error": "x"})),
            at(".is_error"),
            "boolean",
        ),
        (
            found(json!({"type": "tool_use", "id": "a", "name": "f"})),
            "messages[0].content[0].content[0].type",
            "result of a tool",
        ),
        (
            found(json!({"type": "image", "source": {"type": "file"}})),
            "messages[0].content[0].content[0].source.type",
            "not kept",
        ),
        (
            answer(json!({"type": "image", "source": {}})),
            "messages[1].content[0].type",
            "message of the assistant",
        ),
        (
            answer(json!({"type": "server_tool_use", "id": "s"})),
            "messages[1].content[0].type",
            "not `server_tool_use`",
        ),
        (answer(json!({"type": "thinking", "signature": ""})), "messages[1].content[0].thinking", "missing"),
        (
            answer(json!({"type": "tool_use", "name": "f", "input": {}})),
            "messages[1].content[0].id",
            "not empty",
        ),
        (
            answer(json!({"type": "tool_use", "id": "a", "name": "", "input": {}})),
            "messages[1].content[0].name",
            "not empty",
        ),
        (
            answer(json!({"type": "tool_use", "id": "a", "name": "f", "input": []})),
            "messages[1].content[0].input",
            "an object",
        ),
        (
            json!({"messages": [{"role": "system", "content": [{"type": "image", "source": {"type": "url", "url": "https://x"}}]}]}),
            "messages[0].content[0].type",
            "message of the system",
        ),
        (json!({"system": 5}), "system", "a string or an array"),
        (json!({"system": [{"type": "image"}]}), "system[0].type", "expected text"),
        (json!({"system": [{"type": "text"}]}), "system[0].text", "missing"),
    ]);
}

#[test]
fn what_cannot_be_shown_is_told_by_its_path() {
    let block = |block: Value| json!({ "messages": shown(block) });
    let at = |rest: &str| -> &'static str { format!("messages[2].content[0]{rest}").leak() };
    let image = |source: Value| block(json!({"type": "image", "source": source}));
    let document = |source: Value| block(json!({"type": "document", "source": source}));
    refused(vec![
        (block(json!({"type": "image"})), at(".source"), "missing"),
        (block(json!({"type": "image", "source": "x"})), at(".source"), "expected"),
        (image(json!({})), at(".source.type"), "base64 or url"),
        (image(json!({"type": "file", "file_id": "f"})), at(".source.type"), "not kept"),
        (image(json!({"type": "url"})), at(".source.url"), "https://"),
        (image(json!({"type": "url", "url": "file:///etc/passwd"})), at(".source.url"), "https://"),
        (image(json!({"type": "url", "url": "data:text/plain;base64,QQ=="})), at(".source.url"), "https://"),
        (image(json!({"type": "base64", "data": "AA"})), at(".source.media_type"), "image/"),
        (image(json!({"type": "base64", "media_type": "image/png"})), at(".source.data"), "base64"),
        (
            image(json!({"type": "base64", "media_type": "image/png", "data": "é"})),
            at(".source.data"),
            "base64",
        ),
        (
            image(json!({"type": "base64", "media_type": 5, "data": "AA"})),
            at(".source.media_type"),
            "expected",
        ),
        (
            document(json!({"type": "base64", "media_type": "application/pdf", "data": "AA"})),
            at(".source.type"),
            "not as `base64`",
        ),
        (document(json!({"type": "url", "url": "https://x"})), at(".source.type"), "not as `url`"),
        (document(json!({"type": "text"})), at(".source.data"), "missing"),
        (document(json!({"type": "content"})), at(".source.content"), "missing"),
        (
            document(json!({"type": "content", "content": [{"type": "document"}]})),
            at(".source.content[0].type"),
            "text or image",
        ),
        (
            block(
                json!({"type": "document", "citations": {"enabled": true}, "source": {"type": "text", "data": "d"}}),
            ),
            at(".citations.enabled"),
            "does not cite",
        ),
        (
            block(
                json!({"type": "search_result", "source": "s", "title": "t", "content": [{"type": "image"}]}),
            ),
            at(".content[0].type"),
            "text in a search_result",
        ),
        (block(json!({"type": "search_result", "source": 5, "content": []})), at(".source"), "expected"),
    ]);
}

#[test]
fn what_is_wrong_with_an_option_is_told_by_its_path() {
    let tool = json!({"name": "f", "input_schema": {}});
    let tools = |tool: Value| json!({"tools": [{"name": "f", "input_schema": {}}, tool]});
    let choice = |choice: Value| json!({"tools": [tool], "tool_choice": choice});
    let format = |format: Value| json!({"output_config": {"format": format}});
    refused(vec![
        (json!({"model": "absent"}), "model", "missing"),
        (json!({"model": 5}), "model", "expected"),
        (json!({"max_tokens": "absent"}), "max_tokens", "missing"),
        (json!({"max_tokens": null}), "max_tokens", "missing"),
        (json!({"max_tokens": -1}), "max_tokens", "expected u64"),
        (json!({"max_tokens": "many"}), "max_tokens", "expected u64"),
        (json!({"stream": "yes"}), "stream", "boolean"),
        (json!({"temperature": 2.5}), "temperature", "from 0 to 2"),
        (json!({"temperature": "x".repeat(1000)}), "temperature", "invalid type"),
        (json!({"top_p": -0.1}), "top_p", "from 0 to 1"),
        (json!({"top_k": 1.5}), "top_k", "expected i64"),
        (json!({"stop_sequences": "x"}), "stop_sequences", "expected a sequence"),
        (json!({"stop_sequences": ["x", 5]}), "stop_sequences[1]", "expected"),
        (json!({"thinking": {"type": "deep"}}), "thinking.type", "expected enabled"),
        (json!({"thinking": {}}), "thinking.type", "expected enabled"),
        (
            json!({"thinking": {"type": "enabled", "budget_tokens": "x"}}),
            "thinking.budget_tokens",
            "expected u64",
        ),
        (json!({"output_config": {"effort": "huge"}}), "output_config.effort", "expected low"),
        (format(json!({"type": "text"})), "output_config.format.type", "json_schema"),
        (format(json!({"type": "json_schema"})), "output_config.format.schema", "an object"),
        (format(json!({"type": "json_schema", "schema": []})), "output_config.format.schema", "an object"),
        (json!({"output_format": {"type": "xml"}}), "output_format.type", "json_schema"),
        (
            tools(json!({"type": "web_search_20250305", "name": "web_search"})),
            "tools[1].type",
            "not `web_search_20250305`",
        ),
        (tools(json!({"type": "bash_20250124", "name": "bash"})), "tools[1].type", "not `bash_20250124`"),
        (tools(json!({"type": "mcp_toolset", "mcp_server_name": "x"})), "tools[1].type", "not `mcp_toolset`"),
        (tools(json!({"input_schema": {}})), "tools[1].name", "a name"),
        (tools(json!({"name": "", "input_schema": {}})), "tools[1].name", "a name"),
        (tools(json!({"name": "f", "input_schema": {}})), "tools[1].name", "`f` is another tool's"),
        (tools(json!({"name": "g"})), "tools[1].input_schema", "an object"),
        (tools(json!({"name": "g", "input_schema": true})), "tools[1].input_schema", "an object"),
        (tools(json!(5)), "tools[1]", "expected struct"),
        (choice(json!("auto")), "tool_choice", "expected struct"),
        (choice(json!({"type": "required"})), "tool_choice.type", "expected auto"),
        (choice(json!({})), "tool_choice.type", "expected auto"),
        (choice(json!({"type": "tool"})), "tool_choice.name", "missing"),
        (choice(json!({"type": "tool", "name": "h"})), "tool_choice.name", "`h` is none"),
        (json!({"tool_choice": {"type": "any"}}), "tool_choice", "there is none"),
        (json!({"mcp_servers": [{"type": "url", "url": "https://x"}]}), "mcp_servers", "as `tools`"),
        (
            json!({"container": {"skills": [{"type": "anthropic", "skill_id": "pdf"}]}}),
            "container.skills",
            "no skills",
        ),
    ]);
}

#[test]
fn a_body_that_is_none_is_told_by_line_and_column() {
    for (body, words) in [
        (&b""[..], "EOF while parsing a value at line 1 column 0"),
        (b"[]", "expected struct"),
        (b"{\"model\":\"m\",\"model\":\"m\"}", "duplicate field `model` at line 1"),
        (b"{} {}", "trailing characters at line 1 column 4"),
    ] {
        let error = read(body).unwrap_err();
        assert!(error.param.is_empty() && error.detail.contains(words), "{error:?}");
    }
}
