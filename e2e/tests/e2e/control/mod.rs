//! RPC and health checks against a server that works.

use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::thread::JoinHandle;

use pronghorn_testkit::{Connection, Response, Server, Site, free_address, wait_for};
use pronghorn_wire::frame::Flags;
use rustix::process::Signal;

mod metrics;

use crate::trusted_proxies::HaProxy;

pub(crate) use pronghorn_e2e::rpc::{Rpc, listening};

pub(crate) fn probe(server: &Server, target: &str) -> Response {
    let address: SocketAddr = listening(server, "status").parse().expect("an address");
    Connection::open(address).get(target)
}

fn started(site: Site, sections: &str) -> Server {
    let config = std::fs::read_to_string(site.path(".rr.yaml")).expect("it is there");
    Server::start(site.config(&format!("{config}{sections}")))
}

const TCP: &str = "rpc: {listen: 'tcp://127.0.0.1:0'}\n";
const UNIX: &str = "rpc: {listen: 'unix://rpc.sock'}\n";

#[test]
fn workers_are_listed_and_replaced_over_tcp_and_unix() {
    for listen in [TCP, UNIX] {
        let server = started(Site::with_worker("app.php"), listen);
        let mut rpc = Rpc::connect(&server);
        assert_eq!(rpc.call("informer.List", "true"), r#"["http"]"#);
        assert_eq!(rpc.call("resetter.List", "true"), r#"["http"]"#);
        assert_eq!(
            rpc.call("informer.Workers", "\"nope\""),
            r#"{"workers":null}"#
        );
        assert_eq!(rpc.call("informer.Jobs", "\"http\""), "null");

        let mut pids = rpc.pids("http");
        pids.sort_unstable();
        let mut children = server.workers();
        children.sort_unstable();
        assert_eq!(pids, children);
        assert_eq!(rpc.workers("default").len(), 2, "by its own name");
        let list = rpc.call("informer.Workers", "\"http\"");
        for part in [
            "\"status\":1",
            "\"statusStr\":\"ready\"",
            "\"numExecs\":0",
            "\"command\":\"\"",
            "\"transport\":\"r", // ring or relay
        ] {
            assert!(list.contains(part), "{part} in {list}");
        }
        assert!(!list.contains("\"memoryUsage\":0"), "{list}");

        assert_eq!(rpc.call("resetter.Reset", "\"http\""), "true");
        let now = rpc.pids("http");
        assert_eq!(now.len(), 2);
        assert!(
            now.iter().all(|pid| !pids.contains(pid)),
            "{now:?} {pids:?}"
        );
        assert_eq!(rpc.call("resetter.Reset", "\"default\""), "true");
        assert_eq!(
            rpc.call("resetter.Reset", "\"nope\""),
            "error: resetter_rpc_reset:\n\tresetter_plugin_reset_by_name: no such plugin: nope"
        );
        drop(rpc);
        server.stop();
    }
}

#[test]
fn a_worker_that_works_is_shown_so() {
    let server = started(Site::with_worker("app.php"), TCP);
    let mut busy = server.connect();
    busy.request("GET", "/wait", "");
    let mut rpc = Rpc::connect(&server);
    wait_for("a worker to be at work", || {
        let states = rpc.workers("http");
        (states
            .iter()
            .filter(|(_, state)| state == "working")
            .count()
            == 1)
            .then_some(())
    });
    server.site().write("go", "");
    assert_eq!(busy.response().text(), "awake");
    let list = rpc.call("informer.Workers", "\"http\"");
    assert!(list.contains("\"numExecs\":1"), "{list}");
    drop(rpc);
    server.stop();
}

#[test]
fn a_reset_to_code_that_does_not_boot_says_why_and_leaves_the_workers() {
    let site = Site::new()
        .file("worker.php", &Site::sdk_worker("return 'old';"))
        .config(
            "version: '3'\nserver: {command: php worker.php}\n\
             http: {address: '127.0.0.1:0', pool: {num_workers: 1}}\nlogs: {level: debug}\n",
        );
    let server = started(site, TCP);
    let mut rpc = Rpc::connect(&server);
    let before = rpc.pids("http");
    server.site().write("worker.php", "<?php broken(;\n");
    let said = rpc.call("resetter.Reset", "\"http\"");
    assert!(said.starts_with("error: resetter_rpc_reset:\n\t"), "{said}");
    assert!(said.contains("syntax error"), "{said}");
    assert_eq!(rpc.pids("http"), before);
    assert_eq!(server.get("/").text(), "old");
    drop(rpc);
    server.stop();
}

/// Each request is one call of a lock's method, from whichever worker is free.
const LOCKING: &str = r"
$query = $request->query();
$rpc = Pronghorn\Rpc::connect();
$query['ttl'] = (int) ($query['ttl'] ?? 0);
$query['wait'] = (int) ($query['wait'] ?? 0);
return getmypid() . ' ' . json_encode($rpc->call('lock.' . substr($request->path, 1), $query));
";

#[test]
fn two_workers_share_locks() {
    let site = Site::new()
        .file("worker.php", &Site::sdk_worker(LOCKING))
        .config(
            "version: '3'\nserver: {command: php worker.php}\n\
             http: {address: '127.0.0.1:0', pool: {num_workers: 2}}\nlogs: {level: debug}\n",
        );
    let server = started(site, UNIX);
    let ask = |target: &str| {
        let response = server.get(target).text();
        let (pid, answer) = response.split_once(' ').expect("pid and answer");
        (pid.to_owned(), answer == r#"{"ok":true}"#)
    };
    assert!(ask("/Lock?resource=r&id=a").1);
    assert!(!ask("/Lock?resource=r&id=b").1);
    // The other worker waits with this one, and gets it when the first lets go.
    let mut waiting = server.connect();
    waiting.request("GET", "/Lock?resource=r&id=b&wait=20000000", "");
    let mut rpc = Rpc::connect(&server);
    wait_for("one worker to wait", || {
        let states = rpc.workers("http");
        states
            .iter()
            .any(|(_, state)| state == "working")
            .then_some(())
    });
    assert!(ask("/Exists?resource=r&id=a").1);
    let (first, released) = ask("/Release?resource=r&id=a");
    assert!(released);
    let response = waiting.response().text();
    let (second, answer) = response.split_once(' ').expect("pid and answer");
    assert_eq!(answer, r#"{"ok":true}"#);
    assert_ne!(first, second, "they are two");
    assert!(ask("/UpdateTTL?resource=r&id=b&ttl=60000000").1);
    assert!(ask("/ForceRelease?resource=r").1);
    assert!(!ask("/Exists?resource=r&id=*").1);

    // A caller that goes while it waits has no lock later.
    assert!(ask("/LockRead?resource=r&id=a").1);
    assert!(ask("/LockRead?resource=r&id=b").1);
    assert_eq!(
        rpc.call("lock.Release", r#"{"resource":"r","id":"a"}"#),
        r#"{"ok":true}"#
    );
    let mut leaving = Rpc::connect(&server);
    let argument = br#"{"resource":"r","id":"gone","wait":20000000}"#;
    leaving.send(Flags::JSON, "lock.Lock", argument);
    wait_for("it to stand in line, before a reader", || {
        (!ask("/LockRead?resource=r&id=c").1).then_some(())
    });
    drop(leaving);
    wait_for("the reader to be let in", || {
        ask("/LockRead?resource=r&id=c").1.then_some(())
    });
    assert!(ask("/ForceRelease?resource=r").1);
    assert!(ask("/Lock?resource=r&id=d").1);
    drop(rpc);
    server.stop();
}

#[test]
fn every_codec_has_its_answers() {
    let server = started(Site::with_worker("app.php"), TCP);
    let mut rpc = Rpc::connect(&server);
    let (flags, answer) = rpc.ask(Flags::PROTO, "status.Ready", b"\x0a\x04http");
    assert_eq!((flags, &answer[..]), (Flags::PROTO, &b"\x08\xc8\x01"[..]));
    let (flags, answer) = rpc.ask(Flags::PROTO, "lock.Lock", b"\x0a\x01r\x12\x01i");
    assert_eq!((flags, &answer[..]), (Flags::PROTO, &b"\x08\x01"[..]));
    let (flags, answer) = rpc.ask(Flags::MSGPACK, "informer.Workers", b"\xa4http");
    assert_eq!(flags, Flags::MSGPACK);
    let text = answer.escape_ascii().to_string();
    for part in [
        "Workers",
        "Pid",
        "NumExecs",
        "CPUPercent",
        "StatusStr\\xa5ready",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    let (flags, answer) = rpc.ask(Flags::MSGPACK, "resetter.Reset", b"\xa4nope");
    assert_eq!(flags, Flags::MSGPACK.with(Flags::ERROR));
    assert!(answer.ends_with(b"no such plugin: nope"));
    let (flags, answer) = rpc.ask(Flags::RAW, "rpc.Config", b"");
    assert_eq!((flags, answer.first()), (Flags::RAW, Some(&b'{')));

    assert_eq!(
        rpc.call("status.Status", r#"{"plugin":"http"}"#),
        r#"{"code":200}"#
    );
    assert_eq!(
        rpc.call("status.Ready", r#"{"plugin":"jobs"}"#),
        "error: checker_rpc_ready:\n\tchecker_plugin_ready: no such plugin: jobs"
    );
    drop(rpc);
    server.stop();
}

const STATUS: &str = "status: {address: '127.0.0.1:0', drain_delay: 2s}\n";

#[test]
fn health_checks_tell_a_server_that_is_stuck_from_one_that_is_not() {
    let server = started(Site::with_worker("app.php"), STATUS);
    let well = r#"[{"plugin_name":"http","error_message":"","status_code":200}]"#;
    for target in ["/health", "/ready", "/ready?plugin=http&plugin=nope"] {
        let response = probe(&server, target);
        assert_eq!(
            (response.status, response.text().as_str()),
            (200, well),
            "{target}"
        );
        assert_eq!(
            response.header("content-type"),
            Some("text/plain; charset=utf-8")
        );
    }
    let jobs = probe(&server, "/jobs");
    assert_eq!((jobs.status, jobs.text().as_str()), (200, "[]"));
    let nothing = probe(&server, "/nope");
    assert_eq!(
        (nothing.status, nothing.text().as_str()),
        (404, "404 page not found\n")
    );

    let mut busy: Vec<_> = (0..4).map(|_| server.connect()).collect();
    for connection in &mut busy {
        connection.request("GET", "/sleep?ms=4500", "");
    }
    let full = wait_for("calls that no worker takes", || {
        let response = probe(&server, "/ready");
        (response.status == 503).then_some(response)
    });
    let text = full.text();
    assert!(
        text.contains("pool `default`: calls wait, and no worker took one for "),
        "{text}"
    );
    assert_eq!(probe(&server, "/health").status, 200, "full is not ill");
    server
        .steer(&["status", "--alive"])
        .assert_said(&["not ready"]);
    for connection in &mut busy {
        assert_eq!(connection.response().text(), "awake");
    }
    assert_eq!(probe(&server, "/ready").status, 200);
    server.stop();
}

/// All servers behind a balancer are full at the same time. If each said that it is not ready,
/// there would be none.
#[test]
fn a_balancer_keeps_a_server_that_is_full() {
    let server = started(Site::with_worker("app.php"), STATUS);
    let address = free_address();
    let balancer = format!(
        "frontend all\n    bind {address}\n    default_backend php\n\
         backend php\n    option httpchk GET /ready\n\
         \x20   server one {} check addr 127.0.0.1 port {} inter 200ms fall 1 rise 1\n",
        server.address(),
        listening(&server, "status")
            .rsplit(':')
            .next()
            .expect("a port"),
    );
    let balancer = HaProxy::start(server.site(), &balancer, address);
    let clients = (0..12).map(|_| {
        std::thread::spawn(move || {
            let mut connection = Connection::open(address);
            for _ in 0..4 {
                assert_eq!(connection.get("/sleep?ms=300").text(), "awake");
            }
        })
    });
    let clients: Vec<_> = clients.collect();
    wait_for("all to have their pages", || {
        assert_eq!(probe(&server, "/ready").status, 200);
        clients.iter().all(JoinHandle::is_finished).then_some(())
    });
    for client in clients {
        client.join().expect("each request has its page");
    }
    let log = server.log();
    let mut waits = log.split("\"queue_us\":").filter_map(|rest| {
        rest.trim_start()
            .split([',', '}'])
            .next()?
            .parse::<u64>()
            .ok()
    });
    assert!(waits.any(|wait| wait > 1_000_000), "it was not full");
    drop(balancer);
    server.stop();
}

#[test]
fn readiness_turns_off_before_the_server_stops_to_serve() {
    let mut server = started(Site::with_worker("app.php"), STATUS);
    listening(&server, "status");
    server.signal(Signal::TERM);
    let response = wait_for("readiness to turn off", || {
        let response = probe(&server, "/ready");
        (response.status == 503).then_some(response)
    });
    assert_eq!(response.text(), "service is shutting down\n");
    let health = probe(&server, "/health");
    assert_eq!(
        (health.status, health.text().as_str()),
        (200, "service is shutting down\n")
    );
    assert_eq!(probe(&server, "/jobs").status, 503);
    assert_eq!(
        server.get("/").text(),
        "Hello",
        "it serves on until balancers know"
    );
    server.logged(&["serving 2 s longer"]);
    assert_eq!(server.wait().code, Some(0));
}

#[test]
fn a_port_for_health_checks_that_is_taken_is_told() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let site = Site::with_worker("app.php");
    let config = std::fs::read_to_string(site.path(".rr.yaml")).unwrap();
    let site = site.config(&format!(
        "{config}status: {{address: '127.0.0.1:{port}'}}\n"
    ));
    let ended = Server::run(&site, &["serve"]);
    ended.assert_refused(&[&port.to_string(), "is in use"]);
}

#[test]
fn rpc_beyond_loopback_is_warned_about() {
    let server = started(Site::with_worker("app.php"), "rpc: {listen: 'tcp://:0'}\n");
    server.logged(&["other machines may connect"]);
    assert_eq!(server.get("/rpc").text(), "2025.1.15");
    server.stop();
}

#[test]
fn health_checks_are_answered_whoever_holds_connections_to_their_port() {
    let server = started(Site::with_worker("app.php"), STATUS);
    let address: SocketAddr = listening(&server, "status").parse().expect("an address");
    let mut held = Vec::new();
    for start in ["GET /health HTTP/1.1\r\n", ""] {
        for _ in 0..300 {
            let mut connection = TcpStream::connect(address).expect("it is taken");
            _ = connection.write_all(start.as_bytes()); // it may be closed for a later one
            held.push(connection);
        }
        assert_eq!(probe(&server, "/health").status, 200, "{start:?}");
    }
    server.stop();
}

#[test]
fn health_checks_go_over_to_the_next_process() {
    let mut server = started(Site::with_worker("app.php"), STATUS);
    let address: SocketAddr = listening(&server, "status").parse().expect("an address");
    assert_eq!(Connection::open(address).get("/ready").status, 200);
    for _ in 0..2 {
        server.upgrade();
        let response = Connection::open(address).get("/ready");
        assert_eq!(response.status, 200, "{}", response.text());
    }
    server.stop();
}

#[test]
fn workers_are_added_and_taken_away() {
    let server = started(Site::with_worker("app.php"), TCP);
    let mut rpc = Rpc::connect(&server);
    let before = rpc.pids("http");
    assert_eq!(rpc.call("informer.AddWorker", "\"http\""), "false");
    let more = rpc.pids("http");
    assert_eq!(more.len(), 3);
    assert!(
        before.iter().all(|pid| more.contains(pid)),
        "those that were there stay"
    );
    for count in [2, 1] {
        assert_eq!(rpc.call("informer.RemoveWorker", "\"default\""), "false");
        wait_for("a worker to go", || {
            (rpc.pids("http").len() == count).then_some(())
        });
    }
    let said = rpc.call("informer.RemoveWorker", "\"http\"");
    assert!(said.contains("it can have from 1 to"), "{said}");
    assert_eq!(
        rpc.call("informer.AddWorker", "\"nope\""),
        "error: plugin nope does not support workers management"
    );
    assert_eq!(server.get("/").text(), "Hello");
    drop(rpc);
    server.stop();
}

#[test]
fn a_call_gets_more_time_by_its_pid() {
    const ASK: &str = "
if ($request->path === '/patient') {
    $granted = Pronghorn\\Rpc::connect()->call('pronghorn.Extend', ['pid' => getmypid(), 'seconds' => 20]);
}
$until = hrtime(true) + 1_600_000_000;
while (hrtime(true) < $until) {
    usleep(10_000);
}
return json_encode($granted ?? null);
";
    let site = Site::new()
        .file("worker.php", &Site::sdk_worker(ASK))
        .config(
            "version: '3'\nserver: {command: php worker.php}\nlogs: {level: debug}\n\
         http: {address: '127.0.0.1:0', pool: {num_workers: 1, supervisor: {exec_ttl: 1s}}}\n",
        );
    let server = started(site, TCP);
    assert_eq!(server.get("/patient").text(), r#"{"seconds":20}"#);
    assert_eq!(server.get("/hasty").status, 504);
    let mut rpc = Rpc::connect(&server);
    for (argument, said) in [
        (r#"{"pid":1,"seconds":5}"#, "error: no worker has the pid 1"),
        (
            r#"{"pid":1,"seconds":-5}"#,
            "error: a call cannot be extended by -5 seconds",
        ),
        (
            r#"{"pid":1}"#,
            "error: a call cannot be extended by 0 seconds",
        ),
    ] {
        assert_eq!(rpc.call("pronghorn.Extend", argument), said);
    }
    let pid = wait_for("a worker", || rpc.pids("http").first().copied());
    let argument = format!(r#"{{"pid":{pid},"seconds":5}}"#);
    let no_call = format!("error: the worker with the pid {pid} has no call");
    // It may still be ending the hasty one.
    wait_for("a worker without a call", || {
        (rpc.call("pronghorn.Extend", &argument) == no_call).then_some(())
    });
    drop(rpc);
    server.stop();
}
