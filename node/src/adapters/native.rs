//! The seam between a normalized run and what executes it: a conversation goes in, typed pieces come out in order.
//!
//! Nothing of HTTP is here: one adapter asks a server, another may start a program. An adapter
//!
//! - says what its backend says through [`Output`] and calls [`Output::ready`] before it takes more from it;
//! - calls [`Output::start`] when the backend has begun to answer;
//! - is stopped by being dropped, at any point. What its backend may still be doing then it leaves in [`Leftover`], and the run
//!   keeps its place at the gate until that is over (PRE-3).

use std::{cell::RefCell, fmt};

use dataplane::http::client::Custody;
use futures::future::LocalBoxFuture;
use proto::{
    message::Usage,
    run_input::{RunInput, ToolCall},
};

use super::{Adapter, Kind, Provider, cli::Cli, ollama::Ollama};
use crate::run::{assembly::Reservation, output::Output, terminal::Failed};

/// What is to be executed.
#[derive(Debug)]
pub struct Job {
    /// The model, as the backend names it (RUN-2).
    pub target: String,
    /// The conversation.
    pub input: RunInput,
    /// Room for the input, where it was large; to be dropped when no copy of it is needed any more.
    pub reservation: Option<Reservation>,
}

/// How a backend's answer ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Finish {
    /// `stop`, `length`, `tool_calls`, or what the backend says beyond these.
    pub reason: String,
    /// Final counts.
    pub usage: Option<Usage>,
    /// What the model called, each with an id of its own, in order (RUN-3).
    pub tool_calls: Vec<ToolCall>,
    /// The backend seems to have left out a part of the prompt.
    pub prompt_truncated: bool,
}

/// What an execution that was dropped leaves behind.
#[derive(Default)]
pub struct Leftover {
    /// The connection of an HTTP request.
    pub connection: Custody,
    other: RefCell<Option<LocalBoxFuture<'static, ()>>>,
}

impl Leftover {
    /// The run is over only when `returned` is, which must bound itself. The last one given counts.
    pub fn hold_until(&self, returned: LocalBoxFuture<'static, ()>) {
        self.other.replace(Some(returned));
    }

    /// What [`Self::hold_until`] was given.
    #[must_use]
    pub fn take_other(&self) -> Option<LocalBoxFuture<'static, ()>> {
        self.other.take()
    }
}

impl fmt::Debug for Leftover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leftover").field("connection", &self.connection).finish_non_exhaustive()
    }
}

/// An adapter that executes normalized runs.
#[derive(Clone, Copy, Debug)]
pub enum Native<'a> {
    /// Ollama's own API.
    Ollama(&'a Ollama),
    /// A program.
    Cli(&'a Cli),
}

impl Adapter {
    /// Itself, if it executes normalized runs.
    #[must_use]
    pub const fn native(&self) -> Option<Native<'_>> {
        match &self.kind {
            Kind::Ollama(ollama) => Some(Native::Ollama(ollama)),
            Kind::Cli(cli) => Some(Native::Cli(cli)),
            Kind::OpenAiCompat(_) | Kind::Unusable(_) => None,
        }
    }
}

impl Native<'_> {
    /// Executes `job` up to the proper end of the backend's answer. Dropping it stops it.
    ///
    /// # Errors
    /// [`Failed`]: what the terminal is to say.
    pub async fn execute(
        self,
        provider: &Provider,
        job: Job,
        output: &mut Output<'_>,
        leftover: &Leftover,
    ) -> Result<Finish, Failed> {
        match self {
            Self::Ollama(ollama) => ollama.chat(provider, job, output, leftover).await,
            Self::Cli(cli) => cli.run(job, output, leftover).await,
        }
    }
}
