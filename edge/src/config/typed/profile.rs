//! Keys of `protocol_profiles`.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator};

use super::{List, Opt};
use crate::config::{
    place::{Entries, Typed},
    shape::{Reader, Shape, section},
    tree::Item,
};

section! {
    /// An overlay over a built-in profile or another overlay.
    pub struct Profile {
        /// The profile that is extended.
        #[schemars(extend("x-required" = true))]
        pub base: Opt<String>,
        /// What the server speaks.
        #[schemars(extend(
            "x-default" = "of the base",
            "x-words" = ["openai_chat", "openai_responses", "anthropic_messages"]
        ))]
        pub driver: Opt<String>,
        /// Address. A `/v1` at its end is not doubled.
        #[schemars(extend("x-default" = "of the base", "x-kind" = "URL"))]
        pub base_url: Opt<String>,
        /// Path or whole URL for `models`, `chat_completions`, `messages`, `count_tokens`, `responses`; an empty value takes the
        /// operation away.
        #[schemars(extend("x-default" = "of the base"))]
        pub operations: Opt<Entries<Opt<String>>>,
        /// The header that a managed credential is put in. Later release.
        pub auth: Opt<Auth>,
        /// Of `models`, `chat`, `messages`, `responses`, `streaming`, `tool_calling`, `count_tokens`.
        #[schemars(extend("x-default" = "of the base"))]
        pub capabilities: List<String>,
        /// What clients ask for → what the server calls it; added to the base's.
        #[schemars(extend("x-default" = "of the base"))]
        pub model_mapping: Opt<Entries<Typed<String>>>,
        /// Later release.
        #[schemars(extend("default" = {}))]
        pub extensions: Opt<Entries<Anything>>,
    }
}

section! {
    /// The header that a managed credential is put in. Later release.
    pub struct Auth {
        /// Its name. Later release.
        #[schemars(extend("default" = "", "x-kind" = "header name"))]
        pub header: Opt<String>,
        /// Word in front of the credential. Later release.
        #[schemars(extend("default" = ""))]
        pub scheme: Opt<String>,
    }
}

/// A value of any kind, which nobody looks at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Anything;

impl Shape for Anything {
    fn read(_: &Item, _: &mut Reader<'_>) -> Option<Self> {
        Some(Self)
    }
}

impl JsonSchema for Anything {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Anything".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        true.into()
    }
}
