//! Standard error as a log: whoever reads it, or does not, holds up nothing.
//!
//! A log that is not read, a pipe to a collector that hangs above all, would stop the thread that writes to it, and with a
//! shard's thread every stream on it. So nothing is written that does not fit now; it is lost and counted.

use std::{
    io::{self, Write},
    os::fd::AsFd,
    sync::atomic::{
        AtomicBool, AtomicU64,
        Ordering::{Relaxed, SeqCst},
    },
};

use crate::net::is_writable;

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

/// Writes whole lines to standard error, one for each call, and never waits for it.
#[derive(Clone, Copy, Debug, Default)]
pub struct LogWriter;

impl Write for LogWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        // Held from the question to the write: what fits must not be used up by another thread in between.
        let mut stderr = io::stderr().lock();
        if write_line(&mut stderr, |stderr| is_writable(stderr.as_fd()), line).is_err() {
            LOST.fetch_add(1, Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
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
    use super::*;

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
