//! What went wrong with a worker or a call, for whoever keeps it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

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
    pub protocol: String,
    pub remote_address: String,
    pub request_id: Option<String>,
    pub route: Option<String>,
    /// Names and values of its fields.
    pub headers: Vec<(String, String)>,
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
