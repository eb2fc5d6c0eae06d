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
            while begun.elapsed() < Duration::from_secs(3) && dripping.write_all(b"y").is_ok() {
                pause();
            }
        });
        assert_eq!(client.response().0, 408);
        assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
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
