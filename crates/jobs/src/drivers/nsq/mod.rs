//! `nsq`: a channel of a topic of nsqd, by a client of our own, with messages as RoadRunner 3 has
//! them.
//!
//! nsqd sends what a client says it is ready for: the jobs that are out and those that workers are
//! free for. It is told so each time that jobs are brought, and then that nothing more is wanted. A
//! job that waits for longer than nsqd may keep it says so itself, and is given back until then.

mod connection;
mod stats;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use pronghorn_base::millis;
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::sync::{Mutex, Notify};
use tokio::time::timeout;

use self::connection::{Frame, ID, Limits, Reader, Writer, command, length, open as connect};
use crate::drivers::Wake;
use crate::drivers::broker::item;
use crate::drivers::broker::{Broker, BrokerError, Brokered, Counts, FETCH_WAIT, Link, Step};
use crate::job::{Headers, Job, LONGEST_DELAY, now_ms};
use crate::settings::NsqPipeline;

/// As long as nsqd keeps a message back, unless its `-max-req-timeout` says otherwise.
const LONGEST_DEFER: Duration = Duration::from_hours(1);
/// A part of the minute after which nsqd gives a job to somebody else.
const KEEP_EVERY: Duration = if cfg!(test) {
    Duration::from_millis(200)
} else {
    Duration::from_secs(15)
};
/// What a farewell may take.
const FAREWELL: Duration = Duration::from_secs(1);
/// Of several jobs in one command: nsqd takes 5 MB.
const MOST_BYTES_AT_A_TIME: usize = 4 << 20;
/// Nobody has so many workers, and nsqd allows fewer.
const MOST_READY: usize = 4096;

pub(crate) type Nsq = Brokered<NsqBroker>;

pub(crate) fn open(pipeline: &str, settings: &NsqPipeline, wake: Wake) -> Nsq {
    let broker = NsqBroker {
        title: format!("nsq at {}", settings.server.place()),
        pipeline: pipeline.to_owned(),
        settings: settings.clone(),
    };
    Brokered::open(broker, pipeline, wake)
}

pub(crate) struct NsqBroker {
    title: String,
    pipeline: String,
    settings: NsqPipeline,
}

pub(crate) struct NsqLink {
    pipeline: String,
    settings: NsqPipeline,
    limits: Limits,
    /// None after an error, which ends a connection.
    publishing: Mutex<Option<(Reader, Writer)>>,
    reading: Mutex<Reader>,
    writing: Mutex<Writer>,
    arrived: Sender<Arrived>,
    arriving: Mutex<Receiver<Arrived>>,
    /// Messages that were sent to us and are not settled.
    out: AtomicUsize,
    /// nsqd sends nothing more.
    parted: Notify,
}

struct Arrived {
    id: Token,
    body: Bytes,
}

/// The ID of a message.
pub(crate) type Token = Arc<str>;

impl Broker for NsqBroker {
    type Link = NsqLink;

    fn title(&self) -> &str {
        &self.title
    }

    fn queue(&self) -> &str {
        &self.settings.topic
    }

    async fn connect(&self) -> Result<NsqLink, BrokerError> {
        let settings = &self.settings;
        let (mut reading, mut writing, limits) = connect(&settings.server, true).await?;
        // The channel has to be there before the first job comes, or nobody would count the job.
        let subscribe = format!("SUB {} {}", settings.topic, settings.channel);
        writing.write(&command(&subscribe, None)).await?;
        match reading.answer(settings.server.read_timeout).await? {
            Frame::Response(text) if &text[..] == b"OK" => {}
            other => return Err(other.unexpected()),
        }
        let (publisher, publishing, _) = connect(&settings.server, false).await?;
        let (arrived, arriving) = mpsc::channel(MOST_READY);
        Ok(NsqLink {
            pipeline: self.pipeline.clone(),
            settings: settings.clone(),
            limits,
            publishing: Mutex::new(Some((publisher, publishing))),
            reading: Mutex::new(reading),
            writing: Mutex::new(writing),
            arrived,
            arriving: Mutex::new(arriving),
            out: AtomicUsize::new(0),
            parted: Notify::new(),
        })
    }
}

impl NsqLink {
    /// A command that is answered.
    async fn publish(&self, bytes: &[u8]) -> Result<(), BrokerError> {
        let server = &self.settings.server;
        let mut place = self.publishing.lock().await;
        // One that is given up before its answer is of no use: it is put back after that.
        let (mut reading, mut writing) = match place.take() {
            Some(connection) => connection,
            None => {
                let (reading, writing, _) = connect(server, false).await?;
                (reading, writing)
            }
        };
        writing.write(bytes).await?;
        match reading.answer(server.read_timeout).await? {
            Frame::Response(text) if &text[..] == b"OK" => {
                *place = Some((reading, writing));
                Ok(())
            }
            Frame::Error(why) => Err(BrokerError::Refused(why)),
            other => Err(other.unexpected()),
        }
    }

    async fn publish_one(&self, job: &Job) -> Result<(), BrokerError> {
        let topic = &self.settings.topic;
        let (line, due) = if job.delay.is_zero() {
            (format!("PUB {topic}"), None)
        } else {
            let delay = job.delay.min(LONGEST_DELAY);
            let defer = millis(delay.min(LONGEST_DEFER)).max(1);
            let due = (delay > LONGEST_DEFER).then(|| now_ms() + millis(delay));
            (format!("DPUB {topic} {defer}"), due)
        };
        let body = item::write(job, &self.pipeline, due);
        self.publish(&command(&line, Some(&body))).await
    }

    /// Of jobs that can run now: all of them, or none.
    async fn publish_several(&self, bodies: &[Vec<u8>]) -> Result<(), BrokerError> {
        let sizes = bodies.iter().map(|body| body.len() + 4);
        let mut all = Vec::with_capacity(4 + sizes.sum::<usize>());
        all.extend(length(bodies.len()));
        for body in bodies {
            all.extend(length(body.len()));
            all.extend(body);
        }
        let line = format!("MPUB {}", self.settings.topic);
        self.publish(&command(&line, Some(&all))).await
    }

    /// A command that is not answered unless it fails.
    async fn tell(&self, line: &str) -> Result<(), BrokerError> {
        self.writing.lock().await.write(&command(line, None)).await
    }

    async fn ready(&self, count: usize) -> Result<(), BrokerError> {
        let count = count.min(self.limits.max_rdy_count).min(MOST_READY);
        self.tell(&format!("RDY {count}")).await
    }

    /// A job, or None for one that was given back until its time.
    async fn read(&self, message: Arrived) -> Result<Option<(Job, Token)>, BrokerError> {
        let (job, due) = item::read(&message.body, Headers::new);
        let left = due.unwrap_or_default().saturating_sub(now_ms());
        if left == 0 {
            return Ok(Some((job, message.id)));
        }
        let left = left.min(millis(LONGEST_DEFER));
        self.give_back(&message.id, left).await?;
        Ok(None)
    }

    async fn give_back(&self, id: &str, millis: u64) -> Result<(), BrokerError> {
        self.tell(&format!("REQ {id} {millis}")).await?;
        self.out.fetch_sub(1, Ordering::Relaxed);
        Ok(())
    }

    async fn listen(&self) -> Result<(), BrokerError> {
        let mut reading = self.reading.lock().await;
        loop {
            match reading.frame().await? {
                Frame::Response(text) if &text[..] == b"_heartbeat_" => self.tell("NOP").await?,
                Frame::Response(text) if &text[..] == b"CLOSE_WAIT" => self.parted.notify_one(),
                Frame::Response(_) => {}
                // Of a job that nsqd has given to somebody else: its minute was over.
                Frame::Error(why) if is_of_one_job(&why) => {
                    tracing::debug!(target: "jobs", pipeline = self.pipeline, "nsqd: {why}");
                }
                Frame::Error(why) => return Err(BrokerError::Lost(why)),
                Frame::Message { id, body } => {
                    let id = printable(id)?;
                    self.out.fetch_add(1, Ordering::Relaxed);
                    let arrived = self.arrived.try_send(Arrived { id, body });
                    arrived.map_err(|_| {
                        BrokerError::Lost("it sends more than was asked for".to_owned())
                    })?;
                }
            }
        }
    }
}

impl Link for NsqLink {
    type Token = Token;

    const TOKENS_OUTLIVE_IT: bool = false;

    const KEEP_EVERY: Option<Duration> = Some(KEEP_EVERY);

    async fn push(&self, jobs: Vec<Job>) -> Result<(), BrokerError> {
        let (now, later): (Vec<_>, Vec<_>) = jobs.iter().partition(|job| job.delay.is_zero());
        let mut bodies = Vec::new();
        let mut bytes = 0;
        for job in now {
            let body = item::write(job, &self.pipeline, None);
            if !bodies.is_empty() && bytes + body.len() > MOST_BYTES_AT_A_TIME {
                self.publish_several(&bodies).await?;
                bodies.clear();
                bytes = 0;
            }
            bytes += body.len() + 4;
            bodies.push(body);
        }
        if !bodies.is_empty() {
            self.publish_several(&bodies).await?;
        }
        for job in later {
            self.publish_one(job).await?;
        }
        Ok(())
    }

    async fn fetch(&self, most: usize) -> Result<Vec<(Job, Token)>, BrokerError> {
        let mut arriving = self.arriving.lock().await;
        // What has come too late for the time before is a part of what is out, and of this.
        let missing = most.saturating_sub(arriving.len());
        self.ready(self.out.load(Ordering::Relaxed) + missing)
            .await?;
        let mut jobs = Vec::new();
        let mut wait = FETCH_WAIT;
        while jobs.len() < most
            && let Ok(Some(message)) = timeout(wait, arriving.recv()).await
        {
            if let Some(job) = self.read(message).await? {
                jobs.push(job);
                wait = Duration::ZERO;
            }
        }
        self.ready(0).await?;
        Ok(jobs)
    }

    async fn rest(&self) -> Result<(), BrokerError> {
        let mut arriving = self.arriving.lock().await;
        while let Ok(message) = arriving.try_recv() {
            self.give_back(&message.id, 0).await?;
        }
        Ok(())
    }

    async fn settle(&self, token: Token, step: Step) -> Result<(), BrokerError> {
        match step {
            Step::Back(_) => return self.give_back(&token, 0).await,
            Step::Again(job) => self.publish_one(&job).await?,
            Step::Done | Step::Rejected => {}
        }
        self.tell(&format!("FIN {token}")).await?;
        self.out.fetch_sub(1, Ordering::Relaxed);
        Ok(())
    }

    async fn keep(&self, tokens: Vec<Token>) -> Result<(), BrokerError> {
        for token in tokens {
            self.tell(&format!("TOUCH {token}")).await?;
        }
        Ok(())
    }

    async fn tend(&self) -> BrokerError {
        match self.listen().await {
            Ok(()) => BrokerError::Lost("it sends nothing any more".to_owned()),
            Err(error) => error,
        }
    }

    async fn stat(&self) -> Result<Counts, BrokerError> {
        stats::ask(&self.settings).await
    }

    async fn close(&self) {
        // A job that was on its way would be nobody's for a minute.
        if self.tell("CLS").await.is_ok() && timeout(FAREWELL, self.parted.notified()).await.is_ok()
        {
            _ = self.rest().await;
        }
    }
}

fn is_of_one_job(why: &str) -> bool {
    ["E_FIN_FAILED", "E_REQ_FAILED", "E_TOUCH_FAILED"]
        .iter()
        .any(|code| why.starts_with(code))
}

/// An ID is a part of later commands.
fn printable(id: [u8; ID]) -> Result<Token, BrokerError> {
    let text = std::str::from_utf8(&id).ok();
    let text = text.filter(|text| text.bytes().all(|byte| byte.is_ascii_alphanumeric()));
    let text =
        text.ok_or_else(|| BrokerError::Lost("it sent a message without an ID".to_owned()))?;
    Ok(text.into())
}

#[cfg(test)]
mod tests;
