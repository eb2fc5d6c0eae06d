//! The closed load: workers that send when their last reply has ended.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use super::attempt::{attempt, settle};
use super::connection::Connection;
use super::crew::Crew;
use super::engine::{Runtime, until};
use super::tally::Tally;
use super::verify::Failure;
use super::{Job, Length, Share};

/// Runs a thread's workers to their end.
pub(super) async fn run<R: Runtime>(runtime: &R, job: &Arc<Job>, share: Share, origin: Instant) -> Tally {
    let tally = Rc::new(RefCell::new(Tally::default()));
    let config = &job.config;
    let crew = Crew::new();
    for worker in (share.thread..config.concurrency).step_by(share.threads) {
        let start = config.stagger.as_secs_f64() * worker as f64 / config.concurrency as f64;
        runtime.wait_until(origin + Duration::from_secs_f64(start)).await;
        crew.spawn::<R>(work::<R>(Arc::clone(job), origin, Rc::clone(&tally)));
    }
    crew.ended().await;
    Rc::into_inner(tally).map(RefCell::into_inner).unwrap_or_default()
}

async fn work<R: Runtime>(job: Arc<Job>, origin: Instant, tally: Rc<RefCell<Tally>>) {
    let config = &job.config;
    let request = job.requests.usual();
    let mut kept: Option<Connection<R>> = None;
    while take(&job, origin) {
        let _in_flight = job.gauge.enter(u64::MAX);
        let from = Instant::now();
        let attempt = attempt(&job, kept.take(), &request, from, &tally);
        // What a limit cuts off is dropped, its connection with it.
        let outcome = match until::<R, _>(from + config.timeout, attempt).await {
            Some((connection, outcome)) => {
                kept = connection;
                outcome
            }
            None => Err(Failure::Timeout),
        };
        settle(&job, &tally, outcome, from);
    }
}

/// Takes the right to send one more request.
fn take(job: &Job, origin: Instant) -> bool {
    let in_time = match job.length {
        Length::Requests(_) => true,
        Length::Time(time) => origin.elapsed() < time,
    };
    in_time && job.left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok()
}
