//! Whether a file is another one than before, told without reading it.

use std::{fs, io, os::unix::fs::MetadataExt, path::Path};

/// A file that was changed so short a time ago is read again: a second change may leave the same marks.
const UNSETTLED_SECONDS: i64 = 3;

/// What tells that a file is another one than before. Links are followed, so a replaced link is a change too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marks {
    inode: (u64, u64),
    length: u64,
    changed: (i64, i64),
}

impl Marks {
    /// The file's marks now.
    ///
    /// # Errors
    /// It is not there, or cannot be reached.
    pub fn of(path: &Path) -> io::Result<Self> {
        let found = fs::metadata(path)?;
        Ok(Self {
            inode: (found.dev(), found.ino()),
            length: found.len(),
            changed: (found.ctime(), found.ctime_nsec()),
        })
    }

    /// Whether a later change is sure to leave others; `now` in seconds since 1970.
    #[must_use]
    pub fn are_settled(&self, now: u64) -> bool {
        i64::try_from(now).is_ok_and(|now| now.saturating_sub(self.changed.0) > UNSETTLED_SECONDS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_settle_a_while_after_the_change() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        fs::write(&path, "").unwrap();
        let marks = Marks::of(&path).unwrap();
        assert_eq!(Marks::of(&path).unwrap(), marks);
        let changed = u64::try_from(marks.changed.0).unwrap();
        assert!(
            !marks.are_settled(changed) && !marks.are_settled(changed + 3) && marks.are_settled(changed + 4)
        );
        // A clock that was set back settles nothing.
        assert!(!marks.are_settled(changed - 100));
    }
}
