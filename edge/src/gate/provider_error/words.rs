//! The words of providers: their types, codes and sentences (api.md sections 1.2, 1.4, 1.6, 3).

use control::recovery::ErrorClass;

use crate::{gate::reading::Said, translate::refusal::is_too_long};

/// What an engine says that has no place for one more. vLLM and SGLang, Ollama, and most that stand before them.
const FULL: [&str; 7] = [
    "queue full",
    "queue is full",
    "server busy",
    "server is busy",
    "overloaded",
    "too many requests",
    "aborted by a higher priority request",
];

/// Types and codes, in lower case without `_` and `-`: the class of the first line that one of them stands in.
const NAMES: [(ErrorClass, &[&str]); 4] = [
    (
        ErrorClass::Backpressure,
        &[
            "ratelimit",
            "overloaded",
            "quota",
            "unavailable",
            "resourceexhausted",
            "toomanyrequests",
            "serverbusy",
            "queuefull",
            "slowdown",
        ],
    ),
    (
        ErrorClass::Credential,
        &["authentication", "unauthenticated", "invalidapikey", "permission", "unauthorized", "forbidden"],
    ),
    (
        ErrorClass::Server,
        &[
            "internal",
            "servererror",
            "apierror",
            "timeout",
            "badgateway",
            "upstreamerror",
            "enginedead",
            "deadlineexceeded",
        ],
    ),
    (
        ErrorClass::Client,
        &[
            "invalidrequest",
            "badrequest",
            "invalidprompt",
            "invalidargument",
            "invalidvalue",
            "validationerror",
            "notfound",
            "toolarge",
            "contextlength",
            "contentfilter",
            "contentpolicy",
            "unprocessable",
            "notsupported",
            "unsupported",
            "invalidimage",
            "billing",
        ],
    ),
];

/// The class of an error that says something known.
pub(super) fn of(said: &Said) -> Option<ErrorClass> {
    let kind = said.kind.as_deref().unwrap_or_default();
    let code = said.code.as_deref().unwrap_or_default();
    let message = said.message.to_ascii_lowercase();
    if is_too_long(kind, code, &message) {
        return Some(ErrorClass::Client);
    }
    if FULL.iter().any(|words| message.contains(words)) {
        return Some(ErrorClass::Backpressure);
    }
    // SGLang's own word for what its scheduler gives up inside a stream that it had begun, be it the request's fault or not (case 34).
    if kind == "BAD_REQUEST" || code == "BAD_REQUEST" {
        return Some(ErrorClass::InBand);
    }
    if let Some(class) = code.parse().ok().and_then(of_number) {
        return Some(class);
    }
    let plain = |name: &str| name.to_ascii_lowercase().replace(['_', '-', ' ', '.'], "");
    // A code is more than the type that it stands in.
    [plain(code), plain(kind)].iter().find_map(|name| {
        let (class, _) = NAMES.iter().find(|(_, known)| known.iter().any(|word| name.contains(word)))?;
        Some(*class)
    })
}

/// A code that is a status.
const fn of_number(status: u16) -> Option<ErrorClass> {
    match status {
        401 | 403 => Some(ErrorClass::Credential),
        429 | 503 | 529 => Some(ErrorClass::Backpressure),
        400..=499 => Some(ErrorClass::Client),
        500..=599 => Some(ErrorClass::Server),
        _ => None,
    }
}
