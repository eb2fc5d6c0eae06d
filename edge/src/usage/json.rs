//! Counts out of the end of a JSON text. Where the text begins is of no matter, so that of a long one its tail is enough.

use memchr::memmem;
use serde_json::Value;

use super::Counts;

/// Names of the member that are tried, from the end.
const TRIES: usize = 8;
const NAME: &[u8] = b"\"usage\"";

/// The counts that the JSON object ending with `text` has as its `usage`, or as that of one of its members. The last one of that
/// name counts. What stands in a string is never taken for one: its quotes are escaped.
#[must_use]
pub fn counts(text: &[u8]) -> Option<Counts> {
    let mut end = text.len();
    for _ in 0..TRIES {
        let at = memmem::rfind(text.get(..end)?, NAME)?;
        if let Some(counts) = text.get(at + NAME.len()..).and_then(value) {
            return Some(counts);
        }
        end = at;
    }
    None
}

/// Reads what stands behind a name.
fn value(rest: &[u8]) -> Option<Counts> {
    let rest = rest.trim_ascii_start().strip_prefix(b":")?.trim_ascii_start();
    if !rest.starts_with(b"{") {
        return None;
    }
    let mut values = serde_json::Deserializer::from_slice(rest).into_iter::<Value>();
    let usage = values.next()?.ok()?;
    let behind = rest.get(values.byte_offset()..)?;
    if !matches!(levels_closed(behind)?, 1 | 2) {
        return None;
    }
    of(&usage)
}

/// How many levels are open before `rest`, which ends the text; `None` when it cannot be the end of a JSON text.
fn levels_closed(rest: &[u8]) -> Option<i64> {
    let (mut depth, mut lowest) = (0_i64, 0_i64);
    let (mut string, mut escaped) = (false, false);
    for byte in rest {
        if string {
            (string, escaped) = (escaped || *byte != b'"', !escaped && *byte == b'\\');
            continue;
        }
        match byte {
            b'"' => string = true,
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth -= 1,
            _ => {}
        }
        lowest = lowest.min(depth);
    }
    (!string && depth == lowest).then_some(-depth)
}

fn of(usage: &Value) -> Option<Counts> {
    let tokens = |names: [&str; 2]| names.iter().find_map(|name| usage.get(name)?.as_u64());
    let detail =
        |places: [&str; 2], name: &str| places.iter().find_map(|place| usage.get(place)?.get(name)?.as_u64());
    let (read, written) = (usage.get("cache_read_input_tokens"), usage.get("cache_creation_input_tokens"));
    let counts = Counts {
        input: tokens(["input_tokens", "prompt_tokens"]),
        output: tokens(["output_tokens", "completion_tokens"]),
        cached: read
            .and_then(Value::as_u64)
            .or_else(|| detail(["prompt_tokens_details", "input_tokens_details"], "cached_tokens")),
        cache_written: written.and_then(Value::as_u64),
        reasoning: detail(["completion_tokens_details", "output_tokens_details"], "reasoning_tokens"),
        apart: read.or(written).is_some(),
    };
    (!counts.is_empty()).then_some(counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(text: &str) -> Option<(Option<u64>, Option<u64>)> {
        counts(text.as_bytes()).map(|counts| (counts.input, counts.output))
    }

    #[test]
    fn the_counts_of_every_surface_are_found() {
        let chat = r#"{"id":"x","choices":[],"usage":{"prompt_tokens":11,"completion_tokens":7,"total_tokens":18,"prompt_tokens_details":{"cached_tokens":4},"completion_tokens_details":{"reasoning_tokens":3}},"system_fingerprint":"fp"}"#;
        assert_eq!(
            counts(chat.as_bytes()),
            Some(Counts {
                input: Some(11),
                output: Some(7),
                cached: Some(4),
                reasoning: Some(3),
                ..Counts::default()
            })
        );
        let responses = r#"{"type":"response.completed","response":{"id":"r","usage":{"input_tokens":5,"input_tokens_details":{"cached_tokens":2},"output_tokens":6,"output_tokens_details":{"reasoning_tokens":1},"total_tokens":11},"metadata":{"usage":"{\"input_tokens\":9}"}},"sequence_number":9}"#;
        assert_eq!(
            counts(responses.as_bytes()),
            Some(Counts {
                input: Some(5),
                output: Some(6),
                cached: Some(2),
                reasoning: Some(1),
                ..Counts::default()
            })
        );
        let start = r#"{"type":"message_start","message":{"content":[],"usage":{"input_tokens":5,"cache_creation_input_tokens":0,"cache_read_input_tokens":3,"output_tokens":1}}}"#;
        let start = counts(start.as_bytes()).unwrap();
        assert_eq!((start.input_total(), start.cached, start.output), (Some(8), Some(3), Some(1)));
        let groq = r#"{"choices":[],"x_groq":{"id":"r","usage":{"prompt_tokens":1,"completion_tokens":2}}}"#;
        assert_eq!(pair(groq), Some((Some(1), Some(2))));
        assert_eq!(pair(r#"{"usage":{"output_tokens":3}}"#), Some((None, Some(3))));
    }

    #[test]
    fn what_only_looks_like_counts_is_none() {
        for text in [
            "",
            "{}",
            r#"{"usage":null}"#,
            r#"{"usage":7}"#,
            r#"{"usage":{}}"#,
            r#"{"usage":{"prompt_tokens":"7"}}"#,
            r#"{"usage":{"prompt_tokens":-7}}"#,
            r#"{"usage":{"prompt_tokens":1"#,
            r#"{"usage":{"prompt_tokens":1}"#,
            r#"{"x":"usage","prompt_tokens":1}"#,
            r#"{"choices":[{"delta":{"content":"\"usage\":{\"prompt_tokens\":9}"}}]}"#,
            r#"{"a":{"b":{"usage":{"prompt_tokens":1}}}}"#,
            r#"{"tools":[{"parameters":{"usage":{"input_tokens":1}}}]}"#,
            r#"{"usage":{"prompt_tokens":1},"x":"}"#,
        ] {
            assert_eq!(pair(text), None, "{text}");
        }
    }

    #[test]
    fn a_later_one_that_says_nothing_does_not_hide_an_earlier_one() {
        let text = r#"{"usage":{"prompt_tokens":1,"completion_tokens":2},"tools":[{"x":{"usage":{"input_tokens":9}}}],"y":{"usage":null}}"#;
        assert_eq!(pair(text), Some((Some(1), Some(2))));
    }

    /// However much of the beginning is missing.
    #[test]
    fn the_tail_of_a_text_says_the_same() {
        let text = r#"{"id":"x","choices":[{"message":{"content":"a \"usage\": {\"prompt_tokens\": 3}"}}] , "usage" : { "prompt_tokens" : 1 , "completion_tokens":2 } }
"#;
        let at = text.rfind("\"usage\"").unwrap();
        for start in 0..text.len() {
            if text.is_char_boundary(start) {
                let expected = (start <= at).then_some((Some(1), Some(2)));
                assert_eq!(pair(&text[start..]), expected, "from {start}");
            }
        }
    }
}
