//! Requests as Claude Code 2.1 sends them, in shape: rebuilt from what was seen of it (api.md §4), not copied.

use proto::run_input::{Effort, Role};
use serde_json::{Value, json};

use super::super::*;
use crate::conversation::Part;

const TOOLS: [&str; 24] = [
    "Agent",
    "AskUserQuestion",
    "Bash",
    "BashOutput",
    "CronCreate",
    "CronDelete",
    "CronList",
    "Edit",
    "EnterPlanMode",
    "EnterWorktree",
    "ExitPlanMode",
    "ExitWorktree",
    "Glob",
    "Grep",
    "KillShell",
    "NotebookEdit",
    "Read",
    "Skill",
    "TaskOutput",
    "TaskStop",
    "TodoWrite",
    "WebFetch",
    "WebSearch",
    "Write",
];

fn tools() -> Value {
    let tool = |name: &&str| {
        json!({
            "name": name,
            "description": format!("What {name} does.\n\nUsage:\n- as \"it\" says"),
            "input_schema": {
                "$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object",
                "properties": {"path": {"type": "string", "description": "a path"}}, "required": ["path"],
                "additionalProperties": false
            }
        })
    };
    TOOLS.iter().map(tool).collect()
}

/// The members that every request of a session has.
fn request(messages: Value) -> Vec<u8> {
    json!({
        "model": "claude-sonnet-4-6",
        "messages": messages,
        "system": [
            {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1.197.4c2; cc_entrypoint=sdk-cli; cch=00000;"},
            {"type": "text", "text": "You are Claude Code.", "cache_control": {"type": "ephemeral", "ttl": "1h"}},
            {"type": "text", "text": "\nYou are an interactive agent.", "cache_control": {"type": "ephemeral", "scope": "global"}}
        ],
        "tools": tools(),
        "metadata": {"user_id": "{\"device_id\":\"5f\",\"account_uuid\":\"\",\"session_id\":\"7c\"}"},
        "max_tokens": 32000,
        "thinking": {"type": "adaptive"},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "output_config": {"effort": "high"},
        "diagnostics": {"previous_message_id": null},
        "stream": true
    })
    .to_string()
    .into_bytes()
}

fn text(part: &Part) -> &str {
    let Part::Text(text) = part else { panic!("{part:?} is no text") };
    text
}

#[test]
fn the_first_turn_of_claude_code_is_understood() {
    let asked = read(&request(json!([
        {"role": "user", "content": [
            {"type": "text", "text": "<system-reminder>\nToday is a day.\n</system-reminder>\n"},
            {"type": "text", "text": "hi", "cache_control": {"type": "ephemeral", "ttl": "1h"}}
        ]},
        {"role": "system", "content": "The following skills are available."}
    ])))
    .unwrap();
    assert_eq!((&*asked.model, asked.stream), ("claude-sonnet-4-6", true));
    let conversation = asked.conversation;
    let roles: Vec<Role> = conversation.messages.iter().map(|message| message.role).collect();
    assert_eq!(roles, [Role::System, Role::User, Role::System]);
    let prompt: Vec<&str> = conversation.messages[0].parts.iter().map(text).collect();
    assert_eq!(prompt, ["You are Claude Code.", "\nYou are an interactive agent."]);
    let names: Vec<&str> = conversation.tools.iter().map(|tool| &*tool.name).collect();
    assert_eq!(names, TOOLS);
    assert_eq!((conversation.options.max_tokens, conversation.effort), (Some(32_000), Some(Effort::High)));
    assert!(conversation.metadata["user_id"].contains("session_id"));
    assert!(conversation.into_run_input().is_ok());
}

#[test]
fn a_turn_with_results_of_claude_code_is_understood() {
    let asked = read(&request(json!([
        {"role": "user", "content": "list and read"},
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "First the list.", "signature": ""},
            {"type": "text", "text": "I look."},
            {"type": "tool_use", "id": "call_1", "name": "Bash", "input": {"command": "ls"}},
            {"type": "tool_use", "id": "call_2", "name": "Read", "input": {"path": "/a"}}
        ]},
        {"role": "user", "content": [
            {"tool_use_id": "call_1", "type": "tool_result", "content": "a\nb", "is_error": false},
            {"type": "tool_result", "tool_use_id": "call_2", "is_error": true, "cache_control": {"type": "ephemeral"},
             "content": [{"type": "text", "text": "<tool_use_error>File does not exist.</tool_use_error>"}]},
            {"type": "text", "text": "<system-reminder>Mind the list.</system-reminder>"}
        ]}
    ])))
    .unwrap();
    let input = asked.conversation.into_run_input().unwrap();
    let turns: Vec<(Role, &str, &str)> =
        input.messages.iter().map(|turn| (turn.role, &*turn.tool_name, &*turn.text)).collect();
    assert_eq!(
        turns,
        [
            (Role::System, "", "You are Claude Code.\n\nYou are an interactive agent."),
            (Role::User, "", "list and read"),
            (Role::Assistant, "", "I look."),
            (Role::Tool, "Bash", "a\nb"),
            (Role::Tool, "Read", "Error:\n<tool_use_error>File does not exist.</tool_use_error>"),
            (Role::User, "", "<system-reminder>Mind the list.</system-reminder>"),
        ]
    );
    assert_eq!(input.messages[2].reasoning, "First the list.");
    let calls: Vec<(&str, &str)> =
        input.messages[2].tool_calls.iter().map(|call| (&*call.id, &*call.function.arguments)).collect();
    assert_eq!(calls, [("call_1", r#"{"command":"ls"}"#), ("call_2", r#"{"path":"/a"}"#)]);
}

/// Titles and the like: no tools, no thinking, an answer of a form.
#[test]
fn a_request_beside_the_conversation_is_understood() {
    let asked = read(
        json!({
            "model": "claude-haiku-4-5", "max_tokens": 32000, "temperature": 1, "stream": true, "tools": [],
            "thinking": {"type": "disabled"}, "system": [{"type": "text", "text": "Write a title."}],
            "messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}],
            "output_config": {"format": {"type": "json_schema", "schema": {"type": "object", "required": ["title"]}}}
        })
        .to_string()
        .as_bytes(),
    )
    .unwrap();
    assert_eq!(asked.conversation.effort, Some(Effort::None));
    assert!(matches!(asked.conversation.format, Format::JsonSchema { .. }));
}
