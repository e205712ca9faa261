//! Which kind of worker a process is: whoever answers the server's first frame decides.

use std::io;
use std::pin::Pin;

use bytes::Bytes;
use pronghorn_wire::Kind;
use pronghorn_wire::frame::{Flags, Stream, encode_plain};
use pronghorn_wire::native;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::output::Output;
use pronghorn_pool::transport::{Incoming, Item};

/// Of Linux, without the two that the C library keeps for itself: no other signal has a number with
/// it, and none of the others may be sent because a worker says so.
const REAL_TIME: std::ops::RangeInclusive<i64> = 34..=64;

/// A worker that answered.
#[derive(Debug)]
pub(crate) struct Announcement {
    pub(crate) pid: u32,
    pub(crate) native: bool,
    /// The kinds of calls that it answers.
    kinds: Vec<String>,
    /// It goes on in shared memory, or why not although it was offered.
    pub(crate) ring: Option<Result<(), String>>,
    /// The signal by which a call of it can be ended.
    pub(crate) deadline_signal: Option<i32>,
    /// Which settings of PHP it has, by their digest.
    pub(crate) settings: Option<String>,
    /// What had been read behind its answer.
    pub(crate) leftover: Vec<u8>,
}

impl Announcement {
    /// What is in the way of giving it such calls.
    pub(crate) fn cannot_answer(&self, kind: Kind) -> Option<String> {
        let answers = |kind: Kind| self.kinds.iter().any(|it| it == kind.name());
        if answers(kind) {
            return None;
        }
        let hint = match kind {
            Kind::Script => "a worker script runs in a pool with `mode: worker`",
            Kind::Http if answers(Kind::Script) => {
                "scripts below a root run in a pool with `mode: classic`"
            }
            Kind::Http => "give it a function for them with `$worker->onRequest(…)`",
            Kind::Raw => "give it a function for them with `$worker->onRaw(…)`",
            Kind::Job => "give it a function for them with `$worker->onJob(…)`",
            Kind::Tcp => "give it a function for them with `$worker->onTcp(…)`",
            Kind::Grpc => "give it the services with `$worker->onGrpc(…)`",
            Kind::Centrifugo => "`roadrunner-php/centrifugo` answers them",
        };
        let kinds = match &*self.kinds {
            [] => "no calls".to_owned(),
            kinds => format!("calls of kind `{}`", kinds.join("`, `")),
        };
        Some(format!(
            "it answers {kinds}, and those of this pool are of kind `{kind}`: {hint}"
        ))
    }

    /// The signal by which a call of it can be ended: nothing where another process announced
    /// itself than the one that signals go to, such as one behind a shell.
    pub(crate) fn signal_of(&self, pid: u32) -> Option<i32> {
        self.deadline_signal.filter(|_| self.pid == pid)
    }
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

/// Sends the server's number and waits for the worker's. Text before it goes to `output` when the
/// channel carries both.
pub(crate) async fn shake_hands<C: AsyncRead + AsyncWrite + Unpin>(
    channel: &mut C,
    text: Option<&Output>,
) -> Result<Announcement, Refusal> {
    say_pid(Pin::new(&mut *channel)).await?;
    listen(channel, text).await
}

/// The server's half. `native` in it tells our SDK which version to speak, `methods` that it may
/// ask; others pass over both.
pub(crate) async fn say_pid<W: AsyncWrite + Unpin>(mut channel: W) -> io::Result<()> {
    let mut frame = Vec::with_capacity(64);
    let pid = format!(
        r#"{{"pid":{},"native":{},"methods":true}}"#,
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
                Some(output) if incoming.holds_text() => {
                    let (text, _) = incoming.skip_text();
                    text.lines().for_each(|line| output.text(line));
                }
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
    let kinds = match said.get("kinds") {
        None => vec![Kind::Http.name().to_owned()],
        Some(said) => kinds(said).ok_or_else(|| refuse("`kinds` that are no list of names"))?,
    };
    let signal = match said.get("deadline_signal") {
        None => None,
        Some(said) => Some(deadline_signal(said).ok_or_else(|| {
            refuse("a `deadline_signal` that is none of the real-time signals 34 to 64")
        })?),
    };
    Ok(Announcement {
        pid,
        native,
        kinds,
        ring,
        deadline_signal: signal,
        settings: said
            .get("settings")
            .and_then(Value::as_str)
            .map(str::to_owned),
        leftover: Vec::new(),
    })
}

fn kinds(said: &Value) -> Option<Vec<String>> {
    let kinds = said.as_array()?.iter();
    kinds.map(|kind| kind.as_str().map(str::to_owned)).collect()
}

fn deadline_signal(said: &Value) -> Option<i32> {
    let signal = said.as_i64().filter(|it| REAL_TIME.contains(it))?;
    i32::try_from(signal).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn announced(more: &str) -> Result<Announcement, String> {
        let body = format!(r#"{{"pid":7,"codec":"native","version":1{more}}}"#);
        read_announcement(&Bytes::from(body)).map_err(|refusal| format!("{refusal:?}"))
    }

    #[test]
    fn a_worker_gets_the_calls_that_it_answers() {
        for (more, http, script, raw) in [
            ("", true, false, false),
            (r#","kinds":["http"]"#, true, false, false),
            (r#","kinds":["script"]"#, false, true, false),
            (r#","kinds":["jobs","http"]"#, true, false, false),
            (r#","kinds":["raw","http"]"#, true, false, true),
            (r#","kinds":[]"#, false, false, false),
        ] {
            let answer = announced(more).unwrap();
            assert_eq!(answer.cannot_answer(Kind::Http).is_none(), http, "{more}");
            assert_eq!(
                answer.cannot_answer(Kind::Script).is_none(),
                script,
                "{more}"
            );
            assert_eq!(answer.cannot_answer(Kind::Raw).is_none(), raw, "{more}");
        }
        for (kinds, of_pool, hint) in [
            (
                "script",
                Kind::Http,
                "of kind `script`, and those of this pool are of kind `http`: scripts below a root run in a pool with `mode: classic`",
            ),
            (
                "raw",
                Kind::Http,
                "of kind `http`: give it a function for them with `$worker->onRequest(…)`",
            ),
            (
                "http",
                Kind::Raw,
                "of kind `raw`: give it a function for them with `$worker->onRaw(…)`",
            ),
            (
                "http",
                Kind::Job,
                "of kind `job`: give it a function for them with `$worker->onJob(…)`",
            ),
            (
                "http",
                Kind::Grpc,
                "of kind `grpc`: give it the services with `$worker->onGrpc(…)`",
            ),
            (
                "http",
                Kind::Centrifugo,
                "of kind `centrifugo`: `roadrunner-php/centrifugo` answers them",
            ),
            (
                "http",
                Kind::Script,
                "of kind `script`: a worker script runs in a pool with `mode: worker`",
            ),
        ] {
            let answer = announced(&format!(r#","kinds":["{kinds}"]"#)).unwrap();
            let why = answer.cannot_answer(of_pool).unwrap();
            assert!(why.ends_with(hint), "{why}");
        }
        for wrong in [r#","kinds":"http""#, r#","kinds":[1]"#, r#","kinds":null"#] {
            assert!(announced(wrong).unwrap_err().contains("`kinds`"), "{wrong}");
        }
    }

    #[test]
    fn only_real_time_signals_are_sent_and_only_to_who_announced_them() {
        for good in [34, 44, 64] {
            let answer = announced(&format!(r#","deadline_signal":{good}"#)).unwrap();
            assert_eq!(answer.signal_of(7), Some(good));
            assert_eq!(answer.signal_of(8), None, "behind a shell");
        }
        assert_eq!(announced("").unwrap().signal_of(7), None);
        for wrong in [
            "9",
            "0",
            "-1",
            "32",
            "33",
            "65",
            "4294967340",
            "44.5",
            "\"44\"",
            "null",
        ] {
            let refused = announced(&format!(r#","deadline_signal":{wrong}"#)).unwrap_err();
            assert!(refused.contains("34 to 64"), "{wrong}");
        }
    }

    #[test]
    fn a_number_of_a_process_is_one() {
        for wrong in ["0", "-1", "4294967296", "\"7\"", "null", "7.5"] {
            let body = format!(r#"{{"pid":{wrong}}}"#);
            assert!(read_announcement(&Bytes::from(body)).is_err(), "{wrong}");
        }
    }
}
