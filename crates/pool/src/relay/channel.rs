//! The bytes between server and worker: a socket, or two pipes.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::unix::pipe;
use tokio::net::{TcpStream, UnixStream};

/// A connection to a worker, on the runtime it was made on.
#[derive(Debug)]
pub(crate) enum Channel {
    Unix(UnixStream),
    Tcp(TcpStream),
    Pipes {
        read: pipe::Receiver,
        write: pipe::Sender,
    },
}

/// The same between two runtimes.
#[derive(Debug)]
pub(crate) enum Detached {
    Unix(std::os::unix::net::UnixStream),
    Tcp(std::net::TcpStream),
    Pipes { read: OwnedFd, write: OwnedFd },
}

impl Channel {
    pub(crate) fn detach(self) -> io::Result<Detached> {
        Ok(match self {
            Self::Unix(stream) => Detached::Unix(stream.into_std()?),
            Self::Tcp(stream) => Detached::Tcp(stream.into_std()?),
            Self::Pipes { read, write } => Detached::Pipes {
                read: read.into_nonblocking_fd()?,
                write: write.into_nonblocking_fd()?,
            },
        })
    }

    pub(crate) fn attach(channel: Detached) -> io::Result<Self> {
        Ok(match channel {
            Detached::Unix(stream) => Self::Unix(UnixStream::from_std(stream)?),
            Detached::Tcp(stream) => Self::Tcp(TcpStream::from_std(stream)?),
            Detached::Pipes { read, write } => Self::Pipes {
                read: pipe::Receiver::from_owned_fd(read)?,
                write: pipe::Sender::from_owned_fd(write)?,
            },
        })
    }

    /// What is there right now, whatever the runtime knows. For a worker that has ended: its last bytes are in the
    /// buffer before its end is known, but perhaps not yet their event.
    pub(crate) fn read_now(&self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::read(self.read_fd(), buffer)?)
    }

    /// The process that connected, where the kernel tells that: over unix sockets.
    pub(crate) fn peer(&self) -> Option<u32> {
        match self {
            Self::Unix(stream) => u32::try_from(stream.peer_cred().ok()?.pid()?).ok(),
            Self::Tcp(_) | Self::Pipes { .. } => None,
        }
    }

    /// How much of what was sent the worker has not read, where the kernel tells that: of pipes.
    pub(crate) fn unread(&self) -> Option<u64> {
        match self {
            Self::Unix(_) | Self::Tcp(_) => None,
            Self::Pipes { write, .. } => rustix::io::ioctl_fionread(write).ok(),
        }
    }

    fn read_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix(stream) => stream.as_fd(),
            Self::Tcp(stream) => stream.as_fd(),
            Self::Pipes { read, .. } => read.as_fd(),
        }
    }
}

impl AsyncRead for Channel {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Unix(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Tcp(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Pipes { read, .. } => Pin::new(read).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Channel {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Unix(stream) => Pin::new(stream).poll_write(cx, buf),
            Self::Tcp(stream) => Pin::new(stream).poll_write(cx, buf),
            Self::Pipes { write, .. } => Pin::new(write).poll_write(cx, buf),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Unix(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Self::Tcp(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Self::Pipes { write, .. } => Pin::new(write).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
