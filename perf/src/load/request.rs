//! The bytes of requests.

use std::borrow::Cow;
use std::sync::Arc;

use serde::Serialize;

use super::Config;

/// What prompts are made of; ASCII without anything that JSON escapes.
const SENTENCE: &str = "Tell me about streams of tokens that cross a gateway. ";

/// What one request asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ask {
    /// Length of the user message. Unit: bytes.
    pub prompt_bytes: usize,
    /// The provider's script, sent as `user`.
    pub script: String,
    /// Content events that a good reply has, no more and no less.
    pub content_events: u64,
}

/// The requests of a run: one for all, or each its own.
#[derive(Debug)]
pub(super) struct Requests {
    config: Config,
    asks: Arc<[Ask]>,
    usual: Vec<u8>,
    /// A prompt as long as the longest: others are its beginning.
    text: String,
}

/// One request, ready to be sent.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Ready<'a> {
    pub(super) bytes: Cow<'a, [u8]>,
    pub(super) content_events: Option<u64>,
}

impl Requests {
    pub(super) fn new(config: &Config) -> Self {
        let longest = config.asks.iter().map(|ask| ask.prompt_bytes).max().unwrap_or(0);
        Self {
            config: config.clone(),
            asks: Arc::clone(&config.asks),
            usual: request(config),
            text: prompt(longest),
        }
    }

    /// The request at this place of the schedule.
    pub(super) fn at(&self, index: usize) -> Ready<'_> {
        match self.asks.get(index) {
            Some(ask) => {
                let prompt = self.text.get(..ask.prompt_bytes).unwrap_or_default();
                let bytes = put(&self.config, prompt, Some(&ask.script));
                Ready { bytes: Cow::Owned(bytes), content_events: Some(ask.content_events) }
            }
            None => self.usual(),
        }
    }

    /// The request of all that ask for nothing of their own.
    pub(super) fn usual(&self) -> Ready<'_> {
        Ready { bytes: Cow::Borrowed(&self.usual), content_events: None }
    }
}

/// The bytes of the request that every worker sends.
pub(crate) fn request(config: &Config) -> Vec<u8> {
    put(config, &prompt(config.prompt_bytes), config.script.as_deref())
}

fn prompt(bytes: usize) -> String {
    let mut text = SENTENCE.repeat(bytes.div_ceil(SENTENCE.len()));
    text.truncate(bytes);
    text
}

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    messages: [Message<'a>; 1],
    stream: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    stream_options: Option<StreamOptions>,
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<String>,
}

#[derive(Serialize)]
struct Message<'a> {
    role: &'static str,
    content: &'a str,
}

#[derive(Serialize)]
struct StreamOptions {
    include_usage: bool,
}

fn put(config: &Config, prompt: &str, script: Option<&str>) -> Vec<u8> {
    let usage = config.stream && config.include_usage;
    let body = Body {
        model: &config.model,
        messages: [Message { role: "user", content: prompt }],
        stream: config.stream,
        stream_options: usage.then_some(StreamOptions { include_usage: true }),
        user: script.map(|script| format!("perf:{script}")),
    };
    // Strings and booleans always are JSON.
    let body = serde_json::to_vec(&body).unwrap_or_default();
    let mut head = format!(
        "POST {} HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\naccept: */*\r\nuser-agent: iop-perf\r\n\
         content-length: {}\r\n",
        config.target.path,
        config.target.host,
        body.len()
    );
    if let Some(token) = &config.token {
        head.push_str(&format!("authorization: Bearer {token}\r\n"));
    }
    if !config.keep_alive {
        head.push_str("connection: close\r\n");
    }
    head.push_str("\r\n");
    let mut bytes = head.into_bytes();
    bytes.extend_from_slice(&body);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> Config {
        Config {
            target: "http://127.0.0.1:9/v1".parse().unwrap(),
            token: Some("t".to_owned()),
            prompt_bytes: 100,
            script: Some("events=3".to_owned()),
            ..Config::default()
        }
    }

    #[test]
    fn request_carries_token_script_and_an_exact_length() {
        let text = String::from_utf8(request(&config())).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1:9\r\n"), "{head}");
        assert!(
            head.contains("authorization: Bearer t")
                && head.contains(&format!("content-length: {}", body.len()))
        );
        let json: serde_json::Value = serde_json::from_str(body).unwrap();
        assert_eq!(json["user"], "perf:events=3");
        assert_eq!(json["stream_options"]["include_usage"], true);
        assert_eq!(json["messages"][0]["content"].as_str().unwrap().len(), 100);
    }

    #[test]
    fn each_request_asks_for_its_own_and_those_beyond_for_the_usual() {
        let ask =
            |prompt_bytes, script: &str| Ask { prompt_bytes, script: script.to_owned(), content_events: 7 };
        let config = Config { asks: [ask(10, "events=7"), ask(5000, "events=8")].into(), ..config() };
        let requests = Requests::new(&config);
        let body = |index| -> serde_json::Value {
            let ready = requests.at(index);
            let at = ready.bytes.windows(4).position(|window| window == b"\r\n\r\n").unwrap() + 4;
            serde_json::from_slice(&ready.bytes[at..]).unwrap()
        };
        for (index, bytes, script) in
            [(0, 10, "perf:events=7"), (1, 5000, "perf:events=8"), (2, 100, "perf:events=3")]
        {
            let body = body(index);
            assert_eq!(body["messages"][0]["content"].as_str().unwrap().len(), bytes);
            assert_eq!(body["user"], script);
        }
        assert_eq!((requests.at(1).content_events, requests.at(2).content_events), (Some(7), None));
    }
}
