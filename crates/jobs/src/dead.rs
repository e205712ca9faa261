//! Dead letters: jobs that were given up. They are in the server's store, whatever driver their
//! pipeline has, until somebody runs them again or discards them.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use pronghorn_base::LogThrottle;
use pronghorn_store::{LazyStore, OpenError, Store, StoreError, Transaction, Tree, entry_size};
use prost::Message;
use serde::Serialize;
use thiserror::Error;
use tokio::sync::Mutex;

use crate::drivers::{decode_job, encode_job};
use crate::job::{Job, now_ms};

const TREE: Tree = Tree::new("jobs.dead");

/// More are not kept, the oldest go first: somebody has not looked for long. Their headlines are in
/// memory.
const MOST: usize = 10_000;
const MOST_BYTES: u64 = 64 << 20;
/// Of a reason.
const LONGEST_REASON: usize = 16 << 10;

/// Clones are the same ones.
#[derive(Clone, Debug)]
pub(crate) struct DeadLetters(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    store: LazyStore,
    /// Of all there are, by their numbers; None before they were read.
    headlines: Mutex<Option<Headlines>>,
    dropped: LogThrottle,
}

#[derive(Debug, Default)]
struct Headlines {
    all: BTreeMap<u64, Headline>,
    bytes: u64,
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
        let store = self.0.store.get().await?;
        let mut guard = self.0.headlines.lock().await;
        let headlines = loaded(&mut guard, &store).await?;
        let same = |(_, it): &(&u64, &Headline)| it.pipeline == pipeline && it.id == job.id;
        let known = headlines.all.iter().find(same).map(|(number, _)| *number);
        let last = headlines.all.last_key_value().map_or(0, |(last, _)| *last);
        let number = known.unwrap_or(last + 1);
        let gone = headlines.beyond(&headline, known);
        let key = number.to_be_bytes();
        let growth = entry_size(&key, &value);
        let leaving = gone.clone();
        let write = move |transaction: &mut Transaction<'_>| {
            for number in leaving {
                transaction.remove(TREE, &number.to_be_bytes())?;
            }
            transaction.put(TREE, &key, &value)
        };
        store.carry_out(growth, write, |outcome| outcome).await??;
        for number in &gone {
            headlines.remove(*number);
        }
        if !gone.is_empty()
            && let Some(times) = self.0.dropped.should_log()
        {
            tracing::warn!(target: "jobs", times, "there are too many dead letters: the oldest are discarded");
        }
        headlines.remove(number);
        headlines.bytes += headline.size;
        headlines.all.insert(number, headline);
        Ok(())
    }

    /// Those of a pipeline, or of all for None; the newest first.
    pub(crate) async fn list(&self, of: Option<&str>) -> Result<Vec<Headline>, DeadError> {
        let store = self.0.store.get().await?;
        let mut guard = self.0.headlines.lock().await;
        let headlines = loaded(&mut guard, &store).await?;
        let all = headlines.all.values().rev();
        let wanted = all.filter(|it| of.is_none_or(|of| it.pipeline == of));
        Ok(wanted.cloned().collect())
    }

    /// How many there are of each pipeline. It makes no store where there is none.
    pub(crate) async fn counts(&self) -> Result<BTreeMap<String, u64>, DeadError> {
        let mut counts = BTreeMap::new();
        let Some(store) = self.0.store.get_if_there().await else {
            return Ok(counts);
        };
        let store = store?;
        let mut guard = self.0.headlines.lock().await;
        for headline in loaded(&mut guard, &store).await?.all.values() {
            *counts.entry(headline.pipeline.clone()).or_default() += 1;
        }
        Ok(counts)
    }

    /// The newest letter of this ID.
    pub(crate) async fn read(&self, id: &str) -> Result<Option<Letter>, DeadError> {
        let Some(store) = self.0.store.get_if_there().await else {
            return Ok(None);
        };
        let store = store?;
        let mut guard = self.0.headlines.lock().await;
        let headlines = loaded(&mut guard, &store).await?;
        let Some(number) = headlines.number_of(id) else {
            return Ok(None);
        };
        let key = number.to_be_bytes();
        let read = move |transaction: &mut Transaction<'_>| transaction.get(TREE, &key);
        let value = store.carry_out(0, read, |outcome| outcome).await??;
        Ok(value.as_deref().map(Letter::decode))
    }

    /// Removes the newest letter of this ID: only if it died at this time, where one is given.
    /// Whether it was there.
    pub(crate) async fn discard(&self, id: &str, died_at: Option<u64>) -> Result<bool, DeadError> {
        let store = self.0.store.get().await?;
        let mut guard = self.0.headlines.lock().await;
        let headlines = loaded(&mut guard, &store).await?;
        let number = headlines.number_of(id).filter(|number| {
            let died = headlines.all.get(number).map(|it| it.died_at);
            died_at.is_none() || died == died_at
        });
        let Some(number) = number else {
            return Ok(false);
        };
        let key = number.to_be_bytes();
        let remove = move |transaction: &mut Transaction<'_>| transaction.remove(TREE, &key);
        store.carry_out(0, remove, |outcome| outcome).await??;
        headlines.remove(number);
        Ok(true)
    }
}

async fn loaded<'a>(
    headlines: &'a mut Option<Headlines>,
    store: &Store,
) -> Result<&'a mut Headlines, DeadError> {
    if headlines.is_none() {
        let read = |transaction: &mut Transaction<'_>| {
            let mut read = Headlines::default();
            transaction.scan(TREE, Bound::Unbounded, |key, value| {
                if let Ok(number) = key.try_into().map(u64::from_be_bytes) {
                    let headline = Letter::decode(value).headline();
                    read.bytes += headline.size;
                    read.all.insert(number, headline);
                }
                ControlFlow::Continue(())
            })?;
            Ok(read)
        };
        *headlines = Some(store.carry_out(0, read, |outcome| outcome).await??);
    }
    Ok(headlines.as_mut().expect("they were read"))
}

impl Headlines {
    fn remove(&mut self, number: u64) {
        if let Some(headline) = self.all.remove(&number) {
            self.bytes -= headline.size;
        }
    }

    fn number_of(&self, id: &str) -> Option<u64> {
        let mut newest = self.all.iter().rev();
        newest
            .find(|(_, it)| it.id == id)
            .map(|(number, _)| *number)
    }

    /// The oldest ones, which have to go for a new one.
    fn beyond(&self, new: &Headline, replaced: Option<u64>) -> Vec<u64> {
        let (mut count, mut bytes) = (self.all.len() + 1, self.bytes + new.size);
        let mut gone = Vec::new();
        for (number, headline) in &self.all {
            if count <= MOST && bytes <= MOST_BYTES {
                break;
            }
            if replaced != Some(*number) {
                gone.push(*number);
                count -= 1;
                bytes -= headline.size;
            }
        }
        gone
    }
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
    use std::path::PathBuf;

    use super::*;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let name = format!("pronghorn-dead-{name}-{}", std::process::id());
            Self(std::env::temp_dir().join(name))
        }

        fn letters(&self) -> (DeadLetters, LazyStore) {
            let store = LazyStore::new(self.0.clone(), 1 << 30);
            (DeadLetters::new(store.clone()), store)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            _ = std::fs::remove_dir_all(&self.0);
        }
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
        let folder = Folder::new("outlive");
        let (letters, store) = folder.letters();
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

        let (letters, _store) = folder.letters();
        let counts = letters.counts().await.unwrap();
        assert_eq!(
            counts,
            BTreeMap::from([("mail".into(), 1), ("other".into(), 1)])
        );
        let listed = letters.list(Some("mail")).await.unwrap();
        assert_eq!(
            (listed.len(), &*listed[0].reason, listed[0].size),
            (1, "again", 4)
        );
        let read = letters.read("a").await.unwrap().unwrap();
        assert_eq!((read.job, read.attempts), (job("a", 4), 4));
        assert!(!letters.discard("a", Some(1)).await.unwrap(), "another one");
        assert!(letters.discard("a", None).await.unwrap());
        assert!(!letters.discard("a", None).await.unwrap());
        assert_eq!(letters.read("a").await.unwrap(), None);
        assert_eq!(letters.list(None).await.unwrap().len(), 1);
    }

    #[tokio::test]
    async fn the_oldest_go_when_there_are_too_many_bytes() {
        let folder = Folder::new("many");
        let (letters, _store) = folder.letters();
        for id in ["a", "b", "c", "d", "e"] {
            letters.keep("p", &job(id, 15 << 20), 3, "").await.unwrap();
        }
        let ids = letters
            .list(None)
            .await
            .unwrap()
            .into_iter()
            .map(|it| it.id);
        assert_eq!(ids.collect::<Vec<_>>(), ["e", "d", "c", "b"]);
        assert_eq!(letters.read("a").await.unwrap(), None);
    }

    #[test]
    fn any_bytes_are_a_letter() {
        for length in 0..200 {
            let bytes: Vec<u8> = (0..length).map(|_| fastrand::u8(..)).collect();
            Letter::decode(&bytes).headline();
        }
    }
}
