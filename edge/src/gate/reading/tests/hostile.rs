use super::*;

fn malformed(surface: Surface, stream: &str) -> Option<(usize, usize)> {
    everywhere(surface, stream.as_bytes()).2.err().map(|Malformed { from, until }| (from, until))
}

// req: SEG-8
#[test]
fn an_event_that_is_no_json_is_malformed_and_what_came_before_it_is_told() {
    let role = "data: {\"choices\":[]}\n\n";
    for bad in [
        "data: {\"choices\":[{\"delta\":{\"content\":\"x\n\n",
        "data: {\"choices\":[]}}\n\n",
        "data: <html>\n\n",
        "data: {}{}\n\n",
        "data: {}\ndata: {}\n\n",
        "data: DONE\n\n",
        "data: {'choices':[]}\n\n",
        "data: {\"choices\":[NaN]}\r\n\r\n",
    ] {
        let stream = format!("{role}{bad}data: {{}}\n\n");
        let (told, _, end) = everywhere(Surface::Chat, stream.as_bytes());
        assert_eq!(told, [Told { until: role.len(), sign: Sign::Preamble }], "{bad:?}");
        assert_eq!(end, Err(Malformed { from: role.len(), until: role.len() + bad.len() }), "{bad:?}");
    }
    for surface in [Surface::Responses, Surface::Messages] {
        assert_eq!(malformed(surface, "data: <html>\n\n"), Some((0, 14)));
        assert_eq!(malformed(surface, "event: x\ndata: {\n\n"), Some((0, 18)));
    }
    assert_eq!(malformed(Surface::Responses, "event: response.created\ndata: {\"a\n\n"), Some((0, 35)));
    assert_eq!(malformed(Surface::Responses, "event: response.completed\ndata: {\"a\n\n"), Some((0, 37)));
    assert_eq!(malformed(Surface::Messages, "event: message_start\ndata: {\"a\n\n"), Some((0, 32)));
    assert_eq!(malformed(Surface::Messages, "event: message_stop\ndata: {\"a\n\n"), Some((0, 31)));
    assert_eq!(
        malformed(Surface::Messages, "event: content_block_delta\ndata: {\"delta\":\n\n"),
        Some((0, 44))
    );
}

#[test]
fn a_malformed_event_has_a_message_without_what_stands_in_it() {
    let malformed = Malformed { from: 3, until: 8 };
    assert_eq!(malformed.to_string(), "an event of 5 bytes is no JSON");
}

#[test]
fn members_that_are_not_what_they_usually_are_make_no_event_malformed() {
    for (surface, data, sign) in [
        (Surface::Chat, "{\"choices\":[],\"choices\":[{\"delta\":{\"content\":\"x\"}}]}", 'c'),
        (Surface::Chat, "{\"choices\":[{\"index\":-1,\"delta\":{\"content\":\"x\"}}]}", 'c'),
        (Surface::Chat, "{\"choices\":[{\"index\":1e99,\"delta\":{\"content\":\"x\"}}]}", 'c'),
        (Surface::Chat, "{\"\\ud800\":1,\"choices\":[]}", 'c'),
        (Surface::Chat, "{\"choices\":null}", 'p'),
        (Surface::Responses, "{\"type\":7}", 'c'),
        (Surface::Responses, "{\"type\":\"response\\u002ecreated\"}", 'p'),
        (Surface::Responses, "{\"type\":\"response.output_text.delta\",\"delta\":{\"x\":1}}", 'c'),
        (Surface::Messages, "{\"type\":\"message_delta\",\"delta\":7}", 'p'),
        (Surface::Messages, "{\"type\":\"content_block_delta\",\"delta\":7}", 'c'),
        (Surface::Messages, "[]", 'c'),
    ] {
        let stream = format!("data: {data}\n\n");
        let (told, _, end) = everywhere(surface, stream.as_bytes());
        assert_eq!(end, Ok(()), "{data}");
        assert_eq!(
            told.iter().map(|told| letter(&told.sign)).collect::<String>(),
            sign.to_string(),
            "{data}"
        );
    }
}

#[test]
fn depth_and_bytes_that_are_no_text_are_read_past() {
    let deep = format!("data: {{\"x\":{}{},\"choices\":[]}}\n\n", "[".repeat(50_000), "]".repeat(50_000));
    let (told, _, end) = follow(Surface::Chat, true, &[deep.as_bytes()]);
    assert_eq!((told.len(), letter(&told[0].sign), end), (1, 'p', Ok(())));
    let stream = b"data: {\"choices\":[{\"delta\":{\"content\":\"a\xff\xc3\"}}]}\n\n";
    let (_, text, end) = everywhere(Surface::Chat, stream);
    assert_eq!((text[0].text.as_str(), end), ("a\u{fffd}\u{fffd}", Ok(())));
    let half = b"data: {\"choices\":[{\"delta\":{\"content\":\"a\\ud83d\"}}]}\n\n";
    let (told, text, end) = everywhere(Surface::Chat, half);
    assert_eq!((letter(&told[0].sign), end), ('c', Ok(())));
    assert!(text[0].text.starts_with("a\u{fffd}"), "{}", text[0].text);
}

/// A stream of one long event, in pieces, and what is told after each.
fn long(surface: Surface, start: &str, end: &str) -> (Vec<Told>, usize) {
    let mut reader = Reader::new(surface, true);
    let (mut told, mut text) = (Vec::new(), Vec::new());
    reader.push(start.as_bytes(), &mut told, &mut text).unwrap();
    let mut len = start.len();
    while len <= 3 * EVENT_BYTES_MAX {
        reader.push(&[b'x'; 10_000], &mut told, &mut text).unwrap();
        len += 10_000;
        assert!(reader.open.capacity() <= 2 * EVENT_BYTES_MAX && reader.is_inside_event());
    }
    let early = told.clone();
    assert_eq!(early, [Told { until: EVENT_BYTES_MAX, sign: Sign::Content }]);
    reader.push(end.as_bytes(), &mut told, &mut text).unwrap();
    len += end.len();
    assert!(!reader.is_inside_event() && reader.open.capacity() == 0);
    let next = "data: {\"choices\":[]}\n\n";
    reader.push(next.as_bytes(), &mut told, &mut text).unwrap();
    assert_eq!(text, []);
    // In one piece it is told the same.
    let whole =
        [start.as_bytes(), &vec![b'x'; len - start.len() - end.len()], end.as_bytes(), next.as_bytes()]
            .concat();
    assert_eq!(follow(surface, true, &[&whole]).0, told);
    (told, len)
}

#[test]
fn an_event_that_is_too_long_is_content_at_once_and_nothing_of_it_is_kept() {
    let (told, len) = long(Surface::Chat, "data: {\"choices\":\"", "\"}\n\n");
    assert_eq!(told[1..2], [Told { until: len, sign: Sign::Content }]);
    assert_eq!(told.len(), 3);
    assert_eq!(letter(&told[2].sign), 'p', "the next one is judged again");
    let (told, len) = long(
        Surface::Responses,
        "event: response.completed\ndata: {\"type\":\"response.completed\",\"x\":\"",
        "\"}\n\n",
    );
    assert_eq!(told[1], Told { until: len, sign: Sign::End }, "a last word has no bound");
}

#[test]
fn an_event_of_just_the_bound_is_read() {
    let (start, end) = ("data: {\"error\":\"", "\"}\n\n");
    for (more, expected) in [(0, "f"), (1, "cc")] {
        let fill = vec![b'x'; EVENT_BYTES_MAX - start.len() - end.len() + more];
        let stream = [start.as_bytes(), &fill, end.as_bytes()].concat();
        for piece in [stream.len(), 7919, EVENT_BYTES_MAX, EVENT_BYTES_MAX + 1] {
            let pieces: Vec<&[u8]> = stream.chunks(piece).collect();
            let (told, _, end) = follow(Surface::Chat, true, &pieces);
            assert_eq!(told.iter().map(|told| letter(&told.sign)).collect::<String>(), expected, "{piece}");
            assert_eq!((told.last().map(|told| told.until), end), (Some(stream.len()), Ok(())));
            if let Sign::Failure(said) = &told[0].sign {
                assert_eq!(said.message.len(), 1024);
            }
        }
    }
}

#[test]
fn what_a_failure_says_is_cut_between_characters() {
    let event = format!(
        "data: {{\"error\":{{\"message\":\"{}\",\"type\":\"{}\",\"code\":{}}}}}\n\n",
        "é".repeat(2000),
        "t".repeat(500),
        "1".repeat(500)
    );
    let said = failure_of(&event);
    assert_eq!(said.message, "é".repeat(512));
    assert_eq!((said.kind.map(|kind| kind.len()), said.code.map(|code| code.len())), (Some(64), Some(64)));
}

fn failure_of(event: &str) -> Said {
    let (told, _, _) = follow(Surface::Chat, true, &[event.as_bytes()]);
    match told.into_iter().next() {
        Some(Told { sign: Sign::Failure(said), .. }) => *said,
        other => panic!("{other:?}"),
    }
}

#[test]
fn very_many_lines_and_empty_events_take_no_memory() {
    let mut reader = Reader::new(Surface::Chat, true);
    let mut told = Vec::new();
    for _ in 0..10_000 {
        told.clear();
        reader.push(b": ka\n\n\n\ndata:\n\n", &mut told, &mut Vec::new()).unwrap();
        assert_eq!(told.len(), 4);
    }
    assert_eq!(reader.open.capacity(), 0);
}
