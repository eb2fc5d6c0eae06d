//! The harness: the product's own programs as processes on this machine, with a throw-away PKI and configuration.
//!
//! It shares no code with the product: it knows the command lines, the files and the log lines that people see.

pub mod bench;
pub mod config;
pub mod engine;
pub mod fault_proxy;
pub mod http;
pub mod http2;
pub mod kernel;
pub mod model;
pub mod ollama;
pub mod played;
pub mod process;
pub mod procfs;
pub mod random;
pub mod scripted;
pub mod site;
pub mod sockets;
pub mod stream_rules;

pub use config::{EdgeYaml, ProviderYaml};
pub use process::Process;
pub use site::{Edge, Provider, Site};
