//! What keeps a pool answering: worn workers that are replaced, more of them under load, deadlines,
//! deadly requests, back-off.

use std::sync::mpsc::{Receiver, channel};

use pronghorn_testkit::{
    Connection, Load, PATIENCE, Response, Server, Site, free_address, wait_for,
};
use rustix::process::{Pid, Signal, kill_process};

use crate::kind::{KINDS, Kind};
use crate::secure::curl;

/// One pool with these keys, and the workers whose handler has this body.
fn site(handler: &str, pool: &str) -> Site {
    site_of(Kind::Worker, handler, pool)
}

fn site_of(kind: Kind, handler: &str, pool: &str) -> Site {
    let (server, of_kind) = (kind.server(), kind.pool());
    Site::new()
        .file(kind.file(), &kind.code(handler))
        .config(&format!(
            "version: '3'\nserver: {{{server}}}\n\
             http: {{address: 127.0.0.1:0, pool: {{{of_kind}, {pool}}}}}\n\
             logs: {{level: debug, channels: {{http: {{level: error}}}}}}\n"
        ))
}

/// Replies with the number that was asked for.
const NUMBER: &str = "return $request->query()['n'];";

/// Workers that wait at `/hold` until there is a file `go`, each beside a file that says so.
const HOLD: &str = "
    if (str_starts_with($request->path, '/hold')) {
        touch('held-' . basename($request->path));
        while (!file_exists('go')) { usleep(2000); clearstatcache(); }
    }
    return (string) getmypid();";

/// A reply that is waited for elsewhere.
fn ask(server: &Server, target: &'static str) -> Receiver<Response> {
    let (sender, reply) = channel();
    let address = server.address();
    std::thread::spawn(move || sender.send(Connection::open(address).get(target)));
    reply
}

fn status(reply: &Receiver<Response>) -> u16 {
    let reply = reply.recv_timeout(PATIENCE);
    reply.expect("every request is answered").status
}

fn hold(server: &Server, target: &'static str) -> Receiver<Response> {
    let reply = ask(server, target);
    let file = format!("held-{}", target.rsplit('/').next().expect("a last part"));
    wait_for("a worker at work", || {
        server.site().path(&file).exists().then_some(())
    });
    reply
}

/// Under load: worn workers go on as long as their successors boot, and then all are replaced.
fn all_are_replaced(handler: &str, limit: &str, said: &str) {
    const WORKERS: usize = 2;
    let boot = format!(
        "<?php touch('boot-' . getmypid());
         while (count(glob('boot-*')) > {WORKERS} && !file_exists('go')) {{ usleep(2000); clearstatcache(); }}\n"
    );
    let site = site(handler, &format!("num_workers: {WORKERS}, {limit}"));
    let worker = Site::sdk_worker(handler).replace("<?php\n", &boot);
    let server = Server::start(site.file("worker.php", &worker));
    let first = server.workers();
    let load = Load::start(server.address());
    server.logged(&["worker replaced", said]);
    load.go_on(100);
    let now = server.workers();
    assert!(
        first.iter().all(|pid| now.contains(pid)),
        "{first:?} {now:?}"
    );
    server.site().write("go", "");
    wait_for("all workers to be replaced", || {
        let now = server.workers();
        (!now.iter().any(|pid| first.contains(pid))).then_some(())
    });
    load.go_on(20);
    load.finish();
    server.stop();
}

#[test]
fn workers_are_replaced_after_their_calls_and_no_request_is_lost() {
    all_are_replaced(NUMBER, "max_jobs: 50", "it had its `max_jobs` calls");
}

#[test]
fn workers_are_replaced_for_their_age_and_no_request_is_lost() {
    let limit = "supervisor: {watch_tick: 100ms, ttl: 500ms}";
    all_are_replaced(NUMBER, limit, "(`ttl`)");
}

#[test]
fn workers_are_replaced_for_their_memory_and_no_request_is_lost() {
    let leaks = "static $leak = '';
        $leak .= random_bytes(50_000);
        return $request->query()['n'];";
    let limit = "supervisor: {watch_tick: 100ms, max_worker_memory: 30MB}";
    all_are_replaced(leaks, limit, "(`max_worker_memory`)");
}

#[test]
fn a_limit_of_a_classic_pool_loses_no_request_either() {
    let memory = "static $leak; $leak = ini_get('memory_limit'); return $request->query()['n'];";
    for (handler, limit, said) in [
        (NUMBER, "max_jobs: 50", "it had its `max_jobs` calls"),
        (
            NUMBER,
            "supervisor: {watch_tick: 100ms, ttl: 500ms}",
            "(`ttl`)",
        ),
        (
            memory,
            // What a worker has for itself alone is little where the rest is its zygote's.
            "supervisor: {watch_tick: 100ms, max_worker_memory: 100KB}",
            "(`max_worker_memory`)",
        ),
    ] {
        let pool = format!("num_workers: 2, {limit}");
        let server = Server::start(site_of(Kind::Classic, handler, &pool));
        let first = server.workers();
        let load = Load::start(server.address());
        server.logged(&["worker replaced", said]);
        wait_for("all workers to be replaced", || {
            let now = server.workers();
            (!now.iter().any(|pid| first.contains(pid))).then_some(())
        });
        load.go_on(20);
        load.finish();
        server.stop();
    }
}

#[test]
fn a_worker_is_replaced_after_idling_if_it_had_a_call() {
    for kind in KINDS {
        let server = Server::start(site_of(
            kind,
            "return (string) getmypid();",
            "num_workers: 2, supervisor: {watch_tick: 100ms, idle_ttl: 300ms}",
        ));
        let before = server.workers();
        let had_a_call: u32 = server.get("/").text().parse().unwrap();
        server.logged(&["worker replaced", "(`idle_ttl`)", &had_a_call.to_string()]);
        let now = wait_for("the worker to be replaced", || {
            let now = server.workers();
            (now.len() == 2 && !now.contains(&had_a_call)).then_some(now)
        });
        let other = before.iter().find(|pid| **pid != had_a_call).unwrap();
        assert!(now.contains(other), "it had no call");
        server.stop();
    }
}

/// One call holds the only worker, two more wait: they are served by workers that come for them.
/// Without work they go.
fn grows_and_shrinks(pool: &str) {
    for kind in KINDS {
        let server = Server::start(site_of(kind, HOLD, pool));
        assert_eq!(server.workers().len(), 1);
        let held = ["/hold/1", "/hold/2", "/hold/3"].map(|target| hold(&server, target));
        assert_eq!(server.workers().len(), 3);
        server.logged(&["workers added: calls wait"]);
        server.site().write("go", "");
        assert_eq!(held.each_ref().map(status), [200; 3]);
        if pool.contains("idle_timeout") {
            wait_for("the added workers to end", || {
                (server.workers().len() == 1).then_some(())
            });
            server.logged(&["they had nothing to do"]);
        }
        assert_eq!(server.get("/").status, 200);
        server.stop();
    }
}

#[test]
fn a_pool_grows_while_calls_wait() {
    grows_and_shrinks("min_workers: 1, max_workers: 3");
}

#[test]
fn a_pool_with_a_dynamic_allocator_grows_and_shrinks() {
    grows_and_shrinks(
        "num_workers: 1, dynamic_allocator: {max_workers: 2, spawn_rate: 1, idle_timeout: 1s}, \
         supervisor: {watch_tick: 100ms}",
    );
}

#[test]
fn a_request_of_which_two_workers_died_ends_no_third() {
    for kind in KINDS {
        let server = Server::start(site_of(
            kind,
            "if ($request->path === '/deadly') { posix_kill(getmypid(), 9); }
             return (string) getmypid();",
            "num_workers: 2",
        ));
        // Safe, so it is tried a second time by itself, and that is the second death.
        assert_eq!(server.get("/deadly").status, 502);
        let said = server.logged(&["two workers died of this request", "GET /deadly"]);
        assert!(said.contains("ERROR"), "{said}");
        let report = server.logged(&["worker died with signal 9 (SIGKILL) during a request"]);
        assert!(report.contains("\"memory_mb\":"), "{report}");
        let survivors = wait_for("both workers to be replaced", || {
            let now = server.workers();
            (now.len() == 2 && server.log().matches("worker died").count() == 2).then_some(now)
        });
        for _ in 0..5 {
            assert_eq!(server.get("/deadly").status, 500);
            assert_eq!(server.get("/").status, 200);
        }
        assert_eq!(server.workers(), survivors);
        server.stop();
    }
}

/// Ends its worker when asked to by a header, and one page of it always does.
const DEADLY: &str = "
    if ($request->header('User-Agent') === 'deadly' || $request->path === '/deadly') {
        posix_kill(getmypid(), 9);
    }
    return 'fine';";

fn deadly_site(kind: Kind, http: &str) -> Site {
    let site = site_of(kind, DEADLY, "num_workers: 2");
    let config = site.read(".rr.yaml");
    site.config(&config.replace("http: {", &format!("http: {{{http}, ")))
}

fn status_of(server: &Server, target: &str, headers: &str) -> u16 {
    let mut connection = server.connect();
    connection.request("GET", target, headers);
    connection.response().status
}

#[test]
fn a_client_that_ends_workers_by_a_header_shuts_the_page_for_nobody_else() {
    const HTTP2: [&str; 5] = [
        "--http2-prior-knowledge",
        "-o",
        "/dev/null",
        "-w",
        "%{http_code}",
    ];
    for kind in KINDS {
        let server = Server::start(deadly_site(kind, "http2: {h2c: true}"));
        let url = format!("http://{}/", server.address());
        let by_http2 = |agent| curl(&server, &[&HTTP2[..], &["-A", agent, &url]].concat());
        let noticed = |deaths| {
            wait_for("the deaths to be noticed", || {
                let said = server
                    .log()
                    .matches("two workers died of this request")
                    .count();
                (said == deaths).then_some(())
            });
        };
        let deadly = "User-Agent: deadly\r\nX-Request-Id: ";
        assert_eq!(status_of(&server, "/", &format!("{deadly}1\r\n")), 502);
        noticed(1);
        // The same, with the number that a proxy gave to it this time.
        assert_eq!(status_of(&server, "/", &format!("{deadly}2\r\n")), 500);
        for innocent in ["", "User-Agent: other\r\n", "Cookie: a=b\r\n"] {
            assert_eq!(status_of(&server, "/", innocent), 200);
        }
        assert_eq!(by_http2("deadly"), "502");
        noticed(2);
        assert_eq!(by_http2("deadly"), "500");
        assert_eq!(by_http2("other"), "200");
        server.stop();
    }
}

#[test]
fn a_page_that_ends_workers_for_all_clients_is_shut_by_the_third_client() {
    for kind in KINDS {
        let server = Server::start(deadly_site(kind, "trusted_subnets: [127.0.0.0/8]"));
        let ask = |target: &str, client: u8| {
            let told = format!("X-Real-Ip: 192.0.2.{client}\r\nUser-Agent: browser {client}\r\n");
            status_of(&server, target, &told)
        };
        assert_eq!([1, 2, 3].map(|client| ask("/deadly", client)), [502; 3]);
        server.logged(&["workers died of requests of three clients", "GET /deadly"]);
        let survivors = wait_for("the workers to be replaced", || {
            let now = server.workers();
            (now.len() == 2 && server.log().matches("worker died").count() == 6).then_some(now)
        });
        for client in 4..=10 {
            assert_eq!(ask("/deadly", client), 500);
            assert_eq!(ask("/", client), 200);
        }
        assert_eq!(server.workers(), survivors);
        server.stop();
    }
}

const SLOW: &str = "
    $call = Pronghorn\\Call::current();
    if ($request->path === '/extends') { $call->extend(20.0); }
    if ($request->path === '/greedy') { $call->extend(3600.0); }
    usleep($request->path === '/greedy' ? 60_000_000 : 2_200_000);
    return (string) getmypid();";

#[test]
fn a_call_gets_the_time_that_it_asks_for_up_to_the_pools_limit() {
    let limits = "num_workers: 3, supervisor: {exec_ttl: 1s}";
    let patient = Server::start(site(SLOW, limits));
    let (extends, hasty) = (ask(&patient, "/extends"), ask(&patient, "/hasty"));
    let strict = Server::start(site(SLOW, &format!("{limits}, deadline_max: 1100ms")));
    let greedy = ask(&strict, "/greedy");
    assert_eq!((status(&extends), status(&hasty)), (200, 504));
    assert_eq!(status(&greedy), 504);
    patient.stop();
    strict.stop();
}

#[test]
fn a_worker_that_passed_the_deadline_is_replaced() {
    // Neither hears of the deadline: one has no way to, the other is stopped.
    let sleeps = "sleep(60);";
    let stops = "posix_kill(getmypid(), 19);";
    for (kind, hangs, transport) in [
        (Kind::Worker, sleeps, "transport: relay"),
        (Kind::Classic, stops, "transport: ring"),
        (Kind::ClassicByExec, stops, "transport: ring"),
    ] {
        let server = Server::start(site_of(
            kind,
            &format!(
                "if ($request->path === '/hangs') {{ {hangs} }}
                 return (string) getmypid();"
            ),
            &format!("num_workers: 1, {transport}, supervisor: {{exec_ttl: 1s}}"),
        ));
        let before = server.workers();
        assert_eq!(server.get("/hangs").status, 504);
        server.logged(&["ERROR", "deadline passed", "GET /hangs"]);
        let now = server.get("/").text();
        assert!(!before.contains(&now.parse().unwrap()));
        assert_eq!(server.log().matches("worker died").count(), 0);
        server.stop();
    }
}

#[test]
fn a_client_that_leaves_the_queue_makes_room() {
    for kind in KINDS {
        let server = Server::start(site_of(
            kind,
            HOLD,
            "num_workers: 1, max_queue_size: 1, client_gone: drop",
        ));
        let waiting = |calls: &str| {
            wait_for(calls, || {
                let status = server.steer(&["status"]).stdout;
                status.contains(calls).then_some(())
            });
        };
        let held = hold(&server, "/hold/1");
        let mut leaves = server.connect();
        leaves.request("GET", "/leaves", "");
        waiting("1 call waiting");
        let refused = server.get("/refused");
        assert_eq!(refused.status, 503);
        assert_eq!(refused.header("retry-after"), Some("1"));
        drop(leaves);
        waiting("0 calls waiting");
        let next = ask(&server, "/next");
        waiting("1 call waiting");
        server.site().write("go", "");
        assert_eq!((status(&held), status(&next)), (200, 200));
        waiting("1 client_gone");
        waiting("1 queue_full");
        server.stop();
    }
}

#[test]
fn workers_that_can_not_boot_are_tried_again_until_they_can() {
    let health = free_address();
    let site = site(NUMBER, "num_workers: 2, spawn: exec");
    let config = site.read(".rr.yaml");
    let site = site.config(&format!("{config}status: {{address: '{health}'}}\n"));
    let server = Server::start(site);
    let ready = || Connection::open(health).get("/ready").status;
    assert_eq!(ready(), 200);
    let broken = "<?php exit('no database');";
    server.site().write("worker.php", broken);
    for pid in server.workers() {
        let pid = Pid::from_raw(pid.cast_signed()).unwrap();
        kill_process(pid, Signal::KILL).unwrap();
    }
    wait_for("readiness to turn off", || (ready() == 503).then_some(()));
    assert_eq!(server.get("/?n=1").status, 503, "nobody waits for nothing");
    wait_for("some tries", || {
        let tries = server.log().matches("no database").count();
        (tries > 4).then_some(())
    });
    server.site().write("worker.php", &Site::sdk_worker(NUMBER));
    wait_for("readiness to come back", || (ready() == 200).then_some(()));
    assert_eq!(server.get("/?n=1").text(), "1");
    server.stop();
}
