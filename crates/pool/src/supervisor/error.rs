//! Why a worker did not come up.

use std::error::Error;
use std::fmt;

/// A worker that was to be started and is not up, for a person: what starts workers knows more of
/// it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaunchError {
    summary: String,
    report: String,
}

impl LaunchError {
    /// In one line, and with all that is known.
    pub fn new(summary: String, report: String) -> Self {
        Self { summary, report }
    }

    /// The pool was stopped meanwhile.
    pub(crate) fn stopped(pool: &str) -> Self {
        let summary = format!("pool `{pool}`: it is stopping");
        Self::new(summary.clone(), summary)
    }

    /// What, where, the evidence, the next step. Several lines, without an end of line.
    pub fn report(&self) -> &str {
        &self.report
    }
}

impl fmt::Display for LaunchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.summary)
    }
}

impl Error for LaunchError {}
