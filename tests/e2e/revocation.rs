//! A token that is revoked while the Edge runs.

use anyhow::Context;
use iop_tests::{
    Edge, Site,
    http::{self, Raw},
    site::{path, tool},
};
use proto::message::{Message, TunnelFrameKind};

use crate::support::{
    MODEL, NODE, SOON, assert_broken_stream, assert_error, eventually,
    fake_node::{FakeNode, SSE, start},
    metric, node_status, provider_at, run, site, yaml,
};

/// An Edge with a list, its Node, and a second token beside the site's own, which is `local`.
fn stage() -> anyhow::Result<(Site, Edge, FakeNode, String)> {
    let site = site()?;
    let made = tool(&site.program("iop-edge"), &["token", "new", "--token-ref", "other"])?;
    let other = made.lines().next().context("a token")?.trim().to_owned();
    let entry = made.lines().find(|line| line.starts_with('-')).context("its entry")?;
    let mut provider = provider_at("http://127.0.0.1:9/v1");
    provider.capacity = 2;
    let file = site.configure(&yaml().with(provider))?;
    let text = std::fs::read_to_string(&file)?
        .replace("  provider_id: test\n", "  provider_id: test\n  revoked_tokens_file: revoked\n")
        .replace("  principal_tokens:\n", &format!("  principal_tokens:\n    {entry}\n"));
    std::fs::write(&file, text)?;
    std::fs::write(site.dir().join("revoked"), "# none yet\n")?;
    let edge = site.edge_on(&file)?;
    let node = FakeNode::ready(&site, &edge, NODE)?;
    Ok((site, edge, node, other))
}

fn revoke(site: &Site, token_ref: &str) -> anyhow::Result<(i32, String)> {
    let config = site.dir().join("edge.yaml");
    run(site, "iop-edge", &["token", "revoke", token_ref, "--config", path(&config)?])
}

fn ask(edge: &Edge, token: &str) -> anyhow::Result<Raw> {
    let mut client = Raw::connect(&edge.http)?;
    client.send(http::chat_request(token, &http::chat_body(MODEL, true, "")))?;
    Ok(client)
}

// req: PTK-1
#[test]
fn what_a_revoked_token_runs_and_waits_for_ends_and_nothing_of_others_does() -> anyhow::Result<()> {
    let (site, edge, mut node, other) = stage()?;
    // One stream of each token takes a slot, one more request of the first token waits.
    let mut streams = Vec::new();
    for token in [site.token(), &other] {
        let mut client = ask(&edge, token)?;
        let stream = node.request()?.stream;
        node.frame(stream, 0, start(SSE))?;
        node.frame(stream, 1, TunnelFrameKind::Body("data: {\"n\":1}\n\n".into()))?;
        client.wait_for("\"n\":1")?;
        streams.push((client, stream));
    }
    let mut waiting = ask(&edge, site.token())?;
    eventually(SOON, "it waits", || Ok(node_status(&edge)?["providers"][0]["queued"] == 1))?;

    let (code, said) = revoke(&site, "local")?;
    assert_eq!((code, said.contains("revoked")), (0, true), "{said}");
    assert_error(&waiting.answer()?, 401, Some("invalid_api_key"));
    let (mut other_stream, mut ended) = (streams.pop().context("two")?, streams.pop().context("two")?);
    let answer = ended.0.answer()?;
    assert_broken_stream(&answer, "invalid_api_key");
    // Its run is cancelled at the Node, and its next request is one of an unknown token.
    loop {
        if let Message::Cancel(cancel) = node.next()? {
            assert_eq!(cancel.stream, ended.1);
            break;
        }
    }
    node.cancelled(ended.1, 2)?;
    assert_error(&ask(&edge, site.token())?.answer()?, 401, Some("invalid_api_key"));

    // The other token's stream goes on, and it may ask again.
    node.frame(other_stream.1, 2, TunnelFrameKind::Body("data: [DONE]\n\n".into()))?;
    node.frame(other_stream.1, 3, TunnelFrameKind::End)?;
    other_stream.0.wait_for("[DONE]")?;
    let mut again = ask(&edge, &other)?;
    let stream = node.request()?.stream;
    node.answer(stream, "{}")?;
    assert_eq!(again.answer()?.status, 200);

    assert_eq!(metric(&edge, "iop_edge_tokens_revoked")?, 1.0);
    assert_eq!(metric(&edge, "iop_edge_revocation_list_readable")?, 1.0);
    // Neither token stands in the log, also not of those that were refused.
    let log = edge.process.text();
    assert!(log.contains("token_revoked") && log.contains("token_ref=local"), "{log}");
    for token in [site.token(), &other] {
        let secret = token.split('_').nth(2).context("its secret part")?;
        assert!(!log.contains(secret), "a token is in the log");
    }
    Ok(())
}

// req: PTK-1
#[test]
fn a_client_that_does_not_read_is_cut_off_too() -> anyhow::Result<()> {
    let (site, edge, mut node, _) = stage()?;
    let client = ask(&edge, site.token())?;
    let stream = node.request()?.stream;
    node.frame(stream, 0, start(SSE))?;
    // More than the kernel takes, as far as its credit goes.
    let chunk = format!("data: {}\n\n", "x".repeat(16 * 1024));
    for sequence in 1..14 {
        node.frame(stream, sequence, TunnelFrameKind::Body(chunk.clone().into()))?;
    }
    eventually(SOON, "it runs", || Ok(node_status(&edge)?["providers"][0]["in_flight"] == 1))?;
    std::fs::write(site.dir().join("revoked"), "local\n")?;
    loop {
        if let Message::Cancel(cancel) = node.next()? {
            assert_eq!(cancel.stream, stream);
            break;
        }
    }
    node.cancelled(stream, 14)?;
    eventually(SOON, "its slot is back", || Ok(node_status(&edge)?["providers"][0]["in_flight"] == 0))?;
    drop(client);
    Ok(())
}

#[test]
fn a_list_that_cannot_be_read_stops_the_start_and_later_changes_nothing() -> anyhow::Result<()> {
    let (site, edge, _node, other) = stage()?;
    let list = site.dir().join("revoked");
    std::fs::remove_file(&list)?;
    eventually(SOON, "it is missed", || Ok(metric(&edge, "iop_edge_revocation_list_readable")? == 0.0))?;
    assert_eq!(http::get(&edge.http, "/v1/models", Some(&other))?.status, 200);
    let (code, said) = revoke(&site, "nobody")?;
    assert_eq!(code, 1);
    assert!(said.contains("`nobody`") && said.contains("other, local"), "{said}");
    // A list that is written anew is taken up.
    assert_eq!(revoke(&site, "other")?.0, 0);
    assert!(revoke(&site, "other")?.1.contains("already"));
    eventually(SOON, "it is refused", || {
        Ok(http::get(&edge.http, "/v1/models", Some(&other))?.status == 401)
    })?;
    drop(edge);

    std::fs::remove_file(&list)?;
    let config = site.dir().join("edge.yaml");
    let (code, said) = run(&site, "iop-edge", &["serve", "--config", path(&config)?])?;
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("openai.revoked_tokens_file") && said.contains("an empty one"), "{said}");
    Ok(())
}

// Case 44 of what users report: a principal changes its key without a moment in which it has none.
// req: CFG-2, PTK-1
#[test]
fn two_tokens_of_a_principal_are_good_side_by_side_until_the_old_one_is_revoked() -> anyhow::Result<()> {
    let (site, _unused, _node, _other) = stage()?;
    let made =
        tool(&site.program("iop-edge"), &["token", "new", "--token-ref", "new", "--principal-ref", "local"])?;
    let new = made.lines().next().context("a token")?.trim().to_owned();
    let entry: Vec<_> = made.lines().skip_while(|line| !line.starts_with('-')).collect();
    let file = site.dir().join("edge.yaml");
    let text = std::fs::read_to_string(&file)?;
    let text = text
        .replace("  principal_tokens:\n", &format!("  principal_tokens:\n    {}\n", entry.join("\n    ")));
    std::fs::write(&file, text)?;
    let edge = site.edge_on(&file)?;
    let listed =
        |token: &str| Ok::<_, anyhow::Error>(http::get(&edge.http, "/v1/models", Some(token))?.status);
    assert_eq!((listed(site.token())?, listed(&new)?), (200, 200), "both, in between");
    assert_eq!(revoke(&site, "local")?.0, 0);
    eventually(SOON, "the old one is refused", || Ok(listed(site.token())? == 401))?;
    assert_eq!(listed(&new)?, 200, "the new one stays");
    Ok(())
}
