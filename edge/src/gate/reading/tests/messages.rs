use super::*;

/// Events by their type and the rest of their data; with their names, and without.
fn messages(events: &[(&str, &str, &str)]) -> Vec<String> {
    let mut texts = Vec::new();
    for named in [true, false] {
        let events: Vec<_> = events
            .iter()
            .map(|(kind, rest, signs)| {
                let name = if named { format!("event: {kind}\n") } else { String::new() };
                (format!("{name}data: {{\"type\": \"{kind}\"{rest}}}\n\n"), *signs)
            })
            .collect();
        let events: Vec<_> = events.iter().map(|(event, signs)| (event.as_str(), *signs)).collect();
        texts.push(stream(Surface::Messages, &events));
    }
    assert_eq!(texts[0], texts[1]);
    texts.remove(0)
}

// req: REC-2
#[test]
fn a_message_begins_with_its_envelope_and_the_places_of_its_blocks() {
    let texts = messages(&[
        (
            "message_start",
            ",\"message\":{\"id\":\"m\",\"content\":[],\"stop_reason\":null,\"usage\":{\"input_tokens\":3,\"output_tokens\":1}}",
            "p",
        ),
        ("ping", "", "p"),
        (
            "content_block_start",
            ",\"index\":0,\"content_block\":{\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"\"}",
            "p",
        ),
        (
            "content_block_delta",
            ",\"index\":0,\"delta\":{\"type\":\"thinking_delta\",\"thinking\":\"hm\"}",
            "c",
        ),
        (
            "content_block_delta",
            ",\"index\":0,\"delta\":{\"type\":\"signature_delta\",\"signature\":\"s\"}",
            "c",
        ),
        ("content_block_stop", ",\"index\":0", "p"),
        ("content_block_start", ",\"index\":1,\"content_block\":{\"type\":\"text\",\"text\":\"\"}", "p"),
        ("content_block_delta", ",\"index\":1,\"delta\":{\"type\":\"text_delta\",\"text\":\"\"}", "p"),
        (
            "content_block_delta",
            ",\"index\":1,\"delta\":{\"type\":\"text_delta\",\"text\":\"h\\u00ed\"}",
            "c",
        ),
        ("content_block_stop", ",\"index\":1", "p"),
        (
            "content_block_start",
            ",\"index\":2,\"content_block\":{\"type\":\"tool_use\",\"id\":\"t\",\"name\":\"f\",\"input\":{}}",
            "c",
        ),
        (
            "content_block_delta",
            ",\"index\":2,\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"\"}",
            "p",
        ),
        (
            "content_block_delta",
            ",\"index\":2,\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"{\\\"a\\\":1}\"}",
            "c",
        ),
        ("message_delta", ",\"delta\":{\"stop_reason\":null},\"usage\":{\"output_tokens\":1}", "p"),
        (
            "message_delta",
            ",\"delta\":{\"stop_reason\":\"tool_use\",\"stop_sequence\":null},\"usage\":{\"output_tokens\":5}",
            "c",
        ),
        ("message_stop", "", "e"),
    ]);
    assert_eq!(
        texts,
        ["Reasoning 0/0: hm", "Content 0/0: hí", "Arguments 0/2 f: ", "Arguments 0/2: {\"a\":1}"]
    );
}

#[test]
fn what_is_not_known_is_content() {
    for (kind, rest, sign) in [
        ("content_block_start", ",\"content_block\":{\"type\":\"redacted_thinking\",\"data\":\"x\"}", "c"),
        (
            "content_block_start",
            ",\"content_block\":{\"type\":\"server_tool_use\",\"name\":\"web_search\"}",
            "c",
        ),
        ("content_block_start", ",\"content_block\":{\"type\":\"text\",\"text\":\"x\"}", "c"),
        ("content_block_start", "", "c"),
        ("content_block_delta", ",\"delta\":{\"type\":\"new_delta\",\"new\":1}", "c"),
        ("content_block_delta", ",\"delta\":{\"type\":\"citations_delta\",\"citation\":{\"x\":1}}", "c"),
        ("content_block_delta", "", "c"),
        ("message_new", "", "c"),
        ("message_stop", "", "e"),
    ] {
        let _texts = messages(&[(kind, rest, sign)]);
    }
}

// req: SEG-8
#[test]
fn errors_are_failures_with_and_without_a_name() {
    for (event, expected) in [
        (
            "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"},\"request_id\":\"req\"}\n\n",
            said(Some("overloaded_error"), None, "Overloaded"),
        ),
        (
            "data: {\"type\":\"error\",\"error\":{\"type\":\"api_error\",\"message\":\"x\"}}\n\n",
            said(Some("api_error"), None, "x"),
        ),
        (
            "data: {\"error\":{\"message\":\"x\",\"type\":\"InternalServerError\",\"code\":500}}\n\n",
            said(Some("InternalServerError"), Some("500"), "x"),
        ),
    ] {
        assert_eq!(failure(Surface::Messages, event), expected, "{event}");
    }
}
