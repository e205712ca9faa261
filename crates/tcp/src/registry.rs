//! The connections that there are, and what others want of them.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use bytes::Bytes;
use pronghorn_base::{lock, millis, since_1970};
use thiserror::Error;
use tokio::sync::Notify;

use crate::id::ConnectionId;

/// Bytes that may wait for one connection. A client that takes nothing is not written to for ever.
const MOST_WAITING: usize = 1 << 20;
/// Writes that may wait, each of which takes memory beside its bytes.
const MOST_WRITES: usize = 1024;

/// All connections of a service.
#[derive(Debug, Default)]
pub(crate) struct Registry(Mutex<HashMap<ConnectionId, Arc<ConnectionEntry>>>);

/// A connection as others see it.
#[derive(Debug)]
pub(crate) struct ConnectionEntry {
    pub(crate) id: ConnectionId,
    /// The same as text: each message has it.
    pub(crate) uuid: Box<str>,
    pub(crate) server: Arc<str>,
    pub(crate) remote: Box<str>,
    pub(crate) tls: bool,
    /// The subject of the client's certificate; empty where it has shown none that counts.
    pub(crate) certificate: Box<str>,
    /// Milliseconds since 1970.
    pub(crate) since: u64,
    pub(crate) messages: AtomicU64,
    pub(crate) received: AtomicU64,
    pub(crate) sent: AtomicU64,
    orders: Mutex<Orders>,
    /// Tells the connection's task of orders.
    pub(crate) told: Notify,
}

#[derive(Debug, Default)]
struct Orders {
    writes: VecDeque<Bytes>,
    waiting: usize,
    close: bool,
}

/// An order of others for a connection.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ConnectionOrder {
    Write(Bytes),
    /// After all that was to be written before.
    Close,
}

/// Why nothing is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(crate) enum NotWritten {
    #[error("the client does not take what waits for it: {0} bytes")]
    Full(usize),
    #[error("the connection ends")]
    Closing,
}

/// Keeps a connection in the registry.
#[derive(Debug)]
pub(crate) struct Registered {
    registry: Arc<Registry>,
    pub(crate) entry: Arc<ConnectionEntry>,
}

impl Registry {
    pub(crate) fn add(self: &Arc<Self>, entry: ConnectionEntry) -> Registered {
        let entry = Arc::new(entry);
        lock(&self.0).insert(entry.id, entry.clone());
        Registered {
            registry: self.clone(),
            entry,
        }
    }

    pub(crate) fn get(&self, id: ConnectionId) -> Option<Arc<ConnectionEntry>> {
        lock(&self.0).get(&id).cloned()
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        lock(&self.0).len()
    }

    /// The oldest ones, of one server or all.
    pub(crate) fn list(&self, server: Option<&str>, most: usize) -> Vec<Arc<ConnectionEntry>> {
        let is_of =
            |entry: &&Arc<ConnectionEntry>| server.is_none_or(|name| &*entry.server == name);
        let mut all: Vec<_> = lock(&self.0).values().filter(is_of).cloned().collect();
        all.sort_by_key(|entry| entry.since);
        all.truncate(most);
        all
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        let mut all = lock(&self.registry.0);
        all.remove(&self.entry.id);
        // Ten thousand that have gone leave no table for as many.
        if all.len() < all.capacity() / 4 {
            all.shrink_to(64);
        }
    }
}

impl ConnectionEntry {
    pub(crate) fn new(
        server: Arc<str>,
        remote: Box<str>,
        tls: bool,
        certificate: Box<str>,
    ) -> Self {
        let id = ConnectionId::random();
        Self {
            id,
            uuid: id.to_string().into_boxed_str(),
            server,
            remote,
            tls,
            certificate,
            since: millis(since_1970(SystemTime::now())),
            messages: AtomicU64::new(0),
            received: AtomicU64::new(0),
            sent: AtomicU64::new(0),
            orders: Mutex::default(),
            told: Notify::new(),
        }
    }

    /// Has bytes sent to the client, behind those that wait.
    pub(crate) fn write(&self, bytes: Bytes) -> Result<(), NotWritten> {
        let mut orders = lock(&self.orders);
        if orders.close {
            return Err(NotWritten::Closing);
        }
        let waiting = orders.waiting.saturating_add(bytes.len());
        let is_full = waiting > MOST_WAITING || orders.writes.len() >= MOST_WRITES;
        if is_full && !orders.writes.is_empty() {
            return Err(NotWritten::Full(orders.waiting));
        }
        orders.waiting = waiting;
        orders.writes.push_back(bytes);
        drop(orders);
        self.told.notify_one();
        Ok(())
    }

    /// Ends the connection.
    pub(crate) fn close(&self) {
        lock(&self.orders).close = true;
        self.told.notify_one();
    }

    /// Bytes that wait to be written.
    pub(crate) fn waiting(&self) -> usize {
        lock(&self.orders).waiting
    }

    /// The next order, for the connection's own task.
    pub(crate) fn next_order(&self) -> Option<ConnectionOrder> {
        let mut orders = lock(&self.orders);
        let Some(bytes) = orders.writes.pop_front() else {
            orders.writes = VecDeque::new();
            return orders.close.then_some(ConnectionOrder::Close);
        };
        orders.waiting = orders.waiting.saturating_sub(bytes.len());
        Some(ConnectionOrder::Write(bytes))
    }

    pub(crate) fn count(counter: &AtomicU64, more: usize) {
        counter.fetch_add(more as u64, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(server: &str) -> ConnectionEntry {
        ConnectionEntry::new(server.into(), "127.0.0.1:1".into(), false, "".into())
    }

    #[test]
    fn a_connection_is_found_while_it_is_there() {
        let registry = Arc::new(Registry::default());
        let (one, other) = (registry.add(entry("a")), registry.add(entry("b")));
        assert_eq!(registry.len(), 2);
        assert!(registry.get(one.entry.id).is_some());
        assert_eq!(registry.list(Some("b"), 10).len(), 1);
        assert_eq!(registry.list(None, 1).len(), 1);
        let gone = one.entry.id;
        drop(one);
        assert!(registry.get(gone).is_none());
        drop(other);
        assert_eq!(registry.len(), 0);
    }

    #[test]
    fn what_waits_for_a_client_has_a_limit() {
        let entry = entry("a");
        let large = Bytes::from(vec![0; MOST_WAITING + 1]);
        assert_eq!(entry.write(large.clone()), Ok(()), "one always has room");
        assert_eq!(entry.write(large), Err(NotWritten::Full(MOST_WAITING + 1)));
        assert!(matches!(
            entry.next_order(),
            Some(ConnectionOrder::Write(_))
        ));
        for _ in 0..MOST_WRITES {
            assert_eq!(entry.write(Bytes::new()), Ok(()));
        }
        assert_eq!(entry.write(Bytes::new()), Err(NotWritten::Full(0)));
        entry.close();
        assert_eq!(entry.write(Bytes::new()), Err(NotWritten::Closing));
        for _ in 0..MOST_WRITES {
            assert_eq!(
                entry.next_order(),
                Some(ConnectionOrder::Write(Bytes::new()))
            );
        }
        assert_eq!(
            entry.next_order(),
            Some(ConnectionOrder::Close),
            "after what was to be written"
        );
        assert_eq!(entry.next_order(), Some(ConnectionOrder::Close));
    }
}
