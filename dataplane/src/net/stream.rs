//! One TCP connection on a shard.

use std::{
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
    io::{
        AsyncReadRent, AsyncWriteRent, CancelableAsyncReadRent, CancelableAsyncWriteRent, Canceller,
        OwnedReadHalf, OwnedWriteHalf, Splitable,
    },
    net::TcpStream,
};

use super::sys;
use crate::time::sleep_until;

/// Why a write did not finish. The connection must be closed after either.
#[derive(Debug, thiserror::Error)]
pub enum WriteFault {
    /// The peer took no bytes until the deadline.
    #[error("the peer stopped reading")]
    Stalled,
    /// The connection broke.
    #[error("the connection broke")]
    Io(#[from] io::Error),
}

/// A connected TCP stream with Nagle off.
///
/// Inside it is always split the runtime's way (two halves over one shared descriptor), so that a readiness watch can
/// stay armed while writes go on: re-arming one per relayed event would cost two ring operations each.
pub struct Stream {
    read: OwnedReadHalf<TcpStream>,
    write: OwnedWriteHalf<TcpStream>,
    peer: SocketAddr,
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stream").field("peer", &self.peer).finish_non_exhaustive()
    }
}

impl Stream {
    pub(super) fn new(inner: TcpStream, peer: SocketAddr) -> io::Result<Self> {
        inner.set_nodelay(true)?;
        let (read, write) = inner.into_split();
        Ok(Self { read, write, peer })
    }

    /// Takes a std stream, in whatever blocking mode it is.
    ///
    /// # Errors
    /// The socket is dead or cannot be registered with the shard's driver.
    pub fn from_std(stream: std::net::TcpStream) -> io::Result<Self> {
        let peer = stream.peer_addr()?;
        sys::prepare(&stream)?;
        Self::new(TcpStream::from_std(stream)?, peer)
    }

    fn socket(&self) -> &TcpStream {
        // SAFETY: nobody keeps a reference into the cell: the halves' methods only clone the descriptor out of it into
        // an operation, on this one thread, and never hold a borrow of the stream's fields.
        #[expect(unsafe_code, reason = "the runtime offers readiness and options on the whole stream only")]
        unsafe {
            &*self.read.0.get()
        }
    }

    /// A future that owns its hold on the descriptor and ends when [`Stream::try_read`] has something to say. It may
    /// stay pending while this stream is written to, and may be dropped freely.
    pub fn watch(&self) -> impl Future<Output = io::Result<()>> + use<> {
        let shared = Rc::clone(&self.read.0);
        async move {
            // SAFETY: as in `socket`; the `Rc` keeps the stream alive for as long as this future is.
            #[expect(unsafe_code, reason = "as in `socket`")]
            let socket = unsafe { &*shared.get() };
            socket.readable(false).await
        }
    }

    /// The peer's address.
    pub fn peer_addr(&self) -> SocketAddr {
        self.peer
    }

    /// Sets TCP_USER_TIMEOUT: unacknowledged data for this long breaks the connection.
    ///
    /// # Errors
    /// The socket is dead.
    pub fn set_user_timeout(&self, timeout: Duration) -> io::Result<()> {
        sys::with_socket(self.socket(), |s| s.set_tcp_user_timeout(Some(timeout)))
    }

    /// Makes the coming close send RST instead of FIN, so that the peer cannot take what it has for a whole answer.
    pub fn reset_on_close(&self) {
        let _set = sys::with_socket(self.socket(), |s| s.set_linger(Some(Duration::ZERO)));
    }

    /// Waits until [`Stream::try_read`] has something to say (data, end or error). Holds no buffer; may be dropped freely.
    ///
    /// # Errors
    /// The poll itself failed.
    pub async fn readable(&self) -> io::Result<()> {
        self.socket().readable(false).await
    }

    /// Appends at most `max` bytes without waiting. `None` = nothing there, `Some(0)` = end of stream.
    ///
    /// # Errors
    /// The connection broke.
    pub fn try_read(&self, buffer: &mut BytesMut, max: usize) -> io::Result<Option<usize>> {
        sys::try_receive(self.socket(), buffer, max)
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
        read_spare(&mut self.read, buffer).await
    }

    /// Writes all of `buffer` and gives it back.
    ///
    /// # Errors
    /// [`WriteFault::Stalled`] at `deadline`, [`WriteFault::Io`] when the connection broke; either way unknown bytes
    /// have been sent and the stream is of no use any more.
    pub async fn write_all<B: IoBuf>(&mut self, buffer: B, deadline: Instant) -> (Result<(), WriteFault>, B) {
        write_all(&mut self.write, buffer, deadline).await
    }

    /// Sends FIN.
    pub fn shutdown_write(&self) {
        let _shut = sys::with_socket(self.socket(), |s| s.shutdown(Shutdown::Write));
    }

    /// Splits for full duplex: a reader task and a writer task on the same shard.
    pub fn into_split(self) -> (ReadHalf, WriteHalf) {
        let canceller = Canceller::new();
        (
            ReadHalf { inner: self.read, cancel: canceller.handle() },
            WriteHalf { inner: self.write, canceller: Some(canceller) },
        )
    }
}

/// The reading half of a split stream.
pub struct ReadHalf {
    inner: OwnedReadHalf<TcpStream>,
    cancel: monoio::io::CancelHandle,
}

impl std::fmt::Debug for ReadHalf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReadHalf").finish_non_exhaustive()
    }
}

impl ReadHalf {
    /// Completion read into the spare capacity of `buffer`; `Ok(0)` = end of stream. After [`WriteHalf::stop_reader`] it
    /// gives `ECANCELED`. Drive it to its end.
    pub async fn read(&mut self, buffer: BytesMut) -> (io::Result<usize>, BytesMut) {
        let start = buffer.len();
        let room = buffer.capacity() - start;
        let handle = self.cancel.clone();
        let (result, slice) = self.inner.cancelable_read(buffer.slice_mut_from(start, room), handle).await;
        (result, slice.into_inner())
    }
}

/// The writing half of a split stream.
pub struct WriteHalf {
    inner: OwnedWriteHalf<TcpStream>,
    canceller: Option<Canceller>,
}

impl std::fmt::Debug for WriteHalf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WriteHalf").finish_non_exhaustive()
    }
}

impl WriteHalf {
    /// As [`Stream::write_all`].
    ///
    /// # Errors
    /// As [`Stream::write_all`].
    pub async fn write_all<B: IoBuf>(&mut self, buffer: B, deadline: Instant) -> (Result<(), WriteFault>, B) {
        write_all(&mut self.inner, buffer, deadline).await
    }

    /// Sends FIN.
    pub async fn shutdown(&mut self) {
        let _shut = self.inner.shutdown().await;
    }

    /// Ends the other half's pending and later reads with `ECANCELED`.
    pub fn stop_reader(&mut self) {
        if let Some(canceller) = self.canceller.take() {
            let _next = canceller.cancel();
        }
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
