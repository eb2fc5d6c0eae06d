//! What a program has of the machine. Alone in its process, which does without huge pages from here on.
#![allow(clippy::unwrap_used, reason = "a test ends where something unexpected begins")]

use std::{collections::BTreeMap, fs, rc::Rc, sync::mpsc};

use dataplane::shard::{DriverWish, Shard, ShardSpec, use_small_pages};
use iop_node::adapters::cli::{
    process::{Event, Plan, Process},
    reader::{OutputFormat, Said},
};

const CORES: &str = "Cpus_allowed_list:";
const HUGE_PAGES: &str = "THP_enabled:";

/// A field of `/proc/self/status`; empty on a kernel that does not have it.
fn field(status: &str, name: &str) -> String {
    status.lines().find_map(|line| Some(line.strip_prefix(name)?.trim().to_owned())).unwrap_or_default()
}

fn own(name: &str) -> String {
    field(&fs::read_to_string("/proc/self/status").unwrap(), name)
}

#[test]
fn a_program_has_the_cores_and_pages_of_the_machine_and_not_those_of_its_shard() {
    let (cores, huge_pages) = (own(CORES), own(HUGE_PAGES));
    use_small_pages();
    let small = own(HUGE_PAGES);
    let first = cores.split([',', '-']).next().unwrap().parse().unwrap();
    let (sent, told) = mpsc::channel();
    let spec = ShardSpec { name: "test".to_owned(), cpu: Some(first), driver: DriverWish::Auto };
    let shard = Shard::start(spec, move || async move {
        let plan = Plan {
            program: "/bin/cat".into(),
            args: ["/proc/self/status".to_owned()].into(),
            environment: Rc::new(BTreeMap::new()),
            format: OutputFormat::Text,
        };
        for _ in 0..2 {
            let process = Process::start(&plan, "x".to_owned()).unwrap();
            let mut status = String::new();
            loop {
                match process.next().await {
                    Event::PromptTaken => {}
                    Event::Said(said) => said.into_iter().for_each(|piece| {
                        if let Said::Text(text) = piece {
                            status.push_str(&text);
                        }
                    }),
                    Event::Ended(result) => {
                        assert!(result.is_ok(), "{result:?}");
                        break;
                    }
                }
            }
            sent.send(status).unwrap();
        }
    });
    assert!(shard.unwrap().join());
    let told: Vec<_> = told.try_iter().collect();
    assert_eq!(told.len(), 2);
    for status in told {
        assert_eq!(field(&status, CORES), cores);
        assert_eq!(field(&status, HUGE_PAGES), huge_pages);
    }
    assert_eq!(own(HUGE_PAGES), small, "the node has small pages again");
}
