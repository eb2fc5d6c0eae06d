//! The OpenAI surface: its JSON, and what routing needs of its requests.

pub mod estimate;
pub mod models;
pub mod normalized;
pub mod policy;
pub mod responses;
pub mod scan;
