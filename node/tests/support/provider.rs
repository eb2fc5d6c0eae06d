//! A provider on a raw socket: it records what comes byte for byte and answers with the bytes that a test gives it.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::mpsc,
    thread,
};

use super::PATIENCE;

/// One request as it came.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Request line and fields, without the empty line.
    pub head: String,
    pub body: Vec<u8>,
}

impl Asked {
    pub fn line(&self) -> &str {
        self.head.lines().next().unwrap_or_default()
    }

    pub fn field(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }
}

/// A connection whose request was read; the test answers on it.
pub struct Call {
    pub asked: Asked,
    pub stream: TcpStream,
    /// Number of the connection, from 0.
    pub connection: usize,
}

impl Call {
    pub fn say(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).unwrap();
    }

    /// A whole answer with a length.
    pub fn answer(mut self, status: &str, body: &str) -> TcpStream {
        self.say(format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}", body.len()));
        self.stream
    }

    /// Waits until the Node closes the connection, or its half of it. What is given back is still open on this side: its drop
    /// is the provider's return.
    pub fn wait_for_close(mut self) -> TcpStream {
        self.stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut rest = Vec::new();
        match self.stream.read_to_end(&mut rest) {
            Ok(_) => assert!(rest.is_empty(), "unexpected bytes"),
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{error}"),
        }
        self.stream
    }
}

/// The provider.
pub struct Provider {
    pub address: SocketAddr,
    accepted: mpsc::Receiver<TcpStream>,
    count: std::cell::Cell<usize>,
}

impl Provider {
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (sent, accepted) = mpsc::channel();
        thread::spawn(move || {
            for stream in listener.incoming() {
                if sent.send(stream.unwrap()).is_err() {
                    return;
                }
            }
        });
        Self { address, accepted, count: std::cell::Cell::new(0) }
    }

    /// The next new connection with its first request.
    pub fn call(&self) -> Call {
        let stream = self.accepted.recv_timeout(PATIENCE).expect("no connection came");
        let connection = self.count.get();
        self.count.set(connection + 1);
        next_request(stream, connection)
    }

    /// No new connection comes.
    pub fn is_quiet(&self) {
        assert!(self.accepted.recv_timeout(super::QUIET).is_err(), "a connection came");
    }
}

/// The next request on a connection that was answered on.
pub fn next_request(mut stream: TcpStream, connection: usize) -> Call {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut bytes = Vec::new();
    let mut piece = [0; 65536];
    let end = loop {
        if let Some(at) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break at;
        }
        let n = stream.read(&mut piece).unwrap();
        assert!(n > 0, "the node closed inside a head");
        bytes.extend_from_slice(&piece[..n]);
    };
    let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
    let asked = Asked { head, body: Vec::new() };
    let length = asked.field("content-length").map_or(0, |value| value.parse().unwrap());
    let mut body = bytes.split_off(end + 4);
    while body.len() < length {
        let n = stream.read(&mut piece).unwrap();
        assert!(n > 0, "the node closed inside a body");
        body.extend_from_slice(&piece[..n]);
    }
    assert_eq!(body.len(), length, "more than one request");
    Call { asked: Asked { body, ..asked }, stream, connection }
}
