//! Carrying commands out: beside each other, a bounded number of them, each within its time, and none on the link's own turn.

use std::{cell::Cell, pin::pin, rc::Rc, time::Duration};

use dataplane::{
    clock, panic_point,
    relay::LinkHandle,
    shard::{boxed, spawn_guarded},
    time::before,
};
use futures::future::{Either, select};
use proto::message::{Message, NodeCommandResponse};

use super::{
    Fields, capabilities,
    ollama::{self, Call},
};
use crate::{
    adapters::{Adapter, Provider},
    health::{self, PROBE_TIMEOUT, judge::Fault},
    session::observation::Observations,
};

/// Commands of one connection that may be under way; a further one is refused.
const COMMANDS_MAX: usize = 16;
/// How long a command may take: a probe's time, and a little for everything around it.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(PROBE_TIMEOUT.as_secs() + 1);

/// The commands of one connection.
#[derive(Debug, Default)]
pub(in crate::session) struct Desk {
    running: Rc<Cell<usize>>,
}

impl Desk {
    /// Takes the command `request_id`, which will be answered on `link`.
    ///
    /// # Errors
    /// Too many are under way.
    pub(in crate::session) fn take(&self, link: &LinkHandle, request_id: u64) -> Result<Errand, String> {
        let running = self.running.get();
        if running >= COMMANDS_MAX {
            return Err(format!("more than {COMMANDS_MAX} commands at one time"));
        }
        self.running.set(running + 1);
        Ok(Errand { link: link.clone(), request_id, running: Rc::clone(&self.running), is_answered: false })
    }
}

/// A command under way. Its drop answers it, if nothing has.
#[derive(Debug)]
pub(in crate::session) struct Errand {
    link: LinkHandle,
    request_id: u64,
    running: Rc<Cell<usize>>,
    is_answered: bool,
}

impl Errand {
    /// Asks the provider of `adapter`, which the Edge calls `asked`, for `target`.
    pub(in crate::session) fn capabilities(
        self,
        provider: Rc<Provider>,
        adapter: Rc<Adapter>,
        (asked, target): (String, String),
        observations: Rc<Observations>,
    ) {
        self.run(async move || {
            let health = health::probe(&provider, &adapter, &target).await;
            // The number says when it was observed, so it is drawn now.
            Ok(capabilities(&asked, &target, &adapter, health, observations.next()))
        });
    }

    /// Makes one call of the Ollama API at `base_url`.
    pub(in crate::session) fn ollama(self, provider: Rc<Provider>, base_url: String, call: Call) {
        self.run(async move || {
            let request = call.request(&base_url).map_err(|error| error.to_string())?;
            let answer = health::fetch(&provider, &request, ollama::ANSWER_BYTES_MAX).await;
            call.answer(&answer.map_err(words)?)
        });
    }

    fn run(self, work: impl AsyncFnOnce() -> Result<Fields, String> + 'static) {
        spawn_guarded(boxed(|| async move {
            panic_point!("node.command");
            let link = self.link.clone();
            let work = before(clock::now() + COMMAND_TIMEOUT, boxed(|| work()));
            let result = match select(pin!(work), pin!(link.ended())).await {
                Either::Left((Some(result), _)) => result,
                Either::Left((None, _)) => Err(format!("no answer within {} s", COMMAND_TIMEOUT.as_secs())),
                // Nobody is there to be told.
                Either::Right(_) => return,
            };
            self.answer(result);
        }));
    }

    fn answer(mut self, result: Result<Fields, String>) {
        self.say(result);
    }

    fn say(&mut self, result: Result<Fields, String>) {
        self.is_answered = true;
        send(&self.link, self.request_id, result);
    }
}

impl Drop for Errand {
    fn drop(&mut self) {
        self.running.set(self.running.get().saturating_sub(1));
        if !self.is_answered {
            self.say(Err("the node's task for this command ended by a defect".to_owned()));
        }
    }
}

/// Answers a command.
pub(in crate::session) fn send(link: &LinkHandle, request_id: u64, result: Result<Fields, String>) {
    link.send(Message::NodeCommandResponse(NodeCommandResponse { request_id, result }));
}

fn words(fault: Fault) -> String {
    match fault {
        Fault::Refused => "nobody listens at the provider's address".to_owned(),
        Fault::TooLarge => format!("the answer is longer than {} bytes", ollama::ANSWER_BYTES_MAX),
        Fault::Odd => "the provider gave no whole answer".to_owned(),
    }
}
