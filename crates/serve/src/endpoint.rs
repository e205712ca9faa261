//! A service with one address: where it listens, and what answers there.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use pronghorn_plugin_api::{self as api, BoxFuture, Context, Handover, Running, Stopped};
use pronghorn_process::socket::BindError;
use pronghorn_workers::IoThread;
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout_at};

use crate::limits::Limits;
use crate::listener::{Accepting, ListenAddress, Listener};
use crate::message::Handler;
use crate::service::Service;

/// How long a connection without a request is kept at the end: one may be on its way.
const IDLE: Duration = Duration::from_millis(100);

/// A listener and the handler behind it, from the start of a service to its stop.
#[derive(Debug)]
pub struct Endpoint {
    service: Arc<Service>,
    /// Until clients are taken from it.
    listener: Option<Listener>,
    accepting: Option<Accepting>,
    url: String,
}

impl Endpoint {
    /// Takes nobody until it is opened.
    pub fn new(listener: Listener, handler: Arc<dyn Handler>, limits: Limits) -> Self {
        Self {
            service: Service::new(handler, limits, Arc::default(), None, None),
            url: listener.url(),
            listener: Some(listener),
            accepting: None,
        }
    }

    /// Takes clients on these threads. Returns where, for the log; none if it was open before.
    ///
    /// # Errors
    ///
    /// When a runtime can't watch a socket.
    pub fn open(&mut self, threads: &[IoThread]) -> Result<Option<ListenAddress>, BindError> {
        let Some(listener) = self.listener.take() else {
            return Ok(None);
        };
        let place = listener.place().clone();
        self.accepting = Some(listener.serve(threads, &self.service)?);
        Ok(Some(place))
    }

    /// As a person would type it.
    pub fn url(&self) -> String {
        self.url.clone()
    }

    /// Clients that wait in the kernel are left to the next process, once it takes over.
    pub fn hand_over(&mut self, step: Handover) {
        if step == Handover::Done {
            self.accepting = None;
        }
    }

    /// Lets requests under way finish until `deadline`. Returns how many connections are left, to
    /// be cut off.
    pub async fn stop(self, deadline: Instant) -> usize {
        _ = timeout_at(deadline, self.service.drain(IDLE)).await;
        drop(self.accepting);
        self.service.open()
    }
}

/// An endpoint on the control thread, which requests for workers never keep busy. It is for a
/// service that has short answers for few clients, and nothing else at work.
#[derive(Debug)]
pub struct ControlEndpoint {
    endpoint: Endpoint,
    opened: fn(&ListenAddress),
}

impl ControlEndpoint {
    /// Takes nobody until it is opened; `opened` is told where it listens then. The sockets are
    /// kept under the name of the service for the next process.
    ///
    /// # Errors
    ///
    /// When there are too many open files.
    pub fn new(
        name: &str,
        context: &Context,
        listener: Listener,
        handler: Arc<dyn Handler>,
        limits: Limits,
        opened: fn(&ListenAddress),
    ) -> io::Result<Self> {
        for socket in listener.sockets() {
            context.sockets.offer(name, socket)?;
        }
        Ok(Self {
            endpoint: Endpoint::new(listener, handler, limits),
            opened,
        })
    }
}

impl Running for ControlEndpoint {
    fn open(&mut self) -> Result<(), api::StartError> {
        let thread = IoThread::of(Handle::current());
        if let Some(place) = self.endpoint.open(&[thread])? {
            (self.opened)(&place);
        }
        Ok(())
    }

    fn addresses(&self) -> Vec<String> {
        vec![self.endpoint.url()]
    }

    fn hand_over(&mut self, step: Handover) {
        self.endpoint.hand_over(step);
    }

    fn stop(self: Box<Self>, deadline: Instant) -> BoxFuture<'static, Stopped> {
        Box::pin(async move {
            self.endpoint.stop(deadline).await; // who is cut off asks again
            Stopped::Clean
        })
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::sync::Mutex;
    use std::task::{Context as TaskContext, Poll, ready};

    use bytes::Bytes;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;
    use tokio::sync::mpsc;
    use tokio::task::{JoinSet, yield_now};
    use tokio::time::advance;

    use super::*;
    use crate::exchange::Exchange;
    use crate::message::{Body, Handled, Request, Response};
    use crate::source::{BodySource, Read};

    const WHOLE: Duration = Duration::from_secs(10);
    /// More than a socket takes.
    const LONG: usize = 64 << 20;

    /// Answers one request with the pieces that a test sends.
    struct Live(Mutex<Option<mpsc::Receiver<Bytes>>>);

    #[derive(Debug)]
    struct Pieces(mpsc::Receiver<Bytes>);

    impl BodySource for Pieces {
        fn poll_next(&mut self, cx: &mut TaskContext<'_>) -> Poll<Read> {
            let next = ready!(self.0.poll_recv(cx));
            Poll::Ready(next.map_or(Read::End, Read::Bytes))
        }
    }

    impl Handler for Live {
        fn handle<'a>(&'a self, _: Request, _: &'a mut dyn Exchange) -> Handled<'a> {
            let pieces = pronghorn_base::lock(&self.0).take().unwrap();
            let body = Body::Made(Box::new(Pieces(pieces)));
            Box::pin(std::future::ready(Response::new(200, body)))
        }
    }

    /// A client that has got the first piece, and what else is sent.
    async fn live() -> (Endpoint, TcpStream, mpsc::Sender<Bytes>, JoinSet<()>) {
        let mut tasks = JoinSet::new();
        // The clock of a runtime that has nothing to do would go on by itself.
        tasks.spawn(async {
            loop {
                yield_now().await;
            }
        });
        let (pieces, source) = mpsc::channel(1);
        let handler = Arc::new(Live(Mutex::new(Some(source))));
        let limits = Limits {
            whole_response: Some(WHOLE),
            ..Limits::default()
        };
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let listener = Listener::open(any, 1, &mut Vec::new()).unwrap();
        let mut endpoint = Endpoint::new(listener, handler, limits);
        let opened = endpoint.open(&[IoThread::of(Handle::current())]).unwrap();
        let Some(ListenAddress::Tcp(address)) = opened else {
            unreachable!("it was bound to an address");
        };
        let mut client = TcpStream::connect(address).await.unwrap();
        let request = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
        client.write_all(request).await.unwrap();
        pieces.send(Bytes::from_static(b"first")).await.unwrap();
        let mut got = Vec::new();
        while !got.ends_with(b"first\r\n") {
            client.read_buf(&mut got).await.unwrap();
        }
        (endpoint, client, pieces, tasks)
    }

    #[tokio::test(start_paused = true)]
    async fn a_live_response_goes_on_for_as_long_as_its_client_takes_it() {
        let (_endpoint, mut client, pieces, _tasks) = live().await;
        advance(Duration::from_secs(3600)).await;
        pieces.send(vec![b'x'; LONG].into()).await.unwrap();
        drop(pieces);
        let mut got = Vec::new();
        client.read_to_end(&mut got).await.unwrap();
        assert!(got.len() > LONG, "{}", got.len());
        assert!(got.ends_with(b"\r\n0\r\n\r\n"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_takes_nothing_of_a_live_response_is_cut_off() {
        let (_endpoint, mut client, pieces, _tasks) = live().await;
        advance(Duration::from_secs(3600)).await;
        pieces.send(vec![b'x'; LONG].into()).await.unwrap();
        client.read_exact(&mut [0; 1000]).await.unwrap();
        advance(WHOLE + Duration::from_secs(1)).await;
        let mut got = Vec::new();
        _ = client.read_to_end(&mut got).await; // a reset is as good as an end
        assert!(got.len() < LONG, "{}", got.len());
    }
}
