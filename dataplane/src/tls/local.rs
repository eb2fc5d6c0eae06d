//! This process's own certificate and key, checked before use.
//!
//! A wrong file is found at start or reload, with a sentence that says what is wrong, and not by a peer later on.

use std::{fmt, sync::Arc};

use proto::identity::{Name, Role};
use rustls::{
    InconsistentKeys,
    sign::{CertifiedKey, SingleCertAndKey},
};
use thiserror::Error;

use super::{
    config::{check_chain, provider},
    leaf::{LeafFault, PeerIdentity},
    pem::{self, PemError},
};

/// A certificate chain, its key, and who they say we are. Cloning is a reference count.
#[derive(Clone)]
pub struct LocalIdentity {
    key: Arc<CertifiedKey>,
    leaf: PeerIdentity,
}

/// Why a certificate and key cannot be used as our own.
#[derive(Debug, Error)]
pub enum LocalIdentityError {
    /// The certificate text.
    #[error("the certificate cannot be loaded")]
    Certificate(#[source] PemError),
    /// The key text.
    #[error("the private key cannot be loaded")]
    Key(#[source] PemError),
    /// A key of a kind that TLS cannot sign with.
    #[error("the private key is not of a usable kind (ECDSA P-256 or P-384, Ed25519, RSA)")]
    KeyKind(#[source] rustls::Error),
    /// The key of another certificate.
    #[error("the private key does not belong to the certificate")]
    Mismatch,
    /// Breaks the profile, or is not for this role or name.
    #[error("the certificate does not fit")]
    Leaf(#[source] LeafFault),
}

impl LocalIdentity {
    /// Loads a PEM chain, leaf first, and its key. `name` is the name that the configuration gives, if it gives one.
    ///
    /// The dates are not judged, so that a process with an expired certificate can start and say so; see
    /// [`peer`](Self::peer).
    ///
    /// # Errors
    /// [`LocalIdentityError`]; no error shows key material.
    pub fn load(
        chain_pem: &[u8],
        key_pem: &[u8],
        role: Role,
        name: Option<&Name>,
    ) -> Result<Self, LocalIdentityError> {
        let chain = pem::certs(chain_pem).map_err(LocalIdentityError::Certificate)?;
        let key = pem::key(key_pem).map_err(LocalIdentityError::Key)?;
        let Some((first, rest)) = chain.split_first() else {
            return Err(LocalIdentityError::Leaf(LeafFault::Encoding));
        };
        check_chain(first, rest).map_err(LocalIdentityError::Leaf)?;
        let leaf = PeerIdentity::from_leaf(first).map_err(LocalIdentityError::Leaf)?;
        leaf.expect(role, name).map_err(LocalIdentityError::Leaf)?;
        let key = CertifiedKey::from_der(chain, key, &provider()).map_err(|error| match error {
            rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => LocalIdentityError::Mismatch,
            other => LocalIdentityError::KeyKind(other),
        })?;
        Ok(Self { key: Arc::new(key), leaf })
    }

    /// What a peer will read out of our certificate, its dates included.
    #[must_use]
    pub const fn peer(&self) -> &PeerIdentity {
        &self.leaf
    }

    pub(super) fn resolver(&self) -> Arc<SingleCertAndKey> {
        Arc::new(SingleCertAndKey::from(Arc::clone(&self.key)))
    }
}

impl fmt::Debug for LocalIdentity {
    /// The key is left out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalIdentity").field("leaf", &self.leaf).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls::tests::certs::{Authority, Leaf};

    fn load(leaf: &Leaf, role: Role, name: &str) -> Result<LocalIdentity, LocalIdentityError> {
        let issued = Authority::new("a-ca").issue(leaf);
        LocalIdentity::load(
            issued.cert_pem.as_bytes(),
            issued.key_pem.as_bytes(),
            role,
            Some(&name.parse().unwrap()),
        )
    }

    #[test]
    fn own_certificate_gives_its_identity() {
        let own = load(&Leaf::edge("edge-1"), Role::Edge, "edge-1").unwrap();
        assert_eq!(own.peer().workload.to_uri(), "spiffe://iop.local/iop/edge/edge-1");
    }

    // req: IDN-1
    #[test]
    fn own_certificate_of_another_role_or_name_is_refused_at_load() {
        let fault = load(&Leaf::node("edge-1"), Role::Edge, "edge-1").unwrap_err();
        assert!(matches!(fault, LocalIdentityError::Leaf(LeafFault::Role { .. })), "{fault:?}");
        let fault = load(&Leaf::edge("edge-2"), Role::Edge, "edge-1").unwrap_err();
        assert!(matches!(fault, LocalIdentityError::Leaf(LeafFault::Name { .. })), "{fault:?}");
    }

    #[test]
    fn key_of_another_certificate_is_refused_at_load() {
        let authority = Authority::new("node-ca");
        let (one, two) = (authority.issue(&Leaf::node("box1")), authority.issue(&Leaf::node("box1")));
        let loaded = LocalIdentity::load(one.cert_pem.as_bytes(), two.key_pem.as_bytes(), Role::Node, None);
        assert!(matches!(loaded, Err(LocalIdentityError::Mismatch)), "{loaded:?}");
    }

    // req: CRD-6
    #[test]
    fn debug_output_and_errors_show_no_key_material() {
        let authority = Authority::new("node-ca");
        let (one, two) = (authority.issue(&Leaf::node("box1")), authority.issue(&Leaf::node("box1")));
        let own =
            LocalIdentity::load(one.cert_pem.as_bytes(), one.key_pem.as_bytes(), Role::Node, None).unwrap();
        let swapped = LocalIdentity::load(one.key_pem.as_bytes(), one.cert_pem.as_bytes(), Role::Node, None);
        let mismatch = LocalIdentity::load(one.cert_pem.as_bytes(), two.key_pem.as_bytes(), Role::Node, None);
        let shown = format!("{own:?} {swapped:?} {mismatch:?}");
        for line in one.key_pem.lines().chain(two.key_pem.lines()).filter(|line| !line.starts_with("-----")) {
            assert!(!shown.contains(line));
        }
        // The scalar of the key, as a debug printout of its bytes would show it.
        let key = pem::key(one.key_pem.as_bytes()).unwrap();
        let scalar: Vec<_> = key.secret_der()[36..44].iter().map(u8::to_string).collect();
        assert!(!shown.contains(&scalar.join(", ")));
    }
}
