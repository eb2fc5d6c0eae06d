use super::*;

/// Events by their type and the rest of their data; with their names, and without.
fn responses(events: &[(&str, &str, &str)]) -> Vec<String> {
    let named: Vec<_> = events
        .iter()
        .map(|(kind, rest, signs)| {
            (format!("event: {kind}\ndata: {{\"type\":\"{kind}\"{rest}}}\n\n"), *signs)
        })
        .collect();
    let unnamed: Vec<_> = events
        .iter()
        .map(|(kind, rest, signs)| {
            let rest = rest.strip_prefix(',').map(|rest| format!("{rest},")).unwrap_or_default();
            (format!("data: {{{rest}\"type\": \"{kind}\"}}\n\n"), *signs)
        })
        .collect();
    let told = |events: &[(String, &str)]| {
        let events: Vec<_> = events.iter().map(|(event, signs)| (event.as_str(), *signs)).collect();
        stream(Surface::Responses, &events)
    };
    let texts = told(&named);
    assert_eq!(told(&unnamed), texts);
    texts
}

// req: REC-2
#[test]
fn a_response_begins_long_before_its_content() {
    let texts = responses(&[
        (
            "response.created",
            ",\"sequence_number\":0,\"response\":{\"id\":\"r\",\"status\":\"in_progress\",\"output\":[]}",
            "p",
        ),
        ("response.queued", ",\"response\":{}", "p"),
        ("response.in_progress", ",\"response\":{\"error\":null}", "p"),
        (
            "response.output_item.added",
            ",\"output_index\":0,\"item\":{\"id\":\"rs\",\"type\":\"reasoning\",\"summary\":[],\"encrypted_content\":\"gAAA\"}",
            "p",
        ),
        ("response.reasoning_summary_part.added", ",\"part\":{\"type\":\"summary_text\",\"text\":\"\"}", "p"),
        ("response.reasoning_summary_text.delta", ",\"delta\":\"hm\"", "c"),
        ("response.reasoning_text.delta", ",\"delta\":\"why\"", "c"),
        (
            "response.output_item.done",
            ",\"item\":{\"type\":\"reasoning\",\"summary\":[{\"type\":\"summary_text\",\"text\":\"hm\"}]}",
            "c",
        ),
        (
            "response.output_item.added",
            ",\"output_index\":1,\"item\":{\"type\":\"message\",\"role\":\"assistant\",\"status\":\"in_progress\",\"content\":[]}",
            "p",
        ),
        (
            "response.content_part.added",
            ",\"part\":{\"type\":\"output_text\",\"text\":\"\",\"annotations\":[]}",
            "p",
        ),
        ("response.output_text.delta", ",\"delta\":\"\",\"logprobs\":[]", "p"),
        ("response.output_text.delta", ",\"delta\":\"hi\",\"logprobs\":[]", "c"),
        ("response.output_text.done", ",\"text\":\"hi\"", "c"),
        ("response.refusal.delta", ",\"delta\":\"no\"", "c"),
        (
            "response.completed",
            ",\"response\":{\"status\":\"completed\",\"output\":[{\"type\":\"message\",\"content\":[{\"type\":\"output_text\",\"text\":\"hi\"}]}],\"usage\":{\"output_tokens\":1}}",
            "e",
        ),
    ]);
    assert_eq!(texts, ["Reasoning 0/0: hm", "Reasoning 0/0: why", "Content 0/0: hi", "Content 0/0: no"]);
}

#[test]
fn a_call_is_content_from_its_name_on() {
    let texts = responses(&[
        ("response.created", "", "p"),
        (
            "response.output_item.added",
            ",\"output_index\":2,\"item\":{\"type\":\"function_call\",\"name\":\"f\",\"call_id\":\"c\",\"arguments\":\"\"}",
            "c",
        ),
        ("response.function_call_arguments.delta", ",\"output_index\":2,\"delta\":\"{}\"", "c"),
        ("response.function_call_arguments.done", ",\"output_index\":2,\"arguments\":\"{}\"", "c"),
        (
            "response.incomplete",
            ",\"response\":{\"incomplete_details\":{\"reason\":\"max_output_tokens\"}}",
            "e",
        ),
    ]);
    assert_eq!(texts, ["Arguments 0/2 f: ", "Arguments 0/2: {}"]);
}

#[test]
fn what_is_not_known_is_content_and_what_is_empty_is_not() {
    for (kind, rest, sign) in [
        ("response.new_thing", "", "c"),
        ("response.output_item.added", ",\"item\":{\"type\":\"web_search_call\",\"id\":\"w\"}", "c"),
        ("response.output_item.added", "", "c"),
        (
            "response.output_item.added",
            ",\"item\":{\"type\":\"message\",\"content\":[{\"type\":\"output_text\",\"text\":\"x\"}]}",
            "c",
        ),
        (
            "response.output_item.done",
            ",\"item\":{\"type\":\"reasoning\",\"summary\":[],\"encrypted_content\":\"g\"}",
            "p",
        ),
        ("response.output_audio.delta", ",\"delta\":\"UklG\"", "c"),
        ("response.output_audio.delta", ",\"delta\":\"\"", "p"),
        ("response.output_text.done", ",\"text\":\"\"", "p"),
        ("response.content_part.done", ",\"part\":{\"type\":\"output_text\",\"text\":\"\"}", "p"),
        ("response.content_part.added", ",\"part\":{\"type\":\"output_image\"}", "c"),
        ("ping", "", "p"),
    ] {
        let _texts = responses(&[(kind, rest, sign)]);
    }
}

#[test]
fn a_last_word_alone_is_empty_or_has_the_whole_answer() {
    for (kind, rest, signs, expected) in [
        ("response.completed", ",\"response\":{\"output\":[]}", "e", &[][..]),
        ("response.completed", "", "e", &[]),
        (
            "response.completed",
            ",\"response\":{\"output\":[{\"type\":\"reasoning\",\"summary\":[]}]}",
            "e",
            &[],
        ),
        (
            "response.completed",
            ",\"response\":{\"output\":[{\"type\":\"reasoning\",\"summary\":[{\"type\":\"summary_text\",\"text\":\"hm\"}]},{\"type\":\"message\",\"content\":[{\"type\":\"output_text\",\"text\":\"x\"},{\"type\":\"refusal\",\"refusal\":\"y\"}]},{\"type\":\"function_call\",\"name\":\"f\",\"arguments\":\"{}\"}]}",
            "ce",
            &["Reasoning 0/0: hm", "Content 0/0: x", "Content 0/0: y", "Arguments 0/2 f: {}"],
        ),
        (
            "response.incomplete",
            ",\"response\":{\"incomplete_details\":{\"reason\":\"content_filter\"}}",
            "ce",
            &[],
        ),
        (
            "response.completed",
            ",\"response\":{\"status\":\"failed\",\"error\":{\"code\":\"server_error\"}}",
            "f",
            &[],
        ),
    ] {
        assert_eq!(responses(&[(kind, rest, signs)]), expected, "{kind}{rest}");
    }
}

// req: SEG-8
#[test]
fn errors_and_failed_responses_are_failures() {
    for (event, expected) in [
        (
            "event: error\ndata: {\"type\":\"error\",\"code\":\"server_error\",\"message\":\"boom\",\"param\":null,\"sequence_number\":2}\n\n",
            said(None, Some("server_error"), "boom"),
        ),
        (
            "data: {\"type\":\"error\",\"code\":\"rate_limit_exceeded\",\"message\":\"slow\"}\n\n",
            said(None, Some("rate_limit_exceeded"), "slow"),
        ),
        (
            "event: response.failed\ndata: {\"type\":\"response.failed\",\"response\":{\"status\":\"failed\",\"error\":{\"code\":\"server_is_overloaded\",\"message\":\"later\"}}}\n\n",
            said(None, Some("server_is_overloaded"), "later"),
        ),
        ("event: response.failed\ndata: {\"response\":{\"error\":null}}\n\n", said(None, None, "")),
        ("event: response.cancelled\ndata: {}\n\n", said(None, None, "")),
        (
            "data: {\"error\":{\"message\":\"x\",\"type\":\"BadRequestError\",\"code\":400}}\n\n",
            said(Some("BadRequestError"), Some("400"), "x"),
        ),
        ("event: strange\ndata: {\"error\":{\"message\":\"x\"}}\n\n", said(None, None, "x")),
    ] {
        assert_eq!(failure(Surface::Responses, event), expected, "{event}");
    }
}

#[test]
fn done_is_not_the_last_word_of_a_response() {
    let _texts = stream(
        Surface::Responses,
        &[
            ("event: response.created\ndata: {}\n\n", "p"),
            ("data: {\"type\":\"response.completed\",\"response\":{\"output\":[]}}\n\n", "e"),
            ("data: [DONE]\n\n", "p"),
        ],
    );
}
