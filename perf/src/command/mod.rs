//! The commands.

mod aim;
pub(crate) mod compare;
pub(crate) mod idle;
pub(crate) mod instructions;
pub(crate) mod load;
mod progress;
pub(crate) mod replay;

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use iop_perf::subject::Subject;

/// Which subjects, and where their programs are.
#[derive(Debug, clap::Args)]
pub(crate) struct Place {
    /// Directory of the subjects' files
    #[arg(long, default_value = "perf/subjects")]
    subjects: PathBuf,
    /// Directory of the programs that a subject's file calls @bin@; default: this program's own
    #[arg(long)]
    bin: Option<PathBuf>,
    /// Directory of the gateways that a subject's file calls @peers@, as `cargo xtask peers` fills it
    #[arg(long, default_value = "target/peers")]
    peers: PathBuf,
}

impl Place {
    /// The subject called `name`, or the one in the file of that name.
    fn subject(&self, name: &str) -> anyhow::Result<Subject> {
        let is_file = name.contains('/') || Path::new(name).extension().is_some();
        let path = if is_file { PathBuf::from(name) } else { self.subjects.join(format!("{name}.yaml")) };
        Subject::read(&path)
    }

    /// The directory of `@peers@`, absolute.
    fn peers(&self) -> anyhow::Result<PathBuf> {
        std::path::absolute(&self.peers).with_context(|| self.peers.display().to_string())
    }

    /// This program and the directory of `@bin@`, both absolute: subjects run in directories of their own.
    fn programs(&self) -> anyhow::Result<(PathBuf, PathBuf)> {
        let program = std::env::current_exe().context("where this program is")?;
        let bin = match &self.bin {
            Some(bin) => bin.canonicalize().with_context(|| bin.display().to_string())?,
            None => program.parent().context("this program is in no directory")?.to_owned(),
        };
        Ok((program, bin))
    }
}
