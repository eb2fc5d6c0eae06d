//! What a request has been answered so far, for as long as it lives (SEG-5).
//!
//! One recorder belongs to one request. The first source and those that take over after it write into the same one: what a
//! continuation has to go on from is everything its client has got, whoever said it. Nothing of it leaves the request: it is
//! given out once per attempt, as a [`Recorded`] whose text only [`super::rebuild`] reads, and neither of them shows it in a
//! `Debug` form.

use std::fmt;

use super::reading::Channel;

/// What was said so far. Its text never appears in a log: `Debug` shows sizes alone.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Recorded {
    pub(super) content: String,
    pub(super) reasoning: String,
    pub(super) has_arguments: bool,
}

impl Recorded {
    /// Bytes of text that it holds.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.content.len() + self.reasoning.len()
    }
}

impl fmt::Debug for Recorded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorded")
            .field("content_bytes", &self.content.len())
            .field("reasoning_bytes", &self.reasoning.len())
            .field("has_arguments", &self.has_arguments)
            .finish()
    }
}

/// Notes what is committed to the client: the text of content and reasoning, and whether a tool call has begun.
pub struct Recorder {
    /// `None` once it became longer than `bytes_max`: a continuation of a part of it would repeat the rest.
    so_far: Option<Recorded>,
    bytes_max: usize,
    /// It was given out, and no attempt has begun since.
    is_taken: bool,
}

impl Recorder {
    /// A recorder that holds at most `bytes_max` bytes of content and reasoning together. What is longer is not kept at all.
    #[must_use]
    pub fn new(bytes_max: usize) -> Self {
        Self { so_far: Some(Recorded::default()), bytes_max, is_taken: false }
    }

    /// Another attempt answers from here: what it says follows what is there, and may be taken once again.
    pub const fn begin_attempt(&mut self) {
        self.is_taken = false;
    }

    /// Notes text that goes to the client. Arguments of tools are not kept: an answer that has them is not continued.
    pub fn push(&mut self, channel: Channel, text: &str) {
        let Some(so_far) = &mut self.so_far else { return };
        if channel == Channel::Arguments {
            so_far.has_arguments = true;
            return;
        }
        if so_far.bytes() + text.len() > self.bytes_max {
            self.so_far = None;
            return;
        }
        match channel {
            Channel::Content => so_far.content.push_str(text),
            Channel::Reasoning => so_far.reasoning.push_str(text),
            Channel::Arguments => {}
        }
    }

    /// What was said so far: once per attempt. `None` when it was taken already, when it became too long, or when nothing was said.
    pub fn take(&mut self) -> Option<Recorded> {
        if std::mem::replace(&mut self.is_taken, true) {
            return None;
        }
        self.so_far.clone().filter(|so_far| so_far.bytes() > 0 || so_far.has_arguments)
    }
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder")
            .field("so_far", &self.so_far)
            .field("bytes_max", &self.bytes_max)
            .field("is_taken", &self.is_taken)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // req: SEG-5
    #[test]
    fn what_all_sources_said_is_taken_once_per_attempt() {
        let mut recorder = Recorder::new(100);
        assert_eq!(recorder.take(), None);
        recorder.begin_attempt();
        recorder.push(Channel::Reasoning, "hm");
        recorder.push(Channel::Content, "one ");
        let first = recorder.take().unwrap();
        assert_eq!((first.content.as_str(), first.reasoning.as_str()), ("one ", "hm"));
        assert_eq!(recorder.take(), None);
        recorder.push(Channel::Content, "two");
        assert_eq!(recorder.take(), None);
        recorder.begin_attempt();
        assert_eq!(recorder.take().unwrap().content, "one two");
    }

    // req: SEG-5
    #[test]
    fn an_answer_that_is_too_long_is_not_kept_in_part() {
        let mut recorder = Recorder::new(5);
        recorder.push(Channel::Content, "abc");
        recorder.push(Channel::Reasoning, "de");
        assert_eq!(recorder.take().unwrap().bytes(), 5);
        recorder.begin_attempt();
        recorder.push(Channel::Content, "f");
        recorder.push(Channel::Content, "");
        assert_eq!(recorder.take(), None);
    }

    // req: SEG-5
    #[test]
    fn nothing_that_was_said_is_in_a_debug_form() {
        let mut recorder = Recorder::new(100);
        recorder.push(Channel::Content, "sentinel");
        recorder.push(Channel::Reasoning, "sentinel");
        recorder.push(Channel::Arguments, "sentinel");
        let shown = format!("{recorder:?} {:?}", recorder.take());
        assert!(!shown.contains("sentinel") && shown.contains("content_bytes: 8"), "{shown}");
    }
}
