//! The adapter instances of the configuration in force.
//!
//! An instance that cannot be used, because its type is unknown here or its profile cannot be called, is kept with its
//! reason: requests for it are refused with that reason, and all others are served.

pub mod addresses;
pub mod cli;
pub mod native;
pub mod ollama;
pub mod openai_compat;

use std::{cell::Cell, collections::HashMap, net::SocketAddr, rc::Rc, sync::Arc};

use dataplane::{
    http::{
        client::Tls,
        pool::{Key, Pool, PoolLimits},
    },
    shard::task_stats,
};
use proto::message::{AdapterConfig, AdapterSettings, NodeConfigPayload};
use rustls::ClientConfig;
use thiserror::Error;

use crate::{
    gate::Gate,
    health::{Probes, question::Checks},
    metrics::Metrics,
};
use addresses::AddressBook;
use cli::Cli;
use ollama::Ollama;
use openai_compat::{
    OpenAiCompat,
    endpoint::{Origin, Scheme},
};

/// What runs need to reach providers, shared by everything on a shard.
#[derive(Debug)]
pub struct Provider {
    /// Where they are.
    pub addresses: AddressBook,
    /// Connections to them.
    pub pool: Pool,
    /// Those of probes.
    pub probes: Probes,
    /// How those of them that are called by https are judged.
    pub tls: Arc<ClientConfig>,
    /// Counters.
    pub metrics: Rc<Metrics>,
}

impl Provider {
    /// With no connection yet.
    #[must_use]
    pub fn new(addresses: AddressBook, tls: Arc<ClientConfig>, metrics: Rc<Metrics>) -> Self {
        let (pool, probes) = (Pool::new(PoolLimits::default()), Probes::default());
        Self { addresses, pool, probes, tls, metrics }
    }

    /// Which connections a request to `origin` with this `Host` and this [credential](openai_compat::credentials) may use, at one of
    /// the origin's addresses.
    #[must_use]
    pub fn key(&self, origin: &Origin, authority: &Rc<str>, address: SocketAddr, credential: u64) -> Key {
        let tls = match &origin.scheme {
            Scheme::Http => None,
            Scheme::Https(name) => Some(Tls { config: Arc::clone(&self.tls), name: Rc::clone(name) }),
        };
        Key { address, authority: Rc::clone(authority), credential, tls }
    }

    /// The Node's metrics, with those that only the pool knows.
    #[must_use]
    pub fn metrics_text(&self) -> String {
        let stats = self.pool.stats();
        let open = stats.open + self.probes.open();
        self.metrics.provider_connections.set(i64::try_from(open).unwrap_or(i64::MAX));
        let (programs, killed) = cli::process::counts();
        self.metrics.programs.set(i64::try_from(programs).unwrap_or(i64::MAX));
        for (shown, counted) in [
            (&self.metrics.programs_killed, killed),
            (&self.metrics.provider_reads, stats.reads),
            (&self.metrics.provider_read_bytes, stats.read_bytes),
        ] {
            shown.inc_by(counted.saturating_sub(shown.get()));
        }
        self.metrics.observe_tasks(&task_stats());
        self.metrics.text()
    }

    /// Resolves what a new configuration may dial.
    pub async fn prepare(&self, origins: &[Origin]) {
        self.addresses.prepare(origins).await;
    }
}

/// One adapter instance.
#[derive(Debug)]
pub struct Adapter {
    /// The name of the instance.
    pub name: String,
    /// The name of its type.
    pub type_name: String,
    enabled: Cell<bool>,
    /// Its capacity gate, shared by runs and tunnels (GAT-1).
    pub gate: Gate,
    /// What probes look at, for each of its providers.
    pub checks: Vec<Checks>,
    /// What it does.
    pub kind: Kind,
}

/// Adapter kinds.
#[derive(Debug)]
pub enum Kind {
    /// Byte-exact tunnels.
    OpenAiCompat(OpenAiCompat),
    /// Normalized runs against Ollama's own API.
    Ollama(Ollama),
    /// Normalized runs by a configured program.
    Cli(Cli),
    /// Nothing, and why.
    Unusable(String),
}

impl Adapter {
    fn new(config: &AdapterConfig, checks: Vec<Checks>) -> Self {
        let kind = match &config.settings {
            AdapterSettings::OpenAiCompat(settings) => match OpenAiCompat::new(settings) {
                Ok(adapter) => Kind::OpenAiCompat(adapter),
                Err(error) => Kind::Unusable(error.to_string()),
            },
            AdapterSettings::Ollama(settings) => match Ollama::new(settings) {
                Ok(adapter) => Kind::Ollama(adapter),
                Err(error) => Kind::Unusable(error.to_string()),
            },
            AdapterSettings::Cli(settings) => match Cli::new(settings, |name| std::env::var_os(name)) {
                Ok(adapter) => Kind::Cli(adapter),
                Err(error) => Kind::Unusable(error.to_string()),
            },
            AdapterSettings::Unknown(name) => {
                Kind::Unusable(format!("adapters of type {name} are not available in this release"))
            }
        };
        Self {
            name: config.name.clone(),
            type_name: type_name(&config.settings).to_owned(),
            enabled: Cell::new(config.enabled),
            gate: Gate::new(config.capacity),
            checks,
            kind,
        }
    }
}

fn type_name(settings: &AdapterSettings) -> &str {
    match settings {
        AdapterSettings::OpenAiCompat(_) => "openai_compat",
        AdapterSettings::Ollama(_) => "ollama",
        AdapterSettings::Cli(_) => "cli",
        AdapterSettings::Unknown(name) => name,
    }
}

/// Why a request finds no adapter.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LookupError {
    /// No instance of that name, and no single one of that type.
    #[error("this node has no such adapter")]
    Unknown,
    /// It is there, and switched off.
    #[error("the adapter is disabled")]
    Disabled,
}

/// What becomes of requests for a provider, as far as the Node's own configuration goes (CMD-1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lifecycle {
    /// They are executed.
    Ready,
    /// It or its adapter is switched off.
    Disabled,
    /// Its adapter cannot be used.
    Unusable,
    /// It has no adapter here.
    Missing,
}

impl Lifecycle {
    /// Its word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Disabled => "disabled",
            Self::Unusable => "unusable",
            Self::Missing => "missing",
        }
    }
}

/// Why a configuration cannot be applied.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ApplyError {
    /// Two instances of one name.
    #[error("two adapters have the name {0:?}")]
    Duplicate(String),
}

/// Every adapter instance of one configuration.
#[derive(Debug, Default)]
pub struct AdapterSet {
    adapters: HashMap<String, Rc<Adapter>>,
}

impl AdapterSet {
    /// Builds the instances of `config`.
    ///
    /// # Errors
    /// [`ApplyError`].
    pub fn build(config: &NodeConfigPayload) -> Result<Self, ApplyError> {
        let mut adapters = HashMap::new();
        for typed in &config.adapters {
            let kind = type_name(&typed.settings);
            let is_free = !config.adapters.iter().any(|other| other.name == kind);
            let checks = Checks::of(config, |named| named == typed.name || is_free && named == kind);
            let adapter = Adapter::new(typed, checks);
            if let Kind::Unusable(reason) = &adapter.kind {
                tracing::warn!(adapter = typed.name, reason, "adapter cannot be used");
            }
            if adapters.insert(typed.name.clone(), Rc::new(adapter)).is_some() {
                return Err(ApplyError::Duplicate(typed.name.clone()));
            }
        }
        Ok(Self { adapters })
    }

    /// Takes over gate sizes and switches of `config`, which differs in nothing else (REF-1). What runs goes on.
    pub fn refresh(&self, config: &NodeConfigPayload) {
        for typed in &config.adapters {
            if let Some(adapter) = self.adapters.get(&typed.name) {
                adapter.gate.resize(typed.capacity);
                adapter.enabled.set(typed.enabled);
                if let Kind::Ollama(ollama) = &adapter.kind {
                    ollama.forget();
                }
            }
        }
    }

    /// The instance that `name` means: exactly that one, else the only enabled one of that type (CFG-6, CFG-12).
    ///
    /// # Errors
    /// [`LookupError`].
    pub fn find(&self, name: &str) -> Result<Rc<Adapter>, LookupError> {
        if let Some(exact) = self.adapters.get(name) {
            return if exact.enabled.get() { Ok(Rc::clone(exact)) } else { Err(LookupError::Disabled) };
        }
        let mut of_type =
            self.adapters.values().filter(|adapter| adapter.enabled.get() && adapter.type_name == name);
        match (of_type.next(), of_type.next()) {
            (Some(only), None) => Ok(Rc::clone(only)),
            _ => Err(LookupError::Unknown),
        }
    }

    /// Everybody that may be dialled, each once.
    #[must_use]
    pub fn origins(&self) -> Vec<Origin> {
        let mut origins = Vec::new();
        for adapter in self.adapters.values() {
            let endpoints = match &adapter.kind {
                Kind::OpenAiCompat(adapter) => adapter.endpoints(),
                Kind::Ollama(adapter) => adapter.endpoints(),
                Kind::Cli(_) | Kind::Unusable(_) => &[],
            };
            for endpoint in endpoints {
                if !origins.contains(&endpoint.origin) {
                    origins.push(endpoint.origin.clone());
                }
            }
        }
        origins
    }

    /// What becomes of requests for a provider on the adapter `name`.
    #[must_use]
    pub fn lifecycle(&self, name: &str, is_enabled: bool) -> Lifecycle {
        match self.find(name) {
            _ if !is_enabled => Lifecycle::Disabled,
            Ok(adapter) if matches!(adapter.kind, Kind::Unusable(_)) => Lifecycle::Unusable,
            Ok(_) => Lifecycle::Ready,
            Err(LookupError::Disabled) => Lifecycle::Disabled,
            Err(LookupError::Unknown) => Lifecycle::Missing,
        }
    }

    /// Instances that can be used, and all of them.
    #[must_use]
    pub fn counts(&self) -> (usize, usize) {
        let usable = self.adapters.values().filter(|adapter| !matches!(adapter.kind, Kind::Unusable(_)));
        (usable.count(), self.adapters.len())
    }
}

#[cfg(test)]
mod tests {
    use proto::message::{
        CliConfig, OllamaConfig, OpenAiCompatConfig, Operation, ProfileOperation, ProtocolProfile,
    };

    use super::*;

    fn openai(name: &str, url: &str) -> AdapterConfig {
        let operation = Operation::Models;
        let operations = vec![ProfileOperation { operation, method: "GET".to_owned(), url: url.to_owned() }];
        let profile = ProtocolProfile { operations, ..ProtocolProfile::default() };
        let settings = OpenAiCompatConfig { profile, ..OpenAiCompatConfig::default() };
        AdapterConfig {
            name: name.to_owned(),
            enabled: true,
            capacity: 1,
            settings: AdapterSettings::OpenAiCompat(settings),
        }
    }

    fn set(adapters: Vec<AdapterConfig>) -> AdapterSet {
        AdapterSet::build(&NodeConfigPayload { adapters, ..NodeConfigPayload::default() }).unwrap()
    }

    // req: CFG-12
    #[test]
    fn an_adapter_is_found_by_its_name_or_by_a_type_that_only_one_has() {
        let both = set(vec![openai("", "http://127.0.0.1:1/v1/models")]);
        assert!(Rc::ptr_eq(&both.find("").unwrap(), &both.adapters[""]));
        assert!(Rc::ptr_eq(&both.find("openai_compat").unwrap(), &both.adapters[""]));
        let two = set(vec![openai("a", "http://127.0.0.1:1/v1"), openai("b", "http://127.0.0.1:2/v1")]);
        assert!(Rc::ptr_eq(&two.find("b").unwrap(), &two.adapters["b"]));
        assert_eq!(two.find("openai_compat").unwrap_err(), LookupError::Unknown);
        assert_eq!(two.find("").unwrap_err(), LookupError::Unknown);
    }

    #[test]
    fn an_adapter_that_cannot_be_used_does_not_keep_the_others_from_serving() {
        let cli = |name: &str, command: &str| AdapterConfig {
            settings: AdapterSettings::Cli(CliConfig { command: command.to_owned(), ..CliConfig::default() }),
            ..openai(name, "http://127.0.0.1:1/")
        };
        let ollama = |name: &str, base_url: &str| AdapterConfig {
            settings: AdapterSettings::Ollama(OllamaConfig {
                base_url: base_url.to_owned(),
                context_size: 0,
            }),
            ..openai(name, "http://127.0.0.1:1/")
        };
        let set = set(vec![
            cli("cli-1", ""),
            cli("cli-2", "model"),
            cli("cli-3", "/usr/bin/model"),
            openai("odd", "ftp://box/v1"),
            openai("good", "http://127.0.0.1:1/v1"),
            ollama("ollama-1", "http://127.0.0.1:1/"),
            ollama("ollama-2", "box:11434"),
        ]);
        assert_eq!(set.counts(), (3, 7));
        for (name, reason) in [("cli-1", "is empty"), ("cli-2", "absolute path")] {
            assert!(
                matches!(&set.find(name).unwrap().kind, Kind::Unusable(why) if why.contains(reason)),
                "{name}"
            );
        }
        assert!(set.find("cli-3").unwrap().native().is_some());
        assert!(matches!(&set.find("odd").unwrap().kind, Kind::Unusable(why) if why.contains("http://")));
        assert!(
            matches!(&set.find("ollama-2").unwrap().kind, Kind::Unusable(why) if why.contains("http://"))
        );
        assert!(set.find("ollama-1").unwrap().native().is_some());
        assert!(set.find("good").unwrap().native().is_none());
        assert_eq!(set.origins().len(), 1);
    }

    // req: GAT-2, REF-1
    #[test]
    fn a_refresh_resizes_gates_and_turns_switches_while_permits_are_held() {
        let set = set(vec![openai("a", "http://127.0.0.1:1/v1")]);
        let held = set.find("a").unwrap().gate.try_enter().unwrap();
        assert!(set.find("a").unwrap().gate.try_enter().is_none());
        let mut config = NodeConfigPayload {
            adapters: vec![openai("a", "http://127.0.0.1:1/v1")],
            ..NodeConfigPayload::default()
        };
        config.adapters[0].capacity = 2;
        set.refresh(&config);
        assert!(set.find("a").unwrap().gate.try_enter().is_some());
        config.adapters[0].enabled = false;
        set.refresh(&config);
        assert_eq!(set.find("a").unwrap_err(), LookupError::Disabled);
        drop(held);
    }

    #[test]
    fn two_adapters_of_one_name_are_refused() {
        let adapters = vec![openai("a", "http://127.0.0.1:1/v1"), openai("a", "http://127.0.0.1:2/v1")];
        let config = NodeConfigPayload { adapters, ..NodeConfigPayload::default() };
        assert_eq!(AdapterSet::build(&config).unwrap_err(), ApplyError::Duplicate("a".to_owned()));
    }
}
