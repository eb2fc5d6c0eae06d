//! The provider behind the Node: a real one where it answers, else the scripted one.

use std::time::Duration;

use anyhow::{Context, bail};

use iop_tests::Site;

/// Where people's servers usually listen.
const USUAL: [(&str, u16); 5] =
    [("vLLM", 8000), ("llama.cpp", 8080), ("LM Studio", 1234), ("SGLang", 30000), ("Ollama", 11434)];
/// Long enough for a server on this machine.
const PROBE: Duration = Duration::from_millis(500);

/// What answers.
#[derive(Debug)]
pub struct Provider {
    base_url: String,
    model: String,
    kind: String,
    _process: Option<iop_tests::Provider>,
}

impl Provider {
    /// `wish`, or the first usual port that lists a model, or the scripted provider.
    pub fn find(wish: Option<&str>, scripted: bool, site: &Site) -> anyhow::Result<Self> {
        if let Some(base_url) = wish {
            let base_url = base_url.trim_end_matches('/').to_owned();
            let Some(model) = first_model(&base_url) else {
                bail!(
                    "{base_url}/models does not list a model: is this the base URL of a running OpenAI-compatible server?"
                );
            };
            return Ok(Self { base_url, model, kind: "given".to_owned(), _process: None });
        }
        for (name, port) in USUAL.iter().filter(|_| !scripted) {
            let base_url = format!("http://127.0.0.1:{port}/v1");
            if let Some(model) = first_model(&base_url) {
                return Ok(Self {
                    base_url,
                    model,
                    kind: format!("real, on {name}'s usual port"),
                    _process: None,
                });
            }
        }
        let process = site.provider(&["--events", "24", "--gap-us", "40000"])?;
        let base_url = process.base_url();
        let model = first_model(&base_url).context("the scripted provider lists no model")?;
        Ok(Self { base_url, model, kind: "scripted, iop-perf".to_owned(), _process: Some(process) })
    }

    /// For people.
    pub fn describe(&self) -> String {
        format!("{} ({}), model {}", self.base_url, self.kind, self.model)
    }

    /// Base URL, with `/v1`.
    pub fn base_url(&self) -> &str {
        &self.base_url
    }

    /// The first model it lists.
    pub fn model(&self) -> &str {
        &self.model
    }
}

fn first_model(base_url: &str) -> Option<String> {
    let agent: ureq::Agent = ureq::Agent::config_builder().timeout_global(Some(PROBE)).build().into();
    let text = agent.get(format!("{base_url}/models")).call().ok()?.body_mut().read_to_string().ok()?;
    let list: serde_json::Value = serde_json::from_str(&text).ok()?;
    list.pointer("/data/0/id")?.as_str().map(str::to_owned)
}
