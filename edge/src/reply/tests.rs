use std::collections::HashSet;

use serde_json::{Value, json};

use super::*;
use crate::translate::refusal::ProviderErrorKind;

const REQUEST: &str = "req_1";

fn body(fault: &Fault, surface: Surface) -> Value {
    serde_json::from_str(&fault.body(surface, REQUEST)).unwrap()
}

fn broken(surface: Surface) -> Broken<'static> {
    Broken { surface, request_id: REQUEST, model: "m", now: 5, events: 7 }
}

/// One value of every variant.
fn every() -> Vec<Fault> {
    vec![
        Fault::BadFraming { detail: "two content-length fields".into() },
        Fault::BadJson { detail: "expected an array".into(), param: Some("messages".into()) },
        Fault::BadQuery { param: "limit", detail: "expected a number" },
        Fault::MissingField { param: "model" },
        Fault::Unauthorized,
        Fault::Revoked,
        Fault::ProviderAuth { header: "x-key".into(), found: "is missing" },
        Fault::UnknownModel { model: Some("gpt \"x\"".to_owned()) },
        Fault::ContextTooLong { tokens: 9, window: 5 },
        Fault::UnknownPath,
        Fault::NotStored,
        Fault::MethodNotAllowed { allow: "POST" },
        Fault::RequestTimeout,
        Fault::BodyTooLarge { limit: 5 },
        Fault::UnsupportedEncoding,
        Fault::BadCoding { coding: "gzip", detail: "it is corrupt".to_owned() },
        Fault::BodyExpands { coding: "br" },
        Fault::ExpectationFailed,
        Fault::HeadTooLarge,
        Fault::QueueFull,
        Fault::QueueTimeout,
        Fault::Unservable,
        Fault::Busy,
        Fault::NoNode,
        Fault::NoBodyRoom,
        Fault::Draining,
        Fault::NodeLost,
        Fault::UpstreamConnect,
        Fault::UpstreamProtocol,
        Fault::UpstreamTruncated,
        Fault::UpstreamCredential,
        Fault::ProviderStatus { status: 429 },
        Fault::ProviderStatus { status: 422 },
        Fault::ProviderStatus { status: 500 },
        Fault::ProviderRefused { words: "model\n\"x\" not found".to_owned() },
        provider(ProviderErrorKind::Other, 422),
        provider(ProviderErrorKind::Other, 500),
        Fault::AnswerTooLong,
        Fault::Repetition,
        Fault::SchemaMismatch { words: "at /n: expected an integer".to_owned() },
        Fault::Deadline,
        Fault::Stalled,
        Fault::Cancelled,
        Fault::Internal,
    ]
}

fn header(fault: &Fault, name: &str) -> Option<String> {
    fault.headers().into_iter().find(|(known, _)| *known == name).map(|(_, value)| value.into_owned())
}

#[test]
fn every_fault_has_its_status_its_types_and_its_code() {
    let got: Vec<_> = every()
        .iter()
        .map(|it| (it.outcome(), it.status(), it.openai_type(), it.code(), it.anthropic_type()))
        .collect();
    let (invalid, server) = ("invalid_request_error", "server_error");
    let (api, overloaded) = ("api_error", "overloaded_error");
    let expected = [
        ("bad_framing", 400, invalid, None, invalid),
        ("bad_json", 400, invalid, None, invalid),
        ("bad_query", 400, invalid, None, invalid),
        ("missing_field", 400, invalid, None, invalid),
        ("unauthorized", 401, invalid, Some("invalid_api_key"), "authentication_error"),
        ("token_revoked", 401, invalid, Some("invalid_api_key"), "authentication_error"),
        ("provider_auth", 401, invalid, Some("provider_authorization"), "authentication_error"),
        ("unknown_model", 404, invalid, Some("model_not_found"), "not_found_error"),
        ("context_too_long", 400, invalid, Some("context_length_exceeded"), invalid),
        ("unknown_path", 404, invalid, None, "not_found_error"),
        ("unknown_path", 404, invalid, None, "not_found_error"),
        ("method_not_allowed", 405, invalid, None, invalid),
        ("request_timeout", 408, invalid, None, invalid),
        ("body_too_large", 413, invalid, None, "request_too_large"),
        ("unsupported_encoding", 415, invalid, None, invalid),
        ("bad_coding", 400, invalid, None, invalid),
        ("body_too_large", 413, invalid, None, "request_too_large"),
        ("expectation_failed", 417, invalid, None, invalid),
        ("head_too_large", 431, invalid, None, invalid),
        ("queue_full", 429, "rate_limit_error", Some("rate_limit_exceeded"), "rate_limit_error"),
        ("queue_timeout", 503, server, Some("overloaded"), overloaded),
        ("unservable", 503, server, Some("overloaded"), api),
        ("busy", 503, server, Some("overloaded"), overloaded),
        ("no_node", 503, server, Some("overloaded"), overloaded),
        ("no_body_room", 503, server, Some("overloaded"), overloaded),
        ("draining", 503, server, Some("overloaded"), overloaded),
        ("node_lost", 502, server, Some("upstream_error"), api),
        ("upstream_connect", 502, server, Some("upstream_error"), api),
        ("upstream_protocol", 502, server, Some("upstream_error"), api),
        ("upstream_truncated", 502, server, Some("upstream_error"), api),
        ("upstream_credential", 502, server, Some("upstream_error"), api),
        ("provider_status", 429, "rate_limit_error", Some("rate_limit_exceeded"), "rate_limit_error"),
        ("provider_status", 400, invalid, None, invalid),
        ("provider_status", 502, server, Some("upstream_error"), api),
        ("provider_refused", 400, invalid, None, invalid),
        ("provider_refused", 422, invalid, None, invalid),
        ("provider_failed", 500, server, Some("upstream_error"), api),
        ("answer_too_long", 502, server, Some("upstream_error"), api),
        ("repetition", 502, server, Some("upstream_error"), api),
        ("schema_mismatch", 502, server, Some("upstream_error"), api),
        ("deadline", 504, server, Some("timeout"), "timeout_error"),
        ("stalled", 504, server, Some("timeout"), "timeout_error"),
        ("cancelled", 503, server, Some("cancelled"), overloaded),
        ("internal", 500, server, None, api),
    ];
    assert_eq!(got, expected);
}

#[test]
fn every_body_is_whole_in_the_language_of_its_surface_and_has_a_message_of_its_own() {
    for surface in Surface::ALL {
        let mut messages = HashSet::new();
        for fault in every() {
            let body = body(&fault, surface);
            let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
            let mut error = keys(&body["error"]);
            error.sort();
            if surface == Surface::Messages {
                assert_eq!((&body["type"], &body["request_id"]), (&json!("error"), &json!(REQUEST)));
                assert_eq!(error, ["message", "type"]);
            } else {
                assert_eq!(keys(&body), ["error"]);
                assert_eq!(error, ["code", "message", "param", "type"]);
                let code = &body["error"]["code"];
                assert!(code.is_string() || code.is_null(), "{fault:?}");
            }
            assert!(messages.insert(body["error"]["message"].as_str().unwrap().to_owned()), "{fault:?}");
        }
    }
}

/// The events of a stream: name and data.
fn events(stream: &str) -> Vec<(&str, &str)> {
    let events = stream.strip_suffix("\n\n").unwrap().split("\n\n");
    events
        .map(|event| match event.split_once('\n') {
            Some((name, data)) => {
                (name.strip_prefix("event: ").unwrap(), data.strip_prefix("data: ").unwrap())
            }
            None => ("", event.strip_prefix("data: ").unwrap()),
        })
        .collect()
}

// req: API-1
#[test]
fn a_stream_that_breaks_says_so_as_its_surface_wants_it() {
    for fault in every() {
        let chat = fault.stream_end(&broken(Surface::Chat));
        assert_eq!(events(&chat), [("", &*fault.body(Surface::Chat, REQUEST))], "{fault:?}");

        let messages = fault.stream_end(&broken(Surface::Messages));
        assert_eq!(events(&messages), [("error", &*fault.body(Surface::Messages, REQUEST))], "{fault:?}");

        let responses = fault.stream_end(&broken(Surface::Responses));
        let [("error", error), ("response.failed", failed), ("", "[DONE]")] = events(&responses)[..] else {
            panic!("{responses}");
        };
        let (error, failed): (Value, Value) =
            (serde_json::from_str(error).unwrap(), serde_json::from_str(failed).unwrap());
        assert_eq!((&error["type"], &error["sequence_number"]), (&json!("error"), &json!(7)));
        assert_eq!((&failed["type"], &failed["sequence_number"]), (&json!("response.failed"), &json!(8)));
        let response = &failed["response"];
        for key in [
            "id",
            "object",
            "created_at",
            "model",
            "output",
            "error",
            "incomplete_details",
            "instructions",
            "metadata",
            "parallel_tool_calls",
            "temperature",
            "top_p",
            "tool_choice",
            "tools",
        ] {
            assert!(response.get(key).is_some(), "{key}");
        }
        assert_eq!((&response["status"], &response["model"]), (&json!("failed"), &json!("m")));
        assert_eq!(response["error"]["code"], error["code"]);
        assert_eq!(response["error"]["message"], error["message"]);
    }
}

/// api.md section 0.1, rule 8: what is certain to fail again stops Codex, everything else lets it try.
#[test]
fn a_failed_response_has_the_code_that_its_client_acts_by() {
    for fault in every() {
        let stream = fault.stream_end(&broken(Surface::Responses));
        let stops = ["context_length_exceeded", "invalid_prompt"];
        let has_stopping = stops.iter().any(|code| stream.contains(&format!("\"code\":\"{code}\"")));
        let is_certain = header(&fault, "x-should-retry").is_some();
        assert_eq!(has_stopping, is_certain, "{fault:?}");
    }
    let code = |fault: Fault| fault.stream_end(&broken(Surface::Responses));
    assert!(code(Fault::ContextTooLong { tokens: 9, window: 5 }).contains("context_length_exceeded"));
    assert!(code(Fault::QueueFull).contains("rate_limit_exceeded"));
    assert!(code(Fault::UpstreamTruncated).contains("\"server_error\""));
}

#[test]
fn bodies_name_the_field_and_the_model() {
    let chat = |fault: Fault| body(&fault, Surface::Chat);
    assert_eq!(
        chat(Fault::UnknownModel { model: Some("gpt \"x\"\n".to_owned()) }),
        json!({"error": {
            "message": "The model `gpt \"x\"\n` does not exist. GET /v1/models lists the models.",
            "type": "invalid_request_error", "param": "model", "code": "model_not_found"
        }})
    );
    assert_eq!(chat(Fault::MissingField { param: "messages" })["error"]["param"], "messages");
    assert_eq!(
        chat(Fault::BadJson { detail: "line 1, column 2".into(), param: None })["error"]["param"],
        Value::Null
    );
    let long = chat(Fault::UnknownModel { model: Some("m".repeat(9000)) });
    assert!(long["error"]["message"].as_str().unwrap().chars().count() < 250);

    let window = Fault::ContextTooLong { tokens: 9, window: 5 };
    assert_eq!(body(&window, Surface::Chat)["error"]["param"], "messages");
    assert_eq!(body(&window, Surface::Responses)["error"]["param"], "input");
    let told = body(&window, Surface::Messages)["error"]["message"].to_string();
    assert!(told.starts_with("\"prompt is too long: about 9 tokens > 5 maximum"), "{told}");
}

#[test]
fn outcomes_are_a_closed_set() {
    let known: HashSet<_> = OUTCOMES.into_iter().collect();
    assert_eq!(known.len(), OUTCOMES.len());
    let no_fault = ["ok", CLIENT_GONE, CLIENT_STALLED];
    let used: HashSet<_> = every().iter().map(Fault::outcome).chain(no_fault).collect();
    assert_eq!(used, known);
}

// req: POL-5
#[test]
fn a_refusal_tells_whether_and_when_to_come_back() {
    for (refusal, status, retry_after, should_retry) in [
        (Refusal::QueueFull, 429, Some("2"), None),
        (Refusal::QueueTimeout, 503, Some("5"), None),
        (Refusal::Busy, 503, Some("1"), None),
        (Refusal::NoNode, 503, Some("5"), None),
        (Refusal::Unservable, 503, None, Some("false")),
        (Refusal::UnknownModel, 404, None, Some("false")),
    ] {
        let fault = Fault::from(refusal);
        assert_eq!(fault.status(), status, "{refusal:?}");
        assert_eq!(header(&fault, "retry-after").as_deref(), retry_after, "{refusal:?}");
        assert_eq!(header(&fault, "x-should-retry").as_deref(), should_retry, "{refusal:?}");
    }
    assert_eq!(Fault::from(ErrorKind::Stalled).status(), 504);
    assert_eq!(Fault::from(ErrorKind::Deadline).status(), 504);
}

#[test]
fn hints_are_within_a_minute_and_never_contradict() {
    for fault in every() {
        if let Some(seconds) = fault.retry_after() {
            assert!((1..=60).contains(&seconds), "{fault:?}");
            assert_eq!(header(&fault, "retry-after"), Some(seconds.to_string()));
            assert_eq!(header(&fault, "x-should-retry"), None, "{fault:?}");
        }
        let told = header(&fault, "x-should-retry").is_some();
        // Claude Code would try again in spite of it.
        assert!(!told || fault.anthropic_type() != "overloaded_error", "{fault:?}");
        assert!(
            !told
                || fault.status() < 500
                || matches!(fault.outcome(), "unservable" | "upstream_credential" | "answer_too_long")
        );
    }
    assert_eq!(header(&Fault::Unauthorized, "www-authenticate").as_deref(), Some("Bearer"));
    assert_eq!(
        header(&Fault::MethodNotAllowed { allow: "GET, HEAD" }, "allow").as_deref(),
        Some("GET, HEAD")
    );
    assert_eq!(header(&Fault::Internal, "www-authenticate"), None);
}

#[test]
fn every_reason_for_no_entry_is_one_answer() {
    let reasons = [AuthError::Missing, AuthError::Malformed, AuthError::Ambiguous, AuthError::Unknown];
    for surface in Surface::ALL {
        let bodies = reasons.map(|reason| Fault::from(reason).body(surface, REQUEST));
        assert_eq!(HashSet::from(bodies).len(), 1);
    }
}

#[test]
fn every_error_of_a_node_has_a_fault() {
    for (kind, outcome) in [
        (ErrorKind::Busy, "busy"),
        (ErrorKind::Cancelled, "cancelled"),
        (ErrorKind::Deadline, "deadline"),
        (ErrorKind::Connect, "upstream_connect"),
        (ErrorKind::UpstreamProtocol, "upstream_protocol"),
        (ErrorKind::UpstreamTruncated, "upstream_truncated"),
        (ErrorKind::InvalidRequest, "internal"),
        (ErrorKind::Credential, "upstream_credential"),
        (ErrorKind::Stalled, "stalled"),
        (ErrorKind::Internal, "internal"),
        (ErrorKind::CreditExceeded, "internal"),
        (ErrorKind::Unknown, "upstream_protocol"),
    ] {
        assert_eq!(Fault::from(kind).outcome(), outcome);
    }
}

fn provider(kind: ProviderErrorKind, status: u16) -> Fault {
    Fault::Provider { error: ProviderError { status, kind, words: String::new() }, retry_after: None }
}

// req: API-2
#[test]
fn what_a_provider_says_keeps_its_status_and_gets_the_words_that_clients_act_by() {
    use ProviderErrorKind::{ContextTooLong, ModelNotFound, Other, Quota};
    for (kind, status, openai, code, anthropic, should_retry) in [
        (Other, 400, "invalid_request_error", None, "invalid_request_error", Some("false")),
        (
            ContextTooLong,
            400,
            "invalid_request_error",
            Some("context_length_exceeded"),
            "invalid_request_error",
            Some("false"),
        ),
        (Other, 401, "invalid_request_error", Some("upstream_error"), "authentication_error", Some("false")),
        (Other, 403, "invalid_request_error", Some("upstream_error"), "permission_error", Some("false")),
        (
            ModelNotFound,
            404,
            "invalid_request_error",
            Some("model_not_found"),
            "not_found_error",
            Some("false"),
        ),
        (Other, 404, "invalid_request_error", None, "not_found_error", Some("false")),
        (Other, 409, "invalid_request_error", None, "invalid_request_error", None),
        (Other, 413, "invalid_request_error", None, "request_too_large", Some("false")),
        (Other, 429, "rate_limit_error", Some("rate_limit_exceeded"), "rate_limit_error", None),
        (Quota, 429, "insufficient_quota", Some("insufficient_quota"), "rate_limit_error", Some("false")),
        (Other, 500, "server_error", Some("upstream_error"), "api_error", None),
        (Other, 503, "server_error", Some("overloaded"), "overloaded_error", None),
        (Other, 504, "server_error", Some("timeout"), "timeout_error", None),
    ] {
        let fault = provider(kind, status);
        assert_eq!(fault.status(), status);
        assert_eq!(
            (fault.openai_type(), fault.code(), fault.anthropic_type()),
            (openai, code, anthropic),
            "{status}"
        );
        assert_eq!(header(&fault, "x-should-retry").as_deref(), should_retry, "{status}");
    }
    assert_eq!(provider(Other, 529).status(), 503, "only Anthropic has it");
    let error = ProviderError { status: 400, kind: ContextTooLong, words: "9 > 5".to_owned() };
    let long = Fault::Provider { error, retry_after: None };
    // Claude Code makes room by itself when it reads this beginning.
    assert_eq!(body(&long, Surface::Messages)["error"]["message"], "prompt is too long: 9 > 5");
    let error = ProviderError { status: 429, kind: Other, words: String::new() };
    let later = Fault::Provider { error, retry_after: Some(7) };
    assert_eq!(header(&later, "retry-after").as_deref(), Some("7"));
}
