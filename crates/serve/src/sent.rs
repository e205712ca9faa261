//! The end of a response: when it is out its record is written, its line in the access log, it is
//! counted, and what it took is given back.

use std::borrow::Cow;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use pronghorn_wire::native::Spent;

/// How a response went out.
#[derive(Debug, Clone, Copy)]
pub struct Sent {
    /// The one that the client got; one that has left got none.
    pub status: u16,
    /// Bytes of the body, as many as the client took.
    pub bytes: u64,
    /// The body has more bytes than its head announced; the client did not get these.
    pub is_too_long: bool,
    /// From the moment when the head of the request was complete until the last byte was out.
    pub elapsed: Duration,
    /// The parts of the time of a request that reached a worker, where somebody wants to know them.
    /// Set by who knows, for those who come after.
    pub split: Option<Split>,
}

/// The parts of a request's time, and its worker. The first four together are all of it.
#[derive(Debug, Clone, Copy)]
pub struct Split {
    /// Until the body was there.
    pub read: Duration,
    /// Until a worker had the call; until it was refused, if none got it.
    pub queue: Duration,
    /// From there until the reply was there, or the beginning of one that follows in pieces.
    pub worker: Option<Duration>,
    /// Until the response was out.
    pub write: Duration,
    /// By the worker's own clocks, without its way there and back.
    pub spent: Option<Spent>,
    /// The last worker that had it.
    pub answered_by: Option<AnsweredBy>,
}

/// The worker that has answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AnsweredBy {
    /// 0 where it has no process of this server.
    pub pid: u32,
    /// How many calls it was given, this one included.
    pub nth: u64,
    /// Whether another worker had the call before.
    pub is_retry: bool,
}

/// Does something when a response is out, or when its client has left. Called once, on the I/O
/// thread of the connection.
pub trait OnSent: Debug + Send + Sync + 'static {
    fn on_sent(&self, sent: &mut Sent);

    /// Whether it ends the trace of the request.
    fn ends_trace(&self) -> bool {
        false
    }

    /// Where the request went, if it reached a pool. Asked when the response is out, by those who
    /// come after.
    fn destination(&self) -> Option<Destination<'_>> {
        None
    }
}

/// Where a request went.
#[derive(Debug)]
pub struct Destination<'a> {
    /// The pool's name.
    pub pool: &'a str,
    /// As the application calls it, or a pattern that its path was found to have.
    pub route: Option<Cow<'a, str>>,
    /// The last worker that had it, if that is a process of this server.
    pub pid: Option<u32>,
}

/// One after the other.
#[derive(Debug)]
struct Both(Arc<dyn OnSent>, Arc<dyn OnSent>);

impl OnSent for Both {
    fn on_sent(&self, sent: &mut Sent) {
        self.0.on_sent(sent);
        self.1.on_sent(sent);
    }

    fn ends_trace(&self) -> bool {
        self.0.ends_trace() || self.1.ends_trace()
    }

    fn destination(&self) -> Option<Destination<'_>> {
        self.0.destination().or_else(|| self.1.destination())
    }
}

/// Does `then` after what there is.
pub(crate) fn add(on_sent: &mut Option<Arc<dyn OnSent>>, then: Arc<dyn OnSent>) {
    *on_sent = Some(match on_sent.take() {
        Some(first) => Arc::new(Both(first, then)),
        None => then,
    });
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    type Seen = Arc<Mutex<Vec<(u8, u16)>>>;

    #[derive(Debug)]
    struct Note(u8, Seen);

    impl OnSent for Note {
        fn on_sent(&self, sent: &mut Sent) {
            self.1.lock().unwrap().push((self.0, sent.status));
        }
    }

    #[test]
    fn all_is_done_once_and_in_order() {
        let seen = Seen::default();
        let mut on_sent = None;
        for number in 1..=3 {
            add(&mut on_sent, Arc::new(Note(number, seen.clone())));
        }
        let mut sent = Sent {
            status: 204,
            bytes: 0,
            is_too_long: false,
            elapsed: Duration::ZERO,
            split: None,
        };
        on_sent.expect("three were added").on_sent(&mut sent);
        assert_eq!(*seen.lock().unwrap(), [(1, 204), (2, 204), (3, 204)]);
    }
}
