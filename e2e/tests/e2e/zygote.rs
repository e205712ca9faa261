//! Workers that are forked from one PHP which has started its engine: what they share, and what they do not.

use pronghorn_testkit::{Server, wait_for};
use rustix::process::{Pid, Signal, kill_process};

use crate::classic::site;

/// Answers with the worker's number and what its OPcache has, after a while in which others are busy as well.
const STATUS: &str = "<?php
    usleep(20_000);
    $status = opcache_get_status();
    $cache = $status === false ? null : [$status['opcache_statistics']['num_cached_scripts'], $status['opcache_statistics']['misses']];
    echo getmypid(), ' ', json_encode($cache);";

fn start(workers: usize, more: &str) -> Server {
    // Also of files that were just written.
    let more = format!("{more}, ini: {{opcache.file_update_protection: 0}}");
    Server::start(site(workers, &more).file("public/index.php", STATUS))
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

#[test]
fn workers_share_one_opcache() {
    let server = start(3, "");
    let [zygote] = server.zygotes()[..] else {
        panic!("there is one zygote: {:?}", server.zygotes());
    };
    // The first request compiles it for all.
    server.get("/");
    let before = answers(&server, 3);
    for (pid, cache) in &before {
        assert_eq!(cache, "[1,1]", "worker {pid}");
    }
    // A killed one takes nothing of it along, and its successor finds it.
    let (killed, _) = before[0];
    kill(killed);
    let after = wait_for("a successor", || {
        let workers = server.workers();
        (workers.len() == 3 && !workers.contains(&killed)).then(|| answers(&server, 3))
    });
    assert!(
        after
            .iter()
            .all(|(pid, cache)| *pid != killed && cache == "[1,1]"),
        "{after:?}"
    );
    assert_eq!(server.zygotes(), [zygote]);
    let ended = server.stop();
    assert!(
        ended.stderr.contains("signal 9 (SIGKILL)"),
        "{}",
        ended.stderr
    );
}

fn kill(pid: u32) {
    let pid = Pid::from_raw(pid.cast_signed()).expect("it is none of the kernel's");
    kill_process(pid, Signal::KILL).expect("it lives");
}
