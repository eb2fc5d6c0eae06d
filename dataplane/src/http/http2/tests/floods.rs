//! One test for each way to make a server work for nothing (security.md section 3, row 16): each ends by a GOAWAY, within 10,000
//! frames.

use super::{
    harness::{Server, on_both},
    raw::{
        CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADERS, PING, PRIORITY, RESET, Raw, SETTINGS,
        WINDOW_UPDATE, frame, request,
    },
};
use crate::shard::DriverWish;

const WHOLE: u8 = END_STREAM | END_HEADERS;
const CALM: u32 = 11;
const FRAMES: u32 = 10_000;

/// Sends `FRAMES` times what `of` gives, all behind `before`, and wants the connection to end by the code.
fn floods(server: &Server, name: &str, code: u32, before: &[u8], of: impl Fn(u32) -> Vec<u8>) {
    let mut raw = Raw::connect(server.address);
    raw.send(before).unwrap();
    for at in 0..FRAMES {
        if raw.send(&of(at)).is_err() {
            break;
        }
    }
    assert_eq!(raw.goaway(), Some(code), "{name}");
    let ended = server.all_up_to("ended flood");
    assert!(ended.iter().any(|what| what.starts_with("goaway")), "{name}");
    // And others are served.
    let mut raw = Raw::connect(server.address);
    raw.frame(HEADERS, WHOLE, 1, &request("GET", "/hello", &[]));
    assert_eq!(raw.next_of(DATA).unwrap().payload, b"hello", "{name}");
    drop(raw);
    server.saw_at_last("ended closed");
}

#[test]
fn pings_settings_priorities_and_unknown_frames() {
    on_both(|server| {
        floods(server, "ping", CALM, &[], |_| frame(PING, 0, 0, &[7; 8]));
        floods(server, "ping ack", CALM, &[], |_| frame(PING, 1, 0, &[7; 8]));
        floods(server, "settings", CALM, &[], |_| frame(SETTINGS, 0, 0, &[]));
        floods(server, "priority", CALM, &[], |at| frame(PRIORITY, 0, 2 * at + 1, &[0, 0, 0, 0, 16]));
        floods(server, "unknown", CALM, &[], |_| frame(0xfa, 0, 0, &[]));
    });
}

#[test]
fn windows_that_open_by_a_little() {
    on_both(|server| {
        let begun = frame(HEADERS, WHOLE, 1, &request("GET", "/wait", &[]));
        floods(server, "window update", CALM, &begun, |_| frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1]));
    });
}

/// CVE-2023-44487.
#[test]
fn requests_that_are_reset_at_once() {
    on_both(|server| {
        floods(server, "rapid reset", CALM, &[], |at| {
            let stream = 2 * at + 1;
            let mut both = frame(HEADERS, WHOLE, stream, &request("GET", "/wait", &[]));
            both.extend(frame(RESET, 0, stream, &8_u32.to_be_bytes()));
            both
        });
    });
}

/// The same, so slowly that each request has begun to be answered.
#[test]
fn requests_that_are_reset_when_they_run() {
    let server = Server::usual(DriverWish::Auto);
    let mut raw = Raw::connect(server.address);
    let mut stream = 1;
    while stream < 2 * FRAMES {
        raw.frame(HEADERS, WHOLE, stream, &request("GET", "/wait", &[]));
        if !server.all_up_to_any(&["waits", "ended flood"]).ends_with("waits") {
            break;
        }
        raw.frame(RESET, 0, stream, &8_u32.to_be_bytes());
        stream += 2;
    }
    assert_eq!(raw.goaway(), Some(CALM));
    assert!(stream > 400, "a crowd of clients behind one proxy may well leave together");
}

/// CVE-2025-8671: the client has the server reset its streams.
#[test]
fn requests_that_have_us_reset_them() {
    on_both(|server| {
        floods(server, "window of too much", CALM, &[], |at| {
            let stream = 2 * at + 1;
            let mut both = frame(HEADERS, WHOLE, stream, &request("GET", "/wait", &[]));
            both.extend(frame(WINDOW_UPDATE, 0, stream, &[0x7f, 0xff, 0xff, 0xff]));
            both
        });
        floods(server, "malformed", CALM, &[], |at| {
            frame(HEADERS, WHOLE, 2 * at + 1, &request("GET", "/hello", &[("connection", "close")]))
        });
        // Over the limit of streams.
        floods(server, "refused", CALM, &[], |at| {
            frame(HEADERS, WHOLE, 2 * at + 1, &request("GET", "/wait", &[]))
        });
    });
}

#[test]
fn a_head_that_never_ends() {
    on_both(|server| {
        let begun = frame(HEADERS, END_STREAM, 1, &request("GET", "/hello", &[]));
        floods(server, "continuation", CALM, &begun, |_| frame(CONTINUATION, 0, 1, &[0, 1, b'x', 1, b'y']));
        floods(server, "empty continuation", CALM, &begun, |_| frame(CONTINUATION, 0, 1, &[]));
    });
}

/// RUSTSEC-2026-0258.
#[test]
fn data_of_next_to_nothing() {
    on_both(|server| {
        let begun = frame(HEADERS, END_HEADERS, 1, &request("POST", "/echo", &[]));
        floods(server, "empty data", CALM, &begun, |_| frame(DATA, 0, 1, &[]));
    });
}

/// A few bytes that name a large field of the table again and again.
#[test]
fn a_head_that_is_a_bomb() {
    on_both(|server| {
        // Into the table (RFC 7541 section 6.2.1), then 4,000 times from there: 16 MiB.
        let mut head = request("GET", "/hello", &[]);
        let value = "v".repeat(4000);
        head.extend([0x40, 1, b'x', 127]);
        let mut rest = value.len() - 127;
        while rest >= 128 {
            head.push(u8::try_from(rest % 128).unwrap() | 128);
            rest /= 128;
        }
        head.push(u8::try_from(rest).unwrap());
        head.extend(value.as_bytes());
        head.extend([0x80 | 62; 4000]);
        let mut raw = Raw::connect(server.address);
        raw.frame(HEADERS, WHOLE, 1, &head);
        let ended = raw.goaway();
        assert!(matches!(ended, Some(1 | 9 | CALM)), "{ended:?}");
    });
}
