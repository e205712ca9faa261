//! Start, stop, and workers that die.

use std::time::Duration;

use pronghorn_testkit::{Server, Site, time, wait_for};
use rustix::process::Signal;

#[test]
fn an_idle_server_stops_at_once() {
    for signal in [Signal::INT, Signal::TERM, Signal::QUIT] {
        let mut server = Server::start(Site::with_worker("app.php"));
        assert_eq!(server.get("/").text(), "Hello");
        server.signal(signal);
        let (ended, took) = time(|| server.wait());
        assert_eq!(ended.code, Some(0));
        // The issue asks for 200 ms; a loaded machine gets some more before this is called a
        // failure.
        assert!(took < Duration::from_secs(5), "{took:?}");
    }
}

#[test]
fn a_stop_lets_requests_finish_and_ends_kept_connections() {
    let mut server = Server::start(Site::with_worker("app.php"));
    let mut kept = server.connect();
    kept.get("/");
    let mut busy = server.connect();
    busy.request("GET", "/wait", "");
    wait_for("the call to be with its worker", || {
        let shown = server.steer(&["workers"]).stdout;
        shown.contains("GET /wait").then_some(())
    });
    server.signal(Signal::TERM);
    assert!(kept.is_closed());
    server.site().write("go", "");
    let response = busy.response();
    assert_eq!(
        (response.text().as_str(), response.header("connection")),
        ("awake", Some("close"))
    );
    assert_eq!(server.wait().code, Some(0));
}

#[test]
fn a_request_that_outlives_the_grace_period_is_said_to_be_cut_off() {
    let mut server = Server::start_with(
        Site::with_worker("app.php"),
        &["serve", "-o", "endure.grace_period=1s"],
    );
    let mut busy = server.connect();
    busy.request("GET", "/sleep?ms=20000", "");
    wait_for("the call to be with its worker", || {
        let shown = server.steer(&["workers"]).stdout;
        shown.contains("GET /sleep").then_some(())
    });
    server.signal(Signal::TERM);
    let ended = server.wait();
    let why = "worker killed: its request did not end in the time";
    assert!(ended.stderr.contains(why), "{}", ended.stderr);
    assert!(!ended.stderr.contains("worker died"), "{}", ended.stderr);
}

#[test]
fn a_second_signal_ends_everything() {
    let mut server = Server::start(Site::with_worker("app.php"));
    let mut busy = server.connect();
    busy.request("GET", "/sleep?ms=20000", "");
    wait_for("the call to be with its worker", || {
        let pids: Vec<_> = (0..2).map(|_| server.get("/pid").text()).collect();
        (pids[0] == pids[1]).then_some(())
    });
    server.signal(Signal::INT);
    server.logged(&["stopping"]);
    // Not so soon that it could be the first one arriving twice.
    wait_for("the forced end", || {
        server.signal(Signal::INT);
        server.log().contains("exit forced").then_some(())
    });
    let ended = server.wait();
    assert_eq!(ended.code, Some(1));
    assert!(ended.stderr.contains("exit forced"));
}

#[test]
fn a_worker_that_dies_is_replaced_and_its_call_answered() {
    let server = Server::start(Site::with_worker("app.php"));
    let before = server.workers();
    let mut connection = server.connect();
    connection.request("POST", "/die", "Content-Length: 0\r\n");
    assert_eq!(connection.response().status, 502);
    server.logged(&["worker died with signal 9 (SIGKILL)", "POST /die"]);
    wait_for("a new worker", || {
        let now = server.workers();
        (now.len() == 2 && now != before).then_some(())
    });
    assert_eq!(server.get("/").text(), "Hello");
    server.stop();
}

#[test]
fn a_safe_call_is_tried_once_more() {
    let server = Server::start(Site::with_worker("app.php"));
    assert_eq!(server.get("/die").status, 502);
    let log = server.logged(&["GET /die", "\"retried\":false"]);
    assert!(log.contains("SIGKILL"), "{log}");
    assert!(
        server.log().contains("\"retried\":true"),
        "{}",
        server.log()
    );
    server.stop();
}

#[test]
fn exit_in_a_handler_is_answered_and_the_worker_replaced() {
    // With the extension it would go on.
    let site = Site::with_worker("app.php");
    site.change_config("num_workers: 2", "num_workers: 2, transport: relay");
    let server = Server::start(site);
    let pid = server.get("/pid").text();
    let response = server.get("/exit");
    assert_eq!(response.status, 500);
    server.logged(&["exit"]);
    wait_for("the worker to be replaced", || {
        let workers = server.workers();
        (workers.len() == 2 && !workers.contains(&pid.parse().unwrap())).then_some(())
    });
    server.stop();
}

#[test]
fn a_server_that_is_killed_takes_its_workers_with_it() {
    let mut server = Server::start(Site::with_worker("app.php"));
    assert_eq!(server.workers().len(), 2);
    server.signal(Signal::KILL);
    // `wait` fails if a worker is left.
    assert_eq!(server.wait().code, None);
}

#[test]
fn a_worker_calls_the_server_until_its_end() {
    for listen in ["tcp://127.0.0.1:0", "unix://rpc.sock"] {
        let site = Site::with_worker("app.php");
        let config = std::fs::read_to_string(site.path(".rr.yaml")).unwrap();
        let server = Server::start(site.config(&format!("{config}rpc: {{listen: '{listen}'}}\n")));
        assert_eq!(server.get("/rpc").text(), "2025.1.15", "{listen}");
        server.stop();
    }
}

#[test]
fn without_rpc_a_worker_is_told_so() {
    let server = Server::start(Site::with_worker("app.php"));
    assert_eq!(server.get("/rpc").status, 500);
    // The worker asks over its own connection, where services have their methods all the same.
    server.logged(&["rpc: can't find service rpc.Version"]);
    server.stop();
}

#[test]
fn log_files_that_were_moved_away_are_opened_anew() {
    let site = Site::with_worker("app.php");
    let config = std::fs::read_to_string(site.path(".rr.yaml")).unwrap();
    let server = Server::start(site.config(&format!(
        "{}logs: {{channels: {{http: {{output: requests.log}}}}}}\n",
        config.replace("logs: {level: debug}\n", "")
    )));
    let lines = |name: &str| std::fs::read_to_string(server.site().path(name)).unwrap_or_default();
    server.get("/?first");
    wait_for("the first record", || {
        lines("requests.log").contains("/?first").then_some(())
    });
    std::fs::rename(
        server.site().path("requests.log"),
        server.site().path("moved.log"),
    )
    .unwrap();
    server.signal(Signal::USR1);
    server.logged(&["log files reopened"]);
    server.get("/?second");
    wait_for("the second record", || {
        lines("requests.log").contains("/?second").then_some(())
    });
    assert!(!lines("moved.log").contains("/?second"));
    // And when that is impossible, the old file goes on.
    std::fs::remove_file(server.site().path("requests.log")).unwrap();
    std::fs::create_dir(server.site().path("requests.log")).unwrap();
    server.signal(Signal::USR1);
    server.logged(&["ERROR", "a log file could not be reopened", "requests.log"]);
    assert_eq!(server.get("/").status, 200);
    server.stop();
}
