//! What an error of a provider is taken for (SEG-8): the closed table of `docs/recovery.md`, by the status of an answer, by what a
//! stream says in its middle, and by what the Node met.
//!
//! A class decides whether another provider may have the request. It changes no provider's health: only what the Node observed
//! does that (HND-4).

#[cfg(test)]
mod tests;
mod words;

use control::recovery::ErrorClass;
use proto::message::{ErrorKind, Header};

use super::reading::Said;

/// Bytes of an error's body at most that are looked into; of a longer one only the status counts.
pub const BODY_BYTES_MAX: usize = crate::translate::refusal::BODY_BYTES_MAX;

/// Of an answer that is no success, or of a whole one that has nothing or an error in it. `body` is all of it.
#[must_use]
pub fn of_status(status: u16, headers: &[Header], body: &[u8]) -> ErrorClass {
    match status {
        401 | 403 => ErrorClass::Credential,
        // 529 is Anthropic's 503.
        429 | 503 | 529 => ErrorClass::Backpressure,
        400..=499 => ErrorClass::Client,
        // Engines say by a 500 that they are full, or that the prompt is too long.
        500.. => match said(headers, body).map(|said| words::of(&said)) {
            Some(Some(class @ (ErrorClass::Client | ErrorClass::Backpressure))) => class,
            _ => ErrorClass::Server,
        },
        200..=299 if body.trim_ascii().is_empty() => ErrorClass::Empty,
        200..=299 => said(headers, body).map_or(ErrorClass::Malformed, |said| of_said(&said)),
        // What is asked of a provider is answered by nothing else.
        _ => ErrorClass::Malformed,
    }
}

/// Of an error in the middle of a stream. What is not known, and what an engine blames on a request that it had accepted, is
/// [`ErrorClass::InBand`]: it may be tried elsewhere once.
#[must_use]
pub fn of_said(said: &Said) -> ErrorClass {
    words::of(said).unwrap_or(ErrorClass::InBand)
}

/// Of what the Node met; `None` where that is no error of the provider, or a stall, which has evidence of its own.
#[must_use]
pub const fn of_kind(kind: ErrorKind) -> Option<ErrorClass> {
    match kind {
        ErrorKind::Connect | ErrorKind::UpstreamTruncated => Some(ErrorClass::Transport),
        ErrorKind::UpstreamProtocol => Some(ErrorClass::Malformed),
        ErrorKind::Credential => Some(ErrorClass::Credential),
        ErrorKind::Busy
        | ErrorKind::Cancelled
        | ErrorKind::Deadline
        | ErrorKind::InvalidRequest
        | ErrorKind::Stalled
        | ErrorKind::Internal
        | ErrorKind::CreditExceeded
        | ErrorKind::Unknown => None,
    }
}

/// What a body says, if it is short, has no content coding, and is an error of one of the known forms.
fn said(headers: &[Header], body: &[u8]) -> Option<Said> {
    let is_coded = headers.iter().any(|header| {
        header.name.eq_ignore_ascii_case("content-encoding")
            && !header.value.trim_ascii().eq_ignore_ascii_case(b"identity")
    });
    let body = Some(body).filter(|body| !is_coded && body.len() <= BODY_BYTES_MAX)?;
    Said::of_body(std::str::from_utf8(body).ok()?)
}
