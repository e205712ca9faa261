//! `kafka`: topics of Kafka, with records as RoadRunner has them.
//!
//! Kafka gives partitions to the servers of a group, and knows of each up to which record all are
//! done. A job that is done behind one that still runs is told to Kafka with that one. Jobs that
//! are given back stay with the server that has their partition. A server is in its group from the
//! first time that it wants jobs until it wants none. Delayed jobs wait in the server's store.
//!
//! - `connect`: the way to a Kafka.
//! - `held`: the jobs that this server has of its partitions.
//! - `offsets`: which records of partitions are done.
//! - `message`: a job as a record.

mod connect;
mod held;
mod message;
mod offsets;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use krafka::admin::{AdminClient, ListOffsetsOptions, OffsetSpec};
use krafka::consumer::{CommittedPosition, Consumer, OffsetAndMetadata, TopicPartition};
use krafka::error::ErrorCode;
use krafka::producer::Producer;
use krafka::{CloseOptions, GroupMembershipOperation, Kafka, KrafkaError};
use pronghorn_base::lock;
use pronghorn_queue::{Job, Wake};
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::{Instant, sleep, timeout};

use self::connect::{
    PATIENCE, Partitions, consumer, create_topics, find_topics, look_at_topics, producer, reach,
    with_causes,
};
use self::held::{HeldJobs, Moves, Token};
use crate::broker::item::new_id;
use crate::broker::{Broker, BrokerError, Brokered, Counts, FETCH_WAIT, LaterJobs, Link, Step};
use crate::kafka::settings::{KafkaPipeline, KafkaStart};

/// While no job is wanted, the group is looked after so often.
const LOOK_AFTER: Duration = Duration::from_secs(1);
/// The brokers are asked for the topics so often, and may be silent for so long. Who waits for
/// records does not hear that they are away.
const LOOK_AT_TOPICS: Duration = if cfg!(test) {
    Duration::from_secs(1)
} else {
    Duration::from_secs(5)
};
const SILENCE: Duration = if cfg!(test) {
    Duration::from_secs(3)
} else {
    PATIENCE
};
/// A group that is divided anew takes no offsets, for up to [`SESSION`](connect::SESSION) when one
/// of its servers was killed: an acknowledgement waits no longer than this, and is told to Kafka
/// afterwards.
const COMMIT_WAIT: Duration = Duration::from_secs(3);
/// A group whose coordinator is not up yet is asked again after that.
const ASK_AGAIN: Duration = Duration::from_millis(100);
const FAREWELL: Duration = Duration::from_secs(3);

/// One offset of each partition.
type Listed = HashMap<TopicPartition, i64>;

pub(crate) type KafkaDriver = Brokered<KafkaBroker>;

pub(crate) fn open(
    pipeline: &str,
    settings: &KafkaPipeline,
    wake: Wake,
    later: LaterJobs,
) -> KafkaDriver {
    let broker = KafkaBroker {
        title: format!("kafka at {}", settings.server.brokers.join(",")),
        pipeline: pipeline.to_owned(),
        instance: format!("pronghorn-{}", new_id()),
        settings: settings.clone(),
    };
    Brokered::open_with(broker, pipeline, wake, later)
}

pub(crate) struct KafkaBroker {
    title: String,
    pipeline: String,
    /// The name of this server in the group, unless the settings say so. One that comes back by a
    /// new connection has its partitions at once, and not when its old one was silent for
    /// [`SESSION`](connect::SESSION).
    instance: String,
    settings: KafkaPipeline,
}

pub(crate) struct KafkaLink {
    pipeline: String,
    settings: KafkaPipeline,
    instance: String,
    producer: Producer,
    admin: AdminClient,
    bringing: Kafka,
    /// One that has left its group is replaced.
    consumer: Mutex<Arc<Consumer>>,
    /// The partitions that there were at the beginning.
    partitions: Partitions,
    /// One asks at a time. Whether this server is in the group.
    asking: AsyncMutex<bool>,
    held: Arc<Mutex<HeldJobs>>,
    /// One tells at a time.
    committing: AsyncMutex<()>,
}

impl Broker for KafkaBroker {
    type Link = KafkaLink;

    fn title(&self) -> &str {
        &self.title
    }

    fn queue(&self) -> &str {
        self.settings.topic()
    }

    fn longest_delay(&self) -> Duration {
        Duration::ZERO
    }

    async fn connect(&self) -> Result<KafkaLink, BrokerError> {
        let settings = &self.settings;
        let server = &settings.server;
        // Kafka answers a connection's requests one after the other: a push on the one by which
        // records are waited for would wait as well.
        let (pushing, bringing) = tokio::try_join!(reach(server), reach(server))?;
        let admin = pushing.admin();
        if settings.create_topics {
            create_topics(&admin, &settings.topics).await?;
        }
        let producer = producer(&pushing, settings).await?;
        let held: Arc<Mutex<HeldJobs>> = Arc::default();
        let instance = settings.instance.as_ref().unwrap_or(&self.instance);
        let moves = Moves(held.clone());
        let consumer = consumer(&bringing, settings, instance, moves).await?;
        let partitions = find_topics(&consumer, settings).await?;
        Ok(KafkaLink {
            pipeline: self.pipeline.clone(),
            settings: settings.clone(),
            instance: instance.clone(),
            producer,
            admin,
            bringing,
            consumer: Mutex::new(Arc::new(consumer)),
            partitions,
            asking: AsyncMutex::default(),
            held,
            committing: AsyncMutex::default(),
        })
    }
}

impl KafkaPipeline {
    /// The topic of pushes that name none.
    fn topic(&self) -> &str {
        self.topics.first().map_or("", String::as_str)
    }
}

impl KafkaLink {
    fn consumer(&self) -> Arc<Consumer> {
        lock(&self.consumer).clone()
    }

    /// Stays in the group, and tells Kafka what it has not heard.
    async fn look_after_group(&self) -> Result<(), BrokerError> {
        self.commit().await?;
        // Who asks for jobs looks after the group, too.
        let Ok(is_member) = self.asking.try_lock() else {
            return Ok(());
        };
        if !*is_member {
            return Ok(());
        }
        let consumer = self.consumer();
        let assigned = consumer.assignment().await;
        for (topic, partitions) in &assigned {
            consumer.pause(topic, partitions).await;
        }
        let polled = consumer.poll(Duration::from_millis(1)).await;
        for (topic, partitions) in &assigned {
            consumer.resume(topic, partitions).await;
        }
        // It is of a partition that has just come.
        for record in polled? {
            let mut held = lock(&self.held);
            if let Some((job, token)) = held.take_in(&record) {
                held.give_back(job, token);
            }
        }
        self.note_beginnings().await;
        Ok(())
    }

    /// Kafka is to know where partitions begin, also those without a job: a group that has said
    /// nothing of one begins there anew each time, and may pass over jobs. For who has `asking`.
    async fn note_beginnings(&self) {
        let (new, consumer) = (lock(&self.held).take_new(), self.consumer());
        for place in new {
            let (topic, partition) = &place;
            match consumer.position(topic, *partition).await {
                Some(next) => lock(&self.held).offsets.begin(&place, next),
                None => lock(&self.held).put_new(place),
            }
        }
    }

    /// Ends when the brokers are away, or have made partitions: a group gives out those when one of
    /// its servers leaves it and comes again.
    async fn look_at_topics(&self) -> BrokerError {
        loop {
            sleep(LOOK_AT_TOPICS).await;
            match look_at_topics(&self.admin, &self.partitions, SILENCE).await {
                Ok(partitions) if partitions == self.partitions => {}
                Ok(_) => {
                    let _one = self.asking.lock().await;
                    self.leave(GroupMembershipOperation::LeaveGroup).await;
                    return BrokerError::Lost("its topics have other partitions now".to_owned());
                }
                Err(error) => return error,
            }
        }
    }

    async fn leave(&self, membership: GroupMembershipOperation) {
        let options = CloseOptions::new().timeout(FAREWELL);
        let options = options.group_membership_operation(membership);
        // The silence says it, where this can't be said now.
        _ = timeout(FAREWELL, self.commit()).await;
        _ = self.consumer().close_with(options).await;
    }

    /// Tells Kafka what is done. Calls that come meanwhile are told together. What a group that is
    /// divided anew does not take is told by the next call.
    async fn commit(&self) -> Result<(), BrokerError> {
        let _one = self.committing.lock().await;
        let told = lock(&self.held).offsets.to_commit();
        if told.is_empty() {
            return Ok(());
        }
        let offsets = told.iter().map(|((topic, partition), up_to)| {
            let place = TopicPartition::new(topic.to_string(), *partition);
            (place, OffsetAndMetadata::new(*up_to))
        });
        match self.consumer().commit_offsets(offsets).await {
            Ok(()) => lock(&self.held).offsets.committed(&told),
            Err(error) if is_divided_anew(&error) => {}
            Err(error) => return Err(BrokerError::Lost(with_causes(&error))),
        }
        Ok(())
    }

    async fn send(&self, jobs: &[Job]) -> Result<(), BrokerError> {
        let mut handles = Vec::with_capacity(jobs.len());
        for job in jobs {
            let record = message::write(job, &self.pipeline, self.settings.topic());
            handles.push(self.producer.enqueue(record).await?);
        }
        for handle in handles {
            _ = handle.await?; // where it is
        }
        Ok(())
    }

    /// How many records are behind the last one that was brought of their partition, or that the
    /// group has done.
    async fn behind(&self) -> Result<u64, KrafkaError> {
        let all = self.partitions.iter().flat_map(|(topic, count)| {
            let numbers = 0..i32::try_from(*count).unwrap_or(i32::MAX);
            numbers.map(move |number| TopicPartition::new(topic.clone(), number))
        });
        let all: Vec<_> = all.collect();
        let brought = |it: &TopicPartition| {
            let place = (it.topic.as_str().into(), it.partition);
            lock(&self.held).offsets.next(&place)
        };
        let others = all.iter().filter(|it| brought(it).is_none());
        let committed = self.committed(others).await?;
        let (first, end) = tokio::try_join!(
            self.list_offsets(&all, OffsetSpec::Earliest),
            self.list_offsets(&all, OffsetSpec::Latest),
        )?;
        let behind = all.iter().map(|it| {
            let of = |offsets: &Listed| offsets.get(it).copied().unwrap_or_default();
            let (first, end) = (of(&first), of(&end));
            let key = (it.topic.clone(), it.partition);
            let done = committed.get(&key).map(|done| done.offset);
            let from = brought(it).or(done).unwrap_or(match self.settings.start {
                KafkaStart::AtStart => first,
                KafkaStart::AtEnd => end,
            });
            // Kafka drops old records, done or not.
            u64::try_from(end.saturating_sub(from.max(first))).unwrap_or(0)
        });
        Ok(behind.sum())
    }

    /// Up to where the group has done partitions.
    async fn committed(
        &self,
        partitions: impl Iterator<Item = &TopicPartition>,
    ) -> Result<HashMap<(String, i32), CommittedPosition>, KrafkaError> {
        let asked: Vec<_> = partitions.map(|it| (&*it.topic, it.partition)).collect();
        let until = Instant::now() + PATIENCE;
        loop {
            match self.consumer().committed(&asked).await {
                Err(error) if error.is_retriable() && Instant::now() < until => {
                    sleep(ASK_AGAIN).await;
                }
                known => return known,
            }
        }
    }

    async fn list_offsets(
        &self,
        partitions: &[TopicPartition],
        which: OffsetSpec,
    ) -> Result<Listed, KrafkaError> {
        let asked = partitions.iter().map(|it| (it.clone(), which));
        let options = ListOffsetsOptions::default().timeout(PATIENCE);
        let listed = self.admin.list_offsets(asked, options).await?;
        let offsets = listed.into_iter();
        offsets
            .map(|(it, listed)| Ok((it, listed?.offset)))
            .collect()
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
        let mut is_member = self.asking.lock().await;
        let consumer = self.consumer();
        if !*is_member {
            consumer.subscribe(&self.settings.topics).await?;
            *is_member = true;
        }
        let mut jobs = lock(&self.held).take_back(most);
        let mut wait = if jobs.is_empty() {
            FETCH_WAIT
        } else {
            Duration::ZERO
        };
        while jobs.len() < most {
            // Not dropped before its end: Kafka would wait on, and answer nothing else meanwhile.
            let records = consumer.poll(wait).await?;
            if records.is_empty() {
                break;
            }
            let mut held = lock(&self.held);
            jobs.extend(records.iter().filter_map(|record| held.take_in(record)));
            wait = Duration::ZERO;
        }
        self.note_beginnings().await;
        Ok(jobs)
    }

    /// Leaves the group, with all that it has done told: what is told afterwards is in vain.
    async fn resign(&self) -> Result<bool, BrokerError> {
        let mut is_member = self.asking.lock().await;
        if !*is_member {
            return Ok(true);
        }
        self.commit().await?;
        let _one = self.committing.lock().await;
        if !lock(&self.held).is_settled() {
            return Ok(false);
        }
        let moves = Moves(self.held.clone());
        let next = consumer(&self.bringing, &self.settings, &self.instance, moves).await?;
        let options = CloseOptions::new()
            .timeout(FAREWELL)
            .group_membership_operation(GroupMembershipOperation::LeaveGroup);
        // The silence says it, where this can't be said now.
        _ = self.consumer().close_with(options).await;
        *lock(&self.consumer) = Arc::new(next);
        *lock(&self.held) = HeldJobs::default();
        *is_member = false;
        Ok(true)
    }

    async fn settle(&self, token: Token, step: Step) -> Result<(), BrokerError> {
        let Token { place, offset } = &token;
        if !lock(&self.held).offsets.is_out(place, *offset) {
            // Its partition is another server's, which has it as well.
            return Err(BrokerError::NotReserved);
        }
        match step {
            Step::Back(job) => {
                lock(&self.held).give_back(Job::clone(&job), token);
                return Ok(());
            }
            Step::Again(job) => self.send(&[job]).await?,
            Step::Done | Step::Rejected(_) => {}
        }
        lock(&self.held).offsets.done(place, *offset);
        timeout(COMMIT_WAIT, self.commit()).await.unwrap_or(Ok(()))
    }

    async fn tend(&self) -> BrokerError {
        let group = async {
            loop {
                sleep(LOOK_AFTER).await;
                match self.look_after_group().await {
                    Ok(()) => {}
                    // Who has left it has a reason.
                    Err(_) if self.consumer().is_closed() => std::future::pending().await,
                    Err(error) => return error,
                }
            }
        };
        tokio::select! {
            error = group => error,
            error = self.look_at_topics() => error,
        }
    }

    async fn stat(&self) -> Result<Counts, BrokerError> {
        // The connection may be as good as before: it may be that the group is divided anew.
        let refused = |error: KrafkaError| BrokerError::Refused(with_causes(&error));
        let behind = self.behind().await.map_err(refused)?;
        Ok(Counts {
            waiting: behind + lock(&self.held).waiting(),
            ..Counts::default()
        })
    }

    async fn close(&self) {
        // A name that people have given is kept for the server that comes next.
        let membership = if self.settings.instance.is_some() {
            GroupMembershipOperation::Default
        } else {
            GroupMembershipOperation::LeaveGroup
        };
        self.leave(membership).await;
        let options = CloseOptions::new().timeout(FAREWELL);
        _ = self.producer.close_with(options).await;
    }
}

/// Whether offsets can be told again later.
fn is_divided_anew(error: &KrafkaError) -> bool {
    match error {
        KrafkaError::Broker { code, .. } => {
            code.is_retriable()
                || matches!(
                    code,
                    ErrorCode::RebalanceInProgress
                        | ErrorCode::IllegalGeneration
                        | ErrorCode::UnknownMemberId
                )
        }
        // Without a place in the group, or behind a request to join it.
        KrafkaError::IllegalState { .. } | KrafkaError::Timeout { .. } => true,
        _ => false,
    }
}

impl From<KrafkaError> for BrokerError {
    fn from(error: KrafkaError) -> Self {
        let why = with_causes(&error);
        match error {
            KrafkaError::Network(_)
            | KrafkaError::Timeout { .. }
            | KrafkaError::DeliveryTimeout { .. }
            | KrafkaError::Auth { .. }
            | KrafkaError::Closed { .. }
            | KrafkaError::Fenced { .. } => Self::Lost(why),
            // The client calls a record that is too long a wrong configuration of its own.
            KrafkaError::Config { .. }
            | KrafkaError::Broker {
                code: ErrorCode::MessageTooLarge | ErrorCode::RecordListTooLarge,
                ..
            } => Self::Unfit(why),
            _ => Self::Refused(why),
        }
    }
}

#[cfg(test)]
mod tests;
