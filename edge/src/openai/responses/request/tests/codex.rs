//! Requests as Codex makes them (api.md §1.2), written from the description of its own.

use super::*;
use crate::openai::{
    normalized::answer::{Finish, FinishReason, Piece},
    responses::writer::{Responses, Shape},
};

fn first_turn() -> Value {
    json!({
        "model": "gpt-oss:120b", "stream": true, "store": false, "instructions": "You are a coding agent.",
        "input": [
            {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "<permissions>"}]},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "<environment_context>"}]},
            {"type": "message", "role": "user", "id": "msg_0198", "content": [{"type": "input_text", "text": "list the files"}]},
        ],
        "tools": [
            {"type": "function", "name": "exec_command", "description": "Runs a command.", "strict": false,
             "parameters": {"type": "object", "properties": {"cmd": {"type": "string"}}, "required": ["cmd"], "additionalProperties": false}},
            {"type": "custom", "name": "apply_patch", "description": "Edits files.",
             "format": {"type": "grammar", "syntax": "lark", "definition": "start: begin_patch hunk+ end_patch"}},
            {"type": "namespace", "name": "agents", "description": "Tools for agents.", "tools": [
                {"type": "function", "name": "spawn", "description": "Spawns one.", "strict": false, "parameters": {"type": "object", "properties": {}}},
            ]},
            {"type": "web_search", "external_web_access": false},
        ],
        "tool_choice": "auto", "parallel_tool_calls": true, "reasoning": {"effort": "medium", "summary": "auto", "context": "all"},
        "include": ["reasoning.encrypted_content"], "prompt_cache_key": "0198-thread", "text": {"verbosity": "low"},
        "client_metadata": {"x-codex-installation-id": "i"}
    })
}

fn second_turn(items: &[Value]) -> Value {
    let mut body = first_turn();
    let input = body["input"].as_array_mut().unwrap();
    input.extend(items.iter().cloned());
    body
}

// req: RUN-3
#[test]
fn a_turn_with_its_tools_and_the_next_one_with_their_results() {
    let first = read(first_turn().to_string().as_bytes()).unwrap();
    assert_eq!(first.conversation.messages.len(), 4);
    let names: Vec<&str> = first.conversation.tools.iter().map(|tool| &*tool.name).collect();
    assert_eq!(names, ["exec_command", "apply_patch", "agents__spawn"]);
    let echo = first.echo.clone();
    let shape = Shape {
        id: "resp_1".to_owned(),
        created: 1,
        model: "m".into(),
        stream: false,
        echo,
        names: first.names,
    };
    let (mut writer, mut out) = (Responses::new(shape), Vec::new());
    for piece in [
        Piece::Reasoning("I look.".to_owned()),
        Piece::Text("Looking.".to_owned()),
        Piece::CallBegun { id: "c1".to_owned(), name: "exec_command".to_owned() },
        Piece::Arguments("{\"cmd\":\"ls\"}".to_owned()),
        Piece::CallBegun { id: "c2".to_owned(), name: "apply_patch".to_owned() },
        Piece::Arguments("{\"input\":\"*** Begin Patch\"}".to_owned()),
        Piece::CallBegun { id: "c3".to_owned(), name: "agents__spawn".to_owned() },
    ] {
        writer.piece(piece, &mut out).unwrap();
    }
    writer.finish(&Finish { reason: FinishReason::ToolCalls, usage: None }, &mut out);
    let answer: Value = serde_json::from_slice(&out).unwrap();
    assert_eq!(answer["output"][3]["type"], "custom_tool_call");
    assert_eq!(
        (&answer["output"][4]["namespace"], &answer["output"][4]["name"]),
        (&json!("agents"), &json!("spawn"))
    );
    assert_eq!(
        (&answer["tools"][2]["type"], &answer["prompt_cache_key"]),
        (&json!("namespace"), &json!("0198-thread"))
    );

    // Codex sends back the items as it got them, and a result for each call.
    let mut items = answer["output"].as_array().unwrap().clone();
    for (id, kind) in
        [("c1", "function_call_output"), ("c2", "custom_tool_call_output"), ("c3", "function_call_output")]
    {
        items.push(json!({"type": kind, "call_id": id, "output": format!("result of {id}")}));
    }
    let second = read(second_turn(&items).to_string().as_bytes()).unwrap();
    let tail: Vec<Value> = told(&second).as_array().unwrap()[4..].to_vec();
    let result = |id: &str, name: &str| json!({"role": "tool", "parts": [format!("result of {id}")], "for": [id, name]});
    assert_eq!(
        json!(tail),
        json!([
            {
                "role": "assistant", "parts": ["Looking."], "reasoning": "I look.",
                "calls": [["c1", "exec_command", "{\"cmd\":\"ls\"}"], ["c2", "apply_patch", "{\"input\":\"*** Begin Patch\"}"], ["c3", "agents__spawn", "{}"]]
            },
            result("c1", "exec_command"), result("c2", "apply_patch"), result("c3", "agents__spawn"),
        ])
    );
}
