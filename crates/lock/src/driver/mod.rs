//! Where locks are kept.

use std::time::Duration;

use crate::locks::Locks;
use crate::redis::RedisLocks;
use crate::wanted::{LockError, Wanted};

/// All locks. Clones are the same ones.
#[derive(Clone, Debug)]
pub(crate) enum Driver {
    Memory(Locks),
    Redis(RedisLocks),
}

impl Driver {
    /// Takes a lock; false when it is not to be had in time.
    ///
    /// Whoever drops the future leaves the line, and gives back a lock that it was granted and
    /// never told of.
    pub(crate) async fn acquire(&self, wanted: Wanted<'_>) -> Result<bool, LockError> {
        let Wanted {
            resource,
            id,
            mode,
            ttl,
            wait,
        } = wanted;
        match self {
            Self::Memory(locks) => Ok(locks.acquire(resource, id, mode, ttl, wait).await?),
            Self::Redis(locks) => Ok(locks.acquire(wanted).await?),
        }
    }

    pub(crate) async fn release(&self, resource: &str, id: &str) -> Result<bool, LockError> {
        match self {
            Self::Memory(locks) => Ok(locks.release(resource, id)),
            Self::Redis(locks) => Ok(locks.release(resource, id).await?),
        }
    }

    pub(crate) async fn release_all(&self, resource: &str) -> Result<bool, LockError> {
        match self {
            Self::Memory(locks) => Ok(locks.release_all(resource)),
            Self::Redis(locks) => Ok(locks.release_all(resource).await?),
        }
    }

    /// Whether `id`, or anybody, holds a lock.
    pub(crate) async fn is_held(
        &self,
        resource: &str,
        id: Option<&str>,
    ) -> Result<bool, LockError> {
        match self {
            Self::Memory(locks) => Ok(locks.is_held(resource, id)),
            Self::Redis(locks) => Ok(locks.is_held(resource, id).await?),
        }
    }

    pub(crate) async fn prolong(
        &self,
        resource: &str,
        id: &str,
        ttl: Duration,
    ) -> Result<bool, LockError> {
        match self {
            Self::Memory(locks) => Ok(locks.prolong(resource, id, ttl)),
            Self::Redis(locks) => Ok(locks.prolong(resource, id, ttl).await?),
        }
    }

    /// The fencing token of the lock that `id` holds.
    pub(crate) async fn token(&self, resource: &str, id: &str) -> Result<Option<u64>, LockError> {
        match self {
            Self::Memory(locks) => Ok(locks.token(resource, id)),
            Self::Redis(locks) => Ok(locks.token(resource, id).await?),
        }
    }

    /// Nobody waits any more, from now on.
    pub(crate) fn stop(&self) {
        match self {
            Self::Memory(locks) => locks.stop(),
            Self::Redis(locks) => locks.stop(),
        }
    }
}

#[cfg(test)]
mod conformance;
