//! The same client over TLS: what it trusts, what breaks, and how a connection ends.

mod server;

use std::{
    pin::pin,
    sync::{Arc, atomic::Ordering::SeqCst, mpsc},
    time::Duration,
};

use futures::future::select;
use proto::message::ErrorKind;
use rcgen::{BasicConstraints, IsCa, SanType};
use rustls::{RootCertStore, ServerConfig, server::WebPkiClientVerifier, version::TLS12};

use self::server::{
    Farewell, NAME, SecurePeer, VERSIONS, client_config, good, key, serve, server_config, stage, stage_with,
    trusting,
};
use super::server::{PATIENCE, Server, call, call_with, eventually, on_both_drivers, post, post_for, rest};
use crate::{
    clock,
    http::{
        client::{ClientError, ConnectError, Custody, abort::Return},
        pool::{Key, Pool, PoolLimits},
    },
    time::before,
    tls::{
        config::provider,
        tests::certs::{Authority, Leaf, NOW},
    },
};

const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi";

fn pool() -> Pool {
    Pool::new(PoolLimits::default())
}

/// Answers every request with `answer`, keeping the connection.
fn answering(answer: &'static [u8]) -> impl Fn(SecurePeer) + Send + Sync + 'static {
    move |mut peer| {
        while peer.request().is_some() {
            peer.write(answer);
        }
    }
}

/// Bytes in which every misplaced piece shows.
fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|i| (i ^ (i >> 8) ^ (i >> 16)) as u8).collect()
}

#[test]
fn a_server_is_called_by_name_or_address_in_either_version_and_kept() {
    on_both_drivers(async || {
        let authority = Authority::new("provider-ca");
        for version in VERSIONS {
            for name in [NAME, "127.0.0.1"] {
                let (seen, sees) = mpsc::channel();
                let config = server_config(&authority.issue(&good()), &[version]);
                let server = serve(config, move |peer| {
                    let conn = &peer.tls.conn;
                    let alpn = conn.alpn_protocol().map(<[u8]>::to_vec);
                    seen.send((conn.protocol_version(), alpn, conn.server_name().map(str::to_owned)))
                        .unwrap();
                    answering(OK)(peer);
                });
                let key = key(&server, &client_config(&authority), name);
                let pool = pool();
                for round in 0..4 {
                    let mut exchange = post(&pool, &key, "{}").await.unwrap();
                    assert_eq!((exchange.reused, exchange.retried), (round > 0, false));
                    assert_eq!(rest(&mut exchange).await.unwrap(), "hi");
                }
                let stats = pool.stats();
                assert_eq!((server.connections(), stats.reused, stats.idle, stats.open), (1, 3, 1, 1));
                let sni = (name == NAME).then(|| NAME.to_owned());
                assert_eq!(
                    sees.recv().unwrap(),
                    (Some(version.version), Some(b"http/1.1".to_vec()), sni),
                    "addresses are not sent as names"
                );
            }
        }
    });
}

#[test]
fn a_server_that_knows_no_application_protocols_is_taken_to_speak_http() {
    on_both_drivers(async || {
        let authority = Authority::new("provider-ca");
        let mut config = server_config(&authority.issue(&good()), &VERSIONS);
        config.alpn_protocols.clear();
        let server = serve(config, answering(OK));
        assert_eq!(call(&pool(), &key(&server, &client_config(&authority), NAME)).await.unwrap().1, "hi");
    });
}

#[test]
fn a_second_connection_resumes_the_session_of_the_first() {
    on_both_drivers(async || {
        let (seen, sees) = mpsc::channel();
        let (_server, key) = stage(move |peer| {
            seen.send(peer.tls.conn.handshake_kind()).unwrap();
            answering(OK)(peer);
        });
        let pool = pool();
        for kind in [rustls::HandshakeKind::Full, rustls::HandshakeKind::Resumed] {
            call(&pool, &key).await.unwrap();
            assert_eq!(sees.recv().unwrap(), Some(kind));
            pool.close_idle();
        }
    });
}

// req: TUN-7
#[test]
fn connections_are_not_shared_between_schemes_names_or_trust() {
    on_both_drivers(async || {
        let authority = Authority::new("provider-ca");
        let server = serve(server_config(&authority.issue(&good()), &VERSIONS), answering(OK));
        let (one, other) = (client_config(&authority), client_config(&authority));
        let pool = pool();
        let keys = [key(&server, &one, NAME), key(&server, &one, "127.0.0.1"), key(&server, &other, NAME)];
        for (already, key) in keys.iter().enumerate() {
            call(&pool, key).await.unwrap();
            assert_eq!(server.connections(), already + 1);
        }
        let equal = key(&server, &one, NAME);
        call(&pool, &equal).await.unwrap();
        assert_eq!((server.connections(), pool.stats().reused), (3, 1));
        // The plain one would be heard as an alert, if at all: on a connection of its own.
        call(&pool, &server.key()).await.unwrap_err();
        assert_eq!((server.connections(), pool.stats().reused), (4, 1));
    });
}

/// What is said of a server that cannot be connected to.
async fn refused(key: &Key) -> (&'static str, String) {
    refused_within(key, PATIENCE).await
}

async fn refused_within(key: &Key, tls_timeout: Duration) -> (&'static str, String) {
    let pool = Pool::new(PoolLimits { tls_timeout, ..PoolLimits::default() });
    let error = call(&pool, key).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Connect);
    assert_eq!((pool.stats().open, pool.stats().idle), (0, 0));
    match error {
        ClientError::Connect(error) => (error.label(), error.to_string()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_certificate_that_proves_nothing_is_refused_with_what_is_wrong_with_it() {
    on_both_drivers(async || {
        let (trusted, stranger) = (Authority::new("provider-ca"), Authority::new("other-ca"));
        let namesake = Authority::new("provider-ca");
        let now = i64::try_from(NOW).unwrap();
        let other = || Leaf::of(vec![SanType::DnsName("other.test".try_into().unwrap())]);
        for (issued, label, words) in [
            (stranger.issue(&good()), "tls_unknown_issuer", "not signed by a CA that this machine trusts"),
            (namesake.issue(&good()), "tls_unknown_issuer", "SSL_CERT_FILE"),
            (good().self_signed(), "tls_unknown_issuer", "SSL_CERT_FILE"),
            (trusted.issue(&other()), "tls_wrong_name", "not for this host but for other.test:"),
            (
                trusted.issue(&good().with(|leaf| leaf.not_after = now - 60)),
                "tls_expired",
                "has expired on Wed, 18 May 2033 03:32:20 GMT",
            ),
            (
                trusted.issue(&good().with(|leaf| leaf.not_before = now + 60)),
                "tls_not_yet_valid",
                "is not valid yet until Wed, 18 May 2033 03:34:20 GMT",
            ),
        ] {
            for version in VERSIONS {
                let server = serve(server_config(&issued, &[version]), answering(OK));
                let key = key(&server, &client_config(&trusted), NAME);
                let (found, text) = refused(&key).await;
                assert_eq!(found, label, "{text}");
                let peer = format!("{NAME}:{} (127.0.0.1)", server.address.port());
                assert!(text.contains(words) && text.contains(&peer), "{text}");
                assert_eq!(server.requests(), 0, "no byte of the request was sent");
            }
        }
    });
}

#[test]
fn a_self_signed_certificate_can_be_trusted_itself_unless_it_is_a_cas() {
    on_both_drivers(async || {
        for is_ca in [false, true] {
            let issued = good()
                .with(|leaf| {
                    if is_ca {
                        leaf.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
                    }
                })
                .self_signed();
            let server = serve(server_config(&issued, &VERSIONS), answering(OK));
            let key = key(&server, &trusting(issued.der()), NAME);
            if is_ca {
                let (label, text) = refused(&key).await;
                assert_eq!(label, "tls_bad_certificate");
                assert!(text.contains("it says that it is a CA's"), "{text}");
            } else {
                assert_eq!(call(&pool(), &key).await.unwrap().1, "hi");
            }
        }
    });
}

#[test]
fn an_address_is_compared_with_the_certificates_addresses() {
    on_both_drivers(async || {
        let authority = Authority::new("provider-ca");
        let named = Leaf::of(vec![SanType::DnsName(NAME.try_into().unwrap())]);
        let server = serve(server_config(&authority.issue(&named), &VERSIONS), answering(OK));
        let (label, text) = refused(&key(&server, &client_config(&authority), "127.0.0.1")).await;
        assert_eq!(label, "tls_wrong_name");
        assert!(text.contains(&format!("the certificate of {} is not for", server.address)), "{text}");
    });
}

#[test]
fn what_does_not_speak_tls_is_told_from_what_refuses_it() {
    on_both_drivers(async || {
        let authority = Authority::new("provider-ca");
        let config = client_config(&authority);
        for (server, label, words) in [
            (
                Server::start(|mut peer| {
                    peer.pause(Duration::from_secs(5));
                    peer.write("HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n");
                }),
                "tls_not_tls",
                "does not speak TLS: write http://",
            ),
            (
                Server::start(|mut peer| peer.pause(Duration::from_secs(5))),
                "tls_closed",
                "closed the connection during the TLS handshake",
            ),
            (
                Server::start(|mut peer| {
                    peer.pause(Duration::from_secs(5));
                    // handshake_failure
                    peer.write([0x15, 3, 3, 0, 2, 2, 40]);
                    peer.wait_closed();
                }),
                "tls_refused",
                "refused the TLS connection (HandshakeFailure)",
            ),
            (
                Server::start(|mut peer| {
                    peer.pause(Duration::from_secs(5));
                    // protocol_version
                    peer.write([0x15, 3, 1, 0, 2, 2, 70]);
                    peer.wait_closed();
                }),
                "tls_version",
                "speaks neither TLS 1.2 nor 1.3",
            ),
            (
                Server::start(|mut peer| {
                    peer.pause(Duration::from_secs(5));
                    // A handshake record that holds none.
                    peer.write([0x16, 3, 3, 0, 4, 9, 9, 9, 9]);
                    peer.wait_closed();
                }),
                "tls_protocol",
                "is no proper TLS",
            ),
        ] {
            let (found, text) = refused(&key(&server, &config, NAME)).await;
            assert_eq!(found, label, "{text}");
            assert!(text.contains(words), "{text}");
        }
        let silent = Server::start(|mut peer| peer.wait_closed());
        let (label, text) = refused_within(&key(&silent, &config, NAME), Duration::from_millis(200)).await;
        assert_eq!(label, "tls_timed_out");
        assert!(text.contains("did not finish the TLS handshake"), "{text}");
        eventually("it is closed", || silent.seen.closed.load(SeqCst) == 1).await;
        let nobody = {
            let server = Server::answering(OK);
            key(&server, &config, NAME)
        };
        assert_eq!(refused(&nobody).await.0, "refused");
    });
}

#[test]
fn a_server_that_wants_our_certificate_says_so() {
    on_both_drivers(async || {
        for version in VERSIONS {
            let authority = Authority::new("provider-ca");
            let issued = authority.issue(&good());
            let mut roots = RootCertStore::empty();
            roots.add(authority.root()).unwrap();
            let verifier =
                WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider()).build().unwrap();
            let plain = server_config(&issued, &[version]);
            let config = ServerConfig::builder_with_provider(provider())
                .with_protocol_versions(&[version])
                .unwrap()
                .with_client_cert_verifier(verifier)
                .with_cert_resolver(Arc::clone(&plain.cert_resolver));
            let server = serve(config, answering(OK));
            let error = call(&pool(), &key(&server, &client_config(&authority), NAME)).await.unwrap_err();
            let text = format!("{error}: {:?}", std::error::Error::source(&error).map(ToString::to_string));
            // On TLS 1.3 we are done before we are judged: it is heard in the place of the answer.
            let is_known = text.contains("asks for a client certificate");
            assert!(
                is_known || (version.version == TLS12.version && text.contains("refused the TLS")),
                "{text}"
            );
            assert_eq!(server.requests(), 0);
        }
    });
}

#[test]
fn bodies_of_any_size_arrive_unchanged_both_ways_whatever_the_socket_takes() {
    on_both_drivers(async || {
        for version in VERSIONS {
            let (_server, key) = stage_with(&[version], |mut peer| {
                while let Some((_, body)) = peer.request() {
                    // The client meets a full socket in both directions.
                    peer.pause(Duration::from_millis(30));
                    peer.write(format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len()));
                    peer.write(body);
                }
            });
            let pool = pool();
            for size in [0, 1, 16 * 1024, 64 * 1024 + 1, 1024 * 1024, 9_000_000] {
                let sent = pattern(size);
                let mut exchange = post(&pool, &key, sent.clone()).await.unwrap();
                let received = rest(&mut exchange).await.unwrap();
                assert!(received == sent, "{size} bytes changed on their way");
            }
            assert_eq!((pool.stats().opened, pool.stats().reused), (1, 5));
        }
    });
}

#[test]
fn an_answer_may_come_in_records_of_one_byte_with_new_keys_between_them() {
    on_both_drivers(async || {
        let (_server, key) = stage(|mut peer| {
            while peer.request().is_some() {
                for (at, byte) in
                    b"HTTP/1.1 200 OK\r\ncontent-length: 11\r\n\r\nhello world".iter().enumerate()
                {
                    if at % 16 == 0 {
                        peer.tls.conn.refresh_traffic_keys().unwrap();
                    }
                    peer.write([*byte]);
                }
            }
        });
        let pool = pool();
        for _ in 0..3 {
            assert_eq!(call(&pool, &key).await.unwrap().1, "hello world");
        }
        assert_eq!(pool.stats().opened, 1);
    });
}

#[test]
fn a_body_that_ends_with_its_connection_ends_properly_by_close_notify_alone() {
    on_both_drivers(async || {
        // With FIN at once, and with the connection left open until the client closes it.
        for finish in [true, false] {
            for notify in [true, false] {
                let (_server, key) = stage(move |mut peer| {
                    peer.request();
                    peer.write("HTTP/1.1 200 OK\r\n\r\nhello");
                    if notify {
                        peer.close_notify();
                    }
                    if finish || !notify {
                        peer.finish();
                    }
                    peer.farewell();
                });
                let pool = pool();
                let mut exchange = post(&pool, &key, "{}").await.unwrap();
                assert!(exchange.is_until_close());
                let end = rest(&mut exchange).await;
                if notify {
                    assert_eq!(end.unwrap(), "hello");
                } else {
                    assert!(matches!(end, Err(ClientError::Truncated)), "{end:?}");
                }
                assert_eq!((pool.stats().open, pool.stats().idle), (0, 0));
            }
        }
    });
}

#[test]
fn a_cut_answer_is_never_a_clean_end() {
    on_both_drivers(async || {
        for (answer, notify) in [
            (&b""[..], false),
            (b"", true),
            (b"HTTP/1.1 200", false),
            (b"HTTP/1.1 200", true),
            (b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhi", false),
            (b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhi", true),
            (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n", false),
        ] {
            let (_server, key) = stage(move |mut peer| {
                peer.request();
                peer.write(answer);
                if notify {
                    peer.close_notify();
                }
                peer.finish();
                peer.farewell();
            });
            let error = call(&pool(), &key).await.unwrap_err();
            if answer.is_empty() {
                assert!(matches!(error, ClientError::NoAnswer), "{error:?}");
            } else {
                assert!(matches!(error, ClientError::Truncated), "{error:?}");
            }
            assert_eq!(error.kind(), ErrorKind::UpstreamTruncated);
        }
    });
}

#[test]
fn a_corrupt_record_ends_the_answer_behind_what_was_sound_and_says_what_it_is() {
    on_both_drivers(async || {
        for version in VERSIONS {
            let (_server, key) = stage_with(&[version], |mut peer| {
                peer.request();
                peer.write("HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\nhello");
                let mut record = peer.encrypt(b"world");
                *record.last_mut().unwrap() ^= 1;
                peer.write_raw(&record);
                peer.farewell();
            });
            let pool = pool();
            let mut exchange = post(&pool, &key, "{}").await.unwrap();
            assert_eq!(exchange.next().await.unwrap().unwrap(), "hello");
            let error = exchange.next().await.unwrap_err();
            let source = std::error::Error::source(&error).unwrap().to_string();
            assert!(source.contains("sent what is no proper TLS"), "{source}");
            assert_eq!(error.kind(), ErrorKind::UpstreamTruncated);
            assert_eq!(pool.stats().open, 0);
        }
    });
}

#[test]
fn a_bit_that_falls_over_anywhere_never_becomes_a_byte_of_an_answer() {
    const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello";
    on_both_drivers(async || {
        let (server, key) = stage(|mut peer| {
            let Some((_, body)) = peer.request() else { return };
            let at: usize = String::from_utf8(body).unwrap().parse().unwrap();
            let mut records = peer.encrypt(ANSWER);
            let at = at % (records.len() * 8);
            records[at / 8] ^= 1 << (at % 8);
            peer.write_raw(&records);
            peer.finish();
            peer.farewell();
        });
        let pool = pool();
        for at in (0..8 * (ANSWER.len() + 22)).step_by(7) {
            // TLS 1.3 does not authenticate the type that a record has outside.
            if let Ok((status, body)) = call_with(&pool, &key, at.to_string()).await {
                assert_eq!((status, body), (200, "hello".into()), "bit {at}");
                assert!(at < 24, "bit {at} was not noticed");
            }
        }
        assert!(server.requests() > 10);
    });
}

#[test]
fn garbage_after_the_handshake_is_an_error_and_bounded() {
    on_both_drivers(async || {
        let (_server, key) = stage(|mut peer| {
            peer.request();
            // The largest length that a record can claim, and no end.
            for _ in 0..200 {
                peer.write_raw(&[0x17; 64 * 1024]);
            }
            peer.farewell();
        });
        let error = call(&pool(), &key).await.unwrap_err();
        assert!(matches!(error, ClientError::ConnectionReset(_)), "{error:?}");
    });
}

#[test]
fn a_kept_connection_that_was_closed_or_spoken_on_is_not_used() {
    on_both_drivers(async || {
        for manner in 0..4 {
            let (server, key) = stage(move |mut peer| {
                while peer.request().is_some() {
                    peer.write(OK);
                    if peer.peer.number == 0 {
                        match manner {
                            0 => peer.close_notify(),
                            1 => peer.finish(),
                            2 => peer.write("HTTP/1.1 408 Late\r\n\r\n"),
                            _ => peer.write_raw(b"HTTP/1.1 408 Late\r\n\r\n"),
                        }
                        peer.peer.mark();
                    }
                }
            });
            let pool = pool();
            call(&pool, &key).await.unwrap();
            eventually("it was said", || server.marks() == 1).await;
            let mut exchange = post(&pool, &key, "{}").await.unwrap();
            assert_eq!((exchange.reused, exchange.retried), (false, false), "manner {manner}");
            assert_eq!(rest(&mut exchange).await.unwrap(), "hi");
            assert_eq!((server.connections(), server.requests()), (2, 2));
        }
    });
}

// req: TUN-7
#[test]
fn a_request_on_a_kept_connection_that_dies_is_sent_once_more() {
    on_both_drivers(async || {
        let (server, key) = stage(|mut peer| {
            peer.request();
            peer.write(OK);
            if peer.request().is_some() && peer.peer.number > 0 {
                peer.write(OK);
            }
        });
        let pool = pool();
        call(&pool, &key).await.unwrap();
        let mut exchange = post(&pool, &key, "again").await.unwrap();
        assert_eq!((exchange.reused, exchange.retried), (false, true));
        assert_eq!(rest(&mut exchange).await.unwrap(), "hi");
        assert_eq!(server.requests(), 3);
    });
}

#[test]
fn an_idle_connection_is_closed_with_good_bye() {
    on_both_drivers(async || {
        let (seen, sees) = mpsc::channel();
        let (server, key) = stage(move |mut peer| {
            peer.request();
            peer.write(OK);
            seen.send(peer.farewell()).unwrap();
        });
        let pool = pool();
        call(&pool, &key).await.unwrap();
        pool.close_idle();
        eventually("it is closed", || server.seen.closed.load(SeqCst) == 1).await;
        assert_eq!(sees.recv().unwrap(), Farewell::Whole);
    });
}

// req: TUN-4, POL-11
#[test]
fn a_provider_that_is_told_to_stop_has_returned_when_it_closes_and_not_before() {
    on_both_drivers(async || {
        for head_sent in [false, true] {
            let (seen, sees) = mpsc::channel();
            let (server, key) = stage(move |mut peer| {
                peer.request();
                if head_sent {
                    peer.write("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhello");
                }
                seen.send(peer.farewell()).unwrap();
                // It has noticed, and still has something to do: past the time in which bytes may be on their way.
                peer.pause(Duration::from_millis(700));
                peer.close_notify();
                peer.finish();
            });
            let (pool, custody) = (pool(), Custody::default());
            if head_sent {
                drop(post_for(&pool, &key, "{}", &custody).await.unwrap());
            } else {
                let asked = pin!(eventually("the request is there", || server.requests() == 1));
                select(asked, pin!(post_for(&pool, &key, "{}", &custody))).await;
            }
            let abandoned = custody.take().unwrap();
            assert_eq!((pool.stats().open, pool.stats().idle), (1, 0));
            let told = clock::now();
            assert_eq!(pool.returned(abandoned).await, Return::Confirmed);
            assert!(clock::now() - told >= Duration::from_millis(650));
            assert_eq!(sees.recv().unwrap(), Farewell::Cut);
            assert_eq!((server.connections(), pool.stats().open), (1, 0));
        }
    });
}

// req: POL-11
#[test]
fn a_provider_that_goes_on_sending_in_or_past_tls_is_reset() {
    on_both_drivers(async || {
        for raw in [false, true] {
            let (server, key) = stage(move |mut peer| {
                peer.request();
                peer.write("HTTP/1.1 200 OK\r\n\r\nx");
                let piece = if raw { vec![0x17; 1024] } else { vec![b'x'; 1024] };
                loop {
                    peer.pause(Duration::from_millis(10));
                    let written = if raw {
                        std::io::Write::write_all(&mut peer.tls.sock, &piece)
                    } else {
                        std::io::Write::write_all(&mut peer.tls, &piece)
                    };
                    if written.is_err() {
                        peer.peer.mark();
                        return;
                    }
                }
            });
            let (pool, custody) = (pool(), Custody::default());
            let mut exchange = post_for(&pool, &key, "{}", &custody).await.unwrap();
            exchange.next().await.unwrap();
            drop(exchange);
            assert_eq!(pool.returned(custody.take().unwrap()).await, Return::StillSending, "raw {raw}");
            eventually("a write fails", || server.marks() == 1).await;
            assert_eq!(pool.stats().open, 0);
        }
    });
}

#[test]
fn a_request_that_was_not_sent_whole_is_reset_and_leaves_nothing_to_wait_for() {
    on_both_drivers(async || {
        let (seen, sees) = mpsc::channel();
        let (server, key) = stage(move |mut peer| {
            peer.more();
            peer.peer.mark();
            peer.pause(Duration::from_millis(300));
            seen.send(peer.farewell()).unwrap();
        });
        let (pool, custody) = (pool(), Custody::default());
        let begun = pin!(eventually("some of it is there", || server.marks() == 1));
        select(begun, pin!(post_for(&pool, &key, vec![b'x'; 20_000_000], &custody))).await;
        assert!(custody.take().is_none());
        assert_eq!(pool.stats().open, 0);
        eventually("the provider sees the end", || server.seen.closed.load(SeqCst) == 1).await;
        assert_eq!(sees.recv().unwrap(), Farewell::Cut);
    });
}

#[test]
fn an_early_refusal_is_heard_by_an_upload_that_is_stuck() {
    on_both_drivers(async || {
        let (_server, key) = stage(|mut peer| {
            peer.pause(Duration::from_millis(50));
            peer.write("HTTP/1.1 413 Too Large\r\ncontent-length: 2\r\n\r\nno");
            peer.pause(Duration::from_secs(3));
        });
        let pool = pool();
        let begun = clock::now();
        let mut exchange = post(&pool, &key, vec![b'x'; 20_000_000]).await.unwrap();
        assert_eq!(exchange.head.status, 413);
        assert_eq!(rest(&mut exchange).await.unwrap(), "no");
        assert!(clock::now() - begun < Duration::from_secs(2));
        drop(exchange);
        assert_eq!((pool.stats().idle, pool.stats().open), (0, 0));
    });
}

#[test]
fn a_handshake_that_is_given_up_closes_its_connection() {
    on_both_drivers(async || {
        let authority = Authority::new("provider-ca");
        let server = Server::start(|mut peer| peer.wait_closed());
        let key = key(&server, &client_config(&authority), NAME);
        let pool = pool();
        let soon = clock::now() + Duration::from_millis(100);
        assert!(before(soon, post(&pool, &key, "{}")).await.is_none());
        eventually("the server sees the end", || server.seen.closed.load(SeqCst) == 1).await;
    });
}

#[test]
fn connect_errors_of_tls_and_tcp_are_one_kind() {
    let error = ConnectError::Tcp(crate::net::DialError::TimedOut("192.0.2.1:443".parse().unwrap()));
    assert_eq!(ClientError::from(error).kind(), ErrorKind::Connect);
    assert_eq!(PoolLimits::default().tls_timeout, Duration::from_secs(5));
}
