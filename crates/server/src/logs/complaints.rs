//! What the logs say about themselves, on standard error: where else, when an output fails.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use pronghorn_base::lock;

use super::host::{Clock, Host};

/// A full disk fails thousands of times a second.
const AT_MOST_EVERY: Duration = Duration::from_secs(60);

/// Of one output.
pub(super) struct Complaints {
    output: String,
    clock: Clock,
    say: Arc<dyn Fn(&str) + Send + Sync>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Not told yet.
    lost: usize,
    why: String,
    loss_told: Option<SystemTime>,
    trouble_told: Option<SystemTime>,
}

impl Complaints {
    pub(super) fn new(output: &str, host: &Host) -> Self {
        Self {
            output: output.to_owned(),
            clock: host.clock.clone(),
            say: host.complain.clone(),
            state: Mutex::default(),
        }
    }

    /// Records could not be written: told at once, then once a minute with their number.
    pub(super) fn lost(&self, records: usize, why: &io::Error) {
        let mut state = lock(&self.state);
        state.lost += records;
        state.why = why.to_string();
        if is_due(&mut state.loss_told, (self.clock)()) {
            self.tell(&mut state);
        }
    }

    /// Tells what has not been told, since nothing more will come.
    pub(super) fn finish(&self) {
        self.tell(&mut lock(&self.state));
    }

    /// Something else went wrong, and no record was lost by it.
    pub(super) fn trouble(&self, what: &str) {
        let mut state = lock(&self.state);
        if is_due(&mut state.trouble_told, (self.clock)()) {
            (self.say)(what);
        }
    }

    fn tell(&self, state: &mut State) {
        let records = match std::mem::take(&mut state.lost) {
            0 => return,
            1 => "1 log record".to_owned(),
            n => format!("{n} log records"),
        };
        (self.say)(&format!(
            "error: {records} lost: cannot write to {}: {}",
            self.output, state.why
        ));
    }
}

/// A clock that was set back is no reason to be silent.
fn is_due(last: &mut Option<SystemTime>, now: SystemTime) -> bool {
    let due = last.is_none_or(|last| {
        now.duration_since(last)
            .map_or(true, |since| since >= AT_MOST_EVERY)
    });
    if due {
        *last = Some(now);
    }
    due
}
