//! `google_pub_sub`: a subscription of Pub/Sub, over its interface with JSON, with messages as
//! RoadRunner has them.
//!
//! Pub/Sub holds a request for jobs until there is one: it goes on in a task of its own while the
//! server looks after other things. Delayed jobs wait in the server's store.

mod credentials;
mod message;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use pronghorn_client::Method;
use pronghorn_client::header::{AUTHORIZATION, CONTENT_TYPE};
use pronghorn_queue::{Job, Wake};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio::time::timeout;

use self::credentials::Source;
use self::message::Message;
use crate::broker::http::{Client, HttpRequest};
use crate::broker::{Broker, BrokerError, Brokered, Counts, FETCH_WAIT, LaterJobs, Link, Step};
use crate::pub_sub::settings::PubSubPipeline;

const PATIENCE: Duration = Duration::from_secs(30);
/// Pub/Sub answers by then that there is nothing.
const LONGEST_PULL: Duration = Duration::from_secs(120);
/// A server may be silent for so many seconds before its jobs go to the others.
const ACK_DEADLINE: u64 = if cfg!(test) { 8 } else { 60 };
const KEEP_EVERY: Duration = if cfg!(test) {
    Duration::from_millis(500)
} else {
    Duration::from_secs(15)
};
/// One publication has no more: Pub/Sub takes 1,000 messages and 10 MB, in base64.
const MOST_AT_A_TIME: usize = 1000;
const MOST_BYTES_AT_A_TIME: usize = 7 << 20;
/// A call for several acknowledgements has so many at most.
const MOST_ACKS: usize = 500;

pub(crate) type PubSub = Brokered<PubSubBroker>;

pub(crate) fn open(
    pipeline: &str,
    settings: &PubSubPipeline,
    wake: Wake,
    later: LaterJobs,
) -> PubSub {
    let broker = PubSubBroker {
        title: format!("google_pub_sub at {}", settings.server.endpoint),
        pipeline: pipeline.to_owned(),
        settings: settings.clone(),
    };
    Brokered::open_with(broker, pipeline, wake, later)
}

pub(crate) struct PubSubBroker {
    title: String,
    pipeline: String,
    settings: PubSubPipeline,
}

pub(crate) struct PubSubLink {
    api: Arc<Api>,
    pipeline: String,
    settings: PubSubPipeline,
    /// The request for jobs that Pub/Sub has not answered yet.
    pull: Mutex<JoinSet<Result<Pulled, BrokerError>>>,
}

/// The token that a message is settled by.
pub(crate) type Token = Arc<str>;

struct Api {
    client: Client,
    /// For requests that are held.
    patient: Client,
    /// None: nobody asks.
    credentials: Option<Source>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Pulled {
    received_messages: Vec<Received>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Received {
    ack_id: String,
    message: Message,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Wrong {
    error: Why,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Why {
    status: String,
    message: String,
}

#[derive(Deserialize)]
struct Anything {}

impl Api {
    async fn call<T: DeserializeOwned>(
        &self,
        client: &Client,
        method: Method,
        path: &str,
        argument: &Value,
    ) -> Result<T, BrokerError> {
        let mut fields = vec![(CONTENT_TYPE, "application/json".to_owned())];
        if let Some(credentials) = &self.credentials {
            let token = credentials.get().await?;
            fields.push((AUTHORIZATION, format!("Bearer {token}")));
        }
        let asked = HttpRequest {
            method,
            path,
            fields,
            body: Bytes::from(argument.to_string()),
        };
        let answer = client.ask(asked).await?;
        if !answer.status.is_success() {
            let wrong: Wrong = serde_json::from_slice(&answer.body).unwrap_or_default();
            let Why { status, message } = wrong.error;
            return Err(if status.is_empty() {
                BrokerError::Lost(format!("it answered {}", answer.status.as_u16()))
            } else {
                BrokerError::Refused(format!("{status}: {message}"))
            });
        }
        serde_json::from_slice(&answer.body)
            .map_err(|error| BrokerError::Lost(format!("it is no Pub/Sub: {error}")))
    }

    async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        argument: &Value,
    ) -> Result<T, BrokerError> {
        self.call(&self.client, Method::POST, path, argument).await
    }

    /// Creates what may be there already.
    async fn create(&self, path: &str, argument: &Value) -> Result<(), BrokerError> {
        let created: Result<Anything, _> =
            self.call(&self.client, Method::PUT, path, argument).await;
        match created {
            Err(BrokerError::Refused(why)) if why.starts_with("ALREADY_EXISTS") => Ok(()),
            created => created.map(|_| ()),
        }
    }
}

impl PubSubPipeline {
    fn topic_name(&self, topic: &str) -> String {
        format!("projects/{}/topics/{topic}", self.project)
    }

    fn subscription_path(&self) -> String {
        let (project, name) = (&self.project, &self.subscription);
        format!("/v1/projects/{project}/subscriptions/{name}")
    }
}

impl Broker for PubSubBroker {
    type Link = PubSubLink;

    fn title(&self) -> &str {
        &self.title
    }

    fn queue(&self) -> &str {
        &self.settings.topic
    }

    fn longest_delay(&self) -> Duration {
        Duration::ZERO
    }

    async fn connect(&self) -> Result<PubSubLink, BrokerError> {
        let settings = &self.settings;
        let url = settings.server.url();
        let api = Api {
            client: Client::new(&url, PATIENCE)?,
            patient: Client::new(&url, LONGEST_PULL)?,
            credentials: (!settings.server.insecure).then(Source::default),
        };
        for topic in [Some(&settings.topic), settings.dead_letter_topic.as_ref()] {
            let Some(topic) = topic else { continue };
            let path = format!("/v1/{}", settings.topic_name(topic));
            api.create(&path, &json!({})).await?;
        }
        let subscription = json!({
            "topic": settings.topic_name(&settings.topic),
            "ackDeadlineSeconds": ACK_DEADLINE.max(10),
        });
        api.create(&settings.subscription_path(), &subscription)
            .await?;
        Ok(PubSubLink {
            api: Arc::new(api),
            pipeline: self.pipeline.clone(),
            settings: settings.clone(),
            pull: Mutex::default(),
        })
    }
}

impl PubSubLink {
    async fn publish(&self, topic: &str, messages: Vec<Message>) -> Result<(), BrokerError> {
        if messages.is_empty() {
            return Ok(());
        }
        let path = format!("/v1/{}:publish", self.settings.topic_name(topic));
        match self.api.post(&path, &json!({"messages": messages})).await {
            Ok(Anything {}) => Ok(()),
            // One that is too long is refused each time.
            Err(BrokerError::Refused(why)) if why.starts_with("INVALID_ARGUMENT") => {
                Err(BrokerError::Unfit(why))
            }
            Err(error) => Err(error),
        }
    }

    async fn of_subscription(&self, verb: &str, argument: &Value) -> Result<(), BrokerError> {
        let path = format!("{}:{verb}", self.settings.subscription_path());
        let Anything {} = self.api.post(&path, argument).await?;
        Ok(())
    }

    async fn extend(&self, tokens: &[Token], seconds: u64) -> Result<(), BrokerError> {
        let ids: Vec<&str> = tokens.iter().map(|token| &**token).collect();
        let argument = json!({"ackIds": ids, "ackDeadlineSeconds": seconds});
        self.of_subscription("modifyAckDeadline", &argument).await
    }
}

impl Link for PubSubLink {
    type Token = Token;

    const TOKENS_OUTLIVE_IT: bool = true;

    const KEEP_EVERY: Option<Duration> = Some(KEEP_EVERY);

    async fn push(&self, jobs: Vec<Job>) -> Result<(), BrokerError> {
        let (mut messages, mut bytes) = (Vec::new(), 0);
        for job in &jobs {
            let size = job.payload.len() + 2000;
            if messages.len() == MOST_AT_A_TIME || bytes + size > MOST_BYTES_AT_A_TIME {
                let some = std::mem::take(&mut messages);
                self.publish(&self.settings.topic, some).await?;
                bytes = 0;
            }
            bytes += size;
            messages.push(message::write(job, &self.pipeline));
        }
        self.publish(&self.settings.topic, messages).await
    }

    async fn fetch(&self, most: usize) -> Result<Vec<(Job, Token)>, BrokerError> {
        let mut pull = self.pull.lock().await;
        if pull.is_empty() {
            let api = self.api.clone();
            let path = format!("{}:pull", self.settings.subscription_path());
            pull.spawn(async move {
                let asked = json!({"maxMessages": most.min(MOST_AT_A_TIME)});
                api.call(&api.patient, Method::POST, &path, &asked).await
            });
        }
        let Ok(Some(pulled)) = timeout(FETCH_WAIT, pull.join_next()).await else {
            return Ok(Vec::new());
        };
        let broken = |_| BrokerError::Lost("a request has ended".to_owned());
        let pulled = pulled.map_err(broken)??;
        let jobs = pulled.received_messages.into_iter();
        Ok(jobs
            .map(|it| (message::read(&it.message), it.ack_id.into()))
            .collect())
    }

    /// A message that is on its way comes again after its deadline; one that has come goes back at
    /// once.
    async fn rest(&self) -> Result<(), BrokerError> {
        let mut pull = self.pull.lock().await;
        let pulled = pull.try_join_next();
        pull.shutdown().await;
        if let Some(Ok(Ok(pulled))) = pulled {
            let tokens = pulled
                .received_messages
                .into_iter()
                .map(|it| it.ack_id.into());
            let tokens: Vec<Token> = tokens.collect();
            for some in tokens.chunks(MOST_ACKS) {
                self.extend(some, 0).await?;
            }
        }
        Ok(())
    }

    async fn settle(&self, token: Token, step: Step) -> Result<(), BrokerError> {
        match step {
            Step::Back(_) => return self.extend(&[token], 0).await,
            Step::Again(job) => self.push(vec![job]).await?,
            Step::Rejected(job) => {
                if let Some(topic) = &self.settings.dead_letter_topic {
                    let message = message::write(&job, &self.pipeline);
                    self.publish(topic, vec![message]).await?;
                }
            }
            Step::Done => {}
        }
        let ids: [&str; 1] = [&token];
        self.of_subscription("acknowledge", &json!({"ackIds": ids}))
            .await
    }

    async fn keep(&self, tokens: Vec<Token>) -> Result<(), BrokerError> {
        for some in tokens.chunks(MOST_ACKS) {
            self.extend(some, ACK_DEADLINE).await?;
        }
        Ok(())
    }

    /// It does not count its messages.
    async fn stat(&self) -> Result<Counts, BrokerError> {
        Ok(Counts::default())
    }

    async fn close(&self) {}
}

#[cfg(test)]
mod tests;
