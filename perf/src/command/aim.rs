//! What every load is told: where it goes, how it is bounded, what is read beside it, where the report goes.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use iop_perf::load::{CONCURRENCY_MAX, Config, Engine, Gauge, Target};
use iop_perf::procfs::Process;
use serde::Serialize;

/// Options of `load`, `replay` and `idle` alike.
#[derive(Debug, clap::Args)]
pub(crate) struct Aim {
    /// Base URL (http://HOST:PORT or …/v1) or the endpoint itself
    #[arg(long)]
    url: Target,
    /// Bearer token
    #[arg(long)]
    token: Option<String>,
    /// Model to ask for
    #[arg(long, default_value = "perf-model")]
    model: String,
    /// Do not ask for usage in streams
    #[arg(long)]
    no_usage: bool,
    /// Accept replies that no seal of the scripted provider proves exact (for real engines)
    #[arg(long)]
    no_seal: bool,
    /// Exit with 0 although requests failed
    #[arg(long)]
    allow_errors: bool,
    /// Threads of the generator
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// What the generator runs on
    #[arg(long, value_enum, default_value_t)]
    engine: Engine,
    /// Read CPU and memory of this process; may be given more than once
    #[arg(long = "pid", value_name = "NAME=PID")]
    processes: Vec<Process>,
    /// Write the report as JSON to this file (`-` for standard output instead of the table)
    #[arg(long)]
    json: Option<PathBuf>,
}

/// Options of the loads that have a bound of their requests.
#[derive(Debug, clap::Args)]
pub(crate) struct Bounds {
    /// The most connections of an open load; requests wait for one, and their latencies with them
    #[arg(long)]
    connections: Option<usize>,
    /// The most requests of an open load in flight; what is due beyond fails as `max_in_flight`
    #[arg(long, default_value_t = CONCURRENCY_MAX)]
    max_in_flight: usize,
    /// One connection per request
    #[arg(long)]
    no_keepalive: bool,
    /// Limit of one request, in ms
    #[arg(long, default_value_t = 120_000)]
    timeout_ms: u32,
    /// Read memory once more so many ms into the run
    #[arg(long)]
    mem_at_ms: Option<u32>,
}

impl Aim {
    /// A load that goes there.
    pub(crate) fn config(&self) -> Config {
        Config {
            target: self.url.clone(),
            token: self.token.clone(),
            model: self.model.clone(),
            include_usage: !self.no_usage,
            seal_demanded: !self.no_seal,
            threads: self.threads,
            engine: self.engine,
            processes: self.processes.clone(),
            ..Config::default()
        }
    }

    /// Runs `work` with a line on the terminal that says how it goes on, and hands out what it found.
    ///
    /// # Errors
    /// Those of `work` and of writing.
    pub(crate) fn run<T: Serialize + std::fmt::Display>(
        &self,
        wanted: Option<u64>,
        work: impl FnOnce(&Arc<Gauge>) -> std::io::Result<T>,
        is_clean: impl FnOnce(&T) -> bool,
    ) -> anyhow::Result<ExitCode> {
        let gauge = Arc::<Gauge>::default();
        let progress = super::progress::Progress::start(&gauge, wanted);
        let result = work(&gauge);
        drop(progress);
        let result = result.context("run the load")?;
        let json = serde_json::to_string_pretty(&result).context("write the report")?;
        match &self.json {
            Some(path) if path.as_os_str() == "-" => println!("{json}"),
            Some(path) => {
                std::fs::write(path, json + "\n").with_context(|| format!("write {}", path.display()))?;
                print!("{result}");
            }
            None => print!("{result}"),
        }
        Ok(if is_clean(&result) || self.allow_errors { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

impl Bounds {
    /// `config` within these bounds.
    ///
    /// # Errors
    /// A bound of nothing.
    pub(crate) fn apply(&self, config: Config) -> anyhow::Result<Config> {
        ensure!(self.connections.is_none_or(|most| most > 0), "--connections is at least 1");
        ensure!(self.max_in_flight > 0, "--max-in-flight is at least 1");
        Ok(Config {
            connections: self.connections,
            max_in_flight: self.max_in_flight,
            keep_alive: !self.no_keepalive,
            timeout: Duration::from_millis(self.timeout_ms.into()),
            memory_at: self.mem_at_ms.map(|ms| Duration::from_millis(ms.into())),
            ..config
        })
    }
}
