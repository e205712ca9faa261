//! How much memory clients can make the server hold, and who goes when it is too much.
//!
//! A connection that holds more than an ordinary one has an [`Account`]; what it holds is a
//! [`Charge`] on it. Below three quarters of `http.client_memory` everybody gets what he needs.
//! From there on nothing begins that can be done without: bodies go to files earlier, replies stay
//! as long as they are. Beyond all of it one connection at a time is closed: of the address that
//! holds the most in all, the connection that holds the most, and of equals the one that began
//! first.
//!
//! Knows no protocol. What is counted is an estimate from above, made where it is taken.

use std::fmt;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use pronghorn_base::{Cut, LogThrottle, heaviest, lock};
use pronghorn_metrics::{Counter, Registry};
use pronghorn_pool::{QueueCounter, SpoolClient};

use crate::limits::Limits;
use crate::owner::{Owner, tell};
use crate::peer_address::{Household, PeerAddress};

/// Bytes that a request may hold without being counted: a head and the body that comes with it.
/// Ordinary requests cost nothing here.
pub const UNCOUNTED: usize = 16 << 10;

/// A connection gets what it could do without until it holds this share of all.
const OF_A_CONNECTION: usize = 8;
/// The same for an address, once half of all is taken.
const OF_AN_ADDRESS: usize = 4;

/// The memory that all clients of a service hold.
pub(crate) struct ClientMemory {
    owner: Owner,
    most: usize,
    /// The key of this limit, for records.
    key: &'static str,
    held: AtomicUsize,
    accounts: Mutex<Accounts>,
    closed: LogThrottle,
    counted: Option<Counter>,
}

#[derive(Default)]
struct Accounts {
    /// In the order in which they were opened.
    open: Vec<Weak<Account>>,
    /// How many there may be before those that are gone are looked for.
    sweep_at: usize,
}

/// The bytes that one connection holds.
pub(crate) struct Account {
    all: Arc<ClientMemory>,
    held: AtomicUsize,
    /// None for a proxy, who carries many clients, and for a client without an address.
    household: Option<Household>,
    address: PeerAddress,
    cut: Cut,
    /// By [`ClientBytes`].
    kept: [AtomicUsize; 4],
}

/// Kinds of memory of which a connection has one each: so no idle one has room for a [`Charge`].
#[derive(Debug, Clone, Copy)]
pub(crate) enum ClientBytes {
    Head,
    Input,
    Output,
    /// Pieces of a response that were not written yet.
    Queued,
}

/// Whose memory it is: what is shared out among clients goes by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holder {
    Household(Household),
    /// One that carries many clients, or has no address.
    Connection(usize),
}

/// Memory that is held for a client until this is dropped.
#[derive(Default)]
pub struct Charge {
    account: Option<Arc<Account>>,
    bytes: usize,
}

impl ClientMemory {
    /// Says in `metrics` how much is held, if there are any.
    pub(crate) fn new(owner: Owner, limits: &Limits, metrics: Option<&Registry>) -> Arc<Self> {
        let counted = metrics.map(|metrics| {
            metrics.counter(
                "connections_over_memory_total",
                "Connections that were closed because clients held more than `client_memory`.",
            )
        });
        let memory = Arc::new(Self {
            owner,
            most: limits.memory,
            key: limits.memory_key,
            held: AtomicUsize::new(0),
            accounts: Mutex::default(),
            closed: LogThrottle::new(),
            counted,
        });
        if let Some(metrics) = metrics {
            let told = Arc::downgrade(&memory);
            metrics.present(
                "client_memory_bytes",
                "Memory that is held for clients, ordinary requests aside.",
                move || {
                    let held = told.upgrade().map_or(0, |memory| memory.held());
                    // Terabytes are not held.
                    u32::try_from(held >> 10).map_or(f64::INFINITY, |held| f64::from(held) * 1024.0)
                },
            );
        }
        memory
    }

    /// For a connection that begins to hold something.
    pub(crate) fn open(
        self: &Arc<Self>,
        household: Option<Household>,
        address: PeerAddress,
        cut: Cut,
    ) -> Arc<Account> {
        /// Fewer are not worth a look.
        const SWEEP: usize = 64;
        let account = Arc::new(Account {
            all: self.clone(),
            held: AtomicUsize::new(0),
            household,
            address,
            cut,
            kept: Default::default(),
        });
        let mut accounts = lock(&self.accounts);
        if accounts.open.len() >= accounts.sweep_at {
            accounts.open.retain(|account| account.strong_count() > 0);
            accounts.sweep_at = SWEEP.max(2 * accounts.open.len());
            let most = accounts.sweep_at;
            accounts.open.shrink_to(most);
        }
        accounts.open.push(Arc::downgrade(&account));
        account
    }

    fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    /// From here on nothing begins that can be done without.
    pub(crate) fn is_tight(&self) -> bool {
        self.held() >= self.most / 4 * 3
    }

    fn of_household(&self, household: Household) -> usize {
        let accounts = lock(&self.accounts);
        let open = accounts.open.iter().filter_map(Weak::upgrade);
        open.filter(|account| account.household == Some(household))
            .map(|account| account.held())
            .sum()
    }

    /// Closes connections until the others hold no more than there is.
    fn relieve(&self) {
        let accounts: Vec<_> = {
            let accounts = lock(&self.accounts);
            accounts.open.iter().filter_map(Weak::upgrade).collect()
        };
        let (leaving, mut staying): (Vec<_>, Vec<_>) = accounts
            .into_iter()
            .filter(|account| account.held() > 0)
            .partition(|account| account.cut.is_cut());
        let leaving: usize = leaving.iter().map(|account| account.held()).sum();
        let mut over = self
            .held()
            .saturating_sub(leaving.saturating_add(self.most));
        while over > 0 {
            let holders = staying.iter().map(|it| (it.household, it.held() as u64));
            let Some(at) = heaviest(holders) else {
                return;
            };
            let account = staying.remove(at);
            over = over.saturating_sub(account.held());
            account.cut.cut();
            self.tell(&account);
        }
    }

    fn tell(&self, account: &Account) {
        if let Some(counted) = &self.counted {
            counted.increment();
        }
        if let Some(connections) = self.closed.should_log() {
            let key = self.key;
            tell!(
                self.owner, warn, connections, remote_address = %account.address,
                bytes = account.held(), limit = self.most,
                "connections closed: clients hold more memory than `{key}`, and these hold the most"
            );
        }
    }
}

impl Account {
    fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    /// A charge of nothing yet.
    pub(crate) fn charge(self: &Arc<Self>) -> Charge {
        Charge {
            account: Some(self.clone()),
            bytes: 0,
        }
    }

    /// So much of it is held now, by the connection's one task.
    pub(crate) fn keep(&self, what: ClientBytes, bytes: usize) {
        let before = self.kept[what as usize].swap(bytes, Ordering::Relaxed);
        if bytes > before {
            self.take(bytes - before);
        } else if bytes < before {
            self.give_back(before - bytes);
        }
    }

    /// Whether the connection may take what it can do without.
    pub(crate) fn has_room(&self) -> bool {
        let all = &self.all;
        let held = all.held();
        if all.is_tight() || self.held() >= all.most / OF_A_CONNECTION {
            return false;
        }
        match self.household {
            Some(household) if held > all.most / 2 => {
                all.of_household(household) < all.most / OF_AN_ADDRESS
            }
            _ => true,
        }
    }

    fn take(&self, bytes: usize) {
        self.held.fetch_add(bytes, Ordering::Relaxed);
        let before = self.all.held.fetch_add(bytes, Ordering::Relaxed);
        if before.saturating_add(bytes) > self.all.most {
            self.all.relieve();
        }
    }

    fn give_back(&self, bytes: usize) {
        self.held.fetch_sub(bytes, Ordering::Relaxed);
        self.all.held.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl SpoolClient for Account {
    fn network(&self) -> Option<IpAddr> {
        self.household.map(Household::network)
    }

    fn close(&self) {
        self.cut.cut();
    }

    fn is_closing(&self) -> bool {
        self.cut.is_cut()
    }
}

impl QueueCounter for Account {
    fn waits(&self, bytes: usize) {
        self.keep(ClientBytes::Queued, bytes);
    }
}

/// A client whom a trusted proxy tells of. With it ends the proxy's connection.
#[derive(Debug)]
struct BehindProxy {
    account: Arc<Account>,
    network: IpAddr,
}

impl fmt::Display for BehindProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} behind {}", self.network, self.account)
    }
}

impl SpoolClient for BehindProxy {
    fn network(&self) -> Option<IpAddr> {
        Some(self.network)
    }

    fn close(&self) {
        self.account.close();
    }

    fn is_closing(&self) -> bool {
        self.account.is_closing()
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        let kept = self.kept.iter().map(|bytes| bytes.load(Ordering::Relaxed));
        self.give_back(kept.sum());
    }
}

impl Charge {
    /// So much is held now. Where there is no room for it, somebody goes.
    pub fn set(&mut self, bytes: usize) {
        let Some(account) = &self.account else {
            return;
        };
        if bytes > self.bytes {
            account.take(bytes - self.bytes);
        } else {
            account.give_back(self.bytes - bytes);
        }
        self.bytes = bytes;
    }

    /// The same for work that can be left: not where all clients together may hold less, or the
    /// connection is being closed.
    ///
    /// # Errors
    ///
    /// The key of the limit.
    pub fn try_set(&mut self, bytes: usize) -> Result<(), &'static str> {
        let Some(account) = self.account.clone() else {
            return Ok(());
        };
        if bytes > account.all.most {
            return Err(account.all.key);
        }
        self.set(bytes);
        if account.cut.is_cut() {
            return Err(account.all.key);
        }
        Ok(())
    }

    /// Who holds it. None where nothing is counted.
    pub fn holder(&self) -> Option<Holder> {
        let account = self.account.as_ref()?;
        let connection = || Holder::Connection(Arc::as_ptr(account).addr());
        Some(account.household.map_or_else(connection, Holder::Household))
    }

    /// So much more is held now.
    pub(crate) fn add(&mut self, bytes: usize) {
        self.set(self.bytes + bytes);
    }

    /// Who holds it, for files that are kept for the same client. Of one that a proxy tells of, its
    /// own address counts.
    pub fn client(&self, address: PeerAddress) -> Option<Arc<dyn SpoolClient>> {
        let account = self.account.clone()?;
        match address {
            PeerAddress::Told(ip) => {
                let network = Household::of(ip).network();
                Some(Arc::new(BehindProxy { account, network }))
            }
            PeerAddress::Ip(_) | PeerAddress::Unix => Some(account),
        }
    }

    /// Whether nothing is counted here, and never will be.
    pub fn is_none(&self) -> bool {
        self.account.is_none()
    }

    /// Waits, before more is read, while clients hold more than they may: those that have to go
    /// give up theirs first.
    pub async fn fits(&self) {
        /// After that it goes on: the connections that have to go wait for other threads.
        const TURNS: usize = 1000;
        const TURN: Duration = Duration::from_millis(1);
        let Some(account) = &self.account else {
            return;
        };
        let all = &account.all;
        for _ in 0..TURNS {
            if all.held() <= all.most || account.cut.is_cut() {
                return;
            }
            tokio::time::sleep(TURN).await;
        }
    }

    /// Whether more may be held that could be done without.
    pub fn has_room(&self) -> bool {
        self.account
            .as_ref()
            .is_none_or(|account| account.has_room())
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        if let Some(account) = &self.account {
            account.give_back(self.bytes);
        }
    }
}

impl fmt::Debug for ClientMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientMemory")
            .field("most", &self.most)
            .field("held", &self.held())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Account").field(&self.address).finish()
    }
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address.fmt(f)
    }
}

impl fmt::Debug for Charge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Charge").field(&self.bytes).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Waker};

    use pronghorn_base::{Place, Standings};

    use super::*;

    const MOST: usize = 800;

    struct Client {
        place: Place,
        account: Arc<Account>,
    }

    fn limits() -> Limits {
        Limits {
            memory: MOST,
            ..Limits::default()
        }
    }

    fn client(memory: &Arc<ClientMemory>, address: Option<&str>) -> Client {
        let place = Arc::new(Standings::default()).enter();
        let ip: Option<IpAddr> = address.map(|text| text.parse().expect(text));
        let account = memory.open(ip.map(Household::of), PeerAddress::Unix, place.cut());
        Client { place, account }
    }

    fn is_closed(client: &Client) -> bool {
        let context = Context::from_waker(Waker::noop());
        client.place.poll_evicted(&context).is_ready()
    }

    fn holds(client: &Client, bytes: usize) -> Charge {
        let mut charge = client.account.charge();
        charge.set(bytes);
        charge
    }

    #[test]
    fn of_the_address_that_holds_the_most_the_heaviest_connection_goes() {
        let memory = ClientMemory::new(Owner::Http, &limits(), None);
        let alone = client(&memory, Some("192.0.2.1"));
        let crowd: Vec<_> = (0..3).map(|_| client(&memory, Some("192.0.2.2"))).collect();
        let proxies: Vec<_> = (0..2).map(|_| client(&memory, None)).collect();
        let _held = [
            holds(&alone, 200),
            holds(&crowd[0], 90),
            holds(&crowd[1], 100),
            holds(&crowd[2], 100),
            holds(&proxies[0], 150),
            holds(&proxies[1], 150),
        ];
        assert!(
            ![&alone]
                .into_iter()
                .chain(&crowd)
                .chain(&proxies)
                .any(is_closed)
        );
        let _more = holds(&proxies[0], 11);
        let closed: Vec<_> = crowd.iter().map(is_closed).collect();
        assert_eq!(closed, [false, true, false], "of equals the first one");
        assert!(!is_closed(&alone) && !proxies.iter().any(is_closed));
        let _yet_more = holds(&alone, 50);
        assert!(
            !is_closed(&alone),
            "there is room once the closed one has gone"
        );
    }

    #[test]
    fn work_that_takes_too_much_is_refused() {
        let memory = ClientMemory::new(Owner::Http, &limits(), None);
        let (greedy, other) = (client(&memory, None), client(&memory, None));
        let mut charge = greedy.account.charge();
        assert!(charge.try_set(MOST + 1).is_err());
        assert_eq!(memory.held(), 0, "nobody goes for what can't be");
        assert!(!is_closed(&greedy));
        let _held = holds(&other, MOST / 4);
        assert!(charge.try_set(MOST).is_err(), "it holds the most");
        assert!(is_closed(&greedy) && !is_closed(&other));
        let mut charge = other.account.charge();
        assert_eq!(charge.try_set(MOST / 4), Ok(()));
        assert_eq!(Charge::default().try_set(MOST + 1), Ok(()));
    }

    #[test]
    fn one_that_is_closed_makes_room_once() {
        let memory = ClientMemory::new(Owner::Http, &limits(), None);
        let (greedy, other) = (client(&memory, None), client(&memory, None));
        let most = holds(&greedy, MOST + 1);
        assert!(is_closed(&greedy));
        let mine = holds(&other, MOST);
        assert!(!is_closed(&other));
        drop(most);
        assert_eq!(memory.held(), MOST);
        drop(mine);
        assert_eq!(memory.held(), 0);
    }

    #[test]
    fn what_a_connection_keeps_goes_with_it() {
        let memory = ClientMemory::new(Owner::Http, &limits(), None);
        let one = client(&memory, None);
        one.account.keep(ClientBytes::Head, 100);
        one.account.keep(ClientBytes::Input, 200);
        one.account.keep(ClientBytes::Input, 50);
        assert_eq!(memory.held(), 150);
        one.account.keep(ClientBytes::Head, 0);
        assert_eq!(memory.held(), 50);
        drop(one);
        assert_eq!(memory.held(), 0);
    }

    #[test]
    fn what_can_be_done_without_ends_before_the_memory_does() {
        let memory = ClientMemory::new(Owner::Http, &limits(), None);
        let (one, same, other) = (
            client(&memory, Some("192.0.2.1")),
            client(&memory, Some("192.0.2.1")),
            client(&memory, Some("192.0.2.2")),
        );
        let mut charge = holds(&one, MOST / OF_A_CONNECTION - 1);
        assert!(charge.has_room());
        charge.set(MOST / OF_A_CONNECTION);
        assert!(!charge.has_room() && same.account.has_room());
        charge.set(MOST / 2 + 1);
        assert!(!same.account.has_room() && other.account.has_room());
        charge.set(MOST / 4 * 3);
        assert!(!other.account.has_room());
    }

    #[test]
    fn who_is_gone_is_forgotten() {
        let memory = ClientMemory::new(Owner::Http, &limits(), None);
        for _ in 0..1000 {
            drop(client(&memory, None));
        }
        assert!(lock(&memory.accounts).open.len() < 130);
    }
}
