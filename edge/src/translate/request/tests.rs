use proto::run_input::{Call, CallKind, Role, ToolCall};
use serde_json::{Value, json};

use super::*;
use crate::conversation::{Image, ImageSource, Message, Part, Tool};

fn says(role: Role, text: &str) -> Message {
    Message { role, parts: vec![Part::Text(text.to_owned())], ..Message::default() }
}

fn picture(source: ImageSource) -> Part {
    Part::Image(Image { param: "messages[1].content[0]".to_owned(), source, detail: Some("low".to_owned()) })
}

fn png() -> Part {
    picture(ImageSource::Data { media_type: "image/png".to_owned(), base64: "aGk=".to_owned() })
}

fn called(id: &str, name: &str) -> ToolCall {
    let function = Call { name: name.to_owned(), arguments: "{\"a\":1}".to_owned() };
    ToolCall { id: id.to_owned(), kind: CallKind::Function, function }
}

fn to(profile: &str) -> Target<'static> {
    Target {
        model: "served",
        fields: GenerationFields::of_builtin(profile),
        dialect: ChatDialect::of_builtin(profile),
        stream: false,
        thinking_budget: None,
    }
}

fn sent(conversation: &Conversation, to: &Target<'_>) -> Value {
    serde_json::from_slice(&body(conversation, to).unwrap()).unwrap()
}

fn messages(messages: Vec<Message>, profile: &str) -> Value {
    let conversation = Conversation { messages, ..Conversation::default() };
    sent(&conversation, &to(profile))["messages"].take()
}

fn raw(json: &str) -> Box<RawValue> {
    RawValue::from_string(json.to_owned()).unwrap()
}

#[test]
fn a_plain_question_is_the_model_and_its_messages() {
    let conversation =
        Conversation { messages: vec![says(Role::User, "hi \"é\"\n")], ..Conversation::default() };
    let expected = json!({"model": "served", "messages": [{"role": "user", "content": "hi \"é\"\n"}]});
    assert_eq!(sent(&conversation, &to("vllm")), expected);
    let streamed = sent(&conversation, &Target { stream: true, ..to("vllm") });
    assert_eq!(streamed["stream"], json!(true));
    assert_eq!(streamed["stream_options"], json!({"include_usage": true}));
}

// case 59
#[test]
fn calls_and_their_results_keep_their_identities_and_their_places() {
    let asks = Message {
        role: Role::Assistant,
        reasoning: "hm".to_owned(),
        tool_calls: vec![called("call_a", "f"), called("call_b", "g")],
        ..Message::default()
    };
    let answer = |id: &str, parts| Message {
        role: Role::Tool,
        parts,
        tool_call_id: id.to_owned(),
        ..Message::default()
    };
    let list = vec![
        says(Role::User, "go"),
        asks,
        answer("call_a", vec![png()]),
        answer("call_b", vec![Part::Text("two".to_owned()), Part::Text("lines".to_owned()), png()]),
        says(Role::User, "and?"),
    ];
    let call = |id: &str, name: &str| json!({"id": id, "type": "function", "function": {"name": name, "arguments": "{\"a\":1}"}});
    let shown = json!({"type": "image_url",
        "image_url": {"url": "data:image/png;base64,aGk=", "detail": "low"}});
    let expected = json!([
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": null, "reasoning_content": "hm",
         "tool_calls": [call("call_a", "f"), call("call_b", "g")]},
        {"role": "tool", "content": "The picture follows.", "tool_call_id": "call_a"},
        {"role": "tool", "content": "two\nlines", "tool_call_id": "call_b"},
        {"role": "user", "content": [shown, shown, {"type": "text", "text": "and?"}]},
    ]);
    assert_eq!(messages(list, "llama_cpp"), expected);
}

#[test]
fn pictures_of_tools_stand_behind_the_last_answer_also_at_the_end() {
    let answer = Message {
        role: Role::Tool,
        parts: vec![Part::Text("t".to_owned()), png()],
        tool_call_id: "c".to_owned(),
        ..Message::default()
    };
    let list = messages(vec![answer], "openai");
    assert_eq!(list[0], json!({"role": "tool", "content": "t", "tool_call_id": "c"}));
    assert_eq!((&list[1]["role"], list.as_array().unwrap().len()), (&json!("user"), 2));
}

#[test]
fn a_picture_elsewhere_stays_where_it_is_and_only_users_and_tools_show_any() {
    let url = picture(ImageSource::Url("https://x/y.png".to_owned()));
    let asks =
        Message { role: Role::User, parts: vec![Part::Text("what?".to_owned()), url], ..Message::default() };
    let list = messages(vec![asks], "vllm");
    assert_eq!(list[0]["content"][0], json!({"type": "text", "text": "what?"}));
    assert_eq!(list[0]["content"][1]["image_url"], json!({"url": "https://x/y.png", "detail": "low"}));
    for role in [Role::Assistant, Role::System] {
        let shows = Message { role, parts: vec![png()], ..Message::default() };
        let conversation = Conversation { messages: vec![shows], ..Conversation::default() };
        let error = body(&conversation, &to("vllm")).unwrap_err();
        assert_eq!(error.param, "messages[1].content[0]");
    }
}

#[test]
fn what_is_said_first_is_one_message_and_what_comes_late_stands_where_templates_take_it() {
    let list = || {
        vec![
            says(Role::System, "one"),
            says(Role::System, "two"),
            says(Role::User, "hi"),
            says(Role::System, "late"),
            says(Role::User, "more"),
            says(Role::Assistant, "yes"),
            says(Role::System, "later"),
        ]
    };
    let expected = json!([
        {"role": "system", "content": "one\n\ntwo"},
        {"role": "user", "content": "hi\n\n<system-reminder>\nlate\n</system-reminder>\n\nmore"},
        {"role": "assistant", "content": "yes"},
        {"role": "user", "content": "<system-reminder>\nlater\n</system-reminder>"},
    ]);
    assert_eq!(messages(list(), "sglang"), expected);
    let roles = messages(list(), "openai");
    let roles: Vec<_> = roles.as_array().unwrap().iter().map(|it| it["role"].clone()).collect();
    assert_eq!(roles, ["system", "system", "user", "system", "user", "assistant", "system"]);
}

#[test]
fn reasoning_goes_back_by_the_name_that_its_engine_has_for_it() {
    for (profile, name) in [
        ("vllm", Some("reasoning_content")),
        ("deepseek", Some("reasoning_content")),
        ("openrouter", Some("reasoning")),
        ("openai", None),
    ] {
        let thought = Message { reasoning: "hm".to_owned(), ..says(Role::Assistant, "yes") };
        let list = messages(vec![thought], profile);
        let members: Vec<_> =
            list[0].as_object().unwrap().keys().filter(|key| key.starts_with("reas")).collect();
        assert_eq!(members, Vec::from_iter(name), "{profile}");
        assert_eq!(list[0]["content"], "yes");
    }
}

#[test]
fn tools_keep_their_schemas_to_the_letter_and_choices_need_tools() {
    let schema = r#"{"type":"object","properties":{"z":{"type":"number"},"a":{}}}"#;
    let tool = |strict| Tool {
        name: "f".to_owned(),
        description: "does".to_owned(),
        parameters: Some(raw(schema)),
        strict,
    };
    let mut conversation = Conversation {
        messages: vec![says(Role::User, "hi")],
        tools: vec![tool(Some(true)), tool(None)],
        tool_choice: ToolChoice::Function("f".to_owned()),
        single_tool_call: true,
        ..Conversation::default()
    };
    let text = String::from_utf8(body(&conversation, &to("vllm")).unwrap()).unwrap();
    assert_eq!(text.matches(schema).count(), 2, "{text}");
    let json: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(json["tools"][0]["function"]["strict"], true);
    assert_eq!(json["tools"][1]["function"].get("strict"), None);
    assert_eq!(json["tool_choice"], json!({"type": "function", "function": {"name": "f"}}));
    assert_eq!(json["parallel_tool_calls"], false);
    for (choice, word) in [
        (ToolChoice::Auto, Value::Null),
        (ToolChoice::None, json!("none")),
        (ToolChoice::Required, json!("required")),
    ] {
        conversation.tool_choice = choice;
        assert_eq!(sent(&conversation, &to("vllm"))["tool_choice"], word);
    }
    conversation.tools.clear();
    let json = sent(&conversation, &to("vllm"));
    assert_eq!([&json["tools"], &json["tool_choice"], &json["parallel_tool_calls"]], [&Value::Null; 3]);
}

#[test]
fn limits_and_sampling_have_the_names_that_their_engine_takes() {
    let options = Options {
        max_tokens: Some(7),
        temperature: Some(0.5),
        top_p: Some(0.9),
        top_k: Some(3),
        min_p: Some(0.1),
        frequency_penalty: Some(1.0),
        presence_penalty: Some(-1.0),
        seed: Some(-4),
        stop: vec!["x".to_owned()],
    };
    let conversation =
        Conversation { messages: vec![says(Role::User, "hi")], options, ..Conversation::default() };
    let expected = json!({"model": "served", "messages": [{"role": "user", "content": "hi"}],
        "max_tokens": 7, "temperature": 0.5, "top_p": 0.9, "top_k": 3, "min_p": 0.1,
        "frequency_penalty": 1.0, "presence_penalty": -1.0, "seed": -4, "stop": ["x"]});
    assert_eq!(sent(&conversation, &to("vllm")), expected);
    let openai = sent(&conversation, &to("openai"));
    assert_eq!(openai["max_completion_tokens"], 7);
    assert_eq!([&openai["max_tokens"], &openai["top_k"], &openai["min_p"]], [&Value::Null; 3]);
}

#[test]
fn effort_is_said_in_words_that_are_not_refused() {
    let said = |profile: &str, effort| {
        let conversation = Conversation {
            messages: vec![says(Role::User, "hi")],
            effort: Some(effort),
            ..Conversation::default()
        };
        let json = sent(&conversation, &Target { thinking_budget: Some(50), ..to(profile) });
        let members =
            json.as_object().unwrap().iter().filter(|(name, _)| !matches!(&***name, "model" | "messages"));
        Value::Object(members.map(|(name, value)| (name.clone(), value.clone())).collect())
    };
    for (profile, effort, expected) in [
        ("openai", Effort::Max, json!({"reasoning_effort": "xhigh"})),
        ("openai", Effort::Minimal, json!({"reasoning_effort": "minimal"})),
        ("openai", Effort::None, json!({"reasoning_effort": "none"})),
        ("sglang", Effort::Max, json!({"reasoning_effort": "high"})),
        ("sglang", Effort::Minimal, json!({"reasoning_effort": "low"})),
        ("vllm", Effort::Medium, json!({"reasoning_effort": "medium", "thinking_token_budget": 50})),
        ("vllm", Effort::None, json!({"chat_template_kwargs": {"enable_thinking": false}})),
        ("ollama", Effort::High, json!({})),
        ("ollama", Effort::None, json!({"reasoning_effort": "none"})),
    ] {
        assert_eq!(said(profile, effort), expected, "{profile} {effort:?}");
    }
}

#[test]
fn a_form_of_the_answer_is_asked_for_as_it_was() {
    let asked = |format| {
        let conversation =
            Conversation { messages: vec![says(Role::User, "hi")], format, ..Conversation::default() };
        sent(&conversation, &to("vllm"))["response_format"].take()
    };
    assert_eq!(asked(Format::Text), Value::Null);
    assert_eq!(asked(Format::JsonObject), json!({"type": "json_object"}));
    let schema = raw(r#"{"type":"object"}"#);
    let format = Format::JsonSchema { name: "answer".to_owned(), schema, strict: Some(true) };
    let expected = json!({"type": "json_schema",
        "json_schema": {"name": "answer", "schema": {"type": "object"}, "strict": true}});
    assert_eq!(asked(format), expected);
}
