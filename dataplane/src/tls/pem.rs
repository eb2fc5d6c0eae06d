//! PEM text to certificates, keys and revocation lists.

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
};

use rustls_pki_types::{
    CertificateDer, CertificateRevocationListDer, PrivateKeyDer,
    pem::{PemObject, SectionKind},
};
use thiserror::Error;

/// Largest PEM file or text that is read, in bytes: 4 MiB, which is a revocation list of about 80 000 entries.
pub const PEM_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Why a PEM text does not hold what it should. Never shows any of the text.
#[derive(Debug, Error)]
pub enum PemError {
    /// The key is protected by a passphrase, which nothing here could ask for.
    #[error(
        "the private key is encrypted; store it in the clear with mode 0600 (openssl pkey -in KEY -out PLAIN)"
    )]
    EncryptedKey,
    /// A section starts and is not well formed, or not of its type.
    #[error("malformed PEM text")]
    Malformed,
    /// No section of the type that is wanted.
    #[error("no {wanted} in the PEM text{}", holds(.found))]
    Missing {
        /// What should be there.
        wanted: &'static str,
        /// What is there instead, if anything.
        found: Option<&'static str>,
    },
    /// More than one private key.
    #[error("more than one private key in the PEM text")]
    ManyKeys,
    /// The file cannot be opened or read.
    #[error("the file cannot be read")]
    Read(#[source] io::Error),
    /// Over [`PEM_BYTES_MAX`].
    #[error("larger than {PEM_BYTES_MAX} bytes")]
    TooLarge,
}

/// Reads a PEM file. Blocks; for start-up and reload only.
///
/// # Errors
/// [`PemError::Read`] and [`PemError::TooLarge`].
pub fn read(path: &Path) -> Result<Vec<u8>, PemError> {
    let mut text = Vec::new();
    let bound = u64::try_from(PEM_BYTES_MAX).unwrap_or(u64::MAX).saturating_add(1);
    File::open(path).and_then(|file| file.take(bound).read_to_end(&mut text)).map_err(PemError::Read)?;
    if text.len() > PEM_BYTES_MAX { Err(PemError::TooLarge) } else { Ok(text) }
}

/// Every certificate of the text, in its order; at least one.
///
/// # Errors
/// [`PemError`]; sections of other types are passed over.
pub fn certs(text: &[u8]) -> Result<Vec<CertificateDer<'static>>, PemError> {
    collect(text, SectionKind::Certificate, "certificate")
}

/// Every revocation list of the text, in its order; at least one.
///
/// # Errors
/// [`PemError`]; sections of other types are passed over.
pub fn crls(text: &[u8]) -> Result<Vec<CertificateRevocationListDer<'static>>, PemError> {
    collect(text, SectionKind::Crl, "certificate revocation list")
}

/// The one private key of the text: PKCS #8, SEC 1 or PKCS #1, not encrypted.
///
/// # Errors
/// [`PemError`].
pub fn key(text: &[u8]) -> Result<PrivateKeyDer<'static>, PemError> {
    let mut keys = Vec::new();
    for (kind, der) in sections(text)? {
        keys.extend(PrivateKeyDer::from_pem(kind, der));
    }
    if keys.len() > 1 {
        return Err(PemError::ManyKeys);
    }
    keys.pop().ok_or_else(|| {
        let encrypted: &[&[u8]] = &[b"BEGIN ENCRYPTED PRIVATE KEY", b"Proc-Type: 4,ENCRYPTED"];
        if encrypted.iter().any(|marker| text.windows(marker.len()).any(|window| window == *marker)) {
            return PemError::EncryptedKey;
        }
        PemError::Missing { wanted: "private key", found: first_kind(text) }
    })
}

fn collect<T: PemObject>(text: &[u8], wanted: SectionKind, name: &'static str) -> Result<Vec<T>, PemError> {
    let mut found = Vec::new();
    for (kind, der) in sections(text)? {
        if kind == wanted {
            found.extend(T::from_pem(kind, der));
        }
    }
    if found.is_empty() {
        Err(PemError::Missing { wanted: name, found: first_kind(text) })
    } else {
        Ok(found)
    }
}

fn sections(text: &[u8]) -> Result<Vec<(SectionKind, Vec<u8>)>, PemError> {
    if text.len() > PEM_BYTES_MAX {
        return Err(PemError::TooLarge);
    }
    <(SectionKind, Vec<u8>)>::pem_slice_iter(text).collect::<Result<_, _>>().map_err(|_| PemError::Malformed)
}

fn first_kind(text: &[u8]) -> Option<&'static str> {
    let (kind, _) = sections(text).ok()?.into_iter().next()?;
    match kind {
        SectionKind::Certificate => Some("a certificate"),
        SectionKind::Crl => Some("a certificate revocation list"),
        SectionKind::Csr => Some("a certificate request"),
        SectionKind::PublicKey => Some("a public key"),
        SectionKind::RsaPrivateKey | SectionKind::PrivateKey | SectionKind::EcPrivateKey => {
            Some("a private key")
        }
        _ => None,
    }
}

fn holds(found: &Option<&'static str>) -> String {
    found.map(|found| format!("; it holds {found}")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls::tests::certs::{Authority, Leaf};

    #[test]
    fn swapped_files_are_named_in_the_error() {
        let issued = Authority::new("node-ca").issue(&Leaf::node("box1"));
        let swapped = certs(issued.key_pem.as_bytes()).unwrap_err().to_string();
        assert_eq!(swapped, "no certificate in the PEM text; it holds a private key");
        let swapped = key(issued.cert_pem.as_bytes()).unwrap_err().to_string();
        assert_eq!(swapped, "no private key in the PEM text; it holds a certificate");
        assert!(matches!(certs(b""), Err(PemError::Missing { found: None, .. })));
    }

    #[test]
    fn encrypted_and_doubled_keys_are_refused() {
        let text = b"-----BEGIN ENCRYPTED PRIVATE KEY-----\nMIGH\n-----END ENCRYPTED PRIVATE KEY-----\n";
        assert!(matches!(key(text), Err(PemError::EncryptedKey)));
        let issued = Authority::new("node-ca").issue(&Leaf::node("box1"));
        let twice = format!("{0}{0}", issued.key_pem);
        assert!(matches!(key(twice.as_bytes()), Err(PemError::ManyKeys)));
    }

    #[test]
    fn truncated_and_huge_texts_are_refused() {
        let issued = Authority::new("node-ca").issue(&Leaf::node("box1"));
        let half = &issued.cert_pem.as_bytes()[..issued.cert_pem.len() / 2];
        assert!(matches!(certs(half), Err(PemError::Malformed)));
        assert!(matches!(certs(&vec![b'\n'; PEM_BYTES_MAX + 1]), Err(PemError::TooLarge)));
    }

    #[test]
    fn missing_file_is_an_error() {
        assert!(matches!(read(Path::new("/nonexistent/iop.pem")), Err(PemError::Read(_))));
    }
}
