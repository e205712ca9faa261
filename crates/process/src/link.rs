//! The link between a server and the process that takes over from it: messages, and open sockets
//! with them.
//!
//! A pair of unix sockets that keep messages apart. What a message means is the server's business;
//! it must stay the same from release to release, because the two ends may be different ones.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::spawner::{FIRST_OWN, reserve_passed};

/// A longer message is cut: the reason of a failure, the names of sockets.
const LONGEST: usize = 16 << 10;
/// The most that the kernel passes with one message (`SCM_MAX_FD`).
pub const MOST_SOCKETS: usize = 253;

/// One end of the link. The other one is in another process.
#[derive(Debug)]
pub struct Link(OwnedFd);

/// What has come: the text, and the sockets with it.
pub type Message = (String, Vec<OwnedFd>);

impl Link {
    /// Both ends. Neither blocks, and neither is inherited by children by itself.
    pub fn pair() -> io::Result<(Self, Self)> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (one, other) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        Ok((Self(one), Self(other)))
    }

    /// The end that a process was started with, by the descriptor's number. `None` when that is no
    /// such thing: anybody can set a variable.
    pub fn inherited(number: RawFd) -> Option<Self> {
        if number <= 2 {
            return None;
        }
        #[expect(unsafe_code, reason = "naming a descriptor by its number")]
        // SAFETY: looked at for as long as this function runs, at the start of the process, before
        // anything else could have opened or closed it. A number that is not open is an error of
        // the calls below.
        let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
        if rustix::net::sockopt::socket_type(borrowed).ok()? != SocketType::SEQPACKET {
            return None;
        }
        // A duplicate, because whoever passed the number may believe that it stays open.
        let own = rustix::io::fcntl_dupfd_cloexec(borrowed, FIRST_OWN).ok()?;
        #[expect(unsafe_code, reason = "taking over what exec passed on")]
        // SAFETY: a link that was inherited has no other owner in this process.
        drop(unsafe { OwnedFd::from_raw_fd(number) });
        // What comes over the link must not get the numbers at which workers have their pipes.
        reserve_passed().ok()?;
        Some(Self(own))
    }

    /// Sends. There is room for all that the two ever say; a full or a closed link is an error.
    pub fn send(&self, text: &str, sockets: &[BorrowedFd<'_>]) -> io::Result<()> {
        send(self.0.as_fd(), text, sockets)
    }

    /// What is there. `None` when the other end is closed; [`io::ErrorKind::WouldBlock`] when
    /// nothing has come yet.
    pub fn try_receive(&self) -> io::Result<Option<Message>> {
        let mut bytes = vec![0; LONGEST];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_SOCKETS))];
        let mut passed = RecvAncillaryBuffer::new(&mut space);
        let received = recvmsg(
            &self.0,
            &mut [IoSliceMut::new(&mut bytes)],
            &mut passed,
            RecvFlags::CMSG_CLOEXEC,
        )?;
        if received.bytes == 0 {
            return Ok(None);
        }
        bytes.truncate(received.bytes);
        let sockets = passed.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(sockets) => Some(sockets),
            _ => None,
        });
        let sockets = sockets.flatten().collect();
        Ok(Some((
            String::from_utf8_lossy(&bytes).into_owned(),
            sockets,
        )))
    }

    /// Watches this end on the runtime that it is called on.
    pub fn watch(self) -> io::Result<WatchedLink> {
        #[expect(unsafe_code, reason = "the only way that tokio offers")]
        // SAFETY: an `OwnedFd` is open and stays the same file as long as it lives, and it lives as
        // long as the AsyncFd.
        let watched = unsafe { AsyncFd::register_with_interest(self.0, Interest::READABLE) }?;
        Ok(WatchedLink(watched))
    }

    /// For exec in place: the number under which the next program finds this end. Leaves it open
    /// for that program.
    pub fn pass_on(self) -> io::Result<RawFd> {
        use std::os::fd::IntoRawFd;
        rustix::io::fcntl_setfd(&self.0, rustix::io::FdFlags::empty())?;
        Ok(self.0.into_raw_fd())
    }

    pub(crate) fn into_descriptor(self) -> OwnedFd {
        self.0
    }
}

/// An end of the link that can be waited on.
#[derive(Debug)]
pub struct WatchedLink(AsyncFd<OwnedFd>);

impl WatchedLink {
    /// As [`Link::send`].
    pub fn send(&self, text: &str) -> io::Result<()> {
        let sent = rustix::net::send(self.0.get_ref(), text.as_bytes(), SendFlags::NOSIGNAL)?;
        debug_assert_eq!(sent, text.len(), "messages are sent whole");
        Ok(())
    }

    /// The same with open descriptors.
    pub(crate) fn send_with(&self, text: &str, passed: &[BorrowedFd<'_>]) -> io::Result<()> {
        send(self.0.get_ref().as_fd(), text, passed)
    }

    /// Nothing more is sent: the other end sees this one as closed.
    pub fn finish(&self) {
        // It fails where the other end is gone.
        _ = rustix::net::shutdown(self.0.get_ref(), rustix::net::Shutdown::Write);
    }

    /// The next message; `None` when the other end is closed, or its process has ended. Cancel
    /// safe.
    pub async fn receive(&self) -> io::Result<Option<String>> {
        loop {
            let mut ready = self.0.readable().await?;
            let received = ready.try_io(|fd| {
                let mut bytes = vec![0; LONGEST];
                let (length, _) =
                    rustix::net::recv(fd.get_ref().as_fd(), &mut bytes, RecvFlags::empty())?;
                bytes.truncate(length);
                Ok(bytes)
            });
            match received {
                Ok(Ok(bytes)) if bytes.is_empty() => return Ok(None),
                Ok(Ok(bytes)) => return Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
                Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionReset => {
                    return Ok(None);
                }
                Ok(Err(error)) => return Err(error),
                Err(_would_block) => {}
            }
        }
    }
}

fn send(link: BorrowedFd<'_>, text: &str, passed: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_SOCKETS))];
    let mut with = SendAncillaryBuffer::new(&mut space);
    if !passed.is_empty() && !with.push(SendAncillaryMessage::ScmRights(passed)) {
        return Err(io::Error::other(format!(
            "more than {MOST_SOCKETS} sockets can't be passed"
        )));
    }
    let bytes = text.as_bytes();
    let bytes = &bytes[..bytes.len().min(LONGEST)];
    sendmsg(link, &[IoSlice::new(bytes)], &mut with, SendFlags::NOSIGNAL)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn sockets_arrive_with_their_message_and_work() {
        let (ours, theirs) = Link::pair().unwrap();
        assert_eq!(
            theirs.try_receive().unwrap_err().kind(),
            io::ErrorKind::WouldBlock
        );
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        ours.send("one two", &[listener.as_fd(), listener.as_fd()])
            .unwrap();
        drop(listener);
        let (text, sockets) = theirs.try_receive().unwrap().unwrap();
        assert_eq!((text.as_str(), sockets.len()), ("one two", 2));
        let listener = TcpListener::from(sockets.into_iter().next().unwrap());
        let _client = TcpStream::connect(address).unwrap();
        listener.accept().unwrap();
        drop(ours);
        // A child that another test is starting may still hold a copy.
        let until = tokio::time::Instant::now() + std::time::Duration::from_secs(20);
        let end = loop {
            match theirs.try_receive() {
                Err(error)
                    if error.kind() == io::ErrorKind::WouldBlock
                        && tokio::time::Instant::now() < until =>
                {
                    std::thread::yield_now();
                }
                end => break end,
            }
        };
        assert!(end.unwrap().is_none());
    }

    #[test]
    fn too_many_sockets_are_an_error_and_not_a_few_of_them() {
        let (ours, theirs) = Link::pair().unwrap();
        let many = vec![theirs.0.as_fd(); MOST_SOCKETS + 1];
        assert!(ours.send("too many", &many).is_err());
        assert!(ours.send("just enough", &many[1..]).is_ok());
        assert_eq!(theirs.try_receive().unwrap().unwrap().1.len(), MOST_SOCKETS);
    }

    #[tokio::test]
    async fn a_closed_link_ends_the_wait() {
        let (ours, theirs) = Link::pair().unwrap();
        let (ours, theirs) = (ours.watch().unwrap(), theirs.watch().unwrap());
        ours.send("hello").unwrap();
        assert_eq!(theirs.receive().await.unwrap().as_deref(), Some("hello"));
        drop(ours);
        assert_eq!(theirs.receive().await.unwrap(), None);
    }

    #[test]
    fn only_a_link_is_taken_for_one() {
        use std::os::fd::AsRawFd;
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(Link::inherited(file.as_raw_fd()).is_none());
        assert!(Link::inherited(1).is_none());
        assert!(Link::inherited(999_999).is_none());
    }
}
