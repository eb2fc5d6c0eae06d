//! Where an answer ends, and what is no answer.

use std::time::Duration;

use proto::message::ErrorKind;

use super::server::{Server, call, on_both_drivers, post};
use crate::{
    clock,
    http::{
        client::{ClientError, Custody, Outgoing},
        head::Headers,
        pool::{Key, Pool, PoolLimits},
    },
    time::before,
};

fn pool() -> Pool {
    Pool::new(PoolLimits::default())
}

#[test]
fn an_answer_may_be_split_at_every_byte() {
    const ANSWER: &str = "HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\nHTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n\
                          5;a=b\r\nhello\r\n1\r\n \r\n5\r\nworld\r\n0\r\nx-t: 1\r\n\r\n";
    on_both_drivers(async || {
        let server = Server::start(|mut peer| {
            let mut cut = 0;
            while peer.request().is_some() {
                let (first, second) = ANSWER.split_at(cut % ANSWER.len());
                peer.write(first);
                peer.pause(Duration::from_millis(1));
                peer.write(second);
                cut += 1;
            }
        });
        let pool = pool();
        for _ in 0..ANSWER.len() {
            assert_eq!(call(&pool, &server.key()).await.unwrap(), (200, "hello world".into()));
        }
        assert_eq!(server.connections(), 1);
    });
}

#[test]
fn an_answer_may_come_byte_by_byte() {
    on_both_drivers(async || {
        let server = Server::start(|mut peer| {
            peer.request();
            for byte in b"HTTP/1.1 200 OK\r\ncontent-length: 11\r\n\r\nhello world" {
                peer.write([*byte]);
                peer.pause(Duration::from_millis(1));
            }
            peer.wait_closed();
        });
        assert_eq!(call(&pool(), &server.key()).await.unwrap().1, "hello world");
    });
}

// req: TUN-3
#[test]
fn a_large_body_arrives_unchanged_in_either_framing() {
    fn content() -> Vec<u8> {
        (0..3_000_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
    }
    on_both_drivers(async || {
        let server = Server::start(|mut peer| {
            let content = content();
            peer.request();
            peer.write(format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", content.len()));
            peer.write(&content);
            peer.request();
            peer.write("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n");
            for (at, piece) in content.chunks(77_777).enumerate() {
                // Chunks of all sizes.
                let (a, b) = piece.split_at(piece.len().min(at * at));
                for part in [a, b].into_iter().filter(|part| !part.is_empty()) {
                    peer.write([format!("{:x}\r\n", part.len()).as_bytes(), part, b"\r\n"].concat());
                }
            }
            peer.write("0\r\n\r\n");
            peer.wait_closed();
        });
        let pool = pool();
        let content = content();
        for _ in 0..2 {
            assert!(call(&pool, &server.key()).await.unwrap().1 == content);
        }
        assert_eq!((server.connections(), pool.stats().idle), (1, 1));
    });
}

#[test]
fn what_has_arrived_together_is_given_together_and_without_waiting() {
    on_both_drivers(async || {
        let server = Server::answering(
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n1\r\nb\r\n1\r\nc\r\n0\r\n\r\n",
        );
        let pool = pool();
        let mut exchange = post(&pool, &server.key(), "{}").await.unwrap();
        assert_eq!(exchange.next().await.unwrap().unwrap(), "abc");
        // Its end came with it.
        assert_eq!(pool.stats().idle, 1);
        assert!(matches!(exchange.try_next(), Some(Ok(None))));
    });
}

#[test]
fn an_answer_that_pauses_would_have_to_be_waited_for() {
    on_both_drivers(async || {
        let server = Server::start(|mut peer| {
            peer.request();
            peer.write("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\na");
            peer.head();
        });
        let mut exchange = post(&pool(), &server.key(), "{}").await.unwrap();
        assert_eq!(exchange.next().await.unwrap().unwrap(), "a");
        assert!(exchange.try_next().is_none());
        for _ in 0..3 {
            // Waiting may be given up and taken up again.
            assert!(before(clock::now() + Duration::from_millis(10), exchange.next()).await.is_none());
        }
        assert!(!exchange.is_complete());
    });
}

#[test]
fn a_cut_answer_is_never_a_clean_end() {
    on_both_drivers(async || {
        for (answer, before_the_cut) in [
            ("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhello", "hello"),
            ("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n", ""),
            ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n", "hello"),
            ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n", "hello"),
            ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhel", "hel"),
        ] {
            let server = Server::answering_once(answer);
            let pool = pool();
            let mut exchange = post(&pool, &server.key(), "{}").await.unwrap();
            let mut got = Vec::new();
            let error = loop {
                match exchange.next().await {
                    Ok(Some(piece)) => got.extend_from_slice(&piece),
                    Ok(None) => panic!("a clean end of {answer:?}"),
                    Err(error) => break error,
                }
            };
            assert!(matches!(error, ClientError::Truncated), "{error:?}");
            assert_eq!(error.kind(), ErrorKind::UpstreamTruncated);
            assert_eq!(got, before_the_cut.as_bytes());
            assert!(matches!(exchange.next().await, Err(ClientError::AlreadyFailed)));
            assert!(!exchange.is_complete());
            assert_eq!(pool.stats().open, 0);
        }
    });
}

#[test]
fn a_reset_is_never_a_clean_end() {
    on_both_drivers(async || {
        let server = Server::start(|mut peer| {
            peer.request();
            peer.write("HTTP/1.1 200 OK\r\n\r\nhello");
            peer.pause(Duration::from_millis(50));
            peer.reset();
        });
        let mut exchange = post(&pool(), &server.key(), "{}").await.unwrap();
        assert_eq!(exchange.next().await.unwrap().unwrap(), "hello");
        assert!(matches!(exchange.next().await, Err(ClientError::ConnectionReset(_))));
    });
}

#[test]
fn an_answer_without_framing_ends_with_its_connection() {
    on_both_drivers(async || {
        let server = Server::answering_once("HTTP/1.1 200 OK\r\n\r\nhello");
        let pool = pool();
        assert_eq!(call(&pool, &server.key()).await.unwrap().1, "hello");
        assert_eq!((pool.stats().open, pool.stats().idle), (0, 0));
    });
}

#[test]
fn an_answer_that_has_no_body_by_its_kind_leaves_the_connection_usable() {
    on_both_drivers(async || {
        let server = Server::answering("HTTP/1.1 204 No Content\r\n\r\n");
        let pool = pool();
        // Nobody needs to ask for the body.
        assert!(post(&pool, &server.key(), "{}").await.unwrap().is_complete());
        assert_eq!(pool.stats().idle, 1);

        let server = Server::answering("HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n");
        let headers = Headers::new();
        let request = Outgoing { method: "HEAD", target: "/", headers: &headers, body: "".into() };
        let mut exchange = pool.send(&server.key(), &request, &Custody::default()).await.unwrap();
        assert!(exchange.next().await.unwrap().is_none());
        assert_eq!(pool.stats().idle, 2);
    });
}

#[test]
fn informational_heads_are_skipped_up_to_a_number() {
    on_both_drivers(async || {
        for (number, good) in [(1, true), (8, true), (9, false)] {
            let answer = "HTTP/1.1 100 Continue\r\n\r\n".repeat(number)
                + "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
            let server = Server::answering(answer);
            let pool = pool();
            match call(&pool, &server.key()).await {
                Ok((status, _)) => assert!(good && status == 200),
                Err(error) => {
                    assert!(!good && matches!(error, ClientError::TooManyInformational));
                    assert_eq!(error.kind(), ErrorKind::UpstreamProtocol);
                    assert_eq!(pool.stats().open, 0);
                }
            }
        }
    });
}

#[test]
fn what_is_not_http_is_refused() {
    on_both_drivers(async || {
        let endless = "x".repeat(200_000);
        let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "a: b\r\n".repeat(101));
        for answer in [
            "SSH-2.0-OpenSSH_9.2\r\n\r\n",
            "\0\0\0\0\r\n\r\n",
            "HTTP/2 200\r\n\r\n",
            "HTTP/1.1 200 OK\ncontent-length: 0\n\n",
            "HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab",
            "HTTP/1.1 200 OK\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n",
            "HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\n\r\n",
            &many,
            &endless,
        ] {
            let server = Server::answering(answer.to_owned());
            let pool = pool();
            let error = call(&pool, &server.key()).await.unwrap_err();
            assert!(matches!(error, ClientError::Head(_)), "{error:?}");
            assert_eq!((error.kind(), pool.stats().open), (ErrorKind::UpstreamProtocol, 0));
        }
        let server = Server::answering("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nxyz\r\n");
        let pool = pool();
        let error = call(&pool, &server.key()).await.unwrap_err();
        assert!(matches!(error, ClientError::Body(_)), "{error:?}");
        assert_eq!((error.kind(), pool.stats().open), (ErrorKind::UpstreamProtocol, 0));
    });
}

#[test]
fn a_provider_that_is_not_there_is_a_connect_error() {
    on_both_drivers(async || {
        let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let key = Key { address, authority: "nobody.test".into(), credential: 0, tls: None };
        let error = call(&pool(), &key).await.unwrap_err();
        assert!(matches!(error, ClientError::Connect(_)));
        assert_eq!(error.kind(), ErrorKind::Connect);
    });
}
