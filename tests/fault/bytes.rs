//! Bytes: a body arrives as it was sent, however it was cut on its way.
