//! Paired sessions in memory: the proof matrix of certificates, and the behaviour of a session on any cut of its bytes.

pub(crate) mod certs;
mod matrix;
mod pair;
mod protocol;
mod stream;
