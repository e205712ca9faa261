//! What workers found wrong with the application: known by its place, told once.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, MutexGuard};

use pronghorn_base::lock;
use pronghorn_wire::native::Thrown;

/// More mistakes than that are not told: the log is not to be filled by code that is made at run
/// time, each time in another place.
const MOST: usize = 100;

/// What was told. Locked for a look, and only where there is something to tell.
#[derive(Debug, Default)]
pub(crate) struct Remarks {
    told: Mutex<HashSet<u64>>,
}

impl Remarks {
    /// `None`: it was told, or too many were. `true`: it is the last one.
    pub(crate) fn add(&self, remark: &Thrown) -> Option<bool> {
        let mut place = DefaultHasher::new();
        (&remark.class, &remark.file, remark.line).hash(&mut place);
        let mut told = self.told();
        let is_new = told.len() < MOST && told.insert(place.finish());
        is_new.then_some(told.len() == MOST)
    }

    /// New workers may have new code.
    pub(crate) fn forget(&self) {
        self.told().clear();
    }

    fn told(&self) -> MutexGuard<'_, HashSet<u64>> {
        lock(&self.told)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(line: u32) -> Thrown {
        Thrown {
            class: "header".into(),
            file: "a.php".into(),
            line,
            ..Thrown::default()
        }
    }

    #[test]
    fn a_place_is_told_once_and_again_after_a_reload() {
        let remarks = Remarks::default();
        assert_eq!(remarks.add(&at(1)), Some(false));
        assert_eq!(remarks.add(&at(2)), Some(false));
        assert_eq!(remarks.add(&at(1)), None);
        remarks.forget();
        assert_eq!(remarks.add(&at(1)), Some(false));
    }

    #[test]
    fn so_many_places_are_told() {
        let remarks = Remarks::default();
        for line in 1..=1000 {
            let expected = match line {
                ..100 => Some(false),
                100 => Some(true),
                _ => None,
            };
            assert_eq!(remarks.add(&at(line)), expected);
        }
    }
}
