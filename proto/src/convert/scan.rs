//! Counts the repeated fields of a frame before anything is allocated for them.
//!
//! Two bytes of a frame can ask for an empty list element of several hundred bytes, so a frame within its bound could
//! still take gigabytes. The scan walks only down to the lists, skips everything else and allocates nothing.
//!
//! A message-typed field that leads to a list may stand once: protobuf would merge several of them, and their lists with
//! them. Our encoder writes each once.

use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};

use super::DecodeError;
use crate::{limits::*, validate::FieldError};

/// Messages of the schema that hold a list, directly or further down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    Envelope,
    RegisterResponse,
    RefreshRequest,
    RefreshResponse,
    RunRequest,
    RunEvent,
    TunnelRequest,
    TunnelFrame,
    CommandRequest,
    CommandResponse,
    Config,
    Adapter,
    OpenAiCompat,
    Cli,
    Profile,
    Provider,
    Failure,
}

/// What is known about one field.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rule {
    /// Its place among the rules of its message, below [`RULES_MAX`].
    pub(super) slot: usize,
    /// How often it may stand.
    pub(super) max: usize,
    /// For the error.
    pub(super) field: &'static str,
    /// What to look for inside.
    pub(super) inside: Option<Shape>,
}

/// Most rules that one message has.
const RULES_MAX: usize = 9;

impl Shape {
    /// The rule of a field, if it is a list or leads to one.
    pub(super) const fn rule(self, number: u32) -> Option<Rule> {
        Some(match (self, number) {
            (Self::Envelope, 10) => once(0, "provider_tunnel_frame", Self::TunnelFrame),
            (Self::Envelope, 9) => once(1, "provider_tunnel_request", Self::TunnelRequest),
            (Self::Envelope, 8) => once(2, "run_event", Self::RunEvent),
            (Self::Envelope, 7) => once(3, "run_request", Self::RunRequest),
            (Self::Envelope, 2) => once(4, "register_response", Self::RegisterResponse),
            (Self::Envelope, 5) => once(5, "node_config_refresh_request", Self::RefreshRequest),
            (Self::Envelope, 6) => once(6, "node_config_refresh_response", Self::RefreshResponse),
            (Self::Envelope, 13) => once(7, "node_command_request", Self::CommandRequest),
            (Self::Envelope, 14) => once(8, "node_command_response", Self::CommandResponse),
            (Self::RegisterResponse, 4) | (Self::RefreshRequest, 2) => once(0, "config", Self::Config),
            (Self::RefreshResponse, 5) => list(0, "pieces", REFRESH_PIECES_MAX),
            (Self::RunRequest, 7) => list(0, "metadata", METADATA_PAIRS_MAX),
            (Self::RunEvent, 9) => list(0, "metadata", METADATA_PAIRS_MAX),
            (Self::RunEvent, 13) | (Self::TunnelFrame, 15) => once(2, "failure", Self::Failure),
            (Self::TunnelRequest, 7) | (Self::TunnelFrame, 6) => list(0, "headers", HEADERS_MAX),
            (Self::TunnelRequest, 12) => list(1, "metadata", METADATA_PAIRS_MAX),
            (Self::TunnelFrame, 10) => list(1, "metadata", METADATA_PAIRS_MAX),
            (Self::Failure, 3) => list(0, "failure.metadata", METADATA_PAIRS_MAX),
            (Self::CommandRequest, 5) => list(0, "arguments", METADATA_PAIRS_MAX),
            (Self::CommandResponse, 4) => list(0, "result", RESULT_PAIRS_MAX),
            (Self::Config, 3) => lists(0, "config.adapters", ADAPTERS_MAX, Self::Adapter),
            (Self::Config, 4) => lists(1, "config.providers", PROVIDERS_MAX, Self::Provider),
            (Self::Adapter, 10) => once(0, "openai_compat", Self::OpenAiCompat),
            (Self::Adapter, 12) => once(1, "cli", Self::Cli),
            (Self::OpenAiCompat, 2) => once(0, "protocol_profile", Self::Profile),
            (Self::OpenAiCompat, 3) => list(1, "headers", HEADERS_MAX),
            (Self::Profile, 4) => list(0, "protocol_profile.operations", OPERATIONS_MAX),
            (Self::Profile, 5) => list(1, "protocol_profile.capabilities", CAPABILITIES_MAX),
            (Self::Cli, 2) => list(0, "cli.args", CLI_ARGS_MAX),
            (Self::Cli, 3) => list(1, "cli.env", CLI_ENV_MAX),
            (Self::Provider, 4) => list(0, "config.providers.models", MODELS_MAX),
            _ => return None,
        })
    }
}

const fn list(slot: usize, field: &'static str, max: usize) -> Rule {
    Rule { slot, max, field, inside: None }
}

const fn lists(slot: usize, field: &'static str, max: usize, inside: Shape) -> Rule {
    Rule { slot, max, field, inside: Some(inside) }
}

const fn once(slot: usize, field: &'static str, inside: Shape) -> Rule {
    lists(slot, field, 1, inside)
}

/// Whether no list of the envelope is longer than its bound.
pub(super) fn check(frame: &[u8]) -> Result<(), DecodeError> {
    scan(frame, Shape::Envelope)
}

/// One message. The shapes form a tree, so the recursion is at most as deep as the schema.
fn scan(mut rest: &[u8], shape: Shape) -> Result<(), DecodeError> {
    let mut counts = [0_usize; RULES_MAX];
    while !rest.is_empty() {
        let (number, wire_type) = decode_key(&mut rest)?;
        let field = rest;
        // prost's own walk, so that both agree about where a field ends.
        skip_field(wire_type, number, &mut rest, DecodeContext::default())?;
        let Some(rule) = shape.rule(number).filter(|_| wire_type == WireType::LengthDelimited) else {
            continue;
        };
        if let Some(count) = counts.get_mut(rule.slot) {
            *count += 1;
            if *count > rule.max {
                return Err(FieldError::TooMany { field: rule.field, max: rule.max }.into());
            }
        }
        if let Some(inside) = rule.inside {
            scan(content(field, rest)?, inside)?;
        }
    }
    Ok(())
}

/// The bytes of a length-delimited field, given everything from its length on and everything after it.
fn content<'a>(mut field: &'a [u8], after: &[u8]) -> Result<&'a [u8], DecodeError> {
    decode_varint(&mut field)?;
    Ok(field.get(..field.len() - after.len()).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::{format, string::String, vec, vec::Vec};

    use prost_types::{DescriptorProto, FieldDescriptorProto, field_descriptor_proto::Label};

    use super::{RULES_MAX, Shape};

    const SHAPES: [(&str, Shape); 17] = [
        ("Envelope", Shape::Envelope),
        ("RegisterResponse", Shape::RegisterResponse),
        ("NodeConfigRefreshRequest", Shape::RefreshRequest),
        ("NodeConfigRefreshResponse", Shape::RefreshResponse),
        ("RunRequest", Shape::RunRequest),
        ("RunEvent", Shape::RunEvent),
        ("ProviderTunnelRequest", Shape::TunnelRequest),
        ("ProviderTunnelFrame", Shape::TunnelFrame),
        ("NodeCommandRequest", Shape::CommandRequest),
        ("NodeCommandResponse", Shape::CommandResponse),
        ("NodeConfigPayload", Shape::Config),
        ("AdapterConfig", Shape::Adapter),
        ("OpenAICompatAdapterConfig", Shape::OpenAiCompat),
        ("CliAdapterConfig", Shape::Cli),
        ("ProtocolProfile", Shape::Profile),
        ("ProviderConfig", Shape::Provider),
        ("ExecutionFailure", Shape::Failure),
    ];

    fn is_list(field: &FieldDescriptorProto) -> bool {
        field.label() == Label::Repeated
    }

    fn leads_to_list(messages: &[DescriptorProto], name: &str) -> bool {
        let Some(message) = messages.iter().find(|message| message.name() == name) else { return false };
        message.field.iter().any(|field| is_list(field) || leads_to_list(messages, type_of(field)))
    }

    fn type_of(field: &FieldDescriptorProto) -> &str {
        field.type_name().rsplit('.').next().unwrap_or_default()
    }

    fn shape_of(name: &str) -> Option<Shape> {
        SHAPES.iter().find(|(message, _)| *message == name).map(|(_, shape)| *shape)
    }

    #[test]
    fn every_list_of_the_schema_has_a_bound() {
        let schema = concat!(env!("CARGO_MANIFEST_DIR"), "/schema");
        let files = protox::compile([format!("{schema}/runtime.proto")], [schema]).unwrap();
        let messages = &files.file[0].message_type;
        for message in messages {
            let needed: Vec<&FieldDescriptorProto> = message
                .field
                .iter()
                .filter(|field| is_list(field) || leads_to_list(messages, type_of(field)))
                .collect();
            let Some(shape) = shape_of(message.name()) else {
                assert!(needed.is_empty(), "{} holds a list and has no shape in scan.rs", message.name());
                continue;
            };
            let mut slots: Vec<usize> = vec![];
            for field in needed {
                let path = format!("{}.{}", message.name(), field.name());
                let number = u32::try_from(field.number()).unwrap();
                let rule = shape.rule(number).unwrap_or_else(|| panic!("{path} has no rule in scan.rs"));
                assert!(rule.slot < RULES_MAX && !slots.contains(&rule.slot), "{path} shares a slot");
                slots.push(rule.slot);
                assert_eq!(rule.max == 1, !is_list(field), "{path}");
                let last: String = rule.field.rsplit('.').next().unwrap_or_default().into();
                assert_eq!(last, field.name(), "{path} is named differently in scan.rs");
                let inside =
                    Some(type_of(field)).filter(|name| leads_to_list(messages, name)).and_then(shape_of);
                assert_eq!(rule.inside, inside, "{path}");
            }
        }
    }
}
