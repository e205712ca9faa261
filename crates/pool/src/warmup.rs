//! Calls that a worker answers before it gets those of clients: what it compiles, connects and
//! caches for its first requests is there by then.

use std::fmt;
use std::sync::Arc;

use pronghorn_metrics::Registry;
use pronghorn_wire::Head;
use tokio::runtime::Handle;
use tokio::task::spawn_blocking;

use crate::call::{Answer, CallError, Payload, Pending, ReplyBody, WorkerFault};
use crate::pieces::Piece;
use crate::pool::{Options, Pool, SlotHandle};
use crate::relay::channel::Channel;
use crate::relay::connection::Connection;
use crate::relay::inbox::Inbox;
use crate::relay::{self, Relay};
use crate::session::{self, Peer, Served};

/// A call that a new worker answers before it gets those of clients.
pub trait WarmupCall: Payload {
    /// Why an answer that begins so is a failure, if it is one.
    fn failure(&self, head: &Head) -> Option<String>;
}

pub(crate) type Calls = Vec<Arc<dyn WarmupCall>>;

/// What new workers answer first.
#[derive(Clone, Default)]
pub struct Warmup {
    make: Option<Arc<dyn Fn() -> Calls + Send + Sync>>,
    in_words: Option<Arc<str>>,
}

impl Warmup {
    /// The calls, in their order, are asked for by each worker, on a thread that may block.
    pub fn new(calls: impl Fn() -> Calls + Send + Sync + 'static) -> Self {
        Self {
            make: Some(Arc::new(calls)),
            in_words: None,
        }
    }

    /// The same in the words in which an application is told of them, which may answer them before
    /// workers are forked from it.
    #[must_use]
    pub fn in_words(mut self, words: &str) -> Self {
        self.in_words = Some(words.into());
        self
    }

    /// None where only workers can answer them.
    pub fn words(&self) -> Option<&str> {
        self.in_words.as_deref()
    }

    /// None where there are none.
    pub async fn calls(&self) -> Option<Vec<Arc<dyn WarmupCall>>> {
        let calls = self.make.clone()?;
        // One that panics makes no calls, and no worker fails them.
        spawn_blocking(move || calls()).await.ok()
    }
}

impl fmt::Debug for Warmup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = if self.make.is_some() { "some" } else { "none" };
        write!(f, "Warmup({what})")
    }
}

/// Why a worker is not warm.
#[derive(Debug)]
pub struct Cold {
    /// With the call that it happened to.
    pub why: String,
    /// The worker said it, and its end may have come of that. Else all that can be told is that no
    /// answer came.
    pub answered: bool,
}

impl Cold {
    fn said(why: impl Into<String>) -> Self {
        let (why, answered) = (why.into(), true);
        Self { why, answered }
    }

    pub fn silent(why: impl Into<String>) -> Self {
        let (why, answered) = (why.into(), false);
        Self { why, answered }
    }
}

/// Makes the calls on `home`, over the relay that goes on with those of clients, once it has a slot
/// handle.
///
/// No deadline is kept here: the boot's is. Nor is the process watched: who does tells its end to
/// `inbox`.
pub async fn warm_up(
    connection: Connection,
    settings: relay::Settings,
    calls: Vec<Arc<dyn WarmupCall>>,
    name: String,
    home: Handle,
    inbox: Arc<Inbox>,
) -> Result<Relay, Cold> {
    let Connection {
        channel,
        leftover,
        dialect,
        ..
    } = connection;
    let relay = |slot_handle| {
        let channel = Channel::attach(channel)
            .map_err(|error| Cold::silent(format!("its connection can't be watched: {error}")))?;
        Ok(Relay::new(
            channel,
            &leftover,
            dialect,
            settings,
            slot_handle,
            inbox,
        ))
    };
    warm(relay, calls, name, &home).await
}

/// Makes the calls by the carrier that `make` makes for a slot handle.
pub async fn warm<C: Peer>(
    make: impl FnOnce(SlotHandle) -> Result<C, Cold>,
    calls: Vec<Arc<dyn WarmupCall>>,
    name: String,
    home: &Handle,
) -> Result<C, Cold> {
    // Of its own: nothing here is counted, waits for another worker or is tried again.
    let pool = Pool::new(Options::aside(name), home, &Registry::default());
    let (slot_handle, _reports) = pool.slot_handle(pool.add_slot().await, 0);
    let mut carrier = make(slot_handle)?;
    for payload in calls {
        let what = payload.describe();
        let (call, pending) = pool.call_aside(payload.clone());
        let serve = async {
            let served = session::carry(&mut carrier, call.into()).await;
            let free = matches!(served, Served::Free(_));
            if !free {
                pool.close().await; // the worker may have given the call back
            }
            free
        };
        let (free, answer) = tokio::join!(serve, judge(&*payload, pending));
        answer.map_err(|cold| Cold {
            why: format!("{what}: {}", cold.why),
            ..cold
        })?;
        if !free {
            return Err(Cold::said(format!(
                "{what}: it takes no call after this one"
            )));
        }
    }
    Ok(carrier)
}

/// Reads a reply to its end. Whatever is no failure of the application's will do.
async fn judge(payload: &dyn WarmupCall, mut pending: Pending) -> Result<(), Cold> {
    let reply = loop {
        match pending.answer().await {
            Ok(Answer::Interim(_)) => {}
            Ok(Answer::Reply(reply)) => break reply,
            Err(CallError::Thrown(thrown)) => {
                return Err(Cold::said(format!("{}: {thrown}", thrown.class)));
            }
            Err(CallError::Reported(text)) => return Err(Cold::said(text)),
            Err(CallError::Worker(garbage @ WorkerFault::Garbage(_))) => {
                return Err(Cold::said(garbage.to_string()));
            }
            Err(CallError::Refused(_)) => return Err(Cold::silent("it asked to be replaced")),
            Err(error) => return Err(Cold::silent(error.to_string())),
        }
    };
    if let ReplyBody::Pieces { mut pieces, .. } = reply.body {
        loop {
            match pieces.next().await {
                Some(Piece::Bytes(_) | Piece::Spooled(_)) => {}
                Some(Piece::End) => break,
                None => return Err(Cold::silent("its reply broke off")),
            }
        }
    }
    match payload.failure(&reply.head) {
        Some(why) => Err(Cold::said(why)),
        None => Ok(()),
    }
}
