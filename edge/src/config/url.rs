//! Provider URLs: checked once at load, joined once (PRF-4, PRF-6). Nothing of a request ever takes part.

use thiserror::Error;

/// Longest URL in bytes.
pub const URL_BYTES_MAX: usize = 2048;

/// Why a text is no usable provider URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum UrlError {
    /// Neither `http://` nor `https://`.
    #[error("expected a URL that begins with http:// or https://, such as http://127.0.0.1:8000/v1")]
    NotAbsolute,
    /// Longer than [`URL_BYTES_MAX`].
    #[error("expected a URL of at most {URL_BYTES_MAX} bytes")]
    TooLong,
    /// Something between `//` and the path that is neither a host nor `host:port`.
    #[error(
        "expected a host and an optional port (1 to 65535) after ://; an IPv6 address stands in [brackets]"
    )]
    Authority,
    /// A `$` before the path.
    #[error("expected a host after ://; an environment variable is written ${{NAME}}, with braces")]
    Variable,
    /// `user:password@host`.
    #[error("a URL cannot carry a user name or password")]
    UserInfo,
    /// `?` or `#`.
    #[error("a URL here cannot have a query (?) or fragment (#)")]
    QueryOrFragment,
    /// A space, a control or a non-ASCII character, or one that must be percent-encoded.
    #[error("a URL holds visible ASCII characters only; others are percent-encoded")]
    Character,
    /// A path that does not begin with one slash.
    #[error("expected a path from the root of the server, such as /health")]
    NotAPath,
    /// A `.` or `..` segment.
    #[error("a URL path cannot have . or .. segments")]
    DotSegment,
}

/// Checks an absolute URL and takes trailing slashes away.
///
/// # Errors
/// [`UrlError`] names the first rule that is broken.
pub fn normalize(url: &str) -> Result<String, UrlError> {
    if url.len() > URL_BYTES_MAX {
        return Err(UrlError::TooLong);
    }
    let (scheme, rest) = scheme_of(url).ok_or(UrlError::NotAbsolute)?;
    check_characters(rest)?;
    let (authority, path) = rest.find('/').map_or((rest, ""), |slash| rest.split_at(slash));
    check_authority(authority)?;
    check_path(path)?;
    Ok(format!("{scheme}://{}{}", authority.to_ascii_lowercase(), path.trim_end_matches('/')))
}

/// The URL of an operation: an absolute one is kept, a relative one is joined to a base that [`normalize`] returned. A
/// `/v1` that ends the base and begins the path stands in the result once.
///
/// # Errors
/// [`UrlError`] for an absolute URL or a path that breaks a rule.
pub fn join(base: &str, operation: &str) -> Result<String, UrlError> {
    if scheme_of(operation).is_some() {
        return normalize(operation);
    }
    check_characters(operation)?;
    let path = format!("/{}", operation.trim_start_matches('/'));
    check_path(&path)?;
    let path = match path.strip_prefix("/v1") {
        Some(rest) if base.ends_with("/v1") && (rest.is_empty() || rest.starts_with('/')) => rest,
        _ => &path,
    };
    let joined = format!("{base}{}", path.trim_end_matches('/'));
    if joined.len() > URL_BYTES_MAX { Err(UrlError::TooLong) } else { Ok(joined) }
}

/// Checks a path from the root of a provider's address.
///
/// # Errors
/// [`UrlError`] names the first rule that is broken.
pub fn check_request_path(path: &str) -> Result<(), UrlError> {
    if path.len() > URL_BYTES_MAX {
        return Err(UrlError::TooLong);
    }
    if !path.starts_with('/') || path.starts_with("//") {
        return Err(UrlError::NotAPath);
    }
    check_characters(path)?;
    check_path(path)
}

fn scheme_of(url: &str) -> Option<(&'static str, &str)> {
    ["http", "https"].into_iter().find_map(|scheme| {
        let (head, rest) = url.split_once("://")?;
        head.eq_ignore_ascii_case(scheme).then_some((scheme, rest))
    })
}

fn check_characters(text: &str) -> Result<(), UrlError> {
    if text.contains(['?', '#']) {
        return Err(UrlError::QueryOrFragment);
    }
    let valid = |byte: u8| byte.is_ascii_graphic() && !b"\"<>\\^`{|}".contains(&byte);
    if text.bytes().all(valid) { Ok(()) } else { Err(UrlError::Character) }
}

fn check_path(path: &str) -> Result<(), UrlError> {
    // RFC 3986 section 6.2.2.3: a server or proxy may fold them, so what is called would not be what is written.
    if path.split('/').any(|segment| segment == "." || segment == "..") {
        return Err(UrlError::DotSegment);
    }
    Ok(())
}

fn check_authority(authority: &str) -> Result<(), UrlError> {
    if authority.contains('@') {
        return Err(UrlError::UserInfo);
    }
    match split_authority(authority) {
        Some(_) => Ok(()),
        None if authority.contains('$') => Err(UrlError::Variable),
        None => Err(UrlError::Authority),
    }
}

/// Host and port of `host`, `host:port` or `[v6]:port`; `None` when it is none of them.
pub(super) fn split_authority(authority: &str) -> Option<(&str, Option<u16>)> {
    let (host, port) = if let Some(rest) = authority.strip_prefix('[') {
        let (address, port) = rest.split_once(']')?;
        address.parse::<std::net::Ipv6Addr>().ok()?;
        (address, if port.is_empty() { None } else { Some(port.strip_prefix(':')?) })
    } else {
        let (host, port) =
            authority.split_once(':').map_or((authority, None), |(host, port)| (host, Some(port)));
        let valid = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        if host.is_empty() || host.len() > 253 || !host.bytes().all(valid) {
            return None;
        }
        (host, port)
    };
    match port {
        None => Some((host, None)),
        Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
            digits.parse().ok().filter(|port| *port != 0).map(|port| (host, Some(port)))
        }
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // req: PRF-4, PRF-6
    #[test]
    fn an_operation_is_joined_to_its_base_once() {
        for (base, operation, url) in [
            ("http://h:8000/v1", "/v1/chat/completions", "http://h:8000/v1/chat/completions"),
            ("http://h:8000/v1/", "/v1/chat/completions", "http://h:8000/v1/chat/completions"),
            ("http://h:8000", "/v1/chat/completions", "http://h:8000/v1/chat/completions"),
            ("http://h:8000/", "v1/models", "http://h:8000/v1/models"),
            ("http://h/anthropic", "/v1/messages", "http://h/anthropic/v1/messages"),
            ("http://h/api/v1", "/v1/models", "http://h/api/v1/models"),
            ("http://h/v1", "/v1beta/models", "http://h/v1/v1beta/models"),
            ("http://h/xv1", "/v1/models", "http://h/xv1/v1/models"),
            ("http://h/api/v4", "/chat/completions", "http://h/api/v4/chat/completions"),
            ("http://h/v1", "http://other:9/count", "http://other:9/count"),
            ("http://[::1]:8000/v1", "/v1/models", "http://[::1]:8000/v1/models"),
            ("HTTP://Box.Local/V", "/v1/models", "http://box.local/V/v1/models"),
            ("HTTPS://Api.Test/v1/", "/v1/models", "https://api.test/v1/models"),
            ("https://h:8443", "/v1/models", "https://h:8443/v1/models"),
            ("http://h/v1", "https://other/count", "https://other/count"),
        ] {
            let base = normalize(base).unwrap();
            assert_eq!(join(&base, operation).as_deref(), Ok(url), "{base} {operation}");
        }
    }

    #[test]
    fn a_path_from_the_root_is_one_that_can_stand_in_a_request_line() {
        for path in ["/", "/health", "/a/b-c_d.e~f", "/%7Ea", "/v1/"] {
            assert_eq!(check_request_path(path), Ok(()), "{path}");
        }
        let long = format!("/{}", "a".repeat(URL_BYTES_MAX));
        for (path, error) in [
            ("", UrlError::NotAPath),
            ("health", UrlError::NotAPath),
            ("//other.test/health", UrlError::NotAPath),
            ("http://other.test/health", UrlError::NotAPath),
            ("/a b", UrlError::Character),
            ("/a\r\nx: y", UrlError::Character),
            ("/\u{e4}", UrlError::Character),
            ("/health?deep=1", UrlError::QueryOrFragment),
            ("/health#a", UrlError::QueryOrFragment),
            ("/a/../b", UrlError::DotSegment),
            (&long, UrlError::TooLong),
        ] {
            assert_eq!(check_request_path(path), Err(error), "{path}");
        }
    }

    #[test]
    fn a_url_that_breaks_a_rule_is_refused() {
        let long = format!("http://h/{}", "a".repeat(URL_BYTES_MAX));
        for (url, error) in [
            ("", UrlError::NotAbsolute),
            ("127.0.0.1:8000", UrlError::NotAbsolute),
            ("ftp://h", UrlError::NotAbsolute),
            ("https:/h/v1", UrlError::NotAbsolute),
            ("https://", UrlError::Authority),
            ("https://h:0", UrlError::Authority),
            ("https://u:p@h", UrlError::UserInfo),
            ("http://", UrlError::Authority),
            ("http:///v1", UrlError::Authority),
            ("http://h:", UrlError::Authority),
            ("http://h:0", UrlError::Authority),
            ("http://h:65536", UrlError::Authority),
            ("http://h:+80", UrlError::Authority),
            ("http://::1/v1", UrlError::Authority),
            ("http://[::1", UrlError::Authority),
            ("http://[::1]8000", UrlError::Authority),
            ("http://$HOST:8000", UrlError::Variable),
            ("http://u:p@h", UrlError::UserInfo),
            ("http://h/v1?key=1", UrlError::QueryOrFragment),
            ("http://h/v1#x", UrlError::QueryOrFragment),
            ("http://h/a b", UrlError::Character),
            ("http://h/\r\nx", UrlError::Character),
            ("http://h/../x", UrlError::DotSegment),
            (long.as_str(), UrlError::TooLong),
        ] {
            assert_eq!(normalize(url), Err(error), "{url}");
        }
        assert_eq!(join("http://h", "/a?b"), Err(UrlError::QueryOrFragment));
        assert_eq!(join("http://h", "/../b"), Err(UrlError::DotSegment));
    }
}
