//! What the time of one request was spent on, and which worker had it: for records, for lines of
//! the access log, for `Server-Timing`.

use std::fmt::Write;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use pronghorn_base::micros;
use pronghorn_pool::{Stamps, Taker};
use pronghorn_serve::{AnsweredBy, Split};
use pronghorn_wire::native::Spent;

use crate::phases::Phases;

/// What becomes known of a call while a worker has it. Written by the relay, read when the response
/// is out.
#[derive(Debug, Default)]
pub(crate) struct Known {
    /// 0: no worker that has a process.
    pid: AtomicU32,
    /// Twice the number, and one for a retry; 0: none yet.
    nth: AtomicU64,
    /// Microseconds, and one; 0 where nobody has said it.
    cpu: AtomicU32,
    blocked: AtomicU32,
}

impl Known {
    pub(crate) fn taken(&self, by: Taker) {
        self.pid.store(by.pid, Relaxed);
        self.nth.store(2 * by.nth + u64::from(by.is_retry), Relaxed);
    }

    pub(crate) fn spent(&self, spent: Spent) {
        let noted = |time: Duration| {
            let micros = u32::try_from(time.as_micros()).unwrap_or(u32::MAX);
            micros.saturating_add(1)
        };
        self.cpu.store(noted(spent.cpu), Relaxed);
        self.blocked.store(noted(spent.blocked), Relaxed);
    }

    /// Of the worker that has the call, or had it last.
    pub(crate) fn pid(&self) -> Option<u32> {
        Some(self.pid.load(Relaxed)).filter(|pid| *pid != 0)
    }

    fn worker(&self) -> Option<AnsweredBy> {
        let nth = self.nth.load(Relaxed);
        (nth > 0).then(|| AnsweredBy {
            pid: self.pid.load(Relaxed),
            nth: nth / 2,
            is_retry: nth % 2 == 1,
        })
    }

    fn time_spent(&self) -> Option<Spent> {
        let told = |word: &AtomicU32| {
            let micros = word.load(Relaxed).checked_sub(1)?;
            Some(Duration::from_micros(micros.into()))
        };
        Some(Spent {
            cpu: told(&self.cpu)?,
            blocked: told(&self.blocked)?,
        })
    }

    /// The parts of the time of a response that was out so long after its request was accepted, or
    /// begins then.
    pub(crate) fn split(&self, stamps: &Stamps, sent: Duration) -> Split {
        let phases = Phases::of(stamps, micros(sent));
        let time = Duration::from_micros;
        Split {
            read: time(phases.read),
            queue: time(phases.queue),
            worker: phases.worker.map(time),
            write: time(phases.write),
            spent: self.time_spent(),
            answered_by: self.worker(),
        }
    }
}

/// The value of `Server-Timing`: what is known when the response begins, in milliseconds.
pub(crate) fn server_timing(split: &Split) -> String {
    let mut value = String::with_capacity(96);
    let mut add = |name: &str, time: Option<Duration>| {
        if let Some(time) = time {
            let comma = if value.is_empty() { "" } else { ", " };
            let millis = time.as_secs_f64() * 1e3;
            _ = write!(value, "{comma}{name};dur={millis:.3}"); // a string takes everything
        }
    };
    add("read", Some(split.read).filter(|time| !time.is_zero()));
    add("queue", Some(split.queue));
    add("php", split.worker);
    add("php-cpu", split.spent.map(|spent| spent.cpu));
    add("php-blocked", split.spent.map(|spent| spent.blocked));
    value
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    const TAKER: Taker = Taker {
        hears: true,
        pid: 12,
        nth: 3,
        is_retry: true,
    };

    #[test]
    fn what_nobody_has_said_is_not_known() {
        let known = Known::default();
        assert_eq!((known.worker(), known.time_spent()), (None, None));
        known.taken(TAKER);
        let (pid, nth, is_retry) = (12, 3, true);
        let worker = AnsweredBy { pid, nth, is_retry };
        assert_eq!(known.worker(), Some(worker));
        for spent in [
            Spent::default(),
            Spent {
                cpu: Duration::from_micros(7),
                blocked: Duration::from_secs(9),
            },
        ] {
            known.spent(spent);
            assert_eq!(known.time_spent(), Some(spent));
        }
    }

    #[test]
    fn a_client_is_told_in_milliseconds() {
        let known = Known::default();
        let micros = Duration::from_micros;
        let accepted = Instant::now();
        let stamps = Stamps {
            accepted,
            queued: accepted,
            dispatched: Some(accepted + micros(1_500)),
            claimed: None,
            first_byte: None,
            complete: Some(accepted + micros(21_504)),
        };
        let split = || known.split(&stamps, micros(30_000));
        assert_eq!(server_timing(&split()), "queue;dur=1.500, php;dur=20.004");
        known.spent(Spent {
            cpu: micros(20_000),
            blocked: micros(1),
        });
        assert_eq!(
            server_timing(&split()),
            "queue;dur=1.500, php;dur=20.004, php-cpu;dur=20.000, php-blocked;dur=0.001"
        );
        assert_eq!(split().write, micros(8_496));
    }
}
