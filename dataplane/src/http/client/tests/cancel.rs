//! Cancelling: what is dropped is closed, and leaves nothing to the next request.

use std::{sync::atomic::Ordering::SeqCst, time::Duration};

use super::server::{Server, call, eventually, on_both_drivers, post, rest};
use crate::{
    clock,
    http::pool::{Pool, PoolLimits},
    time::before,
};

fn pool() -> Pool {
    Pool::new(PoolLimits::default())
}

fn soon(milliseconds: u64) -> std::time::Instant {
    clock::now() + Duration::from_millis(milliseconds)
}

#[test]
fn dropping_an_exchange_before_its_end_closes_the_connection() {
    on_both_drivers(async || {
        // Before the first byte of the body, in its middle, and while waiting for more.
        for manner in 0..3 {
            let server = Server::start(|mut peer| {
                peer.request();
                peer.write("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhello");
                peer.wait_closed();
            });
            let pool = pool();
            let mut exchange = post(&pool, &server.key(), "{}").await.unwrap();
            if manner > 0 {
                assert_eq!(exchange.next().await.unwrap().unwrap(), "hello");
            }
            if manner > 1 {
                assert!(before(soon(20), exchange.next()).await.is_none());
            }
            let begun = clock::now();
            drop(exchange);
            assert_eq!((pool.stats().open, pool.stats().idle), (0, 0));
            eventually("the provider sees the end", || server.seen.closed.load(SeqCst) == 1).await;
            assert!(clock::now() - begun < Duration::from_secs(1));
        }
    });
}

#[test]
fn dropping_a_request_that_waits_for_its_answer_closes_the_connection() {
    on_both_drivers(async || {
        // On a fresh and on a kept connection; and in the middle of an upload.
        for manner in 0..3 {
            let server = Server::start(move |mut peer| {
                if manner == 1 {
                    peer.request();
                    peer.write("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
                }
                peer.head();
                if manner == 2 {
                    peer.pause_unread(Duration::from_millis(300));
                }
                peer.wait_closed();
            });
            let pool = pool();
            if manner == 1 {
                call(&pool, &server.key()).await.unwrap();
            }
            let body = if manner == 2 { vec![b'x'; 20_000_000] } else { b"{}".to_vec() };
            let key = server.key();
            assert!(before(soon(100), post(&pool, &key, body)).await.is_none());
            let begun = clock::now();
            assert_eq!((pool.stats().open, pool.stats().idle, pool.stats().retried), (0, 0, 0));
            eventually("the provider sees the end", || server.seen.closed.load(SeqCst) == 1).await;
            assert!(clock::now() - begun < Duration::from_secs(2), "manner {manner}");
            assert_eq!(server.connections(), 1);
        }
    });
}

#[test]
fn an_answer_cancelled_at_any_byte_never_reaches_the_next_request() {
    const ANSWER: &str =
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n6\r\nsecret\r\n3\r\nabc\r\n0\r\n\r\n";
    on_both_drivers(async || {
        let server = Server::start(|mut peer| {
            while let Some((_, body)) = peer.request() {
                match String::from_utf8(body).unwrap().parse::<usize>() {
                    Ok(cut) => {
                        let (first, second) = ANSWER.split_at(cut);
                        peer.write(first);
                        peer.pause(Duration::from_millis(4));
                        peer.write(second);
                    }
                    Err(_) => peer.write("HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nmine"),
                }
            }
        });
        let pool = pool();
        let key = server.key();
        for cut in 0..=ANSWER.len() {
            let cancelled = async {
                let mut exchange = post(&pool, &key, cut.to_string()).await.unwrap();
                rest(&mut exchange).await.unwrap()
            };
            let _dropped = before(soon(2), cancelled).await;
            for _ in 0..2 {
                assert_eq!(call(&pool, &key).await.unwrap().1, "mine", "cut at {cut}");
            }
        }
    });
}
