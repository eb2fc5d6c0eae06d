//! gzip (RFC 1952) and deflate (RFC 1950 and RFC 1951).

use flate2::{Crc, Decompress, FlushDecompress, Status};

use super::{DecodeFault, Progress, STEP_IN, source::Source};

/// Bytes back that a match may reach.
pub(super) const WINDOW: usize = 32 * 1024;
/// The longest extra field, name or comment of a gzip header that is looked past, in bytes; no client sends any.
const HEADER_BYTES_MAX: usize = 64 * 1024;

const FHCRC: u8 = 1 << 1;
const FEXTRA: u8 = 1 << 2;
const FNAME: u8 = 1 << 3;
const FCOMMENT: u8 = 1 << 4;
const RESERVED: u8 = 0b1110_0000;

/// One step of a stream: the bytes that it gave.
fn inflate(
    stream: &mut Decompress,
    source: &mut Source,
    out: &mut [u8],
) -> Result<(Progress, usize), DecodeFault> {
    let chunk = source.chunk();
    let input = chunk.get(..chunk.len().min(STEP_IN)).unwrap_or_default();
    let before = (stream.total_in(), stream.total_out());
    let status = stream.decompress(input, out, FlushDecompress::None).map_err(|_| DecodeFault::Corrupt)?;
    // Both are at most the length of a slice.
    let used = usize::try_from(stream.total_in() - before.0).unwrap_or_default();
    let given = usize::try_from(stream.total_out() - before.1).unwrap_or_default();
    let is_over = input.is_empty();
    source.advance(used);
    match status {
        Status::StreamEnd => Ok((Progress::End, given)),
        _ if used > 0 || given > 0 => Ok((Progress::More, given)),
        _ if is_over => Err(DecodeFault::Truncated),
        // Room for output and bytes of input, and nothing came of either.
        _ => Err(DecodeFault::Corrupt),
    }
}

/// One member of a gzip file.
#[derive(Debug, Default)]
pub(super) struct Gzip {
    /// `None` before the end of the header.
    stream: Option<Decompress>,
    crc: Crc,
}

impl Gzip {
    pub(super) fn step(
        &mut self,
        source: &mut Source,
        out: &mut [u8],
    ) -> Result<(Progress, usize), DecodeFault> {
        let stream = match &mut self.stream {
            Some(stream) => stream,
            None => {
                skip_header(source)?;
                self.stream.insert(Decompress::new(false))
            }
        };
        let (progress, given) = inflate(stream, source, out)?;
        self.crc.update(out.get(..given).unwrap_or_default());
        if progress == Progress::End {
            let sum = source.array().map(u32::from_le_bytes).ok_or(DecodeFault::Truncated)?;
            let length = source.array().map(u32::from_le_bytes).ok_or(DecodeFault::Truncated)?;
            if (sum, length) != (self.crc.sum(), self.crc.amount()) {
                return Err(DecodeFault::Corrupt);
            }
        }
        Ok((progress, given))
    }
}

/// Takes the header of a member. Its own checksum is not looked at, as RFC 1952 section 2.3.1.2 leaves it to us.
fn skip_header(source: &mut Source) -> Result<(), DecodeFault> {
    let Some([magic, magic2, method, flags, ..]) = source.array::<10>() else {
        return Err(DecodeFault::Truncated);
    };
    if [magic, magic2, method] != [0x1f, 0x8b, 8] || flags & RESERVED != 0 {
        return Err(DecodeFault::Corrupt);
    }
    let mut left = HEADER_BYTES_MAX;
    let mut next = |source: &mut Source| {
        left = left.checked_sub(1).ok_or(DecodeFault::Unusual)?;
        source.byte().ok_or(DecodeFault::Truncated)
    };
    if flags & FEXTRA != 0 {
        let length = u16::from_le_bytes([next(source)?, next(source)?]);
        for _ in 0..length {
            next(source)?;
        }
    }
    for _text in [FNAME, FCOMMENT].iter().filter(|flag| flags & **flag != 0) {
        while next(source)? != 0 {}
    }
    if flags & FHCRC != 0 {
        next(source)?;
        next(source)?;
    }
    Ok(())
}

/// A deflate stream, with the wrapping that RFC 9110 asks for or without it.
#[derive(Debug, Default)]
pub(super) struct Deflate {
    /// `None` before its first bytes.
    stream: Option<Decompress>,
}

impl Deflate {
    pub(super) fn step(
        &mut self,
        source: &mut Source,
        out: &mut [u8],
    ) -> Result<(Progress, usize), DecodeFault> {
        let stream = self.stream.get_or_insert_with(|| Decompress::new(is_wrapped(source)));
        inflate(stream, source, out)
    }
}

/// Whether the first two bytes are those of RFC 1950 section 2.2: a bare stream that begins so would begin with a stored block
/// whose padding is not zero.
fn is_wrapped(source: &Source) -> bool {
    let ([method, flags], 2) = source.peek::<2>() else { return false };
    method & 0x0f == 8 && method >> 4 <= 7 && u16::from_be_bytes([method, flags]).is_multiple_of(31)
}
