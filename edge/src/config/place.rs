//! Values of the configuration file together with where they stand in it.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_saphyr::Location;

/// A position in the configuration file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// Line, from 1; 0 = the value does not stand in the file.
    pub line: u32,
    /// Column in characters, from 1; 0 = unknown.
    pub column: u32,
}

impl Place {
    /// The first character of the file.
    pub const START: Self = Self { line: 1, column: 1 };

    /// Whether the position is known.
    pub fn is_known(self) -> bool {
        self.line != 0
    }
}

impl From<Location> for Place {
    fn from(location: Location) -> Self {
        Self {
            line: u32::try_from(location.line()).unwrap_or(u32::MAX),
            column: u32::try_from(location.column()).unwrap_or(u32::MAX),
        }
    }
}

/// A value and where it was typed. For a value that comes through a YAML alias it is the place of the alias.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Typed<T> {
    /// What was typed.
    pub value: T,
    /// Where.
    pub at: Place,
}

/// As the value alone: a schema knows no places.
impl<T: JsonSchema> JsonSchema for Typed<T> {
    fn inline_schema() -> bool {
        T::inline_schema()
    }

    fn schema_name() -> Cow<'static, str> {
        T::schema_name()
    }

    fn schema_id() -> Cow<'static, str> {
        T::schema_id()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        T::json_schema(generator)
    }
}

/// A mapping with free keys, in the order of the file, each key with its place. Duplicates have been refused.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entries<T>(pub Vec<(Typed<String>, T)>);

impl<T> Entries<T> {
    /// The entries in the order of the file.
    pub fn iter(&self) -> impl Iterator<Item = (&Typed<String>, &T)> {
        self.0.iter().map(|(key, value)| (key, value))
    }
}

impl<T: JsonSchema> JsonSchema for Entries<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("MapOf{}", T::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "object", "additionalProperties": generator.subschema_for::<T>() })
    }
}
