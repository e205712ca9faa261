//! Workers in shared memory: that they are, and what becomes of the server when one of them breaks
//! its own box.

use pronghorn_e2e::ring::{Scribbles, scribble, site, under_valgrind};
pub(crate) use pronghorn_e2e::ring::{extension, worker_of};
use pronghorn_testkit::{Server, Site, wait_for};
use rustix::process::{Pid, Signal, kill_process};

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
    // Once, which a worker may survive, then until there are 10,000.
    let Scribbles { detected, harmless } = scribble(&[(60, 1), (30, 350)]);
    println!("scribbles: {detected} in calls that failed, {harmless} in calls that did not");
    assert!(detected + harmless > 10_000 && detected > 0 && harmless > 0);
}

#[test]
fn a_worker_makes_no_mistake_that_valgrind_would_find() {
    assert_eq!(under_valgrind(1), "");
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

#[test]
fn where_there_is_no_shared_memory_workers_use_pipes_and_one_record_says_so() {
    let body = "return str_contains(file_get_contents('/proc/self/maps'), 'pronghorn-box') ? 'box' : 'pipes';";
    let config = "version: '3'\nserver: {command: php worker.php}\n\
        http: {address: '127.0.0.1:0', threads: 2, pool: {num_workers: 4}}\n";
    let site = Site::new()
        .file("worker.php", &Site::sdk_worker(body))
        .config(config);
    let server = Server::start_under(&Site::fixture("without-memfd"), site);
    assert_eq!(server.get("/").text(), "pipes");
    server.logged(&[
        "pipes are used instead of the ring: there is no shared memory",
        "Operation not permitted",
    ]);
    assert_eq!(server.log().matches("instead of the ring").count(), 1);
    server.stop();
}

#[test]
fn a_child_that_a_handler_forks_answers_nothing_for_it() {
    let body = r"
        if ($request->path === '/fork') {
            $child = pcntl_fork();
            if ($child === 0) { return 'of the child'; }
            pcntl_waitpid($child, $status);
            return 'of the parent';
        }
        return 'fine';
    ";
    let site = site("worker.php", 1, "").file("worker.php", &Site::sdk_worker(body));
    let server = Server::start(site);
    let worker = worker_of(&server, "worker.php");
    for _ in 0..3 {
        assert_eq!(server.get("/fork").text(), "of the parent");
        assert_eq!(server.get("/").text(), "fine");
    }
    assert_eq!(worker_of(&server, "worker.php"), worker);
    server.stop();
}

/// With a handler that ignores a signal to end, and a loop that never does.
fn deaf_worker() -> String {
    let body = "if ($request->path === '/loop') { file_put_contents('loops', ''); for (;;) { } } return 'fine';";
    Site::sdk_worker(body).replace(
        "Pronghorn\\serve",
        "pcntl_async_signals(true); pcntl_signal(SIGTERM, function () { });\nPronghorn\\serve",
    )
}

#[test]
fn no_worker_outlives_its_server_whatever_it_does() {
    for busy in [false, true] {
        let mut server =
            Server::start(site("worker.php", 1, "").file("worker.php", &deaf_worker()));
        assert_eq!(server.get("/").text(), "fine");
        let mut connection = server.connect();
        if busy {
            connection.request("GET", "/loop", "");
            let loops = server.site().path("loops");
            wait_for("the loop", || loops.exists().then_some(()));
        }
        server.signal(Signal::KILL);
        // `wait` fails if a worker is left.
        assert_eq!(server.wait().code, None);
    }
}

/// Behind a shell, which alone gets the signal of its server's death: it looks every five seconds.
#[test]
fn a_worker_that_is_not_told_of_its_servers_death_sees_it_all_the_same() {
    let site = site("worker.php", 1, "").file("worker.php", &deaf_worker());
    site.change_config("command: php", "command: /bin/sh run php");
    let site = site.file("run", "\"$@\"\nexit");
    let mut server = Server::start(site);
    assert_eq!(server.get("/").text(), "fine");
    server.signal(Signal::KILL);
    assert_eq!(server.wait().code, None);
}
