//! What a model's configuration does to its requests before they are dispatched.

use iop_tests::http::{self, Raw};
use serde_json::{Value, json};

use crate::support::{
    MODEL, NODE, assert_error,
    fake_node::{FakeNode, still_serves},
    metric, node_status, provider_at, site, yaml,
};

fn chat(members: &Value) -> Value {
    let mut body = json!({ "model": MODEL, "messages": [{ "role": "user", "content": "hi" }] });
    if let (Some(body), Some(members)) = (body.as_object_mut(), members.as_object()) {
        body.extend(members.clone());
    }
    body
}

fn said(tokens: usize) -> Value {
    json!({ "messages": [{ "role": "user", "content": "word ".repeat(tokens) }] })
}

// req: CFG-5
#[test]
fn token_limits_of_the_model_reach_the_provider_and_the_rest_stays_as_it_was() -> anyhow::Result<()> {
    let site = site()?;
    let mut yaml = yaml().with(provider_at("http://127.0.0.1:9/v1"));
    yaml.model_extra =
        "default_max_tokens: 4096, min_max_tokens: 64, default_thinking_token_budget: 512".to_owned();
    for provider in &mut yaml.providers {
        provider.extra = "profile: vllm".to_owned();
    }
    let edge = site.edge(&yaml)?;
    let mut node = FakeNode::ready(&site, &edge, NODE)?;
    for (members, max_tokens, thinking) in [
        (json!({}), json!(4096), json!(512)),
        (json!({ "max_tokens": 9 }), json!(64), json!(512)),
        (json!({ "max_tokens": 100, "thinking_token_budget": 7 }), json!(100), json!(7)),
        (json!({ "max_tokens": null }), json!(4096), json!(512)),
    ] {
        let body = chat(&members);
        let mut client = Raw::connect(&edge.http)?;
        client.send(http::chat_request(site.token(), &body))?;
        let request = node.request()?;
        let mut sent: Value = serde_json::from_slice(&request.body)?;
        assert_eq!(sent["max_tokens"], max_tokens, "{body}");
        assert_eq!(sent["thinking_token_budget"], thinking, "{body}");
        // Without these two it is what the client sent.
        let mut said = body;
        for object in [&mut sent, &mut said] {
            let object = object.as_object_mut().unwrap();
            object.remove("max_tokens");
            object.remove("thinking_token_budget");
        }
        assert_eq!(sent, said);
        node.answer(request.stream, "{}")?;
        assert_eq!(client.answer()?.status, 200);
    }
    still_serves(&site, &edge, &mut node)
}

// req: POL-4
#[test]
fn a_request_over_the_models_context_is_refused_before_admission() -> anyhow::Result<()> {
    let site = site()?;
    let mut yaml = yaml().with(provider_at("http://127.0.0.1:9/v1"));
    yaml.model_extra = "context_window_tokens: 8000".to_owned();
    let edge = site.edge(&yaml)?;
    let mut node = FakeNode::ready(&site, &edge, NODE)?;
    let mut client = Raw::connect(&edge.http)?;
    client.send(http::chat_request(site.token(), &chat(&said(10_000))))?;
    let answer = client.answer()?;
    assert_error(&answer, 400, Some("context_length_exceeded"));
    let error = answer.json()?;
    assert_eq!(error["error"]["param"], "messages");
    assert!(error["error"]["message"].as_str().unwrap().contains("8000 tokens"), "{error}");
    assert_eq!(metric(&edge, "iop_edge_control_events_total{event=\"admitted\"}")?, 0.0);
    // The connection is as good as ever, and one that fits is served on it.
    client.send(http::chat_request(site.token(), &chat(&said(7_000))))?;
    let request = node.request()?;
    node.answer(request.stream, "{}")?;
    assert_eq!(client.answer()?.status, 200);
    Ok(())
}

// req: POL-4
#[test]
fn a_long_request_takes_a_long_slot_and_a_large_picture_makes_none_long() -> anyhow::Result<()> {
    let site = site()?;
    let mut yaml = yaml().with(provider_at("http://127.0.0.1:9/v1"));
    yaml.extra.push_str("long_context_threshold_tokens: 2000\n");
    let edge = site.edge(&yaml)?;
    let mut node = FakeNode::ready(&site, &edge, NODE)?;
    let picture = json!({ "messages": [{ "role": "user", "content": [
        { "type": "image_url", "image_url": { "url": format!("data:image/png;base64,{}", "iVBORw0K".repeat(8000)) } }
    ] }] });
    for (members, long) in [(said(1_500), 0), (said(2_500), 1), (picture, 0)] {
        let mut client = Raw::connect(&edge.http)?;
        client.send(http::chat_request(site.token(), &chat(&members)))?;
        let request = node.request()?;
        let status = node_status(&edge)?;
        let provider = &status["providers"][0];
        assert_eq!((&provider["in_flight"], &provider["long_in_flight"]), (&json!(1), &json!(long)));
        node.answer(request.stream, "{}")?;
        assert_eq!(client.answer()?.status, 200);
    }
    Ok(())
}
