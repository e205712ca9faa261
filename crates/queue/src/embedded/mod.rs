//! `embedded`: jobs in the server's own store, which outlive it.
//!
//! - `record`: how a job and a pipeline lie in the store.
//! - `window`: the part of the jobs that is in memory, and what of the store it covers.
//!
//! A push is answered when its jobs are on the disk. A job that was taken stays there until it is
//! settled: after a kill it is ready again, so it may run twice, and is never lost.
//!
//! The store's thread changes the window in the order of commits, so that both agree on what comes
//! behind what.
//!
//! When the store goes to the process that takes over, notes say which jobs are with workers of
//! this one. That process leaves them alone until they are settled, which this one does by what it
//! has carried out there, or until this one is gone.

mod record;
mod window;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::{Bound, ControlFlow};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use pronghorn_base::{BoxFuture, lock, millis, now_ms};
use pronghorn_store::{Failed, Lender, Others, Store, StoreError, Transaction, Tree, entry_size};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use self::record::{Key, Kind, Lane, PIPELINES, Record};
pub use self::record::{decode as decode_job, encode as encode_job};
use self::window::{CHUNK, CHUNK_BYTES, Load, LoadedJob, Survey, Window};
use crate::driver::{
    Delivery, Driver, DriverError, Fate, Hold, Keeper, Listed, MOST_BYTES_IN_PART, MOST_IN_PART,
    Part, Removed, Settlement, Stat, Ticket, Withdrawn,
};
use crate::job::{Headers, Job, LONGEST_DELAY};
use crate::options;
use crate::wake::Wake;

const JOBS: Tree = Tree::new("jobs");
const EXPIRING: Tree = Tree::new("jobs.expiring");
/// The keys here of jobs that have a key for `unique`.
const UNIQUE: Tree = Tree::new("jobs.unique");
/// The keys here of jobs whose result is to be kept, with their IDs.
const WITH_RESULT: Tree = Tree::new("jobs.with_result");
/// Keys of jobs that are with workers of a process which has handed over the store.
const LENT: Tree = Tree::new("jobs.lent");

/// After a failure of the store, the window is read again at most this often.
const RETRY: Duration = Duration::from_millis(500);

/// One pipeline in the store.
pub struct Embedded(Arc<Open>);

struct Open {
    shared: Arc<Shared>,
    _loader: JoinSet<()>,
}

/// The pipelines of the store that somebody has. Whoever opens one that is among them gets the same
/// one: a job that a worker has by the first is not given out by the second.
#[derive(Debug, Default)]
pub struct OpenPipelines(tokio::sync::Mutex<HashMap<String, Weak<Open>>>);

impl OpenPipelines {
    /// See [`Embedded::open`]. One that is open goes on as it is, until it is told otherwise.
    pub async fn open(&self, pipeline: &str, store: Store) -> Result<Embedded, DriverError> {
        let mut all = self.0.lock().await;
        if let Some(open) = all.get(pipeline).and_then(Weak::upgrade) {
            return Ok(Embedded(open));
        }
        all.retain(|_, open| open.strong_count() > 0);
        let opened = Embedded::open(pipeline, store, Wake::default()).await?;
        all.insert(pipeline.to_owned(), Arc::downgrade(&opened.0));
        Ok(opened)
    }

    /// The pipelines that are open.
    pub async fn all(&self) -> Vec<Embedded> {
        let all = self.0.lock().await;
        all.values()
            .filter_map(Weak::upgrade)
            .map(Embedded)
            .collect()
    }
}

struct Shared {
    pipeline: String,
    store: Store,
    clock: Clock,
    window: Mutex<Window>,
    load: Notify,
    wake: Mutex<Wake>,
}

/// Jobs that are not given out, until this is dropped.
struct HeldJobs {
    shared: Arc<Shared>,
    keys: Vec<Key>,
}

impl HeldJobs {
    async fn remove_all(mut self, jobs: Vec<Job>) -> Result<Removed, DriverError> {
        let found = std::mem::take(&mut self.keys).into_iter().zip(jobs);
        let found: Vec<_> = found.collect();
        if found.is_empty() {
            return Ok(Removed::default());
        }
        let (pipeline, shared) = (self.shared.pipeline.clone(), self.shared.clone());
        let write = move |transaction: &mut Transaction<'_>| {
            let mut removed = Removed::default();
            let mut record = Record::read(transaction, &pipeline)?;
            let mut keys = Vec::with_capacity(found.len());
            for (key, job) in found {
                if !lock(&shared.window).stays_withdrawn(&key, job.priority) {
                    removed.reserved += 1;
                    continue;
                }
                remove(transaction, &pipeline, &mut record, &key, &job)?;
                if lock(&shared.window).has_left() {
                    transaction.remove(LENT, key.bytes())?;
                }
                removed.jobs.push(job);
                keys.push(key);
            }
            record.write(transaction, &pipeline)?;
            Ok((record, keys, removed))
        };
        let shared = self.shared.clone();
        let then = move |outcome: Result<(Record, Vec<Key>, Removed), StoreError>| {
            let mut window = lock(&shared.window);
            let outcome = outcome.map(|(record, keys, removed)| {
                window.withdrawn(record, &keys);
                removed
            });
            if outcome.is_err() {
                window.forget();
            }
            drop(window);
            shared.load.notify_one();
            Ok(outcome?)
        };
        self.shared.carry_out(0, write, then).await
    }
}

impl Hold for HeldJobs {
    fn remove(self: Box<Self>, jobs: Vec<Job>) -> BoxFuture<'static, Result<Removed, DriverError>> {
        Box::pin(self.remove_all(jobs))
    }
}

impl Drop for HeldJobs {
    fn drop(&mut self) {
        if !self.keys.is_empty() {
            lock(&self.shared.window).restore(&self.keys);
            self.shared.load.notify_one();
        }
    }
}

impl std::fmt::Debug for HeldJobs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let jobs = self.keys.len();
        f.debug_struct("HeldJobs")
            .field("jobs", &jobs)
            .finish_non_exhaustive()
    }
}

/// Due times are those of the calendar, for they outlive the process. It is looked at once: a clock
/// that is set later makes no job early or late.
#[derive(Clone, Copy)]
struct Clock {
    start: Instant,
    /// Milliseconds since 1970.
    at_start: u64,
}

impl Embedded {
    /// The jobs of this pipeline, paused. Its name has 255 bytes at most, and no byte of zero.
    ///
    /// # Errors
    ///
    /// When the store does not answer.
    pub async fn open(pipeline: &str, store: Store, wake: Wake) -> Result<Self, DriverError> {
        let shared = Arc::new(Shared {
            pipeline: pipeline.to_owned(),
            store,
            clock: Clock::new(),
            window: Mutex::new(Window::new()),
            load: Notify::new(),
            wake: Mutex::new(wake),
        });
        let others = shared.store.others();
        shared.survey().await?;
        let lender: Weak<Shared> = Arc::downgrade(&shared);
        shared.store.lends(lender);
        let mut loader = JoinSet::new();
        loader.spawn(keep_loaded(shared.clone(), others));
        Ok(Self(Arc::new(Open {
            shared,
            _loader: loader,
        })))
    }

    /// The pipeline's name.
    pub fn name(&self) -> &str {
        &self.shared().pipeline
    }

    /// From now on, this one is told of jobs.
    pub fn tell(&self, wake: Wake) {
        *lock(&self.shared().wake) = wake;
    }

    /// A job that was taken is as if it had not been.
    pub fn put_back(&self, ticket: Ticket) {
        self.shared().put_back(ticket);
    }

    /// The jobs that have a key for `unique`.
    pub async fn unique_jobs(&self) -> Result<Vec<UniqueJob>, DriverError> {
        let shared = self.shared();
        let (pipeline, others) = (shared.pipeline.clone(), shared.store.others());
        let read = move |transaction: &mut Transaction<'_>| {
            let mut keys = Vec::new();
            let from = [pipeline.as_bytes(), &[0]].concat();
            transaction.scan(UNIQUE, Bound::Excluded(&from), |key, _| {
                match Key::parse(&pipeline, key) {
                    Some(key) => keys.push(key),
                    None => return ControlFlow::Break(()),
                }
                ControlFlow::Continue(())
            })?;
            let are_there = others.borrow().are_there;
            let mut jobs = Vec::with_capacity(keys.len());
            for key in keys {
                if let Some(value) = transaction.get(JOBS, key.bytes())? {
                    let (Job { id, headers, .. }, since) = record::decode_since(&value);
                    let is_lent = are_there && transaction.get(LENT, key.bytes())?.is_some();
                    jobs.push(UniqueJob {
                        id,
                        headers,
                        since,
                        is_lent,
                    });
                }
            }
            Ok(jobs)
        };
        Ok(shared.store.look(read).await?)
    }

    /// The IDs of jobs whose result is to be kept, so many at most. A release before has not noted
    /// them.
    pub async fn jobs_with_result(&self, most: usize) -> Result<Vec<String>, DriverError> {
        let pipeline = self.shared().pipeline.clone();
        let read = move |transaction: &mut Transaction<'_>| {
            let mut ids = Vec::new();
            let from = [pipeline.as_bytes(), &[0]].concat();
            transaction.scan(WITH_RESULT, Bound::Excluded(&from), |key, id| {
                if ids.len() >= most || Key::parse(&pipeline, key).is_none() {
                    return ControlFlow::Break(());
                }
                ids.push(String::from_utf8_lossy(id).into_owned());
                ControlFlow::Continue(())
            })?;
            Ok(ids)
        };
        Ok(self.shared().store.look(read).await?)
    }

    fn shared(&self) -> &Arc<Shared> {
        &self.0.shared
    }
}

/// A job with a key for `unique`, as it is kept.
#[derive(Debug)]
pub struct UniqueJob {
    /// The ID of the job.
    pub id: String,
    /// The headers of the job.
    pub headers: Headers,
    /// When it was pushed or put back, in milliseconds since 1970.
    pub since: u64,
    /// A worker of the process before has it.
    pub is_lent: bool,
}

/// How many jobs a store has of each pipeline, of those that have some.
///
/// # Errors
///
/// When the store does not answer.
pub async fn stored(store: &Store) -> Result<BTreeMap<String, Stored>, DriverError> {
    let read = |transaction: &mut Transaction<'_>| {
        let mut pipelines = BTreeMap::new();
        transaction.scan(PIPELINES, Bound::Unbounded, |name, record| {
            let record = Record::decode(record);
            let name = String::from_utf8_lossy(name).into_owned();
            // A name that begins with a control character is what a broker can't keep back.
            if record.ready + record.delayed > 0 && !name.starts_with(char::is_control) {
                let (ready, delayed) = (record.ready, record.delayed);
                pipelines.insert(name, Stored { ready, delayed });
            }
            ControlFlow::Continue(())
        })?;
        Ok(pipelines)
    };
    Ok(store.look(read).await?)
}

/// Whether a store has jobs that processes which have handed it over had given out, and have not
/// settled.
///
/// # Errors
///
/// When the store does not answer.
pub async fn is_lent(store: &Store) -> Result<bool, DriverError> {
    let read = |transaction: &mut Transaction<'_>| {
        let mut is_lent = false;
        transaction.scan(LENT, Bound::Unbounded, |_, _| {
            is_lent = true;
            ControlFlow::Break(())
        })?;
        Ok(is_lent)
    };
    Ok(store.look(read).await?)
}

/// Jobs of a pipeline in a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stored {
    /// They could run now.
    pub ready: u64,
    /// They wait for their time.
    pub delayed: u64,
}

/// Brings jobs into memory before they are wanted, until the driver is dropped.
async fn keep_loaded(shared: Arc<Shared>, mut others: watch::Receiver<Others>) {
    loop {
        let next = lock(&shared.window).next_load();
        let outcome = match next {
            None => {
                tokio::select! {
                    () = shared.load.notified() => {}
                    // An error says that the store is closed.
                    Ok(()) = others.changed() => lock(&shared.window).look_again(),
                }
                continue;
            }
            Some(Load::All) => shared.survey().await,
            Some(Load::Ready { priority, behind }) => shared.load_ready(priority, behind).await,
            Some(Load::Delayed { lane, behind, most }) => {
                shared.load_delayed(lane, behind, most).await
            }
        };
        if outcome.is_err() {
            // The store logs what is wrong with it.
            sleep(RETRY).await;
        }
    }
}

impl Shared {
    fn wake(&self) {
        lock(&self.wake).wake();
    }

    fn put_back(&self, ticket: Ticket) {
        lock(&self.window).put_back(ticket);
        self.wake();
    }

    /// Looks which priorities there are, and how many jobs. The window begins anew.
    async fn survey(self: &Arc<Self>) -> Result<(), DriverError> {
        let (pipeline, shared) = (self.pipeline.clone(), self.clone());
        let others = self.store.others();
        let read = move |transaction: &mut Transaction<'_>| {
            let record = Record::read(transaction, &pipeline)?;
            let (priorities, lanes) = kinds(transaction, &pipeline)?;
            let lent = lent(transaction, &pipeline, others.borrow().are_there)?;
            let (_, expires_at) = expired(transaction, &pipeline, 0, &HashSet::new())?;
            let found = Survey {
                record,
                priorities,
                lanes,
                lent,
            };
            Ok((found, expires_at))
        };
        let then = move |outcome: Result<(Survey, Option<u64>), StoreError>| {
            let (found, expires_at) = outcome?;
            let mut window = lock(&shared.window);
            window.begin(found);
            window.expect_expiry(expires_at);
            drop(window);
            shared.load.notify_one();
            Ok(())
        };
        self.carry_out(0, read, then).await
    }

    async fn load_ready(self: &Arc<Self>, priority: i64, behind: u64) -> Result<(), DriverError> {
        let from = Key::ready(&self.pipeline, priority, behind);
        let load = move |window: &mut Window, entries, more| {
            window.loaded_ready(priority, entries, more);
        };
        let same = move |kind: &Kind| matches!(kind, Kind::Ready { priority: p } if *p == priority);
        self.load(from, CHUNK, same, load).await
    }

    async fn load_delayed(
        self: &Arc<Self>,
        lane: Lane,
        behind: (u64, u64),
        most: usize,
    ) -> Result<(), DriverError> {
        let from = Key::delayed(&self.pipeline, lane, behind.0, behind.1);
        let load = move |window: &mut Window, entries, more| {
            window.loaded_delayed(lane, entries, more);
        };
        let same = move |kind: &Kind| matches!(kind, Kind::Delayed { lane: l, .. } if *l == lane);
        self.load(from, most, same, load).await
    }

    async fn load(
        self: &Arc<Self>,
        from: Key,
        most: usize,
        same: impl Fn(&Kind) -> bool + Send + 'static,
        into: impl FnOnce(&mut Window, Vec<LoadedJob>, bool) + Send + 'static,
    ) -> Result<(), DriverError> {
        let (pipeline, shared) = (self.pipeline.clone(), self.clone());
        let read = move |transaction: &mut Transaction<'_>| {
            let (mut entries, mut bytes, mut more) = (Vec::new(), 0, false);
            transaction.scan(JOBS, Bound::Excluded(from.bytes()), |key, value| {
                let Some(key) = Key::parse(&pipeline, key).filter(|key| same(&key.kind)) else {
                    return ControlFlow::Break(());
                };
                if entries.len() >= most || bytes >= CHUNK_BYTES {
                    more = true;
                    return ControlFlow::Break(());
                }
                bytes += value.len();
                let (job, since) = record::decode_since(value);
                let job = Arc::new(job);
                entries.push(LoadedJob { key, job, since });
                ControlFlow::Continue(())
            })?;
            Ok((entries, more))
        };
        let then = move |outcome: Result<(Vec<LoadedJob>, bool), StoreError>| {
            let (entries, more) = outcome?;
            into(&mut lock(&shared.window), entries, more);
            shared.wake();
            Ok(())
        };
        self.carry_out(0, read, then).await
    }

    /// By their keys.
    async fn part(self: &Arc<Self>, after: Option<Vec<u8>>) -> Result<Part, DriverError> {
        let (pipeline, now) = (self.pipeline.clone(), self.clock.now());
        let from = after.unwrap_or_else(|| [pipeline.as_bytes(), &[0]].concat());
        let read = move |transaction: &mut Transaction<'_>| {
            let (mut part, mut bytes, mut last) = (Part::default(), 0, Vec::new());
            transaction.scan(JOBS, Bound::Excluded(&from), |key, value| {
                let Some(parsed) = Key::parse(&pipeline, key) else {
                    return ControlFlow::Break(());
                };
                if part.jobs.len() == MOST_IN_PART || bytes >= MOST_BYTES_IN_PART {
                    part.next = Some(std::mem::take(&mut last));
                    return ControlFlow::Break(());
                }
                let (mut job, since) = record::decode_since(value);
                if let Kind::Delayed { due, .. } = parsed.kind {
                    job.delay = Duration::from_millis(due.saturating_sub(now));
                }
                bytes += value.len();
                last = key.to_vec();
                let since = (since > 0).then_some(since);
                part.jobs.push(Listed { job, since });
                ControlFlow::Continue(())
            })?;
            Ok(part)
        };
        Ok(self.store.look(read).await?)
    }

    /// By their keys. What is found is not given out from then on, whatever was read before.
    async fn withdraw_part(
        self: &Arc<Self>,
        id: Option<String>,
        after: Option<Vec<u8>>,
    ) -> Result<Withdrawn, DriverError> {
        let (pipeline, shared) = (self.pipeline.clone(), self.clone());
        let read = move |transaction: &mut Transaction<'_>| {
            find(transaction, &pipeline, id.as_deref(), after)
        };
        let then = move |outcome: Result<Looked, StoreError>| {
            let (found, next) = outcome?;
            let mut withdrawn = Withdrawn {
                next,
                ..Withdrawn::default()
            };
            let mut keys = Vec::with_capacity(found.len());
            let mut window = lock(&shared.window);
            for (key, job) in found {
                if window.withdraw(&key, job.priority) {
                    withdrawn.jobs.push(job);
                    keys.push(key);
                } else {
                    withdrawn.reserved += 1;
                }
            }
            drop(window);
            withdrawn.hold = Some(Box::new(HeldJobs { shared, keys }));
            Ok(withdrawn)
        };
        self.carry_out(0, read, then).await
    }

    /// Some of them. What was pushed by a version that has noted nothing expires in its turn.
    async fn take_expired(self: &Arc<Self>, now_ms: u64) -> Result<Vec<Delivery>, DriverError> {
        let (pipeline, shared) = (self.pipeline.clone(), self.clone());
        let read = move |transaction: &mut Transaction<'_>| {
            let out = lock(&shared.window).out();
            let (found, next) = expired(transaction, &pipeline, now_ms, &out)?;
            let mut entries = Vec::with_capacity(found.len());
            for (note, key) in found {
                let value = transaction.get(JOBS, &key)?;
                match (Key::parse(&pipeline, &key), value) {
                    (Some(key), Some(value)) => {
                        let (job, since) = record::decode_since(&value);
                        let job = Arc::new(job);
                        entries.push(LoadedJob { key, job, since });
                    }
                    // A version that knows no such notes has ended it.
                    _ => _ = transaction.remove(EXPIRING, &note)?,
                }
            }
            Ok((entries, next))
        };
        let shared = self.clone();
        let then = move |outcome: Result<(Vec<LoadedJob>, Option<u64>), StoreError>| {
            let (entries, next) = outcome?;
            let mut window = lock(&shared.window);
            window.expect_expiry(next);
            let taken = entries.into_iter().filter_map(|it| window.take_this(it));
            Ok(taken.collect())
        };
        self.carry_out(0, read, then).await
    }

    async fn push(self: &Arc<Self>, jobs: Vec<Job>) -> Result<(), DriverError> {
        let (pipeline, shared) = (self.pipeline.clone(), self.clone());
        let now = self.clock.now();
        let values: Vec<Vec<u8>> = (jobs.iter())
            .map(|job| record::encode_since(job, now))
            .collect();
        let growth = jobs.iter().zip(&values);
        let growth = growth.map(|(job, value)| size_of(&pipeline, job, value));
        let growth = growth.sum::<u64>() + entry_size(pipeline.as_bytes(), &[0; record::LENGTH]);
        let write = move |transaction: &mut Transaction<'_>| {
            let mut record = Record::read(transaction, &pipeline)?;
            let mut entries = Vec::with_capacity(jobs.len());
            for (job, value) in jobs.into_iter().zip(&values) {
                let key = record.add(&pipeline, &job, now);
                put(transaction, &pipeline, &key, &job, value)?;
                let (job, since) = (Arc::new(job), now);
                entries.push(LoadedJob { key, job, since });
            }
            record.write(transaction, &pipeline)?;
            Ok((record, entries))
        };
        let then = move |outcome: Result<(Record, Vec<LoadedJob>), StoreError>| {
            let mut window = lock(&shared.window);
            let outcome = outcome.map(|(record, entries)| window.pushed(record, entries));
            shared.finish(window, outcome)
        };
        let pipeline = self.pipeline.clone();
        let held = move |transaction: &mut Transaction<'_>| {
            Ok(Record::read(transaction, &pipeline)?.bytes)
        };
        let pushed = self.store.carry_out_in_share(growth, held, write, then);
        pushed.await?
    }

    async fn settle(
        self: &Arc<Self>,
        ticket: Ticket,
        settlement: Settlement,
    ) -> Result<(), DriverError> {
        // It stays reserved until the disk says that it is settled.
        let entry = lock(&self.window).reserved(ticket);
        let entry = entry.ok_or(DriverError::NotReserved)?;
        let next = match settlement.fate(&entry.job) {
            Fate::Done | Fate::Rejected => None,
            Fate::Again(job) => Some(job),
            Fate::Back if lock(&self.window).has_left() => {
                return self.give_back(ticket, entry.key).await;
            }
            Fate::Back => {
                self.put_back(ticket);
                return Ok(());
            }
        };
        let (pipeline, shared) = (self.pipeline.clone(), self.clone());
        let now = self.clock.now();
        let write = move |transaction: &mut Transaction<'_>| {
            let mut record = Record::read(transaction, &pipeline)?;
            let was_there = remove(transaction, &pipeline, &mut record, &entry.key, &entry.job)?;
            if lock(&shared.window).has_left() {
                transaction.remove(LENT, entry.key.bytes())?;
            }
            // An earlier try may have come through, although the disk did not say so.
            let next = next.filter(|_| was_there).map(|job| {
                let key = record.add(&pipeline, &job, now);
                let value = record::encode_since(&job, now);
                put(transaction, &pipeline, &key, &job, &value)?;
                let (job, since) = (Arc::new(job), now);
                Ok(LoadedJob { key, job, since })
            });
            let next = next.transpose()?;
            record.write(transaction, &pipeline)?;
            Ok((record, next))
        };
        let shared = self.clone();
        let then = move |outcome: Result<(Record, Option<LoadedJob>), StoreError>| {
            let mut window = lock(&shared.window);
            // One that the disk did not take stays reserved: it can be tried again.
            let outcome = outcome.map(|(record, next)| {
                window.settled(ticket);
                window.pushed(record, next.into_iter().collect());
            });
            shared.finish(window, outcome)
        };
        // The job that replaces another is about as long as it was; it has its place also in a full
        // store.
        self.carry_out(0, write, then).await
    }

    /// It runs in the process that has taken over.
    async fn give_back(self: &Arc<Self>, ticket: Ticket, key: Key) -> Result<(), DriverError> {
        let shared = self.clone();
        let write = move |transaction: &mut Transaction<'_>| transaction.remove(LENT, key.bytes());
        let then = move |outcome: Result<bool, StoreError>| {
            outcome?;
            lock(&shared.window).settled(ticket);
            Ok(())
        };
        self.carry_out(0, write, then).await
    }

    /// Nobody knows what a failed commit has done, so the window is read again.
    fn finish(
        &self,
        mut window: std::sync::MutexGuard<'_, Window>,
        outcome: Result<(), StoreError>,
    ) -> Result<(), DriverError> {
        if matches!(
            outcome,
            Err(StoreError::Failed(_) | StoreError::OutOfOrder(_))
        ) {
            window.forget();
        }
        drop(window);
        self.load.notify_one();
        self.wake();
        Ok(outcome?)
    }

    async fn carry_out<T: Send + 'static, U: Send + 'static>(
        &self,
        growth: u64,
        run: impl FnOnce(&mut Transaction<'_>) -> Result<T, Failed> + Send + 'static,
        then: impl FnOnce(Result<T, StoreError>) -> Result<U, DriverError> + Send + 'static,
    ) -> Result<U, DriverError> {
        self.store.carry_out(growth, run, then).await?
    }
}

/// Writes a job, when it expires, and that it has a key.
fn put(
    transaction: &mut Transaction<'_>,
    pipeline: &str,
    key: &Key,
    job: &Job,
    value: &[u8],
) -> Result<(), Failed> {
    transaction.put(JOBS, key.bytes(), value)?;
    if let Some(at) = options::expires_at(&job.headers) {
        let note = record::expiry_key(pipeline, at, key.number);
        transaction.put(EXPIRING, &note, key.bytes())?;
    }
    if options::unique_key(&job.headers).is_some() {
        transaction.put(UNIQUE, key.bytes(), &[])?;
    }
    if options::wants_result(&job.headers) {
        transaction.put(WITH_RESULT, key.bytes(), job.id.as_bytes())?;
    }
    Ok(())
}

/// The most bytes that a job takes which is pushed.
fn size_of(pipeline: &str, job: &Job, value: &[u8]) -> u64 {
    let longest_key = Key::delayed(pipeline, Some(0), 0, 0);
    let note = options::expires_at(&job.headers).map_or(0, |at| {
        let note = record::expiry_key(pipeline, at, 0);
        entry_size(&note, longest_key.bytes())
    });
    let unique = options::unique_key(&job.headers);
    let unique = unique.map_or(0, |_| entry_size(longest_key.bytes(), &[]));
    let result = if options::wants_result(&job.headers) {
        entry_size(longest_key.bytes(), job.id.as_bytes())
    } else {
        0
    };
    entry_size(longest_key.bytes(), value) + note + unique + result
}

/// Whether it was there.
fn remove(
    transaction: &mut Transaction<'_>,
    pipeline: &str,
    record: &mut Record,
    key: &Key,
    job: &Job,
) -> Result<bool, Failed> {
    let was_there = transaction.remove(JOBS, key.bytes())?;
    if was_there {
        record.remove(&key.kind, job);
    }
    if let Some(at) = options::expires_at(&job.headers) {
        let note = record::expiry_key(pipeline, at, key.number);
        transaction.remove(EXPIRING, &note)?;
    }
    if options::unique_key(&job.headers).is_some() {
        transaction.remove(UNIQUE, key.bytes())?;
    }
    if options::wants_result(&job.headers) {
        transaction.remove(WITH_RESULT, key.bytes())?;
    }
    Ok(was_there)
}

/// Notes of jobs that have expired with the keys of the jobs, and when the next one does.
type Expired = (Vec<(Vec<u8>, Vec<u8>)>, Option<u64>);

/// Some of those that are not out.
fn expired(
    transaction: &mut Transaction<'_>,
    pipeline: &str,
    now_ms: u64,
    out: &HashSet<Vec<u8>>,
) -> Result<Expired, Failed> {
    let from = record::expiry_key(pipeline, 0, 0);
    let (mut found, mut next) = (Vec::new(), None);
    transaction.scan(EXPIRING, Bound::Included(&from), |note, key| {
        let Some(at) = record::expiry_of(pipeline, note) else {
            return ControlFlow::Break(());
        };
        if out.contains(key) {
            return ControlFlow::Continue(());
        }
        if at > now_ms || found.len() == MOST_IN_PART {
            next = Some(at);
            return ControlFlow::Break(());
        }
        found.push((note.to_vec(), key.to_vec()));
        ControlFlow::Continue(())
    })?;
    Ok((found, next))
}

impl Lender for Shared {
    fn lend(&self, transaction: &mut Transaction<'_>) -> Result<(), Failed> {
        let whose = std::process::id().to_be_bytes();
        let mut out = lock(&self.window).leave().into_iter();
        out.try_for_each(|key| transaction.put(LENT, &key, &whose))
    }

    fn stay(&self) {
        lock(&self.window).stay();
        self.load.notify_one();
        self.wake();
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared")
            .field("pipeline", &self.pipeline)
            .finish_non_exhaustive()
    }
}

/// The jobs that workers of the process before have. Once it is gone they are nobody's, and its
/// notes are removed.
fn lent(
    transaction: &mut Transaction<'_>,
    pipeline: &str,
    is_there: bool,
) -> Result<Vec<Key>, Failed> {
    let from = [pipeline.as_bytes(), &[0]].concat();
    let mut noted = Vec::new();
    transaction.scan(LENT, Bound::Excluded(&from), |key, _| {
        match Key::parse(pipeline, key) {
            Some(key) => noted.push(key),
            None => return ControlFlow::Break(()),
        }
        ControlFlow::Continue(())
    })?;
    if is_there {
        return Ok(noted);
    }
    for key in noted {
        transaction.remove(LENT, key.bytes())?;
    }
    Ok(Vec::new())
}

/// The priorities of jobs that are ready, and the lanes of delayed ones.
fn kinds(
    transaction: &mut Transaction<'_>,
    pipeline: &str,
) -> Result<(Vec<i64>, Vec<Lane>), Failed> {
    let (mut priorities, mut lanes) = (Vec::new(), Vec::new());
    let mut next = Some(Key::delayed(pipeline, None, 0, 0));
    while let Some(from) = next.take() {
        let mut found = None;
        transaction.scan(JOBS, Bound::Included(from.bytes()), |key, _| {
            found = Key::parse(pipeline, key);
            ControlFlow::Break(())
        })?;
        next = match found.map(|key| key.kind) {
            None => None,
            Some(Kind::Ready { priority }) => {
                priorities.push(priority);
                Some(match priority.checked_add(1) {
                    Some(behind) => Key::ready(pipeline, behind, 0),
                    None => Key::delayed(pipeline, Some(i64::MIN), 0, 0),
                })
            }
            Some(Kind::Delayed { lane, .. }) => {
                lanes.push(lane);
                match lane {
                    None => Some(Key::ready(pipeline, i64::MIN, 0)),
                    Some(priority) => (priority.checked_add(1))
                        .map(|behind| Key::delayed(pipeline, Some(behind), 0, 0)),
                }
            }
        };
    }
    Ok((priorities, lanes))
}

/// Jobs with their keys, and behind which one the next part begins.
type Looked = (Vec<(Key, Job)>, Option<Vec<u8>>);

/// The jobs of an ID, or all, of a part of a pipeline.
fn find(
    transaction: &mut Transaction<'_>,
    pipeline: &str,
    id: Option<&str>,
    after: Option<Vec<u8>>,
) -> Result<Looked, Failed> {
    let from = after.unwrap_or_else(|| [pipeline.as_bytes(), &[0]].concat());
    let (mut found, mut next) = (Vec::new(), None);
    let (mut seen, mut bytes, mut last) = (0, 0, Vec::new());
    transaction.scan(JOBS, Bound::Excluded(&from), |key, value| {
        let Some(parsed) = Key::parse(pipeline, key) else {
            return ControlFlow::Break(());
        };
        if seen == MOST_IN_PART || bytes >= MOST_BYTES_IN_PART {
            next = Some(std::mem::take(&mut last));
            return ControlFlow::Break(());
        }
        seen += 1;
        bytes += value.len();
        last = key.to_vec();
        let job = record::decode(value);
        if id.is_none_or(|id| job.id == id) {
            found.push((parsed, job));
        }
        ControlFlow::Continue(())
    })?;
    Ok((found, next))
}

impl From<StoreError> for DriverError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Full { limit } => Self::Full { limit },
            StoreError::NoRoom | StoreError::OutOfOrder(_) | StoreError::Closed => {
                Self::NotDone(error.to_string())
            }
            other => Self::Unavailable(other.to_string()),
        }
    }
}

impl Clock {
    fn new() -> Self {
        Self {
            start: Instant::now(),
            at_start: now_ms(),
        }
    }

    fn now(&self) -> u64 {
        self.at(Instant::now())
    }

    fn at(&self, instant: Instant) -> u64 {
        self.at_start + millis(instant.saturating_duration_since(self.start))
    }

    fn instant(&self, at: u64) -> Instant {
        let behind = Duration::from_millis(at.saturating_sub(self.at_start));
        self.start + behind.min(LONGEST_DELAY)
    }
}

impl Driver for Embedded {
    fn keeper(&self) -> Keeper {
        Keeper::Store
    }

    fn push(&self, jobs: Vec<Job>) -> BoxFuture<'_, Result<(), DriverError>> {
        Box::pin(self.shared().push(jobs))
    }

    fn head(&self, now: Instant) -> Option<i64> {
        lock(&self.shared().window).head(self.shared().clock.at(now))
    }

    fn take(&self, now: Instant) -> Option<Delivery> {
        let mut window = lock(&self.shared().window);
        let delivery = window.take(self.shared().clock.at(now));
        let wants_more = window.next_load().is_some();
        drop(window);
        if wants_more {
            self.shared().load.notify_one();
        }
        delivery
    }

    fn next_due(&self) -> Option<Instant> {
        let due = lock(&self.shared().window).next_due();
        due.map(|due| self.shared().clock.instant(due))
    }

    fn settle(
        &self,
        ticket: Ticket,
        settlement: Settlement,
    ) -> BoxFuture<'_, Result<(), DriverError>> {
        Box::pin(self.shared().settle(ticket, settlement))
    }

    fn pause(&self) {
        lock(&self.shared().window).pause(true);
    }

    fn resume(&self) {
        lock(&self.shared().window).pause(false);
        self.shared().wake();
    }

    fn stat(&self) -> BoxFuture<'_, Result<Stat, DriverError>> {
        let stat = lock(&self.shared().window).stat(self.shared().clock.now());
        Box::pin(std::future::ready(Ok(stat)))
    }

    fn withdraw<'a>(
        &'a self,
        id: Option<&'a str>,
        after: Option<Vec<u8>>,
    ) -> BoxFuture<'a, Result<Withdrawn, DriverError>> {
        Box::pin(
            self.shared()
                .withdraw_part(id.map(ToOwned::to_owned), after),
        )
    }

    fn take_expired(&self, now_ms: u64) -> BoxFuture<'_, Result<Vec<Delivery>, DriverError>> {
        Box::pin(self.shared().take_expired(now_ms))
    }

    fn next_expiry(&self) -> Option<u64> {
        lock(&self.shared().window).expires_at()
    }

    fn list(&self, after: Option<Vec<u8>>) -> BoxFuture<'_, Result<Part, DriverError>> {
        Box::pin(self.shared().part(after))
    }

    fn health(&self) -> Result<(), String> {
        if lock(&self.shared().window).is_stale() {
            return Err("the store can't be written or read".to_owned());
        }
        Ok(())
    }
}

impl std::fmt::Debug for Open {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.shared.pipeline)
    }
}

impl std::fmt::Debug for Embedded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let pipeline = &self.shared().pipeline;
        f.debug_struct("Embedded")
            .field("pipeline", pipeline)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_clock_that_is_set_makes_no_job_early_or_late() {
        let clock = |at_start| Clock {
            start: Instant::now(),
            at_start,
        };
        let (one, due) = (clock(5000), 8000);
        tokio::time::advance(Duration::from_secs(2)).await;
        // Whatever the calendar says meanwhile.
        assert_eq!(one.now(), 7000);
        assert_eq!(one.instant(due), Instant::now() + Duration::from_secs(1));
        // A later process begins with what it says then.
        let behind = clock(1000);
        assert_eq!(behind.instant(due), Instant::now() + Duration::from_secs(7));
        let ahead = clock(u64::MAX / 2);
        assert_eq!(ahead.instant(due), Instant::now());
    }
}
