//! What a response repeats of its request.

use serde::Serialize;

use super::writer::write;

/// Longest member of a request that is repeated, in bytes of JSON: 256 KiB, several times what the tools of a coding agent are. All
/// responses in the making hold theirs, and several events of each have it.
pub(super) const TOLD_BYTES_MAX: usize = 256 * 1024;

/// A part of the request that is repeated as it was sent: JSON.
type Sent<'a> = Option<&'a str>;

/// What was asked for, as far as a response tells it. `None`, and what is too long, is told as the value that counts without it.
#[derive(Debug, Default)]
pub(super) struct Told<'a> {
    pub(super) instructions: Option<&'a str>,
    pub(super) max_output_tokens: Option<u64>,
    pub(super) max_tool_calls: Option<u64>,
    pub(super) metadata: Sent<'a>,
    pub(super) parallel_tool_calls: Option<bool>,
    pub(super) prompt_cache_key: Sent<'a>,
    pub(super) effort: Option<&'a str>,
    pub(super) summary: Option<&'a str>,
    pub(super) safety_identifier: Sent<'a>,
    pub(super) temperature: Option<f64>,
    /// The form of the answer.
    pub(super) format: Sent<'a>,
    pub(super) verbosity: Option<&'a str>,
    pub(super) tool_choice: Sent<'a>,
    /// The elements of `tools`, as JSON in one line.
    pub(super) tools: Vec<u8>,
    pub(super) top_p: Option<f64>,
    pub(super) frequency_penalty: Option<f64>,
    pub(super) presence_penalty: Option<f64>,
    pub(super) user: Sent<'a>,
}

/// The members of a response that do not change while it is made, as JSON: all that its schemas require is there, the part that
/// the Edge has no say in with its usual value.
#[derive(Clone, Debug)]
pub struct Echo(Vec<u8>);

impl Default for Echo {
    fn default() -> Self {
        Self::new(&Told::default())
    }
}

impl Echo {
    pub(super) fn new(told: &Told<'_>) -> Self {
        let mut json = Vec::with_capacity(1024);
        let mut sent = |key: &str, value: Sent<'_>, absent: &str| {
            json.extend_from_slice(key.as_bytes());
            compact(value.filter(|json| json.len() <= TOLD_BYTES_MAX).unwrap_or(absent), &mut json);
        };
        sent("\"metadata\":", told.metadata, "{}");
        sent(",\"tool_choice\":", told.tool_choice, "\"auto\"");
        sent(",\"prompt_cache_key\":", told.prompt_cache_key, "null");
        sent(",\"safety_identifier\":", told.safety_identifier, "null");
        sent(",\"user\":", told.user, "null");
        sent(",\"text\":{\"format\":", told.format, "{\"type\":\"text\"}");
        if let Some(word) = told.verbosity {
            member(",\"verbosity\":", word, &mut json);
        }
        json.extend_from_slice(b"},\"tools\":[");
        json.extend_from_slice(
            Some(&*told.tools).filter(|json| json.len() <= TOLD_BYTES_MAX).unwrap_or_default(),
        );
        member("],\"reasoning\":{\"effort\":", &told.effort, &mut json);
        member(",\"summary\":", &told.summary, &mut json);
        let instructions = told.instructions.filter(|text| text.len() <= TOLD_BYTES_MAX);
        member("},\"instructions\":", &instructions, &mut json);
        member(",\"max_output_tokens\":", &told.max_output_tokens, &mut json);
        member(",\"max_tool_calls\":", &told.max_tool_calls, &mut json);
        member(",\"parallel_tool_calls\":", &told.parallel_tool_calls.unwrap_or(true), &mut json);
        member(",\"temperature\":", &told.temperature.unwrap_or(1.0), &mut json);
        member(",\"top_p\":", &told.top_p.unwrap_or(1.0), &mut json);
        member(",\"frequency_penalty\":", &told.frequency_penalty.unwrap_or(0.0), &mut json);
        member(",\"presence_penalty\":", &told.presence_penalty.unwrap_or(0.0), &mut json);
        // Nothing is stored, runs unseen, is cut to size or sampled for its alternatives.
        json.extend_from_slice(
            b",\"store\":false,\"background\":false,\"previous_response_id\":null,\"truncation\":\"disabled\",\
              \"service_tier\":\"default\",\"top_logprobs\":0",
        );
        Self(json)
    }

    pub(super) fn members(&self) -> &[u8] {
        &self.0
    }
}

fn member<T: Serialize + ?Sized>(key: &str, value: &T, out: &mut Vec<u8>) {
    out.extend_from_slice(key.as_bytes());
    write(out, value);
}

/// Appends a client's JSON in one line: a line break in it would end the event that it is repeated in.
pub(super) fn compact(json: &str, out: &mut Vec<u8>) {
    let mut in_string = false;
    let mut is_escaped = false;
    let means_something = |byte: &u8| {
        if in_string {
            let ends = *byte == b'"' && !is_escaped;
            is_escaped = *byte == b'\\' && !is_escaped;
            in_string = !ends;
            return true;
        }
        in_string = *byte == b'"';
        !matches!(*byte, b' ' | b'\t' | b'\n' | b'\r')
    };
    out.extend(json.bytes().filter(means_something));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_repeated_stands_in_one_line_and_means_the_same() {
        for json in [
            "{ \"a b\" :\r\n [1,\t2 ] , \"c\\\" d\": \"e\\\\\" , \"\": null }",
            "\" \\n \\\\ \"",
            "  5 ",
            "{\"k\":\"\u{1f30d} \u{2028}\"}",
        ] {
            let mut out = Vec::new();
            compact(json, &mut out);
            let text = std::str::from_utf8(&out).unwrap();
            assert!(!text.contains(['\n', '\r', '\t']), "{text}");
            let value = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
            assert_eq!(value(text), value(json));
            assert_eq!(text.len(), value(json).to_string().len(), "nothing is left that means nothing");
        }
    }
}
