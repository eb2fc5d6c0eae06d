//! Which header fields cross the Node, in both directions (TUN-6). Pure; what is of one hop is [`hop`]'s to say.

use bytes::Bytes;
use dataplane::http::{head::Headers, hop};
use proto::{limits::HEADERS_MAX, message::Header};
use thiserror::Error;

/// A configured header that cannot be sent.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum StaticFieldError {
    /// It belongs to the connection or the framing of a message, which are not the configuration's.
    #[error("the configured header {0} belongs to the connection and cannot be set")]
    OfConnection(String),
    /// A byte that cannot stand in a field.
    #[error("the configured header {0} holds a byte that cannot be sent")]
    Malformed(String),
}

/// What the Node sets itself: an answer is passed on as it comes, so it must come as it is.
const ACCEPT_ENCODING: (&str, &str) = ("accept-encoding", "identity");

/// Room for what the Node adds to a request's fields, usually enough.
const OWN_BYTES: usize = 128;

/// The configured fields of an adapter; a credential of the provider may be among them.
///
/// # Errors
/// [`StaticFieldError`].
pub fn static_fields(configured: &[Header]) -> Result<Headers, StaticFieldError> {
    let mut fields = Headers::new();
    for header in configured {
        let mut alone = Headers::new();
        let name = header.name.as_str();
        alone.push(name, &header.value).map_err(|_| StaticFieldError::Malformed(name.to_owned()))?;
        let framing = ["host", "content-length", ACCEPT_ENCODING.0].contains(&name);
        if framing || hop::forwardable_response(&alone).next().is_none() {
            return Err(StaticFieldError::OfConnection(name.to_owned()));
        }
        let _checked = fields.push(name, &header.value);
    }
    Ok(fields)
}

/// The fields of a request to the provider: the Edge's end-to-end fields in their order, then the configured ones, which
/// win over fields of the same name. A client's credentials are not among them, whatever the Edge let through, but for the
/// one that the Edge names as meant for the provider (CFG-3), which wins over all.
#[must_use]
pub fn request_fields(from_edge: &[Header], configured: &Headers, auth: Option<&Header>) -> Headers {
    let received = from_edge.iter().map(|header| (header.name.as_str(), header.value.as_ref()));
    let is_auth = |name: &str| auth.is_some_and(|auth| auth.name == name);
    let bytes = from_edge.iter().map(|header| header.name.len() + header.value.len()).sum::<usize>();
    let mut fields = Headers::with_room(from_edge.len() + configured.len() + 2, bytes + OWN_BYTES);
    for (name, value) in hop::forwardable_request_fields(received) {
        if name != ACCEPT_ENCODING.0 && configured.get(name).is_none() && !is_auth(name) {
            // A value that HTTP cannot carry is left out; no client can send one to the Edge.
            let _left_out = fields.push(name, value);
        }
    }
    let auth = auth.into_iter().map(|auth| (auth.name.as_str(), auth.value.as_ref()));
    let ours = [(ACCEPT_ENCODING.0, ACCEPT_ENCODING.1.as_bytes())];
    for (name, value) in configured.iter().filter(|(name, _)| !is_auth(name)).chain(ours).chain(auth) {
        let _checked = fields.push(name, value);
    }
    fields
}

/// The fields of a request of the Node's own, in which no caller has a part.
#[must_use]
pub fn own_fields(configured: &Headers, is_json: bool) -> Headers {
    let json = Header { name: "content-type".to_owned(), value: Bytes::from_static(b"application/json") };
    request_fields(if is_json { std::slice::from_ref(&json) } else { &[] }, configured, None)
}

/// The end-to-end fields of a provider's answer, in their order.
#[must_use]
pub fn response_fields(from_provider: &Headers) -> Vec<Header> {
    let mut fields = Vec::with_capacity(from_provider.len().min(HEADERS_MAX));
    for (name, value) in hop::forwardable_response(from_provider).take(HEADERS_MAX) {
        // A head that was parsed holds what the wire takes, by its stricter rules: it is not checked again.
        let field = Header { name: name.to_owned(), value: Bytes::copy_from_slice(value) };
        debug_assert_eq!(field.check(), Ok(()), "{name}");
        fields.push(field);
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(fields: &[(&str, &str)]) -> Vec<Header> {
        fields.iter().map(|(name, value)| Header::new(*name, value.to_string()).unwrap()).collect()
    }

    fn shown(fields: &Headers) -> Vec<(String, String)> {
        fields
            .iter()
            .map(|(name, value)| (name.to_owned(), String::from_utf8(value.to_vec()).unwrap()))
            .collect()
    }

    // req: TUN-6
    #[test]
    fn only_end_to_end_fields_reach_the_provider_and_configured_ones_win() {
        let from_edge = list(&[
            ("content-type", "application/json"),
            ("x-custom", "from client"),
            ("connection", "x-hop"),
            ("x-hop", "1"),
            ("te", "trailers"),
            ("authorization", "Bearer of the client"),
            ("accept-encoding", "gzip"),
            ("host", "evil.test"),
            ("content-length", "3"),
            ("transfer-encoding", "chunked"),
            ("expect", "100-continue"),
            ("x-iop-tenant", "spoofed"),
            ("anthropic-version", "2023-06-01"),
        ]);
        let configured =
            static_fields(&list(&[("x-custom", "configured"), ("authorization", "Bearer of the provider")]))
                .unwrap();
        let sent = shown(&request_fields(&from_edge, &configured, None));
        let expected = [
            ("content-type", "application/json"),
            ("anthropic-version", "2023-06-01"),
            ("x-custom", "configured"),
            ("authorization", "Bearer of the provider"),
            ("accept-encoding", "identity"),
        ];
        assert_eq!(sent, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }

    // req: CFG-3
    #[test]
    fn the_callers_own_credential_for_the_provider_stands_alone() {
        let from_edge = list(&[("accept", "*/*"), ("authorization", "of the client"), ("x-key", "spoofed")]);
        let configured =
            static_fields(&list(&[("authorization", "configured"), ("x-key", "configured")])).unwrap();
        for (auth, expected) in [
            (
                ("authorization", "Bearer k"),
                [
                    ("accept", "*/*"),
                    ("x-key", "configured"),
                    ("accept-encoding", "identity"),
                    ("authorization", "Bearer k"),
                ],
            ),
            (
                ("x-key", "k"),
                [
                    ("accept", "*/*"),
                    ("authorization", "configured"),
                    ("accept-encoding", "identity"),
                    ("x-key", "k"),
                ],
            ),
        ] {
            let auth = Header::new(auth.0, auth.1).unwrap();
            let sent = shown(&request_fields(&from_edge, &configured, Some(&auth)));
            assert_eq!(sent, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
            assert!(!format!("{auth:?}").contains("Bearer"), "{auth:?}");
        }
    }

    // req: TUN-6
    #[test]
    fn only_end_to_end_fields_of_an_answer_reach_the_edge() {
        let mut answer = Headers::new();
        for (name, value) in [
            ("content-type", "text/event-stream"),
            ("connection", "keep-alive, x-hop"),
            ("x-hop", "1"),
            ("transfer-encoding", "chunked"),
            ("keep-alive", "timeout=5"),
            ("x-request-id", "abc"),
            ("set-cookie", "a=1"),
            ("set-cookie", "b=2"),
        ] {
            answer.push(name, value).unwrap();
        }
        let expected = list(&[
            ("content-type", "text/event-stream"),
            ("x-request-id", "abc"),
            ("set-cookie", "a=1"),
            ("set-cookie", "b=2"),
        ]);
        assert_eq!(response_fields(&answer), expected);
    }

    #[test]
    fn configured_fields_cannot_touch_framing_or_connection() {
        for name in
            ["host", "content-length", "transfer-encoding", "connection", "x-iop-a", "accept-encoding"]
        {
            let refused = static_fields(&list(&[(name, "x")]));
            assert!(matches!(refused, Err(StaticFieldError::OfConnection(_))), "{name}");
        }
        let control = Header { name: "x-a".to_owned(), value: Bytes::from_static(b"a\x01b") };
        assert_eq!(static_fields(&[control]).unwrap_err(), StaticFieldError::Malformed("x-a".to_owned()));
    }
}
