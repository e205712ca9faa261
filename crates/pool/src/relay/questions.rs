//! Methods of the server that a worker calls beside its call, one after the other.
//!
//! Knows neither methods nor what they do: a [`MethodCaller`] does.

use std::fmt::{self, Debug};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::buf::Chain;
use bytes::{Buf, Bytes};
use pronghorn_wire::frame::{Flags, OpenFrame, Stream};
use pronghorn_wire::native;
use tokio::io::AsyncWrite;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::channel::Channel;
use crate::observer::Observer;
use crate::roster::UnderWay;

/// An answer of up to this is copied to the end of its head.
const SHORT: usize = 4 << 10;

/// Calls methods of the server for the workers of a pool.
pub trait MethodCaller: Debug + Send + Sync {
    /// Begins a call. What it has begun is carried out, whether or not the answer is waited for; it
    /// is under way for as long as `held` is kept.
    fn call(&self, method: &str, argument: Bytes, held: Held) -> Calling;
}

/// Makes them, one for each pool.
pub trait MethodCallers: Debug + Send + Sync {
    fn of_pool(&self, borders: Borders) -> Arc<dyn MethodCaller>;
}

/// The methods that workers of a pool may call, and what they find behind them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Borders {
    pub pool: String,
    pub methods: Allowed,
    /// Names of storages, without regard to case. None: all of them.
    pub storages: Option<Vec<String>>,
    /// Names of pipelines that they may push to. None: all of them.
    pub pipelines: Option<Vec<String>>,
}

/// Which methods the workers of a pool may call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Allowed {
    #[default]
    All,
    /// Methods that act neither on other pools nor on the server: workers of other pools have
    /// another user.
    Apart,
    /// Services (`kv`) and methods (`jobs.Push`) that the operator has listed.
    Listed(Vec<String>),
}

impl Borders {
    /// Whether there is a storage of this name for them.
    pub fn has_storage(&self, name: &str) -> bool {
        let given = self.storages.as_ref();
        given.is_none_or(|given| given.iter().any(|it| it.eq_ignore_ascii_case(name)))
    }

    /// Whether there is a pipeline of this name for what they push.
    pub fn has_pipeline(&self, name: &str) -> bool {
        let given = self.pipelines.as_ref();
        given.is_none_or(|given| given.iter().any(|it| it == name))
    }
}

/// Counts a call of a worker as one under way.
#[derive(Clone, Debug, Default)]
pub struct Held(Arc<()>);

impl Held {
    /// How many others there are.
    pub(super) fn count(&self) -> usize {
        Arc::strong_count(&self.0) - 1
    }
}

/// A call under way.
#[derive(Debug)]
pub enum Calling {
    Done(Returned),
    Later(oneshot::Receiver<Returned>),
}

/// A result as JSON; or why there is none, for PHP.
pub type Returned = Result<Bytes, String>;

/// A question of a worker that it has no answer to yet.
#[derive(Debug)]
pub(super) enum Asked {
    Nothing,
    /// By its number.
    Waits(u32, oneshot::Receiver<Returned>, Option<Noted>),
    /// The answer is on its way, its head and what the method returned: whose room that has gets
    /// it back when all is read.
    Sends(Chain<Bytes, Bytes>),
}

/// A method that the call is told of in which it was called.
pub(super) struct Noted {
    call: Arc<dyn Observer>,
    method: String,
    since: Instant,
}

impl Noted {
    /// None where nobody wants to know.
    pub(super) fn of(call: Option<&UnderWay>, method: &str) -> Option<Self> {
        let call = &call?.payload;
        call.notes_methods().then(|| Self {
            call: call.clone(),
            method: method.to_owned(),
            since: Instant::now(),
        })
    }

    fn end(&self, returned: &Returned) {
        let error = returned.as_ref().err().map(String::as_str);
        self.call.called(&self.method, self.since, error);
    }
}

impl Debug for Noted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Noted").field(&self.method).finish()
    }
}

impl Asked {
    pub(super) fn new(number: u32, calling: Calling, noted: Option<Noted>) -> Self {
        match calling {
            Calling::Done(returned) => {
                if let Some(noted) = noted {
                    noted.end(&returned);
                }
                Self::answer(number, returned)
            }
            Calling::Later(returned) => Self::Waits(number, returned, noted),
        }
    }

    pub(super) const fn is_nothing(&self) -> bool {
        matches!(self, Self::Nothing)
    }

    /// Whether some bytes of an answer may be written, and not all.
    pub(super) const fn sends(&self) -> bool {
        matches!(self, Self::Sends(_))
    }

    fn answer(number: u32, returned: Returned) -> Self {
        let (is_result, body) = match returned {
            Ok(result) => (true, result),
            Err(why) => (false, why.into()),
        };
        let is_short = body.len() <= SHORT;
        let mut out = Vec::with_capacity(64 + if is_short { body.len() } else { 0 });
        let frame = OpenFrame::begin(&mut out);
        native::encode_answer(&mut out, number, is_result);
        if frame
            .finish(&mut out, Flags::NATIVE, Stream::END, body.len())
            .is_err()
        {
            let why = "the result is longer than an answer can be";
            return Self::answer(number, Err(why.to_owned()));
        }
        // In one piece that is one write.
        let rest = if is_short {
            out.extend_from_slice(&body);
            Bytes::new()
        } else {
            body
        };
        Self::Sends(Bytes::from(out).chain(rest))
    }

    /// Gets on with it. Ready with the bytes that were written, when that was something and more
    /// can be done.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, channel: &mut Channel) -> Poll<usize> {
        let mut written = 0;
        loop {
            match self {
                Self::Nothing => return Poll::Ready(written),
                Self::Waits(number, returned, noted) => {
                    let Poll::Ready(returned) = Pin::new(returned).poll(cx) else {
                        return Poll::Pending;
                    };
                    let gone = || {
                        "the method failed by a bug in the server, or the server ends".to_owned()
                    };
                    let returned = returned.unwrap_or_else(|_| Err(gone()));
                    if let Some(noted) = noted {
                        noted.end(&returned);
                    }
                    *self = Self::answer(*number, returned);
                }
                Self::Sends(bytes) if !bytes.has_remaining() => {
                    channel.wake();
                    pronghorn_ring::answered();
                    *self = Self::Nothing;
                }
                Self::Sends(bytes) => {
                    match Pin::new(&mut *channel).poll_write(cx, bytes.chunk()) {
                        Poll::Ready(Ok(more)) => {
                            written += more;
                            bytes.advance(more);
                        }
                        // The worker's end shows elsewhere.
                        Poll::Ready(Err(_)) => *self = Self::Nothing,
                        Poll::Pending if written > 0 => return Poll::Ready(written),
                        Poll::Pending => return Poll::Pending,
                    }
                }
            }
        }
    }
}
