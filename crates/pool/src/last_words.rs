//! The last lines that a worker has said, by whichever way they came: what is told of its end.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use pronghorn_base::lock;

/// Lines that a crash report shows.
const MOST: usize = 20;
/// The most of one of them. What is longer is in the log.
const LONGEST: usize = 64 << 10;

/// Cheap to clone; all clones are the same.
#[derive(Debug, Clone, Default)]
pub struct LastWords(Arc<Mutex<VecDeque<String>>>);

impl LastWords {
    pub fn say(&self, text: &str) {
        let mut lines = lock(&self.0);
        for line in text.lines() {
            if lines.len() == MOST {
                lines.pop_front();
            }
            let end = line.floor_char_boundary(LONGEST);
            lines.push_back(line.get(..end).unwrap_or_default().to_owned());
        }
    }

    pub fn lines(&self) -> Vec<String> {
        lock(&self.0).iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_kept_in_order_and_not_too_long() {
        let words = LastWords::default();
        for n in 0..30 {
            words.clone().say(&format!("{n} of\ntwo"));
        }
        let lines = words.lines();
        assert_eq!(lines.len(), MOST);
        assert_eq!((&*lines[0], &*lines[18]), ("20 of", "29 of"));
        words.say(&"ä".repeat(LONGEST));
        assert_eq!(words.lines()[19].len(), LONGEST);
    }
}
