//! Revoked tokens (PTK-1): a file of `token_ref`s that is watched, so that a token ends without a restart.
//!
//! ```text
//!  file ──watch thread──► List ──new ones──► every shard: Permits ──► requests of that token end
//! ```
//!
//! A revocation is for good: a line that leaves the file changes nothing before the next start, so that a file that is half
//! written, or gone, gives no token back.

pub mod command;
pub mod permits;
pub mod watch;

use std::{collections::BTreeSet, fs, io, path::Path, sync::Arc};

/// Longest list that is read, in bytes.
const FILE_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// Every token that was revoked so far, by its `token_ref`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct List(BTreeSet<Arc<str>>);

impl List {
    /// Takes what a file says now; gives the tokens that it revokes and that were not revoked before.
    pub fn absorb(&mut self, text: &str) -> Vec<Arc<str>> {
        let mut new = Vec::new();
        for token_ref in token_refs(text) {
            if !self.0.contains(token_ref) {
                let token_ref: Arc<str> = token_ref.into();
                self.0.insert(Arc::clone(&token_ref));
                new.push(token_ref);
            }
        }
        new
    }

    /// Whether a token is revoked.
    #[must_use]
    pub fn contains(&self, token_ref: &str) -> bool {
        self.0.contains(token_ref)
    }

    /// All of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<str>> {
        self.0.iter()
    }
}

/// The lines of a list that name a token: blank ones and those that begin with `#` do not.
pub fn token_refs(text: &str) -> impl Iterator<Item = &str> {
    text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'))
}

/// Reads a list. What is no UTF-8 in it can name no token.
///
/// # Errors
/// It is missing, no file, too long or not to be read.
pub fn read(path: &Path) -> io::Result<String> {
    let found = fs::metadata(path)?;
    if !found.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "expected a file"));
    }
    if found.len() > FILE_BYTES_MAX {
        let message = format!("expected at most {FILE_BYTES_MAX} bytes");
        return Err(io::Error::new(io::ErrorKind::InvalidData, message));
    }
    Ok(String::from_utf8_lossy(&fs::read(path)?).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    // req: PTK-1
    #[test]
    fn a_list_only_grows_and_tells_what_is_new() {
        let mut list = List::default();
        let new = |list: &mut List, text: &str| {
            list.absorb(text).iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(new(&mut list, "# lost\r\n laptop \n\n\tphone\n"), ["laptop", "phone"]);
        assert_eq!(new(&mut list, "phone\nlaptop\nlaptop\ntablet"), ["tablet"]);
        // A file that is emptied, or being written, gives nothing back.
        assert!(new(&mut list, "").is_empty());
        assert!(list.contains("laptop") && !list.contains("lap") && !list.contains("# lost"));
        assert_eq!(list.iter().count(), 3);
    }

    #[test]
    fn what_is_no_list_is_an_error_and_not_an_empty_one() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("revoked");
        assert_eq!(read(&file).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(read(directory.path()).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        fs::write(&file, b"a\n\xff\xfe\nb\n").unwrap();
        let text = read(&file).unwrap();
        assert!(token_refs(&text).any(|token_ref| token_ref == "b"));
        fs::File::create(&file).unwrap().set_len(FILE_BYTES_MAX + 1).unwrap();
        assert_eq!(read(&file).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
