//! The commands as an operator runs them, and what they make put to use.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command as Process,
    sync::Arc,
};

use bytes::BytesMut;
use clap::Parser;
use dataplane::tls::{
    config::{Trust, edge_server_config, node_client_config, server_name},
    local::LocalIdentity,
    pem,
    refusal::Refusal,
    session::Session,
};
use proto::identity::{Role, TrustDomain, WorkloadId};
use rustls::{ClientConfig, ServerConfig};
use serde::Deserialize;
use tempfile::TempDir;
use x509_parser::parse_x509_certificate;

use super::{
    Command, PkiError,
    authority::{Authority, AuthorityError, BACKDATING, CA_LIFETIME, LEAF_LIFETIME},
    bundle::{Address, AddressError},
    execute::execute,
    inspect::inspect,
    store::{Batch, Settings, StoreError},
};

#[derive(Debug, Parser)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// A directory to work in, and its clock.
struct Bench {
    root: TempDir,
    now: u64,
}

impl Bench {
    fn new() -> Self {
        Self { root: tempfile::tempdir().unwrap(), now: dataplane::clock::unix_seconds() }
    }

    /// A bench after `pki init`.
    fn initialised() -> Self {
        let bench = Self::new();
        bench.run("init --dir $/pki --edge edge-1 --advertise edge.example.org:9443").unwrap();
        bench
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).unwrap()
    }

    /// Runs a command line; `$` stands for the directory.
    fn run(&self, line: &str) -> Result<String, PkiError> {
        let root = self.root.path().display().to_string();
        let words = line.split(' ').map(|word| word.replace('$', &root));
        let cli = Cli::try_parse_from(["pki".to_owned()].into_iter().chain(words))
            .unwrap_or_else(|e| panic!("{e}"));
        let mut out = Vec::new();
        execute(cli.command, self.now, &mut out).map(|()| String::from_utf8(out).unwrap())
    }

    fn files(&self, directory: &str) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(self.path(directory))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    fn edge(&self, node_ca: &str) -> Arc<ServerConfig> {
        let identity =
            LocalIdentity::load(&self.read("pki/edge.crt"), &self.read("pki/edge.key"), Role::Edge, None)
                .unwrap();
        edge_server_config(&identity, &trust(&self.read(node_ca))).unwrap()
    }
}

fn trust(pem_text: &[u8]) -> Trust {
    Trust::new(pem::certs(pem_text).unwrap()).unwrap()
}

/// What `iop-node run --join` reads.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct JoinFile {
    node: JoinNode,
    edge: JoinEdge,
    reconnect: JoinReconnect,
    identity: JoinIdentity,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct JoinReconnect {
    max_attempts: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct JoinNode {
    name: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct JoinEdge {
    address: String,
    name: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct JoinIdentity {
    cert_pem: String,
    key_pem: String,
    edge_ca_pem: String,
}

impl JoinFile {
    fn read(path: &Path) -> Self {
        serde_saphyr::from_str(&fs::read_to_string(path).unwrap()).unwrap()
    }

    fn client(&self) -> Arc<ClientConfig> {
        let (certificate, key) = (self.identity.cert_pem.as_bytes(), self.identity.key_pem.as_bytes());
        let name = self.node.name.parse().unwrap();
        let own = LocalIdentity::load(certificate, key, Role::Node, Some(&name)).unwrap();
        let edge = self.edge.name.parse().unwrap();
        node_client_config(&own, &trust(self.identity.edge_ca_pem.as_bytes()), edge).unwrap()
    }
}

/// Runs a handshake in memory: the Node's name as the Edge sees it, or the Edge's refusal.
fn join(node: Arc<ClientConfig>, edge: Arc<ServerConfig>) -> Result<WorkloadId, Refusal> {
    let mut node = Session::client(node, server_name("127.0.0.1")).unwrap();
    let mut edge = Session::server(edge).unwrap();
    let mut nothing = BytesMut::new();
    while node.wants_write() || edge.wants_write() {
        let mut bytes = Vec::new();
        node.flush(&mut bytes);
        edge.receive(&bytes, &mut nothing).map_err(|fault| fault.refusal())?;
        bytes.clear();
        edge.flush(&mut bytes);
        node.receive(&bytes, &mut nothing).map_err(|fault| fault.refusal())?;
    }
    Ok(edge.peer().unwrap().workload.clone())
}

// req: IDN-5
#[test]
fn init_and_issue_give_a_node_that_its_edge_accepts() {
    let bench = Bench::initialised();
    let said = bench.run("issue node box1 --dir $/pki --bundle $/box1.yaml").unwrap();
    assert!(said.contains("iop-node run --join"), "{said}");
    let file = JoinFile::read(&bench.path("box1.yaml"));
    assert_eq!((file.node.name.as_str(), file.edge.name.as_str()), ("box1", "edge-1"));
    assert_eq!(file.edge.address, "edge.example.org:9443");
    assert_eq!(
        file.reconnect.max_attempts, 0,
        "a box must come back by itself, however long its Edge was away"
    );
    let seen = join(file.client(), bench.edge("pki/node-ca.crt")).unwrap();
    assert_eq!(seen.to_uri(), "spiffe://iop.local/iop/node/box1");
}

// req: IDN-5, IDN-1
#[test]
fn deployments_do_not_accept_each_other() {
    let (one, two) = (Bench::initialised(), Bench::initialised());
    one.run("issue node box1 --dir $/pki --bundle $/box1.yaml").unwrap();
    let file = JoinFile::read(&one.path("box1.yaml"));
    assert_eq!(join(file.client(), two.edge("pki/node-ca.crt")), Err(Refusal::UnknownCa));
    // Nor does an Edge that by mistake trusts the edge CA for Nodes accept a Node.
    assert_eq!(join(file.client(), one.edge("pki/edge-ca.crt")), Err(Refusal::UnknownCa));
}

// req: IDN-5
#[test]
fn init_makes_exactly_its_files_with_their_modes() {
    let bench = Bench::initialised();
    let names =
        ["edge-ca.crt", "edge-ca.key", "edge.crt", "edge.key", "node-ca.crt", "node-ca.key", "pki.yaml"];
    assert_eq!(bench.files("pki"), names, "and no temporary file is left");
    let mode = |name: &str| bench.path(name).metadata().unwrap().permissions().mode() & 0o777;
    for name in names {
        let secret = name.ends_with(".key");
        let group_and_others = mode(&format!("pki/{name}")) & 0o077;
        assert_eq!(group_and_others == 0, secret, "{name}: {group_and_others:o}");
    }
    assert_eq!(mode("pki"), 0o700);
    bench.run("issue node box1 --dir $/pki --bundle $/box1.yaml").unwrap();
    bench.run("issue edge edge-2 --dir $/pki --out-cert $/e.crt --out-key $/e.key").unwrap();
    assert_eq!((mode("box1.yaml"), mode("e.key")), (0o600, 0o600));
}

// req: IDN-5
#[test]
fn nothing_is_overwritten() {
    let bench = Bench::initialised();
    let before: Vec<_> = bench.files("pki").iter().map(|name| bench.read(&format!("pki/{name}"))).collect();
    let refused = bench.run("init --dir $/pki --edge edge-1").unwrap_err();
    assert!(matches!(refused, PkiError::Store(StoreError::Exists(_))), "{refused:?}");
    assert!(refused.to_string().contains("edge-ca.crt exists already and is not overwritten"), "{refused}");
    // One file is enough, whichever it is, and no other appears.
    for name in ["edge.key", "pki.yaml"] {
        let partial = Bench::new();
        fs::create_dir(partial.path("pki")).unwrap();
        fs::write(partial.path("pki").join(name), "mine").unwrap();
        let refused = partial.run("init --dir $/pki --edge edge-1").unwrap_err();
        assert!(matches!(refused, PkiError::Store(StoreError::Exists(_))), "{refused:?}");
        assert_eq!(partial.files("pki"), [name]);
        assert_eq!(partial.read(&format!("pki/{name}")), b"mine");
    }
    // Not even a link that points nowhere is written through.
    std::os::unix::fs::symlink(bench.path("target"), bench.path("box1.yaml")).unwrap();
    let refused = bench.run("issue node box1 --dir $/pki --bundle $/box1.yaml").unwrap_err();
    assert!(matches!(refused, PkiError::Store(StoreError::Exists(_))), "{refused:?}");
    assert!(!bench.path("target").exists());
    let after: Vec<_> = bench.files("pki").iter().map(|name| bench.read(&format!("pki/{name}"))).collect();
    assert_eq!(before, after);
}

// req: IDN-5
#[test]
fn failed_command_leaves_no_file_behind() {
    let bench = Bench::initialised();
    // The certificate's directory is missing, and the key was written before.
    let failed =
        bench.run("issue edge e --dir $/pki --out-cert $/missing/e.crt --out-key $/e.key").unwrap_err();
    assert!(matches!(failed, PkiError::Store(StoreError::Write { .. })), "{failed:?}");
    assert_eq!(bench.files("."), ["pki"]);
}

#[test]
fn file_that_appears_meanwhile_is_not_overwritten() {
    let bench = Bench::new();
    let path = bench.path("late");
    let mut batch = Batch::begin(&[&path]).unwrap();
    fs::write(&path, "mine").unwrap();
    assert!(matches!(batch.write(&path, "ours", 0o600), Err(StoreError::Exists(_))));
    drop(batch);
    assert_eq!(bench.read("late"), b"mine");
    assert_eq!(bench.files("."), ["late"]);
}

// req: IDN-5
#[test]
fn certificates_have_the_documented_profile() {
    let bench = Bench::initialised();
    let text = bench.read("pki/edge.crt");
    let der = pem::certs(&text).unwrap().remove(0);
    let (_, leaf) = parse_x509_certificate(&der).unwrap();
    let usage = leaf.key_usage().unwrap().unwrap();
    assert!(usage.critical && usage.value.flags == 1, "digitalSignature and nothing else");
    let purposes = leaf.extended_key_usage().unwrap().unwrap().value;
    assert!(purposes.server_auth && purposes.client_auth && !purposes.any);
    assert!(!leaf.is_ca());
    let now = i64::try_from(bench.now).unwrap();
    let seconds = |duration: std::time::Duration| i64::try_from(duration.as_secs()).unwrap();
    assert_eq!(leaf.validity().not_before.timestamp(), now - seconds(BACKDATING));
    assert_eq!(leaf.validity().not_after.timestamp(), now + seconds(LEAF_LIFETIME));
    // The OIDs of ecPublicKey and prime256v1.
    let algorithm = &leaf.public_key().algorithm;
    assert_eq!(algorithm.algorithm.to_id_string(), "1.2.840.10045.2.1");
    let curve = algorithm.parameters.clone().unwrap().oid().unwrap();
    assert_eq!(curve.to_id_string(), "1.2.840.10045.3.1.7");

    for name in ["pki/edge-ca.crt", "pki/node-ca.crt"] {
        let der = pem::certs(&bench.read(name)).unwrap().remove(0);
        let (_, ca) = parse_x509_certificate(&der).unwrap();
        let constraints = ca.basic_constraints().unwrap().unwrap();
        assert!(constraints.critical && constraints.value.ca);
        assert_eq!(constraints.value.path_len_constraint, Some(0));
        let usage = ca.key_usage().unwrap().unwrap().value;
        assert!(usage.key_cert_sign() && usage.crl_sign() && !usage.digital_signature());
        assert_eq!(ca.validity().not_after.timestamp(), now + seconds(CA_LIFETIME));
    }
}

#[test]
fn serial_numbers_are_random_and_within_20_bytes() {
    let bench = Bench::initialised();
    let authority = Authority::load(&bench.read("pki/node-ca.crt"), &bench.read("pki/node-ca.key")).unwrap();
    let node = WorkloadId::new(TrustDomain::default(), Role::Node, "box1".parse().unwrap());
    let mut serials: Vec<_> = (0..50)
        .map(|_| {
            let text = authority.issue(&node, bench.now).unwrap().certificate;
            let der = pem::certs(text.as_bytes()).unwrap().remove(0);
            let (_, leaf) = parse_x509_certificate(&der).unwrap();
            assert!(leaf.raw_serial().len() <= 17);
            leaf.raw_serial().to_vec()
        })
        .collect();
    serials.sort();
    serials.dedup();
    assert_eq!(serials.len(), 50);
    assert!(serials.iter().filter(|serial| serial.len() >= 16).count() > 45, "128 bits, as a rule");
}

#[test]
fn leaf_does_not_outlive_its_ca() {
    let bench = Bench::initialised();
    let authority = Authority::load(&bench.read("pki/node-ca.crt"), &bench.read("pki/node-ca.key")).unwrap();
    let node = WorkloadId::new(TrustDomain::default(), Role::Node, "box1".parse().unwrap());
    let end = bench.now + CA_LIFETIME.as_secs();
    assert_eq!(authority.issue(&node, end - 60).unwrap().not_after, end);
    assert!(matches!(authority.issue(&node, end), Err(AuthorityError::Expired)));
}

#[test]
fn ca_files_that_do_not_belong_together_are_refused() {
    let bench = Bench::initialised();
    let load = |certificate: &str, key: &str| {
        Authority::load(&bench.read(&format!("pki/{certificate}")), &bench.read(&format!("pki/{key}")))
            .err()
            .unwrap()
    };
    assert!(matches!(load("node-ca.crt", "edge-ca.key"), AuthorityError::Mismatch));
    assert!(matches!(load("edge.crt", "edge.key"), AuthorityError::NotCa));
    assert!(matches!(load("edge-ca.key", "edge-ca.key"), AuthorityError::Certificate(_)));
    // A bundle of two CAs signs with the one that the key belongs to, wherever it stands.
    let both = [bench.read("pki/edge-ca.crt"), bench.read("pki/node-ca.crt")].concat();
    Authority::load(&both, &bench.read("pki/node-ca.key")).unwrap();
}

#[test]
fn node_without_an_address_is_refused_with_advice() {
    let bench = Bench::new();
    bench.run("init --dir $/pki --edge edge-1 --trust-domain example.org").unwrap();
    let refused = bench.run("issue node box1 --dir $/pki --bundle $/box1.yaml").unwrap_err();
    assert!(refused.to_string().contains("--advertise HOST:PORT"), "{refused}");
    bench
        .run("issue node box1 --dir $/pki --bundle $/box1.yaml --advertise [::1]:9443 --edge edge-2")
        .unwrap();
    let file = JoinFile::read(&bench.path("box1.yaml"));
    assert_eq!((file.edge.address.as_str(), file.edge.name.as_str()), ("[::1]:9443", "edge-2"));
    let report = inspect(file.identity.cert_pem.as_bytes(), bench.now).unwrap();
    assert!(report.text.contains("spiffe://example.org/iop/node/box1"));
}

#[test]
fn names_that_yaml_would_take_for_something_else_survive() {
    for name in ["1e5", "true", "null", "0x1f", "1_000", "12"] {
        let bench = Bench::new();
        bench.run(&format!("init --dir $/pki --edge {name} --advertise 127.0.0.1:9443")).unwrap();
        bench.run(&format!("issue node {name} --dir $/pki --bundle $/n.yaml")).unwrap();
        let file = JoinFile::read(&bench.path("n.yaml"));
        assert_eq!((file.node.name.as_str(), file.edge.name.as_str()), (name, name));
    }
}

#[test]
fn settings_survive_their_file() {
    for advertise in [None, Some("[2001:db8::1]:9443".parse().unwrap())] {
        let settings =
            Settings { edge: "edge-1".parse().unwrap(), trust_domain: TrustDomain::default(), advertise };
        assert_eq!(Settings::from_yaml(&settings.to_yaml()).unwrap(), settings);
    }
    assert!(Settings::from_yaml("edge: a\n").is_err());
    assert!(Settings::from_yaml("edge: \"A\"\ntrust_domain: \"x\"\n").is_err());
}

#[test]
fn addresses_are_judged_before_they_reach_a_host() {
    let good =
        ["edge.example.org:9443", "10.0.0.1:1", "[2001:db8::1]:65535", "edge_1:9443", "localhost:9443"];
    for text in good {
        assert_eq!(text.parse::<Address>().unwrap().as_str(), text);
    }
    let bad = [
        ("edge.example.org", AddressError::Form),
        (":9443", AddressError::Form),
        ("2001:db8::1:9443", AddressError::Form),
        ("[2001:db8::1:9443", AddressError::Form),
        ("edge:0", AddressError::Port),
        ("edge:+1", AddressError::Port),
        ("edge:65536", AddressError::Port),
        ("0.0.0.0:9443", AddressError::Unspecified),
        ("[::]:9443", AddressError::Unspecified),
        ("https://edge:9443", AddressError::Form),
        ("ed\"ge:9443", AddressError::Host),
        ("[edge]:9443", AddressError::Host),
    ];
    for (text, error) in bad {
        assert_eq!(text.parse::<Address>(), Err(error), "{text}");
    }
}

// req: IDN-5
#[test]
fn inspect_shows_identity_and_dates_of_files_and_join_files() {
    let bench = Bench::initialised();
    bench.run("issue node box1 --dir $/pki --bundle $/box1.yaml").unwrap();
    let shown = bench.run("inspect $/pki/edge.crt").unwrap();
    for expected in
        ["identity  spiffe://iop.local/iop/edge/edge-1\n", "role      edge\n", "29 days left", "serial"]
    {
        assert!(shown.contains(expected) || shown.contains("30 days left"), "{expected}: {shown}");
    }
    let shown = bench.run("inspect $/box1.yaml").unwrap();
    assert!(shown.contains("name      box1") && shown.contains("CA certificate, path length 0"), "{shown}");
    assert!(!shown.contains("PRIVATE"));
    assert!(bench.run("inspect $/pki/edge.key").is_err());
}

// req: IDN-5
#[test]
fn inspect_fails_for_what_a_peer_would_refuse() {
    let mut bench = Bench::initialised();
    bench.now += LEAF_LIFETIME.as_secs() + 1;
    let report = inspect(&bench.read("pki/edge.crt"), bench.now).unwrap();
    assert!(report.unfit == 1 && report.text.contains("expired (expired)"), "{}", report.text);
    assert!(matches!(bench.run("inspect $/pki/edge.crt"), Err(PkiError::Unfit(1))));
}

// req: CRD-6
#[test]
fn no_output_shows_key_material() {
    let bench = Bench::new();
    let mut said = bench.run("init --dir $/pki --edge edge-1 --advertise 127.0.0.1:9443").unwrap();
    said += &bench.run("issue node box1 --dir $/pki --bundle $/box1.yaml").unwrap();
    said += &bench.run("issue edge edge-2 --dir $/pki --out-cert $/e.crt --out-key $/e.key").unwrap();
    said += &bench.run("inspect $/box1.yaml").unwrap();
    said += &format!(
        "{:?}",
        Authority::create(Role::Node, &TrustDomain::default(), bench.now).map(|made| made.1)
    );
    let join_file = JoinFile::read(&bench.path("box1.yaml"));
    let mut keys = vec![join_file.identity.key_pem];
    for name in ["pki/edge-ca.key", "pki/node-ca.key", "pki/edge.key", "e.key"] {
        keys.push(String::from_utf8(bench.read(name)).unwrap());
    }
    let secret_lines = keys.iter().flat_map(|key| key.lines()).filter(|line| !line.starts_with("-----"));
    assert!(secret_lines.clone().count() >= 10);
    for line in secret_lines {
        assert!(!said.contains(line));
    }
}

/// The openssl lines of docs/security.md.
fn documented_openssl_lines() -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/security.md");
    let page = fs::read_to_string(page).unwrap();
    let (_, rest) =
        page.split_once("```sh\n# external-pki").expect("docs/security.md has the openssl example");
    rest.split_once("```").unwrap().0.to_owned()
}

// req: IDN-5
#[test]
fn certificate_of_an_external_pki_is_accepted() {
    if Process::new("openssl").arg("version").output().is_err() {
        assert!(std::env::var_os("CI").is_none(), "CI has openssl");
        return;
    }
    let mut bench = Bench::initialised();
    let script = format!("#{}", documented_openssl_lines());
    let made =
        Process::new("sh").args(["-eu", "-c", &script]).current_dir(bench.root.path()).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));

    // openssl dated it by its own clock, after the bench took its time.
    bench.now = dataplane::clock::unix_seconds();
    let shown = bench.run("inspect $/box1.crt").unwrap();
    assert!(shown.contains("spiffe://example.org/iop/node/box1"), "{shown}");
    let name = "box1".parse().unwrap();
    let own = LocalIdentity::load(&bench.read("box1.crt"), &bench.read("box1.key"), Role::Node, Some(&name))
        .unwrap();
    let node = || {
        node_client_config(&own, &trust(&bench.read("pki/edge-ca.crt")), "edge-1".parse().unwrap()).unwrap()
    };
    let seen = join(node(), bench.edge("node-ca.crt")).unwrap();
    assert_eq!((seen.role, seen.name.as_str()), (Role::Node, "box1"));
    // And openssl agrees with us about our own certificates.
    let chain = ["verify", "-x509_strict", "-CAfile", "pki/edge-ca.crt", "pki/edge.crt"];
    let agreed = Process::new("openssl").args(chain).current_dir(bench.root.path()).output().unwrap();
    assert!(agreed.status.success(), "{}", String::from_utf8_lossy(&agreed.stderr));
    // The external CA is trusted by nobody who was not told so.
    assert_eq!(join(node(), bench.edge("pki/node-ca.crt")), Err(Refusal::UnknownCa));
}
