//! Bytes as text, however they are cut. Pure.

/// Decodes a stream of bytes as UTF-8. What is none becomes U+FFFD, by the rules of the standard library.
#[derive(Debug, Default)]
pub struct Utf8 {
    /// The beginning of a character, at most three bytes.
    begun: Vec<u8>,
}

impl Utf8 {
    /// The text of what has come so far, but for a character that is not whole yet.
    #[must_use]
    pub fn push(&mut self, bytes: &[u8]) -> String {
        let joined = (!self.begun.is_empty()).then(|| {
            self.begun.extend_from_slice(bytes);
            std::mem::take(&mut self.begun)
        });
        let mut rest = joined.as_deref().unwrap_or(bytes);
        let mut text = String::with_capacity(rest.len());
        loop {
            match std::str::from_utf8(rest) {
                Ok(valid) => {
                    text.push_str(valid);
                    return text;
                }
                Err(error) => {
                    let (valid, after) = rest.split_at(error.valid_up_to());
                    text.push_str(&String::from_utf8_lossy(valid));
                    let Some(wrong) = error.error_len() else {
                        self.begun = after.to_vec();
                        return text;
                    };
                    text.push(char::REPLACEMENT_CHARACTER);
                    rest = after.get(wrong..).unwrap_or_default();
                }
            }
        }
    }

    /// Nothing more comes: a character that was begun is none.
    #[must_use]
    pub fn finish(&mut self) -> Option<char> {
        (!std::mem::take(&mut self.begun).is_empty()).then_some(char::REPLACEMENT_CHARACTER)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decode<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> String {
        let mut utf8 = Utf8::default();
        let mut text: String = pieces.into_iter().map(|piece| utf8.push(piece)).collect();
        assert!(utf8.begun.len() < 4);
        text.extend(utf8.finish());
        text
    }

    #[test]
    fn text_is_the_same_wherever_it_is_cut() {
        let texts: [&[u8]; 6] = [
            "".as_bytes(),
            "caf\u{e9} \u{20ac} \u{1f600}!\n".as_bytes(),
            b"\xff\xfe\x80",
            b"a\xf0\x9f\x98",
            b"\xe2\x82\xe2\x82\xac",
            b"\xed\xa0\x80 \xf4\x90\x80\x80 \xc0\xaf",
        ];
        for text in texts {
            let whole = String::from_utf8_lossy(text);
            for at in 0..=text.len() {
                let (left, right) = text.split_at(at);
                assert_eq!(decode([left, right]), whole, "cut at {at}");
            }
            assert_eq!(decode(text.chunks(1)), whole);
        }
    }

    proptest! {
        #[test]
        fn any_bytes_in_any_pieces_are_what_they_are_whole(
            pieces in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..6), 0..12),
        ) {
            let whole = pieces.concat();
            prop_assert_eq!(decode(pieces.iter().map(Vec::as_slice)), String::from_utf8_lossy(&whole).into_owned());
        }
    }
}
