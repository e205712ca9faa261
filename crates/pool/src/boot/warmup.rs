//! Calls that a worker answers before it gets those of clients: what it compiles, connects and caches for its first
//! requests is there by then.

use std::fmt;
use std::sync::Arc;

use tokio::runtime::Handle;

use super::Connection;
use crate::call::{Answer, CallError, Payload, Pending, Piece, ReplyBody};
use crate::pool::{Options, Pool};
use crate::relay::channel::Channel;
use crate::relay::inbox::Inbox;
use crate::relay::{self, Relay};

/// Calls for new workers, in this order.
#[derive(Clone, Default)]
pub struct Warmup(pub Vec<Arc<dyn Payload>>);

impl fmt::Debug for Warmup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let described = self.0.iter().map(|call| call.describe());
        f.debug_list().entries(described).finish()
    }
}

/// Why a worker is not warm.
#[derive(Debug)]
pub(crate) struct Cold {
    /// With the call that it happened to.
    pub(crate) why: String,
    /// The worker said it. Else all that can be told is that no answer came.
    pub(crate) answered: bool,
}

impl Cold {
    fn said(why: impl Into<String>) -> Self {
        let (why, answered) = (why.into(), true);
        Self { why, answered }
    }

    fn silent(why: impl Into<String>) -> Self {
        let (why, answered) = (why.into(), false);
        Self { why, answered }
    }
}

/// Makes the calls on `home`. The relay that carried them goes on with those of clients, once it has a seat.
///
/// No deadline is kept here: the boot's is. Nor is the process watched: who does tells its end to `inbox`.
pub(crate) async fn warm_up(
    connection: Connection,
    settings: relay::Settings,
    calls: Warmup,
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
    let channel = Channel::attach(channel)
        .map_err(|error| Cold::silent(format!("its connection can't be watched: {error}")))?;
    // Of its own: nothing here is counted, waits for another worker or is tried again.
    let pool = Pool::new(Options::aside(name), &home);
    let (seat, _reports) = pool.seat(pool.add_slot().await);
    let mut relay = Relay::new(channel, &leftover, dialect, settings, seat, inbox);
    for payload in calls.0 {
        let what = payload.describe();
        let (call, pending) = pool.call_aside(payload);
        let serve = async {
            let free = relay.is_free_after(call).await;
            if !free {
                pool.close().await; // the worker may have given the call back
            }
            free
        };
        let (free, answer) = tokio::join!(serve, judge(pending));
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
    Ok(relay)
}

/// Reads a reply to its end. Whatever is no failure of the application's will do: `/` may well redirect.
async fn judge(mut pending: Pending) -> Result<(), Cold> {
    let reply = loop {
        match pending.answer().await {
            Ok(Answer::Informational(_)) => {}
            Ok(Answer::Reply(reply)) => break reply,
            Err(CallError::Thrown(thrown)) => {
                let (class, file, line) = (&thrown.class, &thrown.file, thrown.line);
                let message = &thrown.message;
                return Err(Cold::said(format!("{class}: {message} in {file}:{line}")));
            }
            Err(CallError::Reported(text)) => return Err(Cold::said(text)),
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
    match reply.head.status {
        status @ 500.. => Err(Cold::said(format!("it answered {status}"))),
        _ => Ok(()),
    }
}
