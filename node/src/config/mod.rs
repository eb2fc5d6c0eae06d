//! The Node's own file: who it is, which Edge it dials, how it reconnects. Everything else comes from the Edge (REG-9).
//!
//! | Module | Owns |
//! |---|---|
//! | `file` | the tree as it is typed |
//! | `check` | meaning and bounds of every key, all problems of a file together |
//! | [`identity`] | certificate, key and CA, loaded and checked before the first dial |
//! | [`error`] | file, line, column and words |

mod check;
pub mod error;
mod file;
pub mod identity;

use std::{
    fs, io,
    net::SocketAddr,
    num::NonZeroU32,
    path::{Path, PathBuf},
    time::Duration,
};

use proto::identity::Name;
use serde_saphyr::{DuplicateKeyPolicy, Options};

pub use error::{ConfigError, Place, Problem};
pub use file::Secret;

/// Longest file in bytes; a join bundle with three PEM texts has about 4 KiB.
pub const FILE_BYTES_MAX: u64 = 1024 * 1024;
/// Seconds between dials when nothing is said (SUP-3).
pub const INTERVAL_SEC_DEFAULT: u32 = 10;
/// Longest interval between dials, in seconds: one day.
pub const INTERVAL_SEC_MAX: u32 = 86_400;
/// Dials in a row without a ready connection when nothing is said (SUP-3).
pub const MAX_ATTEMPTS_DEFAULT: u32 = 10;
/// Most shards of one Node.
pub const SHARDS_MAX: u16 = 64;
/// Highest core number that can be pinned to.
pub const CPU_MAX: usize = 1023;

/// A checked configuration.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// Workload name, and the Node ID that is registered.
    pub name: Name,
    /// Whom to dial, and who has to answer.
    pub edge: EdgeTarget,
    /// Own certificate and the CA of the Edge.
    pub identity: IdentitySource,
    /// SUP-3.
    pub reconnect: ReconnectPolicy,
    /// Shards asked for, 1 to [`SHARDS_MAX`].
    pub shards: u16,
    /// Cores to pin to, empty = leave it to the scheduler.
    pub cpus: Vec<usize>,
    /// How to log.
    pub logging: Logging,
    /// Where `/metrics` and `/healthz` are served; `None` = nowhere.
    pub metrics_listen: Option<SocketAddr>,
}

/// The Edge to dial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EdgeTarget {
    /// DNS name or literal address, without brackets.
    pub host: String,
    /// TCP port, never 0.
    pub port: u16,
    /// The workload name its certificate must carry.
    pub name: Name,
}

/// Where certificate, key and Edge CA are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IdentitySource {
    /// In files; relative paths are relative to the directory of the configuration file.
    Files {
        /// Own chain, leaf first.
        cert: PathBuf,
        /// Its key.
        key: PathBuf,
        /// Who signs Edges.
        edge_ca: PathBuf,
    },
    /// In the join bundle itself.
    Inline {
        /// Own chain, leaf first.
        cert_pem: String,
        /// Its key.
        key_pem: Secret,
        /// Who signs Edges.
        edge_ca_pem: String,
    },
}

/// When to dial again and when to give up (SUP-3, SUP-5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReconnectPolicy {
    /// Middle of the wait between two dials; never 0 with [`AttemptLimit::Unlimited`].
    pub interval: Duration,
    /// How many dials in a row may fail to become ready.
    pub attempts: AttemptLimit,
}

/// Bound of the dials in a row that do not lead to a ready connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptLimit {
    /// Until shutdown.
    Unlimited,
    /// Exactly so many.
    Exactly(NonZeroU32),
}

/// How to log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Logging {
    /// Least severe level that is shown.
    pub level: tracing::Level,
    /// Line format.
    pub format: LogFormat,
}

/// Line format of logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// One line of text for people.
    Text,
    /// One JSON object a line.
    Json,
}

/// Why no configuration could be made of a file.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The file cannot be read.
    #[error("cannot read {file}", file = .0.display())]
    Read(PathBuf, #[source] io::Error),
    /// The file is over [`FILE_BYTES_MAX`].
    #[error("{file} has more than {FILE_BYTES_MAX} bytes", file = .0.display())]
    TooLarge(PathBuf),
    /// The file is wrong.
    #[error(transparent)]
    Content(#[from] ConfigError),
}

/// Reads and checks node.yaml or a join bundle. Blocks; not for a shard.
///
/// # Errors
/// [`LoadError`]; every problem of the file that can be seen at once is in it.
pub fn load(file: &Path) -> Result<NodeConfig, LoadError> {
    let length = fs::metadata(file).map_err(|error| LoadError::Read(file.to_owned(), error))?.len();
    if length > FILE_BYTES_MAX {
        return Err(LoadError::TooLarge(file.to_owned()));
    }
    let text = fs::read_to_string(file).map_err(|error| LoadError::Read(file.to_owned(), error))?;
    Ok(parse(file, &text)?)
}

/// Checks the text of `file`, whose directory relative paths start from. Touches no other file.
///
/// # Errors
/// [`ConfigError`] with at least one problem.
pub fn parse(file: &Path, text: &str) -> Result<NodeConfig, ConfigError> {
    let options: Options = serde_saphyr::options! {
        duplicate_keys: DuplicateKeyPolicy::Error,
        // A snippet of the file could show the key.
        with_snippet: false,
    };
    let problems = match serde_saphyr::from_str_with_options::<file::File>(text, options) {
        Ok(typed) => match check::check(typed, file.parent().unwrap_or(Path::new(""))) {
            Ok(config) => return Ok(config),
            Err(problems) => problems,
        },
        Err(error) => vec![error::explain(&error)],
    };
    Err(ConfigError { file: file.to_owned(), problems })
}

#[cfg(test)]
mod tests;
