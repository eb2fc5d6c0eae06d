//! The open load: requests that start on a schedule, whatever becomes of those before.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;

use super::attempt::{attempt, settle};
use super::connection::Connection;
use super::crew::Crew;
use super::engine::{Runtime, until};
use super::exchange::micros;
use super::tally::Tally;
use super::verify::Failure;
use super::{Job, Length, Share};

/// Requests that are due at once are released together, up to this many.
const RELEASES_PER_TURN: u32 = 256;

/// What the requests of one thread share.
struct Lane<R: Runtime> {
    job: Arc<Job>,
    tally: RefCell<Tally>,
    /// Connections that wait for a request, the one used last at the end.
    idle: RefCell<Vec<Connection<R>>>,
    /// The right to have a connection in use, where they are bounded. Those that wait are served in order.
    room: Option<Semaphore>,
}

/// Releases a thread's share of the schedule and waits until every request has ended.
pub(super) async fn run<R: Runtime>(runtime: &R, job: &Arc<Job>, share: Share, origin: Instant) -> Tally {
    let room = job.config.connections.map(|most| Semaphore::new(share.of(most)));
    let lane = Rc::new(Lane::<R> {
        job: Arc::clone(job),
        tally: RefCell::new(Tally::default()),
        idle: RefCell::new(Vec::new()),
        room,
    });
    let crew = Crew::new();
    let mut released = 0;
    for (index, at) in due(job, share) {
        let scheduled = origin + at;
        if scheduled > Instant::now() {
            runtime.wait_until(scheduled).await;
            released = 0;
        } else if released == RELEASES_PER_TURN {
            // Far behind: those that are released have their turn before more are.
            R::breathe().await;
            released = 0;
        }
        released += 1;
        crew.spawn::<R>(serve(Rc::clone(&lane), index, scheduled));
    }
    crew.ended().await;
    Rc::into_inner(lane).map(|lane| lane.tally.into_inner()).unwrap_or_default()
}

/// This thread's part of the schedule, each arrival with its place in the whole: every n-th, up to the end of the run.
fn due(job: &Job, share: Share) -> impl Iterator<Item = (usize, Duration)> + use<> {
    let (most, end) = match job.length {
        Length::Requests(count) => (usize::try_from(count).unwrap_or(usize::MAX), Duration::MAX),
        Length::Time(time) => (usize::MAX, time),
    };
    let all = job.config.arrivals.schedule().take(most).take_while(move |at| *at < end);
    all.enumerate().skip(share.thread).step_by(share.threads)
}

/// One request, from its release to its outcome.
async fn serve<R: Runtime>(lane: Rc<Lane<R>>, index: usize, scheduled: Instant) {
    let job = &lane.job;
    let released = Instant::now();
    lane.tally.borrow_mut().add_lateness(micros(released.saturating_duration_since(scheduled)));
    let Some(_in_flight) = job.gauge.enter(job.config.max_in_flight as u64) else {
        settle(job, &lane.tally, Err(Failure::MaxInFlight), scheduled);
        return;
    };
    let work = async {
        let _room = match &lane.room {
            Some(room) => {
                let right = room.acquire().await;
                lane.tally.borrow_mut().add_connection_wait(micros(released.elapsed()));
                right.ok()
            }
            None => None,
        };
        let kept = lane.idle.borrow_mut().pop();
        let (connection, outcome) = attempt(job, kept, &job.requests.at(index), scheduled, &lane.tally).await;
        lane.idle.borrow_mut().extend(connection);
        outcome
    };
    let outcome = until::<R, _>(scheduled + job.config.timeout, work).await;
    settle(job, &lane.tally, outcome.unwrap_or(Err(Failure::Timeout)), scheduled);
}
