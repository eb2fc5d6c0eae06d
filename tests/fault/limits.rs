//! Limits: what is slow, too many or broken has its defined outcome, and the process lives.
