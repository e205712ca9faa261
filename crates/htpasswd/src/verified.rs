//! Passwords that were right, so that the next request with one costs no hash.

use std::collections::HashSet;
use std::hash::{BuildHasher as _, Hash, RandomState};

/// Ten thousand take less than a megabyte. With more, all are forgotten, which costs each a hash.
const MOST: usize = 10_000;

/// Passwords that were right, each for the client that sent it: whoever guesses has no use of what
/// others know. Each holds for as long as the hash of its name is the same. Keeps none of them, but
/// 128 bits of keyed hashes, whose keys are drawn when it is made and never leave it.
#[derive(Debug, Default)]
pub struct Verified {
    keys: [RandomState; 2],
    right: HashSet<[u64; 2]>,
}

impl Verified {
    /// The password of this name was right: it has this hash.
    pub fn remember(&mut self, client: impl Hash, name: &[u8], hash: &str, password: &[u8]) {
        if self.right.len() >= MOST {
            self.right.clear();
        }
        let tag = self.tag(client, name, hash, password);
        self.right.insert(tag);
    }

    /// Whether it was right when this client sent it the last time, and the hash is the same.
    pub fn knows(&self, client: impl Hash, name: &[u8], hash: &str, password: &[u8]) -> bool {
        self.right.contains(&self.tag(client, name, hash, password))
    }

    fn tag(&self, client: impl Hash, name: &[u8], hash: &str, password: &[u8]) -> [u64; 2] {
        let all = (client, name, hash, password);
        self.keys.each_ref().map(|keys| keys.hash_one(&all))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_right_is_known_to_who_has_sent_it() {
        let mut verified = Verified::default();
        verified.remember(1, b"a", "h", b"one");
        assert!(verified.knows(1, b"a", "h", b"one"));
        for (client, name, hash, password) in [
            (2, &b"a"[..], "h", &b"one"[..]),
            (1, b"a", "h", b"two"),
            (1, b"a", "i", b"one"),
            (1, b"b", "h", b"one"),
            (1, b"ah", "", b"one"),
            (1, b"a", "h", b""),
        ] {
            assert!(!verified.knows(client, name, hash, password));
        }
        for client in 0..=MOST {
            verified.remember(client, b"a", "h", b"one");
        }
        assert!(verified.right.len() <= MOST && verified.knows(MOST, b"a", "h", b"one"));
    }
}
