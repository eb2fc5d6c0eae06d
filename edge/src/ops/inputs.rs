//! `GET /inputs` of the admin socket: what control was told lately, to be run again elsewhere (`control::record`).
//!
//! Control hands over a copy of its records, which costs it a millisecond or two; the text, which takes far longer, is made on
//! a thread of its own. One at a time: it is some megabytes.

use std::rc::Rc;

use control::record::Dump;
use dataplane::local::Queue;

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
        let mut mail = ToShard::DumpText(token, text(&dump));
        // A shard that is far behind gets it when it has taken something; one that is gone needs it no more.
        while let Err(refused) = back.send(mail) {
            if back.is_empty() {
                return;
            }
            mail = refused;
            std::thread::park_timeout(std::time::Duration::from_millis(1));
        }
    });
    if let Err(error) = begun {
        tracing::warn!(%error, "no thread for the inputs");
        deliver(state, token, Vec::new());
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
