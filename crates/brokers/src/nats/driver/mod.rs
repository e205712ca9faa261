//! `nats`: a stream of JetStream, with messages as RoadRunner has them.
//!
//! All servers share one consumer of the stream, and pull what workers are free for. A server says
//! now and then that it still works on its jobs; those of one that has not said so for `ack_wait`
//! go to the others. Delayed jobs are in a stream of their own, `pronghorn-delayed-…`, whose
//! consumer gives each of them back until it is due.

mod message;

use std::collections::HashSet;
use std::error::Error as _;
use std::fmt::{Display, Write as _};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use async_nats::connection::State;
use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, PullConsumer, pull};
use async_nats::jetstream::context::{PublishAckFuture, PublishError, PublishErrorKind};
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::stream::{Config, RawMessageErrorKind, RetentionPolicy, Stream};
use async_nats::jetstream::{self, AckKind, Context, ContextBuilder, ErrorCode};
use async_nats::{Client, ConnectOptions, ServerAddr, Subject};
use futures_util::TryStreamExt;
use futures_util::future::try_join_all;
use percent_encoding::percent_decode_str;
use pronghorn_base::{lock, millis, now_ms};
use pronghorn_queue::{Job, LONGEST_DELAY, MOST_BYTES_IN_PART, Wake};
use tokio::sync::Semaphore;
use tokio::time::sleep;

use crate::broker::{
    Broker, BrokerError, Brokered, Counts, FETCH_WAIT, Link, ListedTo, MOST_IN_PART, Step,
};
use crate::nats::settings::NatsPipeline;
use crate::tls::BrokerTls;

/// The name of consumers, with the subject behind it.
const CONSUMER: &str = "pronghorn";
/// NATS answers in a few milliseconds; one that writes to a slow disk takes longer.
const PATIENCE: Duration = Duration::from_secs(10);
/// How many jobs are brought, pushed or moved at a time.
const MOST_AT_A_TIME: usize = 256;
/// No limit for what is out: workers are the limit, and each delayed job counts as one.
const NO_LIMIT: i64 = -1;
/// A server that dies while it looks at delayed jobs holds them up for so long.
const DELAYED_ACK_WAIT: Duration = Duration::from_secs(10);
/// A delayed job that can't be moved now is tried again.
const MOVE_AGAIN: Duration = Duration::from_secs(1);
/// The time between two looks at the connection: whether it stands, and what has come over it.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// NATS itself takes no message of more than 64 MB; there are its subject and its headers as well.
/// The client has no bound: it collects whatever is announced.
const LONGEST_MESSAGE: u64 = 65 << 20;
/// Jobs of one answer may have so many bytes together: of jobs that all are long it has fewer.
const MOST_BYTES_AT_A_TIME: usize = 65 << 20;
/// NATS ends an answer so whose next message has no room. The client shows no more of it.
const BEYOND: &str = "Exceeds MaxBytes";
/// The client may hold so many messages that are not taken yet. It throws others away, and NATS
/// gives those out once more: there is room for all that are asked for, and for how they end.
const MOST_UNTAKEN: usize = 2 * MOST_AT_A_TIME;

/// A part of the shortest `ack_wait`.
const KEEP_EVERY: Duration = if cfg!(test) {
    Duration::from_millis(200)
} else {
    Duration::from_secs(3)
};

pub(crate) type Nats = Brokered<NatsBroker>;

pub(crate) fn open(pipeline: &str, settings: &NatsPipeline, wake: Wake) -> Nats {
    let broker = NatsBroker {
        title: format!("nats at {}", settings.server.places()),
        pipeline: pipeline.to_owned(),
        settings: settings.clone(),
        out: Out::default(),
    };
    Brokered::open(broker, pipeline, wake)
}

pub(crate) struct NatsBroker {
    title: String,
    pipeline: String,
    settings: NatsPipeline,
    out: Out,
}

/// The jobs that this server has: after NATS was away for long, it gives them as those of a server
/// that is silent.
type Out = Arc<std::sync::Mutex<HashSet<Place>>>;

/// The place of a message in a stream, and when it came there, in nanoseconds since 1970: a stream
/// that was deleted begins anew.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Place {
    number: u64,
    time: i128,
}

impl Place {
    /// Names a message that comes after the one at this place.
    fn kind(self, what: &str) -> String {
        format!("{what}-{}-{}", self.number, self.time)
    }
}

pub(crate) struct NatsLink {
    pipeline: String,
    settings: NatsPipeline,
    client: Client,
    context: Context,
    stream: Stream,
    consumer: PullConsumer,
    delayed: Delayed,
    out: Out,
}

/// The stream in which jobs wait for their time.
struct Delayed {
    subject: String,
    stream: Stream,
    consumer: PullConsumer,
}

/// A job that is out, and what it is acknowledged by.
#[derive(Clone)]
pub(crate) struct Token {
    reply: Subject,
    place: Place,
}

impl Broker for NatsBroker {
    type Link = NatsLink;

    fn title(&self) -> &str {
        &self.title
    }

    fn queue(&self) -> &str {
        &self.settings.stream
    }

    async fn connect(&self) -> Result<NatsLink, BrokerError> {
        let settings = &self.settings;
        let client = self.client().await?;
        let context = ContextBuilder::new()
            .timeout(PATIENCE)
            .ack_timeout(PATIENCE)
            // A wave of pushes waits for its end before the next one.
            .max_ack_inflight(Semaphore::MAX_PERMITS)
            .build(client.clone());
        let stream = Config {
            name: settings.stream.clone(),
            subjects: vec![settings.subject.clone()],
            ..Config::default()
        };
        let stream = context
            .get_or_create_stream(stream)
            .await
            .map_err(refused)?;
        keeps(&stream, &settings.subject)?;
        let name = format!("{CONSUMER}-{}", escaped(&settings.subject));
        let consumer = consumer(
            &stream,
            &name,
            &settings.subject,
            settings.ack_wait,
            settings.deliver_new,
        );
        let consumer = consumer.await?;
        let delayed = Delayed::open(&context, settings).await?;
        Ok(NatsLink {
            pipeline: self.pipeline.clone(),
            settings: settings.clone(),
            client,
            context,
            stream,
            consumer,
            delayed,
            out: self.out.clone(),
        })
    }
}

impl NatsBroker {
    /// It does not connect again by itself: jobs are brought anew then, and people are told.
    async fn client(&self) -> Result<Client, BrokerError> {
        let server = &self.settings.server;
        let parsed = server.address.as_str().split(',').map(str::parse);
        let addresses: Result<Vec<ServerAddr>, _> = parsed.collect();
        let addresses =
            addresses.map_err(|_| BrokerError::Refused("its address can't be read".to_owned()))?;
        let mut options = ConnectOptions::new()
            .name("pronghorn")
            .connection_timeout(PATIENCE)
            .request_timeout(Some(PATIENCE))
            .max_reconnects(addresses.len())
            .subscription_capacity(MOST_UNTAKEN)
            .ignore_discovered_servers();
        if let Some(first) = addresses.first() {
            options = match (first.username(), first.password()) {
                (Some(user), Some(password)) => {
                    options.user_and_password(decoded(user), decoded(password))
                }
                (Some(token), None) => options.token(decoded(token)),
                _ => options,
            };
        }
        let BrokerTls { root_ca, identity } = &server.tls;
        if let Some(root_ca) = root_ca {
            options = options.add_root_certificates(root_ca.clone());
        }
        if let Some((cert, key)) = identity {
            options = options.add_client_certificate(cert.clone(), key.clone());
        }
        options.connect(addresses).await.map_err(lost)
    }
}

/// A name and a password in an address.
fn decoded(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

/// A subject as a part of a name, which may have no dots: each subject has one of its own.
fn escaped(subject: &str) -> String {
    let mut name = String::with_capacity(subject.len());
    for byte in subject.bytes() {
        match byte {
            b'.' => name.push_str("--"),
            byte if byte.is_ascii_alphanumeric() || byte == b'_' => name.push(byte.into()),
            byte => {
                // A text takes everything.
                _ = write!(name, "-{byte:02x}");
            }
        }
    }
    name
}

/// A stream that somebody else has declared may be for other subjects.
fn keeps(stream: &Stream, subject: &str) -> Result<(), BrokerError> {
    let Config { name, subjects, .. } = &stream.cached_info().config;
    if subjects.iter().any(|pattern| covers(pattern, subject)) {
        return Ok(());
    }
    let subjects = subjects.join("`, `");
    Err(BrokerError::Refused(format!(
        "stream `{name}` keeps the subject `{subjects}`, and not `{subject}`: name another stream, \
         or add the subject to this one"
    )))
}

/// Whether a subject is one of those that a pattern with `*` and `>` stands for.
fn covers(pattern: &str, subject: &str) -> bool {
    let mut words = subject.split('.');
    for part in pattern.split('.') {
        match (part, words.next()) {
            (">", Some(_)) => return true,
            (_, None) => return false,
            ("*", Some(_)) => {}
            (part, Some(word)) if part == word => {}
            _ => return false,
        }
    }
    words.next().is_none()
}

/// The one of all servers. One that is there is taken as it is, but for its `ack_wait`.
async fn consumer(
    stream: &Stream,
    name: &str,
    subject: &str,
    ack_wait: Duration,
    deliver_new: bool,
) -> Result<PullConsumer, BrokerError> {
    let config = pull::Config {
        durable_name: Some(name.to_owned()),
        filter_subject: subject.to_owned(),
        deliver_policy: if deliver_new {
            DeliverPolicy::New
        } else {
            DeliverPolicy::All
        },
        ack_policy: AckPolicy::Explicit,
        ack_wait,
        max_ack_pending: NO_LIMIT,
        ..pull::Config::default()
    };
    let consumer = stream.get_or_create_consumer(name, config.clone());
    let consumer: PullConsumer = consumer.await.map_err(refused)?;
    let found = &consumer.cached_info().config;
    if found.ack_wait == ack_wait {
        return Ok(consumer);
    }
    let config = pull::Config {
        deliver_policy: found.deliver_policy,
        ..config
    };
    stream.create_consumer(config).await.map_err(refused)
}

impl Delayed {
    async fn open(context: &Context, settings: &NatsPipeline) -> Result<Self, BrokerError> {
        let subject = format!("pronghorn.delayed.{}", settings.subject);
        let stream = Config {
            name: format!("pronghorn-delayed-{}", escaped(&settings.subject)),
            subjects: vec![subject.clone()],
            retention: RetentionPolicy::WorkQueue,
            ..Config::default()
        };
        let stream = context
            .get_or_create_stream(stream)
            .await
            .map_err(refused)?;
        let consumer = consumer(&stream, CONSUMER, &subject, DELAYED_ACK_WAIT, false).await?;
        Ok(Self {
            subject,
            stream,
            consumer,
        })
    }
}

impl NatsLink {
    /// Writes a job, and does not wait for the answer. Of those of one `kind`, a short time apart,
    /// the first one is kept.
    async fn publish(
        &self,
        job: &Job,
        kind: Option<String>,
    ) -> Result<PublishAckFuture, BrokerError> {
        let (subject, due) = if job.delay.is_zero() {
            (&self.settings.subject, None)
        } else {
            let delay = millis(job.delay.min(LONGEST_DELAY));
            (&self.delayed.subject, Some(now_ms().saturating_add(delay)))
        };
        let (headers, payload) = message::write(job, &self.pipeline, due);
        let mut message = PublishMessage::build().headers(headers).payload(payload);
        if let Some(kind) = kind {
            message = message.message_id(kind);
        }
        let published = self.context.send_publish(subject.clone(), message);
        published.await.map_err(|error| not_published(&error))
    }

    /// Says what became of a message, and waits until NATS knows.
    async fn tell(&self, reply: &Subject, kind: AckKind) -> Result<(), BrokerError> {
        let told = self.client.request(reply.clone(), kind.into()).await;
        told.map(|_| ()).map_err(lost)
    }

    /// The messages that are there, up to so many; if there are none, those that come first in
    /// [`FETCH_WAIT`]. It is waited for the end of what was asked for: what comes late would be out
    /// for `ack_wait`, and nobody's.
    async fn pull(
        &self,
        consumer: &PullConsumer,
        most: usize,
    ) -> Result<Vec<jetstream::Message>, BrokerError> {
        let most = most.min(MOST_AT_A_TIME);
        let pulled = consumer
            .fetch()
            .max_messages(most)
            .max_bytes(MOST_BYTES_AT_A_TIME)
            .expires(FETCH_WAIT);
        let mut pulled = pulled.messages().await.map_err(lost)?;
        let (mut messages, mut bytes) = (Vec::new(), 0);
        loop {
            let message = match pulled.try_next().await {
                Ok(Some(message)) => message,
                Ok(None) => return Ok(messages),
                // The next one would lead beyond the bytes that were asked for.
                Err(error) if error.to_string().contains(BEYOND) && !messages.is_empty() => {
                    return Ok(messages);
                }
                Err(error) => return Err(lost(error)),
            };
            bytes += message.length;
            if messages.len() == most || bytes > MOST_BYTES_AT_A_TIME {
                let why = "it sends more than was asked for";
                return Err(BrokerError::Lost(why.to_owned()));
            }
            messages.push(message);
        }
    }

    /// Makes a delayed job ready whose time has come, and gives back another one until then.
    async fn promote(&self, message: &jetstream::Message) -> Result<(), BrokerError> {
        let reply = message.reply.clone().unwrap_or_else(|| "".into());
        let (job, due) = message::read(message);
        let left = due.unwrap_or_default().saturating_sub(now_ms());
        if left > 0 {
            let left = Duration::from_millis(left);
            return self.tell(&reply, AckKind::Nak(Some(left))).await;
        }
        let kind = place(message)?.kind("due");
        let published = match self.publish(&job, Some(kind)).await {
            Ok(published) => published
                .await
                .map_err(|error| not_published(&error))
                .map(|_| ()),
            Err(error) => Err(error),
        };
        match published {
            Ok(()) => self.tell(&reply, AckKind::Ack).await,
            Err(BrokerError::Refused(_) | BrokerError::Unfit(_)) => {
                self.tell(&reply, AckKind::Nak(Some(MOVE_AGAIN))).await
            }
            Err(error) => Err(error),
        }
    }

    async fn move_delayed(&self) -> Result<(), BrokerError> {
        loop {
            let messages = self.pull(&self.delayed.consumer, MOST_AT_A_TIME).await?;
            let moved = messages.iter().map(|message| self.promote(message));
            try_join_all(moved).await?;
        }
    }
}

impl Link for NatsLink {
    type Token = Token;

    const TOKENS_OUTLIVE_IT: bool = true;

    const KEEP_EVERY: Option<Duration> = Some(KEEP_EVERY);

    async fn push(&self, jobs: Vec<Job>) -> Result<(), BrokerError> {
        for jobs in jobs.chunks(MOST_AT_A_TIME) {
            let mut published = Vec::with_capacity(jobs.len());
            for job in jobs {
                published.push(self.publish(job, None).await?);
            }
            for published in published {
                published.await.map_err(|error| not_published(&error))?;
            }
        }
        Ok(())
    }

    async fn fetch(&self, most: usize) -> Result<Vec<(Job, Token)>, BrokerError> {
        let messages = self.pull(&self.consumer, most).await?;
        let mut jobs = Vec::with_capacity(messages.len());
        for message in messages {
            let place = place(&message)?;
            if lock(&self.out).insert(place) {
                let (job, _) = message::read(&message);
                let reply = message.message.reply.unwrap_or_else(|| "".into());
                jobs.push((job, Token { reply, place }));
            }
        }
        Ok(jobs)
    }

    async fn settle(&self, token: Token, step: Step) -> Result<(), BrokerError> {
        let kind = match step {
            Step::Done => AckKind::Ack,
            Step::Rejected(_) => AckKind::Term,
            Step::Back(_) => AckKind::Nak(None),
            Step::Again(job) => {
                let kind = token.place.kind("again");
                let published = self.publish(&job, Some(kind)).await?;
                published.await.map_err(|error| not_published(&error))?;
                AckKind::Ack
            }
        };
        let is_over = !matches!(kind, AckKind::Nak(_));
        self.tell(&token.reply, kind).await?;
        if is_over && self.settings.delete_after_ack {
            // One that is not there any more is as good as deleted.
            _ = self.stream.delete_message(token.place.number).await;
        }
        lock(&self.out).remove(&token.place);
        Ok(())
    }

    async fn keep(&self, tokens: Vec<Token>) -> Result<(), BrokerError> {
        for token in tokens {
            let kept = self.client.publish(token.reply, AckKind::Progress.into());
            kept.await.map_err(lost)?;
        }
        Ok(())
    }

    /// Delayed jobs become ready.
    async fn tend(&self) -> BrokerError {
        tokio::select! {
            error = until_lost(&self.client) => error,
            moved = self.move_delayed() => match moved {
                Ok(()) => BrokerError::Lost("delayed jobs are not moved any more".to_owned()),
                Err(error) => error,
            },
        }
    }

    async fn stat(&self) -> Result<Counts, BrokerError> {
        let consumer = self.consumer.get_info().await.map_err(lost)?;
        let delayed = self.delayed.consumer.get_info().await.map_err(lost)?;
        Ok(Counts {
            waiting: consumer.num_pending,
            // Not the messages of the stream: a NATS that was killed may keep some that are done.
            delayed: delayed.num_pending + delayed.num_ack_pending as u64,
            out: Some(consumer.num_ack_pending as u64),
            oldest: None,
        })
    }

    /// Where jobs that are done stay, nobody can tell them from the others.
    async fn list(
        &self,
        after: Option<ListedTo>,
    ) -> Result<(Vec<Job>, Option<ListedTo>), BrokerError> {
        if !self.settings.delete_after_ack {
            return Err(BrokerError::Refused(
                "it shows its jobs only with `delete_after_ack: true`".to_owned(),
            ));
        }
        match after.unwrap_or(ListedTo::Delayed(0)) {
            ListedTo::Delayed(last) => {
                let Delayed {
                    stream,
                    subject,
                    consumer,
                } = &self.delayed;
                let last = last.max(done_up_to(consumer).await?);
                let (jobs, last) = listed(stream, subject, last).await?;
                let next = last.map_or(ListedTo::Waiting(0, 0), ListedTo::Delayed);
                Ok((jobs, Some(next)))
            }
            ListedTo::Waiting(last, _) => {
                let last = last.max(done_up_to(&self.consumer).await?);
                let listed = listed(&self.stream, &self.settings.subject, last);
                let (jobs, last) = listed.await?;
                Ok((jobs, last.map(|last| ListedTo::Waiting(last, 0))))
            }
        }
    }

    async fn close(&self) {
        if self.settings.delete_stream_on_stop {
            for stream in [&self.stream, &self.delayed.stream] {
                let name = &stream.cached_info().config.name;
                // One that is gone already needs no farewell.
                _ = self.context.delete_stream(name).await;
            }
        }
        _ = self.client.drain().await;
    }
}

/// Waits until the connection is of no use. One whose bytes make no message is given up.
async fn until_lost(client: &Client) -> BrokerError {
    let statistics = client.statistics();
    let (mut messages, mut before) = (0, 0);
    while client.connection_state() == State::Connected {
        let bytes = statistics.in_bytes.load(Relaxed);
        let complete = statistics.in_messages.load(Relaxed);
        if complete != messages {
            (messages, before) = (complete, bytes);
        }
        if bytes - before > LONGEST_MESSAGE {
            let why = format!("it sends a message of more than {LONGEST_MESSAGE} bytes");
            return BrokerError::Lost(why);
        }
        sleep(LOOK_AGAIN).await;
    }
    BrokerError::Lost("the connection was closed".to_owned())
}

/// The place up to which all messages are acknowledged. A NATS that was killed may keep some of
/// them all the same.
async fn done_up_to(consumer: &PullConsumer) -> Result<u64, BrokerError> {
    let info = consumer.get_info().await.map_err(lost)?;
    Ok(info.ack_floor.stream_sequence)
}

/// The jobs behind a place in a stream, and the place of the last one; none when there are no more.
async fn listed(
    stream: &Stream,
    subject: &str,
    last: u64,
) -> Result<(Vec<Job>, Option<u64>), BrokerError> {
    let (mut jobs, mut bytes, mut last) = (Vec::new(), 0, last);
    while jobs.len() < MOST_IN_PART && bytes < MOST_BYTES_IN_PART as u64 {
        let asked = stream
            .raw_message_builder()
            .sequence(last.saturating_add(1));
        let message = match asked.next_by_subject(subject).send().await {
            Ok(message) => message,
            Err(error) if error.kind() == RawMessageErrorKind::NoMessageFound => break,
            Err(error) => return Err(lost(error)),
        };
        last = message.sequence;
        let (job, due) = message::read_parts(&message.payload, Some(&message.headers));
        bytes += job.size();
        let left = due.unwrap_or_default().saturating_sub(now_ms());
        jobs.push(Job {
            delay: Duration::from_millis(left),
            ..job
        });
    }
    let next = (!jobs.is_empty()).then_some(last);
    Ok((jobs, next))
}

fn place(message: &jetstream::Message) -> Result<Place, BrokerError> {
    let info = message.info().map_err(lost)?;
    Ok(Place {
        number: info.stream_sequence,
        time: info.published.unix_timestamp_nanos(),
    })
}

fn lost(error: impl Display) -> BrokerError {
    BrokerError::Lost(error.to_string())
}

/// A declaration that fails now fails on the next connection, too, mostly.
fn refused(error: impl Display) -> BrokerError {
    BrokerError::Refused(error.to_string())
}

/// Whether a stream takes only shorter messages.
fn is_too_long(error: &PublishError) -> bool {
    let refused = error.source().and_then(|it| it.downcast_ref());
    refused.is_some_and(|refused: &jetstream::Error| {
        [
            ErrorCode::STREAM_MESSAGE_EXCEEDS_MAXIMUM,
            ErrorCode::STREAM_HEADER_EXCEEDS_MAXIMUM,
        ]
        .contains(&refused.error_code())
    })
}

fn not_published(error: &PublishError) -> BrokerError {
    match error.kind() {
        PublishErrorKind::MaxPayloadExceeded => BrokerError::Unfit(error.to_string()),
        PublishErrorKind::Other if is_too_long(error) => BrokerError::Unfit(error.to_string()),
        PublishErrorKind::Other => BrokerError::Refused(error.to_string()),
        _ => BrokerError::Lost(error.to_string()),
    }
}

#[cfg(test)]
mod tests;
