use super::*;

/// What a program's output says, in pieces of these sizes, as text: `t:` text, `r:` reasoning, `u:` usage.
fn told<'a>(
    format: OutputFormat,
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> (Vec<String>, Result<Finished, ReadError>) {
    let mut reader = Reader::new(format);
    let mut said = Vec::new();
    for piece in pieces {
        if let Err(error) = reader.push(piece, &mut said) {
            return (shown(said), Err(error));
        }
    }
    let finished = reader.finish(&mut said);
    (shown(said), finished)
}

/// Pieces of one kind that follow each other are one.
fn shown(said: Vec<Said>) -> Vec<String> {
    let mut shown: Vec<String> = Vec::new();
    for piece in said {
        let (kind, text) = match piece {
            Said::Text(text) => ("t:", text),
            Said::Reasoning(text) => ("r:", text),
            Said::Usage(usage) => ("u:", usage.output_tokens.unwrap_or_default().to_string()),
        };
        assert!(!text.is_empty());
        match shown.last_mut().filter(|last| last.starts_with(kind) && kind != "u:") {
            Some(last) => last.push_str(&text),
            None => shown.push(format!("{kind}{text}")),
        }
    }
    shown
}

/// The same, for every cut in two and byte by byte.
fn check(format: OutputFormat, output: &str, expected: &[&str], finished: Result<Finished, ReadError>) {
    let bytes = output.as_bytes();
    let cuts = (0..=bytes.len()).map(|at| <[_; 2]>::from(bytes.split_at(at)).to_vec());
    for pieces in cuts.chain([bytes.chunks(1).collect()]) {
        let (said, ended) = told(format, pieces);
        assert_eq!((said.as_slice(), &ended), (expected.map_owned().as_slice(), &finished), "{output}");
    }
}

trait MapOwned {
    fn map_owned(&self) -> Vec<String>;
}

impl MapOwned for [&str] {
    fn map_owned(&self) -> Vec<String> {
        self.iter().map(|text| (*text).to_owned()).collect()
    }
}

fn stop() -> Result<Finished, ReadError> {
    Ok(Finished { reason: "stop", usage: None })
}

fn counted(input: u64, output: u64) -> Option<Usage> {
    Some(Usage { input_tokens: Some(input), output_tokens: Some(output), ..Usage::default() })
}

fn reported(words: &str) -> Result<Finished, ReadError> {
    Err(ReadError::Reported(words.to_owned()))
}

// req: RUN-1
#[test]
fn text_is_passed_on_as_it_is() {
    use OutputFormat::Text;
    check(Text, "", &[], stop());
    check(Text, "hello\n", &["t:hello\n"], stop());
    check(
        Text,
        "caf\u{e9} \u{1f600}\r\n{\"result\":1}",
        &["t:caf\u{e9} \u{1f600}\r\n{\"result\":1}"],
        stop(),
    );
    let (said, _) = told(Text, [&b"a\xff"[..], b"\xe2\x82"]);
    assert_eq!(said, ["t:a\u{fffd}\u{fffd}"]);
}

// req: RUN-1, RUN-6
#[test]
fn one_object_at_the_end_is_the_answer() {
    use OutputFormat::Json;
    let usage = counted(3, 4);
    check(
        Json,
        r#"{"type":"result","is_error":false,"result":"h\u00e9llo","usage":{"input_tokens":3,"output_tokens":4}}"#,
        &["t:h\u{e9}llo"],
        Ok(Finished { reason: "stop", usage }),
    );
    check(
        Json,
        "{\n \"thinking\": \"hm\",\n \"text\": \"a\",\n \"stop_reason\": \"max_tokens\"\n}\n",
        &["r:hm", "t:a"],
        Ok(Finished { reason: "length", usage: None }),
    );
    check(Json, "loading...\n{\"response\":\"a\"}\n\n", &["t:a"], stop());
    check(Json, r#"{"result":""}"#, &[], stop());
    for wrong in ["", "\n", "hello", "[]", r#""a""#, "{", r#"{"model":"x"}"#, "{\"text\":\"a\"}\nbye"] {
        check(Json, wrong, &[], Err(ReadError::NoAnswer));
    }
    check(Json, r#"{"error":{"message":"no key"}}"#, &[], reported("no key"));
    check(Json, r#"{"is_error":true,"result":"no\nkey"}"#, &[], reported("no key"));
}

// req: RUN-1, RUN-6
#[test]
fn events_are_passed_on_as_they_come_and_what_is_no_event_is_skipped() {
    use OutputFormat::StreamJson;
    let plain = concat!(
        "{\"type\":\"reasoning\",\"text\":\"hm\"}\r\n",
        "starting up\n\n{\"type\":\"tool_use\",\"text\":\"no\"}\n[1]\n{\"type\":7}\n{\"type\":\"text\",\"text\":7}\n",
        "{\"type\":\"text\",\"text\":\"h\\u00e9\"}\n{\"type\":\"usage\",\"usage\":{\"output_tokens\":1}}\n",
        "{\"type\":\"text\",\"text\":\"llo\u{20ac}\"}\n",
        "{\"type\":\"result\",\"result\":\"not again\",\"usage\":{\"input_tokens\":3,\"output_tokens\":4},\"stop_reason\":\"max_tokens\"}",
    );
    let finished = Ok(Finished { reason: "length", usage: counted(3, 4) });
    check(StreamJson, plain, &["r:hm", "t:h\u{e9}", "u:1", "t:llo\u{20ac}"], finished);
}

#[test]
fn whole_messages_are_said_once_and_set_apart() {
    use OutputFormat::StreamJson;
    let message = |text: &str| {
        format!(
            "{{\"type\":\"assistant\",\"message\":{{\"content\":[{{\"type\":\"text\",\"text\":\"{text}\"}}]}}}}\n"
        )
    };
    let whole = [
        "{\"type\":\"system\",\"subtype\":\"init\"}\n",
        "{\"type\":\"assistant\",\"message\":{\"content\":[{\"type\":\"thinking\",\"thinking\":\"hm\"}]}}\n",
        &message("a"),
        "{\"type\":\"user\",\"message\":{\"content\":[{\"type\":\"text\",\"text\":\"no\"}]}}\n",
        "{\"type\":\"assistant\",\"message\":{\"content\":[{\"type\":\"tool_use\",\"name\":\"x\"}]}}\n",
        &message("b"),
        "{\"type\":\"result\",\"subtype\":\"success\",\"is_error\":false,\"result\":\"b\"}\n",
    ]
    .concat();
    check(StreamJson, &whole, &["r:hm", "t:a\n\nb"], stop());
    let delta = |kind: &str, member: &str, text: &str| {
        format!(
            "{{\"type\":\"stream_event\",\"event\":{{\"type\":\"content_block_delta\",\"delta\":{{\"type\":\"{kind}\",\"{member}\":\"{text}\"}}}}}}\n"
        )
    };
    let start = "{\"type\":\"stream_event\",\"event\":{\"type\":\"message_start\"}}\n";
    let pieces = [
        start,
        &delta("thinking_delta", "thinking", "h"),
        &delta("thinking_delta", "thinking", "m"),
        "{\"type\":\"assistant\",\"message\":{\"content\":[{\"type\":\"thinking\",\"thinking\":\"hm\"}]}}\n",
        &delta("text_delta", "text", "a"),
        &delta("input_json_delta", "partial_json", "no"),
        &delta("text_delta", "text", "b"),
        &message("ab"),
        start,
        &delta("text_delta", "text", "c"),
        &message("c"),
        "{\"type\":\"result\",\"result\":\"c\"}\n",
    ]
    .concat();
    check(StreamJson, &pieces, &["r:hm", "t:ab\n\nc"], stop());
    let chunks = concat!(
        "{\"type\":\"message\",\"role\":\"user\",\"content\":\"no\"}\n",
        "{\"type\":\"message\",\"role\":\"assistant\",\"content\":\"a\",\"delta\":true}\n",
        "{\"type\":\"message\",\"role\":\"assistant\",\"content\":\"b\",\"delta\":true}\n",
        "{\"type\":\"result\",\"status\":\"success\",\"stats\":{}}\n",
    );
    check(StreamJson, chunks, &["t:ab"], stop());
    let items = concat!(
        "{\"type\":\"item.completed\",\"item\":{\"type\":\"reasoning\",\"text\":\"hm\"}}\n",
        "{\"type\":\"item.completed\",\"item\":{\"type\":\"agent_message\",\"text\":\"a\"}}\n",
        "{\"type\":\"item.completed\",\"item\":{\"type\":\"command_execution\",\"text\":\"no\"}}\n",
        "{\"type\":\"item.completed\",\"item\":{\"type\":\"agent_message\",\"text\":\"b\"}}\n",
        "{\"type\":\"turn.completed\",\"usage\":{\"input_tokens\":3,\"output_tokens\":4}}\n",
    );
    check(StreamJson, items, &["r:hm", "t:a\n\nb"], Ok(Finished { reason: "stop", usage: counted(3, 4) }));
}

#[test]
fn an_end_alone_is_an_answer_and_nothing_at_all_is_none() {
    use OutputFormat::StreamJson;
    check(StreamJson, "{\"type\":\"result\",\"result\":\"a\"}", &["t:a"], stop());
    check(StreamJson, "{\"type\":\"text\",\"text\":\"a\"}", &["t:a"], stop());
    for nothing in ["", "\n\n", "hello\n", "{\"type\":\"system\"}\n", "{\"type\":\"text\",\"text\":\"\"}\n"] {
        check(StreamJson, nothing, &[], Err(ReadError::NoAnswer));
    }
}

#[test]
fn failures_that_are_reported_are_failures_and_warnings_only_when_nothing_else_came() {
    use OutputFormat::StreamJson;
    let text = "{\"type\":\"text\",\"text\":\"a\"}\n";
    let warning = "{\"type\":\"error\",\"message\":\"quota is low\"}\n";
    check(
        StreamJson,
        "{\"type\":\"result\",\"is_error\":true,\"result\":\"no key\"}",
        &[],
        reported("no key"),
    );
    check(
        StreamJson,
        &format!("{text}{{\"type\":\"turn.failed\",\"error\":{{\"message\":\"m\"}}}}"),
        &["t:a"],
        reported("m"),
    );
    check(StreamJson, &format!("{warning}{text}"), &["t:a"], stop());
    check(StreamJson, warning, &[], reported("quota is low"));
    check(StreamJson, &format!("{warning}{{\"type\":\"result\"}}"), &[], reported("quota is low"));
    for (format, output, complaint) in [
        (StreamJson, warning, Some("quota is low")),
        (StreamJson, text, None),
        (OutputFormat::Json, r#"{"is_error":true,"result":"no key"}"#, Some("no key")),
        (OutputFormat::Json, r#"{"result":"a"}"#, None),
        (OutputFormat::Text, "no key", None),
    ] {
        let mut reader = Reader::new(format);
        reader.push(output.as_bytes(), &mut Vec::new()).unwrap();
        assert_eq!(reader.complaint().as_deref(), complaint, "{output}");
    }
}

#[test]
fn bounds_hold_for_lines_objects_and_all_of_an_output() {
    let mut reader = Reader::new(OutputFormat::StreamJson);
    let mut said = Vec::new();
    let line = vec![b'x'; LINE_BYTES_MAX];
    reader.push(&line, &mut said).unwrap();
    reader.push(b"\n", &mut said).unwrap();
    reader.push(&line, &mut said).unwrap();
    assert_eq!(reader.push(b"x", &mut said), Err(ReadError::LineTooLong));
    let mut reader = Reader::new(OutputFormat::StreamJson);
    reader.push(&line, &mut said).unwrap();
    assert_eq!(reader.push(b"x\n", &mut said), Err(ReadError::LineTooLong));
    let mut reader = Reader::new(OutputFormat::Json);
    reader.push(&vec![b' '; OBJECT_BYTES_MAX], &mut said).unwrap();
    assert_eq!(reader.push(b" ", &mut said), Err(ReadError::TooLong(OBJECT_BYTES_MAX)));
    for format in [OutputFormat::Text, OutputFormat::StreamJson] {
        let mut reader = Reader::new(format);
        let mut piece = [b'x'; 64 * 1024];
        piece[piece.len() - 1] = b'\n';
        for _ in 0..OUTPUT_BYTES_MAX / piece.len() {
            reader.push(&piece, &mut Vec::new()).unwrap();
        }
        assert_eq!(reader.push(b"\n", &mut said), Err(ReadError::TooLong(OUTPUT_BYTES_MAX)));
    }
    let deep = format!("{}\n", "[".repeat(LINE_BYTES_MAX / 2));
    let mut reader = Reader::new(OutputFormat::StreamJson);
    reader.push(deep.as_bytes(), &mut Vec::new()).unwrap();
}
