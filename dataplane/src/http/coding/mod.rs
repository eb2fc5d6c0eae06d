//! Content codings of request bodies (RFC 9110 §8.4, RFC 7694): gzip, deflate, br, zstd, taken off under a cap.
//!
//! A [`Decoder`] is a pure machine: each [`Decoder::step`] takes at most 4 KiB and gives about 32 KiB, which
//! takes a fraction of a millisecond whatever the bytes are, so that its owner lets others have their turn in between.
//! [`decode`] is that owner. What comes out is bounded three times: by the caller's limit, by [`RATIO_MAX`], and by the budget
//! of memory that all bodies share.

mod brotli;
mod deflate;
mod source;
#[cfg(test)]
mod tests;
mod zstd;

use super::{
    body::Body,
    budget::{Budget, Piece, Room},
    head::{Headers, list_elements},
};
use crate::time::yield_now;
use source::Source;

/// What an `accept-encoding` in an answer says (RFC 7694 §3).
pub const UNDERSTOOD: &str = "gzip, deflate, br, zstd";
/// A body may become so many times as long; nothing that a client of ours sends comes near it.
pub const RATIO_MAX: usize = 100;
/// Below this length, in bytes, the ratio is nobody's business: a text that repeats itself may be small indeed.
pub const RATIO_FLOOR: usize = 1024 * 1024;

/// Bytes that one step takes at most, except for a block of zstd, which is taken whole (128 KiB at most). Tables that must be
/// built for a few bytes each make a byte of input dearer than one of output.
const STEP_IN: usize = 4 * 1024;
/// Bytes that one step gives at most, except for a block of zstd as above.
const STEP_OUT: usize = 32 * 1024;
/// What tables of a decoder with a window of its own take beside it, about.
const TABLES: usize = 256 * 1024;

/// A content coding that is understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coding {
    /// RFC 1952.
    Gzip,
    /// RFC 1950, and RFC 1951 without its wrapping, which some clients send under this name.
    Deflate,
    /// RFC 7932.
    Brotli,
    /// RFC 8878 with a window of at most 8 MiB (RFC 9659).
    Zstd,
}

/// A content coding that is not understood, or several of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unsupported;

impl Coding {
    /// The coding of the message with these headers; `None` when there is none.
    ///
    /// # Errors
    /// It is not understood, or is one of several.
    pub fn of(headers: &Headers) -> Result<Option<Self>, Unsupported> {
        let mut found = None;
        for name in headers.get_all("content-encoding").flat_map(list_elements) {
            let coding = match name {
                name if name.eq_ignore_ascii_case(b"identity") => continue,
                // RFC 9110 section 8.4.1.3: the two are one.
                name if name.eq_ignore_ascii_case(b"gzip") || name.eq_ignore_ascii_case(b"x-gzip") => {
                    Self::Gzip
                }
                name if name.eq_ignore_ascii_case(b"deflate") => Self::Deflate,
                name if name.eq_ignore_ascii_case(b"br") => Self::Brotli,
                name if name.eq_ignore_ascii_case(b"zstd") => Self::Zstd,
                _ => return Err(Unsupported),
            };
            if found.replace(coding).is_some() {
                return Err(Unsupported);
            }
        }
        Ok(found)
    }

    /// Its registered name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Deflate => "deflate",
            Self::Brotli => "br",
            Self::Zstd => "zstd",
        }
    }
}

/// Why there is no decoded body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeFault {
    /// The bytes are no such coding, or were damaged.
    #[error("it is corrupt")]
    Corrupt,
    /// They end too early.
    #[error("it ends too early")]
    Truncated,
    /// Something follows the end.
    #[error("something follows its end")]
    Trailing,
    /// It needs a dictionary, or a window above that of its registration.
    #[error("it needs more than a decoder has to have")]
    Unusual,
    /// Over the size limit.
    #[error("it becomes too large")]
    TooLarge,
    /// Over [`RATIO_MAX`].
    #[error("it becomes more than {RATIO_MAX} times as large")]
    Expands,
    /// The process's budget is used up by other bodies.
    #[error("there is no memory left for it")]
    NoRoom,
}

/// How far a decoder has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// There is more to do.
    More,
    /// The coding has ended by its own rules.
    End,
}

#[derive(Debug)]
enum Machine {
    Gzip(deflate::Gzip),
    Deflate(deflate::Deflate),
    Brotli(Box<brotli::Brotli>),
    Zstd(Box<zstd::Zstd>),
}

/// Takes the coding off one body, which is there as a whole.
#[derive(Debug)]
pub struct Decoder {
    machine: Machine,
    source: Source,
    scratch: Vec<u8>,
    body: Body,
    filling: Option<Piece>,
    budget: Budget,
    max: usize,
    by_ratio: usize,
    /// For the window of the coding.
    _window: Room,
}

impl Decoder {
    /// Begins. At most `max` bytes may come out, and they take their room in `budget`, as does what the decoder itself
    /// needs.
    ///
    /// # Errors
    /// There is no room, or the beginning is none of this coding.
    pub fn new(coding: Coding, body: Body, max: usize, budget: &Budget) -> Result<Self, DecodeFault> {
        let by_ratio = body.len().saturating_mul(RATIO_MAX).max(RATIO_FLOOR);
        let source = Source::new(body);
        let window = match coding {
            Coding::Gzip | Coding::Deflate => deflate::WINDOW,
            Coding::Brotli => brotli::window(source.chunk())?,
            Coding::Zstd => zstd::window(&source)?,
        };
        // A window is no larger than what is in it, and is moved once when it grows.
        let memory = 2 * window.min(max).min(by_ratio) + TABLES;
        let room = budget.take(0, memory as u64).ok_or(DecodeFault::NoRoom)?;
        let machine = match coding {
            Coding::Gzip => Machine::Gzip(deflate::Gzip::default()),
            Coding::Deflate => Machine::Deflate(deflate::Deflate::default()),
            Coding::Brotli => Machine::Brotli(Box::default()),
            Coding::Zstd => Machine::Zstd(Box::default()),
        };
        Ok(Self {
            machine,
            source,
            scratch: vec![0; STEP_OUT],
            body: Body::default(),
            filling: None,
            budget: budget.clone(),
            max,
            by_ratio,
            _window: room,
        })
    }

    /// Goes on by a step; the body when it was the last one.
    ///
    /// # Errors
    /// There is none.
    pub fn step(&mut self) -> Result<Option<Body>, DecodeFault> {
        let (progress, given) = match &mut self.machine {
            Machine::Gzip(gzip) => gzip.step(&mut self.source, &mut self.scratch),
            Machine::Deflate(deflate) => deflate.step(&mut self.source, &mut self.scratch),
            Machine::Brotli(brotli) => brotli.step(&mut self.source, &mut self.scratch),
            Machine::Zstd(zstd) => zstd.step(&mut self.source, &mut self.scratch),
        }?;
        self.take(given)?;
        match progress {
            Progress::More => Ok(None),
            Progress::End if !self.source.is_empty() => Err(DecodeFault::Trailing),
            Progress::End => {
                if let Some(last) = self.filling.take() {
                    last.push_to(&mut self.body);
                }
                Ok(Some(std::mem::take(&mut self.body)))
            }
        }
    }

    /// Puts what a step has given behind the rest.
    fn take(&mut self, given: usize) -> Result<(), DecodeFault> {
        let mut rest = self.scratch.get(..given).unwrap_or_default();
        let mut length = self.body.len() + self.filling.as_ref().map_or(0, Piece::len);
        if rest.len() > self.max - length {
            return Err(DecodeFault::TooLarge);
        }
        if rest.len() > self.by_ratio - length {
            return Err(DecodeFault::Expands);
        }
        while !rest.is_empty() {
            let mut piece = match self.filling.take() {
                Some(piece) => piece,
                None => Piece::next(&self.budget, length, self.max - length).ok_or(DecodeFault::NoRoom)?,
            };
            let (now, later) = rest.split_at(rest.len().min(piece.missing()));
            piece.extend(now);
            length += now.len();
            rest = later;
            if piece.missing() > 0 {
                self.filling = Some(piece);
            } else {
                piece.push_to(&mut self.body);
            }
        }
        Ok(())
    }
}

/// Takes the coding off `body`, in steps between which the shard's other tasks run. Of `body` what has been used is let go.
///
/// # Errors
/// It is damaged or too large, or there is no room for it.
pub async fn decode(coding: Coding, body: Body, max: usize, budget: &Budget) -> Result<Body, DecodeFault> {
    let mut decoder = Decoder::new(coding, body, max, budget)?;
    loop {
        if let Some(body) = decoder.step()? {
            return Ok(body);
        }
        yield_now().await;
    }
}
