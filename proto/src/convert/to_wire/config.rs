//! The configuration that an Edge hands to a Node.

use alloc::string::{String, ToString as _};

use super::headers;
use crate::{
    message::{
        AdapterConfig, AdapterSettings, CliConfig, HealthCheck, NodeConfigPayload, OllamaConfig,
        OpenAiCompatConfig, ProtocolProfile, ProviderConfig,
    },
    wire::{self, adapter_config::Settings},
};

pub(super) fn payload(config: &NodeConfigPayload) -> wire::NodeConfigPayload {
    wire::NodeConfigPayload {
        config_generation: config.config_generation,
        runtime: Some(wire::NodeRuntimeConfig { concurrency: config.concurrency }),
        adapters: config.adapters.iter().map(adapter).collect(),
        providers: config.providers.iter().map(provider).collect(),
    }
}

fn adapter(adapter: &AdapterConfig) -> wire::AdapterConfig {
    let settings = match &adapter.settings {
        AdapterSettings::OpenAiCompat(config) => Some(Settings::OpenaiCompat(openai_compat(config))),
        AdapterSettings::Ollama(OllamaConfig { base_url, context_size }) => {
            let (base_url, context_size) = (base_url.clone(), *context_size);
            Some(Settings::Ollama(wire::OllamaAdapterConfig { base_url, context_size }))
        }
        AdapterSettings::Cli(config) => Some(Settings::Cli(cli(config))),
        AdapterSettings::Unknown(_) => None,
    };
    wire::AdapterConfig {
        name: adapter.name.clone(),
        r#type: String::from(adapter.settings.type_name()),
        enabled: adapter.enabled,
        capacity: adapter.capacity,
        settings,
    }
}

fn openai_compat(config: &OpenAiCompatConfig) -> wire::OpenAiCompatAdapterConfig {
    wire::OpenAiCompatAdapterConfig {
        provider_label: config.provider_label.clone(),
        protocol_profile: Some(profile(&config.profile)),
        headers: headers(&config.headers),
    }
}

fn profile(profile: &ProtocolProfile) -> wire::ProtocolProfile {
    let operations = profile.operations.iter().map(|operation| wire::ProfileOperation {
        operation: operation.operation.to_string(),
        method: operation.method.clone(),
        url: operation.url.clone(),
    });
    wire::ProtocolProfile {
        id: profile.id.clone(),
        driver: profile.driver.clone(),
        base_url: profile.base_url.clone(),
        operations: operations.collect(),
        capabilities: profile.capabilities.clone(),
    }
}

fn cli(config: &CliConfig) -> wire::CliAdapterConfig {
    let CliConfig { command, args, env, mode, output_format } = config.clone();
    wire::CliAdapterConfig { command, args, env, mode, output_format }
}

fn provider(provider: &ProviderConfig) -> wire::ProviderConfig {
    wire::ProviderConfig {
        id: provider.id.clone(),
        adapter: provider.adapter.clone(),
        category: provider.category.clone(),
        models: provider.models.clone(),
        enabled: provider.enabled,
        capacity: provider.capacity,
        response_stall_timeout_ms: provider.response_stall_timeout_ms,
        request_timeout_ms: provider.request_timeout_ms,
        health: health(&provider.health),
    }
}

/// Nothing where there is nothing to say.
fn health(health: &HealthCheck) -> Option<wire::ProviderHealthCheck> {
    let HealthCheck { path, generation } = health;
    (*health != HealthCheck::default())
        .then(|| wire::ProviderHealthCheck { http_target: path.clone(), generate: *generation })
}
