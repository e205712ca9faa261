//! HTTP/3 (RFC 9114): `quinn` speaks QUIC; frames, fields and streams are here. Each request is a
//! task of its own on the connection's thread, and what its handler sees is what HTTP/1.1 shows it.

mod control;
mod frame;
mod own;
mod qpack;
mod stream;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use quinn::{Connection, RecvStream, SendStream, VarInt};
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use self::frame::{Code, GOAWAY, SETTINGS, append_head, append_number};
use self::own::Own;
pub(crate) use self::own::{FIRST_WINDOW, SEND_WINDOW, STREAM_WINDOW};
use self::qpack::largest_section;
use crate::connection_state::{ConnectionState, Running};
use crate::limits::Limits;
use crate::message::Peer;
use crate::service::Entered;

/// The name of the protocol in a handshake.
pub(crate) const ALPN: &[u8] = b"h3";

/// Streams in one direction that a client may have open: three that are needed, and some of types
/// that nobody knows.
pub(crate) const UNI_STREAMS: u32 = 8;
/// Requests that were reset may still be at work in a pool. A client that begins more of them than
/// it may have open, again and again, is refused beyond so many times that number.
const ABANDONED: usize = 2;

const MAX_FIELD_SECTION_SIZE: u64 = 6;

struct Driver {
    shared: Arc<ConnectionState<Own>>,
    control: SendStream,
    /// The first stream that no request was taken from.
    next: u64,
    draining: Draining,
    idle_since: Option<Instant>,
}

/// How a connection ends that is to end (RFC 9114, section 5.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Draining {
    No,
    /// The client has been told, and what it has on its way is taken until then.
    Announced(Instant),
    /// The client knows the last request that is taken.
    Last,
}

/// The first stream that is not taken, for who only announces an end: the last one that there can
/// be.
const ANNOUNCED: u64 = (1 << 62) - 4;

/// Serves a connection to its end.
pub(crate) async fn serve(connection: Connection, peer: Arc<Peer>, entered: Entered) {
    let limits = entered.service().limits;
    let opening = async {
        let mut control = connection.open_uni().await.ok()?;
        control.write_all(&greeting(&limits)).await.ok()?;
        Some(control)
    };
    let opened = tokio::select! {
        opened = tokio::time::timeout(limits.receive.head_time, opening) => opened.ok().flatten(),
        () = entered.ended() => None,
    };
    let Some(control) = opened else {
        return give_up(&connection);
    };
    let own = Own::new(connection);
    let driver = Driver {
        shared: ConnectionState::new(peer, entered, Instant::now(), own),
        control,
        next: 0,
        draining: Draining::No,
        idle_since: None,
    };
    driver.run().await;
}

/// Closes a connection that has not come about.
pub(crate) fn give_up(connection: &Connection) {
    connection.close(Code::NO_ERROR.into(), b"");
}

/// The type of the control stream, and the settings.
fn greeting(limits: &Limits) -> Vec<u8> {
    let mut settings = Vec::new();
    append_number(&mut settings, MAX_FIELD_SECTION_SIZE);
    append_number(&mut settings, largest_section(&limits.receive) as u64);
    let mut greeting = vec![0];
    append_head(&mut greeting, SETTINGS, settings.len());
    greeting.extend(settings);
    greeting
}

impl Driver {
    async fn run(mut self) {
        let shared = self.shared.clone();
        let (own, entered) = (&shared.own, &shared.entered);
        let connection = own.connection.clone();
        let draining = entered.service().draining.clone();
        let mut streams = JoinSet::new();
        loop {
            self.note_idle();
            let deadline = self.deadline();
            let expired = async {
                match deadline {
                    Some(deadline) => sleep_until(deadline).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                accepted = connection.accept_bi() => match accepted {
                    Ok((send, receive)) => self.begin(send, receive),
                    Err(error) => {
                        let address = shared.peer.address;
                        tracing::debug!(target: "http", remote_address = %address, "connection ended: {error}");
                        return;
                    }
                },
                accepted = connection.accept_uni() => if let Ok(stream) = accepted {
                    let shared = shared.clone();
                    let patience = entered.service().limits.receive.head_time;
                    streams.spawn(async move { shared.own.streams.read(stream, patience).await });
                },
                Some(read) = streams.join_next() => if let Ok(Err(code)) = read {
                    return own.close(code);
                },
                () = own.ended.notified() => {}
                () = draining.cancelled(), if self.draining == Draining::No => {
                    let idle = entered.service().drain_idle();
                    self.draining = Draining::Announced(Instant::now() + idle);
                    self.say_goodbye(ANNOUNCED).await;
                }
                () = entered.place().evicted() => {
                    let code = if entered.place().is_cut() {
                        Code::EXCESSIVE_LOAD
                    } else {
                        Code::NO_ERROR
                    };
                    return own.close(code);
                }
                () = expired => {
                    if shared.running() == 0 {
                        return own.close(Code::NO_ERROR);
                    }
                    self.draining = Draining::Last;
                    self.say_goodbye(self.next).await;
                }
            }
        }
    }

    /// Starts the task of a request.
    fn begin(&mut self, mut send: SendStream, mut receive: RecvStream) {
        let own = &self.shared.own;
        let most = self.shared.entered.service().limits.http2.streams as usize * ABANDONED;
        if self.draining == Draining::Last || self.shared.running() >= most {
            // Errors are of a stream that the client has ended.
            _ = send.reset(Code::REQUEST_REJECTED.into());
            _ = receive.stop(Code::REQUEST_REJECTED.into());
            return;
        }
        self.next = u64::from(VarInt::from(send.id())) + 4;
        own.streams.requests.fetch_add(1, Ordering::Relaxed);
        self.idle_since = None;
        self.shared.entered.place().busy();
        let running = Running::new(&self.shared);
        // The connection counts as open until its last request has ended, and a stop waits for it.
        Handle::current().spawn(stream::answer(running, send, receive));
    }

    /// Tells the client the first stream that is not taken any more.
    async fn say_goodbye(&mut self, first: u64) {
        let mut content = Vec::new();
        append_number(&mut content, first);
        let mut frame = Vec::new();
        append_head(&mut frame, GOAWAY, content.len());
        frame.extend(content);
        // Without room for ten bytes, the client takes nothing anyway.
        let written = self.control.write_all(&frame);
        _ = tokio::time::timeout(Duration::from_millis(100), written).await;
    }

    fn note_idle(&mut self) {
        if self.shared.running() == 0 && self.idle_since.is_none() {
            let now = Instant::now();
            self.shared.entered.place().idle(now);
            self.idle_since = Some(now);
        }
    }

    /// When the connection is to end, or the client is to know the last request that is taken.
    fn deadline(&self) -> Option<Instant> {
        let idle = self.idle_since.map(|since| {
            let until = since + self.shared.entered.service().limits.receive.idle;
            if self.draining == Draining::Last {
                since
            } else {
                until
            }
        });
        let announced = match self.draining {
            Draining::Announced(until) => Some(until),
            Draining::No | Draining::Last => None,
        };
        [idle, announced].into_iter().flatten().min()
    }
}
