use super::*;

/// What is told of a stream that comes in these pieces.
fn follow(surface: Surface, pieces: &[&[u8]]) -> (Vec<Told>, Vec<Text>, Result<(), Malformed>) {
    let mut reader = Reader::new(surface, true);
    let (mut told, mut text) = (Vec::new(), Vec::new());
    for piece in pieces {
        if let Err(malformed) = reader.push(piece, &mut told, &mut text) {
            return (told, text, Err(malformed));
        }
    }
    reader.finish(&mut told, &mut text);
    (told, text, Ok(()))
}

#[test]
fn a_chat_stream_is_told() {
    let stream = b": ka\n\ndata: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"finish_reason\":null}]}\n\ndata: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"hi\"}}]}\n\ndata: [DONE]\n\n";
    let (told, text, end) = follow(Surface::Chat, &[stream]);
    let signs: Vec<_> = told.iter().map(|told| told.sign.clone()).collect();
    assert_eq!(signs, [Sign::Preamble, Sign::Preamble, Sign::Content, Sign::End]);
    assert_eq!((text.len(), end), (1, Ok(())));
}
