//! One streamed completion to the terminal.

use std::{
    io::{BufRead, BufReader, Write},
    time::{Duration, Instant},
};

use anyhow::{Context, bail};

/// A prefill may take minutes.
const PATIENCE: Duration = Duration::from_secs(600);

/// Streams a completion and prints each token as it comes.
///
/// # Errors
/// The answer is not a 200, holds an error event, or ends without `[DONE]`.
pub fn stream(base_url: &str, token: &str, model: &str) -> anyhow::Result<()> {
    let agent: ureq::Agent = ureq::Agent::config_builder()
        .timeout_global(Some(PATIENCE))
        .http_status_as_error(false)
        .build()
        .into();
    let body = serde_json::json!({
        "model": model, "stream": true, "max_tokens": 48,
        "messages": [{"role": "user", "content": "Say hello to the newcomer."}],
    });
    let started = Instant::now();
    let response = agent
        .post(format!("{base_url}/chat/completions"))
        .header("authorization", &format!("Bearer {token}"))
        .header("content-type", "application/json")
        .send(body.to_string())?;
    let status = response.status();
    let mut body = response.into_body();
    if status != 200 {
        bail!("{status}: {}", body.read_to_string().unwrap_or_default());
    }
    let mut events = 0_u32;
    let mut out = std::io::stdout().lock();
    for line in BufReader::new(body.as_reader()).lines() {
        let line = line.context("the stream broke off")?;
        let Some(data) = line.strip_prefix("data:").map(str::trim) else { continue };
        if data == "[DONE]" {
            writeln!(out, "\n\n{events} events in {} ms", started.elapsed().as_millis())?;
            return Ok(());
        }
        let event: serde_json::Value = serde_json::from_str(data).context("an event that is not JSON")?;
        if let Some(error) = event.get("error") {
            bail!("the stream failed: {error}");
        }
        events += 1;
        for key in ["content", "reasoning_content"] {
            if let Some(text) = event.pointer(&format!("/choices/0/delta/{key}")).and_then(|t| t.as_str()) {
                write!(out, "{text}")?;
            }
        }
        out.flush()?;
    }
    bail!("the stream ended without [DONE]")
}
