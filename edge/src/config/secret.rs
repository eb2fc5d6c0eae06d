//! Texts that may hold a secret: no way to print them by accident.

use std::{borrow::Cow, fmt};

use schemars::{JsonSchema, Schema, SchemaGenerator};
use sha2::{Digest, Sha256};

/// A text of the configuration that may hold a secret. It has no `Display`, and its `Debug` shows nothing of it.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// A text that may be secret.
    pub(super) fn new(text: String) -> Self {
        Self(text)
    }

    /// The text, for the one place that needs it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl JsonSchema for Secret {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        String::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        String::json_schema(generator)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// The SHA-256 of a secret that is only ever compared.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SecretDigest([u8; 32]);

impl SecretDigest {
    /// The digest of `secret`.
    #[must_use]
    pub fn of(secret: &str) -> Self {
        Self(Sha256::digest(secret.as_bytes()).into())
    }

    /// Whether `candidate` is the secret. The time taken tells nothing about the secret: digests are compared, all bytes of them.
    #[must_use]
    pub fn matches(&self, candidate: &str) -> bool {
        let candidate = Self::of(candidate);
        let differing = self.0.iter().zip(candidate.0).fold(0u8, |all, (a, b)| all | (a ^ b));
        std::hint::black_box(differing) == 0
    }
}

impl fmt::Debug for SecretDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretDigest(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_matches_its_secret_only_and_shows_nothing() {
        let digest = SecretDigest::of("hunter2");
        assert!(digest.matches("hunter2"));
        assert!(!digest.matches("hunter3"));
        assert!(!digest.matches(""));
        assert!(!format!("{digest:?} {:?}", Secret("hunter2".to_owned())).contains("hunter2"));
    }
}
