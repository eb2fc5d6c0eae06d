//! The other direction: the body of a request reaches the provider as the client sent it, apart from the model's name.

use std::time::Instant;

use anyhow::ensure;
use iop_tests::{
    bench::{SOON, sha256},
    http::Raw,
    kernel::unread_by_peer,
};

use super::{
    Rig,
    wire::{Framed, JSON, Wire},
};

/// The provider calls the model by another name, which is longer.
const MAPPED: &str = "protocol_profiles:\n  mapped: { base: openai_compat, driver: openai_chat, model_mapping: { m1: \"Org/Served-8B\" } }\n";

/// A body with everything that a rebuilt one would lose, `filling` in its middle.
fn body(filling: &str) -> String {
    format!(
        "{{ \"n\" : 1.0,\t\"messages\":[ {{\"role\":\"user\",\"content\":\"m1 \\u4f60 你好🌍é{filling}\",\"model\":\"m1\"}} ],\r\n\
         \"stream\":null ,\"model\" : \"m1\" , \"x\":1e2, \"x\":[ ],\"y\":\"\\\"model\\\":\\\"m1\\\"\" }}\n"
    )
}

/// What the provider is to get of it.
fn mapped(body: &str) -> String {
    body.replace("\"model\" : \"m1\"", "\"model\" : \"Org/Served-8B\"")
}

/// A request's bytes and where its body, framing included, begins.
fn request(token: &str, body: &[u8], chunk: Option<usize>) -> (Vec<u8>, usize) {
    let mut request = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: edge\r\nauthorization: Bearer {token}\r\ncontent-type: application/json\r\n"
    )
    .into_bytes();
    let Some(size) = chunk else {
        request.extend(format!("content-length: {}\r\n\r\n", body.len()).into_bytes());
        let begin = request.len();
        request.extend_from_slice(body);
        return (request, begin);
    };
    request.extend_from_slice(b"transfer-encoding: chunked\r\n\r\n");
    let begin = request.len();
    for (index, chunk) in body.chunks(size).enumerate() {
        let extension = if index % 2 == 0 { ";a=b" } else { "" };
        request.extend(format!("{:X}{extension}\r\n", chunk.len()).into_bytes());
        request.extend_from_slice(chunk);
        request.extend_from_slice(b"\r\n");
    }
    request.extend_from_slice(b"0\r\nx-trailer: 1\r\n\r\n");
    (request, begin)
}

/// Sends the pieces, each when the Edge has read the one before.
fn send(client: &mut Raw, pieces: &[&[u8]]) -> anyhow::Result<()> {
    for (index, piece) in pieces.iter().enumerate() {
        client.send(piece)?;
        let end = Instant::now() + SOON * 4;
        while index + 1 < pieces.len() && unread_by_peer(&client.stream)? > 0 {
            ensure!(Instant::now() < end, "the Edge does not read piece {index}");
        }
    }
    Ok(())
}

impl Rig {
    /// One exchange whose request is sent in `pieces`.
    fn upload(&mut self, pieces: &[&[u8]], expected: &[u8], what: &str) -> anyhow::Result<()> {
        send(&mut self.client, pieces)?;
        let mut call = self.server.next_call()?;
        ensure!(
            sha256(&call.body) == sha256(expected),
            "{what}: the provider got {:?}\ninstead of {:?}",
            String::from_utf8_lossy(&call.body),
            String::from_utf8_lossy(expected)
        );
        call.write(Wire::new(JSON, Framed::Length, b"{}").bytes())?;
        self.server.keep(call);
        let answer = self.client.answer()?;
        ensure!((answer.status, answer.text().as_str()) == (200, "{}"), "{what}: {}", answer.head);
        Ok(())
    }
}

// req: TUN-3, TUN-5
#[test]
fn a_request_cut_in_two_at_any_byte_of_its_body_reaches_the_provider_as_it_was_sent() -> anyhow::Result<()> {
    let mut rig = Rig::with(MAPPED)?;
    let body = body("");
    for chunk in [None, Some(41)] {
        let (bytes, begin) = request(rig.bench.site.token(), body.as_bytes(), chunk);
        for at in begin..bytes.len() {
            let (left, right) = bytes.split_at(at);
            rig.upload(&[left, right], mapped(&body).as_bytes(), &format!("{chunk:?} cut at {at}"))?;
        }
    }
    rig.bench.settles()
}

// req: TUN-3, TUN-5
#[test]
fn a_request_sent_byte_by_byte_reaches_the_provider_as_it_was_sent() -> anyhow::Result<()> {
    let mut rig = Rig::with(MAPPED)?;
    let body = body("");
    // A head and a body have 10 s each: the whole head goes first, and the many bytes of tiny chunks not one by one.
    for (chunk, size) in [(None, 1), (Some(41), 1), (Some(1), 5)] {
        let (bytes, begin) = request(rig.bench.site.token(), body.as_bytes(), chunk);
        let (head, rest) = bytes.split_at(begin);
        let pieces: Vec<_> = std::iter::once(head).chain(rest.chunks(size)).collect();
        rig.upload(&pieces, mapped(&body).as_bytes(), &format!("{chunk:?}"))?;
    }
    rig.bench.settles()
}

/// Up to 64 KiB a body goes to the Node in its request; beyond, the rest follows in parts (WIR-9).
// req: TUN-3, TUN-5, WIR-9
#[test]
fn a_request_around_the_size_of_its_parts_reaches_the_provider_as_it_was_sent() -> anyhow::Result<()> {
    const PART: usize = 64 * 1024;
    let mut rig = Rig::with(MAPPED)?;
    let longer = mapped(&body("")).len();
    for size in [PART - 1, PART, PART + 1, 2 * PART, 2 * PART + 1, 4 * PART, 4 * PART + 1, 16 * PART + 1] {
        let filled = "你".repeat((size - longer) / 3) + &"x".repeat((size - longer) % 3);
        let body = body(&filled);
        let expected = mapped(&body);
        assert_eq!(expected.len(), size);
        for chunk in [None, Some(PART - 3)] {
            let (bytes, begin) = request(rig.bench.site.token(), body.as_bytes(), chunk);
            for at in [begin, begin + 100, bytes.len() / 2, bytes.len() - 70, bytes.len() - 1] {
                let (left, right) = bytes.split_at(at);
                rig.upload(&[left, right], expected.as_bytes(), &format!("{size} {chunk:?} cut at {at}"))?;
            }
        }
    }
    rig.bench.settles()
}
