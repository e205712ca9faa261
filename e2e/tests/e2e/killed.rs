//! A worker in shared memory that is killed exactly at a mark of `ext/pronghorn/ring.h`: its call is settled by the rules, no
//! other call is touched, its pool recovers.
//!
//! The extension has a build of its own for it, in which a worker kills itself at the mark that `PRONGHORN_KILL_AT` names.

use std::path::{Path, PathBuf};

use pronghorn_testkit::{Load, Server, Site, wait_for};

use crate::ring::{extension, worker_of};

/// The first call that finds the file `armed` arms its worker: from then on the mark kills it. So it is one worker, and the call's
/// second try finds nothing.
const WORKER: &str = r#"
    if (@\unlink('armed')) {
        $at = $request->query()['at'];
        \putenv("PRONGHORN_KILL_AT=$at");
        // Long enough for a thread of the server to go to sleep, for a mark at which it is woken.
        \str_starts_with($at, 'r') and \usleep(20000);
    }
    if ($request->path === '/stream') {
        return new Pronghorn\Response((function () { while (true) { yield \str_repeat('x', 100000); } })());
    }
    return \str_repeat('x', (int) ($request->query()['n'] ?? 4));
"#;

fn build_with_marks() -> PathBuf {
    let used = extension();
    let name = used.file_stem().unwrap_or_default().to_string_lossy();
    let id = name.strip_prefix("pronghorn-").unwrap_or_default();
    let marks = format!("../extension/{id}/pronghorn-with-marks.so");
    let marks = used.with_file_name(marks);
    assert!(marks.exists(), "`TESTS=1 scripts/build-extension` makes it");
    marks
}

/// With one worker, so that the call after one gets the same worker, and a retried one the next; and a worker of another pool.
fn site(environment: &str) -> Site {
    let php = format!("php -d extension={}", build_with_marks().display());
    let numbers = Site::sdk_worker("$answer = $request->query()['n'] ?? 'none'; return $answer;");
    Site::new()
        .file("worker.php", &Site::sdk_worker(WORKER))
        .file("numbers.php", &numbers)
        .config(&format!(
            "version: '3'\nserver:\n  command: {php} worker.php\n{environment}http:\n  address: 127.0.0.1:0\n  \
             pool: {{num_workers: 1, transport: ring}}\n  \
             pools:\n    numbers: {{num_workers: 1, transport: ring, command: '{php} numbers.php'}}\n  \
             routes:\n    - {{path: /number, pool: numbers}}\nlogs: {{channels: {{http: {{level: error}}}}}}\n"
        ))
}

/// A server under load, with a worker that is about to be killed.
struct Victim {
    server: Server,
    load: Load,
    numbers: u32,
}

impl Victim {
    fn start() -> Self {
        let server = Server::start(site(""));
        let load = Load::start(server.address());
        load.go_on(10);
        let numbers = worker_of(&server, "numbers.php");
        Self {
            server,
            load,
            numbers,
        }
    }

    /// The next call arms the worker. Returns its process.
    fn arm(&self) -> u32 {
        self.server.site().write("armed", "");
        worker_of(&self.server, "worker.php")
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
        assert_ne!(worker_of(&self.server, "worker.php"), worker);
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
    let victim = Victim::start();
    for (method, status) in [("GET", get), ("POST", post)] {
        let worker = victim.arm();
        let target = format!("/?at={mark}{more}");
        assert_eq!(victim.ask(method, &target, b""), status, "{method}");
        victim.replaced(worker);
    }
    victim.end();
}

/// Killed after it has answered a call: the next one, with this body, is answered so.
fn in_the_next_call(mark: &str, body: &[u8], get: u16, post: u16) {
    let victim = Victim::start();
    for (method, status) in [("GET", get), ("POST", post)] {
        let worker = victim.arm();
        assert_eq!(victim.ask("POST", &format!("/?at={mark}"), b""), 200);
        assert_eq!(victim.ask(method, "/", body), status, "{method}");
        victim.replaced(worker);
    }
    victim.end();
}

/// Killed when its reply has begun: what the client has got of it does not look whole.
fn in_a_reply(mark: &str, target: &str) {
    let victim = Victim::start();
    let worker = victim.arm();
    let mut connection = victim.server.connect();
    connection.request("GET", &format!("{target}at={mark}"), "");
    // Only then is it read.
    wait_for("the end of the worker", || {
        (!Path::new(&format!("/proc/{worker}")).exists()).then_some(())
    });
    let reply = connection.response();
    assert_eq!((reply.status, reply.complete), (200, false));
    victim.replaced(worker);
    victim.end();
}

#[test]
fn while_it_attaches_the_boot_fails() {
    let site = site("  env: [{PRONGHORN_KILL_AT: attached}]\n");
    Server::run(&site, &["serve"]).assert_refused(&["signal 9"]);
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
    let victim = Victim::start();
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

/// The longest body that is sent as it is: with its head it is more than the stream holds, so that it comes in parts.
#[test]
fn when_it_has_taken_a_part_of_a_call_that_is_settled_like_any_other() {
    let victim = Victim::start();
    let body = vec![b'y'; 256 << 10];
    // Whether the rest found room before its end was seen decides whether it had begun the call.
    for (method, statuses) in [("GET", &[200][..]), ("POST", &[200, 502])] {
        let worker = victim.arm();
        assert_eq!(victim.ask("POST", "/?at=taken", b""), 200);
        let status = victim.ask(method, "/", &body);
        assert!(statuses.contains(&status), "{method}: {status}");
        victim.replaced(worker);
    }
    victim.end();
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
    let victim = Victim::start();
    let worker = victim.arm();
    let mut connection = victim.server.connect();
    connection.request("GET", "/stream?at=woken", "");
    // Reading makes the room.
    let reply = connection.response();
    assert_eq!((reply.status, reply.complete), (200, false));
    victim.replaced(worker);
    victim.end();
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
