//! Contributor commands. Each prints the plain command lines it runs, so that nobody needs this tool to understand it.

mod bench;
mod ci;
mod clients;
mod cmd;
mod crowd;
mod dev;
mod peers;
mod python;
mod sim;
mod test;

use clap::{Parser, Subcommand};

/// IOP contributor commands.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Build and run Edge, Node and a provider here, and stream one completion.
    Dev(dev::Options),
    /// Run every test: unit, whole-process, SDKs.
    Test(test::Options),
    /// Measure the product beside nginx, or its instructions against the baseline.
    Bench(bench::Options),
    /// Check the decision machine in simulated worlds.
    Sim(sim::Options),
    /// Install the gateways that the product is measured beside.
    Peers(peers::Options),
    /// What CI runs: format, clippy, docs, tests, the README's quickstart, the limits on cost.
    Ci,
}

fn main() -> anyhow::Result<()> {
    match Cli::parse().command {
        Command::Dev(options) => dev::run(&options),
        Command::Test(options) => test::run(&options),
        Command::Bench(options) => bench::run(&options),
        Command::Sim(options) => sim::run(&options),
        Command::Peers(options) => peers::run(&options),
        Command::Ci => ci::run(),
    }
}
