//! Calls ahead: a relay over shared memory whose worker is played by the test, under a paused
//! clock.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use pronghorn_process::Exit;
use pronghorn_ring::{Peer, SharedMemory, Thread};
use pronghorn_wire::Codec;
use pronghorn_wire::frame::{Flags, Header, MAX_PAYLOAD, OpenFrame, Stream, WORKER_HEADER};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::TestPayload;
use crate::call::{Answer, CallError, Pending, ReplyBody, Terms, WorkerFault};
use crate::core::SlotState;
use crate::last_words::LastWords;
use crate::pool::{Options, Order, Pool, Report, Transport};
use crate::quote::Quote;
use crate::relay::channel::{Channel, Detached};
use crate::relay::inbox::Inbox;
use crate::relay::{Dialect, Relay, Settings};
use crate::session;
use crate::spool::Spool;

/// More than the relay waits before it takes calls back.
const LONG: Duration = Duration::from_millis(5);

/// A pool with one worker, which the test plays.
pub(super) struct Stage {
    pub(super) pool: Pool,
    thread: Thread,
    pub(super) worker: Worker,
}

pub(super) struct Worker {
    inbox: Arc<Inbox>,
    reports: mpsc::UnboundedReceiver<Report>,
    pub(super) peer: Peer,
}

/// A call as a worker finds it.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Found {
    kind: u8,
    number: u32,
}

const REQUEST: u8 = 0x01;
const CANCEL: u8 = 0x10;
const REPLY: u8 = 0x81;
const FREE: u8 = 0x86;
/// Flag of a reply.
const BUSY: u8 = 0x02;

pub(super) fn reply(found: Found, flags: u8, body: &str, stream: Stream) -> Vec<u8> {
    frame([REPLY, flags, 200, 0], found.number, &[0; 4], body, stream)
}

pub(super) fn frame(
    kind: [u8; 4],
    number: u32,
    context: &[u8],
    body: &str,
    stream: Stream,
) -> Vec<u8> {
    let mut out = Vec::new();
    let open = OpenFrame::begin(&mut out);
    out.extend_from_slice(&kind);
    out.extend_from_slice(&number.to_le_bytes());
    out.extend_from_slice(context);
    open.finish(&mut out, Flags::NATIVE, stream, body.len())
        .unwrap();
    out.extend_from_slice(body.as_bytes());
    out
}

impl Stage {
    pub(super) async fn new(max_jobs: Option<u64>) -> Self {
        let options = Options {
            name: "test".into(),
            queue_limit: 10,
            queue_timeout: Duration::from_secs(1000),
            exec_ttl: Some(Duration::from_secs(10)),
            slow: None,
            incidents: crate::Incidents::default(),
            deadline_max: Duration::from_secs(3600),
            max_jobs: max_jobs.and_then(std::num::NonZeroU64::new),
            processors: 1,
            runs_alone: false,
        };
        let pool = Pool::new(
            options,
            &Handle::current(),
            &pronghorn_metrics::Registry::default(),
        );
        let thread = Thread::serve(&Handle::current()).unwrap();
        settle().await;
        let worker = Worker::start(&pool, &thread).await;
        Self {
            pool,
            thread,
            worker,
        }
    }

    pub(super) fn call(&self, name: &'static str) -> Pending {
        call(&self.pool, name)
    }

    /// Calls that are answered at once, until the pool knows that they are short.
    async fn warm(&mut self) {
        for _ in 0..20 {
            let mut pending = self.call("/warm");
            settle().await;
            let worker = &mut self.worker;
            let found = worker.begins_next();
            worker.reply(found, "warm");
            assert_eq!(body(&mut pending).await.unwrap(), "warm");
            settle().await;
        }
    }

    /// Calls of 3 ms that leave something for after their reply, until the pool knows how long that
    /// takes.
    async fn learn(&mut self, rest: Duration) {
        for _ in 0..60 {
            let mut pending = self.call("/learn");
            settle().await;
            let worker = &mut self.worker;
            let found = worker.begins_next();
            tokio::time::sleep(Duration::from_millis(3)).await;
            worker.reply_and_defer(found, "learnt");
            assert_eq!(body(&mut pending).await.unwrap(), "learnt");
            worker.is_free_after(found, rest);
            settle().await;
        }
    }

    /// As [`warm`](Self::warm), until it knows that they are quick, too: only where the worker had
    /// them ahead can it tell.
    async fn quicken(&mut self) {
        self.warm().await;
        for _ in 0..10 {
            let mut calls: Vec<Pending> = (0..5).map(|_| self.call("/")).collect();
            settle().await;
            let worker = &mut self.worker;
            for call in worker.finds_all() {
                assert!(worker.begins(call));
                worker.reply(call, "quick");
            }
            for call in &mut calls {
                assert_eq!(body(call).await.unwrap(), "quick");
            }
            settle().await;
        }
    }
}

fn call(pool: &Pool, name: &'static str) -> Pending {
    let payload = TestPayload::unrepeatable(name);
    let now = Instant::now();
    pool.call(payload, Terms::default(), now, now)
}

/// The worker's end of a box.
pub(super) fn peer(memory: &SharedMemory, thread: &Thread) -> Peer {
    let [memory, page, bell] = [memory.memory(), thread.page(), thread.bell()]
        .map(|descriptor| descriptor.try_clone_to_owned().unwrap());
    Peer::attach(memory, page, bell).unwrap()
}

impl Worker {
    async fn start(pool: &Pool, thread: &Thread) -> Self {
        let slot = pool.add_slot().await;
        pool.booting(slot).await;
        let (slot_handle, mut reports) = pool.slot_handle(slot, 1);
        let memory = Arc::new(SharedMemory::new().unwrap());
        let peer = peer(&memory, thread);
        let (read, write) = rustix::pipe::pipe().unwrap();
        let channel = Channel::attach(Detached::Ring {
            memory,
            read,
            write,
        });
        let inbox = Arc::new(Inbox::default());
        let settings = Settings {
            interruptible: false,
            codec: Codec::Native,
            stream_timeout: Duration::from_secs(60),
            spool: Arc::new(Spool::open(&std::env::temp_dir(), None).unwrap()),
            quote: Quote::All,
            methods: None,
            last_words: LastWords::default(),
        };
        let (channel, inbox_of) = (channel.unwrap(), inbox.clone());
        let relay = Relay::new(
            channel,
            &[],
            Dialect::Native,
            settings,
            slot_handle,
            inbox_of,
        );
        Handle::current().spawn(session::run(relay));
        assert!(matches!(reports.recv().await, Some(Report::Entered)));
        Self {
            inbox,
            reports,
            peer,
        }
    }

    /// The next frame, if there is one; what comes after it stays.
    fn finds(&mut self) -> Option<Found> {
        let mut header = [0; WORKER_HEADER];
        if self.peer.read(&mut header, Duration::ZERO).unwrap() == 0 {
            return None;
        }
        let decoded = Header::decode(&header, MAX_PAYLOAD).unwrap().unwrap();
        let mut context = vec![0; decoded.payload as usize];
        let read = self.peer.read(&mut context, Duration::ZERO).unwrap();
        assert_eq!(read, context.len(), "frames are put whole");
        Some(Found {
            kind: context[0],
            number: u32::from_le_bytes(context[4..8].try_into().unwrap()),
        })
    }

    /// All that there is.
    fn finds_all(&mut self) -> Vec<Found> {
        std::iter::from_fn(|| self.finds()).collect()
    }

    fn begins(&self, found: Found) -> bool {
        assert_eq!(found.kind, REQUEST);
        self.peer.claims(found.number)
    }

    /// The next call, which has not been taken back.
    pub(super) fn begins_next(&mut self) -> Found {
        let found = self.finds().unwrap();
        assert!(self.begins(found));
        found
    }

    pub(super) fn send(&mut self, frame: &[u8]) {
        self.peer.write(frame, Duration::ZERO).unwrap();
        pronghorn_ring::collect();
    }

    fn reply(&mut self, found: Found, body: &str) {
        self.peer.write_reply(&reply(found, 0, body, Stream::END));
        pronghorn_ring::collect();
    }

    /// Answers, and is not free before it says so.
    fn reply_and_defer(&mut self, found: Found, body: &str) {
        self.send(&reply(found, BUSY, body, Stream::END));
    }

    fn is_free(&mut self, of: Found) {
        self.is_free_after(of, Duration::ZERO);
    }

    fn is_free_after(&mut self, of: Found, rest: Duration) {
        let [low, high] = u16::try_from(rest.as_micros() / 10).unwrap().to_le_bytes();
        self.peer.write_with_next(&frame(
            [FREE, 0, low, high],
            of.number,
            &[],
            "",
            Stream::END,
        ));
        pronghorn_ring::collect();
    }

    pub(super) async fn ends(mut self, pool: &Pool) -> Vec<Report> {
        self.inbox.order(Order::Ended(Exit::Signal(9)));
        let mut reports = Vec::new();
        while let Some(report) = self.reports.recv().await {
            if matches!(report, Report::Left) {
                assert_eq!(pool.states().await, [SlotState::Empty]);
                return reports;
            }
            reports.push(report);
        }
        panic!("the relay never left: {reports:?}");
    }
}

/// Until nobody has anything to do at this moment.
pub(super) async fn settle() {
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
}

async fn body(pending: &mut Pending) -> Result<String, CallError> {
    let answer = tokio::time::timeout(Duration::from_secs(60), pending.answer());
    match answer.await.expect("it is answered")? {
        Answer::Reply(reply) => match reply.body {
            ReplyBody::Whole(bytes) => Ok(String::from_utf8(Bytes::from(bytes).to_vec()).unwrap()),
            other => panic!("{other:?}"),
        },
        Answer::Interim(head) => panic!("{head:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_worker_of_short_calls_has_the_next_ones_before_it_has_answered() {
    let mut stage = Stage::new(None).await;
    let cold = [stage.call("/a"), stage.call("/b")];
    settle().await;
    let found = stage.worker.finds_all();
    assert_eq!(found.len(), 1, "nothing is known of these calls");
    assert!(stage.worker.begins(found[0]));
    stage.worker.reply(found[0], "a");
    settle().await;
    let found = stage.worker.finds_all();
    assert!(stage.worker.begins(found[0]));
    stage.worker.reply(found[0], "b");
    drop(cold);
    stage.warm().await;
    let mut calls: Vec<Pending> = (0..7).map(|_| stage.call("/")).collect();
    settle().await;
    let worker = &mut stage.worker;
    let found = worker.finds_all();
    assert_eq!(found.len(), 5, "one at hand and four ahead");
    assert_eq!(stage.pool.stats().waiting(), 2);
    // All at once, as a busy thread finds them.
    for (place, call) in found.into_iter().enumerate() {
        assert!(worker.begins(call));
        worker.reply(call, &place.to_string());
    }
    settle().await;
    let rest = worker.finds_all();
    assert_eq!(rest.len(), 2);
    for (place, call) in (5..).zip(rest) {
        assert!(worker.begins(call));
        worker.reply(call, &place.to_string());
    }
    for (place, call) in calls.iter_mut().enumerate() {
        assert_eq!(body(call).await.unwrap(), place.to_string());
    }
    settle().await;
    assert_eq!(stage.pool.states().await, [SlotState::Ready]);
}

#[tokio::test(start_paused = true)]
async fn replies_of_short_calls_may_wait_for_each_other() {
    let mut stage = Stage::new(None).await;
    assert_eq!(stage.worker.peer.enough_calls(), 0, "nothing is known");
    // Of the four behind the one that is answered.
    let rows = [
        (140, 2),
        (900, 5),
        (250, 3),
        (3_000, 0),
        (500, 4),
        (160, 2),
        (60, 3),
        (30, 5),
    ];
    for (took, enough) in rows {
        for _ in 0..60 {
            let mut pending = stage.call("/");
            settle().await;
            let found = stage.worker.begins_next();
            tokio::time::advance(Duration::from_micros(took)).await;
            stage.worker.reply(found, "done");
            assert_eq!(body(&mut pending).await.unwrap(), "done");
            settle().await;
        }
        assert_eq!(stage.worker.peer.enough_calls(), enough, "{took} µs");
    }
    stage.quicken().await;
    assert_eq!(stage.worker.peer.enough_calls(), 0, "they are quick");
}

#[tokio::test(start_paused = true)]
async fn a_worker_is_told_whether_its_calls_are_quick() {
    let mut stage = Stage::new(None).await;
    assert!(!stage.worker.peer.is_quick(), "nothing is known");
    stage.quicken().await;
    assert!(stage.worker.peer.is_quick());
    stage.learn(Duration::ZERO).await;
    assert!(!stage.worker.peer.is_quick(), "they take 3 ms");
}

#[tokio::test(start_paused = true)]
async fn a_reply_that_waits_is_looked_for_when_the_next_call_is_long() {
    let mut stage = Stage::new(None).await;
    stage.warm().await;
    let (mut short, _long) = (stage.call("/short"), stage.call("/long"));
    settle().await;
    let worker = &mut stage.worker;
    let found = worker.begins_next();
    // Nobody tells the server of it.
    worker
        .peer
        .write_reply(&reply(found, 0, "short", Stream::END));
    worker.begins_next();
    let since = Instant::now();
    assert_eq!(body(&mut short).await.unwrap(), "short");
    assert!(since.elapsed() < LONG, "{:?}", since.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_worker_of_quick_calls_has_more_of_them() {
    let mut stage = Stage::new(None).await;
    stage.quicken().await;
    let worker = &mut stage.worker;
    let mut calls: Vec<Pending> = (0..15).map(|_| call(&stage.pool, "/")).collect();
    settle().await;
    for most in [13, 2] {
        let found = worker.finds_all();
        assert_eq!(
            found.len(),
            most,
            "one at hand and twelve ahead, then the rest"
        );
        for call in found {
            assert!(worker.begins(call));
            worker.reply(call, "quick");
        }
        settle().await;
    }
    for call in &mut calls {
        assert_eq!(body(call).await.unwrap(), "quick");
    }
}

#[tokio::test(start_paused = true)]
async fn only_quick_calls_wait_for_others_to_wake_their_worker_with() {
    let mut stage = Stage::new(None).await;
    for quick in [false, true] {
        stage.worker.peer.lies_down();
        let mut pending = stage.call("/");
        settle().await;
        let worker = &mut stage.worker;
        assert_ne!(worker.peer.is_woken(), quick);
        Thread::before_park();
        assert!(worker.peer.is_woken());
        let found = worker.begins_next();
        worker.reply(found, "done");
        assert_eq!(body(&mut pending).await.unwrap(), "done");
        settle().await;
        stage.quicken().await;
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_sleep_of_the_thread_they_do_not_wait_long() {
    let mut stage = Stage::new(None).await;
    stage.quicken().await;
    stage.worker.peer.lies_down();
    Thread::after_park();
    let _pending = stage.call("/");
    settle().await;
    assert!(!stage.worker.peer.is_woken());
    for _request in 0..3 {
        pronghorn_ring::collect();
    }
    assert!(stage.worker.peer.is_woken());
}

#[tokio::test(start_paused = true)]
async fn calls_behind_a_long_one_go_to_other_workers() {
    let mut stage = Stage::new(None).await;
    stage.warm().await;
    let mut calls: Vec<Pending> = (0..3).map(|_| stage.call("/")).collect();
    settle().await;
    let found = stage.worker.finds_all();
    assert!(stage.worker.begins(found[0]));
    tokio::time::sleep(LONG).await;
    assert_eq!(stage.pool.stats().waiting(), 2);
    assert!(!stage.worker.begins(found[1]), "it was taken back");
    assert!(!stage.worker.begins(found[2]), "it was taken back");
    let mut late = stage.call("/late");
    settle().await;
    assert_eq!(stage.worker.finds_all(), [], "none comes behind it");
    // Those that came first go first.
    for place in ["first", "second", "third", "last"] {
        let found = match place {
            "first" => found[0],
            _ => stage.worker.begins_next(),
        };
        stage.worker.reply(found, place);
        settle().await;
    }
    for (call, place) in calls.iter_mut().zip(["first", "second", "third"]) {
        assert_eq!(body(call).await.unwrap(), place);
    }
    assert_eq!(body(&mut late).await.unwrap(), "last");
}

#[tokio::test(start_paused = true)]
async fn calls_behind_a_long_one_end_if_their_maker_has_a_place_for_them() {
    let mut stage = Stage::new(None).await;
    assert_eq!(stage.pool.room(), 0, "nobody knows how quick it is");
    stage.warm().await;
    let mut first = stage.call("/elsewhere/1");
    settle().await;
    assert!(stage.pool.room() > 0);
    let mut others = JoinSet::new();
    for name in ["/elsewhere/2", "/elsewhere/3"] {
        let mut call = stage.call(name);
        others.spawn(async move { (name, body(&mut call).await) });
    }
    settle().await;
    let found = stage.worker.finds_all();
    assert!(stage.worker.begins(found[0]));
    tokio::time::sleep(LONG).await;
    assert_eq!(stage.pool.stats().waiting(), 0);
    assert!(!stage.worker.begins(found[1]), "it was taken back");
    // So that each can be put in front of what its maker has.
    for last in ["/elsewhere/3", "/elsewhere/2"] {
        let (name, outcome) = others.join_next().await.unwrap().unwrap();
        assert_eq!(name, last);
        assert!(matches!(outcome, Err(CallError::NotBegun)));
    }
    assert_eq!(stage.pool.room(), 0, "it is not quick now");
    stage.worker.reply(found[0], "done");
    assert_eq!(body(&mut first).await.unwrap(), "done");
}

/// What a call has deferred belongs to its time: those behind it stay while that is short, and go
/// when it is not.
#[tokio::test(start_paused = true)]
async fn calls_stay_behind_deferred_work_as_they_do_behind_a_call() {
    let mut stage = Stage::new(None).await;
    stage.warm().await;
    for long in [false, true] {
        let mut calls: Vec<Pending> = (0..3).map(|_| stage.call("/")).collect();
        settle().await;
        let worker = &mut stage.worker;
        let mut found = worker.finds_all();
        assert_eq!(found.len(), 3);
        assert!(worker.begins(found[0]));
        worker.reply_and_defer(found[0], "0");
        assert_eq!(body(&mut calls[0]).await.unwrap(), "0");
        calls.push(call(&stage.pool, "/late"));
        settle().await;
        found.extend(worker.finds_all());
        assert_eq!(found.len(), 4, "it is behind the others");
        if long {
            tokio::time::sleep(LONG).await;
            for taken_back in &found[1..] {
                assert!(!worker.begins(*taken_back));
            }
            assert_eq!(stage.pool.stats().waiting(), 3);
        }
        worker.is_free(found[0]);
        if long {
            settle().await;
            found.splice(1.., worker.finds_all());
        }
        for (place, call) in found.into_iter().enumerate().skip(1) {
            assert!(worker.begins(call));
            worker.reply_and_defer(call, &place.to_string());
            worker.is_free(call);
        }
        for (place, call) in calls.iter_mut().enumerate().skip(1) {
            assert_eq!(body(call).await.unwrap(), place.to_string());
        }
        settle().await;
        assert_eq!(stage.pool.states().await, [SlotState::Ready]);
    }
}

#[tokio::test(start_paused = true)]
async fn behind_the_short_rest_of_a_long_call_is_the_next_one() {
    let mut stage = Stage::new(None).await;
    for (rest, is_behind) in [(5000, false), (100, true)] {
        let rest = Duration::from_micros(rest);
        stage.learn(rest).await;
        let mut calls = [stage.call("/a"), stage.call("/b")];
        settle().await;
        let worker = &mut stage.worker;
        let first = worker.begins_next();
        tokio::time::sleep(LONG).await;
        assert_eq!(worker.finds(), None, "the call itself is long");
        worker.reply_and_defer(first, "a");
        settle().await;
        let behind = worker.finds();
        assert_eq!(behind.is_some(), is_behind);
        worker.is_free_after(first, rest);
        settle().await;
        let second = behind.or_else(|| worker.finds()).unwrap();
        assert!(worker.begins(second));
        worker.reply_and_defer(second, "b");
        worker.is_free_after(second, rest);
        settle().await;
        for (call, place) in calls.iter_mut().zip(["a", "b"]) {
            assert_eq!(body(call).await.unwrap(), place);
        }
        assert_eq!(stage.pool.states().await, [SlotState::Ready]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_rest_that_turns_out_long_does_not_keep_it() {
    let mut stage = Stage::new(None).await;
    stage.learn(Duration::from_micros(100)).await;
    let mut first = stage.call("/first");
    settle().await;
    let found = stage.worker.begins_next();
    stage.worker.reply_and_defer(found, "1");
    assert_eq!(body(&mut first).await.unwrap(), "1");
    let mut second = stage.call("/second");
    settle().await;
    let behind = stage.worker.finds().unwrap();
    tokio::time::sleep(3 * LONG).await;
    assert_eq!(stage.pool.stats().waiting(), 1);
    assert!(!stage.worker.begins(behind), "it was taken back");
    stage.worker.is_free_after(found, 3 * LONG);
    settle().await;
    let again = stage.worker.begins_next();
    stage.worker.reply(again, "2");
    assert_eq!(body(&mut second).await.unwrap(), "2");
}

/// The other one would have to be woken, elsewhere perhaps, and that takes longer than the rest
/// does.
#[tokio::test(start_paused = true)]
async fn behind_a_short_rest_a_call_is_rather_than_with_another_worker() {
    let mut stage = Stage::new(None).await;
    for (rest, is_behind) in [(100, true), (700, false)] {
        let rest = Duration::from_micros(rest);
        stage.learn(rest).await;
        let mut other = Worker::start(&stage.pool, &stage.thread).await;
        // That came last, and so is the first to be given one.
        let mut calls = vec![stage.call("/other"), stage.call("/first")];
        settle().await;
        let (others, first) = (other.begins_next(), stage.worker.begins_next());
        tokio::time::sleep(LONG).await;
        stage.worker.reply_and_defer(first, "done");
        other.reply(others, "done");
        settle().await;
        calls.push(stage.call("/next"));
        settle().await;
        let next = match stage.worker.finds() {
            Some(next) if is_behind => next,
            None if !is_behind => other.finds().unwrap(),
            wrong => panic!("{rest:?}: {wrong:?}"),
        };
        stage.worker.is_free_after(first, rest);
        let worker = if is_behind {
            &mut stage.worker
        } else {
            &mut other
        };
        assert!(worker.begins(next));
        worker.reply(next, "done");
        for call in &mut calls {
            assert_eq!(body(call).await.unwrap(), "done");
        }
        other.inbox.order(Order::Ended(Exit::Signal(9)));
        settle().await;
    }
}

#[tokio::test(start_paused = true)]
async fn of_a_worker_that_dies_only_the_call_that_it_had_begun_fails() {
    let mut stage = Stage::new(None).await;
    stage.warm().await;
    let mut calls: Vec<Pending> = (0..4).map(|_| stage.call("/")).collect();
    settle().await;
    let (pool, mut worker) = (stage.pool, stage.worker);
    let first = worker.begins_next();
    // Its last words are there, but nobody has looked yet.
    worker.reply(first, "done");
    worker.begins_next();
    let reports = worker.ends(&pool).await;
    assert!(matches!(&reports[..], [Report::DiedWith { .. }]));
    assert_eq!(body(&mut calls[0]).await.unwrap(), "done");
    let died = body(&mut calls[1]).await.unwrap_err();
    assert!(matches!(
        died,
        CallError::Worker(WorkerFault::Died(Exit::Signal(9)))
    ));
    assert_eq!(pool.stats().waiting(), 2, "the others wait");
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_client_left_is_passed_over() {
    let mut stage = Stage::new(None).await;
    stage.warm().await;
    let mut first = stage.call("/first");
    let second = stage.call("/second");
    let mut third = stage.call("/third");
    settle().await;
    let found = stage.worker.finds_all();
    assert!(stage.worker.begins(found[0]));
    drop(second);
    stage.worker.reply(found[0], "1");
    settle().await;
    assert!(!stage.worker.begins(found[1]), "nobody waits for it");
    assert!(stage.worker.begins(found[2]));
    stage.worker.reply(found[2], "3");
    assert_eq!(body(&mut first).await.unwrap(), "1");
    assert_eq!(body(&mut third).await.unwrap(), "3");
    // And one that has not begun when it is at hand.
    let fourth = stage.call("/fourth");
    settle().await;
    drop(fourth);
    settle().await;
    let found = stage.worker.finds_all();
    assert!(!stage.worker.begins(found[0]));
    assert_eq!(stage.pool.states().await, [SlotState::Ready]);
}

#[tokio::test(start_paused = true)]
async fn a_cancel_does_not_stand_behind_a_call() {
    let mut stage = Stage::new(None).await;
    stage.warm().await;
    let first = stage.call("/first");
    let mut second = stage.call("/second");
    settle().await;
    let found = stage.worker.finds_all();
    assert!(stage.worker.begins(found[0]));
    drop(first);
    settle().await;
    assert!(!stage.worker.begins(found[1]), "it was taken back");
    let cancel = stage.worker.finds().unwrap();
    assert_eq!((cancel.kind, cancel.number), (CANCEL, found[0].number));
    stage.worker.reply(found[0], "nobody hears it");
    settle().await;
    let again = stage.worker.begins_next();
    stage.worker.reply(again, "2");
    assert_eq!(body(&mut second).await.unwrap(), "2");
}

#[tokio::test(start_paused = true)]
async fn no_call_comes_behind_a_reply_in_pieces() {
    let mut stage = Stage::new(None).await;
    stage.warm().await;
    let mut first = stage.call("/stream");
    let second = stage.call("/second");
    settle().await;
    let found = stage.worker.finds_all();
    assert!(stage.worker.begins(found[0]));
    stage
        .worker
        .send(&reply(found[0], 0, "piece", Stream::MORE));
    assert!(matches!(first.answer().await, Ok(Answer::Reply(_))));
    settle().await;
    assert!(!stage.worker.begins(found[1]));
    let third = stage.call("/third");
    settle().await;
    assert_eq!(stage.worker.finds_all(), []);
    assert_eq!(stage.pool.stats().waiting(), 2);
    drop((second, third));
}

#[tokio::test(start_paused = true)]
async fn none_is_given_beyond_the_last_one() {
    let mut stage = Stage::new(Some(1)).await;
    let mut calls: Vec<Pending> = (0..3).map(|_| stage.call("/")).collect();
    settle().await;
    let found = stage.worker.finds_all();
    assert_eq!(found.len(), 1);
    assert!(stage.worker.begins(found[0]));
    stage.worker.reply(found[0], "only");
    assert_eq!(body(&mut calls[0]).await.unwrap(), "only");
    settle().await;
    assert_eq!(stage.pool.states().await, [SlotState::Stopping]);
    assert_eq!(stage.pool.stats().waiting(), 2);
}

/// A worker that writes over its own count looks as if it had not begun; the call must not run
/// twice for that.
#[tokio::test(start_paused = true)]
async fn a_call_that_was_begun_is_not_repeated_whatever_the_counts_say() {
    let stage = Stage::new(None).await;
    let mut call = stage.call("/");
    settle().await;
    let mut worker = stage.worker;
    let found = worker.finds_all();
    assert!(worker.begins(found[0]));
    worker.peer.scribble(0, 0);
    worker.ends(&stage.pool).await;
    let died = body(&mut call).await.unwrap_err();
    assert!(matches!(died, CallError::Worker(WorkerFault::Died(_))));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_reaches_a_worker_when_it_has_left_goes_to_another() {
    let stage = Stage::new(None).await;
    let (pool, worker) = (stage.pool, stage.worker);
    let inbox = worker.inbox.clone();
    worker.ends(&pool).await;
    let (call, _pending) = pool.call_aside(TestPayload::unrepeatable("/"));
    inbox.submit(call);
    assert_eq!(pool.stats().waiting(), 1);
}
