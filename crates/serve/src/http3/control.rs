//! Streams that a client opens in one direction: its control stream, those of QPACK, and whatever
//! else there may be, which is refused (RFC 9114, section 6.2).

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::{Buf, Bytes};
use quinn::{ReadError, RecvStream};

use super::frame::{
    CANCEL_PUSH, Code, DATA, GOAWAY, HEADERS, MAX_PUSH_ID, Number, PUSH_PROMISE, SETTINGS,
    is_of_http2,
};

const CONTROL: u64 = 0;
const PUSH: u64 = 1;
const ENCODER: u64 = 2;
const DECODER: u64 = 3;

/// Bytes that are read of a stream at a time.
const READ: usize = 4 << 10;
/// Bytes of a frame of settings: each of a hundred settings has room.
const LONGEST_SETTINGS: u64 = 2 << 10;
/// Bytes of a frame with a number.
const LONGEST_NUMBER: u64 = 8;
/// Frames on the control stream that a client may send, and as many more for each request: it may
/// change the priority of one now and then (RFC 9218, section 7).
const FRAMES: u64 = 1000;
const FRAMES_PER_REQUEST: u64 = 10;
/// A client's first octet on QPACK's streams that is no instruction without a dynamic table: the
/// new size of one is, which must be 0, and the end of a stream whose fields are not wanted (RFC
/// 9204, sections 4.3.1 and 4.4.2).
const NO_CAPACITY: u8 = 0x20;
const STREAM_CANCELLATION: u8 = 0x40;

/// The streams that a client opens once.
#[derive(Debug, Default)]
pub(super) struct Streams {
    control: AtomicBool,
    encoder: AtomicBool,
    decoder: AtomicBool,
    pub(super) requests: AtomicU64,
}

/// Why a stream was not read on.
enum Ended {
    /// The client has ended it, or the connection.
    Closed,
    Broken(Code),
}

impl From<Code> for Ended {
    fn from(code: Code) -> Self {
        Self::Broken(code)
    }
}

struct Reader {
    stream: RecvStream,
    bytes: Bytes,
    number: Number,
}

impl Reader {
    /// Waits for more.
    async fn fill(&mut self) -> Result<(), Ended> {
        match self.stream.read_chunk(READ, true).await {
            Ok(Some(chunk)) => {
                self.bytes = chunk.bytes;
                Ok(())
            }
            Ok(None) | Err(ReadError::Reset(_)) => Err(Ended::Closed),
            Err(_) => std::future::pending().await, // the connection's task sees it, too
        }
    }

    async fn number(&mut self) -> Result<u64, Ended> {
        loop {
            if let Some(number) = self.number.take(&mut self.bytes) {
                return Ok(number);
            }
            self.fill().await?;
        }
    }

    /// The next octet, which stays.
    async fn peek(&mut self) -> Result<u8, Ended> {
        while self.bytes.is_empty() {
            self.fill().await?;
        }
        Ok(self.bytes[0])
    }

    async fn take(&mut self, length: u64) -> Result<Bytes, Ended> {
        let mut taken = Vec::new();
        while (taken.len() as u64) < length {
            self.peek().await?;
            let left = usize::try_from(length).unwrap_or(usize::MAX) - taken.len();
            taken.extend_from_slice(&self.bytes.split_to(left.min(self.bytes.len())));
        }
        Ok(taken.into())
    }

    async fn skip(&mut self, mut length: u64) -> Result<(), Ended> {
        while length > 0 {
            self.peek().await?;
            let skip = usize::try_from(length).unwrap_or(usize::MAX);
            let skip = skip.min(self.bytes.len());
            self.bytes.advance(skip);
            length -= skip as u64;
        }
        Ok(())
    }

    /// The number that is all of a frame's content.
    async fn only_number(&mut self, length: u64) -> Result<u64, Ended> {
        if length > LONGEST_NUMBER {
            return Err(Code::FRAME_ERROR.into());
        }
        let mut content = self.take(length).await?;
        let number = Number::default().take(&mut content);
        match number {
            Some(number) if content.is_empty() => Ok(number),
            _ => Err(Code::FRAME_ERROR.into()),
        }
    }
}

impl Streams {
    /// Reads a stream to its end, whose type must come in time.
    ///
    /// # Errors
    ///
    /// The code that the connection is to end with.
    pub(super) async fn read(&self, stream: RecvStream, patience: Duration) -> Result<(), Code> {
        let mut reader = Reader {
            stream,
            bytes: Bytes::new(),
            number: Number::default(),
        };
        let kind = tokio::time::timeout(patience, reader.number()).await;
        let Ok(Ok(kind)) = kind else {
            // It may end before it says what it is.
            _ = reader.stream.stop(Code::STREAM_CREATION_ERROR.into());
            return Ok(());
        };
        let once = |is_there: &AtomicBool| {
            if is_there.swap(true, Ordering::Relaxed) {
                return Err(Code::STREAM_CREATION_ERROR);
            }
            Ok(())
        };
        let ended = match kind {
            CONTROL => {
                once(&self.control)?;
                self.control(&mut reader).await
            }
            ENCODER => {
                once(&self.encoder)?;
                encoder(&mut reader).await
            }
            DECODER => {
                once(&self.decoder)?;
                decoder(&mut reader).await
            }
            PUSH => return Err(Code::STREAM_CREATION_ERROR), // only servers push
            _ => {
                _ = reader.stream.stop(Code::STREAM_CREATION_ERROR.into()); // it has ended
                return Ok(());
            }
        };
        match ended {
            Ended::Closed => Err(Code::CLOSED_CRITICAL_STREAM),
            Ended::Broken(code) => Err(code),
        }
    }

    async fn control(&self, reader: &mut Reader) -> Ended {
        match self.frames(reader).await {
            Ok(never) => match never {},
            Err(ended) => ended,
        }
    }

    async fn frames(&self, reader: &mut Reader) -> Result<std::convert::Infallible, Ended> {
        if reader.number().await? != SETTINGS {
            return Err(Code::MISSING_SETTINGS.into());
        }
        let length = reader.number().await?;
        if length > LONGEST_SETTINGS {
            return Err(Code::EXCESSIVE_LOAD.into());
        }
        settings(reader.take(length).await?)?;
        let (mut count, mut most_pushes, mut last) = (0, 0, u64::MAX);
        loop {
            let kind = reader.number().await?;
            count += 1;
            let requests = self.requests.load(Ordering::Relaxed);
            if count > FRAMES + FRAMES_PER_REQUEST * requests {
                return Err(Code::EXCESSIVE_LOAD.into());
            }
            let length = reader.number().await?;
            match kind {
                DATA | HEADERS | SETTINGS | PUSH_PROMISE => {
                    return Err(Code::FRAME_UNEXPECTED.into());
                }
                kind if is_of_http2(kind) => return Err(Code::FRAME_UNEXPECTED.into()),
                // Nothing is pushed here.
                CANCEL_PUSH => {
                    reader.only_number(length).await?;
                    return Err(Code::ID_ERROR.into());
                }
                MAX_PUSH_ID => {
                    let most = reader.only_number(length).await?;
                    if most < most_pushes {
                        return Err(Code::ID_ERROR.into());
                    }
                    most_pushes = most;
                }
                GOAWAY => {
                    let push = reader.only_number(length).await?;
                    if push > last {
                        return Err(Code::ID_ERROR.into());
                    }
                    last = push;
                }
                _ => reader.skip(length).await?,
            }
        }
    }
}

/// Judges the client's settings, of which none changes what it is sent.
fn settings(mut content: Bytes) -> Result<(), Code> {
    let mut seen = BTreeSet::new();
    let mut number = Number::default();
    while !content.is_empty() {
        let name = number.take(&mut content).ok_or(Code::FRAME_ERROR)?;
        number.take(&mut content).ok_or(Code::FRAME_ERROR)?;
        // Settings of HTTP/2 (RFC 9114, section 7.2.4.1).
        if matches!(name, 2..=5) || !seen.insert(name) {
            return Err(Code::SETTINGS_ERROR);
        }
    }
    Ok(())
}

async fn encoder(reader: &mut Reader) -> Ended {
    loop {
        match reader.peek().await {
            Ok(NO_CAPACITY) => reader.bytes.advance(1),
            Ok(_) => return Code::QPACK_ENCODER_STREAM_ERROR.into(),
            Err(ended) => return ended,
        }
    }
}

async fn decoder(reader: &mut Reader) -> Ended {
    loop {
        match reader.peek().await {
            Ok(first) if first & 0xc0 == STREAM_CANCELLATION => {}
            Ok(_) => return Code::QPACK_DECODER_STREAM_ERROR.into(),
            Err(ended) => return ended,
        }
        if let Err(ended) = reader.skip_prefixed().await {
            return ended;
        }
    }
}

impl Reader {
    /// Passes over a number in six bits and as many octets as it needs.
    async fn skip_prefixed(&mut self) -> Result<(), Ended> {
        const ALL: u8 = 0x3f;
        let first = self.peek().await?;
        self.bytes.advance(1);
        if first & ALL != ALL {
            return Ok(());
        }
        for _ in 0..LONGEST_NUMBER {
            let more = self.peek().await? & 0x80 != 0;
            self.bytes.advance(1);
            if !more {
                return Ok(());
            }
        }
        Err(Code::QPACK_DECODER_STREAM_ERROR.into())
    }
}
