//! Cancelling: what is dropped is closed, and leaves nothing to the next request.

use std::{sync::atomic::Ordering::SeqCst, time::Duration};

use super::server::{Server, call, eventually, on_both_drivers, post, post_for, rest};
use crate::{
    clock,
    http::{
        client::{
            Custody,
            abort::{CLOSE_GRACE, IN_FLIGHT_TIME, Return},
        },
        pool::{Pool, PoolLimits},
    },
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

// req: TUN-4, POL-11
#[test]
fn a_provider_that_closes_when_it_is_told_has_returned_and_not_before() {
    on_both_drivers(async || {
        // While the head is waited for, and in the middle of the body.
        for head_sent in [false, true] {
            let server = Server::start(move |mut peer| {
                peer.request();
                if head_sent {
                    peer.write("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhello");
                }
                peer.wait_closed();
                // It has noticed, and still has something to do.
                peer.pause_unread(Duration::from_millis(300));
                peer.close();
            });
            let (pool, custody) = (pool(), Custody::default());
            let key = server.key();
            if head_sent {
                drop(post_for(&pool, &key, "{}", &custody).await.unwrap());
            } else {
                assert!(before(soon(50), post_for(&pool, &key, "{}", &custody)).await.is_none());
            }
            let abandoned = custody.take().unwrap();
            assert!(custody.take().is_none());
            assert_eq!((pool.stats().open, pool.stats().idle, server.marks()), (1, 0, 0));
            let told = clock::now();
            assert_eq!(pool.returned(abandoned).await, Return::Confirmed);
            assert!(clock::now() - told >= Duration::from_millis(250));
            assert_eq!(server.seen.closed.load(SeqCst), 1, "it was told");
            assert_eq!(pool.stats().open, 0);
        }
    });
}

#[test]
fn a_provider_that_only_notices_a_failing_write_is_reset() {
    on_both_drivers(async || {
        // Fast: over what can have been on its way. Slow: later than that.
        for (size, pause) in [(64 * 1024, 0), (10, 20)] {
            let server = Server::start(move |mut peer| {
                peer.request();
                peer.write("HTTP/1.1 200 OK\r\n\r\n");
                peer.write_until_refused(&vec![b'x'; size], Duration::from_millis(pause));
            });
            let (pool, custody) = (pool(), Custody::default());
            let mut exchange = post_for(&pool, &server.key(), "{}", &custody).await.unwrap();
            exchange.next().await.unwrap();
            drop(exchange);
            let told = clock::now();
            assert_eq!(pool.returned(custody.take().unwrap()).await, Return::StillSending);
            assert_eq!(pause == 0, clock::now() - told < IN_FLIGHT_TIME, "pieces of {size}");
            eventually("a write fails", || server.seen.closed.load(SeqCst) == 1).await;
        }
    });
}

// req: POL-11
#[test]
fn a_provider_that_ignores_the_end_is_reset_after_the_grace() {
    on_both_drivers(async || {
        let server = Server::start(|mut peer| {
            peer.request();
            peer.wait_closed();
            peer.pause_unread(CLOSE_GRACE * 4);
        });
        let (pool, custody) = (pool(), Custody::default());
        let key = server.key();
        assert!(before(soon(50), post_for(&pool, &key, "{}", &custody)).await.is_none());
        let told = clock::now();
        assert_eq!(pool.returned(custody.take().unwrap()).await, Return::Unconfirmed);
        assert!(clock::now() - told >= CLOSE_GRACE);
        assert_eq!(pool.stats().open, 0);
    });
}

#[test]
fn a_request_that_is_over_or_was_not_sent_whole_leaves_nothing_to_wait_for() {
    on_both_drivers(async || {
        let server = Server::answering("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi");
        let (pool, custody) = (pool(), Custody::default());
        let mut exchange = post_for(&pool, &server.key(), "{}", &custody).await.unwrap();
        rest(&mut exchange).await.unwrap();
        drop(exchange);
        assert!(custody.take().is_none());
        assert_eq!((call(&pool, &server.key()).await.unwrap().0, server.connections()), (200, 1));

        let cut = Server::answering_once("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhi");
        let mut exchange = post_for(&pool, &cut.key(), "{}", &custody).await.unwrap();
        rest(&mut exchange).await.unwrap_err();
        assert!(custody.take().is_none());

        let deaf = Server::start(|mut peer| {
            peer.head();
            peer.mark();
            peer.pause_unread(Duration::from_millis(300));
            peer.wait_closed();
        });
        let key = deaf.key();
        let body = vec![b'x'; 20_000_000];
        assert!(before(soon(100), post_for(&pool, &key, body, &custody)).await.is_none());
        assert!(custody.take().is_none());
        eventually("the provider sees the end", || deaf.seen.closed.load(SeqCst) == 1).await;
    });
}
