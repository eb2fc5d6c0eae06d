//! Whether the arguments of a call are all there.

/// Follows a JSON object from piece to piece by its brackets and strings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Extent {
    depth: u32,
    in_string: bool,
    escaped: bool,
    complete: bool,
}

impl Extent {
    /// Goes on by this text; gives how much of it belongs to the object.
    pub(super) fn push(&mut self, text: &str) -> usize {
        for (at, byte) in text.bytes().enumerate() {
            if self.complete {
                return at;
            }
            self.take(byte);
        }
        text.len()
    }

    fn take(&mut self, byte: u8) {
        if self.in_string {
            self.in_string = self.escaped || byte != b'"';
            self.escaped = !self.escaped && byte == b'\\';
            return;
        }
        match byte {
            b'"' => self.in_string = true,
            b'{' | b'[' => self.depth = self.depth.saturating_add(1),
            b'}' | b']' => {
                self.depth = self.depth.saturating_sub(1);
                self.complete = self.depth == 0;
            }
            _ => {}
        }
    }

    /// Whether its last bracket is closed.
    pub(super) fn is_complete(self) -> bool {
        self.complete
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_complete_at_its_last_bracket_however_it_is_cut() {
        for text in [r#"{}"#, r#"{"a":"}\\\"]","b":[{"c":{}}]}"#, " \n{\"é😀\":[[]]}"] {
            for cut in text.char_indices().map(|(at, _)| at) {
                let mut extent = Extent::default();
                assert_eq!(extent.push(&text[..cut]), cut);
                assert!(!extent.is_complete(), "{text} at {cut}");
                assert_eq!(extent.push(&text[cut..]), text.len() - cut);
                assert!(extent.is_complete(), "{text} at {cut}");
                assert_eq!(extent.push("\n{}"), 0, "what follows is no part of it");
            }
        }
    }
}
