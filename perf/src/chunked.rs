//! The chunked transfer coding (RFC 9112 section 7.1), written for the harness alone.
//!
//! The decoder is strict on purpose: it is the judge of what a gateway forwards. It takes input in any split
//! and allocates nothing but what the caller's output needs.

/// A chunk-size line or a trailer line longer than this is refused. Unit: bytes.
pub const LINE_BYTES_MAX: usize = 4096;

/// Why a chunked body was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ChunkError {
    /// The chunk-size line holds something else than hex digits (and a chunk extension).
    #[error("chunk size is not hexadecimal")]
    Size,
    /// A chunk's data is not followed by CRLF.
    #[error("chunk data is not followed by CRLF")]
    Terminator,
    /// A size or trailer line exceeds [`LINE_BYTES_MAX`] or is not ended by CRLF.
    #[error("chunk line is malformed or too long")]
    Line,
}

/// Appends `payload` to `out` as one chunk; an empty payload appends nothing, because an empty chunk ends the
/// body.
pub fn put_chunk(out: &mut Vec<u8>, payload: &[u8]) {
    if payload.is_empty() {
        return;
    }
    put_hex(out, payload.len());
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(payload);
    out.extend_from_slice(b"\r\n");
}

/// The last chunk, without trailers.
pub const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

fn put_hex(out: &mut Vec<u8>, value: usize) {
    let digits = (usize::BITS - value.leading_zeros()).div_ceil(4).max(1);
    for place in (0..digits).rev() {
        let digit = (value >> (place * 4)) & 0xf;
        out.push(b"0123456789abcdef".get(digit).copied().unwrap_or(b'0'));
    }
}

/// Where the decoder stands between two bytes.
///
/// ```text
/// Size ──line──► Data ──n bytes──► DataEnd ──CRLF──► Size
///   └──size 0──► Trailer ──empty line──► Done
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Size,
    Data { left: u64 },
    DataEnd { seen_cr: bool },
    Trailer,
    Done,
}

/// An incremental decoder of one chunked body.
#[derive(Debug)]
pub struct Decoder {
    state: State,
    line: Vec<u8>,
}

impl Default for Decoder {
    fn default() -> Self {
        Self { state: State::Size, line: Vec::new() }
    }
}

impl Decoder {
    /// Decodes from `input`, appending body bytes to `out`, and returns how many input bytes were consumed.
    /// Bytes after the end of the body are left alone: they belong to the next message.
    ///
    /// # Errors
    /// [`ChunkError`] when the coding is broken; the connection is then of no further use.
    pub fn decode(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<usize, ChunkError> {
        let mut at = 0;
        while let Some(rest) = input.get(at..).filter(|rest| !rest.is_empty()) {
            match self.state {
                State::Done => break,
                State::Data { left } => {
                    let take = rest.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                    out.extend_from_slice(rest.get(..take).unwrap_or_default());
                    at += take;
                    let left = left - take as u64;
                    self.state =
                        if left == 0 { State::DataEnd { seen_cr: false } } else { State::Data { left } };
                }
                State::DataEnd { seen_cr } => {
                    let wanted = if seen_cr { b'\n' } else { b'\r' };
                    if rest.first() != Some(&wanted) {
                        return Err(ChunkError::Terminator);
                    }
                    at += 1;
                    self.state = if seen_cr { State::Size } else { State::DataEnd { seen_cr: true } };
                }
                State::Size | State::Trailer => at += self.take_line(rest)?,
            }
        }
        Ok(at)
    }

    /// Whether the last chunk and its trailer section have been seen.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.state == State::Done
    }

    fn take_line(&mut self, rest: &[u8]) -> Result<usize, ChunkError> {
        let end = rest.iter().position(|&b| b == b'\n');
        let take = end.map_or(rest.len(), |end| end + 1);
        if self.line.len() + take > LINE_BYTES_MAX {
            return Err(ChunkError::Line);
        }
        self.line.extend_from_slice(rest.get(..take).unwrap_or_default());
        if end.is_some() {
            let line = self.line.strip_suffix(b"\r\n").ok_or(ChunkError::Line)?;
            self.state = match self.state {
                State::Trailer if line.is_empty() => State::Done,
                State::Trailer => State::Trailer,
                _ => match parse_size(line)? {
                    0 => State::Trailer,
                    left => State::Data { left },
                },
            };
            self.line.clear();
        }
        Ok(take)
    }
}

fn parse_size(line: &[u8]) -> Result<u64, ChunkError> {
    let digits = line.split(|&b| b == b';').next().unwrap_or_default();
    if digits.is_empty() || digits.len() > 16 {
        return Err(ChunkError::Size);
    }
    digits.iter().try_fold(0_u64, |size, &b| {
        let digit = char::from(b).to_digit(16).ok_or(ChunkError::Size)?;
        Ok((size << 4) | u64::from(digit))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode_split(wire: &[u8], step: usize) -> Result<(Vec<u8>, usize, bool), ChunkError> {
        let (mut decoder, mut out, mut used) = (Decoder::default(), Vec::new(), 0);
        for piece in wire.chunks(step) {
            used += decoder.decode(piece, &mut out)?;
        }
        Ok((out, used, decoder.is_done()))
    }

    #[test]
    fn chunks_survive_every_split() {
        let mut wire = Vec::new();
        put_chunk(&mut wire, "你好🌍é".as_bytes());
        put_chunk(&mut wire, b"");
        put_chunk(&mut wire, &[b'x'; 300]);
        wire.extend_from_slice(b"0\r\nx-trailer: 1\r\n\r\n");
        let expected = ["你好🌍é".as_bytes(), &[b'x'; 300]].concat();
        for step in 1..wire.len() {
            assert_eq!(decode_split(&wire, step), Ok((expected.clone(), wire.len(), true)), "step {step}");
        }
    }

    #[test]
    fn bytes_after_the_last_chunk_are_not_consumed() {
        let wire = b"1;ext=1\r\nA\r\n0\r\n\r\nHTTP/1.1";
        assert_eq!(decode_split(wire, wire.len()), Ok((b"A".to_vec(), wire.len() - 8, true)));
    }

    #[test]
    fn broken_coding_is_refused() {
        for (wire, error) in [
            (&b"zz\r\n"[..], ChunkError::Size),
            (b"\r\n", ChunkError::Size),
            (b"+1\r\nA\r\n", ChunkError::Size),
            (b"11111111111111111\r\n", ChunkError::Size),
            (b"1\r\nAB", ChunkError::Terminator),
            (b"1\nA", ChunkError::Line),
            (&[b'0'; LINE_BYTES_MAX + 1], ChunkError::Line),
        ] {
            assert_eq!(decode_split(wire, wire.len()), Err(error), "{:?}", String::from_utf8_lossy(wire));
        }
    }
}
