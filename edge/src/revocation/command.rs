//! `iop-edge token revoke`: a line more in the list that a running Edge watches.

use std::{fs, io::Write, path::Path};

use anyhow::Context;

use crate::config::Settings;

/// What became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Revoked {
    /// The list names it now.
    Now,
    /// It did so before.
    Before,
}

/// Adds `token_ref` to the list of a configuration. A running Edge sees it within a second; none has to run.
///
/// # Errors
/// The configuration has no list or no such token, or the list cannot be written.
pub fn revoke(settings: &Settings, token_ref: &str) -> anyhow::Result<Revoked> {
    let Some(path) = &settings.openai.revoked_tokens_file else {
        anyhow::bail!(
            "{} has no openai.revoked_tokens_file: name a file there and restart the Edge once; from then on it watches it",
            settings.source.display()
        );
    };
    let known = || settings.principals.iter().map(|token| &*token.principal.token_ref);
    anyhow::ensure!(
        known().any(|known| known == token_ref),
        "{} has no token with token_ref `{token_ref}`; it has: {}",
        settings.source.display(),
        known().collect::<Vec<_>>().join(", ")
    );
    add(path, token_ref).with_context(|| format!("the list of revoked tokens, {}", path.display()))
}

/// One line at the end, in one write, so that whoever reads meanwhile sees all of it or nothing.
fn add(path: &Path, token_ref: &str) -> anyhow::Result<Revoked> {
    let text = match super::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(error.into()),
    };
    if super::token_refs(&text).any(|known| known == token_ref) {
        return Ok(Revoked::Before);
    }
    let mut file = fs::OpenOptions::new().append(true).create(true).open(path)?;
    let unfinished = !text.is_empty() && !text.ends_with('\n');
    let line = format!("{}{token_ref}\n", if unfinished { "\n" } else { "" });
    file.write_all(line.as_bytes())?;
    file.sync_all()?;
    Ok(Revoked::Now)
}

#[cfg(test)]
mod tests {
    use super::*;

    // req: PTK-1
    #[test]
    fn a_line_is_added_once_and_whole() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("revoked");
        assert_eq!(add(&path, "laptop").unwrap(), Revoked::Now);
        assert_eq!(add(&path, "laptop").unwrap(), Revoked::Before);
        fs::write(&path, "# by hand\nphone").unwrap();
        assert_eq!(add(&path, "laptop").unwrap(), Revoked::Now);
        assert_eq!(fs::read_to_string(&path).unwrap(), "# by hand\nphone\nlaptop\n");
        assert!(add(directory.path(), "laptop").is_err());
    }
}
