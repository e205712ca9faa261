//! What came of jobs, for those who wait for it. In memory: who waits is connected, and a server
//! that starts anew has nobody who waits.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
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
/// The bounds of results that are kept. The pipeline that has the most loses its oldest.
const MOST: usize = 10_000;
const MOST_BYTES: u64 = 64 << 20;
/// Jobs whose results are to come that are known. Of the pipeline that has the most, the oldest are
/// not known any more.
pub(crate) const MOST_EXPECTED: usize = if cfg!(test) { 100 } else { 100_000 };
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
    kept: HashMap<ResultKey, KeptResult>,
    /// By IDs, the pipelines whose jobs of that ID have one.
    pipelines: HashMap<String, Vec<String>>,
    /// By their numbers, which are in the order of time.
    order: BTreeMap<u64, ResultKey>,
    number: u64,
    shares: Shares,
    expected: Expected,
    waiting: HashMap<String, Vec<Waiting>>,
    /// No job ends here any more.
    is_over: bool,
}

#[derive(Debug)]
struct KeptResult {
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
    sender: oneshot::Sender<Waited>,
}

/// Jobs that wait or run, and whose results are to be kept: by their IDs, their pipelines and
/// numbers.
#[derive(Debug, Default)]
struct Expected {
    by_id: HashMap<String, Vec<(String, u64)>>,
    /// By their numbers.
    order: BTreeMap<u64, ResultKey>,
    shares: Shares,
    number: u64,
}

impl Expected {
    fn has(&self, of: &ResultKey) -> bool {
        let all = self.by_id.get(&of.id);
        all.is_some_and(|all| all.iter().any(|(pipeline, _)| *pipeline == of.pipeline))
    }

    fn add(&mut self, of: ResultKey) {
        if self.has(&of) {
            return;
        }
        self.number += 1;
        let all = self.by_id.entry(of.id.clone()).or_default();
        all.push((of.pipeline.clone(), self.number));
        self.shares.add(&of.pipeline, self.number, 0);
        self.order.insert(self.number, of);
        let first = self.shares.first_to_go(MOST_EXPECTED, 0);
        if let Some(gone) = first.and_then(|number| self.order.get(&number)) {
            self.remove(&gone.clone());
        }
    }

    fn remove(&mut self, of: &ResultKey) {
        let Some(all) = self.by_id.get_mut(&of.id) else {
            return;
        };
        let Some(at) = all
            .iter()
            .position(|(pipeline, _)| *pipeline == of.pipeline)
        else {
            return;
        };
        let (_, number) = all.remove(at);
        if all.is_empty() {
            self.by_id.remove(&of.id);
        }
        self.order.remove(&number);
        self.shares.remove(&of.pipeline, number);
    }
}

/// The pipelines whose jobs somebody may see.
#[derive(Clone, Debug, Default)]
pub(crate) struct Visible(Option<Arc<HashSet<String>>>);

impl Visible {
    /// None but these.
    pub(crate) fn of(pipelines: HashSet<String>) -> Self {
        Self(Some(Arc::new(pipelines)))
    }

    /// The one of this name, if it is among these.
    pub(crate) fn only(&self, pipeline: &str) -> Self {
        let it = Some(pipeline).filter(|it| self.has(it));
        Self::of(it.map(ToOwned::to_owned).into_iter().collect())
    }

    pub(crate) fn has(&self, pipeline: &str) -> bool {
        self.0.as_ref().is_none_or(|all| all.contains(pipeline))
    }
}

/// The outcome of waiting for a job's end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Waited {
    Ended(Ended),
    /// Jobs of these pipelines have the ID, and each may have chosen it.
    Ambiguous(Vec<String>),
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
        let kept = KeptResult {
            ended,
            since: now,
            number,
        };
        state.kept.insert(of.clone(), kept);
        state.expected.remove(&of);
        let all = state.waiting.remove(id).unwrap_or_default();
        let (told, others): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|it| it.visible.has(pipeline));
        for waiting in told {
            if let Some(found) = state.find(&waiting.visible, id) {
                // Who does not wait any more may ask again.
                _ = waiting.sender.send(found);
            }
        }
        if !others.is_empty() {
            state.waiting.insert(id.to_owned(), others);
        }
        state.clear(now);
    }

    /// A job is pushed or begins whose result is to be kept.
    pub(crate) fn expect(&self, pipeline: &str, id: &str) {
        let (pipeline, id) = (pipeline.to_owned(), id.to_owned());
        lock(&self.0).expected.add(ResultKey { pipeline, id });
    }

    /// The pipelines of which a job of this ID has a result, or is to have one.
    pub(crate) fn pipelines_of(&self, visible: &Visible, id: &str) -> BTreeSet<String> {
        lock(&self.0)
            .known(visible, id)
            .into_iter()
            .cloned()
            .collect()
    }

    /// It was not pushed.
    pub(crate) fn expect_no_more(&self, pipeline: &str, id: &str) {
        let (pipeline, id) = (pipeline.to_owned(), id.to_owned());
        lock(&self.0).expected.remove(&ResultKey { pipeline, id });
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
            if let Some(found) = state.find(visible, id) {
                return found;
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
            Ok(Ok(found)) => found,
            Ok(Err(_)) => Waited::Over,
            Err(_) => Waited::NotYet,
        }
    }
}

impl State {
    /// The end of the job of this ID, if it is known. Where jobs of several pipelines have it,
    /// nobody can say which one is meant: it is no answer that one of them has ended.
    fn find(&self, visible: &Visible, id: &str) -> Option<Waited> {
        let mut all = self.known(visible, id).into_iter();
        let pipeline = all.next()?;
        let others: Vec<_> = all.cloned().collect();
        if !others.is_empty() {
            let all = std::iter::once(pipeline.clone()).chain(others);
            return Some(Waited::Ambiguous(all.collect()));
        }
        let of = ResultKey {
            pipeline: pipeline.clone(),
            id: id.to_owned(),
        };
        Some(Waited::Ended(self.kept.get(&of)?.ended.clone()))
    }

    fn known(&self, visible: &Visible, id: &str) -> BTreeSet<&String> {
        let kept = self.pipelines.get(id).into_iter().flatten();
        let expected = self.expected.by_id.get(id).into_iter().flatten();
        let all = kept.chain(expected.map(|(pipeline, _)| pipeline));
        all.filter(|it| visible.has(it)).collect()
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

    /// Whichever ends first.
    #[tokio::test(start_paused = true)]
    async fn a_job_does_not_answer_for_one_of_another_pipeline_that_is_to_end() {
        let results = Results::default();
        results.expect("good", "a");
        let forging = async {
            results.expect("evil", "a");
            results.keep("evil", "a", result("forged"));
        };
        let minute = Duration::from_mins(1);
        let (waited, ()) = tokio::join!(results.wait(&EVERY_PIPELINE, "a", minute), forging);
        let both = Waited::Ambiguous(vec!["evil".to_owned(), "good".to_owned()]);
        assert_eq!(waited, both);
        assert_eq!(results.wait(&EVERY_PIPELINE, "a", minute).await, both);
        let good = EVERY_PIPELINE.only("good");
        let ending = async { results.keep("good", "a", result("1")) };
        let (waited, ()) = tokio::join!(results.wait(&good, "a", minute), ending);
        assert_eq!(waited, done("1"));
        assert_eq!(results.wait(&EVERY_PIPELINE, "a", minute).await, both);
        // One that was not pushed is not to end; nor does one pipeline push out what others have.
        results.expect("good", "b");
        results.expect("evil", "c");
        results.expect_no_more("evil", "c");
        for number in 0..2 * MOST_EXPECTED {
            results.expect("evil", &number.to_string());
        }
        results.keep("evil", "b", result("forged"));
        let waited = results.wait(&EVERY_PIPELINE, "b", minute).await;
        assert!(matches!(waited, Waited::Ambiguous(_)), "{waited:?}");
        let state = lock(&results.0);
        assert_eq!(state.expected.order.len(), MOST_EXPECTED);
        assert_eq!(state.expected.by_id.len(), MOST_EXPECTED);
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
        let both = Waited::Ambiguous(vec!["mine".to_owned(), "theirs".to_owned()]);
        assert_eq!(results.wait(&all, "a", Duration::ZERO).await, both);
        let mine = all.only("mine");
        assert_eq!(results.wait(&mine, "a", Duration::ZERO).await, done("1"));
        let none = visible.only("theirs");
        assert_eq!(
            results.wait(&none, "a", Duration::ZERO).await,
            Waited::NotYet
        );
        tokio::time::sleep(KEPT).await;
        assert_eq!(
            results.wait(&all, "a", Duration::ZERO).await,
            Waited::NotYet
        );
        let state = lock(&results.0);
        assert!(state.shares.bytes() == 0 && state.pipelines.is_empty() && state.order.is_empty());
    }
}
