//! Protocol profiles: overlays over the built-in catalog, resolved to absolute URLs (PRF-1..6).

use std::collections::{BTreeMap, HashMap, HashSet};

use control::config::Capabilities;
use proto::message::{Operation, ProfileOperation, ProtocolProfile};

use super::context::{Context, ID_BYTES_MAX, MODEL_BYTES_MAX, Reported, quoted};
use crate::config::{
    capability,
    catalog::{self, Builtin, Driver, OPERATIONS},
    dialect::ChatDialect,
    generation::GenerationFields,
    nearest::hint,
    place::{Entries, Place, Typed},
    typed::Profile,
    url::{self, UrlError},
};

/// A profile with its overlays applied.
#[derive(Clone, Debug)]
pub(super) struct Resolved {
    pub(super) id: String,
    /// What its server calls the token limits: overlays keep those of their built-in base.
    pub(super) generation_fields: GenerationFields,
    /// What else its chat completions take, likewise.
    pub(super) dialect: ChatDialect,
    driver: Driver,
    /// Empty, or as the catalog or an overlay gave it.
    base_url: String,
    /// Path or absolute URL of each operation.
    operations: BTreeMap<Operation, String>,
    pub(super) capabilities: Capabilities,
    model_mapping: BTreeMap<String, String>,
}

impl Resolved {
    /// The served name of an external model (PRF-5).
    pub(super) fn map_model<'a>(&'a self, model: &'a str) -> &'a str {
        self.model_mapping.get(model).map_or(model, String::as_str)
    }

    /// The names that a provider with these configured `models` serves: each of them mapped, and those that are themselves
    /// the result of a mapping. So a mapped model may be listed by either name.
    pub(super) fn served(&self, models: &[String]) -> Vec<String> {
        let mut served = Vec::new();
        for model in models {
            let is_result = self.model_mapping.values().any(|result| result == model);
            for name in
                [Some(self.map_model(model)), is_result.then_some(model.as_str())].into_iter().flatten()
            {
                if !served.iter().any(|known| known == name) {
                    served.push(name.to_owned());
                }
            }
        }
        served
    }

    /// The profile as it travels: with absolute URLs, on `base_url` when one is given.
    pub(super) fn at(&self, base_url: Option<&str>) -> Result<ProtocolProfile, UrlError> {
        let base_url = url::normalize(base_url.unwrap_or(&self.base_url))?;
        let operations = self.operations.iter().map(|(operation, path)| {
            Ok(ProfileOperation {
                operation: *operation,
                method: catalog::method(*operation).to_owned(),
                url: url::join(&base_url, path)?,
            })
        });
        Ok(ProtocolProfile {
            id: self.id.clone(),
            driver: self.driver.as_str().to_owned(),
            operations: operations.collect::<Result<_, _>>()?,
            base_url,
            capabilities: capability::names(self.capabilities),
        })
    }

    /// What a candidate is compared by: what the profile says it can do, and what the gate can look into of it (PRF-7).
    pub(super) fn abilities(&self) -> Capabilities {
        let outputs = self.operations.keys().map(|operation| self.driver.output(*operation));
        outputs.fold(self.capabilities, capability::union)
    }

    /// Whether it has an address of its own.
    pub(super) fn has_base_url(&self) -> bool {
        !self.base_url.is_empty()
    }
}

impl From<&Builtin> for Resolved {
    fn from(builtin: &Builtin) -> Self {
        Self {
            id: builtin.id.to_owned(),
            generation_fields: GenerationFields::of_builtin(builtin.id),
            dialect: ChatDialect::of_builtin(builtin.id),
            driver: builtin.driver,
            base_url: builtin.base_url.to_owned(),
            operations: builtin.operations.iter().map(|(op, path)| (*op, (*path).to_owned())).collect(),
            capabilities: builtin.capabilities,
            model_mapping: BTreeMap::new(),
        }
    }
}

/// Every profile that a provider can name.
pub(super) struct Profiles {
    /// Overlays of the file; `None` for one that is wrong, which has been reported.
    custom: HashMap<String, Option<Resolved>>,
}

impl Profiles {
    /// Resolves every overlay of the file.
    pub(super) fn resolve(context: &mut Context<'_>, typed: Option<&Entries<Typed<Profile>>>) -> Self {
        let mut overlays: HashMap<&str, (&Typed<String>, &Profile)> = HashMap::new();
        for (name, profile) in typed.iter().flat_map(|entries| entries.iter()) {
            let path = format!("protocol_profiles.{}", name.value);
            context.id(Some(name), name.at, &path, ID_BYTES_MAX);
            if catalog::builtin(&name.value).is_some() {
                context.error(
                    name.at,
                    path,
                    "expected a new name: this one is a built-in profile, and its `base` can name it",
                );
            } else {
                overlays.insert(&name.value, (name, &profile.value));
            }
        }
        let mut profiles = Self { custom: HashMap::new() };
        for (name, _) in typed.iter().flat_map(|entries| entries.iter()) {
            profiles.add(context, &overlays, &name.value);
        }
        profiles
    }

    /// The profile of a name: `Err` when there is none, `Ok(None)` when it is wrong and was reported.
    pub(super) fn named(&self, name: &str) -> Result<Option<Resolved>, ()> {
        match catalog::builtin(name) {
            Some(builtin) => Ok(Some(builtin.into())),
            None => self.custom.get(name).cloned().ok_or(()),
        }
    }

    /// Every name.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        catalog::CATALOG.iter().map(|builtin| builtin.id).chain(self.custom.keys().map(String::as_str))
    }

    /// Resolves one overlay and everything below it, from the built-in profile up. Each overlay is applied once.
    fn add(
        &mut self,
        context: &mut Context<'_>,
        overlays: &HashMap<&str, (&Typed<String>, &Profile)>,
        name: &str,
    ) {
        let mut chain: Vec<(&Typed<String>, &Profile)> = Vec::new();
        let mut seen = HashSet::new();
        let mut next = name.to_owned();
        // Down to something that is known already.
        let mut resolved = loop {
            match self.named(&next) {
                Ok(known) => break known,
                Err(()) if seen.contains(&next) => {
                    let cycle =
                        chain.iter().map(|(name, _)| name.value.as_str()).collect::<Vec<_>>().join(" → ");
                    let (at, path) = base_of(chain.last().copied());
                    context.error(
                        at,
                        path,
                        format!(
                            "the bases form a cycle: {cycle} → {next}; expected a built-in profile at its end"
                        ),
                    );
                    break None;
                }
                Err(()) => {}
            }
            let Some(overlay) = overlays.get(next.as_str()) else {
                if let Some((at, path)) = chain.last().map(|last| base_of(Some(*last))) {
                    let known = self.names().chain(overlays.keys().copied());
                    let hint = hint(&next, known);
                    context.error(at, path, format!("unknown profile `{next}`{hint}"));
                }
                break None;
            };
            chain.push(*overlay);
            seen.insert(next);
            let (name, profile) = overlay;
            let path = format!("protocol_profiles.{}.base", name.value);
            match context.id(profile.base.as_ref(), name.at, &path, ID_BYTES_MAX) {
                Some(base) => next = base,
                None => break None,
            }
        };
        for (name, overlay) in chain.into_iter().rev() {
            resolved = resolved.and_then(|base| apply(context, base, name, overlay));
            self.custom.insert(name.value.clone(), resolved.clone());
        }
    }
}

fn base_of(overlay: Option<(&Typed<String>, &Profile)>) -> (Place, String) {
    let Some((name, profile)) = overlay else { return (Place::default(), "protocol_profiles".to_owned()) };
    let at = profile.base.as_ref().map_or(name.at, |base| base.at);
    (at, format!("protocol_profiles.{}.base", name.value))
}

/// `base` with one overlay on it; `None` when the overlay is wrong, which has been reported.
fn apply(
    context: &mut Context<'_>,
    mut base: Resolved,
    name: &Typed<String>,
    overlay: &Profile,
) -> Option<Resolved> {
    let path = |key: &str| format!("protocol_profiles.{}.{key}", name.value);
    let mut valid = true;
    base.id.clone_from(&name.value);
    match context.word(overlay.driver.as_ref(), &path("driver"), &Driver::ALL) {
        Ok(Some(driver)) => base.driver = driver,
        Ok(None) => {}
        Err(Reported) => valid = false,
    }
    if let Some(typed) = overlay.base_url.as_ref().filter(|typed| !typed.value.is_empty()) {
        match context.text(Some(typed), &path("base_url")).map(|text| url::normalize(&text)) {
            Some(Ok(url)) => base.base_url = url,
            Some(Err(error)) => {
                context.error(typed.at, path("base_url"), error.to_string());
                valid = false;
            }
            None => valid = false,
        }
    }
    valid &= apply_operations(context, &mut base, overlay, &path("operations"));
    for operation in base.operations.keys() {
        if !base.driver.operations().contains(operation) {
            let message = format!(
                "driver {} has no operation {}; a null value takes an operation of the base away",
                base.driver.as_str(),
                operation_name(*operation)
            );
            let at = [
                overlay.operations.as_ref().map(|typed| typed.at),
                overlay.driver.as_ref().map(|typed| typed.at),
            ];
            context.error(at.into_iter().flatten().next().unwrap_or(name.at), path("operations"), message);
            valid = false;
        }
    }
    valid &= apply_capabilities(context, &mut base, overlay, &path("capabilities"));
    valid &= apply_mapping(context, &mut base, overlay, &path("model_mapping"));
    valid.then_some(base)
}

fn apply_operations(context: &mut Context<'_>, base: &mut Resolved, overlay: &Profile, path: &str) -> bool {
    let mut valid = true;
    for (name, target) in overlay.operations.iter().flat_map(|typed| typed.value.iter()) {
        let path = format!("{path}.{}", name.value);
        let Ok(operation) = context.required_word(Some(name), name.at, &path, &OPERATIONS) else {
            valid = false;
            continue;
        };
        let Some(typed) = target else {
            base.operations.remove(&operation);
            continue;
        };
        // The base may come from a provider later; the path itself can be judged now.
        let checked =
            context.text(Some(typed), &path).map(|text| url::join("http://base", &text).map(|_| text));
        match checked {
            Some(Ok(text)) => {
                base.operations.insert(operation, text);
            }
            Some(Err(error)) => {
                context.error(typed.at, path, error.to_string());
                valid = false;
            }
            None => valid = false,
        }
    }
    valid
}

fn apply_capabilities(context: &mut Context<'_>, base: &mut Resolved, overlay: &Profile, path: &str) -> bool {
    let offered = || base.operations.keys().copied();
    let Some(list) = &overlay.capabilities else {
        base.capabilities = catalog::supported(base.capabilities, offered());
        return true;
    };
    let mut valid = true;
    let mut set = capability::NONE;
    for (index, name) in list.value.iter().enumerate() {
        let path = format!("{path}[{index}]");
        match context.required_word(Some(name), name.at, &path, &capability::ALL) {
            Ok(bit) if catalog::supported(bit, offered()) == bit => set = capability::union(set, bit),
            Ok(_) => {
                let message = format!("the profile offers no operation for capability {}", quoted(name));
                context.error(name.at, path, message);
                valid = false;
            }
            Err(Reported) => valid = false,
        }
    }
    base.capabilities = set;
    valid
}

fn apply_mapping(context: &mut Context<'_>, base: &mut Resolved, overlay: &Profile, path: &str) -> bool {
    let mut valid = true;
    for (external, served) in overlay.model_mapping.iter().flat_map(|typed| typed.value.iter()) {
        let path = format!("{path}.{}", external.value);
        let external = context.id(Some(external), external.at, &path, MODEL_BYTES_MAX);
        let served = context.id(Some(served), served.at, &path, MODEL_BYTES_MAX);
        match (external, served) {
            (Some(external), Some(served)) => {
                base.model_mapping.insert(external, served);
            }
            _ => valid = false,
        }
    }
    valid
}

fn operation_name(operation: Operation) -> &'static str {
    OPERATIONS.iter().find(|(_, known)| *known == operation).map_or("", |(name, _)| *name)
}
