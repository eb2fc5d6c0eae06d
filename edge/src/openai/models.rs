//! `GET /v1/models` and `GET /v1/models/{id}`: the models that this Edge's clients may name.
//!
//! The names come from the configuration, not from a provider: what a provider calls its model is not a name that a
//! client may use here, and a listing must neither take a slot nor wait for a Node.
//!
//! One form serves both families: every entry has what OpenAI's SDKs read and what Anthropic's read (api.md section 1.3). Only Anthropic
//! has pages.

use std::borrow::Cow;

use serde::Serialize;
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

use crate::{config::Settings, reply::Fault};

/// Most models of one page.
const PAGE_MAX: usize = 1000;

#[derive(Serialize)]
struct Listing<'a> {
    object: &'static str,
    data: &'a [Entry<'a>],
    has_more: bool,
    first_id: Option<&'a str>,
    last_id: Option<&'a str>,
}

#[derive(Serialize)]
struct Entry<'a> {
    id: &'a str,
    object: &'static str,
    created: u64,
    owned_by: &'static str,
    #[serde(rename = "type")]
    kind: &'static str,
    display_name: &'a str,
    created_at: &'a str,
    lifecycle: &'static str,
    /// As vLLM and SGLang call the context.
    #[serde(skip_serializing_if = "Option::is_none")]
    max_model_len: Option<u64>,
    /// As Anthropic calls it.
    #[serde(skip_serializing_if = "Option::is_none")]
    max_input_tokens: Option<u64>,
}

/// When this process loaded its configuration: all that is known of a model's age.
#[derive(Clone, Debug)]
pub struct Created {
    seconds: u64,
    text: String,
}

impl Created {
    /// At this time, in seconds since 1970.
    #[must_use]
    pub fn at(seconds: u64) -> Self {
        let time = i64::try_from(seconds).ok().and_then(|it| OffsetDateTime::from_unix_timestamp(it).ok());
        // Years of four digits cannot fail to format, and 1970 stands for what is not known.
        let text = time.and_then(|time| time.format(&Rfc3339).ok());
        Self { seconds, text: text.unwrap_or_else(|| "1970-01-01T00:00:00Z".to_owned()) }
    }

    fn entry<'a>(&'a self, id: &'a str, display_name: &'a str, window: Option<u64>) -> Entry<'a> {
        Entry {
            id,
            object: "model",
            created: self.seconds,
            owned_by: "iop",
            kind: "model",
            display_name,
            created_at: &self.text,
            lifecycle: "active",
            max_model_len: window,
            max_input_tokens: window,
        }
    }
}

/// A part of the list, as Anthropic's clients ask for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page<'a> {
    limit: Option<usize>,
    /// Only what comes behind this one.
    after: Option<Cow<'a, str>>,
    /// Only what comes before this one: of that the last ones.
    before: Option<Cow<'a, str>>,
}

impl<'a> Page<'a> {
    /// Reads a query. What it does not know it leaves alone.
    ///
    /// # Errors
    /// `limit` is none from 1 to 1000.
    pub fn read(query: &'a str) -> Result<Self, Fault> {
        let mut page = Self::default();
        for (name, value) in query.split('&').filter_map(|pair| pair.split_once('=')) {
            match name {
                "limit" => {
                    let limit = value.parse().ok().filter(|limit| (1..=PAGE_MAX).contains(limit));
                    let wrong =
                        || Fault::BadQuery { param: "limit", detail: "expected a number from 1 to 1000" };
                    page.limit = Some(limit.ok_or_else(wrong)?);
                }
                "after_id" => page.after = Some(decoded(value)),
                "before_id" => page.before = Some(decoded(value)),
                _ => {}
            }
        }
        Ok(page)
    }

    /// The entries of this page, and whether there are more in its direction.
    fn of<'e>(&self, entries: &'e [Entry<'e>]) -> Result<(&'e [Entry<'e>], bool), Fault> {
        let place = |id: &str, param| {
            let found = entries.iter().position(|entry| entry.id == id);
            found.ok_or(Fault::BadQuery { param, detail: "expected the id of a model that is there" })
        };
        let from = self.after.as_deref().map_or(Ok(0), |id| place(id, "after_id").map(|at| at + 1))?;
        let to = self.before.as_deref().map_or(Ok(entries.len()), |id| place(id, "before_id"))?;
        let all = entries.get(from..to).unwrap_or_default();
        let limit = self.limit.unwrap_or(all.len()).min(all.len());
        let cut = if self.before.is_some() && self.after.is_none() {
            all.get(all.len() - limit..)
        } else {
            all.get(..limit)
        };
        Ok((cut.unwrap_or_default(), limit < all.len()))
    }
}

/// RFC 3986 section 2.1. What is no such escape stays as it is.
fn decoded(text: &str) -> Cow<'_, str> {
    if !text.contains('%') {
        return text.into();
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((byte, after)) = rest.split_first() {
        let hex = after.get(..2).filter(|_| *byte == b'%').and_then(|hex| str::from_utf8(hex).ok());
        // A sign would pass for a digit.
        let hex = hex.filter(|hex| hex.bytes().all(|digit| digit.is_ascii_hexdigit()));
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(value) => {
                bytes.push(value);
                rest = after.get(2..).unwrap_or_default();
            }
            None => {
                bytes.push(*byte);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned().into()
}

/// The list ("List models" of both API references): groups and direct routes, in the order of the file.
///
/// # Errors
/// The page begins or ends at a model that is not there.
pub fn list(settings: &Settings, created: &Created, page: &Page<'_>) -> Result<Vec<u8>, Fault> {
    let models = settings.models.iter();
    let models = models.map(|it| created.entry(&it.id, &it.display_name, it.context_window_tokens));
    let direct = settings.pool.routes.iter().map(|route| created.entry(&route.model, &route.model, None));
    let all: Vec<_> = models.chain(direct).collect();
    let (data, has_more) = page.of(&all)?;
    let listing = Listing {
        object: "list",
        data,
        has_more,
        first_id: data.first().map(|entry| entry.id),
        last_id: data.last().map(|entry| entry.id),
    };
    Ok(serde_json::to_vec(&listing).unwrap_or_default())
}

/// One model ("Retrieve model"), or `None` when there is none of this name.
pub fn one(settings: &Settings, id: &str, created: &Created) -> Option<Vec<u8>> {
    let model = settings.model(id);
    let model = model.map(|it| created.entry(&it.id, &it.display_name, it.context_window_tokens));
    let found = model.or_else(|| settings.direct_model(id).map(|model| created.entry(model, model, None)))?;
    Some(serde_json::to_vec(&found).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::{Value, json};

    use super::*;
    use crate::config::load_text;

    fn settings() -> Settings {
        let text = "openai:
  provider_id: local
  model_routes: [{ model: direct/one, adapter: a, target: t }]
models:
  - { id: \"llama3:8b\", providers: [p], context_window_tokens: 8192, display_name: Llama }
  - { id: openai/gpt-oss, providers: [p] }
  - { id: claude-x, providers: [p] }
nodes:
  - id: box1
    adapters: [{ name: a, type: openai_compat }]
    providers:
      - { id: p, type: vllm, category: local_inference, adapter: a, models: [\"llama3:8b\", openai/gpt-oss, claude-x] }
";
        load_text(text, Path::new("/etc/iop/edge.yaml"), &|_| None).unwrap()
    }

    fn page(query: &str) -> Result<Value, Fault> {
        let listed = list(&settings(), &Created::at(1_790_000_000), &Page::read(query)?)?;
        Ok(serde_json::from_slice(&listed).unwrap())
    }

    fn ids(listing: &Value) -> Vec<&str> {
        listing["data"].as_array().unwrap().iter().map(|entry| entry["id"].as_str().unwrap()).collect()
    }

    const ALL: [&str; 4] = ["llama3:8b", "openai/gpt-oss", "claude-x", "direct/one"];

    #[test]
    fn one_entry_has_what_either_family_reads() {
        let one = one(&settings(), "llama3:8b", &Created::at(1_790_000_000)).unwrap();
        assert_eq!(
            serde_json::from_slice::<Value>(&one).unwrap(),
            json!({
                "id": "llama3:8b", "object": "model", "created": 1_790_000_000, "owned_by": "iop", "type": "model",
                "display_name": "Llama", "created_at": "2026-09-21T14:13:20Z", "lifecycle": "active",
                "max_model_len": 8192, "max_input_tokens": 8192
            })
        );
        assert!(super::one(&settings(), "llama3", &Created::at(0)).is_none());
        assert!(super::one(&settings(), "direct/one", &Created::at(0)).is_some());
    }

    #[test]
    fn a_list_is_the_union_of_groups_and_direct_models() {
        let all = page("").unwrap();
        assert_eq!(ids(&all), ALL);
        assert_eq!((&all["object"], &all["has_more"]), (&json!("list"), &json!(false)));
        assert_eq!((&all["first_id"], &all["last_id"]), (&json!(ALL[0]), &json!(ALL[3])));
    }

    #[test]
    fn pages_go_on_behind_and_before_a_model() {
        for (query, expected, more) in [
            ("limit=1000", &ALL[..], false),
            ("limit=2", &ALL[..2], true),
            ("limit=2&after_id=openai%2Fgpt-oss", &ALL[2..], false),
            ("after_id=llama3%3a8b&limit=1", &ALL[1..2], true),
            ("limit=2&before_id=direct/one", &ALL[1..3], true),
            ("before_id=openai/gpt-oss", &ALL[..1], false),
            ("after_id=direct/one", &[], false),
            ("after_id=llama3:8b&before_id=claude-x&limit=5", &ALL[1..2], false),
            ("after_id=claude-x&before_id=llama3:8b", &[], false),
            ("beta=true&x&limit=4", &ALL[..], false),
        ] {
            let page = page(query).unwrap();
            assert_eq!((ids(&page), page["has_more"].as_bool()), (expected.to_vec(), Some(more)), "{query}");
            assert_eq!(page["first_id"].as_str(), expected.first().copied(), "{query}");
            assert_eq!(page["last_id"].as_str(), expected.last().copied(), "{query}");
        }
        for (query, param) in [
            ("limit=0", "limit"),
            ("limit=1001", "limit"),
            ("limit=-1", "limit"),
            ("limit=", "limit"),
            ("after_id=none", "after_id"),
            ("before_id=%ff", "before_id"),
        ] {
            let fault = page(query).unwrap_err();
            assert!(
                matches!(fault, Fault::BadQuery { param: wrong, .. } if wrong == param),
                "{query}: {fault:?}"
            );
        }
    }

    #[test]
    fn an_escape_that_is_none_stays() {
        for (text, expected) in
            [("a%2Fb", "a/b"), ("a%2", "a%2"), ("%+1", "%+1"), ("%zz%", "%zz%"), ("%41", "A")]
        {
            assert_eq!(decoded(text), expected);
        }
    }
}
