//! `iop-edge status`: what a running Edge does, for people and for programs.

use std::{
    fs::OpenOptions,
    io::Write,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

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
    /// Also write what the Edge's decisions were made from lately to FILE, which must not exist, for a report of a defect.
    #[arg(long, value_name = "FILE")]
    inputs: Option<PathBuf>,
}

/// Runs the command.
///
/// # Errors
/// No Edge answers on the socket, or the file is there already.
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
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {}
        written => written?,
    }
    command.inputs.as_ref().map_or(Ok(()), |file| save_inputs(&socket, file))
}

/// Writes the inputs to a new file that only its user can read: names of Nodes, providers and models stand in them. What was
/// begun and could not be ended is removed.
fn save_inputs(socket: &Path, path: &Path) -> anyhow::Result<()> {
    let created = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let mut file = created.with_context(|| format!("cannot make {}", path.display()))?;
    let mut bytes = 0;
    let saved = client::get(socket, "/inputs", &mut |part| {
        bytes += part.len();
        file.write_all(part)
    });
    if let Err(error) = saved {
        let _best_effort = std::fs::remove_file(path);
        return Err(error).with_context(|| path.display().to_string());
    }
    eprintln!("{}: {bytes} bytes", path.display());
    Ok(())
}
