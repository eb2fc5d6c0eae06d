//! The same over TLS, where the client asks for HTTP/2 in the handshake.

use std::sync::Arc;

use rustls::{
    ClientConfig, RootCertStore,
    version::{TLS12, TLS13},
};

use super::{
    harness::{MAX_BODY, Server},
    raw::{DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PING, Raw, WINDOW_UPDATE, request},
};
use crate::{
    http::{http2::Http2Limits, limits::Limits},
    shard::DriverWish,
    tls::{
        config::provider,
        server::{MinVersion, ServerCertificate, https_server_config},
        tests::certs::{Authority, FixedTime, Leaf, NOW},
    },
};

const HOST: &str = "edge.test";

fn site(driver: DriverWish) -> (Server, Authority) {
    let authority = Authority::new("web-ca");
    let issued = authority.issue(&Leaf::server(&[HOST]));
    let certificate = ServerCertificate::load(issued.cert_pem.as_bytes(), issued.key_pem.as_bytes()).unwrap();
    let tls = https_server_config(&certificate, MinVersion::Tls12).unwrap();
    (Server::over(driver, Limits::default(), Http2Limits::default(), Some(tls)), authority)
}

fn client(server: &Server, authority: &Authority, alpn: &[&str]) -> Raw {
    let mut roots = RootCertStore::empty();
    roots.add(authority.root()).unwrap();
    let mut config = ClientConfig::builder_with_details(provider(), Arc::new(FixedTime(NOW)))
        .with_protocol_versions(&[&TLS13, &TLS12])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
    Raw::open_secure(server.address, config, HOST)
}

#[test]
fn large_bodies_pass_both_ways_and_the_end_is_a_goodbye() {
    for driver in [DriverWish::Auto, DriverWish::Epoll] {
        let (server, authority) = site(driver);
        let mut raw = client(&server, &authority, &["h2", "http/1.1"]).begin();
        // Windows that are never in the way.
        raw.frame(WINDOW_UPDATE, 0, 0, &0x7000_0000_u32.to_be_bytes());
        raw.frame(HEADERS, END_HEADERS, 1, &request("POST", "/echo", &[]));
        raw.frame(WINDOW_UPDATE, 0, 1, &0x7000_0000_u32.to_be_bytes());
        let (mut sent, mut room) = (0, 65_535_usize);
        let mut back = 0;
        let piece = [b'x'; 16_000];
        while back < 200_000 {
            while sent < 200_000 && room >= piece.len() {
                let piece = &piece[..piece.len().min(200_000 - sent)];
                sent += piece.len();
                room -= piece.len();
                let end = if sent == 200_000 { END_STREAM } else { 0 };
                raw.frame(DATA, end, 1, piece);
            }
            let frame = raw.next().unwrap();
            match frame.kind {
                DATA => back += frame.payload.len(),
                WINDOW_UPDATE if frame.stream == 1 => {
                    room += usize::try_from(u32::from_be_bytes(frame.payload.try_into().unwrap())).unwrap();
                }
                _ => {}
            }
        }
        assert!(sent < MAX_BODY && back == sent);
        server.drain();
        assert_eq!(raw.next_of(GOAWAY).unwrap().code(), 0);
        // A drain is over when its ping has come back.
        let ping = raw.next_of(PING).unwrap();
        raw.frame(PING, 1, 0, &ping.payload);
        assert!(raw.ends_well(), "close_notify");
        server.saw_at_last("ended drained");
    }
}

#[test]
fn who_asks_for_http_1_gets_it_and_who_asks_for_http_2_must_speak_it() {
    let (server, authority) = site(DriverWish::Auto);
    let get = b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
    let mut raw = client(&server, &authority, &["http/1.1"]);
    raw.send(get).unwrap();
    assert!(raw.rest().ends_with(b"http/1"));
    let mut raw = client(&server, &authority, &["h2"]);
    raw.send(get).unwrap();
    assert!(!raw.rest().ends_with(b"http/1"));
    server.saw_at_last("ended protocol");
}
