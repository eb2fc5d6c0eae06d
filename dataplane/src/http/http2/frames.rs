//! The heads of frames in a stream of bytes (RFC 9113 section 4.1). No I/O, and no judgement: what is malformed is for the `h2` crate
//! to find.

/// Bytes of a frame's head.
const HEAD: usize = 9;
/// Bytes of the payload that are looked at, at most: a GOAWAY's last stream and its code.
const LOOKED_AT: usize = 8;

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Frame {
    Data,
    /// HEADERS or CONTINUATION.
    Headers,
    Reset(ErrorCode),
    Settings,
    Ping,
    GoAway(ErrorCode),
    WindowUpdate,
    /// PRIORITY, PUSH_PROMISE or a type that nobody knows.
    Other,
}

/// Why a stream or a connection ended (RFC 9113 section 7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorCode(u8);

impl ErrorCode {
    /// Every [`label`](Self::label), for registering counters: those of the RFC by number, and one for all others.
    pub const LABELS: [&'static str; 15] = [
        "no_error",
        "protocol_error",
        "internal_error",
        "flow_control_error",
        "settings_timeout",
        "stream_closed",
        "frame_size_error",
        "refused_stream",
        "cancel",
        "compression_error",
        "connect_error",
        "enhance_your_calm",
        "inadequate_security",
        "http_1_1_required",
        "unknown",
    ];

    /// By its number; what the RFC does not name is unknown.
    fn of(code: u32) -> Self {
        let unknown = Self::LABELS.len() - 1;
        let at = usize::try_from(code).unwrap_or(unknown).min(unknown);
        Self(u8::try_from(at).unwrap_or(u8::MAX))
    }

    /// Whether we reset a stream by it for what its client did: not when a response is whole (NO_ERROR), fails (INTERNAL_ERROR) or
    /// is nobody's any more (CANCEL).
    pub(super) fn is_for_the_client(self) -> bool {
        !matches!(self.0, 0 | 2 | 8)
    }

    /// The word for metrics.
    #[must_use]
    pub fn label(self) -> &'static str {
        Self::LABELS.get(usize::from(self.0)).copied().unwrap_or("unknown")
    }
}

/// Follows the frames of one direction, however their bytes are split.
#[derive(Debug)]
pub(super) struct Scanner {
    /// Bytes that belong to what has been told, or to the preface.
    skip: u64,
    head: [u8; HEAD + LOOKED_AT],
    have: usize,
}

impl Scanner {
    /// At the beginning of a frame, after `skip` bytes of something else.
    pub(super) fn new(skip: u64) -> Self {
        Self { skip, head: [0; HEAD + LOOKED_AT], have: 0 }
    }

    /// Tells each frame whose head ends in `bytes`.
    pub(super) fn push(&mut self, mut bytes: &[u8], mut tell: impl FnMut(Frame)) {
        while !bytes.is_empty() {
            if self.skip > 0 {
                let skipped = usize::try_from(self.skip).unwrap_or(usize::MAX).min(bytes.len());
                self.skip -= skipped as u64;
                bytes = bytes.get(skipped..).unwrap_or_default();
                continue;
            }
            let wanted = self.wanted();
            let taken = wanted.saturating_sub(self.have).min(bytes.len());
            if let (Some(to), Some(from)) =
                (self.head.get_mut(self.have..self.have + taken), bytes.get(..taken))
            {
                to.copy_from_slice(from);
            }
            self.have += taken;
            bytes = bytes.get(taken..).unwrap_or_default();
            // The head may have told that more of the frame is wanted.
            if self.have == self.wanted() {
                self.skip = self.length().saturating_sub((self.have - HEAD) as u64);
                tell(self.frame());
                self.have = 0;
            }
        }
    }

    fn length(&self) -> u64 {
        let [a, b, c, ..] = self.head;
        u64::from(u32::from_be_bytes([0, a, b, c]))
    }

    /// Bytes of the frame that must be there before it is told.
    fn wanted(&self) -> usize {
        if self.have < HEAD {
            return HEAD;
        }
        let looked_at = match self.head[3] {
            3 => 4,
            7 => LOOKED_AT,
            _ => 0,
        };
        HEAD + looked_at.min(usize::try_from(self.length()).unwrap_or(usize::MAX))
    }

    fn frame(&self) -> Frame {
        let code_at = |at: usize| {
            let bytes = self.head.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
            // A frame that is too short for its code has none.
            let bytes = bytes.filter(|_| at + 4 <= self.have);
            ErrorCode::of(bytes.map_or(u32::MAX, u32::from_be_bytes))
        };
        match self.head[3] {
            0 => Frame::Data,
            1 | 9 => Frame::Headers,
            3 => Frame::Reset(code_at(HEAD)),
            4 => Frame::Settings,
            6 => Frame::Ping,
            7 => Frame::GoAway(code_at(HEAD + 4)),
            8 => Frame::WindowUpdate,
            _ => Frame::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        let mut out = length[1..].to_vec();
        out.extend([kind, 0, 0, 0, 0, 1]);
        out.extend(payload);
        out
    }

    #[test]
    fn every_frame_is_told_once_however_its_bytes_are_split() {
        let mut bytes = b"PREFACE".to_vec();
        bytes.extend(frame(4, &[0; 18]));
        bytes.extend(frame(1, &[9; 40]));
        bytes.extend(frame(0, &[3; 300]));
        bytes.extend(frame(0, &[]));
        bytes.extend(frame(3, &8_u32.to_be_bytes()));
        bytes.extend(frame(7, &[0, 0, 0, 5, 0, 0, 0, 11, b'w', b'h', b'y']));
        bytes.extend(frame(7, &[0; 3]));
        bytes.extend(frame(3, &99_u32.to_be_bytes()));
        bytes.extend(frame(6, &[0; 8]));
        bytes.extend(frame(8, &[0; 4]));
        bytes.extend(frame(200, &[7; 12]));
        let expected = [
            Frame::Settings,
            Frame::Headers,
            Frame::Data,
            Frame::Data,
            Frame::Reset(ErrorCode(8)),
            Frame::GoAway(ErrorCode(11)),
            Frame::GoAway(ErrorCode(14)),
            Frame::Reset(ErrorCode(14)),
            Frame::Ping,
            Frame::WindowUpdate,
            Frame::Other,
        ];
        for size in 1..=bytes.len() {
            let (mut scanner, mut told) = (Scanner::new(7), Vec::new());
            bytes.chunks(size).for_each(|piece| scanner.push(piece, |frame| told.push(frame)));
            assert_eq!(told, expected, "in pieces of {size}");
        }
        assert_eq!(ErrorCode::of(8).label(), "cancel");
        assert_eq!(ErrorCode::of(11).label(), "enhance_your_calm");
        assert_eq!(ErrorCode::of(14).label(), "unknown");
    }
}
