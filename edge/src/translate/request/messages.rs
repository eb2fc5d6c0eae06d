//! The messages of a chat completion request.

use std::borrow::Cow;

use proto::run_input::{Role, ToolCall};
use serde::Serialize;

use crate::{
    config::ChatDialect,
    conversation::{Checked, Image, ImageSource, Message, Part, wrong},
};

/// A message as it stands in the request.
#[derive(Debug, Serialize)]
pub(super) struct Wire<'a> {
    role: &'static str,
    content: Content<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_calls: Option<&'a [ToolCall]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_call_id: Option<&'a str>,
}

impl<'a> Wire<'a> {
    fn new(role: &'static str, content: Content<'a>) -> Self {
        Self { role, content, reasoning_content: None, reasoning: None, tool_calls: None, tool_call_id: None }
    }
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Content<'a> {
    /// Of an assistant that only calls.
    Nothing,
    Text(Cow<'a, str>),
    Parts(Vec<WirePart<'a>>),
}

#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum WirePart<'a> {
    Text { text: Cow<'a, str> },
    ImageUrl { image_url: ImageUrl<'a> },
}

#[derive(Debug, Serialize)]
struct ImageUrl<'a> {
    url: Cow<'a, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<&'a str>,
}

/// The messages, as the engine of this dialect takes them.
///
/// # Errors
/// A picture that nobody but a user or a tool may show.
pub(super) fn of<'a>(messages: &'a [Message], dialect: &ChatDialect) -> Checked<Vec<Wire<'a>>> {
    let mut list = List { wire: Vec::with_capacity(messages.len()), shown: Vec::new(), dialect };
    for message in messages {
        list.add(message)?;
    }
    list.show();
    Ok(list.wire)
}

struct List<'a, 'd> {
    wire: Vec<Wire<'a>>,
    /// Pictures of the tools' answers above: answers must stand together behind their calls, and hold text only.
    shown: Vec<WirePart<'a>>,
    dialect: &'d ChatDialect,
}

impl<'a> List<'a, '_> {
    fn add(&mut self, message: &'a Message) -> Checked<()> {
        if message.role != Role::Tool {
            self.show();
        }
        match message.role {
            Role::System => self.system(message),
            Role::User => {
                self.user(content(&message.parts));
                Ok(())
            }
            Role::Assistant => self.assistant(message),
            Role::Tool => {
                self.tool(message);
                Ok(())
            }
        }
    }

    /// What is said first is one message. What is said later by no user is told in a user's turn where it may stand nowhere else, and
    /// in a form that agents have for that.
    fn system(&mut self, message: &'a Message) -> Checked<()> {
        no_pictures(&message.parts)?;
        let text = text(&message.parts);
        if self.dialect.late_system {
            self.wire.push(Wire::new("system", Content::Text(text)));
            return Ok(());
        }
        match self.wire.as_mut_slice() {
            [] => self.wire.push(Wire::new("system", Content::Text(text))),
            [Wire { role: "system", content: Content::Text(first), .. }] => join(first, &text),
            _ => {
                let told = format!("<system-reminder>\n{text}\n</system-reminder>");
                self.user(Content::Text(told.into()));
            }
        }
        Ok(())
    }

    /// Templates that want turns of one side each get them.
    fn user(&mut self, next: Content<'a>) {
        let last = self.wire.last_mut().filter(|last| last.role == "user" && !self.dialect.late_system);
        match (last.map(|last| &mut last.content), next) {
            (Some(Content::Text(text)), Content::Text(more)) => join(text, &more),
            (Some(content), next) => {
                let mut parts = parts_of(std::mem::replace(content, Content::Nothing));
                parts.extend(parts_of(next));
                *content = Content::Parts(parts);
            }
            (None, next) => self.wire.push(Wire::new("user", next)),
        }
    }

    fn assistant(&mut self, message: &'a Message) -> Checked<()> {
        no_pictures(&message.parts)?;
        let calls = Some(&*message.tool_calls).filter(|calls| !calls.is_empty());
        let text = text(&message.parts);
        let content = if text.is_empty() && calls.is_some() { Content::Nothing } else { Content::Text(text) };
        let mut wire = Wire { tool_calls: calls, ..Wire::new("assistant", content) };
        let reasoning = Some(&*message.reasoning).filter(|text| !text.is_empty());
        match self.dialect.reasoning {
            Some("reasoning") => wire.reasoning = reasoning,
            Some(_) => wire.reasoning_content = reasoning,
            None => {}
        }
        self.wire.push(wire);
        Ok(())
    }

    fn tool(&mut self, message: &'a Message) {
        let pictures = message.parts.iter().filter_map(|part| match part {
            Part::Image(image) => Some(picture(image)),
            Part::Text(_) => None,
        });
        let before = self.shown.len();
        self.shown.extend(pictures);
        let mut text = text(&message.parts);
        if self.shown.len() > before && text.is_empty() {
            text = "The picture follows.".into();
        }
        let id = Some(&*message.tool_call_id);
        self.wire.push(Wire { tool_call_id: id, ..Wire::new("tool", Content::Text(text)) });
    }

    /// The pictures of tools' answers, behind the last of these.
    fn show(&mut self) {
        if !self.shown.is_empty() {
            let parts = std::mem::take(&mut self.shown);
            self.user(Content::Parts(parts));
        }
    }
}

fn join<'a>(text: &mut Cow<'a, str>, more: &str) {
    if !more.is_empty() {
        let text = text.to_mut();
        if !text.is_empty() {
            text.push_str("\n\n");
        }
        text.push_str(more);
    }
}

fn parts_of(content: Content<'_>) -> Vec<WirePart<'_>> {
    match content {
        Content::Parts(parts) => parts,
        Content::Text(text) if !text.is_empty() => vec![WirePart::Text { text }],
        Content::Text(_) | Content::Nothing => Vec::new(),
    }
}

/// Text alone is a string: not every engine takes a list of parts.
fn content(parts: &[Part]) -> Content<'_> {
    if parts.iter().all(|part| matches!(part, Part::Text(_))) {
        return Content::Text(text(parts));
    }
    Content::Parts(parts.iter().map(wire_part).collect())
}

fn wire_part(part: &Part) -> WirePart<'_> {
    match part {
        Part::Text(text) => WirePart::Text { text: text.into() },
        Part::Image(image) => picture(image),
    }
}

fn picture(image: &Image) -> WirePart<'_> {
    let url = match &image.source {
        ImageSource::Data { media_type, base64 } => format!("data:{media_type};base64,{base64}").into(),
        ImageSource::Url(url) => url.into(),
    };
    WirePart::ImageUrl { image_url: ImageUrl { url, detail: image.detail.as_deref() } }
}

/// Texts stand on lines of their own, as servers of the usual kind put them.
fn text(parts: &[Part]) -> Cow<'_, str> {
    let mut texts = parts.iter().filter_map(|part| match part {
        Part::Text(text) => Some(&**text),
        Part::Image(_) => None,
    });
    let mut all = Cow::Borrowed(texts.next().unwrap_or_default());
    for text in texts {
        let all = all.to_mut();
        all.push('\n');
        all.push_str(text);
    }
    all
}

fn no_pictures(parts: &[Part]) -> Checked<()> {
    for part in parts {
        if let Part::Image(image) = part {
            return wrong(
                image.param.clone(),
                "a picture can be shown by the user or a tool only: the provider of this model has chat completions",
            );
        }
    }
    Ok(())
}
