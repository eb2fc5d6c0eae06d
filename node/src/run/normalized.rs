//! One normalized run from its request to its terminal (RUN-1).
//!
//! ```text
//!   request ─▶ input whole? ─▶ adapter: START, DELTA…, USAGE… ─▶ COMPLETE | ERROR
//!        └───────────┴──────────────────┴── cancel, session lost, deadline, stall ─▶ backend returns ─▶ CANCELLED | ERROR
//! ```
//!
//! Adapter and target are the whole of what a request says about where it runs; its metadata and its session id steer nothing
//! (RUN-2, RUN-5, RUN-7). It is stopped as a tunnel is.

use std::{rc::Rc, time::Instant};

use bytes::Bytes;
use dataplane::{panic_point, shard::boxed};
use proto::{
    limits::{ID_BYTES_MAX, TOOL_CALLS_BYTES_MAX},
    message::{ErrorKind, RunRequest},
    run_input::{PROMPT_TRUNCATED_KEY, RunInput, TOOL_CALLS_KEY},
};

use super::{
    assembly::{self, Reservation},
    control::RunControl,
    output::{Output, ToolMode, WINDOW_BYTES_MIN},
    supervise::{Supervisor, Watch},
    terminal::{Completion, End, Failed, Terminal},
    tunnel::{Words, deadline, report},
};
use crate::adapters::{
    Adapter, Provider,
    native::{Finish, Job, Leftover},
};

/// A run that was let through the gate.
#[derive(Debug)]
pub struct Normalized {
    /// What the Edge asked for.
    pub request: Box<RunRequest>,
    /// When it did.
    pub received: Instant,
    /// Who executes it.
    pub adapter: Rc<Adapter>,
    /// What the session can tell it.
    pub control: Rc<RunControl>,
    /// Its end of the stream.
    pub terminal: Terminal,
    /// Room for its input, where that follows in parts.
    pub reservation: Option<Reservation>,
    /// What watches it.
    pub watch: Watch,
}

impl Normalized {
    /// Executes the run to its one terminal.
    pub async fn run(self, provider: Rc<Provider>) {
        panic_point!("node.run");
        let Self { request, received, adapter, control, terminal, reservation, watch } = self;
        let RunRequest { run_id, stream, target, input, input_bytes, timeout_sec, window_bytes, .. } =
            *request;
        let run = Run { adapter, control, terminal, window_bytes, watch };
        let leftover = Leftover::default();
        let supervisor = Supervisor {
            provider: &provider,
            adapter: &run.adapter,
            control: &run.control,
            leftover: &leftover,
            watch: &run.watch,
            deadline: deadline(received, timeout_sec),
        };
        let work = boxed(|| run.execute(target, input, input_bytes, reservation, &provider, &leftover));
        let ended = supervisor.run(work, |failure| run.terminal.fence(failure)).await;
        match &ended.result {
            Ok(_) => tracing::debug!(run = run_id, stream, "run completed"),
            Err(failure) => report(&run_id, stream, failure, Words::Backends),
        }
        ended.finish(run.terminal).await;
    }
}

/// A run under way.
struct Run {
    adapter: Rc<Adapter>,
    control: Rc<RunControl>,
    terminal: Terminal,
    window_bytes: u32,
    watch: Watch,
}

impl Run {
    async fn execute(
        &self,
        target: String,
        first: Bytes,
        input_bytes: u64,
        reservation: Option<Reservation>,
        provider: &Provider,
        leftover: &Leftover,
    ) -> Result<End, Failed> {
        let invalid = |words: String| Failed::Error(ErrorKind::InvalidRequest, words);
        let Some(native) = self.adapter.native() else {
            return Err(invalid("the adapter executes no normalized runs".to_owned()));
        };
        if self.window_bytes < WINDOW_BYTES_MIN {
            return Err(invalid(format!(
                "window_bytes is {}, at least {WINDOW_BYTES_MIN} are needed",
                self.window_bytes
            )));
        }
        let input = assembly::whole(&self.control, &self.terminal, first, input_bytes).await?;
        let job = Job { target, input: parse(input)?, reservation };
        self.watch.start();
        let mut output = Output::new(&self.terminal, &self.control.credit, &self.watch, self.window_bytes);
        let finish = native.execute(provider, job, &mut output, leftover).await?;
        let mode = output.finish().await?;
        if finish.prompt_truncated {
            provider.metrics.prompts_truncated.inc();
        }
        Ok(End::Completed(Box::new(completion(finish, mode)?)))
    }
}

fn parse(input: Bytes) -> Result<RunInput, Failed> {
    RunInput::from_json(&input).map_err(|error| Failed::error(ErrorKind::InvalidRequest, error))
}

/// What COMPLETE says of `finish`; never more than the Edge takes in.
fn completion(mut finish: Finish, mode: ToolMode) -> Result<Completion, Failed> {
    let mut metadata = mode.metadata();
    if finish.prompt_truncated {
        metadata.insert(PROMPT_TRUNCATED_KEY.to_owned(), "true".to_owned());
    }
    if !finish.tool_calls.is_empty() {
        let calls = serde_json::to_string(&finish.tool_calls)
            .map_err(|error| Failed::error(ErrorKind::Internal, error))?;
        if calls.len() > TOOL_CALLS_BYTES_MAX {
            let words = format!(
                "the tool calls of the answer have {} bytes, at most {TOOL_CALLS_BYTES_MAX} are passed on",
                calls.len()
            );
            return Err(Failed::Error(ErrorKind::UpstreamProtocol, words));
        }
        metadata.insert(TOOL_CALLS_KEY.to_owned(), calls);
    }
    finish.reason.truncate(finish.reason.floor_char_boundary(ID_BYTES_MAX));
    Ok(Completion { finish_reason: finish.reason, usage: finish.usage, metadata })
}

#[cfg(test)]
mod tests {
    use proto::{
        limits::METADATA_VALUE_BYTES_MAX,
        message::{RunEvent, RunEventKind},
        run_input::{Call, CallKind, TEXT_TOOL_FALLBACK_KEY, ToolCall},
    };

    use super::*;

    fn call(bytes: usize) -> ToolCall {
        let arguments = format!("{{\"x\":\"{}\"}}", "y".repeat(bytes));
        ToolCall {
            id: "call_1".to_owned(),
            kind: CallKind::Function,
            function: Call { name: "f".to_owned(), arguments },
        }
    }

    // req: RUN-3, RUN-4
    #[test]
    fn a_completion_carries_calls_and_marks_and_is_one_that_the_edge_takes() {
        let plain =
            completion(Finish { reason: "stop".to_owned(), ..Finish::default() }, ToolMode::Native).unwrap();
        assert_eq!((plain.finish_reason.as_str(), plain.metadata.len()), ("stop", 0));
        let finish = Finish {
            reason: "x".repeat(10_000),
            tool_calls: vec![call(4 * METADATA_VALUE_BYTES_MAX)],
            prompt_truncated: true,
            ..Finish::default()
        };
        let Completion { finish_reason, usage, metadata } =
            completion(finish.clone(), ToolMode::Text).unwrap();
        assert_eq!(
            serde_json::from_str::<Vec<ToolCall>>(&metadata[TOOL_CALLS_KEY]).unwrap(),
            finish.tool_calls
        );
        assert_eq!(metadata[TEXT_TOOL_FALLBACK_KEY], "true");
        assert_eq!(metadata[PROMPT_TRUNCATED_KEY], "true");
        let event = RunEvent {
            stream: 1,
            sequence: 0,
            kind: RunEventKind::Complete { finish_reason, usage },
            run_id: String::new(),
            metadata,
        };
        proto::message::Message::RunEvent(event).validate().unwrap();
    }

    // req: RUN-3
    #[test]
    fn calls_that_the_edge_would_not_take_are_an_error_of_the_run_and_not_of_the_connection() {
        let finish = Finish { tool_calls: vec![call(TOOL_CALLS_BYTES_MAX)], ..Finish::default() };
        let Err(Failed::Error(kind, words)) = completion(finish, ToolMode::Native) else { panic!("taken") };
        assert_eq!(kind, ErrorKind::UpstreamProtocol);
        assert!(words.contains("at most 1048576"), "{words}");
    }
}
