//! Pool and supervisor with workers that exist only here, under a paused clock.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use pronghorn_base::BoxFuture;
use pronghorn_process::{Exit, Signal};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, advance, sleep};

use super::{TestPayload, status};
use crate::call::{
    Answer, Call, CallError, Payload, Pending, Refused, ReplyBody, Terms, WorkerFault,
};
use crate::core::{Next, SlotId, SlotState};
use crate::pool::{Options, Order, Pool, Report, SlotHandle, Transport};
use crate::roster::{UnderWay, Via};
use crate::supervisor::{
    LaunchError, Launched, Launcher, Limits, Pace, Plan, RunningPool, Scaling, Watched,
};

/// What a worker does with its calls.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Manner {
    /// Answers at once.
    Quick,
    /// Takes this long.
    Slow(Duration),
    /// Dies with every call.
    Dies,
    /// Ends as soon as it is up.
    Ends,
    /// Asks to be replaced instead of answering.
    Declines,
    /// Answers that it ends, and has ended before that is read.
    Leaves,
    /// Ends its calls so long after their deadline.
    Late(Duration),
}

/// Starts workers as the test wishes.
struct Fakes {
    manner: Mutex<Manner>,
    boot: Mutex<Result<Duration, ()>>,
    booted: Mutex<usize>,
    paces: Mutex<Vec<Pace>>,
    booting: Mutex<(usize, usize)>,
    signals: Arc<Mutex<Vec<Signal>>>,
    interrupts: Arc<Mutex<Vec<u32>>>,
    /// Whether a worker that is asked to end does.
    obeys: Mutex<bool>,
    /// How long the kernel takes to end a worker that is killed.
    dying: Mutex<Duration>,
}

impl Fakes {
    fn new(manner: Manner) -> Arc<Self> {
        Arc::new(Self {
            manner: Mutex::new(manner),
            boot: Mutex::new(Ok(Duration::from_millis(10))),
            booted: Mutex::default(),
            paces: Mutex::default(),
            booting: Mutex::default(),
            signals: Arc::default(),
            interrupts: Arc::default(),
            obeys: Mutex::new(true),
            dying: Mutex::default(),
        })
    }
}

impl Launcher for Fakes {
    fn launch(&self, _: SlotId, pace: Pace) -> BoxFuture<'_, Result<Launched, LaunchError>> {
        self.paces.lock().unwrap().push(pace);
        Box::pin(async {
            {
                let mut booting = self.booting.lock().unwrap();
                booting.0 += 1;
                booting.1 = booting.1.max(booting.0);
            }
            let boot = *self.boot.lock().unwrap();
            sleep(boot.unwrap_or(Duration::from_millis(10))).await;
            self.booting.lock().unwrap().0 -= 1;
            if boot.is_err() {
                return Err(super::not_launched("test"));
            }
            *self.booted.lock().unwrap() += 1;
            let (end, ended) = watch::channel(None);
            let process = FakeProcess {
                ended,
                end: end.clone(),
                signals: self.signals.clone(),
                interrupts: self.interrupts.clone(),
                dying: *self.dying.lock().unwrap(),
            };
            let manner = *self.manner.lock().unwrap();
            let obeys = *self.obeys.lock().unwrap();
            let connect = move |slot_handle| FakeWorker::start(slot_handle, manner, obeys, end);
            Ok(Launched {
                process: Box::new(process),
                via: Via::Relay,
                connect: Box::new(connect),
            })
        })
    }
}

struct FakeProcess {
    ended: watch::Receiver<Option<Exit>>,
    end: watch::Sender<Option<Exit>>,
    signals: Arc<Mutex<Vec<Signal>>>,
    interrupts: Arc<Mutex<Vec<u32>>>,
    dying: Duration,
}

impl Watched for FakeProcess {
    fn pid(&self) -> u32 {
        4711
    }

    fn wait(&mut self) -> BoxFuture<'_, Exit> {
        Box::pin(async { self.ended.wait_for(Option::is_some).await.unwrap().unwrap() })
    }

    fn signal(&self, signal: Signal) {
        self.signals.lock().unwrap().push(signal);
        if signal == Signal::Kill {
            let (end, dying) = (self.end.clone(), self.dying);
            tokio::runtime::Handle::current().spawn(async move {
                sleep(dying).await;
                end.send_replace(Some(Exit::Signal(9)));
            });
        }
    }

    fn interrupt(&self, call: u32) {
        self.interrupts.lock().unwrap().push(call);
    }

    fn last_words(&self) -> Vec<String> {
        vec!["a last word".into()]
    }

    fn peak_memory(&self) -> Option<u64> {
        None
    }
}

struct FakeWorker {
    inbox: mpsc::Sender<Told>,
    executions: Arc<AtomicU64>,
}

enum Told {
    Call(Call),
    Order(Order),
}

impl Transport for FakeWorker {
    fn submit(&self, call: Call) {
        self.inbox.try_send(Told::Call(call)).unwrap();
    }

    fn order(&self, order: Order) {
        _ = self.inbox.try_send(Told::Order(order)); // a worker that has left hears nothing
    }

    fn executions(&self) -> u64 {
        self.executions.load(Relaxed)
    }

    fn ask(&self, _: oneshot::Sender<Option<UnderWay>>) {}
}

impl FakeWorker {
    fn start(
        slot_handle: SlotHandle,
        manner: Manner,
        obeys: bool,
        end: watch::Sender<Option<Exit>>,
    ) -> Arc<dyn Transport> {
        let (inbox, told) = mpsc::channel(8);
        let executions = Arc::new(AtomicU64::new(0));
        let worker: Arc<dyn Transport> = Arc::new(Self {
            inbox,
            executions: executions.clone(),
        });
        tokio::runtime::Handle::current().spawn(work(
            slot_handle,
            (worker.clone(), executions),
            manner,
            obeys,
            end,
            told,
        ));
        worker
    }
}

async fn work(
    slot_handle: SlotHandle,
    (worker, executions): (Arc<dyn Transport>, Arc<AtomicU64>),
    manner: Manner,
    obeys: bool,
    end: watch::Sender<Option<Exit>>,
    mut told: mpsc::Receiver<Told>,
) {
    let mut next = slot_handle.enter(worker);
    if manner == Manner::Ends {
        end.send_replace(Some(Exit::Code(0)));
    }
    loop {
        let call = match next {
            Next::Run(call) => call,
            Next::Wait => match told.recv().await.unwrap() {
                Told::Call(call) => call,
                Told::Order(Order::Stop) => {
                    next = Next::Stop;
                    continue;
                }
                Told::Order(Order::Ended(_)) => return slot_handle.leave(),
                Told::Order(Order::Extend(_)) => continue,
            },
            Next::Stop => {
                slot_handle.report(Report::Leaving);
                if obeys {
                    end.send_replace(Some(Exit::Code(0)));
                }
                while !matches!(told.recv().await, Some(Told::Order(Order::Ended(_)))) {}
                return slot_handle.leave();
            }
        };
        executions.fetch_add(1, Relaxed);
        next = match manner {
            Manner::Quick | Manner::Ends => answer(&slot_handle, call),
            Manner::Slow(time) => tokio::select! {
                () = sleep(time) => answer(&slot_handle, call),
                Some(Told::Order(Order::Ended(exit))) = told.recv() => {
                    slot_handle.lose(call, WorkerFault::Died(exit));
                    return slot_handle.leave();
                }
            },
            Manner::Declines => {
                slot_handle.decline(call);
                slot_handle.close();
                slot_handle.next_alone(Instant::now())
            }
            Manner::Leaves => {
                end.send_replace(Some(Exit::Code(255)));
                while !matches!(told.recv().await, Some(Told::Order(Order::Ended(_)))) {}
                answer(&slot_handle, call);
                slot_handle.report(Report::Leaving);
                return slot_handle.leave();
            }
            Manner::Late(time) => {
                slot_handle.report(Report::Overdue {
                    what: "/".into(),
                    ran: time,
                    progress: None,
                    client: "got 504",
                    is_told: false,
                    call: Some(7),
                    details: None,
                    stack: None,
                });
                call.fail(CallError::Deadline);
                sleep(time).await;
                let (may_go_on, allowed) = oneshot::channel();
                slot_handle.report(Report::Recovered { may_go_on });
                if allowed.await.is_err() {
                    while !matches!(told.recv().await, Some(Told::Order(Order::Ended(_)))) {}
                    return slot_handle.leave();
                }
                slot_handle.next_alone(Instant::now())
            }
            Manner::Dies => {
                end.send_replace(Some(Exit::Signal(11)));
                while !matches!(told.recv().await, Some(Told::Order(Order::Ended(_)))) {}
                slot_handle.lose(call, WorkerFault::Died(Exit::Signal(11)));
                return slot_handle.leave();
            }
        };
    }
}

fn answer(slot_handle: &SlotHandle, call: Call) -> Next<Call> {
    let body = Bytes::from(call.payload.describe());
    call.deliver(status(200), ReplyBody::Whole(body.into()));
    slot_handle.next_alone(Instant::now())
}

fn pool(queue_limit: usize) -> Pool {
    Pool::new(
        options(queue_limit),
        &tokio::runtime::Handle::current(),
        &pronghorn_metrics::Registry::default(),
    )
}

fn options(queue_limit: usize) -> Options {
    Options {
        name: "test".into(),
        queue_limit,
        queue_timeout: Duration::from_secs(30),
        exec_ttl: None,
        slow: None,
        incidents: crate::Incidents::default(),
        deadline_max: Duration::from_secs(3600),
        max_jobs: None,
        processors: 1,
        runs_alone: false,
    }
}

fn plan(workers: usize, at_once: usize) -> Plan {
    Plan {
        workers,
        scaling: None,
        most: 50,
        at_once,
        limits: Limits {
            watch_tick: seconds(1),
            ttl: None,
            idle_ttl: None,
            max_memory: None,
        },
    }
}

async fn started(fakes: &Arc<Fakes>, slots: usize, queue_limit: usize) -> (Pool, RunningPool) {
    let pool = pool(queue_limit);
    let supervised = RunningPool::start_with(pool.clone(), fakes.clone(), plan(slots, 4))
        .await
        .unwrap();
    (pool, supervised)
}

fn call(pool: &Pool, payload: Arc<dyn Payload>) -> Pending {
    pool.call(payload, Terms::default(), Instant::now(), Instant::now())
}

async fn body(pending: &mut Pending) -> Result<String, CallError> {
    match pending.answer().await? {
        Answer::Reply(reply) => match reply.body {
            ReplyBody::Whole(bytes) => Ok(String::from_utf8(Bytes::from(bytes).to_vec()).unwrap()),
            other => panic!("{other:?}"),
        },
        Answer::Interim(head) => panic!("{head:?}"),
    }
}

/// Lets every task that can run do so, without time passing.
async fn settle() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}

const fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

#[tokio::test(start_paused = true)]
async fn of_many_calls_that_fail_at_once_some_have_a_record() {
    let pool = pool(1);
    let mut records = Vec::new();
    for _ in 0..1000 {
        pool.tell_failure(|left_out| records.push(left_out));
    }
    assert_eq!(records, [None; 100]);
    advance(Duration::from_secs(1)).await;
    pool.tell_failure(|left_out| records.push(left_out));
    assert_eq!(records.last(), Some(&Some(900)));
}

#[tokio::test(start_paused = true)]
async fn a_pool_grows_only_for_calls_that_more_workers_would_help() {
    let fakes = Fakes::new(Manner::Slow(seconds(60)));
    let pool = pool(10);
    let grows = Plan {
        scaling: Some(Scaling {
            min: 1,
            max: 9,
            step: 1,
            idle: seconds(600),
        }),
        ..plan(1, 4)
    };
    let running = RunningPool::start_with(pool.clone(), fakes.clone(), grows).await;
    let _supervised = running.unwrap();
    let origins = [pool.affinity(), pool.affinity()];
    let of = |origin: usize| {
        let terms = Terms {
            affinity: Some(origins[origin].id()),
            ..Terms::default()
        };
        let now = Instant::now();
        pool.call(TestPayload::new("/own"), terms, now, now)
    };
    let workers = async || {
        for _ in 0..5 {
            advance(Duration::from_millis(200)).await;
            settle().await;
        }
        pool.states().await.len()
    };
    let _own = [of(0), of(0)];
    assert_eq!(workers().await, 1, "the second call waits for that worker");
    let _other = of(1);
    assert_eq!(workers().await, 2, "the next connection finds a free one");
    let _any = [0, 1].map(|_| call(&pool, TestPayload::new("/any")));
    let text = "one for the call that waits, and one that is free again";
    assert_eq!(workers().await, 4, "{text}");
    assert_eq!(workers().await, 4, "{text}");
}

#[tokio::test(start_paused = true)]
async fn calls_are_answered_and_workers_end_in_good_order() {
    let fakes = Fakes::new(Manner::Quick);
    let (pool, supervised) = started(&fakes, 3, 10).await;
    assert_eq!(pool.states().await, [SlotState::Ready; 3]);
    for name in ["/a", "/b", "/c", "/d"] {
        assert_eq!(
            body(&mut call(&pool, TestPayload::new(name)))
                .await
                .unwrap(),
            name
        );
    }
    let start = Instant::now();
    assert_eq!(supervised.stop(seconds(60)).await, 0);
    assert!(
        start.elapsed() < Duration::from_millis(10),
        "nobody had to be waited for"
    );
    assert_eq!(fakes.signals.lock().unwrap().as_slice(), []);
    assert_eq!(pool.states().await, [], "nothing is left");
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_refuses_and_a_free_worker_takes_the_next() {
    let fakes = Fakes::new(Manner::Slow(seconds(1)));
    let (pool, _supervised) = started(&fakes, 1, 2).await;
    let mut calls: Vec<_> = ["/1", "/2", "/3", "/4"]
        .map(|name| call(&pool, TestPayload::new(name)))
        .into();
    assert_eq!(pool.stats().waiting(), 2);
    let mut refused = calls.pop().unwrap();
    assert!(matches!(
        body(&mut refused).await,
        Err(CallError::Refused(Refused::QueueFull))
    ));
    let start = Instant::now();
    for (index, pending) in calls.iter_mut().enumerate() {
        body(pending).await.unwrap();
        assert_eq!(
            start.elapsed().as_secs(),
            index as u64 + 1,
            "in order, one after the other"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_waited_too_long_is_refused_and_costs_no_worker() {
    let fakes = Fakes::new(Manner::Slow(seconds(100)));
    let (pool, _supervised) = started(&fakes, 1, 10).await;
    let _working = call(&pool, TestPayload::new("/working"));
    let start = Instant::now();
    let mut waiting = call(&pool, TestPayload::new("/waiting"));
    advance(seconds(10)).await;
    let mut later = call(&pool, TestPayload::new("/later"));
    let refused = body(&mut waiting).await;
    assert!(matches!(
        refused,
        Err(CallError::Refused(Refused::WaitedTooLong))
    ));
    assert_eq!(start.elapsed().as_secs(), 30);
    assert!(matches!(
        body(&mut later).await,
        Err(CallError::Refused(Refused::WaitedTooLong))
    ));
    assert_eq!(start.elapsed().as_secs(), 40, "each has its own time");
    assert_eq!(pool.stats().waiting(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_client_left_gives_its_place_away() {
    let fakes = Fakes::new(Manner::Slow(seconds(1)));
    let (pool, _supervised) = started(&fakes, 1, 1).await;
    let mut first = call(&pool, TestPayload::new("/first"));
    let second = call(&pool, TestPayload::new("/second"));
    drop(second);
    assert_eq!(pool.stats().waiting(), 0);
    let mut third = call(&pool, TestPayload::new("/third"));
    assert_eq!(body(&mut first).await.unwrap(), "/first");
    assert_eq!(body(&mut third).await.unwrap(), "/third");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_runs_alone_runs_after_its_client_left_and_few_of_them_wait() {
    let fakes = Fakes::new(Manner::Slow(seconds(1)));
    let options = Options {
        runs_alone: true,
        ..options(8)
    };
    let pool = Pool::new(
        options,
        &tokio::runtime::Handle::current(),
        &pronghorn_metrics::Registry::default(),
    );
    let supervised = RunningPool::start_with(pool.clone(), fakes.clone(), plan(1, 4)).await;
    let _supervised = supervised.unwrap();
    let mut first = call(&pool, TestPayload::new("/first"));
    let left: Vec<_> = (0..5)
        .map(|_| call(&pool, TestPayload::new("/left")))
        .collect();
    drop(left);
    assert_eq!(pool.stats().waiting(), 2, "a quarter of eight");
    assert_eq!(pool.stats().get(crate::stats::Counter::ClientGone), 3);
    let mut last = call(&pool, TestPayload::new("/last"));
    let start = Instant::now();
    assert_eq!(body(&mut first).await.unwrap(), "/first");
    assert_eq!(body(&mut last).await.unwrap(), "/last");
    assert_eq!(start.elapsed().as_secs(), 4, "two ran between them");
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_worker_died_is_repeated_once_when_that_is_safe() {
    let fakes = Fakes::new(Manner::Dies);
    let (pool, _supervised) = started(&fakes, 2, 10).await;
    let died = |result| {
        matches!(
            result,
            Err(CallError::Worker(WorkerFault::Died(Exit::Signal(11))))
        )
    };
    assert!(died(
        body(&mut call(&pool, TestPayload::unrepeatable("/post"))).await
    ));
    sleep(seconds(60)).await;
    let booted = *fakes.booted.lock().unwrap();
    assert!(died(body(&mut call(&pool, TestPayload::new("/get"))).await));
    sleep(seconds(60)).await;
    assert_eq!(
        *fakes.booted.lock().unwrap(),
        booted + 2,
        "two workers died of it"
    );
    *fakes.manner.lock().unwrap() = Manner::Quick;
    // One of the two still dies; its successor answers.
    let mut calls = [
        call(&pool, TestPayload::new("/a")),
        call(&pool, TestPayload::new("/b")),
    ];
    for pending in &mut calls {
        body(pending).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_says_that_it_ends_has_not_crashed_whatever_is_seen_first() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let tell = told.clone();
    let options = Options {
        incidents: crate::Incidents::new(move |incident| tell.lock().unwrap().push(incident)),
        ..options(10)
    };
    let metrics = pronghorn_metrics::Registry::default();
    let pool = Pool::new(options, &tokio::runtime::Handle::current(), &metrics);
    let fakes = Fakes::new(Manner::Leaves);
    let _running = RunningPool::start_with(pool.clone(), fakes.clone(), plan(1, 4))
        .await
        .unwrap();
    for name in ["/a", "/b"] {
        let mut pending = call(&pool, TestPayload::new(name));
        assert_eq!(body(&mut pending).await.unwrap(), name);
    }
    settle().await;
    assert_eq!(told.lock().unwrap().len(), 0, "{told:?}");

    *fakes.manner.lock().unwrap() = Manner::Dies;
    let mut pending = call(&pool, TestPayload::unrepeatable("/c"));
    assert!(body(&mut pending).await.is_err());
    settle().await;
    assert_eq!(told.lock().unwrap().len(), 1, "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_every_worker_declines_ends() {
    let fakes = Fakes::new(Manner::Declines);
    let (pool, _supervised) = started(&fakes, 1, 10).await;
    let result = body(&mut call(&pool, TestPayload::unrepeatable("/"))).await;
    assert!(
        matches!(result, Err(CallError::Worker(WorkerFault::Unwilling(3)))),
        "{result:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_declined_call_is_done_by_another_worker_even_if_it_cannot_be_repeated() {
    let fakes = Fakes::new(Manner::Declines);
    let (pool, _supervised) = started(&fakes, 1, 10).await;
    *fakes.manner.lock().unwrap() = Manner::Quick;
    let result = body(&mut call(&pool, TestPayload::unrepeatable("/"))).await;
    assert_eq!(result.unwrap(), "/");
}

#[tokio::test(start_paused = true)]
async fn the_first_start_fails_when_a_worker_does_not_come_up() {
    let fakes = Fakes::new(Manner::Quick);
    *fakes.boot.lock().unwrap() = Err(());
    let error = RunningPool::start_with(pool(10), fakes.clone(), plan(3, 2))
        .await
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "pool `test`: worker ended before it was ready (exit code 255)"
    );
    assert_eq!(error, super::not_launched("test"), "with its report");
}

#[tokio::test(start_paused = true)]
async fn only_so_many_workers_boot_at_once() {
    let fakes = Fakes::new(Manner::Quick);
    let pool = pool(10);
    RunningPool::start_with(pool, fakes.clone(), plan(20, 3))
        .await
        .unwrap();
    assert_eq!(fakes.booting.lock().unwrap().1, 3);
}

#[tokio::test(start_paused = true)]
async fn a_pool_that_was_up_tries_for_ever_and_refuses_meanwhile() {
    let fakes = Fakes::new(Manner::Dies);
    let (pool, _supervised) = started(&fakes, 1, 10).await;
    *fakes.boot.lock().unwrap() = Err(());
    let mut first = call(&pool, TestPayload::unrepeatable("/"));
    assert!(matches!(body(&mut first).await, Err(CallError::Worker(_))));
    sleep(seconds(5)).await;
    let mut refused = call(&pool, TestPayload::new("/"));
    assert!(matches!(
        body(&mut refused).await,
        Err(CallError::Refused(Refused::NoWorker))
    ));
    sleep(seconds(3600)).await;
    *fakes.manner.lock().unwrap() = Manner::Quick;
    *fakes.boot.lock().unwrap() = Ok(Duration::ZERO);
    sleep(seconds(15)).await;
    assert_eq!(
        body(&mut call(&pool, TestPayload::new("/up")))
            .await
            .unwrap(),
        "/up"
    );
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_dies_of_its_call_is_replaced_at_once() {
    let fakes = Fakes::new(Manner::Dies);
    let (pool, _supervised) = started(&fakes, 1, 100).await;
    let start = Instant::now();
    for number in 0..90 {
        let mut deadly = call(&pool, TestPayload::unrepeatable("/"));
        let died = body(&mut deadly).await;
        assert!(
            matches!(died, Err(CallError::Worker(_))),
            "{number}: {died:?}"
        );
    }
    // A boot takes 10 ms.
    assert!(start.elapsed() < seconds(1), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_ends_before_its_first_call_is_tried_less_and_less_often() {
    let fakes = Fakes::new(Manner::Ends);
    let (_pool, _supervised) = started(&fakes, 1, 100).await;
    sleep(seconds(60)).await;
    let booted = *fakes.booted.lock().unwrap();
    // In 60 s: two at once, seven before the wait is at its longest, then one in 5 to 10 s.
    assert!((12..=20).contains(&booted), "{booted}");
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_does_not_end_is_signalled_and_then_killed() {
    let fakes = Fakes::new(Manner::Quick);
    *fakes.obeys.lock().unwrap() = false;
    let (_pool, supervised) = started(&fakes, 1, 10).await;
    let start = Instant::now();
    assert_eq!(supervised.stop(seconds(60)).await, 0);
    assert_eq!(start.elapsed().as_secs(), 15);
    assert_eq!(
        fakes.signals.lock().unwrap().as_slice(),
        [Signal::Terminate, Signal::Kill]
    );
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_ends_a_late_call_in_time_is_told_once_and_goes_on() {
    let fakes = Fakes::new(Manner::Late(Duration::from_millis(500)));
    let (pool, _supervised) = started(&fakes, 1, 10).await;
    for _ in 0..2 {
        let late = body(&mut call(&pool, TestPayload::new("/"))).await;
        assert!(matches!(late, Err(CallError::Deadline)));
    }
    sleep(seconds(60)).await;
    assert_eq!(fakes.interrupts.lock().unwrap().as_slice(), [7, 7]);
    assert_eq!(fakes.signals.lock().unwrap().as_slice(), []);
    assert_eq!(*fakes.booted.lock().unwrap(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_ends_a_late_call_when_it_was_stopped_for_it_gets_no_other_one() {
    let fakes = Fakes::new(Manner::Late(seconds(3)));
    let (pool, _supervised) = started(&fakes, 1, 10).await;
    let late = body(&mut call(&pool, TestPayload::new("/"))).await;
    assert!(matches!(late, Err(CallError::Deadline)));
    *fakes.manner.lock().unwrap() = Manner::Quick;
    let answer = body(&mut call(&pool, TestPayload::new("/next"))).await;
    assert_eq!(answer.unwrap(), "/next");
    assert_eq!(fakes.interrupts.lock().unwrap().as_slice(), [7, 7]);
    assert_eq!(
        fakes.signals.lock().unwrap().as_slice(),
        [Signal::Terminate, Signal::Kill]
    );
    assert_eq!(*fakes.booted.lock().unwrap(), 2);
}

#[tokio::test(start_paused = true)]
async fn the_stop_has_an_end_of_its_own() {
    let fakes = Fakes::new(Manner::Slow(seconds(1000)));
    let (pool, supervised) = started(&fakes, 2, 10).await;
    let mut busy = call(&pool, TestPayload::new("/"));
    let mut waiting: Vec<_> = (0..2)
        .map(|_| call(&pool, TestPayload::new("/waits")))
        .collect();
    let stop = supervised.stop(seconds(5));
    let start = Instant::now();
    let last = waiting.pop().unwrap();
    drop(last);
    let killed = stop.await;
    assert_eq!((killed, start.elapsed().as_secs()), (2, 5));
    assert!(body(&mut busy).await.is_err());
}

/// A worker with gigabytes to give back ends late, and a worker that hangs in the kernel never.
#[tokio::test(start_paused = true)]
async fn a_stop_waits_for_workers_that_it_has_killed_but_not_for_ever() {
    for (dying, lasts) in [(7, 5 + 7), (1000, 5 + 8)] {
        let fakes = Fakes::new(Manner::Slow(seconds(1000)));
        *fakes.dying.lock().unwrap() = seconds(dying);
        let (pool, supervised) = started(&fakes, 1, 10).await;
        let _busy = call(&pool, TestPayload::new("/"));
        let start = Instant::now();
        let killed = supervised.stop(seconds(5)).await;
        assert_eq!((killed, start.elapsed().as_secs()), (1, lasts));
    }
}

#[tokio::test(start_paused = true)]
async fn a_stopping_pool_finishes_what_runs_and_refuses_the_rest() {
    let fakes = Fakes::new(Manner::Slow(seconds(3)));
    let (pool, supervised) = started(&fakes, 1, 10).await;
    let mut running = call(&pool, TestPayload::new("/running"));
    let mut waiting = call(&pool, TestPayload::new("/waiting"));
    settle().await;
    let (killed, running, waiting) = tokio::join!(
        supervised.stop(seconds(60)),
        body(&mut running),
        body(&mut waiting)
    );
    assert_eq!((killed, running.unwrap().as_str()), (0, "/running"));
    assert!(matches!(
        waiting,
        Err(CallError::Refused(Refused::Stopping))
    ));
    let mut late = call(&pool, TestPayload::new("/late"));
    assert!(matches!(
        body(&mut late).await,
        Err(CallError::Refused(Refused::Stopping))
    ));
}

#[tokio::test(start_paused = true)]
async fn a_reload_replaces_every_worker_and_no_call_notices() {
    let fakes = Fakes::new(Manner::Slow(seconds(1)));
    let (pool, supervised) = started(&fakes, 2, 100).await;
    let mut calls: Vec<_> = (0..20)
        .map(|_| call(&pool, TestPayload::unrepeatable("/")))
        .collect();
    sleep(Duration::from_millis(1500)).await;
    *fakes.manner.lock().unwrap() = Manner::Quick;
    supervised.reload(seconds(60)).await.unwrap();
    for pending in &mut calls {
        assert_eq!(body(pending).await.unwrap(), "/");
    }
    sleep(seconds(5)).await;
    assert_eq!(*fakes.booted.lock().unwrap(), 4);
    assert_eq!(pool.states().await, [SlotState::Ready; 2]);
    for _ in 0..3 {
        supervised.reload(seconds(60)).await.unwrap();
        sleep(seconds(5)).await;
    }
    assert_eq!(
        pool.states().await,
        [SlotState::Ready; 2],
        "slots are given back"
    );
}

/// Else a storm of deaths would take the time of those that work.
#[tokio::test(start_paused = true)]
async fn only_the_boots_of_a_reload_overtake() {
    let fakes = Fakes::new(Manner::Dies);
    let (pool, supervised) = started(&fakes, 2, 10).await;
    let paces = || std::mem::take(&mut *fakes.paces.lock().unwrap());
    assert_eq!(paces(), [Pace::Usual; 2], "nothing works at the start");
    supervised.reload(seconds(1)).await.unwrap();
    assert_eq!(paces(), [Pace::Overtaking; 2]);
    for _ in 0..4 {
        _ = call(&pool, TestPayload::new("x")).answer().await;
        settle().await;
    }
    let replaced = paces();
    assert!(replaced.len() >= 2, "{replaced:?}");
    assert!(replaced.iter().all(|it| *it == Pace::Usual), "{replaced:?}");
    supervised.add(1).await.unwrap();
    assert_eq!(paces(), [Pace::Usual]);
}

#[tokio::test(start_paused = true)]
async fn a_reload_that_does_not_boot_leaves_everything_as_it_was() {
    let fakes = Fakes::new(Manner::Quick);
    let (pool, supervised) = started(&fakes, 2, 10).await;
    *fakes.boot.lock().unwrap() = Err(());
    let error = supervised.reload(seconds(60)).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "pool `test`: worker ended before it was ready (exit code 255)"
    );
    assert_eq!(pool.states().await, [SlotState::Ready; 2]);
    assert_eq!(
        body(&mut call(&pool, TestPayload::new("/old")))
            .await
            .unwrap(),
        "/old"
    );
    *fakes.boot.lock().unwrap() = Ok(Duration::ZERO);
    supervised.reload(seconds(60)).await.unwrap();
    assert_eq!(
        body(&mut call(&pool, TestPayload::new("/new")))
            .await
            .unwrap(),
        "/new"
    );
}

#[tokio::test(start_paused = true)]
async fn a_worker_of_the_old_generation_that_takes_too_long_is_killed() {
    let fakes = Fakes::new(Manner::Slow(seconds(1000)));
    let (pool, supervised) = started(&fakes, 1, 10).await;
    let mut endless = call(&pool, TestPayload::unrepeatable("/"));
    settle().await;
    *fakes.manner.lock().unwrap() = Manner::Quick;
    supervised.reload(seconds(20)).await.unwrap();
    assert_eq!(
        body(&mut call(&pool, TestPayload::new("/new")))
            .await
            .unwrap(),
        "/new"
    );
    let start = Instant::now();
    let died = body(&mut endless).await;
    assert!(
        matches!(
            died,
            Err(CallError::Worker(WorkerFault::CutOff(Exit::Signal(9))))
        ),
        "{died:?}"
    );
    assert_eq!(start.elapsed().as_secs(), 20);
    // A stop in the middle of it ends both generations.
    assert_eq!(supervised.stop(seconds(60)).await, 0);
}
