//! Jobs of batches, and the one that comes when all of them have come to their end.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use pronghorn_base::{now_ms, with_causes};
use pronghorn_queue::options::{self, JobOptions};
use pronghorn_queue::{Job, Listed, encode_job};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::{Duplicates, Pipeline, PipelineError, Pipelines};
use crate::batches::{BatchError, BatchKept, HeldPart, Last, Owed, Part, Stage, Summary};
use crate::keys::scoped;
use crate::messages::Pushed;
use crate::results::{Dropped, Ended};

/// How often it is tried again to push a last job.
const TRY_AGAIN: Duration = Duration::from_millis(if cfg!(test) { 10 } else { 5_000 });
/// How long a pipeline is waited for that is not there: PHP may declare it, after a restart too.
const UNTIL_DECLARED: Duration = Duration::from_millis(if cfg!(test) { 200 } else { 60_000 });
/// The pause before a store that has not taken the end of a job is asked again.
const TELL_AGAIN: Duration = Duration::from_millis(200);
/// The time for forgetting a batch whose last job is pushed: at a handover the store may not answer
/// for a moment, and the next process pushes what is not forgotten once more.
const FORGETTING: Duration = Duration::from_secs(5);
/// Looks through a pipeline before a job counts as being nowhere.
const LOOKS: usize = 2;
/// The time between two looks for batches that are too old.
const LOOK: Duration = Duration::from_hours(1);

impl Pipelines {
    /// Keeps jobs, and one that is pushed when all of them have come to their end. Its options are
    /// looked at now, and its time to expire begins now; its delay begins, and its key counts, when
    /// it is pushed.
    pub(crate) async fn push_batch(
        &self,
        mut jobs: Pushed,
        mut last: Last,
    ) -> Result<Duplicates, PipelineError> {
        let id = last.job.id.clone();
        let has_zero = |id: &str| id.contains('\0');
        if jobs.is_empty() || has_zero(&id) || jobs.iter().any(|(_, job)| has_zero(&job.id)) {
            let why =
                "a batch has at least one job, and an ID without a byte of zero, as its jobs have";
            return Err(PipelineError::Refused(why.to_owned()));
        }
        let names = jobs.iter().map(|(name, _)| name).chain([&last.pipeline]);
        for name in names {
            self.0.registry.get_open(name).await?.expect_ours()?;
        }
        // Before times are looked at: whoever pushes it again sends the same.
        let mut content = DefaultHasher::new();
        let all = jobs.iter().map(|(pipeline, job)| (pipeline, job));
        for (pipeline, job) in all.chain([(&last.pipeline, &last.job)]) {
            (pipeline, encode_job(job), job.delay).hash(&mut content);
        }
        self.0.admission.accept(&last.job)?;
        let accepted = options::accept(&mut last.job, None, now_ms());
        accepted.map_err(PipelineError::Refused)?;
        let push = fastrand::u64(1..);
        let (mut keys, mut ids) = (Vec::new(), BTreeMap::new());
        for (pipeline, job) in &mut jobs {
            for (name, value) in [
                (options::BATCH, id.clone()),
                (options::BATCH_PUSH, push.to_string()),
            ] {
                job.headers.insert(name.to_owned(), vec![value]);
            }
            let found = self.0.registry.get(pipeline)?;
            let held = found.is_in_memory().then(|| found.name.clone());
            if ids.insert(job.id.clone(), held).is_some() {
                let id = job.id.escape_debug();
                let why = format!("two jobs of the batch have the ID `{id}`");
                return Err(PipelineError::Refused(why));
            }
            let key = options::unique_key(&job.headers);
            keys.extend(key.map(|key| (pipeline.clone(), job.id.clone(), scoped(pipeline, key))));
        }
        let ids = ids.into_iter().collect();
        let due_after = jobs.iter().map(|(_, job)| job.delay).max();
        let batches = &self.0.batches;
        let kept = batches.keep(
            &id,
            &last,
            ids,
            (content.finish(), push),
            due_after.unwrap_or_default(),
        );
        match kept.await? {
            BatchKept::New => {}
            BatchKept::Same => return Ok(Duplicates::new()),
            BatchKept::Other => {
                let id = id.escape_debug();
                let why = format!("another batch `{id}` is there already");
                return Err(PipelineError::Refused(why));
            }
        }
        let pushed = self.0.admission.push(jobs).await;
        let Ok(duplicates) = &pushed else {
            // Jobs of several pipelines may be there in part: they have no batch then.
            batches.forget(&id).await?;
            return pushed;
        };
        for (pipeline, job, key) in keys {
            let Some(holder) = duplicates.get(&job) else {
                continue;
            };
            let batch = id.clone();
            let part = Part { batch, push, job };
            let other = scoped(&pipeline, holder);
            batches.follow(&part, &other, &last.pipeline).await?;
            // It may have ended before it was followed.
            if self.keys().has_ended(&key, holder) {
                self.tell_followers(&pipeline, holder, false).await?;
            }
        }
        batches.is_pushed(&id).await?;
        pushed
    }

    /// A job does not run any more. Told to its batch before its pipeline forgets it, and to those
    /// batches that have its end in the place of a job that was not kept.
    pub(crate) async fn tell_batches(
        &self,
        pipeline: &str,
        id: &str,
        extras: &JobOptions,
        failed: bool,
    ) -> Result<(), BatchError> {
        if let Some(part) = Part::of(id, extras) {
            self.end_in_batch(&part, failed).await?;
        }
        if extras.can_be_followed {
            self.tell_followers(pipeline, id, failed).await?;
        }
        Ok(())
    }

    /// The same while the store does not answer, until this time. False: its batches don't know.
    pub(crate) async fn tell_batches_by(
        &self,
        until: Instant,
        pipeline: &Pipeline,
        job: &Job,
        extras: &JobOptions,
        failed: bool,
    ) -> bool {
        let tell = || self.tell_batches(&pipeline.name, &job.id, extras, failed);
        told_by(until, &pipeline.name, &job.id, tell).await
    }

    /// The same for a job that ends whether they know or not: they are told later.
    pub(crate) async fn tell_batches_at_last(
        &self,
        until: Instant,
        pipeline: &Pipeline,
        job: &Job,
        extras: &JobOptions,
        failed: bool,
    ) {
        let told = self.tell_batches_by(until, pipeline, job, extras, failed);
        if told.await {
            return;
        }
        let owed = Owed {
            pipeline: pipeline.name.clone(),
            id: job.id.clone(),
            extras: extras.clone(),
            failed,
        };
        if !self.0.batches.owe(owed) {
            let (id, pipeline) = (&job.id, &pipeline.name);
            tracing::error!(target: "jobs", id, pipeline, "a batch waits for a job that has ended: there is no room to record its end");
        }
    }

    /// Tells what could not be told before. False: some of it can't be told now.
    pub(super) async fn tell_owed(&self) -> bool {
        let mut owed = self.0.batches.take_owed().into_iter();
        while let Some(it) = owed.next() {
            let told = self.tell_batches(&it.pipeline, &it.id, &it.extras, it.failed);
            if told.await.is_err() {
                for it in std::iter::once(it).chain(owed) {
                    self.0.batches.owe(it);
                }
                return false;
            }
        }
        true
    }

    /// A job of a batch that is about to leave its pipeline, while it runs, ends with this process
    /// from now on. False: that can't be noted.
    pub(crate) async fn hold_in_batch(&self, pipeline: &Pipeline, part: Part) -> bool {
        let id = part.job.clone();
        let holding = self.0.batches.hold(&pipeline.name, vec![part]);
        let why = match timeout(self.0.registry.patience(), holding).await {
            Ok(Ok(())) => return true,
            Ok(Err(error)) => with_causes(&error),
            Err(_) => "the store does not answer".to_owned(),
        };
        let pipeline = &pipeline.name;
        tracing::warn!(target: "jobs", id, pipeline, "the job stays in its pipeline until it has ended, as its beginning can't be recorded for its batch: {why}");
        false
    }

    /// Jobs of batches that are pushed by themselves to pipelines in memory: those of the process
    /// before, or imported ones.
    pub(crate) fn parts_in_memory(&self, jobs: &Pushed) -> BTreeMap<String, Vec<Part>> {
        let mut by_pipeline: BTreeMap<String, Vec<Part>> = BTreeMap::new();
        for (name, job) in jobs {
            let part = Part::of(&job.id, &JobOptions::of(&job.headers));
            if let (Some(part), Ok(pipeline)) = (part, self.0.registry.get(name))
                && pipeline.is_in_memory()
            {
                let parts = by_pipeline.entry(pipeline.name.clone()).or_default();
                parts.push(part);
            }
        }
        by_pipeline
    }

    /// Jobs of batches that are in memory go to the next process, or end with this one. Before the
    /// next one has the store alone: else those would have ended.
    pub(crate) async fn give_away_parts(&self) {
        for pipeline in self.0.registry.all() {
            let mut after = None;
            while pipeline.is_in_memory()
                && let Ok(part) = pipeline.driver.list(after).await
            {
                let jobs = part.jobs.iter().map(|Listed { job, .. }| job);
                let parts = jobs.filter_map(|job| Part::of(&job.id, &JobOptions::of(&job.headers)));
                let parts: Vec<_> = parts.collect();
                if !parts.is_empty()
                    && let Err(error) = self.0.batches.give_away(&pipeline.name, parts).await
                {
                    let (pipeline, error) = (&pipeline.name, with_causes(&error));
                    tracing::warn!(target: "jobs", pipeline, "jobs of batches may count as failed, as it can't be recorded for their batches that they go to the next process: {error}");
                }
                after = part.next;
                if after.is_none() {
                    break;
                }
            }
        }
    }

    /// These were pushed, and end with this process from now on.
    pub(crate) async fn hold_pushed(&self, by_pipeline: BTreeMap<String, Vec<Part>>) {
        for (pipeline, parts) in by_pipeline {
            if let Err(error) = self.0.batches.hold(&pipeline, parts).await {
                // They are looked for in the pipeline.
                let error = with_causes(&error);
                tracing::debug!(target: "jobs", pipeline, "jobs of batches have no note of this process: {error}");
            }
        }
    }

    pub(crate) async fn tell_followers(
        &self,
        pipeline: &str,
        id: &str,
        failed: bool,
    ) -> Result<(), BatchError> {
        // A release before this one knew no pipelines, and took no byte of zero.
        let of_before = Some(id).filter(|id| !id.contains('\0'));
        for other in std::iter::once(&*scoped(pipeline, id)).chain(of_before) {
            let parts = self.0.batches.followers(other).await?;
            for part in &parts {
                self.end_in_batch(part, failed).await?;
            }
            self.0.batches.forget_followers(other, &parts);
        }
        Ok(())
    }

    /// A job has ended, and its key is free. Tells those batches that came to have its end after
    /// the others were told, when nobody could know yet that it has ended.
    pub(crate) async fn tell_late_followers(
        &self,
        until: Instant,
        pipeline: &Pipeline,
        job: &Job,
        extras: &JobOptions,
        failed: bool,
    ) {
        if extras.can_be_followed {
            let tell = || self.tell_followers(&pipeline.name, &job.id, failed);
            told_by(until, &pipeline.name, &job.id, tell).await;
        }
    }

    async fn end_in_batch(&self, part: &Part, failed: bool) -> Result<(), BatchError> {
        if let Some(last) = self.0.batches.ended(part, failed).await? {
            self.push_last(&part.batch, last, Instant::now()).await;
        }
        Ok(())
    }

    /// Pushes the job that comes last, or sees to it that it is pushed later, or is a dead letter.
    async fn push_last(&self, batch: &str, last: Last, since: Instant) {
        let error = match self
            .0
            .admission
            .push(vec![(last.pipeline.clone(), last.job.clone())])
            .await
        {
            Ok(duplicates) => {
                if let Some(other) = duplicates.get(&last.job.id) {
                    let why = format!("the job {other} has its key, and waits or runs");
                    tracing::info!(target: "jobs", id = batch, pipeline = last.pipeline, "the last job of a batch is not kept: {why}");
                    self.end_last(&last.pipeline, &last.job, Ended::Failed(why.into()));
                }
                self.forget_batch(batch).await;
                return;
            }
            Err(error) => error,
        };
        let why = with_causes(&error);
        // A full pipeline or a store that is away may change.
        let is_final = matches!(
            error,
            PipelineError::Unknown { .. } | PipelineError::Refused(_)
        );
        if is_final && since.elapsed() >= UNTIL_DECLARED {
            let of = |name: &str| last.job.headers.get(name).and_then(|values| values.first());
            let jobs = of("batch-jobs").map_or("?", String::as_str);
            let reason = format!(
                "all {jobs} jobs of the batch have ended, and this one could not be pushed: {why}"
            );
            if self.bury(batch, &last, &reason).await {
                return;
            }
        } else if since.elapsed() < TRY_AGAIN {
            tracing::warn!(target: "jobs", id = batch, pipeline = last.pipeline, "the last job of a batch can't be pushed now, and is tried again: {why}");
        }
        self.0.batches.put_off(batch, since);
    }

    /// Makes the last job of a batch a dead letter. False: that failed, and the batch is still
    /// there.
    async fn bury(&self, batch: &str, last: &Last, reason: &str) -> bool {
        let Last { pipeline, job } = last;
        if let Err(error) = self.dead().keep(pipeline, job, 0, reason).await {
            tracing::error!(target: "jobs", id = batch, pipeline, "no dead letter can be kept of the last job of a batch: {error}");
            return false;
        }
        self.metrics().died();
        tracing::error!(target: "jobs", id = batch, pipeline, "the last job of a batch is a dead letter now: {reason}");
        self.end_last(pipeline, job, Ended::Failed(reason.into()));
        self.forget_batch(batch).await;
        true
    }

    /// A last job never comes to its pipeline.
    fn end_last(&self, pipeline: &str, job: &Job, ended: Ended) {
        if JobOptions::of(&job.headers).wants_result {
            self.results().keep(pipeline, &job.id, ended);
        }
    }

    pub(super) async fn forget_batch(&self, batch: &str) {
        let until = Instant::now() + FORGETTING;
        while let Err(error) = self.0.batches.forget(batch).await {
            if Instant::now() >= until {
                tracing::warn!(target: "jobs", id = batch, "a batch is done and can't be forgotten now: {error}");
                return;
            }
            sleep(TELL_AGAIN).await;
        }
    }

    /// Takes a batch away whose last job has this ID. Its other jobs run as if they had none.
    pub(super) async fn cancel_batch(
        &self,
        of: Option<&str>,
        id: &str,
    ) -> Result<bool, PipelineError> {
        let pipeline = self.0.batches.pipeline_of_last(id).await?;
        if pipeline.is_none_or(|it| of.is_some_and(|of| it != of)) {
            return Ok(false);
        }
        let Some(last) = self.0.batches.last(id).await? else {
            return Ok(false);
        };
        self.0.batches.forget(id).await?;
        self.end_last(&last.pipeline, &last.job, Dropped::Cancelled.into());
        Ok(true)
    }

    /// Batches that are not done, up to so many; whether there are more.
    pub(crate) async fn list_batches(
        &self,
        most: usize,
    ) -> Result<(Vec<Summary>, bool), BatchError> {
        let mut all: Vec<Summary> = Vec::new();
        loop {
            let after = all.last().map(|it| it.id.clone());
            let (part, has_more) = self.0.batches.list(after.as_deref()).await?;
            all.extend(part);
            if !has_more || all.len() > most {
                let is_cut = all.len() > most;
                all.truncate(most);
                return Ok((all, is_cut));
            }
        }
    }

    /// Pushes last jobs that had to wait, also since before this server was started, and gives up
    /// batches that are too old. The process before sees to its own ones as long as it is there.
    /// Until `end`: the batch that is in hand then is brought to its end.
    pub(crate) async fn tend_batches(self, end: CancellationToken) {
        let mut look_at = Instant::now();
        let is_alone = self.0.batches.left_alone();
        tokio::pin!(is_alone);
        let mut was_alone = false;
        loop {
            if was_alone && look_at <= Instant::now() {
                let looked = self.look_at_batches().await;
                if let Err(error) = &looked {
                    tracing::debug!(target: "jobs", "batches can't be looked at: {error}");
                }
                // Jobs that end with processes before this one are looked at until all are known.
                let is_whole = looked.is_ok_and(|is_whole| is_whole);
                look_at = Instant::now() + if is_whole { LOOK } else { TRY_AGAIN };
            }
            self.tell_owed().await;
            for (id, stage) in self.0.batches.take_waiting() {
                if end.is_cancelled() {
                    return; // the others are the next process' then
                }
                self.go_on(&id, stage).await;
            }
            let pause = async {
                if !self.0.batches.has_waiting() {
                    self.0.batches.put_off_one().await;
                }
                sleep(TRY_AGAIN).await;
            };
            tokio::select! {
                () = end.cancelled() => return,
                () = pause => {}
                () = &mut is_alone, if !was_alone => was_alone = true,
                () = sleep_until(look_at), if was_alone => {}
            }
        }
    }

    async fn go_on(&self, id: &str, stage: Stage) {
        let Stage::Waits { since } = stage else {
            return self.forget_batch(id).await;
        };
        match self.0.batches.last(id).await {
            Ok(Some(last)) => self.push_last(id, last, since).await,
            Ok(None) => self.forget_batch(id).await,
            Err(_) => self.0.batches.put_off(id, since),
        }
    }

    /// False: it is not certain yet which jobs have ended with the processes before, or another
    /// process works with the store.
    pub(super) async fn look_at_batches(&self) -> Result<bool, BatchError> {
        if !self.0.batches.is_alone() {
            return Ok(false);
        }
        for job in self.0.batches.load().await? {
            self.tell_if_gone(&job).await?;
        }
        let is_whole = self.0.batches.is_settled() || self.end_with_processes().await?;
        if is_whole && self.0.batches.is_alone() {
            self.0.batches.settle();
        }
        let now = now_ms();
        let mut after = None;
        loop {
            let (part, has_more) = self.0.batches.list(after.as_deref()).await?;
            for batch in &part {
                if self.0.batches.is_known_as_over(&batch.id) {
                    continue;
                }
                if batch.was_cut_off {
                    // Nobody was told that it is kept, and some of its jobs may never have been.
                    tracing::info!(target: "jobs", id = batch.id, jobs = batch.jobs, "a batch is forgotten: the server ended while it was pushed");
                    self.forget_batch(&batch.id).await;
                } else if !self.0.batches.is_alone() {
                    return Ok(false); // the next process is at it
                } else if batch.is_over {
                    // The server ended before it could be pushed.
                    self.0.batches.adopt(&batch.id);
                } else if batch.until <= now
                    && let Some(last) = self.0.batches.last(&batch.id).await?
                {
                    let (left, jobs) = (batch.jobs.saturating_sub(batch.ended), batch.jobs);
                    let reason = format!(
                        "{left} of the {jobs} jobs of the batch have not come to their end in time, and may be lost"
                    );
                    self.bury(&batch.id, &last, &reason).await;
                }
            }
            after = part.into_iter().next_back().map(|it| it.id);
            if !has_more {
                return Ok(is_whole);
            }
        }
    }

    /// Ends the jobs of batches that have ended with the processes before, which are gone: those
    /// that are nowhere. False: that is not certain of some.
    async fn end_with_processes(&self) -> Result<bool, BatchError> {
        let mut by_pipeline: HashMap<String, Vec<HeldPart>> = HashMap::new();
        for held in self.0.batches.held_by_others().await? {
            let of_pipeline = by_pipeline.entry(held.pipeline.clone()).or_default();
            of_pipeline.push(held);
        }
        if !by_pipeline.is_empty() && (self.0.registry.waits() || !self.0.batches.is_alone()) {
            return Ok(false);
        }
        let mut is_certain = true;
        for (name, mut all) in by_pipeline {
            // Between two parts of a list, a job may change its place.
            for _ in 0..LOOKS {
                if all.is_empty() {
                    break;
                }
                let Some(there) = self.parts_in(&name, &all).await else {
                    is_certain = false;
                    all.clear();
                    break;
                };
                let (found, gone) = all.into_iter().partition(|it| there.contains_key(&it.part));
                all = gone;
                self.keep_held(&name, found, &there).await?;
            }
            for held in all {
                if held.is_on_its_way(now_ms()) {
                    is_certain = false;
                    continue;
                }
                let Part { batch, job, .. } = &held.part;
                tracing::warn!(target: "jobs", id = job, pipeline = name, batch, "the job of a batch has ended with the server process that had it, and counts as failed");
                if let Some(last) = self.0.batches.ended_with_process(&held).await? {
                    self.push_last(batch, last, Instant::now()).await;
                }
            }
        }
        Ok(is_certain)
    }

    /// Jobs that are there after all: in memory they end with this process, and in the store with
    /// none.
    async fn keep_held(
        &self,
        pipeline: &str,
        found: Vec<HeldPart>,
        there: &HashMap<Part, bool>,
    ) -> Result<(), BatchError> {
        let (here, stored): (Vec<_>, Vec<_>) = found
            .into_iter()
            .partition(|it| there.get(&it.part) == Some(&true));
        if !here.is_empty() {
            let parts = here.into_iter().map(|it| it.part).collect();
            self.0.batches.hold(pipeline, parts).await?;
        }
        for held in stored {
            self.0.batches.let_go(&held).await?;
        }
        Ok(())
    }

    /// Which of these jobs a pipeline or a worker has, and whether they end with this process.
    /// None: that can't be told.
    async fn parts_in(&self, name: &str, of: &[HeldPart]) -> Option<HashMap<Part, bool>> {
        let wanted: HashSet<&Part> = of.iter().map(|held| &held.part).collect();
        let mut there = HashMap::new();
        let pipelines = match self.0.registry.all_of(name).await {
            Ok(pipelines) => pipelines,
            Err(PipelineError::Unknown { .. }) => Vec::new(),
            Err(_) => return None,
        };
        for pipeline in pipelines.iter().filter(|it| it.is_ours()) {
            let mut after = None;
            loop {
                let listing = pipeline.driver.list(after);
                let listed = timeout(self.0.registry.patience(), listing).await;
                let part = listed.ok()?.ok()?;
                for Listed { job, .. } in part.jobs {
                    let part = Part::of(&job.id, &JobOptions::of(&job.headers));
                    if let Some(part) = part.filter(|part| wanted.contains(part)) {
                        there.insert(part, pipeline.is_in_memory());
                    }
                }
                after = part.next;
                if after.is_none() {
                    break;
                }
            }
        }
        for held in of {
            let running = self.keys().running_of(Some(name), &held.part.job);
            let part =
                running.and_then(|it| Part::of(&it.job.id, &JobOptions::of(&it.job.headers)));
            if let Some(part) = part.filter(|part| *part == held.part) {
                there.entry(part).or_insert(true);
            }
        }
        Some(there)
    }
}

async fn told_by<F: Future<Output = Result<(), BatchError>>>(
    until: Instant,
    pipeline: &str,
    id: &str,
    tell: impl Fn() -> F,
) -> bool {
    while let Err(error) = tell().await {
        if Instant::now() >= until {
            let error = with_causes(&error);
            tracing::error!(target: "jobs", id, pipeline, "the job has ended, and its end can't be recorded for a batch that waits for it: {error}");
            return false;
        }
        sleep(TELL_AGAIN).await;
    }
    true
}
