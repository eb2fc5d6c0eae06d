use super::*;

const WHOLE: &str = r#"
node: { name: box1 }
edge: { address: "edge.example.org:9443", name: edge-1 }
identity: { cert_file: node.crt, key_file: /keys/node.key, edge_ca_file: edge-ca.crt }
reconnect: { interval_sec: 7, max_attempts: 3 }
shards: 2
cpus: [2, 3]
logging: { level: debug, format: json }
metrics: { listen: "127.0.0.1:9091" }
"#;

const LEAST: &str = r#"
node: { name: box1 }
edge: { address: "127.0.0.1:9443", name: edge-1 }
identity: { cert_file: node.crt, key_file: node.key, edge_ca_file: edge-ca.crt }
"#;

fn parsed(text: &str) -> Result<NodeConfig, ConfigError> {
    parse(Path::new("/etc/iop/node.yaml"), text)
}

/// What is wrong with the least file when `lines` are added to it.
fn complaint(lines: &str) -> String {
    parsed(&format!("{LEAST}{lines}\n")).unwrap_err().to_string()
}

fn reconnect(line: &str) -> ReconnectPolicy {
    parsed(&format!("{LEAST}{line}\n")).unwrap().reconnect
}

#[test]
fn every_key_of_the_contract_is_taken() {
    let config = parsed(WHOLE).unwrap();
    assert_eq!(config.name.as_str(), "box1");
    assert_eq!((config.edge.host.as_str(), config.edge.port), ("edge.example.org", 9443));
    assert_eq!(config.edge.name.as_str(), "edge-1");
    let IdentitySource::Files { cert, key, edge_ca } = &config.identity else { panic!() };
    assert_eq!(cert, Path::new("/etc/iop/node.crt"));
    assert_eq!(key, Path::new("/keys/node.key"));
    assert_eq!(edge_ca, Path::new("/etc/iop/edge-ca.crt"));
    assert_eq!(config.reconnect.interval, Duration::from_secs(7));
    assert_eq!(config.reconnect.attempts, AttemptLimit::Exactly(NonZeroU32::new(3).unwrap()));
    assert_eq!((config.shards, config.cpus.as_slice()), (2, &[2, 3][..]));
    assert_eq!(config.logging, Logging { level: tracing::Level::DEBUG, format: LogFormat::Json });
    assert_eq!(config.metrics_listen, Some("127.0.0.1:9091".parse().unwrap()));
}

// req: REG-9
#[test]
fn a_join_bundle_is_the_same_tree_with_the_identity_inside() {
    let bundle = r#"
node:
  name: box1
edge:
  address: "[::1]:9443"
  name: edge-1
identity:
  cert_pem: |
    -----BEGIN CERTIFICATE-----
    AAAA
    -----END CERTIFICATE-----
  key_pem: |
    -----BEGIN PRIVATE KEY-----
    c2VudGluZWw=
    -----END PRIVATE KEY-----
  edge_ca_pem: |
    -----BEGIN CERTIFICATE-----
    BBBB
    -----END CERTIFICATE-----
"#;
    let config = parsed(bundle).unwrap();
    assert_eq!((config.edge.host.as_str(), config.edge.port), ("::1", 9443));
    let IdentitySource::Inline { cert_pem, key_pem, edge_ca_pem } = &config.identity else { panic!() };
    assert!(cert_pem.contains("AAAA") && edge_ca_pem.contains("BBBB"));
    assert!(key_pem.expose().contains("c2VudGluZWw="));
    assert!(!format!("{config:?}").contains("c2VudGluZWw="));
}

// req: SUP-3
#[test]
fn omitted_reconnect_keys_have_their_defaults() {
    let ten = AttemptLimit::Exactly(NonZeroU32::new(10).unwrap());
    let default = ReconnectPolicy { interval: Duration::from_secs(10), attempts: ten };
    assert_eq!(reconnect(""), default);
    assert_eq!(reconnect("reconnect: {}"), default);
    assert_eq!(reconnect("reconnect: { interval_sec: 1 }").attempts, ten);
    assert_eq!(reconnect("reconnect: { max_attempts: 0 }").interval, Duration::from_secs(10));
}

// req: SUP-3
#[test]
fn explicit_reconnect_values_mean_what_they_say() {
    assert_eq!(reconnect("reconnect: { max_attempts: 0 }").attempts, AttemptLimit::Unlimited);
    let one = AttemptLimit::Exactly(NonZeroU32::MIN);
    assert_eq!(reconnect("reconnect: { max_attempts: 1 }").attempts, one);
    let at_once = reconnect("reconnect: { interval_sec: 0, max_attempts: 1 }");
    assert_eq!(at_once, ReconnectPolicy { interval: Duration::ZERO, attempts: one });
}

// req: SUP-3
#[test]
fn wrong_reconnect_values_are_refused_with_their_place() {
    for (line, expected) in [
        (
            "reconnect: { max_attempts: -1 }",
            "node.yaml:5:28: reconnect.max_attempts: expected a positive number",
        ),
        (
            "reconnect: { interval_sec: -1 }",
            "node.yaml:5:28: reconnect.interval_sec: expected 0 to 86400 seconds",
        ),
        (
            "reconnect: { interval_sec: 0, max_attempts: 0 }",
            "node.yaml:5:28: reconnect.interval_sec: expected a positive",
        ),
        (
            "reconnect: { interval_sec: 90000 }",
            "reconnect.interval_sec: expected 0 to 86400 seconds, found 90000",
        ),
        ("reconnect: { max_attempts: 4294967296 }", "reconnect.max_attempts: expected a positive number"),
        ("reconnect: { max_attempts: ten }", "node.yaml:5:28: expected an integer without quotes or unit"),
    ] {
        let told = complaint(line);
        assert!(told.contains(expected), "{line}: {told}");
    }
}

#[test]
fn unknown_and_repeated_keys_are_refused_with_line_and_column() {
    for (line, expected) in [
        ("adapters: []", "node.yaml:5:1: unknown key `adapters`; the keys here are node, edge, identity"),
        (
            "metrics: { listen: \"\", port: 1 }",
            "node.yaml:5:24: unknown key `port`; the keys here are listen",
        ),
        ("logging: { level: info, level: warn }", "the key `level` stands here a second time"),
    ] {
        let told = complaint(line);
        assert!(told.contains(expected), "{line}: {told}");
    }
}

#[test]
fn all_problems_of_a_file_are_told_together() {
    let text = r#"
node: { name: "Box 1" }
edge: { address: "edge", name: edge-1 }
identity: { cert_file: node.crt, key_pem: "x" }
shards: 0
cpus: [1, 1, 5000]
logging: { level: loud, format: xml }
metrics: { listen: "9091" }
"#;
    let told = parsed(text).unwrap_err();
    let keys: Vec<_> = told.problems.iter().map(|problem| problem.key.as_str()).collect();
    let expected = [
        "node.name",
        "edge.address",
        "identity",
        "shards",
        "cpus[1]",
        "cpus[2]",
        "logging.level",
        "logging.format",
        "metrics.listen",
    ];
    assert_eq!(keys, expected, "{told}");
    let missing = parsed("shards: 1\n").unwrap_err().to_string();
    assert!(missing.contains("node.name: missing") && missing.contains("edge.address: missing"), "{missing}");
    assert!(missing.contains("identity: missing"), "{missing}");
}

#[test]
fn a_wrong_secret_is_never_repeated() {
    let told = complaint("reconnect: { interval_sec: hunter2sentinel }");
    assert!(!told.contains("hunter2sentinel"), "{told}");
    let typed = LEAST.replace("key_file: node.key", "key_pem: [hunter2sentinel]");
    let told = parsed(&typed).unwrap_err().to_string();
    assert!(!told.contains("hunter2sentinel"), "{told}");
}

#[test]
fn addresses_need_a_host_and_a_port() {
    for (address, good) in [
        ("edge.example.org:9443", true),
        ("10.0.0.1:1", true),
        ("[::1]:9443", true),
        ("edge.example.org", false),
        ("edge.example.org:0", false),
        ("10.0.0.1:0", false),
        (":9443", false),
        ("::1:9443", false),
        ("http://edge:9443", false),
        ("edge:+443", false),
        ("edge:70000", false),
    ] {
        let text = LEAST.replace("127.0.0.1:9443", address);
        assert_eq!(parsed(&text).is_ok(), good, "{address}");
    }
}

#[test]
fn the_shipped_example_loads() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs/node.yaml");
    let config = load(&file).unwrap();
    assert_eq!(config.reconnect, reconnect(""));
}

// req: SUP-2
#[test]
fn identity_files_that_cannot_be_used_are_told_by_key_and_path() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("node.yaml");
    fs::write(&file, LEAST).unwrap();
    let config = load(&file).unwrap();
    let error = identity::load(&config).unwrap_err();
    assert!(error.to_string().starts_with("cannot read identity.cert_file"), "{error}");
    for name in ["node.crt", "node.key", "edge-ca.crt"] {
        fs::write(directory.path().join(name), "no pem at all").unwrap();
    }
    assert!(matches!(identity::load(&config), Err(identity::IdentityError::Own(_))));
}
