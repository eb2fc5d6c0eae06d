//! Pace: tokens come through one by one, at the pace of the provider.

use std::{
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use iop_tests::{
    bench::{Bench, MODEL},
    http::{self, Raw},
};

use super::{
    Rig, begin,
    wire::{EVENTS, Wire, events},
};

/// Case 08: so many tokens, this far apart, and what a gateway may add to the longest gap but one in a hundred.
const TOKENS: usize = 200;
const GAP: Duration = Duration::from_millis(20);
const ADDED: Duration = Duration::from_millis(5);
/// Rounds of which one must be good. Another program that takes the processor spoils a round, and never makes a bad one
/// good: what holds tokens back does so in all of them.
const ROUNDS: usize = 6;

/// What one client saw of a stream.
#[derive(Debug)]
struct Seen {
    events: usize,
    /// Between two events, sorted.
    gaps: Vec<Duration>,
}

impl Seen {
    fn quantile(&self, of_100: usize) -> Duration {
        self.gaps[(self.gaps.len() - 1) * of_100 / 100]
    }
}

fn watch(mut client: Raw, request: Vec<u8>) -> anyhow::Result<Seen> {
    client.send(request)?;
    let (head, mut body) = begin(&mut client)?;
    ensure!(head.starts_with("HTTP/1.1 200"), head);
    let mut arrivals = Vec::new();
    while client.read_more(&mut body)? {
        arrivals.resize(events(&body.bytes).len(), Instant::now());
    }
    ensure!(body.is_whole(), "the stream was cut");
    ensure!(body.bytes.ends_with(b"data: [DONE]\n\n"), "no [DONE]");
    let mut gaps: Vec<_> = arrivals.windows(2).map(|pair| pair[1] - pair[0]).collect();
    gaps.sort_unstable();
    Ok(Seen { events: arrivals.len(), gaps })
}

/// Case 08 without a clock: each token is written when the client has the one before.
// req: TUN-3
#[test]
fn no_token_waits_for_the_next_and_each_is_a_chunk_of_its_own() -> anyhow::Result<()> {
    let mut rig = Rig::start()?;
    let token =
        |n: usize| format!("data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{n}\"}}}}]}}\n\n");
    let body: String = (0..TOKENS).map(token).chain(["data: [DONE]\n\n".to_owned()]).collect();
    let wire = Wire::by_event(EVENTS, body.as_bytes());
    let got = rig.expect(true, &wire, &wire.writes(), "token by token")?;
    assert_eq!(got.chunks, TOKENS + 1);
    rig.bench.settles()
}

// req: TUN-3
#[test]
fn tokens_that_come_every_20_ms_reach_the_client_at_that_pace() -> anyhow::Result<()> {
    let bench = Bench::start()?;
    let script = format!("events={TOKENS} gap={}ms", GAP.as_millis());
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        // Both at the same time, so that the machine treats them alike.
        let direct = Raw::connect(bench.provider.url.trim_start_matches("http://"))?;
        let request = http::chat_request("", &http::chat_body(MODEL, true, &script));
        let direct = thread::spawn(|| watch(direct, request));
        let through = watch(bench.client()?, bench.request(true, &script))?;
        let direct = direct.join().ok().context("the direct client panicked")??;
        assert!(through.events > TOKENS, "{through:?}");
        assert_eq!(through.events, direct.events, "no event is lost, doubled or cut in two");
        let (half, most) = (through.quantile(50), through.quantile(99));
        let (direct_half, direct_most) = (direct.quantile(50), direct.quantile(99));
        let told = format!("gaps p50 {half:?}, p99 {most:?}; direct {direct_half:?}, {direct_most:?}");
        println!("{told}");
        // Tokens that come in bursts have half of their gaps near 0, or twice as long.
        if most <= direct_most + ADDED && half.abs_diff(direct_half) <= ADDED {
            return bench.settles();
        }
        rounds.push(told);
    }
    panic!("tokens are held back: {rounds:#?}");
}
