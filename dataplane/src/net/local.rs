//! A Unix socket that only its user can open: where it stands in the file system, and how it comes and goes there.
//!
//! Who may connect is decided by the file's mode. The socket gets it between bind and listen, when nobody can connect yet,
//! so there is no moment at which it is open to others, whatever the umask.

use std::{
    fs::{self, File, Metadata, Permissions, TryLockError},
    io,
    os::{
        linux::fs::MetadataExt,
        unix::{
            fs::{FileTypeExt, PermissionsExt},
            net::UnixListener,
        },
    },
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use socket2::{Domain, SockAddr, Socket, Type};

use super::sys;
use crate::clock;

/// Connections that wait to be accepted: those of one person.
const BACKLOG: i32 = 64;
/// Read and write for the user, nothing for anybody else.
const MODE: u32 = 0o600;
/// Mode bits that let others than the owner replace what is in a directory, unless it is sticky (unlink(2)).
const WRITABLE_BY_OTHERS: u32 = 0o022;
const STICKY: u32 = 0o1000;
/// Between two looks at a socket that somebody holds.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Why there is no socket.
#[derive(Debug, thiserror::Error)]
pub enum LocalError {
    /// The path is longer than a socket's address (108 bytes with its end), or has a zero byte.
    #[error("the path cannot be a socket's address")]
    Path(#[source] io::Error),
    /// The directory is missing or cannot be read.
    #[error("the directory {} cannot be opened", .0.display())]
    Directory(PathBuf, #[source] io::Error),
    /// Everybody may replace what stands in the directory.
    #[error(
        "others may write to the directory {}: expected one that only its user can write to, or a sticky one",
        .0.display()
    )]
    Exposed(PathBuf),
    /// Another process listens there.
    #[error("another process listens on it")]
    InUse,
    /// Something else than a socket stands there; it is left alone.
    #[error("there is something else than a socket, which is left alone")]
    NotASocket,
    /// A socket of another user stands there.
    #[error("the socket there belongs to another user")]
    Foreign,
    /// The kernel refused.
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// A bound Unix socket and its file, which is removed when this is dropped, if it is still the same one.
#[derive(Debug)]
pub struct LocalSocket {
    listener: UnixListener,
    path: PathBuf,
    /// Device and inode.
    file: (u64, u64),
}

impl LocalSocket {
    /// Binds `path` with mode 0600. What a process that is gone has left there is replaced; one that is still there is waited
    /// for until `patience` is over, as the kernel takes a killed process down a moment later. Blocks for so long.
    ///
    /// # Errors
    /// [`LocalError`]; nothing has changed then.
    pub fn bind(path: &Path, patience: Duration) -> Result<Self, LocalError> {
        let address = SockAddr::unix(path).map_err(LocalError::Path)?;
        let until = clock::now() + patience;
        // From here to the end, no other process of ours takes what is not yet listened on for what nobody listens on any more.
        let _alone = lock_directory(path, until)?;
        make_room(path, &address, until)?;
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        socket.bind(&address)?;
        fs::set_permissions(path, Permissions::from_mode(MODE))?;
        socket.listen(BACKLOG)?;
        Ok(Self {
            listener: socket.into(),
            path: path.to_owned(),
            file: identity(&fs::symlink_metadata(path)?),
        })
    }

    /// A second hold on the socket, for [`super::Listener::open_local`].
    ///
    /// # Errors
    /// No descriptors left.
    pub fn listener(&self) -> io::Result<UnixListener> {
        self.listener.try_clone()
    }
}

impl Drop for LocalSocket {
    fn drop(&mut self) {
        let ours = fs::symlink_metadata(&self.path).is_ok_and(|found| identity(&found) == self.file);
        if ours && let Err(error) = fs::remove_file(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "the socket's file cannot be removed");
        }
    }
}

fn identity(file: &Metadata) -> (u64, u64) {
    (file.st_dev(), file.st_ino())
}

/// Holds the directory's lock, which leaves no file behind.
fn lock_directory(path: &Path, until: Instant) -> Result<File, LocalError> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let failed = |error| LocalError::Directory(directory.to_owned(), error);
    let open = File::open(directory).map_err(failed)?;
    let mode = open.metadata().map_err(failed)?.permissions().mode();
    if mode & WRITABLE_BY_OTHERS != 0 && mode & STICKY == 0 {
        return Err(LocalError::Exposed(directory.to_owned()));
    }
    loop {
        match open.try_lock() {
            Ok(()) => return Ok(open),
            Err(TryLockError::WouldBlock) if clock::now() < until => std::thread::park_timeout(LOOK_AGAIN),
            Err(TryLockError::WouldBlock) => return Err(LocalError::InUse),
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
    }
}

/// Removes a socket that nobody listens on.
fn make_room(path: &Path, address: &SockAddr, until: Instant) -> Result<(), LocalError> {
    let found = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        found => found?,
    };
    if !found.file_type().is_socket() {
        return Err(LocalError::NotASocket);
    }
    if found.st_uid() != sys::user() {
        return Err(LocalError::Foreign);
    }
    while is_listened_on(address)? {
        if clock::now() >= until {
            return Err(LocalError::InUse);
        }
        std::thread::park_timeout(LOOK_AGAIN);
    }
    Ok(fs::remove_file(path)?)
}

/// Whether a connection would be taken, or would be if the listener were quicker.
fn is_listened_on(address: &SockAddr) -> io::Result<bool> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    match socket.connect(address) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(false),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(true),
        connected => connected.map(|()| true),
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        os::unix::net::UnixStream,
    };

    use bytes::BytesMut;

    use super::*;
    use crate::net::Listener;

    const NO_WAIT: Duration = Duration::ZERO;

    fn refused(path: &Path) -> LocalError {
        LocalSocket::bind(path, NO_WAIT).expect_err("must be refused")
    }

    #[test]
    fn only_the_user_may_open_it_and_it_goes_with_its_owner() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.sock");
        let socket = LocalSocket::bind(&path, NO_WAIT).unwrap();
        assert_eq!(fs::symlink_metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(UnixStream::connect(&path).is_ok());
        assert!(matches!(refused(&path), LocalError::InUse));
        drop(socket);
        assert!(!path.exists());
    }

    #[test]
    fn what_a_dead_process_left_is_replaced_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.sock");
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        let first = LocalSocket::bind(&path, NO_WAIT).unwrap();

        // What stands there by the time the first one goes is not its own.
        fs::remove_file(&path).unwrap();
        let second = LocalSocket::bind(&path, NO_WAIT).unwrap();
        drop(first);
        assert!(UnixStream::connect(&path).is_ok());
        drop(second);

        fs::write(&path, "precious").unwrap();
        assert!(matches!(refused(&path), LocalError::NotASocket));
        fs::remove_file(&path).unwrap();
        // A link is not followed: what it points to may be anything.
        std::os::unix::fs::symlink(dir.path().join("b.sock"), &path).unwrap();
        assert!(matches!(refused(&path), LocalError::NotASocket));
    }

    #[test]
    fn a_directory_in_which_others_may_replace_it_will_not_do() {
        let dir = tempfile::tempdir().unwrap();
        let open = dir.path().join("open");
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, Permissions::from_mode(0o777)).unwrap();
        assert!(matches!(refused(&open.join("a.sock")), LocalError::Exposed(_)));
        // As /tmp is.
        fs::set_permissions(&open, Permissions::from_mode(0o1777)).unwrap();
        assert!(LocalSocket::bind(&open.join("a.sock"), NO_WAIT).is_ok());
        assert!(matches!(refused(&dir.path().join("none/a.sock")), LocalError::Directory(..)));
        assert!(matches!(refused(&dir.path().join("x".repeat(200))), LocalError::Path(_)));
    }

    #[test]
    fn two_that_begin_at_the_same_time_do_not_take_each_others() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.sock");
        drop(UnixListener::bind(&path).unwrap());
        let start = std::sync::Barrier::new(8);
        let bound: Vec<_> = std::thread::scope(|scope| {
            let begin = || {
                start.wait();
                LocalSocket::bind(&path, Duration::from_millis(200))
            };
            let all: Vec<_> = (0..8).map(|_| scope.spawn(begin)).collect();
            all.into_iter().map(|one| one.join().unwrap()).collect()
        });
        assert_eq!(bound.iter().filter(|bound| bound.is_ok()).count(), 1, "{bound:?}");
        assert!(UnixStream::connect(&path).is_ok());
    }

    #[test]
    fn its_connections_are_streams_like_any_other() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.sock");
        let socket = LocalSocket::bind(&path, NO_WAIT).unwrap();
        let mut client = UnixStream::connect(&path).unwrap();
        client.write_all(b"hello").unwrap();
        let mut runtime =
            monoio::RuntimeBuilder::<monoio::LegacyDriver>::new().enable_timer().build().unwrap();
        runtime.block_on(async {
            let mut listener = Listener::open_local(socket.listener().unwrap()).unwrap();
            let stream = listener.accept().await.unwrap();
            let mut read = BytesMut::new();
            while read.len() < 5 {
                assert!(stream.read_some(&mut read, 64).await.unwrap() > 0);
            }
            assert_eq!(&read[..], b"hello");
            stream.send_all(b"there", Duration::from_secs(5)).await.unwrap();
            stream.shutdown_write();
        });
        let mut told = String::new();
        client.read_to_string(&mut told).unwrap();
        assert_eq!(told, "there");
    }
}
