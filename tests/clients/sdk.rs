//! The official SDKs: each script first against the provider itself, which proves the script, then through Edge and Node.

use std::{path::Path, process::Command};

use anyhow::{Context, bail, ensure};
use iop_tests::{
    bench::{SOON, eventually},
    model::{ScriptedModel, Surface},
};

use crate::stand::{Stand, here, peer};

/// A language of the SDKs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sdk {
    OpenAiPython,
    OpenAiNode,
    AnthropicPython,
    AnthropicNode,
}

/// Statuses that SDKs try again, twice (api.md §1.8).
const RETRIED: [u16; 6] = [408, 409, 429, 500, 503, 529];

/// Runs a script; what it says is the error.
fn run(sdk: Sdk, url: &str, token: &str, surface: &str, kind: &str) -> anyhow::Result<bool> {
    let Some(python) = peer("IOP_TEST_PYTHON")? else { return Ok(false) };
    let (mut command, script) = match sdk {
        Sdk::OpenAiPython => (Command::new(python), "sdk/openai_sdk.py"),
        Sdk::AnthropicPython => (Command::new(python), "sdk/anthropic_sdk.py"),
        Sdk::OpenAiNode | Sdk::AnthropicNode => {
            let Some(modules) = peer("IOP_TEST_SDKS")? else { return Ok(false) };
            let mut node = Command::new(beside(&python, "node")?);
            node.env("IOP_TEST_SDKS", modules);
            (node, if sdk == Sdk::OpenAiNode { "sdk/openai_sdk.mjs" } else { "sdk/anthropic_sdk.mjs" })
        }
    };
    command.arg(here(script)).args([url, token, surface, kind]).env("PYTHONDONTWRITEBYTECODE", "1");
    // For one check of many while it is worked on.
    command.args(std::env::var("IOP_TEST_CHECKS").unwrap_or_default().split_whitespace());
    let output = command.output().with_context(|| script.to_owned())?;
    let text =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    println!("{text}");
    if !output.status.success() {
        bail!("{script}: {text}");
    }
    Ok(true)
}

/// A program beside another one.
fn beside(program: &Path, name: &str) -> anyhow::Result<std::path::PathBuf> {
    Ok(program.parent().context("a program has a directory")?.join(name))
}

/// A script against the provider itself.
fn direct(sdk: Sdk, surface: &str) -> anyhow::Result<()> {
    let all = &[Surface::Chat, Surface::Responses, Surface::Messages];
    let server = ScriptedModel::start(all)?;
    if run(sdk, &format!("{}/v1", server.url()), "any", surface, "direct")? {
        ensure!(server.refused().is_empty(), "{:#?}", server.refused());
        counts(&server, &[400, 401, 403, 404, 409, 413, 422, 429, 500, 503])?;
    }
    Ok(())
}

/// A script through Edge and Node.
fn through(sdk: Sdk, surface: &str, kind: &str) -> anyhow::Result<()> {
    let stand = Stand::start()?;
    if !run(sdk, &stand.url(), stand.site.token(), surface, kind)? {
        return Ok(());
    }
    stand.is_clean()?;
    match (kind, surface) {
        ("raw", surface) => {
            let server = match surface {
                "chat" => &stand.chat,
                "responses" => &stand.openai,
                _ => &stand.anthropic,
            };
            counts(server, &[400, 401, 403, 404, 409, 413, 422, 429, 500, 503])?;
        }
        ("translated", _) => counts(&stand.chat, &[429, 500, 503])?,
        _ => {
            // Two in `errors`, streamed and not; the first attempt and two more in `retries`.
            let crashed = stand.ollama.asked().iter().filter(|body| body["model"] == "crashed").count();
            ensure!(crashed == 5, "{crashed} requests");
        }
    }
    // The SDK that closes its connection at `[DONE]` has had everything.
    eventually(SOON, "nothing runs", || Ok(stand.leases()? == 0.0))?;
    for outcome in ["client_gone", "internal", "bad_framing"] {
        ensure!(stand.outcomes(outcome)? == 0.0, "{outcome}: {}", stand.outcomes(outcome)?);
    }
    // Twice in `errors`, once in `retries`: what is certain is not asked again.
    for outcome in ["unauthorized", "unknown_model"] {
        let count = stand.outcomes(outcome)?;
        let models = if outcome == "unknown_model" { 1.0 } else { 0.0 };
        ensure!(count == 3.0 + models, "{outcome}: {count}");
    }
    Ok(())
}

/// How often the provider was asked by an SDK that tries again as it sees fit.
fn counts(server: &ScriptedModel, statuses: &[u16]) -> anyhow::Result<()> {
    for status in statuses {
        let (expected, found) =
            (if RETRIED.contains(status) { 3 } else { 1 }, server.asked(&format!("retried-{status}")).len());
        ensure!(found == expected, "{status}: {found} requests instead of {expected}");
    }
    for status in [429, 500, 503] {
        let found = server.asked(&format!("once-{status}")).len();
        ensure!(found == 2, "{status} once: {found} requests");
    }
    Ok(())
}

macro_rules! matrix {
    ($($name:ident: $sdk:ident, $surface:literal, $kind:literal;)*) => {
        $(
            #[test]
            fn $name() -> anyhow::Result<()> {
                through(Sdk::$sdk, $surface, $kind)
            }
        )*
    };
}

#[test]
fn each_script_holds_for_the_provider_itself() -> anyhow::Result<()> {
    for sdk in [Sdk::OpenAiPython, Sdk::OpenAiNode] {
        direct(sdk, "chat")?;
        direct(sdk, "responses")?;
    }
    for sdk in [Sdk::AnthropicPython, Sdk::AnthropicNode] {
        direct(sdk, "messages")?;
    }
    Ok(())
}

matrix! {
    openai_python_chat_raw: OpenAiPython, "chat", "raw";
    openai_python_chat_normalized: OpenAiPython, "chat", "normalized";
    openai_python_responses_raw: OpenAiPython, "responses", "raw";
    openai_python_responses_translated: OpenAiPython, "responses", "translated";
    openai_python_responses_normalized: OpenAiPython, "responses", "normalized";
    anthropic_python_messages_raw: AnthropicPython, "messages", "raw";
    anthropic_python_messages_translated: AnthropicPython, "messages", "translated";
    anthropic_python_messages_normalized: AnthropicPython, "messages", "normalized";
    openai_node_chat_raw: OpenAiNode, "chat", "raw";
    openai_node_chat_normalized: OpenAiNode, "chat", "normalized";
    openai_node_responses_raw: OpenAiNode, "responses", "raw";
    openai_node_responses_translated: OpenAiNode, "responses", "translated";
    openai_node_responses_normalized: OpenAiNode, "responses", "normalized";
    anthropic_node_messages_raw: AnthropicNode, "messages", "raw";
    anthropic_node_messages_translated: AnthropicNode, "messages", "translated";
    anthropic_node_messages_normalized: AnthropicNode, "messages", "normalized";
}
