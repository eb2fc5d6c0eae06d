//! The simulation finds every deliberate mistake: without that, its count of checked events means nothing
//! (security.md 5.2).

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use control::fault::{self, Fault};
use iop_sim::{
    dump,
    run::{self, Found, Plan},
    trace, watchdog,
};
use node::fault as watchdogs;

/// Events within which each must be found.
const WITHIN: u64 = 5_000_000;

/// One after another: which one is planted is the whole process's.
#[test]
fn every_planted_fault_is_found() {
    let seed = 1;
    let only = std::env::var("IOP_SIM_FAULT").ok();
    let wanted = |fault: &&Fault| only.as_ref().is_none_or(|name| *name == format!("{fault:?}"));
    let lists = std::env::var_os("IOP_SIM_LISTS").map(PathBuf::from);
    let (mut missed, mut table) = (Vec::new(), String::new());
    for &fault in Fault::ALL.iter().filter(wanted) {
        fault::plant(Some(fault));
        let plan = Plan { seed, events: WITHIN, jobs: 1 };
        let report = run::many(&plan, |_, _: Duration| {});
        fault::plant(None);
        let name = format!("{fault:?}");
        match report.found {
            Some(found) => {
                let inputs = lists.as_ref().map_or_else(String::new, |to| shorten(fault, &found, to));
                let (check, seed) = (found.failure.broken.check, found.seed);
                table += &format!(
                    "{name:26} {:>8} {inputs:>6}  {check:18} {seed:>20} {}\n",
                    found.events,
                    fault.what()
                );
            }
            None => {
                table += &format!("{name:26} {:>8} {:>6}  {:39} {}\n", "-", "", "not found", fault.what());
                missed.push(fault);
            }
        }
    }
    println!("{:26} {:>8} {:>6}  {:18} {:>20}\n{table}", "fault", "events", "inputs", "first check", "seed");
    assert!(missed.is_empty(), "not found within {WITHIN} events: {missed:?}");
}

/// Makes the inputs that show a fault few, and writes them for the tests of seeds; says how many they are.
fn shorten(fault: Fault, found: &Found, to: &Path) -> String {
    fault::plant(Some(fault));
    let (_, recorded) = run::one(found.seed, found.steps, true);
    let shortest =
        recorded.map(|recorded| trace::minimise(&recorded, &found.failure, Duration::from_secs(8)));
    fault::plant(None);
    let Some(shortest) = shortest else { return String::new() };
    dump::write(&to.join(format!("{fault:?}.jsonl")), &shortest, "planted").unwrap();
    shortest.steps.len().to_string()
}

/// The same of the Node's watchdog, whose faults are a set of their own.
#[test]
fn every_planted_fault_of_the_watchdog_is_found() {
    let (mut missed, mut table) = (Vec::new(), String::new());
    for &fault in watchdogs::Fault::ALL {
        watchdogs::plant(Some(fault));
        let report = watchdog::many(&Plan { seed: 1, events: WITHIN, jobs: 1 });
        watchdogs::plant(None);
        let (name, what) = (format!("{fault:?}"), fault.what());
        match report.found {
            Some(Found { events, failure, .. }) => {
                table += &format!("{name:26} {events:>8}  {:18} {what}\n", failure.broken.check);
            }
            None => {
                table += &format!("{name:26} {:>8}  {:18} {what}\n", "-", "not found");
                missed.push(fault);
            }
        }
    }
    println!("{:26} {:>8}  first check\n{table}", "fault", "events");
    assert!(missed.is_empty(), "not found within {WITHIN} events: {missed:?}");
}
