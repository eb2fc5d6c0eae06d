//! The body that goes to a provider: the client's, with the served model's name (TUN-5) and with the model's token limits
//! filled in or raised (CFG-5). Nothing else of it changes, and nothing is copied that does not.

use std::ops::Range;

use bytes::Bytes;
use dataplane::http::body::Body;

use super::scan::{Amount, ChatScan, Limit, StreamOptions, Switch};
use crate::config::{GenerationFields, GenerationPolicy};

/// One replacement in a body.
type Edit = (Range<usize>, String);

/// The body for a provider that serves `target` and takes its limits in `fields`. With `asks_usage` a stream says its usage.
#[must_use]
pub fn body_for(
    scan: &ChatScan,
    body: &Body,
    target: &str,
    policy: &GenerationPolicy,
    fields: &GenerationFields,
    asks_usage: bool,
) -> Body {
    let mut edits = Vec::new();
    if target != scan.model {
        edits.push((scan.model_span.clone(), serde_json::Value::from(target).to_string()));
    }
    limit(scan, policy, fields, &mut edits);
    thinking(scan, policy, fields, &mut edits);
    edits.extend(asks_usage.then(|| usage(scan)).flatten());
    if edits.is_empty() {
        return body.clone();
    }
    // From the end to the beginning, so that no replacement moves the place of another one.
    edits.sort_by_key(|(place, _)| std::cmp::Reverse(place.start));
    edits.into_iter().fold(body.clone(), |body, (place, with)| body.replaced(&place, Bytes::from(with)))
}

/// A request without a limit gets the default one; a limit below the minimum is raised to it. What is no count of tokens
/// is the provider's to judge.
fn limit(scan: &ChatScan, policy: &GenerationPolicy, fields: &GenerationFields, edits: &mut Vec<Edit>) {
    let limits = &scan.limits;
    let given = match fields.max_tokens {
        "max_output_tokens" => [limits.max_output_tokens.as_ref(), None],
        // Servers of chat completions know either name; messages have the first one alone, and ignore the other.
        _ => [limits.max_tokens.as_ref(), limits.max_completion_tokens.as_ref()],
    };
    if given.into_iter().flatten().all(|limit| limit.amount == Amount::Null) {
        if let Some(default) = policy.default_max_tokens {
            let tokens = default.max(policy.min_max_tokens.unwrap_or_default());
            fill_in(scan, fields.max_tokens, tokens, edits);
        }
        return;
    }
    let Some(least) = policy.min_max_tokens else { return };
    for Limit { span, amount } in given.into_iter().flatten() {
        if matches!(amount, Amount::Tokens(tokens) if *tokens < least) {
            edits.push((span.clone(), least.to_string()));
        }
    }
}

/// A request without a budget for thinking gets the default one, at a provider that has a name for it.
fn thinking(scan: &ChatScan, policy: &GenerationPolicy, fields: &GenerationFields, edits: &mut Vec<Edit>) {
    let (Some(tokens), Some(field)) = (policy.default_thinking_token_budget, fields.thinking_budget) else {
        return;
    };
    let given = [&scan.limits.thinking_token_budget, &scan.limits.thinking_budget_tokens];
    if given.into_iter().flatten().all(|limit| limit.amount == Amount::Null) {
        fill_in(scan, field, tokens, edits);
    }
}

/// What has to change for a stream to say its usage at its end, when it was not asked to (case 72). `None` when it was, or when what
/// it was asked is the provider's to judge.
fn usage(scan: &ChatScan) -> Option<Edit> {
    const ASK: &str = "\"include_usage\":true";
    if !scan.stream {
        return None;
    }
    Some(match &scan.stream_options {
        StreamOptions::Absent => (scan.members_at..scan.members_at, format!("\"stream_options\":{{{ASK}}},")),
        StreamOptions::Null(span) => (span.clone(), format!("{{{ASK}}}")),
        StreamOptions::Object { include_usage: Some(Switch::Off(span)), .. } => {
            (span.clone(), "true".to_owned())
        }
        StreamOptions::Object { members_at, is_empty, include_usage: None } => {
            let comma = if *is_empty { "" } else { "," };
            (*members_at..*members_at, format!("{ASK}{comma}"))
        }
        StreamOptions::Object { include_usage: Some(Switch::On | Switch::Other), .. }
        | StreamOptions::Other => {
            return None;
        }
    })
}

/// Whether a stream of chat would say its usage only because the Edge asks for it.
#[must_use]
pub fn would_hide_usage(scan: &ChatScan) -> bool {
    usage(scan).is_some()
}

/// Sets a member that names nothing so far: in the place of its `null`, or as one more at the beginning.
fn fill_in(scan: &ChatScan, field: &'static str, tokens: u64, edits: &mut Vec<Edit>) {
    match scan.limits.get(field) {
        Some(limit) => edits.push((limit.span.clone(), tokens.to_string())),
        None => edits.push((scan.members_at..scan.members_at, format!("\"{field}\":{tokens},"))),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;
    use crate::{openai::scan::Scanner, surface::Surface};

    const VLLM: GenerationFields =
        GenerationFields { max_tokens: "max_tokens", thinking_budget: Some("thinking_token_budget") };
    const RESPONSES: GenerationFields =
        GenerationFields { max_tokens: "max_output_tokens", thinking_budget: None };
    const OPENAI: GenerationFields =
        GenerationFields { max_tokens: "max_completion_tokens", thinking_budget: None };

    fn scan(text: &str) -> ChatScan {
        let mut scanner = Scanner::default();
        scanner.push(text.as_bytes()).unwrap();
        scanner.finish().unwrap()
    }

    fn sent(text: &str, policy: GenerationPolicy, fields: GenerationFields) -> String {
        let scan = scan(text);
        for size in [1, 3, text.len()] {
            let pieces: Body = text.as_bytes().chunks(size).map(Bytes::copy_from_slice).collect();
            let out = body_for(&scan, &pieces, &scan.model, &policy, &fields, false);
            let whole = body_for(
                &scan,
                &Body::from(Bytes::copy_from_slice(text.as_bytes())),
                &scan.model,
                &policy,
                &fields,
                false,
            );
            assert_eq!(out.joined(), whole.joined());
            if size == text.len() {
                return String::from_utf8(out.joined().to_vec()).unwrap();
            }
        }
        unreachable!("the last size is the whole")
    }

    fn policy(default: u64, least: u64, thinking: u64) -> GenerationPolicy {
        let some = |tokens| Some(tokens).filter(|tokens| *tokens > 0);
        GenerationPolicy {
            default_max_tokens: some(default),
            min_max_tokens: some(least),
            default_thinking_token_budget: some(thinking),
        }
    }

    // req: TUN-5
    #[test]
    fn only_the_model_name_changes_and_every_other_byte_stays() {
        let text = "{ \"stream\" : true,\"n\":1.0, \"messages\":[{\"model\":\"x\"}],\t\"model\": \"a\\u0062\" ,\"t\":\"你\\u597d\"}";
        let scan = scan(text);
        let body = Body::from(Bytes::from_static(text.as_bytes()));
        assert_eq!((scan.model.as_str(), scan.stream), ("ab", true));
        let out = body_for(&scan, &body, "Qwen/\"Q\"", &policy(0, 0, 0), &VLLM, false);
        let expected = text.replace("\"a\\u0062\"", "\"Qwen/\\\"Q\\\"\"");
        assert_eq!(out.joined(), expected.as_bytes());
        let same = body_for(&scan, &body, "ab", &policy(0, 0, 0), &VLLM, false);
        assert_eq!(same.joined().as_ptr(), text.as_ptr());
    }

    // req: CFG-5
    #[test]
    fn limits_are_filled_in_and_raised_and_nothing_else_changes() {
        for (body, policy, fields, expected) in [
            // Without a policy the body stays.
            (
                "{\"model\":\"m\",\"max_tokens\":1}",
                policy(0, 0, 0),
                VLLM,
                "{\"model\":\"m\",\"max_tokens\":1}",
            ),
            // None is named: the default, under the provider's name for it.
            ("{ \"model\":\"m\"}", policy(100, 0, 0), VLLM, "{\"max_tokens\":100, \"model\":\"m\"}"),
            (
                "{\"model\":\"m\"}",
                policy(100, 0, 0),
                OPENAI,
                "{\"max_completion_tokens\":100,\"model\":\"m\"}",
            ),
            ("{\"model\":\"m\"}", policy(100, 300, 0), VLLM, "{\"max_tokens\":300,\"model\":\"m\"}"),
            ("{\"model\":\"m\"}", policy(0, 300, 0), VLLM, "{\"model\":\"m\"}"),
            // `null` names none.
            (
                "{\"model\":\"m\",\"max_tokens\":null}",
                policy(100, 0, 0),
                VLLM,
                "{\"model\":\"m\",\"max_tokens\":100}",
            ),
            (
                "{\"model\":\"m\",\"max_tokens\":null}",
                policy(100, 0, 0),
                OPENAI,
                "{\"max_completion_tokens\":100,\"model\":\"m\",\"max_tokens\":null}",
            ),
            // One is named: it counts, under either name, and is raised.
            (
                "{\"model\":\"m\",\"max_tokens\":7}",
                policy(100, 0, 0),
                OPENAI,
                "{\"model\":\"m\",\"max_tokens\":7}",
            ),
            (
                "{\"max_tokens\":7,\"model\":\"m\"}",
                policy(100, 20, 0),
                VLLM,
                "{\"max_tokens\":20,\"model\":\"m\"}",
            ),
            (
                "{\"max_tokens\":20,\"model\":\"m\"}",
                policy(100, 20, 0),
                VLLM,
                "{\"max_tokens\":20,\"model\":\"m\"}",
            ),
            (
                "{\"max_tokens\":7,\"model\":\"m\",\"max_completion_tokens\":9}",
                policy(100, 20, 0),
                VLLM,
                "{\"max_tokens\":20,\"model\":\"m\",\"max_completion_tokens\":20}",
            ),
            (
                "{\"max_tokens\":null,\"model\":\"m\",\"max_completion_tokens\":9}",
                policy(100, 20, 0),
                VLLM,
                "{\"max_tokens\":null,\"model\":\"m\",\"max_completion_tokens\":20}",
            ),
            // What is no count is the provider's to refuse.
            (
                "{\"max_tokens\":\"7\",\"model\":\"m\"}",
                policy(100, 20, 0),
                VLLM,
                "{\"max_tokens\":\"7\",\"model\":\"m\"}",
            ),
            (
                "{\"max_tokens\":-1,\"model\":\"m\"}",
                policy(100, 20, 0),
                VLLM,
                "{\"max_tokens\":-1,\"model\":\"m\"}",
            ),
            // Thinking.
            ("{\"model\":\"m\"}", policy(0, 0, 64), VLLM, "{\"thinking_token_budget\":64,\"model\":\"m\"}"),
            ("{\"model\":\"m\"}", policy(0, 0, 64), OPENAI, "{\"model\":\"m\"}"),
            (
                "{\"model\":\"m\",\"thinking_budget_tokens\":5}",
                policy(0, 0, 64),
                VLLM,
                "{\"model\":\"m\",\"thinking_budget_tokens\":5}",
            ),
            (
                "{\"model\":\"m\",\"thinking_token_budget\":null}",
                policy(9, 0, 64),
                VLLM,
                "{\"max_tokens\":9,\"model\":\"m\",\"thinking_token_budget\":64}",
            ),
        ] {
            let out = sent(body, policy, fields);
            assert_eq!(out, expected, "of {body}");
            serde_json::from_str::<Value>(&out).unwrap();
        }
    }

    // req: CFG-5
    #[test]
    fn responses_have_one_name_of_their_own_and_no_budget_of_thinking() {
        for (body, policy, fields, expected) in [
            (
                "{\"model\":\"m\"}",
                policy(100, 0, 64),
                RESPONSES,
                "{\"max_output_tokens\":100,\"model\":\"m\"}",
            ),
            (
                "{\"model\":\"m\",\"max_output_tokens\":7,\"max_tokens\":7}",
                policy(100, 20, 0),
                RESPONSES,
                "{\"model\":\"m\",\"max_output_tokens\":20,\"max_tokens\":7}",
            ),
            (
                "{\"model\":\"m\",\"max_output_tokens\":7,\"max_tokens\":7}",
                policy(100, 20, 0),
                VLLM,
                "{\"model\":\"m\",\"max_output_tokens\":7,\"max_tokens\":20}",
            ),
        ] {
            assert_eq!(sent(body, policy, fields), expected, "of {body}");
        }
        let fields = |surface: Surface| surface.generation_fields(OPENAI);
        assert_eq!(
            Surface::ALL.map(|it| fields(it).max_tokens),
            ["max_completion_tokens", "max_output_tokens", "max_tokens"]
        );
    }

    // Case 72.
    #[test]
    fn a_stream_is_asked_for_its_usage_by_one_member_and_nothing_else_changes() {
        for (body, expected) in [
            (
                "{ \"model\":\"m\",\"stream\":true}",
                Some("{\"stream_options\":{\"include_usage\":true}, \"model\":\"m\",\"stream\":true}"),
            ),
            (
                "{\"stream_options\": null ,\"model\":\"m\",\"stream\":true}",
                Some("{\"stream_options\": {\"include_usage\":true} ,\"model\":\"m\",\"stream\":true}"),
            ),
            (
                "{\"stream_options\":{ },\"model\":\"m\",\"stream\":true}",
                Some("{\"stream_options\":{\"include_usage\":true },\"model\":\"m\",\"stream\":true}"),
            ),
            (
                "{\"stream_options\":{ \"x\":1.0},\"model\":\"m\",\"stream\":true}",
                Some(
                    "{\"stream_options\":{\"include_usage\":true, \"x\":1.0},\"model\":\"m\",\"stream\":true}",
                ),
            ),
            (
                "{\"stream\":true,\"stream_options\":{\"include_usage\" : false},\"model\":\"m\"}",
                Some("{\"stream\":true,\"stream_options\":{\"include_usage\" : true},\"model\":\"m\"}"),
            ),
            (
                "{\"stream\":true,\"stream_options\":{\"include_usage\":null},\"model\":\"m\"}",
                Some("{\"stream\":true,\"stream_options\":{\"include_usage\":true},\"model\":\"m\"}"),
            ),
            ("{\"stream\":true,\"stream_options\":{\"include_usage\":true},\"model\":\"m\"}", None),
            ("{\"stream\":true,\"stream_options\":{\"include_usage\":1},\"model\":\"m\"}", None),
            ("{\"stream\":true,\"stream_options\":[],\"model\":\"m\"}", None),
            ("{\"stream\":false,\"model\":\"m\"}", None),
            ("{\"model\":\"m\"}", None),
        ] {
            let scan = scan(body);
            for size in [1, 3, body.len()] {
                let pieces: Body = body.as_bytes().chunks(size).map(Bytes::copy_from_slice).collect();
                let out = body_for(&scan, &pieces, "m", &policy(0, 0, 0), &VLLM, true);
                assert_eq!(out.joined(), expected.unwrap_or(body), "of {body}");
            }
            assert_eq!(would_hide_usage(&scan), expected.is_some(), "{body}");
        }
        // Beside a limit that is filled in at the same place.
        let body = "{\"model\":\"m\",\"stream\":true}";
        let out = body_for(
            &scan(body),
            &Body::from(Bytes::from_static(body.as_bytes())),
            "m",
            &policy(9, 0, 0),
            &VLLM,
            true,
        );
        let out: Value = serde_json::from_slice(&out.joined()).unwrap();
        assert_eq!((&out["max_tokens"], &out["stream_options"]["include_usage"]), (&9.into(), &true.into()));
    }

    #[test]
    fn all_edits_of_one_body_meet_their_places() {
        let text = "{\"max_tokens\":1,\"model\":\"m\",\"x\":[1],\"thinking_token_budget\":null,\"max_completion_tokens\":2}";
        let scan = scan(text);
        let body = Body::from(Bytes::from_static(text.as_bytes()));
        let out = body_for(&scan, &body, "served/m", &policy(0, 1000, 64), &VLLM, false);
        assert_eq!(
            out.joined(),
            "{\"max_tokens\":1000,\"model\":\"served/m\",\"x\":[1],\"thinking_token_budget\":64,\"max_completion_tokens\":1000}"
        );
    }

    /// Names that a body of the property below draws from: ours and others.
    const NAMES: [&str; 10] = [
        "model",
        "stream",
        "max_tokens",
        "max_completion_tokens",
        "thinking_token_budget",
        "thinking_budget_tokens",
        "messages",
        "max_tokens ",
        "é\"x",
        "",
    ];

    fn value() -> impl Strategy<Value = String> {
        let leaf = prop_oneof![
            3 => (0..2000_u64).prop_map(|tokens| tokens.to_string()),
            2 => Just("null".to_owned()),
            1 => prop::sample::select(vec![
                "true", "-1", "-0", "0", "1E2", "1.0", "18446744073709551615", "18446744073709551616", "\"7\"",
                "\"\\u006d\\\"}\"", "1e300", "\"max_tokens\"", "{}", "[]",
            ]).prop_map(str::to_owned),
        ];
        leaf.prop_recursive(3, 16, 3, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3)
                    .prop_map(|items| format!("[ {}]", items.join(" ,"))),
                (prop::sample::select(&NAMES[..8]), inner)
                    .prop_map(|(name, value)| format!("{{\"{name}\" :{value}\n}}")),
            ]
        })
    }

    /// The name as a JSON string, some letters of which are escaped.
    fn written(name: &str, escapes: u32) -> String {
        let letters = name.chars().enumerate().map(|(place, letter)| {
            if escapes >> (place % 32) & 1 == 1 || letter == '"' {
                format!("\\u{:04x}", u32::from(letter))
            } else {
                letter.to_string()
            }
        });
        format!("\"{}\"", letters.collect::<String>())
    }

    /// What serde_json makes of the body and the policy.
    fn expected(body: &str, target: &str, policy: &GenerationPolicy, fields: &GenerationFields) -> Value {
        let mut body: Value = serde_json::from_str(body).unwrap();
        let object = body.as_object_mut().unwrap();
        object.insert("model".to_owned(), target.into());
        let names_none = |object: &serde_json::Map<String, Value>, names: [&str; 2]| {
            names.into_iter().all(|name| object.get(name).is_none_or(Value::is_null))
        };
        let limits = ["max_tokens", "max_completion_tokens"];
        if names_none(object, limits) {
            if let Some(default) = policy.default_max_tokens {
                let tokens = default.max(policy.min_max_tokens.unwrap_or(0));
                object.insert(fields.max_tokens.to_owned(), tokens.into());
            }
        } else if let Some(least) = policy.min_max_tokens {
            for name in limits {
                if object.get(name).and_then(Value::as_u64).is_some_and(|tokens| tokens < least) {
                    object.insert(name.to_owned(), least.into());
                }
            }
        }
        if let (Some(tokens), Some(field)) = (policy.default_thinking_token_budget, fields.thinking_budget)
            && names_none(object, ["thinking_token_budget", "thinking_budget_tokens"])
        {
            object.insert(field.to_owned(), tokens.into());
        }
        body
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn an_edited_body_is_what_another_parser_would_make_of_it(
            members in prop::collection::vec((prop::sample::select(&NAMES[2..]), any::<u32>(), value(), any::<bool>()), 0..7),
            model_at in any::<prop::sample::Index>(),
            escapes in any::<u32>(),
            (default, least, thinking) in (0..1500_u64, 0..1500_u64, 0..100_u64),
            profile in prop::sample::select(vec!["openai", "vllm", "llama_cpp", "ollama"]),
            cut in 1..40_usize,
        ) {
            let mut seen = std::collections::BTreeSet::new();
            let mut members: Vec<String> = members
                .into_iter()
                .filter(|(name, ..)| seen.insert(*name))
                .map(|(name, escapes, value, blank)| {
                    let blank = if blank { " \t\r\n" } else { "" };
                    format!("{blank}{}{blank}:{blank}{value}{blank}", written(name, escapes))
                })
                .collect();
            members.insert(model_at.index(members.len() + 1), format!("{}:\"m\"", written("model", escapes)));
            let text = format!(" {{{}}}\n", members.join(","));
            let scan = scan(&text);
            let (policy, fields) = (policy(default, least, thinking), GenerationFields::of_builtin(profile));
            let body: Body = text.as_bytes().chunks(cut).map(Bytes::copy_from_slice).collect();
            let out = body_for(&scan, &body, "served/\"é", &policy, &fields, false).joined();
            let out = str::from_utf8(&out).unwrap();
            let parsed: Value = serde_json::from_str(out).unwrap();
            prop_assert_eq!(parsed, expected(&text, "served/\"é", &policy, &fields), "{} from {}", out, text);
            // Nothing stands there twice: a second edit finds nothing to do.
            let mut scanner = Scanner::default();
            prop_assert_eq!(scanner.push(out.as_bytes()), Ok(()));
            let again = scanner.finish().unwrap();
            let same = body_for(&again, &Body::from(Bytes::copy_from_slice(out.as_bytes())), "served/\"é", &policy, &fields, false);
            prop_assert_eq!(same.joined(), out.as_bytes());
        }
    }
}
