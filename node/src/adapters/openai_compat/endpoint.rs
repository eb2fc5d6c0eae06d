//! Where an operation goes: parsed once when a configuration is applied, never from a request.
//!
//! `http://` and `https://`. The host, port and path of every provider request come from here (design rule 8).

use std::rc::Rc;

use proto::message::{Operation, ProfileOperation};
use rustls_pki_types::ServerName;
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

/// How a provider is called.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// HTTP over TCP.
    Http,
    /// HTTP over TLS. The server's certificate must be for this name, which is the origin's host.
    Https(Rc<ServerName<'static>>),
}

const HTTP_PORT: u16 = 80;
const HTTPS_PORT: u16 = 443;

impl Scheme {
    /// The port of a URL that names none (RFC 9110 section 4.2).
    const fn port(&self) -> u16 {
        match self {
            Self::Http => HTTP_PORT,
            Self::Https(_) => HTTPS_PORT,
        }
    }
}

/// Whom to dial, and how.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Origin {
    /// Whether there is TLS.
    pub scheme: Scheme,
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
        if self.port == self.scheme.port() { host } else { format!("{host}:{}", self.port) }
    }
}

/// Why an operation of a profile cannot be called.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum EndpointError {
    /// Another scheme than `http` and `https`.
    #[error("the url of {0} begins with neither http:// nor https://")]
    Scheme(Operation),
    /// No host, user information, a byte that stands in no host, or a name that no certificate can be for.
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
        let (is_https, rest) = split_scheme(&typed.url).ok_or(EndpointError::Scheme(operation))?;
        let split = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, target) = rest.split_at(split);
        let origin = origin(is_https, authority, operation)?;
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

/// Whether it is https, and what comes behind `://`.
fn split_scheme(url: &str) -> Option<(bool, &str)> {
    [("http://", false), ("https://", true)].into_iter().find_map(|(prefix, is_https)| {
        let (head, rest) = url.split_at_checked(prefix.len())?;
        head.eq_ignore_ascii_case(prefix).then_some((is_https, rest))
    })
}

fn origin(is_https: bool, authority: &str, operation: Operation) -> Result<Origin, EndpointError> {
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
    let host = host.to_ascii_lowercase();
    let scheme = if is_https {
        Scheme::Https(Rc::new(ServerName::try_from(host.clone()).map_err(|_| bad_host)?))
    } else {
        Scheme::Http
    };
    let port = match port.strip_prefix(':') {
        None if port.is_empty() => scheme.port(),
        Some(digits) if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) => {
            digits.parse().ok().filter(|port| *port != 0).ok_or(EndpointError::Port(operation))?
        }
        _ => return Err(EndpointError::Port(operation)),
    };
    Ok(Origin { scheme, host, port })
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
            ("http://box:443/v1", "box:443", "/v1"),
            ("https://box:80/v1", "box:80", "/v1"),
            ("HTTPS://Api.Example/v1", "api.example", "/v1"),
            ("https://api.example:443/v1", "api.example", "/v1"),
            ("https://[::1]/v1", "[::1]", "/v1"),
        ] {
            let endpoint = parse(url).unwrap();
            assert_eq!((&*endpoint.authority, endpoint.target.as_str()), (authority, target), "{url}");
        }
    }

    #[test]
    fn the_scheme_decides_the_port_and_which_name_a_certificate_must_have() {
        for (url, port, name) in [
            ("http://box/v1", 80, None),
            ("https://Box.Example/v1", 443, Some("box.example")),
            ("https://box_1:8443/v1", 8443, Some("box_1")),
            ("https://127.0.0.1/v1", 443, Some("127.0.0.1")),
            ("https://[::1]:9/v1", 9, Some("::1")),
        ] {
            let endpoint = parse(url).unwrap();
            let found = match &endpoint.origin.scheme {
                Scheme::Http => None,
                Scheme::Https(name) => Some(name.to_str().into_owned()),
            };
            assert_eq!((endpoint.origin.port, found.as_deref()), (port, name), "{url}");
        }
        assert_ne!(parse("http://box:443/").unwrap().origin, parse("https://box/").unwrap().origin);
    }

    #[test]
    fn urls_that_could_be_read_in_two_ways_are_refused() {
        let operation = Operation::ChatCompletions;
        for (url, error) in [
            ("httpss://box/v1", EndpointError::Scheme(operation)),
            ("https:/box/v1", EndpointError::Scheme(operation)),
            ("https://", EndpointError::Host(operation)),
            ("https://-box/v1", EndpointError::Host(operation)),
            ("https://user@box/v1", EndpointError::Host(operation)),
            ("https://box:0/v1", EndpointError::Port(operation)),
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
