//! Which kind of worker a process is: whoever answers the server's first frame decides.

use std::io;
use std::pin::Pin;

use bytes::Bytes;
use pronghorn_wire::frame::{Flags, Stream, encode_plain};
use pronghorn_wire::native;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::boot::output::Output;
use crate::relay::incoming::{Incoming, Item};

/// Of Linux: no other signal has a number with it, and none of the others may be sent because a worker says so.
const REAL_TIME: std::ops::RangeInclusive<i32> = 32..=64;

/// A worker that answered.
#[derive(Debug)]
pub(crate) struct Announcement {
    pub(crate) pid: u32,
    pub(crate) native: bool,
    /// It goes on in shared memory, or why not although it was offered.
    pub(crate) ring: Option<Result<(), String>>,
    /// The signal by which a call of it can be ended.
    pub(crate) deadline_signal: Option<i32>,
    /// What had been read behind its answer.
    pub(crate) leftover: Vec<u8>,
}

/// Why an answer is none.
#[derive(Debug)]
pub(crate) enum Refusal {
    Protocol(String),
    /// The way is closed.
    Io(io::Error),
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Sends the server's number and waits for the worker's. Text before it goes to `output` when the channel carries both.
pub(crate) async fn shake_hands<C: AsyncRead + AsyncWrite + Unpin>(
    channel: &mut C,
    text: Option<&Output>,
) -> Result<Announcement, Refusal> {
    say_pid(Pin::new(&mut *channel)).await?;
    listen(channel, text).await
}

/// The server's half. `native` in it tells our SDK which version to speak; others pass over it.
pub(crate) async fn say_pid<W: AsyncWrite + Unpin>(mut channel: W) -> io::Result<()> {
    let mut frame = Vec::with_capacity(64);
    let pid = format!(
        r#"{{"pid":{},"native":{}}}"#,
        std::process::id(),
        native::VERSION
    );
    encode_plain(
        &mut frame,
        Flags::CONTROL.with(Flags::JSON),
        Stream::END,
        pid.as_bytes(),
    );
    channel.write_all(&frame).await
}

/// The worker's half.
pub(crate) async fn listen<R: AsyncRead + Unpin>(
    channel: &mut R,
    text: Option<&Output>,
) -> Result<Announcement, Refusal> {
    let mut incoming = Incoming::default();
    loop {
        match incoming.next() {
            Ok(Some(Item::Frame { header, body, .. })) if header.flags.has(Flags::CONTROL) => {
                let mut announcement = read_announcement(&Bytes::from(body))?;
                announcement.leftover = incoming.into_rest();
                return Ok(announcement);
            }
            Ok(Some(_)) => {
                return Err(Refusal::Protocol(
                    "its first frame does not announce it".into(),
                ));
            }
            Ok(None) => {
                if channel.read_buf(incoming.room()).await? == 0 {
                    return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
                }
            }
            Err(garbage) => match text {
                Some(output) if incoming.holds_text() => incoming
                    .skip_text()
                    .lines()
                    .for_each(|line| output.line(line)),
                Some(_) | None => return Err(Refusal::Protocol(garbage.0)),
            },
        }
    }
}

fn read_announcement(body: &[u8]) -> Result<Announcement, Refusal> {
    let refuse = |why: &str| Refusal::Protocol(format!("it announced itself with {why}"));
    let said: Value = serde_json::from_slice(body)
        .map_err(|error| refuse(&format!("JSON that can't be read ({error})")))?;
    let pid = said
        .get("pid")
        .and_then(Value::as_u64)
        .and_then(|pid| u32::try_from(pid).ok());
    let pid = pid
        .filter(|pid| *pid > 0)
        .ok_or_else(|| refuse("no process number"))?;
    let native = match said.get("codec").and_then(Value::as_str) {
        None => false,
        Some("native") => true,
        Some(other) => {
            return Err(refuse(&format!(
                "codec `{other}`, only `native` can be announced"
            )));
        }
    };
    if native {
        let version = said
            .get("version")
            .and_then(Value::as_u64)
            .unwrap_or_default();
        if version != u64::from(native::VERSION) {
            return Err(Refusal::Protocol(format!(
                "its SDK speaks version {version} of the native codec, this server speaks {}: use a matching release of pronghorn/worker",
                native::VERSION
            )));
        }
    }
    let ring = said.get("ring").and_then(Value::as_bool).map(|taken| {
        if taken {
            return Ok(());
        }
        let why = said.get("why").and_then(Value::as_str);
        Err(why.unwrap_or("it does not say why").to_owned())
    });
    let signal = said.get("deadline_signal").and_then(Value::as_i64);
    let signal = signal.and_then(|signal| i32::try_from(signal).ok());
    Ok(Announcement {
        pid,
        native,
        ring,
        deadline_signal: signal.filter(|signal| REAL_TIME.contains(signal)),
        leftover: Vec::new(),
    })
}
