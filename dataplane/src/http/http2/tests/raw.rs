//! A client that writes frames as it pleases.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    sync::Arc,
};

use rustls::{ClientConfig, ClientConnection, StreamOwned};

use super::harness::PATIENCE;

pub(super) const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
pub(super) const PRIORITY: u8 = 2;
pub(super) const RESET: u8 = 3;
pub(super) const SETTINGS: u8 = 4;
pub(super) const PING: u8 = 6;
pub(super) const GOAWAY: u8 = 7;
pub(super) const WINDOW_UPDATE: u8 = 8;
pub(super) const CONTINUATION: u8 = 9;

pub(super) const END_STREAM: u8 = 1;
pub(super) const END_HEADERS: u8 = 4;
const ACK: u8 = 1;

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) stream: u32,
    pub(super) payload: Vec<u8>,
}

impl Frame {
    /// The code of a RST_STREAM or GOAWAY.
    pub(super) fn code(&self) -> u32 {
        let code = match self.kind {
            RESET => &self.payload[..4],
            GOAWAY => &self.payload[4..8],
            kind => panic!("no code in a frame of type {kind}"),
        };
        u32::from_be_bytes(code.try_into().unwrap())
    }
}

/// What frames go over.
trait Carrier: Read + Write {}

impl<C: Read + Write> Carrier for C {}

pub(super) struct Raw {
    carrier: Box<dyn Carrier>,
    socket: TcpStream,
}

impl Raw {
    /// Connected, with nothing said.
    pub(super) fn open(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        let socket = stream.try_clone().unwrap();
        Self { carrier: Box::new(stream), socket }
    }

    /// As [`Raw::open`], under TLS.
    pub(super) fn open_secure(address: SocketAddr, config: ClientConfig, name: &'static str) -> Self {
        let plain = Self::open(address);
        let socket = plain.socket.try_clone().unwrap();
        let session = ClientConnection::new(Arc::new(config), name.try_into().unwrap()).unwrap();
        Self { carrier: Box::new(StreamOwned::new(session, plain.socket)), socket }
    }

    /// Connected, and past the preface.
    pub(super) fn connect(address: SocketAddr) -> Self {
        Self::open(address).begin()
    }

    /// Past the preface.
    pub(super) fn begin(mut self) -> Self {
        let raw = &mut self;
        raw.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
        raw.frame(SETTINGS, 0, 0, &[]);
        self
    }

    pub(super) fn send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.carrier.write_all(bytes)
    }

    /// Sends a frame; whether the server still takes any.
    pub(super) fn frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> bool {
        self.send(&frame(kind, flags, stream, payload)).is_ok()
    }

    /// The next frame; `None` at the end of the connection.
    pub(super) fn next(&mut self) -> Option<Frame> {
        let mut head = [0; 9];
        self.carrier.read_exact(&mut head).ok()?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; usize::try_from(length).unwrap()];
        self.carrier.read_exact(&mut payload).ok()?;
        let stream = u32::from_be_bytes([head[5] & 0x7f, head[6], head[7], head[8]]);
        Some(Frame { kind: head[3], flags: head[4], stream, payload })
    }

    /// The next frame of a type, whatever comes before it. Acknowledges settings.
    pub(super) fn next_of(&mut self, kind: u8) -> Option<Frame> {
        loop {
            let frame = self.next()?;
            if frame.kind == kind && !(kind == SETTINGS && frame.flags & ACK != 0) {
                return Some(frame);
            }
        }
    }

    /// The code of the GOAWAY that must come, and that nothing comes behind it.
    pub(super) fn goaway(&mut self) -> Option<u32> {
        let code = self.next_of(GOAWAY)?.code();
        while let Some(frame) = self.next() {
            assert_ne!(frame.kind, HEADERS, "an answer behind the end");
        }
        Some(code)
    }

    /// Whether the connection ends as it should, under TLS by close_notify, whatever comes before.
    pub(super) fn ends_well(&mut self) -> bool {
        self.carrier.read_to_end(&mut Vec::new()).is_ok()
    }

    /// Closes the sending side.
    pub(super) fn end(&self) {
        self.socket.shutdown(std::net::Shutdown::Write).unwrap();
    }

    /// Everything up to the end of the connection.
    pub(super) fn rest(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        let _reset = self.carrier.read_to_end(&mut rest);
        rest
    }

    /// Sends a request without a body, in as many frames as its head needs.
    pub(super) fn headers(&mut self, stream: u32, block: &[u8]) {
        let mut pieces = block.chunks(16_000).peekable();
        let (mut kind, mut flags) = (HEADERS, END_STREAM);
        while let Some(piece) = pieces.next() {
            let end = if pieces.peek().is_none() { END_HEADERS } else { 0 };
            self.frame(kind, flags | end, stream, piece);
            (kind, flags) = (CONTINUATION, 0);
        }
    }
}

/// A frame as bytes.
pub(super) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut out = length[1..].to_vec();
    out.extend([kind, flags]);
    out.extend(stream.to_be_bytes());
    out.extend(payload);
    out
}

/// A header block: literals without indexing, not compressed (RFC 7541 section 6.2.2).
pub(super) fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, value) in fields {
        out.push(0);
        for text in [name, value] {
            integer(&mut out, text.len());
            out.extend(text.as_bytes());
        }
    }
    out
}

/// With a prefix of 7 bits (RFC 7541 section 5.1).
fn integer(out: &mut Vec<u8>, value: usize) {
    if value < 127 {
        out.push(u8::try_from(value).unwrap());
        return;
    }
    out.push(127);
    let mut rest = value - 127;
    while rest >= 128 {
        out.push(u8::try_from(rest % 128).unwrap() | 128);
        rest /= 128;
    }
    out.push(u8::try_from(rest).unwrap());
}

/// A request's block with these fields more.
pub(super) fn request(method: &str, path: &str, more: &[(&str, &str)]) -> Vec<u8> {
    let mut fields =
        vec![(":method", method), (":scheme", "http"), (":authority", "edge.test"), (":path", path)];
    fields.extend(more);
    block(&fields)
}
