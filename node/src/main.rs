//! The `iop-node` command.

use std::{io::Write, process::ExitCode};

use anyhow::Context;
use clap::Parser;
use dataplane::{
    log::LogWriter,
    shard::{Allocator, DriverWish},
};
use iop_node::{
    boot,
    cli::{Cli, Command, Source},
    config::{self, identity},
    logging,
};

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Run(source) => run(&source),
        Command::Check(source) => check(&source),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            // A Node that ends must not wait for whoever reads its log.
            let _written = LogWriter.write(format!("iop-node: {error:#}\n").as_bytes());
            ExitCode::FAILURE
        }
    }
}

fn run(source: &Source) -> anyhow::Result<ExitCode> {
    let config = config::load(source.file())?;
    logging::install(config.logging)?;
    let identity = identity::load(&config)?;
    let driver: DriverWish = std::env::var("IOP_DRIVER")
        .unwrap_or_default()
        .parse()
        .map_err(anyhow::Error::msg)
        .context("IOP_DRIVER")?;
    let token = std::env::var("IOP_NODE_TOKEN").unwrap_or_default();
    Ok(ExitCode::from(boot::run(config, identity, driver, token)?.code()))
}

fn check(source: &Source) -> anyhow::Result<ExitCode> {
    let config = config::load(source.file())?;
    let identity = identity::load(&config)?;
    println!(
        "{}: ok: {} dials {}:{}",
        source.file().display(),
        identity.workload,
        config.edge.host,
        config.edge.port
    );
    match identity.dates {
        identity::Dates::Valid => Ok(ExitCode::SUCCESS),
        identity::Dates::NotYetValid => anyhow::bail!("the certificate is not valid yet"),
        identity::Dates::Expired => anyhow::bail!("the certificate has expired"),
    }
}
