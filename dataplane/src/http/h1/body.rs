//! Where a message's body ends (RFC 9112 §6.3, §7.1), as a pure decoder of whatever bytes are there.

use bytes::{Buf, Bytes, BytesMut};

use super::parse::{DeclaredBody, HeadFault, declared_body};
use crate::http::{
    head::{Method, RequestHead, ResponseHead, is_field_value, is_token_byte},
    limits::Limits,
};

/// Bytes of framing behind a piece that it may keep in memory however short it is.
const FRAMING_KEPT: usize = 512;
/// Hexadecimal digits of a chunk size: more cannot be meant.
const MAX_SIZE_DIGITS: usize = 16;

/// A malformed chunked body. The connection must be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BodyFault {
    /// Not a hexadecimal chunk size, or one that no 64-bit number can hold.
    #[error("malformed chunk size")]
    Size,
    /// A chunk extension with a control character or over its limit.
    #[error("malformed chunk extension")]
    Extension,
    /// A bare CR or LF, or data after the announced end of a chunk.
    #[error("a line of the chunked body does not end in CRLF")]
    LineEnd,
    /// A trailer that is not a field, or a trailer section over its limit.
    #[error("malformed trailer section")]
    Trailer,
}

/// The body ended before its declared end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the body ended early")]
pub struct Truncated;

/// What a call of [`BodyDecoder::decode`] gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decoded {
    /// A piece of the body, never empty; ask again.
    Data(Bytes),
    /// All bytes given are used up and the body goes on.
    NeedMore,
    /// The body is over; what is left in the buffer is not part of it.
    End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Body of known length: bytes to come.
    Length(u64),
    /// Up to the end of the connection.
    UntilClose,
    /// In the size of a chunk.
    Size {
        value: u64,
        digits: usize,
    },
    /// After the size, in the extension.
    Extension {
        bytes: usize,
    },
    /// After the CR of a size line.
    SizeLf {
        value: u64,
    },
    /// In a chunk's data: bytes to come, at least one.
    Data(u64),
    /// After a chunk's data.
    DataCr,
    DataLf,
    /// In the trailer section: bytes so far.
    Trailer {
        bytes: usize,
        place: Place,
    },
    End,
}

/// Place in a trailer line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Start,
    Name,
    Value,
    Lf,
    /// After the CR of the empty line.
    LastLf,
}

/// Finds the end of one body. Gives the same pieces joined, however its input is split.
#[derive(Clone, Debug)]
pub struct BodyDecoder {
    state: State,
    /// Size of the chunk whose extension is being read.
    size: u64,
    ext_limit: usize,
    trailer_limit: usize,
}

impl BodyDecoder {
    fn new(state: State, limits: &Limits) -> Self {
        Self { state, size: 0, ext_limit: limits.chunk_ext_bytes, trailer_limit: limits.trailer_bytes }
    }

    /// No body.
    pub fn none() -> Self {
        Self { state: State::End, size: 0, ext_limit: 0, trailer_limit: 0 }
    }

    /// Exactly `length` bytes.
    pub fn length(length: u64) -> Self {
        Self { state: if length == 0 { State::End } else { State::Length(length) }, ..Self::none() }
    }

    /// Chunked.
    pub fn chunked(limits: &Limits) -> Self {
        Self::new(State::Size { value: 0, digits: 0 }, limits)
    }

    /// Everything up to the end of the connection.
    pub fn until_close() -> Self {
        Self { state: State::UntilClose, ..Self::none() }
    }

    /// The body of a request: none without a framing field.
    ///
    /// # Errors
    /// The framing fields contradict each other; never for a parsed head.
    pub fn for_request(head: &RequestHead, limits: &Limits) -> Result<Self, HeadFault> {
        Ok(match declared_body(head.version, &head.headers)? {
            DeclaredBody::Nothing => Self::none(),
            DeclaredBody::Length(length) => Self::length(length),
            DeclaredBody::Chunked => Self::chunked(limits),
        })
    }

    /// The body of the response to a request with method `asked` (RFC 9112 §6.3): none for HEAD, 1xx, 204 and 304.
    ///
    /// # Errors
    /// The framing fields contradict each other; never for a parsed head.
    pub fn for_response(head: &ResponseHead, asked: &Method, limits: &Limits) -> Result<Self, HeadFault> {
        let declared = declared_body(head.version, &head.headers)?;
        if *asked == Method::Head || head.is_informational() || matches!(head.status, 204 | 304) {
            return Ok(Self::none());
        }
        Ok(match declared {
            DeclaredBody::Nothing => Self::until_close(),
            DeclaredBody::Length(length) => Self::length(length),
            DeclaredBody::Chunked => Self::chunked(limits),
        })
    }

    /// Whether the body is over.
    pub fn is_end(&self) -> bool {
        self.state == State::End
    }

    /// Whether only the end of the connection ends the body, so that it cannot be reused.
    pub fn is_until_close(&self) -> bool {
        self.state == State::UntilClose
    }

    /// Bytes still to come, where the head said so.
    pub fn remaining(&self) -> Option<u64> {
        match self.state {
            State::Length(left) => Some(left),
            State::End => Some(0),
            _ => None,
        }
    }

    /// Notes that so many bytes of a body of known length were taken without [`BodyDecoder::decode`].
    pub fn skip(&mut self, bytes: usize) {
        if let State::Length(left) = self.state {
            let left = left.saturating_sub(bytes as u64);
            self.state = if left == 0 { State::End } else { State::Length(left) };
        }
    }

    /// Takes the next piece off the front of `buf`: of a chunked body the data of all chunks that are there, moved together,
    /// so that what follows costs once for each read and not for each chunk. The first chunk's data is not copied. What is wrong
    /// behind data is told by the next call.
    ///
    /// # Errors
    /// The chunked body is malformed; what is left must not be read.
    pub fn decode(&mut self, buf: &mut BytesMut) -> Result<Decoded, BodyFault> {
        loop {
            match self.state {
                State::End => return Ok(Decoded::End),
                _ if buf.is_empty() => return Ok(Decoded::NeedMore),
                State::UntilClose => return Ok(Decoded::Data(buf.split().freeze())),
                State::Length(left) => {
                    let (piece, left) = take(buf, left);
                    self.state = if left == 0 { State::End } else { State::Length(left) };
                    return Ok(Decoded::Data(piece));
                }
                State::Data(_) => return Ok(Decoded::Data(self.join_chunks(buf))),
                State::Size { digits: 0, .. } if let Some((used, size)) = usual_size(buf) => {
                    self.state = State::Data(size);
                    buf.advance(used);
                }
                _ => {
                    let used = self.step(buf)?;
                    buf.advance(used.min(buf.len()));
                }
            }
        }
    }

    /// Takes the data at the front of `buf` and that of the chunks behind it, as far as they are there and well-formed.
    fn join_chunks(&mut self, buf: &mut BytesMut) -> Bytes {
        // Up to `end` there is data, from `next` on what was not looked at.
        let (mut end, mut next) = (0, 0);
        while let Some(rest) = buf.get(next..).filter(|rest| !rest.is_empty()) {
            match self.state {
                State::Data(left) => {
                    let n = usize::try_from(left).unwrap_or(usize::MAX).min(rest.len());
                    let left = left.saturating_sub(n as u64);
                    self.state = if left == 0 { State::DataCr } else { State::Data(left) };
                    if next > end {
                        buf.copy_within(next..next + n, end);
                    }
                    (end, next) = (end + n, next + n);
                }
                State::DataCr if let Some((used, size)) = usual_line(rest) => {
                    self.state = State::Data(size);
                    next += used;
                }
                State::DataCr if rest == b"\r\n" => {
                    self.state = State::Size { value: 0, digits: 0 };
                    next += rest.len();
                }
                State::End => break,
                before => match self.step(rest) {
                    Ok(used) => next += used,
                    Err(_) => {
                        // Found again by the next call, behind the data.
                        self.state = before;
                        break;
                    }
                },
            }
        }
        if next - end > end.max(FRAMING_KEPT) {
            // It may have to wait, and would keep the memory of all that framing.
            let piece = Bytes::copy_from_slice(buf.get(..end).unwrap_or_default());
            buf.advance(next);
            return piece;
        }
        let piece = buf.split_to(end).freeze();
        buf.advance(next - end);
        piece
    }

    /// Reads framing bytes up to the next data, the end, or the end of `bytes`; gives how many.
    fn step(&mut self, bytes: &[u8]) -> Result<usize, BodyFault> {
        let mut used = 0;
        for &byte in bytes {
            if matches!(self.state, State::Data(_) | State::End) {
                break;
            }
            used += 1;
            self.state = match self.state {
                State::Trailer { bytes, place } => self.trailer(byte, bytes, place)?,
                _ => self.chunk_line(byte)?,
            };
        }
        Ok(used)
    }

    fn chunk_line(&mut self, byte: u8) -> Result<State, BodyFault> {
        match self.state {
            State::Size { value, digits } => match (byte, digit(byte)) {
                (_, Some(_)) if digits == MAX_SIZE_DIGITS => Err(BodyFault::Size),
                (_, Some(d)) => Ok(State::Size { value: (value << 4) | d, digits: digits + 1 }),
                (_, None) if digits == 0 => Err(BodyFault::Size),
                (b'\r', None) => Ok(State::SizeLf { value }),
                (b';', None) if self.ext_limit == 0 => Err(BodyFault::Extension),
                (b';', None) => {
                    self.size = value;
                    Ok(State::Extension { bytes: 1 })
                }
                (b'\n', None) => Err(BodyFault::LineEnd),
                _ => Err(BodyFault::Size),
            },
            State::Extension { bytes } => match byte {
                b'\r' => Ok(State::SizeLf { value: self.size }),
                b'\n' => Err(BodyFault::LineEnd),
                _ if bytes >= self.ext_limit || !is_field_value(&[byte]) => Err(BodyFault::Extension),
                _ => Ok(State::Extension { bytes: bytes + 1 }),
            },
            State::SizeLf { value } if byte == b'\n' => Ok(if value == 0 {
                State::Trailer { bytes: 0, place: Place::Start }
            } else {
                State::Data(value)
            }),
            State::DataCr if byte == b'\r' => Ok(State::DataLf),
            State::DataLf if byte == b'\n' => Ok(State::Size { value: 0, digits: 0 }),
            _ => Err(BodyFault::LineEnd),
        }
    }

    fn trailer(&self, byte: u8, bytes: usize, place: Place) -> Result<State, BodyFault> {
        if bytes >= self.trailer_limit
            && !matches!((place, byte), (Place::Start, b'\r') | (Place::LastLf, b'\n'))
        {
            return Err(BodyFault::Trailer);
        }
        let place = match (place, byte) {
            (Place::LastLf, b'\n') => return Ok(State::End),
            (Place::Start, b'\r') => Place::LastLf,
            (Place::Lf, b'\n') => Place::Start,
            (Place::Name, b':') => Place::Value,
            (Place::Start | Place::Name, _) if is_token_byte(byte) => Place::Name,
            (Place::Value, b'\r') => Place::Lf,
            (Place::Value, _) if is_field_value(&[byte]) => Place::Value,
            _ => {
                return Err(if matches!(byte, b'\r' | b'\n') {
                    BodyFault::LineEnd
                } else {
                    BodyFault::Trailer
                });
            }
        };
        Ok(State::Trailer { bytes: bytes + 1, place })
    }

    /// The connection ended.
    ///
    /// # Errors
    /// Before the body did.
    pub fn finish_at_eof(&mut self) -> Result<(), Truncated> {
        match self.state {
            State::End | State::UntilClose => {
                self.state = State::End;
                Ok(())
            }
            _ => Err(Truncated),
        }
    }
}

fn take(buf: &mut BytesMut, left: u64) -> (Bytes, u64) {
    let n = usize::try_from(left).unwrap_or(usize::MAX).min(buf.len());
    (buf.split_to(n).freeze(), left.saturating_sub(n as u64))
}

/// What stands between two chunks as nearly every server writes it: CRLF and a [usual size](usual_size). Gives its length and the
/// size; `None` for everything else, well-formed or not.
fn usual_line(bytes: &[u8]) -> Option<(usize, u64)> {
    let (used, size) = usual_size(bytes.strip_prefix(b"\r\n")?)?;
    Some((used + 2, size))
}

/// A size of at most eight digits that is not 0, and CRLF; as [`usual_line`].
fn usual_size(line: &[u8]) -> Option<(usize, u64)> {
    let mut size = 0;
    for (at, &byte) in line.iter().take(9).enumerate() {
        let Some(digit) = digit(byte) else {
            let ends = line.get(at..).is_some_and(|rest| rest.starts_with(b"\r\n"));
            return (ends && size > 0).then_some((at + 2, size));
        };
        size = size << 4 | digit;
    }
    None
}

fn digit(byte: u8) -> Option<u64> {
    char::from(byte).to_digit(16).map(u64::from)
}
