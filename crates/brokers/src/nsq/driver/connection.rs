//! One connection to nsqd: commands out, frames in.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes};
use serde::Deserialize;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader, ReadHalf, WriteHalf, split};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::broker::BrokerError;
use crate::broker::tls::{Stream, encrypt};
use crate::nsq::settings::NsqServer;

/// Any job that may be pushed is shorter, with its headers.
const LONGEST_FRAME: u32 = 64 << 20;
/// An answer that is no message is shorter.
const LONGEST_TEXT: u32 = 64 << 10;
/// A message begins with this: when it was pushed, how often it was sent, and its ID.
const HEAD: u32 = 26;
const BEFORE_ID: usize = 8 + 2;
pub(super) const ID: usize = 16;

const RESPONSE: u32 = 0;
const ERROR: u32 = 1;
const MESSAGE: u32 = 2;

/// Nsqd waits for so long to hear of a message before somebody else gets it; also when the
/// connection is gone.
const MESSAGE_TIMEOUT: Duration = if cfg!(test) {
    Duration::from_secs(4)
} else {
    Duration::from_secs(60)
};
const HEARTBEAT: Duration = Duration::from_secs(15);

pub(super) struct Reader {
    stream: BufReader<ReadHalf<Box<dyn Stream>>>,
}

pub(super) struct Writer {
    stream: WriteHalf<Box<dyn Stream>>,
    patience: Duration,
}

/// The settings that nsqd tells of itself.
#[derive(Debug, Deserialize)]
pub(super) struct Limits {
    /// How many messages a client may have at a time.
    pub(super) max_rdy_count: usize,
    /// It goes on with encryption.
    #[serde(default)]
    tls_v1: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Frame {
    Response(Bytes),
    Error(String),
    Message { id: [u8; ID], body: Bytes },
}

/// Connects, and says who it is. Only one that consumes is asked now and then whether it lives:
/// what is not read would fill the buffers of the other one.
pub(super) async fn open(
    server: &NsqServer,
    place: &str,
    consumes: bool,
) -> Result<(Reader, Writer, Limits), BrokerError> {
    let patience = server.dial_timeout + server.read_timeout;
    let opening = timeout(patience, introduce(server, place, consumes));
    let (stream, limits) = opening.await.map_err(|_| late())??;
    let (reading, writing) = split(stream);
    let reader = Reader {
        stream: BufReader::new(reading),
    };
    let writer = Writer {
        stream: writing,
        patience: server.write_timeout,
    };
    Ok((reader, writer, limits))
}

async fn introduce(
    server: &NsqServer,
    place: &str,
    consumes: bool,
) -> Result<(Box<dyn Stream>, Limits), BrokerError> {
    let connecting = timeout(server.dial_timeout, TcpStream::connect(place));
    let mut stream = connecting.await.map_err(|_| late())??;
    stream.set_nodelay(true)?;
    let heartbeat = if consumes {
        pronghorn_base::millis(HEARTBEAT).cast_signed()
    } else {
        -1
    };
    let identity = serde_json::json!({
        "client_id": "pronghorn",
        "user_agent": "pronghorn",
        "feature_negotiation": true,
        "heartbeat_interval": heartbeat,
        "msg_timeout": pronghorn_base::millis(MESSAGE_TIMEOUT),
        "tls_v1": server.tls.is_some(),
    });
    let mut bytes = b"  V2".to_vec();
    bytes.extend(command("IDENTIFY", Some(identity.to_string().as_bytes())));
    stream.write_all(&bytes).await?;
    let limits: Limits = match read_frame(&mut stream).await? {
        Frame::Response(json) => serde_json::from_slice(&json)
            .map_err(|error| BrokerError::Lost(format!("it is no nsqd: {error}")))?,
        other => return Err(other.unexpected()),
    };
    let Some(tls) = &server.tls else {
        return Ok((Box::new(stream), limits));
    };
    if !limits.tls_v1 {
        let why = "it has no certificate (`-tls-cert`, `-tls-key`), and `nsq.tls` asks for one";
        return Err(BrokerError::Refused(why.to_owned()));
    }
    let host = place.rsplit_once(':').map_or(place, |(host, _)| host);
    let mut stream = encrypt(tls, host, stream).await?;
    match read_frame(&mut stream).await? {
        Frame::Response(text) if &text[..] == b"OK" => Ok((Box::new(stream), limits)),
        other => Err(other.unexpected()),
    }
}

/// A command, with bytes that go with it.
pub(super) fn command(line: &str, body: Option<&[u8]>) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(line.len() + 5 + body.map_or(0, <[u8]>::len));
    bytes.extend_from_slice(line.as_bytes());
    bytes.push(b'\n');
    if let Some(body) = body {
        bytes.extend_from_slice(&length(body.len()));
        bytes.extend_from_slice(body);
    }
    bytes
}

/// nsqd refuses what is longer than this can say.
pub(super) fn length(length: usize) -> [u8; 4] {
    u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes()
}

impl Writer {
    pub(super) async fn write(&mut self, bytes: &[u8]) -> Result<(), BrokerError> {
        let written = timeout(self.patience, self.stream.write_all(bytes));
        Ok(written.await.map_err(|_| late())??)
    }
}

impl Reader {
    /// The answer to a command.
    pub(super) async fn answer(&mut self, patience: Duration) -> Result<Frame, BrokerError> {
        let frame = timeout(patience, read_frame(&mut self.stream));
        Ok(frame.await.map_err(|_| late())??)
    }

    /// A frame, and the room that it takes until that is dropped. Waits for ever: for the frame,
    /// and then for the room. One that was begun and is dropped leaves the connection of no use.
    pub(super) async fn frame(&mut self, room: &Arc<Semaphore>) -> io::Result<(Frame, Room)> {
        let head = FrameHead::read(&mut self.stream).await?;
        let taken = room.clone().acquire_many_owned(head.length).await;
        let taken = taken.map_err(io::Error::other)?;
        Ok((head.read_rest(&mut self.stream).await?, taken))
    }
}

/// The room of a frame: as many permits as it has bytes.
pub(super) type Room = OwnedSemaphorePermit;

/// The beginning of a frame, whose length was checked.
struct FrameHead {
    kind: u32,
    length: u32,
}

async fn read_frame(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Frame> {
    FrameHead::read(stream).await?.read_rest(stream).await
}

impl FrameHead {
    async fn read(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Self> {
        let mut head = [0; 8];
        stream.read_exact(&mut head).await?;
        let (mut length, mut kind) = (&head[..4], &head[4..]);
        let (length, kind) = (length.get_u32(), kind.get_u32());
        if !(4..=LONGEST_FRAME).contains(&length) {
            return Err(broken(format!("it sent a frame of {length} bytes")));
        }
        let length = length - 4;
        match kind {
            RESPONSE | ERROR if length > LONGEST_TEXT => {
                Err(broken(format!("it sent an answer of {length} bytes")))
            }
            MESSAGE if length < HEAD => Err(broken(format!("it sent a message of {length} bytes"))),
            RESPONSE | ERROR | MESSAGE => Ok(Self { kind, length }),
            _ => Err(broken(format!("it sent a frame of type {kind}"))),
        }
    }

    async fn read_rest(self, stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Frame> {
        let mut data = vec![0; usize::try_from(self.length).unwrap_or(usize::MAX)];
        stream.read_exact(&mut data).await?;
        let mut data = Bytes::from(data);
        Ok(match self.kind {
            RESPONSE => Frame::Response(data),
            ERROR => Frame::Error(String::from_utf8_lossy(&data).into_owned()),
            _ => {
                data.advance(BEFORE_ID);
                let mut id = [0; ID];
                data.copy_to_slice(&mut id);
                Frame::Message { id, body: data }
            }
        })
    }
}

impl Frame {
    /// A connection with such an answer is of no use.
    pub(super) fn unexpected(&self) -> BrokerError {
        BrokerError::Lost(match self {
            Self::Response(text) => format!("it answered `{}`", String::from_utf8_lossy(text)),
            Self::Error(text) => format!("it answered `{text}`"),
            Self::Message { .. } => "it sent a message that nobody has asked for".to_owned(),
        })
    }
}

fn broken(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

pub(super) fn late() -> BrokerError {
    BrokerError::Lost("it did not answer in time".to_owned())
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    async fn read(bytes: &[u8]) -> io::Result<Frame> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap())
            .await
            .unwrap();
        client.write_all(bytes).await.unwrap();
        drop(client);
        read_frame(&mut listener.accept().await.unwrap().0).await
    }

    fn frame(kind: u32, data: &[u8]) -> Vec<u8> {
        let mut bytes = length(data.len() + 4).to_vec();
        bytes.extend(kind.to_be_bytes());
        bytes.extend(data);
        bytes
    }

    #[tokio::test]
    async fn frames_are_read() {
        let response = read(&frame(RESPONSE, b"OK")).await.unwrap();
        assert_eq!(response, Frame::Response(Bytes::from_static(b"OK")));
        let error = read(&frame(ERROR, b"E_BAD")).await.unwrap();
        assert_eq!(error, Frame::Error("E_BAD".to_owned()));
        let message = read(&frame(MESSAGE, b"12345678ab0123456789abcdefbody")).await;
        let id = *b"0123456789abcdef";
        let body = Bytes::from_static(b"body");
        assert_eq!(message.unwrap(), Frame::Message { id, body });
    }

    #[tokio::test]
    async fn broken_frames_end_the_connection() {
        for bytes in [
            Vec::new(),
            vec![0; 3],
            vec![0; 8],
            frame(3, b""),
            frame(MESSAGE, &[0; 25]),
            frame(RESPONSE, &vec![0; LONGEST_TEXT as usize + 1]),
            vec![0xff; 8],
            frame(RESPONSE, b"OK")[..9].to_vec(),
        ] {
            assert!(read(&bytes).await.is_err(), "{bytes:?}");
        }
    }

    #[tokio::test]
    async fn a_message_waits_until_there_is_room_for_it() {
        let (mut far, near) = tokio::io::duplex(1 << 16);
        let (reading, _writing) = split(Box::new(near) as Box<dyn Stream>);
        let stream = BufReader::new(reading);
        let mut reader = Reader { stream };
        let message = frame(MESSAGE, &[b'1'; 40]);
        far.write_all(&message.repeat(2)).await.unwrap();
        let room = Arc::new(Semaphore::new(60));
        let (_, first) = reader.frame(&room).await.unwrap();
        let next = reader.frame(&room);
        tokio::pin!(next);
        let early = timeout(Duration::from_millis(50), &mut next).await;
        assert!(early.is_err(), "the first one has the room");
        drop(first);
        let (_, _second) = next.await.unwrap();
    }
}
