//! HTTP/2: `h2` speaks the protocol on a connection's task; each request is a task of its own on
//! the same thread, and what its handler sees is what HTTP/1.1 shows it.

mod block;
mod flood;
mod guard;
mod huffman;
mod inlet;
mod stream;

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use h2::server::{Builder, Connection, SendResponse};
use h2::{Reason, RecvStream};
use pronghorn_base::Timer;
use tokio::runtime::Handle;
use tokio::time::Instant;
use tokio_util::sync::WaitForCancellationFutureOwned;

use self::guard::{Guard, Signs};
use crate::client_memory::{Charge, UNCOUNTED};
use crate::limits::Limits;
use crate::message::Peer;
use crate::record::epoch_us;
use crate::service::Entered;
use crate::stream::Stream;

/// What a client sends first, on a connection without TLS instead of a request.
pub(crate) const PREFACE: &[u8] = flood::PREFACE;

/// What of one body may be on its way before it is taken: what is kept of it in memory.
const STREAM_WINDOW: u32 = 256 << 10;
/// The same for all bodies of a connection: what a client can make a server hold that is busy.
const CONNECTION_WINDOW: u32 = 1 << 20;
/// `h2` ends the connection for a head beyond its limit: it gets so many times ours, and what is
/// between them is answered. The frames that a head may be cut into follow from it.
const HEADS: usize = 2;
/// Of one reply, what may wait for room in the socket. What a worker sends beyond it waits with the
/// worker.
const SEND_BUFFER: usize = 256 << 10;
/// What a client must take of a reply in a second, on average, of the time that the reply waits for
/// it: as of a body that it sends.
const SEND_RATE: u64 = pronghorn_h1::BODY_RATE;
/// Streams that `h2` resets because the client broke a rule, in all the life of a connection. One
/// that goes on after so many wants to have requests begun that are not counted as open
/// (CVE-2025-8671).
const ERRORS: usize = 100;
/// Streams that the client may reset before they were looked at, which happens to those that arrive
/// in one read. As many as may be open: a browser may leave a page that it has just asked for.
fn resets_unseen(limits: &Limits) -> usize {
    limits.http2.streams as usize
}
/// Requests that were reset may still be at work in a pool. A client that begins more of them than
/// it may have open, again and again, is refused beyond so many times that number (rapid reset,
/// CVE-2023-44487).
const ABANDONED: usize = 2;
/// What each stream takes, with its task and the head of its reply.
const STREAM: usize = 4 << 10;
/// Beyond as many, streams are counted: a browser has fewer at a time.
const ORDINARY_STREAMS: usize = 32;
/// How long the goodbye of a connection that ends with an error may take.
const GOODBYE: Duration = Duration::from_secs(1);

/// What all requests of a connection share. The connection counts as open until the last one has
/// ended.
struct Shared {
    peer: Arc<Peer>,
    entered: Entered,
    opened: Instant,
    /// The same moment in microseconds since the Unix epoch.
    opened_us: u64,
    /// Tasks of requests.
    running: AtomicUsize,
    /// Those of them that wait for more of their bodies.
    silent: AtomicUsize,
    signs: Arc<Signs>,
}

impl Shared {
    fn charge(&self) -> Charge {
        self.entered.account(&self.peer).charge()
    }

    /// For so much memory, where it is worth counting.
    fn charged(&self, bytes: usize) -> Charge {
        self.entered.charged(&self.peer, bytes)
    }

    /// One more request waits for its client.
    fn begin_silence(&self) {
        self.silent.fetch_add(1, Ordering::Relaxed);
        self.may_be_silent();
    }

    fn end_silence(&self) {
        self.silent.fetch_sub(1, Ordering::Relaxed);
        self.entered.place().busy();
    }

    /// A connection of which all requests wait for their client makes room for others.
    fn may_be_silent(&self) {
        let silent = self.silent.load(Ordering::Relaxed);
        if silent > 0 && silent == self.running.load(Ordering::Relaxed) {
            self.entered.place().awaits();
        }
    }
}

/// Counts a request's task, and what it takes, while it lives.
struct Running(Arc<Shared>, Charge);

impl Running {
    fn new(shared: &Arc<Shared>) -> Self {
        let others = shared.running.fetch_add(1, Ordering::Relaxed);
        let charge = if others < ORDINARY_STREAMS {
            Charge::default()
        } else {
            shared.charge()
        };
        Self(shared.clone(), charge)
    }

    /// Its head has so many bytes.
    fn holds(&mut self, head: usize) {
        if self.1.is_none() && head > UNCOUNTED {
            self.1 = self.0.charge();
        }
        self.1.set(STREAM + head);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::Relaxed);
        self.0.may_be_silent();
    }
}

/// What a connection's task is to do next.
enum Event {
    /// The server wants to end.
    Drain,
    Flood(&'static str),
    /// The connection holds more memory than there is for it.
    Cut,
    /// The client did not do something in time.
    Expired,
    Ended,
}

/// The task of a connection.
struct Driver {
    runtime: Handle,
    connection: Connection<Guard, Bytes>,
    shared: Arc<Shared>,
    timer: Timer,
    drain: Pin<Box<WaitForCancellationFutureOwned>>,
    /// By when a draining connection without requests is closed.
    drain_until: Option<Instant>,
    /// Since when there is no request.
    idle_since: Option<Instant>,
    /// How much was written when the socket had no room, and until when there must be some.
    blocked: Option<(u64, Instant)>,
    /// By when everything ends.
    closing: Option<Instant>,
}

/// Serves a connection to its end. `received` was read from it already.
pub(crate) async fn serve(stream: Stream, received: BytesMut, peer: Arc<Peer>, entered: Entered) {
    let limits = entered.service().limits;
    let drain = entered.service().draining.clone().cancelled_owned();
    let opened = Instant::now();
    let (guard, signs) = Guard::new(stream, received, &limits.receive);
    let handshake = builder(&limits).handshake(guard);
    let handshake = tokio::time::timeout(limits.receive.head_time, handshake);
    let shaken = tokio::select! {
        shaken = handshake => shaken,
        () = entered.ended() => return,
    };
    let connection = match shaken {
        Ok(Ok(connection)) => connection,
        Ok(Err(error)) => {
            tracing::debug!(target: "http", remote_address = %peer.address, "no HTTP/2: {error}");
            return;
        }
        Err(_) => return,
    };
    let shared = Arc::new(Shared {
        peer,
        entered,
        opened,
        opened_us: epoch_us(opened),
        running: AtomicUsize::new(0),
        silent: AtomicUsize::new(0),
        signs,
    });
    let driver = Driver {
        runtime: Handle::current(),
        connection,
        shared,
        timer: Timer::default(),
        drain: Box::pin(drain),
        drain_until: None,
        idle_since: None,
        blocked: None,
        closing: None,
    };
    driver.run().await;
}

fn builder(limits: &Limits) -> Builder {
    let mut builder = Builder::new();
    builder
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_concurrent_streams(limits.http2.streams)
        .max_header_list_size(u32::try_from(limits.receive.head * HEADS).unwrap_or(u32::MAX))
        .max_send_buffer_size(SEND_BUFFER)
        .max_local_error_reset_streams(Some(ERRORS))
        .max_pending_accept_reset_streams(resets_unseen(limits));
    builder
}

impl Driver {
    async fn run(mut self) {
        loop {
            match poll_fn(|cx| self.poll_event(cx)).await {
                Event::Drain => {
                    let idle = self.shared.entered.service().drain_idle();
                    self.drain_until = Some(Instant::now() + idle);
                    self.connection.graceful_shutdown();
                }
                Event::Flood(frames) => {
                    let address = self.shared.peer.address;
                    tracing::debug!(target: "http", remote_address = %address, frames, "connection closed: a flood of frames");
                    self.closing = Some(Instant::now() + GOODBYE);
                    self.connection.abrupt_shutdown(Reason::ENHANCE_YOUR_CALM);
                }
                Event::Cut => {
                    self.closing = Some(Instant::now() + GOODBYE);
                    self.connection.abrupt_shutdown(Reason::ENHANCE_YOUR_CALM);
                }
                Event::Expired if self.may_say_goodbye() => {
                    self.closing = Some(Instant::now() + GOODBYE);
                    self.connection.abrupt_shutdown(Reason::NO_ERROR);
                }
                Event::Expired | Event::Ended => return,
            }
        }
    }

    /// Whether the client, which did nothing, has not been told yet that the connection ends.
    fn may_say_goodbye(&self) -> bool {
        self.closing.is_none() && self.blocked.is_none()
    }

    /// Starts the task of a request.
    fn begin(&self, request: http::Request<RecvStream>, mut respond: SendResponse<Bytes>) {
        let most = self.shared.entered.service().limits.http2.streams as usize * ABANDONED;
        if self.shared.running.load(Ordering::Relaxed) >= most {
            respond.send_reset(Reason::REFUSED_STREAM);
            return;
        }
        let running = Running::new(&self.shared);
        self.runtime
            .spawn(stream::answer(running, request, respond));
    }

    /// Serves what there is, and says what else is to be done.
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Event> {
        while let Poll::Ready(accepted) = self.connection.poll_accept(cx) {
            match accepted {
                Some(Ok((request, respond))) => {
                    self.idle_since = None;
                    self.shared.entered.place().busy();
                    self.begin(request, respond);
                }
                Some(Err(error)) => {
                    let address = self.shared.peer.address;
                    tracing::debug!(target: "http", remote_address = %address, "connection ended: {error}");
                    return Poll::Ready(Event::Ended);
                }
                None => return Poll::Ready(Event::Ended),
            }
        }
        self.shared.signs.flushed();
        if self.closing.is_none() {
            if let Some(flood) = self.shared.signs.flood() {
                return Poll::Ready(Event::Flood(flood.name()));
            }
            if self.drain_until.is_none() && self.drain.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Event::Drain);
            }
        }
        let deadline = self.deadline();
        let is_evicted = self.shared.entered.place().poll_evicted(cx).is_ready();
        if is_evicted && self.closing.is_none() {
            let is_cut = self.shared.entered.place().is_cut();
            return Poll::Ready(if is_cut && self.may_say_goodbye() {
                Event::Cut
            } else {
                Event::Expired
            });
        }
        self.timer.poll(cx, deadline).map(|()| Event::Expired)
    }

    /// By when the client must have done something.
    fn deadline(&mut self) -> Option<Instant> {
        let limits = &self.shared.entered.service().limits;
        self.blocked = self
            .shared
            .signs
            .blocked_at()
            .map(|written| match self.blocked {
                Some(same @ (before, _)) if before == written => same,
                _ => (written, Instant::now() + limits.send_pause),
            });
        self.idle_since = if self.connection.has_streams() {
            None
        } else {
            if self.idle_since.is_none() {
                let now = Instant::now();
                self.shared.entered.place().idle(now);
                self.idle_since = Some(now);
            }
            self.idle_since
        };
        let idle = self.idle_since.map(|since| {
            let until = since + limits.receive.idle;
            self.drain_until.map_or(until, |drain| drain.min(until))
        });
        let blocked = self.blocked.map(|(_, until)| until);
        [idle, blocked, self.closing].into_iter().flatten().min()
    }
}
