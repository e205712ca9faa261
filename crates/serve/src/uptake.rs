//! Whether a client takes what it is sent. A socket says late that it has room: not before a third
//! of its buffer is free, and a buffer may be megabytes. What the client acknowledges says so at
//! once. The kernel is asked while a response has waited for a moment, and not before.

use std::time::Duration;

use tokio::time::Instant;

use crate::limits::Limits;

/// Until the first look, and between two while the client takes something.
const LOOK: Duration = Duration::from_millis(250);
/// Between two looks at a client that takes nothing.
const LATER_LOOK: Duration = Duration::from_secs(2);
/// Over HTTP/2, what is on its way without a body in it: answers to pings, and what encrypts them.
const NO_BODY: u64 = 1 << 10;

/// How a client takes a response, or those of a connection, while they wait for it.
#[derive(Debug, Default)]
pub(crate) struct Uptake {
    wait: Option<Wait>,
    last: Option<Seen>,
    /// Bytes that it had taken at the first look.
    at_first: i64,
    /// The most that it has taken, as far as is known.
    taken: i64,
    /// In waits that lasted until a look.
    waited: Duration,
}

#[derive(Debug)]
struct Wait {
    begun: Instant,
    /// When the client took something last.
    moved: Instant,
    look: Instant,
    was_looked: bool,
}

/// The numbers of a look.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen {
    /// Bytes of bodies that the socket, or what encrypts for it, has been given.
    pub(crate) sent: u64,
    /// Bytes after the last one of a body.
    pub(crate) after: u64,
    /// Bytes of which the client has acknowledged none.
    pub(crate) untaken: Option<u32>,
    /// The socket has no room for more of a body.
    pub(crate) is_blocked: bool,
}

/// The outcome of a look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Look {
    /// It was the first one: there is nothing to compare with.
    First,
    /// The client has taken something.
    Moved,
    /// It has taken nothing since then.
    Still(Instant),
}

impl Seen {
    fn taken(&self) -> i64 {
        let sent = i64::try_from(self.sent).unwrap_or(i64::MAX);
        sent.saturating_sub(self.untaken.unwrap_or(0).into())
    }

    /// Bytes of a body are on their way to the client, which alone are what it takes: one that
    /// pings reads no response.
    fn has_body(&self) -> bool {
        let others = self.after.saturating_mul(4).saturating_add(NO_BODY);
        self.is_blocked || u64::from(self.untaken.unwrap_or(0)) > others
    }
}

impl Uptake {
    /// Something waits for the client.
    pub(crate) fn begin(&mut self) {
        if self.wait.is_none() {
            let now = Instant::now();
            self.wait = Some(Wait {
                begun: now,
                moved: now,
                look: now + LOOK,
                was_looked: false,
            });
        }
    }

    /// Nothing waits any more. Whether something did.
    pub(crate) fn end(&mut self) -> bool {
        let Some(wait) = self.wait.take() else {
            return false;
        };
        if wait.was_looked {
            self.waited += wait.begun.elapsed();
        }
        true
    }

    /// When the next look is due.
    pub(crate) fn next_look(&self) -> Option<Instant> {
        self.wait.as_ref().map(|wait| wait.look)
    }

    /// The next look is due, and comes when it can.
    pub(crate) fn put_off(&mut self) {
        if let Some(wait) = &mut self.wait {
            wait.look = Instant::now() + LOOK;
        }
    }

    /// Until when the client must have taken something.
    pub(crate) fn until(&self, limits: &Limits) -> Option<Instant> {
        let wait = self.wait.as_ref()?;
        let taken = u64::try_from(self.taken - self.at_first).unwrap_or(0);
        Some(limits.untaken_until(wait.begun, wait.moved, taken, self.waited))
    }

    /// Compares with the last look.
    pub(crate) fn look(&mut self, seen: Seen) -> Look {
        let now = Instant::now();
        let Some(wait) = &mut self.wait else {
            return Look::First;
        };
        let taken = seen.taken();
        let last = self.last.replace(seen);
        let outcome = match last {
            None => {
                self.at_first = taken;
                self.taken = taken;
                Look::First
            }
            Some(last) if seen.sent > last.sent => Look::Moved,
            Some(last) if taken > self.taken && last.has_body() => Look::Moved,
            Some(_) if wait.was_looked => Look::Still(wait.moved),
            Some(_) => Look::First,
        };
        self.taken = self.taken.max(taken);
        if outcome == Look::Moved {
            wait.moved = now;
        }
        wait.was_looked = true;
        wait.look = now + (now - wait.moved).clamp(LOOK, LATER_LOOK);
        outcome
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    fn seen(sent: u64, untaken: u32) -> Seen {
        Seen {
            sent,
            after: 0,
            untaken: Some(untaken),
            is_blocked: true,
        }
    }

    /// Looks when it is due, with one look of the client at each.
    async fn looks(uptake: &mut Uptake, seen: impl IntoIterator<Item = Seen>) -> Vec<Look> {
        let mut looks = Vec::new();
        for seen in seen {
            let due = uptake.next_look().expect("it waits");
            advance(due - Instant::now()).await;
            looks.push(uptake.look(seen));
        }
        looks
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_client_has_time_and_one_that_takes_nothing_has_not() {
        let limits = Limits::default();
        let mut uptake = Uptake::default();
        uptake.begin();
        let begun = Instant::now();
        let slow = (0..400).map(|look| seen(4 << 20, (4 << 20) - 2_500 * look));
        let found = looks(&mut uptake, slow).await;
        assert!(found[1..].iter().all(|look| *look == Look::Moved));
        assert!(begun.elapsed() > limits.send_pause);
        assert!(uptake.until(&limits) > Some(Instant::now() + limits.send_pause / 2));
        let moved = Instant::now();
        let nothing = [seen(4 << 20, (4 << 20) - 2_500 * 399); 40];
        let found = looks(&mut uptake, nothing).await;
        assert!(found.iter().all(|look| *look == Look::Still(moved)));
        assert_eq!(uptake.until(&limits), Some(moved + limits.send_pause));
        assert!(moved.elapsed() > limits.send_pause);
    }

    #[tokio::test(start_paused = true)]
    async fn bytes_that_trickle_do_not_keep_a_connection() {
        let limits = Limits::default();
        let mut uptake = Uptake::default();
        uptake.begin();
        let begun = Instant::now();
        let trickle = (0..400).map(|look| seen(4 << 20, (4 << 20) - look));
        looks(&mut uptake, trickle).await;
        assert_eq!(uptake.until(&limits), Some(begun + limits.send_pause));
    }

    #[tokio::test(start_paused = true)]
    async fn answers_to_pings_are_nothing_that_is_taken() {
        let mut uptake = Uptake::default();
        uptake.begin();
        let ping = |after, untaken| Seen {
            sent: 1 << 16,
            after,
            untaken: Some(untaken),
            is_blocked: false,
        };
        let pings = (1..20).flat_map(|at| [ping(17 * at, 46), ping(17 * at, 0)]);
        let found = looks(&mut uptake, pings).await;
        assert!(!found.contains(&Look::Moved), "{found:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn where_the_kernel_says_nothing_room_alone_counts() {
        let mut uptake = Uptake::default();
        uptake.begin();
        let unknown = Seen {
            untaken: None,
            ..seen(1000, 0)
        };
        let begun = Instant::now();
        let found = looks(&mut uptake, [unknown; 3]).await;
        assert_eq!(found[1..], [Look::Still(begun); 2]);
        assert!(uptake.end() && !uptake.end());
    }
}
