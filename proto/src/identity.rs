//! Names of workloads and the URI that carries them in a certificate (IDN-1, IDN-3).
//!
//! An identity is `spiffe://<trust-domain>/iop/edge/<name>` or `spiffe://<trust-domain>/iop/node/<name>`, a subset of the
//! SPIFFE ID standard (section 2). Parsing works on the raw bytes of the certificate, because a NUL or an escape that a
//! string type hides has let other systems be fooled about a name.

use alloc::{borrow::Borrow, format, string::String, sync::Arc};
use core::{fmt, str::FromStr};

use thiserror::Error;

/// Longest workload name in bytes.
pub const NAME_BYTES_MAX: usize = 63;
/// Longest identity URI in bytes.
pub const URI_BYTES_MAX: usize = 255;
/// Longest trust domain in bytes: what [`URI_BYTES_MAX`] leaves beside the fixed parts and the longest name, so that every
/// pair of a valid domain and a valid name has a valid URI.
pub const TRUST_DOMAIN_BYTES_MAX: usize = URI_BYTES_MAX - SCHEME.len() - "/iop/edge/".len() - NAME_BYTES_MAX;
/// The trust domain of deployments that do not configure one.
pub const TRUST_DOMAIN_DEFAULT: &str = "iop.local";

const SCHEME: &str = "spiffe://";
/// First path segment of every identity; keeps IOP apart from other workloads of a shared trust domain.
const SYSTEM_SEGMENT: &str = "iop";

/// A valid workload name: `[a-z0-9][a-z0-9._-]{0,62}`. Cloning is a reference count.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Arc<str>);

/// Why a text is no workload name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum NameError {
    /// No byte at all.
    #[error("a workload name must not be empty")]
    Empty,
    /// Over [`NAME_BYTES_MAX`].
    #[error("a workload name has at most {NAME_BYTES_MAX} bytes, this one has {0}")]
    TooLong(usize),
    /// Does not begin with a lower-case letter or a digit.
    #[error("a workload name begins with a-z or 0-9")]
    FirstByte,
    /// A byte that may stand nowhere in a name.
    #[error("byte {byte:#04x} at {position} is not allowed in a workload name (a-z 0-9 . _ -)")]
    Byte {
        /// Where, counted in bytes from 0.
        position: usize,
        /// Which.
        byte: u8,
    },
}

impl Name {
    /// Checks raw bytes, such as those of a certificate.
    ///
    /// # Errors
    /// [`NameError`] when a rule of [`Name`] is broken.
    pub fn from_bytes(raw: &[u8]) -> Result<Self, NameError> {
        if raw.len() > NAME_BYTES_MAX {
            return Err(NameError::TooLong(raw.len()));
        }
        let first = raw.first().ok_or(NameError::Empty)?;
        if let Some((position, &byte)) = raw.iter().enumerate().find(|(_, byte)| !is_segment_byte(**byte)) {
            return Err(NameError::Byte { position, byte });
        }
        if !first.is_ascii_alphanumeric() {
            return Err(NameError::FirstByte);
        }
        let text = core::str::from_utf8(raw).map_err(|_| NameError::FirstByte)?;
        Ok(Self(Arc::from(text)))
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Name {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        Self::from_bytes(text.as_bytes())
    }
}

impl TryFrom<&str> for Name {
    type Error = NameError;

    fn try_from(text: &str) -> Result<Self, NameError> {
        Self::from_bytes(text.as_bytes())
    }
}

impl TryFrom<String> for Name {
    type Error = NameError;

    fn try_from(text: String) -> Result<Self, NameError> {
        Self::from_bytes(text.as_bytes())
    }
}

impl AsRef<str> for Name {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

/// Lets a map keyed by [`Name`] be asked with a `&str`; equality, order and hash are those of the text.
impl Borrow<str> for Name {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

/// A valid trust domain: `[a-z0-9._-]`, non-empty labels between dots, at most [`TRUST_DOMAIN_BYTES_MAX`] bytes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TrustDomain(Arc<str>);

/// Why a text is no trust domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum TrustDomainError {
    /// No byte at all.
    #[error("a trust domain must not be empty")]
    Empty,
    /// Over [`TRUST_DOMAIN_BYTES_MAX`].
    #[error("a trust domain has at most {TRUST_DOMAIN_BYTES_MAX} bytes, this one has {0}")]
    TooLong(usize),
    /// A dot at an end, or two in a row.
    #[error("a trust domain has an empty label")]
    EmptyLabel,
    /// A byte that may stand nowhere in a trust domain.
    #[error("byte {byte:#04x} at {position} is not allowed in a trust domain (a-z 0-9 . _ -)")]
    Byte {
        /// Where, counted in bytes from 0.
        position: usize,
        /// Which.
        byte: u8,
    },
}

impl TrustDomain {
    /// Checks raw bytes, such as those of a certificate.
    ///
    /// # Errors
    /// [`TrustDomainError`] when a rule of [`TrustDomain`] is broken.
    pub fn from_bytes(raw: &[u8]) -> Result<Self, TrustDomainError> {
        if raw.is_empty() {
            return Err(TrustDomainError::Empty);
        }
        if raw.len() > TRUST_DOMAIN_BYTES_MAX {
            return Err(TrustDomainError::TooLong(raw.len()));
        }
        if let Some((position, &byte)) = raw.iter().enumerate().find(|(_, byte)| !is_segment_byte(**byte)) {
            return Err(TrustDomainError::Byte { position, byte });
        }
        let text = core::str::from_utf8(raw).map_err(|_| TrustDomainError::EmptyLabel)?;
        if text.split('.').any(str::is_empty) {
            return Err(TrustDomainError::EmptyLabel);
        }
        Ok(Self(Arc::from(text)))
    }

    /// The domain as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for TrustDomain {
    /// [`TRUST_DOMAIN_DEFAULT`].
    fn default() -> Self {
        Self(Arc::from(TRUST_DOMAIN_DEFAULT))
    }
}

impl FromStr for TrustDomain {
    type Err = TrustDomainError;

    fn from_str(text: &str) -> Result<Self, TrustDomainError> {
        Self::from_bytes(text.as_bytes())
    }
}

impl TryFrom<&str> for TrustDomain {
    type Error = TrustDomainError;

    fn try_from(text: &str) -> Result<Self, TrustDomainError> {
        Self::from_bytes(text.as_bytes())
    }
}

impl fmt::Display for TrustDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for TrustDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

/// What a workload is. The role is part of the identity: an Edge can never pass for a Node, nor the other way round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// The gateway.
    Edge,
    /// The agent on a provider's host.
    Node,
}

impl Role {
    /// The path segment that names the role: `edge` or `node`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Edge => "edge",
            Self::Node => "node",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Who a certificate says its holder is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkloadId {
    /// Whose names these are.
    pub trust_domain: TrustDomain,
    /// Edge or Node.
    pub role: Role,
    /// Which one.
    pub name: Name,
}

/// Why the bytes of a URI SAN are no workload identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum WorkloadIdError {
    /// Over [`URI_BYTES_MAX`].
    #[error("an identity URI has at most {URI_BYTES_MAX} bytes, this one has {0}")]
    TooLong(usize),
    /// Does not begin with `spiffe://`, in lower case.
    #[error("an identity URI begins with spiffe://")]
    Scheme,
    /// A NUL, percent sign, upper-case letter, port, query, fragment or anything else outside `a-z 0-9 . _ - /`.
    #[error("byte {byte:#04x} at {position} is not allowed in an identity URI")]
    Byte {
        /// Where, counted in bytes from the start of the URI.
        position: usize,
        /// Which.
        byte: u8,
    },
    /// The authority is no trust domain.
    #[error("the trust domain of the identity URI is invalid")]
    TrustDomain(#[source] TrustDomainError),
    /// Two slashes in a row or a slash at the end.
    #[error("an identity URI has no empty path segment")]
    EmptySegment,
    /// A segment that is `.` or `..`.
    #[error("an identity URI has no dot segment")]
    DotSegment,
    /// Not exactly `/iop/<role>/<name>`.
    #[error("an identity URI has three path segments, this one has {0}")]
    SegmentCount(usize),
    /// The first segment is not `iop`.
    #[error("the first path segment of an identity URI is iop")]
    System,
    /// The second segment is neither `edge` nor `node`.
    #[error("the second path segment of an identity URI is edge or node")]
    Role,
    /// The third segment is no workload name.
    #[error("the name in the identity URI is invalid")]
    Name(#[source] NameError),
}

impl WorkloadId {
    /// An identity of its three parts.
    #[must_use]
    pub const fn new(trust_domain: TrustDomain, role: Role, name: Name) -> Self {
        Self { trust_domain, role, name }
    }

    /// Reads the raw bytes of a URI SAN.
    ///
    /// # Errors
    /// [`WorkloadIdError`] names the first rule that is broken. No byte is decoded, folded or normalized on the way: two
    /// different byte strings never give the same identity.
    pub fn from_uri_bytes(raw: &[u8]) -> Result<Self, WorkloadIdError> {
        if raw.len() > URI_BYTES_MAX {
            return Err(WorkloadIdError::TooLong(raw.len()));
        }
        let rest = raw.strip_prefix(SCHEME.as_bytes()).ok_or(WorkloadIdError::Scheme)?;
        let stray = rest.iter().enumerate().find(|(_, byte)| !is_segment_byte(**byte) && **byte != b'/');
        if let Some((offset, &byte)) = stray {
            return Err(WorkloadIdError::Byte { position: SCHEME.len() + offset, byte });
        }
        let mut parts = rest.split(|byte| *byte == b'/');
        let domain = parts.next().unwrap_or_default();
        let trust_domain = TrustDomain::from_bytes(domain).map_err(WorkloadIdError::TrustDomain)?;
        for segment in parts.clone() {
            match segment {
                b"" => return Err(WorkloadIdError::EmptySegment),
                b"." | b".." => return Err(WorkloadIdError::DotSegment),
                _ => {}
            }
        }
        let count = parts.clone().count();
        let (Some(system), Some(role), Some(name), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(WorkloadIdError::SegmentCount(count));
        };
        if system != SYSTEM_SEGMENT.as_bytes() {
            return Err(WorkloadIdError::System);
        }
        let role = match role {
            b"edge" => Role::Edge,
            b"node" => Role::Node,
            _ => return Err(WorkloadIdError::Role),
        };
        let name = Name::from_bytes(name).map_err(WorkloadIdError::Name)?;
        Ok(Self { trust_domain, role, name })
    }

    /// The URI that stands in the certificate; at most [`URI_BYTES_MAX`] bytes.
    #[must_use]
    pub fn to_uri(&self) -> String {
        format!("{SCHEME}{}/{SYSTEM_SEGMENT}/{}/{}", self.trust_domain, self.role, self.name)
    }
}

impl FromStr for WorkloadId {
    type Err = WorkloadIdError;

    fn from_str(text: &str) -> Result<Self, WorkloadIdError> {
        Self::from_uri_bytes(text.as_bytes())
    }
}

impl TryFrom<&[u8]> for WorkloadId {
    type Error = WorkloadIdError;

    fn try_from(raw: &[u8]) -> Result<Self, WorkloadIdError> {
        Self::from_uri_bytes(raw)
    }
}

impl fmt::Display for WorkloadId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.to_uri())
    }
}

/// The alphabet of names and trust domains: SPIFFE's segment alphabet without upper case.
const fn is_segment_byte(byte: u8) -> bool {
    matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'_' | b'-')
}
