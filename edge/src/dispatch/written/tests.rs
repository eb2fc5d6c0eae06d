use std::time::Duration;

use super::*;
use crate::{
    config::gate::Enforcement,
    gate::active::{Active, Looks},
    openai::normalized::chat::{Chat, Shape},
};

fn chat() -> Source {
    Source::Chat(Translated::new("req_1".into(), false, false))
}

/// A stream of chunks, of which nothing has been said.
fn stream(watch: Option<Box<Watch>>) -> Written {
    let shape = Shape {
        id: "chatcmpl-1".to_owned(),
        created: 7,
        model: "m".into(),
        stream: true,
        include_usage: false,
        legacy_functions: false,
    };
    let settings = crate::config::load_text(
        "openai: { provider_id: x }\nmodels: []\nnodes: []\n",
        std::path::Path::new("/etc/iop/edge.yaml"),
        &|_| None,
    );
    let openai = settings.unwrap().openai;
    let mut written = Written::with(Writer::Chat(Chat::new(shape)), chat(), &openai, watch);
    written.head(200, &[event_stream()]).unwrap();
    written
}

fn event_stream() -> Header {
    Header { name: "content-type".to_owned(), value: "text/event-stream".into() }
}

fn delta(text: &str) -> String {
    format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"{text}\"}}}}]}}\n\n")
}

const DONE: &str = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";

fn out(written: &mut Written) -> String {
    String::from_utf8(written.take_out()).unwrap()
}

// req: REC-2
#[test]
fn a_writer_that_said_something_without_content_goes_on_with_what_another_attempt_says() {
    let mut written = stream(None);
    assert!(!written.has_begun() && !written.has_content());
    let far = written.next_look().unwrap() + Duration::from_secs(3_600);
    assert_eq!(written.keep_alive(far), Some(KeepAlive::Event));
    let first = out(&mut written);
    assert_eq!(first.matches("assistant").count(), 1, "{first}");
    assert!(written.has_begun() && !written.has_content(), "it can still be asked of another provider");

    written.go_on_by(chat(), None);
    written.head(200, &[event_stream()]).unwrap();
    written.body(delta("hello").as_bytes()).unwrap();
    assert!(written.has_content());
    written.body(DONE.as_bytes()).unwrap();
    written.end().unwrap();
    let rest = out(&mut written);
    assert!(written.is_finished());
    assert_eq!((rest.matches("assistant").count(), rest.matches("hello").count()), (0, 1), "{rest}");
    assert!(rest.ends_with("data: [DONE]\n\n"), "{rest}");
}

fn watch(hold_runes: usize) -> Option<Box<Watch>> {
    let looks = Looks { enforcement: Enforcement::Blocking, hold_runes, timeout: Duration::from_secs(5) };
    let active = Active { repeat: Some(looks), ..Active::default() };
    Watch::new(&active, Arc::default(), None).map(Box::new)
}

// req: SEG-2
#[test]
fn content_is_held_for_a_blocking_filter_until_there_is_enough_or_its_time_is_over() {
    let mut written = stream(watch(10));
    written.body(delta("12345").as_bytes()).unwrap();
    assert!(out(&mut written).is_empty() && !written.has_content());
    let due = written.hold_ends().expect("it is held");
    assert!(!written.is_overdue(due - Duration::from_millis(1)));
    written.body(delta("67890").as_bytes()).unwrap();
    let said = out(&mut written);
    assert!(said.contains("12345") && said.contains("67890"), "{said}");
    assert!(written.hold_ends().is_none());

    let mut late = stream(watch(10));
    late.body(delta("12345").as_bytes()).unwrap();
    let due = late.hold_ends().unwrap();
    assert!(late.is_overdue(due) && out(&mut late).contains("12345"));
    late.body(delta("x").as_bytes()).unwrap();
    assert!(out(&mut late).contains('x'), "it is not held again");

    let mut short = stream(watch(10));
    short.body(delta("123").as_bytes()).unwrap();
    short.body(DONE.as_bytes()).unwrap();
    short.end().unwrap();
    assert!(out(&mut short).contains("123"), "the end of the answer ends it too");
}

// req: SEG-4
#[test]
fn a_loop_stops_the_answer_and_what_came_before_it_is_the_clients() {
    let mut written = stream(watch(1_000_000));
    written.body(delta("Once upon a time. ").as_bytes()).unwrap();
    let round = delta("the same thing once more. ");
    let stopped = (0..2_000).find_map(|_| written.body(round.as_bytes()).err());
    let Some(Trouble::Found(finding)) = stopped else { panic!("it was not found: {stopped:?}") };
    let Finding::Repetition(found) = *finding else { panic!("{finding:?}") };
    assert!(out(&mut written).is_empty(), "all of it was held");
    assert!(written.keep_before(&found));
    let said = out(&mut written);
    // The second round begins within the first one's text, which ends as what came before it.
    assert_eq!(
        (said.matches("upon").count(), said.matches("the same thing once mor").count()),
        (1, 1),
        "{said}"
    );
    assert_eq!(written.take_said().len(), 2);
}
