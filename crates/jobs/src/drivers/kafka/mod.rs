//! `kafka`: topics of Kafka, with records as RoadRunner has them.
//!
//! Kafka gives partitions to the servers of a group, and knows of each up to which record all are
//! done. A job that is done behind one that still runs is told to Kafka with that one. Jobs that
//! are given back stay with the server that has their partition. Delayed jobs wait in the server's
//! store.

mod message;
mod offsets;

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::Duration;

use krafka::admin::{CreateTopicsOptions, NewTopic};
use krafka::auth::{AuthConfig, TlsConfig};
use krafka::consumer::{
    AutoOffsetReset, Consumer, ConsumerRecord, OffsetAndMetadata, PartitionAssignmentStrategy,
    TopicPartition,
};
use krafka::error::ErrorCode;
use krafka::producer::{Acks, Producer};
use krafka::{CloseOptions, Compression, Kafka, KrafkaError};
use pronghorn_base::lock;
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::{Instant, sleep, timeout};

use self::offsets::{Offsets, Place};
use crate::drivers::Wake;
use crate::drivers::broker::{
    Broker, BrokerError, Brokered, Counts, FETCH_WAIT, Later, Link, Step,
};
use crate::job::Job;
use crate::settings::{
    BrokerTls, KafkaAcks, KafkaCompression, KafkaPipeline, KafkaServer, KafkaStart, SaslMechanism,
};

/// A server that is not heard for so long is not of its group any more, and its partitions go to
/// others. Kafka takes no less than 6 seconds unless it is told to.
const SESSION: Duration = if cfg!(test) {
    Duration::from_secs(6)
} else {
    Duration::from_secs(30)
};
const HEARTBEAT: Duration = if cfg!(test) {
    Duration::from_millis(500)
} else {
    Duration::from_secs(3)
};
const PATIENCE: Duration = Duration::from_secs(10);
/// While no job is wanted, the group is looked after so often.
const LOOK_AFTER: Duration = Duration::from_secs(1);
const FAREWELL: Duration = Duration::from_secs(3);
/// Jobs that wait to be packed together; a push of one is not to wait.
const LINGER: Duration = Duration::ZERO;

pub(crate) type KafkaDriver = Brokered<KafkaBroker>;

pub(crate) fn open(
    pipeline: &str,
    settings: &KafkaPipeline,
    wake: Wake,
    later: Later,
) -> KafkaDriver {
    let broker = KafkaBroker {
        title: format!("kafka at {}", settings.server.brokers.join(",")),
        pipeline: pipeline.to_owned(),
        settings: settings.clone(),
    };
    Brokered::open_with(broker, pipeline, wake, later)
}

pub(crate) struct KafkaBroker {
    title: String,
    pipeline: String,
    settings: KafkaPipeline,
}

pub(crate) struct KafkaLink {
    pipeline: String,
    settings: KafkaPipeline,
    producer: Producer,
    consumer: Consumer,
    /// One asks at a time; and when it was done last.
    asking: AsyncMutex<Instant>,
    offsets: Mutex<Offsets>,
    /// One tells at a time.
    committing: AsyncMutex<()>,
    /// Given back, or come while none was wanted: the next ones.
    given_back: Mutex<VecDeque<(Job, Token)>>,
}

/// Where a record is.
#[derive(Clone, Debug)]
pub(crate) struct Token {
    place: Place,
    offset: i64,
}

impl Broker for KafkaBroker {
    type Link = KafkaLink;

    fn title(&self) -> &str {
        &self.title
    }

    fn queue(&self) -> &str {
        self.topic()
    }

    fn longest_delay(&self) -> Duration {
        Duration::ZERO
    }

    async fn connect(&self) -> Result<KafkaLink, BrokerError> {
        let settings = &self.settings;
        let kafka = Kafka::builder(settings.server.brokers.join(","))
            .client_id("pronghorn")
            .security(security(&settings.server)?)
            .request_timeout(PATIENCE)
            .connect_timeout(PATIENCE)
            .connect()
            .await?;
        if settings.create_topics {
            create_topics(&kafka, &settings.topics).await?;
        }
        let producer = kafka
            .producer()
            .acks(match settings.acks {
                KafkaAcks::All => Acks::All,
                KafkaAcks::Leader => Acks::Leader,
                KafkaAcks::None => Acks::None,
            })
            .idempotent(settings.acks == KafkaAcks::All)
            .compression(match settings.compression {
                KafkaCompression::None => Compression::None,
                KafkaCompression::Gzip => Compression::Gzip,
                KafkaCompression::Snappy => Compression::Snappy,
                KafkaCompression::Lz4 => Compression::Lz4,
            })
            .linger(LINGER)
            .metrics_push(false)
            .delivery_timeout(PATIENCE * 2)
            .max_block(PATIENCE)
            .build()
            .await?;
        let mut consumer = kafka
            .consumer(settings.group.clone())
            .enable_auto_commit(false)
            .auto_offset_reset(match settings.start {
                KafkaStart::AtStart => AutoOffsetReset::Earliest,
                KafkaStart::AtEnd => AutoOffsetReset::Latest,
            })
            .partition_assignment_strategy(PartitionAssignmentStrategy::CooperativeSticky)
            .session_timeout(SESSION)
            .heartbeat_interval(HEARTBEAT)
            .metrics_push(false)
            .max_poll_records(1);
        if let Some(instance) = &settings.instance {
            consumer = consumer.group_instance_id(instance.clone());
        }
        let consumer = consumer.build().await?;
        consumer.subscribe(&settings.topics).await?;
        Ok(KafkaLink {
            pipeline: self.pipeline.clone(),
            settings: settings.clone(),
            producer,
            consumer,
            asking: AsyncMutex::new(Instant::now()),
            offsets: Mutex::default(),
            committing: AsyncMutex::default(),
            given_back: Mutex::default(),
        })
    }
}

impl KafkaBroker {
    fn topic(&self) -> &str {
        self.settings.topic()
    }
}

impl KafkaPipeline {
    /// Of pushes that name none.
    fn topic(&self) -> &str {
        self.topics.first().map_or("", String::as_str)
    }
}

fn security(server: &KafkaServer) -> Result<AuthConfig, BrokerError> {
    let tls = server.tls.as_ref().map(tls_config);
    let Some(sasl) = &server.sasl else {
        return Ok(tls.map_or_else(AuthConfig::plaintext, AuthConfig::ssl));
    };
    let (name, password) = (sasl.username.as_str(), sasl.password.as_str());
    let config = match sasl.mechanism {
        SaslMechanism::Plain => AuthConfig::sasl_plain(name, password),
        SaslMechanism::ScramSha256 => AuthConfig::sasl_scram_sha256(name, password),
        SaslMechanism::ScramSha512 => AuthConfig::sasl_scram_sha512(name, password),
    };
    Ok(match tls {
        Some(tls) => config.with_tls(tls),
        None => config,
    })
}

fn tls_config(tls: &BrokerTls) -> TlsConfig {
    let path = |path: &std::path::Path| path.to_string_lossy().into_owned();
    let config = match &tls.root_ca {
        Some(root) => TlsConfig::new().with_ca_cert(path(root)),
        None => TlsConfig::new().with_native_roots(),
    };
    match &tls.identity {
        Some((cert, key)) => config.with_client_cert(path(cert), path(key)),
        None => config,
    }
}

async fn create_topics(kafka: &Kafka, topics: &[String]) -> Result<(), BrokerError> {
    let topics = topics.iter().map(|name| NewTopic::new(name, -1, -1));
    let topics = topics.collect::<Result<Vec<_>, _>>()?;
    let admin = kafka.admin();
    let created = admin.create_topics(topics, CreateTopicsOptions::default());
    for (_, result) in created.await? {
        match result {
            Err(KrafkaError::Broker {
                code: ErrorCode::TopicAlreadyExists,
                ..
            }) => {}
            result => result.map(|_| ())?,
        }
    }
    admin.close().await?;
    Ok(())
}

impl KafkaLink {
    /// A job of a record, unless it was here before.
    fn take_in(&self, record: &ConsumerRecord) -> Option<(Job, Token)> {
        let place: Place = (record.topic.clone(), record.partition);
        let is_new = lock(&self.offsets).brought(&place, record.offset);
        is_new.then(|| {
            let offset = record.offset;
            (message::read(record), Token { place, offset })
        })
    }

    /// Partitions that another server has now are none of ours.
    async fn look_at_partitions(&self) {
        let ours = self.consumer.assignment().await;
        let is_ours = |place: &Place| {
            let partitions = ours.get(&*place.0);
            partitions.is_some_and(|all| all.contains(&place.1))
        };
        lock(&self.offsets).keep(is_ours);
        lock(&self.given_back).retain(|(_, token)| is_ours(&token.place));
    }

    /// Stays in the group without taking anything.
    async fn look_after_group(&self) -> Result<(), BrokerError> {
        let mut asked = self.asking.lock().await;
        if asked.elapsed() < LOOK_AFTER {
            return Ok(());
        }
        let assigned = self.consumer.assignment().await;
        for (topic, partitions) in &assigned {
            self.consumer.pause(topic, partitions).await;
        }
        let polled = self.consumer.poll(Duration::from_millis(1)).await;
        for (topic, partitions) in &assigned {
            self.consumer.resume(topic, partitions).await;
        }
        // Of a partition that has just come.
        let come = polled?;
        let come = come.iter().filter_map(|record| self.take_in(record));
        lock(&self.given_back).extend(come);
        self.look_at_partitions().await;
        // Else nobody would notice that the brokers are gone.
        self.consumer
            .fetch_metadata(Some(self.settings.topic()))
            .await?;
        *asked = Instant::now();
        Ok(())
    }

    /// Tells Kafka what is done. Calls that come meanwhile are told together.
    async fn commit(&self) -> Result<(), BrokerError> {
        let _one = self.committing.lock().await;
        let told = lock(&self.offsets).to_commit();
        if told.is_empty() {
            return Ok(());
        }
        let offsets = told.iter().map(|((topic, partition), up_to)| {
            let place = TopicPartition::new(topic.to_string(), *partition);
            (place, OffsetAndMetadata::new(*up_to))
        });
        // One that is refused is of a partition that has moved: the next connection knows better.
        self.consumer
            .commit_offsets(offsets)
            .await
            .map_err(|error| BrokerError::Lost(with_causes(&error)))?;
        lock(&self.offsets).committed(&told);
        Ok(())
    }

    async fn send(&self, jobs: &[Job]) -> Result<(), BrokerError> {
        let mut handles = Vec::with_capacity(jobs.len());
        for job in jobs {
            let record = message::write(job, &self.pipeline, self.settings.topic());
            handles.push(self.producer.enqueue(record).await?);
        }
        for handle in handles {
            handle.await?;
        }
        Ok(())
    }

    /// Of all partitions of a topic: how many records are behind the last one that was brought, or
    /// that the group has done.
    async fn behind(&self, topic: &str) -> Result<u64, BrokerError> {
        let metadata = self.consumer.fetch_metadata(Some(topic)).await?;
        let partitions = metadata.topics.iter().filter(|it| *it.name == *topic);
        let partitions = partitions.flat_map(|it| it.partitions.keys().copied());
        let partitions: Vec<i32> = partitions.collect();
        let asked: Vec<_> = partitions.iter().map(|it| (topic, *it)).collect();
        let committed = self.consumer.committed(&asked).await?;
        let mut behind = 0;
        for partition in partitions {
            let (low, high) = self.consumer.fetch_watermarks(topic, partition).await?;
            let brought = lock(&self.offsets).next(&(topic.into(), partition));
            let done = committed.get(&(topic.to_owned(), partition));
            let from = brought.or(done.map(|it| it.offset));
            let from = from.unwrap_or(match self.settings.start {
                KafkaStart::AtStart => low,
                KafkaStart::AtEnd => high,
            });
            behind += u64::try_from(high - from).unwrap_or(0);
        }
        Ok(behind)
    }
}

impl Link for KafkaLink {
    type Token = Token;

    const TOKENS_OUTLIVE_IT: bool = false;

    const KEEP_EVERY: Option<Duration> = None;

    async fn push(&self, jobs: Vec<Job>) -> Result<(), BrokerError> {
        self.send(&jobs).await
    }

    async fn fetch(&self, most: usize) -> Result<Vec<(Job, Token)>, BrokerError> {
        let mut jobs: Vec<_> = {
            let mut given_back = lock(&self.given_back);
            let count = most.min(given_back.len());
            given_back.drain(..count).collect()
        };
        let mut asked = self.asking.lock().await;
        let mut wait = if jobs.is_empty() {
            FETCH_WAIT
        } else {
            Duration::ZERO
        };
        while jobs.len() < most {
            let Ok(record) = timeout(wait, self.consumer.recv()).await else {
                break;
            };
            let closed = || BrokerError::Lost("it was closed".to_owned());
            let record = record?.ok_or_else(closed)?;
            jobs.extend(self.take_in(&record));
            wait = Duration::ZERO;
        }
        *asked = Instant::now();
        self.look_at_partitions().await;
        Ok(jobs)
    }

    async fn settle(&self, token: Token, step: Step) -> Result<(), BrokerError> {
        let Token { place, offset } = &token;
        if !lock(&self.offsets).is_out(place, *offset) {
            // Its partition is another server's, which has it as well.
            return Err(BrokerError::NotReserved);
        }
        match step {
            Step::Back(job) => {
                lock(&self.given_back).push_back((Job::clone(&job), token));
                return Ok(());
            }
            Step::Again(job) => self.send(&[job]).await?,
            Step::Done | Step::Rejected(_) => {}
        }
        lock(&self.offsets).done(place, *offset);
        self.commit().await
    }

    async fn tend(&self) -> BrokerError {
        loop {
            sleep(LOOK_AFTER).await;
            if let Err(error) = self.look_after_group().await {
                return error;
            }
        }
    }

    async fn stat(&self) -> Result<Counts, BrokerError> {
        let mut waiting = lock(&self.given_back).len() as u64;
        for topic in &self.settings.topics {
            waiting += self.behind(topic).await?;
        }
        Ok(Counts {
            waiting,
            ..Counts::default()
        })
    }

    async fn close(&self) {
        let options = || CloseOptions::new().timeout(FAREWELL);
        // What can't be said now follows from the silence.
        _ = self.consumer.close_with(options()).await;
        _ = self.producer.close_with(options()).await;
    }
}

fn with_causes(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {}", with_causes(source)),
        None => error.to_string(),
    }
}

impl From<KrafkaError> for BrokerError {
    fn from(error: KrafkaError) -> Self {
        let why = with_causes(&error);
        match error {
            KrafkaError::Broker { .. } | KrafkaError::Config { .. } => Self::Refused(why),
            _ => Self::Lost(why),
        }
    }
}

#[cfg(test)]
mod tests;
