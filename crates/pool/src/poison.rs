//! Requests that end workers: known by what they are, refused for a while after the second death.
//!
//! Without this one bad request, repeated by an impatient client, ends every worker of a pool. A
//! death alone proves nothing (an operator may kill workers, memory may run out for other reasons),
//! so an answer to the same request in between clears it.
//!
//! A request is all that PHP sees of it. Who kills workers by a header shuts nothing for clients
//! that do not send it. So a page with a bug would end a worker or two for each of its visitors,
//! whose headers differ. That is counted for the page: it is shut once requests of several clients,
//! or many of one, have ended workers, and no visitor got an answer in between.
//!
//! Several clients may be one attacker with several addresses. So a shut page is tried every few
//! seconds by a client whose requests have ended no worker. An answer opens the page, and from then
//! on the clients that had shut it count no more: they can only shut it for themselves.

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
/// A page is shut for all when requests of so many clients have ended workers.
const CLIENTS: usize = 3;
/// A page is shut for one client by so many deaths. More than two: all clients of a proxy that is
/// not trusted are one.
const DEATHS_OF_ONE: u32 = 6;
/// Of one page. Whoever has more addresses than these shuts it again and again.
const MOST_CLIENTS: usize = 64;
/// A page that is shut is tried so long after the last death, and after the last trial.
const TRIAL: Duration = Duration::from_secs(5);

/// By what a request is known again. Each is a number that nobody can foretell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// All that PHP sees of it, but for what is another number each time.
    pub request: u64,
    /// The part that is equal for all visitors of a page: without header fields.
    pub page: u64,
    /// The address that asks.
    pub client: u64,
}

/// A death shuts one of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shut {
    /// This request.
    Request,
    /// The page, for the client that asked now.
    PageForOne,
    /// The page, for all.
    PageForAll,
}

/// What is remembered. Empty as long as no worker dies, and then a call pays one load for it.
#[derive(Debug, Default)]
pub(crate) struct Poison {
    known: AtomicUsize,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    requests: HashMap<u64, Suspect>,
    pages: HashMap<u64, Page>,
}

#[derive(Debug, Clone, Copy)]
struct Suspect {
    refused: bool,
    until: Instant,
}

#[derive(Debug)]
struct Page {
    killers: Vec<Killer>,
    /// When it may be tried, if it is shut.
    trial: Instant,
    until: Instant,
}

/// A client whose requests for a page have ended workers.
#[derive(Debug)]
struct Killer {
    client: u64,
    deaths: u32,
    /// Whether nobody has got an answer since the first death.
    is_believed: bool,
}

impl Page {
    /// Counts a death of this client's request.
    fn died(&mut self, client: u64) {
        if let Some(killer) = self.killers.iter_mut().find(|it| it.client == client) {
            killer.deaths = killer.deaths.saturating_add(1);
            return;
        }
        if self.killers.len() >= MOST_CLIENTS {
            let least = self.killers.iter().position(|it| !it.is_believed);
            self.killers.remove(least.unwrap_or_default());
        }
        self.killers.push(Killer {
            client,
            deaths: 1,
            is_believed: true,
        });
    }

    /// The page can live. What this client did before was an accident.
    fn answered(&mut self, client: u64) {
        self.killers.retain(|it| it.client != client);
        for killer in &mut self.killers {
            killer.is_believed = false;
        }
    }

    fn is_shut_for_all(&self) -> bool {
        let believed = self.killers.iter().filter(|it| it.is_believed);
        believed.take(CLIENTS).count() == CLIENTS
    }

    fn deaths_of(&self, client: u64) -> u32 {
        let killer = self.killers.iter().find(|it| it.client == client);
        killer.map_or(0, |killer| killer.deaths)
    }

    fn is_shut_for(&self, client: u64) -> bool {
        self.is_shut_for_all() || self.deaths_of(client) >= DEATHS_OF_ONE
    }

    /// Lets one request of a shut page through, if it is time for a trial and this client would
    /// give a fair one.
    fn is_tried_by(&mut self, client: u64, now: Instant) -> bool {
        let is_fair = !self.is_shut_for_all() || self.deaths_of(client) == 0;
        let is_trial = is_fair && self.trial <= now;
        if is_trial {
            self.trial = now + TRIAL;
        }
        is_trial
    }
}

impl Table {
    /// Notes that a worker died with this request. Answers with what that shuts, if anything.
    fn died(&mut self, call: Identity, now: Instant) -> Option<Shut> {
        self.requests.retain(|_, suspect| suspect.until > now);
        self.pages.retain(|_, page| page.until > now);
        let request = self.request_died(call.request, now);
        self.page_died(call, now).or(request)
    }

    fn request_died(&mut self, request: u64, now: Instant) -> Option<Shut> {
        let refused = self.requests.contains_key(&request);
        if !refused {
            make_room(&mut self.requests, |suspect| suspect.until);
        }
        let until = now + if refused { REFUSED } else { SUSPECTED };
        self.requests.insert(request, Suspect { refused, until });
        refused.then_some(Shut::Request)
    }

    fn page_died(&mut self, call: Identity, now: Instant) -> Option<Shut> {
        if !self.pages.contains_key(&call.page) {
            make_room(&mut self.pages, |page| page.until);
        }
        let page = self.pages.entry(call.page).or_insert_with(|| Page {
            killers: Vec::new(),
            trial: now,
            until: now,
        });
        let (was_for_all, was_for_one) = (page.is_shut_for_all(), page.is_shut_for(call.client));
        page.died(call.client);
        page.trial = now + TRIAL;
        page.until = now + SUSPECTED;
        if page.is_shut_for_all() {
            return (!was_for_all).then_some(Shut::PageForAll);
        }
        (page.is_shut_for(call.client) && !was_for_one).then_some(Shut::PageForOne)
    }

    fn refuses(&mut self, call: Identity, now: Instant) -> bool {
        let suspect = self.requests.get(&call.request);
        if suspect.is_some_and(|suspect| suspect.refused && suspect.until > now) {
            return true;
        }
        let page = self.pages.get_mut(&call.page);
        let Some(page) = page.filter(|page| page.until > now && page.is_shut_for(call.client))
        else {
            return false;
        };
        !page.is_tried_by(call.client, now)
    }

    /// A worker lived through this request.
    fn answered(&mut self, call: Identity) {
        if let Some(page) = self.pages.get_mut(&call.page) {
            page.answered(call.client);
            if page.killers.is_empty() {
                self.pages.remove(&call.page);
            }
        }
        let suspect = self.requests.get(&call.request);
        if suspect.is_some_and(|suspect| !suspect.refused) {
            self.requests.remove(&call.request);
        }
    }

    /// The table must become empty again also when the requests in it never come back.
    fn forget(&mut self, now: Instant) {
        let is_over = self.requests.values().all(|suspect| suspect.until <= now)
            && self.pages.values().all(|page| page.until <= now);
        if is_over {
            self.requests.clear();
            self.pages.clear();
        }
    }
}

/// Makes room for one more by forgetting the entry that is over first.
fn make_room<T>(table: &mut HashMap<u64, T>, until: impl Fn(&T) -> Instant) {
    if table.len() < MOST {
        return;
    }
    let next = table.iter().min_by_key(|(_, entry)| until(entry));
    if let Some(next) = next.map(|(key, _)| *key) {
        table.remove(&next);
    }
}

impl Poison {
    /// Whether there is anything to ask about.
    pub(crate) fn is_known(&self) -> bool {
        self.known.load(Relaxed) != 0
    }

    /// Notes that a worker died with this request. Answers with what that shuts, if anything.
    pub(crate) fn died(&self, call: Identity, now: Instant) -> Option<Shut> {
        self.with_table(|table| table.died(call, now))
    }

    /// Whether this request is refused.
    pub(crate) fn refuses(&self, call: Identity, now: Instant) -> bool {
        self.with_table(|table| {
            table.forget(now);
            table.refuses(call, now)
        })
    }

    /// A worker lived through this request.
    pub(crate) fn answered(&self, call: Identity) {
        self.with_table(|table| table.answered(call));
    }

    fn with_table<R>(&self, step: impl FnOnce(&mut Table) -> R) -> R {
        let mut table = self.table();
        let result = step(&mut table);
        let known = table.requests.len().saturating_add(table.pages.len());
        self.known.store(known, Relaxed);
        result
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        lock(&self.table)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    /// One client's request for a page, with these header fields.
    fn asks(client: u64, fields: u64, page: u64) -> Identity {
        Identity {
            request: page << 32 | fields,
            page,
            client,
        }
    }

    fn deadly() -> Identity {
        asks(1, 1, 1)
    }

    #[tokio::test(start_paused = true)]
    async fn two_deaths_within_a_minute_are_refused_for_half_a_minute() {
        let poison = Poison::default();
        assert!(!poison.is_known());
        assert_eq!(poison.died(deadly(), Instant::now()), None);
        assert!(poison.is_known());
        assert!(
            !poison.refuses(deadly(), Instant::now()),
            "once is no proof"
        );
        advance(SUSPECTED.mul_f64(0.99)).await;
        assert_eq!(poison.died(deadly(), Instant::now()), Some(Shut::Request));
        assert!(poison.refuses(deadly(), Instant::now()));
        assert!(!poison.refuses(asks(1, 2, 1), Instant::now()));
        assert!(!poison.refuses(asks(1, 1, 2), Instant::now()));
        assert!(
            poison.refuses(asks(2, 1, 1), Instant::now()),
            "whoever asks"
        );
        advance(REFUSED).await;
        assert!(!poison.refuses(deadly(), Instant::now()));
        advance(SUSPECTED.saturating_sub(REFUSED)).await;
        assert!(!poison.refuses(deadly(), Instant::now()));
        assert!(!poison.is_known(), "nothing is left to look up");
    }

    #[tokio::test(start_paused = true)]
    async fn deaths_far_apart_are_accidents() {
        let poison = Poison::default();
        poison.died(deadly(), Instant::now());
        advance(SUSPECTED).await;
        assert_eq!(poison.died(deadly(), Instant::now()), None);
        advance(SUSPECTED).await;
        assert!(!poison.refuses(asks(2, 2, 2), Instant::now()));
        assert!(!poison.is_known());
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_in_between_clears_a_request() {
        let poison = Poison::default();
        poison.died(deadly(), Instant::now());
        poison.answered(deadly());
        assert!(!poison.is_known());
        assert_eq!(poison.died(deadly(), Instant::now()), None);
    }

    #[tokio::test(start_paused = true)]
    async fn one_client_shuts_a_page_for_nobody_else() {
        let poison = Poison::default();
        let now = Instant::now();
        for fields in 0..100 {
            // A safe request is tried twice.
            poison.died(asks(1, fields, 1), now);
            poison.died(asks(1, fields, 1), now);
            assert!(poison.refuses(asks(1, fields, 1), now));
            assert!(!poison.refuses(asks(2, 1000, 1), now));
        }
        assert!(poison.refuses(asks(1, 1000, 1), now), "he has tried enough");
        poison.answered(asks(2, 1000, 1));
        assert!(poison.refuses(asks(1, 1000, 1), now), "nothing is new");
        poison.answered(asks(1, 1000, 1));
        assert!(!poison.refuses(asks(1, 1000, 1), now), "he can ask rightly");
        assert!(poison.refuses(asks(1, 99, 1), now), "his request can't");
    }

    #[tokio::test(start_paused = true)]
    async fn a_page_that_dies_for_all_is_shut_by_the_third_client() {
        let poison = Poison::default();
        let now = Instant::now();
        let shut = (1..=4).map(|client| poison.died(asks(client, client, 1), now));
        let all = Some(Shut::PageForAll);
        assert_eq!(shut.collect::<Vec<_>>(), [None, None, all, None]);
        assert!(poison.refuses(asks(5, 5, 1), now));
        assert!(!poison.refuses(asks(5, 5, 2), now), "another page");
        // One in five seconds is let through.
        for _ in 0..10 {
            advance(TRIAL).await;
            let now = Instant::now();
            assert!(!poison.refuses(asks(6, 6, 1), now));
            assert!(poison.refuses(asks(7, 7, 1), now));
        }
        poison.answered(asks(6, 6, 1));
        assert!(!poison.refuses(asks(7, 7, 1), Instant::now()));
    }

    #[tokio::test(start_paused = true)]
    async fn who_has_shut_a_page_does_not_try_it() {
        let poison = Poison::default();
        for client in 1..=3 {
            poison.died(asks(client, client, 1), Instant::now());
        }
        advance(TRIAL).await;
        let now = Instant::now();
        assert!((1..=3).all(|client| poison.refuses(asks(client, 9, 1), now)));
        assert!(!poison.refuses(asks(4, 9, 1), now));
        poison.answered(asks(4, 9, 1));
        for client in 1..=3 {
            let another = asks(client, 10 + client, 1);
            assert!(!poison.refuses(another, now));
            assert_eq!(poison.died(another, now), None);
        }
        assert!(!poison.refuses(asks(5, 9, 1), now), "they are known");
        advance(SUSPECTED).await;
        assert!(!poison.refuses(asks(5, 9, 1), Instant::now()));
        assert!(!poison.is_known());
    }

    /// A site with few visitors, and killers of several addresses who never tire and are quicker.
    #[tokio::test(start_paused = true)]
    async fn each_address_of_a_killer_holds_a_page_shut_once() {
        const STEP: Duration = Duration::from_millis(100);
        const MINUTES: u64 = 3;
        for addresses in [1, 2, 3, 4, 11, MOST_CLIENTS as u64 - 1] {
            let poison = Poison::default();
            let mut refused = Duration::ZERO;
            for step in 0..MINUTES * 600 {
                advance(STEP).await;
                let now = Instant::now();
                for address in 1..=addresses {
                    let deadly = asks(address, address << 16 | step, 1);
                    if !poison.refuses(deadly, now) {
                        poison.died(deadly, now);
                    }
                }
                let visit = asks(1000 + step % 7, 0, 1);
                if poison.refuses(visit, now) {
                    refused += STEP;
                } else {
                    poison.answered(visit);
                }
            }
            let trials = u32::try_from(addresses).unwrap().saturating_sub(2);
            assert!(
                refused <= (TRIAL + STEP) * trials,
                "{addresses} addresses: {refused:?} of {MINUTES} min"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_is_refused_is_no_trial() {
        let poison = Poison::default();
        for client in 1..=CLIENTS as u64 {
            poison.died(asks(client, 1, 1), Instant::now());
        }
        advance(TRIAL).await;
        assert!(poison.refuses(deadly(), Instant::now()));
        assert!(!poison.refuses(asks(9, 2, 1), Instant::now()));
    }

    #[tokio::test(start_paused = true)]
    async fn clients_of_one_address_shut_a_page_by_their_number_of_deaths() {
        let poison = Poison::default();
        let now = Instant::now();
        for fields in 1..u64::from(DEATHS_OF_ONE) {
            assert_eq!(poison.died(asks(1, fields, 1), now), None);
        }
        let last = poison.died(asks(1, 100, 1), now);
        assert_eq!(last, Some(Shut::PageForOne));
        assert!(poison.refuses(asks(1, 101, 1), now));
    }

    #[tokio::test(start_paused = true)]
    async fn only_so_many_are_remembered() {
        let poison = Poison::default();
        for page in 0..10 * MOST as u64 {
            poison.died(asks(1, 1, page), Instant::now());
            let table = poison.table();
            assert!(table.requests.len() <= MOST && table.pages.len() <= MOST);
        }
    }
}
