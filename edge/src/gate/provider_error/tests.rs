use bytes::Bytes;

use super::*;
use crate::{
    gate::reading::{Reader, Sign},
    surface::Surface,
};

use ErrorClass::{Backpressure, Client, Credential, Empty, InBand, Malformed, Server, Transport};

fn header(name: &str, value: &'static str) -> Header {
    Header { name: name.to_owned(), value: Bytes::from_static(value.as_bytes()) }
}

/// Case 37: a prompt too long is the client's, whichever status an engine gives it. Case 38: one that is full has not failed.
// req: SEG-8, SEG-6
#[test]
fn a_status_has_a_class_and_words_change_that_of_a_500_alone() {
    for (status, body, expected) in [
        (400, r#"{"error":{"message":"bad x","type":"BadRequestError","code":400}}"#, Client),
        (402, r#"{"type":"error","error":{"type":"billing_error","message":"pay"}}"#, Client),
        (404, r#"{"error":{"message":"no such model","code":"model_not_found"}}"#, Client),
        (408, "", Client),
        (413, "", Client),
        (422, r#"{"detail":"bad"}"#, Client),
        (499, "", Client),
        (400, r#"{"error":{"message":"the queue is full"}}"#, Client),
        (401, r#"{"error":{"code":"invalid_api_key"}}"#, Credential),
        (403, "", Credential),
        (429, r#"{"error":{"type":"insufficient_quota"}}"#, Backpressure),
        (429, "", Backpressure),
        (503, "", Backpressure),
        // llama.cpp while it loads; Ollama; SGLang.
        (503, r#"{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}"#, Backpressure),
        (
            503,
            r#"{"error":"server busy, please try again.  maximum pending requests exceeded"}"#,
            Backpressure,
        ),
        (
            503,
            r#"{"object":"error","message":"The request queue is full.","type":"SERVICE_UNAVAILABLE","code":503}"#,
            Backpressure,
        ),
        // Anthropic.
        (529, r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#, Backpressure),
        (500, r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#, Backpressure),
        // vLLM.
        (500, r#"{"error":{"message":"queue full","type":"InternalServerError","code":500}}"#, Backpressure),
        (500, r#"{"error":{"message":"The request queue is full.","code":500}}"#, Backpressure),
        (
            500,
            r#"{"error":{"message":"This model's maximum context length is 4096 tokens. However, you requested 9000","type":"InternalServerError","code":500}}"#,
            Client,
        ),
        (
            500,
            r#"{"detail":"[address=0.0.0.0:43769, pid=1065] The decoder prompt (length 66501) is longer than the maximum model length of 65536."}"#,
            Client,
        ),
        (
            500,
            r#"{"error":{"message":"The prompt (total length 25938) is too long to fit into the model (context length 4096)."}}"#,
            Client,
        ),
        // SGLang, llama.cpp, Ollama, TGI.
        (
            500,
            r#"{"object":"error","message":"The input (9 tokens) is longer than the model's context length (8 tokens).","type":"InternalServerError","code":500}"#,
            Client,
        ),
        (
            500,
            r#"{"object":"error","message":"Input length (9) exceeds the maximum allowed length (8). Use a shorter input"}"#,
            Client,
        ),
        (
            500,
            r#"{"error":{"code":500,"message":"the request exceeds the available context size (9 > 8)","type":"server_error"}}"#,
            Client,
        ),
        (500, r#"{"error":{"code":500,"type":"exceed_context_size_error","message":"x"}}"#, Client),
        (
            500,
            r#"{"error":{"code":500,"message":"input is too large to process. increase the physical batch size","type":"server_error"}}"#,
            Client,
        ),
        (500, r#"{"error":"the input length exceeds the context length"}"#, Client),
        (
            500,
            r#"{"error":"Input validation error: `inputs` tokens + `max_new_tokens` must be <= 2048"}"#,
            Client,
        ),
        // A proxy that makes a 500 of everything.
        (500, r#"{"error":{"message":"x","type":"invalid_request_error","code":"invalid_prompt"}}"#, Client),
        (500, r#"{"error":{"message":"x","code":"429"}}"#, Backpressure),
        (500, r#"{"error":{"message":"x","type":"server_error"}}"#, Server),
        (500, r#"{"error":{"message":"x","type":"authentication_error"}}"#, Server),
        (500, r#"{"object":"error","message":"x","type":"BAD_REQUEST","code":400}"#, Server),
        (500, "Internal Server Error", Server),
        (500, "maximum context length", Server),
        (500, "", Server),
        (501, r#"{"error":{"code":501,"type":"not_supported_error","message":"x"}}"#, Server),
        (502, "<html>", Server),
        (504, "", Server),
        (599, "", Server),
        // A success that is none.
        (200, "", Empty),
        (200, " \r\n", Empty),
        (204, "", Empty),
        (200, r#"{"error":{"message":"x","code":500}}"#, Server),
        (200, r#"{"error":"x"}"#, InBand),
        (200, r#"{"type":"error","error":{"type":"overloaded_error"}}"#, Backpressure),
        (200, r#"{"choices":"#, Malformed),
        (200, "<html>", Malformed),
        (302, "", Malformed),
        (101, "", Malformed),
    ] {
        assert_eq!(of_status(status, &[], body.as_bytes()), expected, "{status} {body}");
    }
}

// req: SEG-8
#[test]
fn a_body_that_cannot_be_read_leaves_the_status() {
    let body = br#"{"error":{"message":"queue full"}}"#;
    assert_eq!(of_status(500, &[header("retry-after", "5")], body), Backpressure);
    assert_eq!(of_status(500, &[header("Content-Encoding", "identity")], body), Backpressure);
    assert_eq!(of_status(500, &[header("content-encoding", "gzip")], body), Server);
    let long = format!(r#"{{"error":{{"message":"queue full{}"}}}}"#, " ".repeat(BODY_BYTES_MAX));
    assert_eq!(of_status(500, &[], long.as_bytes()), Server);
    assert_eq!(of_status(500, &[], b"{\"error\":\"queue full\xff\"}"), Server);
    // When to come back says nothing of whose fault it is.
    assert_eq!(of_status(500, &[header("retry-after", "120")], b""), Server);
    assert_eq!(of_status(503, &[header("retry-after", "1")], b""), Backpressure);
}

/// What the only event of a stream says.
fn said_by(surface: Surface, data: &str) -> Said {
    let (mut told, mut text) = (Vec::new(), Vec::new());
    let event = format!("data: {data}\n\n");
    Reader::new(surface, false).push(event.as_bytes(), &mut told, &mut text).unwrap();
    match told.pop().map(|told| told.sign) {
        Some(Sign::Failure(said)) => *said,
        other => panic!("{data}: {other:?}"),
    }
}

/// Case 34: an error that a stream begins with has the class of its own words; where they say nothing it may be tried elsewhere once.
// req: SEG-8, SEG-6
#[test]
fn an_error_in_a_stream_has_the_class_of_its_words() {
    for (data, expected) in [
        // OpenAI.
        (r#"{"error":{"message":"x","type":"server_error","code":null}}"#, Server),
        (r#"{"error":{"message":"x","type":"invalid_request_error","code":null}}"#, Client),
        (
            r#"{"error":{"message":"x","type":"invalid_request_error","code":"context_length_exceeded"}}"#,
            Client,
        ),
        (r#"{"error":{"message":"x","type":"invalid_request_error","code":"invalid_api_key"}}"#, Credential),
        (r#"{"error":{"message":"x","type":"requests","code":"rate_limit_exceeded"}}"#, Backpressure),
        (
            r#"{"error":{"message":"x","type":"insufficient_quota","code":"insufficient_quota"}}"#,
            Backpressure,
        ),
        (r#"{"error":{"message":"x","code":"content_filter"}}"#, Client),
        // vLLM.
        (r#"{"error":{"message":"x","type":"BadRequestError","param":null,"code":400}}"#, Client),
        (r#"{"error":{"message":"x","type":"BadRequestError"}}"#, Client),
        (r#"{"error":{"message":"x","code":400}}"#, Client),
        (
            r#"{"error":{"message":"EngineCore encountered an issue","type":"InternalServerError","code":500}}"#,
            Server,
        ),
        (r#"{"error":{"message":"x","type":"InternalServerError"}}"#, Server),
        (r#"{"error":{"message":"x","type":"NotFoundError","code":404}}"#, Client),
        // SGLang: its scheduler gave up what its server had accepted.
        (
            r#"{"object":"error","message":"Invalid request: Disaggregated request received without bootstrap room id.","type":"BAD_REQUEST","param":null,"code":400}"#,
            InBand,
        ),
        (
            r#"{"object":"error","message":"The input (9 tokens) is longer than the model's context length (8 tokens).","type":"BAD_REQUEST","code":400}"#,
            Client,
        ),
        (
            r#"{"error":{"message":"The request is aborted by a higher priority request."},"code":503}"#,
            Backpressure,
        ),
        (r#"{"error":{"message":"x","type":"INTERNAL_SERVER_ERROR","code":500}}"#, Server),
        (r#"{"error":{"message":"x","type":"SERVICE_UNAVAILABLE"}}"#, Backpressure),
        // llama.cpp, Ollama, LM Studio.
        (
            r#"{"error":{"code":500,"message":"the request exceeds the available context size","type":"server_error"}}"#,
            Client,
        ),
        (r#"{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}"#, Backpressure),
        (r#"{"error":"model runner has unexpectedly stopped"}"#, InBand),
        (r#"{"error":"server busy, please try again.  maximum pending requests exceeded"}"#, Backpressure),
        (r#"{"error":{"message":"The model has crashed without additional information."}}"#, InBand),
        // OpenRouter, Google.
        (r#"{"error":{"code":502,"message":"lost"}}"#, Server),
        (r#"{"error":{"code":"server_error","message":"Provider disconnected"}}"#, Server),
        (r#"{"error":{"status":"RESOURCE_EXHAUSTED","message":"x"}}"#, Backpressure),
        (r#"{"error":{"status":"INVALID_ARGUMENT","message":"x"}}"#, Client),
        (r#"{"error":{"status":"UNAUTHENTICATED","message":"x"}}"#, Credential),
        // Nothing known.
        (r#"{"error":{"message":"x"}}"#, InBand),
        (r#"{"error":{"message":"x","type":"Strange","code":"E7"}}"#, InBand),
        (r#"{"error":{"message":"x","code":7}}"#, InBand),
        (r#"{"error":true}"#, InBand),
        (r#"{"choices":[{"delta":{},"finish_reason":"abort"}]}"#, InBand),
    ] {
        assert_eq!(of_said(&said_by(Surface::Chat, data)), expected, "{data}");
    }
    for (kind, expected) in [
        ("overloaded_error", Backpressure),
        ("rate_limit_error", Backpressure),
        ("api_error", Server),
        ("timeout_error", Server),
        ("invalid_request_error", Client),
        ("not_found_error", Client),
        ("request_too_large", Client),
        ("billing_error", Client),
        ("authentication_error", Credential),
        ("permission_error", Credential),
        // vLLM copies its own.
        ("BadRequestError", Client),
        ("InternalServerError", Server),
        ("new_error", InBand),
    ] {
        let data = format!(r#"{{"type":"error","error":{{"type":"{kind}","message":"x"}}}}"#);
        assert_eq!(of_said(&said_by(Surface::Messages, &data)), expected, "{kind}");
    }
    for (code, expected) in [
        ("server_error", Server),
        ("rate_limit_exceeded", Backpressure),
        ("server_is_overloaded", Backpressure),
        ("insufficient_quota", Backpressure),
        ("context_length_exceeded", Client),
        ("invalid_prompt", Client),
        ("invalid_image", Client),
        ("vector_store_timeout", Server),
        ("new_code", InBand),
    ] {
        let data = format!(
            r#"{{"type":"response.failed","response":{{"error":{{"code":"{code}","message":"x"}}}}}}"#
        );
        assert_eq!(of_said(&said_by(Surface::Responses, &data)), expected, "{code}");
    }
}

// req: SEG-8, SEG-6
#[test]
fn what_the_node_met_is_of_a_class_only_where_the_provider_is_to_blame() {
    for (kind, expected) in [
        (ErrorKind::Connect, Some(Transport)),
        (ErrorKind::UpstreamTruncated, Some(Transport)),
        (ErrorKind::UpstreamProtocol, Some(Malformed)),
        (ErrorKind::Credential, Some(Credential)),
        (ErrorKind::Busy, None),
        (ErrorKind::Cancelled, None),
        (ErrorKind::Deadline, None),
        (ErrorKind::InvalidRequest, None),
        (ErrorKind::Stalled, None),
        (ErrorKind::Internal, None),
        (ErrorKind::CreditExceeded, None),
        (ErrorKind::Unknown, None),
    ] {
        assert_eq!(of_kind(kind), expected, "{kind:?}");
    }
}
