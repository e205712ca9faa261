//! Which pipelines there are.
//!
//! - `left_behind`: those of which the store has jobs, and that nobody has declared.
//! - `kept_keys`: the keys of jobs that the store has kept.

mod kept_keys;
mod left_behind;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pronghorn_base::{lock, with_causes};
use pronghorn_brokers::{Brokers, Opening};
use pronghorn_queue::{Driver, Memory, OpenPipelines, Part, Stat};
use pronghorn_store::LazyStore;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::keys::Keys;
use crate::metrics::Metrics;
use crate::pipelines::error::{PipelineError, what_there_is};
use crate::pipelines::pipeline::Pipeline;
use crate::pipelines::pools::ConsumerPools;
use crate::results::{MOST_EXPECTED, Results};
use crate::settings::{DriverSettings, MOST_PIPELINES, PipelineSettings};

/// Who looks at all pipelines waits so long for one whose broker is away, which says so itself.
const GLANCE: Duration = Duration::from_secs(2);

/// The pipelines by name, from when they are declared until the last job of one that was destroyed
/// has left its worker. Clones are the same one.
#[derive(Clone)]
pub(crate) struct Registry(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    store: LazyStore,
    /// Those in the store.
    stored: OpenPipelines,
    /// Jobs that a store has kept have their keys again.
    keys: Keys,
    /// Their results are to come.
    results: Results,
    pools: ConsumerPools,
    /// A pipeline was opened, or could not be.
    opened: Notify,
    /// What each thing that is asked of a driver may take.
    patience: Duration,
    metrics: Metrics,
    /// Of pipelines that are declared.
    brokers: Brokers,
}

#[derive(Default)]
struct State {
    pipelines: BTreeMap<String, Arc<Pipeline>>,
    /// The ones that are being opened, and why the last try failed of one that is tried again.
    opening: BTreeMap<String, Option<String>>,
    /// Destroyed, and workers have jobs of them.
    leaving: Vec<Arc<Pipeline>>,
}

impl State {
    fn unknown(&self, name: &str) -> PipelineError {
        let all: BTreeSet<_> = self.pipelines.keys().chain(self.opening.keys()).collect();
        PipelineError::Unknown {
            name: name.to_owned(),
            hint: what_there_is(name, all.iter().map(|name| name.as_str())),
        }
    }
}

/// RoadRunner reads names from its file in lower case, so PHP may use those.
fn named<'a, T>(all: &'a BTreeMap<String, T>, name: &str) -> Option<(&'a String, &'a T)> {
    let similar = || {
        all.iter()
            .find(|(known, _)| known.eq_ignore_ascii_case(name))
    };
    all.get_key_value(name).or_else(similar)
}

/// Why a pipeline can't be used that has a name and no more.
fn not_open(failure: Option<&str>) -> String {
    let why = failure.unwrap_or("another process of this server has the store");
    format!("it is not open yet: {why}")
}

/// What a registry is made of.
pub(super) struct Parts {
    pub(super) store: LazyStore,
    pub(super) keys: Keys,
    pub(super) results: Results,
    pub(super) pools: ConsumerPools,
    pub(super) patience: Duration,
    pub(super) metrics: Metrics,
    pub(super) brokers: Brokers,
}

impl Registry {
    /// One without pipelines.
    pub(super) fn new(parts: Parts) -> Self {
        let Parts {
            store,
            keys,
            results,
            pools,
            patience,
            metrics,
            brokers,
        } = parts;
        Self(Arc::new(Shared {
            state: Mutex::default(),
            store,
            stored: OpenPipelines::default(),
            keys,
            results,
            pools,
            opened: Notify::new(),
            patience,
            metrics,
            brokers,
        }))
    }

    /// What each thing that is asked of a driver may take.
    pub(super) fn patience(&self) -> Duration {
        self.0.patience
    }

    /// Adds a pipeline, which gives out no jobs before it is resumed.
    pub(crate) async fn declare(
        &self,
        name: &str,
        settings: &PipelineSettings,
    ) -> Result<(), PipelineError> {
        self.0.pools.expect(&settings.pool)?;
        {
            let mut state = lock(&self.0.state);
            let known = state.pipelines.get(name);
            if known.is_some() || state.opening.contains_key(name) {
                return Err(PipelineError::Exists {
                    name: name.to_owned(),
                    driver: settings.driver.name(),
                });
            }
            if state.pipelines.len() + state.opening.len() >= MOST_PIPELINES {
                return Err(PipelineError::TooMany);
            }
            state.opening.insert(name.to_owned(), None);
        }
        let opened = self.open_announced(name, settings).await;
        if opened.is_err() {
            // Whoever declares it may do so again.
            lock(&self.0.state).opening.remove(name);
        }
        opened
    }

    /// Reserves a name for a pipeline that is opened later; who pushes waits for it.
    pub(crate) fn announce(&self, name: &str) {
        lock(&self.0.state).opening.insert(name.to_owned(), None);
    }

    /// Opens a pipeline that was announced. If that fails, it can be tried again. Until then,
    /// pushes are refused with the reason.
    pub(crate) async fn open_announced(
        &self,
        name: &str,
        settings: &PipelineSettings,
    ) -> Result<(), PipelineError> {
        let opened = self.open(name, settings).await;
        let mut state = lock(&self.0.state);
        let opened = match opened {
            Ok(pipeline) => {
                state.opening.remove(name);
                state.pipelines.insert(name.to_owned(), Arc::new(pipeline));
                Ok(())
            }
            Err(error) => {
                let why = Some(with_causes(&error));
                state.opening.insert(name.to_owned(), why);
                Err(error)
            }
        };
        drop(state);
        self.0.opened.notify_waiters();
        opened
    }

    async fn open(
        &self,
        name: &str,
        settings: &PipelineSettings,
    ) -> Result<Pipeline, PipelineError> {
        let wake = self.0.pools.get(&settings.pool).wake.named(name);
        let driver: Arc<dyn Driver> = match &settings.driver {
            DriverSettings::Memory { max_size } => Arc::new(Memory::new(*max_size, wake.clone())),
            DriverSettings::Embedded { .. } => {
                let store = self.0.store.get().await?;
                let embedded = self.0.stored.open(name, store).await?;
                embedded.pause();
                // Before it takes a push: those of jobs that the process before still runs as well.
                let lent = self.restore_keys(&embedded).await?;
                self.0.keys.lend_more(lent);
                // A job of another pipeline that has the ID of one of them is not taken for it.
                for id in embedded.jobs_with_result(MOST_EXPECTED).await? {
                    self.0.results.expect(name, &id);
                }
                embedded.tell(wake.clone());
                Arc::new(embedded)
            }
            DriverSettings::Broker(place) => {
                let opening = Opening {
                    pipeline: name,
                    priority: settings.priority,
                    wake: wake.clone(),
                };
                place.open(opening, &self.0.store, &self.0.stored).await?
            }
        };
        let metrics = self.0.metrics.of_pipeline(name);
        Ok(Pipeline::new(name, settings, driver, metrics, wake))
    }

    /// Waits for one that is being opened, unless that has failed.
    pub(crate) async fn get_open(&self, name: &str) -> Result<Arc<Pipeline>, PipelineError> {
        let open = self.when_opened(name, |tried| tried.is_none());
        let late = |_| PipelineError::Late(name.to_owned());
        timeout(self.0.patience, open).await.map_err(late)?;
        self.get(name)
    }

    /// Waits for one that is being opened, also after failures, as long as a driver may take.
    pub(crate) async fn opened(&self, name: &str) {
        // A caller that uses it after a time-out gets the reason why it is not open.
        _ = timeout(self.0.patience, self.when_opened(name, |_| true)).await;
    }

    /// Returns when a pipeline is open, or when `waits` is false for the last failure.
    async fn when_opened(&self, name: &str, waits: impl Fn(Option<&str>) -> bool) {
        loop {
            let mut opened = std::pin::pin!(self.0.opened.notified());
            opened.as_mut().enable();
            let waits = match named(&lock(&self.0.state).opening, name) {
                Some((_, failure)) => waits(failure.as_deref()),
                None => false,
            };
            if !waits {
                return;
            }
            opened.await;
        }
    }

    /// Whether there are pipelines that have to wait for the process before.
    pub(super) fn waits(&self) -> bool {
        !lock(&self.0.state).opening.is_empty()
    }

    pub(super) fn is_opening(&self, name: &str) -> bool {
        lock(&self.0.state).opening.contains_key(name)
    }

    pub(crate) fn get(&self, name: &str) -> Result<Arc<Pipeline>, PipelineError> {
        let state = lock(&self.0.state);
        if let Some((_, pipeline)) = named(&state.pipelines, name) {
            return Ok(pipeline.clone());
        }
        Err(match named(&state.opening, name) {
            Some((name, failure)) => PipelineError::NotReady {
                name: name.clone(),
                why: not_open(failure.as_deref()),
            },
            None => state.unknown(name),
        })
    }

    /// Whether there is such a pipeline.
    ///
    /// # Errors
    ///
    /// When there is none.
    pub(crate) fn expect(&self, name: &str) -> Result<(), PipelineError> {
        match self.get(name) {
            Err(unknown @ PipelineError::Unknown { .. }) => Err(unknown),
            _ => Ok(()),
        }
    }

    /// All of them, by name.
    pub(crate) fn all(&self) -> Vec<Arc<Pipeline>> {
        lock(&self.0.state).pipelines.values().cloned().collect()
    }

    pub(crate) fn brokers(&self) -> &Brokers {
        &self.0.brokers
    }

    pub(crate) async fn stat(&self, pipeline: &Pipeline) -> Result<Stat, PipelineError> {
        let patience = match pipeline.driver.health() {
            Ok(()) => self.0.patience,
            Err(_) => self.0.patience.min(GLANCE),
        };
        let stat = timeout(patience, pipeline.driver.stat()).await;
        Ok(stat.map_err(|_| pipeline.late())??)
    }

    /// How all of them are, by name. Brokers are asked side by side; those of this server say it at
    /// once.
    pub(crate) async fn stats(&self) -> Vec<(Arc<Pipeline>, Result<Stat, PipelineError>)> {
        let (ours, others): (Vec<_>, Vec<_>) = self.all().into_iter().partition(|it| it.is_ours());
        let mut asking = JoinSet::new();
        for pipeline in others {
            let registry = self.clone();
            asking.spawn(async move {
                let stat = registry.stat(&pipeline).await;
                (pipeline, stat)
            });
        }
        let mut stats = Vec::with_capacity(ours.len() + asking.len());
        for pipeline in ours {
            let stat = self.stat(&pipeline).await;
            stats.push((pipeline, stat));
        }
        stats.extend(asking.join_all().await);
        stats.sort_by(|(one, _), (other, _)| one.name.cmp(&other.name));
        stats
    }

    /// Some of the jobs of a pipeline, with its name.
    pub(crate) async fn list(
        &self,
        name: &str,
        after: Option<Vec<u8>>,
    ) -> Result<(String, Part), PipelineError> {
        let all = self.all_of(name).await?;
        let (at, after) = after.map_or((0, None), |it| read_place(&it));
        let Some(pipeline) = all.get(at) else {
            // It had jobs a moment ago.
            return Ok((name.to_owned(), Part::default()));
        };
        let part = timeout(self.0.patience, pipeline.driver.list(after)).await;
        let mut part = part.map_err(|_| pipeline.late())??;
        let is_last = at + 1 == all.len();
        part.next = match part.next {
            Some(next) => Some(place(at, &next)),
            None => (!is_last).then(|| place(at + 1, &[])),
        };
        Ok((pipeline.name.clone(), part))
    }

    /// How many jobs workers have.
    pub(crate) fn reserved(&self) -> usize {
        let state = lock(&self.0.state);
        let all = state.pipelines.values().chain(&state.leaving);
        all.map(|it| it.occupied()).sum()
    }

    /// At the end of the server, jobs in memory end with it.
    pub(crate) async fn say_what_is_lost(&self) {
        let mut all = self.all();
        all.retain(|pipeline| pipeline.is_in_memory());
        for pipeline in all {
            let Ok(stat) = self.stat(&pipeline).await else {
                continue;
            };
            let jobs = stat.active + stat.delayed + stat.reserved;
            if jobs > 0 {
                let pipeline = &pipeline.name;
                tracing::warn!(target: "jobs", pipeline, jobs, "jobs in memory end with the server");
            }
        }
    }

    /// Whether all pipelines are open and those that consume can; else what is wrong with the first
    /// that is not. One that waits for the process before is to come.
    pub(crate) fn ready(&self) -> Result<(), String> {
        let state = lock(&self.0.state);
        for (name, failure) in &state.opening {
            if failure.is_some() {
                return Err(format!(
                    "pipeline `{name}`: {}",
                    not_open(failure.as_deref())
                ));
            }
        }
        let mut consuming = state.pipelines.values().filter(|it| it.consumes());
        consuming.try_for_each(|pipeline| {
            let health = pipeline.driver.health();
            health.map_err(|why| format!("pipeline `{}`: {why}", pipeline.name))
        })
    }

    /// Gives back what was taken and is not settled.
    pub(crate) async fn close(&self) {
        let mut closing = JoinSet::new();
        let leaving = std::mem::take(&mut lock(&self.0.state).leaving);
        for pipeline in self.all().into_iter().chain(leaving) {
            closing.spawn(async move { pipeline.driver.close().await });
        }
        closing.join_all().await;
    }

    /// The one of exactly this name.
    pub(super) fn named(&self, name: &str) -> Option<Arc<Pipeline>> {
        lock(&self.0.state).pipelines.get(name).cloned()
    }

    /// Takes a pipeline out. It is kept apart until workers have no jobs of it.
    pub(super) fn take_out(&self, name: &str) -> Result<Arc<Pipeline>, PipelineError> {
        let mut state = lock(&self.0.state);
        let pipeline = state.pipelines.remove(name);
        let pipeline = pipeline.ok_or_else(|| state.unknown(name))?;
        pipeline.leave();
        state.leaving.push(pipeline.clone());
        Ok(pipeline)
    }

    /// Whether a pipeline that was taken out can be closed now, by who asks: workers have no jobs
    /// of it.
    pub(super) fn has_left(&self, pipeline: &Arc<Pipeline>) -> bool {
        let mut state = lock(&self.0.state);
        let mut leaving = state.leaving.iter();
        let place = leaving.position(|it| Arc::ptr_eq(it, pipeline));
        let Some(place) = place.filter(|_| !pipeline.is_occupied()) else {
            return false;
        };
        state.leaving.swap_remove(place);
        true
    }
}

/// The position after a part of a list: the pipeline, of those of the name, and the one inside it.
fn place(pipeline: usize, after: &[u8]) -> Vec<u8> {
    let at = u8::try_from(pipeline).unwrap_or(u8::MAX);
    [&[at], after].concat()
}

fn read_place(place: &[u8]) -> (usize, Option<Vec<u8>>) {
    match place.split_first() {
        Some((at, after)) => (
            usize::from(*at),
            (!after.is_empty()).then(|| after.to_vec()),
        ),
        None => (0, None),
    }
}
