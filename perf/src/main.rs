//! The `iop-perf` command: `provider`, `load`, `replay`, `idle`, `compare` and `instructions`.

mod command;

use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::{Args, Parser, Subcommand};
use tokio::signal::unix::{SignalKind, signal};

use iop_perf::descriptors;
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
    Load(command::load::Args),
    /// Send a recorded trace again: its arrivals, prompt and output lengths, served by a stated model
    Replay(command::replay::Args),
    /// Hold silent streams open and read the memory and CPU of processes meanwhile
    Idle(command::idle::Args),
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

fn main() -> anyhow::Result<ExitCode> {
    match Cli::parse().command {
        Command::Provider(args) => run_provider(args),
        Command::Load(args) => command::load::run(args),
        Command::Replay(args) => command::replay::run(args),
        Command::Idle(args) => command::idle::run(args),
        Command::Compare(args) => command::compare::run(args),
        Command::Instructions(args) => command::instructions::run(args),
    }
}

fn run_provider(args: ProviderArgs) -> anyhow::Result<ExitCode> {
    // Each client and each stream is a file; a shell's soft limit is often 1,024.
    descriptors::raise();
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
                Command::Load(args) => args.wants_stream(),
                _ => unreachable!("load was asked for"),
            }
        };
        assert!(parse(&[]) && parse(&["--stream"]) && !parse(&["--no-stream"]));
    }
}
