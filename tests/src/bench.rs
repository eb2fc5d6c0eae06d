//! What the topics share: a running set of Edge, Node and provider, and questions to it.

use std::{
    hash::{BuildHasher, Hasher, RandomState},
    net::TcpListener,
    path::{Path, PathBuf},
    process::Output,
    sync::OnceLock,
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::{
    Edge, EdgeYaml, Process, Provider, ProviderYaml, Site,
    http::{self, Answer, Raw},
    random::Random,
};

/// How soon something that the product does at once must have been done, on a busy machine.
pub const SOON: Duration = Duration::from_secs(5);
/// How long a Node may take to come back: its interval is 1 s in these tests.
pub const RECONNECT: Duration = Duration::from_secs(15);
/// A Node's policy here: about a second between dials, without end.
pub const RETRY: &str = "reconnect: { interval_sec: 1, max_attempts: 0 }";
/// No event of the provider's for this long: it is held up.
const STILL: Duration = Duration::from_millis(400);
/// How long filling everything between provider and client may take.
const FILLED_WITHIN: Duration = Duration::from_secs(60);
/// The Node and the model of most tests.
pub const NODE: &str = "box1";
/// The model that clients ask for.
pub const MODEL: &str = "m1";

/// Where the product's programs are: in `IOP_TEST_BIN`, else beside the directory of this test's own executable.
pub fn bin() -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe()?;
    let beside = own.parent().and_then(Path::parent).context("the test executable is in target/*/deps")?;
    let bin = std::env::var_os("IOP_TEST_BIN").map_or_else(|| beside.to_owned(), PathBuf::from);
    for program in ["iop-edge", "iop-node", "iop-perf"] {
        ensure!(
            bin.join(program).exists(),
            "{} is missing: run `cargo build -p iop-edge -p iop-node -p iop-perf` first",
            bin.join(program).display()
        );
    }
    Ok(bin)
}

/// A site whose processes run on the driver that the environment names.
pub fn site() -> anyhow::Result<Site> {
    let mut site = Site::make(&bin()?)?;
    site.set_env("IOP_DRIVER", &driver().unwrap_or_default());
    Ok(site)
}

/// As [`site`], where the programs do what `IOP_TEST_` variables say: those without the hooks would silently do nothing of it.
pub fn hooked_site() -> anyhow::Result<Site> {
    static MISSING: OnceLock<Option<&str>> = OnceLock::new();
    let bin = bin()?;
    let has_hooks = |program: &&str| {
        let image = std::fs::read(bin.join(program)).unwrap_or_default();
        String::from_utf8_lossy(&image).contains("IOP_TEST_HEARTBEAT_INTERVAL_MS")
    };
    let missing = MISSING.get_or_init(|| ["iop-edge", "iop-node"].into_iter().find(|p| !has_hooks(p)));
    if let Some(program) = missing {
        bail!(
            "{} has no hooks for tests: run `cargo build --profile=fault -p iop-edge -p iop-node -p iop-perf \
             --features=iop-edge/test-hooks,iop-node/test-hooks` and set IOP_TEST_BIN to target/fault",
            bin.join(program).display()
        );
    }
    site()
}

/// The driver that the environment names.
pub fn driver() -> Option<String> {
    std::env::var("IOP_TEST_DRIVER").ok().filter(|driver| !driver.is_empty())
}

/// The number of shards that the environment names.
pub fn shards() -> usize {
    std::env::var("IOP_TEST_SHARDS").ok().and_then(|shards| shards.parse().ok()).unwrap_or(1)
}

/// Leaves a test out because of what this machine lacks; says so.
///
/// # Errors
/// `CI` is set: what has it is to prove everything.
pub fn skip(why: &str) -> anyhow::Result<()> {
    ensure!(
        std::env::var_os("CI").is_none_or(|ci| ci.is_empty()),
        "not to be left out where CI is set: {why}"
    );
    println!("skipped: {why}");
    Ok(())
}

/// Whether only what depends on shards and driver is asked for; says so.
pub fn is_matrix_only() -> bool {
    let only = std::env::var("IOP_TEST_MATRIX_ONLY").is_ok_and(|v| v == "1");
    if only {
        println!("skipped: IOP_TEST_MATRIX_ONLY");
    }
    only
}

/// An `edge.yaml` without models, with the shards that the environment names.
pub fn yaml() -> EdgeYaml {
    EdgeYaml { shards: shards(), ..EdgeYaml::new() }
}

/// A provider on [`NODE`] that serves [`MODEL`] and is called at `base_url`.
pub fn provider_at(base_url: &str) -> ProviderYaml {
    ProviderYaml::new("p1", NODE, base_url, MODEL)
}

/// Edge, Node and scripted provider, ready.
pub struct Bench {
    pub node: Process,
    /// `host:port` of the Node's metrics.
    pub node_ops: String,
    pub edge: Edge,
    pub provider: Provider,
    pub site: Site,
    /// Whether a panic of Edge or Node is what the test wants.
    pub panics: bool,
}

impl Bench {
    /// Four slots, defaults for the rest.
    pub fn start() -> anyhow::Result<Self> {
        Self::with(&[], |provider| provider, |edge| edge)
    }

    /// One slot, defaults for the rest.
    pub fn one_slot() -> anyhow::Result<Self> {
        Self::with(&[], |provider| ProviderYaml { capacity: 1, ..provider }, |edge| edge)
    }

    /// As the closures say.
    pub fn with(
        provider_args: &[&str],
        provider_yaml: impl FnOnce(ProviderYaml) -> ProviderYaml,
        edge_yaml: impl FnOnce(EdgeYaml) -> EdgeYaml,
    ) -> anyhow::Result<Self> {
        let site = site()?;
        let provider = site.provider(provider_args)?;
        let yaml = edge_yaml(yaml().with(provider_yaml(provider_at(&provider.base_url()))));
        let edge = site.edge(&yaml)?;
        let (node, node_ops) = start_node(&site, NODE, &edge.node)?;
        Ok(Self { node, node_ops, edge, provider, site, panics: false })
    }

    /// A connection of a client.
    pub fn client(&self) -> anyhow::Result<Raw> {
        Raw::connect(&self.edge.http)
    }

    /// The bytes of a chat completion request that steers the provider by `script`.
    pub fn request(&self, stream: bool, script: &str) -> Vec<u8> {
        http::chat_request(self.site.token(), &http::chat_body(MODEL, stream, script))
    }

    /// A connection on which such a request has been sent.
    pub fn begin(&self, stream: bool, script: &str) -> anyhow::Result<Raw> {
        let mut client = self.client()?;
        client.send(self.request(stream, script))?;
        Ok(client)
    }

    /// A whole exchange on a connection of its own.
    pub fn chat(&self, stream: bool, script: &str) -> anyhow::Result<Answer> {
        self.begin(stream, script)?.answer()
    }

    /// Starts the load generator against the Edge; [`report`] waits for its end.
    pub fn load(&self, args: &[&str]) -> anyhow::Result<std::process::Child> {
        let url = format!("http://{}", self.edge.http);
        let fixed = ["load", "--url", &url, "--token", self.site.token(), "--model", MODEL, "--json", "-"];
        let mut command = std::process::Command::new(self.site.program("iop-perf"));
        command.args(fixed).args(args).stdout(std::process::Stdio::piped());
        Ok(command.spawn()?)
    }

    /// What the provider has seen.
    pub fn stats(&self) -> anyhow::Result<Value> {
        stats(&self.provider)
    }

    /// One of the provider's counters.
    pub fn seen(&self, counter: &str) -> anyhow::Result<u64> {
        self.stats()?[counter].as_u64().with_context(|| counter.to_owned())
    }

    /// The value of one of the Edge's series, 0 when it has not come up yet.
    pub fn metric(&self, series: &str) -> anyhow::Result<f64> {
        metric(&self.edge, series)
    }

    /// The value of one of the Node's series.
    pub fn node_metric(&self, series: &str) -> anyhow::Result<f64> {
        node_metric(&self.node_ops, series)
    }

    /// Requests to the chat route with this outcome.
    pub fn outcomes(&self, outcome: &str) -> anyhow::Result<f64> {
        self.metric(&format!("iop_edge_requests_total{{outcome=\"{outcome}\",route=\"chat_completions\"}}"))
    }

    /// The provider as `/status` shows it.
    pub fn provider_status(&self) -> anyhow::Result<Value> {
        provider_status(&self.edge)
    }

    /// Waits until the provider can send nothing more, because everything between it and a client is full; gives when it
    /// last could.
    pub fn stands_still(&self) -> anyhow::Result<Instant> {
        let (mut events, mut since) = (0, Instant::now());
        eventually(FILLED_WITHIN, "the provider is held up", || {
            let now = self.seen("events_written")?;
            if now != events {
                (events, since) = (now, Instant::now());
            }
            Ok(events > 0 && since.elapsed() > STILL)
        })?;
        Ok(since)
    }

    /// Tasks of all shards of the Edge.
    pub fn edge_tasks(&self) -> anyhow::Result<f64> {
        sum(&self.edge, "iop_edge_shard_tasks{")
    }

    /// Waits until no slot is held, nobody waits and no request is active, at every place that counts.
    pub fn settles(&self) -> anyhow::Result<()> {
        eventually(SOON, "every slot is free", || {
            let provider = self.provider_status()?;
            let mut held = provider["in_flight"] != 0 || self.seen("requests_open")? != 0;
            for gauge in ["iop_edge_leases", "iop_edge_queued", "iop_edge_requests_active"] {
                held |= self.metric(gauge)? != 0.0;
            }
            held |= self
                .metric(&format!("iop_edge_provider_in_flight{{node=\"{NODE}\",provider=\"p1\"}}"))?
                != 0.0;
            Ok(!held)
        })
    }
}

/// No test wants to wait for a drain that it does not look at; and no test passes when a process has panicked.
impl Drop for Bench {
    fn drop(&mut self) {
        for process in [&mut self.node, &mut self.edge.process, &mut self.provider.process] {
            process.kill();
        }
        if std::thread::panicking() || self.panics {
            return;
        }
        for process in [&self.node, &self.edge.process] {
            let text = process.text();
            let panic = text.lines().find(|line| line.contains("panicked"));
            assert!(panic.is_none(), "a process of the product panicked: {panic:?}");
        }
    }
}

/// An address of this machine that is free, for a listener that is to come back to it. It is outside the range from which the
/// kernel takes the ports of outgoing connections, or one of those might have it in the meantime.
pub fn steady_address() -> anyhow::Result<String> {
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range")?;
    let mut ends = range.split_whitespace().map(str::parse::<u64>);
    let (lowest, highest) = (ends.next().context("the lowest port")??, ends.next().context("the highest")??);
    let (below, above) = (2048..lowest, highest + 1..1 << 16);
    let outside = if below.is_empty() { above } else { below };
    ensure!(!outside.is_empty(), "outgoing connections have all the ports from {lowest} to {highest}");
    let mut random = Random::new(RandomState::new().build_hasher().finish());
    for _ in 0..1000 {
        let address = format!("127.0.0.1:{}", random.within(outside.clone()));
        if TcpListener::bind(&address).is_ok() {
            return Ok(address);
        }
    }
    bail!("no port is free of {outside:?}")
}

/// Waits for a load's end and gives its report, in which every request is good.
pub fn report(load: std::process::Child) -> anyhow::Result<Value> {
    let output = load.wait_with_output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success(), "the load failed: {text}");
    Ok(serde_json::from_str(&text)?)
}

/// What a provider has seen.
pub fn stats(provider: &Provider) -> anyhow::Result<Value> {
    let address = provider.url.trim_start_matches("http://");
    http::get(address, "/stats", None)?.json()
}

/// Starts a Node whose metrics can be asked for, waits until it is ready, and gives it and the address of its metrics.
pub fn start_node(site: &Site, name: &str, edge: &str) -> anyhow::Result<(Process, String)> {
    start_node_with(site, name, edge, RETRY)
}

/// As [`start_node`], with another policy of reconnecting.
pub fn start_node_with(
    site: &Site,
    name: &str,
    edge: &str,
    reconnect: &str,
) -> anyhow::Result<(Process, String)> {
    let extra = format!("{reconnect}\nmetrics: {{ listen: \"127.0.0.1:0\" }}");
    let mut node = site.node_with(name, edge, &extra)?;
    node.wait_for("node ready")?;
    let address = node_ops(&node)?;
    Ok((node, address))
}

/// Where a Node that is up serves its metrics.
pub fn node_ops(node: &Process) -> anyhow::Result<String> {
    let line = node.line_with("metrics listening")?.context("the Node did not log its metrics' address")?;
    let address = line.split("address=").nth(1).and_then(|rest| rest.split_whitespace().next());
    Ok(address.with_context(|| line.clone())?.to_owned())
}

/// The value of one of the series of a Node whose metrics are served at `address`.
pub fn node_metric(address: &str, series: &str) -> anyhow::Result<f64> {
    let metrics = http::get(address, "/metrics", None)?;
    http::metric(&metrics.text(), series).with_context(|| format!("no {series} in {}", metrics.text()))
}

/// The value of one of an Edge's series, 0 when it has not come up yet.
pub fn metric(edge: &Edge, series: &str) -> anyhow::Result<f64> {
    let metrics = http::get(&edge.ops, "/metrics", None)?;
    ensure!(metrics.status == 200, "/metrics: {}", metrics.status);
    Ok(http::metric(&metrics.text(), series).unwrap_or(0.0))
}

/// The sum over those of an Edge's series that begin so.
pub fn sum(edge: &Edge, prefix: &str) -> anyhow::Result<f64> {
    let text = http::get(&edge.ops, "/metrics", None)?.text();
    let values = text.lines().filter(|line| line.starts_with(prefix));
    values.map(|line| Ok(line.rsplit(' ').next().context("a value")?.parse::<f64>()?)).sum()
}

/// The first Node as `/status` shows it.
pub fn node_status(edge: &Edge) -> anyhow::Result<Value> {
    Ok(http::get(&edge.ops, "/status", None)?.json()?["nodes"][0].clone())
}

/// The first provider of the first Node as `/status` shows it.
pub fn provider_status(edge: &Edge) -> anyhow::Result<Value> {
    Ok(node_status(edge)?["providers"][0].clone())
}

/// Asks again and again until the answer is yes.
pub fn eventually(
    within: Duration,
    what: &str,
    mut is_so: impl FnMut() -> anyhow::Result<bool>,
) -> anyhow::Result<()> {
    let end = Instant::now() + within;
    loop {
        if is_so()? {
            return Ok(());
        }
        if Instant::now() > end {
            bail!("not within {within:?}: {what}");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Hexadecimal SHA-256.
pub fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Checks an error in OpenAI's shape: all four keys, and this code.
#[track_caller]
pub fn assert_error(answer: &Answer, status: u16, code: Option<&str>) {
    assert_eq!(answer.status, status, "{}\n{}", answer.head, answer.text());
    assert_eq!(answer.header("content-type"), Some("application/json"), "{}", answer.head);
    assert!(answer.header("x-request-id").is_some_and(|id| !id.is_empty()), "{}", answer.head);
    let body = answer.json().unwrap_or_else(|error| panic!("{error:#}"));
    let error = &body["error"];
    let mut keys: Vec<_> = error.as_object().into_iter().flat_map(|o| o.keys().cloned()).collect();
    keys.sort();
    assert_eq!(keys, ["code", "message", "param", "type"], "{body}");
    assert_eq!(error["code"].as_str(), code, "{body}");
    assert!(error["message"].as_str().is_some_and(|m| !m.is_empty()), "{body}");
}

/// Checks a stream that began and failed: one error event at its end, no `[DONE]`, a broken end.
#[track_caller]
pub fn assert_broken_stream(answer: &Answer, code: &str) {
    let text = answer.text();
    assert_eq!(answer.status, 200, "{text}");
    assert!(!answer.whole, "the body must not end as if it were complete: {text}");
    assert!(!answer.is_done(), "{text}");
    let errors = answer.error_events();
    assert_eq!(errors.len(), 1, "{text}");
    assert_eq!(errors[0]["code"], code, "{text}");
    let last = answer.events().pop().unwrap_or_default();
    assert!(last.contains("\"error\""), "the error event comes last: {text}");
}

/// Runs a program of the product to its end.
pub fn run(site: &Site, program: &str, args: &[&str]) -> anyhow::Result<(i32, String)> {
    let Output { status, stdout, stderr } =
        std::process::Command::new(site.program(program)).args(args).current_dir(site.dir()).output()?;
    let text = format!("{}{}", String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    Ok((status.code().context("ended by a signal")?, text))
}
