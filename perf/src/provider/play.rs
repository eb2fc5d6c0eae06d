//! Performs one script on one connection: the driver of a reply.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

use super::completion::{Completion, CompletionFacts};
use super::http::Head;
use super::plan::{Item, Plan, stream_bytes};
use super::responses::{self, HeadFacts};
use super::script::{After, Body, ErrorShape, Framing, Opening, Script, StreamFault};
use super::stats::{OpenRequest, Outcome};
use super::wire::{Gone, Wire};
use crate::chunked::{LAST_CHUNK, put_chunk};

/// What becomes of the connection after a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Close it in good order.
    Close,
    /// Read one more request and close without a byte.
    DropRequest,
    /// Wait for the next request.
    Keep,
    /// Reset it.
    Reset,
}

/// How a reply ended, when the peer did not leave before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ending {
    /// What the statistics say.
    pub outcome: Outcome,
    /// What becomes of the connection.
    pub next: Next,
}

impl Ending {
    fn fault(next: Next) -> Self {
        Self { outcome: Outcome::Faulted, next }
    }
}

/// What the reply is about when the script does not replace it.
#[derive(Debug)]
pub enum Subject {
    /// A chat completion.
    Chat {
        /// The model that was asked for.
        model: String,
        /// Whether a stream was asked for.
        stream: bool,
        /// Whether usage was asked for in the stream.
        include_usage: bool,
    },
    /// A JSON body.
    Json(String),
    /// An error of the provider itself, such as a bad body.
    Refusal {
        /// The status.
        status: u16,
        /// The error's `code`.
        code: &'static str,
        /// The error's `message`.
        message: String,
    },
}

/// One reply being given.
#[derive(Debug)]
pub struct Player<'a> {
    /// The connection.
    pub wire: &'a mut Wire,
    /// The script.
    pub script: &'a Script,
    /// The request.
    pub head: &'a Head,
    /// The request's body.
    pub body: &'a Bytes,
    /// The request in the statistics.
    pub open: &'a mut OpenRequest,
    /// What every event waits for, if the caller sets the pace.
    pub steps: Option<&'a Semaphore>,
}

impl Player<'_> {
    /// Gives the reply about `subject`.
    ///
    /// # Errors
    /// [`Gone`] when the peer left before its end.
    pub async fn play(&mut self, subject: &Subject) -> Result<Ending, Gone> {
        match self.script.opening {
            Opening::Garbage => {
                self.send(responses::GARBAGE).await?;
                return Ok(Ending::fault(Next::Close));
            }
            Opening::NoReply => return Ok(Ending::fault(Next::Close)),
            Opening::Reset => return Ok(Ending::fault(Next::Reset)),
            Opening::StallBeforeHeaders => return Err(self.wire.stall().await),
            Opening::StallAfterHeaders | Opening::Normal => {}
        }
        let (status, error) = (self.script.status, self.script.error);
        if let Subject::Refusal { status, code, message } = subject {
            let (kind, text) = responses::error_body(ErrorShape::OpenAi, *status, code, message);
            return self.plain(*status, kind, "", text.as_bytes()).await;
        }
        if error.is_some() || status >= 400 {
            self.wait_for_prefill().await?;
            let shape = error.unwrap_or(ErrorShape::OpenAi);
            let (kind, text) = responses::error_body(shape, status, "perf_scripted", "scripted error");
            return self.plain(status, kind, "", text.as_bytes()).await;
        }
        match (self.script.body, subject) {
            (Body::Completion, Subject::Chat { stream: true, .. }) if responses::may_have_body(status) => {
                self.stream(subject).await
            }
            (body, _) => {
                self.wait_for_prefill().await?;
                let (kind, extra, bytes) = self.plain_body(body, subject);
                self.plain(status, kind, &extra, &bytes).await
            }
        }
    }

    fn plain_body(&self, body: Body, subject: &Subject) -> (&'static str, String, Vec<u8>) {
        let json = |text: String| ("application/json", String::new(), text.into_bytes());
        match (body, subject) {
            (Body::Echo, _) => json(responses::echo(self.head, self.body).to_string()),
            (Body::Empty, _) => ("", String::new(), Vec::new()),
            (Body::Raw(size), _) => {
                let bytes = responses::raw_body(size);
                let digest = format!("x-body-sha256: {}\r\n", responses::sha256_hex(&bytes));
                ("application/octet-stream", digest, bytes)
            }
            (Body::Completion, Subject::Json(text)) => json(text.clone()),
            (Body::Completion, _) => json(self.completion(subject).whole(self.script.events)),
        }
    }

    fn completion(&self, subject: &Subject) -> Completion {
        let (model, include_usage) = match subject {
            Subject::Chat { model, include_usage, .. } => (model.as_str(), *include_usage),
            Subject::Json(_) | Subject::Refusal { .. } => ("", false),
        };
        let facts = CompletionFacts {
            number: self.open.number(),
            model,
            created: since_1970().as_secs(),
            prompt_bytes: self.body.len(),
            include_usage,
        };
        Completion::new(&facts, self.script)
    }

    async fn wait_for_prefill(&mut self) -> Result<(), Gone> {
        if self.script.prefill.is_zero() {
            return Ok(());
        }
        self.wire.pause(Instant::now() + self.script.prefill).await
    }

    async fn send(&mut self, bytes: &[u8]) -> Result<(), Gone> {
        self.wire.send_split(bytes, self.script.split, self.script.split_gap).await
    }

    async fn send_head(&mut self, facts: &HeadFacts<'_>) -> Result<(), Gone> {
        self.send_interim().await?;
        let head = responses::head(facts, self.script);
        self.send(&head).await?;
        self.open.head_sent();
        Ok(())
    }

    async fn send_interim(&mut self) -> Result<(), Gone> {
        for _ in 0..self.script.early_hints {
            self.wire.send(responses::EARLY_HINTS).await?;
        }
        Ok(())
    }

    /// Whether the response says that the connection ends with it.
    fn close_announced(&self, framing: Framing) -> bool {
        framing == Framing::CloseDelimited
            || self.script.after == After::AnnouncedClose
            || !self.head.keep_alive
    }

    /// A reply that is no stream, in one write. A stream fault cuts it at the same share of its length: in
    /// good order if the fault leaves the framing whole, else broken off.
    async fn plain(&mut self, status: u16, kind: &str, extra: &str, body: &[u8]) -> Result<Ending, Gone> {
        let bodiless = !responses::may_have_body(status);
        let asked = self.script.framing.unwrap_or(Framing::ContentLength);
        // Without a body there is no framing field either.
        let framing = if bodiless { Framing::CloseDelimited } else { asked };
        let close = self.close_announced(asked);
        let broken = self.script.fault.map(|(_, fault)| fault).filter(|fault| fault.breaks_framing());
        let body = if bodiless { &[] } else { body };
        let good = self.good_part(body);
        let facts = HeadFacts {
            status,
            content_type: kind,
            length: if broken.is_some() { body.len() } else { good.len() },
            framing,
            number: self.open.number(),
            close,
            extra,
        };
        if self.script.opening == Opening::StallAfterHeaders {
            self.send_head(&facts).await?;
            return Err(self.wire.stall().await);
        }
        self.send_interim().await?;
        let mut out = responses::head(&facts, self.script);
        self.frame(good, framing, &mut out);
        if framing == Framing::Chunked && broken.is_none() {
            out.extend_from_slice(self.body_end());
        }
        self.send(&out).await?;
        self.open.head_sent();
        match broken {
            Some(fault) => self.break_off(fault).await,
            None => self.finish(close || status < 200).await,
        }
    }

    /// The part of a plain body that a scripted fault lets through.
    fn good_part<'b>(&self, body: &'b [u8]) -> &'b [u8] {
        let Some((after, _)) = self.script.fault else { return body };
        let events = u64::from(self.script.events.max(1));
        let share = body.len() as u64 * u64::from(after).min(events) / events;
        body.get(..usize::try_from(share).unwrap_or(0)).unwrap_or_default()
    }

    fn body_end(&self) -> &'static [u8] {
        if self.script.trailers { responses::TRAILERS } else { LAST_CHUNK }
    }

    fn frame(&self, payload: &[u8], framing: Framing, out: &mut Vec<u8>) {
        match (framing, self.script.chunk) {
            (Framing::Chunked, 0) => put_chunk(out, payload),
            (Framing::Chunked, size) => payload.chunks(size).for_each(|piece| put_chunk(out, piece)),
            (Framing::CloseDelimited | Framing::ContentLength, _) => out.extend_from_slice(payload),
        }
    }

    async fn stream(&mut self, subject: &Subject) -> Result<Ending, Gone> {
        let framing = self.script.framing.unwrap_or(Framing::Chunked);
        let close = self.close_announced(framing);
        if self.script.late_head {
            self.wait_for_prefill().await?;
        }
        let length = match framing {
            Framing::ContentLength => stream_bytes(self.completion(subject), self.script),
            Framing::Chunked | Framing::CloseDelimited => 0,
        };
        self.send_head(&HeadFacts {
            status: self.script.status,
            content_type: "text/event-stream; charset=utf-8",
            length,
            framing,
            number: self.open.number(),
            close,
            extra: "cache-control: no-cache\r\n",
        })
        .await?;
        let mut plan = Plan::new(self.completion(subject), self.script);
        if self.script.opening == Opening::StallAfterHeaders {
            return self.silence(&plan, framing, None).await.map(|()| Ending::fault(Next::Close));
        }
        if !self.script.late_head && !self.script.prefill.is_zero() {
            self.silence(&plan, framing, Some(Instant::now() + self.script.prefill)).await?;
        }
        if let Some(ending) = self.events(&mut plan, framing).await? {
            return Ok(ending);
        }
        if framing == Framing::Chunked {
            let end = self.body_end();
            self.send(end).await?;
        }
        self.finish(close).await
    }

    /// Sends the stream's events; `Some` when a fault ended the connection.
    async fn events(&mut self, plan: &mut Plan<'_>, framing: Framing) -> Result<Option<Ending>, Gone> {
        let script = self.script;
        let mut fault = script.fault.map(|(after, fault)| (after.min(script.events), fault));
        let (mut payload, mut out) = (Vec::with_capacity(1024), Vec::with_capacity(1024));
        let mut first_content: Option<Instant> = None;
        loop {
            payload.clear();
            let due = plan.content_sent().is_some_and(|sent| fault.is_some_and(|(after, _)| sent >= after));
            if let Some((_, fault)) = fault.take_if(|_| due) {
                match self.inject(plan, fault, &mut payload) {
                    Injection::BreakOff => {
                        if fault == StreamFault::Stall {
                            self.silence(plan, framing, None).await?;
                        }
                        return self.break_off(fault).await.map(Some);
                    }
                    Injection::End => {
                        self.put(&payload, framing, &mut out).await?;
                        return Ok(None);
                    }
                    Injection::GoOn => self.put(&payload, framing, &mut out).await?,
                }
                continue;
            }
            if plan.content_is_next() && !script.gap.is_zero() {
                let started = *first_content.get_or_insert_with(Instant::now);
                let slot = plan.content_sent().unwrap_or(0) / script.join;
                self.wire.pause(started + script.gap * slot).await?;
            }
            self.step().await?;
            let now = if script.stamp { u64::try_from(since_1970().as_nanos()).unwrap_or(0) } else { 0 };
            let stop = fault.map_or(u32::MAX, |(after, _)| after);
            let (more, content) = gather(plan, &mut payload, now, script.join, stop);
            if !more {
                return Ok(None);
            }
            self.put(&payload, framing, &mut out).await?;
            self.open.events_written(u64::from(content));
        }
    }

    /// Waits for the caller's leave to send one more event.
    async fn step(&mut self) -> Result<(), Gone> {
        let Some(steps) = self.steps else { return Ok(()) };
        tokio::select! {
            permit = steps.acquire() => permit.map(SemaphorePermit::forget).map_err(|_| Gone),
            Gone = self.wire.stall() => Err(Gone),
        }
    }

    /// Sends one piece of the body.
    async fn put(&mut self, payload: &[u8], framing: Framing, out: &mut Vec<u8>) -> Result<(), Gone> {
        out.clear();
        self.frame(payload, framing, out);
        self.send(out).await?;
        if self.script.gap.is_zero() {
            // Streams take turns event by event, as an engine's batch does, and none starves the others.
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    fn inject(&self, plan: &Plan<'_>, fault: StreamFault, payload: &mut Vec<u8>) -> Injection {
        match fault {
            StreamFault::BadJson => plan.completion.put_bad_json(payload),
            StreamFault::EarlyDone => plan.completion.put_done(payload),
            StreamFault::ErrorEvent => {
                plan.completion.put_error(payload);
                if !self.script.no_done {
                    plan.completion.put_done(payload);
                }
                return Injection::End;
            }
            StreamFault::CleanEof => return Injection::End,
            _ => return Injection::BreakOff,
        }
        Injection::GoOn
    }

    /// Breaks the body off in the way of `fault`.
    async fn break_off(&mut self, fault: StreamFault) -> Result<Ending, Gone> {
        if !self.script.fault_delay.is_zero() {
            self.wire.pause(Instant::now() + self.script.fault_delay).await?;
        }
        match fault {
            StreamFault::BadChunk => self.send(responses::BAD_CHUNK).await?,
            StreamFault::HugeChunk => self.send(responses::HUGE_CHUNK).await?,
            StreamFault::Garbage => self.send(responses::GARBAGE).await?,
            StreamFault::Stall => return Err(self.wire.stall().await),
            StreamFault::Reset => return Ok(Ending::fault(Next::Reset)),
            // A close is all there is to a truncation; the others leave the framing whole and never come
            // here.
            _ => {}
        }
        Ok(Ending::fault(Next::Close))
    }

    /// Says nothing, but for pings, until the deadline or for ever.
    async fn silence(
        &mut self,
        plan: &Plan<'_>,
        framing: Framing,
        until: Option<Instant>,
    ) -> Result<(), Gone> {
        let (mut payload, mut out) = (Vec::new(), Vec::new());
        loop {
            let ping = (!self.script.ping.is_zero()).then(|| Instant::now() + self.script.ping);
            let wake = match (ping, until) {
                (None, None) => return Err(self.wire.stall().await),
                (Some(ping), Some(until)) => ping.min(until),
                (Some(at), None) | (None, Some(at)) => at,
            };
            self.wire.pause(wake).await?;
            if until.is_some_and(|until| wake >= until) {
                return Ok(());
            }
            payload.clear();
            plan.completion.put_ping(&mut payload);
            self.put(&payload, framing, &mut out).await?;
        }
    }

    /// The end of a complete response.
    async fn finish(&mut self, close: bool) -> Result<Ending, Gone> {
        let next = match self.script.after {
            _ if close => Next::Close,
            After::AnnouncedClose => Next::Close,
            After::DropNext => Next::DropRequest,
            After::Keep => Next::Keep,
            After::SilentClose(pause) => {
                // The response is complete: a peer that leaves during the pause has not aborted anything.
                let _ = self.wire.pause(Instant::now() + pause).await;
                Next::Close
            }
        };
        Ok(Ending { outcome: Outcome::Completed, next })
    }
}

/// What a fault does to the order of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Injection {
    /// The body breaks off here.
    BreakOff,
    /// The body ends here in good order.
    End,
    /// An event is slipped in and the stream goes on.
    GoOn,
}

/// Puts the next events into `payload`: one, or up to `join` content events without passing `stop`.
/// Returns whether there was any, and how many content events.
fn gather(plan: &mut Plan<'_>, payload: &mut Vec<u8>, now: u64, join: u32, stop: u32) -> (bool, u32) {
    let mut content = 0;
    loop {
        match plan.put_next(payload, now) {
            None => return (content > 0, content),
            Some(Item::Other) => return (true, content),
            Some(Item::Content) => content += 1,
        }
        let at_stop = plan.content_sent().is_some_and(|sent| sent >= stop);
        if content >= join || at_stop || !plan.content_is_next() {
            return (true, content);
        }
    }
}

fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
