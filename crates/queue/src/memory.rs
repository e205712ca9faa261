//! `memory`: jobs that live as long as the server.

use std::collections::{BTreeMap, HashMap};
use std::future::ready;
use std::sync::{Arc, Mutex};

use pronghorn_base::{BoxFuture, lock, now_ms};
use tokio::time::Instant;

use crate::driver::{
    Delivery, Driver, DriverError, Fate, Keeper, Listed, MOST_BYTES_IN_PART, MOST_IN_PART, Part,
    Settlement, Stat, Ticket, Withdrawn,
};
use crate::job::{Job, LONGEST_DELAY};
use crate::options;
use crate::ready::Ready;
use crate::wake::Wake;

/// Keeps jobs in memory, up to a limit in bytes.
#[derive(Debug)]
pub struct Memory {
    state: Mutex<State>,
    limit: u64,
    wake: Wake,
}

#[derive(Debug)]
struct State {
    ready: Ready<Waiting>,
    /// The number tells those of one moment apart.
    delayed: BTreeMap<(Instant, u64), Job>,
    reserved: HashMap<Ticket, Arc<Job>>,
    /// The bytes of all three.
    size: u64,
    number: u64,
    /// No job that waits expires before, in milliseconds since 1970.
    expires_at: Option<u64>,
    paused: bool,
}

/// A job that could run, and since when.
#[derive(Debug)]
struct Waiting {
    job: Job,
    since: Instant,
}

impl Memory {
    /// One without jobs, paused.
    pub fn new(limit: u64, wake: Wake) -> Self {
        let state = State {
            ready: Ready::new(),
            delayed: BTreeMap::new(),
            reserved: HashMap::new(),
            size: 0,
            number: 0,
            expires_at: None,
            paused: true,
        };
        Self {
            state: Mutex::new(state),
            limit,
            wake,
        }
    }

    fn keep(&self, jobs: Vec<Job>) -> Result<(), DriverError> {
        let size = jobs.iter().map(Job::size).sum();
        let mut state = lock(&self.state);
        let whole = state.size.saturating_add(size);
        if whole > self.limit {
            return Err(DriverError::Full { limit: self.limit });
        }
        state.size = whole;
        let now = Instant::now();
        for job in jobs {
            state.add(job, now);
        }
        drop(state);
        self.wake.wake();
        Ok(())
    }

    /// By their places, which change while jobs run.
    fn part(&self, after: Option<&[u8]>) -> Part {
        let after = after.and_then(|bytes| bytes.try_into().ok());
        let from = after.map_or(0, usize::from_be_bytes);
        let state = lock(&self.state);
        let now = Instant::now();
        let left = |((due, _), job): (&(Instant, u64), &Job)| {
            Listed::from(Job {
                delay: due.saturating_duration_since(now),
                ..job.clone()
            })
        };
        let mut reserved: Vec<_> = state.reserved.iter().collect();
        reserved.sort_by_key(|(ticket, _)| ticket.0);
        let reserved = reserved.into_iter();
        let reserved = reserved.map(|(_, job)| Listed::from(Job::clone(job)));
        let by_calendar = now_ms();
        let waiting = state.ready.iter().map(|Waiting { job, since }| Listed {
            job: job.clone(),
            since: Some(by_calendar.saturating_sub(pronghorn_base::millis(now - *since))),
        });
        let all = waiting
            .chain(state.delayed.iter().map(left))
            .chain(reserved);
        let (mut jobs, mut bytes) = (Vec::new(), 0);
        for job in all.skip(from) {
            if jobs.len() == MOST_IN_PART || bytes >= MOST_BYTES_IN_PART as u64 {
                let next = Some((from + jobs.len()).to_be_bytes().to_vec());
                return Part { jobs, next };
            }
            bytes += job.job.size();
            jobs.push(job);
        }
        Part { jobs, next: None }
    }

    fn withdrawn(&self, id: Option<&str>) -> Withdrawn {
        let is_wanted = |job: &Job| id.is_none_or(|id| job.id == id);
        let mut state = lock(&self.state);
        let ready = state.ready.remove_all(|waiting| is_wanted(&waiting.job));
        let mut jobs: Vec<Job> = ready.into_iter().map(|waiting| waiting.job).collect();
        let now = Instant::now();
        let delayed = state.delayed.extract_if(.., |_, job| is_wanted(job));
        jobs.extend(delayed.map(|((due, _), job)| Job {
            delay: due.saturating_duration_since(now),
            ..job
        }));
        let size: u64 = jobs.iter().map(Job::size).sum();
        state.size = state.size.saturating_sub(size);
        let reserved = state.reserved.values().filter(|job| is_wanted(job));
        Withdrawn {
            reserved: reserved.count(),
            jobs,
            ..Withdrawn::default()
        }
    }

    fn expired(&self, now_ms: u64) -> Vec<Delivery> {
        let mut state = lock(&self.state);
        if state.expires_at.is_none_or(|at| at > now_ms) {
            return Vec::new();
        }
        let is_over = |job: &Job| options::expires_at(&job.headers).is_some_and(|at| at <= now_ms);
        let ready = state.ready.remove_all(|waiting| is_over(&waiting.job));
        let mut jobs: Vec<Job> = ready.into_iter().map(|waiting| waiting.job).collect();
        let delayed = state.delayed.extract_if(.., |_, job| is_over(job));
        jobs.extend(delayed.map(|(_, job)| job));
        let waiting = state.ready.iter().map(|waiting| &waiting.job);
        let left = waiting.chain(state.delayed.values());
        state.expires_at = left
            .filter_map(|job| options::expires_at(&job.headers))
            .min();
        jobs.into_iter().map(|job| state.reserve(job)).collect()
    }

    fn settled(&self, ticket: Ticket, settlement: Settlement) -> Result<(), DriverError> {
        let mut state = lock(&self.state);
        let job = state.reserved.remove(&ticket);
        let job = job.ok_or(DriverError::NotReserved)?;
        let size = job.size();
        match settlement.fate(&job) {
            Fate::Done | Fate::Rejected => state.size = state.size.saturating_sub(size),
            Fate::Back => {
                let job = Arc::unwrap_or_clone(job);
                // It has waited for longer than the one behind it.
                let behind = state.ready.front_of(job.priority);
                let since = behind.map_or_else(Instant::now, |behind| behind.since);
                state.note_expiry(&job);
                state.ready.push_front(job.priority, Waiting { job, since });
            }
            Fate::Again(job) => {
                state.size = state.size.saturating_sub(size) + job.size();
                state.add(job, Instant::now());
            }
        }
        drop(state);
        self.wake.wake();
        Ok(())
    }
}

impl State {
    fn reserve(&mut self, job: Job) -> Delivery {
        self.number += 1;
        let (job, ticket) = (Arc::new(job), Ticket(self.number));
        self.reserved.insert(ticket, job.clone());
        Delivery { job, ticket }
    }

    fn note_expiry(&mut self, job: &Job) {
        let expires_at = options::expires_at(&job.headers).into_iter();
        self.expires_at = expires_at.chain(self.expires_at).min();
    }

    fn add(&mut self, job: Job, now: Instant) {
        self.note_expiry(&job);
        if job.delay.is_zero() {
            self.ready.push(job.priority, Waiting { job, since: now });
        } else {
            self.number += 1;
            let due = now + job.delay.min(LONGEST_DELAY);
            self.delayed.insert((due, self.number), job);
        }
    }

    fn promote(&mut self, now: Instant) {
        while let Some(first) = self.delayed.first_entry()
            && first.key().0 <= now
        {
            let since = first.key().0;
            let job = first.remove();
            self.ready.push_due(job.priority, Waiting { job, since });
        }
    }
}

impl Driver for Memory {
    fn keeper(&self) -> Keeper {
        Keeper::Process
    }

    fn push(&self, jobs: Vec<Job>) -> BoxFuture<'_, Result<(), DriverError>> {
        Box::pin(ready(self.keep(jobs)))
    }

    fn head(&self, now: Instant) -> Option<i64> {
        let mut state = lock(&self.state);
        if state.paused {
            return None;
        }
        state.promote(now);
        state.ready.best()
    }

    fn take(&self, now: Instant) -> Option<Delivery> {
        let mut state = lock(&self.state);
        if state.paused {
            return None;
        }
        state.promote(now);
        let job = state.ready.pop()?.job;
        Some(state.reserve(job))
    }

    fn next_due(&self) -> Option<Instant> {
        let state = lock(&self.state);
        let first = state.delayed.first_key_value().filter(|_| !state.paused);
        first.map(|((due, _), _)| *due)
    }

    fn settle(
        &self,
        ticket: Ticket,
        settlement: Settlement,
    ) -> BoxFuture<'_, Result<(), DriverError>> {
        Box::pin(ready(self.settled(ticket, settlement)))
    }

    fn pause(&self) {
        lock(&self.state).paused = true;
    }

    fn resume(&self) {
        lock(&self.state).paused = false;
        self.wake.wake();
    }

    fn stat(&self) -> BoxFuture<'_, Result<Stat, DriverError>> {
        let mut state = lock(&self.state);
        let now = Instant::now();
        state.promote(now);
        let oldest = state.ready.fronts().map(|waiting| waiting.since).min();
        Box::pin(ready(Ok(Stat {
            oldest: oldest.map(|since| now.saturating_duration_since(since)),
            active: state.ready.len() as u64,
            delayed: state.delayed.len() as u64,
            reserved: state.reserved.len() as u64,
        })))
    }

    fn withdraw<'a>(
        &'a self,
        id: Option<&'a str>,
        _after: Option<Vec<u8>>,
    ) -> BoxFuture<'a, Result<Withdrawn, DriverError>> {
        Box::pin(ready(Ok(self.withdrawn(id))))
    }

    fn take_expired(&self, now_ms: u64) -> BoxFuture<'_, Result<Vec<Delivery>, DriverError>> {
        Box::pin(ready(Ok(self.expired(now_ms))))
    }

    fn next_expiry(&self) -> Option<u64> {
        lock(&self.state).expires_at
    }

    fn list(&self, after: Option<Vec<u8>>) -> BoxFuture<'_, Result<Part, DriverError>> {
        Box::pin(ready(Ok(self.part(after.as_deref()))))
    }

    fn health(&self) -> Result<(), String> {
        Ok(())
    }
}
