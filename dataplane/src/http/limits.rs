//! Every bound and deadline of an HTTP/1.1 connection, in one place.

use std::time::Duration;

/// Fields that one head may have at most, whatever [`Limits::fields`] says.
pub const MAX_FIELDS: usize = 1000;

/// Bounds of a connection. What reaching each one does stands with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of one head, first line to empty line; more is refused with 431.
    pub head_bytes: usize,
    /// Fields of one head, at most [`MAX_FIELDS`]; more is refused with 431.
    pub fields: usize,
    /// Bytes of one field (name and value) and of the request target; more is refused with 431.
    pub field_bytes: usize,
    /// From accept (first request) or the head's first byte (later ones) to its last; then 408, or a silent close when
    /// not one byte came.
    pub head_deadline: Duration,
    /// A connection without a request for this long is closed.
    pub keepalive_idle: Duration,
    /// A client that takes nothing of what waits for it for this long ends the connection.
    pub write_stall: Duration,
    /// Bytes kept of what a client sends while its response is pending; over it the client is no longer listened to.
    pub look_ahead: usize,
    /// Bytes of an unread request body that are thrown away to keep the connection; more closes it.
    pub drain_bytes: usize,
    /// Bytes per second below which a request body is too slow, measured over each [`Limits::body_grace`]; then 408.
    pub body_min_rate: u64,
    /// Window of the body's rate: each one must bring `body_min_rate` times its length, or the body's end.
    pub body_grace: Duration,
    /// Bytes of the extension of one chunk; more is a malformed body.
    pub chunk_ext_bytes: usize,
    /// Bytes of a body's trailer section, which is dropped; more is a malformed body.
    pub trailer_bytes: usize,
    /// Informational (1xx) responses before the final one; more is a broken provider.
    pub informational: usize,
    /// Bytes read and thrown away while a connection is closed after an error, so that a client that sends all of its
    /// request before it looks finds the answer and not a reset. Then it is closed all the same.
    pub linger_bytes: usize,
    /// How long that may take.
    pub linger: Duration,
    /// How long the client may be silent meanwhile.
    pub linger_idle: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            head_bytes: 64 * 1024,
            fields: 100,
            field_bytes: 16 * 1024,
            head_deadline: Duration::from_secs(10),
            keepalive_idle: Duration::from_secs(100),
            write_stall: Duration::from_secs(60),
            look_ahead: 64 * 1024,
            drain_bytes: 64 * 1024,
            body_min_rate: 1024,
            body_grace: Duration::from_secs(10),
            chunk_ext_bytes: 256,
            trailer_bytes: 16 * 1024,
            informational: 8,
            linger_bytes: 64 * 1024 * 1024,
            linger: Duration::from_secs(30),
            linger_idle: Duration::from_secs(1),
        }
    }
}
