//! HTTP/1.1 messages as pure functions of bytes: no socket, no clock.

pub mod body;
pub mod encode;
pub mod parse;

#[cfg(test)]
mod tests;
