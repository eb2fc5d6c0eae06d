//! An `edge.yaml` for a test, in the words of the configuration's documentation.

use std::fmt::Write;

/// One provider and the Node it is on.
#[derive(Clone, Debug)]
pub struct ProviderYaml {
    /// Provider id.
    pub id: String,
    /// Node id.
    pub node: String,
    /// Type, of its adapter, too.
    pub kind: String,
    /// `http://host:port/v1`.
    pub base_url: String,
    /// Models it serves, by its own names.
    pub models: Vec<String>,
    /// Slots.
    pub capacity: u32,
    /// `category`.
    pub category: String,
    /// Further keys, as flow YAML such as `request_timeout_ms: 2000, priority: 1`.
    pub extra: String,
}

impl ProviderYaml {
    /// A provider with 4 slots that serves `model`.
    pub fn new(id: &str, node: &str, base_url: &str, model: &str) -> Self {
        Self {
            id: id.to_owned(),
            node: node.to_owned(),
            kind: "openai_compat".to_owned(),
            base_url: base_url.to_owned(),
            models: vec![model.to_owned()],
            capacity: 4,
            category: "local_inference".to_owned(),
            extra: String::new(),
        }
    }

    /// An Ollama server at `http://host:port`, with 4 slots, that serves `models`.
    pub fn ollama(id: &str, node: &str, base_url: &str, models: &[&str]) -> Self {
        Self {
            kind: "ollama".to_owned(),
            models: models.iter().map(|&model| model.to_owned()).collect(),
            ..Self::new(id, node, base_url, "")
        }
    }
}

/// The whole file.
#[derive(Clone, Debug)]
pub struct EdgeYaml {
    /// `listen.http`; port 0 takes a free one.
    pub http: String,
    /// `listen.node`, likewise.
    pub node: String,
    /// Further keys of `listen`, as flow YAML.
    pub listen: String,
    /// `listen.admin_socket`.
    pub admin_socket: String,
    /// `edge.shards`.
    pub shards: usize,
    /// `edge.cpus`.
    pub cpus: Vec<usize>,
    /// `limits`, as flow YAML without braces.
    pub limits: String,
    /// `provider_pool`, as flow YAML without braces.
    pub pool: String,
    /// Further keys of `openai`, as lines of YAML that are indented by two.
    pub openai: String,
    /// Members of `openai.model_routes`, each as flow YAML without braces.
    pub routes: Vec<String>,
    /// Providers, by Node in order of appearance.
    pub providers: Vec<ProviderYaml>,
    /// Models and their provider ids.
    pub models: Vec<(String, Vec<String>)>,
    /// Further keys of every model, as flow YAML.
    pub model_extra: String,
    /// Further top-level YAML.
    pub extra: String,
}

impl EdgeYaml {
    /// One shard, no model and no provider.
    pub fn new() -> Self {
        Self {
            http: "127.0.0.1:0".to_owned(),
            node: "127.0.0.1:0".to_owned(),
            listen: String::new(),
            admin_socket: String::new(),
            shards: 1,
            cpus: Vec::new(),
            limits: String::new(),
            pool: String::new(),
            openai: String::new(),
            routes: Vec::new(),
            providers: Vec::new(),
            models: Vec::new(),
            model_extra: String::new(),
            extra: String::new(),
        }
    }

    /// Adds a provider, and a model of each name it serves unless there is one already.
    #[must_use]
    pub fn with(mut self, provider: ProviderYaml) -> Self {
        for model in &provider.models {
            match self.models.iter_mut().find(|(id, _)| id == model) {
                Some((_, providers)) => providers.push(provider.id.clone()),
                None => self.models.push((model.clone(), vec![provider.id.clone()])),
            }
        }
        self.providers.push(provider);
        self
    }

    /// The file's text. `tokens` is the list under `openai.principal_tokens`.
    pub fn render(&self, edge: &str, tokens: &str) -> String {
        let quoted = |text: &str| serde_json::Value::from(text).to_string();
        let list = |items: &[String]| items.iter().map(|i| quoted(i)).collect::<Vec<_>>().join(", ");
        let mut yaml = format!(
            "edge: {{ name: {edge}, shards: {}, cpus: {:?} }}\n\
             listen: {{ http: [\"{}\"], node: [\"{}\"], ops: \"127.0.0.1:0\", admin_socket: {}{}{} }}\n\
             identity: {{ cert_file: pki/edge.crt, key_file: pki/edge.key, node_ca_file: pki/node-ca.crt }}\n\
             limits: {{ {} }}\nprovider_pool: {{ {} }}\n\
             openai:\n  enabled: true\n  provider_id: test\n{}  model_routes: [{}]\n  principal_tokens:\n{tokens}",
            self.shards,
            self.cpus,
            self.http,
            self.node,
            quoted(&self.admin_socket),
            if self.listen.is_empty() { "" } else { ", " },
            self.listen,
            self.limits,
            self.pool,
            self.openai,
            self.routes.iter().map(|route| format!("{{ {route} }}")).collect::<Vec<_>>().join(", ")
        );
        yaml.push_str("models:\n");
        let extra = if self.model_extra.is_empty() { "" } else { ", " };
        for (id, providers) in &self.models {
            let (id, providers) = (quoted(id), list(providers));
            let _infallible =
                writeln!(yaml, "  - {{ id: {id}, providers: [{providers}]{extra}{} }}", self.model_extra);
        }
        yaml.push_str("nodes:\n");
        let mut nodes: Vec<&str> = Vec::new();
        for provider in &self.providers {
            if !nodes.contains(&&*provider.node) {
                nodes.push(&provider.node);
            }
        }
        for node in nodes {
            let of_node = || self.providers.iter().filter(|p| p.node == node);
            let _infallible = writeln!(yaml, "  - id: {node}\n    adapters:");
            for provider in of_node() {
                let _infallible =
                    writeln!(yaml, "      - {{ name: {}-adapter, type: {} }}", provider.id, provider.kind);
            }
            yaml.push_str("    providers:\n");
            for p in of_node() {
                let extra = if p.extra.is_empty() { String::new() } else { format!(", {}", p.extra) };
                let _infallible = writeln!(
                    yaml,
                    "      - {{ id: {0}, type: {4}, category: {5}, adapter: {0}-adapter, base_url: {1}, models: [{2}], capacity: {3}{extra} }}",
                    p.id,
                    quoted(&p.base_url),
                    list(&p.models),
                    p.capacity,
                    p.kind,
                    p.category
                );
            }
        }
        yaml.push_str(&self.extra);
        yaml
    }
}

impl Default for EdgeYaml {
    fn default() -> Self {
        Self::new()
    }
}
