//! What a client sees of PHP's replies.

use pronghorn_testkit::{Server, Site};

#[test]
fn a_small_reply_has_its_length_and_phps_default_type() {
    let server = Server::start(Site::with_worker("app.php"));
    let response = server.get("/");
    assert_eq!((response.status, response.text().as_str()), (200, "Hello"));
    assert_eq!(response.header("content-length"), Some("5"));
    assert_eq!(
        response.header("content-type"),
        Some("text/html; charset=UTF-8")
    );
    assert!(response.header("date").is_some() && response.header("server").is_none());
    server.stop();
}

#[test]
fn headers_keep_their_order_and_spelling() {
    let server = Server::start(Site::with_worker("app.php"));
    let response = server.get("/headers");
    let names: Vec<_> = response
        .headers
        .iter()
        .map(|(name, _)| name.as_str())
        .collect();
    assert_eq!(
        names,
        [
            "X-One",
            "X-Two",
            "X-Two",
            "Content-Type",
            "Date",
            "Content-Length"
        ]
    );
    assert_eq!(response.all("X-Two"), ["a", "b"]);
    server.stop();
}

#[test]
fn a_wrong_length_of_a_whole_body_is_corrected() {
    let server = Server::start(Site::with_worker("app.php"));
    let mut connection = server.connect();
    for is in ["4", "2", "9"] {
        let response = connection.get(&format!("/length?is={is}"));
        assert_eq!(
            (response.header("content-length"), response.text().as_str()),
            (Some("4"), "four")
        );
    }
    server.stop();
}

#[test]
fn statuses_without_a_body_have_none() {
    let server = Server::start(Site::with_worker("app.php"));
    let mut connection = server.connect();
    for code in [204, 304] {
        let response = connection.get(&format!("/status?code={code}"));
        assert_eq!(
            (response.status, response.header("content-length")),
            (code, None)
        );
    }
    connection.request("HEAD", "/", "");
    let head = connection.head_response();
    assert_eq!(
        (head.status, head.header("content-length")),
        (200, Some("5"))
    );
    assert_eq!(
        connection.get("/").text(),
        "Hello",
        "the connection goes on"
    );
    server.stop();
}

#[test]
fn a_value_with_a_line_break_is_never_sent() {
    let server = Server::start(Site::with_worker("app.php"));
    let response = server.get("/bad-header");
    assert_eq!(
        (response.status, response.header("set-cookie")),
        (500, None)
    );
    server.logged(&["X-Evil"]);
    assert_eq!(server.get("/").text(), "Hello");
    server.stop();
}

#[test]
fn a_stream_is_chunked_and_its_end_is_its_end() {
    let server = Server::start(Site::with_worker("app.php"));
    let mut connection = server.connect();
    let response = connection.get("/stream");
    assert_eq!(response.header("transfer-encoding"), Some("chunked"));
    assert_eq!(
        (response.text().as_str(), response.complete),
        ("piece 1\npiece 2\npiece 3\n", true)
    );
    let mut old = server.connect();
    old.send("GET /stream HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    let response = old.response();
    assert_eq!(
        (response.header("connection"), response.text().len()),
        (Some("close"), 24)
    );
    assert_eq!(
        connection.get("/stream?pieces=5000").text().lines().count(),
        5000
    );
    server.stop();
}

#[test]
fn a_stream_that_breaks_off_does_not_look_whole() {
    let server = Server::start(Site::with_worker("app.php"));
    let mut connection = server.connect();
    let response = connection.get("/breaks");
    assert_eq!(
        (response.status, response.text().as_str(), response.complete),
        (200, "half", false)
    );
    assert!(connection.is_closed());
    server.logged(&["broke off"]);
    server.stop();
}

#[test]
fn a_stream_is_held_to_the_length_that_it_announced() {
    let server = Server::start(Site::with_worker("app.php"));
    let right = server.get("/announced?is=24");
    assert_eq!(
        (right.header("content-length"), right.complete),
        (Some("24"), true)
    );
    let short = server.get("/announced?is=30");
    assert!(!short.complete, "it looks whole");
    let mut connection = server.connect();
    let long = connection.get("/announced?is=10");
    assert_eq!((long.text().len(), long.complete), (10, true));
    assert!(connection.is_closed(), "more would follow");
    server.stop();
}

/// What is there is written together, whatever the pieces.
#[test]
fn a_stream_of_short_and_long_pieces_arrives_as_it_was_made() {
    let server = Server::start(Site::with_worker("app.php"));
    let sizes = [
        20_000, 1, 9_000, 70_000, 8_192, 8_193, 300_000, 5, 16, 262_144,
    ]
    .repeat(3);
    let letters = (b'a'..=b'z').cycle();
    let expected: Vec<u8> = sizes
        .iter()
        .zip(letters)
        .flat_map(|(size, letter)| std::iter::repeat_n(letter, *size))
        .collect();
    let sizes: Vec<_> = sizes.iter().map(usize::to_string).collect();
    let target = format!("/mixed?sizes={}", sizes.join(","));
    let check = |what: &str, len: usize, complete| {
        let mut connection = server.connect();
        let response = connection.get(&format!("{target}{what}"));
        assert_eq!(
            (response.body.len(), response.complete),
            (len, complete),
            "{what}"
        );
        assert!(response.body == expected[..len], "{what}: another body");
        if !complete || len < expected.len() {
            assert!(connection.is_closed(), "{what}: more follows");
        }
    };
    let len = expected.len();
    check("", len, true);
    check("&breaks=1", len, false);
    check(&format!("&is={len}"), len, true);
    check(&format!("&is={}", len + 1), len, false);
    // In the middle of pieces that were there together, and at the end of one.
    for is in [1_234_567, 20_000, 20_001, len - 1] {
        check(&format!("&is={is}"), is, true);
    }
    server.stop();
}

/// What `/large` answers.
fn large(kb: usize) -> Vec<u8> {
    let lines = (0..kb * 64).map(|line| format!("{line:015}\n"));
    lines.collect::<String>().into()
}

#[test]
fn large_replies_arrive_whole() {
    let server = Server::start(Site::with_worker("app.php"));
    for kb in [
        8, 15, 16, 17, 63, 64, 500, 511, 512, 513, 1023, 1024, 20_000,
    ] {
        let response = server.get(&format!("/large?kb={kb}"));
        assert!(response.complete, "{kb} KB");
        assert!(response.body == large(kb), "another body of {kb} KB");
    }
    server.stop();
}

/// Longer than what both ends of a connection keep, and shorter or longer than a worker's memory.
#[test]
fn a_worker_is_free_while_slow_clients_have_not_read_its_long_reply() {
    const SLOW: usize = 10;
    let site = Site::with_worker("app.php");
    site.change_config("num_workers: 2", "num_workers: 1");
    let server = Server::start(site);
    for kb in [500, 900] {
        let mut slow: Vec<_> = (0..SLOW).map(|_| server.connect()).collect();
        for client in &mut slow {
            client.request("GET", &format!("/large?kb={kb}"), "");
        }
        for _ in 0..20 {
            assert_eq!(server.get("/").text(), "Hello");
        }
        for mut client in slow {
            assert!(client.response().body == large(kb), "another body");
        }
    }
    server.stop();
}

/// A moment of waiting at each of them would hold it for longer than others wait.
#[test]
fn a_worker_is_free_of_many_small_pieces_that_nobody_reads() {
    let site = Site::with_worker("app.php");
    site.change_config("num_workers: 2", "num_workers: 1, allocate_timeout: 8s");
    let server = Server::start(site);
    let mut slow = server.connect();
    slow.request("GET", "/stream?pieces=12000&size=1000", "");
    assert_eq!(server.get("/").text(), "Hello");
    let body = slow.response().body;
    assert_eq!(body.len(), 12_000_000);
    assert!(body.ends_with(b" ") && body.starts_with(b"piece 1\n"));
    server.stop();
}

#[test]
fn a_file_is_sent_by_the_server() {
    let site = Site::with_worker("app.php").file("report.txt", &"line\n".repeat(100_000));
    let server = Server::start(site);
    let response = server.get(&format!(
        "/file?path={}",
        server.site().path("report.txt").display()
    ));
    assert_eq!(
        (response.body.len(), response.header("content-type")),
        (500_000, Some("text/plain"))
    );
    assert_eq!(response.header("content-length"), Some("500000"));
    server.stop();
}

#[test]
fn early_hints_come_before_the_reply() {
    let server = Server::start(Site::with_worker("app.php"));
    let mut connection = server.connect();
    connection.request("GET", "/hints", "");
    let (status, headers) = connection.head();
    assert_eq!(
        (status, headers[0].1.as_str()),
        (103, "</a.css>; rel=preload")
    );
    let response = connection.response();
    assert_eq!((response.status, response.header("link")), (200, None));
    server.stop();
}

#[test]
fn output_is_of_the_reply_and_errors_go_to_the_log() {
    let server = Server::start(Site::with_worker("app.php"));
    assert_eq!(server.get("/echo").text(), "printed, to the client");
    server.get("/stderr");
    server.logged(&["first line"]);
    let line = server.logged(&["second line"]);
    assert!(!line.contains("first line"), "a record per line: {line}");
    server.stop();
}

#[test]
fn an_exception_is_a_500_with_a_number_and_one_record() {
    let server = Server::start(Site::with_worker("app.php"));
    let response = server.get("/throw");
    assert_eq!(response.status, 500);
    assert!(
        !response.text().contains("purpose"),
        "details are not for clients"
    );
    let id = response.header("x-request-id").unwrap().to_owned();
    let record = server.logged(&["thrown on purpose", &id]);
    assert!(
        record.contains("DomainException") && record.contains("app.php"),
        "{record}"
    );
    let pid = server.get("/pid").text();
    assert!(
        server.workers().contains(&pid.parse().unwrap()),
        "the worker lives"
    );
    server.stop();
}

#[test]
fn a_reply_does_not_wait_for_deferred_work() {
    let server = Server::start(Site::with_worker("app.php"));
    let response = server.get("/defer");
    assert_eq!(response.text(), "first");
    assert!(!server.log().contains("deferred work is done"));
    server.logged(&["deferred work is done"]);
    server.stop();
}
