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
