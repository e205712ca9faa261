//! Against a fake of Pub/Sub: topics with one subscription each, in the order of publication.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Mutex as Plain;

use pronghorn_base::{BoxFuture, lock};
use pronghorn_queue::Settlement;
use pronghorn_queue::conformance::{Ability, Subject, conforms, unhealthy};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use super::*;
use crate::pub_sub::settings::PubSubServer;
use crate::testing::{Restart, free_port, subject_with_later, survives_a_restart};

/// The messages that the fake keeps, also while nobody can reach it.
#[derive(Default)]
struct Kept {
    /// The messages of each subscription.
    queues: HashMap<String, Queue>,
    /// The subscriptions of each topic.
    subscriptions: HashMap<String, Vec<String>>,
    number: u64,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Value>,
    out: HashMap<String, (Value, Instant)>,
}

struct Fake {
    port: u16,
    kept: Arc<Shared>,
    tasks: Option<JoinSet<()>>,
}

#[derive(Default)]
struct Shared {
    kept: Plain<Kept>,
    changed: Notify,
}

impl Fake {
    fn start() -> Self {
        let mut fake = Self {
            port: free_port(),
            kept: Arc::default(),
            tasks: None,
        };
        fake.restart();
        fake
    }
}

impl Restart for Fake {
    fn stop(&mut self) {
        self.tasks = None;
    }

    fn restart(&mut self) {
        let (port, kept) = (self.port, self.kept.clone());
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let listener = TcpListener::bind(("127.0.0.1", port)).await.unwrap();
            let mut connections = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let kept = kept.clone();
                connections.spawn(async move {
                    // A client goes when it likes.
                    _ = kept.serve(stream).await;
                });
            }
        });
        self.tasks = Some(tasks);
    }
}

impl Shared {
    async fn serve(&self, stream: TcpStream) -> std::io::Result<()> {
        let mut stream = BufReader::new(stream);
        loop {
            let (mut line, mut length) = (String::new(), 0);
            if stream.read_line(&mut line).await? == 0 {
                return Ok(());
            }
            loop {
                let mut field = String::new();
                stream.read_line(&mut field).await?;
                if field.trim().is_empty() {
                    break;
                }
                if let Some(value) = field.to_lowercase().strip_prefix("content-length:") {
                    length = value.trim().parse().unwrap();
                }
            }
            let mut body = vec![0; length];
            stream.read_exact(&mut body).await?;
            let body: Value = serde_json::from_slice(&body).unwrap();
            let path = line.split(' ').nth(1).unwrap().trim_start_matches("/v1/");
            let answer = match path.strip_suffix(":pull") {
                None => self.answer(path, &body),
                Some(subscription) => {
                    let mut eof = [0];
                    tokio::select! {
                        answer = self.pull(subscription, &body) => Ok(answer),
                        _ = stream.read(&mut eof) => return Ok(()),
                    }
                }
            };
            let (status, answer) = match answer {
                Ok(answer) => ("200 OK", answer),
                Err(status) => {
                    let error = json!({"error": {"status": status, "message": "no"}});
                    ("400 Bad Request", error)
                }
            };
            let answer = answer.to_string();
            let length = answer.len();
            let answer = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n\r\n{answer}");
            stream.write_all(answer.as_bytes()).await?;
        }
    }

    fn answer(&self, path: &str, body: &Value) -> Result<Value, &'static str> {
        let mut kept = lock(&self.kept);
        let (name, verb) = path.split_once(':').unwrap_or((path, "create"));
        let ids = body["ackIds"].as_array().cloned().unwrap_or_default();
        let ids: Vec<_> = ids
            .iter()
            .map(|id| id.as_str().unwrap().to_owned())
            .collect();
        match verb {
            "create" if name.contains("/topics/") => {}
            "create" => {
                let topic = body["topic"].as_str().ok_or("INVALID_ARGUMENT")?.to_owned();
                if kept.queues.contains_key(name) {
                    return Err("ALREADY_EXISTS");
                }
                kept.queues.insert(name.to_owned(), Queue::default());
                kept.subscriptions
                    .entry(topic)
                    .or_default()
                    .push(name.to_owned());
            }
            "publish" => {
                let messages = body["messages"].as_array().ok_or("INVALID_ARGUMENT")?;
                for subscription in kept.subscriptions.get(name).cloned().unwrap_or_default() {
                    let queue = kept.queues.get_mut(&subscription).unwrap();
                    queue.waiting.extend(messages.iter().cloned());
                }
            }
            "acknowledge" => {
                let queue = kept.queues.get_mut(name).ok_or("NOT_FOUND")?;
                for id in ids {
                    queue.out.remove(&id);
                }
            }
            "modifyAckDeadline" => {
                let seconds = body["ackDeadlineSeconds"].as_u64().unwrap();
                let queue = kept.queues.get_mut(name).ok_or("NOT_FOUND")?;
                for id in ids {
                    if let Some((_, deadline)) = queue.out.get_mut(&id) {
                        *deadline = Instant::now() + Duration::from_secs(seconds);
                    }
                }
            }
            _ => return Err("UNIMPLEMENTED"),
        }
        drop(kept);
        self.changed.notify_waiters();
        Ok(json!({}))
    }

    /// Waits for a message, as Pub/Sub does.
    async fn pull(&self, subscription: &str, body: &Value) -> Value {
        let most = body["maxMessages"].as_u64().unwrap();
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            let taken = self.take(subscription, most);
            if !taken.is_empty() {
                return json!({"receivedMessages": taken});
            }
            tokio::select! {
                () = changed => {}
                () = sleep(Duration::from_millis(200)) => {}
            }
        }
    }

    fn take(&self, subscription: &str, most: u64) -> Vec<Value> {
        let mut kept = lock(&self.kept);
        let kept = &mut *kept;
        let Some(queue) = kept.queues.get_mut(subscription) else {
            return Vec::new();
        };
        let now = Instant::now();
        let over = queue.out.extract_if(|_, (_, deadline)| *deadline <= now);
        for (_, (message, _)) in over {
            queue.waiting.push_front(message);
        }
        let mut taken = Vec::new();
        while taken.len() < usize::try_from(most).unwrap()
            && let Some(message) = queue.waiting.pop_front()
        {
            kept.number += 1;
            let id = kept.number.to_string();
            taken.push(json!({"ackId": id, "message": message}));
            let deadline = now + Duration::from_secs(ACK_DEADLINE);
            queue.out.insert(id, (message, deadline));
        }
        taken
    }
}

fn pipeline(port: u16, topic: &str) -> PubSubPipeline {
    let server = PubSubServer {
        endpoint: format!("127.0.0.1:{port}"),
        insecure: true,
    };
    let pairs = [("project_id", "p"), ("topic", topic)];
    let map = pairs.map(|(name, value)| (name.to_owned(), value.to_owned()));
    PubSubPipeline::declared(&BTreeMap::from(map), &server).unwrap()
}

fn subject(settings: PubSubPipeline) -> BoxFuture<'static, Subject> {
    let ability = Ability {
        sorts: false,
        is_shared: true,
        tells_oldest: false,
        counts_waiting: false,
        ..Ability::OURS
    };
    subject_with_later(ability, move |wake, later| {
        open("p", &settings, wake, later)
    })
}

#[tokio::test]
async fn pub_sub_conforms() {
    let fake = Fake::start();
    conforms(|name| subject(pipeline(fake.port, name))).await;
}

#[tokio::test]
async fn a_pub_sub_that_goes_and_comes_loses_no_job() {
    let mut fake = Fake::start();
    let subject = subject(pipeline(fake.port, "q")).await;
    survives_a_restart(&mut fake, subject).await;
}

#[tokio::test]
async fn a_job_that_is_given_up_goes_to_its_topic() {
    let fake = Fake::start();
    let mut settings = pipeline(fake.port, "q");
    settings.dead_letter_topic = Some("dead".to_owned());
    let dead = subject(pipeline(fake.port, "dead")).await;
    dead.driver.resume();
    let subject = subject(settings).await;
    subject.driver.resume();
    let job = |id: &str| Job {
        id: id.to_owned(),
        ..Job::default()
    };
    // Its subscription is there from here on.
    dead.driver.push(vec![job("first")]).await.unwrap();
    assert_eq!(dead.ack_next().await, "first");
    subject.driver.push(vec![job("1")]).await.unwrap();
    let taken = subject.next().await;
    let rejected = subject.driver.settle(taken.ticket, Settlement::Reject);
    rejected.await.unwrap();
    assert_eq!(dead.ack_next().await, "1");
}

#[tokio::test]
async fn a_place_that_is_no_pub_sub_is_told() {
    let subject = subject(pipeline(free_port(), "q")).await;
    unhealthy(&*subject.driver, "google_pub_sub at 127.0.0.1:").await;
}
