//! `pronghorn logs`: the newest records for commands that ask, once or as they are made.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use pronghorn_config::Choice as _;
use pronghorn_control::{Answer, LogsWanted, Refusal, Tell};
use tokio::sync::Semaphore;

use crate::logs::Newest;
use crate::settings::Level;

/// Commands that follow at the same time: each looks fifty times a second, and keeps a connection
/// of the control socket.
const FOLLOWERS: usize = 8;
/// How often a follower looks for new records. Who makes them wakes nobody. So soon, the memory for
/// them holds what 100,000 requests a second leave.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Begins the record of a reload after which some keys wait.
pub(crate) const APPLIED_EXCEPT: &str = "the configuration is applied except";
/// Records that the answer to a reload has: a terminal shows as many.
const OF_RELOAD: usize = 20;

/// Who reads the newest records.
#[derive(Debug)]
pub(crate) struct LogReaders {
    newest: Arc<Newest>,
    followers: Semaphore,
}

/// Which records a reader wants.
struct Filter {
    level: Level,
    /// As the JSON of a record has its field.
    request: Option<String>,
}

impl LogReaders {
    pub(crate) fn new(newest: Arc<Newest>) -> Self {
        Self {
            newest,
            followers: Semaphore::new(FOLLOWERS),
        }
    }

    /// The number of the record that is made next.
    pub(crate) fn next(&self) -> u64 {
        self.newest.next()
    }

    /// The first warnings and errors from this number on, without the one that [`Tell::Reloaded`]
    /// has in words of its own.
    pub(crate) fn of_reload(&self, from: u64) -> Vec<String> {
        let is_meant = |(level, json): &(Level, String)| {
            *level >= Level::Warn && !json.contains(APPLIED_EXCEPT)
        };
        let (mut next, until) = (from, self.newest.next());
        let mut meant = Vec::new();
        while next < until && meant.len() < OF_RELOAD {
            let piece = self.newest.read(next);
            next = piece.next;
            meant.extend(piece.records.into_iter().filter(is_meant));
        }
        let meant = meant.into_iter().map(|(_, json)| json);
        meant.take(OF_RELOAD).collect()
    }

    /// Tells the last ones that fit, and goes on, for a follower, until it is dropped.
    pub(crate) async fn tell(&self, wanted: &LogsWanted, answer: &Answer) -> Result<(), Refusal> {
        let filter = Filter::of(wanted)?;
        let place = wanted.follow.then(|| self.followers.try_acquire());
        let _place = place.transpose().map_err(|_| {
            Refusal(format!(
                "{FOLLOWERS} commands follow the log already\nhint: end one of them, or ask \
                 without `--follow`"
            ))
        })?;
        let until = self.newest.next();
        let lines = usize::try_from(wanted.lines).unwrap_or(usize::MAX);
        let mut records = VecDeque::new();
        let mut next = 0;
        while next < until {
            let piece = self.newest.read(next);
            next = piece.next;
            records.extend(filter.of_those(piece.records));
            records.drain(..records.len().saturating_sub(lines));
        }
        let records = records.into();
        answer.tell(Tell::Records { records, lost: 0 }).await;
        if wanted.follow {
            self.follow(next, &filter, answer).await;
        }
        Ok(())
    }

    async fn follow(&self, mut next: u64, filter: &Filter, answer: &Answer) {
        loop {
            let piece = self.newest.read(next);
            let is_behind = piece.next > next;
            next = piece.next;
            let records: Vec<_> = filter.of_those(piece.records).collect();
            let lost = piece.lost;
            if lost > 0 || !records.is_empty() {
                answer.tell(Tell::Records { records, lost }).await;
            }
            if is_behind {
                tokio::task::yield_now().await;
            } else {
                tokio::time::sleep(LOOK_AGAIN).await;
            }
        }
    }
}

impl Filter {
    fn of(wanted: &LogsWanted) -> Result<Self, Refusal> {
        let level = match &wanted.level {
            None => Level::Debug,
            Some(name) => Level::spelled(name)
                .ok_or_else(|| Refusal(format!("there is no level `{}`", name.escape_debug())))?,
        };
        let request = wanted.request.as_ref();
        Ok(Self {
            level,
            request: request.map(|id| format!("\"request_id\":{}", serde_json::Value::from(&**id))),
        })
    }

    fn of_those(&self, records: Vec<(Level, String)>) -> impl Iterator<Item = String> {
        let fits = |(level, json): &(Level, String)| {
            let of_request = |field: &String| json.contains(field);
            *level >= self.level && self.request.as_ref().is_none_or(of_request)
        };
        let fitting = records.into_iter().filter(fits);
        fitting.map(|(_, json)| json)
    }
}
