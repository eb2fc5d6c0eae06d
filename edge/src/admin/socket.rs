//! Where the admin socket is.

use std::{path::PathBuf, time::Duration};

use anyhow::Context;
use dataplane::net::LocalSocket;

use crate::config::Settings;

/// The socket's file within a directory for it.
pub const FILE: &str = "iop-edge.sock";
/// Where a command looks that is told no place and finds none in its environment: in the directory that systemd makes for a unit
/// with `RuntimeDirectory=iop-edge`, which is known to the unit's own processes only.
const USUAL: &str = "/run/iop-edge/iop-edge.sock";

/// The socket within the runtime directory that the environment names; systemd may name several, and the first is the unit's
/// own.
pub fn of_runtime_directory(env: &dyn Fn(&str) -> Option<String>) -> Option<PathBuf> {
    let directories = env("RUNTIME_DIRECTORY")?;
    let first = directories.split(':').next().filter(|first| !first.is_empty())?;
    Some(PathBuf::from(first).join(FILE))
}

/// Where a command looks for the Edge, unless it is told.
pub fn usual_place(env: &dyn Fn(&str) -> Option<String>) -> PathBuf {
    of_runtime_directory(env).unwrap_or_else(|| PathBuf::from(USUAL))
}

/// Binds the socket of this configuration; `None` where it has none. It waits up to `patience` for another Edge to be gone.
///
/// # Errors
/// The socket cannot be had: another Edge serves on it, its directory is missing or open to others.
pub fn bind(settings: &Settings, patience: Duration) -> anyhow::Result<Option<LocalSocket>> {
    let Some(path) = &settings.listen.admin_socket else {
        tracing::info!("no admin socket: listen.admin_socket is empty and RUNTIME_DIRECTORY is not set");
        return Ok(None);
    };
    let socket = LocalSocket::bind(path, patience)
        .with_context(|| format!("listen.admin_socket: cannot listen on {}", path.display()))?;
    tracing::info!(key = %"listen.admin_socket", path = %path.display(), "listening");
    Ok(Some(socket))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn the_first_runtime_directory_counts() {
        let env =
            |value: &'static str| move |name: &str| (name == "RUNTIME_DIRECTORY").then(|| value.to_owned());
        assert_eq!(usual_place(&env("/run/iop:/run/other")), Path::new("/run/iop/iop-edge.sock"));
        assert_eq!(usual_place(&env("")), Path::new(USUAL));
        assert_eq!(usual_place(&|_| None), Path::new(USUAL));
        assert_eq!(of_runtime_directory(&|_| None), None);
    }
}
