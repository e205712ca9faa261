//! Calls whose clients leave while they wait for a worker: they run, as under php-fpm, where
//! programs rely on it.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use pronghorn_testkit::{Server, Site, wait_for};

use crate::php_fpm;
use crate::ring::extension;
use crate::secure::{PREFACE, frame};

// As WordPress starts its cron: a request to its own server that it does not wait for.
const PAGE: &str = r#"<?php
    $self = fsockopen('127.0.0.1', (int) $_SERVER['SERVER_PORT'], timeout: 1);
    fwrite($self, "POST /cron.php?by=page HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nConnection: close\r\n\r\nx");
    stream_set_timeout($self, 0, 10_000);
    fread($self, 1);
    fclose($self);
    // The one worker is busy until the server knows that the client has left.
    usleep(100_000);
    echo 'page';
"#;
const CRON: &str = r#"<?php
    ignore_user_abort(true);
    if (function_exists('fastcgi_finish_request')) { fastcgi_finish_request(); }
    file_put_contents(dirname(__DIR__) . '/ran', "$_GET[by] ", FILE_APPEND);
"#;
/// One that knows nothing of clients that leave.
const PLAIN: &str = r#"<?php
    echo str_repeat('x', 100), "\n";
    file_put_contents(dirname(__DIR__) . '/ran', "$_GET[by] ", FILE_APPEND);
"#;
const SLOW: &str = "<?php usleep(1000 * (int) ($_GET['ms'] ?? 300)); echo 'slow';";

fn site(pool: &str) -> Site {
    let php = format!("php -d extension={}", extension().display());
    Site::new()
        .config(&format!(
            "version: '3'\nserver: {{env: {{PRONGHORN_TEST: '${{PRONGHORN_TEST}}'}}}}\nhttp:\n  address: 127.0.0.1:0\n  \
             http2: {{h2c: true}}\n  pool: {{root: public, num_workers: 1, {}}}\nlogs: {{level: debug}}\n",
            pool.replace("PHP", &php).replace("FPM", &php_fpm::name())
        ))
        .file("public/page.php", PAGE)
        .file("public/cron.php", CRON)
        .file("public/plain.php", PLAIN)
        .file("public/slow.php", SLOW)
}

fn ran(server: &Server) -> String {
    std::fs::read_to_string(server.site().path("ran")).unwrap_or_default()
}

/// A request that is sent while the worker is busy, and left before it can run.
fn leaves(server: &Server, send: &[u8], then: &[u8]) {
    let mut slow = server.connect();
    slow.request("GET", "/slow.php", "");
    wait_for("the worker to be busy", || {
        let workers = server.steer(&["workers"]).stdout;
        workers.contains("/slow.php").then_some(())
    });
    let mut stream = TcpStream::connect(server.address()).expect("it accepts");
    stream.write_all(send).expect("it reads");
    std::thread::park_timeout(Duration::from_millis(30));
    stream.write_all(then).expect("it reads");
    if then.is_empty() {
        drop(stream);
        assert_eq!(slow.response().text(), "slow");
    } else {
        assert_eq!(slow.response().text(), "slow");
        drop(stream);
    }
}

fn request_of_http2(path: &str) -> Vec<u8> {
    let mut block = vec![
        0x83,
        0x86,
        0x04,
        u8::try_from(path.len()).expect("it is short"),
    ];
    block.extend(path.as_bytes());
    block.extend(b"\x01\x01x");
    let headers = frame(1, 5, 1, &block); // END_STREAM, END_HEADERS
    [PREFACE, &frame(4, 0, 0, &[]), &headers].concat()
}

#[test]
fn a_request_to_oneself_that_nobody_waits_for_runs() {
    for pool in [
        "mode: classic, php: 'PHP'",
        "mode: fastcgi",
        "mode: fastcgi, fastcgi: {php_fpm: FPM}",
    ] {
        let server = Server::start(site(pool));
        assert_eq!(server.get("/page.php").text(), "page", "{pool}");
        wait_for("the cron to run", || {
            (ran(&server) == "page ").then_some(())
        });
        server.logged(&["http log", "/cron.php", "\"status\":499"]);
        leaves(
            &server,
            b"GET /plain.php?by=plain HTTP/1.1\r\nHost: x\r\n\r\n",
            b"",
        );
        wait_for("a GET to run", || {
            (ran(&server) == "page plain ").then_some(())
        });
        const CANCEL: &[u8] = &[0, 0, 0, 8];
        leaves(
            &server,
            &request_of_http2("/cron.php?by=h2"),
            &frame(3, 0, 1, CANCEL),
        );
        wait_for("that of a stream that was reset", || {
            (ran(&server) == "page plain h2 ").then_some(())
        });
        assert_eq!(server.get("/slow.php").text(), "slow");
        assert!(!server.log().contains("HTTP/1.1 499"));
        server.stop();
    }
}

#[test]
fn a_request_that_is_not_complete_does_not_run_nor_one_that_is_to_be_dropped() {
    let server = Server::start(site("mode: classic, php: 'PHP', client_gone: drop"));
    assert_eq!(server.get("/page.php").text(), "page");
    server.logged(&["http log", "/cron.php", "\"status\":499"]);
    assert_eq!(server.get("/slow.php").text(), "slow");
    assert_eq!(ran(&server), "");
    server.stop();
    let server = Server::start(site("mode: classic, php: 'PHP'"));
    leaves(
        &server,
        b"POST /plain.php?by=half HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nx",
        b"",
    );
    assert_eq!(server.get("/slow.php").text(), "slow");
    assert_eq!(ran(&server), "");
    server.stop();
}

/// `nc -N`, and libraries that say at once that they send nothing more.
#[test]
fn a_client_that_closes_its_sending_side_is_answered_by_who_can_not_be_told_that_it_left() {
    // A script says that it runs, and waits until the client has closed its side.
    const RUNS: &str = r#"<?php
        $root = dirname(__DIR__);
        file_put_contents("$root/runs", '');
        for ($i = 0; is_file("$root/wait") && $i < 6000; $i++) {
            usleep(10_000);
            clearstatcache();
        }
    "#;
    const SLOW: &str = "<?php require 'runs.php'; usleep(200_000); echo 'slow';";
    const FLUSHES: &str = "<?php require 'runs.php';
        for ($i = 0; $i < 5; $i++) { echo 'x'; flush(); usleep(50_000); } echo 'end';";
    const BODY: &str =
        "<?php require 'runs.php'; usleep(200_000); echo strlen(file_get_contents('php://input'));";
    const HEAD: &str = "HTTP/1.1\r\nHost: x\r\nConnection: close\r\n";
    for pool in [
        "mode: classic, php: 'PHP'",
        "mode: fastcgi",
        "mode: fastcgi, fastcgi: {php_fpm: FPM}",
    ] {
        let site = site(pool)
            .file("public/runs.php", RUNS)
            .file("public/slow.php", SLOW)
            .file("public/flushes.php", FLUSHES)
            .file("public/body.php", BODY);
        let (runs, wait) = (site.path("runs"), site.path("wait"));
        let server = Server::start(site);
        let requests = [
            (format!("GET /slow.php {HEAD}\r\n"), "slow"),
            (format!("GET /flushes.php {HEAD}\r\n"), "end"),
            (
                format!("POST /body.php {HEAD}Content-Length: 4\r\n\r\nbody"),
                "4",
            ),
            ("GET /slow.php HTTP/1.0\r\n\r\n".to_owned(), "slow"),
            (
                "GET /slow.php HTTP/1.1\r\nHost: x\r\n\r\n".to_owned(),
                "slow",
            ),
        ];
        // The first call of a process that starts waits longer than a client may close its side
        // early.
        assert_eq!(server.get("/slow.php").text(), "slow");
        for (request, end) in &requests {
            for at_once in [true, false] {
                let mut connection = server.connect();
                if at_once {
                    connection.finish_with(request);
                } else {
                    std::fs::remove_file(&runs).expect("one ran before");
                    std::fs::write(&wait, "").unwrap();
                    connection.send(request);
                    wait_for("the script to run", || runs.exists().then_some(()));
                    connection.finish_sending();
                    std::fs::remove_file(&wait).unwrap();
                }
                let said = String::from_utf8(connection.rest()).unwrap();
                let shown = format!("{pool} {request:?} {at_once}: {said:?}");
                assert!(said.starts_with("HTTP/1.1 200 "), "{shown}");
                let whole = said.trim_end_matches("\r\n0\r\n\r\n");
                assert!(whole.ends_with(end), "{shown}");
            }
        }
        let mut slow_body = server.connect();
        slow_body.send(format!("POST /body.php {HEAD}Content-Length: 4\r\n\r\nbo"));
        std::thread::park_timeout(Duration::from_millis(50));
        slow_body.finish_with("dy");
        let said = slow_body.rest();
        let told = String::from_utf8_lossy(&said);
        assert!(said.ends_with(b"4"), "{pool}: {told:?}\n{}", server.log());
        assert!(!server.log().contains("\"status\":499"), "{pool}");
        // A reset says that nobody waits.
        let left = TcpStream::connect(server.address()).unwrap();
        (&left).write_all(requests[0].0.as_bytes()).unwrap();
        std::thread::park_timeout(Duration::from_millis(100));
        rustix::net::sockopt::set_socket_linger(&left, Some(Duration::ZERO)).unwrap();
        drop(left);
        server.logged(&["http log", "/slow.php", "\"status\":499"]);
        server.stop();
    }
}

/// More than the server reads before it answers, and less than the kernel takes beside that.
fn ahead(path: &str) -> String {
    let pad = "x".repeat(8000);
    format!("GET {path} HTTP/1.1\r\nHost: x\r\nX-Pad: {pad}\r\n\r\n").repeat(12)
}

#[test]
fn a_client_that_leaves_is_noticed_behind_what_it_sent_ahead() {
    let server = Server::start(site("mode: classic, php: 'PHP'"));
    let sent = [
        "GET /plain.php?by=left HTTP/1.1\r\nHost: x\r\n\r\n",
        &ahead("/plain.php?by=ahead"),
    ];
    let mut slow = server.connect();
    slow.request("GET", "/slow.php?ms=2500", "");
    wait_for("the worker to be busy", || {
        let workers = server.steer(&["workers"]).stdout;
        workers.contains("/slow.php").then_some(())
    });
    let mut stream = TcpStream::connect(server.address()).expect("it accepts");
    stream
        .write_all(sent.concat().as_bytes())
        .expect("the kernel takes it");
    std::thread::park_timeout(Duration::from_millis(100));
    drop(stream);
    wait_for("the client to be noticed", || {
        let log = server.log();
        let lines = log.lines().filter(|line| line.contains("by=left"));
        lines
            .into_iter()
            .any(|line| line.contains("\"status\":499"))
            .then_some(())
    });
    assert!(
        !server.log().contains("/slow.php"),
        "not before the worker was free"
    );
    assert_eq!(slow.response().text(), "slow");
    server.stop();
}

#[test]
fn a_client_that_only_ends_sending_gets_all_that_it_asked_for_ahead() {
    let server = Server::start(site("mode: classic, php: 'PHP'"));
    let mut connection = server.connect();
    connection.send("GET /slow.php HTTP/1.1\r\nHost: x\r\n\r\n");
    connection.send(ahead("/plain.php?by=ahead"));
    std::thread::park_timeout(Duration::from_millis(50));
    connection.finish_sending();
    let said = String::from_utf8(connection.rest()).unwrap();
    assert_eq!(said.matches("HTTP/1.1 200 OK").count(), 13);
    assert!(!server.log().contains("\"status\":499"));
    server.stop();
}

#[test]
fn those_who_come_and_go_leave_room_in_the_queue() {
    let server = Server::start(site("mode: classic, php: 'PHP', max_queue_size: 8"));
    let mut slow = server.connect();
    slow.request("GET", "/slow.php?ms=3000", "");
    wait_for("the worker to be busy", || {
        let workers = server.steer(&["workers"]).stdout;
        workers.contains("/slow.php").then_some(())
    });
    for _ in 0..6 {
        let mut client = server.connect();
        client.request("GET", "/cron.php?by=gone", "");
        drop(client);
    }
    server.logged(&["they already fill a quarter of the queue"]);
    assert_eq!(server.get("/slow.php").status, 200, "there is room");
    assert_eq!(slow.response().status, 200);
    assert_eq!(ran(&server), "gone gone ");
    server.stop();
}

/// Pages that go on for half a minute, and ask for the client in the ways in which pages do.
const ENDLESS: &str = r#"<?php
    function endless(string $way): string {
        if ($way === 'pid') { return (string) getmypid(); }
        if ($way === 'exits') { exit; }
        if ($way === 'prints and exits') { print('printed'); exit; }
        if ($way === 'memory') {
            ignore_user_abort(true);
            for ($i = 0; $i < 300 && !connection_aborted(); $i++) { echo str_repeat('x', 100_000); flush(); usleep(10_000); }
            $all = [];
            while (true) { $all[] = str_repeat('y', 1_000_000); }
        }
        if ($way === 'asks') { return (string) connection_aborted(); }
        for ($i = 0; $i < 3000; $i++) {
            echo "data: $i\n\n";
            match ($way) {
                'flushed' => [@ob_flush(), flush()],
                'past the buffers' => [ob_get_level() && ob_end_flush(), flush()],
                'much' => print(str_repeat('x', 100_000)),
            };
            usleep(10_000);
        }
        return 'end';
    }
"#;

fn leaves_while_it_prints(server: &Server, way: &str) {
    let mut client = TcpStream::connect(server.address()).expect("it accepts");
    let request = format!("GET /?way={way} HTTP/1.1\r\nHost: x\r\n\r\n");
    client.write_all(request.as_bytes()).expect("it reads");
    client.read_exact(&mut [0]).expect("the page begins");
}

#[test]
fn output_to_a_client_that_has_left_ends_the_call_and_not_the_worker() {
    extension();
    let handler =
        Site::sdk_worker("require_once 'endless.php'; return endless($request->query()['way']);");
    let front = Site::sdk_worker("").replace(
        "function (Pronghorn\\Request $request): mixed {\n\n}",
        "function () { require_once 'endless.php'; echo endless($_GET['way']); }",
    );
    for (worker, pool) in [
        (&handler, "spawn: exec"),
        (&handler, "spawn: fork"),
        (&handler, "spawn: exec, globals: false"),
        (&front, "spawn: exec"),
        (&front, "spawn: fork"),
    ] {
        let site = Site::new()
            .file("worker.php", worker)
            .file("endless.php", ENDLESS)
            .config(&format!(
                "version: '3'\nserver: {{command: php worker.php}}\nlogs: {{mode: production, level: debug}}\nhttp:\n  \
                 address: '127.0.0.1:0'\n  pool: {{num_workers: 1, {pool}}}\n"
            ));
        let server = Server::start(site);
        let pid = server.get("/?way=pid").text();
        for way in ["flushed", "past%20the%20buffers", "much"] {
            leaves_while_it_prints(&server, way);
            let fresh = server.get("/?way=asks").text();
            assert_eq!(fresh, "0", "{way}, {pool}");
            assert_eq!(server.get("/?way=pid").text(), pid, "{way}, {pool}");
        }
        // An `exit` behind one that left is not taken for its end.
        let empty = if worker == &handler { 500 } else { 200 };
        for (way, status) in [("exits", empty), ("prints%20and%20exits", 200)] {
            leaves_while_it_prints(&server, "much");
            let reply = server.get(&format!("/?way={way}"));
            assert_eq!(reply.status, status, "{way}, {pool}");
            assert_eq!(
                reply.text().starts_with("printed"),
                status == 200 && way != "exits"
            );
        }
        // A fatal error behind it is one of that page, and of no other.
        leaves_while_it_prints(&server, "memory");
        assert_eq!(server.get("/?way=asks").text(), "0", "{pool}");
        server.logged(&[
            "\"error\"",
            "failed after its client had left",
            "Allowed memory size",
            "/?way=memory",
        ]);
        server.stop();
    }
}
