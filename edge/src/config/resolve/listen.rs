//! Resolving `edge`, `listen`, `identity`, `limits`, `logging`, `bootstrap`: everything about the process itself.

use std::{collections::HashMap, net::SocketAddr, num::NonZeroUsize, path::PathBuf, sync::Arc};

use dataplane::tls::server::MinVersion;
use proto::{identity::Name, limits::BODY_BYTES_CONFIGURED_MAX};

use super::context::{Context, quoted};
use crate::{
    admin::socket::of_runtime_directory,
    config::{
        SHARDS_MAX,
        place::{Place, Typed},
        settings::{EdgeSettings, IdentityFiles, Limits, Listen, LogFormat, LogLevel, Logging, TlsFiles},
        typed,
        url::split_authority,
    },
};

/// Name of an Edge that has none in its file.
const EDGE_NAME: &str = "edge-1";
/// Key of the addresses of HTTPS.
const HTTPS: &str = "listen.https";
/// Most addresses of one kind of listener.
const LISTENERS_MAX: usize = 16;
/// Highest CPU number.
const CPU_MAX: i64 = 4095;
/// Longest path of a Unix socket in bytes: `sun_path` less its terminator.
const SOCKET_PATH_BYTES_MAX: usize = 107;
/// Longest body that may be allowed: a longer one would find no Node to take it.
const BODY_BYTES_MAX: i64 = BODY_BYTES_CONFIGURED_MAX as i64;
/// Memory of all bodies together, unless the file says otherwise: sixteen of the usual limit. A Node puts at most eight
/// together at a time, so that many run while others are received or wait.
const BODY_MEMORY_DEFAULT: i64 = 512 * 1024 * 1024;
/// Most of it.
const BODY_MEMORY_MAX: i64 = 1 << 40;
/// One day in milliseconds: a longer wait is a slip of the unit.
const DAY_MS: i64 = 86_400_000;

pub(super) fn edge(context: &mut Context<'_>, typed: &typed::Edge) -> EdgeSettings {
    let name = typed.name.as_ref().and_then(|key| name(context, key, "edge.name")).unwrap_or_else(|| {
        Name::from_bytes(EDGE_NAME.as_bytes()).expect("the constant keeps the rules of names")
    });
    let shards = context.count(typed.shards.as_ref(), "edge.shards", 0..=SHARDS_MAX as i64, 0);
    let mut shards = usize::try_from(shards).ok().and_then(NonZeroUsize::new);
    let mut cpus: Vec<usize> = Vec::new();
    for (index, cpu) in typed.cpus.iter().flat_map(|list| list.value.iter()).enumerate() {
        let path = format!("edge.cpus[{index}]");
        let number = context.count(Some(cpu), &path, 0..=CPU_MAX, 0) as usize;
        if cpus.contains(&number) {
            context.error(cpu.at, path, format!("CPU {} is already in the list", cpu.value));
        }
        cpus.push(number);
    }
    if let (Some(list), false) = (&typed.cpus, cpus.is_empty()) {
        let wanted = shards.map_or(cpus.len(), NonZeroUsize::get);
        if wanted != cpus.len() || wanted > SHARDS_MAX {
            let message = format!(
                "expected one CPU for each of {wanted} shards (at most {SHARDS_MAX}), found {}",
                cpus.len()
            );
            context.error(list.at, "edge.cpus", message);
        }
        shards = NonZeroUsize::new(cpus.len());
    }
    EdgeSettings { name, shards, cpus }
}

/// A workload name.
pub(super) fn name(context: &mut Context<'_>, key: &Typed<String>, path: &str) -> Option<Name> {
    let text = context.text(Some(key), path)?;
    match Name::from_bytes(text.as_bytes()) {
        Ok(name) => Some(name),
        Err(_) => {
            let message = format!(
                "expected a name of a-z, 0-9, `.`, `_`, `-` in at most 63 characters, the first a letter or digit, found {}",
                quoted(key)
            );
            context.error(key.at, path, message);
            None
        }
    }
}

/// Where to listen, and where each address was typed.
pub(super) fn listen(context: &mut Context<'_>, typed: &typed::Listen, at: Place) -> (Listen, Vec<Found>) {
    let tls = typed.tls.as_ref().and_then(|typed| tls(context, typed));
    let https = match &typed.https {
        Some(list) if list.value.is_empty() => Vec::new(),
        list => addresses(context, list, (at, HTTPS), &[]),
    };
    let http = match &typed.http {
        Some(list) if list.value.is_empty() && !https.is_empty() => Vec::new(),
        list => addresses(context, list, (at, "listen.http"), &["0.0.0.0:8080", "[::]:8080"]),
    };
    if let (Some((_, at, path)), None) = (https.first(), &tls) {
        let message = "HTTPS needs a certificate: set listen.tls.cert_file and listen.tls.key_file";
        context.error(*at, path.clone(), message);
    }
    let node = addresses(context, &typed.node, (at, "listen.node"), &["0.0.0.0:9443"]);
    let ops_at = typed.ops.as_ref().map_or(at, |key| key.at);
    let ops = typed.ops.as_ref().and_then(|key| address(context, key, "listen.ops"));
    let ops = ops.unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], 9090)));
    let mut seen: HashMap<SocketAddr, String> = HashMap::new();
    let all = http.iter().chain(&https).chain(&node).cloned().chain([(ops, ops_at, "listen.ops".to_owned())]);
    let all: Vec<Found> = all.collect();
    for (address, at, path) in all.clone() {
        // Port 0 asks for any free port: two of them never meet.
        if address.port() == 0 {
            continue;
        }
        if let Some(first) = seen.insert(address, path.clone()) {
            context.error(at, path, format!("{address} is already the address of {first}"));
        }
    }
    let plain = |list: Vec<Found>| list.into_iter().map(|(address, _, _)| address).collect();
    // A certificate and no addresses of its own: those of clients are spoken to by HTTPS.
    let (http, https) = if tls.is_some() && https.is_empty() { (https, http) } else { (http, https) };
    let admin_socket = admin_socket(context, typed);
    let listen = Listen { http: plain(http), https: plain(https), tls, node: plain(node), ops, admin_socket };
    (listen, all)
}

/// The certificate for clients, where there is to be one. Its files are not looked at here: that is for whoever serves.
fn tls(context: &mut Context<'_>, typed: &Typed<typed::ListenTls>) -> Option<TlsFiles> {
    const VERSIONS: [(&str, MinVersion); 2] = [("1.2", MinVersion::Tls12), ("1.3", MinVersion::Tls13)];
    let (cert_key, key_key) = (typed.value.cert_file.as_ref(), typed.value.key_file.as_ref());
    let cert = context.file(cert_key, "listen.tls.cert_file");
    let key = context.file(key_key, "listen.tls.key_file");
    let version = context.word(typed.value.min_version.as_ref(), "listen.tls.min_version", &VERSIONS);
    let min_version = version.ok().flatten().unwrap_or(MinVersion::Tls12);
    let place = |key: Option<&Typed<String>>| key.map_or(typed.at, |key| key.at);
    let (cert_at, key_at) = (place(cert_key), place(key_key));
    let missing = match (cert, key) {
        (Some(cert), Some(key)) => {
            return Some(TlsFiles { cert: (cert, cert_at), key: (key, key_at), min_version });
        }
        (None, None) => return None,
        (Some(_), None) => (cert_at, "listen.tls.cert_file", "key_file"),
        (None, Some(_)) => (key_at, "listen.tls.key_file", "cert_file"),
    };
    let (at, path, other) = missing;
    context.error(at, path, format!("HTTPS needs both files: set listen.tls.{other} as well"));
    None
}

/// An address, where it was typed, and its key path.
pub(super) type Found = (SocketAddr, Place, String);

fn addresses(
    context: &mut Context<'_>,
    list: &typed::List<String>,
    (parent, path): (Place, &str),
    default: &[&str],
) -> Vec<Found> {
    let Some(list) = list else {
        let parsed = default.iter().filter_map(|text| text.parse().ok());
        return parsed.map(|address| (address, parent, path.to_owned())).collect();
    };
    if list.value.is_empty() || list.value.len() > LISTENERS_MAX {
        context.error(
            list.at,
            path,
            format!("expected 1 to {LISTENERS_MAX} addresses, found {}", list.value.len()),
        );
    }
    let mut all = Vec::new();
    for (index, key) in list.value.iter().enumerate().take(LISTENERS_MAX) {
        let path = format!("{path}[{index}]");
        all.extend(address(context, key, &path).map(|address| (address, key.at, path)));
    }
    all
}

fn address(context: &mut Context<'_>, key: &Typed<String>, path: &str) -> Option<SocketAddr> {
    let text = context.text(Some(key), path)?;
    let parsed = text.parse().ok();
    if parsed.is_none() {
        let message = format!(
            "expected an address and port such as 127.0.0.1:8080 or [::1]:8080 (no host name), found {}",
            quoted(key)
        );
        context.error(key.at, path, message);
    }
    parsed
}

fn admin_socket(context: &mut Context<'_>, typed: &typed::Listen) -> Option<PathBuf> {
    let path = context
        .file(typed.admin_socket.as_ref(), "listen.admin_socket")
        .or_else(|| of_runtime_directory(context.env))?;
    if path.as_os_str().len() > SOCKET_PATH_BYTES_MAX {
        let at = typed.admin_socket.as_ref().map_or(Place::START, |key| key.at);
        let message =
            format!("expected a path of at most {SOCKET_PATH_BYTES_MAX} bytes, as Unix sockets need");
        context.error(at, "listen.admin_socket", message);
    }
    Some(path)
}

pub(super) fn identity(context: &mut Context<'_>, typed: &typed::Identity) -> IdentityFiles {
    let mut file = |key: Option<&Typed<String>>, path: &str, default: &str| {
        context.file(key, path).unwrap_or_else(|| context.directory.join(default))
    };
    IdentityFiles {
        cert: file(typed.cert_file.as_ref(), "identity.cert_file", "pki/edge.crt"),
        key: file(typed.key_file.as_ref(), "identity.key_file", "pki/edge.key"),
        node_ca: file(typed.node_ca_file.as_ref(), "identity.node_ca_file", "pki/node-ca.crt"),
    }
}

pub(super) fn limits(context: &mut Context<'_>, typed: &typed::Limits) -> Limits {
    let head_bytes = context.count(typed.head_bytes.as_ref(), "limits.head_bytes", 1024..=1_048_576, 65_536);
    let head_fields = context.count(typed.head_fields.as_ref(), "limits.head_fields", 16..=1000, 100);
    let body_bytes =
        context.count(typed.body_bytes.as_ref(), "limits.body_bytes", 1..=BODY_BYTES_MAX, 33_554_432);
    let h2_streams = context.count(typed.h2_streams.as_ref(), "limits.h2_streams", 1..=10_000, 100);
    Limits {
        head_bytes: usize::try_from(head_bytes).unwrap_or(usize::MAX),
        head_fields: usize::try_from(head_fields).unwrap_or(usize::MAX),
        head_timeout: context.millis(
            typed.head_timeout_ms.as_ref(),
            "limits.head_timeout_ms",
            1..=DAY_MS,
            10_000,
        ),
        body_bytes,
        body_memory: body_memory(context, typed, body_bytes),
        body_timeout: context.millis(
            typed.body_timeout_ms.as_ref(),
            "limits.body_timeout_ms",
            1..=DAY_MS,
            10_000,
        ),
        body_min_rate: context.count(
            typed.body_min_rate.as_ref(),
            "limits.body_min_rate",
            0..=1_073_741_824,
            1024,
        ),
        keepalive_idle: context.millis(
            typed.keepalive_idle_ms.as_ref(),
            "limits.keepalive_idle_ms",
            1..=DAY_MS,
            100_000,
        ),
        h2_streams: u32::try_from(h2_streams).unwrap_or(u32::MAX),
        write_stall: context.millis(
            typed.write_stall_ms.as_ref(),
            "limits.write_stall_ms",
            1..=DAY_MS,
            60_000,
        ),
        drain_grace: context.millis(
            typed.drain_grace_ms.as_ref(),
            "limits.drain_grace_ms",
            0..=DAY_MS,
            30_000,
        ),
    }
}

/// The memory of all bodies together. It must hold two of the longest: large ones leave a part of it to small ones, and one
/// that can never find room would be told again and again to come back.
fn body_memory(context: &mut Context<'_>, typed: &typed::Limits, body_bytes: u64) -> u64 {
    const KEY: &str = "limits.body_memory_bytes";
    let least = i64::try_from(body_bytes.saturating_mul(2)).unwrap_or(i64::MAX);
    let key = typed.body_memory_bytes.as_ref();
    let bytes = context.count(key, KEY, 1..=BODY_MEMORY_MAX, BODY_MEMORY_DEFAULT.max(least));
    if let Some(key) = key
        && (1..least).contains(&key.value)
    {
        let message = format!("expected at least {least}, twice limits.body_bytes, found {}", key.value);
        context.error(key.at, KEY, message);
    }
    bytes
}

pub(super) fn logging(context: &mut Context<'_>, typed: &typed::Logging) -> Logging {
    const FORMATS: [(&str, LogFormat); 2] = [("text", LogFormat::Text), ("json", LogFormat::Json)];
    let level = context.word(typed.level.as_ref(), "logging.level", &LogLevel::ALL);
    let format = context.word(typed.format.as_ref(), "logging.format", &FORMATS);
    Logging {
        level: level.ok().flatten().unwrap_or(LogLevel::Info),
        format: format.ok().flatten().unwrap_or(LogFormat::Text),
    }
}

pub(super) fn advertise(context: &mut Context<'_>, typed: &typed::Bootstrap) -> Option<Arc<str>> {
    let key = typed.advertise.as_ref()?;
    let text = context.text(Some(key), "bootstrap.advertise")?;
    if text.is_empty() {
        return None;
    }
    if !matches!(split_authority(&text), Some((_, Some(_)))) {
        let message = format!("expected host:port such as edge.example.org:9443, found {}", quoted(key));
        context.error(key.at, "bootstrap.advertise", message);
        return None;
    }
    Some(text.into())
}

pub(super) fn keepalive_bounds() -> std::ops::RangeInclusive<i64> {
    1..=DAY_MS
}
