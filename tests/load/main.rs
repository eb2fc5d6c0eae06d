//! The product under load, measured: memory and pace. One test at a time, so that none measures another.
//!
//! The programs are those of the `fault` profile (`IOP_TEST_BIN`); see `cargo xtask test`.

mod idle;
mod slow_reader;
mod uploads;
