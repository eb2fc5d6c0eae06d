use super::*;
use crate::usage::State;

/// What is known of a stream, which must be the same however it is split.
fn observed(surface: Surface, text: &str) -> Observed {
    let bytes = text.as_bytes();
    let whole = follow(surface, &[bytes]);
    for at in 0..=bytes.len() {
        let (left, right) = bytes.split_at(at);
        assert_eq!(follow(surface, &[left, right]), whole, "{text:?} at {at}");
    }
    for size in [1, 2, 3, 7, 64, 500] {
        let pieces: Vec<_> = bytes.chunks(size).collect();
        assert_eq!(follow(surface, &pieces), whole, "{text:?} by {size}");
    }
    let mut events: Vec<_> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
    assert_eq!(follow(surface, &events), whole, "{text:?} by lines");
    events.insert(0, b"");
    assert_eq!(follow(surface, &events), whole);
    whole
}

fn follow(surface: Surface, pieces: &[&[u8]]) -> Observed {
    let (mut watch, mut splitter) = (Watch::stream(surface), Splitter::new());
    for piece in pieces {
        let split = Split::of(&mut splitter, piece);
        watch.stream_bytes(piece.to_vec(), split);
    }
    watch.end(true)
}

fn totals(observed: Observed) -> (Option<u64>, Option<u64>, State) {
    (observed.counts.input_total(), observed.counts.output, observed.state)
}

fn chat(usage: &str, separator: &str) -> String {
    let chunk =
        |rest: &str| format!("data: {{\"id\":\"x\",\"object\":\"chat.completion.chunk\",{rest}}}\n\n");
    [
        chunk("\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]"),
        chunk("\"choices\":[{\"index\":0,\"delta\":{\"content\":\"\\\"usage\\\":{\\\"prompt_tokens\\\":1}}\"}}]"),
        chunk("\"choices\":[{\"index\":0,\"delta\":{\"content\":\"b\"}}]"),
        separator.to_owned(),
        chunk(usage),
        separator.to_owned(),
        "data: [DONE]\n\n".to_owned(),
    ]
    .concat()
}

const USAGE: &str = "\"usage\":{\"prompt_tokens\":11,\"completion_tokens\":7,\"total_tokens\":18}";

// Cases 69 and 71.
#[test]
fn the_counts_of_a_chat_stream_stand_in_its_last_chunk() {
    let finish = "\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]";
    for separator in ["", ": ping\n\n", ": ping\n", "\n\n"] {
        let known = (Some(11), Some(7), State::Known);
        for last in [format!("\"choices\":[],{USAGE}"), format!("{finish},{USAGE},\"timings\":{{\"n\":1}}")] {
            let text = chat(&last, separator);
            assert_eq!(totals(observed(Surface::Chat, &text)), known, "{text}");
            let crlf = text.replace('\n', "\r\n");
            assert_eq!(totals(observed(Surface::Chat, &crlf)), known);
        }
        // Absent is not zero.
        let unknown = chat(finish, separator);
        assert_eq!(totals(observed(Surface::Chat, &unknown)), (None, None, State::Unknown), "{unknown}");
        let zero = chat("\"choices\":[],\"usage\":{\"prompt_tokens\":0,\"completion_tokens\":0}", separator);
        assert_eq!(totals(observed(Surface::Chat, &zero)), (Some(0), Some(0), State::Zero));
    }
}

#[test]
fn the_counts_of_a_responses_stream_stand_in_its_terminal_event() {
    for (kind, done) in [("completed", "data: [DONE]\n\n"), ("incomplete", ""), ("failed", "")] {
        // Longer than what is kept.
        for padding in [10, 40_000, 200_000] {
            let text = format!(
                "event: response.created\ndata: {{\"type\":\"response.created\",\"response\":{{\"usage\":null}}}}\n\n\
                 event: response.output_text.delta\ndata: {{\"delta\":\"a\"}}\n\n\
                 event: response.{kind}\ndata: {{\"type\":\"response.{kind}\",\"response\":{{\"output\":[\"{}\"],\
                 \"usage\":{{\"input_tokens\":5,\"output_tokens\":6}},\"user\":null}},\"sequence_number\":3}}\n\n{done}",
                "p".repeat(padding)
            );
            let expected = (Some(5), Some(6), State::Known);
            if padding < 100 {
                assert_eq!(totals(observed(Surface::Responses, &text)), expected, "{kind}");
            }
            for size in [100, 4096, 16_384, 65_536, text.len()] {
                let pieces: Vec<_> = text.as_bytes().chunks(size).collect();
                assert_eq!(
                    totals(follow(Surface::Responses, &pieces)),
                    expected,
                    "{kind} {padding} by {size}"
                );
            }
        }
    }
}

fn messages(start: &str, deltas: &[&str]) -> String {
    let event = |name: &str, rest: &str| format!("event: {name}\ndata: {{\"type\":\"{name}\"{rest}}}\n\n");
    let mut text = event("message_start", &format!(",\"message\":{{\"content\":[],\"usage\":{start}}}"));
    text += &event("content_block_start", ",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}");
    text += &event("ping", "");
    text += &event(
        "content_block_delta",
        ",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"message_delta\"}",
    );
    text += &event("content_block_stop", ",\"index\":0");
    for usage in deltas {
        text += &event(
            "message_delta",
            &format!(",\"delta\":{{\"stop_reason\":\"end_turn\"}},\"usage\":{usage}"),
        );
        text += &event("ping", "");
    }
    text + &event("message_stop", "")
}

// Cases 69 and 70.
#[test]
fn the_counts_of_messages_are_totals_of_which_the_last_one_counts_once() {
    for (start, deltas, expected) in [
        (
            "{\"input_tokens\":10,\"output_tokens\":1}",
            &["{\"output_tokens\":7}"][..],
            (Some(10), Some(7), State::Known),
        ),
        (
            "{\"input_tokens\":10,\"output_tokens\":1}",
            &["{\"output_tokens\":7}", "{\"output_tokens\":9}"],
            (Some(10), Some(9), State::Known),
        ),
        // An estimate at the beginning, the count at the end.
        (
            "{\"input_tokens\":400,\"output_tokens\":0}",
            &["{\"input_tokens\":12,\"output_tokens\":9}"],
            (Some(12), Some(9), State::Known),
        ),
        (
            "{\"input_tokens\":4,\"cache_read_input_tokens\":100,\"cache_creation_input_tokens\":20,\"output_tokens\":1}",
            &["{\"output_tokens\":9}"],
            (Some(124), Some(9), State::Known),
        ),
        (
            "{\"input_tokens\":0,\"output_tokens\":0}",
            &["{\"output_tokens\":0}"],
            (Some(0), Some(0), State::Zero),
        ),
        ("{}", &[], (None, None, State::Unknown)),
    ] {
        assert_eq!(
            totals(observed(Surface::Messages, &messages(start, deltas))),
            expected,
            "{start} {deltas:?}"
        );
    }
    let bare = messages("{\"input_tokens\":10}", &["{\"output_tokens\":7}"]);
    let without_names: String =
        bare.split_inclusive('\n').filter(|line| !line.starts_with("event:")).collect();
    assert_eq!(totals(observed(Surface::Messages, &without_names)), (Some(10), Some(7), State::Known));
}

// Case 71.
#[test]
fn a_stream_that_breaks_off_has_told_a_part() {
    let text = messages("{\"input_tokens\":10,\"output_tokens\":1}", &["{\"output_tokens\":7}"]);
    let delta = text.find("event: message_delta").unwrap();
    let start_over = text.find("\n\n").unwrap() + 2;
    for cut in 0..text.len() {
        let (mut watch, mut splitter) = (Watch::stream(Surface::Messages), Splitter::new());
        let bytes = &text.as_bytes()[..cut];
        watch.stream_bytes(bytes.to_vec(), Split::of(&mut splitter, bytes));
        let (input, output, state) = totals(watch.end(false));
        assert_eq!(state, State::Partial, "at {cut}");
        assert_eq!(input, (cut >= start_over).then_some(10), "at {cut}");
        if cut < delta {
            assert_eq!(output, (cut >= start_over).then_some(1), "at {cut}");
        }
    }
}

#[test]
fn an_answer_in_one_piece_says_its_counts_at_its_end() {
    for padding in [0, 10_000, 300_000] {
        let text = format!("{{\"choices\":[\"{}\"],{USAGE},\"service_tier\":null}}\n", "p".repeat(padding));
        for size in [1, 3, 100, 5000, 16_384, 65_536, text.len()] {
            if padding > 10_000 && size < 100 {
                continue;
            }
            let mut watch = Watch::whole();
            for piece in text.as_bytes().chunks(size) {
                watch.body(piece.to_vec());
                assert!(watch.last.len() <= (4 * TAIL_BYTES).max(size) + size);
            }
            assert_eq!(totals(watch.end(true)), (Some(11), Some(7), State::Known), "{padding} by {size}");
        }
    }
    assert_eq!(totals(Watch::whole().end(true)), (None, None, State::Unknown));
    let mut error = Watch::whole();
    error.body(b"<html>".to_vec());
    assert_eq!(totals(error.end(true)), (None, None, State::Unknown));
}

#[test]
fn a_long_answer_takes_little_memory() {
    for surface in [Surface::Chat, Surface::Messages] {
        let event = format!("event: x\ndata: {}\n\n", "y".repeat(1_000_000));
        let (mut watch, mut splitter) = (Watch::stream(surface), Splitter::new());
        for piece in event.repeat(3).as_bytes().chunks(60_000) {
            watch.stream_bytes(piece.to_vec(), Split::of(&mut splitter, piece));
            assert!(watch.open.capacity() + watch.last.capacity() <= 16 * TAIL_BYTES);
        }
    }
}
