//! A Node in this process, on a shard of its own, with everything but the command line and the signals.

use std::{
    net::SocketAddr,
    num::NonZeroU32,
    rc::Rc,
    sync::{Arc, mpsc},
    time::Duration,
};

use bytes::Bytes;
use dataplane::{
    mailbox::{self, Sender},
    relay::LinkLimits,
    shard::{Shard, ShardSpec, spawn_guarded},
    tls::https::https_client_config,
};
use iop_node::{
    adapters::{Provider, addresses::AddressBook},
    config::{AttemptLimit, EdgeTarget, ReconnectPolicy},
    daemon::{self, Shutdown},
    metrics::Metrics,
    resolve,
    run::assembly::AssemblyBudget,
    session::Context,
    supervisor::Exit,
};
use proto::message::{
    AdapterConfig, AdapterSettings, Header, HealthCheck, NodeConfigPayload, OllamaConfig, OpenAiCompatConfig,
    Operation, ProfileOperation, ProtocolProfile, ProviderConfig, RunRequest, StreamNo, TunnelRequest,
};
use rustls::{ClientConfig, RootCertStore, time_provider::DefaultTimeProvider};

use super::PATIENCE;

/// How a Node under test differs from the usual one.
pub struct Setup {
    pub name: &'static str,
    pub edge: SocketAddr,
    pub tls: Arc<ClientConfig>,
    pub policy: ReconnectPolicy,
    pub grace: Duration,
    pub limits: LinkLimits,
    pub assembling_bytes_max: u64,
    /// Who may sign the certificates of providers.
    pub roots: RootCertStore,
}

impl Setup {
    pub fn new(edge: SocketAddr, tls: Arc<ClientConfig>) -> Self {
        Self {
            name: "box1",
            edge,
            tls,
            policy: policy(0, Duration::from_millis(50)),
            grace: Duration::from_secs(30),
            limits: Context::link_limits(),
            assembling_bytes_max: 64 * 1024 * 1024,
            roots: RootCertStore::empty(),
        }
    }
}

pub fn policy(attempts: u32, interval: Duration) -> ReconnectPolicy {
    let attempts = NonZeroU32::new(attempts).map_or(AttemptLimit::Unlimited, AttemptLimit::Exactly);
    ReconnectPolicy { interval, attempts }
}

/// A running Node.
pub struct Node {
    pub metrics: Metrics,
    signals: Sender<()>,
    exit: mpsc::Receiver<Exit>,
    shard: Option<Shard>,
}

impl Node {
    pub fn start(setup: Setup) -> Self {
        let metrics = Metrics::new().unwrap();
        let (signals, seed) = mailbox::for_shard(16).unwrap();
        let (sent, exit) = mpsc::channel();
        let names = [resolve::start("t-edge", resolve::system), resolve::start("t-prov", resolve::system)];
        let shown = metrics.clone();
        let spec = ShardSpec { name: "node".to_owned(), cpu: None, driver: super::driver() };
        let shard = Shard::start(spec, move || async move {
            let [edge_names, provider_names] = names.map(|seed| seed.unwrap().open().unwrap());
            let metrics = Rc::new(shown);
            let provider_tls =
                https_client_config(Arc::new(setup.roots), Arc::new(DefaultTimeProvider)).unwrap();
            let provider = Provider::new(AddressBook::new(provider_names), provider_tls, Rc::clone(&metrics));
            let edge = EdgeTarget {
                host: setup.edge.ip().to_string(),
                port: setup.edge.port(),
                name: "edge-1".parse().unwrap(),
            };
            let context = Context {
                name: setup.name.parse().unwrap(),
                edge,
                tls: setup.tls,
                token: String::new(),
                resolver: edge_names,
                provider: Rc::new(provider),
                metrics,
                budget: AssemblyBudget::new(setup.assembling_bytes_max),
                limits: setup.limits,
            };
            let shutdown = Shutdown::default();
            let told = shutdown.clone();
            let mut inbox = seed.open().unwrap();
            spawn_guarded(async move {
                let mut batch = Vec::new();
                loop {
                    inbox.receive(&mut batch, 16).await;
                    batch.drain(..).for_each(|()| told.signal());
                }
            });
            let _test_over =
                sent.send(daemon::supervise(&context, setup.policy, setup.grace, &shutdown).await);
            // A process that exits closes its sockets; a shard that ends closes what its driver still gets to.
            dataplane::time::sleep_until(dataplane::clock::now() + Duration::from_millis(50)).await;
        })
        .unwrap();
        Self { metrics, signals, exit, shard: Some(shard) }
    }

    pub fn signal(&self) {
        self.signals.send(()).unwrap();
    }

    /// How it ends.
    pub fn exit(&self) -> Exit {
        self.exit.recv_timeout(PATIENCE).expect("the node did not end")
    }

    pub fn is_running(&self) -> bool {
        self.exit.try_recv().is_err()
    }

    /// Panics of the Node's tasks so far.
    pub fn panics(&self) -> u64 {
        self.shard.as_ref().unwrap().tasks.panicked()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _full = self.signals.send(());
        let _full = self.signals.send(());
        if let Some(shard) = self.shard.take() {
            shard.join();
        }
    }
}

/// A configuration with one adapter `vllm-1` and one provider, at `provider`.
pub fn config(provider: SocketAddr, capacity: u32) -> NodeConfigPayload {
    let operation = |operation, method: &str, path: &str| ProfileOperation {
        operation,
        method: method.to_owned(),
        url: format!("http://{provider}{path}"),
    };
    let profile = ProtocolProfile {
        id: "vllm".to_owned(),
        driver: "openai_chat".to_owned(),
        base_url: format!("http://{provider}/v1"),
        operations: vec![
            operation(Operation::Models, "GET", "/v1/models"),
            operation(Operation::ChatCompletions, "POST", "/v1/chat/completions"),
        ],
        capabilities: vec!["chat".to_owned(), "streaming".to_owned()],
    };
    let headers = vec![Header::new("x-static", "configured").unwrap()];
    let settings = OpenAiCompatConfig { provider_label: "vllm".to_owned(), profile, headers };
    NodeConfigPayload {
        config_generation: 1,
        concurrency: 0,
        adapters: vec![AdapterConfig {
            name: "vllm-1".to_owned(),
            enabled: true,
            capacity,
            settings: AdapterSettings::OpenAiCompat(settings),
        }],
        providers: vec![ProviderConfig {
            id: "box1-vllm".to_owned(),
            adapter: "vllm-1".to_owned(),
            category: "local_inference".to_owned(),
            models: vec!["qwen3".to_owned()],
            enabled: true,
            capacity,
            response_stall_timeout_ms: 300_000,
            request_timeout_ms: 0,
            health: HealthCheck::default(),
        }],
    }
}

/// The same with an Ollama adapter `ollama-1` beside it, on the same address.
pub fn config_with_ollama(provider: SocketAddr, capacity: u32, context_size: u32) -> NodeConfigPayload {
    let mut config = config(provider, capacity);
    let base_url = format!("http://{provider}/");
    config.adapters.push(AdapterConfig {
        name: "ollama-1".to_owned(),
        enabled: true,
        capacity,
        settings: AdapterSettings::Ollama(OllamaConfig { base_url, context_size }),
    });
    config
}

/// A normalized run with this input, all of it inside the request.
pub fn run(stream: StreamNo, input: &str) -> RunRequest {
    RunRequest {
        stream,
        run_id: format!("run-{stream}"),
        adapter: "ollama-1".to_owned(),
        target: "qwen3:8b".to_owned(),
        input: Bytes::copy_from_slice(input.as_bytes()),
        input_bytes: input.len() as u64,
        metadata: Default::default(),
        session_id: String::new(),
        timeout_sec: 0,
        response_stall_timeout_ms: 300_000,
        window_bytes: 256 * 1024,
        credential: None,
    }
}

/// A chat completion with this body, all of it inside the request.
pub fn chat(stream: StreamNo, body: &'static str) -> TunnelRequest {
    TunnelRequest {
        stream,
        run_id: format!("run-{stream}"),
        adapter: "vllm-1".to_owned(),
        target: "qwen3".to_owned(),
        method: "POST".to_owned(),
        path: String::new(),
        headers: vec![Header::new("content-type", "application/json").unwrap()],
        body: Bytes::from_static(body.as_bytes()),
        body_bytes: body.len() as u64,
        stream_response: true,
        timeout_sec: 0,
        metadata: Default::default(),
        operation: Some(Operation::ChatCompletions),
        session_id: String::new(),
        response_stall_timeout_ms: 300_000,
        window_bytes: 256 * 1024,
        credential: None,
        provider_auth: None,
    }
}
