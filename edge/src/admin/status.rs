//! `iop-edge status`: what a running Edge does, for people and for programs.

use std::{io::Write, path::PathBuf};

use anyhow::Context;
use clap::Args;

use super::{client, page, socket};
use crate::ops::document::Status;

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
            format!("{} answers with a status that this version does not understand", socket.display())
        })?;
        page::render(&status).into_bytes()
    };
    match std::io::stdout().lock().write_all(&text) {
        // Whoever reads has seen enough.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        written => Ok(written?),
    }
}
