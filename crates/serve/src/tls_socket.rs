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
/// Bytes after the handshake without a text: the longest record (RFC 8446, section 5.2), and
/// messages about keys before it.
const RECORDS: usize = 20 << 10;

/// A socket below TLS.
#[derive(Debug)]
pub(crate) struct TlsSocket {
    stream: TcpStream,
    /// Bytes that came and gave no text yet.
    fruitless: usize,
    most: usize,
}

impl TlsSocket {
    pub(crate) fn new(stream: TcpStream, asks_for_certificates: bool) -> Self {
        Self {
            stream,
            fruitless: 0,
            most: if asks_for_certificates {
                HANDSHAKE_WITH_CERTIFICATES
            } else {
                HANDSHAKE
            },
        }
    }

    pub(crate) fn socket(&self) -> &TcpStream {
        &self.stream
    }

    /// The bytes so far have given some text, or the end of the handshake.
    pub(crate) fn gave(&mut self) {
        self.fruitless = 0;
        self.most = RECORDS;
    }
}

impl AsyncRead for TlsSocket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
        self.fruitless += buffer.filled().len() - before;
        if self.fruitless > self.most {
            let why = "the client sends more of TLS than its messages have";
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, why)));
        }
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
