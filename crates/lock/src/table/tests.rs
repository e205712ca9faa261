use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn table() -> (Table<u32>, Instant) {
    (Table::new(Limits::default(), 0), Instant::now())
}

/// Takes a lock for a minute; the ticket when it has to wait.
fn take(table: &mut Table<u32>, id: &str, mode: Mode, now: Instant, token: u32) -> Option<u64> {
    match table.acquire("r", id, mode, 60 * SECOND, now, token) {
        Ok(Acquired::Granted) => None,
        Ok(Acquired::Waits(ticket)) => Some(ticket),
        Err(full) => panic!("{full}"),
    }
}

#[test]
fn readers_share_and_a_writer_is_alone() {
    let (mut table, now) = table();
    assert_eq!(take(&mut table, "a", Mode::Read, now, 1), None);
    assert_eq!(take(&mut table, "b", Mode::Read, now, 2), None);
    assert!(take(&mut table, "w", Mode::Write, now, 3).is_some());
    assert_eq!(table.release("r", "a", now), (true, vec![]));
    assert_eq!(table.release("r", "b", now), (true, vec![3]));
    assert!(take(&mut table, "c", Mode::Read, now, 4).is_some());
    assert!(take(&mut table, "d", Mode::Read, now, 5).is_some());
    assert!(
        take(&mut table, "w", Mode::Write, now, 6).is_some(),
        "twice is not allowed"
    );
    assert_eq!(table.release("r", "w", now), (true, vec![4, 5]));
    assert_eq!(table.release_all("r", now), (true, vec![6]));
    assert_eq!(table.release("r", "w", now), (true, vec![]));
    assert!(table.resources.is_empty() && table.ends.is_empty());
}

/// RoadRunner grants it, when a lock was released before while nobody waited.
#[test]
fn a_writer_does_not_get_what_two_readers_hold_after_an_earlier_release() {
    let (mut table, now) = table();
    assert_eq!(take(&mut table, "before", Mode::Write, now, 0), None);
    assert_eq!(table.release("r", "before", now), (true, vec![]));
    assert_eq!(take(&mut table, "a", Mode::Read, now, 1), None);
    assert_eq!(take(&mut table, "b", Mode::Read, now, 2), None);
    assert!(take(&mut table, "w", Mode::Write, now, 3).is_some());
    assert!(!table.is_held("r", Some("w")));
}

/// In RoadRunner nobody gets anything of that resource afterwards.
#[test]
fn a_writer_that_gives_up_on_two_readers_leaves_the_resource_usable() {
    let (mut table, now) = table();
    take(&mut table, "a", Mode::Read, now, 1);
    take(&mut table, "b", Mode::Read, now, 2);
    let writer = take(&mut table, "w", Mode::Write, now, 3).expect("waits");
    let reader = take(&mut table, "c", Mode::Read, now, 4);
    assert!(reader.is_some(), "behind the writer");
    assert_eq!(table.leave("r", writer, now), (true, vec![4]));
    assert_eq!(table.leave("r", writer, now), (false, vec![]));
    for id in ["a", "b", "c"] {
        assert_eq!(table.release("r", id, now), (true, vec![]));
    }
    assert_eq!(take(&mut table, "w", Mode::Write, now, 5), None);
}

/// RoadRunner says false when it remembers a writer of before.
#[test]
fn a_reader_releases_its_lock_after_a_writer_had_one() {
    let (mut table, now) = table();
    take(&mut table, "w", Mode::Write, now, 1);
    take(&mut table, "a", Mode::Read, now, 2);
    assert_eq!(table.release("r", "w", now), (true, vec![2]));
    assert_eq!(table.release("r", "w", now), (false, vec![]));
    assert_eq!(table.release("r", "a", now), (true, vec![]));
}

/// RoadRunner counts it twice and can't release the first one.
#[test]
fn a_reader_that_asks_twice_has_one_lock() {
    let (mut table, now) = table();
    take(&mut table, "a", Mode::Read, now, 1);
    take(&mut table, "w", Mode::Write, now, 2);
    let later = now + 30 * SECOND;
    assert_eq!(
        take(&mut table, "a", Mode::Read, later, 3),
        None,
        "past the line"
    );
    assert_eq!(
        table.expire(now + 60 * SECOND),
        [0; 0],
        "its time begins anew"
    );
    assert_eq!(table.release("r", "a", later), (true, vec![2]));
}

#[test]
fn the_only_reader_may_become_the_writer() {
    let (mut table, now) = table();
    take(&mut table, "a", Mode::Read, now, 1);
    take(&mut table, "b", Mode::Read, now, 2);
    assert!(take(&mut table, "w", Mode::Write, now, 3).is_some());
    assert!(
        take(&mut table, "a", Mode::Write, now, 4).is_some(),
        "b reads as well"
    );
    assert_eq!(
        table.release("r", "b", now),
        (true, vec![4]),
        "the first in line waits for it"
    );
    assert!(take(&mut table, "c", Mode::Read, now, 5).is_some());
    assert_eq!(table.release("r", "a", now), (true, vec![3]));

    let (mut table, now) = self::table();
    take(&mut table, "a", Mode::Read, now, 1);
    assert_eq!(take(&mut table, "a", Mode::Write, now, 2), None);
    assert!(take(&mut table, "b", Mode::Read, now, 3).is_some());
    assert_eq!(table.locks(), 1);
}

#[test]
fn each_grant_has_a_larger_token() {
    let mut table = Table::new(Limits::default(), 70);
    let now = Instant::now();
    take(&mut table, "a", Mode::Write, now, 1);
    assert_eq!(table.token("r", "a"), Some(71));
    assert!(table.prolong("r", "a", 90 * SECOND, now));
    assert_eq!(table.token("r", "a"), Some(71), "it is the same lock");
    take(&mut table, "b", Mode::Read, now, 2);
    take(&mut table, "c", Mode::Read, now, 3);
    assert_eq!(table.token("r", "b"), None, "it waits");
    table.release("r", "a", now);
    assert_eq!(table.token("r", "a"), None);
    let read = (table.token("r", "b"), table.token("r", "c"));
    assert_eq!(read, (Some(72), Some(73)));
    table.release("r", "c", now);
    take(&mut table, "b", Mode::Write, now, 4);
    assert_eq!(table.token("r", "b"), Some(74), "reading was another lock");
}

#[test]
fn there_is_an_end_to_everything() {
    let now = Instant::now();
    let limits = Limits {
        locks: 2,
        waiting: 1,
    };
    let mut table = Table::new(limits, 0);
    take(&mut table, "a", Mode::Write, now, 1);
    assert!(take(&mut table, "b", Mode::Write, now, 2).is_some());
    let full = table.acquire("r", "c", Mode::Write, SECOND, now, 3);
    assert_eq!(full, Err(Full::Waiting(1)));
    let other = table.acquire("other", "c", Mode::Write, SECOND, now, 4);
    assert_eq!(other, Ok(Acquired::Granted));
    let full = table.acquire("third", "c", Mode::Write, SECOND, now, 5);
    assert_eq!(full, Err(Full::Locks(2)));
    assert_eq!(table.expire(now + SECOND), [0; 0]);
    assert_eq!(table.resources.len(), 1, "what ended is forgotten");
    assert_eq!(table.dismiss_all(), [2]);
    assert_eq!(table.waiting(), 0);
}

/// The obvious way: lists, searched from the front.
#[derive(Default)]
struct Model {
    /// Resource, id, mode, end.
    held: Vec<(u8, u8, Mode, u64)>,
    /// Ticket, resource, id, mode, ttl.
    line: Vec<(u64, u8, u8, Mode, u64)>,
}

impl Model {
    fn free_for(&self, resource: u8, id: u8, mode: Mode) -> bool {
        let others: Vec<_> = self.held.iter().filter(|held| held.0 == resource).collect();
        match mode {
            Mode::Read => others.iter().all(|held| held.2 == Mode::Read),
            Mode::Write => others
                .iter()
                .all(|held| held.1 == id && held.2 == Mode::Read),
        }
    }

    fn give(&mut self, resource: u8, id: u8, mode: Mode, end: u64) {
        self.held.retain(|held| (held.0, held.1) != (resource, id));
        self.held.push((resource, id, mode, end));
    }

    fn acquire(
        &mut self,
        ticket: u64,
        resource: u8,
        id: u8,
        mode: Mode,
        ttl: u64,
        now: u64,
    ) -> bool {
        let holds = self
            .held
            .iter()
            .any(|held| (held.0, held.1) == (resource, id));
        let line = self.line.iter().any(|waiter| waiter.1 == resource);
        if self.free_for(resource, id, mode) && (holds || !line) {
            self.give(resource, id, mode, now + ttl);
            return true;
        }
        self.line.push((ticket, resource, id, mode, ttl));
        false
    }

    fn advance(&mut self, resource: u8, now: u64) -> Vec<u64> {
        let mut granted = Vec::new();
        loop {
            let places: Vec<_> = (0..self.line.len())
                .filter(|at| self.line[*at].1 == resource)
                .collect();
            let may = |at: &usize| self.free_for(resource, self.line[*at].2, self.line[*at].3);
            let first = places.first().copied().filter(may);
            let only_reader = || {
                places
                    .iter()
                    .copied()
                    .filter(|at| self.line[*at].3 == Mode::Write)
                    .find(may)
            };
            let Some(place) = first.or_else(only_reader) else {
                return granted;
            };
            let (ticket, resource, id, mode, ttl) = self.line.remove(place);
            self.give(resource, id, mode, now + ttl);
            granted.push(ticket);
        }
    }

    fn end(&mut self, now: u64, ends: impl Fn(&(u8, u8, Mode, u64)) -> bool) -> (bool, Vec<u64>) {
        let ended: Vec<_> = self
            .held
            .iter()
            .filter(|held| ends(held))
            .map(|held| held.0)
            .collect();
        self.held.retain(|held| !ends(held));
        let granted = ended
            .iter()
            .flat_map(|resource| self.advance(*resource, now))
            .collect();
        (!ended.is_empty(), granted)
    }
}

#[derive(Clone, Debug)]
enum Step {
    Acquire {
        resource: u8,
        id: u8,
        mode: Mode,
        ttl: u64,
    },
    Release {
        resource: u8,
        id: u8,
    },
    ReleaseAll {
        resource: u8,
    },
    Prolong {
        resource: u8,
        id: u8,
        ttl: u64,
    },
    Leave(usize),
    Pass(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let (resource, id, ttl) = (0..2_u8, 0..4_u8, 1..20_u64);
    let mode = prop_oneof![Just(Mode::Read), Just(Mode::Write)];
    let step = prop_oneof![
        6 => (resource.clone(), id.clone(), mode, ttl.clone())
            .prop_map(|(resource, id, mode, ttl)| Step::Acquire { resource, id, mode, ttl }),
        3 => (resource.clone(), id.clone()).prop_map(|(resource, id)| Step::Release { resource, id }),
        1 => resource.clone().prop_map(|resource| Step::ReleaseAll { resource }),
        1 => (resource, id, ttl).prop_map(|(resource, id, ttl)| Step::Prolong { resource, id, ttl }),
        2 => any::<usize>().prop_map(Step::Leave),
        2 => (0..6_u64).prop_map(Step::Pass),
    ];
    prop::collection::vec(step, 0..200)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn it_behaves_like_lists(steps in steps()) {
        let start = Instant::now();
        let (mut table, mut model, mut now) = (Table::new(Limits::default(), 0), Model::default(), 0);
        let mut tickets = BTreeMap::new();
        for (token, step) in (0_u64..).zip(steps) {
            let at = |now: u64| start + Duration::from_secs(now);
            let name = |number: u8| number.to_string();
            match step {
                Step::Acquire { resource, id, mode, ttl } => {
                    let seconds = Duration::from_secs(ttl);
                    let got = table.acquire(&name(resource), &name(id), mode, seconds, at(now), token).unwrap();
                    prop_assert_eq!(got == Acquired::Granted, model.acquire(token, resource, id, mode, ttl, now));
                    if let Acquired::Waits(ticket) = got {
                        tickets.insert(token, (resource, ticket));
                    }
                }
                Step::Release { resource, id } => {
                    let want = model.end(now, |held| (held.0, held.1) == (resource, id));
                    prop_assert_eq!(table.release(&name(resource), &name(id), at(now)), want);
                }
                Step::ReleaseAll { resource } => {
                    let any = model.held.iter().any(|held| held.0 == resource);
                    model.held.retain(|held| held.0 != resource);
                    let want = (any, model.advance(resource, now));
                    prop_assert_eq!(table.release_all(&name(resource), at(now)), want);
                }
                Step::Prolong { resource, id, ttl } => {
                    let mut held = model.held.iter_mut().filter(|held| (held.0, held.1) == (resource, id));
                    let held = held.next().map(|held| held.3 = now + ttl).is_some();
                    let seconds = Duration::from_secs(ttl);
                    prop_assert_eq!(table.prolong(&name(resource), &name(id), seconds, at(now)), held);
                }
                Step::Leave(nth) => {
                    let Some((token, (resource, ticket))) = tickets.iter().nth(nth % tickets.len().max(1)) else {
                        continue;
                    };
                    let waits = model.line.iter().any(|waiter| waiter.0 == *token);
                    model.line.retain(|waiter| waiter.0 != *token);
                    let granted = if waits { model.advance(*resource, now) } else { Vec::new() };
                    prop_assert_eq!(table.leave(&name(*resource), *ticket, at(now)), (waits, granted));
                }
                // One second at a time: who gets what depends on the order in which locks end.
                Step::Pass(seconds) => for _ in 0..seconds {
                    now += 1;
                    let mut got = table.expire(at(now));
                    let mut want = Vec::new();
                    while let Some(next) = model.held.iter().filter(|held| held.3 <= now).min_by_key(|held| (held.3, held.0, held.1)).copied() {
                        want.extend(model.end(now, |held| *held == next).1);
                    }
                    got.sort_unstable();
                    want.sort_unstable();
                    prop_assert_eq!(got, want);
                },
            }
            prop_assert_eq!(table.locks(), model.held.len());
            prop_assert_eq!(table.waiting(), model.line.len());
            for resource in 0..2 {
                let held: Vec<_> = model.held.iter().filter(|held| held.0 == resource).collect();
                let alone = held.iter().all(|held| held.2 == Mode::Read) || held.len() == 1;
                prop_assert!(alone, "a writer is alone");
                prop_assert_eq!(table.is_held(&name(resource), None), !held.is_empty());
                for id in 0..4 {
                    let holds = held.iter().any(|held| held.1 == id);
                    prop_assert_eq!(table.is_held(&name(resource), Some(&name(id))), holds);
                }
                let waits = model.line.iter().any(|waiter| waiter.1 == resource);
                prop_assert_eq!(table.resources.contains_key(name(resource).as_str()), waits || !held.is_empty());
            }
            let next = model.held.iter().map(|held| held.3).min();
            prop_assert_eq!(table.next_end(), next.map(at));
        }
    }
}
