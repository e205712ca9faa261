//! The socket below TLS, with a limit on what a client sends that comes to nothing.
//!
//! rustls joins the parts of a handshake message, up to 64 KB, before it looks at them, and keeps
//! them as long as the connection lives. Clients have no use for that much: what they send during a
//! handshake is short, and after it each record gives some text.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// Bytes of a handshake: a first message has some hundred of them, two KB with keys that resist
/// quantum computers.
const HANDSHAKE: usize = 16 << 10;
/// The same where clients show certificates: as long as rustls takes them.
const HANDSHAKE_WITH_CERTIFICATES: usize = 64 << 10;
/// Bytes of records without a text: the longest record, 18 KB as rustls takes it (RFC 5246,
/// section 6.2.3), and messages about keys before it. A client may send them right after its
/// handshake, and rustls reads on until one has given its text.
const RECORDS: usize = 20 << 10;

/// A socket below TLS.
#[derive(Debug)]
pub(crate) struct TlsSocket {
    stream: TcpStream,
    /// Bytes that may come before some have given a text, or the end of the handshake.
    left: usize,
}

impl TlsSocket {
    pub(crate) fn new(stream: TcpStream, asks_for_certificates: bool) -> Self {
        let handshake = if asks_for_certificates {
            HANDSHAKE_WITH_CERTIFICATES
        } else {
            HANDSHAKE
        };
        Self {
            stream,
            left: handshake + RECORDS,
        }
    }

    pub(crate) fn socket(&self) -> &TcpStream {
        &self.stream
    }

    /// The bytes so far have given some text, or the end of the handshake.
    pub(crate) fn gave(&mut self) {
        self.left = RECORDS;
    }
}

impl AsyncRead for TlsSocket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.left == 0 {
            let why = "the client sends more of TLS than its messages have";
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, why)));
        }
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
        let read = buffer.filled().len() - before;
        self.left = self.left.saturating_sub(read);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for TlsSocket {
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
