//! Reading what a body asks for where it does not go on as it is: the input of a run, or a chat completion for a client of another
//! surface. Of a large one this is done on a thread of its own: tens of milliseconds for the pictures that a body may hold, in
//! which the shard's other clients are not to wait.

use std::{collections::BTreeMap, rc::Rc, sync::Arc};

use bytes::Bytes;
use control::{
    effect::Grant,
    input::{LeaseId, RequestId},
};
use dataplane::{http::body::Body, mailbox::Sender};
use proto::run_input::{RunInput, ToolChoice};

use crate::{
    anthropic,
    config::{ChatDialect, GenerationFields, GenerationPolicy, Settings},
    conversation::Conversation,
    mail::ToShard,
    openai::{
        estimate::Estimator,
        normalized::input,
        responses::{self, Echo, Names},
    },
    reply::Fault,
    shard_state::ShardState,
    surface::Surface,
    translate::request::{self, Target},
};

/// Largest body that is read on its client's shard, in bytes: a fraction of a millisecond.
const AT_ONCE_BYTES_MAX: usize = 256 * 1024;

/// What is to be made of a body.
#[derive(Clone, Debug)]
pub(super) struct Job {
    /// In whose language it is.
    pub(super) surface: Surface,
    /// Limits of tokens (CFG-5).
    pub(super) policy: GenerationPolicy,
    pub(super) goal: Goal,
}

/// What a provider is sent.
#[derive(Clone, Debug)]
pub(super) enum Goal {
    /// The input of a run.
    Run,
    /// A chat completion request.
    Chat {
        /// The served model.
        model: Arc<str>,
        fields: GenerationFields,
        dialect: ChatDialect,
        stream: bool,
    },
}

impl Goal {
    /// A chat completion request as what was granted takes it.
    pub(super) fn chat(settings: &Settings, grant: &Grant, stream: bool) -> Self {
        let provider = settings.provider(&grant.provider).map(|(_, provider)| provider);
        Self::Chat {
            model: Arc::clone(&grant.target),
            fields: provider.map(|provider| provider.generation_fields).unwrap_or_default(),
            dialect: provider.map(|provider| provider.dialect).unwrap_or_default(),
            stream,
        }
    }
}

/// What a body asks of a provider, in the provider's language.
#[derive(Debug)]
pub struct Input {
    /// What goes to the Node.
    pub(super) json: Bytes,
    /// Whether that is a chat completion.
    pub(super) is_chat: bool,
    /// Names of the functions that may be called.
    pub(super) tools: Vec<String>,
    pub(super) single_call: bool,
    pub(super) manner: Manner,
    /// The client's own pairs.
    pub(super) metadata: BTreeMap<String, String>,
}

/// How the answer is to look, as far as the request says it.
#[derive(Debug)]
pub(super) enum Manner {
    Chat {
        include_usage: bool,
        legacy_functions: bool,
    },
    Messages {
        /// About how many the request has.
        input_tokens: u64,
    },
    Responses {
        echo: Echo,
        names: Names,
    },
}

/// An input, or what the client must change.
pub type Read = Result<Box<Input>, Fault>;

/// Reads `body` at once when it is small, or begins to: then it comes as [`ToShard::Input`] for this lease.
pub(super) fn begin(
    shard: &Rc<ShardState>,
    (request, lease): (RequestId, LeaseId),
    body: &Body,
    job: Job,
) -> Option<Read> {
    let bytes = body.joined();
    let back = shard.sender().filter(|_| bytes.len() > AT_ONCE_BYTES_MAX);
    let Some(back) = back else { return Some(read(&bytes, job)) };
    let (elsewhere, same) = (bytes.clone(), job.clone());
    let begun = std::thread::Builder::new().name("input".to_owned()).spawn(move || {
        let read = read(&elsewhere, same);
        bring(&back, ToShard::Input(request, lease, read));
    });
    // Without a thread its shard does it: the machine has worse to worry about than a pause.
    begun.is_err().then(|| read(&bytes, job))
}

/// A shard that is far behind gets its mail when it has taken something; one that is gone ends the process, and this thread.
fn bring(back: &Sender<ToShard>, mut mail: ToShard) {
    while let Err(refused) = back.send(mail) {
        mail = refused;
        std::thread::park_timeout(std::time::Duration::from_millis(1));
    }
}

fn read(body: &[u8], job: Job) -> Read {
    let (conversation, manner) = match job.surface {
        Surface::Chat => return read_chat(body, &job),
        Surface::Messages => {
            let asked = anthropic::request::read(body)?;
            let mut estimator = Estimator::default();
            estimator.push(body);
            (asked.conversation, Manner::Messages { input_tokens: estimator.finish() })
        }
        Surface::Responses => {
            let asked = responses::request::read(body)?;
            (asked.conversation, Manner::Responses { echo: asked.echo, names: asked.names })
        }
    };
    convert(conversation, manner, job)
}

/// Of chat itself nothing is translated: its own reader knows what the older forms of its requests mean.
fn read_chat(body: &[u8], job: &Job) -> Read {
    let mut asked = input::read(body)?;
    input::apply(&job.policy, &mut asked.input.options);
    // Every number has been read from JSON, which has no other than finite ones.
    let json = asked.input.to_json().map_err(|_| Fault::Internal)?;
    let input::Asked { input, include_usage, legacy_functions, metadata } = asked;
    Ok(Box::new(Input {
        json: json.into(),
        is_chat: false,
        tools: callable(&input),
        single_call: input.single_tool_call,
        manner: Manner::Chat { include_usage, legacy_functions },
        metadata,
    }))
}

fn convert(mut conversation: Conversation, manner: Manner, job: Job) -> Read {
    input::apply(&job.policy, &mut conversation.options);
    let metadata = std::mem::take(&mut conversation.metadata);
    let single_call = conversation.single_tool_call;
    let (json, is_chat, tools) = match job.goal {
        Goal::Run => {
            let input = conversation.into_run_input()?;
            (input.to_json().map_err(|_| Fault::Internal)?, false, callable(&input))
        }
        Goal::Chat { model, fields, dialect, stream } => {
            let thinking_budget = job.policy.default_thinking_token_budget;
            let target = Target { model: &model, fields, dialect, stream, thinking_budget };
            // An engine looks for calls itself.
            (request::body(&conversation, &target)?, true, Vec::new())
        }
    };
    Ok(Box::new(Input { json: json.into(), is_chat, tools, single_call, manner, metadata }))
}

/// The names of the functions that the model may call.
fn callable(input: &RunInput) -> Vec<String> {
    let list = if input.tool_choice == ToolChoice::None { &[][..] } else { &input.tools };
    list.iter().map(|tool| tool.name.clone()).collect()
}
