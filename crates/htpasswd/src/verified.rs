//! Passwords that were right, so that the next request with one costs no hash.

use std::collections::HashSet;
use std::hash::{BuildHasher as _, Hash, RandomState};

/// Ten thousand take less than a megabyte. With more, all are forgotten, which costs each a hash.
const MOST: usize = 10_000;

/// Passwords that were right, each for the client that sent it: whoever guesses has no use of what
/// others know. Keeps none of them, but 128 bits of keyed hashes, whose keys are drawn when it is
/// made and never leave it.
#[derive(Debug, Default)]
pub struct Verified {
    keys: [RandomState; 2],
    right: HashSet<[u64; 2]>,
}

impl Verified {
    /// The password of this name was right.
    pub fn remember(&mut self, client: impl Hash, name: &[u8], password: &[u8]) {
        if self.right.len() >= MOST {
            self.right.clear();
        }
        let tag = self.tag(client, name, password);
        self.right.insert(tag);
    }

    /// Whether it was right when this client sent it the last time.
    pub fn knows(&self, client: impl Hash, name: &[u8], password: &[u8]) -> bool {
        self.right.contains(&self.tag(client, name, password))
    }

    /// Forgets all: another file has come.
    pub fn clear(&mut self) {
        self.right.clear();
    }

    fn tag(&self, client: impl Hash, name: &[u8], password: &[u8]) -> [u64; 2] {
        let all = (client, name, password);
        self.keys.each_ref().map(|keys| keys.hash_one(&all))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_right_is_known_to_who_has_sent_it() {
        let mut verified = Verified::default();
        verified.remember(1, b"a", b"one");
        assert!(verified.knows(1, b"a", b"one"));
        for (client, name, password) in [
            (2, &b"a"[..], &b"one"[..]),
            (1, b"a", b"two"),
            (1, b"b", b"one"),
            (1, b"ao", b"ne"),
            (1, b"a", b""),
        ] {
            assert!(!verified.knows(client, name, password));
        }
        verified.clear();
        assert!(!verified.knows(1, b"a", b"one"));
        for client in 0..=MOST {
            verified.remember(client, b"a", b"one");
        }
        assert!(verified.right.len() <= MOST && verified.knows(MOST, b"a", b"one"));
    }
}
