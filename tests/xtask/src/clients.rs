//! The clients that are no Python packages, of the versions in `tests/clients`: installed under the target directory, by the npm
//! that the Python environment brings. No package's own script runs.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use crate::cmd;

/// A set of npm packages, by its directory in `tests/clients`.
#[derive(Clone, Copy, Debug)]
pub enum Packages {
    /// OpenAI's and Anthropic's SDKs.
    Sdks,
    /// Claude Code and Codex: 800 MB.
    Agents,
}

impl Packages {
    const fn name(self) -> &'static str {
        match self {
            Self::Sdks => "sdks",
            Self::Agents => "agents",
        }
    }
}

/// The directory with their `node_modules`, by the npm beside this interpreter.
///
/// # Errors
/// They cannot be installed.
pub fn installed(packages: Packages, python: &Path) -> anyhow::Result<PathBuf> {
    let source = cmd::root().join("tests/clients").join(packages.name());
    let dir = cmd::target_dir().join("clients").join(packages.name());
    let (lock, stamp) = (source.join("package-lock.json"), dir.join("installed.json"));
    let wanted = std::fs::read_to_string(&lock).with_context(|| lock.display().to_string())?;
    if std::fs::read_to_string(&stamp).is_ok_and(|text| text == wanted) {
        return Ok(dir);
    }
    std::fs::create_dir_all(&dir)?;
    for file in ["package.json", "package-lock.json"] {
        std::fs::copy(source.join(file), dir.join(file)).with_context(|| file.to_owned())?;
    }
    let bin = python.parent().context("an interpreter has a directory")?;
    let npm = bin.join("npm");
    if !npm.exists() {
        bail!("{} is missing: remove {}", npm.display(), bin.display());
    }
    // npm is run by the Node beside it.
    let path = std::env::var("PATH").unwrap_or_default();
    let path = format!("{}:{path}", bin.display());
    let dir_text = dir.to_str().context("a target directory that is not UTF-8")?;
    let args =
        ["--prefix", dir_text, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"];
    cmd::run_with(npm.to_str().context("a path that is not UTF-8")?, &args, &[("PATH", &path)])?;
    std::fs::write(stamp, wanted)?;
    Ok(dir)
}
