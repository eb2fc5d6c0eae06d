//! Refusals reach the client as a clean answer and end the connection.

use std::{io::Write, time::Duration};

use super::harness::{MAX_BODY, on_both};
use crate::{clock, http::limits::Limits};

#[expect(clippy::disallowed_methods, reason = "the pace of a client that drips is what is tested")]
fn pause() {
    std::thread::sleep(Duration::from_millis(20));
}

#[test]
fn refused_heads_are_answered_once_and_nothing_after_them_is_read() {
    on_both(&Limits::default(), |server| {
        for (head, status) in [
            ("GET / HTTP/1.1\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nhost: t\r\ntransfer-encoding: chunked\r\ncontent-length: 4\r\n\r\n", 400),
            ("GET / HTTP/1.1\nhost: t\n\n", 400),
            ("CONNECT t:443 HTTP/1.1\r\nhost: t\r\n\r\n", 501),
            ("GET / HTTP/2.0\r\nhost: t\r\n\r\n", 505),
            ("POST / HTTP/1.1\r\nhost: t\r\nexpect: x\r\n\r\n", 417),
            ("GET http://a/ HTTP/1.1\r\nhost: t\r\n\r\n", 400),
        ] {
            let mut client = server.connect();
            client.send(&format!("{head}GET /echo HTTP/1.1\r\nhost: t\r\n\r\n"));
            let (got, text, body) = client.response();
            assert_eq!((got, body.as_str()), (status, "refused"), "{head}");
            assert!(text.contains("connection: close"));
            assert_eq!(client.rest(), "", "{head}");
        }
        let mut client = server.connect();
        client.send(&format!("GET / HTTP/1.1\r\nhost: t\r\nx: {}\r\n\r\n", "y".repeat(300_000)));
        assert_eq!(client.response().0, 431);
        assert_eq!(client.rest(), "");
    });
}

#[test]
fn an_upgrade_is_ignored() {
    on_both(&Limits::default(), |server| {
        let mut client = server.connect();
        client.send("GET /echo HTTP/1.1\r\nhost: t\r\nconnection: upgrade\r\nupgrade: h2c\r\nhttp2-settings: x\r\n\r\n");
        let (status, head, _) = client.response();
        assert!(status == 200 && !head.contains("upgrade"), "{head}");
    });
}

#[test]
fn an_announced_length_over_the_limit_is_a_clean_413_with_and_without_expect() {
    on_both(&Limits::default(), |server| {
        for expect in ["", "expect: 100-continue\r\n"] {
            let length = MAX_BODY + 1;
            let head = format!("POST /echo HTTP/1.1\r\nhost: t\r\n{expect}content-length: {length}\r\n\r\n");
            let mut client = server.connect();
            client.send(&head);
            if expect.is_empty() {
                // As clients do: the whole body goes out before the answer is looked at.
                client.send(&"x".repeat(length));
            }
            let (status, head, body) = client.response();
            assert_eq!((status, body.as_str()), (413, "refused"), "{head}");
            assert!(head.contains("connection: close"));
            client.stream.shutdown(std::net::Shutdown::Write).unwrap();
            assert_eq!(client.rest(), "");
        }
    });
}

#[test]
fn a_chunked_body_over_the_limit_is_a_clean_413() {
    on_both(&Limits::default(), |server| {
        let mut client = server.connect();
        client.send("POST /echo HTTP/1.1\r\nhost: t\r\ntransfer-encoding: chunked\r\n\r\n");
        let chunk = format!("4000\r\n{}\r\n", "x".repeat(0x4000));
        client.send(&chunk.repeat(10));
        assert_eq!(client.response().0, 413);
        client.stream.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(client.rest(), "");
    });
}

#[test]
fn a_client_that_sends_much_more_than_the_limit_before_it_looks_finds_the_answer_and_no_reset() {
    on_both(&Limits::default(), |server| {
        let chunk = format!("100000\r\n{}\r\n", "x".repeat(0x10_0000));
        for (framing, body) in [
            ("content-length: 20000000", "x".repeat(20_000_000)),
            ("transfer-encoding: chunked", chunk.repeat(20)),
        ] {
            let mut client = server.connect();
            client.send(&format!("POST /echo HTTP/1.1\r\nhost: t\r\n{framing}\r\n\r\n{body}"));
            assert_eq!(client.response().0, 413, "{framing}");
            client.stream.shutdown(std::net::Shutdown::Write).unwrap();
            // A reset would be an error here.
            assert_eq!(client.rest(), "", "{framing}");
        }
    });
}

#[test]
fn a_refused_client_is_not_listened_to_without_end() {
    let limits = Limits { linger: Duration::from_millis(300), ..Limits::default() };
    on_both(&limits, |server| {
        let mut client = server.connect();
        client.send("POST /echo HTTP/1.1\r\nhost: t\r\ncontent-length: 20000000000\r\n\r\n");
        assert_eq!(client.response().0, 413);
        // It goes on for ever; sooner or later that is an error.
        let begun = clock::now();
        while client.stream.write_all(&[0; 1000]).is_ok() {
            pause();
            assert!(clock::now() - begun < Duration::from_secs(20));
        }
    });
}

fn post(length: usize) -> String {
    format!("POST /hang HTTP/1.1\r\nhost: t\r\ncontent-length: {length}\r\n\r\n")
}

#[test]
fn bodies_that_find_no_room_are_refused_and_what_ends_makes_room() {
    on_both(&Limits::default(), |server| {
        let holder = |length: usize| {
            let mut client = server.connect();
            client.send(&(post(length) + &"x".repeat(length)));
            client
        };
        let mut large = holder(90_000);
        large.until("begun");
        assert_eq!(server.budget.held(), 90_000);
        // By its announcement: before it is sent, and before it is asked for.
        let mut refused = server.connect();
        refused.send(
            &post(90_000).replace("/hang", "/echo").replace("\r\n\r\n", "\r\nexpect: 100-continue\r\n\r\n"),
        );
        let (status, head, _) = refused.response();
        assert!(status == 503 && head.contains("connection: close"), "{head}");
        // By its growth.
        let mut refused = server.connect();
        refused.send("POST /echo HTTP/1.1\r\nhost: t\r\ntransfer-encoding: chunked\r\n\r\n");
        refused.send(&format!("{:x}\r\n{}", 90_000, "x".repeat(90_000)));
        assert_eq!(refused.response().0, 503);
        // A small one finds some of what is kept for small ones.
        let mut small = holder(60_000);
        small.until("begun");
        assert_eq!(server.budget.held(), 150_000);
        // A body that is cut, and ones whose clients are gone.
        let mut cut = holder(40_000);
        cut.until("begun");
        let mut half = server.connect();
        half.send(&(post(9_000) + &"x".repeat(5_000)));
        while server.budget.held() != 199_000 {
            pause();
        }
        drop((large, small, cut, half));
        while server.budget.held() != 0 {
            pause();
        }
        holder(90_000).until("begun");
    });
}

#[test]
fn a_body_that_is_announced_and_does_not_come_takes_next_to_no_room() {
    on_both(&Limits::default(), |server| {
        let silent: Vec<_> = (0..10)
            .map(|_| {
                let mut client = server.connect();
                client.send(&post(90_000));
                client
            })
            .collect();
        let mut client = server.connect();
        client.send(&("POST /echo HTTP/1.1\r\nhost: t\r\ncontent-length: 4\r\n\r\n".to_owned() + "abcd"));
        assert_eq!(client.response().2, "abcd");
        assert!(server.budget.held() <= 10 * 16 * 1024, "{}", server.budget.held());
        drop(silent);
    });
}

#[test]
fn a_body_of_exactly_the_limit_is_taken() {
    on_both(&Limits::default(), |server| {
        let mut client = server.connect();
        client.send(&format!("POST /echo HTTP/1.1\r\nhost: t\r\ncontent-length: {MAX_BODY}\r\n\r\n"));
        client.send(&"x".repeat(MAX_BODY));
        assert_eq!(client.response().2.len(), MAX_BODY);
        client.send("POST /echo HTTP/1.1\r\nhost: t\r\ntransfer-encoding: chunked\r\n\r\n");
        client.send(&format!("{MAX_BODY:x}\r\n{}\r\n0\r\n\r\n", "x".repeat(MAX_BODY)));
        assert_eq!(client.response().2.len(), MAX_BODY);
    });
}

#[test]
fn a_client_that_expects_it_is_told_to_continue_before_it_sends_the_body() {
    on_both(&Limits::default(), |server| {
        let mut client = server.connect();
        let head = "POST /echo HTTP/1.1\r\nhost: t\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n";
        for _ in 0..2 {
            client.send(head);
            assert_eq!(client.until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
            client.send("ab");
            assert_eq!(client.response().2, "ab");
        }
        // Whoever does not wait needs no invitation.
        client.send(&format!("{head}cd"));
        let (status, _, body) = client.response();
        assert_eq!((status, body.as_str()), (200, "cd"));
        // An early answer without one: the body may or may not come, so the connection ends.
        client.send(&head.replace("/echo", "/early"));
        let (status, head, _) = client.response();
        assert!(status == 404 && head.contains("connection: close"), "{head}");
        assert_eq!(client.rest(), "");
    });
}

#[test]
fn a_slow_head_is_refused_at_its_total_deadline_however_it_drips() {
    let limits = Limits { head_deadline: Duration::from_millis(300), ..Limits::default() };
    on_both(&limits, |server| {
        for first in [true, false] {
            let mut client = server.connect();
            if !first {
                client.send("GET /echo HTTP/1.1\r\nhost: t\r\n\r\n");
                assert_eq!(client.response().0, 200);
            }
            let mut dripping = client.stream.try_clone().unwrap();
            let begun = clock::now();
            let drip = std::thread::spawn(move || {
                for byte in "GET /echo HTTP/1.1\r\nx: ".bytes().chain(std::iter::repeat_n(b'y', 100)) {
                    if dripping.write_all(&[byte]).is_err() || begun.elapsed() > Duration::from_secs(3) {
                        break;
                    }
                    pause();
                }
            });
            assert_eq!(client.response().0, 408);
            let took = begun.elapsed();
            assert!(took > Duration::from_millis(200) && took < Duration::from_secs(3), "{took:?}");
            drip.join().unwrap();
        }
    });
}

#[test]
fn a_body_below_the_minimum_rate_is_refused() {
    let limits = Limits { body_grace: Duration::from_millis(200), ..Limits::default() };
    on_both(&limits, |server| {
        let mut client = server.connect();
        client.send("POST /echo HTTP/1.1\r\nhost: t\r\ncontent-length: 100\r\n\r\nabc");
        assert_eq!(client.response().0, 408);
        assert_eq!(client.rest(), "");

        // Fast first and dripping afterwards: the fast part buys no time.
        let mut client = server.connect();
        client.send("POST /echo HTTP/1.1\r\nhost: t\r\ncontent-length: 90000\r\n\r\n");
        client.send(&"x".repeat(80_000));
        let mut dripping = client.stream.try_clone().unwrap();
        let begun = clock::now();
        let drip = std::thread::spawn(move || {
            while clock::now() - begun < Duration::from_secs(3) && dripping.write_all(b"y").is_ok() {
                pause();
            }
        });
        assert_eq!(client.response().0, 408);
        assert!(clock::now() - begun < Duration::from_secs(2), "{:?}", begun.elapsed());
        drip.join().unwrap();
    });
}

#[test]
fn malformed_and_cut_bodies_are_refused() {
    on_both(&Limits::default(), |server| {
        let mut client = server.connect();
        client.send("POST /echo HTTP/1.1\r\nhost: t\r\ntransfer-encoding: chunked\r\n\r\n1\nx\r\n0\r\n\r\n");
        assert_eq!(client.response().0, 400);
        assert_eq!(client.rest(), "");
        for start in ["POST /echo HTTP/1.1\r\nhost: t\r\ncontent-length: 5\r\n\r\nab", "GET / HT"] {
            let mut client = server.connect();
            client.send(start);
            client.stream.shutdown(std::net::Shutdown::Write).unwrap();
            assert_eq!(client.response().0, 400);
            assert_eq!(client.rest(), "");
        }
    });
}
