//! `nsq`: a channel of a topic of nsqd, by a client of our own, with messages as RoadRunner 3 has
//! them.
//!
//! Jobs are pushed to one nsqd and taken from it, and from each that nsqlookupd names (`nodes`).
//! It sends what a client says it is ready for: the jobs that are out and those that workers are
//! free for. It is told so each time that jobs are brought, and then that nothing more is wanted. A
//! job that waits for longer than nsqd may keep it says so itself, and is given back until then.

mod connection;
mod nodes;
mod stats;

use std::time::Duration;

use pronghorn_base::{millis, now_ms};
use pronghorn_queue::{Headers, Job, LONGEST_DELAY, Wake};
use tokio::sync::Mutex;
use tokio::sync::mpsc::Receiver;
use tokio::task::JoinSet;
use tokio::time::{timeout, timeout_at};

use self::connection::{Frame, Reader, Writer, command, length, open as connect};
use self::nodes::{Arrivals, Arrived, Node, Nodes, Token};
use crate::broker::item;
use crate::broker::{Broker, BrokerError, Brokered, Counts, FETCH_WAIT, Link, Step};
use crate::nsq::settings::NsqPipeline;

/// Nsqd keeps a message back for so long at most, unless its `-max-req-timeout` says otherwise.
const LONGEST_DEFER: Duration = Duration::from_hours(1);
/// A part of the minute after which nsqd gives a job to somebody else.
const KEEP_EVERY: Duration = if cfg!(test) {
    Duration::from_millis(200)
} else {
    Duration::from_secs(15)
};
/// A farewell may take so long.
const FAREWELL: Duration = Duration::from_secs(1);
/// Several jobs in one command have so many bytes at most: nsqd takes 5 MB.
const MOST_BYTES_AT_A_TIME: usize = 4 << 20;

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
    nodes: Nodes,
    /// It is none after an error, which ends a connection.
    publishing: Mutex<Option<(Reader, Writer)>>,
    arrivals: Arrivals,
    arriving: Mutex<Receiver<Arrived>>,
}

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
        let server = &settings.server;
        let first = Node::open(settings, server.place(), server.http_place()).await?;
        let (publisher, publishing, _) = connect(server, server.place(), false).await?;
        let (arrivals, arriving) = Arrivals::new();
        Ok(NsqLink {
            pipeline: self.pipeline.clone(),
            settings: settings.clone(),
            nodes: Nodes::new(first),
            publishing: Mutex::new(Some((publisher, publishing))),
            arrivals,
            arriving: Mutex::new(arriving),
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
                let (reading, writing, _) = connect(server, server.place(), false).await?;
                (reading, writing)
            }
        };
        // Nsqd says of a job that it is too long, and hangs up while it is still written.
        let written = writing.write(bytes).await;
        let answer = reading.answer(server.read_timeout).await;
        if answer.is_err() {
            written?;
        }
        match answer? {
            Frame::Response(text) if &text[..] == b"OK" => {
                *place = Some((reading, writing));
                Ok(())
            }
            Frame::Error(why) if is_about_job(&why) => Err(BrokerError::Unfit(why)),
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

    /// Pushes jobs that can run now: all of them, or none.
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

    /// A job, or None for one that was given back until its time.
    async fn read(&self, message: Arrived) -> Result<Option<(Job, Token)>, BrokerError> {
        let (job, due) = item::read(&message.body, Headers::new);
        let left = due.unwrap_or_default().saturating_sub(now_ms());
        if left == 0 {
            return Ok(Some((job, message.token)));
        }
        let left = left.min(millis(LONGEST_DEFER));
        message.token.give_back(left).await?;
        Ok(None)
    }

    /// Takes jobs from each nsqd that nsqlookupd names, as long as both are there.
    async fn discover(&self) -> BrokerError {
        let server = &self.settings.server;
        if server.lookupd.is_empty() {
            return std::future::pending().await;
        }
        let mut listening = JoinSet::new();
        loop {
            for (place, http_place) in nodes::look_up(&self.pipeline, &self.settings).await {
                if self.nodes.has(&place) {
                    continue;
                }
                match Node::open(&self.settings, &place, http_place).await {
                    Ok(node) => {
                        let node = self.nodes.add(node);
                        let (arrivals, pipeline) = (self.arrivals.clone(), self.pipeline.clone());
                        tracing::info!(target: "jobs", pipeline, "connected to nsq at {place}");
                        listening
                            .spawn(async move { (node.listen(&pipeline, &arrivals).await, node) });
                    }
                    // It may be one that is not there any more: they forget after a while.
                    Err(error) => {
                        let pipeline = &self.pipeline;
                        tracing::debug!(target: "jobs", pipeline, "nsq at {place}: {error:?}");
                    }
                }
            }
            let asked_again = tokio::time::Instant::now() + server.lookupd_poll_interval;
            while let Ok(ended) = timeout_at(asked_again, next_ended(&mut listening)).await {
                if let Ok((error, node)) = ended {
                    let (pipeline, place) = (&self.pipeline, &node.place);
                    tracing::warn!(target: "jobs", pipeline, "nsq at {place} went away: {error:?}");
                    self.nodes.remove(&node);
                }
            }
        }
    }
}

/// Whether nsqd would refuse the same command each time: the job is too long, or its delay is.
fn is_about_job(why: &str) -> bool {
    ["E_BAD_MESSAGE", "E_BAD_BODY", "E_INVALID"]
        .iter()
        .any(|code| why.starts_with(code))
}

/// Waits for ever where there is none.
async fn next_ended<T: 'static>(tasks: &mut JoinSet<T>) -> Result<T, tokio::task::JoinError> {
    match tasks.join_next().await {
        Some(ended) => ended,
        None => std::future::pending().await,
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
        // Messages that came too late for the time before are a part of those that are out, and of
        // these.
        let missing = most.saturating_sub(arriving.len());
        self.nodes.ask_for(missing).await?;
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
        self.nodes.ask_for(0).await?;
        Ok(jobs)
    }

    async fn rest(&self) -> Result<(), BrokerError> {
        let mut arriving = self.arriving.lock().await;
        while let Ok(message) = arriving.try_recv() {
            message.token.give_back(0).await?;
        }
        Ok(())
    }

    async fn settle(&self, token: Token, step: Step) -> Result<(), BrokerError> {
        match step {
            Step::Back(_) => return token.give_back(0).await,
            Step::Again(job) => self.publish_one(&job).await?,
            Step::Done | Step::Rejected(_) => {}
        }
        token.finish().await
    }

    async fn keep(&self, tokens: Vec<Token>) -> Result<(), BrokerError> {
        for token in tokens {
            match token.touch().await {
                Ok(()) | Err(BrokerError::NotReserved) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    async fn tend(&self) -> BrokerError {
        let first = self.nodes.first();
        tokio::select! {
            error = first.listen(&self.pipeline, &self.arrivals) => error,
            error = self.discover() => error,
        }
    }

    async fn stat(&self) -> Result<Counts, BrokerError> {
        let mut counts = Counts {
            out: Some(0),
            ..Counts::default()
        };
        for node in self.nodes.all() {
            let of_node = stats::ask(&self.settings, &node.http_place).await?;
            counts.waiting += of_node.waiting;
            counts.delayed += of_node.delayed;
            counts.out = counts.out.zip(of_node.out).map(|(all, out)| all + out);
        }
        Ok(counts)
    }

    async fn close(&self) {
        // A job that was on its way would be nobody's for a minute.
        for node in self.nodes.all() {
            if node.tell("CLS").await.is_ok() {
                _ = timeout(FAREWELL, node.parted.notified()).await;
            }
        }
        _ = self.rest().await;
    }
}

#[cfg(test)]
mod tests;
