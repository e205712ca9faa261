//! Files of names and password hashes, as `htpasswd` writes them: a name, a colon and a hash in
//! each line.
//!
//! - [`Users`]: such a file, read; it verifies names with passwords.
//! - [`Verified`]: remembers what was verified, so that a browser's next request costs no hash.
//!
//! Verifying takes from microseconds to seconds, as whoever made the hash wanted: callers do it on
//! a thread that may block.

#![forbid(unsafe_code)]

mod apr1;
mod hash;
mod verified;

use std::collections::HashMap;

pub use verified::Verified;

use hash::Hash;

/// SHA-crypt takes a time that grows with the square of this.
const LONGEST_PASSWORD: usize = 512;

/// The users of a file.
#[derive(Debug, Default)]
pub struct Users {
    /// With their texts; none is a name whose first line lets nobody in.
    hashes: HashMap<Box<[u8]>, Option<Written>>,
    /// The slowest hash of the file. It is verified for names that are not in it, and beside
    /// quicker ones, so that the time does not tell which names there are.
    decoy: Option<Hash>,
}

/// A hash with its text.
type Written = (Hash, Box<str>);

/// A line that lets nobody in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejected {
    /// From 1.
    pub line: usize,
    /// The reason, as a sentence without its subject: "has …".
    pub why: &'static str,
}

impl Users {
    /// The lines of a file; the first one for a name counts, as in Apache and nginx. Empty lines
    /// and those that begin with `#` say nothing.
    pub fn read(text: &[u8]) -> (Self, Vec<Rejected>) {
        let mut users = Self::default();
        let mut rejected = Vec::new();
        for (at, line) in text.split(|&byte| byte == b'\n').enumerate() {
            let line = line.trim_ascii_end();
            if line.is_empty() || line.starts_with(b"#") {
                continue;
            }
            let (name, hash) = entry(line);
            if let Err(why) = hash {
                rejected.push(Rejected { line: at + 1, why });
            }
            let known = hash.ok();
            let slowest = users.decoy.as_ref().map_or(0, Hash::slowness);
            if let Some((hash, _)) = known.as_ref().filter(|it| it.0.slowness() > slowest) {
                users.decoy = Some(hash.clone());
            }
            if let Some(name) = name {
                users.hashes.entry(name.into()).or_insert(known);
            }
        }
        (users, rejected)
    }

    /// The number of those who may come in.
    pub fn len(&self) -> usize {
        self.hashes.values().flatten().count()
    }

    /// Whether nobody can come in.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The text of the hash of a name, which changes with the password; none lets nobody in.
    pub fn hash_of(&self, name: &[u8]) -> Option<&str> {
        let (_, text) = self.hashes.get(name)?.as_ref()?;
        Some(text)
    }

    /// Whether it is this one's password, of 512 bytes at most. Blocks for as long as the hash
    /// takes.
    pub fn verify(&self, name: &[u8], password: &[u8]) -> bool {
        if password.len() > LONGEST_PASSWORD {
            return false;
        }
        let hash = self.hashes.get(name).and_then(Option::as_ref);
        let hash = hash.map(|(hash, _)| hash);
        if hash.is_some_and(|hash| hash.verify(password)) {
            return true;
        }
        let tried = hash.map_or(0, Hash::slowness);
        if let Some(decoy) = self.decoy.as_ref().filter(|it| it.slowness() > tried) {
            std::hint::black_box(decoy.verify(password));
        }
        false
    }
}

/// The name of a line, and its hash with its text.
fn entry(line: &[u8]) -> (Option<&[u8]>, Result<Written, &'static str>) {
    let mut parts = line.splitn(3, |&byte| byte == b':');
    let (name, hash) = (parts.next().unwrap_or_default(), parts.next());
    let Some(hash) = hash else {
        return (None, Err("has no colon between a name and a hash"));
    };
    if name.is_empty() {
        return (None, Err("has no name before its colon"));
    }
    let text = std::str::from_utf8(hash).map_err(|_| hash::UNKNOWN);
    let hash = text.and_then(|text| Ok((Hash::read(text)?, text.into())));
    (Some(name), hash)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Made by htpasswd, openssl, PHP and mkpasswd, each for `open sesame`.
    const FILE: &str = include_str!("../tests/htpasswd");

    #[test]
    fn hashes_of_all_kinds_are_verified() {
        let (users, rejected) = Users::read(FILE.as_bytes());
        assert_eq!(rejected, []);
        assert!(users.len() >= 12, "{}", users.len());
        for line in FILE.lines().filter(|line| !line.starts_with('#')) {
            let (name, _) = line.split_once(':').expect("a name");
            assert!(users.verify(name.as_bytes(), b"open sesame"), "{line}");
            for wrong in [
                &b"open sesame "[..],
                b"Open sesame",
                b"",
                b"\0",
                &[b'a'; 100],
            ] {
                assert!(!users.verify(name.as_bytes(), wrong), "{line}: {wrong:?}");
            }
        }
        assert!(!users.verify(b"nobody", b"open sesame"));
    }

    #[test]
    fn an_empty_file_lets_nobody_in() {
        let (users, rejected) = Users::read(b"# nobody\n\n");
        assert!(users.is_empty() && rejected.is_empty());
        assert!(!users.verify(b"", b""));
    }

    #[test]
    fn the_first_line_of_a_name_counts() {
        let text =
            b"a:{SHA}qUqP5cyxm6YcTAhz05Hph5gvu9M=\r\na:{SHA}2jmj7l5rSw0yVb/vlWAYkK/YBwk=:x\n";
        let (users, rejected) = Users::read(text);
        assert_eq!((users.len(), rejected), (1, Vec::new()));
        assert!(users.verify(b"a", b"test"));
        assert!(!users.verify(b"a", b""));
        // Also one that locks it.
        let (users, rejected) = Users::read(b"a:!x\na:{SHA}qUqP5cyxm6YcTAhz05Hph5gvu9M=\n");
        assert_eq!((users.len(), rejected.len()), (0, 1));
        assert!(!users.verify(b"a", b"test") && users.hash_of(b"a").is_none());
    }

    #[test]
    fn what_can_not_be_verified_is_named_by_its_line() {
        for (line, why) in [
            ("name", "has no colon between a name and a hash"),
            (
                ":{SHA}qUqP5cyxm6YcTAhz05Hph5gvu9M=",
                "has no name before its colon",
            ),
            ("a:", hash::UNKNOWN),
            ("a:test", hash::UNKNOWN),
            ("a:rqXexS6ZhobKA", hash::UNKNOWN),
            ("a:{PLAIN}test", hash::UNKNOWN),
            ("a:$1$salt$qJH7.N4xYta3aEG/dfqo/0", hash::UNKNOWN),
            ("a:$y$j9T$abc$def", hash::UNKNOWN),
            ("a:$2y$10$abc", hash::BROKEN),
            ("a:$apr1$salt$short", hash::BROKEN),
            ("a:{SHA}qUqP5cyxm6", hash::BROKEN),
            ("a:{SSHA}qUqP5cyxm6YcTAhz", hash::BROKEN),
            ("a:$6$salt$short", hash::BROKEN),
            ("a:$argon2id$v=19$m=65536$abc$def", hash::BROKEN),
            (
                "a:$2y$31$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW",
                hash::TOO_SLOW,
            ),
            (
                "a:$6$rounds=900000000$salt$svn8UoSVapNtMuq1ukKS4tPQd8iKwSMHWjl/O817G3uBnIFNjnQJuesI68u4OTLiBFdcbYEdFCoEOfaS35inz1",
                hash::TOO_SLOW,
            ),
            (
                "a:$argon2id$v=19$m=4194304,t=3,p=4$c29tZXNhbHQ$RdescudvJCsgt3ub+b4dWRWJTmaQ1Lq8SbqSLQfmFFo",
                hash::TOO_SLOW,
            ),
        ] {
            let (users, rejected) = Users::read(format!("# one\n{line}\n").as_bytes());
            assert!(users.is_empty(), "{line}");
            assert_eq!(rejected, [Rejected { line: 2, why }], "{line}");
        }
    }

    proptest! {
        #[test]
        fn no_file_and_no_password_does_harm(
            text in "([a-c]?:?(\\$(apr1|2y|5|6|argon2id)\\$)?([ -~]|\\n){0,40})*",
            password: Vec<u8>,
        ) {
            let (users, _) = Users::read(text.as_bytes());
            for name in [b"a", b"b", b"c", b"d"] {
                users.verify(name, &password);
            }
        }
    }
}
