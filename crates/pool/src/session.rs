//! The life of a worker's connection, whatever it speaks: it enters its pool, carries one call
//! after the other, waits between them, and leaves when the worker's process has ended, which it is
//! told.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use pronghorn_process::Exit;
use tokio::time::Instant;

use crate::call::{Call, WorkerFault};
use crate::core::Next;
use crate::incident::Progress;
use crate::pool::{Report, SlotHandle};
use crate::relay::inbox::{Inbox, Told};
use crate::relay::outlet::Streamed;
use crate::roster::UnderWay;

/// How a call went, as far as the worker is concerned.
#[derive(Debug)]
pub enum Served {
    /// It takes another call, since then.
    Free(Instant),
    /// It ends by itself.
    Leaving,
    /// It can't be used any more; whoever watches its process has been told.
    Broken,
    /// Its process has ended.
    Ended,
}

/// The server's end of a connection to a worker.
pub trait Peer: Sized + Send {
    /// A call, and what is known of it besides.
    type Call: From<Call> + Send;

    fn slot_handle(&self) -> &SlotHandle;

    fn inbox(&self) -> &Arc<Inbox>;

    /// The call at hand, for those who ask.
    fn under_way(&mut self) -> &mut Option<UnderWay>;

    /// Carries one call to the worker and its reply back. The call is answered, or given to another
    /// worker, once.
    fn serve(&mut self, call: Self::Call) -> impl Future<Output = Served> + Send;

    /// Waits for a call or an order. Of the worker nothing should come meanwhile.
    fn idle(&mut self) -> impl Future<Output = Result<Told, Report>> + Send;

    /// Counts a call. True when it was the worker's last.
    fn is_worn(&mut self) -> bool;

    /// What comes after a call that ended `since`.
    fn next(&mut self, since: Instant) -> Next<Self::Call>;

    /// Gives back the calls that the worker has beyond the one at hand.
    fn reclaim(&mut self) {}

    /// The worker is to end.
    fn hang_up(&mut self) -> impl Future<Output = ()> + Send;

    /// Its process has ended: what is left here is settled.
    fn leave(self);
}

/// Carries calls until the worker's process has ended.
pub async fn run<P: Peer>(mut peer: P) {
    let mut next = match peer.slot_handle().enter(peer.inbox().clone()) {
        Next::Run(call) => Next::Run(call.into()),
        Next::Wait => Next::Wait,
        Next::Stop => Next::Stop,
    };
    loop {
        next = match next {
            Next::Run(call) => match carry(&mut peer, call).await {
                Served::Free(since) if !peer.is_worn() => peer.next(since),
                Served::Free(_) | Served::Leaving => {
                    peer.slot_handle().close();
                    peer.reclaim();
                    peer.next(Instant::now())
                }
                Served::Broken => {
                    // Calls that are for it alone go elsewhere, however long it takes to end.
                    peer.slot_handle().close();
                    break;
                }
                Served::Ended => return peer.leave(),
            },
            Next::Wait => match peer.idle().await {
                Ok(Told::Call(call)) => Next::Run(call.into()),
                Ok(Told::Stop) => Next::Stop,
                Ok(Told::Ended) => return peer.leave(),
                Ok(Told::Ping) => Next::Wait,
                Err(why) => {
                    let wants_to_leave = matches!(why, Report::Leaving);
                    peer.inbox().retire(peer.slot_handle(), why);
                    if wants_to_leave {
                        peer.hang_up().await;
                    }
                    break;
                }
            },
            Next::Stop => {
                peer.slot_handle().report(Report::Leaving);
                peer.hang_up().await;
                break;
            }
        };
    }
    peer.reclaim();
    poll_fn(|cx| peer.inbox().poll_ended(cx, None)).await;
    peer.leave();
}

/// Carries one call.
pub(crate) async fn carry<P: Peer>(peer: &mut P, call: P::Call) -> Served {
    let served = peer.serve(call).await;
    let under_way = peer.under_way().take();
    if let (Served::Free(_) | Served::Leaving, Some(under_way)) = (&served, &under_way) {
        peer.slot_handle().lived_through(under_way.payload.as_ref());
    }
    served
}

/// The worker has ended with a call of whose reply nothing was passed on.
pub fn lost(slot_handle: &SlotHandle, call: Call, progress: Progress, exit: Exit) -> Served {
    let (what, ran) = (call.payload.describe(), call.stamps.ran());
    let (identity, details) = (call.payload.identity(), call.payload.details());
    let is_told = call.payload.tells_failures();
    let retried = slot_handle.lose(call, WorkerFault::Died(exit));
    slot_handle.report(Report::DiedWith {
        what,
        ran,
        progress: Box::new(progress),
        retried,
        is_told,
        identity,
        details,
    });
    Served::Ended
}

/// The worker has ended with a part of the reply passed on.
pub fn lost_in_stream(
    slot_handle: &SlotHandle,
    streamed: Streamed,
    progress: Progress,
    under_way: Option<&UnderWay>,
) -> Served {
    slot_handle.report(Report::DiedWith {
        what: streamed.request,
        ran: streamed.stamps.ran(),
        progress: Box::new(progress),
        retried: false,
        is_told: under_way.is_some_and(|under_way| under_way.payload.tells_failures()),
        identity: under_way.and_then(|under_way| under_way.payload.identity()),
        details: under_way.and_then(|under_way| under_way.payload.details()),
    });
    Served::Ended
}

/// By when the next piece of a reply has to be there. Each has the whole time of a call, as with
/// RoadRunner: a stream may go on for hours. Nothing but a piece gives time: a worker that only
/// writes to its log makes no progress.
#[derive(Debug)]
pub struct PieceDeadline {
    limit: Option<Duration>,
    due: Option<Instant>,
    granted: Option<Instant>,
    /// Of a reply that nobody reads.
    given_up: Option<Instant>,
}

impl PieceDeadline {
    pub fn new(limit: Option<Duration>) -> Self {
        Self {
            limit,
            due: limit.map(|limit| Instant::now() + limit),
            granted: None,
            given_up: None,
        }
    }

    /// The moment when it has to be there.
    pub fn get(&self) -> Option<Instant> {
        self.given_up.or_else(|| self.due.max(self.granted))
    }

    /// A piece has been handed on: the next one has the whole time.
    pub fn renew(&mut self) {
        self.due = self.limit.map(|limit| Instant::now() + limit);
    }

    /// The worker, or somebody else, asks for so much time from now on.
    pub fn extend(&mut self, slot_handle: &SlotHandle, time: Duration) {
        self.granted = slot_handle.later(self.get(), time);
    }

    /// Nobody reads any more: all of it has to come in so much time from now on. False when that
    /// was known.
    pub fn give_up(&mut self, after: Duration) -> bool {
        let is_news = self.given_up.is_none();
        if is_news {
            self.given_up = Some(Instant::now() + after);
        }
        is_news
    }

    pub const fn is_given_up(&self) -> bool {
        self.given_up.is_some()
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn nothing_but_a_piece_gives_time() {
        const LIMIT: Duration = Duration::from_secs(10);
        let began = Instant::now();
        let mut deadline = PieceDeadline::new(Some(LIMIT));
        advance(LIMIT / 2).await;
        assert_eq!(deadline.get(), Some(began + LIMIT));
        deadline.renew();
        assert_eq!(deadline.get(), Some(began + LIMIT + LIMIT / 2));
        assert!(deadline.give_up(Duration::from_secs(1)));
        advance(LIMIT / 2).await;
        deadline.renew();
        assert!(deadline.get() < Some(Instant::now()), "nobody reads it");
        assert_eq!(PieceDeadline::new(None).get(), None);
    }
}
