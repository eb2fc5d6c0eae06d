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

use std::{
    collections::BTreeSet,
    fs,
    io::{self, Read},
    os::unix::fs::OpenOptionsExt,
    path::Path,
    sync::Arc,
};

/// Longest list that is read, in bytes.
const FILE_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// What a line begins with that names no token.
pub const COMMENT: char = '#';

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

/// Tells the log what a list revokes, and gives the tokens of this Edge among it. Of the others, another Edge's or mistakes, it
/// tells the number alone: someone may have written a token in the place of its `token_ref`.
#[must_use]
pub fn announce(new: Vec<Arc<str>>, is_known: impl Fn(&str) -> bool) -> Vec<Arc<str>> {
    let (known, unknown): (Vec<_>, Vec<_>) = new.into_iter().partition(|token_ref| is_known(token_ref));
    for token_ref in &known {
        tracing::warn!(%token_ref, "token revoked");
    }
    if !unknown.is_empty() {
        tracing::warn!(
            lines = unknown.len(),
            "the list of revoked tokens names tokens that are not configured here: expected the token_ref of each"
        );
    }
    known
}

/// The lines of a list that name a token: blank ones and those that begin with [`COMMENT`] do not. Some editors put a mark
/// before the first one.
pub fn token_refs(text: &str) -> impl Iterator<Item = &str> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with(COMMENT))
}

/// Reads a list. What is no UTF-8 in it can name no token.
///
/// # Errors
/// It is missing, no file, too long or not to be read.
pub fn read(path: &Path) -> io::Result<String> {
    // Neither opening nor reading waits, whatever comes to stand at the path: a pipe without a writer would end the watch.
    let mut file = fs::OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "expected a file"));
    }
    let mut bytes = Vec::new();
    // It may grow meanwhile.
    Read::by_ref(&mut file).take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        let message = format!("expected at most {FILE_BYTES_MAX} bytes");
        return Err(io::Error::new(io::ErrorKind::InvalidData, message));
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
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
        // Windows' editors begin a file with a mark.
        assert_eq!(new(&mut list, "\u{feff}watch\r\nring\r\n"), ["watch", "ring"]);
        assert!(list.contains("laptop") && !list.contains("lap") && !list.contains("# lost"));
        assert_eq!(list.iter().count(), 5);
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
        for special in ["/dev/zero", "/dev/null", "/proc/self/fd"] {
            assert_eq!(
                read(Path::new(special)).unwrap_err().kind(),
                io::ErrorKind::InvalidInput,
                "{special}"
            );
        }
        // A pipe that nobody writes to holds up nobody.
        let pipe = directory.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        assert_eq!(read(&pipe).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(&link, &link).unwrap();
        assert!(read(&link).is_err());
        fs::File::create(&file).unwrap().set_len(FILE_BYTES_MAX + 1).unwrap();
        assert_eq!(read(&file).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
