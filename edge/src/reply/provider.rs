//! What a provider says instead of an answer, where the client does not get it as it is (api.md section 1.6).

use super::table::{
    self, CREDENTIAL, FORBIDDEN, INVALID, Kind, NO_MODEL, NO_PATH, OVERLOADED, QUOTA, RATE, Retry, Row,
    TIMEOUT, TOO_LARGE, TOO_LONG, UPSTREAM,
};
use crate::translate::refusal::{ProviderError, ProviderErrorKind};

/// The row of an error. Its status stays, but for one that only Anthropic has.
pub(super) const fn row(error: &ProviderError, retry_after: Option<u8>) -> Row {
    let status = if error.status == 529 { 503 } else { error.status };
    let kind = kind(error.kind, status);
    let retry = match (error.kind, status, retry_after) {
        (ProviderErrorKind::Quota, ..) => Retry::No,
        (_, 429 | 503, Some(seconds)) => Retry::After(seconds),
        (_, 408 | 409 | 429 | 500.., _) => Retry::Unsaid,
        _ => Retry::No,
    };
    table::row(status, kind, retry, if status < 500 { "provider_refused" } else { "provider_failed" })
}

const fn kind(kind: ProviderErrorKind, status: u16) -> Kind {
    match (kind, status) {
        (ProviderErrorKind::ContextTooLong, _) => TOO_LONG,
        (ProviderErrorKind::ModelNotFound, _) => NO_MODEL,
        (ProviderErrorKind::Quota, _) => QUOTA,
        (ProviderErrorKind::Other, 401 | 407) => CREDENTIAL,
        (ProviderErrorKind::Other, 403) => FORBIDDEN,
        (ProviderErrorKind::Other, 404) => NO_PATH,
        (ProviderErrorKind::Other, 413) => TOO_LARGE,
        (ProviderErrorKind::Other, 429) => RATE,
        (ProviderErrorKind::Other, 503) => OVERLOADED,
        (ProviderErrorKind::Other, 504) => TIMEOUT,
        (ProviderErrorKind::Other, 400..=499) => INVALID,
        (ProviderErrorKind::Other, _) => UPSTREAM,
    }
}
