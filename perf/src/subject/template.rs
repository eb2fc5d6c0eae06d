//! Filling in `@name@` in a subject's commands and files.

use std::collections::BTreeMap;

/// Why a text could not be filled in.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// Nothing has that name.
    #[error("@{0}@ is not known here")]
    Unknown(String),
    /// No port was free.
    #[error("no free port was found")]
    NoPort,
}

/// What the names stand for.
#[derive(Debug, Clone, Default)]
pub struct Template {
    values: BTreeMap<String, String>,
}

impl Template {
    /// Gives `name` a value.
    pub fn set(&mut self, name: &str, value: impl Into<String>) {
        self.values.insert(name.to_owned(), value.into());
    }

    /// `text` with every `@name@` replaced. `@port:NAME@` becomes what `free_port` gives, once per name. An `@` that
    /// begins no name stays.
    ///
    /// # Errors
    /// A name without a value.
    pub fn fill(
        &mut self,
        text: &str,
        mut free_port: impl FnMut() -> Option<u16>,
    ) -> Result<String, TemplateError> {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('@') {
            out.push_str(before);
            let end = after.find('@').filter(|&end| is_name(after.get(..end).unwrap_or_default()));
            let Some(end) = end else {
                out.push('@');
                rest = after;
                continue;
            };
            let (name, behind) = after.split_at(end);
            if name.starts_with("port:") && !self.values.contains_key(name) {
                let port = free_port().ok_or(TemplateError::NoPort)?;
                self.set(name, port.to_string());
            }
            let value = self.values.get(name).ok_or_else(|| TemplateError::Unknown(name.to_owned()))?;
            out.push_str(value);
            rest = behind.get(1..).unwrap_or_default();
        }
        out.push_str(rest);
        Ok(out)
    }
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, ':' | '_' | '-'))
}

/// The word that follows `marker` in `text`: up to white space, a quotation mark or a comma.
#[must_use]
pub fn word_after<'a>(text: &'a str, marker: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(marker)?;
    let end = rest.find(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | ',')).unwrap_or(rest.len());
    rest.get(..end).filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_replaced_and_other_at_signs_stay() {
        let mut template = Template::default();
        template.set("dir", "/tmp/x");
        let fill = |template: &mut Template, text: &str| template.fill(text, || None);
        assert_eq!(fill(&mut template, "@dir@/a @ b a@b.c @dir@").unwrap(), "/tmp/x/a @ b a@b.c /tmp/x");
        assert_eq!(fill(&mut template, "@nobody@"), Err(TemplateError::Unknown("nobody".to_owned())));
        assert_eq!(fill(&mut template, "@port:a@"), Err(TemplateError::NoPort));
    }

    #[test]
    fn a_named_port_is_the_same_wherever_it_appears() {
        let (mut template, mut next) = (Template::default(), 9000);
        let mut free = || {
            next += 1;
            Some(next)
        };
        assert_eq!(template.fill("@port:a@ @port:b@ @port:a@", &mut free).unwrap(), "9001 9002 9001");
        assert_eq!(template.fill("@port:b@", &mut free).unwrap(), "9002");
    }

    #[test]
    fn a_word_is_taken_from_behind_its_marker() {
        let text = "iop_abc\n\n- { token_hash: \"12ab\", x: 1 }\nlast";
        assert_eq!(word_after(text, ""), Some("iop_abc"));
        assert_eq!(word_after(text, "token_hash: \""), Some("12ab"));
        assert_eq!(word_after(text, "x: "), Some("1"));
        assert_eq!(word_after(text, "\nlas"), Some("t"));
        assert_eq!(word_after(text, "none"), None);
        assert_eq!(word_after(text, "last"), None);
    }
}
