//! A new generation of workers, from the order to its end.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::super::error::LaunchError;
use super::super::launcher::Launcher;
use super::super::plan::Plan;
use super::members::{Members, Stage};

/// A way to start workers, and how many.
pub(crate) struct Change {
    pub(crate) launcher: Arc<dyn Launcher>,
    pub(crate) plan: Plan,
}

/// One that is under way, and those that wait for its end.
#[derive(Default)]
pub(super) struct Reloads {
    pub(super) under_way: Option<Reload>,
    pub(super) to_come: VecDeque<ReloadToCome>,
}

pub(super) struct ReloadToCome {
    pub(super) change: Option<Change>,
    pub(super) grace: Duration,
    pub(super) done: oneshot::Sender<Result<(), LaunchError>>,
}

/// A new generation on its way.
pub(super) struct Reload {
    pub(super) generation: u64,
    /// What holds again if it fails, and how many workers there were.
    pub(super) before: Option<(Change, usize)>,
    pub(super) grace: Duration,
    pub(super) let_in: bool,
    pub(super) failed: Option<LaunchError>,
    pub(super) done: oneshot::Sender<Result<(), LaunchError>>,
}

/// How far a new generation is.
pub(super) enum Progress {
    /// Its workers boot, or end after one did not come up.
    UnderWay,
    /// Its workers are gone.
    Failed(LaunchError),
    /// Its workers take calls.
    IsIn,
}

impl Reloads {
    /// The pool stops: the answer is that nobody answers.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// A worker of this generation did not come up. If a reload waits for it, that one has failed:
    /// its other workers are killed. Else the error is given back.
    pub(super) fn failed(
        &mut self,
        generation: u64,
        error: LaunchError,
        members: &mut Members,
        now: Instant,
    ) -> Result<(), LaunchError> {
        match &mut self.under_way {
            Some(reload) if reload.generation == generation => {
                reload.failed.get_or_insert(error);
                for (_, member) in members.iter_mut() {
                    if member.generation == generation {
                        member.kill(now);
                    }
                }
                Ok(())
            }
            Some(_) | None => Err(error),
        }
    }
}

impl Reload {
    /// Lets the new workers in when all are up.
    pub(super) fn advance(&mut self, members: &Members) -> Progress {
        let new = || members.of_generation(self.generation);
        if let Some(error) = self.failed.take_if(|_| new().next().is_none()) {
            return Progress::Failed(error);
        }
        if self.failed.is_some() {
            return Progress::UnderWay;
        }
        if !self.let_in && new().all(|member| matches!(member.stage, Stage::Up)) {
            self.let_in = true;
            for member in new() {
                member.let_in();
            }
        }
        // One that has died meanwhile is no reason to wait.
        let is_settled = |stage| matches!(stage, Stage::In(_) | Stage::Down);
        if self.let_in && new().all(|member| is_settled(member.stage)) {
            Progress::IsIn
        } else {
            Progress::UnderWay
        }
    }
}
