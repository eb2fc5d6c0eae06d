//! The data of an event stream's events (WHATWG HTML §9.2). Names, ids and comments say nothing in a stream of chat chunks.

use memchr::memchr2;

/// Bytes of one event at most, line ends included: 1 MiB.
pub const EVENT_BYTES_MAX: usize = 1024 * 1024;

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// An event is longer than [`EVENT_BYTES_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EventTooLong;

/// Puts the data of events together, cut anywhere.
#[derive(Debug, Default)]
pub(super) struct Events {
    /// The current line so far, where it came in pieces.
    line: Vec<u8>,
    /// Data of the current event.
    data: Vec<u8>,
    has_data: bool,
    /// Bytes of the current event.
    event: usize,
    /// A line has ended.
    begun: bool,
    /// The last byte was a CR: a LF behind it belongs to it.
    after_cr: bool,
}

impl Events {
    /// Takes more of the stream; gives the data of every event that ends in it to `take`, until that says to stop.
    ///
    /// # Errors
    /// [`EventTooLong`], or as `take` says.
    pub(super) fn push<E: From<EventTooLong>>(
        &mut self,
        mut bytes: &[u8],
        mut take: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        loop {
            if self.after_cr && !bytes.is_empty() {
                self.after_cr = false;
                bytes = bytes.strip_prefix(b"\n").unwrap_or(bytes);
            }
            let Some(end) = memchr2(b'\n', b'\r', bytes) else {
                self.count(bytes.len())?;
                self.line.extend_from_slice(bytes);
                return Ok(());
            };
            let (rest, from_end) = bytes.split_at(end);
            self.after_cr = from_end.first() == Some(&b'\r');
            bytes = from_end.get(1..).unwrap_or_default();
            self.count(rest.len() + 1)?;
            if self.line.is_empty() {
                self.end_line(rest, &mut take)?;
            } else {
                let mut line = std::mem::take(&mut self.line);
                line.extend_from_slice(rest);
                self.end_line(&line, &mut take)?;
                line.clear();
                self.line = line;
            }
        }
    }

    /// The stream is over: an event that lacks only its empty line is one.
    ///
    /// # Errors
    /// As `take` says.
    pub(super) fn end<E: From<EventTooLong>>(
        &mut self,
        mut take: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let line = std::mem::take(&mut self.line);
        if !line.is_empty() {
            self.end_line(&line, &mut take)?;
        }
        self.end_line(b"", &mut take)
    }

    fn count(&mut self, more: usize) -> Result<(), EventTooLong> {
        self.event = self.event.saturating_add(more);
        if self.event > EVENT_BYTES_MAX { Err(EventTooLong) } else { Ok(()) }
    }

    fn end_line<E>(
        &mut self,
        mut line: &[u8],
        take: &mut impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        if !std::mem::replace(&mut self.begun, true) {
            line = line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line);
        }
        if line.is_empty() {
            self.event = 0;
            let data = std::mem::take(&mut self.data);
            let taken = if std::mem::take(&mut self.has_data) { take(&data) } else { Ok(()) };
            self.data = data;
            self.data.clear();
            return taken;
        }
        let value = if line == b"data" { Some(&b""[..]) } else { line.strip_prefix(b"data:") };
        if let Some(value) = value {
            if std::mem::replace(&mut self.has_data, true) {
                self.data.push(b'\n');
            }
            self.data.extend_from_slice(value.strip_prefix(b" ").unwrap_or(value));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn follow(pieces: &[&[u8]]) -> Result<Vec<String>, EventTooLong> {
        let mut events = Events::default();
        let mut found = Vec::new();
        let mut take = |data: &[u8]| -> Result<(), EventTooLong> {
            found.push(String::from_utf8_lossy(data).into_owned());
            Ok(())
        };
        for piece in pieces {
            events.push(piece, &mut take)?;
        }
        events.end(&mut take)?;
        Ok(found)
    }

    #[test]
    fn the_data_of_events_is_the_same_however_they_are_cut() {
        for (text, expected) in [
            ("data: a\n\ndata: b\n\n", &["a", "b"][..]),
            ("data:a\r\n\r\ndata: b\r\n\r\n", &["a", "b"]),
            ("data: a\r\rdata: b\r\r", &["a", "b"]),
            ("\u{feff}data: a\n\n\u{feff}data: b\n\n", &["a"]),
            (": ping\n\ndata: a\n: ka\ndata: b\n\n", &["a\nb"]),
            (": ping\ndata: a\n\n", &["a"]),
            ("event: x\nid: 1\nretry: 5\ndata: a\n\nevent: y\n\n", &["a"]),
            ("data\n\ndata:\n\n", &["", ""]),
            ("data: a", &["a"]),
            ("data: a\n", &["a"]),
            ("database: x\n\n data: y\n\n", &[]),
            ("\n\n\n", &[]),
            ("", &[]),
        ] {
            let whole = follow(&[text.as_bytes()]).unwrap();
            assert_eq!(whole, expected, "{text:?}");
            for at in 0..=text.len() {
                let (left, right) = text.as_bytes().split_at(at);
                assert_eq!(follow(&[left, right]).unwrap(), whole, "{text:?} at {at}");
            }
            let single: Vec<_> = text.as_bytes().chunks(1).collect();
            assert_eq!(follow(&single).unwrap(), whole, "{text:?}");
        }
    }

    #[test]
    fn an_event_has_a_bound_and_a_stream_has_none() {
        let comment = [b": ".as_slice(), &[b'x'; 1000], b"\n\n"].concat();
        let many: Vec<&[u8]> = std::iter::repeat_n(&*comment, 2000).collect();
        assert_eq!(follow(&many).unwrap(), Vec::<String>::new());
        let endless = [b'x'; 1000];
        let piece: Vec<&[u8]> = std::iter::repeat_n(&endless[..], EVENT_BYTES_MAX / 1000 + 1).collect();
        assert_eq!(follow(&piece), Err(EventTooLong));
        let lines: Vec<&[u8]> =
            std::iter::repeat_n(&b"data: xxxxxxxxxxxxxxxxxxxxxxxxx\n"[..], 40_000).collect();
        assert_eq!(follow(&lines), Err(EventTooLong));
    }
}
