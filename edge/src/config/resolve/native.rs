//! Resolving what a backend with a language of its own needs: the fields of types `ollama` and `cli`.

use std::collections::BTreeMap;

use proto::{
    limits::{CLI_ARGS_MAX, CLI_BYTES_MAX, CLI_ENV_MAX},
    message::{AdapterSettings, CliConfig, OllamaConfig},
};

use super::{
    adapter::Adapter,
    context::Context,
    provider::{Kind, Upstream, base_url},
};
use crate::config::{
    place::{Place, Typed},
    typed,
};

/// Where Ollama listens unless it is told otherwise.
const OLLAMA_URL: &str = "http://127.0.0.1:11434";
/// How a command is run: once for each request, with the prompt on its standard input.
const CLI_MODE: &str = "stdin";
/// What a command may write to its standard output.
const OUTPUT_FORMATS: [(&str, &str); 3] =
    [("text", "text"), ("json", "json"), ("stream-json", "stream-json")];

/// The settings that a provider gives its adapter; `None` where they are wrong, which has been reported.
pub(super) fn resolve(
    context: &mut Context<'_>,
    typed: &typed::Provider,
    (kind, context_size): (Kind, u64),
    adapter: Option<&Adapter>,
    (at, path): (Place, &str),
) -> Option<Upstream> {
    refuse_of_tunnels(context, typed, adapter, path);
    let settings = match kind {
        Kind::Ollama => {
            refuse(context, cli_fields(typed), path, "this key belongs to providers of type cli");
            AdapterSettings::Ollama(ollama(context, typed, (adapter, context_size), path)?)
        }
        _ => {
            refuse(context, ollama_fields(typed), path, "this key belongs to providers of other types");
            AdapterSettings::Cli(cli(context, typed, (at, path))?)
        }
    };
    Some(Upstream::Native(settings))
}

/// Refuses the fields of native types at a provider of another one.
pub(super) fn refuse_fields(context: &mut Context<'_>, typed: &typed::Provider, path: &str) {
    let size = typed.context_size.as_ref().filter(|key| key.value != 0).map(|key| key.at);
    let fields = cli_fields(typed).into_iter().chain([("context_size", size)]);
    refuse(context, fields, path, "this key belongs to providers of type cli or ollama");
}

fn ollama(
    context: &mut Context<'_>,
    typed: &typed::Provider,
    (adapter, context_size): (Option<&Adapter>, u64),
    path: &str,
) -> Option<OllamaConfig> {
    let own = base_url(context, typed.base_url.as_ref(), typed.endpoint.as_ref(), path).ok()?;
    let base_url = own.or_else(|| adapter.and_then(|adapter| adapter.base_url.clone()));
    let base_url = base_url.unwrap_or_else(|| OLLAMA_URL.to_owned());
    if let Some(end) = ["/v1", "/api"].into_iter().find(|end| base_url.ends_with(end)) {
        let at = typed.base_url.as_ref().or(typed.endpoint.as_ref()).map(|key| key.at);
        // The address may come from the environment, so it is not told.
        let message =
            format!("type ollama speaks Ollama's own API: expected its address without {end} at the end");
        context.error(at.unwrap_or_default(), format!("{path}.base_url"), message);
        return None;
    }
    Some(OllamaConfig { base_url, context_size: u32::try_from(context_size).unwrap_or(u32::MAX) })
}

fn cli(context: &mut Context<'_>, typed: &typed::Provider, (at, path): (Place, &str)) -> Option<CliConfig> {
    let key = |key: &str| format!("{path}.{key}");
    let command = typed.command.as_ref().filter(|key| !key.value.is_empty());
    let command = match command {
        Some(command) => program(context, command, &key("command")),
        None => {
            let at = typed.command.as_ref().map_or(at, |key| key.at);
            context.error(at, key("command"), "expected the program that answers, but the key is missing");
            None
        }
    };
    let args = args(context, typed, &key("args"));
    let env = env(context, typed, &key("env"));
    let modes = [(CLI_MODE, CLI_MODE)];
    let mode = context.word(typed.mode.as_ref(), &key("mode"), &modes).ok().flatten().unwrap_or(CLI_MODE);
    let output = context.word(typed.output_format.as_ref(), &key("output_format"), &OUTPUT_FORMATS);
    if let Some(list) = typed.resume_args.as_ref().filter(|list| !list.value.is_empty()) {
        // FRB-3.
        context.error(
            list.at,
            key("resume_args"),
            "expected none: every request is a new one, nothing is resumed",
        );
    }
    Some(CliConfig {
        command: command?,
        args,
        env,
        mode: mode.to_owned(),
        output_format: output.ok().flatten().unwrap_or("text").to_owned(),
    })
}

fn args(context: &mut Context<'_>, typed: &typed::Provider, path: &str) -> Vec<String> {
    let Some(list) = &typed.args else { return Vec::new() };
    if list.value.len() > CLI_ARGS_MAX {
        context.error(list.at, path, format!("expected at most {CLI_ARGS_MAX} arguments"));
        return Vec::new();
    }
    let entries = list.value.iter().enumerate();
    entries.filter_map(|(at, argument)| short(context, argument, &format!("{path}[{at}]"))).collect()
}

/// Values are quoted in no message.
fn env(context: &mut Context<'_>, typed: &typed::Provider, path: &str) -> BTreeMap<String, String> {
    let Some(entries) = &typed.env else { return BTreeMap::new() };
    if entries.value.0.len() > CLI_ENV_MAX {
        context.error(entries.at, path, format!("expected at most {CLI_ENV_MAX} variables"));
        return BTreeMap::new();
    }
    let mut env = BTreeMap::new();
    for (name, value) in entries.value.iter() {
        let path = format!("{path}.{}", name.value);
        if !is_variable(&name.value) {
            context.error(
                name.at,
                path,
                "expected the name of a variable: letters, digits and _, no digit first",
            );
        } else if let Some(text) = context.expanded(value.value.expose(), value.at, &path) {
            if text.len() > CLI_BYTES_MAX || text.contains('\0') {
                context.error(
                    value.at,
                    path,
                    format!("expected at most {CLI_BYTES_MAX} bytes, without a NUL"),
                );
            } else {
                env.insert(name.value.clone(), text);
            }
        }
    }
    env
}

fn is_variable(name: &str) -> bool {
    let valid = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    (1..=256).contains(&name.len())
        && name.bytes().all(valid)
        && !name.starts_with(|first: char| first.is_ascii_digit())
}

/// The Node looks nothing up in a path and runs nothing of a directory that it happens to be in (FRB-3).
fn program(context: &mut Context<'_>, key: &Typed<String>, path: &str) -> Option<String> {
    let command = short(context, key, path)?;
    if !command.starts_with('/') {
        context.error(key.at, path, "expected an absolute path on the Node, such as /usr/local/bin/llm");
        return None;
    }
    Some(command)
}

/// A text of a command line.
fn short(context: &mut Context<'_>, key: &Typed<String>, path: &str) -> Option<String> {
    let text = context.text(Some(key), path)?;
    if text.len() > CLI_BYTES_MAX || text.contains('\0') {
        context.error(key.at, path, format!("expected at most {CLI_BYTES_MAX} bytes, without a NUL"));
        return None;
    }
    Some(text)
}

/// Fields of providers that are called by what their clients send.
fn refuse_of_tunnels(
    context: &mut Context<'_>,
    typed: &typed::Provider,
    adapter: Option<&Adapter>,
    path: &str,
) {
    let profile = typed.profile.as_ref().filter(|key| !key.value.is_empty()).map(|key| key.at);
    let headers = typed.headers.as_ref().filter(|key| !key.value.0.is_empty()).map(|key| key.at);
    let message = "this key belongs to providers of type openai_compat or vllm";
    refuse(context, [("profile", profile), ("headers", headers)], path, message);
    if let Some(adapter) = adapter.filter(|adapter| !adapter.headers.is_empty() && headers.is_none()) {
        let at = typed.adapter.as_ref().map(|key| key.at).unwrap_or_default();
        let message = format!("adapter `{}` has headers, which this type does not send", adapter.name);
        context.error(at, format!("{path}.adapter"), message);
    }
}

fn cli_fields(typed: &typed::Provider) -> [(&'static str, Option<Place>); 6] {
    let text =
        |key: &Option<Typed<String>>| key.as_ref().filter(|key| !key.value.is_empty()).map(|key| key.at);
    let list = |key: &typed::List<String>| key.as_ref().filter(|key| !key.value.is_empty()).map(|key| key.at);
    [
        ("command", text(&typed.command)),
        ("args", list(&typed.args)),
        ("env", typed.env.as_ref().filter(|key| !key.value.0.is_empty()).map(|key| key.at)),
        ("mode", text(&typed.mode)),
        ("resume_args", list(&typed.resume_args)),
        ("output_format", text(&typed.output_format)),
    ]
}

fn ollama_fields(typed: &typed::Provider) -> [(&'static str, Option<Place>); 3] {
    let text =
        |key: &Option<Typed<String>>| key.as_ref().filter(|key| !key.value.is_empty()).map(|key| key.at);
    [
        ("base_url", text(&typed.base_url)),
        ("endpoint", text(&typed.endpoint)),
        ("context_size", typed.context_size.as_ref().filter(|key| key.value != 0).map(|key| key.at)),
    ]
}

/// Fields that only other types have: silence would make someone believe they did something.
fn refuse(
    context: &mut Context<'_>,
    fields: impl IntoIterator<Item = (&'static str, Option<Place>)>,
    path: &str,
    message: &str,
) {
    for (key, at) in fields {
        if let Some(at) = at {
            context.error(at, format!("{path}.{key}"), message);
        }
    }
}
