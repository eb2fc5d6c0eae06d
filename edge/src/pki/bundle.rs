//! The Node's join file: its whole configuration in one YAML file, certificates and key included.
//!
//! The tree is that of `node.yaml`, with the PEM texts in place of file names, so `iop-node run --join FILE` reads both the
//! same way. It is a secret: it holds the Node's private key.

use std::{fmt, str::FromStr};

use proto::identity::Name;
use thiserror::Error;

use super::authority::Issued;

/// Longest address in bytes: a DNS name of 253, a colon and a port.
pub const ADDRESS_BYTES_MAX: usize = 259;

/// Where a Node dials: `host:port`, with an IPv6 address in brackets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address(String);

/// Why a text is no address that a Node can dial.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum AddressError {
    /// Not `host:port`.
    #[error("an address is HOST:PORT, such as edge.example.org:9443 or [2001:db8::1]:9443")]
    Form,
    /// Not 1 to 65535.
    #[error("the port is a number from 1 to 65535")]
    Port,
    /// A host with characters that are in no DNS name or address.
    #[error("the host is neither a dns name nor an ip address")]
    Host,
    /// `0.0.0.0` or `[::]`, which is for listening.
    #[error("nodes cannot dial an address that means all interfaces; give the one they reach the edge by")]
    Unspecified,
    /// Over [`ADDRESS_BYTES_MAX`].
    #[error("an address has at most {ADDRESS_BYTES_MAX} bytes")]
    TooLong,
}

impl Address {
    /// The text, as given.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        if text.len() > ADDRESS_BYTES_MAX {
            return Err(AddressError::TooLong);
        }
        let (host, port) = text.rsplit_once(':').ok_or(AddressError::Form)?;
        let number: u16 = port.parse().map_err(|_| AddressError::Port)?;
        if number == 0 || !port.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(AddressError::Port);
        }
        let ip = match host.strip_prefix('[').map(|rest| rest.strip_suffix(']')) {
            Some(Some(inner)) => {
                Some(inner.parse().map(std::net::IpAddr::V6).map_err(|_| AddressError::Host)?)
            }
            Some(None) => return Err(AddressError::Form),
            // An IPv6 address without brackets would be cut in the wrong place.
            None if host.is_empty() || host.contains(':') => return Err(AddressError::Form),
            None => host.parse().ok(),
        };
        let is_dns =
            || host.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_'));
        match ip {
            Some(ip) if ip.is_unspecified() => Err(AddressError::Unspecified),
            None if !is_dns() => Err(AddressError::Host),
            _ => Ok(Self(text.to_owned())),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// The text of a join file. `edge_ca` is the PEM text of the CAs that the Node will trust; whatever else is in it, such as
/// comments, is left out.
#[must_use]
pub fn to_yaml(node: &Name, edge: &Name, address: &Address, issued: &Issued, edge_ca: &str) -> String {
    format!(
        "# Join file of node {node}: all that its host needs. It holds a private key; keep it secret.\n\
         # Start the node with: iop-node run --join FILE\n\
         node: {{ name: \"{node}\" }}\n\
         edge: {{ address: \"{address}\", name: \"{edge}\" }}\n\
         reconnect: {{ max_attempts: 0 }}\n\
         identity:\n\
         {}{}{}",
        block("cert_pem", &issued.certificate),
        block("key_pem", issued.key.expose()),
        block("edge_ca_pem", edge_ca),
    )
}

/// A literal block scalar of the PEM sections in `text`.
fn block(key: &str, text: &str) -> String {
    let mut inside = false;
    let mut yaml = format!("  {key}: |\n");
    for line in text.lines().map(str::trim) {
        inside |= line.starts_with("-----BEGIN ");
        if inside {
            yaml.push_str("    ");
            yaml.push_str(line);
            yaml.push('\n');
        }
        inside &= !line.starts_with("-----END ");
    }
    yaml
}
