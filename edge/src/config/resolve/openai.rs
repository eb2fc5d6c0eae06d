//! Resolving `openai`: the surface and who may call it.

use std::{collections::HashMap, sync::Arc};

use super::{
    context::{Context, ID_BYTES_MAX, quoted},
    headers,
    listen::keepalive_bounds,
};
use crate::{
    config::{
        gate::Gate,
        place::{Entries, Place, Typed},
        settings::{OpenAi, ProviderAuth},
        typed,
    },
    surface::cors::{Cors, is_origin},
    token::{Principal, PrincipalToken},
};

/// Headers that hold a client's token for the Edge.
const TOKEN_HEADERS: [&str; 2] = ["authorization", "x-api-key"];
/// Most origins that are let in.
const ORIGINS_MAX: usize = 1024;
/// Most principal tokens.
const TOKENS_MAX: usize = 65_536;

/// The surface, without the check of its `provider_id`: [`attribution`] makes that one last.
pub(super) fn surface(context: &mut Context<'_>, typed: &typed::OpenAi) -> OpenAi {
    let default = typed::Keepalive::default();
    let keepalive = typed.keepalive.as_ref().map_or(&default, |keepalive| &keepalive.value);
    OpenAi {
        enabled: typed.enabled.as_ref().is_none_or(|enabled| enabled.value),
        revoked_tokens_file: context.file(typed.revoked_tokens_file.as_ref(), "openai.revoked_tokens_file"),
        provider_id: "".into(),
        keepalive_comment: context.millis(
            keepalive.comment_ms.as_ref(),
            "openai.keepalive.comment_ms",
            keepalive_bounds(),
            15_000,
        ),
        keepalive_event: context.millis(
            keepalive.event_ms.as_ref(),
            "openai.keepalive.event_ms",
            keepalive_bounds(),
            60_000,
        ),
        keepalive_tunnel: keepalive.tunnel.as_ref().is_some_and(|tunnel| tunnel.value),
        usage_require: typed
            .usage
            .as_ref()
            .and_then(|usage| usage.value.require.as_ref())
            .is_some_and(|require| require.value),
        response_wait_margin: context.millis(
            typed.response_wait_margin_ms.as_ref(),
            "openai.response_wait_margin_ms",
            keepalive_bounds(),
            15_000,
        ),
        provider_auth: provider_auth(context, typed.provider_auth.as_ref()),
        cors: cors(context, typed.cors.as_ref()),
        // Its selectors name models and providers, which are resolved later.
        gate: Gate::off(),
    }
}

/// Which origins are let in.
fn cors(context: &mut Context<'_>, typed: Option<&Typed<typed::Cors>>) -> Cors {
    const PATH: &str = "openai.cors.allowed_origins";
    let Some(list) = typed.and_then(|typed| typed.value.allowed_origins.as_ref()) else {
        return Cors::default();
    };
    if list.value.len() > ORIGINS_MAX {
        context.error(list.at, PATH, format!("expected at most {ORIGINS_MAX} origins"));
        return Cors::default();
    }
    let mut origins: Vec<Arc<str>> = Vec::new();
    let mut any = false;
    for (index, key) in list.value.iter().enumerate() {
        let path = format!("{PATH}[{index}]");
        let Some(text) = context.text(Some(key), &path) else { continue };
        if text == "*" {
            any = true;
        } else if is_origin(&text) {
            origins.push(text.into());
        } else {
            let message = format!(
                "expected an origin as browsers write it, such as https://chat.example, or *, found {}",
                quoted(key)
            );
            context.error(key.at, path, message);
        }
    }
    if any { Cors::default() } else { Cors::Only(origins) }
}

/// The client's own credential for the provider (CFG-3).
fn provider_auth(context: &mut Context<'_>, typed: Option<&Typed<typed::ProviderAuth>>) -> ProviderAuth {
    const PATH: &str = "openai.provider_auth";
    let default = typed::ProviderAuth::default();
    let typed = typed.map_or(&default, |typed| &typed.value);
    let mut header = |key: Option<&Typed<String>>, name: &str, default: &str| -> Arc<str> {
        let path = format!("{PATH}.{name}");
        let text = context.text(key, &path).filter(|text| !text.is_empty());
        let text = text.unwrap_or_else(|| default.to_owned()).to_ascii_lowercase();
        if let Some((key, message)) = key.zip(headers::wrong_field(&text)) {
            context.error(key.at, path, message);
        } else if let Some(key) = key.filter(|_| name == "from_header" && TOKEN_HEADERS.contains(&&*text)) {
            let message =
                format!("expected another header: {} holds the client's token for this Edge", quoted(key));
            context.error(key.at, path, message);
        } else if let Some(key) = key.filter(|_| name == "target_header" && headers::never_arrives(&text)) {
            let message =
                format!("expected another header: the node sets {} itself or lets none through", quoted(key));
            context.error(key.at, path, message);
        }
        text.into()
    };
    let from_header = header(typed.from_header.as_ref(), "from_header", "X-IOP-Provider-Authorization");
    let target_header = header(typed.target_header.as_ref(), "target_header", "Authorization");
    let key = typed.scheme.as_ref();
    let scheme =
        key.map_or_else(|| Some("Bearer".to_owned()), |_| context.text(key, &format!("{PATH}.scheme")));
    let scheme = scheme.unwrap_or_default();
    if let Some(key) = key.filter(|_| !scheme.is_empty() && !headers::is_token(&scheme)) {
        let message = format!("expected one word such as Bearer, or \"\" for none, found {}", quoted(key));
        context.error(key.at, format!("{PATH}.scheme"), message);
    }
    ProviderAuth {
        enabled: typed.enabled.as_ref().is_some_and(|key| key.value),
        from_header,
        target_header,
        scheme: scheme.into(),
        required: typed.required.as_ref().is_none_or(|key| key.value),
    }
}

/// A client's credential and a managed one would be two answers to one question (CFG-3).
pub(super) fn one_credential(
    context: &mut Context<'_>,
    typed: &typed::OpenAi,
    profiles: Option<&Entries<Typed<typed::Profile>>>,
) {
    let enabled = typed.provider_auth.as_ref().and_then(|auth| auth.value.enabled.as_ref());
    let Some(enabled) = enabled.filter(|enabled| enabled.value) else { return };
    let managed = profiles.iter().flat_map(|profiles| profiles.iter()).find(|(_, profile)| {
        let header = profile.value.auth.as_ref().and_then(|auth| auth.value.header.as_ref());
        header.is_some_and(|header| !header.value.is_empty())
    });
    if let Some((name, _)) = managed {
        let message = format!(
            "expected either the client's credential or a managed one: protocol_profiles.{}.auth asks for the other",
            name.value
        );
        context.error(enabled.at, "openai.provider_auth.enabled", message);
    }
}

/// The attribution fallback: not blank when the surface is served. The ledger wants it checked after everything about
/// providers and models, so that it is the last line of a report (CFG-4).
pub(super) fn attribution(
    context: &mut Context<'_>,
    typed: &typed::OpenAi,
    (parent, is_typed): (Place, bool),
    enabled: bool,
) -> Arc<str> {
    const PATH: &str = "openai.provider_id";
    let key = typed.provider_id.as_ref();
    let text = match key {
        // The start of the file stands for a section that is not there; its key alone would be an unknown one.
        None if enabled && !is_typed => {
            context.error(
                parent,
                PATH,
                "expected a value, but the section is missing: add `openai: { provider_id: … }`",
            );
            None
        }
        _ if enabled => context.id(key, parent, PATH, ID_BYTES_MAX),
        _ => context.label(key, PATH),
    };
    text.unwrap_or_default().into()
}

/// Who may call (CFG-2).
pub(super) fn principals(context: &mut Context<'_>, typed: &typed::OpenAi) -> Vec<PrincipalToken> {
    let Some(list) = &typed.principal_tokens else { return Vec::new() };
    if list.value.len() > TOKENS_MAX {
        context.error(list.at, "openai.principal_tokens", format!("expected at most {TOKENS_MAX} tokens"));
        return Vec::new();
    }
    let mut refs: HashMap<String, usize> = HashMap::new();
    let mut hashes: HashMap<[u8; 32], usize> = HashMap::new();
    let mut tokens = Vec::new();
    for (index, entry) in list.value.iter().enumerate() {
        let path = |key: &str| format!("openai.principal_tokens[{index}].{key}");
        let token = &entry.value;
        let token_ref = context.id(token.token_ref.as_ref(), entry.at, &path("token_ref"), ID_BYTES_MAX);
        // In the list of revoked tokens it would be a comment, and its revocation would do nothing.
        if token_ref.as_ref().is_some_and(|name| name.starts_with('#')) {
            let at = place(token.token_ref.as_ref(), entry.at);
            context.error(at, path("token_ref"), "expected a name that does not begin with #, which begins a comment in the list of revoked tokens");
        }
        let hash = hash(context, token, entry.at, &path("token_hash_sha256"));
        let principal_ref =
            context.id(token.principal_ref.as_ref(), entry.at, &path("principal_ref"), ID_BYTES_MAX);
        let alias = context.label(token.principal_alias.as_ref(), &path("principal_alias"));
        if let Some(token_ref) = &token_ref {
            let at = place(token.token_ref.as_ref(), entry.at);
            unique(context, &mut refs, token_ref.clone(), (at, path("token_ref"), index));
        }
        if let Some(hash) = hash {
            let at = token.token_hash_sha256.as_ref().map_or(entry.at, |key| key.at);
            unique(context, &mut hashes, hash, (at, path("token_hash_sha256"), index));
        }
        if let (Some(token_ref), Some(hash), Some(principal_ref)) = (token_ref, hash, principal_ref) {
            let principal = Principal::new(&token_ref, &principal_ref, alias.as_deref());
            tokens.push(PrincipalToken { hash, principal: Arc::new(principal) });
        }
    }
    tokens
}

fn place(key: Option<&Typed<String>>, parent: Place) -> Place {
    key.map_or(parent, |key| key.at)
}

fn unique<K: std::hash::Hash + Eq>(
    context: &mut Context<'_>,
    seen: &mut HashMap<K, usize>,
    key: K,
    (at, path, index): (Place, String, usize),
) {
    if let Some(first) = seen.get(&key) {
        let message = format!("expected a value of its own: openai.principal_tokens[{first}] has the same");
        context.error(at, path, message);
    } else {
        seen.insert(key, index);
    }
}

/// The digest is not quoted in any message: someone may have pasted the token itself.
fn hash(
    context: &mut Context<'_>,
    token: &typed::PrincipalToken,
    parent: Place,
    path: &str,
) -> Option<[u8; 32]> {
    let Some(key) = token.token_hash_sha256.as_ref() else {
        context.error(parent, path, "expected the SHA-256 of the token, but the key is missing; `iop-edge token new` prints the entry");
        return None;
    };
    let text = context.expanded(key.value.expose(), key.at, path)?;
    let decoded = decode_hex(&text);
    if decoded.is_none() {
        let message = format!(
            "expected 64 hexadecimal digits, found {} characters; `iop-edge token new` prints the entry, and the token itself never stands here",
            text.chars().count()
        );
        context.error(key.at, path, message);
    }
    decoded
}

fn decode_hex(text: &str) -> Option<[u8; 32]> {
    let digits = text.as_bytes();
    let mut bytes = [0u8; 32];
    if digits.len() != 2 * bytes.len() {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        for digit in pair {
            *byte = (*byte << 4) | u8::try_from(char::from(*digit).to_digit(16)?).ok()?;
        }
    }
    Some(bytes)
}
