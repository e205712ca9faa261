//! What went wrong with a worker or a call, for whoever keeps it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use pronghorn_wire::native::Spent;

/// What there is to know of it, at the moment when it is noticed.
#[derive(Debug, Default)]
pub struct Incident {
    pub kind: IncidentKind,
    pub pool: String,
    /// 0: there is no process, or none any more.
    pub pid: u32,
    /// In a few words, the same for the same cause.
    pub cause: String,
    /// All of it, if there is more to say.
    pub text: String,
    /// The call that the worker had, in a few words.
    pub request: Option<String>,
    /// The same at length.
    pub details: Option<Box<CallDetails>>,
    /// How long the worker had had it.
    pub ran: Option<Duration>,
    /// What its time had been spent on.
    pub progress: Option<Progress>,
    /// Whether another worker gets it.
    pub retried: Option<bool>,
    /// The most memory that the worker held, or what it holds; in bytes.
    pub memory: Option<u64>,
    /// Frames of PHP, the innermost first.
    pub stack: Vec<String>,
    /// What the worker said last on stderr.
    pub stderr: Vec<String>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum IncidentKind {
    /// A worker ended, and nobody had asked for it.
    #[default]
    Crash,
    /// A call passed its deadline.
    TimeOut,
    /// PHP ended a call, and could not go on after it.
    Fatal,
    /// A worker did not come up.
    Boot,
}

impl IncidentKind {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Crash => "crash",
            Self::TimeOut => "timeout",
            Self::Fatal => "fatal",
            Self::Boot => "boot",
        }
    }
}

/// A call, as whoever made it describes it. What is secret in it, is still in it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CallDetails {
    pub method: String,
    /// Path and query.
    pub target: String,
    /// The same as it may stand in a record.
    pub shown_target: String,
    pub protocol: String,
    pub remote_address: String,
    pub request_id: Option<String>,
    pub route: Option<String>,
    /// Names and values of its fields.
    pub headers: Vec<(String, String)>,
}

/// How far a call had come, and what its time had been spent on until then. The first three, and
/// the fourth if it is there, are all of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Until its body was there.
    pub read: Duration,
    /// Until a worker had it.
    pub queue: Duration,
    /// From there until its reply began, or until now.
    pub worker: Duration,
    /// Since its reply began.
    pub write: Option<Duration>,
    /// What the worker had taken of a processor when it began the call.
    pub(crate) cpu_before: Option<Duration>,
    /// What the worker has done since it began the call.
    pub spent: Option<Spent>,
}

impl Progress {
    /// With what the worker has done, whose process has taken so much of a processor by now.
    ///
    /// A worker with the extension tells the clock of one thread, and the one of its process is all
    /// that there is when it has ended: what other threads took before the call counts as the
    /// call's. PHP seldom has any.
    pub(crate) fn with_cpu(self, cpu: Option<Duration>) -> Self {
        let took = self.worker + self.write.unwrap_or_default();
        let known = self.cpu_before.zip(cpu);
        Self {
            spent: known.map(|(before, now)| Spent::of(took, before, now)),
            ..self
        }
    }
}

/// Who is told of incidents. Called on any thread, and must not block.
#[derive(Clone, Default)]
pub struct Incidents(Option<Arc<dyn Fn(Incident) + Send + Sync>>);

impl Incidents {
    /// Tells nobody.
    pub(crate) const NOBODY: Self = Self(None);

    pub fn new(tell: impl Fn(Incident) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(tell)))
    }

    /// Makes one, if somebody wants it.
    pub fn tell(&self, incident: impl FnOnce() -> Incident) {
        if let Some(tell) = &self.0 {
            tell(incident());
        }
    }
}

impl fmt::Debug for Incidents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Incidents").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{Instant, advance};

    use super::*;
    use crate::stamps::Stamps;

    #[tokio::test(start_paused = true)]
    async fn the_parts_are_all_of_the_time() {
        let millis = Duration::from_millis;
        let accepted = Instant::now();
        advance(millis(1)).await;
        let mut stamps = Stamps::new(accepted, Instant::now());
        advance(millis(10)).await;
        let waits = stamps.progress();
        assert_eq!((waits.read, waits.queue), (millis(1), millis(10)));
        assert_eq!((waits.worker, waits.write), (Duration::ZERO, None));
        stamps.dispatched = Some(Instant::now());
        advance(millis(2)).await;
        stamps.claimed = Some(Instant::now());
        advance(millis(100)).await;
        let runs = stamps.progress();
        assert_eq!((runs.queue, runs.worker), (millis(12), millis(100)));
        stamps.first_byte = Some(Instant::now());
        advance(millis(7)).await;
        let replies = stamps.progress();
        assert_eq!(replies.worker, millis(100));
        assert_eq!(replies.write, Some(millis(7)));
        let sum = replies.read + replies.queue + replies.worker + millis(7);
        assert_eq!(sum, accepted.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn what_the_worker_did_is_known_by_both_looks_or_not_at_all() {
        let millis = Duration::from_millis;
        let now = Instant::now();
        let mut stamps = Stamps::new(now, now);
        stamps.claimed = Some(now);
        advance(millis(100)).await;
        let progress = stamps.progress();
        assert_eq!(progress.with_cpu(Some(millis(500))).spent, None);
        let progress = Progress {
            cpu_before: Some(millis(470)),
            ..progress
        };
        assert_eq!(progress.with_cpu(None).spent, None);
        let (cpu, blocked) = (millis(30), millis(70));
        let spent = progress.with_cpu(Some(millis(500))).spent;
        assert_eq!(spent, Some(Spent { cpu, blocked }));
        let threads = progress.with_cpu(Some(millis(900))).spent;
        assert_eq!(threads.map(|spent| spent.cpu), Some(millis(100)));
    }
}
