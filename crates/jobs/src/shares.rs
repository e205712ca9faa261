//! Limits that all pipelines share: one that has too much loses its own, and keeps no other one
//! from having some.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use crate::settings::MOST_PIPELINES;

/// The things of each pipeline that are kept until there are too many. The pipeline that has the
/// most loses its oldest.
#[derive(Debug, Default)]
pub(crate) struct Shares {
    by_pipeline: HashMap<String, Share>,
    count: usize,
    bytes: u64,
}

/// Sizes by numbers, which rise.
#[derive(Debug, Default)]
struct Share {
    sizes: BTreeMap<u64, u64>,
    bytes: u64,
}

impl Shares {
    /// A number is added once.
    pub(crate) fn add(&mut self, pipeline: &str, number: u64, bytes: u64) {
        let share = match self.by_pipeline.get_mut(pipeline) {
            Some(share) => share,
            None => self.by_pipeline.entry(pipeline.to_owned()).or_default(),
        };
        share.sizes.insert(number, bytes);
        share.bytes += bytes;
        self.count += 1;
        self.bytes += bytes;
    }

    pub(crate) fn remove(&mut self, pipeline: &str, number: u64) {
        let Some(share) = self.by_pipeline.get_mut(pipeline) else {
            return;
        };
        if let Some(bytes) = share.sizes.remove(&number) {
            share.bytes -= bytes;
            self.count -= 1;
            self.bytes -= bytes;
        }
        if share.sizes.is_empty() {
            self.by_pipeline.remove(pipeline);
        }
    }

    #[cfg(test)]
    pub(crate) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The number that has to go where there may be so many, with so many bytes. None: there are
    /// not more.
    pub(crate) fn first_to_go(&self, most: usize, most_bytes: u64) -> Option<u64> {
        let is_by_count = self.count > most;
        if !is_by_count && self.bytes <= most_bytes {
            return None;
        }
        let all = self.by_pipeline.values().filter_map(|share| {
            let (oldest, _) = share.sizes.first_key_value()?;
            let has = if is_by_count {
                share.sizes.len() as u64
            } else {
                share.bytes
            };
            Some((has, Reverse(*oldest)))
        });
        all.max().map(|(_, Reverse(oldest))| oldest)
    }
}

/// Whether a pipeline that has so many of things that nothing may push out gets another one, where
/// all pipelines have `all` of them, and `most` are meant for them. It has nine times as many as
/// are free, so that others find room; and a thousandth in any case. There are not so many
/// pipelines that this doubles the number.
pub(crate) const fn has_room(own: u64, all: u64, most: u64) -> bool {
    let free = most.saturating_sub(all);
    own < free.saturating_mul(9) || own < most / MOST_PIPELINES as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_one_that_has_the_most_loses_its_oldest() {
        let mut shares = Shares::default();
        for (number, pipeline, bytes) in [(1, "b", 5), (2, "a", 1), (3, "a", 1), (4, "a", 1)] {
            shares.add(pipeline, number, bytes);
        }
        assert_eq!(shares.first_to_go(4, 8), None);
        assert_eq!(shares.first_to_go(3, 8), Some(2), "by their number");
        assert_eq!(shares.first_to_go(4, 7), Some(1), "by their bytes");
        shares.remove("a", 2);
        shares.remove("a", 2);
        shares.remove("b", 1);
        assert_eq!((shares.count, shares.bytes), (2, 2));
        shares.add("b", 5, 1);
        shares.add("b", 6, 1);
        assert_eq!(
            shares.first_to_go(3, 9),
            Some(3),
            "the oldest of equal ones"
        );
    }

    #[test]
    fn whatever_some_take_others_find_room() {
        let (most, mut all, mut owns) = (100_000, 0, Vec::new());
        for _ in 0..MOST_PIPELINES {
            let mut own = 0;
            while has_room(own, all, most) {
                (own, all) = (own + 1, all + 1);
            }
            owns.push(own);
        }
        assert_eq!(owns[..4], [90_000, 9000, 900, 100]);
        assert!(owns.iter().all(|own| *own >= 100));
        assert!(all <= 2 * most, "{all}");
    }
}
