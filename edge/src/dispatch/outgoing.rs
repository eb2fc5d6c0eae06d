//! What goes to a Node: the request of a run or of a tunnel, made of the client's. No I/O.

use std::collections::BTreeMap;

use bytes::Bytes;
use control::effect::Grant;
use dataplane::http::body::Body;
use proto::{
    limits::SESSION_ID_BYTES_MAX,
    message::{Header, Operation, RunRequest, TunnelRequest},
};

use super::session::Plan;
use crate::{
    config::{GenerationPolicy, Settings, catalog::Driver},
    openai::policy,
    surface::Surface,
};

/// Names what belongs together for the client, as opencode and others send it. Passed on, and never looked at (RUN-5).
const SESSION_HEADER: &str = "x-session-id";
/// What a client has tried out at Anthropic's.
const BETA_HEADER: &str = "anthropic-beta";

/// The request of a run.
pub(super) fn run(plan: &Plan, grant: &Grant, metadata: BTreeMap<String, String>) -> RunRequest {
    RunRequest {
        stream: 0,
        run_id: plan.request_id.to_string(),
        // Never the client's words: what runs is what control granted (RUN-2, RUN-7).
        adapter: grant.adapter.to_string(),
        target: grant.target.to_string(),
        input: Bytes::new(),
        input_bytes: 0,
        metadata,
        session_id: session_id(&plan.headers),
        timeout_sec: whole_seconds(grant),
        response_stall_timeout_ms: stall_timeout_ms(grant),
        window_bytes: 0,
        credential: None,
    }
}

/// The request of a tunnel that carries what the client sent.
pub(super) fn raw_tunnel(plan: &Plan, grant: &Grant, settings: &Settings) -> TunnelRequest {
    tunnel(plan, grant, plan.surface.operation(), raw_headers(plan, grant, settings))
}

/// The request of a tunnel that carries a chat completion of ours.
pub(super) fn chat_tunnel(plan: &Plan, grant: &Grant) -> TunnelRequest {
    tunnel(plan, grant, Operation::ChatCompletions, chat_headers(&plan.headers))
}

/// The client's body as the chosen provider gets it.
pub(super) fn raw_body(plan: &Plan, grant: &Grant, settings: &Settings) -> Body {
    let policy = &plan.generation;
    let fields = if *policy == GenerationPolicy::default() {
        None
    } else {
        settings.provider(&grant.provider).map(|(_, provider)| provider.generation_fields)
    };
    let fields = plan.surface.generation_fields(fields.unwrap_or_default());
    policy::body_for(&plan.scan, &plan.body, &grant.target, policy, &fields, hides_usage(plan, settings))
}

/// Whether a stream is asked for its usage by the Edge, which keeps it from a client that has not (case 72).
pub(super) fn hides_usage(plan: &Plan, settings: &Settings) -> bool {
    settings.openai.usage_require && plan.surface == Surface::Chat && policy::would_hide_usage(&plan.scan)
}

fn tunnel(plan: &Plan, grant: &Grant, operation: Operation, headers: Vec<Header>) -> TunnelRequest {
    TunnelRequest {
        stream: 0,
        run_id: plan.request_id.to_string(),
        adapter: grant.adapter.to_string(),
        target: grant.target.to_string(),
        method: String::new(),
        path: String::new(),
        headers,
        body: Bytes::new(),
        body_bytes: 0,
        stream_response: plan.scan.stream,
        timeout_sec: whole_seconds(grant),
        metadata: BTreeMap::new(),
        operation: Some(operation),
        session_id: String::new(),
        response_stall_timeout_ms: stall_timeout_ms(grant),
        window_bytes: 0,
        credential: None,
        provider_auth: plan.provider_auth.clone(),
    }
}

/// The headers as the chosen provider gets them. Betas mean nothing elsewhere, and servers that know the header refuse words that
/// they do not know.
fn raw_headers(plan: &Plan, grant: &Grant, settings: &Settings) -> Vec<Header> {
    let mut headers = plan.headers.clone();
    let has_betas = headers.iter().any(|header| header.name == BETA_HEADER);
    if has_betas && settings.driver(grant) != Some(Driver::AnthropicMessages) {
        headers.retain(|header| header.name != BETA_HEADER);
    }
    headers
}

/// The headers of a chat completion: what the client says of a body and of an API that are not the ones that are sent stays here.
fn chat_headers(headers: &[Header]) -> Vec<Header> {
    let is_foreign = |name: &str| {
        matches!(name, "content-type" | "accept" | "openai-beta") || name.starts_with("anthropic-")
    };
    let json = Header { name: "content-type".to_owned(), value: Bytes::from_static(b"application/json") };
    headers.iter().filter(|header| !is_foreign(&header.name)).cloned().chain([json]).collect()
}

fn session_id(headers: &[Header]) -> String {
    let named = headers.iter().find(|header| header.name == SESSION_HEADER);
    let text = named.and_then(|header| std::str::from_utf8(&header.value).ok());
    text.filter(|text| text.len() <= SESSION_ID_BYTES_MAX).unwrap_or_default().to_owned()
}

/// The hard deadline, rounded up (TUN-8).
fn whole_seconds(grant: &Grant) -> u32 {
    let duration = grant.request_timeout;
    let seconds = duration.as_secs() + u64::from(duration.subsec_nanos() > 0);
    u32::try_from(seconds).unwrap_or(u32::MAX)
}

fn stall_timeout_ms(grant: &Grant) -> i64 {
    i64::try_from(grant.stall_timeout.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    // req: TUN-6
    #[test]
    fn a_chat_completion_of_ours_has_no_header_of_another_api() {
        let header = |(name, value): (&str, &str)| Header {
            name: name.to_owned(),
            value: Bytes::copy_from_slice(value.as_bytes()),
        };
        let headers: Vec<_> = [
            ("content-type", "application/x-www-form-urlencoded"),
            ("accept", "application/json"),
            ("anthropic-version", "2026-10-21"),
            ("anthropic-beta", "x"),
            ("openai-beta", "responses=v1"),
            ("user-agent", "claude-cli"),
        ]
        .map(header)
        .into();
        let sent = [("user-agent", "claude-cli"), ("content-type", "application/json")].map(header);
        assert_eq!(chat_headers(&headers), sent);
    }
}
