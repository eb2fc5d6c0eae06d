//! Which route a request is for, by its path alone. Pure.
//!
//! | Path | Also as |
//! |---|---|
//! | `/v1/chat/completions`, `/v1/responses`, `/v1/models…` | without `/v1` |
//! | `/v1/messages…`, `/v1/models…` | without `/v1`, and under `/anthropic/v1` |
//!
//! Slashes that follow one another count as one, and one at the end as none. Nothing is percent-decoded but `%2F` and `%3A` in the
//! id of a model, which is then compared with the configured names and goes no further; a dot segment, a backslash or any other
//! `%` leads nowhere (security.md section 3, row 9). What a provider is asked never depends on a path.

use std::borrow::Cow;

use dataplane::http::head::Method;

use super::Surface;
use crate::reply::Fault;

const POST: &str = "POST, OPTIONS";
const GET: &str = "GET, HEAD, OPTIONS";

/// What a request is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route<'a> {
    /// A run, in the language of the request's surface.
    Run,
    /// A count of the tokens of what would be such a run.
    CountTokens,
    /// The list of models.
    Models,
    /// One of them.
    Model(Cow<'a, str>),
    /// Whether anybody is there: Claude Code asks before its first request, without a token.
    Probe,
    /// What a browser may send.
    Preflight,
}

impl Route<'_> {
    /// Its label in metrics and logs.
    #[must_use]
    pub const fn label(&self, surface: Surface) -> &'static str {
        match self {
            Self::Run => surface.label(),
            Self::CountTokens => "count_tokens",
            Self::Models | Self::Model(_) => "models",
            Self::Probe | Self::Preflight => "none",
        }
    }

    /// Whether it is answered to anybody: it says nothing of what is behind it.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        matches!(self, Self::Probe | Self::Preflight)
    }

    const fn allow(&self) -> &'static str {
        match self {
            Self::Run | Self::CountTokens => POST,
            Self::Models | Self::Model(_) => GET,
            Self::Probe | Self::Preflight => "",
        }
    }
}

/// Finds the route, and the surface in whose language its errors are told.
///
/// `path` is that of the target, without a query. `versioned` = the request names a version of Anthropic's API.
///
/// # Errors
/// There is nothing at this path, or nothing with this method.
pub fn route<'a>(method: &Method, path: &'a str, versioned: bool) -> (Surface, Result<Route<'a>, Fault>) {
    if *method == Method::Options {
        return (Surface::Chat, Ok(Route::Preflight));
    }
    let (named, found) = place(path);
    let surface = match named {
        Some(surface) => surface,
        // What both families have is told in the language of the one that asks.
        None if versioned => Surface::Messages,
        None => Surface::Chat,
    };
    let route = match found {
        Place::Route(route) => route,
        Place::Root if *method == Method::Head => Route::Probe,
        Place::Root | Place::Nothing => return (surface, Err(Fault::UnknownPath)),
        Place::Stored => return (surface, Err(Fault::NotStored)),
    };
    let fits = match method {
        Method::Post => route.allow() == POST,
        Method::Get => route.allow() == GET,
        Method::Head => route.allow() == GET || route == Route::Probe,
        Method::Options | Method::Other(_) => false,
    };
    let found = if fits { Ok(route) } else { Err(Fault::MethodNotAllowed { allow: route.allow() }) };
    (surface, found)
}

enum Place<'a> {
    Route(Route<'a>),
    /// `/`
    Root,
    /// Below `/v1/responses`.
    Stored,
    Nothing,
}

/// What is at a path, and the surface that the path names.
fn place(path: &str) -> (Option<Surface>, Place<'_>) {
    // As nearly all of them are written.
    match path {
        "/v1/chat/completions" => return (Some(Surface::Chat), Place::Route(Route::Run)),
        "/v1/responses" => return (Some(Surface::Responses), Place::Route(Route::Run)),
        "/v1/messages" => return (Some(Surface::Messages), Place::Route(Route::Run)),
        _ => {}
    }
    let segments: Vec<&str> = path.split('/').filter(|segment| !segment.is_empty()).collect();
    let (surface, rest) = match segments.as_slice() {
        ["anthropic", rest @ ..] => (Some(Surface::Messages), rest.strip_prefix(&["v1"])),
        ["v1", rest @ ..] => (None, Some(rest)),
        rest => (None, Some(rest)),
    };
    let Some(rest) = rest.filter(|rest| !rest.iter().any(|segment| leads_astray(segment))) else {
        return (surface, Place::Nothing);
    };
    let openai = |surface, place| (Some(surface), place);
    match rest {
        ["messages"] => (Some(Surface::Messages), Place::Route(Route::Run)),
        ["messages", "count_tokens"] => (Some(Surface::Messages), Place::Route(Route::CountTokens)),
        ["messages", ..] => (Some(Surface::Messages), Place::Nothing),
        ["models"] => (surface, Place::Route(Route::Models)),
        ["models", id @ ..] => (surface, Place::Route(Route::Model(model(id)))),
        _ if surface.is_some() => (surface, Place::Nothing),
        ["chat", "completions"] => openai(Surface::Chat, Place::Route(Route::Run)),
        ["chat", "completions", "input_tokens"] => openai(Surface::Chat, Place::Route(Route::CountTokens)),
        ["responses"] => openai(Surface::Responses, Place::Route(Route::Run)),
        ["responses", "input_tokens"] => openai(Surface::Responses, Place::Route(Route::CountTokens)),
        ["responses", ..] => openai(Surface::Responses, Place::Stored),
        [] if path == "/" => (None, Place::Root),
        _ => (None, Place::Nothing),
    }
}

/// Segments that another reader of the path might take for something else than they are.
fn leads_astray(segment: &str) -> bool {
    matches!(segment, "." | "..") || segment.contains('\\')
}

/// A model's id, which may have slashes and colons, raw or encoded.
fn model<'a>(segments: &[&'a str]) -> Cow<'a, str> {
    let id = match segments {
        [id] => Cow::Borrowed(*id),
        _ => Cow::Owned(segments.join("/")),
    };
    if !id.contains('%') {
        return id;
    }
    let decoded = id.replace("%2F", "/").replace("%2f", "/");
    Cow::Owned(decoded.replace("%3A", ":").replace("%3a", ":"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const METHODS: [&str; 7] = ["GET", "POST", "HEAD", "OPTIONS", "PUT", "DELETE", "post"];

    fn find<'a>(method: &str, path: &'a str) -> (Surface, Result<Route<'a>, Fault>) {
        route(&Method::from_token(method), path, false)
    }

    fn model(id: &str) -> Route<'_> {
        Route::Model(id.into())
    }

    #[test]
    fn every_alias_of_a_path_leads_to_its_route() {
        use Surface::{Chat, Messages, Responses};
        for (method, path, surface, route) in [
            ("POST", "/v1/chat/completions", Chat, Route::Run),
            ("POST", "/chat/completions", Chat, Route::Run),
            ("POST", "/v1/chat/completions/", Chat, Route::Run),
            ("POST", "//v1//chat///completions", Chat, Route::Run),
            ("POST", "/v1/responses", Responses, Route::Run),
            ("POST", "/responses/", Responses, Route::Run),
            ("POST", "/v1/messages", Messages, Route::Run),
            ("POST", "/messages", Messages, Route::Run),
            ("POST", "/anthropic/v1/messages", Messages, Route::Run),
            ("POST", "//anthropic/v1//messages/", Messages, Route::Run),
            ("POST", "/v1/messages/count_tokens", Messages, Route::CountTokens),
            ("POST", "/anthropic/v1/messages/count_tokens", Messages, Route::CountTokens),
            ("POST", "/v1/responses/input_tokens", Responses, Route::CountTokens),
            ("POST", "/v1/chat/completions/input_tokens", Chat, Route::CountTokens),
            ("GET", "/v1/models", Chat, Route::Models),
            ("HEAD", "/models", Chat, Route::Models),
            ("GET", "/anthropic/v1/models", Messages, Route::Models),
            ("GET", "/v1/models/m", Chat, model("m")),
            ("GET", "/v1/models/openai/gpt-oss-20b", Chat, model("openai/gpt-oss-20b")),
            ("GET", "/v1/models/openai%2Fgpt%2foss", Chat, model("openai/gpt/oss")),
            ("GET", "/v1/models/llama3:8b", Chat, model("llama3:8b")),
            ("GET", "/v1/models/llama3%3A8b/", Chat, model("llama3:8b")),
            ("GET", "/v1/models/a%252Fb%20c", Chat, model("a%252Fb%20c")),
            ("GET", "/anthropic/v1/models/a/b", Messages, model("a/b")),
            ("HEAD", "/", Chat, Route::Probe),
            ("OPTIONS", "/v1/nothing", Chat, Route::Preflight),
            ("OPTIONS", "*", Chat, Route::Preflight),
        ] {
            assert_eq!(find(method, path), (surface, Ok(route)), "{method} {path}");
        }
    }

    #[test]
    fn whatever_else_is_there_is_refused_in_the_language_of_its_surface() {
        use Surface::{Chat, Messages, Responses};
        let wrong = |allow| Fault::MethodNotAllowed { allow };
        for (method, path, surface, fault) in [
            ("GET", "/v1/chat/completions", Chat, wrong(POST)),
            ("HEAD", "/v1/messages", Messages, wrong(POST)),
            ("PUT", "/v1/responses", Responses, wrong(POST)),
            ("post", "/v1/responses", Responses, wrong(POST)),
            ("POST", "/v1/models", Chat, wrong(GET)),
            ("DELETE", "/anthropic/v1/models/m", Messages, wrong(GET)),
            ("GET", "/v1/responses/resp_1", Responses, Fault::NotStored),
            ("POST", "/v1/responses/resp_1/cancel", Responses, Fault::NotStored),
            ("GET", "/v1/responses/resp_1/input_items", Responses, Fault::NotStored),
            ("POST", "/v1/responses/compact", Responses, Fault::NotStored),
            ("GET", "/", Chat, Fault::UnknownPath),
            ("POST", "/", Chat, Fault::UnknownPath),
            ("HEAD", "//", Chat, Fault::UnknownPath),
            ("POST", "/v1", Chat, Fault::UnknownPath),
            ("POST", "/v1/completions", Chat, Fault::UnknownPath),
            ("POST", "/v1/messages/batches", Messages, Fault::UnknownPath),
            ("POST", "/anthropic/v1/chat/completions", Messages, Fault::UnknownPath),
            ("POST", "/anthropic/messages", Messages, Fault::UnknownPath),
            ("POST", "/v1/v1/messages", Chat, Fault::UnknownPath),
            ("POST", "/V1/messages", Chat, Fault::UnknownPath),
            // No id of a model has what another reader of the path would resolve.
            ("GET", "/v1/models/a/../b", Chat, Fault::UnknownPath),
            ("GET", "/v1/models/./b", Chat, Fault::UnknownPath),
            ("GET", "/anthropic/v1/models/a\\b", Messages, Fault::UnknownPath),
        ] {
            assert_eq!(find(method, path), (surface, Err(fault)), "{method} {path}");
        }
    }

    #[test]
    fn what_both_families_have_is_told_in_the_language_of_the_one_that_asks() {
        for (path, versioned, surface) in [
            ("/v1/models", false, Surface::Chat),
            ("/v1/models", true, Surface::Messages),
            ("/anthropic/v1/models", false, Surface::Messages),
            ("/v1/nothing", true, Surface::Messages),
            ("/v1/chat/completions", true, Surface::Chat),
        ] {
            assert_eq!(route(&Method::Get, path, versioned).0, surface, "{path} {versioned}");
        }
    }

    /// Every path of up to four segments of these: none leads to a run but the ones that are meant (security.md section 3, row 9).
    #[test]
    fn no_other_spelling_of_a_path_leads_to_a_run() {
        let parts = [
            "v1",
            "anthropic",
            "chat",
            "completions",
            "messages",
            "responses",
            "..",
            ".",
            "",
            "%2e%2e",
            "%2f",
            "%2F",
            "chat%2fcompletions",
            "chat\\completions",
            "v1;x",
            "completions;",
            "messages%00",
            "%252e",
            "Messages",
        ];
        let meant = [
            "v1/chat/completions",
            "chat/completions",
            "v1/responses",
            "responses",
            "v1/messages",
            "messages",
            "anthropic/v1/messages",
        ];
        let mut tried = 0;
        for places in 0..parts.len().pow(4) {
            let path: String =
                (0..4).map(|at| format!("/{}", parts[places / parts.len().pow(at) % parts.len()])).collect();
            let bare = path.split('/').filter(|part| !part.is_empty()).collect::<Vec<_>>().join("/");
            let (_, found) = find("POST", &path);
            assert_eq!(found == Ok(Route::Run), meant.contains(&bare.as_str()), "{path}");
            tried += 1;
        }
        assert_eq!(tried, parts.len().pow(4));
    }

    /// security.md section 3, row 33: what is answered without a token is listed here, and nothing else is.
    #[test]
    fn only_a_probe_and_a_preflight_need_no_token() {
        for path in
            ["/", "/v1/models", "/v1/models/m", "/v1/messages", "/v1/responses", "/v1/chat/completions", "/x"]
        {
            for method in METHODS {
                let open = find(method, path).1.is_ok_and(|route| route.is_open());
                assert_eq!(open, method == "OPTIONS" || (method, path) == ("HEAD", "/"), "{method} {path}");
            }
        }
    }
}
