//! Streams of real servers, for which gateways have been reported to change them.
//!
//! The files under `recordings/` are written after what the reports show of each server: same members, same order, same
//! spelling. Every one is played event by event as its server writes it, then in pieces that fit nothing.

use anyhow::{Context, ensure};
use serde_json::Value;

use super::{
    Rig,
    wire::{Wire, events},
};

/// vLLM behind uvicorn.
const VLLM: &str = "date: Sat, 28 Nov 2026 10:00:00 GMT\r\nserver: uvicorn\r\ncontent-type: text/event-stream; charset=utf-8\r\n";
/// LM Studio behind Express.
const LM_STUDIO: &str = "X-Powered-By: Express\r\nAccess-Control-Allow-Origin: *\r\nAccess-Control-Allow-Headers: *\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache\r\nConnection: keep-alive\r\nDate: Sat, 28 Nov 2026 10:00:00 GMT\r\nKeep-Alive: timeout=5\r\n";

/// Plays a recording in several ways; gives the events that the client got, and the head.
fn play(fields: &str, recording: &str) -> anyhow::Result<(String, Vec<Value>)> {
    let mut rig = Rig::start()?;
    let wire = Wire::by_event(fields, recording.as_bytes());
    let got = rig.expect(true, &wire, &wire.writes(), "event by event")?;
    // What comes before the first content arrives with it.
    let events = events(wire.body()).len();
    ensure!((events.saturating_sub(3)..=events).contains(&got.chunks), "{} chunks", got.chunks);
    for size in [7, 1000] {
        let pieces: Vec<_> = wire.bytes().chunks(size).collect();
        rig.expect(true, &wire, &pieces, &format!("{size} bytes at a time"))?;
    }
    let got = rig.expect(true, &wire, &[wire.bytes()], "in one write")?;
    rig.bench.settles()?;
    let data = got.answer.events();
    let (done, chunks) = data.split_last().context("events")?;
    ensure!(done == "[DONE]", "{data:?}");
    let chunks =
        chunks.iter().map(|event| Ok(serde_json::from_str(event)?)).collect::<anyhow::Result<_>>()?;
    Ok((got.answer.head, chunks))
}

/// Case 04: the reason of the end must not vanish where log probabilities are asked for.
// req: TUN-3
#[test]
fn a_stream_of_vllm_with_log_probabilities_keeps_them_and_its_finish_reason() -> anyhow::Result<()> {
    let (_, chunks) = play(VLLM, include_str!("recordings/vllm-logprobs.sse"))?;
    let of = |member: &str| -> Vec<Value> {
        chunks.iter().filter_map(|chunk| chunk["choices"][0].get(member).cloned()).collect()
    };
    let reasons: Vec<_> = of("finish_reason").into_iter().filter(|reason| !reason.is_null()).collect();
    assert_eq!(reasons, ["stop"]);
    let probabilities = of("logprobs");
    assert_eq!(probabilities.len(), 5);
    for (index, token) in ["2", " 你", "\u{fffd}", ""].into_iter().enumerate() {
        let entry = &probabilities[index + 1]["content"][0];
        assert_eq!(entry["token"], token);
        assert!(entry["logprob"].is_f64() && entry["bytes"].is_array(), "{entry}");
        assert_eq!(entry["top_logprobs"].as_array().map(Vec::len), Some(2), "{entry}");
    }
    assert_eq!(chunks.last().map(|chunk| &chunk["usage"]["completion_tokens"]), Some(&4.into()));
    Ok(())
}

/// Case 05: chunks of nothing but reasoning, members that no list has.
// req: TUN-3
#[test]
fn chunks_of_reasoning_alone_and_members_that_nobody_knows_are_passed_on() -> anyhow::Result<()> {
    let (_, chunks) = play(VLLM, include_str!("recordings/reasoning.sse"))?;
    let reasoning: Vec<_> =
        chunks.iter().filter_map(|c| c["choices"][0]["delta"]["reasoning"].as_str()).collect();
    assert_eq!(reasoning, ["Let me", " think", " about 🌍", "."]);
    let only: Vec<_> = chunks
        .iter()
        .filter_map(|chunk| chunk["choices"][0]["delta"].as_object())
        .filter(|delta| delta.len() == 1)
        .filter_map(|delta| delta.keys().next().map(String::as_str))
        .collect();
    assert_eq!(
        only,
        ["reasoning", "reasoning", "reasoning_content", "reasoning_items", "x_unknown", "content"]
    );
    let ids: Vec<_> = chunks.iter().filter_map(|chunk| chunk.get("token_ids")).collect();
    assert_eq!(ids, [&serde_json::json!([271, 19]), &serde_json::json!([])]);
    Ok(())
}

/// Case 09: the stream of LM Studio as strict SDKs want it, and a head that differs in nothing but what is documented.
// req: TUN-3, TUN-6
#[test]
fn a_stream_of_lm_studio_differs_in_nothing_but_documented_fields_of_its_head() -> anyhow::Result<()> {
    let (head, chunks) = play(LM_STUDIO, include_str!("recordings/lm-studio.sse"))?;
    assert_eq!(chunks.len(), 6);
    assert!(chunks.iter().all(|chunk| chunk["system_fingerprint"] == "qwen3-8b"), "{chunks:?}");

    let fields = |head: &str| -> Vec<(String, String)> {
        let field = |line: &str| {
            let (name, value) = line.split_once(':')?;
            Some((name.to_lowercase(), value.trim().to_owned()))
        };
        head.lines().filter_map(field).collect()
    };
    let theirs: Vec<_> = fields(LM_STUDIO)
        .into_iter()
        // Which pages may call is the Edge's own to say, where one asks.
        .filter(|(name, _)| {
            !["connection", "keep-alive"].contains(&&**name) && !name.starts_with("access-control-")
        })
        .collect();
    let (kept, added): (Vec<_>, Vec<_>) = fields(&head).into_iter().partition(|field| theirs.contains(field));
    assert_eq!(kept, theirs, "{head}");
    let mut added: Vec<_> = added.into_iter().map(|(name, _)| name).collect();
    added.sort();
    // docs/api.md, response headers.
    assert_eq!(
        added,
        [
            "openai-processing-ms",
            "request-id",
            "transfer-encoding",
            "x-accel-buffering",
            "x-iop-attempts",
            "x-iop-provider",
            "x-iop-queue-ms",
            "x-request-id"
        ],
        "{head}"
    );
    Ok(())
}
