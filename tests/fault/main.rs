//! The product under fault: whole processes, real sockets, and what goes wrong around them.
//!
//! The programs are those of the `fault` profile (`IOP_TEST_BIN`), built with the `test-hooks` feature; see
//! `cargo xtask test`. Environment as of the `e2e` suite.

mod bytes;
mod cuts;
mod deaths;
mod drain;
mod failover;
mod flaps;
mod holds;
mod limits;
mod network;
mod stalls;
#[path = "../e2e/support/mod.rs"]
#[allow(dead_code, reason = "the scripted Node of the e2e suite, of which this one needs a part")]
mod support;

#[test]
fn the_programs_have_the_hooks_that_this_suite_needs() -> anyhow::Result<()> {
    iop_tests::bench::hooked_site().map(drop)
}
