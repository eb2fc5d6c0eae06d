//! Resolving one of `nodes[].providers`: its own values. References to adapters and profiles are followed here; what several
//! providers must agree on is checked by [`super::node`].

use std::{ops::RangeInclusive, time::Duration};

use control::config::Capabilities;
use proto::message::{AdapterSettings, Header, HealthCheck, Operation, ProtocolProfile};

use super::{
    MAX_QUEUE_DEFAULT, MAX_QUEUE_MAX, QUEUE_TIMEOUT_MS_DEFAULT, QUEUE_TIMEOUT_MS_MAX,
    adapter::Adapter,
    context::{Context, ID_BYTES_MAX, MODEL_BYTES_MAX, quoted},
    headers, native,
    profile::{Profiles, Resolved},
};
use crate::config::{
    SLOTS_MAX, capability,
    nearest::hint,
    place::{Place, Typed},
    typed, url,
};

/// Stall timeout in milliseconds when the file has none (STL-10).
const STALL_TIMEOUT_MS_DEFAULT: i64 = 300_000;
/// Largest stall timeout: what still fits an `i64` in nanoseconds (STL-10).
const STALL_TIMEOUT_MS_MAX: i64 = i64::MAX / 1_000_000;
/// Hard deadline of a run in milliseconds when the file has none: one hour.
pub(super) const REQUEST_TIMEOUT_MS_DEFAULT: i64 = 3_600_000;
/// Largest hard deadline: it travels as a `u32` of seconds, and the Edge waits a little longer than the Node.
const REQUEST_TIMEOUT_MS_MAX: i64 = 4_000_000_000_000;
/// Most models of one provider: half of what the wire takes, since each may be served by two names.
const MODELS_MAX: usize = 512;

/// What an adapter or provider is, by its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    OpenAiCompat,
    Vllm,
    Ollama,
    Cli,
    SeulgivibeClaude,
    SeulgivibeOpenAi,
}

impl Kind {
    /// The closed set, by name.
    pub(super) const ALL: [(&'static str, Self); 6] = [
        ("openai_compat", Self::OpenAiCompat),
        ("vllm", Self::Vllm),
        ("ollama", Self::Ollama),
        ("cli", Self::Cli),
        ("seulgivibe_claude", Self::SeulgivibeClaude),
        ("seulgivibe_openai", Self::SeulgivibeOpenAi),
    ];

    /// Its name in the configuration.
    pub(super) fn as_str(self) -> &'static str {
        Self::ALL.iter().find(|(_, kind)| *kind == self).map_or("", |(name, _)| name)
    }

    /// What an alias stands for; every other type is itself (CFG-9).
    pub(super) fn normalized(self) -> Self {
        match self {
            Self::SeulgivibeClaude | Self::SeulgivibeOpenAi => Self::OpenAiCompat,
            other => other,
        }
    }

    /// Whether it is a backend with a language of its own, which gets normalized runs (POL-7).
    pub(super) fn is_native(self) -> bool {
        self.profile().is_none()
    }

    /// The profile of a provider that names none (PRF-2); `None` for a type that speaks its own language.
    fn profile(self) -> Option<&'static str> {
        match self.normalized() {
            Self::Vllm => Some("vllm"),
            Self::Ollama | Self::Cli => None,
            _ => Some("openai_compat"),
        }
    }
}

/// `category`
const CATEGORIES: [(&str, &str); 3] =
    [("api", "api"), ("cli", "cli"), ("local_inference", "local_inference")];

/// A provider whose own values are resolved. `None` stands for a wrong value, which has been reported.
pub(super) struct Provider {
    pub(super) at: Place,
    pub(super) id: Option<String>,
    pub(super) kind: Option<Kind>,
    pub(super) category: &'static str,
    /// Position of its adapter on its Node.
    pub(super) adapter: Option<usize>,
    pub(super) adapter_name: String,
    pub(super) profile: Option<Resolved>,
    /// What its adapter must be set to for it.
    pub(super) upstream: Option<Upstream>,
    /// As typed.
    pub(super) models: Vec<String>,
    pub(super) enabled: bool,
    pub(super) capacity: u32,
    pub(super) long_capacity: u32,
    /// Tokens, and where and under which path they stand.
    pub(super) total_context: Option<(u64, Place, String)>,
    pub(super) priority: u32,
    pub(super) stall_timeout: Duration,
    pub(super) request_timeout: Duration,
    pub(super) health: HealthCheck,
    /// Its own queue settings, as earlier files have them: where they stand, bound and wait in milliseconds (CFG-8).
    pub(super) queue: (Option<Place>, i64, i64),
}

/// Where and how a provider is called.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Upstream {
    /// By what its clients send.
    Tunnel {
        profile: ProtocolProfile,
        headers: Vec<Header>,
        /// Its own label, when it has one.
        label: Option<String>,
    },
    /// In its own language.
    Native(AdapterSettings),
}

impl Provider {
    /// What it can do: by its profile, or by what every normalized run can.
    pub(super) fn capabilities(&self) -> Capabilities {
        match (&self.profile, self.kind) {
            (Some(profile), _) => profile.capabilities,
            (None, Some(kind)) if kind.is_native() => capability::NATIVE,
            (None, _) => capability::NONE,
        }
    }

    /// What it can be asked for, and what the gate can look into of it (PRF-7).
    pub(super) fn abilities(&self) -> Capabilities {
        let own = match &self.profile {
            Some(profile) => profile.abilities(),
            // The Edge writes the answers of normalized runs itself.
            None if self.is_native() => capability::OUTPUT
                .iter()
                .fold(self.capabilities(), |all, (_, bit)| capability::union(all, *bit)),
            None => self.capabilities(),
        };
        capability::reachable(own)
    }

    /// The served name of an external model (PRF-5). Without a profile nothing is mapped.
    pub(super) fn map_model<'a>(&'a self, model: &'a str) -> &'a str {
        self.profile.as_ref().map_or(model, |profile| profile.map_model(model))
    }

    /// The names of the models that it serves.
    pub(super) fn served(&self) -> Vec<String> {
        match (&self.profile, self.kind) {
            (Some(profile), _) => profile.served(&self.models),
            (None, Some(kind)) if kind.is_native() => self.models.clone(),
            (None, _) => Vec::new(),
        }
    }

    /// Whether it gets normalized runs.
    pub(super) fn is_native(&self) -> bool {
        self.kind.is_some_and(Kind::is_native)
    }

    pub(super) fn resolve(
        context: &mut Context<'_>,
        profiles: &Profiles,
        adapters: &[Adapter],
        typed: &Typed<typed::Provider>,
        path: &str,
    ) -> Self {
        let at = typed.at;
        let typed = &typed.value;
        let key = |key: &str| format!("{path}.{key}");
        let id = context.id(typed.id.as_ref(), at, &key("id"), ID_BYTES_MAX);
        let kind = context.required_word(typed.r#type.as_ref(), at, &key("type"), &Kind::ALL).ok();
        let category = context.required_word(typed.category.as_ref(), at, &key("category"), &CATEGORIES);
        let enabled = typed.enabled.as_ref().is_none_or(|enabled| enabled.value);
        let models = models(context, &typed.models, at, &key("models"));
        let capacity = context.integer(typed.capacity.as_ref(), &key("capacity"), 1..=SLOTS_MAX, 1);
        let long = context.integer(
            typed.long_context_capacity.as_ref(),
            &key("long_context_capacity"),
            // A capacity that is wrong itself bounds nothing.
            0..=typed
                .capacity
                .as_ref()
                .map_or(capacity, |typed| if typed.value == capacity { capacity } else { SLOTS_MAX }),
            capacity,
        );
        let total_context = total_context(context, typed, &key("total_context_tokens"));
        let priority = context.integer(typed.priority.as_ref(), &key("priority"), 0..=i64::from(u32::MAX), 0);
        let stall_timeout = timeout(
            context,
            typed.response_stall_timeout_ms.as_ref(),
            &key("response_stall_timeout_ms"),
            0..=STALL_TIMEOUT_MS_MAX,
            STALL_TIMEOUT_MS_DEFAULT,
        );
        let request_timeout = timeout(
            context,
            typed.request_timeout_ms.as_ref(),
            &key("request_timeout_ms"),
            0..=REQUEST_TIMEOUT_MS_MAX,
            REQUEST_TIMEOUT_MS_DEFAULT,
        );
        let queue = queue(context, typed, &key);
        let size =
            context.count(typed.context_size.as_ref(), &key("context_size"), 0..=i64::from(u32::MAX), 0);
        let adapter = adapter(context, adapters, typed, (at, enabled), &key("adapter"));
        if category == Ok("cli") && enabled {
            needs_cli(context, adapters, adapter, typed, (at, &key("category")));
        }
        let adapter_name = match adapter.and_then(|adapter| adapters.get(adapter)) {
            Some(adapter) => adapter.name.clone(),
            None => typed.adapter.as_ref().map(|adapter| adapter.value.clone()).unwrap_or_default(),
        };
        let profile = kind.and_then(|kind| profile(context, profiles, typed, kind, &key("profile")));
        let adapter_settings = adapter.and_then(|adapter| adapters.get(adapter));
        if let (Some(kind), Some(adapter)) = (kind, adapter_settings) {
            same_language(context, kind, adapter, typed, (at, path));
        }
        let upstream = match kind.filter(|kind| kind.is_native()) {
            Some(kind) => native::resolve(context, typed, (kind, size), adapter_settings, (at, path)),
            None => upstream(context, typed, profile.as_ref(), adapter_settings, (at, path)),
        };
        let health = health(context, typed, kind, upstream.as_ref(), path);
        match kind {
            Some(kind) if !kind.is_native() => native::refuse_fields(context, typed, path),
            _ => {}
        }
        Self {
            at,
            id,
            kind,
            category: category.unwrap_or_default(),
            adapter,
            adapter_name,
            profile,
            upstream,
            models,
            enabled,
            capacity: u32::try_from(capacity).unwrap_or(1),
            long_capacity: u32::try_from(long).unwrap_or(0),
            total_context,
            priority: u32::try_from(priority).unwrap_or(u32::MAX),
            stall_timeout,
            request_timeout,
            health,
            queue,
        }
    }
}

/// An adapter speaks one language, and a provider on it the same.
fn same_language(
    context: &mut Context<'_>,
    kind: Kind,
    adapter: &Adapter,
    typed: &typed::Provider,
    (parent, path): (Place, &str),
) {
    let Some(other) = adapter.kind() else { return };
    if kind.normalized() == other.normalized() || !kind.is_native() && !other.is_native() {
        return;
    }
    let at = typed.r#type.as_ref().map_or(parent, |key| key.at);
    let message = format!(
        "a provider of type {} needs an adapter of that type, and `{}` is of type {}",
        kind.as_str(),
        adapter.name,
        other.as_str()
    );
    context.error(at, format!("{path}.type"), message);
}

/// The provider's own queue settings. They are checked even where they count for nothing.
fn queue(
    context: &mut Context<'_>,
    typed: &typed::Provider,
    key: &dyn Fn(&str) -> String,
) -> (Option<Place>, i64, i64) {
    let (max, timeout) = (typed.max_queue.as_ref(), typed.queue_timeout_ms.as_ref());
    let bound = context.integer(max, &key("max_queue"), 0..=MAX_QUEUE_MAX, 0);
    let bound = if bound == 0 { MAX_QUEUE_DEFAULT } else { bound };
    let wait = context.integer(
        timeout,
        &key("queue_timeout_ms"),
        0..=QUEUE_TIMEOUT_MS_MAX,
        QUEUE_TIMEOUT_MS_DEFAULT,
    );
    (max.or(timeout).map(|key| key.at), bound, wait)
}

/// A resource of category `cli` is a program, which only an adapter of that type runs (CFG-6).
fn needs_cli(
    context: &mut Context<'_>,
    adapters: &[Adapter],
    adapter: Option<usize>,
    typed: &typed::Provider,
    (parent, path): (Place, &str),
) {
    let Some(adapter) = adapter.and_then(|adapter| adapters.get(adapter)) else { return };
    if !adapter.has_type("cli") {
        let at = typed.category.as_ref().map_or(parent, |key| key.at);
        let message = format!("category cli needs an adapter of type cli, and `{}` is none", adapter.name);
        context.error(at, path, message);
    }
}

fn models(context: &mut Context<'_>, list: &typed::List<String>, parent: Place, path: &str) -> Vec<String> {
    let Some(list) = list.as_ref().filter(|list| !list.value.is_empty()) else {
        let at = list.as_ref().map_or(parent, |list| list.at);
        context.error(at, path, "expected at least one model that this provider serves");
        return Vec::new();
    };
    if list.value.len() > MODELS_MAX {
        context.error(list.at, path, format!("expected at most {MODELS_MAX} models"));
        return Vec::new();
    }
    let mut models: Vec<String> = Vec::new();
    for (index, key) in list.value.iter().enumerate() {
        let path = format!("{path}[{index}]");
        let Some(model) = context.id(Some(key), key.at, &path, MODEL_BYTES_MAX) else { continue };
        if models.contains(&model) {
            context.error(key.at, path, format!("model {} is already in the list", quoted(key)));
        } else {
            models.push(model);
        }
    }
    models
}

fn total_context(
    context: &mut Context<'_>,
    typed: &typed::Provider,
    path: &str,
) -> Option<(u64, Place, String)> {
    let key = typed.total_context_tokens.as_ref()?;
    let tokens = context.count(Some(key), path, 0..=i64::MAX, 0);
    (tokens > 0).then(|| (tokens, key.at, path.to_owned()))
}

/// How it is probed, beside what its type always looks at.
fn health(
    context: &mut Context<'_>,
    typed: &typed::Provider,
    kind: Option<Kind>,
    upstream: Option<&Upstream>,
    path: &str,
) -> HealthCheck {
    let Some(health) = &typed.health else { return HealthCheck::default() };
    let key = |key: &str| format!("{path}.health.{key}");
    let wish = health.value.generation.as_ref().filter(|wish| wish.value);
    if let Some(wish) = wish {
        let generates = [Operation::ChatCompletions, Operation::Messages, Operation::Responses];
        let message = match upstream {
            Some(Upstream::Tunnel { profile, .. })
                if !profile.operations.iter().any(|offered| generates.contains(&offered.operation)) =>
            {
                format!("profile `{}` has no operation that generates: write `generation: false`", profile.id)
            }
            Some(Upstream::Native(AdapterSettings::Cli(_))) => {
                "a command is not run to see whether it works: write `generation: false`".to_owned()
            }
            _ => String::new(),
        };
        if !message.is_empty() {
            context.error(wish.at, key("generation"), message);
        }
    }
    let typed = health.value.path.as_ref().filter(|typed| !typed.value.is_empty());
    let text = typed.and_then(|typed| Some((typed.at, context.text(Some(typed), &key("path"))?)));
    let mut checked = String::new();
    if let Some((at, text)) = text {
        if kind.is_some_and(|kind| kind.profile().is_none()) {
            context.error(at, key("path"), "this key belongs to providers of type openai_compat or vllm");
        } else if let Err(error) = url::check_request_path(&text) {
            context.error(at, key("path"), error.to_string());
        } else {
            checked = text;
        }
    }
    HealthCheck { path: checked, generation: wish.is_some() }
}

/// A timeout whose 0 stands for the default.
fn timeout(
    context: &mut Context<'_>,
    key: Option<&Typed<i64>>,
    path: &str,
    bounds: RangeInclusive<i64>,
    default: i64,
) -> Duration {
    let typed = context.millis(key, path, bounds, 0);
    if typed.is_zero() { Duration::from_millis(default.unsigned_abs()) } else { typed }
}

/// The adapter that a provider names: an exact instance name first, a type name only when exactly one enabled instance has
/// that type. A disabled provider may name one that does not exist (CFG-6).
fn adapter(
    context: &mut Context<'_>,
    adapters: &[Adapter],
    typed: &typed::Provider,
    (parent, enabled): (Place, bool),
    path: &str,
) -> Option<usize> {
    let at = typed.adapter.as_ref().map_or(parent, |key| key.at);
    let named = match typed.adapter.as_ref().filter(|key| !key.value.is_empty()) {
        Some(key) => context.text(Some(key), path)?,
        None if !enabled => return None,
        None => {
            let known = adapters.iter().map(|adapter| adapter.name.as_str()).collect::<Vec<_>>().join(", ");
            let known = if known.is_empty() { "there is none yet".to_owned() } else { known };
            let message =
                format!("expected the name of an adapter of this node ({known}), but the key is missing");
            context.error(at, path, message);
            return None;
        }
    };
    let found = find_adapter(adapters, &named);
    match found.and_then(|found| adapters.get(found)) {
        Some(adapter) if adapter.enabled || !enabled => found,
        Some(_) => {
            context.error(at, path, format!("adapter `{named}` of this node is disabled"));
            None
        }
        None if !enabled => None,
        None => {
            let names = || adapters.iter().map(|adapter| adapter.name.as_str());
            let known = names().collect::<Vec<_>>().join(", ");
            let known = if known.is_empty() { "none".to_owned() } else { known };
            let same_type =
                adapters.iter().filter(|adapter| adapter.enabled && adapter.has_type(&named)).count();
            let message = if same_type > 1 {
                format!(
                    "{same_type} adapters of this node have type `{named}`: expected one of their names: {known}"
                )
            } else {
                let hint = hint(&named, names());
                format!(
                    "expected the name of an enabled adapter of this node ({known}), found `{named}`{hint}"
                )
            };
            context.error(at, path, message);
            None
        }
    }
}

fn find_adapter(adapters: &[Adapter], named: &str) -> Option<usize> {
    if let Some(exact) = adapters.iter().position(|adapter| adapter.name == named) {
        return Some(exact);
    }
    let mut of_type =
        adapters.iter().enumerate().filter(|(_, adapter)| adapter.enabled && adapter.has_type(named));
    match (of_type.next(), of_type.next()) {
        (Some((only, _)), None) => Some(only),
        _ => None,
    }
}

/// The profile that a provider names, or the one of its type (PRF-2).
fn profile(
    context: &mut Context<'_>,
    profiles: &Profiles,
    typed: &typed::Provider,
    kind: Kind,
    path: &str,
) -> Option<Resolved> {
    let by_type = kind.profile()?;
    let named = match typed.profile.as_ref() {
        Some(key) => context.text(Some(key), path)?,
        None => String::new(),
    };
    let name = if named.is_empty() { by_type } else { &named };
    profiles.named(name).unwrap_or_else(|()| {
        let at = typed.profile.as_ref().map(|key| key.at).unwrap_or_default();
        context.error(at, path, format!("unknown profile `{name}`{}", hint(name, profiles.names())));
        None
    })
}

/// Where the provider is called: its own fields win over those of its adapter, and these over the profile's.
fn upstream(
    context: &mut Context<'_>,
    typed: &typed::Provider,
    profile: Option<&Resolved>,
    adapter: Option<&Adapter>,
    (at, path): (Place, &str),
) -> Option<Upstream> {
    let own = base_url(context, typed.base_url.as_ref(), typed.endpoint.as_ref(), path);
    let own_headers = headers::resolve(context, typed.headers.as_ref(), &format!("{path}.headers"));
    let label = context.label(typed.provider.as_ref(), &format!("{path}.provider"));
    let (profile, own) = (profile?, own.ok()?);
    let base_url = own.as_deref().or_else(|| adapter.and_then(|adapter| adapter.base_url.as_deref()));
    if base_url.is_none() && !profile.has_base_url() {
        let message = format!(
            "profile `{}` has no address: set base_url here, in a profile of protocol_profiles, or choose a profile by the server's name",
            profile.id
        );
        context.error(at, format!("{path}.base_url"), message);
        return None;
    }
    match profile.at(base_url) {
        Ok(profile) => {
            let headers = headers::overlay(adapter.map_or(&[], |adapter| &adapter.headers), own_headers);
            Some(Upstream::Tunnel { profile, headers, label })
        }
        Err(error) => {
            let at = typed.profile.as_ref().map_or(at, |key| key.at);
            context.error(at, format!("{path}.profile"), format!("profile `{}`: {error}", profile.id));
            None
        }
    }
}

/// The address of a provider or adapter by either of its two names; `Err` when it is wrong, which has been reported.
pub(super) fn base_url(
    context: &mut Context<'_>,
    base_url: Option<&Typed<String>>,
    endpoint: Option<&Typed<String>>,
    path: &str,
) -> Result<Option<String>, ()> {
    let mut found: Option<String> = None;
    for (key, name) in [(base_url, "base_url"), (endpoint, "endpoint")] {
        let Some(key) = key.filter(|key| !key.value.is_empty()) else { continue };
        let path = format!("{path}.{name}");
        let text = context.text(Some(key), &path).ok_or(())?;
        match (url::normalize(&text), &found) {
            (Ok(url), Some(other)) if url != *other => {
                context.error(
                    key.at,
                    path,
                    "base_url and endpoint are two names of one thing: expected only one of them",
                );
                return Err(());
            }
            (Ok(url), _) => found = Some(url),
            (Err(error), _) => {
                context.error(key.at, path, error.to_string());
                return Err(());
            }
        }
    }
    Ok(found)
}
