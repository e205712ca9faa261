//! Workers that are forked from one PHP which has started its engine: what they share, and what
//! they do not.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;

use pronghorn_testkit::{Server, Site, wait_for};
use rustix::process::{Pid, Signal, kill_process};

use crate::classic::site;
use crate::ring::extension;

/// Answers with the worker's number and what its OPcache has, after a while in which others are
/// busy as well.
const STATUS: &str = "<?php
    usleep(20_000);
    $status = opcache_get_status();
    $cache = $status === false ? null : [$status['opcache_statistics']['num_cached_scripts'], $status['opcache_statistics']['misses']];
    echo getmypid(), ' ', json_encode($cache);";

/// What all of these sites have, so that files are cached that were just written.
const PROMPT: &str = ", ini: {opcache.file_update_protection: 0}";

fn start(workers: usize, more: &str) -> Server {
    Server::start(site(workers, &format!("{PROMPT}{more}")).file("public/index.php", STATUS))
}

/// A site whose PHP is a shell script, which does this when it is to be a zygote and is a PHP
/// otherwise. Its first line is that of a real one.
fn with_zygote(script: &str, more: &str) -> Site {
    let extension = extension().display().to_string();
    let site = site(1, more).file("public/index.php", "<?php echo 'served';").file(
        "php",
        &format!(
            "#!/bin/sh\nhello() {{ printf 'zygote 1 threads 1 jit 0 warm 0 ' >&3; }}\n\
             order() {{ dd bs=100 count=1 <&3 >order 2>/dev/null; }}\n\
             end() {{ cat <&3 >order; exit; }}\n\
             if [ -n \"$PRONGHORN_ZYGOTE\" ]; then\n{script}\nfi\nexec php -d extension={extension} \"$@\"\n"
        ),
    );
    let all = Permissions::from_mode(0o755);
    std::fs::set_permissions(site.path("php"), all).expect("it is there");
    site.change_config(&format!("php -d extension={extension}"), "./php");
    site
}

/// What so many different workers answer.
fn answers(server: &Server, workers: usize) -> Vec<(u32, String)> {
    let mut answers = Vec::new();
    wait_for("all workers to answer", || {
        let mut connections: Vec<_> = (0..workers).map(|_| server.connect()).collect();
        for connection in &mut connections {
            connection.request("GET", "/", "");
        }
        answers.clear();
        for connection in &mut connections {
            let text = connection.response().text();
            let (pid, cache) = text.split_once(' ')?;
            answers.push((pid.parse().ok()?, cache.to_owned()));
        }
        answers.sort();
        answers.dedup_by_key(|(pid, _)| *pid);
        (answers.len() == workers).then_some(())
    });
    answers
}

fn one_zygote(server: &Server) -> u32 {
    wait_for("one zygote", || match server.zygotes()[..] {
        [zygote] => Some(zygote),
        _ => None,
    })
}

/// Kills a worker and waits for another one in its place.
fn replace(server: &Server, worker: u32) {
    let workers = server.workers().len();
    signal(worker, Signal::KILL);
    wait_for("a successor", || {
        let now = server.workers();
        (now.len() == workers && !now.contains(&worker)).then_some(())
    });
}

fn signal(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(pid.cast_signed()).expect("it is none of the kernel's");
    kill_process(pid, signal).expect("it lives");
}

#[test]
fn workers_share_one_opcache() {
    let server = start(3, "");
    let zygote = one_zygote(&server);
    // The first request compiles it for all.
    server.get("/");
    let before = answers(&server, 3);
    for (pid, cache) in &before {
        assert_eq!(cache, "[1,1]", "worker {pid}");
    }
    let shown = server.steer(&["workers"]).stdout;
    let summary = format!("default: 3 workers, 0 busy, 0 calls waiting, forked by {zygote}");
    assert!(shown.contains(&summary), "{shown}");
    // A killed one takes nothing of it along, and its successor finds it.
    let killed = before[0].0;
    replace(&server, killed);
    let after = answers(&server, 3);
    assert!(
        after
            .iter()
            .all(|(pid, cache)| *pid != killed && cache == "[1,1]"),
        "{after:?}"
    );
    assert_eq!(one_zygote(&server), zygote);
    let ended = server.stop();
    assert!(
        ended.stderr.contains("signal 9 (SIGKILL)"),
        "{}",
        ended.stderr
    );
}

#[test]
fn a_fresh_worker_for_each_call_finds_what_others_have_compiled() {
    let server = start(1, ", max_jobs: 1");
    server.get("/");
    let mut pids = Vec::new();
    for _ in 0..5 {
        let (pid, cache) = answers(&server, 1).remove(0);
        assert_eq!(cache, "[1,1]");
        pids.push(pid);
    }
    pids.dedup();
    assert_eq!(pids.len(), 5, "none gets a second call");
    let ended = server.stop();
    assert!(!ended.stderr.contains("ERROR"), "{}", ended.stderr);
}

#[test]
fn workers_that_are_started_one_by_one_share_nothing() {
    let server = start(2, ", spawn: exec");
    assert!(server.zygotes().is_empty());
    server.get("/");
    let caches = |server: &Server| answers(server, 2).into_iter().map(|(_, cache)| cache);
    // Each has compiled it itself.
    assert!(caches(&server).all(|cache| cache == "[1,1]"));
    replace(&server, server.workers()[0]);
    server.site().replace("public/index.php", STATUS);
    server.signal(Signal::HUP);
    server.logged(&["new workers have taken over"]);
    assert!(caches(&server).all(|cache| cache == "[1,1]"));
    assert!(server.zygotes().is_empty());
    server.stop();
}

#[test]
fn workers_have_nothing_random_in_common() {
    let random = "<?php
        usleep(20_000);
        echo getmypid(), ' ', json_encode([
            mt_rand(), rand(), lcg_value(), uniqid('', true), random_int(0, PHP_INT_MAX), session_create_id(), spl_object_hash(new stdClass()) === '',
            array_rand(range(0, 1_000_000)), str_shuffle('abcdefghijklmnopqrstuvwxyz'),
        ]);";
    let server = Server::start(site(3, "").file("public/index.php", random));
    let answers = answers(&server, 3);
    let [one, two, three] = [0, 1, 2].map(|at: usize| {
        let text = answers[at].1.trim_matches(['[', ']']);
        text.split(',').map(str::to_owned).collect::<Vec<_>>()
    });
    for place in [0, 1, 2, 3, 4, 5, 7, 8] {
        let (one, two, three) = (&one[place], &two[place], &three[place]);
        assert!(
            one != two && two != three && one != three,
            "{one} {two} {three}"
        );
    }
    server.stop();
}

#[test]
fn a_reset_of_the_cache_is_for_all_and_does_not_switch_it_off() {
    let site = site(2, PROMPT)
        .file("public/index.php", STATUS)
        .file("public/reset.php", "<?php echo json_encode(opcache_reset());")
        .file(
            "public/restarts.php",
            "<?php $status = opcache_get_status(); echo json_encode([$status['restart_pending'], $status['opcache_statistics']['manual_restarts']]);",
        );
    let server = Server::start(site);
    server.get("/");
    let workers = server.workers();
    for restarts in 1..=3 {
        assert_eq!(server.get("/reset.php").text(), "true");
        wait_for("the restart, when nobody uses it", || {
            let now = server.get("/restarts.php").text();
            (now == format!("[false,{restarts}]")).then_some(())
        });
        server.get("/");
        server.get("/");
        for (pid, cache) in answers(&server, 2) {
            let scripts = cache.trim_start_matches('[').split(',').next();
            assert!(scripts.is_some_and(|it| it >= "1"), "{pid} caches: {cache}");
        }
    }
    assert_eq!(server.workers(), workers);
    server.stop();
}

#[test]
fn what_is_preloaded_is_there_also_after_a_reset() {
    for spawn in ["fork", "exec"] {
        let site = site(2, &format!(", spawn: {spawn}{PROMPT}"))
            .file("preload.php", "<?php class Preloaded { const X = 42; }")
            .file(
                "public/index.php",
                "<?php usleep(20_000); echo getmypid(), ' ', Preloaded::X, isset($_GET['reset']) ? (int) opcache_reset() : '';",
            );
        let preload = site.path("preload.php").display().to_string();
        // Asked for where PHP starts as root.
        let ini = format!("ini: {{opcache.preload: {preload}, opcache.preload_user: nobody, ");
        site.change_config("ini: {", &ini);
        let server = Server::start(site);
        let all = |server: &Server| answers(server, 2).into_iter().map(|(_, said)| said);
        assert!(all(&server).all(|said| said == "42"), "{spawn}");
        assert!(server.get("/?reset").text().ends_with(" 421"));
        for _ in 0..3 {
            assert!(all(&server).all(|said| said == "42"), "{spawn}");
        }
        let ended = server.stop();
        assert!(!ended.stderr.contains("worker died"), "{}", ended.stderr);
    }
}

#[test]
fn a_reload_begins_with_a_new_zygote_and_the_settings_of_now() {
    let settings = "opcache.file_update_protection=0\n";
    let site = site(1, "")
        .file("public/index.php", "<?php echo ini_get('precision');")
        .file("php.ini", &format!("{settings}precision=5\n"));
    let ini = site.path("php.ini").display().to_string();
    site.change_config("php: 'php ", &format!("php: 'php -c {ini} "));
    let server = Server::start(site);
    let before = one_zygote(&server);
    assert_eq!(server.get("/").text(), "5");
    server
        .site()
        .replace("php.ini", &format!("{settings}precision=6\n"));
    // The successor of a worker is what the others are.
    replace(&server, server.workers()[0]);
    assert_eq!(server.get("/").text(), "5");
    server.signal(Signal::HUP);
    server.logged(&["new workers have taken over"]);
    assert_eq!(server.get("/").text(), "6");
    assert_ne!(one_zygote(&server), before);
    let ended = server.stop();
    assert!(!ended.stderr.contains("the zygote"), "{}", ended.stderr);
}

#[test]
fn three_crashes_in_a_row_replace_what_all_share() {
    let crash = "<?php if (isset($_GET['crash'])) { posix_kill(getmypid(), (int) $_GET['crash']); } echo 'fine';";
    let server = Server::start(site(2, ", retry: never").file("public/index.php", crash));
    let (zygote, mut workers) = (one_zygote(&server), server.workers());
    for (number, signal) in [9, 15, 9, 11, 7].into_iter().enumerate() {
        assert_eq!(
            server.get(&format!("/?crash={signal}&n={number}")).status,
            502
        );
    }
    wait_for("successors", || (server.workers().len() == 2).then_some(()));
    assert_eq!(one_zygote(&server), zygote, "two faults are not enough");
    server.get("/?crash=11&n=last");
    server.logged(&["new workers are wanted: three have died by signals within a minute"]);
    server.logged(&["new workers have taken over"]);
    wait_for("a new zygote", || {
        (one_zygote(&server) != zygote).then_some(())
    });
    workers.retain(|pid| server.workers().contains(pid));
    assert!(workers.is_empty(), "{workers:?}");
    assert_eq!(server.get("/").text(), "fine");
    server.stop();
}

#[test]
fn a_zygote_that_dies_or_hangs_has_a_successor() {
    let server = start(2, "");
    let first = one_zygote(&server);
    signal(first, Signal::KILL);
    server.logged(&["the zygote has ended with signal 9 (SIGKILL)"]);
    assert_eq!(answers(&server, 2).len(), 2, "its workers continue");
    replace(&server, server.workers()[0]);
    let second = one_zygote(&server);
    // The worker that it was started for is there. Else the order for that one goes unanswered.
    assert_eq!(answers(&server, 2).len(), 2);
    signal(second, Signal::STOP);
    replace(&server, server.workers()[0]);
    server.logged(&["the zygote is of no use any more: it did not answer within 8s"]);
    assert_ne!(one_zygote(&server), second);
    assert_eq!(answers(&server, 2).len(), 2);
    // The stop does not wait for it either.
    signal(one_zygote(&server), Signal::STOP);
    let ended = server.stop();
    assert!(
        ended
            .stderr
            .contains("the zygote is killed: it did not end within 5s"),
        "{}",
        ended.stderr
    );
}

#[test]
fn a_server_that_is_killed_takes_its_zygote_and_its_workers_along() {
    let mut server = start(2, "");
    one_zygote(&server);
    server.signal(Signal::KILL);
    assert_eq!(server.wait().code, None);
}

#[test]
fn a_zygote_that_is_none_ends_the_start_with_the_reason() {
    const OTHERWISE: &str = "hint: `spawn: exec` of the pool does without a zygote";
    for (script, why) in [
        (
            "echo 'no, thanks'; exit 3",
            "worker ended before it was ready (exit code 3)",
        ),
        (
            "exec sleep 60",
            "the zygote gave no worker: it did not answer within 2s",
        ),
        (
            "exec 3>&-; exec sleep 60",
            "the zygote gave no worker: it has closed its connection",
        ),
        (
            "printf 'good evening' >&3; exec sleep 60",
            "the zygote gave no worker: it sent `good evening`, which is not a valid answer",
        ),
        ("hello; order; exit 4", "the zygote gave no worker: it has "),
        (
            "hello; order; exec sleep 60",
            "the zygote gave no worker: it did not answer within 2s",
        ),
        (
            "hello; order; printf 'forked 1' >&3; exec sleep 60",
            "the zygote gave no worker: it sent `forked 1`, which is not a valid answer",
        ),
        (
            "hello; order; printf 'failed Not enough space' >&3; order",
            "the zygote gave no worker: it could not fork: Not enough space",
        ),
    ] {
        let site = with_zygote(script, ", boot_timeout: 2s");
        let ended = Server::run(&site, &["serve"]);
        assert_eq!(ended.code, Some(1), "{script}: {}", ended.stderr);
        assert!(ended.stderr.contains(why), "{script}: {}", ended.stderr);
        let said = if why.contains("exit code") {
            "it said  no, thanks"
        } else {
            OTHERWISE
        };
        assert!(ended.stderr.contains(said), "{script}: {}", ended.stderr);
    }
}

#[test]
fn where_workers_can_not_be_forked_they_are_started_one_by_one() {
    let by_one = "each worker starts PHP anew and has an OPcache of its own";
    for (script, why) in [
        (
            "printf 'zygote 1 threads 3 jit 0 warm 0 grpc timer' >&3; end",
            "PHP has 3 threads as soon as it has started, one of them `grpc timer`",
        ),
        (
            "printf 'zygote 1 threads 1 jit 1 warm 0 ' >&3; end",
            "OPcache's JIT is on",
        ),
        (
            "hello; order; printf \"forked $$\" >&3; end",
            "which it has forked, is no child of this server",
        ),
    ] {
        let server = Server::start(with_zygote(script, ""));
        assert_eq!(server.get("/").text(), "served");
        server.logged(&["INFO", by_one, why]);
        wait_for("the zygote to end", || {
            (server.workers().len() == 1).then_some(())
        });
        // Said once for each generation.
        replace(&server, server.workers()[0]);
        assert_eq!(server.get("/").text(), "served");
        assert_eq!(server.log().matches(by_one).count(), 1);
        assert!(server.zygotes().is_empty());
        server.stop();
    }
    let threads = "printf 'zygote 1 threads 2 jit 0 warm 0 x' >&3; end";
    let server = Server::start(with_zygote(threads, ", spawn: fork"));
    server.logged(&["WARN", by_one, "in spite of `spawn: fork`"]);
    server.stop();
}

#[test]
fn what_forbids_a_fork_is_found_in_a_real_php() {
    // A thread that starts with the process, as that of an extension does.
    let site = with_zygote("export LD_PRELOAD=$PWD/thread.so", "").file(
        "thread.c",
        "#define _GNU_SOURCE\n#include <pthread.h>\n#include <unistd.h>\n
         static void *run(void *it) { for (;;) { pause(); } return it; }
         __attribute__((constructor)) static void start(void) {
             pthread_t thread; pthread_create(&thread, 0, run, 0); pthread_setname_np(thread, \"of a test\");
         }",
    );
    let compiled = std::process::Command::new("cc")
        .args([
            "-shared",
            "-fPIC",
            "-pthread",
            "thread.c",
            "-o",
            "thread.so",
        ])
        .current_dir(site.folder())
        .status();
    assert!(compiled.expect("cc is there").success());
    let server = Server::start(site);
    server.logged(&["PHP has 2 threads as soon as it has started, one of them `of a test`"]);
    assert_eq!(server.get("/").text(), "served");
    server.stop();

    let jit = ", ini: {opcache.jit: tracing, opcache.jit_buffer_size: 8M}";
    let on = "<?php echo json_encode(opcache_get_status()['jit']['on']);";
    let server = Server::start(site_with(jit, on));
    server.logged(&[
        "OPcache's JIT is on, which is not safe",
        "(`ini: {opcache.jit: disable}`",
    ]);
    assert_eq!(
        (server.get("/").text().as_str(), server.zygotes()),
        ("true", vec![])
    );
    server.stop();
    let server = Server::start(site_with(&format!("{jit}, spawn: fork"), on));
    server.logged(&[
        "WARN",
        "workers are forked (`spawn: fork`) with OPcache's JIT",
    ]);
    assert_eq!(server.get("/").text(), "true");
    one_zygote(&server);
    server.stop();
}

fn site_with(more: &str, script: &str) -> Site {
    site(1, more).file("public/index.php", script)
}

#[test]
fn ps_shows_what_a_process_is() {
    let command_of = |pid: u32| {
        let bytes = std::fs::read(format!("/proc/{pid}/cmdline")).expect("it lives");
        let text = String::from_utf8_lossy(&bytes).replace('\0', " ");
        text.trim_end().to_owned()
    };
    for spawn in ["fork", "exec"] {
        let server = start(2, &format!(", spawn: {spawn}"));
        wait_for("both workers", || {
            (server.workers().len() == 2).then_some(())
        });
        let mut workers: Vec<_> = server.workers().into_iter().map(command_of).collect();
        workers.sort();
        assert_eq!(
            workers,
            [
                "pronghorn: pool default worker 1, classic",
                "pronghorn: pool default worker 2, classic"
            ],
            "{spawn}"
        );
        let zygotes: Vec<_> = server.zygotes().into_iter().map(command_of).collect();
        let expected = ["pronghorn: pool default zygote, classic"];
        assert_eq!(
            zygotes,
            if spawn == "fork" { &expected[..] } else { &[] },
            "{spawn}"
        );
        // The environment, which lies behind the arguments, is as it was, and a successor has the
        // name of its place.
        let told = server.get("/").text();
        assert!(told.contains(' '), "{told}");
        replace(&server, server.workers()[0]);
        wait_for("the successor's name", || {
            let mut now: Vec<_> = server.workers().into_iter().map(command_of).collect();
            now.sort();
            (now == workers).then_some(())
        });
        server.stop();
    }
    // One that is kept goes by its command, with what the pool gives it before all else.
    let kept = Site::new()
        .file("worker.php", &Site::sdk_worker("return 1;"))
        .config("version: '3'\nserver: {command: php worker.php}\nhttp: {address: '127.0.0.1:0', pool: {num_workers: 1}}\n");
    let server = Server::start(kept);
    let commands: Vec<_> = server.workers().into_iter().map(command_of).collect();
    let [command] = &commands[..] else {
        panic!("{commands:?}");
    };
    let command = command.strip_prefix("php -d ").expect(command);
    assert!(command.ends_with("' worker.php"), "{command}");
    server.stop();
}
