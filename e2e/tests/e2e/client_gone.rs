//! Calls whose clients leave while they wait for a worker: they run, as under php-fpm, where programs rely on it.

use std::io::Write;
use std::net::TcpStream;
use std::time::Duration;

use pronghorn_testkit::{Server, Site, wait_for};

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
            pool.replace("PHP", &php)
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
        "mode: fastcgi, fastcgi: {php_fpm: php-fpm8.2}",
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
    server.logged(&["a quarter of the queue is full"]);
    assert_eq!(server.get("/slow.php").status, 200, "there is room");
    assert_eq!(slow.response().status, 200);
    assert_eq!(ran(&server), "gone gone ");
    server.stop();
}
