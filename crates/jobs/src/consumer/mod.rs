//! Takes jobs out of pipelines when workers are free, and says what became of them.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use pronghorn_base::{BoxFuture, LogThrottle};
use pronghorn_pool::{Answer, CallError, Pool, ReplyBody, Terms, WorkerFault};
use pronghorn_wire::Head;
use pronghorn_wire::native::JobReply;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::call::JobCall;
use crate::drivers::{DriverError, MOST_ATTEMPTS, Settlement, Ticket};
use crate::job::Job;
use crate::metrics::Verdict;
use crate::pipelines::{Pipeline, Pipelines, Work};
use crate::reply::{self, Answered};

/// How often it is looked whether there are workers while there is none.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// Jobs that have run and whose pipeline has not yet taken note of it.
const MOST_UNSETTLED: usize = 1024;
/// How often a pipeline is asked to take note of a job that has run, and how long is waited in
/// between.
const SETTLE_TRIES: u32 = 5;
const SETTLE_AGAIN: Duration = Duration::from_millis(200);

/// Those who run jobs.
pub(crate) trait Runners: Send + Sync + 'static {
    /// How many jobs they can run at a time, now.
    fn places(&self) -> usize;

    fn run(&self, call: JobCall) -> BoxFuture<'static, Outcome>;
}

/// What came of a job at a worker.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// The body of an answer of RoadRunner's packages.
    Answered(Bytes),
    /// An answer of ours, and its body.
    Replied(JobReply, Bytes),
    /// It answered with a text instead, or threw.
    Reported(String),
    /// No worker has had it.
    NotTaken(String),
    /// The worker died of it, or it took too long.
    Lost(String),
}

/// Runs the jobs of all pipelines.
pub(crate) struct Consumer<R> {
    pipelines: Pipelines,
    runners: R,
    /// At a time; what the operator allows.
    most: usize,
    unsettled: Arc<LogThrottle>,
}

impl<R: Runners> Consumer<R> {
    pub(crate) fn new(pipelines: Pipelines, runners: R, most: Option<usize>) -> Self {
        Self {
            pipelines,
            runners,
            most: most.unwrap_or(usize::MAX),
            unsettled: Arc::default(),
        }
    }

    /// Until `end`; then it waits for what runs. Dropped, it leaves that to its pipelines.
    pub(crate) async fn work(self, end: CancellationToken) {
        // A job has its place until a worker is free again, and then until it is settled.
        let (mut running, mut settling) = (JoinSet::new(), JoinSet::new());
        loop {
            let places = self.runners.places().min(self.most);
            let free = if settling.len() < MOST_UNSETTLED {
                places.saturating_sub(running.len())
            } else {
                0
            };
            if free == 0 {
                self.pipelines.want(0);
            }
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
                work = self.pipelines.next(free), if free > 0 => {
                    running.spawn(self.run(work));
                }
                // Workers come without a word to us.
                () = sleep(LOOK_AGAIN), if running.len() >= places => {}
            }
        }
        while let Some(ran) = running.join_next().await {
            if let Ok(ran) = ran {
                settling.spawn(self.settle(ran));
            }
        }
        while settling.join_next().await.is_some() {}
    }

    fn run(&self, work: Work) -> impl Future<Output = Ran> + use<R> {
        let Work { pipeline, delivery } = work;
        let job = delivery.job.clone();
        let call = JobCall {
            job: job.clone(),
            pipeline: pipeline.name.clone(),
            queue: pipeline.driver.queue().map(ToOwned::to_owned),
            driver: pipeline.driver_name,
        };
        let outcome = self.runners.run(call);
        async move {
            let mut ticket = Some(delivery.ticket);
            if job.auto_ack {
                // A pipeline that does not take note of it gives the job again.
                let acked = pipeline
                    .driver
                    .settle(delivery.ticket, Settlement::Ack)
                    .await;
                if acked.is_ok() {
                    ticket = None;
                }
            }
            let outcome = outcome.await;
            if matches!(outcome, Outcome::NotTaken(_)) {
                // It goes back, and is the next one: not in a circle as fast as it can.
                sleep(LOOK_AGAIN).await;
            }
            Ran {
                pipeline,
                job,
                ticket,
                outcome,
            }
        }
    }

    fn settle(&self, ran: Ran) -> impl Future<Output = ()> + use<R> {
        let Ran {
            pipeline,
            job,
            ticket,
            outcome,
        } = ran;
        let answered = judge(&job, outcome);
        if let Some(verdict) = answered.verdict {
            self.pipelines.metrics().ran(verdict);
        }
        if let Some(remark) = &answered.remark {
            let (id, name, pipeline) = (&job.id, &job.name, &pipeline.name);
            tracing::warn!(target: "jobs", id, job = name, pipeline, "{remark}");
        }
        let unsettled = self.unsettled.clone();
        async move {
            let Some(ticket) = ticket else {
                return;
            };
            let settled = settle_at_last(&pipeline, ticket, answered.settlement).await;
            if let Err(error) = settled
                && let Some(times) = unsettled.should_log()
            {
                let (id, pipeline) = (&job.id, &pipeline.name);
                tracing::error!(target: "jobs", id, pipeline, times, "the job has run and will run again: {error}");
            }
        }
    }
}

/// A job that has left its worker.
struct Ran {
    pipeline: Arc<Pipeline>,
    job: Arc<Job>,
    /// None when it counts as done since it began.
    ticket: Option<Ticket>,
    outcome: Outcome,
}

async fn settle_at_last(
    pipeline: &Pipeline,
    ticket: Ticket,
    settlement: Settlement,
) -> Result<(), DriverError> {
    let mut tries = 1;
    loop {
        let settled = pipeline.driver.settle(ticket, settlement.clone()).await;
        match settled {
            Err(DriverError::Unavailable(_)) if tries < SETTLE_TRIES => tries += 1,
            settled => return settled,
        }
        sleep(SETTLE_AGAIN).await;
    }
}

struct Judged {
    settlement: Settlement,
    verdict: Option<Verdict>,
    remark: Option<String>,
}

fn judge(job: &Job, outcome: Outcome) -> Judged {
    let Answered {
        settlement,
        verdict,
        remark,
    } = match outcome {
        Outcome::Answered(body) => reply::read(&body),
        Outcome::Replied(reply, body) => reply::of(reply, &body),
        Outcome::NotTaken(why) => {
            tracing::debug!(target: "jobs", id = job.id, "given back: {why}");
            return Judged {
                settlement: Settlement::Release,
                verdict: None,
                remark: None,
            };
        }
        Outcome::Reported(why) | Outcome::Lost(why) => Answered {
            settlement: Settlement::Failed,
            verdict: Verdict::Failed,
            remark: Some(why),
        },
    };
    let gives_up = settlement == Settlement::Failed && job.attempts + 1 >= MOST_ATTEMPTS;
    let remark = match remark {
        Some(why) if gives_up && !job.auto_ack => Some(format!(
            "{why}; the job is given up after {MOST_ATTEMPTS} attempts"
        )),
        remark => remark,
    };
    Judged {
        settlement,
        verdict: Some(verdict),
        remark,
    }
}

impl Runners for Pool {
    fn places(&self) -> usize {
        self.workers()
    }

    fn run(&self, call: JobCall) -> BoxFuture<'static, Outcome> {
        let now = Instant::now();
        let pending = self.call(Arc::new(call), Terms::default(), now, now);
        Box::pin(answer(pending))
    }
}

async fn answer(mut pending: pronghorn_pool::Pending) -> Outcome {
    let reply = loop {
        match pending.answer().await {
            Ok(Answer::Interim(_)) => {}
            Ok(Answer::Reply(reply)) => break reply,
            Err(error) => return of_error(&error),
        }
    };
    match reply.body {
        ReplyBody::Whole(content) => match reply.head {
            Head::Job(said) => Outcome::Replied(said, content.into()),
            _ => Outcome::Answered(content.into()),
        },
        ReplyBody::File(_) | ReplyBody::Pieces { .. } => {
            Outcome::Reported("the worker's answer is no answer to a job".to_owned())
        }
    }
}

fn of_error(error: &CallError) -> Outcome {
    let why = error.to_string();
    match error {
        CallError::Refused(_)
        | CallError::Worker(WorkerFault::NotStarted(_) | WorkerFault::Unwilling(_)) => {
            Outcome::NotTaken(why)
        }
        CallError::Unencodable(_) | CallError::Thrown(_) | CallError::Reported(_) => {
            Outcome::Reported(why)
        }
        CallError::Poisoned
        | CallError::Deadline
        | CallError::Worker(WorkerFault::Died(_) | WorkerFault::Garbage(_)) => Outcome::Lost(why),
    }
}

#[cfg(test)]
mod tests;
