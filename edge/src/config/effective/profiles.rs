//! Overlays with everything that they inherit, each value with the profile that it comes from.

use std::collections::BTreeMap;

use control::config::Capabilities;
use proto::message::Operation;

use super::{
    Source,
    yaml::{Entry, Shown, quoted},
};
use crate::config::{
    capability,
    catalog::{self, Builtin, OPERATIONS},
    tree::{Item, Value},
};

/// An overlay and everything below it, from the overlay itself down.
struct Chain<'a> {
    overlays: Vec<(String, &'a Item)>,
    base: &'static Builtin,
}

/// Completes every overlay of the file.
pub(super) fn all(root: &mut Entry, source: &Source<'_>) {
    let Some(Entry { value: Shown::Mapping(profiles), .. }) = root.at(&["protocol_profiles"]) else { return };
    for (name, shown) in profiles {
        // The name itself may come from the environment.
        let Some(chain) = source.expanded(name).and_then(|_| chain(name, source)) else { continue };
        overlay(shown, &chain, source);
    }
}

/// The address of a profile as it is written, unless it has none.
pub(super) fn address(name: &str, source: &Source<'_>) -> Option<Entry> {
    if let Some(builtin) = catalog::builtin(name) {
        let url = Some(builtin.base_url).filter(|url| !url.is_empty())?;
        return Some(Entry::text(url, format!("profile {name}")));
    }
    let overlays = source.root.value.get("protocol_profiles")?.value.entries();
    let (typed, _) = overlays.iter().find(|(key, _)| source.expanded(&key.value).as_deref() == Some(name))?;
    let chain = chain(&typed.value, source)?;
    let own = chain.own("base_url").map(|(from, item)| (from.to_owned(), text_of(item)));
    let (from, text) = own.or_else(|| {
        let url = Some(chain.base.base_url).filter(|url| !url.is_empty())?;
        Some((chain.base.id.to_owned(), url.to_owned()))
    })?;
    Some(Entry::text(&text, format!("profile {from}")))
}

/// The chain of an overlay by its name as typed; the file has been loaded, so it ends in a built-in profile.
fn chain<'a>(name: &str, source: &Source<'a>) -> Option<Chain<'a>> {
    let all = source.root.value.get("protocol_profiles")?.value.entries();
    let mut overlays: Vec<(String, &Item)> = Vec::new();
    let mut next = source.expanded(name)?;
    loop {
        if let Some(base) = catalog::builtin(&next) {
            return Some(Chain { overlays, base });
        }
        let (key, item) =
            all.iter().find(|(key, _)| source.expanded(&key.value).as_deref() == Some(&next))?;
        if overlays.len() >= all.len() {
            return None;
        }
        overlays.push((key.value.clone(), item));
        next = source.expanded(item.value.get("base")?.value.text()?)?;
    }
}

impl<'a> Chain<'a> {
    /// The uppermost value of a key that is not empty, and the profile that has it.
    fn own(&self, key: &str) -> Option<(&str, &'a Item)> {
        for (name, item) in &self.overlays {
            if let Some(value) = item.value.get(key).filter(|value| value.value.text() != Some("")) {
                return Some((name.as_str(), value));
            }
        }
        None
    }
}

fn overlay(shown: &mut Entry, chain: &Chain<'_>, source: &Source<'_>) {
    let builtin = || format!("profile {}", chain.base.id);
    let driver =
        chain.own("driver").map(|(from, item)| Entry::text(&text_of(item), format!("profile {from}")));
    shown.set_empty("driver", driver.unwrap_or_else(|| Entry::text(chain.base.driver.as_str(), builtin())));
    let url =
        chain.own("base_url").map(|(from, item)| Entry::text(&text_of(item), format!("profile {from}")));
    shown.set_empty("base_url", url.unwrap_or_else(|| Entry::text(chain.base.base_url, builtin())));
    let (operations, offered) = operations(chain, source);
    shown.set("operations", operations);
    shown.set("capabilities", capabilities(chain, &offered, source));
    shown.set("model_mapping", mapping(chain, source));
}

/// The operations of the chain, and which of them are left. One that was taken away stays so by a null.
fn operations(chain: &Chain<'_>, source: &Source<'_>) -> (Entry, Vec<Operation>) {
    let mut all: BTreeMap<Operation, Entry> = BTreeMap::new();
    for (operation, path) in chain.base.operations {
        all.insert(*operation, Entry::text(path, format!("profile {}", chain.base.id)));
    }
    for (depth, (name, item)) in chain.overlays.iter().enumerate().rev() {
        let typed = item.value.get("operations").map_or(&[][..], |typed| typed.value.entries());
        for (key, item) in typed {
            let key = source.expanded(&key.value).unwrap_or_default();
            let Some((_, operation)) = OPERATIONS.iter().find(|(known, _)| *known == key) else { continue };
            let origin = if depth == 0 { source.place(item.at) } else { format!("profile {name}") };
            let value = match &item.value {
                Value::Scalar(it) => Shown::Scalar(quoted(&it.text)),
                _ => Shown::Scalar("null".to_owned()),
            };
            all.insert(*operation, Entry::new(value, origin));
        }
    }
    let is_offered = |entry: &Entry| entry.value != Shown::Scalar("null".to_owned());
    let offered =
        all.iter().filter(|(_, entry)| is_offered(entry)).map(|(operation, _)| *operation).collect();
    let entries = all.into_iter().map(|(operation, entry)| (operation.as_str().to_owned(), entry)).collect();
    (Entry::new(Shown::Mapping(entries), ""), offered)
}

fn capabilities(chain: &Chain<'_>, offered: &[Operation], source: &Source<'_>) -> Entry {
    let list = |(from, item): (&str, &Item)| {
        let names = item.value.items().iter().filter_map(|item| source.expanded(item.value.text()?));
        let set = names.filter_map(|name| capability::named(&name)).fold(capability::NONE, capability::union);
        let own = chain.overlays.first().is_some_and(|(name, _)| name == from);
        let origin = if own { source.place(item.at) } else { format!("profile {from}") };
        (set, origin)
    };
    let (set, origin): (Capabilities, String) = chain
        .own("capabilities")
        .map_or_else(|| (chain.base.capabilities, format!("profile {}", chain.base.id)), list);
    let set = catalog::supported(set, offered.iter().copied());
    let names = capability::names(set).into_iter().map(|name| Entry::text(&name, ""));
    Entry::new(Shown::List(names.collect()), origin)
}

fn mapping(chain: &Chain<'_>, source: &Source<'_>) -> Entry {
    let mut all: BTreeMap<String, (String, Entry)> = BTreeMap::new();
    for (depth, (name, item)) in chain.overlays.iter().enumerate().rev() {
        let typed = item.value.get("model_mapping").map_or(&[][..], |typed| typed.value.entries());
        for (key, item) in typed {
            let origin = if depth == 0 { source.place(item.at) } else { format!("profile {name}") };
            let Value::Scalar(served) = &item.value else { continue };
            let entry = Entry::new(Shown::Scalar(quoted(&served.text)), origin);
            all.insert(source.expanded(&key.value).unwrap_or_default(), (key.value.clone(), entry));
        }
    }
    let origin = if all.is_empty() { "default" } else { "" };
    Entry::new(Shown::Mapping(all.into_values().collect()), origin)
}

fn text_of(item: &Item) -> String {
    item.value.text().unwrap_or_default().to_owned()
}
