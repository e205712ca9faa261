//! What a pool, what carries calls to its workers, and what watches over them say to each other.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use pronghorn_process::Exit;
use pronghorn_ring::StackLayout;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::call::{Call, Payload};
use crate::incident::{CallDetails, Progress};
use crate::poison::Identity;

/// How a worker is reached, by whatever means it is connected.
pub trait Transport: Send + Sync {
    /// A call for a worker that was free, or may have it ahead.
    fn submit(&self, call: Call);

    fn order(&self, order: Order);

    /// Calls that the worker was given.
    fn executions(&self) -> u64;

    /// What is it at? Answered as soon as the transport runs; a second question takes the place of
    /// the first.
    fn ask(&self, asked: oneshot::Sender<Option<UnderWay>>);

    /// Lets a worker that is free say that it hears; one that has a call is left alone. Nothing,
    /// where a worker can't be asked without a call.
    fn ping(&self) {}

    /// How long the answer to the last ping took, or has not come by now.
    fn ping_time(&self) -> Option<Duration> {
        None
    }
}

/// What a transport is told beside calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// The call under way gets so much time from now on.
    Extend(Duration),
    /// Ask the process to end; it has no call and gets no more.
    Stop,
    /// The process has ended: settle what is left and leave the pool.
    Ended(Exit),
}

/// What a transport tells the one that watches over its process. None of it may be lost: a place
/// whose end is not told stays taken. So they wait without a limit, and there can't be many: each
/// comes once in the life of a worker, but for `Overdue` and `Recovered`, of which the second waits
/// for its answer, and `Slow`, of which there are a few in a second.
#[derive(Debug)]
pub enum Report {
    /// The worker takes calls.
    Entered,
    /// The call under way passed its deadline, or what it left to do after its reply.
    Overdue {
        what: String,
        ran: Duration,
        /// Of a call; not of what it left to do.
        progress: Option<Box<Progress>>,
        /// What became of the client.
        client: &'static str,
        /// Who made the call tells of it.
        is_told: bool,
        /// By which the worker can be told of it, and stay.
        call: Option<u32>,
        /// The call at length, and where PHP's stack is.
        details: Option<Box<CallDetails>>,
        stack: Option<Box<StackLayout>>,
    },
    /// The call under way takes longer than is usual: somebody wants to know at what PHP is.
    Slow {
        call: UnderWay,
        /// Where its stack is, if it has said so.
        stack: Option<Box<StackLayout>>,
    },
    /// That call has ended, and the worker can go on. It waits until it may: a step against it
    /// could be on its way.
    Recovered { may_go_on: oneshot::Sender<()> },
    /// It has had its calls, and goes on until it is drained.
    Worn,
    /// It goes on, and would do better as a new process, like the others of its generation; because
    /// its cache of code is full, or was reset.
    AsksForRenewal { full: bool },
    /// The worker is done for good and was told, or announced it itself.
    Leaving,
    /// It sent something that makes no sense; in answer to which request, if it had one.
    Garbage {
        what: String,
        request: Option<String>,
    },
    /// Its end of the connection is closed; it is about to end, or can't be reached any more.
    HungUp { what: String },
    /// It died with a call; what it was.
    DiedWith {
        what: String,
        ran: Duration,
        progress: Box<Progress>,
        retried: bool,
        /// Who made the call tells of it.
        is_told: bool,
        /// Of the request.
        identity: Option<Identity>,
        details: Option<Box<CallDetails>>,
    },
    /// The transport has left the pool.
    Left,
}

/// What a relay says about its call.
#[derive(Clone)]
pub struct UnderWay {
    pub payload: Arc<dyn Payload>,
    pub since: Instant,
    /// Of the process that was started for it alone.
    pub pid: Option<u32>,
}

impl fmt::Debug for UnderWay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UnderWay")
            .field("what", &self.payload.describe())
            .finish_non_exhaustive()
    }
}
