//! What a run says, on its way to the Edge: in order, within the credit of its stream (WIR-6).
//!
//! What finds credit leaves as it comes, one event for each piece. What has to wait is put together with what waits already,
//! so that a slow client gets fewer and larger pieces, and never more than its window is on its way.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use dataplane::{clock, local::Signal, time::before};
use proto::{
    frame::CHUNK_BYTES_MAX,
    message::{RunEventKind, Usage},
    run_input::TEXT_TOOL_FALLBACK_KEY,
};

use super::{
    supervise::Watch,
    terminal::{Failed, Terminal},
    watchdog::Progress,
};

/// The smallest window in bytes that a run can have: half of it takes the longest character.
pub const WINDOW_BYTES_MIN: u32 = 8;
/// How often a run that may send nothing looks again by itself: a stream that holds as many events as it may says nothing when it
/// has room again.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Bytes that wait for credit at most, but for the last thing that was said.
const WAITING_BYTES: usize = CHUNK_BYTES_MAX;

/// How the tools of a run went to its backend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ToolMode {
    /// As the backend's own tools, or there were none.
    #[default]
    Native,
    /// As text, because the backend takes no tools (RUN-4).
    Text,
}

impl ToolMode {
    /// What START and COMPLETE carry of it.
    #[must_use]
    pub fn metadata(self) -> BTreeMap<String, String> {
        match self {
            Self::Native => BTreeMap::new(),
            Self::Text => BTreeMap::from([(TEXT_TOOL_FALLBACK_KEY.to_owned(), "true".to_owned())]),
        }
    }
}

/// Where an adapter says what its backend says.
#[derive(Debug)]
pub struct Output<'a> {
    terminal: &'a Terminal,
    credit: &'a Signal,
    watch: &'a Watch,
    event_max: usize,
    waiting: Waiting,
    started: Option<ToolMode>,
}

impl<'a> Output<'a> {
    /// For a run whose stream has a window of `window_bytes`.
    #[must_use]
    pub fn new(terminal: &'a Terminal, credit: &'a Signal, watch: &'a Watch, window_bytes: u32) -> Self {
        // An event is never cut by the link, so it has to fit what comes back in one piece: half a window.
        let event_max = CHUNK_BYTES_MAX.min(window_bytes.div_ceil(2) as usize);
        Self { terminal, credit, watch, event_max, waiting: Waiting::default(), started: None }
    }

    /// The backend has begun to answer. Once; what is said before it implies [`ToolMode::Native`].
    ///
    /// # Errors
    /// [`Failed`] when the stream is gone.
    pub fn start(&mut self, mode: ToolMode) -> Result<(), Failed> {
        if self.started.is_some() {
            return Ok(());
        }
        self.started = Some(mode);
        self.event(RunEventKind::Start, mode.metadata())
    }

    /// Assistant text.
    ///
    /// # Errors
    /// [`Failed`] when the stream is gone.
    pub fn text(&mut self, text: String) -> Result<(), Failed> {
        self.say(Part::Text(text))
    }

    /// Reasoning text.
    ///
    /// # Errors
    /// [`Failed`] when the stream is gone.
    pub fn reasoning(&mut self, text: String) -> Result<(), Failed> {
        self.say(Part::Reasoning(text))
    }

    /// Counts so far.
    ///
    /// # Errors
    /// [`Failed`] when the stream is gone.
    pub fn usage(&mut self, usage: Usage) -> Result<(), Failed> {
        self.say(Part::Usage(usage))
    }

    /// Whether something waits for credit and there is room for more beside it. An adapter that has more at hand, without waiting for
    /// it, says that too then: it becomes one piece with what waits.
    #[must_use]
    pub fn may_merge(&self) -> bool {
        !self.waiting.is_empty() && self.waiting.bytes < WAITING_BYTES
    }

    /// Waits until nothing waits any more and the Edge takes more. An adapter calls it before it reads on from its backend: what
    /// the Edge does not take stays there. May be dropped freely.
    ///
    /// # Errors
    /// [`Failed`] when the stream is gone.
    pub async fn ready(&mut self) -> Result<(), Failed> {
        loop {
            self.flush()?;
            if self.waiting.is_empty() && self.terminal.sendable() > 0 {
                return Ok(());
            }
            self.wait().await;
        }
    }

    /// Waits until everything has been handed to the link; how the tools went. May be dropped freely.
    ///
    /// # Errors
    /// [`Failed`] when the stream is gone.
    pub async fn finish(&mut self) -> Result<ToolMode, Failed> {
        self.start(ToolMode::Native)?;
        loop {
            self.flush()?;
            if self.waiting.is_empty() {
                return Ok(self.started.unwrap_or_default());
            }
            self.wait().await;
        }
    }

    fn say(&mut self, part: Part) -> Result<(), Failed> {
        self.start(ToolMode::Native)?;
        self.waiting.push(part);
        self.flush()
    }

    fn flush(&mut self) -> Result<(), Failed> {
        while !self.waiting.is_empty() {
            let room = self.terminal.sendable().min(self.event_max);
            if room == 0 {
                // A usage costs nothing, and yet there may be no place for it.
                break;
            }
            let Some(event) = self.waiting.pop(room) else { break };
            self.event(event, BTreeMap::new())?;
        }
        Ok(())
    }

    /// Sends an event, which is progress of the backend's or not (STL-3).
    fn event(&self, event: RunEventKind, metadata: BTreeMap<String, String>) -> Result<(), Failed> {
        self.watch.note(Progress::of_event(&event));
        self.terminal.event(event, metadata)
    }

    async fn wait(&self) {
        let credit_or_time = before(clock::now() + LOOK_AGAIN, self.credit.wait());
        self.watch.blocked(credit_or_time).await;
    }
}

/// What has been said and not sent. Pure.
#[derive(Debug, Default)]
struct Waiting {
    parts: VecDeque<Part>,
    /// Bytes of all texts.
    bytes: usize,
    /// Bytes of the first part that have been sent.
    sent: usize,
}

#[derive(Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    Reasoning(String),
    Usage(Usage),
}

impl Waiting {
    fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    fn push(&mut self, part: Part) {
        if let Part::Text(new) | Part::Reasoning(new) = &part {
            self.bytes += new.len();
        }
        match (self.parts.back_mut(), part) {
            (_, Part::Text(new) | Part::Reasoning(new)) if new.is_empty() => {}
            (Some(Part::Text(last)), Part::Text(new))
            | (Some(Part::Reasoning(last)), Part::Reasoning(new)) => {
                last.push_str(&new);
            }
            (Some(Part::Usage(last)), Part::Usage(new)) => *last = new,
            (_, part) => self.parts.push_back(part),
        }
    }

    /// The next event of at most `room` bytes; `None` when not even its first character has room.
    fn pop(&mut self, room: usize) -> Option<RunEventKind> {
        let (text, is_reasoning) = match self.parts.front_mut()? {
            Part::Usage(usage) => {
                let usage = *usage;
                self.parts.pop_front();
                return Some(RunEventKind::Usage(usage));
            }
            Part::Text(text) => (text, false),
            Part::Reasoning(text) => (text, true),
        };
        let piece = if self.sent == 0 && text.len() <= room {
            std::mem::take(text)
        } else {
            let rest = text.get(self.sent..).unwrap_or_default();
            let piece = rest.get(..rest.floor_char_boundary(room)).unwrap_or_default();
            if piece.is_empty() {
                return None;
            }
            piece.to_owned()
        };
        self.sent += piece.len();
        self.bytes -= piece.len();
        // A text that was taken whole is empty by now.
        if self.sent >= text.len() {
            self.parts.pop_front();
            self.sent = 0;
        }
        let (text, reasoning) = if is_reasoning { (String::new(), piece) } else { (piece, String::new()) };
        Some(RunEventKind::Delta { text, reasoning })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn show(event: RunEventKind) -> String {
        match event {
            RunEventKind::Delta { text, reasoning } if reasoning.is_empty() => format!("t:{text}"),
            RunEventKind::Delta { reasoning, .. } => format!("r:{reasoning}"),
            RunEventKind::Usage(usage) => format!("u:{}", usage.output_tokens.unwrap_or_default()),
            other => format!("{other:?}"),
        }
    }

    fn said(parts: &[&str]) -> Waiting {
        let mut waiting = Waiting::default();
        for part in parts {
            let (kind, text) = part.split_once(':').unwrap();
            waiting.push(match kind {
                "t" => Part::Text(text.to_owned()),
                "r" => Part::Reasoning(text.to_owned()),
                _ => Part::Usage(Usage { output_tokens: text.parse().ok(), ..Usage::default() }),
            });
        }
        waiting
    }

    // req: WIR-6, RUN-6
    #[test]
    fn what_waits_is_merged_by_kind_in_order_and_cut_between_characters() {
        for (parts, room, events) in [
            (&["t:a", "t:b", "t:c"][..], 9, &["t:abc"][..]),
            (&["r:a", "r:b", "t:c", "t:", "r:d"], 9, &["r:ab", "t:c", "r:d"]),
            (&["t:a", "u:1", "u:2", "t:b"], 9, &["t:a", "u:2", "t:b"]),
            (&["t:abcdef", "r:gh"], 4, &["t:abcd", "t:ef", "r:gh"]),
            (&["t:a\u{e9}\u{e9}b", "t:\u{1f600}"], 4, &["t:a\u{e9}", "t:\u{e9}b", "t:\u{1f600}"]),
            (&["t:", "r:"], 4, &[]),
        ] {
            let mut waiting = said(parts);
            let mut found = Vec::new();
            while let Some(event) = waiting.pop(room) {
                found.push(show(event));
            }
            assert_eq!(found, events, "{parts:?} in {room}");
            assert!(waiting.is_empty() && waiting.bytes == 0);
        }
    }

    // req: WIR-6
    #[test]
    fn a_character_without_room_waits_and_what_comes_meanwhile_follows_it() {
        let mut waiting = said(&["t:\u{1f600}", "t:x"]);
        assert_eq!(waiting.pop(0), None);
        assert_eq!(waiting.pop(3), None);
        assert_eq!(waiting.pop(4).map(show), Some("t:\u{1f600}".to_owned()));
        waiting.push(Part::Text("y".to_owned()));
        assert_eq!(waiting.pop(4).map(show), Some("t:xy".to_owned()));
        assert!(waiting.is_empty());
    }
}
