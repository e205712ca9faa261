//! `beanstalk`: a tube of beanstalkd, by a client of our own.
//!
//! A job that was reserved belongs to its connection, and a connection that waits for a job does
//! nothing else. So each job that is out has a connection; one that is done serves the next.

mod connection;

use std::sync::Arc;
use std::time::Duration;

use pronghorn_base::lock;
use pronghorn_queue::{Job, Wake, decode_job, encode_job};
use tokio::sync::Mutex;

use self::connection::{Connection, ServerPlace};
use crate::beanstalk::settings::BeanstalkPipeline;
use crate::broker::{Broker, BrokerError, Brokered, Counts, FETCH_WAIT, Link, Step};

/// After so many seconds without a word from the server that has it, a job goes to another one.
const TIME_TO_RUN: u32 = 60;
const KEEP_EVERY: Duration = Duration::from_secs(15);
/// Connections without a job that are kept for the next one.
const MOST_SPARE: usize = 64;

pub(crate) type Beanstalk = Brokered<BeanstalkBroker>;

pub(crate) fn open(pipeline: &str, settings: &BeanstalkPipeline, wake: Wake) -> Beanstalk {
    let place = settings.server.address.place();
    let broker = BeanstalkBroker {
        title: format!("beanstalk at {place}"),
        place: if place.starts_with('/') {
            ServerPlace::Unix(place.to_owned())
        } else {
            ServerPlace::Tcp(place.to_owned())
        },
        settings: settings.clone(),
    };
    Brokered::open(broker, pipeline, wake)
}

pub(crate) struct BeanstalkBroker {
    title: String,
    place: ServerPlace,
    settings: BeanstalkPipeline,
}

pub(crate) struct BeanstalkLink {
    place: ServerPlace,
    settings: BeanstalkPipeline,
    /// This one is for pushes and counts.
    commands: Mutex<Connection>,
    /// They watch the tube and have no job.
    spare: std::sync::Mutex<Vec<Connection>>,
}

/// A job that is out, and its connection.
#[derive(Clone)]
pub(crate) struct Token {
    number: u64,
    /// It is none when the job is settled.
    connection: Arc<Mutex<Option<Connection>>>,
}

impl Broker for BeanstalkBroker {
    type Link = BeanstalkLink;

    fn title(&self) -> &str {
        &self.title
    }

    fn queue(&self) -> &str {
        &self.settings.tube
    }

    async fn connect(&self) -> Result<BeanstalkLink, BrokerError> {
        let patience = self.settings.server.timeout;
        let mut commands = Connection::open(&self.place, patience).await?;
        let used = format!("use {}", self.settings.tube);
        let answer = commands.ask(&used, None).await?;
        if answer.word() != "USING" {
            return Err(answer.unexpected());
        }
        Ok(BeanstalkLink {
            place: self.place.clone(),
            settings: self.settings.clone(),
            commands: Mutex::new(commands),
            spare: std::sync::Mutex::default(),
        })
    }
}

impl BeanstalkLink {
    /// One that watches this tube and no other.
    async fn connection(&self) -> Result<Connection, BrokerError> {
        let spare = lock(&self.spare).pop();
        if let Some(spare) = spare {
            return Ok(spare);
        }
        let patience = self.settings.server.timeout;
        let mut connection = Connection::open(&self.place, patience).await?;
        let tube = &self.settings.tube;
        let mut commands = vec![format!("watch {tube}")];
        if tube != "default" {
            commands.push("ignore default".to_owned());
        }
        for command in commands {
            let answer = connection.ask(&command, None).await?;
            if answer.word() != "WATCHING" {
                return Err(answer.unexpected());
            }
        }
        Ok(connection)
    }

    fn keep_spare(&self, connection: Connection) {
        let mut spare = lock(&self.spare);
        if spare.len() < MOST_SPARE {
            spare.push(connection);
        }
    }

    /// A job, if one is there by then.
    async fn reserve(&self, wait: Duration) -> Result<Option<(Job, Token)>, BrokerError> {
        let mut connection = self.connection().await?;
        let reserve = format!("reserve-with-timeout {}", wait.as_secs());
        let answer = connection.ask_for(wait, &reserve, None).await?;
        match answer.word() {
            "RESERVED" => {}
            "TIMED_OUT" => {
                self.keep_spare(connection);
                return Ok(None);
            }
            _ => return Err(answer.unexpected()),
        }
        let number = answer.number(1)?;
        let body = connection.body(answer.number(2)?).await?;
        let token = Token {
            number,
            connection: Arc::new(Mutex::new(Some(connection))),
        };
        Ok(Some((decode_job(&body), token)))
    }

    async fn put(&self, job: &Job) -> Result<(), BrokerError> {
        let body = encode_job(job);
        // Whole seconds; a job is not early.
        let delay = job.delay.as_secs() + u64::from(job.delay.subsec_nanos() > 0);
        let delay = u32::try_from(delay).unwrap_or(u32::MAX);
        let priority = priority(job);
        let put = format!("put {priority} {delay} {TIME_TO_RUN} {}", body.len());
        let answer = self.commands.lock().await.ask(&put, Some(&body)).await?;
        match answer.word() {
            "INSERTED" => Ok(()),
            "JOB_TOO_BIG" => Err(BrokerError::Unfit(format!(
                "a job of {} bytes is too big for it: its option `-z` allows more",
                body.len()
            ))),
            "DRAINING" => Err(BrokerError::Refused("it is being shut down".to_owned())),
            "BURIED" => Err(BrokerError::Refused("it has no memory left".to_owned())),
            _ => Err(answer.unexpected()),
        }
    }
}

/// Priorities are as ours: lower goes first.
fn priority(job: &Job) -> u32 {
    u32::try_from(job.priority.max(0)).unwrap_or(u32::MAX)
}

impl Link for BeanstalkLink {
    type Token = Token;

    const TOKENS_OUTLIVE_IT: bool = false;

    const KEEP_EVERY: Option<Duration> = Some(KEEP_EVERY);

    async fn push(&self, jobs: Vec<Job>) -> Result<(), BrokerError> {
        for job in &jobs {
            self.put(job).await?;
        }
        Ok(())
    }

    async fn fetch(&self, most: usize) -> Result<Vec<(Job, Token)>, BrokerError> {
        let mut jobs = Vec::new();
        let mut wait = FETCH_WAIT;
        while jobs.len() < most
            && let Some(job) = self.reserve(wait).await?
        {
            jobs.push(job);
            wait = Duration::ZERO;
        }
        Ok(jobs)
    }

    async fn settle(&self, token: Token, step: Step) -> Result<(), BrokerError> {
        let Token { number, connection } = token;
        let mut place = connection.lock().await;
        let connection = place.as_mut().ok_or(BrokerError::NotReserved)?;
        let (command, expected) = match &step {
            Step::Done => (format!("delete {number}"), "DELETED"),
            Step::Again(job) => {
                self.put(job).await?;
                (format!("delete {number}"), "DELETED")
            }
            Step::Back(job) => (format!("release {number} {} 0", priority(job)), "RELEASED"),
            Step::Rejected(_) => (format!("delete {number}"), "DELETED"),
        };
        let answer = connection.ask(&command, None).await?;
        let connection = place.take().expect("it was there");
        match answer.word() {
            word if word == expected => {
                self.keep_spare(connection);
                Ok(())
            }
            "NOT_FOUND" => {
                self.keep_spare(connection);
                Err(BrokerError::NotReserved)
            }
            _ => Err(answer.unexpected()),
        }
    }

    async fn keep(&self, tokens: Vec<Token>) -> Result<(), BrokerError> {
        for Token { number, connection } in tokens {
            if let Some(connection) = &mut *connection.lock().await {
                // One that is not there any more is told when it is settled.
                connection.ask(&format!("touch {number}"), None).await?;
            }
        }
        Ok(())
    }

    async fn stat(&self) -> Result<Counts, BrokerError> {
        let mut commands = self.commands.lock().await;
        let stats = format!("stats-tube {}", self.settings.tube);
        let answer = commands.ask(&stats, None).await?;
        match answer.word() {
            "OK" => {}
            // A tube is there while somebody uses it.
            "NOT_FOUND" => return Ok(Counts::default()),
            _ => return Err(answer.unexpected()),
        }
        let body = commands.body(answer.number(1)?).await?;
        let text = String::from_utf8_lossy(&body);
        let count = |name: &str| {
            let mut lines = text.lines();
            let line = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
            line.and_then(|count| count.trim().parse().ok())
                .unwrap_or(0)
        };
        Ok(Counts {
            waiting: count("current-jobs-ready"),
            delayed: count("current-jobs-delayed"),
            out: Some(count("current-jobs-reserved")),
            oldest: None,
        })
    }

    async fn close(&self) {
        lock(&self.spare).clear();
    }
}

#[cfg(test)]
mod tests;
