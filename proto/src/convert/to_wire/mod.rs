//! Validated messages into generated structs.

use alloc::{
    string::{String, ToString as _},
    vec::Vec,
};

use crate::{
    limits::{GOODBYE_REASON_BYTES_MAX, TEXT_BYTES_MAX},
    message::{
        Credential, ErrorKind, ExecutionError, Header, Message, NodeCommandRequest, NodeCommandResponse,
        NodeConfigRefreshResponse, RefreshOutcome, RegisterResponse, RunEvent, RunEventKind, RunRequest,
        TunnelFrame, TunnelFrameKind, TunnelRequest, Usage,
    },
    wire::{
        self, envelope::Message as Member, node_config_refresh_response,
        node_config_refresh_response::Outcome, provider_tunnel_frame::Kind, run_event::Type,
    },
};

mod config;

pub(super) fn envelope(message: &Message) -> wire::Envelope {
    wire::Envelope { message: member(message) }
}

fn member(message: &Message) -> Option<Member> {
    Some(match message {
        Message::RegisterRequest(message) => Member::RegisterRequest(wire::RegisterRequest {
            node_id: message.node_id.to_string(),
            agent_version: message.agent_version.clone(),
            token: message.token.clone(),
        }),
        Message::RegisterResponse(message) => Member::RegisterResponse(register_response(message)),
        Message::NodeReadyRequest(message) => {
            Member::NodeReadyRequest(wire::NodeReadyRequest { node_id: message.node_id.to_string() })
        }
        Message::NodeReadyResponse(message) => Member::NodeReadyResponse(wire::NodeReadyResponse {
            ready: message.ready,
            reason: cut(&message.reason, TEXT_BYTES_MAX),
        }),
        Message::NodeDraining => Member::NodeDraining(wire::NodeDraining {}),
        Message::NodeConfigRefreshRequest(message) => {
            Member::NodeConfigRefreshRequest(wire::NodeConfigRefreshRequest {
                request_id: message.request_id,
                config: Some(config::payload(&message.config)),
            })
        }
        Message::NodeConfigRefreshResponse(message) => {
            Member::NodeConfigRefreshResponse(refresh_response(message))
        }
        Message::RunRequest(message) => Member::RunRequest(run_request(message)),
        Message::RunEvent(message) => Member::RunEvent(run_event(message)),
        Message::TunnelRequest(message) => Member::ProviderTunnelRequest(tunnel_request(message)),
        Message::TunnelFrame(message) => Member::ProviderTunnelFrame(tunnel_frame(message)),
        Message::BodyChunk(message) => Member::RequestBodyChunk(wire::RequestBodyChunk {
            stream: message.stream,
            data: message.data.clone(),
            last: message.last,
        }),
        Message::Cancel(message) => Member::CancelRequest(wire::CancelRequest {
            stream: message.stream,
            run_id: message.run_id.clone(),
        }),
        Message::NodeCommandRequest(message) => Member::NodeCommandRequest(command_request(message)),
        Message::NodeCommandResponse(message) => Member::NodeCommandResponse(command_response(message)),
        Message::Credit(message) => {
            Member::Credit(wire::Credit { stream: message.stream, bytes: message.bytes })
        }
        Message::HeartbeatPing => Member::HeartbeatPing(wire::HeartbeatPing {}),
        Message::HeartbeatPong => Member::HeartbeatPong(wire::HeartbeatPong {}),
        Message::Goodbye(message) => {
            Member::Goodbye(wire::Goodbye { reason: cut(&message.reason, GOODBYE_REASON_BYTES_MAX) })
        }
        Message::Unknown => return None,
    })
}

fn register_response(message: &RegisterResponse) -> wire::RegisterResponse {
    match message {
        RegisterResponse::Accepted { node_id, config } => wire::RegisterResponse {
            accepted: true,
            node_id: node_id.to_string(),
            config: Some(config::payload(config)),
            ..Default::default()
        },
        RegisterResponse::Rejected { reason } => {
            wire::RegisterResponse { reason: cut(reason, TEXT_BYTES_MAX), ..Default::default() }
        }
    }
}

fn refresh_response(message: &NodeConfigRefreshResponse) -> wire::NodeConfigRefreshResponse {
    let pieces = message.pieces.iter().map(|piece| node_config_refresh_response::Piece {
        path: piece.path.clone(),
        outcome: outcome(piece.outcome).into(),
        reason: cut(&piece.reason, TEXT_BYTES_MAX),
    });
    wire::NodeConfigRefreshResponse {
        request_id: message.request_id,
        config_generation: message.config_generation,
        outcome: outcome(message.outcome).into(),
        reason: cut(&message.reason, TEXT_BYTES_MAX),
        pieces: pieces.collect(),
    }
}

const fn outcome(outcome: RefreshOutcome) -> Outcome {
    match outcome {
        RefreshOutcome::Applied => Outcome::Applied,
        RefreshOutcome::RestartRequired => Outcome::RestartRequired,
        RefreshOutcome::Failed => Outcome::Failed,
    }
}

fn run_request(message: &RunRequest) -> wire::RunRequest {
    let (credential_lease, credential_binding) = credential(message.credential.as_ref());
    wire::RunRequest {
        stream: message.stream,
        run_id: message.run_id.clone(),
        adapter: message.adapter.clone(),
        target: message.target.clone(),
        input: message.input.clone(),
        input_bytes: message.input_bytes,
        metadata: message.metadata.clone(),
        session_id: message.session_id.clone(),
        timeout_sec: message.timeout_sec,
        response_stall_timeout_ms: message.response_stall_timeout_ms,
        window_bytes: message.window_bytes,
        credential_lease,
        credential_binding,
    }
}

fn tunnel_request(message: &TunnelRequest) -> wire::ProviderTunnelRequest {
    let (credential_lease, credential_binding) = credential(message.credential.as_ref());
    wire::ProviderTunnelRequest {
        stream: message.stream,
        run_id: message.run_id.clone(),
        adapter: message.adapter.clone(),
        target: message.target.clone(),
        method: message.method.clone(),
        path: message.path.clone(),
        headers: headers(&message.headers),
        body: message.body.clone(),
        body_bytes: message.body_bytes,
        stream_response: message.stream_response,
        timeout_sec: message.timeout_sec,
        metadata: message.metadata.clone(),
        operation: message.operation.map(|operation| operation.to_string()).unwrap_or_default(),
        session_id: message.session_id.clone(),
        response_stall_timeout_ms: message.response_stall_timeout_ms,
        credential_lease,
        credential_binding,
        window_bytes: message.window_bytes,
        provider_auth: message.provider_auth.as_ref().map(header),
    }
}

fn run_event(message: &RunEvent) -> wire::RunEvent {
    let mut wire = wire::RunEvent {
        stream: message.stream,
        sequence: message.sequence,
        run_id: message.run_id.clone(),
        metadata: message.metadata.clone(),
        ..Default::default()
    };
    let kind = match &message.kind {
        RunEventKind::Start => Type::Start,
        RunEventKind::Delta { text, reasoning } => {
            wire.delta.clone_from(text);
            wire.reasoning_delta.clone_from(reasoning);
            Type::Delta
        }
        RunEventKind::Usage(counts) => {
            wire.usage = Some(usage(*counts));
            Type::Usage
        }
        RunEventKind::Complete { finish_reason, usage: counts } => {
            wire.finish_reason.clone_from(finish_reason);
            wire.usage = counts.map(usage);
            Type::Complete
        }
        RunEventKind::Error(error) => {
            (wire.error_kind, wire.error, wire.failure) = execution_error(error);
            Type::Error
        }
        RunEventKind::Cancelled => Type::Cancelled,
    };
    wire.set_type(kind);
    wire
}

fn tunnel_frame(message: &TunnelFrame) -> wire::ProviderTunnelFrame {
    let mut wire = wire::ProviderTunnelFrame {
        stream: message.stream,
        sequence: message.sequence,
        ..Default::default()
    };
    let kind = match &message.kind {
        TunnelFrameKind::ResponseStart { status, headers: fields, until_close } => {
            wire.until_close = *until_close;
            wire.status = u32::from(*status);
            wire.headers = headers(fields);
            Kind::ResponseStart
        }
        TunnelFrameKind::Body(data) => {
            wire.body = data.clone();
            Kind::Body
        }
        TunnelFrameKind::Usage(counts) => {
            wire.usage = Some(usage(*counts));
            Kind::Usage
        }
        TunnelFrameKind::End => Kind::End,
        TunnelFrameKind::Error(error) => {
            (wire.error_kind, wire.error, wire.failure) = execution_error(error);
            Kind::Error
        }
    };
    wire.set_kind(kind);
    wire
}

fn execution_error(error: &ExecutionError) -> (i32, String, Option<wire::ExecutionFailure>) {
    let failure = error.failure.as_ref().map(|failure| wire::ExecutionFailure {
        failure_code: failure.failure_code.clone(),
        retryable: failure.retryable,
        metadata: failure.metadata.clone(),
    });
    (error_kind(error.kind).into(), cut(&error.message, TEXT_BYTES_MAX), failure)
}

const fn error_kind(kind: ErrorKind) -> wire::ErrorKind {
    match kind {
        ErrorKind::Busy => wire::ErrorKind::Busy,
        ErrorKind::Cancelled => wire::ErrorKind::Cancelled,
        ErrorKind::Deadline => wire::ErrorKind::Deadline,
        ErrorKind::Connect => wire::ErrorKind::Connect,
        ErrorKind::UpstreamProtocol => wire::ErrorKind::UpstreamProtocol,
        ErrorKind::UpstreamTruncated => wire::ErrorKind::UpstreamTruncated,
        ErrorKind::InvalidRequest => wire::ErrorKind::InvalidRequest,
        ErrorKind::Credential => wire::ErrorKind::Credential,
        ErrorKind::Stalled => wire::ErrorKind::Stalled,
        ErrorKind::Internal => wire::ErrorKind::Internal,
        ErrorKind::CreditExceeded => wire::ErrorKind::CreditExceeded,
        ErrorKind::Unknown => wire::ErrorKind::Unspecified,
    }
}

fn command_request(message: &NodeCommandRequest) -> wire::NodeCommandRequest {
    let (credential_lease, credential_binding) = credential(message.credential.as_ref());
    wire::NodeCommandRequest {
        request_id: message.request_id,
        r#type: message.command.clone(),
        adapter: message.adapter.clone(),
        target: message.target.clone(),
        arguments: message.arguments.clone(),
        credential_lease,
        credential_binding,
    }
}

fn command_response(message: &NodeCommandResponse) -> wire::NodeCommandResponse {
    let mut wire = wire::NodeCommandResponse { request_id: message.request_id, ..Default::default() };
    match &message.result {
        Ok(pairs) => {
            wire.ok = true;
            wire.result.clone_from(pairs);
        }
        Err(error) => wire.error = cut(error, TEXT_BYTES_MAX),
    }
    wire
}

fn credential(
    credential: Option<&Credential>,
) -> (Option<wire::CredentialLease>, Option<wire::CredentialLeaseBinding>) {
    let Some(Credential { lease, binding }) = credential else { return (None, None) };
    let lease = wire::CredentialLease {
        version: lease.version,
        issuer_key_id: lease.issuer_key_id.clone(),
        scope: lease.scope.clone(),
        encapsulated_key: lease.encapsulated_key.clone(),
        ciphertext: lease.ciphertext.clone(),
        signature: lease.signature.clone(),
    };
    let binding = wire::CredentialLeaseBinding {
        principal_ref: binding.principal_ref.clone(),
        slot: binding.slot.clone(),
        route: binding.route.clone(),
        profile: binding.profile.clone(),
        upstream_target: binding.upstream_target.clone(),
        node_id: binding.node_id.clone(),
        recipient: binding.recipient.clone(),
        credential_revision: binding.credential_revision,
        route_revision: binding.route_revision,
        projection_generation: binding.projection_generation,
    };
    (Some(lease), Some(binding))
}

fn headers(fields: &[Header]) -> Vec<wire::Header> {
    fields.iter().map(header).collect()
}

fn header(field: &Header) -> wire::Header {
    wire::Header { name: field.name.clone(), value: field.value.clone() }
}

const fn usage(usage: Usage) -> wire::Usage {
    let Usage { input_tokens, output_tokens, cached_input_tokens, reasoning_tokens } = usage;
    wire::Usage { input_tokens, output_tokens, cached_input_tokens, reasoning_tokens }
}

/// At most `bytes_max` bytes of a text for people. A long explanation must not cost its connection.
fn cut(text: &str, bytes_max: usize) -> String {
    String::from(&text[..text.floor_char_boundary(bytes_max)])
}
