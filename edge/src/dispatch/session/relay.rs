//! What passes from a provider to its client: as it is, or as an answer that the Edge writes of it.

use dataplane::{clock, panic_point};
use proto::message::{Header, RunEvent, RunEventKind};

use super::{
    super::{
        held::{Came, Head, Held},
        outgoing, written,
    },
    EVENT_STREAM, Session, WayOut,
    telling::answer,
};
use crate::{reply::Fault, response};

impl Session<'_> {
    /// Takes the head of an answer that goes on as it is. It is held back until there is something to show for it.
    ///
    /// # Errors
    /// The response had begun by a sign of life, and this is not what was promised by it.
    pub(super) fn head(&mut self, head: Head) -> Result<(), Fault> {
        let has_begun = self.downstream.has_begun();
        if has_begun && let Some(fault) = broken_promise(head.status, &head.headers) {
            return Err(fault);
        }
        if !head.is_event_stream() {
            self.silence = None;
        }
        if !self.is_kept() {
            self.let_go();
        }
        self.held = Some(Held::new(head, has_begun, self.plan.surface));
        Ok(())
    }

    /// Passes on what more of a tunnelled answer says.
    pub(super) fn body(&mut self, bytes: Vec<u8>) -> Option<WayOut> {
        panic_point!("edge.relay");
        let Some(written) = &mut self.written else {
            let Some(held) = &mut self.held else {
                self.pass(bytes);
                return None;
            };
            return match held.push(bytes) {
                Came::Nothing => None,
                Came::Content | Came::Failure(_) | Came::Malformed => {
                    self.release_held();
                    None
                }
            };
        };
        self.downstream.drained(bytes.len());
        let told = written.body(&bytes);
        // What was said before it went wrong has been said, whether or not both came at once.
        self.pass_on();
        told.err().map(WayOut::Refuse)
    }

    /// Hands a provider's bytes to the client.
    fn pass(&mut self, bytes: Vec<u8>) {
        if let Some(silence) = &mut self.silence {
            silence.broken(clock::now());
        }
        if self.downstream.push(bytes) {
            self.note_first_byte();
        }
    }

    /// Hands what was held back to the client: from here on it has to live with this provider's answer.
    pub(super) fn release_held(&mut self) {
        let Some(held) = self.held.take() else { return };
        let (head, bytes) = held.into_parts();
        self.commit();
        if let Some(head) = head {
            self.begin(&head);
        }
        let hides = outgoing::hides_usage(&self.plan, &self.shard.settings);
        self.downstream.count(hides);
        self.tell_recovery();
        if !bytes.is_empty() {
            self.pass(bytes);
        }
    }

    /// A tunnelled answer is over.
    pub(super) fn complete(&mut self) -> Option<WayOut> {
        self.end_run();
        let told = match &mut self.written {
            Some(written) => written.end(),
            None if self.held.as_ref().is_some_and(Held::is_cut) => Err(Fault::UpstreamTruncated),
            None => {
                self.release_held();
                self.downstream.release_held();
                if self.downstream.lacks_end() { Err(Fault::UpstreamTruncated) } else { Ok(()) }
            }
        };
        if told.is_ok() || self.downstream.has_begun() {
            self.pass_on();
        }
        if let Err(fault) = told {
            return Some(WayOut::Refuse(fault));
        }
        self.downstream.client.finish();
        Some(WayOut::Complete)
    }

    /// Begins the response with the provider's status and headers, or those of an answer that the Edge writes.
    pub(super) fn begin(&mut self, head: &Head) {
        if self.shard.draining.is_closed() {
            self.downstream.client.set_draining();
        }
        let (grant, dispatches) = (self.grant.as_deref(), self.attempt.dispatches());
        let answer = answer(&self.plan, grant, dispatches, self.written.as_deref(), &self.recovery);
        self.downstream.begin((head.status, &head.headers, head.until_close), &answer);
        self.recovery.told = self.attempt.dispatches();
    }

    /// The client is given the first of the content. What has been answered is not sent again: a long stream must not hold a long
    /// prompt.
    fn commit(&mut self) {
        if self.recovery.owner.commit() {
            self.let_go();
        }
    }

    fn let_go(&mut self) {
        self.plan.body = dataplane::http::body::Body::default();
        self.plan.headers = Vec::new();
        self.plan.provider_auth = None;
    }

    /// Passes on what an event of a native run says. The response begins with the first of it: until then a failure has a
    /// status of its own.
    pub(super) fn run_event(&mut self, event: RunEvent) -> Option<WayOut> {
        // A Node that answers a tunnel as if it were a run.
        let Some(written) = &mut self.written else { return Some(WayOut::Refuse(Fault::UpstreamProtocol)) };
        self.downstream.drained(written::cost(&event));
        let is_last = matches!(event.kind, RunEventKind::Complete { .. });
        let told = written.event(event);
        if is_last {
            self.end_run();
        }
        if let Err(fault) = told {
            return Some(WayOut::Refuse(fault));
        }
        self.pass_on();
        is_last.then(|| {
            self.downstream.client.finish();
            WayOut::Complete
        })
    }

    /// Hands what an answer that the Edge writes has become to the client.
    pub(super) fn pass_on(&mut self) {
        let Some(written) = self.written.as_mut() else { return };
        let mut out = written.take_out();
        if out.is_empty() {
            return;
        }
        let (has_content, is_finished) = (written.has_content(), written.is_finished());
        if has_content {
            self.commit();
        }
        if !self.downstream.has_begun()
            && let Some(head) = self.written.as_ref().map(|written| written.head_of(out.len()))
        {
            self.begin(&head);
        }
        if is_finished {
            self.tell_recovery();
        }
        if self.downstream.write(&out) {
            self.note_first_byte();
        }
        out.clear();
        if let Some(written) = &mut self.written {
            // Its room serves again.
            written.give_back(out);
        }
    }

    fn note_first_byte(&self) {
        if let Some(took) = self.downstream.first_byte() {
            self.shard.metrics.first_byte.observe(took.as_secs_f64());
        }
    }
}

/// What to tell a client that was promised a stream, of a provider's answer that is none.
fn broken_promise(status: u16, headers: &[Header]) -> Option<Fault> {
    if !(200..300).contains(&status) {
        return Some(Fault::ProviderStatus { status });
    }
    let kind = headers.iter().find(|header| header.name == "content-type");
    let is_stream = kind.is_some_and(|kind| response::names(&kind.value, EVENT_STREAM));
    (!is_stream).then_some(Fault::UpstreamProtocol)
}
