//! The order of a stream's events. Pure: each call yields the next event's bytes.
//!
//! ```text
//! Role ─► Reasoning × r ─► Content × n ─► Finish ─► Usage ─► Done ─► AfterDone ─► End
//! ```

use super::completion::Completion;
use super::script::Script;

/// What an event is, as far as pacing and faults care.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Item {
    /// A content event.
    Content,
    /// Anything else.
    Other,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Role,
    Reasoning(u32),
    Content(u32),
    Finish,
    Usage,
    Done,
    AfterDone,
    End,
}

/// The events of one stream that are still to come.
#[derive(Debug)]
pub struct Plan<'a> {
    script: &'a Script,
    /// What the events are made of; the driver borrows it for events that only a fault brings.
    pub completion: Completion,
    stage: Stage,
}

impl<'a> Plan<'a> {
    /// The whole stream of `completion` under `script`.
    #[must_use]
    pub fn new(completion: Completion, script: &'a Script) -> Self {
        Self { script, completion, stage: Stage::Role }
    }

    /// Content events yielded so far, once the stream has come to its content; `None` before.
    #[must_use]
    pub fn content_sent(&self) -> Option<u32> {
        match self.stage {
            Stage::Role | Stage::Reasoning(_) => None,
            Stage::Content(sent) => Some(sent),
            Stage::Finish | Stage::Usage | Stage::Done | Stage::AfterDone | Stage::End => {
                Some(self.script.events)
            }
        }
    }

    /// Whether the next event is a content event.
    #[must_use]
    pub fn content_is_next(&self) -> bool {
        matches!(self.stage, Stage::Content(_))
    }

    /// Appends the next event to `out`. `now` stamps a content event. `None` at the end of the stream.
    pub fn put_next(&mut self, out: &mut Vec<u8>, now: u64) -> Option<Item> {
        let before = out.len();
        loop {
            let stage = self.stage;
            self.stage = self.after(stage);
            match stage {
                Stage::Role => {
                    if self.script.bom {
                        out.extend_from_slice("\u{feff}".as_bytes());
                    }
                    if !self.script.no_role {
                        self.completion.put_role(out);
                    }
                }
                Stage::Reasoning(index) => self.completion.put_reasoning(out, index),
                Stage::Content(_) => {
                    self.completion.put_content(out, now);
                    return Some(Item::Content);
                }
                Stage::Finish if !self.script.no_finish => self.completion.put_finish(out),
                Stage::Usage => self.completion.put_usage(out),
                Stage::Done if !self.script.no_done => self.completion.put_done(out),
                Stage::AfterDone if self.script.data_after_done => self.completion.put_role(out),
                Stage::Finish | Stage::Done | Stage::AfterDone => {}
                Stage::End => return None,
            }
            if out.len() > before {
                return Some(Item::Other);
            }
        }
    }

    fn after(&self, stage: Stage) -> Stage {
        let content = |sent| if sent < self.script.events { Stage::Content(sent) } else { Stage::Finish };
        let reasoning = |sent| if sent < self.script.reasoning { Stage::Reasoning(sent) } else { content(0) };
        match stage {
            Stage::Role => reasoning(0),
            Stage::Reasoning(sent) => reasoning(sent + 1),
            Stage::Content(sent) => content(sent + 1),
            Stage::Finish => Stage::Usage,
            Stage::Usage => Stage::Done,
            Stage::Done => Stage::AfterDone,
            Stage::AfterDone | Stage::End => Stage::End,
        }
    }
}

/// The length of the whole stream of `completion` under `script`. Unit: bytes.
#[must_use]
pub fn stream_bytes(completion: Completion, script: &Script) -> usize {
    let mut plan = Plan::new(completion, script);
    let (mut out, mut total) = (Vec::new(), 0);
    // Any stamp will do: all stamps have the same length.
    while plan.put_next(&mut out, 0).is_some() {
        total += out.len();
        out.clear();
    }
    total
}

#[cfg(test)]
mod tests {
    use super::super::completion::CompletionFacts;
    use super::*;

    fn completion(script: &Script) -> Completion {
        let facts =
            CompletionFacts { number: 1, model: "m", created: 1, prompt_bytes: 40, include_usage: true };
        Completion::new(&facts, script)
    }

    fn stream(text: &str) -> Vec<String> {
        let script = Script::parse(text).unwrap();
        let mut plan = Plan::new(completion(&script), &script);
        let mut events = Vec::new();
        let mut out = Vec::new();
        while plan.put_next(&mut out, 0).is_some() {
            events.push(String::from_utf8(std::mem::take(&mut out)).unwrap());
        }
        assert_eq!(stream_bytes(completion(&script), &script), events.concat().len());
        events
    }

    fn kinds(text: &str) -> Vec<&'static str> {
        stream(text).iter().map(|event| kind(event)).collect()
    }

    fn kind(event: &str) -> &'static str {
        for (needle, kind) in [
            ("[DONE]", "done"),
            ("\"role\"", "role"),
            ("\"reasoning\"", "reasoning"),
            ("\"usage\"", "usage"),
            ("\"stop\"", "finish"),
        ] {
            if event.contains(needle) {
                return kind;
            }
        }
        "content"
    }

    #[test]
    fn stream_has_its_events_in_order() {
        assert_eq!(kinds("events=2"), ["role", "content", "content", "finish", "usage", "done"]);
        assert_eq!(
            kinds("events=1 reasoning=1 usage=never"),
            ["role", "reasoning", "content", "finish", "done"]
        );
        assert_eq!(kinds("events=0 no-role no-finish usage=never no-done"), Vec::<&str>::new());
        assert_eq!(kinds("events=0 data-after-done"), ["role", "finish", "usage", "done", "role"]);
    }

    #[test]
    fn byte_order_mark_stands_before_the_first_event() {
        assert!(stream("bom events=1").first().unwrap().starts_with('\u{feff}'));
    }

    #[test]
    fn content_count_is_known_at_every_point() {
        let script = Script::parse("events=2").unwrap();
        let mut plan = Plan::new(completion(&script), &script);
        let mut seen = vec![plan.content_sent()];
        while plan.put_next(&mut Vec::new(), 0).is_some() {
            seen.push(plan.content_sent());
        }
        assert_eq!(seen, [None, Some(0), Some(1), Some(2), Some(2), Some(2), Some(2)]);
    }
}
