//! What a person at the client reads.

use std::borrow::Cow;

use dataplane::http::coding;

use super::Fault;
use crate::{
    surface::Surface,
    translate::refusal::{ProviderError, ProviderErrorKind},
};

/// Longest piece of a client's own text that is put into a message, in characters.
const ECHO_CHARS_MAX: usize = 128;

impl Fault {
    /// A sentence or two for the person at the client.
    #[must_use]
    pub fn message(&self, surface: Surface) -> Cow<'static, str> {
        match self {
            Self::BadFraming { detail } => format!("The HTTP request is malformed: {detail}.").into(),
            Self::BadJson { detail, .. } => format!("The request body is not valid: {detail}.").into(),
            Self::BadQuery { param, detail } => format!("The parameter `{param}` is not valid: {detail}.").into(),
            Self::MissingField { param } => {
                format!("The request body has no `{param}`, which is required.").into()
            }
            Self::ProviderAuth { header, found } => {
                format!("The header `{header}`, which carries your credential for the provider, {found}.").into()
            }
            Self::UnknownModel { model: Some(model) } => {
                format!("The model `{}` does not exist. GET /v1/models lists the models.", echo(model)).into()
            }
            // Claude Code makes room by itself when it reads this beginning.
            Self::ContextTooLong { tokens, window } if surface == Surface::Messages => {
                format!("prompt is too long: about {tokens} tokens > {window} maximum").into()
            }
            Self::ContextTooLong { tokens, window } => format!(
                "This model's maximum context length is {window} tokens. However, your messages resulted in about \
                 {tokens} tokens. Please reduce the length of the messages."
            )
            .into(),
            Self::MethodNotAllowed { allow } => {
                format!("This path does not take this method, but {allow}.").into()
            }
            Self::BodyTooLarge { limit } => format!("The request body is longer than {limit} bytes.").into(),
            Self::UnsupportedEncoding => format!(
                "The content coding of the request body is not supported. Send it plain, or with one of: {}.",
                coding::UNDERSTOOD
            )
            .into(),
            Self::BadCoding { coding, detail } => {
                format!("The request body is not valid {coding}, its content coding: {detail}.").into()
            }
            Self::BodyExpands { coding } => format!(
                "The request body becomes more than {} times as long without its content coding, {coding}.",
                coding::RATIO_MAX
            )
            .into(),
            Self::ProviderStatus { status } => {
                format!("The provider of the model refused the request with status {status}.").into()
            }
            Self::Provider { error, .. } => provider(error, surface),
            Self::ProviderRefused { words } => {
                format!("The provider of the model does not take the request: {}", one_line(words)).into()
            }
            Self::SchemaMismatch { words } => format!(
                "The answer of the model does not keep the JSON Schema that was asked for: {}",
                one_line(words)
            )
            .into(),
            other => other.fixed_message().into(),
        }
    }

    const fn fixed_message(&self) -> &'static str {
        match self {
            Self::Unauthorized => {
                "The API key is missing or not valid. Send it as `Authorization: Bearer KEY` or as `x-api-key: KEY`."
            }
            Self::Revoked => "The API key was revoked.",
            Self::UnknownModel { .. } => "The model does not exist. GET /v1/models lists the models.",
            Self::UnknownPath => {
                "There is nothing at this path. There are /v1/chat/completions, /v1/responses, /v1/messages and /v1/models."
            }
            Self::NotStored => {
                "Responses are not stored here, so there is none to look at, to cancel or to compact. POST /v1/responses \
                 creates one; send the whole conversation in `input`."
            }
            Self::RequestTimeout => "The request did not arrive in time.",
            Self::ExpectationFailed => "The only expectation that is met is 100-continue.",
            Self::HeadTooLarge => "The head of the request is too large.",
            Self::QueueFull => "Too many requests are waiting. Try again in a moment.",
            Self::QueueTimeout => {
                "No provider of the model was connected and free in time. Try again in a moment."
            }
            Self::Unservable => "No provider of the model supports this kind of request.",
            Self::Busy => "The provider of the model is busy. Try again in a moment.",
            Self::NoNode => "No node that serves the model is connected. Try again in a moment.",
            Self::NoBodyRoom => "Too many large requests are waiting. Try again in a moment.",
            Self::Draining => "The gateway is about to stop. Try again in a moment.",
            Self::NodeLost => "The connection to the machine that ran the request was lost.",
            Self::UpstreamConnect => "The provider of the model cannot be reached.",
            Self::UpstreamProtocol => "The provider of the model gave no valid answer.",
            Self::UpstreamTruncated => "The provider of the model broke off its answer.",
            Self::UpstreamCredential => "The provider of the model refused the gateway's credential.",
            Self::AnswerTooLong => {
                "The answer of the model is too long to be given in one piece. Ask for a stream."
            }
            Self::Repetition => "The answer of the model went round in circles and was stopped.",
            Self::Deadline => "The request took longer than its time limit.",
            Self::Stalled => "The provider of the model stopped answering.",
            Self::Cancelled => "The request was cancelled by the gateway.",
            // The arms above this one that carry a value have their message in `message`.
            _ => "The gateway failed to handle the request.",
        }
    }
}

fn provider(error: &ProviderError, surface: Surface) -> Cow<'static, str> {
    let words = one_line(&error.words);
    match (error.kind, error.status) {
        (ProviderErrorKind::ContextTooLong, _) if surface == Surface::Messages => {
            format!("prompt is too long: {words}").into()
        }
        (_, 401 | 403 | 407) => "The provider of the model refused the credential.".into(),
        (_, 400..=499) => format!("The provider of the model does not take the request: {words}").into(),
        _ => format!("The provider of the model failed: {words}").into(),
    }
}

/// A client's own text, short enough to be told back.
fn echo(text: &str) -> String {
    let mut shown: String = text.chars().take(ECHO_CHARS_MAX).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    shown
}

/// A backend's text, as it may stand in a message.
fn one_line(text: &str) -> String {
    let mut shown = String::new();
    for word in
        text.split(|char: char| char.is_whitespace() || char.is_control()).filter(|word| !word.is_empty())
    {
        if !shown.is_empty() {
            shown.push(' ');
        }
        shown.push_str(word);
    }
    if shown.is_empty() { "it says no reason.".to_owned() } else { shown }
}
