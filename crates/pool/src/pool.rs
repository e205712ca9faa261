//! A pool as its callers and its workers see it.

use std::cmp::Reverse;
use std::fmt;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use pronghorn_base::{Budget, LogThrottle, lock, micros};
use pronghorn_metrics::Registry;
use pronghorn_process::{CpuClock, Exit};
use pronghorn_wire::native::{LogEntry, Thrown};
use thiserror::Error;
use tokio::runtime::Handle;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::affinity::AffinityId;
use crate::call::{self, Call, CallError, Payload, Pending, Refused, Terms, Withdraw, WorkerFault};
pub(crate) use crate::contract::{Order, Report, Transport, UnderWay};
use crate::core::{Admitted, Core, Freed, Next, PrefetchLimits, SlotId, SlotState};
use crate::incident::{Incident, IncidentKind, Incidents};
use crate::log;
use crate::observer::{Observer, Taker};
use crate::php_message::{Source, Speaker};
use crate::poison::{Identity, Poison, Shut};
use crate::queue::Ticket;
use crate::remarks::Remarks;
use crate::roster::{self, Roster, WorkerInfo};
use crate::stamps::Stamps;
use crate::stats::{Counter, Stats};

/// How often a call is given to another worker because the one that got it asked to be replaced.
const MOST_DECLINED: u8 = 3;
/// Between two looks at calls whose wait may be over: a queue of thousands must not be searched for
/// each of them.
const BETWEEN_LOOKS: Duration = Duration::from_millis(5);

/// Looks at stacks in a second. Each takes half a millisecond.
const MOST_LOOKS: u32 = 10;
/// Records of failed calls in a second. Who asks for what fails chooses how often it does, and each
/// may have a stack of kilobytes; a hundred say what is wrong as well as ten thousand.
const MOST_FAILURES: u32 = 100;

/// What a pool needs to know to take calls.
#[derive(Debug, Clone)]
pub struct Options {
    /// As routes and logs name it.
    pub name: String,
    /// Calls that may wait.
    pub queue_limit: usize,
    /// How long they may.
    pub queue_timeout: Duration,
    /// How long a worker may take for one.
    pub exec_ttl: Option<Duration>,
    /// After which PHP's stack is looked at.
    pub slow: Option<Duration>,
    /// Who keeps what went wrong.
    pub incidents: Incidents,
    /// The most that a call may ask for at a time, counted from then.
    pub deadline_max: Duration,
    /// After so many calls, and up to 14 % more at random, a worker is replaced. With 1 no worker
    /// gets a second call; otherwise it goes on until its successor is up.
    pub max_jobs: Option<NonZeroU64>,
    /// Calls run also when their clients left while they waited.
    pub runs_alone: bool,
    /// Those that are left for workers, at least one: while so many are busy with quick calls, no
    /// other worker is woken for one.
    pub processors: usize,
}

impl Options {
    /// Of a pool that only lends a relay its ways: nothing waits there, and whoever uses it keeps
    /// the time.
    pub(crate) const fn aside(name: String) -> Self {
        Self {
            name,
            queue_limit: 1,
            queue_timeout: Duration::MAX,
            exec_ttl: None,
            slow: None,
            incidents: Incidents::NOBODY,
            deadline_max: Duration::MAX,
            max_jobs: None,
            runs_alone: false,
            processors: 1,
        }
    }
}

/// Why a call did not get more time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum NotExtended {
    #[error("no worker has the pid {0}")]
    NoWorker(u32),
    #[error("the worker with the pid {0} has no call")]
    NoCall(u32),
}

/// A set of workers behind one queue. Cheap to clone.
#[derive(Clone)]
pub struct Pool {
    shared: Arc<Shared>,
    _timekeeper: Arc<Timekeeper>,
}

/// The task that refuses calls whose wait is over; ends with the last handle to its pool.
struct Timekeeper(JoinHandle<()>);

impl Drop for Timekeeper {
    fn drop(&mut self) {
        self.0.abort();
    }
}

pub(crate) struct Shared {
    name: String,
    limits: Limits,
    /// Held for a few steps at a time; nothing blocks inside. Only threads that serve requests take
    /// it: a control thread that lost its processor while it held the lock would stop all of them.
    /// It sends its steps to `home`.
    core: Mutex<Guarded>,
    seq: AtomicU64,
    queue_has_calls: Notify,
    home: Handle,
    refusals: LogThrottle,
    dropped: LogThrottle,
    second_answers: LogThrottle,
    /// Records of calls that failed.
    failures: Budget,
    /// Of the control side alone.
    roster: Roster,
    poison: Poison,
    remarks: Remarks,
    looks: Budget,
    incidents: Incidents,
    generations: AtomicU64,
    pub(crate) stats: Stats,
    /// Takes what the application counts.
    metrics: Registry,
}

/// The limits of a call, which a reload of the configuration may change.
struct Limits {
    queue_timeout: AtomicU64,
    /// 0 is none.
    exec_ttl: AtomicU64,
    /// 0 is none.
    slow: AtomicU64,
    deadline_max: AtomicU64,
    /// 0 is none.
    max_jobs: AtomicU64,
    runs_alone: AtomicBool,
}

impl Limits {
    fn new(options: &Options) -> Self {
        let limits = Self {
            queue_timeout: AtomicU64::new(0),
            exec_ttl: AtomicU64::new(0),
            slow: AtomicU64::new(0),
            deadline_max: AtomicU64::new(0),
            max_jobs: AtomicU64::new(0),
            runs_alone: AtomicBool::new(false),
        };
        limits.set(options);
        limits
    }

    /// Calls that meanwhile look may find some of the old ones and some of the new ones.
    fn set(&self, options: &Options) {
        let nanos = |limit: Duration| u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
        let set = |limit: &AtomicU64, to: u64| limit.store(to, Ordering::Relaxed);
        set(&self.queue_timeout, nanos(options.queue_timeout));
        set(&self.exec_ttl, options.exec_ttl.map_or(0, nanos));
        set(&self.slow, options.slow.map_or(0, nanos));
        set(&self.deadline_max, nanos(options.deadline_max));
        self.runs_alone.store(options.runs_alone, Ordering::Relaxed);
        set(&self.max_jobs, options.max_jobs.map_or(0, NonZeroU64::get));
    }

    fn queue_timeout(&self) -> Duration {
        Duration::from_nanos(self.queue_timeout.load(Ordering::Relaxed))
    }

    fn exec_ttl(&self) -> Option<Duration> {
        let limit = self.exec_ttl.load(Ordering::Relaxed);
        (limit > 0).then(|| Duration::from_nanos(limit))
    }

    fn slow(&self) -> Option<Duration> {
        let limit = self.slow.load(Ordering::Relaxed);
        (limit > 0).then(|| Duration::from_nanos(limit))
    }

    fn deadline_max(&self) -> Duration {
        Duration::from_nanos(self.deadline_max.load(Ordering::Relaxed))
    }

    fn max_jobs(&self) -> Option<u64> {
        Some(self.max_jobs.load(Ordering::Relaxed)).filter(|limit| *limit > 0)
    }
}

struct Guarded {
    core: Core<Call, Arc<dyn Transport>>,
    /// Whether the timekeeper will look without being told.
    timekeeper_armed: bool,
}

/// Whether a call may be given to a worker that has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Prefetch {
    Allowed,
    /// It has been with a worker that did not run it: it gets one that is free.
    Refused,
}

/// What a worker does next, and calls for after that.
#[derive(Debug)]
pub(crate) struct Turn {
    pub(crate) next: Next<Call>,
    pub(crate) prefetched: Vec<Call>,
}

/// Takes the calls that are on their way to a worker in the moment in which it leaves.
#[derive(Clone)]
pub struct Requeue(Arc<Shared>);

impl Requeue {
    pub fn take(&self, call: Call) {
        if !call.is_unwanted() {
            self.0.admit(call, Instant::now(), Prefetch::Refused);
        }
    }
}

impl fmt::Debug for Requeue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Requeue").field(&self.0.name).finish()
    }
}

impl Pool {
    /// A pool without workers. Its steps run on `home`, the runtime of a thread that serves
    /// requests.
    pub fn new(options: Options, home: &Handle, metrics: &Registry) -> Self {
        let core = Core::new(
            options.queue_limit,
            options.queue_timeout,
            options.processors,
        );
        let shared = Arc::new(Shared {
            core: Mutex::new(Guarded {
                core,
                timekeeper_armed: false,
            }),
            seq: AtomicU64::new(1),
            queue_has_calls: Notify::new(),
            home: home.clone(),
            refusals: LogThrottle::default(),
            dropped: LogThrottle::default(),
            second_answers: LogThrottle::default(),
            failures: Budget::per_second(MOST_FAILURES),
            roster: Roster::default(),
            poison: Poison::default(),
            remarks: Remarks::default(),
            looks: Budget::per_second(MOST_LOOKS),
            incidents: options.incidents.clone(),
            generations: AtomicU64::new(0),
            stats: Stats::new(metrics, &options.name),
            metrics: metrics.clone(),
            limits: Limits::new(&options),
            name: options.name,
        });
        shared.count_cpu(metrics);
        let timekeeper = Arc::new(Timekeeper(home.spawn(keep_time(shared.clone()))));
        Self {
            shared,
            _timekeeper: timekeeper,
        }
    }

    /// Hands a call in. `accepted` is when the client's request arrived, `now` is now: the caller
    /// has just looked at the clock, and every look costs.
    pub fn call(
        &self,
        payload: Arc<dyn Payload>,
        terms: Terms,
        accepted: Instant,
        now: Instant,
    ) -> Pending {
        let seq = self.shared.seq.fetch_add(1, Ordering::Relaxed);
        let stamps = Stamps::new(accepted, now);
        let runs_alone =
            self.shared.limits.runs_alone.load(Ordering::Relaxed) && payload.is_complete();
        let pool = self.shared.clone();
        let (call, pending) = call::call(pool, payload, stamps, terms, seq, runs_alone);
        if self.shared.poison.is_known() && self.shared.is_poison(&call, now) {
            call.fail(CallError::Poisoned);
        } else {
            self.shared.admit(call, now, Prefetch::Allowed);
        }
        pending
    }

    /// An origin of calls that belong to one worker.
    pub fn affinity(&self) -> Affinity {
        Affinity {
            id: self.shared.lock().core.add_affinity(),
            shared: self.shared.clone(),
        }
    }

    /// A call that its maker brings to a worker himself.
    pub(crate) fn call_aside(&self, payload: Arc<dyn Payload>) -> (Call, Pending) {
        let now = Instant::now();
        let stamps = Stamps::new(now, now);
        let (call, pending) = call::call(
            self.shared.clone(),
            payload,
            stamps,
            Terms::default(),
            0,
            false,
        );
        (self.shared.dispatched(call, now), pending)
    }

    /// How long a worker may take for a call whose terms say nothing else.
    pub fn exec_ttl(&self) -> Option<Duration> {
        self.shared.limits.exec_ttl()
    }

    pub fn name(&self) -> &str {
        &self.shared.name
    }

    pub fn stats(&self) -> &Stats {
        &self.shared.stats
    }

    /// Writes a record of a call that failed, unless there were too many in this second. It is
    /// given how many were left out right before it.
    pub fn tell_failure(&self, write: impl FnOnce(Option<u64>)) {
        self.shared.tell_failure(write);
    }

    pub(crate) fn tell(&self, incident: impl FnOnce() -> Incident) {
        self.shared.incidents.tell(incident);
    }

    pub(crate) fn count(&self, counter: Counter) {
        self.shared.stats.count(counter);
    }

    /// A number for the workers of one start or reload.
    pub(crate) fn next_generation(&self) -> u64 {
        self.shared.remarks.forget();
        self.shared.generations.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(crate) fn roster(&self) -> &Roster {
        &self.shared.roster
    }

    /// A worker's place, and where its reports arrive.
    #[expect(
        clippy::disallowed_methods,
        reason = "none may be dropped, and a worker causes no more than a handful"
    )]
    pub(crate) fn slot_handle(
        &self,
        slot: SlotId,
        pid: u32,
    ) -> (SlotHandle, mpsc::UnboundedReceiver<Report>) {
        let (reports, inbox) = mpsc::unbounded_channel();
        (
            SlotHandle {
                shared: self.shared.clone(),
                slot,
                pid,
                reports,
                wants_renewal: AtomicBool::new(false),
            },
            inbox,
        )
    }

    /// Changes the limits, all but the name: for calls that come from now on, and workers that
    /// start from now on.
    pub async fn adjust(&self, options: &Options) {
        self.shared.limits.set(options);
        let (limit, timeout) = (options.queue_limit, options.queue_timeout);
        self.apply(move |core| core.limit_queue(limit, timeout))
            .await;
    }

    /// Carries out a step on the pool's state, on a thread that may.
    async fn apply<R: Send + 'static>(
        &self,
        step: impl FnOnce(&mut Core<Call, Arc<dyn Transport>>) -> R + Send + 'static,
    ) -> R {
        let (done, result) = oneshot::channel();
        let shared = self.shared.clone();
        self.shared.home.spawn(async move {
            _ = done.send(shared.step(step)); // whoever asked may have been cancelled
        });
        result
            .await
            .expect("the pool's home lives as long as its supervisor")
    }

    pub(crate) async fn add_slot(&self) -> SlotId {
        self.apply(Core::add_slot).await
    }

    pub(crate) async fn remove_slot(&self, slot: SlotId) {
        self.apply(move |core| core.remove_slot(slot)).await;
    }

    pub(crate) async fn booting(&self, slot: SlotId) {
        self.apply(move |core| core.booting(slot)).await;
    }

    pub(crate) async fn failed(&self, slot: SlotId) {
        for call in self.apply(move |core| core.failed(slot)).await {
            self.shared.refuse(call, Refused::NoWorker);
        }
    }

    /// Gives a worker no further call; when it is free now, it is asked to end.
    pub(crate) async fn drain(&self, slot: SlotId) {
        let drained = self.apply(move |core| core.drain(slot)).await;
        self.shared.run(drained.moved);
        if let Some(worker) = drained.idle {
            worker.order(Order::Stop);
        }
    }

    /// The number of waiting calls that another worker would help, and the wait of the oldest one.
    pub(crate) fn wanting(&self, now: Instant) -> (usize, Option<Duration>) {
        let (waiting, oldest) = self.shared.lock().core.wanting();
        (
            waiting,
            oldest.map(|oldest| now.saturating_duration_since(oldest)),
        )
    }

    /// Brings calls and workers together that a bug left apart, and says how many. Each is told
    /// with the pool's state.
    pub(crate) async fn heal(&self) -> usize {
        let (healed, states, now) = self
            .apply(|core| {
                let now = Instant::now();
                let states = core.all_states();
                (core.heal(now), states, now)
            })
            .await;
        let count = healed.len();
        if count > 0 {
            tracing::error!(
                target: "pool", pool = self.name(), calls = count, waiting = self.stats().waiting(), ?states,
                "calls waited although workers were free; they run now. This is a bug, please \
                 report it"
            );
        }
        for (worker, call) in healed {
            self.shared.stats.count(Counter::Healed);
            worker.submit(self.shared.dispatched(call, now));
        }
        count
    }

    /// A worker died with this request, by itself. Noted on a thread that serves requests, as all
    /// they share.
    pub(crate) fn died_of(&self, identity: Identity, request: String) {
        let shared = self.shared.clone();
        self.shared.home.spawn(async move {
            let pool = &*shared.name;
            match shared.poison.died(identity, Instant::now()) {
                None => {}
                Some(Shut::Request) => tracing::error!(
                    target: "server", pool, request,
                    "two workers died of this request: it is refused for 30 s"
                ),
                Some(Shut::PageForOne) => tracing::error!(
                    target: "server", pool, request,
                    "six workers died of requests of one client that differ only in their \
                     headers: the server refuses such requests of this client, except one in 5 s, \
                     until one is answered"
                ),
                Some(Shut::PageForAll) => tracing::error!(
                    target: "server", pool, request,
                    "workers died of requests of three clients that differ only in their headers: \
                     the server refuses such requests, except one in 5 s, until one is answered"
                ),
            }
        });
    }

    /// Takes no further call and refuses those that wait.
    pub(crate) async fn close(&self) {
        for call in self.apply(Core::stop).await {
            self.shared.refuse(call, Refused::Stopping);
        }
    }
}

impl Shared {
    fn tell_failure(&self, write: impl FnOnce(Option<u64>)) {
        if let Some(left_out) = self.failures.spend() {
            write(Some(left_out).filter(|records| *records > 0));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Guarded> {
        // A panic under the lock is a bug in `core`, whose steps leave it whole; going on beats
        // stopping the pool.
        lock(&self.core)
    }

    /// Registers what all workers together have taken of a processor. Looked up when it is read.
    fn count_cpu(self: &Arc<Self>, metrics: &Registry) {
        let metrics = metrics.named("pool").labelled("pool", &self.name);
        let (shared, most) = (Arc::downgrade(self), AtomicU64::new(0));
        let help = "Processor time of the workers of a pool, also of those that have ended.";
        metrics.counted("workers_cpu_seconds_total", help, move || {
            let now = shared.upgrade().map_or(0, |shared| {
                micros(shared.stats.ended_cpu() + shared.roster.cpu())
            });
            // A worker that is about to be counted with those that have ended is in neither.
            let known = most.fetch_max(now, Ordering::Relaxed).max(now);
            Duration::from_micros(known).as_secs_f64()
        });
    }

    /// For those who look at the queue without its lock; after each step that may have changed it,
    /// before the lock is given back.
    fn publish_queue(&self, guarded: &Guarded) {
        let core = &guarded.core;
        // Most of the time nobody waits, and nobody did.
        if core.waiting() > 0 || self.stats.waiting() > 0 {
            self.stats
                .set_waiting(core.waiting(), core.oldest(), core.stalled());
        }
    }

    fn admit(&self, call: Call, now: Instant, prefetch: Prefetch) {
        // One that was only to come after another has waited since it came.
        let since = if call.attempts == 0 {
            call.stamps.queued
        } else {
            now
        };
        let until = since + self.limits.queue_timeout();
        let ticket = Ticket {
            priority: call.terms.priority,
            seq: call.seq,
            since,
            until,
            // If it leaves from now on, it is found there.
            has_left: call.is_withdrawn(),
            affinity: call.terms.affinity,
        };
        let mut guarded = self.lock();
        let admitted = guarded
            .core
            .admit(call, ticket, prefetch == Prefetch::Allowed);
        let wake = matches!(admitted, Admitted::Waits(_)) && !guarded.timekeeper_armed;
        guarded.timekeeper_armed |= wake;
        self.publish_queue(&guarded);
        drop(guarded);
        if wake {
            self.queue_has_calls.notify_one();
        }
        match admitted {
            Admitted::Run(worker, call) => worker.submit(self.dispatched(call, now)),
            Admitted::Waits(None) => {}
            Admitted::Waits(Some((call, reason))) | Admitted::Refused(call, reason) => {
                self.refuse(call, reason);
            }
        }
    }

    /// Calls that have moved to these workers.
    fn run(&self, moved: Vec<(Arc<dyn Transport>, Call)>) {
        if moved.is_empty() {
            return; // without a look at the clock
        }
        let now = Instant::now();
        for (worker, call) in moved {
            worker.submit(self.dispatched(call, now));
        }
    }

    /// Gives a worker no further call.
    fn drain(&self, slot: SlotId) -> Option<Arc<dyn Transport>> {
        let drained = self.step(|core| core.drain(slot));
        self.run(drained.moved);
        drained.idle
    }

    /// A step that may have changed the queue.
    fn step<R>(&self, step: impl FnOnce(&mut Core<Call, Arc<dyn Transport>>) -> R) -> R {
        let mut guarded = self.lock();
        let result = step(&mut guarded.core);
        self.publish_queue(&guarded);
        result
    }

    fn dispatched(&self, mut call: Call, now: Instant) -> Call {
        self.dispatch(&mut call, now);
        call
    }

    fn dispatch(&self, call: &mut Call, now: Instant) {
        call.stamps.dispatched = Some(now);
        call.deadline = self.limit(call).map(|limit| now + limit);
    }

    fn is_poison(&self, call: &Call, now: Instant) -> bool {
        let identity = call.payload.identity();
        let refuses = identity.is_some_and(|identity| self.poison.refuses(identity, now));
        if refuses {
            self.stats.count(Counter::Poisoned);
        }
        refuses
    }

    fn limit(&self, call: &Call) -> Option<Duration> {
        call.terms.deadline.or_else(|| self.limits.exec_ttl())
    }

    fn refuse(&self, call: Call, reason: Refused) {
        if !call.is_unwanted() {
            call.fail(reason);
            self.stats.count(reason.into());
            // A stop is no news to whoever ordered it.
            if reason != Refused::Stopping
                && let Some(calls) = self.refusals.should_log()
            {
                tracing::warn!(
                    target: "server", pool = self.name, calls, waiting = self.stats.waiting(),
                    "calls refused: {reason}"
                );
            }
        }
    }

    fn settle(&self, freed: Freed<Call>, now: Instant) -> Turn {
        for call in freed.late {
            self.refuse(call, Refused::WaitedTooLong);
        }
        let next = match freed.next {
            Next::Run(call) => Next::Run(self.dispatched(call, now)),
            Next::Wait => Next::Wait,
            Next::Stop => Next::Stop,
        };
        let mut prefetched = freed.prefetched;
        for call in &mut prefetched {
            self.dispatch(call, now);
        }
        Turn { next, prefetched }
    }
}

impl Withdraw for Shared {
    fn withdraw(&self, priority: u8, seq: u64, runs_alone: bool) {
        let mut guarded = self.lock();
        let call = guarded.core.withdraw(priority, seq, runs_alone);
        self.publish_queue(&guarded);
        drop(guarded);
        if call.is_some() {
            self.stats.count(Counter::ClientGone);
            if runs_alone && let Some(calls) = self.dropped.should_log() {
                tracing::warn!(
                    target: "server", pool = self.name, calls, waiting = self.stats.waiting(),
                    "calls dropped whose clients have left: they already fill a quarter of the \
                     queue"
                );
            }
        }
        drop(call); // not under the lock
    }
}

/// Refuses calls whose wait is over. Sleeps until the first of them can be, so it costs a call
/// nothing; a call that is queued while nobody waits wakes it once.
async fn keep_time(pool: Arc<Shared>) {
    loop {
        pool.queue_has_calls.notified().await;
        while let Some(next) = expire(&pool) {
            tokio::time::sleep_until(next.max(Instant::now() + BETWEEN_LOOKS)).await;
        }
    }
}

fn expire(pool: &Shared) -> Option<Instant> {
    let mut guarded = pool.lock();
    let (late, next) = guarded.core.expire(Instant::now());
    guarded.timekeeper_armed = next.is_some();
    pool.publish_queue(&guarded);
    drop(guarded);
    for call in late {
        pool.refuse(call, Refused::WaitedTooLong);
    }
    next
}

/// Keeps the calls of one origin on one worker, which the first of them chooses: the one that has
/// the fewest origins. When that worker takes no more, the next call chooses again. An origin has
/// one call at a time.
pub struct Affinity {
    shared: Arc<Shared>,
    id: AffinityId,
}

impl Affinity {
    /// For the [terms](Terms) of its calls.
    pub const fn id(&self) -> AffinityId {
        self.id
    }
}

impl Drop for Affinity {
    fn drop(&mut self) {
        self.shared.lock().core.remove_affinity(self.id);
    }
}

impl fmt::Debug for Affinity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Affinity").field(&self.id).finish()
    }
}

/// How many calls a worker still gets, if they are counted.
#[derive(Debug, Clone, Copy)]
pub struct Lifetime(Option<u64>);

impl Lifetime {
    pub(crate) fn calls_left(self) -> Option<u64> {
        self.0
    }

    /// Counts a call. True when it was the worker's last. Where it may get more, its successor is
    /// asked for.
    pub fn is_over(&mut self, slot_handle: &SlotHandle) -> bool {
        let Some(left) = &mut self.0 else {
            return false;
        };
        *left = left.saturating_sub(1);
        if *left > 0 {
            return false;
        }
        if !slot_handle.is_strict() {
            self.0 = None;
            slot_handle.report(Report::Worn);
            return false;
        }
        true
    }
}

/// A worker's place in its pool, held by its transport.
pub struct SlotHandle {
    shared: Arc<Shared>,
    slot: SlotId,
    pid: u32,
    reports: mpsc::UnboundedSender<Report>,
    /// Whether that was told.
    wants_renewal: AtomicBool,
}

impl SlotHandle {
    /// Takes the place: from now on calls come.
    pub fn enter(&self, worker: Arc<dyn Transport>) -> Next<Call> {
        let now = Instant::now();
        let freed = self.takes(|core| core.enter(self.slot, worker, now));
        self.report(Report::Entered);
        self.shared.settle(freed, now).next
    }

    /// The call is done, or was given back. What next? `now` is now. From then on the worker may
    /// have so many calls ahead.
    pub(crate) fn next(&self, now: Instant, prefetch: PrefetchLimits) -> Turn {
        let freed = self.takes(|core| core.freed(self.slot, now, prefetch));
        self.shared.settle(freed, now)
    }

    /// The call is answered, and what it has left is short: calls for after that. The worker may
    /// have so many until it is done.
    pub(crate) fn winds_down(&self, now: Instant, prefetch: PrefetchLimits) -> Vec<Call> {
        let freed = self.takes(|core| core.winds_down(self.slot, now, prefetch));
        self.shared.settle(freed, now).prefetched
    }

    /// A step of the worker that may take calls from the queue.
    fn takes(
        &self,
        step: impl FnOnce(&mut Core<Call, Arc<dyn Transport>>) -> Freed<Call>,
    ) -> Freed<Call> {
        let mut guarded = self.shared.lock();
        let freed = step(&mut guarded.core);
        self.shared.publish_queue(&guarded);
        freed
    }

    /// As `next`, for a worker that has one call at a time.
    pub fn next_alone(&self, now: Instant) -> Next<Call> {
        self.next(now, PrefetchLimits::default()).next
    }

    /// Whether calls wait for a worker of this pool.
    pub(crate) fn others_wait(&self) -> bool {
        self.shared.lock().core.waiting() > 0
    }

    /// Calls that the worker was given and has not begun, or none: it gets none ahead until the one
    /// at hand is done.
    pub fn give_back(&self, calls: Vec<Call>) {
        self.shared.lock().core.took_back(self.slot, calls.len());
        if calls.is_empty() {
            return; // without a look at the clock
        }
        let now = Instant::now();
        // One whose client has left would stay in the queue.
        let wanted = calls.into_iter().filter(|call| !call.is_unwanted());
        let (mut elsewhere, here): (Vec<_>, Vec<_>) =
            wanted.partition(|call| call.payload.waits_elsewhere());
        for call in here {
            self.shared.admit(call, now, Prefetch::Refused);
        }
        // The last one first, for those who put each in front of what they have.
        elsewhere.sort_unstable_by_key(|call| Reverse(call.seq));
        for call in elsewhere {
            call.fail(CallError::NotBegun);
        }
    }

    /// The worker takes no further call, by its own wish.
    pub fn close(&self) {
        // Not idle: only a worker that has a call, or just finished one, says so.
        let idle = self.shared.drain(self.slot);
        debug_assert!(
            idle.is_none(),
            "a worker that is free can't leave by itself"
        );
    }

    /// The worker turned out to be unusable while it was free.
    pub fn retire(&self) {
        _ = self.shared.drain(self.slot); // the one who would be asked to stop it is the caller
    }

    /// After how many calls this worker is replaced. The random part keeps workers that started
    /// together from ending together; its size is RoadRunner's.
    pub fn lifetime(&self) -> Lifetime {
        let max_jobs = self.shared.limits.max_jobs();
        Lifetime(max_jobs.map(|most| most.saturating_add(fastrand::u64(..=most / 7))))
    }

    /// Whether a worker must not get a call more than that: where each is promised a fresh one.
    fn is_strict(&self) -> bool {
        self.shared.limits.max_jobs() == Some(1)
    }

    /// A deadline with so much time from now on, at most what a call may ask for at a time. A call
    /// without a deadline needs no more time, and none gets less than it has.
    pub fn later(&self, deadline: Option<Instant>, time: Duration) -> Option<Instant> {
        let granted = Instant::now() + time.min(self.shared.limits.deadline_max());
        deadline.map(|deadline| deadline.max(granted))
    }

    pub fn count(&self, counter: Counter) {
        self.shared.stats.count(counter);
    }

    /// As [`Pool::tell_failure`].
    pub fn tell_failure(&self, write: impl FnOnce(Option<u64>)) {
        self.shared.tell_failure(write);
    }

    /// A worker lived through a call.
    pub fn lived_through(&self, payload: &dyn Observer) {
        if self.shared.poison.is_known()
            && let Some(identity) = payload.identity()
        {
            self.shared.poison.answered(identity);
        }
    }

    /// How long a worker may take for a call, or for the next piece of its reply.
    pub(crate) fn limit(&self, call: &Call) -> Option<Duration> {
        self.shared.limit(call)
    }

    /// Who takes a call up.
    pub fn taker(&self, call: &Call, hears: bool, nth: u64) -> Taker {
        Taker {
            hears,
            pid: self.pid,
            nth,
            is_retry: call.attempts > 0,
        }
    }

    /// Makes a record of what the application wants to be logged, during this call or none.
    pub(crate) fn log(&self, call: Option<&dyn Observer>, entry: &LogEntry) {
        let origin = call.map(Observer::origin).unwrap_or_default();
        log::write(self.pool(), self.pid, origin, entry);
    }

    /// Hands on what the application has counted.
    pub(crate) fn count_for_application(&self, changes: &[u8]) {
        self.shared.metrics.count(self.pool(), changes);
    }

    /// Makes a record of what is written to PHP's log, during this call or none. Who reads reports
    /// gets one of a fatal error; what is thrown is for the log alone, and so is what the
    /// application says, whatever it looks like.
    pub(crate) fn log_message(&self, call: Option<&UnderWay>, text: &str, by: Source) {
        let details = call.and_then(|call| call.payload.details());
        let speaker = Speaker {
            pool: self.pool(),
            pid: self.pid,
        };
        let message = speaker.log(text, details.as_deref(), by);
        let Some(message) = message.filter(|_| by == Source::Php) else {
            return;
        };
        if let Some(call) = call.filter(|_| message.is_error()) {
            call.payload.ended_by_php(message.thrown());
        }
        if !message.is_fatal() {
            return;
        }
        let place = message.file.zip(message.line);
        let place = place.map(|(file, line)| format!(" in {file}:{line}"));
        self.shared.incidents.tell(|| Incident {
            kind: IncidentKind::Fatal,
            pool: self.pool().to_owned(),
            pid: self.pid,
            cause: format!("{}{}", message.message(), place.unwrap_or_default()),
            text: text.to_owned(),
            request: call.map(|call| call.payload.describe()),
            details,
            ran: call.map(|call| call.since.elapsed()),
            ..Incident::default()
        });
    }

    /// PHP has ended a call, and says that it can't go on.
    pub(crate) fn tell_fatal(&self, call: &Call, error: &CallError) {
        let CallError::Thrown(thrown) = error else {
            return;
        };
        self.shared.incidents.tell(|| Incident {
            kind: IncidentKind::Fatal,
            pool: self.pool().to_owned(),
            pid: self.pid,
            cause: thrown.to_string(),
            text: format!("{}: {}", thrown.class, thrown.message),
            request: Some(call.payload.describe()),
            details: call.payload.details(),
            ran: Some(call.stamps.ran()),
            progress: Some(call.stamps.progress()),
            stack: thrown.trace.lines().map(ToOwned::to_owned).collect(),
            ..Incident::default()
        });
    }

    /// A process has ended that was started for a call alone, and had taken so much of a processor,
    /// if anybody could tell.
    pub fn ended_after(&self, cpu: Option<Duration>) {
        self.shared.stats.ended_after(cpu);
    }

    /// Of the worker's process.
    pub(crate) fn clock(&self) -> Option<CpuClock> {
        CpuClock::of(self.pid)
    }

    /// After how long PHP's stack is looked at.
    pub(crate) fn slow(&self) -> Option<Duration> {
        self.shared.limits.slow()
    }

    /// Whether one more may be: each takes the time of the control thread.
    pub(crate) fn may_look(&self) -> bool {
        self.shared.looks.spend().is_some()
    }

    /// How long a worker may take for what belongs to no call.
    pub fn exec_ttl(&self) -> Option<Duration> {
        self.shared.limits.exec_ttl()
    }

    /// The worker asked to be replaced instead of answering: another one gets the call.
    pub fn decline(&self, mut call: Call) {
        call.attempts += 1;
        if call.is_unwanted() {
            // Nobody would take it out of the queue again.
        } else if call.attempts >= MOST_DECLINED {
            let attempts = call.attempts;
            call.fail(WorkerFault::Unwilling(attempts));
        } else {
            self.shared.admit(call, Instant::now(), Prefetch::Refused);
        }
    }

    /// The worker died, or is about to be killed, before any part of a reply was passed on. True
    /// when another worker gets the call: once, and only one that may be repeated.
    pub fn lose(&self, mut call: Call, fault: WorkerFault) -> bool {
        let again = call.attempts == 0 && call.payload.repeatable() && !call.is_withdrawn();
        if again {
            call.attempts += 1;
            self.shared.stats.count(Counter::Retried);
            self.shared.admit(call, Instant::now(), Prefetch::Refused);
        } else {
            call.fail(self.cause_of(fault));
        }
        again
    }

    /// A worker that gets no more calls and ends by a signal that the server sends was ended by it.
    fn cause_of(&self, fault: WorkerFault) -> WorkerFault {
        const TERMINATED: [i32; 2] = [9, 15];
        let WorkerFault::Died(exit) = fault else {
            return fault;
        };
        let by_signal = matches!(exit, Exit::Signal(number) if TERMINATED.contains(&number));
        let ends = |state| matches!(state, SlotState::Draining | SlotState::Stopping);
        if by_signal && ends(self.shared.lock().core.state(self.slot)) {
            return WorkerFault::CutOff(exit);
        }
        fault
    }

    /// A worker answered a call twice. When it is time for a record of that: how many did since the
    /// last.
    pub(crate) fn second_answer(&self) -> Option<u64> {
        self.shared.second_answers.should_log()
    }

    /// Whether nothing has been said of that place since the last reload; `true` inside, nothing
    /// more will be.
    pub(crate) fn is_new(&self, remark: &Thrown) -> Option<bool> {
        self.shared.remarks.add(remark)
    }

    pub fn report(&self, report: Report) {
        // Without its slot supervisor, the process is killed and nobody needs to know.
        _ = self.reports.send(report);
    }

    /// The worker would do better as a new process. It may say so as often as it likes.
    pub(crate) fn asks_for_renewal(&self, full: bool) {
        if !self.wants_renewal.swap(true, Ordering::Relaxed) {
            self.report(Report::AsksForRenewal { full });
        }
    }

    /// The process is gone and nothing is under way: the place is empty.
    pub fn leave(self) {
        let moved = self.shared.step(|core| core.vacate(self.slot));
        self.shared.run(moved);
        self.report(Report::Left);
    }

    pub(crate) fn requeue(&self) -> Requeue {
        Requeue(self.shared.clone())
    }

    pub(crate) fn slot(&self) -> SlotId {
        self.slot
    }

    pub fn pool(&self) -> &str {
        &self.shared.name
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("name", &self.shared.name)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for SlotHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SlotHandle")
            .field("slot", &self.slot)
            .finish_non_exhaustive()
    }
}

/// For people and tests.
impl Pool {
    /// How many workers are up. Asks nobody.
    pub fn workers(&self) -> usize {
        self.shared.roster.len()
    }

    /// How many calls its busy workers would take for when they are done with those they have: none
    /// unless these are quick.
    pub fn room(&self) -> usize {
        self.shared.lock().core.room()
    }

    /// Lets workers that are free say that they hear.
    pub fn ping(&self) {
        self.shared.roster.ping();
    }

    /// All workers that are up. Answers within a second, however busy they are.
    pub async fn inspect(&self) -> Vec<WorkerInfo> {
        let states = self.apply(|core| core.all_states()).await;
        let state = |slot: SlotId| states.get(slot).copied().unwrap_or(SlotState::Empty);
        self.shared.roster.inspect(state).await
    }

    /// Gives the call that a worker is at `time` from now on, but at most the pool's
    /// `deadline_max`; says how much it is.
    ///
    /// # Errors
    ///
    /// When there is no such worker, or it has no call.
    pub async fn extend(&self, pid: u32, time: Duration) -> Result<Duration, NotExtended> {
        let worker = self
            .shared
            .roster
            .worker(pid)
            .ok_or(NotExtended::NoWorker(pid))?;
        if !roster::is_busy(worker.as_ref()).await {
            return Err(NotExtended::NoCall(pid));
        }
        let time = time.min(self.shared.limits.deadline_max());
        worker.order(Order::Extend(time));
        Ok(time)
    }

    /// Where each slot stands.
    pub async fn states(&self) -> Vec<SlotState> {
        self.apply(|core| core.states()).await
    }
}
