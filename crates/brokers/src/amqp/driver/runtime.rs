//! The client of AMQP runs on the runtime that is there, and on a stream that was connected for it.
//! So its connections are encrypted as all others are, and it brings no TLS of its own.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::panic::resume_unwind;
use std::pin::Pin;
use std::sync::Mutex;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use async_rs::Runtime;
use async_rs::traits::{Executor, Reactor, RuntimeKit};
use async_rs::util::{Task, TaskImpl};
use futures_io::{AsyncRead, AsyncWrite};
use lapin::tcp::AsyncTcpStream;
use lapin::uri::{AMQPScheme, AMQPUri};
use lapin::{Connection, ConnectionProperties};
use pronghorn_base::lock;
use tokio::io::{AsyncRead as _, AsyncWrite as _, ReadBuf};
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use super::bounds::{Frames, MOST_FRAME, Untaken};
use crate::broker::BrokerError;
use crate::broker::tls::{self, encrypt};
use crate::tls::BrokerTls;

/// Connects to a broker, encrypted where its address says so. What it sends is bounded.
pub(super) async fn connect(
    mut uri: AMQPUri,
    tls: &BrokerTls,
    properties: ConnectionProperties,
    untaken: &Untaken,
) -> Result<Connection, BrokerError> {
    // The client would make buffers for what a broker says, and 0 is no limit.
    let most_frame = uri.query.frame_max.filter(|most| *most != 0);
    uri.query.frame_max = Some(most_frame.map_or(MOST_FRAME, |most| most.min(MOST_FRAME)));
    let host = uri.authority.host.as_str();
    let stream = TcpStream::connect((host, uri.authority.port)).await?;
    stream.set_nodelay(true)?;
    let socket: Box<dyn tls::Stream> = match uri.scheme {
        AMQPScheme::AMQP => Box::new(stream),
        AMQPScheme::AMQPS => Box::new(encrypt(tls, host, stream).await?),
    };
    let stream = Stream {
        socket,
        frames: Frames::new(untaken.clone()),
    };
    // A connection that is lost is made again by `Brokered`, not by the client: it asks once.
    let stream = Mutex::new(Some(stream));
    let once = async move |_, _| {
        let stream = lock(&stream).take();
        let stream = stream.ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected))?;
        Ok(AsyncTcpStream::Plain(stream))
    };
    let runtime = Runtime::new(Tokio(Handle::current()));
    Ok(Connection::connector(uri, runtime, once, properties).await?)
}

/// A stream of tokio, by the traits that the client knows. It fails with the first byte that leads
/// beyond a bound.
struct Stream {
    socket: Box<dyn tls::Stream>,
    frames: Frames,
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let mut bytes = ReadBuf::new(bytes);
        ready!(Pin::new(&mut self.socket).poll_read(context, &mut bytes))?;
        let followed = self.frames.follow(bytes.filled());
        followed.map_err(|wrong| io::Error::new(io::ErrorKind::InvalidData, wrong))?;
        Poll::Ready(Ok(bytes.filled().len()))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(context)
    }

    fn poll_close(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(context)
    }
}

/// The runtime of whoever connects. The client drives its connection on a thread of its own.
#[derive(Clone, Debug)]
struct Tokio(Handle);

impl RuntimeKit for Tokio {}

impl Executor for Tokio {
    type Task<T: Send + 'static> = Spawned<T>;

    fn block_on<T, F: Future<Output = T>>(&self, future: F) -> T {
        self.0.block_on(future)
    }

    fn spawn<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
        &self,
        future: F,
    ) -> Task<Spawned<T>> {
        Spawned(self.0.spawn(future)).into()
    }

    fn spawn_blocking<T: Send + 'static, F: FnOnce() -> T + Send + 'static>(
        &self,
        work: F,
    ) -> Task<Spawned<T>> {
        Spawned(self.0.spawn_blocking(work)).into()
    }
}

impl Reactor for Tokio {
    type TcpStream = Stream;
    type Sleep = tokio::time::Sleep;

    fn register<H: Read + Write + Send + 'static>(
        &self,
        _socket: H,
    ) -> io::Result<impl AsyncRead + AsyncWrite + Send + Unpin + 'static> {
        Err::<Stream, _>(io::ErrorKind::Unsupported.into())
    }

    fn sleep(&self, time: Duration) -> Self::Sleep {
        let _runtime = self.0.enter();
        tokio::time::sleep(time)
    }

    #[expect(clippy::disallowed_types, reason = "the trait asks for it")]
    fn interval(
        &self,
        time: Duration,
    ) -> impl futures_util::Stream<Item = std::time::Instant> + Send + 'static {
        let _runtime = self.0.enter();
        futures_util::stream::unfold(tokio::time::interval(time), |mut interval| async {
            let now = interval.tick().await;
            Some((now.into_std(), interval))
        })
    }

    fn tcp_connect_addr(
        &self,
        _address: SocketAddr,
    ) -> impl Future<Output = io::Result<Stream>> + Send + 'static {
        std::future::ready(Err(io::ErrorKind::Unsupported.into()))
    }
}

/// A task of the client. It goes on when this is dropped.
struct Spawned<T>(JoinHandle<T>);

impl<T: Send + 'static> TaskImpl for Spawned<T> {}

impl<T> Future for Spawned<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        match ready!(Pin::new(&mut self.0).poll(context)) {
            Ok(value) => Poll::Ready(value),
            Err(error) if error.is_panic() => resume_unwind(error.into_panic()),
            // The runtime ends, and with it whoever waits.
            Err(_) => Poll::Pending,
        }
    }
}
