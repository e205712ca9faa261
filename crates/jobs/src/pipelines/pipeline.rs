//! A pipeline, and the jobs of it that workers have.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use pronghorn_queue::{Delivery, Driver, Keeper, Wake};
use tokio::time::Instant;

use super::error::PipelineError;
use super::turns::Glance;
use crate::meter::Meter;
use crate::metrics::PipelineMetrics;
use crate::rules::{Rules, Window};
use crate::settings::PipelineSettings;

/// Jobs of a pipeline that wait for workers of other pools.
const MOST_MOVING: usize = 256;
/// Jobs of a pipeline that have run and of which it has not yet taken note.
const MOST_UNSETTLED: usize = 1024;

/// A pipeline that is open.
pub(crate) struct Pipeline {
    pub(crate) name: String,
    /// As the configuration names it.
    pub(crate) driver_name: &'static str,
    /// Of jobs that have none.
    pub(crate) priority: i64,
    /// Whose workers run its jobs, those that name no other.
    pub(crate) pool: String,
    pub(crate) rules: Rules,
    pub(crate) driver: Arc<dyn Driver>,
    consumes: AtomicBool,
    /// It was destroyed.
    leaves: AtomicBool,
    /// Jobs that workers have.
    occupied: AtomicUsize,
    /// Jobs for other pools that wait until one of their workers is free.
    moving: HeldJobs,
    /// Jobs that have run and of which the pipeline has not yet taken note.
    unsettled: HeldJobs,
    ended: Meter,
    pub(crate) metrics: PipelineMetrics,
    rate: Option<Window>,
    wake: Wake,
}

/// A job that a worker is to do.
pub(crate) struct Work {
    pub(crate) pipeline: Arc<Pipeline>,
    pub(crate) delivery: Delivery,
    pub(crate) place: Occupied,
}

/// One of the places of a pipeline, until it is dropped.
pub(crate) struct Occupied(Arc<Pipeline>);

impl Occupied {
    pub(super) fn pipeline(&self) -> &Arc<Pipeline> {
        &self.0
    }
}

impl Drop for Occupied {
    fn drop(&mut self) {
        // In one order with the note that the pipeline leaves: one of the two sees the other.
        self.0.occupied.fetch_sub(1, Ordering::SeqCst);
        if self.0.rules.concurrency.is_some() {
            self.0.wake.wake();
        }
    }
}

/// Jobs of a pipeline that no worker has, and that are not in it. With so many of them it gives out
/// no further job: what keeps them is in nobody else's way.
struct HeldJobs {
    jobs: AtomicUsize,
    most: usize,
}

impl HeldJobs {
    const fn new(most: usize) -> Self {
        Self {
            jobs: AtomicUsize::new(0),
            most,
        }
    }

    fn is_full(&self) -> bool {
        self.jobs.load(Ordering::SeqCst) >= self.most
    }
}

/// Why a pipeline waits for a job that no worker has.
#[derive(Clone, Copy)]
pub(crate) enum HeldFor {
    /// For a worker of another pool.
    Pool,
    /// For the note of its end.
    Note,
}

/// A job that no worker has, until it is dropped.
pub(crate) struct Holding(Arc<Pipeline>, HeldFor);

impl Drop for Holding {
    fn drop(&mut self) {
        let Self(pipeline, why) = self;
        let held = pipeline.held(*why);
        // In one order with the look that finds it full.
        if held.jobs.fetch_sub(1, Ordering::SeqCst) >= held.most {
            pipeline.wake.wake();
        }
    }
}

impl Pipeline {
    /// One that gives out no jobs before it consumes.
    pub(super) fn new(
        name: &str,
        settings: &PipelineSettings,
        driver: Arc<dyn Driver>,
        metrics: PipelineMetrics,
        wake: Wake,
    ) -> Self {
        Self {
            name: name.to_owned(),
            driver_name: settings.driver.name(),
            priority: settings.priority,
            pool: settings.pool.clone(),
            rules: settings.rules.clone(),
            driver,
            consumes: AtomicBool::new(false),
            leaves: AtomicBool::new(false),
            occupied: AtomicUsize::new(0),
            moving: HeldJobs::new(MOST_MOVING),
            unsettled: HeldJobs::new(MOST_UNSETTLED),
            ended: Meter::new(),
            metrics,
            rate: settings.rules.rate.map(Window::new),
            wake,
        }
    }

    /// It is destroyed, and closed when workers have no jobs of it.
    pub(super) fn leave(&self) {
        self.leaves.store(true, Ordering::SeqCst);
    }

    pub(super) fn leaves(&self) -> bool {
        self.leaves.load(Ordering::SeqCst)
    }

    /// Whether workers have jobs of it. In one order with [`leave`](Self::leave).
    pub(super) fn is_occupied(&self) -> bool {
        self.occupied.load(Ordering::SeqCst) > 0
    }

    /// How many jobs of it workers have.
    pub(super) fn occupied(&self) -> usize {
        self.occupied.load(Ordering::Relaxed)
    }

    /// A job of it does not run any more.
    pub(super) fn count_ended(&self) {
        self.ended.count();
    }

    /// What the engine calls the place of its jobs.
    pub(crate) fn queue(&self) -> &str {
        self.driver.queue().unwrap_or(&self.name)
    }

    /// Jobs that ended in the last minute.
    pub(crate) fn per_minute(&self) -> u64 {
        self.ended.per_minute()
    }

    pub(super) fn occupy(self: &Arc<Self>, now: Instant) -> Occupied {
        self.occupied.fetch_add(1, Ordering::SeqCst);
        if let Some(rate) = &self.rate {
            rate.take(now);
        }
        Occupied(self.clone())
    }

    const fn held(&self, why: HeldFor) -> &HeldJobs {
        match why {
            HeldFor::Pool => &self.moving,
            HeldFor::Note => &self.unsettled,
        }
    }

    /// Counts a job that no worker has.
    pub(crate) fn hold(self: &Arc<Self>, why: HeldFor) -> Holding {
        self.held(why).jobs.fetch_add(1, Ordering::SeqCst);
        Holding(self.clone(), why)
    }

    /// How many further jobs may run beside those that do.
    pub(super) fn places_left(&self) -> usize {
        if self.moving.is_full() || self.unsettled.is_full() {
            return 0;
        }
        let most = self.rules.concurrency.unwrap_or(usize::MAX);
        most.saturating_sub(self.occupied())
    }

    /// When its rate lets another job begin, if not now.
    pub(super) fn next_place(&self, now: Instant) -> Option<Instant> {
        self.rate.as_ref()?.next(now)
    }

    /// Whether a job of it may begin now, and which.
    pub(super) fn look(&self, now: Instant) -> Glance {
        let is_ours = self.is_ours();
        let found = |head, again| Glance {
            head,
            again,
            is_ours,
        };
        if self.places_left() == 0 {
            return found(None, None);
        }
        let head = self.driver.head(now);
        match self.next_place(now) {
            Some(place) if head.is_some() => found(None, Some(place)),
            // While it has a job, it is looked at with each one that is taken.
            _ => {
                let due = self.driver.next_due();
                found(head, due.filter(|due| head.is_none() || *due > now))
            }
        }
    }

    /// Whether nobody but this server has its jobs.
    pub(crate) fn is_ours(&self) -> bool {
        self.driver.keeper().is_this_server()
    }

    /// Whether its jobs end with the process.
    pub(crate) fn is_in_memory(&self) -> bool {
        self.driver.keeper() == Keeper::Process
    }

    /// Jobs of a batch are told by this server alone.
    pub(super) fn expect_ours(&self) -> Result<(), PipelineError> {
        if self.is_ours() {
            return Ok(());
        }
        let (name, driver) = (&self.name, self.driver_name);
        Err(PipelineError::Refused(format!(
            "the pipeline {name} is in {driver}; a batch takes pipelines of the drivers `memory` and `embedded`"
        )))
    }

    pub(super) fn late(&self) -> PipelineError {
        let name = self.name.clone();
        match self.driver.health() {
            Ok(()) => PipelineError::Late(name),
            Err(why) => PipelineError::NotReady { name, why },
        }
    }

    pub(crate) fn consumes(&self) -> bool {
        self.consumes.load(Ordering::Relaxed)
    }

    pub(super) fn consume(&self, consumes: bool) {
        self.consumes.store(consumes, Ordering::Relaxed);
        if consumes {
            self.driver.resume();
        } else {
            self.driver.pause();
        }
    }
}
