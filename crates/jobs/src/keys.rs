//! Jobs that are known by a key or by their ID while they are there: unique ones, cancelled ones,
//! and those that run. In memory.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pronghorn_base::{lock, now_ms};
use pronghorn_queue::Job;
use pronghorn_queue::options::{JobOptions, Unique};
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::results::Visible;
use crate::shares::has_room;

/// Of a key whose job is not done by then: it may have been lost with its pipeline.
const LONGEST: Duration = Duration::from_hours(24);
/// Keys take memory as long as their jobs wait: some 200 bytes each. See [`has_room`] for what a
/// pipeline has of them.
pub(crate) const MOST: usize = 1_000_000;
/// Cancelled jobs that are still in their pipelines. See [`has_room`] for what a pool has of them.
const MOST_CANCELLED: u64 = 10_000;

/// A key, or the ID of a job, with its pipeline: whoever pushes to one pipeline takes no key of
/// another one.
pub(crate) fn scoped(pipeline: &str, key: &str) -> String {
    format!("{pipeline}\0{key}")
}

/// The pipeline, and the key or the ID. A release before wrote these without a pipeline.
pub(crate) fn unscoped(scoped: &str) -> (Option<&str>, &str) {
    match scoped.split_once('\0') {
        Some((pipeline, key)) => (Some(pipeline), key),
        None => (None, scoped),
    }
}

/// The pipeline alone.
pub(crate) fn pipeline_of(scoped: &str) -> &str {
    unscoped(scoped).0.unwrap_or_default()
}

/// The same for a job that has one.
pub(crate) fn in_pipeline(pipeline: &str, mut unique: Unique) -> Unique {
    unique.key = scoped(pipeline, &unique.key);
    unique
}

/// Clones are the same ones.
#[derive(Clone, Debug, Default)]
pub(crate) struct Keys(Arc<Mutex<State>>);

/// Why a job has not got its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NotTaken {
    /// The job of this ID has it.
    By(String),
    /// The job of this ID has it while its push is under way, which may fail.
    Pending(String),
    /// There are too many.
    Full,
}

#[derive(Debug, Default)]
struct State {
    unique: HashMap<Arc<str>, Held>,
    /// How many of them are of each pipeline.
    shares: HashMap<String, u64>,
    /// The same keys by their ends.
    ends: BTreeSet<(Instant, Arc<str>)>,
    /// Keys of jobs that workers of the process before have, and the IDs of these.
    lent: HashMap<String, String>,
    cancelled: Notes,
    /// By their IDs, which jobs of several pipelines may share.
    running: HashMap<String, Vec<Running>>,
    /// Looks through the store that are under way, for jobs whose keys are given back.
    restoring: usize,
    /// Jobs that have let go of their keys since the first of these began.
    let_go: HashSet<String>,
    /// A push with a key has come to its end.
    answered: Arc<Notify>,
}

/// Cancelled jobs that are between their pipelines and a worker.
#[derive(Debug, Default)]
struct Notes {
    /// By their pipelines and IDs, see [`scoped`]; without a pipeline, it may be any.
    by_id: HashMap<String, Note>,
    /// The number of those of each pool.
    shares: HashMap<String, u64>,
}

#[derive(Debug)]
struct Note {
    since: Instant,
    /// A job of this ID was pushed to them since: who cancelled it did not mean that one.
    pushed_to: HashSet<String>,
    /// The pool whose worker has cancelled it; none for anybody else.
    pool: String,
}

impl Notes {
    /// False: there are too many.
    fn add(&mut self, id: &str, pool: &str, now: Instant) -> bool {
        self.remove(id);
        let all = |notes: &Self| notes.by_id.len() as u64;
        let own = |notes: &Self| notes.shares.get(pool).copied().unwrap_or(0);
        if !has_room(own(self), all(self), MOST_CANCELLED) {
            let is_old = |note: &Note| now.saturating_duration_since(note.since) >= LONGEST;
            let old = self.by_id.iter().filter(|(_, note)| is_old(note));
            for id in old.map(|(id, _)| id.clone()).collect::<Vec<_>>() {
                self.remove(&id);
            }
        }
        if !has_room(own(self), all(self), MOST_CANCELLED) {
            return false;
        }
        *self.shares.entry(pool.to_owned()).or_default() += 1;
        let note = Note {
            since: now,
            pushed_to: HashSet::new(),
            pool: pool.to_owned(),
        };
        self.by_id.insert(id.to_owned(), note);
        true
    }

    /// Whether a job that comes out of this pipeline was cancelled.
    fn take(&mut self, pipeline: &str, id: &str) -> bool {
        if self.by_id.is_empty() {
            return false;
        }
        let mut keys = [pipeline, ""].map(|of| scoped(of, id)).into_iter();
        let is_meant = |note: &Note| !note.pushed_to.contains(pipeline);
        let key = keys.find(|key| self.by_id.get(key).is_some_and(is_meant));
        key.is_some_and(|key| {
            self.remove(&key);
            true
        })
    }

    fn remove(&mut self, id: &str) {
        let Some(note) = self.by_id.remove(id) else {
            return;
        };
        if let Some(own) = self.shares.get_mut(&note.pool) {
            *own -= 1;
            if *own == 0 {
                self.shares.remove(&note.pool);
            }
        }
    }
}

/// Gives jobs that wait in the store their keys again. One that begins or ends meanwhile has none.
#[derive(Debug)]
pub(crate) struct Restoring(Keys);

/// A job that a worker has.
#[derive(Debug)]
struct Running {
    cancelled: CancellationToken,
    seen: RunningJob,
}

/// What can be seen of a job that a worker has.
#[derive(Clone, Debug)]
pub(crate) struct RunningJob {
    pub(crate) job: Arc<Job>,
    pub(crate) pipeline: String,
    /// Milliseconds since 1970.
    pub(crate) began_at: u64,
    pub(crate) progress: Option<Progress>,
}

/// How far a job has come, as its handler says.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Progress {
    /// 0 to 1.
    pub(crate) done: f64,
    pub(crate) text: String,
}

#[derive(Debug)]
struct Held {
    /// Of the job.
    id: String,
    until: Instant,
    /// It stays until then.
    is_period: bool,
    /// The job has ended.
    is_done: bool,
    while_queued: bool,
    /// The push of the job is under way.
    is_pending: bool,
    /// Of the job, in milliseconds since 1970: it does not begin any more, wherever it is.
    expires_at: Option<u64>,
}

impl Keys {
    /// Takes a key for a job whose push begins, at this time in milliseconds since 1970. Its end
    /// has to be [told](Self::answered).
    ///
    /// # Errors
    ///
    /// When another job has it, or too many keys are held.
    pub(crate) fn take(&self, unique: &Unique, id: &str, now_ms: u64) -> Result<(), NotTaken> {
        lock(&self.0).take(unique, id, now_ms, true, has_room)
    }

    /// The push of a job with a key has come to its end: the job is there, or may be.
    pub(crate) fn answered(&self, key: &str, id: &str) {
        let mut state = lock(&self.0);
        if let Some(held) = state.unique.get_mut(key).filter(|held| held.id == id) {
            held.is_pending = false;
        }
        state.answered.notify_waiters();
    }

    /// Hears of the end of each push with a key.
    pub(crate) fn answers(&self) -> Arc<Notify> {
        lock(&self.0).answered.clone()
    }

    /// For who is about to look through the store.
    pub(crate) fn restoring(&self) -> Restoring {
        lock(&self.0).restoring += 1;
        Restoring(self.clone())
    }

    /// Whether a job that had a key is not to end any more: it has, or nobody knows of it.
    pub(crate) fn has_ended(&self, key: &str, id: &str) -> bool {
        let state = lock(&self.0);
        let held = state.unique.get(key).filter(|held| held.id == id);
        let is_lent = state.lent.get(key).is_some_and(|lent| lent == id);
        let runs = state.runs(pipeline_of(key), id);
        !is_lent && !runs && held.is_none_or(|held| held.is_done)
    }

    /// The keys of jobs that workers of the process before have now, with the IDs of the jobs.
    /// Returns those that they had, and have not any more.
    pub(crate) fn lend(&self, keys: HashMap<String, String>) -> HashMap<String, String> {
        let mut state = lock(&self.0);
        let mut before = std::mem::replace(&mut state.lent, keys);
        before.retain(|key, id| state.lent.get(key) != Some(id));
        before
    }

    /// The same of a pipeline that is opened.
    pub(crate) fn lend_more(&self, keys: HashMap<String, String>) {
        lock(&self.0).lent.extend(keys);
    }

    /// The ID of the job that has a key.
    pub(crate) fn holder(&self, key: &str) -> Option<String> {
        let state = lock(&self.0);
        let lent = state.lent.get(key);
        lent.or_else(|| Some(&state.unique.get(key)?.id)).cloned()
    }

    /// The push of a job has failed.
    pub(crate) fn give_back(&self, key: &str, id: &str) {
        let mut state = lock(&self.0);
        state.remove(key, |held| held.id == id);
        state.answered.notify_waiters();
    }

    /// A job with this key is given to a worker.
    pub(crate) fn begun(&self, key: &str, id: &str) {
        let mut state = lock(&self.0);
        let is_its = |held: &Held| held.id == id && held.while_queued && !held.is_period;
        if state.remove(key, is_its) {
            state.let_go(id);
        }
    }

    /// A job with this key has ended for good.
    pub(crate) fn ended(&self, key: &str, id: &str) {
        lock(&self.0).ended(key, id);
    }

    /// Ends a job of this pipeline, or of any one, that runs: whether there is one. Its key is free
    /// at once, before its worker has heard of it.
    pub(crate) fn cancel_running(&self, pipeline: Option<&str>, id: &str) -> bool {
        let mut state = lock(&self.0);
        let running = state.running.get(id).into_iter().flatten();
        let is_it = |it: &&Running| pipeline.is_none_or(|name| it.seen.pipeline == name);
        let cancelled = running.filter(is_it).map(|Running { cancelled, seen }| {
            cancelled.cancel();
            let key = JobOptions::of(&seen.job.headers).unique;
            key.map(|key| scoped(&seen.pipeline, &key))
        });
        let keys: Vec<Option<String>> = cancelled.collect();
        for key in keys.iter().flatten() {
            state.ended(key, id);
        }
        !keys.is_empty()
    }

    /// A job that comes out of this pipeline, or of any one, with this ID does not run, as a worker
    /// of this pool, or somebody else, says. False: too many are noted.
    pub(crate) fn note_cancelled(&self, pipeline: Option<&str>, id: &str, pool: &str) -> bool {
        let key = scoped(pipeline.unwrap_or_default(), id);
        lock(&self.0).cancelled.add(&key, pool, Instant::now())
    }

    /// These are pushed: who cancelled their IDs before did not mean them.
    pub(crate) fn pushed(&self, pipeline: &str, jobs: &[Job]) {
        let mut state = lock(&self.0);
        if !state.cancelled.by_id.is_empty() {
            for job in jobs {
                for of in [pipeline, ""] {
                    if let Some(note) = state.cancelled.by_id.get_mut(&scoped(of, &job.id)) {
                        note.pushed_to.insert(pipeline.to_owned());
                    }
                }
            }
        }
    }

    /// A job is about to be given to a worker: what says that it is cancelled, or None when it was.
    pub(crate) fn run(&self, job: &Arc<Job>, pipeline: &str) -> Option<CancellationToken> {
        let mut state = lock(&self.0);
        if state.cancelled.take(pipeline, &job.id) {
            return None;
        }
        let cancelled = CancellationToken::new();
        let running = Running {
            cancelled: cancelled.clone(),
            seen: RunningJob {
                job: job.clone(),
                pipeline: pipeline.to_owned(),
                began_at: now_ms(),
                progress: None,
            },
        };
        let all = state.running.entry(job.id.clone()).or_default();
        all.push(running);
        Some(cancelled)
    }

    /// Notes how far a job has come. False: no worker has it.
    pub(crate) fn note_progress(&self, visible: &Visible, id: &str, progress: Progress) -> bool {
        let mut state = lock(&self.0);
        let mut running = state.running.get_mut(id).into_iter().flatten();
        let running = running.find(|running| visible.has(&running.seen.pipeline));
        running.is_some_and(|running| {
            running.seen.progress = Some(progress);
            true
        })
    }

    /// The same of a pipeline that somebody may see.
    pub(crate) fn running_in(&self, visible: &Visible, id: &str) -> Option<RunningJob> {
        let state = lock(&self.0);
        let mut running = state.running.get(id)?.iter();
        let running = running.find(|running| visible.has(&running.seen.pipeline));
        Some(running?.seen.clone())
    }

    /// The same of this pipeline, or of any one.
    pub(crate) fn running_of(&self, pipeline: Option<&str>, id: &str) -> Option<RunningJob> {
        let state = lock(&self.0);
        let mut running = state.running.get(id)?.iter();
        let is_it = |it: &&Running| pipeline.is_none_or(|name| it.seen.pipeline == name);
        Some(running.find(is_it)?.seen.clone())
    }

    /// Jobs of an ID that workers have, by their pipelines: the first one of each.
    pub(crate) fn all_running(&self, id: &str) -> BTreeMap<String, RunningJob> {
        let state = lock(&self.0);
        let mut all = BTreeMap::new();
        for running in state.running.get(id).into_iter().flatten() {
            let of = running.seen.pipeline.clone();
            all.entry(of).or_insert_with(|| running.seen.clone());
        }
        all
    }

    /// The same one as of [`run`](Self::run).
    pub(crate) fn ran(&self, job: &Arc<Job>) {
        let mut state = lock(&self.0);
        let Some(all) = state.running.get_mut(&job.id) else {
            return;
        };
        all.retain(|it| !Arc::ptr_eq(&it.seen.job, job));
        if all.is_empty() {
            state.running.remove(&job.id);
        }
    }
}

impl Held {
    /// Its job is too old and does not run: where it waits, nobody may ever look at it again.
    fn is_left(&self, now_ms: u64, runs: impl Fn(&str) -> bool) -> bool {
        let is_expired = self.expires_at.is_some_and(|at| at <= now_ms);
        is_expired && !self.is_period && !runs(&self.id)
    }
}

impl Restoring {
    /// The key is this job's, unless another one has it.
    pub(crate) fn take(&self, unique: &Unique, id: &str, now_ms: u64) {
        let mut state = lock(&self.0.0);
        if !state.let_go.contains(id) {
            // It was let in once; a job that was pushed by now has it.
            _ = state.take(unique, id, now_ms, false, |_, all, most| all < 2 * most);
        }
    }
}

impl Drop for Restoring {
    fn drop(&mut self) {
        let mut state = lock(&self.0.0);
        state.restoring -= 1;
        if state.restoring == 0 {
            state.let_go = HashSet::new();
        }
    }
}

impl State {
    fn ended(&mut self, key: &str, id: &str) {
        self.let_go(id);
        self.remove(key, |held| held.id == id && !held.is_period);
        if let Some(held) = self.unique.get_mut(key).filter(|held| held.id == id) {
            held.is_done = true;
        }
    }

    fn runs(&self, pipeline: &str, id: &str) -> bool {
        let mut all = self.running.get(id).into_iter().flatten();
        all.any(|running| running.seen.pipeline == pipeline)
    }

    fn take(
        &mut self,
        unique: &Unique,
        id: &str,
        now_ms: u64,
        is_pending: bool,
        has_room: impl Fn(u64, u64, u64) -> bool,
    ) -> Result<(), NotTaken> {
        let now = Instant::now();
        if let Some(other) = self.lent.get(&unique.key).filter(|other| *other != id) {
            return Err(NotTaken::By(other.clone()));
        }
        self.forget_ended(now);
        if let Some(held) = self.unique.get(&*unique.key) {
            if !held.is_left(now_ms, |id| self.runs(pipeline_of(&unique.key), id)) {
                let id = held.id.clone();
                return Err(if held.is_pending {
                    NotTaken::Pending(id)
                } else {
                    NotTaken::By(id)
                });
            }
            self.remove(&unique.key, |_| true);
        }
        let pipeline = pipeline_of(&unique.key);
        let own = self.shares.get(pipeline).copied().unwrap_or(0);
        if !has_room(own, self.unique.len() as u64, MOST as u64) {
            return Err(NotTaken::Full);
        }
        self.shares.insert(pipeline.to_owned(), own + 1);
        let held = Held {
            id: id.to_owned(),
            until: now + unique.period.unwrap_or(LONGEST),
            is_period: unique.period.is_some(),
            is_done: false,
            while_queued: unique.while_queued,
            is_pending,
            expires_at: unique.expires_at,
        };
        let key: Arc<str> = unique.key.as_str().into();
        self.ends.insert((held.until, key.clone()));
        self.unique.insert(key, held);
        Ok(())
    }

    fn let_go(&mut self, id: &str) {
        if self.restoring > 0 {
            self.let_go.insert(id.to_owned());
        }
    }

    /// Whether there was one.
    fn remove(&mut self, key: &str, which: impl Fn(&Held) -> bool) -> bool {
        if self.unique.get(key).is_some_and(which)
            && let Some((key, held)) = self.unique.remove_entry(key)
        {
            self.let_share_go(&key);
            return self.ends.remove(&(held.until, key));
        }
        false
    }

    /// Each key once: what a push has to do does not grow with their number.
    fn forget_ended(&mut self, now: Instant) {
        while let Some((until, key)) = self.ends.pop_first() {
            if until > now {
                self.ends.insert((until, key));
                break;
            }
            self.unique.remove(&key);
            self.let_share_go(&key);
        }
    }

    fn let_share_go(&mut self, key: &str) {
        let pipeline = pipeline_of(key);
        if let Some(own) = self.shares.get_mut(pipeline) {
            *own -= 1;
            if *own == 0 {
                self.shares.remove(pipeline);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unique(period: Option<u64>, while_queued: bool) -> Unique {
        Unique {
            key: "k".to_owned(),
            period: period.map(Duration::from_secs),
            while_queued,
            expires_at: None,
        }
    }

    fn take(keys: &Keys, unique: &Unique, id: &str, now_ms: u64) -> Result<(), NotTaken> {
        keys.take(unique, id, now_ms)?;
        keys.answered(&unique.key, id);
        Ok(())
    }

    fn by(id: &str) -> Result<(), NotTaken> {
        Err(NotTaken::By(id.to_owned()))
    }

    #[tokio::test(start_paused = true)]
    async fn however_many_keys_are_held_none_is_given_twice_and_one_too_many_is_refused() {
        let keys = Keys::default();
        let unique = |number: usize| Unique {
            key: number.to_string(),
            ..unique(None, false)
        };
        let most = MOST / 10 * 9;
        for number in 0..most {
            assert_eq!(take(&keys, &unique(number), "a", 0), Ok(()));
        }
        assert_eq!(take(&keys, &unique(most - 1), "b", 0), by("a"));
        assert_eq!(take(&keys, &unique(most), "b", 0), Err(NotTaken::Full));
        keys.ended("0", "a");
        assert_eq!(take(&keys, &unique(most), "b", 0), Ok(()));
        // Another pipeline has room.
        let of_another = |number| in_pipeline("other", unique(number));
        for number in 0..1000 {
            assert_eq!(take(&keys, &of_another(number), "a", 0), Ok(()));
        }
        // Jobs that wait in the store have their keys, whatever the others have.
        for number in most + 1..=MOST {
            keys.restoring().take(&unique(number), "a", 0);
        }
        assert_eq!(lock(&keys.0).unique.len(), MOST + 1000);
        assert_eq!(take(&keys, &of_another(1000), "a", 0), Err(NotTaken::Full));
        tokio::time::advance(LONGEST).await;
        assert_eq!(take(&keys, &unique(1), "c", 0), Ok(()));
        let state = lock(&keys.0);
        assert_eq!((state.unique.len(), state.ends.len()), (1, 1));
        assert_eq!(state.shares, HashMap::from([(String::new(), 1)]));
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_is_held_until_its_job_is_done() {
        let keys = Keys::default();
        let until_done = unique(None, false);
        assert_eq!(take(&keys, &until_done, "a", 0), Ok(()));
        assert_eq!(take(&keys, &until_done, "b", 0), by("a"));
        keys.begun("k", "a");
        keys.ended("k", "b");
        assert_eq!(take(&keys, &until_done, "b", 0), by("a"));
        assert!(!keys.has_ended("k", "a"));
        keys.ended("k", "a");
        assert_eq!(take(&keys, &unique(None, true), "b", 0), Ok(()));
        keys.begun("k", "b");
        assert_eq!(take(&keys, &unique(Some(5), false), "c", 0), Ok(()));
        assert!(!keys.has_ended("k", "c"));
        keys.ended("k", "c");
        assert!(keys.has_ended("k", "c"), "though its key counts");
        assert_eq!(take(&keys, &until_done, "d", 0), by("c"));
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert_eq!(take(&keys, &until_done, "d", 0), Ok(()));
        keys.give_back("k", "d");
        assert_eq!(take(&keys, &until_done, "e", 0), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_job_that_ends_while_keys_are_restored_does_not_get_its_own_again() {
        let keys = Keys::default();
        let (until_done, queued) = (unique(None, false), unique(None, true));
        for (unique, id) in [(&until_done, "a"), (&queued, "b")] {
            assert_eq!(take(&keys, unique, id, 0), Ok(()));
            let restoring = keys.restoring();
            keys.begun("k", id);
            if id == "a" {
                keys.ended("k", id);
            }
            restoring.take(unique, id, 0);
            assert_eq!(keys.holder("k"), None, "{id}");
            restoring.take(unique, "c", 0);
            assert_eq!(keys.holder("k").as_deref(), Some("c"));
            keys.ended("k", "c");
        }
        keys.restoring().take(&until_done, "a", 0);
        assert_eq!(
            keys.holder("k").as_deref(),
            Some("a"),
            "it was pushed again"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn the_key_of_an_expired_job_is_free_unless_it_runs() {
        let keys = Keys::default();
        let expires = |at| Unique {
            expires_at: Some(at),
            ..unique(None, false)
        };
        assert_eq!(take(&keys, &expires(100), "a", 0), Ok(()));
        assert_eq!(take(&keys, &expires(200), "b", 99), by("a"));
        assert_eq!(take(&keys, &expires(200), "b", 100), Ok(()));
        keys.ended("k", "a");
        let job = Arc::new(Job {
            id: "b".to_owned(),
            ..Job::default()
        });
        assert!(keys.run(&job, "").is_some());
        assert_eq!(take(&keys, &expires(900), "c", 300), by("b"));
        keys.ran(&job);
        assert_eq!(take(&keys, &expires(900), "c", 300), Ok(()));
        keys.ended("k", "c");
        let period = Unique {
            period: Some(Duration::from_secs(5)),
            ..expires(100)
        };
        assert_eq!(take(&keys, &period, "d", 0), Ok(()));
        assert_eq!(take(&keys, &period, "e", 100), by("d"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_job_is_cancelled_before_it_begins_or_while_it_runs() {
        let keys = Keys::default();
        assert!(!keys.cancel_running(None, "a"));
        assert!(keys.note_cancelled(None, "a", "jobs"));
        let job = Arc::new(Job {
            id: "a".to_owned(),
            ..Job::default()
        });
        assert!(keys.run(&job, "").is_none());
        let token = keys.run(&job, "").expect("once is enough");
        assert!(keys.cancel_running(None, "a"));
        assert!(token.is_cancelled());
        keys.ran(&job);
        assert!(keys.note_cancelled(None, "a", "jobs"));
        keys.pushed("p", &[Job::clone(&job)]);
        assert!(keys.run(&job, "p").is_some(), "it was pushed later");
        assert!(keys.run(&job, "q").is_none(), "and not there");
        let most = MOST_CANCELLED / 10 * 9;
        for number in 0..most {
            assert!(keys.note_cancelled(None, &number.to_string(), "evil"));
        }
        assert!(keys.note_cancelled(None, "1", "evil"), "it is noted");
        assert!(!keys.note_cancelled(None, "more", "evil"));
        assert!(keys.note_cancelled(None, "more", ""), "others have room");
        let first = Arc::new(Job {
            id: "0".to_owned(),
            ..Job::default()
        });
        assert!(keys.run(&first, "p").is_none());
        assert!(keys.note_cancelled(None, "more", "evil"), "one was used");
        assert_eq!(lock(&keys.0).cancelled.shares["evil"], most);
    }

    #[test]
    fn the_key_of_a_running_job_that_is_cancelled_is_free_at_once() {
        let job = Arc::new(Job {
            id: "a".to_owned(),
            headers: [("pronghorn-unique".to_owned(), vec!["k".to_owned()])].into(),
            ..Job::default()
        });
        for period in [None, Some(60)] {
            let keys = Keys::default();
            let unique = in_pipeline("p", unique(period, false));
            assert_eq!(take(&keys, &unique, "a", 0), Ok(()));
            keys.run(&job, "p").expect("it is not cancelled");
            assert_eq!(take(&keys, &unique, "b", 0), by("a"));
            assert!(keys.cancel_running(None, "a"));
            let taken = take(&keys, &unique, "b", 0);
            assert_eq!(taken.is_ok(), period.is_none(), "a period stays");
            // The worker has ended it: the next job keeps its key.
            keys.ended(&unique.key, "a");
            assert_eq!(
                keys.holder(&unique.key).as_deref(),
                Some(if period.is_none() { "b" } else { "a" })
            );
        }
    }

    #[test]
    fn jobs_of_two_pipelines_may_have_one_id() {
        let keys = Keys::default();
        let job = |id: &str| {
            let id = id.to_owned();
            Arc::new(Job {
                id,
                ..Job::default()
            })
        };
        let (of_p, again, of_q) = (job("a"), job("a"), job("a"));
        let token = keys.run(&of_p, "p").expect("it runs");
        keys.run(&again, "p").expect("it runs");
        keys.run(&of_q, "q").expect("it runs");
        let progress = Progress {
            done: 0.5,
            text: String::new(),
        };
        let visible = Visible::of(HashSet::from(["q".to_owned()]));
        assert!(keys.note_progress(&visible, "a", progress));
        assert!(
            keys.running_of(Some("p"), "a")
                .expect("it runs")
                .progress
                .is_none()
        );
        keys.ran(&of_q);
        keys.ran(&again);
        assert!(keys.running_in(&visible, "a").is_none());
        assert!(!keys.has_ended(&scoped("p", "k"), "a"));
        assert!(keys.has_ended(&scoped("q", "k"), "a"));
        assert!(!keys.cancel_running(Some("q"), "a") && !token.is_cancelled());
        assert!(keys.cancel_running(Some("p"), "a") && token.is_cancelled());
        keys.ran(&of_p);
        assert!(keys.running_of(None, "a").is_none());
        assert!(keys.note_cancelled(Some("p"), "a", ""));
        assert!(keys.run(&of_q, "q").is_some(), "another one was meant");
        assert!(keys.run(&of_p, "p").is_none());
        assert!(keys.run(&of_p, "p").is_some(), "once is enough");
    }
}
