//! Edge and Node in front of providers of every kind, and what the tests need of the machine.

use std::path::{Path, PathBuf};

use anyhow::ensure;
use iop_tests::{
    Edge, Process, ProviderYaml, Site,
    bench::{NODE, metric, site, skip, start_node, yaml},
    http,
    model::{ScriptedModel, Surface, plot},
    ollama::{Ollama, models::MODELS},
};

/// Whose a model is stands in front of its name: `chat/`, `openai/`, `anthropic/`; Ollama's have nothing there.
pub struct Stand {
    /// Chat completions alone.
    pub chat: ScriptedModel,
    /// Chat completions and responses.
    pub openai: ScriptedModel,
    /// Messages alone.
    pub anthropic: ScriptedModel,
    /// A language of its own.
    pub ollama: Ollama,
    pub edge: Edge,
    _node: Process,
    pub site: Site,
}

impl Stand {
    pub fn start() -> anyhow::Result<Self> {
        let site = site()?;
        let chat = ScriptedModel::start(&[Surface::Chat])?;
        let openai = ScriptedModel::start(&[Surface::Chat, Surface::Responses])?;
        let anthropic = ScriptedModel::start(&[Surface::Messages])?;
        let ollama = Ollama::start()?;
        let provider = |profile: &str, id: &str, url: String| ProviderYaml {
            extra: format!("profile: {profile}"),
            models: plot::names().iter().map(|name| format!("{id}/{name}")).collect(),
            capacity: 32,
            ..ProviderYaml::new(id, NODE, &url, "")
        };
        let native: Vec<_> = MODELS.iter().map(|model| model.name).collect();
        let edge = site.edge(
            &yaml()
                .with(provider("openai_compat", "chat", format!("{}/v1", chat.url())))
                .with(provider("vllm", "openai", format!("{}/v1", openai.url())))
                .with(provider("anthropic", "anthropic", anthropic.url()))
                .with(ProviderYaml {
                    capacity: 32,
                    ..ProviderYaml::ollama("ollama", NODE, &ollama.url(), &native)
                }),
        )?;
        let (node, _) = start_node(&site, NODE, &edge.node)?;
        Ok(Self { chat, openai, anthropic, ollama, edge, _node: node, site })
    }

    /// `http://host:port/v1` of the Edge.
    pub fn url(&self) -> String {
        format!("http://{}/v1", self.edge.http)
    }

    /// Requests that came to an end of this kind, on all routes.
    pub fn outcomes(&self, outcome: &str) -> anyhow::Result<f64> {
        let text = http::get(&self.edge.ops, "/metrics", None)?.text();
        let with = format!("outcome=\"{outcome}\"");
        let of_it =
            text.lines().filter(|line| line.starts_with("iop_edge_requests_total{") && line.contains(&with));
        Ok(of_it.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum())
    }

    /// That nothing is held any more.
    pub fn leases(&self) -> anyhow::Result<f64> {
        metric(&self.edge, "iop_edge_leases")
    }

    /// That no provider was sent what servers of its kind do not take, and that none was shown a client's credential.
    pub fn is_clean(&self) -> anyhow::Result<()> {
        for (name, server) in [("chat", &self.chat), ("openai", &self.openai), ("anthropic", &self.anthropic)]
        {
            ensure!(
                server.refused().is_empty(),
                "requests that {name} does not take: {:#?}",
                server.refused()
            );
            for request in server.requests() {
                ensure!(!request.head.contains(self.site.token()), "{name} saw the token: {}", request.head);
            }
        }
        ensure!(self.ollama.refused().is_empty(), "{:#?}", self.ollama.refused());
        Ok(())
    }
}

/// What a variable of `cargo xtask test --clients` names; `None`, and a line, where it is not set and that is no failure.
pub fn peer(variable: &str) -> anyhow::Result<Option<PathBuf>> {
    match std::env::var_os(variable) {
        Some(path) => Ok(Some(path.into())),
        None => {
            skip(&format!("{variable} is not set; `cargo xtask test --clients` installs what it names"))?;
            Ok(None)
        }
    }
}

/// A file beside the tests.
pub fn here(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("clients").join(file)
}
