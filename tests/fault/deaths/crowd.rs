//! The clients of one round: what each asks for, where it was at the death, and what became of it.

use std::{
    io,
    sync::atomic::{AtomicUsize, Ordering::SeqCst},
    time::Duration,
};

use anyhow::{Context, ensure};
use iop_tests::{
    bench::{Bench, MODEL},
    http::{self, Answer, Raw, seal},
};
use serde_json::Value;

/// What a client asks for.
#[derive(Clone, Copy, Debug)]
pub struct Ask {
    /// A stream, or one JSON answer.
    pub stream: bool,
    /// How the provider is to answer.
    pub script: &'static str,
    /// Content events of a whole answer.
    pub events: usize,
}

impl Ask {
    fn is_large(&self) -> bool {
        self.script.contains("bytes=3k")
    }
}

/// The texts of content events, small and large, in order and as many as there are different ones: every answer has them.
pub struct Texts {
    small: Vec<String>,
    large: Vec<String>,
}

const fn stream(events: usize, script: &'static str) -> Ask {
    Ask { stream: true, script, events }
}

const fn whole(events: usize, script: &'static str) -> Ask {
    Ask { stream: false, script, events }
}

/// Long and short, silent and talkative, in whole events and in splinters of them, in every framing that can show a cut.
pub const ASKS: [Ask; 13] = [
    stream(20, "events=20 gap=1ms"),
    stream(60, "events=60 gap=1ms"),
    stream(120, "events=120 gap=1ms"),
    stream(40, "prefill=30ms events=40 gap=1ms"),
    stream(10, "prefill=80ms events=10 gap=1ms"),
    stream(5, "late-head prefill=110ms events=5"),
    stream(30, "events=30 split=53 split-gap=400us"),
    stream(9, "events=9 gap=9ms bytes=3k"),
    whole(20, "prefill=50ms events=20"),
    whole(20, "prefill=100ms events=20"),
    whole(150, "events=150 split=400 split-gap=2ms"),
    whole(150, "chunked events=150 split=400 split-gap=2ms"),
    whole(150, "close-delimited events=150 split=400 split-gap=2ms"),
];

/// How far a client is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Nothing sent yet.
    Coming,
    /// Sent; in the queue, or in a silent prefill before the head.
    Waiting,
    /// The head is there, and nothing of the body.
    Begun,
    /// Something of the body is there.
    Midway,
    /// It has its end.
    Over,
}

const PHASES: [Phase; 5] = [Phase::Coming, Phase::Waiting, Phase::Begun, Phase::Midway, Phase::Over];

/// A client's progress, for who kills.
#[derive(Debug, Default)]
pub struct Progress(AtomicUsize);

impl Progress {
    /// Where it is now.
    pub fn phase(&self) -> Phase {
        PHASES.get(self.0.load(SeqCst)).copied().unwrap_or(Phase::Over)
    }

    fn reach(&self, phase: Phase) {
        self.0.store(phase as usize, SeqCst);
    }
}

/// What a client has to show in the end.
pub enum Seen {
    /// There is no head: no connection, or one that ended before the answer began.
    Nothing(String),
    /// A head, and what came behind it until the body or the connection ended.
    Answer(Answer),
}

impl std::fmt::Debug for Seen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Nothing(why) => write!(f, "no head: {why}"),
            Self::Answer(answer) => {
                let text = answer.text();
                let tail: String = text.chars().skip(text.chars().count().saturating_sub(1000)).collect();
                let length = answer.body.len();
                write!(f, "whole: {}, {length} bytes\n{}\n[..] {tail:?}", answer.whole, answer.head)
            }
        }
    }
}

/// Asks for it after `delay` and reads whatever comes.
///
/// # Errors
/// Nothing came for so long that it must be taken for forgotten, or what came is not HTTP.
pub fn ask(edge: &str, token: &str, ask: &Ask, delay: Duration, progress: &Progress) -> anyhow::Result<Seen> {
    std::thread::sleep(delay);
    let seen = attempt(edge, token, ask, progress);
    progress.reach(Phase::Over);
    match seen {
        Err(error) if is_silence(&error) => Err(error.context("a client was forgotten")),
        other => other,
    }
}

/// A read or write that took longer than any test waits.
fn is_silence(error: &anyhow::Error) -> bool {
    let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
    matches!(kind, Some(io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut))
}

fn attempt(edge: &str, token: &str, ask: &Ask, progress: &Progress) -> anyhow::Result<Seen> {
    let mut raw = match Raw::connect(edge) {
        Ok(raw) => raw,
        Err(error) => return Ok(Seen::Nothing(format!("{error:#}"))),
    };
    // A broken connection may still hold an answer.
    let sent = raw.send(http::chat_request(token, &http::chat_body(MODEL, ask.stream, ask.script)));
    if sent.is_ok() {
        progress.reach(Phase::Waiting);
    }
    let head = match raw.read_head() {
        Ok(head) => head,
        Err(error) if is_silence(&error) => return Err(error),
        Err(error) => return Ok(Seen::Nothing(format!("{error:#}"))),
    };
    progress.reach(Phase::Begun);
    if raw.buffered().is_empty() {
        raw.fill()?;
    }
    progress.reach(Phase::Midway);
    let answer = raw.body_of(head)?;
    let rest = String::from_utf8_lossy(raw.buffered()).into_owned();
    ensure!(!answer.whole || rest.is_empty(), "more than one answer: {rest}");
    Ok(Seen::Answer(answer))
}

/// What a client can make of what it saw.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// Whole by its framing, whole by its seal.
    Exact,
    /// Everything up to `[DONE]`, exact by its seal; only the last chunk is missing.
    DoneThenBroken,
    /// Whole events of the right text, one error event of this code, a broken end.
    ErrorEvent(String),
    /// Whole events of the right text and a part of one, then a broken end.
    CutInEvent,
    /// Whole events of the right text, then a broken end without an error event.
    CutBetweenEvents,
    /// An answer that is no stream and lacks its end by its framing.
    Short,
    /// This status, with a whole JSON error of this code.
    Refused(u16, String),
    /// No head.
    Nothing,
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Exact => f.write_str("exact"),
            Self::DoneThenBroken => f.write_str("exact, last chunk missing"),
            Self::ErrorEvent(code) => write!(f, "error event {code}, broken end"),
            Self::CutInEvent => f.write_str("cut in an event"),
            Self::CutBetweenEvents => f.write_str("cut between events"),
            Self::Short => f.write_str("short by its framing"),
            Self::Refused(status, code) => write!(f, "{status} {code}"),
            Self::Nothing => f.write_str("no head"),
        }
    }
}

/// What it amounts to.
///
/// # Errors
/// It is none of the outcomes: it looks whole and is not, it is not in order, or it says something it may not.
pub fn judge(ask: &Ask, seen: &Seen, texts: &Texts) -> anyhow::Result<Outcome> {
    let answer = match seen {
        Seen::Nothing(_) => return Ok(Outcome::Nothing),
        Seen::Answer(answer) => answer,
    };
    match (answer.status, ask.stream) {
        (200, true) => judge_stream(ask, answer, texts),
        (200, false) if !answer.whole => Ok(Outcome::Short),
        (200, false) => {
            let body = answer.json().context("whole by its framing")?;
            let content = body["choices"][0]["message"]["content"].as_str().context("content")?;
            ensure_sealed(&body, content, ask.events)?;
            Ok(Outcome::Exact)
        }
        (status, _) => {
            ensure!(answer.whole, "a refusal that is cut");
            let body = answer.json()?;
            let error = body["error"].as_object().context("an error object")?;
            ensure!(error.len() == 4 && error.contains_key("message"), "{body}");
            Ok(Outcome::Refused(status, error["code"].as_str().unwrap_or_default().to_owned()))
        }
    }
}

/// The events that ended, and whether the body ends with one.
fn whole_events(answer: &Answer) -> anyhow::Result<(Vec<String>, bool)> {
    let text = answer.text();
    let end = text.rfind("\n\n").map_or(0, |at| at + 2);
    let (whole, rest) = text.split_at(end);
    let events = whole.split_terminator("\n\n").map(|event| {
        let data = event.strip_prefix("data: ").with_context(|| format!("an event: {event:?}"))?;
        Ok(data.to_owned())
    });
    Ok((events.collect::<anyhow::Result<_>>()?, rest.is_empty()))
}

fn judge_stream(ask: &Ask, answer: &Answer, texts: &Texts) -> anyhow::Result<Outcome> {
    let texts = if ask.is_large() { &texts.large } else { &texts.small };
    let (events, between_events) = whole_events(answer)?;
    let (mut text, mut content, mut finish) = (String::new(), 0, None);
    for (index, event) in events.iter().enumerate() {
        let is_last = index + 1 == events.len();
        if event == "[DONE]" {
            ensure!(is_last && between_events, "something follows [DONE]");
            let finish = finish.context("[DONE] without a finish chunk")?;
            ensure_sealed(&finish, &text, ask.events)?;
            return Ok(if answer.whole { Outcome::Exact } else { Outcome::DoneThenBroken });
        }
        let parsed: Value = serde_json::from_str(event).with_context(|| event.clone())?;
        if let Some(error) = parsed.get("error") {
            ensure!(is_last && between_events, "something follows the error event");
            ensure!(!answer.whole, "an error event, and an end as of a whole answer");
            return Ok(Outcome::ErrorEvent(error["code"].as_str().unwrap_or_default().to_owned()));
        }
        ensure!(finish.is_none(), "content behind the finish chunk");
        let choice = &parsed["choices"][0];
        if choice["finish_reason"] == "stop" {
            finish = Some(parsed);
        } else if index > 0 {
            let part = choice["delta"]["content"].as_str().context("content")?;
            ensure!(part == texts[content % texts.len()], "event {content}: {part}");
            text.push_str(part);
            content += 1;
        }
    }
    ensure!(!answer.whole, "whole by its framing, without [DONE]");
    Ok(if between_events { Outcome::CutBetweenEvents } else { Outcome::CutInEvent })
}

/// Whether the provider's seal is the one of this text.
fn ensure_sealed(object: &Value, text: &str, events: usize) -> anyhow::Result<()> {
    let (found, own) = (object["system_fingerprint"].as_str().context("a seal")?, seal(text, events));
    ensure!(found == own, "the seal is {found}, the text's own {own}");
    Ok(())
}

/// Asks a provider at rest for the texts.
///
/// # Errors
/// A stream is not whole.
pub fn texts(bench: &Bench) -> anyhow::Result<Texts> {
    let of = |script: &str| -> anyhow::Result<Vec<String>> {
        let answer = bench.chat(true, script)?;
        ensure!(answer.whole && answer.is_done(), "{}", answer.text());
        let content = |event: String| {
            let parsed: Value = serde_json::from_str(&event).ok()?;
            let text = parsed["choices"][0]["delta"]["content"].as_str()?;
            (!text.is_empty()).then(|| text.to_owned())
        };
        Ok(answer.events().into_iter().filter_map(content).collect())
    };
    Ok(Texts { small: of("events=64")?, large: of("events=64 bytes=3k")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEALED: &str = r#"data: {"choices":[{"delta":{"role":"assistant","content":""},"finish_reason":null}]}

data: {"choices":[{"delta":{"content":"foo"},"finish_reason":null}]}

data: {"choices":[{"delta":{"content":"bar"},"finish_reason":null}]}

data: {"choices":[{"delta":{},"finish_reason":"stop"}],"system_fingerprint":"perf-85944171f73967e8-2-6"}

data: [DONE]

"#;
    const ERROR: &str =
        "data: {\"error\":{\"message\":\"m\",\"type\":\"t\",\"param\":null,\"code\":\"c\"}}\n\n";

    fn judged(body: &str, whole: bool) -> Option<Outcome> {
        let answer = Answer { status: 200, head: String::new(), body: body.as_bytes().to_vec(), whole };
        let texts = Texts { small: vec!["foo".to_owned(), "bar".to_owned()], large: Vec::new() };
        judge(&stream(2, ""), &Seen::Answer(answer), &texts).ok()
    }

    #[test]
    fn the_judge_takes_nothing_for_whole_that_is_not() {
        let done = SEALED.find("data: [DONE]").unwrap();
        let cut = &SEALED[..done];
        assert_eq!(judged(SEALED, true), Some(Outcome::Exact));
        assert_eq!(judged(SEALED, false), Some(Outcome::DoneThenBroken));
        assert_eq!(judged(cut, false), Some(Outcome::CutBetweenEvents));
        assert_eq!(judged(&SEALED[..done - 9], false), Some(Outcome::CutInEvent));
        assert_eq!(judged(&format!("{cut}{ERROR}"), false), Some(Outcome::ErrorEvent("c".to_owned())));
        for (body, whole) in [
            (cut, true),
            ("", true),
            (&*format!("{cut}{ERROR}"), true),
            (&*format!("{cut}{ERROR}data: [DONE]\n\n"), false),
            (&*format!("{SEALED}{ERROR}"), false),
            (&*SEALED.replace("bar", "baz"), true),
            (&*SEALED.replace("foo", "fo"), false),
            (&*SEALED.replace("-2-6", "-3-6"), true),
        ] {
            assert_eq!(judged(body, whole), None, "{body}");
        }
    }
}
