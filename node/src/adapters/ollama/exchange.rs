//! One chat with Ollama: the request, the answer's lines, and the one second try without tools (RUN-4).

use std::{str, time::Duration};

use bytes::Bytes;
use dataplane::{
    clock,
    http::{client::Exchange, head::Headers},
    shard::boxed,
    time::before,
};
use proto::run_input::{RunInput, ToolCall};
use serde::Deserialize;

use super::{
    Ollama, context,
    reader::{Done, Reader, Said},
    refusal::{self, Refusal},
    request, text_tools,
};
use crate::{
    adapters::{
        Provider,
        native::{Finish, Job, Leftover},
        openai_compat::{
            credentials::NONE,
            exchange::{failed, send},
        },
    },
    run::{
        output::{Output, ToolMode},
        terminal::Failed,
    },
};

/// How long the end of the body may take after `done:true`. The answer is whole by then; only its connection is at stake.
const END_TIMEOUT: Duration = Duration::from_secs(1);
/// How long `/api/ps` may take; only a mark on the completion is at stake.
const PS_TIMEOUT: Duration = Duration::from_secs(1);
/// Bytes of its answer that are read.
const PS_BYTES_MAX: usize = 256 * 1024;

impl Ollama {
    /// Executes `job` up to the answer's proper end.
    ///
    /// # Errors
    /// [`Failed`]: what the terminal is to say.
    pub(in crate::adapters) async fn chat(
        &self,
        provider: &Provider,
        job: Job,
        output: &mut Output<'_>,
        leftover: &Leftover,
    ) -> Result<Finish, Failed> {
        let Job { target, input, reservation } = job;
        let estimated = context::estimate(&input);
        let single = input.single_tool_call;
        // In a box of its own, which is gone for as long as the answer takes.
        let (exchange, mode) = boxed(|| self.open(provider, &target, input, leftover)).await?;
        drop(reservation);
        output.start(mode)?;
        let done = answer(exchange, output, leftover).await?;
        let evaluated = done.usage.input_tokens.unwrap_or(0);
        let prompt_truncated = context::is_suspicious(estimated, evaluated)
            && context::is_truncated(estimated, evaluated, self.window(provider, &target).await);
        if prompt_truncated && self.may_warn() {
            tracing::warn!(
                model = target,
                estimated,
                evaluated,
                "prompt cut: it was longer than the model's context"
            );
        }
        Ok(finish(done, single, prompt_truncated))
    }

    /// Sends the conversation until an answer begins: with tools, and once more without when the model takes none.
    async fn open(
        &self,
        provider: &Provider,
        target: &str,
        input: RunInput,
        leftover: &Leftover,
    ) -> Result<(Exchange, ToolMode), Failed> {
        let has_tools = request::offered(&input).next().is_some();
        if !has_tools || !self.verdicts.borrow().refuses_tools(target) {
            let exchange = self.send(provider, target, &input, leftover).await?;
            if exchange.head.status == 200 {
                return Ok((exchange, ToolMode::Native));
            }
            let Refusal { failed, of_tools } = refusal(exchange, leftover).await;
            if !has_tools || !of_tools {
                return Err(failed);
            }
            self.verdicts.borrow_mut().note_refusal(target);
        }
        provider.metrics.text_tool_runs.inc();
        let exchange = self.send(provider, target, &text_tools::as_text(input), leftover).await?;
        if exchange.head.status == 200 {
            return Ok((exchange, ToolMode::Text));
        }
        Err(refusal(exchange, leftover).await.failed)
    }

    async fn send(
        &self,
        provider: &Provider,
        target: &str,
        input: &RunInput,
        leftover: &Leftover,
    ) -> Result<Exchange, Failed> {
        let body = Bytes::from(request::body(target, self.context_size, input)?);
        let mut fields = Headers::new();
        for (name, value) in [
            ("content-type", "application/json"),
            ("accept", "application/x-ndjson"),
            ("accept-encoding", "identity"),
        ] {
            let _constant = fields.push(name, value);
        }
        let exchange =
            send(provider, self.chat_endpoint(), (&fields, NONE), &body, &leftover.connection).await?;
        provider.metrics.request_bytes.inc_by(body.len() as u64);
        if exchange.retried {
            provider.metrics.provider_retries.inc();
        }
        Ok(exchange)
    }

    /// The context window in tokens: the configured one, else what Ollama says of the loaded model; 0 when it says nothing.
    async fn window(&self, provider: &Provider, target: &str) -> u64 {
        if self.context_size != 0 {
            return u64::from(self.context_size);
        }
        let asked = boxed(|| self.loaded_window(provider, target));
        before(clock::now() + PS_TIMEOUT, asked).await.flatten().unwrap_or(0)
    }

    async fn loaded_window(&self, provider: &Provider, target: &str) -> Option<u64> {
        // A leftover of its own: the run does not wait for this connection.
        let leftover = Leftover::default();
        let (fields, body) = (Headers::new(), Bytes::new());
        let mut exchange =
            send(provider, self.ps_endpoint(), (&fields, NONE), &body, &leftover.connection).await.ok()?;
        if exchange.head.status != 200 {
            return None;
        }
        loaded_window(&collect(&mut exchange, PS_BYTES_MAX).await, target)
    }
}

/// Passes the answer on, up to its last line.
async fn answer(
    mut exchange: Exchange,
    output: &mut Output<'_>,
    leftover: &Leftover,
) -> Result<Done, Failed> {
    let (mut reader, mut said) = (Reader::default(), Vec::new());
    while !reader.is_done() {
        // What the Edge does not take yet stays with Ollama.
        output.ready().await?;
        dataplane::panic_point!("node.adapter");
        let Some(piece) = exchange.next().await.map_err(failed)? else { break };
        take(&piece, &mut reader, &mut said, output)?;
        while !reader.is_done()
            && output.may_merge()
            && let Some(next) = exchange.try_next()
        {
            // An end is found again by the loop around this one.
            let Some(piece) = next.map_err(failed)? else { break };
            take(&piece, &mut reader, &mut said, output)?;
        }
    }
    if reader.is_done() {
        let end = async { while let Ok(Some(_)) = exchange.next().await {} };
        let _in_time = before(clock::now() + END_TIMEOUT, end).await;
        close(exchange, leftover);
    }
    let done = reader.finish(&mut said);
    say(output, &mut said)?;
    done.map_err(Failed::from)
}

/// Passes on what `piece` says, also what stands before an error in it.
fn take(
    piece: &[u8],
    reader: &mut Reader,
    said: &mut Vec<Said>,
    output: &mut Output<'_>,
) -> Result<(), Failed> {
    let fed = reader.feed(piece, said);
    say(output, said)?;
    Ok(fed?)
}

fn say(output: &mut Output<'_>, said: &mut Vec<Said>) -> Result<(), Failed> {
    said.drain(..).try_for_each(|part| match part {
        Said::Text(text) => output.text(text),
        Said::Reasoning(text) => output.reasoning(text),
    })
}

/// Reads why the request was refused.
async fn refusal(mut exchange: Exchange, leftover: &Leftover) -> Refusal {
    let status = exchange.head.status;
    let body = collect(&mut exchange, refusal::BODY_BYTES_MAX).await;
    close(exchange, leftover);
    refusal::judge(status, &body)
}

/// The beginning of the body, at most about `bytes_max` bytes; what a broken connection cuts off is left out.
async fn collect(exchange: &mut Exchange, bytes_max: usize) -> Vec<u8> {
    let mut body = Vec::new();
    while body.len() < bytes_max {
        let Ok(Some(piece)) = exchange.next().await else { break };
        body.extend_from_slice(&piece);
    }
    body
}

/// The provider is done with this request, whatever becomes of its connection: nobody waits for its return.
fn close(exchange: Exchange, leftover: &Leftover) {
    drop(exchange);
    drop(leftover.connection.take());
}

fn loaded_window(body: &[u8], target: &str) -> Option<u64> {
    #[derive(Deserialize)]
    struct Loaded {
        models: Vec<Model>,
    }
    #[derive(Deserialize)]
    struct Model {
        #[serde(default)]
        name: String,
        #[serde(default)]
        model: String,
        #[serde(default)]
        context_length: u64,
    }
    let loaded: Loaded = serde_json::from_slice(body).ok()?;
    let latest = format!("{target}:latest");
    let is_it = |name: &str| name == target || name == latest;
    let model = loaded.models.into_iter().find(|model| is_it(&model.name) || is_it(&model.model))?;
    Some(model.context_length)
}

fn finish(done: Done, single: bool, prompt_truncated: bool) -> Finish {
    let Done { reason, usage, mut calls } = done;
    if single {
        calls.truncate(1);
    }
    name_calls(&mut calls);
    Finish { reason, usage: Some(usage), tool_calls: calls, prompt_truncated }
}

/// Gives each call that has none, or that of another call, an id of its own.
fn name_calls(calls: &mut [ToolCall]) {
    for at in 0..calls.len() {
        let (before, rest) = calls.split_at_mut(at);
        let Some(call) = rest.first_mut() else { return };
        if call.id.is_empty() || before.iter().any(|other| other.id == call.id) {
            call.id = call_id(at);
        }
    }
}

/// `call_` and 24 letters and digits.
fn call_id(at: usize) -> String {
    const LETTERS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    let mut drawn = [0; 24];
    if getrandom::fill(&mut drawn).is_err() {
        // Without randomness it is still another one in each answer, and that is what clients need.
        return format!("call_{at:024}");
    }
    let letters = drawn.map(|byte| LETTERS[usize::from(byte) % LETTERS.len()]);
    format!("call_{}", str::from_utf8(&letters).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use proto::run_input::{Call, CallKind};

    use super::*;

    fn call(id: &str) -> ToolCall {
        let function = Call { name: "f".to_owned(), arguments: "{}".to_owned() };
        ToolCall { id: id.to_owned(), kind: CallKind::Function, function }
    }

    // req: RUN-3
    #[test]
    fn every_call_has_an_id_of_its_own_and_a_single_one_is_the_first() {
        let done = Done { calls: vec![call("a"), call(""), call(""), call("a")], ..Done::default() };
        let calls = finish(done.clone(), false, false).tool_calls;
        assert_eq!(calls[0].id, "a");
        let ids: std::collections::BTreeSet<_> = calls.iter().map(|call| call.id.as_str()).collect();
        assert_eq!(ids.len(), 4);
        for made in &calls[1..] {
            let (prefix, random) = made.id.split_at(5);
            assert_eq!((prefix, random.len()), ("call_", 24));
            assert!(random.bytes().all(|byte| byte.is_ascii_alphanumeric()));
        }
        assert_eq!(finish(done, true, false).tool_calls, [call("a")]);
    }

    #[test]
    fn the_window_of_a_loaded_model_is_found_by_its_name() {
        let body = br#"{"models":[{"name":"a:latest","model":"a:latest","context_length":4096,"size":1},{"name":"b:7b","context_length":8192},{"name":"c"}]}"#;
        for (target, window) in
            [("a", Some(4096)), ("a:latest", Some(4096)), ("b:7b", Some(8192)), ("b", None), ("c", Some(0))]
        {
            assert_eq!(loaded_window(body, target), window, "{target}");
        }
        assert_eq!(loaded_window(b"{}", "a"), None);
    }
}
