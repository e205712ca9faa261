//! What came of jobs, for those who wait for it. In memory: who waits is connected, and a server
//! that starts anew has nobody who waits.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use pronghorn_base::lock;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

use crate::metrics::OutcomeLabel;
use crate::reason::Reason;
use crate::shares::Shares;

/// Who waits is a request, or a script that asks again; not tomorrow.
const KEPT: Duration = Duration::from_hours(1);
/// Of results that are kept. The pipeline that has the most loses its oldest.
const MOST: usize = 10_000;
const MOST_BYTES: u64 = 64 << 20;
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
    kept: HashMap<ResultKey, Kept>,
    /// By IDs, the pipelines whose jobs of that ID have one.
    pipelines: HashMap<String, Vec<String>>,
    /// By their numbers, which are in the order of time.
    order: BTreeMap<u64, ResultKey>,
    number: u64,
    shares: Shares,
    waiting: HashMap<String, Vec<Waiting>>,
    /// No job ends here any more.
    is_over: bool,
}

#[derive(Debug)]
struct Kept {
    ended: Ended,
    since: Instant,
    number: u64,
}

/// Whose result it is: whoever chooses an ID must not answer for another pipeline's job.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ResultKey {
    pipeline: String,
    id: String,
}

/// Somebody who waits for a job's end.
#[derive(Debug)]
struct Waiting {
    visible: Visible,
    sender: oneshot::Sender<Ended>,
}

/// The pipelines whose jobs somebody may see.
#[derive(Clone, Debug, Default)]
pub(crate) struct Visible(Option<Arc<HashSet<String>>>);

impl Visible {
    /// None but these.
    pub(crate) fn of(pipelines: HashSet<String>) -> Self {
        Self(Some(Arc::new(pipelines)))
    }

    pub(crate) fn has(&self, pipeline: &str) -> bool {
        self.0.as_ref().is_none_or(|all| all.contains(pipeline))
    }
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
    pub(crate) fn keep(&self, pipeline: &str, id: &str, ended: Ended) {
        let mut state = lock(&self.0);
        let all = state.waiting.remove(id).unwrap_or_default();
        let (told, others): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|it| it.visible.has(pipeline));
        for waiting in told {
            // Who does not wait any more may ask again.
            _ = waiting.sender.send(ended.clone());
        }
        if !others.is_empty() {
            state.waiting.insert(id.to_owned(), others);
        }
        let now = Instant::now();
        let of = ResultKey {
            pipeline: pipeline.to_owned(),
            id: id.to_owned(),
        };
        state.forget(&of);
        state.number += 1;
        let number = state.number;
        state.shares.add(pipeline, number, ended.len() as u64);
        let pipelines = state.pipelines.entry(of.id.clone()).or_default();
        pipelines.push(of.pipeline.clone());
        state.order.insert(number, of.clone());
        let kept = Kept {
            ended,
            since: now,
            number,
        };
        state.kept.insert(of, kept);
        state.clear(now);
    }

    /// For those who bring jobs to their ends.
    pub(crate) fn jobs_may_end(&self) -> Arc<JobsMayEnd> {
        Arc::new(JobsMayEnd(self.clone()))
    }

    /// Waits for the end of a job.
    pub(crate) async fn wait(&self, visible: &Visible, id: &str, within: Duration) -> Waited {
        let receiver = {
            let mut state = lock(&self.0);
            state.clear(Instant::now());
            if let Some(ended) = state.find(visible, id) {
                return Waited::Ended(ended.clone());
            }
            if state.is_over {
                return Waited::Over;
            }
            let (sender, receiver) = oneshot::channel();
            let waiting = state.waiting.entry(id.to_owned()).or_default();
            waiting.retain(|other| !other.sender.is_closed());
            let visible = visible.clone();
            waiting.push(Waiting { visible, sender });
            receiver
        };
        let ended = timeout(within, receiver).await;
        if ended.is_err() {
            let mut state = lock(&self.0);
            if let Some(waiting) = state.waiting.get_mut(id) {
                waiting.retain(|other| !other.sender.is_closed());
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
    /// The newest one.
    fn find(&self, visible: &Visible, id: &str) -> Option<&Ended> {
        let mut pipelines = self.pipelines.get(id)?.iter().rev();
        let pipeline = pipelines.find(|pipeline| visible.has(pipeline))?.clone();
        let id = id.to_owned();
        Some(&self.kept.get(&ResultKey { pipeline, id })?.ended)
    }

    fn forget(&mut self, of: &ResultKey) {
        if let Some(kept) = self.kept.remove(of) {
            self.shares.remove(&of.pipeline, kept.number);
            self.order.remove(&kept.number);
        }
        if let Some(pipelines) = self.pipelines.get_mut(&of.id) {
            pipelines.retain(|it| *it != of.pipeline);
            if pipelines.is_empty() {
                self.pipelines.remove(&of.id);
            }
        }
    }

    fn clear(&mut self, now: Instant) {
        let is_old = |of: &ResultKey| {
            let kept = self.kept.get(of);
            kept.is_none_or(|kept| now.saturating_duration_since(kept.since) >= KEPT)
        };
        let mut gone: Vec<_> = self
            .order
            .values()
            .take_while(|of| is_old(of))
            .cloned()
            .collect();
        loop {
            for of in gone.drain(..) {
                self.forget(&of);
            }
            let first = self.shares.first_to_go(MOST, MOST_BYTES);
            let Some(of) = first.and_then(|number| self.order.get(&number)) else {
                return;
            };
            gone.push(of.clone());
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

/// For tests.
#[cfg(test)]
pub(crate) static EVERY_PIPELINE: Visible = Visible(None);

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
        results.keep("p", "a", result("1"));
        drop(other);
        assert_eq!(
            results.wait(&EVERY_PIPELINE, "b", Duration::ZERO).await,
            Waited::NotYet
        );
        let ending = async { drop(one) };
        let (waited, ()) = tokio::join!(
            results.wait(&EVERY_PIPELINE, "b", Duration::from_mins(1)),
            ending
        );
        assert_eq!(waited, Waited::Over);
        assert_eq!(
            results
                .wait(&EVERY_PIPELINE, "b", Duration::from_mins(1))
                .await,
            Waited::Over
        );
        assert_eq!(
            results.wait(&EVERY_PIPELINE, "a", Duration::ZERO).await,
            done("1")
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_result_is_there_before_and_after_somebody_waits() {
        let results = Results::default();
        let second = Duration::from_secs(1);
        assert_eq!(
            results.wait(&EVERY_PIPELINE, "a", second).await,
            Waited::NotYet
        );
        assert!(lock(&results.0).waiting.is_empty());
        let keeping = async {
            tokio::time::sleep(second).await;
            results.keep("p", "a", result("1"));
        };
        let (waited, ()) = tokio::join!(results.wait(&EVERY_PIPELINE, "a", 10 * second), keeping);
        assert_eq!(waited, done("1"));
        assert_eq!(results.wait(&EVERY_PIPELINE, "a", second).await, done("1"));
        results.keep("p", "a", Ended::Failed("no".into()));
        assert_eq!(
            results.wait(&EVERY_PIPELINE, "a", second).await,
            Waited::Ended(Ended::Failed("no".into()))
        );
        tokio::time::sleep(KEPT).await;
        assert_eq!(
            results.wait(&EVERY_PIPELINE, "a", second).await,
            Waited::NotYet
        );
        assert_eq!(lock(&results.0).shares.bytes(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn so_many_are_kept_and_the_oldest_go() {
        let results = Results::default();
        for number in 0..=MOST {
            results.keep("p", &number.to_string(), result("x"));
        }
        assert_eq!(
            results.wait(&EVERY_PIPELINE, "0", Duration::ZERO).await,
            Waited::NotYet
        );
        assert_eq!(
            results.wait(&EVERY_PIPELINE, "1", Duration::ZERO).await,
            done("x")
        );
        assert_eq!(lock(&results.0).shares.bytes(), MOST as u64);
    }

    #[tokio::test(start_paused = true)]
    async fn a_pipeline_that_has_too_many_loses_its_own() {
        let results = Results::default();
        let now = Duration::ZERO;
        results.keep("good", "mine", result("mine"));
        let large = "x".repeat(LONGEST);
        for number in 0..70 {
            results.keep("evil", &number.to_string(), result(&large));
        }
        assert_eq!(
            results.wait(&EVERY_PIPELINE, "mine", now).await,
            done("mine")
        );
        for number in 0..2 * MOST {
            results.keep("evil", &number.to_string(), result(""));
        }
        assert_eq!(
            results.wait(&EVERY_PIPELINE, "mine", now).await,
            done("mine")
        );
        let last = (2 * MOST - 1).to_string();
        assert_eq!(results.wait(&EVERY_PIPELINE, &last, now).await, done(""));
        assert_eq!(lock(&results.0).kept.len(), MOST);
    }

    #[tokio::test(start_paused = true)]
    async fn a_job_of_another_pipeline_is_none_of_ones_own() {
        let results = Results::default();
        let visible = Visible::of(HashSet::from(["mine".to_owned()]));
        let minute = Duration::from_mins(1);
        results.keep("theirs", "a", result("forged"));
        assert_eq!(
            results.wait(&visible, "a", Duration::ZERO).await,
            Waited::NotYet
        );
        let ending = async {
            results.keep("theirs", "a", result("forged again"));
            results.keep("mine", "a", result("1"));
            results.keep("theirs", "a", result("forged at last"));
        };
        let (waited, ()) = tokio::join!(results.wait(&visible, "a", minute), ending);
        assert_eq!(waited, done("1"));
        assert_eq!(results.wait(&visible, "a", Duration::ZERO).await, done("1"));
        let all = Visible::default();
        let newest = results.wait(&all, "a", Duration::ZERO).await;
        assert_eq!(newest, done("forged at last"));
        tokio::time::sleep(KEPT).await;
        assert_eq!(
            results.wait(&all, "a", Duration::ZERO).await,
            Waited::NotYet
        );
        let state = lock(&results.0);
        assert!(state.shares.bytes() == 0 && state.pipelines.is_empty() && state.order.is_empty());
    }
}
