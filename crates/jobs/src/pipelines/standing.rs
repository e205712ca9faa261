//! Where a job is that somebody asks for by its ID.

use std::collections::{BTreeMap, BTreeSet};

use pronghorn_plugin_api::rpc::Caller;
use pronghorn_queue::options::JobOptions;
use pronghorn_queue::{Job, Listed};
use serde::Serialize;
use tokio::time::timeout;

use super::{Pipeline, Pipelines};
use crate::results::Visible;

/// Jobs of a pipeline that are looked at for who waits: each question costs so much at most.
const MOST_LOOKED_AT: usize = 1000;

/// Where a job is that is not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Standing {
    Running,
    /// For a worker.
    Waiting,
    /// For its time.
    Delayed,
    /// For the jobs of its batch.
    Batch,
    /// Nobody hears of its end.
    NoResult,
    /// It is a dead letter.
    Dead,
    /// Nobody here knows of it, and a broker may have it.
    Broker,
    /// It is not here, or not any more.
    Unknown,
}

/// What came of looking for a job in a pipeline.
pub(super) enum Search {
    Found(Box<Listed>),
    NotThere,
    /// The pipeline does not show all of its jobs, or has too many.
    Open,
}

impl Pipelines {
    /// The pipelines of a caller: for a worker, those that its pool pushes to or runs.
    pub(crate) fn seen_by(&self, caller: &Caller) -> Visible {
        let borders = caller.borders();
        let Some((borders, given)) = borders.and_then(|it| Some((it, it.pipelines.as_ref()?)))
        else {
            return Visible::default();
        };
        let all = self.0.registry.all().into_iter();
        // Pools of jobs have names of their own among all pools; one without a name is `jobs`.
        let own = all.filter(|pipeline| {
            borders.pool == "jobs" || borders.pool.strip_prefix("jobs-") == Some(&pipeline.pool)
        });
        let own = own.map(|pipeline| pipeline.name.clone());
        Visible::of(own.chain(given.iter().cloned()).collect())
    }

    /// Whether a worker has this job, and its result is not kept.
    pub(crate) fn runs_unheard(&self, visible: &Visible, id: &str) -> bool {
        let running = self.keys().running_in(visible, id);
        running.is_some_and(|it| !JobOptions::of(&it.job.headers).wants_result)
    }

    /// Whether a job is nowhere, so that nobody who waits for it hears of its end: it is not known
    /// that it was pushed with a wish for its result, and it is in no pipeline.
    pub(crate) async fn is_nowhere(&self, visible: &Visible, id: &str) -> bool {
        let is_unknown = self.results().pipelines_of(visible, id).is_empty();
        let nowhere = Some((Standing::Unknown, String::new()));
        is_unknown && self.standing(visible, id).await == nowhere
    }

    /// Where the job of an ID is, and in which pipeline. None: that can't be told.
    pub(crate) async fn standing(&self, visible: &Visible, id: &str) -> Option<(Standing, String)> {
        let of = |job: &Job, standing| {
            if JobOptions::of(&job.headers).wants_result {
                standing
            } else {
                Standing::NoResult
            }
        };
        if let Some(running) = self.keys().running_in(visible, id) {
            return Some((of(&running.job, Standing::Running), running.pipeline));
        }
        // The process before, or the one after, may have it.
        let mut is_sure = self.0.batches.is_alone() && !self.0.registry.waits();
        let mut has_brokers = false;
        let pipelines = self.0.registry.all().into_iter();
        for pipeline in pipelines.filter(|it| visible.has(&it.name)) {
            match self.look_for(&pipeline, id, MOST_LOOKED_AT).await {
                Search::Found(listed) => {
                    let is_delayed = !listed.job.delay.is_zero();
                    let standing = if is_delayed {
                        Standing::Delayed
                    } else {
                        Standing::Waiting
                    };
                    return Some((of(&listed.job, standing), pipeline.name.clone()));
                }
                Search::NotThere => {}
                Search::Open if !pipeline.is_ours() => has_brokers = true,
                Search::Open => is_sure = false,
            }
        }
        match self.0.batches.pipeline_of_last(id).await {
            Ok(Some(pipeline)) if visible.has(&pipeline) => {
                return Some((Standing::Batch, String::new()));
            }
            Ok(_) => {}
            // What can't be read is not known.
            Err(_) => is_sure = false,
        }
        match self.dead().pipelines_of(id).await {
            Ok(all) => {
                if let Some(pipeline) = all.into_iter().find(|it| visible.has(it)) {
                    return Some((Standing::Dead, pipeline));
                }
            }
            Err(_) => is_sure = false,
        }
        let nowhere_here = if has_brokers {
            Standing::Broker
        } else {
            Standing::Unknown
        };
        is_sure.then(|| (nowhere_here, String::new()))
    }

    /// The pipelines that have, had or will have a job of this ID, whose result somebody may mean,
    /// as far as is known: of those that somebody may see.
    pub(crate) async fn with_result(&self, visible: &Visible, id: &str) -> BTreeSet<String> {
        let mut all = self.results().pipelines_of(visible, id);
        // An error leaves out what can't be read.
        let dead = self.dead().pipelines_of(id).await.unwrap_or_default();
        let last = self
            .0
            .batches
            .pipeline_of_last(id)
            .await
            .unwrap_or_default();
        all.extend(dead.into_iter().chain(last).filter(|it| visible.has(it)));
        all
    }

    /// The jobs of an ID in those pipelines that are this server's own, or in the one of this name:
    /// the first one of each.
    pub(crate) async fn find(&self, of: Option<&str>, id: &str) -> BTreeMap<String, Listed> {
        let registry = &self.0.registry;
        let all = match of {
            Some(name) => registry.all_of(name).await.unwrap_or_default(),
            None => {
                let left_behind = registry.all_left_behind().await.unwrap_or_default();
                registry.all().into_iter().chain(left_behind).collect()
            }
        };
        let mut found = BTreeMap::new();
        for pipeline in all {
            if let Search::Found(listed) = self.look_for(&pipeline, id, usize::MAX).await {
                found.entry(pipeline.name.clone()).or_insert(*listed);
            }
        }
        found
    }

    /// The pipelines that have a job of each of these IDs, as far as this server can tell: it
    /// waits, runs, or comes when those of its batch have ended. All lists are read once.
    pub(crate) async fn pipelines_of(&self, ids: &[String]) -> BTreeMap<String, BTreeSet<String>> {
        let registry = &self.0.registry;
        let left_behind = registry.all_left_behind().await.unwrap_or_default();
        let all: Vec<_> = registry.all().into_iter().chain(left_behind).collect();
        let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        if all.len() < 2 {
            return found; // no two have the same
        }
        for id in ids {
            // An error leaves out what can't be read.
            let last = self.0.batches.pipeline_of_last(id).await;
            let running = self.keys().all_running(id).into_keys();
            let of = running.chain(last.unwrap_or_default());
            found.insert(id.clone(), of.collect());
        }
        for pipeline in all.iter().filter(|it| it.is_ours()) {
            let mut after = None;
            loop {
                let part = timeout(registry.patience(), pipeline.driver.list(after)).await;
                let Ok(Ok(part)) = part else { break };
                for listed in part.jobs {
                    if let Some(of) = found.get_mut(&listed.job.id) {
                        of.insert(pipeline.name.clone());
                    }
                }
                after = part.next;
                if after.is_none() {
                    break;
                }
            }
        }
        found
    }

    /// Looks at the first jobs of a pipeline, up to `most`.
    pub(super) async fn look_for(&self, pipeline: &Pipeline, id: &str, most: usize) -> Search {
        if !pipeline.is_ours() {
            return Search::Open;
        }
        let (mut after, mut seen) = (None, 0);
        loop {
            let part = timeout(self.0.registry.patience(), pipeline.driver.list(after)).await;
            let Ok(Ok(part)) = part else {
                return Search::Open;
            };
            seen += part.jobs.len();
            if let Some(listed) = part.jobs.into_iter().find(|it| it.job.id == id) {
                return Search::Found(Box::new(listed));
            }
            after = part.next;
            if after.is_none() {
                return Search::NotThere;
            }
            if seen >= most {
                return Search::Open;
            }
        }
    }
}
