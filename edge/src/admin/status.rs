//! `iop-edge status`: what a running Edge does, for people and for programs.

use std::{fmt::Write as _, io::Write as _, path::PathBuf};

use anyhow::Context;
use clap::Args;

use super::{client, socket, table::Table};
use crate::ops::document::{ProviderLine, Status};

/// Show what a running Edge does: Nodes, providers, slots, queue and leases.
#[derive(Debug, Args)]
pub struct Command {
    /// The Edge's admin socket (listen.admin_socket); default: iop-edge.sock in $RUNTIME_DIRECTORY, else in /run/iop-edge.
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Print the document of /status instead of tables.
    #[arg(long)]
    json: bool,
}

/// Runs the command.
///
/// # Errors
/// No Edge answers on the socket.
pub fn run(command: &Command) -> anyhow::Result<()> {
    let socket = match &command.socket {
        Some(socket) => socket.clone(),
        None => socket::usual_place(&|name| std::env::var(name).ok()),
    };
    let mut document = Vec::new();
    client::get(&socket, "/status", &mut |bytes| {
        document.extend_from_slice(bytes);
        Ok(())
    })?;
    let text = if command.json {
        let mut text = document;
        text.push(b'\n');
        text
    } else {
        let status: Status = serde_json::from_slice(&document).with_context(|| {
            format!("{} answers with a status that this program does not understand", socket.display())
        })?;
        render(&status).into_bytes()
    };
    match std::io::stdout().lock().write_all(&text) {
        // Whoever reads has seen enough.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        written => Ok(written?),
    }
}

/// The document for people, of at most about a hundred columns.
fn render(status: &Status) -> String {
    let mut text = format!(
        "{} {}, configuration {}, {}\n{} queued, {} leases ({} cancelling)\n",
        status.edge,
        status.version,
        status.config_generation,
        if status.draining { "draining" } else { "serving" },
        status.queued,
        status.leases,
        status.cancelling,
    );
    for part in [nodes(status), providers(status)] {
        if !part.is_empty() {
            let _infallible = write!(text, "\n{}", part.render());
        }
    }
    text
}

fn nodes(status: &Status) -> Table {
    let mut table = Table::new(&["NODE", "STATE"]);
    for node in &status.nodes {
        table.row([node.id.clone(), if node.connected { "ready" } else { "not connected" }.to_owned()]);
    }
    table
}

fn providers(status: &Status) -> Table {
    let mut table = Table::new(&["PROVIDER", "NODE", "STATUS", "IN FLIGHT", "LONG", "QUEUED"]);
    for node in &status.nodes {
        for provider in &node.providers {
            table.row([
                provider.id.clone(),
                node.id.clone(),
                provider.status.clone(),
                slots(provider, provider.in_flight, provider.capacity),
                slots(provider, provider.long_in_flight, provider.long_context_capacity),
                provider.queued.to_string(),
            ]);
        }
    }
    table
}

fn slots(provider: &ProviderLine, taken: u32, all: u32) -> String {
    if provider.status == "available" { format!("{taken}/{all}") } else { "-".to_owned() }
}
