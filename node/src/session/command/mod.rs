//! The Edge's queries (CMD-1): a closed set, read-only, and never mixed with execution. They take no place at a gate, carry nothing
//! of a client, and change nothing.
//!
//! | Module | Owns | Pure |
//! |---|---|---|
//! | here | which command it is, and what its answer holds | yes |
//! | [`ollama`] | the four calls of the Ollama API that may be made | yes |
//! | `desk` | carrying commands out beside each other | no |

pub(super) mod desk;
pub mod ollama;

use std::collections::BTreeMap;

use proto::{
    limits::{METADATA_KEY_BYTES_MAX, RESULT_PAIRS_MAX},
    message::NodeCommandRequest,
};

use crate::{
    adapters::{Adapter, Lifecycle},
    health::ProviderHealth,
};
use ollama::Call;

/// What an answer holds.
pub type Fields = BTreeMap<String, String>;

/// A command of the closed set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Whether the adapter's provider serves the target (CAP-1).
    Capabilities,
    /// The Node's own state, and that of its providers.
    Transport,
    /// One call of a provider's Ollama API.
    Ollama(Call),
}

/// Reads a command.
///
/// # Errors
/// What is wrong with it, in words for people. Nothing of it was done.
pub fn read(request: &NodeCommandRequest) -> Result<Command, String> {
    if request.credential.is_some() {
        return Err("managed credentials are not available in this release".to_owned());
    }
    match request.command.as_str() {
        "capabilities" if request.target.is_empty() => Err("capabilities needs a target".to_owned()),
        "capabilities" => Ok(Command::Capabilities),
        "transport" => Ok(Command::Transport),
        "ollama" => Call::read(&request.arguments, &request.target).map(Command::Ollama),
        _ => Err("unknown command; known are capabilities, transport, ollama".to_owned()),
    }
}

/// What `capabilities` answers to a question about `asked` and `target`: the four that count (CAP-1), and which instance was meant,
/// for people. Nothing that the provider said.
#[must_use]
pub fn capabilities(
    asked: &str,
    target: &str,
    adapter: &Adapter,
    health: ProviderHealth,
    sequence: Option<u64>,
) -> Fields {
    let mut fields = fields([
        ("adapter_key", asked.to_owned()),
        ("target", target.to_owned()),
        ("provider_status", health.as_str().to_owned()),
        ("adapter", adapter.type_name.clone()),
        ("instance_key", adapter.name.clone()),
    ]);
    if let Some(sequence) = sequence {
        fields.insert("health_observation_seq".to_owned(), sequence.to_string());
    }
    fields
}

/// What the `transport` command tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransportStatus {
    /// Executions that have not ended.
    pub runs: usize,
    /// Adapter instances that can be used.
    pub adapters_usable: usize,
    /// All adapter instances.
    pub adapters: usize,
    /// Generation of the configuration in force.
    pub config_generation: u64,
    /// The Node takes no new work.
    pub draining: bool,
}

/// Before the id of a provider, in the key of its status.
const PROVIDER: &str = "provider.";

/// What `transport` answers. Providers that do not fit the answer are counted in `providers_left_out`.
#[must_use]
pub fn transport<'a>(
    status: TransportStatus,
    providers: impl ExactSizeIterator<Item = (&'a str, Lifecycle)>,
) -> Fields {
    let state = if status.draining { "draining" } else { "ready" };
    let all = providers.len();
    let mut fields = fields([
        ("status", state.to_owned()),
        ("version", env!("CARGO_PKG_VERSION").to_owned()),
        ("runs_in_flight", status.runs.to_string()),
        ("adapters", status.adapters.to_string()),
        ("adapters_usable", status.adapters_usable.to_string()),
        ("config_generation", status.config_generation.to_string()),
        ("providers", all.to_string()),
    ]);
    let room = RESULT_PAIRS_MAX - fields.len() - 1;
    let mut shown = 0;
    for (id, lifecycle) in providers {
        if shown < room && PROVIDER.len() + id.len() <= METADATA_KEY_BYTES_MAX {
            fields.insert(format!("{PROVIDER}{id}"), lifecycle.as_str().to_owned());
            shown += 1;
        }
    }
    if shown < all {
        fields.insert("providers_left_out".to_owned(), (all - shown).to_string());
    }
    fields
}

fn fields<const N: usize>(pairs: [(&str, String); N]) -> Fields {
    pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use proto::message::{
        AdapterConfig, AdapterSettings, Credential, CredentialLease, CredentialLeaseBinding, Message,
        NodeCommandResponse, NodeConfigPayload, OpenAiCompatConfig,
    };

    use super::*;
    use crate::adapters::AdapterSet;

    fn request(command: &str) -> NodeCommandRequest {
        NodeCommandRequest {
            request_id: 9,
            command: command.to_owned(),
            adapter: "vllm".to_owned(),
            target: "qwen3".to_owned(),
            arguments: BTreeMap::new(),
            credential: None,
        }
    }

    // req: CMD-1
    #[test]
    fn anything_outside_the_closed_set_is_refused() {
        assert_eq!(read(&request("capabilities")), Ok(Command::Capabilities));
        assert_eq!(read(&request("transport")), Ok(Command::Transport));
        for command in ["shell", "", "Transport", "capabilities ", "usage_status", "sessions"] {
            assert!(read(&request(command)).unwrap_err().contains("unknown command"), "{command}");
        }
        let aimless = NodeCommandRequest { target: String::new(), ..request("capabilities") };
        assert!(read(&aimless).unwrap_err().contains("needs a target"));
        let (lease, binding) = (CredentialLease::default(), CredentialLeaseBinding::default());
        let managed = Some(Credential { lease, binding });
        let managed = NodeCommandRequest { credential: managed, ..request("capabilities") };
        assert!(read(&managed).unwrap_err().contains("managed credentials"));
    }

    fn adapter() -> Rc<Adapter> {
        let adapters = vec![AdapterConfig {
            name: "vllm-1".to_owned(),
            enabled: true,
            capacity: 1,
            settings: AdapterSettings::OpenAiCompat(OpenAiCompatConfig::default()),
        }];
        let config = NodeConfigPayload { adapters, ..NodeConfigPayload::default() };
        AdapterSet::build(&config).unwrap().find("vllm-1").unwrap()
    }

    // req: CAP-1
    #[test]
    fn capabilities_answers_with_what_was_asked_what_was_found_and_its_number() {
        let told = capabilities("openai_compat", "qwen3", &adapter(), ProviderHealth::Unavailable, Some(7));
        let pairs: Vec<_> = told.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        let expected = [
            ("adapter", "openai_compat"),
            ("adapter_key", "openai_compat"),
            ("health_observation_seq", "7"),
            ("instance_key", "vllm-1"),
            ("provider_status", "unavailable"),
            ("target", "qwen3"),
        ];
        assert_eq!(pairs, expected);
        let unbound = capabilities("vllm-1", "qwen3", &adapter(), ProviderHealth::Available, None);
        assert!(!unbound.contains_key("health_observation_seq"));
    }

    // req: CMD-1
    #[test]
    fn transport_tells_the_state_of_each_provider_and_fits_the_wire_however_many_there_are() {
        let status = TransportStatus {
            runs: 2,
            adapters_usable: 1,
            adapters: 2,
            config_generation: 5,
            draining: false,
        };
        let some = [("a", Lifecycle::Ready), ("b", Lifecycle::Disabled), ("c", Lifecycle::Unusable)];
        let told = transport(status, some.into_iter());
        assert_eq!((told["status"].as_str(), told["runs_in_flight"].as_str()), ("ready", "2"));
        assert_eq!((told["provider.a"].as_str(), told["provider.b"].as_str()), ("ready", "disabled"));
        assert_eq!((told["provider.c"].as_str(), told["providers"].as_str()), ("unusable", "3"));
        assert!(!told.contains_key("providers_left_out"));
        let ids: Vec<_> = (0..4096).map(|number| format!("{number:0>256}")).collect();
        for ids in [&ids[..], &["x".repeat(200), "y".repeat(256)]] {
            let all: Vec<_> = ids.iter().map(|id| (id.as_str(), Lifecycle::Missing)).collect();
            let told = transport(TransportStatus { draining: true, ..status }, all.into_iter());
            assert_eq!(told["status"], "draining");
            assert_ne!(told["providers_left_out"], "0");
            let answer = NodeCommandResponse { request_id: 1, result: Ok(told) };
            assert_eq!(Message::NodeCommandResponse(answer).validate(), Ok(()));
        }
    }
}
