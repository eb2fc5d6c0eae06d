//! A message body in memory, in pieces: it grows without moving, and a part of it is replaced without copying the rest.

use std::ops::Range;

use bytes::Bytes;

/// The pieces of a body, none of them empty. Cloning shares their memory.
#[derive(Clone, Debug, Default)]
pub struct Body {
    pieces: Vec<Bytes>,
    len: usize,
}

impl Body {
    /// Appends a piece.
    pub fn push(&mut self, piece: Bytes) {
        if !piece.is_empty() {
            self.len += piece.len();
            self.pieces.push(piece);
        }
    }

    /// Bytes of all pieces.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The pieces in order.
    #[must_use]
    pub fn pieces(&self) -> &[Bytes] {
        &self.pieces
    }

    /// The pieces in order.
    #[must_use]
    pub fn into_pieces(self) -> Vec<Bytes> {
        self.pieces
    }

    /// All of it in one piece: a copy, unless it is one.
    #[must_use]
    pub fn joined(&self) -> Bytes {
        match self.pieces.as_slice() {
            [] => Bytes::new(),
            [only] => only.clone(),
            pieces => pieces.concat().into(),
        }
    }

    /// The same body with `with` in the place of `range`. Everything else is shared.
    #[must_use]
    pub fn replaced(&self, range: &Range<usize>, with: Bytes) -> Self {
        let mut out = Self::default();
        let mut with = Some(with);
        let mut start = 0;
        for piece in &self.pieces {
            let end = start + piece.len();
            let within = |at: usize| at.clamp(start, end) - start;
            out.push(piece.slice(..within(range.start)));
            if range.start < end
                && let Some(with) = with.take()
            {
                out.push(with);
            }
            out.push(piece.slice(within(range.end.max(range.start))..));
            start = end;
        }
        if let Some(with) = with {
            out.push(with);
        }
        out
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Self {
        let mut body = Self::default();
        body.push(bytes);
        body
    }
}

impl FromIterator<Bytes> for Body {
    fn from_iter<I: IntoIterator<Item = Bytes>>(pieces: I) -> Self {
        let mut body = Self::default();
        pieces.into_iter().for_each(|piece| body.push(piece));
        body
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every replacement in every cut of a text is the same as in the text itself.
    #[test]
    fn a_part_is_replaced_wherever_the_pieces_end() {
        let text = "0123456789";
        for size in 1..=text.len() {
            let body: Body = text.as_bytes().chunks(size).map(Bytes::copy_from_slice).collect();
            for start in 0..=text.len() {
                for end in start..=text.len() {
                    let mut expected = text.to_owned();
                    expected.replace_range(start..end, "abc");
                    let out = body.replaced(&(start..end), Bytes::from_static(b"abc"));
                    assert_eq!(out.joined(), expected, "{size} {start}..{end}");
                    assert_eq!(out.len(), expected.len());
                }
            }
        }
    }

    #[test]
    fn what_is_not_replaced_is_not_copied() {
        let body: Body = [Bytes::from(vec![1; 100]), Bytes::from(vec![2; 100])].into_iter().collect();
        let out = body.replaced(&(10..20), Bytes::from_static(b"x"));
        assert_eq!(out.pieces()[0].as_ptr(), body.pieces()[0].as_ptr());
        assert_eq!(out.pieces()[2].as_ptr(), body.pieces()[0][20..].as_ptr());
        assert_eq!(out.pieces()[3].as_ptr(), body.pieces()[1].as_ptr());
    }
}
