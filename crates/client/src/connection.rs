//! One connection, by HTTP/1 or HTTP/2, and one request at a time over it.

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http1, http2};
use hyper::header::HeaderMap;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use pronghorn_base::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::error::ClientError;
use crate::origin::Origin;
use crate::tls::Tls;

/// The smallest buffer that a head of HTTP/1 can be read into.
const SMALLEST_HEAD: usize = 8 << 10;

/// The longest answer that is read, in bytes. A longer one is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The status and the header fields. HTTP/1 takes less than 8 KiB for 8 KiB.
    pub head: usize,
    pub body: usize,
}

/// The protocol that is spoken. The peer has no choice: with TLS it has to agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    Http1,
    Http2,
}

/// An answer, whole.
#[derive(Debug)]
pub struct Reply {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub trailers: HeaderMap,
    pub body: Bytes,
}

pub(crate) type Sent = Request<Full<Bytes>>;

/// Why a request was not answered.
pub(crate) struct Unanswered {
    /// The request, where nothing of it was sent.
    pub(crate) unsent: Option<Sent>,
    pub(crate) error: ClientError,
}

pub(crate) struct Connection {
    sender: Sender,
    /// Carries the bytes, and ends with the connection.
    _driver: JoinSet<()>,
    /// When the last answer over it was whole.
    pub(crate) used: Instant,
}

enum Sender {
    Http1(http1::SendRequest<Full<Bytes>>),
    Http2(http2::SendRequest<Full<Bytes>>),
}

impl Connection {
    pub(crate) async fn open(
        origin: &Origin,
        tls: &Tls,
        protocol: Protocol,
        limits: Limits,
    ) -> Result<Self, ClientError> {
        let address = (origin.host(), origin.port());
        let stream = TcpStream::connect(address).await;
        let stream = stream.map_err(ClientError::Connect)?;
        _ = stream.set_nodelay(true); // without it, it is only slower
        if !origin.is_tls() {
            return Self::over(stream, protocol, limits).await;
        }
        let name: &[u8] = match protocol {
            Protocol::Http1 => b"http/1.1",
            Protocol::Http2 => b"h2",
        };
        let stream = tls.encrypt_for(&[name], origin.host(), stream).await?;
        Self::over(stream, protocol, limits).await
    }

    async fn over<S>(stream: S, protocol: Protocol, limits: Limits) -> Result<Self, ClientError>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let io = TokioIo::new(stream);
        let (sender, driver): (_, BoxFuture<'static, ()>) = match protocol {
            Protocol::Http1 => {
                let shaking = http1::Builder::new()
                    .max_buf_size(limits.head.max(SMALLEST_HEAD))
                    .handshake(io);
                let (sender, driver) = shaking.await.map_err(ClientError::Http)?;
                // Whoever sends hears of its end.
                (Sender::Http1(sender), Box::pin(async { _ = driver.await }))
            }
            Protocol::Http2 => {
                let longest = u32::try_from(limits.head).unwrap_or(u32::MAX);
                // The tasks that it starts end with the connection.
                let shaking = http2::Builder::new(TokioExecutor::new())
                    .max_header_list_size(longest)
                    .handshake(io);
                let (sender, driver) = shaking.await.map_err(ClientError::Http)?;
                (Sender::Http2(sender), Box::pin(async { _ = driver.await }))
            }
        };
        let mut tasks = JoinSet::new();
        tasks.spawn(driver);
        Ok(Self {
            sender,
            _driver: tasks,
            used: Instant::now(),
        })
    }

    pub(crate) fn is_open(&self) -> bool {
        match &self.sender {
            Sender::Http1(sender) => !sender.is_closed(),
            Sender::Http2(sender) => !sender.is_closed(),
        }
    }

    /// Sends a request, and reads the head of its answer.
    pub(crate) async fn send(&mut self, request: Sent) -> Result<Response<Incoming>, Unanswered> {
        let answered = match &mut self.sender {
            Sender::Http1(sender) => match sender.ready().await {
                Ok(()) => sender.try_send_request(request).await,
                Err(error) => return Err(Unanswered::before(request, error)),
            },
            Sender::Http2(sender) => match sender.ready().await {
                Ok(()) => sender.try_send_request(request).await,
                Err(error) => return Err(Unanswered::before(request, error)),
            },
        };
        answered.map_err(Unanswered::from)
    }
}

impl Unanswered {
    fn before(request: Sent, error: hyper::Error) -> Self {
        Self {
            unsent: Some(request),
            error: ClientError::Http(error),
        }
    }
}

impl From<TrySendError<Sent>> for Unanswered {
    fn from(mut error: TrySendError<Sent>) -> Self {
        Self {
            unsent: error.take_message(),
            error: ClientError::Http(error.into_error()),
        }
    }
}

/// Reads an answer to its end.
pub(crate) async fn read(
    response: Response<Incoming>,
    limits: Limits,
) -> Result<Reply, ClientError> {
    let (head, body) = response.into_parts();
    let collected = Limited::new(body, limits.body).collect().await;
    let collected = collected.map_err(ClientError::Answer)?;
    Ok(Reply {
        status: head.status,
        headers: head.headers,
        trailers: collected.trailers().cloned().unwrap_or_default(),
        body: collected.to_bytes(),
    })
}
