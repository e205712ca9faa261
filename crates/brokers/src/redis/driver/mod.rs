//! `redis`: a stream and a consumer group for the jobs that can run, a sorted set for those that
//! wait for their time.
//!
//! A job is an entry of the stream until it is settled. One that was brought is pending in the
//! group, under the name of this server, which says now and then that it still works on it; from a
//! server that has not said so for `claim_after`, the others take its jobs. Scripts make each step
//! whole, and the clock is that of Redis.

mod scripts;

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use pronghorn_base::{lock, millis};
use pronghorn_queue::{Job, LONGEST_DELAY, MOST_BYTES_IN_PART, Wake, decode_job, encode_job};
use pronghorn_redis::{Cmd, FromRedisValue, Redis, RedisFailure, RedisSettings, Value, cmd};
use tokio::sync::{Mutex, Notify};
use tokio::time::{Instant, timeout};

use crate::broker::{
    Broker, BrokerError, Brokered, Counts, FETCH_WAIT, Link, ListedTo, MOST_IN_PART, Step,
};
use crate::redis::settings::RedisPipeline;

/// One for all servers: each job goes to one of them.
const GROUP: &str = "pronghorn";
/// The field of an entry.
const FIELD: &str = "job";
/// How often it is looked for delayed jobs that other servers have pushed.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// How long it is known which server has a run of a schedule. One that was down for longer makes up
/// for runs that others have had.
const CLAIM_KEPT: Duration = Duration::from_hours(24);
/// How many jobs are brought at a time.
const MOST_AT_A_TIME: usize = 256;
/// Jobs that are brought at a time have about so many bytes; the last one may lead beyond.
const MOST_BYTES_AT_A_TIME: usize = 16 << 20;
/// A reply has room for that with the longest job of ours, 48 MB, and for what is around them.
const LONGEST_REPLY: usize = 65 << 20;
/// Another node may be asked, or the same one a moment later: the connection is of no use as it is.
const LOST: [&str; 4] = ["READONLY", "LOADING", "MASTERDOWN", "CLUSTERDOWN"];

/// Its keys were removed. Nothing was done.
const GONE: [&str; 2] = ["NOGROUP", "UNBLOCKED"];

pub(crate) fn open(pipeline: &str, settings: &RedisPipeline, wake: Wake) -> Brokered<RedisBroker> {
    let stream = format!("pronghorn:{{{}}}", settings.queue);
    let broker = RedisBroker {
        settings: settings.clone(),
        keys: Arc::new(Keys {
            title: settings.redis.title(),
            pipeline: pipeline.to_owned(),
            delayed: format!("{stream}:delayed"),
            stream,
            has_group: AtomicBool::new(false),
        }),
        consumer: format!("{}-{:016x}", std::process::id(), fastrand::u64(..)),
        out: Out::default(),
    };
    Brokered::open(broker, pipeline, wake)
}

pub(crate) struct RedisBroker {
    settings: RedisPipeline,
    keys: Arc<Keys>,
    /// The name of this server in the group.
    consumer: String,
    out: Out,
}

/// The entries that this server has, on this connection or an earlier one: after a Redis was away
/// for long, it gives them as those of a server that is silent.
type Out = Arc<std::sync::Mutex<HashSet<String>>>;

/// The place of the jobs at a Redis.
struct Keys {
    title: String,
    pipeline: String,
    stream: String,
    delayed: String,
    /// This server has found or made the group.
    has_group: AtomicBool,
}

impl Keys {
    /// Makes the stream and its group if they are not there, and tells when they have gone.
    async fn make_group(&self, redis: &Redis) -> Result<(), RedisFailure> {
        let mut create = cmd("XGROUP");
        create.arg(&["CREATE", &self.stream, GROUP, "0", "MKSTREAM"]);
        let is_new = match redis.ask::<()>(&create).await {
            Err(RedisFailure::Refused { code, .. }) if code.as_deref() == Some("BUSYGROUP") => {
                false
            }
            made => made.map(|()| true)?,
        };
        if self.has_group.swap(true, Relaxed) && is_new {
            let (pipeline, title) = (&self.pipeline, &self.title);
            tracing::warn!(
                target: "jobs",
                pipeline,
                "the jobs of this pipeline are lost: {title} has no `{}` any more. Somebody has \
                 removed its keys, by `FLUSHALL` for instance, or it has started without its data. \
                 New jobs run",
                self.stream
            );
        }
        Ok(())
    }
}

pub(crate) struct RedisLink {
    keys: Arc<Keys>,
    consumer: String,
    claim_after: Duration,
    out: Out,
    commands: Redis,
    /// This connection waits for jobs, so nothing else can use it.
    waiting: Redis,
    /// The time when it was last looked for jobs of servers that do not live any more.
    claimed: Mutex<Option<Instant>>,
    /// A delayed job was pushed.
    delayed: Notify,
}

impl Broker for RedisBroker {
    type Link = RedisLink;

    fn title(&self) -> &str {
        &self.keys.title
    }

    fn queue(&self) -> &str {
        &self.settings.queue
    }

    async fn connect(&self) -> Result<RedisLink, BrokerError> {
        let settings = &self.settings.redis;
        let commands = Redis::new(settings.clone(), LONGEST_REPLY);
        let patient = RedisSettings {
            read_timeout: settings.read_timeout + FETCH_WAIT,
            ..settings.clone()
        };
        self.keys.make_group(&commands).await?;
        let link = RedisLink {
            keys: self.keys.clone(),
            consumer: self.consumer.clone(),
            claim_after: self.settings.claim_after,
            out: self.out.clone(),
            commands,
            waiting: Redis::new(patient, LONGEST_REPLY),
            claimed: Mutex::default(),
            delayed: Notify::new(),
        };
        link.remove_old_consumers().await?;
        Ok(link)
    }
}

impl RedisLink {
    /// Asks, and once more if the keys were gone.
    async fn ask<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, BrokerError> {
        match self.commands.ask(command).await {
            Err(failure) if is_gone(&failure) => {
                self.keys.make_group(&self.commands).await?;
                Ok(self.commands.ask(command).await?)
            }
            answer => Ok(answer?),
        }
    }

    /// A script with both keys, the group and this consumer in front of its arguments.
    fn script(&self, script: &str) -> Cmd {
        let mut command = cmd("EVAL");
        command
            .arg(script)
            .arg(2)
            .arg(&self.keys.stream)
            .arg(&self.keys.delayed)
            .arg(GROUP)
            .arg(&self.consumer);
        command
    }

    /// A server that was killed leaves its name behind.
    async fn remove_old_consumers(&self) -> Result<(), BrokerError> {
        self.ask(&self.script(scripts::REMOVE_OLD)).await
    }

    fn new_ones(&self, mut jobs: Vec<(Job, String)>) -> Vec<(Job, String)> {
        let mut out = lock(&self.out);
        jobs.retain(|(_, number)| out.insert(number.clone()));
        jobs
    }

    /// A number and a job each.
    async fn listed(
        &self,
        script: &str,
        after: String,
    ) -> Result<Vec<(String, Vec<u8>)>, BrokerError> {
        let mut command = self.script(script);
        command.arg(after).arg(MOST_IN_PART).arg(MOST_BYTES_IN_PART);
        self.ask(&command).await
    }

    /// Jobs that are out to this server from now on.
    async fn taken(&self, command: &Cmd) -> Result<Vec<(Job, String)>, BrokerError> {
        let taken: Vec<(String, Vec<u8>)> = self.ask(command).await?;
        let jobs = taken
            .into_iter()
            .map(|(number, job)| (decode_job(&job), number));
        Ok(jobs.collect())
    }

    /// `FETCH` or `CLAIM`, without what follows.
    fn bring(&self, script: &str, most: usize) -> Cmd {
        let mut command = self.script(script);
        command.arg(most).arg(MOST_BYTES_AT_A_TIME);
        command
    }

    /// Jobs that servers have left which do not live any more.
    async fn claim(&self, most: usize) -> Result<Vec<(Job, String)>, BrokerError> {
        let mut command = self.bring(scripts::CLAIM, most);
        command.arg(millis(self.claim_after));
        // This server's own jobs are among them when Redis was away for long. One that is settled
        // before the answer is here is not out any more then, and must not run again.
        let had = lock(&self.out).clone();
        let mut jobs = self.taken(&command).await?;
        jobs.retain(|(_, number)| !had.contains(number));
        Ok(self.new_ones(jobs))
    }

    /// Waits for one job: a reply has room for no more of any length, and scripts can't wait.
    async fn wait(&self) -> Result<Vec<(Job, String)>, BrokerError> {
        let mut command = cmd("XREADGROUP");
        command
            .arg(&["GROUP", GROUP, &self.consumer, "COUNT", "1", "BLOCK"])
            .arg(millis(FETCH_WAIT))
            .arg(&["STREAMS", &self.keys.stream, ">"]);
        let reply: Value = match self.waiting.ask(&command).await {
            Err(failure) if is_gone(&failure) => {
                self.keys.make_group(&self.commands).await?;
                return Ok(Vec::new());
            }
            reply => reply?,
        };
        // One stream was asked for: its name and its entries.
        let Value::Array(mut streams) = reply else {
            return Ok(Vec::new());
        };
        let jobs = match streams.pop() {
            Some(Value::Array(mut stream)) => stream.pop().map(jobs).unwrap_or_default(),
            _ => Vec::new(),
        };
        Ok(self.new_ones(jobs))
    }
}

impl Link for RedisLink {
    /// The number of an entry.
    type Token = String;

    const TOKENS_OUTLIVE_IT: bool = true;

    const KEEP_EVERY: Option<Duration> = Some(KEEP_EVERY);

    async fn push(&self, jobs: Vec<Job>) -> Result<(), BrokerError> {
        let mut command = self.script(scripts::PUSH);
        for job in &jobs {
            add(&mut command, job);
        }
        let () = self.ask(&command).await?;
        if jobs.iter().any(|job| !job.delay.is_zero()) {
            self.delayed.notify_one();
        }
        Ok(())
    }

    async fn fetch(&self, most: usize) -> Result<Vec<(Job, String)>, BrokerError> {
        let most = most.min(MOST_AT_A_TIME);
        let mut claimed = self.claimed.lock().await;
        let is_due = |at: Instant| at.elapsed() >= self.claim_after / 2;
        if claimed.is_none_or(is_due) {
            let jobs = self.claim(most).await?;
            if !jobs.is_empty() {
                return Ok(jobs);
            }
            *claimed = Some(Instant::now());
        }
        let jobs = self.taken(&self.bring(scripts::FETCH, most)).await?;
        let jobs = self.new_ones(jobs);
        if jobs.is_empty() {
            return self.wait().await;
        }
        Ok(jobs)
    }

    async fn settle(&self, token: String, step: Step) -> Result<(), BrokerError> {
        let mut command = self.script(scripts::SETTLE);
        command.arg(&token);
        let is_delayed = match &step {
            Step::Done | Step::Rejected(_) => false,
            Step::Back(job) => {
                add(&mut command, job);
                false
            }
            Step::Again(job) => {
                add(&mut command, job);
                !job.delay.is_zero()
            }
        };
        let settled: u64 = self.ask(&command).await?;
        lock(&self.out).remove(&token);
        if is_delayed {
            self.delayed.notify_one();
        }
        if settled == 0 {
            return Err(BrokerError::NotReserved);
        }
        Ok(())
    }

    async fn keep(&self, tokens: Vec<String>) -> Result<(), BrokerError> {
        for tokens in tokens.chunks(MOST_AT_A_TIME) {
            let mut command = self.script(scripts::KEEP);
            command.arg(tokens);
            let () = self.ask(&command).await?;
        }
        Ok(())
    }

    /// Delayed jobs become ready.
    async fn tend(&self) -> BrokerError {
        loop {
            let next: Result<i64, BrokerError> = self.ask(&self.script(scripts::PROMOTE)).await;
            let next = match next {
                Ok(next) => u64::try_from(next).ok().map(Duration::from_millis),
                Err(error @ BrokerError::Lost(_)) => return error,
                Err(_) => None,
            };
            let wait = next.unwrap_or(LOOK_AGAIN).min(LOOK_AGAIN);
            // A push that is noticed and the time that comes are the same.
            _ = timeout(wait, self.delayed.notified()).await;
        }
    }

    async fn claim(&self, name: &str) -> Result<bool, BrokerError> {
        let mut command = cmd("SET");
        command
            .arg(format!("{}:run:{name}", self.keys.stream))
            .arg(&self.consumer)
            .arg("NX")
            .arg("PX")
            .arg(millis(CLAIM_KEPT));
        let set: Option<String> = self.ask(&command).await?;
        Ok(set.is_some())
    }

    async fn stat(&self) -> Result<Counts, BrokerError> {
        let counts: (u64, u64, u64, i64) = self.ask(&self.script(scripts::STAT)).await?;
        let (entries, out, delayed, age) = counts;
        Ok(Counts {
            waiting: entries.saturating_sub(out),
            delayed,
            out: Some(out),
            oldest: u64::try_from(age).ok().map(Duration::from_millis),
        })
    }

    /// Delayed jobs from the last one on: those that become ready meanwhile are at the other end.
    async fn list(
        &self,
        after: Option<ListedTo>,
    ) -> Result<(Vec<Job>, Option<ListedTo>), BrokerError> {
        let number = |text: &str| text.parse().unwrap_or_default();
        match after.unwrap_or(ListedTo::Delayed(0)) {
            ListedTo::Delayed(passed) => {
                let listed = self
                    .listed(scripts::LIST_DELAYED, passed.to_string())
                    .await?;
                let next = match listed.len() {
                    0 => ListedTo::Waiting(0, 0),
                    count => ListedTo::Delayed(passed.saturating_add(count as u64)),
                };
                let jobs = listed.into_iter().map(|(left, job)| Job {
                    delay: Duration::from_millis(number(&left)),
                    ..decode_job(&job)
                });
                Ok((jobs.collect(), Some(next)))
            }
            ListedTo::Waiting(one, two) => {
                let listed = self.listed(scripts::LIST, format!("{one}-{two}")).await?;
                let next = listed.last().and_then(|(last, _)| last.split_once('-'));
                let next = next.map(|(one, two)| ListedTo::Waiting(number(one), number(two)));
                let jobs = listed.iter().map(|(_, job)| decode_job(job));
                Ok((jobs.collect(), next))
            }
        }
    }

    async fn close(&self) {
        // One that stays is removed later.
        _ = self.ask::<()>(&self.script(scripts::LEAVE)).await;
    }
}

/// A third of the shortest `claim_after`, and often enough for any.
const KEEP_EVERY: Duration = if cfg!(test) {
    Duration::from_millis(200)
} else {
    Duration::from_secs(3)
};

fn is_gone(failure: &RedisFailure) -> bool {
    let RedisFailure::Refused { code, .. } = failure else {
        return false;
    };
    code.as_deref().is_some_and(|code| GONE.contains(&code))
}

/// Adds what scripts read of a job: its delay in milliseconds, what makes it a member of its own in
/// a set, and itself.
fn add(command: &mut Cmd, job: &Job) {
    let unique = fastrand::u128(..).to_be_bytes();
    command
        .arg(millis(job.delay.min(LONGEST_DELAY)))
        .arg(&unique[..])
        .arg(encode_job(job));
}

/// Entries as Redis gives them: a number, and fields with their values. What somebody else has
/// written, or what was deleted, has no field of ours: its handler sees no payload.
fn jobs(entries: Value) -> Vec<(Job, String)> {
    let Value::Array(entries) = entries else {
        return Vec::new();
    };
    let entries = entries.into_iter().filter_map(|entry| {
        let (number, fields): (String, Vec<(String, Vec<u8>)>) =
            FromRedisValue::from_redis_value(entry).ok()?;
        let job = fields.iter().find(|(name, _)| name == FIELD);
        Some((decode_job(job.map_or(&[], |(_, bytes)| bytes)), number))
    });
    entries.collect()
}

impl From<RedisFailure> for BrokerError {
    fn from(failure: RedisFailure) -> Self {
        match failure {
            RedisFailure::Away { why, .. } => Self::Lost(why),
            RedisFailure::Refused { why, code, .. } => match code {
                Some(code) if LOST.contains(&&*code) => Self::Lost(why),
                _ => Self::Refused(why),
            },
            long @ RedisFailure::LongAnswers { .. } => Self::Refused(long.to_string()),
            RedisFailure::Unusable(why) => Self::Refused(why),
        }
    }
}

#[cfg(test)]
mod tests;
