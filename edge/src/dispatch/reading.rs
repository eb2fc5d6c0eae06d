//! Reading the input of a native run out of a body, which for a large one is done on a thread of its own: tens of milliseconds for the
//! pictures that a body may hold, in which the shard's other clients are not to wait.

use std::{collections::BTreeMap, rc::Rc};

use bytes::Bytes;
use control::input::{LeaseId, RequestId};
use dataplane::{http::body::Body, mailbox::Sender};
use proto::run_input::{RunInput, ToolChoice};

use crate::{
    config::GenerationPolicy, mail::ToShard, openai::normalized::input, reply::Fault, shard_state::ShardState,
};

/// Largest body that is read on its client's shard, in bytes: a fraction of a millisecond.
const AT_ONCE_BYTES_MAX: usize = 256 * 1024;

/// What a body asks of a native backend.
#[derive(Debug)]
pub struct Input {
    /// What goes to the Node.
    pub(super) json: Bytes,
    /// Names of the functions that may be called.
    pub(super) tools: Vec<String>,
    pub(super) single_call: bool,
    pub(super) include_usage: bool,
    pub(super) legacy_functions: bool,
    pub(super) metadata: BTreeMap<String, String>,
}

/// An input, or what the client must change.
pub type Read = Result<Box<Input>, Fault>;

/// Reads `body` at once when it is small, or begins to: then it comes as [`ToShard::Input`] for this lease.
pub(super) fn begin(
    shard: &Rc<ShardState>,
    (request, lease): (RequestId, LeaseId),
    body: &Body,
    policy: GenerationPolicy,
) -> Option<Read> {
    let bytes = body.joined();
    let back = shard.sender().filter(|_| bytes.len() > AT_ONCE_BYTES_MAX);
    let Some(back) = back else { return Some(read(&bytes, &policy)) };
    let elsewhere = bytes.clone();
    let begun = std::thread::Builder::new().name("input".to_owned()).spawn(move || {
        let read = read(&elsewhere, &policy);
        bring(&back, ToShard::Input(request, lease, read));
    });
    // Without a thread its shard does it: the machine has worse to worry about than a pause.
    begun.is_err().then(|| read(&bytes, &policy))
}

/// A shard that is far behind gets its mail when it has taken something; one that is gone ends the process, and this thread.
fn bring(back: &Sender<ToShard>, mut mail: ToShard) {
    while let Err(refused) = back.send(mail) {
        mail = refused;
        std::thread::park_timeout(std::time::Duration::from_millis(1));
    }
}

fn read(body: &[u8], policy: &GenerationPolicy) -> Read {
    let mut asked = input::read(body)?;
    input::apply(policy, &mut asked.input.options);
    // Every number has been read from JSON, which has no other than finite ones.
    let json = asked.input.to_json().map_err(|_| Fault::Internal)?;
    let input::Asked { input, include_usage, legacy_functions, metadata } = asked;
    Ok(Box::new(Input {
        json: json.into(),
        tools: callable(input.tool_choice == ToolChoice::None, &input),
        single_call: input.single_tool_call,
        include_usage,
        legacy_functions,
        metadata,
    }))
}

/// The names of the functions that the model may call.
fn callable(none: bool, input: &RunInput) -> Vec<String> {
    let list = if none { &[][..] } else { &input.tools };
    list.iter().map(|tool| tool.name.clone()).collect()
}
