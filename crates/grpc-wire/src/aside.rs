//! Work that takes too long for an I/O thread, which has others to serve.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;

use pronghorn_base::lock;
use pronghorn_serve::{Exchange, Holder};
use tokio::sync::oneshot;

use crate::status::{Code, Status};

/// Bytes of a message whose work is worth a file thread.
pub const LONG: usize = 64 << 10;
/// Calls that have such work at once: each takes a file thread, which others need.
const AT_ONCE: usize = 3;
/// Turns that one client may have at a time: the last one is for somebody else.
const OF_A_CLIENT: usize = 2;

static TURNS: Turns = Turns::new();

/// Whether somebody still waits for work that is being done.
#[derive(Clone, Debug, Default)]
pub struct Wanted(Arc<AtomicBool>);

impl Wanted {
    /// Long work asks this now and then, and ends.
    pub fn is_over(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Says so when whoever waits has left.
struct Waits(Wanted);

impl Drop for Waits {
    fn drop(&mut self) {
        self.0.0.store(true, Ordering::Relaxed);
    }
}

/// Does it on a file thread, in turn. Whoever leaves while he waits takes no turn; what he has
/// begun is told.
///
/// # Errors
///
/// The status of a call that the server's end cuts off.
pub async fn aside<T: Send + 'static>(
    client: Option<Holder>,
    work: impl FnOnce(&Wanted) -> T + Send + 'static,
) -> Result<T, Status> {
    let ending = || Status::new(Code::Unavailable, "the server ends");
    let turn = TURNS.wait(client).await.ok_or_else(ending)?;
    let waits = Waits(Wanted::default());
    let wanted = waits.0.clone();
    let done = tokio::task::spawn_blocking(move || {
        // Held until the work has ended, whoever has left meanwhile.
        let _turn = turn;
        work(&wanted)
    });
    done.await.map_err(|_| ending())
}

/// Goes on with it as long as the client is there.
///
/// # Errors
///
/// Its own, and the status of a call whose client has left.
pub async fn while_there<T>(
    exchange: &mut dyn Exchange,
    doing: impl Future<Output = Result<T, Status>>,
) -> Result<T, Status> {
    let mut doing = pin!(doing);
    let done = poll_fn(|cx| {
        if let Poll::Ready(done) = doing.as_mut().poll(cx) {
            return Poll::Ready(done);
        }
        let gone = exchange.poll_gone(cx);
        gone.map(|()| Err(Status::new(Code::Cancelled, "the client left")))
    });
    done.await
}

/// The calls that have a turn, and those that wait for one.
struct Turns(Mutex<Queue>);

struct Queue {
    held: Vec<Option<Holder>>,
    waiting: VecDeque<Waiter>,
    /// The number of the next one who waits.
    next: u64,
}

struct Waiter {
    number: u64,
    client: Option<Holder>,
    turn: oneshot::Sender<Turn>,
}

/// Leave to work, until it is dropped.
struct Turn {
    of: &'static Turns,
    client: Option<Holder>,
}

/// A place in the queue, which is given up when this is dropped.
struct InLine {
    of: &'static Turns,
    number: u64,
}

impl Turns {
    const fn new() -> Self {
        Self(Mutex::new(Queue {
            held: Vec::new(),
            waiting: VecDeque::new(),
            next: 0,
        }))
    }

    /// None never comes: nobody but the waiter himself takes his place away.
    async fn wait(&'static self, client: Option<Holder>) -> Option<Turn> {
        let (turn, given) = oneshot::channel();
        let line = {
            let mut queue = lock(&self.0);
            if queue.has_turn(client) {
                queue.held.push(client);
                drop(queue);
                return Some(Turn { of: self, client });
            }
            let number = queue.next;
            queue.next += 1;
            queue.waiting.push_back(Waiter {
                number,
                client,
                turn,
            });
            InLine { of: self, number }
        };
        let given = given.await.ok();
        drop(line);
        given
    }

    /// Gives the free turns away.
    fn give(&'static self) {
        loop {
            let (waiter, turn) = {
                let mut queue = lock(&self.0);
                let Some(waiter) = queue.take_next() else {
                    return;
                };
                queue.held.push(waiter.client);
                let client = waiter.client;
                (waiter, Turn { of: self, client })
            };
            // Whoever leaves at this moment gives it back.
            drop(waiter.turn.send(turn));
        }
    }
}

impl Queue {
    fn of(&self, client: Option<Holder>) -> usize {
        let held = self.held.iter();
        held.filter(|held| client.is_some() && **held == client)
            .count()
    }

    fn has_turn(&self, client: Option<Holder>) -> bool {
        self.held.len() < AT_ONCE && self.of(client) < OF_A_CLIENT
    }

    /// The first one who may, of the client that has the fewest turns.
    fn take_next(&mut self) -> Option<Waiter> {
        let waiting = self.waiting.iter().enumerate();
        let can = waiting.filter(|(_, it)| self.has_turn(it.client));
        let (at, _) = can.min_by_key(|(_, it)| self.of(it.client))?;
        self.waiting.remove(at)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        {
            let mut queue = lock(&self.of.0);
            let mine = queue.held.iter().position(|held| *held == self.client);
            if let Some(mine) = mine {
                queue.held.swap_remove(mine);
            }
        }
        self.of.give();
    }
}

impl Drop for InLine {
    fn drop(&mut self) {
        let mut queue = lock(&self.of.0);
        queue.waiting.retain(|waiter| waiter.number != self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Waker};

    use pronghorn_serve::Household;

    use super::*;

    fn household(last: u8) -> Holder {
        Holder::Household(Household::of([192, 0, 2, last].into()))
    }

    /// A turn, or whoever waits for one.
    fn ask(
        turns: &'static Turns,
        client: Option<Holder>,
    ) -> std::pin::Pin<Box<dyn Future<Output = Option<Turn>>>> {
        Box::pin(turns.wait(client))
    }

    fn poll<T>(future: &mut (impl Future<Output = T> + Unpin)) -> Option<T> {
        let mut context = Context::from_waker(Waker::noop());
        match std::pin::Pin::new(future).poll(&mut context) {
            Poll::Ready(done) => Some(done),
            Poll::Pending => None,
        }
    }

    #[test]
    fn a_client_with_many_calls_leaves_others_a_turn() {
        static ALL: Turns = Turns::new();
        let mut many: Vec<_> = (0..5).map(|_| ask(&ALL, Some(household(1)))).collect();
        let mut turns: Vec<_> = many.iter_mut().filter_map(poll).flatten().collect();
        assert_eq!(turns.len(), OF_A_CLIENT);
        let mut other = ask(&ALL, Some(household(2)));
        let others = poll(&mut other).flatten();
        assert!(others.is_some(), "the last turn is for somebody else");
        let mut third = ask(&ALL, Some(household(3)));
        assert!(poll(&mut third).is_none(), "all are taken");
        turns.pop();
        assert!(
            poll(&mut third).is_some(),
            "who has none comes before who has one"
        );
    }

    #[test]
    fn whoever_leaves_gives_up_his_place() {
        static ALL: Turns = Turns::new();
        let mut asked: Vec<_> = (0..AT_ONCE).map(|_| ask(&ALL, None)).collect();
        let turns: Vec<_> = asked.iter_mut().filter_map(poll).flatten().collect();
        assert_eq!(turns.len(), AT_ONCE);
        let (mut leaves, mut stays) =
            (ask(&ALL, Some(household(1))), ask(&ALL, Some(household(1))));
        assert!(poll(&mut leaves).is_none() && poll(&mut stays).is_none());
        drop(leaves);
        assert_eq!(lock(&ALL.0).waiting.len(), 1);
        drop(turns);
        let turn = poll(&mut stays).flatten();
        assert!(turn.is_some());
        drop(turn);
        assert!(lock(&ALL.0).held.is_empty());
    }

    #[tokio::test]
    async fn work_that_nobody_waits_for_is_told() {
        let (begun, has_begun) = std::sync::mpsc::channel();
        let (ended, has_ended) = oneshot::channel();
        let work = move |wanted: &Wanted| {
            begun.send(()).unwrap();
            while !wanted.is_over() {
                std::thread::yield_now();
            }
            ended.send(()).unwrap();
        };
        let mut waits = Box::pin(aside(Some(household(9)), work));
        assert!(poll(&mut waits).is_none());
        has_begun.recv().unwrap();
        drop(waits);
        has_ended.await.unwrap();
    }
}
