//! A provider in this process, and a raw socket to look at its bytes.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use iop_perf::chunked::Decoder;
use iop_perf::provider::{Config, Provider, Script};
use serde_json::Value;

/// Nothing in these tests takes longer than this unless it is broken.
pub const PATIENCE: Duration = Duration::from_secs(10);

pub fn config(script: &str) -> Config {
    Config {
        listen: "127.0.0.1:0".parse().unwrap(),
        script: Script::parse(script).unwrap(),
        models: vec!["a".to_owned(), "b".to_owned()],
        strict_models: false,
        api_key: None,
        keepalive_idle: Duration::ZERO,
        steps: None,
    }
}

/// Starts a provider on its own thread; it lives until the test's process ends.
pub fn start(config: Config) -> SocketAddr {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async move {
            let provider = Provider::bind(config).await.unwrap();
            sender.send(provider.local_addr().unwrap()).unwrap();
            provider.run().await;
        });
    });
    receiver.recv_timeout(PATIENCE).unwrap()
}

/// How a connection ended after the bytes that were read from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Closed,
    Reset,
    StillOpen,
}

pub struct Client(pub TcpStream);

impl Client {
    pub fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self(stream)
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).unwrap();
    }

    /// Sends a chat request under `script`, which travels in the header.
    pub fn chat(&mut self, script: &str, stream: bool) {
        let body = format!(
            r#"{{"model":"m","messages":[],"stream":{stream},"stream_options":{{"include_usage":true}}}}"#
        );
        self.send(&chat_request(script, &body));
    }

    /// Reads until the connection ends or is silent for `silence`.
    pub fn read_all(&mut self, silence: Duration) -> (Vec<u8>, End) {
        self.0.set_read_timeout(Some(silence)).unwrap();
        let (mut bytes, mut buffer) = (Vec::new(), vec![0_u8; 64 * 1024]);
        loop {
            match self.read_once(&mut buffer) {
                Ok(0) => return (bytes, End::Closed),
                Ok(read) => bytes.extend_from_slice(&buffer[..read]),
                Err(e) if e.kind() == ErrorKind::ConnectionReset => return (bytes, End::Reset),
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    return (bytes, End::StillOpen);
                }
                Err(e) => panic!("{e}"),
            }
        }
    }

    /// One read, begun again where it was interrupted: a socket with a read timeout is not restarted by the kernel
    /// (signal(7)), and a thread whose io_uring ran a moment ago may still be woken for it.
    fn read_once(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        loop {
            match self.0.read(buffer) {
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                other => return other,
            }
        }
    }

    /// Reads exactly one response.
    pub fn read_response(&mut self) -> Response {
        let (mut bytes, mut buffer) = (Vec::new(), vec![0_u8; 64 * 1024]);
        loop {
            if let Some(response) = Response::parse(&bytes) {
                return response;
            }
            let read = self.read_once(&mut buffer).unwrap();
            assert_ne!(read, 0, "the connection ended after {:?}", String::from_utf8_lossy(&bytes));
            bytes.extend_from_slice(&buffer[..read]);
        }
    }

    pub fn leave(self) {
        let _ = self.0.shutdown(Shutdown::Both);
    }
}

pub fn chat_request(script: &str, body: &str) -> Vec<u8> {
    format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nx-perf-script: {script}\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// A complete response with its framing taken off.
#[derive(Debug)]
pub struct Response {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl Response {
    /// The response that `bytes` begin with, if it is complete.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let end = bytes.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
        let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let rest = &bytes[end..];
        let body = if head.contains("transfer-encoding: chunked") {
            let (mut decoder, mut body) = (Decoder::default(), Vec::new());
            decoder.decode(rest, &mut body).unwrap();
            decoder.is_done().then_some(body)?
        } else {
            let length = head.split("content-length: ").nth(1)?.split("\r\n").next()?.parse().unwrap();
            rest.get(..length)?.to_vec()
        };
        Some(Self { status, head, body })
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

/// One request on a connection of its own.
pub fn ask(address: SocketAddr, request: &[u8]) -> Response {
    let mut client = Client::connect(address);
    client.send(request);
    client.read_response()
}

pub fn get(address: SocketAddr, path: &str) -> Response {
    ask(address, format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n").as_bytes())
}

pub fn post(address: SocketAddr, path: &str, body: &str) -> Response {
    let request = format!("POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    ask(address, request.as_bytes())
}

/// Asks for `/stats` until `wanted` holds.
pub fn stats_when(address: SocketAddr, wanted: impl Fn(&Value) -> bool) -> Value {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let stats = get(address, "/stats").json();
        if wanted(&stats) {
            return stats;
        }
        assert!(Instant::now() < deadline, "the statistics never came to it: {stats:#}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
