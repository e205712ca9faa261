//! `sqs`: a queue of SQS, by a client of our own, with messages as RoadRunner has them.
//!
//! A job that was received is hidden from others for some time, which is made longer as long as it
//! is worked on. Delays of more than 15 minutes, and all of a queue with an order, wait in the
//! server's store.

mod api;
mod credentials;
mod message;
mod signature;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use pronghorn_queue::{Job, Wake};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use self::api::Api;
use self::message::Attributes;
use crate::broker::{Broker, BrokerError, Brokered, Counts, LaterJobs, Link, Step};
use crate::sqs::settings::SqsPipeline;

/// One call has so many messages at most.
const MOST_AT_A_TIME: usize = 10;
/// SQS takes 256 KB at a time in all regions; what is around a job counts as well.
const MOST_BYTES_AT_A_TIME: usize = 240 << 10;
const LONGEST_DELAY: Duration = Duration::from_secs(900);
/// A part of the time for which a job is hidden.
const KEEP_EVERY: Duration = if cfg!(test) {
    Duration::from_millis(500)
} else {
    Duration::from_secs(10)
};

/// Names that a file may have in small letters, as RoadRunner reads them.
const ATTRIBUTES: [&str; 13] = [
    "ContentBasedDeduplication",
    "DeduplicationScope",
    "DelaySeconds",
    "FifoQueue",
    "FifoThroughputLimit",
    "KmsDataKeyReusePeriodSeconds",
    "KmsMasterKeyId",
    "MaximumMessageSize",
    "MessageRetentionPeriod",
    "Policy",
    "RedrivePolicy",
    "SqsManagedSseEnabled",
    "VisibilityTimeout",
];

pub(crate) type Sqs = Brokered<SqsBroker>;

pub(crate) fn open(pipeline: &str, settings: &SqsPipeline, wake: Wake, later: LaterJobs) -> Sqs {
    let place = match api::endpoint(&settings.server) {
        Ok((url, _)) => url.rsplit_once("//").map_or("AWS", |(_, it)| it).to_owned(),
        Err(_) => "AWS".to_owned(),
    };
    let broker = SqsBroker {
        title: format!("sqs at {place}"),
        pipeline: pipeline.to_owned(),
        settings: settings.clone(),
    };
    Brokered::open_with(broker, pipeline, wake, later)
}

pub(crate) struct SqsBroker {
    title: String,
    pipeline: String,
    settings: SqsPipeline,
}

pub(crate) struct SqsLink {
    api: Api,
    url: String,
    pipeline: String,
    settings: SqsPipeline,
}

/// The token that a message is settled by.
pub(crate) type Token = Arc<str>;

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct QueueUrl {
    queue_url: String,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct Received {
    messages: Vec<Message>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct Message {
    body: String,
    receipt_handle: String,
    message_attributes: Attributes,
}

/// The results of a call for several messages.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct Several {
    failed: Vec<Failed>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct Failed {
    code: String,
    message: String,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct QueueAttributes {
    attributes: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct Nothing {}

impl Broker for SqsBroker {
    type Link = SqsLink;

    fn title(&self) -> &str {
        &self.title
    }

    fn queue(&self) -> &str {
        &self.settings.queue
    }

    fn longest_delay(&self) -> Duration {
        // A queue with an order has one delay for all.
        if self.settings.is_fifo() {
            Duration::ZERO
        } else {
            LONGEST_DELAY
        }
    }

    async fn connect(&self) -> Result<SqsLink, BrokerError> {
        let settings = &self.settings;
        let api = Api::new(&settings.server, settings.wait)?;
        let url = if settings.declare {
            declare(&api, settings).await?
        } else {
            let asked = json!({"QueueName": settings.queue});
            api.call::<QueueUrl>("GetQueueUrl", &asked).await?.queue_url
        };
        Ok(SqsLink {
            api,
            url,
            pipeline: self.pipeline.clone(),
            settings: settings.clone(),
        })
    }
}

/// Creates the queue where it is missing. One that is there keeps its own attributes.
async fn declare(api: &Api, settings: &SqsPipeline) -> Result<String, BrokerError> {
    let asked = json!({"QueueName": settings.queue});
    match api.call::<QueueUrl>("GetQueueUrl", &asked).await {
        Ok(there) => return Ok(there.queue_url),
        Err(BrokerError::Refused(why)) if is_missing(&why) => {}
        Err(error) => return Err(error),
    }
    let mut attributes: Map<String, Value> = (settings.attributes.iter())
        .map(|(name, value)| (as_aws(name), value.clone().into()))
        .collect();
    if settings.is_fifo() {
        attributes.insert("FifoQueue".to_owned(), "true".into());
    }
    let asked = json!({
        "QueueName": settings.queue,
        "Attributes": attributes,
        "tags": settings.tags,
    });
    Ok(api.call::<QueueUrl>("CreateQueue", &asked).await?.queue_url)
}

fn is_missing(why: &str) -> bool {
    ["QueueDoesNotExist", "NonExistentQueue"]
        .iter()
        .any(|kind| why.starts_with(kind))
}

/// Some errors are about the jobs themselves: SQS refuses these each time.
fn not_sent(why: String) -> BrokerError {
    let is_about_jobs = [
        "InvalidParameterValue",
        "InvalidMessageContents",
        "BatchRequestTooLong",
    ]
    .iter()
    .any(|kind| why.starts_with(kind));
    if is_about_jobs {
        BrokerError::Unfit(why)
    } else {
        BrokerError::Refused(why)
    }
}

fn as_aws(name: &str) -> String {
    let known = ATTRIBUTES.iter().find(|it| it.eq_ignore_ascii_case(name));
    known.map_or(name, |it| *it).to_owned()
}

impl SqsLink {
    fn entry(&self, number: usize, job: &Job) -> (Value, usize) {
        let (body, attributes) = message::write(job);
        let attributes = json!(attributes);
        let size = body.len() + attributes.to_string().len();
        let mut entry = json!({
            "Id": number.to_string(),
            "MessageBody": body,
            "MessageAttributes": attributes,
        });
        if self.settings.is_fifo() {
            let group = self.settings.group.as_deref().unwrap_or(&self.pipeline);
            entry["MessageGroupId"] = group.into();
            // Each push is one, also of a job that comes again.
            entry["MessageDeduplicationId"] = format!("{:032x}", fastrand::u128(..)).into();
        } else if !job.delay.is_zero() {
            // Whole seconds, and none comes early.
            let seconds = job.delay.as_millis().div_ceil(1000);
            entry["DelaySeconds"] = u64::try_from(seconds).unwrap_or(u64::MAX).into();
        }
        (entry, size)
    }

    async fn send(&self, entries: Vec<Value>) -> Result<(), BrokerError> {
        if entries.is_empty() {
            return Ok(());
        }
        let asked = json!({"QueueUrl": self.url, "Entries": entries});
        let sent: Result<Several, _> = self.api.call("SendMessageBatch", &asked).await;
        match sent.map(|sent| sent.failed.into_iter().next()) {
            Ok(None) => Ok(()),
            Ok(Some(Failed { code, message })) => Err(not_sent(format!("{code}: {message}"))),
            Err(BrokerError::Refused(why)) => Err(not_sent(why)),
            Err(error) => Err(error),
        }
    }

    async fn hide(&self, handle: &str, time: Duration) -> Result<(), BrokerError> {
        let asked = json!({
            "QueueUrl": self.url,
            "ReceiptHandle": handle,
            "VisibilityTimeout": time.as_secs(),
        });
        let Nothing {} = self.api.call("ChangeMessageVisibility", &asked).await?;
        Ok(())
    }
}

impl Link for SqsLink {
    type Token = Token;

    const TOKENS_OUTLIVE_IT: bool = true;

    const KEEP_EVERY: Option<Duration> = Some(KEEP_EVERY);

    async fn push(&self, jobs: Vec<Job>) -> Result<(), BrokerError> {
        let (mut entries, mut bytes) = (Vec::new(), 0);
        for (number, job) in jobs.iter().enumerate() {
            let (entry, size) = self.entry(number, job);
            if entries.len() == MOST_AT_A_TIME || bytes + size > MOST_BYTES_AT_A_TIME {
                self.send(std::mem::take(&mut entries)).await?;
                bytes = 0;
            }
            bytes += size;
            entries.push(entry);
        }
        self.send(entries).await
    }

    async fn fetch(&self, most: usize) -> Result<Vec<(Job, Token)>, BrokerError> {
        let asked = json!({
            "QueueUrl": self.url,
            "MaxNumberOfMessages": most.min(MOST_AT_A_TIME),
            "WaitTimeSeconds": self.settings.wait.as_secs(),
            "VisibilityTimeout": self.settings.visibility.as_secs(),
            "MessageAttributeNames": ["All"],
        });
        let received: Received = self.api.call("ReceiveMessage", &asked).await?;
        let jobs = received.messages.into_iter().map(|message| {
            let job = message::read(&message.body, &message.message_attributes);
            (job, message.receipt_handle.into())
        });
        Ok(jobs.collect())
    }

    async fn settle(&self, token: Token, step: Step) -> Result<(), BrokerError> {
        match step {
            Step::Back(_) => return self.hide(&token, Duration::ZERO).await,
            // The queue itself counts how often it was received, and moves it at last.
            Step::Rejected(_) if self.settings.retain_failed => {
                let time = self.settings.error_visibility;
                return if time.is_zero() {
                    Ok(())
                } else {
                    self.hide(&token, time).await
                };
            }
            Step::Again(job) => self.push(vec![job]).await?,
            Step::Done | Step::Rejected(_) => {}
        }
        let asked = json!({"QueueUrl": self.url, "ReceiptHandle": &*token});
        let Nothing {} = self.api.call("DeleteMessage", &asked).await?;
        Ok(())
    }

    async fn keep(&self, tokens: Vec<Token>) -> Result<(), BrokerError> {
        for some in tokens.chunks(MOST_AT_A_TIME) {
            let entries = some.iter().enumerate().map(|(number, token)| {
                json!({
                    "Id": number.to_string(),
                    "ReceiptHandle": &**token,
                    "VisibilityTimeout": self.settings.visibility.as_secs(),
                })
            });
            let entries: Vec<_> = entries.collect();
            let asked = json!({"QueueUrl": self.url, "Entries": entries});
            // The settlement of a message tells that it is not known any more.
            let _: Several = self
                .api
                .call("ChangeMessageVisibilityBatch", &asked)
                .await?;
        }
        Ok(())
    }

    async fn stat(&self) -> Result<Counts, BrokerError> {
        const NAMES: [&str; 3] = [
            "ApproximateNumberOfMessages",
            "ApproximateNumberOfMessagesDelayed",
            "ApproximateNumberOfMessagesNotVisible",
        ];
        let asked = json!({"QueueUrl": self.url, "AttributeNames": NAMES});
        let told: QueueAttributes = self.api.call("GetQueueAttributes", &asked).await?;
        let count = |name: &str| {
            let count = told.attributes.get(name).and_then(|text| text.parse().ok());
            count.unwrap_or(0)
        };
        Ok(Counts {
            waiting: count(NAMES[0]),
            delayed: count(NAMES[1]),
            out: Some(count(NAMES[2])),
            oldest: None,
        })
    }

    async fn close(&self) {}
}

#[cfg(test)]
mod tests;
