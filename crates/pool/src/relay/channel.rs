//! The bytes between server and worker: a socket, two pipes, or shared memory.

use std::io::{self, IoSlice};
use std::ops::RangeInclusive;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use pronghorn_ring::layout::UP;
use pronghorn_ring::{Link, Loan, StackLayout};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::unix::pipe;
use tokio::net::{TcpStream, UnixStream};

use super::incoming::WHOLE;

/// A connection to a worker, on the runtime it was made on.
#[derive(Debug)]
pub enum Channel {
    Unix(UnixStream),
    Tcp(TcpStream),
    Pipes {
        read: pipe::Receiver,
        write: pipe::Sender,
    },
    Ring {
        link: Link,
        /// Closed, they tell the worker that the server is gone.
        _pipes: Box<(OwnedFd, OwnedFd)>,
    },
}

/// The same between two runtimes.
#[derive(Debug)]
pub enum Detached {
    Unix(std::os::unix::net::UnixStream),
    Tcp(std::net::TcpStream),
    Pipes {
        read: OwnedFd,
        write: OwnedFd,
    },
    Ring {
        memory: Arc<pronghorn_ring::SharedMemory>,
        read: OwnedFd,
        write: OwnedFd,
    },
}

impl Channel {
    pub fn detach(self) -> io::Result<Detached> {
        Ok(match self {
            Self::Unix(stream) => Detached::Unix(stream.into_std()?),
            Self::Tcp(stream) => Detached::Tcp(stream.into_std()?),
            Self::Pipes { read, write } => Detached::Pipes {
                read: read.into_nonblocking_fd()?,
                write: write.into_nonblocking_fd()?,
            },
            Self::Ring { .. } => return Err(io::ErrorKind::Unsupported.into()),
        })
    }

    pub fn attach(channel: Detached) -> io::Result<Self> {
        Ok(match channel {
            Detached::Unix(stream) => Self::Unix(UnixStream::from_std(stream)?),
            Detached::Tcp(stream) => Self::Tcp(TcpStream::from_std(stream)?),
            Detached::Pipes { read, write } => Self::Pipes {
                read: pipe::Receiver::from_owned_fd(read)?,
                write: pipe::Sender::from_owned_fd(write)?,
            },
            Detached::Ring {
                memory,
                read,
                write,
            } => Self::Ring {
                link: Link::new(memory),
                _pipes: Box::new((read, write)),
            },
        })
    }

    /// What is there right now, whatever the runtime knows. For a worker that has ended: its last
    /// bytes are in the buffer before its end is known, but perhaps not yet their event.
    pub fn read_now(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = match self {
            Self::Unix(stream) => rustix::io::read(stream, buffer),
            Self::Tcp(stream) => rustix::io::read(stream, buffer),
            Self::Pipes { read, .. } => rustix::io::read(read, buffer),
            Self::Ring { link, .. } => {
                let mut buffer = ReadBuf::new(buffer);
                link.read_now(&mut buffer)?;
                return Ok(buffer.filled().len());
            }
        };
        Ok(read?)
    }

    /// Ends a socket for the worker too, whoever else holds it.
    pub fn hang_up(&self) {
        use rustix::net::{Shutdown, shutdown};
        // One that is closed already needs none of it.
        _ = match self {
            Self::Unix(stream) => shutdown(stream, Shutdown::Both),
            Self::Tcp(stream) => shutdown(stream, Shutdown::Both),
            Self::Pipes { .. } | Self::Ring { .. } => Ok(()),
        };
    }

    /// The process that connected, where the kernel tells that: over unix sockets.
    pub fn peer(&self) -> Option<u32> {
        match self {
            Self::Unix(stream) => u32::try_from(stream.peer_cred().ok()?.pid()?).ok(),
            Self::Tcp(_) | Self::Pipes { .. } | Self::Ring { .. } => None,
        }
    }

    /// Where the worker says that PHP's stack is.
    pub(crate) fn stack_layout(&self) -> Option<Box<StackLayout>> {
        match self {
            Self::Ring { link, .. } => link.stack_layout().map(Box::new),
            Self::Unix(_) | Self::Tcp(_) | Self::Pipes { .. } => None,
        }
    }

    /// What the worker's thread had taken of a processor when it began this call, where it tells.
    pub(crate) fn cpu_before(&self, call: u32) -> Option<Duration> {
        match self {
            Self::Ring { link, .. } => link.cpu_before(call),
            Self::Unix(_) | Self::Tcp(_) | Self::Pipes { .. } => None,
        }
    }

    /// How much of what was sent the worker has not read, where the kernel tells that: of pipes.
    fn unread(&self) -> Option<u64> {
        match self {
            Self::Unix(_) | Self::Tcp(_) => None,
            Self::Pipes { write, .. } => rustix::io::ioctl_fionread(write).ok(),
            Self::Ring { link, .. } => link.unread(),
        }
    }
}

/// Shared memory alone can do this: calls that the worker has not begun are told from others, and
/// taken back.
impl Channel {
    /// Whether a worker can be given calls ahead.
    pub(crate) fn can_prefetch(&self) -> bool {
        matches!(self, Self::Ring { .. })
    }

    /// A call is about to be written.
    pub(crate) fn offer(&self, number: u32) {
        if let Self::Ring { link, .. } = self {
            link.offer(number);
        }
    }

    /// True: the worker will pass the call over.
    pub(crate) fn take_back(&self, number: u32) -> bool {
        matches!(self, Self::Ring { link, .. } if link.take_back(number))
    }

    /// With how many calls that it has not begun the worker need not wake this thread for a reply;
    /// 0: it does for each.
    pub(crate) fn set_wakeup_threshold(&mut self, calls: u32) {
        if let Self::Ring { link, .. } = self {
            link.set_wakeup_threshold(calls);
        }
    }

    /// Says whether the worker's calls are so quick that it does well at the processor of this
    /// thread.
    pub(crate) fn set_fast_calls(&mut self, quick: bool) {
        if let Self::Ring { link, .. } = self {
            link.set_fast_calls(quick);
        }
    }

    /// Whether the worker has not begun a call, as far as it can be told: `since` are the bytes
    /// written since its first one.
    pub(crate) fn has_not_begun(&self, number: u32, since: u64) -> bool {
        match self {
            // Both words have to say so: a worker that writes over its memory hardly makes them
            // fit.
            Self::Ring { link, .. } => {
                link.is_offered(number) && link.unread().is_some_and(|unread| unread >= since)
            }
            Self::Unix(_) | Self::Tcp(_) | Self::Pipes { .. } => self.unread() == Some(since),
        }
    }

    /// Writes all of it if that needs no waiting. False: nothing was written.
    pub(crate) fn write_whole(&mut self, parts: &[IoSlice<'_>]) -> io::Result<bool> {
        match self {
            Self::Ring { link, .. } => link.write_whole(parts),
            Self::Unix(_) | Self::Tcp(_) | Self::Pipes { .. } => Ok(false),
        }
    }

    /// The start of what comes next, where at least so many bytes can be read at once.
    pub(crate) fn peek<const N: usize>(&self, of_at_least: usize) -> Option<[u8; N]> {
        match self {
            Self::Ring { link, .. } => link.peek(of_at_least),
            Self::Unix(_) | Self::Tcp(_) | Self::Pipes { .. } => None,
        }
    }

    /// The next bytes, copied, and a loan of those behind them, where that can be had.
    pub fn borrow(&mut self, head: usize, body: RangeInclusive<usize>) -> Option<(Vec<u8>, Loan)> {
        match self {
            Self::Ring { link, .. } => link.borrow(head, body),
            Self::Unix(_) | Self::Tcp(_) | Self::Pipes { .. } => None,
        }
    }

    /// The longest frame that is worth waiting for: of one that shared memory can't hold, parts can
    /// be borrowed.
    pub(crate) fn most_whole(&self) -> usize {
        match self {
            Self::Ring { .. } => UP,
            Self::Unix(_) | Self::Tcp(_) | Self::Pipes { .. } => WHOLE,
        }
    }

    /// Wakes a worker that sleeps now, and not with others a little later. A socket and pipes do
    /// that with each write.
    pub(crate) fn wake(&self) {
        if let Self::Ring { link, .. } = self {
            link.wake();
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
            Self::Ring { link, .. } => Pin::new(link).poll_read(cx, buf),
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
            Self::Ring { link, .. } => Pin::new(link).poll_write(cx, buf),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Unix(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Self::Tcp(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Self::Pipes { write, .. } => Pin::new(write).poll_write_vectored(cx, bufs),
            Self::Ring { link, .. } => Pin::new(link).poll_write_vectored(cx, bufs),
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
