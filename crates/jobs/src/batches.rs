//! Batches: jobs with one that is pushed when all of them have come to their end.
//!
//! What is left of a batch is in the server's store, whatever driver its pipelines have: an entry
//! for the batch, and one for each of its jobs that has not ended. A job's entry goes before its
//! pipeline forgets the job, and the last job is pushed before the batch is forgotten: after a
//! crash in between, one is done twice, and none is lost.

use std::ops::{Bound, ControlFlow};

use pronghorn_store::{
    Failed, LazyStore, OpenError, Store, StoreError, Transaction, Tree, entry_size,
};
use prost::Message;
use thiserror::Error;

use crate::drivers::{decode_job, encode_job};
use crate::job::{Job, now_ms};

const TREE: Tree = Tree::new("jobs.batches");

/// Batches that are not done. The oldest have lost their jobs, with a pipeline that was in memory
/// or was destroyed.
const MOST: usize = 10_000;

/// What is left of batches. Clones are the same ones.
#[derive(Clone, Debug)]
pub(crate) struct Batches {
    store: LazyStore,
}

/// The job that comes last, and where it goes.
pub(crate) struct Last {
    pub(crate) pipeline: String,
    pub(crate) job: Job,
}

#[derive(Debug, Error)]
pub(crate) enum BatchError {
    #[error("{MOST} batches are not done yet, and no more are taken")]
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
}

/// What a job's end makes of its batch.
enum Left {
    Jobs,
    /// It was the last one.
    None(Box<Stored>),
}

impl Batches {
    pub(crate) const fn new(store: LazyStore) -> Self {
        Self { store }
    }

    /// Keeps a batch before its jobs are pushed. IDs have no bytes of zero.
    pub(crate) async fn keep(
        &self,
        id: &str,
        last: &Last,
        jobs: Vec<String>,
    ) -> Result<(), BatchError> {
        let stored = Stored {
            pipeline: last.pipeline.clone(),
            last: encode_job(&last.job),
            jobs: jobs.len() as u64,
            failed: 0,
            since: now_ms(),
        };
        let (head, value) = (key(id, ""), stored.encode_to_vec());
        let keys: Vec<_> = jobs.iter().map(|job| key(id, job)).collect();
        let size =
            entry_size(&head, &value) + keys.iter().map(|key| entry_size(key, b"")).sum::<u64>();
        let write = move |transaction: &mut Transaction<'_>| {
            if count(transaction)? >= MOST {
                return Ok(false);
            }
            transaction.put(TREE, &head, &value)?;
            for key in &keys {
                transaction.put(TREE, key, b"")?;
            }
            Ok(true)
        };
        let store = self.open().await?;
        if store.carry_out(size, write, |outcome| outcome).await?? {
            Ok(())
        } else {
            Err(BatchError::TooMany)
        }
    }

    /// A job has ended for good, or was not pushed. What comes last, if it was the only one left;
    /// who gets that pushes it and [forgets](Self::forget) the batch.
    pub(crate) async fn ended(
        &self,
        id: &str,
        job: &str,
        failed: bool,
    ) -> Result<Option<Last>, BatchError> {
        let (head, entry) = (key(id, ""), key(id, job));
        let write =
            move |transaction: &mut Transaction<'_>| end(transaction, &head, &entry, failed);
        let store = self.open().await?;
        let left = store.carry_out(0, write, |outcome| outcome).await??;
        let Left::None(stored) = left else {
            return Ok(None);
        };
        let mut job = decode_job(&stored.last);
        for (name, value) in [("batch-jobs", stored.jobs), ("batch-failed", stored.failed)] {
            job.headers.insert(name.to_owned(), vec![value.to_string()]);
        }
        let pipeline = stored.pipeline;
        Ok(Some(Last { pipeline, job }))
    }

    /// Whether the job of this ID comes when those of its batch have ended.
    pub(crate) async fn is_last(&self, id: &str) -> Result<bool, BatchError> {
        let Some(store) = self.store.get_if_there().await else {
            return Ok(false);
        };
        let head = key(id, "");
        let read =
            move |transaction: &mut Transaction<'_>| Ok(transaction.get(TREE, &head)?.is_some());
        Ok(store?.carry_out(0, read, |outcome| outcome).await??)
    }

    /// Its last job is pushed, or none of its jobs was.
    pub(crate) async fn forget(&self, id: &str) -> Result<(), BatchError> {
        let head = key(id, "");
        let write = move |transaction: &mut Transaction<'_>| {
            for key in keys_of(transaction, &head)? {
                transaction.remove(TREE, &key)?;
            }
            Ok(())
        };
        let store = self.open().await?;
        store.carry_out(0, write, |outcome| outcome).await??;
        Ok(())
    }

    async fn open(&self) -> Result<Store, BatchError> {
        Ok(self.store.get().await?)
    }
}

/// The name of a batch's own entry, and of those of its jobs behind it.
fn key(batch: &str, job: &str) -> Vec<u8> {
    [batch.as_bytes(), b"\0", job.as_bytes()].concat()
}

fn end(
    transaction: &mut Transaction<'_>,
    head: &[u8],
    entry: &[u8],
    failed: bool,
) -> Result<Left, Failed> {
    let Some(value) = transaction.get(TREE, head)? else {
        return Ok(Left::Jobs); // it was over before
    };
    let mut stored = Stored::decode(&*value).unwrap_or_default();
    // One that has run again after a crash is not counted twice.
    if transaction.remove(TREE, entry)? && failed {
        stored.failed += 1;
        transaction.put(TREE, head, &stored.encode_to_vec())?;
    }
    let mut is_last = true;
    transaction.scan(TREE, Bound::Excluded(head), |key, _| {
        is_last = !key.starts_with(head);
        ControlFlow::Break(())
    })?;
    Ok(if is_last {
        Left::None(Box::new(stored))
    } else {
        Left::Jobs
    })
}

fn keys_of(transaction: &mut Transaction<'_>, head: &[u8]) -> Result<Vec<Vec<u8>>, Failed> {
    let mut keys = Vec::new();
    transaction.scan(TREE, Bound::Included(head), |key, _| {
        if !key.starts_with(head) {
            return ControlFlow::Break(());
        }
        keys.push(key.to_vec());
        ControlFlow::Continue(())
    })?;
    Ok(keys)
}

/// Batches, as far as [`MOST`].
fn count(transaction: &mut Transaction<'_>) -> Result<usize, Failed> {
    let (mut count, mut from) = (0, Bound::Unbounded);
    while count < MOST {
        let mut found: Option<Vec<u8>> = None;
        let from_key = match &from {
            Bound::Unbounded => Bound::Unbounded,
            Bound::Included(key) | Bound::Excluded(key) => Bound::Included(Vec::as_slice(key)),
        };
        transaction.scan(TREE, from_key, |key, _| {
            found = Some(key.to_vec());
            ControlFlow::Break(())
        })?;
        let Some(key) = found else {
            break;
        };
        count += 1;
        // Behind all of the same batch: the byte after the one of zero.
        let end = key.iter().position(|byte| *byte == 0).unwrap_or(key.len());
        let mut next = key[..end].to_vec();
        next.push(1);
        from = Bound::Included(next);
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    struct Folder(PathBuf);

    impl Drop for Folder {
        fn drop(&mut self) {
            _ = std::fs::remove_dir_all(&self.0);
        }
    }

    static NUMBER: AtomicU32 = AtomicU32::new(0);

    fn folder() -> Folder {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("pronghorn-batches-{}-{number}", std::process::id());
        Folder(std::env::temp_dir().join(name))
    }

    fn last() -> Last {
        Last {
            pipeline: "p".to_owned(),
            job: Job {
                id: "last".to_owned(),
                ..Job::default()
            },
        }
    }

    fn names(count: usize) -> Vec<String> {
        (0..count).map(|number| format!("job-{number}")).collect()
    }

    #[tokio::test]
    async fn the_last_job_comes_when_all_have_ended_also_after_a_restart() {
        let folder = folder();
        let store = LazyStore::new(folder.0.clone(), 1 << 20);
        let batches = Batches::new(store.clone());
        batches.keep("a", &last(), names(3)).await.unwrap();
        batches.keep("ab", &last(), names(1)).await.unwrap();
        for (job, failed) in [("job-0", true), ("job-0", true), ("job-2", false)] {
            assert!(batches.ended("a", job, failed).await.unwrap().is_none());
        }
        store.close().await;
        let store = LazyStore::new(folder.0.clone(), 1 << 20);
        let batches = Batches::new(store.clone());
        let found = batches.ended("a", "job-1", false).await.unwrap().unwrap();
        assert_eq!((&*found.pipeline, &*found.job.id), ("p", "last"));
        assert_eq!(found.job.headers["batch-jobs"], ["3"]);
        assert_eq!(found.job.headers["batch-failed"], ["1"]);
        // A crash before it is forgotten: it comes again, and then never.
        assert!(batches.ended("a", "job-1", false).await.unwrap().is_some());
        batches.forget("a").await.unwrap();
        assert!(batches.ended("a", "job-1", false).await.unwrap().is_none());
        assert!(batches.ended("ab", "job-0", false).await.unwrap().is_some());
        store.close().await;
    }

    #[tokio::test]
    async fn so_many_are_kept_and_no_more() {
        let folder = folder();
        let store = LazyStore::new(folder.0.clone(), 64 << 20);
        let batches = Batches::new(store.clone());
        let open = store.get().await.unwrap();
        let fill = |transaction: &mut Transaction<'_>| -> Result<(), Failed> {
            for number in 0..MOST {
                transaction.put(TREE, &key(&number.to_string(), ""), b"")?;
                transaction.put(TREE, &key(&number.to_string(), "job"), b"")?;
            }
            Ok(())
        };
        open.carry_out(0, fill, |outcome| outcome)
            .await
            .unwrap()
            .unwrap();
        let refused = batches.keep("more", &last(), names(1)).await.unwrap_err();
        assert_eq!(
            refused.to_string(),
            "10000 batches are not done yet, and no more are taken"
        );
        batches.forget("7").await.unwrap();
        batches.keep("more", &last(), names(1)).await.unwrap();
        store.close().await;
    }
}
