//! Bodies that a worker reads while they come: `request_body: stream`.

use pronghorn_testkit::{Connection, Server, Site};

fn streaming(more: &str) -> Server {
    let config = format!(
        "version: '3'\nserver:\n  command: php {}\nhttp:\n  address: 127.0.0.1:0\n  pool: {{num_workers: 1, request_body: stream}}\n{more}\
         logs: {{level: debug}}\n",
        Site::fixture("bodies.php").display()
    );
    Server::start(Site::new().config(&config))
}

fn chunk(bytes: &str) -> String {
    format!("{:x}\r\n{bytes}\r\n", bytes.len())
}

#[test]
fn a_worker_reads_a_body_while_it_comes() {
    let server = streaming("");
    let mut connection = server.connect();
    connection.request("POST", "/pieces", "Transfer-Encoding: chunked\r\n");
    connection.send(chunk("one "));
    server.logged(&["read so far: 4"]);
    connection.send(chunk("two "));
    server.logged(&["read so far: 8"]);
    connection.send(chunk("three") + "0\r\n\r\n");
    assert_eq!(connection.response().text(), "one two three");
    assert_eq!(
        connection.get("/").text(),
        "Hello",
        "the connection goes on"
    );
    // The record knows what came.
    server.logged(&["http log", "/pieces", "\"read_bytes\":13"]);
    server.stop();
}

#[test]
fn bodies_of_every_size_and_kind_arrive_unchanged() {
    let server = streaming("");
    for size in [0, 1, 65_535, 65_536, 65_537, 1_000_000] {
        let response = server.post("/whole", "application/octet-stream", vec![b'a'; size]);
        let text = response.text();
        assert!(text.starts_with(&format!("{size} ")), "{size}: {text}");
        let response = server.post("/hash", "application/octet-stream", vec![b'a'; size]);
        let (_, md5) = text.split_once(' ').unwrap();
        assert!(response.text().contains(md5), "{size}: {}", response.text());
    }
    // A form has to be complete before it can be taken apart.
    let form = server.post("/form", "application/x-www-form-urlencoded", "a=1&b[]=2");
    assert_eq!(form.text(), r#"[{"a":"1","b":["2"]},[],"a=1&b[]=2"]"#);
    let body = "--X\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n1\r\n\
                --X\r\nContent-Disposition: form-data; name=\"f\"; filename=\"f.txt\"\r\n\r\nx\r\n--X--\r\n";
    let form = server.post("/form", "multipart/form-data; boundary=X", body);
    assert_eq!(form.text(), r#"[{"a":"1"},["f"],""]"#);
    server.stop();
}

#[test]
fn what_a_handler_leaves_of_a_body_is_read_away_or_the_connection_ends() {
    let server = streaming("");
    let mut connection = server.connect();
    connection.request("POST", "/first", "Content-Length: 11\r\n");
    connection.send("hello world");
    assert_eq!(connection.response().text(), "hello");
    connection.request("POST", "/unread", "Content-Length: 5\r\n");
    connection.send("hello");
    assert_eq!(connection.response().text(), "not read");
    assert_eq!(connection.get("/").text(), "Hello");
    // Too much to read for nothing.
    connection.request("POST", "/unread", "Content-Length: 1000000\r\n");
    connection.send("the beginning");
    let response = connection.response();
    assert_eq!(
        (response.text().as_str(), response.header("connection")),
        ("not read", Some("close"))
    );
    assert!(connection.is_closed());
    server.stop();
}

#[test]
fn a_client_that_asks_first_is_told_to_send_when_php_reads() {
    let server = streaming("");
    let expect = "Content-Length: 5\r\nExpect: 100-continue\r\n";
    let mut connection = server.connect();
    connection.request("POST", "/unread", expect);
    let response = connection.response();
    assert_eq!(
        (response.status, response.text().as_str()),
        (200, "not read")
    );
    let mut connection = server.connect();
    connection.request("POST", "/first", expect);
    assert_eq!(connection.head().0, 100);
    connection.send("hello");
    assert_eq!(connection.response().text(), "hello");
    server.stop();
}

#[test]
fn php_learns_that_the_client_left_in_the_middle() {
    let server = streaming("");
    let leave = |path: &str| {
        let mut connection = server.connect();
        connection.request("POST", path, "Content-Length: 100\r\n");
        connection.send("the beginning");
        // A call whose client has left before a worker takes it is never made.
        server.logged(&["asked for", path]);
        connection
    };
    // While it waits for the rest, and while it does something else.
    drop(leave("/left"));
    server.logged(&["left in the middle, connected: false"]);
    drop(leave("/waits"));
    server.logged(&["seen that the client left: yes"]);
    // Who does not want to know need not.
    drop(leave("/uncaught"));
    let pid = server.workers();
    assert_eq!(server.get("/").text(), "Hello");
    assert_eq!(server.workers(), pid, "the worker lives");
    server.logged(&["http log", "/left", "\"status\":499"]);
    server.stop();
}

#[test]
fn a_streamed_body_has_the_limit_of_its_route() {
    let server =
        streaming("  max_request_size: 1\n  routes: [{path: /pieces, max_request_size: 2MB}]\n");
    let upload = |connection: &mut Connection, path: &str, kb: usize| {
        connection.request("POST", path, "Transfer-Encoding: chunked\r\n");
        for _ in 0..kb {
            connection.send(chunk(&"x".repeat(1024)));
        }
        connection.send("0\r\n\r\n");
        connection.response().status
    };
    assert_eq!(upload(&mut server.connect(), "/whole", 1024), 200);
    assert_eq!(upload(&mut server.connect(), "/whole", 1025), 413);
    assert_eq!(upload(&mut server.connect(), "/pieces", 1025), 200);
    let mut connection = server.connect();
    connection.request("POST", "/whole", "Content-Length: 1048577\r\n");
    assert_eq!(connection.response().status, 413, "without any of it");
    assert_eq!(server.get("/").text(), "Hello");
    server.stop();
}

#[test]
fn a_route_may_say_how_its_bodies_come() {
    let server = streaming("  routes: [{path: /pieces, request_body: buffer}]\n");
    let mut connection = server.connect();
    connection.request("POST", "/pieces", "Content-Length: 8\r\n");
    connection.send("half");
    // The only worker is not held by it.
    assert_eq!(server.get("/").text(), "Hello");
    connection.send("half");
    assert_eq!(connection.response().text(), "halfhalf");
    server.stop();
}

#[test]
fn packages_that_cannot_take_a_streamed_body_are_named() {
    let config = format!(
        "version: '3'\nserver:\n  command: php {}\nhttp:\n  address: 127.0.0.1:0\n  pool: {{num_workers: 1, request_body: stream}}\n",
        Site::fixture("foreign/worker.php").display()
    );
    let server = Server::start(Site::new().config(&config));
    assert_eq!(server.post("/", "text/plain", "x").status, 500);
    server.logged(&["ERROR", "`request_body: stream` needs pronghorn/worker"]);
    assert_eq!(server.get("/").status, 200, "without a body it serves");
    server.stop();
}
