//! What came of jobs, for those who wait for it. In memory: who waits is connected, and a server
//! that starts anew has nobody who waits.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use pronghorn_base::lock;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

use crate::metrics::OutcomeLabel;
use crate::reason::Reason;

/// Who waits is a request, or a script that asks again; not tomorrow.
const KEPT: Duration = Duration::from_hours(1);
/// Of results that are kept; the oldest go first.
const MOST: usize = 10_000;
const MOST_BYTES: usize = 64 << 20;
/// A result is an answer, and no file.
pub(crate) const LONGEST: usize = 1 << 20;

/// How a job ended for good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// What its handler returned, as JSON.
    Done(Bytes),
    /// Why it was given up.
    Failed(Reason),
}

/// Why a job ends that no worker has done and that was not given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dropped {
    Cancelled,
    Expired,
    /// It was in memory, in a pipeline that was destroyed.
    Destroyed,
}

impl Dropped {
    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::Cancelled => "the job was cancelled",
            Self::Expired => "the job was too old when its turn came",
            Self::Destroyed => "the pipeline of the job was destroyed",
        }
    }

    pub(crate) const fn label(self) -> OutcomeLabel {
        match self {
            Self::Cancelled | Self::Destroyed => OutcomeLabel::Cancelled,
            Self::Expired => OutcomeLabel::Expired,
        }
    }
}

impl From<Dropped> for Ended {
    fn from(why: Dropped) -> Self {
        Self::Failed(why.text().into())
    }
}

/// Clones are the same ones.
#[derive(Clone, Debug, Default)]
pub(crate) struct Results(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    kept: HashMap<String, (Ended, Instant)>,
    /// In the order of time; some may have gone.
    order: VecDeque<(String, Instant)>,
    bytes: usize,
    waiting: HashMap<String, Vec<oneshot::Sender<Ended>>>,
    /// No job ends here any more.
    is_over: bool,
}

/// The outcome of waiting for a job's end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Waited {
    Ended(Ended),
    /// Not by then.
    NotYet,
    /// The server stops before it can come.
    Over,
}

/// While one of its clones is there, jobs may end. With the last one, nobody waits any more.
#[derive(Debug)]
pub(crate) struct JobsMayEnd(Results);

impl Drop for JobsMayEnd {
    fn drop(&mut self) {
        let mut state = lock(&self.0.0);
        state.is_over = true;
        state.waiting.clear();
    }
}

impl Results {
    /// Keeps a result, and tells those who wait for it.
    pub(crate) fn keep(&self, id: &str, ended: Ended) {
        let mut state = lock(&self.0);
        for waiting in state.waiting.remove(id).unwrap_or_default() {
            // Who does not wait any more may ask again.
            _ = waiting.send(ended.clone());
        }
        let now = Instant::now();
        state.forget(id);
        state.bytes += ended.len();
        state.kept.insert(id.to_owned(), (ended, now));
        state.order.push_back((id.to_owned(), now));
        state.clear(now);
    }

    /// For those who bring jobs to their ends.
    pub(crate) fn jobs_may_end(&self) -> Arc<JobsMayEnd> {
        Arc::new(JobsMayEnd(self.clone()))
    }

    /// Waits for the end of a job.
    pub(crate) async fn wait(&self, id: &str, within: Duration) -> Waited {
        let receiver = {
            let mut state = lock(&self.0);
            state.clear(Instant::now());
            if let Some((ended, _)) = state.kept.get(id) {
                return Waited::Ended(ended.clone());
            }
            if state.is_over {
                return Waited::Over;
            }
            let (sender, receiver) = oneshot::channel();
            let waiting = state.waiting.entry(id.to_owned()).or_default();
            waiting.retain(|other| !other.is_closed());
            waiting.push(sender);
            receiver
        };
        let ended = timeout(within, receiver).await;
        if ended.is_err() {
            let mut state = lock(&self.0);
            if let Some(waiting) = state.waiting.get_mut(id) {
                waiting.retain(|other| !other.is_closed());
                if waiting.is_empty() {
                    state.waiting.remove(id);
                }
            }
        }
        match ended {
            Ok(Ok(ended)) => Waited::Ended(ended),
            Ok(Err(_)) => Waited::Over,
            Err(_) => Waited::NotYet,
        }
    }
}

impl State {
    fn forget(&mut self, id: &str) {
        if let Some((ended, _)) = self.kept.remove(id) {
            self.bytes -= ended.len();
        }
    }

    fn clear(&mut self, now: Instant) {
        while let Some((id, since)) = self.order.front() {
            let is_old = now.saturating_duration_since(*since) >= KEPT;
            if !is_old && self.kept.len() <= MOST && self.bytes <= MOST_BYTES {
                break;
            }
            let (id, since) = (id.clone(), *since);
            self.order.pop_front();
            // A job of the same ID may have ended since.
            if self.kept.get(&id).is_some_and(|(_, kept)| *kept == since) {
                self.forget(&id);
            }
        }
    }
}

impl Ended {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Done(bytes) => bytes.len(),
            Self::Failed(reason) => reason.len(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(text: &str) -> Ended {
        Ended::Done(Bytes::copy_from_slice(text.as_bytes()))
    }

    fn done(text: &str) -> Waited {
        Waited::Ended(result(text))
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_when_no_job_can_end_any_more() {
        let results = Results::default();
        let one = results.jobs_may_end();
        let other = one.clone();
        results.keep("a", result("1"));
        drop(other);
        assert_eq!(results.wait("b", Duration::ZERO).await, Waited::NotYet);
        let ending = async { drop(one) };
        let (waited, ()) = tokio::join!(results.wait("b", Duration::from_mins(1)), ending);
        assert_eq!(waited, Waited::Over);
        assert_eq!(
            results.wait("b", Duration::from_mins(1)).await,
            Waited::Over
        );
        assert_eq!(results.wait("a", Duration::ZERO).await, done("1"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_result_is_there_before_and_after_somebody_waits() {
        let results = Results::default();
        let second = Duration::from_secs(1);
        assert_eq!(results.wait("a", second).await, Waited::NotYet);
        assert!(lock(&results.0).waiting.is_empty());
        let keeping = async {
            tokio::time::sleep(second).await;
            results.keep("a", result("1"));
        };
        let (waited, ()) = tokio::join!(results.wait("a", 10 * second), keeping);
        assert_eq!(waited, done("1"));
        assert_eq!(results.wait("a", second).await, done("1"));
        results.keep("a", Ended::Failed("no".into()));
        assert_eq!(
            results.wait("a", second).await,
            Waited::Ended(Ended::Failed("no".into()))
        );
        tokio::time::sleep(KEPT).await;
        assert_eq!(results.wait("a", second).await, Waited::NotYet);
        assert_eq!(lock(&results.0).bytes, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn so_many_are_kept_and_the_oldest_go() {
        let results = Results::default();
        for number in 0..=MOST {
            results.keep(&number.to_string(), result("x"));
        }
        assert_eq!(results.wait("0", Duration::ZERO).await, Waited::NotYet);
        assert_eq!(results.wait("1", Duration::ZERO).await, done("x"));
        assert_eq!(lock(&results.0).bytes, MOST);
    }
}
