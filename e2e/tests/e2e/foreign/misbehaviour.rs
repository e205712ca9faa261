//! Workers that do not keep to the protocol of the official packages. Their replies carry no
//! number, and over pipes what they print stands between the frames.

use pronghorn_testkit::{Response, Server, Site, wait_for};
use rustix::process::Signal;

fn site(manner: &str, relay: &str, pool: &str) -> Site {
    Site::new().config(&format!(
        "version: '3'\n\
         server: {{command: php {} {manner}, relay: '{relay}'}}\n\
         http: {{address: 127.0.0.1:0, pool: {{num_workers: 1, {pool}}}}}\n\
         logs: {{level: debug}}\n",
        Site::fixture("foreign/misbehaving.php").display()
    ))
}

const RELAYS: [&str; 3] = ["pipes", "unix://rr.sock", "tcp://127.0.0.1:0"];

/// POSTs, which is never tried twice.
fn post(server: &Server, path: &str) -> Response {
    server.post(path, "text/plain", "")
}

#[test]
fn an_answer_that_makes_no_sense_is_a_502_and_the_worker_is_replaced() {
    for relay in RELAYS {
        let server = Server::start(site("good", relay, ""));
        for (path, said) in [
            (
                "/garbage",
                "no frame but text: PHP Warning:  Undefined variable in /srv/app/index.php on line 7",
            ),
            ("/garbage-and-answer", "no frame but "),
            ("/short-garbage", "no frame but text, 1 bytes of it"),
            ("/crc", "no frame but other bytes, "),
            ("/huge", "payload of 4294967295 bytes"),
            ("/context", "a context of 1048576 bytes in a frame of 27"),
            ("/no-option", "a frame with 0 options"),
            ("/two-options", "a frame with 2 options"),
            ("/json", "JSON"),
            ("/proto", "protobuf"),
        ] {
            let response = post(&server, path);
            assert_eq!(response.status, 502, "{path}");
            assert!(!response.text().contains("PHP"), "details stay in the log");
            server.logged(&[
                "ERROR",
                "worker replaced after a protocol error",
                said,
                &format!("POST {path}"),
            ]);
            assert_eq!(post(&server, "/good").text(), "good", "after {path}");
        }
        server.stop();
    }
}

#[test]
fn what_is_odd_and_harmless_is_no_reason_to_end_a_worker() {
    let server = Server::start(site("good", "pipes", ""));
    let workers = server.workers();
    assert_eq!(post(&server, "/status").status, 500);
    server.logged(&["ERROR", "the application's reply can't be sent: status 999"]);
    assert_eq!(post(&server, "/control").text(), "good");
    assert_eq!(post(&server, "/prints-after").text(), "page");
    server.logged(&["WARN", "Warning: printed too late"]);
    assert_eq!(post(&server, "/prints-page-after").text(), "page");
    server.logged(&[
        "WARN",
        "on stdout, between answers: 14 bytes, which are left out",
    ]);
    assert!(!server.log().contains("Ada"), "{}", server.log());
    assert_eq!(post(&server, "/good").text(), "good");
    assert_eq!(server.workers(), workers);
    server.stop();
}

#[test]
fn a_frame_that_makes_no_sense_behind_an_answer_ends_the_worker_only() {
    let server = Server::start(site("good", "pipes", ""));
    assert_eq!(post(&server, "/nonsense-after").text(), "page");
    server.logged(&[
        "ERROR",
        "worker replaced after a protocol error",
        "a frame with 2 options",
    ]);
    assert_eq!(post(&server, "/good").text(), "good");
    server.stop();
}

#[test]
fn a_second_answer_reaches_nobody() {
    for relay in RELAYS {
        let server = Server::start(site("good", relay, ""));
        for path in ["/twice", "/twice-long", "/twice", "/twice-late", "/twice"] {
            assert_eq!(post(&server, path).text(), "once", "{path}");
            assert_eq!(post(&server, "/good").text(), "good", "after {path}");
        }
        server.logged(&[
            "WARN",
            "a worker answered twice: the second answer was dropped",
        ]);
        server.stop();
    }
}

#[test]
fn a_second_answer_reaches_nobody_while_others_wait() {
    let server = Server::start(site("good", "pipes", "max_queue_size: 100"));
    let mut connections: Vec<_> = (0..24).map(|_| server.connect()).collect();
    for (number, connection) in connections.iter_mut().enumerate() {
        let path = if number % 3 == 0 { "/twice" } else { "/good" };
        connection.request("POST", path, "Content-Length: 0\r\n");
    }
    for (number, connection) in connections.iter_mut().enumerate() {
        let wanted = if number % 3 == 0 { "once" } else { "good" };
        assert_eq!(connection.response().text(), wanted, "request {number}");
    }
    server.stop();
}

#[test]
fn a_worker_that_dies_before_during_or_after_its_reply_is_replaced() {
    for relay in RELAYS {
        let server = Server::start(site("good", relay, ""));
        assert_eq!(post(&server, "/before").status, 502);
        server.logged(&[
            "ERROR",
            "worker died with signal 9 (SIGKILL) during a request",
            "POST /before",
        ]);
        let cut = |path| {
            let reply = post(&server, path);
            assert_eq!(
                (reply.status, reply.text().as_str()),
                (200, "half"),
                "{path}"
            );
            assert!(
                !reply.complete,
                "the client can tell that something is missing"
            );
        };
        cut("/during");
        server.logged(&[
            "ERROR",
            "worker died with signal 9 (SIGKILL) during a request",
            "POST /during",
        ]);
        cut("/long");
        server.logged(&[
            "ERROR",
            "worker died with exit code 4 during a request",
            "POST /long",
        ]);
        cut("/stream-garbage");
        server.logged(&[
            "ERROR",
            "worker replaced after a protocol error",
            "no frame but text: Fatal error: Allowed memory size exhausted",
            "POST /stream-garbage",
        ]);
        assert_eq!(post(&server, "/half-a-frame").status, 502);
        server.logged(&[
            "ERROR",
            "worker died with exit code 4 during a request",
            "POST /half-a-frame",
        ]);
        assert_eq!(post(&server, "/after").text(), "the last one");
        server.logged(&[
            "ERROR",
            "worker died with exit code 5 while it was idle",
            "out of memory, says the worker",
        ]);
        assert_eq!(post(&server, "/good").text(), "good");
        server.stop();
    }
}

#[test]
fn a_worker_that_closes_its_relay_and_lives_on_is_ended() {
    for relay in RELAYS {
        let server = Server::start(site("good", relay, ""));
        assert_eq!(post(&server, "/closes").status, 502);
        server.logged(&[
            "ERROR",
            "worker died with signal 15 (SIGTERM) during a request",
            "POST /closes",
        ]);
        let pid = post(&server, "/closes-after").text();
        wait_for("the worker to be ended", || {
            (!server.workers().contains(&pid.parse().unwrap())).then_some(())
        });
        assert_eq!(post(&server, "/good").text(), "good");
        server.stop();
    }
}

#[test]
fn a_farewell_that_meets_the_next_call_does_not_have_it_done_twice() {
    let server = Server::start(site("good", "pipes", ""));
    for call in 1..=5 {
        assert_eq!(post(&server, "/stop-and-work").text(), "page");
        assert_eq!(post(&server, "/count").text(), "counted");
        let counted = std::fs::read(server.site().path("counted")).unwrap();
        assert_eq!(counted.len(), call);
    }
    server.stop();
}

#[test]
fn a_call_that_its_worker_never_read_goes_to_another_one() {
    let server = Server::start(site("good", "pipes", ""));
    for _ in 0..5 {
        assert_eq!(post(&server, "/leaves-late").text(), "page");
        assert_eq!(post(&server, "/good").text(), "good");
    }
    server.stop();
}

#[test]
fn a_worker_whose_client_left_still_has_its_deadline() {
    let server = Server::start(site("good", "pipes", "supervisor: {exec_ttl: 1s}"));
    let mut leaving = server.connect();
    leaving.request("GET", "/never", "");
    server.logged(&["begun"]);
    drop(leaving);
    server.logged(&["ERROR", "deadline passed", "GET /never"]);
    assert_eq!(post(&server, "/good").text(), "good");
    server.stop();
}

#[test]
fn a_worker_that_never_answers_is_ended_at_the_deadline() {
    let server = Server::start(site("good", "pipes", "supervisor: {exec_ttl: 1s}"));
    assert_eq!(post(&server, "/never").status, 504);
    server.logged(&["ERROR", "deadline passed", "POST /never"]);
    assert_eq!(post(&server, "/good").text(), "good");
    server.stop();
}

#[test]
fn a_worker_that_answers_one_question_only_is_served_without_the_fence() {
    let fenced = "supervisor: {exec_ttl: 1s}";
    let server = Server::start(site("answers-one-question", "pipes", fenced));
    assert_eq!(post(&server, "/").status, 504);
    server.logged(&[
        "WARN",
        "did not begin a call in time",
        "`pool.relay.fence: never`",
    ]);
    server.stop();
    let never = "relay: {fence: never}";
    let server = Server::start(site("answers-one-question", "pipes", never));
    assert_eq!(post(&server, "/").text(), "good");
    server.stop();
}

#[test]
fn a_stream_without_an_end_has_one_when_nobody_reads() {
    let server = Server::start(site("good", "pipes", "stream_timeout: 1s"));
    let mut leaving = server.connect();
    leaving.request("GET", "/stream-for-ever", "");
    assert_eq!(leaving.head().0, 200);
    drop(leaving);
    server.logged(&["ERROR", "deadline passed", "GET /stream-for-ever"]);
    assert_eq!(post(&server, "/good").text(), "good");
    server.stop();
}

#[test]
fn a_worker_that_does_not_want_to_end_is_killed() {
    let mut server = Server::start_with(
        site("stubborn", "pipes", ""),
        &["serve", "-o", "endure.grace_period=1s"],
    );
    let workers = server.workers();
    assert_eq!(post(&server, "/good").text(), "good");
    server.signal(Signal::TERM);
    let ended = server.wait();
    assert_eq!(ended.code, Some(0));
    let record = "stopped at the end of the grace period: 0 connections, 1 workers";
    assert!(
        ended.stderr.contains(record),
        "{workers:?} {}",
        ended.stderr
    );
}

#[test]
fn a_shell_may_stand_between_the_server_and_its_worker() {
    for relay in RELAYS {
        let site = site("good", relay, "").file(
            "start.sh",
            &format!(
                "php {} good; exit $?\n",
                Site::fixture("foreign/misbehaving.php").display()
            ),
        );
        let server = Server::start_with(site, &["serve", "-o", "server.command=sh start.sh"]);
        assert_eq!(post(&server, "/good").text(), "good", "{relay}");
        assert_eq!(post(&server, "/before").status, 502);
        assert_eq!(post(&server, "/good").text(), "good");
        server.stop();
    }
}

#[test]
fn what_a_worker_prints_before_it_is_ready_is_logged_and_harmless() {
    for (manner, text) in [
        (
            "prints-first",
            "Deprecated: something in /srv/app/worker.php",
        ),
        ("prints-without-end", "\tok\t"),
        ("prints-in-colour", "booted"),
    ] {
        let server = Server::start(site(manner, "pipes", ""));
        server.logged(&["INFO", text, "\"pid\":"]);
        assert_eq!(post(&server, "/good").text(), "good", "{manner}");
        server.stop();
    }
}

#[test]
fn a_worker_that_does_not_come_up_ends_the_start_with_the_reason() {
    for (manner, parts) in [
        ("no-pid", vec!["worker cannot be used", "no process number"]),
        (
            "nonsense-first",
            vec!["worker cannot be used", "a frame with 2 options"],
        ),
        (
            "answers-first",
            vec![
                "worker cannot be used",
                "its first frame does not announce it",
            ],
        ),
        (
            "dies",
            vec![
                "worker ended before it was ready (exit code 3)",
                "it said  no database",
            ],
        ),
    ] {
        Server::run(&site(manner, "pipes", ""), &["serve"]).assert_refused(&parts);
    }
}

#[test]
fn a_worker_that_does_not_announce_itself_has_until_its_boot_is_over() {
    for (manner, relay, said) in [
        ("silent", "pipes", "it said  waiting for the database"),
        (
            "silent",
            "unix://rr.sock",
            "it said  waiting for the database",
        ),
        ("garbage-only", "pipes", "it said  no worker at all"),
        ("huge-first", "pipes", "it said  \\u{13}\\u{1}"),
        ("closes-first", "pipes", "pool.boot_timeout"),
        ("closes-first", "unix://rr.sock", "pool.boot_timeout"),
        (
            "silent",
            "unix://rr.sock",
            "rr.sock`, which it finds in `RR_RELAY`",
        ),
        (
            "wrong-pid",
            "tcp://127.0.0.1:0",
            "process 1 announced itself",
        ),
    ] {
        let ended = Server::run(&site(manner, relay, "boot_timeout: 2s"), &["serve"]);
        ended.assert_refused(&["worker did not announce itself within 2s", said]);
    }
}

#[test]
fn a_worker_that_takes_pipes_beside_a_socket_is_told_what_to_write() {
    for (relay, address) in [
        ("unix://rr.sock", "/rr.sock`"),
        ("tcp://127.0.0.1:0", "`tcp://127.0.0.1:"),
    ] {
        let ended = Server::run(&site("takes-pipes", relay, ""), &["serve"]);
        ended.assert_refused(&[
            "worker ended before it was ready (exit code 255)",
            "Unable to read frame header",
            address,
            "write `relay: pipes`, or have the worker connect to the address in `RR_RELAY`",
        ]);
    }
}

#[test]
fn a_warm_up_that_makes_no_sense_ends_the_start_and_a_good_one_does_not() {
    for relay in RELAYS {
        let refused = Server::run(&site("good", relay, "warmup: [/garbage]"), &["serve"]);
        refused
            .assert_refused(&["failed its warm-up: GET /garbage: the worker's answer is invalid"]);
        let server = Server::start(site("good", relay, "warmup: [/good]"));
        assert_eq!(post(&server, "/good").text(), "good");
        server.stop();
    }
}
