//! Checks of the configuration that an Edge hands to a Node.

use alloc::{collections::BTreeSet, vec::Vec};

use super::{Check, FieldError, count, headers, text, timeout};
use crate::{
    limits::*,
    message::{
        AdapterConfig, AdapterSettings, CliConfig, NodeConfigPayload, OllamaConfig, OpenAiCompatConfig,
        ProtocolProfile, ProviderConfig,
    },
};

/// Bounds, timeouts and unique identities. Whether a provider's adapter exists is for the Node to judge: it serves the rest.
pub(super) fn payload(config: &NodeConfigPayload) -> Check {
    count("config.adapters", config.adapters.len(), ADAPTERS_MAX)?;
    count("config.providers", config.providers.len(), PROVIDERS_MAX)?;
    config.adapters.iter().try_for_each(adapter)?;
    config.providers.iter().try_for_each(provider)?;
    // An empty name is the legacy single instance of its type (CFG-12): one for each type.
    let (legacy, named): (Vec<&AdapterConfig>, Vec<&AdapterConfig>) =
        config.adapters.iter().partition(|adapter| adapter.name.is_empty());
    unique("config.adapters.name", named.iter().map(|adapter| adapter.name.as_str()))?;
    unique("config.adapters.name", legacy.iter().map(|adapter| adapter.settings.type_name()))?;
    unique("config.providers.id", config.providers.iter().map(|provider| provider.id.as_str()))
}

fn unique<'a>(field: &'static str, mut ids: impl Iterator<Item = &'a str>) -> Check {
    let mut seen = BTreeSet::new();
    if ids.all(|id| seen.insert(id)) { Ok(()) } else { Err(FieldError::Duplicate { field }) }
}

fn adapter(adapter: &AdapterConfig) -> Check {
    text("config.adapters.name", &adapter.name, ID_BYTES_MAX)?;
    match &adapter.settings {
        AdapterSettings::OpenAiCompat(settings) => openai_compat(settings),
        AdapterSettings::Ollama(OllamaConfig { base_url, context_size: _ }) => {
            text("ollama.base_url", base_url, URL_BYTES_MAX)
        }
        AdapterSettings::Cli(settings) => cli(settings),
        AdapterSettings::Unknown(kind) => text("config.adapters.type", kind, ID_BYTES_MAX),
    }
}

fn openai_compat(settings: &OpenAiCompatConfig) -> Check {
    text("openai_compat.provider_label", &settings.provider_label, ID_BYTES_MAX)?;
    profile(&settings.profile)?;
    headers(&settings.headers)
}

fn profile(profile: &ProtocolProfile) -> Check {
    text("protocol_profile.id", &profile.id, ID_BYTES_MAX)?;
    text("protocol_profile.driver", &profile.driver, ID_BYTES_MAX)?;
    text("protocol_profile.base_url", &profile.base_url, URL_BYTES_MAX)?;
    count("protocol_profile.operations", profile.operations.len(), OPERATIONS_MAX)?;
    count("protocol_profile.capabilities", profile.capabilities.len(), CAPABILITIES_MAX)?;
    for operation in &profile.operations {
        text("protocol_profile.operations.method", &operation.method, ID_BYTES_MAX)?;
        text("protocol_profile.operations.url", &operation.url, URL_BYTES_MAX)?;
    }
    let operations = profile.operations.iter().map(|operation| operation.operation.as_str());
    unique("protocol_profile.operations.operation", operations)?;
    profile
        .capabilities
        .iter()
        .try_for_each(|capability| text("protocol_profile.capabilities", capability, ID_BYTES_MAX))
}

fn cli(settings: &CliConfig) -> Check {
    text("cli.command", &settings.command, CLI_BYTES_MAX)?;
    text("cli.mode", &settings.mode, ID_BYTES_MAX)?;
    text("cli.output_format", &settings.output_format, ID_BYTES_MAX)?;
    count("cli.args", settings.args.len(), CLI_ARGS_MAX)?;
    count("cli.env", settings.env.len(), CLI_ENV_MAX)?;
    settings.args.iter().try_for_each(|argument| text("cli.args", argument, CLI_BYTES_MAX))?;
    settings.env.iter().try_for_each(|(key, value)| {
        text("cli.env", key, CLI_BYTES_MAX).and(text("cli.env", value, CLI_BYTES_MAX))
    })
}

fn provider(provider: &ProviderConfig) -> Check {
    if provider.id.is_empty() {
        return Err(FieldError::Missing { field: "config.providers.id" });
    }
    text("config.providers.id", &provider.id, ID_BYTES_MAX)?;
    text("config.providers.adapter", &provider.adapter, ID_BYTES_MAX)?;
    text("config.providers.category", &provider.category, ID_BYTES_MAX)?;
    count("config.providers.models", provider.models.len(), MODELS_MAX)?;
    provider.models.iter().try_for_each(|model| text("config.providers.models", model, TARGET_BYTES_MAX))?;
    timeout("config.providers.response_stall_timeout_ms", provider.response_stall_timeout_ms)?;
    timeout("config.providers.request_timeout_ms", provider.request_timeout_ms)?;
    text("config.providers.health.path", &provider.health.path, URL_BYTES_MAX)
}
