//! Why a request cannot be run, for its 400.

use std::borrow::Cow;

use crate::reply::Fault;

/// Longest detail that is told, in characters.
const DETAIL_CHARS_MAX: usize = 512;

/// What is wrong with one member of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputError {
    /// Path of the member, as in `messages[0].content[1].image_url`; empty for the whole body.
    pub param: String,
    /// What is wrong with it: lower case, no full stop.
    pub detail: Cow<'static, str>,
}

/// What was read, or the first member that is wrong.
pub type Checked<T> = Result<T, InputError>;

/// The member at `param` is wrong.
///
/// # Errors
/// Always.
pub fn wrong<T>(param: impl Into<String>, detail: impl Into<Cow<'static, str>>) -> Checked<T> {
    Err(InputError { param: param.into(), detail: detail.into() })
}

/// A word of the client's, short enough to be told back.
#[must_use]
pub fn quoted(word: &str) -> String {
    let shown: String = word.chars().take(64).collect();
    format!("`{shown}`")
}

impl From<InputError> for Fault {
    fn from(error: InputError) -> Self {
        let param = Some(error.param).filter(|param| !param.is_empty());
        let detail = shortened(error.detail);
        let detail = match &param {
            Some(param) => format!("`{param}`: {detail}").into(),
            None => detail,
        };
        Self::BadJson { detail, param: param.map(Cow::Owned) }
    }
}

/// What a reader of JSON says repeats the value that it did not expect, all of it.
fn shortened(detail: Cow<'static, str>) -> Cow<'static, str> {
    match detail.char_indices().nth(DETAIL_CHARS_MAX) {
        Some((end, _)) => format!("{}…", detail.get(..end).unwrap_or_default()).into(),
        None => detail,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistake_is_told_in_a_sentence_however_long_it_is() {
        let long = InputError { param: "a".to_owned(), detail: "é".repeat(1 << 20).into() };
        let Fault::BadJson { detail, .. } = Fault::from(long) else { panic!("a 400") };
        assert_eq!(detail.chars().count(), "`a`: ".len() + DETAIL_CHARS_MAX + 1);
    }
}
