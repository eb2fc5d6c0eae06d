//! Log output: text or JSON on standard error.

use dataplane::{log::LogWriter, shard::log_panics};
use tracing_subscriber::EnvFilter;

use crate::config::settings::{LogFormat, Logging};

/// Installs the process's subscriber, also for panics. `RUST_LOG` overrides `logging.level`.
///
/// # Errors
/// One is installed already.
pub fn install(logging: &Logging) -> anyhow::Result<()> {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(logging.level.as_str()));
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(|| LogWriter)
        // Its own complaint would go to standard error too, wait for it, and panic when it is closed.
        .log_internal_errors(false);
    match logging.format {
        LogFormat::Text => builder.with_ansi(false).try_init(),
        LogFormat::Json => builder.json().try_init(),
    }
    .map_err(|error| anyhow::anyhow!("logging: {error}"))?;
    log_panics();
    Ok(())
}
