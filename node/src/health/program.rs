//! Whether a program is there and may be started. Nothing of it is run: what a program would answer it alone knows, and it may cost
//! money to ask.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::atomic::{AtomicUsize, Ordering::SeqCst},
    thread,
};

use dataplane::mailbox;
use rustix::fs::{Access, access};

use super::judge::Reason;

/// Looks at one time that have not ended: a file system that does not answer holds a thread for each.
const LOOKS_MAX: usize = 8;

static LOOKS: AtomicUsize = AtomicUsize::new(0);

struct Look;

impl Look {
    fn begin() -> Option<Self> {
        // Given back by the drop, whatever comes.
        let look = Self;
        (LOOKS.fetch_add(1, SeqCst) < LOOKS_MAX).then_some(look)
    }
}

impl Drop for Look {
    fn drop(&mut self) {
        LOOKS.fetch_sub(1, SeqCst);
    }
}

/// Looks for it on a thread, because file systems block. May be dropped freely.
pub(super) async fn look(path: PathBuf) -> Reason {
    let Some(look) = Look::begin() else { return Reason::Crowded };
    let Ok((sender, mut inbox)) = mailbox::for_shard(1).and_then(|(sender, seed)| Ok((sender, seed.open()?)))
    else {
        return Reason::Odd;
    };
    let started = thread::Builder::new().name("cli-look".to_owned()).spawn(move || {
        let _sent = sender.send(judge(startable(&path)));
        drop(look);
    });
    if started.is_err() {
        return Reason::Odd;
    }
    let mut found = Vec::new();
    inbox.receive(&mut found, 1).await;
    found.pop().unwrap_or(Reason::Odd)
}

fn startable(path: &Path) -> io::Result<()> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    Ok(access(path, Access::EXEC_OK)?)
}

fn judge(found: io::Result<()>) -> Reason {
    match found.map_err(|error| error.kind()) {
        Ok(()) => Reason::Serves,
        Err(io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::PermissionDenied) => {
            Reason::Absent
        }
        Err(_) => Reason::Odd,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use dataplane::shard::{DriverWish, Shard, ShardSpec};

    use super::*;

    // req: STL-11
    #[test]
    fn a_program_is_available_when_it_is_a_file_that_may_be_started() {
        let directory = tempfile::tempdir().unwrap();
        let plain = directory.path().join("plain");
        fs::write(&plain, "#!/bin/sh\n").unwrap();
        fs::set_permissions(&plain, fs::Permissions::from_mode(0o600)).unwrap();
        let cases = [
            (PathBuf::from("/bin/sh"), Reason::Serves),
            (directory.path().join("missing"), Reason::Absent),
            (plain.join("below"), Reason::Absent),
            (directory.path().to_owned(), Reason::Absent),
            (plain, Reason::Absent),
        ];
        let spec = ShardSpec { name: "test".to_owned(), cpu: None, driver: DriverWish::Auto };
        let (sent, found) = std::sync::mpsc::channel();
        let shard = Shard::start(spec, move || async move {
            for (path, reason) in cases {
                sent.send((look(path).await, reason)).unwrap();
            }
        });
        assert!(shard.unwrap().join());
        let found: Vec<_> = found.iter().collect();
        assert_eq!(found.len(), 5);
        for (found, expected) in found {
            assert_eq!(found, expected);
        }
        assert_eq!(judge(Err(io::Error::other("disk"))), Reason::Odd);
    }
}
