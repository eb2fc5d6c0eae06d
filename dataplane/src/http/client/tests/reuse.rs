//! Which connection a request goes out on, and when it is sent again.

use std::{sync::Arc, sync::atomic::AtomicBool, sync::atomic::Ordering::SeqCst, time::Duration};

use super::server::{PATIENCE, Server, call, eventually, on_both_drivers, post, rest};
use crate::{
    clock,
    http::{
        client::{ClientError, Custody, Outgoing},
        head::Headers,
        pool::{Pool, PoolLimits},
    },
    shard::{DriverWish, Shard, ShardSpec},
};

const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi";

fn pool() -> Pool {
    Pool::new(PoolLimits::default())
}

// req: TUN-7
#[test]
fn connections_are_kept_and_reused() {
    on_both_drivers(async || {
        let server = Server::answering(OK);
        let pool = pool();
        for round in 0..5 {
            let mut exchange = post(&pool, &server.key(), "{}").await.unwrap();
            assert_eq!((exchange.reused, exchange.retried), (round > 0, false));
            assert_eq!(rest(&mut exchange).await.unwrap(), "hi");
            assert!(exchange.is_complete());
            assert!(matches!(exchange.try_next(), Some(Ok(None))), "the end is told again and again");
        }
        let stats = pool.stats();
        assert_eq!((server.connections(), server.requests()), (1, 5));
        assert_eq!((stats.opened, stats.reused, stats.retried, stats.open, stats.idle), (1, 4, 0, 1, 1));
    });
}

// req: TUN-7
#[test]
fn connections_are_never_shared_between_credentials_or_authorities() {
    on_both_drivers(async || {
        let server = Server::answering(OK);
        let pool = pool();
        let mut other = server.key();
        other.authority = "other.test".into();
        let keys = [server.key_with(1), server.key_with(2), server.key(), other];
        for (already, key) in keys.iter().enumerate() {
            call(&pool, key).await.unwrap();
            assert_eq!(server.connections(), already + 1);
        }
        for key in &keys {
            call(&pool, key).await.unwrap();
        }
        assert_eq!((server.connections(), pool.stats().reused), (4, 4));
    });
}

#[test]
fn requests_at_the_same_time_have_connections_of_their_own() {
    on_both_drivers(async || {
        let server = Server::answering(OK);
        let pool = pool();
        let key = server.key();
        let (a, b) = futures::join!(call(&pool, &key), call(&pool, &key));
        assert_eq!((a.unwrap().1, b.unwrap().1), ("hi".into(), "hi".into()));
        assert_eq!((server.connections(), pool.stats().idle), (2, 2));
    });
}

/// Serves one request on the first connection, then reads one more and fails it; other connections do as `others` says.
fn dying(reset: bool, others_answer: bool) -> Server {
    Server::start(move |mut peer| {
        if peer.number == 0 {
            peer.request();
            peer.write(OK);
            peer.request();
            if reset {
                peer.reset();
            }
        } else if peer.request().is_some() && others_answer {
            peer.write(OK);
            peer.wait_closed();
        }
    })
}

// req: TUN-7
#[test]
fn a_request_that_fails_on_a_reused_connection_is_sent_once_more_on_a_fresh_one() {
    on_both_drivers(async || {
        for reset in [false, true] {
            let server = dying(reset, true);
            let pool = pool();
            call(&pool, &server.key()).await.unwrap();
            let mut exchange = post(&pool, &server.key(), "again").await.unwrap();
            assert_eq!((exchange.reused, exchange.retried), (false, true));
            assert_eq!(rest(&mut exchange).await.unwrap(), "hi");
            let stats = pool.stats();
            assert_eq!((server.connections(), server.requests()), (2, 3));
            assert_eq!((stats.opened, stats.retried, stats.open), (2, 1, 1));
        }
    });
}

// req: TUN-7
#[test]
fn the_second_sending_is_the_last() {
    on_both_drivers(async || {
        let server = dying(false, false);
        let pool = pool();
        call(&pool, &server.key()).await.unwrap();
        assert!(matches!(call(&pool, &server.key()).await, Err(ClientError::NoAnswer)));
        assert_eq!((server.connections(), server.requests(), pool.stats().retried), (2, 3, 1));
    });
}

// req: TUN-7
#[test]
fn the_second_sending_never_takes_another_kept_connection() {
    on_both_drivers(async || {
        // Two kept connections that both die on their second request: only one is tried.
        let server = Server::start(|mut peer| {
            peer.request();
            peer.write(OK);
            if peer.number < 2 {
                peer.request();
            } else {
                peer.wait_closed();
            }
        });
        let pool = pool();
        let key = server.key();
        let (a, b) = futures::join!(call(&pool, &key), call(&pool, &key));
        assert!(a.is_ok() && b.is_ok());
        let exchange = post(&pool, &key, "").await.unwrap();
        assert!(exchange.retried && !exchange.reused);
        assert_eq!((server.connections(), server.requests()), (3, 4));
    });
}

// req: TUN-7
#[test]
fn a_request_on_a_fresh_connection_is_never_sent_again() {
    on_both_drivers(async || {
        for reset in [false, true] {
            let server = Server::start(move |mut peer| {
                peer.request();
                if reset {
                    peer.reset();
                }
            });
            let pool = pool();
            let error = call(&pool, &server.key()).await.unwrap_err();
            assert!(matches!(error, ClientError::NoAnswer | ClientError::ConnectionReset(_)), "{error:?}");
            assert_eq!((server.connections(), server.requests(), pool.stats().retried), (1, 1, 0));
            assert_eq!(pool.stats().open, 0);
        }
    });
}

// req: TUN-7
#[test]
fn a_request_is_never_sent_again_after_one_byte_of_an_answer() {
    on_both_drivers(async || {
        for answer in ["H", "HTTP/1.1 103 Early Hints\r\n\r\n", "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n"] {
            let server = Server::start(move |mut peer| {
                peer.request();
                peer.write(OK);
                peer.request();
                peer.write(answer);
            });
            let pool = pool();
            call(&pool, &server.key()).await.unwrap();
            assert!(matches!(call(&pool, &server.key()).await, Err(ClientError::Truncated)));
            assert_eq!((server.connections(), server.requests(), pool.stats().retried), (1, 2, 0));
        }
    });
}

// req: TUN-7
#[test]
fn a_kept_connection_that_the_peer_closed_is_not_used() {
    on_both_drivers(async || {
        let server = Server::start(|mut peer| {
            peer.request();
            peer.write(OK);
            peer.close();
        });
        let pool = pool();
        for round in 0..3 {
            call(&pool, &server.key()).await.unwrap();
            eventually("the server closes", || server.marks() == round + 1).await;
        }
        let stats = pool.stats();
        assert_eq!((server.connections(), stats.stale, stats.reused, stats.retried), (3, 2, 0, 0));
    });
}

#[test]
fn bytes_after_the_end_of_an_answer_end_the_connection() {
    on_both_drivers(async || {
        // In one piece with the answer, and some time after it.
        for apart in [false, true] {
            let server = Server::start(move |mut peer| {
                let evil: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil";
                peer.request();
                if apart {
                    peer.write(OK);
                    peer.pause(Duration::from_millis(50));
                    peer.write(evil);
                } else {
                    peer.write([OK, evil].concat());
                }
                peer.mark();
                peer.wait_closed();
            });
            let pool = pool();
            for round in 0..2 {
                assert_eq!(call(&pool, &server.key()).await.unwrap().1, "hi");
                assert_eq!(pool.stats().idle, u64::from(apart));
                eventually("the server says more", || server.marks() == round + 1).await;
            }
            assert_eq!((server.connections(), pool.stats().reused), (2, 0));
        }
    });
}

#[test]
fn a_provider_that_says_close_is_taken_at_its_word() {
    on_both_drivers(async || {
        for head in ["HTTP/1.1 200 OK\r\nConnection: x, Close", "HTTP/1.0 200 OK\r\nConnection: keep-alive"] {
            let server = Server::answering(format!("{head}\r\ncontent-length: 2\r\n\r\nhi"));
            let pool = pool();
            call(&pool, &server.key()).await.unwrap();
            assert_eq!(pool.stats().open, 0, "{head}");
        }
    });
}

// req: TUN-7
#[test]
fn idle_connections_are_closed_when_their_time_is_up() {
    on_both_drivers(async || {
        let server = Server::answering(OK);
        let pool = Pool::new(PoolLimits { idle: Duration::from_millis(100), ..PoolLimits::default() });
        call(&pool, &server.key_with(1)).await.unwrap();
        call(&pool, &server.key_with(2)).await.unwrap();
        assert_eq!(pool.stats().idle, 2);
        eventually("both are closed", || server.seen.closed.load(SeqCst) == 2).await;
        let stats = pool.stats();
        assert_eq!((stats.expired, stats.idle, stats.open), (2, 0, 0));
        call(&pool, &server.key_with(1)).await.unwrap();
        eventually("the sweeper runs again", || pool.stats().expired == 3).await;
    });
}

// req: TUN-7
#[test]
fn the_idle_limit_stays_below_the_five_seconds_of_common_servers() {
    assert!(PoolLimits::default().idle < Duration::from_secs(5));
}

#[test]
fn the_number_of_idle_connections_is_bounded() {
    on_both_drivers(async || {
        let server = Server::answering(OK);
        let pool = Pool::new(PoolLimits { idle_per_key: 2, ..PoolLimits::default() });
        let key = server.key();
        let _all = futures::future::join_all((0..5).map(|_| call(&pool, &key))).await;
        let stats = pool.stats();
        assert_eq!((stats.opened, stats.idle, stats.open, stats.displaced), (5, 2, 2, 3));
    });
}

#[test]
fn idle_connections_can_be_closed_at_once() {
    on_both_drivers(async || {
        let server = Server::answering(OK);
        let pool = pool();
        call(&pool, &server.key()).await.unwrap();
        let running = post(&pool, &server.key_with(1), "{}").await.unwrap();
        pool.close_idle();
        assert_eq!((pool.stats().idle, pool.stats().open, running.is_complete()), (0, 1, false));
    });
}

#[test]
fn the_sweeper_ends_with_the_pool() {
    let (dropped, done) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
    let spec = ShardSpec { name: "sweep-test".to_owned(), cpu: None, driver: DriverWish::Auto };
    let (drops, ends) = (Arc::clone(&dropped), Arc::clone(&done));
    let shard = Shard::start(spec, move || async move {
        let server = Server::answering(OK);
        let pool = Pool::new(PoolLimits { idle: PATIENCE * 10, ..PoolLimits::default() });
        call(&pool, &server.key()).await.unwrap();
        drop(pool);
        drops.store(true, SeqCst);
        eventually("idle connections end with the pool", || server.seen.closed.load(SeqCst) == 1).await;
        eventually("told to end", || ends.load(SeqCst)).await;
    })
    .unwrap();
    let deadline = clock::now() + PATIENCE;
    while !dropped.load(SeqCst) || shard.tasks.live() > 0 {
        assert!(clock::now() < deadline, "the sweeper lives on");
        std::thread::yield_now();
    }
    done.store(true, SeqCst);
    assert!(shard.join());
}

#[test]
fn a_request_is_one_head_with_the_fields_of_the_pool() {
    on_both_drivers(async || {
        let server = Server::start(|mut peer| {
            while let Some((head, body)) = peer.request() {
                let echo = [head.into_bytes(), body].concat();
                peer.write(format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", echo.len()));
                peer.write(echo);
            }
        });
        let pool = pool();
        let mut headers = Headers::new();
        headers.push("x-a", "1").unwrap();
        headers.push("host", "evil").unwrap();
        headers.push("content-length", "1").unwrap();
        for (method, body, expected) in [
            (
                "POST",
                "{}",
                "POST /p?q HTTP/1.1\r\nhost: provider.test\r\nx-a: 1\r\ncontent-length: 2\r\n\r\n{}",
            ),
            ("POST", "", "POST /p?q HTTP/1.1\r\nhost: provider.test\r\nx-a: 1\r\ncontent-length: 0\r\n\r\n"),
            ("GET", "", "GET /p?q HTTP/1.1\r\nhost: provider.test\r\nx-a: 1\r\n\r\n"),
        ] {
            let request = Outgoing { method, target: "/p?q", headers: &headers, body: body.into() };
            let mut exchange = pool.send(&server.key(), &request, &Custody::default()).await.unwrap();
            assert_eq!(rest(&mut exchange).await.unwrap(), expected);
        }
        let request = Outgoing { method: "GET", target: "/p\r\nx: y", headers: &headers, body: "".into() };
        assert!(matches!(
            pool.send(&server.key(), &request, &Custody::default()).await,
            Err(ClientError::Request(_))
        ));
    });
}
