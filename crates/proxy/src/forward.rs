//! One request, from its head to its response.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::Poll;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::{Response as Message, StatusCode};
use pronghorn_base::Timer;
use pronghorn_serve::{Body, DetachedBody, Exchange, Request, Response};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use crate::connection::{BUFFER, Connection};
use crate::error::{NotForwarded, UpstreamError};
use crate::head::{WEBSOCKET, incoming, outgoing};
use crate::request_body::{Fed, Feed, RequestBody};
use crate::response_body::{Lease, ResponseBody};
use crate::server::Server;
use crate::tunnel::tunnel;
use crate::upstream::Upstream;

/// Interim responses of one request that wait for the client.
const MOST_HINTS: usize = 4;

/// Servers that are tried for one request.
const MOST_TRIES: usize = 3;

/// Terms of a route.
#[derive(Clone, Debug, Default)]
pub struct Terms {
    /// Bytes that a body may have.
    pub max_size: u64,
    /// Taken from the beginning of paths.
    pub strip_prefix: Option<String>,
}

/// A request that a server has answered.
#[derive(Debug)]
pub struct Forwarded {
    pub response: Response,
    /// The address of the server.
    pub server: String,
    /// Bytes of the request's body. It may still grow while the response is sent.
    pub read: Arc<AtomicU64>,
}

/// A server that gave no response.
struct Failed {
    why: NotForwarded,
    /// Another one may get the request: this one has not begun with it, or it may be done twice.
    is_repeatable: bool,
    /// Nothing of the request was sent.
    is_unsent: bool,
}

impl Failed {
    /// It ends here.
    fn finally(why: NotForwarded) -> Self {
        Self {
            why,
            is_repeatable: false,
            is_unsent: false,
        }
    }
}

impl Upstream {
    /// Has a request answered by one of the servers.
    ///
    /// # Errors
    ///
    /// When there is no response to send on.
    pub async fn forward(
        &self,
        request: &Request,
        exchange: &mut dyn Exchange,
        terms: &Terms,
    ) -> Result<Forwarded, NotForwarded> {
        if request
            .head
            .body_len()
            .is_some_and(|len| len > terms.max_size)
        {
            return Err(NotForwarded::TooLarge(terms.max_size));
        }
        exchange.takes(BUFFER);
        let client = request.peer.address.ip();
        let mut tried: Vec<Arc<Server>> = Vec::new();
        let mut last = None;
        while let Some(server) = self.choose(client, &tried) {
            let attempt = Attempt {
                upstream: self,
                server,
                request,
                terms,
            };
            let failed = match attempt.make(exchange).await {
                Ok(forwarded) => return Ok(forwarded),
                Err(failed) => failed,
            };
            if !failed.is_repeatable {
                return Err(failed.why);
            }
            last = Some(failed.why);
            tried.push(server.clone());
            if tried.len() == MOST_TRIES {
                break;
            }
        }
        Err(last.unwrap_or_else(|| NotForwarded::Upstream {
            server: self.name.clone(),
            error: UpstreamError::NoneHealthy,
        }))
    }
}

/// One server for one request.
struct Attempt<'a> {
    upstream: &'a Upstream,
    server: &'a Arc<Server>,
    request: &'a Request,
    terms: &'a Terms,
}

/// The head of a response, and what is left of the request's body.
struct Answered {
    message: Message<Incoming>,
    feed: Option<Feed>,
    read: Arc<AtomicU64>,
}

impl Attempt<'_> {
    async fn make(&self, exchange: &mut dyn Exchange) -> Result<Forwarded, Failed> {
        self.server.count();
        // A connection that was kept may be about to be closed. One over which nothing was sent
        // costs nothing; after one that took the request, a new one is the last try.
        let mut was_sent = false;
        loop {
            let (connection, is_new) = match self.kept().filter(|_| !was_sent) {
                Some(connection) => (connection, false),
                None => (self.open().await?, true),
            };
            let mut lease = Lease {
                connection,
                busy: self.server.begin(),
                is_reusable: !self.upstream.settings.proxy_protocol,
            };
            match self.ask(&mut lease, exchange).await {
                Ok(answered) => return self.answer(lease, answered, exchange).await,
                Err(failed) if is_new || !failed.is_repeatable => {
                    return Err(self.note(failed));
                }
                Err(failed) => was_sent = !failed.is_unsent,
            }
        }
    }

    fn kept(&self) -> Option<Connection> {
        let is_for_one = self.upstream.settings.proxy_protocol;
        (!is_for_one).then(|| self.server.take()).flatten()
    }

    async fn open(&self) -> Result<Connection, Failed> {
        let settings = &self.upstream.settings;
        let proxied = settings.proxy_protocol.then_some(&*self.request.peer);
        let opening = Connection::open(&self.server.address, &self.upstream.tls, proxied);
        let opened = match timeout(settings.connect_timeout, opening).await {
            Ok(opened) => opened,
            Err(_) => Err(UpstreamError::ConnectTimeout(settings.connect_timeout)),
        };
        opened.map_err(|error| {
            self.note(Failed {
                why: self.failed(error),
                is_repeatable: true,
                is_unsent: true,
            })
        })
    }

    fn failed(&self, error: UpstreamError) -> NotForwarded {
        NotForwarded::Upstream {
            server: self.server.address.to_string(),
            error,
        }
    }

    /// Counts a failure of the server, and tells the first.
    fn note(&self, failed: Failed) -> Failed {
        if let NotForwarded::Upstream { server, error } = &failed.why
            && error.is_down()
            && self.server.failed()
        {
            tracing::warn!(
                target: "http", upstream = self.upstream.name, server,
                "a server of an upstream does not answer: {error}"
            );
        }
        failed
    }

    /// Whether a request that a server has begun with may be done twice (RFC 9110, section 9.2).
    fn is_idempotent(&self) -> bool {
        let method = self.request.head.method();
        matches!(
            method,
            "GET" | "HEAD" | "OPTIONS" | "TRACE" | "PUT" | "DELETE"
        )
    }

    /// Sends the request, with as much of its body as the server wants before it answers.
    async fn ask(
        &self,
        lease: &mut Lease,
        exchange: &mut dyn Exchange,
    ) -> Result<Answered, Failed> {
        let settings = &self.upstream.settings;
        let head = &self.request.head;
        let read = Arc::<AtomicU64>::default();
        let (body, mut feed) = match head.body_len() {
            Some(0) => (RequestBody::empty(), None),
            len => {
                let (body, feed) = RequestBody::fed(len, self.terms.max_size, read.clone());
                (body, Some(feed))
            }
        };
        let host = settings.host.as_deref();
        let prefix = self.terms.strip_prefix.as_deref();
        let message = outgoing(self.request, self.server, host, prefix, body);
        let mut message = message.map_err(Failed::finally)?;
        let (tell, mut hints) = mpsc::channel(MOST_HINTS);
        hyper::ext::on_informational(&mut message, move |response| {
            // More than anybody sends are left out.
            if response.status() == StatusCode::EARLY_HINTS {
                _ = tell.try_send(incoming(response.headers()));
            }
        });
        let mut whole_at = Instant::now();
        let mut timer = Timer::default();
        let mut sending = pin!(lease.connection.send(message));
        let outcome = poll_fn(|cx| {
            while let Poll::Ready(Some(fields)) = hints.poll_recv(cx) {
                exchange.inform(103, &fields);
                _ = exchange.poll_flush(cx); // it goes on with the response at the latest
            }
            if let Poll::Ready(answered) = sending.as_mut().poll(cx) {
                return Poll::Ready(Ok(answered));
            }
            let deadline = match &mut feed {
                None => {
                    if exchange.poll_gone(cx).is_ready() {
                        return Poll::Ready(Err(NotForwarded::Gone));
                    }
                    Some((whole_at + settings.response_timeout, true))
                }
                Some(feeding) => match feeding.poll(cx, exchange) {
                    Poll::Ready(Ok(_)) => {
                        feed = None;
                        whole_at = Instant::now();
                        Some((whole_at + settings.response_timeout, true))
                    }
                    Poll::Ready(Err(why)) => return Poll::Ready(Err(why)),
                    Poll::Pending => feeding
                        .blocked
                        .map(|since| (since + settings.idle_timeout, false)),
                },
            };
            match (timer.poll(cx, deadline.map(|(at, _)| at)), deadline) {
                (Poll::Ready(()), Some((_, is_whole))) => {
                    Poll::Ready(Err(self.failed(if is_whole {
                        UpstreamError::ResponseTimeout(settings.response_timeout)
                    } else {
                        UpstreamError::BodyTimeout(settings.idle_timeout)
                    })))
                }
                _ => Poll::Pending,
            }
        })
        .await;
        match outcome {
            Ok(Ok(message)) => Ok(Answered {
                message,
                feed,
                read,
            }),
            Ok(Err(unanswered)) => Err(Failed {
                why: self.failed(UpstreamError::Http(unanswered.error)),
                is_repeatable: read.load(Relaxed) == 0
                    && (unanswered.is_unsent || self.is_idempotent()),
                is_unsent: unanswered.is_unsent,
            }),
            Err(why) => Err(Failed::finally(why)),
        }
    }

    /// Makes the client's response of the server's.
    async fn answer(
        &self,
        mut lease: Lease,
        answered: Answered,
        exchange: &mut dyn Exchange,
    ) -> Result<Forwarded, Failed> {
        let Answered {
            mut message,
            feed,
            read,
        } = answered;
        if self.server.worked() {
            tracing::info!(
                target: "http", upstream = self.upstream.name, server = %self.server.address,
                "a server of an upstream answers again"
            );
        }
        let server = self.server.address.to_string();
        let mut response = Response::new(message.status().as_u16(), Body::Empty);
        response.fields = incoming(message.headers());
        response.from_application = true;
        if message.status() == StatusCode::SWITCHING_PROTOCOLS {
            let upgrading = hyper::upgrade::on(&mut message);
            let is_asked = self.request.asks_for(WEBSOCKET);
            if !is_asked || !exchange.upgrade(WEBSOCKET, tunnel(upgrading, lease)) {
                return Err(Failed::finally(self.failed(UpstreamError::Switched)));
            }
            return Ok(Forwarded {
                response,
                server,
                read,
            });
        }
        let mut upload = JoinSet::new();
        if let Some(mut feed) = feed {
            match exchange.detach_body() {
                Some(body) => {
                    upload.spawn(upload_rest(feed, body, self.upstream.settings.idle_timeout));
                }
                None => {
                    let fed = self.feed_rest(&mut feed, exchange).await;
                    lease.is_reusable &= fed? == Fed::Whole;
                }
            }
        }
        let has_upload = !upload.is_empty();
        let idle = self.upstream.settings.idle_timeout;
        let mut body = ResponseBody::new(
            &self.upstream.name,
            message.into_body(),
            lease,
            idle,
            upload,
        );
        let whole = if has_upload { None } else { body.whole().await };
        response.body = match whole {
            Some(bytes) if bytes.is_empty() => Body::Empty,
            Some(bytes) => Body::Whole(bytes),
            None => Body::Made(Box::new(body)),
        };
        Ok(Forwarded {
            response,
            server,
            read,
        })
    }

    /// The server has answered before it has the whole body, and the client's connection carries
    /// one after the other: first the rest of the body.
    async fn feed_rest(&self, feed: &mut Feed, exchange: &mut dyn Exchange) -> Result<Fed, Failed> {
        let idle = self.upstream.settings.idle_timeout;
        let mut timer = Timer::default();
        let fed = poll_fn(|cx| {
            if let Poll::Ready(fed) = feed.poll(cx, exchange) {
                return Poll::Ready(fed);
            }
            let deadline = feed.blocked.map(|since| since + idle);
            timer.poll(cx, deadline).map(|()| Ok(Fed::Refused))
        });
        fed.await.map_err(Failed::finally)
    }
}

/// Brings the rest of a body to a server that answers already.
async fn upload_rest(mut feed: Feed, mut body: DetachedBody, idle: Duration) {
    let mut timer = Timer::default();
    poll_fn(|cx| {
        if feed.poll_detached(cx, &mut body).is_ready() {
            return Poll::Ready(());
        }
        timer.poll(cx, feed.blocked.map(|since| since + idle))
    })
    .await;
}
