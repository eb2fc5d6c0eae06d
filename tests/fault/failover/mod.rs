//! Providers that fail before, in and behind the first piece of their answer, and others that could give it instead (cases 30 to
//! 40 of what users of such gateways report).
//!
//! Each test is a stand of its own with a group of providers for each way and fault, all at the same time.

mod backend;
mod budget;
mod keepalive;
mod leaving;
mod lost;
mod provider_error;
mod repeat;
mod schema;
mod stalls;
mod stand;
mod watched;
mod way;
