//! Limits: what is slow, too many or broken has its defined outcome, and the process lives.

mod crowds;
mod descriptors;
mod logs;
mod panics;
mod place;
mod slow;
