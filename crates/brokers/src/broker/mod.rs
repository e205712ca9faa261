//! The parts that the drivers of brokers have in common: a connection that is made again when it is
//! lost, jobs that are brought when workers are free for them, and what is told of all this.
//!
//! - [`Broker`] and [`Link`]: what differs from broker to broker.
//! - `state`: the jobs that were brought.
//! - `http`: a client for brokers that speak it.
//! - `item`: a job as JSON.
//! - `later`: jobs that wait for longer than the broker can keep them.
//! - `tls`: encryption for clients of our own.
//!
//! A job stays the broker's until it is settled, so a broker that goes away loses none of them. One
//! that ran while its connection was lost may run again.

#[cfg(feature = "attributes")]
pub(super) mod attributes;
#[cfg(feature = "http")]
pub(super) mod http;
#[cfg(feature = "item")]
pub(super) mod item;
mod later;
mod state;
#[cfg(feature = "tls")]
pub(super) mod tls;

use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pronghorn_base::{Backoff, BoxFuture, LogThrottle, Peer, PeerChange, PeerHealth, lock};
use pronghorn_queue::{
    Delivery, Driver, DriverError, Fate, Job, Keeper, Listed, Part, Settlement, Stat, Ticket, Wake,
};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout, timeout_at};

pub(crate) use self::later::LaterJobs;
use self::state::{BroughtJob, BroughtJobs};

/// The most jobs that a part of a list has.
pub(crate) const MOST_IN_PART: usize = if cfg!(test) {
    7
} else {
    pronghorn_queue::MOST_IN_PART
};

/// A broker that has not accepted a connection by then is away.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The first wait before a broker is tried again: a restart of one takes seconds, a missed packet
/// less.
const FIRST_WAIT: Duration = Duration::from_millis(100);
/// A broker that is back is noticed by then.
const LONGEST_WAIT: Duration = Duration::from_secs(10);
/// A push waits for a broker that was lost so short a time ago: it may be restarting. After that,
/// pushes fail at once, because each holds a worker of the application while it waits.
const PUSHES_WAIT: Duration = Duration::from_secs(10);
/// A job that was brought waits for so long for its worker, which another pipeline may have got;
/// then it goes back to the broker, for other servers.
const HOLD: Duration = Duration::from_secs(1);
/// [`Link::fetch`] is done by then, with or without jobs.
pub(super) const FETCH_WAIT: Duration = Duration::from_secs(1);
/// A server that no worker has asked for so long leaves the jobs to others. Longer than most jobs
/// run: who comes back may have to wait until the broker has divided the jobs anew.
const UNWANTED: Duration = if cfg!(test) {
    Duration::from_secs(2)
} else {
    Duration::from_secs(30)
};

/// A kind of broker, with what it takes to reach it.
pub(crate) trait Broker: Send + Sync + 'static {
    type Link: Link;

    /// Its name for people, with its address and without credentials: `nats at 127.0.0.1:4222`.
    fn title(&self) -> &str;

    /// The broker's name of the place of the jobs.
    fn queue(&self) -> &str;

    /// A job that waits for longer is kept in the server's store until its time.
    fn longest_delay(&self) -> Duration {
        Duration::MAX
    }

    fn connect(&self) -> impl Future<Output = Result<Self::Link, BrokerError>> + Send;
}

/// A connection to a broker, with what the pipeline needs there declared. Methods run side by side,
/// but for [`fetch`](Self::fetch) and [`rest`](Self::rest), which take turns.
pub(crate) trait Link: Send + Sync + 'static {
    /// Names a job that was brought.
    type Token: Clone + Send + Sync + 'static;

    /// Whether tokens are good on a later connection.
    const TOKENS_OUTLIVE_IT: bool;

    /// How often the broker has to hear that jobs are still worked on.
    const KEEP_EVERY: Option<Duration>;

    /// Keeps jobs: done when the broker has said so for all of them.
    fn push(&self, jobs: Vec<Job>) -> impl Future<Output = Result<(), BrokerError>> + Send;

    /// Brings up to so many jobs, and waits for the first one for [`FETCH_WAIT`]. Never dropped
    /// before its end while the connection is of use.
    fn fetch(
        &self,
        most: usize,
    ) -> impl Future<Output = Result<Vec<(Job, Self::Token)>, BrokerError>> + Send;

    /// No worker is free: the broker is to bring nothing. A broker that is asked each time has
    /// nothing to do.
    fn rest(&self) -> impl Future<Output = Result<(), BrokerError>> + Send {
        std::future::ready(Ok(()))
    }

    /// None of the broker's jobs is here, and none will be wanted soon: a broker that keeps some
    /// for this server is to give them to others, until the next [`fetch`](Self::fetch). False: it
    /// can't be done yet, and has to be asked again. Takes turns with `fetch`, too.
    fn resign(&self) -> impl Future<Output = Result<bool, BrokerError>> + Send {
        std::future::ready(Ok(true))
    }

    fn settle(
        &self,
        token: Self::Token,
        step: Step,
    ) -> impl Future<Output = Result<(), BrokerError>> + Send;

    /// Says that these jobs are still worked on.
    fn keep(
        &self,
        _tokens: Vec<Self::Token>,
    ) -> impl Future<Output = Result<(), BrokerError>> + Send {
        std::future::ready(Ok(()))
    }

    /// Does what else is to be done at intervals. Ends only when the connection is lost.
    fn tend(&self) -> impl Future<Output = BrokerError> + Send {
        std::future::pending()
    }

    /// Whether this server is the first that asks for a name. A broker that knows no such names
    /// says so to each.
    fn claim(&self, _name: &str) -> impl Future<Output = Result<bool, BrokerError>> + Send {
        std::future::ready(Ok(true))
    }

    fn stat(&self) -> impl Future<Output = Result<Counts, BrokerError>> + Send;

    /// Lists jobs, as [`Driver`] says. Jobs that come, go or change their place while somebody goes
    /// from part to part may be in two of them, or in none when they were pushed meanwhile.
    fn list(
        &self,
        _after: Option<ListedTo>,
    ) -> impl Future<Output = Result<(Vec<Job>, Option<ListedTo>), BrokerError>> + Send {
        let why = "it does not show its jobs".to_owned();
        std::future::ready(Err(BrokerError::Refused(why)))
    }

    /// The last call: all jobs are settled or given back.
    fn close(&self) -> impl Future<Output = ()> + Send;
}

/// The next step of a job at the broker.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Done,
    /// Nobody wants it: the broker's dead letters have it, if there are any.
    Rejected(
        #[cfg_attr(
            not(feature = "google_pub_sub"),
            expect(dead_code, reason = "others know by the token which one it is")
        )]
        Arc<Job>,
    ),
    /// Somebody else is to have it.
    Back(Arc<Job>),
    /// It is done, and this one is pushed in its place.
    Again(Job),
}

/// How far jobs were listed: first those that wait for their time, then the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ListedTo {
    Delayed(u64),
    /// Two numbers, as the entries of Redis have them.
    Waiting(u64, u64),
}

impl ListedTo {
    fn write(&self) -> Vec<u8> {
        match self {
            Self::Delayed(number) => format!("d{number}").into_bytes(),
            Self::Waiting(one, two) => format!("w{one}-{two}").into_bytes(),
        }
    }

    /// The bytes are a caller's, and may be anything.
    fn read(bytes: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(bytes).ok()?;
        if let Some(number) = text.strip_prefix('d') {
            return number.parse().ok().map(Self::Delayed);
        }
        let (one, two) = text.strip_prefix('w')?.split_once('-')?;
        Some(Self::Waiting(one.parse().ok()?, two.parse().ok()?))
    }
}

/// How many jobs a broker has of a pipeline.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    /// Jobs that are out do not count.
    pub(crate) waiting: u64,
    pub(crate) delayed: u64,
    /// Brought to any server and not settled. None where the broker does not tell.
    pub(crate) out: Option<u64>,
    /// How long the first one of those that wait has done so, where the broker tells.
    pub(crate) oldest: Option<Duration>,
}

/// Clients name what is wrong with a certificate, and not what to write.
fn advised(why: String) -> String {
    if why.contains("UnknownIssuer") {
        return format!("{why}; name who signed its certificate in `tls.root_ca`");
    }
    why
}

/// Why a broker did not do something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BrokerError {
    /// The connection is of no use any more.
    Lost(String),
    /// This one thing was refused; nothing was done.
    Refused(String),
    /// It never takes this job as it is. Nothing was done.
    #[cfg_attr(
        not(any(feature = "item", feature = "beanstalk")),
        expect(dead_code, reason = "Redis takes any job")
    )]
    Unfit(String),
    /// The token names no job that is out.
    NotReserved,
}

/// The jobs of one pipeline at a broker.
pub(crate) struct Brokered<B: Broker> {
    core: Arc<Core<B>>,
    _runner: JoinSet<()>,
}

struct Core<B: Broker> {
    broker: B,
    pipeline: String,
    /// The priority of jobs that have none.
    priority: AtomicI64,
    wake: Wake,
    state: Mutex<BroughtJobs<Token<B>>>,
    /// The runner has to look at the state again.
    changed: Notify,
    /// The connection that somebody has found lost.
    lost: watch::Sender<Option<u64>>,
    link: watch::Sender<Option<Up<B>>>,
    health: PeerHealth,
    /// When it was last known to be here, if it is not: at first the time of the start.
    away_since: Mutex<Option<Instant>>,
    closed: watch::Sender<bool>,
    /// A broker with a longest delay has it.
    later: Option<LaterJobs>,
    /// For jobs of those that it does not take.
    refused: LogThrottle,
}

type Token<B> = <<B as Broker>::Link as Link>::Token;

/// A connection, and which one since the start.
struct Up<B: Broker> {
    link: Arc<B::Link>,
    number: u64,
}

impl<B: Broker> Clone for Up<B> {
    fn clone(&self) -> Self {
        Self {
            link: self.link.clone(),
            number: self.number,
        }
    }
}

impl<B: Broker> Brokered<B> {
    /// Paused. The connection is made apart.
    pub(super) fn open(broker: B, pipeline: &str, wake: Wake) -> Self {
        Self::start(broker, pipeline, wake, None)
    }

    /// As [`open`](Self::open), with a place for jobs that the broker can't keep back for so long.
    #[cfg(feature = "later")]
    pub(super) fn open_with(broker: B, pipeline: &str, wake: Wake, later: LaterJobs) -> Self {
        Self::start(broker, pipeline, wake, Some(later))
    }

    fn start(broker: B, pipeline: &str, wake: Wake, later: Option<LaterJobs>) -> Self {
        let core = Arc::new(Core {
            broker,
            pipeline: pipeline.to_owned(),
            priority: AtomicI64::new(0),
            wake,
            state: Mutex::new(BroughtJobs::new()),
            changed: Notify::new(),
            lost: watch::Sender::new(None),
            link: watch::Sender::new(None),
            health: PeerHealth::unknown(),
            away_since: Mutex::new(Some(Instant::now())),
            closed: watch::Sender::new(false),
            later,
            refused: LogThrottle::default(),
        });
        let mut runner = JoinSet::new();
        runner.spawn(core.clone().run());
        Self {
            core,
            _runner: runner,
        }
    }

    /// Sets the priority of jobs that have none, as those that somebody else has pushed. For a
    /// driver that is paused.
    pub(crate) fn with_priority(self, priority: i64) -> Self {
        self.core.priority.store(priority, Relaxed);
        self
    }
}

impl<B: Broker> Core<B> {
    /// Connects, again and again, until the driver is closed or dropped.
    async fn run(self: Arc<Self>) {
        let mut backoff = Backoff::new(FIRST_WAIT, LONGEST_WAIT);
        for number in 0.. {
            let connecting = timeout(CONNECT_TIMEOUT, self.broker.connect());
            let error = match connecting.await {
                Ok(Ok(link)) => {
                    let link = Arc::new(link);
                    let since = Instant::now();
                    self.is_up(link.clone(), number);
                    let error = self.serve(&link, number).await;
                    backoff.succeeded_for(since.elapsed());
                    error
                }
                Ok(Err(error)) => Some(error),
                Err(_) => Some(BrokerError::Lost("it does not answer".to_owned())),
            };
            self.link.send_replace(None);
            let Some(error) = error else {
                break;
            };
            self.is_away(error);
            tokio::select! {
                () = sleep(backoff.next_wait()) => {}
                () = self.closing() => break,
            }
        }
        self.closed.send_replace(true);
    }

    /// Uses a connection until it is lost: says why. None: the driver was closed.
    async fn serve(&self, link: &B::Link, number: u64) -> Option<BrokerError> {
        let mut lost = self.lost.subscribe();
        tokio::select! {
            ended = self.bring(link) => ended.err(),
            error = self.keep(link) => Some(error),
            error = link.tend() => Some(error),
            error = self.hand_over(link) => Some(error),
            _ = lost.wait_for(|lost| *lost == Some(number)) => {
                Some(BrokerError::Lost("the connection was lost".to_owned()))
            }
        }
    }

    /// Brings jobs while workers are free.
    async fn bring(&self, link: &B::Link) -> Result<(), BrokerError> {
        let (mut rests, mut resigned) = (true, false);
        loop {
            let (lacking, closing) = {
                let state = lock(&self.state);
                (state.lacking(), state.closing)
            };
            if closing {
                return self.leave(link).await;
            }
            if lacking > 0 {
                (rests, resigned) = (false, false);
                let jobs = link.fetch(lacking).await?;
                self.brought(jobs);
                continue;
            }
            let held = timeout(HOLD, self.changed.notified()).await;
            if held.is_err() && lock(&self.state).lacking() == 0 {
                if !rests {
                    link.rest().await?;
                    rests = true;
                }
                let idle = lock(&self.state).take_idle();
                self.give_back(link, idle).await?;
                let (is_asleep, has_none, paused) = {
                    let state = lock(&self.state);
                    (state.is_asleep(), state.has_none(), state.paused)
                };
                if has_none && !resigned {
                    if paused || timeout(UNWANTED, self.changed.notified()).await.is_err() {
                        resigned = link.resign().await?;
                    }
                } else if is_asleep {
                    self.changed.notified().await;
                }
            }
        }
    }

    /// Pushes what has waited in the store. Ends only when the connection is lost.
    async fn hand_over(&self, link: &B::Link) -> BrokerError {
        let Some(later) = &self.later else {
            return std::future::pending().await;
        };
        loop {
            let job = later.next().await;
            let pushed = link.push(vec![job]).await;
            match &pushed {
                Ok(()) | Err(BrokerError::NotReserved) => {}
                Err(BrokerError::Refused(why) | BrokerError::Unfit(why)) => {
                    if let Some(times) = self.refused.should_log() {
                        let (pipeline, title) = (&self.pipeline, self.broker.title());
                        tracing::warn!(target: "jobs", pipeline, times, "{title} does not take a job whose time has come, which is offered again in a minute: {why}");
                    }
                }
                Err(BrokerError::Lost(why)) => return BrokerError::Lost(why.clone()),
            }
            if let Err(error) = later.handed_over(pushed.is_ok()).await {
                return BrokerError::Lost(format!("what waits for it can't be read: {error}"));
            }
        }
    }

    /// Whether the broker can't keep a job back for so long.
    fn is_for_later(&self, job: &Job) -> bool {
        self.later.is_some() && job.delay > self.broker.longest_delay()
    }

    async fn push(&self, jobs: Vec<Job>) -> Result<(), DriverError> {
        let is_for_later = |job: &Job| self.is_for_later(job);
        let (kept, pushed): (Vec<_>, Vec<_>) = jobs.into_iter().partition(is_for_later);
        // Before anything is kept: a broker that is away has none of them.
        let up = if pushed.is_empty() && !kept.is_empty() {
            None
        } else {
            Some(self.up_soon().await?)
        };
        if let Some(later) = &self.later
            && !kept.is_empty()
        {
            later.keep(kept).await?;
        }
        let Some(up) = up else { return Ok(()) };
        let pushed = up.link.push(pushed).await;
        pushed.map_err(|error| self.failed(&up, error))
    }

    /// The next step of a job at the broker, once the store has it if it waits there.
    async fn with_later(&self, step: Step) -> Result<Step, DriverError> {
        match (step, &self.later) {
            (Step::Again(job), Some(later)) if self.is_for_later(&job) => {
                later.keep(vec![job]).await?;
                Ok(Step::Done)
            }
            (step, _) => Ok(step),
        }
    }

    fn brought(&self, jobs: Vec<(Job, Token<B>)>) {
        if jobs.is_empty() {
            return;
        }
        let number = self.link.borrow().as_ref().map_or(0, |up| up.number);
        let mut state = lock(&self.state);
        for (mut job, token) in jobs {
            if job.priority == 0 {
                job.priority = self.priority.load(Relaxed);
            }
            state.brought(BroughtJob {
                job: Arc::new(job),
                token,
                link: number,
            });
        }
        drop(state);
        self.wake.wake();
    }

    async fn give_back(
        &self,
        link: &B::Link,
        entries: Vec<BroughtJob<Token<B>>>,
    ) -> Result<(), BrokerError> {
        for entry in entries {
            let gone = link.settle(entry.token, Step::Back(entry.job)).await;
            // A job that is not known any more or can't go back now comes back by itself.
            if let Err(error @ BrokerError::Lost(_)) = gone {
                return Err(error);
            }
        }
        Ok(())
    }

    async fn leave(&self, link: &B::Link) -> Result<(), BrokerError> {
        link.rest().await?;
        let number = self.link.borrow().as_ref().map_or(0, |up| up.number);
        let mut entries = lock(&self.state).take_all();
        entries.retain(|entry| B::Link::TOKENS_OUTLIVE_IT || entry.link == number);
        self.give_back(link, entries).await?;
        link.close().await;
        Ok(())
    }

    async fn keep(&self, link: &B::Link) -> BrokerError {
        let Some(every) = B::Link::KEEP_EVERY else {
            return std::future::pending().await;
        };
        loop {
            sleep(every).await;
            let tokens = lock(&self.state).tokens();
            if tokens.is_empty() {
                continue;
            }
            if let Err(error @ BrokerError::Lost(_)) = link.keep(tokens).await {
                return error;
            }
        }
    }

    /// Done when the driver is to be closed.
    async fn closing(&self) {
        while !lock(&self.state).closing {
            self.changed.notified().await;
        }
    }

    fn is_up(&self, link: Arc<B::Link>, number: u64) {
        if !B::Link::TOKENS_OUTLIVE_IT {
            lock(&self.state).forget_idle();
        }
        let (pipeline, title) = (&self.pipeline, self.broker.title());
        match self.health.set(Ok(())) {
            Some(PeerChange::Back) => tracing::info!(target: "jobs", pipeline, "{title} is back"),
            _ => tracing::info!(target: "jobs", pipeline, "connected to {title}"),
        }
        *lock(&self.away_since) = None;
        self.link.send_replace(Some(Up { link, number }));
        self.wake.wake();
    }

    fn is_away(&self, error: BrokerError) {
        let why = match error {
            BrokerError::Lost(why) | BrokerError::Refused(why) | BrokerError::Unfit(why) => why,
            BrokerError::NotReserved => "it knows nothing of a job".to_owned(),
        };
        lock(&self.away_since).get_or_insert_with(Instant::now);
        let why = advised(why);
        let (pipeline, title) = (&self.pipeline, self.broker.title());
        // While it stays away, other reasons are in the answers to pushes.
        if self.health.set(Err(why.clone())).is_some() {
            tracing::warn!(target: "jobs", pipeline, "{title} is away, and is tried again: {why}");
        }
    }

    /// Waits until there is a connection.
    async fn up(&self) -> Up<B> {
        let mut links = self.link.subscribe();
        let up = links.wait_for(Option::is_some).await;
        let up = up.expect("the sender is ours");
        up.clone().expect("it was waited for")
    }

    /// As [`up`](Self::up), for callers that wait for no broker which is away for long.
    async fn up_soon(&self) -> Result<Up<B>, DriverError> {
        let since = *lock(&self.away_since);
        let Some(since) = since else {
            return Ok(self.up().await);
        };
        let up = timeout_at(since + PUSHES_WAIT, self.up()).await;
        up.map_err(|_| DriverError::Away(self.here().err().unwrap_or_default()))
    }

    /// Whether it answers, else why not.
    fn here(&self) -> Result<(), String> {
        let title = self.broker.title();
        match self.health.get() {
            Peer::Here => Ok(()),
            Peer::Unknown => Err(format!("{title} has not answered yet")),
            Peer::Away(why) => Err(format!("{title} is away: {why}")),
        }
    }

    /// As [`up`](Self::up), for what makes no sense when the driver was closed.
    async fn up_unless_closed(&self) -> Result<Up<B>, DriverError> {
        let mut closed = self.closed.subscribe();
        tokio::select! {
            up = self.up() => Ok(up),
            _ = closed.wait_for(|closed| *closed) => Err(DriverError::NotReserved),
        }
    }

    fn failed(&self, up: &Up<B>, error: BrokerError) -> DriverError {
        let title = self.broker.title();
        match error {
            BrokerError::NotReserved => {
                let why = format!("{title} has given it to somebody else, or is about to");
                DriverError::Forgotten(why)
            }
            BrokerError::Refused(why) => DriverError::Unavailable(format!("{title}: {why}")),
            BrokerError::Unfit(why) => DriverError::Unfit(format!("{title}: {why}")),
            BrokerError::Lost(why) => {
                self.lost.send_replace(Some(up.number));
                DriverError::Unavailable(format!(
                    "{title} went away, and may have done it all the same: {why}"
                ))
            }
        }
    }

    /// A job is not here any more.
    fn settled(&self, ticket: Ticket) {
        let mut state = lock(&self.state);
        state.settled(ticket);
        if state.has_none() {
            self.changed.notify_one();
        }
    }

    async fn settle(&self, ticket: Ticket, settlement: Settlement) -> Result<(), DriverError> {
        let entry = lock(&self.state).reserved(ticket);
        let entry = entry.ok_or(DriverError::NotReserved)?;
        let step = match settlement.fate(&entry.job) {
            Fate::Done => Step::Done,
            Fate::Rejected => Step::Rejected(entry.job.clone()),
            Fate::Again(job) => Step::Again(job),
            Fate::Back => {
                lock(&self.state).put_back(ticket);
                self.changed.notify_one();
                self.wake.wake();
                return Ok(());
            }
        };
        let step = self.with_later(step).await?;
        let mut tries = 0;
        loop {
            let up = self.up_unless_closed().await?;
            if !B::Link::TOKENS_OUTLIVE_IT && up.number != entry.link {
                self.settled(ticket);
                let title = self.broker.title();
                let why = format!("the connection to {title} was lost before {title} knew of it");
                return Err(DriverError::Forgotten(why));
            }
            match up.link.settle(entry.token.clone(), step.clone()).await {
                // It goes out again on the next connection: the broker may have lost it.
                Err(BrokerError::Lost(_)) => {
                    self.lost.send_replace(Some(up.number));
                    let mut links = self.link.subscribe();
                    let other = |next: &Option<Up<B>>| {
                        next.as_ref().is_none_or(|next| next.number != up.number)
                    };
                    _ = links.wait_for(other).await;
                    tries += 1;
                }
                // An earlier try has come through.
                Err(BrokerError::NotReserved) if tries > 0 => {
                    self.settled(ticket);
                    return Ok(());
                }
                Err(error @ (BrokerError::Refused(_) | BrokerError::Unfit(_))) => {
                    return Err(self.failed(&up, error));
                }
                settled => {
                    self.settled(ticket);
                    return settled.map_err(|error| self.failed(&up, error));
                }
            }
        }
    }
}

impl<B: Broker> Driver for Brokered<B> {
    fn keeper(&self) -> Keeper {
        Keeper::Engine
    }

    fn queue(&self) -> Option<&str> {
        Some(self.core.broker.queue())
    }

    fn push(&self, jobs: Vec<Job>) -> BoxFuture<'_, Result<(), DriverError>> {
        Box::pin(self.core.push(jobs))
    }

    fn want(&self, jobs: usize) {
        if lock(&self.core.state).want(jobs) {
            self.core.changed.notify_one();
        }
    }

    fn head(&self, _: Instant) -> Option<i64> {
        lock(&self.core.state).head()
    }

    fn take(&self, _: Instant) -> Option<Delivery> {
        lock(&self.core.state).take()
    }

    /// Jobs wait for their time at the broker.
    fn next_due(&self) -> Option<Instant> {
        None
    }

    fn settle(
        &self,
        ticket: Ticket,
        settlement: Settlement,
    ) -> BoxFuture<'_, Result<(), DriverError>> {
        Box::pin(self.core.settle(ticket, settlement))
    }

    fn pause(&self) {
        lock(&self.core.state).paused = true;
        self.core.changed.notify_one();
    }

    fn resume(&self) {
        lock(&self.core.state).paused = false;
        self.core.changed.notify_one();
        self.core.wake.wake();
    }

    fn claim<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<bool, DriverError>> {
        Box::pin(async move {
            let up = self.core.up_unless_closed().await?;
            let claimed = up.link.claim(name).await;
            claimed.map_err(|error| self.core.failed(&up, error))
        })
    }

    fn stat(&self) -> BoxFuture<'_, Result<Stat, DriverError>> {
        Box::pin(async move {
            let up = self.core.up().await;
            let counts = up.link.stat().await;
            let counts = counts.map_err(|error| self.core.failed(&up, error))?;
            let later = match &self.core.later {
                Some(later) => later.count().await?,
                None => 0,
            };
            let state = lock(&self.core.state);
            let idle = state.idle();
            let reserved = match counts.out {
                Some(out) => out.saturating_sub(idle),
                None => state.out(),
            };
            Ok(Stat {
                active: counts.waiting + idle,
                delayed: counts.delayed + later,
                reserved,
                oldest: counts.oldest,
            })
        })
    }

    fn list(&self, after: Option<Vec<u8>>) -> BoxFuture<'_, Result<Part, DriverError>> {
        Box::pin(async move {
            let unknown = || DriverError::Unavailable("`after` is of no part of a list".to_owned());
            let after = match after {
                Some(after) => Some(ListedTo::read(&after).ok_or_else(unknown)?),
                None => None,
            };
            let up = self.core.up().await;
            let listed = up.link.list(after).await;
            let (jobs, next) = listed.map_err(|error| self.core.failed(&up, error))?;
            let jobs = jobs.into_iter().map(Listed::from).collect();
            let next = next.as_ref().map(ListedTo::write);
            Ok(Part { jobs, next })
        })
    }

    fn health(&self) -> Result<(), String> {
        self.core.here()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        lock(&self.core.state).closing = true;
        self.core.changed.notify_one();
        let mut closed = self.core.closed.subscribe();
        Box::pin(async move {
            _ = closed.wait_for(|closed| *closed).await;
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    /// A broker whose connections end after these times; then it lets nobody in.
    struct Flaky {
        lives: Mutex<VecDeque<Duration>>,
        connected: Arc<Mutex<Vec<Instant>>>,
    }

    struct FlakyLink(Duration);

    impl Broker for Flaky {
        type Link = FlakyLink;

        fn title(&self) -> &'static str {
            "flaky"
        }

        fn queue(&self) -> &'static str {
            "jobs"
        }

        async fn connect(&self) -> Result<FlakyLink, BrokerError> {
            lock(&self.connected).push(Instant::now());
            let life = lock(&self.lives).pop_front();
            let life = life.ok_or_else(|| BrokerError::Refused("no more".to_owned()))?;
            Ok(FlakyLink(life))
        }
    }

    impl Link for FlakyLink {
        type Token = u64;

        const TOKENS_OUTLIVE_IT: bool = false;
        const KEEP_EVERY: Option<Duration> = None;

        async fn push(&self, _jobs: Vec<Job>) -> Result<(), BrokerError> {
            Ok(())
        }

        async fn fetch(&self, _most: usize) -> Result<Vec<(Job, u64)>, BrokerError> {
            Ok(vec![(Job::default(), 0)])
        }

        async fn settle(&self, _token: u64, step: Step) -> Result<(), BrokerError> {
            match step {
                Step::Again(_) => Err(BrokerError::Unfit("it is too big".to_owned())),
                _ => Ok(()),
            }
        }

        async fn tend(&self) -> BrokerError {
            sleep(self.0).await;
            BrokerError::Lost("it does not last".to_owned())
        }

        async fn stat(&self) -> Result<Counts, BrokerError> {
            Ok(Counts::default())
        }

        async fn close(&self) {}
    }

    #[tokio::test(start_paused = true)]
    async fn a_broker_that_was_of_use_is_tried_again_soon() {
        const SHORT: usize = 10;
        const LONG: Duration = Duration::from_secs(3600);
        let mut lives = VecDeque::from([Duration::ZERO; SHORT]);
        lives.push_back(LONG);
        let connected = Arc::new(Mutex::new(Vec::new()));
        let broker = Flaky {
            lives: Mutex::new(lives),
            connected: connected.clone(),
        };
        let _driver = Brokered::open(broker, "p", Wake::default());
        sleep(2 * LONG).await;
        let connected = lock(&connected).clone();
        // By then a broker that ends all connections at once is tried every few seconds.
        let patient = connected[SHORT] - connected[SHORT - 1];
        assert!(patient > Duration::from_secs(4), "{patient:?}");
        let soon = connected[SHORT + 1] - (connected[SHORT] + LONG);
        assert!(soon < Duration::from_millis(200), "{soon:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_push_waits_for_a_broker_that_was_just_lost_and_for_no_other() {
        let life = Duration::from_secs(60);
        let broker = Flaky {
            lives: Mutex::new(VecDeque::from([life])),
            connected: Arc::default(),
        };
        let driver = Brokered::open(broker, "p", Wake::default());
        let push = async || {
            let begin = Instant::now();
            let pushed = driver.push(Vec::new()).await;
            (pushed, begin.elapsed())
        };
        assert_eq!(push().await, (Ok(()), Duration::ZERO));
        sleep(life + Duration::from_secs(4)).await;
        let away = Err(DriverError::Away("flaky is away: no more".to_owned()));
        assert_eq!(push().await, (away.clone(), Duration::from_secs(6)));
        assert_eq!(push().await, (away, Duration::ZERO));
    }

    #[tokio::test(start_paused = true)]
    async fn who_settles_a_job_is_told_why_it_does_not_go() {
        const LIFE: Duration = Duration::from_secs(60);
        let broker = Flaky {
            lives: Mutex::new([LIFE, LIFE].into()),
            connected: Arc::default(),
        };
        let driver = Brokered::open(broker, "p", Wake::default());
        driver.resume();
        driver.want(1);
        let taken = async || loop {
            match driver.take(Instant::now()) {
                Some(delivery) => return delivery.ticket,
                None => sleep(Duration::from_millis(1)).await,
            }
        };
        let ticket = taken().await;
        let delay = Duration::ZERO;
        let unfit = driver.settle(ticket, Settlement::Failed { delay }).await;
        let why = "flaky: it is too big".to_owned();
        assert_eq!(unfit, Err(DriverError::Unfit(why)));
        driver.settle(ticket, Settlement::Reject).await.unwrap();
        driver.want(1);
        let ticket = taken().await;
        sleep(LIFE).await;
        let lost = driver.settle(ticket, Settlement::Ack).await;
        let why = "the connection to flaky was lost before flaky knew of it".to_owned();
        assert_eq!(lost, Err(DriverError::Forgotten(why)));
    }

    #[test]
    fn a_place_in_a_list_is_read_as_it_was_written() {
        for place in [ListedTo::Delayed(u64::MAX), ListedTo::Waiting(5, 0)] {
            assert_eq!(ListedTo::read(&place.write()), Some(place));
        }
        for wrong in [
            &b""[..],
            b"d",
            b"d-1",
            b"w",
            b"w5",
            b"w5-",
            b"x5-1",
            b"w5-1 DEL",
            b"\xff",
        ] {
            assert_eq!(ListedTo::read(wrong), None);
        }
    }
}
