//! A call that is late, in a worker with the extension: the client gets 504 at once, PHP an
//! exception, and the worker goes on.

use pronghorn_testkit::{Response, Server, Site, wait_for};

use crate::ring::extension;

const WORKER: &str = r"
    \register_shutdown_function(function () { \file_put_contents('shutdown', 'ran'); });
    switch ($request->path) {
        case '/loop':
            for (;;) { }
        case '/sleep':
            \sleep(60);
            return 'woke up';
        case '/select':
            [$one, $other] = \stream_socket_pair(\STREAM_PF_UNIX, \STREAM_SOCK_STREAM, 0);
            $read = [$one];
            $none = [];
            @\stream_select($read, $none, $none, 60);
            return 'selected';
        case '/deaf':
            try { for (;;) { } } catch (\Throwable) { for (;;) { } }
        case '/caught':
            try { for (;;) { } } catch (\Throwable) { return 'caught'; }
        case '/blocked':
            [$one, $other] = \stream_socket_pair(\STREAM_PF_UNIX, \STREAM_SOCK_STREAM, 0);
            return \fread($one, 1);
        case '/stream':
            return new Pronghorn\Response((function () { yield 'begun'; for (;;) { } })());
        case '/deferred':
            $call = Pronghorn\Call::current();
            $call->defer(function () { for (;;) { } });
            $call->defer(function () { \file_put_contents('second', 'ran'); });
            break;
        case '/deferred-deaf':
            Pronghorn\Call::current()->defer(function () { try { for (;;) { } } catch (\Throwable) { for (;;) { } } });
    }
    return (string) \getmypid();
";

fn server() -> Server {
    extension(); // or there is nothing to test
    let config = "version: '3'\nserver: {command: php worker.php}\nhttp:\n  address: 127.0.0.1:0\n  \
        pool: {num_workers: 1, transport: ring, supervisor: {exec_ttl: 1s}}\n";
    let site = Site::new().file("worker.php", &Site::sdk_worker(WORKER));
    Server::start(site.config(config))
}

#[test]
fn it_ends_with_an_exception_whose_trace_is_logged_and_its_worker_goes_on() {
    let server = server();
    let worker = server.get("/").text();
    for path in ["/loop", "/sleep", "/select"] {
        assert_eq!(server.get(path).status, 504, "{path}");
        server.logged(&["the client got 504, the call is interrupted", path]);
        server.logged(&[
            "late call ended: The call has passed its deadline",
            path,
            "Pronghorn\\\\DeadlineExceeded",
            "worker.php",
            "\"trace\":\"#0",
        ]);
        assert_eq!(server.get("/").text(), worker, "{path}");
    }
    // Whoever catches it may go on to its end.
    assert_eq!(server.get("/caught").status, 504);
    assert_eq!(server.get("/").text(), worker);
    server.stop();
}

#[test]
fn a_stream_is_cut_and_its_worker_goes_on() {
    let server = server();
    let worker = server.get("/").text();
    let mut connection = server.connect();
    connection.request("GET", "/stream", "");
    let reply = connection.response();
    assert_eq!(
        (reply.body.as_slice(), reply.complete),
        (&b"begun"[..], false)
    );
    assert_eq!(server.get("/").text(), worker);
    server.stop();
}

#[test]
fn what_was_deferred_ends_with_an_exception_as_well() {
    let server = server();
    let worker = server.get("/").text();
    assert_eq!(server.get("/deferred").text(), worker);
    // By the same worker, so after the work.
    assert_eq!(server.get("/").text(), worker);
    server.logged(&[
        "deadline passed: the client has its reply, the call is interrupted",
        "deferred work of GET /deferred",
    ]);
    server.logged(&[
        "deferred work of GET /deferred failed",
        "Pronghorn\\DeadlineExceeded: What a call has deferred has passed its deadline",
    ]);
    assert_eq!(server.site().read("second"), "ran");
    // It counts from the reply on, and what goes on ends with its worker.
    assert_eq!(server.get("/deferred-deaf").text(), worker);
    wait_for("another worker", || {
        (server.get("/").text() != worker).then_some(())
    });
    server.logged(&["goes on after Pronghorn\\DeadlineExceeded was thrown"]);
    server.stop();
}

#[test]
fn a_script_ends_with_an_exception_and_its_worker_goes_on() {
    extension(); // or there is nothing to test
    let config = "version: '3'\nhttp:\n  address: 127.0.0.1:0\n  \
        pool: {mode: classic, root: public, num_workers: 1, supervisor: {exec_ttl: 1s}}\n";
    let site = Site::new()
        .file("public/pid.php", "<?php echo getmypid();")
        .file("public/loop.php", "<?php for (;;) {}")
        .file(
            "public/later.php",
            "<?php echo getmypid(); fastcgi_finish_request(); for (;;) {}",
        )
        .file(
            "public/deaf.php",
            "<?php try { for (;;) {} } catch (Throwable) { for (;;) {} }",
        );
    let server = Server::start(site.config(config));
    let worker = server.get("/pid.php").text();
    for path in ["/loop.php", "/deaf.php"] {
        assert_eq!(server.get(path).status, 504);
        assert_eq!(server.get("/pid.php").text(), worker, "{path}");
    }
    assert_eq!(server.get("/later.php").text(), worker);
    assert_eq!(server.get("/pid.php").text(), worker);
    server.logged(&["Uncaught Pronghorn\\DeadlineExceeded", "later.php"]);
    server.logged(&["Uncaught Pronghorn\\DeadlineExceeded", "loop.php"]);
    server.logged(&["goes on after Pronghorn\\DeadlineExceeded", "deaf.php"]);
    server.stop();
}

#[test]
fn what_catches_the_exception_and_goes_on_ends_with_its_worker() {
    let server = server();
    let worker = server.get("/").text();
    assert_eq!(server.get("/deaf").status, 504);
    server.logged(&[
        "late call ended: The call has passed its deadline, and goes on",
        "/deaf",
    ]);
    wait_for("another worker", || {
        (server.get("/").text() != worker).then_some(())
    });
    assert_eq!(server.site().read("shutdown"), "ran");
    server.stop();
}

#[test]
fn what_hears_of_nothing_is_killed() {
    let server = server();
    let worker = server.get("/").text();
    assert_eq!(server.get("/blocked").status, 504);
    wait_for("another worker", || {
        (server.get("/").text() != worker).then_some(())
    });
    assert!(!server.log().contains("late call ended"));
    server.stop();
}

/// Each function of a save handler can wait for ever.
const SESSION: &str = r"<?php
    session_set_save_handler(new class extends SessionHandler {
        private function wait(string $at): void { while (($_GET['at'] ?? '') === $at) { usleep(1000); } }
        public function open(string $path, string $name): bool { $this->wait('open'); return parent::open($path, $name); }
        public function read(string $id): string|false { $this->wait('read'); return parent::read($id); }
        public function write(string $id, string $data): bool { $this->wait('write'); return parent::write($id, $data); }
        public function close(): bool { $this->wait('close'); return parent::close(); }
    });
    if (!session_start()) { return; }
    $_SESSION['n'] = ($_SESSION['n'] ?? 0) + 1;
    echo getmypid(), ' ', $_SESSION['n'];
";

/// Servers of this front controller: in a worker that is kept, and as a script.
fn with_sessions(script: &str) -> [Server; 2] {
    extension(); // or there is nothing to test
    ["transport: ring", "mode: classic, root: public"].map(|pool| {
        let front = Site::sdk_worker("").replace(
            "function (Pronghorn\\Request $request): mixed {\n\n}",
            "fn () => require 'public/index.php'",
        );
        let site = Site::new()
            .file("worker.php", &front)
            .file("public/index.php", script)
            .file("sessions/.keep", "");
        let sessions = site.path("sessions").display().to_string();
        Server::start(site.config(&format!(
            "version: '3'\nserver: {{command: php worker.php}}\nhttp:\n  address: 127.0.0.1:0\n  \
             pool: {{num_workers: 1, {pool}, supervisor: {{exec_ttl: 1s}}, \
             ini: {{session.save_path: '{sessions}', session.use_strict_mode: '0'}}}}\n"
        )))
    })
}

/// A request in the session `abc`.
fn visit(server: &Server, target: &str) -> Response {
    let mut connection = server.connect();
    connection.request("GET", target, "Cookie: PHPSESSID=abc\r\n");
    connection.response()
}

#[test]
fn a_session_handler_that_blocks_costs_no_visitor_anything() {
    for server in with_sessions(SESSION) {
        for at in ["open", "read", "write", "close"] {
            let worker = server.workers();
            let late = visit(&server, &format!("/?at={at}"));
            assert_eq!(late.status, 504, "{at}");
            // The lock is to be free although its process lives on.
            let same = visit(&server, "/");
            assert_eq!(same.status, 200, "{at}");
            let other = server.get("/");
            assert_eq!(other.status, 200, "{at}");
            assert!(other.text().ends_with(" 1"), "{at}: {}", other.text());
            assert_eq!(server.workers(), worker, "{at}");
        }
        server.logged(&["the client got 504, the call is interrupted"]);
        server.stop();
    }
}

/// PHP waits in C for the lock of a session's file, and hears of nothing.
#[test]
fn a_session_that_another_process_has_locked_costs_the_worker_and_no_other_visitor() {
    for server in with_sessions("<?php session_start(); echo getmypid();") {
        let worker = server.get("/").text();
        let file = std::fs::File::create(server.site().path("sessions/sess_abc")).expect("a file");
        file.lock().expect("nobody has it");
        assert_eq!(visit(&server, "/").status, 504);
        wait_for("another worker", || {
            (server.get("/").text() != worker).then_some(())
        });
        drop(file);
        assert_eq!(visit(&server, "/").status, 200);
        server.stop();
    }
}
