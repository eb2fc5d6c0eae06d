//! The simulation finds every deliberate mistake: without that, its count of checked events means nothing
//! (security.md 5.2).

use std::time::Duration;

use control::fault::{self, Fault};
use iop_sim::run::{self, Plan};

/// Events within which each must be found.
const WITHIN: u64 = 1_000_000;

/// One after another: which one is planted is the whole process's.
#[test]
fn every_planted_fault_is_found() {
    let seed = 1;
    let only = std::env::var("IOP_SIM_FAULT").ok();
    let wanted = |fault: &&Fault| only.as_ref().is_none_or(|name| *name == format!("{fault:?}"));
    let (mut missed, mut table) = (Vec::new(), String::new());
    for &fault in Fault::ALL.iter().filter(wanted) {
        fault::plant(Some(fault));
        let plan = Plan { seed, events: WITHIN, jobs: 1 };
        let report = run::many(&plan, |_, _: Duration| {});
        fault::plant(None);
        let name = format!("{fault:?}");
        match report.found {
            Some(found) => {
                let check = found.failure.broken.check;
                table += &format!("{name:26} {:>8}  {check:18} {}\n", found.events, fault.what());
            }
            None => {
                table += &format!("{name:26} {:>8}  {:18} {}\n", "-", "not found", fault.what());
                missed.push(fault);
            }
        }
    }
    println!("{:26} {:>8}  first check\n{table}", "fault", "events");
    assert!(missed.is_empty(), "not found within {WITHIN} events: {missed:?}");
}
