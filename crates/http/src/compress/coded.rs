//! A response's body that is compressed while it is sent.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use tokio::task::JoinHandle;

use super::encoder::{Encoder, Levels, Then};
use crate::coding::Coding;
use crate::message::Body;
use crate::reader::{FILE_PIECE, Reader};
use crate::source::{BodySource, Read};

/// A longer piece is compressed on a file thread: the I/O thread has others to serve, and this much
/// takes it about a millisecond.
pub(super) const INLINE: usize = 32 << 10;

/// A body and the coding that it goes through, piece by piece: what has come is sent, and nothing
/// waits for more.
pub(super) struct Coded {
    source: Reader,
    work: Work,
    /// The encoder holds back some of what it was given.
    owes: bool,
}

enum Work {
    Begins(Coding, Levels),
    Here(Encoder),
    Elsewhere(JoinHandle<io::Result<(Encoder, Vec<u8>)>>),
    Ended,
}

impl Coded {
    pub(super) fn new(body: Body, coding: Coding, levels: Levels) -> Self {
        Self {
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
                self.work = Work::Here(encoder);
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
                    self.owes = true;
                    if bytes.len() > INLINE {
                        self.encode_elsewhere(bytes)?;
                        continue;
                    }
                    self.encode(&bytes, Then::More)?
                }
                Read::End if matches!(self.work, Work::Ended) => return Poll::Ready(Ok(Read::End)),
                Read::End => {
                    let out = self.encode(b"", Then::End)?;
                    self.work = Work::Ended;
                    out
                }
                Read::Broken => return Poll::Ready(Ok(Read::Broken)),
            };
            if !out.is_empty() {
                return Poll::Ready(Ok(Read::Bytes(out)));
            }
        }
    }

    fn encode(&mut self, bytes: &[u8], then: Then) -> io::Result<Bytes> {
        let mut encoder = self.encoder()?;
        let out = encoder.encode(bytes, then)?;
        self.work = Work::Here(encoder);
        Ok(out.into())
    }

    fn encode_elsewhere(&mut self, bytes: Bytes) -> io::Result<()> {
        let mut encoder = self.encoder()?;
        self.work = Work::Elsewhere(tokio::task::spawn_blocking(move || {
            let out = encoder.encode(&bytes, Then::More)?;
            Ok((encoder, out))
        }));
        Ok(())
    }

    fn encoder(&mut self) -> io::Result<Encoder> {
        match std::mem::replace(&mut self.work, Work::Ended) {
            Work::Begins(coding, levels) => Encoder::new(coding, levels),
            Work::Here(encoder) => Ok(encoder),
            Work::Elsewhere(_) | Work::Ended => Err(io::Error::other("it has no encoder")),
        }
    }
}

impl BodySource for Coded {
    fn cost(&self) -> usize {
        match self.work {
            Work::Begins(coding, levels) => levels.memory(coding) + FILE_PIECE,
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
