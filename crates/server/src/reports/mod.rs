//! Reports that stay: what went wrong with workers and calls, a file each in the state directory.
//!
//! What they are, and how they are read; `incidents` writes them.

mod folder;

use std::path::{Path, PathBuf};

use pronghorn_base::micros;
use pronghorn_pool::Progress;
use serde::{Deserialize, Serialize};

pub(crate) use folder::{Files, LONGEST, files};
pub use folder::{Found, Group, Reports, groups};

/// Below the state directory.
const FOLDER: &str = "reports";
/// What went wrong, as it is kept.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Report {
    /// Its name among all; they sort by time.
    pub id: String,
    /// RFC 3339, UTC.
    pub time: String,
    /// `crash`, `timeout`, `fatal` or `boot`.
    pub kind: String,
    pub pool: String,
    /// 0: there was no process.
    pub pid: u32,
    /// The same for reports with the same cause, whatever numbers are in it.
    pub group: String,
    pub cause: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub text: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<ReportedRequest>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ran_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub split: Option<ReportedSplit>,
    /// Whether another worker got the call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retried: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Frames of PHP, the innermost first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stack: Vec<String>,
    /// The last lines of the worker.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stderr: Vec<String>,
    /// Incidents right before this one that were too many to be kept.
    #[serde(skip_serializing_if = "is_zero")]
    pub left_out: u64,
    /// Of the server.
    pub version: String,
}

/// What the time of the call had been spent on when it was noticed, in microseconds and by the
/// names of its record. The first four are all of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ReportedSplit {
    pub read_us: u64,
    pub queue_us: u64,
    pub php_us: u64,
    /// Since its reply began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write_us: Option<u64>,
    /// Of the time in PHP, that too in which a reply is sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub php_cpu_us: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub php_blocked_us: Option<u64>,
}

impl From<Progress> for ReportedSplit {
    fn from(progress: Progress) -> Self {
        let spent = progress.spent;
        Self {
            read_us: micros(progress.read),
            queue_us: micros(progress.queue),
            php_us: micros(progress.worker),
            write_us: progress.write.map(micros),
            php_cpu_us: spent.map(|spent| micros(spent.cpu)),
            php_blocked_us: spent.map(|spent| micros(spent.blocked)),
        }
    }
}

/// The call that a worker had, with what is secret masked.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ReportedRequest {
    /// In a few words, as records have it.
    pub what: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub method: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub target: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub protocol: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub remote_address: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub route: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<(String, String)>,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde hands over references"
)]
const fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Where the reports of a server are that keeps its state there.
pub fn folder_in(state: &Path) -> PathBuf {
    state.join(FOLDER)
}
