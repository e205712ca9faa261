//! Methods of the server that a worker calls beside its call, one after the other.
//!
//! Knows neither methods nor what they do: a [`MethodCaller`] does.

use std::fmt::Debug;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use pronghorn_wire::frame::{Flags, OpenFrame, Stream};
use pronghorn_wire::native;
use tokio::io::AsyncWrite;
use tokio::sync::oneshot;

use super::channel::Channel;

/// Calls methods of the server for workers.
pub trait MethodCaller: Debug + Send + Sync {
    /// Begins a call. What it has begun is carried out, whether or not the answer is waited for.
    fn call(&self, method: &str, argument: Bytes) -> Calling;
}

/// A call under way.
#[derive(Debug)]
pub enum Calling {
    Done(Returned),
    Later(oneshot::Receiver<Returned>),
}

/// A result as JSON; or why there is none, for PHP.
pub type Returned = Result<Bytes, String>;

/// What a worker has asked and does not know yet.
#[derive(Debug)]
pub(super) enum Asked {
    Nothing,
    /// By its number.
    Waits(u32, oneshot::Receiver<Returned>),
    /// The answer is on its way.
    Sends(Bytes),
}

impl Asked {
    pub(super) fn new(number: u32, calling: Calling) -> Self {
        match calling {
            Calling::Done(returned) => Self::answer(number, returned),
            Calling::Later(returned) => Self::Waits(number, returned),
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
        let mut out = Vec::with_capacity(64 + body.len());
        let frame = OpenFrame::begin(&mut out);
        native::encode_answer(&mut out, number, is_result);
        if frame
            .finish(&mut out, Flags::NATIVE, Stream::END, body.len())
            .is_err()
        {
            let why = "the result is longer than an answer can be";
            return Self::answer(number, Err(why.to_owned()));
        }
        out.extend_from_slice(&body);
        Self::Sends(out.into())
    }

    /// Gets on with it. Ready with the bytes that were written, when that was something and more
    /// can be done.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, channel: &mut Channel) -> Poll<usize> {
        let mut written = 0;
        loop {
            match self {
                Self::Nothing => return Poll::Ready(written),
                Self::Waits(number, returned) => {
                    let Poll::Ready(returned) = Pin::new(returned).poll(cx) else {
                        return Poll::Pending;
                    };
                    let gone = || {
                        "the method failed by a bug in the server, or the server ends".to_owned()
                    };
                    *self = Self::answer(*number, returned.unwrap_or_else(|_| Err(gone())));
                }
                Self::Sends(bytes) if bytes.is_empty() => {
                    channel.wake();
                    pronghorn_ring::answered();
                    *self = Self::Nothing;
                }
                Self::Sends(bytes) => match Pin::new(&mut *channel).poll_write(cx, bytes) {
                    Poll::Ready(Ok(more)) => {
                        written += more;
                        bytes.advance(more);
                    }
                    // The worker's end shows elsewhere.
                    Poll::Ready(Err(_)) => *self = Self::Nothing,
                    Poll::Pending if written > 0 => return Poll::Ready(written),
                    Poll::Pending => return Poll::Pending,
                },
            }
        }
    }
}
