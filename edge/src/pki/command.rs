//! The command line of `iop-edge pki`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use proto::identity::{Name, TRUST_DOMAIN_DEFAULT, TrustDomain};

use super::bundle::Address;

/// Certificates: make the CAs, issue for Edges and Nodes, look into files.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Make both CAs and the Edge's own certificate
    Init(Init),
    /// Issue a certificate for another Edge or a Node
    #[command(subcommand)]
    Issue(Issue),
    /// Show what the certificates in a PEM file or join file say, and whether they would be accepted
    Inspect(Inspect),
}

/// `pki init`.
#[derive(Debug, Args)]
pub struct Init {
    /// Directory to make the files in; made if missing
    #[arg(long, value_name = "DIR", default_value = "pki")]
    pub dir: PathBuf,
    /// Name of the Edge, the same as edge.name in edge.yaml
    #[arg(long, value_name = "NAME")]
    pub edge: Name,
    /// Where Nodes will dial this Edge; goes into their join files
    #[arg(long, value_name = "HOST:PORT")]
    pub advertise: Option<Address>,
    /// First part of every workload's URI
    #[arg(long, value_name = "DOMAIN", default_value = TRUST_DOMAIN_DEFAULT)]
    pub trust_domain: TrustDomain,
}

/// `pki issue`.
#[derive(Debug, Subcommand)]
pub enum Issue {
    /// Issue for a Node and write its join file: all that its host needs
    Node(IssueNode),
    /// Issue for another Edge
    Edge(IssueEdge),
}

/// `pki issue node`.
#[derive(Debug, Args)]
pub struct IssueNode {
    /// Name of the Node, the same as nodes[].id in edge.yaml
    #[arg(value_name = "NAME")]
    pub name: Name,
    /// Directory that pki init has made
    #[arg(long, value_name = "DIR", default_value = "pki")]
    pub dir: PathBuf,
    /// Join file to write; it holds the Node's private key
    #[arg(long, value_name = "FILE")]
    pub bundle: PathBuf,
    /// Where the Node dials; default: what pki init was told
    #[arg(long, value_name = "HOST:PORT")]
    pub advertise: Option<Address>,
    /// Name of the Edge it will accept; default: the one of pki init
    #[arg(long, value_name = "NAME")]
    pub edge: Option<Name>,
}

/// `pki issue edge`.
#[derive(Debug, Args)]
pub struct IssueEdge {
    /// Name of the Edge
    #[arg(value_name = "NAME")]
    pub name: Name,
    /// Directory that pki init has made
    #[arg(long, value_name = "DIR", default_value = "pki")]
    pub dir: PathBuf,
    /// Certificate file to write
    #[arg(long, value_name = "FILE")]
    pub out_cert: PathBuf,
    /// Private key file to write
    #[arg(long, value_name = "FILE")]
    pub out_key: PathBuf,
}

/// `pki inspect`.
#[derive(Debug, Args)]
pub struct Inspect {
    /// PEM file or join file
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
}
