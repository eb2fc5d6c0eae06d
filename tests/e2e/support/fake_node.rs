//! A Node made by hand: it speaks the wire and does with it what the real one never would.

use std::{
    io::{ErrorKind as IoErrorKind, Read, Write},
    net::TcpStream,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};
use bytes::{Bytes, BytesMut};
use iop_tests::{
    Edge, Site,
    http::{self, Raw},
};
use proto::{
    frame::Decoder,
    message::{
        ErrorKind, ExecutionError, Header, Message, NodeReadyRequest, NodeReadyResponse, RegisterRequest,
        RegisterResponse, RunEvent, RunEventKind, RunRequest, StreamNo, TunnelFrame, TunnelFrameKind,
        TunnelRequest,
    },
};
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use rustls_pki_types::ServerName;

use super::{
    MODEL, NODE,
    certs::{self, Identity},
    provider_at, site, yaml,
};

/// How long a message may take to come.
const PATIENCE: Duration = Duration::from_secs(10);
/// One read of the socket waits for so long.
const TICK: Duration = Duration::from_millis(50);
/// A socket cannot wait for less.
const SHORTEST: Duration = Duration::from_micros(100);

/// Content type of a stream.
pub const SSE: &str = "text/event-stream";

/// An Edge with one Node and one provider, which nobody will call.
pub fn edge_of(site: &Site) -> anyhow::Result<Edge> {
    site.edge(&yaml().with(provider_at("http://127.0.0.1:9/v1")))
}

/// A site whose Edge has one Node, a scripted one that is ready.
pub fn stage() -> anyhow::Result<(Site, Edge, FakeNode)> {
    let site = site()?;
    let edge = edge_of(&site)?;
    let node = FakeNode::ready(&site, &edge, NODE)?;
    Ok((site, edge, node))
}

/// A client that has asked for a completion.
pub fn ask(site: &Site, edge: &Edge, stream: bool) -> anyhow::Result<Raw> {
    let mut client = Raw::connect(&edge.http)?;
    client.send(http::chat_request(site.token(), &http::chat_body(MODEL, stream, "")))?;
    Ok(client)
}

/// A request that this Node answers properly: the connection is as good as ever, and [`NODE`] is its name.
pub fn still_serves(site: &Site, edge: &Edge, node: &mut FakeNode) -> anyhow::Result<()> {
    let mut client = ask(site, edge, false)?;
    let stream = node.request()?.stream;
    node.answer(stream, "{\"fine\":true}")?;
    let answer = client.answer()?;
    ensure!((answer.status, answer.text().as_str()) == (200, "{\"fine\":true}"), "{NODE}: {}", answer.text());
    Ok(())
}

/// A connection to the Edge's Node port.
pub struct FakeNode {
    tls: StreamOwned<ClientConnection, TcpStream>,
    decoder: Decoder,
    received: BytesMut,
    pongs: usize,
    /// What the Edge said last before it closed.
    pub goodbye: Option<String>,
}

impl FakeNode {
    /// Dials with the certificate of the Node `name`.
    pub fn dial(site: &Site, edge: &Edge, name: &str) -> anyhow::Result<Self> {
        let bundle = site.join_bundle(name, &edge.node)?;
        Self::dial_as(&edge.node, certs::client(Some(&Identity::of_bundle(&bundle)?))?)
    }

    /// Dials with any TLS configuration. On TLS 1.3 a refusal shows at the first read.
    pub fn dial_as(address: &str, config: Arc<ClientConfig>) -> anyhow::Result<Self> {
        let socket = TcpStream::connect(address)?;
        socket.set_nodelay(true)?;
        let connection = ClientConnection::new(config, ServerName::try_from("localhost")?)?;
        let mut tls = StreamOwned::new(connection, socket);
        while tls.conn.is_handshaking() {
            tls.conn.complete_io(&mut tls.sock)?;
        }
        Ok(Self { tls, decoder: Decoder::default(), received: BytesMut::new(), pongs: 0, goodbye: None })
    }

    /// Dials, registers and becomes ready.
    pub fn ready(site: &Site, edge: &Edge, name: &str) -> anyhow::Result<Self> {
        let mut node = Self::dial(site, edge, name)?;
        let registered = node.register(name)?;
        ensure!(matches!(registered, RegisterResponse::Accepted { .. }), "{registered:?}");
        let ready = node.ask_ready(name)?;
        ensure!(ready.ready, "{ready:?}");
        Ok(node)
    }

    /// Sends bytes as they are.
    pub fn send_raw(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        self.tls.write_all(bytes)?;
        Ok(self.tls.flush()?)
    }

    /// Sends a message.
    pub fn send(&mut self, message: &Message) -> anyhow::Result<()> {
        let mut out = Vec::new();
        message.encode(&mut out);
        self.send_raw(&out)
    }

    /// Sends an envelope of these bytes.
    pub fn send_frame(&mut self, envelope: &[u8]) -> anyhow::Result<()> {
        let mut out = u32::try_from(envelope.len())?.to_be_bytes().to_vec();
        out.extend_from_slice(envelope);
        self.send_raw(&out)
    }

    /// Sends a tunnel frame.
    pub fn frame(&mut self, stream: StreamNo, sequence: u64, kind: TunnelFrameKind) -> anyhow::Result<()> {
        self.send(&Message::TunnelFrame(TunnelFrame { stream, sequence, kind }))
    }

    /// Sends a whole answer of status 200, from sequence number 0.
    pub fn answer(&mut self, stream: StreamNo, body: &str) -> anyhow::Result<()> {
        self.frame(stream, 0, start("application/json"))?;
        self.frame(stream, 1, TunnelFrameKind::Body(Bytes::copy_from_slice(body.as_bytes())))?;
        self.frame(stream, 2, TunnelFrameKind::End)
    }

    /// Sends the terminal of a cancelled run.
    pub fn cancelled(&mut self, stream: StreamNo, sequence: u64) -> anyhow::Result<()> {
        let error = ExecutionError::new(ErrorKind::Cancelled, "cancelled");
        self.frame(stream, sequence, TunnelFrameKind::Error(error))
    }

    /// The next message within `within`, heartbeats answered and left out; `None` when there was none. An error when the
    /// connection has ended.
    pub fn poll(&mut self, within: Duration) -> anyhow::Result<Option<Message>> {
        let end = Instant::now() + within;
        self.tls.sock.set_read_timeout(Some(TICK.min(within).max(SHORTEST)))?;
        loop {
            while let Some(frame) = self.decoder.next(&mut self.received)? {
                match Message::decode(frame)? {
                    Message::HeartbeatPing => self.send(&Message::HeartbeatPong)?,
                    Message::HeartbeatPong => self.pongs += 1,
                    Message::Goodbye(goodbye) => self.goodbye = Some(goodbye.reason),
                    message => return Ok(Some(message)),
                }
            }
            let mut buffer = vec![0; 64 * 1024];
            match self.tls.read(&mut buffer) {
                Ok(0) => bail!("the edge closed the connection ({:?})", self.goodbye),
                Ok(n) => self.received.extend_from_slice(&buffer[..n]),
                Err(error) if matches!(error.kind(), IoErrorKind::WouldBlock | IoErrorKind::TimedOut) => {
                    if Instant::now() >= end {
                        return Ok(None);
                    }
                }
                Err(error) => return Err(error).context("the connection broke"),
            }
        }
    }

    /// The next message; heartbeats as in [`Self::poll`].
    pub fn next(&mut self) -> anyhow::Result<Message> {
        self.poll(PATIENCE)?.context("the edge says nothing")
    }

    /// Waits for a tunnel request and gives it; credit and cancels of other runs on the way are left out.
    pub fn request(&mut self) -> anyhow::Result<TunnelRequest> {
        loop {
            match self.next()? {
                Message::TunnelRequest(request) => return Ok(*request),
                Message::Credit(_) | Message::Cancel(_) => {}
                other => bail!("expected a tunnel request, got {}", other.name()),
            }
        }
    }

    /// Waits for a normalized run and gives it; credit and cancels of other runs on the way are left out.
    pub fn run_request(&mut self) -> anyhow::Result<RunRequest> {
        loop {
            match self.next()? {
                Message::RunRequest(request) => return Ok(*request),
                Message::Credit(_) | Message::Cancel(_) => {}
                other => bail!("expected a run, got {}", other.name()),
            }
        }
    }

    /// Sends an event of a normalized run.
    pub fn event(&mut self, stream: StreamNo, sequence: u64, kind: RunEventKind) -> anyhow::Result<()> {
        self.event_with(stream, sequence, kind, &[])
    }

    /// The same with metadata.
    pub fn event_with(
        &mut self,
        stream: StreamNo,
        sequence: u64,
        kind: RunEventKind,
        metadata: &[(&str, &str)],
    ) -> anyhow::Result<()> {
        let pair = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        let metadata = metadata.iter().map(pair).collect();
        let run_id = String::new();
        self.send(&Message::RunEvent(RunEvent { stream, sequence, kind, run_id, metadata }))
    }

    /// Answers a run with this text, from sequence number 0.
    pub fn say(&mut self, stream: StreamNo, text: &str) -> anyhow::Result<()> {
        self.event(stream, 0, RunEventKind::Start)?;
        self.event(stream, 1, said(text))?;
        self.event(stream, 2, completed("stop"))
    }

    /// Waits until the Edge has handled all that was sent so far: it answers a heartbeat behind it. What else it says
    /// meanwhile must be nothing.
    pub fn is_heard(&mut self) -> anyhow::Result<()> {
        let (before, end) = (self.pongs, Instant::now() + PATIENCE);
        self.send(&Message::HeartbeatPing)?;
        while self.pongs == before {
            ensure!(Instant::now() < end, "no answer to a heartbeat");
            if let Some(message) = self.poll(TICK)? {
                bail!("expected the answer to a heartbeat, got {}", message.name());
            }
        }
        Ok(())
    }

    /// Says by TCP alone that nothing more comes, and goes on reading.
    pub fn half_close(&self) -> anyhow::Result<()> {
        Ok(self.tls.sock.shutdown(std::net::Shutdown::Write)?)
    }

    /// Waits until the Edge has closed; why, as its goodbye said.
    pub fn wait_closed(&mut self) -> anyhow::Result<Option<String>> {
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end {
            if self.poll(Duration::from_millis(200)).is_err() {
                return Ok(self.goodbye.take());
            }
        }
        bail!("the edge keeps the connection")
    }

    /// Claims `name`.
    pub fn register(&mut self, name: &str) -> anyhow::Result<RegisterResponse> {
        self.send(&Message::RegisterRequest(RegisterRequest {
            node_id: name.parse()?,
            agent_version: "fake".to_owned(),
            token: String::new(),
        }))?;
        match self.next()? {
            Message::RegisterResponse(response) => Ok(response),
            other => bail!("expected the answer to a registration, got {}", other.name()),
        }
    }

    /// Says that `name` is ready.
    pub fn ask_ready(&mut self, name: &str) -> anyhow::Result<NodeReadyResponse> {
        self.send(&Message::NodeReadyRequest(NodeReadyRequest { node_id: name.parse()? }))?;
        match self.next()? {
            Message::NodeReadyResponse(response) => Ok(response),
            other => bail!("expected the answer to ready, got {}", other.name()),
        }
    }
}

/// A delta of the answer.
pub fn said(text: &str) -> RunEventKind {
    RunEventKind::Delta { text: text.to_owned(), reasoning: String::new() }
}

/// The end of a run of which nothing was counted.
pub fn completed(reason: &str) -> RunEventKind {
    RunEventKind::Complete { finish_reason: reason.to_owned(), usage: None }
}

/// RESPONSE_START with status 200.
pub fn start(content_type: &'static str) -> TunnelFrameKind {
    let headers =
        vec![Header { name: "content-type".to_owned(), value: Bytes::from_static(content_type.as_bytes()) }];
    TunnelFrameKind::ResponseStart { status: 200, headers, until_close: false }
}
