//! What once broke a check, and runs that are kept because they reach far, are judged again.

use std::{fs, path::PathBuf};

use iop_sim::{
    dump::{self, Loaded},
    judge::Depth,
    run,
    simulation::Simulation,
    trace, watchdog,
};

fn directory() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("seeds")
}

#[test]
fn every_check_holds_in_every_checked_in_list_of_inputs() {
    let mut judged = 0;
    for entry in fs::read_dir(directory()).unwrap() {
        let file = entry.unwrap().path();
        if file.extension().is_none_or(|extension| extension != "jsonl") {
            continue;
        }
        let Loaded::Whole(list) = dump::read(&file).unwrap() else { panic!("{}: a part", file.display()) };
        if let Some(failure) = trace::judge(&list, Depth::ALWAYS) {
            panic!("{}: {} at step {}", file.display(), failure.broken, failure.steps);
        }
        judged += 1;
    }
    assert!(judged > 0, "nothing is checked in");
}

/// I24: the same inputs give the same effects, also in another process on another day: nothing of a run is left to chance.
#[test]
fn every_checked_in_seed_holds_and_gives_the_same_twice() {
    let seeds = fs::read_to_string(directory().join("seeds.txt")).unwrap();
    let seeds = seeds.lines().filter_map(|line| line.split('#').next()).map(str::trim);
    for seed in seeds.filter(|seed| !seed.is_empty()) {
        let seed: u64 = seed.parse().unwrap();
        let run = || match run::one(seed, run::length(seed), false).0 {
            Ok(done) => (done.steps, done.digest),
            Err(failure) => panic!("seed {seed}: {} at step {}", failure.broken, failure.steps),
        };
        assert_eq!(run(), run(), "seed {seed}");
    }
}

#[test]
fn what_a_simulation_writes_is_read_and_judged_as_it_was() {
    let mut world = Simulation::new(7, true);
    world.run(400).unwrap();
    let recorded = world.trace().unwrap();
    let file = std::env::temp_dir().join(format!("iop-sim-{}.jsonl", std::process::id()));
    dump::write(&file, &recorded, "test").unwrap();
    let read = dump::read(&file).unwrap();
    let text = fs::read_to_string(&file).unwrap();
    fs::remove_file(&file).unwrap();
    let Loaded::Whole(read) = read else { panic!("it has its beginning") };
    assert_eq!((&read.config, &read.steps), (&recorded.config, &recorded.steps));
    let replayed = control::record::replay(&text).unwrap();
    assert_eq!((replayed.events, replayed.difference), (recorded.steps.len(), None));
    assert!(trace::judge(&read, Depth::ALWAYS).is_none());
}

/// A world in which something never happens has not tested it.
#[test]
fn the_worlds_reach_everything_that_the_machine_counts() {
    let plan = run::Plan { seed: 3, events: 600_000, jobs: 2 };
    let report = run::many(&plan, |_, _| {});
    assert!(report.found.is_none(), "{:?}", report.found);
    let never: Vec<_> = report.seen.iter().filter(|(_, count)| *count == 0).collect();
    assert!(never.is_empty(), "never seen: {never:?}");
}

// req: STL-3, STL-4, STL-7, STL-8, STL-9, PRE-1, PRE-2, PRE-3
#[test]
fn watchdogs_keep_every_check_and_reach_everything_and_the_same_seed_gives_the_same_twice() {
    let report = watchdog::many(&run::Plan { seed: 3, events: 400_000, jobs: 2 });
    assert!(report.found.is_none(), "{:?}", report.found);
    let never: Vec<_> = report.seen.iter().filter(|(_, count)| *count == 0).collect();
    assert!(never.is_empty(), "never seen: {never:?}");
    let digest = || watchdog::one(11, 10_000).unwrap().digest;
    assert_eq!(digest(), digest());
}
