//! Recorded inputs, run again.

use std::{sync::Arc, time::Duration};

use control::{
    Machine,
    config::{Capabilities, PoolConfig},
    effect::Effect,
    input::{Admit, ConnectionId, Input, LeaseId, Moment, RequestId},
    limits::{RECORDED_BYTES_MAX, RECORDED_MAX},
    record::{Build, Dump, DumpError, Event, Recorder, Recording, Replayed, replay},
};
use proptest::prelude::*;
use proto::message::ErrorKind;
use sim::{World, world::pool};

use crate::{
    random::{Reader, cases, config, run},
    script::failure,
};

fn recorder(config: &Arc<PoolConfig>) -> Recorder {
    let build = Build { version: "1.2.3".into(), commit: "abc".into() };
    Recorder::new(Machine::new(Arc::clone(config)), build)
}

fn text(dump: &Dump) -> String {
    dump.lines().map(|line| line + "\n").collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases() / 2, ..ProptestConfig::default() })]

    #[test]
    fn a_random_run_gives_the_same_when_it_is_run_again(
        configs in proptest::collection::vec(config(), 3),
        ops in run(1..120),
    ) {
        let mut world = World::new(&configs[0]);
        let mut recorder = recorder(&configs[0]);
        let mut reader = Reader::new(&configs);
        let mut told = 0;
        for op in &ops {
            if let Some(by) = op.waits(&world) {
                world.wait(by);
                while recorder.poll_timeout().is_some_and(|at| at <= world.now) {
                    told += 1;
                    let at = recorder.poll_timeout().unwrap();
                    recorder.handle_timeout(at);
                }
            } else if let Some(input) = reader.read(op, &world) {
                told += 1;
                world.tell(input.clone());
                recorder.handle(world.now, input);
                while recorder.poll_effect().is_some() {}
            }
        }
        let dump = text(&recorder.dump());
        let replayed = replay(&dump);
        prop_assert_eq!(replayed, Ok(Replayed { events: told, difference: None }));
        // From the middle, after all state went through text: what was known there is all there is to know.
        let recording = Dump::read(&dump).unwrap();
        prop_assert_eq!(state(&recording.machine), state(&Machine::new(configs[0].clone())));
        let half = recording.records.len() / 2;
        let mut machine = recording.machine;
        for record in &recording.records[..half] {
            tell(&mut machine, record.at, &record.event);
        }
        let mut read = through_text(&machine);
        prop_assert_eq!(state(&read), state(&machine));
        prop_assert_eq!(read.audit(), Ok(()));
        for record in &recording.records[half..] {
            let (a, b) = (tell(&mut machine, record.at, &record.event), tell(&mut read, record.at, &record.event));
            prop_assert_eq!(a, b);
        }
        prop_assert_eq!(state(&read), state(&machine));
    }
}

fn tell(machine: &mut Machine, at: Moment, event: &Event) -> Vec<Effect> {
    match event {
        Event::Input(input) => machine.handle(at, input.clone()),
        Event::Timeout => machine.handle_timeout(at),
    }
    std::iter::from_fn(|| machine.poll_effect()).collect()
}

/// The machine as its own dump shows it.
fn through_text(machine: &Machine) -> Machine {
    let build = Build { version: "".into(), commit: "".into() };
    let dump = Recorder::new(machine.clone(), build).dump();
    Dump::read(&text(&dump)).unwrap().machine
}

fn state(machine: &Machine) -> String {
    let build = Build { version: "".into(), commit: "".into() };
    Recorder::new(machine.clone(), build).dump().lines().nth(1).unwrap()
}

const ONE: &str = "queue 10000 none \n node n1 p1:cap=2 p2 \n group m p1 p2";

/// Two providers, one Node, and requests that come and go: `count` events in all.
fn busy(recorder: &mut Recorder, from: u64, count: u64) {
    for n in from..from + count {
        let now = Moment(n * 1_000_000);
        let connection = ConnectionId(1);
        let input = match (n, n % 3) {
            (0, _) => {
                Input::Register { connection, certified: "n1".into(), claimed: "n1".into(), token_ok: true }
            }
            (1, _) => Input::Ready { connection, claimed: "n1".into() },
            (_, 2) => Input::Admit(admit(n)),
            (_, 0) => Input::Terminal { connection, lease: LeaseId(n / 3), error: None, sequence: 1 },
            _ => Input::HolderGone { lease: LeaseId(n / 3), sent: true },
        };
        recorder.handle(now, input);
        while recorder.poll_effect().is_some() {}
    }
}

fn admit(request: u64) -> Admit {
    Admit {
        request: RequestId(request),
        group: "m".into(),
        needs: Capabilities(0),
        long: false,
        avoid: Vec::new(),
    }
}

#[test]
fn a_dump_holds_everything_since_the_checkpoint_before_the_last() {
    let mut recorder = recorder(&pool(ONE));
    let max = RECORDED_MAX as u64;
    let mut told = 0;
    for (count, first, len) in [
        (0, 0, 0),
        (5, 0, 5),
        (max, 0, max),
        (max + 1, 0, max + 1),
        (2 * max, 0, 2 * max),
        (2 * max + 1, max, max + 1),
        (3 * max, max, 2 * max),
        (3 * max + 7, 2 * max, max + 7),
    ] {
        busy(&mut recorder, told, count - told);
        told = count;
        let dump = recorder.dump();
        assert_eq!((dump.len() as u64, dump.is_empty()), (len, len == 0));
        let recording = Dump::read(&text(&dump)).unwrap();
        assert_eq!((recording.first_input, recording.records.len() as u64), (first, len), "{count}");
        assert_eq!((&*recording.build.version, &*recording.build.commit), ("1.2.3", "abc"));
        assert_eq!(recording.replay(), Replayed { events: len as usize, difference: None }, "{count}");
    }
    assert!(recorder.counters().granted > 9_000 && recorder.machine().audit().is_ok());
}

#[test]
fn texts_of_peers_take_bounded_room() {
    let mut recorder = recorder(&pool(ONE));
    let mut error = failure(ErrorKind::Connect);
    error.message = "x".repeat(100_000);
    for n in 0..200_u64 {
        let error = Some(error.clone());
        let input = Input::Terminal { connection: ConnectionId(1), lease: LeaseId(n), error, sequence: 0 };
        recorder.handle(Moment(n), input);
    }
    let kept = recorder.dump().len() * 100_000;
    assert!((RECORDED_BYTES_MAX..=2 * RECORDED_BYTES_MAX + 200_000).contains(&kept), "{kept}");
    assert_eq!(replay(&text(&recorder.dump())).unwrap().difference, None);
}

#[test]
fn a_driver_that_collects_effects_later_records_the_same() {
    let (mut prompt, mut late) = (recorder(&pool(ONE)), recorder(&pool(ONE)));
    busy(&mut prompt, 0, 60);
    for record in Dump::read(&text(&prompt.dump())).unwrap().records {
        let Event::Input(input) = record.event else { panic!("no timeouts here") };
        late.handle(record.at, input);
    }
    assert_eq!(text(&late.dump()), text(&prompt.dump()));
}

/// As if another build had made another decision: the recorded one prefers `p1`, this one `p2`.
#[test]
fn a_changed_decision_is_noticed_in_the_line_where_it_was_made() {
    let mut recorder = recorder(&pool(&ONE.replace("p2 \n", "p2:prio=1 \n")));
    busy(&mut recorder, 0, 60);
    let dump = text(&recorder.dump());
    assert_eq!(replay(&dump).unwrap().difference, None);
    let changed = dump.replace("\"priority\":1", "\"priority\":0");
    let recording = Dump::read(&changed).unwrap();
    // The first that the two would answer in different ways, by comparing what they answer.
    let (mut one, mut other) = (Dump::read(&dump).unwrap().machine, recording.machine.clone());
    let differs = |record: &control::record::Record| {
        tell(&mut one, record.at, &record.event) != tell(&mut other, record.at, &record.event)
    };
    let at = recording.records.iter().position(differs).unwrap();
    let difference = recording.clone().replay().difference.unwrap();
    assert_eq!(difference.line, Recording::FIRST_LINE + at);
    assert_eq!(difference.record, recording.records[at]);
    assert!(matches!(&difference.effects[..], [Effect::Grant(grant)] if *grant.provider == *"p2"));
    assert!(difference.found != difference.record.digest);
    let line = changed.lines().nth(difference.line - 1).unwrap();
    assert!(line.contains(&format!("{:016x}", difference.record.digest)) && line.contains("Admit"));
}

#[test]
fn what_is_no_dump_is_refused_with_its_line_and_its_reason() {
    let mut recorder = recorder(&pool(ONE));
    busy(&mut recorder, 0, 6);
    recorder.handle_timeout(Moment(9_000_000));
    let good = text(&recorder.dump());
    let lines: Vec<&str> = good.lines().collect();
    assert_eq!(lines.len(), 9);
    let with = |line: usize, text: &str| {
        let mut lines = lines.clone();
        lines[line - 1] = text;
        lines.join("\n")
    };
    let (header, checkpoint, input) = (lines[0], lines[1], lines[4]);
    let cases = [
        (String::new(), "line 1: expected the header of a recording, found the end of the text"),
        ("{}".to_owned(), "line 1: expected the header of a recording: missing field `format` at column 2"),
        (
            "GET / HTTP/1.1".to_owned(),
            "line 1: expected the header of a recording: expected value at column 1",
        ),
        (
            with(1, &header.replace("iop-control-inputs", "other")),
            "line 1: expected format iop-control-inputs of version 2, found \"other\" of version 2",
        ),
        (
            with(1, &header.replace("version\":2", "version\":1")),
            "line 1: expected format iop-control-inputs of version 2, found \"iop-control-inputs\" of version 1",
        ),
        (header.to_owned(), "line 2: expected a checkpoint, found the end of the text"),
        (with(2, input), "line 2: expected a checkpoint: unknown field `at`"),
        (
            with(2, &checkpoint.replace("\"leases\":", "\"other\":")),
            "line 2: expected a checkpoint: missing field `leases`",
        ),
        (
            with(2, &checkpoint.replace("\"granted\":0", "\"granted\":1")),
            "line 2: the checkpoint contradicts itself: slots granted, returned by cause and held do not add up",
        ),
        (
            with(2, &checkpoint.replace("\"in_flight\":0", "\"in_flight\":1")),
            "line 2: the checkpoint contradicts itself: a provider's load",
        ),
        (
            with(
                2,
                &checkpoint.replace("\"overlays_lowered\":0", "\"overlays_lowered\":18446744073709551615"),
            ),
            "line 2: the checkpoint contradicts itself: overlays",
        ),
        (with(5, ""), "line 5: expected an input: EOF while parsing a value"),
        (with(5, &input[..input.len() / 2]), "line 5: expected an input: EOF"),
        (with(5, &input.replace("Admit", "Submit")), "line 5: expected an input: unknown variant `Submit`"),
        (with(5, &input.replace("\"at\":", "\"when\":")), "line 5: expected an input: unknown field `when`"),
        (
            with(5, &input.replace("\"at\":2", "\"at\":-2")),
            "line 5: expected an input: invalid value: integer `-2000000`",
        ),
        (
            with(5, &input.replace("\"digest\":\"", "\"digest\":\"0")),
            "line 5: expected an input: a digest is 16 hexadecimal digits",
        ),
        (
            with(5, &input.replace("\"digest\":\"", "\"digest\":\"+").replace("\"}", "")),
            "line 5: expected an input: EOF while parsing a string",
        ),
        (with(9, "\"Timeout\""), "line 9: expected an input: invalid type"),
    ];
    for (text, expected) in cases {
        let error = Dump::read(&text).map(|_| ()).unwrap_err();
        assert!(error.to_string().starts_with(expected), "{error}\n{expected}");
        assert_eq!(replay(&text), Err(error));
    }
    assert!(matches!(Dump::read(""), Err(DumpError::Short { line: 1, .. })));
    assert_eq!(replay(&good).unwrap(), Replayed { events: 7, difference: None });
    assert_eq!(replay(&good.replace('\n', "\r\n")).unwrap().difference, None);
}

#[test]
fn an_empty_recording_is_one() {
    let recorder = recorder(&pool(ONE));
    let dump = recorder.dump();
    assert!(dump.is_empty());
    assert_eq!(replay(&text(&dump)), Ok(Replayed { events: 0, difference: None }));
    assert_eq!(recorder.poll_timeout().map(|at| at.after(Duration::ZERO)), None);
}
