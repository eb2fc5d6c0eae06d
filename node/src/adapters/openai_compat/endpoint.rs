//! Where an operation goes: parsed once when a configuration is applied, never from a request.
//!
//! `http://` only in this release. The host, port and path of every provider request come from here (design rule 8).

use std::rc::Rc;

use proto::message::{Operation, ProfileOperation};
use thiserror::Error;

/// One operation of a profile, ready to be called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Which.
    pub operation: Operation,
    /// HTTP method, upper case.
    pub method: String,
    /// Whom to dial.
    pub origin: Origin,
    /// Value of the `Host` field.
    pub authority: Rc<str>,
    /// Request target in origin form: path and query.
    pub target: String,
}

/// Whom to dial.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Origin {
    /// DNS name or literal address, lower case, without brackets.
    pub host: String,
    /// TCP port, never 0.
    pub port: u16,
}

impl Origin {
    /// The `Host` field value (RFC 9112 section 3.2): the port is left out when it is the scheme's own.
    #[must_use]
    pub fn authority(&self) -> String {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        if self.port == HTTP_PORT { host } else { format!("{host}:{}", self.port) }
    }
}

/// Why an operation of a profile cannot be called.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum EndpointError {
    /// Another scheme than `http`.
    #[error("the url of {0} does not begin with http://, the only scheme of this release")]
    Scheme(Operation),
    /// No host, user information, or a byte that stands in no host.
    #[error("the url of {0} has no usable host")]
    Host(Operation),
    /// Not 1 to 65535.
    #[error("the url of {0} has no usable port")]
    Port(Operation),
    /// A byte that may not stand in a request target, or a fragment.
    #[error("the url of {0} has a path with a byte that cannot be sent")]
    Target(Operation),
    /// Not an upper-case token.
    #[error("the method of {0} is not an upper-case token")]
    Method(Operation),
}

impl Endpoint {
    /// Parses one operation of a profile.
    ///
    /// # Errors
    /// [`EndpointError`].
    pub fn parse(typed: &ProfileOperation) -> Result<Self, EndpointError> {
        let operation = typed.operation;
        let method = typed.method.as_str();
        if method.is_empty() || !method.bytes().all(|byte| byte.is_ascii_uppercase()) {
            return Err(EndpointError::Method(operation));
        }
        let rest = strip_scheme(&typed.url).ok_or(EndpointError::Scheme(operation))?;
        let split = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, target) = rest.split_at(split);
        let origin = origin(authority, operation)?;
        // VCHAR without `#` covers everything that RFC 3986 lets stand in path and query, and no space or control.
        if target.bytes().any(|byte| !byte.is_ascii_graphic() || byte == b'#') {
            return Err(EndpointError::Target(operation));
        }
        let target = if target.starts_with('/') { target.to_owned() } else { format!("/{target}") };
        let authority = origin.authority().into();
        Ok(Self { operation, method: method.to_owned(), origin, authority, target })
    }

    /// The path without the query.
    #[must_use]
    pub fn path(&self) -> &str {
        self.target.split_once('?').map_or(self.target.as_str(), |(path, _)| path)
    }
}

const HTTP_PORT: u16 = 80;

fn strip_scheme(url: &str) -> Option<&str> {
    let (scheme, rest) = url.split_at_checked("http://".len())?;
    scheme.eq_ignore_ascii_case("http://").then_some(rest)
}

fn origin(authority: &str, operation: Operation) -> Result<Origin, EndpointError> {
    let bad_host = EndpointError::Host(operation);
    let (host, port) = if let Some(rest) = authority.strip_prefix('[') {
        let (host, port) = rest.split_once(']').ok_or(bad_host.clone())?;
        if host.parse::<std::net::Ipv6Addr>().is_err() {
            return Err(bad_host);
        }
        (host, port)
    } else {
        let split = authority.find(':').unwrap_or(authority.len());
        let (host, port) = authority.split_at(split);
        if host.is_empty() || !host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte))
        {
            return Err(bad_host);
        }
        (host, port)
    };
    let port = match port.strip_prefix(':') {
        None if port.is_empty() => HTTP_PORT,
        Some(digits) if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) => {
            digits.parse().ok().filter(|port| *port != 0).ok_or(EndpointError::Port(operation))?
        }
        _ => return Err(EndpointError::Port(operation)),
    };
    Ok(Origin { host: host.to_ascii_lowercase(), port })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> Result<Endpoint, EndpointError> {
        let operation = Operation::ChatCompletions;
        Endpoint::parse(&ProfileOperation { operation, method: "POST".to_owned(), url: url.to_owned() })
    }

    #[test]
    fn urls_become_host_port_and_target() {
        for (url, authority, target) in [
            ("http://127.0.0.1:8000/v1/chat/completions", "127.0.0.1:8000", "/v1/chat/completions"),
            ("http://Box.Example:80/x?api-version=1", "box.example", "/x?api-version=1"),
            ("HTTP://box", "box", "/"),
            ("http://box?q=1", "box", "/?q=1"),
            ("http://[::1]:11434/v1", "[::1]:11434", "/v1"),
            ("http://[::1]", "[::1]", "/"),
        ] {
            let endpoint = parse(url).unwrap();
            assert_eq!((&*endpoint.authority, endpoint.target.as_str()), (authority, target), "{url}");
        }
    }

    #[test]
    fn urls_that_could_be_read_in_two_ways_are_refused() {
        let operation = Operation::ChatCompletions;
        for (url, error) in [
            ("https://box/v1", EndpointError::Scheme(operation)),
            ("ftp://box/v1", EndpointError::Scheme(operation)),
            ("box/v1", EndpointError::Scheme(operation)),
            ("", EndpointError::Scheme(operation)),
            ("http://", EndpointError::Host(operation)),
            ("http:///v1", EndpointError::Host(operation)),
            ("http://user@box/v1", EndpointError::Host(operation)),
            ("http://user:secret@box/v1", EndpointError::Port(operation)),
            ("http://[::1/v1", EndpointError::Host(operation)),
            ("http://[box]/v1", EndpointError::Host(operation)),
            ("http://bo\u{e4}/v1", EndpointError::Host(operation)),
            ("http://box:0/v1", EndpointError::Port(operation)),
            ("http://box:/v1", EndpointError::Port(operation)),
            ("http://box:+80/v1", EndpointError::Port(operation)),
            ("http://box:70000/v1", EndpointError::Port(operation)),
            ("http://[::1]8/v1", EndpointError::Port(operation)),
            ("http://box/a b", EndpointError::Target(operation)),
            ("http://box/a\r\nx: y", EndpointError::Target(operation)),
            ("http://box/a#b", EndpointError::Target(operation)),
        ] {
            assert_eq!(parse(url), Err(error), "{url}");
        }
    }

    #[test]
    fn a_method_is_an_upper_case_token() {
        for method in ["", "post", "PO ST", "POST\r\n"] {
            let typed = ProfileOperation {
                operation: Operation::Models,
                method: method.to_owned(),
                url: "http://box/v1".to_owned(),
            };
            assert_eq!(Endpoint::parse(&typed), Err(EndpointError::Method(Operation::Models)), "{method}");
        }
    }
}
