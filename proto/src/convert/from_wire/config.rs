//! The configuration that an Edge hands to a Node.

use alloc::vec::Vec;

use bytes::Bytes;

use crate::{
    message::{
        AdapterConfig, AdapterSettings, CliConfig, Header, HealthCheck, NodeConfigPayload, OllamaConfig,
        OpenAiCompatConfig, Operation, ProfileOperation, ProtocolProfile, ProviderConfig,
    },
    validate::FieldError,
    wire::{self, adapter_config::Settings},
};

pub(super) fn payload(wire: Option<wire::NodeConfigPayload>) -> Result<NodeConfigPayload, FieldError> {
    let wire = wire.ok_or(FieldError::Missing { field: "config" })?;
    let wire::NodeConfigPayload { config_generation, runtime, adapters, providers } = wire;
    Ok(NodeConfigPayload {
        config_generation,
        concurrency: runtime.unwrap_or_default().concurrency,
        adapters: adapters.into_iter().map(adapter).collect::<Result<_, _>>()?,
        providers: providers.into_iter().map(provider).collect(),
    })
}

fn adapter(wire: wire::AdapterConfig) -> Result<AdapterConfig, FieldError> {
    let wire::AdapterConfig { name, r#type: kind, enabled, capacity, settings } = wire;
    let settings = match (kind.as_str(), settings) {
        ("openai_compat" | "vllm", Some(Settings::OpenaiCompat(wire))) => {
            AdapterSettings::OpenAiCompat(openai_compat(wire))
        }
        ("ollama", Some(Settings::Ollama(wire::OllamaAdapterConfig { base_url, context_size }))) => {
            AdapterSettings::Ollama(OllamaConfig { base_url, context_size })
        }
        ("cli", Some(Settings::Cli(wire::CliAdapterConfig { command, args, env, mode, output_format }))) => {
            AdapterSettings::Cli(CliConfig { command, args, env, mode, output_format })
        }
        ("openai_compat" | "vllm" | "ollama" | "cli" | "", _) => return Err(FieldError::AdapterSettings),
        (_, _) => AdapterSettings::Unknown(kind),
    };
    Ok(AdapterConfig { name, enabled, capacity, settings })
}

fn openai_compat(wire: wire::OpenAiCompatAdapterConfig) -> OpenAiCompatConfig {
    let wire::OpenAiCompatAdapterConfig { provider_label, protocol_profile, headers } = wire;
    OpenAiCompatConfig {
        provider_label,
        profile: profile(protocol_profile.unwrap_or_default()),
        headers: headers.into_iter().map(static_header).collect(),
    }
}

/// Copies the value: it lives as long as the configuration and must not hold on to the memory of a whole frame.
fn static_header(wire: wire::Header) -> Header {
    Header { name: wire.name, value: Bytes::copy_from_slice(&wire.value) }
}

/// An operation that this build does not know is left out, so that a newer Edge can offer more to newer Nodes.
fn profile(wire: wire::ProtocolProfile) -> ProtocolProfile {
    let wire::ProtocolProfile { id, driver, base_url, operations, capabilities } = wire;
    let operations: Vec<ProfileOperation> = operations
        .into_iter()
        .filter_map(|wire::ProfileOperation { operation, method, url }| {
            let operation = operation.parse::<Operation>().ok()?;
            Some(ProfileOperation { operation, method, url })
        })
        .collect();
    ProtocolProfile { id, driver, base_url, operations, capabilities }
}

fn provider(wire: wire::ProviderConfig) -> ProviderConfig {
    ProviderConfig {
        id: wire.id,
        adapter: wire.adapter,
        category: wire.category,
        models: wire.models,
        enabled: wire.enabled,
        capacity: wire.capacity,
        response_stall_timeout_ms: wire.response_stall_timeout_ms,
        request_timeout_ms: wire.request_timeout_ms,
        health: health(wire.health.unwrap_or_default()),
    }
}

fn health(
    wire::ProviderHealthCheck { http_target: path, generate: generation }: wire::ProviderHealthCheck,
) -> HealthCheck {
    HealthCheck { path, generation }
}
