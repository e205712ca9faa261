//! Dead letters: jobs that were given up. They are in the server's store, whatever driver their
//! pipeline has, until somebody runs them again or discards them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::{Bound, ControlFlow};
use std::sync::{Arc, Mutex};

use pronghorn_base::{LogThrottle, lock, now_ms};
use pronghorn_queue::{Job, decode_job, encode_job};
use pronghorn_store::{Failed, LazyStore, OpenError, Store, StoreError, Transaction, Tree};
use prost::Message;
use serde::Serialize;
use thiserror::Error;

use crate::shares::Shares;

const TREE: Tree = Tree::new("jobs.dead");

/// More are not kept: somebody has not looked for long. The pipeline that has the most loses its
/// oldest, so that none makes the letters of another one go. Their headlines are in memory.
const MOST: usize = 10_000;
/// As they are written.
const MOST_BYTES: u64 = if cfg!(test) { 64 << 10 } else { 64 << 20 };
/// Of a reason.
const LONGEST_REASON: usize = 16 << 10;

/// Clones are the same ones.
#[derive(Clone, Debug)]
pub(crate) struct DeadLetters(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    store: LazyStore,
    /// The headlines of all letters, by their numbers; None before they were read. Operations of
    /// the store change them as they run, so that those that share a commit see each other's
    /// letters. After a commit that failed they are read again.
    headlines: Mutex<Option<Headlines>>,
    /// The number of letters of each pipeline that had to go since the last record.
    gone: Mutex<BTreeMap<String, u64>>,
    dropped: LogThrottle,
}

#[derive(Debug, Default)]
struct Headlines {
    all: BTreeMap<u64, Headline>,
    /// By pipeline and ID.
    numbers: HashMap<(String, String), u64>,
    shares: Shares,
    /// How often other processes had changed the store by then.
    changes: u64,
}

/// What is known of a dead letter without reading it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Headline {
    pub(crate) pipeline: String,
    pub(crate) id: String,
    pub(crate) job: String,
    pub(crate) attempts: u32,
    /// The first line of why it was given up.
    pub(crate) reason: String,
    /// Milliseconds since 1970.
    pub(crate) died_at: u64,
    /// Bytes of its payload.
    pub(crate) size: u64,
}

/// A job that was given up, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Letter {
    pub(crate) pipeline: String,
    pub(crate) job: Job,
    pub(crate) attempts: u32,
    pub(crate) reason: String,
    pub(crate) died_at: u64,
}

/// Why dead letters can't be read or written.
#[derive(Debug, Error)]
pub(crate) enum DeadError {
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A letter as it is written. Numbers are never used again.
#[derive(Clone, PartialEq, Message)]
struct Stored {
    #[prost(string, tag = "1")]
    pipeline: String,
    #[prost(bytes = "vec", tag = "2")]
    job: Vec<u8>,
    #[prost(uint32, tag = "3")]
    attempts: u32,
    #[prost(string, tag = "4")]
    reason: String,
    #[prost(uint64, tag = "5")]
    died_at: u64,
}

impl DeadLetters {
    pub(crate) fn new(store: LazyStore) -> Self {
        Self(Arc::new(Shared {
            store,
            headlines: Mutex::default(),
            gone: Mutex::default(),
            dropped: LogThrottle::default(),
        }))
    }

    /// Keeps a job that is given up now. One of the same pipeline and ID is replaced.
    pub(crate) async fn keep(
        &self,
        pipeline: &str,
        job: &Job,
        attempts: u32,
        reason: &str,
    ) -> Result<(), DeadError> {
        let letter = Letter {
            pipeline: pipeline.to_owned(),
            job: job.clone(),
            attempts,
            reason: reason.chars().take(LONGEST_REASON).collect(),
            died_at: now_ms(),
        };
        let (value, headline) = (letter.encode(), letter.headline());
        let write = move |transaction: &mut Transaction<'_>, headlines: &mut Headlines| {
            let (number, gone) = headlines.add(headline, value.len() as u64);
            transaction.put(TREE, &number.to_be_bytes(), &value)?;
            for (number, _) in &gone {
                transaction.remove(TREE, &number.to_be_bytes())?;
            }
            Ok(gone.into_iter().map(|(_, pipeline)| pipeline).collect())
        };
        self.tell_gone(self.carry_out(write).await?);
        Ok(())
    }

    /// A record for each pipeline, not for each letter.
    fn tell_gone(&self, pipelines: Vec<String>) {
        if pipelines.is_empty() {
            return;
        }
        let mut gone = lock(&self.0.gone);
        for pipeline in pipelines {
            *gone.entry(pipeline).or_default() += 1;
        }
        if self.0.dropped.should_log().is_none() {
            return;
        }
        for (pipeline, letters) in std::mem::take(&mut *gone) {
            tracing::warn!(target: "jobs", pipeline, letters, "there are too many dead letters, and this pipeline has the most: its oldest are discarded");
        }
    }

    /// The newest of a pipeline, or of all for None, at most so many; and how many more there are.
    pub(crate) async fn list(
        &self,
        of: Option<&str>,
        most: usize,
    ) -> Result<(Vec<Headline>, usize), DeadError> {
        let of = of.map(ToOwned::to_owned);
        let list = move |_: &mut Transaction<'_>, headlines: &mut Headlines| {
            let all = headlines.all.values().rev();
            let mut wanted = all.filter(|it| of.as_ref().is_none_or(|of| it.pipeline == *of));
            let listed = wanted.by_ref().take(most).cloned().collect();
            Ok((listed, wanted.count()))
        };
        self.look(list).await
    }

    /// How many there are of each pipeline. It makes no store where there is none.
    pub(crate) async fn counts(&self) -> Result<BTreeMap<String, u64>, DeadError> {
        let Some(store) = self.0.store.get_if_there().await else {
            return Ok(BTreeMap::new());
        };
        store?;
        let count = |_: &mut Transaction<'_>, headlines: &mut Headlines| {
            let mut counts = BTreeMap::new();
            for headline in headlines.all.values() {
                *counts.entry(headline.pipeline.clone()).or_default() += 1;
            }
            Ok(counts)
        };
        self.look(count).await
    }

    /// The pipelines that have a letter of this ID: whoever pushes chooses it.
    pub(crate) async fn pipelines_of(&self, id: &str) -> Result<BTreeSet<String>, DeadError> {
        let Some(store) = self.0.store.get_if_there().await else {
            return Ok(BTreeSet::new());
        };
        store?;
        let id = id.to_owned();
        let find = move |_: &mut Transaction<'_>, headlines: &mut Headlines| {
            let found = headlines.all.values().filter(|it| it.id == id);
            Ok(found.map(|it| it.pipeline.clone()).collect())
        };
        self.look(find).await
    }

    /// The letter of this ID that a pipeline has.
    pub(crate) async fn read(&self, pipeline: &str, id: &str) -> Result<Option<Letter>, DeadError> {
        let Some(store) = self.0.store.get_if_there().await else {
            return Ok(None);
        };
        store?;
        let of = (pipeline.to_owned(), id.to_owned());
        let read = move |transaction: &mut Transaction<'_>, headlines: &mut Headlines| {
            let Some(number) = headlines.numbers.get(&of) else {
                return Ok(None);
            };
            let value = transaction.get(TREE, &number.to_be_bytes())?;
            Ok(value.as_deref().map(Letter::decode))
        };
        self.look(read).await
    }

    /// Removes the letter of this ID that a pipeline has: only if it died at this time, where one
    /// is given. Whether it was there.
    pub(crate) async fn discard(
        &self,
        pipeline: &str,
        id: &str,
        died_at: Option<u64>,
    ) -> Result<bool, DeadError> {
        let of = (pipeline.to_owned(), id.to_owned());
        let remove = move |transaction: &mut Transaction<'_>, headlines: &mut Headlines| {
            let number = headlines.numbers.get(&of).copied();
            let number = number.filter(|number| {
                let died = headlines.all.get(number).map(|it| it.died_at);
                died_at.is_none() || died == died_at
            });
            let Some(number) = number else {
                return Ok(false);
            };
            headlines.remove(number);
            transaction.remove(TREE, &number.to_be_bytes())?;
            Ok(true)
        };
        self.carry_out(remove).await
    }

    /// Changes something. A letter takes the place of a job, so it has one also in a full store;
    /// there are not many.
    async fn carry_out<T: Send + 'static>(
        &self,
        run: impl FnOnce(&mut Transaction<'_>, &mut Headlines) -> Result<T, Failed> + Send + 'static,
    ) -> Result<T, DeadError> {
        let store = self.0.store.get().await?;
        let run = self.with_headlines(&store, run);
        let shared = self.0.clone();
        let then = move |outcome: Result<T, StoreError>| {
            if outcome.is_err() {
                lock(&shared.headlines).take();
            }
            outcome
        };
        Ok(store.carry_out(0, run, then).await??)
    }

    async fn look<T: Send + 'static>(
        &self,
        run: impl FnOnce(&mut Transaction<'_>, &mut Headlines) -> Result<T, Failed> + Send + 'static,
    ) -> Result<T, DeadError> {
        let store = self.0.store.get().await?;
        Ok(store.look(self.with_headlines(&store, run)).await?)
    }

    fn with_headlines<T, F>(
        &self,
        store: &Store,
        run: F,
    ) -> impl FnOnce(&mut Transaction<'_>) -> Result<T, Failed> + Send + 'static + use<T, F>
    where
        F: FnOnce(&mut Transaction<'_>, &mut Headlines) -> Result<T, Failed> + Send + 'static,
    {
        let (shared, others) = (self.0.clone(), store.others());
        move |transaction| {
            let mut headlines = lock(&shared.headlines);
            let changes = others.borrow().changes;
            let headlines = loaded(&mut headlines, transaction, changes)?;
            run(transaction, headlines)
        }
    }
}

fn loaded<'a>(
    headlines: &'a mut Option<Headlines>,
    transaction: &mut Transaction<'_>,
    changes: u64,
) -> Result<&'a mut Headlines, Failed> {
    if headlines.as_ref().is_none_or(|it| it.changes != changes) {
        let mut read = Headlines {
            changes,
            ..Headlines::default()
        };
        transaction.scan(TREE, Bound::Unbounded, |key, value| {
            if let Ok(number) = key.try_into().map(u64::from_be_bytes) {
                let headline = Letter::decode(value).headline();
                read.insert(number, headline, value.len() as u64);
            }
            ControlFlow::Continue(())
        })?;
        *headlines = Some(read);
    }
    Ok(headlines.as_mut().expect("they were read"))
}

impl Headlines {
    /// Adds a letter of so many bytes, in the place of one of the same pipeline and ID: its number,
    /// and the numbers and pipelines of those that have to go for it.
    fn add(&mut self, headline: Headline, bytes: u64) -> (u64, Vec<(u64, String)>) {
        let known = self.numbers.get(&name_of(&headline)).copied();
        let last = self.all.last_key_value().map_or(0, |(last, _)| *last);
        let number = known.unwrap_or(last + 1);
        self.remove(number);
        self.insert(number, headline, bytes);
        let mut gone = Vec::new();
        while let Some(first) = self.shares.first_to_go(MOST, MOST_BYTES) {
            let Some(headline) = self.remove(first) else {
                break;
            };
            gone.push((first, headline.pipeline));
        }
        (number, gone)
    }

    fn insert(&mut self, number: u64, headline: Headline, bytes: u64) {
        self.shares.add(&headline.pipeline, number, bytes);
        self.numbers.insert(name_of(&headline), number);
        self.all.insert(number, headline);
    }

    fn remove(&mut self, number: u64) -> Option<Headline> {
        let headline = self.all.remove(&number)?;
        self.shares.remove(&headline.pipeline, number);
        self.numbers.remove(&name_of(&headline));
        Some(headline)
    }
}

fn name_of(headline: &Headline) -> (String, String) {
    (headline.pipeline.clone(), headline.id.clone())
}

impl Letter {
    fn encode(&self) -> Vec<u8> {
        let stored = Stored {
            pipeline: self.pipeline.clone(),
            job: encode_job(&self.job),
            attempts: self.attempts,
            reason: self.reason.clone(),
            died_at: self.died_at,
        };
        stored.encode_to_vec()
    }

    /// What somebody else has written is a letter without a name.
    fn decode(bytes: &[u8]) -> Self {
        let stored = Stored::decode(bytes).unwrap_or_default();
        Self {
            pipeline: stored.pipeline,
            job: decode_job(&stored.job),
            attempts: stored.attempts,
            reason: stored.reason,
            died_at: stored.died_at,
        }
    }

    fn headline(&self) -> Headline {
        let first = self.reason.lines().next().unwrap_or_default();
        Headline {
            pipeline: self.pipeline.clone(),
            id: self.job.id.clone(),
            job: self.job.name.clone(),
            attempts: self.attempts,
            reason: first.chars().take(200).collect(),
            died_at: self.died_at,
            size: self.job.payload.len() as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use pronghorn_testkit::Directory;

    use super::*;

    fn open(directory: &Directory) -> (DeadLetters, LazyStore) {
        let store = LazyStore::new(directory.to_path_buf(), 1 << 30);
        (DeadLetters::new(store.clone()), store)
    }

    fn job(id: &str, payload: usize) -> Job {
        Job {
            id: id.to_owned(),
            name: "ping".to_owned(),
            payload: vec![b'x'; payload].into(),
            ..Job::default()
        }
    }

    #[tokio::test]
    async fn letters_outlive_the_server_and_can_be_read_and_discarded() {
        let directory = Directory::new();
        let (letters, store) = open(&directory);
        letters
            .keep("mail", &job("a", 3), 3, "no\ntrace")
            .await
            .unwrap();
        letters.keep("other", &job("b", 0), 1, "").await.unwrap();
        letters
            .keep("mail", &job("a", 4), 4, "again")
            .await
            .unwrap();
        store.close().await;

        let (letters, _store) = open(&directory);
        let counts = letters.counts().await.unwrap();
        assert_eq!(
            counts,
            BTreeMap::from([("mail".into(), 1), ("other".into(), 1)])
        );
        let listed = letters.list(Some("mail"), 1).await.unwrap().0;
        assert_eq!(
            (listed.len(), &*listed[0].reason, listed[0].size),
            (1, "again", 4)
        );
        let read = letters.read("mail", "a").await.unwrap().unwrap();
        assert_eq!((read.job, read.attempts), (job("a", 4), 4));
        // Another pipeline's, which is newer.
        letters.keep("other", &job("a", 5), 1, "").await.unwrap();
        let of_both = letters.pipelines_of("a").await.unwrap();
        assert_eq!(of_both, BTreeSet::from(["mail".into(), "other".into()]));
        let read = letters.read("mail", "a").await.unwrap().unwrap();
        assert_eq!(read.job, job("a", 4));
        let discard = async |died_at| letters.discard("mail", "a", died_at).await.unwrap();
        assert!(!discard(Some(1)).await, "another one");
        assert!(discard(None).await);
        assert!(!discard(None).await);
        assert_eq!(letters.read("mail", "a").await.unwrap(), None);
        assert_eq!(letters.list(None, 0).await.unwrap(), (Vec::new(), 2));
    }

    #[tokio::test]
    async fn letters_of_jobs_that_die_together_share_commits() {
        let directory = Directory::new();
        let (letters, store) = open(&directory);
        letters.keep("p", &job("first", 0), 1, "").await.unwrap();
        let before = store.get().await.unwrap().commits();
        let jobs: Vec<_> = (0..300).map(|number| job(&number.to_string(), 3)).collect();
        let keeping = jobs.iter().map(|job| letters.keep("p", job, 3, "no"));
        let kept = futures_util::future::join_all(keeping).await;
        assert!(kept.iter().all(Result::is_ok));
        let commits = store.get().await.unwrap().commits() - before;
        assert!(commits <= 30, "{commits} commits for 300 letters");
        assert_eq!(letters.list(None, 0).await.unwrap().1, 301);
        store.close().await;
        let (letters, _store) = open(&directory);
        assert_eq!(letters.list(None, 0).await.unwrap().1, 301);
        let twice = [job("a", 1), job("a", 2)];
        let keeping = twice.iter().map(|job| letters.keep("p", job, 3, "no"));
        futures_util::future::join_all(keeping).await;
        let (same, more) = letters.list(None, 1).await.unwrap();
        assert_eq!((more, same[0].size), (301, 2));
    }

    #[tokio::test]
    async fn the_oldest_go_when_there_are_too_many_bytes() {
        let directory = Directory::new();
        let (letters, _store) = open(&directory);
        for id in ["a", "b", "c", "d", "e"] {
            letters.keep("p", &job(id, 15 << 10), 3, "").await.unwrap();
        }
        let ids = letters
            .list(None, MOST)
            .await
            .unwrap()
            .0
            .into_iter()
            .map(|it| it.id);
        assert_eq!(ids.collect::<Vec<_>>(), ["e", "d", "c", "b"]);
        assert_eq!(letters.read("p", "a").await.unwrap(), None);
    }

    #[tokio::test]
    async fn a_pipeline_that_has_too_many_loses_its_own() {
        let directory = Directory::new();
        let (letters, store) = open(&directory);
        let count = async |letters: &DeadLetters| letters.counts().await.unwrap();
        for id in ["a", "b", "c"] {
            letters
                .keep("good", &job(id, 1 << 10), 3, "")
                .await
                .unwrap();
        }
        for id in ["d", "e", "f", "g", "h"] {
            let large = job(id, 15 << 10);
            letters.keep("evil", &large, 3, "").await.unwrap();
        }
        let shares = BTreeMap::from([("good".to_owned(), 3), ("evil".to_owned(), 4)]);
        assert_eq!(count(&letters).await, shares);
        // Headers count as well.
        let mut large = job("i", 0);
        large
            .headers
            .insert("h".to_owned(), vec!["x".repeat(15 << 10)]);
        letters.keep("evil", &large, 3, "").await.unwrap();
        assert_eq!(count(&letters).await, shares);
        store.close().await;
        let (letters, _store) = open(&directory);
        letters.keep("good", &job("j", 0), 3, "").await.unwrap();
        assert_eq!(count(&letters).await["evil"], 4);
        let few = |_: &mut Transaction<'_>, headlines: &mut Headlines| {
            for number in 0..2 * MOST {
                let headline = Headline {
                    pipeline: "evil".to_owned(),
                    id: number.to_string(),
                    ..headlines.all.values().next().expect("there is one").clone()
                };
                headlines.add(headline, 0);
            }
            Ok(headlines
                .all
                .values()
                .filter(|it| it.pipeline == "good")
                .count())
        };
        assert_eq!(letters.look(few).await.unwrap(), 4);
    }

    #[test]
    fn any_bytes_are_a_letter() {
        for length in 0..200 {
            let bytes: Vec<u8> = (0..length).map(|_| fastrand::u8(..)).collect();
            Letter::decode(&bytes).headline();
        }
    }
}
