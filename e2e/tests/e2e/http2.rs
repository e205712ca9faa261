//! HTTP/2, with TLS and without.

use std::collections::BTreeMap;
use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};

use pronghorn_testkit::{Connection, PATIENCE, Server, Site, binary, free_address, wait_for};

use crate::ring::extension;
use crate::secure::{PREFACE, curl, frame, get, port, run_curl, site};

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
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

/// A blank line behind `?>` is enough.
#[test]
fn of_a_body_that_is_too_long_all_that_was_announced_arrives() {
    const SCRIPT: &str = "<?php header('Content-Length: ' . $_GET['n']); echo str_repeat('x', (int) $_GET['n']); ?>\n\n";
    const PROGRAM: &str = "#!/bin/sh\nprintf 'Content-Length: 300000\\n\\n'\nhead -c 300000 /dev/zero | tr '\\0' x\necho; echo\n";
    let more = format!(
        "  pools:\n    classic: {{mode: classic, root: public, num_workers: 1, php: 'php -d extension={}'}}\n    \
         fastcgi: {{mode: fastcgi, root: public, num_workers: 1}}\n    cgi: {{mode: cgi, root: programs, num_workers: 1}}\n    \
         front: {{command: php front.php, num_workers: 1}}\n    sdk: {{command: php sdk.php, num_workers: 1}}\n  \
         routes:\n    - {{path: /classic.php, pool: classic}}\n    - {{path: /fastcgi.php, pool: fastcgi}}\n    \
         - {{path: /program, pool: cgi}}\n    - {{path: /front, pool: front}}\n    - {{path: /sdk, pool: sdk}}\n",
        extension().display()
    );
    let sdk = "$n = (int) $request->query()['n'];
        return Pronghorn\\Response::stream(function ($send) use ($n) { $send(str_repeat('x', $n)); $send('too many'); }, 200, ['Content-Length' => (string) $n]);";
    let front = Site::sdk_worker("").replace(
        "function (Pronghorn\\Request $request): mixed {\n\n}",
        "function () { require 'public/classic.php'; }",
    );
    let site = site("app.php", "", &more)
        .file("public/classic.php", SCRIPT)
        .file("public/fastcgi.php", SCRIPT)
        .file("front.php", &front)
        .file("sdk.php", &Site::sdk_worker(sdk))
        .file("programs/program", PROGRAM);
    let runnable = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(site.path("programs/program"), runnable).expect("it is there");
    let server = Server::start(site);
    let clear = format!("http://{}", server.address());
    let secure = format!("https://localhost:{}", port(&server));
    for path in ["/classic.php", "/fastcgi.php", "/front", "/sdk", "/program"] {
        for (url, protocol) in [
            (&clear, "--http1.1"),
            (&secure, "--http1.1"),
            (&clear, "--http2-prior-knowledge"),
            (&secure, "--http2"),
        ] {
            let url = format!("{url}{path}?n=300000");
            let said = curl(
                &server,
                &["--ipv4", "--cacert", "localhost.pem", protocol, &url],
            );
            assert!(
                said == "x".repeat(300_000),
                "{protocol} {url}: {}",
                said.len()
            );
        }
    }
    server.logged(&[
        "WARN",
        "a reply's body is longer than its `Content-Length`",
        "/classic.php",
    ]);
    server.stop();
}

/// The client has all of it, and is not gone.
#[test]
fn a_script_goes_on_behind_the_length_that_it_announced() {
    const SCRIPT: &str = "<?php header('Content-Length: 5'); echo 'hello'; flush(); usleep(300000);
        echo ''; flush(); file_put_contents('behind', connection_status(), FILE_APPEND);";
    let more = format!(
        "  pools:\n    classic: {{mode: classic, root: public, num_workers: 1, php: 'php -d extension={}'}}\n  \
         routes:\n    - {{path: /classic.php, pool: classic}}\n",
        extension().display()
    );
    let site = site("app.php", "", &more).file("public/classic.php", SCRIPT);
    let server = Server::start(site);
    for (protocol, all) in [("--http1.1", "0"), ("--http2", "00")] {
        assert_eq!(get(&server, "/classic.php", &[protocol]), "hello");
        wait_for("the end of the script", || {
            let said = std::fs::read_to_string(server.site().path("public/behind")).ok()?;
            (said == all).then_some(())
        });
    }
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
    let shown = nghttp(&server, "/trailing");
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

/// What the reply to a path is without its date, with the names in lower case.
fn fields_of(server: &Server, path: &str, protocol: &str) -> Vec<String> {
    let said = get(server, path, &[protocol, "--include"]);
    let (head, _) = said.split_once("\r\n\r\n").expect("a head");
    let fields = head.split("\r\n").skip(1).filter_map(|line| {
        let (name, value) = line.split_once(':')?;
        Some(format!("{}:{value}", name.to_ascii_lowercase()))
    });
    let mut fields: Vec<String> = fields.filter(|field| !field.starts_with("date:")).collect();
    fields.sort();
    fields
}

#[test]
fn a_field_with_a_control_character_is_left_out_in_every_protocol() {
    const FIELDS: &str = r#"header('X-One: a' . chr(1) . 'b'); header('X-Del: a' . chr(127)); header('X-Esc: ' . chr(27) . '[31m');
        header('Set-Cookie: a=' . chr(2)); header('Set-Cookie: b=1', false); header('X-Tab: a' . chr(9) . 'b');
        header("X-Utf8: \xc3\xa9"); header('X-Empty:'); header('X-C1: ' . chr(0x85)); echo 'x';"#;
    const WORKER: &str = r"return new Pronghorn\Response('body', 200, ['Trailer' => 'X-Sum, X-Good', 'X-Sum' => 'a' . chr(1),
        'X-Good' => '1', 'X-One' => chr(31), 'X-Two' => '2', 'X-Blanks' => ' v'.chr(9)]);";
    let more = format!(
        "  pools:\n    classic: {{mode: classic, root: public, num_workers: 1, php: 'php -d extension={}'}}\n    \
         cgi: {{mode: fastcgi, root: public, num_workers: 1}}\n    sdk: {{command: php sdk.php, num_workers: 1}}\n  \
         routes:\n    - {{path: /classic.php, pool: classic}}\n    - {{path: /cgi.php, pool: cgi}}\n    - {{path: /sdk, pool: sdk}}\n",
        extension().display()
    );
    let script = format!("<?php {FIELDS}");
    let site = site("app.php", "", &more)
        .file("public/classic.php", &script)
        .file("public/cgi.php", &script)
        .file("sdk.php", &Site::sdk_worker(WORKER));
    let server = Server::start(site);
    for path in ["/classic.php", "/cgi.php"] {
        let fields = fields_of(&server, path, "--http1.1");
        let said = fields.join("\n");
        for left in [
            "set-cookie: b=1",
            "x-tab: a\tb",
            "x-utf8: \u{e9}",
            "x-empty:",
            "x-c1: ",
        ] {
            assert!(said.contains(left), "{path}: {left}: {said:?}");
        }
        for gone in ["x-one", "x-del", "x-esc", "a="] {
            assert!(!said.contains(gone), "{path}: {gone}: {said:?}");
        }
        for protocol in ["--http2", "--http2-prior-knowledge"] {
            assert_eq!(fields_of(&server, path, protocol), fields, "{path}");
        }
    }
    server.logged(&[
        "WARN",
        "is left out: the value of `X-One` has a control character in it (0x01)",
        "/classic.php",
    ]);
    let mut connection = server.connect();
    connection.send("GET /sdk HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n");
    let raw = String::from_utf8(connection.rest()).unwrap();
    assert!(
        raw.contains("X-Two: 2\r\n") && !raw.contains("X-One"),
        "{raw}"
    );
    assert!(
        raw.ends_with("4\r\nbody\r\n0\r\nX-Good: 1\r\n\r\n"),
        "{raw}"
    );
    // nghttp takes no value with blanks around it.
    let shown = nghttp(&server, "/sdk");
    assert!(
        shown.contains("x-blanks: v\n") && !shown.contains("Invalid HTTP header"),
        "{shown}"
    );
    server.stop();
}

/// What nghttp shows of a request.
fn nghttp(server: &Server, path: &str) -> String {
    let shown = Command::new("nghttp")
        .args(["-n", "-v", "--no-verify-peer"])
        .arg(format!("https://127.0.0.1:{}{path}", port(server)))
        .output()
        .expect("nghttp is installed");
    String::from_utf8_lossy(&shown.stdout).into_owned()
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

/// Sends frames behind the beginning of a connection, and reads until its end: the error of the
/// last GOAWAY.
pub(crate) fn end_of(server: &Server, frames: &[u8]) -> Option<u32> {
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

/// A client of which each byte is known.
struct Client {
    reader: Box<dyn Read>,
    writer: Box<dyn Write>,
    /// What encrypts for it.
    openssl: Option<Child>,
    /// How streams ended: `None` with a reply, else the error that they were reset with.
    ended: BTreeMap<u32, Option<u32>>,
    /// Blocks of fields, as they came.
    heads: BTreeMap<u32, Vec<u8>>,
}

impl Client {
    fn clear(server: &Server) -> Self {
        let stream = TcpStream::connect(server.address()).expect("it accepts");
        stream
            .set_read_timeout(Some(PATIENCE))
            .expect("a time-out can be set");
        let reader = stream.try_clone().expect("there are descriptors");
        Self::begin(Box::new(reader), Box::new(stream), None)
    }

    fn secure(server: &Server) -> Self {
        let mut openssl = Command::new("timeout")
            .arg(PATIENCE.as_secs().to_string())
            .args(["openssl", "s_client", "-quiet", "-alpn", "h2", "-connect"])
            .arg(format!("127.0.0.1:{}", port(server)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("openssl is installed");
        let reader = openssl.stdout.take().expect("it is piped");
        let writer = openssl.stdin.take().expect("it is piped");
        Self::begin(Box::new(reader), Box::new(writer), Some(openssl))
    }

    fn begin(reader: Box<dyn Read>, writer: Box<dyn Write>, openssl: Option<Child>) -> Self {
        let mut client = Self {
            reader,
            writer,
            openssl,
            ended: BTreeMap::new(),
            heads: BTreeMap::new(),
        };
        client.send(&[PREFACE, &frame(SETTINGS, 0, 0, &[])].concat());
        client
    }

    fn send(&mut self, bytes: &[u8]) {
        self.writer.write_all(bytes).expect("it is open");
        self.writer.flush().expect("it is open");
    }

    /// Reads until this stream has ended, and says how.
    fn end_of(&mut self, stream: u32) -> Option<u32> {
        loop {
            if let Some(end) = self.ended.get(&stream) {
                return *end;
            }
            let mut head = [0; 9];
            self.reader.read_exact(&mut head).expect("a frame");
            let [a, b, c, kind, flags, stream @ ..] = head;
            let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
            self.reader.read_exact(&mut payload).expect("it is whole");
            let stream = u32::from_be_bytes(stream);
            assert_ne!(kind, GOAWAY, "the connection ends: {payload:?}");
            if kind == HEADERS {
                self.heads.insert(stream, payload.clone());
            }
            let end = match kind {
                RST_STREAM => Some(payload.try_into().ok().map(u32::from_be_bytes)),
                HEADERS | DATA if flags & 1 != 0 => Some(None),
                _ => None,
            };
            if let Some(end) = end {
                self.ended.insert(stream, end);
            }
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        if let Some(openssl) = &mut self.openssl {
            _ = openssl.kill(); // it may have ended
            _ = openssl.wait(); // as above
        }
    }
}

/// A field that no table keeps.
pub(crate) fn literal(name: &[u8], value: &[u8]) -> Vec<u8> {
    let length = |text: &[u8]| vec![u8::try_from(text.len()).expect("it is short")];
    [&[0], &length(name)[..], name, &length(value), value].concat()
}

pub(crate) fn request(path: &str, more: &[u8]) -> Vec<u8> {
    [
        &[0x82, 0x86][..],
        &literal(b":path", path.as_bytes()),
        &literal(b":authority", b"a"),
        more,
    ]
    .concat()
}

const PROTOCOL_ERROR: Option<u32> = Some(1);

#[test]
fn a_malformed_request_ends_its_stream_alone() {
    let more = "  access_log: {format: '{status} {target} {protocol}', output: access.log}\n";
    let server = Server::start(site("app.php", "", more));
    let kept = [&[0x40], &literal(b"x-kept", b"a\nb")[1..]].concat();
    let bad_path = [
        &[0x82, 0x86][..],
        &literal(b":path", b"/caf\xe9"),
        &literal(b":authority", b"a"),
    ]
    .concat();
    let whole = |block: &[u8], stream| frame(HEADERS, 5, stream, block);
    let cut = |block: &[u8], at: usize, stream| {
        let (first, last) = block.split_at(at);
        [frame(HEADERS, 1, stream, first), frame(9, 4, stream, last)].concat()
    };
    let with = |name: &[u8], value: &[u8]| request("/", &literal(name, value));
    let in_trailers = |stream, trailers: &[u8]| {
        [
            frame(HEADERS, 4, stream, &request("/body", &[])),
            frame(DATA, 0, stream, b"body"),
            frame(HEADERS, 5, stream, trailers),
        ]
        .concat()
    };
    for secure in [false, true] {
        let mut client = if secure {
            Client::secure(&server)
        } else {
            Client::clear(&server)
        };
        client.send(&whole(&request("/wait", &[]), 1));
        let malformed = [
            whole(&with(b"x-a", b"a\rb"), 3),
            whole(&with(b"x-a", b"a\x0cb"), 5),
            whole(&with(b"x-a", b"\x7f"), 7),
            whole(&with(b"X-A", b"b"), 9),
            whole(&with(b"connection", b"close"), 11),
            whole(&bad_path, 13),
            cut(&with(b"x-a", b"a\0b"), 4, 15),
            cut(&with(b"x-a", b"a\0b"), 30, 17),
            cut(&with(b"connection", b"close"), 40, 19),
            in_trailers(21, &literal(b"x-sum", b"a\nb")),
            in_trailers(23, &literal(b"X-Sum", b"a")),
            whole(&request("/", &kept), 25),
            // The same one again, by its place in the table.
            whole(&request("/", &[0xbe]), 27),
            frame(
                HEADERS,
                0x25,
                29,
                &[&[0, 0, 0, 29, 9], &request("/", &[])[..]].concat(),
            ),
        ];
        for (number, frames) in malformed.iter().enumerate() {
            let stream = 2 * u32::try_from(number).unwrap() + 3;
            client.send(frames);
            assert_eq!(
                client.end_of(stream),
                PROTOCOL_ERROR,
                "{stream}, TLS {secure}"
            );
        }
        // More of them than the life of a connection has room for errors that `h2` counts.
        for stream in (101..501).step_by(2) {
            client.send(&whole(&with(b"x-a", b"a\rb"), stream));
            assert_eq!(client.end_of(stream), PROTOCOL_ERROR);
        }
        // A good value by the name of the bad field in the table.
        let named = [&[0x0f, 62 - 15, 1], &b"c"[..]].concat();
        client.send(&whole(&request("/", &named), 501));
        assert_eq!(client.end_of(501), None, "TLS {secure}");
        server.site().write("go", "");
        assert_eq!(client.end_of(1), None, "TLS {secure}");
        std::fs::remove_file(server.site().path("go")).unwrap();
    }
    server.logged(&["request refused", "a field's value"]);
    let site = server.into_site();
    assert!(site.read("access.log").contains("400 / HTTP/2.0\n"));
}

/// A running proxy; ends with this value.
struct Haproxy {
    process: Child,
    address: SocketAddr,
}

impl Haproxy {
    /// In front of a server that it speaks HTTP/2 with, on one connection for all clients.
    fn start(server: &Server) -> Self {
        let address = free_address();
        let config = format!(
            "global\n nbthread 1\ndefaults\n mode http\n timeout connect 3s\n timeout client 30s\n timeout server 30s\n \
             http-reuse always\n retries 0\nfrontend f\n bind {address}\n default_backend b\n\
             backend b\n server s {} proto h2 max-reuse -1\n",
            server.address()
        );
        server.site().write("haproxy.cfg", &config);
        let process = Command::new("/usr/sbin/haproxy")
            .args(["-db", "-f"])
            .arg(server.site().path("haproxy.cfg"))
            .stdin(Stdio::null())
            .process_group(0)
            .spawn()
            .expect("haproxy is installed (scripts/need tests)");
        let haproxy = Self { process, address };
        wait_for("HAProxy to listen", || TcpStream::connect(address).ok());
        haproxy
    }
}

impl Drop for Haproxy {
    fn drop(&mut self) {
        _ = self.process.kill(); // it may have ended
        _ = self.process.wait(); // as above
    }
}

#[test]
fn behind_haproxy_a_malformed_request_hurts_nobody_else() {
    let server = Server::start(site("app.php", "", ""));
    let haproxy = Haproxy::start(&server);
    let mut waiting: Vec<Connection> = Vec::new();
    for _ in 0..2 {
        let mut connection = Connection::open(haproxy.address);
        connection.request("GET", "/wait", "");
        waiting.push(connection);
    }
    for bytes in ["a\x0cb", "a\x01b", "a\x7fb"] {
        let mut connection = Connection::open(haproxy.address);
        connection.request("GET", "/", &format!("X-A: {bytes}\r\n"));
        assert_eq!(connection.response().status, 502, "{bytes:?}");
    }
    server.site().write("go", "");
    for mut connection in waiting {
        assert_eq!(connection.response().status, 200);
    }
    drop(haproxy);
    server.stop();
}

const INITIAL_WINDOW: [u8; 2] = [0, 4];

/// The beginning of a connection on which each stream may send so much.
pub(crate) fn with_window(window: u32) -> Vec<u8> {
    let setting = [&INITIAL_WINDOW[..], &window.to_be_bytes()].concat();
    let more = frame(8, 0, 0, &(1_u32 << 30).to_be_bytes());
    [PREFACE, &frame(SETTINGS, 0, 0, &setting), &more].concat()
}

pub(crate) fn site_with_large_file(more: &str) -> Site {
    let files = "  middleware: [static, compress]\n  static: {dir: public}\n";
    let site = site("app.php", "", &format!("{files}{more}"));
    site.write("public/large.txt", &"x".repeat(1 << 20));
    site
}

#[test]
fn replies_that_nobody_reads_do_not_fill_the_memory() {
    // All their requests fit into the queue.
    const CONNECTIONS: u64 = 7;
    let server = Server::start(site_with_large_file(""));
    assert_eq!(get(&server, "/large.txt", &["--http2"]).len(), 1 << 20);
    let before = server.resident_memory();
    // Of PHP, whole replies that are shorter than what is kept in files.
    let targets = ["/large.txt", "/large?kb=250"].into_iter();
    for (target, window) in targets.flat_map(|target| [(target, 0), (target, 1 << 30)]) {
        let mut connections = Vec::new();
        for _ in 0..CONNECTIONS {
            let mut stream = TcpStream::connect(server.address()).unwrap();
            let requests = (1..256)
                .step_by(2)
                .flat_map(|id| frame(1, 5, id, &request(target, &[])));
            let bytes: Vec<u8> = with_window(window).into_iter().chain(requests).collect();
            stream.write_all(&bytes).unwrap();
            connections.push(stream);
        }
        // The server is done with all of it when another client has been served, and again.
        for _ in 0..20 {
            assert_eq!(get(&server, "/", &["--http2"]), "Hello");
        }
        // All replies of one take 32 MB or more; the allocator keeps memory of earlier rounds.
        let more = server.resident_memory().saturating_sub(before) / CONNECTIONS;
        assert!(
            more < 8 << 10,
            "{more} KB for a connection, {target}, window {window}"
        );
    }
    server.stop();
}

#[test]
fn files_of_replies_that_nobody_reads_count_as_spool_files() {
    let metrics = free_address();
    let site = site(
        "app.php",
        &format!("metrics: {{address: '{metrics}'}}\n"),
        "",
    );
    let server = Server::start(site);
    let mut stream = TcpStream::connect(server.address()).expect("it listens");
    let requests = (1..).step_by(2).take(40);
    let requests = requests.flat_map(|id| frame(1, 5, id, &request("/large?kb=250", &[])));
    let begin: Vec<u8> = with_window(0).into_iter().chain(requests).collect();
    stream.write_all(&begin).expect("it reads");
    let spooled = || {
        let text = Connection::open(metrics).get("/metrics").text();
        let mut lines = text.lines();
        let bytes = lines.find_map(|line| line.strip_prefix("pronghorn_http_spool_bytes"));
        let bytes = bytes.and_then(|line| line.split(' ').next_back()?.parse::<f64>().ok());
        bytes.expect("it is told")
    };
    // All but what may wait in memory.
    wait_for("the replies in files", || (spooled() > 8e6).then_some(()));
    drop(stream);
    wait_for("the files to go", || (spooled() == 0.0).then_some(()));
    server.stop();
}

/// Streams whose replies wait for the client, those in memory and those in files, get the same.
fn replies_wait_whole(site: Site, target: &str, more: &[u8]) {
    const STREAMS: usize = 40;
    let server = Server::start(site);
    let mut stream = TcpStream::connect(server.address()).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time-out");
    let requests = (1..).step_by(2).take(STREAMS);
    let requests = requests.flat_map(|id| frame(1, 5, id, &request(target, more)));
    let begin: Vec<u8> = with_window(0).into_iter().chain(requests).collect();
    stream.write_all(&begin).expect("it reads");
    let mut bodies: HashMap<u32, Vec<u8>> = HashMap::new();
    let (mut heads, mut whole) = (0, 0);
    let mut head = [0; 9];
    while whole < STREAMS {
        stream.read_exact(&mut head).expect("a frame");
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; length as usize];
        stream.read_exact(&mut payload).expect("it is whole");
        let id = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        assert_ne!(head[3], RST_STREAM, "stream {id}");
        if head[3] == HEADERS {
            heads += 1;
            if heads == STREAMS {
                let setting = [&INITIAL_WINDOW[..], &(1_u32 << 24).to_be_bytes()].concat();
                stream
                    .write_all(&frame(SETTINGS, 0, 0, &setting))
                    .expect("it reads");
            }
        }
        if head[3] == 0 {
            bodies.entry(id).or_default().extend(payload);
            whole += usize::from(head[4] & 1);
        }
    }
    let first = bodies.remove(&1).expect("a reply");
    assert!(first.len() > 30_000, "{} bytes", first.len());
    for (id, body) in &bodies {
        assert!(
            *body == first,
            "stream {id}: {} of {} bytes",
            body.len(),
            first.len()
        );
    }
    server.stop();
}

#[test]
fn replies_that_wait_for_their_client_are_whole() {
    replies_wait_whole(site_with_large_file(""), "/large?kb=250", b"");
    replies_wait_whole(site_with_large_file(""), "/large.txt", b"");
}

/// Each reply is longer than what a worker may be ahead of its client, whole or in two pieces.
fn site_of_long_replies() -> Site {
    let long = "$text = str_repeat('0123456789abcdef', 3 << 15);
        return $request->path === '/whole' ? $text : (function () use ($text) {
            yield substr($text, 0, 1 << 20);
            yield substr($text, 1 << 20);
        })();";
    let site = Site::new().file("long.php", &Site::sdk_worker(long));
    site.config(&format!(
        "version: '3'\n\
         server: {{command: php -d extension={} long.php}}\n\
         http: {{address: 127.0.0.1:0, pool: {{num_workers: 3}}, http2: {{h2c: true}}}}\n\
         logs: {{level: debug}}\n",
        extension().display()
    ))
}

#[test]
fn long_replies_of_workers_that_wait_for_their_client_are_whole() {
    for target in ["/whole", "/pieces"] {
        replies_wait_whole(site_of_long_replies(), target, b"");
    }
}

#[test]
fn long_replies_of_workers_are_whole_where_many_share_a_connection() {
    let server = Server::start(site_of_long_replies());
    for target in ["/whole", "/pieces"] {
        let url = format!("http://{}{target}", server.address());
        let arguments = ["-n", "200", "-c", "2", "-m", "100", &url];
        let run = Command::new("h2load").args(arguments).output();
        let said = run.expect("it is installed with nghttp").stdout;
        let said = String::from_utf8_lossy(&said);
        assert!(said.contains("200 succeeded, 0 failed"), "{said}");
    }
    server.stop();
}

#[test]
fn long_replies_of_workers_that_nobody_reads_do_not_fill_the_memory() {
    const CONNECTIONS: usize = 6;
    const STREAMS: usize = 40; // each with 1.5 MB
    for target in ["/whole", "/pieces"] {
        let server = Server::start(site_of_long_replies());
        let before = server.resident_memory();
        let mut connections = Vec::new();
        for _ in 0..CONNECTIONS {
            let mut stream = TcpStream::connect(server.address()).expect("it listens");
            let requests = (1..).step_by(2).take(STREAMS);
            let requests = requests.flat_map(|id| frame(1, 5, id, &request(target, &[])));
            let bytes: Vec<u8> = with_window(0).into_iter().chain(requests).collect();
            stream.write_all(&bytes).expect("it reads");
            connections.push(stream);
        }
        let mut another = Connection::open(server.address());
        for _ in 0..20 {
            assert_eq!(another.get("/whole").body.len(), 3 << 19);
        }
        let more = server.resident_memory().saturating_sub(before);
        assert!(more < 100 << 10, "{more} KB, {target}");
        drop(connections);
        server.stop();
    }
}

#[test]
fn compressed_replies_that_wait_for_their_client_are_whole() {
    let gzip = literal(b"accept-encoding", b"gzip");
    let site = site_with_large_file("  compress: {min_size: 1KB}\n");
    replies_wait_whole(site, "/large?kb=1000", &gzip);
}

#[test]
fn a_reply_of_which_bytes_trickle_is_given_up() {
    const CANCEL: u32 = 8;
    let server = Server::start(site_with_large_file("  timeouts: {send: 1s}\n"));
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut trickle = stream.try_clone().unwrap();
    let begin = [with_window(0), frame(1, 5, 1, &request("/large.txt", &[]))].concat();
    stream.write_all(&begin).unwrap();
    let trickling = std::thread::spawn(move || {
        // Until the server closes the connection, which has no stream then.
        while trickle.write_all(&frame(8, 0, 1, &[0, 0, 0, 1])).is_ok() {
            std::thread::park_timeout(std::time::Duration::from_millis(100));
        }
    });
    let mut head = [0; 9];
    loop {
        stream.read_exact(&mut head).expect("a frame");
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; length as usize];
        stream.read_exact(&mut payload).expect("it is whole");
        if head[3] == RST_STREAM {
            assert_eq!(payload, CANCEL.to_be_bytes());
            break;
        }
    }
    stream.shutdown(std::net::Shutdown::Both).unwrap();
    trickling.join().unwrap();
    server.stop();
}

/// A request with so many parts of a cookie, and so many other fields, over HTTP/2.
fn status_with(client: &mut Client, stream: u32, crumbs: usize, others: usize) -> Vec<u8> {
    let mut more = Vec::new();
    for number in 0..crumbs {
        more.extend(literal(b"cookie", format!("c{number}=v").as_bytes()));
    }
    for number in 0..others {
        more.extend(literal(format!("x-{number}").as_bytes(), b"v"));
    }
    client.send(&frame(HEADERS, 5, stream, &request("/", &more)));
    client.end_of(stream);
    client.heads.remove(&stream).expect("it has a head")
}

#[test]
fn a_cookie_in_parts_is_one_field() {
    // `:status: 200`, by the static table.
    const OK: u8 = 0x88;
    for (most, more) in [(100, ""), (200, "  max_header_fields: 200\n")] {
        let server = Server::start(site("app.php", "", more));
        let mut client = Client::clear(&server);
        let taken = status_with(&mut client, 1, 150, most - 1);
        assert_eq!(taken[0], OK);
        let refused = status_with(&mut client, 3, 1, most);
        assert_ne!(refused[0], OK);
        let fields: Vec<String> = (0..most - 1)
            .map(|number| format!("X-{number}: v\r\n"))
            .collect();
        let mut fields = fields.concat();
        let mut connection = server.connect();
        connection.request("GET", "/", &fields);
        assert_eq!(connection.response().status, 200);
        fields.push_str("X-A: v\r\n");
        connection.request("GET", "/", &fields);
        assert_eq!(connection.response().status, 431);
        server.stop();
    }
}

#[test]
fn who_wants_a_tunnel_gets_the_same_answer_in_every_protocol() {
    let more = "  access_log: {format: '{status} {method} {target}', output: access.log}\n";
    let server = Server::start(site("app.php", "", more));
    for target in ["example.org:443", "/", "http://example.org/"] {
        let mut connection = server.connect();
        connection.send(format!(
            "CONNECT {target} HTTP/1.1\r\nHost: example.org:443\r\n\r\n"
        ));
        assert_eq!(connection.response().status, 501, "{target}");
    }
    let fields = [
        literal(b":method", b"CONNECT"),
        literal(b":authority", b"example.org:443"),
    ];
    for secure in [false, true] {
        let mut client = if secure {
            Client::secure(&server)
        } else {
            Client::clear(&server)
        };
        client.send(&frame(HEADERS, 5, 1, &fields.concat()));
        client.end_of(1);
        let head = client.heads.remove(&1).expect("it has a head");
        // `:status` by the static table, and `501` in Huffman's code.
        let refused = [0x48, 0x82, 0x6c, 0x01];
        assert!(head.starts_with(&refused), "TLS {secure}: {head:x?}");
    }
    let site = server.into_site();
    let log = site.read("access.log");
    let lines: Vec<&str> = log.lines().collect();
    let same = "501 CONNECT example.org:443";
    let others = ["501 CONNECT /", "501 CONNECT http://example.org/"];
    assert_eq!(lines, [same, others[0], others[1], same, same]);
}

#[test]
fn where_it_may_be_spoken_refused_requests_of_http1_are_answered() {
    let more = "  access_log: {format: '{status}', output: access.log}\n";
    let server = Server::start(site("app.php", "", more));
    let long = format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "a".repeat(70_000));
    let refused = [
        ("GET /\r\n\r\n", 400),
        ("GET / http/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET / FTP/1.1\r\nHost: a\r\n\r\n", 400),
        (&long, 414),
    ];
    for (bytes, status) in refused {
        let mut connection = server.connect();
        connection.send(bytes);
        assert_eq!(connection.response().status, status, "{bytes:.30}");
    }
    let site = server.into_site();
    assert_eq!(site.read("access.log"), "400\n400\n400\n414\n");
}

#[test]
fn where_it_may_be_spoken_malformed_lines_get_the_same_answer() {
    let with = Server::start(site("app.php", "", ""));
    let site = site("app.php", "", "");
    site.change_config("http2: {h2c: true}", "http2: {h2c: false}");
    let without = Server::start(site);
    let long = "A".repeat(70_000);
    let mut like_the_preface = with.connect();
    like_the_preface.send("INVALID CONNECTION PREFACE\r\n\r\n");
    assert_eq!(
        like_the_preface.rest(),
        b"",
        "it would be taken for a frame"
    );
    let lines: [&[u8]; 19] = [
        b"GET  / HTTP/1.1\r\n",
        b" GET / HTTP/1.1\r\n",
        b"\r\n\r\n\r\nGET / HTTP/1.1\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n",
        b"SSH-2.0-OpenSSH_9\r\n",
        b"\0\0\0\0\r\n\r\n",
        b"GET\r\n",
        b"GET HTTP/1.1\r\n",
        b"/ GET HTTP/1.1\r\n",
        b"GET\t/ HTTP/1.1\r\n",
        b"GE\x00T / HTTP/1.1\r\n",
        b"PRI / HTTP/2.0\r\n",
        b"PRI * HTTP/1.1\r\n",
        b"PRI * HTTP/2.0\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\rx",
        b"PRI",
        b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n",
        b"QUIT\r\n",
        long.as_bytes(),
    ];
    for line in lines {
        let request = [line, b"Host: a\r\nConnection: close\r\n\r\n"].concat();
        let status = |server: &Server| {
            let mut connection = server.connect();
            connection.send(&request);
            connection.response().status
        };
        let shown = line[..line.len().min(30)].escape_ascii();
        assert_eq!(status(&with), status(&without), "{shown}");
    }
    with.stop();
    without.stop();
}

#[test]
fn a_reset_of_the_form_has_no_content() {
    let server = Server::start(site("app.php", "", ""));
    for protocol in ["--http1.1", "--http2"] {
        let said = get(&server, "/status?code=205", &[protocol, "--include"]).to_lowercase();
        assert!(
            said.contains(" 205") && said.contains("content-length: 0\r\n"),
            "{said}"
        );
        assert!(said.ends_with("\r\n\r\n"), "{said}");
    }
    server.stop();
}

#[test]
fn a_client_that_sends_nothing_more_gets_its_answer_and_no_499() {
    let server = Server::start(site("app.php", "", ""));
    for target in ["/", "/sleep?ms=100"] {
        // On a busy machine this client is not always quick enough.
        let is_answered = (0..10).any(|_| {
            let mut connection = server.connect();
            connection.request("GET", target, "Connection: close\r\n");
            connection.finish_sending();
            let said = connection.rest();
            assert!(
                said.is_empty() || said.starts_with(b"HTTP/1.1 200 "),
                "{said:?}"
            );
            !said.is_empty()
        });
        assert!(is_answered, "{target}");
    }
    // One that leaves later, as far as can be told, is told nothing: no status is for it.
    let mut connection = server.connect();
    connection.request("GET", "/wait", "");
    std::thread::park_timeout(std::time::Duration::from_millis(500));
    connection.finish_sending();
    assert_eq!(connection.rest(), b"");
    server.site().write("go", "");
    server.logged(&["http log", "\"status\":499"]);
    server.stop();
}
