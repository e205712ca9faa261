//! Calls that the process which has taken over carries out for this one, while clients and workers
//! of this one come to their end. The two have a connection of their own.

use std::collections::HashMap;
use std::io;
use std::os::unix::net::UnixStream as StdStream;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use pronghorn_base::{Standings, lock};
use pronghorn_plugin_api::rpc::{Calling, Encoding, Failure, Forward, Methods};
use pronghorn_wire::frame::Flags;
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::codec::Codec;
use crate::connection::{Incoming, serve};
use crate::reply::frame;
use crate::room::REPLIES_UNREAD;
use crate::server::{BYTES_UNDER_WAY, CALLS_PER_CONNECTION, Shared as Server};

/// Longer than the methods take that wait for somebody: a minute.
const LONGEST: Duration = Duration::from_secs(90);

/// The other process, for calls. Dropped, it is not called any more.
#[derive(Debug)]
pub struct Successor {
    shared: Arc<Shared>,
    _tasks: JoinSet<()>,
}

#[derive(Debug)]
struct Shared {
    /// Frames, each of which is written to its end whether or not its caller waits.
    frames: mpsc::Sender<Vec<u8>>,
    waiting: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    number: u32,
    /// By the numbers of their calls. None once the other process is gone.
    callers: Option<HashMap<u32, oneshot::Sender<Result<Bytes, Failure>>>>,
}

impl Successor {
    /// At the other end, [`answer_predecessor`] has to be at work. On the runtime that this is
    /// called on.
    ///
    /// # Errors
    ///
    /// When the runtime can't have the socket.
    pub fn new(stream: StdStream) -> io::Result<Self> {
        let (reader, writer) = to_tokio(stream)?.into_split();
        let waiting = Waiting {
            number: 0,
            callers: Some(HashMap::new()),
        };
        let (frames, outbox) = mpsc::channel(CALLS_PER_CONNECTION);
        let shared = Arc::new(Shared {
            frames,
            waiting: Mutex::new(waiting),
        });
        let mut tasks = JoinSet::new();
        tasks.spawn(read(reader, shared.clone()));
        tasks.spawn(write(writer, outbox));
        Ok(Self {
            shared,
            _tasks: tasks,
        })
    }

    /// Has calls carried out there.
    pub fn forward(self) -> Forward {
        let this = Arc::new(self);
        Arc::new(move |method: &str, encoding, argument| -> Calling {
            let (this, method) = (this.clone(), method.to_owned());
            Box::pin(async move {
                let answer = timeout(LONGEST, this.shared.call(&method, encoding, argument));
                answer.await.unwrap_or_else(|_| Err(gone()))
            })
        })
    }
}

fn gone() -> Failure {
    Failure::new("another process has taken over and does not answer: try again")
}

impl Shared {
    async fn call(
        &self,
        method: &str,
        encoding: Encoding,
        argument: Bytes,
    ) -> Result<Bytes, Failure> {
        let (sender, answer) = oneshot::channel();
        let number = {
            let mut waiting = lock(&self.waiting);
            waiting.number = waiting.number.wrapping_add(1);
            let number = waiting.number;
            let callers = waiting.callers.as_mut().ok_or_else(gone)?;
            callers.retain(|_, caller| !caller.is_closed());
            callers.insert(number, sender);
            number
        };
        let mut bytes = Vec::new();
        let flags = Codec::from(encoding).flags();
        let head = frame(&mut bytes, flags, number, method.as_bytes(), argument.len());
        head.ok_or_else(|| Failure::new("the call is longer than a frame can be"))?;
        bytes.extend_from_slice(&argument);
        self.frames.send(bytes).await.map_err(|_| gone())?;
        answer.await.unwrap_or_else(|_| Err(gone()))
    }
}

async fn write(mut writer: OwnedWriteHalf, mut frames: mpsc::Receiver<Vec<u8>>) {
    while let Some(frame) = frames.recv().await {
        if writer.write_all(&frame).await.is_err() {
            return; // who reads sees the end as well
        }
    }
}

/// Answers to callers, until the other process is gone.
async fn read(reader: OwnedReadHalf, shared: Arc<Shared>) {
    let budget = Arc::new(Semaphore::new(BYTES_UNDER_WAY));
    let mut incoming = Incoming::new(reader);
    while let Ok(Some((reply, _held))) = incoming.next(&budget).await {
        let caller = {
            let mut waiting = lock(&shared.waiting);
            let callers = waiting.callers.as_mut();
            callers.and_then(|callers| callers.remove(&reply.sequence))
        };
        let result = if reply.flags.has(Flags::ERROR) {
            let text = String::from_utf8_lossy(&reply.argument).into_owned();
            Err(Failure::new(text))
        } else {
            Ok(reply.argument)
        };
        if let Some(caller) = caller {
            // It may have left.
            _ = caller.send(result);
        }
    }
    // Who waits learns that nothing comes.
    lock(&shared.waiting).callers = None;
}

/// Answers calls of the process before until it ends, or until `stopping` and those under way are
/// answered.
///
/// # Errors
///
/// When the runtime can't have the socket.
pub async fn answer_predecessor(
    stream: StdStream,
    methods: Methods,
    stopping: CancellationToken,
) -> io::Result<()> {
    let (reader, writer) = to_tokio(stream)?.into_split();
    let mut shared = Server::new(methods, 1, BYTES_UNDER_WAY, REPLIES_UNREAD);
    shared.stopping = stopping;
    // Nobody else needs its place.
    let standing = Arc::<Standings>::default().enter();
    serve(
        reader,
        writer,
        "the process before",
        standing,
        Arc::new(shared),
    )
    .await;
    Ok(())
}

fn to_tokio(stream: StdStream) -> io::Result<UnixStream> {
    stream.set_nonblocking(true)?;
    UnixStream::from_std(stream)
}

#[cfg(test)]
mod tests {
    use pronghorn_plugin_api::rpc::{Binary, Caller};

    use super::*;

    #[tokio::test]
    async fn calls_go_to_the_process_that_has_taken_over() {
        let (ours, theirs) = StdStream::pair().unwrap();
        let there = Methods::default();
        let (first, second) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
        let state = there.service("jobs", (first.clone(), second.clone()));
        state.add("Wait", async |(first, second), it: String| {
            let gate: Arc<Semaphore> = if it == "one" { first } else { second };
            gate.acquire().await.expect("it is open").forget();
            Ok(it)
        });
        state.add("Fail", async |_, _: Binary| -> Result<Binary, Failure> {
            Err(Failure::new("no room"))
        });
        let stopping = CancellationToken::new();
        let mut answering = JoinSet::new();
        answering.spawn(answer_predecessor(theirs, there.clone(), stopping.clone()));

        let here = Methods::default();
        let service = here.service("jobs", ());
        service.add("Wait", async |(), _: bool| Ok("here".to_owned()));
        service.add("Fail", async |(), _: bool| Ok("here".to_owned()));
        let call = |method: &str, encoding, argument: &'static str| {
            let method = here.find(method).expect("it is there");
            method.call(
                &Caller::anyone(),
                encoding,
                Bytes::from_static(argument.as_bytes()),
            )
        };
        assert_eq!(
            call("jobs.Wait", Encoding::Json, "true").await.unwrap(),
            "\"here\""
        );
        here.forward("jobs", &Successor::new(ours).unwrap().forward());
        // Each at its own pace.
        let mut calls = JoinSet::new();
        calls.spawn(call("jobs.Wait", Encoding::Json, "\"one\""));
        calls.spawn(call("jobs.Wait", Encoding::Json, "\"two\""));
        for (gate, answer) in [(&second, "\"two\""), (&first, "\"one\"")] {
            gate.add_permits(1);
            let answered = calls.join_next().await.expect("there is one");
            assert_eq!(answered.unwrap().unwrap(), answer);
        }
        let failed = call("jobs.Fail", Encoding::Raw, "x").await.unwrap_err();
        assert_eq!(failed.to_string(), "no room");

        let cut = call("jobs.Wait", Encoding::Json, "\"one\"");
        let stop = async {
            stopping.cancel();
            first.add_permits(1);
        };
        let (cut, ()) = tokio::join!(cut, stop);
        assert_eq!(cut.unwrap(), "\"one\"", "what is under way is answered");
        answering.join_next().await.unwrap().unwrap().unwrap();
        let late = call("jobs.Wait", Encoding::Json, "\"one\"")
            .await
            .unwrap_err();
        assert!(late.to_string().contains("does not answer"), "{late}");
    }
}
