//! Files that are made from the typed tree. `IOP_UPDATE=1 cargo test -p iop-edge generated` makes them anew.

use std::{collections::BTreeSet, fs, path::PathBuf};

use serde_json::Value;

use super::*;
use crate::config::{
    capability, catalog, class,
    schema::{self, find, raw, resolved},
};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Compares a file with what it should be, or writes it.
pub(super) fn is_up_to_date(path: &Path, wanted: &str) {
    if std::env::var_os("IOP_UPDATE").is_some() {
        fs::write(path, wanted).unwrap();
    }
    let found = fs::read_to_string(path).unwrap_or_default();
    assert!(
        found == wanted,
        "{} is not what the code makes of it; `IOP_UPDATE=1 cargo test -p iop-edge` writes it anew.\n--- wanted\n{wanted}\n--- found\n{found}",
        path.display()
    );
}

/// Every leaf below a schema, by its path.
fn leaves(root: &Value, schema: &Value, path: &str, found: &mut BTreeSet<String>) {
    let section = resolved(root, schema);
    let child = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    if let Some(properties) = section["properties"].as_object() {
        for (name, schema) in properties {
            leaves(root, schema, &child(name), found);
        }
    } else if resolved(root, &section["items"])["properties"].is_object() {
        leaves(root, &section["items"], &format!("{path}[]"), found);
    } else if resolved(root, &section["additionalProperties"])["properties"].is_object() {
        leaves(root, &section["additionalProperties"], &child("NAME"), found);
    } else {
        found.insert(path.to_owned());
    }
}

#[test]
fn every_key_has_a_class_and_no_other_has() {
    let root = raw();
    let mut keys = BTreeSet::new();
    leaves(root, root, "", &mut keys);
    let classed: BTreeSet<String> = class::TABLE.iter().map(|(path, _)| (*path).to_owned()).collect();
    assert_eq!(classed.len(), class::TABLE.len(), "a key stands twice in the table");
    let without: Vec<_> = keys.difference(&classed).collect();
    let stale: Vec<_> = classed.difference(&keys).collect();
    assert!(without.is_empty() && stale.is_empty(), "without a class: {without:?}; no key: {stale:?}");
    assert!(keys.len() > 120, "{}", keys.len());
}

#[test]
fn every_key_is_described_and_has_a_default_or_says_why_not() {
    let root = raw();
    for (path, _) in class::TABLE {
        let schema = find(root, path).unwrap();
        let text = schema["description"].as_str().unwrap_or_default();
        assert!(text.len() > 5, "{path} is not described");
        let has = ["default", "x-default", "x-required"].iter().any(|name| schema.get(name).is_some());
        assert!(has, "{path} has no default");
    }
}

fn kind(root: &Value, path: &str) -> String {
    let schema = find(root, path).unwrap();
    if schema.get("x-words").is_some() {
        return "word".to_owned();
    }
    let of_items = |item: &Value| match item["type"].as_str() {
        Some("integer") => "list of integers".to_owned(),
        _ => "list".to_owned(),
    };
    match schema.get("x-kind").and_then(Value::as_str) {
        Some("addresses") => return "list of addresses".to_owned(),
        Some(kind) => return kind.to_owned(),
        None => {}
    }
    let types = &schema["type"];
    let name = types.as_str().or_else(|| types[0].as_str()).unwrap_or_default();
    let bound = |name: &str| schema.get(name).and_then(Value::as_i64);
    match (name, bound("minimum"), bound("maximum")) {
        ("integer", Some(min), Some(max)) => format!("integer {min}–{max}"),
        ("integer", Some(min), None) => format!("integer ≥ {min}"),
        ("string", ..) => "text".to_owned(),
        ("array", ..) => of_items(resolved(root, &schema["items"])),
        ("object", ..) => "mapping".to_owned(),
        (other, ..) => other.to_owned(),
    }
}

fn row(root: &Value, path: &str, class: class::Class) -> String {
    let schema = find(root, path).unwrap();
    let words = |name: &str| schema.get(name).and_then(Value::as_str).map(str::to_owned);
    let required = schema.get("x-required").map(|_| "required".to_owned());
    let literal = schema.get("default").map(|default| match default {
        Value::String(text) if !text.is_empty() => format!("`{text}`"),
        Value::Array(items) => {
            format!("`[{}]`", items.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))
        }
        other => format!("`{other}`"),
    });
    let default = required.or_else(|| words("x-default")).or(literal).unwrap_or_default();
    let mut meaning = words("description").unwrap_or_default().replace('\n', " ").replace('|', "\\|");
    if let Some(list) = schema.get("x-words").and_then(Value::as_array) {
        let list: Vec<_> = list.iter().filter_map(Value::as_str).map(|word| format!("`{word}`")).collect();
        meaning = format!("{}: {}", meaning.trim_end_matches('.'), list.join(", "));
    }
    if let Some(zero) = schema.get("x-zero") {
        meaning = format!("{}; 0 = {zero}", meaning.trim_end_matches('.'));
    }
    format!("| `{path}` | {} | {default} | {meaning} | {} |\n", kind(root, path), class.as_str())
}

/// The table of the keys under some sections.
fn keys_table(sections: &str) -> String {
    let root = raw();
    let mut table = "| Key | Type | Default | Meaning | Change |\n|---|---|---|---|---|\n".to_owned();
    let sections: Vec<_> = sections.split_whitespace().collect();
    for (path, class) in class::TABLE {
        let is_below = |section: &str| {
            path.strip_prefix(section).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        if sections.iter().any(|section| is_below(section)) {
            table.push_str(&row(root, path, *class));
        }
    }
    table
}

fn profiles_table() -> String {
    let mut table =
        "| Profile | Address | Speaks | Operations | Capabilities |\n|---|---|---|---|---|\n".to_owned();
    for profile in catalog::CATALOG {
        let address = match profile.base_url {
            "" => "none: `base_url` is required".to_owned(),
            url => format!("`{url}`"),
        };
        let named = |wanted| catalog::OPERATIONS.iter().find(|(_, it)| *it == wanted).unwrap().0;
        let operations: Vec<_> = profile.operations.iter().map(|(operation, _)| named(*operation)).collect();
        table.push_str(&format!(
            "| {} | {address} | {} | {} | {} |\n",
            profile.id,
            profile.driver.as_str(),
            operations.join(", "),
            capability::names(profile.capabilities).join(", ")
        ));
    }
    table
}

/// The page with every generated part made anew. A part stands between `<!-- keys: SECTION … -->` or `<!-- profiles -->` and
/// `<!-- end -->`.
fn page(text: &str) -> String {
    let mut out = String::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        out.push_str(line);
        out.push('\n');
        let part = line.strip_prefix("<!-- ").and_then(|rest| rest.strip_suffix(" -->"));
        let made = match part {
            Some("profiles") => profiles_table(),
            Some(part) => match part.strip_prefix("keys: ") {
                Some(sections) => keys_table(sections),
                None => continue,
            },
            None => continue,
        };
        out.push_str(&format!("\n{made}\n<!-- end -->\n"));
        assert!(lines.any(|line| line == "<!-- end -->"), "{line} has no end");
    }
    out
}

#[test]
fn the_page_of_keys_and_profiles_is_made_from_the_code() {
    let path = root().join("docs/configuration.md");
    let text = fs::read_to_string(&path).unwrap();
    is_up_to_date(&path, &page(&text));
    let text = fs::read_to_string(&path).unwrap();
    for (key, _) in class::TABLE {
        assert_eq!(
            text.matches(&format!("\n| `{key}` |")).count(),
            1,
            "{key} stands once in docs/configuration.md"
        );
    }
}

#[test]
fn the_schema_file_is_made_from_the_code() {
    is_up_to_date(&root().join("configs/edge.schema.json"), &schema::text());
}

fn as_json(text: &str) -> Value {
    serde_saphyr::from_str::<Value>(text).unwrap()
}

fn validator() -> jsonschema::Validator {
    jsonschema::validator_for(&serde_json::from_str(&schema::text()).unwrap()).unwrap()
}

#[test]
fn every_file_under_configs_keeps_its_schema() {
    let validator = validator();
    let mut checked = 0;
    for entry in fs::read_dir(root().join("configs")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if !name.ends_with(".yaml") || name.starts_with("node") {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("# yaml-language-server: $schema="), "{name} does not name its schema");
        let errors: Vec<_> = validator
            .iter_errors(&as_json(&text))
            .map(|error| format!("{}: {error}", error.instance_path()))
            .collect();
        assert!(errors.is_empty(), "{name}: {errors:?}");
        checked += 1;
    }
    assert!(checked > 0);
}

#[test]
fn what_loads_keeps_the_schema_and_the_usual_slips_do_not() {
    let validator = validator();
    for text in [
        SMALL,
        "edge:\nlisten:\nopenai: { provider_id: x }\nnodes:\n  - id: box\n    adapters: { vllm: , cli: { enabled: false } }\n",
        "logging: { level: '${LEVEL}', format: '' }\n",
        &with_provider("capacity: 4\nheaders: { a: b }\nresume_args: []"),
    ] {
        let errors: Vec<_> = validator.iter_errors(&as_json(text)).map(|error| error.to_string()).collect();
        assert!(errors.is_empty(), "{errors:?}\nof\n{text}");
    }
    for text in [
        "edge: { nmae: x }\n",
        "edge: { shards: '2' }\n",
        "edge: { shards: 65 }\n",
        "listen: { http: 0.0.0.0:80 }\n",
        "logging: { level: verbose }\n",
        "nodes: [{ id: n, adapters: { vlm: {} } }]\n",
        "nodes: [{ alias: n }]\n",
        &with_provider("capacity: 0"),
        &with_provider("enabled: 'true'"),
    ] {
        assert!(!validator.is_valid(&as_json(text)), "{text}");
    }
}

/// The bounds of the schema are those of the loader: one step beyond them is refused, for every integer.
#[test]
fn schema_and_loader_have_the_same_bounds() {
    let root = raw();
    let mut checked = 0;
    for (path, _) in class::TABLE {
        let schema = find(root, path).unwrap();
        for (bound, step) in [("minimum", -1), ("maximum", 1)] {
            let Some(limit) = schema.get(bound).and_then(Value::as_i64) else { continue };
            let is_told = |value: i64| {
                let text = at_path(path, &value.to_string());
                let key = path.split(['.', '[']).next_back().unwrap();
                let report = load(&text).map_or_else(|errors| errors.to_string(), |_| String::new());
                report.lines().any(|line| {
                    let place = line.split(": ").nth(1).unwrap_or_default();
                    place.ends_with(key)
                        && line.contains("expected")
                        && !line.contains("twice")
                        && !line.contains("later")
                })
            };
            assert!(is_told(limit + step), "{path}: {} is not refused", limit + step);
            assert!(!is_told(limit), "{path}: {limit} is refused");
            checked += 1;
        }
    }
    assert!(checked > 50, "{checked}");
}

/// A file in which the key of `path` has `value`; what else the file lacks is not looked at.
fn at_path(path: &str, value: &str) -> String {
    let mut text = String::new();
    let mut indent = 0;
    for part in path.split('.') {
        let name = part.trim_end_matches("[]");
        text.push_str(&format!("{}{name}:\n", " ".repeat(indent)));
        indent += 2;
        if name != part {
            text.push_str(&format!("{}- ", " ".repeat(indent)));
            // The next key stands behind the dash.
            let rest = path.split_once(part).unwrap().1.trim_start_matches('.');
            let inner = at_path(rest, value);
            let inner = inner.replace('\n', &format!("\n{}", " ".repeat(indent + 2)));
            text.push_str(inner.trim_end());
            // A long capacity is bounded by the capacity, which is the most here.
            if rest == "long_context_capacity" {
                text.push_str(&format!("\n{}capacity: 32768", " ".repeat(indent + 2)));
            }
            return format!("{text}\n");
        }
    }
    format!("{} {value}\n", text.trim_end())
}
