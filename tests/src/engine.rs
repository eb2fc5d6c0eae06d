//! A real engine: llama.cpp's own HTTP server, from a Python package, with a model of random weights that is made here.

use std::{
    net::TcpListener,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, bail};

use crate::{Process, site::path};

/// How long its conversations may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Context {
    /// Four at a time.
    Short,
    /// One at a time, as long as the first request of a coding agent; what it says is a few words.
    Long,
}

/// A running server.
#[derive(Debug)]
pub struct Engine {
    /// The process.
    pub process: Process,
    port: u16,
}

impl Engine {
    /// Makes the model in `dir` and starts the server, by an interpreter that has the packages.
    ///
    /// # Errors
    /// The model cannot be made, or the server does not come up.
    pub fn start(python: &Path, dir: &Path, context: Context) -> anyhow::Result<Self> {
        let here = |file: &str| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("engine").join(file);
        let more = (context == Context::Long).then_some("long");
        let model = dir.join("tiny.gguf");
        let made = Command::new(python).arg(here("make_tiny_gguf.py")).arg(&model).args(more).output()?;
        if !made.status.success() {
            bail!("make_tiny_gguf.py: {}", String::from_utf8_lossy(&made.stderr));
        }
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let (script, number) = (here("xllama_server.py"), port.to_string());
        let mut args = vec![path(&script)?, path(&model)?, &number];
        args.extend(more);
        let mut process = Process::start("engine", python, &args, &[], dir)?;
        process.wait_for("listening").context("llama.cpp's server")?;
        Ok(Self { process, port })
    }

    /// `http://host:port/v1`.
    pub fn base_url(&self) -> String {
        format!("http://127.0.0.1:{}/v1", self.port)
    }
}
