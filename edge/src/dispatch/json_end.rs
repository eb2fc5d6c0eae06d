//! Whether a JSON body that nothing but the end of its connection ends has come to the end of its value.

/// Follows a JSON object or array from piece to piece by its brackets and strings. What it holds is not looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum JsonEnd {
    /// Nothing but blanks yet.
    #[default]
    Before,
    /// Inside so many brackets; in a string, behind a backslash.
    Within { depth: u64, string: bool, escaped: bool },
    /// The outermost bracket is closed, or it is no object and no array: then its end cannot be told.
    Past,
}

impl JsonEnd {
    /// Goes on by these bytes.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        for byte in bytes {
            *self = self.after(*byte);
        }
    }

    fn after(self, byte: u8) -> Self {
        match self {
            Self::Before => match byte {
                b'{' | b'[' => Self::Within { depth: 1, string: false, escaped: false },
                b' ' | b'\t' | b'\r' | b'\n' => Self::Before,
                _ => Self::Past,
            },
            Self::Within { depth, string: true, escaped } => {
                Self::Within { depth, string: escaped || byte != b'"', escaped: !escaped && byte == b'\\' }
            }
            Self::Within { depth, string: false, escaped } => match byte {
                b'"' => Self::Within { depth, string: true, escaped },
                b'{' | b'[' => Self::Within { depth: depth.saturating_add(1), string: false, escaped },
                b'}' | b']' if depth == 1 => Self::Past,
                b'}' | b']' => Self::Within { depth: depth - 1, string: false, escaped },
                _ => self,
            },
            Self::Past => self,
        }
    }

    /// Whether the end came too early.
    pub(super) fn is_cut(self) -> bool {
        self != Self::Past
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_json_text_is_cut_at_every_byte_but_its_last() {
        for text in [r#"{"a":[1,{"b":"}\\\"]"}],"c":"\\"}"#, "[]", " \r\n\t{\"é😀\":[[[]]]}"] {
            for cut in 0..text.len() {
                for split in 0..cut {
                    let mut end = JsonEnd::default();
                    end.push(&text.as_bytes()[..split]);
                    end.push(&text.as_bytes()[split..cut]);
                    assert!(end.is_cut(), "{text} at {cut}");
                }
            }
            let mut end = JsonEnd::default();
            end.push(text.as_bytes());
            assert!(!end.is_cut(), "{text}");
            end.push(b"\n");
            assert!(!end.is_cut(), "{text} and a line end");
        }
    }

    #[test]
    fn what_is_no_object_and_no_array_is_left_alone_and_nothing_at_all_is_cut() {
        for text in ["null", "\"text", "12", "<html>", "]"] {
            let mut end = JsonEnd::default();
            end.push(text.as_bytes());
            assert!(!end.is_cut(), "{text}");
        }
        let mut blank = JsonEnd::default();
        blank.push(b"\n");
        assert!(blank.is_cut());
    }
}
