//! A listener between Node and Edge: it ends the TLS of both, with the certificate of the other, and writes down every message
//! with its time. What passes is not changed.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    os::fd::AsRawFd,
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

use anyhow::ensure;
use bytes::BytesMut;
use iop_tests::{Edge, Site};
use proto::{frame::Decoder, message::Message};
use rustls::{
    ClientConfig, ClientConnection, ConnectionCommon, ServerConfig, ServerConnection, SideData, crypto::ring,
};
use rustls_pki_types::{PrivateKeyDer, ServerName, pem::PemObject};

use crate::support::certs::{self, Identity};

/// What one of the two said.
#[derive(Clone, Debug)]
pub struct Heard {
    pub at: Instant,
    /// Or by the Edge.
    pub by_node: bool,
    pub message: Message,
}

/// Listens for one Node, again and again.
pub struct Tap {
    /// Where the Node is to dial.
    pub address: String,
    heard: Arc<Mutex<Vec<Heard>>>,
}

impl Tap {
    /// In front of `edge`, for the Node `name`.
    pub fn start(site: &Site, edge: &Edge, name: &str) -> anyhow::Result<Self> {
        let pki = site.dir().join("pki");
        let as_edge = server(&Identity::of_files(&pki.join("edge.crt"), &pki.join("edge.key"))?)?;
        let bundle = site.join_bundle(name, &edge.node)?;
        let as_node = certs::client(Some(&Identity::of_bundle(&bundle)?))?;
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?.to_string();
        let heard = Arc::<Mutex<Vec<Heard>>>::default();
        let (to, of_thread) = (edge.node.clone(), Arc::clone(&heard));
        std::thread::spawn(move || {
            for node in listener.incoming().map_while(Result::ok) {
                let passed = pass(node, &to, &as_edge, &as_node, &of_thread);
                println!("a tapped link is over: {passed:?}");
            }
        });
        Ok(Self { address, heard })
    }

    /// Everything so far, in order.
    pub fn heard(&self) -> Vec<Heard> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// One side's connection, what was read of it and how it is cut into messages.
struct Side<C> {
    tls: C,
    socket: TcpStream,
    decoder: Decoder,
    received: BytesMut,
    by_node: bool,
}

impl<C, S> Side<C>
where
    C: std::ops::DerefMut<Target = ConnectionCommon<S>>,
    S: SideData,
{
    fn new(mut tls: C, socket: TcpStream, by_node: bool) -> anyhow::Result<Self> {
        socket.set_nodelay(true)?;
        let mut socket = socket;
        tls.set_buffer_limit(None);
        while tls.is_handshaking() {
            tls.complete_io(&mut socket)?;
        }
        Ok(Self { tls, socket, decoder: Decoder::default(), received: BytesMut::new(), by_node })
    }

    /// Takes what has come; `None` at the end.
    fn take(&mut self, heard: &Mutex<Vec<Heard>>) -> anyhow::Result<Option<Vec<u8>>> {
        if self.tls.read_tls(&mut self.socket)? == 0 {
            return Ok(None);
        }
        self.decrypted(heard).map(Some)
    }

    /// What has been read and is not taken yet.
    fn decrypted(&mut self, heard: &Mutex<Vec<Heard>>) -> anyhow::Result<Vec<u8>> {
        let plain = self.tls.process_new_packets()?.plaintext_bytes_to_read();
        let mut bytes = vec![0; plain];
        self.tls.reader().read_exact(&mut bytes)?;
        self.received.extend_from_slice(&bytes);
        let mut heard = heard.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(frame) = self.decoder.next(&mut self.received)? {
            let message = Message::decode(frame)?;
            if !matches!(message, Message::HeartbeatPing | Message::HeartbeatPong) {
                heard.push(Heard { at: Instant::now(), by_node: self.by_node, message });
            }
        }
        Ok(bytes)
    }

    fn give(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        self.tls.writer().write_all(bytes)?;
        while self.tls.wants_write() {
            self.tls.write_tls(&mut self.socket)?;
        }
        Ok(())
    }
}

fn pass(
    node: TcpStream,
    edge: &str,
    as_edge: &Arc<ServerConfig>,
    as_node: &Arc<ClientConfig>,
    heard: &Mutex<Vec<Heard>>,
) -> anyhow::Result<()> {
    let mut node = Side::new(ServerConnection::new(Arc::clone(as_edge))?, node, true)?;
    let client = ClientConnection::new(Arc::clone(as_node), ServerName::try_from("localhost")?)?;
    let mut edge = Side::new(client, TcpStream::connect(edge)?, false)?;
    // What came right behind a handshake was read with it.
    edge.give(&node.decrypted(heard)?)?;
    node.give(&edge.decrypted(heard)?)?;
    loop {
        let mut polled = [&node.socket, &edge.socket].map(|socket| libc::pollfd {
            fd: socket.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        });
        // SAFETY: two live pollfds are given, and their descriptors are open.
        let ready = unsafe { libc::poll(polled.as_mut_ptr(), 2, -1) };
        ensure!(ready > 0, "poll: {}", std::io::Error::last_os_error());
        if polled[0].revents != 0 {
            let Some(bytes) = node.take(heard)? else { return Ok(()) };
            edge.give(&bytes)?;
        }
        if polled[1].revents != 0 {
            let Some(bytes) = edge.take(heard)? else { return Ok(()) };
            node.give(&bytes)?;
        }
    }
}

/// A TLS server of the Node link with this identity, which takes whoever comes.
fn server(identity: &Identity) -> anyhow::Result<Arc<ServerConfig>> {
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_no_client_auth()
        .with_single_cert(identity.chain()?, PrivateKeyDer::from_pem_slice(identity.key.as_bytes())?)?;
    config.alpn_protocols = vec![b"iop-node/1".to_vec()];
    Ok(Arc::new(config))
}
