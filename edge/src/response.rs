//! Response heads: what every answer says about how it came about (API-2), and the two kinds of answers.

use std::time::Duration;

use dataplane::{
    http::{
        head::{Headers, ResponseHead},
        hop,
        server::{Connection, ResponseBody},
    },
    net::WriteFault,
};
use proto::message::Header;

use crate::reply::Fault;

/// Fields that we add to a head at most, those of an event stream included.
const OWN_FIELDS: usize = 8;
/// Bytes of their names and of the values that are known or numbers.
const OWN_BYTES: usize = 180;

/// How an answer came about.
#[derive(Clone, Copy, Debug)]
pub struct Answer<'a> {
    /// Told as `x-request-id` (OpenAI's SDKs) and `request-id` (Anthropic's).
    pub request_id: &'a str,
    /// Told as `x-iop-provider`.
    pub provider: Option<&'a str>,
    /// Told as `x-iop-attempts`, where there was any.
    pub attempts: u32,
    /// Told as `x-iop-queue-ms`, where there was an attempt.
    pub queued: Duration,
    /// Told as `x-iop-tool-mode: text`: the backend was asked for its calls in text (RUN-4).
    pub text_tools: bool,
}

impl Answer<'_> {
    /// An answer of the Edge's own.
    pub fn local(request_id: &str) -> Answer<'_> {
        Answer { request_id, provider: None, attempts: 0, queued: Duration::ZERO, text_tools: false }
    }

    fn write(&self, headers: &mut Headers) {
        add(headers, "x-request-id", self.request_id);
        add(headers, "request-id", self.request_id);
        if let Some(provider) = self.provider {
            add(headers, "x-iop-provider", provider);
        }
        if self.attempts > 0 {
            add(headers, "x-iop-attempts", Decimal::of(u64::from(self.attempts)).text());
            let queued = u64::try_from(self.queued.as_millis()).unwrap_or(u64::MAX);
            add(headers, "x-iop-queue-ms", Decimal::of(queued).text());
        }
        if self.text_tools {
            add(headers, "x-iop-tool-mode", "text");
        }
    }

    /// Bytes of what [`Answer::write`] adds, at most.
    fn room(&self) -> usize {
        OWN_BYTES + 2 * self.request_id.len() + self.provider.map_or(0, str::len)
    }
}

/// A relayed answer's head.
#[derive(Debug)]
pub struct Begun {
    /// Status and headers.
    pub head: ResponseHead,
    /// How its body is framed to the client.
    pub body: ResponseBody,
    /// Whether the body is a stream of server-sent events.
    pub is_event_stream: bool,
    /// Whether the body is JSON.
    pub is_json: bool,
}

/// The head of a provider's answer: its status and remaining headers (TUN-6), and ours.
pub fn relayed(status: u16, provider_headers: &[Header], answer: &Answer<'_>) -> Begun {
    let theirs = provider_headers.iter().map(|header| header.name.len() + header.value.len()).sum::<usize>();
    let mut headers = Headers::with_room(provider_headers.len() + OWN_FIELDS, theirs + answer.room());
    let mut body = if matches!(status, 204 | 304) { ResponseBody::None } else { ResponseBody::Chunked };
    let (mut is_event_stream, mut is_json) = (false, false);
    for header in provider_headers {
        match header.name.as_str() {
            // Our own numbers stand in their place.
            "x-request-id" | "request-id" => {}
            "content-length" => {
                let length = std::str::from_utf8(&header.value).ok().and_then(|text| text.parse().ok());
                if let (Some(length), ResponseBody::Chunked) = (length, body) {
                    body = ResponseBody::Length(length);
                }
            }
            name if !hop::may_cross(name) => {}
            name => {
                if name == "content-type" {
                    is_event_stream |= names(&header.value, "text/event-stream");
                    is_json |= names(&header.value, "application/json");
                }
                // The wire's rules for headers are those of a head, so a refusal here is a defect: left out.
                let _refused = headers.push(name, &header.value);
            }
        }
    }
    if is_event_stream {
        if let ResponseBody::Length(_) = body {
            // A stream that breaks must be able to say so, and one that lacks its end must not look whole.
            body = ResponseBody::Chunked;
        }
        if headers.get("cache-control").is_none() {
            add(&mut headers, "cache-control", "no-cache");
        }
        // Keeps a proxy of nginx's kind in front of us from holding events back.
        headers.remove("x-accel-buffering");
        add(&mut headers, "x-accel-buffering", "no");
    }
    answer.write(&mut headers);
    Begun { head: own(status, headers), body, is_event_stream, is_json }
}

/// Answers with JSON.
///
/// # Errors
/// The client does not take it.
pub async fn json(
    client: &mut Connection,
    status: u16,
    body: &[u8],
    answer: &Answer<'_>,
) -> Result<(), WriteFault> {
    let mut headers = Headers::new();
    add(&mut headers, "content-type", "application/json");
    answer.write(&mut headers);
    client.respond(&own(status, headers), body).await
}

/// Answers with a fault.
///
/// # Errors
/// The client does not take it.
pub async fn refuse(client: &mut Connection, fault: &Fault, answer: &Answer<'_>) -> Result<(), WriteFault> {
    let mut headers = Headers::new();
    add(&mut headers, "content-type", "application/json");
    for (name, value) in fault.headers() {
        add(&mut headers, name, &value);
    }
    answer.write(&mut headers);
    client.respond(&own(fault.status(), headers), fault.body_json().as_bytes()).await
}

/// Plain text, for the ops surface.
///
/// # Errors
/// The client does not take it.
pub async fn text(client: &mut Connection, status: u16, kind: &str, body: &[u8]) -> Result<(), WriteFault> {
    let mut headers = Headers::new();
    add(&mut headers, "content-type", kind);
    client.respond(&own(status, headers), body).await
}

/// RFC 9110 section 8.3.1: a media type is compared without its parameters and in any case.
fn names(content_type: &[u8], media_type: &str) -> bool {
    let named = content_type.split(|byte| *byte == b';').next().unwrap_or_default();
    named.trim_ascii().eq_ignore_ascii_case(media_type.as_bytes())
}

/// A number as text.
struct Decimal {
    digits: [u8; 20],
    first: usize,
}

impl Decimal {
    fn of(mut value: u64) -> Self {
        let mut digits = [b'0'; 20];
        let mut first = digits.len() - 1;
        for (at, digit) in digits.iter_mut().enumerate().rev() {
            *digit += u8::try_from(value % 10).unwrap_or_default();
            value /= 10;
            first = at;
            if value == 0 {
                break;
            }
        }
        Self { digits, first }
    }

    fn text(&self) -> &str {
        self.digits.get(self.first..).and_then(|digits| str::from_utf8(digits).ok()).unwrap_or_default()
    }
}

fn own(status: u16, headers: Headers) -> ResponseHead {
    ResponseHead { headers, ..ResponseHead::new(status) }
}

/// Our own names and values are valid; a value from the configuration that is not is left out.
fn add(headers: &mut Headers, name: &str, value: &str) {
    let _refused = headers.push(name, value);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(fields: &[(&str, &str)]) -> Begun {
        let header = |(name, value): &(&str, &str)| Header {
            name: (*name).to_owned(),
            value: value.as_bytes().to_vec().into(),
        };
        let headers: Vec<_> = fields.iter().map(header).collect();
        relayed(200, &headers, &Answer { provider: Some("p1"), attempts: 1, ..Answer::local("req_1") })
    }

    #[test]
    fn numbers_are_written_as_they_are_read() {
        for value in [0, 1, 9, 10, 99, 100, 1_234_567_890, u64::MAX] {
            assert_eq!(Decimal::of(value).text(), value.to_string());
        }
    }

    #[test]
    fn an_event_stream_is_known_by_its_media_type_alone() {
        for (value, expected) in [
            ("text/event-stream", true),
            ("Text/Event-Stream; charset=utf-8", true),
            ("text/event-stream ;x", true),
            ("text/event-streams", false),
            ("application/json", false),
        ] {
            assert_eq!(head(&[("content-type", value)]).is_event_stream, expected, "{value}");
        }
    }

    #[test]
    fn a_length_is_kept_except_for_an_event_stream() {
        assert_eq!(head(&[("content-length", "5")]).body, ResponseBody::Length(5));
        let stream = [("content-length", "5"), ("content-type", "text/event-stream")];
        assert_eq!(head(&stream).body, ResponseBody::Chunked);
        assert_eq!(head(&[]).body, ResponseBody::Chunked);
    }

    // req: TUN-6
    #[test]
    fn a_node_cannot_forge_our_own_fields_or_those_of_the_connection() {
        let forged = [("x-iop-provider", "evil"), ("x-iop-attempts", "9"), ("x-request-id", "theirs")];
        let begun =
            head(&[&forged[..], &[("keep-alive", "timeout=1"), ("upgrade", "x"), ("x-kept", "1")]].concat());
        let names: Vec<_> = begun.head.headers.iter().map(|(name, _)| name).collect();
        assert_eq!(
            names,
            ["x-kept", "x-request-id", "request-id", "x-iop-provider", "x-iop-attempts", "x-iop-queue-ms"]
        );
        assert_eq!(begun.head.headers.get("x-iop-provider"), Some(&b"p1"[..]));
    }
}
