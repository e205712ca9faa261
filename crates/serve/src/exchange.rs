//! A request's connection as its handler sees it, whatever protocol that speaks.

use std::future::poll_fn;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use pronghorn_wire::Fields;

use crate::body_error::BodyError;
use crate::client_memory::{Charge, UNCOUNTED};
use crate::detached::DetachedBody;
use crate::upgrade::Upgrade;

/// One request's connection, lent to its handler.
pub trait Exchange: Send {
    /// The next piece of the request's body; `None` at its end. Tells the client to go on if it
    /// waits for that.
    fn poll_body(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, BodyError>>;

    /// Takes the rest of the body away, to be read beside the response and for as long as that
    /// lasts. None where the protocol has one after the other: HTTP/1.1.
    fn detach_body(&mut self) -> Option<DetachedBody> {
        None
    }

    /// The body was not asked for, for so long: the client could not send, and its limits for
    /// slowness do not count that.
    fn resume_body(&mut self, _paused: Duration) {}

    /// Ready when the client has left. While the body is not read to its end, that may go
    /// unnoticed.
    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()>;

    /// Somebody is at work on the answer. Who can't be told to stop is not stopped by a client that
    /// closes its sending side: only a reset, or what can't be written, says that it is gone.
    fn begun(&mut self, _can_be_told: bool) {}

    /// Hands the connection over to `serve` once the response of this request is out, which must
    /// have status 101; `Connection` and `Upgrade` are written for it. False where nothing can be
    /// handed over, and then the handler answers something else: HTTP/2 and HTTP/1.0 have no
    /// upgrades, and a body must have been read to its end.
    fn upgrade(&mut self, _protocol: &'static str, _serve: Upgrade) -> bool {
        false
    }

    /// For what is held in memory because of this request, beyond what an ordinary one takes. The
    /// default counts nothing.
    fn charge(&self) -> Charge {
        Charge::default()
    }

    /// The handler itself takes so much memory until the request has ended. It counts where a
    /// client may have many requests on one connection.
    fn takes(&mut self, _bytes: usize) {}

    /// Bytes from which on it is worth counting: an ordinary request takes no more.
    fn uncounted(&self) -> usize {
        UNCOUNTED
    }

    /// Sends an informational reply, for instance 103 Early Hints, where the protocol knows them.
    fn inform(&mut self, status: u16, fields: &Fields);

    /// Ready when what [`inform`](Self::inform) wrote is on its way, or can't be.
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<()>;
}

impl dyn Exchange + '_ {
    /// The next piece of the request's body; `None` at its end.
    ///
    /// # Errors
    ///
    /// When the rest can't be had.
    pub async fn body(&mut self) -> Result<Option<Bytes>, BodyError> {
        poll_fn(|cx| self.poll_body(cx)).await
    }

    /// Waits until [`inform`](Exchange::inform)'s reply is on its way.
    pub async fn flush(&mut self) {
        poll_fn(|cx| self.poll_flush(cx)).await;
    }
}
