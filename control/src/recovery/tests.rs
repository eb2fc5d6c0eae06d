//! The guards, one by one.
