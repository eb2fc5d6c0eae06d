//! Zstandard (RFC 8878), one frame, as a content coding (RFC 9659).

use std::io::Read;

use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder, errors::FrameDecoderError};

use super::{DecodeFault, Progress, STEP_IN, STEP_OUT, source::Source};

/// The largest window: what a sender may use at most and a receiver has to have (RFC 9659 section 3).
const WINDOW_MAX: u64 = 8 * 1024 * 1024;
const MAGIC: [u8; 4] = 0xfd2f_b528_u32.to_le_bytes();

/// A frame.
pub(super) struct Zstd {
    frame: FrameDecoder,
    begun: bool,
}

impl Default for Zstd {
    fn default() -> Self {
        let mut frame = FrameDecoder::new();
        frame.set_max_window_size(WINDOW_MAX);
        Self { frame, begun: false }
    }
}

impl std::fmt::Debug for Zstd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Zstd").field("begun", &self.begun).finish_non_exhaustive()
    }
}

impl Zstd {
    /// Decodes blocks as long as they are few and small, then gives what nothing refers to any more.
    pub(super) fn step(
        &mut self,
        source: &mut Source,
        out: &mut [u8],
    ) -> Result<(Progress, usize), DecodeFault> {
        if !self.begun {
            self.frame.init(&mut *source).map_err(|error| fault(&error, source))?;
            self.begun = true;
        }
        let taken_before = self.frame.bytes_read_from_source();
        while !self.frame.is_finished() && self.frame.can_collect() < STEP_OUT {
            self.frame
                .decode_blocks(&mut *source, BlockDecodingStrategy::UptoBlocks(1))
                .map_err(|error| fault(&error, source))?;
            if self.frame.bytes_read_from_source() - taken_before >= STEP_IN as u64 {
                break;
            }
        }
        let given = self.frame.read(out).map_err(|_| DecodeFault::Corrupt)?;
        if !self.frame.is_finished() || self.frame.can_collect() > 0 {
            return Ok((Progress::More, given));
        }
        let announced = self.frame.get_checksum_from_data();
        if announced.is_some() && announced != self.frame.get_calculated_checksum() {
            return Err(DecodeFault::Corrupt);
        }
        Ok((Progress::End, given))
    }
}

/// A read that found too little says so whatever it was for: then nothing is left.
fn fault(error: &FrameDecoderError, source: &Source) -> DecodeFault {
    match error {
        FrameDecoderError::WindowSizeTooBig { .. } | FrameDecoderError::DictNotProvided { .. } => {
            DecodeFault::Unusual
        }
        _ if source.is_empty() => DecodeFault::Truncated,
        _ => DecodeFault::Corrupt,
    }
}

/// The window that the frame's header announces, in bytes (RFC 8878 section 3.1.1.1).
pub(super) fn window(source: &Source) -> Result<usize, DecodeFault> {
    let (head, count) = source.peek::<14>();
    let head = head.get(..count).unwrap_or_default();
    let Some((magic, [descriptor, rest @ ..])) = head.split_at_checked(MAGIC.len()) else {
        return Err(if MAGIC.starts_with(head) { DecodeFault::Truncated } else { DecodeFault::Corrupt });
    };
    if magic != MAGIC {
        return Err(DecodeFault::Corrupt);
    }
    let is_single = descriptor & 0x20 != 0;
    let window = if is_single {
        let size_at = [0, 1, 2, 4].get(usize::from(descriptor & 3)).copied().unwrap_or_default();
        let (size_len, plus) = match descriptor >> 6 {
            0 => (1, 0),
            1 => (2, 256),
            2 => (4, 0),
            _ => (8, 0),
        };
        let size = rest.get(size_at..size_at + size_len).ok_or(DecodeFault::Truncated)?;
        let size = size.iter().rev().fold(0_u64, |size, byte| size << 8 | u64::from(*byte));
        size.saturating_add(plus)
    } else {
        let window = *rest.first().ok_or(DecodeFault::Truncated)?;
        let base = 1_u64 << (10 + (window >> 3));
        base + base / 8 * u64::from(window & 7)
    };
    match usize::try_from(window) {
        Ok(bytes) if window <= WINDOW_MAX => Ok(bytes),
        _ => Err(DecodeFault::Unusual),
    }
}
