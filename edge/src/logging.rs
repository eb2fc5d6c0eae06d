//! Log output: text or JSON on standard error.

use dataplane::shard::log_panics;
use tracing_subscriber::{EnvFilter, fmt, layer::SubscriberExt, util::SubscriberInitExt};

use crate::{
    config::settings::{LogFormat, Logging},
    log_line::{StandardError, TextLines},
};

/// Installs the process's subscriber, also for panics. `RUST_LOG` overrides `logging.level`.
///
/// # Errors
/// One is installed already.
pub fn install(logging: &Logging) -> anyhow::Result<()> {
    // Its words are for those who work on it, one for each frame, and some of them quote what a client sent.
    let level = format!("{},h2=error", logging.level.as_str());
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(level));
    let lines = tracing_subscriber::registry().with(filter);
    match logging.format {
        LogFormat::Text => lines.with(TextLines).try_init(),
        LogFormat::Json => {
            // Its own complaint would go to standard error too, wait for it, and panic when it is closed.
            let json = fmt::layer().json().with_writer(StandardError).log_internal_errors(false);
            lines.with(json).try_init()
        }
    }
    .map_err(|error| anyhow::anyhow!("logging: {error}"))?;
    log_panics();
    Ok(())
}
