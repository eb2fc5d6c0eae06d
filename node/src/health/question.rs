//! What is asked of which kind of adapter. Pure.
//!
//! The fields are those of a request of this provider: the configured ones, its credential among them, and nothing of a caller.

use std::{path::PathBuf, rc::Rc};

use bytes::Bytes;
use dataplane::http::head::Headers;
use proto::message::Operation;
use serde_json::json;

use super::judge::Proof;
use crate::adapters::{
    Adapter, Kind,
    openai_compat::{
        OpenAiCompat,
        endpoint::{Endpoint, Origin},
    },
};

/// How a provider is probed.
#[derive(Debug)]
pub enum Plan {
    /// By these requests, in their order, all of which must speak for it.
    Http(Vec<Question>),
    /// By looking whether this program is there.
    Program(PathBuf),
    /// Not at all: nothing that it could be asked would say that it serves the target.
    None,
}

/// One request of a probe.
#[derive(Debug)]
pub struct Question {
    /// How its answer is read.
    pub proof: Proof,
    /// HTTP method.
    pub method: String,
    /// Whom to dial.
    pub origin: Origin,
    /// Value of `Host`.
    pub authority: Rc<str>,
    /// Request target in origin form.
    pub target: String,
    /// Fields, none of the message's framing.
    pub fields: Headers,
    /// Empty for none.
    pub body: Bytes,
}

/// What a probe beyond the list of models is to look at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checks {
    /// Path on the provider's origin that must answer 2xx; empty = none.
    pub path: String,
    /// Whether one token is to be generated.
    pub generation: bool,
}

/// How `adapter`'s provider is asked for `target`.
#[must_use]
pub fn plan(adapter: &Adapter, target: &str) -> Plan {
    match &adapter.kind {
        Kind::OpenAiCompat(openai) => openai_compat(openai, &Checks::default(), target),
        // Ollama lists its models in OpenAI's form, too.
        Kind::Ollama(ollama) => Plan::Http(vec![Question::with(
            ollama.models_endpoint(),
            Headers::new(),
            Proof::Listed,
            Bytes::new(),
        )]),
        Kind::Cli(cli) => Plan::Program(cli.program().to_owned()),
        Kind::Unusable(_) => Plan::None,
    }
}

/// The list of models, the configured path, one token: what of it the profile and the configuration offer. A path alone speaks for
/// no target.
fn openai_compat(adapter: &OpenAiCompat, checks: &Checks, target: &str) -> Plan {
    let endpoints = adapter.endpoints();
    let endpoint = |operation| endpoints.iter().find(|endpoint| endpoint.operation == operation);
    let mut questions = Vec::new();
    if let Some(models) = endpoint(Operation::Models) {
        questions.push(Question::of(models, adapter, Proof::Listed, Bytes::new()));
    }
    if let Some(any) = endpoints.first().filter(|_| !checks.path.is_empty()) {
        let question = Question::of(any, adapter, Proof::Answers, Bytes::new());
        questions.push(Question { method: "GET".to_owned(), target: checks.path.clone(), ..question });
    }
    if checks.generation {
        let operations = [Operation::ChatCompletions, Operation::Messages, Operation::Responses];
        let Some(generates) = operations.into_iter().find_map(endpoint) else { return Plan::None };
        let body = one_token(generates.operation, target);
        questions.push(Question::of(generates, adapter, Proof::Generates, body));
    }
    let is_of_target = questions.iter().any(|question| question.proof != Proof::Answers);
    if is_of_target { Plan::Http(questions) } else { Plan::None }
}

impl Question {
    fn of(endpoint: &Endpoint, adapter: &OpenAiCompat, proof: Proof, body: Bytes) -> Self {
        let is_json = !body.is_empty();
        Self::with(endpoint, adapter.own_fields(is_json), proof, body)
    }

    fn with(endpoint: &Endpoint, fields: Headers, proof: Proof, body: Bytes) -> Self {
        Self {
            proof,
            method: endpoint.method.clone(),
            origin: endpoint.origin.clone(),
            authority: Rc::clone(&endpoint.authority),
            target: endpoint.target.clone(),
            fields,
            body,
        }
    }
}

/// A request for as little text as the operation can give.
fn one_token(operation: Operation, target: &str) -> Bytes {
    /// The least that OpenAI's responses take.
    const RESPONSES_MIN: u32 = 16;
    let said = "ping";
    let messages = json!([{ "role": "user", "content": said }]);
    let body = match operation {
        Operation::Responses => {
            json!({ "model": target, "input": said, "max_output_tokens": RESPONSES_MIN, "store": false })
        }
        _ => json!({ "model": target, "messages": messages, "max_tokens": 1, "stream": false }),
    };
    body.to_string().into()
}
