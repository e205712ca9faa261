//! Connections that go on in another protocol: what a handler gets after `101 Switching Protocols`.

use std::any::Any;
use std::fmt;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, BytesMut};
use pronghorn_base::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::sync::CancellationToken;

use crate::stream::Stream;

/// Serves an upgraded connection, to its end.
pub type Upgrade = Box<dyn FnOnce(Upgraded) -> BoxFuture<'static, ()> + Send>;

/// A client's connection after the upgrade, from the first byte behind the head of its request on.
///
/// It counts as a connection as before: a stop waits for it within the time that requests have.
/// Whoever serves it asks [`stopping`](Self::stopping) and says goodbye in its own protocol.
pub struct Upgraded {
    stream: Stream,
    /// Bytes that the client sent ahead.
    read: BytesMut,
    stopping: CancellationToken,
    /// While it is there the connection counts.
    _entered: Box<dyn Any + Send>,
}

impl Upgraded {
    pub(crate) fn new(
        stream: Stream,
        read: BytesMut,
        stopping: CancellationToken,
        entered: impl Send + 'static,
    ) -> Self {
        Self {
            stream,
            read,
            stopping,
            _entered: Box::new(entered),
        }
    }

    /// Cancelled when the server drains.
    pub fn stopping(&self) -> CancellationToken {
        self.stopping.clone()
    }
}

impl AsyncRead for Upgraded {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.read.is_empty() {
            return Pin::new(&mut self.stream).poll_read(cx, buffer);
        }
        let len = self.read.len().min(buffer.remaining());
        buffer.put_slice(&self.read[..len]);
        self.read.advance(len);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Upgraded {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl fmt::Debug for Upgraded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Upgraded")
            .field("stream", &self.stream)
            .finish_non_exhaustive()
    }
}
