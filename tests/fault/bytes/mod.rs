//! Bytes: a body arrives as it was sent, however it was cut on its way.
//!
//! Cuts are made in lockstep: a piece is written only when the piece before is proven to have been read, by the Node's own
//! counters of reads and bytes, and, where the piece held bytes of the body, when the client has them: of a stream from its first content on.

mod cases;
mod large;
mod pace;
mod requests;
mod splits;
mod wire;

use std::time::Instant;

use anyhow::{Context, ensure};
use iop_tests::{
    ProviderYaml,
    bench::{Bench, MODEL, SOON, sha256},
    http::{self, Answer, Body, Raw},
    scripted::{Call, Scripted},
};

use wire::Wire;

/// The most that a Node takes in one read.
const READ_MAX: usize = 64 * 1024;
/// A piece up to this is one segment on its way, and so one read when nothing waits before it.
const ONE_READ: usize = 16 * 1024;

/// Edge and Node, a provider that the test plays, and a client.
struct Rig {
    bench: Bench,
    server: Scripted,
    client: Raw,
    /// Reads from providers, and bytes, when last looked at.
    counted: (u64, u64),
}

/// What a client got.
struct Got {
    answer: Answer,
    /// Reads of the Node from the first byte of the answer to its last.
    reads: u64,
    /// HTTP chunks of the client's answer.
    chunks: usize,
}

impl Rig {
    fn start() -> anyhow::Result<Self> {
        Self::with("")
    }

    /// `extra`: further keys of the Edge's file.
    fn with(extra: &str) -> anyhow::Result<Self> {
        let server = Scripted::bind()?;
        let base_url = server.base_url()?;
        let profile = if extra.is_empty() { "" } else { "profile: mapped" };
        let bench = Bench::with(
            &[],
            |provider| ProviderYaml { base_url, extra: profile.to_owned(), ..provider },
            |edge| iop_tests::EdgeYaml { extra: extra.to_owned(), ..edge },
        )?;
        let client = bench.client()?;
        let mut rig = Self { bench, server, client, counted: (0, 0) };
        rig.counted = rig.count()?;
        Ok(rig)
    }

    /// Sends a request and gives it as the provider has it.
    fn ask(&mut self, stream: bool) -> anyhow::Result<Call> {
        let body = http::chat_body(MODEL, stream, "");
        self.client.send(http::chat_request(self.bench.site.token(), &body))?;
        self.server.next_call()
    }

    /// One exchange in which the provider's answer is written in `pieces`, which make up `wire`.
    fn play(&mut self, stream: bool, wire: &Wire, pieces: &[&[u8]]) -> anyhow::Result<Got> {
        let mut call = self.ask(stream)?;
        let before = self.counted.0;
        let mut incoming: Option<(String, Body)> = None;
        let mut written = 0;
        for piece in pieces {
            let had = self.counted;
            written += piece.len();
            let visible = wire.seen(written);
            if piece.len() > READ_MAX {
                // More than sockets and credit hold may only be written while somebody takes it.
                std::thread::scope(|scope| {
                    let writing = scope.spawn(|| call.write(piece));
                    see(&mut self.client, &mut incoming, visible)?;
                    writing.join().ok().context("the writer panicked")?
                })?;
            } else {
                call.write(piece)?;
            }
            self.wait_for_read(had.1 + piece.len() as u64)?;
            ensure!(
                piece.len() > ONE_READ || self.counted.0 == had.0 + 1,
                "a piece of {} bytes was {} reads",
                piece.len(),
                self.counted.0 - had.0
            );
            see(&mut self.client, &mut incoming, visible)
                .with_context(|| format!("{visible} bytes of the body are with the Node"))?;
        }
        if wire.ends_by_close() {
            call.end()?;
        } else {
            self.server.keep(call);
        }
        let (head, mut body) = match incoming {
            Some(begun) => begun,
            None => begin(&mut self.client)?,
        };
        while self.client.read_more(&mut body)? {}
        let (whole, chunks) = (body.is_whole(), body.chunks);
        let answer = Answer { status: status(&head)?, head, body: body.bytes, whole };
        if answer.header("transfer-encoding").is_none() && answer.header("content-length").is_none() {
            // Nothing but its close ended the body.
            self.client = self.bench.client()?;
        }
        Ok(Got { answer, reads: self.counted.0 - before, chunks })
    }

    /// As [`Rig::play`], and the client must have got exactly what the provider wrote.
    fn expect(&mut self, stream: bool, wire: &Wire, pieces: &[&[u8]], what: &str) -> anyhow::Result<Got> {
        let got = self.play(stream, wire, pieces).with_context(|| what.to_owned())?;
        let answer = &got.answer;
        ensure!((answer.status, answer.whole) == (200, true), "{what}: {}\n{}", answer.head, answer.text());
        ensure!(
            sha256(&answer.body) == sha256(wire.body()),
            "{what}: {:?}\ninstead of {:?}",
            String::from_utf8_lossy(&answer.body),
            String::from_utf8_lossy(wire.body())
        );
        Ok(got)
    }

    /// Waits until the Node has read `bytes` from providers since its start.
    fn wait_for_read(&mut self, bytes: u64) -> anyhow::Result<()> {
        let end = Instant::now() + SOON * 4;
        loop {
            self.counted = self.count()?;
            if self.counted.1 >= bytes {
                ensure!(self.counted.1 == bytes, "{} bytes were read, {bytes} written", self.counted.1);
                return Ok(());
            }
            ensure!(Instant::now() < end, "the Node has read {} of {bytes} bytes", self.counted.1);
        }
    }

    /// Reads from providers, and bytes, since the Node's start.
    fn count(&self) -> anyhow::Result<(u64, u64)> {
        let text = http::get(&self.bench.node_ops, "/metrics", None)?.text();
        let value = |series: &str| {
            let value = text.lines().find_map(|line| line.strip_prefix(series)?.trim().parse().ok());
            value.with_context(|| format!("no {series}"))
        };
        Ok((value("iop_node_provider_reads_total ")?, value("iop_node_provider_read_bytes_total ")?))
    }
}

/// Waits until the client has `bytes` of the body; a body of which nothing is to be seen may lack its head.
fn see(client: &mut Raw, incoming: &mut Option<(String, Body)>, bytes: usize) -> anyhow::Result<()> {
    if bytes == 0 {
        return Ok(());
    }
    if incoming.is_none() {
        *incoming = Some(begin(client)?);
    }
    match incoming {
        Some((_, body)) => client.read_up_to(body, bytes),
        None => Ok(()),
    }
}

/// The head of an answer, and its body to be read.
fn begin(client: &mut Raw) -> anyhow::Result<(String, Body)> {
    let head = client.read_head()?;
    let answer = Answer { status: status(&head)?, head, body: Vec::new(), whole: false };
    let body = Body::of(&answer);
    Ok((answer.head, body))
}

fn status(head: &str) -> anyhow::Result<u16> {
    head.split(' ').nth(1).and_then(|status| status.parse().ok()).with_context(|| head.to_owned())
}
