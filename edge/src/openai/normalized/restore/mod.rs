//! Calls out of the text of a model that was asked to write them there (RUN-4, api.md §7). Pure, and only for marked runs.
//!
//! ```text
//!             <tool_call>            { … }             </tool_call>, or none
//!   Text ──────► Tag ──────► Call ──────────► Close ─────────────────────► Gap ──► Text
//!   Gap ──── { … } at the beginning of the answer ──► Bare ──► Gap
//!   Gap ──── ```json … ``` that is all of the answer ──► Fence
//! ```
//! What may still become a call is held back, and nothing else: in prose that is at most the beginning of the tag. What turns
//! out to be none is given back as it was, and never looked at again. Tags in code are text.

mod json;
mod written;

use proto::run_input::ToolCall;

use self::{json::Brackets, written::NoCall};
use super::answer::Piece;

const OPEN: &str = "<tool_call>";
const CLOSE: &str = "</tool_call>";
/// Bytes of one call that are held back at most: 256 KiB.
pub const CALL_BYTES_MAX: usize = 256 * 1024;
/// Calls of one answer at most; further ones stay text.
pub const CALLS_MAX: usize = 64;
/// Words behind the opening of a fence that may hold a call.
const FENCE_WORDS: [&str; 5] = ["", "json", "JSON", "tool_call", "tool_calls"];
/// Longest of them, and a CR.
const FENCE_WORD_BYTES_MAX: usize = 11;
/// Missing closers that are added at the end of a call at most.
const REPAIRED_DEPTH_MAX: usize = 2;

/// Follows the text of one answer.
#[derive(Debug)]
pub struct Restorer {
    names: Vec<String>,
    mode: Mode,
    /// What may become a call.
    held: String,
    /// Blanks around calls: dropped with them, and given back before text.
    gap: String,
    /// Text that is to be given on.
    plain: String,
    code: Code,
    calls: usize,
    unknown: u64,
}

#[derive(Debug)]
enum Mode {
    /// Nothing but blanks, from the beginning or from a call on. `bare` = a call may stand here without a tag.
    Gap { bare: bool },
    /// Prose.
    Text,
    /// The beginning of the tag is held.
    Tag,
    /// The tag, and what of the value is there.
    Call(Brackets),
    /// Behind the value, with so much of the closing tag.
    Close(usize),
    /// A value without a tag, and whether its first key is one of a call.
    Bare(Brackets),
    /// A fence that the answer begins with.
    Fence(Fence),
}

#[derive(Debug)]
enum Fence {
    /// So many marks.
    Marks(usize),
    /// So many marks, and the word behind them up to here.
    Word(usize),
    /// Before the value.
    Before(usize),
    Value(usize, Brackets),
    /// Behind the value, with so many of the closing marks.
    After(usize, usize, Vec<ToolCall>),
    /// Behind the closing marks.
    Closed(Vec<ToolCall>),
}

/// What a step has done with its input.
enum Step {
    /// It is taken.
    Taken,
    /// It is taken, and what is held turned out to be text.
    Text,
    /// It is not taken: what is held turned out to be text, and it goes on from here.
    Back,
}

impl Restorer {
    /// Before the first byte of an answer whose request has functions of these names.
    #[must_use]
    pub fn new(names: Vec<String>) -> Self {
        Self {
            names,
            mode: Mode::Gap { bare: true },
            held: String::new(),
            gap: String::new(),
            plain: String::new(),
            code: Code::default(),
            calls: 0,
            unknown: 0,
        }
    }

    /// How often the model called a function that the request does not have; all of that is text.
    #[must_use]
    pub fn unknown(&self) -> u64 {
        self.unknown
    }

    /// Takes more of the text, cut anywhere; appends what is decided.
    pub fn push(&mut self, text: &str, pieces: &mut Vec<Piece>) {
        for char in text.chars() {
            while !self.step(char, pieces) {}
            if self.held.len() > CALL_BYTES_MAX {
                self.give_up();
            }
        }
        self.flush(pieces);
    }

    /// The answer is over; `is_cut` = for want of tokens, so what is not whole was not meant to be.
    pub fn finish(&mut self, is_cut: bool, pieces: &mut Vec<Piece>) {
        match std::mem::replace(&mut self.mode, Mode::Text) {
            Mode::Call(brackets) if !is_cut => self.repair(&brackets, OPEN.len(), true, pieces),
            Mode::Bare(brackets) if !is_cut => self.repair(&brackets, 0, false, pieces),
            Mode::Fence(Fence::After(_, _, calls) | Fence::Closed(calls)) => self.accept(calls, pieces),
            Mode::Close(_) => self.held.clear(),
            Mode::Gap { .. } if self.calls > 0 => self.gap.clear(),
            Mode::Gap { .. } | Mode::Text | Mode::Tag | Mode::Call(_) | Mode::Bare(_) | Mode::Fence(_) => {}
        }
        self.give_up();
        self.plain.push_str(&std::mem::take(&mut self.gap));
        self.flush(pieces);
    }

    /// Takes a character; `false` = again, in the state that it is in now.
    fn step(&mut self, char: char, pieces: &mut Vec<Piece>) -> bool {
        let is_blank = matches!(char, ' ' | '\t' | '\r' | '\n');
        match &mut self.mode {
            Mode::Text => {
                if char == '<' && !self.code.is_open() && self.calls < CALLS_MAX {
                    self.hold(char, Mode::Tag);
                } else {
                    self.code.note(char);
                    self.plain.push(char);
                }
            }
            Mode::Gap { .. } if is_blank => self.gap.push(char),
            Mode::Gap { bare } => {
                let bare = *bare;
                match char {
                    '<' if self.calls < CALLS_MAX => self.hold(char, Mode::Tag),
                    '{' | '[' if bare && self.calls < CALLS_MAX => {
                        self.hold(char, Mode::Bare(Brackets::begun(char)));
                    }
                    '`' if bare && self.calls == 0 => self.hold(char, Mode::Fence(Fence::Marks(1))),
                    // Between calls without a tag.
                    ';' | ',' if bare && self.calls > 0 => self.gap.push(char),
                    _ => {
                        self.plain.push_str(&std::mem::take(&mut self.gap));
                        self.mode = Mode::Text;
                        return false;
                    }
                }
            }
            Mode::Tag => {
                if OPEN.get(self.held.len()..).is_some_and(|rest| rest.starts_with(char)) {
                    self.held.push(char);
                    if self.held == OPEN {
                        self.mode = Mode::Call(Brackets::default());
                    }
                } else {
                    self.give_up();
                    return false;
                }
            }
            Mode::Call(brackets) => {
                if brackets.is_empty() && !is_blank && !matches!(char, '{' | '[') {
                    // Not what was asked for, so perhaps what somebody quotes.
                    self.give_up();
                    return false;
                }
                self.held.push(char);
                if brackets.take(char) {
                    self.end_call(OPEN.len(), true, pieces);
                } else if brackets.is_broken() {
                    self.give_up();
                }
            }
            Mode::Close(matched) => {
                let rest = CLOSE.get(*matched..).unwrap_or_default();
                if *matched == 0 && is_blank {
                    self.gap.push(char);
                } else if rest.starts_with(char) {
                    *matched += 1;
                    self.held.push(char);
                    if rest.len() == 1 {
                        self.held.clear();
                        self.gap.clear();
                        self.mode = Mode::Gap { bare: false };
                    }
                } else {
                    // Missing, which is forgiven. What looked like it is text, or the next tag.
                    let held = std::mem::take(&mut self.held);
                    self.mode = Mode::Gap { bare: false };
                    for char in held.chars() {
                        while !self.step(char, pieces) {}
                    }
                    return false;
                }
            }
            Mode::Bare(brackets) => {
                self.held.push(char);
                if brackets.take(char) {
                    self.end_call(0, false, pieces);
                } else if brackets.is_broken() || !written::may_be_call(&self.held) {
                    self.give_up();
                }
            }
            Mode::Fence(_) => return self.step_fence(char, is_blank),
        }
        true
    }

    fn step_fence(&mut self, char: char, is_blank: bool) -> bool {
        let Mode::Fence(fence) = &mut self.mode else { return true };
        let step = match fence {
            Fence::Marks(count) if char == '`' => {
                *count += 1;
                Step::Taken
            }
            Fence::Marks(count) if *count >= 3 => {
                *fence = Fence::Word(*count);
                return false;
            }
            Fence::Marks(_) => Step::Back,
            Fence::Word(marks) if char == '\n' => {
                let word = self.held.trim_start_matches('`').trim();
                let fits = FENCE_WORDS.contains(&word);
                *fence = Fence::Before(*marks);
                if fits { Step::Taken } else { Step::Text }
            }
            Fence::Word(marks) if self.held.len() < *marks + FENCE_WORD_BYTES_MAX => Step::Taken,
            Fence::Word(_) => Step::Back,
            Fence::Before(_) if is_blank => Step::Taken,
            Fence::Before(marks) if matches!(char, '{' | '[') => {
                *fence = Fence::Value(*marks, Brackets::begun(char));
                Step::Taken
            }
            Fence::Before(_) => Step::Back,
            Fence::Value(marks, brackets) => {
                if brackets.take(char) {
                    let value = self.held.trim_start_matches('`');
                    let value = value.split_once('\n').map_or("", |(_, value)| value).to_owned()
                        + char.encode_utf8(&mut [0; 4]);
                    match written::calls(&value, &self.names, false) {
                        Ok(calls) => {
                            *fence = Fence::After(*marks, 0, calls);
                            Step::Taken
                        }
                        Err(reason) => {
                            self.unknown += u64::from(reason == NoCall::Name);
                            Step::Text
                        }
                    }
                } else if brackets.is_broken() {
                    Step::Text
                } else {
                    Step::Taken
                }
            }
            Fence::After(marks, closing, calls) => match char {
                '`' if *closing + 1 >= *marks => {
                    *fence = Fence::Closed(std::mem::take(calls));
                    Step::Taken
                }
                '`' => {
                    *closing += 1;
                    Step::Taken
                }
                _ if is_blank && *closing == 0 => Step::Taken,
                _ => Step::Back,
            },
            Fence::Closed(_) if is_blank || char == '`' => Step::Taken,
            Fence::Closed(_) => Step::Back,
        };
        if !matches!(step, Step::Back) {
            self.held.push(char);
        }
        if !matches!(step, Step::Taken) {
            self.give_up();
        }
        !matches!(step, Step::Back)
    }

    /// The value that is held from `from` on is whole.
    fn end_call(&mut self, from: usize, tagged: bool, pieces: &mut Vec<Piece>) {
        match written::calls(self.held.get(from..).unwrap_or_default(), &self.names, tagged) {
            Ok(calls) => {
                self.accept(calls, pieces);
                self.mode = if tagged { Mode::Close(0) } else { Mode::Gap { bare: true } };
            }
            Err(reason) => {
                self.unknown += u64::from(reason == NoCall::Name);
                self.give_up();
            }
        }
    }

    /// A value that ends too early gets the closers that are missing, where they are few.
    fn repair(&mut self, brackets: &Brackets, from: usize, tagged: bool, pieces: &mut Vec<Piece>) {
        let Some(closers) = brackets.closers(REPAIRED_DEPTH_MAX) else { return };
        let value = self.held.get(from..).unwrap_or_default().to_owned() + &closers;
        match written::calls(&value, &self.names, tagged) {
            Ok(calls) => self.accept(calls, pieces),
            Err(reason) => self.unknown += u64::from(reason == NoCall::Name),
        }
    }

    fn accept(&mut self, calls: Vec<ToolCall>, pieces: &mut Vec<Piece>) {
        self.held.clear();
        self.gap.clear();
        self.flush(pieces);
        self.calls += calls.len();
        pieces.extend(calls.into_iter().map(Piece::Call));
    }

    fn hold(&mut self, char: char, mode: Mode) {
        self.held.push(char);
        self.mode = mode;
    }

    /// What is held is text, as it was.
    fn give_up(&mut self) {
        if !self.held.is_empty() {
            self.plain.push_str(&std::mem::take(&mut self.gap));
            self.held.chars().for_each(|char| self.code.note(char));
            self.plain.push_str(&std::mem::take(&mut self.held));
        }
        self.mode = Mode::Text;
    }

    fn flush(&mut self, pieces: &mut Vec<Piece>) {
        if !self.plain.is_empty() {
            pieces.push(Piece::Text(std::mem::take(&mut self.plain)));
        }
    }
}

/// Whether a place in Markdown is code.
#[derive(Debug, Default)]
struct Code {
    /// Marks of what is open.
    open: Option<usize>,
    /// Marks right before this place.
    run: usize,
}

impl Code {
    fn note(&mut self, char: char) {
        if char == '`' {
            self.run += 1;
            return;
        }
        self.open = self.after_run();
        self.run = 0;
        if char == '\n' && self.open.is_some_and(|marks| marks < 3) {
            // A mark that stands alone opens nothing that lasts.
            self.open = None;
        }
    }

    fn is_open(&self) -> bool {
        self.after_run().is_some()
    }

    fn after_run(&self) -> Option<usize> {
        match (self.open, self.run) {
            (open, 0) => open,
            (None, run) => Some(run),
            (Some(open), run) if run == open || open >= 3 && run > open => None,
            (open, _) => open,
        }
    }
}

#[cfg(test)]
mod tests;
