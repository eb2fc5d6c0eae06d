//! The CAs that a provider's certificate may be signed by: the system's, or those that the environment names.
//!
//! A machine without any, as a container of nothing but the program, gets Mozilla's list of the day of the build: public providers
//! can be called from there too. Who names CAs by `SSL_CERT_FILE` or `SSL_CERT_DIR` means those and no others, also where they
//! cannot be read.

use rustls::RootCertStore;
use rustls_native_certs::{CertificateResult, load_native_certs};

/// Files and directories of PEM certificates that stand for the system's.
const VARIABLES: [&str; 2] = ["SSL_CERT_FILE", "SSL_CERT_DIR"];

/// Reads them. Blocks; takes some milliseconds.
#[must_use]
pub fn load() -> RootCertStore {
    let is_named = VARIABLES.iter().any(|name| std::env::var_os(name).is_some());
    let found = load_native_certs();
    for error in &found.errors {
        if is_named {
            tracing::warn!(%error, "a file of ca certificates cannot be read");
        } else {
            tracing::debug!(%error, "a file of ca certificates cannot be read");
        }
    }
    collect(found, is_named)
}

fn collect(found: CertificateResult, is_named: bool) -> RootCertStore {
    let mut roots = RootCertStore::empty();
    // Stores hold certificates that nobody can use any more; they do no harm.
    let (used, ignored) = roots.add_parsable_certificates(found.certs);
    tracing::debug!(used, ignored, "ca certificates of the system");
    if roots.is_empty() && is_named {
        tracing::warn!(
            "SSL_CERT_FILE and SSL_CERT_DIR name no usable ca certificate: no provider can be called by https"
        );
    } else if roots.is_empty() {
        roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
        tracing::info!("the system has no ca certificates: the built-in ones are used for providers");
    }
    roots
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair};

    use super::*;

    fn found(certificates: Vec<rustls_pki_types::CertificateDer<'static>>) -> CertificateResult {
        let mut found = CertificateResult::default();
        found.certs = certificates;
        found
    }

    #[test]
    fn the_systems_certificates_come_first_and_named_ones_are_never_replaced() {
        let key = KeyPair::generate().unwrap();
        let own = CertificateParams::default().self_signed(&key).unwrap().der().clone();
        let broken = rustls_pki_types::CertificateDer::from(vec![0x30, 0]);
        assert_eq!(collect(found(vec![own.clone(), broken.clone()]), true).len(), 1);
        assert_eq!(collect(found(vec![own]), false).len(), 1);
        assert!(collect(found(vec![broken.clone()]), true).is_empty());
        assert!(collect(found(Vec::new()), true).is_empty());
        assert!(collect(found(vec![broken]), false).len() > 50, "the built-in list");
    }
}
