//! What a model writes when it writes a call.

use proto::run_input::{Call, CallKind, ToolCall};
use serde::Deserialize;
use serde_json::value::RawValue;

/// Keys that a call begins with, in any of its forms.
const FIRST_KEYS: [&str; 6] = ["name", "arguments", "parameters", "function", "type", "id"];

/// A call in any of its forms.
#[derive(Deserialize)]
#[expect(clippy::use_self, reason = "serde finds what is borrowed by the lifetime in the type")]
struct Written<'a> {
    name: Option<String>,
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
    #[serde(borrow)]
    parameters: Option<&'a RawValue>,
    #[serde(borrow)]
    function: Option<Box<Written<'a>>>,
}

/// Why a value holds no calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoCall {
    /// It has not the form of one.
    Form,
    /// It has, and names no function of the request.
    Name,
}

/// The calls of a value: one object, or an array of them. None when any of them is no call of a known function, so that nothing
/// of a text is lost. Without a tag around it only what has arguments is a call.
pub(super) fn calls(value: &str, names: &[String], tagged: bool) -> Result<Vec<ToolCall>, NoCall> {
    let value = value.trim();
    let read = if value.starts_with('[') {
        serde_json::from_str::<Vec<Written<'_>>>(value)
    } else {
        serde_json::from_str(value).map(|one| vec![one])
    };
    let written = read.ok().filter(|list| !list.is_empty()).ok_or(NoCall::Form)?;
    written.into_iter().map(|written| call(written, names, tagged)).collect()
}

fn call(written: Written<'_>, names: &[String], tagged: bool) -> Result<ToolCall, NoCall> {
    let written = match written.function {
        Some(inner) if written.name.is_none() => *inner,
        _ => written,
    };
    let name = written.name.ok_or(NoCall::Form)?;
    let arguments = match written.arguments.or(written.parameters) {
        Some(raw) => object(raw).ok_or(NoCall::Form)?,
        None if tagged => "{}".to_owned(),
        None => return Err(NoCall::Form),
    };
    if !names.contains(&name) {
        return Err(NoCall::Name);
    }
    let function = Call { name, arguments };
    Ok(ToolCall { id: String::new(), kind: CallKind::Function, function })
}

/// Arguments are an object, or a string that holds one.
fn object(raw: &RawValue) -> Option<String> {
    let text = raw.get();
    if text.starts_with('"') {
        let inner: String = serde_json::from_str(text).ok()?;
        let inner: Box<RawValue> = serde_json::from_str(inner.trim()).ok()?;
        return inner.get().starts_with('{').then(|| compact(inner.get()));
    }
    text.starts_with('{').then(|| compact(text))
}

/// The same JSON without blanks between its parts; order and numbers stay as they were written.
fn compact(json: &str) -> String {
    let (mut in_string, mut escaped) = (false, false);
    let keep = |char: &char| {
        if in_string {
            in_string = escaped || *char != '"';
            escaped = !escaped && *char == '\\';
            return true;
        }
        in_string = *char == '"';
        !matches!(char, ' ' | '\t' | '\r' | '\n')
    };
    json.chars().filter(keep).collect()
}

/// Whether a value that begins like this may be a call: its first key is one of a call's, as far as it is there.
pub(super) fn may_be_call(begin: &str) -> bool {
    let inner = begin.trim_start_matches(|char: char| char == '[' || char.is_ascii_whitespace());
    let Some(inner) = inner.strip_prefix('{') else { return inner.is_empty() };
    let inner = inner.trim_start();
    let Some(key) = inner.strip_prefix('"') else { return inner.is_empty() };
    FIRST_KEYS.iter().any(|known| match key.split_once('"') {
        Some((key, _)) => key == *known,
        None => known.starts_with(key),
    })
}
