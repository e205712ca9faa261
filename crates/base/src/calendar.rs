//! Moments of the system's clock as durations since 1970, in UTC.

use std::time::{Duration, SystemTime};

use crate::duration::millis;

/// The time from the beginning of 1970 to this moment. Zero for a clock that is set before it.
#[inline]
pub fn since_1970(moment: SystemTime) -> Duration {
    moment
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default()
}

/// Milliseconds since 1970.
pub fn now_ms() -> u64 {
    millis(since_1970(SystemTime::now()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_before_1970_is_at_its_beginning() {
        let second = Duration::from_secs(1);
        assert_eq!(since_1970(SystemTime::UNIX_EPOCH + second), second);
        assert_eq!(since_1970(SystemTime::UNIX_EPOCH - second), Duration::ZERO);
    }

    #[test]
    fn it_is_later_than_this_line_was_written() {
        assert!(now_ms() > 1_795_000_000_000);
    }
}
