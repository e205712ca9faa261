//! From an accepted socket to the protocol that its client speaks.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::BytesMut;
use socket2::SockRef;
use tokio::net::{TcpStream, UnixStream};

use crate::client_stream::ClientStream;
use crate::connection::Http1;
use crate::http2;
use crate::message::Peer;
use crate::service::Entered;
use crate::stream::Stream;
use crate::tls::{Accepted, Tls, chose_http2};

/// The congestion control without timers that every kernel has and lets everybody use (tcp(7)).
pub(crate) const UNPACED: &[u8] = b"reno";

/// A connection that was accepted, with nothing read from it.
pub(crate) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    /// Where the client connected to.
    pub(crate) fn server(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(stream) => stream.local_addr().ok(),
            Self::Unix(_) => None,
        }
    }

    /// Sends as much as the client has room for, also where the host's congestion control would
    /// space it.
    pub(crate) fn send_unpaced(&self) {
        if let Self::Tcp(stream) = self {
            _ = SockRef::from(stream).set_tcp_congestion(UNPACED); // with timers it is slower, not wrong
        }
    }

    /// Takes it from one runtime to the one that this is called on: a socket belongs to that which
    /// it was registered with.
    pub(crate) fn detach(self) -> io::Result<Detached> {
        Ok(match self {
            Self::Tcp(stream) => Detached::Tcp(stream.into_std()?),
            Self::Unix(stream) => Detached::Unix(stream.into_std()?),
        })
    }
}

/// A [`Socket`] between two runtimes.
pub(crate) enum Detached {
    Tcp(std::net::TcpStream),
    Unix(std::os::unix::net::UnixStream),
}

impl Detached {
    /// Must be called on the new runtime.
    pub(crate) fn attach(self) -> io::Result<Socket> {
        Ok(match self {
            Self::Tcp(stream) => Socket::Tcp(TcpStream::from_std(stream)?),
            Self::Unix(stream) => Socket::Unix(UnixStream::from_std(stream)?),
        })
    }
}

/// Serves a connection to its end.
///
/// What only some connections need is behind a pointer: all that are idle pay for this future's
/// size.
pub(crate) async fn serve(socket: Socket, tls: Option<Tls>, peer: Arc<Peer>, entered: Entered) {
    let (stream, peer) = match (socket, tls) {
        (Socket::Tcp(stream), None) => (Stream::Tcp(stream), peer),
        (Socket::Unix(stream), _) => (Stream::Unix(stream), peer),
        (Socket::Tcp(stream), Some(tls)) => {
            let accepted = Box::pin(async {
                tokio::select! {
                    accepted = tls.accept(stream, &peer) => accepted,
                    () = entered.ended() => Accepted::Gone,
                }
            });
            let accepted = accepted.await;
            if let Some(counted) = &entered.service().counted {
                match accepted {
                    Accepted::Tls(_) => counted.handshakes.done.increment(),
                    Accepted::Text(_) => counted.handshakes.text.increment(),
                    Accepted::Gone => counted.handshakes.failed.increment(),
                }
            }
            let stream = match accepted {
                Accepted::Tls(stream) => stream,
                Accepted::Text(_) if entered.service().streams.is_some() => return,
                Accepted::Text(stream) => {
                    let peer = Arc::new(Peer::new(peer.address, false, peer.server));
                    let http1 = Http1::new(Stream::Tcp(stream), peer, entered).without_tls();
                    Box::new(http1).run().await; // HTTP/2 does not begin on it
                    return;
                }
                Accepted::Gone => return,
            };
            let certificate = tls.certificate(&stream);
            let peer = match certificate {
                Some(certificate) => Arc::new(peer.certified(certificate)),
                None => peer,
            };
            if entered.service().streams.is_none() && chose_http2(&stream) {
                let stream = Stream::Tls(stream);
                return Box::pin(http2::serve(stream, BytesMut::new(), peer, entered)).await;
            }
            (Stream::Tls(stream), peer)
        }
    };
    if let Some(streams) = entered.service().streams.clone() {
        // Its handler says when it is waited for.
        entered.place().busy();
        let client = ClientStream::new(stream, peer, Box::new(entered));
        return streams.serve(client).await;
    }
    // In a place of its own: a future holds what it takes by value twice.
    let http1 = Box::new(Http1::new(stream, peer, entered));
    if let Some(begun) = http1.run().await {
        let serve = http2::serve(begun.stream, begun.received, begun.peer, begun.entered);
        Box::pin(serve).await;
    }
}
