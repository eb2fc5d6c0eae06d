//! What browsers may read (CORS, WHATWG Fetch section 3.2). Pure.
//!
//! Tokens travel in headers that a page must set itself, and there are no cookies: a stranger's page can do nothing here without
//! a token, so that every origin may be let in.

use std::sync::Arc;

/// What a page may read of an answer, beside the fields that it always may.
pub const EXPOSED: &str = "x-request-id, request-id, retry-after, retry-after-ms, x-should-retry, openai-processing-ms, \
                           x-iop-provider, x-iop-providers, x-iop-attempts, x-iop-recovery, x-iop-queue-ms, \
                           x-iop-tool-mode, x-iop-token-count";
/// What a page may ask with.
pub const METHODS: &str = "GET, POST, HEAD, OPTIONS";
/// The fields that the clients of both families send, for a preflight that names none.
pub const FIELDS: &str = "authorization, x-api-key, content-type, accept, user-agent, x-requested-with, openai-beta, \
                          openai-organization, openai-project, anthropic-version, anthropic-beta, \
                          anthropic-dangerous-direct-browser-access, x-client-request-id";
/// Seconds for which a browser remembers it: no browser keeps it longer.
pub const MAX_AGE: &str = "7200";

/// Which origins are let in: `openai.cors.allowed_origins`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cors {
    /// All of them. The value of the field is held here so that an answer only counts it.
    Any(Arc<str>),
    /// These, as browsers write them; perhaps none.
    Only(Vec<Arc<str>>),
}

impl Default for Cors {
    fn default() -> Self {
        Self::Any("*".into())
    }
}

impl Cors {
    /// What `access-control-allow-origin` says to a page of `origin`; `None` = nothing: its browser keeps the answer from it.
    #[must_use]
    pub fn allow(&self, origin: &[u8]) -> Option<Arc<str>> {
        match self {
            Self::Any(all) => Some(Arc::clone(all)),
            Self::Only(origins) => origins.iter().find(|known| known.as_bytes() == origin).cloned(),
        }
    }
}

/// Whether this is an origin as browsers write it: scheme, host and perhaps a port, nothing behind it.
#[must_use]
pub fn is_origin(text: &str) -> bool {
    let Some((scheme, host)) = text.split_once("://") else { return false };
    let is_scheme = scheme
        .bytes()
        .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"+-.".contains(&byte));
    let is_host = host
        .bytes()
        .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.:[]_".contains(&byte));
    !scheme.is_empty() && !host.is_empty() && is_scheme && is_host
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_let_in_by_its_exact_name_or_as_any_other() {
        let only = Cors::Only(vec!["https://chat.example".into(), "http://localhost:3000".into()]);
        for (cors, origin, allow) in [
            (&Cors::default(), "https://evil.test", Some("*")),
            (&Cors::default(), "null", Some("*")),
            (&only, "https://chat.example", Some("https://chat.example")),
            (&only, "http://localhost:3000", Some("http://localhost:3000")),
            (&only, "http://localhost", None),
            (&only, "https://chat.example.evil.test", None),
            (&only, "null", None),
            (&Cors::Only(Vec::new()), "https://chat.example", None),
        ] {
            assert_eq!(cors.allow(origin.as_bytes()).as_deref(), allow, "{origin}");
        }
    }

    #[test]
    fn an_origin_has_no_path_and_no_capital() {
        for (text, expected) in [
            ("https://chat.example", true),
            ("http://[::1]:3000", true),
            ("app://obsidian.md", true),
            ("https://chat.example/", false),
            ("https://Chat.example", false),
            ("chat.example", false),
            ("https://", false),
            ("://x", false),
            ("https://a b", false),
            ("", false),
        ] {
            assert_eq!(is_origin(text), expected, "{text}");
        }
    }
}
