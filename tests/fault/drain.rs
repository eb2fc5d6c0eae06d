//! Drain: SIGTERM under load.
