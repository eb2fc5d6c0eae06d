//! The tools of a request, and which of them may be called.

use std::{borrow::Cow, collections::HashSet};

use proto::run_input::ToolChoice;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::{
    conversation::{Checked, Tool, quoted, wrong},
    openai::responses::{
        CallForm, Called, Names,
        echo::{TOLD_BYTES_MAX, compact},
        wire::{self, is_object, is_string, parse, some_text, text},
        writer::write,
    },
};

/// Tools of OpenAI's own service that Codex offers to every model unasked. Their absence is one more thing that the model cannot do,
/// and no other answer to what it was asked; so they are left out.
const LEFT_OUT: [&str; 3] = ["web_search", "tool_search", "image_generation"];

/// Most tools that a model may be offered, those of all groups together: what the client calls them is kept while it is answered.
const TOOLS_MAX: usize = 4096;

/// What a custom tool is at a backend.
const CUSTOM_PARAMETERS: &str = r#"{"type":"object","properties":{"input":{"type":"string","description":"The text for the tool, as it is."}},"required":["input"],"additionalProperties":false}"#;

/// What `tools` and `tool_choice` say.
#[derive(Debug, Default)]
pub(super) struct Tools {
    /// As functions.
    pub(super) list: Vec<Tool>,
    pub(super) choice: ToolChoice,
    /// What the client calls them.
    pub(super) names: Names,
    /// The elements of the response's `tools`, as JSON.
    pub(super) told: Vec<u8>,
}

/// Where a tool stands.
#[derive(Clone, Copy)]
struct Group<'a> {
    name: &'a str,
    /// Said with the first of its tools: backends have no other place for it, and with each it would be said too often.
    description: &'a str,
}

/// Reads both.
pub(super) fn read(list: &[&RawValue], choice: Option<&RawValue>) -> Checked<Tools> {
    let mut tools = Tools::default();
    for (at, raw) in list.iter().enumerate() {
        let path = format!("tools[{at}]");
        let tool: wire::Tool<'_> = parse(raw, &path)?;
        tools.add(&tool, &path)?;
        // What is too long is not told at all.
        if tools.told.len() <= TOLD_BYTES_MAX {
            if at > 0 {
                tools.told.push(b',');
            }
            tell(&tool, raw, &path, &mut tools.told)?;
        }
    }
    tools.choose(choice)?;
    Ok(tools)
}

impl Tools {
    fn add(&mut self, tool: &wire::Tool<'_>, path: &str) -> Checked<()> {
        match &*tool.kind.0 {
            "function" | "custom" => self.callable(tool, None, path),
            "namespace" => self.group(tool, path),
            kind if LEFT_OUT.contains(&kind) => Ok(()),
            other => {
                let found = quoted(other);
                wrong(
                    format!("{path}.type"),
                    format!("expected function, custom or namespace: tools of type {found} are not run here"),
                )
            }
        }
    }

    fn group(&mut self, tool: &wire::Tool<'_>, path: &str) -> Checked<()> {
        let name = some_text(tool.name, path, "name")?;
        if name.is_empty() {
            return wrong(format!("{path}.name"), "expected a name, found an empty string");
        }
        let description = text(tool.description, path, "description")?.unwrap_or_default();
        let path = format!("{path}.tools");
        let Some(list) = tool.tools else { return wrong(path, "expected an array, but the key is missing") };
        let list: Vec<wire::Tool<'_>> = parse(list, &path)?;
        let mut description = &*description;
        for (at, tool) in list.iter().enumerate() {
            let path = format!("{path}[{at}]");
            if !matches!(&*tool.kind.0, "function" | "custom") {
                return wrong(format!("{path}.type"), "expected function or custom in a group");
            }
            self.callable(tool, Some(Group { name: &name, description }), &path)?;
            description = "";
        }
        Ok(())
    }

    /// Takes in a tool that the model may call.
    fn callable(&mut self, tool: &wire::Tool<'_>, group: Option<Group<'_>>, path: &str) -> Checked<()> {
        let name = some_text(tool.name, path, "name")?;
        if name.is_empty() {
            return wrong(format!("{path}.name"), "expected a name, found an empty string");
        }
        let own = text(tool.description, path, "description")?.unwrap_or_default();
        let mut description = match group.filter(|group| !group.description.is_empty()) {
            Some(Group { name, description }) => format!("[{name}: {description}]\n{own}"),
            None => own.into_owned(),
        };
        let is_custom = tool.kind.0 == "custom";
        let (form, parameters) = if is_custom {
            description.push_str(&grammar(tool.format, path)?);
            (CallForm::Custom, Some(RawValue::from_string(CUSTOM_PARAMETERS.to_owned())))
        } else {
            match tool.parameters {
                Some(schema) if !is_object(schema) => {
                    return wrong(format!("{path}.parameters"), "expected an object");
                }
                schema => (CallForm::Function, schema.map(|schema| Ok(schema.to_owned()))),
            }
        };
        let strict = tool.strict.map(|raw| parse(raw, &format!("{path}.strict"))).transpose()?;
        let namespace = group.map(|group| group.name.to_owned());
        let called = Called { form, namespace, name: name.into_owned() };
        if self.list.len() == TOOLS_MAX {
            return wrong(path, format!("expected at most {TOOLS_MAX} tools"));
        }
        let Ok(name) = self.names.add(called) else {
            return wrong(
                format!("{path}.name"),
                "another tool has this name, with the group's name before it",
            );
        };
        // What we wrote ourselves is JSON.
        let parameters = parameters.and_then(Result::ok);
        self.list.push(Tool { name, description, parameters, strict });
        Ok(())
    }

    fn choose(&mut self, choice: Option<&RawValue>) -> Checked<()> {
        let Some(raw) = choice else { return Ok(()) };
        self.choice = if is_string(raw) {
            mode("tool_choice", &parse::<wire::Text<'_>>(raw, "tool_choice")?.0)?
        } else {
            self.chosen(parse(raw, "tool_choice")?)?
        };
        if self.choice == ToolChoice::Required && self.list.is_empty() {
            return wrong("tool_choice", "a tool is required, but there is none that can be called");
        }
        Ok(())
    }

    fn chosen(&mut self, choice: wire::Choice<'_>) -> Checked<ToolChoice> {
        match &*choice.kind.0 {
            "function" | "custom" => {
                let Some(name) = &choice.name else {
                    return wrong("tool_choice.name", "expected a string, but the key is missing");
                };
                let joined = joined(choice.namespace.as_ref(), name);
                if self.list.iter().all(|tool| tool.name != joined) {
                    return wrong("tool_choice.name", format!("{} is none of `tools`", quoted(&name.0)));
                }
                Ok(ToolChoice::Function(joined))
            }
            "allowed_tools" => {
                let Some(allowed) = &choice.tools else {
                    return wrong("tool_choice.tools", "expected an array, but the key is missing");
                };
                let named = |tool: &wire::AllowedTool<'_>| {
                    tool.name.as_ref().map(|name| joined(tool.namespace.as_ref(), name))
                };
                let allowed: HashSet<String> = allowed.iter().filter_map(named).collect();
                self.list.retain(|tool| allowed.contains(&tool.name));
                mode("tool_choice.mode", choice.mode.as_ref().map_or("auto", |mode| &mode.0))
            }
            other => wrong(
                "tool_choice.type",
                format!("expected function, custom or allowed_tools, found {}", quoted(other)),
            ),
        }
    }
}

fn joined(namespace: Option<&wire::Text<'_>>, name: &wire::Text<'_>) -> String {
    Names::joined(namespace.map(|namespace| &*namespace.0), &name.0)
}

fn mode(param: &str, word: &str) -> Checked<ToolChoice> {
    Ok(match word {
        "auto" => ToolChoice::Auto,
        "none" => ToolChoice::None,
        "required" => ToolChoice::Required,
        _ => return wrong(param, "expected none, auto, required or an object"),
    })
}

/// What a custom tool's text must be, told to the model: no backend of ours keeps it to a grammar.
fn grammar(format: Option<&RawValue>, path: &str) -> Checked<String> {
    let Some(format) = format else { return Ok(String::new()) };
    let grammar: wire::Grammar<'_> = parse(format, &format!("{path}.format"))?;
    let Some(definition) = grammar.definition else { return Ok(String::new()) };
    let syntax = grammar.syntax.map_or(Cow::Borrowed("grammar"), |syntax| syntax.0);
    Ok(format!("\n\nThe text must be of this {syntax} grammar:\n{}", definition.0))
}

/// A function as the schemas of a response want it; they know every member of it. Anything else as it was sent.
fn tell(tool: &wire::Tool<'_>, raw: &RawValue, path: &str, out: &mut Vec<u8>) -> Checked<()> {
    if tool.kind.0 != "function" {
        compact(raw.get(), out);
        return Ok(());
    }
    #[derive(Serialize)]
    struct Function<'a> {
        #[serde(rename = "type")]
        kind: &'static str,
        name: Cow<'a, str>,
        description: Option<Cow<'a, str>>,
        strict: Option<bool>,
    }
    let function = Function {
        kind: "function",
        name: some_text(tool.name, path, "name")?,
        description: text(tool.description, path, "description")?,
        strict: tool.strict.map(|raw| parse(raw, &format!("{path}.strict"))).transpose()?,
    };
    write(out, &function);
    out.pop();
    out.extend_from_slice(b",\"parameters\":");
    compact(tool.parameters.map_or("null", RawValue::get), out);
    out.push(b'}');
    Ok(())
}
