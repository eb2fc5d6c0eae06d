//! Writing a request, with an ear for an answer that comes before its end.
//!
//! Nothing is ever handed to the kernel that it does not take at once, so there is no write under way that would have to
//! be given up, or waited for, when an answer comes: a provider that refuses a body without reading it is heard at once,
//! and its answer taken, however much it left unread.

use std::{
    io,
    pin::pin,
    time::{Duration, Instant},
};

use bytes::Bytes;
use futures::future::{Either, LocalBoxFuture, select};

use super::{ClientError, conn::Conn, heads::Heads};
use crate::{
    clock,
    http::head::ResponseHead,
    net::WriteFault,
    time::{before, yield_now},
};

/// Most bytes of a body between two looks at what the provider says and at what else the shard has to do. Each such
/// section has the write stall's time.
const SECTION_BYTES: usize = 256 * 1024;
/// How long the section under way may take once the provider has begun a success: one that answers and reads no more would
/// otherwise hold its own answer back for the whole write stall.
const EARLY_GRACE: Duration = Duration::from_secs(2);

/// How far an upload came.
#[derive(Debug)]
pub(super) struct Sent {
    /// The answer's head, where it came before the request's end.
    pub(super) early: Option<ResponseHead>,
    /// Whether the provider has got all of the request. If not, the connection ends with the answer.
    pub(super) whole: bool,
}

/// Writes the parts of a request, one after the other. An early answer that is no success (3xx to 5xx) ends it; a 2xx lets it go
/// on to its end.
pub(super) async fn upload(
    conn: &mut Conn,
    heads: &mut Heads<'_>,
    parts: &[Bytes],
    stall: Duration,
) -> Result<Sent, ClientError> {
    let mut upload = Upload { conn, heads, watch: None, early: None };
    let mut sections = parts.iter().flat_map(|part| part.chunks(SECTION_BYTES)).peekable();
    while let Some(section) = sections.next() {
        if let Some(end) = upload.write(section, stall).await? {
            return Ok(end);
        }
        if sections.peek().is_some() && upload.look().await? {
            return Ok(Sent { early: upload.early, whole: false });
        }
    }
    Ok(Sent { early: upload.early, whole: true })
}

type Watch = LocalBoxFuture<'static, io::Result<()>>;

struct Upload<'a, 'h> {
    conn: &'a mut Conn,
    heads: &'a mut Heads<'h>,
    /// Tells when the provider is heard. Armed by the first look or wait, and not any more once there is an answer.
    watch: Option<Watch>,
    early: Option<ResponseHead>,
}

impl Upload<'_, '_> {
    /// Writes one section; gives how the upload ended, when that was within it.
    async fn write(&mut self, mut section: &[u8], stall: Duration) -> Result<Option<Sent>, ClientError> {
        let patience = if self.early.is_some() { EARLY_GRACE.min(stall) } else { stall };
        let mut deadline = clock::now() + patience;
        while !section.is_empty() {
            match self.conn.wire.try_write(section) {
                Ok(Some(n)) => {
                    section = section.get(n..).unwrap_or_default();
                    continue;
                }
                Ok(None) => {}
                Err(error) => return self.broken(error.into()).map(Some),
            }
            let heard = match self.wait(deadline).await {
                Some(Ok(heard)) => heard,
                Some(Err(error)) => return self.broken(error.into()).map(Some),
                None => return self.broken(WriteFault::Stalled).map(Some),
            };
            if heard {
                if self.listen()? {
                    return Ok(Some(Sent { early: self.early.take(), whole: false }));
                }
                if self.early.is_some() {
                    deadline = deadline.min(clock::now() + EARLY_GRACE);
                }
            }
        }
        Ok(None)
    }

    /// Waits until the socket takes more or, `true`, the provider is heard. `None` at `deadline`.
    async fn wait(&mut self, deadline: Instant) -> Option<io::Result<bool>> {
        let writable = pin!(self.conn.wire.writable());
        if self.early.is_some() {
            return before(deadline, writable).await.map(|ready| ready.map(|()| false));
        }
        let watch = self.watch.get_or_insert_with(|| Box::pin(self.conn.wire.watch()));
        match before(deadline, select(watch, writable)).await? {
            Either::Left(_) => {
                self.watch = None;
                Some(Ok(true))
            }
            Either::Right((ready, _)) => Some(ready.map(|()| false)),
        }
    }

    /// Lets the shard's other tasks run, and listens. Whether the upload is to end.
    async fn look(&mut self) -> Result<bool, ClientError> {
        if self.early.is_some() {
            yield_now().await;
            return Ok(false);
        }
        let watch = self.watch.get_or_insert_with(|| Box::pin(self.conn.wire.watch()));
        match select(watch, pin!(yield_now())).await {
            Either::Left(_) => {
                self.watch = None;
                self.listen()
            }
            Either::Right(_) => Ok(false),
        }
    }

    /// Takes the head that the provider may have sent. Whether it ends the upload.
    fn listen(&mut self) -> Result<bool, ClientError> {
        self.conn.rouse();
        self.early = self.heads.take(self.conn)?;
        Ok(self.early.as_ref().is_some_and(|head| head.status >= 300))
    }

    /// No more can be written. The answer that explains it may be there, and may have been before it.
    fn broken(&mut self, fault: WriteFault) -> Result<Sent, ClientError> {
        if self.early.is_none() {
            self.conn.rouse();
            self.early = match self.heads.take(self.conn) {
                Ok(Some(head)) => Some(head),
                Ok(None) | Err(ClientError::NoAnswer | ClientError::ConnectionReset(_)) => {
                    return Err(fault.into());
                }
                Err(error) => return Err(error),
            };
        }
        Ok(Sent { early: self.early.take(), whole: false })
    }
}
