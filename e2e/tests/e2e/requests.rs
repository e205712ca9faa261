//! What PHP sees of a request.

use pronghorn_testkit::{Server, Site};

#[test]
fn a_request_reaches_php_whole() {
    let server = Server::start(Site::with_worker("app.php"));
    let mut connection = server.connect();
    let body = "some text";
    connection.send(format!(
        "PUT /show?a=1&b[]=2&b[]=3 HTTP/1.1\r\nHost: example.org:81\r\nCookie: c=d%20e; f=g\r\nX-Many: 1\r\nX-Many: 2\r\n\
         Content-Type: text/plain\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    ));
    let response = connection.response();
    assert_eq!(response.header("content-type"), Some("application/json"));
    assert_eq!(
        response.text(),
        r#"{"method":"PUT","uri":"http://example.org:81/show?a=1&b[]=2&b[]=3","path":"/show","query":{"a":"1","b":["2","3"]},"protocol":"HTTP/1.1","remote":"127.0.0.1","headers":{"host":["example.org:81"],"cookie":["c=d%20e; f=g"],"x-many":["1","2"],"content-type":["text/plain"],"content-length":["9"]},"cookies":{"c":"d e","f":"g"},"body":"some text"}"#
    );
    server.stop();
}

#[test]
fn bodies_of_every_size_arrive_unchanged() {
    let server = Server::start(Site::with_worker("app.php"));
    for (size, md5) in [
        (0, "d41d8cd98f00b204e9800998ecf8427e"),
        (1, "0cc175b9c0f1b6a831c399e269772661"),
        (100_000, "1af6d6f2f682f76f80e606aeaaee1680"),
        // The last one in memory, the first one in a file, and one of many pieces.
        (256 << 10, "ec4d59b2732f2f153240a8ff746282a6"),
        ((256 << 10) + 1, "4ea3f8c94efcb7f7e3c1bd3a3f0a3d3b"),
        (5_000_000, "aa53ca0b650dfd85c4f59fa156f7a2cc"),
    ] {
        let response = server.post("/body", "application/octet-stream", vec![b'a'; size]);
        assert_eq!(
            response
                .text()
                .split_once(' ')
                .map(|(len, _)| len.to_owned()),
            Some(size.to_string())
        );
        if size <= 100_000 {
            assert_eq!(response.text(), format!("{size} {md5}"));
        }
    }
    server.stop();
}

#[test]
fn a_chunked_body_is_put_together() {
    let server = Server::start(Site::with_worker("app.php"));
    let mut connection = server.connect();
    connection.request("POST", "/show", "Transfer-Encoding: chunked\r\n");
    connection.send("5\r\nhello\r\n1;x=y\r\n \r\n5\r\nworld\r\n0\r\nTrailer: dropped\r\n\r\n");
    assert!(
        connection
            .response()
            .text()
            .contains(r#""body":"hello world""#)
    );
    assert_eq!(
        connection.get("/").text(),
        "Hello",
        "the connection goes on"
    );
    server.stop();
}

#[test]
fn a_client_that_waits_for_permission_gets_it() {
    let server = Server::start(Site::with_worker("app.php"));
    let mut connection = server.connect();
    connection.request(
        "POST",
        "/body",
        "Content-Length: 5\r\nExpect: 100-continue\r\n",
    );
    assert_eq!(connection.head().0, 100);
    connection.send("hello");
    assert_eq!(
        connection.response().text(),
        "5 5d41402abc4b2a76b9719d911017c592"
    );
    server.stop();
}

#[test]
fn forms_are_what_php_would_make_of_them() {
    let server = Server::start(Site::with_worker("app.php"));
    let response = server.post(
        "/form",
        "application/x-www-form-urlencoded",
        "a.b=1&c[]=2&c[]=3&d[e][f]=%C3%A9",
    );
    assert_eq!(
        response.text(),
        r#"{"form":{"a_b":"1","c":["2","3"],"d":{"e":{"f":"é"}}},"files":[]}"#
    );
    let body = "--X\r\nContent-Disposition: form-data; name=\"title\"\r\n\r\nHello\r\n\
                --X\r\nContent-Disposition: form-data; name=\"doc[a]\"; filename=\"C:\\\\dir\\\\cv.txt\"\r\nContent-Type: text/plain\r\n\r\ncontent\r\n\
                --X\r\nContent-Disposition: form-data; name=\"none\"; filename=\"\"\r\n\r\n\r\n--X--\r\n";
    let response = server.post("/form", "multipart/form-data; boundary=X", body);
    assert_eq!(
        response.text(),
        r#"{"form":{"title":"Hello"},"files":{"doc":{"a":{"name":"cv.txt","type":"text/plain","size":7,"error":0,"md5":"9a0364b9e99bb480dd25e1f0284c8555"}},"none":{"name":"","type":"","size":0,"error":4,"md5":null}}}"#
    );
    server.stop();
}

#[test]
fn a_form_that_is_broken_is_refused_with_the_reason() {
    let server = Server::start(Site::with_worker("app.php"));
    for (content_type, body, why) in [
        ("multipart/form-data", "x", "boundary"),
        (
            "multipart/form-data; boundary=X",
            "no boundary in here",
            "nowhere in the body",
        ),
        (
            "multipart/form-data; boundary=X",
            "--X\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\ncut",
            "ends before",
        ),
    ] {
        let response = server.post("/form", content_type, body);
        assert_eq!(response.status, 400, "{body}");
        assert!(response.text().contains(why), "{}", response.text());
        server.logged(&["DEBUG", "request refused", why, "\"URI\":\"/form\""]);
    }
    assert_eq!(server.get("/").text(), "Hello");
    server.stop();
}

#[test]
fn a_body_over_the_limit_is_refused_before_it_is_sent() {
    let config = std::fs::read_to_string(Site::with_worker("app.php").path(".rr.yaml")).unwrap();
    let site = Site::new().config(&config.replace("pool:", "max_request_size: 1\n  pool:"));
    let server = Server::start(site);
    let mut connection = server.connect();
    connection.request(
        "POST",
        "/body",
        "Content-Length: 1048577\r\nExpect: 100-continue\r\n",
    );
    let response = connection.response();
    assert_eq!(
        (response.status, response.header("connection")),
        (413, Some("close"))
    );
    assert_eq!(
        response.text(),
        "the body is too large: at most 1048576 bytes are taken\n"
    );
    assert!(connection.is_closed());
    server.logged(&[
        "DEBUG",
        "request refused: the body is too large",
        "\"status\":413",
    ]);
    // One that does not say how long it is.
    let mut connection = server.connect();
    connection.request("POST", "/body", "Transfer-Encoding: chunked\r\n");
    let chunk = format!("10000\r\n{}\r\n", "x".repeat(0x10000));
    for _ in 0..17 {
        connection.send(&chunk);
    }
    assert_eq!(connection.response().status, 413);
    assert_eq!(
        server
            .post("/body", "text/plain", vec![b'x'; 1 << 20])
            .status,
        200,
        "the limit itself is allowed"
    );
    server.stop();
}

#[test]
fn no_ending_of_an_upload_is_hidden_by_what_is_trimmed() {
    let config = std::fs::read_to_string(Site::with_worker("app.php").path(".rr.yaml")).unwrap();
    let site = Site::new().config(&config.replace("pool:", "uploads: {forbid: [.php]}\n  pool:"));
    let server = Server::start(site);
    for (file, error) in [
        ("a.php.", 8),
        ("a.PHP ", 8),
        ("a.php. .", 8),
        ("a.php.txt", 0),
        ("a.", 0),
        ("...", 0),
    ] {
        let body = format!(
            "--X\r\nContent-Disposition: form-data; name=\"f\"; filename=\"{file}\"\r\n\r\nx\r\n--X--\r\n"
        );
        let text = server
            .post("/form", "multipart/form-data; boundary=X", body)
            .text();
        assert!(
            text.contains(&format!("\"error\":{error},")),
            "{file}: {text}"
        );
    }
    server.stop();
}

#[test]
fn uploads_lie_in_their_folder_and_only_with_endings_that_are_taken() {
    let config = std::fs::read_to_string(Site::with_worker("app.php").path(".rr.yaml")).unwrap();
    let uploads = "uploads: {dir: uploads, allow: [.txt, php], forbid: [.PHP]}\n  pool:";
    let site = Site::new()
        .config(&config.replace("pool:", uploads))
        .file("uploads/readme", "");
    let server = Server::start(site);
    let part = |name: &str, file: &str| {
        format!(
            "--X\r\nContent-Disposition: form-data; name=\"{name}\"; filename=\"{file}\"\r\n\r\ncontent\r\n"
        )
    };
    let body = [
        part("taken", "a.TXT"),
        part("forbidden", "a.php"),
        part("not_allowed", "a.exe"),
        part("without", "a"),
        "--X--\r\n".to_owned(),
    ];
    let text = server
        .post("/form", "multipart/form-data; boundary=X", body.concat())
        .text();
    // 8 is UPLOAD_ERR_EXTENSION; of such a file nothing is kept.
    for (name, error, size) in [
        ("taken", 0, 7),
        ("forbidden", 8, 0),
        ("not_allowed", 8, 0),
        ("without", 8, 0),
    ] {
        let (_, file) = text.split_once(&format!("\"{name}\":")).unwrap();
        let (file, _) = file.split_once('}').unwrap();
        let expected = format!("\"size\":{size},\"error\":{error},");
        assert!(file.contains(&expected), "{name}: {text}");
    }
    // It was there for the call, and is gone with it.
    let folder = server.site().path("uploads");
    pronghorn_testkit::wait_for("the file to be removed", || {
        let names = std::fs::read_dir(&folder).unwrap().flatten();
        let names = names.map(|entry| entry.file_name().into_string().unwrap());
        let left: Vec<_> = names.collect();
        (left == ["readme"]).then_some(())
    });
    server.stop();
}

#[test]
fn a_slow_body_holds_no_worker() {
    let server = Server::start(Site::with_worker("app.php"));
    let mut slow: Vec<_> = (0..4).map(|_| server.connect()).collect();
    for connection in &mut slow {
        connection.request("POST", "/body", "Content-Length: 4\r\n");
        connection.send("ab");
    }
    // There are two workers, and four requests that are not complete.
    assert_eq!(server.get("/").text(), "Hello");
    for connection in &mut slow {
        connection.send("cd");
        assert_eq!(
            connection.response().text(),
            "4 e2fc714c4727ee9395f324cd2e7f331f"
        );
    }
    server.stop();
}
