//! The tree of node.yaml and of a join bundle, as it is typed; meaning is given to it in `check`.
//!
//! The two are one tree: a file names its identity by `*_file`, a join bundle carries it as `*_pem`.

use std::fmt;

use serde::{Deserialize, Deserializer};
use serde_saphyr::Spanned;

use super::error::Place;

/// A value and where it was typed.
#[derive(Clone, Debug)]
pub(super) struct Typed<T> {
    pub(super) value: T,
    pub(super) at: Place,
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Typed<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = Spanned::<T>::deserialize(deserializer)?;
        Ok(Self { value: spanned.value, at: spanned.referenced.into() })
    }
}

/// A text that is never printed.
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// The text, for the one place that needs it.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub(super) node: Option<Node>,
    pub(super) edge: Option<Edge>,
    pub(super) identity: Option<Identity>,
    #[serde(default)]
    pub(super) reconnect: Reconnect,
    pub(super) shards: Option<Typed<i64>>,
    #[serde(default)]
    pub(super) cpus: Vec<Typed<i64>>,
    #[serde(default)]
    pub(super) logging: Logging,
    #[serde(default)]
    pub(super) metrics: Metrics,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Node {
    pub(super) name: Option<Typed<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Edge {
    pub(super) address: Option<Typed<String>>,
    pub(super) name: Option<Typed<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Identity {
    pub(super) cert_file: Option<Typed<String>>,
    pub(super) key_file: Option<Typed<String>>,
    pub(super) edge_ca_file: Option<Typed<String>>,
    pub(super) cert_pem: Option<Typed<String>>,
    pub(super) key_pem: Option<Typed<Secret>>,
    pub(super) edge_ca_pem: Option<Typed<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Reconnect {
    pub(super) interval_sec: Option<Typed<i64>>,
    pub(super) max_attempts: Option<Typed<i64>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Logging {
    pub(super) level: Option<Typed<String>>,
    pub(super) format: Option<Typed<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Metrics {
    pub(super) listen: Option<Typed<String>>,
}
