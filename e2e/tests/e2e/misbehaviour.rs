//! Workers that do not keep to the protocol: what the client gets, what the log says, that the
//! server goes on.

use pronghorn_testkit::{Response, Server, Site, wait_for};

fn site(manner: &str) -> Site {
    Site::new().config(&format!(
        "version: '3'\nserver:\n  command: php {} {manner}\nhttp:\n  address: 127.0.0.1:0\n  pool: {{num_workers: 1, boot_timeout: 10s}}\nlogs: {{level: debug}}\n",
        Site::fixture("misbehaving.php").display()
    ))
}

/// POSTs, which is never tried twice.
fn post(server: &Server, path: &str) -> Response {
    server.post(path, "text/plain", "")
}

#[test]
fn an_answer_that_makes_no_sense_is_a_502_and_the_worker_is_replaced() {
    let server = Server::start(site("good"));
    for (path, said) in [
        (
            "/garbage",
            "no frame but text: PHP Warning:  Undefined variable in /srv/app/index.php on line 7",
        ),
        ("/crc", "no frame but other bytes, "),
        ("/huge", "payload of 4294967295 bytes"),
        ("/context", "a context of 1048576 bytes in a frame of 5"),
        (
            "/head",
            "a head of 2097173 bytes, at most 1048576 are taken",
        ),
        ("/options", "ends too early or has a wrong length"),
        ("/fields", "ends too early or has a wrong length"),
        ("/kind", "unknown kind of message 0x42"),
        ("/chunk-first", "a chunk at the wrong time"),
        (
            "/number",
            "an answer to call 1002 while call 2 is under way",
        ),
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

#[test]
fn a_status_that_does_not_exist_is_a_500_and_the_worker_kept() {
    let server = Server::start(site("good"));
    let workers = server.workers();
    assert_eq!(post(&server, "/status").status, 500);
    server.logged(&["ERROR", "the application's reply can't be sent: status 999"]);
    assert_eq!(post(&server, "/good").text(), "good");
    assert_eq!(server.workers(), workers);
    server.stop();
}

#[test]
fn a_second_answer_reaches_nobody() {
    let server = Server::start(site("good"));
    for _ in 0..10 {
        assert_eq!(post(&server, "/twice").text(), "once");
        // The next call may come before the second answer: then that has the number of another
        // call.
        let next = post(&server, "/good");
        match next.status {
            200 => assert_eq!(next.text(), "good"),
            status => assert_eq!(status, 502),
        }
    }
    server.logged(&["worker replaced after a protocol error"]);
    server.stop();
}

#[test]
fn a_worker_that_dies_before_during_or_after_its_reply_is_replaced() {
    let server = Server::start(site("good"));
    assert_eq!(post(&server, "/before").status, 502);
    server.logged(&[
        "ERROR",
        "worker died with signal 9 (SIGKILL) during a request",
        "POST /before",
    ]);

    let reply = post(&server, "/during");
    assert_eq!((reply.status, reply.text().as_str()), (200, "half"));
    assert!(
        !reply.complete,
        "the client can tell that something is missing"
    );
    server.logged(&[
        "ERROR",
        "worker died with signal 9 (SIGKILL) during a request",
        "POST /during",
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

#[test]
fn what_a_worker_prints_before_it_is_ready_is_logged_and_harmless() {
    let server = Server::start(site("prints-first"));
    server.logged(&[
        "INFO",
        "Deprecated: something in /srv/app/worker.php",
        "\"pid\":",
    ]);
    assert_eq!(post(&server, "/good").text(), "good");
    server.stop();
}

#[test]
fn a_worker_that_does_not_come_up_ends_the_start_with_the_reason() {
    for (manner, parts) in [
        (
            "garbage-first",
            vec![
                "worker cannot be used",
                "no frame but text: Deprecated: something in /srv/app/worker.php",
            ],
        ),
        (
            "scripts",
            vec![
                "answers calls of kind `script`",
                "of kind `http`",
                "`mode: classic`",
            ],
        ),
        (
            "kills",
            vec!["a `deadline_signal` that is none", "34 to 64"],
        ),
        (
            "newer",
            vec![
                "version 99 of the native codec",
                "matching release of pronghorn/worker",
            ],
        ),
        (
            "bursts",
            vec!["worker cannot be used", "payload of 2147483647 bytes"],
        ),
        (
            "ends",
            vec![
                "worker ended before it was ready (exit code 0)",
                "hint: the script ran to its end",
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
        Server::run(&site(manner), &["serve"]).assert_refused(&parts);
    }
    let site = site("silent");
    let ended = Server::run(&site, &["serve", "-o", "http.pool.boot_timeout=1s"]);
    ended.assert_refused(&[
        "worker did not announce itself within 1s",
        "waiting for the database",
        "pool.boot_timeout",
    ]);
}

#[test]
fn calls_beyond_the_queue_are_refused_with_one_record_for_all_of_them() {
    let site = Site::new()
        .file("worker.php", &Site::sdk_worker("usleep(1_000_000); return 'done';"))
        .config(
            "version: '3'\nserver: {command: php worker.php}\nhttp: {address: 127.0.0.1:0, pool: {num_workers: 1, max_queue_size: 1}}\n",
        );
    let server = Server::start(site);
    let mut connections: Vec<_> = (0..8).map(|_| server.connect()).collect();
    for connection in &mut connections {
        connection.request("GET", "/", "");
    }
    let replies: Vec<_> = connections
        .iter_mut()
        .map(pronghorn_testkit::Connection::response)
        .collect();
    let refused: Vec<_> = replies.iter().filter(|reply| reply.status == 503).collect();
    assert!(refused.len() >= 6, "{replies:?}");
    assert!(
        refused
            .iter()
            .all(|reply| reply.header("retry-after").is_some())
    );
    server.logged(&[
        "WARN",
        "calls refused: the queue is full",
        "\"pool\":\"default\"",
        "\"calls\":1",
    ]);
    assert_eq!(
        server.log().matches("calls refused").count(),
        1,
        "{}",
        server.log()
    );
    wait_for("a free worker", || {
        (server.get("/").status == 200).then_some(())
    });
    server.stop();
}
