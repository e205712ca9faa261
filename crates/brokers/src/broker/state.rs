//! The jobs that were brought from a broker. Knows no broker and no clock.

use pronghorn_queue::{Delivery, Job, Ready, Ticket};

use std::collections::HashMap;
use std::sync::Arc;

#[derive(Clone, Debug)]
pub(super) struct BroughtJob<T> {
    pub(super) job: Arc<Job>,
    pub(super) token: T,
    /// The connection that brought it.
    pub(super) link: u64,
}

#[derive(Debug)]
pub(super) struct BroughtJobs<T> {
    /// Free workers.
    wanted: usize,
    pub(super) paused: bool,
    pub(super) closing: bool,
    /// No worker has them yet.
    ready: Ready<BroughtJob<T>>,
    reserved: HashMap<Ticket, BroughtJob<T>>,
    number: u64,
}

impl<T: Clone> BroughtJobs<T> {
    pub(super) fn new() -> Self {
        Self {
            wanted: 0,
            paused: true,
            closing: false,
            ready: Ready::new(),
            reserved: HashMap::new(),
            number: 0,
        }
    }

    /// True when that changes what is to be done.
    pub(super) fn want(&mut self, jobs: usize) -> bool {
        let before = self.lacking();
        self.wanted = jobs;
        self.lacking() != before
    }

    /// How many jobs are to be brought.
    pub(super) fn lacking(&self) -> usize {
        if self.paused || self.closing {
            return 0;
        }
        self.wanted.saturating_sub(self.ready.len())
    }

    pub(super) fn brought(&mut self, entry: BroughtJob<T>) {
        self.ready.push(entry.job.priority, entry);
    }

    pub(super) fn head(&self) -> Option<i64> {
        self.ready.best().filter(|_| !self.paused)
    }

    pub(super) fn take(&mut self) -> Option<Delivery> {
        if self.paused || self.closing {
            return None;
        }
        let entry = self.ready.pop()?;
        self.wanted = self.wanted.saturating_sub(1);
        self.number += 1;
        let ticket = Ticket(self.number);
        let job = entry.job.clone();
        self.reserved.insert(ticket, entry);
        Some(Delivery { job, ticket })
    }

    pub(super) fn reserved(&self, ticket: Ticket) -> Option<BroughtJob<T>> {
        self.reserved.get(&ticket).cloned()
    }

    pub(super) fn settled(&mut self, ticket: Ticket) {
        self.reserved.remove(&ticket);
    }

    /// It is the next one of its priority.
    pub(super) fn put_back(&mut self, ticket: Ticket) {
        if let Some(entry) = self.reserved.remove(&ticket) {
            self.ready.push_front(entry.job.priority, entry);
        }
    }

    /// The jobs that no worker has, when none is free for them.
    pub(super) fn take_idle(&mut self) -> Vec<BroughtJob<T>> {
        if self.wanted > 0 && !self.paused {
            return Vec::new();
        }
        std::iter::from_fn(|| self.ready.pop()).collect()
    }

    /// Nothing happens before somebody wants something.
    pub(super) fn is_asleep(&self) -> bool {
        !self.closing && self.lacking() == 0 && self.ready.is_empty()
    }

    /// None of the broker's jobs is here or is to come.
    pub(super) fn has_none(&self) -> bool {
        self.is_asleep() && self.reserved.is_empty()
    }

    pub(super) fn take_all(&mut self) -> Vec<BroughtJob<T>> {
        let idle = std::iter::from_fn(|| self.ready.pop());
        let mut all: Vec<_> = idle.collect();
        all.extend(self.reserved.drain().map(|(_, entry)| entry));
        all
    }

    /// They were of a connection that is gone, and come again.
    pub(super) fn forget_idle(&mut self) {
        while self.ready.pop().is_some() {}
    }

    pub(super) fn tokens(&self) -> Vec<T> {
        let reserved = self.reserved.values().map(|entry| entry.token.clone());
        let ready = self.ready.iter().map(|entry| entry.token.clone());
        reserved.chain(ready).collect()
    }

    pub(super) fn idle(&self) -> u64 {
        self.ready.len() as u64
    }

    pub(super) fn out(&self) -> u64 {
        self.reserved.len() as u64
    }
}
