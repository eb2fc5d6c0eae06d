//! CAs and what they sign.
//!
//! A leaf is what `docs/security.md` asks of any PKI: ECDSA P-256, one URI SAN, digitalSignature, serverAuth and
//! clientAuth, 30 days. Time is handed in; keys and serial numbers come from the operating system's randomness.

use std::{fmt, time::Duration};

use dataplane::tls::{
    leaf::{LeafFault, PeerIdentity},
    pem::{self, PemError},
};
use proto::identity::{Role, TrustDomain, WorkloadId};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, PublicKeyData, SanType, SerialNumber,
};
use rustls_pki_types::CertificateDer;
use thiserror::Error;
use time::OffsetDateTime;
use x509_parser::parse_x509_certificate;

/// How long a leaf is valid.
pub const LEAF_LIFETIME: Duration = Duration::from_secs(30 * DAY_SECONDS);
/// How long a CA is valid.
pub const CA_LIFETIME: Duration = Duration::from_secs(3650 * DAY_SECONDS);
/// How far notBefore lies in the past, for hosts whose clock is behind.
pub const BACKDATING: Duration = Duration::from_secs(5 * 60);

const DAY_SECONDS: u64 = 24 * 60 * 60;
const SERIAL_BYTES: usize = 16;

/// Text of a private key in PEM. Has no printable form.
pub struct KeyText(String);

impl KeyText {
    /// The PEM text, for writing it to its file.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for KeyText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyText")
    }
}

/// A certificate and its key, in PEM.
#[derive(Debug)]
pub struct Issued {
    /// The certificate.
    pub certificate: String,
    /// Its key, PKCS #8.
    pub key: KeyText,
    /// When the certificate expires, in seconds since the epoch.
    pub not_after: u64,
}

/// A CA that can sign.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    not_after: u64,
}

/// Why a CA cannot be made or cannot sign.
#[derive(Debug, Error)]
pub enum AuthorityError {
    /// The CA certificate file.
    #[error("the ca certificate cannot be loaded")]
    Certificate(#[source] PemError),
    /// The CA key file.
    #[error("the ca key cannot be loaded")]
    Key(#[source] PemError),
    /// A key that cannot sign certificates here.
    #[error("the ca key is not of a usable kind")]
    KeyKind(#[source] rcgen::Error),
    /// No certificate in the file carries the key.
    #[error("the ca key does not belong to the ca certificate")]
    Mismatch,
    /// The certificate that carries the key is no CA certificate.
    #[error("the certificate of the ca key is not a ca certificate")]
    NotCa,
    /// The CA's own time is over.
    #[error("the ca certificate has expired")]
    Expired,
    /// The operating system gives no randomness.
    #[error("no randomness from the operating system")]
    Random,
    /// The date or a name cannot be encoded.
    #[error("the certificate cannot be made")]
    Sign(#[source] rcgen::Error),
    /// The clock shows a time that no certificate can carry.
    #[error("the system clock is wrong")]
    Clock,
    /// What was signed does not pass our own check: a CA of foreign make that adds to its leaves.
    #[error("the certificate that was made would be refused")]
    Unfit(#[source] LeafFault),
}

impl Authority {
    /// Makes the CA for one role. `now` is in seconds since the epoch.
    ///
    /// # Errors
    /// [`AuthorityError::Random`], [`AuthorityError::Sign`], [`AuthorityError::Clock`].
    pub fn create(
        role: Role,
        trust_domain: &TrustDomain,
        now: u64,
    ) -> Result<(Self, Issued), AuthorityError> {
        let key = new_key()?;
        let not_after = now.saturating_add(CA_LIFETIME.as_secs());
        let mut params = base_params(&format!("IOP {role} CA"), now, not_after)?;
        params.distinguished_name.push(DnType::OrganizationName, trust_domain.as_str());
        // No CA below this one.
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let certificate = params.self_signed(&key).map_err(AuthorityError::Sign)?.pem();
        let text = KeyText(key.serialize_pem());
        Ok((
            Self { issuer: Issuer::new(params, key), not_after },
            Issued { certificate, key: text, not_after },
        ))
    }

    /// Loads a CA. The certificate file may hold several CAs, as while one is being replaced; the one that the key belongs
    /// to signs.
    ///
    /// # Errors
    /// [`AuthorityError`]; no error shows key material.
    pub fn load(certificates: &[u8], key: &[u8]) -> Result<Self, AuthorityError> {
        let certificates = pem::certs(certificates).map_err(AuthorityError::Certificate)?;
        let key = pem::key(key).map_err(AuthorityError::Key)?;
        let key = KeyPair::try_from(key.secret_der()).map_err(AuthorityError::KeyKind)?;
        let own = certificates.iter().find(|certificate| carries(certificate, &key));
        let own = own.ok_or(AuthorityError::Mismatch)?;
        let not_after = ca_expiry(own).ok_or(AuthorityError::NotCa)?;
        let issuer = Issuer::from_ca_cert_der(own, key).map_err(AuthorityError::Sign)?;
        Ok(Self { issuer, not_after })
    }

    /// Makes a key and signs its certificate for one workload, valid for [`LEAF_LIFETIME`] or as long as the CA.
    ///
    /// # Errors
    /// [`AuthorityError`].
    pub fn issue(&self, workload: &WorkloadId, now: u64) -> Result<Issued, AuthorityError> {
        if self.not_after <= now {
            return Err(AuthorityError::Expired);
        }
        let key = new_key()?;
        let not_after = now.saturating_add(LEAF_LIFETIME.as_secs()).min(self.not_after);
        let mut params = base_params(workload.name.as_str(), now, not_after)?;
        let uri = workload.to_uri().try_into().map_err(AuthorityError::Sign)?;
        params.subject_alt_names = vec![SanType::URI(uri)];
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        params.use_authority_key_identifier_extension = true;
        let certificate = params.signed_by(&key, &self.issuer).map_err(AuthorityError::Sign)?;
        let leaf = PeerIdentity::from_leaf(certificate.der()).map_err(AuthorityError::Unfit)?;
        leaf.expect(workload.role, Some(&workload.name)).map_err(AuthorityError::Unfit)?;
        Ok(Issued {
            certificate: certificate.pem(),
            key: KeyText(key.serialize_pem()),
            not_after: leaf.not_after,
        })
    }
}

fn new_key() -> Result<KeyPair, AuthorityError> {
    KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(|_| AuthorityError::Random)
}

fn base_params(common_name: &str, now: u64, not_after: u64) -> Result<CertificateParams, AuthorityError> {
    let mut serial = [0; SERIAL_BYTES];
    getrandom::fill(&mut serial).map_err(|_| AuthorityError::Random)?;
    let mut params = CertificateParams::default();
    params.serial_number = Some(SerialNumber::from_slice(&serial));
    params.not_before = date(now.saturating_sub(BACKDATING.as_secs()))?;
    params.not_after = date(not_after)?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name);
    Ok(params)
}

fn date(seconds: u64) -> Result<OffsetDateTime, AuthorityError> {
    let seconds = i64::try_from(seconds).map_err(|_| AuthorityError::Clock)?;
    OffsetDateTime::from_unix_timestamp(seconds).map_err(|_| AuthorityError::Clock)
}

fn carries(certificate: &CertificateDer<'_>, key: &KeyPair) -> bool {
    let spki = key.subject_public_key_info();
    parse_x509_certificate(certificate).is_ok_and(|(_, parsed)| parsed.public_key().raw == spki)
}

/// When a CA certificate expires; `None` for any other certificate.
fn ca_expiry(certificate: &CertificateDer<'_>) -> Option<u64> {
    let (_, parsed) = parse_x509_certificate(certificate).ok()?;
    let seconds = u64::try_from(parsed.validity().not_after.timestamp()).unwrap_or(0);
    parsed.is_ca().then_some(seconds)
}
