//! What a client sees when there is no reply: the one place where reasons become statuses.

use pronghorn_pool::{CallError, Refused, Unencodable};

/// When to come back after an overload. Queues are short-lived: a second is enough for the next try
/// to find room.
pub(crate) const RETRY_AFTER: &str = "1";

/// The status for a call that got no reply. `internal` is `http.internal_error_code`.
pub(crate) fn status(error: &CallError, internal: u16) -> u16 {
    match error {
        CallError::Refused(
            Refused::QueueFull | Refused::WaitedTooLong | Refused::NoWorker | Refused::Stopping,
        ) => 503,
        CallError::NotBegun => 503,
        CallError::Unencodable(Unencodable::Request(_)) => 400,
        // Somebody has to change the settings.
        CallError::Unencodable(Unencodable::Pool(_)) => 500,
        CallError::Deadline => 504,
        CallError::Worker(_) => 502,
        CallError::Thrown(_) | CallError::Reported(_) => internal,
        // Not for later: the next try would find the same.
        CallError::Poisoned => 500,
    }
}
