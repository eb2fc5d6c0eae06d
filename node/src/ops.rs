//! The metrics endpoint: `GET /metrics` and `GET /healthz`, and nothing else (FRB-1).
//!
//! One request a connection: the answer says `connection: close`. A scraper comes a few times a minute, so this needs no
//! keep-alive, and no state of a connection outlives its answer.

use std::{pin::pin, rc::Rc, time::Duration};

use bytes::BytesMut;
use dataplane::{
    clock,
    crowd::Crowd,
    http::{
        h1::{encode, encode::Framing, parse::HeadScan},
        head::{Method, RequestHead},
        limits::Limits,
    },
    net::{Listener, Stream},
    shard::spawn_guarded,
    time::before,
};

use futures::future::select;

use crate::adapters::Provider;

/// Connections at a time; over it the oldest one gives way, so that mute or slow ones keep nobody out.
pub const CONNECTIONS_MAX: usize = 16;
/// From accept to the whole head, and again to the last byte of the answer.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// Bytes of one head.
const HEAD_BYTES_MAX: usize = 8 * 1024;

/// Accepts for ever.
pub async fn serve(mut listener: Listener, provider: Rc<Provider>) {
    let mut crowd = Crowd::new(CONNECTIONS_MAX);
    loop {
        let Ok(stream) = listener.accept().await else {
            provider.metrics.accepts_exhausted.inc();
            continue;
        };
        let (place, _displaces) = crowd.enter();
        let provider = Rc::clone(&provider);
        spawn_guarded(async move {
            let _over = select(pin!(answer(stream, &provider)), pin!(place.displaced())).await;
        });
    }
}

async fn answer(mut stream: Stream, provider: &Provider) {
    dataplane::panic_point!("node.ops");
    let head = before(clock::now() + REQUEST_TIMEOUT, read_head(&stream)).await;
    let (status, media, body) = match head {
        // Too slow, gone, or not HTTP: nobody to talk to.
        None | Some(None) => return,
        Some(Some(head)) => respond(&head, provider),
    };
    let fields: [(&str, &[u8]); 2] = [("content-type", media.as_bytes()), ("cache-control", b"no-store")];
    let mut out = Vec::new();
    if encode::response_head(&mut out, status, fields, Framing::Length(body.len() as u64), true).is_err() {
        return;
    }
    out.extend_from_slice(body.as_bytes());
    let _sent = stream.write_all(out, clock::now() + REQUEST_TIMEOUT).await;
    stream.shutdown_write();
}

async fn read_head(stream: &Stream) -> Option<RequestHead> {
    let limits = Limits { head_bytes: HEAD_BYTES_MAX, ..Limits::default() };
    let mut scan = HeadScan::default();
    let mut buffer = BytesMut::new();
    loop {
        match scan.request_head(&mut buffer, &limits) {
            Ok(Some(head)) => return Some(head),
            Ok(None) => {}
            Err(_) => return None,
        }
        if stream.read_some(&mut buffer, HEAD_BYTES_MAX).await.ok()? == 0 {
            return None;
        }
    }
}

fn respond(head: &RequestHead, provider: &Provider) -> (u16, &'static str, String) {
    const TEXT: &str = "text/plain; charset=utf-8";
    if head.method != Method::Get {
        return (405, TEXT, "only GET\n".to_owned());
    }
    match head.target.path() {
        "/metrics" => (200, "text/plain; version=0.0.4; charset=utf-8", provider.metrics_text()),
        "/healthz" => (200, TEXT, "ok\n".to_owned()),
        _ => (404, TEXT, "only /metrics and /healthz\n".to_owned()),
    }
}
