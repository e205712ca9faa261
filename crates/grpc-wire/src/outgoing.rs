//! A reply as the body of a response.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use pronghorn_base::Timer;
use pronghorn_serve::{BodySource, Charge, Read};
use pronghorn_wire::Fields;
use tokio::time::Instant;

use crate::base64_pieces;
use crate::call::{Ending, Messages, Streamed};
use crate::content::Flavour;
use crate::gzip;
use crate::message::{frame, frame_trailers, prefix};
use crate::metadata::encode_binary;
use crate::status::{Code, Status, percent_encode};

/// Longer messages are not copied to have their prefix before them.
const COPIED: usize = 16 << 10;

/// The form in which messages are written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Writing {
    pub(crate) flavour: Flavour,
    /// The client takes gzip, and has used it.
    pub(crate) gzip: bool,
    /// Bytes that a message may have.
    pub(crate) most: usize,
}

/// The body of a response.
#[derive(Debug)]
pub(crate) struct Outgoing {
    writing: Writing,
    /// Pieces that are ready.
    ready: VecDeque<Bytes>,
    source: Option<Box<dyn Streamed>>,
    /// A stream has to end by then.
    deadline: Option<Instant>,
    timer: Timer,
    trailers: Fields,
    /// For messages that wait until the client reads them.
    charge: Charge,
    /// Bytes of the piece that was given out last, which is being sent.
    given: usize,
}

/// Fields that tell how a call ended.
pub(crate) fn ending_fields(ending: &Ending) -> Fields {
    let mut fields = Fields::new();
    let status = &ending.status;
    fields.push("grpc-status", status.code.number().to_string());
    if !status.message.is_empty() {
        fields.push("grpc-message", percent_encode(&status.message));
    }
    if let Some(details) = &status.details {
        fields.push("grpc-status-details-bin", encode_binary(details));
    }
    ending
        .trailers
        .write(|name, value| fields.push(name, value));
    fields
}

/// The end of a stream whose deadline has passed.
pub fn late() -> Status {
    Status::new(Code::DeadlineExceeded, "the deadline passed")
}

/// The end of a call whose message may not be sent.
pub fn too_long(length: usize, most: usize) -> Status {
    let text = format!("grpc: trying to send message larger than max ({length} vs. {most})");
    Status::new(Code::ResourceExhausted, text)
}

impl Outgoing {
    /// One message, which is compressed already if it says so.
    pub(crate) fn whole(writing: Writing, message: &Bytes, compressed: bool, end: &Ending) -> Self {
        let mut outgoing = Self::new(writing, None, None);
        outgoing.put(message, compressed);
        outgoing.end(end);
        outgoing
    }

    /// Counts what it holds.
    pub(crate) fn counted(mut self, charge: Charge) -> Self {
        self.charge = charge;
        self.count();
        self
    }

    fn count(&mut self) {
        if !self.charge.is_none() {
            let waiting: usize = self.ready.iter().map(Bytes::len).sum();
            self.charge.set(waiting + self.given);
        }
    }

    /// No message, just the end.
    pub(crate) fn empty(writing: Writing, end: &Ending) -> Self {
        let mut outgoing = Self::new(writing, None, None);
        outgoing.end(end);
        outgoing
    }

    /// Messages as they come.
    pub(crate) fn stream(
        writing: Writing,
        source: Box<dyn Streamed>,
        deadline: Option<Instant>,
    ) -> Self {
        Self::new(writing, Some(source), deadline)
    }

    fn new(writing: Writing, source: Option<Box<dyn Streamed>>, deadline: Option<Instant>) -> Self {
        Self {
            writing,
            ready: VecDeque::new(),
            source,
            deadline,
            timer: Timer::default(),
            trailers: Fields::new(),
            charge: Charge::default(),
            given: 0,
        }
    }

    /// Takes one message, or the end, from a stream.
    fn poll_source(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(source) = &mut self.source else {
            return Poll::Ready(());
        };
        if self.timer.poll(cx, self.deadline).is_ready() {
            self.end(&late().into());
            return Poll::Ready(());
        }
        match std::task::ready!(source.poll_next(cx)) {
            Messages::Message(message) if message.len() > self.writing.most => {
                self.end(&too_long(message.len(), self.writing.most).into());
            }
            Messages::Message(message) => {
                let shorter = self.writing.gzip.then(|| gzip::compress_now(&message));
                match shorter.flatten() {
                    Some(shorter) => self.put(&shorter, true),
                    None => self.put(&message, false),
                }
            }
            Messages::End(ending) => self.end(&ending),
        }
        Poll::Ready(())
    }

    /// The first piece, with those behind it that are short.
    fn take(&mut self) -> Option<Bytes> {
        let first = self.ready.pop_front()?;
        let fits = |length: usize, next: Option<&Bytes>| {
            next.is_some_and(|next| length + next.len() <= COPIED)
        };
        if !fits(first.len(), self.ready.front()) {
            return Some(first);
        }
        let mut joined = BytesMut::from(first);
        while fits(joined.len(), self.ready.front()) {
            joined.extend_from_slice(&self.ready.pop_front()?);
        }
        Some(joined.freeze())
    }

    fn is_short(&self) -> bool {
        self.ready.iter().map(Bytes::len).sum::<usize>() < COPIED
    }

    fn put(&mut self, message: &Bytes, compressed: bool) {
        match self.writing.flavour {
            Flavour::WebText => self.ready.push_back(text(&frame(compressed, message))),
            _ if message.len() <= COPIED => self.ready.push_back(frame(compressed, message)),
            _ => {
                let prefix = prefix(compressed, message.len());
                self.ready.push_back(Bytes::copy_from_slice(&prefix));
                self.ready.push_back(message.clone());
            }
        }
    }

    fn end(&mut self, ending: &Ending) {
        self.source = None;
        let fields = ending_fields(ending);
        if self.writing.flavour == Flavour::Grpc {
            self.trailers = fields;
            return;
        }
        let mut lines = Vec::new();
        for (name, value) in fields.iter() {
            for part in [name, b": ", value, b"\r\n"] {
                lines.extend_from_slice(part);
            }
        }
        let last = frame_trailers(&lines);
        self.ready.push_back(match self.writing.flavour {
            Flavour::WebText => text(&last),
            Flavour::Grpc | Flavour::Web => last,
        });
    }
}

fn text(bytes: &[u8]) -> Bytes {
    base64_pieces::encode(bytes).into()
}

impl BodySource for Outgoing {
    fn is_news(&self) -> bool {
        self.source.as_ref().is_some_and(|source| source.is_news())
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Read> {
        // Short messages that are there go together: each piece is a frame of HTTP/2.
        while self.source.is_some() && self.is_short() && self.poll_source(cx).is_ready() {}
        let piece = self.take();
        self.given = piece.as_ref().map_or(0, Bytes::len);
        self.count();
        match piece {
            Some(piece) => Poll::Ready(Read::Bytes(piece)),
            None if self.source.is_none() => Poll::Ready(Read::End),
            None => Poll::Pending,
        }
    }

    fn trailers(&mut self) -> Fields {
        std::mem::take(&mut self.trailers)
    }
}

/// Waits for an answer until the deadline.
pub async fn in_time<T>(
    deadline: Option<Instant>,
    answer: Pin<Box<dyn Future<Output = T> + Send + '_>>,
) -> Option<T> {
    match deadline {
        None => Some(answer.await),
        Some(deadline) => tokio::time::timeout_at(deadline, answer).await.ok(),
    }
}
