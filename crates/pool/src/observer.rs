//! The maker of a call follows it through the pool by this.
//!
//! Nothing here changes what a worker is sent or what its answer means: that is the
//! [`Payload`](crate::Payload)'s. A call that nobody follows has an empty `impl`.

use std::time::Duration;

use pronghorn_wire::native::{Spent, Thrown};
use tokio::time::Instant;

use crate::incident::CallDetails;
use crate::poison::Identity;
use crate::stamps::Stamps;

/// Who has made a call is told of its way, and asked by the pool about what only it knows.
pub trait Observer: Send + Sync + 'static {
    /// A worker has taken the call up, and not only lies it there for later.
    fn begun(&self, _by: Taker) {}

    /// Whether somebody will read what its time was spent on.
    fn is_timed(&self) -> bool {
        false
    }

    /// What its time at the worker was spent on, before the end of its reply: what the worker says,
    /// where the call asks for it and the worker can, or what was seen of its process.
    fn spent(&self, _spent: Spent) {}

    /// What the application calls the route of the call.
    fn route(&self, _name: &str) {}

    /// PHP has ended its script, and says by what.
    fn ended_by_php(&self, _thrown: Thrown) {}

    /// Whether somebody wants to know which methods of the server the worker calls during it.
    fn notes_methods(&self) -> bool {
        false
    }

    /// The worker has called a method, and its answer is there now. Only told if it is
    /// [noted](Self::notes_methods).
    fn called(&self, _method: &str, _since: Instant, _error: Option<&str>) {}

    /// At what PHP is, while it takes longer than is usual. Given back by who has no use for it.
    fn looked_at(&self, look: Look) -> Option<Look> {
        Some(look)
    }

    /// It has its reply, or will get none, and when each step before that happened. Not called for
    /// a call whose client has left.
    fn ended(&self, _stamps: &Stamps) {}

    /// All that can be said of it, for a report of what went wrong.
    fn details(&self) -> Option<Box<CallDetails>> {
        None
    }

    /// By what the records that the application makes during this call name it.
    fn origin(&self) -> Origin<'_> {
        Origin::default()
    }

    /// Whether its maker has a place for it: one that a worker was given for later, and has not
    /// begun, then ends as [`CallError::NotBegun`](crate::CallError::NotBegun) instead of waiting
    /// in the pool's queue.
    fn waits_elsewhere(&self) -> bool {
        false
    }

    /// Whether all of it is here, so that nobody has to be there while it runs.
    fn is_complete(&self) -> bool {
        true
    }

    /// Whether its worker may ask for more of the body while its reply is on the way.
    fn reads_on(&self) -> bool {
        false
    }

    /// What its client gets once its deadline has passed, for records.
    fn late_answer(&self) -> &'static str {
        "got an error"
    }

    /// Whether its maker writes the record of what went wrong with it: that its deadline has
    /// passed, or its worker died. What the pool says of that is for who looks closely, then.
    fn tells_failures(&self) -> bool {
        false
    }

    /// By what the same request is known again. Only asked for after a worker has died. `None` when
    /// requests can't be told apart.
    fn identity(&self) -> Option<Identity> {
        None
    }
}

/// What was seen of a worker from outside, in the middle of a call.
#[derive(Debug)]
pub struct Look {
    /// Frames of PHP, the innermost first; or why they can't be read.
    pub stack: Result<Vec<String>, String>,
    /// Resident bytes.
    pub memory: Option<u64>,
    /// How long the worker had had the call.
    pub age: Duration,
}

/// How records name a call. What it has not is left out.
#[derive(Debug, Clone, Default)]
pub struct Origin<'a> {
    pub request_id: Option<&'a str>,
    pub route: Option<&'a str>,
    /// Of the trace that the call belongs to.
    pub trace_id: Option<String>,
}

/// The worker that has taken a call up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Taker {
    /// Whether it hears before its reply that the client has left.
    pub hears: bool,
    /// 0 where no process of this server is behind it.
    pub pid: u32,
    /// How many calls it was given, this one included.
    pub nth: u64,
    /// Whether another worker had the call before.
    pub is_retry: bool,
}
