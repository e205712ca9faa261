//! A connection to a server, by HTTP/1.1 or HTTP/2.

use std::io;
use std::time::Duration;

use hyper::client::conn::{http1, http2};
use hyper::{Request, Response, body::Incoming};
use hyper_util::rt::{TokioExecutor, TokioIo};
use pronghorn_client::Tls;
use pronghorn_serve::{Peer, PeerAddress};
use socket2::{SockRef, TcpKeepalive};
use std::net::SocketAddr;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::address::{Destination, ServerAddress};
use crate::error::UpstreamError;
use crate::request_body::RequestBody;

/// Bytes that are read ahead of a response, and written ahead of a request. A head must fit in.
pub(crate) const BUFFER: usize = SHORT_BUFFER as usize;

/// Bytes that are read at a time. More would make long responses hardly cheaper, and slow clients
/// keep several pieces.
const PIECE: usize = 32 << 10;

/// The same number as HTTP/2 takes it.
const SHORT_BUFFER: u32 = 64 << 10;

/// A server that is gone without a word is noticed by a tunnel after as long.
const KEEP_ALIVE: Duration = Duration::from_mins(1);

/// One connection, which carries one request at a time, by HTTP/2 as well: the responses of one
/// connection share its window, so that a client that reads nothing would stop those of others.
/// Dropped, it is closed.
pub(crate) struct Connection {
    sender: Sender,
    /// Carries the bytes.
    _driver: JoinSet<()>,
    /// When the last response over it was whole.
    pub(crate) used: Instant,
}

enum Sender {
    Http1(http1::SendRequest<RequestBody>),
    Http2(http2::SendRequest<RequestBody>),
}

/// Why a request got no head of a response.
pub(crate) struct Unanswered {
    /// Nothing of it was sent.
    pub(crate) is_unsent: bool,
    pub(crate) error: hyper::Error,
}

impl Connection {
    /// Connects. `proxied` is the client whom the server is told of before all else.
    pub(crate) async fn open(
        to: &ServerAddress,
        tls: &Tls,
        proxied: Option<&Peer>,
    ) -> Result<Self, UpstreamError> {
        match &to.place {
            Destination::Unix(path) => {
                let mut stream = UnixStream::connect(path)
                    .await
                    .map_err(UpstreamError::Connect)?;
                introduce(&mut stream, proxied).await?;
                Self::over(stream, to.is_http2).await
            }
            Destination::Host(origin) => {
                let address = (origin.host(), origin.port());
                let stream = TcpStream::connect(address).await;
                let mut stream = stream.map_err(UpstreamError::Connect)?;
                // Without these, it is only slower, and longer.
                _ = stream.set_nodelay(true);
                let keep_alive = TcpKeepalive::new().with_time(KEEP_ALIVE);
                _ = SockRef::from(&stream).set_tcp_keepalive(&keep_alive);
                introduce(&mut stream, proxied).await?;
                if origin.is_tls() {
                    let stream = tls.encrypt(origin.host(), stream).await;
                    return Self::over(stream.map_err(UpstreamError::Tls)?, false).await;
                }
                Self::over(stream, to.is_http2).await
            }
        }
    }

    async fn over<S>(stream: S, is_http2: bool) -> Result<Self, UpstreamError>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let io = TokioIo::new(stream);
        let mut driver = JoinSet::new();
        // Who sends a request hears of the connection's end.
        let sender = if is_http2 {
            let shaking = http2::Builder::new(TokioExecutor::new())
                .initial_stream_window_size(SHORT_BUFFER)
                .max_header_list_size(SHORT_BUFFER)
                .handshake(io);
            let (sender, connection) = shaking.await.map_err(UpstreamError::Http)?;
            driver.spawn(async { _ = connection.await });
            Sender::Http2(sender)
        } else {
            let shaking = http1::Builder::new()
                .max_buf_size(BUFFER)
                .read_buf_exact_size(Some(PIECE))
                .handshake(io);
            let (sender, connection) = shaking.await.map_err(UpstreamError::Http)?;
            driver.spawn(async { _ = connection.with_upgrades().await });
            Sender::Http1(sender)
        };
        Ok(Self {
            sender,
            _driver: driver,
            used: Instant::now(),
        })
    }

    pub(crate) fn is_open(&self) -> bool {
        match &self.sender {
            Sender::Http1(sender) => !sender.is_closed(),
            Sender::Http2(sender) => !sender.is_closed(),
        }
    }

    /// Sends a request, and reads the head of its response.
    pub(crate) async fn send(
        &mut self,
        request: Request<RequestBody>,
    ) -> Result<Response<Incoming>, Unanswered> {
        let before = |error| Unanswered {
            is_unsent: true,
            error,
        };
        let answered = match &mut self.sender {
            Sender::Http1(sender) => {
                sender.ready().await.map_err(before)?;
                sender.try_send_request(request).await
            }
            Sender::Http2(sender) => {
                sender.ready().await.map_err(before)?;
                sender.try_send_request(request).await
            }
        };
        answered.map_err(|mut error| Unanswered {
            is_unsent: error.take_message().is_some(),
            error: error.into_error(),
        })
    }
}

/// Writes the header of the PROXY protocol, version 1.
async fn introduce(
    stream: &mut (impl AsyncWrite + Unpin),
    client: Option<&Peer>,
) -> Result<(), UpstreamError> {
    let Some(client) = client else {
        return Ok(());
    };
    let written = stream.write_all(introduction(client).as_bytes()).await;
    written.map_err(|error: io::Error| UpstreamError::Connect(error))
}

fn introduction(client: &Peer) -> String {
    match (client.address, client.server) {
        (PeerAddress::Ip(from), Some(to)) => {
            let canonical = |at: SocketAddr| SocketAddr::new(at.ip().to_canonical(), at.port());
            let (from, to) = (canonical(from), canonical(to));
            let family = match (from, to) {
                (SocketAddr::V4(_), SocketAddr::V4(_)) => "TCP4",
                (SocketAddr::V6(_), SocketAddr::V6(_)) => "TCP6",
                _ => return "PROXY UNKNOWN\r\n".to_owned(),
            };
            format!(
                "PROXY {family} {} {} {} {}\r\n",
                from.ip(),
                to.ip(),
                from.port(),
                to.port()
            )
        }
        _ => "PROXY UNKNOWN\r\n".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_introduced() {
        let peer = |from: &str, to: &str| {
            let server = to.parse().ok();
            Peer::new(PeerAddress::Ip(from.parse().unwrap()), false, server)
        };
        for (from, to, told) in [
            (
                "192.0.2.1:5",
                "192.0.2.2:80",
                "PROXY TCP4 192.0.2.1 192.0.2.2 5 80\r\n",
            ),
            (
                "[::ffff:192.0.2.1]:5",
                "192.0.2.2:80",
                "PROXY TCP4 192.0.2.1 192.0.2.2 5 80\r\n",
            ),
            (
                "[2001:db8::1]:5",
                "[::1]:80",
                "PROXY TCP6 2001:db8::1 ::1 5 80\r\n",
            ),
            ("[2001:db8::1]:5", "192.0.2.2:80", "PROXY UNKNOWN\r\n"),
            ("192.0.2.1:5", "", "PROXY UNKNOWN\r\n"),
        ] {
            assert_eq!(introduction(&peer(from, to)), told);
        }
        let local = Peer::new(PeerAddress::Unix, false, None);
        assert_eq!(introduction(&local), "PROXY UNKNOWN\r\n");
    }
}
