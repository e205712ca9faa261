//! Random steps through the whole pool, its supervisor included: calls, crashes, boots that are
//! slow or fail, reloads, deadlines, clients that leave, workers that are added and removed. After
//! each step the promises of a pool are checked.
//!
//! The workers are the test's; time is paused. What the test is worth is shown by [`Bug`]: it finds
//! every one of them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use pronghorn_base::{BoxFuture, lock};
use pronghorn_process::{Exit, Signal};
use pronghorn_wire::{Codec, DecodeError, Head};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use super::status;
use crate::call::{
    Answer, Body, Call, CallError, Encoding, Payload, Pending, Refused, ReplyBody, Terms,
    Unencodable, WorkerFault,
};
use crate::content::Content;
use crate::core::{Next, PrefetchLimits, SlotId, SlotState};
use crate::observer::Observer;
use crate::pool::{Lifetime, Options, Order, Pool, Report, SlotHandle, Transport};
use crate::roster::{UnderWay, Via};
use crate::stats::Counter;
use crate::supervisor::{
    LaunchError, Launched, Launcher, Limits, Pace, Plan, RunningPool, Scaling, Watched,
};

const QUEUE_LIMIT: usize = 12;
const QUEUE_TIMEOUT: Duration = Duration::from_secs(3);
const EXEC_TTL: Duration = Duration::from_secs(2);
const GRACE: Duration = Duration::from_secs(20);
const MAX_JOBS: u64 = 4;
const TTL: Duration = Duration::from_secs(120);
const WATCH_TICK: Duration = Duration::from_secs(1);
const AT_ONCE: usize = 3;
const MOST_AHEAD: usize = 2;
/// How long a worker lets calls wait behind the one at hand.
const PATIENCE: Duration = Duration::from_millis(2);
const MOST: usize = 12;
/// How often a worker asks for new ones in one go.
const WISHES: usize = 50;
/// Clients that wait at a time, at most; more than workers and places in the queue.
const CLIENTS: usize = 40;
/// Steps of one life of a pool, from start to stop.
const STEPS: usize = 500;
/// Everything that is under way has an end within this time: back-offs, deadlines, graces.
const QUIET: Duration = Duration::from_secs(60);

/// A difference between what is promised and what is.
type Broken = String;

macro_rules! ensure {
    ($condition:expr, $($what:tt)+) => {
        if !$condition {
            return Err(format!($($what)+));
        }
    };
}

/// What the test tells a worker.
#[derive(Debug)]
enum Tell {
    Call(Call),
    Order(Order),
    /// Answer the call under way.
    Reply {
        leave: bool,
    },
    /// Give it back.
    Decline,
    Die,
}

/// What is known of the world outside of the pool.
#[derive(Default)]
struct World {
    workers: BTreeMap<u32, Worker>,
    last_pid: u32,
    /// How often each call was begun, the times it was given back not counted.
    begun: BTreeMap<u64, u32>,
    /// Calls that a worker had, whatever became of them.
    given: BTreeSet<u64>,
    /// How long the next boots take; None: they fail.
    boot: Option<Duration>,
    booting: usize,
    /// Whether workers end when they are asked to, and when they get SIGTERM.
    obeys: bool,
    faults: Vec<Broken>,
}

struct Worker {
    slot: SlotId,
    tell: mpsc::Sender<Tell>,
    end: watch::Sender<Option<Exit>>,
    at: Option<u64>,
    /// Calls for after that.
    ahead: usize,
    calls: u64,
    deaf: bool,
}

#[derive(Clone)]
struct Shared(Arc<Mutex<World>>);

impl Shared {
    fn lock(&self) -> MutexGuard<'_, World> {
        lock(&self.0)
    }
}

impl World {
    fn fault(&mut self, what: Broken) {
        self.faults.push(what);
    }

    fn tell(&self, pid: u32, tell: Tell) {
        if let Some(worker) = self.workers.get(&pid) {
            _ = worker.tell.try_send(tell);
        }
    }

    fn pids(&self, busy: bool) -> Vec<u32> {
        let workers = self.workers.iter();
        workers
            .filter(|(_, worker)| worker.at.is_some() == busy)
            .map(|(pid, _)| *pid)
            .collect()
    }

    fn held(&self) -> usize {
        self.workers.values().filter(|it| it.at.is_some()).count()
    }
}

impl Launcher for Shared {
    fn launch(&self, slot: SlotId, _: Pace) -> BoxFuture<'_, Result<Launched, LaunchError>> {
        Box::pin(async move {
            let boot = {
                let mut world = self.lock();
                world.booting += 1;
                if world.booting > AT_ONCE {
                    let booting = world.booting;
                    world.fault(format!("{booting} workers boot at once"));
                }
                world.boot
            };
            let booting = Booting(self.clone());
            sleep(boot.unwrap_or(Duration::from_millis(30))).await;
            drop(booting);
            if boot.is_none() {
                return Err(super::not_launched("model"));
            }
            let mut world = self.lock();
            world.last_pid += 1;
            let pid = world.last_pid;
            let (tell, told) = mpsc::channel(32);
            let (end, ended) = watch::channel(None);
            let deaf = !world.obeys;
            let worker = Worker {
                slot,
                tell: tell.clone(),
                end,
                at: None,
                ahead: 0,
                calls: 0,
                deaf,
            };
            world.workers.insert(pid, worker);
            drop(world);
            let process = Process {
                pid,
                ended,
                world: self.clone(),
            };
            let world = self.clone();
            let connect = move |slot_handle| start(pid, slot_handle, world, tell, told);
            Ok(Launched {
                process: Box::new(process),
                via: Via::Relay,
                connect: Box::new(connect),
            })
        })
    }

    fn own_memory(&self, _: u32, _: u64) -> Option<u64> {
        None
    }
}

/// Counts a boot also when it is given up.
struct Booting(Shared);

impl Drop for Booting {
    fn drop(&mut self) {
        self.0.lock().booting -= 1;
    }
}

struct Process {
    pid: u32,
    ended: watch::Receiver<Option<Exit>>,
    world: Shared,
}

impl Watched for Process {
    fn pid(&self) -> u32 {
        self.pid
    }

    fn wait(&mut self) -> BoxFuture<'_, Exit> {
        Box::pin(async {
            match self.ended.wait_for(Option::is_some).await {
                Ok(exit) => exit.unwrap(),
                Err(_) => Exit::Signal(9),
            }
        })
    }

    fn signal(&self, signal: Signal) {
        let world = self.world.lock();
        if let Some(worker) = world.workers.get(&self.pid)
            && (signal == Signal::Kill || !worker.deaf)
        {
            let number = if signal == Signal::Kill { 9 } else { 15 };
            worker.end.send_if_modified(|end| {
                let first = end.is_none();
                end.get_or_insert(Exit::Signal(number));
                first
            });
        }
    }

    fn interrupt(&self, _: u32) {}

    fn last_words(&self) -> Vec<String> {
        Vec::new()
    }

    fn peak_memory(&self) -> Option<u64> {
        None
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.world.lock().workers.remove(&self.pid);
    }
}

/// The worker's transport, as far as the pool knows it.
struct Wire(mpsc::Sender<Tell>);

impl Transport for Wire {
    fn submit(&self, call: Call) {
        self.0.try_send(Tell::Call(call)).unwrap();
    }

    fn order(&self, order: Order) {
        _ = self.0.try_send(Tell::Order(order)); // a worker that has left hears nothing
    }

    fn executions(&self) -> u64 {
        0
    }

    fn ask(&self, asked: oneshot::Sender<Option<UnderWay>>) {
        _ = asked.send(None);
    }
}

fn start(
    pid: u32,
    slot_handle: SlotHandle,
    world: Shared,
    tell: mpsc::Sender<Tell>,
    told: mpsc::Receiver<Tell>,
) -> Arc<dyn Transport> {
    let wire: Arc<dyn Transport> = Arc::new(Wire(tell));
    let end = world.lock().workers[&pid].end.clone();
    let left = slot_handle.lifetime();
    let relay = Relay {
        pid,
        slot_handle,
        world,
        told,
        end,
        left,
        ahead: VecDeque::new(),
        most_ahead: 0,
    };
    tokio::runtime::Handle::current().spawn(relay.run(wire.clone()));
    wire
}

/// What stands for the relay: keeps its contract with the pool, and nothing else.
struct Relay {
    pid: u32,
    slot_handle: SlotHandle,
    world: Shared,
    told: mpsc::Receiver<Tell>,
    end: watch::Sender<Option<Exit>>,
    left: Lifetime,
    ahead: VecDeque<Call>,
    most_ahead: usize,
}

enum Served {
    Free,
    Leaving,
    Broken,
    Ended,
}

impl Relay {
    async fn run(mut self, wire: Arc<dyn Transport>) {
        let mut next = self.slot_handle.enter(wire);
        loop {
            next = match next {
                Next::Run(call) => match self.serve(call).await {
                    Served::Free if !self.left.is_over(&self.slot_handle) => self.next(),
                    Served::Free | Served::Leaving => {
                        self.slot_handle.close();
                        self.give_back();
                        self.next()
                    }
                    Served::Broken => break,
                    Served::Ended => return self.leave(),
                },
                Next::Wait => match self.told.recv().await.unwrap() {
                    Tell::Call(call) => Next::Run(call),
                    Tell::Order(Order::Stop) => Next::Stop,
                    Tell::Order(Order::Ended(_)) => return self.leave(),
                    Tell::Die => {
                        self.ends(Exit::Signal(11));
                        Next::Wait
                    }
                    Tell::Order(Order::Extend(_)) | Tell::Reply { .. } | Tell::Decline => {
                        Next::Wait
                    }
                },
                Next::Stop => {
                    self.slot_handle.report(Report::Leaving);
                    if !self.world.lock().workers[&self.pid].deaf {
                        self.ends(Exit::Code(0));
                    }
                    break;
                }
            };
        }
        self.give_back();
        loop {
            match self.told.recv().await {
                Some(Tell::Order(Order::Ended(_))) | None => break,
                Some(Tell::Call(call)) => self.ahead.push_back(call),
                Some(_) => {}
            }
        }
        self.leave();
    }

    fn next(&mut self) -> Next<Call> {
        // None beyond the last one.
        let left = self
            .left
            .calls_left()
            .map_or(MOST_AHEAD as u64, |left| left.saturating_sub(1));
        let left = usize::try_from(left).unwrap_or(MOST_AHEAD);
        self.most_ahead = fastrand::usize(..=MOST_AHEAD).min(left);
        let prefetch = PrefetchLimits {
            most: self.most_ahead,
            before_waking_idle: fastrand::usize(..=self.most_ahead),
            when_cpus_busy: fastrand::usize(..=self.most_ahead),
        };
        let turn = self.slot_handle.next(Instant::now(), prefetch);
        let next = match turn.next {
            Next::Wait => self.ahead.pop_front().map_or(Next::Wait, Next::Run),
            next => next,
        };
        for call in turn.prefetched {
            self.goes_ahead(call);
        }
        self.tell_ahead();
        next
    }

    fn goes_ahead(&mut self, call: Call) {
        let (has, most) = (self.ahead.len(), self.most_ahead);
        if has >= most {
            let what = format!("a worker that has {has} of {most} calls ahead got another one");
            self.world.lock().fault(what);
        }
        self.ahead.push_back(call);
        self.tell_ahead();
    }

    fn give_back(&mut self) {
        let back = std::mem::take(&mut self.ahead);
        self.most_ahead = 0;
        self.tell_ahead();
        self.slot_handle.give_back(back.into());
    }

    fn tell_ahead(&self) {
        if let Some(worker) = self.world.lock().workers.get_mut(&self.pid) {
            worker.ahead = self.ahead.len();
        }
    }

    fn ends(&self, exit: Exit) {
        self.end.send_if_modified(|end| {
            let first = end.is_none();
            end.get_or_insert(exit);
            first
        });
    }

    fn leave(mut self) {
        self.told.close();
        while let Ok(tell) = self.told.try_recv() {
            if let Tell::Call(call) = tell {
                self.ahead.push_back(call);
            }
        }
        self.give_back();
        self.slot_handle.leave();
    }

    fn at(&self, call: Option<u64>) {
        let mut world = self.world.lock();
        if let Some(worker) = world.workers.get_mut(&self.pid) {
            worker.at = call;
            worker.calls += u64::from(call.is_some());
        }
    }

    async fn serve(&mut self, call: Call) -> Served {
        if call.is_withdrawn() {
            return Served::Free;
        }
        let number = number_of(&call);
        self.at(Some(number));
        self.world.lock().given.insert(number);
        *self.world.lock().begun.entry(number).or_default() += 1;
        let served = self.carry(call, number).await;
        self.at(None);
        served
    }

    async fn carry(&mut self, call: Call, number: u64) -> Served {
        let deadline = call.deadline.unwrap_or_else(|| Instant::now() + QUIET);
        let impatient = Instant::now() + PATIENCE;
        loop {
            let waits = !self.ahead.is_empty();
            let told = tokio::select! {
                biased;
                told = self.told.recv() => told.unwrap(),
                () = sleep_until(impatient), if waits => {
                    self.give_back();
                    continue;
                }
                () = sleep_until(deadline) => {
                    let ran = EXEC_TTL;
                    self.slot_handle.report(Report::Overdue { what: "/".into(), ran, progress: None, client: "got 504", is_told: false, call: None, details: None, stack: None });
                    self.slot_handle.count(Counter::Overdue);
                    call.fail(CallError::Deadline);
                    return Served::Broken;
                }
            };
            match told {
                Tell::Reply { leave } => {
                    if fastrand::u8(..16) == 0 {
                        (0..WISHES).for_each(|_| self.slot_handle.asks_for_renewal(false));
                    }
                    let body = ReplyBody::Whole(Bytes::from(number.to_string()).into());
                    call.deliver(status(200), body);
                    return if leave { Served::Leaving } else { Served::Free };
                }
                Tell::Decline => {
                    if let Some(times) = self.world.lock().begun.get_mut(&number) {
                        *times -= 1;
                    }
                    self.slot_handle.decline(call);
                    return Served::Leaving;
                }
                Tell::Die => self.ends(Exit::Signal(11)),
                Tell::Order(Order::Ended(exit)) => {
                    self.slot_handle.lose(call, WorkerFault::Died(exit));
                    return Served::Ended;
                }
                Tell::Order(Order::Stop | Order::Extend(_)) => {}
                Tell::Call(other) if self.most_ahead > 0 => self.goes_ahead(other),
                Tell::Call(other) => {
                    let other = number_of(&other);
                    let what = format!("a worker that has call {number} was given call {other}");
                    self.world.lock().fault(what);
                }
            }
        }
    }
}

/// A call that carries its number.
struct Numbered {
    number: u64,
    repeatable: bool,
}

impl Payload for Numbered {
    fn encode(&self, _: Encoding, _: &mut Vec<u8>) -> Result<Body, Unencodable> {
        Ok(Body::Empty)
    }

    fn decode_head(&self, codec: Codec, context: &Bytes) -> Result<Head, DecodeError> {
        Head::decode_http(codec, context)
    }

    fn repeatable(&self) -> bool {
        self.repeatable
    }

    fn describe(&self) -> String {
        self.number.to_string()
    }
}

impl Observer for Numbered {}

fn number_of(call: &Call) -> u64 {
    call.payload.describe().parse().unwrap()
}

/// A client that waits.
struct Client {
    pending: Pending,
    repeatable: bool,
    since: Instant,
    limit: Duration,
}

/// What of the pool's settings differs from life to life.
#[derive(Debug, Clone, Copy)]
struct Life {
    workers: usize,
    max_jobs: Option<u64>,
    ttl: bool,
    scaling: Option<Scaling>,
}

impl Life {
    fn any(random: &mut fastrand::Rng) -> Self {
        let workers = random.usize(1..8);
        Self {
            workers,
            max_jobs: [None, Some(1), Some(MAX_JOBS)][random.usize(..3)],
            ttl: random.bool(),
            scaling: random.bool().then_some(Scaling {
                min: workers,
                max: workers + 4,
                step: 2,
                idle: Duration::from_secs(5),
            }),
        }
    }

    fn options(self) -> Options {
        Options {
            name: "model".into(),
            queue_limit: QUEUE_LIMIT,
            queue_timeout: QUEUE_TIMEOUT,
            exec_ttl: Some(EXEC_TTL),
            slow: None,
            incidents: crate::Incidents::default(),
            deadline_max: Duration::from_secs(10),
            max_jobs: self.max_jobs.and_then(std::num::NonZeroU64::new),
            processors: 1,
            runs_alone: false,
        }
    }

    fn plan(self) -> Plan {
        Plan {
            workers: self.workers,
            scaling: self.scaling,
            most: MOST,
            at_once: AT_ONCE,
            limits: Limits {
                watch_tick: WATCH_TICK,
                ttl: self.ttl.then_some(TTL),
                idle_ttl: None,
                max_memory: None,
            },
        }
    }
}

/// One pool from its start to its stop.
struct Model {
    life: Life,
    random: fastrand::Rng,
    world: Shared,
    pool: Pool,
    supervised: Arc<RunningPool>,
    clients: BTreeMap<u64, Client>,
    next: u64,
    /// How many workers there should be when nothing happens.
    fewest: usize,
    /// Each ends with the last worker that must be gone then.
    reloads: JoinSet<Option<u32>>,
    resize: JoinSet<Option<isize>>,
    /// Workers up to this one are of an old generation.
    replaced: u32,
}

impl Model {
    async fn start(seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        // The jitter of limits comes from the thread's generator.
        fastrand::seed(seed);
        let life = Life::any(&mut random);
        let world = Shared(Arc::default());
        world.lock().boot = Some(Duration::from_millis(20));
        world.lock().obeys = true;
        let pool = Pool::new(
            life.options(),
            &tokio::runtime::Handle::current(),
            &pronghorn_metrics::Registry::default(),
        );
        let launcher = Arc::new(world.clone());
        let supervised = RunningPool::start_with(pool.clone(), launcher, life.plan());
        Self {
            life,
            random,
            world,
            supervised: Arc::new(supervised.await.expect("nothing fails yet")),
            pool,
            clients: BTreeMap::new(),
            next: 1,
            fewest: life.workers,
            reloads: JoinSet::new(),
            resize: JoinSet::new(),
            replaced: 0,
        }
    }

    async fn live(mut self, steps: usize) -> Result<(), Broken> {
        for _ in 0..steps {
            let what = self.step().await;
            self.rest().await;
            self.check()
                .await
                .map_err(|why| format!("after {what}: {why}"))?;
        }
        self.calm_down()
            .await
            .map_err(|why| format!("at the end: {why}"))?;
        self.stop().await
    }

    /// Until nobody has anything to do at this moment.
    async fn rest(&self) {
        for _ in 0..12 {
            tokio::task::yield_now().await;
        }
    }

    async fn step(&mut self) -> &'static str {
        match self.random.u32(..100) {
            0..30 => self.call(),
            30..55 => {
                let leave = self.random.u32(..20) == 0;
                self.tell_one(true, Tell::Reply { leave })
            }
            55..58 => self.tell_one(true, Tell::Die),
            58..60 => self.tell_one(false, Tell::Die),
            60..61 => self.tell_one(true, Tell::Decline),
            61..66 => self.client_leaves(),
            66..88 => {
                let millis = [1, 20, 150, 1000][self.random.usize(..4)];
                sleep(Duration::from_millis(millis)).await;
                "time"
            }
            88..93 => {
                let mut world = self.world.lock();
                world.boot = match self.random.u32(..4) {
                    0 => None,
                    1 => Some(Duration::from_millis(700)),
                    _ => Some(Duration::from_millis(20)),
                };
                world.obeys = self.random.u32(..8) > 0;
                "weather"
            }
            93..95 => self.reload(),
            95..99 => self.resize(),
            _ => match self.calm_down().await {
                Ok(()) => "calm",
                Err(why) => {
                    self.world.lock().fault(why);
                    "calm"
                }
            },
        }
    }

    fn call(&mut self) -> &'static str {
        if self.clients.len() >= CLIENTS {
            return "nothing";
        }
        let number = self.next;
        self.next += 1;
        let repeatable = self.random.bool();
        let terms = Terms {
            priority: [1, 10, 10][self.random.usize(..3)],
            deadline: (self.random.u32(..4) == 0).then_some(Duration::from_millis(300)),
            slow: None,
            affinity: None,
        };
        let payload = Arc::new(Numbered { number, repeatable });
        let now = Instant::now();
        let client = Client {
            pending: self.pool.call(payload, terms, now, now),
            repeatable,
            since: now,
            limit: terms.deadline.unwrap_or(EXEC_TTL),
        };
        self.clients.insert(number, client);
        "a call"
    }

    fn tell_one(&mut self, busy: bool, tell: Tell) -> &'static str {
        let world = self.world.lock();
        let pids = world.pids(busy);
        if let Some(pid) = self.random.choice(pids) {
            world.tell(pid, tell);
        }
        if busy {
            "a word to a busy worker"
        } else {
            "the death of an idle worker"
        }
    }

    fn client_leaves(&mut self) -> &'static str {
        let numbers: Vec<u64> = self.clients.keys().copied().collect();
        if let Some(number) = self.random.choice(numbers) {
            self.clients.remove(&number);
        }
        "a client left"
    }

    fn reload(&mut self) -> &'static str {
        if self.reloads.is_empty() {
            let supervised = self.supervised.clone();
            let last = self.world.lock().last_pid;
            self.reloads
                .spawn(async move { supervised.reload(GRACE).await.is_ok().then_some(last) });
        }
        "a reload"
    }

    fn resize(&mut self) -> &'static str {
        if self.resize.is_empty() {
            let supervised = self.supervised.clone();
            let more = self.random.bool();
            self.resize.spawn(async move {
                let (resized, change) = if more {
                    (supervised.add(1).await, 1)
                } else {
                    (supervised.remove(1).await, -1)
                };
                resized.ok().map(|_| change)
            });
        }
        "another size"
    }

    /// What must hold at any moment when nobody has anything to do.
    async fn check(&mut self) -> Result<(), Broken> {
        let mut settled = false;
        while let Some(reloaded) = self.reloads.try_join_next() {
            self.replaced = reloaded.unwrap().unwrap_or(self.replaced);
        }
        while let Some(resized) = self.resize.try_join_next() {
            settled = true;
            if let Some(change) = resized.unwrap() {
                // A pool that has grown can be made smaller than its fewest, which then is one.
                self.fewest = self.fewest.saturating_add_signed(change).max(1);
            }
        }
        self.collect()?;
        let states = self.pool.states().await;
        let waiting = self.pool.stats().waiting();
        let ready = states.iter().filter(|it| **it == SlotState::Ready).count();
        ensure!(
            waiting == 0 || ready == 0,
            "{waiting} calls wait while {ready} workers are free"
        );
        ensure!(
            self.pool.stats().get(Counter::Healed) == 0,
            "the watchdog had to heal"
        );
        ensure!(waiting <= QUEUE_LIMIT, "{waiting} calls wait");
        let most = MOST + 4;
        ensure!(states.len() <= 3 * most, "{} places", states.len());
        let world = self.world.lock();
        if let Some(fault) = world.faults.first() {
            return Err(fault.clone());
        }
        // One whose client has left may still be at work.
        let held = world.held();
        let at_work = world.workers.values().filter_map(|worker| worker.at);
        let awaited = at_work
            .filter(|number| self.clients.contains_key(number))
            .count();
        let ahead: usize = world.workers.values().map(|worker| worker.ahead).sum();
        // Of those at most so many are still waited for.
        let expected = waiting + awaited..=waiting + awaited + ahead;
        ensure!(
            expected.contains(&self.clients.len()),
            "clients {:?}, but {waiting} calls wait, {ahead} are ahead and {held} are at work: {:?}, {states:?}",
            self.clients.keys(),
            world
                .workers
                .values()
                .map(|worker| worker.at)
                .collect::<Vec<_>>()
        );
        for (number, times) in &world.begun {
            ensure!(*times <= 2, "call {number} was begun {times} times");
        }
        if self.life.max_jobs == Some(1) {
            let most = world.workers.values().map(|worker| worker.calls).max();
            ensure!(
                most.unwrap_or(0) <= 1,
                "a worker had {most:?} calls instead of one"
            );
        }
        if self.reloads.is_empty()
            && self.resize.is_empty()
            && !settled
            && self.life.scaling.is_none()
        {
            let there = states
                .iter()
                .filter(|it| {
                    !matches!(
                        it,
                        SlotState::Draining | SlotState::Stopping | SlotState::Empty
                    )
                })
                .count();
            let most = self.fewest + (self.fewest / 4).max(1);
            ensure!(there <= most, "{there} workers instead of {}", self.fewest);
        }
        Ok(())
    }

    /// Takes the answers that are there.
    fn collect(&mut self) -> Result<(), Broken> {
        let mut cx = Context::from_waker(Waker::noop());
        let mut answered = Vec::new();
        for (number, client) in &mut self.clients {
            let waited = client.since.elapsed();
            let times = self.world.lock().begun.get(number).copied().unwrap_or(0);
            ensure!(
                client.repeatable || times <= 1,
                "call {number} may not be repeated, and was begun {times} times"
            );
            match client.pending.poll_answer(&mut cx) {
                Poll::Pending => {
                    // Each of two workers takes its whole time, and each queue.
                    let most = (QUEUE_TIMEOUT + client.limit) * 4 + Duration::from_secs(1);
                    ensure!(waited < most, "call {number} has waited for {waited:?}");
                    let first = !self.world.lock().given.contains(number);
                    ensure!(
                        !first || waited <= QUEUE_TIMEOUT + Duration::from_millis(20),
                        "call {number} waits for a worker since {waited:?}"
                    );
                    continue;
                }
                Poll::Ready(Ok(Answer::Interim(_))) => {
                    return Err("nobody said that".into());
                }
                Poll::Ready(Ok(Answer::Reply(reply))) => {
                    let ReplyBody::Whole(Content::Here(body)) = reply.body else {
                        return Err("a reply in pieces".into());
                    };
                    ensure!(
                        body == number.to_string().as_bytes(),
                        "call {number} got the reply to {body:?}"
                    );
                }
                Poll::Ready(Err(error)) => {
                    if matches!(error, CallError::Refused(Refused::WaitedTooLong)) {
                        ensure!(waited >= QUEUE_TIMEOUT / 4, "too early: {waited:?}");
                    }
                    if matches!(error, CallError::Refused(Refused::Stopping)) {
                        return Err(format!("call {number} was refused by a stop"));
                    }
                }
            }
            answered.push(*number);
        }
        for number in answered {
            self.clients.remove(&number);
        }
        let numbers = &self.clients;
        self.world
            .lock()
            .begun
            .retain(|number, _| numbers.contains_key(number));
        self.world
            .lock()
            .given
            .retain(|number| numbers.contains_key(number));
        Ok(())
    }

    /// Lets everything come to its end, and checks that nothing is left over.
    async fn calm_down(&mut self) -> Result<(), Broken> {
        {
            let mut world = self.world.lock();
            world.boot = Some(Duration::from_millis(20));
            world.obeys = true;
            for worker in world.workers.values_mut() {
                worker.deaf = false;
            }
        }
        let end = Instant::now() + QUIET;
        while Instant::now() < end {
            {
                let world = self.world.lock();
                for pid in world.pids(true) {
                    world.tell(pid, Tell::Reply { leave: false });
                }
            }
            self.rest().await;
            self.collect()?;
            sleep(Duration::from_millis(500)).await;
        }
        self.rest().await;
        self.check().await?;
        ensure!(
            self.clients.is_empty(),
            "{} calls have no answer",
            self.clients.len()
        );
        ensure!(
            self.reloads.is_empty() && self.resize.is_empty(),
            "orders are not carried out"
        );
        let states = self.pool.states().await;
        // A worker that reaches an age may just be replaced.
        let extra = usize::from(self.life.ttl);
        let ready = states.iter().filter(|it| **it == SlotState::Ready).count();
        ensure!(
            (self.fewest..=self.fewest + extra).contains(&ready),
            "{ready} workers instead of {}: {states:?}",
            self.fewest
        );
        ensure!(states.len() <= self.fewest + extra, "{states:?}");
        let world = self.world.lock();
        ensure!(world.booting <= extra, "{} boots", world.booting);
        let processes = world.workers.len() + world.booting;
        ensure!(processes == states.len(), "{processes} processes");
        let oldest = world.workers.keys().next();
        ensure!(
            oldest.is_some_and(|oldest| *oldest > self.replaced),
            "a worker of an old generation is left"
        );
        let slots: BTreeSet<_> = world.workers.values().map(|worker| worker.slot).collect();
        ensure!(
            slots.len() == world.workers.len(),
            "two workers in one place"
        );
        if let Some(max_jobs) = self.life.max_jobs {
            let most = world
                .workers
                .values()
                .map(|worker| worker.calls)
                .max()
                .unwrap_or(0);
            ensure!(
                most <= max_jobs + max_jobs / 7,
                "a worker has had {most} calls"
            );
        }
        Ok(())
    }

    async fn stop(mut self) -> Result<(), Broken> {
        let supervised = Arc::into_inner(self.supervised).expect("no order is under way");
        let start = Instant::now();
        supervised.stop(GRACE).await;
        ensure!(
            start.elapsed() <= GRACE + Duration::from_secs(3),
            "the stop took too long"
        );
        self.reloads.shutdown().await;
        let states = self.pool.states().await;
        ensure!(states.is_empty(), "left after the stop: {states:?}");
        let left = self.world.lock().workers.len();
        ensure!(left == 0, "{left} processes left after the stop");
        Ok(())
    }
}

/// One life. A panic is a difference too.
fn live(seed: u64, steps: usize) -> Result<(), Broken> {
    let run = std::panic::AssertUnwindSafe(|| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(async { Model::start(seed).await.live(steps).await })
    });
    let lived = std::panic::catch_unwind(run);
    lived.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        Err(text.unwrap_or_else(|| "a panic".into()))
    })
}

/// `PRONGHORN_MODEL_STEPS` sets how many in all; `make soak` takes the long way.
fn steps_in_all() -> usize {
    const SHORT: usize = 20_000;
    let steps = std::env::var("PRONGHORN_MODEL_STEPS").ok();
    steps.map_or(SHORT, |steps| steps.parse().expect("a number of steps"))
}

#[test]
fn no_sequence_of_events_breaks_a_promise() {
    for seed in 0..(steps_in_all() / STEPS) as u64 {
        if let Err(why) = live(seed, STEPS) {
            panic!("seed {seed}: {why}");
        }
    }
}
