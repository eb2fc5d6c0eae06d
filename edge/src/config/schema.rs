//! The JSON Schema of `edge.yaml`, derived from [`super::typed`]: what editors complete and check by. It knows shapes, bounds and
//! words; what refers to what only the loader knows.

use std::sync::LazyLock;

use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use super::typed::EdgeFile;

/// The schema as it stands in `configs/edge.schema.json`, with a line break at its end.
#[must_use]
pub fn text() -> String {
    let mut schema = raw().clone();
    tidy(&mut schema);
    let mut text = serde_json::to_string_pretty(&schema).unwrap_or_default();
    text.push('\n');
    text
}

/// The schema with the attributes that only the page uses (`x-…`). Draft 7 is what the YAML plug-ins of editors know best.
pub(super) fn raw() -> &'static Value {
    static RAW: LazyLock<Value> = LazyLock::new(|| {
        SchemaSettings::draft07().into_generator().into_root_schema_for::<EdgeFile>().to_value()
    });
    &RAW
}

/// What a schema node refers to, without its `null`.
pub(super) fn resolved<'a>(root: &'a Value, schema: &'a Value) -> &'a Value {
    if let Some(name) = schema.get("$ref").and_then(Value::as_str) {
        return root.pointer(name.trim_start_matches('#')).map_or(schema, |schema| resolved(root, schema));
    }
    let choices = schema.get("anyOf").or_else(|| schema.get("allOf")).and_then(Value::as_array);
    let first =
        choices.into_iter().flatten().find(|choice| choice.get("type").is_none_or(|kind| kind != "null"));
    first.map_or(schema, |choice| resolved(root, choice))
}

/// The schema of a key, with the attributes of the key itself.
pub(super) fn find<'a>(root: &'a Value, path: &str) -> Option<&'a Value> {
    let mut schema = root;
    for part in path.split('.') {
        let name = part.trim_end_matches("[]");
        let section = resolved(root, schema);
        schema = if name == "NAME" {
            &section["additionalProperties"]
        } else {
            section["properties"].get(name)?
        };
        if name != part {
            schema = resolved(root, schema).get("items")?;
        }
    }
    Some(schema)
}

/// Takes the `x-…` attributes away and puts what they say in the schema's own words.
fn tidy(schema: &mut Value) {
    match schema {
        Value::Array(items) => items.iter_mut().for_each(tidy),
        Value::Object(object) => {
            require(object);
            describe(object);
            allow(object);
            object.retain(|key, _| !key.starts_with("x-"));
            object.values_mut().for_each(tidy);
        }
        _ => {}
    }
}

/// `required` of a mapping: the keys that have no default.
fn require(object: &mut Map<String, Value>) {
    let Some(Value::Object(properties)) = object.get("properties") else { return };
    let is_required = |schema: &Value| schema.get("x-required").is_some();
    let names = properties.iter().filter(|(_, schema)| is_required(schema)).map(|(name, _)| name.clone());
    let names: Vec<String> = names.collect();
    if !names.is_empty() {
        object.insert("required".to_owned(), json!(names));
    }
}

/// Defaults in words, for the reader of the description.
fn describe(object: &mut Map<String, Value>) {
    let default = object.get("x-default").and_then(Value::as_str).map(str::to_owned);
    let zero = object.get("x-zero").map(ToString::to_string);
    if let Some(Value::String(description)) = object.get_mut("description") {
        *description = without_links(&description.replace('\n', " "));
        if let Some(zero) = zero {
            description.push_str(&format!(" 0 = {zero}."));
        }
        if let Some(default) = default {
            description.push_str(&format!(" Default: {default}."));
        }
    }
}

/// `[words](place)` as words: places are those of the page.
fn without_links(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("](") {
        let Some((head, words)) = before.rsplit_once('[') else { break };
        let Some((_, tail)) = after.split_once(')') else { break };
        out.push_str(head);
        out.push_str(words);
        rest = tail;
    }
    out + rest
}

/// A closed set of words; an empty text is a missing one, and one of them may come from the environment.
fn allow(object: &mut Map<String, Value>) {
    if let Some(words) = object.remove("x-words") {
        object.remove("type");
        let by_environment = json!({ "type": "string", "pattern": "^$|\\$\\{" });
        object.insert("anyOf".to_owned(), json!([{ "enum": words }, by_environment, { "type": "null" }]));
    }
}
