//! What is answered, and which connections go on afterwards.

use std::time::Duration;

use super::harness::on_both;
use crate::http::limits::Limits;

const GET: &str = "GET /echo HTTP/1.1\r\nhost: t\r\n\r\n";

fn post(path: &str, body: &str) -> String {
    format!("POST {path} HTTP/1.1\r\nhost: t\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

#[test]
fn a_connection_serves_one_request_after_the_other() {
    on_both(&Limits::default(), |server| {
        let mut client = server.connect();
        for body in ["", "hello", &"x".repeat(90_000), "again"] {
            client.send(&post("/echo", body));
            let (status, head, echoed) = client.response();
            assert_eq!((status, echoed.as_str()), (200, body));
            assert!(!head.contains("connection:") && head.contains("\r\ndate: "), "{head}");
        }
        client.send("POST /echo HTTP/1.1\r\nhost: t\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n");
        client.send("2;x\r\nde\r\n0\r\nt: u\r\n\r\n");
        assert_eq!(client.response().2, "abcde");
        drop(client);
        assert_eq!((0..6).map(|_| server.saw()).nth(5).as_deref(), Some("end"));
    });
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    on_both(&Limits::default(), |server| {
        let mut client = server.connect();
        let requests =
            [post("/echo", "a"), post("/echo", "GET / HTTP/1.1\r\n\r\n"), GET.to_owned(), post("/echo", "d")];
        client.send(&requests.concat());
        let bodies: Vec<_> = (0..4).map(|_| client.response().2).collect();
        assert_eq!(bodies, ["a", "GET / HTTP/1.1\r\n\r\n", "", "d"]);
    });
}

#[test]
fn a_request_may_come_byte_by_byte() {
    on_both(&Limits::default(), |server| {
        let mut client = server.connect();
        client.stream.set_nodelay(true).unwrap();
        for byte in post("/echo", "drop").bytes() {
            client.send(std::str::from_utf8(&[byte]).unwrap());
        }
        assert_eq!(client.response().2, "drop");
    });
}

#[test]
fn a_streamed_response_is_chunked_and_the_connection_goes_on() {
    on_both(&Limits::default(), |server| {
        let mut client = server.connect();
        client.send("GET /stream HTTP/1.1\r\nhost: t\r\n\r\n");
        let head = client.until("\r\n\r\n");
        assert_eq!(
            head,
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ndate: today\r\ntransfer-encoding: chunked\r\n\r\n"
        );
        assert_eq!(client.until("0\r\n\r\n"), "4\r\none,\r\n9\r\ntwo,three\r\n0\r\n\r\n");
        client.send(&post("/echo", "next"));
        assert_eq!(client.response().2, "next");
    });
}

#[test]
fn an_older_client_gets_its_stream_up_to_the_close() {
    on_both(&Limits::default(), |server| {
        let mut client = server.connect();
        client.send("GET /stream HTTP/1.0\r\n\r\n");
        let head = client.until("\r\n\r\n");
        assert!(!head.contains("transfer-encoding") && head.contains("connection: close"), "{head}");
        assert_eq!(client.rest(), "one,two,three");

        let mut client = server.connect();
        client.send("POST /echo HTTP/1.0\r\ncontent-length: 2\r\nconnection: keep-alive\r\n\r\nhi");
        assert_eq!(client.response().2, "hi");
        assert_eq!(client.rest(), "");
    });
}

#[test]
fn head_and_204_have_no_body_and_the_connection_goes_on() {
    on_both(&Limits::default(), |server| {
        let mut client = server.connect();
        client.send("HEAD /early HTTP/1.1\r\nhost: t\r\n\r\n");
        assert!(client.until("\r\n\r\n").contains("content-length: 5\r\n"));
        client.send("HEAD /stream HTTP/1.1\r\nhost: t\r\n\r\n");
        client.until("\r\n\r\n");
        client.send("GET /nothing HTTP/1.1\r\nhost: t\r\n\r\n");
        let head = client.until("\r\n\r\n");
        assert!(
            head.starts_with("HTTP/1.1 204 No Content\r\n") && !head.contains("content-length"),
            "{head}"
        );
        client.send(&post("/echo", "next"));
        assert_eq!(client.response().2, "next");
    });
}

#[test]
fn a_small_unread_body_is_thrown_away_and_never_answered_as_a_request() {
    on_both(&Limits::default(), |server| {
        let mut client = server.connect();
        client.send(&(post("/early", GET) + &post("/echo", "second")));
        assert_eq!(client.response().2, "early");
        assert_eq!(client.response().2, "second");
        client.send(
            "POST /early HTTP/1.1\r\nhost: t\r\ntransfer-encoding: chunked\r\n\r\n3\r\nGET\r\n0\r\n\r\n",
        );
        client.send(GET);
        assert_eq!(client.response().2, "early");
        assert_eq!(client.response().0, 200);
    });
}

#[test]
fn a_body_that_is_not_there_yet_or_too_large_ends_the_connection() {
    on_both(&Limits::default(), |server| {
        for (length, sent) in [(70_000, "x".repeat(100)), (10, String::new()), (50, GET.to_owned())] {
            let mut client = server.connect();
            client
                .send(&format!("POST /early HTTP/1.1\r\nhost: t\r\ncontent-length: {length}\r\n\r\n{sent}"));
            let (status, head, body) = client.response();
            assert_eq!((status, body.as_str()), (404, "early"));
            assert!(head.contains("connection: close"), "{head}");
            client.send(GET);
            assert_eq!(client.rest(), "");
        }
    });
}

#[test]
fn a_client_that_wants_to_close_is_told_so() {
    on_both(&Limits::default(), |server| {
        let mut client = server.connect();
        client.send(&GET.replace("\r\n\r\n", "\r\nConnection: x, Close\r\n\r\n"));
        assert!(client.response().1.contains("connection: close"));
        assert_eq!(client.rest(), "");
    });
}

#[test]
fn an_idle_connection_is_closed_without_a_word() {
    let limits = Limits { keepalive_idle: Duration::from_millis(150), ..Limits::default() };
    on_both(&limits, |server| {
        let mut client = server.connect();
        client.send(GET);
        assert_eq!(client.response().0, 200);
        assert_eq!(client.rest(), "");
    });
    let limits = Limits { head_deadline: Duration::from_millis(150), ..Limits::default() };
    on_both(&limits, |server| assert_eq!(server.connect().rest(), ""));
}

#[test]
fn a_drain_ends_idle_connections_and_those_inside_a_head() {
    on_both(&Limits::default(), |server| {
        let (mut idle, mut half, mut other) = (server.connect(), server.connect(), server.connect());
        idle.send(GET);
        assert_eq!(idle.response().0, 200);
        half.send("GET / HT");
        other.send("GET /drain HTTP/1.1\r\nhost: t\r\n\r\n");
        assert!(other.response().1.contains("connection: close"));
        for client in [&mut idle, &mut other] {
            assert_eq!(client.rest(), "");
        }
        assert_eq!(half.rest(), "");
    });
}

#[test]
fn a_body_that_is_not_as_long_as_announced_ends_the_connection() {
    on_both(&Limits::default(), |server| {
        let mut client = server.connect();
        client.send("GET /short HTTP/1.1\r\nhost: t\r\n\r\n");
        client.until("\r\n\r\n");
        assert_eq!(client.rest(), "12345");
        let mut client = server.connect();
        client.send("GET /over HTTP/1.1\r\nhost: t\r\n\r\n");
        client.until("\r\n\r\n");
        assert_eq!(client.rest(), "12345");
    });
}
