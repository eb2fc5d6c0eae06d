//! Writing a response: everything is appended to one buffer, and a flush is one write.

use std::io;

use bytes::Bytes;

use super::{Http1, spare};
use crate::{
    http::{
        date,
        h1::encode::{self, Framing},
        head::ResponseHead,
    },
    net::WriteFault,
};

/// How long a response's body will be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseBody {
    /// Exactly this many bytes.
    Length(u64),
    /// Not known: chunked, or up to the close for an HTTP/1.0 client.
    Chunked,
    /// Not known, and nothing but the end of the connection may end it (RFC 9112 section 6.3).
    UntilClose,
    /// No body.
    None,
}

/// Where the response is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::http) enum Writing {
    /// A request is there, no response has begun.
    Waiting,
    /// Bytes of the body still to come.
    Length(u64),
    Chunked,
    UntilClose,
    /// The body is not sent: HEAD, 204, 304.
    Discarded,
    /// Finished, or no request yet.
    Done,
}

impl Http1 {
    /// A request body that was not read is thrown away here, or the connection will close after the response.
    pub(super) fn begin(&mut self, head: &ResponseHead, body: ResponseBody) {
        self.settle_body();
        self.take_buffer();
        let bodiless = head.is_informational() || matches!(head.status, 204 | 304);
        let (framing, writing) = match body {
            _ if bodiless => (Framing::None, Writing::Discarded),
            ResponseBody::None => (Framing::Length(0), Writing::Length(0)),
            ResponseBody::Length(length) => (Framing::Length(length), Writing::Length(length)),
            ResponseBody::UntilClose => (Framing::None, Writing::UntilClose),
            ResponseBody::Chunked if self.asked_http10 => (Framing::None, Writing::UntilClose),
            ResponseBody::Chunked => (Framing::Chunked, Writing::Chunked),
        };
        self.writing = if self.asked_head { Writing::Discarded } else { writing };
        self.persist &= !self.draining && self.writing != Writing::UntilClose;
        if self.writing == Writing::UntilClose {
            // From now on, not when it is cut: a process that is killed cannot do it any more.
            self.wire.reset_on_close();
            self.resets = true;
        }
        let close = !self.persist;
        let date = head.headers.get("date").is_none().then(date::now);
        let date = date.as_ref().map(|date| (b"date".as_slice(), date.as_slice()));
        let fields = head.headers.raw().chain(date);
        if encode::response_head(&mut self.out, head.status, fields, framing, close).is_err() {
            // Headers are valid by construction; should that ever fail, the status is still told.
            let _bare = encode::response_head(
                &mut self.out,
                head.status,
                std::iter::empty::<(&str, &[u8])>(),
                framing,
                close,
            );
        }
    }

    /// As one chunk where the response is chunked.
    pub(super) fn push(&mut self, data: &[u8]) {
        self.take_buffer();
        match self.writing {
            Writing::Chunked => encode::chunk_of(&mut self.out, data),
            Writing::UntilClose => self.out.extend_from_slice(data),
            Writing::Length(left) => {
                let fits = usize::try_from(left).unwrap_or(usize::MAX).min(data.len());
                self.out.extend_from_slice(data.get(..fits).unwrap_or_default());
                self.writing = Writing::Length(left.saturating_sub(fits as u64));
                self.persist &= fits == data.len();
            }
            Writing::Waiting | Writing::Discarded | Writing::Done => {}
        }
    }

    /// As one chunk for all of them where the response is chunked.
    pub(super) fn push_parts(&mut self, parts: &[Bytes]) {
        self.take_buffer();
        if self.writing == Writing::Chunked {
            encode::chunk(&mut self.out, parts);
        } else {
            for part in parts {
                self.push(part);
            }
        }
    }

    /// A body shorter than announced ends the connection, so that the client can tell.
    pub(super) fn finish(&mut self) {
        self.take_buffer();
        match self.writing {
            Writing::Chunked => self.out.extend_from_slice(encode::LAST_CHUNK),
            Writing::Length(0) | Writing::Discarded | Writing::Done => {}
            Writing::Length(_) | Writing::UntilClose | Writing::Waiting => self.persist = false,
        }
        self.writing = Writing::Done;
    }

    /// Bytes that wait for a flush.
    pub(super) fn pending(&self) -> usize {
        self.out.len()
    }

    /// Once it has failed, or was dropped, closing resets the connection.
    pub(super) async fn flush(&mut self) -> Result<(), WriteFault> {
        if self.broken {
            return Err(WriteFault::Io(io::ErrorKind::BrokenPipe.into()));
        }
        if self.out.is_empty() {
            return Ok(());
        }
        let out = std::mem::take(&mut self.out);
        // Until it is all sent, and for ever where this future is dropped.
        self.broken = true;
        let result = self.wire.send_all(&out, self.limits.write_stall).await;
        self.broken = result.is_err();
        spare::keep(out);
        result
    }

    fn take_buffer(&mut self) {
        if self.out.capacity() == 0 {
            self.out = spare::take();
        }
    }
}
