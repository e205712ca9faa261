//! A light load on a server, every reply of it checked.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{JoinHandle, sleep};
use std::time::Duration;

use crate::{Connection, Response, wait_for};

/// Between two requests of a client: the load shows what breaks, not how fast it goes.
const PAUSE: Duration = Duration::from_millis(2);

/// Clients that ask until they are told to stop: two keep their connections, two open one for each
/// request.
///
/// Each request goes to `/number?n=…` with a number of its own, which must be the last word of the
/// reply.
#[derive(Debug)]
pub struct Load {
    clients: Vec<JoinHandle<u64>>,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    ends: AtomicBool,
    next: AtomicU64,
    answered: AtomicU64,
}

impl Load {
    pub fn start(address: SocketAddr) -> Self {
        let shared = Arc::new(Shared::default());
        let client = |keeps: bool| {
            let shared = shared.clone();
            std::thread::spawn(move || ask(address, keeps, &shared))
        };
        let clients = [true, true, false, false].map(client).into();
        Self { clients, shared }
    }

    /// Waits until so many more requests were answered.
    ///
    /// # Panics
    ///
    /// When they are not.
    pub fn go_on(&self, requests: u64) {
        let wanted = self.shared.answered.load(Ordering::Relaxed) + requests;
        wait_for("replies", || {
            let dead = self.clients.iter().any(JoinHandle::is_finished);
            (dead || self.shared.answered.load(Ordering::Relaxed) >= wanted).then_some(())
        });
    }

    /// Ends the load. Returns how many requests were answered.
    ///
    /// # Panics
    ///
    /// When one of them was not answered as it should.
    pub fn finish(self) -> u64 {
        self.shared.ends.store(true, Ordering::Relaxed);
        let answered = self.clients.into_iter().map(|client| {
            client
                .join()
                .expect("every request is answered, by its own reply")
        });
        answered.sum()
    }
}

fn ask(address: SocketAddr, keeps: bool, shared: &Shared) -> u64 {
    let mut kept: Option<Connection> = None;
    let mut answered = 0;
    while !shared.ends.load(Ordering::Relaxed) {
        let number = shared.next.fetch_add(1, Ordering::Relaxed);
        let mut connection = kept.take().unwrap_or_else(|| Connection::open(address));
        let fields = if keeps { "" } else { "Connection: close\r\n" };
        connection.request("GET", &format!("/number?n={number}"), fields);
        let reply = connection.response();
        check(&reply, number);
        answered += 1;
        shared.answered.fetch_add(1, Ordering::Relaxed);
        if keeps && reply.header("connection") != Some("close") {
            kept = Some(connection);
        }
        sleep(PAUSE);
    }
    answered
}

fn check(reply: &Response, number: u64) {
    let text = reply.text();
    let last = text.split_whitespace().next_back();
    assert!(
        reply.status == 200 && last == Some(&number.to_string()),
        "request {number} was answered {}: {text}",
        reply.status
    );
}
