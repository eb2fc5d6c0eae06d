//! Every bound of an HTTP/2 connection that HTTP/1 does not have, in one place.

use std::time::Duration;

/// Bounds of one connection. What reaching each one does stands with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Http2Limits {
    /// Requests at a time; more are refused with REFUSED_STREAM, which clients send again.
    pub streams: u32,
    /// Bytes of a request's fields, counted as RFC 9113 section 6.5.2 does; more is refused with 431, four times as much ends the
    /// connection.
    pub header_list_bytes: u32,
    /// Bytes that a client may send of one request's body ahead of its reader.
    pub stream_window: u32,
    /// As [`Http2Limits::stream_window`], of all requests together.
    pub connection_window: u32,
    /// Bytes of one response that wait in the connection for its socket, besides what its owner holds.
    pub send_buffer: usize,
    /// PING, SETTINGS, PRIORITY and unknown frames at once, and how many more each second; more is a flood. Acknowledgements
    /// count too.
    pub control: Rate,
    /// As [`Http2Limits::control`], of RST_STREAM by the client.
    pub resets: Rate,
    /// As [`Http2Limits::control`], of streams that we reset or refused for what the client did wrong.
    pub own_resets: Rate,
    /// As [`Http2Limits::control`], of WINDOW_UPDATE; each frame of DATA that we send allows for four more.
    pub windows: Rate,
    /// How long a connection that ends may take to send its last word.
    pub farewell: Duration,
}

/// So many at once, and so many more each second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// At once.
    pub burst: u32,
    /// More, each second.
    pub per_second: u32,
}

impl Default for Http2Limits {
    fn default() -> Self {
        Self {
            streams: 100,
            header_list_bytes: 32 * 1024,
            stream_window: 256 * 1024,
            connection_window: 1024 * 1024,
            send_buffer: 64 * 1024,
            control: Rate { burst: 1_000, per_second: 100 },
            resets: Rate { burst: 300, per_second: 50 },
            own_resets: Rate { burst: 300, per_second: 20 },
            windows: Rate { burst: 2_000, per_second: 200 },
            farewell: Duration::from_secs(1),
        }
    }
}
