//! `${NAME}` in string values: hosts and secrets come from the environment, not from the file (CFG-1).
//!
//! `$${` stands for a literal `${`. Any other `$` stands for itself. A value that was put in is not looked at again.

use std::borrow::Cow;

use thiserror::Error;

/// Why a text cannot be expanded.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ExpandError {
    /// The variable is not set.
    #[error("the environment variable {0} is not set")]
    Unset(String),
    /// Not the form `${NAME}`.
    #[error(
        "expected ${{NAME}} with a name of letters, digits and underscores; a literal ${{ is written $${{"
    )]
    Malformed,
}

/// `text` with every `${NAME}` replaced by `env(NAME)`.
///
/// # Errors
/// [`ExpandError`] for a variable that is not set and for an unclosed or misnamed `${`.
pub fn expand<'a>(text: &'a str, env: &dyn Fn(&str) -> Option<String>) -> Result<Cow<'a, str>, ExpandError> {
    if !text.contains("${") {
        return Ok(Cow::Borrowed(text));
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        if let Some(before) = before.strip_suffix('$') {
            out.push_str(before);
            out.push_str("${");
            rest = after;
            continue;
        }
        out.push_str(before);
        let (name, after) = after.split_once('}').ok_or(ExpandError::Malformed)?;
        if !is_name(name) {
            return Err(ExpandError::Malformed);
        }
        out.push_str(&env(name).ok_or_else(|| ExpandError::Unset(name.to_owned()))?);
        rest = after;
    }
    out.push_str(rest);
    Ok(Cow::Owned(out))
}

/// `text` so that [`expand`] gives it back.
pub(super) fn escape(text: &str) -> String {
    text.replace("${", "$${")
}

fn is_name(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with(|first: char| first.is_ascii_digit())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env(name: &str) -> Option<String> {
        match name {
            "HOST" => Some("10.0.0.7".to_owned()),
            "TRICK" => Some("${HOST}".to_owned()),
            "EMPTY" => Some(String::new()),
            _ => None,
        }
    }

    #[test]
    fn names_are_replaced_once_and_escapes_kept() {
        for (text, expanded) in [
            ("plain $5 and $", "plain $5 and $"),
            ("http://${HOST}:8000", "http://10.0.0.7:8000"),
            ("${HOST}${HOST}", "10.0.0.710.0.0.7"),
            ("a${EMPTY}b", "ab"),
            ("${TRICK}", "${HOST}"),
            ("$${HOST}", "${HOST}"),
        ] {
            assert_eq!(expand(text, &env).as_deref(), Ok(expanded), "{text}");
        }
    }

    #[test]
    fn unset_and_malformed_names_are_refused() {
        assert_eq!(expand("${NOPE}", &env), Err(ExpandError::Unset("NOPE".to_owned())));
        for text in ["${", "${}", "${HOST", "${1A}", "${A B}", "${HOST:-x}"] {
            assert_eq!(expand(text, &env), Err(ExpandError::Malformed), "{text}");
        }
    }
}
