//! What a recorder remembers, and its form as text.

use alloc::{
    borrow::ToOwned,
    format,
    string::{String, ToString},
    sync::Arc,
    vec::Vec,
};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::{Build, Event, Record, Recording};
use crate::{Machine, input::Moment};

const FORMAT: &str = "iop-control-inputs";
/// Rises with every change that an older reader would misread.
const FORMAT_VERSION: u32 = 2;

/// A machine and what it was told since. Cheap to hand to another thread, which makes the text.
#[derive(Clone, Debug)]
pub struct Dump {
    header: Header,
    checkpoint: Arc<Machine>,
    older: Arc<Vec<Record>>,
    newer: Vec<Record>,
}

/// Why a text is no dump. Lines count from 1.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DumpError {
    /// The text ends before this line.
    #[error("line {line}: expected {expected}, found the end of the text")]
    Short {
        /// Which line is missing.
        line: usize,
        /// What should be there.
        expected: &'static str,
    },
    /// The line is not what should be there.
    #[error("line {line}: expected {expected}: {why}")]
    Malformed {
        /// Which.
        line: usize,
        /// What should be there.
        expected: &'static str,
        /// What the JSON reader says, with the column.
        why: String,
    },
    /// The header names something else.
    #[error("line 1: expected format {FORMAT} of version {FORMAT_VERSION}, found {found}")]
    Format {
        /// What it names.
        found: String,
    },
    /// The tables of the checkpoint contradict each other, so nothing can be run on it.
    #[error("line 2: the checkpoint contradicts itself: {why}")]
    Inconsistent {
        /// Which tables.
        why: crate::machine::AuditError,
    },
}

/// The first line.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    format: String,
    format_version: u32,
    version: Arc<str>,
    commit: Arc<str>,
    /// Events before the checkpoint.
    first_input: u64,
}

/// The second line.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Checkpoint<M> {
    checkpoint: M,
}

/// Each further line.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line<E> {
    at: Moment,
    event: E,
    #[serde(serialize_with = "to_hex", deserialize_with = "from_hex")]
    digest: u64,
}

fn to_hex<S: Serializer>(digest: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{digest:016x}"))
}

fn from_hex<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let text = String::deserialize(deserializer)?;
    let plain = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let digest = if plain { u64::from_str_radix(&text, 16).ok() } else { None };
    digest.ok_or_else(|| de::Error::custom("a digest is 16 hexadecimal digits"))
}

impl Dump {
    pub(super) fn new(
        build: Build,
        first_input: u64,
        checkpoint: Arc<Machine>,
        older: Arc<Vec<Record>>,
        newer: Vec<Record>,
    ) -> Self {
        let Build { version, commit } = build;
        let format = FORMAT.to_owned();
        let header = Header { format, format_version: FORMAT_VERSION, version, commit, first_input };
        Self { header, checkpoint, older, newer }
    }

    /// Events in it.
    pub fn len(&self) -> usize {
        self.older.len() + self.newer.len()
    }

    /// Whether nothing was told since the checkpoint.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The text, line by line, without line ends.
    pub fn lines(&self) -> impl Iterator<Item = String> + '_ {
        let checkpoint = || line(&Checkpoint { checkpoint: &*self.checkpoint });
        let head = [line(&self.header)].into_iter().chain(core::iter::once_with(checkpoint));
        let records = self.older.iter().chain(&self.newer);
        head.chain(records.map(|it| line(&Line { at: it.at, event: &it.event, digest: it.digest })))
    }

    /// Reads a text that [`Self::lines`] has made, by this version of the format.
    ///
    /// # Errors
    ///
    /// [`DumpError`]: what is wrong, and in which line. Nothing of it has run then.
    pub fn read(text: &str) -> Result<Recording, DumpError> {
        let mut lines = (1..).zip(text.lines());
        let header: Header = read(lines.next(), 1, "the header of a recording")?;
        if (header.format.as_str(), header.format_version) != (FORMAT, FORMAT_VERSION) {
            let found = format!("{:?} of version {}", header.format, header.format_version);
            return Err(DumpError::Format { found });
        }
        let checkpoint: Checkpoint<Machine> = read(lines.next(), 2, "a checkpoint")?;
        let machine = checkpoint.checkpoint;
        machine.audit().map_err(|why| DumpError::Inconsistent { why })?;
        let record = |(number, text)| {
            let Line::<Event> { at, event, digest } = read(Some((number, text)), number, "an input")?;
            Ok(Record { at, event, digest })
        };
        let records = lines.map(record).collect::<Result<_, _>>()?;
        let build = Build { version: header.version, commit: header.commit };
        Ok(Recording { build, first_input: header.first_input, machine, records })
    }
}

/// One line of text. What cannot be written, which would be a defect of these types, says so in its place, and is refused
/// by the reader.
fn line(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_else(|error| format!("not written: {error}"))
}

fn read<T: de::DeserializeOwned>(
    found: Option<(usize, &str)>,
    line: usize,
    expected: &'static str,
) -> Result<T, DumpError> {
    let (_, text) = found.ok_or(DumpError::Short { line, expected })?;
    serde_json::from_str(text).map_err(|error| {
        // Its own line number is always 1.
        let why = error.to_string().replace(" at line 1 column ", " at column ");
        DumpError::Malformed { line, expected, why }
    })
}
