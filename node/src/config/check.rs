//! From the typed tree to a checked configuration. Every check runs, so that one look at the output mends a file.

use std::{net::SocketAddr, num::NonZeroU32, path::Path, time::Duration};

use proto::identity::Name;

use super::{
    AttemptLimit, CPU_MAX, EdgeTarget, INTERVAL_SEC_DEFAULT, INTERVAL_SEC_MAX, IdentitySource, LogFormat,
    Logging, MAX_ATTEMPTS_DEFAULT, NodeConfig, ReconnectPolicy, SHARDS_MAX, Secret,
    error::{Place, Problem},
    file::{self, File, Typed},
};

/// Problems as they are found.
#[derive(Default)]
struct Report(Vec<Problem>);

impl Report {
    fn add(&mut self, at: Place, key: &str, message: impl Into<String>) {
        self.0.push(Problem { at, key: key.to_owned(), message: message.into() });
    }

    /// The value of a key that must be there.
    fn required<T>(&mut self, value: Option<Typed<T>>, key: &str, expected: &str) -> Option<Typed<T>> {
        if value.is_none() {
            self.add(Place::default(), key, format!("missing; expected {expected}"));
        }
        value
    }
}

/// Gives meaning to a tree. Relative paths start from `directory`.
pub(super) fn check(file: File, directory: &Path) -> Result<NodeConfig, Vec<Problem>> {
    let mut report = Report::default();
    let name = file.node.and_then(|node| node.name);
    let name = workload_name(&mut report, name, "node.name");
    let edge = edge(&mut report, file.edge);
    let identity = identity(&mut report, file.identity, directory);
    let reconnect = reconnect(&mut report, &file.reconnect);
    let shards = shards(&mut report, file.shards);
    let cpus = cpus(&mut report, &file.cpus);
    let logging = logging(&mut report, file.logging);
    let metrics_listen = metrics_listen(&mut report, file.metrics.listen);
    match (name, edge, identity) {
        (Some(name), Some(edge), Some(identity)) if report.0.is_empty() => {
            Ok(NodeConfig { name, edge, identity, reconnect, shards, cpus, logging, metrics_listen })
        }
        _ => Err(report.0),
    }
}

fn workload_name(report: &mut Report, typed: Option<Typed<String>>, key: &str) -> Option<Name> {
    let typed =
        report.required(typed, key, "a workload name such as box1 (a-z 0-9 . _ -, at most 63 bytes)")?;
    match typed.value.parse() {
        Ok(name) => Some(name),
        Err(error) => {
            report.add(typed.at, key, format!("{error}"));
            None
        }
    }
}

fn edge(report: &mut Report, typed: Option<file::Edge>) -> Option<EdgeTarget> {
    let (address, name) = typed.map_or((None, None), |edge| (edge.address, edge.name));
    let address = report.required(address, "edge.address", "host:port, such as edge.example.org:9443");
    let name = workload_name(report, name, "edge.name");
    let address = address?;
    let Some((host, port)) = split_address(&address.value) else {
        report.add(
            address.at,
            "edge.address",
            "expected host:port or [ipv6]:port, such as edge.example.org:9443",
        );
        return None;
    };
    Some(EdgeTarget { host, port, name: name? })
}

/// `host:port` or `[v6]:port`; the port is 1 to 65535.
fn split_address(text: &str) -> Option<(String, u16)> {
    if let Ok(address) = text.parse::<SocketAddr>() {
        return (address.port() != 0).then(|| (address.ip().to_string(), address.port()));
    }
    let (host, port) = text.rsplit_once(':')?;
    let named = !host.is_empty()
        && host.len() <= 253
        && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_'));
    let digits = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    let port = port.parse::<u16>().ok().filter(|port| *port != 0)?;
    (named && digits).then(|| (host.to_owned(), port))
}

fn identity(report: &mut Report, typed: Option<file::Identity>, directory: &Path) -> Option<IdentitySource> {
    const EXPECTED: &str =
        "expected cert_file, key_file and edge_ca_file, or cert_pem, key_pem and edge_ca_pem (a join file)";
    let Some(typed) = typed else {
        report.add(Place::default(), "identity", format!("missing; {EXPECTED}"));
        return None;
    };
    let files = [&typed.cert_file, &typed.key_file, &typed.edge_ca_file];
    let has_files = files.iter().any(|file| file.is_some());
    let has_inline = typed.cert_pem.is_some() || typed.key_pem.is_some() || typed.edge_ca_pem.is_some();
    if has_files == has_inline {
        let at = files.iter().find_map(|file| file.as_ref().map(|file| file.at)).unwrap_or_default();
        report.add(at, "identity", format!("one of two forms is needed; {EXPECTED}"));
        return None;
    }
    if has_inline {
        let cert_pem = text(report, typed.cert_pem, "identity.cert_pem")?;
        let edge_ca_pem = text(report, typed.edge_ca_pem, "identity.edge_ca_pem")?;
        let key = report.required(typed.key_pem, "identity.key_pem", "a PEM text")?;
        return Some(IdentitySource::Inline {
            cert_pem,
            key_pem: Secret::from(key.value.expose().to_owned()),
            edge_ca_pem,
        });
    }
    let cert = text(report, typed.cert_file, "identity.cert_file");
    let key = text(report, typed.key_file, "identity.key_file");
    let edge_ca = text(report, typed.edge_ca_file, "identity.edge_ca_file");
    Some(IdentitySource::Files {
        cert: directory.join(cert?),
        key: directory.join(key?),
        edge_ca: directory.join(edge_ca?),
    })
}

fn text(report: &mut Report, typed: Option<Typed<String>>, key: &str) -> Option<String> {
    let typed = report.required(typed, key, if key.ends_with("_pem") { "a PEM text" } else { "a path" })?;
    if typed.value.trim().is_empty() {
        report.add(typed.at, key, "expected a text that is not empty");
        return None;
    }
    Some(typed.value)
}

/// SUP-3.
fn reconnect(report: &mut Report, typed: &file::Reconnect) -> ReconnectPolicy {
    let attempts = match &typed.max_attempts {
        None => AttemptLimit::Exactly(default_attempts()),
        Some(typed) => match u32::try_from(typed.value) {
            Ok(count) => NonZeroU32::new(count).map_or(AttemptLimit::Unlimited, AttemptLimit::Exactly),
            Err(_) => {
                let expected = "expected a positive number of attempts, or 0 for no limit";
                report.add(typed.at, "reconnect.max_attempts", format!("{expected}, found {}", typed.value));
                AttemptLimit::Exactly(default_attempts())
            }
        },
    };
    let seconds = match &typed.interval_sec {
        None => INTERVAL_SEC_DEFAULT,
        Some(typed) => match u32::try_from(typed.value) {
            Ok(0) if attempts == AttemptLimit::Unlimited => {
                let why =
                    "expected a positive number of seconds, because reconnect.max_attempts: 0 has no limit";
                report.add(typed.at, "reconnect.interval_sec", why);
                INTERVAL_SEC_DEFAULT
            }
            Ok(seconds) if seconds <= INTERVAL_SEC_MAX => seconds,
            _ => {
                let expected = format!("expected 0 to {INTERVAL_SEC_MAX} seconds, found {}", typed.value);
                report.add(typed.at, "reconnect.interval_sec", expected);
                INTERVAL_SEC_DEFAULT
            }
        },
    };
    ReconnectPolicy { interval: Duration::from_secs(u64::from(seconds)), attempts }
}

fn default_attempts() -> NonZeroU32 {
    NonZeroU32::new(MAX_ATTEMPTS_DEFAULT).unwrap_or(NonZeroU32::MIN)
}

fn shards(report: &mut Report, typed: Option<Typed<i64>>) -> u16 {
    let Some(typed) = typed else { return 1 };
    match u16::try_from(typed.value) {
        Ok(shards @ 1..=SHARDS_MAX) => shards,
        _ => {
            report.add(typed.at, "shards", format!("expected 1 to {SHARDS_MAX}, found {}", typed.value));
            1
        }
    }
}

fn cpus(report: &mut Report, typed: &[Typed<i64>]) -> Vec<usize> {
    let mut cpus = Vec::new();
    for (index, typed) in typed.iter().enumerate() {
        match usize::try_from(typed.value) {
            Ok(cpu) if cpus.contains(&cpu) => {
                report.add(
                    typed.at,
                    &format!("cpus[{index}]"),
                    format!("core {cpu} stands here a second time"),
                );
            }
            Ok(cpu) if cpu <= CPU_MAX => cpus.push(cpu),
            _ => {
                let message = format!("expected a core number from 0 to {CPU_MAX}, found {}", typed.value);
                report.add(typed.at, &format!("cpus[{index}]"), message);
            }
        }
    }
    cpus
}

fn logging(report: &mut Report, typed: file::Logging) -> Logging {
    let mut logging = Logging { level: tracing::Level::INFO, format: LogFormat::Text };
    if let Some(typed) = typed.level {
        match typed.value.as_str() {
            "error" => logging.level = tracing::Level::ERROR,
            "warn" => logging.level = tracing::Level::WARN,
            "info" => logging.level = tracing::Level::INFO,
            "debug" => logging.level = tracing::Level::DEBUG,
            "trace" => logging.level = tracing::Level::TRACE,
            _ => report.add(typed.at, "logging.level", "expected error, warn, info, debug or trace"),
        }
    }
    if let Some(typed) = typed.format {
        match typed.value.as_str() {
            "text" => logging.format = LogFormat::Text,
            "json" => logging.format = LogFormat::Json,
            _ => report.add(typed.at, "logging.format", "expected text or json"),
        }
    }
    logging
}

fn metrics_listen(report: &mut Report, typed: Option<Typed<String>>) -> Option<SocketAddr> {
    let typed = typed.filter(|typed| !typed.value.is_empty())?;
    let parsed = typed.value.parse().ok();
    if parsed.is_none() {
        report.add(
            typed.at,
            "metrics.listen",
            "expected address:port, such as 127.0.0.1:9091, or \"\" for none",
        );
    }
    parsed
}
