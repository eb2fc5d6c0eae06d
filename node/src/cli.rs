//! The command line.

use std::path::{Path, PathBuf};

use clap::{Args, Parser, Subcommand};

/// The IOP Node: dials an Edge, takes its configuration from there, executes against local providers.
#[derive(Debug, Parser)]
#[command(name = "iop-node", version, about)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Connect to the Edge and serve until a termination signal. Exit code 0 after a signal, 1 when the Node's own files
    /// are wrong or the attempts are used up.
    ///
    /// Environment: IOP_DRIVER=auto|io_uring|epoll, RUST_LOG, IOP_NODE_TOKEN (the optional second factor).
    Run(Source),
    /// Check the file, the certificate, the key and the CA without connecting. Exit code 0 when they can be used.
    Check(Source),
}

/// Where the Node's own settings are.
#[derive(Args, Debug)]
#[group(required = true, multiple = false)]
pub struct Source {
    /// A join file, as `iop-edge pki issue node NAME --bundle FILE` makes it.
    #[arg(long, value_name = "FILE")]
    join: Option<PathBuf>,
    /// A node.yaml.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl Source {
    /// The file; both kinds have the same tree.
    #[must_use]
    pub fn file(&self) -> &Path {
        self.join.as_deref().or(self.config.as_deref()).unwrap_or(Path::new(""))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_one_file_is_named() {
        for (line, good) in [
            ("iop-node run --join a.yaml", true),
            ("iop-node run --config a.yaml", true),
            ("iop-node check --config a.yaml", true),
            ("iop-node run", false),
            ("iop-node run --join a.yaml --config b.yaml", false),
            ("iop-node serve --config a.yaml", false),
        ] {
            let parsed = Cli::try_parse_from(line.split(' '));
            assert_eq!(parsed.is_ok(), good, "{line}");
            if let Ok(Cli { command: Command::Run(source) | Command::Check(source) }) = parsed {
                assert_eq!(source.file(), Path::new("a.yaml"));
            }
        }
    }
}
