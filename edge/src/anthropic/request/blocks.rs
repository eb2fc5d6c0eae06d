//! What messages are made of.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::{MISSING, Place};
use crate::{
    anthropic::wire,
    conversation::{Checked, Image, ImageSource, Part, quoted, wrong},
};

/// One block of a message's content.
pub(super) struct Block<'a>(wire::Block<'a>);

/// A block whose kind is known.
pub(super) enum Kind<'a> {
    Text(Cow<'a, str>),
    Shown(Shown<'a>),
    Thinking(Cow<'a, str>),
    /// Thinking that only Anthropic can read.
    Redacted,
    Call(wire::Block<'a>),
    Result(wire::Block<'a>),
    /// The name of a tool that a search has found; it is among the request's tools.
    Reference(Cow<'a, str>),
}

/// What a user shows, and a tool finds.
pub(super) enum Shown<'a> {
    Image(wire::Block<'a>),
    Document(wire::Block<'a>),
    SearchResult(wire::Block<'a>),
}

/// Reads content: a string, which is one block of text, or a list of blocks.
pub(super) fn read<'a>(
    content: Option<&'a RawValue>,
    at: &Place<'_>,
    mut take: impl FnMut(Block<'a>, &Place<'_>) -> Checked<()>,
) -> Checked<()> {
    let Some(content) = content else {
        return wrong(at.to_string(), format!("expected a string or an array of blocks, {MISSING}"));
    };
    match content.get().as_bytes().first() {
        Some(b'"') => {
            let text = Some(wire::value::<wire::Text<'_>>(content, at)?);
            take(Block(wire::Block { text, ..wire::Block::default() }), at)
        }
        Some(b'[') => wire::each(content, at, |index, raw| {
            let at = at.item(index);
            let block: wire::Block<'_> = wire::value(raw, &at)?;
            if block.kind.is_none() {
                return wrong(at.key("type").to_string(), format!("expected a kind of block, {MISSING}"));
            }
            take(Block(block), &at)
        }),
        _ => wrong(at.to_string(), "expected a string or an array of blocks"),
    }
}

/// Adds a text that says something.
pub(super) fn say(text: &str, parts: &mut Vec<Part>) {
    if !text.is_empty() {
        parts.push(Part::Text(text.to_owned()));
    }
}

impl<'a> Block<'a> {
    /// What it is. A content that is a string has no kind, and is text.
    pub(super) fn kind(self, at: &Place<'_>) -> Checked<Kind<'a>> {
        let Self(block) = self;
        let text = |text: Option<wire::Text<'a>>, key| match text {
            Some(text) => Ok(text.0),
            None => wrong(at.key(key).to_string(), format!("expected a string, {MISSING}")),
        };
        Ok(match block.kind.as_ref().map_or("text", |kind| &kind.0) {
            "text" => Kind::Text(text(block.text, "text")?),
            "thinking" => Kind::Thinking(text(block.thinking, "thinking")?),
            "redacted_thinking" => Kind::Redacted,
            "tool_use" => Kind::Call(block),
            "tool_result" => Kind::Result(block),
            "tool_reference" => Kind::Reference(text(block.tool_name, "tool_name")?),
            "image" => Kind::Shown(Shown::Image(block)),
            "document" => Kind::Shown(Shown::Document(block)),
            "search_result" => Kind::Shown(Shown::SearchResult(block)),
            other => {
                return wrong(
                    at.key("type").to_string(),
                    format!(
                        "this model takes text, image, document, search_result, thinking, tool_use and \
                         tool_result, not {}",
                        quoted(other)
                    ),
                );
            }
        })
    }
}

impl Shown<'_> {
    /// Adds it to the parts of a message.
    pub(super) fn into_parts(self, at: &Place<'_>, parts: &mut Vec<Part>) -> Checked<()> {
        match self {
            Self::Image(block) => {
                parts.push(Part::Image(image(&source(&block, at)?, &at.key("source"))?));
                Ok(())
            }
            Self::Document(block) => document(&block, at, parts),
            Self::SearchResult(block) => search_result(&block, at, parts),
        }
    }
}

fn source<'a>(block: &wire::Block<'a>, at: &Place<'_>) -> Checked<wire::Source<'a>> {
    let at = at.key("source");
    match block.source {
        Some(raw) => wire::value(raw, &at),
        None => wrong(at.to_string(), format!("expected an object, {MISSING}")),
    }
}

fn image(source: &wire::Source<'_>, at: &Place<'_>) -> Checked<Image> {
    let (key, source) = match source.kind.as_ref().map_or("", |kind| &kind.0) {
        "base64" => {
            let media_type = source.media_type.as_ref().map_or("", |text| &text.0);
            if !is_image(media_type) {
                return wrong(at.key("media_type").to_string(), "expected image/…");
            }
            ("data", encoded(media_type, source.data.as_ref().map_or("", |text| &text.0)))
        }
        "url" => ("url", addressed(source.url.as_ref().map_or("", |text| &text.0))),
        _ => return wrong(at.key("type").to_string(), "expected base64 or url: files are not kept here"),
    };
    let param = at.key(key).to_string();
    match source {
        Ok(source) => Ok(Image { param, source, detail: None }),
        Err(expected) => wrong(param, expected),
    }
}

fn addressed(url: &str) -> Result<ImageSource, &'static str> {
    let starts = |scheme: &str| url.get(..scheme.len()).is_some_and(|it| it.eq_ignore_ascii_case(scheme));
    if starts("https://") || starts("http://") {
        return Ok(ImageSource::Url(url.to_owned()));
    }
    let data = url.get("data:".len()..).filter(|_| starts("data:"));
    match data.and_then(|data| data.split_once(";base64,")) {
        Some((media_type, base64)) if is_image(media_type) => encoded(media_type, base64),
        _ => Err("expected an address that begins with https:// or data:image/…;base64,"),
    }
}

fn is_image(media_type: &str) -> bool {
    media_type.get(.."image/".len()).is_some_and(|kind| kind.eq_ignore_ascii_case("image/"))
}

/// RFC 4648 section 4; line ends and blanks are left out.
fn encoded(media_type: &str, base64: &str) -> Result<ImageSource, &'static str> {
    let base64: String = if base64.bytes().any(|byte| byte.is_ascii_whitespace()) {
        base64.split_ascii_whitespace().collect()
    } else {
        base64.to_owned()
    };
    let is_digit = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=');
    if base64.is_empty() || !base64.bytes().all(is_digit) {
        return Err("expected the image in base64");
    }
    Ok(ImageSource::Data { media_type: media_type.to_owned(), base64 })
}

/// A text with its title, or what a document is put together of.
fn document(block: &wire::Block<'_>, at: &Place<'_>, parts: &mut Vec<Part>) -> Checked<()> {
    no_citations(block, at)?;
    let source = source(block, at)?;
    let place = at.key("source");
    [&block.title, &block.context].into_iter().flatten().for_each(|text| say(&text.0, parts));
    match source.kind.as_ref().map_or("", |kind| &kind.0) {
        "text" => match &source.data {
            Some(data) => {
                say(&data.0, parts);
                Ok(())
            }
            None => wrong(place.key("data").to_string(), format!("expected a string, {MISSING}")),
        },
        "content" => read(source.content, &place.key("content"), |block, at| match block.kind(at)? {
            Kind::Text(text) => {
                say(&text, parts);
                Ok(())
            }
            Kind::Shown(shown @ Shown::Image(_)) => shown.into_parts(at, parts),
            _ => wrong(at.key("type").to_string(), "expected text or image in a document"),
        }),
        other => wrong(
            place.key("type").to_string(),
            format!("this model takes documents as text or content, not as {}", quoted(other)),
        ),
    }
}

fn search_result(block: &wire::Block<'_>, at: &Place<'_>, parts: &mut Vec<Part>) -> Checked<()> {
    no_citations(block, at)?;
    if let Some(title) = &block.title {
        say(&title.0, parts);
    }
    if let Some(source) = block.source {
        say(&wire::value::<wire::Text<'_>>(source, &at.key("source"))?.0, parts);
    }
    read(block.content, &at.key("content"), |block, at| match block.kind(at)? {
        Kind::Text(text) => {
            say(&text, parts);
            Ok(())
        }
        _ => wrong(at.key("type").to_string(), "expected text in a search_result"),
    })
}

/// An answer would lack them.
fn no_citations(block: &wire::Block<'_>, at: &Place<'_>) -> Checked<()> {
    let at = at.key("citations");
    let citations = block.citations.filter(|raw| raw.get().starts_with('{'));
    let citations: Option<wire::Citations> = citations.map(|raw| wire::value(raw, &at)).transpose()?;
    if citations.and_then(|it| it.enabled) == Some(true) {
        return wrong(at.key("enabled").to_string(), "this model does not cite");
    }
    Ok(())
}
