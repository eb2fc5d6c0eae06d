//! Reading a request's body whole, under the same bounds as HTTP/1's.

use std::{future::poll_fn, io};

use ::h2::RecvStream;
use bytes::Bytes;

use super::exchange::Exchange;
use crate::{
    http::{
        body::Body,
        budget::{Budget, Piece},
        server::{Pace, ReadFault},
    },
    time::before,
};

impl Exchange {
    /// As [`Connection::read_body`](crate::http::server::Connection::read_body). The client may send more when what it has sent has
    /// been taken into the body.
    pub(crate) async fn read_body(&mut self, max: usize, budget: &Budget) -> Result<Body, ReadFault> {
        let Some(mut unread) = self.body.take() else { return Ok(Body::default()) };
        let read = self.read_whole(&mut unread, max, budget).await;
        if read.is_err() {
            // The rest of it stays where it is: dropped, its windows would open and it would come.
            self.body = Some(unread);
        }
        read
    }

    async fn read_whole(
        &mut self,
        from: &mut RecvStream,
        max: usize,
        budget: &Budget,
    ) -> Result<Body, ReadFault> {
        if self.announced.is_some_and(|length| length > max as u64) {
            return Err(ReadFault::TooLarge);
        }
        if !budget.has_room(self.announced.unwrap_or(1)) {
            return Err(ReadFault::NoRoom);
        }
        if std::mem::take(&mut self.expects) {
            self.carry_on().map_err(ReadFault::Broken)?;
        }
        // The crate holds the client to what it announced.
        let most = self.announced.and_then(|length| usize::try_from(length).ok()).unwrap_or(max);
        let mut pace = Pace::new(&self.shared.limits);
        let (mut body, mut filling) = (Body::default(), None::<Piece>);
        while let Some(mut data) = self.receive(from, &mut pace).await? {
            let received = data.len();
            while !data.is_empty() {
                let mut piece = match filling.take() {
                    Some(piece) => piece,
                    None if body.len() >= most => return Err(ReadFault::TooLarge),
                    None => Piece::next(budget, body.len(), most - body.len()).ok_or(ReadFault::NoRoom)?,
                };
                piece.extend(&data.split_to(data.len().min(piece.missing())));
                if piece.missing() > 0 {
                    filling = Some(piece);
                } else {
                    piece.push_to(&mut body);
                }
            }
            from.flow_control().release_capacity(received).map_err(broken)?;
        }
        if let Some(last) = filling {
            last.push_to(&mut body);
        }
        Ok(body)
    }

    /// The next part of the body in time; `None` at its end.
    async fn receive(&self, from: &mut RecvStream, pace: &mut Pace) -> Result<Option<Bytes>, ReadFault> {
        let next = poll_fn(|cx| from.poll_data(cx));
        match before(pace.deadline(), next).await {
            None => Err(ReadFault::TimedOut),
            Some(None) => Ok(None),
            Some(Some(Err(error))) => Err(broken(error)),
            Some(Some(Ok(data))) => {
                pace.took(data.len(), &self.shared.limits).await?;
                Ok(Some(data))
            }
        }
    }
}

/// The stream is over: by its client, or by the crate for what its client did, such as to send more or less than it announced.
fn broken(error: ::h2::Error) -> ReadFault {
    ReadFault::Broken(io::Error::other(error))
}
