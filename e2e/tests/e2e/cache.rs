//! A cache in memory that the test, in Rust, and PHP processes share: both ends agree, and a
//! process that is killed at any mark of `ext/pronghorn/cache_segment.h`, or stopped, is in
//! nobody's way.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Child;
use std::time::{Duration, SystemTime};

use pronghorn_cache::Cache;
use pronghorn_cache::layout::{
    AT_VERSION, BYTES, ENTRY, ENTRY_TOUCHED, FLOAT, IGBINARY, INTEGER, NULL, SERIALIZED,
    SMALLEST_BLOCK, TRUE, VERSION, WRITTEN_SHIFT,
};
use pronghorn_e2e::cache::{
    BUSY, POOLS, compare_with_models, entry, is_sound, kill_workers_at_random, php, scribble,
};
use pronghorn_testkit::{Server, Site, binary, time, wait_for};
use rustix::process::{Pid, Signal, kill_process};

use crate::killed::build_with_marks;
use crate::ring::extension;

fn said(cache: &Cache, code: &str) -> String {
    let php = php(cache, &extension(), code, "").wait_with_output();
    let php = php.expect("it ends");
    assert!(php.status.success(), "{php:?}");
    String::from_utf8(php.stdout).expect("text")
}

#[test]
fn both_ends_read_what_the_other_one_writes() {
    let cache = Cache::new(16 << 20, 5).expect("there is memory");
    said(
        &cache,
        "for ($i = 0; $i < 300; $i++) { $c->set(str_repeat('k', $i + 1), str_repeat(chr($i % 256), $i * 7)); }
         $c->set('int', -5); $c->set('float', 1.5); $c->set('null', null); $c->set('true', true);
         $c->set('array', ['a' => [1]]); $c->set('ends', 1, 60.0);
         $c->set(str_repeat(implode(array_map(chr(...), range(0, 255))), 256), 'any');",
    );
    let any: Vec<u8> = (0..=255).cycle().take(64 << 10).collect();
    let found = cache.get(&any).expect("a key may have any bytes");
    assert_eq!(found.value(), b"any");
    for i in 0..300_usize {
        let found = cache.get(&vec![b'k'; i + 1]).expect("it was set");
        let byte = u8::try_from(i % 256).expect("a byte");
        assert_eq!(found.value(), vec![byte; i * 7], "{i}");
    }
    let kind = |key: &str| cache.get(key.as_bytes()).map(|it| it.kind());
    for (key, of) in [
        ("int", INTEGER),
        ("float", FLOAT),
        ("null", NULL),
        ("true", TRUE),
    ] {
        assert_eq!(kind(key), Some(of), "{key}");
    }
    assert!(kind("array").is_some_and(|kind| kind >= SERIALIZED));
    let left = Cache::until(cache.get(b"ends").expect("it was set").ends());
    assert!(
        left > Duration::from_secs(50) && left <= Duration::from_secs(60),
        "{left:?}"
    );

    for length in 0..200 {
        cache
            .set(&entry(format!("r{length}").as_bytes(), &vec![7; length]))
            .expect("kept");
    }
    cache.increment(b"n", 41, 0).expect("kept");
    let code = "for ($i = 0; $i < 200; $i++) { if ($c->get(\"r$i\") !== str_repeat(chr(7), $i)) { echo \"$i \"; } }
         echo $c->increment('n'), json_encode([$c->get('array'), $c->get('int'), $c->get('float'), $c->get('null', 7), $c->get('true')]);";
    assert_eq!(said(&cache, code), r#"42[{"a":[1]},-5,1.5,null,true]"#);
    assert_eq!(
        said(
            &cache,
            "echo $c->clear('r'), ' ', $c->delete('int') ? 'gone' : '';"
        ),
        "200 gone"
    );
    assert_eq!(cache.get(b"r5"), None);
    said(
        &cache,
        "$c->set('over', 1, 0.001); usleep(3000); $c->set('over', 2);",
    );
    assert_eq!(cache.figures().evictions, 0, "what is over need not go");
}

#[test]
fn counters_of_several_processes_lose_nothing() {
    let cache = Cache::new(8 << 20, 6).expect("there is memory");
    let code = "for ($i = 0; $i < 20000; $i++) { $c->increment('n'); $c->set('k' . $i % 50, str_repeat('v', $i % 500)); $c->add(\"once$i\", 1) && $c->increment('added'); }";
    let others: Vec<Child> = (0..3)
        .map(|_| php(&cache, &extension(), code, ""))
        .collect();
    for _ in 0..20_000 {
        cache.increment(b"n", 1, 0).expect("kept");
    }
    for other in others {
        assert!(other.wait_with_output().expect("it ends").status.success());
    }
    assert_eq!(cache.increment(b"n", 0, 0), Ok(Some(80_000)));
    assert!(
        cache
            .increment(b"added", 0, 0)
            .is_ok_and(|it| it >= Some(20_000))
    );
}

#[test]
fn a_process_that_is_killed_at_any_mark_is_in_nobodys_way() {
    let header = std::fs::read_to_string(
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../ext/pronghorn/cache_segment.h"),
    )
    .expect("it is there");
    let marks: Vec<&str> = header
        .lines()
        .filter_map(|line| line.strip_prefix("\tmark(")?.split_once(')'))
        .map(|(mark, _)| mark)
        .collect();
    assert!(marks.len() > 5, "{marks:?}");
    for mark in marks {
        let cache = Cache::new(2 << 20, 7).expect("there is memory");
        for round in 0..3 {
            let what = format!("{mark}, {round}");
            let killed = php(&cache, &build_with_marks(), BUSY, mark).wait_with_output();
            let status = killed.expect("it ends").status;
            assert_eq!(status.signal(), Some(9), "{what}: {status}");
            is_sound(&cache, &what);
            cache.delete(b"free");
        }
    }
}

#[test]
fn what_can_not_be_kept_is_refused_and_harms_nothing() {
    let cache = Cache::new(16 << 20, 9).expect("there is memory");
    let code = "$c->set('a', 1);
        try { $c->set('a', fn () => 1); } catch (Exception $e) { echo $e->getMessage(), ' '; }
        class Odd { public function __serialize(): array { throw new Error('no'); } }
        try { $c->add('b', new Odd()); } catch (Error $e) { echo $e->getMessage(), ' '; }
        $most = 131072 - 32 - 1;
        echo json_encode([$c->set('a', str_repeat('x', 1 << 24)), $c->set('l', str_repeat('x', $most)), $c->set('l', str_repeat('x', $most + 1)), $c->set('e', '')]);
        echo json_encode([$c->get('a'), $c->get('b'), strlen($c->get('l')), $c->get('e')]);
        foreach (['', str_repeat('k', 65537)] as $key) { try { $c->get($key); } catch (ValueError) { echo ' refused'; } }";
    let expected = "Serialization of 'Closure' is not allowed no [false,true,false,true][1,null,131039,\"\"] refused refused";
    assert_eq!(said(&cache, code), expected);
}

#[test]
fn a_value_is_computed_once_by_all_processes() {
    const PROCESSES: i64 = 5;
    let cache = Cache::new(4 << 20, 19).expect("there is memory");
    let packages = concat!(env!("CARGO_MANIFEST_DIR"), "/../php/autoload.php");
    let code = format!(
        "require '{packages}'; require_once 'Psr/SimpleCache/autoload.php';
         $cache = Pronghorn\\Cache\\Cache::open('it');
         $c->increment('up');
         while (!$c->get('go')) {{ usleep(100); }}
         echo $cache->remember('menu', 60.0, function () use ($c) {{
             usleep(50_000);
             return $c->increment('computed') . ' by ' . getmypid();
         }});"
    );
    let start = |_| php(&cache, &extension(), &code, "");
    let all: Vec<Child> = (0..PROCESSES).map(start).collect();
    wait_for("all of them", || {
        (cache.increment(b"up", 0, 0) == Ok(Some(PROCESSES))).then_some(())
    });
    cache.set(&entry(b"go", b"1")).expect("kept");
    let ended = all.into_iter().map(Child::wait_with_output);
    let said = ended.map(|it| String::from_utf8(it.expect("it ends").stdout).expect("text"));
    let said: Vec<String> = said.collect();
    assert!(said[0].starts_with("1 by "), "{said:?}");
    assert!(said.iter().all(|it| *it == said[0]), "{said:?}");
}

/// All compute a value that is too long for an entry at once: nobody waits for what is not kept.
#[test]
fn a_value_that_is_too_long_is_computed_side_by_side() {
    const PROCESSES: i64 = 6;
    let cache = Cache::new(4 << 20, 20).expect("there is memory");
    let packages = concat!(env!("CARGO_MANIFEST_DIR"), "/../php/autoload.php");
    // Each computation ends when all others have begun.
    let code = format!(
        "ini_set('error_log', '/dev/stdout'); require '{packages}'; require_once 'Psr/SimpleCache/autoload.php';
         $cache = Pronghorn\\Cache\\Cache::open('it', 'shop:');
         $compute = function () use ($c) {{
             $c->increment('computing');
             $since = hrtime(true);
             while ($c->get('all') && $c->get('computing') < {PROCESSES} && hrtime(true) - $since < 10e9) {{ usleep(1000); }}
             echo $c->get('all') && $c->get('computing') < {PROCESSES} ? 'alone ' : '';
             return str_repeat('secret', 1 << 16);
         }};
         $c->increment('up');
         while (!$c->get('go')) {{ usleep(100); }}
         echo strlen($cache->remember('menu:secret', 60.0, $compute)), ' ';"
    );
    let warned = format!(
        "{} has: it has 393",
        "Cache::remember() computes each time what a key with the prefix `shop:menu:`"
    );
    cache.set(&entry(b"go", b"1")).expect("kept");
    let first = said(&cache, &code);
    assert!(first.contains(&warned), "{first}");
    assert!(first.contains("at most 65504"), "{first}");
    assert!(!first.contains("secret"), "{first}");
    cache.delete(b"go");
    cache.delete(b"computing");
    cache.delete(b"up");
    cache.set(&entry(b"all", b"1")).expect("kept");
    let all: Vec<Child> = (0..PROCESSES)
        .map(|_| php(&cache, &extension(), &code, ""))
        .collect();
    wait_for("all of them", || {
        (cache.increment(b"up", 0, 0) == Ok(Some(PROCESSES))).then_some(())
    });
    cache.set(&entry(b"go", b"1")).expect("kept");
    for one in all {
        let said = one.wait_with_output().expect("it ends").stdout;
        let said = String::from_utf8(said).expect("text");
        assert!(said.contains("393216") && !said.contains("alone"), "{said}");
    }
}

#[test]
fn one_goes_on_in_the_place_of_a_process_that_is_killed_while_it_computes() {
    const OTHERS: i64 = 4;
    let cache = Cache::new(4 << 20, 23).expect("there is memory");
    let packages = concat!(env!("CARGO_MANIFEST_DIR"), "/../php/autoload.php");
    let begin = format!(
        "require '{packages}'; require_once 'Psr/SimpleCache/autoload.php';
         $cache = Pronghorn\\Cache\\Cache::open('it');"
    );
    let first = format!(
        "{begin} $cache->remember('menu', 60.0, function () use ($c) {{
             $c->increment('up');
             sleep(60);
         }});"
    );
    let other = format!(
        "{begin} $c->increment('up');
         echo $cache->remember('menu', 60.0, fn () => $c->increment('computed') . ' by ' . getmypid());"
    );
    let is_up = |count: i64| {
        wait_for("all of them", || {
            (cache.increment(b"up", 0, 0) == Ok(Some(count))).then_some(())
        });
    };
    let mut killed = php(&cache, &extension(), &first, "");
    is_up(1);
    let others: Vec<Child> = (0..OTHERS)
        .map(|_| php(&cache, &extension(), &other, ""))
        .collect();
    is_up(1 + OTHERS);
    let (said, took) = time(|| {
        killed.kill().expect("it runs");
        killed.wait().expect("it ends");
        let ended = others.into_iter().map(Child::wait_with_output);
        let said = ended.map(|it| String::from_utf8(it.expect("it ends").stdout).expect("text"));
        said.collect::<Vec<String>>()
    });
    assert!(said[0].starts_with("1 by "), "{said:?}");
    assert!(said.iter().all(|it| *it == said[0]), "{said:?}");
    assert!(took < Duration::from_secs(10), "{took:?}");
}

/// Where `scripts/php-extensions` has unpacked it.
fn igbinary() -> String {
    let binary = binary();
    let target = binary.ancestors().nth(2).expect("it lies in target/debug");
    let list = target.join("tools/php-extensions/list");
    let text = std::fs::read_to_string(&list).expect("`scripts/php-extensions` makes it");
    let mut lines = text.lines();
    let options = lines.find_map(|line| line.strip_prefix("igbinary "));
    options.expect("it was unpacked").trim().to_owned()
}

#[test]
fn arrays_are_igbinarys_where_it_is_loaded() {
    let cache = Cache::new(1 << 20, 18).expect("there is memory");
    let with_it = format!("{} {}", extension().display(), igbinary());
    let said_with_it = |code: &str| {
        let php = php(&cache, Path::new(&with_it), code, "").wait_with_output();
        String::from_utf8(php.expect("it ends").stdout).expect("text")
    };
    let code = "$c->set('array', ['a' => [1, 2]]); $c->set('text', 'as it is');
        try { $c->set('array', fn () => 1); } catch (Exception) { echo 'refused '; }
        echo json_encode([$c->get('array'), $c->compareAndSwap('array', ['a' => [1, 2]], [3]), $c->get('array')]);";
    assert_eq!(said_with_it(code), r#"refused [{"a":[1,2]},true,[3]]"#);
    let kind = |key: &str| cache.get(key.as_bytes()).map(|it| it.kind());
    assert_eq!([kind("array"), kind("text")], [Some(IGBINARY), Some(BYTES)]);
    // Who has it not finds none of them, and is not harmed.
    let code = "$c->set('plain', [7]); echo json_encode([$c->get('array', 'none'), $c->get('text'), $c->many(['array', 'text'])]);";
    assert_eq!(
        said(&cache, code),
        r#"["none","as it is",{"text":"as it is"}]"#
    );
    assert_eq!(said_with_it("echo json_encode($c->get('plain'));"), "[7]");
}

/// Each leaves a block in which it has written little.
#[test]
fn processes_that_come_and_go_cost_no_entry() {
    let cache = Cache::new(1 << 20, 15).expect("there is memory");
    for number in 0..40 {
        said(&cache, &format!("$c->set('key{number}', {number});"));
    }
    let code =
        "for ($i = $n = 0; $i < 40; $i++) { $n += $c->get(\"key$i\") === $i ? 1 : 0; } echo $n;";
    assert_eq!(said(&cache, code), "40");
    assert_eq!(cache.figures().evictions, 0);
}

#[test]
fn reads_of_php_are_sampled_and_its_entries_have_an_age() {
    let cache = Cache::new(1 << 20, 16).expect("there is memory");
    said(
        &cache,
        "foreach (['often', 'seldom'] as $key) { $c->set($key, $key); }
         for ($i = 0; $i < 64000; $i++) { $c->get($i % 64 < 8 ? 'seldom' : 'often'); }",
    );
    let lately = cache.read_lately();
    let seldom = lately.iter().filter(|key| **key == b"seldom").count();
    assert_eq!(lately.len(), 256);
    assert!((16..=48).contains(&seldom), "an eighth of 256: {seldom}");

    let oldest = || cache.survey().oldest.expect("there are two");
    assert!(oldest() < Duration::from_secs(60));
    // Made older where it lies, it stays as old wherever PHP moves it.
    let memory = File::from(cache.file().try_clone_to_owned().expect("a descriptor"));
    let mut bytes = vec![0; usize::try_from(cache.figures().used).expect("1 MB")];
    memory.read_exact_at(&mut bytes, 0).expect("all is there");
    let mut places = bytes.windows(10);
    let place = places.position(|it| it == b"oftenoften").expect("there");
    let at = place - ENTRY + ENTRY_TOUCHED;
    let used = u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four"));
    let older = (used - (100 << WRITTEN_SHIFT)).to_le_bytes();
    memory.write_all_at(&older, at as u64).expect("written");
    let churn = "for ($i = 0; $i < 20000; $i++) { $c->set(\"k$i\", str_repeat('x', 300)); $c->get('often'); }
        echo $c->get('often');";
    assert_eq!(said(&cache, churn), "often");
    assert!(cache.figures().evictions > 10_000, "it was moved");
    assert!(oldest() >= Duration::from_secs(100), "{:?}", oldest());
    said(&cache, "$c->set('often', 'new');");
    assert!(oldest() < Duration::from_secs(100), "{:?}", oldest());
}

/// The file is shorter than the segment says: the kernel refuses the pages behind two blocks, as a
/// machine without memory does.
#[test]
fn php_lives_with_memory_that_the_kernel_refuses() {
    let memory = Cache::new(1 << 20, 17).expect("there is memory");
    let mut index = vec![0; usize::try_from(memory.figures().used).expect("1 MB")];
    let of_memory = memory.file().try_clone_to_owned().expect("a descriptor");
    let read = File::from(of_memory).read_exact_at(&mut index, 0);
    read.expect("the index is there");
    let site = Site::new();
    let mut options = File::options();
    let options = options.read(true).write(true).create_new(true);
    let file = options.open(site.path("segment")).expect("a file");
    file.write_all_at(&index, 0).expect("written");
    file.set_len(memory.figures().size).expect("as long");
    let cache = Cache::map(file.try_clone().expect("a descriptor").into());
    let cache = cache.expect("mapped").expect("this release");
    // PHP maps it as long as it is, and then it loses its end.
    let code = "file_put_contents('%s', '');
        while (!file_exists('%s')) { usleep(1000); clearstatcache(); }
        for ($i = $kept = 0; $i < 3000; $i++) {
            $kept += $c->set(\"k$i\", str_repeat('x', 300)) && $c->get(\"k$i\") === str_repeat('x', 300) ? 1 : 0;
        }
        echo $kept;";
    let (mapped, cut) = (site.path("mapped"), site.path("cut"));
    let code = code.replacen("%s", &mapped.display().to_string(), 1);
    let code = code.replacen("%s", &cut.display().to_string(), 1);
    let process = php(&cache, &extension(), &code, "");
    wait_for("PHP to map it", || mapped.exists().then_some(()));
    let length = index.len() + 2 * SMALLEST_BLOCK;
    file.set_len(length as u64).expect("cut");
    std::fs::write(&cut, "").expect("written");
    let ended = process.wait_with_output().expect("it ends");
    assert_eq!(String::from_utf8_lossy(&ended.stdout), "3000", "{ended:?}");
}

/// The long form is in `make soak`.
#[test]
fn workers_that_are_killed_at_work_lose_nothing_and_tear_nothing() {
    for pool in POOLS {
        let survived = kill_workers_at_random(pool, 4);
        assert!(survived.sums > 100 && survived.visits > 100, "{survived:?}");
    }
}

#[test]
fn a_segment_of_another_version_is_not_mapped() {
    let cache = Cache::new(1 << 20, 10).expect("there is memory");
    let file = || cache.file().try_clone_to_owned().expect("a descriptor");
    let version = (VERSION + 1).to_le_bytes();
    let written = File::from(file()).write_all_at(&version, AT_VERSION as u64);
    written.expect("it may be written");
    assert!(Cache::map(file()).expect("it can be looked at").is_none());
    let code = "echo $c === null ? 'not there' : 'mapped';";
    assert_eq!(said(&cache, code), "not there");
}

/// The long form is in `make soak`.
#[test]
fn random_steps_of_several_processes_do_what_a_model_does() {
    compare_with_models(&extension(), 3, 20_000);
}

/// The long form is in `make soak`.
#[test]
fn processes_live_with_scribbles_over_the_memory() {
    let scribbles = scribble(&extension(), 2, 3_000);
    assert_eq!(scribbles, 6_000);
}

#[test]
fn stopped_processes_are_in_nobodys_way() {
    let cache = Cache::new(4 << 20, 8).expect("there is memory");
    for round in 0..10_u64 {
        let mut busy = php(&cache, &extension(), BUSY, "");
        let pid = Pid::from_raw(i32::try_from(busy.id()).expect("a pid")).expect("a pid");
        let before = cache.figures().writes;
        wait_for("it to write", || {
            (cache.figures().writes > before + 1000 + round * 17).then_some(())
        });
        kill_process(pid, Signal::STOP).expect("it runs");
        let began = SystemTime::now();
        is_sound(&cache, "stopped");
        assert!(began.elapsed().expect("time goes on") < Duration::from_secs(20));
        cache.delete(b"free");
        kill_process(pid, Signal::CONT).expect("it is there");
        busy.kill().expect("it runs");
        busy.wait().expect("it ends");
        is_sound(&cache, "gone on");
        cache.delete(b"free");
    }
}

/// A worker of each kind answers with what its storages have.
fn site(pool: &str, kv: &str) -> Site {
    let body = "$c = Pronghorn\\Cache\\SharedMemory::open('fast');
        return $c === null ? 'none' : (string) $c->increment('hits');";
    let script = "<?php $c = Pronghorn\\Cache\\SharedMemory::open('fast'); echo $c === null ? 'none' : $c->increment('hits');";
    let extension = extension().display().to_string();
    Site::new()
        .file("worker.php", &Site::sdk_worker(body))
        .file("public/index.php", script)
        .config(&format!(
            "version: '3'\nserver: {{command: php -d extension={extension} worker.php}}\n\
             http: {{address: 127.0.0.1:0, pool: {{num_workers: 2, {pool}}}}}\n\
             rpc: {{listen: 'tcp://127.0.0.1:0'}}\nlogs: {{level: debug}}\nkv: {kv}\n"
        ))
}

#[test]
fn workers_of_all_kinds_share_a_storage_with_rpc() {
    let php = format!("php: 'php -d extension={}'", extension().display());
    let classic = format!("mode: classic, root: public, {php}");
    let by_exec = format!("{classic}, spawn: exec");
    let forked = "transport: ring, spawn: fork";
    for pool in [
        "transport: ring",
        forked,
        "transport: relay",
        &classic,
        &by_exec,
    ] {
        let mut server = Server::start(site(
            pool,
            "{fast: {driver: memory}, other: {driver: memory}}",
        ));
        for hits in 1..=6 {
            assert_eq!(server.get("/").text(), hits.to_string(), "{pool}");
        }
        let mut rpc = crate::control::Rpc::connect(&server);
        let asked = rpc.call("kv.MGet", r#"{"storage":"Fast","items":[{"key":"hits"}]}"#);
        assert_eq!(
            asked, r#"{"items":[{"key":"hits","value":"aTo2Ow=="}]}"#,
            "i:6;"
        );
        assert_eq!(rpc.call("resetter.Reset", "\"http\""), "true");
        assert_eq!(server.get("/").text(), "7", "{pool}");
        drop(rpc);
        server.upgrade();
        assert_eq!(server.get("/").text(), "8", "{pool}: after an upgrade");
        server.stop();
    }
}

#[test]
fn a_pool_sees_the_storages_that_it_is_given() {
    for (storages, answer) in [("[]", "none"), ("[other]", "none"), ("[Fast]", "1")] {
        let pool = format!("storages: {storages}");
        let server = Server::start(site(
            &pool,
            "{fast: {driver: memory}, other: {driver: memory}}",
        ));
        assert_eq!(server.get("/").text(), answer, "{storages}");
        server.stop();
    }
}

/// By both ways to a storage.
#[test]
fn what_can_not_be_read_back_is_missing_and_no_time_is_refused() {
    let body = "$deep = [];
        for ($i = 0; $i < 4200; $i++) { $deep = [$deep]; }
        $said = [];
        $rpc = new Pronghorn\\Cache\\Rpc(Pronghorn\\Rpc::connect(), 'fast');
        foreach ([Pronghorn\\Cache\\SharedMemory::open('fast'), $rpc] as $store) {
            $warnings = 0;
            set_error_handler(function () use (&$warnings) { $warnings++; return true; });
            $store->set('deep', $deep);
            $said[] = [$store->get('deep', 'default'), $store->many(['deep']), $warnings];
            restore_error_handler();
            foreach ([0, -1.5] as $ttl) {
                try { $said[] = $store->increment('n', 5, $ttl); } catch (ValueError) { $said[] = 'refused'; }
            }
            $said[] = $store->get('n');
        }
        return json_encode($said);";
    let packages = concat!(env!("CARGO_MANIFEST_DIR"), "/../php/autoload.php");
    let worker =
        Site::sdk_worker(body).replacen("<?php", &format!("<?php require '{packages}';"), 1);
    let site = site("num_workers: 1", "{fast: {driver: memory}}").file("worker.php", &worker);
    let config = site.read(".rr.yaml");
    let server = Server::start(site.config(&config.replace("num_workers: 2, ", "")));
    assert_eq!(
        server.get("/").text(),
        r#"[["default",[],2],"refused","refused",null,["default",[],2],"refused","refused",null]"#
    );
    server.stop();
}

#[test]
fn a_worker_without_the_extension_goes_over_rpc() {
    let body = "$store = new Pronghorn\\Cache\\Rpc(Pronghorn\\Rpc::connect(), 'fast');
        $lock = new Pronghorn\\Cache\\Lock($store, 'l', 5.0);
        $sum = [$store->increment('n', 2), $store->add('a', [1]), $store->get('a'), $store->compareAndSwap('a', [1], null),
            $store->get('a', 7), $lock->acquire(), $lock->token() > 1, $lock->release(), $store->clear('n'), $store->get('n', 'gone')];
        return json_encode([class_exists('Pronghorn\\Cache\\SharedMemory', false), ...$sum]);";
    let packages = concat!(env!("CARGO_MANIFEST_DIR"), "/../php/autoload.php");
    let worker =
        Site::sdk_worker(body).replacen("<?php", &format!("<?php require '{packages}';"), 1);
    let site = site(
        "transport: relay, num_workers: 1",
        "{fast: {driver: memory}}",
    )
    .file("worker.php", &worker);
    let config = std::fs::read_to_string(site.path(".rr.yaml")).expect("it is there");
    let config = config.replace(&format!("-d extension={} ", extension().display()), "");
    let server = Server::start(site.config(&config.replace("num_workers: 2, ", "")));
    let answer = server.get("/").text();
    assert_eq!(
        answer,
        r#"[false,2,true,[1],true,null,true,true,true,1,"gone"]"#
    );
    server.stop();
}
