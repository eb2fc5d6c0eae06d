//! `iop-edge`: the gateway's own process.

use std::{io::Write, path::PathBuf, process::ExitCode};

use anyhow::Context;
use clap::{Parser, Subcommand};
use dataplane::{
    clock,
    log::LogWriter,
    shard::{Allocator, DriverWish},
};
use iop_edge::{
    admin,
    config::{self, LoadError},
    https, pki,
    revocation::{self, command::Revoked},
    token,
};

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

/// Inference gateway: accepts OpenAI-style requests and runs them on GPU hosts that dial in.
#[derive(Debug, Parser)]
#[command(name = "iop-edge", version, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve clients and Nodes until SIGTERM or SIGINT.
    ///
    /// Environment: IOP_DRIVER=auto|io_uring|epoll, RUST_LOG.
    Serve {
        /// The configuration file.
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
    },
    /// Look at a configuration file, offline.
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Show what a running Edge does: Nodes, providers, slots, queue and leases.
    Status(admin::status::Command),
    /// Ask a Node through a running Edge.
    #[command(subcommand)]
    Node(admin::node::Command),
    /// Make the certificates of Edge and Nodes.
    #[command(subcommand)]
    Pki(pki::Command),
    /// Make, hash and revoke client tokens.
    #[command(subcommand)]
    Token(TokenCommand),
}

#[derive(Debug, Subcommand)]
enum ConfigCommand {
    /// Check a file, with every error of it. Ports are not opened; certificates that `serve` would refuse are a warning.
    ///
    /// Exits 0 when it loads, 1 with errors, and with --strict 2 when there are warnings.
    Check {
        /// The configuration file.
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
        /// Exit 2 when something is right but surely not meant.
        #[arg(long)]
        strict: bool,
    },
    /// Print a file as it counts. The result loads again and means the same.
    Show {
        /// The configuration file.
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
        /// Every default filled in, earlier forms written in today's, each value with its origin; secrets are masked.
        #[arg(long, required = true)]
        effective: bool,
    },
    /// Print the JSON Schema of the file, for editors.
    Schema,
}

#[derive(Debug, Subcommand)]
enum TokenCommand {
    /// Print a new token once, and the entry for `openai.principal_tokens`.
    New {
        /// Name of this token in the configuration, unique.
        #[arg(long, default_value = "token-1", value_parser = token::token_reference)]
        token_ref: String,
        /// Who it belongs to.
        #[arg(long, default_value = "default", value_parser = token::reference)]
        principal_ref: String,
    },
    /// Print the hash of a token that is read from standard input.
    Hash,
    /// Revoke a token: a running Edge refuses it, and ends what it runs, within a second.
    ///
    /// Adds a line to the file that `openai.revoked_tokens_file` names.
    Revoke {
        /// `token_ref` of the token in the configuration.
        token_ref: String,
        /// The configuration file.
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
    },
}

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(code) => code,
        Err(error) => {
            // An Edge that ends must not wait for whoever reads its log.
            let _written = LogWriter.write(format!("iop-edge: {error:#}\n").as_bytes());
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Serve { config } => {
            let Some(settings) = load(&config) else { return Ok(ExitCode::FAILURE) };
            iop_edge::logging::install(&settings.logging)?;
            let driver: DriverWish = std::env::var("IOP_DRIVER")
                .unwrap_or_default()
                .parse()
                .map_err(anyhow::Error::msg)
                .context("IOP_DRIVER")?;
            iop_edge::boot::serve(settings, driver)?;
        }
        Command::Config(ConfigCommand::Schema) => print!("{}", config::schema::text()),
        Command::Config(ConfigCommand::Check { config, strict }) => return Ok(check(&config, strict)),
        Command::Config(ConfigCommand::Show { config, effective: _ }) => match config::effective(&config) {
            Ok(effective) => print!("{}", effective.with_origins()),
            Err(errors) => {
                eprintln!("{errors}");
                return Ok(ExitCode::FAILURE);
            }
        },
        Command::Status(command) => admin::status::run(&command)?,
        Command::Node(command) => admin::node::run(&command)?,
        Command::Pki(command) => pki::run(command)?,
        Command::Token(TokenCommand::New { token_ref, principal_ref }) => {
            let made = token::generate()?;
            println!("{}\n", made.secret());
            println!(
                "# openai.principal_tokens: the token itself is shown only now\n{}",
                made.config_entry(&token_ref, &principal_ref)
            );
        }
        Command::Token(TokenCommand::Revoke { token_ref, config }) => {
            let Some(settings) = load(&config) else { return Ok(ExitCode::FAILURE) };
            match revocation::command::revoke(&settings, &token_ref)? {
                Revoked::Now => {
                    println!("{token_ref}: revoked; a running Edge ends its requests within a second")
                }
                Revoked::Before => println!("{token_ref}: was revoked already"),
            }
        }
        Command::Token(TokenCommand::Hash) => {
            let mut line = String::new();
            std::io::stdin().read_line(&mut line)?;
            anyhow::ensure!(!line.trim().is_empty(), "standard input holds no token");
            anyhow::ensure!(
                token::is_possible(line.trim()),
                "standard input holds no token: expected 1 to {} visible ASCII characters without blanks",
                token::TOKEN_BYTES_MAX
            );
            println!("{}", token::hash_hex(line.trim()));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn check(path: &std::path::Path, strict: bool) -> ExitCode {
    let Some(settings) = load(path) else { return ExitCode::FAILURE };
    let mut warnings: Vec<String> =
        settings.warnings.iter().map(|warning| format!("{}:{warning}", path.display())).collect();
    if let Err(error) = iop_edge::link::server_config(&settings) {
        warnings.push(format!("{}: `serve` would refuse the identity: {error:#}", path.display()));
    }
    if let Some(files) = &settings.listen.tls {
        let told = match https::load(files) {
            Ok(loaded) => https::warnings(files, &loaded.certificate, clock::unix_seconds()),
            Err(error) => {
                vec![LoadError {
                    message: format!("`serve` would refuse the certificate: {}", error.message),
                    ..error
                }]
            }
        };
        warnings.extend(told.iter().map(|warning| format!("{}:{warning}", path.display())));
    }
    for warning in &warnings {
        println!("warning: {warning}");
    }
    println!(
        "{}: ok ({} models, {} nodes, {} tokens)",
        path.display(),
        settings.models.len(),
        settings.nodes.len(),
        settings.principals.len()
    );
    if strict && !warnings.is_empty() { ExitCode::from(2) } else { ExitCode::SUCCESS }
}

fn load(path: &std::path::Path) -> Option<config::Settings> {
    match config::load(path) {
        Ok(settings) => Some(settings),
        Err(errors) => {
            eprintln!("{errors}");
            None
        }
    }
}
