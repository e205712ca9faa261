//! A worker in shared memory, with a handler or with scripts, that is killed exactly at a mark of
//! `ext/pronghorn/ring.h`: its call is settled by the rules, no other call is touched, its pool
//! recovers.
//!
//! The extension has a build of its own for it, in which a worker kills itself at the mark that
//! `PRONGHORN_KILL_AT` names.

use std::path::{Path, PathBuf};

use pronghorn_testkit::{Load, Server, Site, wait_for};

use crate::kind::{KINDS, Kind};
use crate::ring::{extension, worker_of};

/// The first call that finds the file `armed` arms its worker: from then on the mark kills it. So
/// it is one worker, and the call's second try finds nothing. What `putenv` sets ends with the
/// call, so libc is asked.
const WORKER: &str = r"
    if (@\unlink('armed')) {
        $at = $request->query()['at'];
        \FFI::cdef('int setenv(const char *name, const char *value, int over);')->setenv('PRONGHORN_KILL_AT', $at, 1);
        // Long enough for a thread of the server to go to sleep, for a mark at which it is woken.
        \str_starts_with($at, 'r') and \usleep(20000);
    }
    if ($request->path === '/stream') {
        return new Pronghorn\Response((function () { while (true) { yield \str_repeat('x', 100000); } })());
    }
    return \str_repeat('x', (int) ($request->query()['n'] ?? 4));
";

/// The same as a script.
const SCRIPT: &str = r"<?php
    if (@unlink(dirname(__DIR__) . '/armed')) {
        $at = $_GET['at'];
        FFI::cdef('int setenv(const char *name, const char *value, int over);')->setenv('PRONGHORN_KILL_AT', $at, 1);
        str_starts_with($at, 'r') and usleep(20000);
    }
    while ($_SERVER['DOCUMENT_URI'] === '/index.php' && strtok($_SERVER['REQUEST_URI'], '?') === '/stream') {
        echo str_repeat('x', 100000);
    }
    echo str_repeat('x', (int) ($_GET['n'] ?? 4));
";

pub(crate) fn build_with_marks() -> PathBuf {
    let used = extension();
    let name = used.file_stem().unwrap_or_default().to_string_lossy();
    let id = name.strip_prefix("pronghorn-").unwrap_or_default();
    let marks = format!("../extension/{id}/pronghorn-with-marks.so");
    let marks = used.with_file_name(marks);
    assert!(marks.exists(), "`TESTS=1 scripts/build-extension` makes it");
    marks
}

/// With one worker, so that the call after one gets the same worker, and a retried one the next;
/// and a worker of another pool.
fn site(kind: Kind, environment: &str) -> Site {
    let php = format!(
        "php -d ffi.enable=1 -d extension={}",
        build_with_marks().display()
    );
    let (server, pool) = match kind {
        Kind::Worker => (format!("command: {php} worker.php"), String::new()),
        Kind::Classic | Kind::ClassicByExec => (
            String::new(),
            format!(", mode: classic, root: public, php: '{php}'"),
        ),
    };
    let numbers = Site::sdk_worker("$answer = $request->query()['n'] ?? 'none'; return $answer;");
    Site::new()
        .file("worker.php", &Site::sdk_worker(WORKER))
        .file("public/index.php", SCRIPT)
        .file("numbers.php", &numbers)
        .config(&format!(
            "version: '3'\nserver:\n  {server}\n{environment}http:\n  address: 127.0.0.1:0\n  \
             pool: {{num_workers: 1, transport: ring{pool}}}\n  \
             pools:\n    numbers: {{num_workers: 1, transport: ring, command: '{php} numbers.php'}}\n  \
             routes:\n    - {{path: /number, pool: numbers}}\nlogs: {{channels: {{http: {{level: error}}}}}}\n"
        ))
}

/// A server under load, with a worker that is about to be killed.
struct Victim {
    kind: Kind,
    server: Server,
    load: Load,
    numbers: u32,
}

impl Victim {
    fn start(kind: Kind) -> Self {
        let server = Server::start(site(kind, ""));
        let load = Load::start(server.address());
        load.go_on(10);
        let numbers = worker_of(&server, "numbers.php");
        Self {
            kind,
            server,
            load,
            numbers,
        }
    }

    /// The next call arms the worker. Returns its process.
    fn arm(&self) -> u32 {
        self.server.site().write("armed", "");
        self.worker()
    }

    fn worker(&self) -> u32 {
        let of_its_command = match self.kind {
            Kind::Worker => "worker.php",
            Kind::Classic | Kind::ClassicByExec => "pool default worker",
        };
        worker_of(&self.server, of_its_command)
    }

    fn ask(&self, method: &str, target: &str, body: &[u8]) -> u16 {
        let mut connection = self.server.connect();
        let length = format!("Content-Length: {}\r\n", body.len());
        connection.request(method, target, &length);
        connection.send(body);
        let reply = connection.response();
        assert!(reply.complete);
        reply.status
    }

    /// Waits until another process has the worker's place and answers; asks meanwhile.
    fn replaced(&self, worker: u32) {
        wait_for("another worker", || {
            assert_eq!(self.ask("POST", "/", b""), 200);
            (!Path::new(&format!("/proc/{worker}")).exists()).then_some(())
        });
        assert_eq!(self.ask("POST", "/", b""), 200);
        assert_ne!(self.worker(), worker);
    }

    fn end(self) {
        self.load.go_on(10);
        self.load.finish();
        assert_eq!(worker_of(&self.server, "numbers.php"), self.numbers);
        self.server.stop();
    }
}

/// Killed in the call that arms it, which is answered so with GET and with POST.
fn in_this_call(mark: &str, more: &str, get: u16, post: u16) {
    for kind in KINDS {
        in_this_call_of(kind, mark, more, get, post);
    }
}

fn in_this_call_of(kind: Kind, mark: &str, more: &str, get: u16, post: u16) {
    let victim = Victim::start(kind);
    for (method, status) in [("GET", get), ("POST", post)] {
        let worker = victim.arm();
        let target = format!("/?at={mark}{more}");
        let asked = victim.ask(method, &target, b"");
        assert_eq!(asked, status, "{kind:?} {method}");
        victim.replaced(worker);
    }
    victim.end();
}

/// Killed after it has answered a call: the next one, with this body, is answered so.
fn in_the_next_call(mark: &str, body: &[u8], get: u16, post: u16) {
    for kind in KINDS {
        let victim = Victim::start(kind);
        for (method, status) in [("GET", get), ("POST", post)] {
            let worker = victim.arm();
            assert_eq!(victim.ask("POST", &format!("/?at={mark}"), b""), 200);
            assert_eq!(victim.ask(method, "/", body), status, "{kind:?} {method}");
            victim.replaced(worker);
        }
        victim.end();
    }
}

/// Killed when its reply has begun: what the client has got of it does not look whole.
fn in_a_reply(mark: &str, target: &str) {
    for kind in KINDS {
        in_a_reply_of(kind, mark, target);
    }
}

fn in_a_reply_of(kind: Kind, mark: &str, target: &str) {
    let victim = Victim::start(kind);
    let worker = victim.arm();
    let mut connection = victim.server.connect();
    connection.request("GET", &format!("{target}at={mark}"), "");
    // Only then is it read.
    wait_for("the end of the worker", || {
        (!Path::new(&format!("/proc/{worker}")).exists()).then_some(())
    });
    let reply = connection.response();
    assert_eq!((reply.status, reply.complete), (200, false), "{kind:?}");
    victim.replaced(worker);
    victim.end();
}

#[test]
fn while_it_attaches_the_boot_fails() {
    for kind in KINDS {
        let site = site(kind, "  env: [{PRONGHORN_KILL_AT: attached}]\n");
        Server::run(&site, &["serve"]).assert_refused(&["signal 9"]);
    }
}

#[test]
fn while_it_goes_to_sleep_nothing_is_lost() {
    in_the_next_call("sleeping", b"", 200, 200);
}

#[test]
fn while_it_is_woken_its_call_goes_to_another() {
    in_the_next_call("woken", b"", 200, 200);
}

#[test]
fn when_it_has_seen_a_call_another_gets_it() {
    in_the_next_call("seen", b"", 200, 200);
}

#[test]
fn when_it_has_read_a_call_another_gets_it() {
    in_the_next_call("taking", b"", 200, 200);
}

#[test]
fn when_it_has_taken_a_call_it_is_retried_if_that_is_safe() {
    in_the_next_call("taken", b"", 200, 502);
}

#[test]
fn when_it_has_begun_a_call_it_is_retried_if_that_is_safe() {
    in_the_next_call("claimed", b"", 200, 502);
}

#[test]
fn calls_that_it_was_given_ahead_go_to_another() {
    for kind in KINDS {
        let victim = Victim::start(kind);
        // Calls of which it takes many in a short time.
        for _ in 0..50 {
            assert_eq!(victim.ask("POST", "/", b""), 200);
        }
        let worker = victim.arm();
        let mut connections: Vec<_> = (0..16).map(|_| victim.server.connect()).collect();
        for connection in &mut connections {
            connection.request("POST", "/?at=claimed", "Content-Length: 0\r\n");
        }
        let statuses = connections.iter_mut().map(|it| it.response().status);
        let lost = statuses.filter(|status| *status != 200).collect::<Vec<_>>();
        assert_eq!(lost, [502], "the one that it had begun");
        victim.replaced(worker);
        victim.end();
    }
}

/// The longest body that is sent as it is: with its head it is more than the stream holds, so that
/// it comes in parts.
#[test]
fn when_it_has_taken_a_part_of_a_call_that_is_settled_like_any_other() {
    for kind in KINDS {
        let victim = Victim::start(kind);
        let body = vec![b'y'; 256 << 10];
        // Whether the rest found room before its end was seen decides whether it had begun the
        // call.
        for (method, statuses) in [("GET", &[200][..]), ("POST", &[200, 502])] {
            let worker = victim.arm();
            assert_eq!(victim.ask("POST", "/?at=taken", b""), 200);
            let status = victim.ask(method, "/", &body);
            assert!(statuses.contains(&status), "{method}: {status}");
            victim.replaced(worker);
        }
        victim.end();
    }
}

#[test]
fn before_its_reply_is_published_its_call_is_retried_if_that_is_safe() {
    in_this_call("written", "", 200, 502);
}

#[test]
fn a_reply_that_is_published_is_delivered() {
    in_this_call("put", "", 200, 200);
}

#[test]
fn before_it_rings_its_reply_is_delivered() {
    in_this_call("ringing", "", 200, 200);
}

#[test]
fn after_it_rang_its_reply_is_delivered() {
    in_this_call("rung", "", 200, 200);
}

#[test]
fn before_the_head_of_a_long_reply_is_published_it_is_retried_if_that_is_safe() {
    in_this_call("written", "&n=3000000", 200, 502);
}

#[test]
fn a_long_reply_of_which_only_the_head_came_is_cut() {
    in_a_reply("put", "/?n=3000000&");
}

#[test]
fn a_reply_that_waits_for_room_is_cut() {
    in_a_reply("sleeping", "/stream?");
}

#[test]
fn a_reply_that_has_found_room_again_is_cut() {
    for kind in KINDS {
        let victim = Victim::start(kind);
        let worker = victim.arm();
        let mut connection = victim.server.connect();
        connection.request("GET", "/stream?at=woken", "");
        // Reading makes the room.
        let reply = connection.response();
        assert_eq!((reply.status, reply.complete), (200, false));
        victim.replaced(worker);
        victim.end();
    }
}

#[test]
fn there_is_a_test_for_each_mark() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let header = std::fs::read_to_string(folder.join("ext/pronghorn/ring.h"));
    let header = header.expect("the extension is here");
    let marks: Vec<&str> = header
        .lines()
        .filter_map(|line| line.trim().strip_prefix("mark(")?.split(')').next())
        .collect();
    assert!(marks.len() >= 10, "{marks:?}");
    let tests = include_str!("killed.rs");
    for mark in marks {
        let tested = [format!("(\"{mark}\""), format!(": {mark}}}")];
        assert!(
            tested.iter().any(|call| tests.contains(call)),
            "nothing is killed at `{mark}`"
        );
    }
}
