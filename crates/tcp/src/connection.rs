//! One connection, from its accept to its end.
//!
//! Its task reads a message, has a worker answer it, sends the answer, and reads on: while a worker
//! has a message nothing is read, so a fast client waits in the kernel. A worker is never waited
//! for by who only writes: its answer is here before the client takes it.

use std::future::poll_fn;
use std::io;
use std::os::unix::fs::FileExt;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use pronghorn_base::BoxFuture;
use pronghorn_base::Timer;
use pronghorn_pool::{
    Affinity, Answer, CallError, Piece, Pieces, Refused, Reply, ReplyBody, SpoolFile,
};
use pronghorn_serve::{ClientStream, StreamHandler};
use pronghorn_wire::Head;
use pronghorn_wire::native::TcpEvent;
use tokio::io::{AsyncReadExt, AsyncWrite};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout};
use tokio_util::io::poll_read_buf;

use crate::call::TcpCall;
use crate::end::End;
use crate::framing::Framer;
use crate::registry::{ConnectionEntry, ConnectionOrder, Registered};
use crate::server::Server;
use crate::settings::Dialogue;

/// Room for the first bytes of a message. Most have less.
const FIRST_ROOM: usize = 4 << 10;
/// Read at once at most; more of a message follows in the next read.
const MOST_ROOM: usize = 256 << 10;
/// Bytes of a file that are sent at once.
const FILE_PIECE: usize = 256 << 10;
/// A client gets another second for so many bytes that it takes.
const BYTES_IN_SECOND: u64 = 1000;
/// Bytes that a client may send on after the server has closed, so that its kernel does not throw
/// away what it was sent last; and for how long.
const MOST_LATE: usize = 256 << 10;
const LATE: Duration = Duration::from_secs(1);
/// A worker hears of the end of a connection within this time, or not at all.
const UNTIL_TOLD: Duration = Duration::from_mins(1);

/// An event that a connection without a message waits for.
enum IdleEvent {
    Readable,
    Ordered,
    End(End),
}

pub(crate) struct Connection {
    client: ClientStream,
    server: Arc<Server>,
    dialogue: Arc<Dialogue>,
    registered: Registered,
    received: BytesMut,
    framer: Framer,
    /// All that has arrived is read.
    is_drained: bool,
    /// Bytes since the last message.
    chunk: usize,
    has_ended: bool,
    /// The client has sent something.
    has_begun: bool,
    /// When the client last did something, or got something.
    active: Instant,
    /// The state that workers keep with it.
    state: Bytes,
    /// A worker knows of it, and is told of its end.
    is_known: bool,
    /// Keeps its calls on one worker.
    affinity: Option<Affinity>,
    timer: Timer,
}

impl StreamHandler for Server {
    fn serve(self: Arc<Self>, client: ClientStream) -> BoxFuture<'static, ()> {
        Box::pin(Connection::new(client, self).run())
    }

    fn first_byte_timeout(&self) -> Option<Duration> {
        self.dialogue().first_byte_timeout
    }
}

impl Connection {
    pub(crate) fn new(client: ClientStream, server: Arc<Server>) -> Self {
        let peer = client.peer();
        let remote = peer.shown_address().into_boxed_str();
        let certificate = peer.certificate.as_ref();
        let certificate = certificate.map(|it| it.subject().into_boxed_str());
        let certificate = certificate.unwrap_or_default();
        let entry = ConnectionEntry::new(server.name.clone(), remote, peer.tls, certificate);
        let dialogue = server.dialogue();
        Self {
            registered: server.registry.add(entry),
            received: BytesMut::new(),
            framer: Framer::new(dialogue.max_message),
            is_drained: true,
            chunk: 0,
            has_ended: false,
            has_begun: false,
            active: Instant::now(),
            state: Bytes::new(),
            is_known: false,
            affinity: dialogue.affinity.then(|| server.affinity()),
            timer: Timer::default(),
            client,
            server,
            dialogue,
        }
    }

    /// Serves the client to the end.
    pub(crate) async fn run(mut self) {
        let end = match self.talk().await {
            Ok(()) => End::Client,
            Err(end) => end,
        };
        self.server.ended(&self.registered.entry, &end);
        self.received = BytesMut::new();
        self.client.keeps(0);
        let told = self.is_known.then(|| {
            let closed = self.call(TcpEvent::Closed, Bytes::new());
            tell_end(self.server.clone(), closed, self.affinity.take())
        });
        let part = async {
            if end.is_orderly() {
                self.part(&end).await;
            }
            self.client.close();
        };
        let tell = async {
            if let Some(told) = told {
                told.await;
            }
        };
        Box::pin(async { tokio::join!(part, tell) }).await;
    }

    /// Until the client has no more to say.
    async fn talk(&mut self) -> Result<(), End> {
        if !self.dialogue.banner.is_empty() {
            let banner = self.dialogue.banner.clone();
            self.write(banner).await?;
        }
        if self.dialogue.asks_on_connect {
            Box::pin(self.ask(TcpEvent::Connected, Bytes::new())).await?;
        }
        self.active = Instant::now();
        while let Some(message) = self.message().await? {
            ConnectionEntry::count(&self.registered.entry.messages, 1);
            self.server.metrics.messages.increment();
            Box::pin(self.ask(TcpEvent::Data, message)).await?;
            self.active = Instant::now();
        }
        Ok(())
    }

    /// The client's next message. None: it has closed its side, and nothing is left.
    async fn message(&mut self) -> Result<Option<Bytes>, End> {
        // Parts of a message do not keep the place of a connection.
        let since = Instant::now();
        loop {
            let is_chunk = self.is_drained || self.chunk >= self.dialogue.chunk;
            let framing = &self.dialogue.framing;
            let next = self.framer.next(framing, &mut self.received, is_chunk);
            if let Some(message) = next.map_err(End::BadMessage)? {
                self.chunk = 0;
                self.give_back();
                return Ok(Some(message));
            }
            if self.has_ended {
                let rest = self.framer.rest(framing, &mut self.received);
                self.give_back();
                return Ok(rest);
            }
            self.give_back();
            if self.is_drained {
                self.client.waits(since);
                match self.news().await {
                    IdleEvent::Readable => {}
                    IdleEvent::Ordered => {
                        self.obey().await?;
                        continue;
                    }
                    IdleEvent::End(end) => return Err(end),
                }
            }
            self.read().await?;
        }
    }

    /// Waits with no room for what may come.
    async fn news(&mut self) -> IdleEvent {
        let limit = if self.has_begun {
            self.dialogue.idle_timeout
        } else {
            self.dialogue.first_byte_timeout
        };
        let deadline = limit.map(|limit| self.active + limit);
        let (client, timer) = (&self.client, &mut self.timer);
        let arrived = poll_fn(|cx| {
            if let Poll::Ready(cut) = client.poll_cut(cx) {
                return Poll::Ready(IdleEvent::End(cut.into()));
            }
            // An error shows in the read.
            if client.poll_read_ready(cx).is_ready() {
                return Poll::Ready(IdleEvent::Readable);
            }
            let silent = timer.poll(cx, deadline);
            silent.map(|()| IdleEvent::End(End::Silent))
        });
        tokio::select! {
            biased;
            () = client.stopping().cancelled() => IdleEvent::End(End::Stopping),
            () = self.registered.entry.told.notified() => IdleEvent::Ordered,
            news = arrived => news,
        }
    }

    /// Reads what has arrived, without waiting.
    async fn read(&mut self) -> Result<(), End> {
        let held = self.received.len();
        let room = held.clamp(FIRST_ROOM, MOST_ROOM);
        self.received.reserve(room);
        let room = self.received.capacity() - held;
        let (client, received) = (&mut self.client, &mut self.received);
        let read = poll_fn(|cx| {
            let read = poll_read_buf(Pin::new(client), cx, received);
            Poll::Ready(match read {
                Poll::Ready(read) => Some(read),
                Poll::Pending => None,
            })
        });
        match read.await {
            None => self.is_drained = true,
            Some(Ok(0)) => (self.has_ended, self.is_drained) = (true, true),
            Some(Ok(len)) => {
                (self.has_begun, self.is_drained) = (true, len < room);
                self.active = Instant::now();
                self.chunk = self.chunk.saturating_add(len);
                ConnectionEntry::count(&self.registered.entry.received, len);
                self.server.metrics.received.add(len as u64);
                self.client.keeps(self.received.capacity());
            }
            Some(Err(_)) => return Err(End::Client),
        }
        Ok(())
    }

    /// A connection without a message that has begun holds no memory for one.
    fn give_back(&mut self) {
        if self.received.is_empty() && self.received.capacity() > 0 {
            self.received = BytesMut::new();
            self.client.keeps(0);
        }
    }

    /// Has a worker answer, and sends its answer.
    async fn ask(&mut self, event: TcpEvent, body: Bytes) -> Result<(), End> {
        self.client.busy();
        self.client.keeps(self.received.capacity() + body.len());
        let server = self.server.clone();
        let affinity = self.affinity.as_ref();
        let place = timeout(self.dialogue.patience, server.place(affinity)).await;
        let Ok(place) = place else {
            return Err(End::Failed(Refused::WaitedTooLong.into()));
        };
        let mut pending = server.call(self.call(event, body), affinity);
        let mut ordered = None;
        let answer = loop {
            let (client, told) = (&self.client, &self.registered.entry.told);
            let next = poll_fn(|cx| {
                if let Poll::Ready(answer) = pending.poll_answer(cx) {
                    return Poll::Ready(Ok(answer));
                }
                // One that is cut off ends with the answer: workers hear of the end after it.
                match client.poll_cut(cx) {
                    Poll::Ready(cut) if ordered.is_none() => Poll::Ready(Err(cut)),
                    _ => Poll::Pending,
                }
            });
            let next = tokio::select! {
                biased;
                next = next => next,
                () = told.notified(), if ordered.is_none() => {
                    ordered = self.obey().await.err();
                    if ordered.is_some() {
                        self.client.close();
                    }
                    continue;
                }
            };
            match next {
                Ok(answer) => break answer,
                Err(cut) => {
                    ordered = Some(cut.into());
                    self.client.close();
                }
            }
        };
        drop(place);
        self.client.keeps(self.received.capacity());
        if event == TcpEvent::Data || answer.is_ok() {
            self.is_known |= !matches!(answer, Err(CallError::Refused(_) | CallError::NotBegun));
        }
        if let Some(end) = ordered {
            return Err(end);
        }
        match answer.map_err(End::Failed)? {
            Answer::Reply(reply) => self.answer(*reply).await,
            Answer::Interim(_) => Err(End::BadAnswer("it is none to this call")),
        }
    }

    fn call(&self, event: TcpEvent, body: Bytes) -> Arc<TcpCall> {
        Arc::new(TcpCall {
            event,
            connection: self.registered.entry.clone(),
            body,
            state: self.state.clone(),
        })
    }

    /// Does what a worker has answered.
    async fn answer(&mut self, reply: Reply) -> Result<(), End> {
        let Head::Tcp(said, is_sent) = reply.head else {
            return Err(End::BadAnswer("it is none to this call"));
        };
        if let Some(state) = said.state {
            // A copy: the bytes of a whole answer would be kept with it.
            self.state = Bytes::copy_from_slice(&state);
        }
        match reply.body {
            ReplyBody::Whole(content) if is_sent => self.write(content.into()).await?,
            ReplyBody::Pieces { pieces, .. } if is_sent => {
                pieces.hold_for(self.client.spool_client());
                self.write_pieces(pieces).await?;
            }
            ReplyBody::Whole(_) | ReplyBody::Pieces { .. } => {}
            ReplyBody::File(_) => return Err(End::BadAnswer("it names a file")),
        }
        if said.close {
            return Err(End::Worker);
        }
        Ok(())
    }

    async fn write_pieces(&mut self, mut pieces: Pieces) -> Result<(), End> {
        loop {
            match pieces.next().await {
                Some(Piece::Bytes(bytes)) => self.write(bytes.into()).await?,
                Some(Piece::Spooled(file)) => self.write_file(file).await?,
                Some(Piece::End) => return Ok(()),
                None => return Err(End::BadAnswer("it broke off")),
            }
        }
    }

    /// Sends what the client was too slow for.
    async fn write_file(&mut self, file: SpoolFile) -> Result<(), End> {
        let file = Arc::new(file);
        let mut at = 0;
        while at < file.len() {
            let (file, from) = (file.clone(), at);
            let read = spawn_blocking(move || {
                let left = usize::try_from(file.len() - from).unwrap_or(usize::MAX);
                let mut piece = vec![0; left.min(FILE_PIECE)];
                file.file().read_exact_at(&mut piece, from)?;
                Ok::<_, io::Error>(Bytes::from(piece))
            });
            let Ok(Ok(piece)) = read.await else {
                return Err(End::BadAnswer("it can't be read back"));
            };
            at += piece.len() as u64;
            self.write(piece).await?;
        }
        Ok(())
    }

    /// Does what others want.
    async fn obey(&mut self) -> Result<(), End> {
        while let Some(order) = self.registered.entry.next_order() {
            match order {
                ConnectionOrder::Write(bytes) => self.write(bytes).await?,
                ConnectionOrder::Close => return Err(End::Ordered),
            }
        }
        Ok(())
    }

    /// Sends all of it, as long as the client takes it fast enough.
    async fn write(&mut self, mut bytes: Bytes) -> Result<(), End> {
        let (begun, limit) = (Instant::now(), self.dialogue.write_timeout);
        let (mut taken, mut moved) = (0_u64, begun);
        let (client, timer) = (&mut self.client, &mut self.timer);
        let (entry, received) = (&self.registered.entry, self.received.capacity());
        let mut told = pin!(entry.told.notified());
        let mut is_told = false;
        client.keeps(received + bytes.len() + entry.waiting());
        let written = poll_fn(|cx| {
            // Bytes that others add meanwhile count for the client that does not take them.
            while told.as_mut().poll(cx).is_ready() {
                told.set(entry.told.notified());
                client.keeps(received + bytes.len() + entry.waiting());
                is_told = true;
            }
            while !bytes.is_empty() {
                match Pin::new(&mut *client).poll_write(cx, &bytes) {
                    Poll::Ready(Ok(0) | Err(_)) => return Poll::Ready(Err(End::Client)),
                    Poll::Ready(Ok(len)) => {
                        taken += len as u64;
                        moved = Instant::now();
                        client.moves();
                        _ = bytes.split_to(len);
                    }
                    Poll::Pending => {
                        client.waits(moved);
                        if let Poll::Ready(cut) = client.poll_cut(cx) {
                            return Poll::Ready(Err(cut.into()));
                        }
                        // A byte now and then does not keep a connection.
                        let earned = Duration::from_secs(taken / BYTES_IN_SECOND);
                        let until = (begun + limit + earned).min(moved + limit);
                        let untaken = timer.poll(cx, Some(until));
                        return untaken.map(|()| Err(End::Untaken));
                    }
                }
            }
            match Pin::new(&mut *client).poll_flush(cx) {
                Poll::Ready(Ok(())) => Poll::Ready(Ok(())),
                Poll::Ready(Err(_)) => Poll::Ready(Err(End::Client)),
                Poll::Pending => timer
                    .poll(cx, Some(moved + limit))
                    .map(|()| Err(End::Untaken)),
            }
        });
        let written = written.await;
        self.client
            .keeps(received + self.registered.entry.waiting());
        if is_told {
            self.registered.entry.told.notify_one();
        }
        ConnectionEntry::count(
            &self.registered.entry.sent,
            usize::try_from(taken).unwrap_or(usize::MAX),
        );
        self.server.metrics.sent.add(taken);
        written
    }

    /// Closes in order: what was sent last still reaches the client.
    async fn part(&mut self, end: &End) {
        let shut = poll_fn(|cx| Pin::new(&mut self.client).poll_shutdown(cx));
        let is_shut = matches!(timeout(LATE, shut).await, Ok(Ok(())));
        if !is_shut || self.has_ended || matches!(end, End::Silent) {
            return;
        }
        // A socket that is closed with something unread in it resets the connection.
        let mut late = [0; 1024];
        let mut read = 0;
        let deadline = Instant::now() + LATE;
        while read < MOST_LATE {
            match tokio::time::timeout_at(deadline, self.client.read(&mut late)).await {
                Ok(Ok(len @ 1..)) => read += len,
                _ => return,
            }
        }
    }
}

/// Tells a worker that a connection has ended. Its answer is of no importance.
async fn tell_end(server: Arc<Server>, closed: Arc<TcpCall>, affinity: Option<Affinity>) {
    let connection = closed.connection.clone();
    let told = async {
        let _place = server.place(affinity.as_ref()).await;
        let mut pending = server.call(closed, affinity.as_ref());
        pending.answer().await.map(|_| ())
    };
    let why = match timeout(UNTIL_TOLD, told).await {
        Ok(Ok(())) => return,
        Ok(Err(why)) => why.to_string(),
        Err(_) => "no worker became free in time".to_owned(),
    };
    server.tell_unheard(&connection, &why);
}
