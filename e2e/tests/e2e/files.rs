//! Files without PHP.

use pronghorn_testkit::{Server, Site};

fn site(static_keys: &str) -> Site {
    let worker = Site::fixture("app.php");
    Site::new()
        .config(&format!(
            "version: '3'\nserver:\n  command: php {}\nhttp:\n  address: 127.0.0.1:0\n  pool: {{num_workers: 1}}\n  middleware: [static]\n  static: {static_keys}\nlogs: {{level: debug}}\n",
            worker.display()
        ))
        .file("public/a.css", "0123456789")
        .file("public/index.php", "<?php secret();")
        .file("public/large.txt", &"0123456789abcdef".repeat(100_000))
        .file("secret.txt", "secret")
}

#[test]
fn files_come_before_php_and_the_rest_goes_to_it() {
    let server = Server::start(site(
        "{dir: public, forbid: [.map], request: {X-From: static}}",
    ));
    let mut connection = server.connect();
    let css = connection.get("/a.css");
    assert_eq!((css.status, css.text().as_str()), (200, "0123456789"));
    assert_eq!(css.header("content-length"), Some("10"));
    let large = connection.get("/large.txt");
    assert_eq!(large.body.len(), 1_600_000);
    assert!(
        large
            .body
            .chunks(16)
            .all(|line| line == b"0123456789abcdef")
    );
    assert_eq!(connection.get("/").text(), "Hello");
    for path in ["/index.php", "/nope.css", "/INDEX.PHP"] {
        // The application's own words.
        assert_eq!(connection.get(path).text(), "not found", "{path}");
    }
    connection.request("HEAD", "/large.txt", "");
    let head = connection.head_response();
    assert_eq!(
        (head.status, head.header("content-length")),
        (200, Some("1600000"))
    );
    connection.request("GET", "/large.txt", "Range: bytes=1599998-\r\n");
    let part = connection.response();
    assert_eq!((part.status, part.text().as_str()), (206, "ef"));
    connection.request("GET", "/large.txt", "Range: bytes=16-17,-1\r\n");
    let parts = connection.response();
    assert!(parts.text().contains("\r\n\r\n01\r\n--") && parts.text().contains("\r\n\r\nf\r\n--"));
    connection.request(
        "GET",
        "/a.css",
        &format!("If-None-Match: {}\r\n", css.header("etag").unwrap()),
    );
    assert_eq!(connection.response().status, 304);
    assert_eq!(connection.get("/../secret.txt").status, 403);
    server.stop();
}

#[test]
fn a_folder_that_is_not_there_fails_the_start() {
    Server::run(&site("{dir: nowhere}"), &["serve"]).assert_refused(&["http.static", "nowhere"]);
}
