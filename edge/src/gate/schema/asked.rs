//! What a request says its answer will be.

use std::collections::HashMap;

use serde_json::value::RawValue;

use super::{BadSchema, judge::Judge};
use crate::{gate::rebuild::Members, surface::Surface};

/// What a text was promised to be.
#[derive(Debug)]
pub(super) enum Promise {
    /// Any JSON object.
    Object,
    /// What a schema allows.
    Schema(Judge),
}

/// The promises of a request.
#[derive(Debug, Default)]
pub(super) struct Asked {
    /// Of its content.
    pub(super) content: Option<Promise>,
    /// Of the arguments of tools, by their names.
    pub(super) tools: Vec<(String, Promise)>,
}

/// Most tools that are judged of one request; of further ones nothing is.
const TOOLS_MAX: usize = 128;

/// A promise as it stands in the body. Without a schema any object is meant.
struct Told<'a> {
    schema: Option<&'a RawValue>,
    param: &'static str,
}

#[derive(Default)]
struct Found<'a> {
    content: Option<Told<'a>>,
    tools: Vec<(String, Told<'a>)>,
}

/// Reads a body. What is not in its surface's form promises nothing: the provider refuses it.
pub(super) fn read(surface: Surface, body: &[u8]) -> Result<Asked, BadSchema> {
    let found = find(surface, body);
    let content = found.content.map(|told| told.promise()).transpose()?;
    let tools = found.tools.into_iter().map(|(name, told)| Ok((name, told.promise()?)));
    Ok(Asked { content, tools: tools.collect::<Result<_, _>>()? })
}

/// Bytes of all schemas that [`read`] would compile.
pub(super) fn schema_bytes(surface: Surface, body: &[u8]) -> usize {
    let found = find(surface, body);
    let told = found.content.iter().chain(found.tools.iter().map(|(_, told)| told));
    told.filter_map(|told| told.schema).map(|schema| schema.get().len()).sum()
}

fn find(surface: Surface, body: &[u8]) -> Found<'_> {
    let mut found = Found::default();
    let Some(members) = Members::of_body(body) else { return found };
    let tools = members.list("tools");
    let tools = tools.into_iter().filter_map(Members::of);
    match surface {
        Surface::Chat => {
            if let Some(format) = members.object("response_format") {
                let schema = format.object("json_schema").and_then(|it| it.some("schema"));
                found.content = content(&format, schema, "response_format.json_schema.schema");
            }
            for function in tools.filter_map(|tool| tool.object("function")).filter(|it| it.is_true("strict"))
            {
                found.tool(&function, "parameters", "tools[].function.parameters");
            }
        }
        Surface::Responses => {
            if let Some(format) = members.object("text").and_then(|text| text.object("format")) {
                found.content = content(&format, format.some("schema"), "text.format.schema");
            }
            // Groups may use a name once each, and a call is known by its name alone: of such tools nothing is judged.
            let mut seen = HashMap::<_, u32>::new();
            for tool in tools {
                let inner = tool.list("tools");
                let inner = inner.into_iter().filter_map(Members::of);
                for tool in std::iter::once(tool).chain(inner) {
                    *seen.entry(tool.text("name")).or_default() += 1;
                    if tool.is_true("strict") {
                        found.tool(&tool, "parameters", "tools[].parameters");
                    }
                }
            }
            found.tools.retain(|(name, _)| seen.get(&Some(name.as_str().into())) == Some(&1));
        }
        Surface::Messages => {
            let format = members.object("output_config").and_then(|config| config.object("format"));
            if let Some(format) = format.or_else(|| members.object("output_format")) {
                found.content = content(&format, format.some("schema"), "output_config.format.schema");
            }
            // A tool that has to be called promises as much as a strict one: its call is the answer.
            let choice = members.object("tool_choice");
            let forced = choice.filter(|choice| choice.text("type").is_some_and(|kind| kind == "tool"));
            let forced = forced.and_then(|choice| choice.text("name"));
            for tool in
                tools.filter(|tool| tool.is_true("strict") || forced.is_some() && tool.text("name") == forced)
            {
                found.tool(&tool, "input_schema", "tools[].input_schema");
            }
        }
    }
    found
}

impl<'a> Found<'a> {
    fn tool(&mut self, tool: &Members<'a>, member: &str, param: &'static str) {
        if let Some(name) = tool.text("name").filter(|_| self.tools.len() < TOOLS_MAX) {
            self.tools.push((name.into_owned(), Told { schema: tool.some(member), param }));
        }
    }
}

impl Told<'_> {
    fn promise(&self) -> Result<Promise, BadSchema> {
        let Some(schema) = self.schema else { return Ok(Promise::Object) };
        let param = self.param;
        Judge::new(schema.get()).map(Promise::Schema).map_err(|fault| BadSchema { param, fault })
    }
}

fn content<'a>(format: &Members<'a>, schema: Option<&'a RawValue>, param: &'static str) -> Option<Told<'a>> {
    match format.text("type").as_deref() {
        Some("json_object") => Some(Told { schema: None, param }),
        Some("json_schema") => Some(Told { schema, param }),
        _ => None,
    }
}
