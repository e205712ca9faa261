//! A call as a service sees it, and what it gives back.

use std::fmt::Debug;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use pronghorn_pool::SpoolClient;
use pronghorn_serve::{BodyError, Charge, DetachedBody, Exchange, Peer, PeerAddress};
use tokio::time::Instant;

use crate::aside::while_there;
use crate::base64_pieces::Pieces;
use crate::content::Content;
use crate::gzip;
use crate::message::{Decoder, FrameError, RawMessage, frame};
use crate::metadata::Metadata;
use crate::path::MethodPath;
use crate::status::{Code, Status};

/// A call without its messages.
#[derive(Debug)]
pub struct Call {
    pub method: MethodPath,
    pub content: Content,
    /// All fields of the request but `host`, those of gRPC itself too.
    pub metadata: Metadata,
    /// As the client calls the server.
    pub authority: String,
    /// When the client stops to wait.
    pub deadline: Option<Instant>,
    pub peer: Arc<Peer>,
    /// When the head of the request was there.
    pub accepted: Instant,
    /// The same moment in microseconds since the Unix epoch.
    pub accepted_us: u64,
}

/// The end of a call: a status, with metadata.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ending {
    pub status: Status,
    pub trailers: Metadata,
}

impl From<Status> for Ending {
    fn from(status: Status) -> Self {
        Self {
            status,
            trailers: Metadata::new(),
        }
    }
}

/// The answer to a call.
#[derive(Debug)]
pub struct Reply {
    /// Metadata before the messages.
    pub headers: Metadata,
    pub body: ReplyBody,
}

/// The messages of an answer, and its end.
#[derive(Debug)]
pub enum ReplyBody {
    /// No message.
    Empty(Ending),
    One(Bytes, Ending),
    Stream(Box<dyn Streamed>),
}

/// The next part of an answer in a stream.
#[derive(Debug)]
pub enum Messages {
    Message(Bytes),
    End(Ending),
}

/// Gives messages as they come. Dropped before its end, when the client has left or its deadline
/// has passed.
pub trait Streamed: Debug + Send {
    /// Whether nobody is at work for the client while the next message is awaited, so that its
    /// connection may make room for others.
    fn is_news(&self) -> bool {
        false
    }

    /// The next message or the end, after which it is not asked again.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Messages>;
}

impl Reply {
    /// Without a message: mostly a failure.
    pub fn ended(ending: impl Into<Ending>) -> Self {
        Self {
            headers: Metadata::new(),
            body: ReplyBody::Empty(ending.into()),
        }
    }

    /// One message, and success.
    pub fn message(message: impl Into<Bytes>) -> Self {
        Self {
            headers: Metadata::new(),
            body: ReplyBody::One(message.into(), Status::OK.into()),
        }
    }

    /// Messages as they come.
    pub fn stream(streamed: impl Streamed + 'static) -> Self {
        Self {
            headers: Metadata::new(),
            body: ReplyBody::Stream(Box::new(streamed)),
        }
    }
}

/// Makes messages of the bytes of a body.
#[derive(Debug)]
pub(crate) struct Incoming {
    decoder: Decoder,
    /// For gRPC-Web in text.
    text: Option<Pieces>,
    /// The client said that messages may be compressed.
    gzip: bool,
    most: usize,
    /// For what is held of messages.
    charge: Charge,
    /// Bytes of the message that was given out last, which its reader may still hold.
    given: usize,
}

impl Incoming {
    pub(crate) fn new(is_text: bool, gzip: bool, most: usize) -> Self {
        Self {
            decoder: Decoder::new(most),
            text: is_text.then(Pieces::default),
            gzip,
            most,
            charge: Charge::default(),
            given: 0,
        }
    }

    /// Bytes of messages, whole or not.
    fn held(&self) -> usize {
        self.decoder.held() + self.given
    }

    fn add(&mut self, bytes: &[u8]) -> Result<(), Status> {
        match &mut self.text {
            None => self.decoder.add(bytes),
            Some(text) => {
                let decoded = text.decode(bytes).ok_or_else(|| {
                    Status::new(
                        Code::Internal,
                        "the body is not in base64, or not all of it",
                    )
                })?;
                self.decoder.add(&decoded);
            }
        }
        Ok(())
    }

    /// The next message as it came.
    fn take(&mut self) -> Result<Option<RawMessage>, Status> {
        match self.decoder.take() {
            Ok(Some(message)) if message.trailers => Err(flag(0x80)),
            Ok(message) => Ok(message),
            Err(FrameError::Flag(seen)) => Err(flag(seen)),
            Err(FrameError::TooLong { announced, most }) => Err(Status::new(
                Code::ResourceExhausted,
                format!("grpc: received message larger than max ({announced} vs. {most})"),
            )),
        }
    }

    async fn plain(&mut self, message: RawMessage) -> Result<Bytes, Status> {
        let message = match (message.compressed, self.gzip) {
            (false, _) => message.bytes,
            (true, true) => {
                gzip::decompress_counted(message.bytes, self.most, &mut self.charge).await?
            }
            (true, false) => {
                return Err(Status::new(
                    Code::Internal,
                    "grpc: compressed flag set with identity or empty encoding",
                ));
            }
        };
        self.given = message.len();
        self.charge.set(self.held());
        Ok(message)
    }

    /// The body is over.
    fn end(&self) -> Result<(), Status> {
        if self.decoder.held() > 0 {
            return Err(Status::new(Code::Internal, "the last message is not whole"));
        }
        Ok(())
    }
}

fn flag(seen: u8) -> Status {
    let text = format!("grpc: received unexpected payload format {seen}");
    Status::new(Code::Internal, text)
}

/// Why the client's messages did not arrive.
fn failed(error: BodyError) -> Status {
    match error {
        BodyError::Gone => Status::new(Code::Cancelled, "the client left"),
        BodyError::TooSlow => Status::new(Code::Cancelled, error.to_string()),
        error => Status::new(Code::Internal, error.to_string()),
    }
}

/// The messages of the client, and whether it is still there.
pub struct Input<'a> {
    exchange: &'a mut dyn Exchange,
    incoming: Incoming,
    /// All of the messages are here.
    is_over: bool,
}

impl<'a> Input<'a> {
    pub(crate) fn new(exchange: &'a mut dyn Exchange, incoming: Incoming) -> Self {
        Self {
            exchange,
            incoming,
            is_over: false,
        }
    }

    /// With a message that came in another form.
    pub(crate) fn of_message(exchange: &'a mut dyn Exchange, message: &[u8], most: usize) -> Self {
        let mut incoming = Incoming::new(false, false, most);
        incoming.decoder.add(&frame(false, message));
        Self {
            is_over: true,
            ..Self::new(exchange, incoming)
        }
    }

    /// The one message of a unary call.
    ///
    /// # Errors
    ///
    /// The status that ends the call where there is no message, or more than one.
    pub async fn only(&mut self) -> Result<Bytes, Status> {
        let Some(message) = self.next().await? else {
            let text =
                "cardinality violation: received no request message from non-client-streaming RPC";
            return Err(Status::new(Code::Internal, text));
        };
        if self.next().await?.is_some() {
            let text = "cardinality violation: received multiple request messages for \
                        non-client-streaming RPC";
            return Err(Status::new(Code::Internal, text));
        }
        Ok(message)
    }

    async fn next(&mut self) -> Result<Option<Bytes>, Status> {
        loop {
            if let Some(message) = self.incoming.take()? {
                // Few bytes may become many.
                if message.compressed && self.incoming.charge.is_none() {
                    self.incoming.charge = self.exchange.charge();
                }
                let plain = self.incoming.plain(message);
                return while_there(self.exchange, plain).await.map(Some);
            }
            if self.is_over {
                return self.incoming.end().map(|()| None);
            }
            match self.exchange.body().await {
                Ok(Some(piece)) => {
                    self.incoming.add(&piece)?;
                    let held = self.incoming.held();
                    if self.incoming.charge.is_none() && held > self.exchange.uncounted() {
                        self.incoming.charge = self.exchange.charge();
                    }
                    self.incoming.charge.set(held);
                }
                Ok(None) => return self.incoming.end().map(|()| None),
                Err(error) => return Err(failed(error)),
            }
        }
    }

    /// Ready when the client has left. Only after the last message.
    pub fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.exchange.poll_gone(cx)
    }

    /// For files that are kept for the client at this address.
    pub fn spool_client(&self, address: PeerAddress) -> Option<Arc<dyn SpoolClient>> {
        self.exchange.charge().client(address)
    }

    /// The client's messages, to be read beside the answer. None over HTTP/1.1.
    pub fn detach(&mut self) -> Option<Detached> {
        let body = self.exchange.detach_body()?;
        let (is_text, gzip, most) = (false, self.incoming.gzip, self.incoming.most);
        let mut incoming =
            std::mem::replace(&mut self.incoming, Incoming::new(is_text, gzip, most));
        if incoming.charge.is_none() {
            incoming.charge = self.exchange.charge();
        }
        Some(Detached {
            body,
            incoming,
            is_over: false,
        })
    }
}

/// Reads a body that is not of messages.
///
/// # Errors
///
/// The status that ends the call: the body is too long, or has not arrived.
pub(crate) async fn read_body(
    exchange: &mut dyn Exchange,
    most: usize,
) -> Result<(Bytes, Charge), Status> {
    let (mut body, mut charge) = (BytesMut::new(), Charge::default());
    while let Some(piece) = exchange.body().await.map_err(failed)? {
        if body.len().saturating_add(piece.len()) > most {
            let text = format!("the body is longer than {most} bytes");
            return Err(Status::new(Code::ResourceExhausted, text));
        }
        body.extend_from_slice(&piece);
        if body.len() > exchange.uncounted() {
            if charge.is_none() {
                charge = exchange.charge();
            }
            charge.set(body.len());
        }
    }
    Ok((body.freeze(), charge))
}

impl Debug for Input<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Input")
            .field("incoming", &self.incoming)
            .finish_non_exhaustive()
    }
}

/// The messages of a client that streams.
#[derive(Debug)]
pub struct Detached {
    body: DetachedBody,
    incoming: Incoming,
    is_over: bool,
}

impl Detached {
    /// Takes what has come while nobody asks for a message.
    pub fn gather(&mut self, cx: &mut Context<'_>) {
        let ahead = self.body.gather(cx);
        self.incoming.charge.set(self.incoming.held() + ahead);
    }

    /// The next message; `None` when the client has sent its last one. Cancel safe but for what is
    /// being decompressed.
    ///
    /// # Errors
    ///
    /// The status that ends the call.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Status> {
        loop {
            if let Some(message) = self.incoming.take()? {
                return self.incoming.plain(message).await.map(Some);
            }
            if self.is_over {
                return Ok(None);
            }
            match poll_fn(|cx| self.body.poll_next(cx)).await {
                Ok(Some(piece)) => {
                    self.incoming.add(&piece)?;
                    self.incoming.charge.set(self.incoming.held());
                }
                Ok(None) => {
                    self.is_over = true;
                    self.incoming.end()?;
                }
                Err(error) => return Err(failed(error)),
            }
        }
    }
}
