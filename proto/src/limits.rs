//! Every bound of the wire that a peer can run into, named in one place.
//!
//! Reaching a bound always has the same outcome: the message is refused with a typed error, which closes that connection
//! (WIR-3). Byte bounds count bytes of UTF-8, not characters.

/// Longest accepted frame body in bytes unless configured otherwise (WIR-2): 8 MiB.
pub const FRAME_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Longest data in one request-body chunk, tunnel body frame or run-event delta, in bytes (WIR-9): 64 KiB.
pub const CHUNK_BYTES_MAX: usize = 64 * 1024;
/// Longest body or input that travels inside its request message, in bytes (WIR-9): 64 KiB.
pub const INLINE_BODY_MAX: usize = 64 * 1024;
/// Longest request body or run input unless configured otherwise, in bytes (WIR-9): 32 MiB.
pub const BODY_BYTES_MAX: u64 = 32 * 1024 * 1024;
/// Longest body that may be configured, in bytes, and what a Node holds of bodies on their way through it: 256 MiB.
pub const BODY_BYTES_CONFIGURED_MAX: u64 = 8 * BODY_BYTES_MAX;
/// Credit that a run starts with unless configured otherwise, in bytes (WIR-6): 256 KiB.
pub const WINDOW_BYTES_DEFAULT: u32 = 256 * 1024;

/// Stall timeout that a value of 0 stands for, in milliseconds (STL-1).
pub const STALL_TIMEOUT_MS_DEFAULT: i64 = 300_000;
/// Longest stall or request timeout in milliseconds (STL-10): its nanoseconds still fit an `i64`.
pub const TIMEOUT_MS_MAX: i64 = i64::MAX / 1_000_000;

/// Header fields of one request, response or adapter.
pub const HEADERS_MAX: usize = 256;
/// Bytes of all header names and values of one message together; above the Edge's bound on a client's head, so that no
/// client can make a message that its Node refuses.
pub const HEADERS_BYTES_MAX: usize = 256 * 1024;
/// Pairs of caller, event, failure or command metadata.
pub const METADATA_PAIRS_MAX: usize = 64;
/// Bytes of one metadata key.
pub const METADATA_KEY_BYTES_MAX: usize = 256;
/// Bytes of one metadata value.
pub const METADATA_VALUE_BYTES_MAX: usize = 4096;
/// Bytes of the tool calls in a completion's metadata
/// ([`TOOL_CALLS_KEY`](crate::run_input::TOOL_CALLS_KEY)): 1 MiB, as they are as long as what the model writes into a file.
pub const TOOL_CALLS_BYTES_MAX: usize = 1024 * 1024;
/// Pairs in the result of a command.
pub const RESULT_PAIRS_MAX: usize = 1024;
/// Bytes of all keys and values in the result of a command together.
pub const RESULT_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Adapter instances of one Node.
pub const ADAPTERS_MAX: usize = 4096;
/// Providers of one Node.
pub const PROVIDERS_MAX: usize = 4096;
/// Targets of one provider.
pub const MODELS_MAX: usize = 1024;
/// Operations of one protocol profile.
pub const OPERATIONS_MAX: usize = 32;
/// Capabilities of one protocol profile.
pub const CAPABILITIES_MAX: usize = 64;
/// Arguments of one configured command.
pub const CLI_ARGS_MAX: usize = 256;
/// Environment variables of one configured command.
pub const CLI_ENV_MAX: usize = 256;
/// Pieces of one refresh answer.
pub const REFRESH_PIECES_MAX: usize = 8192;

/// Bytes of `RegisterRequest.agent_version`.
pub const AGENT_VERSION_BYTES_MAX: usize = 64;
/// Bytes of `RegisterRequest.token`.
pub const TOKEN_BYTES_MAX: usize = 512;
/// Bytes of a short identifier: run, adapter, provider, category, driver, mode, failure code, command, HTTP method.
pub const ID_BYTES_MAX: usize = 256;
/// Bytes of a target model name.
pub const TARGET_BYTES_MAX: usize = 512;
/// Bytes of `session_id`.
pub const SESSION_ID_BYTES_MAX: usize = 1024;
/// Bytes of a request path; as long as the longest head that the Edge takes from a client.
pub const PATH_BYTES_MAX: usize = 64 * 1024;
/// Bytes of a configured URL and of one text in a credential binding.
pub const URL_BYTES_MAX: usize = 4096;
/// Bytes of a command line's program, argument or environment variable.
pub const CLI_BYTES_MAX: usize = 16 * 1024;
/// Bytes of a text for people: reason, error message. Longer ones are cut when encoded and refused when decoded.
pub const TEXT_BYTES_MAX: usize = 1024;
/// Bytes of `Goodbye.reason`; longer ones are cut when encoded and refused when decoded.
pub const GOODBYE_REASON_BYTES_MAX: usize = 64;
/// Bytes of one opaque part of a credential lease.
pub const LEASE_PART_BYTES_MAX: usize = 64 * 1024;
