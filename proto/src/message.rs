//! The validated messages of the Edge-Node wire: what everyone outside this crate sees.
//!
//! Conversion from and to the generated protobuf structs lives in `convert`; a value of these types has passed every
//! structural check (names, bounds, closed sets), so its users branch on types and not on strings.

use alloc::{boxed::Box, collections::BTreeMap, string::String, vec::Vec};
use core::fmt;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::identity::Name;

/// Number of a run on one connection, chosen by the Edge, strictly rising from 1 (WIR-10).
pub type StreamNo = u64;

/// One message of the wire. What comes once for each run and is large is boxed, so that a frame's message is cheap to move.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// Node → Edge, first message of a connection.
    RegisterRequest(RegisterRequest),
    /// Edge → Node, the answer.
    RegisterResponse(RegisterResponse),
    /// Node → Edge: configuration applied, session handler installed.
    NodeReadyRequest(NodeReadyRequest),
    /// Edge → Node, the answer.
    NodeReadyResponse(NodeReadyResponse),
    /// Node → Edge: it takes no new runs from now on; its connection stays until its runs are done.
    NodeDraining,
    /// Edge → Node: new configuration.
    NodeConfigRefreshRequest(NodeConfigRefreshRequest),
    /// Node → Edge, the answer.
    NodeConfigRefreshResponse(NodeConfigRefreshResponse),
    /// Edge → Node: start a normalized run.
    RunRequest(Box<RunRequest>),
    /// Node → Edge: one event of a normalized run.
    RunEvent(RunEvent),
    /// Edge → Node: start a provider tunnel.
    TunnelRequest(Box<TunnelRequest>),
    /// Node → Edge: one frame of a tunnel.
    TunnelFrame(TunnelFrame),
    /// Edge → Node: a part of a body that was too large for its request message (WIR-9).
    BodyChunk(BodyChunk),
    /// Edge → Node: stop one run.
    Cancel(Cancel),
    /// Edge → Node: a query.
    NodeCommandRequest(Box<NodeCommandRequest>),
    /// Node → Edge, the answer.
    NodeCommandResponse(NodeCommandResponse),
    /// Both ways: flow control of one run (WIR-6).
    Credit(Credit),
    /// Both ways: are you there.
    HeartbeatPing,
    /// Both ways: yes. The only message that extends the heartbeat deadline (HBT-3).
    HeartbeatPong,
    /// Both ways: the sender is about to close, and why.
    Goodbye(Goodbye),
    /// A member this build does not know; skipped (WIR-3).
    Unknown,
}

/// Node → Edge, first message of a connection.
#[derive(Clone, PartialEq, Eq)]
pub struct RegisterRequest {
    /// Claimed Node ID; the Edge compares it with the certificate.
    pub node_id: Name,
    /// Version of the Node's build, for people. At most 64 bytes.
    pub agent_version: String,
    /// Optional second factor; never logged. At most 512 bytes.
    pub token: String,
}

/// Answer to [`RegisterRequest`].
#[derive(Clone, Debug, PartialEq)]
pub enum RegisterResponse {
    /// The connection now owns this Node ID, pending readiness.
    Accepted {
        /// The Node ID that [`NodeReadyRequest`] repeats.
        node_id: Name,
        /// What to run.
        config: NodeConfigPayload,
    },
    /// The connection is refused and will be closed.
    Rejected {
        /// Why, for people.
        reason: String,
    },
}

/// Node → Edge: everything is applied and started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeReadyRequest {
    /// As in [`RegisterResponse::Accepted`].
    pub node_id: Name,
}

/// Answer to [`NodeReadyRequest`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeReadyResponse {
    /// Whether this connection is the dispatch-ready owner of its Node ID.
    pub ready: bool,
    /// Why not, for people; empty when ready.
    pub reason: String,
}

/// Everything a Node needs to know to execute (REG-9). Holds no credential, store location or directory (REG-10, CRD-6).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeConfigPayload {
    /// Generation of the Edge's configuration file (not of the connection).
    pub config_generation: u64,
    /// Legacy metadata, never a gate (GAT-1).
    pub concurrency: u32,
    /// Adapter instances, by unique name.
    pub adapters: Vec<AdapterConfig>,
    /// Providers on these adapters.
    pub providers: Vec<ProviderConfig>,
}

/// One adapter instance.
#[derive(Clone, Debug, PartialEq)]
pub struct AdapterConfig {
    /// Stable instance identity; empty equals the legacy single instance of its type (CFG-12).
    pub name: String,
    /// Whether it may be started.
    pub enabled: bool,
    /// Size of its local gate (GAT-2).
    pub capacity: u32,
    /// What it talks to.
    pub settings: AdapterSettings,
}

/// Adapter kinds and their settings.
#[derive(Clone, Debug, PartialEq)]
pub enum AdapterSettings {
    /// Byte-exact tunnel to an OpenAI-compatible server (also type `vllm`).
    OpenAiCompat(OpenAiCompatConfig),
    /// Normalized runs against Ollama's own API.
    Ollama(OllamaConfig),
    /// Normalized runs by a configured command.
    Cli(CliConfig),
    /// A type this build does not know; the Node refuses its providers and serves the rest.
    Unknown(String),
}

/// Settings of an `openai_compat` adapter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenAiCompatConfig {
    /// Label for people and metrics.
    pub provider_label: String,
    /// The resolved protocol profile (PRF-2).
    pub profile: ProtocolProfile,
    /// Static headers sent with every provider request.
    pub headers: Vec<Header>,
}

/// Settings of an `ollama` adapter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OllamaConfig {
    /// `http://host:port`.
    pub base_url: String,
    /// `num_ctx`; 0 = the server's own.
    pub context_size: u32,
}

/// Settings of a `cli` adapter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CliConfig {
    /// Program to start.
    pub command: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Its environment.
    pub env: BTreeMap<String, String>,
    /// How input is passed.
    pub mode: String,
    /// How output is read.
    pub output_format: String,
}

/// A resolved protocol profile.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProtocolProfile {
    /// Its name in the configuration.
    pub id: String,
    /// `openai_chat`, `openai_responses` or `anthropic_messages`.
    pub driver: String,
    /// Base URL, without a trailing slash.
    pub base_url: String,
    /// Operations it offers, with absolute URLs.
    pub operations: Vec<ProfileOperation>,
    /// Closed capability names (PRF-3).
    pub capabilities: Vec<String>,
}

/// One operation of a profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfileOperation {
    /// Which.
    pub operation: Operation,
    /// HTTP method, upper case.
    pub method: String,
    /// Absolute URL, resolved once at load (PRF-4).
    pub url: String,
}

/// Named operations of a profile (TUN-1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    /// `GET /models`
    Models,
    /// `POST /chat/completions`
    ChatCompletions,
    /// `POST /messages`
    Messages,
    /// `POST /messages/count_tokens` and its siblings
    CountTokens,
    /// `POST /responses`
    Responses,
}

/// One provider under an adapter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderConfig {
    /// Unique in the whole configuration.
    pub id: String,
    /// Adapter instance name.
    pub adapter: String,
    /// `api`, `cli` or `local_inference`.
    pub category: String,
    /// Targets it serves.
    pub models: Vec<String>,
    /// Whether requests are sent to it.
    pub enabled: bool,
    /// Concurrent requests.
    pub capacity: u32,
    /// Milliseconds; 0 = 300000.
    pub response_stall_timeout_ms: i64,
    /// Milliseconds; 0 = one hour.
    pub request_timeout_ms: i64,
    /// What a probe looks at beside the list of models (STL-11).
    pub health: HealthCheck,
}

/// What a probe of a provider looks at beside the list of models.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HealthCheck {
    /// Path on the provider's origin that must answer with a success; begins with `/`, or is empty for none.
    pub path: String,
    /// Whether one token is to be generated.
    pub generation: bool,
}

/// Edge → Node: new configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeConfigRefreshRequest {
    /// Repeated by the answer.
    pub request_id: u64,
    /// The new whole.
    pub config: NodeConfigPayload,
}

/// Node → Edge: what became of a refresh (REF-1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeConfigRefreshResponse {
    /// As in the request.
    pub request_id: u64,
    /// The generation that is now in force.
    pub config_generation: u64,
    /// Worst outcome.
    pub outcome: RefreshOutcome,
    /// For people.
    pub reason: String,
    /// Per changed piece.
    pub pieces: Vec<RefreshPiece>,
}

/// One changed piece of a refresh.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefreshPiece {
    /// Key path.
    pub path: String,
    /// What became of it.
    pub outcome: RefreshOutcome,
    /// For people.
    pub reason: String,
}

/// Outcome of a refresh.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefreshOutcome {
    /// In force.
    Applied,
    /// In force after a restart of the Node.
    RestartRequired,
    /// Not in force.
    Failed,
}

/// A header field. The name is a valid lower-case token, the value holds no CR, LF or NUL.
#[derive(Clone, PartialEq, Eq)]
pub struct Header {
    /// Lower-case field name.
    pub name: String,
    /// Field value.
    pub value: Bytes,
}

/// Edge → Node: start a normalized run.
#[derive(Clone, Debug, PartialEq)]
pub struct RunRequest {
    /// Stream number.
    pub stream: StreamNo,
    /// For people and logs.
    pub run_id: String,
    /// Adapter instance.
    pub adapter: String,
    /// Target model.
    pub target: String,
    /// First part of the input; all of it when `input.len() == input_bytes`.
    pub input: Bytes,
    /// Whole length of the input.
    pub input_bytes: u64,
    /// Caller-defined; steers nothing (RUN-7).
    pub metadata: BTreeMap<String, String>,
    /// Opaque correlation.
    pub session_id: String,
    /// Hard deadline; 0 = none.
    pub timeout_sec: u32,
    /// Effective stall timeout; never negative, never 0 (the default is filled in).
    pub response_stall_timeout_ms: i64,
    /// Credit the Node starts with.
    pub window_bytes: u32,
    /// The sealed credential and its binding.
    pub credential: Option<Credential>,
}

/// Node → Edge: one event of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct RunEvent {
    /// Stream number.
    pub stream: StreamNo,
    /// From 0, without gaps.
    pub sequence: u64,
    /// What happened.
    pub kind: RunEventKind,
    /// For a person or a log; may be empty.
    pub run_id: String,
    /// Typed metadata.
    pub metadata: BTreeMap<String, String>,
}

/// Kinds of run events.
#[derive(Clone, Debug, PartialEq)]
pub enum RunEventKind {
    /// Execution began.
    Start,
    /// Text, reasoning text, or both.
    Delta {
        /// Assistant text.
        text: String,
        /// Reasoning text.
        reasoning: String,
    },
    /// Observation.
    Usage(Usage),
    /// Terminal.
    Complete {
        /// As the backend gave it.
        finish_reason: String,
        /// Final usage where known.
        usage: Option<Usage>,
    },
    /// Terminal.
    Error(ExecutionError),
    /// Terminal.
    Cancelled,
}

/// Edge → Node: start a tunnel.
#[derive(Clone, Debug, PartialEq)]
pub struct TunnelRequest {
    /// Stream number.
    pub stream: StreamNo,
    /// For people and logs.
    pub run_id: String,
    /// Adapter instance.
    pub adapter: String,
    /// Target model.
    pub target: String,
    /// HTTP method; the operation's own wins.
    pub method: String,
    /// Fallback when `operation` is `None`.
    pub path: String,
    /// End-to-end request headers.
    pub headers: Vec<Header>,
    /// First part of the body; all of it when `body.len() == body_bytes`.
    pub body: Bytes,
    /// Whole length of the body.
    pub body_bytes: u64,
    /// Whether the caller asked for a stream.
    pub stream_response: bool,
    /// Hard deadline in seconds; 0 = none.
    pub timeout_sec: u32,
    /// Caller-defined; steers nothing.
    pub metadata: BTreeMap<String, String>,
    /// Named operation; wins over `path`.
    pub operation: Option<Operation>,
    /// Opaque correlation.
    pub session_id: String,
    /// Effective stall timeout; never negative, never 0 (the default is filled in).
    pub response_stall_timeout_ms: i64,
    /// Credit the Node starts with.
    pub window_bytes: u32,
    /// The sealed credential and its binding: an inseparable pair.
    pub credential: Option<Credential>,
    /// The caller's own credential for the provider, in clear (CFG-3); wins over a configured header of its name.
    pub provider_auth: Option<Header>,
}

/// Node → Edge: one frame of a tunnel.
#[derive(Clone, Debug, PartialEq)]
pub struct TunnelFrame {
    /// Stream number.
    pub stream: StreamNo,
    /// From 0, without gaps.
    pub sequence: u64,
    /// What it carries.
    pub kind: TunnelFrameKind,
}

/// Kinds of tunnel frames (TUN-2).
#[derive(Clone, Debug, PartialEq)]
pub enum TunnelFrameKind {
    /// Status and headers; at most once, first.
    ResponseStart {
        /// 100..=999.
        status: u16,
        /// End-to-end response headers.
        headers: Vec<Header>,
        /// The body is framed by nothing but the end of the provider's connection, which a broken one has too.
        until_close: bool,
    },
    /// Body bytes, to be passed on unchanged.
    Body(Bytes),
    /// Observation only.
    Usage(Usage),
    /// Terminal: the provider's answer ended as it should.
    End,
    /// Terminal: it did not.
    Error(ExecutionError),
}

/// Why an execution ended with an error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecutionError {
    /// Closed set.
    pub kind: ErrorKind,
    /// For people: no payload, no credential. At most 1 KiB.
    pub message: String,
    /// Only for stalls (STL-4, STL-6).
    pub failure: Option<ExecutionFailure>,
}

/// Closed set of error kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ErrorKind {
    /// The adapter's gate was full; nothing ran (GAT-2).
    Busy,
    /// Cancelled by the Edge.
    Cancelled,
    /// `timeout_sec` passed (TUN-8).
    Deadline,
    /// No connection to the provider.
    Connect,
    /// The provider's answer is not valid HTTP.
    UpstreamProtocol,
    /// The provider's answer ended before its end.
    UpstreamTruncated,
    /// The request names something the Node refuses.
    InvalidRequest,
    /// The credential was refused.
    Credential,
    /// The response stalled.
    Stalled,
    /// A defect of ours.
    Internal,
    /// A peer sent more than its credit.
    CreditExceeded,
    /// A kind of a newer build.
    Unknown,
}

/// Typed evidence of a stall.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecutionFailure {
    /// `response_stalled`.
    pub failure_code: String,
    /// A hint, never an authorisation.
    pub retryable: bool,
    /// Allow-listed pairs (STL-5).
    pub metadata: BTreeMap<String, String>,
}

/// Token counts; absent is unknown, never 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Prompt tokens.
    pub input_tokens: Option<u64>,
    /// Generated tokens.
    pub output_tokens: Option<u64>,
    /// Prompt tokens from a cache.
    pub cached_input_tokens: Option<u64>,
    /// Reasoning tokens among the generated.
    pub reasoning_tokens: Option<u64>,
}

/// Edge → Node: one ordered part of a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BodyChunk {
    /// Stream number.
    pub stream: StreamNo,
    /// 1..=65536 bytes.
    pub data: Bytes,
    /// Nothing follows.
    pub last: bool,
}

/// Edge → Node: stop one run (CAN-1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cancel {
    /// Stream number.
    pub stream: StreamNo,
    /// For a person or a log; may be empty.
    pub run_id: String,
}

/// More credit for one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credit {
    /// Stream number.
    pub stream: StreamNo,
    /// Additional bytes, never 0.
    pub bytes: u32,
}

/// Edge → Node: a query (CMD-1).
#[derive(Clone, Debug, PartialEq)]
pub struct NodeCommandRequest {
    /// Repeated by the answer.
    pub request_id: u64,
    /// `capabilities`, `transport`, `ollama`.
    pub command: String,
    /// Adapter instance.
    pub adapter: String,
    /// Target model.
    pub target: String,
    /// Further arguments.
    pub arguments: BTreeMap<String, String>,
    /// The sealed credential for a managed probe.
    pub credential: Option<Credential>,
}

/// Node → Edge, the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeCommandResponse {
    /// As in the request.
    pub request_id: u64,
    /// The result, or why there is none.
    pub result: Result<BTreeMap<String, String>, String>,
}

/// A sealed credential and what it is bound to (CRD-1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credential {
    /// Sealed and signed.
    pub lease: CredentialLease,
    /// What for.
    pub binding: CredentialLeaseBinding,
}

/// What a credential lease is bound to (CRD-2).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are the ledger's own words")]
pub struct CredentialLeaseBinding {
    pub principal_ref: String,
    pub slot: String,
    pub route: String,
    pub profile: String,
    pub upstream_target: String,
    pub node_id: String,
    pub recipient: String,
    pub credential_revision: u64,
    pub route_revision: u64,
    pub projection_generation: u64,
}

/// A sealed, signed credential lease; opaque to everyone but its recipient.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "opaque parts, described with the envelope")]
pub struct CredentialLease {
    pub version: u32,
    pub issuer_key_id: Bytes,
    pub scope: Bytes,
    pub encapsulated_key: Bytes,
    pub ciphertext: Bytes,
    pub signature: Bytes,
}

/// Why the sender closes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Goodbye {
    /// A short word: `superseded`, `draining`, `protocol_error`, `heartbeat_timeout`.
    pub reason: String,
}

impl Message {
    /// A fixed word for logs and metric labels: the name of its member in the schema.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::RegisterRequest(_) => "register_request",
            Self::RegisterResponse(_) => "register_response",
            Self::NodeReadyRequest(_) => "node_ready_request",
            Self::NodeReadyResponse(_) => "node_ready_response",
            Self::NodeDraining => "node_draining",
            Self::NodeConfigRefreshRequest(_) => "node_config_refresh_request",
            Self::NodeConfigRefreshResponse(_) => "node_config_refresh_response",
            Self::RunRequest(_) => "run_request",
            Self::RunEvent(_) => "run_event",
            Self::TunnelRequest(_) => "provider_tunnel_request",
            Self::TunnelFrame(_) => "provider_tunnel_frame",
            Self::BodyChunk(_) => "request_body_chunk",
            Self::Cancel(_) => "cancel_request",
            Self::NodeCommandRequest(_) => "node_command_request",
            Self::NodeCommandResponse(_) => "node_command_response",
            Self::Credit(_) => "credit",
            Self::HeartbeatPing => "heartbeat_ping",
            Self::HeartbeatPong => "heartbeat_pong",
            Self::Goodbye(_) => "goodbye",
            Self::Unknown => "unknown",
        }
    }

    /// The run that the message belongs to; `None` for messages of the connection.
    #[must_use]
    pub fn stream(&self) -> Option<StreamNo> {
        match self {
            Self::RunRequest(request) => Some(request.stream),
            Self::TunnelRequest(request) => Some(request.stream),
            Self::RunEvent(RunEvent { stream, .. })
            | Self::TunnelFrame(TunnelFrame { stream, .. })
            | Self::BodyChunk(BodyChunk { stream, .. })
            | Self::Cancel(Cancel { stream, .. })
            | Self::Credit(Credit { stream, .. }) => Some(*stream),
            _ => None,
        }
    }
}

impl AdapterSettings {
    /// The adapter type as it stands on the wire; `vllm` is `openai_compat` here.
    #[must_use]
    pub fn type_name(&self) -> &str {
        match self {
            Self::OpenAiCompat(_) => "openai_compat",
            Self::Ollama(_) => "ollama",
            Self::Cli(_) => "cli",
            Self::Unknown(name) => name,
        }
    }
}

impl ExecutionError {
    /// An error without evidence of a stall.
    #[must_use]
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), failure: None }
    }
}

/// Hides the token: it must stand in no log.
impl fmt::Debug for RegisterRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RegisterRequest")
            .field("node_id", &self.node_id)
            .field("agent_version", &self.agent_version)
            .finish_non_exhaustive()
    }
}

/// Hides the value, which may be a credential; shows its length.
impl fmt::Debug for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: <{} bytes>", self.name, self.value.len())
    }
}
