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

    /// A job that says of itself that it is of a batch would count as one of another pipeline's.
    fn expect_no_batch(&self, operation: &str, jobs: &[(String, Job)]) -> Result<(), Failure> {
        let is_kept_in = self
            .caller
            .borders()
            .is_some_and(|it| it.pipelines.is_some());
        match jobs
            .iter()
            .find(|(_, job)| job.headers.contains_key(options::BATCH))
        {
            Some((_, job)) if is_kept_in => Err(Failure::new(format!(
                "{operation}the job {} has the header `{}`, which a pool with `pipelines` does not \
                 set itself (hint: `jobs.Batch` makes a batch)",
                job.id.escape_debug(),
                options::BATCH
            ))),
            _ => Ok(()),
        }
    }
}

/// The pipelines of these jobs.
fn names(jobs: &[(String, Job)]) -> impl Iterator<Item = &str> {
    jobs.iter().map(|(pipeline, _)| &**pipeline)
}

async fn push(pushing: Pushing, jobs: Result<Pushed, Failure>) -> Result<Kept, Failure> {
    const OPERATION: &str = "rpc_push:\n\tjobs_plugin_push: ";
    let jobs = jobs?;
    pushing.expect(OPERATION, names(&jobs))?;
    pushing.expect_no_batch(OPERATION, &jobs)?;
    let _call = pushing.pipelines.call().await;
    let pushed = pushing.pipelines.admission().push(jobs).await;
    let duplicates = pushed.map_err(|error| chain(OPERATION, &error))?;
    Ok(Kept { duplicates })
}

async fn batch(pushing: Pushing, request: BatchRequest) -> Result<Kept, Failure> {
    const OPERATION: &str = "rpc_batch: ";
    let (jobs, last) = request.jobs()?;
    pushing.expect(OPERATION, names(&jobs).chain([&*last.pipeline]))?;
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
