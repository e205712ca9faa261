//! What becomes of a job after an attempt.

use bytes::Bytes;
use pronghorn_queue::{Job, Settlement, options};

use super::Outcome;
use crate::messages::{MOST_HEADERS, header_size};
use crate::metrics::{OutcomeLabel, Verdict};
use crate::reason::Reason;
use crate::reply::{self, Answered, Wish};
use crate::results::{Dropped, Ended, LONGEST};
use crate::rules::Retry;

/// What becomes of a job, for its pipeline, the log and those who wait for it.
pub(super) struct Judged {
    pub(super) settlement: Settlement,
    pub(super) verdict: Option<Verdict>,
    /// Why it is not done, or what is odd about it: a line.
    pub(super) remark: Option<String>,
    /// It does not run any more.
    pub(super) end: Option<End>,
}

/// How a job ends for good.
pub(super) enum End {
    Done(Bytes),
    /// It is done, and its result is dropped; why.
    DoneWithout(Reason),
    /// It is a dead letter; why.
    GivenUp(Reason),
    Dropped(Dropped),
}

impl End {
    /// For its batch.
    pub(super) const fn has_failed(&self) -> bool {
        !matches!(self, Self::Done(_) | Self::DoneWithout(_))
    }
}

impl From<End> for Ended {
    fn from(end: End) -> Self {
        match end {
            End::Done(result) => Self::Done(result),
            End::DoneWithout(why) | End::GivenUp(why) => Self::Failed(why),
            End::Dropped(why) => why.into(),
        }
    }
}

/// Why a result is dropped that has so many bytes.
pub(super) fn too_long(len: u64) -> String {
    format!("its result has {len} bytes; at most {LONGEST} are kept")
}

/// Keeps the result of a job, unless it is too long.
fn done(result: Bytes) -> End {
    if result.len() > LONGEST {
        return without(&too_long(result.len() as u64));
    }
    End::Done(result)
}

fn without(why: &str) -> End {
    End::DoneWithout(format!("the job is done, but {why}").into())
}

/// Judges an attempt. The job has ended if `is_last`, as it has left its pipeline.
pub(super) fn judge(job: &Job, retry: &Retry, outcome: Outcome, is_last: bool) -> Judged {
    let (answered, trace) = match outcome {
        Outcome::Answered(body) => (reply::read(&body), None),
        Outcome::Replied(said, body) => (reply::of(said, &body), None),
        Outcome::NotTaken(why) if is_last => {
            let why = format!("it counted as done, and no worker has brought it to its end: {why}");
            return Judged::given_up(why);
        }
        Outcome::NotTaken(why) => {
            tracing::debug!(target: "jobs", id = job.id, "given back: {why}");
            return Judged::quietly(Settlement::Release, None);
        }
        Outcome::NotBegun if is_last => {
            let why = "it counted as done, and no worker has begun it";
            return Judged::given_up(why.to_owned());
        }
        Outcome::NotBegun => return Judged::quietly(Settlement::Release, None),
        Outcome::Dropped(why) => {
            return Judged::quietly(Settlement::Ack, Some(End::Dropped(why)));
        }
        Outcome::Reported(Reason { message, trace }) | Outcome::Lost(Reason { message, trace }) => {
            let failed = Answered {
                wish: Wish::Failed { delay: None },
                verdict: Verdict::Failed,
                remark: Some(message),
            };
            (failed, trace)
        }
    };
    let Answered {
        wish,
        verdict,
        remark,
    } = with_few_headers(answered, job);
    let reason = remark.map(|message| match trace {
        Some(_) => Reason { message, trace },
        None => Reason::reported(message),
    });
    let why = || reason.clone().unwrap_or_default();
    let attempts = job.attempts.saturating_add(1);
    let (settlement, end) = match wish {
        Wish::Done(result) => (Settlement::Ack, Some(done(result))),
        Wish::DoneWithout(why) => (Settlement::Ack, Some(without(&why))),
        Wish::Settle(_) | Wish::Failed { .. } if is_last => {
            let why = "its handler wants it again, and it counts as done since it began";
            let why = reason.clone().unwrap_or_else(|| why.to_owned().into());
            (Settlement::Reject, Some(End::GivenUp(why)))
        }
        Wish::Settle(settlement) => (not_at_once_for_ever(settlement, job), None),
        Wish::GiveUp => (Settlement::Reject, Some(End::GivenUp(why()))),
        Wish::Failed { delay } => match retry.after(attempts, retry.most_attempts(job)) {
            Some(by_rule) => {
                let delay = delay.unwrap_or(by_rule);
                (Settlement::Failed { delay }, None)
            }
            None => {
                let no_more = "its handler wants it again, and it has no attempt left";
                let why = reason.clone().unwrap_or_else(|| no_more.to_owned().into());
                (Settlement::Reject, Some(End::GivenUp(why)))
            }
        },
    };
    let remark = match &end {
        Some(End::DoneWithout(why) | End::GivenUp(why)) => Some(why),
        _ => reason.as_ref(),
    };
    Judged {
        settlement,
        verdict: Some(verdict),
        remark: remark.map(|reason| reason.brief().to_owned()),
        end,
    }
}

/// A requeue may not give a job more headers than a push may: such an attempt has failed, and the
/// job keeps the headers that it had.
fn with_few_headers(answered: Answered, job: &Job) -> Answered {
    let Wish::Settle(Settlement::Requeue { headers, delay }) = &answered.wish else {
        return answered;
    };
    let mut all = job.headers.clone();
    all.extend(headers.clone());
    let bytes = all.iter().map(|(name, values)| header_size(name, values));
    let bytes: usize = bytes.sum();
    if headers.is_empty() || bytes <= MOST_HEADERS {
        return answered;
    }
    let why = format!(
        "its handler wants it again with {bytes} bytes of headers; at most {MOST_HEADERS} are taken"
    );
    Answered {
        wish: Wish::Failed {
            delay: Some(*delay).filter(|delay| !delay.is_zero()),
        },
        verdict: Verdict::Failed,
        remark: Some(match answered.remark {
            Some(said) => format!("{why}: {said}"),
            None => why,
        }),
    }
}

/// A handler that wants its job again and does not say when would have it at once, and again: a
/// job that nobody can do must not keep a worker busy.
fn not_at_once_for_ever(settlement: Settlement, job: &Job) -> Settlement {
    match settlement {
        Settlement::Requeue { mut headers, delay } if delay.is_zero() => {
            let (delay, (name, times)) = options::requeued(&job.headers);
            headers.insert(name, times);
            Settlement::Requeue { headers, delay }
        }
        other => other,
    }
}

impl Judged {
    /// In a word.
    pub(super) fn label(&self) -> OutcomeLabel {
        match (&self.end, self.verdict) {
            (Some(End::Done(_) | End::DoneWithout(_)), _) => OutcomeLabel::Done,
            (Some(End::GivenUp(_)), _) => OutcomeLabel::GivenUp,
            (Some(End::Dropped(why)), _) => why.label(),
            (None, Some(Verdict::Failed)) => OutcomeLabel::Failed,
            (None, Some(_)) => OutcomeLabel::Again,
            (None, None) => OutcomeLabel::NotTaken,
        }
    }

    fn given_up(why: String) -> Self {
        Self {
            settlement: Settlement::Reject,
            verdict: Some(Verdict::Failed),
            remark: Some(why.clone()),
            end: Some(End::GivenUp(why.into())),
        }
    }

    fn quietly(settlement: Settlement, end: Option<End>) -> Self {
        Self {
            settlement,
            verdict: None,
            remark: None,
            end,
        }
    }
}
