//! What is asked of which kind of adapter. Pure.
//!
//! The fields are those of a request of this provider: the configured ones, its credential among them, and nothing of a caller.

use std::{collections::BTreeSet, path::PathBuf, rc::Rc};

use bytes::Bytes;
use dataplane::http::head::Headers;
use proto::message::{HealthCheck, NodeConfigPayload, Operation};
use serde_json::json;

use super::judge::Proof;
use crate::adapters::{
    Adapter, Kind,
    ollama::Ollama,
    openai_compat::{
        self, OpenAiCompat,
        endpoint::{Endpoint, Origin},
    },
};

/// What is said to a model that is to generate.
const SAID: &str = "ping";

/// How a provider is probed.
#[derive(Debug)]
pub enum Plan {
    /// By these requests, in their order, all of which must speak for it.
    Http(Vec<Question>),
    /// By looking whether this program is there.
    Program(PathBuf),
    /// Not at all: nothing that it could be asked would say that it serves the target.
    None,
}

/// One request of a probe.
#[derive(Debug)]
pub struct Question {
    /// How its answer is read.
    pub proof: Proof,
    /// What is sent.
    pub request: Request,
}

/// A request of our own to a provider.
#[derive(Clone, Debug)]
pub struct Request {
    /// HTTP method.
    pub method: String,
    /// Whom to dial.
    pub origin: Origin,
    /// Value of `Host`.
    pub authority: Rc<str>,
    /// Request target in origin form.
    pub target: String,
    /// Fields, none of the message's framing.
    pub fields: Headers,
    /// Empty for none.
    pub body: Bytes,
}

/// What a probe looks at for whom: of one provider on an adapter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checks {
    /// The targets of the provider.
    targets: Vec<String>,
    /// What is configured for it.
    health: HealthCheck,
}

impl Checks {
    /// Those of the providers of `config` on the adapter that `is_named` knows by its name.
    #[must_use]
    pub fn of(config: &NodeConfigPayload, is_named: impl Fn(&str) -> bool) -> Vec<Self> {
        let providers = config.providers.iter().filter(|provider| is_named(&provider.adapter));
        providers.map(|it| Self { targets: it.models.clone(), health: it.health.clone() }).collect()
    }

    /// What is to be looked at for `target`: everything that is configured of the providers that serve it, or, when none says so
    /// (a direct route), of all on the adapter.
    fn wanted<'a>(all: &'a [Self], target: &str) -> (BTreeSet<&'a str>, bool) {
        let serves = |checks: &Self| checks.targets.iter().any(|served| served == target);
        let is_named = all.iter().any(serves);
        let counting = all.iter().filter(|checks| !is_named || serves(checks)).map(|checks| &checks.health);
        let paths = counting.clone().map(|health| health.path.as_str()).filter(|path| !path.is_empty());
        (paths.collect(), counting.clone().any(|health| health.generation))
    }
}

/// How `adapter`'s provider is asked for `target`.
#[must_use]
pub fn plan(adapter: &Adapter, target: &str) -> Plan {
    match &adapter.kind {
        Kind::OpenAiCompat(openai) => openai_compat(openai, &adapter.checks, target),
        Kind::Ollama(ollama) => self::ollama(ollama, &adapter.checks, target),
        Kind::Cli(cli) => Plan::Program(cli.program().to_owned()),
        Kind::Unusable(_) => Plan::None,
    }
}

/// The list of models, the configured path, one token: what of it the profile and the configuration offer. A path alone speaks for
/// no target.
fn openai_compat(adapter: &OpenAiCompat, checks: &[Checks], target: &str) -> Plan {
    let (paths, generation) = Checks::wanted(checks, target);
    let endpoints = adapter.endpoints();
    let endpoint = |operation| endpoints.iter().find(|endpoint| endpoint.operation == operation);
    let mut questions = Vec::new();
    if let Some(models) = endpoint(Operation::Models) {
        questions.push(Question::of(models, adapter, Proof::Listed, Bytes::new()));
    }
    for path in paths {
        let Some(any) = endpoints.first() else { return Plan::None };
        let question = Question::of(any, adapter, Proof::Answers, Bytes::new());
        let request = Request { method: "GET".to_owned(), target: path.to_owned(), ..question.request };
        questions.push(Question { request, ..question });
    }
    if generation {
        let operations = [Operation::ChatCompletions, Operation::Messages, Operation::Responses];
        let Some(generates) = operations.into_iter().find_map(endpoint) else { return Plan::None };
        let body = one_token(generates.operation, target);
        questions.push(Question::of(generates, adapter, Proof::Generates, body));
    }
    let is_of_target = questions.iter().any(|question| question.proof != Proof::Answers);
    if is_of_target { Plan::Http(questions) } else { Plan::None }
}

/// The list of models, which Ollama has in OpenAI's form, too, and one token by its own API.
fn ollama(adapter: &Ollama, checks: &[Checks], target: &str) -> Plan {
    let (_, generation) = Checks::wanted(checks, target);
    let listed = Request::plain(adapter.models_endpoint(), Bytes::new());
    let mut questions = vec![Question { proof: Proof::Listed, request: listed }];
    if generation {
        // Another window than that of requests would have the server load the model anew.
        let options = match adapter.context_size() {
            0 => json!({ "num_predict": 1 }),
            window => json!({ "num_predict": 1, "num_ctx": window }),
        };
        let messages = json!([{ "role": "user", "content": SAID }]);
        let body = json!({ "model": target, "messages": messages, "stream": false, "options": options });
        let request = Request::plain(adapter.chat_endpoint(), body.to_string().into());
        questions.push(Question { proof: Proof::Generates, request });
    }
    Plan::Http(questions)
}

impl Question {
    fn of(endpoint: &Endpoint, adapter: &OpenAiCompat, proof: Proof, body: Bytes) -> Self {
        let fields = adapter.own_fields(!body.is_empty());
        Self { proof, request: Request { fields, ..Request::plain(endpoint, body) } }
    }
}

impl Request {
    /// With no fields but those of a JSON body.
    #[must_use]
    pub fn plain(endpoint: &Endpoint, body: Bytes) -> Self {
        Self {
            method: endpoint.method.clone(),
            origin: endpoint.origin.clone(),
            authority: Rc::clone(&endpoint.authority),
            target: endpoint.target.clone(),
            fields: openai_compat::fields::own_fields(&Headers::new(), !body.is_empty()),
            body,
        }
    }
}

/// A request for as little text as the operation can give.
fn one_token(operation: Operation, target: &str) -> Bytes {
    /// The least that OpenAI's responses take.
    const RESPONSES_MIN: u32 = 16;
    let messages = json!([{ "role": "user", "content": SAID }]);
    let body = match operation {
        Operation::Responses => {
            json!({ "model": target, "input": SAID, "max_output_tokens": RESPONSES_MIN, "store": false })
        }
        _ => json!({ "model": target, "messages": messages, "max_tokens": 1, "stream": false }),
    };
    body.to_string().into()
}

#[cfg(test)]
mod tests {
    use proto::message::{
        AdapterConfig, AdapterSettings, OllamaConfig, OpenAiCompatConfig, ProfileOperation, ProtocolProfile,
        ProviderConfig,
    };

    use super::*;
    use crate::adapters::AdapterSet;

    /// The adapter `a` with these operations, and providers on it: what they serve, their path, whether they generate.
    fn adapter(operations: &[Operation], providers: &[(&str, &str, bool)]) -> Rc<Adapter> {
        let operations = operations.iter().map(|operation| ProfileOperation {
            operation: *operation,
            method: if *operation == Operation::Models { "GET" } else { "POST" }.to_owned(),
            url: format!("http://box:8000/v1/{operation}"),
        });
        let profile = ProtocolProfile { operations: operations.collect(), ..ProtocolProfile::default() };
        let settings = OpenAiCompatConfig { profile, ..OpenAiCompatConfig::default() };
        let adapters = vec![AdapterConfig {
            name: "a".to_owned(),
            enabled: true,
            capacity: 1,
            settings: AdapterSettings::OpenAiCompat(settings),
        }];
        let providers =
            providers.iter().map(|(target, path, generation)| provider("a", target, path, *generation));
        let providers = providers.collect();
        let config = NodeConfigPayload { adapters, providers, ..NodeConfigPayload::default() };
        AdapterSet::build(&config).unwrap().find("a").unwrap()
    }

    fn provider(adapter: &str, target: &str, path: &str, generation: bool) -> ProviderConfig {
        ProviderConfig {
            id: target.to_owned(),
            adapter: adapter.to_owned(),
            category: "local_inference".to_owned(),
            models: vec![target.to_owned()],
            enabled: true,
            capacity: 1,
            response_stall_timeout_ms: 0,
            request_timeout_ms: 0,
            health: HealthCheck { path: path.to_owned(), generation },
        }
    }

    /// The request lines.
    fn asked(adapter: &Adapter, target: &str) -> Vec<String> {
        match plan(adapter, target) {
            Plan::Http(questions) => {
                questions.iter().map(|it| format!("{} {}", it.request.method, it.request.target)).collect()
            }
            Plan::Program(_) | Plan::None => Vec::new(),
        }
    }

    const CHAT: [Operation; 2] = [Operation::Models, Operation::ChatCompletions];

    // req: STL-11
    #[test]
    fn what_is_configured_for_the_target_is_asked_beside_the_list() {
        let (list, path, token) = ("GET /v1/models", "GET /health", "POST /v1/chat_completions");
        let two = adapter(&CHAT, &[("plain", "", false), ("deep", "/health", true)]);
        assert_eq!(asked(&two, "plain"), [list]);
        assert_eq!(asked(&two, "deep"), [list, path, token]);
        assert_eq!(asked(&two, "of a direct route"), [list, path, token]);
        assert_eq!(asked(&adapter(&CHAT, &[]), "any"), [list]);
    }

    // req: STL-11
    #[test]
    fn what_cannot_be_asked_of_the_target_is_not_made_up_for_by_something_else() {
        assert!(asked(&adapter(&[Operation::ChatCompletions], &[("m", "/health", false)]), "m").is_empty());
        assert!(asked(&adapter(&[Operation::Models], &[("m", "", true)]), "m").is_empty());
        let generates = adapter(&[Operation::ChatCompletions], &[("m", "", true)]);
        assert_eq!(asked(&generates, "m"), ["POST /v1/chat_completions"]);
    }

    // req: STL-11
    #[test]
    fn a_generation_names_exactly_the_target_and_asks_for_one_token() {
        for (operation, limit, least) in [
            (Operation::ChatCompletions, "max_tokens", 1),
            (Operation::Messages, "max_tokens", 1),
            (Operation::Responses, "max_output_tokens", 16),
        ] {
            let Plan::Http(questions) = plan(&adapter(&[operation], &[("q\"3", "", true)]), "q\"3") else {
                panic!("{operation}")
            };
            let [question] = &questions[..] else { panic!("{questions:?}") };
            assert_eq!(question.proof, Proof::Generates);
            assert_eq!(question.request.fields.get("content-type"), Some(&b"application/json"[..]));
            let body: serde_json::Value = serde_json::from_slice(&question.request.body).unwrap();
            assert_eq!((&body["model"], &body[limit]), (&"q\"3".into(), &least.into()), "{operation}");
        }
    }
    // req: STL-11
    #[test]
    fn an_ollama_server_is_asked_with_the_window_of_its_requests() {
        for (window, options) in
            [(0, json!({ "num_predict": 1 })), (8192, json!({ "num_predict": 1, "num_ctx": 8192 }))]
        {
            let mut config = NodeConfigPayload::default();
            let settings = OllamaConfig { base_url: "http://box:11434".to_owned(), context_size: window };
            config.adapters.push(AdapterConfig {
                name: "o".to_owned(),
                enabled: true,
                capacity: 1,
                settings: AdapterSettings::Ollama(settings),
            });
            config.providers.push(provider("o", "q", "", true));
            let adapter = AdapterSet::build(&config).unwrap().find("o").unwrap();
            assert_eq!(asked(&adapter, "q"), ["GET /v1/models", "POST /api/chat"]);
            let Plan::Http(questions) = plan(&adapter, "q") else { panic!() };
            let body: serde_json::Value = serde_json::from_slice(&questions[1].request.body).unwrap();
            assert_eq!((&body["model"], &body["options"]), (&"q".into(), &options));
        }
    }
}
