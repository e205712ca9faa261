//! How the jobs of a pipeline are to run: attempts, times, and how many at a time.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::Duration;

use pronghorn_base::lock;
use pronghorn_config::{Node, Setting, Shape, Shown, Table, Wrong};
use pronghorn_queue::{Job, options};
use tokio::time::Instant;

/// Attempts in all. A job that kills its worker costs a new one each time, and what has failed
/// three times is seldom the network's fault.
const ATTEMPTS: u32 = 3;
const MOST_ATTEMPTS: u32 = 1000;

/// Before the second attempt; what was restarted is up again by then.
const FIRST_DELAY: Duration = Duration::from_secs(1);
/// Waiting doubles up to here: what is down for days is still tried every hour.
const LONGEST_DELAY: Duration = Duration::from_hours(1);
/// Up to so much of a delay is added to it, so that jobs that failed together don't come again
/// together.
const JITTER: f64 = 0.25;

/// What a pipeline has of `retry` and the keys beside it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    pub retry: Retry,
    /// Of one attempt, for jobs that have none of their own.
    pub deadline: Option<Duration>,
    /// How old a job may be when it begins.
    pub expires: Option<Duration>,
    /// How many run at a time.
    pub concurrency: Option<usize>,
    pub rate: Option<Rate>,
}

/// When a job that failed runs again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retry {
    /// Attempts in all.
    pub max: u32,
    pub backoff: Backoff,
    pub jitter: bool,
}

/// How long is waited before another attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Backoff {
    /// A second, two, four, up to an hour.
    Exponential,
    /// Before the second attempt, the third one; the last is for all that follow.
    Times(Vec<Duration>),
}

/// So many jobs may begin in such a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    pub jobs: u32,
    pub per: Duration,
}

impl Default for Retry {
    fn default() -> Self {
        Self {
            max: ATTEMPTS,
            backoff: Backoff::Exponential,
            jitter: true,
        }
    }
}

impl Retry {
    /// How often a job is tried: as its push has said, or else as its pipeline does.
    pub(crate) fn most_attempts(&self, job: &Job) -> u32 {
        options::most_attempts(&job.headers).unwrap_or(self.max)
    }

    /// How long to wait after so many attempts of `most` that failed; None: it is given up.
    pub(crate) fn after(&self, attempts: u32, most: u32) -> Option<Duration> {
        if attempts >= most {
            return None;
        }
        let before = attempts.saturating_sub(1);
        let delay = match &self.backoff {
            Backoff::Exponential => {
                pronghorn_base::Backoff::new(FIRST_DELAY, LONGEST_DELAY).interval(before)
            }
            Backoff::Times(times) => {
                let last = times.len().saturating_sub(1);
                let at = usize::try_from(before).unwrap_or(usize::MAX).min(last);
                times.get(at).copied().unwrap_or_default()
            }
        };
        let more = if self.jitter {
            delay.mul_f64(JITTER * fastrand::f64())
        } else {
            Duration::ZERO
        };
        Some(delay + more)
    }
}

impl Rules {
    pub(crate) fn read(t: &mut Table<'_>) -> Self {
        let retry = t.section_with("retry", "When a failed job runs again.", |t| {
            t.ours();
            read_retry(t)
        });
        let deadline = t
            .key(
                "deadline",
                "Time limit for one attempt of a job, unless the job has its own. By default, \
                 `exec_ttl` of the pool.",
            )
            .ours()
            .range(Duration::from_millis(1)..=Duration::from_hours(24))
            .optional();
        let expires = t
            .key(
                "expires",
                "How old a job may be when it begins. An older job does not run.",
            )
            .ours()
            .range(Duration::from_secs(1)..=Duration::from_hours(365 * 24))
            .optional();
        let concurrency = t
            .key(
                "concurrency",
                "How many jobs of this pipeline may run at a time.",
            )
            .ours()
            .range(1..=65_536)
            .optional();
        let rate = t.optional_section_with("rate", "The rate at which jobs may begin.", |t| {
            t.ours();
            Rate {
                jobs: t
                    .key(
                        "jobs",
                        "How many jobs may begin within `per`, even all at once.",
                    )
                    .range(1..=1_000_000)
                    .default(10),
                per: t
                    .key("per", "The period that `jobs` refers to.")
                    .range(Duration::from_millis(1)..=Duration::from_hours(24))
                    .default(Duration::from_secs(1)),
            }
        });
        Self {
            retry,
            deadline,
            expires,
            concurrency,
            rate,
        }
    }
}

fn read_retry(t: &mut Table<'_>) -> Retry {
    let max = t
        .key(
            "max",
            "The number of attempts, including the first. After the last one, the job becomes a \
             dead letter.",
        )
        .range(1..=MOST_ATTEMPTS)
        .default(ATTEMPTS);
    let backoff = t
        .key(
            "backoff",
            "The time before the next attempt. `exponential`: one second, then two, four and so \
             on, up to an hour. A list gives each time; its last value is for all further \
             attempts.",
        )
        .default(Backoff::Exponential);
    let jitter = t
        .key(
            "jitter",
            "Whether a random part, up to a quarter, is added to each time. Jobs that failed \
             together then do not run again together.",
        )
        .default(true);
    Retry {
        max,
        backoff,
        jitter,
    }
}

const EXPONENTIAL: &str = "exponential";

impl Setting for Backoff {
    fn example() -> String {
        EXPONENTIAL.to_owned()
    }

    fn accepts() -> String {
        format!("`{EXPONENTIAL}`, or {}", Vec::<Duration>::accepts())
    }

    fn shape() -> Shape {
        Vec::<Duration>::shape()
    }

    fn read(node: &Node) -> Result<Self, Vec<Wrong>> {
        if node.text().is_some_and(|text| text.trim() == EXPONENTIAL) {
            return Ok(Self::Exponential);
        }
        Vec::read(node).map(Self::Times)
    }

    fn show(&self) -> Shown {
        match self {
            Self::Exponential => Shown::One(EXPONENTIAL.to_owned()),
            Self::Times(times) => times.show(),
        }
    }
}

/// Counts the beginnings of jobs against a rate: in no time of its length do more begin.
#[derive(Debug)]
pub(crate) struct Window {
    rate: Rate,
    /// When the last ones began, the oldest first: as many as may begin in that time at most.
    begun: Mutex<VecDeque<Instant>>,
}

impl Window {
    pub(crate) fn new(rate: Rate) -> Self {
        Self {
            rate,
            begun: Mutex::default(),
        }
    }

    /// When the next job may begin, if not now.
    pub(crate) fn next(&self, now: Instant) -> Option<Instant> {
        let counts_for = self.rate.per + self.on_its_way();
        let mut begun = lock(&self.begun);
        while begun.front().is_some_and(|it| *it + counts_for <= now) {
            begun.pop_front();
        }
        let is_full = begun.len() >= self.rate.jobs as usize;
        let first = begun.front().filter(|_| is_full)?;
        Some(*first + counts_for)
    }

    /// How long a job may be on its way to its worker. Whoever counts there, or behind it, is to
    /// see no more jobs in that time either.
    fn on_its_way(&self) -> Duration {
        (self.rate.per / 50).min(Duration::from_millis(100))
    }

    /// One begins.
    pub(crate) fn take(&self, now: Instant) {
        let mut begun = lock(&self.begun);
        if begun.len() >= self.rate.jobs as usize {
            begun.pop_front();
        }
        begun.push_back(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn retry(backoff: Backoff) -> Retry {
        Retry {
            max: 5,
            backoff,
            jitter: false,
        }
    }

    #[test]
    fn waiting_doubles_and_has_an_end() {
        let mut retry = retry(Backoff::Exponential);
        let seconds =
            |retry: &Retry, attempts| retry.after(attempts, retry.max).map(|it| it.as_secs());
        assert_eq!(
            [1, 2, 3, 4].map(|n| seconds(&retry, n)),
            [1, 2, 4, 8].map(Some)
        );
        assert_eq!((seconds(&retry, 5), seconds(&retry, 9)), (None, None));
        retry.max = u32::MAX;
        assert_eq!(seconds(&retry, 1_000_000), Some(3600));
    }

    #[test]
    fn a_list_says_each_time_and_its_last_is_for_the_rest() {
        let [one, ten] = [1, 10].map(Duration::from_secs);
        let times = retry(Backoff::Times(vec![one, ten]));
        let delays = [1, 2, 3].map(|attempts| times.after(attempts, times.max));
        assert_eq!(delays, [one, ten, ten].map(Some));
        let none = retry(Backoff::Times(Vec::new()));
        assert_eq!(none.after(1, none.max), Some(Duration::ZERO));
    }

    #[test]
    fn a_job_may_say_how_often_it_is_tried() {
        let retry = retry(Backoff::Exponential);
        let mut job = Job::default();
        assert_eq!(retry.most_attempts(&job), 5);
        let header = ("pronghorn-attempts".to_owned(), vec!["9".to_owned()]);
        job.headers.extend([header]);
        assert_eq!(retry.most_attempts(&job), 9);
        assert!(retry.after(8, retry.most_attempts(&job)).is_some());
        assert_eq!(retry.after(9, retry.most_attempts(&job)), None);
    }

    #[test]
    fn jitter_adds_up_to_a_quarter() {
        let retry = Retry::default();
        for _ in 0..100 {
            let delay = retry.after(1, retry.max).unwrap().as_secs_f64();
            assert!((1.0..=1.25).contains(&delay), "{delay}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_rate_lets_so_many_begin_and_no_more() {
        let second = Duration::from_secs(1);
        let window = Window::new(Rate {
            jobs: 4,
            per: second,
        });
        let mut begun: Vec<Instant> = Vec::new();
        let end = Instant::now() + 10 * second;
        while Instant::now() < end {
            match window.next(Instant::now()) {
                None => {
                    window.take(Instant::now());
                    begun.push(Instant::now());
                    // Not all at once, so that the window has to slide.
                    tokio::time::sleep(Duration::from_millis(70)).await;
                }
                Some(at) => tokio::time::sleep_until(at).await,
            }
        }
        assert!((40..=44).contains(&begun.len()), "{}", begun.len());
        let too_many = begun.windows(5).find(|five| five[4] - five[0] < second);
        assert_eq!(too_many, None, "any five take more than a second");
    }
}
