//! Heads between the `h2` crate's form and ours (RFC 9113 section 8). No I/O.
//!
//! The crate has refused what is no field of HTTP/2 at all: upper-case names, `connection` and its like, `te` other than `trailers`,
//! pseudo-fields that are unknown, repeated or behind others. A request becomes what HTTP/1's parser would have made of it, by the
//! same rules.

use ::http::{HeaderName, HeaderValue, Request, Response, StatusCode, header, request::Parts};
use bytes::Bytes;

use crate::http::{
    date,
    h1::parse::{HeadFault, check_request_fields, decimal},
    head::{Headers, Method, RequestHead, ResponseHead, Target, Version},
    limits::Limits,
};

/// A request's head; `authority` stands in it as `host`.
///
/// # Errors
/// It breaks a rule that HTTP/1 has too, or its pseudo-fields are none of a request for a path of ours.
pub(super) fn request(parts: &Parts, limits: &Limits) -> Result<RequestHead, HeadFault> {
    let method = Method::from_token(parts.method.as_str());
    if matches!(&method, Method::Other(token) if matches!(&**token, "CONNECT" | "TRACE")) {
        return Err(HeadFault::Method);
    }
    if parts.uri.scheme_str().is_some_and(|scheme| !matches!(scheme, "http" | "https")) {
        return Err(HeadFault::Target);
    }
    let target = parts.uri.path_and_query().map_or("", |target| target.as_str());
    let is_path = target.starts_with('/') || (target == "*" && method == Method::Options);
    if !is_path || !target.bytes().all(|b| b.is_ascii_graphic() && b != b'#') {
        return Err(HeadFault::Target);
    }
    if target.len() > limits.field_bytes || parts.headers.len() > limits.fields {
        return Err(HeadFault::TooLarge);
    }
    let headers = fields(parts, target.len(), limits)?;
    check_request_fields(Version::Http11, &headers)?;
    let target = Target::new(Bytes::copy_from_slice(target.as_bytes()));
    Ok(RequestHead { method, target, version: Version::Http11, headers })
}

fn fields(parts: &Parts, target: usize, limits: &Limits) -> Result<Headers, HeadFault> {
    let mut headers = Headers::with_capacity(parts.headers.len() + 1);
    if let Some(host) = host(parts)? {
        push(&mut headers, "host", host.as_bytes())?;
    }
    let cookies = parts.headers.get_all(header::COOKIE);
    let mut bytes = target;
    for (name, value) in &parts.headers {
        let (name, value) = (name.as_str(), value.as_bytes());
        if name.len() + value.len() > limits.field_bytes {
            return Err(HeadFault::TooLarge);
        }
        bytes += name.len() + value.len();
        let (first, last) = (value.first(), value.last());
        if [first, last].into_iter().flatten().any(|edge| matches!(edge, b' ' | b'\t')) {
            return Err(HeadFault::Field);
        }
        match name {
            "host" | "cookie" => {}
            // Of the connection, which the crate lets nobody say.
            "connection" | "transfer-encoding" | "keep-alive" | "upgrade" => {
                return Err(HeadFault::Connection);
            }
            _ => push(&mut headers, name, value)?,
        }
    }
    if bytes > limits.head_bytes {
        return Err(HeadFault::TooLarge);
    }
    // A client may cut them apart for the sake of compression (RFC 9113 section 8.2.3).
    let cookies: Vec<_> = cookies.iter().map(HeaderValue::as_bytes).collect();
    if !cookies.is_empty() {
        push(&mut headers, "cookie", &cookies.join(&b"; "[..]))?;
    }
    Ok(headers)
}

/// Whom the request is for: `:authority` or `host`, or both where they are the same.
fn host(parts: &Parts) -> Result<Option<&str>, HeadFault> {
    let authority = parts.uri.authority().map(|authority| authority.as_str());
    let mut hosts = parts.headers.get_all(header::HOST).iter();
    let host = hosts.next().map(|host| host.to_str().map_err(|_| HeadFault::Host)).transpose()?;
    if hosts.next().is_some() {
        return Err(HeadFault::Host);
    }
    match (authority, host) {
        (Some(authority), Some(host)) if !authority.eq_ignore_ascii_case(host) => Err(HeadFault::Host),
        (authority, host) => Ok(authority.or(host)),
    }
}

fn push(headers: &mut Headers, name: &str, value: &[u8]) -> Result<(), HeadFault> {
    headers.push(name, value).map_err(|_| HeadFault::Field)
}

/// What a request's head says about the length of its body.
pub(super) fn announced(head: &RequestHead) -> Option<u64> {
    head.headers.get("content-length").and_then(decimal)
}

/// A response's head. Fields of the connection are left out, and the length comes from `length`.
pub(super) fn response(head: &ResponseHead, length: Option<u64>) -> Response<()> {
    let mut response = Response::new(());
    *response.status_mut() = StatusCode::from_u16(head.status.clamp(100, 599)).unwrap_or_default();
    let fields = response.headers_mut();
    fields.reserve(head.headers.len() + 2);
    for (name, value) in head.headers.raw() {
        // Headers are valid by construction; should that ever fail, the rest is still told.
        if !is_of_the_connection(name)
            && let (Ok(name), Ok(value)) = (HeaderName::from_lowercase(name), HeaderValue::from_bytes(value))
        {
            fields.append(name, value);
        }
    }
    if let Some(length) = length {
        fields.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    }
    if !fields.contains_key(header::DATE)
        && let Ok(now) = HeaderValue::from_bytes(&date::now())
    {
        fields.insert(header::DATE, now);
    }
    response
}

fn is_of_the_connection(name: &[u8]) -> bool {
    matches!(
        name,
        b"host"
            | b"content-length"
            | b"transfer-encoding"
            | b"connection"
            | b"keep-alive"
            | b"proxy-connection"
            | b"te"
            | b"upgrade"
    )
}

/// The head that asks for the body.
pub(super) fn carry_on() -> Response<()> {
    let mut response = Response::new(());
    *response.status_mut() = StatusCode::CONTINUE;
    response
}

/// Apart: the head of a request, and what reads its body.
pub(super) fn apart<B>(request: Request<B>) -> (Parts, B) {
    request.into_parts()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(method: &str, uri: &str, fields: &[(&str, &str)]) -> Result<RequestHead, HeadFault> {
        let mut built = Request::builder().method(method).uri(uri);
        for (name, value) in fields {
            built = built.header(*name, *value);
        }
        request(&apart(built.body(()).unwrap()).0, &Limits::default())
    }

    #[test]
    fn a_head_is_what_http_1_would_have_made_of_it() {
        let fields = [("x-one", "1"), ("cookie", "a=1"), ("x-two", ""), ("cookie", "b=2"), ("x-one", "3")];
        let head = of("POST", "https://edge.test:8443/v1/models?limit=1", &fields).unwrap();
        assert_eq!(head.method, Method::Post);
        assert_eq!((head.target.path(), head.target.query()), ("/v1/models", Some("limit=1")));
        let mut got: Vec<_> = head.headers.iter().map(|(n, v)| (n, str::from_utf8(v).unwrap())).collect();
        got.sort_unstable();
        let expected = [
            ("cookie", "a=1; b=2"),
            ("host", "edge.test:8443"),
            ("x-one", "1"),
            ("x-one", "3"),
            ("x-two", ""),
        ];
        assert_eq!(got, expected);
        assert_eq!(head.headers.get_all("x-one").collect::<Vec<_>>(), [b"1", b"3"], "in their order");
    }

    #[test]
    fn a_host_is_told_once_or_twice_the_same() {
        assert!(of("GET", "http://a.test/", &[("host", "A.test")]).is_ok());
        assert!(of("GET", "/", &[("host", "a.test")]).is_ok());
        for (uri, hosts) in [
            ("http://a.test/", &["b.test"][..]),
            ("http://a.test/", &["a.test", "a.test"]),
            ("http://a.test/", &[""]),
            ("/", &[]),
            ("/", &["a.test", "b.test"]),
            ("/", &["me@a.test"]),
            ("http://me@a.test/", &[]),
        ] {
            let fields: Vec<_> = hosts.iter().map(|host| ("host", *host)).collect();
            assert_eq!(of("GET", uri, &fields).unwrap_err(), HeadFault::Host, "{uri} {hosts:?}");
        }
    }

    #[test]
    fn what_http_1_refuses_is_refused() {
        let host = ("host", "a.test");
        for (method, fields, expected) in [
            ("CONNECT", &[host][..], HeadFault::Method),
            ("TRACE", &[host], HeadFault::Method),
            ("GET", &[host, ("authorization", "a"), ("authorization", "b")], HeadFault::Repeated),
            ("GET", &[host, ("transfer-encoding", "chunked")], HeadFault::Connection),
            ("GET", &[host, ("connection", "close")], HeadFault::Connection),
            ("GET", &[host, ("content-length", "1x")], HeadFault::ContentLength),
            ("GET", &[host, ("expect", "miracles")], HeadFault::Expectation),
            ("GET", &[host, ("x-padded", " x")], HeadFault::Field),
            ("GET", &[host, ("x-padded", "x\t")], HeadFault::Field),
        ] {
            assert_eq!(of(method, "/", fields).unwrap_err(), expected, "{method} {fields:?}");
        }
        assert_eq!(of("GET", "*", &[host]).unwrap_err(), HeadFault::Target);
        assert!(of("OPTIONS", "*", &[host]).is_ok());
        assert_eq!(of("GET", "ftp://a.test/", &[]).unwrap_err(), HeadFault::Target);
    }

    #[test]
    fn the_bounds_of_a_head_are_those_of_http_1() {
        let host = ("host", "a.test");
        let large = "x".repeat(16 * 1024);
        let many: Vec<_> = std::iter::once(host).chain((0..100).map(|_| ("x", "1"))).collect();
        for fields in [&[host, ("x-large", &*large)][..], &many] {
            assert_eq!(of("GET", "/", fields).unwrap_err(), HeadFault::TooLarge);
        }
        assert!(of("GET", "/", &many[..100]).is_ok());
        let target = format!("/{large}");
        assert_eq!(of("GET", &target, &[host]).unwrap_err(), HeadFault::TooLarge);
    }

    #[test]
    fn a_response_says_nothing_about_a_connection() {
        let mut head = ResponseHead::new(200);
        for (name, value) in [
            ("connection", "close"),
            ("transfer-encoding", "chunked"),
            ("content-length", "7"),
            ("set-cookie", "a"),
            ("set-cookie", "b"),
            ("keep-alive", "timeout=1"),
        ] {
            head.headers.push(name, value).unwrap();
        }
        let told = response(&head, Some(5));
        let names: Vec<_> = told.headers().keys().map(HeaderName::as_str).collect();
        assert_eq!(names, ["set-cookie", "content-length", "date"]);
        assert_eq!(told.headers().get_all("set-cookie").iter().count(), 2);
        assert_eq!(told.headers()["content-length"], "5");
        assert!(!response(&head, None).headers().contains_key("content-length"));
    }
}
