//! The same connection under TLS, against a client that can do everything wrong.

use std::{
    io::{Read, Write},
    net::{Shutdown, TcpStream},
    sync::Arc,
    time::Duration,
};

use rustls::{
    ClientConfig, ClientConnection, RootCertStore, SupportedProtocolVersion,
    version::{TLS12, TLS13},
};

use super::harness::{MAX_BODY, Server, UNREAD};
use crate::{
    http::limits::Limits,
    shard::DriverWish,
    tls::{
        config::provider,
        server::{MinVersion, ServerCertificate, https_server_config},
        tests::certs::{Authority, FixedTime, Leaf, NOW},
    },
};

const HOST: &str = "edge.test";
const GET: &str = "GET /echo HTTP/1.1\r\nhost: t\r\n\r\n";
/// First bytes of records of TLS.
const ALERT: u8 = 0x15;
const APPLICATION_DATA: u8 = 0x17;

/// A server and the CA of its certificate.
struct Site {
    authority: Authority,
    server: Server,
}

fn certificate(authority: &Authority) -> ServerCertificate {
    let issued = authority.issue(&Leaf::server(&[HOST]));
    ServerCertificate::load(issued.cert_pem.as_bytes(), issued.key_pem.as_bytes()).unwrap()
}

fn on_both(limits: &Limits, test: impl Fn(&Site)) {
    for driver in [DriverWish::Auto, DriverWish::Epoll] {
        let authority = Authority::new("web-ca");
        let tls = https_server_config(&certificate(&authority), MinVersion::Tls12).unwrap();
        let server = Server::over(driver, limits.clone(), Some(tls));
        let site = Site { authority, server };
        test(&site);
        assert_eq!(site.server.panicked(), 0, "{driver:?}");
    }
}

impl Site {
    fn config(&self, versions: &[&'static SupportedProtocolVersion], alpn: &[&str]) -> ClientConfig {
        Self::config_of(&self.authority, versions, alpn)
    }

    fn config_of(
        trusted: &Authority,
        versions: &[&'static SupportedProtocolVersion],
        alpn: &[&str],
    ) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        roots.add(trusted.root()).unwrap();
        let mut config = ClientConfig::builder_with_details(provider(), Arc::new(FixedTime(NOW)))
            .with_protocol_versions(versions)
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = alpn.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
        config
    }

    fn connect(&self) -> Client {
        let mut client = self.client(self.config(&[&TLS13, &TLS12], &["http/1.1"]));
        client.shake();
        client
    }

    /// Waits until the server has seen this, perhaps behind the ends of earlier connections.
    fn sees(&self, what: &str) {
        while self.server.saw() != what {}
    }

    /// Before its handshake.
    fn client(&self, config: ClientConfig) -> Client {
        let stream = self.server.connect().stream;
        let mut tls = ClientConnection::new(Arc::new(config), HOST.try_into().unwrap()).unwrap();
        tls.set_buffer_limit(None);
        Client { stream, tls, read: Vec::new(), records: Vec::new(), raw: Vec::new(), met: Met::Bytes }
    }
}

struct Client {
    stream: TcpStream,
    tls: ClientConnection,
    /// Plaintext that was received and not looked at.
    read: Vec<u8>,
    /// First bytes of the records that were received since the handshake.
    records: Vec<u8>,
    raw: Vec<u8>,
    /// What the last read found.
    met: Met,
}

/// What a read found.
#[derive(Clone, Debug, PartialEq)]
enum Met {
    Bytes,
    /// close_notify.
    CloseNotify,
    /// The end of the stream without it.
    Cut,
    Reset,
    Broken(rustls::Error),
}

impl Client {
    fn shake(&mut self) {
        while self.tls.is_handshaking() {
            self.tls.complete_io(&mut self.stream).unwrap();
        }
        while self.tls.wants_write() {
            self.tls.write_tls(&mut self.stream).unwrap();
        }
    }

    fn cipher(&mut self, text: &str) -> Vec<u8> {
        self.tls.writer().write_all(text.as_bytes()).unwrap();
        let mut out = Vec::new();
        while self.tls.wants_write() {
            self.tls.write_tls(&mut out).unwrap();
        }
        out
    }

    fn send(&mut self, text: &str) {
        let out = self.cipher(text);
        let _broken = self.stream.write_all(&out);
    }

    fn close_notify(&mut self) {
        self.tls.send_close_notify();
        self.send("");
    }

    fn more(&mut self) {
        assert_eq!(self.met, Met::Bytes, "after {:?}", String::from_utf8_lossy(&self.read));
        self.met = self.receive();
    }

    fn receive(&mut self) -> Met {
        let mut piece = [0; 16 * 1024];
        let n = match self.stream.read(&mut piece) {
            Ok(0) => return Met::Cut,
            Ok(n) => n,
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return Met::Reset,
            Err(error) => panic!("after {:?}: {error}", String::from_utf8_lossy(&self.read)),
        };
        self.raw.extend_from_slice(&piece[..n]);
        while let [first, _, _, high, low, ..] = self.raw[..] {
            let length = 5 + usize::from(u16::from_be_bytes([high, low]));
            if self.raw.len() < length {
                break;
            }
            self.records.push(first);
            self.raw.drain(..length);
        }
        let mut rest = &piece[..n];
        while !rest.is_empty() {
            self.tls.read_tls(&mut rest).unwrap();
            let state = match self.tls.process_new_packets() {
                Ok(state) => state,
                Err(error) => return Met::Broken(error),
            };
            let mut plain = vec![0; state.plaintext_bytes_to_read()];
            self.tls.reader().read_exact(&mut plain).unwrap();
            self.read.extend_from_slice(&plain);
            if state.peer_has_closed() {
                return Met::CloseNotify;
            }
        }
        Met::Bytes
    }

    fn until(&mut self, end: &str) -> String {
        loop {
            if let Some(at) = memchr::memmem::find(&self.read, end.as_bytes()) {
                return String::from_utf8(self.read.drain(..at + end.len()).collect()).unwrap();
            }
            self.more();
        }
    }

    /// Status and body of a response with a length.
    fn response(&mut self) -> (u16, String) {
        let head = self.until("\r\n\r\n");
        let length = head.split("content-length: ").nth(1).and_then(|rest| rest.split("\r\n").next());
        let length: usize = length.map_or(0, |length| length.parse().unwrap());
        while self.read.len() < length {
            self.more();
        }
        let body = String::from_utf8(self.read.drain(..length).collect()).unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body)
    }

    /// How the connection ends, and what comes before that.
    fn end(&mut self) -> (Met, String) {
        while self.met == Met::Bytes {
            self.more();
        }
        (self.met.clone(), String::from_utf8(std::mem::take(&mut self.read)).unwrap())
    }
}

fn post(path: &str, body: &str) -> String {
    format!("POST {path} HTTP/1.1\r\nhost: t\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

#[test]
fn requests_uploads_and_streams_pass_under_both_versions() {
    on_both(&Limits::default(), |site| {
        for version in [&TLS13, &TLS12] {
            let mut client = site.client(site.config(&[version], &["h9", "http/1.1"]));
            client.shake();
            assert_eq!(client.tls.alpn_protocol(), Some(&b"http/1.1"[..]));
            client.send(&post("/echo", "abc"));
            assert_eq!(client.response(), (200, "abc".to_owned()));
            let large = "x".repeat(MAX_BODY);
            client.send(&post("/echo", &large));
            assert_eq!(client.response(), (200, large.clone()));
            client.send(&format!(
                "POST /echo HTTP/1.1\r\nhost: t\r\ntransfer-encoding: chunked\r\n\r\n{MAX_BODY:x}\r\n{large}\r\n0\r\n\r\n"
            ));
            assert_eq!(client.response(), (200, large));
            client.send("GET /stream HTTP/1.1\r\nhost: t\r\n\r\n");
            let text = client.until("0\r\n\r\n");
            assert!(text.ends_with("4\r\none,\r\n9\r\ntwo,three\r\n0\r\n\r\n"), "{text}");
            client.send(&post("/echo", &"x".repeat(MAX_BODY + 1)));
            assert_eq!(client.response().0, 413);
        }
    });
}

#[test]
fn a_flush_is_one_record() {
    on_both(&Limits::default(), |site| {
        let mut client = site.connect();
        client.send("GET /stream HTTP/1.1\r\nhost: t\r\n\r\n");
        client.until("0\r\n\r\n");
        // The head, the first piece, and the two others with the end.
        assert_eq!(client.records, [APPLICATION_DATA; 3]);
    });
}

#[test]
fn bytes_may_come_in_records_and_segments_of_one() {
    on_both(&Limits::default(), |site| {
        let mut client = site.client(site.config(&[&TLS13], &[]));
        client.stream.set_nodelay(true).unwrap();
        // The hello too.
        let hello = client.cipher("");
        hello.chunks(1).for_each(|byte| client.stream.write_all(byte).unwrap());
        client.shake();
        for byte in post("/echo", "abc").bytes() {
            let record = client.cipher(std::str::from_utf8(&[byte]).unwrap());
            record.chunks(1).for_each(|byte| client.stream.write_all(byte).unwrap());
        }
        assert_eq!(client.response(), (200, "abc".to_owned()));
        let (end, rest) = {
            client.close_notify();
            client.end()
        };
        assert_eq!((end, rest.as_str()), (Met::CloseNotify, ""));
    });
}

#[test]
fn what_comes_in_one_record_with_a_request_is_answered_in_order() {
    on_both(&Limits::default(), |site| {
        let mut client = site.connect();
        // Its body ends in the middle of a record, and the others are in the same.
        client.send(&(post("/echo", "one") + &post("/wait", "") + &post("/echo", "three") + GET));
        assert_eq!(client.response().1, "one");
        assert_eq!(client.response().1, "waited");
        assert_eq!(client.response().1, "three");
        assert_eq!(client.response(), (200, String::new()));
        // More than a body has room for at a time, and again a request behind it.
        let large = "x".repeat(90_000);
        client.send(&(post("/echo", &large) + &post("/echo", &large) + GET));
        for expected in [&large, &large, ""] {
            assert_eq!(client.response().1, expected);
        }
    });
}

#[test]
fn a_client_that_ends_its_side_is_gone_with_and_without_close_notify() {
    on_both(&Limits::default(), |site| {
        for polite in [true, false] {
            let mut client = site.connect();
            client.send("GET /hang HTTP/1.1\r\nhost: t\r\n\r\n");
            client.until("begun");
            site.sees("hanging");
            if polite {
                // Without FIN: the alert alone says it.
                client.close_notify();
            } else {
                client.stream.shutdown(Shutdown::Write).unwrap();
            }
            site.sees("gone");
            assert_eq!(client.end().0, Met::CloseNotify);
        }
    });
}

#[test]
fn a_peer_sees_the_end_behind_what_was_sent_in_advance_and_keeps_that() {
    on_both(&Limits::default(), |site| {
        for polite in [true, false] {
            let mut client = site.connect();
            client.send("GET /left HTTP/1.1\r\nhost: t\r\n\r\n");
            site.sees("asking");
            client.send(GET);
            if polite {
                client.close_notify();
            } else {
                client.stream.shutdown(Shutdown::Write).unwrap();
            }
            site.sees("left");
            assert_eq!(client.response().1, "left");
            // What came before the end is still there for the next request.
            site.sees("body 0");
            assert_eq!(client.response(), (200, String::new()));
        }
    });
}

#[test]
fn an_end_without_close_notify_in_the_middle_of_a_body_is_a_cut() {
    on_both(&Limits::default(), |site| {
        for request in [
            post("/echo", "12345").replace("length: 5", "length: 9"),
            "POST /echo HTTP/1.1\r\nhost: t\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n".to_owned(),
        ] {
            let mut client = site.connect();
            client.send(&request);
            client.stream.shutdown(Shutdown::Write).unwrap();
            site.sees("the connection broke");
            // Even a polite end does not end a body.
            let mut client = site.connect();
            client.send(&request);
            client.close_notify();
            site.sees("the connection ended inside a request body");
            assert_eq!(client.response().0, 400);
        }
    });
}

#[test]
fn a_client_that_stops_reading_is_cut_at_the_stall_deadline() {
    let limits = Limits { write_stall: Duration::from_millis(300), ..Limits::default() };
    on_both(&limits, |site| {
        let mut client = site.connect();
        client.send("GET /firehose HTTP/1.1\r\nhost: t\r\n\r\n");
        site.sees("stalled");
        assert_ne!(client.end().0, Met::CloseNotify);
    });
}

#[test]
fn a_client_that_reads_slowly_gets_all_of_a_large_answer() {
    on_both(&Limits::default(), |site| {
        let mut client = site.connect();
        client.send("GET /until-close HTTP/1.1\r\nhost: t\r\n\r\n");
        client.until("part");
        let (end, rest) = client.end();
        assert_eq!((end, rest.len()), (Met::CloseNotify, UNREAD));
    });
}

#[test]
fn a_proper_end_is_close_notify_and_any_other_is_not() {
    let limits = Limits { keepalive_idle: Duration::from_millis(300), ..Limits::default() };
    on_both(&limits, |site| {
        // Idle for too long, a wish to close, a refusal.
        let mut client = site.connect();
        client.send(GET);
        assert_eq!(client.response().0, 200);
        assert_eq!(client.end(), (Met::CloseNotify, String::new()));
        assert_eq!(client.records.last(), Some(&APPLICATION_DATA), "TLS 1.3 hides what it is");
        let mut client = site.connect();
        client.send("GET /echo HTTP/1.1\r\nhost: t\r\nconnection: close\r\n\r\n");
        assert_eq!(client.response().0, 200);
        assert_eq!(client.end(), (Met::CloseNotify, String::new()));
        let mut client = site.connect();
        client.send("GET /echo HTTP/1.1\r\n\r\n");
        assert_eq!(client.response(), (400, "refused".to_owned()));
        assert_eq!(client.end(), (Met::CloseNotify, String::new()));
        // Broken off, the body lacks its end; what only the close ends lacks close_notify; a reset is a reset.
        let mut client = site.connect();
        client.send("GET /break HTTP/1.1\r\nhost: t\r\n\r\n");
        client.until("\r\n\r\n");
        assert_eq!(client.end(), (Met::CloseNotify, "4\r\npart\r\n".to_owned()));
        for path in ["/until-death", "/reset"] {
            let mut client = site.connect();
            client.send(&format!("GET {path} HTTP/1.1\r\nhost: t\r\n\r\n"));
            client.until("part");
            assert_eq!(client.end().0, Met::Reset, "{path}");
        }
    });
}

#[test]
fn a_request_in_plain_text_can_be_answered_in_plain_text() {
    on_both(&Limits::default(), |site| {
        let mut client = site.server.connect();
        client.send(GET);
        site.sees("plain");
        let (status, _, body) = client.response();
        assert_eq!((status, body.as_str()), (400, "https"));
        assert_eq!(client.rest(), "");
    });
}

#[test]
fn who_does_not_finish_the_handshake_is_dropped_and_who_breaks_it_is_told() {
    let limits = Limits { head_deadline: Duration::from_millis(300), ..Limits::default() };
    on_both(&limits, |site| {
        let mute = site.server.connect();
        site.sees("tls peer refused: handshake_timeout");
        drop(mute);
        // Half a hello.
        let mut client = site.client(site.config(&[&TLS13], &[]));
        let hello = client.cipher("");
        client.stream.write_all(&hello[..hello.len() / 2]).unwrap();
        site.sees("tls peer refused: handshake_timeout");
        drop(client);
        // No protocol in common.
        let mut client = site.client(site.config(&[&TLS13], &["smtp"]));
        let hello = client.cipher("");
        client.stream.write_all(&hello).unwrap();
        site.sees("tls peer refused: wrong_alpn");
        let alert = rustls::AlertDescription::NoApplicationProtocol;
        assert_eq!(client.end().0, Met::Broken(rustls::Error::AlertReceived(alert)));
        // A client that does not trust the CA says so.
        let mut client = site.client(Site::config_of(&Authority::new("other-ca"), &[&TLS13], &[]));
        let _refused = client.tls.complete_io(&mut client.stream).unwrap_err();
        site.sees("tls peer refused us: unknown_ca");
    });
}

#[test]
fn garbage_in_the_middle_ends_the_connection_with_an_alert() {
    on_both(&Limits::default(), |site| {
        let mut client = site.connect();
        client.send("GET /hang HTTP/1.1\r\nhost: t\r\n\r\n");
        client.until("begun");
        site.sees("hanging");
        let mut record = client.cipher("x");
        *record.last_mut().unwrap() ^= 1;
        client.stream.write_all(&record).unwrap();
        site.sees("gone");
        let alert = rustls::AlertDescription::BadRecordMac;
        assert_eq!(client.end().0, Met::Broken(rustls::Error::AlertReceived(alert)));
        assert!(!client.records.contains(&ALERT), "it is encrypted");
    });
}

#[test]
fn a_flood_of_key_updates_ends_the_connection_and_those_between_requests_do_not() {
    on_both(&Limits::default(), |site| {
        let mut client = site.connect();
        for _ in 0..100 {
            client.tls.refresh_traffic_keys().unwrap();
            client.send(&post("/echo", "abc"));
            assert_eq!(client.response().1, "abc");
        }
        client.send("GET /hang HTTP/1.1\r\nhost: t\r\n\r\n");
        client.until("begun");
        site.sees("hanging");
        for _ in 0..100 {
            client.tls.refresh_traffic_keys().unwrap();
            client.send("");
        }
        site.sees("gone");
    });
}
