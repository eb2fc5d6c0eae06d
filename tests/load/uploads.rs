//! Uploads: large request bodies beside streams.
