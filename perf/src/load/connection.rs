//! One connection of the load generator: carries a request out and hands [`Exchange`] what comes back.
//!
//! A read waits for readiness and then copies into a buffer that all connections of the thread share. So a connection
//! that waits costs no buffer, and a future that waits may be dropped.

use std::cell::RefCell;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::task::{Context, Poll};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use super::engine::{Runtime, Stream as _};
use super::exchange::{Exchange, Mode, Moment, Observer, Progress, Reply};
use super::verify::Failure;

/// Size of the thread's read buffer. Unit: bytes.
const READ_BYTES: usize = 64 * 1024;
/// Reads in a row before other connections have their turn.
const READS_PER_TURN: u32 = 16;

/// What all connections of a thread share while they read.
struct Scratch {
    read: Vec<u8>,
    plain: Vec<u8>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> =
        RefCell::new(Scratch { read: vec![0; READ_BYTES], plain: Vec::with_capacity(READ_BYTES) });
}

/// A connection to the subject. It is closed when it is dropped.
pub(crate) struct Connection<R: Runtime> {
    stream: R::Stream,
    reusable: bool,
}

impl<R: Runtime> Connection<R> {
    /// Connects.
    ///
    /// # Errors
    /// [`Failure::Connect`].
    pub async fn open(address: SocketAddr) -> Result<Self, Failure> {
        let stream = R::Stream::connect(address).await.map_err(|_| Failure::Connect)?;
        Ok(Self { stream, reusable: true })
    }

    /// Whether nothing has come since the last reply: neither the peer's close nor bytes that nobody asked for.
    pub fn is_quiet(&mut self) -> bool {
        self.stream.is_quiet()
    }

    /// The connection, if it may carry another request: its last reply was whole and announced no close.
    #[must_use]
    pub fn into_kept(self) -> Option<Self> {
        self.reusable.then_some(self)
    }

    /// Sends `request` and reads its reply, as a stream or whole; the times of the reply count from `from`.
    ///
    /// # Errors
    /// The [`Failure`] that ends the request. The connection can be kept only after a whole reply, be it a refusal.
    pub async fn exchange(
        &mut self,
        request: &[u8],
        mode: Mode,
        from: Instant,
        observer: &mut impl Observer,
    ) -> Result<Reply, Failure> {
        self.reusable = false;
        let mut exchange = Exchange::new(mode, from);
        // A subject may refuse early and close: then its reply says more than the failed write.
        let written = self.stream.write_all(request).await;
        if let Err(failure) = self.read_reply(&mut exchange, observer).await {
            return match (failure, written) {
                (Failure::ClosedBeforeHead | Failure::ResetBeforeHead, Err(_)) => Err(Failure::Write),
                (failure, _) => Err(failure),
            };
        }
        self.reusable = exchange.leaves_connection_reusable();
        exchange.finish(Instant::now(), observer)
    }

    async fn read_reply(
        &mut self,
        exchange: &mut Exchange,
        observer: &mut impl Observer,
    ) -> Result<(), Failure> {
        let mut in_a_row = 0;
        loop {
            let mut waited = false;
            let progress = poll_fn(|context| {
                let poll = self.poll_read_some(context, exchange, observer);
                waited |= poll.is_pending();
                poll
            })
            .await?;
            if progress == Progress::Done {
                return Ok(());
            }
            in_a_row = if waited { 0 } else { in_a_row + 1 };
            if in_a_row == READS_PER_TURN {
                in_a_row = 0;
                R::breathe().await;
            }
        }
    }

    fn poll_read_some(
        &mut self,
        context: &mut Context<'_>,
        exchange: &mut Exchange,
        observer: &mut impl Observer,
    ) -> Poll<Result<Progress, Failure>> {
        SCRATCH.with_borrow_mut(|scratch| {
            let Scratch { read, plain } = scratch;
            self.stream.poll_read(context, read).map(|done| match done {
                Ok(0) => exchange.handle_end(),
                Ok(length) => {
                    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                    let at = Moment { now: Instant::now(), wall };
                    exchange.handle_input(read.get(..length).unwrap_or_default(), at, plain, observer)
                }
                Err(_) => Err(exchange.handle_reset()),
            })
        })
    }
}
