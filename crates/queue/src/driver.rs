//! Where the jobs of pipelines are: what a pipeline asks of such a place.

use std::sync::Arc;
use std::time::Duration;

use pronghorn_base::BoxFuture;
use thiserror::Error;
use tokio::time::Instant;

use crate::job::{Headers, Job};
use crate::options;

/// Keeps the jobs of one pipeline.
///
/// A consumer takes a job when a worker is free for it, and not before: what is not taken is as
/// good as in the engine, and another consumer's.
pub trait Driver: Send + Sync + 'static {
    /// Who has the jobs, and so what can be done with them.
    fn keeper(&self) -> Keeper;

    /// The engine's name of the place of the jobs, where that is not the pipeline's name.
    fn queue(&self) -> Option<&str> {
        None
    }

    /// Keeps jobs: all of them or none. Done once they are as safe as the engine makes them.
    ///
    /// # Errors
    ///
    /// When there is no room, or the engine does not answer. In the second case they may be there.
    fn push(&self, jobs: Vec<Job>) -> BoxFuture<'_, Result<(), DriverError>>;

    /// Says how many workers are free: so many jobs it may bring from its engine, and no more. What
    /// it has brought and nobody takes goes back. One that has its jobs at hand has nothing to do.
    fn want(&self, _jobs: usize) {}

    /// The priority of the job that [`take`](Self::take) would give now. None while it is paused.
    fn head(&self, now: Instant) -> Option<i64>;

    /// Takes the next job: by priority, and those of equal priority in the order of their pushes.
    /// A low one has its turn too, if a rare one. Jobs whose time has come take turns with those
    /// of equal priority that were ready at once.
    fn take(&self, now: Instant) -> Option<Delivery>;

    /// When a delayed job becomes ready, if nothing else happens before.
    fn next_due(&self) -> Option<Instant>;

    /// Says what became of a job that was taken.
    ///
    /// # Errors
    ///
    /// When the ticket is not known, or the engine does not answer: the job will run again then.
    fn settle(
        &self,
        ticket: Ticket,
        settlement: Settlement,
    ) -> BoxFuture<'_, Result<(), DriverError>>;

    /// Gives out jobs no more that no worker has: those of an ID, or all. They are there until they
    /// are [removed](Withdrawn::remove). It looks at some, and says what gives the next ones as
    /// `after`. An engine that others have as well keeps its jobs.
    ///
    /// # Errors
    ///
    /// When the engine does not answer.
    fn withdraw<'a>(
        &'a self,
        _id: Option<&'a str>,
        _after: Option<Vec<u8>>,
    ) -> BoxFuture<'a, Result<Withdrawn, DriverError>> {
        Box::pin(std::future::ready(Ok(Withdrawn::default())))
    }

    /// Takes jobs that have expired and that no worker has, also while it is paused: some of them,
    /// which are settled as others are. None in an engine that gives out jobs in its own order.
    ///
    /// # Errors
    ///
    /// When the engine does not answer.
    fn take_expired(&self, _now_ms: u64) -> BoxFuture<'_, Result<Vec<Delivery>, DriverError>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }

    /// When the first of those expires, in milliseconds since 1970, or before. None: never.
    fn next_expiry(&self) -> Option<u64> {
        None
    }

    /// Whether this server is the first that asks for a name, of all that share the engine. An
    /// engine that is not shared, or knows no such names, says so to each.
    ///
    /// # Errors
    ///
    /// When the engine does not answer.
    fn claim<'a>(&'a self, _name: &'a str) -> BoxFuture<'a, Result<bool, DriverError>> {
        Box::pin(std::future::ready(Ok(true)))
    }

    /// Gives out no further job until [`resume`](Self::resume). A new driver is paused.
    fn pause(&self);

    /// Gives out jobs again.
    fn resume(&self);

    /// How many jobs it has, by where they stand.
    fn stat(&self) -> BoxFuture<'_, Result<Stat, DriverError>>;

    /// Some of the jobs that it has, in no order that counts, those that workers have as well;
    /// their delays are what is left of them. `after` is what the part before gave.
    ///
    /// # Errors
    ///
    /// When the engine does not show its jobs, or does not answer.
    fn list(&self, _after: Option<Vec<u8>>) -> BoxFuture<'_, Result<Part, DriverError>> {
        let why = "the engine of this pipeline does not show its jobs".to_owned();
        Box::pin(std::future::ready(Err(DriverError::Unavailable(why))))
    }

    /// Whether a push would succeed, as far as is known without one; what is wrong, as a text.
    fn health(&self) -> Result<(), String>;

    /// Gives back to the engine what was taken and is not settled, and leaves it. Nothing is asked
    /// of it afterwards.
    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }
}

/// Who has the jobs of a driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeper {
    /// This process, in its memory: they end with it.
    Process,
    /// This server, in its store: they outlive the process, and an upgrade hands them over.
    Store,
    /// An engine that others may have as well. It shows what it likes, and keeps its jobs.
    Engine,
}

impl Keeper {
    /// Whether nobody but this server has the jobs. It can list all of them, find one by its ID,
    /// take them away, and be certain that it hears of the end of each.
    pub const fn is_this_server(self) -> bool {
        matches!(self, Self::Process | Self::Store)
    }
}

/// A job that was taken and is not settled.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// The job that was taken.
    pub job: Arc<Job>,
    /// Names it until it is settled.
    pub ticket: Ticket,
}

/// The most jobs that a part has.
pub const MOST_IN_PART: usize = if cfg!(test) { 7 } else { 500 };
/// About how many bytes the jobs of a part have at most.
pub const MOST_BYTES_IN_PART: usize = 1 << 20;

/// Some jobs of a driver, and what gives the next ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// They may be none, and others follow.
    pub jobs: Vec<Listed>,
    /// None after the last part.
    pub next: Option<Vec<u8>>,
}

/// A job of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// With what is left of its delay.
    pub job: Job,
    /// When it was pushed, or put back after an attempt, in milliseconds since 1970. None where the
    /// driver does not know.
    pub since: Option<u64>,
}

impl From<Job> for Listed {
    fn from(job: Job) -> Self {
        Self { job, since: None }
    }
}

/// Jobs that a driver does not give out any more. Dropped, those in the store are given out again,
/// and those in memory are gone.
#[derive(Debug, Default)]
pub struct Withdrawn {
    /// As they are kept. Whoever has to hear of their end is told before they are removed.
    pub jobs: Vec<Job>,
    /// The number of jobs that stay, as they are on their way to a worker or with one.
    pub reserved: usize,
    /// Gives the next ones. None: the driver has looked at all.
    pub next: Option<Vec<u8>>,
    /// The place of the jobs in a store.
    pub(crate) hold: Option<Box<dyn Hold>>,
}

impl Withdrawn {
    /// Takes the jobs away for good.
    ///
    /// # Errors
    ///
    /// When the engine does not answer. The jobs are there then, or will be gone.
    pub async fn remove(self) -> Result<Removed, DriverError> {
        let Some(hold) = self.hold else {
            return Ok(Removed {
                jobs: self.jobs,
                reserved: 0,
            });
        };
        hold.remove(self.jobs).await
    }
}

/// A store's hold on jobs that are withdrawn. Dropped, it lets them go.
pub(crate) trait Hold: std::fmt::Debug + Send {
    /// Takes these jobs away, which are those that it holds.
    fn remove(self: Box<Self>, jobs: Vec<Job>) -> BoxFuture<'static, Result<Removed, DriverError>>;
}

/// The jobs that were taken away from a driver.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// The jobs that are gone.
    pub jobs: Vec<Job>,
    /// The number of jobs that stayed: the store has failed meanwhile, and they were given out
    /// again.
    pub reserved: usize,
}

/// Names a delivery of its driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket(pub u64);

/// The end of a delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Settlement {
    /// It is done.
    Ack,
    /// No worker has had it: it is as if it had not been taken.
    Release,
    /// An attempt has failed, and counts: it is tried again.
    Failed {
        /// Until then it waits.
        delay: Duration,
    },
    /// It is given up: it is not tried again, and is not done.
    Reject,
    /// The handler does not want it: another may try.
    Nack {
        /// Until then it waits.
        delay: Duration,
    },
    /// The handler wants it again, with these headers in addition.
    Requeue {
        /// They replace those of their names.
        headers: Headers,
        /// Until then it waits.
        delay: Duration,
    },
}

/// The state that a settlement leaves a job in.
#[derive(Debug)]
pub enum Fate {
    /// It is gone.
    Done,
    /// It is not tried again, and is not done.
    Rejected,
    /// At its old place.
    Back,
    /// Behind all others of its priority.
    Again(Job),
}

impl Settlement {
    /// The same for every driver that keeps its jobs itself.
    pub fn fate(self, job: &Job) -> Fate {
        let again = || Job {
            delay: Duration::ZERO,
            ..job.clone()
        };
        match self {
            Self::Ack => Fate::Done,
            Self::Release => Fate::Back,
            Self::Reject => Fate::Rejected,
            Self::Failed { delay } => Fate::Again(Job {
                attempts: job.attempts.saturating_add(1),
                delay,
                ..again()
            }),
            Self::Nack { delay } if delay.is_zero() => {
                // One that is always given back must not keep a worker busy.
                let (delay, (name, times)) = options::requeued(&job.headers);
                let mut job = Job { delay, ..again() };
                job.headers.insert(name, times);
                Fate::Again(job)
            }
            Self::Nack { delay } => Fate::Again(Job { delay, ..again() }),
            Self::Requeue { headers, delay } => {
                let mut job = Job { delay, ..again() };
                // A worker changes none that are the server's.
                let headers = headers.into_iter();
                job.merge(
                    headers
                        .filter(|(name, _)| !options::is_kept(name))
                        .collect(),
                );
                Fate::Again(job)
            }
        }
    }
}

/// How many jobs a pipeline has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    /// They wait for a worker.
    pub active: u64,
    /// They wait for their time.
    pub delayed: u64,
    /// Workers have them.
    pub reserved: u64,
    /// How long the one that waits for a worker for the longest time has done so. None where there
    /// is none, or the engine does not tell.
    pub oldest: Option<Duration>,
}

/// Why a driver did not do something.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DriverError {
    /// Nothing was kept.
    #[error("the pipeline is full: {limit} bytes are allowed")]
    Full {
        /// Bytes.
        limit: u64,
    },
    /// It is not known whether it was done.
    #[error("{0}")]
    Unavailable(String),
    /// Nothing was done.
    #[error("{0}")]
    NotDone(String),
    /// Nothing was done: who keeps the jobs has not answered for some time.
    #[error("{0}")]
    Away(String),
    /// The engine never takes this job as it is, which may be too big for it. Nothing was done.
    #[error("{0}")]
    Unfit(String),
    /// The engine knows nothing more of a job that was taken: it gives it out again.
    #[error("{0}")]
    Forgotten(String),
    /// The words are RoadRunner's.
    #[error("failed to acknowledge the JOB, the pipeline is probably stopped")]
    NotReserved,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_that_is_given_back_keeps_the_headers_of_the_server() {
        let headers = |pairs: &[(&str, &str)]| {
            let pairs = pairs.iter();
            let pairs = pairs.map(|(name, value)| ((*name).to_owned(), vec![(*value).to_owned()]));
            pairs.collect::<Headers>()
        };
        let job = Job {
            headers: headers(&[("pronghorn-batch", "own"), ("a", "1")]),
            ..Job::default()
        };
        let requeue = Settlement::Requeue {
            headers: headers(&[
                ("pronghorn-batch", "other"),
                ("pronghorn-x", "y"),
                ("pool", "z"),
                ("a", "2"),
                ("b", "3"),
            ]),
            delay: Duration::ZERO,
        };
        let Fate::Again(job) = requeue.fate(&job) else {
            panic!("it comes again")
        };
        let expected = [("pronghorn-batch", "own"), ("a", "2"), ("b", "3")];
        assert_eq!(job.headers, headers(&expected));
    }
}
