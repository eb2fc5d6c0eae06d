//! `GET /v1/models` and `GET /v1/models/{id}`: the models that this Edge's clients may name.
//!
//! The names come from the configuration, not from a provider: what a provider calls its model is not a name that a
//! client may use here, and a listing must neither take a slot nor wait for a Node.

use serde::Serialize;

use crate::config::Settings;

#[derive(Serialize)]
struct Listing<'a> {
    object: &'static str,
    data: Vec<Entry<'a>>,
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
}

fn entry<'a>(id: &'a str, display_name: &'a str, created: u64) -> Entry<'a> {
    Entry { id, object: "model", created, owned_by: "iop", kind: "model", display_name }
}

/// The list (OpenAI API reference, "List models"). `created` is when this process loaded its configuration.
pub fn list(settings: &Settings, created: u64) -> Vec<u8> {
    let models = settings.models.iter().map(|model| entry(&model.id, &model.display_name, created));
    let direct = settings.pool.routes.iter().map(|route| entry(&route.model, &route.model, created));
    let data = models.chain(direct).collect();
    serde_json::to_vec(&Listing { object: "list", data }).unwrap_or_default()
}

/// One model ("Retrieve model"), or `None` when there is none of this name.
pub fn one(settings: &Settings, id: &str, created: u64) -> Option<Vec<u8>> {
    let model = settings.model(id).map(|model| entry(&model.id, &model.display_name, created));
    let found = model.or_else(|| settings.direct_model(id).map(|model| entry(model, model, created)))?;
    Some(serde_json::to_vec(&found).unwrap_or_default())
}
