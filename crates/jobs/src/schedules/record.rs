//! What is kept of a schedule.

use pronghorn_base::now_ms;
use pronghorn_store::Tree;
use serde::{Deserialize, Serialize};

use crate::results::Ended;

pub(super) const TREE: Tree = Tree::new("jobs.schedules");

/// Runs that are kept, the newest last.
const MOST: usize = 20;
/// Of a reason.
const LONGEST_REASON: usize = 500;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Record {
    pub(super) paused: bool,
    /// When the last run was due that was begun or missed, in milliseconds since 1970; at first,
    /// when the schedule was seen with this pattern.
    pub(super) last_due: Option<u64>,
    /// When it is due, as the configuration had it then. Empty: a release before has not said.
    pub(super) pattern: String,
    pub(super) runs: Vec<Run>,
}

/// One run. All times are milliseconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Run {
    pub(crate) id: String,
    pub(crate) due: u64,
    pub(crate) began: u64,
    #[serde(default)]
    pub(crate) ended: Option<u64>,
    #[serde(default)]
    pub(crate) outcome: Option<Outcome>,
    /// The last lines of a command.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) lines: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Outcome {
    Done,
    Failed(String),
    /// The server ended before it did; its job may run again.
    BrokenOff,
    /// Its job is with a broker, and another server may have run it: its end was not seen here.
    Pushed,
}

impl Outcome {
    /// As metrics have it.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Failed(_) => "failed",
            Self::BrokenOff => "broken_off",
            Self::Pushed => "pushed",
        }
    }
}

impl From<Ended> for Outcome {
    fn from(ended: Ended) -> Self {
        match ended {
            Ended::Done(_) => Self::Done,
            Ended::Failed(why) => Self::Failed(why.full().to_owned()),
        }
    }
}

impl Record {
    pub(super) fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("texts and numbers are JSON")
    }

    /// What somebody else has written is as if there was nothing.
    pub(super) fn decode(bytes: &[u8]) -> Self {
        serde_json::from_slice(bytes).unwrap_or_default()
    }

    /// It is in the configuration, with this pattern: what others would have been due for was not
    /// missed. Whether that is new.
    pub(super) fn see(&mut self, pattern: &str, now: u64) -> bool {
        let (is_known, is_same) = (!self.pattern.is_empty(), self.pattern == pattern);
        let is_new = self.last_due.is_none() || (is_known && !is_same);
        if is_new {
            self.last_due = Some(now);
        }
        pattern.clone_into(&mut self.pattern);
        is_new || !is_same
    }

    /// It is not in the configuration any more. Whether that is new.
    pub(super) fn is_gone(&mut self) -> bool {
        self.last_due.take().is_some()
    }

    /// Of runs that were under way when the server ended, nobody hears the end.
    pub(super) fn break_off(&mut self) {
        for run in self.runs.iter_mut().filter(|run| run.outcome.is_none()) {
            run.outcome = Some(Outcome::BrokenOff);
        }
    }

    /// Another process may know the ends of runs that are under way here.
    pub(super) fn learn(&mut self, other: &Self) {
        for run in self.runs.iter_mut().filter(|run| run.outcome.is_none()) {
            if let Some(known) = other.runs.iter().find(|it| it.id == run.id) {
                run.clone_from(known);
            }
        }
    }

    /// Runs whose ends are not known.
    pub(super) fn under_way(&self) -> impl Iterator<Item = &Run> {
        self.runs.iter().filter(|run| run.outcome.is_none())
    }

    /// The run of this ID, while it is under way.
    pub(super) fn is_under_way(&self, id: &str) -> bool {
        self.runs
            .iter()
            .any(|run| run.id == id && run.outcome.is_none())
    }

    /// Runs that were due until then have begun, or are left out.
    pub(super) fn has_seen(&mut self, until: u64) {
        self.last_due = self.last_due.max(Some(until));
    }

    pub(super) fn begin(&mut self, due: u64, id: &str) {
        self.has_seen(due);
        self.runs.push(Run {
            id: id.to_owned(),
            due,
            began: now_ms(),
            ended: None,
            outcome: None,
            lines: Vec::new(),
        });
        let beyond = self.runs.len().saturating_sub(MOST);
        self.runs.drain(..beyond);
    }

    pub(super) fn end(&mut self, due: u64, id: &str, outcome: Outcome, lines: Vec<String>) {
        let outcome = match outcome {
            Outcome::Failed(why) => Outcome::Failed(why.chars().take(LONGEST_REASON).collect()),
            other => other,
        };
        if !self.runs.iter().any(|run| run.id == id) {
            self.begin(due, id);
        }
        if let Some(run) = self.runs.iter_mut().rev().find(|run| run.id == id) {
            run.ended = Some(now_ms());
            run.outcome = Some(outcome);
            run.lines = lines;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missed_counts_from_the_moment_at_which_a_pattern_was_seen() {
        let mut record = Record::default();
        assert!(record.see("daily", 5));
        assert_eq!(record.last_due, Some(5));
        record.begin(7, "a");
        assert!(!record.see("daily", 9));
        assert_eq!(record.last_due, Some(7));
        assert!(record.see("hourly", 10));
        assert_eq!(record.last_due, Some(10));
        assert!(record.is_gone() && !record.is_gone());
        assert!(record.see("hourly", 20), "it is back");
        assert_eq!(record.last_due, Some(20));
        // A release before has kept no pattern.
        let mut before = Record {
            last_due: Some(3),
            ..Record::default()
        };
        assert!(before.see("daily", 9));
        assert_eq!(before.last_due, Some(3));
    }

    #[test]
    fn so_many_runs_are_kept_and_read_again() {
        let mut record = Record::default();
        for due in 0..30 {
            let id = due.to_string();
            record.begin(due, &id);
            if due != 29 {
                record.end(due, &id, Outcome::Failed("x".repeat(1000)), Vec::new());
            }
        }
        let mut read = Record::decode(&record.encode());
        assert_eq!(read, record);
        assert_eq!((read.runs.len(), read.last_due), (MOST, Some(29)));
        let mut other = read.clone();
        assert!(other.is_under_way("29") && !other.is_under_way("28"));
        read.break_off();
        assert_eq!(read.runs[MOST - 1].outcome, Some(Outcome::BrokenOff));
        other.learn(&read);
        assert_eq!(other, read);
        let Some(Outcome::Failed(why)) = &read.runs[0].outcome else {
            panic!("it failed");
        };
        assert_eq!(why.len(), LONGEST_REASON);
        assert_eq!(Record::decode(b"\xff"), Record::default());
    }
}
