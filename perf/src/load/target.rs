//! Where the load goes: a URL, resolved once.

use std::net::{SocketAddr, ToSocketAddrs as _};
use std::str::FromStr;

/// The chat-completions endpoint under load.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The address connected to.
    pub address: SocketAddr,
    /// The `host` field.
    pub host: String,
    /// The request target.
    pub path: String,
}

impl Target {
    /// A target that must be replaced: nothing listens on port 0.
    #[must_use]
    pub fn nowhere() -> Self {
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        Self { address, host: address.to_string(), path: "/v1/chat/completions".to_owned() }
    }
}

/// Why a URL was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// Only plain HTTP is measured; put no TLS in front of the subject.
    #[error("url must start with http://")]
    Scheme,
    /// The host does not resolve, or the port is not a number.
    #[error("host {0:?} does not resolve")]
    Host(String),
}

impl FromStr for Target {
    type Err = TargetError;

    /// A base URL (`http://host:port`, `http://host:port/v1`) or the endpoint itself.
    fn from_str(url: &str) -> Result<Self, TargetError> {
        let rest = url.strip_prefix("http://").ok_or(TargetError::Scheme)?;
        let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let path = path.trim_end_matches('/');
        let path = match path {
            "" => "/v1/chat/completions".to_owned(),
            _ if path.ends_with("/chat/completions") => path.to_owned(),
            _ => format!("{path}/chat/completions"),
        };
        let with_port = if host.rsplit_once(':').is_some() { host.to_owned() } else { format!("{host}:80") };
        let address = with_port.to_socket_addrs().ok().and_then(|mut addresses| addresses.next());
        let address = address.ok_or_else(|| TargetError::Host(host.to_owned()))?;
        Ok(Self { address, host: host.to_owned(), path })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base_urls_and_endpoints_name_the_same_target() {
        for url in [
            "http://127.0.0.1:8080",
            "http://127.0.0.1:8080/",
            "http://127.0.0.1:8080/v1",
            "http://127.0.0.1:8080/v1/",
            "http://127.0.0.1:8080/v1/chat/completions",
        ] {
            let target: Target = url.parse().unwrap();
            assert_eq!(target.path, "/v1/chat/completions", "{url}");
            assert_eq!(target.host, "127.0.0.1:8080");
            assert_eq!(target.address, "127.0.0.1:8080".parse().unwrap());
        }
    }

    #[test]
    fn other_schemes_and_bad_hosts_are_refused() {
        assert_eq!("https://127.0.0.1".parse::<Target>(), Err(TargetError::Scheme));
        assert!(matches!("http://127.0.0.1:port".parse::<Target>(), Err(TargetError::Host(_))));
    }
}
