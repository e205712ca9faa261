//! Durations as numbers, for records and metrics.

use std::time::Duration;

/// Whole milliseconds. What does not fit, after 584 million years, is the largest number.
pub fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Whole microseconds. What does not fit, after 584,000 years, is the largest number.
pub fn micros(duration: Duration) -> u64 {
    // Not by `as_micros`, which multiplies 128 bits: this runs several times for each request.
    let whole = duration.as_secs().saturating_mul(1_000_000);
    whole.saturating_add(u64::from(duration.subsec_micros()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_dropped_and_what_is_too_long_is_the_largest_number() {
        let duration = Duration::from_nanos(1_999_999);
        assert_eq!((millis(duration), micros(duration)), (1, 1999));
        assert_eq!(millis(Duration::MAX), u64::MAX);
        assert_eq!(micros(Duration::MAX), u64::MAX);
    }
}
