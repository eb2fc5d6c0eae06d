//! Values of the configuration file together with where they stand in it.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_saphyr::{Location, Spanned};

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

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Typed<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = Spanned::<T>::deserialize(deserializer)?;
        Ok(Self { value: spanned.value, at: spanned.referenced.into() })
    }
}

/// A mapping with free keys, in the order of the file, each key with its place. The YAML reader has refused duplicates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entries<T>(pub Vec<(Typed<String>, T)>);

impl<T> Entries<T> {
    /// The entries in the order of the file.
    pub fn iter(&self) -> impl Iterator<Item = (&Typed<String>, &T)> {
        self.0.iter().map(|(key, value)| (key, value))
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Entries<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct EntriesVisitor<T>(std::marker::PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for EntriesVisitor<T> {
            type Value = Entries<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a mapping")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Entries(entries))
            }
        }

        deserializer.deserialize_map(EntriesVisitor(std::marker::PhantomData))
    }
}
