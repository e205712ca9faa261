//! Calls of bytes, answered by bytes: for services that bring what they ask their workers in a
//! shape of their own.

use std::io;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use pronghorn_base::{micros, since_1970};
use pronghorn_wire::native::{self, Envelope};
use pronghorn_wire::{Codec, DecodeError, Head};
use thiserror::Error;
use tokio::time::Instant;

use crate::call::{
    Answer, Body, CallError, Encoding, Payload, Reply, ReplyBody, Terms, Unencodable,
};
use crate::observer::Observer;
use crate::pieces::NotWhole;
use crate::pool::Pool;

/// Bytes that a worker is asked with.
#[derive(Debug, Clone)]
pub struct RawCall {
    /// How records name it.
    pub name: String,
    pub body: Bytes,
    /// Whether it may be given to a second worker after the first one died with it.
    pub repeatable: bool,
}

/// Why there are no bytes in answer to a raw call.
#[derive(Debug, Error)]
pub enum RawError {
    #[error(transparent)]
    Call(#[from] CallError),
    #[error("the answer is longer than {0} bytes")]
    TooLong(usize),
    /// It named a file, for instance.
    #[error("the answer is not made of bytes")]
    NoBytes,
    #[error("the answer broke off")]
    BrokenOff,
    #[error("the answer cannot be read back: {0}")]
    Unreadable(#[from] io::Error),
}

impl RawCall {
    /// Asks a pool, and waits for an answer of at most so many bytes.
    ///
    /// # Errors
    ///
    /// When there is none, or it is longer.
    pub async fn ask(self, pool: &Pool, terms: Terms, most: usize) -> Result<Bytes, RawError> {
        let now = Instant::now();
        let mut pending = pool.call(Arc::new(self), terms, now, now);
        loop {
            match pending.answer().await? {
                Answer::Interim(_) => {}
                Answer::Reply(reply) => return whole(*reply, most).await,
            }
        }
    }
}

async fn whole(reply: Reply, most: usize) -> Result<Bytes, RawError> {
    match reply.body {
        ReplyBody::Whole(content) if content.len() > most => Err(RawError::TooLong(most)),
        ReplyBody::Whole(content) => Ok(content.into()),
        ReplyBody::File(_) => Err(RawError::NoBytes),
        ReplyBody::Pieces { pieces, .. } => pieces.whole(most).await.map_err(RawError::from),
    }
}

impl From<NotWhole> for RawError {
    fn from(why: NotWhole) -> Self {
        match why {
            NotWhole::TooLong(most) => Self::TooLong(most),
            NotWhole::BrokenOff => Self::BrokenOff,
            NotWhole::Unreadable(error) => Self::Unreadable(error),
        }
    }
}

impl Payload for RawCall {
    fn encode(&self, encoding: Encoding, out: &mut Vec<u8>) -> Result<Body, Unencodable> {
        match encoding {
            Encoding::Frame(Codec::Native, terms) => {
                let envelope = Envelope {
                    call: terms.number,
                    time_left_ms: terms.time_left_ms,
                    ..Envelope::default()
                };
                let now = micros(since_1970(SystemTime::now()));
                native::encode_raw(out, now, envelope);
            }
            // The official packages take any context, also an empty one.
            Encoding::Frame(Codec::Json | Codec::Proto, _) => {}
            Encoding::Variables => return Err(Unencodable::for_no_script()),
        }
        Ok(Body::Bytes(self.body.clone()))
    }

    fn decode_head(&self, codec: Codec, context: &Bytes) -> Result<Head, DecodeError> {
        Head::decode_raw(codec, context)
    }

    fn repeatable(&self) -> bool {
        self.repeatable
    }

    fn describe(&self) -> String {
        self.name.clone()
    }
}

impl Observer for RawCall {}
