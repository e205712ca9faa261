//! How many workers a pool has, and who may change that.

use std::sync::Arc;

use thiserror::Error;

use super::scaling::Scaling;
use super::wear::Limits;

/// How many workers a pool has, and for how long.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// At the start.
    pub workers: usize,
    /// Between which sizes it moves by itself; None: it does not.
    pub scaling: Option<Scaling>,
    /// The most that can be asked for.
    pub most: usize,
    /// How many boot at once, for whatever reason.
    pub at_once: usize,
    pub limits: Limits,
}

impl Plan {
    /// As many workers as it has by itself at the most.
    pub fn largest(&self) -> usize {
        self.scaling.map_or(self.workers, |scaling| scaling.max)
    }

    /// Has the pool named have so many workers from now on, instead of `before`; its scaling moves
    /// along.
    pub(super) fn resize(
        &mut self,
        pool: &str,
        before: usize,
        size: usize,
    ) -> Result<(), NotResized> {
        if size == 0 || size > self.most {
            return Err(NotResized::OutOfRange {
                pool: pool.to_owned(),
                would: size,
                most: self.most,
            });
        }
        if let Some(scaling) = &mut self.scaling {
            scaling.min = (scaling.min + size).saturating_sub(before).max(1);
            scaling.max = scaling.max.max(size);
        }
        Ok(())
    }
}

/// Why a pool has not got more or fewer workers.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NotResized {
    #[error("pool `{pool}` would have {would} workers; it can have from 1 to {most}")]
    OutOfRange {
        pool: String,
        would: usize,
        most: usize,
    },
    #[error("a worker did not come up: {0}")]
    Boot(Arc<str>),
    #[error("pool `{0}` is stopping")]
    Stopping(String),
}
