//! HTTP/2, with TLS and without.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;

use pronghorn_testkit::{PATIENCE, Server, Site, binary};

use crate::secure::{PREFACE, curl, frame, get, port, run_curl, site};

const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const ENHANCE_YOUR_CALM: u32 = 11;

#[test]
fn h2spec_passes_whole() {
    let folder = binary();
    let h2spec = folder
        .parent()
        .and_then(|debug| debug.parent())
        .unwrap()
        .join("tools/h2spec");
    assert!(
        h2spec.exists(),
        "there is no {}: `scripts/need h2spec` builds it, and needs Go and its module proxy",
        h2spec.display()
    );
    let server = Server::start(site("app.php", "", ""));
    let (clear, secure) = (
        server.address().port().to_string(),
        port(&server).to_string(),
    );
    for arguments in [&["-p", &clear][..], &["-t", "-k", "-p", &secure]] {
        let ran = Command::new(&h2spec)
            .args(["-h", "127.0.0.1", "-o", "5"])
            .args(arguments)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&ran.stdout);
        assert!(
            ran.status.success() && said.contains("0 skipped, 0 failed"),
            "{arguments:?}\n{said}"
        );
    }
    server.stop();
}

#[test]
fn an_upgrade_to_it_is_ignored() {
    let server = Server::start(site("app.php", "", ""));
    let url = format!("http://127.0.0.1:{}/", server.address().port());
    let said = curl(&server, &["--http2", "--include", &url]);
    assert!(said.starts_with("HTTP/1.1 200 OK"), "{said}");
    server.stop();
}

#[test]
fn without_h2c_it_is_spoken_with_tls_alone() {
    let site = site("app.php", "", "");
    site.change_config("http2: {h2c: true}", "http2: {h2c: false}");
    let server = Server::start(site);
    let url = format!("http://127.0.0.1:{}/", server.address().port());
    assert!(
        !run_curl(&server, &["--http2-prior-knowledge", &url])
            .status
            .success()
    );
    assert_eq!(
        get(
            &server,
            "/",
            &["--http2", "--write-out", " %{http_version}"]
        ),
        "Hello 2"
    );
    server.stop();
}

#[test]
fn bodies_of_any_length_pass_both_ways() {
    let server = Server::start(site("app.php", "", ""));
    let lines: Vec<String> = (0..400_000).map(|number| number.to_string()).collect();
    let text = lines.join("\n");
    server.site().write("body", &text);
    let ask = |path: &str, protocol: &str, more: &[&str]| {
        get(&server, path, &[&[protocol], more].concat())
    };
    let upload = ["--data-binary", "@body", "-H", "Content-Type: text/plain"];
    let arrived = ask("/body", "--http1.1", &upload);
    assert!(arrived.starts_with(&text.len().to_string()), "{arrived}");
    assert_eq!(ask("/body", "--http2", &upload), arrived);
    let large = ask("/large?kb=4000", "--http1.1", &[]);
    assert!(large.len() == 4_096_000 && ask("/large?kb=4000", "--http2", &[]) == large);
    let pieces = ask("/stream?pieces=20", "--http1.1", &[]);
    assert_eq!(ask("/stream?pieces=20", "--http2", &[]), pieces);
    // More at a time than a client may have open.
    let url = format!("https://localhost:{}/?[1-300]", port(&server));
    let many = curl(
        &server,
        &[
            "--ipv4",
            "--cacert",
            "localhost.pem",
            "--http2",
            "--parallel",
            "--parallel-max",
            "200",
            &url,
        ],
    );
    assert_eq!(many, "Hello".repeat(300));
    server.stop();
}

#[test]
fn a_reply_that_breaks_off_does_not_look_whole() {
    let server = Server::start(site("app.php", "", ""));
    let url = format!("https://localhost:{}", port(&server));
    for path in ["/breaks", "/announced?is=100"] {
        for protocol in ["--http1.1", "--http2"] {
            let url = format!("{url}{path}");
            let ran = run_curl(
                &server,
                &["--ipv4", "--cacert", "localhost.pem", protocol, &url],
            );
            assert!(!ran.status.success(), "{path} {protocol}: {ran:?}");
        }
    }
    assert_eq!(get(&server, "/", &["--http2"]), "Hello");
    server.stop();
}

#[test]
fn hints_and_trailers_are_passed_on() {
    let trailing =
        "return new Pronghorn\\Response('body', 200, ['Trailer' => 'X-Sum', 'X-Sum' => 'abc']);";
    let site = site("app.php", "", "  pools: {trailing: {command: php trailing.php, num_workers: 1}}\n  routes: [{path: /trailing, pool: trailing}]\n")
        .file("trailing.php", &Site::sdk_worker(trailing));
    let server = Server::start(site);
    for (protocol, version) in [("--http1.1", "1.1"), ("--http2", "2")] {
        let said = get(&server, "/hints", &[protocol, "--include"]).to_lowercase();
        assert!(said.starts_with(&format!("http/{version} 103")), "{said}");
        assert!(
            said.contains("link: </a.css>; rel=preload\r\n") && said.ends_with("after the hints"),
            "{said}"
        );
    }
    let shown = Command::new("nghttp")
        .args(["-n", "-v", "--no-verify-peer"])
        .arg(format!("https://127.0.0.1:{}/trailing", port(&server)))
        .output()
        .expect("nghttp is installed");
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    let (_, after) = shown.split_once("recv DATA frame").expect("a body");
    assert!(
        after.contains("x-sum: abc") && !shown.contains("trailer: x-sum"),
        "{shown}"
    );
    let mut connection = server.connect();
    connection.send("GET /trailing HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n");
    let raw = String::from_utf8(connection.rest()).unwrap();
    assert!(
        raw.ends_with("4\r\nbody\r\n0\r\nX-Sum: abc\r\n\r\n"),
        "{raw}"
    );
    server.stop();
}

#[test]
fn a_head_with_too_many_fields_is_431() {
    let server = Server::start(site("app.php", "", ""));
    let fields: Vec<String> = (0..101)
        .map(|number| format!("header = \"x-{number}: 1\""))
        .collect();
    let fields = fields.join(
        "
",
    );
    server.site().write("many", &fields);
    let status = [
        "--http2",
        "-o",
        "/dev/null",
        "-w",
        "%{http_code}",
        "-K",
        "many",
    ];
    assert_eq!(get(&server, "/", &status), "431");
    assert_eq!(get(&server, "/", &["--http2"]), "Hello");
    server.stop();
}

/// Sends frames behind the beginning of a connection, and reads until its end: the error of the last GOAWAY.
fn end_of(server: &Server, frames: &[u8]) -> Option<u32> {
    let mut stream = TcpStream::connect(server.address()).expect("it accepts");
    stream
        .set_read_timeout(Some(PATIENCE))
        .expect("a time-out can be set");
    let mut bytes = PREFACE.to_vec();
    bytes.extend(frame(SETTINGS, 0, 0, &[]));
    bytes.extend(frames);
    // What it does not want any more it does not read.
    let mut writing = stream.try_clone().expect("there are descriptors");
    let writer = std::thread::spawn(move || _ = writing.write_all(&bytes));
    let mut read = Vec::new();
    _ = stream.read_to_end(&mut read); // a reset ends it, too
    writer.join().expect("it does not panic");
    let (mut rest, mut error) = (&read[..], None);
    while let [a, b, c, kind, _, _, _, _, _, after @ ..] = rest {
        let length = u32::from_be_bytes([0, *a, *b, *c]) as usize;
        let Some((payload, next)) = after.split_at_checked(length) else {
            break;
        };
        if *kind == GOAWAY {
            error = payload[4..8].try_into().ok().map(u32::from_be_bytes);
        }
        rest = next;
    }
    error
}

#[test]
fn floods_end_their_connection_and_nobody_elses() {
    let server = Server::start(site("app.php", "", ""));
    // `:method: GET`, `:scheme: http`, `:path: /`, and `:authority: a` as a literal.
    let head = [0x82, 0x86, 0x84, 0x41, 0x01, b'a'];
    let request = |stream| frame(1, 5, stream, &head);
    let many =
        |count: u32, of: &dyn Fn(u32) -> Vec<u8>| (0..count).flat_map(of).collect::<Vec<u8>>();
    let mut continued = frame(1, 1, 1, &head);
    continued.extend(many(100, &|_| frame(9, 0, 1, &[])));
    let mut empty = frame(1, 4, 1, &head);
    empty.extend(many(2000, &|_| frame(0, 0, 1, &[])));
    let floods = [
        ("SETTINGS", many(2000, &|_| frame(SETTINGS, 0, 0, &[]))),
        ("PING", many(5000, &|_| frame(6, 0, 0, &[0; 8]))),
        (
            "PRIORITY",
            many(20_000, &|_| frame(2, 0, 1, &[0, 0, 0, 3, 7])),
        ),
        (
            "rapid reset",
            many(5000, &|number| {
                let stream = 2 * number + 1;
                [request(stream), frame(3, 0, stream, &[0, 0, 0, 8])].concat()
            }),
        ),
        ("unknown type", many(20_000, &|_| frame(0x20, 0, 0, &[]))),
        ("CONTINUATION", continued),
        ("empty DATA", empty),
    ];
    for (name, frames) in floods {
        assert_eq!(end_of(&server, &frames), Some(ENHANCE_YOUR_CALM), "{name}");
        assert_eq!(get(&server, "/", &["--http2"]), "Hello", "{name}");
    }
    server.logged(&["a flood of frames", "\"frames\":\"PING\""]);
    server.stop();
}

#[test]
fn a_stop_lets_requests_finish_and_says_goodbye() {
    let server = Server::start(site("app.php", "", ""));
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut bytes = PREFACE.to_vec();
    bytes.extend(frame(SETTINGS, 0, 0, &[]));
    bytes.extend(frame(1, 5, 1, &[0x82, 0x86, 0x84, 0x41, 0x01, b'a']));
    stream.write_all(&bytes).unwrap();
    server.logged(&["http log", "\"status\":200"]);
    let ended = server.stop();
    let mut read = Vec::new();
    stream.read_to_end(&mut read).unwrap();
    let goaway = [0, 0, 8, GOAWAY];
    assert!(read.windows(4).any(|part| part == goaway), "{read:?}");
    assert!(read.windows(5).any(|part| part == b"Hello"));
    drop(ended);
}
