//! What a worker of the packages has to be able to do behind this server. The stand-in does it in
//! `make test`, the official packages in `make compat`.

use std::path::PathBuf;

use pronghorn_testkit::{Response, Server, Site, php_command, wait_for};
use serde_json::Value;

/// How calls get to a worker.
#[derive(Debug, Clone)]
pub(crate) struct Way {
    relay: String,
    codec: &'static str,
    /// Whether the worker speaks as releases before 3.5 do, which know JSON only.
    old: bool,
}

impl Way {
    pub(crate) fn of(relay: &str, codec: &'static str) -> Self {
        Self {
            relay: relay.into(),
            codec,
            old: false,
        }
    }

    pub(crate) fn old(mut self) -> Self {
        self.old = true;
        self
    }

    /// A server whose two workers are connected in this way.
    pub(crate) fn start(&self, options: &[&str]) -> Server {
        let Self { relay, codec, old } = self;
        let environment = if *old {
            "{FOREIGN_RELEASE: '3.4'}"
        } else {
            "{}"
        };
        let site = Site::new().config(&format!(
            "version: '3'\n\
             server: {{command: php {}, relay: '{relay}', env: {environment}}}\n\
             http: {{address: 127.0.0.1:0, pool: {{num_workers: 2, codec: {codec}}}}}\n\
             logs: {{level: debug}}\n",
            worker().display()
        ));
        Server::start_with(site, &[&["serve"], options].concat())
    }
}

/// `make compat` compiles this file too: then the worker is the official one.
const OFFICIAL: bool = matches!(env!("CARGO_CRATE_NAME").as_bytes(), b"compat");

pub(crate) fn worker() -> PathBuf {
    Site::fixture(if OFFICIAL {
        "foreign/official.php"
    } else {
        "foreign/worker.php"
    })
}

/// The codecs that the worker knows, each with whether it speaks as old releases do.
pub(crate) fn codecs() -> Vec<(&'static str, bool)> {
    if !OFFICIAL {
        return vec![("json", false), ("json", true), ("proto", false)];
    }
    let asked = php_command("php").arg(worker()).arg("--packages").output();
    let asked = asked.expect("php runs");
    let answer = String::from_utf8_lossy(&asked.stdout);
    let why = String::from_utf8_lossy(&asked.stderr);
    assert!(asked.status.success(), "{answer}{why}");
    if answer.contains("\"proto\"") {
        vec![("json", false), ("proto", false)]
    } else {
        vec![("json", true)]
    }
}

fn over(relay: &str) {
    for (codec, old) in codecs() {
        let way = Way::of(relay, codec);
        let way = if old { way.old() } else { way };
        let server = way.start(&[]);
        all(&server, &way);
        server.stop();
    }
}

#[test]
fn over_pipes() {
    over("pipes");
}

#[test]
fn over_a_unix_socket() {
    over("unix://rr.sock");
}

#[test]
fn over_tcp() {
    over("tcp://127.0.0.1:0");
}

/// They have no clocks to tell it by: it is seen from outside.
#[test]
fn what_a_worker_did_is_told() {
    for relay in ["pipes", "unix://rr.sock", "tcp://127.0.0.1:0"] {
        let options = ["-o", "logs.mode=production", "-o", "logs.level=info"];
        let server = Way::of(relay, "json").start(&options);
        for path in ["/computes", "/waits"] {
            assert_eq!(server.get(path).status, 200);
            let record = server.logged(&["http log", path]);
            let record: Value = serde_json::from_str(&record).expect("JSON");
            let told = |name: &str| {
                let micros = record[name].as_f64();
                micros.unwrap_or_else(|| panic!("{name} in {record}")) / 1e3
            };
            let (cpu, blocked) = (told("php_cpu_us"), told("php_blocked_us"));
            if path == "/computes" {
                assert!((190.0..400.0).contains(&cpu), "{relay}: {record}");
            } else {
                assert!(cpu < 50.0 && blocked > 190.0, "{relay}: {record}");
            }
            assert!((cpu + blocked - told("php_us")).abs() < 5.0, "{record}");
        }
        server.stop();
    }
}

#[test]
fn a_worker_that_had_its_calls_is_replaced_and_no_request_fails() {
    for relay in ["pipes", "unix://rr.sock"] {
        let server = Way::of(relay, "json").start(&["-o", "http.pool.max_jobs=3"]);
        let mut connection = server.connect();
        let mut pids = std::collections::BTreeSet::new();
        // A worn worker goes on until its successor is up.
        wait_for("workers that are replaced", || {
            let reply = connection.get("/pid");
            assert_eq!(reply.status, 200);
            pids.insert(reply.text());
            (pids.len() >= 6).then_some(())
        });
        server.stop();
    }
}

#[test]
fn a_reload_replaces_the_workers_and_no_request_fails() {
    for relay in ["pipes", "unix://rr.sock"] {
        let server = Way::of(relay, "json").start(&["--dev"]);
        let before = server.workers();
        server.site().write("changed.php", "<?php");
        let mut connection = server.connect();
        wait_for("new workers", || {
            assert_eq!(connection.get("/").text(), "Hello");
            let now = server.workers();
            (now.len() == 2 && now.iter().all(|pid| !before.contains(pid))).then_some(())
        });
        server.stop();
    }
}

#[test]
fn a_form_stays_as_it_came_when_bodies_are_raw() {
    for (codec, _) in codecs() {
        let server = Way::of("pipes", codec).start(&["-o", "http.raw_body=true"]);
        let form = "application/x-www-form-urlencoded";
        let text = server.post("/show", form, "a=1&b%20c=2").text();
        for part in [
            r#""body":"a=1&b%20c=2","form":null"#,
            r#""rr_parsed_body":false"#,
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
        server.stop();
    }
}

/// Everything that one server can show; its log has to have what workers print.
pub(crate) fn all(server: &Server, way: &Way) {
    without_output(server, way);
    output(server);
    readers_that_leave(server);
    assert_eq!(server.get("/").text(), "Hello", "it still serves");
}

pub(crate) fn without_output(server: &Server, way: &Way) {
    requests(server, way);
    replies(server);
    streams(server);
    failures(server, way);
    replacements(server);
}

pub(crate) fn requests(server: &Server, way: &Way) {
    let hello = server.get("/");
    assert_eq!((hello.status, hello.text().as_str()), (200, "Hello"));
    environment(server, way);
    let mut connection = server.connect();
    connection.send(
        "PUT /show?a=1&b[]=2&b[]=3 HTTP/1.1\r\nHost: example.org:81\r\nCookie: f=g; c=d%20e\r\nX-Many: 1\r\nX-Many: 2\r\n\
         Content-Type: text/plain\r\nContent-Length: 9\r\n\r\nsome text",
    );
    let response = connection.response();
    assert_eq!(response.header("content-type"), Some("application/json"));
    assert_eq!(
        response.text(),
        r#"{"query":{"a":"1","b":["2","3"]},"body":"some text","form":null,"remoteAddr":"127.0.0.1","protocol":"HTTP/1.1","method":"PUT","uri":"http://example.org:81/show?a=1&b[]=2&b[]=3","headers":{"Content-Length":["9"],"Content-Type":["text/plain"],"Cookie":["f=g; c=d%20e"],"X-Many":["1","2"]},"cookies":{"c":"d e","f":"g"},"uploads":[],"attributes":{"rr_parsed_body":false}}"#
    );
    forms(server);
    for size in [0, 1, 100_000, 256 << 10, (256 << 10) + 1, 5_000_000] {
        let response = server.post("/body", "application/octet-stream", vec![0xff; size]);
        assert_eq!(
            response.text().split(' ').next(),
            Some(size.to_string().as_str())
        );
    }
    bytes(server, way);
}

fn environment(server: &Server, way: &Way) {
    let text = server.get("/environment").text();
    let relay = way.relay.trim_end_matches(":0").trim_end_matches('0');
    for part in [
        r#""RR_MODE":"http""#,
        r#""RR_VERSION":"20"#,
        &format!(r#""RR_RELAY":"{relay}"#),
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
}

fn forms(server: &Server) {
    let urlencoded = "application/x-www-form-urlencoded";
    for (body, form) in [
        (
            "name=Zo%C3%AB&tags[]=a&tags[]=b&deep[x][y]=1",
            r#""form":{"name":"Zoë","tags":["a","b"],"deep":{"x":{"y":"1"}}}"#,
        ),
        ("", r#""form":[]"#),
    ] {
        let text = server.post("/show", urlencoded, body).text();
        assert!(text.contains(form), "{form} in {text}");
        assert!(text.contains(r#""rr_parsed_body":true"#), "{text}");
    }
    let body = "--X\r\nContent-Disposition: form-data; name=\"title\"\r\n\r\nHello\r\n\
                --X\r\nContent-Disposition: form-data; name=\"docs[a]\"; filename=\"C:\\\\dir\\\\cv.txt\"\r\nContent-Type: text/plain\r\n\r\ncontent\r\n\
                --X--\r\n";
    let text = server
        .post("/show", "multipart/form-data; boundary=X", body)
        .text();
    for part in [
        r#""form":{"title":"Hello"}"#,
        r#""uploads":{"docs":{"a":{"name":"cv.txt","type":"text/plain","size":7,"error":0,"md5":"9a0364b9e99bb480dd25e1f0284c8555"}}}"#,
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
}

/// Bytes that are not UTF-8: only `proto` can carry them.
fn bytes(server: &Server, way: &Way) {
    let mut connection = server.connect();
    connection.send(b"GET /bytes HTTP/1.1\r\nHost: test\r\nX-Bytes: a\xe9b\r\n\r\n");
    let got = connection.response();
    if way.codec == "json" {
        assert_eq!(got.text(), "a\u{fffd}b");
    } else if !(OFFICIAL && got.status == 500) {
        // Before 3.5 the packages read these fields as texts and refuse what is none.
        assert_eq!(got.body, b"a\xe9b");
    }
}

fn replies(server: &Server) {
    let mut connection = server.connect();
    for status in [201, 404, 500] {
        let response = connection.get(&format!("/headers?status={status}"));
        assert_eq!(
            (response.status, response.text().as_str()),
            (status, "page")
        );
        assert_eq!(response.all("Set-Cookie"), ["a=1", "b=2"]);
    }
    assert_eq!(connection.get("/headers?status=204").body, b"");
    connection.request("HEAD", "/", "");
    let head = connection.head_response();
    assert_eq!(
        (head.status, head.header("content-length")),
        (200, Some("5"))
    );
    for kb in [63, 1024, 20_000] {
        let response = server.get(&format!("/large?kb={kb}"));
        assert_eq!((response.body.len(), response.complete), (kb << 10, true));
    }
    connection.request("GET", "/hints", "");
    let (status, headers) = connection.head();
    assert_eq!(
        (status, headers[0].1.as_str()),
        (103, "</a.css>; rel=preload")
    );
    let response = connection.response();
    assert_eq!((response.status, response.header("link")), (200, None));
    assert_eq!(response.text(), "after the hints");
}

fn output(server: &Server) {
    assert_eq!(server.get("/print").text(), "said");
    for line in ["printed", "first line", "second line"] {
        server.logged(&[line]);
    }
}

fn streams(server: &Server) {
    let mut connection = server.connect();
    // 0 is a body that is not streamed, and 100 is longer than it.
    for chunk in [0, 3, 50, 100] {
        let response = connection.get(&format!("/psr?chunk={chunk}"));
        assert_eq!(response.text(), "0123456789".repeat(10), "{chunk}");
        assert_eq!(response.header("content-type"), Some("text/plain"));
    }
    // The packages ask with the 6th chunk whether anybody listens, and with later ones.
    for pieces in [1, 2, 5, 6, 7, 30, 1000] {
        let response = connection.get(&format!("/stream?pieces={pieces}"));
        assert_eq!(response.text().lines().count(), pieces);
        assert!(response.complete && response.text().ends_with(&format!("piece {pieces}\n")));
        assert_eq!(response.header("x-stream"), Some("yes"));
    }
}

fn readers_that_leave(server: &Server) {
    for target in ["/endless", "/endless?uncaught=1"] {
        let told = told_to_stop(server);
        let mut leaving = server.connect();
        leaving.request("GET", target, "");
        assert_eq!(leaving.head().0, 200);
        drop(leaving);
        wait_for("the worker to be told that nobody listens", || {
            (told_to_stop(server) > told).then_some(())
        });
    }
}

fn told_to_stop(server: &Server) -> usize {
    server
        .log()
        .matches("told to stop by StreamStoppedException")
        .count()
}

fn failures(server: &Server, way: &Way) {
    let broken = server.get("/breaks");
    assert_eq!(broken.text(), "half");
    // Old releases end a stream in the same way when it is whole.
    assert_eq!(broken.complete, way.old);
    for (target, why) in [
        ("/throw", "thrown on purpose"),
        ("/error", "reported on purpose"),
    ] {
        let response = server.get(target);
        assert_eq!(response.status, 500);
        assert!(!response.text().contains(why), "that is not for clients");
        server.logged(&[why, target]);
    }
    // What went wrong does not count against the worker.
    let pids: Vec<String> = (0..4).map(|_| server.get("/pid").text()).collect();
    assert!(pids.iter().all(|pid| is_alive(server, pid)), "{pids:?}");
}

fn replacements(server: &Server) {
    let once = server.site().path("asked-to-stop");
    let response = server.get(&format!("/stop-instead?once={}", once.display()));
    assert_eq!(response.status, 200, "another worker answers");
    for target in ["/stop-after", "/exit-after"] {
        let Response { status, body, .. } = server.get(target);
        assert_eq!(status, 200);
        let pid = String::from_utf8(body).expect("a number");
        assert_eq!(server.get("/").text(), "Hello");
        wait_for("the worker to leave", || {
            (!is_alive(server, &pid)).then_some(())
        });
    }
}

fn is_alive(server: &Server, pid: &str) -> bool {
    server.workers().contains(&pid.parse().expect("a number"))
}
