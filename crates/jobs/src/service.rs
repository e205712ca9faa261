//! The service `jobs`.

use std::sync::Arc;
use std::time::Duration;

use pronghorn_base::now_ms;
use pronghorn_brokers::Brokers;
use pronghorn_config::{Severity, Table};
use pronghorn_plugin_api::rpc::Forward;
use pronghorn_plugin_api::{
    BoxFuture, ConfiguredPool, Context, Finding, Handover, Lack, Machine, Reload, Running, Service,
    StartError, Stopped,
};
use pronghorn_pool::{Spool, Warmup};
use pronghorn_queue::is_lent;
use pronghorn_store::{LazyStore, OpenError};
use pronghorn_trace::Tracer;
use pronghorn_wire::Kind;
use pronghorn_workers::{Io, PoolSet, PoolSpec, Pools, StartedPools};
use thiserror::Error;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::clock::{ScheduleSettings, What};
use crate::consumer::{Consumer, Handoffs};
use crate::methods;
use crate::metrics::Metrics;
use crate::pipelines::{PipelineError, Pipelines};
use crate::schedules::{Schedules, Surroundings};
use crate::settings::{JobsPool, JobsSettings};
use crate::traced::Traced;

/// The name of the service, and of its only pool.
const JOBS: &str = "jobs";
/// What workers get that have a job when its time at the end is over. Those without one need no
/// more to end in order.
const WORKERS_AFTER_CUT: Duration = Duration::from_secs(2);
/// What brokers may take to have back what was taken from them.
const CLOSING: Duration = Duration::from_secs(2);
/// Calls that had begun when later ones went to another process have reached the store by then.
const LAST_CALLS: Duration = Duration::from_millis(20);
/// What jobs in memory may take to go to another process: a million of them.
const MOVING: Duration = Duration::from_secs(30);
/// A run of a schedule that has begun is with its broker and noted by then.
const LAST_RUNS: Duration = Duration::from_secs(2);
/// The server asks this often whether a process before still has jobs, or is about to hand over.
const UNTIL_NEXT_TRY: Duration = Duration::from_millis(50);

/// Queues of jobs before their start.
#[derive(Debug)]
pub struct JobsService {
    pub settings: JobsSettings,
}

struct Jobs {
    settings: JobsSettings,
    /// Pipelines in the store are opened when the process before has left it.
    waits: bool,
    store: LazyStore,
    opener: JoinSet<()>,
    pipelines: Pipelines,
    spool: Arc<Spool>,
    all_pools: Pools,
    pools: PoolSet,
    tasks: JoinSet<()>,
    io: Io,
    schedules: Schedules,
    /// Pushes jobs by the clock and ends those that expire, once this process is responsible.
    clock: JoinSet<()>,
    tracer: Tracer,
    /// They begin when this process is responsible, on threads of their pools; and who ends expired
    /// jobs.
    consumers: JoinSet<()>,
    /// Nothing more is taken.
    end: CancellationToken,
    /// Dropped when the workers have ended.
    _stopped: DropGuard,
}

/// A pipeline of the configuration could not be opened.
#[derive(Debug, Error)]
#[error("pipeline `{pipeline}` can't be opened")]
struct NotOpened {
    pipeline: String,
    source: PipelineError,
}

impl JobsService {
    /// `t` is the whole configuration. None without the section `jobs`.
    pub fn read(t: &mut Table<'_>) -> Option<Self> {
        let brokers = Brokers::read(t);
        let sentence = "Job queues. Without this section, there are none.";
        let settings =
            t.optional_section_with(JOBS, sentence, |t| JobsSettings::read(t, brokers))?;
        Some(Self { settings })
    }
}

impl Service for JobsService {
    fn pools(&self) -> Vec<ConfiguredPool<'_>> {
        let pools = self.settings.pools.iter().map(|pool| ConfiguredPool {
            section: if pool.full_name == JOBS {
                "jobs.pool".to_owned()
            } else {
                format!("jobs.pools.{}", pool.name)
            },
            name: &pool.full_name,
            settings: &pool.settings,
        });
        pools.collect()
    }

    fn look(&self, machine: &Machine<'_>) -> Vec<Finding> {
        let missing = |(name, schedule): &(String, ScheduleSettings)| {
            let What::Command { command, .. } = &schedule.what else {
                return None;
            };
            let Lack { message, hint, .. } = machine.lacks(command, machine.user())?;
            let key = format!("{JOBS}.schedules.{name}.command");
            Some(Finding::doubtful(
                key,
                format!("{message}: its runs will fail"),
                hint,
            ))
        };
        let schedules = self.settings.schedules.iter();
        let never = schedules.clone().filter_map(|(name, schedule)| {
            let is_due = schedule.moments.after(now_ms()).is_some();
            (!is_due).then(|| Finding {
                severity: Severity::Warning,
                key: format!("{JOBS}.schedules.{name}.cron"),
                message: format!("is never due: no date fits `{}`", schedule.moments),
                hint: "the fields are minute, hour, day of the month, month, day of the week; the \
                       last day of each month is `L`"
                    .to_owned(),
            })
        });
        never.chain(schedules.filter_map(missing)).collect()
    }

    /// Commands of schedules, where it has no pool.
    fn starts_processes(&self) -> bool {
        true
    }

    fn has_unnamed_user(&self) -> bool {
        let mut schedules = self.settings.schedules.iter();
        schedules.any(|(_, schedule)| matches!(schedule.what, What::Command { .. }))
    }

    fn start(
        self: Box<Self>,
        context: Context,
    ) -> BoxFuture<'static, Result<Box<dyn Running>, StartError>> {
        Box::pin(async move {
            let running = start(self.settings, &context).await?;
            Ok(Box::new(running) as Box<dyn Running>)
        })
    }
}

/// Pipelines come before the workers, which may push while they boot.
async fn start(settings: JobsSettings, context: &Context) -> Result<Jobs, StartError> {
    let workers = context.workers.clone().expect("a service with workers");
    let metrics = Metrics::new(&context.metrics);
    let pools = settings.pools.iter().map(|pool| &*pool.name);
    let pipelines = Pipelines::new(
        context.store.clone(),
        settings.timeout,
        metrics,
        pools,
        settings.brokers.clone(),
    );
    if !settings.schedules.is_empty() {
        refuse_second(&context.store).await?;
    }
    let waits = is_with_predecessor(&settings, &context.store).await;
    for (name, pipeline) in &settings.pipelines {
        if waits && pipeline.is_stored() {
            pipelines.registry().announce(name);
            continue;
        }
        let opened = pipelines.declare(name, pipeline).await;
        opened.map_err(|source| NotOpened {
            pipeline: name.clone(),
            source,
        })?;
    }
    if !waits {
        pipelines.registry().warn_of_left_behind().await;
    }
    let schedules = settings.schedules.clone();
    let user = context.users.of_server().map(|(_, user)| user.clone());
    let surroundings = Surroundings {
        spawner: workers.pools.resources().spawner.clone(),
        folder: context.folder.clone(),
        variables: workers.pools.command_variables(user.as_ref()),
        user,
    };
    let store = context.store.clone();
    let schedules = Schedules::new(schedules, pipelines.clone(), store, surroundings);
    methods::add(&context.rpc, &pipelines, &schedules);
    let (pages, rpc) = (&context.pages, &context.rpc);
    let schema = include_str!("pages/jobs.json");
    pages.add_method("jobs", schema, rpc, "jobs.Overview");
    let schema = include_str!("pages/schedules.json");
    pages.add_method("schedules", schema, rpc, "schedules.List");
    let shown = pipelines.clone();
    let reports = move || -> BoxFuture<'static, _> {
        let pipelines = shown.clone();
        Box::pin(async move { pipelines.reports().await })
    };
    context.health.queues().answer_with(reports);
    let owner = context.users.of_server().map(|(_, user)| user.clone());
    let spool = Arc::new(Spool::open(&std::env::temp_dir(), owner)?);
    let StartedPools { pools, tasks } =
        workers.pools.start(JOBS, &specs(&settings, &spool)).await?;
    let end = context.shutdown.child_token();
    let (connected, known) = (pipelines.clone(), schedules.clone());
    let are_connected = move || connected.registry().ready().and_then(|()| known.ready());
    context
        .readiness
        .answer_by_pools(&pools, end.clone(), are_connected);
    let stopped = CancellationToken::new();
    let methods = context.rpc.downgrade();
    let (all, store, stop) = (pipelines.clone(), context.store.share(), stopped.clone());
    context.at_end.add(move |successor| async move {
        if let (Some(successor), Some(methods)) = (&successor, methods.upgrade()) {
            methods.forward(JOBS, successor);
            sleep(LAST_CALLS).await;
            methods::hand_on_waiting(&all, successor, Instant::now() + MOVING).await;
        }
        stop.cancelled().await;
        leave(all, store, successor).await;
    });
    Ok(Jobs {
        settings,
        waits,
        store: context.store.clone(),
        opener: JoinSet::new(),
        pipelines,
        spool,
        all_pools: workers.pools,
        pools,
        tasks,
        io: workers.io,
        tracer: context.tracer.clone(),
        consumers: JoinSet::new(),
        schedules,
        clock: JoinSet::new(),
        end,
        _stopped: stopped.drop_guard(),
    })
}

/// Nobody pushes any more, or somewhere else.
async fn leave(pipelines: Pipelines, store: LazyStore, successor: Option<Forward>) {
    // One that clears a pipeline tells batches of each job. Else their last jobs never come.
    _ = timeout(MOVING, pipelines.calls_end()).await;
    if successor.is_none() {
        pipelines.registry().say_what_is_lost().await;
    } else {
        _ = timeout(CLOSING, pipelines.give_away_parts()).await;
    }
    // A broker that is away has them already, or gives them out again in time.
    _ = timeout(CLOSING, pipelines.registry().close()).await;
    store.close().await;
    if let Some(successor) = successor {
        methods::hand_on(&pipelines, &successor, Instant::now() + MOVING).await;
    }
}

/// Schedules are in the store whatever drivers pipelines have. Those of a server that does not get
/// it would never run.
async fn refuse_second(store: &LazyStore) -> Result<(), OpenError> {
    match store.claim_now().await {
        Err(error) if !error.is_of_predecessor() => Err(error),
        _ => Ok(()),
    }
}

/// Whether the store is still that of the process that has started this one.
async fn is_with_predecessor(settings: &JobsSettings, store: &LazyStore) -> bool {
    if !settings.pipelines.iter().any(|(_, it)| it.is_stored()) {
        return false;
    }
    let opened = store.get_now().await;
    opened.is_err_and(|error| error.is_of_predecessor())
}

/// Opens the pipelines that had to wait, and resumes them.
async fn open_at_last(pipelines: Pipelines, settings: JobsSettings, store: LazyStore) {
    // One that can't be opened does not keep the others back.
    let mut opening = JoinSet::new();
    for (name, pipeline) in settings
        .pipelines
        .into_iter()
        .filter(|(_, it)| it.is_stored())
    {
        let consumes = settings.consume.contains(&name);
        let (pipelines, store) = (pipelines.clone(), store.clone());
        opening.spawn(async move {
            let mut has_failed = false;
            let open = || async {
                // The pipeline tells pushes what is wrong with the store.
                _ = store.get_at_last().await;
                pipelines.open_announced(&name, &pipeline).await
            };
            let failed = |why: &str| {
                has_failed = true;
                tracing::error!(target: "jobs", pipeline = name, "the pipeline can't be opened, and is tried again: {why}");
            };
            store.until_done(open, failed).await;
            if has_failed {
                tracing::info!(target: "jobs", pipeline = name, "the pipeline is open");
            }
            if consumes {
                // It was opened just now.
                _ = pipelines.dispatch().resume(&name);
            }
        });
    }
    opening.join_all().await;
    pipelines.registry().warn_of_left_behind().await;
    if let Ok(store) = store.get().await {
        pipelines.follow_lent_keys(&store).await;
    }
}

fn specs<'a>(settings: &'a JobsSettings, spool: &Arc<Spool>) -> Vec<PoolSpec<'a>> {
    let spec = |pool: &'a JobsPool| PoolSpec {
        name: &pool.full_name,
        settings: &pool.settings,
        kind: Kind::Job,
        warmup: Warmup::default(),
        spool: spool.clone(),
    };
    settings.pools.iter().map(spec).collect()
}

impl Jobs {
    /// A pause ends with this process, which may surprise who has paused a pipeline for a reason.
    fn warn_of_paused(&self) {
        for pipeline in self.pipelines.registry().all() {
            if !pipeline.consumes() && self.settings.consume.contains(&pipeline.name) {
                tracing::warn!(target: "jobs", pipeline = pipeline.name, "the pipeline was paused, and the next process takes its jobs: `pronghorn jobs pause` pauses it again");
            }
        }
    }
}

impl Running for Jobs {
    fn open(&mut self) -> Result<(), StartError> {
        if self.waits {
            let (pipelines, settings) = (self.pipelines.clone(), self.settings.clone());
            self.opener
                .spawn(open_at_last(pipelines, settings, self.store.clone()));
        }
        if !self.waits && self.store.others().are_there {
            let (pipelines, store) = (self.pipelines.clone(), self.store.clone());
            self.opener.spawn(async move {
                if let Ok(store) = store.get().await {
                    pipelines.follow_lent_keys(&store).await;
                }
            });
        }
        let later = |name: &String| {
            let mut pipelines = self.settings.pipelines.iter();
            self.waits && pipelines.any(|(known, it)| known == name && it.is_stored())
        };
        for name in self.settings.consume.iter().filter(|name| !later(name)) {
            // One of another driver is not there yet, as `check` says.
            if self.pipelines.dispatch().resume(name).is_err() {
                tracing::warn!(target: "jobs", pipeline = name, "there is no such pipeline to consume");
            }
        }
        let jobs_may_end = self.pipelines.results().jobs_may_end();
        let names = self.settings.pools.iter().map(|pool| &*pool.name);
        let (handoffs, inboxes) = Handoffs::between(names);
        // Calls take the lock of their pool, which the control thread does not.
        let threads = self.io.threads().iter().cycle();
        for ((of, inbox), thread) in self.settings.pools.iter().zip(inboxes).zip(threads) {
            let pool = self.pools.get(&of.full_name).expect("it was started");
            let workers = pool.pool().clone();
            let count = move || workers.workers();
            self.pipelines.dispatch().count_workers(&of.name, count);
            let consumer = Consumer::new(
                self.pipelines.clone(),
                &of.name,
                (handoffs.clone(), inbox),
                Traced {
                    runners: pool.pool().clone(),
                    recorder: self.tracer.recorder().cloned(),
                },
                self.settings.num_pollers,
            );
            let work = consumer.work(self.end.clone());
            let jobs_may_end = jobs_may_end.clone();
            let work = async move {
                work.await;
                drop(jobs_may_end);
            };
            self.consumers.spawn_on(work, &thread.runtime);
        }
        // Without a pool as well.
        let nothing_begins = self
            .pipelines
            .dispatch()
            .nothing_begins()
            .clone()
            .drop_guard();
        let end = self.end.clone();
        self.clock.spawn(async move {
            end.cancelled().await;
            drop((jobs_may_end, nothing_begins));
        });
        if !self.schedules.is_empty() {
            let schedules = self.schedules.clone();
            self.consumers
                .spawn(schedules.clone().see_off(self.end.clone()));
            self.clock
                .spawn(schedules.work(self.waits, self.end.clone()));
        }
        // A handover ends what tells the time at once, and waits for these.
        let end_expired = self.pipelines.clone().end_expired(self.end.clone());
        self.consumers.spawn(end_expired);
        let tend_batches = self.pipelines.clone().tend_batches(self.end.clone());
        self.consumers.spawn(tend_batches);
        Ok(())
    }

    fn reload(&mut self, to: Box<dyn Service>) -> BoxFuture<'_, Reload> {
        Box::pin(async move {
            let Some(to) = to.downcast::<JobsService>() else {
                return Reload::NeedsRestart;
            };
            let names = |settings: &JobsSettings| {
                let names = settings.pools.iter().map(|pool| pool.name.clone());
                names.collect::<Vec<_>>()
            };
            if names(&to.settings) != names(&self.settings) {
                return Reload::NeedsRestart;
            }
            let specs = specs(&to.settings, &self.spool);
            if !self.all_pools.change(JOBS, &self.pools, &specs).await {
                return Reload::Failed;
            }
            self.settings.pools = to.settings.pools;
            Reload::Applied
        })
    }

    fn hand_over(&mut self, step: Handover) {
        if step == Handover::Done {
            self.warn_of_paused();
            self.end.cancel();
        }
    }

    fn handed_over(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(end_clock(&mut self.clock))
    }

    fn stop(self: Box<Self>, deadline: Instant) -> BoxFuture<'static, Stopped> {
        Box::pin(stop(*self, deadline))
    }
}

/// Returns when processes before this one have brought to their end all that they had taken, or are
/// gone, or the store is with another process than this one.
async fn lent_jobs_end(store: &LazyStore) {
    while store.follows_others() {
        match store.get_if_there().await {
            None => return,
            Some(Ok(store)) if matches!(is_lent(&store).await, Ok(false)) => return,
            // The process before is about to hand it over.
            Some(_) => sleep(UNTIL_NEXT_TRY).await,
        }
    }
}

/// Runs that begin are written down. Commands end.
async fn end_clock(clock: &mut JoinSet<()>) {
    let ended = async { while clock.join_next().await.is_some() {} };
    _ = timeout(LAST_RUNS, ended).await;
    clock.shutdown().await;
}

/// No job is taken any more, those that run finish within the pool's `destroy_timeout`, then the
/// workers end. What is cut off runs again, from a pipeline that outlives the server. Pipelines
/// take pushes until all services have stopped.
async fn stop(jobs: Jobs, deadline: Instant) -> Stopped {
    let Jobs {
        settings,
        store,
        pipelines,
        spool,
        opener,
        mut clock,
        pools,
        tasks,
        mut consumers,
        end,
        ..
    } = jobs;
    drop(opener);
    end.cancel();
    end_clock(&mut clock).await;
    let pools_of = settings.pools.iter();
    let destroy = pools_of.map(|pool| pool.settings.common.destroy_timeout);
    let cut_at = deadline.min(Instant::now() + destroy.max().unwrap_or_default());
    let ended = async {
        while consumers.join_next().await.is_some() {}
        // The process before settles its jobs through this one, and would lose them.
        lent_jobs_end(&store).await;
    };
    // Whoever is left after that is cut off.
    let is_lost = tokio::select! {
        _ = timeout_at(cut_at, ended) => false,
        () = store.lost() => true,
    };
    let cut_at = if is_lost {
        tracing::warn!(
            target: "jobs",
            "the process that has taken over has ended: what this one has begun is cut off, and runs again"
        );
        Instant::now()
    } else {
        cut_at
    };
    let reserved = pipelines.registry().reserved();
    consumers.shutdown().await;
    // A worker may still be at a job that was cancelled.
    let most = cut_at.saturating_duration_since(Instant::now());
    let most = most.max(WORKERS_AFTER_CUT);
    let left = deadline.saturating_duration_since(Instant::now());
    let killed = pools.stop(left.min(most)).await;
    tasks.join_all().await; // each has done its last order
    // A file that is left there is removed at the next start.
    _ = timeout_at(deadline, spool.settle()).await;
    if reserved == 0 && killed == 0 {
        return Stopped::Clean;
    }
    Stopped::CutOff(format!("{reserved} jobs, {killed} workers"))
}

#[cfg(test)]
mod tests {
    use pronghorn_metrics::Registry;
    use pronghorn_testkit::Directory;

    use super::*;
    use crate::settings::tests::brokers;

    #[tokio::test]
    async fn an_end_waits_for_calls_that_are_under_way() {
        let directory = Directory::new();
        let store = LazyStore::new(directory.join("state"), 1 << 20);
        let (patience, metrics) = (Duration::from_mins(1), Metrics::new(&Registry::default()));
        let pools = ["default"].into_iter();
        let pipelines = Pipelines::new(store.clone(), patience, metrics, pools, brokers());
        let call = pipelines.call().await;
        let left = leave(pipelines.clone(), store, None);
        tokio::pin!(left);
        assert!(timeout(Duration::ZERO, &mut left).await.is_err());
        drop(call);
        left.await;
    }
}
