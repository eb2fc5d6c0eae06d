//! The format of the Azure LLM inference traces of 2023: `TIMESTAMP,ContextTokens,GeneratedTokens`. Pure.

use std::time::Duration;

use time::PrimitiveDateTime;
use time::format_description::BorrowedFormatItem;
use time::macros::format_description;

/// The first line of a trace.
const HEADER: &str = "TIMESTAMP,ContextTokens,GeneratedTokens";
/// `2023-11-16 18:17:03.9799600`, with up to nine digits of the second's fraction.
const TIMESTAMP: &[BorrowedFormatItem<'_>] =
    format_description!("[year]-[month]-[day] [hour]:[minute]:[second].[subsecond]");
/// The most rows that are read.
const ROWS_MAX: usize = 10_000_000;

/// One request of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// Its arrival, from the first one on.
    pub at: Duration,
    /// Tokens of its prompt.
    pub prompt_tokens: u32,
    /// Tokens of its output.
    pub output_tokens: u32,
}

/// Requests in the order of their arrival; there is at least one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trace {
    rows: Vec<Row>,
}

/// Why a trace was refused: the line, counted from 1, what was expected there and what was found.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{line}: expected {expected}, found {found:?}")]
pub struct TraceError {
    /// The line.
    pub line: usize,
    /// What should stand there.
    pub expected: &'static str,
    /// What stands there.
    pub found: String,
}

impl Trace {
    /// Reads a trace.
    ///
    /// # Errors
    /// The first line that is none of a trace.
    pub fn parse(text: &str) -> Result<Self, TraceError> {
        let mut lines = text.lines().enumerate().map(|(index, line)| (index + 1, line.trim_end()));
        let (_, header) = lines.next().unwrap_or((1, ""));
        let wrong = |line, expected, found: &str| Err(TraceError { line, expected, found: shown(found) });
        if header.trim_start_matches('\u{feff}') != HEADER {
            return wrong(1, "the header TIMESTAMP,ContextTokens,GeneratedTokens", header);
        }
        let (mut rows, mut first, mut last) = (Vec::<Row>::new(), None, None);
        for (number, line) in lines.filter(|(_, line)| !line.is_empty()) {
            let mut fields = line.split(',');
            let (Some(moment), Some(prompt), Some(output), None) =
                (fields.next(), fields.next(), fields.next(), fields.next())
            else {
                return wrong(number, "three fields", line);
            };
            let Ok(moment) = PrimitiveDateTime::parse(moment, TIMESTAMP) else {
                return wrong(number, "a time such as 2023-11-16 18:17:03.9799600", moment);
            };
            let Ok(prompt_tokens) = prompt.parse() else {
                return wrong(number, "a number of prompt tokens", prompt);
            };
            let Ok(output_tokens) = output.parse() else {
                return wrong(number, "a number of generated tokens", output);
            };
            if last.is_some_and(|last| moment < last) {
                return wrong(number, "a time that is not before the line above", line);
            }
            if rows.len() == ROWS_MAX {
                return wrong(number, "at most ten million rows", line);
            }
            last = Some(moment);
            let at = (moment - *first.get_or_insert(moment)).unsigned_abs();
            rows.push(Row { at, prompt_tokens, output_tokens });
        }
        if rows.is_empty() { wrong(2, "at least one row", "") } else { Ok(Self { rows }) }
    }

    /// Its requests.
    #[must_use]
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// From the first arrival to the last.
    #[must_use]
    pub fn span(&self) -> Duration {
        self.rows.last().map_or(Duration::ZERO, |row| row.at)
    }

    /// The first `count` requests, or all; one at least.
    #[must_use]
    pub fn limited(mut self, count: usize) -> Self {
        self.rows.truncate(count.max(1));
        self
    }
}

/// The beginning of a line, for an error.
fn shown(line: &str) -> String {
    const CHARS_MAX: usize = 80;
    line.chars().take(CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(rows: &str) -> String {
        format!("{HEADER}\n{rows}")
    }

    #[test]
    fn rows_count_from_the_first_arrival() {
        let rows = "2023-11-16 23:59:59.9799600,4808,10\r\n2023-11-17 00:00:00.0000000,3180,8\n";
        for text in [text(rows), text(rows.trim_end()), format!("\u{feff}{}\n", text(rows))] {
            let trace = Trace::parse(&text).unwrap();
            let at = Duration::from_nanos(20_040_000);
            assert_eq!(
                trace.rows(),
                [
                    Row { at: Duration::ZERO, prompt_tokens: 4808, output_tokens: 10 },
                    Row { at, prompt_tokens: 3180, output_tokens: 8 }
                ]
            );
            assert_eq!((trace.span(), trace.limited(1).rows().len()), (at, 1));
        }
    }

    #[test]
    fn a_bad_line_is_named_with_what_was_expected() {
        let row = "2023-11-16 18:17:03.9799600,1,1\n";
        for (text, line, expected, found) in [
            (String::new(), 1, "the header", ""),
            ("time,a,b\n".to_owned(), 1, "the header", "time,a,b"),
            (text(""), 2, "at least one row", ""),
            (text(&format!("{row}2023-11-16 18:17:04.0,1\n")), 3, "three fields", "2023-11-16 18:17:04.0,1"),
            (text("2023-11-16 18:17:04.0,1,1,1\n"), 2, "three fields", "2023-11-16 18:17:04.0,1,1,1"),
            (text("yesterday,1,1\n"), 2, "a time such as", "yesterday"),
            (text("2023-13-16 18:17:04.0,1,1\n"), 2, "a time such as", "2023-13-16 18:17:04.0"),
            (text(&format!("{row}\n2023-11-16 18:17:04.0,x,1\n")), 4, "prompt tokens", "x"),
            (text("2023-11-16 18:17:04.0,1,-1\n"), 2, "generated tokens", "-1"),
            (text("2023-11-16 18:17:04.0,1,1.5\n"), 2, "generated tokens", "1.5"),
            (
                text(&format!("{row}2023-11-16 18:17:03.9,1,1\n")),
                3,
                "not before",
                "2023-11-16 18:17:03.9,1,1",
            ),
        ] {
            let error = Trace::parse(&text).unwrap_err();
            assert_eq!((error.line, error.found.as_str()), (line, found), "{text}");
            assert!(error.expected.contains(expected), "{error}");
        }
    }
}
