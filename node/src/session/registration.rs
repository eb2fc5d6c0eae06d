//! From a fresh connection to a ready one (REG-2, REG-4). Pure: messages in, steps out.
//!
//! ```text
//!  start ─Register─▶ AwaitRegistered ─Accepted─▶ Applying ─applied()─▶ AwaitReady ─ready:true─▶ Ready
//!                         │ Rejected                │ apply failed          │ ready:false
//!                         └─────────────────────────┴───────────────────────┴──▶ Refused
//! ```
//!
//! Nothing but the expected answer and a goodbye may come before the ready ack (REG-5): whatever else comes refuses the
//! connection. A refusal is never the end of the process (SUP-5).

use std::time::Duration;

use proto::{
    identity::Name,
    message::{
        Message, NodeConfigPayload, NodeReadyRequest, NodeReadyResponse, RegisterRequest, RegisterResponse,
    },
};
use thiserror::Error;

use crate::supervisor::Failure;

/// How long each of the two answers of the Edge is waited for.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// What to do next.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Build everything that the configuration names, then [`Registration::applied`].
    Apply(Box<NodeConfigPayload>),
    /// Serve.
    Ready,
}

/// Why a connection does not become ready.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Refusal {
    /// The Edge refused the registration.
    #[error("the edge refused the registration: {0}")]
    Rejected(String),
    /// The Edge accepted another Node ID than ours.
    #[error("the edge registered us as {0}")]
    WrongNode(Name),
    /// The Edge did not make us ready.
    #[error("the edge did not make the node ready: {0}")]
    NotReady(String),
    /// The Edge is about to close.
    #[error("the edge said goodbye: {0}")]
    Goodbye(String),
    /// Something that may not come before the ready ack.
    #[error("the edge sent a message that may not come before the node is ready")]
    Unexpected,
    /// No answer within [`ANSWER_TIMEOUT`].
    #[error("the edge did not answer within {} s", ANSWER_TIMEOUT.as_secs())]
    TimedOut,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    AwaitRegistered,
    Applying,
    AwaitReady,
    Ready,
}

/// The registration of one connection.
#[derive(Clone, Debug)]
pub struct Registration {
    name: Name,
    state: State,
}

impl Registration {
    /// A registration of `name`, and the message that opens it. `token` is the optional second factor, empty for none.
    #[must_use]
    pub fn start(name: Name, token: String) -> (Self, Message) {
        let agent_version = env!("CARGO_PKG_VERSION").to_owned();
        let request = RegisterRequest { node_id: name.clone(), agent_version, token };
        (Self { name, state: State::AwaitRegistered }, Message::RegisterRequest(request))
    }

    /// Takes the next message of the Edge.
    ///
    /// # Errors
    /// [`Refusal`]: the connection must be closed; dialling again may help.
    pub fn handle(&mut self, message: Message) -> Result<Step, Refusal> {
        match (self.state, message) {
            (_, Message::Goodbye(goodbye)) => Err(Refusal::Goodbye(goodbye.reason)),
            (State::AwaitRegistered, Message::RegisterResponse(response)) => self.registered(response),
            (State::AwaitReady, Message::NodeReadyResponse(response)) => self.readied(response),
            _ => Err(Refusal::Unexpected),
        }
    }

    /// The configuration is applied and the session handler stands; the message to send.
    pub fn applied(&mut self) -> Message {
        self.state = State::AwaitReady;
        Message::NodeReadyRequest(NodeReadyRequest { node_id: self.name.clone() })
    }

    /// The kind of failure that a refusal in the present state is.
    #[must_use]
    pub const fn failure(&self) -> Failure {
        match self.state {
            State::AwaitRegistered => Failure::Registration,
            State::Applying => Failure::Apply,
            State::AwaitReady | State::Ready => Failure::Readiness,
        }
    }

    fn registered(&mut self, response: RegisterResponse) -> Result<Step, Refusal> {
        match response {
            RegisterResponse::Rejected { reason } => Err(Refusal::Rejected(reason)),
            RegisterResponse::Accepted { node_id, .. } if node_id != self.name => {
                Err(Refusal::WrongNode(node_id))
            }
            RegisterResponse::Accepted { config, .. } => {
                self.state = State::Applying;
                Ok(Step::Apply(Box::new(config)))
            }
        }
    }

    fn readied(&mut self, response: NodeReadyResponse) -> Result<Step, Refusal> {
        if !response.ready {
            return Err(Refusal::NotReady(response.reason));
        }
        self.state = State::Ready;
        Ok(Step::Ready)
    }
}

#[cfg(test)]
mod tests {
    use proto::message::{Cancel, Goodbye};

    use super::*;

    fn name(text: &str) -> Name {
        text.parse().unwrap()
    }

    fn accepted(node: &str) -> Message {
        let config = NodeConfigPayload { config_generation: 3, ..NodeConfigPayload::default() };
        Message::RegisterResponse(RegisterResponse::Accepted { node_id: name(node), config })
    }

    fn readiness(ready: bool) -> Message {
        let reason = if ready { String::new() } else { "superseded".to_owned() };
        Message::NodeReadyResponse(NodeReadyResponse { ready, reason })
    }

    // req: REG-2, REG-4
    #[test]
    fn a_node_registers_applies_says_ready_and_serves_after_the_ack() {
        let (mut registration, first) = Registration::start(name("box1"), "factor".to_owned());
        let Message::RegisterRequest(request) = first else { panic!() };
        assert_eq!((request.node_id, request.token.as_str()), (name("box1"), "factor"));
        let Ok(Step::Apply(config)) = registration.handle(accepted("box1")) else { panic!() };
        assert_eq!(config.config_generation, 3);
        let Message::NodeReadyRequest(ready) = registration.applied() else { panic!() };
        assert_eq!(ready.node_id, name("box1"));
        assert_eq!(registration.handle(readiness(true)), Ok(Step::Ready));
    }

    // req: SUP-5, REG-7
    #[test]
    fn every_refusal_of_the_edge_is_retryable() {
        let (fresh, _) = Registration::start(name("box1"), String::new());
        let mut applied = fresh.clone();
        applied.handle(accepted("box1")).unwrap();
        applied.applied();
        let rejected =
            Message::RegisterResponse(RegisterResponse::Rejected { reason: "unknown node".to_owned() });
        let goodbye = Message::Goodbye(Goodbye { reason: "draining".to_owned() });
        for (from, message, refusal) in [
            (&fresh, rejected, Refusal::Rejected("unknown node".to_owned())),
            (&fresh, accepted("box2"), Refusal::WrongNode(name("box2"))),
            (&fresh, goodbye.clone(), Refusal::Goodbye("draining".to_owned())),
            (&applied, readiness(false), Refusal::NotReady("superseded".to_owned())),
            (&applied, goodbye, Refusal::Goodbye("draining".to_owned())),
        ] {
            let mut registration = from.clone();
            assert_eq!(registration.handle(message), Err(refusal));
            assert!(!registration.failure().is_fatal());
        }
    }

    // req: REG-5
    #[test]
    fn nothing_is_executed_before_the_ready_ack() {
        let (fresh, _) = Registration::start(name("box1"), String::new());
        let mut applying = fresh.clone();
        applying.handle(accepted("box1")).unwrap();
        let mut applied = applying.clone();
        applied.applied();
        let cancel = Message::Cancel(Cancel { stream: 1, run_id: String::new() });
        for (state, early) in
            [(&fresh, readiness(true)), (&applying, readiness(true)), (&applied, accepted("box1"))]
        {
            for message in [early, cancel.clone()] {
                assert_eq!(state.clone().handle(message), Err(Refusal::Unexpected));
            }
        }
    }
}
