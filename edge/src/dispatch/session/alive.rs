//! What a client hears that has heard nothing for too long. A response that has not begun begins by it.

use dataplane::clock;
use proto::message::Header;

use super::{
    super::{
        held::{Head, Held},
        keepalive::{COMMENT, KeepAlive, PING, Silence},
        wait::{Timer, Waits},
    },
    EVENT_STREAM, Session,
};
use crate::surface::Surface;

impl Session<'_> {
    /// Sets the run's deadline, and when to look whether its client has heard something lately.
    pub(super) fn arm<S>(&mut self, waits: &mut Waits<S>) {
        waits.missed_pulse = false;
        let pulse = match &self.written {
            Some(written) => written.next_look(),
            None => self.silence.as_ref().map(Silence::next),
        };
        let held = self.held.as_ref().and_then(Held::hold_ends);
        let held = held.or_else(|| self.written.as_ref().and_then(|written| written.hold_ends()));
        self.armed_for = held;
        let pulse = [pulse, held].into_iter().flatten().min();
        waits.timer = match &self.run {
            Some(run) => Some(Timer::new(run.deadline, pulse)),
            None => pulse.map(Timer::pulse),
        };
    }

    /// Whether something is held back for a filter for which no timer is set.
    pub(super) fn holds_anew(&self) -> bool {
        self.armed_for.is_none()
            && (self.held.as_ref().is_some_and(|held| held.hold_ends().is_some())
                || self.written.as_ref().is_some_and(|written| written.hold_ends().is_some()))
    }

    /// Says something to a client that has heard nothing for too long.
    pub(super) fn keep_alive(&mut self) {
        if self.written.is_none() {
            return self.keep_tunnel_alive();
        }
        let Some(due) = self.written.as_mut().and_then(|written| written.keep_alive(clock::now())) else {
            return;
        };
        match due {
            KeepAlive::Comment => {
                if let Some(head) = self.written.as_ref().map(|written| written.head_of(0))
                    && !self.downstream.has_begun()
                {
                    self.begin(&head);
                }
                self.downstream.comment(COMMENT);
            }
            KeepAlive::Event => self.pass_on(),
        }
    }

    /// As [`Session::keep_alive`], of a stream that a provider makes or will make, also while it waits for its slot.
    fn keep_tunnel_alive(&mut self) {
        let now = clock::now();
        if self.silence.as_mut().and_then(|silence| silence.due(now)).is_some() {
            self.say_alive();
        }
    }

    /// The provider says something that is held back, perhaps only to keep its client waiting. A client that has heard nothing for too
    /// long hears that it did, also where the Edge itself is not to say anything.
    pub(super) fn pass_life(&mut self) {
        let now = clock::now();
        let after = self.shard.settings.openai.keepalive_comment;
        if self.plan.scan.stream
            && self.silence.is_none()
            && now.saturating_duration_since(self.heard) >= after
        {
            self.heard = now;
            self.say_alive();
        }
    }

    fn say_alive(&mut self) {
        if !self.downstream.has_begun() {
            let head = match &mut self.held {
                Some(held) => Held::take_stream_head(held),
                None => Some(stream_head()),
            };
            // What is no stream has no place for a comment.
            let Some(head) = head else { return };
            self.begin(&head);
        }
        if self.downstream.may_insert() {
            let is_messages = self.plan.surface == Surface::Messages;
            self.downstream.comment(if is_messages { PING } else { COMMENT });
        }
    }
}

/// The head of a stream of which nothing has come yet.
fn stream_head() -> Head {
    let headers = vec![Header { name: "content-type".to_owned(), value: EVENT_STREAM.into() }];
    Head { status: 200, headers, until_close: false }
}
