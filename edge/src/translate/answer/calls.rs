//! Calls out of their fragments, one after the other (api.md §0.1 rule 10).
//!
//! A fragment says by an index which call it belongs to. Engines count from 0 or from 1, give every call the same index or
//! none, say the identity once, with every fragment, or never. Calls are told apart by what makes sense of all of these, and are
//! given on in the order in which they began: the first one that is not complete as it comes, what follows it when it is.

use std::{collections::VecDeque, sync::Arc};

use super::extent::Extent;
use crate::openai::normalized::answer::Piece;

/// Calls of one answer at most.
pub const CALLS_MAX: usize = 256;
/// Bytes that have to wait for a call before them to be complete, at most in one answer: 4 MiB.
pub const HELD_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Why the calls of an answer are none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallError {
    /// Too many, or too much behind one that does not end.
    TooMuch,
    /// One that says not what it calls.
    Nameless,
}

/// Of a call, as an engine sent it.
#[derive(Debug, Default)]
pub(super) struct Fragment<'a> {
    pub(super) index: Option<u64>,
    pub(super) id: Option<&'a str>,
    pub(super) name: Option<&'a str>,
    pub(super) arguments: &'a str,
}

/// What is told in its order: the first of it is being told.
#[derive(Debug)]
pub(super) struct Calls {
    request: Arc<str>,
    /// At most one call.
    single: bool,
    waiting: VecDeque<Item>,
    held: usize,
    /// Every call that began, in order.
    known: Vec<Known>,
}

#[derive(Debug)]
enum Item {
    Text(String),
    Reasoning(String),
    Call(Call),
}

#[derive(Debug)]
struct Call {
    /// Its place in `known`.
    number: usize,
    /// What of its arguments has not been told.
    arguments: String,
    is_told: bool,
}

/// What is known of a call, also when it has been told.
#[derive(Debug)]
struct Known {
    index: Option<u64>,
    /// As the engine says it; empty until then.
    said_id: String,
    /// As it is told; empty until then.
    told_id: String,
    /// Empty until it is said.
    name: String,
    has_arguments: bool,
    extent: Extent,
}

impl Known {
    /// Whether a fragment of this name, at its place and without an identity, begins another call: a name is said once, or again
    /// before its arguments are complete.
    fn is_followed_by(&self, name: Option<&str>) -> bool {
        name.is_some_and(|name| !self.name.is_empty() && (self.extent.is_complete() || self.name != name))
    }
}

impl Calls {
    /// None yet.
    pub(super) fn new(request: Arc<str>, single: bool) -> Self {
        Self { request, single, waiting: VecDeque::new(), held: 0, known: Vec::new() }
    }

    /// Whether there is a call that the client is told of.
    pub(super) fn is_any(&self) -> bool {
        !self.known.is_empty()
    }

    /// Text, or thinking, behind what came before it.
    ///
    /// # Errors
    /// [`CallError::TooMuch`].
    pub(super) fn speech(&mut self, piece: Piece, pieces: &mut Vec<Piece>) -> Result<(), CallError> {
        let front_is_over = match self.waiting.front() {
            None => true,
            Some(Item::Call(call)) => self.waiting.len() == 1 && self.is_over(call),
            Some(_) => false,
        };
        if front_is_over {
            self.waiting.clear();
            pieces.push(piece);
            return Ok(());
        }
        let (Piece::Text(text) | Piece::Reasoning(text)) = &piece else { return Ok(()) };
        self.hold(text.len())?;
        match (self.waiting.back_mut(), piece) {
            (Some(Item::Text(before)), Piece::Text(text)) => before.push_str(&text),
            (Some(Item::Reasoning(before)), Piece::Reasoning(text)) => before.push_str(&text),
            (_, Piece::Text(text)) => self.waiting.push_back(Item::Text(text)),
            (_, Piece::Reasoning(text)) => self.waiting.push_back(Item::Reasoning(text)),
            _ => {}
        }
        Ok(())
    }

    /// A fragment of a stream.
    ///
    /// # Errors
    /// [`CallError::TooMuch`].
    pub(super) fn fragment(
        &mut self,
        fragment: &Fragment<'_>,
        pieces: &mut Vec<Piece>,
    ) -> Result<(), CallError> {
        match self.whose(fragment) {
            Some(number) => self.extend(number, fragment, pieces),
            None => self.begin(fragment, pieces),
        }
    }

    /// A call of its own, which may have more fragments.
    ///
    /// # Errors
    /// [`CallError::TooMuch`].
    pub(super) fn begin(
        &mut self,
        fragment: &Fragment<'_>,
        pieces: &mut Vec<Piece>,
    ) -> Result<(), CallError> {
        let number = self.known.len();
        if number == CALLS_MAX {
            return Err(CallError::TooMuch);
        }
        self.known.push(Known {
            index: fragment.index,
            said_id: String::new(),
            told_id: String::new(),
            name: String::new(),
            has_arguments: false,
            extent: Extent::default(),
        });
        // The fragments of one that nobody asked for have nowhere to go.
        if !(self.single && number > 0) {
            let call = Call { number, arguments: String::new(), is_told: false };
            self.waiting.push_back(Item::Call(call));
        }
        self.extend(number, fragment, pieces)
    }

    /// The answer is over.
    ///
    /// # Errors
    /// [`CallError::Nameless`].
    pub(super) fn finish(&mut self, pieces: &mut Vec<Piece>) -> Result<(), CallError> {
        self.tell(pieces);
        while let Some(item) = self.waiting.pop_front() {
            match item {
                Item::Call(Call { is_told: false, .. }) => return Err(CallError::Nameless),
                Item::Call(call) => {
                    if self.known.get(call.number).is_some_and(|known| !known.has_arguments) {
                        pieces.push(Piece::Arguments("{}".to_owned()));
                    }
                }
                Item::Text(text) => pieces.push(Piece::Text(text)),
                Item::Reasoning(text) => pieces.push(Piece::Reasoning(text)),
            }
            self.tell(pieces);
        }
        Ok(())
    }

    /// Which call goes on by a fragment; `None` when it begins one.
    fn whose(&self, fragment: &Fragment<'_>) -> Option<usize> {
        let last = self.known.len().checked_sub(1);
        let position = |is_it: &dyn Fn(&Known) -> bool| self.known.iter().rposition(is_it);
        let Some(index) = fragment.index else {
            return match fragment.id {
                Some(id) => position(&|known| known.said_id == id),
                None => last
                    .filter(|last| !self.known.get(*last).is_some_and(|it| it.is_followed_by(fragment.name))),
            };
        };
        let Some(at) = position(&|known| known.index == Some(index)) else {
            // Nothing that could be called begins by it, so its index is a slip.
            return last.filter(|_| fragment.id.is_none() && fragment.name.is_none());
        };
        let known = self.known.get(at)?;
        let begins_another = match fragment.id {
            Some(id) if !known.said_id.is_empty() => known.said_id != id,
            _ => known.is_followed_by(fragment.name),
        };
        (!begins_another).then_some(at)
    }

    fn extend(
        &mut self,
        number: usize,
        fragment: &Fragment<'_>,
        pieces: &mut Vec<Piece>,
    ) -> Result<(), CallError> {
        let Some(known) = self.known.get_mut(number) else { return Ok(()) };
        if known.said_id.is_empty()
            && let Some(id) = fragment.id
        {
            known.said_id.push_str(id);
        }
        if known.name.is_empty()
            && let Some(name) = fragment.name
        {
            known.name.push_str(name);
        }
        // What stands behind the object is blank, or would make it none.
        let length = known.extent.push(fragment.arguments);
        let arguments = fragment.arguments.get(..length).unwrap_or_default();
        known.has_arguments |= !arguments.is_empty();
        let mut calls = self.waiting.iter_mut().enumerate();
        let found = calls.find_map(|(at, item)| match item {
            Item::Call(call) if call.number == number => Some((at, call)),
            _ => None,
        });
        let Some((at, call)) = found else { return Ok(()) };
        call.arguments.push_str(arguments);
        if at > 0 {
            return self.hold(arguments.len());
        }
        self.tell(pieces);
        Ok(())
    }

    /// Gives on what can be told.
    fn tell(&mut self, pieces: &mut Vec<Piece>) {
        loop {
            let is_last = self.waiting.len() == 1;
            match self.waiting.front_mut() {
                Some(Item::Call(call)) => {
                    if !call.is_told {
                        let Some(begun) = begun(&mut self.known, call.number, &self.request) else { return };
                        pieces.push(begun);
                        call.is_told = true;
                    }
                    if !call.arguments.is_empty() {
                        pieces.push(Piece::Arguments(std::mem::take(&mut call.arguments)));
                    }
                    let known = self.known.get(call.number);
                    if is_last || !known.is_some_and(|known| known.extent.is_complete()) {
                        return;
                    }
                    self.waiting.pop_front();
                }
                Some(Item::Text(text)) => {
                    pieces.push(Piece::Text(std::mem::take(text)));
                    self.waiting.pop_front();
                }
                Some(Item::Reasoning(text)) => {
                    pieces.push(Piece::Reasoning(std::mem::take(text)));
                    self.waiting.pop_front();
                }
                None => return,
            }
        }
    }

    fn is_over(&self, call: &Call) -> bool {
        call.is_told && self.known.get(call.number).is_some_and(|known| known.extent.is_complete())
    }

    fn hold(&mut self, more: usize) -> Result<(), CallError> {
        self.held = self.held.saturating_add(more);
        if self.held > HELD_BYTES_MAX { Err(CallError::TooMuch) } else { Ok(()) }
    }
}

/// What is told of a call first, when its name is known: under an identity that no other call of the answer has.
fn begun(known: &mut [Known], number: usize, request: &str) -> Option<Piece> {
    let call = known.get(number).filter(|call| !call.name.is_empty())?;
    let said = &call.said_id;
    let is_taken = said.is_empty() || known.iter().any(|other| other.told_id == *said);
    let id =
        if is_taken { format!("call_{}{number}", request.trim_start_matches("req_")) } else { said.clone() };
    let call = known.get_mut(number)?;
    call.told_id.clone_from(&id);
    Some(Piece::CallBegun { id, name: call.name.clone() })
}
