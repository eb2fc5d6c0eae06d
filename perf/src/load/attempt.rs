//! One request: on a kept connection that still holds, or on a new one.

use std::cell::RefCell;
use std::time::Instant;

use super::Job;
use super::connection::Connection;
use super::engine::Runtime;
use super::exchange::{Mode, Observer, Reply, micros};
use super::request::Ready;
use super::tally::Tally;
use super::verify::Failure;

/// Sends `request` and reads its reply, whose times count from `from`. With the outcome comes the connection, if it may
/// carry another request.
pub(super) async fn attempt<R: Runtime>(
    job: &Job,
    kept: Option<Connection<R>>,
    request: &Ready<'_>,
    from: Instant,
    tally: &RefCell<Tally>,
) -> (Option<Connection<R>>, Result<Reply, Failure>) {
    let mut connection = match open(job, kept, tally).await {
        Ok(connection) => connection,
        Err(failure) => return (None, Err(failure)),
    };
    let mode = Mode {
        stream: job.config.stream,
        seal_demanded: job.config.seal_demanded,
        content_events: request.content_events,
    };
    let outcome = connection.exchange(&request.bytes, mode, from, &mut Shared(tally)).await;
    (connection.into_kept().filter(|_| job.config.keep_alive), outcome)
}

async fn open<R: Runtime>(
    job: &Job,
    kept: Option<Connection<R>>,
    tally: &RefCell<Tally>,
) -> Result<Connection<R>, Failure> {
    if let Some(mut connection) = kept {
        if connection.is_quiet() {
            return Ok(connection);
        }
        tally.borrow_mut().add_reconnect();
    }
    Connection::open(job.config.target.address).await
}

/// Counts an outcome whose time counts from `from`.
pub(super) fn settle(job: &Job, tally: &RefCell<Tally>, outcome: Result<Reply, Failure>, from: Instant) {
    job.gauge.end(outcome.is_ok());
    let mut tally = tally.borrow_mut();
    if let Err(Failure::Status(status)) = outcome {
        tally.add_refusal(status, micros(from.elapsed()));
    }
    tally.add(outcome);
}

/// The thread's tally, borrowed for one observation at a time.
struct Shared<'a>(&'a RefCell<Tally>);

impl Observer for Shared<'_> {
    fn gap(&mut self, us: u64) {
        self.0.borrow_mut().gap(us);
    }

    fn delivery(&mut self, us: u64) {
        self.0.borrow_mut().delivery(us);
    }

    fn refusal(&mut self, status: u16, code: &str) {
        self.0.borrow_mut().add_refusal_code(status, code);
    }
}
