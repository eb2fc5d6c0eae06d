//! While a response is pending: clients that go, talk or stop reading.

use std::{io::Read, net::Shutdown, time::Duration};

use super::harness::{Server, UNREAD, on_both};
use crate::{clock, http::limits::Limits};

fn hang(server: &Server) -> super::harness::Client {
    let mut client = server.connect();
    client.send("POST /hang HTTP/1.1\r\nhost: t\r\ncontent-length: 2\r\n\r\nok");
    client.until("5\r\nbegun\r\n");
    assert_eq!(server.saw(), "hanging");
    client
}

#[test]
fn a_client_that_goes_during_silence_is_noticed_at_once() {
    on_both(&Limits::default(), |server| {
        let client = hang(server);
        let left = clock::now();
        drop(client);
        assert_eq!(server.saw(), "gone");
        assert!(left.elapsed() < Duration::from_secs(1));

        // Also when it resets: unread data at its close does that.
        let client = hang(server);
        socket2::SockRef::from(&client.stream).set_linger(Some(Duration::ZERO)).unwrap();
        drop(client);
        assert_eq!(server.saw(), "gone");

        let client = hang(server);
        client.stream.shutdown(Shutdown::Write).unwrap();
        assert_eq!(server.saw(), "gone");
    });
}

#[test]
fn a_request_sent_in_advance_is_kept_and_answered_after_the_pending_one() {
    on_both(&Limits::default(), |server| {
        let mut client = hang(server);
        client.send("POST /echo HTTP/1.1\r\nhost: t\r\n");
        assert_eq!(server.saw(), "more");
        client.until("4\r\nmore\r\n");
        client.send("content-length: 0\r\n\r\n");
        client.until("0\r\n\r\n");
        assert_eq!(client.response().0, 200);
    });
}

const WAIT: &str = "POST /wait HTTP/1.1\r\nhost: t\r\n\r\n";
const ECHO: &str = "POST /echo HTTP/1.1\r\nhost: t\r\ncontent-length: 2\r\n\r\nok";

#[test]
fn the_watch_of_an_answer_waits_for_the_next_request() {
    on_both(&Limits::default(), |server| {
        let mut client = server.connect();
        for _ in 0..2 {
            client.send(WAIT);
            assert_eq!(server.saw(), "waiting");
            assert_eq!(client.response().2, "waited");
            client.send(ECHO);
            assert_eq!(server.saw(), "kept watch fired");
            assert_eq!(server.saw(), "body 2");
            assert_eq!(client.response().2, "ok");
        }
        // Also for its end.
        client.send(WAIT);
        assert_eq!(server.saw(), "waiting");
        client.response();
        drop(client);
        assert_eq!(server.saw(), "kept watch fired");
        assert_eq!(server.saw(), "end");
    });
}

#[test]
fn a_watch_that_fired_for_what_is_taken_already_is_no_end_and_no_request() {
    on_both(&Limits::default(), |server| {
        let mut client = server.connect();
        client.send(WAIT);
        assert_eq!(server.saw(), "waiting");
        client.send(ECHO);
        assert_eq!(client.response().2, "waited");
        assert_eq!(server.saw(), "body 2");
        assert_eq!(client.response().2, "ok");
        // On the ring it has fired by now; the other driver looks again, and finds nothing before this.
        client.send(ECHO);
        assert_eq!(server.saw(), "kept watch fired");
        assert_eq!(server.saw(), "body 2");
        assert_eq!(client.response().2, "ok");
    });
}

#[test]
fn a_kept_watch_does_not_hold_a_connection_open_that_was_idle_for_too_long() {
    let limits = Limits { keepalive_idle: Duration::from_millis(300), ..Limits::default() };
    on_both(&limits, |server| {
        let mut client = server.connect();
        client.send(WAIT);
        assert_eq!(server.saw(), "waiting");
        assert_eq!(client.response().2, "waited");
        assert_eq!(server.saw(), "end");
        assert_eq!(client.rest(), "");
    });
}

#[test]
fn a_silent_client_wakes_nobody_also_after_it_has_said_something() {
    on_both(&Limits::default(), |server| {
        let quiet = |server: &Server| server.seen.recv_timeout(Duration::from_millis(200)).is_err();
        let mut client = hang(server);
        assert!(quiet(server));
        client.send("POST /echo HTTP/1.1\r\n");
        assert_eq!(server.saw(), "more");
        assert!(quiet(server));
    });
}

#[test]
fn a_client_that_sends_too_much_in_advance_is_not_listened_to() {
    let limits = Limits { look_ahead: 10_000, ..Limits::default() };
    on_both(&limits, |server| {
        let mut client = hang(server);
        client.send(&"x".repeat(30_000));
        while server.saw() != "deaf" {}
        // It goes on with what it kept, which is no request.
        client.until("0\r\n\r\n");
    });
}

#[test]
fn a_client_that_stops_reading_is_cut_at_the_stall_deadline() {
    let limits = Limits { write_stall: Duration::from_millis(300), ..Limits::default() };
    on_both(&limits, |server| {
        let mut client = server.connect();
        client.send("GET /firehose HTTP/1.1\r\nhost: t\r\n\r\n");
        assert_eq!(server.saw(), "stalled");
        // The cut cannot be taken for a whole answer.
        assert!(!ends_whole(&mut client));
    });
}

#[test]
fn a_client_that_leaves_in_the_middle_of_a_write_breaks_it() {
    on_both(&Limits::default(), |server| {
        let mut client = server.connect();
        client.send("GET /firehose HTTP/1.1\r\nhost: t\r\n\r\n");
        client.until("\r\n\r\n");
        drop(client);
        assert_eq!(server.saw(), "broken");
    });
}

#[test]
fn a_response_that_is_broken_off_lacks_its_end() {
    on_both(&Limits::default(), |server| {
        let mut client = server.connect();
        client.send("GET /break HTTP/1.1\r\nhost: t\r\n\r\n");
        client.until("\r\n\r\n");
        assert_eq!(client.rest(), "4\r\npart\r\n");
    });
}

#[test]
fn a_response_that_is_aborted_ends_in_a_reset() {
    on_both(&Limits::default(), |server| {
        let mut client = server.connect();
        client.send("GET /reset HTTP/1.1\r\nhost: t\r\n\r\n");
        client.until("4\r\npart\r\n");
        assert!(!ends_whole(&mut client));
    });
}

// req: API-1
#[test]
fn an_answer_that_only_a_close_ends_is_reset_by_any_close_before_its_end() {
    on_both(&Limits::default(), |server| {
        let mut client = server.connect();
        client.send("GET /until-death HTTP/1.1\r\nhost: t\r\n\r\n");
        client.until("part");
        assert!(!ends_whole(&mut client));

        // A proper end stays one, also for a client that reads only when the server has long since closed.
        let mut client = server.connect();
        client.send("GET /until-close HTTP/1.1\r\nhost: t\r\n\r\n");
        assert_eq!(server.saw(), "end");
        client.until("part");
        assert_eq!(client.rest().len(), UNREAD);
    });
}

/// Whether the connection's rest ends with the last chunk and an orderly end.
fn ends_whole(client: &mut super::harness::Client) -> bool {
    let mut sink = vec![0; 1 << 20];
    loop {
        match client.stream.read(&mut sink) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(_) => return false,
        }
    }
}
