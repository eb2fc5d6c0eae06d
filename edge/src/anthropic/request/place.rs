//! Where in a request a value stands.

use std::fmt;

/// A path that is written out only where it is told.
#[derive(Clone, Copy, Debug)]
pub(in crate::anthropic) enum Place<'a> {
    /// A member of the request.
    Top(&'static str),
    /// A member of what stands there.
    Key(&'a Self, &'static str),
    /// An item of the list that stands there.
    Item(&'a Self, usize),
}

impl<'a> Place<'a> {
    pub(super) fn key(&'a self, key: &'static str) -> Self {
        Self::Key(self, key)
    }

    pub(super) fn item(&'a self, at: usize) -> Self {
        Self::Item(self, at)
    }
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Top(key) => f.write_str(key),
            Self::Key(of, key) => write!(f, "{of}.{key}"),
            Self::Item(of, at) => write!(f, "{of}[{at}]"),
        }
    }
}
