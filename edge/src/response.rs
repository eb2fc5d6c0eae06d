//! Response heads: what every answer says about how it came about (API-2), and the two kinds of answers.

use std::{sync::Arc, time::Duration};

use dataplane::{
    http::{
        head::{Headers, ResponseHead},
        hop,
        server::{Connection, ResponseBody},
    },
    net::WriteFault,
};
use proto::message::Header;

use crate::{
    reply::Fault,
    surface::{Surface, cors},
};

/// Fields that we add to a head at most, those of an event stream included.
const OWN_FIELDS: usize = 14;
/// Bytes of their names and of the values that are known or numbers.
const OWN_BYTES: usize = 270;
/// The same, of what a page of another origin is told.
const CORS_BYTES: usize = 80 + cors::EXPOSED.len();

const PROCESSING: &str = "openai-processing-ms";

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
    /// Told as `x-iop-recovery`: how the last attempt came about, where it mends a failure.
    pub recovery: Option<&'static str>,
    /// Told as `x-iop-providers`, where there are any: those of all attempts, in order.
    pub providers: &'a [Arc<str>],
    /// Told as `x-iop-tool-mode: text`: the backend was asked for its calls in text (RUN-4).
    pub text_tools: bool,
    /// In whose language a fault is told.
    pub surface: Surface,
    /// From the request's head to this answer, told as `openai-processing-ms` where a provider said nothing of it.
    pub took: Option<Duration>,
    /// Told as `access-control-allow-origin`, to a page of another origin that is let in.
    pub allow_origin: Option<&'a str>,
}

impl Answer<'_> {
    /// An answer of the Edge's own.
    pub fn local(request_id: &str) -> Answer<'_> {
        Answer {
            request_id,
            provider: None,
            attempts: 0,
            queued: Duration::ZERO,
            recovery: None,
            providers: &[],
            text_tools: false,
            surface: Surface::Chat,
            took: None,
            allow_origin: None,
        }
    }

    fn write(&self, headers: &mut Headers) {
        add(headers, "x-request-id", self.request_id);
        add(headers, "request-id", self.request_id);
        if let Some(provider) = self.provider {
            add(headers, "x-iop-provider", provider);
        }
        if self.attempts > 0 {
            add(headers, "x-iop-attempts", Decimal::of(u64::from(self.attempts)).text());
            add(headers, "x-iop-queue-ms", Decimal::millis(self.queued).text());
        }
        if let Some(recovery) = self.recovery {
            add(headers, "x-iop-recovery", recovery);
        }
        if !self.providers.is_empty() {
            add(headers, "x-iop-providers", &self.providers.join(","));
        }
        if self.text_tools {
            add(headers, "x-iop-tool-mode", "text");
        }
        if let Some(took) = self.took.filter(|_| headers.get(PROCESSING).is_none()) {
            add(headers, PROCESSING, Decimal::millis(took).text());
        }
        if let Some(origin) = self.allow_origin {
            add(headers, "access-control-allow-origin", origin);
            add(headers, "access-control-expose-headers", cors::EXPOSED);
            if origin != "*" {
                add(headers, "vary", "origin");
            }
        }
    }

    /// Bytes of what [`Answer::write`] adds, at most.
    fn room(&self) -> usize {
        let cors = self.allow_origin.map_or(0, |origin| CORS_BYTES + origin.len());
        let providers: usize = self.providers.iter().map(|provider| provider.len() + 1).sum();
        OWN_BYTES + 2 * self.request_id.len() + self.provider.map_or(0, str::len) + providers + cors
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
            // Which pages may read an answer is this gateway's to say.
            name if !hop::may_cross(name) || name.starts_with("access-control-") => {}
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

/// Answers with JSON, and with these fields beside the usual ones.
///
/// # Errors
/// The client does not take it.
pub async fn json(
    client: &mut Connection,
    body: &[u8],
    fields: &[(&str, &str)],
    answer: &Answer<'_>,
) -> Result<(), WriteFault> {
    let mut headers = Headers::new();
    add(&mut headers, "content-type", "application/json");
    fields.iter().for_each(|(name, value)| add(&mut headers, name, value));
    answer.write(&mut headers);
    client.respond(&own(200, headers), body).await
}

/// Says that somebody is here.
///
/// # Errors
/// The client does not take it.
pub async fn present(client: &mut Connection, answer: &Answer<'_>) -> Result<(), WriteFault> {
    let mut headers = Headers::new();
    answer.write(&mut headers);
    client.respond(&own(200, headers), b"").await
}

/// Tells a browser what it may ask: the fields that it names, or all that are known (WHATWG Fetch section 3.2).
///
/// # Errors
/// The client does not take it.
pub async fn preflight(
    client: &mut Connection,
    wished: Option<&str>,
    answer: &Answer<'_>,
) -> Result<(), WriteFault> {
    let mut headers = Headers::new();
    add(&mut headers, "allow", cors::METHODS);
    if answer.allow_origin.is_some() {
        add(&mut headers, "access-control-allow-methods", cors::METHODS);
        add(&mut headers, "access-control-allow-headers", wished.unwrap_or(cors::FIELDS));
        add(&mut headers, "access-control-max-age", cors::MAX_AGE);
    }
    answer.write(&mut headers);
    client.respond(&own(204, headers), b"").await
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
    client
        .respond(&own(fault.status(), headers), fault.body(answer.surface, answer.request_id).as_bytes())
        .await
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
pub(crate) fn names(content_type: &[u8], media_type: &str) -> bool {
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

    fn millis(duration: Duration) -> Self {
        Self::of(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
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

    #[test]
    fn a_page_of_another_origin_is_told_by_us_alone_what_it_may_read() {
        let theirs =
            [("access-control-allow-origin", "https://theirs.test"), ("access-control-max-age", "1")];
        assert_eq!(head(&theirs).head.headers.get("access-control-allow-origin"), None);
        for (origin, vary) in [("*", None), ("https://chat.example", Some(&b"origin"[..]))] {
            let mut headers = Headers::new();
            Answer { allow_origin: Some(origin), ..Answer::local("req_1") }.write(&mut headers);
            assert_eq!(headers.get("access-control-allow-origin"), Some(origin.as_bytes()));
            assert!(headers.get_str("access-control-expose-headers").unwrap().contains("x-request-id"));
            assert_eq!(headers.get("vary"), vary);
        }
    }

    #[test]
    fn how_long_it_took_is_the_providers_to_say_where_it_says_it() {
        let told = |theirs: &[Header]| {
            let answer = Answer { took: Some(Duration::from_millis(42)), ..Answer::local("req_1") };
            relayed(200, theirs, &answer)
                .head
                .headers
                .get_all(PROCESSING)
                .map(<[u8]>::to_vec)
                .collect::<Vec<_>>()
        };
        assert_eq!(told(&[]), [b"42"]);
        assert_eq!(told(&[Header { name: PROCESSING.to_owned(), value: b"7".to_vec().into() }]), [b"7"]);
    }
}
