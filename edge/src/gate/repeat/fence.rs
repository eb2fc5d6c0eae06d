//! Whether a text is inside of a fenced code block (CommonMark 0.31, 4.5).

/// Follows a text rune by rune.
#[derive(Debug, Default)]
pub(super) struct Fence {
    line: Line,
    open: Option<Open>,
}

#[derive(Clone, Copy, Debug)]
struct Open {
    mark: char,
    marks: u32,
    at_rune: u64,
}

/// What was seen of the line.
#[derive(Clone, Copy, Debug, Default)]
enum Line {
    /// Nothing but spaces. A fence in a list is indented by more than the three spaces of the standard, so any number will do.
    #[default]
    Blank,
    /// Those and then nothing but one kind of mark.
    Marks { mark: char, marks: u32 },
    /// Something else.
    Other,
}

impl Fence {
    /// Takes the next rune, which is number `at_rune` of the text.
    pub(super) fn push(&mut self, rune: char, at_rune: u64) {
        if rune != '\n' && matches!(self.line, Line::Other) {
            return;
        }
        self.line = match (self.line, rune) {
            (Line::Marks { mark, marks }, _) if rune != mark => {
                self.end_of_marks(mark, marks, rune, at_rune);
                if rune == '\n' { Line::Blank } else { Line::Other }
            }
            (_, '\n') => Line::Blank,
            (Line::Marks { mark, marks }, _) => Line::Marks { mark, marks: marks.saturating_add(1) },
            (Line::Blank, '`' | '~') => Line::Marks { mark: rune, marks: 1 },
            (Line::Blank, ' ' | '\t') => Line::Blank,
            (Line::Blank | Line::Other, _) => Line::Other,
        };
    }

    /// Rune at which the open block began, when one is open.
    pub(super) fn open_since(&self) -> Option<u64> {
        self.open.map(|open| open.at_rune)
    }

    fn end_of_marks(&mut self, mark: char, marks: u32, next: char, at_rune: u64) {
        match self.open {
            None if marks >= 3 => self.open = Some(Open { mark, marks, at_rune }),
            // What opens a block may have a name of a language behind it, what closes one has nothing.
            Some(open) if open.mark == mark && marks >= open.marks && next.is_whitespace() => {
                self.open = None
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open_after(text: &str) -> Option<u64> {
        let mut fence = Fence::default();
        (0..).zip(text.chars()).for_each(|(i, rune)| fence.push(rune, i));
        fence.open_since()
    }

    #[test]
    fn a_block_is_open_from_its_first_fence_to_one_that_closes_it() {
        assert_eq!(open_after("a ``` b\n``\nc"), None);
        assert_eq!(open_after("a\n```rust\nlet a;\n"), Some(5));
        assert_eq!(open_after("1. a\n      ~~~\nlet a;\n```\n"), Some(14));
        assert_eq!(open_after("```\nlet a;\n```\nb"), None);
        assert_eq!(open_after("````md\n```\na\n```\n"), Some(4));
        assert_eq!(open_after("````md\n```\na\n```\n`````\n"), None);
        assert_eq!(open_after("```\na\n```rust\n"), Some(3), "it has a name, so it closes nothing");
        assert_eq!(open_after("```a\n```\n```b\n"), Some(12));
    }
}
