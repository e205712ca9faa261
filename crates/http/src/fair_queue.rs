//! A queue before something that one can have at a time, shared fairly by clients.
//!
//! Clients take turns, however many times each of them waits: one that waits a hundred times is in
//! the way of another one for a single turn. Where the queue is full, the client that waits most
//! often loses its last place to one that waits less.
//!
//! Knows nothing of what the turn is for.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex};

use pronghorn_base::lock;
use tokio::sync::oneshot;

/// A queue of clients that are told apart by a `C`.
pub(crate) struct FairQueue<C>(Arc<QueueInner<C>>);

struct QueueInner<C> {
    /// Places.
    most: usize,
    state: Mutex<QueueState<C>>,
}

struct QueueState<C> {
    is_taken: bool,
    /// In the order of their turns; each waits at least once.
    clients: VecDeque<Client<C>>,
    /// The number of the last place.
    number: u64,
}

struct Client<C> {
    client: C,
    places: VecDeque<(u64, oneshot::Sender<Turn<C>>)>,
}

/// The turn, until it is dropped.
pub(crate) struct Turn<C>(Option<Arc<QueueInner<C>>>);

/// There is no place, or it was lost to a client that waits less.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Full;

/// A place in the queue, until it is dropped.
struct QueuedPlace<'a, C> {
    queue: &'a QueueInner<C>,
    number: u64,
}

impl<C: PartialEq> FairQueue<C> {
    /// With so many places, at least one.
    pub(crate) fn new(most: usize) -> Self {
        let state = QueueState {
            is_taken: false,
            clients: VecDeque::new(),
            number: 0,
        };
        Self(Arc::new(QueueInner {
            most,
            state: Mutex::new(state),
        }))
    }

    /// Waits for a turn of this client. Cancel safe: its place goes with the future.
    ///
    /// # Errors
    ///
    /// If the client gets no place, or loses it.
    pub(crate) async fn turn(&self, client: C) -> Result<Turn<C>, Full> {
        let (sender, receiver) = oneshot::channel();
        let number = {
            let mut state = lock(&self.0.state);
            if !state.is_taken {
                state.is_taken = true;
                return Ok(Turn(Some(self.0.clone())));
            }
            state.join(client, sender, self.0.most)?
        };
        let _place = QueuedPlace {
            queue: &self.0,
            number,
        };
        receiver.await.map_err(|_| Full)
    }
}

impl<C: PartialEq> QueueState<C> {
    fn join(
        &mut self,
        client: C,
        sender: oneshot::Sender<Turn<C>>,
        most: usize,
    ) -> Result<u64, Full> {
        let own = self.clients.iter().find(|it| it.client == client);
        let own = own.map_or(0, |it| it.places.len());
        let all: usize = self.clients.iter().map(|it| it.places.len()).sum();
        if all >= most {
            let others = self.clients.iter_mut();
            let longest = others.max_by_key(|it| it.places.len()).ok_or(Full)?;
            if longest.places.len() <= own + 1 {
                return Err(Full);
            }
            // It has others.
            longest.places.pop_back();
        }
        self.number += 1;
        let place = (self.number, sender);
        match self.clients.iter_mut().find(|it| it.client == client) {
            Some(known) => known.places.push_back(place),
            None => self.clients.push_back(Client {
                client,
                places: VecDeque::from([place]),
            }),
        }
        Ok(self.number)
    }
}

impl<C> QueueState<C> {
    /// The next turn. Its client goes to the end, if it has another place.
    fn next(&mut self) -> Option<oneshot::Sender<Turn<C>>> {
        let mut client = self.clients.pop_front()?;
        let (_, sender) = client.places.pop_front()?;
        if !client.places.is_empty() {
            self.clients.push_back(client);
        }
        Some(sender)
    }
}

impl<C> Drop for Turn<C> {
    fn drop(&mut self) {
        let Some(queue) = self.0.take() else {
            return;
        };
        loop {
            let next = {
                let mut state = lock(&queue.state);
                let next = state.next();
                state.is_taken = next.is_some();
                next
            };
            let Some(next) = next else {
                return;
            };
            match next.send(Self(Some(queue.clone()))) {
                // Dropped unread, it goes on to the next one.
                Ok(()) => return,
                Err(mut unsent) => _ = unsent.0.take(),
            }
        }
    }
}

impl<C> Drop for QueuedPlace<'_, C> {
    fn drop(&mut self) {
        let mut state = lock(&self.queue.state);
        for client in &mut state.clients {
            client.places.retain(|(number, _)| *number != self.number);
        }
        state.clients.retain(|it| !it.places.is_empty());
    }
}

impl<C> fmt::Debug for FairQueue<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FairQueue").finish_non_exhaustive()
    }
}

impl<C> fmt::Debug for Turn<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Turn").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::sync::mpsc;
    use tokio::task::JoinSet;

    use super::*;

    /// Clients that wait, and in which order they have their turns.
    struct Scene {
        queue: Arc<FairQueue<&'static str>>,
        waiting: JoinSet<(&'static str, Result<(), Full>)>,
        told: mpsc::Sender<&'static str>,
        turns: mpsc::Receiver<&'static str>,
    }

    impl Scene {
        fn new(most: usize) -> Self {
            let (told, turns) = mpsc::channel(20);
            Self {
                queue: Arc::new(FairQueue::new(most)),
                waiting: JoinSet::new(),
                told,
                turns,
            }
        }

        async fn wait(&mut self, client: &'static str) {
            let (queue, told) = (self.queue.clone(), self.told.clone());
            self.waiting.spawn(async move {
                let turn = queue.turn(client).await;
                if turn.is_ok() {
                    told.try_send(client).expect("somebody listens");
                }
                (client, turn.map(drop))
            });
            tokio::task::yield_now().await;
        }

        /// The clients that had turns, and those that had none.
        async fn end(mut self) -> (String, String) {
            let mut without = String::new();
            while let Some(ended) = self.waiting.join_next().await {
                let (client, turn) = ended.expect("no panic");
                if turn.is_err() {
                    without.push_str(client);
                }
            }
            self.turns.close();
            let mut with = String::new();
            while let Some(client) = self.turns.recv().await {
                with.push_str(client);
            }
            assert!(self.queue.turn("z").await.is_ok(), "it is free");
            assert!(lock(&self.queue.0.state).clients.is_empty());
            (with, without)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn clients_take_turns_however_often_each_waits() {
        let mut scene = Scene::new(100);
        let first = scene.queue.turn("a").await.expect("it is free");
        for client in ["a", "a", "a", "b", "a", "c", "b"] {
            scene.wait(client).await;
        }
        drop(first);
        assert_eq!(scene.end().await, ("abcabaa".to_owned(), String::new()));
    }

    #[tokio::test(start_paused = true)]
    async fn in_a_full_queue_whoever_waits_most_loses_a_place() {
        let mut scene = Scene::new(4);
        let first = scene.queue.turn("z").await.expect("it is free");
        for _ in 0..6 {
            scene.wait("a").await;
        }
        for client in ["b", "c", "a", "b", "d"] {
            scene.wait(client).await;
        }
        drop(first);
        let (with, mut without) = scene.end().await;
        assert_eq!(with, "abcd");
        without = without.chars().filter(|it| *it != 'a').collect();
        assert_eq!(without, "b", "with a place, it takes none of one with two");
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_leaves_has_neither_place_nor_turn() {
        let queue = Arc::new(FairQueue::new(2));
        let first = queue.turn("a").await.expect("it is free");
        let left = tokio::time::timeout(Duration::from_secs(1), queue.turn("b"));
        assert!(left.await.is_err());
        assert!(lock(&queue.0.state).clients.is_empty());
        // One that has its turn and does not know it yet.
        let mut waiting = JoinSet::new();
        let same = queue.clone();
        waiting.spawn(async move { same.turn("b").await.map(drop) });
        tokio::task::yield_now().await;
        drop(first);
        waiting.shutdown().await;
        assert!(queue.turn("c").await.is_ok());
    }
}
