//! Options of a job that RoadRunner's messages have no field for. They travel as headers, which
//! every driver keeps, and which the official packages can set as well; handlers don't see them.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::time::Duration;

use crate::job::{Headers, Job};

const PREFIX: &str = "pronghorn-";
const DEADLINE: &str = "pronghorn-deadline";
const EXPIRES: &str = "pronghorn-expires";
/// In place of the one before, once the job was taken: milliseconds since 1970.
const EXPIRES_AT: &str = "pronghorn-expires-at";
const UNIQUE: &str = "pronghorn-unique";
/// In place of a key that could not go with its job to another process.
const HAD_KEY: &str = "pronghorn-had-key";
const UNIQUE_FOR: &str = "pronghorn-unique-for";
const UNIQUE_WHILE: &str = "pronghorn-unique-while";
const RESULT: &str = "pronghorn-result";
const ATTEMPTS: &str = "pronghorn-attempts";
/// The batch that it is of.
pub const BATCH: &str = "pronghorn-batch";
/// The push of that batch, as a number: one of the same ID may have been cancelled before.
pub const BATCH_PUSH: &str = "pronghorn-batch-push";
/// How often in a row its handler has wanted it again at once.
const REQUEUES: &str = "pronghorn-requeues";
/// The topic of a push to Kafka.
const TOPIC: &str = "pronghorn-topic";
const PARTITION: &str = "pronghorn-partition";
/// Where a job was in Kafka: its topic, its partition and its offset.
const PLACE: &str = "pronghorn-place";

const KNOWN: [&str; 7] = [
    DEADLINE,
    EXPIRES,
    UNIQUE,
    UNIQUE_FOR,
    UNIQUE_WHILE,
    RESULT,
    ATTEMPTS,
];

/// A framework counts attempts itself, and some of its jobs are tried until a moment comes.
const MOST_ATTEMPTS: u32 = 1_000_000;

/// Seconds; a year.
const LONGEST: f64 = 31_536_000.0;

/// The options that a job has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobOptions {
    /// How long an attempt may take.
    pub deadline: Option<Duration>,
    /// Milliseconds since 1970.
    expires_at: Option<u64>,
    /// The key of which there may be one job.
    pub unique: Option<String>,
    /// Jobs of batches may have its end in the place of their own: it has a key, or had one.
    pub can_be_followed: bool,
    /// Somebody waits for what the handler returns.
    pub wants_result: bool,
    /// The batch that it is of.
    pub batch: Option<String>,
    /// The push of that batch; 0: of a release before.
    pub batch_push: u64,
}

/// A job of which there may be one with this key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unique {
    /// The key.
    pub key: String,
    /// The key counts for this time after the push, whatever became of the job; else until the job
    /// is done.
    pub period: Option<Duration>,
    /// Until it begins, and not until it is done.
    pub while_queued: bool,
    /// When its job expires, in milliseconds since 1970.
    pub expires_at: Option<u64>,
}

impl JobOptions {
    /// The options in the headers of a job that was accepted.
    pub fn of(headers: &Headers) -> Self {
        let mut options = Self::default();
        for (name, values) in ours(headers) {
            let value = values.first().map_or("", String::as_str);
            match name.as_str() {
                DEADLINE => options.deadline = seconds(value),
                EXPIRES_AT => options.expires_at = expires_at(headers),
                UNIQUE => {
                    options.unique = Some(value.to_owned());
                    options.can_be_followed = true;
                }
                HAD_KEY => options.can_be_followed = true,
                RESULT => options.wants_result = true,
                BATCH => options.batch = Some(value.to_owned()),
                BATCH_PUSH => options.batch_push = value.parse().unwrap_or(0),
                _ => {}
            }
        }
        options
    }

    /// Whether it is too old to begin.
    pub fn is_expired(&self, now_ms: u64) -> bool {
        self.expires_at.is_some_and(|at| at <= now_ms)
    }

    /// Whether it will be too old at some time.
    pub const fn can_expire(&self) -> bool {
        self.expires_at.is_some()
    }
}

/// Whether somebody may wait for what the handler returns.
pub fn wants_result(headers: &Headers) -> bool {
    headers.contains_key(RESULT)
}

/// When a job that was pushed expires, in milliseconds since 1970.
pub fn expires_at(headers: &Headers) -> Option<u64> {
    headers.get(EXPIRES_AT)?.first()?.parse().ok()
}

/// How often a job is tried, if its push has said so.
pub fn most_attempts(headers: &Headers) -> Option<u32> {
    counted(headers.get(ATTEMPTS)?.first()?)
}

/// However old it is by now, it may run.
pub fn never_expire(headers: &mut Headers) {
    headers.remove(EXPIRES_AT);
}

/// A job that is wanted again at once comes so often without a pause: whoever asks for its turn a
/// few times finds it, and who always asks is not to keep a processor busy.
const AT_ONCE: u32 = 3;
/// The pause after that, which doubles each time, and the longest one.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// How long a job waits that its handler wants again without saying when, and the header by which
/// that is counted.
pub fn requeued(headers: &Headers) -> (Duration, (String, Vec<String>)) {
    let before = headers.get(REQUEUES).and_then(|values| values.first());
    let times: u32 = before.and_then(|it| it.parse().ok()).unwrap_or(0);
    let backoff = pronghorn_base::Backoff::new(FIRST_PAUSE, LONGEST_PAUSE).at_once(AT_ONCE);
    let pause = backoff.interval(times);
    let times = times.saturating_add(1).to_string();
    (pause, (REQUEUES.to_owned(), vec![times]))
}

/// The result of the job is kept for somebody who waits.
pub fn ask_for_result(job: &mut Job) {
    let keep = vec!["keep".to_owned()];
    job.headers.insert(RESULT.to_owned(), keep);
}

/// Where a job was in Kafka. RoadRunner's packages ask for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogPlace {
    /// The topic.
    pub topic: String,
    /// The partition of the topic.
    pub partition: i32,
    /// The offset in the partition.
    pub offset: i64,
}

/// Says which topic and partition of Kafka a job is pushed to. Partition 0 leaves the choice to
/// the client, as in RoadRunner's messages.
pub fn put_topic(headers: &mut Headers, topic: String, partition: i32) {
    headers.insert(TOPIC.to_owned(), vec![topic]);
    if partition > 0 {
        headers.insert(PARTITION.to_owned(), vec![partition.to_string()]);
    }
}

/// Notes where a job was in Kafka.
pub fn put_place(headers: &mut Headers, place: &LogPlace) {
    let numbers = [place.partition.to_string(), place.offset.to_string()];
    let values = std::iter::once(place.topic.clone()).chain(numbers);
    headers.insert(PLACE.to_owned(), values.collect());
}

/// The place of a job in Kafka, if it comes from there.
pub fn place(headers: &Headers) -> Option<LogPlace> {
    let [topic, partition, offset] = headers.get(PLACE)?.as_slice() else {
        return None;
    };
    Some(LogPlace {
        topic: topic.clone(),
        partition: partition.parse().ok()?,
        offset: offset.parse().ok()?,
    })
}

/// The topic and the partition that a job is for: those that its push has named, or that it was in
/// before. They are not sent.
pub fn take_topic(headers: &mut Headers) -> (Option<String>, Option<i32>) {
    let mut first = |name: &str| headers.remove(name)?.into_iter().next();
    let (topic, partition, before) = (first(TOPIC), first(PARTITION), first(PLACE));
    (topic.or(before), partition.and_then(|it| it.parse().ok()))
}

/// Looks at the options of a job that is pushed, and notes when it expires: after `expires`, unless
/// it says itself when.
///
/// # Errors
///
/// A text for a person: it says what is wrong with an option.
pub fn accept(
    job: &mut Job,
    mut expires: Option<Duration>,
    now_ms: u64,
) -> Result<Option<Unique>, String> {
    let (mut period, mut while_queued) = (None, false);
    for (name, values) in ours(&job.headers) {
        let value = values.first().map_or("", String::as_str);
        let time = || {
            seconds(value).ok_or_else(|| {
                format!(
                    "the header {name} is `{}`; accepted: seconds above 0, up to a year",
                    value.escape_debug()
                )
            })
        };
        match name.as_str() {
            DEADLINE => _ = time()?,
            ATTEMPTS if counted(value).is_some() => {}
            ATTEMPTS => {
                let value = value.escape_debug();
                return Err(format!(
                    "the header {name} is `{value}`; accepted: a whole number from 1 to {MOST_ATTEMPTS}"
                ));
            }
            EXPIRES => expires = Some(time()?),
            UNIQUE_FOR => period = Some(time()?),
            UNIQUE_WHILE if matches!(value, "queued" | "running") => {
                while_queued = value == "queued";
            }
            UNIQUE_WHILE => {
                let value = value.escape_debug();
                return Err(format!(
                    "the header {name} is `{value}`; accepted: `queued`, `running`"
                ));
            }
            UNIQUE | HAD_KEY | RESULT | EXPIRES_AT | REQUEUES | BATCH | BATCH_PUSH | TOPIC
            | PARTITION | PLACE => {}
            _ => {
                let name = name.escape_debug();
                return Err(format!(
                    "there is no option `{name}`; there are `{}`",
                    KNOWN.join("`, `")
                ));
            }
        }
    }
    if let Some(expires) = expires {
        let at = now_ms.saturating_add(pronghorn_base::millis(expires));
        // One that was taken before, and comes again, is not younger for it.
        let at = expires_at(&job.headers).map_or(at, |before| before.min(at));
        job.headers.remove(EXPIRES);
        job.headers
            .insert(EXPIRES_AT.to_owned(), vec![at.to_string()]);
    }
    Ok(unique_key(&job.headers).map(|key| Unique {
        key: key.to_owned(),
        period,
        while_queued,
        expires_at: expires_at(&job.headers),
    }))
}

/// Whether a job that is given back keeps this header as it is: who runs it, how often, and what
/// waits for it was decided when it was pushed.
pub(crate) fn is_kept(name: &str) -> bool {
    name.starts_with(PREFIX) || name == "pool"
}

/// The key of a job that has one.
pub fn unique_key(headers: &Headers) -> Option<&str> {
    headers.get(UNIQUE)?.first().map(String::as_str)
}

/// The key that a job in a pipeline has, if it counts still: it was pushed `since` then, in
/// milliseconds since 1970, or put back after an attempt.
pub fn kept_key(headers: &Headers, since: u64, now_ms: u64) -> Option<Unique> {
    let first = |name: &str| headers.get(name)?.first().map(String::as_str);
    let key = unique_key(headers)?.to_owned();
    let age = Duration::from_millis(now_ms.saturating_sub(since));
    let period = match first(UNIQUE_FOR).and_then(seconds) {
        Some(period) if period <= age => return None,
        period => period.map(|period| period.saturating_sub(age)),
    };
    Some(Unique {
        key,
        period,
        while_queued: first(UNIQUE_WHILE) == Some("queued"),
        expires_at: expires_at(headers),
    })
}

/// A job goes on without its key. Whether it had one.
pub fn forget_key<V>(headers: &mut BTreeMap<String, V>) -> bool {
    let key = headers.remove(UNIQUE);
    let had_one = key.is_some();
    headers.extend(key.map(|key| (HAD_KEY.to_owned(), key)));
    had_one
}

/// Gives a job a key of the server's own.
pub fn hold_key(job: &mut Job, key: String) {
    job.headers.insert(UNIQUE.to_owned(), vec![key]);
}

/// The headers that are for a handler.
pub fn visible(headers: &Headers) -> Cow<'_, Headers> {
    if ours(headers).next().is_none() {
        return Cow::Borrowed(headers);
    }
    let others = headers.iter().filter(|(name, _)| !name.starts_with(PREFIX));
    Cow::Owned(others.map(|(n, v)| (n.clone(), v.clone())).collect())
}

fn ours(headers: &Headers) -> impl Iterator<Item = (&String, &Vec<String>)> {
    let from = headers.range::<str, _>((Bound::Included(PREFIX), Bound::Unbounded));
    from.take_while(|(name, _)| name.starts_with(PREFIX))
}

fn counted(text: &str) -> Option<u32> {
    let times = text.parse().ok()?;
    (1..=MOST_ATTEMPTS).contains(&times).then_some(times)
}

fn seconds(text: &str) -> Option<Duration> {
    let seconds: f64 = text.parse().ok()?;
    (seconds > 0.0 && seconds <= LONGEST).then(|| Duration::from_secs_f64(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(headers: &[(&str, &str)]) -> Job {
        let header = |(name, value): &(&str, &str)| ((*name).to_owned(), vec![(*value).to_owned()]);
        Job {
            headers: headers.iter().map(header).collect(),
            ..Job::default()
        }
    }

    #[test]
    fn options_are_read_from_headers_and_not_shown() {
        let mut job = job(&[
            ("a", "1"),
            (DEADLINE, "1.5"),
            (EXPIRES, "2"),
            (RESULT, "keep"),
            (UNIQUE, "k"),
            (UNIQUE_FOR, "60"),
            ("z", "2"),
        ]);
        let unique = accept(&mut job, None, 1000).unwrap().unwrap();
        assert_eq!(
            (&*unique.key, unique.period),
            ("k", Some(Duration::from_mins(1)))
        );
        let options = JobOptions::of(&job.headers);
        assert_eq!(options.deadline, Some(Duration::from_millis(1500)));
        assert!(options.wants_result);
        assert_eq!(
            [2999, 3000].map(|now| options.is_expired(now)),
            [false, true]
        );
        let visible = visible(&job.headers).into_owned();
        assert_eq!(visible.keys().collect::<Vec<_>>(), ["a", "z"]);
        let plain = Headers::from([("a".to_owned(), Vec::new())]);
        assert!(matches!(super::visible(&plain), Cow::Borrowed(_)));
    }

    #[test]
    fn a_job_that_is_always_wanted_again_waits_longer_and_longer() {
        let mut job = job(&[]);
        let pauses: Vec<_> = (0..12)
            .map(|_| {
                let (pause, (name, value)) = requeued(&job.headers);
                job.headers.insert(name, value);
                pause.as_millis()
            })
            .collect();
        let expected = [
            0, 0, 0, 100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000,
        ];
        assert_eq!(pauses, expected);
        assert!(visible(&job.headers).is_empty());
        assert!(accept(&mut job, None, 0).is_ok(), "it may be imported");
    }

    #[test]
    fn a_place_in_kafka_goes_with_a_job_and_is_not_sent() {
        let mut headers = Headers::new();
        put_topic(&mut headers, "t".to_owned(), 3);
        assert_eq!(take_topic(&mut headers), (Some("t".to_owned()), Some(3)));
        assert_eq!(place(&headers), None);
        let was = LogPlace {
            topic: "u".to_owned(),
            partition: 1,
            offset: 5,
        };
        put_place(&mut headers, &was);
        assert_eq!(place(&headers), Some(was));
        assert_eq!(take_topic(&mut headers), (Some("u".to_owned()), None));
        assert!(headers.is_empty());
    }

    #[test]
    fn a_key_counts_for_what_is_left_of_its_time() {
        let kept = |headers: &[(&str, &str)]| kept_key(&job(headers).headers, 5000, 9000);
        assert_eq!(kept(&[]).map(|it| it.key), None);
        let plain = kept(&[(UNIQUE, "k"), (UNIQUE_WHILE, "queued")]).unwrap();
        assert_eq!(
            (&*plain.key, plain.period, plain.while_queued),
            ("k", None, true)
        );
        let period = kept(&[(UNIQUE, "k"), (UNIQUE_FOR, "5")]).unwrap();
        assert_eq!(period.period, Some(Duration::from_secs(1)));
        assert!(kept(&[(UNIQUE, "k"), (UNIQUE_FOR, "4")]).is_none());
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (name, value, said) in [
            (DEADLINE, "soon", "is `soon`; accepted: seconds above 0"),
            (EXPIRES, "0", "is `0`"),
            (UNIQUE_FOR, "inf", "is `inf`"),
            (UNIQUE_WHILE, "done", "accepted: `queued`, `running`"),
            (ATTEMPTS, "0", "accepted: a whole number from 1 to 1000000"),
            (ATTEMPTS, "2.5", "is `2.5`"),
            ("pronghorn-x", "", "there is no option `pronghorn-x`"),
        ] {
            let refused = accept(&mut job(&[(name, value)]), None, 0);
            let error = refused.unwrap_err();
            assert!(error.contains(said), "{error}");
        }
    }
}
