//! What jobs came to lately, for somebody who looks on. Nothing is noted while nobody does.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pronghorn_base::{lock, now_ms};
use serde::Serialize;
use tokio::time::Instant;

use crate::shares::Shares;

/// Endings that wait to be shown. The pipeline that has the most loses its oldest.
const MOST: usize = 1000;
/// Of a reason.
const LONGEST_REASON: usize = 200;
/// Who looks on asks again sooner than that.
const LOOKS_ON: Duration = Duration::from_secs(10);

/// Clones are the same ones.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recent(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    is_seen: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    asked: Option<Instant>,
    number: u64,
    /// By their numbers.
    endings: BTreeMap<u64, Ending>,
    shares: Shares,
}

/// How an attempt ended.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Ending {
    /// Rises.
    pub(crate) number: u64,
    /// Milliseconds since 1970.
    pub(crate) at: u64,
    pub(crate) pipeline: String,
    pub(crate) id: String,
    pub(crate) job: String,
    pub(crate) attempt: u32,
    pub(crate) outcome: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) why: Option<String>,
}

impl Recent {
    /// Notes an ending, if somebody looks on. The number and the time are set here.
    pub(crate) fn note(&self, ending: impl FnOnce() -> Ending) {
        if !self.0.is_seen.load(Ordering::Relaxed) {
            return;
        }
        let mut state = lock(&self.0.state);
        if state.asked.is_none_or(|asked| asked.elapsed() > LOOKS_ON) {
            self.0.is_seen.store(false, Ordering::Relaxed);
            state.endings.clear();
            state.shares = Shares::default();
            return;
        }
        state.number += 1;
        let ending = Ending {
            number: state.number,
            at: now_ms(),
            ..ending()
        };
        let why = ending.why.map(|why| {
            let first = why.lines().next().unwrap_or_default();
            first.chars().take(LONGEST_REASON).collect()
        });
        let (number, ending) = (ending.number, Ending { why, ..ending });
        state.shares.add(&ending.pipeline, number, 0);
        state.endings.insert(number, ending);
        if let Some(first) = state.shares.first_to_go(MOST, 0)
            && let Some(gone) = state.endings.remove(&first)
        {
            state.shares.remove(&gone.pipeline, first);
        }
    }

    /// Those behind a number, and the number of the last one so far.
    pub(crate) fn behind(&self, number: u64) -> (Vec<Ending>, u64) {
        let mut state = lock(&self.0.state);
        state.asked = Some(Instant::now());
        self.0.is_seen.store(true, Ordering::Relaxed);
        let new = (Bound::Excluded(number), Bound::Unbounded);
        let new = state.endings.range(new).map(|(_, ending)| ending.clone());
        (new.collect(), state.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(recent: &Recent, id: &str) {
        note_of(recent, "p", id);
    }

    fn note_of(recent: &Recent, pipeline: &str, id: &str) {
        recent.note(|| Ending {
            number: 0,
            at: 0,
            pipeline: pipeline.to_owned(),
            id: id.to_owned(),
            job: "j".to_owned(),
            attempt: 1,
            outcome: "failed",
            why: Some("first\nsecond".to_owned()),
        });
    }

    #[tokio::test(start_paused = true)]
    async fn endings_are_noted_while_somebody_looks_on() {
        let recent = Recent::default();
        note(&recent, "unseen");
        assert_eq!(recent.behind(0).1, 0);
        for number in 0..=MOST {
            note(&recent, &number.to_string());
        }
        let (all, last) = recent.behind(0);
        assert_eq!((all.len(), &*all[0].id, last), (MOST, "1", 1001));
        assert_eq!(all[0].why.as_deref(), Some("first"));
        assert_eq!(recent.behind(1000).0.len(), 1);
        note_of(&recent, "q", "of another pipeline");
        for number in 0..=MOST {
            note(&recent, &number.to_string());
        }
        assert!(recent.behind(0).0.iter().any(|it| it.pipeline == "q"));
        tokio::time::advance(2 * LOOKS_ON).await;
        note(&recent, "unseen");
        note(&recent, "unseen");
        assert!(recent.behind(0).0.is_empty());
    }
}
