//! The `iop-perf` command: `provider`, `load`, `compare` and `instructions`.

mod command;

use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use clap::{Args, Parser, Subcommand};
use tokio::signal::unix::{SignalKind, signal};

use iop_perf::load::{self, Arrivals, CONCURRENCY_MAX, Length, Target};
use iop_perf::procfs::Process;
use iop_perf::provider::{self, Provider, Script};

/// Scripted provider and load generator for IOP
#[derive(Debug, Parser)]
#[command(name = "iop-perf", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve an OpenAI-compatible API whose every reply follows a script
    Provider(ProviderArgs),
    /// Send chat completions, closed or on a schedule, verify every reply, report
    Load(LoadArgs),
    /// Measure subjects under the same loads, interleaved in rounds, and compare their costs
    Compare(command::compare::Args),
    /// Count what an event and a request cost a subject in instructions, and compare with a baseline
    Instructions(command::instructions::Args),
}

#[derive(Debug, Args)]
struct ProviderArgs {
    /// Address to listen on; port 0 takes a free one, which the line `listening http://…` names
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Silence before the first event, in ms
    #[arg(long, default_value_t = 0)]
    prefill_ms: u32,
    /// Content events of a completion
    #[arg(long, default_value_t = 20)]
    events: u32,
    /// Size of one content event on the stream
    #[arg(long, default_value_t = 200)]
    event_bytes: u32,
    /// Pause between content events, in µs
    #[arg(long, default_value_t = 0)]
    gap_us: u32,
    /// Writes: `whole` events, single `byte`s, or pieces of this many bytes
    #[arg(long, default_value = "whole")]
    split: String,
    /// Further directives of the base script (docs/performance.md), applied after the options above
    #[arg(long, default_value = "")]
    script: String,
    /// Models of GET /v1/models, separated by commas
    #[arg(long, default_value = "perf-model")]
    models: String,
    /// Refuse a model that is not listed with 404 model_not_found
    #[arg(long)]
    strict_models: bool,
    /// Require `authorization: Bearer KEY` on the API routes
    #[arg(long)]
    api_key: Option<String>,
    /// Close a kept connection after so many idle ms; 0 keeps it for ever
    #[arg(long, default_value_t = 0)]
    keepalive_idle_ms: u32,
    /// Threads that serve; the instrument is calibrated with one
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// End when standard input ends, so that a provider does not outlive the test that started it
    #[arg(long)]
    until_stdin_closes: bool,
}

#[derive(Debug, Args)]
struct LoadArgs {
    /// Base URL (http://HOST:PORT or …/v1) or the endpoint itself
    #[arg(long)]
    url: Target,
    /// Bearer token
    #[arg(long)]
    token: Option<String>,
    /// Model to ask for
    #[arg(long, default_value = "perf-model")]
    model: String,
    /// When requests start: `closed` (when the one before has ended), or by a schedule that no reply changes:
    /// `poisson:RATE`, `uniform:RATE`, `steps:RATE@SECONDS,RATE@SECONDS…`
    #[arg(long, default_value = "closed")]
    arrivals: Arrivals,
    /// Seed of Poisson arrivals; the report names it
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Requests in flight of a closed load, and of the warm-up
    #[arg(long, default_value_t = 1)]
    concurrency: usize,
    /// The most connections of an open load; requests wait for one, and their latencies with them
    #[arg(long)]
    connections: Option<usize>,
    /// The most requests of an open load in flight; what is due beyond fails as `max_in_flight`
    #[arg(long, default_value_t = CONCURRENCY_MAX)]
    max_in_flight: usize,
    /// Requests in all; default: 100, with steps all of theirs
    #[arg(long, conflicts_with = "seconds")]
    requests: Option<u64>,
    /// Send for so many seconds instead of a number of requests
    #[arg(long)]
    seconds: Option<u32>,
    /// Requests before the measured run
    #[arg(long, default_value_t = 0)]
    warmup_requests: u64,
    /// Ask for streams (the default)
    #[arg(long, overrides_with = "no_stream")]
    stream: bool,
    /// Ask for whole replies
    #[arg(long)]
    no_stream: bool,
    /// Do not ask for usage in streams
    #[arg(long)]
    no_usage: bool,
    /// Length of the user message
    #[arg(long, default_value_t = 200)]
    prompt_bytes: usize,
    /// Script for the scripted provider, sent in the body's `user`
    #[arg(long)]
    script: Option<String>,
    /// One connection per request
    #[arg(long)]
    no_keepalive: bool,
    /// Accept replies that no seal of the scripted provider proves exact (for real engines)
    #[arg(long)]
    no_seal: bool,
    /// Exit with 0 although requests failed
    #[arg(long)]
    allow_errors: bool,
    /// Limit of one request, in ms
    #[arg(long, default_value_t = 120_000)]
    timeout_ms: u32,
    /// Start the workers evenly within so many ms
    #[arg(long, default_value_t = 0)]
    stagger_ms: u32,
    /// Threads of the generator
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// Read CPU and memory of this process; may be given more than once
    #[arg(long = "pid", value_name = "NAME=PID")]
    processes: Vec<Process>,
    /// Read memory once more so many ms into the run
    #[arg(long)]
    mem_at_ms: Option<u32>,
    /// Write the report as JSON to this file (`-` for standard output instead of the table)
    #[arg(long)]
    json: Option<PathBuf>,
}

fn main() -> anyhow::Result<ExitCode> {
    match Cli::parse().command {
        Command::Provider(args) => run_provider(args),
        Command::Load(args) => run_load(args),
        Command::Compare(args) => command::compare::run(args),
        Command::Instructions(args) => command::instructions::run(args),
    }
}

fn run_provider(args: ProviderArgs) -> anyhow::Result<ExitCode> {
    let mut script = Script::default();
    let options = format!(
        "prefill={} events={} bytes={} gap={} split={}",
        args.prefill_ms, args.events, args.event_bytes, args.gap_us, args.split
    );
    script.apply(&options).context("provider options")?;
    script.apply(&args.script).context("--script")?;
    let config = provider::Config {
        listen: args.listen,
        script,
        models: provider::model_names(&args.models),
        strict_models: args.strict_models,
        api_key: args.api_key,
        keepalive_idle: Duration::from_millis(args.keepalive_idle_ms.into()),
        steps: None,
    };
    let mut runtime = match args.threads {
        0 | 1 => tokio::runtime::Builder::new_current_thread(),
        threads => {
            let mut builder = tokio::runtime::Builder::new_multi_thread();
            builder.worker_threads(threads);
            builder
        }
    };
    let stdin = args.until_stdin_closes;
    runtime.enable_all().build().context("start the runtime")?.block_on(async move {
        let provider = Provider::bind(config).await.context("listen")?;
        let address = provider.local_addr().context("listen")?;
        let (mut terminate, mut interrupt) =
            (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        let closed = stdin_end(stdin);
        // Others wait for this very line.
        println!("listening http://{address}");
        std::io::stdout().flush().context("write to standard output")?;
        tokio::select! {
            () = provider.run() => {}
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            () = closed => {}
        }
        Ok(ExitCode::SUCCESS)
    })
}

/// Resolves when standard input has ended, if that is asked for.
async fn stdin_end(asked: bool) {
    let (sender, receiver) = tokio::sync::oneshot::channel();
    if asked {
        std::thread::spawn(move || {
            let mut buffer = [0_u8; 1024];
            while std::io::stdin().read(&mut buffer).is_ok_and(|read| read > 0) {}
            // Nobody listens any more when the provider is ending anyway.
            let _ = sender.send(());
        });
        let _ = receiver.await;
    } else {
        std::future::pending().await
    }
}

fn run_load(args: LoadArgs) -> anyhow::Result<ExitCode> {
    ensure!((1..=CONCURRENCY_MAX).contains(&args.concurrency), "--concurrency is 1 to {CONCURRENCY_MAX}");
    ensure!(args.connections.is_none_or(|most| most > 0), "--connections is at least 1");
    ensure!(args.max_in_flight > 0, "--max-in-flight is at least 1");
    let arrivals = args.arrivals.with_seed(args.seed);
    let length = match (args.requests, args.seconds) {
        (Some(requests), _) => Length::Requests(requests),
        (None, Some(seconds)) => Length::Time(Duration::from_secs(seconds.into())),
        (None, None) if arrivals.has_end() => Length::Requests(u64::MAX),
        (None, None) => Length::Requests(100),
    };
    let config = load::Config {
        target: args.url,
        token: args.token,
        model: args.model,
        arrivals,
        concurrency: args.concurrency,
        connections: args.connections,
        max_in_flight: args.max_in_flight,
        length,
        warmup_requests: args.warmup_requests,
        stream: args.stream || !args.no_stream,
        include_usage: !args.no_usage,
        prompt_bytes: args.prompt_bytes,
        script: args.script,
        keep_alive: !args.no_keepalive,
        seal_demanded: !args.no_seal,
        timeout: Duration::from_millis(args.timeout_ms.into()),
        stagger: Duration::from_millis(args.stagger_ms.into()),
        threads: args.threads,
        processes: args.processes,
        memory_at: args.mem_at_ms.map(|ms| Duration::from_millis(ms.into())),
    };
    let report = load::run(&config).context("run the load")?;
    let json = serde_json::to_string_pretty(&report).context("write the report")?;
    match args.json {
        Some(path) if path.as_os_str() == "-" => println!("{json}"),
        Some(path) => {
            std::fs::write(&path, json + "\n").with_context(|| format!("write {}", path.display()))?;
            print!("{report}");
        }
        None => print!("{report}"),
    }
    Ok(if report.is_clean() || args.allow_errors { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_later_of_stream_and_no_stream_wins() {
        let parse = |extra: &[&str]| {
            let base = ["iop-perf", "load", "--url", "http://127.0.0.1:1"];
            match Cli::try_parse_from(base.iter().chain(extra)).unwrap().command {
                Command::Load(args) => args.stream || !args.no_stream,
                _ => unreachable!("load was asked for"),
            }
        };
        assert!(parse(&[]) && parse(&["--stream"]) && !parse(&["--no-stream"]));
    }
}
