//! What an event stream of ours must look like so that no client of api.md §1.9 stumbles over it, surface by surface. Pure: the
//! bytes of a body in, the first thing that is wrong out.

pub mod chat;
pub mod messages;
pub mod responses;

use serde_json::Value;

use crate::model::Surface;

/// How a stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// As it should.
    Well,
    /// It failed, and said so.
    Failed,
    /// Not yet: only what has come is judged.
    NotYet,
}

/// An event.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Of its `event:` line; empty = there is none.
    pub name: String,
    /// JSON, or `[DONE]` as a string.
    pub data: Value,
}

/// What a stream consists of.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stream {
    /// Events in order.
    pub events: Vec<Event>,
    /// Comments between them.
    pub comments: usize,
}

/// Judges a body.
///
/// # Errors
/// The first rule that it breaks, and where.
pub fn check(surface: Surface, body: &[u8], ended: Ended) -> Result<Stream, String> {
    let stream = split(body, ended)?;
    match surface {
        Surface::Chat => chat::check(&stream.events, ended)?,
        Surface::Responses => responses::check(&stream.events, ended)?,
        Surface::Messages => messages::check(&stream.events, ended)?,
    }
    Ok(stream)
}

/// The framing, which is the same for all: LF alone, no BOM, one `data:` line for each event, at most one `event:` line before it,
/// comments of one line between events, nothing else.
fn split(body: &[u8], ended: Ended) -> Result<Stream, String> {
    let text = std::str::from_utf8(body).map_err(|error| error.to_string())?;
    if text.starts_with('\u{feff}') {
        return Err("a BOM".to_owned());
    }
    if text.contains('\r') {
        return Err("a carriage return".to_owned());
    }
    let whole = match text.rfind('\n') {
        _ if ended != Ended::NotYet => text,
        Some(end) => &text[..=end],
        None => "",
    };
    if !whole.is_empty() && !whole.ends_with('\n') {
        return Err(format!("a last line without its end: {:?}", whole.lines().last()));
    }
    let (mut stream, mut name, mut data) = (Stream::default(), None::<&str>, None::<&str>);
    for (number, line) in whole.lines().enumerate() {
        let wrong = |what: &str| Err(format!("line {}: {what}: {line:?}", number + 1));
        if line.is_empty() {
            match (name.take(), data.take()) {
                (name, Some(data)) => {
                    let data = match data {
                        "[DONE]" => Value::from("[DONE]"),
                        json => match serde_json::from_str(json) {
                            Ok(data) => data,
                            Err(error) => return wrong(&format!("{error} in the event before")),
                        },
                    };
                    stream.events.push(Event { name: name.unwrap_or_default().to_owned(), data });
                }
                (Some(_), None) => return wrong("an event without data"),
                (None, None) => return wrong("an empty line that ends nothing"),
            }
        } else if line.starts_with(':') {
            if name.is_some() || data.is_some() {
                return wrong("a comment inside an event");
            }
            stream.comments += 1;
        } else if let Some(found) = line.strip_prefix("event: ") {
            if name.is_some() || data.is_some() {
                return wrong("an event's name not at its beginning");
            }
            name = Some(found);
        } else if let Some(found) = line.strip_prefix("data: ") {
            if data.is_some() || found.is_empty() {
                return wrong("data that is empty or has two lines");
            }
            data = Some(found);
        } else {
            return wrong("neither event, data nor comment");
        }
    }
    if ended != Ended::NotYet && (name.is_some() || data.is_some()) {
        return Err("an event without its end".to_owned());
    }
    Ok(stream)
}

/// An error object of OpenAI's form.
fn is_openai_error(error: &Value) -> Result<(), String> {
    let has = |key: &str| error.get(key).is_some();
    let texts = error["message"].is_string() && error["type"].is_string();
    let codes = ["param", "code"].iter().all(|key| error[*key].is_string() || error[*key].is_null());
    if texts && codes && has("param") && has("code") { Ok(()) } else { Err(format!("an odd error: {error}")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn framing_that_some_client_stumbles_over_is_found() {
        let framed = |text: &str| {
            split(text.as_bytes(), Ended::Well).map(|stream| (stream.events.len(), stream.comments))
        };
        assert_eq!(framed("data: {}\n\n: ka\n: ka\nevent: a\ndata: {}\n\ndata: [DONE]\n\n"), Ok((3, 2)));
        for bad in [
            "\u{feff}data: {}\n\n",
            "data: {}\r\n\r\n",
            "id: 1\ndata: {}\n\n",
            "retry: 5\n\n",
            "event: ping\n\n",
            "data: \n\n",
            "data:{}\n\n",
            "data: {}\ndata: {}\n\n",
            "data: {}\nevent: a\n\n",
            "event: a\n: ka\ndata: {}\n\n",
            ": ka\n\n",
            "data: {\n\n",
            "data: {}\n",
            "data: {}",
        ] {
            assert!(framed(bad).is_err(), "{bad:?}");
        }
        assert_eq!(split(b"data: {}\n\ndata: {\"a", Ended::NotYet).unwrap().events.len(), 1);
    }
}
