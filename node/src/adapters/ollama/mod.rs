//! Normalized runs against Ollama's own API: `POST {base_url}/api/chat`, always as a stream of JSON lines.
//!
//! | Module | Owns | Pure |
//! |---|---|---|
//! | [`request`] | the conversation as Ollama's body | yes |
//! | [`reader`] | the answer's lines, cut anywhere | yes |
//! | [`refusal`] | what an answer other than 200 means | yes |
//! | [`text_tools`] | a conversation whose tools go as text (RUN-4) | yes |
//! | [`verdicts`] | which models are known to take no tools | yes |
//! | [`context`] | whether a prompt was cut to the context window | yes |
//! | [`exchange`] | the request, the answer, and the one second try without tools | no |

pub mod context;
pub mod exchange;
pub mod reader;
pub mod refusal;
pub mod request;
pub mod text_tools;
pub mod verdicts;

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    time::{Duration, Instant},
};

use dataplane::clock;
use proto::message::{OllamaConfig, Operation, ProfileOperation};

use super::openai_compat::endpoint::{Endpoint, EndpointError};
use verdicts::Verdicts;

/// One `ollama` instance.
#[derive(Debug)]
pub struct Ollama {
    /// `/api/chat`, `/api/ps`, `/v1/models`.
    endpoints: [Rc<Endpoint>; 3],
    /// `num_ctx`; 0 leaves it to the server.
    context_size: u32,
    verdicts: RefCell<Verdicts>,
    warned: Cell<Option<Instant>>,
}

/// A conversation that has outgrown its context does so with every request: one warning for all in this time.
const WARNING_PAUSE: Duration = Duration::from_secs(10);

impl Ollama {
    /// An instance with these settings.
    ///
    /// # Errors
    /// [`EndpointError`]: `base_url` cannot be called.
    pub fn new(settings: &OllamaConfig) -> Result<Self, EndpointError> {
        let base = settings.base_url.trim_end_matches('/');
        let endpoint = |operation, method: &str, path: &str| {
            let (method, url) = (method.to_owned(), format!("{base}{path}"));
            Endpoint::parse(&ProfileOperation { operation, method, url }).map(Rc::new)
        };
        Ok(Self {
            endpoints: [
                endpoint(Operation::ChatCompletions, "POST", "/api/chat")?,
                endpoint(Operation::Models, "GET", "/api/ps")?,
                endpoint(Operation::Models, "GET", "/v1/models")?,
            ],
            context_size: settings.context_size,
            verdicts: RefCell::default(),
            warned: Cell::new(None),
        })
    }

    /// What it may call.
    #[must_use]
    pub fn endpoints(&self) -> &[Rc<Endpoint>] {
        &self.endpoints
    }

    /// Forgets what has been found out about models: they may be others by now (REF-1).
    pub fn forget(&self) {
        self.verdicts.take();
    }

    fn may_warn(&self) -> bool {
        let now = clock::now();
        let is_due =
            self.warned.get().is_none_or(|last| now.saturating_duration_since(last) >= WARNING_PAUSE);
        if is_due {
            self.warned.set(Some(now));
        }
        is_due
    }

    /// `num_ctx`; 0 leaves it to the server.
    #[must_use]
    pub const fn context_size(&self) -> u32 {
        self.context_size
    }

    /// Where it is spoken to.
    #[must_use]
    pub fn chat_endpoint(&self) -> &Endpoint {
        &self.endpoints[0]
    }

    fn ps_endpoint(&self) -> &Endpoint {
        &self.endpoints[1]
    }

    /// Where its models are listed in OpenAI's form.
    #[must_use]
    pub fn models_endpoint(&self) -> &Endpoint {
        &self.endpoints[2]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_base_url_may_have_a_path_and_slashes_at_its_end() {
        for (base_url, authority, target) in [
            ("http://127.0.0.1:11434", "127.0.0.1:11434", "/api/chat"),
            ("http://box:11434/", "box:11434", "/api/chat"),
            ("http://box/ollama//", "box", "/ollama/api/chat"),
        ] {
            let ollama =
                Ollama::new(&OllamaConfig { base_url: base_url.to_owned(), context_size: 0 }).unwrap();
            let chat = ollama.chat_endpoint();
            let found = (chat.method.as_str(), &*chat.authority, chat.target.as_str());
            assert_eq!(found, ("POST", authority, target));
            assert_eq!(ollama.ps_endpoint().method, "GET");
            assert!(ollama.models_endpoint().target.ends_with("/v1/models"));
        }
        assert!(Ollama::new(&OllamaConfig::default()).is_err());
    }
}
