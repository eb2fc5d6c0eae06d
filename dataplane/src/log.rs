//! Standard error as a log: whoever reads it, or does not, holds up nothing.
//!
//! A log that is not read, a pipe to a collector that hangs above all, would stop the thread that writes to it, and with a
//! shard's thread every stream on it. So nothing is written that does not fit now; it is lost and counted.
//!
//! A shard under load says something several times in each of its turns. [`LineGatherer`] keeps such lines until everything that is
//! ready has had its turn, and writes them by one system call; nothing waits while the shard sleeps.

use std::{
    cell::RefCell,
    io::{self, Write},
    os::fd::AsFd,
    sync::atomic::{
        AtomicBool, AtomicU64,
        Ordering::{Relaxed, SeqCst},
    },
};

use crate::{net::is_writable, shard::call_behind_others};

/// What a pipe or socket that takes anything takes as a whole (`PIPE_BUF`; a pipe's room is counted in pages).
const PIECE: usize = 4096;

/// Lines that were not written, or not to their end.
static LOST: AtomicU64 = AtomicU64::new(0);
/// The last line lacks its end.
static CUT: AtomicBool = AtomicBool::new(false);

/// Lines lost since the start: because nobody read them, or the disk was full, or standard error is closed.
#[must_use]
pub fn lost() -> u64 {
    LOST.load(Relaxed)
}

/// Writes whole lines to standard error, one for each call, at once, after those that its thread has gathered; and never waits for
/// it.
#[derive(Clone, Copy, Debug, Default)]
pub struct LogWriter;

impl Write for LogWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        write_gathered();
        let write = with_gathered(|gathered| gathered.write).unwrap_or(write_now);
        write(line, 1);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Takes whole lines for standard error, one for each call. On a shard they are written together, in their order, before it
/// sleeps or when there is a piece of them; elsewhere as by [`LogWriter`].
#[derive(Clone, Copy, Debug, Default)]
pub struct LineGatherer;

impl Write for LineGatherer {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut kept = with_gathered(|gathered| gathered.keep(line));
        if kept == Some(Kept::Full) {
            write_gathered();
            kept = with_gathered(|gathered| gathered.keep(line));
        }
        match kept {
            Some(Kept::First) => call_behind_others(write_gathered),
            Some(Kept::More) => {}
            Some(Kept::Full | Kept::Not) | None => return LogWriter.write(line),
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        write_gathered();
        Ok(())
    }
}

/// Lets [`LineGatherer`] gather on the calling thread, on which a shard's runtime runs, for as long as it exists.
#[derive(Debug)]
pub(crate) struct Gathering(());

impl Gathering {
    pub(crate) fn here() -> Self {
        with_gathered(|gathered| gathered.is_on = true);
        Self(())
    }
}

impl Drop for Gathering {
    fn drop(&mut self) {
        write_gathered();
        with_gathered(|gathered| gathered.is_on = false);
    }
}

thread_local! {
    static GATHERED: RefCell<Gathered> =
        const { RefCell::new(Gathered { is_on: false, lines: Vec::new(), count: 0, write: write_now }) };
}

/// The lines of one thread that are still to be written.
struct Gathered {
    is_on: bool,
    /// At most a piece.
    lines: Vec<u8>,
    count: u64,
    /// Takes lines and how many they are. A test looks at them.
    write: fn(&[u8], u64),
}

/// What became of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kept {
    /// It is the first one: somebody has to see to its being written.
    First,
    /// It waits with others.
    More,
    /// There is no room beside the others.
    Full,
    /// Nothing is gathered here, or never so long a line.
    Not,
}

impl Gathered {
    fn keep(&mut self, line: &[u8]) -> Kept {
        if !self.is_on || line.len() > PIECE {
            return Kept::Not;
        }
        if self.lines.len() + line.len() > PIECE {
            return Kept::Full;
        }
        self.lines.extend_from_slice(line);
        self.count += 1;
        if self.count == 1 { Kept::First } else { Kept::More }
    }
}

/// `None` where the thread ends, or something within has said something.
fn with_gathered<T>(f: impl FnOnce(&mut Gathered) -> T) -> Option<T> {
    GATHERED
        .try_with(|gathered| gathered.try_borrow_mut().ok().map(|mut gathered| f(&mut gathered)))
        .ok()
        .flatten()
}

/// Writes what the calling thread has gathered.
fn write_gathered() {
    with_gathered(|gathered| {
        if gathered.count > 0 {
            (gathered.write)(&gathered.lines, gathered.count);
            gathered.lines.clear();
            gathered.count = 0;
        }
    });
}

fn write_now(lines: &[u8], count: u64) {
    // Held from the question to the write: what fits must not be used up by another thread in between.
    let mut stderr = io::stderr().lock();
    if write_line(&mut stderr, |stderr| is_writable(stderr.as_fd()), lines).is_err() {
        LOST.fetch_add(count, Relaxed);
    }
}

fn write_line<W: Write>(to: &mut W, has_room: impl Fn(&W) -> bool, line: &[u8]) -> io::Result<()> {
    if CUT.load(SeqCst) {
        write_piece(to, &has_room, b"\n")?;
        CUT.store(false, SeqCst);
    }
    for (number, piece) in line.chunks(PIECE).enumerate() {
        if let Err(error) = write_piece(to, &has_room, piece) {
            // A write that failed may have written a part.
            CUT.store(number > 0 || error.kind() != io::ErrorKind::WouldBlock, SeqCst);
            return Err(error);
        }
    }
    Ok(())
}

fn write_piece<W: Write>(to: &mut W, has_room: &impl Fn(&W) -> bool, piece: &[u8]) -> io::Result<()> {
    if has_room(to) { to.write_all(piece) } else { Err(io::ErrorKind::WouldBlock.into()) }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::{
        shard::{DriverWish, Shard, ShardSpec, spawn_guarded},
        time::yield_now,
    };

    thread_local! {
        static WRITTEN: RefCell<Option<mpsc::Sender<String>>> = const { RefCell::new(None) };
    }

    /// What a shard whose main task is `main` writes to the log, write by write.
    fn writes_of(main: impl AsyncFnOnce() + Send + 'static) -> Vec<String> {
        let (written, writes) = mpsc::channel();
        let spec = ShardSpec { name: "test".to_owned(), cpu: None, driver: DriverWish::Epoll };
        let shard = Shard::start(spec, move || async move {
            WRITTEN.set(Some(written));
            let write = |lines: &[u8], count: u64| {
                let lines = str::from_utf8(lines).unwrap().to_owned();
                assert_eq!(lines.lines().count() as u64, count);
                WRITTEN.with_borrow(|written| written.as_ref().unwrap().send(lines).unwrap());
            };
            with_gathered(|gathered| gathered.write = write);
            main().await;
        });
        assert!(shard.unwrap().join());
        writes.try_iter().collect()
    }

    fn gather(line: &str) {
        LineGatherer.write_all(line.as_bytes()).unwrap();
    }

    #[test]
    fn what_the_tasks_of_a_shard_say_in_one_turn_is_one_write_before_it_sleeps() {
        let writes = writes_of(async || {
            for line in ["one\n", "two\n", "three\n"] {
                spawn_guarded(async move { gather(line) });
            }
            yield_now().await;
            // A task that never ends, and a shard that sleeps: nothing else would write this.
            gather("four\n");
            crate::time::sleep_until(crate::clock::now() + std::time::Duration::from_millis(50)).await;
            WRITTEN.with_borrow(|written| written.as_ref().unwrap().send("awake".to_owned()).unwrap());
        });
        let all = writes.concat();
        assert_eq!(all, "one\ntwo\nthree\nfour\nawake");
        assert!(writes.len() <= 3, "{writes:?}");
    }

    #[test]
    fn a_line_that_is_written_at_once_comes_after_those_that_were_gathered() {
        let writes = writes_of(async || {
            gather("one\n");
            gather("two\n");
            LogWriter.write_all(b"three\n").unwrap();
            gather("four\n");
            LineGatherer.flush().unwrap();
            gather("five\n");
        });
        // The last one by the end of the thread.
        assert_eq!(writes, ["one\ntwo\n", "three\n", "four\n", "five\n"]);
    }

    #[test]
    fn a_panic_of_the_shard_itself_loses_no_line() {
        thread_local! {
            static SENT: RefCell<Option<mpsc::Sender<usize>>> = const { RefCell::new(None) };
        }
        let (sent, count) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            SENT.set(Some(sent));
            let write = |lines: &[u8], _count: u64| {
                SENT.with_borrow(|sent| sent.as_ref().unwrap().send(lines.len()).unwrap());
            };
            let _gathering = Gathering::here();
            with_gathered(|gathered| {
                gathered.write = write;
                gathered.lines.extend_from_slice(b"said\n");
                gathered.count = 1;
            });
            panic!("of a test");
        });
        assert!(thread.join().is_err());
        assert_eq!(count.iter().collect::<Vec<_>>(), [5]);
    }

    #[test]
    fn what_fills_a_piece_is_written_and_a_longer_line_is_not_kept() {
        let writes = writes_of(async || {
            let line = "x".repeat(1000) + "\n";
            for _ in 0..5 {
                gather(&line);
            }
            gather(&("y".repeat(2 * PIECE) + "\n"));
        });
        let lengths: Vec<_> = writes.iter().map(String::len).collect();
        assert_eq!(lengths, [4004, 1001, 2 * PIECE + 1]);
    }

    #[test]
    fn a_thread_that_is_no_shard_gathers_nothing() {
        assert_eq!(with_gathered(|gathered| gathered.keep(b"line\n")), Some(Kept::Not));
    }

    #[test]
    fn a_line_without_room_is_left_out_and_one_that_was_cut_is_ended_before_the_next() {
        let room = |most: usize| move |to: &Vec<u8>| to.len() < most;
        let mut to = Vec::new();
        write_line(&mut to, room(1), b"one\n").unwrap();
        assert!(write_line(&mut to, room(1), b"two\n").is_err());
        let long = [b'x'; 2 * PIECE];
        assert!(write_line(&mut to, room(PIECE), &long).is_err());
        assert!(write_line(&mut to, room(PIECE), b"three\n").is_err());
        write_line(&mut to, room(usize::MAX), b"four\n").unwrap();
        write_line(&mut to, room(usize::MAX), b"five\n").unwrap();
        let text = String::from_utf8(to).unwrap();
        let lines: Vec<_> = text.lines().map(|line| (line.len(), line.chars().next())).collect();
        assert_eq!(lines, [(3, Some('o')), (PIECE, Some('x')), (4, Some('f')), (4, Some('f'))]);
    }
}
