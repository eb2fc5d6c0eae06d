//! `iop-edge pki`: the two CAs of a deployment and the certificates of its workloads, without any other tool (IDN-5).
//!
//! ```text
//! edge-ca ──signs──▶ edge.crt           trusted by Nodes only
//! node-ca ──signs──▶ the Nodes' leaves  trusted by the Edge only
//! ```
//!
//! Two CAs and not one with name constraints: TLS libraries do not enforce constraints on URI names, so only the trust
//! bundles can keep a stolen Node-signing key from making an Edge. `docs/security.md` has the certificate profile for those
//! who bring their own PKI.
//!
//! | Module | Owns |
//! |---|---|
//! | [`command`] | the command line |
//! | `execute` | what each command does and says |
//! | [`authority`] | CAs and what they sign |
//! | [`store`] | the directory, and writing files that nobody else reads or overwrites |
//! | [`bundle`] | the Node's join file |
//! | [`inspect`] | showing what is in a file |

pub mod authority;
pub mod bundle;
pub mod command;
mod execute;
pub mod inspect;
pub mod store;

#[cfg(test)]
mod tests;

use std::io;

use dataplane::clock;
use thiserror::Error;

pub use command::Command;

/// Runs one command and says on standard output what it wrote and what to do next.
///
/// # Errors
/// [`PkiError`]. A command that fails leaves no file of its own behind, and never changes one that was there.
pub fn run(command: Command) -> Result<(), PkiError> {
    execute::execute(command, clock::unix_seconds(), &mut io::stdout().lock())
}

/// Why a command of `iop-edge pki` failed. Never shows key material.
#[derive(Debug, Error)]
pub enum PkiError {
    /// A file to be written is there already, or cannot be written; or the directory's files cannot be used.
    #[error(transparent)]
    Store(#[from] store::StoreError),
    /// The CA cannot make or sign.
    #[error(transparent)]
    Authority(#[from] authority::AuthorityError),
    /// Neither `pki init` nor `pki issue node` was told where Nodes dial.
    #[error("no address for nodes to dial: give --advertise HOST:PORT, here or to pki init")]
    NoAdvertise,
    /// The file to inspect holds no certificate.
    #[error(transparent)]
    Inspect(#[from] inspect::InspectError),
    /// Some certificates of the inspected file would be refused; they were shown with the reason.
    #[error("{0} of the certificates would be refused")]
    Unfit(usize),
    /// Standard output.
    #[error("cannot write to standard output")]
    Output(#[from] io::Error),
}
