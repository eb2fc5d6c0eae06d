//! Stream sockets as the data plane sees them: the narrow interface behind which the runtime can be replaced.
//!
//! A [`Stream`] is owned by one task. Waiting for a peer without a buffer is [`Stream::readable`], which may be dropped
//! freely; [`Stream::read`] is a completion read whose future must be driven to its end unless the stream is closed with it.

mod descriptors;
mod dial;
mod listener;
mod local;
mod patience;
mod progress;
mod stream;
mod sys;

pub use descriptors::{Descriptors, pass_on_no_descriptors, raise_descriptors};
pub use dial::{DialError, dial};
pub use listener::{Exhausted, Listener};
pub use local::{LocalError, LocalSocket};
pub use patience::{PROBE_AFTER, PROBE_EVERY, Patience, STALL_MARGIN};
pub(crate) use progress::Progress;
pub use stream::{ReadHalf, Stream, WriteFault, WriteHalf};
pub(crate) use sys::{is_writable, prepare};
