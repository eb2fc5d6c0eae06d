//! Which credential a request carries, as a number: requests of different ones never share a connection (TUN-7). Pure, but for a key
//! that each process draws.

use std::{
    hash::{BuildHasher, RandomState},
    sync::LazyLock,
};

use dataplane::http::head::Headers;
use proto::message::Header;

/// Requests without a credential.
pub const NONE: u64 = 0;

/// Nobody outside can find two credentials of one number.
static KEYED: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// The number of an adapter's configured fields: any of them may be a credential. The same fields have the same one, also after a new
/// configuration.
#[must_use]
pub fn of_fields(configured: &Headers) -> u64 {
    if configured.is_empty() {
        return NONE;
    }
    let fields: Vec<(&str, &[u8])> = configured.iter().collect();
    KEYED.hash_one(fields).max(1)
}

/// The number of a request on an adapter of number `configured` that carries its caller's own credential.
#[must_use]
pub fn of_caller(configured: u64, auth: &Header) -> u64 {
    KEYED.hash_one((configured, auth.name.as_str(), auth.value.as_ref())).max(1)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    // req: TUN-7
    #[test]
    fn equal_credentials_have_equal_numbers_and_others_have_others() {
        let fields = |fields: &[(&str, &str)]| {
            let mut configured = Headers::new();
            for (name, value) in fields {
                configured.push(name, value).unwrap();
            }
            of_fields(&configured)
        };
        let auth = |name: &str, value: &str| Header::new(name, value.to_owned()).unwrap();
        assert_eq!(fields(&[]), NONE);
        let configured = [
            fields(&[("authorization", "Bearer a")]),
            fields(&[("authorization", "Bearer b")]),
            fields(&[("authorization", "Bearer "), ("x-b", "")]),
            fields(&[("x-key", "Bearer a")]),
        ];
        let callers = [("authorization", "Bearer a"), ("authorization", "Bearer b"), ("x-key", "Bearer a")]
            .map(|(name, value)| auth(name, value));
        let mut numbers = HashSet::from([NONE]);
        numbers.extend(configured);
        for auth in &callers {
            numbers.extend([NONE, configured[0]].map(|configured| of_caller(configured, auth)));
        }
        assert_eq!(numbers.len(), 1 + configured.len() + 2 * callers.len());
        assert_eq!(fields(&[("authorization", "Bearer a")]), configured[0]);
        assert_eq!(of_caller(NONE, &callers[0]), of_caller(NONE, &auth("authorization", "Bearer a")));
    }
}
