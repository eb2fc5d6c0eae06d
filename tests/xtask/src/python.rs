//! The Python environment of the SDK tests: made here, under the target directory, from the package index.

use std::path::PathBuf;

use anyhow::{Context, bail};

use crate::cmd;

/// What the SDK tests import, and Node with its npm for the SDKs that are not for Python. The SDKs are the newest when these lines
/// were written: a release that changes what clients need is to be read about, and not found in an unrelated change.
const PACKAGES: &str = "openai==3.57.0\nanthropic==2.14.0\nnodejs-wheel==24.19.0\n\
    # llama.cpp's own server, and a writer for a tiny model\nxllamacpp\ngguf\nnumpy\n";

/// The interpreter of an environment with everything installed.
///
/// # Errors
/// There is no Python 3, or the packages cannot be installed.
pub fn environment() -> anyhow::Result<PathBuf> {
    let dir = cmd::target_dir().join("python");
    let (python, stamp) = (dir.join("bin/python"), dir.join("installed.txt"));
    if python.exists() && std::fs::read_to_string(&stamp).is_ok_and(|text| text == PACKAGES) {
        return Ok(python);
    }
    let path = dir.to_str().context("a target directory that is not UTF-8")?;
    cmd::run("python3", &["-m", "venv", "--clear", path])
        .context("Python 3 with venv is needed for the SDK tests")?;
    let packages: Vec<&str> = PACKAGES.lines().filter(|line| !line.starts_with('#')).collect();
    let interpreter = python.to_str().context("a target directory that is not UTF-8")?;
    let mut args = vec!["-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
    args.extend(&packages);
    cmd::run(interpreter, &args)?;
    if !python.exists() {
        bail!("{} was not made", python.display());
    }
    std::fs::write(stamp, PACKAGES)?;
    Ok(python)
}
