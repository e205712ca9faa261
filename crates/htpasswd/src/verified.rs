//! Passwords that were right, so that the next request with one costs no hash.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};

use subtle::ConstantTimeEq as _;

/// Passwords that were right, by names. Keeps none of them, but 128 bits of keyed hashes, whose
/// keys are drawn when it is made and never leave it.
#[derive(Debug, Default)]
pub struct Verified {
    keys: [RandomState; 2],
    right: HashMap<Box<[u8]>, [u8; 16]>,
}

impl Verified {
    /// This one's password was right. There are as many entries as names whose password was.
    pub fn remember(&mut self, name: &[u8], password: &[u8]) {
        let tag = self.tag(name, password);
        self.right.insert(name.into(), tag);
    }

    /// Whether it was right the last time.
    pub fn knows(&self, name: &[u8], password: &[u8]) -> bool {
        let tag = self.tag(name, password);
        self.right
            .get(name)
            .is_some_and(|known| known.ct_eq(&tag).into())
    }

    /// Forgets all: another file has come.
    pub fn clear(&mut self) {
        self.right.clear();
    }

    fn tag(&self, name: &[u8], password: &[u8]) -> [u8; 16] {
        let mut tag = [0; 16];
        for (part, keys) in tag.chunks_exact_mut(8).zip(&self.keys) {
            part.copy_from_slice(&keys.hash_one((name, password)).to_ne_bytes());
        }
        tag
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_right_is_known() {
        let mut verified = Verified::default();
        verified.remember(b"a", b"one");
        assert!(verified.knows(b"a", b"one"));
        for (name, password) in [
            (&b"a"[..], &b"two"[..]),
            (b"b", b"one"),
            (b"ao", b"ne"),
            (b"a", b""),
        ] {
            assert!(!verified.knows(name, password));
        }
        verified.remember(b"a", b"two");
        assert!(verified.knows(b"a", b"two") && !verified.knows(b"a", b"one"));
        verified.clear();
        assert!(!verified.knows(b"a", b"two"));
    }
}
