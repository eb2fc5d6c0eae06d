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

fn entry<'a>(model: &'a crate::config::settings::Model, created: u64) -> Entry<'a> {
    Entry {
        id: &model.id,
        object: "model",
        created,
        owned_by: "iop",
        kind: "model",
        display_name: &model.display_name,
    }
}

/// The list (OpenAI API reference, "List models"). `created` is when this process loaded its configuration.
pub fn list(settings: &Settings, created: u64) -> Vec<u8> {
    let data = settings.models.iter().map(|m| entry(m, created)).collect();
    serde_json::to_vec(&Listing { object: "list", data }).unwrap_or_default()
}

/// One model ("Retrieve model"), or `None` when there is none of this name.
pub fn one(settings: &Settings, id: &str, created: u64) -> Option<Vec<u8>> {
    settings.model(id).map(|m| serde_json::to_vec(&entry(m, created)).unwrap_or_default())
}
