//! Which prefixes of keys are read most, by a sample of reads.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde::Serialize;

/// What stands between the parts of a key in most applications. No `-` and no `,`: identifiers of
/// sessions have them, and those are secrets.
const SEPARATORS: &[u8] = b":/._\0";
/// Bytes of a key in which a prefix is looked for.
const LONGEST: usize = 64;
/// A prefix with fewer reads than one in so many counts for the one that it begins with.
const SELDOM: usize = 20;

/// A prefix, with its part of the reads that no longer prefix has.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Hot {
    /// It ends with a separator; empty for keys without one, and for all the rest.
    prefix: String,
    percent: usize,
}

/// Reads of each prefix, the shortest first.
type Counts<'a> = BTreeMap<(usize, &'a [u8]), usize>;

/// The hottest first, at most twenty and the rest.
pub(crate) fn hottest(keys: &[Vec<u8>]) -> Vec<Hot> {
    let mut left = Counts::new();
    for key in keys {
        count(&mut left, prefix_of(key), 1);
    }
    let mut found = Vec::new();
    // The longest first, so that each is complete when its turn comes.
    while let Some(((length, prefix), reads)) = left.pop_last() {
        if length > 0 && reads * SELDOM < keys.len() {
            count(&mut left, prefix_of(&prefix[..length - 1]), reads);
        } else {
            found.push((reads, prefix));
        }
    }
    found.sort_by_key(|(reads, prefix)| (Reverse(*reads), *prefix));
    let hot = |(reads, prefix): &(usize, &[u8])| Hot {
        prefix: String::from_utf8_lossy(prefix).into_owned(),
        percent: (reads * 100 + keys.len() / 2) / keys.len(),
    };
    found.iter().map(hot).collect()
}

fn count<'a>(counts: &mut Counts<'a>, prefix: &'a [u8], reads: usize) {
    *counts.entry((prefix.len(), prefix)).or_default() += reads;
}

/// Up to the last separator; empty where there is none.
fn prefix_of(key: &[u8]) -> &[u8] {
    let looked_at = &key[..key.len().min(LONGEST)];
    let last = looked_at.iter().rposition(|it| SEPARATORS.contains(it));
    last.map_or(&key[..0], |last| &key[..=last])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(keys: &[&str]) -> Vec<String> {
        let keys: Vec<_> = keys.iter().map(|key| key.as_bytes().to_vec()).collect();
        let hot = hottest(&keys);
        let line = |hot: &Hot| format!("{} {}", hot.prefix, hot.percent);
        hot.iter().map(line).collect()
    }

    #[test]
    fn the_longest_prefix_that_is_read_often_counts() {
        assert_eq!(shown(&[]), [""; 0]);
        assert_eq!(shown(&["menu"]), [" 100"]);
        let keys = ["shop:price:7", "shop:price:8", "shop:user", "menu"];
        assert_eq!(shown(&keys), ["shop:price: 50", " 25", "shop: 25"]);
        // One in 40 each: none of them is worth a line, and together they are.
        let seldom: Vec<_> = (0..40).map(|user| format!("user:{user}:name")).collect();
        let seldom: Vec<_> = seldom.iter().map(String::as_str).collect();
        assert_eq!(shown(&seldom), ["user: 100"]);
        assert_eq!(shown(&["a.b/c_d"; 3]), ["a.b/c_ 100"]);
    }

    #[test]
    fn no_identifier_of_a_session_is_shown() {
        let keys = ["session:aB3-x,9", "session:aB3-x,9", "aB3-x,9"];
        assert_eq!(shown(&keys), ["session: 67", " 33"]);
    }

    #[test]
    fn keys_may_have_any_bytes_and_any_length() {
        let long = [b"a:".repeat(40_000), vec![0xff, b':', 0]];
        let prefixes: Vec<_> = hottest(&long).into_iter().map(|hot| hot.prefix).collect();
        assert_eq!(prefixes, ["a:".repeat(32), "\u{fffd}:\0".to_owned()]);
    }
}
