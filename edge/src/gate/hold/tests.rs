use super::*;
use crate::gate::active::Looks;

fn said(channel: Channel, text: &str) -> Said<'_> {
    Said { channel, choice: 0, call: 0, name: None, text }
}

fn active(enforcement: Enforcement) -> Active {
    let looks = Looks { enforcement, hold_runes: 100, timeout: Duration::from_secs(5) };
    Active { repeat: Some(looks), ..Active::default() }
}

fn loops(watch: &mut Watch) -> Option<Finding> {
    (0..2_000).find_map(|_| watch.text(said(Channel::Content, "the same thing once more. ")))
}

// req: SEG-2, SEG-7
#[test]
fn without_a_filter_there_is_no_watch_and_one_that_only_records_holds_and_stops_nothing() {
    assert!(Watch::new(&Active::default(), Arc::default(), None).is_none());
    let mut watch = Watch::new(&active(Enforcement::ObserveOnly), Arc::default(), None).unwrap();
    assert!(!watch.holds());
    assert!(loops(&mut watch).is_none());
    assert_eq!(watch.take_observed(), [FilterKind::RepeatGuard]);
    assert!(loops(&mut watch).is_none() && watch.take_observed().is_empty(), "once");
}

// req: SEG-2
#[test]
fn content_is_held_until_there_is_enough_of_it_or_for_so_long() {
    let start = dataplane::clock::now();
    let mut watch = Watch::new(&active(Enforcement::Blocking), Arc::default(), None).unwrap();
    assert!(watch.holds() && watch.due().is_none());
    assert!(watch.text(said(Channel::Reasoning, "äöü")).is_none());
    watch.held_at(start);
    watch.held_at(start + Duration::from_secs(1));
    assert_eq!(watch.due(), Some(start + Duration::from_secs(5)));
    watch.text(said(Channel::Content, &"x".repeat(96)));
    assert!(watch.holds(), "99 characters, of more bytes");
    watch.text(said(Channel::Content, "x"));
    assert!(!watch.holds() && watch.due().is_none());

    let mut late = Watch::new(&active(Enforcement::Blocking), Arc::default(), None).unwrap();
    late.held_at(start);
    late.open();
    assert!(!late.holds());
    assert!(matches!(loops(&mut late), Some(Finding::Repetition(_))), "it goes on looking");
}
