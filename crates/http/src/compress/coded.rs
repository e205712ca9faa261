//! A response's body that is compressed while it is sent.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use pronghorn_serve::{Body, BodySource, FILE_PIECE, Read, Reader};
use tokio::task::JoinHandle;

use super::encoder::{Encoder, Levels, Then};
use crate::coding::Coding;

/// A longer piece is compressed on a file thread: the I/O thread has others to serve, and this much
/// takes it about a millisecond.
pub(super) const INLINE: usize = 32 << 10;

/// A body and the coding that it goes through, piece by piece: what has come is sent, and nothing
/// waits for more.
pub(super) struct Coded {
    source: Reader,
    /// All of it comes at once: no encoder is kept.
    is_whole: bool,
    work: Work,
    /// The encoder holds back some of what it was given.
    owes: bool,
}

enum Work {
    Begins(Coding, Levels),
    Here(Encoder),
    /// Without an encoder it was the end.
    Elsewhere(JoinHandle<io::Result<(Option<Encoder>, Vec<u8>)>>),
    Ended,
}

impl Coded {
    pub(super) fn new(body: Body, coding: Coding, levels: Levels) -> Self {
        Self {
            is_whole: matches!(body, Body::Whole(_)),
            source: Reader::new(body),
            work: Work::Begins(coding, levels),
            owes: false,
        }
    }

    fn poll_encoded(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Read>> {
        loop {
            if let Work::Elsewhere(working) = &mut self.work {
                let worked = ready!(Pin::new(working).poll(cx));
                let (encoder, out) = worked.map_err(io::Error::other)??;
                self.work = encoder.map_or(Work::Ended, Work::Here);
                if !out.is_empty() {
                    return Poll::Ready(Ok(Read::Bytes(out.into())));
                }
            }
            let next = match self.source.poll_next(cx) {
                Poll::Ready(next) => next,
                Poll::Pending if self.owes => {
                    self.owes = false;
                    let out = self.encode(b"", Then::Flush)?;
                    if out.is_empty() {
                        return Poll::Pending;
                    }
                    return Poll::Ready(Ok(Read::Bytes(out)));
                }
                Poll::Pending => return Poll::Pending,
            };
            let out = match next {
                Read::Bytes(bytes) => {
                    let then = if self.is_whole { Then::End } else { Then::More };
                    self.owes = !self.is_whole;
                    if bytes.len() > INLINE {
                        self.encode_elsewhere(bytes, then);
                        continue;
                    }
                    self.encode(&bytes, then)?
                }
                Read::End if matches!(self.work, Work::Ended) => return Poll::Ready(Ok(Read::End)),
                Read::End => self.encode(b"", Then::End)?,
                Read::Broken => return Poll::Ready(Ok(Read::Broken)),
            };
            if !out.is_empty() {
                return Poll::Ready(Ok(Read::Bytes(out)));
            }
        }
    }

    fn encode(&mut self, bytes: &[u8], then: Then) -> io::Result<Bytes> {
        let work = std::mem::replace(&mut self.work, Work::Ended);
        let (encoder, out) = work.encode(bytes, then)?;
        self.work = encoder.map_or(Work::Ended, Work::Here);
        Ok(out.into())
    }

    /// An encoder that does not exist yet is made there: as many wait for a file thread as there
    /// are replies.
    fn encode_elsewhere(&mut self, bytes: Bytes, then: Then) {
        let work = std::mem::replace(&mut self.work, Work::Ended);
        let working = tokio::task::spawn_blocking(move || work.encode(&bytes, then));
        self.work = Work::Elsewhere(working);
    }
}

impl Work {
    /// What comes of some of a body, and the encoder for the rest, if there is one.
    fn encode(self, bytes: &[u8], then: Then) -> io::Result<(Option<Encoder>, Vec<u8>)> {
        let mut encoder = match self {
            Self::Begins(coding, levels) => Encoder::new(coding, levels)?,
            Self::Here(encoder) => encoder,
            Self::Elsewhere(_) | Self::Ended => {
                return Err(io::Error::other("it has no encoder"));
            }
        };
        let out = encoder.encode(bytes, then)?;
        Ok(((then != Then::End).then_some(encoder), out))
    }
}

impl BodySource for Coded {
    fn cost(&self) -> usize {
        match self.work {
            Work::Begins(coding, levels) if !self.is_whole => levels.memory(coding) + FILE_PIECE,
            _ => 0,
        }
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Read> {
        self.poll_encoded(cx).map(|encoded| {
            encoded.unwrap_or_else(|error| {
                tracing::error!(target: "http", "a body can't be compressed: {error}");
                Read::Broken
            })
        })
    }
}

impl std::fmt::Debug for Coded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Coded")
            .field("source", &self.source)
            .finish_non_exhaustive()
    }
}
