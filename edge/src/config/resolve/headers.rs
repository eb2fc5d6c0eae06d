//! Static headers of a provider: what may be configured and what may not.

use bytes::Bytes;
use proto::message::Header;

use super::context::Context;
use crate::config::{
    place::{Entries, Typed},
    secret::Secret,
};

/// Most static headers of one adapter.
const HEADERS_MAX: usize = 32;
/// Longest header value in bytes.
const VALUE_BYTES_MAX: usize = 4096;
/// Framing and connection fields: ours alone (RFC 9110 section 7.6.1, RFC 9112 section 6).
const OURS: [&str; 12] = [
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "expect",
    "host",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];
/// Parts of the names of fields that carry credentials. The Node's configuration holds none (CRD-6).
const CREDENTIAL_PARTS: [&str; 8] =
    ["authorization", "api-key", "apikey", "token", "secret", "password", "cookie", "credential"];

/// The headers of one mapping, names in lower case. Values are quoted in no message.
pub(super) fn resolve(
    context: &mut Context<'_>,
    typed: Option<&Typed<Entries<Typed<Secret>>>>,
    path: &str,
) -> Vec<Header> {
    let Some(typed) = typed else { return Vec::new() };
    if typed.value.0.len() > HEADERS_MAX {
        context.error(typed.at, path, format!("expected at most {HEADERS_MAX} headers"));
    }
    let mut headers: Vec<Header> = Vec::new();
    for (key, value) in typed.value.iter().take(HEADERS_MAX) {
        let path = format!("{path}.{}", key.value);
        let name = key.value.to_ascii_lowercase();
        if let Some(message) = wrong_name(&name) {
            context.error(key.at, path, message);
        } else if headers.iter().any(|header| header.name == name) {
            context.error(key.at, path, "this header stands here a second time; case makes no difference");
        } else if let Some(text) = context.expanded(value.value.expose(), value.at, &path) {
            if is_value(&text) {
                headers.push(Header { name, value: Bytes::from(text) });
            } else {
                let message = format!(
                    "expected a header value of 1 to {VALUE_BYTES_MAX} visible characters and inner blanks"
                );
                context.error(value.at, path, message);
            }
        }
    }
    headers
}

/// `base` with the fields of `over` in place of its own of the same name.
pub(super) fn overlay(base: &[Header], over: Vec<Header>) -> Vec<Header> {
    let kept = base.iter().filter(|field| over.iter().all(|other| other.name != field.name));
    let mut merged: Vec<Header> = kept.cloned().collect();
    merged.extend(over);
    merged
}

/// RFC 9110 section 5.6.2: token.
pub(super) fn is_token(text: &str) -> bool {
    let valid = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    (1..=128).contains(&text.len()) && text.bytes().all(valid)
}

/// Whether a field would not reach a provider as it was sent: the Node writes it anew, or it is internal to this product or
/// to proxies.
pub(super) fn never_arrives(name: &str) -> bool {
    name == "accept-encoding" || name.starts_with("x-iop-") || name.starts_with("proxy-")
}

/// Why a field cannot be configured at all; `name` is in lower case.
pub(super) fn wrong_field(name: &str) -> Option<&'static str> {
    if !is_token(name) {
        Some("expected a header name")
    } else if OURS.contains(&name) {
        Some("this header belongs to the connection itself and cannot be configured")
    } else {
        None
    }
}

fn wrong_name(name: &str) -> Option<&'static str> {
    if let Some(message) = wrong_field(name) {
        Some(message)
    } else if CREDENTIAL_PARTS.iter().any(|part| name.contains(part)) {
        Some(
            "a credential cannot be configured as a header: take it away; clients can bring theirs (openai.provider_auth)",
        )
    } else {
        None
    }
}

fn is_value(text: &str) -> bool {
    // RFC 9110 section 5.5, without obs-text.
    let valid = |byte: u8| byte.is_ascii_graphic() || byte == b' ' || byte == b'\t';
    (1..=VALUE_BYTES_MAX).contains(&text.len()) && text.trim() == text && text.bytes().all(valid)
}
