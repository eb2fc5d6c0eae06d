//! What a schema from a stranger may cost, found before it is compiled and before an answer is judged by it.
//!
//! The validator follows references as if their targets stood in their places, so a schema of a kilobyte can mean more work than
//! anybody has time for (`a` twice `b`, `b` twice `c`, …). Here the same ways are walked with a budget, first without an answer and
//! then with it, and nothing is compiled or judged that would not keep to it.

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::Fault;

/// Most bytes of one schema.
pub(super) const SCHEMA_BYTES_MAX: usize = 128 * 1024;
/// Most places of a schema where a value is looked at, each target of a reference counted wherever it is referred to.
const PLACES_MAX: u32 = 10_000;
/// Deepest nesting of such places.
const SCHEMA_DEPTH_MAX: u32 = 64;
/// Most patterns of one schema, and most bytes of one.
const PATTERNS_MAX: u32 = 64;
const PATTERN_BYTES_MAX: usize = 1024;
/// Most steps of judging one answer: pairs of a place in the schema and a value in the answer, without any short cut.
const STEPS_MAX: u32 = 200_000;
/// Deepest nesting of such pairs.
const JUDGED_DEPTH_MAX: u32 = 256;
/// Bytes of text that are matched against a pattern in the time of a step.
const PATTERN_BYTES_PER_STEP: usize = 8;

/// How the schemas of a keyword meet a value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Applies {
    /// To the same value.
    Same,
    /// To each element of an array.
    Items,
    /// To each value of an object.
    Values,
    /// To the value of that name.
    Named,
    /// To each key of an object.
    Keys,
}

/// The keywords that hold schemas, of all drafts: each value may be a schema, a list or a map of them.
const APPLICATORS: [(&str, Applies, bool); 20] = [
    ("allOf", Applies::Same, false),
    ("anyOf", Applies::Same, false),
    ("oneOf", Applies::Same, false),
    ("not", Applies::Same, false),
    ("if", Applies::Same, false),
    ("then", Applies::Same, false),
    ("else", Applies::Same, false),
    ("dependentSchemas", Applies::Same, true),
    ("dependencies", Applies::Same, true),
    ("properties", Applies::Named, true),
    ("patternProperties", Applies::Values, true),
    ("additionalProperties", Applies::Values, false),
    ("unevaluatedProperties", Applies::Values, false),
    ("propertyNames", Applies::Keys, false),
    ("items", Applies::Items, false),
    ("additionalItems", Applies::Items, false),
    ("prefixItems", Applies::Items, false),
    ("contains", Applies::Items, false),
    ("unevaluatedItems", Applies::Items, false),
    // Draft 3 had it; no later draft looks at it.
    ("extends", Applies::Same, false),
];

/// The schemas that a keyword holds, each with its name where it is a map of them.
fn held<'s>(value: &'s Value, is_map: bool) -> Box<dyn Iterator<Item = (&'s str, &'s Value)> + 's> {
    match value {
        Value::Object(map) if is_map => Box::new(map.iter().map(|(name, schema)| (name.as_str(), schema))),
        Value::Array(list) => Box::new(list.iter().map(|schema| ("", schema))),
        schema => Box::new(std::iter::once(("", schema))),
    }
}

fn applied(schema: &Map<String, Value>) -> impl Iterator<Item = (Applies, &str, &Value)> {
    APPLICATORS
        .iter()
        .filter_map(|(name, applies, is_map)| Some((*applies, *is_map, schema.get(*name)?)))
        .flat_map(|(applies, is_map, value)| {
            held(value, is_map).map(move |(name, schema)| (applies, name, schema))
        })
}

/// What `#…` points at.
fn target<'s>(root: &'s Value, reference: &str) -> Option<&'s Value> {
    let pointer = reference.strip_prefix('#')?;
    if !pointer.is_empty() && !pointer.starts_with('/') {
        return None;
    }
    root.pointer(&percent_decoded(pointer)?)
}

fn percent_decoded(text: &str) -> Option<Cow<'_, str>> {
    if !text.contains('%') {
        return Some(text.into());
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut parts = text.split('%');
    bytes.extend_from_slice(parts.next()?.as_bytes());
    for part in parts {
        bytes.push(u8::from_str_radix(part.get(..2)?, 16).ok()?);
        bytes.extend_from_slice(part.get(2..)?.as_bytes());
    }
    String::from_utf8(bytes).ok().map(Cow::Owned)
}

/// Looks at a schema before it is compiled.
pub(super) fn check(root: &Value) -> Result<(), Fault> {
    if has_inner_id(root) {
        return Err(Fault::Reference);
    }
    Check { root, places: 0, patterns: 0, following: Vec::new() }.place(root, 0, 0)
}

/// Whether a schema within it names itself or its draft, so that `#` there would mean something else. `id` did so up to draft 4. A
/// member of an answer that is called `$id` is described by an object.
fn has_inner_id(root: &Value) -> bool {
    let text = |value: &Value, name: &str| value.get(name).is_some_and(Value::is_string);
    let is_old = root.get("$schema").and_then(Value::as_str).is_some_and(|draft| draft.contains("draft-04"));
    let mut open: Vec<&Value> = within(root).collect();
    while let Some(value) = open.pop() {
        if text(value, "$id") || text(value, "$schema") || is_old && text(value, "id") {
            return true;
        }
        open.extend(within(value));
    }
    false
}

/// The values in a value.
fn within(value: &Value) -> Box<dyn Iterator<Item = &Value> + '_> {
    match value {
        Value::Object(map) => Box::new(map.values()),
        Value::Array(list) => Box::new(list.iter()),
        _ => Box::new(std::iter::empty()),
    }
}

struct Check<'s> {
    root: &'s Value,
    places: u32,
    patterns: u32,
    /// References on the way here, each with how far into an answer it was met: one that comes again closes a circle.
    following: Vec<(&'s str, u32)>,
}

impl<'s> Check<'s> {
    /// `level` = how far into an answer.
    fn place(&mut self, schema: &'s Value, depth: u32, level: u32) -> Result<(), Fault> {
        self.places += 1;
        if self.places > PLACES_MAX {
            return Err(Fault::TooLarge);
        }
        if depth > SCHEMA_DEPTH_MAX {
            return Err(Fault::TooDeep);
        }
        let Value::Object(map) = schema else { return Ok(()) };
        if ["$dynamicRef", "$recursiveRef"].iter().any(|name| map.contains_key(*name)) {
            return Err(Fault::Reference);
        }
        self.pattern(map.get("pattern").and_then(Value::as_str))?;
        if let Some(Value::Object(patterns)) = map.get("patternProperties") {
            patterns.keys().try_for_each(|pattern| self.pattern(Some(pattern)))?;
        }
        for (applies, _, schema) in applied(map) {
            self.place(schema, depth + 1, level + u32::from(applies != Applies::Same))?;
        }
        match map.get("$ref") {
            None => Ok(()),
            Some(Value::String(reference)) => {
                let target = target(self.root, reference).ok_or(Fault::Reference)?;
                match self.following.iter().rfind(|(name, _)| name == reference) {
                    // The same place for the same value: it would never end.
                    Some((_, before)) if *before == level => return Err(Fault::Reference),
                    Some(_) => return Ok(()),
                    None => self.following.push((reference, level)),
                }
                self.place(target, depth + 1, level)?;
                self.following.pop();
                Ok(())
            }
            Some(_) => Err(Fault::Reference),
        }
    }

    fn pattern(&mut self, pattern: Option<&str>) -> Result<(), Fault> {
        let Some(pattern) = pattern else { return Ok(()) };
        self.patterns += 1;
        if self.patterns > PATTERNS_MAX || pattern.len() > PATTERN_BYTES_MAX {
            return Err(Fault::Pattern);
        }
        Ok(())
    }
}

/// How many steps it takes to judge `answer`, about and at most; `None` = too many, or too deep.
pub(super) fn steps(root: &Value, answer: &Value) -> Option<u32> {
    let mut walk = Walk { root, left: STEPS_MAX };
    walk.pair(root, answer, 0).then(|| STEPS_MAX - walk.left)
}

struct Walk<'s> {
    root: &'s Value,
    left: u32,
}

impl Walk<'_> {
    fn spend(&mut self, steps: usize) -> bool {
        let left = u32::try_from(steps).ok().and_then(|steps| self.left.checked_sub(steps));
        self.left = left.unwrap_or_default();
        left.is_some()
    }

    /// `false` = it would be too much.
    fn pair(&mut self, schema: &Value, value: &Value, depth: u32) -> bool {
        if depth > JUDGED_DEPTH_MAX || !self.spend(1) {
            return false;
        }
        let Value::Object(map) = schema else { return true };
        if !self.own(map, value) {
            return false;
        }
        for (applies, name, schema) in applied(map) {
            let fits = match (applies, value) {
                (Applies::Same, value) => self.pair(schema, value, depth + 1),
                (Applies::Items, Value::Array(items)) => {
                    items.iter().all(|item| self.pair(schema, item, depth + 1))
                }
                (Applies::Values, Value::Object(members)) => {
                    members.values().all(|value| self.pair(schema, value, depth + 1))
                }
                (Applies::Named, Value::Object(members)) => {
                    members.get(name).is_none_or(|value| self.pair(schema, value, depth + 1))
                }
                (Applies::Keys, Value::Object(members)) => {
                    members.keys().all(|key| self.pair(schema, &Value::from(key.as_str()), depth + 1))
                }
                _ => true,
            };
            if !fits {
                return false;
            }
        }
        match map.get("$ref").and_then(Value::as_str).and_then(|reference| target(self.root, reference)) {
            Some(target) => self.pair(target, value, depth + 1),
            None => true,
        }
    }

    /// What the keywords without schemas cost.
    fn own(&mut self, map: &Map<String, Value>, value: &Value) -> bool {
        let compared = |value: &Value| match value {
            Value::Array(items) => items.len(),
            Value::Object(members) => members.len(),
            _ => 1,
        };
        let listed = map.get("enum").and_then(Value::as_array).map_or(0, Vec::len);
        // What was looked at is looked at again for each member, at every level.
        let unevaluated =
            ["unevaluatedProperties", "unevaluatedItems"].iter().any(|name| map.contains_key(*name));
        let again = if unevaluated { compared(value).saturating_mul(map.len()) } else { 0 };
        let unique = if map.contains_key("uniqueItems") { compared(value) } else { 0 };
        let matched = match value {
            Value::String(text) if map.contains_key("pattern") => text.len() / PATTERN_BYTES_PER_STEP,
            Value::Object(members) => {
                let patterns = map.get("patternProperties").and_then(Value::as_object).map_or(0, Map::len);
                members
                    .keys()
                    .map(|key| 1 + key.len() / PATTERN_BYTES_PER_STEP)
                    .sum::<usize>()
                    .saturating_mul(patterns)
            }
            _ => 0,
        };
        [listed, again, unique, matched].into_iter().all(|steps| self.spend(steps))
    }
}
