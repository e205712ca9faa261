//! `pronghorn logs`: the newest records of a server that runs. And how much a request may log.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use pronghorn_testkit::{Connection, Ended, Server, Site, binary, wait_for};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::ring::extension;

/// Nothing takes so long unless it is broken.
const LONG: Duration = Duration::from_secs(20);

const KEPT: &str =
    "if (isset($request->query()['throw'])) { throw new LogicException('no way'); } return 'x';";

fn kept(logs: &str) -> Site {
    kept_with(logs, "")
}

fn kept_with(logs: &str, http: &str) -> Site {
    let config = format!(
        "version: '3'\nserver: {{command: php worker.php}}\n{logs}\
         http: {{address: 127.0.0.1:0, request_id: {{}}, pool: {{num_workers: 1}}{http}}}\n"
    );
    let worker = Site::sdk_worker(KEPT);
    Site::new().file("worker.php", &worker).config(&config)
}

fn classic() -> Site {
    let php = format!("php -d extension={}", extension().display());
    let script =
        "<?php if (isset($_GET['throw'])) { throw new LogicException('no way'); } echo 'x';";
    Site::new()
        .file("public/index.php", script)
        .config(&format!(
            "version: '3'\nhttp:\n  address: 127.0.0.1:0\n  request_id: {{}}\n  \
         pool: {{mode: classic, root: public, php: '{php}', num_workers: 1}}\n"
        ))
}

fn ask(server: &Server, target: &str, id: &str) {
    let mut client = server.connect();
    client.request("GET", target, &format!("X-Request-Id: {id}\r\n"));
    client.response();
}

/// The records about these requests, once they are there.
fn records(server: &Server, arguments: &[&str], count: usize) -> Vec<Value> {
    let arguments = [&["logs", "--json"], arguments].concat();
    wait_for("the records", || {
        let ended = server.steer(&arguments);
        assert_eq!((ended.code, &*ended.stderr), (Some(0), ""), "{arguments:?}");
        let record = |line| serde_json::from_str(line).expect("a line is a record");
        let records: Vec<Value> = ended.stdout.lines().map(record).collect();
        (records.len() >= count).then_some(records)
    })
}

/// A command that follows.
struct Follower {
    child: Child,
    lines: Receiver<String>,
}

fn spawn(server: &Server, arguments: &[&str]) -> Child {
    let folder = server.site().folder();
    let mut command = Command::new(binary());
    command.args(["logs", "--follow"]).args(arguments);
    let command = command.current_dir(folder).env("PWD", folder);
    let command = command.env("TMPDIR", folder).env("XDG_RUNTIME_DIR", folder);
    let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("the binary can be started")
}

impl Follower {
    fn start(server: &Server, arguments: &[&str]) -> Self {
        let mut child = spawn(server, arguments);
        let stdout = BufReader::new(child.stdout.take().expect("it is a pipe"));
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                _ = sender.send(line);
            }
        });
        Self { child, lines }
    }

    /// The next line with this in it.
    fn sees(&self, part: &str) -> String {
        loop {
            let line = self.lines.recv_timeout(LONG);
            assert!(line.is_ok(), "no line has `{part}`");
            let line = line.expect("it was looked at");
            if line.contains(part) {
                return line;
            }
        }
    }

    fn interrupt(mut self) {
        let pid = Pid::from_child(&self.child);
        // Ctrl-C is ignored where a shell has put the tests into the background.
        kill_process(pid, Signal::TERM).expect("it runs");
        self.child.wait().expect("it ends");
    }
}

fn said(stderr: Option<ChildStderr>) -> String {
    let mut said = String::new();
    let mut stderr = stderr.expect("it is a pipe");
    stderr.read_to_string(&mut said).expect("text");
    said
}

#[test]
fn the_newest_records_are_shown_oldest_first_whatever_the_log_looks_like() {
    for logs in [
        "",
        "logs: {mode: production}\n",
        "logs: {output: own.log}\n",
    ] {
        let server = Server::start(kept(logs));
        for id in ["first", "second", "third"] {
            ask(&server, &format!("/{id}"), id);
        }
        records(&server, &["--request", "third"], 1);
        let shown = server.steer(&["logs", "-n", "2"]);
        assert_eq!((shown.code, &*shown.stderr), (Some(0), ""));
        let lines: Vec<_> = shown.stdout.lines().collect();
        assert_eq!(lines.len(), 2, "{lines:?}");
        for (line, path) in lines.iter().zip(["/second", "/third"]) {
            let (time, rest) = line.split_once(' ').expect("a time");
            assert_eq!(time.len(), "19:26:15".len(), "{line}");
            assert!(rest.starts_with(&format!("200 GET {path} ")), "{line}");
            assert!(
                !line.contains('\x1b'),
                "no colours without a terminal: {line}"
            );
        }
        let records = records(&server, &["-n", "2"], 2);
        for (record, path) in records.iter().zip(["/second", "/third"]) {
            assert_eq!(
                (&record["URI"], &record["logger"]),
                (&path.into(), &"http".into())
            );
            assert!(record["ts"].as_u64() > Some(0), "{record}");
        }
        server.stop();
    }
}

#[test]
fn all_records_of_one_request_are_found_by_its_id() {
    for site in [kept(""), classic()] {
        let server = Server::start(site);
        for id in ["before", "one:1", "after"] {
            let target = if id == "one:1" { "/?throw" } else { "/" };
            ask(&server, target, id);
        }
        let found = records(&server, &["--request", "one:1"], 2);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(
            found.iter().all(|record| record["request_id"] == "one:1"),
            "{found:?}"
        );
        assert!(found[0]["msg"].to_string().contains("no way"), "{found:?}");
        assert_eq!(
            (&found[0]["level"], &found[1]["msg"]),
            (&"error".into(), &"http log".into())
        );
        let errors = records(&server, &["--level", "error", "--request", "one:1"], 1);
        assert_eq!(errors, found[..1]);
        let none = server.steer(&["logs", "--request", "nobody"]);
        assert_eq!((none.code, &*none.stdout), (Some(0), ""));
        assert_eq!(none.stderr, "no record that the server keeps fits\n");
        server.stop();
    }
}

#[test]
fn lines_of_the_access_log_are_records_and_what_is_below_the_level_is_none() {
    let quiet = "logs: {channels: {http: {level: warn}}}\n";
    let site = kept_with(quiet, ", access_log: {output: access.log}");
    let server = Server::start(site);
    ask(&server, "/seen", "a");
    let records = records(&server, &["--level", "info"], 1);
    wait_for("the line", || {
        let shown = server.steer(&["logs"]).stdout;
        shown.contains("GET /seen").then_some(())
    });
    assert!(
        records.iter().all(|record| record["logger"] != "http"),
        "{records:?}"
    );
    server.stop();
}

#[test]
fn a_follower_sees_what_is_logged_until_the_server_ends() {
    let server = Server::start(kept(""));
    let all = Follower::start(&server, &[]);
    let one = Follower::start(&server, &["--request", "two", "--json"]);
    all.sees("serves http"); // it has seen the past
    for id in ["one", "two"] {
        ask(&server, &format!("/{id}"), id);
        all.sees(&format!("200 GET /{id} "));
    }
    assert!(
        one.sees("").contains(r#""request_id":"two""#),
        "the first line is its own"
    );
    one.interrupt();
    server.stop();
    let mut child = all.child;
    assert_eq!(child.wait().expect("it ends").code(), Some(1));
    let said = said(child.stderr.take());
    assert!(said.contains("ended the connection\nhint: "), "{said}");
    assert!(said.contains("journalctl -u pronghorn"), "{said}");
}

/// It is told what it lost, and nobody waited for it.
#[test]
fn a_deaf_follower_loses_records_and_holds_nobody_up() {
    let server = Server::start(kept(""));
    let mut deaf = spawn(&server, &["-n", "1"]);
    let mut stdout = BufReader::new(deaf.stdout.take().expect("it is a pipe"));
    let mut line = String::new();
    stdout.read_line(&mut line).expect("a line");
    let mut client: Connection = server.connect();
    let long = "x".repeat(6 << 10);
    for number in 0..600 {
        assert_eq!(client.get(&format!("/{number}?{long}")).status, 200);
    }
    records(&server, &["-n", "1"], 1);
    let reader = std::thread::spawn(move || {
        let lines = stdout.lines().map_while(Result::ok);
        lines.filter(|line| line.contains("200 GET /")).count()
    });
    ask(&server, "/last", "last");
    // It reads again, to the end.
    wait_for("the last record", || {
        let records = records(&server, &["--request", "last"], 1);
        (records.len() == 1).then_some(())
    });
    server.stop();
    let seen = reader.join().expect("it has read");
    assert_eq!(deaf.wait().expect("it ends").code(), Some(1));
    let said = said(deaf.stderr.take());
    assert!(
        said.contains(" lost: the log is faster than its reader"),
        "{said}"
    );
    assert!(seen < 600, "{seen}");
}

/// Its settings are as before.
#[test]
fn a_reload_opens_log_files_by_their_names_or_says_that_it_cannot() {
    let server = Server::start(kept("logs: {output: own.log}\n"));
    let path = |name: &str| server.site().path(name);
    fs::rename(path("own.log"), path("old.log")).expect("it is there");
    assert_eq!(server.steer(&["reload"]).code, Some(0));
    wait_for("the record of the reload", || {
        let records = fs::read_to_string(path("own.log")).unwrap_or_default();
        records
            .contains("the configuration is applied")
            .then_some(())
    });
    fs::rename(path("own.log"), path("older.log")).expect("it is there");
    fs::create_dir(path("own.log")).expect("nothing has this name");
    let failed = server.steer(&["reload"]);
    assert_eq!(failed.code, Some(1));
    assert!(
        failed.stderr.contains("own.log`: Is a directory"),
        "{}",
        failed.stderr
    );
    let records = fs::read_to_string(path("older.log")).expect("it is open");
    assert!(
        records.contains("reload failed, nothing has changed"),
        "{records}"
    );
    fs::remove_dir(path("own.log")).expect("it is empty");
    server.stop();
}

#[test]
fn so_many_may_follow_and_no_more() {
    let server = Server::start(kept(""));
    let mut followers: Vec<_> = (0..8).map(|_| Follower::start(&server, &[])).collect();
    for follower in &followers {
        follower.sees("serves http");
    }
    let refused = server.steer(&["logs", "-f"]);
    assert_eq!((refused.code, &*refused.stdout), (Some(1), ""));
    assert!(
        refused
            .stderr
            .contains("8 commands follow the log already\nhint: ")
    );
    assert_eq!(server.steer(&["logs"]).code, Some(0), "others may ask");
    // One that leaves makes room, also while nothing is logged.
    followers.remove(0).interrupt();
    wait_for("room", || {
        let next = Follower::start(&server, &[]);
        let line = next.lines.recv_timeout(LONG);
        next.interrupt();
        line.is_ok().then_some(())
    });
    for follower in followers {
        follower.interrupt();
    }
    server.stop();
}

#[test]
fn without_a_server_it_says_where_the_log_is() {
    let refused = |site: &Site| -> Ended {
        let ended = Server::run(site, &["logs", "-f"]);
        assert_eq!(ended.code, Some(1));
        assert!(ended.stderr.contains("is running"), "{}", ended.stderr);
        ended
    };
    let site = kept("");
    assert!(
        refused(&site)
            .stderr
            .contains("hint: `journalctl -u pronghorn`")
    );
    let site = kept("logs: {output: [stderr, own.log]}\n");
    let file = site.path("own.log").display().to_string();
    let said = refused(&site).stderr;
    assert!(
        said.contains(&format!("hint: what was logged is in {file}")),
        "{said}"
    );
    let ended = Server::run(&site, &["logs", "--level", "loud"]);
    assert_eq!(ended.code, Some(2));
    assert!(
        ended.stderr.contains("debug, info, warn, error"),
        "{}",
        ended.stderr
    );
}

/// Files, redirects and refusals, which no worker sees, and one request that a worker gets.
#[test]
fn each_request_has_one_record_whoever_answers_it() {
    for (details, message) in [("", "http log"), (", access_logs: true", "http access log")] {
        let http = format!(
            ", static: {{dir: public}}, middleware: [rewrite, static]{details},\n  \
             rewrite: [{{path: /old, to: /new, status: 301}}],\n  routes: [{{path: /closed, refuse: 403}}]"
        );
        let site = kept_with("logs: {encoding: json}\n", &http).file("public/a.txt", "a file");
        let server = Server::start(site);
        let asked = [
            ("GET", "/a.txt?token=hunter2", 200),
            ("HEAD", "/a.txt", 200),
            ("GET", "/closed", 403),
            ("GET", "/old", 301),
            ("GET", "/php", 200),
        ];
        for (number, (method, target, status)) in asked.into_iter().enumerate() {
            let mut client = server.connect();
            client.request(method, target, &format!("X-Request-Id: r{number}\r\n"));
            assert_eq!(client.head().0, status, "{target}");
        }
        server.logged(&[message, r#""URI":"/php""#]);
        let log = server.log();
        for (number, (method, target, status)) in asked.into_iter().enumerate() {
            let id = format!(r#""request_id":"r{number}""#);
            let records: Vec<&str> = log.lines().filter(|line| line.contains(&id)).collect();
            let [record] = records.as_slice() else {
                panic!("one record of {method} {target}: {log}");
            };
            let record: Value = serde_json::from_str(record).unwrap();
            assert_eq!(record["msg"], message);
            assert_eq!(
                (&record["method"], &record["status"]),
                (&method.into(), &status.into())
            );
            let path = target.split('?').next().unwrap();
            assert!(
                record["URI"].as_str().unwrap().starts_with(path),
                "{record}"
            );
            assert!(!record.to_string().contains("hunter2"), "{record}");
            assert_eq!(record["pid"].is_null(), target != "/php", "{record}");
        }
        server.stop();
    }
}

/// Fails in all ways that have a sink of their own.
const FAILS: &str = "switch ($request->query()['do'] ?? '') {
    case 'warn': return $undefined . 'x';
    case 'throw': throw new LogicException('no way');
    case 'die': posix_kill(posix_getpid(), 9);
}
usleep(5000);
return 'x';";

/// The requests of each round of the test below.
const REQUESTS: usize = 3 * 4 * 2;

/// Each request of 60 KB, in every sink: records of all formats, of slow requests, of PHP and of
/// workers that die, the access log, traces and reports.
#[test]
fn a_long_uri_makes_a_short_log() {
    extension();
    for (logs, access) in [
        ("{mode: production}", "combined"),
        ("{mode: development}", "json"),
        ("{mode: raw}", "'{target} {path} {query} {header:referer}'"),
        (
            "{mode: production, format: '%message% %attrs%'}",
            "combined",
        ),
    ] {
        let config = format!(
            "version: '3'\nserver: {{command: php worker.php}}\nlogs: {logs}\nstate_dir: state\n\
             otel: {{exporter: stdout, batch: {{wait: 20ms}}}}\n\
             http:\n  address: 127.0.0.1:0\n  access_logs: true\n  access_log: {{format: {access}, output: access.log}}\n  \
             pool: {{num_workers: 1, slow: 1ms}}\n"
        );
        let site = Site::new()
            .file("worker.php", &Site::sdk_worker(FAILS))
            .config(&config);
        let server = Server::start(site);
        for (at, unit) in ["a", "%22", "\\"].into_iter().enumerate() {
            for (how, status) in [("slow", 200), ("warn", 200), ("throw", 500), ("die", 502)] {
                let long = unit.repeat((60 << 10) / unit.len() - 300);
                // Another one each time: one that has killed workers is not tried for long.
                let mut client = server.connect();
                client.request("GET", &format!("/?do={how}&n={at}&q={long}"), "");
                assert_eq!(client.response().status, status, "{how}");
                let mut client = server.connect();
                let referer = format!("Referer: /?q={}\r\n", "a".repeat(50 << 10));
                client.request("GET", &format!("/?do={how}&m={at}"), &referer);
                assert_eq!(client.response().status, status, "{how}");
            }
        }
        let folder = server.site().folder().to_owned();
        let access = wait_for("lines of requests", || {
            let text = fs::read_to_string(folder.join("access.log")).ok()?;
            (text.lines().count() >= REQUESTS).then_some(text)
        });
        let reports = wait_for("reports", || {
            let files = fs::read_dir(folder.join("state/reports")).ok()?.flatten();
            let texts: Vec<_> = files
                .filter_map(|file| fs::read_to_string(file.path()).ok())
                .collect();
            (texts.len() >= 6).then_some(texts)
        });
        let shown = server.steer(&["logs", "-n", "200"]).stdout;
        let Ended { stderr, stdout, .. } = server.stop();
        let bounded = |what: &str, texts: &mut dyn Iterator<Item = &str>, values: usize| {
            for text in texts {
                let most = values * (2 << 10) + (3 << 10);
                assert!(text.len() < most, "{what}, {}: {text}", text.len());
            }
        };
        bounded("the access log", &mut access.lines(), 4);
        bounded("records", &mut stderr.lines(), 4);
        bounded("records in memory", &mut shown.lines(), 4);
        bounded("reports", &mut reports.iter().map(String::as_str), 3);
        bounded("traces", &mut [&*stdout].into_iter(), 2 * REQUESTS);
        for (what, text) in [("access", &access), ("records", &stderr), ("shown", &shown)] {
            assert!(text.contains("-bytes-left-out]"), "{what}: {text}");
        }
    }
}
