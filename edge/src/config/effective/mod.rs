//! The configuration as it counts: every default filled in, earlier forms written in today's, each value with its origin. The
//! result is YAML that loads again and means the same (`iop-edge config show --effective`).
//!
//! ```text
//!  tree ──fill──► every key of the table ──derive──► what depends on other values ──► YAML
//! ```
//!
//! A text with `${NAME}` is shown as it was typed: what the environment holds is told to nobody, and loads again as before.

mod derive;
mod fill;
mod profiles;
mod yaml;

use std::path::Path;

use self::{fill::Filler, yaml::Entry};
use super::{LoadError, LoadErrors, Settings, load_text, parse, tree::Item};

/// The effective configuration of a text.
#[derive(Clone, Debug)]
pub struct Effective {
    root: Entry,
    file: String,
}

/// What filling in needs of the file.
struct Source<'a> {
    root: &'a Item,
    settings: &'a Settings,
    env: &'a dyn Fn(&str) -> Option<String>,
    /// Its name, for origins.
    file: &'a str,
}

impl Effective {
    /// As [`super::load_text`], but to be shown.
    ///
    /// # Errors
    /// As [`super::load`]: a file that does not load has no effective configuration.
    pub fn of_text(
        text: &str,
        path: &Path,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, LoadErrors> {
        let settings = load_text(text, path, env)?;
        let whole = |error: LoadError| LoadErrors { file: path.to_owned(), errors: vec![error], dropped: 0 };
        let tree = parse::tree(text).map_err(whole)?;
        let file = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        let source = Source { root: &tree, settings: &settings, env, file: &file };
        let mut root = Filler::new(&source).file();
        derive::all(&mut root, &source);
        Ok(Self { root, file })
    }

    /// As YAML with the origin of each value behind it.
    #[must_use]
    pub fn with_origins(&self) -> String {
        format!(
            "# The effective configuration of {}. It loads again as it stands; a value ${{MASKED_…}} is a secret of the file, which is\n\
             # not shown: put it into the environment under that name.\n{}",
            self.file.replace(char::is_control, ""),
            self.root.write(true)
        )
    }

    /// As YAML without a comment.
    #[must_use]
    pub fn values(&self) -> String {
        self.root.write(false)
    }
}
