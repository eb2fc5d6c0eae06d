//! The directory, and writing files that nobody else reads or overwrites.
//!
//! A file appears whole or not at all: its bytes go to a temporary file of the same directory, made for this purpose and
//! with its final mode, are synced, and then get their name with a call that fails if the name is taken.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use dataplane::tls::pem::{self, PemError};
use proto::identity::{Name, NameError, Role, TrustDomain, TrustDomainError};
use serde::Deserialize;
use thiserror::Error;

use super::bundle::{Address, AddressError};

/// Mode of private keys and of whatever holds one: nobody but the owner.
pub const SECRET_MODE: u32 = 0o600;
/// Mode of certificates.
pub const PUBLIC_MODE: u32 = 0o644;
/// Mode of a directory that `pki init` makes.
const DIRECTORY_MODE: u32 = 0o700;

/// Why a file of the PKI cannot be read or written.
#[derive(Debug, Error)]
pub enum StoreError {
    /// There is a file of that name; nothing is ever overwritten.
    #[error("{} exists already and is not overwritten; move it away or choose another name", .0.display())]
    Exists(PathBuf),
    /// A file that should be there.
    #[error("cannot read {}", .path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: PemError,
    },
    /// `pki.yaml` does not hold what `pki init` writes.
    #[error("{} is not a file that pki init has written", .path.display())]
    Settings {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: SettingsError,
    },
    /// A file or directory cannot be made.
    #[error("cannot write {}", .path.display())]
    Write {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// Why the text of `pki.yaml` cannot be used.
#[derive(Debug, Error)]
pub enum SettingsError {
    /// No YAML, or not of these keys.
    #[error("malformed")]
    Yaml(#[source] Box<serde_saphyr::Error>),
    /// The Edge's name.
    #[error("edge is no workload name")]
    Edge(#[source] NameError),
    /// The trust domain.
    #[error("trust_domain is no trust domain")]
    TrustDomain(#[source] TrustDomainError),
    /// The address.
    #[error("advertise is no address")]
    Advertise(#[source] AddressError),
}

/// What `pki init` was told, kept for later certificates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Name of the Edge.
    pub edge: Name,
    /// Trust domain of every workload.
    pub trust_domain: TrustDomain,
    /// Where Nodes dial.
    pub advertise: Option<Address>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawSettings {
    edge: String,
    trust_domain: String,
    #[serde(default)]
    advertise: String,
}

impl Settings {
    /// The text of `pki.yaml`.
    #[must_use]
    pub fn to_yaml(&self) -> String {
        // Quoted: a name may look like a number or a truth value. The alphabets hold nothing that needs an escape.
        let advertise = self.advertise.as_ref().map(Address::as_str).unwrap_or_default();
        let (edge, trust_domain) = (&self.edge, &self.trust_domain);
        format!(
            "# Written by iop-edge pki init, read by iop-edge pki issue.\n\
             edge: \"{edge}\"\ntrust_domain: \"{trust_domain}\"\nadvertise: \"{advertise}\"\n"
        )
    }

    /// Reads what [`to_yaml`](Self::to_yaml) writes.
    ///
    /// # Errors
    /// [`SettingsError`].
    pub fn from_yaml(text: &str) -> Result<Self, SettingsError> {
        let raw: RawSettings =
            serde_saphyr::from_str(text).map_err(|error| SettingsError::Yaml(Box::new(error)))?;
        let advertise = match raw.advertise.as_str() {
            "" => None,
            address => Some(address.parse().map_err(SettingsError::Advertise)?),
        };
        Ok(Self {
            edge: raw.edge.parse().map_err(SettingsError::Edge)?,
            trust_domain: raw.trust_domain.parse().map_err(SettingsError::TrustDomain)?,
            advertise,
        })
    }
}

/// The directory that `pki init` makes.
#[derive(Clone, Debug)]
pub struct Directory(PathBuf);

impl Directory {
    /// A directory, not looked at yet.
    #[must_use]
    pub const fn new(path: PathBuf) -> Self {
        Self(path)
    }

    /// Makes the directory, and those above it, for the owner only, if it is not there.
    ///
    /// # Errors
    /// [`StoreError::Write`].
    pub fn create(&self) -> Result<(), StoreError> {
        let made = DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(&self.0);
        made.map_err(|source| StoreError::Write { path: self.0.clone(), source })
    }

    /// `edge-ca.crt` or `node-ca.crt`.
    #[must_use]
    pub fn ca_certificate(&self, role: Role) -> PathBuf {
        self.0.join(format!("{role}-ca.crt"))
    }

    /// `edge-ca.key` or `node-ca.key`.
    #[must_use]
    pub fn ca_key(&self, role: Role) -> PathBuf {
        self.0.join(format!("{role}-ca.key"))
    }

    /// `edge.crt`.
    #[must_use]
    pub fn edge_certificate(&self) -> PathBuf {
        self.0.join("edge.crt")
    }

    /// `edge.key`.
    #[must_use]
    pub fn edge_key(&self) -> PathBuf {
        self.0.join("edge.key")
    }

    /// `pki.yaml`.
    #[must_use]
    pub fn settings_path(&self) -> PathBuf {
        self.0.join("pki.yaml")
    }

    /// Reads `pki.yaml`.
    ///
    /// # Errors
    /// [`StoreError::Read`] and [`StoreError::Settings`].
    pub fn settings(&self) -> Result<Settings, StoreError> {
        let path = self.settings_path();
        let text = read(&path)?;
        let settings = Settings::from_yaml(&String::from_utf8_lossy(&text));
        settings.map_err(|source| StoreError::Settings { path, source })
    }

    /// The directory itself.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }
}

/// Reads a file of at most [`pem::PEM_BYTES_MAX`].
///
/// # Errors
/// [`StoreError::Read`].
pub fn read(path: &Path) -> Result<Vec<u8>, StoreError> {
    pem::read(path).map_err(|source| StoreError::Read { path: path.to_owned(), source })
}

/// Files being written together. Dropped before [`keep`](Self::keep), it removes those that it has written, so that a
/// command that fails half way can simply be run again.
#[derive(Debug, Default)]
pub struct Batch {
    written: Vec<PathBuf>,
}

impl Batch {
    /// Checks that none of the names is taken, before anything is made.
    ///
    /// # Errors
    /// [`StoreError::Exists`] with the first that is.
    pub fn begin(paths: &[&Path]) -> Result<Self, StoreError> {
        match paths.iter().find(|path| path.symlink_metadata().is_ok()) {
            Some(taken) => Err(StoreError::Exists(taken.to_path_buf())),
            None => Ok(Self::default()),
        }
    }

    /// Writes one file.
    ///
    /// # Errors
    /// [`StoreError::Exists`] and [`StoreError::Write`].
    pub fn write(&mut self, path: &Path, text: &str, mode: u32) -> Result<(), StoreError> {
        write_new(path, text.as_bytes(), mode)?;
        self.written.push(path.to_owned());
        Ok(())
    }

    /// All is written.
    pub fn keep(mut self) {
        self.written.clear();
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        for path in &self.written {
            // Nothing better can be done about a file that cannot be removed; the error under way is the one to report.
            let _ = fs::remove_file(path);
        }
    }
}

fn write_new(path: &Path, bytes: &[u8], mode: u32) -> Result<(), StoreError> {
    let temporary = temporary_path(path);
    let result = write_synced(&temporary, bytes, mode).and_then(|()| give_name(&temporary, path));
    // Linked under its name by now, or given up.
    let _ = fs::remove_file(&temporary);
    result.and_then(|()| sync_directory(path)).map_err(|source| match source.kind() {
        io::ErrorKind::AlreadyExists => StoreError::Exists(path.to_owned()),
        _ => StoreError::Write { path: path.to_owned(), source },
    })
}

/// Beside its target, because a name can only be given within one file system. The process id keeps two runs apart.
fn temporary_path(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.{}.tmp", std::process::id()))
}

fn write_synced(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    // create_new is O_EXCL: neither a file nor a link that somebody put there is written through.
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// A hard link fails if the name is taken, which a rename would not.
fn give_name(temporary: &Path, path: &Path) -> io::Result<()> {
    match fs::hard_link(temporary, path) {
        Err(error)
            if matches!(error.kind(), io::ErrorKind::Unsupported | io::ErrorKind::PermissionDenied) =>
        {
            // A file system without hard links (FAT, some network ones).
            if path.symlink_metadata().is_ok() {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            fs::rename(temporary, path)
        }
        result => result,
    }
}

fn sync_directory(path: &Path) -> io::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.unwrap_or_else(|| Path::new(".")))?.sync_all()
}
