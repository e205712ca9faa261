//! Jobs by the clock: when each schedule is due, and what became of its runs, which outlive the
//! server.

mod command;
mod record;

use std::collections::{BTreeMap, HashSet};
use std::ops::{Bound, ControlFlow};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pronghorn_base::{lock, now_ms};
use pronghorn_config::Choice as _;
use pronghorn_queue::{Job, options};
use pronghorn_store::{Failed, LazyStore, OpenError, StoreError, Transaction};
use thiserror::Error;
use tokio::sync::{Mutex as AsyncMutex, Notify, OnceCell, OwnedMutexGuard};
use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

pub(crate) use self::command::Surroundings;
pub(crate) use self::record::Run;
use self::record::{Outcome, Record, TREE};
use crate::clock::{CatchUp, Missed, Overlap, ScheduleSettings, What};
use crate::keys::scoped;
use crate::pipelines::{Pipelines, what_there_is};
use crate::results::{Visible, Waited};

/// The clock is looked at so often at least: it may have been set.
const LOOK_AGAIN: Duration = Duration::from_secs(10);
/// A run that begins later than so much was missed: the server was down, or asleep.
const MISSED: Duration = Duration::from_mins(1);
/// A clock that is set back by more than that makes moments come once more; by less, they are those
/// that were.
const SET_BACK: Duration = Duration::from_mins(10);
/// A clock that is set back by less than that is not worth a record.
const SET_BACK_A_LITTLE: Duration = Duration::from_secs(5);
/// How many of them are caught up with at most, by `catch_up: all`.
const MOST_CAUGHT_UP: usize = 100;
/// With `overlap: queue`, runs that wait for the one before; more are skipped.
const MOST_QUEUED: usize = 10;
/// The pause between two looks whether a run of the process before has ended.
const LOOK_BEFORE: Duration = Duration::from_millis(if cfg!(test) { 10 } else { 1000 });
/// How often a job that runs is asked after.
const ASK_AGAIN: Duration = Duration::from_mins(10);

/// All of a server. Clones are the same ones.
#[derive(Clone)]
pub(crate) struct Schedules(Arc<Shared>);

struct Shared {
    settings: BTreeMap<String, ScheduleSettings>,
    pipelines: Pipelines,
    store: LazyStore,
    /// Of commands.
    surroundings: Surroundings,
    state: Mutex<BTreeMap<String, State>>,
    /// Writes of each to the store.
    turns: BTreeMap<String, Arc<AsyncMutex<()>>>,
    /// The store was read: before, a change would be lost, or what it changes.
    loaded: OnceCell<()>,
    /// Why that was not possible so far.
    failure: Mutex<Option<String>>,
    /// Something was asked for.
    news: Notify,
    /// When it was looked last at what is due, by the clock of the calendar.
    looked_at: AtomicU64,
}

#[derive(Default)]
struct State {
    record: Record,
    /// When the next run is due, in milliseconds since 1970.
    next: Option<u64>,
    /// With its jitter.
    begins: Option<u64>,
    running: usize,
    /// It was said that runs are left out while this one goes on.
    skips: bool,
    /// Due times of runs that wait for the one before.
    queued: Vec<u64>,
    /// Somebody asked for a run, at this time.
    wanted: Option<u64>,
}

/// How a schedule is, for those who look at it.
#[derive(Clone, Debug)]
pub(crate) struct View {
    pub(crate) name: String,
    pub(crate) when: String,
    pub(crate) paused: bool,
    pub(crate) next: Option<u64>,
    pub(crate) running: usize,
    pub(crate) runs: Vec<Run>,
}

#[derive(Debug, Error)]
pub(crate) enum ScheduleError {
    #[error("there is no schedule `{name}`{hint}")]
    Unknown { name: String, hint: String },
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Schedules {
    pub(crate) fn new(
        settings: impl IntoIterator<Item = (String, ScheduleSettings)>,
        pipelines: Pipelines,
        store: LazyStore,
        surroundings: Surroundings,
    ) -> Self {
        let settings: BTreeMap<_, _> = settings.into_iter().collect();
        let names = settings.keys().cloned();
        Self(Arc::new(Shared {
            turns: names.map(|name| (name, Arc::default())).collect(),
            settings,
            pipelines,
            store,
            surroundings,
            state: Mutex::default(),
            loaded: OnceCell::new(),
            failure: Mutex::default(),
            news: Notify::new(),
            looked_at: AtomicU64::new(0),
        }))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.settings.is_empty()
    }

    /// Whether they run; else why not.
    pub(crate) fn ready(&self) -> Result<(), String> {
        match &*lock(&self.0.failure) {
            Some(why) => Err(format!("schedules can't be read: {why}")),
            None => Ok(()),
        }
    }

    /// Until `end`, or a bit longer: a run that begins then is begun to its end and noted, so that
    /// nobody begins it again. `follows`: the process before has left off at this moment, and may
    /// have the store for a while.
    pub(crate) async fn work(self, follows: bool, end: CancellationToken) {
        let mut running = JoinSet::new();
        let begin = self.begin(follows, &end, &mut running);
        _ = end.run_until_cancelled(begin).await;
        if self.0.loaded.initialized() {
            let now = now_ms();
            self.begin_due(now, &end, &mut running);
            while running.join_next().await.is_some() {}
            self.leave_off(now).await;
        }
    }

    /// Begins runs, for as long as it is polled.
    async fn begin(&self, follows: bool, end: &CancellationToken, running: &mut JoinSet<()>) {
        let load = || async {
            self.0.store.get_at_last().await?;
            self.loaded().await
        };
        let failed = |why: &str| {
            tracing::error!(target: "jobs", "schedules can't be read, so none runs until they can: {why}");
            *lock(&self.0.failure) = Some(why.to_owned());
        };
        self.0.store.until_done(load, failed).await;
        if lock(&self.0.failure).take().is_some() {
            tracing::info!(target: "jobs", "schedules are read");
        }
        for (name, settings) in &self.0.settings {
            if settings.moments.after(now_ms()).is_none() {
                let when = settings.moments.to_string();
                tracing::warn!(target: "jobs", schedule = name, when, "the schedule is never due: no date fits its pattern");
            }
        }
        let inherited = self.under_way();
        let now = now_ms();
        // From then on, all is due: where one process follows the other, a server was there.
        let until = if follows {
            now - pronghorn_base::millis(MISSED)
        } else {
            now
        };
        for (name, missed) in self.missed(now, until) {
            let (schedules, end) = (self.clone(), end.clone());
            let make_up = async move { schedules.make_up_for(&name, missed, until, &end).await };
            running.spawn(make_up);
        }
        for (name, pipeline, due, id) in inherited {
            let schedules = self.clone();
            let follow = async move { schedules.follow(&name, &pipeline, due, &id).await };
            running.spawn(cut_short(end.clone(), follow));
        }
        loop {
            self.begin_due(now_ms(), end, running);
            tokio::select! {
                Some(_) = running.join_next() => {}
                () = self.0.news.notified() => {}
                () = sleep(self.until_next()) => {}
            }
        }
    }

    fn begin_due(&self, now: u64, end: &CancellationToken, running: &mut JoinSet<()>) {
        for (name, due) in self.due(now) {
            let (schedules, end) = (self.clone(), end.clone());
            running.spawn(async move { schedules.run(&name, due, &end).await });
        }
    }

    async fn loaded(&self) -> Result<(), ScheduleError> {
        let loaded = self.0.loaded.get_or_try_init(|| self.load());
        loaded.await.copied()
    }

    async fn load(&self) -> Result<(), ScheduleError> {
        let settings = self.0.settings.iter();
        let patterns = settings.map(|(name, it)| (name.clone(), it.moments.to_string()));
        let patterns: BTreeMap<String, String> = patterns.collect();
        let store = self.0.store.get().await?;
        let now = now_ms();
        let read = move |transaction: &mut Transaction<'_>| records(transaction, patterns, now);
        // A record replaces what is about as long, and is written to a full store, too.
        let records = store.carry_out(0, read, |outcome| outcome).await??;
        let others_are_there = store.others().borrow().are_there;
        let mut state = lock(&self.0.state);
        for (name, mut record) in records {
            if !others_are_there || self.pipeline_of_ours(&name).is_none() {
                record.break_off();
            }
            // Somebody may have asked for a run before.
            let it = state.entry(name).or_default();
            it.running += record.under_way().count();
            it.record = record;
        }
        Ok(())
    }

    /// The pipeline of a schedule's jobs, if this server alone has them: it sees their ends.
    fn pipeline_of_ours(&self, name: &str) -> Option<&str> {
        let What::Job { pipeline, .. } = &self.0.settings.get(name)?.what else {
            return None;
        };
        let is_ours = match self.0.pipelines.registry().get(pipeline) {
            Ok(pipeline) => pipeline.is_ours(),
            // One that waits for the store.
            Err(_) => true,
        };
        is_ours.then_some(pipeline)
    }

    /// Runs that are under way, whose jobs this server alone has: the schedule, the pipeline, when
    /// it was due, and its ID.
    fn under_way(&self) -> Vec<(String, String, u64, String)> {
        let state = lock(&self.0.state);
        let mut all = Vec::new();
        for (name, it) in &*state {
            if let Some(pipeline) = self.pipeline_of_ours(name) {
                let runs = it.record.under_way();
                all.extend(runs.map(|run| {
                    let (name, pipeline) = (name.clone(), pipeline.to_owned());
                    (name, pipeline, run.due, run.id.clone())
                }));
            }
        }
        all
    }

    /// From `end` on, notes the ends of runs whose jobs still run here: the process that has taken
    /// over reads them. Until no job can end here any more.
    pub(crate) async fn see_off(self, end: CancellationToken) {
        end.cancelled().await;
        let mut seen = JoinSet::new();
        for (name, pipeline, due, id) in self.under_way() {
            let schedules = self.clone();
            seen.spawn(async move {
                let outcome = schedules.outcome(&pipeline, &id, None).await;
                if outcome != Outcome::BrokenOff {
                    schedules.tell(&name, &id, &outcome);
                    schedules.note_end(&name, due, id, outcome).await;
                }
            });
        }
        while seen.join_next().await.is_some() {}
    }

    /// A run of the process before, which sees to its end unless its job comes here.
    async fn follow(&self, name: &str, pipeline: &str, due: u64, id: &str) {
        let visible = Visible::of(HashSet::from([pipeline.to_owned()]));
        loop {
            let alone = !self.0.store.others().are_there;
            let is_gone = alone && self.0.pipelines.has_no_job(pipeline, id).await;
            let results = self.0.pipelines.results();
            let outcome = match results.wait(&visible, id, LOOK_BEFORE).await {
                Waited::Ended(ended) => ended.into(),
                Waited::Over => return,
                _ => {
                    if self.has_learned(name, id).await {
                        self.has_ended(name);
                        self.0.news.notify_one();
                        return;
                    }
                    if !is_gone {
                        continue;
                    }
                    Outcome::BrokenOff
                }
            };
            return self.has_come_to(name, due, id, outcome, Vec::new()).await;
        }
    }

    /// Whether another process has noted the end of a run.
    async fn has_learned(&self, name: &str, id: &str) -> bool {
        let key = name.as_bytes().to_vec();
        let read = move |transaction: &mut Transaction<'_>| transaction.get(TREE, &key);
        let Ok(store) = self.0.store.get().await else {
            return false;
        };
        let Ok(Some(stored)) = store.look(read).await else {
            return false;
        };
        let mut state = lock(&self.0.state);
        let it = state.entry(name.to_owned()).or_default();
        it.record.learn(&Record::decode(&stored));
        !it.record.is_under_way(id)
    }

    /// The runs up to `until` that are made up for: they were due while no server was there. Later
    /// ones are due as usual.
    fn missed(&self, now: u64, until: u64) -> Vec<(String, Vec<u64>)> {
        let mut missed = Vec::new();
        {
            let mut state = lock(&self.0.state);
            for (name, settings) in &self.0.settings {
                let it = state.entry(name.clone()).or_default();
                // It may be from a clock that was ahead: by little, its moments do not come again.
                let latest = now + pronghorn_base::millis(SET_BACK);
                let last = it.record.last_due.filter(|last| *last <= latest);
                let last = last.unwrap_or(now);
                let wanted = match settings.catch_up {
                    CatchUp::None => 0,
                    CatchUp::One => 1,
                    CatchUp::All => MOST_CAUGHT_UP,
                };
                let all = settings.moments.missed(last.min(until), until, wanted);
                it.set_next(settings, until.max(last));
                if all.runs > 0 && !it.record.paused {
                    missed.push((name.clone(), settings.catch_up, all));
                }
            }
        }
        let wanted = missed.into_iter().map(|(name, catch_up, missed)| {
            let Missed { runs, last, .. } = missed;
            let more = if missed.are_more {
                ", and more than are counted"
            } else {
                ""
            };
            tracing::warn!(
                target: "jobs",
                schedule = name,
                runs,
                "runs were missed while the server was down{more}; catch_up: {}",
                catch_up.spelling()
            );
            (name, last)
        });
        wanted.collect()
    }

    /// One after the other.
    async fn make_up_for(&self, name: &str, missed: Vec<u64>, until: u64, end: &CancellationToken) {
        self.note(name, |record| record.has_seen(until)).await;
        for due in missed {
            if end.is_cancelled() {
                return;
            }
            self.run(name, due, end).await;
        }
    }

    /// Notes until when each schedule was looked after, where a run was left out since the last one
    /// that began: the next process is not to begin it.
    async fn leave_off(&self, now: u64) {
        let left_out: Vec<_> = {
            let state = lock(&self.0.state);
            let seen = |(name, settings): (&String, &ScheduleSettings)| {
                let it = state.get(name)?;
                // Runs that wait are still to come.
                let first = it.next.into_iter().chain(it.queued.iter().copied()).min();
                let until = first.map_or(now, |first| now.min(first - 1));
                let next = settings.moments.after(it.record.last_due?)?;
                (next <= until).then(|| (name.clone(), until))
            };
            self.0.settings.iter().filter_map(seen).collect()
        };
        for (name, until) in left_out {
            self.note(&name, |record| record.has_seen(until)).await;
        }
    }

    /// What is to run now, and was due when.
    fn due(&self, now: u64) -> Vec<(String, u64)> {
        let before = self.0.looked_at.swap(now, Ordering::Relaxed);
        let back = before.saturating_sub(now);
        let is_set_back = back > pronghorn_base::millis(SET_BACK);
        let seconds = back / 1000;
        if is_set_back {
            tracing::warn!(target: "jobs", seconds, "the clock was set back: schedules begin anew");
        } else if back > pronghorn_base::millis(SET_BACK_A_LITTLE) {
            tracing::warn!(
                target: "jobs", seconds,
                "the clock was set back: schedules begin no runs until it is where it was"
            );
        }
        let mut due = Vec::new();
        let mut state = lock(&self.0.state);
        for (name, settings) in &self.0.settings {
            let it = state.entry(name.clone()).or_default();
            if is_set_back {
                it.set_next(settings, now);
            }
            if let Some(asked) = it.wanted.take() {
                due.push((name.clone(), asked));
            }
            if let (Some(at), Some(next)) = (it.begins, it.next)
                && at <= now
            {
                if now - at > pronghorn_base::millis(MISSED) && !it.record.paused {
                    let seconds = (now - at) / 1000;
                    tracing::warn!(target: "jobs", schedule = name, seconds, "a run begins late");
                }
                it.set_next(settings, now.max(next));
                if !it.record.paused {
                    due.push((name.clone(), next));
                }
            }
            if it.running == 0 && !it.queued.is_empty() {
                due.push((name.clone(), it.queued.remove(0)));
            }
        }
        due
    }

    fn until_next(&self) -> Duration {
        let now = now_ms();
        let state = lock(&self.0.state);
        let next = state.values().filter_map(|it| it.begins).min();
        let wait = next.map(|next| Duration::from_millis(next.saturating_sub(now)));
        wait.unwrap_or(LOOK_AGAIN).min(LOOK_AGAIN)
    }

    /// Begins a run, and waits until it has ended, or `end`.
    async fn run(&self, name: &str, due: u64, end: &CancellationToken) {
        let Some(settings) = self.0.settings.get(name) else {
            return;
        };
        if let What::Job { pipeline, .. } = &settings.what {
            // After an upgrade it is opened in a moment, and with it the key of the run before.
            self.0.pipelines.registry().opened(pipeline).await;
        }
        if !self.may_begin(name, settings, due) {
            return;
        }
        let id = id_of(name, due);
        tracing::debug!(target: "jobs", schedule = name, id, "a run begins");
        let ended = match &settings.what {
            What::Job {
                name: job,
                pipeline,
                payload,
            } => {
                let claimed = self.0.pipelines.admission().claim(pipeline, &id).await;
                if matches!(claimed, Ok((false, _))) {
                    tracing::debug!(target: "jobs", schedule = name, id, "another server has this run");
                    self.has_ended(name);
                    self.note(name, |record| record.has_seen(due)).await;
                    return;
                }
                let pushed = match claimed {
                    Ok((_, is_shared)) => {
                        // Its end is seen where it runs.
                        let key = settings.key(name).filter(|_| !is_shared);
                        let pushed = self.push(&id, job, pipeline, payload, key).await;
                        pushed.map(|()| is_shared)
                    }
                    Err(error) => Err(error.to_string()),
                };
                let outcome = match pushed {
                    Err(why) => Some(Outcome::Failed(why)),
                    Ok(is_shared) => {
                        self.note(name, |record| record.begin(due, &id)).await;
                        let limit = is_shared.then(|| settings.half_a_period(due));
                        end.run_until_cancelled(self.outcome(pipeline, &id, limit))
                            .await
                    }
                };
                outcome.map(|outcome| (outcome, Vec::new()))
            }
            What::Command { command, limit } => {
                self.note(name, |record| record.begin(due, &id)).await;
                let run = self.0.surroundings.run(name, command, *limit);
                let ended = end.run_until_cancelled(run).await;
                if ended.is_none() {
                    tracing::warn!(
                        target: "jobs", schedule = name, id,
                        "the command is killed because this process of the server ends"
                    );
                }
                ended
            }
        };
        let Some((outcome, lines)) = ended else {
            return;
        };
        self.has_come_to(name, due, &id, outcome, lines).await;
    }

    fn tell(&self, name: &str, id: &str, outcome: &Outcome) {
        if let Outcome::Failed(why) = outcome {
            let why = why.lines().next().unwrap_or_default();
            tracing::warn!(target: "jobs", schedule = name, id, "a run has failed: {why}");
        } else {
            let outcome = outcome.name();
            tracing::debug!(target: "jobs", schedule = name, id, "a run has ended: {outcome}");
        }
        self.0.pipelines.metrics().scheduled(name, outcome.name());
    }

    async fn has_come_to(
        &self,
        name: &str,
        due: u64,
        id: &str,
        outcome: Outcome,
        lines: Vec<String>,
    ) {
        self.tell(name, id, &outcome);
        self.has_ended(name);
        self.note(name, |record| record.end(due, id, outcome, lines))
            .await;
        self.0.news.notify_one();
    }

    /// Whether the runs before let it begin.
    fn may_begin(&self, name: &str, settings: &ScheduleSettings, due: u64) -> bool {
        let overlap = settings.overlap;
        // A job of before this process began, which waits or is with a worker.
        let is_held = match (&settings.what, settings.key(name)) {
            (What::Job { pipeline, .. }, Some(key)) => {
                let key = scoped(pipeline, &key);
                self.0.pipelines.keys().holder(&key).is_some()
            }
            _ => false,
        };
        let mut state = lock(&self.0.state);
        let Some(it) = state.get_mut(name) else {
            return false;
        };
        let begins = (it.running == 0 && !is_held) || overlap == Overlap::Allow;
        if begins {
            it.running += 1;
        } else if overlap == Overlap::Queue && it.queued.len() < MOST_QUEUED {
            it.queued.push(due);
        } else {
            self.0.pipelines.metrics().scheduled(name, "skipped");
            if std::mem::replace(&mut it.skips, true) {
                tracing::debug!(target: "jobs", schedule = name, "another run is skipped");
            } else {
                tracing::warn!(target: "jobs", schedule = name, "runs are skipped until the one before has ended");
            }
        }
        begins
    }

    async fn push(
        &self,
        id: &str,
        name: &str,
        pipeline: &str,
        payload: &str,
        key: Option<String>,
    ) -> Result<(), String> {
        let mut job = Job {
            id: id.to_owned(),
            name: name.to_owned(),
            payload: payload.to_owned().into(),
            ..Job::default()
        };
        options::ask_for_result(&mut job);
        if let Some(key) = key {
            options::hold_key(&mut job, key);
        }
        let pushed = self
            .0
            .pipelines
            .admission()
            .push(vec![(pipeline.to_owned(), job)]);
        match pushed.await {
            Ok(duplicates) if duplicates.is_empty() => Ok(()),
            Ok(_) => Err("the run before has not ended".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }

    fn has_ended(&self, name: &str) {
        let mut state = lock(&self.0.state);
        if let Some(it) = state.get_mut(name) {
            it.running = it.running.saturating_sub(1);
            it.skips = false;
        }
    }

    /// What comes of a job. With a limit, it may never be known here.
    async fn outcome(&self, pipeline: &str, id: &str, limit: Option<Duration>) -> Outcome {
        let results = self.0.pipelines.results();
        let visible = Visible::of(HashSet::from([pipeline.to_owned()]));
        loop {
            match results.wait(&visible, id, limit.unwrap_or(ASK_AGAIN)).await {
                Waited::Ended(ended) => return ended.into(),
                Waited::Ambiguous(_) => return Outcome::BrokenOff, // of one pipeline there is one
                Waited::NotYet if limit.is_some() => return Outcome::Pushed,
                Waited::NotYet => {}
                Waited::Over => return Outcome::BrokenOff,
            }
        }
    }

    /// Changes what is known of a schedule, and then what is kept.
    async fn note(&self, name: &str, change: impl FnOnce(&mut Record)) {
        self.change_known(name, change);
        let turn = self.turn(name).await;
        let record = self.change_known(name, |record| record.clone());
        let written = self.write(name, merged(record), move |_| drop(turn));
        tell_unwritten(name, written.await);
    }

    fn change_known<T>(&self, name: &str, change: impl FnOnce(&mut Record) -> T) -> T {
        let mut state = lock(&self.0.state);
        change(&mut state.entry(name.to_owned()).or_default().record)
    }

    /// Changes what is kept of a schedule, and what is known of it once that is done: also when the
    /// caller has left.
    async fn change(
        &self,
        name: &str,
        change: impl Fn(&mut Record) + Send + 'static,
    ) -> Result<(), ScheduleError> {
        let turn = self.turn(name).await;
        let mut record = self.change_known(name, |record| record.clone());
        change(&mut record);
        let (this, known) = (self.clone(), name.to_owned());
        let then = move |is_written| {
            if is_written {
                this.change_known(&known, change);
            }
            drop(turn);
        };
        self.write(name, merged(record), then).await
    }

    /// One write after the other: each has all that was known when it began.
    async fn turn(&self, name: &str) -> Option<OwnedMutexGuard<()>> {
        let turns = self.0.turns.get(name)?;
        Some(turns.clone().lock_owned().await)
    }

    /// Notes the end of a run in what the process that has taken over keeps of a schedule.
    async fn note_end(&self, name: &str, due: u64, id: String, outcome: Outcome) {
        let change = move |stored: Option<Record>| {
            let mut record = stored.unwrap_or_default();
            record.end(due, &id, outcome, Vec::new());
            record
        };
        tell_unwritten(name, self.write(name, change, |_| {}).await);
    }

    async fn write(
        &self,
        name: &str,
        change: impl FnOnce(Option<Record>) -> Record + Send + 'static,
        then: impl FnOnce(bool) + Send + 'static,
    ) -> Result<(), ScheduleError> {
        let key = name.as_bytes().to_vec();
        let write = move |transaction: &mut Transaction<'_>| {
            let stored = transaction.get(TREE, &key)?;
            let stored = stored.map(|stored| Record::decode(&stored));
            transaction.put(TREE, &key, &change(stored).encode())
        };
        let store = self.0.store.get().await?;
        let then = |outcome: Result<(), StoreError>| {
            then(outcome.is_ok());
            outcome
        };
        // It replaces what is about as long, and is done in a full store, too.
        store.carry_out(0, write, then).await??;
        Ok(())
    }

    /// All of them, by name.
    pub(crate) fn views(&self) -> Vec<View> {
        let state = lock(&self.0.state);
        let view = |(name, settings): (&String, &ScheduleSettings)| {
            let it = state.get(name);
            let record = it.map(|it| it.record.clone()).unwrap_or_default();
            // It may not have been looked at yet.
            let next = it.and_then(|it| it.next);
            let next = next.or_else(|| settings.moments.after(now_ms()));
            View {
                name: name.clone(),
                when: settings.moments.to_string(),
                paused: record.paused,
                next: next.filter(|_| !record.paused),
                running: it.map_or(0, |it| it.running),
                runs: record.runs,
            }
        };
        self.0.settings.iter().map(view).collect()
    }

    /// Runs one now, also a paused one. The ID of the run.
    pub(crate) async fn run_now(&self, name: &str) -> Result<String, ScheduleError> {
        self.known(name)?;
        // Nothing runs before.
        self.loaded().await?;
        let now = now_ms();
        let mut state = lock(&self.0.state);
        // Who asks twice before it begins has one run.
        let due = *(state.entry(name.to_owned()).or_default().wanted).get_or_insert(now);
        drop(state);
        self.0.news.notify_one();
        Ok(id_of(name, due))
    }

    /// A paused one does not run by itself. It stays paused over a restart.
    pub(crate) async fn pause(&self, name: &str, paused: bool) -> Result<(), ScheduleError> {
        self.known(name)?;
        self.loaded().await?;
        let now = now_ms();
        let change = move |record: &mut Record| {
            record.paused = paused;
            // Nothing was missed in the meantime.
            record.last_due = Some(now);
        };
        self.change(name, change).await?;
        let is = if paused { "paused" } else { "resumed" };
        tracing::info!(target: "jobs", schedule = name, "the schedule is {is}");
        Ok(())
    }

    fn known(&self, name: &str) -> Result<(), ScheduleError> {
        if self.0.settings.contains_key(name) {
            return Ok(());
        }
        let known = self.0.settings.keys().map(String::as_str);
        Err(ScheduleError::Unknown {
            name: name.escape_debug().to_string(),
            hint: what_there_is(name, known),
        })
    }
}

fn tell_unwritten(name: &str, written: Result<(), ScheduleError>) {
    if let Err(error) = written {
        tracing::error!(target: "jobs", schedule = name, "a run can't be noted: {error}");
    }
}

/// The process before may have noted ends meanwhile.
fn merged(mut record: Record) -> impl FnOnce(Option<Record>) -> Record {
    move |stored| {
        record.learn(&stored.unwrap_or_default());
        record
    }
}

/// Until `end`.
async fn cut_short(end: CancellationToken, work: impl Future<Output = ()>) {
    _ = end.run_until_cancelled(work).await;
}

/// Reads the records of these schedules. Schedules that only the store has are out of the
/// configuration, and miss nothing until they are back.
fn records(
    transaction: &mut Transaction<'_>,
    patterns: BTreeMap<String, String>,
    now: u64,
) -> Result<BTreeMap<String, Record>, Failed> {
    let mut kept = BTreeMap::new();
    transaction.scan(TREE, Bound::Unbounded, |name, record| {
        let name = String::from_utf8_lossy(name).into_owned();
        kept.insert(name, Record::decode(record));
        ControlFlow::Continue(())
    })?;
    let mut records = BTreeMap::new();
    for (name, pattern) in patterns {
        let mut record = kept.remove(&name).unwrap_or_default();
        if record.see(&pattern, now) {
            transaction.put(TREE, name.as_bytes(), &record.encode())?;
        }
        records.insert(name, record);
    }
    for (name, mut record) in kept {
        if record.is_gone() {
            transaction.put(TREE, name.as_bytes(), &record.encode())?;
        }
    }
    Ok(records)
}

/// Of a run, and of the job that it pushes.
fn id_of(schedule: &str, due: u64) -> String {
    format!("{schedule}-{due}")
}

impl ScheduleSettings {
    /// By which jobs of this schedule are told from others, where they are not to overlap. It stays
    /// with the job when the server starts anew.
    fn key(&self, schedule: &str) -> Option<String> {
        let is_job = matches!(self.what, What::Job { .. });
        // No key of an application begins so.
        (is_job && self.overlap != Overlap::Allow).then(|| format!("\u{1}schedule {schedule}"))
    }

    /// How long the end of a job is waited for that another server may run: the next run is not to
    /// find this one under way.
    fn half_a_period(&self, due: u64) -> Duration {
        let next = self.moments.after(due).unwrap_or(due);
        Duration::from_millis(next.saturating_sub(due) / 2)
    }
}

impl State {
    fn set_next(&mut self, settings: &ScheduleSettings, after: u64) {
        self.next = settings.moments.after(after);
        let jitter = pronghorn_base::millis(settings.jitter);
        let more = if jitter == 0 {
            0
        } else {
            fastrand::u64(0..jitter)
        };
        self.begins = self.next.map(|next| next + more);
    }
}

#[cfg(test)]
mod tests;
