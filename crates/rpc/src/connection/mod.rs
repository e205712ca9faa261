//! One connection: calls in, replies out, each at its own pace.
//!
//! A caller that leaves doesn't end its calls: one that wants no reply sends its calls and goes.
//! What it sent is carried out to the last whole frame. Methods that wait for their caller's sake
//! are the exception: they end with their caller, and they hold up no stop of the server.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use pronghorn_base::{LogThrottle, Place as Standing};
use pronghorn_plugin_api::rpc::{self, Failure};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::{JoinSet, yield_now};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::codec::Codec;
use crate::reply::{Caller, Reply};
use crate::request::{Head, Malformed, Request};
use crate::room::{CallRoom, OwnRoom, REPLIES_PER_CONNECTION, Room, Taken, acquire};
use crate::server::{CALLS_PER_CONNECTION, Counted, Shared};

/// For each part of a frame, header and payload, from its first byte to its last. 64 MB within it
/// are 2 MB/s.
const FRAME_TIME: Duration = Duration::from_secs(30);
/// How long a caller may leave its replies lying: one that fetches the replies of many calls only
/// when it is done with its own work is no fault. As `pool.supervisor.exec_ttl`, the longest that a
/// PHP call takes by default. While other calls wait for room for their replies, it is as long as a
/// frame may take on its way here.
const UNREAD_TIME: Duration = Duration::from_secs(300);
/// Payloads of up to this are not counted in the budget, so that long ones, or callers who promise
/// long ones and send none, never hold up the calls that matter when something is wrong. All
/// connections with all their calls have 256 MB of such.
const SMALL: u32 = 4 << 10;
/// A caller whose connection is being closed may have sent a call before it could see that.
const ON_ITS_WAY: Duration = Duration::from_millis(10);
/// Asked for at once; a longer frame makes the buffer grow as its bytes come, not as its header
/// promises.
const READ_SIZE: usize = 4 << 10;

/// Carries a connection to its end: the caller leaves, or breaks the protocol, or the server stops;
/// then until the calls under way are answered. One without any makes room for others.
pub(crate) async fn serve<R, W>(
    reader: R,
    writer: W,
    peer: &str,
    standing: Standing,
    shared: Arc<Shared>,
) where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    standing.idle(Instant::now());
    let work = Arc::new(Work {
        standing,
        calls: AtomicUsize::new(0),
    });
    let closing = shared.stopping.child_token();
    let left = CancellationToken::new();
    let (replies, outbox) = mpsc::channel(CALLS_PER_CONNECTION);
    let served = async {
        tokio::join!(
            take_calls(
                Incoming::new(reader),
                replies,
                peer,
                &work,
                &shared,
                &closing,
                &left
            ),
            send_replies(writer, outbox, peer, &shared.replies, &closing, &left),
        );
    };
    tokio::select! {
        biased; // a call that has come in the last moment is carried out
        () = served => {}
        () = work.standing.evicted() => {
            tracing::debug!(target: "rpc", peer, "connection closed: it was idle, and others need its place");
        }
    }
}

/// What a connection has to do.
#[derive(Debug)]
struct Work {
    standing: Standing,
    /// Calls under way.
    calls: AtomicUsize,
}

/// A call under way, for as long as its method is at work: a reply that lies unread is the caller's
/// doing.
#[derive(Debug)]
struct Working(Arc<Work>);

impl Working {
    fn new(work: &Arc<Work>) -> Self {
        work.calls.fetch_add(1, Ordering::Relaxed);
        work.standing.busy();
        Self(work.clone())
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        if self.0.calls.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.0.standing.idle(Instant::now());
        }
    }
}

async fn take_calls<R: AsyncRead + Unpin>(
    mut incoming: Incoming<R>,
    replies: mpsc::Sender<(Reply, Place)>,
    peer: &str,
    work: &Arc<Work>,
    shared: &Arc<Shared>,
    closing: &CancellationToken,
    left: &CancellationToken,
) {
    let places = Arc::new(Semaphore::new(CALLS_PER_CONNECTION));
    let room = OwnRoom::new(REPLIES_PER_CONNECTION, &shared.replies);
    let mut calls = JoinSet::new();
    let mut late = 0;
    // PHP's clients connect when they call; a worker then keeps its connection for life.
    let mut is_new = true;
    // Closed because it does not read, a caller gets no further replies.
    while !closing.is_cancelled() || (shared.stopping.is_cancelled() && late < CALLS_PER_CONNECTION)
    {
        let next = async {
            // Without a place nothing is read: the caller's own socket holds it back.
            let place = Place {
                _call: acquire(&places, 1).await,
                reply: Taken::default(),
            };
            let begins = if is_new {
                timeout(FRAME_TIME, incoming.begins()).await
            } else {
                Ok(incoming.begins().await)
            };
            if begins.map_err(|_| Broken::Silent)?? {
                work.standing.reading();
            }
            let call = incoming.next(&shared.budget).await?;
            let for_reply = CallRoom::new(&room);
            if let Some((request, _)) = &call {
                for_reply.before(&request.method).await;
            }
            Ok::<_, Broken>((place, for_reply, call))
        };
        let closes = async {
            closing.cancelled().await;
            sleep(ON_ITS_WAY).await;
        };
        let next = tokio::select! {
            biased;
            next = next => next,
            () = closes => break,
        };
        late += usize::from(closing.is_cancelled());
        match next {
            Ok((place, for_reply, Some((request, held)))) => {
                is_new = false;
                while calls.try_join_next().is_some() {}
                let working = Working::new(work);
                let pending = Pending::new(&request, place, replies.clone(), left, shared);
                let carried = pending.carry_out(request.argument, held, for_reply, shared.clone());
                calls.spawn(async move {
                    carried.await;
                    drop(working);
                });
                // What can be done at once is done before the next call begins: then it is known
                // how long replies are.
                yield_now().await;
            }
            Ok((_, _, None)) => {
                left.cancel();
                break;
            }
            Err(broken) => {
                broken.report(peer, &shared.throttles.broken);
                left.cancel();
                break;
            }
        }
    }
    while calls.join_next().await.is_some() {}
}

async fn send_replies<W: AsyncWrite + Unpin>(
    mut writer: W,
    mut outbox: mpsc::Receiver<(Reply, Place)>,
    peer: &str,
    room: &Room,
    closing: &CancellationToken,
    left: &CancellationToken,
) {
    while let Some((Reply { head, body }, _place)) = outbox.recv().await {
        let mut frame = Buf::chain(head.as_slice(), body);
        let begun = Instant::now();
        tokio::select! {
            biased;
            written = writer.write_all_buf(&mut frame) => match written {
                Ok(()) => {}
                // The caller left. Calls that it sent before are still to be read.
                Err(_) => break,
            },
            () = lies_too_long(room) => {
                tracing::warn!(target: "rpc", peer, "connection closed: its replies were not read for {} s", begun.elapsed().as_secs());
                closing.cancel();
                break;
            }
        }
    }
    left.cancel();
    drop(writer);
    while outbox.recv().await.is_some() {}
}

async fn lies_too_long(room: &Room) {
    sleep(FRAME_TIME).await;
    tokio::select! {
        () = sleep(UNREAD_TIME.saturating_sub(FRAME_TIME)) => {}
        () = room.is_short() => {}
    }
}

/// What a call has until its reply is sent.
struct Place {
    /// Room in `replies`.
    _call: OwnedSemaphorePermit,
    /// Memory.
    reply: Taken,
}

/// A call under way. Its caller gets a reply even when the method panics.
struct Pending {
    caller: Caller,
    place: Option<Place>,
    replies: mpsc::Sender<(Reply, Place)>,
    /// Cancelled when the caller has closed its end, or the half on which it sends: the two can't
    /// be told apart.
    left: CancellationToken,
    _counted: Counted,
}

impl Pending {
    fn new(
        request: &Request,
        place: Place,
        replies: mpsc::Sender<(Reply, Place)>,
        left: &CancellationToken,
        shared: &Arc<Shared>,
    ) -> Self {
        Self {
            caller: Caller {
                codec: Codec::of(request.flags),
                sequence: request.sequence,
                method: request.method.clone(),
            },
            place: Some(place),
            replies,
            left: left.clone(),
            _counted: shared.calls.count(),
        }
    }

    async fn carry_out(
        mut self,
        argument: Bytes,
        held: OwnedSemaphorePermit,
        for_reply: CallRoom,
        shared: Arc<Shared>,
    ) {
        let for_reply = Arc::new(for_reply);
        let result = self.result(argument, for_reply.clone(), &shared).await;
        drop(held);
        match &result {
            Ok(reply) => self.make_room(&for_reply, reply.len()).await,
            Err(failure) => {
                tracing::debug!(target: "rpc", method = %self.method(), "{failure}");
            }
        }
        self.answer(result);
    }

    async fn make_room(&mut self, room: &CallRoom, length: usize) {
        if let Some(place) = &mut self.place {
            place.reply = room.after(&self.caller.method, length).await;
        }
    }

    async fn result(
        &self,
        argument: Bytes,
        room: Arc<CallRoom>,
        shared: &Shared,
    ) -> Result<Bytes, Failure> {
        let name = self.method().into_owned();
        let method = tokio::select! {
            biased;
            found = shared.methods.find_in_time(&name) => found,
            () = self.left.cancelled() => return Err(Failure::new("the caller has left")),
        };
        let method = method.map_err(|unknown| Failure::new(unknown.to_string()))?;
        let call = method.call(
            &rpc::Caller::in_room(room),
            self.caller.codec.encoding()?,
            argument,
        );
        if !method.is_while_connected() {
            return call.await;
        }
        tokio::select! {
            biased; // what needs no wait is done, as for any other method
            result = call => result,
            () = self.left.cancelled() => Err(Failure::new("the caller has left")),
            () = shared.stopping.cancelled() => Err(Failure::new("the server is stopping")),
        }
    }

    fn method(&self) -> std::borrow::Cow<'_, str> {
        String::from_utf8_lossy(&self.caller.method)
    }

    fn answer(&mut self, result: Result<Bytes, Failure>) {
        if let Some(place) = self.place.take() {
            let reply = Reply::to(&self.caller, result);
            // There is room for as many as there are places. Who is not there any more needs no
            // reply.
            _ = self.replies.try_send((reply, place));
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if self.place.is_none() {
            return;
        }
        let method = self.method().into_owned();
        if std::thread::panicking() {
            tracing::error!(
                target: "rpc", method,
                "the method failed by a bug in the server; what it said is on stderr"
            );
            let text = format!("{method} failed by a bug in the server; its log says more");
            self.answer(Err(Failure::new(text)));
        } else {
            tracing::warn!(target: "rpc", method, "call cut off at the end of the grace period");
        }
    }
}

/// Bytes of a caller, cut into calls.
pub(crate) struct Incoming<R> {
    reader: R,
    buffer: BytesMut,
}

/// Why nothing more is taken from a connection.
#[derive(Debug, Error)]
pub(crate) enum Broken {
    #[error("{error}; the frame begins with `{begin}`")]
    Malformed { error: Malformed, begin: String },
    #[error("the rest of a frame did not come within {} s", FRAME_TIME.as_secs())]
    HalfFrame,
    #[error("no call came within {} s", FRAME_TIME.as_secs())]
    Silent,
    #[error("it ended inside a frame")]
    Cut,
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl<R: AsyncRead + Unpin> Incoming<R> {
    pub(crate) fn new(reader: R) -> Self {
        let buffer = BytesMut::new();
        Self { reader, buffer }
    }

    /// Waits for the first bytes of the next call. False when there is none.
    async fn begins(&mut self) -> Result<bool, Broken> {
        Ok(!self.buffer.is_empty() || self.fill(READ_SIZE).await? > 0)
    }

    /// The next call, and its share of `budget`; `None` when the caller is done.
    ///
    /// A connection that has called may be idle for as long as it likes; a frame that has begun
    /// must go on. Time that is spent on waiting for other calls to free memory is not the
    /// caller's.
    pub(crate) async fn next(
        &mut self,
        budget: &Arc<Semaphore>,
    ) -> Result<Option<(Request, OwnedSemaphorePermit)>, Broken> {
        if self.buffer.is_empty() && self.fill(READ_SIZE).await? == 0 {
            return Ok(None);
        }
        let head = timeout(FRAME_TIME, self.head());
        let head = head.await.map_err(|_| Broken::HalfFrame)??;
        let counted = Some(head.payload()).filter(|payload| *payload > SMALL);
        let held = acquire(budget, counted.unwrap_or(0)).await;
        let request = timeout(FRAME_TIME, self.rest(head));
        let request = request.await.map_err(|_| Broken::HalfFrame)??;
        Ok(Some((request, held)))
    }

    async fn head(&mut self) -> Result<Head, Broken> {
        loop {
            match Head::decode(&self.buffer) {
                Ok(Some(head)) => return Ok(head),
                Ok(None) => self.more(READ_SIZE).await?,
                Err(error) => {
                    let begin = self.buffer.get(..12).unwrap_or(&self.buffer);
                    let begin = begin.escape_ascii().to_string();
                    return Err(Broken::Malformed { error, begin });
                }
            }
        }
    }

    async fn rest(&mut self, head: Head) -> Result<Request, Broken> {
        loop {
            if let Some(request) = head.take(&mut self.buffer) {
                return Ok(request);
            }
            let missing = head.frame() - self.buffer.len();
            let room = self.buffer.len().max(READ_SIZE);
            self.more(missing.min(room)).await?;
        }
    }

    async fn more(&mut self, room: usize) -> Result<(), Broken> {
        match self.fill(room).await? {
            0 => Err(Broken::Cut),
            _ => Ok(()),
        }
    }

    async fn fill(&mut self, room: usize) -> io::Result<usize> {
        self.buffer.reserve(room);
        self.reader.read_buf(&mut self.buffer).await
    }
}

impl Broken {
    /// A caller may leave as it likes; what it does wrong is told.
    fn report(&self, peer: &str, throttle: &LogThrottle) {
        match self {
            Self::Malformed { .. } | Self::HalfFrame => {
                if let Some(connections) = throttle.should_log() {
                    tracing::warn!(target: "rpc", peer, connections, "connection closed: {self}");
                }
            }
            Self::Silent | Self::Cut | Self::Io(_) => {
                tracing::debug!(target: "rpc", peer, "connection ended: {self}");
            }
        }
    }
}

#[cfg(test)]
mod tests;
