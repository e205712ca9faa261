//! Takes jobs out of pipelines when workers are free, and says what became of them.

mod judge;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

use bytes::Bytes;
use pronghorn_base::{Backoff, BoxFuture, LogThrottle, now_ms};
use pronghorn_config::show_duration;
use pronghorn_pool::{Answer, CallError, NotWhole, Pieces, Pool, ReplyBody, Terms, WorkerFault};
use pronghorn_queue::options::JobOptions;
use pronghorn_queue::{DriverError, Job, Settlement, Ticket};
use pronghorn_wire::Head;
use pronghorn_wire::native::JobReply;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use self::judge::{End, Judged, judge, too_long};
use crate::batches::Part;
use crate::call::JobCall;
use crate::keys::scoped;
use crate::metrics::OutcomeLabel;
use crate::pipelines::{HeldFor, Holding, Occupied, Pipeline, Pipelines, Work};
use crate::reason::Reason;
use crate::recent::Ending;
use crate::results::Dropped;

/// How often it is looked whether there are workers while there is none.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// How long a pipeline is asked to take note of a job that has run: a full disk may have room then,
/// and a broker memory, and what has run does not run again.
const SETTLE_FOR: Duration = Duration::from_mins(5);
/// The first wait between two tries, and the longest one.
const SETTLE_AGAIN: Duration = Duration::from_millis(200);
const SETTLE_SELDOM: Duration = Duration::from_secs(5);

/// How long a job waits that names a pool which is not there.
const WITHOUT_POOL: Duration = Duration::from_mins(1);
/// The longest answer that is read: longer than a result that is kept, for reasons of failures that
/// RoadRunner's packages send.
const LONGEST_ANSWER: usize = 16 << 20;
/// How long a job waits that is given up and can't be kept as a dead letter.
const WITHOUT_LETTER: Duration = Duration::from_mins(1);

/// Those who run jobs.
pub(crate) trait Runners: Send + Sync + 'static {
    /// How many jobs they can run at a time, now.
    fn places(&self) -> usize;

    /// How many more they would have at hand, as they are quick at those that they run.
    fn room(&self) -> usize;

    fn run(&self, call: JobCall) -> BoxFuture<'static, Attempt>;
}

/// A job's time with a worker.
#[derive(Debug)]
pub(crate) struct Attempt {
    pub(crate) outcome: Outcome,
    /// Of the worker, where one has had it.
    pub(crate) pid: Option<u32>,
}

impl From<Outcome> for Attempt {
    fn from(outcome: Outcome) -> Self {
        Self { outcome, pid: None }
    }
}

/// What came of a job at a worker.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// The body of an answer of RoadRunner's packages.
    Answered(Bytes),
    /// An answer of ours, and its body.
    Replied(JobReply, Bytes),
    /// It threw, or answered with a text instead.
    Reported(Reason),
    /// No worker has had it, or the server has ended the one that had it.
    NotTaken(String),
    /// A worker had it at hand, and takes longer for the one before it than was expected.
    NotBegun,
    /// The worker died of it, or it took too long.
    Lost(Reason),
    /// It does not run any more.
    Dropped(Dropped),
}

/// What consumers of one server share: each has the workers of one pool.
#[derive(Clone, Default)]
pub(crate) struct Handoffs(Arc<BTreeMap<String, mpsc::Sender<Work>>>);

/// Jobs that other consumers have taken for the workers of this one.
pub(crate) type Inbox = mpsc::Receiver<Work>;

impl Handoffs {
    /// For these pools, each with its inbox.
    pub(crate) fn between<'a>(pools: impl Iterator<Item = &'a str>) -> (Self, Vec<Inbox>) {
        let (mut senders, mut inboxes) = (BTreeMap::new(), Vec::new());
        for pool in pools {
            // One waits in it, the others where they were taken.
            let (sender, inbox) = mpsc::channel(1);
            senders.insert(pool.to_owned(), sender);
            inboxes.push(inbox);
        }
        (Self(Arc::new(senders)), inboxes)
    }
}

/// Runs the jobs of the pipelines that have this pool.
pub(crate) struct Consumer<R> {
    pipelines: Pipelines,
    pool: String,
    handoffs: Handoffs,
    inbox: Inbox,
    runners: R,
    /// At a time; what the operator allows.
    most: usize,
    unsettled: Arc<LogThrottle>,
}

impl<R: Runners> Consumer<R> {
    pub(crate) fn new(
        pipelines: Pipelines,
        pool: &str,
        (handoffs, inbox): (Handoffs, Inbox),
        runners: R,
        most: Option<usize>,
    ) -> Self {
        Self {
            pipelines,
            pool: pool.to_owned(),
            handoffs,
            inbox,
            runners,
            most: most.unwrap_or(usize::MAX),
            unsettled: Arc::default(),
        }
    }

    /// Until `end`; then it waits for what runs. Dropped, it leaves that to its pipelines.
    pub(crate) async fn work(mut self, end: CancellationToken) {
        // A job has its place until a worker is free again, and then until it is settled.
        let (mut running, mut settling) = (JoinSet::new(), JoinSet::new());
        // Those for other pools wait until one of their workers is free.
        let mut moving = JoinSet::new();
        let mut moved_last = false;
        loop {
            let places = self.runners.places().min(self.most);
            let free = places.saturating_sub(running.len());
            if free == 0 {
                self.pipelines.dispatch().want(&self.pool, 0);
            }
            let room = running.len() < self.most && self.runners.room() > 0;
            tokio::select! {
                biased;
                () = end.cancelled() => break,
                Some(ran) = running.join_next() => {
                    // A panic in it was reported when it happened; the job stays reserved.
                    if let Ok(ran) = ran {
                        settling.spawn(self.settle(ran));
                    }
                }
                Some(_) = settling.join_next() => {}
                Some(_) = moving.join_next() => {}
                next = self.next(free, moved_last), if free > 0 || room => {
                    moved_last = matches!(next, Next::Moved(_));
                    match next {
                        Next::Moved(work) => _ = running.spawn(self.run(work)),
                        Next::Own(work) => match self.way_of(&work) {
                            Way::Here => _ = running.spawn(self.run(work)),
                            Way::There(other) => {
                                let held = work.pipeline.hold(HeldFor::Pool);
                                moving.spawn(hand_over(work, held, other));
                            }
                            Way::Nowhere => {
                                let held = work.pipeline.hold(HeldFor::Pool);
                                moving.spawn(send_back(self.pipelines.clone(), work, held));
                            }
                        },
                    }
                }
                // Workers come without a word to us.
                () = sleep(LOOK_AGAIN), if running.len() >= places => {}
            }
        }
        self.pipelines.dispatch().want(&self.pool, 0);
        while let Some(ran) = running.join_next().await {
            if let Ok(ran) = ran {
                settling.spawn(self.settle(ran));
            }
        }
        self.inbox.close();
        while let Some(work) = self.inbox.recv().await {
            give_back(&work.pipeline, work.delivery.ticket).await;
        }
        while moving.join_next().await.is_some() {}
        while settling.join_next().await.is_some() {}
    }

    /// The next job for so many free workers. Those of the pool's own pipelines and those that
    /// other consumers have taken for it take turns. Cancel safe.
    async fn next(&mut self, free: usize, moved_last: bool) -> Next {
        let (own, inbox) = (
            self.pipelines.dispatch().next(&self.pool, free),
            &mut self.inbox,
        );
        if free == 0 || moved_last {
            tokio::select! {
                biased;
                work = own => Next::Own(work),
                Some(work) = inbox.recv(), if free > 0 => Next::Moved(work),
            }
        } else {
            tokio::select! {
                biased;
                Some(work) = inbox.recv() => Next::Moved(work),
                work = own => Next::Own(work),
            }
        }
    }

    /// Whose workers a job is for.
    fn way_of(&self, work: &Work) -> Way {
        match work.delivery.job.pool() {
            None => Way::Here,
            Some(named) if named == self.pool => Way::Here,
            Some(named) => match self.handoffs.0.get(named) {
                Some(other) => Way::There(other.clone()),
                None => Way::Nowhere,
            },
        }
    }

    fn run(&self, work: Work) -> impl Future<Output = Ran> + use<R> {
        let Work {
            pipeline,
            delivery,
            place,
        } = work;
        let job = delivery.job.clone();
        let extras = JobOptions::of(&job.headers);
        let (pipelines, keys) = (self.pipelines.clone(), self.pipelines.keys().clone());
        let begun = if extras.is_expired(now_ms()) {
            Err(Dropped::Expired)
        } else {
            let token = keys.run(&job, &pipeline.name).ok_or(Dropped::Cancelled);
            if extras.wants_result {
                // Also one that another process has pushed.
                self.pipelines.results().expect(&pipeline.name, &job.id);
            }
            if token.is_ok() {
                let (id, name, pool) = (&job.id, &job.name, &self.pool);
                let (pipeline, attempt) = (&pipeline.name, job.attempts.saturating_add(1));
                tracing::debug!(target: "jobs", id, job = name, pipeline, attempt, pool, "an attempt begins");
            }
            token.map(|token| (token, self.runners.run(call_of(&pipeline, &job, &extras))))
        };
        async move {
            let began = Instant::now();
            let mut ticket = Some(delivery.ticket);
            let Attempt { outcome, pid } = match begun {
                Err(why) => Outcome::Dropped(why).into(),
                Ok((token, attempt)) => {
                    if let Some(key) = &extras.unique {
                        keys.begun(&scoped(&pipeline.name, key), &job.id);
                    }
                    if job.auto_ack {
                        // A pipeline that does not take note of it gives the job again.
                        if leaves(&pipelines, &pipeline, &job.id, &extras, delivery.ticket).await {
                            ticket = None;
                        }
                    }
                    let attempt = tokio::select! {
                        attempt = attempt => attempt,
                        () = token.cancelled() => Outcome::Dropped(Dropped::Cancelled).into(),
                    };
                    keys.ran(&job);
                    // The client was told that it is cancelled, and another job may have its key.
                    if token.is_cancelled() {
                        Outcome::Dropped(Dropped::Cancelled).into()
                    } else {
                        attempt
                    }
                }
            };
            if matches!(outcome, Outcome::NotTaken(_)) {
                // It goes back, and is the next one: not in a circle as fast as it can.
                sleep(LOOK_AGAIN).await;
            }
            Ran {
                pipeline,
                job,
                extras,
                ticket,
                outcome,
                pid,
                took: began.elapsed(),
                place,
            }
        }
    }

    /// What an attempt came to, for the log.
    fn tell(
        &self,
        pipeline: &Pipeline,
        job: &Job,
        judged: &Judged,
        pid: Option<u32>,
        took: Duration,
    ) {
        let (id, name, pool) = (&job.id, &job.name, &self.pool);
        let (attempt, most) = (
            job.attempts.saturating_add(1),
            pipeline.rules.retry.most_attempts(job),
        );
        let (pipeline, label) = (&pipeline.name, judged.label());
        let took_ms = pronghorn_base::millis(took);
        let Some(why) = &judged.remark else {
            if let Settlement::Failed { delay } = &judged.settlement {
                let again = in_time(*delay);
                tracing::info!(target: "jobs", id, job = name, pipeline, attempt, pool, pid, took_ms, "attempt {attempt} of {most}: its handler wants it again {again}");
                return;
            }
            let outcome = label.text();
            tracing::debug!(target: "jobs", id, job = name, pipeline, attempt, pool, pid, took_ms, "an attempt has ended: {outcome}");
            return;
        };
        let failed = format!("attempt {attempt} of {most} failed: {why}");
        let said = match (label, &judged.settlement) {
            // It counts as done since it began.
            (OutcomeLabel::GivenUp, _) if job.auto_ack => failed,
            (OutcomeLabel::GivenUp, _) => format!("{failed}; the job is a dead letter now"),
            (_, Settlement::Failed { delay }) => format!("{failed}; again {}", in_time(*delay)),
            (_, Settlement::Requeue { delay, .. } | Settlement::Nack { delay }) => {
                format!("its handler wants it again {}: {why}", in_time(*delay))
            }
            _ => why.clone(),
        };
        tracing::warn!(target: "jobs", id, job = name, pipeline, attempt, pool, pid, took_ms, "{said}");
    }

    fn settle(&self, ran: Ran) -> impl Future<Output = ()> + use<R> {
        let Ran {
            pipeline,
            job,
            extras,
            ticket,
            outcome,
            pid,
            took,
            place,
        } = ran;
        let is_news = !matches!(outcome, Outcome::NotBegun);
        // It has left its pipeline, and can't come again.
        let is_last = ticket.is_none();
        let judged = judge(&job, &pipeline.rules.retry, outcome, is_last);
        if let Some(verdict) = judged.verdict {
            self.pipelines.metrics().ran(verdict);
            pipeline.metrics.took(took);
        }
        if is_news {
            pipeline.metrics.came_to(judged.label());
            self.pipelines.recent().note(|| Ending {
                number: 0,
                at: 0,
                pipeline: pipeline.name.clone(),
                id: job.id.clone(),
                job: job.name.clone(),
                attempt: job.attempts.saturating_add(1),
                outcome: judged.label().text(),
                why: judged.remark.clone(),
            });
        }
        if is_news {
            self.tell(&pipeline, &job, &judged, pid, took);
        }
        let held = pipeline.hold(HeldFor::Note);
        let unsettled = Unsettled {
            pipelines: self.pipelines.clone(),
            unsettled: self.unsettled.clone(),
            pipeline,
            job,
            extras,
            ticket,
        };
        async move {
            let pipelines = unsettled.pipelines.clone();
            unsettled.conclude(judged).await;
            // Its pipeline counts it until here.
            drop(held);
            pipelines.free(place).await;
        }
    }
}

/// A job that has left its worker and is not settled.
struct Unsettled {
    pipelines: Pipelines,
    unsettled: Arc<LogThrottle>,
    pipeline: Arc<Pipeline>,
    job: Arc<Job>,
    extras: JobOptions,
    ticket: Option<Ticket>,
}

impl Unsettled {
    /// Dead letters and the batch are told before the pipeline: a crash in between makes the job
    /// run again, and loses nothing.
    async fn conclude(self, judged: Judged) {
        let Judged {
            mut settlement,
            mut end,
            remark,
            ..
        } = judged;
        if !self.is_noted(end.as_ref()).await {
            settlement = Settlement::Failed {
                delay: WITHOUT_LETTER,
            };
            end = None;
        }
        if let Some(ticket) = self.ticket {
            let mut settled = settle_at_last(&self.pipeline, ticket, settlement).await;
            if let (Err(DriverError::Unfit(why)), None) = (&settled, &end) {
                let given_up = self.without_place(remark, why);
                if self.is_noted(Some(&given_up)).await {
                    end = Some(given_up);
                    settled = settle_at_last(&self.pipeline, ticket, Settlement::Reject).await;
                } else {
                    sleep(WITHOUT_LETTER).await;
                }
            }
            if let Err(error) = settled {
                give_back(&self.pipeline, ticket).await;
                if let Some(times) = self.unsettled.should_log() {
                    let (id, pipeline) = (&self.job.id, &self.pipeline.name);
                    tracing::error!(target: "jobs", id, pipeline, times, "the job has run and will run again: {error}");
                }
                return;
            }
        }
        match end {
            Some(end) => {
                let Self { pipeline, job, .. } = &self;
                let failed = end.has_failed();
                self.pipelines
                    .ended(pipeline, job, &self.extras, end.into());
                self.pipelines
                    .tell_late_followers(patience(), pipeline, job, &self.extras, failed)
                    .await;
            }
            None if self.extras.can_expire() => self.pipelines.admission().can_expire(),
            None => {}
        }
    }

    /// Gives up a job that its pipeline does not take again, as it has grown by its attempts.
    fn without_place(&self, remark: Option<String>, why: &str) -> End {
        let (id, pipeline) = (&self.job.id, &self.pipeline.name);
        tracing::warn!(target: "jobs", id, pipeline, "the job can't be kept for another attempt, so it is a dead letter now: {why}");
        let failed = remark.unwrap_or_else(|| "its handler wants it again".to_owned());
        End::GivenUp(format!("{failed}; it can't be kept for another attempt: {why}").into())
    }

    /// Tells those who keep something of a job's end. False: one of them can't, so it is no end.
    async fn is_noted(&self, end: Option<&End>) -> bool {
        let Self { pipeline, job, .. } = self;
        let (id, name) = (&job.id, &pipeline.name);
        if let (Some(End::GivenUp(why)), Some(_)) = (end, self.ticket) {
            let attempts = job.attempts.saturating_add(1);
            let kept = self.pipelines.dead().keep(name, job, attempts, why.full());
            match kept.await {
                Ok(()) => self.pipelines.metrics().died(),
                Err(error) => {
                    if let Some(times) = self.unsettled.should_log() {
                        tracing::error!(target: "jobs", id, pipeline = name, times, "no dead letter can be kept, so the job will run again: {error}");
                    }
                    return false;
                }
            }
        }
        if let Some(end) = end {
            // The end of the job stands, whatever becomes of its batch.
            let failed = end.has_failed();
            self.pipelines
                .tell_batches_at_last(patience(), pipeline, job, &self.extras, failed)
                .await;
        }
        true
    }
}

/// A job counts as done and leaves its pipeline, as it begins. Its batch knows before that it ends
/// with this process. False: it stays until it has ended.
pub(crate) async fn leaves(
    pipelines: &Pipelines,
    pipeline: &Pipeline,
    id: &str,
    extras: &JobOptions,
    ticket: Ticket,
) -> bool {
    let is_known = match Part::of(id, extras) {
        Some(part) => pipelines.hold_in_batch(pipeline, part).await,
        None => true,
    };
    is_known
        && pipeline
            .driver
            .settle(ticket, Settlement::Ack)
            .await
            .is_ok()
}

/// Until when the store is asked to take the end of a job that has run.
fn patience() -> Instant {
    Instant::now() + SETTLE_FOR
}

/// When, for a record: to the millisecond, and what takes long to the second.
fn in_time(delay: Duration) -> String {
    const LONG: Duration = Duration::from_secs(10);
    if delay.is_zero() {
        return "at once".to_owned();
    }
    if delay >= LONG {
        let seconds = Duration::from_secs(delay.as_secs());
        return format!("in {}", show_duration(seconds));
    }
    let delay = Duration::from_millis(pronghorn_base::millis(delay));
    format!("in {delay:?}")
}

/// A job that has left its worker.
struct Ran {
    pipeline: Arc<Pipeline>,
    job: Arc<Job>,
    extras: JobOptions,
    /// None when it counts as done since it began.
    ticket: Option<Ticket>,
    outcome: Outcome,
    pid: Option<u32>,
    /// Since it was given to workers.
    took: Duration,
    place: Occupied,
}

fn call_of(pipeline: &Pipeline, job: &Arc<Job>, extras: &JobOptions) -> JobCall {
    JobCall {
        job: job.clone(),
        pipeline: pipeline.name.clone(),
        queue: pipeline.driver.queue().map(ToOwned::to_owned),
        driver: pipeline.driver_name,
        deadline: extras.deadline.or(pipeline.rules.deadline),
        wants_result: extras.wants_result,
        // The others have lost something by being taken: their key, what their rate allows.
        can_go_back: pipeline.is_ours()
            && pipeline.rules.rate.is_none()
            && !job.auto_ack
            && extras.unique.is_none(),
        calls: None,
        pid: AtomicU32::new(0),
    }
}

/// A job for this pool.
enum Next {
    /// Another consumer has taken it.
    Moved(Work),
    /// A pipeline of this pool had it. It may be for another one.
    Own(Work),
}

/// Where a job runs.
enum Way {
    Here,
    There(mpsc::Sender<Work>),
    /// There is no pool of the name that it has; a push with it is refused, but a broker has any.
    Nowhere,
}

/// Waits until a worker of that pool is free.
async fn hand_over(work: Work, _held: Holding, to: mpsc::Sender<Work>) {
    if let Err(unsent) = to.send(work).await {
        give_back(&unsent.0.pipeline, unsent.0.delivery.ticket).await;
    }
}

async fn send_back(pipelines: Pipelines, work: Work, _held: Holding) {
    let (id, pool) = (&work.delivery.job.id, work.delivery.job.pool());
    tracing::warn!(target: "jobs", id, pool, "there is no such pool: the job is tried again in a minute");
    let settlement = Settlement::Nack {
        delay: WITHOUT_POOL,
    };
    let driver = &work.pipeline.driver;
    if driver
        .settle(work.delivery.ticket, settlement)
        .await
        .is_err()
    {
        give_back(&work.pipeline, work.delivery.ticket).await;
    }
    pipelines.free(work.place).await;
}

async fn give_back(pipeline: &Pipeline, ticket: Ticket) {
    let released = pipeline.driver.settle(ticket, Settlement::Release);
    _ = released.await; // a pipeline that does not answer gives it out again by itself
}

async fn settle_at_last(
    pipeline: &Pipeline,
    ticket: Ticket,
    settlement: Settlement,
) -> Result<(), DriverError> {
    let until = patience();
    let mut backoff = Backoff::new(SETTLE_AGAIN, SETTLE_SELDOM);
    loop {
        let settled = pipeline.driver.settle(ticket, settlement.clone()).await;
        if !matches!(
            settled,
            Err(DriverError::Unavailable(_) | DriverError::NotDone(_))
        ) || Instant::now() >= until
        {
            return settled;
        }
        sleep(backoff.next_wait()).await;
    }
}

impl Runners for Pool {
    fn places(&self) -> usize {
        self.workers()
    }

    fn room(&self) -> usize {
        Self::room(self)
    }

    fn run(&self, call: JobCall) -> BoxFuture<'static, Attempt> {
        let now = Instant::now();
        let limit = call.deadline.or_else(|| self.exec_ttl());
        let terms = Terms {
            deadline: call.deadline,
            ..Terms::default()
        };
        let call = Arc::new(call);
        let pending = self.call(call.clone(), terms, now, now);
        Box::pin(async move {
            Attempt {
                outcome: answer(pending, limit).await,
                pid: call.worker(),
            }
        })
    }
}

async fn answer(mut pending: pronghorn_pool::Pending, limit: Option<Duration>) -> Outcome {
    let reply = loop {
        match pending.answer().await {
            Ok(Answer::Interim(_)) => {}
            Ok(Answer::Reply(reply)) => break reply,
            Err(error) => return of_error(&error, limit),
        }
    };
    let body = match reply.body {
        ReplyBody::Whole(content) => Ok(content.into()),
        ReplyBody::File(_) => Err("its answer is a file".to_owned()),
        ReplyBody::Pieces { pieces, len } => whole(pieces, len).await,
    };
    match (reply.head, body) {
        (Head::Job(said), Ok(body)) => Outcome::Replied(said, body),
        (_, Ok(body)) => Outcome::Answered(body),
        // Its handler has returned: another attempt would do its work twice.
        (Head::Job(JobReply::Done | JobReply::DoneWithout), Err(why)) => {
            Outcome::Replied(JobReply::DoneWithout, why.into())
        }
        (Head::Job(said), Err(_)) => {
            let why = "the reason that its worker has given can't be read";
            Outcome::Replied(said, Bytes::from_static(why.as_bytes()))
        }
        (_, Err(why)) => {
            Outcome::Reported(format!("the worker's answer can't be read: {why}").into())
        }
    }
}

/// An answer that comes in pieces as it is long; else why there is none, which a person reads
/// behind what became of the job.
async fn whole(pieces: Pieces, len: Option<u64>) -> Result<Bytes, String> {
    if let Some(len) = len.filter(|len| *len > LONGEST_ANSWER as u64) {
        return Err(too_long(len));
    }
    let whole = pieces.whole(LONGEST_ANSWER).await;
    whole.map_err(|why| match why {
        NotWhole::TooLong(most) => format!("its result has more than {most} bytes"),
        NotWhole::BrokenOff => "its result broke off".to_owned(),
        NotWhole::Unreadable(error) => format!("its result can't be read back: {error}"),
    })
}

fn of_error(error: &CallError, limit: Option<Duration>) -> Outcome {
    let why = error.to_string();
    match error {
        CallError::NotBegun => Outcome::NotBegun,
        CallError::Refused(_)
        | CallError::Worker(
            WorkerFault::NotStarted(_) | WorkerFault::Unwilling(_) | WorkerFault::CutOff(_),
        ) => Outcome::NotTaken(why),
        CallError::Thrown(thrown) => Outcome::Reported(Reason::thrown(thrown)),
        CallError::Unencodable(_) | CallError::Reported(_) => Outcome::Reported(why.into()),
        CallError::Deadline => {
            let limit = limit.map(show_duration).unwrap_or_default();
            Outcome::Lost(format!("the deadline of {limit} passed").into())
        }
        CallError::Poisoned | CallError::Worker(WorkerFault::Died(_) | WorkerFault::Garbage(_)) => {
            Outcome::Lost(why.into())
        }
    }
}

#[cfg(test)]
mod tests;
