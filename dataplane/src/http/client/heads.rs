//! Taking the head of an answer off a connection, past the informational ones.

use std::cell::RefCell;

use bytes::BytesMut;

use super::{
    ClientError,
    conn::{Conn, Received},
};
use crate::http::{h1::parse::HeadScan, head::ResponseHead, limits::Limits};

/// What one request has heard so far.
#[derive(Debug)]
pub(super) struct Heads<'a> {
    limits: &'a Limits,
    scratch: &'a RefCell<BytesMut>,
    scan: HeadScan,
    informational: usize,
    /// Whether any byte of an answer has come: from then on the request is never sent again (TUN-7).
    pub(super) heard: bool,
}

impl<'a> Heads<'a> {
    pub(super) fn new(limits: &'a Limits, scratch: &'a RefCell<BytesMut>) -> Self {
        Self { limits, scratch, scan: HeadScan::default(), informational: 0, heard: false }
    }

    /// The final head if it can be had without waiting.
    pub(super) fn take(&mut self, conn: &mut Conn) -> Result<Option<ResponseHead>, ClientError> {
        loop {
            while let Some(head) = self.scan.response_head(&mut conn.buffer, self.limits)? {
                if !head.is_informational() {
                    return Ok(Some(head));
                }
                self.informational += 1;
                if self.informational > self.limits.informational {
                    return Err(ClientError::TooManyInformational);
                }
            }
            match conn.receive(self.scratch).map_err(ClientError::ConnectionReset)? {
                Received::Data => self.heard = true,
                Received::Nothing => return Ok(None),
                Received::End | Received::Cut if self.heard => return Err(ClientError::Truncated),
                Received::End | Received::Cut => return Err(ClientError::NoAnswer),
            }
        }
    }

    /// Waits for the final head.
    pub(super) async fn wait(&mut self, conn: &mut Conn) -> Result<ResponseHead, ClientError> {
        loop {
            if let Some(head) = self.take(conn)? {
                return Ok(head);
            }
            conn.wait().await.map_err(ClientError::ConnectionReset)?;
        }
    }
}
