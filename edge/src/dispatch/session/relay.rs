//! What passes from a provider to its client: as it is, or as an answer that the Edge writes of it.

use dataplane::{clock, panic_point};
use proto::message::{Header, RunEvent, RunEventKind};

use super::{
    super::{
        held::{Came, Head, Held, Wants},
        outgoing, written,
    },
    EVENT_STREAM, Session, WayOut,
    recover::Original,
    telling::answer,
};
use crate::{
    config::gate::{Enforcement, FilterKind},
    gate::{provider_error, reading::Said},
    metrics::recovery::Action,
    reply::Fault,
    response,
    translate::refusal::{ProviderError, ProviderErrorKind},
};

impl Session<'_> {
    /// Takes the head of an answer that goes on as it is. It is held back until there is something to show for it.
    pub(super) fn head(&mut self, head: Head) -> Option<WayOut> {
        let has_head = self.downstream.has_begun();
        if !self.is_kept() {
            self.let_go();
        }
        if has_head && let Some(fault) = broken_promise(head.status, &head.headers) {
            let class = provider_error::of_status(head.status, &head.headers, b"");
            return self.provider_failed(Some(class), Original::Fault(fault));
        }
        if !head.is_success() && self.active.provider_error == Some(Enforcement::ObserveOnly) {
            self.shard.metrics.recovery.found(FilterKind::ProviderError, Action::Observe);
        }
        let wants = Wants { errors: self.active.judges_errors(), watch: self.watch.take() };
        self.held = Some(Held::new(head, has_head, self.plan.surface, wants));
        None
    }

    /// Passes on what more of a tunnelled answer says.
    pub(super) fn body(&mut self, bytes: Vec<u8>) -> Option<WayOut> {
        panic_point!("edge.relay");
        let Some(written) = &mut self.written else {
            let Some(held) = &mut self.held else {
                self.heard();
                if self.downstream.push(bytes) {
                    self.note_first_byte();
                }
                return None;
            };
            self.downstream.drained(bytes.len());
            let came = held.push(bytes, clock::now);
            return self.came(came);
        };
        self.downstream.drained(bytes.len());
        let told = written.body(&bytes);
        self.told(told)
    }

    /// Does what more of a held answer asks for.
    fn came(&mut self, came: Came) -> Option<WayOut> {
        self.note_observed();
        match came {
            Came::Nothing => {
                self.pass_life();
                None
            }
            Came::Content => {
                self.release_held();
                None
            }
            Came::Failure(said) => {
                let class = provider_error::of_said(&said);
                let fault = Fault::Provider { error: in_words(*said), retry_after: None };
                let held = self.held.take()?;
                self.provider_failed(Some(class), Original::Stream(Box::new(held), fault))
            }
            Came::Malformed => {
                let class = control::recovery::ErrorClass::Malformed;
                let held = self.held.take()?;
                self.provider_failed(Some(class), Original::Stream(Box::new(held), Fault::UpstreamProtocol))
            }
            Came::Found(finding) => self.found(*finding),
            Came::TooLong => Some(WayOut::Refuse(Fault::AnswerTooLong)),
        }
    }

    fn heard(&mut self) {
        if let Some(silence) = &mut self.silence {
            silence.broken(clock::now());
        }
    }

    /// Hands what is due of a held answer to the client. The first of it is the commit: from here on the client has to live with this
    /// provider's answer.
    pub(super) fn release_held(&mut self) {
        let Some(held) = &mut self.held else { return };
        let (bytes, texts) = held.take_due();
        let is_first = held.begin();
        let (head, is_stream, is_watched) = (held.take_head(), held.is_stream(), held.is_watched());
        if is_first {
            self.commit();
            if let Some(head) = head {
                self.begin(&head);
            }
            let hides = outgoing::hides_usage(&self.plan, &self.shard.settings);
            self.downstream.count(hides);
            self.tell_recovery();
            if !is_stream {
                self.silence = None;
            }
        }
        if is_watched {
            self.record(&texts, &bytes);
        } else {
            self.held = None;
        }
        if bytes.is_empty() {
            return;
        }
        self.heard();
        if self.downstream.push_taken(bytes) {
            self.note_first_byte();
        }
    }

    /// A tunnelled answer is over.
    pub(super) fn complete(&mut self) -> Option<WayOut> {
        self.end_run();
        if let Some(written) = &mut self.written {
            let told = written.end();
            let is_well = told.is_ok();
            let way_out = self.told(told);
            return if is_well && way_out.is_none() { self.finished() } else { way_out };
        }
        let Some(held) = &mut self.held else { return self.deliver() };
        if held.is_cut() {
            let class = match held.parts() {
                (_, _, b"") => control::recovery::ErrorClass::Empty,
                _ => control::recovery::ErrorClass::Transport,
            };
            self.held = None;
            return self.provider_failed(Some(class), Original::Fault(Fault::UpstreamTruncated));
        }
        let judged = if held.is_stream() { held.judge_end() } else { held.judge_whole() };
        let class = held.class();
        self.note_observed();
        match (class, judged) {
            (Some(class), _) => {
                let held = self.held.take()?;
                self.provider_failed(Some(class), Original::Answer(Box::new(held)))
            }
            (None, Some(finding)) => self.found(finding),
            (None, None) => self.deliver(),
        }
    }

    /// All of a provider's answer is for its client, and has come.
    pub(super) fn deliver(&mut self) -> Option<WayOut> {
        if let Some(held) = &mut self.held {
            held.open();
        }
        self.release_held();
        self.held = None;
        self.downstream.release_held();
        if self.downstream.lacks_end() {
            return Some(WayOut::Refuse(Fault::UpstreamTruncated));
        }
        self.finished()
    }

    /// The answer is whole.
    fn finished(&mut self) -> Option<WayOut> {
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
    /// prompt, unless a filter may ask for more of the answer.
    fn commit(&mut self) {
        if self.recovery.owner.commit() && !self.active.continues() {
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
        let is_well = told.is_ok();
        let way_out = self.told(told);
        if is_last && is_well && way_out.is_none() { self.finished() } else { way_out }
    }

    /// Hands on what more of an answer that the Edge writes has become, and does what else it asks for.
    fn told(&mut self, told: Result<(), written::Trouble>) -> Option<WayOut> {
        // What was said before it went wrong has been said, whether or not both came at once.
        self.pass_on();
        self.note_observed();
        match told {
            Ok(()) => None,
            Err(written::Trouble::Found(finding)) => self.found(*finding),
            Err(written::Trouble::Fault(fault)) => {
                let class = self.written.as_ref().and_then(|written| written.class_of(&fault));
                self.provider_failed(class, Original::Fault(fault))
            }
        }
    }

    /// Hands what an answer that the Edge writes has become to the client.
    pub(super) fn pass_on(&mut self) {
        let Some(written) = self.written.as_mut() else { return };
        let mut out = written.take_out();
        if out.is_empty() {
            return;
        }
        let (has_content, is_finished) = (written.has_content(), written.is_finished());
        if let Some(recorder) = &mut self.recovery.recorder {
            written.take_said().iter().for_each(|(channel, text)| recorder.push(*channel, text));
        }
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

/// A failure that a provider told in a stream, for a client that has seen nothing of it.
fn in_words(said: Said) -> ProviderError {
    let words = said.message.chars().take(crate::translate::refusal::WORDS_CHARS_MAX).collect();
    ProviderError { status: 502, kind: ProviderErrorKind::Other, words }
}
