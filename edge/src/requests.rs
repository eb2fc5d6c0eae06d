//! The live requests of one shard, by number: where mail for a request finds its task.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
};

use control::input::{LeaseId, RequestId};
use dataplane::{
    local::{Queue, Signal},
    relay::ByNumber,
};

use control::effect::{Grant, Refusal};
use proto::message::{RunEvent, RunEventKind};

use crate::{
    dispatch::reading::Read,
    lease::Lease,
    mail::{Frame, RunFailed},
};

/// Bits of a request number that count requests; the shard stands above them.
const COUNTER_BITS: u32 = 48;

/// The shard that owns a request.
pub fn shard_of(request: RequestId) -> usize {
    usize::try_from(request.0 >> COUNTER_BITS).unwrap_or(usize::MAX)
}

/// A request's number for people and logs: its shard, and its count on it.
pub fn label(request: RequestId) -> String {
    format!("{}-{}", request.0 >> COUNTER_BITS, request.0 & ((1 << COUNTER_BITS) - 1))
}

/// What a request's task is told.
#[derive(Debug)]
pub enum Event {
    /// A slot.
    Granted(Box<Grant>, Lease),
    /// No slot.
    Refused(Refusal),
    /// Nothing ran under this lease; wait again.
    Requeued(LeaseId),
    /// The Node of this lease was lost.
    Fenced(LeaseId),
    /// The run failed.
    Failed(LeaseId, Box<RunFailed>),
    /// The input that the body asks for, read for this lease.
    Input(LeaseId, Read),
    /// A frame of the run and its sequence number.
    Frame(LeaseId, u64, Frame),
}

/// Body bytes that wait together in one piece, about: what arrives for a client that is behind is copied together, so that
/// many small frames take no more memory than their bytes.
const JOINED_BYTES: usize = 16 * 1024;

/// Appends the body bytes of `next` to `last`, which waits right before it; gives `next` back when it is to wait by itself.
fn join(last: &mut Event, next: Event) -> Option<Event> {
    match (last, next) {
        (Event::Frame(lease, sequence, Frame::Body(bytes)), Event::Frame(of, number, Frame::Body(more)))
            if *lease == of && bytes.len() + more.len() <= JOINED_BYTES =>
        {
            bytes.extend_from_slice(&more);
            *sequence = number;
            None
        }
        (Event::Frame(lease, sequence, Frame::Run(event)), Event::Frame(of, number, Frame::Run(more)))
            if *lease == of =>
        {
            match join_events(event, *more) {
                None => {
                    *sequence = number;
                    None
                }
                Some(more) => Some(Event::Frame(of, number, Frame::Run(Box::new(more)))),
            }
        }
        (_, next) => Some(next),
    }
}

/// As [`join`], for events of a run: what is thought and what is said stay in their order, and of two counts the later one holds.
fn join_events(last: &mut RunEvent, next: RunEvent) -> Option<RunEvent> {
    match (&mut last.kind, next.kind) {
        (
            RunEventKind::Delta { text, reasoning },
            RunEventKind::Delta { text: more_text, reasoning: more_reasoning },
        ) if (reasoning.is_empty() && more_reasoning.is_empty()
            || text.is_empty() && more_text.is_empty())
            && text.len() + reasoning.len() + more_text.len() + more_reasoning.len() <= JOINED_BYTES =>
        {
            text.push_str(&more_text);
            reasoning.push_str(&more_reasoning);
            None
        }
        (RunEventKind::Usage(usage), RunEventKind::Usage(later)) => {
            *usage = later;
            None
        }
        (_, kind) => Some(RunEvent { kind, ..next }),
    }
}

/// The table.
#[derive(Debug)]
pub struct Requests {
    shard: u64,
    next: Cell<u64>,
    live: RefCell<ByNumber<RequestId, Rc<Queue<Event>>>>,
    answering: Cell<usize>,
    emptied: Signal,
}

impl Requests {
    /// An empty table of this shard.
    pub fn new(shard: usize) -> Self {
        Self {
            shard: shard as u64,
            next: Cell::new(1),
            live: RefCell::default(),
            answering: Cell::new(0),
            emptied: Signal::new(),
        }
    }

    /// A new request.
    pub fn enter(self: &Rc<Self>) -> Registered {
        let count = self.next.get();
        self.next.set(count + 1);
        let id = RequestId(self.shard << COUNTER_BITS | count);
        let events = Rc::new(Queue::new());
        self.live.borrow_mut().insert(id, Rc::clone(&events));
        Registered { id, events, table: Rc::clone(self) }
    }

    /// Counts a request from its head to the end of its answer, whether or not it is ever dispatched: a drain waits for it.
    pub fn answering(self: &Rc<Self>) -> Answering {
        self.answering.set(self.answering.get() + 1);
        Answering(Rc::clone(self))
    }

    /// Passes `event` to the request's task; whether it is still there. A lease in an event for nobody returns by its drop.
    pub fn deliver(&self, request: RequestId, event: Event) -> bool {
        let events = self.live.borrow().get(&request).map(Rc::clone);
        match events {
            Some(events) => {
                events.push_joined(event, join);
                true
            }
            None => false,
        }
    }

    /// Waits until no request is being answered.
    pub async fn drained(&self) {
        while self.answering.get() > 0 {
            self.emptied.wait().await;
        }
    }
}

/// A request that is being answered, for as long as it exists.
#[derive(Debug)]
pub struct Answering(Rc<Requests>);

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.answering.set(self.0.answering.get().saturating_sub(1));
        if self.0.answering.get() == 0 {
            self.0.emptied.set();
        }
    }
}

/// A live request; leaves the table when dropped.
#[derive(Debug)]
pub struct Registered {
    /// Its number.
    pub id: RequestId,
    /// What its task is told, in order.
    pub events: Rc<Queue<Event>>,
    table: Rc<Requests>,
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.table.live.borrow_mut().remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_number_names_its_shard_and_leaves_with_its_task() {
        let table = Rc::new(Requests::new(3));
        let (first, second) = (table.enter(), table.enter());
        assert_ne!(first.id, second.id);
        assert_eq!(shard_of(second.id), 3);
        assert_eq!(label(second.id), "3-2");
        table.deliver(second.id, Event::Refused(Refusal::QueueFull));
        assert_eq!((first.events.len(), second.events.len()), (0, 1));
        let gone = first.id;
        drop(first);
        table.deliver(gone, Event::Refused(Refusal::QueueFull));
        assert_eq!(table.live.borrow().len(), 1);
    }

    // req: WIR-6
    #[test]
    fn many_small_frames_that_wait_are_a_few_pieces_and_lose_nothing() {
        let table = Rc::new(Requests::new(0));
        let request = table.enter();
        let body = |byte: u8| Frame::Body(vec![byte; 3]);
        for sequence in 0..20_000 {
            let byte = u8::try_from(sequence % 251).unwrap();
            assert!(table.deliver(request.id, Event::Frame(LeaseId(7), sequence, body(byte))));
        }
        table.deliver(request.id, Event::Frame(LeaseId(7), 20_000, Frame::End));
        // Another lease's frame is no part of it, whatever it is.
        table.deliver(request.id, Event::Frame(LeaseId(8), 0, body(1)));
        assert_eq!(request.events.len(), 60_000_usize.div_ceil(JOINED_BYTES) + 2);
        let (mut whole, mut last) = (Vec::new(), None);
        while let Some(Event::Frame(LeaseId(7), sequence, Frame::Body(bytes))) = request.events.try_pop() {
            whole.extend(bytes);
            last = Some(sequence);
        }
        let sent: Vec<_> = (0..20_000).flat_map(|n| [u8::try_from(n % 251).unwrap(); 3]).collect();
        assert!(whole == sent, "the bytes in their order");
        assert_eq!(last, Some(19_999), "a piece has the number of its last frame");
    }

    // req: WIR-6
    #[test]
    fn many_small_events_that_wait_are_a_few_pieces_in_their_order() {
        let table = Rc::new(Requests::new(0));
        let request = table.enter();
        let event = |kind| {
            let (run_id, metadata) = (String::new(), std::collections::BTreeMap::new());
            Frame::Run(Box::new(RunEvent { stream: 1, sequence: 0, kind, run_id, metadata }))
        };
        let delta = |text: &str, reasoning: &str| {
            event(RunEventKind::Delta { text: text.to_owned(), reasoning: reasoning.to_owned() })
        };
        let count = |tokens| {
            event(RunEventKind::Usage(proto::message::Usage {
                output_tokens: Some(tokens),
                ..proto::message::Usage::default()
            }))
        };
        let frames = [
            delta("", "a"),
            delta("", "b"),
            delta("c", ""),
            delta("d", ""),
            delta("e", "f"),
            count(1),
            count(2),
            delta("g", ""),
        ];
        for (sequence, frame) in (0..).zip(frames) {
            assert!(table.deliver(request.id, Event::Frame(LeaseId(7), sequence, frame)));
        }
        let mut found = Vec::new();
        while let Some(Event::Frame(_, sequence, Frame::Run(event))) = request.events.try_pop() {
            found.push((
                sequence,
                match event.kind {
                    RunEventKind::Delta { text, reasoning } => format!("{reasoning}|{text}"),
                    RunEventKind::Usage(usage) => format!("{:?}", usage.output_tokens),
                    other => format!("{other:?}"),
                },
            ));
        }
        let expected = [(1, "ab|"), (3, "|cd"), (4, "f|e"), (6, "Some(2)"), (7, "|g")];
        assert_eq!(found, expected.map(|(sequence, text)| (sequence, text.to_owned())));
    }
}
