//! What crosses the gateway: hop-by-hop fields, credentials of the client and internal fields stay behind
//! (RFC 9110 §7.6.1).
//!
//! A profile's own allow-list comes after this; what it adds (the provider's credential, request ids) is added after
//! this too, so no client can nominate it away.

use super::head::{Headers, list_elements};

/// Fields of one connection, in either direction.
fn is_hop_by_hop(name: &[u8]) -> bool {
    matches!(
        name,
        b"connection"
            | b"keep-alive"
            | b"proxy-connection"
            | b"te"
            | b"trailer"
            | b"transfer-encoding"
            | b"upgrade"
            | b"http2-settings"
            | b"expect"
    )
}

/// Request fields that are ours to decide: credentials, and what is written anew for the provider.
fn is_client_only(name: &[u8]) -> bool {
    matches!(name, b"authorization" | b"x-api-key" | b"api-key" | b"cookie" | b"host" | b"content-length")
}

/// Fields that describe the message or find it again in logs: `Connection` cannot take them away.
fn is_not_nominable(name: &[u8]) -> bool {
    matches!(
        name,
        b"accept"
            | b"content-encoding"
            | b"content-length"
            | b"content-type"
            | b"request-id"
            | b"x-request-id"
    )
}

/// Fields that may go to a provider: end-to-end ones without the client's credentials, in order.
pub fn forwardable_request(headers: &Headers) -> impl Iterator<Item = (&str, &[u8])> {
    let nominated = nominated(headers.get_all("connection"));
    headers.filtered(move |name| may_go_to_provider(name, &nominated))
}

/// As [`forwardable_request`], of fields that come as a list, with names in lower case.
pub fn forwardable_request_fields<'a, I>(fields: I) -> impl Iterator<Item = (&'a str, &'a [u8])>
where
    I: Iterator<Item = (&'a str, &'a [u8])> + Clone,
{
    let connection = fields.clone().filter(|(name, _)| *name == "connection");
    let nominated = nominated(connection.map(|(_, value)| value));
    fields.filter(move |(name, _)| may_go_to_provider(name.as_bytes(), &nominated))
}

fn may_go_to_provider(name: &[u8], nominated: &[&[u8]]) -> bool {
    crosses(name) && !is_client_only(name) && !is_in(nominated, name)
}

/// Fields that may go to a client: the provider's end-to-end ones, `content-length` included, in order.
pub fn forwardable_response(headers: &Headers) -> impl Iterator<Item = (&str, &[u8])> {
    let nominated = nominated(headers.get_all("connection"));
    headers.filtered(move |name| crosses(name) && !is_in(&nominated, name))
}

/// Whether a single field may cross at all, in either direction: for heads that come as a list from a peer of ours, whose
/// word on what it has filtered is not taken.
pub fn may_cross(name: &str) -> bool {
    crosses(name.as_bytes())
}

fn crosses(name: &[u8]) -> bool {
    !is_internal(name) && !is_hop_by_hop(name)
}

/// `proxy-*` speaks to proxies, `x-iop-*` is this product's own and never believed from outside.
fn is_internal(name: &[u8]) -> bool {
    name.starts_with(b"x-iop-") || name.starts_with(b"proxy-")
}

/// What `Connection` names besides its own options. A parsed head has at most 64 of them.
fn nominated<'a>(connection: impl Iterator<Item = &'a [u8]>) -> Vec<&'a [u8]> {
    connection
        .flat_map(list_elements)
        .filter(|option| {
            !option.eq_ignore_ascii_case(b"close") && !option.eq_ignore_ascii_case(b"keep-alive")
        })
        .collect()
}

fn is_in(nominated: &[&[u8]], name: &[u8]) -> bool {
    !nominated.is_empty()
        && !is_not_nominable(name)
        && nominated.iter().any(|option| option.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(fields: &[(&str, &str)]) -> Headers {
        let mut headers = Headers::new();
        for (name, value) in fields {
            headers.push(name, value).unwrap();
        }
        headers
    }

    fn names<'a>(fields: impl Iterator<Item = (&'a str, &'a [u8])>) -> Vec<&'a str> {
        fields.map(|(name, _)| name).collect()
    }

    const BOTH_WAYS: &[&str] = &[
        "connection",
        "keep-alive",
        "proxy-connection",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-authentication-info",
        "proxy-features",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "http2-settings",
        "expect",
        "x-iop-run",
        "x-iop-node",
        "x-iop-tenant",
        "x-iop-",
    ];

    // req: TUN-6
    #[test]
    fn hop_by_hop_and_internal_fields_cross_in_neither_direction() {
        for name in BOTH_WAYS {
            let headers = headers(&[("x-before", "1"), (name, "x"), ("x-after", "2")]);
            assert_eq!(
                names(forwardable_request(&headers)),
                ["x-before", "x-after"],
                "{name} to the provider"
            );
            assert_eq!(
                names(forwardable_response(&headers)),
                ["x-before", "x-after"],
                "{name} to the client"
            );
        }
    }

    // req: TUN-6
    #[test]
    fn the_credentials_and_framing_of_a_client_never_reach_a_provider() {
        for name in ["authorization", "x-api-key", "api-key", "cookie", "host", "content-length"] {
            let headers = headers(&[(name, "secret"), ("accept", "*/*")]);
            assert_eq!(names(forwardable_request(&headers)), ["accept"], "{name}");
        }
    }

    // req: TUN-6
    #[test]
    fn fields_that_connection_names_are_dropped_in_both_directions() {
        let headers = headers(&[
            ("x-one", "1"),
            ("connection", "close, X-One ,x-two,,"),
            ("x-two", "2"),
            ("connection", "keep-alive, x-three"),
            ("x-three", "3"),
            ("x-four", "4"),
        ]);
        assert_eq!(names(forwardable_request(&headers)), ["x-four"]);
        assert_eq!(names(forwardable_response(&headers)), ["x-four"]);
    }

    // req: TUN-6
    #[test]
    fn connection_cannot_take_away_what_describes_the_message() {
        let headers = headers(&[
            ("connection", "content-type, x-request-id, content-encoding, authorization, x-iop-run"),
            ("content-type", "application/json"),
            ("content-encoding", "gzip"),
            ("x-request-id", "r1"),
            ("authorization", "Bearer t"),
        ]);
        assert_eq!(
            names(forwardable_request(&headers)),
            ["content-type", "content-encoding", "x-request-id"]
        );
    }

    // req: TUN-6
    #[test]
    fn the_remaining_fields_of_a_provider_reach_the_client_in_order_and_unchanged() {
        let sent: &[(&str, &str)] = &[
            ("content-type", "text/event-stream"),
            ("content-length", "12"),
            ("openai-processing-ms", "7"),
            ("set-cookie", "a=1"),
            ("set-cookie", "b=2"),
            ("retry-after", "3"),
            ("x-ratelimit-remaining", ""),
        ];
        let headers = headers(sent);
        let got: Vec<_> = forwardable_response(&headers)
            .map(|(name, value)| (name, std::str::from_utf8(value).unwrap()))
            .collect();
        assert_eq!(got, sent);
    }

    // req: TUN-6
    #[test]
    fn the_versions_and_betas_of_a_client_reach_the_provider() {
        let headers =
            headers(&[("anthropic-beta", "a, b"), ("anthropic-version", "2023-06-01"), ("cookies", "no")]);
        assert_eq!(names(forwardable_request(&headers)), ["anthropic-beta", "anthropic-version", "cookies"]);
    }
}
