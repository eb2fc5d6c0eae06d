use super::*;

fn chat(events: &[(&str, &str)]) -> Vec<String> {
    stream(Surface::Chat, events)
}

const DONE: (&str, &str) = ("data: [DONE]\n\n", "e");

// req: REC-2
#[test]
fn of_openai_the_first_words_are_the_first_content() {
    let texts = chat(&[
        (
            "data: {\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"gpt\",\"system_fingerprint\":\"fp\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\",\"refusal\":null},\"logprobs\":null,\"finish_reason\":null}],\"usage\":null,\"obfuscation\":\"aGk\"}\n\n",
            "p",
        ),
        (
            "data: {\"id\":\"chatcmpl-1\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hel\"},\"logprobs\":null,\"finish_reason\":null}],\"usage\":null}\n\n",
            "c",
        ),
        (
            "data: {\"id\":\"chatcmpl-1\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"l\\u00f6\\n\\ud83c\\udf0d\"},\"finish_reason\":null}]}\n\n",
            "c",
        ),
        (
            "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}],\"usage\":null}\n\n",
            "c",
        ),
        (
            "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":2,\"total_tokens\":3}}\n\n",
            "p",
        ),
        DONE,
    ]);
    assert_eq!(texts, ["Content 0/0: Hel", "Content 0/0: lö\n🌍"]);
}

// req: REC-2
#[test]
fn of_azure_vllm_sglang_and_llama_cpp_what_comes_first_is_no_content() {
    let texts = chat(&[
        // Azure: what its filter found in the prompt.
        (
            "data: {\"choices\":[],\"created\":0,\"id\":\"\",\"model\":\"\",\"object\":\"\",\"prompt_filter_results\":[{\"prompt_index\":0}]}\n\n",
            "p",
        ),
        // llama.cpp: how far it has read the prompt.
        (
            "data: {\"choices\":[{\"finish_reason\":null,\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":null}}],\"prompt_progress\":{\"total\":9,\"cache\":0,\"processed\":4,\"time_ms\":7}}\n\n",
            "p",
        ),
        // Its pings, and those of proxies.
        (":\n\n", "p"),
        (": OPENROUTER PROCESSING\n\n", "p"),
        ("event: ping\ndata: {\"type\":\"ping\"}\n\n", "p"),
        ("data: {\"type\": \"ping\"}\n\n", "p"),
        ("data:\n\n", "p"),
        ("retry: 3000\n\n", "p"),
        ("id: 1\n\n", "p"),
        ("event: error\n\n", "p"),
        // SGLang.
        (
            "data: {\"id\":\"1\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\",\"reasoning_content\":null,\"tool_calls\":null},\"logprobs\":null,\"finish_reason\":null,\"matched_stop\":null}],\"usage\":null}\n\n",
            "p",
        ),
        // vLLM, with counts in each chunk.
        (
            "data: {\"id\":\"1\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,\"finish_reason\":null,\"stop_reason\":null,\"token_ids\":null}],\"prompt_token_ids\":null,\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":0}}\n\n",
            "p",
        ),
        ("data: {\"choices\":[{\"index\":0,\"delta\":null}]}\n\n", "p"),
        (
            "data: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[ ],\"audio\":{ }}}],\"error\":null}\n\n",
            "p",
        ),
        ("data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\" \"},\"finish_reason\":null}]}\n\n", "c"),
        DONE,
    ]);
    assert_eq!(texts, ["Content 0/0:  "]);
}

#[test]
fn thinking_is_content_by_each_of_its_names_and_said_once() {
    let texts = chat(&[
        ("data: {\"choices\":[{\"delta\":{\"reasoning\":\"a\"}}]}\n\n", "c"),
        ("data: {\"choices\":[{\"delta\":{\"content\":null,\"reasoning_content\":\"b\"}}]}\n\n", "c"),
        ("data: {\"choices\":[{\"delta\":{\"reasoning_content\":\"c\",\"reasoning\":\"c\"}}]}\n\n", "c"),
        ("data: {\"choices\":[{\"delta\":{\"reasoning_content\":\"\",\"reasoning\":\"d\"}}]}\n\n", "c"),
        DONE,
    ]);
    assert_eq!(texts, ["Reasoning 0/0: a", "Reasoning 0/0: b", "Reasoning 0/0: c", "Reasoning 0/0: d"]);
}

#[test]
fn the_name_of_a_call_is_content_and_its_arguments_are_told_call_by_call() {
    let texts = chat(&[
        (
            "data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"index\":0,\"id\":\"call_a\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"\"}}]}}]}\n\n",
            "c",
        ),
        (
            "data: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"{\\\"a\\\"\"}},{\"index\":1,\"function\":{\"name\":\"g\",\"arguments\":\"{}\"}}]}}]}\n\n",
            "c",
        ),
        // No index, and the object itself.
        (
            "data: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"function\":{\"name\":\"h\",\"arguments\":{\"x\":1}}}]}}]}\n\n",
            "c",
        ),
        (
            "data: {\"choices\":[{\"delta\":{\"function_call\":{\"name\":\"old\",\"arguments\":\"{\"}}}]}\n\n",
            "c",
        ),
        DONE,
    ]);
    assert_eq!(
        texts,
        [
            "Arguments 0/0 f: ",
            "Arguments 0/0: {\"a\"",
            "Arguments 0/1 g: {}",
            "Arguments 0/0 h: {\"x\":1}",
            "Arguments 0/0 old: {"
        ]
    );
}

#[test]
fn any_choice_may_begin_and_each_has_its_own_text() {
    let texts = chat(&[
        (
            "data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\"}},{\"index\":1,\"delta\":{\"role\":\"assistant\"}}]}\n\n",
            "p",
        ),
        (
            "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"\"}},{\"delta\":{\"content\":\"b\"},\"index\":1}]}\n\n",
            "c",
        ),
        DONE,
    ]);
    assert_eq!(texts, ["Content 1/0: b"]);
}

#[test]
fn refusals_parts_sounds_old_completions_and_what_nobody_knows_are_content() {
    for (event, expected) in [
        ("{\"choices\":[{\"delta\":{\"refusal\":\"No.\"}}]}", &["Content 0/0: No."][..]),
        (
            "{\"choices\":[{\"delta\":{\"content\":[{\"type\":\"text\",\"text\":\"x\"}]}}]}",
            &["Content 0/0: x"],
        ),
        ("{\"choices\":[{\"message\":{\"role\":\"assistant\",\"content\":\"all\"}}]}", &["Content 0/0: all"]),
        ("{\"choices\":[{\"index\":0,\"text\":\"old\"}]}", &["Content 0/0: old"]),
        ("{\"choices\":[{\"delta\":{\"audio\":{\"id\":\"a\",\"data\":\"UklG\"}}}]}", &[]),
        ("{\"choices\":[{\"delta\":{\"annotations\":[{\"type\":\"url_citation\"}]}}]}", &[]),
        ("{\"choices\":[{\"delta\":{\"new\":false}}]}", &[]),
        ("{\"choices\":[{\"delta\":7}]}", &[]),
        ("{\"choices\":[{\"index\":0}]}", &[]),
        ("{\"choices\":[7]}", &[]),
        ("{\"choices\":7}", &[]),
        ("{\"choice\":[]}", &[]),
        ("{}", &[]),
        ("[]", &[]),
        ("7", &[]),
        ("\"x\"", &[]),
    ] {
        assert_eq!(chat(&[(&format!("data: {event}\n\n"), "c")]), expected, "{event}");
    }
}

#[test]
fn why_an_answer_ended_is_content_unless_the_engine_gave_up() {
    for (reason, sign) in [
        ("stop", "c"),
        ("length", "c"),
        ("content_filter", "c"),
        ("repetition", "c"),
        ("error", "f"),
        ("abort", "f"),
    ] {
        let event = format!("data: {{\"choices\":[{{\"delta\":{{}},\"finish_reason\":\"{reason}\"}}]}}\n\n");
        let _none = chat(&[(&event, sign)]);
    }
    // What it has said by then is there.
    let said = "data: {\"choices\":[{\"delta\":{\"content\":\"x\"},\"finish_reason\":\"abort\"}]}\n\n";
    assert_eq!(chat(&[(said, "c")]), ["Content 0/0: x"]);
}

// req: SEG-8
#[test]
fn errors_of_every_form_are_failures() {
    for (event, expected) in [
        (
            "data: {\"error\":{\"message\":\"The server had an error\",\"type\":\"server_error\",\"param\":null,\"code\":null}}\n\n",
            said(Some("server_error"), None, "The server had an error"),
        ),
        // vLLM.
        (
            "data: {\"error\": {\"message\": \"EngineCore\", \"type\": \"InternalServerError\", \"param\": null, \"code\": 500}}\n\n",
            said(Some("InternalServerError"), Some("500"), "EngineCore"),
        ),
        // SGLang: flat, or with the code beside the error.
        (
            "data: {\"object\":\"error\",\"message\":\"Invalid request\",\"type\":\"BAD_REQUEST\",\"param\":null,\"code\":400}\n\n",
            said(Some("BAD_REQUEST"), Some("400"), "Invalid request"),
        ),
        (
            "data: {\"error\": {\"message\": \"The request queue is full.\"}, \"code\": 503}\n\n",
            said(None, Some("503"), "The request queue is full."),
        ),
        // Ollama, LM Studio, and what speaks as Anthropic does.
        ("data: {\"error\":\"out of memory\"}\n\n", said(None, None, "out of memory")),
        ("event: error\ndata: {\"error\":{\"message\":\"crashed\"}}\n\n", said(None, None, "crashed")),
        ("event: error\ndata: no JSON at all\n\n", said(None, None, "no JSON at all")),
        (
            "data: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}\n\n",
            said(Some("overloaded_error"), None, "Overloaded"),
        ),
        // OpenRouter, Google.
        (
            "data: {\"id\":\"gen\",\"error\":{\"code\":502,\"message\":\"lost\"},\"choices\":[{\"index\":0,\"delta\":{\"content\":\"\"},\"finish_reason\":\"error\"}]}\n\n",
            said(None, Some("502"), "lost"),
        ),
        (
            "data: {\"error\":{\"code\":\"429\",\"status\":\"RESOURCE_EXHAUSTED\",\"message\":\"slow\"}}\n\n",
            said(Some("RESOURCE_EXHAUSTED"), Some("429"), "slow"),
        ),
        ("data: {\"error\":true}\n\n", said(None, None, "")),
    ] {
        assert_eq!(failure(Surface::Chat, event), expected, "{event}");
    }
}

#[test]
fn an_error_in_the_middle_is_told_behind_what_was_said() {
    let texts = chat(&[
        ("data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n", "c"),
        ("data: {\"error\":{\"message\":\"x\",\"code\":500}}\n\n", "f"),
        DONE,
    ]);
    assert_eq!(texts, ["Content 0/0: a"]);
}
