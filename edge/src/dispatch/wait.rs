//! What a request's task waits for.

use std::{
    future::Future,
    pin::{Pin, pin},
    task::{Context, Poll},
    time::Instant,
};

use dataplane::{
    http::server::{Peer, Watch},
    time::sleep_until,
};

use crate::requests::{Event, Registered};

/// What ended a wait.
pub(super) enum Woken {
    /// Something happened to the request.
    Event(Event),
    /// The client sent something or left.
    ClientStirred,
    /// The Edge's own wait for the run is over.
    Deadline,
    /// It is time to see whether the client has to be kept waiting.
    Pulse,
    /// The token was revoked, or the process ends.
    Stop,
}

/// Why a write was given up.
pub(super) enum Interrupted {
    /// The client has left.
    Gone,
    /// The Edge's own wait for the run is over.
    Deadline,
    /// The token was revoked, or the process ends.
    Stop,
}

/// A deadline, armed once per dispatch, and perhaps a pulse before it; or a pulse alone.
pub(super) struct Timer {
    fires: Pin<Box<dyn Future<Output = ()>>>,
    next: Firing,
}

/// What the next firing of a timer is.
#[derive(Clone, Copy)]
enum Firing {
    Deadline,
    /// With the deadline behind it, if there is one.
    Pulse(Option<Instant>),
}

impl Timer {
    /// Fires at `deadline`, and before that once at `pulse`.
    pub(super) fn new(deadline: Instant, pulse: Option<Instant>) -> Self {
        let pulse = pulse.filter(|pulse| *pulse < deadline);
        Self {
            fires: Box::pin(sleep_until(pulse.unwrap_or(deadline))),
            next: pulse.map_or(Firing::Deadline, |_| Firing::Pulse(Some(deadline))),
        }
    }

    /// Fires at `pulse`, and never for a deadline.
    pub(super) fn pulse(pulse: Instant) -> Self {
        Self { fires: Box::pin(sleep_until(pulse)), next: Firing::Pulse(None) }
    }
}

/// What may happen beside the events of the request.
pub(super) struct Waits<S> {
    /// The client's connection. Stays armed from wait to wait, as arming one per event would cost two ring operations each;
    /// taken out when it fires.
    pub(super) watch: Option<Watch>,
    /// Taken out when it fires.
    pub(super) timer: Option<Timer>,
    /// A pulse came while something was written: nobody has to be kept waiting then, and another one has to be armed.
    pub(super) missed_pulse: bool,
    /// The token was revoked, or the process ends.
    pub(super) stop: S,
}

impl<S: Future<Output = ()> + Unpin> Waits<S> {
    /// Waits. Events first: what has arrived is passed on before anything else is looked at.
    pub(super) async fn next(&mut self, events: &Registered) -> Woken {
        let mut next = pin!(events.events.pop());
        std::future::poll_fn(|cx| match next.as_mut().poll(cx) {
            Poll::Ready(event) => Poll::Ready(Woken::Event(event)),
            Poll::Pending => self.poll(cx),
        })
        .await
    }

    /// Drives a write, which may be a long one, unless something makes it pointless.
    pub(super) async fn write<T>(
        &mut self,
        client: &Peer,
        writing: impl Future<Output = T>,
    ) -> Result<T, Interrupted> {
        let mut writing = pin!(writing);
        std::future::poll_fn(|cx| {
            if let Poll::Ready(written) = writing.as_mut().poll(cx) {
                return Poll::Ready(Ok(written));
            }
            loop {
                return match self.poll(cx) {
                    // Something sent in advance: it waits until the write is over.
                    Poll::Ready(Woken::ClientStirred) if !client.has_left() => continue,
                    Poll::Ready(Woken::ClientStirred) => Poll::Ready(Err(Interrupted::Gone)),
                    Poll::Ready(Woken::Pulse) => {
                        self.missed_pulse = true;
                        continue;
                    }
                    Poll::Ready(Woken::Deadline) => Poll::Ready(Err(Interrupted::Deadline)),
                    Poll::Ready(Woken::Stop) => Poll::Ready(Err(Interrupted::Stop)),
                    Poll::Ready(Woken::Event(_)) | Poll::Pending => Poll::Pending,
                };
            }
        })
        .await
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Woken> {
        if let Some(future) = &mut self.watch
            && Pin::new(future).poll(cx).is_ready()
        {
            self.watch = None;
            return Poll::Ready(Woken::ClientStirred);
        }
        if let Some(timer) = &mut self.timer
            && timer.fires.as_mut().poll(cx).is_ready()
        {
            let Firing::Pulse(deadline) = timer.next else {
                self.timer = None;
                return Poll::Ready(Woken::Deadline);
            };
            self.timer = deadline.map(|deadline| Timer::new(deadline, None));
            return Poll::Ready(Woken::Pulse);
        }
        Pin::new(&mut self.stop).poll(cx).map(|()| Woken::Stop)
    }
}
