//! Which endpoint a request is for. Pure, and the whole of what a request can decide: one of the profile's endpoints or
//! none (design rule 8).

use std::rc::Rc;

use proto::message::{Operation, TunnelRequest};
use thiserror::Error;

use super::endpoint::Endpoint;

/// Why a request is for none of the profile's endpoints.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ChoiceError {
    /// The profile does not offer the operation.
    #[error("the profile of this adapter has no operation {0}")]
    NoOperation(Operation),
    /// No operation was named, and the path is not that of one.
    #[error("the path is not that of an operation of this adapter's profile")]
    NoPath,
    /// No operation was named, and the path's operation has another method.
    #[error("the operation of this path takes {0} only")]
    Method(String),
}

/// The endpoint for `request`: that of its operation, else the one with exactly its path (TUN-1).
///
/// A path is compared byte for byte; nothing is decoded, joined or cut, so `..`, `%2e` and `//` match nothing.
///
/// # Errors
/// [`ChoiceError`].
pub fn choose<'a>(
    endpoints: &'a [Rc<Endpoint>],
    request: &TunnelRequest,
) -> Result<&'a Rc<Endpoint>, ChoiceError> {
    if let Some(operation) = request.operation {
        let named = endpoints.iter().find(|endpoint| endpoint.operation == operation);
        return named.ok_or(ChoiceError::NoOperation(operation));
    }
    let mut with_path = endpoints
        .iter()
        .filter(|endpoint| endpoint.target == request.path || endpoint.path() == request.path);
    let first = with_path.clone().next().ok_or(ChoiceError::NoPath)?;
    if request.method.is_empty() {
        return Ok(first);
    }
    with_path
        .find(|endpoint| endpoint.method == request.method)
        .ok_or_else(|| ChoiceError::Method(first.method.clone()))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proptest::prelude::*;
    use proto::message::ProfileOperation;

    use super::*;

    fn endpoints() -> Vec<Rc<Endpoint>> {
        [
            (Operation::Models, "GET", "http://127.0.0.1:8000/v1/models"),
            (Operation::ChatCompletions, "POST", "http://127.0.0.1:8000/v1/chat/completions?api-version=2"),
            (Operation::Responses, "POST", "http://127.0.0.1:8000/v1/responses"),
        ]
        .into_iter()
        .map(|(operation, method, url)| {
            let (method, url) = (method.to_owned(), url.to_owned());
            Rc::new(Endpoint::parse(&ProfileOperation { operation, method, url }).unwrap())
        })
        .collect()
    }

    fn request(operation: Option<Operation>, method: &str, path: &str) -> TunnelRequest {
        TunnelRequest {
            stream: 1,
            run_id: String::new(),
            adapter: String::new(),
            target: String::new(),
            method: method.to_owned(),
            path: path.to_owned(),
            headers: Vec::new(),
            body: Bytes::new(),
            body_bytes: 0,
            stream_response: false,
            timeout_sec: 0,
            metadata: Default::default(),
            operation,
            session_id: String::new(),
            response_stall_timeout_ms: 300_000,
            window_bytes: 65_536,
            credential: None,
            provider_auth: None,
        }
    }

    // req: TUN-1
    #[test]
    fn an_operation_wins_over_method_and_path() {
        let endpoints = endpoints();
        let asked = request(Some(Operation::ChatCompletions), "GET", "/v1/models");
        let chosen = choose(&endpoints, &asked).unwrap();
        assert_eq!((chosen.method.as_str(), chosen.operation), ("POST", Operation::ChatCompletions));
        let asked = request(Some(Operation::Messages), "POST", "/v1/models");
        assert_eq!(choose(&endpoints, &asked), Err(ChoiceError::NoOperation(Operation::Messages)));
    }

    // req: TUN-1
    #[test]
    fn without_an_operation_the_path_has_to_be_one_of_the_profiles_own() {
        let endpoints = endpoints();
        for path in ["/v1/chat/completions", "/v1/chat/completions?api-version=2"] {
            assert_eq!(choose(&endpoints, &request(None, "POST", path)).unwrap(), &endpoints[1]);
        }
        assert_eq!(choose(&endpoints, &request(None, "", "/v1/models")).unwrap(), &endpoints[0]);
        let wrong = choose(&endpoints, &request(None, "DELETE", "/v1/models"));
        assert_eq!(wrong, Err(ChoiceError::Method("GET".to_owned())));
        for path in [
            "",
            "/",
            "/v1/models/",
            "/v1//models",
            "/v1/../v1/models",
            "/v1/%6dodels",
            "/v1/models?x=1",
            "/metrics",
            "http://127.0.0.1:8000/v1/models",
            "@evil.test/v1/models",
        ] {
            assert_eq!(choose(&endpoints, &request(None, "GET", path)), Err(ChoiceError::NoPath), "{path}");
        }
    }

    proptest! {
        // req: TUN-1
        #[test]
        fn no_request_leads_to_an_address_outside_the_profile(path in ".{0,40}", method in "[A-Z]{0,7}") {
            let endpoints = endpoints();
            if let Ok(chosen) = choose(&endpoints, &request(None, &method, &path)) {
                prop_assert!(endpoints.contains(chosen));
                prop_assert!(chosen.target == path || chosen.path() == path);
            }
        }
    }
}
