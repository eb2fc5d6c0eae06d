//! Checks of what a field may hold, the same for a message that arrives and for one that is about to be sent.
//!
//! Decoding ends with [`Message::validate`]. A sender that builds a message from what a client gave calls
//! [`RunRequest::validate`] or [`TunnelRequest::validate`] first, so that it can refuse that one request itself.

use alloc::{collections::BTreeMap, string::String};

use thiserror::Error;

use crate::{
    header::HeaderError,
    identity::NameError,
    limits::*,
    message::{
        BodyChunk, Credential, CredentialLease, CredentialLeaseBinding, ExecutionError, Header, Message,
        NodeCommandRequest, NodeCommandResponse, NodeConfigRefreshResponse, RegisterRequest,
        RegisterResponse, RunEvent, RunEventKind, RunRequest, StreamNo, TunnelFrame, TunnelFrameKind,
        TunnelRequest,
    },
    run_input::TOOL_CALLS_KEY,
};

mod config;

/// What a field holds and must not. `field` is its name in `schema/runtime.proto`.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FieldError {
    /// A field that has to be there is not.
    #[error("{field} is missing")]
    Missing {
        /// Which.
        field: &'static str,
    },
    /// A text or byte string, or several together, over their bound.
    #[error("{field} has {len} bytes, at most {max} are allowed")]
    TooLong {
        /// Which.
        field: &'static str,
        /// Its bytes.
        len: usize,
        /// The bound.
        max: usize,
    },
    /// More entries than the bound.
    #[error("{field} has more than {max} entries")]
    TooMany {
        /// Which.
        field: &'static str,
        /// The bound.
        max: usize,
    },
    /// Two entries with the same identity.
    #[error("{field} is not unique")]
    Duplicate {
        /// Which.
        field: &'static str,
    },
    /// No workload name.
    #[error("{field} is no workload name")]
    Name {
        /// Which.
        field: &'static str,
        /// Why.
        source: NameError,
    },
    /// No header field.
    #[error("a header field is invalid")]
    Header(#[from] HeaderError),
    /// A number outside a closed set that has no place for unknown values.
    #[error("{field} has the unknown value {value}")]
    UnknownValue {
        /// Which.
        field: &'static str,
        /// The number on the wire.
        value: i32,
    },
    /// `operation` is neither empty nor known.
    #[error("operation is unknown")]
    InvalidOperation,
    /// The settings of an adapter are missing or not those of its type.
    #[error("the settings of an adapter do not fit its type")]
    AdapterSettings,
    /// Negative or over [`TIMEOUT_MS_MAX`] (STL-1).
    #[error("{field} is {value}, from 0 to {TIMEOUT_MS_MAX} is allowed")]
    Timeout {
        /// Which.
        field: &'static str,
        /// What it holds.
        value: i64,
    },
    /// A lease without its binding or the other way round (CRD-1).
    #[error("a credential lease and its binding come together")]
    HalfCredential,
    /// Stream numbers begin at 1 (WIR-10).
    #[error("stream is 0")]
    ZeroStream,
    /// Credit of nothing.
    #[error("credit of 0 bytes")]
    ZeroCredit,
    /// Data outside 1..=[`CHUNK_BYTES_MAX`] bytes.
    #[error("{field} has {len} bytes, from 1 to {CHUNK_BYTES_MAX} are allowed")]
    DataSize {
        /// Which.
        field: &'static str,
        /// Its bytes.
        len: usize,
    },
    /// No HTTP status code (RFC 9110 section 15): outside 100..=999.
    #[error("status is {0}, from 100 to 999 is allowed")]
    Status(u32),
    /// The part of a body inside its request is longer than [`INLINE_BODY_MAX`] or than the announced whole.
    #[error("the request holds {inline} of {total} body bytes, at most {INLINE_BODY_MAX} travel inline")]
    InlineBody {
        /// Bytes inside the request.
        inline: usize,
        /// Announced whole.
        total: u64,
    },
}

type Check = Result<(), FieldError>;

impl Message {
    /// Whether every field holds what its documentation says.
    ///
    /// # Errors
    /// [`FieldError`] names the first field that does not.
    pub fn validate(&self) -> Result<(), FieldError> {
        match self {
            Self::RegisterRequest(message) => register_request(message),
            Self::RegisterResponse(RegisterResponse::Accepted { config, .. }) => config::payload(config),
            Self::RegisterResponse(RegisterResponse::Rejected { reason }) => {
                text("reason", reason, TEXT_BYTES_MAX)
            }
            Self::NodeReadyResponse(message) => text("reason", &message.reason, TEXT_BYTES_MAX),
            Self::NodeConfigRefreshRequest(message) => config::payload(&message.config),
            Self::NodeConfigRefreshResponse(message) => refresh_response(message),
            Self::RunRequest(message) => message.validate(),
            Self::RunEvent(message) => run_event(message),
            Self::TunnelRequest(message) => message.validate(),
            Self::TunnelFrame(message) => tunnel_frame(message),
            Self::BodyChunk(BodyChunk { stream: number, data, .. }) => {
                stream(*number)?;
                data_size("data", data.len())
            }
            Self::Cancel(message) => {
                stream(message.stream)?;
                text("run_id", &message.run_id, ID_BYTES_MAX)
            }
            Self::NodeCommandRequest(message) => command_request(message),
            Self::NodeCommandResponse(message) => command_response(message),
            Self::Credit(message) => {
                stream(message.stream)?;
                if message.bytes == 0 { Err(FieldError::ZeroCredit) } else { Ok(()) }
            }
            Self::Goodbye(message) => text("reason", &message.reason, GOODBYE_REASON_BYTES_MAX),
            Self::NodeReadyRequest(_)
            | Self::NodeDraining
            | Self::HeartbeatPing
            | Self::HeartbeatPong
            | Self::Unknown => Ok(()),
        }
    }
}

impl RunRequest {
    /// Whether every field holds what its documentation says.
    ///
    /// # Errors
    /// [`FieldError`] names the first field that does not.
    pub fn validate(&self) -> Result<(), FieldError> {
        stream(self.stream)?;
        text("run_id", &self.run_id, ID_BYTES_MAX)?;
        text("adapter", &self.adapter, ID_BYTES_MAX)?;
        text("target", &self.target, TARGET_BYTES_MAX)?;
        text("session_id", &self.session_id, SESSION_ID_BYTES_MAX)?;
        inline_body(self.input.len(), self.input_bytes)?;
        metadata("metadata", &self.metadata)?;
        timeout("response_stall_timeout_ms", self.response_stall_timeout_ms)?;
        self.credential.as_ref().map_or(Ok(()), credential)
    }
}

impl TunnelRequest {
    /// Whether every field holds what its documentation says.
    ///
    /// # Errors
    /// [`FieldError`] names the first field that does not.
    pub fn validate(&self) -> Result<(), FieldError> {
        stream(self.stream)?;
        text("run_id", &self.run_id, ID_BYTES_MAX)?;
        text("adapter", &self.adapter, ID_BYTES_MAX)?;
        text("target", &self.target, TARGET_BYTES_MAX)?;
        text("method", &self.method, ID_BYTES_MAX)?;
        text("path", &self.path, PATH_BYTES_MAX)?;
        text("session_id", &self.session_id, SESSION_ID_BYTES_MAX)?;
        headers(&self.headers)?;
        headers(self.provider_auth.as_slice())?;
        inline_body(self.body.len(), self.body_bytes)?;
        metadata("metadata", &self.metadata)?;
        timeout("response_stall_timeout_ms", self.response_stall_timeout_ms)?;
        self.credential.as_ref().map_or(Ok(()), credential)
    }
}

fn register_request(message: &RegisterRequest) -> Check {
    text("agent_version", &message.agent_version, AGENT_VERSION_BYTES_MAX)?;
    text("token", &message.token, TOKEN_BYTES_MAX)
}

fn refresh_response(message: &NodeConfigRefreshResponse) -> Check {
    text("reason", &message.reason, TEXT_BYTES_MAX)?;
    count("pieces", message.pieces.len(), REFRESH_PIECES_MAX)?;
    message.pieces.iter().try_for_each(|piece| {
        text("pieces.path", &piece.path, URL_BYTES_MAX)?;
        text("pieces.reason", &piece.reason, TEXT_BYTES_MAX)
    })
}

fn run_event(message: &RunEvent) -> Check {
    stream(message.stream)?;
    text("run_id", &message.run_id, ID_BYTES_MAX)?;
    let is_complete = matches!(message.kind, RunEventKind::Complete { .. });
    metadata_within("metadata", &message.metadata, |key| {
        if is_complete && key == TOOL_CALLS_KEY { TOOL_CALLS_BYTES_MAX } else { METADATA_VALUE_BYTES_MAX }
    })?;
    match &message.kind {
        RunEventKind::Delta { text: delta, reasoning } => {
            text("delta", delta, CHUNK_BYTES_MAX)?;
            text("reasoning_delta", reasoning, CHUNK_BYTES_MAX)
        }
        RunEventKind::Complete { finish_reason, .. } => text("finish_reason", finish_reason, ID_BYTES_MAX),
        RunEventKind::Error(error) => execution_error(error),
        RunEventKind::Start | RunEventKind::Usage(_) | RunEventKind::Cancelled => Ok(()),
    }
}

fn tunnel_frame(message: &TunnelFrame) -> Check {
    stream(message.stream)?;
    match &message.kind {
        TunnelFrameKind::ResponseStart { status: code, headers: fields, .. } => {
            status(u32::from(*code))?;
            headers(fields)
        }
        // An empty body frame would cost its sender no credit, and so nothing would bound how many of them wait.
        TunnelFrameKind::Body(data) => data_size("body", data.len()),
        TunnelFrameKind::Error(error) => execution_error(error),
        TunnelFrameKind::Usage(_) | TunnelFrameKind::End => Ok(()),
    }
}

fn execution_error(error: &ExecutionError) -> Check {
    text("error", &error.message, TEXT_BYTES_MAX)?;
    let Some(failure) = &error.failure else { return Ok(()) };
    text("failure.failure_code", &failure.failure_code, ID_BYTES_MAX)?;
    metadata("failure.metadata", &failure.metadata)
}

fn command_request(message: &NodeCommandRequest) -> Check {
    text("type", &message.command, ID_BYTES_MAX)?;
    text("adapter", &message.adapter, ID_BYTES_MAX)?;
    text("target", &message.target, TARGET_BYTES_MAX)?;
    metadata("arguments", &message.arguments)?;
    message.credential.as_ref().map_or(Ok(()), credential)
}

fn command_response(message: &NodeCommandResponse) -> Check {
    match &message.result {
        Ok(pairs) => {
            count("result", pairs.len(), RESULT_PAIRS_MAX)?;
            let len = pairs.iter().map(|(key, value)| key.len() + value.len()).sum();
            length("result", len, RESULT_BYTES_MAX)
        }
        Err(error) => text("error", error, TEXT_BYTES_MAX),
    }
}

fn credential(Credential { lease, binding }: &Credential) -> Check {
    let CredentialLease { version: _, issuer_key_id, scope, encapsulated_key, ciphertext, signature } = lease;
    length("credential_lease.issuer_key_id", issuer_key_id.len(), LEASE_PART_BYTES_MAX)?;
    length("credential_lease.scope", scope.len(), LEASE_PART_BYTES_MAX)?;
    length("credential_lease.encapsulated_key", encapsulated_key.len(), LEASE_PART_BYTES_MAX)?;
    length("credential_lease.ciphertext", ciphertext.len(), LEASE_PART_BYTES_MAX)?;
    length("credential_lease.signature", signature.len(), LEASE_PART_BYTES_MAX)?;
    let CredentialLeaseBinding {
        principal_ref,
        slot,
        route,
        profile,
        upstream_target,
        node_id,
        recipient,
        ..
    } = binding;
    text("credential_binding.principal_ref", principal_ref, URL_BYTES_MAX)?;
    text("credential_binding.slot", slot, URL_BYTES_MAX)?;
    text("credential_binding.route", route, URL_BYTES_MAX)?;
    text("credential_binding.profile", profile, URL_BYTES_MAX)?;
    text("credential_binding.upstream_target", upstream_target, URL_BYTES_MAX)?;
    text("credential_binding.node_id", node_id, URL_BYTES_MAX)?;
    text("credential_binding.recipient", recipient, URL_BYTES_MAX)
}

/// 100..=999, from whatever the wire holds.
pub(crate) fn status(code: u32) -> Result<u16, FieldError> {
    match u16::try_from(code) {
        Ok(status @ 100..=999) => Ok(status),
        _ => Err(FieldError::Status(code)),
    }
}

fn stream(number: StreamNo) -> Check {
    if number == 0 { Err(FieldError::ZeroStream) } else { Ok(()) }
}

fn timeout(field: &'static str, value: i64) -> Check {
    if (0..=TIMEOUT_MS_MAX).contains(&value) { Ok(()) } else { Err(FieldError::Timeout { field, value }) }
}

fn data_size(field: &'static str, len: usize) -> Check {
    if (1..=CHUNK_BYTES_MAX).contains(&len) { Ok(()) } else { Err(FieldError::DataSize { field, len }) }
}

fn inline_body(inline: usize, total: u64) -> Check {
    let fits = inline <= INLINE_BODY_MAX && inline as u64 <= total;
    if fits { Ok(()) } else { Err(FieldError::InlineBody { inline, total }) }
}

fn headers(fields: &[Header]) -> Check {
    count("headers", fields.len(), HEADERS_MAX)?;
    fields.iter().try_for_each(Header::check)?;
    let len = fields.iter().map(|header| header.name.len() + header.value.len()).sum();
    length("headers", len, HEADERS_BYTES_MAX)
}

fn metadata(field: &'static str, pairs: &BTreeMap<String, String>) -> Check {
    metadata_within(field, pairs, |_| METADATA_VALUE_BYTES_MAX)
}

fn metadata_within(
    field: &'static str,
    pairs: &BTreeMap<String, String>,
    value_max: impl Fn(&str) -> usize,
) -> Check {
    count(field, pairs.len(), METADATA_PAIRS_MAX)?;
    pairs.iter().try_for_each(|(key, value)| {
        length(field, key.len(), METADATA_KEY_BYTES_MAX)?;
        length(field, value.len(), value_max(key))
    })
}

fn text(field: &'static str, value: &str, max: usize) -> Check {
    length(field, value.len(), max)
}

fn length(field: &'static str, len: usize, max: usize) -> Check {
    if len <= max { Ok(()) } else { Err(FieldError::TooLong { field, len, max }) }
}

fn count(field: &'static str, entries: usize, max: usize) -> Check {
    if entries <= max { Ok(()) } else { Err(FieldError::TooMany { field, max }) }
}
