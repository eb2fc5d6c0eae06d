//! What the model may call.

use std::collections::HashSet;

use proto::run_input::ToolChoice;

use super::{MISSING, is_object};
use crate::{
    anthropic::wire,
    conversation::{Checked, Tool, quoted, wrong},
};

/// The tools, whether they are to be called, and whether one at most.
pub(super) fn read(
    list: &[wire::Tool<'_>],
    choice: Option<&wire::Choice<'_>>,
) -> Checked<(Vec<Tool>, ToolChoice, bool)> {
    let mut names = HashSet::with_capacity(list.len());
    let mut tools = Vec::with_capacity(list.len());
    for (at, it) in list.iter().enumerate() {
        let tool = tool(it, &format!("tools[{at}]"))?;
        if it.name.as_ref().is_some_and(|name| !names.insert(&*name.0)) {
            return wrong(format!("tools[{at}].name"), format!("{} is another tool's", quoted(&tool.name)));
        }
        tools.push(tool);
    }
    let single = choice.and_then(|choice| choice.disable_parallel_tool_use).unwrap_or(false);
    let choice = match choice {
        None => ToolChoice::Auto,
        Some(choice) => chosen(choice, &tools)?,
    };
    Ok((tools, choice, single))
}

/// Tools that wait to be found (`defer_loading`) are offered as all others are: nobody searches here.
fn tool(it: &wire::Tool<'_>, path: &str) -> Checked<Tool> {
    // Those of another type run at Anthropic, or have a schema that only its models know.
    if let Some(kind) = it.kind.as_ref().filter(|kind| kind.0 != "custom") {
        return wrong(
            format!("{path}.type"),
            format!("this model takes tools of the client only (`custom`), not {}", quoted(&kind.0)),
        );
    }
    let Some(name) = it.name.as_ref().filter(|name| !name.0.is_empty()) else {
        return wrong(format!("{path}.name"), "expected a name");
    };
    let Some(schema) = it.input_schema.filter(|schema| is_object(schema)) else {
        return wrong(format!("{path}.input_schema"), "expected an object");
    };
    Ok(Tool {
        name: name.0.clone().into_owned(),
        description: it.description.as_ref().map(|text| text.0.clone().into_owned()).unwrap_or_default(),
        parameters: Some(schema.to_owned()),
        strict: it.strict,
    })
}

fn chosen(choice: &wire::Choice<'_>, tools: &[Tool]) -> Checked<ToolChoice> {
    match choice.kind.as_ref().map_or("", |kind| &kind.0) {
        "auto" => Ok(ToolChoice::Auto),
        "none" => Ok(ToolChoice::None),
        "any" if tools.is_empty() => wrong("tool_choice", "a tool is required, but there is none"),
        "any" => Ok(ToolChoice::Required),
        "tool" => {
            let Some(name) = &choice.name else {
                return wrong("tool_choice.name", format!("expected a name, {MISSING}"));
            };
            if tools.iter().all(|tool| tool.name != name.0) {
                return wrong("tool_choice.name", format!("{} is none of `tools`", quoted(&name.0)));
            }
            Ok(ToolChoice::Function(name.0.clone().into_owned()))
        }
        _ => wrong("tool_choice.type", "expected auto, any, tool or none"),
    }
}
