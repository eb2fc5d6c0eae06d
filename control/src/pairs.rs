//! Maps whose keys are no strings, as arrays of pairs: JSON has no other keys than strings.

use alloc::{collections::BTreeMap, vec::Vec};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// For `#[serde(with)]`.
pub(crate) fn serialize<K: Serialize, V: Serialize, S: Serializer>(
    map: &BTreeMap<K, V>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(map)
}

/// For `#[serde(with)]`.
pub(crate) fn deserialize<'de, K, V, D>(deserializer: D) -> Result<BTreeMap<K, V>, D::Error>
where
    K: Deserialize<'de> + Ord,
    V: Deserialize<'de>,
    D: Deserializer<'de>,
{
    Ok(Vec::<(K, V)>::deserialize(deserializer)?.into_iter().collect())
}
