use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use proptest::prelude::*;

use crate::layout::{
    AT_SAMPLES, BUCKET, BYTES, HEAD, INTEGER, PUT, SAMPLES, SLOT_SHIFT, SMALLEST_BLOCK, STEP_SHIFT,
    TAG_SHIFT, c_header,
};
use crate::{Cache, NewEntry, Outcome, Refused};

const SIZE: usize = 16 << 20;

fn cache() -> Cache {
    Cache::new(SIZE, 7).expect("there is memory")
}

fn entry<'a>(key: &'a [u8], value: &'a [u8]) -> NewEntry<'a> {
    NewEntry {
        key,
        value,
        kind: BYTES,
        ends: 0,
    }
}

fn value(cache: &Cache, key: &[u8]) -> Option<Vec<u8>> {
    cache.get(key).map(crate::Entry::into_value)
}

#[test]
fn the_header_of_the_extension_has_these_numbers() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../ext/pronghorn/cache_layout.h"
    );
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(path, c_header()).expect("it can be written");
    }
    let written = std::fs::read_to_string(path).expect("it is there");
    assert_eq!(written, c_header(), "UPDATE_GOLDEN=1 writes it");
}

#[test]
fn what_is_set_is_read_replaced_and_deleted() {
    let cache = cache();
    assert_eq!(value(&cache, b"a"), None);
    let large = vec![7; 100_000];
    for new in [&b"1"[..], b"", &large] {
        cache.set(&entry(b"a", new)).unwrap();
        assert_eq!(value(&cache, b"a").as_deref(), Some(new));
    }
    assert!(cache.delete(b"a"));
    assert!(!cache.delete(b"a"));
    assert_eq!(value(&cache, b"a"), None);
    let key = vec![255; 64 << 10];
    cache.set(&entry(&key, b"long")).unwrap();
    assert_eq!(value(&cache, &key).as_deref(), Some(&b"long"[..]));
    assert_eq!(cache.survey().entries, 1);
}

#[test]
fn what_is_there_decides() {
    let cache = cache();
    assert_eq!(cache.add(&entry(b"a", b"1")), Ok(Outcome::Done));
    assert_eq!(cache.add(&entry(b"a", b"2")), Ok(Outcome::Differs));
    let swap = |old: &[u8], new: &[u8]| cache.compare_and_swap(BYTES, old, &entry(b"a", new));
    assert_eq!(swap(b"2", b"3"), Ok(Outcome::Differs));
    assert_eq!(swap(b"1", b"3"), Ok(Outcome::Done));
    assert_eq!(value(&cache, b"a").as_deref(), Some(&b"3"[..]));
    assert_eq!(cache.increment(b"a", 1, 0), Ok(None));
    assert_eq!(cache.increment(b"n", 5, 0), Ok(Some(5)));
    assert_eq!(cache.increment(b"n", -7, 0), Ok(Some(-2)));
    assert_eq!(cache.increment(b"n", i64::MIN, 0), Ok(None));
    assert_eq!(cache.increment(b"n", 0, 0), Ok(Some(-2)));
}

#[test]
fn an_entry_ends_in_time() {
    let cache = cache();
    let over = NewEntry {
        ends: Cache::end(Duration::ZERO),
        ..entry(b"over", b"1")
    };
    cache.set(&over).unwrap();
    assert_eq!(value(&cache, b"over"), None);
    assert_eq!(cache.add(&entry(b"over", b"2")), Ok(Outcome::Done));
    let later = Cache::end(Duration::from_secs(60));
    assert_eq!(cache.expire(b"over", later), Ok(Outcome::Done));
    assert_eq!(cache.get(b"over").unwrap().ends(), later);
    assert_eq!(
        cache.expire(b"over", Cache::end(Duration::ZERO)),
        Ok(Outcome::Done)
    );
    assert_eq!(value(&cache, b"over"), None);
    assert_eq!(cache.expire(b"no", later), Ok(Outcome::Differs));
}

#[test]
fn prefixes_are_cleared() {
    let cache = cache();
    for number in 0..1000 {
        let key = format!("{}:{number}", if number % 2 == 0 { "even" } else { "odd" });
        cache.set(&entry(key.as_bytes(), b"v")).unwrap();
    }
    assert_eq!(cache.clear(b"even:"), 500);
    assert_eq!(cache.survey().entries, 500);
    assert_eq!(value(&cache, b"odd:1").as_deref(), Some(&b"v"[..]));
    let mut seen = 0;
    cache.visit(|entry| {
        assert!(entry.key().starts_with(b"odd:"));
        seen += 1;
        seen < 10
    });
    assert_eq!(seen, 10);
    assert_eq!(cache.clear(b""), 500);
    assert_eq!(cache.survey().entries, 0);
}

#[test]
fn a_full_cache_keeps_what_is_read() {
    let cache = cache();
    cache.set(&entry(b"kept", b"v")).unwrap();
    let value_of = [1; 1000];
    for number in 0..30_000_u32 {
        cache.set(&entry(&number.to_le_bytes(), &value_of)).unwrap();
        if number % 100 == 0 {
            assert_eq!(
                value(&cache, b"kept").as_deref(),
                Some(&b"v"[..]),
                "{number}"
            );
        }
    }
    assert_eq!(
        value(&cache, &29_999_u32.to_le_bytes()),
        Some(value_of.to_vec())
    );
    let figures = cache.figures();
    assert!(figures.evictions > 10_000, "{figures:?}");
    assert!(cache.survey().entries > 8_000, "{figures:?}");
    assert!(figures.used <= SIZE as u64, "{figures:?}");
}

#[test]
fn what_is_set_again_and_again_loses_nothing_else() {
    let cache = Cache::new(4 << 20, 7).expect("there is memory");
    for number in 0..1000_u32 {
        cache.set(&entry(&number.to_le_bytes(), b"kept")).unwrap();
    }
    for _ in 0..200_000 {
        cache.increment(b"n", 1, 0).unwrap();
    }
    assert_eq!(cache.increment(b"n", 0, 0), Ok(Some(200_000)));
    for number in 0..1000_u32 {
        let kept = value(&cache, &number.to_le_bytes());
        assert_eq!(kept.as_deref(), Some(&b"kept"[..]), "{number}");
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let cache = cache();
    let large = vec![0; 1 << 20];
    let refused = cache.set(&entry(b"a", &large)).unwrap_err();
    let Refused::TooLong { most } = refused else {
        panic!("{refused:?}");
    };
    cache.set(&entry(b"a", &large[..most - 1])).unwrap();
}

#[test]
fn processes_that_write_at_once_lose_nothing() {
    let first = Arc::new(Cache::new(4 << 20, 7).expect("there is memory"));
    let added = Arc::new(AtomicU64::new(0));
    let others = (0..4).map(|me: u64| {
        let file = first.file().try_clone_to_owned().expect("a descriptor");
        let cache = Cache::map(file).unwrap().expect("the same release");
        let added = added.clone();
        thread::spawn(move || {
            let mut random = fastrand::Rng::with_seed(me);
            for round in 0..8_000_u64 {
                cache.increment(b"n", 1, 0).unwrap();
                let key = random.u64(..200).to_le_bytes();
                match random.u8(..4) {
                    0 => cache.set(&entry(&key, &key.repeat(20))).unwrap(),
                    1 => drop(cache.delete(&key)),
                    _ => {
                        let found = value(&cache, &key);
                        assert!(found.is_none_or(|found| found == key.repeat(20)));
                    }
                }
                let once = format!("once:{round}");
                if cache.add(&entry(once.as_bytes(), b"1")) == Ok(Outcome::Done) {
                    added.fetch_add(1, Ordering::Relaxed);
                }
                cache.get(once.as_bytes()).expect("it was added");
            }
        })
    });
    for other in others.collect::<Vec<_>>() {
        other.join().expect("it found nothing wrong");
    }
    assert_eq!(first.increment(b"n", 0, 0), Ok(Some(32_000)));
    assert_eq!(added.load(Ordering::Relaxed), 8_000, "each by one of them");
}

/// Whatever stands there, nobody reads or writes outside of the segment, and nothing panics.
#[test]
fn scribbles_harm_nobody() {
    let mut random = fastrand::Rng::with_seed(3);
    for round in 0..40 {
        let cache = Cache::new(1 << 20, round).unwrap();
        for step in 0..2_000_u32 {
            let key = random.u32(..500).to_le_bytes();
            match random.u8(..5) {
                0 => drop(cache.delete(&key)),
                1 => drop(cache.get(&key)),
                2 => drop(cache.increment(&key, 1, 0)),
                _ => drop(cache.set(&entry(&key, &[1; 300]))),
            }
            if step % 20 == 0 {
                cache.scribble(random.u64(..), random.u64(..));
                // The head and what it counts are small, and would be met seldom.
                cache.scribble(random.u64(8..HEAD as u64 / 8), random.u64(..));
            }
        }
        cache.survey();
        cache.read_lately();
        cache.clear(b"");
        cache.figures();
    }
}

#[test]
fn what_is_over_is_no_eviction() {
    let cache = Cache::new(1 << 20, 9).expect("there is memory");
    let entry = NewEntry {
        key: b"a",
        value: b"1",
        kind: BYTES,
        ends: 1,
    };
    cache.set(&entry).expect("kept");
    assert_eq!(cache.get(b"a"), None, "its end has come");
    cache.set(&NewEntry { ends: 0, ..entry }).expect("kept");
    assert!(cache.get(b"a").is_some());
    assert_eq!(cache.figures().evictions, 0);
    assert_eq!(cache.survey().entries, 1);
}

/// What a step does to a key, by one of three handles of one storage.
#[derive(Clone, Debug)]
enum Act {
    Set {
        length: usize,
        end: End,
    },
    Add {
        length: usize,
        end: End,
    },
    Swap {
        is_right: bool,
        length: usize,
    },
    Increment(i64),
    Delete,
    Expire(End),
    /// All whose key begins as this one.
    Clear,
    /// The handle is dropped, and the storage is mapped anew.
    Reopen,
}

#[derive(Clone, Copy, Debug)]
enum End {
    Never,
    Later,
    Past,
}

impl End {
    fn moment(self) -> u64 {
        match self {
            Self::Never => 0,
            Self::Later => Cache::end(Duration::from_secs(3600)),
            Self::Past => 1,
        }
    }
}

fn acts() -> impl Strategy<Value = Act> {
    let end = || prop_oneof![4 => Just(End::Never), 3 => Just(End::Later), 1 => Just(End::Past)];
    let length = || prop_oneof![3 => 0..200_usize, 1 => 0..4000_usize];
    prop_oneof![
        8 => (length(), end()).prop_map(|(length, end)| Act::Set { length, end }),
        3 => (length(), end()).prop_map(|(length, end)| Act::Add { length, end }),
        3 => (any::<bool>(), length()).prop_map(|(is_right, length)| Act::Swap { is_right, length }),
        3 => prop_oneof![4 => -9..9_i64, 1 => Just(i64::MAX)].prop_map(Act::Increment),
        3 => Just(Act::Delete),
        2 => end().prop_map(Act::Expire),
        1 => Just(Act::Clear),
        1 => Just(Act::Reopen),
    ]
}

/// Keys of every length and with any bytes; several begin with another one.
fn model_key(number: u8) -> Vec<u8> {
    match number {
        0 => vec![0],
        1 => vec![255; 20_000],
        2..10 => vec![0, number],
        10..20 => vec![number; 3],
        _ => format!("key:{number}").into_bytes(),
    }
}

/// Kind and value, of what is not over.
type Model = HashMap<Vec<u8>, (u32, Vec<u8>)>;

fn act(handles: &mut [Cache], handle: usize, key: &[u8], act: &Act, model: &mut Model) {
    let there = model.get(key).cloned();
    let fresh = |length: usize| vec![u8::try_from(length % 251).expect("a byte"); length];
    let cache = &handles[handle];
    let kept = |model: &mut Model, value: Vec<u8>, end: End| match end {
        End::Past => drop(model.remove(key)),
        _ => drop(model.insert(key.to_vec(), (BYTES, value))),
    };
    match *act {
        Act::Set { length, end } => {
            let ends = end.moment();
            let value = fresh(length);
            cache
                .set(&NewEntry {
                    ends,
                    ..entry(key, &value)
                })
                .expect("there is room");
            kept(model, value, end);
        }
        Act::Add { length, end } => {
            let ends = end.moment();
            let value = fresh(length);
            let done = cache.add(&NewEntry {
                ends,
                ..entry(key, &value)
            });
            if there.is_none() {
                assert_eq!(done, Ok(Outcome::Done));
                kept(model, value, end);
            } else {
                assert_eq!(done, Ok(Outcome::Differs));
            }
        }
        Act::Swap { is_right, length } => {
            let (kind, before) = there.clone().unwrap_or_else(|| (BYTES, b"-".to_vec()));
            let before = if is_right { before } else { b"no".to_vec() };
            let value = fresh(length);
            let done = cache.compare_and_swap(kind, &before, &entry(key, &value));
            if there == Some((kind, before)) {
                assert_eq!(done, Ok(Outcome::Done));
                kept(model, value, End::Never);
            } else {
                assert_eq!(done, Ok(Outcome::Differs));
            }
        }
        Act::Increment(by) => {
            let before = match &there {
                None => Some(0),
                Some((INTEGER, value)) => value[..].try_into().ok().map(i64::from_le_bytes),
                Some(_) => None,
            };
            let sum = before.and_then(|before| before.checked_add(by));
            assert_eq!(cache.increment(key, by, 0), Ok(sum));
            if let Some(sum) = sum {
                model.insert(key.to_vec(), (INTEGER, sum.to_le_bytes().to_vec()));
            }
        }
        Act::Delete => {
            assert_eq!(cache.delete(key), there.is_some());
            model.remove(key);
        }
        Act::Expire(end) => {
            let done = cache.expire(key, end.moment());
            let expected = if there.is_some() {
                Outcome::Done
            } else {
                Outcome::Differs
            };
            assert_eq!(done, Ok(expected));
            if matches!(end, End::Past) {
                model.remove(key);
            }
        }
        Act::Clear => {
            // What is over and not removed yet counts as well.
            let before = model.len();
            model.retain(|other, _| !other.starts_with(key));
            assert!(cache.clear(key) >= before - model.len());
        }
        Act::Reopen => {
            let file = cache.file().try_clone_to_owned().expect("a descriptor");
            handles[handle] = Cache::map(file).expect("mapped").expect("this release");
        }
    }
}

/// More in `make soak`.
fn cases() -> u32 {
    let written = std::env::var("PRONGHORN_MODEL_STEPS").ok();
    let steps: Option<u32> = written.and_then(|text| text.parse().ok());
    steps.map_or(8, |steps| (steps / 500).max(1))
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: cases(), failure_persistence: None, ..ProptestConfig::default()
    })]

    /// Much more is written than there is room for, and little is alive: blocks are emptied all the
    /// time, and nothing may be lost.
    #[test]
    fn it_behaves_like_a_map(
        steps in prop::collection::vec((0..3_usize, 0..40_u8, acts()), 0..4000)
    ) {
        let first = Cache::new(1 << 20, 7).expect("there is memory");
        let map = || {
            let file = first.file().try_clone_to_owned().expect("a descriptor");
            Cache::map(file).expect("mapped").expect("this release")
        };
        let mut handles = [map(), map(), map()];
        let mut model = Model::new();
        for (handle, number, step) in &steps {
            let key = model_key(*number);
            act(&mut handles, *handle, &key, step, &mut model);
            let reader = &handles[(handle + 1) % handles.len()];
            let found = reader.get(&key).map(|it| (it.kind(), it.into_value()));
            prop_assert_eq!(found.as_ref(), model.get(&key));
        }
        for number in 0..40 {
            let key = model_key(number);
            let found = first.get(&key).map(|it| (it.kind(), it.into_value()));
            prop_assert_eq!(found.as_ref(), model.get(&key));
        }
        prop_assert_eq!(first.figures().evictions, 0);
    }
}

/// Each leaves its block nearly empty, as a worker does that ends: that is no reason to lose an
/// entry.
#[test]
fn many_that_come_and_go_cost_no_entry() {
    let first = Cache::new(1 << 20, 7).expect("there is memory");
    for number in 0..100_u32 {
        first.set(&entry(&number.to_le_bytes(), b"kept")).unwrap();
    }
    for number in 100..400_u32 {
        let file = first.file().try_clone_to_owned().expect("a descriptor");
        let other = Cache::map(file).expect("mapped").expect("this release");
        other.set(&entry(&number.to_le_bytes(), b"kept")).unwrap();
    }
    for number in 0..400_u32 {
        let kept = value(&first, &number.to_le_bytes());
        assert_eq!(kept.as_deref(), Some(&b"kept"[..]), "{number}");
    }
    assert_eq!(first.figures().evictions, 0);
}

#[test]
fn what_is_read_most_is_sampled_most() {
    let cache = cache();
    for key in ["often", "seldom", "never"] {
        cache.set(&entry(key.as_bytes(), b"1")).unwrap();
    }
    // A rhythm of 64 reads would always meet the same one, if each 64th was taken.
    for number in 0..64_000 {
        let key: &[u8] = if number % 64 < 8 { b"seldom" } else { b"often" };
        cache.get(key).expect("it is there");
    }
    let lately = cache.read_lately();
    assert_eq!(lately.len(), 256);
    let seldom = lately.iter().filter(|key| **key == b"seldom").count();
    assert!((16..=48).contains(&seldom), "an eighth of 256: {seldom}");
    assert!(lately.iter().all(|key| key != b"never"));

    // What was removed may be told until its place is taken by others.
    cache.clear(b"");
    for number in 0..400_u32 {
        cache
            .set(&entry(&number.to_le_bytes(), &vec![1; 100_000]))
            .unwrap();
    }
    let lately = cache.read_lately();
    assert!(lately.is_empty(), "{} of them", lately.len());
}

#[test]
fn samples_that_were_scribbled_on_tell_no_key() {
    let cache = Cache::new(1 << 20, 7).unwrap();
    cache.set(&entry(b"a", b"1")).unwrap();
    cache.get(b"a").expect("it is there");
    assert_eq!(cache.read_lately(), [b"a"]);
    let mut random = fastrand::Rng::with_seed(4);
    for _ in 0..20_000 {
        let sample = (AT_SAMPLES / 8 + random.usize(..SAMPLES)) as u64;
        let place = random.u64(..1 << 17);
        cache.scribble(sample, random.u64(..1 << 12) << TAG_SHIFT | place);
        assert!(cache.read_lately().iter().all(|key| key == b"a"));
    }
}

#[test]
fn an_entry_is_as_old_as_its_last_writing_also_where_it_was_moved() {
    let cache = Cache::new(1 << 20, 7).unwrap();
    assert_eq!(cache.survey(), crate::Survey::default());
    cache.set(&entry(b"old", b"kept")).unwrap();
    let oldest = || cache.survey().oldest.expect("there is one");
    assert!(oldest() < Duration::from_secs(60));
    let long = Duration::from_secs(100);
    cache.backdate(b"old", 100);
    assert!(oldest() >= long, "{:?}", oldest());
    for number in 0..20_000_u32 {
        cache.set(&entry(&number.to_le_bytes(), &[1; 300])).unwrap();
        cache.get(b"old").expect("it is read again and again");
    }
    assert!(cache.figures().evictions > 10_000, "it was moved");
    assert!(oldest() >= long, "{:?}", oldest());
    cache.set(&entry(b"old", b"new")).unwrap();
    assert!(oldest() < long, "{:?}", oldest());
}

/// An announcement that names the last bytes of the segment.
#[test]
fn a_place_without_room_for_an_entry_is_none() {
    let cache = Cache::new(1 << 20, 7).unwrap();
    let size = cache.figures().size;
    for bucket in 0..4096 {
        let word = PUT << STEP_SHIFT | 1 << SLOT_SHIFT | (size / 8 - 1);
        cache.scribble((HEAD as u64 + bucket * BUCKET as u64) / 8, word);
    }
    for key in 0..1000_u32 {
        cache.set(&entry(&key.to_le_bytes(), b"v")).unwrap();
        assert!(cache.get(&key.to_le_bytes()).is_some(), "{key}");
    }
}

/// The kernel has memory for the index and two blocks: as the file is too short, it refuses the
/// pages behind, as a machine does that has none.
#[test]
fn memory_that_the_kernel_refuses_is_no_death() {
    let first = Cache::new(1 << 20, 7).unwrap();
    let mut index = vec![0; usize::try_from(first.figures().used).unwrap()];
    let memory = File::from(first.file().try_clone_to_owned().unwrap());
    memory.read_exact_at(&mut index, 0).unwrap();
    let path = std::env::temp_dir().join(format!("pronghorn-refused-{}", std::process::id()));
    let mut options = File::options();
    let file = options.read(true).write(true).create_new(true);
    let file = file.open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    file.write_all_at(&index, 0).unwrap();
    file.set_len(first.figures().size).unwrap();
    let cache = Cache::map(file.try_clone().unwrap().into()).unwrap();
    let cache = cache.expect("this release");
    let room = 2 * SMALLEST_BLOCK as u64;
    file.set_len(index.len() as u64 + room).unwrap();
    for number in 0..3000_u32 {
        cache.set(&entry(&number.to_le_bytes(), &[1; 300])).unwrap();
        let found = value(&cache, &number.to_le_bytes());
        assert_eq!(found, Some(vec![1; 300]), "{number}");
    }
}
