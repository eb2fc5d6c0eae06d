//! One TCP connection on a shard.

use std::{
    cell::UnsafeCell,
    future::Future,
    io,
    net::{Shutdown, SocketAddr},
    pin::pin,
    rc::Rc,
    time::{Duration, Instant},
};

use bytes::BytesMut;
use futures::future::{Either, select};
use monoio::{
    buf::IoBuf,
    io::{AsyncReadRent, AsyncWriteRent, CancelableAsyncWriteRent, Canceller},
    net::TcpStream,
};

use super::{
    Patience,
    progress::{Progress, Stalled},
    sys,
};
use crate::{clock, time::sleep_until};

/// Why a write did not finish. The connection must be closed after either.
#[derive(Debug, thiserror::Error)]
pub enum WriteFault {
    /// The peer did not take all of the bytes before the deadline.
    #[error("the peer stopped reading")]
    Stalled,
    /// The connection broke.
    #[error("the connection broke")]
    Io(#[from] io::Error),
}

/// A connected TCP stream with Nagle off.
///
/// Inside it is always shared the way the runtime's own split does it, so that a readiness watch can stay armed while
/// writes go on: re-arming one per relayed event would cost two ring operations each. (The runtime's write half itself
/// will not do: its drop sends FIN, which would make a clean end out of [`Stream::reset_on_close`].)
pub struct Stream {
    shared: Shared,
    peer: SocketAddr,
}

/// One descriptor, used by a reader and a writer on one thread.
#[derive(Clone)]
struct Shared(Rc<UnsafeCell<TcpStream>>);

impl Shared {
    fn get(&self) -> &TcpStream {
        // SAFETY: the stream's methods only clone the descriptor out of it into an operation; no borrow of its fields is
        // ever kept, nothing is written to them, and all holders are on one thread.
        #[expect(unsafe_code, reason = "reads and writes of one socket at the same time")]
        unsafe {
            &*self.0.get()
        }
    }

    #[expect(clippy::mut_from_ref, reason = "the runtime's traits ask for `&mut` and use it as `&`")]
    fn get_mut(&self) -> &mut TcpStream {
        // SAFETY: as in `get`.
        #[expect(unsafe_code, reason = "as in `get`")]
        unsafe {
            &mut *self.0.get()
        }
    }
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stream").field("peer", &self.peer).finish_non_exhaustive()
    }
}

impl Stream {
    pub(super) fn new(inner: TcpStream, peer: SocketAddr) -> io::Result<Self> {
        inner.set_nodelay(true)?;
        Ok(Self::accepted(inner, peer))
    }

    /// A connection that has its options from its listener.
    pub(super) fn accepted(inner: TcpStream, peer: SocketAddr) -> Self {
        Self { shared: Shared(Rc::new(UnsafeCell::new(inner))), peer }
    }

    /// A future that owns its hold on the descriptor and ends when [`Stream::try_read`] has something to say. It may
    /// stay pending while this stream is written to, and may be dropped freely.
    pub fn watch(&self) -> impl Future<Output = io::Result<()>> + use<> {
        let shared = self.shared.clone();
        async move { shared.get().readable(false).await }
    }

    /// As [`Stream::watch`], for [`Stream::writable`].
    pub fn watch_writable(&self) -> impl Future<Output = io::Result<()>> + use<> {
        let shared = self.shared.clone();
        async move { shared.get().writable(false).await }
    }

    /// A second hold on the same socket, which stays open until both are dropped.
    pub(crate) fn share(&self) -> Self {
        Self { shared: self.shared.clone(), peer: self.peer }
    }

    #[cfg(test)]
    pub(super) fn is_nodelay(&self) -> bool {
        sys::with_socket(self.shared.get(), |s| s.tcp_nodelay()).unwrap()
    }

    /// The peer's address.
    pub fn peer_addr(&self) -> SocketAddr {
        self.peer
    }

    /// When the kernel gives the peer up, for a dialled connection: an accepted one has it from its listener.
    pub fn set_patience(&self, patience: Patience) {
        sys::with_socket(self.shared.get(), |s| patience.apply(&s));
    }

    /// Sets `TCP_NOTSENT_LOWAT`: a write waits while this many bytes wait in the kernel unsent, so that what is urgent later
    /// does not wait behind megabytes. Best effort.
    pub fn set_unsent_max(&self, bytes: u32) {
        let _set = sys::with_socket(self.shared.get(), |s| s.set_tcp_notsent_lowat(bytes));
    }

    /// Makes the coming close send RST instead of FIN, so that the peer cannot take what it has for a whole answer. That holds
    /// for whoever closes: also for the kernel when the process is killed.
    pub fn reset_on_close(&self) {
        let _set = sys::with_socket(self.shared.get(), |s| s.set_linger(Some(Duration::ZERO)));
    }

    /// Takes [`Stream::reset_on_close`] back.
    pub fn end_on_close(&self) {
        let _set = sys::with_socket(self.shared.get(), |s| s.set_linger(None));
    }

    /// Waits until [`Stream::try_read`] has something to say (data, end or error). Holds no buffer; may be dropped freely.
    ///
    /// # Errors
    /// The poll itself failed.
    pub async fn readable(&self) -> io::Result<()> {
        self.shared.get().readable(false).await
    }

    /// Appends at most `max` bytes without waiting. `None` = nothing there, `Some(0)` = end of stream.
    ///
    /// # Errors
    /// The connection broke.
    pub fn try_read(&self, buffer: &mut BytesMut, max: usize) -> io::Result<Option<usize>> {
        sys::try_receive(self.shared.get(), buffer, max)
    }

    /// Whether the peer has closed its side or the connection broke, and nothing is left to read before that.
    pub fn is_at_end(&self) -> bool {
        sys::is_at_end(self.shared.get())
    }

    /// Bytes that have arrived and were not read.
    pub(crate) fn unread(&self) -> usize {
        sys::unread(self.shared.get())
    }

    /// Bytes that were sent and that the peer has not acknowledged.
    ///
    /// # Errors
    /// The socket is dead.
    pub fn unacknowledged(&self) -> io::Result<usize> {
        sys::unacknowledged(self.shared.get())
    }

    /// Sends what the socket takes of `bytes` without waiting. `None` = it takes nothing now: wait for
    /// [`Stream::writable`].
    ///
    /// # Errors
    /// The connection broke.
    pub fn try_write(&self, bytes: &[u8]) -> io::Result<Option<usize>> {
        sys::try_send(self.shared.get(), bytes)
    }

    /// Waits until [`Stream::try_write`] has something to say. Holds no buffer; may be dropped freely, and may wait beside
    /// a [`Stream::watch`].
    ///
    /// # Errors
    /// The poll itself failed.
    pub async fn writable(&self) -> io::Result<()> {
        self.shared.get().writable(false).await
    }

    /// Sends all of `bytes`, for as long as it takes, as long as the peer takes some: one that acknowledges nothing for
    /// `stall` has stopped reading. Costs one system call and no timer when the socket takes it all at once, as it usually
    /// does. Dropped, an unknown part has been sent.
    ///
    /// # Errors
    /// [`WriteFault::Stalled`] within an eighth of `stall` after it, [`WriteFault::Io`] when the connection broke.
    pub async fn send_all(&self, bytes: &[u8], stall: Duration) -> Result<(), WriteFault> {
        match self.try_write(bytes)? {
            Some(sent) if sent == bytes.len() => Ok(()),
            // In a box of its own: every task that writes would otherwise be as large as this wait, for ever.
            sent => {
                let rest = bytes.get(sent.unwrap_or(0)..).unwrap_or_default();
                Box::pin(self.send_patiently(rest, stall)).await
            }
        }
    }

    async fn send_patiently(&self, mut rest: &[u8], stall: Duration) -> Result<(), WriteFault> {
        let queued = || sys::unacknowledged(self.shared.get());
        let mut progress = Progress::new(stall, queued()?, clock::now());
        while !rest.is_empty() {
            let (room, pause) = (pin!(self.writable()), pin!(sleep_until(progress.poll_timeout())));
            match select(room, pause).await {
                Either::Left((room, _)) => {
                    room?;
                    let sent = self.try_write(rest)?.unwrap_or(0);
                    rest = rest.get(sent..).unwrap_or_default();
                    progress.sent(sent);
                }
                Either::Right(((), _)) => {}
            }
            progress.handle(queued()?, clock::now()).map_err(|Stalled| WriteFault::Stalled)?;
        }
        Ok(())
    }

    /// Waits for data and appends at most `max` bytes; 0 = end of stream. May be dropped freely.
    ///
    /// # Errors
    /// The connection broke.
    pub async fn read_some(&self, buffer: &mut BytesMut, max: usize) -> io::Result<usize> {
        loop {
            self.readable().await?;
            if let Some(n) = self.try_read(buffer, max)? {
                return Ok(n);
            }
        }
    }

    /// Completion read into the spare capacity of `buffer`. The data is lost when the future is dropped, so it may be
    /// dropped only to close the stream.
    pub async fn read(&mut self, buffer: BytesMut) -> (io::Result<usize>, BytesMut) {
        read_spare(self.shared.get_mut(), buffer).await
    }

    /// Writes all of `buffer` and gives it back.
    ///
    /// # Errors
    /// [`WriteFault::Stalled`] at `deadline`, [`WriteFault::Io`] when the connection broke; either way unknown bytes
    /// have been sent and the stream is of no use any more.
    pub async fn write_all<B: IoBuf>(&mut self, buffer: B, deadline: Instant) -> (Result<(), WriteFault>, B) {
        write_all(self.shared.get_mut(), buffer, deadline).await
    }

    /// Sends FIN.
    pub fn shutdown_write(&self) {
        let _shut = sys::with_socket(self.shared.get(), |s| s.shutdown(Shutdown::Write));
    }

    /// Splits for full duplex: a reader task and a writer task on the same shard.
    pub fn into_split(self) -> (ReadHalf, WriteHalf) {
        (ReadHalf { shared: self.shared.clone() }, WriteHalf { shared: self.shared })
    }
}

/// The reading half of a split stream.
pub struct ReadHalf {
    shared: Shared,
}

impl std::fmt::Debug for ReadHalf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReadHalf").finish_non_exhaustive()
    }
}

impl ReadHalf {
    /// Completion read into the spare capacity of `buffer`; `Ok(0)` = end of stream. After [`WriteHalf::stop_reader`] it
    /// gives what has arrived, and then the end. Drive it to its end.
    pub async fn read(&mut self, buffer: BytesMut) -> (io::Result<usize>, BytesMut) {
        read_spare(self.shared.get_mut(), buffer).await
    }
}

/// The writing half of a split stream.
///
/// It writes without a completion: what the socket takes is gone within the call, and there is nothing under way that would
/// have to be cancelled and awaited.
pub struct WriteHalf {
    shared: Shared,
}

impl std::fmt::Debug for WriteHalf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WriteHalf").finish_non_exhaustive()
    }
}

impl WriteHalf {
    /// As [`Stream::try_write`], but `Ok(0)` where it takes nothing now.
    ///
    /// # Errors
    /// The connection broke.
    pub fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        Ok(sys::try_send(self.shared.get(), bytes)?.unwrap_or(0))
    }

    /// Writes all of `bytes`. Dropped, an unknown part has been sent.
    ///
    /// # Errors
    /// [`WriteFault::Stalled`] at `deadline`, [`WriteFault::Io`] when the connection broke.
    pub async fn write_until(&self, mut bytes: &[u8], deadline: Instant) -> Result<(), WriteFault> {
        let mut late = pin!(sleep_until(deadline));
        loop {
            let sent = self.try_write(bytes)?;
            bytes = bytes.get(sent..).unwrap_or_default();
            if bytes.is_empty() {
                return Ok(());
            }
            match select(pin!(self.shared.get().writable(false)), late.as_mut()).await {
                Either::Left((room, _)) => room?,
                Either::Right(((), _)) => return Err(WriteFault::Stalled),
            }
        }
    }

    /// Sends FIN.
    pub fn shutdown(&self) {
        let _shut = sys::with_socket(self.shared.get(), |s| s.shutdown(Shutdown::Write));
    }

    /// Ends the other half: its pending and later reads find the end of the stream, behind what has arrived.
    pub fn stop_reader(&self) {
        let _shut = sys::with_socket(self.shared.get(), |s| s.shutdown(Shutdown::Read));
    }
}

impl Drop for WriteHalf {
    fn drop(&mut self) {
        self.stop_reader();
    }
}

async fn read_spare<R: AsyncReadRent>(from: &mut R, buffer: BytesMut) -> (io::Result<usize>, BytesMut) {
    let start = buffer.len();
    let room = buffer.capacity() - start;
    let (result, slice) = from.read(buffer.slice_mut_from(start, room)).await;
    (result, slice.into_inner())
}

/// A mutable view of a buffer's spare capacity.
trait SliceMutFrom: Sized {
    fn slice_mut_from(self, start: usize, room: usize) -> monoio::buf::SliceMut<Self>;
}

impl SliceMutFrom for BytesMut {
    fn slice_mut_from(self, start: usize, room: usize) -> monoio::buf::SliceMut<Self> {
        monoio::buf::IoBufMut::slice_mut(self, start..start + room)
    }
}

async fn write_all<W, B>(to: &mut W, buffer: B, deadline: Instant) -> (Result<(), WriteFault>, B)
where
    W: AsyncWriteRent + CancelableAsyncWriteRent,
    B: IoBuf,
{
    let whole = buffer.bytes_init();
    let mut sent = 0;
    let mut buffer = buffer;
    while sent < whole {
        let canceller = Canceller::new();
        let (result, back, stalled) = {
            let mut write = pin!(to.cancelable_write(buffer.slice(sent..whole), canceller.handle()));
            let sleep = pin!(sleep_until(deadline));
            match select(write.as_mut(), sleep).await {
                Either::Left(((result, slice), _)) => (result, slice.into_inner(), false),
                Either::Right(((), _)) => {
                    let _next = canceller.cancel();
                    let (result, slice) = write.await;
                    (result, slice.into_inner(), true)
                }
            }
        };
        buffer = back;
        match result {
            Ok(0) => return (Err(WriteFault::Io(io::ErrorKind::WriteZero.into())), buffer),
            Ok(n) => sent += n,
            Err(_) if stalled => return (Err(WriteFault::Stalled), buffer),
            Err(error) => return (Err(WriteFault::Io(error)), buffer),
        }
        if stalled && sent < whole {
            return (Err(WriteFault::Stalled), buffer);
        }
    }
    (Ok(()), buffer)
}
