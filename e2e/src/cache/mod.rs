//! A storage in shared memory that this process, in Rust, and PHP processes use at once: random
//! steps compared with a model, kills, and scribbles; and workers of a server that are killed at
//! work. For tests of every length.

mod workers;

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Stdio};

use pronghorn_cache::layout::BYTES;
use pronghorn_cache::{Cache, NewEntry, Outcome};
use pronghorn_testkit::{php_command, wait_for};

pub use workers::{POOLS, Survived, kill_workers_at_random};

/// Runs PHP with the storage as `$c`. `kill_at` is a mark of `cache_segment.h`, or nothing.
///
/// # Panics
///
/// When there is no PHP.
pub fn php(cache: &Cache, extension: &Path, code: &str, kill_at: &str) -> Child {
    let memory = format!(
        "/proc/{}/fd/{}",
        std::process::id(),
        cache.file().as_raw_fd()
    );
    let script = format!(
        "exec php -d extension={} -r \"$CODE\" 9<>{memory}",
        extension.display()
    );
    let code = format!("$c = Pronghorn\\Cache\\SharedMemory::open('it'); {code}");
    php_command("sh")
        .args(["-c", &script])
        .env("CODE", code)
        .env("PRONGHORN_CACHE", "9=it")
        .env("PRONGHORN_KILL_AT", kill_at)
        .stdout(Stdio::piped())
        .spawn()
        .expect("php runs")
}

/// Without an end.
pub fn entry<'a>(key: &'a [u8], value: &'a [u8]) -> NewEntry<'a> {
    NewEntry {
        key,
        value,
        kind: BYTES,
        ends: 0,
    }
}

/// Sets and deletes many keys, in a small cache, for longer than a test takes.
pub const BUSY: &str = "for ($i = 0; $i < 5_000_000; $i++) { $k = 'key' . $i % 700; $c->set($k, str_repeat($k, $i % 97 + 1)); $i % 5 || $c->delete('key' . ($i * 7 % 700)); }";

/// Whatever is there is right, and there is room for more than the cache holds.
///
/// # Panics
///
/// When it is not so.
pub fn is_sound(cache: &Cache, what: &str) {
    for number in 0..700 {
        let key = format!("key{number}");
        if let Some(found) = cache.get(key.as_bytes()) {
            let value = found.value();
            let is_right = value.chunks(key.len()).all(|part| part == key.as_bytes());
            assert!(is_right && !value.is_empty(), "{what}: {key}");
        }
    }
    for number in 0..10_000_u32 {
        let key = number.to_le_bytes();
        cache.set(&entry(&key, &[1; 300])).expect(what);
        assert!(
            cache.get(&key).is_some_and(|it| it.value() == [1; 300]),
            "{what}: {number}"
        );
    }
    assert_eq!(cache.add(&entry(b"free", b"")), Ok(Outcome::Done), "{what}");
}

/// Random steps, each compared with what an array would do. `ME`, `SEED` and `STEPS` are set
/// before.
const MODEL: &str = r#"
mt_srand(SEED);
$model = [];
$wrong = function (string $what) use (&$i): never { echo ME, ' with seed ', SEED, ", step $i: $what"; exit(1); };
$value = fn () => [
    mt_rand(), -1.5, null, true, false, '', random_bytes(mt_rand(1, 3000)), ['a' => [mt_rand()]],
][mt_rand(0, 7)];
for ($i = 0; $i < STEPS; $i++) {
    $key = ME . ':' . str_repeat(chr(mt_rand(0, 255)), mt_rand(0, 2)) . mt_rand(0, 9);
    $there = array_key_exists($key, $model);
    $new = $value();
    switch (mt_rand(0, 7)) {
        case 0: case 1:
            $c->set($key, $new) || $wrong('set');
            $model[$key] = $new;
            break;
        case 2:
            $c->add($key, $new, 3600.0) !== $there || $wrong('add');
            $there || $model[$key] = $new;
            break;
        case 3:
            $c->delete($key) === $there || $wrong('delete');
            unset($model[$key]);
            break;
        case 4:
            try {
                $sum = $c->increment($key, 7);
                $sum === ($model[$key] ?? 0) + 7 || $wrong('increment');
                $model[$key] = $sum;
            } catch (ValueError) {
                $there && !is_int($model[$key]) || $wrong('increment of what is none');
            }
            break;
        case 5:
            $old = mt_rand(0, 1) ? ($model[$key] ?? null) : 'something else';
            $may = $there && $model[$key] === $old;
            $c->compareAndSwap($key, $old, $new) === $may || $wrong('compareAndSwap');
            $may && $model[$key] = $new;
            break;
        case 6:
            $c->set($key, $new, mt_rand(0, 1) ? 0.0 : -1.0);
            unset($model[$key]);
            break;
        case 7:
            if (mt_rand(0, 99) === 0) {
                $c->clear(ME . ':') === count($model) || $wrong('clear');
                $model = [];
            }
    }
    $none = (object) [];
    $found = $c->get($key, $none);
    ($found === $none ? !array_key_exists($key, $model) : $found === ($model[$key] ?? null)) || $wrong('get');
}
$c->many(array_keys($model)) == $model || $wrong('many');
echo 'right';
"#;

/// Several processes do so many random steps each, with keys of their own in one storage.
///
/// # Panics
///
/// When one of them finds something that its model has not; with the seed.
pub fn compare_with_models(extension: &Path, processes: usize, steps: usize) {
    let cache = Cache::new(16 << 20, 11).expect("there is memory");
    let seed = std::process::id() % 10_000;
    let start = |me: usize| {
        let code = format!(
            "const ME = 'p{me}'; const SEED = {seed} + {me}; const STEPS = {steps}; {MODEL}"
        );
        php(&cache, extension, &code, "")
    };
    let all: Vec<Child> = (0..processes).map(start).collect();
    for process in all {
        let ended = process.wait_with_output().expect("it ends");
        let said = String::from_utf8_lossy(&ended.stdout);
        assert!(ended.status.success() && said == "right", "{said}");
    }
    assert_eq!(cache.figures().evictions, 0, "there was room for all");
}

/// Kills processes while they write, each after another number of its writes.
///
/// # Panics
///
/// When what is left is not sound.
pub fn kill_at_random(extension: &Path, kills: usize) {
    let cache = Cache::new(4 << 20, 12).expect("there is memory");
    for kill in 0..kills {
        let before = cache.figures().writes;
        let mut busy = php(&cache, extension, BUSY, "");
        let enough = before + 50 + (kill as u64 * 7919) % 20_000;
        wait_for("it to write", || {
            (cache.figures().writes > enough).then_some(())
        });
        busy.kill().expect("it runs");
        busy.wait().expect("it ends");
        is_sound(&cache, "killed");
        cache.delete(b"free");
    }
}

/// Reads and writes whatever is there, and finds nothing strange in it that is no value.
const ENDURES: &str = r"
set_error_handler(fn () => true);
while (!$c->get('stop')) {
    for ($i = 0; $i < 500; $i++) {
        $k = 'key' . mt_rand(0, 300);
        try {
            match (mt_rand(0, 5)) {
                0 => $c->set($k, str_repeat('x', mt_rand(0, 2000))),
                1 => $c->set($k, [$k, mt_rand()]),
                2 => $c->delete($k),
                3 => $c->increment($k),
                4 => mt_rand(0, 200) || $c->clear('key1'),
                5 => $c->get($k),
            };
        } catch (Error) {
        }
    }
    if (microtime(true) > $until) { break; }
}
echo 'alive';
";

/// Writes words anywhere into storages that PHP processes use; how many.
///
/// # Panics
///
/// When a process dies of it, or does not come to its end.
pub fn scribble(extension: &Path, storages: usize, words: usize) -> usize {
    let mut written = 0;
    for storage in 0..storages {
        let cache = Cache::new(1 << 20, 13 + storage as u64).expect("there is memory");
        let code = format!("$c->increment('up'); $until = microtime(true) + 30; {ENDURES}");
        let all: Vec<Child> = (0..2).map(|_| php(&cache, extension, &code, "")).collect();
        let memory = cache.file().try_clone_to_owned().expect("a descriptor");
        let memory = File::from(memory);
        let size = memory.metadata().expect("its size").len();
        // Who comes later may find a head that is scribbled on, and maps nothing.
        wait_for("both to write", || {
            let are_up = cache.increment(b"up", 0, 0) == Ok(Some(2));
            (are_up && cache.figures().writes > 2_000).then_some(())
        });
        // A few numbers that make sense in many places, and many that do not.
        let mut state = 0x9e37_79b9_7f4a_7c15_u64 ^ storage as u64;
        for word in 0..words {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let at = if word % 3 == 0 { state % 65_536 } else { state } % (size / 8) * 8;
            let value = match word % 4 {
                0 => state % 64,
                1 => state % size,
                _ => state.rotate_left(21),
            };
            memory
                .write_all_at(&value.to_le_bytes(), at)
                .expect("it may be written");
            written += 1;
            if word % 50 == 0 {
                // So that they meet it.
                std::thread::yield_now();
                drop(cache.get(b"key7"));
            }
        }
        _ = cache.set(&entry(b"stop", b"1"));
        for process in all {
            let ended = process.wait_with_output().expect("it ends");
            let said = String::from_utf8_lossy(&ended.stdout);
            assert!(
                ended.status.success() && said == "alive",
                "{}: {said}",
                ended.status
            );
        }
    }
    written
}
