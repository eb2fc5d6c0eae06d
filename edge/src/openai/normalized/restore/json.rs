//! Where a JSON value ends, by its brackets and strings alone.

/// Deepest nesting of a call's value.
const DEPTH_MAX: usize = 64;

/// Follows a value that is an object or an array.
#[derive(Clone, Debug, Default)]
pub(super) struct Brackets {
    /// What is open, the innermost last.
    open: Vec<char>,
    in_string: bool,
    escaped: bool,
    broken: bool,
}

impl Brackets {
    /// Behind the first bracket.
    pub(super) fn begun(bracket: char) -> Self {
        let mut brackets = Self::default();
        brackets.take(bracket);
        brackets
    }

    /// Whether nothing has been opened yet.
    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Whether this becomes no value any more: brackets that do not fit, or too many of them.
    pub(super) fn is_broken(&self) -> bool {
        self.broken
    }

    /// Takes the next character; whether it is the last one of the value.
    pub(super) fn take(&mut self, char: char) -> bool {
        if self.in_string {
            self.in_string = self.escaped || char != '"';
            self.escaped = !self.escaped && char == '\\';
            return false;
        }
        match char {
            '"' => self.in_string = true,
            '{' | '[' => {
                self.open.push(char);
                self.broken |= self.open.len() > DEPTH_MAX;
            }
            '}' | ']' => {
                let opened = self.open.pop();
                self.broken |= opened != Some(if char == '}' { '{' } else { '[' });
                return !self.broken && self.open.is_empty();
            }
            _ => {}
        }
        false
    }

    /// What is missing, when it is at most so many brackets and nothing else.
    pub(super) fn closers(&self, most: usize) -> Option<String> {
        let fits = !self.in_string && !self.broken && (1..=most).contains(&self.open.len());
        let closer = |bracket: &char| if *bracket == '{' { '}' } else { ']' };
        fits.then(|| self.open.iter().rev().map(closer).collect())
    }
}
