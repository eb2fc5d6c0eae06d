mod order;

use proptest::prelude::*;
use proto::{
    message::Usage,
    run_input::{Call, CallKind, ToolCall},
};
use serde_json::{Value, json};

use super::*;
use crate::openai::{
    normalized::answer::ANSWER_BYTES_MAX,
    responses::{CallForm, Called},
};

fn names() -> Names {
    let mut names = Names::default();
    for (form, namespace, name) in [
        (CallForm::Function, None, "f"),
        (CallForm::Function, Some("mcp__docs__"), "find"),
        (CallForm::Custom, None, "apply_patch"),
    ] {
        names.add(Called { form, namespace: namespace.map(str::to_owned), name: name.to_owned() }).unwrap();
    }
    names
}

fn shape(stream: bool) -> Shape {
    Shape {
        id: "resp_ab".to_owned(),
        created: 7,
        model: "my/model \"x\"".into(),
        stream,
        echo: Echo::default(),
        names: names(),
    }
}

fn text(text: &str) -> Piece {
    Piece::Text(text.to_owned())
}

fn thought(text: &str) -> Piece {
    Piece::Reasoning(text.to_owned())
}

fn call(id: &str, name: &str, arguments: &str) -> Piece {
    let function = Call { name: name.to_owned(), arguments: arguments.to_owned() };
    Piece::Call(ToolCall { id: id.to_owned(), kind: CallKind::Function, function })
}

fn begun(id: &str, name: &str) -> Piece {
    Piece::CallBegun { id: id.to_owned(), name: name.to_owned() }
}

fn more(arguments: &str) -> Piece {
    Piece::Arguments(arguments.to_owned())
}

fn finish(reason: FinishReason) -> Finish {
    Finish { reason, usage: None }
}

fn said(stream: bool, pieces: &[Piece], finish: &Finish) -> String {
    let (mut writer, mut out) = (Responses::new(shape(stream)), Vec::new());
    pieces.iter().for_each(|piece| writer.piece(piece.clone(), &mut out).unwrap());
    writer.finish(finish, &mut out);
    String::from_utf8(out).unwrap()
}

fn whole(pieces: &[Piece], finish: &Finish) -> Value {
    serde_json::from_str(&said(false, pieces, finish)).unwrap()
}

fn kinds(stream: &str) -> Vec<String> {
    order::events(stream)
        .iter()
        .map(|event| event["type"].as_str().unwrap().replace("response.", ""))
        .collect()
}

// req: RUN-3, RUN-6
#[test]
fn events_come_in_the_order_of_the_page() {
    let pieces = [
        thought("hm"),
        text("so"),
        text(" \"on\"\n"),
        begun("c1", "f"),
        more("{\"a\""),
        more(":1}"),
        text("!"),
    ];
    let stream = said(true, &pieces, &finish(FinishReason::ToolCalls));
    assert_eq!(
        kinds(&stream),
        [
            "created",
            "in_progress",
            "output_item.added",
            "content_part.added",
            "reasoning_text.delta",
            "reasoning_text.done",
            "content_part.done",
            "output_item.done",
            "output_item.added",
            "content_part.added",
            "output_text.delta",
            "output_text.delta",
            "output_text.done",
            "content_part.done",
            "output_item.done",
            "output_item.added",
            "function_call_arguments.delta",
            "function_call_arguments.delta",
            "function_call_arguments.done",
            "output_item.done",
            "output_item.added",
            "content_part.added",
            "output_text.delta",
            "output_text.done",
            "content_part.done",
            "output_item.done",
            "completed",
        ]
    );
    let read = order::read(&stream);
    let message = |id: &str, text: &str| {
        json!({
            "id": id, "type": "message", "status": "completed", "role": "assistant",
            "content": [{"type": "output_text", "annotations": [], "logprobs": [], "text": text}]
        })
    };
    let output = json!([
        {"id": "rs_ab0", "type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
        message("msg_ab1", "so \"on\"\n"),
        {"id": "fc_ab2", "type": "function_call", "status": "completed", "call_id": "c1", "name": "f", "arguments": "{\"a\":1}"},
        message("msg_ab3", "!"),
    ]);
    assert_eq!(read.response["output"], output);
    assert_eq!(whole(&pieces, &finish(FinishReason::ToolCalls))["output"], output);
}

#[test]
fn the_object_has_all_that_its_schemas_require() {
    let usage = Usage {
        input_tokens: Some(3),
        output_tokens: Some(4),
        cached_input_tokens: Some(2),
        reasoning_tokens: Some(1),
    };
    let (mut writer, mut out) = (Responses::new(shape(false)), Vec::new());
    writer.piece(text("a"), &mut out).unwrap();
    writer.completed_at(9);
    writer.finish(&Finish { reason: FinishReason::Stop, usage: Some(usage) }, &mut out);
    let object: Value = serde_json::from_slice(&out).unwrap();
    assert_eq!(
        object,
        json!({
            "id": "resp_ab", "object": "response", "created_at": 7, "model": "my/model \"x\"", "status": "completed",
            "completed_at": 9, "error": null, "incomplete_details": null,
            "output": [{
                "id": "msg_ab0", "type": "message", "status": "completed", "role": "assistant",
                "content": [{"type": "output_text", "annotations": [], "logprobs": [], "text": "a"}]
            }],
            "usage": {
                "input_tokens": 3, "input_tokens_details": {"cached_tokens": 2, "cache_write_tokens": 0},
                "output_tokens": 4, "output_tokens_details": {"reasoning_tokens": 1}, "total_tokens": 7
            },
            "metadata": {}, "tool_choice": "auto", "prompt_cache_key": null, "safety_identifier": null, "user": null,
            "text": {"format": {"type": "text"}}, "tools": [], "reasoning": {"effort": null, "summary": null},
            "instructions": null, "max_output_tokens": null, "max_tool_calls": null, "parallel_tool_calls": true,
            "temperature": 1.0, "top_p": 1.0, "store": false, "background": false, "previous_response_id": null,
            "truncation": "disabled", "service_tier": "default", "top_logprobs": 0, "presence_penalty": 0.0,
            "frequency_penalty": 0.0
        })
    );
    // What was not counted is not claimed, and what did not end has no time of it.
    let cut = whole(&[], &finish(FinishReason::Length));
    assert_eq!(
        (&cut["usage"], &cut["completed_at"], &cut["output"]),
        (&Value::Null, &Value::Null, &json!([]))
    );
}

#[test]
fn an_answer_that_was_cut_is_incomplete_and_so_is_its_last_item() {
    for (reason, word) in
        [(FinishReason::Length, "max_output_tokens"), (FinishReason::ContentFilter, "content_filter")]
    {
        for last in [text("b"), thought("b"), begun("c", "f")] {
            let pieces = [text("a"), thought("h"), last.clone()];
            let read = order::read(&said(true, &pieces, &finish(reason)));
            assert_eq!(read.last, "response.incomplete");
            assert_eq!(read.response["incomplete_details"], json!({ "reason": word }));
            assert_eq!(read.response["output"], json!(read.items));
            assert_eq!(read.items[0]["status"], "completed");
            let status = read.items.last().unwrap()["status"].as_str();
            assert!(status == Some("incomplete") || matches!(last, Piece::Reasoning(_)), "{:?}", read.items);
        }
        // A whole call is whole, whatever was to follow it.
        let read = order::read(&said(true, &[call("c", "f", "{}")], &finish(reason)));
        assert_eq!((&*read.last, &read.items[0]["status"]), ("response.incomplete", &json!("completed")));
        assert_eq!(whole(&[text("a")], &finish(reason))["status"], "incomplete");
    }
}

// req: RUN-3
#[test]
fn calls_come_back_under_the_names_and_in_the_form_that_their_client_has() {
    let patch = "*** Begin Patch\n+\"x\" \u{1f30d}\n*** End Patch";
    let arguments = json!({ "input": patch }).to_string();
    let (early, late) = arguments.split_at(20);
    let pieces = [
        begun("c1", "mcp__docs__find"),
        more("{\"q\":1}"),
        begun("c2", "apply_patch"),
        more(early),
        more(late),
        call("c3", "apply_patch", "{\"patch\":\"only\"}"),
        call("c4", "apply_patch", "{\"a\":\"1\",\"b\":\"2\"}"),
        call("", "invented", ""),
    ];
    let read = order::read(&said(true, &pieces, &finish(FinishReason::ToolCalls)));
    let custom = |id: &str, call_id: &str, input: &str| json!({"id": id, "type": "custom_tool_call", "status": "completed", "call_id": call_id, "name": "apply_patch", "input": input});
    assert_eq!(
        json!(read.items),
        json!([
            {"id": "fc_ab0", "type": "function_call", "status": "completed", "call_id": "c1", "namespace": "mcp__docs__", "name": "find", "arguments": "{\"q\":1}"},
            custom("ctc_ab1", "c2", patch),
            custom("ctc_ab2", "c3", "only"),
            custom("ctc_ab3", "c4", "{\"a\":\"1\",\"b\":\"2\"}"),
            {"id": "fc_ab4", "type": "function_call", "status": "completed", "call_id": "call_ab4", "name": "invented", "arguments": "{}"},
        ])
    );
}

#[test]
fn no_two_calls_of_an_answer_have_one_identity() {
    let pieces = [call("c", "f", "{}"), call("c", "f", "{}"), begun("c", "f"), call("", "f", "")];
    let read = order::read(&said(true, &pieces, &finish(FinishReason::ToolCalls)));
    let ids: Vec<&str> = read.items.iter().map(|item| item["call_id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["c", "c_ab1", "c_ab2", "call_ab3"]);
}

#[test]
fn an_event_without_content_may_come_at_any_place() {
    let (mut writer, mut out) = (Responses::new(shape(true)), Vec::new());
    writer.keep_alive(&mut out);
    writer.keep_alive(&mut out);
    for piece in [text("a"), begun("c", "f"), more("{")] {
        writer.piece(piece, &mut out).unwrap();
        writer.keep_alive(&mut out);
    }
    writer.finish(&finish(FinishReason::Length), &mut out);
    let stream = String::from_utf8(out).unwrap();
    let read = order::read(&stream);
    assert_eq!(kinds(&stream).iter().filter(|kind| *kind == "in_progress").count(), 5);
    assert_eq!(read.response["output"], json!(read.items));
}

// req: API-1
#[test]
fn a_failure_is_told_twice_and_in_words_that_stop_or_delay_codex() {
    let overloaded = "The provider of the model is busy. Try again in a moment. Please try again in 1s.";
    for (fault, code, words) in [
        (Fault::ContextTooLong { tokens: 9, window: 5 }, "context_length_exceeded", "maximum context length"),
        (Fault::ProviderRefused { words: "no \"images\"".to_owned() }, "invalid_prompt", "no \"images\""),
        (Fault::Revoked, "invalid_prompt", "revoked"),
        (Fault::AnswerTooLong, "invalid_prompt", "too long"),
        (Fault::Busy, "rate_limit_exceeded", overloaded),
        (Fault::Draining, "rate_limit_exceeded", "try again in 5s."),
        (Fault::UpstreamTruncated, "server_error", "broke off"),
        (Fault::Cancelled, "server_error", "cancelled"),
    ] {
        for pieces in [vec![], vec![text("a"), call("c", "f", "{}"), begun("d", "f"), more("{")]] {
            let (mut writer, mut out) = (Responses::new(shape(true)), Vec::new());
            pieces.iter().for_each(|piece| writer.piece(piece.clone(), &mut out).unwrap());
            writer.failed(&fault, &mut out);
            let read = order::read(std::str::from_utf8(&out).unwrap());
            assert_eq!(read.last, "response.failed");
            let error = read.error.unwrap();
            assert_eq!(
                (&error["code"], &error["param"]),
                (&json!(code), &json!(fault.param(Surface::Responses)))
            );
            assert!(error["message"].as_str().unwrap().contains(words), "{error}");
            assert_eq!(read.response["error"], json!({"code": code, "message": error["message"]}));
            // The call that was cut is in the object, and has no event that would make a client call it.
            let mut said = read.items;
            said.extend(read.open);
            assert_eq!(read.response["output"], json!(said));
            assert_eq!(said.len(), if pieces.is_empty() { 0 } else { 3 });
        }
    }
    let (mut writer, mut out) = (Responses::new(shape(false)), Vec::new());
    writer.failed(&Fault::Busy, &mut out);
    assert_eq!(out, Fault::Busy.body(Surface::Responses, "").into_bytes());
}

#[test]
fn what_would_be_repeated_at_the_end_has_a_bound() {
    let part = "x".repeat(1024 * 1024);
    for (stream, pieces) in [
        (true, vec![thought(&part), text(&part)]),
        (true, vec![begun("c", "apply_patch"), more(&part)]),
        (false, vec![begun("c", "f"), more(&part)]),
    ] {
        let (mut writer, mut out) = (Responses::new(shape(stream)), Vec::new());
        let mut taken = 0;
        let error = loop {
            let piece = pieces[taken % pieces.len()].clone();
            match writer.piece(piece, &mut out) {
                Ok(()) => taken += 1,
                Err(error) => break error,
            }
            out.clear();
            assert!(taken < 40, "no bound");
        };
        assert_eq!(error, AnswerError::TooLong);
        assert!(taken >= 15, "{taken} MiB were refused");
    }
    // Nor is it text alone that is kept.
    let (mut writer, mut out) = (Responses::new(shape(false)), Vec::new());
    let calls = (0..ANSWER_BYTES_MAX).take_while(|_| writer.piece(begun("c", "f"), &mut out).is_ok()).count();
    assert!(calls < ANSWER_BYTES_MAX / 50, "{calls} calls");
}

/// Texts with all that JSON and event streams escape.
fn words() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => "[a-z ]{0,6}",
        1 => prop::sample::select(vec!["\"", "\\", "\n\n", "\r", "data: ", "\u{0}", "é🌍", "\u{2028}", "", "{\"input\":\"", "\"}"])
            .prop_map(str::to_owned),
    ]
}

fn pieces() -> impl Strategy<Value = Piece> {
    let name = prop::sample::select(vec!["f", "mcp__docs__find", "apply_patch", "odd \"name\"", ""]);
    let id = prop::sample::select(vec!["", "call_1", "x\"y"]);
    prop_oneof![
        3 => words().prop_map(Piece::Text),
        2 => words().prop_map(Piece::Reasoning),
        3 => words().prop_map(Piece::Arguments),
        1 => (id.clone(), name.clone()).prop_map(|(id, name)| begun(id, name)),
        1 => (id, name, words()).prop_map(|(id, name, words)| call(id, name, &words)),
    ]
}

/// What pieces say, told apart from how the writer goes about it: a kind and all its text.
fn sense(pieces: &[Piece]) -> Vec<(&'static str, String)> {
    let mut items: Vec<(&'static str, String)> = Vec::new();
    let form = |name: &str| if name == "apply_patch" { "custom_tool_call" } else { "function_call" };
    // Of a call the arguments must follow at once; a whole one takes no more.
    let mut takes_arguments = false;
    for piece in pieces {
        let mut speak = |kind, text: &String| match items.last_mut() {
            Some((last, all)) if *last == kind => all.push_str(text),
            _ => items.push((kind, text.clone())),
        };
        match piece {
            Piece::Text(text) | Piece::Reasoning(text) if text.is_empty() => continue,
            Piece::Text(text) => speak("message", text),
            Piece::Reasoning(text) => speak("reasoning", text),
            Piece::Arguments(text) => {
                if let Some((_, all)) = items.last_mut().filter(|_| takes_arguments) {
                    all.push_str(text);
                }
                continue;
            }
            Piece::CallBegun { name, .. } => items.push((form(name), String::new())),
            Piece::Call(call) => items.push((form(&call.function.name), call.function.arguments.clone())),
        }
        takes_arguments = matches!(piece, Piece::CallBegun { .. });
    }
    items
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    // req: RUN-3, RUN-6
    #[test]
    fn any_pieces_make_a_stream_in_order_whose_end_is_what_was_said(
        pieces in prop::collection::vec((pieces(), any::<bool>()), 0..24),
        end in prop::sample::select(vec![
            Some(FinishReason::Stop), Some(FinishReason::Length), Some(FinishReason::ToolCalls), Some(FinishReason::ContentFilter), None,
        ]),
    ) {
        let (mut writer, mut out) = (Responses::new(shape(true)), Vec::new());
        for (piece, quiet) in &pieces {
            writer.piece(piece.clone(), &mut out).unwrap();
            if *quiet {
                writer.keep_alive(&mut out);
            }
        }
        match end {
            Some(reason) => writer.finish(&finish(reason), &mut out),
            None => writer.failed(&Fault::Stalled, &mut out),
        }
        let read = order::read(std::str::from_utf8(&out).unwrap());
        let mut items = read.items.clone();
        items.extend(read.open);
        prop_assert_eq!(&read.response["output"], &json!(&items));
        let pieces: Vec<Piece> = pieces.into_iter().map(|(piece, _)| piece).collect();
        let sense = sense(&pieces);
        prop_assert_eq!(items.len(), sense.len());
        for (item, (kind, text)) in items.iter().zip(&sense) {
            prop_assert_eq!(item["type"].as_str(), Some(*kind));
            let found = match *kind {
                "message" | "reasoning" => &item["content"][0]["text"],
                "function_call" => &item["arguments"],
                // Its text is in its arguments, which are of no sense here.
                _ => continue,
            };
            let nothing = text.is_empty() && *kind == "function_call" && item["status"] == "completed";
            prop_assert_eq!(found.as_str(), Some(if nothing { "{}" } else { text.as_str() }));
        }
        if let Some(reason) = end {
            let object = whole(&pieces, &finish(reason));
            prop_assert_eq!(&object, &read.response, "in one piece it is the same");
        }
    }
}
