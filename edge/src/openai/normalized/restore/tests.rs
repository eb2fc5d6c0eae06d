use super::*;

/// What comes of a text in these pieces: text as it is, calls in angle brackets.
fn restored<'a>(parts: impl IntoIterator<Item = &'a str>, is_cut: bool) -> String {
    let mut restorer = Restorer::new(vec!["f".to_owned(), "get_weather".to_owned()]);
    let mut pieces = Vec::new();
    for part in parts {
        restorer.push(part, &mut pieces);
    }
    restorer.finish(is_cut, &mut pieces);
    shown(&pieces)
}

fn shown(pieces: &[Piece]) -> String {
    let one = |piece: &Piece| match piece {
        Piece::Text(text) | Piece::Reasoning(text) => text.clone(),
        Piece::CallBegun { .. } | Piece::Arguments(_) => unreachable!("restored calls are whole"),
        Piece::Call(call) => format!("⟨{} {}⟩", call.function.name, call.function.arguments),
    };
    pieces.iter().map(one).collect()
}

/// Texts, and what comes of them.
const TABLE: &[(&str, &str, &str)] = &[
    ("prose", "hello, world", "hello, world"),
    ("nothing", "", ""),
    ("blanks only", " \n", " \n"),
    ("one call", r#"<tool_call>{"name":"f","arguments":{"a":1}}</tool_call>"#, r#"⟨f {"a":1}⟩"#),
    (
        "as models write it",
        "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": [1, 2], \"b\": \"x } y\"}}\n</tool_call>\n",
        r#"⟨f {"a":[1,2],"b":"x } y"}⟩"#,
    ),
    (
        "two calls with prose before, between and behind",
        "Let me look.\n<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>\n\n<tool_call>{\"name\":\"get_weather\",\"arguments\":{\"city\":\"서울\"}}</tool_call>\n done",
        "Let me look.\n⟨f {}⟩⟨get_weather {\"city\":\"서울\"}⟩\n done",
    ),
    ("parameters", r#"<tool_call>{"name":"f","parameters":{"a":1}}</tool_call>"#, r#"⟨f {"a":1}⟩"#),
    (
        "arguments in a string",
        r#"<tool_call>{"name":"f","arguments":"{\"a\": 1}"}</tool_call>"#,
        r#"⟨f {"a":1}⟩"#,
    ),
    ("no arguments", r#"<tool_call>{"name":"f"}</tool_call>"#, "⟨f {}⟩"),
    (
        "in OpenAI's form",
        r#"<tool_call>{"type":"function","function":{"name":"f","arguments":{}}}</tool_call>"#,
        "⟨f {}⟩",
    ),
    (
        "an array",
        r#"<tool_call>[{"name":"f","arguments":{}},{"name":"f","arguments":{"b":2}}]</tool_call>"#,
        r#"⟨f {}⟩⟨f {"b":2}⟩"#,
    ),
    (
        "order and numbers stay",
        r#"<tool_call>{"arguments":{"z":1.50,"a":1e3},"name":"f"}</tool_call>"#,
        r#"⟨f {"z":1.50,"a":1e3}⟩"#,
    ),
    // Closers that are missing.
    (
        "no closing tag",
        "<tool_call>{\"name\":\"f\",\"arguments\":{}}\n<tool_call>{\"name\":\"f\",\"arguments\":{\"c\":3}}",
        "⟨f {}⟩⟨f {\"c\":3}⟩",
    ),
    ("half a closing tag", r#"<tool_call>{"name":"f","arguments":{}}</tool"#, "⟨f {}⟩"),
    ("another tag in its place", r#"<tool_call>{"name":"f","arguments":{}}</b>x"#, "⟨f {}⟩</b>x"),
    ("one bracket", r#"<tool_call>{"name":"f","arguments":{"a":1}"#, r#"⟨f {"a":1}⟩"#),
    ("two brackets", r#"<tool_call>{"name":"f","arguments":{"a":1"#, r#"⟨f {"a":1}⟩"#),
    (
        "three brackets",
        r#"<tool_call>{"name":"f","arguments":{"a":[1"#,
        r#"<tool_call>{"name":"f","arguments":{"a":[1"#,
    ),
    (
        "in a string",
        r#"<tool_call>{"name":"f","arguments":{"a":"x"#,
        r#"<tool_call>{"name":"f","arguments":{"a":"x"#,
    ),
    // What is none stays as it was.
    (
        "an unknown name",
        r#"<tool_call>{"name":"rm","arguments":{}}</tool_call>"#,
        r#"<tool_call>{"name":"rm","arguments":{}}</tool_call>"#,
    ),
    (
        "arguments that are no object",
        r#"<tool_call>{"name":"f","arguments":[1]}</tool_call>"#,
        r#"<tool_call>{"name":"f","arguments":[1]}</tool_call>"#,
    ),
    (
        "arguments that hold no object",
        r#"<tool_call>{"name":"f","arguments":"x"}</tool_call> "#,
        r#"<tool_call>{"name":"f","arguments":"x"}</tool_call> "#,
    ),
    (
        "one of two unknown",
        r#"<tool_call>[{"name":"f"},{"name":"g"}]</tool_call>"#,
        r#"<tool_call>[{"name":"f"},{"name":"g"}]</tool_call>"#,
    ),
    ("no JSON", "<tool_call>{name: f}</tool_call>", "<tool_call>{name: f}</tool_call>"),
    ("no value", "the <tool_call> tag", "the <tool_call> tag"),
    ("a value of another kind", "<tool_call>5</tool_call>", "<tool_call>5</tool_call>"),
    ("brackets that do not fit", "<tool_call>{]</tool_call>", "<tool_call>{]</tool_call>"),
    ("half a tag", "a <tool_c", "a <tool_c"),
    ("tags that are others", "a<b <tool <<tool_call", "a<b <tool <<tool_call"),
    ("a tag behind a bracket", r#"<<tool_call>{"name":"f","arguments":{}}</tool_call>"#, "<⟨f {}⟩"),
    ("a closing tag alone", "x</tool_call>", "x</tool_call>"),
    // Code.
    (
        "in a fence",
        "see:\n```\n<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>\n```\n",
        "see:\n```\n<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>\n```\n",
    ),
    (
        "behind a fence",
        "```\nx\n```\n<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>",
        "```\nx\n```\n⟨f {}⟩",
    ),
    (
        "in inline code",
        r#"write `<tool_call>{"name":"f","arguments":{}}</tool_call>` now"#,
        r#"write `<tool_call>{"name":"f","arguments":{}}</tool_call>` now"#,
    ),
    ("behind inline code", r#"`x` <tool_call>{"name":"f","arguments":{}}</tool_call>"#, "`x` ⟨f {}⟩"),
    (
        "behind a lone mark",
        "a ` mark\n<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>",
        "a ` mark\n⟨f {}⟩",
    ),
    // Without a tag, at the very beginning only.
    ("bare", r#"{"name":"f","parameters":{"a":1}}"#, r#"⟨f {"a":1}⟩"#),
    ("bare behind blanks", "\n {\"name\":\"f\",\"arguments\":{}}\n", "⟨f {}⟩"),
    (
        "several bare",
        r#"{"name":"f","arguments":{}}; {"name":"f","arguments":{"b":2}}"#,
        r#"⟨f {}⟩⟨f {"b":2}⟩"#,
    ),
    ("a bare array", r#"[{"name":"f","arguments":{}}]"#, "⟨f {}⟩"),
    ("bare and text", r#"{"name":"f","arguments":{}} so"#, "⟨f {}⟩ so"),
    ("bare in prose", r#"so {"name":"f","arguments":{}}"#, r#"so {"name":"f","arguments":{}}"#),
    ("bare without arguments", r#"{"name":"f"}"#, r#"{"name":"f"}"#),
    (
        "other JSON",
        r#"{"city":"Paris","name":"f","arguments":{}}"#,
        r#"{"city":"Paris","name":"f","arguments":{}}"#,
    ),
    ("a list", "[1, 2]", "[1, 2]"),
    ("bare and cut", r#"{"name":"f","arguments":{"a":1"#, r#"⟨f {"a":1}⟩"#),
    // In a fence that is all of the answer.
    ("fenced", "```json\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n```", r#"⟨f {"a":1}⟩"#),
    ("fenced between blanks", "\n```\n[{\"name\":\"f\",\"arguments\":{}}]\n```\n", "⟨f {}⟩"),
    ("fenced without an end", "```json\n{\"name\":\"f\",\"arguments\":{}}\n", "⟨f {}⟩"),
    (
        "fenced and text",
        "```json\n{\"name\":\"f\",\"arguments\":{}}\n```\nThat is it.",
        "```json\n{\"name\":\"f\",\"arguments\":{}}\n```\nThat is it.",
    ),
    (
        "a fence of another language",
        "```python\n{\"name\":\"f\",\"arguments\":{}}\n```",
        "```python\n{\"name\":\"f\",\"arguments\":{}}\n```",
    ),
    ("a fence of a long word", "```javascript-and-more\nx\n```", "```javascript-and-more\nx\n```"),
    ("other JSON in a fence", "```json\n{\"a\":1}\n```", "```json\n{\"a\":1}\n```"),
    ("a fence of text", "```\nplain\n```", "```\nplain\n```"),
    ("inline code at the beginning", "`x` is", "`x` is"),
];

// req: RUN-4
#[test]
fn a_text_becomes_calls_and_what_is_none_stays_as_it_was() {
    for (name, text, expected) in TABLE {
        assert_eq!(restored([*text], false), *expected, "{name}");
    }
}

// req: RUN-4
#[test]
fn it_makes_no_difference_where_a_text_is_cut() {
    for (name, text, expected) in TABLE {
        let places: Vec<usize> = text.char_indices().map(|(at, _)| at).collect();
        for cut in &places {
            let (head, tail) = text.split_at(*cut);
            assert_eq!(restored([head, tail], false), *expected, "{name} at {cut}");
        }
        let letters = text.char_indices().map(|(at, char)| &text[at..at + char.len_utf8()]);
        assert_eq!(restored(letters, false), *expected, "{name} letter by letter");
    }
}

#[test]
fn of_prose_nothing_is_held_back_but_the_beginning_of_a_tag() {
    let mut restorer = Restorer::new(vec!["f".to_owned()]);
    let mut said = |text: &str| {
        let mut pieces = Vec::new();
        restorer.push(text, &mut pieces);
        shown(&pieces)
    };
    assert_eq!(said("Hello"), "Hello");
    assert_eq!(said(" a <"), " a ");
    assert_eq!(said("b"), "<b");
    assert_eq!(said(" <tool_cal"), " ");
    assert_eq!(said("x"), "<tool_calx");
    assert_eq!(said("<tool_call>"), "");
    assert_eq!(said("no"), "<tool_call>no");
    assert_eq!(said("<tool_call>{\"name\":\"f\",\"arguments\":{}"), "");
    assert_eq!(said("}"), "⟨f {}⟩", "a call is told as soon as its value is whole");
    // JSON that is no call streams, too.
    let mut restorer = Restorer::new(vec!["f".to_owned()]);
    let mut pieces = Vec::new();
    restorer.push("{\"ci", &mut pieces);
    assert_eq!(shown(&pieces), "{\"ci");
}

#[test]
fn an_answer_that_ran_out_of_tokens_is_not_repaired() {
    let text = r#"<tool_call>{"name":"f","arguments":{"a":1"#;
    assert_eq!(restored([text], true), text);
    let whole = r#"<tool_call>{"name":"f","arguments":{"a":1}}"#;
    assert_eq!(restored([whole], true), r#"⟨f {"a":1}⟩"#);
}

#[test]
fn what_is_too_long_too_deep_or_too_often_stays_text() {
    let long = format!(
        r#"<tool_call>{{"name":"f","arguments":{{"a":"{}"}}}}</tool_call>"#,
        "x".repeat(CALL_BYTES_MAX)
    );
    assert!(restored([long.as_str()], false) == long);
    let deep = format!("<tool_call>{}{}</tool_call>", "[".repeat(65), "]".repeat(65));
    assert_eq!(restored([deep.as_str()], false), deep);
    let one = r#"<tool_call>{"name":"f","arguments":{}}</tool_call>"#;
    let many = one.repeat(CALLS_MAX + 1);
    assert_eq!(restored([many.as_str()], false), "⟨f {}⟩".repeat(CALLS_MAX) + one);
}

// req: RUN-4
#[test]
fn calls_of_functions_that_the_request_does_not_have_are_text_and_counted() {
    for (text, unknown) in [
        ("hello", 0),
        (r#"<tool_call>{"name":"f","arguments":{}}</tool_call>"#, 0),
        (r#"<tool_call>{"name":"g","arguments":{}}</tool_call>"#, 1),
        (r#"<tool_call>{"name":"g"}</tool_call> and <tool_call>{"name":"h"}</tool_call>"#, 2),
        (r#"<tool_call>[{"name":"f"},{"name":"g"}]</tool_call>"#, 1),
        (r#"<tool_call>{"name":"g","arguments":{"#, 1),
        (r#"{"name":"g","arguments":{}}"#, 1),
        ("```json\n{\"name\":\"g\",\"arguments\":{}}\n```", 1),
        // No calls at all.
        (r#"<tool_call>{"arguments":{}}</tool_call>"#, 0),
        (r#"<tool_call>{"name":"g","arguments":[1]}</tool_call>"#, 0),
        (r#"{"name":"g"}"#, 0),
    ] {
        let mut restorer = Restorer::new(vec!["f".to_owned()]);
        let mut pieces = Vec::new();
        restorer.push(text, &mut pieces);
        restorer.finish(false, &mut pieces);
        assert_eq!(restorer.unknown(), unknown, "{text}");
        assert!(unknown == 0 || shown(&pieces) == text, "{text} became {pieces:?}");
    }
}
