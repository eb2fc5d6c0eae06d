//! Whether what arrives on one stream is a response at all (TUN-2): in order, complete, ended once.
//!
//! ```text
//!            RESPONSE_START            END, ERROR
//!   Fresh ──────────────────▶ Started ────────────▶ Ended      (tunnel frames)
//!     └───────────────── ERROR ────────────────────▶
//! ```
//! USAGE may come anywhere before the end. A run's events follow the same rules with START, DELTA and COMPLETE, ERROR,
//! CANCELLED; a Node may leave START out. A request body's chunks end with the one marked `last`.

use proto::message::{Message, RunEventKind, TunnelFrameKind};
use thiserror::Error;

/// Why a message is not passed on. The run ends with a protocol error; the connection stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Violation {
    /// A number left out, repeated or out of order.
    #[error("frame {found} came where {expected} was expected")]
    Gap {
        /// The number that was due.
        expected: u64,
        /// The number that came.
        found: u64,
    },
    /// A second RESPONSE_START or START, or one after data.
    #[error("the response started twice")]
    StartedTwice,
    /// A body frame or END before RESPONSE_START.
    #[error("a response body came before its start")]
    NotStarted,
    /// Anything after the terminal.
    #[error("a frame came after the end")]
    AfterEnd,
    /// A tunnel frame on a run's stream, or an event on a tunnel's, or a message that belongs on no stream.
    #[error("a frame of another kind of stream came")]
    MixedKinds,
}

/// What a stream carries; set by its first message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Tunnel,
    Run,
    Upload,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Fresh,
    Started,
    Ended,
}

/// What one message does to a stream.
#[derive(Clone, Copy)]
enum Step {
    Start,
    /// Data that needs a start before it.
    Body,
    /// Data that may come without one, and after which none may come.
    Data,
    /// Observation.
    Loose,
    /// The proper end of something that must have started.
    End,
    /// An end that may come at any time.
    Abort,
}

/// Checks one inbound stream.
#[derive(Clone, Copy, Debug)]
pub struct Sequence {
    next: u64,
    kind: Option<Kind>,
    phase: Phase,
}

impl Default for Sequence {
    fn default() -> Self {
        Self { next: 0, kind: None, phase: Phase::Fresh }
    }
}

impl Sequence {
    /// Nothing has arrived yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether the terminal has arrived.
    #[must_use]
    pub fn is_ended(&self) -> bool {
        self.phase == Phase::Ended
    }

    /// Takes the next message of the stream.
    ///
    /// # Errors
    /// [`Violation`]: the message must not be passed on, and neither must anything after it.
    pub fn handle(&mut self, message: &Message) -> Result<(), Violation> {
        let (kind, step, sequence) = classify(message).ok_or(Violation::MixedKinds)?;
        if self.phase == Phase::Ended {
            return Err(Violation::AfterEnd);
        }
        if *self.kind.get_or_insert(kind) != kind {
            return Err(Violation::MixedKinds);
        }
        if let Some(found) = sequence {
            if found != self.next {
                return Err(Violation::Gap { expected: self.next, found });
            }
            self.next += 1;
        }
        self.phase = match (self.phase, step) {
            (_, Step::Abort) | (Phase::Started, Step::End) => Phase::Ended,
            (Phase::Fresh, Step::Start) | (Phase::Started, Step::Body) | (_, Step::Data) => Phase::Started,
            (phase, Step::Loose) => phase,
            (_, Step::Start) => return Err(Violation::StartedTwice),
            (_, Step::Body | Step::End) => return Err(Violation::NotStarted),
        };
        Ok(())
    }
}

fn classify(message: &Message) -> Option<(Kind, Step, Option<u64>)> {
    match message {
        Message::TunnelFrame(frame) => {
            let step = match frame.kind {
                TunnelFrameKind::ResponseStart { .. } => Step::Start,
                TunnelFrameKind::Body(_) => Step::Body,
                TunnelFrameKind::Usage(_) => Step::Loose,
                TunnelFrameKind::End => Step::End,
                TunnelFrameKind::Error(_) => Step::Abort,
            };
            Some((Kind::Tunnel, step, Some(frame.sequence)))
        }
        Message::RunEvent(event) => {
            let step = match event.kind {
                RunEventKind::Start => Step::Start,
                RunEventKind::Delta { .. } => Step::Data,
                RunEventKind::Usage(_) => Step::Loose,
                RunEventKind::Complete { .. } | RunEventKind::Error(_) | RunEventKind::Cancelled => {
                    Step::Abort
                }
            };
            Some((Kind::Run, step, Some(event.sequence)))
        }
        Message::BodyChunk(chunk) => {
            Some((Kind::Upload, if chunk.last { Step::Abort } else { Step::Data }, None))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proto::message::{BodyChunk, ErrorKind, ExecutionError, RunEvent, StreamNo, TunnelFrame, Usage};

    use super::*;

    const STREAM: StreamNo = 7;

    fn error() -> ExecutionError {
        ExecutionError { kind: ErrorKind::Internal, message: String::new(), failure: None }
    }

    /// `s` start, `b` body, `u` usage, `e` end, `x` error.
    fn frame(sequence: u64, letter: char) -> Message {
        let kind = match letter {
            's' => TunnelFrameKind::ResponseStart { status: 200, headers: Vec::new(), until_close: false },
            'b' => TunnelFrameKind::Body(Bytes::from_static(b"x")),
            'u' => TunnelFrameKind::Usage(Usage::default()),
            'e' => TunnelFrameKind::End,
            _ => TunnelFrameKind::Error(error()),
        };
        Message::TunnelFrame(TunnelFrame { stream: STREAM, sequence, kind })
    }

    /// `s` start, `d` delta, `u` usage, `c` complete, `x` error, `a` cancelled.
    fn event(sequence: u64, letter: char) -> Message {
        let kind = match letter {
            's' => RunEventKind::Start,
            'd' => RunEventKind::Delta { text: "x".to_owned(), reasoning: String::new() },
            'u' => RunEventKind::Usage(Usage::default()),
            'c' => RunEventKind::Complete { finish_reason: String::new(), usage: None },
            'a' => RunEventKind::Cancelled,
            _ => RunEventKind::Error(error()),
        };
        let run_id = String::new();
        Message::RunEvent(RunEvent { stream: STREAM, sequence, kind, run_id, metadata: Default::default() })
    }

    /// Feeds the letters, numbered from 0; gives the index and kind of the first violation.
    fn check(make: fn(u64, char) -> Message, letters: &str) -> Option<(usize, Violation)> {
        let mut sequence = Sequence::new();
        letters.chars().enumerate().find_map(|(index, letter)| {
            sequence.handle(&make(index as u64, letter)).err().map(|violation| (index, violation))
        })
    }

    // req: TUN-2
    #[test]
    fn a_tunnel_response_starts_once_and_ends_once() {
        use Violation::{AfterEnd, NotStarted, StartedTwice};
        let table = [
            ("sbbbe", None),
            ("se", None),
            ("sububue", None),
            ("usbe", None),
            ("x", None),
            ("sbx", None),
            ("ux", None),
            ("ss", Some((1, StartedTwice))),
            ("sbs", Some((2, StartedTwice))),
            ("b", Some((0, NotStarted))),
            ("e", Some((0, NotStarted))),
            ("ub", Some((1, NotStarted))),
            ("see", Some((2, AfterEnd))),
            ("sex", Some((2, AfterEnd))),
            ("sxe", Some((2, AfterEnd))),
            ("sbeb", Some((3, AfterEnd))),
            ("seu", Some((2, AfterEnd))),
            ("xs", Some((1, AfterEnd))),
        ];
        for (letters, expected) in table {
            assert_eq!(check(frame, letters), expected, "{letters}");
        }
    }

    // req: TUN-2
    #[test]
    fn a_run_starts_at_most_once_and_ends_once() {
        use Violation::{AfterEnd, StartedTwice};
        let table = [
            ("sdddc", None),
            ("dc", None),
            ("suduc", None),
            ("a", None),
            ("sx", None),
            ("ss", Some((1, StartedTwice))),
            ("ds", Some((1, StartedTwice))),
            ("scd", Some((2, AfterEnd))),
            ("scc", Some((2, AfterEnd))),
            ("sau", Some((2, AfterEnd))),
        ];
        for (letters, expected) in table {
            assert_eq!(check(event, letters), expected, "{letters}");
        }
    }

    // req: TUN-2
    #[test]
    fn a_gap_a_repetition_and_a_first_number_other_than_0_are_violations() {
        for make in [frame as fn(u64, char) -> Message, event] {
            let mut sequence = Sequence::new();
            assert_eq!(sequence.handle(&make(1, 's')), Err(Violation::Gap { expected: 0, found: 1 }));
            let mut sequence = Sequence::new();
            sequence.handle(&make(0, 's')).unwrap();
            sequence.handle(&make(1, 'u')).unwrap();
            assert_eq!(sequence.handle(&make(3, 'u')), Err(Violation::Gap { expected: 2, found: 3 }));
            assert_eq!(sequence.handle(&make(1, 'u')), Err(Violation::Gap { expected: 2, found: 1 }));
        }
    }

    #[test]
    fn a_stream_carries_one_kind_of_messages() {
        let mut sequence = Sequence::new();
        sequence.handle(&frame(0, 's')).unwrap();
        assert_eq!(sequence.handle(&event(1, 'd')), Err(Violation::MixedKinds));
        assert_eq!(Sequence::new().handle(&Message::HeartbeatPing), Err(Violation::MixedKinds));
    }

    #[test]
    fn nothing_follows_the_last_chunk_of_an_upload() {
        let chunk =
            |last| Message::BodyChunk(BodyChunk { stream: STREAM, data: Bytes::from_static(b"x"), last });
        let mut sequence = Sequence::new();
        sequence.handle(&chunk(false)).unwrap();
        sequence.handle(&chunk(true)).unwrap();
        assert!(sequence.is_ended());
        assert_eq!(sequence.handle(&chunk(true)), Err(Violation::AfterEnd));
    }
}
