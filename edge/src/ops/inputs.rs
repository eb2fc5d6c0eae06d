//! `GET /inputs` of the admin socket: what control was told lately, to be run again elsewhere (`control::record`).
//!
//! Control hands over a copy of its records, which costs it a millisecond or two; the text, which takes far longer, is made on
//! a thread of its own. One at a time: it is some megabytes.

use std::rc::Rc;

use control::record::Dump;
use dataplane::{local::Queue, mailbox::Sender};

use crate::{
    mail::{ToControl, ToShard},
    shard_state::ShardState,
};

/// Where the text of a dump is awaited, and under which token.
pub(crate) type Awaited = Option<(u64, Rc<Queue<Vec<u8>>>)>;

/// The text of a dump; `None` while another one is being made, or when there is no thread for it.
pub(super) async fn dump(state: &Rc<ShardState>) -> Option<Vec<u8>> {
    let token = state.metrics.next_token();
    let waiter = Rc::new(Queue::new());
    {
        let mut awaited = state.dump.borrow_mut();
        if awaited.is_some() {
            return None;
        }
        *awaited = Some((token, Rc::clone(&waiter)));
    }
    state.tell_control(ToControl::Dump { token });
    let text = waiter.pop().await;
    (!text.is_empty()).then_some(text)
}

/// Makes the text of what control handed over, and brings it back to this shard.
pub(crate) fn write(state: &ShardState, token: u64, dump: Box<Dump>) {
    let Some(back) = state.sender() else { return };
    let begun = std::thread::Builder::new().name("dump".to_owned()).spawn(move || {
        bring(&back, ToShard::DumpText(token, text(&dump)));
    });
    if let Err(error) = begun {
        tracing::warn!(%error, "no thread for the inputs");
        deliver(state, token, Vec::new());
    }
}

/// A shard that is far behind gets its mail when it has taken something. One that is gone never does, and the process with it,
/// whose end this thread does not hold up.
fn bring(back: &Sender<ToShard>, mut mail: ToShard) {
    while let Err(refused) = back.send(mail) {
        mail = refused;
        std::thread::park_timeout(std::time::Duration::from_millis(1));
    }
}

/// Hands the text to whoever waits for it, if anybody still does.
pub(crate) fn deliver(state: &ShardState, token: u64, text: Vec<u8>) {
    let awaited = state.dump.borrow_mut().take_if(|(awaited, _)| *awaited == token);
    if let Some((_, waiter)) = awaited {
        waiter.push(text);
    }
}

fn text(dump: &Dump) -> Vec<u8> {
    let mut text = Vec::new();
    for line in dump.lines() {
        text.extend_from_slice(line.as_bytes());
        text.push(b'\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

    use dataplane::mailbox;

    use super::*;

    /// One that was lost would leave its reader, and every later one, waiting for ever.
    #[test]
    fn no_text_is_lost_in_a_mailbox_that_is_now_full_and_now_empty() {
        const TEXTS: u64 = 500;
        let (sender, inbox) = mailbox::for_thread(1);
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(SeqCst) {
                    let _full = sender.send(ToShard::Drain);
                }
            });
            scope.spawn(|| {
                (0..TEXTS).for_each(|token| bring(&sender, ToShard::DumpText(token, Vec::new())));
                done.store(true, SeqCst);
            });
            let mut brought = 0;
            while brought < TEXTS && !done.load(SeqCst) {
                brought += u64::from(matches!(inbox.try_pop(), Some(ToShard::DumpText(..))));
            }
            brought += u64::from(matches!(inbox.try_pop(), Some(ToShard::DumpText(..))));
            assert_eq!(brought, TEXTS);
        });
    }
}
