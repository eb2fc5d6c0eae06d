//! Large requests, and answers that come before their end.

use std::{
    sync::{LazyLock, atomic::Ordering::SeqCst},
    time::Duration,
};

use bytes::Bytes;
use proto::message::ErrorKind;

use super::server::{Server, call, on_both_drivers, post, rest};
use crate::{
    clock,
    http::{
        client::ClientError,
        pool::{Pool, PoolLimits},
    },
    net::WriteFault,
};

const LARGE: usize = 20_000_000;
const REFUSAL: &[u8] = b"HTTP/1.1 413 Content Too Large\r\ncontent-length: 9\r\n\r\ntoo large";

fn large() -> Bytes {
    static CONTENT: LazyLock<Bytes> = LazyLock::new(|| (0..LARGE).map(|n| (n % 251) as u8).collect());
    CONTENT.clone()
}

fn pool() -> Pool {
    Pool::new(PoolLimits::default())
}

#[test]
fn a_large_request_arrives_unchanged_and_keeps_its_connection() {
    on_both_drivers(async || {
        let server = Server::start(|mut peer| {
            while let Some((_, body)) = peer.request() {
                let same = body == large()[..body.len()];
                peer.write(format!(
                    "HTTP/1.1 200 OK\r\ncontent-length: 0\r\nx-same: {same} {}\r\n\r\n",
                    body.len()
                ));
            }
        });
        let pool = pool();
        // Around the limits of what goes out in one write.
        for length in [1, 65_535, 65_536, 65_537, 262_143, 262_144, 262_145, 524_289, LARGE] {
            let exchange = post(&pool, &server.key(), large().slice(..length)).await.unwrap();
            assert_eq!(exchange.head.headers.get_str("x-same"), Some(format!("true {length}").as_str()));
        }
        assert_eq!((server.connections(), server.requests()), (1, 9));
    });
}

#[test]
fn an_early_refusal_stops_the_upload() {
    on_both_drivers(async || {
        // One closes at once, one reads no more and keeps the connection, one goes on reading; and the second
        // again after an informational head.
        for manner in 0..4 {
            let server = Server::start(move |mut peer| {
                peer.head();
                peer.body(100_000);
                if manner == 3 {
                    peer.write("HTTP/1.1 102 Processing\r\n\r\n");
                    peer.body(8_000_000);
                }
                peer.write(REFUSAL);
                match manner {
                    0 => {}
                    1 | 3 => peer.pause_unread(Duration::from_secs(9)),
                    _ => peer.wait_closed(),
                }
            });
            let pool = pool();
            let begun = clock::now();
            let mut exchange = post(&pool, &server.key(), large()).await.unwrap();
            assert_eq!(exchange.head.status, 413);
            if manner != 0 {
                assert_eq!(rest(&mut exchange).await.unwrap(), "too large");
            }
            drop(exchange);
            assert!(clock::now() - begun < Duration::from_secs(8), "manner {manner}");
            assert_eq!((server.connections(), pool.stats().open, pool.stats().idle), (1, 0, 0));
        }
    });
}

#[test]
fn an_early_refusal_is_heard_at_once_by_an_upload_that_is_stuck() {
    on_both_drivers(async || {
        // The provider takes no more, so that the upload waits for room, and only then answers.
        let server = Server::start(|mut peer| {
            peer.head();
            peer.pause_unread(Duration::from_millis(500));
            peer.write(REFUSAL);
            peer.pause_unread(Duration::from_secs(20));
        });
        let mut took = Vec::new();
        for _ in 0..3 {
            let begun = clock::now();
            let mut exchange = post(&pool(), &server.key(), large()).await.unwrap();
            assert_eq!(exchange.head.status, 413);
            assert_eq!(rest(&mut exchange).await.unwrap(), "too large");
            took.push(clock::now() - begun);
        }
        let best = took.into_iter().min().unwrap();
        assert!(best < Duration::from_millis(1500), "{best:?}");
    });
}

#[test]
fn an_early_success_lets_the_upload_go_on() {
    on_both_drivers(async || {
        let server = Server::start(|mut peer| {
            peer.head();
            let mut got = peer.body(100_000).len();
            peer.write("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n");
            got += peer.body(LARGE - got).len();
            peer.write(format!("8\r\n{got:08}\r\n0\r\n\r\n"));
            peer.wait_closed();
        });
        let pool = pool();
        let mut exchange = post(&pool, &server.key(), large()).await.unwrap();
        assert_eq!(rest(&mut exchange).await.unwrap(), "20000000");
        assert_eq!(pool.stats().idle, 1);
    });
}

#[test]
fn informational_heads_do_not_disturb_an_upload() {
    on_both_drivers(async || {
        let server = Server::start(|mut peer| {
            peer.head();
            for _ in 0..5 {
                peer.body(LARGE / 5);
                peer.write("HTTP/1.1 102 Processing\r\n\r\n");
            }
            peer.write("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi");
            peer.wait_closed();
        });
        let pool = pool();
        let mut exchange = post(&pool, &server.key(), large()).await.unwrap();
        assert_eq!(rest(&mut exchange).await.unwrap(), "hi");
        assert_eq!(server.seen.body.load(SeqCst), LARGE);
        assert_eq!(pool.stats().idle, 1);
    });
}

#[test]
fn a_provider_that_stops_reading_ends_the_request() {
    on_both_drivers(async || {
        let server = Server::start(|mut peer| {
            peer.head();
            peer.pause_unread(Duration::from_secs(5));
        });
        let pool = Pool::new(PoolLimits { write_stall: Duration::from_millis(200), ..PoolLimits::default() });
        let error = post(&pool, &server.key(), large()).await.unwrap_err();
        assert!(matches!(error, ClientError::Write(WriteFault::Stalled)), "{error:?}");
        assert_eq!((error.kind(), pool.stats().open), (ErrorKind::UpstreamTruncated, 0));
    });
}

// req: TUN-7
#[test]
fn a_large_request_on_a_dead_kept_connection_is_sent_once_more_from_its_start() {
    on_both_drivers(async || {
        let server = Server::start(|mut peer| {
            if peer.number == 0 {
                peer.request();
                peer.write("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
                peer.head();
                peer.body(1_000_000);
                return;
            }
            let (_, body) = peer.request().unwrap();
            let same = body == large();
            peer.write(format!("HTTP/1.1 200 OK\r\ncontent-length: 0\r\nx-same: {same}\r\n\r\n"));
            peer.wait_closed();
        });
        let pool = pool();
        call(&pool, &server.key()).await.unwrap();
        let exchange = post(&pool, &server.key(), large()).await.unwrap();
        assert_eq!(exchange.head.headers.get_str("x-same"), Some("true"));
        assert!(exchange.retried);
        assert_eq!((server.connections(), server.requests()), (2, 3));
    });
}
