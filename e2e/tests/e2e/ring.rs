//! Workers in shared memory: that they are, and what becomes of the server when one of them breaks its own box.

use std::path::PathBuf;

use pronghorn_testkit::{Load, Server, Site, binary, wait_for};
use rustix::process::{Pid, Signal, kill_process};

/// The extension for the `php` of this machine, as `scripts/build-extension` leaves it beside the server.
pub(crate) fn extension() -> PathBuf {
    let target = binary();
    let target = target.ancestors().nth(2).expect("it lies in target/debug");
    let built = std::fs::read_dir(target.join("extensions"));
    let built = built.expect("`scripts/build-extension` was run");
    let mut built = built.filter_map(|entry| Some(entry.ok()?.path()));
    built
        .find(|path| path.to_string_lossy().ends_with("-nts.so"))
        .expect("`scripts/build-extension` builds it")
}

/// With a worker of a pool besides, that has nothing to do with the ones under test.
fn site(worker: &str, workers: usize, more: &str) -> Site {
    let php = format!("php -d extension={}", extension().display());
    let numbers = "$answer = $request->query()['n'] ?? 'none'; return $answer;";
    Site::new()
        .file("numbers.php", &Site::sdk_worker(numbers))
        .config(&format!(
            "version: '3'\nserver:\n  command: {php} {worker}\nhttp:\n  address: 127.0.0.1:0\n  \
             pool: {{num_workers: {workers}, transport: ring{more}}}\n  \
             pools:\n    numbers: {{num_workers: 1, transport: ring, command: '{php} numbers.php'}}\n  \
             routes:\n    - {{path: /number, pool: numbers}}\nlogs: {{level: debug}}\n"
        ))
}

fn has_a_box(pid: u32) -> bool {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    maps.contains("pronghorn-box")
}

#[test]
fn every_kind_of_reply_and_body_goes_through_shared_memory() {
    let body = r"
        if ($request->path === '/length') { return (string) \strlen($request->body()); }
        if ($request->path === '/stream') {
            return new Pronghorn\Response((function () { for ($i = 0; $i < 40; $i++) { yield \str_repeat((string) ($i % 10), 100000); } })());
        }
        return \str_repeat('x', (int) $request->query()['n']);
    ";
    let site = site("worker.php", 2, "").file("worker.php", &Site::sdk_worker(body));
    let server = Server::start(site);
    let workers = server.workers();
    assert!(workers.len() == 3 && workers.iter().all(|pid| has_a_box(*pid)));
    for len in [0, 1, 12, 10_000, 300_000, 600_000, 3_000_000] {
        assert_eq!(server.get(&format!("/?n={len}")).body.len(), len, "{len}");
        let sent = vec![b'y'; len];
        let answer = server.post("/length", "text/plain", &sent);
        assert_eq!(answer.text(), len.to_string());
    }
    assert_eq!(server.get("/stream").body.len(), 4_000_000);
    assert_eq!(server.workers(), workers);
    assert!(!server.log().contains("instead of the ring"));
    server.stop();
}

#[test]
fn a_worker_that_scribbles_over_its_box_harms_nobody_else() {
    /// How many calls, and how often in each: once, which a worker may survive, then until there are 10,000.
    const CALLS: [(usize, usize); 2] = [(60, 1), (30, 350)];
    let worker = Site::fixture("scribbler.php").display().to_string();
    let server = Server::start(site(&worker, 3, ", supervisor: {exec_ttl: 10s}"));
    assert_eq!(server.get("/resize").text(), "refused");
    let load = Load::start(server.address());
    load.go_on(20);
    let numbers = worker_of(&server, "numbers.php");
    let (mut harmless, mut detected) = (0, 0);
    for (calls, each) in CALLS {
        for _ in 0..calls {
            let path = format!("/scribble/{each}");
            let reply = server.post(&path, "text/plain", "");
            if reply.status == 200 && reply.text() == path {
                harmless += each;
            } else {
                // Its own reply may say anything; a call that was refused would have scribbled nothing.
                assert_ne!(reply.status, 503);
                detected += each;
            }
        }
    }
    println!("scribbles: {detected} in calls that failed, {harmless} in calls that did not");
    assert!(detected + harmless > 10_000 && detected > 0 && harmless > 0);
    assert!(!server.log().contains("panicked"));
    wait_for("the pool", || {
        (server.get("/fine").text() == "/fine").then_some(())
    });
    load.go_on(20);
    load.finish();
    assert_eq!(
        worker_of(&server, "numbers.php"),
        numbers,
        "another worker was touched"
    );
    server.stop();
}

/// The one worker that runs this script.
pub(crate) fn worker_of(server: &Server, script: &str) -> u32 {
    let runs = |pid: &u32| {
        let command = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        command.contains(script)
    };
    let found = server.workers().into_iter().find(runs);
    found.expect("the worker lives")
}

#[test]
fn a_worker_that_is_stopped_while_idle_or_busy_costs_its_call_and_is_replaced() {
    let body =
        "if ($request->path === '/stop') { \\posix_kill(\\getmypid(), \\SIGSTOP); } return 'fine';";
    let site = site(
        "worker.php",
        1,
        ", supervisor: {exec_ttl: 1s}, destroy_timeout: 1s",
    )
    .file("worker.php", &Site::sdk_worker(body));
    let server = Server::start(site);
    for stop_it in [true, false] {
        let worker = worker_of(&server, "worker.php");
        let path = if stop_it {
            let pid = Pid::from_raw(i32::try_from(worker).unwrap()).unwrap();
            kill_process(pid, Signal::STOP).unwrap();
            "/"
        } else {
            "/stop"
        };
        assert_eq!(server.post(path, "text/plain", "").status, 504);
        wait_for("another worker", || {
            (server.get("/").text() == "fine").then_some(())
        });
    }
    server.stop();
}
