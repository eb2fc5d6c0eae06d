//! Providers that say no: a request that is too long for them, or one that they have no place for, is no fault of theirs (cases 37 and
//! 38 of what users of such gateways report).

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use anyhow::ensure;
use iop_tests::{
    Edge, EdgeYaml, Process, ProviderYaml, Site,
    http::{self, Answer, Raw},
};
use serde_json::Value;

use crate::support::{MODEL, NODE, SOON, eventually, metric, site, start_node, sum, yaml};

/// A body longer than this is a prompt that the engine does not take.
const PROMPT_BYTES_MAX: usize = 4096;
const TOO_LONG: &str = r#"{"error":{"message":"This model's maximum context length is 1024 tokens. However, you requested 2000 tokens.","type":"BadRequestError","param":"input_tokens","code":400}}"#;
const QUEUE_FULL: &str =
    r#"{"object":"error","message":"The request queue is full.","type":"SERVICE_UNAVAILABLE","code":503}"#;
const ANSWER: &str = r#"{"id":"c","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"hi"},"finish_reason":"stop"}]}"#;

/// An engine that looks at what it is sent.
#[derive(Default)]
struct Engine {
    is_full: AtomicBool,
    /// It says by a 500 that a prompt is too long.
    blames_itself: AtomicBool,
    asked: AtomicUsize,
}

impl Engine {
    /// Serves until the process ends; gives its base URL.
    fn start() -> anyhow::Result<(Arc<Self>, String)> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let url = format!("http://{}/v1", listener.local_addr()?);
        let engine = Arc::new(Self::default());
        let own = Arc::clone(&engine);
        std::thread::spawn(move || {
            for connection in listener.incoming().map_while(Result::ok) {
                let engine = Arc::clone(&own);
                std::thread::spawn(move || engine.answer(connection));
            }
        });
        Ok((engine, url))
    }

    fn answer(&self, connection: TcpStream) -> std::io::Result<()> {
        let mut reader = BufReader::new(connection);
        let (mut line, mut length) = (String::new(), 0);
        while reader.read_line(&mut line)? > 2 {
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap_or(0);
            }
            line.clear();
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        self.asked.fetch_add(1, Ordering::Relaxed);
        let is_set = |flag: &AtomicBool| flag.load(Ordering::Relaxed);
        let (status, more, body) = match () {
            () if is_set(&self.is_full) => ("503 Service Unavailable", "retry-after: 7\r\n", QUEUE_FULL),
            () if length > PROMPT_BYTES_MAX && is_set(&self.blames_itself) => {
                ("500 Internal Server Error", "", TOO_LONG)
            }
            () if length > PROMPT_BYTES_MAX => ("400 Bad Request", "", TOO_LONG),
            () => ("200 OK", "", ANSWER),
        };
        write!(
            reader.get_mut(),
            "HTTP/1.1 {status}\r\ncontent-type: application/json\r\n{more}connection: close\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }
}

/// `p1`, which is asked first, and `p2`, behind one Node.
struct Pair {
    site: Site,
    edge: Edge,
    _node: Process,
    first: Arc<Engine>,
    second: Arc<Engine>,
}

impl Pair {
    fn start() -> anyhow::Result<Self> {
        let ((first, first_url), (second, second_url)) = (Engine::start()?, Engine::start()?);
        let site = site()?;
        let on = |id: &str, url: &str, extra: &str| ProviderYaml {
            extra: extra.to_owned(),
            ..ProviderYaml::new(id, NODE, url, MODEL)
        };
        let yaml: EdgeYaml =
            yaml().with(on("p1", &first_url, "priority: 0")).with(on("p2", &second_url, "priority: 1"));
        let edge = site.edge(&yaml)?;
        let (node, _ops) = start_node(&site, NODE, &edge.node)?;
        Ok(Self { site, edge, _node: node, first, second })
    }

    fn ask(&self, stream: bool, words: usize) -> anyhow::Result<Answer> {
        let mut body = http::chat_body(MODEL, stream, "");
        body["messages"][0]["content"] = "word ".repeat(words).into();
        let mut client = Raw::connect(&self.edge.http)?;
        client.send(http::chat_request(self.site.token(), &body))?;
        client.answer()
    }

    /// Both are what they were, every slot is free, and a request is served by the one that is asked first.
    fn is_untouched(&self) -> anyhow::Result<()> {
        eventually(SOON, "every slot is free", || Ok(metric(&self.edge, "iop_edge_leases_held")? == 0.0))?;
        let status: Value = http::get(&self.edge.ops, "/status", None)?.json()?;
        let providers = status["nodes"][0]["providers"].as_array().cloned().unwrap_or_default();
        ensure!(providers.len() == 2, "{status}");
        for provider in &providers {
            assert_eq!(provider["status"], "available", "{status}");
            assert_eq!(provider["health"], "healthy", "{status}");
            assert_eq!(provider["overlay"], Value::Null, "{status}");
            assert_eq!(provider["reason"], Value::Null, "{status}");
        }
        // No evidence of any kind was made of it.
        assert_eq!(sum(&self.edge, "iop_edge_provider_health_transitions_total{")?, 0.0);
        let before = self.second.asked();
        let answer = self.ask(false, 1)?;
        assert_eq!((answer.status, answer.header("x-iop-provider")), (200, Some("p1")), "{}", answer.text());
        assert_eq!(self.second.asked(), before);
        Ok(())
    }
}

/// Case 37.
// req: SEG-8, SEG-6, HND-4
#[test]
fn fifty_prompts_that_are_too_long_change_no_providers_health() -> anyhow::Result<()> {
    let pair = Pair::start()?;
    for number in 0..50 {
        let by_500 = number % 2 == 1;
        pair.first.blames_itself.store(by_500, Ordering::Relaxed);
        let answer = pair.ask(number % 4 < 2, 2000)?;
        assert_eq!(answer.status, if by_500 { 500 } else { 400 });
        assert!(answer.text().contains("maximum context length"), "{}", answer.text());
        assert_eq!(answer.header("x-iop-provider"), Some("p1"));
    }
    // Every provider would say the same: none other was asked.
    assert_eq!((pair.first.asked(), pair.second.asked()), (50, 0));
    pair.is_untouched()
}

/// Case 38.
// req: SEG-8, SEG-6, HND-4
#[test]
fn a_provider_that_is_full_is_passed_on_as_such_and_serves_as_soon_as_it_is_not() -> anyhow::Result<()> {
    let pair = Pair::start()?;
    pair.first.is_full.store(true, Ordering::Relaxed);
    for number in 0..20 {
        let answer = pair.ask(number % 2 == 0, 1)?;
        assert_eq!((answer.status, answer.header("retry-after")), (503, Some("7")), "{}", answer.text());
        assert!(answer.text().contains("queue is full"), "{}", answer.text());
        assert_eq!(answer.header("x-iop-provider"), Some("p1"));
    }
    assert_eq!((pair.first.asked(), pair.second.asked()), (20, 0));
    pair.first.is_full.store(false, Ordering::Relaxed);
    pair.is_untouched()
}
