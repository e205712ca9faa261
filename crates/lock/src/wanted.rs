//! What somebody asks of the locks, wherever they are kept.

use std::time::Duration;

use pronghorn_redis::RedisFailure;
use thiserror::Error;

use crate::table::{Full, Mode};

/// A lock that somebody asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted<'a> {
    pub(crate) resource: &'a str,
    pub(crate) id: &'a str,
    pub(crate) mode: Mode,
    pub(crate) ttl: Duration,
    pub(crate) wait: Duration,
}

/// Why it is not known whether somebody has a lock.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum LockError {
    #[error("{0}")]
    Full(#[from] Full),
    #[error("{0}")]
    Redis(#[from] RedisFailure),
}
