//! Certificates of every right and wrong shape, made with rcgen.

use std::{sync::Arc, time::Duration};

use proto::identity::Role;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, CustomExtension,
    DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose, RevokedCertParams,
    SanType, SerialNumber,
};
use rustls::time_provider::TimeProvider;
use rustls_pki_types::{CertificateDer, CertificateRevocationListDer, UnixTime};

use crate::tls::{config::Trust, local::LocalIdentity};

/// The middle of every valid certificate's life, in seconds since the epoch.
pub(crate) const NOW: u64 = 2_000_000_000;
const HOUR: i64 = 3600;

/// A clock that stands still.
#[derive(Debug)]
pub(crate) struct FixedTime(pub(crate) u64);

impl TimeProvider for FixedTime {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(Duration::from_secs(self.0)))
    }
}

/// What a leaf will look like. The constructors make a good one.
#[derive(Clone)]
pub(crate) struct Leaf {
    pub(crate) sans: Vec<SanType>,
    pub(crate) not_before: i64,
    pub(crate) not_after: i64,
    pub(crate) is_ca: IsCa,
    pub(crate) usages: Vec<KeyUsagePurpose>,
    pub(crate) purposes: Vec<ExtendedKeyUsagePurpose>,
    pub(crate) extensions: Vec<CustomExtension>,
    pub(crate) serial: u64,
}

impl Leaf {
    pub(crate) fn of(sans: Vec<SanType>) -> Self {
        let now = i64::try_from(NOW).unwrap();
        Self {
            sans,
            not_before: now - HOUR,
            not_after: now + HOUR,
            is_ca: IsCa::NoCa,
            usages: vec![KeyUsagePurpose::DigitalSignature],
            purposes: vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth],
            extensions: Vec::new(),
            serial: 0x1f02,
        }
    }

    pub(crate) fn uri(uri: &str) -> Self {
        Self::of(vec![SanType::URI(uri.try_into().unwrap())])
    }

    pub(crate) fn node(name: &str) -> Self {
        Self::uri(&format!("spiffe://iop.local/iop/node/{name}"))
    }

    pub(crate) fn edge(name: &str) -> Self {
        Self::uri(&format!("spiffe://iop.local/iop/edge/{name}"))
    }

    /// A server's, for these DNS names and addresses.
    pub(crate) fn server(names: &[&str]) -> Self {
        let san = |name: &&str| {
            name.parse().map_or_else(|_| SanType::DnsName((*name).try_into().unwrap()), SanType::IpAddress)
        };
        Self::of(names.iter().map(san).collect())
    }

    pub(crate) fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    fn params(&self) -> CertificateParams {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "ignored");
        params.subject_alt_names = self.sans.clone();
        params.not_before = date(self.not_before);
        params.not_after = date(self.not_after);
        params.is_ca = self.is_ca;
        params.key_usages = self.usages.clone();
        params.extended_key_usages = self.purposes.clone();
        params.custom_extensions = self.extensions.clone();
        params.serial_number = Some(SerialNumber::from(self.serial));
        params.use_authority_key_identifier_extension = true;
        params
    }

    /// Signed by its own key.
    pub(crate) fn self_signed(&self) -> Issued {
        let key = KeyPair::generate().unwrap();
        let mut params = self.params();
        params.use_authority_key_identifier_extension = false;
        let certificate = params.self_signed(&key).unwrap();
        Issued { cert_pem: certificate.pem(), key_pem: key.serialize_pem(), der: certificate.der().clone() }
    }
}

/// A subjectAltName extension with these GeneralName contents of type URI, byte for byte.
pub(crate) fn raw_uri_sans(uris: &[&[u8]]) -> CustomExtension {
    let names: Vec<u8> = uris
        .iter()
        .flat_map(|uri| {
            let mut name = vec![0x86, u8::try_from(uri.len()).unwrap()];
            name.extend_from_slice(uri);
            name
        })
        .collect();
    let mut sequence = vec![0x30, u8::try_from(names.len()).unwrap()];
    sequence.extend(names);
    CustomExtension::from_oid_content(&[2, 5, 29, 17], sequence)
}

/// A certificate and its key.
pub(crate) struct Issued {
    pub(crate) cert_pem: String,
    pub(crate) key_pem: String,
    der: CertificateDer<'static>,
}

impl Issued {
    pub(crate) fn der(&self) -> CertificateDer<'static> {
        self.der.clone()
    }

    pub(crate) fn identity(&self, role: Role) -> LocalIdentity {
        LocalIdentity::load(self.cert_pem.as_bytes(), self.key_pem.as_bytes(), role, None).unwrap()
    }
}

/// A CA.
pub(crate) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    /// The intermediates that its leaves must present.
    chain_pem: String,
}

fn authority_params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        Self {
            issuer: CertifiedIssuer::self_signed(authority_params(name), key).unwrap(),
            chain_pem: String::new(),
        }
    }

    /// A CA below this one, valid until the given second.
    pub(crate) fn intermediate(&self, name: &str, not_after: i64) -> Self {
        let mut params = authority_params(name);
        params.not_after = date(not_after);
        let issuer = CertifiedIssuer::signed_by(params, KeyPair::generate().unwrap(), &self.issuer).unwrap();
        let chain_pem = format!("{}{}", issuer.pem(), self.chain_pem);
        Self { issuer, chain_pem }
    }

    pub(crate) fn issue(&self, leaf: &Leaf) -> Issued {
        let key = KeyPair::generate().unwrap();
        let signer: &Issuer<'static, KeyPair> = &self.issuer;
        let certificate = leaf.params().signed_by(&key, signer).unwrap();
        let cert_pem = format!("{}{}", certificate.pem(), self.chain_pem);
        Issued { cert_pem, key_pem: key.serialize_pem(), der: certificate.der().clone() }
    }

    /// A revocation list of these serial numbers, valid for an hour around [`NOW`].
    pub(crate) fn revoke(&self, serials: &[u64]) -> CertificateRevocationListDer<'static> {
        let now = i64::try_from(NOW).unwrap();
        let revoked_certs = serials
            .iter()
            .map(|serial| RevokedCertParams {
                serial_number: SerialNumber::from(*serial),
                revocation_time: date(now - HOUR),
                reason_code: None,
                invalidity_date: None,
            })
            .collect();
        let params = CertificateRevocationListParams {
            this_update: date(now - HOUR),
            next_update: date(now + HOUR),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs,
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let signer: &Issuer<'static, KeyPair> = &self.issuer;
        params.signed_by(signer).unwrap().der().clone()
    }

    pub(crate) fn root(&self) -> CertificateDer<'static> {
        self.issuer.der().clone()
    }

    pub(crate) fn root_pem(&self) -> String {
        self.issuer.pem()
    }

    /// Trust in this CA at [`NOW`].
    pub(crate) fn trust(&self) -> Trust {
        Trust::new(vec![self.root()]).unwrap().with_time(Arc::new(FixedTime(NOW)))
    }
}

fn date(seconds: i64) -> time::OffsetDateTime {
    time::OffsetDateTime::from_unix_timestamp(seconds).unwrap()
}
