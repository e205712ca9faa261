//! Connections that speak no HTTP: bytes both ways, for a service with a protocol of its own.
//!
//! They come by the same listeners, with the same TLS, PROXY protocol and limits, as those of HTTP.

use std::fmt;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use pronghorn_base::BoxFuture;
use pronghorn_pool::SpoolClient;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::message::Peer;
use crate::stream::Stream;

/// Serves connections, each to its end.
pub trait StreamHandler: Send + Sync + 'static {
    /// Takes a connection of which nothing was read yet, or nothing behind what a proxy or TLS has
    /// to say.
    fn serve(self: Arc<Self>, client: ClientStream) -> BoxFuture<'static, ()>;

    /// The longest silence at the beginning of a connection. A PROXY header has to come within it,
    /// where it is less than the time of that.
    fn first_byte_timeout(&self) -> Option<Duration> {
        None
    }
}

/// Why a connection is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CutFor {
    /// Clients hold too much memory, and this one the most.
    Memory,
    /// Another client, where there are as many connections as there may be.
    Room,
}

/// The place of a connection among those of its service.
pub(crate) trait StreamPlace: Send + Sync {
    fn stopping(&self) -> &CancellationToken;

    fn poll_cut(&self, cx: &Context<'_>) -> Poll<CutFor>;

    fn waits(&self, since: Instant);

    fn moves(&self);

    fn busy(&self);

    fn keeps(&self, peer: &Peer, bytes: usize);

    fn spool_client(&self, peer: &Peer) -> Arc<dyn SpoolClient>;
}

/// A client's connection. It counts until it is dropped.
pub struct ClientStream {
    /// None once it is closed.
    stream: Option<Stream>,
    peer: Arc<Peer>,
    place: Box<dyn StreamPlace>,
}

impl ClientStream {
    pub(crate) fn new(stream: Stream, peer: Arc<Peer>, place: Box<dyn StreamPlace>) -> Self {
        Self {
            stream: Some(stream),
            peer,
            place,
        }
    }

    /// Who has connected.
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// Cancelled when the service drains.
    pub fn stopping(&self) -> &CancellationToken {
        self.place.stopping()
    }

    /// Ready when the connection is to end. It is asked by one task.
    pub fn poll_cut(&self, cx: &Context<'_>) -> Poll<CutFor> {
        self.place.poll_cut(cx)
    }

    /// The client has been waited for since this moment: after a second, the connection may have to
    /// end for another one, if its address has the most of such.
    pub fn waits(&self, since: Instant) {
        self.place.waits(since);
    }

    /// The client has done something, and is waited for no longer.
    pub fn moves(&self) {
        self.place.moves();
    }

    /// A call is under way: the connection stays, also one that was to end for another one.
    pub fn busy(&self) {
        self.place.busy();
    }

    /// So many bytes are held for it from now on.
    pub fn keeps(&self, bytes: usize) {
        self.place.keeps(&self.peer, bytes);
    }

    /// For files that are kept for this client.
    pub fn spool_client(&self) -> Arc<dyn SpoolClient> {
        self.place.spool_client(&self.peer)
    }

    /// Ready when there may be something to read. Needs no buffer to read into.
    pub fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &self.stream {
            Some(stream) => stream.poll_read_ready(cx),
            None => Poll::Ready(Err(closed())),
        }
    }

    /// Closes it at once. The connection still counts.
    pub fn close(&mut self) {
        self.stream = None;
    }

    fn stream(&mut self) -> io::Result<Pin<&mut Stream>> {
        self.stream.as_mut().map(Pin::new).ok_or_else(closed)
    }
}

fn closed() -> io::Error {
    io::ErrorKind::NotConnected.into()
}

impl AsyncRead for ClientStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.stream()?.poll_read(cx, buffer)
    }
}

impl AsyncWrite for ClientStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.stream()?.poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.stream()?.poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream()?.poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream()?.poll_shutdown(cx)
    }
}

impl fmt::Debug for ClientStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientStream")
            .field("peer", &self.peer.address)
            .finish_non_exhaustive()
    }
}
