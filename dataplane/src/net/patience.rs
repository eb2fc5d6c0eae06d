//! How long a connection outlives a peer that has vanished without a word: no FIN, no reset, no acknowledgement.
//!
//! The kernel answers for a peer that is alive but silent, so none of this ends a long prefill or a stopped process. It is
//! inherited by accepted sockets: a listener is told once.

use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};

/// Silence of both ends after which the kernel asks the peer's kernel for a sign of life.
pub const PROBE_AFTER: Duration = Duration::from_secs(30);
/// Between two such questions.
pub const PROBE_EVERY: Duration = Duration::from_secs(5);
/// What the kernel waits longer than our own deadline for a write, so that a peer that only stopped reading ends by ours.
pub const STALL_MARGIN: Duration = Duration::from_secs(15);

/// Questions without an answer after which a peer counts as gone. The kernel asks for thousands of silent streams in one moment,
/// whatever the moments of their last words, and its own queues drop what is too much (`net.core.netdev_max_backlog`): of 10,000
/// streams over loopback some were asked three times in vain. With more and closer questions the later ones are few.
const PROBES: u32 = 9;
/// With the kernel's usual count of retransmissions, 15, a peer that acknowledges nothing is given up after some 70 s.
const RETRANSMIT_MAX: Duration = Duration::from_secs(6);

/// When the kernel gives a peer up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// `TCP_USER_TIMEOUT`: data unacknowledged, a window kept shut or probes unanswered for so long break the connection.
    /// Without it the kernel counts retransmissions and probes.
    pub silence: Option<Duration>,
    /// `TCP_RTO_MAX_MS` (Linux 6.15): the longest pause between two retransmissions, which is how long after its end a loss
    /// may last for us. Without it, and on older kernels, the pause doubles without end: 25 s after 25 s of loss, and some
    /// 15 minutes until a peer is given up.
    pub retransmit_max: Option<Duration>,
}

impl Patience {
    /// For a peer that may read slowly. It has no `TCP_USER_TIMEOUT`: the kernel takes a window that never has room for a whole
    /// segment for one that is shut, though bytes pass, and would break off who reads slowly; whether a peer has stopped is
    /// for our own deadline to say.
    #[must_use]
    pub const fn with_readers() -> Self {
        Self { silence: None, retransmit_max: Some(RETRANSMIT_MAX) }
    }

    /// For a socket whose writes end by a deadline of ours after `write_stall`.
    #[must_use]
    pub const fn behind(write_stall: Duration) -> Self {
        Self { silence: Some(write_stall.saturating_add(STALL_MARGIN)), retransmit_max: None }
    }

    /// Asks the kernel for it, as far as it can: a socket without it is as good, but for vanished peers.
    pub(super) fn apply(self, socket: &SockRef<'_>) {
        let probes =
            TcpKeepalive::new().with_time(PROBE_AFTER).with_interval(PROBE_EVERY).with_retries(PROBES);
        let mut result = socket.set_tcp_keepalive(&probes);
        if self.silence.is_some() {
            result = result.and(socket.set_tcp_user_timeout(self.silence));
        }
        if let Err(error) = result {
            tracing::debug!(%error, "a socket without keepalive");
        }
        if let Some(pause) = self.retransmit_max {
            let _older_kernel = super::sys::set_retransmit_max(socket, pause);
        }
    }
}
