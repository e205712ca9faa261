//! The choice of who lets go where many hold too much together.

use std::collections::HashMap;
use std::hash::Hash;

/// The place of who is to go among those that hold something: of the group that holds the most in
/// all, the one that holds the most, and of equals the first. Who is in no group is one alone.
pub fn heaviest<G: Copy + Eq + Hash>(
    holders: impl Iterator<Item = (Option<G>, u64)> + Clone,
) -> Option<usize> {
    let mut groups: HashMap<G, u64> = HashMap::new();
    for (group, own) in holders.clone() {
        if let Some(group) = group {
            *groups.entry(group).or_default() += own;
        }
    }
    let mut found = None;
    for (at, (group, own)) in holders.enumerate() {
        let of_group = group.and_then(|group| groups.get(&group));
        let weight = (of_group.copied().unwrap_or(own), own);
        if found.is_none_or(|(heaviest, _)| weight > heaviest) {
            found = Some((weight, at));
        }
    }
    found.map(|(_, at)| at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_the_heaviest_group_the_heaviest_goes_and_of_equals_the_first() {
        let of = |holders: &[(Option<u8>, u64)]| heaviest(holders.iter().copied());
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[(None, 5), (None, 7), (None, 7)]), Some(1));
        assert_eq!(
            of(&[(Some(1), 9), (Some(2), 4), (Some(2), 6), (None, 8)]),
            Some(2)
        );
        assert_eq!(
            of(&[(Some(1), 9), (Some(2), 4), (Some(2), 4), (None, 10)]),
            Some(3)
        );
    }
}
