//! Whether a client has left whose bytes are not read.

use std::future::Future;
use std::io;
use std::net::TcpStream as StdTcpStream;
use std::os::fd::BorrowedFd;
use std::pin::pin;
use std::task::{Context, Poll, ready};

use rustix::net::sockopt::socket_error;
use tokio::io::Interest;
use tokio::net::TcpStream;

/// Waits for the end of what a client sends, while bytes before it lie unread in the kernel.
///
/// The kernel is asked through a descriptor of its own: to wait for more than what is there, the
/// runtime has to forget that there is something, and the connection must not. An end that waits in
/// the client's own kernel, because this one takes no more bytes, is not seen.
#[derive(Debug)]
pub(crate) struct EndWatch(TcpStream);

impl EndWatch {
    /// Watches a stream socket; one that is not of TCP, too: nothing is asked but its readiness.
    pub(crate) fn new(socket: BorrowedFd<'_>) -> io::Result<Self> {
        let socket = socket.try_clone_to_owned()?;
        TcpStream::from_std(StdTcpStream::from(socket)).map(Self)
    }

    /// Ready when the client has closed its sending side; with an error, when the connection is
    /// broken.
    pub(crate) fn poll_ended(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(self.0.poll_read_ready(cx))?;
            let ready = ready!(pin!(self.0.ready(Interest::READABLE)).poll(cx))?;
            if ready.is_read_closed() {
                return Poll::Ready(socket_error(&self.0)?.map_err(Into::into));
            }
            // More of what is not read: the next event is waited for.
            let forgotten = || Err::<(), _>(io::ErrorKind::WouldBlock.into());
            _ = self.0.try_io(Interest::READABLE, forgotten);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::os::fd::AsFd;
    use std::time::Duration;

    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpListener;
    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn an_end_is_seen_behind_bytes_that_nobody_reads() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        for is_reset in [false, true] {
            let theirs = TcpStream::connect(listener.local_addr().unwrap());
            let (mut theirs, ours) = (theirs.await.unwrap(), listener.accept().await.unwrap().0);
            theirs.write_all(b"one").await.unwrap();
            ours.readable().await.unwrap();
            let watch = EndWatch::new(ours.as_fd()).unwrap();
            let soon = timeout(
                Duration::from_millis(50),
                poll_fn(|cx| watch.poll_ended(cx)),
            );
            assert!(soon.await.is_err(), "it sends");
            theirs.write_all(b"two").await.unwrap();
            if is_reset {
                theirs.set_zero_linger().unwrap();
            }
            drop(theirs);
            let ended = poll_fn(|cx| watch.poll_ended(cx)).await;
            assert_eq!(ended.is_err(), is_reset, "{ended:?}");
        }
    }
}
