//! `jobs.Push` and its companions, over RPC.

mod by_clock;
mod moving;
mod ours;
mod waiting;

use pronghorn_base::with_causes;
use std::collections::BTreeMap;

use pronghorn_plugin_api::rpc::{Caller, Failure, Methods};
use pronghorn_queue::{Job, options};

use crate::messages::{
    BatchRequest, DeclareRequest, Empty, Kept, PipelineNames, PipelineStat, PushBatchRequest,
    PushRequest, Pushed, Stats,
};
use crate::pipelines::{PipelineError, Pipelines};
use crate::schedules::Schedules;
use crate::settings::{MOST_PIPELINES, PipelineSettings};

pub(crate) use self::moving::{hand_on, hand_on_waiting};

pub(crate) fn add(methods: &Methods, pipelines: &Pipelines, schedules: &Schedules) {
    by_clock::add(methods, schedules);
    let pushed_to = pipelines.clone();
    let pushing = methods.service_by_caller("jobs", move |caller| Pushing {
        pipelines: pushed_to.clone(),
        caller: caller.clone(),
    });
    pushing.add_on_any_thread("Push", async |pushing, request: PushRequest| {
        push(pushing, request.jobs()).await
    });
    pushing.add_on_any_thread("PushBatch", async |pushing, request: PushBatchRequest| {
        push(pushing, request.jobs()).await
    });
    pushing.add("Batch", async |pushing, request: BatchRequest| {
        batch(pushing, request).await
    });
    pushing.add("Cancel", async |pushing: Pushing, named| {
        let pool = pushing.caller.borders().map(|it| it.pool.clone());
        ours::cancel(pushing.pipelines, &pool.unwrap_or_default(), named).await
    });
    waiting::add(methods, pipelines);
    let methods = methods.service("jobs", pipelines.clone());
    methods.add(
        "Pause",
        async |pipelines: Pipelines, names: PipelineNames| {
            each(&names, |name| pipelines.dispatch().pause(name))
        },
    );
    methods.add(
        "Resume",
        async |pipelines: Pipelines, names: PipelineNames| {
            each(&names, |name| {
                pipelines.dispatch().resume(name)?;
                tracing::info!(target: "jobs", pipeline = name, "the pipeline is resumed");
                Ok(())
            })
        },
    );
    methods.add("Destroy", destroy);
    methods.add("List", list);
    methods.add("Declare", declare);
    methods.add("Stat", stat);
    ours::add(&methods);
}

/// RoadRunner's chain of operations in front of a text.
fn chain(operations: &str, error: &PipelineError) -> Failure {
    Failure::new(format!("{operations}{}", with_causes(error)))
}

/// Pipelines, and who pushes to them.
#[derive(Clone)]
struct Pushing {
    pipelines: Pipelines,
    caller: Caller,
}

impl Pushing {
    /// For a worker, a pipeline that its pool may not push to is not there.
    fn expect<'a>(
        &self,
        operation: &str,
        mut pipelines: impl Iterator<Item = &'a str>,
    ) -> Result<(), Failure> {
        let Some(borders) = self.caller.borders() else {
            return Ok(());
        };
        let other = pipelines.find(|pipeline| !borders.has_pipeline(pipeline));
        other.map_or(Ok(()), |pipeline| {
            let pool = &borders.pool;
            Err(Failure::new(format!(
                "{operation}no such pipeline, requested: {pipeline} (hint: `pipelines` of the pool \
                 `{pool}` lists those that it may push to)"
            )))
        })
    }

    /// Jobs of a pool with `pipelines` do not say of themselves that they are of a batch, which may
    /// be another pipeline's, nor which other pool runs them.
    fn expect_plain<'a>(
        &self,
        operation: &str,
        jobs: impl Iterator<Item = (&'a str, &'a Job)>,
    ) -> Result<(), Failure> {
        let borders = self.caller.borders();
        let Some(borders) = borders.filter(|it| it.pipelines.is_some()) else {
            return Ok(());
        };
        for (pipeline, job) in jobs {
            let pipeline = self.pipelines.registry().get(pipeline).ok();
            let is_elsewhere = |pool: &str| pipeline.as_ref().is_none_or(|it| it.pool != pool);
            let (header, hint) = if job.headers.contains_key(options::BATCH) {
                (options::BATCH, "`jobs.Batch` makes a batch")
            } else if job.pool().is_some_and(is_elsewhere) {
                ("pool", "the pipeline says which pool runs its jobs")
            } else {
                continue;
            };
            return Err(Failure::new(format!(
                "{operation}the job {} has the header `{header}`, which the pool `{}` may not set, \
                 as it has `pipelines` (hint: {hint})",
                job.id.escape_debug(),
                borders.pool
            )));
        }
        Ok(())
    }
}

/// The pipelines of these jobs.
fn names(jobs: &[(String, Job)]) -> impl Iterator<Item = &str> {
    jobs.iter().map(|(pipeline, _)| &**pipeline)
}

fn each_of(jobs: &[(String, Job)]) -> impl Iterator<Item = (&str, &Job)> {
    jobs.iter().map(|(pipeline, job)| (&**pipeline, job))
}

async fn push(pushing: Pushing, jobs: Result<Pushed, Failure>) -> Result<Kept, Failure> {
    const OPERATION: &str = "rpc_push:\n\tjobs_plugin_push: ";
    let jobs = jobs?;
    pushing.expect(OPERATION, names(&jobs))?;
    pushing.expect_plain(OPERATION, each_of(&jobs))?;
    let _call = pushing.pipelines.call().await;
    let parts = pushing.pipelines.parts_in_memory(&jobs);
    let pushed = pushing.pipelines.admission().push(jobs).await;
    let duplicates = pushed.map_err(|error| chain(OPERATION, &error))?;
    pushing.pipelines.hold_pushed(parts).await;
    Ok(Kept { duplicates })
}

async fn batch(pushing: Pushing, request: BatchRequest) -> Result<Kept, Failure> {
    const OPERATION: &str = "rpc_batch: ";
    let (jobs, last) = request.jobs()?;
    pushing.expect(OPERATION, names(&jobs).chain([&*last.pipeline]))?;
    let all = each_of(&jobs).chain([(&*last.pipeline, &last.job)]);
    pushing.expect_plain(OPERATION, all)?;
    let _call = pushing.pipelines.call().await;
    let pushed = pushing.pipelines.push_batch(jobs, last).await;
    let duplicates = pushed.map_err(|error| chain(OPERATION, &error))?;
    Ok(Kept { duplicates })
}

/// Each pipeline of a call is named once; there are not more of them.
fn check(names: &PipelineNames) -> Result<(), Failure> {
    let count = names.pipelines.len();
    if count > MOST_PIPELINES {
        return Err(Failure::new(format!(
            "{count} pipelines; at most {MOST_PIPELINES} are taken at a time"
        )));
    }
    Ok(())
}

fn each(
    names: &PipelineNames,
    step: impl Fn(&str) -> Result<(), PipelineError>,
) -> Result<Empty, Failure> {
    check(names)?;
    for name in &names.pipelines {
        step(name).map_err(|error| chain("", &error))?;
    }
    Ok(Empty {})
}

async fn destroy(pipelines: Pipelines, names: PipelineNames) -> Result<PipelineNames, Failure> {
    check(&names)?;
    let mut destroyed = Vec::new();
    for name in names.pipelines {
        let gone = pipelines.destroy(&name).await;
        gone.map_err(|error| chain("rpc_destroy_pipeline:\n\tjobs_plugin_destroy: ", &error))?;
        destroyed.push(name);
    }
    Ok(PipelineNames {
        pipelines: destroyed,
    })
}

async fn list(pipelines: Pipelines, _: Empty) -> Result<PipelineNames, Failure> {
    let names = pipelines
        .registry()
        .all()
        .into_iter()
        .map(|it| it.name.clone());
    Ok(PipelineNames {
        pipelines: names.collect(),
    })
}

async fn declare(pipelines: Pipelines, request: DeclareRequest) -> Result<Empty, Failure> {
    const OPERATION: &str = "rpc_declare_pipeline: ";
    let map: BTreeMap<String, String> = request.pipeline;
    let (name, settings) = PipelineSettings::declared(&map, pipelines.registry().brokers())
        .map_err(|wrong| Failure::new(format!("{OPERATION}{wrong}")))?;
    let declared = pipelines.declare(name, &settings).await;
    declared.map_err(|error| chain(OPERATION, &error))?;
    let driver = settings.driver.name();
    tracing::info!(target: "jobs", pipeline = name, driver, "the pipeline is declared");
    Ok(Empty {})
}

async fn stat(pipelines: Pipelines, _: Empty) -> Result<Stats, Failure> {
    let mut stats = Vec::new();
    for (pipeline, stat) in pipelines.registry().stats().await {
        let stat = stat.map_err(|error| chain("rpc_stats: ", &error))?;
        let count = |jobs: u64| i64::try_from(jobs).unwrap_or(i64::MAX);
        stats.push(PipelineStat {
            pipeline: pipeline.name.clone(),
            driver: pipeline.driver_name.to_owned(),
            queue: pipeline.queue().to_owned(),
            active: count(stat.active),
            delayed: count(stat.delayed),
            reserved: count(stat.reserved),
            ready: pipeline.consumes(),
            priority: u64::try_from(pipeline.priority).unwrap_or(0),
        });
    }
    Ok(Stats { stats })
}

#[cfg(test)]
mod tests;
