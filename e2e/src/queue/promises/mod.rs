//! The promises of a pipeline, as a function of a history: events in, broken promises out.
//!
//! Knows no server. Times are of one clock that no other process can set. The page
//! `docs/internals/queue-model.md` says each promise in words; a test compares the two.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

/// Since the begin of the run.
pub type Time = Duration;

/// From when a call was sent until its answer was there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    pub sent: Time,
    pub answered: Time,
}

/// When a job was pushed, when it first began, and its ID.
type First<'a> = (Span, Time, &'a str);

/// A job as it is pushed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Job {
    pub id: String,
    pub pipeline: String,
    pub payload: String,
    pub priority: i64,
    pub delay: Duration,
    /// No other job with this key waits or runs.
    pub key: Option<String>,
    pub expires: Option<Duration>,
    /// The batch that it is a part of.
    pub batch: Option<String>,
    /// It is the last one of this batch.
    pub last_of: Option<String>,
    /// It counts as done when it begins.
    pub auto_ack: bool,
}

/// The outcome of a push.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pushed {
    Kept,
    /// The job of this ID has its key.
    Duplicate(String),
    /// Nothing was kept, as the answer says.
    Refused,
    /// There was no answer, or one that does not know: it may be there.
    Unknown,
}

/// Something that somebody saw or did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    Push(Job, Span, Pushed),
    /// A handler has it.
    Began {
        id: String,
        pipeline: String,
        payload: String,
        /// From 1 on.
        attempt: u32,
        at: Time,
    },
    /// The handler has come to its end, in one of these ways. Without such an event it was killed.
    Ended {
        id: String,
        attempt: u32,
        at: Time,
        outcome: Outcome,
    },
    Paused(String, Span),
    Resumed(String, Span),
    /// A pipeline is taken away, and its jobs stay in the store.
    Destroyed(String, Span),
    /// It is there again, and consumes.
    Declared(String, Span),
    /// This many jobs of a pipeline were taken away. None: there was no answer, so perhaps any.
    Cleared(String, Span, Option<u64>),
    /// A job was cancelled: before it began, as the answer says, or perhaps while it ran.
    Cancelled(String, Span, Cancel),
    /// An action on the system.
    Fault(Fault, Span),
    /// All that is there when all has come to rest.
    Rest {
        /// Jobs that wait or run, by pipeline.
        left: BTreeMap<String, u64>,
        /// IDs of dead letters.
        dead: BTreeSet<String>,
        /// IDs of batches that are not done.
        batches: BTreeSet<String>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancel {
    BeforeItBegan,
    /// It may have run, or not.
    Sometime,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Done,
    Failed,
    /// The handler wants it again, which is no failed attempt.
    Again,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    WorkerKilled,
    ServerKilled,
    /// Another process has taken over, or all workers are new: what runs comes to its end.
    Handover,
    /// A process was stopped for a while.
    Stopped,
    BrokerKilled,
    /// The disk took no writes.
    Disk,
    /// The server's clock was set, by [`LONGEST_JUMP`] at most.
    ClockSet,
}

impl Fault {
    /// Whether it ends what runs, or keeps an end from being noted.
    const fn breaks_off(self) -> bool {
        !matches!(self, Self::Handover | Self::ClockSet)
    }
}

/// The server's clock is never further from the time of a history.
pub const LONGEST_JUMP: Duration = Duration::from_secs(3);

/// By which rules a pipeline works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Failed attempts, of which the last one makes a dead letter.
    pub attempts: u32,
    /// Jobs outlive the server.
    pub is_kept: bool,
    /// Nobody but this server has its jobs, so it tells all of them.
    pub is_ours: bool,
    /// Jobs that are with workers at a time, and so begin in no order of their own.
    pub at_a_time: usize,
    /// So many jobs may begin in such a time.
    pub rate: Option<(usize, Duration)>,
}

/// Something between an answer and what follows from it: a job may be on its way to a worker.
pub const ON_ITS_WAY: Duration = Duration::from_secs(1);

/// A promise, and how it is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Promise {
    NoLoss,
    NoGhost,
    AsPushed,
    Once,
    NoneAfterItsEnd,
    Attempts,
    DeadLetters,
    NotEarly,
    Expires,
    Order,
    Rate,
    Pause,
    Destroy,
    Clear,
    Cancel,
    Unique,
    Duplicates,
    Batch,
    AutoAck,
    Rest,
}

impl Promise {
    pub const ALL: [Self; 20] = [
        Self::NoLoss,
        Self::NoGhost,
        Self::AsPushed,
        Self::Once,
        Self::NoneAfterItsEnd,
        Self::Attempts,
        Self::DeadLetters,
        Self::NotEarly,
        Self::Expires,
        Self::Order,
        Self::Rate,
        Self::Pause,
        Self::Destroy,
        Self::Clear,
        Self::Cancel,
        Self::Unique,
        Self::Duplicates,
        Self::Batch,
        Self::AutoAck,
        Self::Rest,
    ];

    /// As the page has it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NoLoss => "no-loss",
            Self::NoGhost => "no-ghost",
            Self::AsPushed => "as-pushed",
            Self::Once => "once",
            Self::NoneAfterItsEnd => "none-after-its-end",
            Self::Attempts => "attempts",
            Self::DeadLetters => "dead-letters",
            Self::NotEarly => "not-early",
            Self::Expires => "expires",
            Self::Order => "order",
            Self::Rate => "rate",
            Self::Pause => "pause",
            Self::Destroy => "destroy",
            Self::Clear => "clear",
            Self::Cancel => "cancel",
            Self::Unique => "unique",
            Self::Duplicates => "duplicates",
            Self::Batch => "batch",
            Self::AutoAck => "auto-ack",
            Self::Rest => "rest",
        }
    }
}

/// A promise that a history breaks.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Broken {
    pub promise: Promise,
    pub how: String,
}

/// All that is known of one job.
#[derive(Default)]
struct Life<'h> {
    pushes: Vec<(&'h Job, Span, &'h Pushed)>,
    /// Attempt, begin, and the end where there is one.
    runs: Vec<Run<'h>>,
    cancelled: Option<(Span, Cancel)>,
}

struct Run<'h> {
    pipeline: &'h str,
    payload: &'h str,
    attempt: u32,
    began: Time,
    ended: Option<(Time, Outcome)>,
}

struct Seen<'h> {
    rules: &'h dyn Fn(&str) -> Rules,
    lives: BTreeMap<&'h str, Life<'h>>,
    faults: Vec<(Fault, Span)>,
    cleared: Vec<(&'h str, Span, Option<u64>)>,
    paused: Vec<(&'h str, Span)>,
    resumed: Vec<(&'h str, Span)>,
    destroyed: Vec<(&'h str, Span)>,
    declared: Vec<(&'h str, Span)>,
    rest: Option<AtRest<'h>>,
    broken: Vec<Broken>,
}

/// See [`Event::Rest`].
#[derive(Clone, Copy)]
struct AtRest<'h> {
    left: &'h BTreeMap<String, u64>,
    dead: &'h BTreeSet<String>,
    batches: &'h BTreeSet<String>,
}

/// The promises that a history breaks, in the order of promises. `rules` says those of a pipeline.
pub fn broken(history: &[Event], rules: &dyn Fn(&str) -> Rules) -> Vec<Broken> {
    let mut seen = Seen {
        rules,
        lives: BTreeMap::new(),
        faults: Vec::new(),
        cleared: Vec::new(),
        paused: Vec::new(),
        resumed: Vec::new(),
        destroyed: Vec::new(),
        declared: Vec::new(),
        rest: None,
        broken: Vec::new(),
    };
    for event in history {
        seen.note(event);
    }
    for life in seen.lives.values_mut() {
        life.runs.sort_by_key(|run| run.began);
    }
    let lives = std::mem::take(&mut seen.lives);
    for (id, life) in &lives {
        seen.of_job(id, life);
    }
    seen.order(&lives);
    seen.rate(&lives);
    seen.unique(&lives);
    seen.batches(&lives);
    seen.rest(&lives);
    seen.broken.sort();
    seen.broken
}

impl<'h> Seen<'h> {
    fn note(&mut self, event: &'h Event) {
        match event {
            Event::Push(job, span, pushed) => {
                let life = self.lives.entry(&job.id).or_default();
                life.pushes.push((job, *span, pushed));
            }
            Event::Began {
                id,
                pipeline,
                payload,
                attempt,
                at,
            } => {
                let life = self.lives.entry(id).or_default();
                life.runs.push(Run {
                    pipeline,
                    payload,
                    attempt: *attempt,
                    began: *at,
                    ended: None,
                });
            }
            Event::Ended {
                id,
                attempt,
                at,
                outcome,
            } => {
                let life = self.lives.entry(id).or_default();
                let runs = life.runs.iter_mut().rev();
                let mut open = runs.filter(|run| run.attempt == *attempt && run.ended.is_none());
                match open.find(|run| run.began <= *at) {
                    Some(run) => run.ended = Some((*at, *outcome)),
                    None => self.breaks(Promise::NoGhost, format!("{id} ended without a begin")),
                }
            }
            Event::Paused(pipeline, span) => self.paused.push((pipeline, *span)),
            Event::Resumed(pipeline, span) => self.resumed.push((pipeline, *span)),
            Event::Destroyed(pipeline, span) => self.destroyed.push((pipeline, *span)),
            Event::Declared(pipeline, span) => self.declared.push((pipeline, *span)),
            Event::Cleared(pipeline, span, count) => self.cleared.push((pipeline, *span, *count)),
            Event::Cancelled(id, span, when) => {
                self.lives.entry(id).or_default().cancelled = Some((*span, *when));
            }
            Event::Fault(fault, span) => self.faults.push((*fault, *span)),
            Event::Rest {
                left,
                dead,
                batches,
            } => {
                self.rest = Some(AtRest {
                    left,
                    dead,
                    batches,
                });
            }
        }
    }

    fn breaks(&mut self, promise: Promise, how: String) {
        self.broken.push(Broken { promise, how });
    }

    /// Whether something happened in this time that makes a job run again: it was broken off, or
    /// its end was not noted.
    fn broke_off(&self, from: Time, until: Time) -> bool {
        self.faults.iter().any(|(fault, span)| {
            fault.breaks_off() && span.sent <= until && span.answered + ON_ITS_WAY >= from
        })
    }

    /// Whether one of these faults fell into this time.
    fn had(&self, faults: &[Fault], from: Time, until: Time) -> bool {
        self.faults.iter().any(|(fault, span)| {
            faults.contains(fault) && span.sent <= until && span.answered >= from
        })
    }

    /// Whether another process has read the times of jobs by a clock that was set.
    fn has_misread_times(&self, rules: &Rules, from: Time, until: Time) -> bool {
        const PROCESSES: [Fault; 2] = [Fault::Handover, Fault::ServerKilled];
        // Wherever it stands now, it may have been set before.
        self.had(&[Fault::ClockSet], Time::ZERO, until)
            && (!rules.is_ours || self.had(&PROCESSES, from, until))
    }

    fn of_job(&mut self, id: &str, life: &Life<'h>) {
        let Some((job, pushed, _)) = life.pushes.first() else {
            if !life.runs.is_empty() {
                self.breaks(Promise::NoGhost, format!("{id} ran and was never pushed"));
            }
            return;
        };
        let refused = |(_, _, pushed): &(_, _, &Pushed)| {
            matches!(pushed, Pushed::Refused | Pushed::Duplicate(_))
        };
        if life.pushes.iter().all(refused) && !life.runs.is_empty() && job.last_of.is_none() {
            self.breaks(
                Promise::NoGhost,
                format!("{id} ran, and its push was refused"),
            );
        }
        let rules = (self.rules)(&job.pipeline);
        for run in &life.runs {
            if run.payload != job.payload || run.pipeline != job.pipeline {
                self.breaks(Promise::AsPushed, format!("{id} is not as it was pushed"));
            }
            // The last of a batch waits for the others, and then for its delay.
            let early = (pushed.sent + job.delay).saturating_sub(run.began);
            let is_misread = self.has_misread_times(&rules, pushed.sent, run.began);
            let explained = if is_misread {
                2 * LONGEST_JUMP
            } else {
                Duration::ZERO
            };
            if early > explained {
                self.breaks(Promise::NotEarly, format!("{id} began {early:?} too early"));
            }
            // It waits in its pipeline for the time when it can be a dead letter.
            let has_no_letter = self.had(&[Fault::Disk], pushed.sent, run.began);
            let most = if has_no_letter {
                u32::MAX
            } else {
                rules.attempts
            };
            if run.attempt == 0 || run.attempt > most {
                let attempt = run.attempt;
                self.breaks(
                    Promise::Attempts,
                    format!("{id}: attempt {attempt} of {most}"),
                );
            }
            let at_most = job
                .expires
                .map(|expires| pushed.answered + expires + ON_ITS_WAY);
            let is_set = self.had(&[Fault::ClockSet], Time::ZERO, run.began);
            if let Some(late) = at_most.and_then(|at| run.began.checked_sub(at))
                && !(is_set && late <= 2 * LONGEST_JUMP)
            {
                self.breaks(Promise::Expires, format!("{id} began {late:?} too late"));
            }
            let gone = halted_at(&self.destroyed, &self.declared, &job.pipeline, run.began);
            if let Some(since) = gone.filter(|since| !self.handed_over(*since, run.began)) {
                let late = run.began.saturating_sub(since);
                let how = format!("{id} began {late:?} after its pipeline was destroyed");
                self.breaks(Promise::Destroy, how);
            }
            let paused = self.paused_at(&job.pipeline, run.began);
            if let Some(since) = paused.filter(|_| !self.broke_off(run.began, run.began)) {
                let late = run.began.saturating_sub(since);
                self.breaks(Promise::Pause, format!("{id} began {late:?} after a pause"));
            }
        }
        for two in life.runs.windows(2) {
            self.of_two_runs(id, &two[0], &two[1]);
            self.auto_ack(id, job, &two[0], &two[1]);
        }
        if let Some((cancelled, Cancel::BeforeItBegan)) = life.cancelled {
            let begins = life.runs.iter().map(|run| run.began);
            if begins
                .into_iter()
                .any(|at| at > cancelled.answered + ON_ITS_WAY)
            {
                self.breaks(
                    Promise::Cancel,
                    format!("{id} began after it was cancelled"),
                );
            }
        }
    }

    fn of_two_runs(&mut self, id: &str, one: &Run<'_>, next: &Run<'_>) {
        let (attempt, then) = (one.attempt, next.attempt);
        match one.ended {
            None if !self.broke_off(one.began, next.began) => {
                self.breaks(
                    Promise::Once,
                    format!("{id} ran twice at a time, or was given up"),
                );
            }
            None => {}
            Some((ended, _)) if ended > next.began && !self.broke_off(one.began, next.began) => {
                self.breaks(Promise::Once, format!("{id} ran twice at a time"));
            }
            Some((ended, Outcome::Done)) if !self.broke_off(ended, next.began) => {
                let after = next.began.saturating_sub(ended);
                let how = format!("{id} ran again {after:?} after it was done");
                self.breaks(Promise::NoneAfterItsEnd, how);
            }
            Some((ended, Outcome::Failed))
                if then != attempt + 1 && !self.broke_off(ended, next.began) =>
            {
                let how = format!("{id}: attempt {then} follows attempt {attempt}, which failed");
                self.breaks(Promise::Attempts, how);
            }
            Some(_) => {}
        }
        if then < attempt {
            let how = format!("{id}: attempt {then} follows attempt {attempt}");
            self.breaks(Promise::Attempts, how);
        }
    }

    /// It may run again if it could not leave its pipeline.
    fn auto_ack(&mut self, id: &str, job: &Job, one: &Run<'_>, next: &Run<'_>) {
        const KEEP_IT: [Fault; 4] = [
            Fault::ServerKilled,
            Fault::Stopped,
            Fault::BrokerKilled,
            Fault::Disk,
        ];
        let from = one.began.saturating_sub(ON_ITS_WAY);
        if job.auto_ack && !self.had(&KEEP_IT, from, next.began) {
            let how = format!("{id} ran again, and counted as done when it began");
            self.breaks(Promise::AutoAck, how);
        }
    }

    /// Since when a pipeline has been paused so long at this time that nothing is on its way.
    fn paused_at(&self, pipeline: &str, at: Time) -> Option<Time> {
        let since = halted_at(&self.paused, &self.resumed, pipeline, at)?;
        // A process that starts consumes what its configuration says.
        let begins_anew = self.handed_over(since, at) || self.broke_off(since, at);
        (!begins_anew).then_some(since)
    }

    /// In no time of the length of a rate do more jobs begin than it allows, but for those on their
    /// way. Each process counts for itself.
    fn rate(&mut self, lives: &BTreeMap<&'h str, Life<'h>>) {
        let mut begins: BTreeMap<&str, Vec<Time>> = BTreeMap::new();
        for run in lives.values().flat_map(|life| &life.runs) {
            begins.entry(run.pipeline).or_default().push(run.began);
        }
        for (pipeline, mut begins) in begins {
            let Some((jobs, per)) = (self.rules)(pipeline).rate else {
                continue;
            };
            begins.sort_unstable();
            for window in begins.windows(jobs + 1) {
                let (first, last) = (window[0], window[jobs]);
                let took = last.saturating_sub(first);
                let is_too_short = took + ON_ITS_WAY < per;
                let anew = [Fault::Handover, Fault::ServerKilled];
                if is_too_short && !self.had(&anew, first.saturating_sub(per), last) {
                    let how = format!("{} jobs of {pipeline} began in {took:?}", jobs + 1);
                    self.breaks(Promise::Rate, how);
                }
            }
        }
    }

    /// The jobs of one pipeline and priority that could run at once. A pipeline whose jobs run side
    /// by side gives them out in order, too, but they begin as workers come to them.
    fn order(&mut self, lives: &BTreeMap<&'h str, Life<'h>>) {
        let mut queues: HashMap<(&str, i64), Vec<First<'_>>> = HashMap::new();
        for (id, life) in lives {
            let ([(job, span, Pushed::Kept)], Some(run)) = (&life.pushes[..], life.runs.first())
            else {
                continue;
            };
            let is_plain = job.delay.is_zero() && job.last_of.is_none();
            if is_plain && (self.rules)(&job.pipeline).at_a_time == 1 {
                let queue = queues.entry((&job.pipeline, job.priority)).or_default();
                queue.push((*span, run.began, id));
            }
        }
        for mut queue in queues.into_values() {
            queue.sort_by_key(|(_, began, _)| *began);
            // The latest push of those that began before.
            let mut latest: Option<First<'_>> = None;
            for (span, began, id) in queue {
                if let Some((before, first, other)) = latest
                    && span.answered < before.sent
                    && !self.broke_off(span.sent, began)
                    && !self.handed_over(span.sent, began)
                {
                    let by = began.saturating_sub(first);
                    let how =
                        format!("{other} began {by:?} before {id}, which was pushed before it");
                    self.breaks(Promise::Order, how);
                }
                if latest.is_none_or(|(before, ..)| span.sent > before.sent) {
                    latest = Some((span, began, id));
                }
            }
        }
    }

    fn handed_over(&self, from: Time, until: Time) -> bool {
        self.had(&[Fault::Handover], from, until)
    }

    /// Whether a job was there for certain: pushed before, and not at its end.
    fn unique(&mut self, lives: &BTreeMap<&'h str, Life<'h>>) {
        let mut by_key: HashMap<&str, Vec<(&str, &Life<'h>)>> = HashMap::new();
        for (id, life) in lives {
            if let [(job, _, _)] = &life.pushes[..]
                && let Some(key) = &job.key
            {
                by_key.entry(key).or_default().push((id, life));
            }
        }
        for (key, jobs) in by_key {
            for (id, life) in &jobs {
                let (_, span, pushed) = life.pushes[0];
                match pushed {
                    Pushed::Kept => {
                        let held = |(other, theirs): &&(&str, &Life<'h>)| {
                            other != id && self.surely_there(theirs, span)
                        };
                        if let Some((other, _)) = jobs.iter().find(held) {
                            let how = format!("{id} was kept while {other} had its key {key}");
                            self.breaks(Promise::Unique, how);
                        }
                    }
                    Pushed::Duplicate(of) => {
                        let holder = jobs.iter().find(|(other, _)| other == of);
                        let is_right = holder.is_some_and(|(_, it)| self.maybe_there(it, span));
                        if !is_right {
                            let how = format!("{id} was refused for {of}, which had no key {key}");
                            self.breaks(Promise::Duplicates, how);
                        }
                    }
                    Pushed::Refused | Pushed::Unknown => {}
                }
            }
        }
    }

    /// It was kept before the span began and had not begun its last run when it ended.
    fn surely_there(&self, life: &Life<'_>, span: Span) -> bool {
        let (job, pushed, outcome) = life.pushes[0];
        let is_kept = *outcome == Pushed::Kept && pushed.answered < span.sent;
        let ended = life.runs.iter().filter_map(|run| run.ended);
        let ended = ended
            .filter(|(_, it)| *it != Outcome::Again)
            .map(|(at, _)| at);
        let comes_later = ended
            .max()
            .is_some_and(|at| at > span.answered + ON_ITS_WAY);
        let first_end = life
            .runs
            .iter()
            .filter_map(|run| run.ended)
            .map(|(at, _)| at)
            .min();
        let had_none = first_end.is_none_or(|at| at > span.answered + ON_ITS_WAY);
        let was_taken_away = life.cancelled.is_some()
            || self.cleared.iter().any(|(of, ..)| *of == job.pipeline)
            || job.expires.is_some();
        // A pipeline in memory takes its keys with it, and has none while it moves to another
        // process. Keys of jobs in a broker end with the process.
        let rules = (self.rules)(&job.pipeline);
        let is_forgotten = !(rules.is_kept && rules.is_ours)
            && (self.faults.iter())
                .any(|(fault, _)| matches!(fault, Fault::ServerKilled | Fault::Handover));
        is_kept && comes_later && had_none && !was_taken_away && !is_forgotten
    }

    /// It may have had its key at some time of the span.
    fn maybe_there(&self, life: &Life<'_>, span: Span) -> bool {
        let (_, pushed, outcome) = life.pushes[0];
        let was_kept = matches!(outcome, Pushed::Kept | Pushed::Unknown);
        let done = life.runs.iter().filter_map(|run| run.ended);
        let done = done
            .filter(|(_, it)| *it == Outcome::Done)
            .map(|(at, _)| at);
        let is_over = done
            .max()
            .is_some_and(|at| at + ON_ITS_WAY < span.sent && !self.broke_off(at, span.answered));
        was_kept && pushed.sent <= span.answered && !is_over
    }

    fn batches(&mut self, lives: &BTreeMap<&'h str, Life<'h>>) {
        let mut parts: HashMap<&str, Vec<(&str, &Life<'h>)>> = HashMap::new();
        for (id, life) in lives {
            for (job, ..) in &life.pushes {
                if let Some(batch) = &job.batch {
                    parts.entry(batch).or_default().push((id, life));
                }
            }
        }
        for (id, life) in lives {
            let of = life
                .pushes
                .iter()
                .find_map(|(job, ..)| job.last_of.as_deref());
            let (Some(batch), Some(first)) = (of, life.runs.first()) else {
                continue;
            };
            for (part, theirs) in parts.get(batch).into_iter().flatten() {
                // One that was taken away has no run.
                let last = theirs.runs.last();
                let runs = last.is_some_and(|run| run.began < first.began && run.ended.is_none());
                let comes = theirs
                    .runs
                    .first()
                    .is_some_and(|run| run.began > first.began);
                if (runs || comes) && !self.broke_off(Time::ZERO, first.began) {
                    let how = format!("{id} ran before {part} of its batch had come to its end");
                    self.breaks(Promise::Batch, how);
                }
            }
        }
    }

    fn rest(&mut self, lives: &BTreeMap<&'h str, Life<'h>>) {
        let Some(AtRest {
            left,
            dead,
            batches,
        }) = self.rest
        else {
            return;
        };
        for batch in batches {
            let pushes = lives.get(&**batch).into_iter().flat_map(|it| &it.pushes);
            if pushes.into_iter().any(|(.., it)| **it == Pushed::Kept) {
                let how = format!("{batch} is the last job of a batch that has not ended");
                self.breaks(Promise::Batch, how);
            }
        }
        for (pipeline, count) in left.iter().filter(|(_, count)| **count > 0) {
            self.breaks(
                Promise::Rest,
                format!("{count} jobs are left in {pipeline}"),
            );
        }
        let lost_with_the_server = |pipeline: &str, faults: &[(Fault, Span)]| {
            let kills = faults
                .iter()
                .any(|(fault, _)| *fault == Fault::ServerKilled);
            kills && !(self.rules)(pipeline).is_kept
        };
        let mut missing: BTreeMap<&str, Vec<&Job>> = BTreeMap::new();
        let mut pushed_at = HashMap::new();
        let mut broken = Vec::new();
        for (id, life) in lives {
            let kept = life
                .pushes
                .iter()
                .find(|(.., pushed)| **pushed == Pushed::Kept);
            let Some((job, pushed, _)) = kept else {
                continue;
            };
            let rules = (self.rules)(&job.pipeline);
            let done = life
                .runs
                .iter()
                .any(|run| matches!(run.ended, Some((_, Outcome::Done))));
            let failed = life
                .runs
                .iter()
                .filter(|run| run.ended.is_none_or(|(_, it)| it == Outcome::Failed));
            let last = life.runs.iter().map(|run| run.attempt).max().unwrap_or(0);
            let is_dead = dead.contains(*id);
            if job.auto_ack && is_dead && !self.had(&[Fault::Disk], Time::ZERO, Time::MAX / 2) {
                let how = format!("{id} is a dead letter, and counted as done when it began");
                broken.push((Promise::AutoAck, how));
            }
            // It may have left its pipeline before its handler began.
            let has_left = !life.runs.is_empty() || self.broke_off(pushed.sent, Time::MAX / 2);
            if job.auto_ack && has_left {
                continue;
            }
            // A worker may be killed before its handler has noted that it began.
            let unseen = self.had(&[Fault::WorkerKilled], pushed.sent, Time::MAX / 2);
            let most = last + u32::from(unseen);
            if is_dead
                && (most < rules.attempts || done && !self.broke_off(Time::ZERO, Time::MAX / 2))
            {
                let how = format!(
                    "{id} is a dead letter after {last} of {} attempts",
                    rules.attempts
                );
                broken.push((Promise::DeadLetters, how));
            }
            let is_over = done || is_dead || life.cancelled.is_some() || job.expires.is_some();
            if is_over || lost_with_the_server(&job.pipeline, &self.faults) {
                continue;
            }
            let latest = life.runs.iter().max_by_key(|run| run.began);
            // While the disk takes no dead letter, it waits in its pipeline, and can be cleared.
            let waits = latest.is_some_and(|run| {
                let ended = run.ended.map_or(run.began, |(at, _)| at);
                self.had(&[Fault::Disk], run.began, ended + ON_ITS_WAY)
            });
            if failed.count() > 0 && last >= rules.attempts && !waits {
                let how = format!("{id} has failed {last} times, and is no dead letter");
                broken.push((Promise::DeadLetters, how));
            } else {
                missing.entry(&job.pipeline).or_default().push(job);
                pushed_at.insert(*id, pushed.sent);
            }
        }
        for (pipeline, mut missing) in missing {
            missing.sort_by_key(|job| std::cmp::Reverse(pushed_at[&*job.id]));
            if let Some(lost) = self.lost(pipeline, &missing, &pushed_at) {
                broken.push((Promise::NoLoss, lost));
            }
        }
        for (promise, how) in broken {
            self.breaks(promise, how);
        }
        self.cleared(lives);
    }

    /// The latest of these jobs, if more of them have come to no end than were cleared since their
    /// pushes. A clear takes away what was pushed before its answer.
    fn lost(
        &self,
        pipeline: &str,
        latest_first: &[&Job],
        pushed_at: &HashMap<&str, Time>,
    ) -> Option<String> {
        let cleared = self.cleared.iter().filter(|(of, ..)| *of == pipeline);
        let cleared: Vec<_> = cleared.map(|(_, span, count)| (span, count)).collect();
        for missing in 1..=latest_first.len() {
            let since = pushed_at[&*latest_first[missing - 1].id];
            let after = cleared.iter().filter(|(span, _)| span.answered > since);
            let counts: Option<Vec<u64>> = after.map(|(_, count)| **count).collect();
            let explained: u64 = counts?.into_iter().sum();
            if missing as u64 > explained {
                let ids = latest_first[..missing].iter().map(|job| {
                    let of = job.batch.as_ref().map(|of| format!(", of batch {of}"));
                    let last = job.last_of.as_ref().map(|_| ", the last of its batch");
                    let key = job.key.as_ref().map(|key| format!(", key {key}"));
                    let all = [of, last.map(str::to_owned), key];
                    format!(
                        "{}{}",
                        job.id,
                        all.into_iter().flatten().collect::<String>()
                    )
                });
                let ids = ids.collect::<Vec<_>>().join("; ");
                return Some(format!(
                    "{ids}: {missing} jobs of {pipeline} came to no end, and {explained} were cleared since"
                ));
            }
        }
        None
    }

    /// A job that was there before and has not run when the answer came does not run afterwards.
    fn cleared(&mut self, lives: &BTreeMap<&'h str, Life<'h>>) {
        for (pipeline, span, count) in self.cleared.clone() {
            let rules = (self.rules)(pipeline);
            // Jobs in memory are in no pipeline while they move to another process.
            let move_on = !rules.is_kept && self.handed_over(span.sent, span.answered);
            if count.is_none() || !rules.is_ours || move_on {
                continue;
            }
            for (id, life) in lives {
                let [(job, pushed, Pushed::Kept)] = &life.pushes[..] else {
                    continue;
                };
                let was_there = job.pipeline == pipeline
                    && job.last_of.is_none()
                    && pushed.answered < span.sent;
                let begins = life.runs.first().map(|run| run.began);
                if was_there && begins.is_some_and(|at| at > span.answered + ON_ITS_WAY) {
                    self.breaks(
                        Promise::Clear,
                        format!("{id} ran after {pipeline} was cleared"),
                    );
                }
            }
        }
    }
}

/// Since when a pipeline gives out no jobs at this time, if for so long that none is on its way.
fn halted_at(
    halts: &[(&str, Span)],
    starts: &[(&str, Span)],
    pipeline: &str,
    at: Time,
) -> Option<Time> {
    let halts = halts.iter().filter(|(of, _)| *of == pipeline);
    let last = halts
        .map(|(_, span)| span.answered)
        .filter(|since| *since <= at);
    let since = last.max()?;
    let starts = starts.iter().filter(|(of, _)| *of == pipeline);
    let mut starts = starts.map(|(_, span)| (span.sent, span.answered));
    // One that is asked for while another is may come first.
    let is_started = starts.any(|(sent, answered)| answered >= since && sent <= at);
    (!is_started && since + ON_ITS_WAY < at).then_some(since)
}

#[cfg(test)]
mod tests;
