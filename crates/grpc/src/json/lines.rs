//! A stream of messages as lines of JSON, in the form of grpc-gateway: `{"result": …}` for each
//! message, and `{"error": …}` where it fails after the first one.

use std::future::poll_fn;
use std::task::{Context, Poll};

use bytes::{BufMut, Bytes, BytesMut};
use pronghorn_base::Timer;
use pronghorn_grpc_wire::{Code, Ending, LONG, Messages, ReplyBody, Status, Streamed, late};
use pronghorn_serve::{BodySource, Charge, Exchange, Read};
use prost_reflect::DescriptorPool;
use tokio::time::Instant;

use super::answer::{counted_json, status_json, success};
use super::rules::Output;

/// Lines go together up to so many bytes, as far as they are there: each piece is a chunk.
const TOGETHER: usize = 16 << 10;

/// The body of the response to a method that streams.
#[derive(Debug)]
pub(super) struct Lines {
    output: Output,
    pool: DescriptorPool,
    /// None after the end.
    source: Option<Box<dyn Streamed>>,
    ready: BytesMut,
    deadline: Option<Instant>,
    timer: Timer,
    /// For the lines that are being sent.
    charge: Charge,
}

impl Lines {
    /// Waits for the first message or the end: a call that fails before it has another status.
    pub(super) async fn begin(
        output: Output,
        pool: DescriptorPool,
        body: ReplyBody,
        deadline: Option<Instant>,
        exchange: &mut dyn Exchange,
    ) -> Result<Self, Ending> {
        let source: Box<dyn Streamed> = match body {
            ReplyBody::Empty(ending) if ending.status.code != Code::Ok => return Err(ending),
            ReplyBody::Empty(ending) => Box::new(Few(None, ending)),
            ReplyBody::One(message, ending) => Box::new(Few(Some(message), ending)),
            ReplyBody::Stream(source) => source,
        };
        let mut lines = Self {
            output,
            pool,
            source: Some(source),
            ready: BytesMut::new(),
            deadline,
            timer: Timer::default(),
            charge: exchange.charge(),
        };
        let first = poll_fn(|cx| {
            if exchange.poll_gone(cx).is_ready() {
                let left = Status::new(Code::Cancelled, "the client left");
                return Poll::Ready(Messages::End(left.into()));
            }
            lines.poll_messages(cx)
        });
        match first.await {
            Messages::Message(message) => lines.add(&message)?,
            Messages::End(ending) if ending.status.code != Code::Ok => return Err(ending),
            Messages::End(_) => lines.source = None,
        }
        Ok(lines)
    }

    fn poll_messages(&mut self, cx: &mut Context<'_>) -> Poll<Messages> {
        if self.timer.poll(cx, self.deadline).is_ready() {
            return Poll::Ready(Messages::End(late().into()));
        }
        match &mut self.source {
            Some(source) => source.poll_next(cx),
            None => Poll::Ready(Messages::End(Status::OK.into())),
        }
    }

    fn add(&mut self, message: &[u8]) -> Result<(), Status> {
        let json = if message.len() < LONG {
            success(&self.output, message)?
        } else {
            counted_json(&self.output, message, &mut self.charge)?
        };
        for part in [&br#"{"result":"#[..], &json, b"}\n"] {
            self.ready.put_slice(part);
        }
        Ok(())
    }

    /// Adds a message, or what comes last.
    fn take(&mut self, next: Messages) {
        let ending = match next {
            Messages::Message(message) => match self.add(&message) {
                Ok(()) => return,
                Err(status) => status.into(),
            },
            Messages::End(ending) => ending,
        };
        self.source = None;
        if ending.status.code != Code::Ok {
            let error = status_json(&self.pool, &ending.status);
            let line = serde_json::json!({ "error": error });
            self.ready.put_slice(format!("{line}\n").as_bytes());
        }
    }
}

impl BodySource for Lines {
    fn is_news(&self) -> bool {
        self.source.as_ref().is_some_and(|source| source.is_news())
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Read> {
        while self.source.is_some() && self.ready.len() < TOGETHER {
            match self.poll_messages(cx) {
                Poll::Ready(next) => self.take(next),
                Poll::Pending => break,
            }
        }
        let piece = self.ready.split().freeze();
        self.charge.set(piece.len());
        match piece {
            piece if !piece.is_empty() => Poll::Ready(Read::Bytes(piece)),
            _ if self.source.is_none() => Poll::Ready(Read::End),
            _ => Poll::Pending,
        }
    }
}

/// The answer of a package that knows no streams: one message at most.
#[derive(Debug)]
struct Few(Option<Bytes>, Ending);

impl Streamed for Few {
    fn poll_next(&mut self, _: &mut Context<'_>) -> Poll<Messages> {
        Poll::Ready(match self.0.take() {
            Some(message) => Messages::Message(message),
            None => Messages::End(self.1.clone()),
        })
    }
}
