//! Shorter bodies, on their way out and in.

use std::io::{Read, Write};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use pronghorn_testkit::{Response, Server, Site};

fn site(middleware: &str, worker: &str) -> Site {
    Site::new()
        .config(&format!(
            "version: '3'\nserver:\n  command: php worker.php\nhttp:\n  address: 127.0.0.1:0\n  pool: {{num_workers: 1}}\n  middleware: {middleware}\n  static: {{dir: public}}\n  max_request_size: 4\nlogs: {{level: debug}}\n"
        ))
        .file("worker.php", &Site::sdk_worker(worker))
        .file("public/page.html", &"<p>hello</p>".repeat(2000))
        .file("public/large.txt", &"0123456789abcdef".repeat(100_000))
        .file("public/short.html", "<p>hello</p>")
}

fn gunzip(response: &Response) -> String {
    assert_eq!(response.header("content-encoding"), Some("gzip"));
    let mut text = String::new();
    let read = GzDecoder::new(&*response.body).read_to_string(&mut text);
    read.expect("it is gzip");
    text
}

const TAKES_GZIP: &str = "Accept-Encoding: gzip, deflate\r\n";

#[test]
fn the_middleware_zstd_knows_zstd_alone() {
    let body = "return new Pronghorn\\Response(str_repeat('a', (int) $request->query()['length']), 200, ['Content-Type' => 'text/plain']);";
    let server = Server::start(site("[zstd]", body));
    let mut connection = server.connect();
    let mut coding = |length: usize, takes: &str| {
        let takes = format!("Accept-Encoding: {takes}\r\n");
        connection.request("GET", &format!("/?length={length}"), &takes);
        let response = connection.response();
        response.header("content-encoding").map(str::to_owned)
    };
    assert_eq!(coding(1024, "gzip, zstd").as_deref(), Some("zstd"));
    assert_eq!(coding(1024, "gzip"), None);
    assert_eq!(coding(1023, "zstd"), None);
    server.stop();
}

#[test]
fn static_files_and_replies_come_gzipped() {
    let body = "return new Pronghorn\\Response(str_repeat('hello ', 1000 * ($request->query()['times'] ?? 1)), 200, ['Content-Type' => 'text/plain', 'ETag' => '\"a\"']);";
    let server = Server::start(site("[static, gzip]", body));
    let mut connection = server.connect();
    let mut get = |path: &str, headers: &str| {
        connection.request("GET", path, headers);
        connection.response()
    };
    let page = get("/page.html", TAKES_GZIP);
    assert_eq!(gunzip(&page), "<p>hello</p>".repeat(2000));
    assert_eq!(page.header("vary"), Some("Accept-Encoding"));
    let etag = page.header("etag").unwrap();
    assert!(etag.starts_with("W/"), "{etag}");
    let known = get(
        "/page.html",
        &format!("{TAKES_GZIP}If-None-Match: {etag}\r\n"),
    );
    assert_eq!((known.status, known.header("etag")), (304, Some(etag)));
    assert_eq!(gunzip(&get("/large.txt", TAKES_GZIP)).len(), 1_600_000);
    for times in [1, 3, 20, 200] {
        let reply = get(&format!("/?times={times}"), TAKES_GZIP);
        assert_eq!(gunzip(&reply), "hello ".repeat(1000 * times));
    }
    assert_eq!(get("/", TAKES_GZIP).header("etag"), Some("W/\"a\""));
    for (path, headers) in [
        ("/short.html", TAKES_GZIP),
        ("/page.html", ""),
        ("/page.html", "Accept-Encoding: br, gzip;q=0\r\n"),
        (
            "/page.html",
            "Accept-Encoding: gzip\r\nRange: bytes=0-1999\r\n",
        ),
    ] {
        let plain = get(path, headers);
        assert_eq!(plain.header("content-encoding"), None, "{path} {headers}");
    }
    connection.request("HEAD", "/page.html", TAKES_GZIP);
    let head = connection.head_response();
    assert_eq!(head.header("content-encoding"), Some("gzip"));
    assert_eq!(head.header("content-length"), None);
    server.stop();
}

#[test]
fn the_best_coding_of_the_list() {
    let server = Server::start(site("[static, compress]", "return 'short';"));
    let mut connection = server.connect();
    for (takes, coding) in [
        ("gzip, br, zstd", "zstd"),
        ("br", "br"),
        ("zstd;q=0.1, gzip", "gzip"),
    ] {
        for path in ["/page.html", "/large.txt"] {
            connection.request("GET", path, &format!("Accept-Encoding: {takes}\r\n"));
            let response = connection.response();
            assert_eq!(response.header("content-encoding"), Some(coding));
            assert!(
                response.complete && response.body.len() < 20_000,
                "{coding}"
            );
        }
    }
    assert_eq!(connection.get("/").text(), "short");
    server.stop();
}

#[test]
fn an_event_is_not_held_back() {
    let body = "return Pronghorn\\Response::events((function () {
        yield 'first';
        while (!is_file('go')) { usleep(1000); clearstatcache(); }
        yield 'second';
    })());";
    let server = Server::start(site("[compress]", body));
    let mut connection = server.connect();
    connection.request("GET", "/", TAKES_GZIP);
    let (status, _) = connection.head();
    assert_eq!(status, 200);
    let mut received = Vec::new();
    let readable = |received: &[u8]| {
        let mut text = Vec::new();
        _ = GzDecoder::new(received).read_to_end(&mut text); // as far as it goes
        String::from_utf8(text).unwrap()
    };
    // The second event waits for this test to have read the first.
    while !readable(&received).contains("first") {
        received.extend(connection.chunk().expect("the stream goes on"));
    }
    server.site().write("go", "");
    while !readable(&received).contains("second") {
        received.extend(connection.chunk().expect("the stream goes on"));
    }
    server.stop();
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).expect("memory takes it");
    encoder.finish().expect("memory takes it")
}

#[test]
fn requests_may_be_compressed_as_well() {
    let body = "return strlen($request->body()) . ' ' . md5($request->body()) . ' ' . $request->header('content-encoding');";
    let server = Server::start(site("[gzip]", body));
    let post = |body: &[u8]| {
        let mut connection = server.connect();
        connection.send(format!(
            "POST / HTTP/1.1\r\nHost: test\r\nContent-Encoding: gzip\r\nContent-Length: {}\r\n\r\n",
            body.len()
        ));
        connection.send(body);
        connection.response()
    };
    assert_eq!(
        post(&gzip(b"hello")).text(),
        "5 5d41402abc4b2a76b9719d911017c592 "
    );
    assert_eq!(post(b"no gzip").status, 400);
    assert_eq!(post(&gzip(b"hello")[..10]).status, 400);
    // 3 MB become 3 KB: that is more than anything meant to be read.
    assert_eq!(post(&gzip(&vec![0; 3 << 20])).status, 413);
    let text: Vec<u8> = (0..1_000_000).flat_map(|n: u32| n.to_le_bytes()).collect();
    assert_eq!(
        post(&gzip(&[text.clone(), text].concat())).status,
        413,
        "the limit counts what it becomes"
    );
    server.stop();
}

/// A cache puts the fields of a 304, and of a part, into what it keeps.
#[test]
fn a_part_and_what_is_known_vary_as_the_whole() {
    let server = Server::start(site("[static, gzip]", "return '';"));
    let mut connection = server.connect();
    let mut get = |path: &str, headers: &str| {
        connection.request("GET", path, headers);
        let response = connection.response();
        let vary = response.header("vary").map(str::to_owned);
        (response.status, vary, response)
    };
    for path in ["/page.html", "/large.txt", "/short.html"] {
        let (_, vary, whole) = get(path, "");
        assert_eq!(vary.is_some(), path != "/short.html");
        let (etag, modified) = (whole.header("etag"), whole.header("last-modified"));
        let (etag, modified) = (etag.unwrap(), modified.unwrap());
        for (headers, status) in [
            (format!("If-None-Match: {etag}\r\n"), 304),
            (format!("If-Modified-Since: {modified}\r\n"), 304),
            ("Range: bytes=0-4\r\n".to_owned(), 206),
            ("Range: bytes=0-1,4-5\r\n".to_owned(), 206),
        ] {
            for takes in ["", TAKES_GZIP] {
                let headers = format!("{takes}{headers}");
                let (came, varies, _) = get(path, &headers);
                assert_eq!(came, status, "{path} {headers}");
                assert!(vary.is_none() || varies == vary, "{path} {headers}");
            }
        }
    }
    server.stop();
}
