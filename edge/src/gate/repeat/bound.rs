//! How long a text may repeat itself before it is taken for a loop.
//!
//! A table of zeros is as periodic as a model that says one sentence for ever; what tells them apart is how long it goes on for what
//! it is. So the bound depends on what the unit is made of, and every bound is finite: nothing that people ask for is that long, and
//! what it costs is small beside the 32k to 128k tokens of a loop that nobody stops.
//!
//! - **Made** units are what programs, tables and dumps consist of: digits and marks in a share that prose does not have, rows of a
//!   table, lines that are indented or end like code, text without words and with few different letters (base64 of zeros, DNA,
//!   hex), whatever stands inside of a fenced block and the arguments of tools. Equal rows, cells and bytes are common there: a
//!   32 x 32 picture in one colour has 8,192 runes, fifty by fifty zeros have 7,500, a kilobyte of `0x00, ` 6,144. They have
//!   [`MADE`], at any length.
//! - Everything else is **said**. Short units are repeated for long on purpose (laughter, rulers, `and again and again`), and so are
//!   lines, in a log, a song or a punishment ("I will not talk in class", a hundred times): up to [`SHORT`] runes. A sentence that
//!   runs on has less, [`PHRASE`]. What is longer, a verse or a paragraph, is said two or three times in a row, never sixteen times
//!   (of 128 runes) or, towards the longest, four times: [`LONG`], and at least three whole copies beside the first.

use crate::gate::reading::Channel;

/// Longest unit that is looked for, in runes: above what 128 tokens have.
pub const UNIT_RUNES_MAX: usize = 1000;

/// Runes of repetition, the first copy not counted, of units of [`UNIT_SHORT`] runes and less.
pub const SHORT: u64 = 4000;
/// Runes of repetition of [`UNIT_PHRASE`] and less; [`SHORT`] where it has an end of a line.
pub const PHRASE: u64 = 3000;
/// Runes of repetition of longer units, or three copies where that is more.
pub const LONG: u64 = 2000;
/// Runes of repetition of what is made, not said.
pub const MADE: u64 = 8192;

/// Longest unit in runes that has [`SHORT`].
pub const UNIT_SHORT: usize = 32;
/// Longest unit in runes that has [`PHRASE`].
pub const UNIT_PHRASE: usize = 128;

/// Most different runes of a text without words that is taken for data.
const DATA_RUNES_MAX: u32 = 8;

/// What a unit is made of; counts alone.
#[derive(Clone, Debug, Default)]
pub(super) struct Unit {
    runes: u64,
    blanks: u64,
    lines: u64,
    letters: u64,
    digits: u64,
    /// Marks that sentences do not have.
    strong: u64,
    /// Marks that sentences have, but few of.
    weak: u64,
    pipes: u64,
    /// Ends of lines behind a mark of code, and before a blank.
    code_lines: u64,
    first: Option<char>,
    last: Option<char>,
    /// Letters of hexadecimal digits.
    hex: u64,
    /// Which of the ASCII runes it has.
    ascii: u128,
    /// Runes that are not ASCII.
    wide: u64,
}

impl Unit {
    /// Takes one of its runes.
    pub(super) fn push(&mut self, rune: char) {
        self.runes += 1;
        self.code_lines += u64::from(is_code_line(self.last, Some(rune)));
        self.first = self.first.or(Some(rune));
        self.last = Some(rune);
        if rune.is_ascii() {
            self.ascii |= 1 << u32::from(rune);
        } else {
            self.wide += 1;
        }
        match rune {
            '\n' => self.lines += 1,
            _ if rune.is_whitespace() => self.blanks += 1,
            '0'..='9' => self.digits += 1,
            'a'..='f' | 'A'..='F' => {
                self.hex += 1;
                self.letters += 1;
            }
            _ if rune.is_alphabetic() => self.letters += 1,
            '|' => {
                self.pipes += 1;
                self.strong += 1;
            }
            '{' | '}' | '<' | '>' | '[' | ']' | '\\' | '/' | '=' | '_' | '#' | '$' | '@' | '%' | '&'
            | '+' | '^' | '`' | '~' => self.strong += 1,
            // Box drawing and block elements.
            '\u{2500}'..='\u{259f}' => self.strong += 1,
            '(' | ')' | ';' | ':' | '"' => self.weak += 1,
            _ => {}
        }
    }

    /// Runes so far.
    pub(super) const fn runes(&self) -> u64 {
        self.runes
    }

    /// Runes of repetition at which it is a loop.
    pub(super) fn bound(&self, channel: Channel, in_fence: bool) -> u64 {
        if self.is_made(channel, in_fence) {
            return MADE;
        }
        match usize::try_from(self.runes) {
            Ok(..=UNIT_SHORT) => SHORT,
            Ok(..=UNIT_PHRASE) if self.lines > 0 => SHORT,
            Ok(..=UNIT_PHRASE) => PHRASE,
            _ => LONG.max(self.runes.saturating_mul(3)),
        }
    }

    fn is_made(&self, channel: Channel, in_fence: bool) -> bool {
        let visible = self.runes - self.blanks - self.lines;
        let has_words = self.letters + self.digits > 0;
        if visible == 0 {
            return false;
        }
        // Marks alone are a ruler, wherever they stand; rows of them are a table without values.
        if !has_words {
            return self.lines > 0;
        }
        let is_row = self.pipes >= 2 && self.lines > 0;
        let has_structure =
            self.strong * 12 >= visible || (self.digits + self.strong + self.weak) * 5 >= visible;
        let is_code = self.code_lines > 0 || is_code_line(self.last, self.first);
        let is_dump = self.is_wordless() || self.hex + self.digits == visible;
        channel == Channel::Arguments || in_fence || is_row || is_code || has_structure || is_dump
    }

    /// Whether it is of a few ASCII letters without a gap, as codes are and words are not.
    const fn is_wordless(&self) -> bool {
        self.blanks == 0 && self.wide == 0 && self.ascii.count_ones() <= DATA_RUNES_MAX
    }
}

/// Whether a line ends between these two as lines of code do, or one begins with an indent.
fn is_code_line(before: Option<char>, rune: Option<char>) -> bool {
    let is_indent = before == Some('\n') && matches!(rune, Some(' ' | '\t'));
    let is_end = matches!(before, Some(';' | '{' | '}' | '[' | ']' | ')' | '>' | '\\')) && rune == Some('\n');
    is_indent || is_end
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bound(unit: &str) -> u64 {
        let mut counted = Unit::default();
        unit.chars().for_each(|rune| counted.push(rune));
        counted.bound(Channel::Content, false)
    }

    #[test]
    fn rows_code_and_dumps_are_made() {
        let made = [
            "0",
            "A",
            "ACGT",
            "ff ",
            "00 ",
            "0, ",
            "0x00, ",
            "| a | b |\n",
            "|  |  |\n",
            ",,,,\n",
            "=====\n",
            "│   │\n",
            "{\"a\":1},",
            "{ \"id\": 0, \"name\": \"foo\" },\n",
            "<td>foo</td>\n",
            "INSERT INTO t VALUES (0, 0, 0);\n",
            "console.log(\"hello\");\n",
            "    x = foo(bar)\n",
            "assert_eq!(a, b);\n",
            "2026-12-01 12:00:00 refused\n",
            "<p class=\"x\">Lorem ipsum dolor sit amet</p>\n",
            "#000000,",
            "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\n",
            "| a long sentence of the first cell, which is as long as that | another sentence that is not shorter |\n",
        ];
        for unit in made {
            assert_eq!(bound(unit), MADE, "{unit:?}");
        }
    }

    #[test]
    fn words_rulers_and_blanks_are_said() {
        let short = [
            "=",
            "-",
            " ",
            "\n",
            "\t\n",
            ".",
            "! ",
            "😂",
            "ㅋ",
            "the ",
            "do it\n",
            "是的。",
            "I can't. ",
            "— ",
        ];
        for unit in short {
            assert_eq!(bound(unit), SHORT, "{unit:?}");
        }
        let line = "I am sorry, but I cannot help with that (yet): \"please\" ask me again. ";
        assert_eq!(bound(line), PHRASE);
        assert_eq!(bound(&line.repeat(3)), LONG);
        assert_eq!(bound(&"다시 말씀드리지만 죄송합니다. ".repeat(50)), 3 * 17 * 50);
    }

    #[test]
    fn what_stands_in_a_fence_or_is_an_argument_is_made_unless_it_is_a_ruler() {
        let mut unit = Unit::default();
        "do it\n".chars().for_each(|rune| unit.push(rune));
        assert_eq!(unit.bound(Channel::Content, false), SHORT);
        assert_eq!(unit.bound(Channel::Content, true), MADE);
        assert_eq!(unit.bound(Channel::Reasoning, true), MADE);
        assert_eq!(unit.bound(Channel::Arguments, false), MADE);
        let mut ruler = Unit::default();
        ruler.push('-');
        assert_eq!(ruler.bound(Channel::Arguments, true), SHORT);
    }
}
