//! curl: what people type.

use std::process::{Command, Output};

use anyhow::{Context, ensure};
use iop_tests::bench::skip;
use serde_json::json;

use crate::stand::Stand;

/// Bytes above which it asks before it sends (api.md §0.1, rule 16).
const ASKS_FIRST: usize = 1 << 20;

/// curl against an Edge; `None` where there is none and that is no failure.
fn curl(stand: &Stand, path: &str, args: &[&str]) -> anyhow::Result<Option<Output>> {
    let mut command = Command::new("curl");
    command.args(["--silent", "--show-error", "--no-buffer", "--max-time", "60"]).args(args);
    command.arg("--header").arg(format!("Authorization: Bearer {}", stand.site.token()));
    command.arg(format!("http://{}{path}", stand.edge.http));
    match command.output() {
        Ok(output) => Ok(Some(output)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            skip("there is no curl")?;
            Ok(None)
        }
        Err(error) => Err(error).context("curl"),
    }
}

/// What it printed, if it went well.
fn text(output: &Output) -> anyhow::Result<String> {
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(output.status.success(), "{}: {said} {}", output.status, String::from_utf8_lossy(&output.stderr));
    Ok(said)
}

fn body(model: &str, content: &str, stream: bool) -> String {
    json!({ "model": model, "stream": stream, "messages": [{ "role": "user", "content": content }] })
        .to_string()
}

const CHAT: &str = "/v1/chat/completions";

#[test]
fn curl_streams_and_posts_json_under_its_usual_type_of_forms() -> anyhow::Result<()> {
    let stand = Stand::start()?;
    for model in ["chat/plain", "plain"] {
        let data = body(model, "Hello", true);
        let Some(streamed) = curl(&stand, CHAT, &["--data", &data])? else { return Ok(()) };
        let said = text(&streamed)?;
        ensure!(said.ends_with("data: [DONE]\n\n"), "{said}");
        let data = body(model, "Hello", false);
        let whole = text(
            &curl(&stand, CHAT, &["--header", "Content-Type: application/json", "--data", &data])?
                .context("curl")?,
        )?;
        ensure!(whole.contains("Hello 你好🌍!"), "{whole}");
    }
    Ok(())
}

#[test]
fn curl_asks_before_it_sends_a_large_body_and_sends_one_of_unknown_length() -> anyhow::Result<()> {
    let stand = Stand::start()?;
    let file = stand.site.dir().join("body.json");
    std::fs::write(&file, body("chat/plain", &"x".repeat(2 * ASKS_FIRST), false))?;
    let path = file.to_str().context("UTF-8")?;
    let Some(output) = curl(&stand, CHAT, &["--verbose", "--data", &format!("@{path}")])? else {
        return Ok(());
    };
    ensure!(text(&output)?.contains("Hello 你好🌍!"), "{output:?}");
    let verbose = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(verbose.contains("Expect: 100-continue") && verbose.contains("HTTP/1.1 100"), "{verbose}");
    // An upload of a length that it does not know comes in chunks.
    let chunked = ["--header", "Transfer-Encoding: chunked", "--request", "POST", "--upload-file", path];
    let output = curl(&stand, CHAT, &chunked)?.context("curl")?;
    ensure!(text(&output)?.contains("Hello 你好🌍!"), "{output:?}");
    Ok(())
}

#[test]
fn curl_takes_no_broken_stream_for_a_whole_one() -> anyhow::Result<()> {
    let stand = Stand::start()?;
    for model in ["chat/cut", "crashing"] {
        let data = body(model, "Hello", true);
        let Some(output) = curl(&stand, CHAT, &["--data", &data])? else { return Ok(()) };
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        ensure!(said.contains("\"upstream_error\"") && !said.contains("[DONE]"), "{said}");
        // "Partial file".
        ensure!(output.status.code() == Some(18), "{output:?}");
    }
    Ok(())
}

#[test]
fn curl_asks_for_heads_lists_and_what_a_browser_may() -> anyhow::Result<()> {
    let stand = Stand::start()?;
    let Some(head) = curl(&stand, "/", &["--head"])? else { return Ok(()) };
    ensure!(text(&head)?.starts_with("HTTP/1.1 200"), "{head:?}");
    let listed = text(&curl(&stand, "/v1/models?limit=1000", &[])?.context("curl")?)?;
    ensure!(listed.contains("\"chat/plain\""), "{listed}");
    let one = text(&curl(&stand, "/v1/models/chat/plain", &[])?.context("curl")?)?;
    ensure!(one.contains("\"chat/plain\""), "{one}");
    let wants = "Access-Control-Request-Headers: authorization, x-stainless-os";
    let preflight =
        ["--request", "OPTIONS", "--include", "--header", "Origin: http://page.test", "--header", wants];
    let said = text(&curl(&stand, CHAT, &preflight)?.context("curl")?)?.to_ascii_lowercase();
    ensure!(said.starts_with("http/1.1 204") && said.contains("access-control-allow-origin:"), "{said}");
    ensure!(said.contains("authorization") && said.contains("x-stainless-os"), "{said}");
    Ok(())
}
