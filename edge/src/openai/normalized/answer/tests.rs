use std::collections::BTreeMap;

use super::*;

fn event(kind: RunEventKind) -> RunEvent {
    RunEvent { stream: 1, sequence: 0, kind, run_id: String::new(), metadata: BTreeMap::new() }
}

fn text(text: &str) -> RunEvent {
    event(RunEventKind::Delta { text: text.to_owned(), reasoning: String::new() })
}

fn complete(calls: &str) -> RunEvent {
    let mut event = event(RunEventKind::Complete { finish_reason: "stop".to_owned(), usage: None });
    event.metadata.insert(TOOL_CALLS_KEY.to_owned(), calls.to_owned());
    event
}

// req: RUN-3
#[test]
fn text_of_the_answer_is_no_call_whatever_it_looks_like() {
    let mut answer = Answer::new(Asked::default());
    let said = r#"<tool_call>{"name":"f","arguments":{}}</tool_call>"#;
    let mut pieces = Vec::new();
    answer.event(text(said), &mut pieces).unwrap();
    let finish = answer.event(complete("[]"), &mut pieces).unwrap().unwrap();
    assert_eq!(pieces, [Piece::Text(said.to_owned())]);
    assert_eq!(finish.reason, FinishReason::Stop);
}

#[test]
fn calls_that_are_none_are_an_error_and_nothing_else() {
    for calls in ["", "{}", "[5]", r#"[{"id":"a","type":"magic","function":{"name":"f","arguments":""}}]"#] {
        let mut pieces = Vec::new();
        let error = Answer::new(Asked::default()).event(complete(calls), &mut pieces).unwrap_err();
        assert_eq!((error, pieces.len()), (AnswerError::Calls, 0), "{calls}");
    }
}

#[test]
fn of_several_calls_the_first_is_kept_where_one_was_asked_for() {
    let calls = r#"[{"id":"a","type":"function","function":{"name":"f","arguments":"{}"}},{"id":"b","type":"function","function":{"name":"g","arguments":"{}"}}]"#;
    for (single_call, expected) in [(true, 1), (false, 2)] {
        let mut pieces = Vec::new();
        Answer::new(Asked { single_call, ..Asked::default() }).event(complete(calls), &mut pieces).unwrap();
        assert_eq!(pieces.len(), expected);
    }
}

#[test]
fn only_an_answer_that_is_gathered_has_a_bound() {
    let part = "x".repeat(1024 * 1024);
    for whole in [true, false] {
        let mut answer = Answer::new(Asked { whole, ..Asked::default() });
        let mut pieces = Vec::new();
        for _ in 0..ANSWER_BYTES_MAX / part.len() {
            answer.event(text(&part), &mut pieces).unwrap();
            pieces.clear();
        }
        let more = answer.event(text("x"), &mut pieces);
        assert_eq!(more.err(), whole.then_some(AnswerError::TooLong));
    }
}

const WRITTEN: &str = r#"<tool_call>{"name":"f","arguments":{"a":1}}</tool_call>"#;

fn marked(mut event: RunEvent) -> RunEvent {
    event.metadata.insert(TEXT_TOOL_FALLBACK_KEY.to_owned(), "true".to_owned());
    event
}

/// The pieces and the end of an answer that writes its call, marked at its start, at its end, or not at all.
fn written(whole: bool, tools: &[&str], start: bool, end: bool) -> (Vec<Piece>, Finish, bool) {
    let tools = tools.iter().map(|name| (*name).to_owned()).collect();
    let mut answer = Answer::new(Asked { whole, tools, request: "req_ab".into(), ..Asked::default() });
    let (begin, last) = (
        event(RunEventKind::Start),
        event(RunEventKind::Complete { finish_reason: "stop".to_owned(), usage: None }),
    );
    let mut pieces = Vec::new();
    let begin = if start { marked(begin) } else { begin };
    answer.event(begin, &mut pieces).unwrap();
    answer.event(text(WRITTEN), &mut pieces).unwrap();
    let last = if end { marked(last) } else { last };
    let finish = answer.event(last, &mut pieces).unwrap().unwrap();
    (pieces, finish, answer.has_text_tools())
}

// req: RUN-4
#[test]
fn calls_are_taken_out_of_the_text_of_a_marked_run_and_of_no_other() {
    for whole in [true, false] {
        let (pieces, finish, told) = written(whole, &["f"], true, true);
        let [Piece::Call(call)] = &pieces[..] else { panic!("{pieces:?}") };
        assert_eq!((call.id.as_str(), call.function.name.as_str()), ("call_ab0", "f"));
        assert_eq!((finish.reason, told), (FinishReason::ToolCalls, true));
        for (tools, start) in [(&["f"][..], false), (&[], true)] {
            let (pieces, finish, told) = written(whole, tools, start, start);
            assert_eq!(pieces, [Piece::Text(WRITTEN.to_owned())], "{tools:?}");
            assert_eq!((finish.reason, told), (FinishReason::Stop, false));
        }
    }
    // A mark that comes with the end is in time for an answer that is gathered.
    assert!(matches!(written(true, &["f"], false, true).0[..], [Piece::Call(_)]));
    assert!(matches!(written(false, &["f"], false, true).0[..], [Piece::Text(_)]));
}

// req: RUN-4
#[test]
fn what_a_model_thinks_is_never_a_call() {
    let mut answer = Answer::new(Asked { tools: vec!["f".to_owned()], ..Asked::default() });
    let mut pieces = Vec::new();
    answer.event(marked(event(RunEventKind::Start)), &mut pieces).unwrap();
    let thought = RunEventKind::Delta { text: String::new(), reasoning: WRITTEN.to_owned() };
    answer.event(event(thought), &mut pieces).unwrap();
    assert_eq!(pieces, [Piece::Reasoning(WRITTEN.to_owned())]);
}
