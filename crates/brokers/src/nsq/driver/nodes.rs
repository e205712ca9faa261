//! The nsqds that jobs are taken from: the one that is configured, and those that nsqlookupd names.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex as Plain};

use bytes::Bytes;
use pronghorn_base::lock;
use serde::Deserialize;
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::sync::{Mutex, Notify, Semaphore};

use super::connection::{Frame, ID, Limits, Reader, Room, Writer, command, open as connect};
use super::stats;
use crate::broker::BrokerError;
use crate::nsq::settings::NsqPipeline;

/// Nobody has so many workers, and nsqd allows fewer.
const MOST_READY: usize = 4096;

/// Messages that wait for who takes them have so many bytes together; then nothing more is read.
const MOST_UNTAKEN: usize = 256 << 20;

/// A cluster has fewer.
const MOST_NODES: usize = 64;

/// One nsqd.
pub(crate) struct Node {
    pub(super) place: String,
    /// The address where it counts its jobs.
    pub(super) http_place: String,
    limits: Limits,
    reading: Mutex<Reader>,
    writing: Mutex<Writer>,
    /// Messages that were sent to us and are not settled.
    out: AtomicUsize,
    /// It sends nothing more.
    pub(super) parted: Notify,
    /// Without the first one there is no connection. When another one goes, its jobs run again.
    is_first: bool,
}

/// A message of a node.
#[derive(Clone)]
pub(crate) struct Token {
    node: Arc<Node>,
    id: Arc<str>,
}

/// A message that nobody has taken yet.
pub(super) struct Arrived {
    pub(super) token: Token,
    pub(super) body: Bytes,
    _room: Room,
}

/// The messages of all nodes, which wait to be taken. Clones are the same one.
#[derive(Clone)]
pub(super) struct Arrivals {
    messages: Sender<Arrived>,
    /// A permit for each byte that may still wait.
    room: Arc<Semaphore>,
}

impl Arrivals {
    pub(super) fn new() -> (Self, Receiver<Arrived>) {
        let (messages, arriving) = mpsc::channel(MOST_READY);
        let room = Arc::new(Semaphore::new(MOST_UNTAKEN));
        (Self { messages, room }, arriving)
    }
}

impl Node {
    pub(super) async fn open(
        settings: &NsqPipeline,
        place: &str,
        http_place: String,
    ) -> Result<Self, BrokerError> {
        let server = &settings.server;
        let (mut reading, mut writing, limits) = connect(server, place, true).await?;
        // The channel has to be there before the first job comes, or nobody would count the job.
        let subscribe = format!("SUB {} {}", settings.topic, settings.channel);
        writing.write(&command(&subscribe, None)).await?;
        match reading.answer(server.read_timeout).await? {
            Frame::Response(text) if &text[..] == b"OK" => {}
            other => return Err(other.unexpected()),
        }
        Ok(Self {
            place: place.to_owned(),
            http_place,
            limits,
            reading: Mutex::new(reading),
            writing: Mutex::new(writing),
            out: AtomicUsize::new(0),
            parted: Notify::new(),
            is_first: false,
        })
    }

    /// A command that is not answered unless it fails.
    pub(super) async fn tell(&self, line: &str) -> Result<(), BrokerError> {
        self.writing.lock().await.write(&command(line, None)).await
    }

    /// Asks for so many jobs more than those that are out.
    async fn ask_for(&self, more: usize) -> Result<(), BrokerError> {
        let count = match more {
            0 => 0,
            more => self.out.load(Ordering::Relaxed) + more,
        };
        let count = count.min(self.limits.max_rdy_count).min(MOST_READY);
        self.tell(&format!("RDY {count}")).await
    }

    /// Takes what it sends until it is lost: says why.
    pub(super) async fn listen(
        self: &Arc<Self>,
        pipeline: &str,
        arrivals: &Arrivals,
    ) -> BrokerError {
        match self.hear(pipeline, arrivals).await {
            Ok(()) => BrokerError::Lost("it sends nothing any more".to_owned()),
            Err(error) => error,
        }
    }

    async fn hear(
        self: &Arc<Self>,
        pipeline: &str,
        arrivals: &Arrivals,
    ) -> Result<(), BrokerError> {
        let mut reading = self.reading.lock().await;
        loop {
            let (frame, room) = reading.frame(&arrivals.room).await?;
            match frame {
                Frame::Response(text) if &text[..] == b"_heartbeat_" => self.tell("NOP").await?,
                Frame::Response(text) if &text[..] == b"CLOSE_WAIT" => self.parted.notify_one(),
                Frame::Response(_) => {}
                // It is of a job that nsqd has given to somebody else: its minute was over.
                Frame::Error(why) if is_of_one_job(&why) => {
                    tracing::debug!(target: "jobs", pipeline, "nsqd: {why}");
                }
                Frame::Error(why) => return Err(BrokerError::Lost(why)),
                Frame::Message { id, body } => {
                    let token = Token {
                        node: self.clone(),
                        id: printable(id)?,
                    };
                    self.out.fetch_add(1, Ordering::Relaxed);
                    let arrived = Arrived {
                        token,
                        body,
                        _room: room,
                    };
                    arrivals.messages.try_send(arrived).map_err(|_| {
                        BrokerError::Lost("it sends more than was asked for".to_owned())
                    })?;
                }
            }
        }
    }
}

impl Token {
    /// Nobody gets the job until so many milliseconds are over.
    pub(super) async fn give_back(&self, millis: u64) -> Result<(), BrokerError> {
        self.tell(&format!("REQ {} {millis}", self.id)).await?;
        self.node.out.fetch_sub(1, Ordering::Relaxed);
        Ok(())
    }

    pub(super) async fn finish(&self) -> Result<(), BrokerError> {
        self.tell(&format!("FIN {}", self.id)).await?;
        self.node.out.fetch_sub(1, Ordering::Relaxed);
        Ok(())
    }

    pub(super) async fn touch(&self) -> Result<(), BrokerError> {
        self.tell(&format!("TOUCH {}", self.id)).await
    }

    async fn tell(&self, line: &str) -> Result<(), BrokerError> {
        let told = self.node.tell(line).await;
        told.map_err(|error| match error {
            BrokerError::Lost(_) if !self.node.is_first => BrokerError::NotReserved,
            error => error,
        })
    }
}

/// The first one is that of the configuration: without it there is no connection.
pub(super) struct Nodes {
    all: Plain<Vec<Arc<Node>>>,
    /// Says where the next job is asked for, when there are fewer free workers than nodes.
    turn: AtomicUsize,
}

impl Nodes {
    pub(super) fn new(mut first: Node) -> Self {
        first.is_first = true;
        Self {
            all: Plain::new(vec![Arc::new(first)]),
            turn: AtomicUsize::new(0),
        }
    }

    pub(super) fn all(&self) -> Vec<Arc<Node>> {
        lock(&self.all).clone()
    }

    pub(super) fn first(&self) -> Arc<Node> {
        lock(&self.all)[0].clone()
    }

    pub(super) fn has(&self, place: &str) -> bool {
        let all = lock(&self.all);
        all.len() >= MOST_NODES || all.iter().any(|node| node.place == place)
    }

    pub(super) fn add(&self, node: Node) -> Arc<Node> {
        let node = Arc::new(node);
        lock(&self.all).push(node.clone());
        node
    }

    pub(super) fn remove(&self, node: &Arc<Node>) {
        lock(&self.all).retain(|known| !Arc::ptr_eq(known, node));
    }

    /// Asks for so many jobs in all; with few of them, nodes take turns.
    pub(super) async fn ask_for(&self, jobs: usize) -> Result<(), BrokerError> {
        let all = self.all();
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        for (place, node) in all.iter().enumerate() {
            let rank = (place + turn) % all.len();
            let share = jobs / all.len() + usize::from(rank < jobs % all.len());
            let asked = node.ask_for(share).await;
            // Whoever listens to another one hears that it is gone.
            if place == 0 {
                asked?;
            }
        }
        Ok(())
    }
}

#[derive(Deserialize)]
struct Found {
    producers: Vec<Producer>,
}

#[derive(Deserialize)]
struct Producer {
    broadcast_address: String,
    tcp_port: u16,
    http_port: u16,
}

/// The addresses of each nsqd that has the topic: its own, and that where it counts its jobs. An
/// nsqlookupd that does not answer is passed over.
pub(super) async fn look_up(pipeline: &str, settings: &NsqPipeline) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for lookupd in &settings.server.lookupd {
        let path = format!("/lookup?topic={}", settings.topic.replace('#', "%23"));
        match stats::get_json::<Found>(&settings.server, lookupd, &path).await {
            Ok(answer) => found.extend(answer.producers.into_iter().map(|it| {
                let host = it.broadcast_address;
                (
                    format!("{host}:{}", it.tcp_port),
                    format!("{host}:{}", it.http_port),
                )
            })),
            Err(why) => {
                tracing::debug!(target: "jobs", pipeline, "nsqlookupd at {lookupd}: {why}");
            }
        }
    }
    found
}

fn is_of_one_job(why: &str) -> bool {
    ["E_FIN_FAILED", "E_REQ_FAILED", "E_TOUCH_FAILED"]
        .iter()
        .any(|code| why.starts_with(code))
}

/// An ID is a part of later commands.
fn printable(id: [u8; ID]) -> Result<Arc<str>, BrokerError> {
    let text = std::str::from_utf8(&id).ok();
    let text = text.filter(|text| text.bytes().all(|byte| byte.is_ascii_alphanumeric()));
    let text =
        text.ok_or_else(|| BrokerError::Lost("it sent a message without an ID".to_owned()))?;
    Ok(text.into())
}
