//! Probes of a provider on a raw socket.
#![allow(clippy::unwrap_used, reason = "a test ends where something unexpected begins")]

mod support;

use std::{
    io::Read,
    net::{SocketAddr, TcpListener},
    rc::Rc,
    sync::{Arc, mpsc},
    time::Duration,
};

use dataplane::{
    clock,
    shard::{Shard, ShardSpec},
    tls::https::https_client_config,
};
use iop_node::{
    adapters::{AdapterSet, Provider as Providers, addresses::AddressBook},
    health::{PROBE_TIMEOUT, ProviderHealth, probe},
    metrics::Metrics,
    resolve,
};
use proto::message::{AdapterSettings, HealthCheck, NodeConfigPayload};
use rustls::{RootCertStore, time_provider::DefaultTimeProvider};
use support::{
    PATIENCE,
    node::config,
    provider::{Call, Provider},
};

/// A probe under way.
struct Probing {
    shard: Option<Shard>,
    found: mpsc::Receiver<(ProviderHealth, Duration, u64)>,
}

impl Probing {
    fn start(config: NodeConfigPayload, target: &'static str) -> Self {
        let (sent, found) = mpsc::channel();
        let spec = ShardSpec { name: "probe".to_owned(), cpu: None, driver: support::driver() };
        let names = resolve::start("t-prov", resolve::system).unwrap();
        let shard = Shard::start(spec, move || async move {
            let metrics = Rc::new(Metrics::new().unwrap());
            let tls =
                https_client_config(RootCertStore::empty().into(), Arc::new(DefaultTimeProvider)).unwrap();
            let providers = Providers::new(AddressBook::new(names.open().unwrap()), tls, metrics);
            let adapters = AdapterSet::build(&config).unwrap();
            let begun = clock::now();
            let found = probe(&providers, &adapters.find("vllm-1").unwrap(), target).await;
            sent.send((found, clock::now() - begun, providers.probes.open())).unwrap();
            // A shard that ends closes what its driver still gets to.
            dataplane::time::sleep_until(clock::now() + Duration::from_millis(50)).await;
        });
        Self { shard: Some(shard.unwrap()), found }
    }

    /// What it found, how long that took, and the connections that it left open.
    fn found(&self) -> (ProviderHealth, Duration, u64) {
        self.found.recv_timeout(PATIENCE).expect("the probe did not end")
    }
}

impl Drop for Probing {
    fn drop(&mut self) {
        if let Some(shard) = self.shard.take() {
            shard.join();
        }
    }
}

const LIST: &str = r#"{"object":"list","data":[{"id":"qwen3"}]}"#;

/// The Node closes its connection, though the provider would keep it.
fn closes(call: Call, status: &str, body: &str) {
    let mut stream = call.answer(status, body);
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    assert!(matches!(stream.read(&mut [0]), Ok(0) | Err(_)), "the connection was kept");
}

// req: STL-11
#[test]
fn a_probe_asks_for_the_models_with_the_configured_fields_alone_and_closes_its_connection() {
    let provider = Provider::start();
    let probing = Probing::start(config(provider.address, 1), "qwen3");
    let call = provider.call();
    assert_eq!(call.asked.line(), "GET /v1/models HTTP/1.1");
    assert_eq!(call.asked.field("host").unwrap(), provider.address.to_string());
    assert_eq!(call.asked.field("x-static"), Some("configured"));
    assert_eq!(call.asked.field("authorization"), None);
    closes(call, "200 OK", LIST);
    let (found, _, open) = probing.found();
    assert_eq!((found, open), (ProviderHealth::Available, 0));
}

// req: STL-11
#[test]
fn a_target_that_is_not_listed_an_error_of_the_server_and_a_refused_connection_are_unavailable() {
    let provider = Provider::start();
    let absent = Probing::start(config(provider.address, 1), "qwen3-coder");
    closes(provider.call(), "200 OK", LIST);
    assert_eq!(absent.found().0, ProviderHealth::Unavailable);
    let failing = Probing::start(config(provider.address, 1), "qwen3");
    closes(provider.call(), "503 Service Unavailable", "loading");
    assert_eq!(failing.found().0, ProviderHealth::Unavailable);
    assert_eq!(Probing::start(config(dead(), 1), "qwen3").found().0, ProviderHealth::Unavailable);
}

/// An address where nobody listens.
fn dead() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

// req: STL-11
#[test]
fn what_is_refused_redirected_broken_off_too_long_or_nothing_to_ask_is_unknown() {
    let provider = Provider::start();
    type Answered = fn(Call);
    let answers: [Answered; 6] = [
        |call| closes(call, "401 Unauthorized", LIST),
        |call| closes(call, "403 Forbidden", LIST),
        |call| closes(call, "302 Found", LIST),
        |mut call| call.say("HTTP/1.1 200 OK\r\nContent-Length: 60\r\n\r\n{\"data\":[]}"),
        |mut call| call.say("SSH-2.0-OpenSSH\r\n\r\n"),
        |mut call| {
            call.say("HTTP/1.1 200 OK\r\n\r\n");
            let piece = [b' '; 1 << 16];
            while std::io::Write::write_all(&mut call.stream, &piece).is_ok() {}
        },
    ];
    for (row, answer) in answers.into_iter().enumerate() {
        let probing = Probing::start(config(provider.address, 1), "qwen3");
        answer(provider.call());
        let (found, took, open) = probing.found();
        assert_eq!((found, open), (ProviderHealth::Unknown, 0), "row {row}");
        assert!(took < PROBE_TIMEOUT, "row {row} waited for the timeout");
    }
    let mut mute = config(provider.address, 1);
    let AdapterSettings::OpenAiCompat(settings) = &mut mute.adapters[0].settings else { unreachable!() };
    settings.profile.operations.remove(0);
    assert_eq!(Probing::start(mute, "qwen3").found().0, ProviderHealth::Unknown);
    provider.is_quiet();
}

/// The same, where a path and one token are looked at as well.
fn deep(provider: SocketAddr) -> NodeConfigPayload {
    let mut config = config(provider, 1);
    config.providers[0].health = HealthCheck { path: "/health".to_owned(), generation: true };
    config
}

// req: STL-11
#[test]
fn a_list_and_a_path_that_answer_over_a_dead_engine_do_not_make_it_available() {
    let provider = Provider::start();
    let generated = r#"{"choices":[{"message":{"content":"p"}}]}"#;
    for (status, body, expected) in [
        ("200 OK", generated, ProviderHealth::Available),
        ("500 Internal Server Error", "EngineDeadError", ProviderHealth::Unavailable),
        ("200 OK", "{}", ProviderHealth::Unknown),
    ] {
        let probing = Probing::start(deep(provider.address), "qwen3");
        closes(provider.call(), "200 OK", LIST);
        let call = provider.call();
        assert_eq!(call.asked.line(), "GET /health HTTP/1.1");
        closes(call, "204 No Content", "");
        let call = provider.call();
        assert_eq!(call.asked.line(), "POST /v1/chat/completions HTTP/1.1");
        assert_eq!(call.asked.field("x-static"), Some("configured"));
        let asked: serde_json::Value = serde_json::from_slice(&call.asked.body).unwrap();
        assert_eq!((&asked["model"], &asked["max_tokens"]), (&"qwen3".into(), &1.into()));
        closes(call, status, body);
        assert_eq!(probing.found().0, expected, "{status} {body}");
    }
    // What is known to be down is not asked any further.
    let probing = Probing::start(deep(provider.address), "qwen3");
    closes(provider.call(), "200 OK", LIST);
    closes(provider.call(), "503 Service Unavailable", "");
    assert_eq!(probing.found().0, ProviderHealth::Unavailable);
    provider.is_quiet();
}

// req: STL-11, STL-4
#[test]
fn a_provider_that_does_not_answer_is_unknown_after_five_seconds_and_the_connection_is_closed() {
    let provider = Provider::start();
    let probing = Probing::start(config(provider.address, 1), "qwen3");
    let call = provider.call();
    let (found, took, open) = probing.found();
    assert_eq!((found, open), (ProviderHealth::Unknown, 0));
    assert!(took >= PROBE_TIMEOUT && took < PROBE_TIMEOUT + Duration::from_secs(1), "{took:?}");
    drop(call.wait_for_close());
}
