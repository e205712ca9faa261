//! How long calls take, smoothed.

use std::time::Duration;

/// Calls that take less, smoothed, are short: what a worker loses between two of them is worth a place in the queue.
const SHORT: Duration = Duration::from_millis(1);
/// A longer one counts as this: some fifteen short ones make up for it. Less than a second.
const LONGEST: Duration = Duration::from_millis(50);
/// The last call is one of so many.
const OF: u32 = 8;

/// A moving average in nanoseconds. It begins high: what nothing is known of is not short.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace(u32);

impl Default for Pace {
    fn default() -> Self {
        Self(2 * SHORT.subsec_nanos())
    }
}

impl Pace {
    /// A call took so long.
    pub(super) fn note(&mut self, took: Duration) {
        self.0 = self.0 - self.0 / OF + took.min(LONGEST).subsec_nanos() / OF;
    }

    pub(super) fn is_short(self) -> bool {
        self.0 < SHORT.subsec_nanos()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_long_call_among_short_ones_ends_it_for_a_while() {
        let mut pace = Pace::default();
        assert!(!pace.is_short(), "nothing is known");
        for _ in 0..10 {
            pace.note(Duration::from_micros(50));
        }
        assert!(pace.is_short());
        pace.note(Duration::from_secs(20));
        assert!(!pace.is_short());
        let until_short = (1..100).find(|_| {
            pace.note(Duration::from_micros(50));
            pace.is_short()
        });
        assert_eq!(until_short, Some(15));
        for _ in 0..100 {
            pace.note(SHORT);
        }
        pace.note(2 * SHORT);
        assert!(!pace.is_short());
    }
}
