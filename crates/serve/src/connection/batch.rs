//! Pieces of a body that are written together.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use pronghorn_pool::Content;

use crate::reader::Reader;
use crate::source::Read;

/// Pieces of a body, in their order; none is empty.
///
/// Each write makes the kernel send and wake the client, so what is there is written at once. But
/// no more than a worker may be ahead by, so that a slow client holds little memory.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pieces: VecDeque<Bytes>,
    len: usize,
}

impl Batch {
    /// A vector on the stack has room for them.
    pub(super) const MOST_PIECES: usize = 14;
    /// Taken when fewer bytes are there.
    const ENOUGH: usize = 256 << 10;

    /// Adds what a body holds now. What is there instead of more bytes is given back: its end, or a
    /// piece that must be sent by itself.
    pub(super) fn fill(
        &mut self,
        reader: &mut Reader,
        cx: &mut Context<'_>,
    ) -> Option<Read<Content>> {
        while self.len < Self::ENOUGH && self.pieces.len() < Self::MOST_PIECES {
            match reader.poll_content(cx) {
                Poll::Ready(Read::Bytes(Content::Here(bytes))) => self.push(bytes),
                Poll::Ready(other) => return Some(other),
                Poll::Pending => return None,
            }
        }
        None
    }

    fn push(&mut self, bytes: Bytes) {
        if !bytes.is_empty() {
            self.len += bytes.len();
            self.pieces.push_back(bytes);
        }
    }
}

impl From<Bytes> for Batch {
    fn from(bytes: Bytes) -> Self {
        let mut batch = Self::default();
        batch.push(bytes);
        batch
    }
}

impl Buf for Batch {
    fn remaining(&self) -> usize {
        self.len
    }

    fn chunk(&self) -> &[u8] {
        self.pieces.front().map_or(&[], |piece| piece)
    }

    fn chunks_vectored<'a>(&'a self, parts: &mut [IoSlice<'a>]) -> usize {
        let filled = parts.iter_mut().zip(&self.pieces);
        filled
            .map(|(part, piece)| *part = IoSlice::new(piece))
            .count()
    }

    fn advance(&mut self, mut by: usize) {
        assert!(by <= self.len, "more than there is");
        self.len -= by;
        while let Some(piece) = self.pieces.front_mut() {
            let of_piece = by.min(piece.len());
            piece.advance(of_piece);
            by -= of_piece;
            if !piece.is_empty() {
                break;
            }
            self.pieces.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use pronghorn_pool::{Lead, Piece, pieces};
    use proptest::prelude::*;

    use super::*;
    use crate::message::Body;

    fn fill(batch: &mut Batch, reader: &mut Reader) -> Option<Read<Content>> {
        batch.fill(reader, &mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn it_takes_what_is_there_until_that_is_enough() {
        let (sender, pieces) = pieces();
        let mut reader = Reader::new(Body::Pieces { pieces, len: None });
        let put = |len: usize| {
            sender
                .try_put(Bytes::from(vec![0; len]).into(), Lead::Long)
                .unwrap();
        };
        let mut filled = |end| {
            let mut batch = Batch::default();
            assert_eq!(fill(&mut batch, &mut reader).is_some(), end);
            (batch.pieces.len(), batch.remaining())
        };
        (0..3).for_each(|_| put(100_000));
        assert_eq!(filled(false), (3, 300_000));
        (0..4).for_each(|_| put(100_000));
        assert_eq!(filled(false), (3, 300_000));
        (0..20).for_each(|_| put(1));
        assert_eq!(filled(false), (Batch::MOST_PIECES, 100_013));
        assert_eq!(filled(false), (7, 7));
        assert_eq!(filled(false), (0, 0));
        put(5);
        sender.put_last(Piece::End);
        assert_eq!(filled(true), (1, 5));
    }

    #[test]
    fn it_gives_back_that_a_body_broke_off() {
        let (sender, pieces) = pieces();
        let mut reader = Reader::new(Body::Pieces { pieces, len: None });
        sender
            .try_put(Bytes::from("half").into(), Lead::Short)
            .unwrap();
        drop(sender);
        let mut batch = Batch::default();
        assert!(matches!(fill(&mut batch, &mut reader), Some(Read::Broken)));
        assert_eq!(batch.chunk(), b"half");
    }

    proptest! {
        #[test]
        fn its_bytes_are_those_of_its_pieces(
            sizes in prop::collection::vec(0..20_usize, 0..Batch::MOST_PIECES), steps in prop::collection::vec(0..40_usize, 0..20),
        ) {
            let all: Vec<u8> = (0..=u8::MAX).cycle().take(sizes.iter().sum()).collect();
            let mut rest = &all[..];
            let mut batch = Batch::default();
            for size in sizes {
                let (piece, behind) = rest.split_at(size);
                batch.push(Bytes::copy_from_slice(piece));
                rest = behind;
            }
            let mut left = &all[..];
            for step in steps {
                let mut parts = [IoSlice::new(b""); Batch::MOST_PIECES];
                let filled = batch.chunks_vectored(&mut parts);
                let there: Vec<u8> = parts[..filled].iter().flat_map(|part| part.iter().copied()).collect();
                prop_assert_eq!(there, left);
                prop_assert_eq!(batch.remaining(), left.len());
                prop_assert!(left.starts_with(batch.chunk()) && batch.chunk().is_empty() == left.is_empty());
                let step = step.min(left.len());
                batch.advance(step);
                left = &left[step..];
            }
        }
    }
}
