//! What a program said last on its standard error, for people. Pure.

/// Bytes of standard error that are kept: its end.
pub const TAIL_BYTES_MAX: usize = 4096;
/// Bytes of a program's words that are passed on.
pub const WORDS_BYTES_MAX: usize = 512;

/// The end of what was written, however much that was.
#[derive(Debug, Default)]
pub struct Tail(Vec<u8>);

impl Tail {
    /// More was written.
    pub fn push(&mut self, bytes: &[u8]) {
        let kept = bytes.get(bytes.len().saturating_sub(TAIL_BYTES_MAX)..).unwrap_or_default();
        let excess = (self.0.len() + kept.len()).saturating_sub(TAIL_BYTES_MAX);
        self.0.drain(..excess);
        self.0.extend_from_slice(kept);
    }

    /// Its last words: one line that shows, of at most [`WORDS_BYTES_MAX`] bytes. Of a longer one the end, where the reason
    /// stands.
    #[must_use]
    pub fn words(&self) -> String {
        let text = String::from_utf8_lossy(&self.0);
        let last = text.lines().rev().map(one_line).find(|line| !line.is_empty()).unwrap_or_default();
        let from = last.ceil_char_boundary(last.len().saturating_sub(WORDS_BYTES_MAX));
        last.get(from..).unwrap_or_default().to_owned()
    }
}

/// `text` in one line without control characters, of at most [`WORDS_BYTES_MAX`] bytes.
#[must_use]
pub fn words(text: &str) -> String {
    let mut line = one_line(text.get(..text.floor_char_boundary(4 * WORDS_BYTES_MAX)).unwrap_or_default());
    line.truncate(line.floor_char_boundary(WORDS_BYTES_MAX));
    line
}

/// Escape sequences of terminals go as a whole; any other run of spaces and controls becomes one space.
fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        if c == '\u{1b}' {
            let mut ahead = rest.clone();
            if ahead.next() == Some('[') {
                let _end = ahead.find(|c| ('\u{40}'..='\u{7e}').contains(c));
                rest = ahead;
            }
        } else if !(c.is_whitespace() || c.is_control()) {
            line.push(c);
        } else if !line.ends_with(' ') && !line.is_empty() {
            line.push(' ');
        }
    }
    line.truncate(line.trim_end().len());
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_that_says_something_is_what_people_are_told() {
        for (written, said) in [
            (&b""[..], ""),
            (b"\n \n\t\n", ""),
            (b"no such model\n", "no such model"),
            (b"Traceback:\n  File \"x\"\nValueError: bad\n\n", "ValueError: bad"),
            (b"\x1b[31merror:\x1b[0m\tno\x07 key\r\n", "error: no key"),
            (b"a\xff\xfeb", "a\u{fffd}\u{fffd}b"),
            (b"open \x1b[", "open"),
            (b"\x1bM up", "M up"),
        ] {
            let mut tail = Tail::default();
            tail.push(written);
            assert_eq!(tail.words(), said);
            let mut slowly = Tail::default();
            written.chunks(1).for_each(|byte| slowly.push(byte));
            assert_eq!(slowly.words(), said);
        }
    }

    #[test]
    fn however_much_is_written_the_end_is_kept_and_no_more() {
        let mut tail = Tail::default();
        for _ in 0..100 {
            tail.push(&[b'x'; 1000]);
            assert!(tail.0.len() <= TAIL_BYTES_MAX);
        }
        tail.push(&[b'y'; 3 * TAIL_BYTES_MAX]);
        assert_eq!(tail.0.len(), TAIL_BYTES_MAX);
        tail.push(" \u{e9}nd".as_bytes());
        let said = tail.words();
        assert!(said.len() <= WORDS_BYTES_MAX && said.ends_with("y \u{e9}nd"), "{said}");
        let long = words(&"\u{e9} ".repeat(10_000));
        assert!(long.len() <= WORDS_BYTES_MAX && long.starts_with('\u{e9}'));
    }
}
