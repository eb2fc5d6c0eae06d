//! Generated structs into validated messages: closed sets, inseparable pairs, required parts and defaults. Bounds are
//! checked afterwards, by `validate`.

use alloc::{boxed::Box, string::String, vec::Vec};

use crate::{
    identity::Name,
    limits::STALL_TIMEOUT_MS_DEFAULT,
    message::{
        BodyChunk, Cancel, Credential, CredentialLease, CredentialLeaseBinding, Credit, ErrorKind,
        ExecutionError, ExecutionFailure, Goodbye, Header, Message, NodeCommandRequest, NodeCommandResponse,
        NodeConfigRefreshRequest, NodeConfigRefreshResponse, NodeReadyRequest, NodeReadyResponse, Operation,
        RefreshOutcome, RefreshPiece, RegisterRequest, RegisterResponse, RunEvent, RunEventKind, RunRequest,
        StreamNo, TunnelFrame, TunnelFrameKind, TunnelRequest, Usage,
    },
    validate::{FieldError, status},
    wire::{
        self, envelope::Message as Member, node_config_refresh_response, provider_tunnel_frame, run_event,
    },
};

mod config;

/// The run that a message belongs to.
pub(super) struct Run {
    pub(super) stream: StreamNo,
    pub(super) starts_run: bool,
}

pub(super) fn run_of(member: &Member) -> Option<Run> {
    let (stream, starts_run) = match member {
        Member::RunRequest(message) => (message.stream, true),
        Member::ProviderTunnelRequest(message) => (message.stream, true),
        Member::RunEvent(message) => (message.stream, false),
        Member::ProviderTunnelFrame(message) => (message.stream, false),
        Member::RequestBodyChunk(message) => (message.stream, false),
        Member::CancelRequest(message) => (message.stream, false),
        Member::Credit(message) => (message.stream, false),
        _ => return None,
    };
    Some(Run { stream, starts_run })
}

pub(super) fn message(member: Member) -> Result<Message, FieldError> {
    Ok(match member {
        Member::RegisterRequest(wire) => {
            let wire::RegisterRequest { node_id, agent_version, token } = wire;
            Message::RegisterRequest(RegisterRequest { node_id: name(node_id)?, agent_version, token })
        }
        Member::RegisterResponse(wire) => Message::RegisterResponse(register_response(wire)?),
        Member::NodeReadyRequest(wire) => {
            Message::NodeReadyRequest(NodeReadyRequest { node_id: name(wire.node_id)? })
        }
        Member::NodeReadyResponse(wire::NodeReadyResponse { ready, reason }) => {
            Message::NodeReadyResponse(NodeReadyResponse { ready, reason })
        }
        Member::NodeConfigRefreshRequest(wire::NodeConfigRefreshRequest { request_id, config }) => {
            let config = config::payload(config)?;
            Message::NodeConfigRefreshRequest(NodeConfigRefreshRequest { request_id, config })
        }
        Member::NodeConfigRefreshResponse(wire) => {
            Message::NodeConfigRefreshResponse(refresh_response(wire)?)
        }
        Member::RunRequest(wire) => Message::RunRequest(Box::new(run_request(wire)?)),
        Member::RunEvent(wire) => Message::RunEvent(run_event(wire)?),
        Member::ProviderTunnelRequest(wire) => Message::TunnelRequest(Box::new(tunnel_request(wire)?)),
        Member::ProviderTunnelFrame(wire) => Message::TunnelFrame(tunnel_frame(wire)?),
        Member::RequestBodyChunk(wire::RequestBodyChunk { stream, data, last }) => {
            Message::BodyChunk(BodyChunk { stream, data, last })
        }
        Member::CancelRequest(wire::CancelRequest { stream, run_id }) => {
            Message::Cancel(Cancel { stream, run_id })
        }
        Member::NodeCommandRequest(wire) => Message::NodeCommandRequest(Box::new(command_request(wire)?)),
        Member::NodeCommandResponse(wire::NodeCommandResponse { request_id, ok, error, result }) => {
            let result = if ok { Ok(result) } else { Err(error) };
            Message::NodeCommandResponse(NodeCommandResponse { request_id, result })
        }
        Member::Credit(wire::Credit { stream, bytes }) => Message::Credit(Credit { stream, bytes }),
        Member::HeartbeatPing(wire::HeartbeatPing {}) => Message::HeartbeatPing,
        Member::HeartbeatPong(wire::HeartbeatPong {}) => Message::HeartbeatPong,
        Member::NodeDraining(wire::NodeDraining {}) => Message::NodeDraining,
        Member::Goodbye(wire::Goodbye { reason }) => Message::Goodbye(Goodbye { reason }),
    })
}

fn register_response(wire: wire::RegisterResponse) -> Result<RegisterResponse, FieldError> {
    let wire::RegisterResponse { accepted, reason, node_id, config } = wire;
    if !accepted {
        return Ok(RegisterResponse::Rejected { reason });
    }
    Ok(RegisterResponse::Accepted { node_id: name(node_id)?, config: config::payload(config)? })
}

fn refresh_response(wire: wire::NodeConfigRefreshResponse) -> Result<NodeConfigRefreshResponse, FieldError> {
    let wire::NodeConfigRefreshResponse { request_id, config_generation, outcome: number, reason, pieces } =
        wire;
    let pieces = pieces.into_iter().map(|piece| {
        let node_config_refresh_response::Piece { path, outcome: number, reason } = piece;
        Ok(RefreshPiece { path, outcome: outcome("pieces.outcome", number)?, reason })
    });
    Ok(NodeConfigRefreshResponse {
        request_id,
        config_generation,
        outcome: outcome("outcome", number)?,
        reason,
        pieces: pieces.collect::<Result<_, FieldError>>()?,
    })
}

fn outcome(field: &'static str, value: i32) -> Result<RefreshOutcome, FieldError> {
    use node_config_refresh_response::Outcome;
    match Outcome::try_from(value) {
        Ok(Outcome::Applied) => Ok(RefreshOutcome::Applied),
        Ok(Outcome::RestartRequired) => Ok(RefreshOutcome::RestartRequired),
        Ok(Outcome::Failed) => Ok(RefreshOutcome::Failed),
        Ok(Outcome::Unspecified) | Err(_) => Err(FieldError::UnknownValue { field, value }),
    }
}

fn run_request(wire: wire::RunRequest) -> Result<RunRequest, FieldError> {
    Ok(RunRequest {
        stream: wire.stream,
        run_id: wire.run_id,
        adapter: wire.adapter,
        target: wire.target,
        input: wire.input,
        input_bytes: wire.input_bytes,
        metadata: wire.metadata,
        session_id: wire.session_id,
        timeout_sec: wire.timeout_sec,
        response_stall_timeout_ms: stall_timeout(wire.response_stall_timeout_ms),
        window_bytes: wire.window_bytes,
        credential: credential(wire.credential_lease, wire.credential_binding)?,
    })
}

fn tunnel_request(wire: wire::ProviderTunnelRequest) -> Result<TunnelRequest, FieldError> {
    let operation = match wire.operation.as_str() {
        "" => None,
        text => Some(text.parse::<Operation>().map_err(|_| FieldError::InvalidOperation)?),
    };
    Ok(TunnelRequest {
        stream: wire.stream,
        run_id: wire.run_id,
        adapter: wire.adapter,
        target: wire.target,
        method: wire.method,
        path: wire.path,
        headers: headers(wire.headers),
        body: wire.body,
        body_bytes: wire.body_bytes,
        stream_response: wire.stream_response,
        timeout_sec: wire.timeout_sec,
        metadata: wire.metadata,
        operation,
        session_id: wire.session_id,
        response_stall_timeout_ms: stall_timeout(wire.response_stall_timeout_ms),
        window_bytes: wire.window_bytes,
        credential: credential(wire.credential_lease, wire.credential_binding)?,
        provider_auth: wire.provider_auth.map(header),
    })
}

fn run_event(wire: wire::RunEvent) -> Result<RunEvent, FieldError> {
    use run_event::Type;
    let kind = match Type::try_from(wire.r#type) {
        Ok(Type::Start) => RunEventKind::Start,
        Ok(Type::Delta) => RunEventKind::Delta { text: wire.delta, reasoning: wire.reasoning_delta },
        Ok(Type::Usage) => RunEventKind::Usage(usage(wire.usage.unwrap_or_default())),
        Ok(Type::Complete) => {
            RunEventKind::Complete { finish_reason: wire.finish_reason, usage: wire.usage.map(usage) }
        }
        Ok(Type::Error) => RunEventKind::Error(execution_error(wire.error_kind, wire.error, wire.failure)),
        Ok(Type::Cancelled) => RunEventKind::Cancelled,
        Ok(Type::Unspecified) | Err(_) => {
            return Err(FieldError::UnknownValue { field: "run_event.type", value: wire.r#type });
        }
    };
    Ok(RunEvent {
        stream: wire.stream,
        sequence: wire.sequence,
        kind,
        run_id: wire.run_id,
        metadata: wire.metadata,
    })
}

fn tunnel_frame(wire: wire::ProviderTunnelFrame) -> Result<TunnelFrame, FieldError> {
    use provider_tunnel_frame::Kind;
    let kind = match Kind::try_from(wire.kind) {
        Ok(Kind::ResponseStart) => {
            let (status, headers) = (status(wire.status)?, headers(wire.headers));
            TunnelFrameKind::ResponseStart { status, headers, until_close: wire.until_close }
        }
        Ok(Kind::Body) => TunnelFrameKind::Body(wire.body),
        Ok(Kind::Usage) => TunnelFrameKind::Usage(usage(wire.usage.unwrap_or_default())),
        Ok(Kind::End) => TunnelFrameKind::End,
        Ok(Kind::Error) => TunnelFrameKind::Error(execution_error(wire.error_kind, wire.error, wire.failure)),
        Ok(Kind::Unspecified) | Err(_) => {
            return Err(FieldError::UnknownValue { field: "provider_tunnel_frame.kind", value: wire.kind });
        }
    };
    Ok(TunnelFrame { stream: wire.stream, sequence: wire.sequence, kind })
}

fn execution_error(kind: i32, message: String, failure: Option<wire::ExecutionFailure>) -> ExecutionError {
    let failure = failure.map(|wire| {
        let wire::ExecutionFailure { failure_code, retryable, metadata } = wire;
        ExecutionFailure { failure_code, retryable, metadata }
    });
    ExecutionError { kind: error_kind(kind), message, failure }
}

fn error_kind(value: i32) -> ErrorKind {
    match wire::ErrorKind::try_from(value) {
        Ok(wire::ErrorKind::Busy) => ErrorKind::Busy,
        Ok(wire::ErrorKind::Cancelled) => ErrorKind::Cancelled,
        Ok(wire::ErrorKind::Deadline) => ErrorKind::Deadline,
        Ok(wire::ErrorKind::Connect) => ErrorKind::Connect,
        Ok(wire::ErrorKind::UpstreamProtocol) => ErrorKind::UpstreamProtocol,
        Ok(wire::ErrorKind::UpstreamTruncated) => ErrorKind::UpstreamTruncated,
        Ok(wire::ErrorKind::InvalidRequest) => ErrorKind::InvalidRequest,
        Ok(wire::ErrorKind::Credential) => ErrorKind::Credential,
        Ok(wire::ErrorKind::Stalled) => ErrorKind::Stalled,
        Ok(wire::ErrorKind::Internal) => ErrorKind::Internal,
        Ok(wire::ErrorKind::CreditExceeded) => ErrorKind::CreditExceeded,
        Ok(wire::ErrorKind::Unspecified) | Err(_) => ErrorKind::Unknown,
    }
}

fn command_request(wire: wire::NodeCommandRequest) -> Result<NodeCommandRequest, FieldError> {
    Ok(NodeCommandRequest {
        request_id: wire.request_id,
        command: wire.r#type,
        adapter: wire.adapter,
        target: wire.target,
        arguments: wire.arguments,
        credential: credential(wire.credential_lease, wire.credential_binding)?,
    })
}

/// Both halves or none (CRD-1).
fn credential(
    lease: Option<wire::CredentialLease>,
    binding: Option<wire::CredentialLeaseBinding>,
) -> Result<Option<Credential>, FieldError> {
    let (lease, binding) = match (lease, binding) {
        (None, None) => return Ok(None),
        (Some(lease), Some(binding)) => (lease, binding),
        (Some(_), None) | (None, Some(_)) => return Err(FieldError::HalfCredential),
    };
    Ok(Some(Credential {
        lease: CredentialLease {
            version: lease.version,
            issuer_key_id: lease.issuer_key_id,
            scope: lease.scope,
            encapsulated_key: lease.encapsulated_key,
            ciphertext: lease.ciphertext,
            signature: lease.signature,
        },
        binding: CredentialLeaseBinding {
            principal_ref: binding.principal_ref,
            slot: binding.slot,
            route: binding.route,
            profile: binding.profile,
            upstream_target: binding.upstream_target,
            node_id: binding.node_id,
            recipient: binding.recipient,
            credential_revision: binding.credential_revision,
            route_revision: binding.route_revision,
            projection_generation: binding.projection_generation,
        },
    }))
}

fn name(text: String) -> Result<Name, FieldError> {
    Name::try_from(text).map_err(|source| FieldError::Name { field: "node_id", source })
}

fn headers(wire: Vec<wire::Header>) -> Vec<Header> {
    wire.into_iter().map(header).collect()
}

fn header(wire::Header { name, value }: wire::Header) -> Header {
    Header { name, value }
}

fn usage(wire: wire::Usage) -> Usage {
    let wire::Usage { input_tokens, output_tokens, cached_input_tokens, reasoning_tokens } = wire;
    Usage { input_tokens, output_tokens, cached_input_tokens, reasoning_tokens }
}

/// 0 stands for the default (STL-1).
pub(super) const fn stall_timeout(milliseconds: i64) -> i64 {
    if milliseconds == 0 { STALL_TIMEOUT_MS_DEFAULT } else { milliseconds }
}
