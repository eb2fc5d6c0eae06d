//! What is right but surely not meant.

use std::collections::BTreeMap;

use super::{
    models::Groups,
    node::Fleet,
    provider::{Provider, Upstream},
};
use crate::config::{error::LoadError, place::Place};

/// All of them, in the order of the file's sections.
pub(super) fn all(nobody_may_call: bool, openai: Place, fleet: &Fleet, groups: &Groups) -> Vec<LoadError> {
    let mut all = Vec::new();
    if nobody_may_call {
        all.push(LoadError {
            at: openai,
            path: "openai.principal_tokens".to_owned(),
            message: "there are no tokens, so every request is refused; `iop-edge token new` makes one"
                .to_owned(),
        });
    }
    all.extend(groups.idle.iter().map(|(at, path)| LoadError {
        at: *at,
        path: path.clone(),
        message: "every provider of this model is disabled".to_owned(),
    }));
    all.extend(twins(fleet, groups));
    all.extend(doubled(fleet));
    all
}

/// Providers whose address is that of an operation already: every request to them would be a 404. The address may come from the
/// environment, so it is not told.
fn doubled(fleet: &Fleet) -> Vec<LoadError> {
    const OPERATION: &str = "/chat/completions";
    let is_doubled = |provider: &Provider| {
        let Some(Upstream::Tunnel { profile, .. }) = &provider.upstream else { return false };
        profile.operations.iter().any(|operation| operation.url.matches(OPERATION).count() > 1)
    };
    let found = fleet.enabled_providers().filter(|(provider, _)| is_doubled(provider));
    found
        .map(|(provider, path)| LoadError {
            at: provider.at,
            path: format!("{path}.base_url"),
            message: format!(
                "the address ends in {OPERATION}, which is added to it once more: write it without"
            ),
        })
        .collect()
}

/// Providers that health evidence cannot tell apart: it names adapter and target alone (CAP-4).
fn twins(fleet: &Fleet, groups: &Groups) -> Vec<LoadError> {
    // By Node, adapter and target: the first provider that was seen.
    let mut first: BTreeMap<(usize, &str, &str), usize> = BTreeMap::new();
    let mut told = BTreeMap::new();
    for member in groups.groups.iter().flat_map(|group| &group.members) {
        let Some((node, position, provider)) = fleet.locate(&member.provider) else { continue };
        let other = *first.entry((node, &provider.adapter_name, &member.target)).or_insert(position);
        if other == position {
            continue;
        }
        let (earlier, later) = (other.min(position), other.max(position));
        let (Some(one), Some(two)) = (fleet.at(node, earlier), fleet.at(node, later)) else { continue };
        let message = format!(
            "providers[{earlier}] of this node serves `{}` on adapter `{}` too: what the node finds out about the health of one may be meant for the other, and a probe brings back neither",
            member.target, one.adapter_name
        );
        let path = format!("nodes[{node}].providers[{later}]");
        told.entry((node, later)).or_insert(LoadError { at: two.at, path, message });
    }
    told.into_values().collect()
}
