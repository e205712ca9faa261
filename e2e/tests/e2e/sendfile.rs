//! Files that PHP names for the server to send.

use pronghorn_testkit::{Server, Site};

fn site() -> Site {
    let worker =
        "return new Pronghorn\\Response('instead', (int) ($request->query()['status'] ?? 200), [
        $request->query()['by'] => $request->query()['name'], 'X-Kept' => 'yes',
    ]);";
    let site = Site::new()
        .file("worker.php", &Site::sdk_worker(worker))
        .file("storage/report.txt", "0123456789")
        .file("storage/large.pdf", &"0123456789abcdef".repeat(100_000))
        .file("storage/.hidden", "secret")
        .file("storage/code.php", "<?php secret();")
        .file("outside.txt", "secret");
    let folder = site.folder().display().to_string();
    site.config(&format!(
        "version: '3'\nserver:\n  command: php worker.php\nhttp:\n  address: 127.0.0.1:0\n  pool: {{num_workers: 1}}\n  middleware: [sendfile]\n  sendfile: {{roots: [storage], locations: [{{prefix: /protected, root: {folder}/storage}}]}}\nlogs: {{level: debug}}\n"
    ))
}

#[test]
fn a_file_is_sent_in_place_of_the_reply() {
    let server = Server::start(site());
    let mut connection = server.connect();
    let storage = server.site().path("storage").display().to_string();
    for (by, name) in [
        ("X-Sendfile", format!("{storage}/report.txt")),
        ("X-Sendfile", "storage/report.txt".to_owned()),
        ("X-Accel-Redirect", "/protected/report.txt".to_owned()),
        ("X-Accel-Redirect", "/protected/%2572eport.txt?x".to_owned()),
        // What Symfony's BinaryFileResponse sends.
        (
            "X-Accel-Redirect",
            "%252Fprotected%252Freport.txt".to_owned(),
        ),
        ("X-Accel-Redirect", "/protected%252freport.txt".to_owned()),
    ] {
        let target = format!("/?by={by}&name={name}");
        let response = connection.get(&target);
        assert_eq!(
            (response.status, response.text().as_str()),
            (200, "0123456789"),
            "{target}"
        );
        assert_eq!(response.header("x-kept"), Some("yes"));
        assert!(response.header(by).is_none());
        connection.request("GET", &target, "Range: bytes=2-3\r\n");
        let part = connection.response();
        assert_eq!((part.status, part.text().as_str()), (206, "23"));
        let tag = response.header("etag").unwrap();
        connection.request("GET", &target, &format!("If-None-Match: {tag}\r\n"));
        assert_eq!(connection.response().status, 304);
        connection.request("HEAD", &target, "");
        let head = connection.head_response();
        assert_eq!(
            (head.status, head.header("content-length")),
            (200, Some("10"))
        );
    }
    let large = connection.get("/?by=x-sendfile&name=storage/large.pdf&status=201");
    assert_eq!((large.status, large.body.len()), (201, 1_600_000));
    server.stop();
}

#[test]
fn what_may_not_be_sent_is_not() {
    let server = Server::start(site());
    let mut connection = server.connect();
    let folder = server.site().folder().display().to_string();
    for (by, name, status) in [
        (
            "X-Sendfile",
            format!("{folder}/storage/../outside.txt"),
            403,
        ),
        ("X-Sendfile", format!("{folder}/storage/.hidden"), 403),
        ("X-Sendfile", format!("{folder}/storage/code.php"), 403),
        ("X-Sendfile", format!("{folder}/outside.txt"), 404),
        ("X-Sendfile", "/etc/passwd".to_owned(), 404),
        ("X-Sendfile", format!("{folder}/storage/nope"), 404),
        ("X-Sendfile", format!("{folder}/storage"), 404),
        (
            "X-Accel-Redirect",
            "/protected/../outside.txt".to_owned(),
            404,
        ),
        (
            "X-Accel-Redirect",
            "%252Fprotected%252F..%252Foutside.txt".to_owned(),
            404,
        ),
        (
            "X-Accel-Redirect",
            "%252Fprotected%252F.hidden".to_owned(),
            404,
        ),
        (
            "X-Accel-Redirect",
            "%252Fprotected%252Fcode.php".to_owned(),
            404,
        ),
        (
            "X-Accel-Redirect",
            "/protected/report.txt%2500".to_owned(),
            404,
        ),
        ("X-Accel-Redirect", "/protected/.hidden".to_owned(), 404),
        ("X-Accel-Redirect", "/protected/code.php".to_owned(), 404),
        ("X-Accel-Redirect", "/elsewhere/report.txt".to_owned(), 404),
        ("X-Accel-Redirect", "/protected/".to_owned(), 404),
    ] {
        let response = connection.get(&format!("/?by={by}&name={name}"));
        assert_eq!(response.status, status, "{by}: {name}");
        assert!(!response.text().contains("secret") && !response.text().contains("instead"));
    }
    server.logged(&["which the application names, is not sent", "/etc/passwd"]);
    server.stop();
}
