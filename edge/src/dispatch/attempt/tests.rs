use std::{sync::Arc, time::Duration};

use control::input::{ConnectionId, RequestId};
use proto::message::{ErrorKind, ExecutionError};

use super::*;
use crate::lease::Returns;

struct World {
    returns: Arc<Returns>,
    attempt: Attempt,
}

impl World {
    fn new() -> Self {
        let (bell, _inbox) = dataplane::mailbox::for_thread(4);
        Self { returns: Arc::new(Returns::new(8, bell)), attempt: Attempt::default() }
    }

    fn grant(&mut self, id: u64, sent: bool) -> Step {
        let lease = Lease::new(LeaseId(id), &self.returns);
        assert!(!sent || lease.claim().send());
        let grant = Grant {
            request: RequestId(1),
            lease: LeaseId(id),
            connection: ConnectionId(1),
            generation: 1,
            node: "n".into(),
            direct: false,
            provider: "p".into(),
            adapter: "a".into(),
            target: "t".into(),
            stall_timeout: Duration::from_secs(300),
            request_timeout: Duration::from_secs(60),
            queued_for: Duration::ZERO,
            attempt: 1,
        };
        self.attempt.handle(Event::Granted(Box::new(grant), lease))
    }

    fn frame(&mut self, lease: u64, sequence: u64, frame: Frame) -> Step {
        self.attempt.handle(Event::Frame(LeaseId(lease), sequence, frame))
    }

    fn fail(&mut self, lease: u64, sequence: u64) -> Step {
        let error =
            ExecutionError { kind: ErrorKind::UpstreamTruncated, message: "x".to_owned(), failure: None };
        let failed = RunFailed { error, handoff: None, sequence };
        self.attempt.handle(Event::Failed(LeaseId(lease), Box::new(failed)))
    }

    fn returned(&self) -> Vec<(u64, bool)> {
        std::iter::from_fn(|| self.returns.pop()).map(|(id, sent)| (id.0, sent)).collect()
    }
}

#[test]
fn a_run_passes_its_frames_and_returns_its_lease_at_the_end() {
    let mut w = World::new();
    assert!(matches!(w.grant(1, true), Step::Dispatch(_)));
    assert!(matches!(
        w.frame(1, 0, Frame::Start { status: 200, headers: vec![], until_close: false }),
        Step::Head { status: 200, .. }
    ));
    assert!(matches!(w.frame(1, 1, Frame::Body(b"x".to_vec())), Step::Body(b) if b == b"x"));
    assert!(w.returned().is_empty());
    assert!(matches!(w.frame(1, 2, Frame::End), Step::Complete));
    assert_eq!(w.returned(), [(1, true)]);
    assert!(matches!(w.frame(1, 3, Frame::Body(Vec::new())), Step::Nothing));
}

#[test]
fn a_failure_waits_for_the_body_bytes_before_it() {
    let mut w = World::new();
    w.grant(1, true);
    assert!(matches!(w.fail(1, 2), Step::Nothing));
    assert!(matches!(
        w.frame(1, 0, Frame::Start { status: 200, headers: vec![], until_close: false }),
        Step::Head { .. }
    ));
    assert!(w.attempt.poll().is_none());
    assert!(matches!(w.frame(1, 1, Frame::Body(b"x".to_vec())), Step::Body(_)));
    assert!(matches!(w.attempt.poll(), Some(Step::Failed(Cause::Execution(_)))));
    assert_eq!(w.returned(), [(1, true)]);
}

// req: FEN-7
#[test]
fn a_grant_that_was_fenced_before_it_was_sent_waits_again_and_a_sent_one_is_lost() {
    let mut w = World::new();
    w.grant(1, false);
    let claim = w.attempt.lease().unwrap().claim().clone();
    assert!(matches!(w.attempt.handle(Event::Fenced(LeaseId(1))), Step::Nothing));
    // Its connection's shard may look at it only now: it must not send what nobody waits for.
    assert!(!claim.send());
    assert!(matches!(w.attempt.handle(Event::Requeued(LeaseId(1))), Step::Nothing));
    assert!(w.attempt.is_waiting());
    assert_eq!(w.returned(), [(1, false)]);
    assert!(matches!(w.grant(2, true), Step::Dispatch(_)));
    assert!(matches!(w.attempt.handle(Event::Fenced(LeaseId(2))), Step::Failed(Cause::NodeLost)));
    assert_eq!(w.attempt.dispatches(), 2);
}

#[test]
fn events_of_an_older_lease_change_nothing() {
    let mut w = World::new();
    w.grant(1, true);
    w.attempt.handle(Event::Requeued(LeaseId(1)));
    w.grant(2, true);
    assert!(matches!(w.frame(1, 0, Frame::End), Step::Nothing));
    assert!(matches!(w.fail(1, 0), Step::Nothing));
    assert!(matches!(w.attempt.handle(Event::Fenced(LeaseId(1))), Step::Nothing));
    assert_eq!(w.attempt.lease().map(Lease::id), Some(LeaseId(2)));
}

#[test]
fn a_second_grant_for_a_running_request_goes_straight_back() {
    let mut w = World::new();
    w.grant(1, true);
    assert!(matches!(w.grant(2, false), Step::Nothing));
    assert_eq!(w.returned(), [(2, false)]);
}

// req: REC-5
#[test]
fn a_request_that_begins_again_has_given_its_lease_back_and_takes_a_new_one() {
    let mut w = World::new();
    w.grant(1, true);
    w.attempt.begin_again();
    assert_eq!(w.returned(), [(1, true)]);
    assert!(w.attempt.is_waiting());
    assert!(matches!(w.frame(1, 0, Frame::Body(b"x".to_vec())), Step::Nothing));
    assert!(matches!(w.grant(2, true), Step::Dispatch(_)));
    assert!(matches!(w.frame(2, 0, Frame::End), Step::Complete));
    w.attempt.begin_again();
    assert!(matches!(w.grant(3, true), Step::Dispatch(_)), "also after its end");
    assert_eq!(w.attempt.dispatches(), 3);
}
