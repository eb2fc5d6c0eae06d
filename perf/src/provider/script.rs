//! The script of one reply: how it is paced, shaped, broken and ended. Plain data; `directive` reads it from
//! text.

use std::time::Duration;

/// The most content events of one reply.
pub const EVENTS_MAX: u32 = 10_000_000;
/// The largest size of one SSE event. Unit: bytes.
pub const EVENT_BYTES_MAX: usize = 1 << 20;
/// The largest `raw-body`. Unit: bytes.
pub const RAW_BODY_BYTES_MAX: usize = 256 << 20;
/// The largest padding of the response head. Unit: bytes.
pub const HEADERS_BYTES_MAX: usize = 16 << 20;
/// The longest pause a script may ask for.
pub const PAUSE_MAX: Duration = Duration::from_secs(3600);

/// How the bytes of a reply are cut into TCP writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Split {
    /// One write per event.
    Whole,
    /// Writes of at most this many bytes, HTTP framing included.
    Pieces(usize),
    /// Each event in two writes, cut at this offset.
    At(usize),
}

/// How the end of a response body is made known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// `transfer-encoding: chunked`.
    Chunked,
    /// The connection's end is the body's end.
    CloseDelimited,
    /// `content-length`.
    ContentLength,
}

/// What the body holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Body {
    /// A chat completion, streamed or not as the request says.
    Completion,
    /// JSON facts about the request as it arrived.
    Echo,
    /// Nothing, with `content-length: 0`.
    Empty,
    /// Deterministic pseudo-random bytes of this length.
    Raw(usize),
}

/// The dialect of an error body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorShape {
    /// No body at all.
    Empty,
    /// An HTML page, as a proxy in front of the engine would send.
    Html,
    /// `{"error":{"code":int,"message","type"}}`.
    LlamaCpp,
    /// `{"error":"text"}`.
    Ollama,
    /// `{"error":{"message","type","param","code":"text"}}`.
    OpenAi,
    /// Flat `{"object":"error","message","type","param","code":int}`.
    Sglang,
    /// Plain text.
    Text,
    /// `{"error":{"message","type","param","code":int}}`.
    Vllm,
}

/// What happens instead of an ordinary beginning of the response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opening {
    /// Bytes that are not HTTP, then the end of the connection.
    Garbage,
    /// The request is read and the connection closed without a byte.
    NoReply,
    /// As announced.
    Normal,
    /// The request is read and the connection reset without a byte.
    Reset,
    /// The head is sent, then nothing.
    StallAfterHeaders,
    /// Nothing is ever sent.
    StallBeforeHeaders,
}

/// What breaks a stream once the counted content events are out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamFault {
    /// A chunk-size line that is not hexadecimal, then close.
    BadChunk,
    /// One event whose JSON is cut short; the stream goes on.
    BadJson,
    /// The end of the body in good order, but no finish chunk and no `[DONE]`.
    CleanEof,
    /// `[DONE]` too early; the remaining events follow it.
    EarlyDone,
    /// An in-band error object, `[DONE]`, and the end of the body in good order.
    ErrorEvent,
    /// Raw bytes that break the framing, then close.
    Garbage,
    /// A chunk size that overflows 64 bits, then close.
    HugeChunk,
    /// A TCP reset.
    Reset,
    /// Silence until the peer gives up.
    Stall,
    /// A close without the end of the body.
    Truncate,
}

impl StreamFault {
    /// Whether the body is broken off, as opposed to going on or ending in good order with something wrong in
    /// it.
    #[must_use]
    pub fn breaks_framing(self) -> bool {
        match self {
            Self::BadJson | Self::CleanEof | Self::EarlyDone | Self::ErrorEvent => false,
            Self::BadChunk | Self::Garbage | Self::HugeChunk | Self::Reset | Self::Stall | Self::Truncate => {
                true
            }
        }
    }
}

/// What happens to the connection after a completed response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum After {
    /// `connection: close` is announced, and done.
    AnnouncedClose,
    /// The next request on this connection is read, and the connection closed without a byte.
    DropNext,
    /// The connection waits for the next request.
    Keep,
    /// The connection is closed after this pause although nothing announced it.
    SilentClose(Duration),
}

/// When the usage chunk of a stream is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UsagePolicy {
    /// Always.
    Always,
    /// When the request's `stream_options.include_usage` says so.
    AsAsked,
    /// Never.
    Never,
}

/// A deliberately wrong response head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BadHead {
    /// Both `content-length` and `transfer-encoding`.
    ClAndTe,
    /// Two different `content-length` fields.
    DoubleCl,
    /// A bare LF ends each line.
    LfOnly,
    /// A header name with a space in it.
    Name,
    /// A NUL in a header value.
    Nul,
    /// A folded header line.
    ObsFold,
    /// `content-length: +5`.
    SignedCl,
    /// A status line whose status is no number.
    Status,
    /// `transfer-encoding: gzip, chunked`.
    Te,
    /// HTTP/3.7.
    Version,
}

/// The script of one reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Script {
    /// Silence before the first event (streamed) or before the head (not streamed).
    pub prefill: Duration,
    /// The head, too, waits for the end of the prefill.
    pub late_head: bool,
    /// A comment line `: ping` this often during silence; zero for none.
    pub ping: Duration,
    /// Content events of the reply.
    pub events: u32,
    /// Size of one content event on the stream, `data: ` and the blank line included. Unit: bytes.
    pub event_bytes: usize,
    /// Pause between content events, kept as an absolute schedule.
    pub gap: Duration,
    /// Content events that leave in one chunk and one write.
    pub join: u32,
    /// Largest HTTP chunk of an event; zero for one chunk per write. Unit: bytes.
    pub chunk: usize,
    /// How the bytes are cut into writes.
    pub split: Split,
    /// Pause between the writes of a split.
    pub split_gap: Duration,
    /// Each event carries its sending time (`"t"`, nanoseconds since 1970).
    pub stamp: bool,
    /// Reasoning events before the content.
    pub reasoning: u32,
    /// Unusual but legal members in every chunk: `logprobs`, `x_unknown`, `token_ids`.
    pub extras: bool,
    /// Lines end with CRLF.
    pub crlf: bool,
    /// The stream begins with a byte order mark.
    pub bom: bool,
    /// No role chunk.
    pub no_role: bool,
    /// No finish chunk.
    pub no_finish: bool,
    /// No `[DONE]`.
    pub no_done: bool,
    /// Events that follow `[DONE]`.
    pub data_after_done: bool,
    /// When the usage chunk is sent.
    pub usage: UsagePolicy,
    /// Status of the response; 400 and above bring an error body.
    pub status: u16,
    /// Shape of an error body; `Some` forces one whatever the status.
    pub error: Option<ErrorShape>,
    /// `retry-after`, in seconds.
    pub retry_after: Option<u32>,
    /// How the response begins.
    pub opening: Opening,
    /// `103 Early Hints` responses before the final one.
    pub early_hints: u32,
    /// Padding fields in the head. Unit: bytes.
    pub headers_bytes: usize,
    /// Small fields in the head.
    pub headers_count: usize,
    /// A head that breaks a rule.
    pub bad_head: Option<BadHead>,
    /// Trailer fields after a chunked body.
    pub trailers: bool,
    /// What the body holds.
    pub body: Body,
    /// How the body ends; `None` is chunked for a stream and a length for anything else.
    pub framing: Option<Framing>,
    /// The status line says HTTP/1.0.
    pub http10: bool,
    /// A fault and the content events before it.
    pub fault: Option<(u32, StreamFault)>,
    /// Pause between the last good byte and the fault.
    pub fault_delay: Duration,
    /// How long the request goes on as open after its peer has left.
    pub ignore_abort: Duration,
    /// The peer's leaving is noticed by a write that fails and by nothing else.
    pub deaf: bool,
    /// What becomes of the connection.
    pub after: After,
}

impl Default for Script {
    fn default() -> Self {
        Self {
            prefill: Duration::ZERO,
            late_head: false,
            ping: Duration::ZERO,
            events: 20,
            event_bytes: 200,
            gap: Duration::ZERO,
            join: 1,
            chunk: 0,
            split: Split::Whole,
            split_gap: Duration::ZERO,
            stamp: false,
            reasoning: 0,
            extras: false,
            crlf: false,
            bom: false,
            no_role: false,
            no_finish: false,
            no_done: false,
            data_after_done: false,
            usage: UsagePolicy::AsAsked,
            status: 200,
            error: None,
            retry_after: None,
            opening: Opening::Normal,
            early_hints: 0,
            headers_bytes: 0,
            headers_count: 0,
            bad_head: None,
            trailers: false,
            body: Body::Completion,
            framing: None,
            http10: false,
            fault: None,
            fault_delay: Duration::ZERO,
            ignore_abort: Duration::ZERO,
            deaf: false,
            after: After::Keep,
        }
    }
}
