//! Certificate, key and Edge CA: loaded and judged before the first dial.
//!
//! These are the only local files whose fault ends the process (SUP-2, SUP-5); whatever the Edge says about them is
//! retryable.

use std::sync::Arc;

use dataplane::{
    clock,
    tls::{
        config::{self, Trust},
        local::{LocalIdentity, LocalIdentityError},
        pem::{self, PemError},
    },
};
use proto::identity::Role;
use rustls::ClientConfig;
use thiserror::Error;

use super::{IdentitySource, NodeConfig};

/// What a TLS client of the Edge needs.
#[derive(Clone, Debug)]
pub struct Identity {
    /// Presents our certificate and accepts exactly one Edge.
    pub tls: Arc<ClientConfig>,
    /// Our workload URI, for the log.
    pub workload: String,
    /// Whether our certificate's dates allow it now. An Edge will refuse it otherwise, and we keep trying: a renewed file
    /// needs a restart, but a clock may be set right.
    pub dates: Dates,
}

/// Our certificate's dates against the wall clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dates {
    /// Within them.
    Valid,
    /// Before notBefore.
    NotYetValid,
    /// Past notAfter.
    Expired,
}

/// Why the Node has no usable identity; fatal (SUP-2).
#[derive(Debug, Error)]
pub enum IdentityError {
    /// A file cannot be read.
    #[error("cannot read {key} {path}")]
    Read {
        /// Which configuration key names it.
        key: &'static str,
        /// The file.
        path: String,
        /// Why.
        #[source]
        source: PemError,
    },
    /// Our certificate or key cannot be used, or is not that of this Node.
    #[error("the identity of this node cannot be used")]
    Own(#[source] LocalIdentityError),
    /// The Edge CA is no PEM text.
    #[error("the edge ca cannot be loaded")]
    EdgeCaText(#[source] PemError),
    /// The Edge CA is no set of CA certificates, or TLS refuses the whole.
    #[error("the edge ca cannot be used")]
    EdgeCa(#[source] config::ConfigError),
}

/// Loads and judges the identity that `config` names. Blocks; not for a shard.
///
/// # Errors
/// [`IdentityError`]: a file is missing or broken, the key belongs to another certificate, the certificate is not that of
/// a Node, or not of this one. No error shows key material.
pub fn load(config: &NodeConfig) -> Result<Identity, IdentityError> {
    let (cert, key, edge_ca) = match &config.identity {
        IdentitySource::Files { cert, key, edge_ca } => (
            read("identity.cert_file", cert)?,
            read("identity.key_file", key)?,
            read("identity.edge_ca_file", edge_ca)?,
        ),
        IdentitySource::Inline { cert_pem, key_pem, edge_ca_pem } => (
            cert_pem.clone().into_bytes(),
            key_pem.expose().as_bytes().to_vec(),
            edge_ca_pem.clone().into_bytes(),
        ),
    };
    let own = LocalIdentity::load(&cert, &key, Role::Node, Some(&config.name)).map_err(IdentityError::Own)?;
    let roots = pem::certs(&edge_ca).map_err(IdentityError::EdgeCaText)?;
    let trust = Trust::new(roots).map_err(IdentityError::EdgeCa)?;
    let tls =
        config::node_client_config(&own, &trust, config.edge.name.clone()).map_err(IdentityError::EdgeCa)?;
    let peer = own.peer();
    let now = clock::unix_seconds();
    let dates = if now < peer.not_before {
        Dates::NotYetValid
    } else if now > peer.not_after {
        Dates::Expired
    } else {
        Dates::Valid
    };
    Ok(Identity { tls, workload: peer.workload.to_uri(), dates })
}

fn read(key: &'static str, path: &std::path::Path) -> Result<Vec<u8>, IdentityError> {
    pem::read(path).map_err(|source| IdentityError::Read { key, path: path.display().to_string(), source })
}
