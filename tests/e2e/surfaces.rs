//! Responses, messages and what goes with them: the same bytes in both directions, an end that proves itself, and failures in the
//! language of whoever asks.

use anyhow::ensure;
use iop_tests::{
    Edge, EdgeYaml, Process, ProviderYaml, Site,
    http::{self, Answer, Raw},
    scripted::{Call, Scripted},
};
use serde_json::{Value, json};

use crate::support::{NODE, SOON, eventually, metric, site, start_node, yaml};

/// Served by OpenAI's profile, which has chat completions and responses.
const GPT: &str = "gpt/x:1";
/// Served by Anthropic's.
const CLAUDE: &str = "claude-x";
/// What the provider calls it.
const SERVED: &str = "served/claude \"x\"";

const CHAT_STREAM: &str = ": hello\n\ndata: {\"choices\":[{\"delta\":{\"reasoning\":\"hm\",\"x_unknown\":1.50}}],\"token_ids\":[1]}\n\n\
    data: {\"choices\":[]}\n\ndata: [DONE]\n\n";
const RESPONSES_STREAM: &str = "event: response.created\r\ndata: {\"type\":\"response.created\",\"sequence_number\":0}\r\n\r\n\
    event: response.output_text.delta\r\ndata: {\"delta\":\"\u{4f60}\u{1f30d}\",\"x\":1e2}\r\n\r\n\
    event: response.completed\r\ndata: {\"type\":\"response.completed\"}\r\n\r\n";
const MESSAGES_STREAM: &str = "event: message_start\ndata: {\"type\":\"message_start\"}\n\nevent: ping\ndata: {\"type\": \"ping\"}\n\n\
    event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"delta\":{\"text\":\"\u{4f60}\"}}\n\n\
    event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n";

/// A route, its model, its label, and a stream of it.
const SURFACES: [(&str, &str, &str, &str); 3] = [
    ("/v1/chat/completions", GPT, "chat_completions", CHAT_STREAM),
    ("/v1/responses", GPT, "responses", RESPONSES_STREAM),
    ("/v1/messages", CLAUDE, "messages", MESSAGES_STREAM),
];

struct Rig {
    _node: Process,
    edge: Edge,
    site: Site,
    server: Scripted,
}

impl Rig {
    fn start() -> anyhow::Result<Self> {
        Self::with("", "")
    }

    fn with(openai: &str, pool: &str) -> anyhow::Result<Self> {
        let site = site()?;
        let server = Scripted::bind()?;
        let provider = |id: &str, model: &str, profile: &str| ProviderYaml {
            extra: format!("profile: {profile}"),
            capacity: 1,
            ..ProviderYaml::new(id, NODE, &server.base_url().unwrap_or_default(), model)
        };
        let mapped = format!(
            "protocol_profiles:\n  mapped: {{ base: anthropic, model_mapping: {{ {CLAUDE}: {} }} }}\n",
            Value::from(SERVED)
        );
        let yaml = yaml().with(provider("p1", GPT, "openai")).with(provider("p2", CLAUDE, "mapped"));
        let (openai, pool) = (openai.to_owned(), pool.to_owned());
        let routes = ["model: direct, adapter: p1-adapter", "model: claude-direct, adapter: p2-adapter"];
        let routes = routes.iter().map(|route| format!("{route}, target: served")).collect();
        let edge = site.edge(&EdgeYaml { extra: mapped, openai, pool, routes, ..yaml })?;
        let (node, _) = start_node(&site, NODE, &edge.node)?;
        Ok(Self { _node: node, edge, site, server })
    }

    fn client(&self) -> anyhow::Result<Raw> {
        Raw::connect(&self.edge.http)
    }

    /// Sends a request with further fields, each with its line end.
    fn send(&self, method: &str, path: &str, fields: &str, body: &str) -> anyhow::Result<Raw> {
        let mut client = self.client()?;
        let length =
            if body.is_empty() { String::new() } else { format!("content-length: {}\r\n", body.len()) };
        client.send(format!(
            "{method} {path} HTTP/1.1\r\nhost: edge\r\nauthorization: Bearer {}\r\n{fields}{length}\r\n{body}",
            self.site.token()
        ))?;
        Ok(client)
    }

    fn ask(&self, method: &str, path: &str, fields: &str, body: &str) -> anyhow::Result<Answer> {
        self.send(method, path, fields, body)?.answer()
    }

    /// A request that reaches the provider.
    fn begin(&mut self, path: &str, fields: &str, body: &str) -> anyhow::Result<(Raw, Call)> {
        let client = self.send("POST", path, fields, body)?;
        Ok((client, self.server.next_call()?))
    }

    fn outcome(&self, route: &str, outcome: &str) -> anyhow::Result<f64> {
        metric(&self.edge, &format!("iop_edge_requests_total{{outcome=\"{outcome}\",route=\"{route}\"}}"))
    }

    fn counts(&self, route: &str, outcome: &str) -> anyhow::Result<()> {
        eventually(SOON, outcome, || Ok(self.outcome(route, outcome)? == 1.0))
    }
}

fn request(model: &str, stream: bool) -> String {
    // Both blanks and the order of members are the client's own.
    format!("{{ \"stream\":{stream}, \"n\":1.0,\"model\" : {},\"x\":[\"\\u597d\"]}}", Value::from(model))
}

fn chunked(body: &str) -> String {
    format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\nx-theirs: 1\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n",
        body.len()
    )
}

fn with_length(status: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// Checks an error in the shape of its surface, and gives its type.
fn told(answer: &Answer, route: &str, status: u16) -> anyhow::Result<String> {
    ensure!(answer.status == status, "{}\n{}", answer.head, answer.text());
    let body = answer.json()?;
    let error = &body["error"];
    ensure!(error["message"].as_str().is_some_and(|message| !message.is_empty()), "{body}");
    ensure!(answer.header("request-id") == answer.header("x-request-id"), "{}", answer.head);
    if route == "messages" {
        ensure!(
            body["type"] == "error" && body["request_id"].as_str() == answer.header("request-id"),
            "{body}"
        );
    } else {
        ensure!(error.as_object().is_some_and(|keys| keys.len() == 4), "{body}");
    }
    Ok(error["type"].as_str().unwrap_or_default().to_owned())
}

// req: TUN-3, TUN-5, PRF-6
#[test]
fn every_surface_passes_both_ways_byte_for_byte_but_for_the_models_name() -> anyhow::Result<()> {
    let mut rig = Rig::start()?;
    for (path, model, route, stream) in SURFACES {
        // Cases 05, 06 and 09: whatever a provider sends is what the client gets.
        let body = request(model, true);
        let (mut client, mut call) = rig.begin(&format!("{path}?beta=true"), "", &body)?;
        assert!(call.head.starts_with(&format!("POST {path} HTTP/1.1\r\n")), "{}", call.head);
        let served = if model == CLAUDE { SERVED } else { GPT };
        let expected = body.replace(&Value::from(model).to_string(), &Value::from(served).to_string());
        assert_eq!(String::from_utf8_lossy(&call.body), expected, "{route}");
        call.write(chunked(stream).as_bytes())?;
        let answer = client.answer()?;
        assert_eq!((answer.status, answer.whole, answer.text().as_str()), (200, true, stream), "{route}");
        assert_eq!((answer.header("x-theirs"), answer.header("x-iop-attempts")), (Some("1"), Some("1")));
        assert!(answer.header("openai-processing-ms").is_some_and(|ms| ms.parse::<u64>().is_ok()));
        rig.server.keep(call);

        // In one piece, and a refusal of the provider's own (case 07).
        for (status, answered) in
            [("200 OK", "{\"x\":1.50}"), ("429 Too Many", "{\"type\":\"error\",\"e\":1}")]
        {
            let (mut client, mut call) = rig.begin(path, "", &request(model, status.starts_with('4')))?;
            call.write(with_length(status, answered).as_bytes())?;
            let answer = client.answer()?;
            assert!(status.starts_with(&answer.status.to_string()) && answer.text() == answered, "{route}");
            rig.server.keep(call);
        }
        eventually(SOON, "they are counted", || Ok(rig.outcome(route, "ok")? == 3.0))?;
    }
    Ok(())
}

// req: TUN-6
#[test]
fn a_provider_gets_the_versions_and_betas_that_it_knows_and_no_credential() -> anyhow::Result<()> {
    let mut rig = Rig::start()?;
    let fields = format!(
        "x-api-key: {}\r\nanthropic-version: 2026-10-21\r\nanthropic-beta: a-1,  B_2\r\norigin: https://page.test\r\n",
        rig.site.token()
    );
    for (path, model, _, _) in SURFACES {
        let (mut client, mut call) = rig.begin(path, &fields, &request(model, false))?;
        let head = call.head.to_ascii_lowercase();
        assert!(head.contains("\r\nanthropic-version: 2026-10-21\r\n"), "{head}");
        assert_eq!(call.head.contains("\r\nanthropic-beta: a-1,  B_2\r\n"), model == CLAUDE, "{head}");
        for secret in ["authorization", "x-api-key", "origin", rig.site.token()] {
            assert!(!head.contains(secret), "{secret}: {head}");
        }
        call.write(with_length("200 OK", "{}").as_bytes())?;
        assert_eq!(client.answer()?.status, 200);
        rig.server.keep(call);
    }
    Ok(())
}

// req: API-1
#[test]
fn a_stream_without_its_last_event_is_broken_off_as_its_surface_wants_it() -> anyhow::Result<()> {
    let mut rig = Rig::start()?;
    for (path, model, route, stream) in SURFACES {
        // Its framing ends well, and its last event is not there.
        let separator = if stream.contains('\r') { "\r\n\r\n" } else { "\n\n" };
        let before = stream.trim_end().rsplit_once(separator).map_or(0, |(before, _)| before.len());
        let cut = &stream[..before + separator.len()];
        let (mut client, mut call) = rig.begin(path, "", &request(model, true))?;
        call.write(chunked(cut).as_bytes())?;
        let answer = client.answer()?;
        let text = answer.text();
        assert!(!answer.whole, "the body must not end as if it were complete: {text}");
        let added = text.strip_prefix(cut).unwrap_or_else(|| panic!("{text}"));
        let events: Vec<_> = added.trim_end().split("\n\n").collect();
        let data = |event: &str| -> anyhow::Result<Value> {
            Ok(serde_json::from_str(event.rsplit("data: ").next().unwrap_or_default())?)
        };
        match (route, &*events) {
            ("chat_completions", [error]) => assert_eq!(data(error)?["error"]["code"], "upstream_error"),
            ("messages", [error]) => {
                assert!(error.starts_with("event: error\n"), "{error}");
                assert_eq!(data(error)?["error"]["type"], "api_error");
                assert_eq!(data(error)?["request_id"].as_str(), answer.header("request-id"));
            }
            ("responses", [error, failed, "data: [DONE]"]) => {
                assert!(
                    error.starts_with("event: error\n") && failed.starts_with("event: response.failed\n")
                );
                // Two events came before.
                assert_eq!(
                    (&data(error)?["sequence_number"], &data(failed)?["sequence_number"]),
                    (&json!(2), &json!(3))
                );
                assert_eq!(data(failed)?["response"]["error"]["code"], "server_error");
            }
            _ => panic!("{added}"),
        }
        rig.counts(route, "upstream_truncated")?;
        rig.server.keep(call);
    }
    Ok(())
}

// req: API-1
#[test]
fn a_client_that_leaves_after_the_last_event_has_had_its_answer() -> anyhow::Result<()> {
    let mut rig = Rig::start()?;
    for (path, model, route, stream) in SURFACES {
        let (mut client, mut call) = rig.begin(path, "", &request(model, true))?;
        let whole = chunked(stream);
        // The provider's own end is still to come.
        call.write(whole.strip_suffix("0\r\n\r\n").unwrap_or_default().as_bytes())?;
        let last = stream.trim_end().rsplit("data: ").next().unwrap_or_default();
        client.wait_for(last)?;
        drop(client);
        rig.counts(route, "ok")?;
        assert_eq!(rig.outcome(route, "client_gone")?, 0.0, "{route}");
        drop(call);
    }
    Ok(())
}

// req: API-2, POL-5
#[test]
fn a_refusal_is_told_in_the_language_of_its_surface() -> anyhow::Result<()> {
    let mut rig = Rig::with("", "queue_timeout_ms: 200, max_queue: 1")?;
    for (path, model, route, stream) in SURFACES {
        let is_messages = route == "messages";
        let kind =
            |openai: &'static str, anthropic: &'static str| if is_messages { anthropic } else { openai };
        // No model, no token, no sense, nothing there, and no such method.
        let unknown = rig.ask("POST", path, "", &request("none", true))?;
        assert_eq!(told(&unknown, route, 404)?, kind("invalid_request_error", "not_found_error"));
        assert_eq!(unknown.header("x-should-retry"), Some("false"));
        let mut client = rig.client()?;
        client.send(http::post(path, "wrong", request(model, true).as_bytes()))?;
        assert_eq!(
            told(&client.answer()?, route, 401)?,
            kind("invalid_request_error", "authentication_error")
        );
        assert_eq!(told(&rig.ask("POST", path, "", "{")?, route, 400)?, "invalid_request_error");
        let below = rig.ask("GET", &format!("{path}/none"), "", "")?;
        assert_eq!(told(&below, route, 404)?, kind("invalid_request_error", "not_found_error"));
        let wrong = rig.ask("GET", path, "", "")?;
        assert_eq!(told(&wrong, route, 405)?, "invalid_request_error");
        assert_eq!(wrong.header("allow"), Some("POST, OPTIONS"));
        // A provider that speaks another language, and no chat, is none.
        if !is_messages {
            let unservable = rig.ask("POST", path, "", &request(CLAUDE, true))?;
            assert_eq!(told(&unservable, route, 503)?, "server_error");
        }

        // Case 82: what waited too long is refused, and says when to come again; what finds the queue full, too.
        let (mut client, mut call) = rig.begin(path, "", &request(model, true))?;
        let mut waits = rig.send("POST", path, "", &request(model, true))?;
        eventually(SOON, "it waits", || {
            Ok(metric(&rig.edge, "iop_edge_queued")? == 1.0 || rig.outcome(route, "queue_timeout")? > 0.0)
        })?;
        let full = rig.ask("POST", path, "", &request(model, true))?;
        if full.status == 429 {
            assert_eq!(told(&full, route, 429)?, "rate_limit_error");
            assert_eq!(full.header("retry-after"), Some("2"));
        }
        let late = waits.answer()?;
        assert_eq!(told(&late, route, 503)?, kind("server_error", "overloaded_error"));
        assert_eq!(late.header("retry-after"), Some("5"));
        call.write(chunked(stream).as_bytes())?;
        assert!(client.answer()?.whole);
        rig.server.keep(call);

        // A provider that says nothing valid.
        let (mut client, mut call) = rig.begin(path, "", &request(model, true))?;
        call.write(b"none\r\n\r\n")?;
        call.end()?;
        let answer = client.answer()?;
        assert_eq!(told(&answer, route, 502)?, kind("server_error", "api_error"));
        assert!(answer.header("x-iop-provider").is_some());
    }
    Ok(())
}

// req: TUN-1
#[test]
fn tokens_are_counted_and_models_listed_while_every_slot_is_taken() -> anyhow::Result<()> {
    let mut rig = Rig::start()?;
    let (_client, _call) = rig.begin("/v1/messages", "", &request(CLAUDE, true))?;
    let (_other, _held) = rig.begin("/v1/responses", "", &request(GPT, true))?;
    let text = "word ".repeat(400);
    for (path, model, expected) in [
        ("/v1/messages/count_tokens?beta=true", CLAUDE, vec!["input_tokens"]),
        ("/anthropic/v1/messages/count_tokens", GPT, vec!["input_tokens"]),
        ("/v1/responses/input_tokens", GPT, vec!["input_tokens", "object"]),
        ("/v1/chat/completions/input_tokens", GPT, vec!["input_tokens", "object"]),
    ] {
        let body = json!({"model": model, "system": text, "messages": [{"role": "user", "content": text}]});
        let answer = rig.ask("POST", path, "", &body.to_string())?;
        assert_eq!((answer.status, answer.header("x-iop-token-count")), (200, Some("estimate")), "{path}");
        let counted = answer.json()?;
        let mut keys: Vec<_> = counted.as_object().into_iter().flat_map(|it| it.keys().cloned()).collect();
        keys.sort();
        assert_eq!(keys, expected, "{path}");
        assert!((700..1100).contains(&counted["input_tokens"].as_u64().unwrap_or(0)), "{path}: {counted}");
    }
    let none = rig.ask("POST", "/v1/messages/count_tokens", "", &request("none", false))?;
    assert_eq!(told(&none, "messages", 404)?, "not_found_error");

    let listing = rig.ask("GET", "/v1/models?limit=1", "anthropic-version: 2023-06-01\r\n", "")?.json()?;
    assert_eq!((&listing["data"][0]["id"], &listing["has_more"]), (&json!(GPT), &json!(true)));
    let all = rig.ask("GET", "/models?limit=1", "", "")?.json()?;
    assert_eq!(all["data"].as_array().map(Vec::len), Some(4));
    for path in ["/v1/models/gpt/x:1", "/v1/models/gpt%2Fx%3A1", "/anthropic/v1/models/gpt/x:1/"] {
        assert_eq!(rig.ask("GET", path, "", "")?.json()?["id"], GPT, "{path}");
    }
    let none = rig.ask("GET", "/anthropic/v1/models/none", "", "")?;
    assert_eq!(told(&none, "messages", 404)?, "not_found_error");
    Ok(())
}

// req: POL-12, TUN-5
#[test]
fn a_direct_model_is_served_by_what_its_adapter_speaks_and_refused_otherwise() -> anyhow::Result<()> {
    let mut rig = Rig::start()?;
    let (mut client, mut call) = rig.begin("/v1/responses", "", &request("direct", true))?;
    assert!(
        call.head.starts_with("POST /v1/responses ")
            && String::from_utf8_lossy(&call.body).contains("\"served\"")
    );
    call.write(chunked(RESPONSES_STREAM).as_bytes())?;
    assert_eq!(client.answer()?.text(), RESPONSES_STREAM);
    let answer = rig.ask("POST", "/v1/responses", "", &request("claude-direct", true))?;
    assert_eq!(told(&answer, "responses", 503)?, "server_error");
    assert_eq!(answer.header("x-should-retry"), Some("false"));
    rig.counts("responses", "unservable")
}

/// security.md section 3, rows 3 and 33.
#[test]
fn no_route_is_served_without_a_token_and_no_body_is_taken_for_a_request() -> anyhow::Result<()> {
    let rig = Rig::start()?;
    for path in [
        "/",
        "/v1",
        "/v1/models",
        "/models",
        "/v1/models/gpt/x:1",
        "/anthropic/v1/models",
        "/v1/messages",
        "/messages",
        "/anthropic/v1/messages",
        "/v1/messages/count_tokens",
        "/v1/responses",
        "/v1/responses/x",
        "/v1/responses/input_tokens",
        "/v1/chat/completions",
        "/v1/chat/completions/input_tokens",
        "/metrics",
        "/status",
        "/v1/../v1/messages",
        "/v1/%6dessages",
        "/v1/messages%2f",
        "/v1//messages/../../metrics",
    ] {
        for method in ["GET", "POST", "HEAD", "PUT", "DELETE", "PATCH", "OPTIONS"] {
            let mut client = rig.client()?;
            // The body would be a request of its own, with a token.
            let inner =
                format!("GET /v1/models HTTP/1.1\r\nhost: e\r\nx-api-key: {}\r\n\r\n", rig.site.token());
            let length = inner.len();
            client.send(format!("{method} {path} HTTP/1.1\r\nhost: e\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{inner}"))?;
            while client.fill()? > 0 {}
            let answers = String::from_utf8_lossy(client.buffered()).into_owned();
            let status = answers.get(9..12).unwrap_or_default();
            let open = method == "OPTIONS" || (method, path) == ("HEAD", "/");
            let expected: &[&str] = if open { &["204", "200"] } else { &["401", "404", "405"] };
            assert!(expected.contains(&status), "{method} {path}: {answers}");
            assert_eq!(answers.matches("HTTP/1.1 ").count(), 1, "{method} {path}: {answers}");
        }
    }
    Ok(())
}

#[test]
fn a_browser_is_told_what_it_may_ask_and_read() -> anyhow::Result<()> {
    let rig = Rig::with("  cors: { allowed_origins: [\"https://chat.example\"] }\n", "")?;
    let open = Rig::start()?;
    let preflight = "OPTIONS /v1/messages HTTP/1.1\r\nhost: e\r\norigin: https://chat.example\r\n\
        access-control-request-method: POST\r\naccess-control-request-headers: x-api-key,x-new\r\n\r\n";
    for (rig, origin) in [(&rig, "https://chat.example"), (&open, "*")] {
        // Without a token: a browser sends none.
        let mut client = rig.client()?;
        client.send(preflight)?;
        let head = client.read_head()?;
        let answer = Answer { status: 204, head, body: Vec::new(), whole: true };
        assert!(answer.head.starts_with("HTTP/1.1 204 "), "{}", answer.head);
        assert_eq!(answer.header("access-control-allow-origin"), Some(origin));
        assert_eq!(answer.header("access-control-allow-headers"), Some("x-api-key,x-new"));
        assert_eq!(answer.header("access-control-allow-methods"), Some("GET, POST, HEAD, OPTIONS"));
        let page = "origin: https://chat.example\r\n";
        for (method, path, status) in
            [("GET", "/v1/models", 200), ("GET", "/v1/nothing", 404), ("POST", "/v1/messages", 400)]
        {
            let answer = rig.ask(method, path, page, if method == "POST" { "{" } else { "" })?;
            assert_eq!((answer.status, answer.header("access-control-allow-origin")), (status, Some(origin)));
            assert!(
                answer.header("access-control-expose-headers").is_some_and(|it| it.contains("request-id"))
            );
        }
    }
    let stranger = rig.ask("GET", "/v1/models", "origin: https://evil.test\r\n", "")?;
    assert_eq!((stranger.status, stranger.header("access-control-allow-origin")), (200, None));
    assert_eq!(open.ask("GET", "/v1/models", "", "")?.header("access-control-allow-origin"), None);
    Ok(())
}

#[test]
fn a_probe_needs_no_token_and_a_head_has_no_body() -> anyhow::Result<()> {
    let rig = Rig::start()?;
    let mut client = rig.client()?;
    let token = rig.site.token();
    client.send("HEAD / HTTP/1.1\r\nhost: e\r\n\r\n")?;
    assert!(client.read_head()?.starts_with("HTTP/1.1 200 "));
    client.send(format!("HEAD /v1/models HTTP/1.1\r\nhost: e\r\nx-api-key: {token}\r\n\r\n"))?;
    let head = client.read_head()?.to_ascii_lowercase();
    assert!(head.starts_with("http/1.1 200 ") && head.contains("\r\ncontent-length: "), "{head}");
    // The next answer follows at once on the same connection.
    client.send(format!("HEAD /v1/messages HTTP/1.1\r\nhost: e\r\nx-api-key: {token}\r\n\r\n"))?;
    assert!(client.read_head()?.starts_with("HTTP/1.1 405 "));
    client.send("GET /v1/models HTTP/1.1\r\nhost: e\r\n\r\n")?;
    assert_eq!(client.answer()?.status, 401);
    Ok(())
}

/// What each surface says of 11 tokens that were read, 4 of them from a cache, and 7 that were written: streamed and in one piece.
const COUNTED: [(&str, &str); 3] = [
    (
        "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\ndata: {\"choices\":[],\"usage\":{\"prompt_tokens\":11,\
         \"completion_tokens\":7,\"prompt_tokens_details\":{\"cached_tokens\":4}}}\n\ndata: [DONE]\n\n",
        "{\"choices\":[],\"usage\":{\"prompt_tokens\":11,\"completion_tokens\":7,\"prompt_tokens_details\":{\"cached_tokens\":4}}}",
    ),
    (
        "event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"usage\":null}}\n\n\
         event: response.completed\ndata: {\"type\":\"response.completed\",\"response\":{\"usage\":{\"input_tokens\":11,\
         \"output_tokens\":7,\"input_tokens_details\":{\"cached_tokens\":4}}}}\n\ndata: [DONE]\n\n",
        "{\"usage\":{\"input_tokens\":11,\"output_tokens\":7,\"input_tokens_details\":{\"cached_tokens\":4}},\"user\":null}",
    ),
    (
        "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":900,\
         \"cache_read_input_tokens\":4,\"output_tokens\":1}}}\n\n\
         event: message_delta\ndata: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":5}}\n\n\
         event: message_delta\ndata: {\"type\":\"message_delta\",\"usage\":{\"input_tokens\":7,\"output_tokens\":7}}\n\n\
         event: ping\ndata: {\"type\":\"ping\"}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
        "{\"usage\":{\"input_tokens\":7,\"cache_read_input_tokens\":4,\"output_tokens\":7}}",
    ),
];

// Cases 69 and 70 of what users of such gateways report.
#[test]
fn every_surface_counts_the_same_tokens_streamed_and_in_one_piece() -> anyhow::Result<()> {
    let mut rig = Rig::start()?;
    let mut answers = 0.0;
    for ((path, model, route, _), (stream, whole)) in SURFACES.into_iter().zip(COUNTED) {
        for answered in [chunked(stream), with_length("200 OK", whole)] {
            let (mut client, mut call) =
                rig.begin(path, "", &request(model, answered.contains("chunked")))?;
            call.write(answered.as_bytes())?;
            ensure!(client.answer()?.whole, "{route}");
            rig.server.keep(call);
            answers += 1.0;
            let counts = |kind: &str, tokens: f64| -> anyhow::Result<()> {
                let series = format!("iop_edge_tokens_total{{kind=\"{kind}\"}}");
                eventually(SOON, &format!("{route} {kind}"), || {
                    Ok(metric(&rig.edge, &series)? == answers * tokens)
                })
            };
            counts("input", 11.0)?;
            counts("output", 7.0)?;
            counts("cached", 4.0)?;
        }
    }
    ensure!(metric(&rig.edge, "iop_edge_usage_total{state=\"known\"}")? == answers);
    Ok(())
}

// Cases 27 and 28.
#[test]
fn a_silent_stream_of_each_surface_hears_a_sign_of_life_of_its_own_and_only_between_events()
-> anyhow::Result<()> {
    let openai = "  keepalive: { comment_ms: 200, event_ms: 60000, tunnel: true }\n";
    let mut rig = Rig::with(openai, "")?;
    for (path, model, route, stream) in SURFACES {
        let sign = if route == "messages" { "event: ping\ndata: {\"type\": \"ping\"}\n\n" } else { ": ka\n" };
        // Each in a chunk of its own.
        let next = format!("\r\n{:x}\r\n{sign}", sign.len());
        let twice = format!("{sign}{next}");
        // Before the provider's head, and behind events of its own.
        let (mut client, mut call) = rig.begin(path, "", &request(model, true))?;
        client.wait_for(&twice)?;
        let separator = if stream.contains('\r') { "\r\n\r\n" } else { "\n\n" };
        // With the first content: what comes before it is held back.
        let content = stream.find("delta").unwrap_or_default();
        let end = stream[content..].find(separator).unwrap_or_default();
        let (first, rest) = stream.split_at(content + end + separator.len());
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
        call.write(format!("{head}{:x}\r\n{first}\r\n", first.len()).as_bytes())?;
        client.wait_for(&format!("{first}{next}{next}"))?;
        // Not in the middle of one, for as long as five would have come.
        let (half, rest) = rest.split_at(10);
        call.write(format!("{:x}\r\n{half}\r\n", half.len()).as_bytes())?;
        client.wait_for(half)?;
        std::thread::sleep(std::time::Duration::from_secs(1));
        call.write(format!("{:x}\r\n{rest}\r\n0\r\n\r\n", rest.len()).as_bytes())?;
        let answer = client.answer()?;
        let text = answer.text();
        assert_eq!((answer.status, answer.whole), (200, true), "{text}");
        assert!(text.starts_with(sign) && text.contains(&format!("{half}{rest}")), "{text}");
        let own = stream.matches(sign).count();
        assert_eq!(text.replace(sign, ""), stream.replace(sign, ""), "{route} has {own} of its own");
        rig.server.keep(call);

        // A provider's refusal that comes too late for a status.
        let (mut client, mut call) = rig.begin(path, "", &request(model, true))?;
        client.wait_for(sign)?;
        call.write(with_length("429 Too Many", "{\"secret\":1}").as_bytes())?;
        let answer = client.answer()?;
        let text = answer.text();
        assert_eq!((answer.status, answer.whole), (200, false), "{text}");
        let (last, kind) = match route {
            "chat_completions" => ("data: {\"error\":", "\"rate_limit_error\""),
            "responses" => ("event: response.failed\n", "\"server_error\""),
            _ => ("event: error\n", "\"rate_limit_error\""),
        };
        // A response that failed has an end, too.
        let text = if route == "responses" { text.trim_end_matches("data: [DONE]\n\n") } else { &text };
        let end = text.rfind(last).unwrap_or_else(|| panic!("{text}"));
        assert!(text[end..].contains(kind) && !text[end..].trim_end().contains("\n\n"), "{text}");
        assert!(!text.contains("secret") && !text.contains("[DONE]") && text.contains("429"), "{text}");
        rig.counts(route, "provider_status")?;
        rig.server.keep(call);
    }
    Ok(())
}
