//! Servers under TLS that do exactly what a test says.

use std::{
    io::{ErrorKind, Read, Write},
    net::{Shutdown, TcpStream},
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use rcgen::SanType;
use rustls::{
    ClientConfig, RootCertStore, ServerConfig, ServerConnection, StreamOwned, SupportedProtocolVersion,
    version::{TLS12, TLS13},
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject};

use super::super::server::{Peer, Server};
use crate::{
    http::{client::Tls, pool::Key},
    tls::{
        config::provider,
        https::https_client_config,
        tests::certs::{Authority, FixedTime, Issued, Leaf, NOW},
    },
};

/// The name that every good certificate here is for, beside the loopback address.
pub(super) const NAME: &str = "provider.test";
/// Both versions.
pub(super) const VERSIONS: [&SupportedProtocolVersion; 2] = [&TLS13, &TLS12];

/// A certificate for [`NAME`] and 127.0.0.1.
pub(super) fn good() -> Leaf {
    Leaf::of(vec![
        SanType::DnsName(NAME.try_into().unwrap()),
        SanType::IpAddress(std::net::IpAddr::from([127, 0, 0, 1])),
    ])
}

/// A server's configuration, without client certificates.
pub(super) fn server_config(issued: &Issued, versions: &[&'static SupportedProtocolVersion]) -> ServerConfig {
    let chain = CertificateDer::pem_slice_iter(issued.cert_pem.as_bytes()).map(Result::unwrap).collect();
    let key = PrivateKeyDer::from_pem_slice(issued.key_pem.as_bytes()).unwrap();
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(versions)
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    config
}

/// A client's configuration that trusts `authority` at [`NOW`].
pub(super) fn client_config(authority: &Authority) -> Arc<ClientConfig> {
    trusting(authority.root())
}

/// A client's configuration that trusts this certificate at [`NOW`].
pub(super) fn trusting(root: CertificateDer<'static>) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(root).unwrap();
    https_client_config(Arc::new(roots), Arc::new(FixedTime(NOW))).unwrap()
}

/// The key of `server`, called by `name`.
pub(super) fn key(server: &Server, config: &Arc<ClientConfig>, name: &str) -> Key {
    let name = Rc::new(ServerName::try_from(name.to_owned()).unwrap());
    Key { tls: Some(Tls { config: Arc::clone(config), name }), ..server.key() }
}

/// A CA, a server that it vouches for and the key that calls it by [`NAME`].
pub(super) fn stage(script: impl Fn(SecurePeer) + Send + Sync + 'static) -> (Server, Key) {
    stage_with(&[&TLS13], script)
}

/// As [`stage`], with these versions at the server.
pub(super) fn stage_with(
    versions: &[&'static SupportedProtocolVersion],
    script: impl Fn(SecurePeer) + Send + Sync + 'static,
) -> (Server, Key) {
    let authority = Authority::new("provider-ca");
    let server = serve(server_config(&authority.issue(&good()), versions), script);
    let key = key(&server, &client_config(&authority), NAME);
    (server, key)
}

/// Plays `script` on every connection whose handshake succeeds.
pub(super) fn serve(config: ServerConfig, script: impl Fn(SecurePeer) + Send + Sync + 'static) -> Server {
    let config = Arc::new(config);
    Server::start(move |peer| {
        if let Some(peer) = SecurePeer::accept(peer, Arc::clone(&config)) {
            script(peer);
        }
    })
}

/// How a client ended a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Farewell {
    /// close_notify, then FIN.
    Whole,
    /// FIN alone, or a reset.
    Cut,
}

/// One connection of which the handshake is over.
pub(super) struct SecurePeer {
    pub(super) tls: StreamOwned<ServerConnection, TcpStream>,
    /// For its counts; its stream is the one under TLS.
    pub(super) peer: Peer,
    rest: Vec<u8>,
}

impl SecurePeer {
    fn accept(peer: Peer, config: Arc<ServerConfig>) -> Option<Self> {
        let mut tls = StreamOwned::new(ServerConnection::new(config).unwrap(), peer.socket());
        while tls.conn.is_handshaking() {
            if tls.conn.complete_io(&mut tls.sock).is_err() {
                // The alert is behind the client's own; both are said.
                let _told = tls.conn.complete_io(&mut tls.sock);
                return None;
            }
        }
        Some(Self { tls, peer, rest: Vec::new() })
    }

    /// Reads some of a request; how many bytes, 0 at the end.
    pub(super) fn more(&mut self) -> usize {
        let mut buffer = [0; 16 * 1024];
        let n = self.tls.read(&mut buffer).unwrap_or(0);
        self.rest.extend_from_slice(&buffer[..n]);
        n
    }

    /// Reads a request with its body; `None` when the client closed instead.
    pub(super) fn request(&mut self) -> Option<(String, Vec<u8>)> {
        let end = loop {
            if let Some(end) = self.rest.windows(4).position(|w| w == b"\r\n\r\n") {
                break end + 4;
            }
            if self.more() == 0 {
                return None;
            }
        };
        let rest = self.rest.split_off(end);
        let head = String::from_utf8(std::mem::replace(&mut self.rest, rest)).unwrap();
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "))
            .map_or(0, |length| length.parse().unwrap());
        while self.rest.len() < length {
            if self.more() == 0 {
                return None;
            }
        }
        let rest = self.rest.split_off(length);
        self.peer.count_request();
        Some((head, std::mem::replace(&mut self.rest, rest)))
    }

    /// Writes; a client that has gone is no error.
    pub(super) fn write(&mut self, bytes: impl AsRef<[u8]>) {
        let _gone = self.tls.write_all(bytes.as_ref()).and_then(|()| self.tls.flush());
    }

    /// What these bytes would be on the wire.
    pub(super) fn encrypt(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.tls.conn.writer().write_all(bytes).unwrap();
        let mut out = Vec::new();
        while self.tls.conn.wants_write() {
            self.tls.conn.write_tls(&mut out).unwrap();
        }
        out
    }

    /// Writes past TLS.
    pub(super) fn write_raw(&mut self, bytes: &[u8]) {
        let _gone = self.tls.sock.write_all(bytes);
    }

    /// Says by TLS alone that nothing more comes.
    pub(super) fn close_notify(&mut self) {
        self.tls.conn.send_close_notify();
        let _gone = self.tls.conn.complete_io(&mut self.tls.sock);
    }

    /// Sends FIN.
    pub(super) fn finish(&self) {
        let _gone = self.tls.sock.shutdown(Shutdown::Write);
    }

    /// Waits until the client has closed, whatever else it sends.
    pub(super) fn farewell(&mut self) -> Farewell {
        let mut buffer = [0; 16 * 1024];
        let farewell = loop {
            match self.tls.read(&mut buffer) {
                Ok(0) => break Farewell::Whole,
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => break Farewell::Cut,
            }
        };
        self.peer.count_closed();
        farewell
    }

    /// Reads nothing for `time`.
    pub(super) fn pause(&self, time: Duration) {
        self.peer.pause_unread(time);
    }
}
