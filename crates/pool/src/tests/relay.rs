//! A relay whose worker is played by the test, over a real socket, under a paused clock.
//!
//! With nothing left to do the clock jumps to the next deadline, so a test that waits for one takes
//! no time.

use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use pronghorn_process::Exit;
use pronghorn_wire::frame::{Flags, Header, MAX_PAYLOAD, OpenFrame, Stream, encode_plain};
use pronghorn_wire::{Codec, DecodeError, Head};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{Instant, advance, timeout};

use super::{TestPayload, http};
use crate::body::{BodyFeed, BodyStream, streamed};
use crate::call::{
    Answer, Body, CallError, Encoding, Payload, Pending, Reply, ReplyBody, Terms, Unencodable,
    WorkerFault,
};
use crate::content::Content;
use crate::core::SlotState;
use crate::fence::Fence;
use crate::last_words::LastWords;
use crate::observer::Observer;
use crate::pieces::{Piece, Pieces};
use crate::pool::{Options, Order, Pool, Report, Transport};
use crate::quote::Quote;
use crate::raw::{RawCall, RawError};
use crate::relay::channel::Channel;
use crate::relay::connection::Connection;
use crate::relay::inbox::Inbox;
use crate::relay::{Calling, Dialect, Held, MethodCaller, Relay, Settings};
use crate::session;
use crate::spool::Spool;
use crate::stamps::Stamps;
use crate::warmup::{Cold, WarmupCall, warm_up};

/// A pool with one worker, which the test plays.
struct Stage {
    pool: Pool,
    inbox: Arc<Inbox>,
    reports: mpsc::UnboundedReceiver<Report>,
    worker: Worker,
}

struct Worker {
    stream: UnixStream,
    read: BytesMut,
}

/// A frame as the worker sees it.
#[derive(Debug)]
struct Frame {
    header: Header,
    context: Bytes,
    body: Bytes,
}

impl Frame {
    fn call(&self) -> u32 {
        u32::from_le_bytes(self.context[4..8].try_into().unwrap())
    }

    fn kind(&self) -> u8 {
        self.context[0]
    }

    fn is_cancel(&self) -> bool {
        self.context[0] == 0x10
    }
}

impl Worker {
    async fn frame(&mut self) -> Frame {
        loop {
            if let Some(header) = Header::decode(&self.read, MAX_PAYLOAD).unwrap() {
                let whole = header.len() + header.payload as usize;
                if self.read.len() >= whole {
                    let mut frame = self.read.split_to(whole).freeze();
                    let mut payload = frame.split_off(header.len());
                    let option = header
                        .options
                        .as_slice()
                        .first()
                        .copied()
                        .unwrap_or_default();
                    let context = payload.split_to(option as usize);
                    return Frame {
                        header,
                        context,
                        body: payload,
                    };
                }
            }
            assert!(
                self.stream.read_buf(&mut self.read).await.unwrap() > 0,
                "the server hung up"
            );
        }
    }

    /// A call of a foreign worker that answers the question before it.
    async fn take_up(&mut self) -> Frame {
        let question = self.frame().await;
        assert_eq!(question.header.flags.0, 0x09, "no question");
        self.send(&pid()).await;
        self.frame().await
    }

    async fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
    }

    async fn reply(&mut self, call: u32, body: &[u8]) {
        self.send(&native(
            0x81,
            0,
            200,
            call,
            &[0, 0, 0, 0],
            body,
            Stream::END,
        ))
        .await;
    }
}

fn native(
    kind: u8,
    flags: u8,
    small: u16,
    call: u32,
    rest: &[u8],
    body: &[u8],
    stream: Stream,
) -> Vec<u8> {
    let mut context = vec![kind, flags];
    context.extend_from_slice(&small.to_le_bytes());
    context.extend_from_slice(&call.to_le_bytes());
    context.extend_from_slice(rest);
    framed(Flags::NATIVE, &context, body, stream)
}

fn json(context: &str, body: &[u8]) -> Vec<u8> {
    framed(Flags::NONE, context.as_bytes(), body, Stream::END)
}

fn framed(flags: Flags, context: &[u8], body: &[u8], stream: Stream) -> Vec<u8> {
    let mut out = Vec::new();
    let open = OpenFrame::begin(&mut out);
    out.extend_from_slice(context);
    open.finish(&mut out, flags, stream, body.len()).unwrap();
    out.extend_from_slice(body);
    out
}

/// What a worker answers to the question before a call.
fn pid() -> Vec<u8> {
    let mut out = Vec::new();
    encode_plain(&mut out, Flags::CONTROL, Stream::END, br#"{"pid":1}"#);
    out
}

impl Stage {
    /// One that can be told to end a call.
    async fn interruptible() -> Self {
        Self::with(Dialect::Native, Codec::Native, true).await
    }

    async fn native() -> Self {
        Self::new(Dialect::Native, Codec::Native).await
    }

    async fn foreign(fence: Fence) -> Self {
        Self::new(Dialect::foreign(fence, true), Codec::Json).await
    }

    async fn new(dialect: Dialect, codec: Codec) -> Self {
        Self::with(dialect, codec, false).await
    }

    async fn with(dialect: Dialect, codec: Codec, interruptible: bool) -> Self {
        let spool = Spool::open(&std::env::temp_dir(), None).unwrap();
        Self::made(dialect, codec, interruptible, spool).await
    }

    /// Nothing it leaves finds room in a file.
    async fn without_spool() -> Self {
        let name = format!("pronghorn-no-spool-{}", std::process::id());
        let gone = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&gone).unwrap();
        let spool = Spool::open(&gone, None).unwrap();
        std::fs::remove_dir(gone).unwrap();
        Self::made(Dialect::Native, Codec::Native, false, spool).await
    }

    async fn made(dialect: Dialect, codec: Codec, interruptible: bool, spool: Spool) -> Self {
        let options = Options {
            name: "test".into(),
            queue_limit: 10,
            queue_timeout: Duration::from_secs(1000),
            exec_ttl: Some(Duration::from_secs(10)),
            slow: None,
            incidents: crate::Incidents::default(),
            deadline_max: Duration::from_secs(3600),
            max_jobs: std::num::NonZeroU64::new(3),
            processors: 1,
            runs_alone: false,
        };
        let pool = Pool::new(
            options,
            &tokio::runtime::Handle::current(),
            &pronghorn_metrics::Registry::default(),
        );
        assert_eq!(pool.add_slot().await, 0);
        pool.booting(0).await;
        let (slot_handle, mut reports) = pool.slot_handle(0, 1);
        let (ours, theirs) = UnixStream::pair().unwrap();
        let inbox = Arc::new(Inbox::default());
        let settings = Settings {
            codec,
            interruptible,
            stream_timeout: Duration::from_secs(60),
            spool: Arc::new(spool),
            quote: Quote::All,
            methods: Some(Arc::new(Answers)),
            last_words: LastWords::default(),
        };
        let relay = Relay::new(
            Channel::Unix(ours),
            &[],
            dialect,
            settings,
            slot_handle,
            inbox.clone(),
        );
        tokio::runtime::Handle::current().spawn(session::run(relay));
        assert!(matches!(reports.recv().await, Some(Report::Entered)));
        let worker = Worker {
            stream: theirs,
            read: BytesMut::new(),
        };
        Self {
            pool,
            inbox,
            reports,
            worker,
        }
    }

    fn call(&self, payload: Arc<dyn Payload>) -> Pending {
        self.call_on(Terms::default(), payload)
    }

    fn call_on(&self, terms: Terms, payload: Arc<dyn Payload>) -> Pending {
        self.pool
            .call(payload, terms, Instant::now(), Instant::now())
    }

    /// A call that the worker has.
    async fn running(&mut self, name: &'static str) -> (Pending, u32) {
        let pending = self.call(TestPayload::unrepeatable(name));
        let frame = self.worker.frame().await;
        (pending, frame.call())
    }

    async fn ends(&mut self, exit: Exit) -> Vec<Report> {
        self.inbox.order(Order::Ended(exit));
        let mut reports = Vec::new();
        while let Some(report) = self.reports.recv().await {
            if matches!(report, Report::Left) {
                assert_eq!(self.pool.states().await, [SlotState::Empty]);
                return reports;
            }
            reports.push(report);
        }
        panic!("the relay never left: {reports:?}");
    }

    /// The worker is used again: it answers another call.
    async fn goes_on(&mut self) {
        let (mut pending, call) = self.running("/next").await;
        self.worker.reply(call, b"next").await;
        assert_eq!(body(&mut pending).await.unwrap(), "next");
    }

    /// The worker has ended what was late: it goes on where that is allowed, and gets nothing else
    /// where it is not.
    async fn recovers(&mut self, allowed: bool) {
        let Some(Report::Recovered { may_go_on }) = self.reports.recv().await else {
            panic!("it has ended what was late");
        };
        if allowed {
            may_go_on.send(()).unwrap();
            self.goes_on().await;
        } else {
            drop(may_go_on);
            let waiting = self.call(TestPayload::new("/waits"));
            tokio::task::yield_now().await;
            assert_eq!(self.pool.stats().waiting(), 1);
            drop(waiting);
        }
    }
}

async fn reply(pending: &mut Pending) -> Result<Reply, CallError> {
    match pending.answer().await? {
        Answer::Reply(reply) => Ok(*reply),
        Answer::Interim(head) => panic!("{head:?}"),
    }
}

async fn body(pending: &mut Pending) -> Result<String, CallError> {
    match reply(pending).await?.body {
        ReplyBody::Whole(bytes) => Ok(String::from_utf8(Bytes::from(bytes).to_vec()).unwrap()),
        other => panic!("{other:?}"),
    }
}

fn garbage<T: std::fmt::Debug>(result: Result<T, CallError>) -> String {
    match result {
        Err(CallError::Worker(WorkerFault::Garbage(what))) => what,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_goes_out_whole_and_its_reply_comes_back() {
    let mut stage = Stage::native().await;
    let body_out = Bytes::from(vec![b'x'; 100_000]);
    let payload = TestPayload {
        name: "/big",
        repeatable: true,
        body: body_out.clone(),
    };
    let mut pending = stage.call(Arc::new(payload));
    let frame = stage.worker.frame().await;
    assert_eq!((frame.header.flags, frame.body), (Flags::NATIVE, body_out));
    stage
        .worker
        .reply(
            u32::from_le_bytes(frame.context[4..8].try_into().unwrap()),
            b"hello",
        )
        .await;
    let Reply { head, .. } = reply(&mut pending).await.unwrap();
    assert_eq!(http(&head).status, 200);
    stage.goes_on().await;
}

/// A call that keeps what it hears of its end.
struct Timed(Arc<TestPayload>, Mutex<Vec<Stamps>>);

impl Payload for Timed {
    fn encode(&self, encoding: Encoding, out: &mut Vec<u8>) -> Result<Body, Unencodable> {
        self.0.encode(encoding, out)
    }

    fn decode_head(&self, codec: Codec, context: &Bytes) -> Result<Head, DecodeError> {
        self.0.decode_head(codec, context)
    }

    fn repeatable(&self) -> bool {
        false
    }

    fn describe(&self) -> String {
        self.0.describe()
    }
}

impl Observer for Timed {
    fn ended(&self, stamps: &Stamps) {
        self.1.lock().unwrap().push(*stamps);
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_hears_once_when_each_of_its_steps_happened() {
    let mut stage = Stage::native().await;
    let start = Instant::now();
    let after = |seconds| Some(start + Duration::from_secs(seconds));
    let timed = || Arc::new(Timed(TestPayload::new("/"), Mutex::default()));
    let (first, second) = (timed(), timed());
    let mut pending = [stage.call(first.clone()), stage.call(second.clone())];
    let call = stage.worker.frame().await.call();
    advance(Duration::from_secs(2)).await;
    stage.worker.reply(call, b"hello").await;
    body(&mut pending[0]).await.unwrap();
    // It waited behind the first one, and gets no reply.
    stage.worker.frame().await;
    assert!(matches!(
        body(&mut pending[1]).await,
        Err(CallError::Deadline)
    ));

    let [first, second] = [first, second].map(|timed| timed.1.lock().unwrap().clone());
    let [first] = &first[..] else {
        panic!("{first:?}")
    };
    assert_eq!((first.queued, first.dispatched), (start, after(0)));
    assert_eq!((first.claimed, first.complete), (after(0), after(2)));
    let [second] = &second[..] else {
        panic!("{second:?}")
    };
    assert_eq!((second.queued, second.claimed), (start, after(2)));
    assert_eq!((second.first_byte, second.complete), (None, after(12)));
}

/// A call whose body the worker asks for.
struct Streaming(BodyStream);

impl Payload for Streaming {
    fn encode(&self, encoding: Encoding, out: &mut Vec<u8>) -> Result<Body, Unencodable> {
        let Encoding::Frame(Codec::Native, terms) = encoding else {
            panic!("{encoding:?}");
        };
        out.extend_from_slice(&[1, 0x10, 0, 0]);
        out.extend_from_slice(&terms.number.to_le_bytes());
        Ok(Body::Stream(self.0.clone()))
    }

    fn decode_head(&self, codec: Codec, context: &Bytes) -> Result<Head, DecodeError> {
        Head::decode_http(codec, context)
    }

    fn repeatable(&self) -> bool {
        false
    }

    fn describe(&self) -> String {
        "PUT /streamed".into()
    }
}

impl Observer for Streaming {}

impl Stage {
    /// A call that the worker has, and the client's side of its body.
    async fn streaming(&mut self) -> (Pending, BodyFeed, u32) {
        let (feed, stream) = streamed();
        let pending = self.call(Arc::new(Streaming(stream)));
        let frame = self.worker.frame().await;
        assert!(frame.body.is_empty());
        (pending, feed, frame.call())
    }
}

impl Worker {
    async fn want(&mut self, call: u32, most: u32) {
        let want = native(0x87, 0, 0, call, &most.to_le_bytes(), b"", Stream::END);
        self.send(&want).await;
    }

    /// The next piece of a body, and whether more follow.
    async fn piece(&mut self, call: u32) -> (Bytes, bool) {
        let frame = self.frame().await;
        assert_eq!((frame.kind(), frame.call()), (0x12, call), "{frame:?}");
        (frame.body, frame.header.stream == Stream::MORE)
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_goes_to_the_worker_as_it_asks() {
    let mut stage = Stage::native().await;
    let (mut pending, feed, call) = stage.streaming().await;
    stage.worker.want(call, 5).await;
    assert_eq!(poll_fn(|cx| feed.poll_wanted(cx)).await, 5);
    feed.give(Bytes::from_static(b"first"), false);
    assert_eq!(stage.worker.piece(call).await, ("first".into(), true));
    // No more than a piece at a time, whatever it asks for.
    stage.worker.want(call, u32::MAX).await;
    assert_eq!(poll_fn(|cx| feed.poll_wanted(cx)).await, 256 << 10);
    feed.give(Bytes::from_static(b"last"), true);
    assert_eq!(stage.worker.piece(call).await, ("last".into(), false));
    drop(feed);
    stage.worker.want(call, 5).await;
    assert_eq!(
        stage.worker.piece(call).await,
        (Bytes::new(), false),
        "it has ended"
    );
    stage.worker.reply(call, b"done").await;
    assert_eq!(body(&mut pending).await.unwrap(), "done");
    stage.goes_on().await;
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_waits_for_a_body_is_told_that_the_client_left() {
    let mut stage = Stage::native().await;
    for withdrawn in [true, false] {
        let (pending, feed, call) = stage.streaming().await;
        stage.worker.want(call, 5).await;
        poll_fn(|cx| feed.poll_wanted(cx)).await;
        if withdrawn {
            drop(pending);
        }
        drop(feed);
        assert!(stage.worker.frame().await.is_cancel());
        // It may have asked before it heard that.
        stage.worker.want(call, 5).await;
        stage.worker.reply(call, b"too late").await;
    }
    stage.goes_on().await;
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_waits_for_a_body_has_its_deadline() {
    let mut stage = Stage::native().await;
    let (mut pending, feed, call) = stage.streaming().await;
    stage.worker.want(call, 5).await;
    poll_fn(|cx| feed.poll_wanted(cx)).await;
    assert!(matches!(body(&mut pending).await, Err(CallError::Deadline)));
    stage.ends(Exit::Signal(9)).await;
}

#[tokio::test(start_paused = true)]
async fn only_what_can_be_had_may_be_wanted() {
    for (most, twice) in [(0, false), (5, true)] {
        let mut stage = Stage::native().await;
        let (mut pending, _feed, call) = stage.streaming().await;
        stage.worker.want(call, most).await;
        if twice {
            stage.worker.want(call, most).await;
        }
        let what = garbage(body(&mut pending).await);
        assert_eq!(what, "it asked for more of a body than there is to ask for");
        stage.ends(Exit::Signal(9)).await;
    }
    let mut stage = Stage::native().await;
    let (mut pending, call) = stage.running("/whole").await;
    stage.worker.want(call, 5).await;
    garbage(body(&mut pending).await);
    stage.ends(Exit::Signal(9)).await;
}

#[tokio::test(start_paused = true)]
async fn a_reply_may_come_in_any_number_of_writes() {
    let mut stage = Stage::native().await;
    let (mut pending, call) = stage.running("/").await;
    for byte in native(0x81, 0, 200, call, &[0; 4], b"slow", Stream::END) {
        stage.worker.send(&[byte]).await;
        tokio::task::yield_now().await;
    }
    assert_eq!(body(&mut pending).await.unwrap(), "slow");
}

#[tokio::test(start_paused = true)]
async fn a_payload_that_cannot_be_written_costs_no_worker() {
    let mut stage = Stage::native().await;
    let result = body(&mut stage.call(TestPayload::new("unencodable"))).await;
    assert!(matches!(result, Err(CallError::Unencodable(_))));
    stage.goes_on().await;
}

#[tokio::test(start_paused = true)]
async fn an_answer_to_another_call_is_never_delivered() {
    let mut stage = Stage::native().await;
    let (mut pending, call) = stage.running("/").await;
    stage.worker.reply(call + 1, b"somebody else's page").await;
    let what = garbage(body(&mut pending).await);
    assert_eq!(
        what,
        format!(
            "an answer to call {} while call {call} is under way",
            call + 1
        )
    );
    assert!(matches!(
        stage.reports.recv().await,
        Some(Report::Garbage { .. })
    ));
    stage.ends(Exit::Signal(9)).await;
}

fn wishes(count: usize) -> Vec<u8> {
    native(0x88, 0x80, 1, 1, b"", b"", Stream::END).repeat(count)
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_asks_for_new_ones_again_and_again_is_heard_once_and_its_end_too() {
    let mut stage = Stage::native().await;
    for _ in 0..2 {
        let (mut pending, call) = stage.running("/").await;
        stage.worker.send(&wishes(100)).await;
        stage.worker.reply(call, b"one").await;
        assert_eq!(body(&mut pending).await.unwrap(), "one");
    }
    let (mut pending, call) = stage.running("/").await;
    let leaves = native(0x81, 4, 200, call, &[0; 4], b"bye", Stream::END);
    stage.worker.send(&[wishes(100), leaves].concat()).await;
    assert_eq!(body(&mut pending).await.unwrap(), "bye");
    let next = stage.reports.recv().await;
    assert!(matches!(next, Some(Report::AsksForRenewal { full: false })));
    let next = stage.reports.recv().await;
    assert!(
        matches!(next, Some(Report::Leaving | Report::Worn)),
        "{next:?}"
    );
    stage.ends(Exit::Code(0)).await;
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_floods_is_ended_and_its_end_is_known() {
    let renewals: fn(u32) -> Vec<u8> = |_| wishes(5000);
    let hints: fn(u32) -> Vec<u8> =
        |call| native(0x83, 0, 103, call, &[0; 4], b"", Stream::END).repeat(200);
    for flood in [renewals, hints] {
        let mut stage = Stage::native().await;
        let (mut pending, call) = stage.running("/").await;
        let leaves = native(0x81, 4, 200, call, &[0; 4], b"bye", Stream::END);
        stage.worker.send(&[flood(call), leaves].concat()).await;
        let error = loop {
            match pending.answer().await {
                Ok(Answer::Interim(_)) => {}
                Ok(Answer::Reply(_)) => panic!("it is taken for an answer"),
                Err(error) => break error.to_string(),
            }
        };
        assert!(error.contains("more than 100"), "{error}");
        let reports = stage.ends(Exit::Signal(9)).await;
        let garbage = reports
            .iter()
            .filter(|it| matches!(it, Report::Garbage { .. }));
        assert_eq!(garbage.count(), 1, "{reports:?}");
        assert!(reports.len() <= 2, "{reports:?}");
    }
    let mut stage = Stage::native().await;
    stage.worker.send(&wishes(5000)).await;
    let reports = [stage.reports.recv().await, stage.reports.recv().await];
    assert!(matches!(
        reports,
        [
            Some(Report::AsksForRenewal { .. }),
            Some(Report::Garbage { .. })
        ]
    ));
    stage.ends(Exit::Signal(9)).await;
}

#[tokio::test(start_paused = true)]
async fn a_second_answer_ends_a_native_worker() {
    let mut stage = Stage::native().await;
    let (mut pending, call) = stage.running("/").await;
    stage.worker.reply(call, b"one").await;
    assert_eq!(body(&mut pending).await.unwrap(), "one");
    stage.worker.reply(call, b"two").await;
    assert!(matches!(
        stage.reports.recv().await,
        Some(Report::Garbage { .. })
    ));
    // A call that comes now waits for a successor.
    let pending = stage.call(TestPayload::new("/later"));
    assert_eq!(stage.pool.stats().waiting(), 1);
    drop(pending);
}

#[tokio::test(start_paused = true)]
async fn garbage_ends_the_call_with_its_first_bytes_in_the_report() {
    let mut stage = Stage::native().await;
    let (mut pending, _) = stage.running("/").await;
    stage.worker.send(b"<html>oops").await;
    assert_eq!(
        garbage(body(&mut pending).await),
        "no frame but text: <html>oops"
    );
    for (what, bytes) in [
        ("flags", framed(Flags::JSON, b"{}", b"", Stream::END)),
        (
            "a chunk before a reply",
            native(0x82, 0, 0, 1, b"", b"x", Stream::END),
        ),
        (
            "free before a reply",
            native(0x86, 0, 0, 1, b"", b"", Stream::END),
        ),
        ("unknown kind", native(0x70, 0, 0, 1, b"", b"", Stream::END)),
        ("no option", {
            let mut out = Vec::new();
            encode_plain(&mut out, Flags::NATIVE, Stream::END, b"12345678");
            out
        }),
    ] {
        let mut stage = Stage::native().await;
        let (mut pending, call) = stage.running("/").await;
        assert_eq!(call, 1);
        stage.worker.send(&bytes).await;
        assert!(
            matches!(
                body(&mut pending).await,
                Err(CallError::Worker(WorkerFault::Garbage(_)))
            ),
            "{what}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_dies_before_its_reply_loses_the_call() {
    let mut stage = Stage::native().await;
    let (mut pending, _) = stage.running("/dies").await;
    let reports = stage.ends(Exit::Signal(11)).await;
    let died = |result: &Result<String, _>| {
        matches!(
            result,
            Err(CallError::Worker(WorkerFault::Died(Exit::Signal(11))))
        )
    };
    assert!(died(&body(&mut pending).await));
    assert!(
        matches!(reports.as_slice(), [Report::DiedWith { what, retried: false, .. }] if what == "/dies")
    );
}

#[tokio::test(start_paused = true)]
async fn a_reply_that_was_written_before_the_death_is_delivered() {
    let mut stage = Stage::native().await;
    let (mut pending, call) = stage.running("/").await;
    // The end is known before the runtime has seen the bytes.
    stage
        .worker
        .stream
        .try_write(&native(0x81, 0, 200, call, &[0; 4], b"last", Stream::END))
        .unwrap();
    stage.inbox.order(Order::Ended(Exit::Code(0)));
    assert_eq!(body(&mut pending).await.unwrap(), "last");
}

#[tokio::test(start_paused = true)]
async fn a_closed_connection_is_not_yet_a_death() {
    let mut stage = Stage::native().await;
    let (mut pending, _) = stage.running("/").await;
    stage.worker.stream.shutdown().await.unwrap();
    assert!(matches!(
        stage.reports.recv().await,
        Some(Report::HungUp { .. })
    ));
    stage.ends(Exit::Code(255)).await;
    let result = body(&mut pending).await;
    assert!(matches!(
        result,
        Err(CallError::Worker(WorkerFault::Died(Exit::Code(255))))
    ));
}

#[tokio::test(start_paused = true)]
async fn the_client_is_answered_at_the_deadline_and_the_place_stays_taken() {
    let mut stage = Stage::native().await;
    let start = Instant::now();
    let (mut pending, call) = stage.running("/slow").await;
    assert!(matches!(body(&mut pending).await, Err(CallError::Deadline)));
    assert_eq!(start.elapsed().as_secs(), 10);
    assert!(
        matches!(stage.reports.recv().await, Some(Report::Overdue { what, .. }) if what == "/slow")
    );
    let waiting = stage.call(TestPayload::new("/waits"));
    stage.worker.reply(call, b"too late").await;
    tokio::task::yield_now().await;
    assert_eq!(
        stage.pool.stats().waiting(),
        1,
        "a worker about to be ended takes no call"
    );
    drop(waiting);
    stage.ends(Exit::Signal(15)).await;
}

/// How a worker may end a call that it was told to end.
fn ends(call: u32) -> [Vec<u8>; 3] {
    let thrown = [1_u32, 1, 1, 1, 1].map(u32::to_le_bytes).concat();
    let thrown = [&thrown[..], b"cmft"].concat();
    let mut pieces = native(0x81, 0, 200, call, &[0; 4], b"x", Stream::MORE);
    pieces.extend(native(0x82, 0, 0, call, &[], b"y", Stream::END));
    [
        native(0x84, 0, 0, call, &thrown, b"", Stream::END),
        native(0x81, 0, 200, call, &[0; 4], b"too late", Stream::END),
        pieces,
    ]
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_ends_a_late_call_goes_on_when_its_keeper_says_so() {
    for way in 0..3 {
        for allowed in [true, false] {
            let mut stage = Stage::interruptible().await;
            let (mut pending, call) = stage.running("/slow").await;
            assert!(matches!(body(&mut pending).await, Err(CallError::Deadline)));
            let overdue = stage.reports.recv().await;
            assert!(
                matches!(overdue, Some(Report::Overdue { call: Some(late), .. }) if late == call)
            );
            stage.worker.send(&ends(call)[way]).await;
            stage.recovers(allowed).await;
            stage.ends(Exit::Signal(15)).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_is_late_is_cut_and_its_worker_goes_on_when_it_has_ended_it() {
    let mut stage = Stage::interruptible().await;
    let (mut pending, call) = stage.running("/").await;
    let head = native(0x81, 0, 200, call, &[0; 4], b"x", Stream::MORE);
    stage.worker.send(&head).await;
    let ReplyBody::Pieces { mut pieces, .. } = reply(&mut pending).await.unwrap().body else {
        panic!("a stream");
    };
    assert!(matches!(pieces.next().await, Some(Piece::Bytes(_))));
    assert!(pieces.next().await.is_none(), "without an end");
    let overdue = stage.reports.recv().await;
    assert!(matches!(overdue, Some(Report::Overdue { call: Some(late), .. }) if late == call));
    let end = native(0x82, 0, 0, call, &[], b"", Stream::END);
    stage.worker.send(&end).await;
    let Some(Report::Recovered { may_go_on }) = stage.reports.recv().await else {
        panic!("it has ended the call");
    };
    may_go_on.send(()).unwrap();
    stage.goes_on().await;
}

#[tokio::test(start_paused = true)]
async fn the_deadline_of_its_route_counts_for_a_call_and_for_each_piece_of_a_stream() {
    for (seconds, streams) in [(3, false), (3, true), (40, false), (40, true)] {
        let mut stage = Stage::native().await;
        let terms = Terms {
            deadline: Some(Duration::from_secs(seconds)),
            ..Terms::default()
        };
        let mut pending = stage.call_on(terms, TestPayload::unrepeatable("/"));
        let call = stage.worker.frame().await.call();
        let mut start = Instant::now();
        let mut stream = None;
        if streams {
            advance(Duration::from_secs(2)).await;
            start = Instant::now();
            let head = native(0x81, 0, 200, call, &[0; 4], b"x", Stream::MORE);
            stage.worker.send(&head).await;
            stream = Some(reply(&mut pending).await.unwrap());
        }
        let overdue = stage.reports.recv().await;
        assert!(matches!(overdue, Some(Report::Overdue { .. })));
        assert_eq!(start.elapsed().as_secs(), seconds);
        drop(stream);
    }
}

#[tokio::test(start_paused = true)]
async fn a_worker_may_ask_for_more_time() {
    let mut stage = Stage::native().await;
    let start = Instant::now();
    let (mut pending, call) = stage.running("/").await;
    stage
        .worker
        .send(&native(
            0x85,
            0,
            0,
            call,
            &30_000_u32.to_le_bytes(),
            b"",
            Stream::END,
        ))
        .await;
    assert!(matches!(body(&mut pending).await, Err(CallError::Deadline)));
    assert_eq!(start.elapsed().as_secs(), 30);
}

#[tokio::test(start_paused = true)]
async fn a_worker_is_told_that_the_client_left_and_its_reply_is_dropped() {
    let mut stage = Stage::native().await;
    let (pending, call) = stage.running("/").await;
    drop(pending);
    let frame = stage.worker.frame().await;
    assert!(frame.is_cancel());
    assert_eq!(frame.call(), call);
    stage.worker.reply(call, b"for nobody").await;
    stage.goes_on().await;
}

#[tokio::test(start_paused = true)]
async fn early_hints_come_before_the_reply() {
    let mut stage = Stage::native().await;
    let (mut pending, call) = stage.running("/").await;
    for _ in 0..2 {
        stage
            .worker
            .send(&native(0x83, 0, 103, call, &[0; 4], b"", Stream::MORE))
            .await;
    }
    stage.worker.reply(call, b"page").await;
    for _ in 0..2 {
        assert!(
            matches!(pending.answer().await, Ok(Answer::Interim(head)) if http(&head).status == 103)
        );
    }
    assert_eq!(body(&mut pending).await.unwrap(), "page");
}

#[tokio::test(start_paused = true)]
async fn an_exception_ends_the_call_and_the_worker_goes_on() {
    let mut stage = Stage::native().await;
    let (mut pending, call) = stage.running("/").await;
    let mut rest = Vec::new();
    for number in [7_u32, 1, 4, 1, 0] {
        rest.extend_from_slice(&number.to_le_bytes());
    }
    rest.extend_from_slice(b"EoopsF");
    stage
        .worker
        .send(&native(0x84, 0, 0, call, &rest, b"", Stream::END))
        .await;
    match body(&mut pending).await {
        Err(CallError::Thrown(thrown)) => {
            assert_eq!(
                (thrown.class.as_str(), thrown.message.as_str(), thrown.line),
                ("E", "oops", 7)
            );
        }
        other => panic!("{other:?}"),
    }
    stage.goes_on().await;
}

#[tokio::test(start_paused = true)]
async fn a_busy_worker_gets_no_call_before_it_says_that_it_is_free() {
    let mut stage = Stage::native().await;
    let (mut pending, call) = stage.running("/").await;
    stage
        .worker
        .send(&native(
            0x81,
            0x02,
            200,
            call,
            &[0; 4],
            b"done",
            Stream::END,
        ))
        .await;
    assert_eq!(body(&mut pending).await.unwrap(), "done");
    let next = stage.call(TestPayload::new("/next"));
    assert_eq!(stage.pool.stats().waiting(), 1);
    stage
        .worker
        .send(&native(0x86, 0, 0, call, b"", b"", Stream::END))
        .await;
    assert_eq!(stage.worker.frame().await.call(), call + 1);
    drop(next);
}

#[tokio::test(start_paused = true)]
async fn what_comes_after_a_reply_has_a_deadline_of_its_own() {
    for allowed in [true, false] {
        let mut stage = Stage::interruptible().await;
        let (mut pending, call) = stage.running("/").await;
        let start = Instant::now();
        let reply = native(0x81, 0x02, 200, call, &[0; 4], b"done", Stream::END);
        stage.worker.send(&reply).await;
        assert_eq!(body(&mut pending).await.unwrap(), "done");
        let overdue = stage.reports.recv().await;
        assert!(
            matches!(&overdue, Some(Report::Overdue { what, client: "has its reply", call: Some(late), .. })
                if what == "deferred work of /" && *late == !call),
            "{overdue:?}"
        );
        assert_eq!(start.elapsed().as_secs(), 10);
        let free = native(0x86, 0, 0, call, b"", b"", Stream::END);
        stage.worker.send(&free).await;
        stage.recovers(allowed).await;
        stage.ends(Exit::Signal(15)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_leaving_worker_gets_no_call() {
    let mut stage = Stage::native().await;
    let (mut pending, call) = stage.running("/").await;
    stage
        .worker
        .send(&native(0x81, 0x04, 200, call, &[0; 4], b"bye", Stream::END))
        .await;
    assert_eq!(body(&mut pending).await.unwrap(), "bye");
    assert!(matches!(stage.reports.recv().await, Some(Report::Leaving)));
    let waiting = stage.call(TestPayload::new("/next"));
    assert_eq!(stage.pool.stats().waiting(), 1);
    drop(waiting);
    stage.ends(Exit::Code(0)).await;
}

#[tokio::test(start_paused = true)]
async fn a_worn_worker_goes_on_until_it_is_drained_and_ends_after_its_reply() {
    let mut stage = Stage::native().await;
    for _ in 0..3 {
        stage.goes_on().await;
    }
    assert!(matches!(stage.reports.recv().await, Some(Report::Worn)));
    stage.goes_on().await;
    stage.pool.drain(0).await;
    assert_eq!(
        stage.worker.frame().await.header.flags.0,
        0x09,
        "it is told to stop"
    );
    assert!(matches!(stage.reports.recv().await, Some(Report::Leaving)));
    stage.ends(Exit::Code(0)).await;
}

#[tokio::test(start_paused = true)]
async fn a_file_reply_names_its_file() {
    let mut stage = Stage::native().await;
    let (mut pending, call) = stage.running("/").await;
    stage
        .worker
        .send(&native(
            0x81,
            0x01,
            200,
            call,
            &[0; 4],
            b"/srv/report.pdf",
            Stream::END,
        ))
        .await;
    let reply = reply(&mut pending).await.unwrap();
    assert!(
        matches!(reply.body, ReplyBody::File(path) if path.to_str() == Some("/srv/report.pdf"))
    );
}

fn pieces(reply: Reply) -> (Pieces, Option<u64>) {
    match reply.body {
        ReplyBody::Pieces { pieces, len } => (pieces, len),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_arrives_piece_by_piece_and_a_slow_client_slows_the_worker_down() {
    let mut stage = Stage::native().await;
    let (mut pending, call) = stage.running("/").await;
    stage
        .worker
        .send(&native(0x81, 0, 200, call, &[0; 4], b"first", Stream::MORE))
        .await;
    let (mut pieces, len) = pieces(reply(&mut pending).await.unwrap());
    assert_eq!(len, None);
    assert!(
        matches!(pieces.next().await, Some(Piece::Bytes(Content::Here(bytes))) if bytes == "first")
    );
    // Nobody takes anything: after a few pieces the worker's writes don't go through any more.
    let chunk = native(0x82, 0, 0, call, b"", &vec![b'c'; 200_000], Stream::MORE);
    let mut sent = 0;
    while timeout(
        Duration::from_secs(1),
        stage.worker.stream.write_all(&chunk),
    )
    .await
    .is_ok()
    {
        sent += 1;
        assert!(sent < 50, "the server takes it all");
    }
    assert!(
        stage.reports.try_recv().is_err(),
        "waiting for the client is not the worker's fault"
    );
}

#[tokio::test(start_paused = true)]
async fn without_room_for_files_a_slow_client_keeps_its_worker_from_nobody() {
    for (pause, is_too_slow) in [(1, false), (3, true)] {
        let mut stage = Stage::without_spool().await;
        let (mut pending, call) = stage.running("/").await;
        let begin = native(0x81, 0, 200, call, &[0; 4], b"", Stream::MORE);
        stage.worker.send(&begin).await;
        let (mut pieces, _) = pieces(reply(&mut pending).await.unwrap());
        tokio::runtime::Handle::current().spawn(async move {
            // 40 KB in as many seconds.
            while let Some(Piece::Bytes(_)) = pieces.next().await {
                tokio::time::sleep(Duration::from_secs(pause)).await;
            }
        });
        let chunk = native(0x82, 0, 0, call, b"", &vec![b'c'; 40_000], Stream::MORE);
        let send = |mut stage: Stage, times: usize| {
            let chunk = chunk.clone();
            async move {
                for _ in 0..times {
                    if stage.worker.stream.write_all(&chunk).await.is_err() {
                        break;
                    }
                }
                stage
            }
        };
        let mut stage = send(stage, 100).await;
        assert_eq!(
            stage.pool.stats().waiting(),
            0,
            "nobody waits: it may be slow"
        );
        let _waiting = stage.call(TestPayload::new("/waits"));
        stage = send(stage, 100).await;
        let told = timeout(Duration::from_secs(1), stage.worker.frame()).await;
        assert_eq!(told.is_ok_and(|frame| frame.is_cancel()), is_too_slow);
    }
}

#[tokio::test(start_paused = true)]
async fn the_rest_of_a_slow_clients_reply_goes_to_a_file_when_others_wait() {
    let mut stage = Stage::native().await;
    let (mut pending, call) = stage.running("/").await;
    let begin = native(0x81, 0, 200, call, &[0; 4], b"", Stream::MORE);
    stage.worker.send(&begin).await;
    let (mut pieces, _) = pieces(reply(&mut pending).await.unwrap());
    let long: Vec<u8> = (0..12_000_000_u32).map(|n| n.to_le_bytes()[1]).collect();
    let mut frames: Vec<_> = long
        .chunks(40_000)
        .map(|chunk| native(0x82, 0, 0, call, b"", chunk, Stream::MORE))
        .collect();
    frames.push(native(0x82, 0, 0, call, b"", b"", Stream::END));
    let bytes = frames.concat();
    let mut sent = 0;
    let patience = Duration::from_secs(60);
    // What the client takes at first earns it nothing.
    let mut taken = 0;
    while taken < 4_000_000 {
        let soon = Duration::from_millis(1);
        if let Ok(more) = timeout(soon, stage.worker.stream.write(&bytes[sent..])).await {
            sent += more.unwrap();
        }
        if let Ok(Some(Piece::Bytes(piece))) = timeout(soon, pieces.next()).await {
            assert!(Bytes::from(piece) == long[taken..][..40_000]);
            taken += 40_000;
        }
    }
    // Nobody takes anything, and nobody waits: the worker waits.
    while let Ok(more) = timeout(patience, stage.worker.stream.write(&bytes[sent..])).await {
        sent += more.unwrap();
    }
    assert!(sent < 8_000_000, "the worker waits for its client: {sent}");
    let mut waiting = stage.call(TestPayload::new("/waits"));
    let since = Instant::now();
    stage.worker.stream.write_all(&bytes[sent..]).await.unwrap();
    assert!(since.elapsed() < Duration::from_millis(100), "others wait");
    let next = stage.worker.frame().await;
    stage.worker.reply(next.call(), b"waited").await;
    assert_eq!(body(&mut waiting).await.unwrap(), "waited");
    assert!(pieces.whole(20_000_000).await.unwrap() == long[taken..]);
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_stream_can_be_told_from_its_breaking_off() {
    let mut stage = Stage::native().await;
    let (mut pending, call) = stage.running("/").await;
    stage
        .worker
        .send(&native(0x81, 0, 200, call, &[0; 4], b"", Stream::MORE))
        .await;
    stage
        .worker
        .send(&native(0x82, 0, 0, call, b"", b"a", Stream::MORE))
        .await;
    stage
        .worker
        .send(&native(0x82, 0, 0, call, b"", b"b", Stream::END))
        .await;
    let (mut whole, _) = pieces(reply(&mut pending).await.unwrap());
    assert!(matches!(whole.next().await, Some(Piece::Bytes(Content::Here(bytes))) if bytes == "a"));
    assert!(matches!(whole.next().await, Some(Piece::Bytes(Content::Here(bytes))) if bytes == "b"));
    assert!(matches!(whole.next().await, Some(Piece::End)));

    let (mut pending, call) = stage.running("/").await;
    stage
        .worker
        .send(&native(0x81, 0, 200, call, &[0; 4], b"half", Stream::MORE))
        .await;
    let (mut broken, _) = pieces(reply(&mut pending).await.unwrap());
    stage.ends(Exit::Signal(11)).await;
    assert!(matches!(broken.next().await, Some(Piece::Bytes(_))));
    assert!(broken.next().await.is_none(), "no end was seen");
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_nobody_reads_is_cancelled_and_then_given_up() {
    let mut stage = Stage::native().await;
    let (mut pending, call) = stage.running("/").await;
    stage
        .worker
        .send(&native(0x81, 0, 200, call, &[0; 4], b"x", Stream::MORE))
        .await;
    drop(reply(&mut pending).await.unwrap());
    stage
        .worker
        .send(&native(0x82, 0, 0, call, b"", b"y", Stream::MORE))
        .await;
    assert!(stage.worker.frame().await.is_cancel());
    let start = Instant::now();
    assert!(matches!(
        stage.reports.recv().await,
        Some(Report::Overdue { .. })
    ));
    assert_eq!(start.elapsed().as_secs(), 60);
}

#[tokio::test(start_paused = true)]
async fn a_long_finished_reply_frees_its_worker_whatever_the_client_does() {
    let mut stage = Stage::native().await;
    let (mut pending, call) = stage.running("/").await;
    let long: Vec<u8> = (0..5_000_000_u32).map(|n| n.to_le_bytes()[0]).collect();
    stage
        .worker
        .send(&native(0x81, 0, 200, call, &[0; 4], &long, Stream::END))
        .await;
    let (mut pieces, len) = pieces(reply(&mut pending).await.unwrap());
    assert_eq!(len, Some(long.len() as u64));
    stage.goes_on().await;
    let mut got = Vec::new();
    loop {
        match pieces.next().await.unwrap() {
            Piece::Bytes(bytes) => got.extend_from_slice(&Bytes::from(bytes)),
            Piece::Spooled(file) => {
                use std::os::unix::fs::FileExt;
                let mut rest = vec![0; usize::try_from(file.len()).unwrap()];
                file.file().read_exact_at(&mut rest, 0).unwrap();
                got.extend_from_slice(&rest);
            }
            Piece::End => break,
        }
    }
    assert!(got == long, "the body arrived changed");
}

#[tokio::test(start_paused = true)]
async fn a_foreign_worker_is_asked_to_stop_over_its_relay() {
    let mut stage = Stage::foreign(Fence::Always).await;
    stage.pool.drain(0).await;
    let frame = stage.worker.frame().await;
    assert_eq!(
        (frame.header.flags.0, &frame.body[..]),
        (0x09, &br#"{"stop":true}"#[..])
    );
    stage.ends(Exit::Code(0)).await;
}

#[tokio::test(start_paused = true)]
async fn a_foreign_worker_answers_in_json_or_with_an_error() {
    let mut stage = Stage::foreign(Fence::Always).await;
    let mut pending = stage.call(TestPayload::new("/"));
    assert_eq!(stage.worker.take_up().await.header.flags, Flags::JSON);
    stage
        .worker
        .send(&json(r#"{"status":201,"headers":{"X":["1"]}}"#, b"made"))
        .await;
    assert_eq!(http(&reply(&mut pending).await.unwrap().head).status, 201);
    let mut pending = stage.call(TestPayload::new("/"));
    stage.worker.take_up().await;
    let mut error = Vec::new();
    encode_plain(&mut error, Flags::ERROR, Stream::END, b"boom");
    stage.worker.send(&error).await;
    assert!(matches!(body(&mut pending).await, Err(CallError::Reported(text)) if text == "boom"));
    let mut pending = stage.call(TestPayload::new("/"));
    stage.worker.take_up().await;
    stage.worker.send(&json("", b"still there")).await;
    assert_eq!(body(&mut pending).await.unwrap(), "still there");
}

#[tokio::test(start_paused = true)]
async fn what_a_foreign_worker_sends_before_it_takes_a_call_up_reaches_nobody() {
    let mut stage = Stage::foreign(Fence::Always).await;
    let mut first = stage.call(TestPayload::new("/1"));
    let mut second = stage.call(TestPayload::new("/2"));
    stage.worker.take_up().await;
    // Calls wait, so the next one is written at once: in the same moment as a second answer comes,
    // or before.
    let mut both = json("{}", b"one");
    both.extend(json("{}", b"one again"));
    stage.worker.send(&both).await;
    assert_eq!(body(&mut first).await.unwrap(), "one");
    stage.worker.frame().await;
    let mut late = Vec::new();
    encode_plain(&mut late, Flags::ERROR, Stream::END, b"and an error");
    late.extend(b"PHP Warning:  something\n");
    late.extend(json("{}", b"one, for the last time"));
    late.extend(pid());
    stage.worker.send(&late).await;
    stage.worker.frame().await;
    stage.worker.send(&json("{}", b"two")).await;
    assert_eq!(body(&mut second).await.unwrap(), "two");
}

#[tokio::test(start_paused = true)]
async fn who_need_not_answer_a_call_and_waits_for_the_next_one_has_answered() {
    let mut stage = Stage::foreign(Fence::Always).await;
    let mut pending = stage.call(TestPayload::new("/unanswered"));
    let mut next = stage.call(TestPayload::new("/next"));
    stage.worker.take_up().await;
    assert_eq!(
        stage.worker.frame().await.header.flags.0,
        0x09,
        "no question behind it"
    );
    stage.worker.send(&pid()).await;
    let got = reply(&mut pending).await.unwrap();
    assert_eq!(http(&got.head).status, 204);
    stage.worker.take_up().await;
    stage.worker.send(&json("{}", b"next")).await;
    assert_eq!(body(&mut next).await.unwrap(), "next");
}

#[tokio::test(start_paused = true)]
async fn the_question_stands_behind_the_body_of_a_call() {
    let mut stage = Stage::foreign(Fence::Always).await;
    for length in [1, 100_000] {
        let body = Bytes::from(vec![b'a'; length]);
        let payload = TestPayload {
            name: "/unanswered",
            repeatable: false,
            body: body.clone(),
        };
        let mut pending = stage.call(Arc::new(payload));
        assert_eq!(stage.worker.take_up().await.body, body);
        assert_eq!(stage.worker.frame().await.header.flags.0, 0x09);
        stage.worker.send(&pid()).await;
        let got = reply(&mut pending).await.unwrap();
        assert_eq!(http(&got.head).status, 204);
    }
}

#[tokio::test(start_paused = true)]
async fn who_answers_a_call_that_needs_none_is_free_once_it_waits() {
    let mut stage = Stage::foreign(Fence::Always).await;
    let mut pending = stage.call(TestPayload::new("/unanswered"));
    let mut next = stage.call(TestPayload::new("/next"));
    stage.worker.take_up().await;
    stage.worker.frame().await;
    stage.worker.send(&json("{}", b"answered")).await;
    assert_eq!(body(&mut pending).await.unwrap(), "answered");
    // The answer of nobody is not that of the next call.
    let mut rest = json("{}", b"and again");
    rest.extend(pid());
    stage.worker.send(&rest).await;
    stage.worker.take_up().await;
    stage.worker.send(&json("{}", b"next")).await;
    assert_eq!(body(&mut next).await.unwrap(), "next");

    // It does something else for too long.
    let mut pending = stage.call(TestPayload::new("/unanswered"));
    stage.worker.take_up().await;
    stage.worker.frame().await;
    stage.worker.send(&json("{}", b"answered")).await;
    assert_eq!(body(&mut pending).await.unwrap(), "answered");
    let Some(Report::Overdue { what, .. }) = stage.reports.recv().await else {
        panic!("it is late");
    };
    assert_eq!(what, "work after the answer to /unanswered");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_a_foreign_worker_did_not_take_up_goes_elsewhere() {
    // Unlike one that it may have begun.
    for (taken_up, waiting) in [(false, 1), (true, 0)] {
        let mut stage = Stage::foreign(Fence::Always).await;
        let mut pending = stage.call(TestPayload::unrepeatable("/"));
        if taken_up {
            stage.worker.take_up().await;
        } else {
            stage.worker.frame().await;
        }
        stage.ends(Exit::Code(1)).await;
        assert_eq!(stage.pool.stats().waiting(), waiting);
        stage.pool.close().await;
        assert!(body(&mut pending).await.is_err());
    }
    // A deadline is no reason for another try.
    let stage = Stage::foreign(Fence::Always).await;
    let mut pending = stage.call(TestPayload::unrepeatable("/"));
    assert!(matches!(body(&mut pending).await, Err(CallError::Deadline)));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_could_not_be_written_goes_elsewhere() {
    for mut stage in [Stage::native().await, Stage::foreign(Fence::Never).await] {
        // The worker closes its end in the moment in which the call comes.
        stage.worker.stream = UnixStream::pair().unwrap().0;
        let mut pending = stage.call(TestPayload::unrepeatable("/"));
        assert!(matches!(
            stage.reports.recv().await,
            Some(Report::HungUp { .. })
        ));
        assert_eq!(stage.pool.stats().waiting(), 1);
        stage.ends(Exit::Code(0)).await;
        stage.pool.close().await;
        assert!(body(&mut pending).await.is_err());
    }
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_wants_to_be_replaced_is_and_its_call_goes_elsewhere() {
    let mut stage = Stage::foreign(Fence::Always).await;
    let mut pending = stage.call(TestPayload::unrepeatable("/"));
    stage.worker.take_up().await;
    stage.worker.send(&json(r#"{"stop":true}"#, b"")).await;
    assert!(matches!(stage.reports.recv().await, Some(Report::Leaving)));
    let stop = stage.worker.frame().await;
    assert_eq!(&stop.body[..], br#"{"stop":true}"#);
    assert_eq!(
        stage.pool.stats().waiting(),
        1,
        "its call waits for another worker"
    );
    stage.ends(Exit::Code(0)).await;
    stage.pool.close().await;
    assert!(body(&mut pending).await.is_err());

    // Behind a reply the same frame is just a farewell.
    let mut stage = Stage::foreign(Fence::Always).await;
    let mut pending = stage.call(TestPayload::new("/"));
    stage.worker.take_up().await;
    let mut both = json("{}", b"page");
    both.extend(json(r#"{"stop":true}"#, b""));
    stage.worker.send(&both).await;
    assert_eq!(body(&mut pending).await.unwrap(), "page");
    assert!(matches!(stage.reports.recv().await, Some(Report::Leaving)));
    assert_eq!(
        stage.worker.frame().await.header.flags.0,
        0x09,
        "it may wait for that"
    );
}

#[tokio::test(start_paused = true)]
async fn the_farewell_of_a_worker_that_has_ended_is_read() {
    let mut stage = Stage::foreign(Fence::Always).await;
    stage.worker.send(&json(r#"{"stop":true}"#, b"")).await;
    let reports = stage.ends(Exit::Code(0)).await;
    assert!(matches!(reports[..], [Report::Leaving]), "{reports:?}");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_meets_a_farewell_is_done_once() {
    // The worker meant the call before, and takes this one up all the same.
    let mut stage = Stage::foreign(Fence::Always).await;
    let mut pending = stage.call(TestPayload::unrepeatable("/"));
    stage.worker.send(&json(r#"{"stop":true}"#, b"")).await;
    stage.worker.take_up().await;
    stage.worker.send(&json("{}", b"done")).await;
    assert_eq!(body(&mut pending).await.unwrap(), "done");
    assert!(matches!(stage.reports.recv().await, Some(Report::Leaving)));

    // It ended instead.
    let mut stage = Stage::foreign(Fence::Always).await;
    let mut pending = stage.call(TestPayload::unrepeatable("/"));
    stage.worker.frame().await;
    stage.worker.send(&json(r#"{"stop":true}"#, b"")).await;
    stage.ends(Exit::Code(0)).await;
    assert_eq!(stage.pool.stats().waiting(), 1);
    stage.pool.close().await;
    assert!(body(&mut pending).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn without_the_fence_a_foreign_worker_is_asked_nothing() {
    let mut stage = Stage::foreign(Fence::Never).await;
    for _ in 0..2 {
        let mut pending = stage.call(TestPayload::new("/"));
        assert_eq!(stage.worker.frame().await.header.flags, Flags::JSON);
        let mut both = json("{}", b"page");
        both.extend(json("{}", b"page again"));
        stage.worker.send(&both).await;
        assert_eq!(body(&mut pending).await.unwrap(), "page");
        for _ in 0..10 {
            tokio::task::yield_now().await; // it is idle, where the second answer is seen
        }
    }
}

#[tokio::test(start_paused = true)]
async fn text_between_two_answers_is_no_reason_to_end_a_foreign_worker() {
    let mut stage = Stage::foreign(Fence::Always).await;
    stage.worker.send(b"PHP Warning:  something\n").await;
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    let mut pending = stage.call(TestPayload::new("/"));
    stage.worker.take_up().await;
    stage.worker.send(&json("{}", b"fine")).await;
    assert_eq!(body(&mut pending).await.unwrap(), "fine");
}

#[tokio::test(start_paused = true)]
async fn a_foreign_stream_that_an_exception_ended_does_not_look_whole() {
    for (flags, whole) in [(Flags::JSON, false), (Flags::NONE, true)] {
        let mut stage = Stage::foreign(Fence::Always).await;
        let mut pending = stage.call(TestPayload::new("/"));
        stage.worker.take_up().await;
        let head = br#"{"status":200}"#;
        stage
            .worker
            .send(&framed(flags, head, b"half", Stream::MORE))
            .await;
        let (mut pieces, _) = pieces(reply(&mut pending).await.unwrap());
        assert!(matches!(pieces.next().await, Some(Piece::Bytes(_))));
        // Of old releases this is the end of every stream.
        stage
            .worker
            .send(&framed(Flags::NONE, b"", b"", Stream::END))
            .await;
        let end = pieces.next().await;
        assert_eq!(matches!(end, Some(Piece::End)), whole, "{end:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_without_a_client_still_has_its_deadline() {
    let mut stage = Stage::foreign(Fence::Always).await;
    let pending = stage.call(TestPayload::new("/"));
    stage.worker.take_up().await;
    drop(pending);
    assert!(matches!(
        stage.reports.recv().await,
        Some(Report::Overdue { .. })
    ));
}

#[tokio::test(start_paused = true)]
async fn a_foreign_stream_gets_its_pong_and_its_stop() {
    let mut stage = Stage::foreign(Fence::Always).await;
    let mut pending = stage.call(TestPayload::new("/"));
    stage.worker.take_up().await;
    let chunk = |context: &str, stream| framed(Flags::NONE, context.as_bytes(), b"chunk", stream);
    stage
        .worker
        .send(&chunk(r#"{"status":200}"#, Stream::MORE))
        .await;
    let (mut first, _) = pieces(reply(&mut pending).await.unwrap());
    assert!(matches!(first.next().await, Some(Piece::Bytes(_))));
    // Some releases repeat the head.
    stage
        .worker
        .send(&chunk(r#"{"status":200}"#, Stream(0x05)))
        .await;
    assert_eq!(stage.worker.frame().await.header.stream, Stream::PONG);
    drop(first);
    stage.worker.send(&chunk("", Stream::MORE)).await;
    assert_eq!(stage.worker.frame().await.header.stream, Stream::STOP);
    stage
        .worker
        .send(&framed(Flags::NONE, b"", b"", Stream::END))
        .await;
    let mut pending = stage.call(TestPayload::new("/"));
    stage.worker.take_up().await;
    stage.worker.send(&json("{}", b"next")).await;
    assert_eq!(body(&mut pending).await.unwrap(), "next");
}

#[tokio::test(start_paused = true)]
async fn a_worker_says_what_it_is_at_and_how_many_calls_it_had() {
    let mut stage = Stage::native().await;
    assert_eq!(ask(stage.inbox.as_ref()).await, None);
    let (_pending, _) = stage.running("/slow").await;
    advance(Duration::from_secs(3)).await;
    let (what, since) = ask(stage.inbox.as_ref()).await.unwrap();
    assert_eq!((what.as_str(), since.as_secs()), ("/slow", 3));
    assert_eq!(stage.inbox.executions(), 1);
}

#[tokio::test(start_paused = true)]
async fn how_long_the_oldest_call_waits_is_known_without_asking() {
    let mut stage = Stage::native().await;
    assert_eq!(stage.pool.stats().oldest_wait(), None);
    let (_pending, number) = stage.running("/slow").await;
    assert_eq!(stage.pool.stats().oldest_wait(), None);
    let _first = stage.call(TestPayload::new("/first"));
    advance(Duration::from_secs(3)).await;
    let _second = stage.call(TestPayload::new("/second"));
    let oldest = |stage: &Stage| stage.pool.stats().oldest_wait().map(|wait| wait.as_secs());
    assert_eq!(oldest(&stage), Some(3));
    advance(Duration::from_secs(2)).await;
    assert_eq!(oldest(&stage), Some(5));
    stage.worker.reply(number, b"").await;
    stage.worker.frame().await;
    assert_eq!(oldest(&stage), Some(2));
}

async fn ask(worker: &dyn Transport) -> Option<(String, Duration)> {
    let (asked, answer) = oneshot::channel();
    worker.ask(asked);
    let under_way = answer.await.unwrap()?;
    Some((under_way.payload.describe(), under_way.since.elapsed()))
}

#[tokio::test(start_paused = true)]
async fn a_free_worker_says_that_it_hears() {
    let mut stage = Stage::native().await;
    let pong = || native(0x91, 0, 0, 1, b"", b"", Stream::END);
    assert_eq!(stage.inbox.ping_time(), None);
    stage.inbox.ping();
    assert_eq!(stage.worker.frame().await.kind(), 0x11);
    advance(Duration::from_secs(2)).await;
    assert_eq!(
        stage.inbox.ping_time(),
        Some(Duration::from_secs(2)),
        "so far"
    );
    // Only one at a time, and a call does not wait for it.
    stage.inbox.ping();
    let (mut pending, call) = stage.running("/call").await;
    stage.worker.send(&[pong(), pong()].concat()).await;
    stage.worker.reply(call, b"reply").await;
    assert_eq!(body(&mut pending).await.unwrap(), "reply");
    assert_eq!(stage.inbox.ping_time(), Some(Duration::from_secs(2)));

    // One that has a call is not asked, not even behind it.
    let (mut pending, call) = stage.running("/call").await;
    stage.inbox.ping();
    tokio::task::yield_now().await;
    stage.worker.reply(call, b"reply").await;
    assert_eq!(body(&mut pending).await.unwrap(), "reply");
    stage.inbox.ping();
    assert_eq!(stage.worker.frame().await.kind(), 0x11);
    stage.worker.send(&pong()).await;
    stage.goes_on().await;
}

/// Answers what workers ask: `now` at once, `never` never.
#[derive(Debug)]
struct Answers;

impl MethodCaller for Answers {
    fn call(&self, method: &str, argument: Bytes, held: Held) -> Calling {
        match method {
            "now" => Calling::Done(Ok(argument)),
            "never" => {
                let (caller, returned) = oneshot::channel();
                tokio::runtime::Handle::current().spawn(async move {
                    let (_caller, _held) = (caller, held);
                    std::future::pending::<()>().await;
                });
                Calling::Later(returned)
            }
            "bug" => Calling::Later(oneshot::channel().1),
            _ => Calling::Done(Err(format!("no {method}"))),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_worker_asks_is_answered_beside_its_call() {
    let mut stage = Stage::native().await;
    let (mut pending, call) = stage.running("/").await;
    let ask = |number: u32, method: &str, argument: &[u8]| {
        native(0x8D, 0, 0, number, method.as_bytes(), argument, Stream::END)
    };
    // Given up before it was answered.
    stage.worker.send(&ask(1, "never", b"")).await;
    let long = vec![b'x'; 1 << 20];
    for (number, method, argument, small, body) in [
        (2, "now", &b"[1]"[..], 0, &b"[1]"[..]),
        (3, "later", b"", 1, b"no later"),
        (
            4,
            "bug",
            b"",
            1,
            b"the method failed by a bug in the server, or the server ends",
        ),
        (5, "now", &long, 0, &long),
    ] {
        stage.worker.send(&ask(number, method, argument)).await;
        let frame = stage.worker.frame().await;
        assert_eq!((frame.kind(), frame.call()), (0x13, number));
        assert_eq!((frame.context[2], &frame.body[..]), (small, body));
    }
    stage.worker.reply(call, b"reply").await;
    assert_eq!(body(&mut pending).await.unwrap(), "reply");
    stage.goes_on().await;
}

#[tokio::test(start_paused = true)]
async fn a_worker_has_few_methods_under_way_and_one_that_waits_for_none_is_ended() {
    let mut stage = Stage::native().await;
    let (mut pending, call) = stage.running("/").await;
    let ask = |number: u32, method: &str| {
        native(0x8D, 0, 0, number, method.as_bytes(), b"[1]", Stream::END)
    };
    for number in 1..=16 {
        stage.worker.send(&ask(number, "never")).await;
    }
    stage.worker.send(&ask(17, "now")).await;
    let frame = stage.worker.frame().await;
    assert_eq!((frame.kind(), frame.call()), (0x13, 17));
    assert_eq!(
        &frame.body[..],
        b"16 methods that this worker did not wait for are under way already"
    );
    stage.worker.reply(call, b"reply").await;
    assert_eq!(body(&mut pending).await.unwrap(), "reply");
    let (mut pending, _) = stage.running("/flood").await;
    let flood: Vec<u8> = (0..110).flat_map(|number| ask(number, "now")).collect();
    stage.worker.send(&flood).await;
    let what = garbage(body(&mut pending).await);
    assert!(what.contains("without waiting for their answers"), "{what}");
    stage.ends(Exit::Signal(9)).await;
}

/// A worker that the test plays gets calls for these before it is in a pool.
type Warming = JoinHandle<Result<Relay, Cold>>;

fn warming(names: &[&'static str]) -> (Worker, Warming, Arc<Inbox>) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let connection = Connection {
        channel: Channel::Unix(ours).detach().unwrap(),
        leftover: Vec::new(),
        dialect: Dialect::Native,
        codec: Codec::Native,
        deadline_signal: None,
    };
    let settings = Settings {
        codec: Codec::Native,
        interruptible: false,
        stream_timeout: Duration::from_secs(60),
        spool: Arc::new(Spool::open(&std::env::temp_dir(), None).unwrap()),
        quote: Quote::All,
        methods: None,
        last_words: LastWords::default(),
    };
    let call = |name: &&'static str| -> Arc<dyn WarmupCall> { TestPayload::new(name) };
    let calls = names.iter().map(call).collect();
    let home = tokio::runtime::Handle::current();
    let inbox = Arc::new(Inbox::default());
    let warming = home.spawn(warm_up(
        connection,
        settings,
        calls,
        "test".into(),
        home.clone(),
        inbox.clone(),
    ));
    let worker = Worker {
        stream: theirs,
        read: BytesMut::new(),
    };
    (worker, warming, inbox)
}

#[tokio::test(start_paused = true)]
async fn a_worker_has_answered_its_warm_up_before_it_takes_calls() {
    let (mut worker, warming, _) = warming(&["/one", "/two"]);
    let one = worker.frame().await.call();
    worker.reply(one, b"one").await;
    let two = worker.frame().await.call();
    assert!(!warming.is_finished());
    // In pieces, more of them than anybody keeps.
    let more = Stream::MORE;
    worker
        .send(&native(0x81, 0, 404, two, &[0; 4], b"two", more))
        .await;
    for _ in 0..20 {
        worker
            .send(&native(0x82, 0, 0, two, b"", b"two", more))
            .await;
    }
    worker
        .send(&native(0x82, 0, 0, two, b"", b"", Stream::END))
        .await;
    let relay = warming.await.unwrap().unwrap();

    let stage = Stage::native().await;
    let slot = stage.pool.add_slot().await;
    stage.pool.booting(slot).await;
    let (slot_handle, mut reports) = stage.pool.slot_handle(slot, 1);
    let inbox = Arc::new(Inbox::default());
    tokio::runtime::Handle::current()
        .spawn(session::run(relay.in_slot(slot_handle, inbox.clone())));
    assert!(matches!(reports.recv().await, Some(Report::Entered)));
    assert_eq!(inbox.executions(), 0);
    stage.pool.drain(0).await;
    let mut pending = stage.call(TestPayload::new("/"));
    let call = worker.frame().await.call();
    assert_eq!(
        call,
        two + 1,
        "an answer to a warm-up could pass for one to a call"
    );
    worker.reply(call, b"warm").await;
    assert_eq!(body(&mut pending).await.unwrap(), "warm");
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_fails_or_leaves_is_not_warm() {
    for (status, flags, said) in [
        (500, 0, "/: it answered 500"),
        (200, 4, "/: it takes no call after this one"),
    ] {
        let (mut worker, warming, _) = warming(&["/"]);
        let call = worker.frame().await.call();
        worker
            .send(&native(
                0x81,
                flags,
                status,
                call,
                &[0; 4],
                b"",
                Stream::END,
            ))
            .await;
        let cold = warming.await.unwrap().err().unwrap();
        assert_eq!((cold.why.as_str(), cold.answered), (said, true));
    }
    let (mut worker, warming, _) = warming(&["/"]);
    worker.frame().await;
    worker.send(b"not a frame at all").await;
    let cold = warming.await.unwrap().err().unwrap();
    let why = cold.why;
    assert!(
        why.starts_with("/: the worker's answer is invalid"),
        "{why}"
    );
    // Its connection is closed for that, and it may have ended before anybody looks.
    assert!(cold.answered);
}

#[tokio::test(start_paused = true)]
async fn what_a_worker_said_before_its_end_is_why_it_is_not_warm() {
    let ended = Order::Ended(Exit::Code(3));
    let (mut worker, warming, inbox) = warming(&["/"]);
    let call = worker.frame().await.call();
    let answer = native(0x81, 0, 503, call, &[0; 4], b"", Stream::END);
    worker.send(&answer).await;
    inbox.order(ended);
    let cold = warming.await.unwrap().err().unwrap();
    assert_eq!(
        (cold.why.as_str(), cold.answered),
        ("/: it answered 503", true)
    );

    let (mut worker, warming, inbox) = self::warming(&["/"]);
    worker.frame().await;
    inbox.order(ended);
    assert!(!warming.await.unwrap().err().unwrap().answered);
}

fn ask_bytes(stage: &Stage, most: usize) -> JoinHandle<Result<Bytes, RawError>> {
    let call = RawCall {
        name: "bytes".into(),
        body: Bytes::from_static(b"\0\xff?"),
        repeatable: false,
    };
    let pool = stage.pool.clone();
    tokio::runtime::Handle::current()
        .spawn(async move { call.ask(&pool, Terms::default(), most).await })
}

fn raw_reply(kind: u8, call: u32, body: &[u8], stream: Stream) -> Vec<u8> {
    native(kind, 0, 0, call, b"", body, stream)
}

#[tokio::test(start_paused = true)]
async fn bytes_are_answered_by_bytes() {
    let mut stage = Stage::native().await;
    let answer = ask_bytes(&stage, 7);
    let frame = stage.worker.frame().await;
    let (kind, call) = (frame.kind(), frame.call());
    assert_eq!((kind, &frame.body[..]), (3, &b"\0\xff?"[..]));
    let first = raw_reply(0x81, call, b"\0\xfe", Stream::MORE);
    stage.worker.send(&first).await;
    let rest = raw_reply(0x82, call, b" says", Stream::END);
    stage.worker.send(&rest).await;
    assert_eq!(answer.await.unwrap().unwrap(), &b"\0\xfe says"[..]);

    // A worker of an official package: no context in either direction.
    let mut foreign = Stage::foreign(Fence::Never).await;
    let answer = ask_bytes(&foreign, 7);
    let frame = foreign.worker.frame().await;
    assert_eq!(frame.header.flags, Flags::JSON);
    assert_eq!(
        (&frame.context[..], &frame.body[..]),
        (&b""[..], &b"\0\xff?"[..])
    );
    foreign.worker.send(&json("", b"\0\xfe")).await;
    assert_eq!(answer.await.unwrap().unwrap(), &b"\0\xfe"[..]);
}

#[tokio::test(start_paused = true)]
async fn what_is_no_answer_to_bytes_costs_the_worker_and_a_long_one_does_not() {
    let mut stage = Stage::native().await;
    for stream in [Stream::END, Stream::MORE] {
        let answer = ask_bytes(&stage, 7);
        let call = stage.worker.frame().await.call();
        let long = raw_reply(0x81, call, b"8 bytes.", stream);
        stage.worker.send(&long).await;
        let answer = answer.await.unwrap();
        assert!(matches!(answer, Err(RawError::TooLong(7))), "{answer:?}");
        if stream == Stream::MORE {
            let rest = raw_reply(0x82, call, b"", Stream::END);
            stage.worker.send(&rest).await;
        }
    }
    let answer = ask_bytes(&stage, 7);
    let call = stage.worker.frame().await.call();
    stage.worker.reply(call, b"of a request").await; // with a count of headers
    let answer = answer.await.unwrap();
    assert!(
        matches!(&answer, Err(RawError::Call(CallError::Worker(WorkerFault::Garbage(what))))
            if what == "the native context has 4 bytes too many"),
        "{answer:?}"
    );
    let report = stage.reports.recv().await;
    assert!(matches!(report, Some(Report::Garbage { .. })), "{report:?}");
}
