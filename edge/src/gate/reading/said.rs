//! What a provider says of its failure, in whichever of the forms that servers have (api.md sections 1.6 and 3).

use serde_json::value::RawValue;

use super::json::{is_empty, members, members_of, text};

/// Bytes of the words that are kept at most.
const WORDS_BYTES_MAX: usize = 1024;
/// Bytes of a type or a code that are kept at most.
const NAME_BYTES_MAX: usize = 64;

/// A failure, in the provider's words. They may quote the request: nothing of it belongs into a log or a label.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Said {
    /// Its `type`, or what stands for it.
    pub kind: Option<String>,
    /// Its `code`: a word or a number.
    pub code: Option<String>,
    /// Its words, cut to 1 KiB.
    pub message: String,
}

impl Said {
    /// Of the data of an event that is known to be one of failure. What is no JSON is words.
    pub(super) fn of_event(data: &str) -> Self {
        let mut said = Self::default();
        let mut inner = None;
        match members(data, |key, value| said.member(key, value, &mut inner)) {
            Ok(true) => said.with(inner),
            _ => Self { message: cut(data.to_owned(), WORDS_BYTES_MAX), ..Self::default() },
        }
    }

    /// Of a whole answer, if it is an error: by a member of its own, or flat.
    #[must_use]
    pub fn of_body(body: &str) -> Option<Self> {
        let (mut inner, mut is_error) = (None, false);
        let mut said = Self::default();
        let is_object = members(body, |key, value| {
            is_error |= match key {
                "error" | "detail" => !is_empty(value),
                "object" | "type" => value.get() == "\"error\"",
                _ => false,
            };
            said.member(key, value, &mut inner);
        });
        (is_object == Ok(true) && is_error).then(|| said.with(inner))
    }

    /// Of a member that tells of a failure.
    pub(super) fn of(error: &RawValue) -> Self {
        Self::default().with(Some(error))
    }

    /// Where there is an error within, what that says counts first.
    fn with(self, inner: Option<&RawValue>) -> Self {
        let Some(error) = inner else { return self };
        let (mut said, mut deeper) = (Self::default(), None);
        if !members_of(error, |key, value| said.member(key, value, &mut deeper)) {
            said.message = text(error).map(|words| cut(words, WORDS_BYTES_MAX)).unwrap_or_default();
        }
        Self {
            kind: said.kind.or(self.kind),
            code: said.code.or(self.code),
            message: if said.message.is_empty() { self.message } else { said.message },
        }
    }

    fn member<'a>(&mut self, key: &str, value: &'a RawValue, inner: &mut Option<&'a RawValue>) {
        if is_empty(value) {
            return;
        }
        match key {
            "error" => *inner = Some(value),
            // An envelope's own type is the word `error`.
            "type" => self.kind = word(value).filter(|kind| kind != "error"),
            // Google's word for the type.
            "status" if self.kind.is_none() => self.kind = word(value),
            "code" => self.code = word(value),
            "status_code" if self.code.is_none() => self.code = word(value),
            "message" | "detail" => {
                let words = text(value).unwrap_or_else(|| value.get().to_owned());
                self.message = cut(words, WORDS_BYTES_MAX);
            }
            _ => {}
        }
    }
}

/// A string or a number, as text.
fn word(value: &RawValue) -> Option<String> {
    let is_number = value.get().starts_with(|first: char| first.is_ascii_digit());
    let word = text(value).or_else(|| is_number.then(|| value.get().to_owned()))?;
    Some(cut(word, NAME_BYTES_MAX))
}

fn cut(mut words: String, bytes_max: usize) -> String {
    let end = (0..=bytes_max.min(words.len())).rev().find(|at| words.is_char_boundary(*at));
    words.truncate(end.unwrap_or_default());
    words
}
