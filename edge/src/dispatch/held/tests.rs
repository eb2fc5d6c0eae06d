use std::{sync::Arc, time::Duration};

use dataplane::clock;

use super::*;
use crate::{
    config::gate::Enforcement,
    gate::active::{Active, Looks},
};

const ROLE: &str = "data: {\"id\":\"x\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n";
const DONE: &str = "data: [DONE]\n\n";

fn head(status: u16, kind: &str) -> Head {
    let headers = vec![Header { name: "content-type".to_owned(), value: kind.as_bytes().to_vec().into() }];
    Head { status, headers, until_close: false }
}

fn stream(wants: Wants) -> Held {
    Held::new(head(200, "text/event-stream"), false, Surface::Chat, wants)
}

fn whole(status: u16, wants: Wants) -> Held {
    Held::new(head(status, "application/json"), false, Surface::Chat, wants)
}

fn delta(text: &str) -> String {
    format!("data: {{\"id\":\"x\",\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{text}\"}}}}]}}\n\n")
}

fn push(held: &mut Held, text: &str) -> Came {
    held.push(text.as_bytes().to_vec(), clock::now)
}

fn due(held: &mut Held) -> String {
    String::from_utf8(held.take_due().0).unwrap()
}

fn watched(enforcement: Enforcement, hold_runes: usize) -> Wants {
    let looks = Looks { enforcement, hold_runes, timeout: Duration::from_secs(5) };
    let active = Active { repeat: Some(looks), ..Active::default() };
    Wants { errors: false, watch: Watch::new(&active, Arc::default(), None).map(Box::new) }
}

// req: REC-2
#[test]
fn what_comes_before_content_is_held_with_the_head_and_goes_out_with_it() {
    let mut held = stream(Wants::default());
    for text in [": hi\n\n", ROLE, &ROLE[..20], &ROLE[20..]] {
        assert!(matches!(push(&mut held, text), Came::Nothing), "{text}");
    }
    assert!(matches!(push(&mut held, &delta("a")), Came::Content));
    assert_eq!(due(&mut held), [": hi\n\n", ROLE, ROLE, &delta("a")].concat());
    assert_eq!(held.take_head().map(|head| head.status), Some(200));
    assert!(!held.is_watched(), "and is held no longer");

    let mut ended = stream(Wants::default());
    push(&mut ended, ROLE);
    assert!(ended.is_cut());
    assert!(matches!(push(&mut ended, DONE), Came::Content), "an answer may be empty");
    assert!(!ended.is_cut());
}

// req: REC-2
#[test]
fn the_head_may_go_out_before_and_no_more_is_held_than_the_bound() {
    let mut held = stream(Wants::default());
    push(&mut held, ROLE);
    assert!(held.take_stream_head().is_some() && held.take_stream_head().is_none());
    let comment = format!(": {}\n\n", "x".repeat(1_000));
    let pushed = (0..100).find(|_| matches!(push(&mut held, &comment), Came::Content)).unwrap();
    assert!((60..70).contains(&pushed), "{pushed}");
    assert!(due(&mut held).starts_with(ROLE));

    // What is no stream has no place for a sign of life, and is held until its first byte.
    let mut held = whole(200, Wants::default());
    assert!(held.take_stream_head().is_none());
    assert!(matches!(push(&mut held, "{"), Came::Content));
}

// req: SEG-6
#[test]
fn an_error_before_content_is_told_and_one_behind_it_is_content() {
    let error = "data: {\"error\":{\"message\":\"x\",\"code\":\"server_error\"}}\n\n";
    let mut held = stream(Wants::default());
    push(&mut held, ROLE);
    assert!(matches!(push(&mut held, error), Came::Failure(_)));
    held.open();
    assert_eq!(due(&mut held), [ROLE, error].concat(), "nothing of it is lost");
    let mut held = stream(Wants::default());
    assert!(matches!(push(&mut held, &[&delta("a"), error].concat()), Came::Content));
    let mut held = stream(Wants::default());
    assert!(matches!(push(&mut held, "data: {\"choi\n\n"), Came::Malformed));
}

// req: SEG-2, SEG-6
#[test]
fn a_whole_answer_is_judged_by_its_end_where_errors_are() {
    let judged = |status, body: &str| {
        let mut held = whole(status, Wants { errors: true, watch: None });
        assert!(matches!(push(&mut held, body), Came::Nothing));
        held.class()
    };
    assert_eq!(judged(200, "{\"choices\":[]}"), None);
    assert_eq!(judged(200, "{\"choi"), Some(ErrorClass::Malformed));
    assert_eq!(judged(500, "{}"), Some(ErrorClass::Server));
    assert_eq!(judged(503, "{}"), Some(ErrorClass::Backpressure));
    assert_eq!(whole(200, Wants { errors: true, watch: None }).class(), Some(ErrorClass::Empty));
    assert_eq!(whole(204, Wants { errors: true, watch: None }).class(), None);
    let mut unjudged = whole(500, Wants::default());
    assert!(matches!(push(&mut unjudged, "{}"), Came::Content) && unjudged.class().is_none());
    // What is too long for an error is none.
    let mut long = whole(200, Wants { errors: true, watch: None });
    push(&mut long, &"x".repeat(60_000));
    assert!(matches!(push(&mut long, &"x".repeat(10_000)), Came::Content));
}

// req: SEG-2
#[test]
fn a_watched_stream_goes_out_in_whole_events_once_enough_of_it_is_there() {
    let mut held = stream(watched(Enforcement::Blocking, 10));
    assert!(matches!(push(&mut held, &[ROLE, &delta("12345")].concat()), Came::Nothing));
    assert!(held.hold_ends().is_some());
    let next = [delta("67890"), delta("more")].concat();
    assert!(matches!(push(&mut held, &next[..next.len() - 5]), Came::Content));
    assert_eq!(due(&mut held), [ROLE, &delta("12345"), &delta("67890")].concat());
    assert!(held.is_watched() && held.hold_ends().is_none());
    assert!(matches!(push(&mut held, &next[next.len() - 5..]), Came::Content));
    assert_eq!(due(&mut held), delta("more"));

    let mut late = stream(watched(Enforcement::Blocking, 10));
    push(&mut late, &[ROLE, &delta("1")].concat());
    let ends = late.hold_ends().unwrap();
    assert!(!late.is_overdue(ends - Duration::from_millis(1)) && late.is_overdue(ends));
    assert_eq!(due(&mut late), [ROLE, &delta("1")].concat());

    let mut watching = stream(watched(Enforcement::ObserveOnly, 10));
    assert!(matches!(push(&mut watching, ROLE), Came::Nothing), "a preamble is no content");
    assert!(matches!(push(&mut watching, &delta("1")), Came::Content));
}

// req: SEG-4
#[test]
fn of_a_loop_the_client_gets_what_came_before_the_second_round() {
    let round = delta("the same thing once more. ");
    for hold in [1_000_000, 1] {
        let mut held = stream(watched(Enforcement::Blocking, hold));
        let mut given = String::new();
        let mut came = push(&mut held, &[ROLE, &delta("Once upon a time. ")].concat());
        for _ in 0..2_000 {
            given.push_str(&due(&mut held));
            if matches!(came, Came::Found(_)) {
                break;
            }
            came = push(&mut held, &round);
        }
        let Came::Found(finding) = came else { panic!("it was not found") };
        let Finding::Repetition(found) = *finding else { panic!("{finding:?}") };
        assert_eq!(held.keep_before(&found), hold > 1, "what is out is out");
        given.push_str(&due(&mut held));
        assert!(given.starts_with(&[ROLE, &delta("Once upon a time. ")].concat()));
        let rounds = given.matches("once more").count();
        assert!(if hold > 1 { rounds == 1 } else { (2..400).contains(&rounds) }, "{rounds}");
    }
}
