use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use crate::layout::{BYTES, c_header};
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
    assert_eq!(cache.entries(), 1);
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
    assert_eq!(cache.entries(), 500);
    assert_eq!(value(&cache, b"odd:1").as_deref(), Some(&b"v"[..]));
    let mut seen = 0;
    cache.visit(|entry| {
        assert!(entry.key().starts_with(b"odd:"));
        seen += 1;
        seen < 10
    });
    assert_eq!(seen, 10);
    assert_eq!(cache.clear(b""), 500);
    assert_eq!(cache.entries(), 0);
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
    assert!(cache.entries() > 8_000, "{figures:?}");
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
            }
        }
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
    assert_eq!(cache.entries(), 1);
}
