//! Methods that RoadRunner does not have, with JSON: what operators see and do.

use pronghorn_base::with_causes;
use std::collections::{BTreeMap, BTreeSet};

use pronghorn_plugin_api::rpc::{Argument, Binary, Failure, Outcome, ServiceMethods};
use pronghorn_queue::{Headers, Job, Listed, options};
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use super::waiting::ambiguous;
use crate::batches::Summary;
use crate::dead::{DeadError, Headline};
use crate::pipelines::Pipelines;
use crate::recent::Ending;
use crate::settings::EMBEDDED;

/// Of a list.
const MOST_LISTED: usize = 1000;
/// IDs of one call: each is looked for in all pipelines, which takes up to milliseconds, or costs a
/// commit of the store.
const MOST_NAMED: usize = 1000;
/// Dead letters that are run again or discarded at a time.
const TOGETHER: usize = 64;
/// Of a payload that is shown.
const MOST_SHOWN: usize = 64 << 10;

/// A part of a list takes so much: the longest job after a megabyte of others, payloads in base64.
/// A job that is shown is read whole, too.
const A_PART: usize = 32 << 20;
/// The headlines of a list take so much, with the longest names and IDs.
const HEADLINES: usize = 16 << 20;
/// Dead letters that are moved together take so much, which may be all that there are.
const LETTERS: usize = 64 << 20;

pub(super) fn add(methods: &ServiceMethods<Pipelines>) {
    methods.add("Clear", clear);
    methods.add("Overview", overview);
    methods.add_with_room("Recent", HEADLINES, recent);
    methods.add_with_room("Export", A_PART, export);
    methods.add_with_room("DeadLetters", HEADLINES, list);
    methods.add_with_room("Batches", HEADLINES, batches);
    methods.add_with_room("Waiting", A_PART, waiting);
    methods.add_with_room("Show", A_PART, show);
    methods.add_with_room("Retry", LETTERS, retry);
    methods.add_with_room("Discard", LETTERS, discard);
}

/// Names jobs by their IDs, those of a pipeline, or all of it.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Named {
    ids: Vec<String>,
    pipeline: Option<String>,
}

impl Argument for Named {}

impl Named {
    fn check(&self) -> Result<(), Failure> {
        let count = self.ids.len();
        if count > MOST_NAMED {
            return Err(Failure::new(format!(
                "{count} IDs; at most {MOST_NAMED} are taken at a time: make a call for \
                 each {MOST_NAMED} of them"
            )));
        }
        Ok(())
    }
}

/// For which IDs something was done, and for which not, with why.
#[derive(Default, Serialize)]
struct Done {
    done: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    not_done: Vec<NotDone>,
}

#[derive(Serialize)]
struct NotDone {
    id: String,
    why: String,
}

impl Outcome for Done {}

impl Done {
    fn note(&mut self, id: String, outcome: Result<(), String>) {
        match outcome {
            Ok(()) => self.done.push(id),
            Err(why) => self.not_done.push(NotDone { id, why }),
        }
    }
}

/// What was found of the jobs that are cancelled.
#[derive(Default, Serialize)]
pub(super) struct CancelledJobs {
    /// IDs of which there were jobs.
    done: Vec<String>,
    /// Jobs that waited, and are gone.
    removed: u64,
    /// Jobs that workers had, and whose end is not waited for.
    running: u64,
    /// IDs of which none was found, but brokers may have them: they don't run when they come.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    noted: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    not_done: Vec<NotDone>,
}

impl Outcome for CancelledJobs {}

/// By a worker of this pool, or somebody else.
pub(super) async fn cancel(
    pipelines: Pipelines,
    pool: &str,
    named: Named,
) -> Result<CancelledJobs, Failure> {
    named.check()?;
    let _call = pipelines.call().await;
    let of = named.pipeline.as_deref().filter(|name| !name.is_empty());
    let meant = match of {
        None => pipelines.pipelines_of(&named.ids).await,
        Some(_) => BTreeMap::new(),
    };
    let mut all = CancelledJobs::default();
    for id in named.ids {
        if let Some(several) = meant.get(&id).filter(|it| it.len() > 1) {
            let why = ambiguous(&id, PIPELINE, several).to_string();
            all.not_done.push(NotDone { id, why });
            continue;
        }
        let why = match pipelines.cancel(of, &id, pool).await {
            Err(error) => with_causes(&error),
            Ok(found) if found.noted => {
                all.noted.push(id);
                continue;
            }
            Ok(found) if found.removed == 0 && !found.running => {
                "no job waits or runs with this ID".to_owned()
            }
            Ok(found) => {
                all.removed += found.removed;
                all.running += u64::from(found.running);
                all.done.push(id);
                continue;
            }
        };
        all.not_done.push(NotDone { id, why });
    }
    Ok(all)
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct OfPipeline {
    pipeline: String,
}

impl Argument for OfPipeline {}

#[derive(Serialize)]
struct Cleared {
    removed: u64,
}

impl Outcome for Cleared {}

async fn clear(pipelines: Pipelines, of: OfPipeline) -> Result<Cleared, Failure> {
    let _call = pipelines.call().await;
    let removed = pipelines.clear(&of.pipeline).await;
    let removed = removed.map_err(|error| Failure::new(with_causes(&error)))?;
    Ok(Cleared { removed })
}

/// How a pipeline is.
#[derive(Serialize)]
struct Row {
    pipeline: String,
    driver: &'static str,
    pool: String,
    /// False where only the store knows it.
    configured: bool,
    /// It gives jobs to workers.
    consumes: bool,
    ready: u64,
    delayed: u64,
    reserved: u64,
    dead: u64,
    /// Jobs that ended in the last minute.
    per_minute: u64,
    /// Workers that run its jobs.
    consumers: usize,
    priority: i64,
    /// Seconds for which the oldest of those that are ready has waited, where the driver tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    oldest: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

#[derive(Serialize)]
struct Rows {
    pipelines: Vec<Row>,
}

impl Outcome for Rows {}

#[derive(Default, Deserialize)]
struct Nothing {}

impl Argument for Nothing {}

async fn overview(pipelines: Pipelines, _: Nothing) -> Result<Rows, Failure> {
    // Without a store there are none.
    let dead = pipelines.dead_letters().await.unwrap_or_default();
    let mut rows = Vec::new();
    for (pipeline, stat) in pipelines.registry().stats().await {
        let health = pipeline.driver.health().err();
        let error = health.or_else(|| stat.as_ref().err().map(|error| with_causes(error)));
        let stat = stat.unwrap_or_default();
        rows.push(Row {
            pipeline: pipeline.name.clone(),
            driver: pipeline.driver_name,
            pool: pipeline.pool.clone(),
            configured: true,
            consumes: pipeline.consumes(),
            ready: stat.active,
            delayed: stat.delayed,
            reserved: stat.reserved,
            dead: dead.get(&pipeline.name).copied().unwrap_or(0),
            per_minute: pipeline.per_minute(),
            consumers: pipelines.dispatch().consumers(&pipeline),
            priority: pipeline.priority,
            oldest: stat.oldest.map(|oldest| oldest.as_secs_f64()),
            error,
        });
    }
    // What is wrong with the store is told by the pipelines that need it.
    let left_behind = pipelines.registry().left_behind().await.unwrap_or_default();
    rows.extend(left_behind.into_iter().map(|(name, stored)| Row {
        dead: dead.get(&name).copied().unwrap_or(0),
        pipeline: name,
        driver: EMBEDDED,
        pool: String::new(),
        configured: false,
        consumes: false,
        ready: stored.ready,
        delayed: stored.delayed,
        reserved: 0,
        per_minute: 0,
        consumers: 0,
        priority: 0,
        oldest: None,
        error: None,
    }));
    Ok(Rows { pipelines: rows })
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Behind {
    number: u64,
    /// Whose endings are wanted; all for none.
    pipeline: String,
}

impl Argument for Behind {}

#[derive(Serialize)]
struct Endings {
    endings: Vec<Ending>,
    /// Of the last one, to ask for those behind it.
    number: u64,
}

impl Outcome for Endings {}

/// How attempts ended since it was asked before, at most ten seconds ago.
async fn recent(pipelines: Pipelines, behind: Behind) -> Result<Endings, Failure> {
    let (mut endings, number) = pipelines.recent().behind(behind.number);
    let of = &*behind.pipeline;
    if !of.is_empty() {
        expect(&pipelines, of)?;
        endings.retain(|ending| ending.pipeline == of);
    }
    Ok(Endings { endings, number })
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Export {
    pipeline: String,
    after: Option<Binary>,
}

impl Argument for Export {}

#[derive(Serialize)]
struct Exported {
    /// As `jobs.PushBatch` takes them.
    jobs: Vec<ExportedJob>,
    /// What gives the next ones as `after`.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<Binary>,
}

impl Outcome for Exported {}

#[derive(Serialize)]
pub(super) struct ExportedJob {
    job: String,
    id: String,
    payload: Binary,
    headers: BTreeMap<String, Values>,
    options: ExportedOptions,
}

#[derive(Serialize)]
struct Values {
    value: Vec<String>,
}

#[derive(Serialize)]
struct ExportedOptions {
    pipeline: String,
    priority: i64,
    /// Seconds, rounded up.
    delay: u64,
    auto_ack: bool,
    #[serde(skip_serializing_if = "is_zero")]
    attempts: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes it so")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl ExportedJob {
    pub(super) fn of(job: Job, pipeline: &str) -> Self {
        Self {
            job: job.name,
            id: job.id,
            payload: Binary(job.payload),
            headers: (job.headers.into_iter())
                .map(|(name, value)| (name, Values { value }))
                .collect(),
            options: ExportedOptions {
                pipeline: pipeline.to_owned(),
                priority: job.priority,
                delay: job.delay.as_secs() + u64::from(job.delay.subsec_nanos() > 0),
                auto_ack: job.auto_ack,
                attempts: job.attempts,
            },
        }
    }
}

async fn export(pipelines: Pipelines, asked: Export) -> Result<Exported, Failure> {
    let after = asked.after.map(|Binary(bytes)| bytes.to_vec());
    let part = pipelines.registry().list(&asked.pipeline, after).await;
    let (pipeline, part) = part.map_err(|error| Failure::new(with_causes(&error)))?;
    let jobs = part.jobs.into_iter();
    Ok(Exported {
        jobs: jobs.map(|it| ExportedJob::of(it.job, &pipeline)).collect(),
        next: part.next.map(|next| Binary(next.into())),
    })
}

#[derive(Serialize)]
struct Letters {
    letters: Vec<Headline>,
    /// Further ones that are not in the list.
    more: usize,
}

impl Outcome for Letters {}

/// The newest first.
async fn list(pipelines: Pipelines, named: Named) -> Result<Letters, Failure> {
    let of = named.pipeline.as_deref().filter(|name| !name.is_empty());
    let listed = pipelines.dead().list(of, MOST_LISTED).await;
    let (letters, more) = listed.map_err(failed)?;
    if let (Some(name), true) = (of, letters.is_empty()) {
        expect(&pipelines, name)?;
    }
    Ok(Letters { letters, more })
}

#[derive(Serialize)]
struct Batches {
    batches: Vec<Summary>,
    /// Whether there are further ones.
    more: bool,
}

impl Outcome for Batches {}

async fn batches(pipelines: Pipelines, _: Nothing) -> Result<Batches, Failure> {
    let listed = pipelines.list_batches(MOST_LISTED).await;
    let (batches, more) = listed.map_err(|error| Failure::new(with_causes(&error)))?;
    Ok(Batches { batches, more })
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct One {
    id: String,
    /// The pipeline of the job. None: the only one that has it.
    pipeline: Option<String>,
}

impl Argument for One {}

/// A job of a list.
#[derive(Serialize)]
struct InLine {
    id: String,
    job: String,
    /// `running`, `waiting` or `delayed`.
    state: &'static str,
    /// Those that have ended.
    attempts: u32,
    priority: i64,
    /// Bytes of its payload.
    size: usize,
    /// As of [`Shown`], and the next one.
    #[serde(skip_serializing_if = "Option::is_none")]
    queued_at: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    due_in: Option<f64>,
}

#[derive(Serialize)]
struct Line {
    jobs: Vec<InLine>,
    /// Whether there are further ones.
    more: bool,
}

impl Outcome for Line {}

/// The first jobs of a pipeline.
async fn waiting(pipelines: Pipelines, of: OfPipeline) -> Result<Line, Failure> {
    let (mut jobs, mut after) = (Vec::new(), None);
    loop {
        let part = pipelines.registry().list(&of.pipeline, after).await;
        let (pipeline, part) = part.map_err(|error| Failure::new(with_causes(&error)))?;
        jobs.extend(part.jobs.into_iter().map(|Listed { job, since }| {
            let running = pipelines.keys().running_of(Some(&pipeline), &job.id);
            let (state, due_in) = match running {
                Some(_) => ("running", None),
                None => wait_of(&job),
            };
            InLine {
                state,
                attempts: job.attempts,
                priority: job.priority,
                size: job.payload.len(),
                queued_at: since,
                due_in,
                id: job.id,
                job: job.name,
            }
        }));
        after = part.next;
        if after.is_none() || jobs.len() >= MOST_LISTED {
            let more = after.is_some() || jobs.len() > MOST_LISTED;
            jobs.truncate(MOST_LISTED);
            return Ok(Line { jobs, more });
        }
    }
}

/// What a job that no worker has waits for, and for how many seconds, if that is known.
fn wait_of(job: &Job) -> (&'static str, Option<f64>) {
    if job.delay.is_zero() {
        ("waiting", None)
    } else {
        ("delayed", Some(job.delay.as_secs_f64()))
    }
}

/// A dead letter in full, or a job that a worker has, or that waits in a pipeline of ours.
#[derive(Serialize)]
struct Shown {
    /// `dead`, `running`, `waiting` or `delayed`.
    state: &'static str,
    pipeline: String,
    id: String,
    job: String,
    /// Those that have ended.
    attempts: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    died_at: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    began_at: Option<u64>,
    /// When one that waits was pushed, or put back after an attempt, where its driver knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    queued_at: Option<u64>,
    /// Seconds until a delayed one is due.
    #[serde(skip_serializing_if = "Option::is_none")]
    due_in: Option<f64>,
    /// 0 to 1, and what it is at, where its handler has said so.
    #[serde(skip_serializing_if = "Option::is_none")]
    progress: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    progress_text: Option<String>,
    priority: i64,
    headers: Headers,
    /// As text; what is none is replaced.
    payload: String,
    /// Bytes of the whole payload.
    size: usize,
}

impl Outcome for Shown {}

async fn show(pipelines: Pipelines, one: One) -> Result<Shown, Failure> {
    let id = &one.id;
    let of = one.pipeline.as_deref().filter(|name| !name.is_empty());
    let mut running = pipelines.keys().all_running(id);
    let mut waiting = pipelines.find(of, id).await;
    let dead = pipelines.dead().pipelines_of(id).await.map_err(failed)?;
    let all = running.keys().chain(waiting.keys()).chain(&dead);
    let all: BTreeSet<_> = all
        .filter(|it| of.is_none_or(|of| it.eq_ignore_ascii_case(of)))
        .cloned()
        .collect();
    if all.len() > 1 {
        return Err(ambiguous(id, PIPELINE, &all));
    }
    let unknown = || {
        let why = unknown(id);
        Failure::new(format!("{why}, and no such job waits here or runs"))
    };
    let pipeline = all.into_iter().next().ok_or_else(unknown)?;
    if let Some(running) = running.remove(&pipeline) {
        let (progress, progress_text) = running.progress.map(|it| (it.done, it.text)).unzip();
        return Ok(Shown {
            state: "running",
            began_at: Some(running.began_at),
            progress,
            progress_text,
            ..Shown::of(running.pipeline, &running.job, running.job.attempts)
        });
    }
    if let Some(Listed { job, since }) = waiting.remove(&pipeline) {
        let (state, due_in) = wait_of(&job);
        return Ok(Shown {
            state,
            queued_at: since,
            due_in,
            ..Shown::of(pipeline, &job, job.attempts)
        });
    }
    let letter = pipelines.dead().read(&pipeline, id).await.map_err(failed)?;
    let letter = letter.ok_or_else(unknown)?;
    Ok(Shown {
        state: "dead",
        reason: Some(letter.reason),
        died_at: Some(letter.died_at),
        ..Shown::of(letter.pipeline, &letter.job, letter.attempts)
    })
}

impl Shown {
    fn of(pipeline: String, job: &Job, attempts: u32) -> Self {
        let end = job.payload.len().min(MOST_SHOWN);
        Self {
            state: "",
            pipeline,
            id: job.id.clone(),
            job: job.name.clone(),
            attempts,
            reason: None,
            died_at: None,
            began_at: None,
            queued_at: None,
            due_in: None,
            progress: None,
            progress_text: None,
            priority: job.priority,
            headers: job.headers.clone(),
            payload: String::from_utf8_lossy(&job.payload[..end]).into_owned(),
            size: job.payload.len(),
        }
    }
}

/// Pushes dead letters again, as if they had not run. A crash in between may leave one in both
/// places.
async fn retry(pipelines: Pipelines, named: Named) -> Result<Done, Failure> {
    let _call = pipelines.call().await;
    let letters = letters(&pipelines, named).await?;
    let retry =
        |pipelines, letter: MeantLetter| async move { retry_one(&pipelines, &letter).await };
    Ok(each_of(&pipelines, letters, retry).await)
}

/// Does it with so many at a time, which share the commits of the store.
async fn each_of<F>(
    pipelines: &Pipelines,
    letters: Vec<MeantLetter>,
    each: impl Fn(Pipelines, MeantLetter) -> F,
) -> Done
where
    F: Future<Output = Result<(), String>> + Send + 'static,
{
    let mut done = Done::default();
    for letters in letters.chunks(TOGETHER) {
        let mut under_way = JoinSet::new();
        for (at, letter) in letters.iter().enumerate() {
            let one = each(pipelines.clone(), letter.clone());
            under_way.spawn(async move { (at, one.await) });
        }
        let mut outcomes = under_way.join_all().await;
        outcomes.sort_unstable_by_key(|(at, _)| *at);
        for (letter, (_, outcome)) in letters.iter().zip(outcomes) {
            done.note(letter.id.clone(), outcome);
        }
    }
    done
}

async fn retry_one(pipelines: &Pipelines, letter: &MeantLetter) -> Result<(), String> {
    let (pipeline, id) = (letter.pipeline(pipelines).await?, &letter.id);
    let letter = pipelines.dead().read(&pipeline, id).await;
    let letter = letter.map_err(|error| with_causes(&error))?;
    let letter = letter.ok_or_else(|| NO_LETTER.to_owned())?;
    let mut job = Job {
        attempts: 0,
        ..letter.job
    };
    // Whoever wants it now knows how old it is.
    options::never_expire(&mut job.headers);
    let pushed = pipelines.admission().push_again(&pipeline, job).await;
    pushed.map_err(|error| with_causes(&error))?;
    // It may have died again meanwhile: that letter stays.
    let died_at = Some(letter.died_at);
    let discarded = pipelines.dead().discard(&pipeline, id, died_at).await;
    discarded.map(|_| ()).map_err(|error| {
        format!(
            "it was pushed and runs again, but its dead letter can't be removed: {}; `pronghorn \
             jobs discard` removes it",
            with_causes(&error)
        )
    })
}

async fn discard(pipelines: Pipelines, named: Named) -> Result<Done, Failure> {
    let _call = pipelines.call().await;
    let letters = letters(&pipelines, named).await?;
    let discard = |pipelines: Pipelines, letter: MeantLetter| async move {
        let pipeline = letter.pipeline(&pipelines).await?;
        match pipelines.dead().discard(&pipeline, &letter.id, None).await {
            Ok(true) => Ok(()),
            Ok(false) => Err(NO_LETTER.to_owned()),
            Err(error) => Err(with_causes(&error)),
        }
    };
    Ok(each_of(&pipelines, letters, discard).await)
}

/// A dead letter that somebody means.
#[derive(Clone)]
struct MeantLetter {
    id: String,
    /// None: the only one that has such a letter.
    pipeline: Option<String>,
}

impl MeantLetter {
    async fn pipeline(&self, pipelines: &Pipelines) -> Result<String, String> {
        if let Some(pipeline) = &self.pipeline {
            return Ok(pipeline.clone());
        }
        let all = pipelines.dead().pipelines_of(&self.id).await;
        let all = all.map_err(|error| with_causes(&error))?;
        if all.len() > 1 {
            return Err(ambiguous(&self.id, PIPELINE, &all).to_string());
        }
        all.into_iter().next().ok_or_else(|| NO_LETTER.to_owned())
    }
}

/// Those that were named, or all of a pipeline.
async fn letters(pipelines: &Pipelines, named: Named) -> Result<Vec<MeantLetter>, Failure> {
    named.check()?;
    let pipeline = named.pipeline.filter(|name| !name.is_empty());
    let ids = match &pipeline {
        Some(of) if named.ids.is_empty() => {
            let letters = pipelines.dead().list(Some(of), usize::MAX).await;
            let (letters, _) = letters.map_err(failed)?;
            if letters.is_empty() {
                expect(pipelines, of)?;
            }
            letters.into_iter().map(|letter| letter.id).collect()
        }
        _ => named.ids,
    };
    let one = |id| MeantLetter {
        id,
        pipeline: pipeline.clone(),
    };
    Ok(ids.into_iter().map(one).collect())
}

/// The parameter that says which job is meant, also of the command.
const PIPELINE: &str = "`pipeline`";

/// Of an ID that stands in front.
const NO_LETTER: &str = "there is no such dead letter";

fn unknown(id: &str) -> String {
    format!("there is no dead letter `{}`", id.escape_debug())
}

fn expect(pipelines: &Pipelines, name: &str) -> Result<(), Failure> {
    let known = pipelines.registry().expect(name);
    known.map_err(|error| Failure::new(with_causes(&error)))
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn failed(error: DeadError) -> Failure {
    Failure::new(with_causes(&error))
}
