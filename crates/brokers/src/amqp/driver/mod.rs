//! `amqp`: RabbitMQ and what else speaks AMQP 0-9-1, with queues and messages as RoadRunner has
//! them.
//!
//! The broker sends what a consumer has credit for: the jobs that are out and those that workers
//! are free for. It is told by the prefetch count, which a consumer has from its start; when nobody
//! wants jobs any more, the consumer ends and what it has got goes back.

mod bounds;
mod message;
mod runtime;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use lapin::message::Delivery;
use lapin::options::{
    BasicAckOptions, BasicCancelOptions, BasicConsumeOptions, BasicNackOptions,
    BasicPublishOptions, BasicQosOptions, ConfirmSelectOptions, ExchangeDeclareOptions,
    QueueBindOptions, QueueDeclareOptions, QueueDeleteOptions,
};
use lapin::types::{AMQPValue, FieldTable, ShortString};
use lapin::uri::AMQPUri;
use lapin::{
    Channel, Confirmation, Connection, ConnectionProperties, Consumer, ExchangeKind,
    PublisherConfirm,
};
use pronghorn_queue::{Job, Wake};
use tokio::sync::Mutex;
use tokio::time::{sleep, timeout};

use self::bounds::Untaken;
use self::message::Token;
use crate::amqp::settings::{AmqpExchange, AmqpPipeline};
use crate::broker::{Broker, BrokerError, Brokered, Counts, FETCH_WAIT, Link, Step};

/// How often it is looked whether the connection stands.
const LOOK_AGAIN: Duration = Duration::from_millis(500);
/// A queue of delayed jobs has a time in milliseconds in 32 bits.
const LONGEST_DELAY: Duration = Duration::from_millis(u32::MAX as u64);
/// Such a queue stays for so long behind its last job: until the next one of this delay, mostly,
/// and in any case until the job is pushed that it was declared for.
const SPARE_MILLIS: u64 = 60_000;

pub(crate) type Amqp = Brokered<AmqpBroker>;

pub(crate) fn open(pipeline: &str, settings: &AmqpPipeline, wake: Wake) -> Amqp {
    let broker = AmqpBroker {
        title: format!("amqp at {}", settings.server.address.place()),
        pipeline: pipeline.to_owned(),
        settings: settings.clone(),
    };
    Brokered::open(broker, pipeline, wake)
}

pub(crate) struct AmqpBroker {
    title: String,
    pipeline: String,
    settings: AmqpPipeline,
}

pub(crate) struct AmqpLink {
    title: String,
    pipeline: String,
    settings: AmqpPipeline,
    /// A broker that is short of memory or disk reads nothing more from a connection that
    /// publishes. So what was consumed is acknowledged on another one, or its queues would never
    /// get shorter.
    publishing: Side,
    consuming: Side,
    consumer: Mutex<Consuming>,
    /// Jobs that were brought and are not settled.
    out: AtomicUsize,
}

/// A connection with one channel.
struct Side {
    connection: Connection,
    channel: Channel,
    untaken: Untaken,
}

impl Side {
    async fn open(settings: &AmqpPipeline) -> Result<Self, BrokerError> {
        let mut uri: AMQPUri = (settings.server.address.as_str())
            .parse()
            .map_err(|_| BrokerError::Refused("its address can't be read".to_owned()))?;
        // RoadRunner reads an address that ends in a slash so.
        if uri.vhost.is_empty() {
            "/".clone_into(&mut uri.vhost);
        }
        let properties = ConnectionProperties::default().with_connection_name("pronghorn".into());
        let untaken = Untaken::default();
        let connecting = runtime::connect(uri, &settings.server.tls, properties, &untaken);
        let connection = connecting.await?;
        let channel = connection.create_channel().await?;
        Ok(Self {
            connection,
            channel,
            untaken,
        })
    }

    /// The driver has the first message that came.
    fn taken(&self) {
        self.untaken.taken(self.channel.id());
    }
}

#[derive(Default)]
struct Consuming {
    consumer: Option<Consumer>,
    /// The most jobs that it may have out.
    limit: usize,
}

impl Broker for AmqpBroker {
    type Link = AmqpLink;

    fn title(&self) -> &str {
        &self.title
    }

    fn queue(&self) -> &str {
        self.settings.queue.name.as_deref().unwrap_or_default()
    }

    async fn connect(&self) -> Result<AmqpLink, BrokerError> {
        let settings = &self.settings;
        let publishing = Side::open(settings).await?;
        publishing
            .channel
            .confirm_select(ConfirmSelectOptions::default())
            .await?;
        let link = AmqpLink {
            title: self.title.clone(),
            pipeline: self.pipeline.clone(),
            settings: settings.clone(),
            publishing,
            consuming: Side::open(settings).await?,
            consumer: Mutex::default(),
            out: AtomicUsize::new(0),
        };
        link.declare().await?;
        Ok(link)
    }
}

impl AmqpLink {
    async fn declare(&self) -> Result<(), BrokerError> {
        let AmqpPipeline {
            exchange, queue, ..
        } = &self.settings;
        if exchange.declare {
            self.declare_exchange(exchange).await?;
        }
        let Some(name) = &queue.name else {
            return Ok(());
        };
        let name = short(name)?;
        if queue.declare {
            let options = QueueDeclareOptions {
                passive: false,
                durable: queue.durable,
                exclusive: queue.exclusive,
                auto_delete: queue.auto_delete,
                nowait: false,
            };
            let mut arguments = FieldTable::default();
            for (header, value) in &queue.headers {
                arguments.insert(short(header)?, message::argument(value));
            }
            let declared = self
                .consuming
                .channel
                .queue_declare(name.clone(), options, arguments);
            declared.await?;
        }
        let bound = self.consuming.channel.queue_bind(
            name,
            short(&exchange.name)?,
            short(self.settings.routing_key())?,
            QueueBindOptions::default(),
            FieldTable::default(),
        );
        Ok(bound.await?)
    }

    async fn declare_exchange(&self, exchange: &AmqpExchange) -> Result<(), BrokerError> {
        let options = ExchangeDeclareOptions {
            durable: exchange.durable,
            auto_delete: exchange.auto_delete,
            ..ExchangeDeclareOptions::default()
        };
        let kind = match &*exchange.kind {
            "direct" => ExchangeKind::Direct,
            "fanout" => ExchangeKind::Fanout,
            "topic" => ExchangeKind::Topic,
            "headers" => ExchangeKind::Headers,
            other => ExchangeKind::Custom(other.to_owned()),
        };
        let name = short(&exchange.name)?;
        let declared =
            self.consuming
                .channel
                .exchange_declare(name, kind, options, FieldTable::default());
        Ok(declared.await?)
    }

    async fn publish(&self, job: &Job) -> Result<PublisherConfirm, BrokerError> {
        let AmqpPipeline {
            exchange, queue, ..
        } = &self.settings;
        let routing_key = message::routing_key(job);
        let routing_key = routing_key.unwrap_or_else(|| self.settings.routing_key());
        let (exchange, routing_key) = if job.delay.is_zero() {
            (short(&exchange.name)?, short(routing_key)?)
        } else {
            let waiting = self.declare_delayed(routing_key, job.delay).await?;
            (ShortString::from(""), waiting)
        };
        let options = BasicPublishOptions {
            // Without a queue of ours, whoever listens at the exchange is to have it, or nobody.
            mandatory: queue.name.is_some(),
            ..BasicPublishOptions::default()
        };
        let properties = message::properties(job, &self.pipeline);
        let published = self.publishing.channel.basic_publish(
            exchange,
            routing_key,
            options,
            &job.payload,
            properties,
        );
        Ok(published.await?)
    }

    /// A queue that nobody consumes: after its time a job goes on to the exchange. The queue itself
    /// goes when nobody has used it for some time more. It is not RoadRunner's, which goes earlier.
    async fn declare_delayed(
        &self,
        routing_key: &str,
        delay: Duration,
    ) -> Result<ShortString, BrokerError> {
        if delay > LONGEST_DELAY {
            let days = LONGEST_DELAY.as_secs() / 86_400;
            return Err(BrokerError::Unfit(format!(
                "the longest delay is {days} days"
            )));
        }
        let millis = pronghorn_base::millis(delay).max(1);
        let AmqpPipeline {
            exchange, queue, ..
        } = &self.settings;
        let place = queue.name.as_deref().unwrap_or(routing_key);
        let name = short(&format!(
            "pronghorn.delayed-{millis}.{}.{place}",
            exchange.name
        ))?;
        let mut arguments = FieldTable::default();
        let number = |number: u64| AMQPValue::LongLongInt(number.cast_signed());
        let mut add = |name: &str, value| {
            arguments.insert(name.into(), value);
        };
        add(
            "x-dead-letter-exchange",
            AMQPValue::LongString(exchange.name.clone().into()),
        );
        add(
            "x-dead-letter-routing-key",
            AMQPValue::LongString(routing_key.to_owned().into()),
        );
        add("x-message-ttl", number(millis));
        // One that would go before its jobs does not go.
        let expires = millis + millis.max(SPARE_MILLIS);
        if u32::try_from(expires).is_ok() {
            add("x-expires", number(expires));
        }
        let options = QueueDeclareOptions {
            durable: true,
            ..QueueDeclareOptions::default()
        };
        let declared = self
            .publishing
            .channel
            .queue_declare(name.clone(), options, arguments);
        declared.await?;
        Ok(name)
    }

    async fn confirm(&self, published: PublisherConfirm) -> Result<(), BrokerError> {
        match published.await? {
            Confirmation::Ack(None) | Confirmation::NotRequested => Ok(()),
            Confirmation::Ack(Some(_returned)) => {
                self.publishing.taken();
                Err(BrokerError::Refused(
                    "no queue takes a job with this routing key".to_owned(),
                ))
            }
            Confirmation::Nack(_) => Err(BrokerError::Refused(
                "it did not keep the job, as a full queue does".to_owned(),
            )),
        }
    }

    /// Begins to consume, with credit for so many jobs.
    async fn consume(&self, queue: &str, limit: usize) -> Result<Consumer, BrokerError> {
        let count = u16::try_from(limit).unwrap_or(u16::MAX);
        self.consuming
            .channel
            .basic_qos(count, BasicQosOptions::default())
            .await?;
        let consumer = self.consuming.channel.basic_consume(
            short(queue)?,
            ShortString::from(&*self.settings.queue.consumer_id),
            BasicConsumeOptions::default(),
            FieldTable::default(),
        );
        Ok(consumer.await?)
    }

    /// Ends a consumer, and gives back what it has got and nobody has seen.
    async fn stop(&self, mut consumer: Consumer) -> Result<(), BrokerError> {
        self.consuming
            .channel
            .basic_cancel(consumer.tag(), BasicCancelOptions::default())
            .await?;
        while let Some(delivery) = consumer.next().await {
            let delivery = delivery?;
            self.consuming.taken();
            requeue(&delivery).await?;
        }
        Ok(())
    }

    /// Whether the broker has said that it reads nothing more from who publishes, for now.
    fn is_blocked(&self) -> bool {
        self.publishing.connection.status().blocked()
    }

    fn tell(&self, is_blocked: bool) {
        let (title, pipeline) = (&self.title, &self.pipeline);
        if is_blocked {
            tracing::warn!(
                target: "jobs", pipeline,
                "{title} is short of memory or disk, and takes no jobs until it has more"
            );
        } else {
            tracing::info!(target: "jobs", pipeline, "{title} takes jobs again");
        }
    }

    fn read(&self, delivery: Delivery) -> (Job, Token) {
        self.consuming.taken();
        self.out.fetch_add(1, Ordering::Relaxed);
        message::read(delivery)
    }
}

async fn requeue(delivery: &Delivery) -> Result<(), BrokerError> {
    delivery.acker.nack(nack(true)).await?;
    Ok(())
}

const fn nack(requeue: bool) -> BasicNackOptions {
    BasicNackOptions {
        multiple: false,
        requeue,
    }
}

impl Link for AmqpLink {
    type Token = Token;

    const TOKENS_OUTLIVE_IT: bool = false;

    const KEEP_EVERY: Option<Duration> = None;

    async fn push(&self, jobs: Vec<Job>) -> Result<(), BrokerError> {
        if self.is_blocked() {
            return Err(BrokerError::Refused(
                "it takes no jobs while it is short of memory or disk".to_owned(),
            ));
        }
        let mut published = Vec::with_capacity(jobs.len());
        let mut pushed = Ok(());
        for job in &jobs {
            match self.publish(job).await {
                Ok(confirm) => published.push(confirm),
                Err(error) => {
                    pushed = Err(error);
                    break;
                }
            }
        }
        // All are waited for: the client would keep the jobs that come back otherwise.
        for published in published {
            pushed = pushed.and(self.confirm(published).await);
        }
        pushed
    }

    async fn fetch(&self, most: usize) -> Result<Vec<(Job, Token)>, BrokerError> {
        let Some(queue) = &self.settings.queue.name else {
            sleep(FETCH_WAIT).await;
            return Ok(Vec::new());
        };
        let out = self.out.load(Ordering::Relaxed);
        let limit = out + most;
        let mut consuming = self.consumer.lock().await;
        if consuming.limit < limit {
            if let Some(consumer) = consuming.consumer.take() {
                self.stop(consumer).await?;
            }
            consuming.limit = limit;
        }
        let consumer = match &mut consuming.consumer {
            Some(consumer) => consumer,
            none => none.insert(self.consume(queue, limit).await?),
        };
        let mut wait = FETCH_WAIT;
        let mut jobs = Vec::new();
        while jobs.len() < most
            && let Ok(delivery) = timeout(wait, consumer.next()).await
        {
            let Some(delivery) = delivery else {
                return Err(BrokerError::Lost("the queue was deleted".to_owned()));
            };
            jobs.push(self.read(delivery?));
            wait = Duration::ZERO;
        }
        Ok(jobs)
    }

    async fn rest(&self) -> Result<(), BrokerError> {
        let mut consuming = self.consumer.lock().await;
        consuming.limit = 0;
        if let Some(consumer) = consuming.consumer.take() {
            self.stop(consumer).await?;
        }
        Ok(())
    }

    async fn settle(&self, token: Token, step: Step) -> Result<(), BrokerError> {
        let acker = &token.acker;
        let was_out = match step {
            Step::Done => acker.ack(BasicAckOptions::default()).await?,
            Step::Rejected(_) => acker.nack(nack(false)).await?,
            Step::Back(_) => acker.nack(nack(true)).await?,
            Step::Again(job) => {
                let published = self.publish(&job).await?;
                self.confirm(published).await?;
                acker.ack(BasicAckOptions::default()).await?
            }
        };
        if !was_out {
            return Err(BrokerError::NotReserved);
        }
        self.out.fetch_sub(1, Ordering::Relaxed);
        Ok(())
    }

    async fn tend(&self) -> BrokerError {
        let mut was_blocked = false;
        loop {
            sleep(LOOK_AGAIN).await;
            for side in [&self.publishing, &self.consuming] {
                if !side.connection.status().connected() {
                    return BrokerError::Lost("the connection was closed".to_owned());
                }
                if !side.channel.status().connected() {
                    return BrokerError::Lost("it closed a channel".to_owned());
                }
            }
            let is_blocked = self.is_blocked();
            if is_blocked != was_blocked {
                self.tell(is_blocked);
            }
            was_blocked = is_blocked;
        }
    }

    async fn stat(&self) -> Result<Counts, BrokerError> {
        let Some(queue) = &self.settings.queue.name else {
            return Ok(Counts::default());
        };
        let options = QueueDeclareOptions {
            passive: true,
            ..QueueDeclareOptions::default()
        };
        let seen =
            self.consuming
                .channel
                .queue_declare(short(queue)?, options, FieldTable::default());
        Ok(Counts {
            waiting: seen.await?.message_count().into(),
            // They are in queues of which nobody has a list.
            delayed: 0,
            out: None,
            oldest: None,
        })
    }

    async fn close(&self) {
        let queue = &self.settings.queue;
        if let (true, Some(name)) = (queue.delete_on_stop, &queue.name) {
            let options = QueueDeleteOptions::default();
            if let Ok(name) = short(name) {
                _ = self.consuming.channel.queue_delete(name, options).await;
            }
        }
        // A connection that is lost needs no farewell, and one that is not read gets none.
        _ = self.consuming.connection.close(200, "".into()).await;
        if !self.is_blocked() {
            _ = self.publishing.connection.close(200, "".into()).await;
        }
    }
}

/// Names have 255 bytes at most.
fn short(name: &str) -> Result<ShortString, BrokerError> {
    ShortString::try_new(name)
        .map_err(|_| BrokerError::Unfit(format!("the name `{name}` has more than 255 bytes")))
}

impl From<lapin::Error> for BrokerError {
    /// Each error of a channel ends it, and each of a connection ends that.
    fn from(error: lapin::Error) -> Self {
        Self::Lost(error.to_string())
    }
}

#[cfg(test)]
mod tests;
