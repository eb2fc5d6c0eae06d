use proptest::prelude::*;

use super::*;

fn told(surface: Surface, stream: &str) -> Vec<(usize, char)> {
    let (told, _, end) = everywhere(surface, stream.as_bytes());
    assert_eq!(end, Ok(()), "{stream:?}");
    told.iter().map(|told| (told.until, letter(&told.sign))).collect()
}

#[test]
fn an_event_ends_behind_its_empty_line_whatever_the_line_ends() {
    for (stream, expected) in [
        ("", &[][..]),
        ("\n", &[(1, 'p')]),
        ("\n\n", &[(1, 'p'), (2, 'p')]),
        ("\r\n\r\n", &[(2, 'p'), (4, 'p')]),
        (": c\n", &[(4, 'p')]),
        (": c", &[(3, 'p')]),
        ("data: {}\n\n", &[(10, 'c')]),
        ("data: {}\r\n\r\n", &[(12, 'c')]),
        ("data: {}\r\r", &[(10, 'c')]),
        // Mixed: a LF behind a bare CR's empty line is one more empty line.
        ("data: {}\n\r\n", &[(11, 'c')]),
        ("data: {}\n\rdata: {}\n\n", &[(10, 'c'), (20, 'c')]),
        ("data: {}\r\n\n", &[(11, 'c')]),
        ("data: {}\r\n\r", &[(11, 'c')]),
        ("data: {}\r\n\r: c\n\n", &[(11, 'c'), (16, 'p')]),
        ("data: {}\r\r\n", &[(10, 'c'), (11, 'p')]),
        // A mark at the beginning, and one that is none.
        ("\u{feff}data: {}\n\n", &[(13, 'c')]),
        ("\u{feff}\n", &[(4, 'p')]),
        ("\n\u{feff}data: {}\n\n", &[(1, 'p'), (14, 'p')]),
        // Several lines are one text.
        ("data: {\ndata: }\n\n", &[(17, 'c')]),
        ("data:{\r\ndata:}\r\n\r\n", &[(18, 'c')]),
        ("data: {\n: c\nid: 3\ndata:\"error\":\"x\"}\n\n", &[(37, 'f')]),
        // The last word may lack its empty line, or its line end.
        ("data: [DONE]\n", &[(13, 'e')]),
        ("data: [DONE]", &[(12, 'e')]),
        ("data:[DONE] \n\n", &[(14, 'e')]),
        // What is cut is not told.
        ("data: {\"choices\":[", &[]),
        ("data: {}\n\ndata: {\"choi", &[(10, 'c')]),
    ] {
        assert_eq!(told(Surface::Chat, stream), expected, "{stream:?}");
    }
}

#[test]
fn it_is_told_whether_an_event_is_open() {
    for (stream, expected) in [
        ("", false),
        ("d", true),
        ("data: {}\n", true),
        ("data: {}\n\n", false),
        ("data: {}\r\n\r", true),
        ("data: {}\r\n\r\n", false),
        ("data: {}\r\r", false),
        ("data: {}\n\n:", true),
    ] {
        let mut reader = Reader::new(Surface::Chat, false);
        reader.push(stream.as_bytes(), &mut Vec::new(), &mut Vec::new()).unwrap();
        assert_eq!((reader.is_inside_event(), reader.taken()), (expected, stream.len()), "{stream:?}");
    }
}

/// Without waiting for anything that comes later.
#[test]
fn an_event_is_told_as_soon_as_its_end_is_there() {
    for stream in ["data: {}\n\n", "data: {}\r\n\r\n", "data: {}\r\r"] {
        let mut reader = Reader::new(Surface::Chat, false);
        let mut told = Vec::new();
        let (most, last) = stream.as_bytes().split_at(stream.len() - 1);
        reader.push(most, &mut told, &mut Vec::new()).unwrap();
        assert_eq!(told, [], "{stream:?}");
        reader.push(last, &mut told, &mut Vec::new()).unwrap();
        assert_eq!(told, [Told { until: stream.len(), sign: Sign::Content }], "{stream:?}");
    }
}

const PARTS: [&str; 34] = [
    "\n",
    "\r",
    "\r\n",
    "\n\n",
    "\r\n\r\n",
    "\r\r",
    "data: ",
    "data:",
    "data",
    "event: error",
    "event: ping",
    "event: response.completed",
    "event: message_stop",
    "{}",
    "[DONE]",
    ": ka",
    "\u{feff}",
    "{",
    "}",
    "é",
    "x",
    "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n",
    "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\"}}]}\n\n",
    "data: {\"error\":\"x\"}\n\n",
    "data: [DONE]\n\n",
    "data: {\"type\":\"response.created\"}\r\n\r\n",
    "data: {\"type\":\"response.output_text.delta\",\"delta\":\"d\"}\n\n",
    "data: {\"type\":\"response.completed\"}\n\n",
    "data: {\"type\":\"message_start\"}\n\n",
    "data: {\"type\":\"content_block_delta\",\"delta\":{\"text\":\"t\"}}\r\r",
    "data: {\"type\":\"message_stop\"}\n\n",
    "\"",
    "\\",
    "id: 1\n",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// Whatever comes, cut anywhere: the same is told, in order, and each event ends where the stream may be cut.
    #[test]
    fn the_same_is_told_however_a_stream_is_cut(
        parts in prop::collection::vec(prop::sample::select(PARTS.to_vec()), 0..24),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
        surface in prop::sample::select(Surface::ALL.to_vec()),
    ) {
        let stream = parts.concat();
        let mut places: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
        places.extend([0, stream.len()]);
        places.sort_unstable();
        let pieces: Vec<&[u8]> = places.windows(2).map(|pair| &stream.as_bytes()[pair[0]..pair[1]]).collect();
        let whole = follow(surface, true, &[stream.as_bytes()]);
        prop_assert_eq!(&follow(surface, true, &pieces), &whole);
        let (told, _, end) = follow(surface, false, &pieces);
        prop_assert_eq!((&told, end), (&whole.0, whole.2));
        prop_assert!(told.is_sorted_by_key(|told| told.until));
        for told in &told {
            let mut splitter = Splitter::new();
            let _boundary = splitter.push(&stream.as_bytes()[..told.until]);
            prop_assert!(splitter.at_boundary() || told.until == stream.len(), "{}", told.until);
        }
    }
}
