//! `iop-edge node command`: a query to one Node through a running Edge, for people and for programs (CMD-1).

use std::{io::Write, path::PathBuf};

use anyhow::Context;
use clap::{Args, Subcommand};

use super::{
    client::{self, ClientError},
    socket,
};
use crate::ops::{
    node_command::{Document, PATH},
    query,
};

/// Ask a connected Node.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Ask a connected Node, through a running Edge. Nothing is executed or changed.
    Command(Ask),
}

/// One query.
#[derive(Debug, Args)]
pub struct Ask {
    /// The Node's id in the configuration.
    node: String,
    /// What to ask.
    #[command(subcommand)]
    query: Query,
    /// The Edge's admin socket (listen.admin_socket); default: iop-edge.sock in $RUNTIME_DIRECTORY, else in /run/iop-edge.
    #[arg(long, value_name = "PATH", global = true)]
    socket: Option<PathBuf>,
    /// Print the document of the Edge instead of lines for people.
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum Query {
    /// Probe a provider: does it serve the target now? What is found changes nothing; the Edge probes by itself what is out.
    Capabilities {
        /// The adapter instance on the Node.
        #[arg(long)]
        adapter: String,
        /// The model, as the provider itself calls it.
        #[arg(long)]
        target: String,
    },
    /// Show the Node's own state, and that of its providers by its configuration.
    Transport,
    /// Read from the API of an Ollama server.
    Ollama {
        /// The adapter instance on the Node, of type ollama.
        #[arg(long)]
        adapter: String,
        /// What to read.
        #[command(subcommand)]
        operation: Operation,
    },
}

#[derive(Debug, Subcommand)]
enum Operation {
    /// The models that are there.
    Tags,
    /// The models that are loaded.
    Ps,
    /// The details of one model.
    Show {
        /// The model.
        model: String,
    },
    /// The server's version.
    Version,
}

impl Query {
    /// The words of the query, in the order command, adapter, target, operation; empty for none.
    fn words(&self) -> [&str; 4] {
        match self {
            Self::Capabilities { adapter, target } => ["capabilities", adapter, target, ""],
            Self::Transport => ["transport", "", "", ""],
            Self::Ollama { adapter, operation } => match operation {
                Operation::Tags => ["ollama", adapter, "", "tags"],
                Operation::Ps => ["ollama", adapter, "", "ps"],
                Operation::Show { model } => ["ollama", adapter, model, "show"],
                Operation::Version => ["ollama", adapter, "", "version"],
            },
        }
    }
}

/// Runs the command.
///
/// # Errors
/// No Edge answers on the socket, the Node is unknown, not connected or too slow, or it refuses; or the Ollama server answers with
/// an error.
pub fn run(Command::Command(ask): &Command) -> anyhow::Result<()> {
    let socket = match &ask.socket {
        Some(socket) => socket.clone(),
        None => socket::usual_place(&|name| std::env::var(name).ok()),
    };
    let mut document = Vec::new();
    let asked = client::get(&socket, &target(ask), &mut |bytes| {
        document.extend_from_slice(bytes);
        Ok(())
    });
    match asked {
        // The Edge's words say it all.
        Err(ClientError::Refused(_, words)) => anyhow::bail!("{words}"),
        asked => asked?,
    }
    let answer: Document = serde_json::from_slice(&document).with_context(|| {
        format!("{} answers with a document that this version does not understand", socket.display())
    })?;
    let text = if ask.json { String::from_utf8_lossy(&document).into_owned() + "\n" } else { page(&answer) };
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        // Whoever reads has seen enough.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {}
        written => written?,
    }
    match answer
        .fields
        .get("status")
        .filter(|_| answer.command == "ollama" && answer.fields.contains_key("body"))
    {
        Some(status) if !status.starts_with('2') => {
            anyhow::bail!("the Ollama server answers with status {status}")
        }
        _ => Ok(()),
    }
}

/// Path and query of the request.
fn target(ask: &Ask) -> String {
    let [command, adapter, target, operation] = ask.query.words();
    let pairs = [
        ("node", ask.node.as_str()),
        ("command", command),
        ("adapter", adapter),
        ("target", target),
        ("operation", operation),
    ];
    let given: Vec<_> = pairs.into_iter().filter(|(_, value)| !value.is_empty()).collect();
    format!("{PATH}?{}", query::encode(&given))
}

/// One line for each field, or what the Ollama server says.
fn page(answer: &Document) -> String {
    if let Some(body) = answer.fields.get("body").filter(|_| answer.command == "ollama") {
        return match serde_json::from_str::<serde_json::Value>(body) {
            Ok(value) => format!("{value:#}\n"),
            Err(_) => format!("{}\n", plain(body)),
        };
    }
    let width = answer.fields.keys().map(String::len).max().unwrap_or_default();
    answer.fields.iter().map(|(key, value)| format!("{:width$}  {}\n", plain(key), plain(value))).collect()
}

/// Without what a terminal would obey.
fn plain(text: &str) -> String {
    text.chars().map(|char| if char.is_control() { char::REPLACEMENT_CHARACTER } else { char }).collect()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Cli {
        #[command(subcommand)]
        command: Command,
    }

    fn asked(line: &str) -> String {
        let Command::Command(ask) = Cli::try_parse_from(line.split(' ')).unwrap().command;
        target(&ask)
    }

    // req: CMD-1
    #[test]
    fn a_command_line_becomes_a_query() {
        for (line, query) in [
            (
                "x command box1 capabilities --adapter vllm-1 --target Qwen/Qwen3",
                "node=box1&command=capabilities&adapter=vllm-1&target=Qwen%2FQwen3",
            ),
            ("x command box1 transport --json --socket /a", "node=box1&command=transport"),
            ("x command box1 ollama --adapter o ps", "node=box1&command=ollama&adapter=o&operation=ps"),
            (
                "x command box1 ollama --adapter o show q:8b",
                "node=box1&command=ollama&adapter=o&target=q%3A8b&operation=show",
            ),
        ] {
            assert_eq!(asked(line), format!("{PATH}?{query}"));
        }
        for refused in ["x command box1 shell", "x command box1 ollama --adapter o pull q", "x command"] {
            assert!(Cli::try_parse_from(refused.split(' ')).is_err(), "{refused}");
        }
    }

    #[test]
    fn an_answer_is_shown_in_lines_and_an_ollama_servers_as_it_is() {
        let document = |command: &str, pairs: &[(&str, &str)]| Document {
            node: "box1".to_owned(),
            command: command.to_owned(),
            fields: pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
        };
        let told = document("capabilities", &[("target", "q"), ("provider_status", "available")]);
        assert_eq!(page(&told), "provider_status  available\ntarget           q\n");
        let told = document("ollama", &[("status", "200"), ("body", r#"{"version":"1"}"#)]);
        assert_eq!(page(&told), "{\n  \"version\": \"1\"\n}\n");
        let told = document("ollama", &[("status", "200"), ("body", "not json\x1b[2J")]);
        assert_eq!(page(&told), "not json\u{fffd}[2J\n");
    }
}
