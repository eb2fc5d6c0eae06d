//! Brotli (RFC 7932).

use brotli_decompressor::{BrotliDecompressStream, BrotliResult, BrotliState, StandardAlloc};

use super::{DecodeFault, Progress, STEP_IN, source::Source};

/// A stream. Windows beyond those of RFC 7932 ("large window") are refused.
pub(super) struct Brotli(BrotliState<StandardAlloc, StandardAlloc, StandardAlloc>);

impl Default for Brotli {
    fn default() -> Self {
        let alloc = StandardAlloc::default;
        Self(BrotliState::new_strict(alloc(), alloc(), alloc()))
    }
}

impl std::fmt::Debug for Brotli {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Brotli").finish_non_exhaustive()
    }
}

impl Brotli {
    pub(super) fn step(
        &mut self,
        source: &mut Source,
        out: &mut [u8],
    ) -> Result<(Progress, usize), DecodeFault> {
        let chunk = source.chunk();
        let input = chunk.get(..chunk.len().min(STEP_IN)).unwrap_or_default();
        let (mut unused, mut used) = (input.len(), 0);
        let (mut free, mut given, mut total) = (out.len(), 0, 0);
        let result = BrotliDecompressStream(
            &mut unused,
            &mut used,
            input,
            &mut free,
            &mut given,
            out,
            &mut total,
            &mut self.0,
        );
        let is_over = input.is_empty();
        source.advance(used);
        match result {
            BrotliResult::ResultSuccess => Ok((Progress::End, given)),
            BrotliResult::NeedsMoreInput if is_over => Err(DecodeFault::Truncated),
            BrotliResult::NeedsMoreInput | BrotliResult::NeedsMoreOutput => Ok((Progress::More, given)),
            BrotliResult::ResultFailure => Err(DecodeFault::Corrupt),
        }
    }
}

/// The window that the first byte announces, in bytes (RFC 7932 section 9.1).
pub(super) fn window(chunk: &[u8]) -> Result<usize, DecodeFault> {
    let first = *chunk.first().ok_or(DecodeFault::Truncated)?;
    let bits = match (first & 1, first >> 1 & 7, first >> 4 & 7) {
        (0, ..) => 16,
        (_, 0, 0) => 17,
        // What a later format uses for larger ones.
        (_, 0, 1) => return Err(DecodeFault::Unusual),
        (_, 0, few) => 8 + few,
        (_, many, _) => 17 + many,
    };
    Ok(1 << bits)
}
