//! What a workload certificate must look like, and what is read out of it.
//!
//! The profile is that of an X.509-SVID (SPIFFE X509-SVID sections 2 to 4): exactly one URI SAN, not a CA, key usage
//! with digitalSignature and without keyCertSign and cRLSign, and both TLS purposes where there is an extended key usage.
//! The signature, the chain and the validity are the business of [`verify`](super::verify); this module only looks at
//! the leaf. Both ends must look at the role: every leaf may serve and dial.

use std::sync::Arc;

use proto::identity::{Name, Role, WorkloadId, WorkloadIdError};
use rustls::{CertificateError, OtherError};
use rustls_pki_types::CertificateDer;
use sha2::{Digest, Sha256};
use thiserror::Error;
use x509_parser::{
    certificate::X509Certificate,
    extensions::{GeneralName, ParsedExtension, X509Extension},
    parse_x509_certificate,
    x509::X509Version,
};

use super::refusal::Refusal;

/// Longest serial number in bytes (RFC 5280 section 4.1.2.2), with room for the sign byte.
const SERIAL_BYTES_MAX: usize = 21;

/// Context tag of `uniformResourceIdentifier` in a GeneralName (RFC 5280 section 4.2.1.6).
const URI_TAG: u32 = 6;

/// What the leaf of a peer says, read once when the handshake is complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerIdentity {
    /// Role, name and trust domain. The trust domain is reported and not compared: the CA files are the decision whom
    /// to trust.
    pub workload: WorkloadId,
    /// The serial number as lower-case hex, two digits a byte, no separator and no sign byte.
    pub serial: String,
    /// First second since the epoch before which the certificate is not valid; 0 for earlier dates.
    pub not_before: u64,
    /// Last second since the epoch at which the certificate is valid; 0 for earlier dates. A connection must not outlive
    /// it.
    pub not_after: u64,
    /// SHA-256 of the DER of the public key (SubjectPublicKeyInfo).
    pub spki_sha256: [u8; 32],
}

impl PeerIdentity {
    /// Edge or Node.
    #[must_use]
    pub const fn role(&self) -> Role {
        self.workload.role
    }

    /// Which one.
    #[must_use]
    pub const fn name(&self) -> &Name {
        &self.workload.name
    }

    /// Reads a leaf and checks it against the profile.
    ///
    /// # Errors
    /// [`LeafFault`] names the first rule that is broken. The chain, the dates, the role and the name are not judged.
    pub fn from_leaf(leaf: &CertificateDer<'_>) -> Result<Self, LeafFault> {
        let (rest, certificate) = parse_x509_certificate(leaf).map_err(|_| LeafFault::Encoding)?;
        if !rest.is_empty() || certificate.version() != X509Version::V3 {
            return Err(LeafFault::Encoding);
        }
        // The accessor of basic constraints gives nothing for one that could not be parsed, as if it were not there.
        if certificate.extensions().iter().any(is_malformed) {
            return Err(LeafFault::Encoding);
        }
        check_usage(&certificate)?;
        let workload = read_workload(&certificate)?;
        let serial = certificate.raw_serial();
        if serial.is_empty() || serial.len() > SERIAL_BYTES_MAX {
            return Err(LeafFault::Encoding);
        }
        Ok(Self {
            workload,
            serial: hex(without_sign_byte(serial)),
            not_before: seconds(certificate.validity().not_before.timestamp()),
            not_after: seconds(certificate.validity().not_after.timestamp()),
            spki_sha256: Sha256::digest(certificate.public_key().raw).into(),
        })
    }

    /// Checks that this is the workload somebody expects.
    ///
    /// # Errors
    /// [`LeafFault::Role`] before [`LeafFault::Name`]; without a name every name will do.
    pub fn expect(&self, role: Role, name: Option<&Name>) -> Result<(), LeafFault> {
        if self.role() != role {
            return Err(LeafFault::Role { expected: role, found: self.role() });
        }
        match name {
            Some(expected) if expected != self.name() => {
                Err(LeafFault::Name { expected: expected.clone(), found: self.name().clone() })
            }
            _ => Ok(()),
        }
    }
}

/// Why a leaf is no certificate of the expected workload. Safe to log: a name in it has passed the alphabet of names.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LeafFault {
    /// The certificate may issue certificates.
    #[error("the certificate is a CA certificate")]
    Ca,
    /// More certificates or bytes than [`CHAIN_CERTS_MAX`](super::config::CHAIN_CERTS_MAX) and
    /// [`CHAIN_BYTES_MAX`](super::config::CHAIN_BYTES_MAX).
    #[error("the certificate chain is too long: {certs} certificates, {bytes} bytes")]
    Chain {
        /// Certificates presented, the leaf included.
        certs: usize,
        /// Bytes of all of them.
        bytes: usize,
    },
    /// Not a DER certificate of version 3, or an extension twice.
    #[error("the certificate cannot be read")]
    Encoding,
    /// An extended key usage that lacks serverAuth or clientAuth.
    #[error("the extended key usage lacks serverAuth or clientAuth")]
    ExtendedKeyUsage,
    /// No key usage, one without digitalSignature, or one with keyCertSign or cRLSign.
    #[error("the key usage is not that of a workload (digitalSignature, neither keyCertSign nor cRLSign)")]
    KeyUsage,
    /// Right role, another name.
    #[error("the certificate is that of {found}, expected {expected}")]
    Name {
        /// The name that was asked for.
        expected: Name,
        /// The name in the certificate.
        found: Name,
    },
    /// An Edge in place of a Node, or the other way round.
    #[error("the certificate is that of a workload of role {found}, expected {expected}")]
    Role {
        /// The role that was asked for.
        expected: Role,
        /// The role in the certificate.
        found: Role,
    },
    /// Zero, two or more URI SANs. DNS names and addresses do not count and are never looked at.
    #[error("the certificate has {0} URI SANs, exactly one is required")]
    SanCount(usize),
    /// The URI SAN is no workload identity.
    #[error("the URI SAN is no workload identity")]
    SanForm(#[source] WorkloadIdError),
}

impl LeafFault {
    /// The reason under which a handshake with this leaf is refused.
    #[must_use]
    pub const fn refusal(&self) -> Refusal {
        match self {
            Self::Ca | Self::Chain { .. } | Self::Encoding | Self::ExtendedKeyUsage | Self::KeyUsage => {
                Refusal::BadCertificate
            }
            Self::Name { .. } => Refusal::WrongName,
            Self::Role { .. } => Refusal::WrongRole,
            Self::SanCount(_) | Self::SanForm(_) => Refusal::BadSan,
        }
    }

    /// The fault inside an error of rustls, if one of our verifiers put it there.
    #[must_use]
    pub fn carried_by(error: &rustls::Error) -> Option<&Self> {
        match error {
            rustls::Error::InvalidCertificate(CertificateError::Other(OtherError(inner))) => {
                inner.downcast_ref::<Self>()
            }
            _ => None,
        }
    }
}

impl From<LeafFault> for rustls::Error {
    fn from(fault: LeafFault) -> Self {
        CertificateError::Other(OtherError(Arc::new(fault))).into()
    }
}

fn is_malformed(extension: &X509Extension<'_>) -> bool {
    matches!(extension.parsed_extension(), ParsedExtension::ParseError { .. })
}

fn check_usage(certificate: &X509Certificate<'_>) -> Result<(), LeafFault> {
    let constraints = certificate.basic_constraints().map_err(|_| LeafFault::Encoding)?;
    if constraints.is_some_and(|found| found.value.ca) {
        return Err(LeafFault::Ca);
    }
    let usage = certificate.key_usage().map_err(|_| LeafFault::Encoding)?.ok_or(LeafFault::KeyUsage)?.value;
    if !usage.digital_signature() || usage.key_cert_sign() || usage.crl_sign() {
        return Err(LeafFault::KeyUsage);
    }
    let purposes = certificate.extended_key_usage().map_err(|_| LeafFault::Encoding)?;
    match purposes.map(|found| found.value) {
        Some(purposes) if !purposes.server_auth || !purposes.client_auth => Err(LeafFault::ExtendedKeyUsage),
        _ => Ok(()),
    }
}

fn read_workload(certificate: &X509Certificate<'_>) -> Result<WorkloadId, LeafFault> {
    let names = certificate.subject_alternative_name().map_err(|_| LeafFault::Encoding)?;
    let names = names.map(|found| found.value.general_names.as_slice()).unwrap_or_default();
    // A URI that is not even UTF-8 counts: one good and one unreadable URI are two.
    let mut uris = names.iter().filter_map(|name| match name {
        GeneralName::URI(uri) => Some(uri.as_bytes()),
        GeneralName::Invalid(tag, raw) if tag.0 == URI_TAG => Some(*raw),
        _ => None,
    });
    match (uris.next(), uris.count()) {
        (Some(uri), 0) => WorkloadId::from_uri_bytes(uri).map_err(LeafFault::SanForm),
        (Some(_), more) => Err(LeafFault::SanCount(1 + more)),
        (None, _) => Err(LeafFault::SanCount(0)),
    }
}

/// DER puts a zero before a positive integer whose first bit is set; tools do not show it.
fn without_sign_byte(serial: &[u8]) -> &[u8] {
    match serial {
        [0, rest @ ..] if !rest.is_empty() => rest,
        _ => serial,
    }
}

fn seconds(timestamp: i64) -> u64 {
    u64::try_from(timestamp).unwrap_or(0)
}

fn hex(bytes: &[u8]) -> String {
    const DIGITS: [char; 16] =
        ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f'];
    bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]).map(|digit| DIGITS[usize::from(digit)]).collect()
}

#[cfg(test)]
mod tests {
    use rcgen::CustomExtension;

    use super::*;
    use crate::tls::tests::certs::{Authority, Leaf, raw_uri_sans};

    fn judge(leaf: &Leaf) -> Result<PeerIdentity, LeafFault> {
        PeerIdentity::from_leaf(&Authority::new("a-ca").issue(leaf).der())
    }

    #[test]
    fn malformed_extension_is_not_taken_for_an_absent_one() {
        // Basic constraints (2.5.29.19) and extended key usage (2.5.29.37) may both be absent.
        for oid in [19, 37] {
            let broken = CustomExtension::from_oid_content(&[2, 5, 29, oid], vec![0x30, 0x05, 0x01]);
            let leaf = Leaf::node("box1").with(|leaf| {
                leaf.purposes.clear();
                leaf.extensions = vec![broken];
            });
            assert_eq!(judge(&leaf), Err(LeafFault::Encoding));
        }
        assert!(judge(&Leaf::node("box1").with(|leaf| leaf.purposes.clear())).is_ok());
    }

    #[test]
    fn extension_that_comes_twice_is_refused() {
        let second = raw_uri_sans(&[b"spiffe://iop.local/iop/node/box2"]);
        let leaf = Leaf::node("box1").with(|leaf| leaf.extensions = vec![second]);
        assert_eq!(judge(&leaf), Err(LeafFault::Encoding));
    }

    #[test]
    fn garbage_and_trailing_bytes_are_refused() {
        let der = Authority::new("a-ca").issue(&Leaf::node("box1")).der();
        let mut longer = der.to_vec();
        longer.push(0);
        assert_eq!(PeerIdentity::from_leaf(&longer.into()), Err(LeafFault::Encoding));
        for length in 0..der.len() {
            let cut = CertificateDer::from(der[..length].to_vec());
            assert_eq!(PeerIdentity::from_leaf(&cut), Err(LeafFault::Encoding), "{length}");
        }
    }

    #[test]
    fn serial_number_is_shown_as_other_tools_show_it() {
        let serial = |number| judge(&Leaf::node("box1").with(|leaf| leaf.serial = number)).unwrap().serial;
        assert_eq!(serial(0x8001), "8001");
        assert_eq!(serial(0x7f01), "7f01");
    }
}
