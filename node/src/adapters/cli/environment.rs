//! What a program finds around it: the same whoever asks (FRB-3, RUN-7). Pure.

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
};

/// Where a program runs: a directory that is there on every machine, and nobody's.
pub const DIRECTORY: &str = "/";
/// Variables of the Node that a program gets: what it takes to find programs, its user's files, a place for temporary ones, and the
/// language. All others stay here, the Node's token above all.
pub const INHERITED: [&str; 7] = ["PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TMPDIR", "TZ"];

/// The environment of a program: [`INHERITED`] as `own` has it, and what is configured, which wins.
pub fn environment(
    own: impl Fn(&str) -> Option<OsString>,
    configured: &BTreeMap<String, String>,
) -> BTreeMap<OsString, OsString> {
    let inherited = INHERITED.iter().filter_map(|name| Some((OsString::from(name), own(name)?)));
    let configured = configured.iter().map(|(name, value)| (name.into(), value.into()));
    inherited.chain(configured).collect()
}

/// Whether a system takes this as the name of a variable.
#[must_use]
pub fn is_name(name: &str) -> bool {
    !name.is_empty() && !name.contains(['=', '\0'])
}

/// Whether a system takes this as an argument or a value.
#[must_use]
pub fn is_value(value: &str) -> bool {
    !OsStr::new(value).as_encoded_bytes().contains(&0)
}

#[cfg(test)]
mod tests {
    use super::*;

    // req: FRB-3
    #[test]
    fn a_program_gets_a_few_variables_of_the_node_and_what_is_configured() {
        let own = |name: &str| match name {
            "PATH" => Some("/bin".into()),
            "HOME" => Some("/root".into()),
            "TZ" => None,
            _ => Some(OsString::from("sentinel")),
        };
        let configured =
            BTreeMap::from([("HOME".to_owned(), "/srv".to_owned()), ("KEY".to_owned(), "k".to_owned())]);
        let found = environment(own, &configured);
        let found: Vec<_> =
            found.iter().map(|(name, value)| format!("{}={}", name.display(), value.display())).collect();
        let expected = [
            "HOME=/srv",
            "KEY=k",
            "LANG=sentinel",
            "LC_ALL=sentinel",
            "LC_CTYPE=sentinel",
            "PATH=/bin",
            "TMPDIR=sentinel",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn names_and_values_that_no_system_takes_are_known() {
        assert!(is_name("A_1") && !is_name("") && !is_name("A=B") && !is_name("A\0"));
        assert!(is_value("") && is_value("a=b \n") && !is_value("a\0"));
    }
}
