//! Requests that end workers: known by what they are, refused for a while after the second death.
//!
//! Without this one bad request, repeated by an impatient client, ends every worker of a pool. A
//! death alone proves nothing (an operator may kill workers, memory may run out for other reasons),
//! so an answer to the same request in between clears it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use pronghorn_base::lock;
use tokio::time::Instant;

/// Two deaths within this time are no accident.
const SUSPECTED: Duration = Duration::from_secs(60);
/// How long such a request is refused; then it may prove itself.
const REFUSED: Duration = Duration::from_secs(30);
/// A bound on memory: whoever invents a new deadly request each time is stopped by nothing here.
const MOST: usize = 1000;

/// What is remembered. Empty as long as no worker dies, and then a call pays one load for it.
#[derive(Debug, Default)]
pub(crate) struct Poison {
    known: AtomicUsize,
    table: Mutex<HashMap<u64, Entry>>,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    refused: bool,
    until: Instant,
}

impl Poison {
    /// Whether there is anything to ask about.
    pub(crate) fn is_known(&self) -> bool {
        self.known.load(Relaxed) != 0
    }

    /// A worker died with this request. True when that makes it poison.
    pub(crate) fn died(&self, request: u64, now: Instant) -> bool {
        let mut table = self.table();
        table.retain(|_, entry| entry.until > now);
        let refused = table.contains_key(&request);
        if table.len() >= MOST && !refused {
            // The one that would be forgotten next makes room.
            let next = table.iter().min_by_key(|(_, entry)| entry.until);
            if let Some(next) = next.map(|(request, _)| *request) {
                table.remove(&next);
            }
        }
        let until = now + if refused { REFUSED } else { SUSPECTED };
        table.insert(request, Entry { refused, until });
        self.known.store(table.len(), Relaxed);
        refused
    }

    /// Whether this request is refused.
    pub(crate) fn refuses(&self, request: u64, now: Instant) -> bool {
        let mut table = self.table();
        let Some(entry) = table.get(&request).copied() else {
            // The table must become empty again also when the requests in it never come back.
            if table.values().all(|entry| entry.until <= now) {
                table.clear();
                self.known.store(0, Relaxed);
            }
            return false;
        };
        if entry.until <= now {
            table.remove(&request);
            self.known.store(table.len(), Relaxed);
        }
        entry.refused && entry.until > now
    }

    /// A worker lived through this request.
    pub(crate) fn answered(&self, request: u64) {
        let mut table = self.table();
        if table.get(&request).is_some_and(|entry| !entry.refused) {
            table.remove(&request);
            self.known.store(table.len(), Relaxed);
        }
    }

    fn table(&self) -> MutexGuard<'_, HashMap<u64, Entry>> {
        lock(&self.table)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    const DEADLY: u64 = 1;

    #[tokio::test(start_paused = true)]
    async fn two_deaths_within_a_minute_are_refused_for_half_a_minute() {
        let poison = Poison::default();
        assert!(!poison.is_known());
        assert!(!poison.died(DEADLY, Instant::now()));
        assert!(poison.is_known());
        assert!(!poison.refuses(DEADLY, Instant::now()), "once is no proof");
        advance(SUSPECTED.mul_f64(0.99)).await;
        assert!(poison.died(DEADLY, Instant::now()));
        assert!(poison.refuses(DEADLY, Instant::now()));
        assert!(!poison.refuses(2, Instant::now()));
        advance(REFUSED).await;
        assert!(!poison.refuses(DEADLY, Instant::now()));
        assert!(!poison.is_known(), "nothing is left to look up");
    }

    #[tokio::test(start_paused = true)]
    async fn deaths_far_apart_are_accidents() {
        let poison = Poison::default();
        poison.died(DEADLY, Instant::now());
        advance(SUSPECTED).await;
        assert!(!poison.died(DEADLY, Instant::now()));
        advance(SUSPECTED).await;
        assert!(!poison.refuses(2, Instant::now()));
        assert!(!poison.is_known());
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_in_between_clears_a_request() {
        let poison = Poison::default();
        poison.died(DEADLY, Instant::now());
        poison.answered(DEADLY);
        assert!(!poison.is_known());
        assert!(!poison.died(DEADLY, Instant::now()));
    }

    #[tokio::test(start_paused = true)]
    async fn only_so_many_are_remembered() {
        let poison = Poison::default();
        for request in 0..10 * MOST as u64 {
            poison.died(request, Instant::now());
            assert!(poison.table().len() <= MOST);
        }
    }
}
