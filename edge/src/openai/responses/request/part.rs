//! The parts of a message, of a thought and of a tool's result.

use std::borrow::Cow;

use serde_json::value::RawValue;

use crate::{
    conversation::{Checked, Image, ImageSource, Part, quoted, wrong},
    openai::responses::wire::{self, is_array, is_string, parse, some_text, text},
};

/// Media types beside `text/…` whose files are text.
const TEXT_TYPES: [&str; 4] =
    ["application/json", "application/xml", "application/yaml", "application/javascript"];

/// The content at `path.key`: a string, or parts.
pub(super) fn content(raw: Option<&RawValue>, path: &str, key: &str) -> Checked<Vec<Part>> {
    match raw {
        Some(raw) if is_string(raw) => {
            let text: wire::Text<'_> = parse(raw, &format!("{path}.{key}"))?;
            Ok(vec![Part::Text(text.0.into_owned())])
        }
        Some(raw) if is_array(raw) => {
            let path = format!("{path}.{key}");
            let list: Vec<&RawValue> = parse(raw, &path)?;
            list.into_iter().enumerate().map(|(at, raw)| part(raw, &format!("{path}[{at}]"))).collect()
        }
        Some(_) => wrong(format!("{path}.{key}"), "expected a string or an array of content parts"),
        None => wrong(
            format!("{path}.{key}"),
            "expected a string or an array of content parts, but the key is missing",
        ),
    }
}

/// The texts of a thought at `path.key`, each on lines of its own.
pub(super) fn thought(raw: Option<&RawValue>, path: &str, key: &str) -> Checked<String> {
    let Some(raw) = raw else { return Ok(String::new()) };
    let path = format!("{path}.{key}");
    let list: Vec<wire::Part<'_>> = parse(raw, &path)?;
    let texts: Vec<Cow<'_, str>> = list
        .iter()
        .enumerate()
        .map(|(at, part)| some_text(part.text, &format!("{path}[{at}]"), "text"))
        .collect::<Checked<_>>()?;
    Ok(texts.join("\n"))
}

fn part(raw: &RawValue, path: &str) -> Checked<Part> {
    let part: wire::Part<'_> = parse(raw, path)?;
    match &*part.kind.0 {
        "input_text" | "output_text" | "text" => {
            some_text(part.text, path, "text").map(|text| Part::Text(text.into_owned()))
        }
        "refusal" => some_text(part.refusal, path, "refusal").map(|text| Part::Text(text.into_owned())),
        "input_image" => image(&part, path),
        "input_file" => file(&part, path),
        other => {
            let found = quoted(other);
            wrong(
                format!("{path}.type"),
                format!(
                    "expected input_text, input_image, input_file, output_text or refusal, found {found}"
                ),
            )
        }
    }
}

fn image(part: &wire::Part<'_>, path: &str) -> Checked<Part> {
    let Some(url) = text(part.image_url, path, "image_url")? else {
        if part.file_id.is_some() {
            return wrong(format!("{path}.file_id"), "no files are kept here: send the image in `image_url`");
        }
        return wrong(format!("{path}.image_url"), "expected a string, but the key is missing");
    };
    let param = format!("{path}.image_url");
    let source = match DataUrl::read(&url) {
        Some(DataUrl { media_type, base64: Some(base64) })
            if starts_with(media_type, "image/") || media_type.is_empty() =>
        {
            let base64: String = base64.split_ascii_whitespace().collect();
            if base64.is_empty() {
                return wrong(param, "expected data:image/…;base64,… with the image behind it");
            }
            let media_type = if media_type.is_empty() { "image/png" } else { media_type };
            ImageSource::Data { media_type: media_type.to_ascii_lowercase(), base64 }
        }
        Some(_) => return wrong(param, "expected data:image/…;base64,… with the image behind it"),
        None if starts_with(&url, "https://") || starts_with(&url, "http://") => {
            ImageSource::Url(url.into_owned())
        }
        None => return wrong(param, "expected a data: URL or one of http or https"),
    };
    let detail = text(part.detail, path, "detail")?.map(Cow::into_owned);
    Ok(Part::Image(Image { param, source, detail }))
}

/// A file that is text is one in the conversation, too, behind its name.
fn file(part: &wire::Part<'_>, path: &str) -> Checked<Part> {
    let param = format!("{path}.file_data");
    let Some(data) = text(part.file_data, path, "file_data")? else {
        let key = if part.file_url.is_some() { "file_url" } else { "file_id" };
        return wrong(
            format!("{path}.{key}"),
            "files are neither fetched nor kept here: send the file in `file_data`",
        );
    };
    let not_text =
        "expected a text file in base64, as in data:text/plain;base64,…: no other files can be passed on";
    let Some(DataUrl { media_type, base64: Some(base64) }) = DataUrl::read(&data) else {
        return wrong(param, not_text);
    };
    let is_text = starts_with(media_type, "text/")
        || TEXT_TYPES.iter().any(|known| media_type.eq_ignore_ascii_case(known));
    let content = if is_text { decode(base64).and_then(|bytes| String::from_utf8(bytes).ok()) } else { None };
    let Some(content) = content else { return wrong(param, not_text) };
    let name = text(part.filename, path, "filename")?.unwrap_or_default();
    Ok(Part::Text(if name.is_empty() { content } else { format!("{name}:\n{content}") }))
}

fn starts_with(text: &str, prefix: &str) -> bool {
    text.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix))
}

/// The parts of a `data:` URL (RFC 2397).
struct DataUrl<'a> {
    /// Without its parameters.
    media_type: &'a str,
    /// Its data, where it is in that form.
    base64: Option<&'a str>,
}

impl<'a> DataUrl<'a> {
    fn read(url: &'a str) -> Option<Self> {
        let rest = url.get(..5).filter(|scheme| scheme.eq_ignore_ascii_case("data:")).and(url.get(5..))?;
        let (kind, data) = rest.split_once(',').unwrap_or((rest, ""));
        let mut parameters = kind.split(';');
        let media_type = parameters.next().unwrap_or_default().trim();
        let is_base64 = parameters.any(|parameter| parameter.trim().eq_ignore_ascii_case("base64"));
        Some(Self { media_type, base64: is_base64.then_some(data) })
    }
}

/// The bytes of a base64 text (RFC 4648 section 4), with or without its padding.
fn decode(base64: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(base64.len() / 4 * 3);
    let (mut bits, mut count) = (0_u32, 0_u32);
    for byte in base64.trim_end_matches('=').bytes().filter(|byte| !byte.is_ascii_whitespace()) {
        let six = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(six);
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push(u8::try_from(bits >> count & 0xff).ok()?);
        }
    }
    // Six bits alone are the beginning of no byte.
    (count < 6).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_in_all_its_lengths() {
        for (text, bytes) in [
            ("", Some(&b""[..])),
            ("Zg==", Some(b"f")),
            ("Zg", Some(b"f")),
            ("Zm8=", Some(b"fo")),
            ("Zm9v", Some(b"foo")),
            ("Zm9v\nYmFy", Some(b"foobar")),
            ("/+8A", Some(&[0xff, 0xef, 0])),
            ("Z", None),
            ("Zm9vZ", None),
            ("Zm-_", None),
            ("Zg==Zg", None),
        ] {
            assert_eq!(decode(text).as_deref(), bytes, "{text}");
        }
    }
}
