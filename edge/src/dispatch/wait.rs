//! What a request's task waits for.

use std::{
    future::Future,
    pin::{Pin, pin},
    task::Poll,
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
    /// The process ends.
    Stop,
}

/// Readiness of the client's connection. It stays armed from wait to wait: arming one per event would cost two ring
/// operations each.
pub(super) type Watch = Pin<Box<dyn Future<Output = std::io::Result<()>>>>;
/// A deadline, armed once per dispatch.
pub(super) type Timer = Pin<Box<dyn Future<Output = ()>>>;

/// Waits. Events first: what has arrived is passed on before anything else is looked at.
pub(super) async fn wait(
    events: &Registered,
    watch: &mut Option<Watch>,
    timer: &mut Option<Timer>,
    mut stop: Pin<&mut impl Future<Output = ()>>,
) -> Woken {
    let mut next = pin!(events.events.pop());
    std::future::poll_fn(|cx| {
        if let Poll::Ready(event) = next.as_mut().poll(cx) {
            return Poll::Ready(Woken::Event(event));
        }
        if let Some(future) = watch
            && future.as_mut().poll(cx).is_ready()
        {
            *watch = None;
            return Poll::Ready(Woken::ClientStirred);
        }
        if let Some(future) = timer
            && future.as_mut().poll(cx).is_ready()
        {
            *timer = None;
            return Poll::Ready(Woken::Deadline);
        }
        stop.as_mut().poll(cx).map(|()| Woken::Stop)
    })
    .await
}
