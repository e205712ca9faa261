//! Keeps what fails from being tried again at once.

use pronghorn_base::Backoff;
use tokio::time::Instant;

use super::super::replacements::STARTS;

/// Tries to start workers for one reason.
pub(super) struct Pacing {
    backoff: Backoff,
    not_before: Option<Instant>,
}

impl Default for Pacing {
    fn default() -> Self {
        Self {
            backoff: STARTS,
            not_before: None,
        }
    }
}

impl Pacing {
    pub(super) fn may(&self, now: Instant) -> bool {
        self.not_before.is_none_or(|start| start <= now)
    }

    /// When the next try may be, if one has failed.
    pub(super) fn next_try(&self) -> Option<Instant> {
        self.not_before
    }

    pub(super) fn failed(&mut self, now: Instant) {
        self.not_before = Some(now + self.backoff.next_wait());
    }

    pub(super) fn went_well(&mut self) {
        *self = Self::default();
    }
}
