//! `kill -9` of each process while clients are in every phase: none is told a lie, nothing leaks, and it all comes back by
//! itself.
//!
//! `IOP_TEST_SEED` repeats the draws of a run; `IOP_TEST_ROUNDS` asks for more or fewer deaths than 100.

mod crowd;
mod moments;
mod place;
mod rounds;
