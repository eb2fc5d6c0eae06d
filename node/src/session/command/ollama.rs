//! The tunnel to a provider's Ollama API: four calls that read, and nothing else (CMD-1). Pure. Paths are of this table; of the
//! command only the name of a model goes into a body.

use std::collections::BTreeMap;

use proto::message::{Operation, ProfileOperation};
use serde_json::json;

use super::{Fields, fields};
use crate::{
    adapters::openai_compat::endpoint::{Endpoint, EndpointError},
    health::{judge::Answer, question::Request},
};

/// Longest answer that is passed on, in bytes.
pub const ANSWER_BYTES_MAX: usize = 1024 * 1024;

/// The key of the argument that names the call.
const OPERATION: &str = "operation";

/// One call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// The models that are there.
    Tags,
    /// Those that are loaded.
    Ps,
    /// One model's details.
    Show(String),
    /// The server's version.
    Version,
}

impl Call {
    /// Reads which call is meant; `show` is about `target`.
    ///
    /// # Errors
    /// Words for people.
    pub fn read(arguments: &BTreeMap<String, String>, target: &str) -> Result<Self, String> {
        if let Some(other) = arguments.keys().find(|key| *key != OPERATION) {
            return Err(format!("ollama takes the argument {OPERATION} alone, not {other:?}"));
        }
        match arguments.get(OPERATION).map(String::as_str) {
            Some("tags") => Ok(Self::Tags),
            Some("ps") => Ok(Self::Ps),
            Some("show") if target.is_empty() => Err("show needs a model as its target".to_owned()),
            Some("show") => Ok(Self::Show(target.to_owned())),
            Some("version") => Ok(Self::Version),
            _ => Err(format!("ollama needs the argument {OPERATION}: tags, ps, show or version")),
        }
    }

    /// The word for it.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Tags => "tags",
            Self::Ps => "ps",
            Self::Show(_) => "show",
            Self::Version => "version",
        }
    }

    /// The request at the server with this address.
    ///
    /// # Errors
    /// The address cannot be called.
    pub fn request(&self, base_url: &str) -> Result<Request, EndpointError> {
        let (method, body) = match self {
            Self::Show(model) => ("POST", json!({ "model": model }).to_string()),
            Self::Tags | Self::Ps | Self::Version => ("GET", String::new()),
        };
        let url = format!("{}/api/{}", base_url.trim_end_matches('/'), self.as_str());
        let operation = Operation::Models;
        let endpoint = Endpoint::parse(&ProfileOperation { operation, method: method.to_owned(), url })?;
        Ok(Request::plain(&endpoint, body.into()))
    }

    /// What the command answers.
    ///
    /// # Errors
    /// The answer is no text.
    pub fn answer(&self, answer: &Answer) -> Result<Fields, String> {
        let body = std::str::from_utf8(&answer.body).map_err(|_| "the answer is no text".to_owned())?;
        Ok(fields([
            (OPERATION, self.as_str().to_owned()),
            ("status", answer.status.to_string()),
            ("body", body.to_owned()),
        ]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)], target: &str) -> Result<Call, String> {
        let arguments = pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        Call::read(&arguments, target)
    }

    // req: CMD-1
    #[test]
    fn four_calls_that_read_are_made_and_no_other() {
        for (word, line) in [
            ("tags", "GET /api/tags"),
            ("ps", "GET /api/ps"),
            ("version", "GET /api/version"),
            ("show", "POST /api/show"),
        ] {
            let request =
                read(&[("operation", word)], "m\"/../x").unwrap().request("http://box:11434/").unwrap();
            assert_eq!(format!("{} {}", request.method, request.target), line);
            assert_eq!(&*request.authority, "box:11434");
            let is_show = word == "show";
            assert_eq!(request.body.as_ref(), if is_show { &br#"{"model":"m\"/../x"}"#[..] } else { b"" });
        }
        for refused in [
            "",
            "pull",
            "delete",
            "create",
            "push",
            "copy",
            "chat",
            "generate",
            "embed",
            "Tags",
            "tags/../pull",
        ] {
            assert!(read(&[("operation", refused)], "m").unwrap_err().contains("tags, ps, show or version"));
        }
        assert!(read(&[], "m").is_err());
        assert!(read(&[("operation", "show")], "").unwrap_err().contains("needs a model"));
        assert!(read(&[("operation", "tags"), ("path", "/api/pull")], "m").unwrap_err().contains("\"path\""));
    }

    // req: CMD-1
    #[test]
    fn an_answer_is_passed_on_with_its_status() {
        let answer = Answer { status: 404, body: r#"{"error":"no"}"#.into() };
        let told = Call::Ps.answer(&answer).unwrap();
        assert_eq!((told["operation"].as_str(), told["status"].as_str()), ("ps", "404"));
        assert_eq!(told["body"], r#"{"error":"no"}"#);
        assert!(Call::Ps.answer(&Answer { status: 200, body: b"\xff"[..].into() }).is_err());
    }
}
