//! Event streams: however they arrive the same is seen, a boundary is one, and a stream is done only where its last word stands.
#![no_main]

mod each;

use dataplane::http::sse::{Ending, Splitter};

const WORDS: [&[u8]; 20] = [
    b"\n",
    b"\r",
    b"\r\n",
    b"\n\n",
    b"data: [DONE]\n\n",
    b"data:[DONE]",
    b"data: {\"type\":\"response.completed\"}\n\n",
    b"event: message_stop\n",
    b"data",
    b"data:",
    b": ka\n",
    b"id: 1\n",
    b"retry: 5\n",
    b"\xef\xbb\xbf",
    b"\0",
    b" ",
    b"event: error\r\n",
    b"data: x\n",
    b"[DONE]",
    b"{\"type\": \"message_stop\"}",
];
const ENDINGS: [Ending; 3] = [
    Ending::Done,
    Ending::Events(&["response.completed", "response.incomplete", "response.failed"]),
    Ending::Events(&["message_stop", "error"]),
];

fn seen(ending: Ending, pieces: &[&[u8]]) -> (Splitter, Option<usize>) {
    let (mut splitter, mut at, mut boundary) = (Splitter::ending(ending), 0, None);
    for piece in pieces {
        if let Some(place) = splitter.push(piece) {
            assert!(place <= piece.len());
            boundary = Some(at + place);
        }
        at += piece.len();
    }
    (splitter, boundary)
}

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    each::each(input, &WORDS, |input, random| {
        let pieces = random.pieces(input);
        for ending in ENDINGS {
            let ((whole, boundary), (pieced, other)) = (seen(ending, &[input]), seen(ending, &pieces));
            let facts = |it: &Splitter| {
                (it.events(), it.saw_end(), it.ends_well(), it.at_boundary(), it.may_insert())
            };
            assert_eq!((facts(&whole), boundary), (facts(&pieced), other), "{pieces:?}");
            let word: &[u8] = if ending == Ending::Done { b"[DONE]" } else { b"" };
            assert!(
                !whole.saw_end()
                    || input.windows(word.len().max(1)).any(|part| word.is_empty() || part == word)
            );
            if let Some(place) = boundary {
                // What stands before a boundary is whole events.
                assert!(seen(ending, &[&input[..place]]).0.at_boundary());
            }
        }
    });
});
