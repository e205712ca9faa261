//! What lies between `h2` and the socket: frames are counted on their way in, and a client that takes nothing is noticed.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use super::flood::{Flood, Frames};
use crate::stream::Stream;

/// The socket, as `h2` sees it.
pub(super) struct Guard {
    stream: Stream,
    /// What was read before it was known that this is HTTP/2.
    received: BytesMut,
    frames: Frames,
    signs: Arc<Signs>,
}

/// What `h2` does not tell of the socket, which it owns.
#[derive(Debug, Default)]
pub(super) struct Signs {
    flood: std::sync::OnceLock<Flood>,
    /// Whether the last write found no room.
    blocked: AtomicBool,
    written: AtomicU64,
}

impl Signs {
    /// Too many frames of a kind. Nothing more is read then.
    pub(super) fn flood(&self) -> Option<Flood> {
        self.flood.get().copied()
    }

    /// How much was written in all, if more is waiting for room.
    pub(super) fn blocked_at(&self) -> Option<u64> {
        let blocked = self.blocked.load(Ordering::Relaxed);
        blocked.then(|| self.written.load(Ordering::Relaxed))
    }

    fn note(&self, written: &Poll<io::Result<usize>>) {
        self.blocked.store(written.is_pending(), Ordering::Relaxed);
        if let Poll::Ready(Ok(bytes)) = written {
            self.written.fetch_add(*bytes as u64, Ordering::Relaxed);
        }
    }
}

impl Guard {
    pub(super) fn new(stream: Stream, received: BytesMut) -> (Self, Arc<Signs>) {
        let signs = Arc::<Signs>::default();
        let guard = Self {
            stream,
            received,
            frames: Frames::new(Instant::now()),
            signs: signs.clone(),
        };
        (guard, signs)
    }
}

impl AsyncRead for Guard {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.signs.flood().is_some() {
            return Poll::Pending; // the connection's task, which asks, ends it now
        }
        let before = buffer.filled().len();
        if this.received.is_empty() {
            ready!(Pin::new(&mut this.stream).poll_read(cx, buffer))?;
        } else {
            let taken = this.received.len().min(buffer.remaining());
            buffer.put_slice(&this.received[..taken]);
            this.received.advance(taken);
            if this.received.is_empty() {
                this.received = BytesMut::new();
            }
        }
        if let Err(flood) = this.frames.take(&buffer.filled()[before..]) {
            _ = this.signs.flood.set(flood); // the first one is enough
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Guard {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write(cx, bytes);
        this.signs.note(&written);
        written
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write_vectored(cx, parts);
        this.signs.note(&written);
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let flushed = Pin::new(&mut this.stream).poll_flush(cx);
        if flushed.is_pending() {
            this.signs.blocked.store(true, Ordering::Relaxed);
        }
        flushed
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}
