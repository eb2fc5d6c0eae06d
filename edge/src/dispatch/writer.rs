//! The answer of a run as its client's surface writes it. No I/O.

use dataplane::clock;

use super::{keepalive::KeepAlive, reading::Manner, session::Plan};
use crate::{
    anthropic::writer::{self as messages, Messages},
    openai::{
        normalized::{
            answer::{AnswerError, Finish, Piece},
            chat::{self, Chat},
        },
        responses::writer::{self as responses, Responses},
        scan::{StreamOptions, Switch},
    },
    reply::Fault,
};

/// Writes one answer.
#[derive(Debug)]
pub(super) enum Writer {
    Chat(Chat),
    Messages(Messages),
    Responses(Responses),
}

impl Writer {
    /// Before the first piece. `manner` is what reading the request found out.
    pub(super) fn new(plan: &Plan, manner: Manner) -> Self {
        let id = |prefix: &str| format!("{prefix}_{}", plan.request_id.trim_start_matches("req_"));
        let (model, stream) = (plan.scan.model.as_str().into(), plan.scan.stream);
        match manner {
            Manner::Chat { include_usage, legacy_functions } => Self::Chat(Chat::new(chat::Shape {
                id: format!("chatcmpl-{}", plan.request_id.trim_start_matches("req_")),
                created: clock::unix_seconds(),
                model,
                stream,
                include_usage,
                legacy_functions,
            })),
            Manner::Messages { input_tokens } => {
                Self::Messages(Messages::new(messages::Shape { id: id("msg"), model, stream, input_tokens }))
            }
            Manner::Responses { echo, names } => Self::Responses(Responses::new(responses::Shape {
                id: id("resp"),
                created: clock::unix_seconds(),
                model,
                stream,
                echo,
                names,
            })),
        }
    }

    /// In the middle of a stream of chunks that a provider began: these are what they have in common.
    pub(super) fn going_on(plan: &Plan, id: String, created: u64, model: &str) -> Self {
        let options = &plan.scan.stream_options;
        let include_usage = matches!(options, StreamOptions::Object { include_usage: Some(Switch::On), .. });
        let shape = chat::Shape {
            id,
            created,
            model: model.into(),
            stream: true,
            include_usage,
            legacy_functions: false,
        };
        Self::Chat(Chat::going_on(&shape))
    }

    /// Whether the client gets the answer as it comes.
    pub(super) fn is_stream(&self) -> bool {
        match self {
            Self::Chat(chat) => matches!(chat, Chat::Stream(_)),
            Self::Messages(messages) => matches!(messages, Messages::Stream(_)),
            Self::Responses(responses) => matches!(responses, Responses::Stream(_)),
        }
    }

    /// Appends what the client gets for a piece; nothing where it gets all at the end.
    ///
    /// # Errors
    /// The answer is of no use from here on.
    pub(super) fn piece(&mut self, piece: Piece, out: &mut Vec<u8>) -> Result<(), AnswerError> {
        match self {
            Self::Chat(chat) => chat.piece(piece, out),
            Self::Messages(messages) => messages.piece(piece, out),
            Self::Responses(responses) => return responses.piece(piece, out),
        }
        Ok(())
    }

    /// Appends the end of the answer.
    pub(super) fn finish(&mut self, finish: &Finish, out: &mut Vec<u8>) {
        match self {
            Self::Chat(chat) => chat.finish(finish, out),
            Self::Messages(messages) => messages.finish(finish, out),
            Self::Responses(responses) => {
                responses.completed_at(clock::unix_seconds());
                responses.finish(finish, out);
            }
        }
    }

    /// Appends what a client is told in silence, where that is an event; else it is a comment, which the caller writes. Messages have
    /// an event for it that every client skips.
    pub(super) fn keep_alive(&mut self, due: KeepAlive, out: &mut Vec<u8>) -> KeepAlive {
        match (self, due) {
            (Self::Messages(messages), _) => messages.keep_alive(out),
            (Self::Chat(_) | Self::Responses(_), KeepAlive::Comment) => return KeepAlive::Comment,
            (Self::Chat(Chat::Stream(stream)), KeepAlive::Event) => stream.keep_alive(out),
            (Self::Chat(Chat::Whole(_)), KeepAlive::Event) => {}
            (Self::Responses(responses), KeepAlive::Event) => responses.keep_alive(out),
        }
        KeepAlive::Event
    }

    /// Appends the end of a stream that had begun and failed (API-1), where it takes what has been said to write it; whether it did.
    pub(super) fn failed(&mut self, fault: &Fault, out: &mut Vec<u8>) -> bool {
        match self {
            Self::Responses(responses @ Responses::Stream(_)) => {
                responses.failed(fault, out);
                true
            }
            Self::Chat(_) | Self::Messages(_) | Self::Responses(_) => false,
        }
    }
}
