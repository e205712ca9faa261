//! Batches: jobs with one that is pushed when all of them have come to their end.
//!
//! What is left of a batch is in the server's store, whatever driver its pipelines have: an entry
//! for the batch, and one for each of its jobs that has not ended. A job's entry goes before its
//! pipeline forgets the job, and the last job is pushed before the batch is forgotten: after a
//! crash in between, one is done twice, and none is lost.
//!
//! A job that was not kept, as another one has its key, has that one's end: its entry names the
//! other.
//!
//! A job that ends with its process has a note of that process: one in memory, and one with
//! `auto_ack`, which leaves its pipeline before it runs. Once the process is gone, its jobs that
//! are nowhere have ended.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::{Bound, ControlFlow};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pronghorn_base::{lock, millis, now_ms};
use pronghorn_queue::options::JobOptions;
use pronghorn_queue::{Job, decode_job, encode_job};
use pronghorn_store::{
    Failed, LazyStore, OpenError, Store, StoreError, Transaction, Tree, entry_size,
};
use prost::Message;
use serde::Serialize;
use thiserror::Error;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::shares::has_room;

const TREE: Tree = Tree::new("jobs.batches");
/// How many batches there are, under [`COUNT`], and how many of each pipeline, that of their last
/// job, under [`share_of`] it. A release before has not counted those.
const COUNTS: Tree = Tree::new("jobs.batches.count");
const COUNT: &[u8] = b"all";
/// `other 0 batch 0 job`: a job of a batch has the end of another one, which is
/// written as [`scoped`](crate::keys::scoped) has it.
const FOLLOWED: Tree = Tree::new("jobs.batches.followed");
/// `batch 0 job`: a job of a batch that ends with a process, as a [`StoredHold`].
const HELD: Tree = Tree::new("jobs.batches.held");

/// Batches that are not done. Some may have lost their jobs, with a pipeline that was in memory or
/// was destroyed: those go when they are too old.
const MOST: u64 = 100_000;
/// A batch whose jobs have not ended so long after the last of them was due never ends: jobs that
/// wait are started within hours or days.
const LONGEST: Duration = Duration::from_hours(30 * 24);
/// Ends of jobs that the store has not taken. A batch whose job is not among them waits until it is
/// given up. See [`has_room`] for what a pipeline has of them.
const MOST_OWED: u64 = 100_000;
/// A process that ends has given its jobs in memory to the next one by then: the time for pushes
/// and for their answers.
const MOVING: Duration = Duration::from_mins(2);
/// Batches that are looked at in one step of the store: others wait for it.
const PART: usize = 500;
/// The same of notes of processes, which are short.
const HELD_PART: usize = if cfg!(test) { 2 } else { 5000 };

/// What is left of batches. Clones are the same ones.
#[derive(Clone, Debug)]
pub(crate) struct Batches(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    store: LazyStore,
    /// When this process began, in milliseconds since 1970.
    began: u64,
    /// This process, in its notes.
    process: u64,
    /// Whose jobs have ended, and that are not forgotten yet.
    over: Mutex<HashMap<String, Stage>>,
    /// One of them has to wait.
    news: Notify,
    followers: Mutex<Followers>,
    owed: Mutex<Owing>,
    /// No job ends with a process before this one any more.
    is_settled: AtomicBool,
}

/// Ends that could not be told.
#[derive(Debug, Default)]
struct Owing {
    all: Vec<Owed>,
    /// The number of those of each pipeline.
    shares: HashMap<String, u64>,
}

/// The end of a job that its batches could not be told.
#[derive(Clone, Debug)]
pub(crate) struct Owed {
    pub(crate) pipeline: String,
    pub(crate) id: String,
    /// The options of the job.
    pub(crate) extras: JobOptions,
    pub(crate) failed: bool,
}

/// A job of a batch that a process before has had, and that ended with it unless it is somewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HeldPart {
    pub(crate) part: Part,
    /// The pipeline that it was in.
    pub(crate) pipeline: String,
    process: u64,
    until: u64,
}

impl HeldPart {
    /// Whether it may be between two processes, at this time in milliseconds since 1970.
    pub(crate) fn is_on_its_way(&self, now_ms: u64) -> bool {
        // A clock that was set back does not keep it for ever.
        let left = self.until.saturating_sub(now_ms);
        left > 0 && left <= millis(MOVING)
    }
}

/// A mirror of [`FOLLOWED`], for this process alone: while another one works with the store, it is
/// asked itself.
#[derive(Debug, Default)]
struct Followers {
    /// By the ID of a job, the jobs that have its end.
    by_job: HashMap<String, Vec<Part>>,
    /// The followers that the store had at the start are read.
    is_whole: bool,
}

/// The next step for a batch whose jobs have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Somebody is at it.
    InHand,
    /// Its last job could not be pushed, first at this time.
    Waits { since: Instant },
    /// All but forgetting it.
    Pushed,
}

/// Jobs of a batch that is to be kept: their IDs, and for each that ends with this process its
/// pipeline.
pub(crate) type Parts = Vec<(String, Option<String>)>;

/// A job of a batch.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Part {
    pub(crate) batch: String,
    /// The push of that batch. 0: not known, and it counts.
    pub(crate) push: u64,
    pub(crate) job: String,
}

impl Part {
    /// The part of a batch that a job is.
    pub(crate) fn of(id: &str, extras: &JobOptions) -> Option<Self> {
        Some(Self {
            batch: extras.batch.clone()?,
            push: extras.batch_push,
            job: id.to_owned(),
        })
    }
}

/// The outcome for a batch that is to be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BatchKept {
    New,
    /// It is there already, as whoever did not hear of it pushes it again.
    Same,
    /// Another one of its ID is there, and stays.
    Other,
}

/// The job that comes last, and where it goes.
#[derive(Clone, Debug)]
pub(crate) struct Last {
    pub(crate) pipeline: String,
    pub(crate) job: Job,
}

/// A batch as it is seen from outside.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Summary {
    /// That of its last job.
    pub(crate) id: String,
    /// The name of the last job.
    pub(crate) job: String,
    pub(crate) pipeline: String,
    pub(crate) jobs: u64,
    pub(crate) ended: u64,
    pub(crate) failed: u64,
    /// Milliseconds since 1970.
    pub(crate) since: u64,
    /// When it is given up, in milliseconds since 1970.
    pub(crate) until: u64,
    /// All of its jobs have ended.
    #[serde(skip)]
    pub(crate) is_over: bool,
    /// A process before this one ended while its jobs were pushed.
    #[serde(skip)]
    pub(crate) was_cut_off: bool,
}

#[derive(Debug, Error)]
pub(crate) enum BatchError {
    #[error(
        "of the {MOST} batches that may be open, too many are, and no more are taken (hint: `pronghorn jobs batches` \
         shows them, and `pronghorn jobs cancel ID` ends one)"
    )]
    TooMany,
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A batch as it is written.
#[derive(Clone, PartialEq, Message)]
struct Stored {
    #[prost(string, tag = "1")]
    pipeline: String,
    #[prost(bytes = "vec", tag = "2")]
    last: Vec<u8>,
    #[prost(uint64, tag = "3")]
    jobs: u64,
    #[prost(uint64, tag = "4")]
    failed: u64,
    #[prost(uint64, tag = "5")]
    since: u64,
    #[prost(uint64, tag = "6")]
    ended: u64,
    #[prost(uint64, tag = "7")]
    until: u64,
    /// The delay of the last job, in milliseconds: it begins when all others have ended.
    #[prost(uint64, tag = "8")]
    delay: u64,
    /// Its jobs are being pushed.
    #[prost(bool, tag = "9")]
    is_under_way: bool,
    /// A hash of its jobs and of the last one as they came. 0: of a release before.
    #[prost(fixed64, tag = "10")]
    content: u64,
    /// A number that its jobs have, too, so that those of one of this ID that was cancelled do not
    /// count. 0: of a release before.
    #[prost(fixed64, tag = "11")]
    push: u64,
    /// The bytes that it takes in the store, which its pipeline has of its share.
    #[prost(uint64, tag = "12")]
    size: u64,
}

/// The process that a job ends with, as it is written.
#[derive(Clone, PartialEq, Message)]
struct StoredHold {
    #[prost(fixed64, tag = "1")]
    process: u64,
    #[prost(string, tag = "2")]
    pipeline: String,
    /// As of [`Part`].
    #[prost(fixed64, tag = "3")]
    push: u64,
    /// The process is about to give it to the next one: until then, in milliseconds since 1970, it
    /// may be nowhere.
    #[prost(uint64, tag = "4")]
    until: u64,
}

impl Stored {
    /// A process before the one that `began` then has ended while it pushed the jobs.
    fn was_cut_off(&self, began: u64) -> bool {
        self.is_under_way && self.since < began
    }

    /// Whether somebody pushes this one, which is kept, again.
    fn is_same(&self, again: &Self) -> bool {
        !self.is_under_way && self.content == again.content
    }

    fn last(self) -> Last {
        let mut job = decode_job(&self.last);
        job.delay = Duration::from_millis(self.delay);
        for (name, value) in [("batch-jobs", self.jobs), ("batch-failed", self.failed)] {
            job.headers.insert(name.to_owned(), vec![value.to_string()]);
        }
        let pipeline = self.pipeline;
        Last { pipeline, job }
    }

    fn until(&self) -> u64 {
        // One of a release before says nothing.
        match self.until {
            0 => self.since.saturating_add(millis(LONGEST)),
            until => until,
        }
    }
}

impl Batches {
    pub(crate) fn new(store: LazyStore) -> Self {
        Self(Arc::new(Shared {
            store,
            began: now_ms(),
            process: fastrand::u64(1..),
            over: Mutex::default(),
            news: Notify::new(),
            followers: Mutex::default(),
            owed: Mutex::default(),
            is_settled: AtomicBool::new(false),
        }))
    }

    /// Keeps a batch before its jobs are pushed, the last of which is due after such a time, unless
    /// there is one of this ID. IDs have no bytes of zero.
    pub(crate) async fn keep(
        &self,
        id: &str,
        last: &Last,
        jobs: Parts,
        (content, push): (u64, u64),
        due_after: Duration,
    ) -> Result<BatchKept, BatchError> {
        let now = now_ms();
        let mut stored = Stored {
            pipeline: last.pipeline.clone(),
            last: encode_job(&last.job),
            jobs: jobs.len() as u64,
            failed: 0,
            since: now,
            ended: 0,
            until: now.saturating_add(millis(due_after.saturating_add(LONGEST))),
            delay: millis(last.job.delay),
            is_under_way: true,
            content,
            push,
            size: u64::MAX, // as long as any
        };
        let head = key(id, "");
        let longest = stored.encoded_len() as u64;
        let process = self.0.process;
        let jobs = jobs.into_iter().map(|(job, pipeline)| {
            let hold = pipeline.map(|pipeline| hold_of(process, &pipeline, push, 0));
            (key(id, &job), hold)
        });
        let jobs: Vec<_> = jobs.collect();
        let sizes = jobs.iter().map(|(key, hold)| {
            let hold = hold.as_ref().map_or(0, |hold| entry_size(key, hold));
            entry_size(key, b"") + hold
        });
        let size = entry_size(&head, b"") + longest + sizes.sum::<u64>();
        stored.size = size;
        let value = stored.encode_to_vec();
        let bytes = bytes_of(&stored.pipeline);
        let held = held_by(bytes.clone());
        let (began, id) = (self.0.began, id.to_owned());
        let write = move |transaction: &mut Transaction<'_>| {
            if let Some(known) = transaction.get(TREE, &head)? {
                let known = Stored::decode(&*known).unwrap_or_default();
                if !known.was_cut_off(began) {
                    let kept = if known.is_same(&stored) {
                        BatchKept::Same
                    } else {
                        BatchKept::Other
                    };
                    return Ok(Some(kept));
                }
                remove(transaction, &id)?;
            }
            let count = count(transaction)?;
            let share = share_of(&stored.pipeline);
            let own = counted(transaction, &share)?.unwrap_or(0);
            if !has_room(own, count, MOST) {
                return Ok(None);
            }
            put_count(transaction, COUNT, count + 1)?;
            put_count(transaction, &share, own + 1)?;
            add_bytes(transaction, &bytes, size)?;
            transaction.put(TREE, &head, &value)?;
            for (key, hold) in &jobs {
                transaction.put(TREE, key, b"")?;
                if let Some(hold) = hold {
                    transaction.put(HELD, key, hold)?;
                }
            }
            Ok(Some(BatchKept::New))
        };
        let store = self.open().await?;
        let kept = store.carry_out_in_share(size, held, write, |outcome| outcome);
        kept.await??.ok_or(BatchError::TooMany)
    }

    /// All jobs of a batch are pushed.
    pub(crate) async fn is_pushed(&self, id: &str) -> Result<(), BatchError> {
        let head = key(id, "");
        let write = move |transaction: &mut Transaction<'_>| {
            // It may be over.
            if let Some(value) = transaction.get(TREE, &head)? {
                let mut stored = Stored::decode(&*value).unwrap_or_default();
                stored.is_under_way = false;
                transaction.put(TREE, &head, &stored.encode_to_vec())?;
            }
            Ok(())
        };
        let store = self.open().await?;
        Ok(store.carry_out(0, write, |outcome| outcome).await??)
    }

    /// These jobs of a pipeline end with this process from now on.
    pub(crate) async fn hold(&self, pipeline: &str, parts: Vec<Part>) -> Result<(), BatchError> {
        self.hold_until(pipeline, parts, 0).await
    }

    /// These jobs of a pipeline are given to the next process within some time.
    pub(crate) async fn give_away(
        &self,
        pipeline: &str,
        parts: Vec<Part>,
    ) -> Result<(), BatchError> {
        let until = now_ms().saturating_add(millis(MOVING));
        self.hold_until(pipeline, parts, until).await
    }

    async fn hold_until(
        &self,
        pipeline: &str,
        parts: Vec<Part>,
        until: u64,
    ) -> Result<(), BatchError> {
        let (process, pipeline) = (self.0.process, pipeline.to_owned());
        let write = move |transaction: &mut Transaction<'_>| {
            for Part { batch, push, job } in &parts {
                let entry = key(batch, job);
                if is_of(transaction, batch, *push)? && transaction.get(TREE, &entry)?.is_some() {
                    transaction.put(HELD, &entry, &hold_of(process, &pipeline, *push, until))?;
                }
            }
            Ok(())
        };
        let store = self.open().await?;
        // They have their place also in a full store: there are not many.
        Ok(store.carry_out(0, write, |outcome| outcome).await??)
    }

    /// The jobs that end with other processes. It makes no store where there is none.
    pub(crate) async fn held_by_others(&self) -> Result<Vec<HeldPart>, BatchError> {
        let (mut all, mut from) = (Vec::new(), Some(Vec::new()));
        while let Some(after) = from {
            let Some(store) = self.0.store.get_if_there().await else {
                break;
            };
            let own = self.0.process;
            let read = move |transaction: &mut Transaction<'_>| {
                let (mut part, mut seen, mut last) = (Vec::new(), 0, None);
                transaction.scan(HELD, Bound::Excluded(&after), |key, value| {
                    part.extend(read_held(key, value).filter(|held| held.process != own));
                    seen += 1;
                    if seen < HELD_PART {
                        return ControlFlow::Continue(());
                    }
                    last = Some(key.to_vec());
                    ControlFlow::Break(())
                })?;
                Ok((part, last))
            };
            let (part, last) = store?.look(read).await?;
            all.extend(part);
            from = last;
        }
        Ok(all)
    }

    /// Whether all jobs that ended with other processes are known.
    pub(crate) fn is_settled(&self) -> bool {
        self.0.is_settled.load(Ordering::Relaxed)
    }

    /// They are, and the other processes are gone.
    pub(crate) fn settle(&self) {
        self.0.is_settled.store(true, Ordering::Relaxed);
    }

    /// A job that was held is in a pipeline which outlives processes.
    pub(crate) async fn let_go(&self, held: &HeldPart) -> Result<(), BatchError> {
        let held = held.clone();
        let write = move |transaction: &mut Transaction<'_>| {
            let entry = key(&held.part.batch, &held.part.job);
            if is_held(transaction, &entry, held.process)? {
                transaction.remove(HELD, &entry)?;
            }
            Ok(())
        };
        let store = self.open().await?;
        Ok(store.carry_out(0, write, |outcome| outcome).await??)
    }

    /// A job has ended with the process that had it, and has failed; as [`ended`](Self::ended). Not
    /// one that has begun here meanwhile.
    pub(crate) async fn ended_with_process(
        &self,
        held: &HeldPart,
    ) -> Result<Option<Last>, BatchError> {
        let lost = held.clone();
        let write = move |transaction: &mut Transaction<'_>| {
            let Part { batch, job, .. } = &lost.part;
            if !is_held(transaction, &key(batch, job), lost.process)? {
                return Ok(None);
            }
            end(transaction, &lost.part, true)
        };
        self.end_by(&held.part.batch, write).await
    }

    /// Keeps the end of a job that could not be told. False: there are too many.
    pub(crate) fn owe(&self, owed: Owed) -> bool {
        let mut owing = lock(&self.0.owed);
        let all = owing.all.len() as u64;
        let own = owing.shares.entry(owed.pipeline.clone()).or_default();
        if !has_room(*own, all, MOST_OWED) {
            return false;
        }
        *own += 1;
        owing.all.push(owed);
        drop(owing);
        self.0.news.notify_one();
        true
    }

    /// The ends that are kept, which are not kept any more.
    pub(crate) fn take_owed(&self) -> Vec<Owed> {
        std::mem::take(&mut *lock(&self.0.owed)).all
    }

    /// A job has ended for good, or was not pushed. What comes last, if it was the only one left:
    /// who gets that pushes it and [forgets](Self::forget) the batch, or has it
    /// [wait](Self::put_off).
    pub(crate) async fn ended(
        &self,
        part: &Part,
        failed: bool,
    ) -> Result<Option<Last>, BatchError> {
        let ended = part.clone();
        let write = move |transaction: &mut Transaction<'_>| end(transaction, &ended, failed);
        self.end_by(&part.batch, write).await
    }

    /// Takes a batch in hand that is over by a step.
    async fn end_by(
        &self,
        batch: &str,
        write: impl FnOnce(&mut Transaction<'_>) -> Result<Option<Stored>, Failed> + Send + 'static,
    ) -> Result<Option<Last>, BatchError> {
        let store = self.open().await?;
        let last = store.carry_out(0, write, |outcome| outcome).await??;
        let is_mine = last.is_some() && {
            let mut over = lock(&self.0.over);
            let is_new = !over.contains_key(batch);
            over.entry(batch.to_owned()).or_insert(Stage::InHand);
            is_new
        };
        Ok(last.filter(|_| is_mine).map(Stored::last))
    }

    /// The last job of a batch could not be pushed now.
    pub(crate) fn put_off(&self, id: &str, since: Instant) {
        lock(&self.0.over).insert(id.to_owned(), Stage::Waits { since });
        self.0.news.notify_one();
    }

    /// The jobs of a batch have ended, and nobody may be at it. Whoever is, at this moment, stays
    /// the only one: its last job is pushed once.
    pub(crate) fn adopt(&self, id: &str) {
        let since = Instant::now();
        let mut over = lock(&self.0.over);
        over.entry(id.to_owned()).or_insert(Stage::Waits { since });
        drop(over);
        self.0.news.notify_one();
    }

    /// Takes in hand those that wait.
    pub(crate) fn take_waiting(&self) -> Vec<(String, Stage)> {
        let mut over = lock(&self.0.over);
        let waiting = over
            .iter_mut()
            .filter(|(_, stage)| **stage != Stage::InHand);
        waiting
            .map(|(id, stage)| (id.clone(), std::mem::replace(stage, Stage::InHand)))
            .collect()
    }

    pub(crate) fn has_waiting(&self) -> bool {
        let is_waiting = |stage: &Stage| *stage != Stage::InHand;
        !lock(&self.0.owed).all.is_empty() || lock(&self.0.over).values().any(is_waiting)
    }

    /// Returns when one has to wait. Cancel safe.
    pub(crate) async fn put_off_one(&self) {
        self.0.news.notified().await;
    }

    /// The last job of a batch.
    pub(crate) async fn last(&self, id: &str) -> Result<Option<Last>, BatchError> {
        let head = key(id, "");
        let read = move |transaction: &mut Transaction<'_>| transaction.get(TREE, &head);
        let store = self.open().await?;
        let value = store.carry_out(0, read, |outcome| outcome).await??;
        Ok(value.map(|value| Stored::decode(&*value).unwrap_or_default().last()))
    }

    /// Where the job of this ID goes that comes when those of its batch have ended. None: there is
    /// no such batch.
    pub(crate) async fn pipeline_of_last(&self, id: &str) -> Result<Option<String>, BatchError> {
        let Some(store) = self.0.store.get_if_there().await else {
            return Ok(None);
        };
        let head = key(id, "");
        let read = move |transaction: &mut Transaction<'_>| transaction.get(TREE, &head);
        let value = store?.carry_out(0, read, |outcome| outcome).await??;
        Ok(value.map(|value| Stored::decode(&*value).unwrap_or_default().pipeline))
    }

    /// Some batches, those behind the one of this ID; whether there may be more.
    pub(crate) async fn list(
        &self,
        after: Option<&str>,
    ) -> Result<(Vec<Summary>, bool), BatchError> {
        let Some(store) = self.0.store.get_if_there().await else {
            return Ok((Vec::new(), false));
        };
        let (after, began) = (after.map(behind), self.0.began);
        let read = move |transaction: &mut Transaction<'_>| some(transaction, after, began);
        let found = store?.carry_out(0, read, |outcome| outcome).await??;
        let has_more = found.len() == PART;
        Ok((found, has_more))
    }

    /// Whether somebody is at this batch, or it waits.
    pub(crate) fn is_known_as_over(&self, id: &str) -> bool {
        lock(&self.0.over).contains_key(id)
    }

    /// Its last job is pushed, or none of its jobs was, or it is given up. If that fails, it is
    /// tried again with those that wait.
    pub(crate) async fn forget(&self, id: &str) -> Result<(), BatchError> {
        let batch = id.to_owned();
        let write = move |transaction: &mut Transaction<'_>| remove(transaction, &batch);
        let removed = match self.open().await {
            Ok(store) => store
                .carry_out(0, write, |outcome| outcome)
                .await
                .map_err(BatchError::from)
                .and_then(|done| Ok(done?)),
            Err(error) => Err(error),
        };
        match removed {
            Ok(()) => _ = lock(&self.0.over).remove(id),
            Err(_) => {
                lock(&self.0.over).insert(id.to_owned(), Stage::Pushed);
                self.0.news.notify_one();
            }
        }
        removed
    }

    /// A job of a batch has the end of another one, which has its key. The last job of the batch
    /// goes to this pipeline.
    pub(crate) async fn follow(
        &self,
        part: &Part,
        other: &str,
        pipeline: &str,
    ) -> Result<(), BatchError> {
        let entry = key(&part.batch, &part.job);
        let link = link(other, part);
        let size = entry_size(&entry, other.as_bytes()) + entry_size(&link, b"");
        let value = other.to_owned().into_bytes();
        let (pipeline, head) = (pipeline.to_owned(), key(&part.batch, ""));
        let bytes = bytes_of(&pipeline);
        let held = held_by(bytes.clone());
        let write = move |transaction: &mut Transaction<'_>| {
            let stored = transaction.get(TREE, &head)?;
            let stored = stored.map(|value| Stored::decode(&*value).unwrap_or_default());
            let is_its = stored.is_some_and(|stored| stored.pipeline == pipeline);
            if is_its && transaction.get(TREE, &entry)?.is_some() {
                add_bytes(transaction, &bytes, size)?;
                transaction.put(TREE, &entry, &value)?;
                transaction.remove(HELD, &entry)?;
                transaction.put(FOLLOWED, &link, b"")?;
            }
            Ok(())
        };
        let store = self.open().await?;
        let following = store.carry_out_in_share(size, held, write, |outcome| outcome);
        following.await??;
        lock(&self.0.followers).add(other.to_owned(), part.clone());
        Ok(())
    }

    /// Returns when the store is this process' alone, so that what is read of it stays true.
    pub(crate) async fn left_alone(&self) {
        self.0.store.left_alone().await;
    }

    /// Whether it is this process' alone now.
    pub(crate) fn is_alone(&self) -> bool {
        !self.0.store.others().are_there
    }

    /// Reads which jobs have the end of others. It makes no store where there is none. Returns the
    /// others of which this process did not know that.
    pub(crate) async fn load(&self) -> Result<BTreeSet<String>, BatchError> {
        let mut read = self.read_followers(None).await?;
        let mut followers = lock(&self.0.followers);
        read.retain(|(other, part)| !followers.has(other, part));
        let news = read.iter().map(|(other, _)| other.clone()).collect();
        for (other, part) in read {
            followers.add(other, part);
        }
        followers.is_whole = true;
        Ok(news)
    }

    /// The jobs that have the end of this one. Each is one until it has [ended](Self::ended).
    pub(crate) async fn followers(&self, job: &str) -> Result<Vec<Part>, BatchError> {
        let is_alone = !self.0.store.others().are_there;
        let known = {
            let followers = lock(&self.0.followers);
            (is_alone && followers.is_whole)
                .then(|| followers.by_job.get(job).cloned().unwrap_or_default())
        };
        if let Some(known) = known {
            return Ok(known);
        }
        let read = self.read_followers(Some(job)).await?;
        let read = read.into_iter().filter(|(other, _)| other == job);
        Ok(read.map(|(_, part)| part).collect())
    }

    /// These followers of a job have ended. Others may have come meanwhile, and stay.
    pub(crate) fn forget_followers(&self, job: &str, ended: &[Part]) {
        let ended: HashSet<_> = ended.iter().collect();
        let mut followers = lock(&self.0.followers);
        if let Some(parts) = followers.by_job.get_mut(job) {
            parts.retain(|part| !ended.contains(part));
            if parts.is_empty() {
                followers.by_job.remove(job);
            }
        }
    }

    /// The followers of one job, or all, each with the ID of the job that it follows.
    async fn read_followers(&self, of: Option<&str>) -> Result<Vec<(String, Part)>, BatchError> {
        let Some(store) = self.0.store.get_if_there().await else {
            return Ok(Vec::new());
        };
        let prefix = of.map(|of| [of.as_bytes(), b"\0"].concat());
        let read = move |transaction: &mut Transaction<'_>| {
            let mut read = Vec::new();
            let prefix = prefix.as_deref().unwrap_or_default();
            transaction.scan(FOLLOWED, Bound::Included(prefix), |key, _| {
                if !key.starts_with(prefix) {
                    return ControlFlow::Break(());
                }
                read.extend(read_link(key));
                ControlFlow::Continue(())
            })?;
            Ok(read)
        };
        Ok(store?.carry_out(0, read, |outcome| outcome).await??)
    }

    async fn open(&self) -> Result<Store, BatchError> {
        Ok(self.0.store.get().await?)
    }
}

impl Followers {
    fn has(&self, other: &str, part: &Part) -> bool {
        let parts = self.by_job.get(other);
        parts.is_some_and(|parts| parts.contains(part))
    }

    fn add(&mut self, other: String, part: Part) {
        let parts = self.by_job.entry(other).or_default();
        if !parts.contains(&part) {
            parts.push(part);
        }
    }
}

/// The name of a batch's own entry, and of those of its jobs behind it.
fn key(batch: &str, job: &str) -> Vec<u8> {
    [batch.as_bytes(), b"\0", job.as_bytes()].concat()
}

/// Where the entries begin that are behind those of a batch: the byte after the one of zero.
fn behind(batch: &str) -> Vec<u8> {
    [batch.as_bytes(), b"\x01"].concat()
}

fn link(other: &str, part: &Part) -> Vec<u8> {
    [other.as_bytes(), b"\0", &key(&part.batch, &part.job)].concat()
}

/// None for what is no such link.
fn read_link(key: &[u8]) -> Option<(String, Part)> {
    let text = std::str::from_utf8(key).ok()?;
    // The end is that of the part: neither of its IDs has a byte of zero.
    let (rest, job) = text.rsplit_once('\0')?;
    let (other, batch) = rest.rsplit_once('\0')?;
    let [batch, job] = [batch, job].map(str::to_owned);
    let push = 0; // links go with their batch
    Some((other.to_owned(), Part { batch, push, job }))
}

fn hold_of(process: u64, pipeline: &str, push: u64, until: u64) -> Vec<u8> {
    let pipeline = pipeline.to_owned();
    let hold = StoredHold {
        process,
        pipeline,
        push,
        until,
    };
    hold.encode_to_vec()
}

/// None for what is no such note.
fn read_held(key: &[u8], value: &[u8]) -> Option<HeldPart> {
    let (batch, job) = std::str::from_utf8(key).ok()?.split_once('\0')?;
    let StoredHold {
        process,
        pipeline,
        push,
        until,
    } = StoredHold::decode(value).ok()?;
    let (batch, job) = (batch.to_owned(), job.to_owned());
    let part = Part { batch, push, job };
    Some(HeldPart {
        part,
        pipeline,
        process,
        until,
    })
}

/// Whether a job is held by this process still.
fn is_held(transaction: &mut Transaction<'_>, entry: &[u8], by: u64) -> Result<bool, Failed> {
    let value = transaction.get(HELD, entry)?;
    let hold = value.and_then(|value| StoredHold::decode(&*value).ok());
    Ok(hold.is_some_and(|hold| hold.process == by))
}

/// Whether a batch is there, by this push of it.
fn is_of(transaction: &mut Transaction<'_>, batch: &str, push: u64) -> Result<bool, Failed> {
    let value = transaction.get(TREE, &key(batch, ""))?;
    let stored = value.map(|value| Stored::decode(&*value).unwrap_or_default());
    Ok(stored.is_some_and(|stored| [0, stored.push].contains(&push)))
}

/// The batch, if this was the end of its last job but one.
fn end(
    transaction: &mut Transaction<'_>,
    part: &Part,
    failed: bool,
) -> Result<Option<Stored>, Failed> {
    let Part { batch, push, job } = part;
    let (head, entry) = (key(batch, ""), key(batch, job));
    let Some(value) = transaction.get(TREE, &head)? else {
        return Ok(None); // it was over before
    };
    let mut stored = Stored::decode(&*value).unwrap_or_default();
    if ![0, stored.push].contains(push) {
        return Ok(None); // its batch was cancelled, and this one pushed since
    }
    // One that has run again after a crash is not counted twice.
    if let Some(followed) = transaction.get(TREE, &entry)? {
        transaction.remove(TREE, &entry)?;
        transaction.remove(HELD, &entry)?;
        let freed = unlink(transaction, &followed, batch, job)?;
        free_bytes(transaction, &bytes_of(&stored.pipeline), freed)?;
        stored.ended += 1;
        stored.failed += u64::from(failed);
        transaction.put(TREE, &head, &stored.encode_to_vec())?;
    }
    Ok(is_over(transaction, &head)?.then_some(stored))
}

/// Whether there is no job left behind the entry of a batch.
fn is_over(transaction: &mut Transaction<'_>, head: &[u8]) -> Result<bool, Failed> {
    let mut is_over = true;
    transaction.scan(TREE, Bound::Excluded(head), |key, _| {
        is_over = !key.starts_with(head);
        ControlFlow::Break(())
    })?;
    Ok(is_over)
}

fn unlink(
    transaction: &mut Transaction<'_>,
    followed: &[u8],
    batch: &str,
    job: &str,
) -> Result<u64, Failed> {
    if let Ok(other) = str::from_utf8(followed)
        && !other.is_empty()
    {
        let entry = key(batch, job);
        let (batch, job) = (batch.to_owned(), job.to_owned());
        let push = 0; // no part of a link
        let link = link(other, &Part { batch, push, job });
        if transaction.remove(FOLLOWED, &link)? {
            return Ok(entry_size(&entry, followed) + entry_size(&link, b""));
        }
    }
    Ok(0)
}

fn remove(transaction: &mut Transaction<'_>, batch: &str) -> Result<(), Failed> {
    let head = key(batch, "");
    let mut entries = Vec::new();
    transaction.scan(TREE, Bound::Included(&head), |key, value| {
        if !key.starts_with(&head) {
            return ControlFlow::Break(());
        }
        entries.push((key.to_vec(), value.to_vec()));
        ControlFlow::Continue(())
    })?;
    let first = entries.first().filter(|(key, _)| *key == head);
    let stored = first.map(|(_, value)| Stored::decode(&**value).unwrap_or_default());
    let mut freed = 0;
    for (key, value) in entries {
        transaction.remove(TREE, &key)?;
        transaction.remove(HELD, &key)?;
        if let Ok(job) = str::from_utf8(&key[head.len()..])
            && !job.is_empty()
        {
            freed += unlink(transaction, &value, batch, job)?;
        }
    }
    if let Some(Stored { pipeline, size, .. }) = stored {
        free_bytes(
            transaction,
            &bytes_of(&pipeline),
            freed.saturating_add(size),
        )?;
        let count = count(transaction)?.saturating_sub(1);
        put_count(transaction, COUNT, count)?;
        let share = share_of(&pipeline);
        match counted(transaction, &share)? {
            Some(own) if own > 1 => put_count(transaction, &share, own - 1)?,
            Some(_) => _ = transaction.remove(COUNTS, &share)?,
            None => {}
        }
    }
    Ok(())
}

fn share_of(pipeline: &str) -> Vec<u8> {
    [b"of\0", pipeline.as_bytes()].concat()
}

/// The key under which the bytes of a pipeline's batches are counted.
fn bytes_of(pipeline: &str) -> Vec<u8> {
    [b"bytes\0", pipeline.as_bytes()].concat()
}

/// The bytes that are counted there, for the store.
fn held_by(
    bytes: Vec<u8>,
) -> impl FnOnce(&mut Transaction<'_>) -> Result<u64, Failed> + Send + 'static {
    move |transaction| Ok(counted(transaction, &bytes)?.unwrap_or(0))
}

fn add_bytes(transaction: &mut Transaction<'_>, to: &[u8], bytes: u64) -> Result<(), Failed> {
    let before = counted(transaction, to)?.unwrap_or(0);
    put_count(transaction, to, before.saturating_add(bytes))
}

fn free_bytes(transaction: &mut Transaction<'_>, of: &[u8], bytes: u64) -> Result<(), Failed> {
    match counted(transaction, of)? {
        Some(before) if before > bytes => put_count(transaction, of, before - bytes),
        Some(_) => transaction.remove(COUNTS, of).map(drop),
        None => Ok(()),
    }
}

fn counted(transaction: &mut Transaction<'_>, under: &[u8]) -> Result<Option<u64>, Failed> {
    let written = transaction.get(COUNTS, under)?;
    let count = written.and_then(|bytes| bytes.try_into().ok());
    Ok(count.map(u64::from_be_bytes))
}

fn put_count(transaction: &mut Transaction<'_>, under: &[u8], count: u64) -> Result<(), Failed> {
    transaction.put(COUNTS, under, &count.to_be_bytes())
}

/// Some batches, from a key on.
fn some(
    transaction: &mut Transaction<'_>,
    mut from: Option<Vec<u8>>,
    began: u64,
) -> Result<Vec<Summary>, Failed> {
    let mut all = Vec::new();
    while all.len() < PART {
        let Some((head, value)) = next(transaction, from.as_deref())? else {
            break;
        };
        let id = head.strip_suffix(b"\0").unwrap_or(&head);
        let id = String::from_utf8_lossy(id).into_owned();
        from = Some(behind(&id));
        let stored = Stored::decode(&*value).unwrap_or_default();
        let is_over = is_over(transaction, &head)?;
        all.push(Summary {
            id,
            job: decode_job(&stored.last).name,
            jobs: stored.jobs,
            ended: if is_over { stored.jobs } else { stored.ended },
            failed: stored.failed,
            since: stored.since,
            until: stored.until(),
            is_over,
            was_cut_off: stored.was_cut_off(began),
            pipeline: stored.pipeline,
        });
    }
    Ok(all)
}

/// Key and value.
type Entry = (Vec<u8>, Vec<u8>);

/// The first entry from a key on.
fn next(transaction: &mut Transaction<'_>, from: Option<&[u8]>) -> Result<Option<Entry>, Failed> {
    let mut found = None;
    let from = from.map_or(Bound::Unbounded, Bound::Included);
    transaction.scan(TREE, from, |key, value| {
        found = Some((key.to_vec(), value.to_vec()));
        ControlFlow::Break(())
    })?;
    Ok(found)
}

/// How many batches there are.
fn count(transaction: &mut Transaction<'_>) -> Result<u64, Failed> {
    if let Some(count) = counted(transaction, COUNT)? {
        return Ok(count);
    }
    // A release before has not counted; it has kept 10,000 at most.
    let (mut count, mut from) = (0, None);
    while let Some((head, _)) = next(transaction, from.as_deref())? {
        count += 1;
        let end = head.iter().position(|byte| *byte == 0);
        let mut behind = head[..end.unwrap_or(head.len())].to_vec();
        behind.push(1);
        from = Some(behind);
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use pronghorn_testkit::Directory;

    use super::*;

    fn last() -> Last {
        Last {
            pipeline: "p".to_owned(),
            job: Job {
                id: "last".to_owned(),
                delay: Duration::from_secs(5),
                ..Job::default()
            },
        }
    }

    fn part(batch: &str, job: &str) -> Part {
        let (batch, job) = (batch.to_owned(), job.to_owned());
        Part {
            batch,
            push: 0,
            job,
        }
    }

    fn names(count: usize) -> Parts {
        (0..count)
            .map(|number| (format!("job-{number}"), None))
            .collect()
    }

    #[tokio::test]
    async fn the_last_job_comes_when_all_have_ended_also_after_a_restart() {
        let directory = Directory::new();
        let store = LazyStore::new(directory.to_path_buf(), 1 << 20);
        let batches = Batches::new(store.clone());
        let none = Duration::ZERO;
        batches
            .keep("a", &last(), names(3), (1, 1), none)
            .await
            .unwrap();
        batches
            .keep("ab", &last(), names(1), (1, 1), none)
            .await
            .unwrap();
        for (job, failed) in [("job-0", true), ("job-0", true), ("job-2", false)] {
            assert!(
                batches
                    .ended(&part("a", job), failed)
                    .await
                    .unwrap()
                    .is_none()
            );
        }
        store.close().await;
        let store = LazyStore::new(directory.to_path_buf(), 1 << 20);
        let batches = Batches::new(store.clone());
        let end = part("a", "job-1");
        let found = batches.ended(&end, false).await.unwrap().unwrap();
        assert_eq!((&*found.pipeline, &*found.job.id), ("p", "last"));
        assert_eq!(found.job.headers["batch-jobs"], ["3"]);
        assert_eq!(found.job.headers["batch-failed"], ["1"]);
        assert_eq!(found.job.delay, Duration::from_secs(5));
        // It is in hand.
        assert!(batches.ended(&end, false).await.unwrap().is_none());
        // A crash before it is forgotten: it comes again, and then never.
        let batches = Batches::new(store.clone());
        assert!(batches.ended(&end, false).await.unwrap().is_some());
        batches.forget("a").await.unwrap();
        assert!(batches.ended(&end, false).await.unwrap().is_none());
        let other = part("ab", "job-0");
        assert!(batches.ended(&other, false).await.unwrap().is_some());
        store.close().await;
    }

    #[tokio::test]
    async fn so_many_are_kept_and_no_more() {
        let directory = Directory::new();
        let store = LazyStore::new(directory.to_path_buf(), 64 << 20);
        let batches = Batches::new(store.clone());
        let none = Duration::ZERO;
        batches
            .keep("7", &last(), names(1), (1, 1), none)
            .await
            .unwrap();
        let open = store.get().await.unwrap();
        let fill = |transaction: &mut Transaction<'_>| {
            put_count(transaction, COUNT, MOST / 10 * 9)?;
            put_count(transaction, &share_of("p"), MOST / 10 * 9)
        };
        let filled = open.carry_out(0, fill, |outcome| outcome).await;
        filled.unwrap().unwrap();
        let refused = batches.keep("more", &last(), names(1), (1, 1), none).await;
        let refused = refused.unwrap_err().to_string();
        assert!(
            refused.starts_with("of the 100000 batches that may be open, too many are"),
            "{refused}"
        );
        batches.forget("7").await.unwrap();
        batches.forget("7").await.unwrap();
        batches
            .keep("more", &last(), names(1), (1, 1), none)
            .await
            .unwrap();
        assert!(
            batches
                .keep("one", &last(), names(1), (1, 1), none)
                .await
                .is_err()
        );
        let of_another = Last {
            pipeline: "q".to_owned(),
            ..last()
        };
        let kept = batches.keep("one", &of_another, names(1), (1, 1), none);
        assert_eq!(kept.await.unwrap(), BatchKept::New);
        store.close().await;
    }

    /// As jobs in the store do.
    #[tokio::test]
    async fn the_batches_of_a_pipeline_leave_room_in_the_store_to_others() {
        let directory = Directory::new();
        let store = LazyStore::new(directory.to_path_buf(), 1 << 20);
        let batches = Batches::new(store.clone());
        let large = |pipeline: &str| Last {
            pipeline: pipeline.to_owned(),
            job: Job {
                payload: vec![0; 50_000].into(),
                ..Job::default()
            },
        };
        let keep = async |id: &str, pipeline: &str| {
            let last = large(pipeline);
            let kept = batches.keep(id, &last, names(2), (1, 1), Duration::ZERO);
            kept.await.map(drop)
        };
        let mut count = 0;
        while keep(&count.to_string(), "evil").await.is_ok() {
            count += 1;
        }
        assert!((15..=19).contains(&count), "{count}");
        keep("other", "good").await.unwrap();
        let bytes = async |of: &str| {
            let open = store.get().await.unwrap();
            let of = bytes_of(of);
            let read = move |transaction: &mut Transaction<'_>| counted(transaction, &of);
            open.look(read).await.unwrap()
        };
        let own = bytes("good").await.unwrap();
        let links = async || {
            let duplicate = part("other", "job-0");
            batches.follow(&duplicate, "another", "good").await.unwrap();
            assert!(bytes("good").await.unwrap() > own);
        };
        links().await;
        batches.ended(&part("other", "job-0"), false).await.unwrap();
        assert_eq!(bytes("good").await.unwrap(), own);
        batches.forget("other").await.unwrap();
        assert_eq!(bytes("good").await, None);
        keep("other", "good").await.unwrap();
        links().await;
        batches.forget("other").await.unwrap();
        assert_eq!(bytes("good").await, None);
        batches.forget("0").await.unwrap();
        keep("0", "evil").await.unwrap();
        let left = |transaction: &mut Transaction<'_>| transaction.get(HELD, b"");
        assert_eq!(store.get().await.unwrap().look(left).await.unwrap(), None);
        store.close().await;
    }

    #[tokio::test]
    async fn those_of_a_release_before_are_counted_once_and_end_in_time() {
        let directory = Directory::new();
        let store = LazyStore::new(directory.to_path_buf(), 64 << 20);
        let batches = Batches::new(store.clone());
        let open = store.get().await.unwrap();
        let before = |transaction: &mut Transaction<'_>| -> Result<(), Failed> {
            for number in ["1", "10", "2"] {
                let stored = Stored {
                    jobs: 2,
                    since: 1000,
                    ..Stored::default()
                };
                transaction.put(TREE, &key(number, ""), &stored.encode_to_vec())?;
                transaction.put(TREE, &key(number, "a"), b"")?;
                transaction.put(TREE, &key(number, "b"), b"")?;
            }
            Ok(())
        };
        let written = open.carry_out(0, before, |outcome| outcome).await;
        written.unwrap().unwrap();
        let none = Duration::ZERO;
        batches
            .keep("3", &last(), names(1), (1, 1), none)
            .await
            .unwrap();
        let counted = |transaction: &mut Transaction<'_>| transaction.get(COUNTS, COUNT);
        let counted = open.carry_out(0, counted, |outcome| outcome).await;
        assert_eq!(counted.unwrap().unwrap().unwrap(), 4_u64.to_be_bytes());
        let (listed, has_more) = batches.list(None).await.unwrap();
        let ids: Vec<_> = listed.iter().map(|it| &*it.id).collect();
        assert_eq!((ids, has_more), (vec!["1", "10", "2", "3"], false));
        assert_eq!(listed[0].until, 1000 + millis(LONGEST));
        let (rest, _) = batches.list(Some("10")).await.unwrap();
        assert_eq!(rest.len(), 2);
        store.close().await;
    }

    #[tokio::test]
    async fn a_job_that_was_not_kept_has_the_end_of_the_other_one_also_after_a_restart() {
        let directory = Directory::new();
        let store = LazyStore::new(directory.to_path_buf(), 64 << 20);
        let batches = Batches::new(store.clone());
        assert!(batches.followers("other").await.unwrap().is_empty());
        batches
            .keep("a", &last(), names(1), (1, 1), Duration::ZERO)
            .await
            .unwrap();
        let duplicate = part("a", "job-0");
        batches.follow(&duplicate, "other", "p").await.unwrap();
        store.close().await;
        let store = LazyStore::new(directory.to_path_buf(), 64 << 20);
        let batches = Batches::new(store.clone());
        let followers = || async { batches.followers("other").await.unwrap() };
        let expected = std::slice::from_ref(&duplicate);
        assert_eq!(followers().await, expected, "from the store");
        batches.load().await.unwrap();
        batches.load().await.unwrap();
        assert_eq!(followers().await, expected);
        assert!(batches.followers("othe").await.unwrap().is_empty());
        // One comes while the others are told.
        batches
            .keep("b", &last(), names(1), (1, 1), Duration::ZERO)
            .await
            .unwrap();
        let late = part("b", "job-0");
        batches.follow(&late, "other", "p").await.unwrap();
        batches.forget_followers("other", expected);
        assert_eq!(followers().await, std::slice::from_ref(&late));
        batches.forget_followers("other", std::slice::from_ref(&late));
        assert!(followers().await.is_empty());
        assert!(batches.ended(&late, true).await.unwrap().is_some());
        let over = batches.ended(&duplicate, true).await.unwrap().unwrap();
        assert_eq!(over.job.headers["batch-failed"], ["1"]);
        let left = |transaction: &mut Transaction<'_>| {
            let mut left = 0;
            transaction.scan(FOLLOWED, Bound::Unbounded, |_, _| {
                left += 1;
                ControlFlow::Continue(())
            })?;
            Ok(left)
        };
        let open = store.get().await.unwrap();
        let left = open.carry_out(0, left, |outcome| outcome).await;
        assert_eq!(left.unwrap().unwrap(), 0);
        store.close().await;
    }
}
