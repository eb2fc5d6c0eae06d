//! One connection of the provider: reads requests, writes split replies, and notices at once when the peer
//! leaves.

use std::io;
use std::time::Duration;

use bytes::{Buf as _, Bytes, BytesMut};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until, timeout};

use super::http::{self, BODY_BYTES_MAX, BodyFraming, Head, HeadError};
use super::script::Split;
use crate::chunked::{ChunkError, Decoder};

/// What a peer may send ahead of its turn; beyond it the peer is no longer watched. Unit: bytes.
const READ_AHEAD_BYTES_MAX: usize = 256 * 1024;

/// The peer has closed or reset the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("peer has left")]
pub struct Gone;

/// Why no request came.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The peer closed between requests, or before its first one.
    #[error("connection ended before a request head")]
    Ended,
    /// Nothing came within the idle limit.
    #[error("connection was idle for too long")]
    Idle,
    /// The connection ended in the middle of a body.
    #[error("connection ended within a request body")]
    BodyCut,
    /// The head is not acceptable.
    #[error("request head is not acceptable")]
    Head(#[from] HeadError),
    /// The body is not acceptable.
    #[error("request body is not acceptable")]
    Body(#[from] ChunkError),
    /// The body exceeds [`BODY_BYTES_MAX`].
    #[error("request body is too large")]
    TooLarge,
}

/// A connection and what has been read from it ahead of its turn.
#[derive(Debug)]
pub struct Wire {
    stream: TcpStream,
    input: BytesMut,
    /// Whether only a failing write tells that the peer has left.
    deaf: bool,
}

impl Wire {
    /// Takes over an accepted connection.
    #[must_use]
    pub fn new(stream: TcpStream) -> Self {
        Self { stream, input: BytesMut::with_capacity(4096), deaf: false }
    }

    /// Whether from now on only a failing write tells that the peer has left, as with servers that do not look.
    pub fn set_deaf(&mut self, deaf: bool) {
        self.deaf = deaf;
    }

    /// The next request, head and body. `idle` limits the wait for the first byte of the head; zero is no
    /// limit.
    ///
    /// # Errors
    /// [`ReadError`]; nothing more can be read from the connection then.
    pub async fn read_request(&mut self, idle: Duration) -> Result<(Head, Bytes), ReadError> {
        if self.input.is_empty() && !idle.is_zero() {
            timeout(idle, self.fill())
                .await
                .map_err(|_| ReadError::Idle)?
                .map_err(|Gone| ReadError::Ended)?;
        }
        let head = loop {
            if let Some((head, length)) = http::parse_head(&self.input)? {
                self.input.advance(length);
                break head;
            }
            self.fill().await.map_err(|Gone| ReadError::Ended)?;
        };
        if head.expect_continue && self.input.is_empty() {
            self.send(b"HTTP/1.1 100 Continue\r\n\r\n").await.map_err(|Gone| ReadError::BodyCut)?;
        }
        let body = match head.framing {
            BodyFraming::Length(length) => self.read_length(length).await?,
            BodyFraming::Chunked => self.read_chunked().await?,
        };
        Ok((head, body))
    }

    async fn read_length(&mut self, length: u64) -> Result<Bytes, ReadError> {
        // The head's parser has bounded it by BODY_BYTES_MAX.
        let length = usize::try_from(length).map_err(|_| ReadError::TooLarge)?;
        while self.input.len() < length {
            self.fill().await.map_err(|Gone| ReadError::BodyCut)?;
        }
        Ok(self.input.split_to(length).freeze())
    }

    async fn read_chunked(&mut self) -> Result<Bytes, ReadError> {
        let (mut decoder, mut body) = (Decoder::default(), Vec::new());
        loop {
            let used = decoder.decode(&self.input, &mut body)?;
            self.input.advance(used);
            if decoder.is_done() {
                return Ok(Bytes::from(body));
            }
            if body.len() as u64 > BODY_BYTES_MAX {
                return Err(ReadError::TooLarge);
            }
            self.fill().await.map_err(|Gone| ReadError::BodyCut)?;
        }
    }

    /// Waits for input and reads some.
    async fn fill(&mut self) -> Result<(), Gone> {
        loop {
            self.stream.readable().await.map_err(|_| Gone)?;
            self.input.reserve(4096);
            match self.stream.try_read_buf(&mut self.input) {
                Ok(0) => return Err(Gone),
                Ok(_) => return Ok(()),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return Err(Gone),
            }
        }
    }

    /// Writes all of `bytes` in as few writes as the socket allows.
    ///
    /// There is no time limit on purpose: a peer that does not read holds its own stream up, for as long as
    /// it stays.
    ///
    /// # Errors
    /// [`Gone`] as soon as the peer has left, even while the socket takes no bytes.
    pub async fn send(&mut self, mut bytes: &[u8]) -> Result<(), Gone> {
        while !bytes.is_empty() {
            match self.stream.try_write(bytes) {
                Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    tokio::select! {
                        ready = self.stream.writable() => ready.map_err(|_| Gone)?,
                        Gone = watch(&self.stream, &mut self.input, self.deaf) => return Err(Gone),
                    }
                }
                Err(_) => return Err(Gone),
            }
        }
        Ok(())
    }

    /// Writes `bytes` in the pieces of `split`, with `pause` between them.
    ///
    /// # Errors
    /// As [`Wire::send`].
    pub async fn send_split(&mut self, bytes: &[u8], split: Split, pause: Duration) -> Result<(), Gone> {
        let pieces: Vec<&[u8]> = match split {
            Split::Whole => return self.send(bytes).await,
            Split::Pieces(size) => bytes.chunks(size.max(1)).collect(),
            Split::At(offset) => {
                let (first, second) = bytes.split_at(offset.min(bytes.len()));
                vec![first, second]
            }
        };
        for (index, piece) in pieces.into_iter().enumerate() {
            if index > 0 && !pause.is_zero() {
                self.pause(Instant::now() + pause).await?;
            }
            self.send(piece).await?;
            if pause.is_zero() {
                tokio::task::yield_now().await;
            }
        }
        Ok(())
    }

    /// Waits until `deadline`.
    ///
    /// # Errors
    /// [`Gone`] as soon as the peer has left.
    pub async fn pause(&mut self, deadline: Instant) -> Result<(), Gone> {
        tokio::select! {
            () = sleep_until(deadline) => Ok(()),
            Gone = watch(&self.stream, &mut self.input, self.deaf) => Err(Gone),
        }
    }

    /// Waits until the peer has left.
    pub async fn stall(&mut self) -> Gone {
        watch(&self.stream, &mut self.input, self.deaf).await
    }

    /// Ends the connection with a reset instead of a close.
    pub fn reset(self) {
        // Zero linger makes close send RST; if the option is refused, an ordinary close is all there is.
        let _ = socket2::SockRef::from(&self.stream).set_linger(Some(Duration::ZERO));
    }

    /// Ends the connection in good order: sends FIN, then reads on for a moment, because a close with unread
    /// input would reset the connection and destroy what is still on its way.
    pub async fn close(mut self) {
        const LINGER: Duration = Duration::from_millis(500);
        let _ = tokio::io::AsyncWriteExt::shutdown(&mut self.stream).await;
        let _ = timeout(LINGER, async {
            while self.fill().await.is_ok() {
                self.input.clear();
            }
        })
        .await;
    }
}

/// Reads ahead until the peer leaves; it never returns while the peer stays, nor when `deaf`.
async fn watch(stream: &TcpStream, input: &mut BytesMut, deaf: bool) -> Gone {
    if deaf {
        return std::future::pending().await;
    }
    loop {
        if input.len() >= READ_AHEAD_BYTES_MAX {
            return std::future::pending().await;
        }
        if stream.readable().await.is_err() {
            return Gone;
        }
        input.reserve(4096);
        match stream.try_read_buf(input) {
            Ok(0) => return Gone,
            Ok(_) => {}
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => return Gone,
        }
    }
}
