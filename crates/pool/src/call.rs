//! A call on its way through a pool, and what becomes of it.

use std::fmt;
use std::future::{Future, poll_fn};
use std::ops::{Deref, DerefMut};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use pronghorn_process::Exit;
use pronghorn_wire::native::Thrown;
use pronghorn_wire::{Codec, DecodeError, Head};
use thiserror::Error;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::affinity::AffinityId;
use crate::body::BodyStream;
use crate::content::Content;
use crate::observer::Observer;
use crate::pieces::Pieces;
use crate::spool::SpoolFile;
use crate::stamps::Stamps;

/// What a call carries, and how its answer is read: the pool knows neither. Written for a worker
/// when one takes it, in the encoding that this worker reads.
pub trait Payload: Observer {
    /// Appends the call to `out` and says what body follows it.
    ///
    /// # Errors
    ///
    /// When this payload can't be written so; the text goes to the client's answer and to the log.
    fn encode(&self, encoding: Encoding, out: &mut Vec<u8>) -> Result<Body, Unencodable>;

    /// Reads what an answer begins with, the context of a frame.
    ///
    /// # Errors
    ///
    /// When it makes no sense: the worker is replaced.
    fn decode_head(&self, codec: Codec, context: &Bytes) -> Result<Head, DecodeError>;

    /// Whether it may be given to a second worker after the first one died with it.
    fn repeatable(&self) -> bool;

    /// The head that stands for an answer where a foreign worker waits for its next call without
    /// having answered this one. None: it has to answer. The body of such a call is in memory.
    fn unanswered(&self) -> Option<Head> {
        None
    }

    /// A short text for reports, `GET /path` for instance.
    fn describe(&self) -> String;
}

/// What a call's route asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// Lower goes first.
    pub priority: u8,
    /// How long a worker may take for it, instead of the pool's `exec_ttl`.
    pub deadline: Option<Duration>,
    /// After how long PHP's stack is looked at, instead of the pool's `slow`.
    pub slow: Option<Duration>,
    /// It goes to the worker that has the other calls of this number.
    pub affinity: Option<AffinityId>,
}

impl Default for Terms {
    fn default() -> Self {
        Self {
            priority: 10,
            deadline: None,
            slow: None,
            affinity: None,
        }
    }
}

/// How a worker reads its calls.
#[derive(Debug, Clone, Copy)]
pub enum Encoding {
    /// As the context of a frame, in this codec.
    Frame(Codec, Dispatch),
    /// As the variables of CGI, in the way of `pronghorn_cgi`.
    Variables,
}

/// What is only known when a call is handed to a worker.
#[derive(Debug, Clone, Copy)]
pub struct Dispatch {
    /// The call's number at this worker.
    pub number: u32,
    /// Until its deadline, in milliseconds.
    pub time_left_ms: Option<u32>,
}

/// What follows a call's context.
#[derive(Debug, Default)]
pub enum Body {
    #[default]
    Empty,
    Bytes(Bytes),
    /// The content of a file, for codecs that can't name one.
    File(Arc<SpoolFile>),
    /// What the worker asks for while it has the call, for codecs in which it can.
    Stream(BodyStream),
}

impl Body {
    pub fn size(&self) -> u64 {
        match self {
            Self::Empty | Self::Stream(_) => 0,
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::File(file) => file.len(),
        }
    }
}

/// A worker can't be given this payload, and why.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Unencodable {
    /// The request's: no codec could carry it, or not this one.
    #[error("{0}")]
    Request(String),
    /// The operator's: the pool's workers are not what its settings need.
    #[error("{0}")]
    Pool(String),
}

impl Unencodable {
    /// A call that is no script's was given to a pool of scripts.
    pub fn for_no_script() -> Self {
        Self::Pool("the pool runs scripts, and the call is for none".to_owned())
    }
}

/// A call inside the pool. It ends in exactly one of [`Call::deliver`] and [`Call::fail`], or is
/// dropped after its client has left. It passes through many hands, so it lies in one place and its
/// address is handed on.
pub struct Call(Box<Inner>);

pub struct Inner {
    pub payload: Arc<dyn Payload>,
    pub stamps: Stamps,
    /// By when it must be done; set when it is dispatched.
    pub deadline: Option<Instant>,
    pub terms: Terms,
    pub seq: u64,
    /// How many workers had it before.
    pub attempts: u8,
    /// It runs also if its caller has left before.
    pub runs_alone: bool,
    answer: oneshot::Sender<Delivery>,
}

/// What goes over a call's channel: its end, or an interim reply and the channel that goes on.
enum Delivery {
    Interim(Head, oneshot::Receiver<Self>),
    End(Result<Box<Reply>, CallError>),
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call")
            .field("seq", &self.seq)
            .field("what", &self.payload.describe())
            .finish_non_exhaustive()
    }
}

/// What comes back for a call.
#[derive(Debug)]
pub enum Answer {
    /// The real one follows: ask again.
    Interim(Head),
    Reply(Box<Reply>),
}

/// A worker's reply.
#[derive(Debug)]
pub struct Reply {
    pub head: Head,
    pub body: ReplyBody,
}

/// What follows the head.
#[derive(Debug)]
pub enum ReplyBody {
    Whole(Content),
    /// The worker names a file for the server to send.
    File(PathBuf),
    /// It arrives in pieces; the length is known when the worker has already announced all of it.
    Pieces {
        pieces: Pieces,
        len: Option<u64>,
    },
}

/// Why a call got no reply. Whose fault it is decides what the client sees (`http` maps it in one
/// place).
#[derive(Debug, Clone, Error)]
pub enum CallError {
    /// The load's: there was no place, or no worker in time. Nothing was done.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// A worker had it for later and did not come to it. Nothing was done.
    #[error("no worker has begun it")]
    NotBegun,
    /// The request's: it can't be written for this worker. Nothing was done.
    #[error("the request can't be passed on: {0}")]
    Unencodable(#[from] Unencodable),
    /// The request's: workers died of it, so no other one gets it for a while.
    #[error("workers died of the same request before: it is refused for a while")]
    Poisoned,
    /// The application's: it took longer than it may.
    #[error("the deadline passed")]
    Deadline,
    /// The worker's: it ended, or what it sent made no sense.
    #[error(transparent)]
    Worker(#[from] WorkerFault),
    /// The application's: it threw and the SDK said what.
    #[error("{0}")]
    Thrown(Box<Thrown>),
    /// The application's: a foreign worker reported an error as text.
    #[error("the worker reported an error: {0}")]
    Reported(String),
}

/// Why a call was never given to a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Refused {
    #[error("the queue is full")]
    QueueFull,
    #[error("no worker became free in time")]
    WaitedTooLong,
    #[error("no worker can be started")]
    NoWorker,
    #[error("the pool is stopping")]
    Stopping,
}

/// What went wrong with the worker that had a call.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum WorkerFault {
    #[error("the worker ended with {0}")]
    Died(Exit),
    /// The server ended it, because its time to finish was over: a reload, a stop.
    #[error("the worker did not finish in time and was ended by the server, with {0}")]
    CutOff(Exit),
    #[error("the worker's answer is invalid: {0}")]
    Garbage(String),
    /// There is no process that could have answered.
    #[error("{0}")]
    NotStarted(String),
    /// Every worker that got it asked to be replaced instead of answering.
    #[error("no worker would take it: {0} asked to be replaced")]
    Unwilling(u8),
}

/// The caller's side of a call. Dropping it withdraws the call: it leaves the queue, unless it
/// [runs](crate::pool::Options::runs_alone) all the same, or its worker learns that the client has
/// left.
pub struct Pending {
    answer: oneshot::Receiver<Delivery>,
    place: Option<Place>,
}

/// Where a call waits until it is answered.
pub(crate) trait Withdraw: Send + Sync {
    /// Its caller has left.
    fn withdraw(&self, priority: u8, seq: u64, runs_alone: bool);
}

/// Where in a queue a call may wait.
struct Place {
    pool: Arc<dyn Withdraw>,
    priority: u8,
    seq: u64,
    runs_alone: bool,
}

/// Connects a call and its caller.
pub(crate) fn call(
    pool: Arc<dyn Withdraw>,
    payload: Arc<dyn Payload>,
    stamps: Stamps,
    terms: Terms,
    seq: u64,
    runs_alone: bool,
) -> (Call, Pending) {
    let (sender, answer) = oneshot::channel();
    let call = Call(Box::new(Inner {
        payload,
        stamps,
        deadline: None,
        terms,
        seq,
        attempts: 0,
        runs_alone,
        answer: sender,
    }));
    (
        call,
        Pending {
            answer,
            place: Some(Place {
                pool,
                priority: terms.priority,
                seq,
                runs_alone,
            }),
        },
    )
}

impl Pending {
    /// Waits for the next thing that comes back. Cancel safe. After [`Answer::Reply`] or an error
    /// nothing comes.
    pub async fn answer(&mut self) -> Result<Answer, CallError> {
        poll_fn(|cx| self.poll_answer(cx)).await
    }

    /// The same, for those who wait for something else as well.
    pub fn poll_answer(&mut self, cx: &mut Context<'_>) -> Poll<Result<Answer, CallError>> {
        match std::task::ready!(Pin::new(&mut self.answer).poll(cx)) {
            Ok(Delivery::Interim(head, rest)) => {
                self.answer = rest;
                Poll::Ready(Ok(Answer::Interim(head)))
            }
            Ok(Delivery::End(end)) => {
                self.place = None;
                Poll::Ready(end.map(Answer::Reply))
            }
            // The pool's promise is that every call ends; one that is dropped without an answer is
            // a bug in it.
            Err(_) => {
                debug_assert!(false, "a call was dropped without an answer");
                self.place = None;
                Poll::Ready(Err(Refused::Stopping.into()))
            }
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if let Some(place) = self.place.take() {
            self.answer.close();
            place
                .pool
                .withdraw(place.priority, place.seq, place.runs_alone);
        }
    }
}

impl Deref for Call {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        &self.0
    }
}

impl DerefMut for Call {
    fn deref_mut(&mut self) -> &mut Inner {
        &mut self.0
    }
}

impl Call {
    /// Passes an interim reply on.
    pub(crate) fn inform(&mut self, head: Head) {
        let (sender, rest) = oneshot::channel();
        let before = std::mem::replace(&mut self.0.answer, sender);
        // If the caller has left, `rest` is dropped here and the call looks withdrawn, as before.
        _ = before.send(Delivery::Interim(head, rest));
    }

    /// Ends the call with a reply.
    pub fn deliver(self, head: Head, body: ReplyBody) {
        self.0.payload.ended(&self.0.stamps);
        // A caller that has left needs no answer.
        let reply = Box::new(Reply { head, body });
        _ = self.0.answer.send(Delivery::End(Ok(reply)));
    }

    /// Ends the call without one.
    pub fn fail(mut self, error: impl Into<CallError>) {
        self.0.stamps.complete = Some(Instant::now());
        self.0.payload.ended(&self.0.stamps);
        _ = self.0.answer.send(Delivery::End(Err(error.into())));
    }

    /// Whether nobody needs it to run.
    pub fn is_unwanted(&self) -> bool {
        !self.runs_alone && self.is_withdrawn()
    }

    /// Whether the caller has left.
    pub fn is_withdrawn(&self) -> bool {
        self.0.answer.is_closed()
    }

    pub fn poll_withdrawn(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.0.answer.poll_closed(cx)
    }
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Pending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pending").finish_non_exhaustive()
    }
}
