//! One line on the terminal while a load runs.

use std::io::{IsTerminal as _, Write as _};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use iop_perf::load::Gauge;

/// From one line to the next.
const EVERY: Duration = Duration::from_millis(500);
/// Cells of the bar.
const CELLS: u64 = 24;

/// Shows a run's gauge until it is dropped. Nothing is shown where standard error is no terminal.
pub(crate) struct Progress {
    /// Its end ends the thread.
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Progress {
    /// Begins to show; `wanted` requests are the whole, if that is known.
    pub(crate) fn start(gauge: &Arc<Gauge>, wanted: Option<u64>) -> Self {
        if !std::io::stderr().is_terminal() {
            return Self { stop: None, thread: None };
        }
        let (stop, stopped) = mpsc::channel::<()>();
        let (gauge, started) = (Arc::clone(gauge), Instant::now());
        let thread = std::thread::Builder::new().name("progress".to_owned()).spawn(move || {
            while stopped.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
                show(&line(&gauge, wanted, started.elapsed()));
            }
            show("");
        });
        // Without its thread the run is as good.
        Self { stop: Some(stop), thread: thread.ok() }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // It only writes; if it could not, the report follows all the same.
            let _ = thread.join();
        }
    }
}

fn show(line: &str) {
    // Back to the beginning of the line, and clear it. A terminal that is gone needs no progress.
    let _ = write!(std::io::stderr(), "\r\x1b[2K{line}");
    let _ = std::io::stderr().flush();
}

fn line(gauge: &Gauge, wanted: Option<u64>, elapsed: Duration) -> String {
    let (ok, failed) = (gauge.ok(), gauge.failed());
    let done = ok + failed;
    let bar = wanted.filter(|wanted| *wanted > 0).map_or_else(String::new, |wanted| {
        let full = (done.min(wanted) * CELLS / wanted).min(CELLS);
        let cells: String = (0..CELLS).map(|cell| if cell < full { '#' } else { '.' }).collect();
        format!("[{cells}] of {wanted}   ")
    });
    format!("{bar}{done} ended   {failed} failed   {} in flight   {} s", gauge.in_flight(), elapsed.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_tells_what_is_known() {
        let gauge = Gauge::default();
        let of = |wanted| line(&gauge, wanted, Duration::from_secs(3));
        assert_eq!(of(None), "0 ended   0 failed   0 in flight   3 s");
        assert_eq!(of(Some(0)), of(None));
        assert!(of(Some(10)).starts_with("[........................] of 10   0 ended"));
    }
}
