//! TLS in front of a provider that speaks plain HTTP: what arrives is decrypted and passed on, and the answer back.

use std::{
    io::{Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    os::fd::AsRawFd,
    path::Path,
    sync::Arc,
    thread,
};

use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, Issuer, KeyPair};
use rustls::{ServerConfig, ServerConnection, crypto::ring, version::TLS13};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};

use super::certs::Identity;

/// Listens until the test's process ends.
#[derive(Debug)]
pub struct TlsFront {
    /// Its port on this machine.
    pub port: u16,
}

impl TlsFront {
    /// In front of `backend` (`host:port`), with a certificate of `ca` for these names.
    pub fn start(backend: &str, ca: &Identity, names: &[&str]) -> anyhow::Result<Self> {
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names)?;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let key = KeyPair::generate()?;
        let issuer = Issuer::from_ca_cert_pem(&ca.cert, KeyPair::from_pem(&ca.key)?)?;
        let chain = vec![CertificateDer::from(params.signed_by(&key, &issuer)?.der().to_vec())];
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(&[&TLS13])?
            .with_no_client_auth()
            .with_single_cert(chain, PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes())?)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let (config, backend) = (Arc::new(config), backend.to_owned());
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let port = listener.local_addr()?.port();
        thread::spawn(move || {
            for outer in listener.incoming().map_while(Result::ok) {
                let (config, backend) = (Arc::clone(&config), backend.clone());
                // A connection that breaks is the other side's to notice.
                thread::spawn(move || relay(config, outer, &backend));
            }
        });
        Ok(Self { port })
    }
}

/// Writes the CA's certificate to a file.
pub fn trust_file(ca: &Identity, file: &Path) -> anyhow::Result<()> {
    Ok(std::fs::write(file, &ca.cert)?)
}

fn relay(config: Arc<ServerConfig>, mut outer: TcpStream, backend: &str) -> anyhow::Result<()> {
    let mut tls = ServerConnection::new(config)?;
    let mut inner = TcpStream::connect(backend)?;
    for socket in [&outer, &inner] {
        socket.set_nodelay(true)?;
    }
    let mut buffer = vec![0; 64 * 1024];
    let mut asked = true;
    loop {
        while tls.wants_write() {
            tls.write_tls(&mut outer)?;
        }
        let [speaks, answers] = readable([asked.then_some(&outer), Some(&inner)])?;
        if speaks {
            if tls.read_tls(&mut outer)? == 0 {
                // Who leaves is told on as it is heard.
                inner.shutdown(Shutdown::Write)?;
                asked = false;
                continue;
            }
            let plain = match tls.process_new_packets() {
                Ok(state) => state.plaintext_bytes_to_read(),
                Err(error) => {
                    while tls.wants_write() {
                        tls.write_tls(&mut outer)?;
                    }
                    return Err(error.into());
                }
            };
            let mut bytes = vec![0; plain];
            tls.reader().read_exact(&mut bytes)?;
            inner.write_all(&bytes)?;
        }
        if answers {
            match inner.read(&mut buffer)? {
                0 => {
                    tls.send_close_notify();
                    while tls.wants_write() {
                        tls.write_tls(&mut outer)?;
                    }
                    return Ok(());
                }
                n => tls.writer().write_all(&buffer[..n])?,
            }
        }
    }
}

/// Waits until one of them has something to say; which.
fn readable(sockets: [Option<&TcpStream>; 2]) -> anyhow::Result<[bool; 2]> {
    // A negative descriptor is left out.
    let mut polled = sockets.map(|socket| libc::pollfd {
        fd: socket.map_or(-1, AsRawFd::as_raw_fd),
        events: libc::POLLIN,
        revents: 0,
    });
    // SAFETY: the pointer and the length are of one live array.
    let ready = unsafe { libc::poll(polled.as_mut_ptr(), 2, -1) };
    anyhow::ensure!(ready > 0, std::io::Error::last_os_error());
    Ok(polled.map(|socket| socket.revents != 0))
}
