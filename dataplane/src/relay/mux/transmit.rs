//! What leaves a link: heartbeats, control messages, credit, and the streams in turns.

use std::mem;

use proto::{
    frame::CHUNK_BYTES_MAX,
    message::{Credit, Message, StreamNo},
};

use super::Mux;
use crate::relay::outbox::Emitted;

/// Bytes of one stream's turn while others wait, in frames of at most that payload.
const TURN_BYTES: usize = 16 * 1024;
/// Room left for a frame's own fields when payload is cut to fit a budget.
const FRAME_OVERHEAD: usize = 48;
/// Payload that is worth a frame: less room than this in a budget does not cut a body.
const CUT_BYTES_MIN: usize = 1024;

impl Mux {
    /// Appends whole frames to `out` until about `budget` bytes were appended or nothing is left to send; the last frame
    /// may go over it. Returns how many bytes were appended.
    pub fn poll_transmit(&mut self, out: &mut Vec<u8>, budget: usize) -> usize {
        let start = out.len();
        let end = start.saturating_add(budget);
        self.emit_control(out, end);
        self.emit_grants(out, end);
        while out.len() < end {
            let Some(number) = self.ready.pop_front() else { break };
            self.take_turn(number, out, end);
        }
        out.len() - start
    }

    /// Whether [`Self::poll_transmit`] may have something to append.
    #[must_use]
    pub fn wants_transmit(&self) -> bool {
        self.pong_due
            || self.ping_due
            || !self.control.is_empty()
            || !self.grants.is_empty()
            || !self.ready.is_empty()
    }

    /// Appends all heartbeats and control messages, and nothing of any stream: for the end of a link.
    pub fn poll_control(&mut self, out: &mut Vec<u8>) {
        self.emit_control(out, usize::MAX);
    }

    fn emit_control(&mut self, out: &mut Vec<u8>, end: usize) {
        if mem::take(&mut self.pong_due) {
            self.emit(&Message::HeartbeatPong, out);
        }
        if mem::take(&mut self.ping_due) {
            self.emit(&Message::HeartbeatPing, out);
        }
        while out.len() < end {
            let Some(message) = self.control.pop_front() else { return };
            self.emit(&message, out);
        }
    }

    fn emit(&mut self, message: &Message, out: &mut Vec<u8>) {
        message.encode(out);
        self.stats.sent += 1;
    }

    fn emit_grants(&mut self, out: &mut Vec<u8>, end: usize) {
        while out.len() < end {
            let Some(stream) = self.grants.pop_front() else { return };
            let Some(found) = self.streams.get_mut(&stream) else { continue };
            found.grant_scheduled = false;
            let bytes = found.receive.take_grant();
            if bytes > 0 {
                self.emit(&Message::Credit(Credit { stream, bytes }), out);
            }
        }
    }

    fn take_turn(&mut self, number: StreamNo, out: &mut Vec<u8>, end: usize) {
        let Some(stream) = self.streams.get_mut(&number) else { return };
        stream.scheduled = false;
        // Alone, a stream may have all that the budget leaves.
        let turn = if self.ready.is_empty() { CHUNK_BYTES_MAX } else { TURN_BYTES };
        let (start, mut used) = (out.len(), mem::take(&mut stream.used));
        let before = used;
        while used < turn && out.len() < end {
            let room = end.saturating_sub(out.len() + FRAME_OVERHEAD).max(CUT_BYTES_MIN);
            let share = (turn - used).max(CUT_BYTES_MIN);
            match stream.outbox.emit(number, &mut stream.send, share.min(room), out) {
                Emitted::Frame => self.stats.sent += 1,
                Emitted::Blocked => return,
                Emitted::Empty => break,
            }
            used = before + (out.len() - start);
        }
        if stream.outbox.is_empty() {
            if stream.finishing {
                self.streams.remove(&number);
            }
            return;
        }
        stream.scheduled = true;
        if used < turn {
            // The write is full: the rest of the turn comes first in the next one.
            stream.used = used;
            self.ready.push_front(number);
        } else {
            stream.used = used - turn;
            self.ready.push_back(number);
        }
    }
}
