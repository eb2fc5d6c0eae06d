//! Keys of the contract whose feature a later release brings: accepted at their off value, refused when they ask
//! for something. Whoever builds a feature deletes its line here, and nothing else has to know.

use super::{
    error::Report,
    place::{Entries, Place, Typed},
    typed::{EdgeFile, Opt, Switch},
};

/// A place that asks for a feature.
type Asked = (Place, String);

/// One feature that is not there yet.
struct Unavailable {
    /// What it is, for people.
    feature: &'static str,
    /// What to write instead.
    instead: &'static str,
    /// Where the file asks for it.
    asked: fn(&EdgeFile) -> Vec<Asked>,
}

/// The one list.
const TABLE: &[Unavailable] = &[
    Unavailable {
        feature: "a certificate revocation list",
        instead: "take it away; a Node is shut out by taking its entry under `nodes` away",
        asked: |file| {
            let identity = file.identity.as_ref();
            one(identity.and_then(|identity| text(identity.value.crl_file.as_ref(), "identity.crl_file")))
        },
    },
    Unavailable {
        feature: "the console",
        instead: "`iop-edge status` shows a running Edge; write `enabled: false`",
        asked: |file| one(switch(file.console.as_ref(), "console.enabled")),
    },
    Unavailable {
        feature: "the control plane",
        instead: "write `enabled: false`",
        asked: |file| one(switch(file.control_plane.as_ref(), "control_plane.enabled")),
    },
    Unavailable {
        feature: "the A2A surface",
        instead: "write `enabled: false`",
        asked: |file| one(switch(file.a2a.as_ref(), "a2a.enabled")),
    },
    Unavailable {
        feature: "authentication at the provider by profile",
        instead: "take it away; clients can bring their credential (openai.provider_auth)",
        asked: |file| {
            in_profiles(file, "auth", |profile| {
                let auth = profile.auth.as_ref()?;
                let asks = |key: &Opt<String>| key.as_ref().is_some_and(|key| !key.value.is_empty());
                (asks(&auth.value.header) || asks(&auth.value.scheme)).then_some(auth.at)
            })
        },
    },
    Unavailable {
        feature: "profile extensions",
        instead: "take them away",
        asked: |file| in_profiles(file, "extensions", |profile| entries(&profile.extensions)),
    },
];

/// Notes every key that asks for a feature that is not there yet.
pub(super) fn check(file: &EdgeFile, report: &mut Report) {
    for line in TABLE {
        for (at, path) in (line.asked)(file) {
            let (feature, instead) = (line.feature, line.instead);
            report.add(at, path, format!("{feature} is not available in this release: {instead}"));
        }
    }
}

fn one(asked: Option<Asked>) -> Vec<Asked> {
    asked.into_iter().collect()
}

fn text(key: Option<&Typed<String>>, path: &str) -> Option<Asked> {
    key.filter(|text| !text.value.is_empty()).map(|text| (text.at, path.to_owned()))
}

fn on(key: Option<&Typed<bool>>, path: &str) -> Option<Asked> {
    key.filter(|enabled| enabled.value).map(|enabled| (enabled.at, path.to_owned()))
}

fn switch(section: Option<&Typed<Switch>>, path: &str) -> Option<Asked> {
    on(section?.value.enabled.as_ref(), path)
}

fn entries<T>(mapping: &Opt<Entries<T>>) -> Option<Place> {
    mapping.as_ref().filter(|mapping| !mapping.value.0.is_empty()).map(|mapping| mapping.at)
}

fn in_profiles(file: &EdgeFile, key: &str, asked: fn(&super::typed::Profile) -> Option<Place>) -> Vec<Asked> {
    let profiles = file.protocol_profiles.iter().flat_map(|profiles| profiles.value.iter());
    profiles
        .filter_map(|(name, profile)| {
            Some((asked(&profile.value)?, format!("protocol_profiles.{}.{key}", name.value)))
        })
        .collect()
}
