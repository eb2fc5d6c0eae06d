//! A client of HTTP/2 that reads and writes frames, for what no ordinary client does. It shares nothing with the product.

use std::{
    collections::BTreeMap,
    io::{Read, Write},
    net::TcpStream,
    time::Duration,
};

use anyhow::{Context, ensure};

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;
/// The most that a window may be.
const WINDOW_MAX: u32 = 0x7fff_ffff;
/// Bytes of a frame that every server takes.
const FRAME: usize = 16_384;

/// What has come of one request.
#[derive(Clone, Debug, Default)]
pub struct Stream {
    /// The block of its head, compressed.
    pub head: Vec<u8>,
    /// Its body so far.
    pub body: Vec<u8>,
    /// Whether it ended as a whole response does.
    pub ended: bool,
    /// The code that it was reset with.
    pub reset: Option<u32>,
}

impl Stream {
    /// Whether the status is 200, as servers commonly write it: an index of the static table.
    #[must_use]
    pub fn is_ok(&self) -> bool {
        self.head.first() == Some(&0x88)
    }

    /// Whether nothing more comes.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.ended || self.reset.is_some()
    }
}

/// One connection.
pub struct Client {
    socket: TcpStream,
    next: u32,
    /// All of its requests, by the stream's number.
    pub streams: BTreeMap<u32, Stream>,
    /// The code of the server's last GOAWAY.
    pub goaway: Option<u32>,
}

impl Client {
    /// Connects with prior knowledge, and opens its windows as far as they go.
    ///
    /// # Errors
    /// The server does not take it.
    pub fn connect(address: &str) -> anyhow::Result<Self> {
        let socket = TcpStream::connect(address)?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(Duration::from_secs(30)))?;
        socket.set_write_timeout(Some(Duration::from_secs(30)))?;
        let mut client = Self { socket, next: 1, streams: BTreeMap::new(), goaway: None };
        client.socket.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")?;
        let mut settings = vec![0, 4];
        settings.extend(WINDOW_MAX.to_be_bytes());
        client.frame(SETTINGS, 0, 0, &settings)?;
        client.frame(WINDOW_UPDATE, 0, 0, &(WINDOW_MAX - 65_535).to_be_bytes())?;
        Ok(client)
    }

    /// Sends a frame.
    ///
    /// # Errors
    /// The server takes none.
    pub fn frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> anyhow::Result<()> {
        let length = u32::try_from(payload.len())?.to_be_bytes();
        let mut frame = length[1..].to_vec();
        frame.extend([kind, flags]);
        frame.extend(stream.to_be_bytes());
        frame.extend(payload);
        Ok(self.socket.write_all(&frame)?)
    }

    /// Begins a POST whose body fits into the first window; its stream's number.
    ///
    /// # Errors
    /// The server takes no more.
    pub fn post(&mut self, path: &str, token: &str, body: &[u8]) -> anyhow::Result<u32> {
        let stream = self.next;
        self.next += 2;
        let bearer = format!("Bearer {token}");
        let mut block = Vec::new();
        for (name, value) in [
            (":method", "POST"),
            (":scheme", "http"),
            (":authority", "edge"),
            (":path", path),
            ("authorization", &bearer),
            ("content-type", "application/json"),
        ] {
            // A literal without an index, not compressed (RFC 7541 section 6.2.2), shorter than a prefix holds.
            ensure!(name.len() < 127 && value.len() < 127, "a field for longer lengths");
            block.extend([0, u8::try_from(name.len())?]);
            block.extend(name.as_bytes());
            block.push(u8::try_from(value.len())?);
            block.extend(value.as_bytes());
        }
        self.frame(HEADERS, END_HEADERS, stream, &block)?;
        let mut pieces = body.chunks(FRAME).peekable();
        while let Some(piece) = pieces.next() {
            let flags = if pieces.peek().is_none() { END_STREAM } else { 0 };
            self.frame(DATA, flags, stream, piece)?;
        }
        self.streams.insert(stream, Stream::default());
        Ok(stream)
    }

    /// Gives a request up.
    ///
    /// # Errors
    /// The server takes no more.
    pub fn cancel(&mut self, stream: u32) -> anyhow::Result<()> {
        self.frame(RESET, 0, stream, &8_u32.to_be_bytes())
    }

    /// Reads a frame, and answers it where that is asked. `false` = the connection is over.
    ///
    /// # Errors
    /// Nothing comes.
    pub fn step(&mut self) -> anyhow::Result<bool> {
        let mut head = [0; 9];
        match self.socket.read_exact(&mut head) {
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(false),
            read => read.context("no frame")?,
        }
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; usize::try_from(length)?];
        self.socket.read_exact(&mut payload)?;
        let number = u32::from_be_bytes([head[5] & 0x7f, head[6], head[7], head[8]]);
        let (kind, flags) = (head[3], head[4]);
        let code = |at: usize| -> anyhow::Result<u32> {
            Ok(u32::from_be_bytes(payload.get(at..at + 4).context("no code")?.try_into()?))
        };
        match kind {
            SETTINGS if flags & ACK == 0 => self.frame(SETTINGS, ACK, 0, &[])?,
            PING if flags & ACK == 0 => self.frame(PING, ACK, 0, &payload.clone())?,
            GOAWAY => self.goaway = Some(code(4)?),
            HEADERS | DATA | RESET => {
                let reset = (kind == RESET).then(|| code(0)).transpose()?;
                let stream = self.streams.entry(number).or_default();
                match kind {
                    HEADERS => stream.head = payload,
                    DATA => stream.body.extend(payload),
                    _ => stream.reset = reset,
                }
                stream.ended |= kind != RESET && flags & END_STREAM != 0;
            }
            _ => {}
        }
        Ok(true)
    }

    /// Reads until it is so.
    ///
    /// # Errors
    /// The connection ends before.
    pub fn until(&mut self, what: &str, is: impl Fn(&Self) -> bool) -> anyhow::Result<()> {
        while !is(self) {
            ensure!(self.step()?, "the connection ended before {what}");
        }
        Ok(())
    }

    /// A request as it stands.
    ///
    /// # Panics
    /// There was none of this number.
    #[must_use]
    pub fn stream(&self, number: u32) -> &Stream {
        &self.streams[&number]
    }
}
