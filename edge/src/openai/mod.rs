//! The OpenAI surface: its JSON, and what routing needs of its requests.

pub mod models;
pub mod scan;
