//! HTTP/2: `h2` speaks the protocol on a connection's task; each request is a task of its own on
//! the same thread, and what its handler sees is what HTTP/1.1 shows it.

mod block;
mod flood;
mod guard;
mod inlet;
mod keep_alive;
mod stream;

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use h2::server::{Builder, Connection, SendResponse};
use h2::{Reason, RecvStream};
use pronghorn_base::Timer;
use tokio::runtime::Handle;
use tokio::time::Instant;
use tokio_util::sync::WaitForCancellationFutureOwned;

use self::guard::{Guard, HEADS, Signs};
use self::keep_alive::{KeepAlive, Life, jittered};
use crate::client_memory::ClientBytes;
use crate::connection_state::{ConnectionState, Running};
use crate::limits::Limits;
use crate::message::Peer;
use crate::service::Entered;
use crate::stream::Stream;
use crate::uptake::{Look, Uptake};

/// The bytes that a client sends first, on a connection without TLS instead of a request.
pub(crate) const PREFACE: &[u8] = flood::PREFACE;

/// Bytes of one body that may be on their way before they are taken, and so are kept in memory.
const STREAM_WINDOW: u32 = 256 << 10;
/// The same for all bodies of a connection: what a client can make a server hold that is busy.
const CONNECTION_WINDOW: u32 = 1 << 20;
/// Memory for frames of bodies that are smaller than their overhead in `h2`, as long as nobody has
/// read them. One read brings 800 KB of it; a client that makes it more is cut off.
const SMALL_FRAMES: usize = 2 << 20;
/// Bytes of one reply that may wait for room in the socket. The rest waits with the worker that
/// sends it.
const SEND_BUFFER: usize = 256 << 10;
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
/// How long the goodbye of a connection that ends with an error may take.
const GOODBYE: Duration = Duration::from_secs(1);

/// The next thing that a connection's task is to do.
enum Event {
    /// The server wants to end.
    Drain,
    /// The connection is old enough.
    Aged,
    /// The client gives no sign of life.
    Dead,
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
    shared: Arc<ConnectionState<Arc<Signs>>>,
    timer: Timer,
    drain: Pin<Box<WaitForCancellationFutureOwned>>,
    /// By when a draining connection without requests is closed.
    drain_until: Option<Instant>,
    /// Since when there is no request.
    idle_since: Option<Instant>,
    /// How the client takes responses, while some wait for it.
    uptake: Uptake,
    /// By when everything ends.
    closing: Option<Instant>,
    /// When the connection is too old. None once it was.
    aged: Option<Instant>,
    /// Requests on a connection that is too old must have finished by then.
    age_ends: Option<Instant>,
    keep_alive: KeepAlive,
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
    let mut connection = match shaken {
        Ok(Ok(connection)) => connection,
        Ok(Err(error)) => {
            tracing::debug!(target: "http", remote_address = %peer.address, "no HTTP/2: {error}");
            return;
        }
        Err(_) => return,
    };
    let keep_alive = KeepAlive::new(limits.http2.ping, connection.ping_pong(), opened);
    let shared = ConnectionState::new(peer, entered, opened, signs);
    let driver = Driver {
        runtime: Handle::current(),
        connection,
        shared,
        timer: Timer::default(),
        drain: Box::pin(drain),
        drain_until: None,
        idle_since: None,
        uptake: Uptake::default(),
        closing: None,
        aged: limits.http2.age.map(|age| opened + jittered(age)),
        age_ends: None,
        keep_alive,
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
        .data_frame_budget(SMALL_FRAMES)
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
                Event::Aged => {
                    self.aged = None;
                    let grace = self.shared.entered.service().limits.http2.age_grace;
                    self.age_ends = grace.map(|grace| Instant::now() + grace);
                    self.connection.graceful_shutdown();
                }
                Event::Expired | Event::Dead | Event::Ended => return,
            }
        }
    }

    /// Whether the client, which did nothing, has not been told yet that the connection ends.
    fn may_say_goodbye(&self) -> bool {
        self.closing.is_none() && !self.shared.own.is_blocked()
    }

    /// Starts the task of a request.
    fn begin(&self, request: http::Request<RecvStream>, mut respond: SendResponse<Bytes>) {
        let most = self.shared.entered.service().limits.http2.streams as usize * ABANDONED;
        if self.shared.running() >= most {
            respond.send_reset(Reason::REFUSED_STREAM);
            return;
        }
        let running = Running::new(&self.shared);
        self.runtime
            .spawn(stream::answer(running, request, respond));
    }

    /// Serves what there is, and says what else is to be done.
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Event> {
        loop {
            if let Some(event) = self.poll_connection(cx) {
                return Poll::Ready(event);
            }
            match self.keep_alive.poll(cx, self.shared.own.last_read()) {
                Life::Sign => {}
                Life::None => return Poll::Ready(Event::Dead),
            }
            let (until, look) = (self.deadline(), self.uptake.next_look());
            let others = [look, self.aged, self.keep_alive.next()]
                .into_iter()
                .flatten();
            ready!(self.timer.poll(cx, until.into_iter().chain(others).min()));
            if self.aged.is_some_and(|aged| aged <= Instant::now()) {
                return Poll::Ready(Event::Aged);
            }
            if until.is_some_and(|until| until <= Instant::now()) {
                return Poll::Ready(Event::Expired);
            }
            self.uptake.put_off(); // it may take a moment
            self.shared.own.ask();
        }
    }

    fn poll_connection(&mut self, cx: &mut Context<'_>) -> Option<Event> {
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
                    return Some(Event::Ended);
                }
                None => return Some(Event::Ended),
            }
        }
        self.shared.own.flushed();
        let (shared, of_blocks) = (&self.shared, self.shared.own.of_blocks());
        // `h2` keeps some between requests, too.
        shared
            .entered
            .keeps(&shared.peer, ClientBytes::Input, of_blocks);
        self.look();
        if self.closing.is_none() {
            if let Some(flood) = self.shared.own.flood() {
                return Some(Event::Flood(flood.name()));
            }
            if self.drain_until.is_none() && self.drain.as_mut().poll(cx).is_ready() {
                return Some(Event::Drain);
            }
        }
        self.note_idle();
        let is_evicted = self.shared.entered.place().poll_evicted(cx).is_ready();
        (is_evicted && self.closing.is_none()).then(|| {
            let is_cut = self.shared.entered.place().is_cut();
            if is_cut && self.may_say_goodbye() {
                Event::Cut
            } else {
                Event::Expired
            }
        })
    }

    /// Notes what the client has taken while responses wait for it.
    fn look(&mut self) {
        if !self.shared.own.is_blocked() && !self.shared.has_unread() {
            if self.uptake.end() {
                self.shared.has_moved();
            }
            return;
        }
        self.uptake.begin();
        if let Some(seen) = self.shared.own.seen() {
            match self.uptake.look(seen) {
                Look::First => {}
                Look::Moved => self.shared.has_moved(),
                Look::Still(since) => self.shared.is_still(since),
            }
        }
    }

    /// A connection without requests makes room for others.
    fn note_idle(&mut self) {
        if self.connection.has_streams() || self.shared.own.is_blocked() {
            self.idle_since = None;
        } else if self.idle_since.is_none() {
            let now = Instant::now();
            self.shared.entered.place().idle(now);
            self.idle_since = Some(now);
        }
    }

    /// By when the client must have done something.
    fn deadline(&self) -> Option<Instant> {
        let limits = &self.shared.entered.service().limits;
        let idle = self.idle_since.map(|since| {
            let until = since + limits.receive.idle;
            self.drain_until.map_or(until, |drain| drain.min(until))
        });
        // Streams without a window have deadlines of their own.
        let is_blocked = self.shared.own.is_blocked();
        let blocked = self.uptake.until(limits).filter(|_| is_blocked);
        let all = [idle, blocked, self.closing, self.age_ends];
        all.into_iter().flatten().min()
    }
}
