//! The pipelines of a server: what people and PHP do with them.
//!
//! - `registry`: which there are.
//! - `admission`: which jobs are let in.
//! - `dispatch`: which job is next, for which worker.
//! - `turns`: which pipeline is next, of those that have a job.
//! - `pipeline`: one of them.
//! - [`Pipelines`]: the three together, and what a job leaves behind: keys, results, dead letters,
//!   batches.

mod admission;
mod batched;
mod dispatch;
mod error;
mod expiry;
mod lent;
mod pipeline;
mod pools;
mod registry;
mod removing;
mod standing;
mod turns;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use pronghorn_base::with_causes;
use pronghorn_brokers::Brokers;
use pronghorn_plugin_api::QueueReport;
use pronghorn_queue::Job;
use pronghorn_queue::options::JobOptions;
use pronghorn_store::LazyStore;
use tokio::sync::{RwLock, RwLockReadGuard};
use tokio::time::timeout;

use self::pools::ConsumerPools;
use crate::batches::Batches;
use crate::dead::{DeadError, DeadLetters};
use crate::keys::{Keys, scoped};
use crate::metrics::Metrics;
use crate::recent::Recent;
use crate::results::{Dropped, Ended, Results};
use crate::settings::PipelineSettings;

pub(crate) use self::admission::{Admission, Duplicates};
pub(crate) use self::dispatch::Dispatch;
pub(crate) use self::error::{PipelineError, what_there_is};
pub(crate) use self::pipeline::{HeldFor, Holding, Occupied, Pipeline, Work};
pub(crate) use self::registry::Registry;
pub(crate) use self::standing::Standing;

/// Clones are the same ones.
#[derive(Clone)]
pub(crate) struct Pipelines(Arc<Shared>);

struct Shared {
    registry: Registry,
    admission: Admission,
    dispatch: Dispatch,
    keys: Keys,
    results: Results,
    dead: DeadLetters,
    batches: Batches,
    recent: Recent,
    metrics: Metrics,
    /// Read by calls that are under way.
    calls: RwLock<()>,
}

impl Pipelines {
    /// For consumers with these pools.
    pub(crate) fn new<'a>(
        store: LazyStore,
        patience: Duration,
        metrics: Metrics,
        pools: impl Iterator<Item = &'a str>,
        brokers: Brokers,
    ) -> Self {
        let (keys, results) = (Keys::default(), Results::default());
        let pools = ConsumerPools::new(pools);
        let registry = Registry::new(registry::Parts {
            store: store.clone(),
            keys: keys.clone(),
            results: results.clone(),
            pools: pools.clone(),
            patience,
            metrics: metrics.clone(),
            brokers,
        });
        Self(Arc::new(Shared {
            admission: Admission::new(
                registry.clone(),
                pools.clone(),
                keys.clone(),
                results.clone(),
                metrics.clone(),
            ),
            dispatch: Dispatch::new(registry.clone(), pools),
            registry,
            keys,
            results,
            dead: DeadLetters::new(store.clone()),
            batches: Batches::new(store),
            recent: Recent::default(),
            metrics,
            calls: RwLock::default(),
        }))
    }

    /// Somebody's call is under way until this is dropped. It may push, and needs the store.
    pub(crate) async fn call(&self) -> RwLockReadGuard<'_, ()> {
        self.0.calls.read().await
    }

    /// Returns when all calls that have begun are over.
    pub(crate) async fn calls_end(&self) {
        drop(self.0.calls.write().await);
    }

    /// Which there are.
    pub(crate) fn registry(&self) -> &Registry {
        &self.0.registry
    }

    /// Which jobs are let in.
    pub(crate) fn admission(&self) -> &Admission {
        &self.0.admission
    }

    /// Which job is next.
    pub(crate) fn dispatch(&self) -> &Dispatch {
        &self.0.dispatch
    }

    /// Adds a pipeline, which gives out no jobs before it is resumed.
    pub(crate) async fn declare(
        &self,
        name: &str,
        settings: &PipelineSettings,
    ) -> Result<(), PipelineError> {
        let declared = self.0.registry.declare(name, settings).await;
        self.0.admission.can_expire(); // one of those that it has kept
        declared
    }

    /// Adds one whose name was announced.
    pub(crate) async fn open_announced(
        &self,
        name: &str,
        settings: &PipelineSettings,
    ) -> Result<(), PipelineError> {
        let opened = self.0.registry.open_announced(name, settings).await;
        self.0.admission.can_expire(); // one of those that it has kept
        opened
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        &self.0.metrics
    }

    pub(crate) fn keys(&self) -> &Keys {
        &self.0.keys
    }

    pub(crate) fn results(&self) -> &Results {
        &self.0.results
    }

    pub(crate) fn recent(&self) -> &Recent {
        &self.0.recent
    }

    pub(crate) fn dead(&self) -> &DeadLetters {
        &self.0.dead
    }

    /// How many there are of each pipeline.
    pub(crate) async fn dead_letters(&self) -> Result<BTreeMap<String, u64>, DeadError> {
        self.0.dead.counts().await
    }

    /// A job does not run any more.
    pub(crate) fn ended(&self, pipeline: &Pipeline, job: &Job, extras: &JobOptions, ended: Ended) {
        pipeline.count_ended();
        if let Some(key) = &extras.unique {
            self.0.keys.ended(&scoped(&pipeline.name, key), &job.id);
        }
        if extras.wants_result {
            self.0.results.keep(&pipeline.name, &job.id, ended);
        }
    }

    /// The same for the status endpoint and RoadRunner's `informer`.
    pub(crate) async fn reports(&self) -> Vec<QueueReport> {
        // Without a store there are none.
        let dead = self.dead_letters().await.unwrap_or_default();
        let mut reports = Vec::new();
        for (pipeline, stat) in self.0.registry.stats().await {
            let error = match &stat {
                Err(error) => with_causes(error),
                Ok(_) => pipeline.driver.health().err().unwrap_or_default(),
            };
            let stat = stat.unwrap_or_default();
            reports.push(QueueReport {
                pipeline: pipeline.name.clone(),
                driver: pipeline.driver_name.to_owned(),
                queue: pipeline.queue().to_owned(),
                priority: pipeline.priority,
                active: stat.active,
                delayed: stat.delayed,
                reserved: stat.reserved,
                oldest: stat.oldest,
                dead: dead.get(&pipeline.name).copied().unwrap_or(0),
                ready: pipeline.consumes(),
                error,
            });
        }
        reports
    }

    /// Takes a pipeline away. Jobs in memory go with it; those in a store or at a broker stay
    /// there. A job that a worker has stays its worker's, and the driver is closed when the last of
    /// them has ended.
    pub(crate) async fn destroy(&self, name: &str) -> Result<(), PipelineError> {
        let pipeline = self.0.registry.take_out(name)?;
        pipeline.consume(false);
        tracing::info!(target: "jobs", pipeline = name, "the pipeline is destroyed");
        self.end_lost(&pipeline).await?;
        self.close_if_left(&pipeline).await
    }

    /// A job has left its worker and is settled.
    pub(crate) async fn free(&self, place: Occupied) {
        let pipeline = place.pipeline().clone();
        drop(place);
        if pipeline.leaves() {
            let closed = self.close_if_left(&pipeline).await;
            if let Err(error) = closed {
                let (pipeline, why) = (&pipeline.name, with_causes(&error));
                tracing::warn!(target: "jobs", pipeline, "a destroyed pipeline can't be left in order: {why}");
            }
        }
    }

    /// Closes a pipeline that is destroyed, unless workers have jobs of it.
    async fn close_if_left(&self, pipeline: &Arc<Pipeline>) -> Result<(), PipelineError> {
        if !self.0.registry.has_left(pipeline) {
            return Ok(());
        }
        // Those that workers did not bring to an end.
        self.end_lost(pipeline).await?;
        let closed = timeout(self.0.registry.patience(), pipeline.driver.close()).await;
        closed.map_err(|_| pipeline.late())
    }

    /// Ends the jobs of a destroyed pipeline that nobody can have any more.
    async fn end_lost(&self, pipeline: &Pipeline) -> Result<(), PipelineError> {
        if pipeline.is_in_memory() {
            self.remove(pipeline, None, Dropped::Destroyed).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
