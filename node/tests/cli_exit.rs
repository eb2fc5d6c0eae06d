//! The end of a Node with programs under way. Alone in its process: afterwards no program starts in it any more.
#![allow(clippy::unwrap_used, reason = "a test ends where something unexpected begins")]

use std::{collections::BTreeMap, rc::Rc, sync::mpsc, time::Duration};

use dataplane::{
    clock,
    shard::{DriverWish, Shard, ShardSpec},
};
use iop_node::adapters::cli::{
    process::{self, Event, LAST_KILL_AFTER, Plan, Process, StartError},
    reader::OutputFormat,
};

// req: PRE-3
#[test]
fn no_program_survives_its_node() {
    let (sent, ready) = mpsc::channel();
    let (end, ended) = mpsc::channel::<()>();
    let spec = ShardSpec { name: "test".to_owned(), cpu: None, driver: DriverWish::Auto };
    let shard = Shard::start(spec, move || async move {
        let deaf = "trap '' TERM; echo $$; sleep 1000; sleep 1000";
        let plan = Plan {
            program: "/bin/sh".into(),
            args: ["-c", deaf].map(str::to_owned).into(),
            environment: Rc::new(BTreeMap::from([("PATH".into(), "/usr/bin:/bin".into())])),
            format: OutputFormat::Text,
        };
        let process = Process::start(&plan, "x".to_owned()).unwrap();
        loop {
            if let Event::Said(said) = process.next().await {
                sent.send(format!("{said:?}")).unwrap();
                break;
            }
        }
        // The shard does not get to stopping it.
        ended.recv().unwrap();
        assert!(matches!(Process::start(&plan, "x".to_owned()), Err(StartError::Ending)));
    })
    .unwrap();
    let said = ready.recv_timeout(Duration::from_secs(30)).unwrap();
    let pid: String = said.chars().filter(char::is_ascii_digit).collect();
    let proc = std::path::PathBuf::from(format!("/proc/{pid}"));
    assert!(proc.exists() && process::counts().0 == 1);
    let begun = clock::now();
    assert_eq!(process::end_all(Duration::from_secs(30)), 0);
    assert!(clock::now() - begun >= LAST_KILL_AFTER);
    assert!(!proc.exists());
    assert_eq!(process::end_all(Duration::ZERO), 0);
    end.send(()).unwrap();
    assert!(shard.join());
}
