use serde_json::{Value, json};

use super::{super::refusal::ProviderErrorKind, *};

type Read = Result<(Vec<Piece>, Finish), (Vec<Piece>, Trouble)>;

fn read_pieces(form: Form, pieces: &[&[u8]]) -> Read {
    let mut reader = Reader::new(form, "req_7".into(), false, true);
    let (mut said, mut finish) = (Vec::new(), None);
    let mut all = || {
        for bytes in pieces {
            finish = finish.or(reader.push(bytes, &mut said)?);
        }
        Ok(finish.or(reader.end(&mut said)?))
    };
    match all() {
        Ok(finish) => Ok((said, finish.expect("an answer has an end"))),
        Err(trouble) => Err((said, trouble)),
    }
}

/// What an answer says, which must be the same split at every byte and byte by byte.
fn read(form: Form, text: &str) -> Read {
    let bytes = text.as_bytes();
    let whole = read_pieces(form, &[bytes]);
    for at in 0..=bytes.len() {
        let (left, right) = bytes.split_at(at);
        assert_eq!(read_pieces(form, &[left, right]), whole, "at {at}");
    }
    let single: Vec<_> = bytes.chunks(1).collect();
    assert_eq!(read_pieces(form, &single), whole);
    whole
}

fn events(chunks: &[Value]) -> String {
    let mut text: String = chunks.iter().map(|chunk| format!("data: {chunk}\n\n")).collect();
    text.push_str("data: [DONE]\n\n");
    text
}

fn delta(delta: Value) -> Value {
    json!({"id": "x", "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta, "finish_reason": null}]})
}

fn ended(word: &str) -> Value {
    json!({"choices": [{"index": 0, "delta": {}, "finish_reason": word}]})
}

fn calls(list: Value) -> Value {
    delta(json!({"tool_calls": list}))
}

fn text(text: &str) -> Piece {
    Piece::Text(text.to_owned())
}

fn thought(text: &str) -> Piece {
    Piece::Reasoning(text.to_owned())
}

fn begun(id: &str, name: &str) -> Piece {
    Piece::CallBegun { id: id.to_owned(), name: name.to_owned() }
}

fn arguments(text: &str) -> Piece {
    Piece::Arguments(text.to_owned())
}

fn said(chunks: &[Value]) -> Vec<Piece> {
    read(Form::Events, &events(chunks)).unwrap().0
}

fn reason(chunks: &[Value]) -> FinishReason {
    read(Form::Events, &events(chunks)).unwrap().1.reason
}

#[test]
fn text_and_thinking_come_as_they_are_said_and_usage_is_the_last_count() {
    let usage = |prompt: u64, completion: u64| {
        json!({"choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": completion,
            "prompt_tokens_details": {"cached_tokens": 3}, "completion_tokens_details": null}})
    };
    let chunks = [
        delta(json!({"role": "assistant", "content": ""})),
        delta(json!({"reasoning_content": "hm", "reasoning": "hm"})),
        delta(json!({"reasoning": " so", "content": null})),
        delta(json!({"content": "é😀\n", "reasoning_content": null, "tool_calls": []})),
        delta(json!({"content": [{"type": "text", "text": "b"}, {"type": "x"}]})),
        delta(json!({"refusal": "no"})),
        ended("stop"),
        usage(9, 1),
        usage(9, 4),
    ];
    let (pieces, finish) = read(Form::Events, &events(&chunks)).unwrap();
    assert_eq!(pieces, [thought("hm"), thought(" so"), text("é😀\n"), text("b"), text("no")]);
    let usage = Usage {
        input_tokens: Some(9),
        output_tokens: Some(4),
        cached_input_tokens: Some(3),
        reasoning_tokens: None,
    };
    assert_eq!(finish, Finish { reason: FinishReason::Stop, usage: Some(usage) });
}

#[test]
fn pings_comments_and_names_of_events_say_nothing() {
    let stream = format!(
        ": ping\n\nevent: message\nid: 4\ndata: {}\n\n: ka\ndata:\n\ndata: {{\"type\":\"ping\"}}\n\nretry: 1\n\n{}",
        delta(json!({"content": "a"})),
        events(&[ended("stop")])
    );
    assert_eq!(read(Form::Events, &stream).unwrap().0, [text("a")]);
}

// case 60
#[test]
fn the_first_fragment_of_arguments_is_told_at_once() {
    let mut reader = Reader::new(Form::Events, "req_7".into(), false, false);
    let mut pieces = Vec::new();
    for (delta, expected) in [
        (
            json!([{"index": 0, "id": "c1", "type": "function", "function": {"name": "f", "arguments": ""}}]),
            begun("c1", "f"),
        ),
        (json!([{"index": 0, "function": {"arguments": "{\"a"}}]), arguments("{\"a")),
        (json!([{"index": 0, "function": {"arguments": "\":1}"}}]), arguments("\":1}")),
    ] {
        let event = format!("data: {}\n\n", calls(delta));
        assert_eq!(reader.push(event.as_bytes(), &mut pieces), Ok(None));
        assert_eq!(std::mem::take(&mut pieces), [expected]);
    }
    let end = events(&[ended("tool_calls")]);
    let finish = Finish { reason: FinishReason::ToolCalls, usage: None };
    assert_eq!(
        reader.push(end.as_bytes(), &mut pieces),
        Ok(Some(finish)),
        "at [DONE], not at the body's end"
    );
    assert_eq!((reader.end(&mut pieces), &*pieces), (Ok(None), &[][..]));
}

/// Two calls, with text before them.
fn two() -> [Piece; 5] {
    [text("t"), begun("a", "f"), arguments("{\"x\":1}"), begun("b", "g"), arguments("{\"y\":2}")]
}

// case 58
#[test]
fn calls_are_told_apart_whatever_their_indexes_are() {
    let whole = |index: Value, id: Value, name: &str, arguments: &str| json!({"index": index, "id": id, "type": "function", "function": {"name": name, "arguments": arguments}});
    let (x, y) = ("{\"x\":1}", "{\"y\":2}");
    for (what, first, second) in [
        ("usual", json!(0), json!(1)),
        ("from one", json!(1), json!(2)),
        ("as text", json!("0"), json!("1")),
        ("all the same", json!(0), json!(0)),
        ("none", Value::Null, Value::Null),
        ("far apart", json!(7), json!(3)),
    ] {
        let (a, b) = (whole(first, json!("a"), "f", x), whole(second, json!("b"), "g", y));
        let one_by_one =
            [delta(json!({"content": "t"})), calls(json!([a])), calls(json!([b])), ended("tool_calls")];
        assert_eq!(said(&one_by_one), two(), "{what}");
        let at_once = [delta(json!({"content": "t"})), calls(json!([a, b])), ended("stop")];
        assert_eq!(said(&at_once), two(), "{what}");
        assert_eq!(reason(&at_once), FinishReason::ToolCalls, "{what}");
    }
}

#[test]
fn calls_without_identities_get_some_and_are_told_apart_by_their_arguments() {
    let nameless =
        |name: &str, arguments: &str| json!({"index": 0, "function": {"name": name, "arguments": arguments}});
    let expected =
        [begun("call_70", "f"), arguments("{\"x\":1}"), begun("call_71", "f"), arguments("{\"y\":2}")];
    let chunks = [calls(json!([nameless("f", "{\"x\":1}"), nameless("f", "{\"y\":2}")])), ended("stop")];
    assert_eq!(said(&chunks), expected);
    // An identity that two calls have is the first one's.
    let same = |index: u32, name: &str| json!({"index": index, "id": "c", "function": {"name": name, "arguments": "{}"}});
    let chunks = [calls(json!([same(0, "f"), same(1, "g")])), ended("stop")];
    assert_eq!(said(&chunks), [begun("c", "f"), arguments("{}"), begun("call_71", "g"), arguments("{}")]);
}

#[test]
fn an_identity_and_a_name_that_are_said_with_every_fragment_are_told_once() {
    let fragment = |arguments: &str| {
        calls(
            json!([{"index": 0, "id": "a", "type": "function", "function": {"name": "f", "arguments": arguments}}]),
        )
    };
    let chunks = [fragment(""), fragment("{\"x\""), fragment(":1}"), fragment(""), ended("tool_calls")];
    assert_eq!(said(&chunks), [begun("a", "f"), arguments("{\"x\""), arguments(":1}")]);
}

#[test]
fn a_name_may_come_behind_its_call_and_arguments_behind_a_wrong_index() {
    let chunks = [
        calls(json!([{"index": 0, "id": "a"}])),
        calls(json!([{"index": 0, "function": {"arguments": "{"}}])),
        calls(json!([{"index": 0, "function": {"name": "f"}}])),
        // Case 59: the name on one index, its arguments on the next.
        calls(json!([{"index": 1, "function": {"arguments": "}"}}])),
        ended("tool_calls"),
    ];
    assert_eq!(said(&chunks), [begun("a", "f"), arguments("{"), arguments("}")]);
}

#[test]
fn calls_that_come_side_by_side_are_told_one_after_the_other() {
    let part =
        |index: u32, arguments: &str| calls(json!([{"index": index, "function": {"arguments": arguments}}]));
    let chunks = [
        calls(
            json!([{"index": 0, "id": "a", "function": {"name": "f"}}, {"index": 1, "id": "b", "function": {"name": "g"}}]),
        ),
        part(1, "{\"y\""),
        part(0, "{\"x\""),
        part(1, ":2}"),
        delta(json!({"content": "behind"})),
        part(0, ":1}\n"),
        ended("tool_calls"),
    ];
    let expected = [
        begun("a", "f"),
        arguments("{\"x\""),
        arguments(":1}"),
        begun("b", "g"),
        arguments("{\"y\":2}"),
        text("behind"),
    ];
    assert_eq!(said(&chunks), expected);
}

#[test]
fn text_may_follow_a_call_and_a_call_may_have_no_arguments() {
    let call = |id: &str, arguments: &str| {
        calls(json!([{"index": id, "id": id, "function": {"name": "f", "arguments": arguments}}]))
    };
    let chunks = [
        call("1", "{}"),
        delta(json!({"content": "then"})),
        call("2", ""),
        call("3", ""),
        ended("tool_calls"),
    ];
    let expected = [
        begun("1", "f"),
        arguments("{}"),
        text("then"),
        begun("2", "f"),
        arguments("{}"),
        begun("3", "f"),
        arguments("{}"),
    ];
    assert_eq!(said(&chunks), expected);
}

#[test]
fn arguments_may_be_an_object_and_the_older_form_is_a_call_as_any_other() {
    let object =
        [calls(json!([{"id": "a", "function": {"name": "f", "arguments": {"x": 1}}}])), ended("stop")];
    assert_eq!(said(&object), [begun("a", "f"), arguments("{\"x\":1}")]);
    let legacy = [
        delta(json!({"function_call": {"name": "f", "arguments": "{\"x\""}})),
        delta(json!({"function_call": {"arguments": ":1}"}})),
        ended("function_call"),
    ];
    assert_eq!(said(&legacy), [begun("call_70", "f"), arguments("{\"x\""), arguments(":1}")]);
    assert_eq!(reason(&legacy), FinishReason::ToolCalls);
}

#[test]
fn of_one_call_that_was_asked_for_there_is_one() {
    let call =
        |id: &str| calls(json!([{"index": id, "id": id, "function": {"name": "f", "arguments": "{}"}}]));
    let stream = events(&[call("1"), call("2"), ended("tool_calls")]);
    let mut reader = Reader::new(Form::Events, "r".into(), true, false);
    let mut pieces = Vec::new();
    assert!(reader.push(stream.as_bytes(), &mut pieces).unwrap().is_some());
    assert_eq!(pieces, [begun("1", "f"), arguments("{}")]);
}

#[test]
fn reasons_to_end_are_known_ones() {
    let a_call = || calls(json!([{"id": "a", "function": {"name": "f", "arguments": "{}"}}]));
    for (word, plain, with_call) in [
        ("stop", FinishReason::Stop, FinishReason::ToolCalls),
        ("tool_calls", FinishReason::Stop, FinishReason::ToolCalls),
        ("abort", FinishReason::Stop, FinishReason::ToolCalls),
        ("length", FinishReason::Length, FinishReason::Length),
        ("content_filter", FinishReason::ContentFilter, FinishReason::ContentFilter),
    ] {
        assert_eq!(reason(&[delta(json!({"content": "a"})), ended(word)]), plain, "{word}");
        assert_eq!(reason(&[a_call(), ended(word)]), with_call, "{word}");
    }
}

#[test]
fn other_choices_than_the_one_are_nothing() {
    let both = json!({"choices": [{"index": 0, "delta": {"content": "a"}}, {"index": 1, "delta": {"content": "b"}}]});
    assert_eq!(said(&[both, ended("stop")]), [text("a")]);
}

// req: API-1
#[test]
fn an_answer_that_ends_early_is_cut_and_one_that_said_its_end_is_whole() {
    let trouble = |stream: &str| read(Form::Events, stream).unwrap_err().1;
    let said = format!("data: {}\n\n", delta(json!({"content": "a"})));
    assert_eq!(trouble(&said), Trouble::Cut);
    assert_eq!(trouble(&format!("{said}data: {{\"choi")), Trouble::Cut);
    assert_eq!(trouble(""), Trouble::Cut);
    assert_eq!(trouble(": ping\n\n"), Trouble::Cut);
    assert_eq!(trouble("data: [DONE]\n\n"), Trouble::Malformed, "nothing is no answer");
    for end in
        [format!("data: {}\n\n", ended("stop")), "data: [DONE]".to_owned(), "data: [DONE]\n".to_owned()]
    {
        assert_eq!(read(Form::Events, &format!("{said}{end}")).unwrap().0, [text("a")], "{end}");
    }
    let late = format!("{said}data: [DONE]\n\ndata: {}\n\ndata: x\n\n", delta(json!({"content": "b"})));
    assert_eq!(read(Form::Events, &late).unwrap().0, [text("a")]);
}

#[test]
fn what_is_no_chat_completion_is_told_from_what_tells_of_a_failure() {
    let trouble = |event: &str| {
        let stream = format!("data: {}\n\ndata: {event}\n\n", delta(json!({"content": "a"})));
        read(Form::Events, &stream).unwrap_err()
    };
    for malformed in ["{", "[]", "3", "null", "{\"choices\":3}", "{\"choices\":[{\"delta\":[]}]}", "\u{0}"] {
        // The beginning of an object is cut only where the stream ends in it.
        let (said, trouble) = trouble(malformed);
        assert_eq!((said, trouble), (vec![text("a")], Trouble::Malformed), "{malformed}");
    }
    for (event, status, words) in [
        (
            json!({"error": {"message": "out of\nmemory", "type": "server_error", "code": 500}}),
            500,
            "out of memory",
        ),
        (json!({"object": "error", "message": "no", "type": "BadRequestError", "code": 400}), 400, "no"),
        (json!({"error": "model gone"}), 502, "model gone"),
        (json!({"error": {"message": "slow", "type": "rate_limit_error"}}), 429, "slow"),
    ] {
        let (said, trouble) = trouble(&event.to_string());
        assert_eq!(said, [text("a")]);
        let Trouble::Failed(error) = trouble else { panic!("{trouble:?}") };
        assert_eq!((error.status, &*error.words), (status, words), "{event}");
    }
    let (_, failed) = trouble(&ended("error").to_string());
    assert_eq!(failed, Trouble::Failed(ProviderError::silent()));
}

#[test]
fn an_answer_in_one_piece_is_the_same_as_one_in_many() {
    let call = |id: &str, name: &str, arguments: &str| json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}});
    let whole = json!({"id": "x", "object": "chat.completion",
        "choices": [{"index": 0, "finish_reason": "tool_calls", "message": {"role": "assistant",
            "content": "t", "reasoning": "hm", "refusal": null, "function_call": null,
            "tool_calls": [call("a", "f", "{\"x\":1}"), call("b", "g", "{\"y\":2}")]}}],
        "usage": {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}});
    let (pieces, finish) = read(Form::Whole, &whole.to_string()).unwrap();
    assert_eq!(pieces, [&[thought("hm")][..], &two()].concat());
    let usage = Usage { input_tokens: Some(5), output_tokens: Some(2), ..Usage::default() };
    assert_eq!(finish, Finish { reason: FinishReason::ToolCalls, usage: Some(usage) });
    let silent = json!({"choices": [{"message": {"content": null}, "finish_reason": "length"}]});
    assert_eq!(read(Form::Whole, &silent.to_string()).unwrap().1.reason, FinishReason::Length);
}

// req: API-1
#[test]
fn an_object_that_is_none_is_cut_malformed_or_a_failure() {
    let trouble = |body: &str| read(Form::Whole, body).unwrap_err().1;
    assert_eq!(trouble(""), Trouble::Cut);
    assert_eq!(trouble("{\"choices\":[{\"mess"), Trouble::Cut);
    assert_eq!(trouble("<html>"), Trouble::Malformed);
    assert_eq!(trouble("{}"), Trouble::Malformed);
    assert_eq!(trouble("{\"choices\":[]}"), Trouble::Malformed);
    let Trouble::Failed(error) = trouble("{\"error\":{\"message\":\"maximum context length is 5\"}}") else {
        panic!("it tells of a failure")
    };
    assert_eq!((error.status, error.kind), (400, ProviderErrorKind::ContextTooLong));
}

#[test]
fn what_does_not_end_is_ended() {
    let mut pieces = Vec::new();
    let mut reader = Reader::new(Form::Whole, "r".into(), false, true);
    let megabyte = vec![b' '; 1 << 20];
    for _ in 0..4 {
        assert_eq!(reader.push(&megabyte, &mut pieces), Ok(None));
    }
    assert_eq!(reader.push(b" ", &mut pieces), Err(Trouble::TooLong));
    let mut reader = Reader::new(Form::Events, "r".into(), false, false);
    assert_eq!(reader.push(&megabyte, &mut pieces), Ok(None));
    assert_eq!(reader.push(b" ", &mut pieces), Err(Trouble::TooLong));
    let many: Vec<_> = (0..=CALLS_MAX)
        .map(|n| json!({"index": n, "id": n.to_string(), "function": {"name": "f"}}))
        .collect();
    let stream = events(&[calls(Value::Array(many)), ended("stop")]);
    assert_eq!(read_pieces(Form::Events, &[stream.as_bytes()]).unwrap_err().1, Trouble::TooLong);
    // Text behind a call that never ends waits, and not without bound.
    let open = calls(json!([{"index": 0, "id": "a", "function": {"name": "f", "arguments": "{"}}]));
    let text = delta(json!({"content": "x".repeat(1 << 19)}));
    let stream = events(&[&[open][..], &vec![text; 9]].concat());
    assert_eq!(read_pieces(Form::Events, &[stream.as_bytes()]).unwrap_err().1, Trouble::TooLong);
}

/// A generator that is the same every time.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % sides
    }

    fn pick<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        &list[self.roll(list.len())]
    }
}

/// What pieces must be whatever came: arguments only behind the beginning of a call, and identities that differ.
fn well_formed(pieces: &[Piece]) -> bool {
    let mut ids = std::collections::HashSet::new();
    let mut in_call = false;
    pieces.iter().all(|piece| match piece {
        Piece::CallBegun { id, name } => {
            in_call = true;
            !name.is_empty() && !id.is_empty() && ids.insert(id.clone())
        }
        Piece::Arguments(text) => in_call && !text.is_empty(),
        Piece::Text(text) | Piece::Reasoning(text) => {
            in_call = false;
            !text.is_empty()
        }
        Piece::Call(_) => false,
    })
}

#[test]
fn whatever_comes_is_read_the_same_however_it_is_split_and_its_pieces_fit_together() {
    let mut dice = Dice(8);
    let fragments = [
        "data: ",
        "data:",
        "{",
        "}",
        "[",
        "]",
        "\n",
        "\n\n",
        "\r\n\r\n",
        ": ping\n",
        "[DONE]",
        "\"",
        ",",
        "null",
        "0",
        "\"choices\":[{\"delta\":{",
        "}}]}",
        "\"content\":\"a\"",
        "\"tool_calls\":[{\"index\":0,",
        "\"id\":\"c\"",
        "\"function\":{\"name\":\"f\",\"arguments\":\"{\"",
        "\"finish_reason\":\"stop\"",
        "\"error\":",
        "é",
        "\u{feff}",
        "x",
    ];
    let values = [json!(0), json!(1), json!(2), Value::Null, json!("1"), json!(-1), json!({})];
    let ids = [json!("a"), json!("b"), Value::Null, json!(""), json!(5)];
    let names = [json!("f"), json!("g"), Value::Null, json!("")];
    let texts = ["", "{", "}", "{}", "\"x\":", "1", "\"}\"", " ", "{\"a\":[1,{}]}"];
    for round in 0..4_000 {
        let mut stream = String::new();
        for _ in 0..dice.roll(14) {
            if round % 2 == 0 {
                stream.push_str(fragments[dice.roll(fragments.len())]);
                continue;
            }
            let chunk = match dice.roll(5) {
                0 => delta(json!({"content": *dice.pick(&texts)})),
                1 => delta(json!({"reasoning": *dice.pick(&texts)})),
                2 => ended(["stop", "length", "x"][dice.roll(3)]),
                _ => {
                    let function = json!({"name": dice.pick(&names), "arguments": *dice.pick(&texts)});
                    calls(json!([{"index": dice.pick(&values), "id": dice.pick(&ids), "function": function}]))
                }
            };
            stream.push_str(&format!("data: {chunk}\n\n"));
        }
        if dice.roll(2) == 0 {
            stream.push_str("data: [DONE]\n\n");
        }
        let bytes = stream.as_bytes();
        let whole = read_pieces(Form::Events, &[bytes]);
        let (Ok((pieces, _)) | Err((pieces, _))) = &whole;
        assert!(well_formed(pieces), "{stream:?} is {pieces:?}");
        let cut = dice.roll(bytes.len() + 1);
        let (left, right) = bytes.split_at(cut);
        assert_eq!(read_pieces(Form::Events, &[left, right]), whole, "{stream:?} at {cut}");
        let single: Vec<_> = bytes.chunks(1 + dice.roll(3)).collect();
        assert_eq!(read_pieces(Form::Events, &single), whole, "{stream:?}");
        let object = read_pieces(Form::Whole, &[bytes]);
        assert_eq!(read_pieces(Form::Whole, &[left, right]), object, "{stream:?}");
    }
}
